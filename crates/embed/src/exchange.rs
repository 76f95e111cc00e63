//! One message to one shard, and its answer.

use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use corelane_runtime::mesh::gate::Refused;
use corelane_runtime::mesh::oneshot::Answer;
use corelane_runtime::visit::Visit;

use crate::cache::Shared;
use crate::error::Error;

/// A message that is to be sent, or whose answer is to come.
pub(crate) struct Exchange<A: Send> {
    shared: Arc<Shared>,
    shard: usize,
    /// Not sent yet.
    visit: Option<Visit>,
    answer: Answer<A>,
    /// The answer has come, or will never.
    settled: bool,
}

impl<A: Send> Exchange<A> {
    pub(crate) fn new(shared: Arc<Shared>, shard: usize, (visit, answer): (Visit, Answer<A>)) -> Self {
        Self { shared, shard, visit: Some(visit), answer, settled: false }
    }

    /// Sends it unless it has been sent. Without room, leaves `waker` to be woken when there may be some.
    pub(crate) fn send(&mut self, waker: Option<&Waker>) -> Result<(), Error> {
        let Some(visit) = self.visit.take() else { return Ok(()) };
        match self.shared.doorway.send(self.shard, visit, waker) {
            Ok(()) => Ok(()),
            Err(Refused::Full(visit)) => {
                self.visit = Some(visit);
                Err(Error::Full { shard: self.shard })
            }
            Err(Refused::Closed(_)) => Err(self.ended()),
        }
    }

    /// Sends it when there is room, and waits for the answer.
    pub(crate) fn poll(&mut self, context: &mut Context<'_>) -> Poll<Result<A, Error>> {
        match self.send(Some(context.waker())) {
            Ok(()) => {}
            Err(Error::Full { .. }) => return Poll::Pending,
            Err(error) => return Poll::Ready(Err(error)),
        }
        self.poll_answer(context)
    }

    /// The answer, if it was sent and has come; [`Error::OnShard`] otherwise.
    pub(crate) fn poll_sent(&mut self, context: &mut Context<'_>) -> Result<A, Error> {
        if self.visit.is_some() {
            return Err(Error::OnShard);
        }
        match self.poll_answer(context) {
            Poll::Ready(answer) => answer,
            Poll::Pending => Err(Error::OnShard),
        }
    }

    fn poll_answer(&mut self, context: &mut Context<'_>) -> Poll<Result<A, Error>> {
        let answer = self.answer.poll(context);
        self.settled |= answer.is_ready();
        answer.map(|answer| answer.ok_or_else(|| self.ended()))
    }

    /// Why a shard that has ended did.
    fn ended(&self) -> Error {
        match self.shared.doorway.has_failed(self.shard) {
            true => Error::ShardFailed { shard: self.shard },
            false => Error::Stopped,
        }
    }
}

/// A shard that is still to answer hears that nobody waits for it any more.
impl<A: Send> Drop for Exchange<A> {
    fn drop(&mut self) {
        if self.visit.is_none() && !self.settled && self.answer.abandon() {
            self.shared.doorway.leave(self.shard);
        }
    }
}
