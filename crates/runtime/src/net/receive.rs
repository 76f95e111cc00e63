//! Bytes in. A calm connection has a multishot receive and costs no submission per request; a flooding one receives one
//! buffer at a time, so that it cannot take the buffers of the others; a large value is received where it will stay.

use corelane_engine::SessionId;

use super::connection::{CALM_READS, Phase, Recv};
use super::{Net, Turn};
use crate::ring::{BUFFER_LEN, Completion, Op};

/// From this many missing bytes on, a value is received in place.
const BULK_LEN_MIN: usize = 64 << 10;
/// Most bytes of one receive into a value: keeps the turn short that copies them.
const BULK_STEP_MAX: usize = 256 << 10;
/// Full buffers that a connection may take in a row before it counts as a flood.
const FULL_READS_MAX: u8 = 4;

impl Net {
    pub(super) fn on_recv(&mut self, completion: Completion, turn: &mut Turn<'_>) {
        let Some(connection) = self.connections.by_token(Op::Recv, completion.token) else {
            if let Some(buffer) = completion.buffer() {
                self.buffers.give_back(buffer);
            }
            return;
        };
        let id = connection.id;
        if !completion.more() {
            connection.recv = Recv::Idle;
        }
        match (completion.result, completion.buffer()) {
            (1.., Some(buffer)) => self.take_bytes(id, buffer, completion.result as usize, turn),
            (0, _) => connection.phase = Phase::Ending,
            (result, _) if result == -libc::ENOBUFS => return self.starved.push(id),
            (result, _) if is_transient(result) => {}
            _ => return self.close(id, turn),
        }
        self.steer(id, turn);
    }

    pub(super) fn on_recv_into(&mut self, completion: Completion, turn: &mut Turn<'_>) {
        let Some(connection) = self.connections.by_token(Op::RecvInto, completion.token) else {
            debug_assert!(false, "a connection outlives its receives in place");
            return;
        };
        let id = connection.id;
        connection.recv = Recv::Idle;
        if connection.phase == Phase::Dying {
            return self.close(id, turn);
        }
        match completion.result {
            len @ 1.. => {
                connection.active_s = turn.now_s();
                connection.unrest = CALM_READS;
                turn.node.bulk_filled(id, len as usize, turn.now);
                connection.wants_bulk = wants_bulk(id, turn);
            }
            0 => connection.phase = Phase::Ending,
            result if is_transient(result) => {}
            _ => return self.close(id, turn),
        }
        self.steer(id, turn);
    }

    /// Feeds one buffer to its session and returns it.
    #[inline]
    fn take_bytes(&mut self, id: SessionId, buffer: u16, len: usize, turn: &mut Turn<'_>) {
        // SAFETY: this completion handed out the buffer with `len` bytes, and it is given back below, once.
        let bytes = unsafe { self.buffers.filled(buffer, len) };
        if let Some(connection) = self.connections.by_id(id) {
            if connection.phase == Phase::Open {
                turn.node.feed(id, bytes, turn.now);
            }
            connection.active_s = turn.now_s();
            connection.note_read(len, BUFFER_LEN, FULL_READS_MAX);
            if len == BUFFER_LEN || connection.unrest > 0 || connection.wants_bulk {
                connection.wants_bulk = wants_bulk(id, turn);
            }
        }
        self.buffers.give_back(buffer);
    }

    /// Brings the receive in flight in line with what the connection should have.
    #[inline]
    pub(super) fn steer(&mut self, id: SessionId, turn: &mut Turn<'_>) {
        let Some(connection) = self.connections.by_id(id) else { return };
        match connection.recv {
            Recv::Multishot if !connection.is_calm() => {
                connection.recv = Recv::Cancelling;
                self.ring.cancel(connection.token(Op::Recv));
            }
            Recv::Idle if connection.phase == Phase::Open && !connection.paused => self.receive(id, turn),
            _ => {}
        }
        self.end_if_sent(id, turn);
    }

    fn receive(&mut self, id: SessionId, turn: &mut Turn<'_>) {
        let Some(connection) = self.connections.by_id(id) else { return };
        if connection.wants_bulk
            && let Some(space) = turn.node.bulk_space(id)
        {
            let len = space.len().min(BULK_STEP_MAX) as u32;
            connection.recv = Recv::Into;
            let (start, token) = (space.as_mut_ptr().cast(), connection.token(Op::RecvInto));
            // SAFETY: the node keeps the space where it is until `bulk_filled` or `close`, and this connection calls
            // neither before the completion (see `Phase::Dying`).
            unsafe { self.ring.recv_into(connection.fd, start, len, token) };
        } else if connection.unrest > 0 {
            connection.recv = Recv::Once;
            self.ring.recv_once(connection.fd, connection.token(Op::Recv));
        } else {
            connection.recv = Recv::Multishot;
            self.ring.recv_multi(connection.fd, connection.token(Op::Recv));
        }
    }

    /// After a turn that ran out of buffers: more of them, and another try for those that found none.
    pub(super) fn feed_starved(&mut self, turn: &mut Turn<'_>) {
        self.buffers.grow();
        turn.node.stats_mut().buffer_shortages += self.starved.len() as u64;
        let mut starved = std::mem::take(&mut self.starved);
        for id in starved.drain(..) {
            self.steer(id, turn);
        }
        self.starved = starved;
    }
}

fn wants_bulk(id: SessionId, turn: &mut Turn<'_>) -> bool {
    turn.node.bulk_space(id).is_some_and(|space| space.len() >= BULK_LEN_MIN)
}

fn is_transient(result: i32) -> bool {
    matches!(-result, libc::ECANCELED | libc::EINTR | libc::EAGAIN)
}
