//! What a shard tells a monitoring thread of itself: everything that is counted, in one piece; and what it is told for INFO.
//!
//! INFO answers clients in text, summed over the shards; this is for a thread of the same process, shard by shard. It costs
//! a look at every connection and every slot's table, and a page of memory per kind of command.

use crate::client_counts::ClientCounts;
use crate::command_stats::CommandCount;
use crate::commands::{CommandNumber, full_name, numbered};
use crate::ctx::ProcessInfo;
use crate::histogram::Coarse;
use crate::keyspace::{DbStats, Millis};
use crate::memory::ShardMemory;
use crate::node::Node;
use crate::slot::ShardId;
use crate::stats::ShardStats;
use crate::wall::WallClock;

/// What one kind of command has cost a shard.
#[derive(Clone, Debug)]
pub struct CommandFigures {
    /// Which; see [`command_names`].
    pub number: CommandNumber,
    /// Its counters.
    pub count: CommandCount,
    /// Its durations; `None` if none was tracked.
    pub durations: Option<Coarse>,
}

/// What a shard tells of itself.
#[derive(Clone, Debug)]
pub struct ShardFigures {
    /// Which shard.
    pub shard: ShardId,
    /// Its counters.
    pub stats: ShardStats,
    /// Its databases, in order.
    pub dbs: Vec<DbStats>,
    /// What memory it uses.
    pub memory: ShardMemory,
    /// Keys that expired.
    pub expired: u64,
    /// Fields of hashes that expired.
    pub expired_fields: u64,
    /// Flushed keys that are still to be freed.
    pub pending_frees: u64,
    /// Its connections.
    pub clients: ClientCounts,
    /// Channels with subscribers that it owns.
    pub channels: usize,
    /// The process, as this shard knows it.
    pub process: ProcessInfo,
    /// Clients that the server takes.
    pub maxclients: u32,
    /// Its commands that were called or refused, by number.
    pub commands: Vec<CommandFigures>,
}

/// All commands, containers and subcommands, with the names that INFO commandstats gives them.
pub fn command_names() -> impl Iterator<Item = (CommandNumber, String)> {
    numbered()
        .enumerate()
        .map(|(number, (container, command))| (CommandNumber(number as u16), full_name(container, command)))
}

impl Node {
    /// What INFO says about the process.
    pub fn set_process_info(&mut self, process: ProcessInfo, now: Millis) {
        let shard = &mut self.core.shard;
        shard.process = process;
        shard.sampler.look(&shard.stats, now);
        // Notes the peak.
        let _ = ShardMemory::of(shard, Some(&self.sessions));
    }

    /// How far the wall clock is ahead, once somebody has set it.
    pub fn set_wall_clock(&mut self, wall: WallClock) {
        self.core.shard.wall = wall;
    }

    /// What INFO says about where the server listens, in place of what it has said so far.
    pub fn set_listener_info(&mut self, listeners: Vec<(&'static str, String)>) {
        let info = &mut self.core.shard.settings.server_info;
        info.retain(|(name, _)| !name.starts_with("listener"));
        info.extend(listeners);
    }

    /// What this shard has counted so far.
    pub fn figures(&mut self) -> ShardFigures {
        let shard = &mut self.core.shard;
        let memory = ShardMemory::of(shard, Some(&self.sessions));
        let seen = &shard.timing.commands;
        let commands = seen.seen().map(|number| CommandFigures {
            number,
            count: seen.count(number),
            durations: seen.histogram(number).map(Coarse::from),
        });
        ShardFigures {
            shard: shard.me,
            stats: shard.stats.clone(),
            dbs: (0..shard.keyspace.databases()).map(|db| shard.keyspace.stats(db)).collect(),
            memory,
            expired: shard.keyspace.expired,
            expired_fields: shard.keyspace.expired_fields(),
            pending_frees: shard.keyspace.lazy_frees().0,
            clients: ClientCounts::of(&self.sessions),
            channels: shard.pubsub.counts().channels,
            process: shard.process,
            maxclients: shard.settings.maxclients,
            commands: commands.collect(),
        }
    }
}
