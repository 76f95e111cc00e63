//! The simulator's clients: what they have sent, and what has come back.

use crate::workload::Operation;
use crate::world::Record;
use corelane_engine::SessionId;
use corelane_resp::{Frame, decode};
use std::collections::VecDeque;

/// An operation without a reply.
pub(crate) struct Open {
    number: usize,
    /// The step in which it was sent.
    sent: u64,
    /// Replies before its own.
    skip: usize,
    pub(crate) operation: Operation,
    /// The step from which on it was seen to wait.
    pub(crate) waiting: Option<u64>,
}

impl Open {
    /// What there is to say of it without a reply.
    pub(crate) fn record(self, client: usize) -> Record {
        let Self { number, sent, operation, waiting, .. } = self;
        Record { client, number, sent, waiting, answered: None, gone: None, operation, reply: None }
    }
}

/// One connection.
pub(crate) struct Client {
    pub(crate) shard: usize,
    pub(crate) session: SessionId,
    /// Its number, as CLIENT ID says it.
    pub(crate) id: u64,
    /// Commands still to be sent.
    pub(crate) left: usize,
    number: usize,
    pub(crate) open: VecDeque<Open>,
    pub(crate) received: Vec<u8>,
    /// Commands it sends without waiting.
    pipeline: usize,
    /// The connection has ended.
    pub(crate) gone: bool,
}

impl Client {
    pub(crate) fn new(shard: usize, session: SessionId, id: u64, left: usize, pipeline: usize) -> Self {
        let (number, open, received) = (0, VecDeque::new(), Vec::new());
        Self { shard, session, id, left, number, open, received, pipeline, gone: false }
    }

    pub(crate) fn may_send(&self) -> bool {
        self.left > 0 && self.open.len() < self.pipeline
    }

    /// It sends an operation, whose reply comes behind `skip` others.
    pub(crate) fn opens(&mut self, operation: Operation, skip: usize, step: u64) {
        self.open.push_back(Open { number: self.number, sent: step, skip, operation, waiting: None });
        self.number += 1;
        self.left = self.left.saturating_sub(1);
    }

    /// The operations that have been answered by what it has received.
    pub(crate) fn take_replies(&mut self) -> Vec<(Open, Frame)> {
        let mut answered = Vec::new();
        while let Ok(Some((reply, used))) = decode(&self.received) {
            self.received.drain(..used);
            let open = self.open.front_mut().expect("every reply has a request");
            if open.skip > 0 {
                open.skip -= 1;
                continue;
            }
            let open = self.open.pop_front().expect("it has just been there");
            answered.push((open, reply));
        }
        answered
    }
}
