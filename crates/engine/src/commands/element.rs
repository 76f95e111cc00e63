//! Elements of collections in replies.

use crate::command::Flow;
use crate::ctx::Ctx;
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

/// The reply about a key that is not there. Its time may have come while it was read in pieces: then these are taken back.
pub(super) fn nothing(ctx: &Ctx<'_>, reply: &mut Reply, open: fn(&mut Reply, usize)) -> Flow {
    if ctx.resume != 0 {
        reply.clear();
    }
    open(reply, 0);
    Flow::Done
}
