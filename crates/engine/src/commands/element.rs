//! Elements of collections in replies.

use crate::command::Flow;
use crate::ctx::Ctx;
use crate::values::Element;
use corelane_resp::Reply;

/// Writes the text of an element as a bulk.
#[inline]
pub(super) fn write_element(reply: &mut Reply, element: Element<'_>) {
    element.with_text(|text| reply.bulk(text));
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
