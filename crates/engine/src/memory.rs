//! What memory a shard uses, by purpose, and the sum over all shards.
//!
//! These are the bytes that were asked for, not what the allocator rounds them up to; the process's resident memory and
//! what the allocator has from the system are told beside them.

use crate::ctx::Shard;
use crate::session::{Session, Sessions};

/// Bytes of one database.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DbMemory {
    /// Its keys.
    pub keys: u64,
    /// Its tables.
    pub table: u64,
    /// The timing wheel of its deadlines.
    pub wheel: u64,
}

/// One shard's memory.
#[derive(Clone, Debug, Default)]
pub struct ShardMemory {
    dbs: Vec<DbMemory>,
    entries: u64,
    clients: u64,
    connections: u64,
    peak: u64,
    rss: u64,
    committed: u64,
}

impl ShardMemory {
    /// Costs a look at every slot's table. Raises the shard's peak if this is one.
    pub(crate) fn of(shard: &mut Shard, sessions: Option<&Sessions>) -> Self {
        let keyspace = &shard.keyspace;
        let of_session =
            |session: &Session| size_of::<Session>() + session.input_len() + session.output_len();
        let mut memory = Self {
            dbs: (0..keyspace.databases()).map(|db| keyspace.db_memory(db)).collect(),
            entries: keyspace.entry_bytes(),
            clients: sessions.map_or(0, |all| all.iter().map(of_session).sum::<usize>() as u64),
            connections: sessions.map_or(0, Sessions::len) as u64,
            peak: 0,
            rss: shard.process.rss_bytes,
            committed: (shard.settings.allocator.committed_bytes)(),
        };
        let used =
            memory.entries + memory.clients + memory.dbs.iter().map(|db| db.table + db.wheel).sum::<u64>();
        shard.memory_peak = shard.memory_peak.max(used);
        memory.peak = shard.memory_peak;
        memory
    }
}

/// All shards' memory.
#[derive(Clone, Debug, Default)]
pub struct ServerMemory {
    /// By database.
    pub dbs: Vec<DbMemory>,
    entries: u64,
    /// Sessions with their buffers.
    pub clients: u64,
    /// Open connections.
    pub connections: u64,
    /// The sum of the shards' peaks, which need not have been at the same time.
    pub peak: u64,
    /// Resident bytes of the process.
    pub rss: u64,
    committed: u64,
}

impl ServerMemory {
    /// The shards' figures added up.
    pub fn sum<'a>(shards: impl Iterator<Item = &'a ShardMemory>) -> Self {
        let mut total = Self::default();
        for shard in shards {
            total.dbs.resize(shard.dbs.len(), DbMemory::default());
            for (db, more) in total.dbs.iter_mut().zip(&shard.dbs) {
                db.keys += more.keys;
                db.table += more.table;
                db.wheel += more.wheel;
            }
            total.entries += shard.entries;
            total.clients += shard.clients;
            total.connections += shard.connections;
            total.peak += shard.peak;
            // Both are the process's, as each shard last saw them.
            total.rss = total.rss.max(shard.rss);
            total.committed = total.committed.max(shard.committed);
        }
        total
    }

    /// All keys.
    pub fn keys(&self) -> u64 {
        self.dbs.iter().map(|db| db.keys).sum()
    }

    /// Keys and values.
    pub const fn dataset(&self) -> u64 {
        self.entries
    }

    /// The tables.
    pub fn tables(&self) -> u64 {
        self.dbs.iter().map(|db| db.table).sum()
    }

    /// All that is not data: tables, deadlines, clients.
    pub fn overhead(&self) -> u64 {
        self.tables() + self.clients + self.dbs.iter().map(|db| db.wheel).sum::<u64>()
    }

    /// Data and overhead.
    pub fn used(&self) -> u64 {
        self.dataset() + self.overhead()
    }

    /// What the allocator has from the system; what is used, where it does not say.
    pub fn committed(&self) -> u64 {
        if self.committed == 0 { self.used() } else { self.committed }
    }

    /// The data's share of what is used, in percent.
    pub fn dataset_percent(&self) -> f64 {
        100.0 * Self::ratio(self.dataset(), self.used())
    }

    /// What is used, in percent of the peak.
    pub fn peak_percent(&self) -> f64 {
        100.0 * Self::ratio(self.used(), self.peak)
    }

    /// One amount in terms of another, to two decimals or so; 0 where there is none of the other.
    pub fn ratio(amount: u64, of: u64) -> f64 {
        if of == 0 { 0.0 } else { amount as f64 / of as f64 }
    }
}
