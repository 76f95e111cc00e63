//! Life after the failure of another shard, for programs that survive it: whoever waits for it is told, what it held is let
//! go, and commands that need it are refused.

use crate::errors::Error;
use crate::keyspace::Millis;
use crate::message::{TxId, TxMessage};
use crate::node::{Core, Node};
use crate::session::{CloseWhen, SessionId};
use crate::slot::ShardId;

/// What a command gets that needs a failed shard.
pub(crate) const SHARD_FAILED: Error = Error::text("SHARDFAILED a shard that this command needs has failed");

impl Node {
    /// Another shard has failed and will never answer again; its keys are lost.
    ///
    /// Connections that are owed replies are closed, since theirs may be among them. Commands over several shards in which it
    /// takes part get an error; they may have taken effect elsewhere.
    pub fn shard_failed(&mut self, failed: ShardId, now: Millis) {
        self.core.failed.push(failed);
        self.core.outboxes[usize::from(failed.0)].recycle();
        for id in self.sessions.owed().into_iter().chain(self.subscribing()) {
            self.give_up(id);
        }
        self.core.shard.pubsub.forget(failed);
        self.core.give_up_changes();
        let lost = self.coordinator.with_part_on(failed).map(TxMessage::Lost);
        self.core.local.extend(lost.collect::<Vec<_>>());
        for tx in self.participant.held_for(failed) {
            self.handle(failed, TxMessage::Release(tx), now);
        }
        self.forget_waits_of(failed, now);
        self.pump(now);
    }

    fn give_up(&mut self, id: SessionId) {
        let Some(session) = self.sessions.get_mut(id) else { return };
        session.client.close = Some(CloseWhen::Now);
        self.core.after_change(session, id);
    }
}

impl Core {
    /// Whether a shard has failed.
    #[inline]
    pub(crate) fn has_failed(&self, shard: ShardId) -> bool {
        !self.failed.is_empty() && self.failed.contains(&shard)
    }

    /// A message to a failed shard: its transaction is told, if it is one of ours.
    #[cold]
    pub(crate) fn bounce(&mut self, message: &TxMessage) {
        let lost: Option<TxId> = match message {
            TxMessage::Lock(request) => Some(request.tx),
            TxMessage::Run { tx, .. } | TxMessage::Bundle(tx, _) => Some(*tx),
            _ => None,
        };
        self.local.extend(lost.map(TxMessage::Lost));
    }
}
