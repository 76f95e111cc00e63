//! Puts replies that arrive in any order back into the order of the requests.
//!
//! Replies to commands that ran on other shards come later than those that ran here. Each command gets the next
//! sequence number; a reply whose turn it is goes straight to the output, the others are held in one buffer, so that
//! nothing is allocated per reply once the buffers have grown.

use corelane_resp::Reply;
use std::collections::VecDeque;

/// Held bytes from which on it is worth looking whether most of them are dead.
const COMPACT_MIN: usize = 64 << 10;
/// Room for so many replies is kept while none is owed; a place takes 24 bytes.
const SLOTS_KEPT_MAX: usize = 256;

#[derive(Debug)]
enum Slot {
    Waiting,
    /// The same, for a reply that nobody is to see.
    Muted,
    Held {
        start: usize,
        len: usize,
    },
    Large(Box<Reply>),
}

/// The replies a connection still owes, oldest first.
#[derive(Debug, Default)]
pub(crate) struct ReplyOrder {
    slots: VecDeque<Slot>,
    /// The sequence number of the first slot.
    head: u32,
    held: Vec<u8>,
    held_live: usize,
    /// Bytes of the large replies, shared payloads included.
    large_len: usize,
}

impl ReplyOrder {
    /// Whether every reply so far has gone to the output.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    /// Replies owed.
    pub(crate) fn len(&self) -> usize {
        self.slots.len()
    }

    /// Bytes of replies that wait for earlier ones.
    #[inline]
    pub(crate) fn held_len(&self) -> usize {
        self.held_live + self.large_len
    }

    /// A place for a reply that will come later, and is dropped then if it is `muted`: its sequence number.
    #[inline]
    pub(crate) fn reserve(&mut self, muted: bool) -> u32 {
        self.slots.push_back(if muted { Slot::Muted } else { Slot::Waiting });
        self.head.wrapping_add(self.slots.len() as u32 - 1)
    }

    /// A reply that is complete already but must wait for those before it. Takes its content.
    pub(crate) fn push_ready(&mut self, reply: &mut Reply) {
        self.slots.push_back(Slot::Waiting);
        let idx = self.slots.len() - 1;
        if reply.splices().is_empty() {
            self.hold(idx, &reply.buf);
            reply.clear();
        } else {
            self.hold_large(idx, reply.take());
        }
    }

    /// The reply number `seq` came.
    #[inline]
    pub(crate) fn deliver(&mut self, seq: u32, bytes: &[u8], out: &mut Reply) {
        let idx = seq.wrapping_sub(self.head) as usize;
        assert!(idx < self.slots.len(), "a reply to a request that is not open");
        let bytes = if matches!(self.slots[idx], Slot::Muted) { &[] } else { bytes };
        if idx == 0 {
            out.raw(bytes);
            self.advance(out);
        } else {
            self.hold(idx, bytes);
        }
    }

    /// The reply number `seq` came, with payloads that must not be copied.
    pub(crate) fn deliver_large(&mut self, seq: u32, mut reply: Reply, out: &mut Reply) {
        let idx = seq.wrapping_sub(self.head) as usize;
        assert!(idx < self.slots.len(), "a reply to a request that is not open");
        if matches!(self.slots[idx], Slot::Muted) {
            return self.deliver(seq, &[], out);
        }
        if idx == 0 {
            out.append(&mut reply);
            self.advance(out);
        } else {
            self.hold_large(idx, reply);
        }
    }

    fn hold_large(&mut self, idx: usize, reply: Reply) {
        self.large_len += reply.len();
        self.slots[idx] = Slot::Large(Box::new(reply));
    }

    fn hold(&mut self, idx: usize, bytes: &[u8]) {
        let start = self.held.len();
        self.held.extend_from_slice(bytes);
        self.held_live += bytes.len();
        self.slots[idx] = Slot::Held { start, len: bytes.len() };
        if self.held.len() > COMPACT_MIN && self.held_live * 2 < self.held.len() {
            self.compact();
        }
    }

    /// The first slot has been answered: drop it, and send what waited behind it.
    fn advance(&mut self, out: &mut Reply) {
        self.pop();
        while let Some(slot) = self.slots.front_mut() {
            match slot {
                Slot::Waiting | Slot::Muted => return,
                Slot::Held { start, len } => {
                    out.raw(&self.held[*start..*start + *len]);
                    self.held_live -= *len;
                }
                Slot::Large(reply) => {
                    self.large_len -= reply.len();
                    out.append(reply);
                }
            }
            self.pop();
        }
        self.held.clear();
        if self.held.capacity() > COMPACT_MIN {
            self.held = Vec::new();
        }
        if self.slots.capacity() > SLOTS_KEPT_MAX {
            self.slots = VecDeque::new();
        }
    }

    fn pop(&mut self) {
        self.slots.pop_front();
        self.head = self.head.wrapping_add(1);
    }

    fn compact(&mut self) {
        let mut live = Vec::with_capacity(self.held_live);
        for slot in &mut self.slots {
            if let Slot::Held { start, len } = slot {
                let moved = live.len();
                live.extend_from_slice(&self.held[*start..*start + *len]);
                *start = moved;
            }
        }
        self.held = live;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ctx::Rng;

    #[test]
    fn replies_leave_in_the_order_of_their_requests() {
        for seed in 0..200 {
            let mut rng = Rng::new(seed);
            let (mut order, mut out, mut open, mut expected) =
                (ReplyOrder::default(), Reply::default(), Vec::new(), Vec::new());
            for n in 0..300u32 {
                let text = format!("+{n}{}\r\n", "x".repeat((rng.next() % 900) as usize));
                let muted = rng.next().is_multiple_of(5);
                if !muted {
                    expected.extend_from_slice(text.as_bytes());
                }
                match rng.next() % 3 {
                    _ if muted => open.push((order.reserve(true), text)),
                    0 if !order.is_empty() => {
                        let mut reply = Reply::default();
                        reply.raw(text.as_bytes());
                        order.push_ready(&mut reply);
                    }
                    0 => out.raw(text.as_bytes()),
                    _ => open.push((order.reserve(false), text)),
                }
                while !open.is_empty() && rng.next().is_multiple_of(2) {
                    let (seq, text) = open.swap_remove(rng.next() as usize % open.len());
                    if rng.next().is_multiple_of(4) {
                        let mut reply = Reply::default();
                        reply.raw(text.as_bytes());
                        order.deliver_large(seq, reply, &mut out);
                    } else {
                        order.deliver(seq, text.as_bytes(), &mut out);
                    }
                }
            }
            for (seq, text) in open.drain(..).rev() {
                order.deliver(seq, text.as_bytes(), &mut out);
            }
            let got: Vec<u8> = out.slices().flatten().copied().collect();
            assert_eq!(got, expected);
            assert!(order.is_empty() && order.held.is_empty() && order.held_len() == 0);
            assert!(order.slots.capacity() <= SLOTS_KEPT_MAX);
        }
    }
}
