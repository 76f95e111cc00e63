//! What a connection has of a transaction before EXEC: queued commands, and the keys that it watches.

use crate::args::{Args, OwnedArgs};
use crate::command::{Command, Flags};
use crate::commands::CommandId;
use crate::ctx::Shard;
use crate::execute::shard_of;
use crate::modes::Modes;
use crate::session::Client;
use crate::slot::ShardId;
use corelane_resp::Reply;
use std::collections::BTreeSet;

/// A command that waits for EXEC.
#[derive(Debug)]
pub(crate) struct Queued {
    pub(crate) command: &'static Command,
    pub(crate) id: CommandId,
    pub(crate) args: OwnedArgs,
    /// As it arrived.
    pub(crate) request_bytes: usize,
}

/// The state of a connection that has asked for MULTI or WATCH at least once.
#[derive(Debug, Default)]
pub struct Transaction {
    pub(crate) queue: Vec<Queued>,
    /// Commands queued, those included that are being run.
    pub(crate) len: usize,
    /// Bytes of their arguments.
    pub(crate) bytes: usize,
    /// A command could not be queued: EXEC will refuse.
    pub(crate) failed: bool,
    /// One of them changes data, or what else a pause holds back.
    pub(crate) changes: bool,
    /// While it is being run: what a change of subscriptions has confirmed.
    pub(crate) confirmed: Reply,
    /// Messages that come behind the reply to EXEC.
    pub(crate) held: Reply,
    /// Databases and keys.
    pub(crate) watched: BTreeSet<(usize, Box<[u8]>)>,
}

/// Shards that are to be told that a client watches nothing any more.
#[derive(Debug)]
pub struct Unwatched {
    pub(crate) client: u64,
    pub(crate) shards: Vec<ShardId>,
}

impl Transaction {
    /// Keeps a command for EXEC, unless that will refuse.
    pub(crate) fn push(&mut self, queued: Queued) {
        if self.failed {
            return;
        }
        let flags = queued.command.flags;
        self.changes |= flags.has(Flags::WRITE) || flags.has(Flags::MAY_REPLICATE);
        self.bytes += queued.args.args().bytes_len();
        self.len += 1;
        self.queue.push(queued);
    }

    /// Bytes that the queue takes.
    pub(crate) fn memory(&self) -> usize {
        self.bytes + self.len * size_of::<Queued>()
    }
}

/// The shards of watched keys, in ascending order.
pub(crate) fn shards_of(watched: &BTreeSet<(usize, Box<[u8]>)>, shard: &Shard) -> Vec<ShardId> {
    let mut shards: Vec<ShardId> = watched.iter().map(|(_, key)| shard_of(shard, key)).collect();
    shards.sort_unstable();
    shards.dedup();
    shards
}

impl Client {
    /// MULTI: what follows is queued.
    pub(crate) fn begin_transaction(&mut self) {
        self.transaction.get_or_insert_default();
        self.modes.set(Modes::MULTI, true);
    }

    /// Whether commands are being queued, and EXEC would run some that a pause for writes holds back.
    pub(crate) fn queues_changes(&self) -> bool {
        self.transaction.as_ref().is_some_and(|transaction| transaction.changes)
    }

    /// A command that should have been queued was refused.
    pub(crate) fn fail_transaction(&mut self) {
        if self.modes.has(Modes::MULTI)
            && let Some(transaction) = &mut self.transaction
        {
            transaction.failed = true;
            // What has been queued will never be run.
            (transaction.queue, transaction.len, transaction.bytes) = (Vec::new(), 0, 0);
            transaction.changes = false;
        }
    }

    /// The arguments from the second on are keys that the client begins to watch.
    pub(crate) fn watch(&mut self, args: Args<'_>) {
        let db = self.db;
        let watched = &mut self.transaction.get_or_insert_default().watched;
        watched.extend(args.iter_from(1).map(|key| (db, key.into())));
    }

    /// UNWATCH.
    pub(crate) fn unwatch(&mut self, shard: &mut Shard) {
        if let Some(transaction) = &mut self.transaction
            && !transaction.watched.is_empty()
        {
            let shards = shards_of(&transaction.watched, shard);
            transaction.watched.clear();
            shard.unwatched.push(Unwatched { client: self.id, shards });
        }
    }

    /// DISCARD: drops the queue and the watched keys.
    pub(crate) fn discard_transaction(&mut self, shard: &mut Shard) {
        self.unwatch(shard);
        self.modes.set(Modes::MULTI, false);
        if let Some(transaction) = &mut self.transaction {
            **transaction = Transaction::default();
        }
    }
}
