//! Replies as frames without their bytes in between: what [`Reply`] spliced in comes out as it is, not copied.

use std::collections::VecDeque;

use bytes::Bytes;

use crate::frame::{DecodeError, Frame, Item, Nest, item};
use crate::reply::{Reply, Splice};

/// Bytes around the digits of a bulk's head.
const CRLF: &[u8] = b"\r\n";

/// The frames of a reply, one after the other.
#[derive(Debug)]
pub struct Frames {
    flat: Vec<u8>,
    /// Where the next frame starts in `flat`.
    pos: usize,
    splices: VecDeque<Splice>,
}

impl Frames {
    /// The frames of `reply`.
    #[must_use]
    pub fn new(reply: Reply) -> Self {
        let (flat, splices) = reply.into_parts();
        Self { flat, pos: 0, splices: splices.into() }
    }

    /// The next frame; `None` at the end, or where the rest is no whole frame. Payloads that were spliced into the reply are
    /// shared with it, shorter ones are copied.
    ///
    /// # Errors
    /// The bytes are no reply.
    #[expect(clippy::should_implement_trait, reason = "an iterator would go on after an error")]
    pub fn next(&mut self) -> Result<Option<Frame>, DecodeError> {
        let mut nest = Nest::default();
        loop {
            let Some(part) = self.part()? else { return Ok(None) };
            let done = match part {
                Part::Payload(bytes) => nest.add(Frame::Bulk(bytes)),
                Part::Item(Item::Aggregate(kind, count)) => nest.open(kind, count)?,
                Part::Item(leaf) => nest.add(leaf.into_frame()),
            };
            if done.is_some() {
                return Ok(done);
            }
        }
    }

    /// The next head, leaf or spliced payload.
    fn part(&mut self) -> Result<Option<Part<'_>>, DecodeError> {
        let end = self.splices.front().map_or(self.flat.len(), |splice| splice.at);
        if let Some((_, next)) = item(&self.flat[..end], self.pos)? {
            let start = std::mem::replace(&mut self.pos, next);
            // Read a second time, since a borrow cannot be returned from one branch only.
            return Ok(item(&self.flat[..end], start)?.map(|(item, _)| Part::Item(item)));
        }
        if self.splices.is_empty() {
            return Ok(None);
        }
        if self.at_payload(end)
            && let Some(splice) = self.splices.pop_front()
        {
            self.pos = end + CRLF.len();
            return Ok(Some(Part::Payload(splice.bytes)));
        }
        self.flatten();
        let Some((item, next)) = item(&self.flat, 0)? else { return Ok(None) };
        self.pos = next;
        Ok(Some(Part::Item(item)))
    }

    /// Whether what is left before `end` is the head of a bulk whose payload is the next splice.
    fn at_payload(&self, end: usize) -> bool {
        let head = self.flat[self.pos..end].strip_prefix(b"$").and_then(|head| head.strip_suffix(CRLF));
        let digits = head.and_then(|digits| std::str::from_utf8(digits).ok());
        let len = digits.and_then(|digits| digits.parse::<usize>().ok());
        let alone = self.splices.get(1).is_none_or(|next| next.at > end);
        alone
            && self.flat[end..].starts_with(CRLF)
            && self.splices.front().is_some_and(|splice| Some(splice.bytes.len()) == len)
    }

    /// Copies what is left into one piece: splices of a sealed reply are anything but payloads.
    fn flatten(&mut self) {
        let mut flat = Vec::new();
        let mut start = self.pos;
        for splice in self.splices.drain(..) {
            flat.extend_from_slice(&self.flat[start..splice.at]);
            flat.extend_from_slice(&splice.bytes);
            start = splice.at;
        }
        flat.extend_from_slice(&self.flat[start..]);
        (self.flat, self.pos) = (flat, 0);
    }
}

enum Part<'a> {
    Item(Item<'a>),
    Payload(Bytes),
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reply::{Proto, SPLICE_LEN_MIN};

    fn large(byte: u8) -> Bytes {
        Bytes::from(vec![byte; SPLICE_LEN_MIN])
    }

    fn all(reply: Reply) -> Vec<Frame> {
        let mut frames = Frames::new(reply);
        std::iter::from_fn(|| frames.next().expect("a reply")).collect()
    }

    #[test]
    fn spliced_payloads_come_out_uncopied_wherever_they_stand() {
        let (one, two) = (large(1), large(2));
        let mut reply = Reply::new(Proto::Resp3);
        reply.ok();
        reply.bulk_shared(one.clone());
        reply.array(3);
        reply.int(7);
        reply.bulk_shared(two.clone());
        reply.bulk_shared(one.clone());
        reply.map(1);
        reply.bulk(b"key");
        reply.array(0);
        let frames = all(reply);
        let expected = [
            Frame::Simple("OK".into()),
            Frame::Bulk(one.clone()),
            Frame::Array(vec![Frame::Int(7), Frame::Bulk(two.clone()), Frame::Bulk(one.clone())]),
            Frame::Map(vec![(Frame::Bulk("key".into()), Frame::Array(Vec::new()))]),
        ];
        assert_eq!(frames, expected);
        let Frame::Bulk(bytes) = &frames[1] else { panic!("a bulk") };
        assert_eq!(bytes.as_ptr(), one.as_ptr(), "the same memory");
        let Frame::Array(items) = &frames[2] else { panic!("an array") };
        let Frame::Bulk(bytes) = &items[1] else { panic!("a bulk") };
        assert_eq!(bytes.as_ptr(), two.as_ptr());
    }

    #[test]
    fn a_sealed_reply_reads_as_before() {
        let write = |reply: &mut Reply| {
            reply.array(5000);
            for n in 0..5000 {
                reply.bulk(format!("element number {n}").as_bytes());
            }
            reply.bulk_shared(large(3));
        };
        let (mut plain, mut sealed) = (Reply::default(), Reply::default());
        write(&mut plain);
        write(&mut sealed);
        sealed.seal();
        sealed.ok();
        plain.ok();
        assert_eq!(all(sealed), all(plain));
    }

    #[test]
    fn what_is_no_whole_frame_is_none() {
        for bytes in [&b""[..], b"$3\r\nab", b"*2\r\n:1\r\n"] {
            let mut reply = Reply::default();
            reply.raw(bytes);
            assert_eq!(all(reply), []);
        }
        let mut reply = Reply::default();
        reply.raw(b"?");
        assert_eq!(Frames::new(reply).next(), Err(DecodeError::Kind(b'?')));
    }
}
