//! Clients that a command blocks until a moment: when that is, and how it ends.
//!
//! A blocked client has a [`Wait`](crate::session::Wait) and runs nothing. Whoever takes it away answers the client; when
//! its time is up, that is done here. Entries of clients that are gone or unblocked stay where they are and are passed over when
//! their time comes, so nothing has to be searched for; when they have become many, all are looked at and those go.

use crate::errors::Error;
use crate::keyspace::Millis;
use crate::modes::Modes;
use crate::node::Node;
use crate::session::SessionId;
use crate::timing::Answered;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Entries below which nobody asks which of them are still awaited.
const SIFT_COUNT_MIN: usize = 1024;

/// The moments, the earliest first.
#[derive(Debug)]
pub(crate) struct Waits {
    heap: BinaryHeap<Reverse<(Millis, u32, u32)>>,
    /// So many entries are too many: twice those that were awaited when it was last asked.
    sift_count: usize,
}

impl Default for Waits {
    fn default() -> Self {
        Self { heap: BinaryHeap::new(), sift_count: SIFT_COUNT_MIN }
    }
}

impl Waits {
    pub(crate) fn add(&mut self, until: Millis, id: SessionId) {
        self.heap.push(Reverse((until, id.idx, id.generation)));
    }

    /// The next moment at which there is something to do.
    pub(crate) fn next(&self) -> Option<Millis> {
        self.heap.peek().map(|Reverse((until, ..))| *until)
    }

    /// Drops entries that are not awaited, if there are many.
    fn sift(&mut self, mut is_awaited: impl FnMut(Millis, SessionId) -> bool) {
        if self.heap.len() < self.sift_count {
            return;
        }
        self.heap.retain(|Reverse((until, idx, generation))| {
            is_awaited(*until, SessionId { idx: *idx, generation: *generation })
        });
        self.sift_count = SIFT_COUNT_MIN.max(2 * self.heap.len());
        self.heap.shrink_to(self.sift_count);
    }

    fn pop_due(&mut self, now: Millis) -> Option<SessionId> {
        if self.next()? > now {
            return None;
        }
        let Reverse((_, idx, generation)) = self.heap.pop()?;
        Some(SessionId { idx, generation })
    }
}

impl Node {
    /// Answers the blocked clients whose time is up, and lets them go on.
    pub(crate) fn end_waits(&mut self, now: Millis) {
        let mut any = false;
        self.deliver_served(now);
        while let Some(id) = self.core.waits.pop_due(now) {
            let wait = self.sessions.get_mut(id).and_then(|session| session.client.wait.as_ref());
            if wait.is_some_and(|wait| wait.until.is_some_and(|until| until <= now)) {
                self.unblock(id, false, now);
                any = true;
            }
        }
        let sessions = &mut self.sessions;
        self.core.waits.sift(|until, id| {
            let wait = sessions.get_mut(id).and_then(|session| session.client.wait.as_ref());
            wait.is_some_and(|wait| wait.until == Some(until))
        });
        if any {
            self.pump(now);
        }
    }

    /// Ends what a client waits for, if anything: with the reply that is due when its time is up, or with an error.
    pub(crate) fn unblock(&mut self, id: SessionId, failed: bool, now: Millis) {
        let Some(session) = self.sessions.get_mut(id) else { return };
        let Some(wait) = session.client.wait.take() else { return };
        let waited = self.core.withdraw(id);
        let answered = self.core.answer(session, |_, _, reply| {
            if failed {
                return Err(Error::text("UNBLOCKED client unblocked via CLIENT UNBLOCK"));
            }
            (wait.give_up)(reply);
            Ok(())
        });
        if let Some(waited) = waited {
            self.core.count(session, 1);
            // As in Valkey, an order to give up is not the command's own failure.
            let answered = Answered { failed: false, ..answered };
            self.core.account_waited(&session.client, &waited, (0, answered), now);
            if failed {
                let number = waited.number(&self.core.table);
                self.core.shard.timing.commands.rejected(number);
            }
        }
        self.core.after_change(session, id);
    }

    /// Whether this client is not idle although it says nothing: a command blocks it, a pause holds one, or it listens to channels.
    pub fn may_be_silent(&mut self, id: SessionId) -> bool {
        let session = self.sessions.get_mut(id);
        session.is_some_and(|session| session.is_waiting() || session.client.modes.has(Modes::SUBSCRIBED))
    }

    /// Whether a command blocks this client.
    pub fn is_blocked(&mut self, id: SessionId) -> bool {
        self.sessions.get_mut(id).is_some_and(|session| session.client.wait.is_some())
    }

    /// Whether this client has not been answered yet: by other shards, or since it has sent more than is run at a time.
    pub fn owes(&mut self, id: SessionId) -> bool {
        self.sessions.get_mut(id).is_some_and(|session| session.is_owed())
    }

    /// The runtime closes this session when it is settled, and wants to hear of each change until then: of an answer, too, that the
    /// client does not want, and that leaves nothing to send.
    pub fn note_ending(&mut self, id: SessionId) {
        if let Some(session) = self.sessions.get_mut(id) {
            session.ending = true;
        }
    }

    /// Clients that a command blocks.
    pub fn blocked_clients(&self) -> usize {
        self.sessions.iter().filter(|session| session.client.wait.is_some()).count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::faults::Faults;
    use crate::node::NodeConfig;
    use crate::session::Peer;
    use crate::settings::Settings;
    use crate::slot::ShardId;
    use crate::timing::Ticks;

    const NOW: Millis = 1_700_000_000_000;

    /// Each pop that had waited left 16 bytes until its time-out: workers on a busy queue, with long ones, left gigabytes.
    #[test]
    fn waits_that_have_ended_take_no_memory_until_their_time() {
        let (settings, ticks, faults) = (Settings::default(), Ticks::STOPPED, Faults::default());
        let mut node = Node::new(NodeConfig { me: ShardId(0), shards: 1, seed: 7, settings, ticks, faults });
        let [patient, worker, other] = [(); 3].map(|()| node.open(Peer::default(), NOW));
        node.feed(patient, b"BLPOP nothing 5\r\n", NOW);
        for _ in 0..10 * SIFT_COUNT_MIN {
            node.feed(worker, b"BLPOP queue 100000\r\n", NOW);
            node.feed(other, b"RPUSH queue x\r\n", NOW);
            node.tick(NOW);
            assert!(node.core.waits.heap.len() <= SIFT_COUNT_MIN);
        }
        let answered = |node: &mut Node| !node.session_state(patient).expect("connected").output.is_empty();
        assert!(!answered(&mut node));
        node.tick(NOW + 5000);
        assert!(answered(&mut node), "who still waits is not forgotten");
    }
}
