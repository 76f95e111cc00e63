//! What a completion belongs to, packed into the 64 bits that the kernel carries along.
//!
//! ```text
//!   63    56 55             32 31                    0
//!   | op    | generation      | session or listener  |
//! ```

use corelane_engine::SessionId;

/// The operations whose completions the shard loop tells apart.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
#[repr(u8)]
pub(crate) enum Op {
    /// Nobody waits for it: closes and cancellations.
    Ignored = 0,
    /// Multishot accept on a listener.
    Accept = 1,
    /// Multishot poll on the eventfd that other shards write.
    Wake = 2,
    /// Receive into a provided buffer, multishot or once.
    Recv = 3,
    /// Receive straight into the place of a large value.
    RecvInto = 4,
    /// Send of a connection's output.
    Send = 5,
    /// The time-out that bounds waits.
    Tick = 6,
    /// Send of a connection's output that completes only if it fails.
    SendAtOnce = 7,
    /// Connecting to a peer.
    Connect = 8,
    /// The end of a connection that is not read from.
    HangUp = 9,
}

/// Bits of a [`SessionId`]'s generation that fit beside operation and index.
const GENERATION_MASK: u32 = (1 << 24) - 1;

/// User data of one submission.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) struct Token(u64);

impl Token {
    /// Completions that carry it are dropped.
    pub(crate) const IGNORED: Self = Self(0);
    /// The wake eventfd.
    pub(crate) const WAKE: Self = Self((Op::Wake as u64) << 56);

    /// The time-out that bounds waits.
    pub(crate) const TICK: Self = Self((Op::Tick as u64) << 56);

    /// An operation of a connection.
    #[inline]
    pub(crate) fn session(op: Op, id: SessionId) -> Self {
        let generation = u64::from(id.generation & GENERATION_MASK);
        Self((op as u64) << 56 | generation << 32 | u64::from(id.idx))
    }

    /// The accept of a listener.
    pub(crate) fn listener(idx: u32) -> Self {
        Self((Op::Accept as u64) << 56 | u64::from(idx))
    }

    /// As user data of an entry.
    #[inline]
    pub(crate) fn to_user_data(self) -> u64 {
        self.0
    }

    /// Back from user data.
    #[inline]
    pub(crate) fn from_user_data(user_data: u64) -> Self {
        Self(user_data)
    }

    /// Which operation.
    #[inline]
    pub(crate) fn op(self) -> Op {
        match self.0 >> 56 {
            1 => Op::Accept,
            2 => Op::Wake,
            3 => Op::Recv,
            4 => Op::RecvInto,
            5 => Op::Send,
            6 => Op::Tick,
            7 => Op::SendAtOnce,
            8 => Op::Connect,
            9 => Op::HangUp,
            _ => Op::Ignored,
        }
    }

    /// Index of the session or listener.
    #[inline]
    pub(crate) fn idx(self) -> u32 {
        self.0 as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_come_back_whole() {
        let id = SessionId { idx: u32::MAX - 3, generation: 0xab_cdef };
        for op in [Op::Recv, Op::RecvInto, Op::Send, Op::SendAtOnce, Op::Connect, Op::HangUp] {
            let token = Token::from_user_data(Token::session(op, id).to_user_data());
            assert_eq!((token.op(), token.idx()), (op, id.idx));
            let other = SessionId { generation: id.generation ^ 1, ..id };
            assert_ne!(token, Token::session(op, other));
        }
        assert_eq!(Token::listener(7).op(), Op::Accept);
        assert_eq!(Token::listener(7).idx(), 7);
        assert_eq!(Token::WAKE.op(), Op::Wake);
        assert_eq!(Token::TICK.op(), Op::Tick);
        assert_eq!(Token::IGNORED.op(), Op::Ignored);
    }

    #[test]
    fn a_generation_that_is_too_wide_does_not_spill_into_the_operation() {
        let id = SessionId { idx: 1, generation: u32::MAX };
        assert_eq!(Token::session(Op::Send, id).op(), Op::Send);
    }
}
