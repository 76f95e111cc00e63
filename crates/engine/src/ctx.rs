//! What a handler is given: the shard and the request's circumstances. And what the parts of a command exchange.

use crate::args::Args;
use crate::client_counts::ClientCounts;
use crate::command::{KeyRange, Pace, Pacing, PieceSizes};
use crate::command_stats::CommandStats;
use crate::commands::{
    BitWork, DumpWork, GeoWork, Matches, RestoreWork, ScoreWork, SetWork, SortShare, SortWork,
};
use crate::digest::DatasetDigest;
use crate::errors::Error;
use crate::events::{EventClasses, KeyEvent};
use crate::journal::{Journal, LogPart};
use crate::keyspace::{Detached, EntryMut, Key, Keyspace, KnownKey, Lfu, Millis, NewValue, TableShape};
use crate::latency_monitor::LatencyPart;
use crate::memory::ShardMemory;
use crate::monitor::Watchers;
use crate::pause::Pause;
use crate::pubsub::{PubSub, PubSubCounts};
use crate::rates::{Rates, Sampler};
use crate::rdb::Checksums;
use crate::session::{Client, CloseWhen, SessionId, Sessions};
use crate::settings::Settings;
use crate::slot::{ShardId, SlotMap};
use crate::stats::ShardStats;
use crate::timing::Timing;
use crate::transaction::Unwatched;
use crate::values::{Copying, Tally};
use crate::wall::{Present, WallClock};
use corelane_resp::{Mark, Reply};
use std::collections::VecDeque;

/// SplitMix64 (Steele, Lea and Flood, 2014): enough for RANDOMKEY and sampling, and deterministic.
#[derive(Clone, Debug)]
pub struct Rng(u64);

impl Rng {
    /// A generator that starts from `seed`.
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next number.
    pub const fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }
}

/// What a command asks of the process around the engine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HostRequest {
    /// Block this shard for so many microseconds (DEBUG SLEEP).
    SleepUs(u64),
    /// End the server (SHUTDOWN).
    Shutdown,
    /// Write a line to the log (DEBUG LOG).
    Log(String),
    /// Tell all shards on which sockets they listen now (CONFIG SET).
    Listen,
}

/// What a command wants done to connections of its shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// Close it: at once, or after its replies.
    Close(SessionId, CloseWhen),
    /// Show it all commands from its next reply on.
    Monitor(SessionId),
    /// End what it waits for.
    Unblock {
        /// The connection.
        id: SessionId,
        /// With an error, and not as if its time were up.
        failed: bool,
    },
}

/// The data of one shard, and what its commands need beside it.
pub struct Shard {
    /// Which shard this is.
    pub me: ShardId,
    /// Who owns which slot.
    pub slots: SlotMap,
    /// The keys.
    pub keyspace: Keyspace,
    /// The key of the command being run, if it has been hashed already.
    pub(crate) known_key: KnownKey,
    /// What clients know moments by.
    pub wall: WallClock,
    /// For random choices.
    pub rng: Rng,
    /// Counters.
    pub stats: ShardStats,
    /// The configuration in force.
    pub settings: Settings,
    /// What the runtime last told about the process.
    pub process: ProcessInfo,
    /// Who is shown all commands.
    pub watchers: Watchers,
    /// CLIENT PAUSE.
    pub pause: Pause,
    /// Who listens to what.
    pub(crate) pubsub: PubSub,
    /// What commands want done to connections.
    pub orders: Vec<Order>,
    /// How long commands take here.
    pub timing: Timing,
    /// The logs of all shards, where this one keeps them.
    pub journal: Journal,
    /// Whether RESTORE looks at the checksums of its payloads.
    pub(crate) checksums: Checksums,
    /// Makes rates of the counters.
    pub sampler: Sampler,
    /// The most memory that was in use here, in bytes, as far as was looked.
    pub memory_peak: u64,
    /// What commands have asked of the process.
    pub host_requests: VecDeque<HostRequest>,
    /// What has happened to keys, where somebody wants to know.
    pub events: Vec<KeyEvent>,
    /// Clients that watch no keys any longer, and where they did.
    pub unwatched: Vec<Unwatched>,
    /// Keys that commands wait for, each once; known to those that see connections.
    pub waited_keys: usize,
    /// The command that was run last has found nothing, and would wait if it may.
    pub would_wait: bool,
}

impl Shard {
    /// To be called when `settings` have been changed: brings what follows from them up to date.
    pub fn apply_settings(&mut self) {
        let settings = &self.settings;
        let lfu = settings.maxmemory_policy.is_lfu().then_some(Lfu {
            log_factor: settings.lfu_log_factor,
            decay_minutes: settings.lfu_decay_time_minutes,
        });
        self.keyspace.access.set_lfu(lfu);
        let classes = [EventClasses::EXPIRED, EventClasses::HASH, EventClasses::GENERIC];
        self.keyspace.list_expired(classes.iter().any(|class| settings.events.has(*class)));
        self.timing.apply(&settings.observation);
    }
}

/// The keys of a command that a handler is to handle, as indices into its arguments.
#[derive(Clone, Copy, Debug)]
pub enum KeySelection<'a> {
    /// All of them.
    Range(KeyRange),
    /// Those that this shard owns.
    List(&'a [u32]),
}

impl<'a> KeySelection<'a> {
    /// The indices, in the order of the arguments.
    pub fn indices(self) -> impl Iterator<Item = usize> + 'a {
        let (range, list) = match self {
            Self::Range(range) => (range, &[][..]),
            Self::List(list) => (KeyRange::NONE, list),
        };
        range.indices().chain(list.iter().map(|idx| *idx as usize))
    }

    /// How many there are.
    pub const fn len(self) -> usize {
        match self {
            Self::Range(range) => range.len(),
            Self::List(list) => list.len(),
        }
    }

    /// Whether there are none.
    pub const fn is_empty(self) -> bool {
        self.len() == 0
    }

    /// Whether argument `idx` is among them.
    pub fn contains(self, idx: usize) -> bool {
        self.indices().any(|i| i == idx)
    }
}

/// What one stage of a staged command hands to the next, from shard to shard.
#[derive(Clone, Debug, Default)]
pub enum Payload {
    /// Nothing.
    #[default]
    None,
    /// What a key holds.
    Value(Detached),
    /// Several values, each with a number whose meaning is the command's, such as the key's index.
    Values(Vec<(u32, Detached)>),
    /// Members with scores of sets of a shard.
    Scores(Vec<SentScores>),
    /// What the stages of SORT exchange.
    Sort(Box<SortShare>),
    /// A SORT that is under way on this shard.
    Sorting(Box<SortWork>),
    /// A combination of sets that is.
    Combining(Box<SetWork>),
    /// The same of sorted sets.
    Scoring(Box<ScoreWork>),
    /// A search for members in an area that is.
    Searching(Box<GeoWork>),
    /// A combination of strings that is.
    Bits(Box<BitWork>),
    /// Elements of a list that a search has found so far.
    Matches(Box<Matches>),
    /// A copy that is.
    Copying(Box<Copying>),
    /// A payload of DUMP that is.
    Dumping(Box<DumpWork>),
    /// A value that is being restored from one.
    Restoring(Box<RestoreWork>),
    /// Numbers of clients.
    Clients(Vec<u64>),
    /// A digest of a shard's data.
    Digest(Box<DatasetDigest>),
    /// How large its tables are and how full.
    Tables(TableShape),
    /// What memory a shard uses.
    Memory(Box<ShardMemory>),
    /// What a shard says of itself, for INFO.
    Report(Box<ShardReport>),
    /// What its commands cost.
    Commands(Box<CommandStats>),
    /// Its part of a log.
    Log(Box<LogPart>),
    /// What its latency monitor noted.
    Latency(Box<LatencyPart>),
}

impl Payload {
    /// Gives it up, and has large values in it freed by and by.
    pub(crate) fn discard(self, keyspace: &mut Keyspace) {
        match self {
            Self::Value(content) => keyspace.discard(content.value),
            Self::Values(contents) => {
                contents.into_iter().for_each(|(_, content)| keyspace.discard(content.value));
            }
            Self::Combining(work) => work.discard(keyspace),
            Self::Scoring(work) => work.discard(keyspace),
            Self::Searching(work) => work.discard(keyspace),
            Self::Copying(copying) => keyspace.discard(copying.into_value()),
            Self::Restoring(work) => work.discard(keyspace),
            _ => {}
        }
    }
}

/// Members with scores of one set, on their way to be combined with those of others.
#[derive(Clone, Debug)]
pub struct SentScores {
    /// The set's places among the command's keys: several, where its key comes several times.
    pub places: Vec<usize>,
    /// How many members it has where it is.
    pub len: usize,
    /// Those that matter.
    pub members: Tally,
    /// For an index of them.
    pub seed: u64,
}

/// What a shard says of itself.
#[derive(Clone, Debug)]
pub struct ShardReport {
    /// Which shard.
    pub shard: ShardId,
    /// Its wall clock.
    pub wall: WallClock,
    /// Its counters.
    pub stats: ShardStats,
    /// Its databases.
    pub dbs: Vec<crate::keyspace::DbStats>,
    /// What memory it uses, if INFO was asked for that.
    pub memory: Option<ShardMemory>,
    /// Keys that expired.
    pub expired: u64,
    /// Fields of hashes that expired.
    pub expired_fields: u64,
    /// Flushed keys that are still to be freed.
    pub pending_frees: u64,
    /// Flushed keys that have been freed.
    pub freed: u64,
    /// Its connections.
    pub clients: ClientCounts,
    /// Keys that clients of any shard watch, each once.
    pub watched_keys: usize,
    /// Keys that commands wait for, each once.
    pub waited_keys: usize,
    /// What it does per second.
    pub rates: Rates,
    /// Channels and patterns with subscribers.
    pub(crate) pubsub: PubSubCounts,
    /// The pause of its clients.
    pub pause: Pause,
    /// The process, as this shard knows it.
    pub process: ProcessInfo,
    /// The configuration.
    pub settings: Settings,
    /// When the report was made.
    pub now: Millis,
    /// How long its commands have taken, in nanoseconds.
    pub commands_ns: u64,
    /// What its commands cost, if INFO was asked for that.
    pub commands: Option<CommandStats>,
}

/// What the runtime knows of the process; it renews this about every second on every shard.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProcessInfo {
    /// Resident bytes.
    pub rss_bytes: u64,
    /// The most of them there ever were.
    pub rss_peak_bytes: u64,
    /// Processor time in user mode, in microseconds.
    pub cpu_user_us: u64,
    /// Processor time in the kernel, in microseconds.
    pub cpu_sys_us: u64,
    /// The same of child processes that have ended.
    pub children_user_us: u64,
    /// In the kernel.
    pub children_sys_us: u64,
    /// Processor time in user mode of the shard's own thread, in microseconds.
    pub thread_user_us: u64,
    /// In the kernel.
    pub thread_sys_us: u64,
    /// Memory of the machine in bytes.
    pub memory_bytes: u64,
}

/// What a part of a command did on one shard.
#[derive(Debug, Default)]
pub struct PartResult {
    /// The keys it handled, as indices into the arguments.
    pub keys: Vec<u32>,
    /// Its reply.
    pub reply: Reply,
    /// Elements in the reply, where the handler counts them.
    pub elements: u64,
    /// What it hands on.
    pub payload: Payload,
    /// Its reply is an error.
    pub failed: bool,
    /// Nanoseconds it took, so far.
    pub ns: u64,
    /// For `Merge::InKeyOrder`: where each key's reply ends.
    pub ends: Vec<Mark>,
}

impl PartResult {
    /// The reply's value where it is an integer, otherwise 0.
    pub fn int(&self) -> i64 {
        let text = self.reply.buf.strip_prefix(b":").and_then(|rest| rest.strip_suffix(b"\r\n"));
        text.and_then(crate::args::parse_int).unwrap_or(0)
    }
}

/// What a staged command's `decide` sees.
pub struct Decide<'a> {
    /// The stage that has finished: 0 for `read`.
    pub stage: u8,
    /// The command's arguments.
    pub args: Args<'a>,
    /// How much may be done at once here.
    pub sizes: PieceSizes,
    /// Results of that stage, one per shard that took part.
    pub results: &'a mut [PartResult],
    /// Where the command's final reply goes.
    pub reply: &'a mut Reply,
}

impl Decide<'_> {
    /// Whether a part has failed; its error is the reply then.
    pub(crate) fn passes_on_failure(&mut self) -> bool {
        let Some(failed) = self.results.iter().find(|result| result.failed) else { return false };
        self.reply.append_range(&failed.reply, Mark::default(), failed.reply.mark());
        true
    }
}

/// What a staged command does next.
#[derive(Debug)]
pub enum Next {
    /// The reply is written: finish.
    Reply,
    /// There is nothing yet: wait for it, on the keys under whose intents nothing was found. The reply is written for those
    /// who may not wait, as in a transaction.
    Wait,
    /// Run the `write` handler with this stage number.
    Run {
        /// 1, 2, …
        stage: u8,
        /// Where.
        on: On,
        /// Given to the handler, on each shard.
        payload: Payload,
    },
}

/// Where a stage runs.
#[derive(Clone, Copy, Debug)]
pub enum On {
    /// On the shard that owns the key at this index of the arguments; it is the only key the handler sees.
    Key(usize),
    /// On all shards that own keys of the command.
    All,
}

/// The surroundings of one run of a handler.
pub struct Ctx<'a> {
    /// The shard that owns the keys.
    pub shard: &'a mut Shard,
    /// The connections of this shard; only for commands with `Scope::Nothing`.
    pub sessions: Option<&'a Sessions>,
    /// The asking client's number, where `sessions` is given and for `Scope::Watch`.
    pub client_id: u64,
    /// The selected database.
    pub db: usize,
    /// The time.
    pub now: Millis,
    /// The keys to handle, for parts and stages.
    pub keys: KeySelection<'a>,
    /// 0 when reading, then the stage of a staged command.
    pub stage: u8,
    /// In: what an earlier stage handed on. Out: what this one does.
    pub payload: Payload,
    /// How long the handler may take.
    pub pace: Pace,
    /// Where a handler that answered `Flow::Again` goes on; 0 at first.
    pub resume: u64,
    /// The command was put off, so its keys have been looked up before.
    pub looked_up: bool,
    /// Elements written to the reply so far, for handlers that do not know their number beforehand.
    pub elements: u64,
}

impl Ctx<'_> {
    /// How much to do in this call.
    #[inline]
    pub fn pacing(&self) -> Pacing {
        Pacing { pace: self.pace, sizes: self.shard.settings.pieces }
    }

    /// The time, on both clocks.
    pub(crate) fn present(&self) -> Present {
        Present { now: self.now, wall: self.shard.wall }
    }

    /// Slot and hash of a key.
    #[inline]
    pub fn key<'k>(&self, bytes: &'k [u8]) -> Key<'k> {
        self.shard.known_key.of(bytes).unwrap_or_else(|| self.shard.keyspace.hasher().key(bytes))
    }

    /// The entry of a key in the selected database.
    #[inline]
    pub fn find(&mut self, key: Key<'_>) -> Option<EntryMut<'_>> {
        self.shard.keyspace.find(self.db, key, self.now)
    }

    /// The same for a command that changes keys: an access unless the client wants none, whether or not it then changes this one.
    #[inline]
    pub fn find_to_change(&mut self, key: Key<'_>) -> Option<EntryMut<'_>> {
        self.shard.keyspace.find_to_change(self.db, key, self.now)
    }

    /// The entry of a key, for reading: counts a hit or a miss, and is an access unless the client wants none.
    #[inline]
    pub fn lookup(&mut self, key: Key<'_>) -> Option<EntryMut<'_>> {
        if self.shard.keyspace.no_touch { self.peek(key) } else { self.access(key) }
    }

    /// The same for a command that may be done in pieces: only the first of them counts.
    #[inline]
    pub fn lookup_once(&mut self, key: Key<'_>) -> Option<EntryMut<'_>> {
        if self.resume == 0 && !self.looked_up { self.lookup(key) } else { self.find(key) }
    }

    /// The same, and is an access whatever the client wants.
    #[inline]
    pub fn access(&mut self, key: Key<'_>) -> Option<EntryMut<'_>> {
        let Shard { keyspace, stats, settings, events, .. } = &mut *self.shard;
        let entry = keyspace.find_to_use(self.db, key, self.now);
        stats.count_read(entry.is_some());
        if entry.is_none() {
            note_miss(settings.events, events, self.db, key);
        }
        entry
    }

    /// The entry of a key, for looking at it from outside: counts a hit or a miss, but is no access.
    #[inline]
    pub fn peek(&mut self, key: Key<'_>) -> Option<EntryMut<'_>> {
        let Shard { keyspace, stats, settings, events, .. } = &mut *self.shard;
        let entry = keyspace.find(self.db, key, self.now);
        stats.count_read(entry.is_some());
        if entry.is_none() {
            note_miss(settings.events, events, self.db, key);
        }
        entry
    }

    /// The same, and tells nobody of a miss.
    pub fn peek_quietly(&mut self, key: Key<'_>) -> Option<EntryMut<'_>> {
        let Shard { keyspace, stats, .. } = &mut *self.shard;
        let entry = keyspace.find(self.db, key, self.now);
        stats.count_read(entry.is_some());
        entry
    }

    /// Sets a key's value and deadline.
    #[inline]
    pub fn set(&mut self, key: Key<'_>, value: NewValue<'_>, expiry: Option<Millis>) {
        if self.shard.settings.events != EventClasses::NONE {
            return self.set_and_note(key, value, expiry);
        }
        self.shard.keyspace.set(self.db, key, value, expiry, self.now);
    }

    /// Removes a key; true if it was there.
    pub fn remove(&mut self, key: Key<'_>) -> bool {
        self.shard.keyspace.remove(self.db, key, self.now)
    }
}

/// Notes that a key that was read is not there.
#[inline]
fn note_miss(classes: EventClasses, events: &mut Vec<KeyEvent>, db: usize, key: Key<'_>) {
    if classes.has(EventClasses::MISSED) {
        events.push(KeyEvent { class: EventClasses::MISSED, name: "keymiss", db, key: key.bytes.into() });
    }
}

/// The surroundings of a command that touches only its connection.
pub struct SessionCtx<'a> {
    /// The connection's client.
    pub client: &'a mut Client,
    /// The connection's shard.
    pub shard: &'a mut Shard,
    /// The time.
    pub now: Millis,
    /// Whether it may make its client wait; not in a transaction.
    pub may_block: bool,
}

/// Writes an error as a reply. Whoever completes a command's reply counts it.
pub(crate) fn write_error(error: &Error, reply: &mut Reply) {
    reply.error_bytes(&error.wire());
}
