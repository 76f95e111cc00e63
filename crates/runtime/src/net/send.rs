//! Bytes out: one send in flight per connection, whatever the turn produced for it. The buffer in flight and the one
//! that the session writes to are exchanged, so that both keep their memory and nothing is copied.
//!
//! Nearly every send finds room in the socket and is over when the call that submits it returns. Such a send is not worth
//! a completion, which would look like news and cost a turn: it is tried at once, without one, and only if that fails
//! submitted again as a send that waits for room.

use std::fmt;

use corelane_engine::{CloseWhen, SessionId};
use corelane_resp::Reply;

use super::connection::{Connection, Phase};
use super::{Net, Turn};
use crate::ring::{Completion, Op, Ring, Token};

/// Most bytes of one send: large enough to be efficient, small enough for progress to be seen.
const SEND_LEN_MAX: usize = 2 << 20;
/// Most bytes that are tried at once: the session accepts more commands even before it knows that they have left.
const AT_ONCE_LEN_MAX: usize = 64 << 10;
/// Most pieces of one vectored send.
const VECTORS_MAX: usize = 64;
/// An output buffer that has grown beyond this is freed when it has been sent.
const CAPACITY_KEPT_MAX: usize = 64 << 10;

/// Header and vectors of a vectored send; boxed, because the kernel keeps their addresses.
pub(super) struct Vectors {
    header: libc::msghdr,
    pieces: [libc::iovec; VECTORS_MAX],
}

impl fmt::Debug for Vectors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Vectors").field("pieces", &self.header.msg_iovlen).finish()
    }
}

impl Vectors {
    fn new() -> Box<Self> {
        // SAFETY: msghdr is plain data for which all zeroes mean "nothing".
        let header = unsafe { std::mem::zeroed() };
        let nothing = libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 };
        Box::new(Self { header, pieces: [nothing; VECTORS_MAX] })
    }

    /// Names the bytes of `reply` from offset `skip` on, as far as one send goes.
    fn fill(&mut self, reply: &Reply, mut skip: usize) -> *const libc::msghdr {
        let (mut count, mut len) = (0, 0);
        for slice in reply.slices() {
            let skipped = skip.min(slice.len());
            skip -= skipped;
            let slice = &slice[skipped..];
            if slice.is_empty() {
                continue;
            }
            let piece_len = slice.len().min(SEND_LEN_MAX - len);
            self.pieces[count] =
                libc::iovec { iov_base: slice.as_ptr().cast_mut().cast(), iov_len: piece_len };
            (count, len) = (count + 1, len + piece_len);
            if count == VECTORS_MAX || len == SEND_LEN_MAX {
                break;
            }
        }
        self.header.msg_iov = self.pieces.as_mut_ptr();
        self.header.msg_iovlen = count as _;
        &raw const self.header
    }
}

impl Net {
    /// Looks after a session whose output or state has changed.
    pub(super) fn attend(&mut self, id: SessionId, turn: &mut Turn<'_>) {
        let Some(connection) = self.connections.by_id(id) else { return };
        let Some(state) = turn.node.session_state(id) else { return self.close(id, turn) };
        match state.close {
            Some(CloseWhen::Now) => return self.close(id, turn),
            Some(CloseWhen::AfterOutput) if connection.phase == Phase::Open => {
                connection.phase = Phase::Ending
            }
            _ => {}
        }
        let steer = connection.paused == state.read || connection.phase != Phase::Open;
        connection.paused = !state.read;
        if connection.paused && state.waits && !connection.watched {
            connection.watched = true;
            self.ring.poll_hangup(connection.fd, connection.token(Op::HangUp));
        }
        connection.more_output = !state.output.is_empty();
        if connection.more_output && !connection.sending {
            exchange(&mut connection.out, state.output);
            connection.more_output = false;
            let len = connection.out.len();
            turn.node.output_taken(id, len);
            connection.at_once = connection.phase == Phase::Open && len <= AT_ONCE_LEN_MAX;
            if connection.at_once {
                self.at_once.push(id);
            }
            send(&mut self.ring, connection);
        }
        self.in_haste |= connection.more_output && connection.at_once;
        if steer {
            self.steer(id, turn);
        }
    }

    /// Learns how the sends at once ended: all but those that a completion tells of have sent everything.
    pub(super) fn settle_sends(&mut self, turn: &mut Turn<'_>) {
        if !self.ring.is_settled() {
            return;
        }
        self.in_haste = false;
        self.completions.drain(..self.next);
        self.next = 0;
        self.ring.reap(&mut self.completions, usize::MAX);
        for completion in &self.completions[self.next..] {
            if completion.token.op() == Op::SendAtOnce
                && let Some(connection) = self.connections.by_token(Op::SendAtOnce, completion.token)
            {
                connection.at_once = false;
            }
        }
        let mut at_once = std::mem::take(&mut self.at_once);
        for id in at_once.drain(..) {
            match self.connections.by_id(id) {
                Some(connection) if connection.at_once => {
                    let len = connection.out.len();
                    self.note_sent(id, len, turn);
                }
                Some(_) => {}
                None => self.bury(Token::session(Op::SendAtOnce, id)),
            }
        }
        self.at_once = at_once;
    }

    pub(super) fn on_send(&mut self, completion: Completion, turn: &mut Turn<'_>) {
        let op = completion.token.op();
        let Some(connection) = self.connections.by_token(op, completion.token) else {
            // What was to be sent at once has been buried already.
            return if op == Op::Send {
                self.bury(completion.token)
            };
        };
        let id = connection.id;
        match completion.result {
            len @ 1.. => self.note_sent(id, len as usize, turn),
            result if matches!(-result, libc::EINTR | libc::EAGAIN) => self.note_sent(id, 0, turn),
            _ => {
                connection.sending = false;
                self.close(id, turn);
            }
        }
    }

    /// So many more bytes of a connection's output have left.
    #[inline]
    fn note_sent(&mut self, id: SessionId, len: usize, turn: &mut Turn<'_>) {
        let Some(connection) = self.connections.by_id(id) else { return };
        connection.at_once = false;
        connection.sent += len;
        if len > 0 {
            connection.active_s = turn.now_s();
            turn.node.sent(id, len, turn.now);
        }
        if connection.sent < connection.out.len() {
            return send(&mut self.ring, connection);
        }
        connection.sending = false;
        connection.sent = 0;
        if connection.out.buf.capacity() > CAPACITY_KEPT_MAX {
            connection.out = Reply::default();
        }
        connection.out.clear();
        if connection.more_output {
            self.dirty.push(id);
        }
        self.end_if_sent(id, turn);
    }
}

/// Swaps buffers; what is written next keeps its protocol.
#[inline]
fn exchange(sent: &mut Reply, written: &mut Reply) {
    let proto = written.proto();
    std::mem::swap(sent, written);
    written.set_proto(proto);
}

/// Submits what is left of the output, or as much of it as goes into one send.
#[inline]
fn send(ring: &mut Ring, connection: &mut Connection) {
    connection.sending = true;
    connection.fat = true;
    let token = connection.send_token();
    if connection.out.splices().is_empty() {
        let rest = &connection.out.buf[connection.sent..];
        let len = rest.len().min(SEND_LEN_MAX) as u32;
        let (fd, start) = (connection.fd, rest.as_ptr());
        if connection.at_once {
            // SAFETY: `out` is not touched while `sending`, and outlives its connection in a `Grave` if need be; both end
            // only when the ring has been found settled.
            unsafe { ring.send_at_once(fd, start, len, token) };
        } else {
            // SAFETY: the same, until the completion.
            unsafe { ring.send(fd, start, len, token) };
        }
    } else {
        let vectors = connection.vectors.get_or_insert_with(Vectors::new);
        let header = vectors.fill(&connection.out, connection.sent);
        if connection.at_once {
            // SAFETY: as above, for `out` and `vectors`.
            unsafe { ring.send_msg_at_once(connection.fd, header, token) };
        } else {
            // SAFETY: as above, for `out` and `vectors`.
            unsafe { ring.send_msg(connection.fd, header, token) };
        }
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    fn spliced() -> (Reply, Vec<u8>) {
        let mut reply = Reply::default();
        let payload = vec![b'x'; 100_000];
        for _ in 0..40 {
            reply.raw(b"$100000\r\n");
            reply.bulk_shared(Bytes::from(payload.clone()));
        }
        let whole = reply.slices().flatten().copied().collect();
        (reply, whole)
    }

    #[test]
    fn vectors_go_through_a_reply_in_steps_without_a_gap() {
        let (reply, whole) = spliced();
        let mut vectors = Vectors::new();
        let mut sent = 0;
        while sent < whole.len() {
            vectors.fill(&reply, sent);
            let count = vectors.header.msg_iovlen;
            assert!((1..=VECTORS_MAX).contains(&count));
            let mut step = 0;
            for piece in &vectors.pieces[..count] {
                // SAFETY: the piece names bytes of `reply`, which is alive.
                let bytes = unsafe { std::slice::from_raw_parts(piece.iov_base.cast::<u8>(), piece.iov_len) };
                assert_eq!(bytes, &whole[sent + step..sent + step + bytes.len()]);
                step += bytes.len();
            }
            assert!(step <= SEND_LEN_MAX);
            // As after a short send: the next step starts anywhere.
            sent += step.div_ceil(3);
        }
    }

    #[test]
    fn exchanging_buffers_keeps_the_protocol_of_what_is_written_next() {
        use corelane_resp::Proto;
        let (mut sent, mut written) = (Reply::default(), Reply::new(Proto::Resp3));
        written.ok();
        exchange(&mut sent, &mut written);
        assert_eq!((sent.buf.as_slice(), written.is_empty()), (&b"+OK\r\n"[..], true));
        assert_eq!(written.proto(), Proto::Resp3);
    }
}
