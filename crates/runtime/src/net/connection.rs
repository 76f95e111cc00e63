//! What the runtime keeps per connection, and the table of them. An idle connection owns no buffer.

use std::os::fd::RawFd;

use corelane_engine::SessionId;
use corelane_resp::Reply;

use super::send::Vectors;
use crate::ring::{Op, Token};

/// The receive that is in flight.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) enum Recv {
    /// None.
    Idle,
    /// Multishot, into provided buffers.
    Multishot,
    /// The same, and its cancellation is on the way.
    Cancelling,
    /// One provided buffer.
    Once,
    /// Straight into a large value of the session.
    Into,
}

/// How far a connection is from its end.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) enum Phase {
    /// Reads and writes.
    Open,
    /// Reads no more; closes when its output has been sent.
    Ending,
    /// To be closed as soon as the kernel no longer writes into the session's memory.
    Dying,
}

/// Reads of less than half a buffer that must follow each other before a flooding connection gets multishot back.
pub(super) const CALM_READS: u8 = 16;

/// One connection. The session of the same index belongs to it.
pub(super) struct Connection {
    /// -1: vacant.
    pub(super) fd: RawFd,
    pub(super) id: SessionId,
    pub(super) recv: Recv,
    pub(super) phase: Phase,
    /// A send of `out` is in flight.
    pub(super) sending: bool,
    /// That send completes only if it fails.
    pub(super) at_once: bool,
    /// The session has output that waits for that send.
    pub(super) more_output: bool,
    /// Back-pressure: the session wants no more input.
    pub(super) paused: bool,
    /// The kernel will tell when the peer has ended the connection.
    pub(super) watched: bool,
    /// The session collects a value that is large enough to be received in place.
    pub(super) wants_bulk: bool,
    /// Its output buffers hold memory that a long silence should free.
    pub(super) fat: bool,
    /// Reads to go until it counts as calm; 0: it is.
    pub(super) unrest: u8,
    /// Full buffers it took in a row.
    pub(super) full_reads: u8,
    /// When something was last received or sent, in seconds of the engine's clock.
    pub(super) active_s: u32,
    /// What is being sent.
    pub(super) out: Reply,
    /// Bytes of `out` that have left.
    pub(super) sent: usize,
    /// For output with spliced payloads.
    pub(super) vectors: Option<Box<Vectors>>,
}

impl Connection {
    fn new(fd: RawFd, id: SessionId, now_s: u32) -> Self {
        Self {
            fd,
            id,
            recv: Recv::Idle,
            phase: Phase::Open,
            sending: false,
            at_once: false,
            more_output: false,
            paused: false,
            watched: false,
            wants_bulk: false,
            fat: false,
            unrest: 0,
            full_reads: 0,
            active_s: now_s,
            out: Reply::default(),
            sent: 0,
            vectors: None,
        }
    }

    /// Whether a multishot receive is right for it now.
    #[inline]
    pub(super) fn is_calm(&self) -> bool {
        self.phase == Phase::Open && !self.paused && !self.wants_bulk && self.unrest == 0
    }

    /// User data of the send in flight.
    #[inline]
    pub(super) fn send_token(&self) -> Token {
        self.token(if self.at_once { Op::SendAtOnce } else { Op::Send })
    }

    /// User data for one of its operations.
    #[inline]
    pub(super) fn token(&self, op: Op) -> Token {
        Token::session(op, self.id)
    }

    /// Notes a read of `len` bytes into a buffer of `buffer_len`; more than `full_max` full buffers in a row make it count
    /// as a flood, however long they take: a multishot receive hands out dozens of buffers before anyone else's turn.
    #[inline]
    pub(super) fn note_read(&mut self, len: usize, buffer_len: usize, full_max: u8) {
        if len == buffer_len {
            self.full_reads = self.full_reads.saturating_add(1);
            if self.full_reads > full_max || self.unrest > 0 {
                self.unrest = CALM_READS;
            }
            return;
        }
        self.full_reads = 0;
        if len < buffer_len / 2 {
            self.unrest = self.unrest.saturating_sub(1);
        }
    }
}

/// All connections of a shard, by the index of their session.
#[derive(Default)]
pub(super) struct Connections {
    slots: Vec<Option<Box<Connection>>>,
    len: usize,
}

impl Connections {
    pub(super) fn insert(&mut self, fd: RawFd, id: SessionId, now_s: u32) {
        let idx = id.idx as usize;
        if idx >= self.slots.len() {
            self.slots.resize_with(idx + 1, || None);
        }
        debug_assert!(
            self.slots[idx].is_none(),
            "the engine reused the index of a session that is not closed"
        );
        self.slots[idx] = Some(Box::new(Connection::new(fd, id, now_s)));
        self.len += 1;
    }

    /// The connection that a token was made for, unless it is gone.
    #[inline]
    pub(super) fn by_token(&mut self, op: Op, token: Token) -> Option<&mut Connection> {
        let connection = self.slots.get_mut(token.idx() as usize)?.as_deref_mut()?;
        (connection.token(op) == token).then_some(connection)
    }

    /// The connection of a session.
    #[inline]
    pub(super) fn by_id(&mut self, id: SessionId) -> Option<&mut Connection> {
        let connection = self.slots.get_mut(id.idx as usize)?.as_deref_mut()?;
        (connection.id == id).then_some(connection)
    }

    pub(super) fn remove(&mut self, id: SessionId) -> Option<Box<Connection>> {
        self.by_id(id)?;
        self.len -= 1;
        self.slots[id.idx as usize].take()
    }

    /// How many there are.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// One more than the largest index in use so far.
    pub(super) fn bound(&self) -> usize {
        self.slots.len()
    }

    /// The connection at an index.
    pub(super) fn at(&mut self, idx: usize) -> Option<&mut Connection> {
        self.slots.get_mut(idx)?.as_deref_mut()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(idx: u32, generation: u32) -> SessionId {
        SessionId { idx, generation }
    }

    #[test]
    fn a_token_finds_its_connection_and_no_later_one() {
        let mut connections = Connections::default();
        connections.insert(7, id(3, 1), 0);
        let token = connections.by_id(id(3, 1)).unwrap().token(Op::Send);
        assert!(connections.by_token(Op::Send, token).is_some());
        assert!(connections.by_token(Op::Recv, token).is_none());
        assert!(connections.remove(id(3, 2)).is_none());
        assert!(connections.remove(id(3, 1)).is_some());
        connections.insert(8, id(3, 2), 0);
        assert!(connections.by_token(Op::Send, token).is_none());
        assert_eq!((connections.len(), connections.bound()), (1, 4));
    }

    #[test]
    fn a_flood_is_throttled_until_it_has_ended() {
        let mut connection = Connection::new(1, id(0, 0), 0);
        for _ in 0..100 {
            for _ in 0..4 {
                connection.note_read(100, 100, 4);
            }
            connection.note_read(99, 100, 4);
        }
        assert!(connection.is_calm(), "four full buffers in a row are no flood");
        for _ in 0..5 {
            connection.note_read(100, 100, 4);
        }
        assert!(!connection.is_calm());
        for _ in 0..CALM_READS - 1 {
            connection.note_read(10, 100, 4);
        }
        connection.note_read(100, 100, 4);
        for _ in 0..CALM_READS - 1 {
            connection.note_read(10, 100, 4);
        }
        assert!(!connection.is_calm(), "a full buffer in between starts the count anew");
        connection.note_read(10, 100, 4);
        assert!(connection.is_calm());
    }

    #[test]
    fn an_idle_connection_is_small() {
        assert!(size_of::<Connection>() <= 160, "{}", size_of::<Connection>());
    }
}
