//! Elements of collections in replies.

use crate::values::{Element, decimal};
use corelane_resp::Reply;

/// Writes the text of an element as a bulk.
#[inline]
pub(super) fn write_element(reply: &mut Reply, element: Element<'_>) {
    match element {
        Element::Bytes(bytes) => reply.bulk(bytes),
        Element::Int(int) => reply.bulk(decimal(int, &mut [0; 20])),
        double @ Element::Double(_) => reply.bulk(&double.text()),
    }
}

/// The same; nothing where there is none.
#[inline]
pub(super) fn write_optional(reply: &mut Reply, element: Option<Element<'_>>) {
    match element {
        Some(element) => write_element(reply, element),
        None => reply.null(),
    }
}
