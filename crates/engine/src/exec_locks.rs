//! What a transaction needs of each shard before it can run: the intents on its keys and on those that its client watches.

use crate::args::Args;
use crate::bundle::BundleLock;
use crate::command::{Command, Plan, Scope};
use crate::dispatch::needs_all_shards;
use crate::execute::shard_of;
use crate::node::Core;
use crate::slot::ShardId;
use crate::transaction::Queued;
use std::collections::BTreeSet;

/// What a transaction needs of the shards.
struct Needs<'a> {
    core: &'a Core,
    locks: Vec<Option<BundleLock>>,
    exclusive: bool,
}

impl Needs<'_> {
    fn of(&mut self, owner: ShardId) -> &mut BundleLock {
        self.locks[usize::from(owner.0)].get_or_insert_default()
    }

    fn add(&mut self, command: &Command, args: Args<'_>) {
        let shard = &self.core.shard;
        if matches!(command.plan, Plan::Session(_) | Plan::Container) || command.scope == Scope::Nothing {
            return;
        }
        self.exclusive |= command.is_exclusive();
        if needs_all_shards(command, args) {
            self.locks.iter_mut().for_each(|lock| lock.get_or_insert_default().whole = true);
        } else if let Plan::Routed { route, .. } = command.plan {
            if let Ok(slot) = route(args) {
                self.of(shard.slots.owner(slot)).whole = true;
            }
        } else {
            let mut keys = command.key_range(args).into_iter().flat_map(|range| range.indices()).peekable();
            if keys.peek().is_none() {
                self.of(shard.me);
            }
            keys.filter_map(|idx| args.get(idx)).for_each(|key| self.add_key(key));
        }
    }

    fn add_key(&mut self, key: &[u8]) {
        let shard = &self.core.shard;
        let hash = shard.keyspace.hasher().hash(key);
        self.of(shard_of(shard, key)).hashes.push(hash);
    }
}

impl Core {
    /// Which intents a transaction needs, and where.
    pub(crate) fn locks_for(
        &self,
        queue: &[Queued],
        watched: &BTreeSet<(usize, Box<[u8]>)>,
    ) -> Vec<Option<BundleLock>> {
        let locks = vec![None; usize::from(self.shard.slots.shards())];
        let mut needs = Needs { core: self, locks, exclusive: false };
        queue.iter().for_each(|queued| needs.add(queued.command, queued.args.args()));
        for (_, key) in watched {
            needs.add_key(key);
            needs.of(shard_of(&self.shard, key)).watches = true;
        }
        if needs.locks.iter().all(Option::is_none) {
            needs.of(self.shard.me);
        }
        let exclusive = needs.exclusive;
        let mut locks = needs.locks;
        locks.iter_mut().flatten().for_each(|lock| lock.exclusive = exclusive);
        locks
    }
}
