//! What the engine needs to know of the configuration. Plain data; every shard has its own copy.

use crate::command::PieceSizes;
use crate::config::Config;
use crate::events::EventClasses;
use crate::modes::Modes;
use crate::rdb::Versions;
use crate::session::Client;
use crate::values::ListSize;

/// Settings of the engine, with Redis's names and defaults where Redis has them.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Number of databases.
    pub databases: usize,
    /// Longest string in bytes (`proto-max-bulk-len`).
    pub proto_max_bulk_len: usize,
    /// Bytes of unprocessed input after which a client is dropped (`client-query-buffer-limit`).
    pub query_buffer_limit: usize,
    /// Unsent output after which a client is dropped (`client-output-buffer-limit`).
    pub output_limits: OutputLimits,
    /// Bytes of unsent output after which no more of a client's commands are run until it has read.
    pub output_backlog_max: usize,
    /// All directives as CONFIG GET shows them.
    pub config: Config,
    /// What the password of the default user is; empty for none (`requirepass`).
    pub password: Password,
    /// Whether clients from elsewhere are refused as long as there is no password (`protected-mode`).
    pub protected_mode: bool,
    /// Seconds without traffic after which a client is dropped; 0 for never (`timeout`).
    pub timeout_s: u32,
    /// Seconds between TCP keep-alive probes; 0 for none (`tcp-keepalive`).
    pub tcp_keepalive_s: u32,
    /// Buffers for receives that a shard has from the start, 17 KiB each (`buffer-pool-min`).
    pub buffer_pool_min: u16,
    /// Buffers that it may have (`buffer-pool-max`).
    pub buffer_pool_max: u16,
    /// Microseconds for which a shard without work spins before it sleeps (`busy-poll-us`).
    pub busy_poll_us: u64,
    /// What the process around the engine does for CONFIG.
    pub hooks: Hooks,
    /// What INFO says about the process and does not change: field and value.
    pub server_info: Vec<(&'static str, String)>,
    /// The CPU to which this engine's shard is bound, for INFO.
    pub cpu: Option<usize>,
    /// The port that INFO shows.
    pub port: u16,
    /// The Unix time at which the server started, in milliseconds.
    pub started_ms: u64,
    /// Most connections at a time.
    pub maxclients: u32,
    /// The most that it may be set to: the process has no more descriptors.
    pub maxclients_max: u32,
    /// From where on commands are logged.
    pub observation: Observation,
    /// Which keys are to go when memory is short, and so what is kept of accesses (`maxmemory-policy`).
    pub maxmemory_policy: MaxmemoryPolicy,
    /// Up to which size collections are kept compact.
    pub compact: CompactLimits,
    /// From which size on collections are read in pieces; no directive.
    pub pieces: PieceSizes,
    /// The longest HyperLogLog that is kept sparse, in bytes (`hll-sparse-max-bytes`).
    pub hll_sparse_max_bytes: usize,
    /// Of which versions RESTORE takes payloads.
    pub rdb_versions: Versions,
    /// Which events of keys are told (`notify-keyspace-events`).
    pub events: EventClasses,
    /// The process's allocator.
    pub allocator: Allocator,
    /// How slowly the counters of an LFU policy grow (`lfu-log-factor`).
    pub lfu_log_factor: u32,
    /// Minutes without an access that take one off a counter; 0 for never (`lfu-decay-time`).
    pub lfu_decay_time_minutes: u32,
}

/// A password, which is not printed.
#[derive(Clone, Default)]
pub struct Password(pub Box<[u8]>);

impl std::ops::Deref for Password {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.0
    }
}

impl std::fmt::Debug for Password {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(if self.is_empty() { "none" } else { "(redacted)" })
    }
}

/// Up to which size collections are kept compact. Lengths in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CompactLimits {
    /// Fields of a hash (`hash-max-listpack-entries`).
    pub hash_entries: usize,
    /// Its longest field or value (`hash-max-listpack-value`).
    pub hash_value: usize,
    /// Pieces of a list.
    pub list_size: ListSize,
    /// Members of a set of integers (`set-max-intset-entries`).
    pub set_ints: usize,
    /// Members of a set (`set-max-listpack-entries`).
    pub set_entries: usize,
    /// Its longest member (`set-max-listpack-value`).
    pub set_value: usize,
    /// Members of a sorted set (`zset-max-listpack-entries`).
    pub sorted_entries: usize,
    /// Its longest member (`zset-max-listpack-value`).
    pub sorted_value: usize,
    /// What the hashes of large collections begin with; a secret of the process.
    pub seed: u64,
}

impl Default for CompactLimits {
    fn default() -> Self {
        Self {
            hash_entries: 512,
            hash_value: 64,
            list_size: ListSize::from(-2),
            set_ints: 512,
            set_entries: 128,
            set_value: 64,
            sorted_entries: 128,
            sorted_value: 64,
            seed: 0,
        }
    }
}

/// What the process around the engine does for CONFIG. These run on a shard, and may take milliseconds.
#[derive(Clone, Copy, Debug)]
pub struct Hooks {
    /// Writes the configuration into its file.
    pub rewrite: fn(&Config) -> Result<(), String>,
    /// What was first has become what is second; called once per change, whatever the number of shards.
    pub changed: fn(&Config, &Config),
    /// Listens where `bind` and `port` say, and nowhere else; called on the first shard, once per change of these. On failure
    /// everything is as before, and the log says why. [`HostRequest::Listen`](crate::HostRequest::Listen) follows success.
    pub listen: fn(&Config) -> Result<(), ()>,
}

impl Default for Hooks {
    /// No file, no log and no sockets.
    fn default() -> Self {
        Self {
            rewrite: |_| Err("The server is running without a config file".to_owned()),
            changed: |_, _| {},
            listen: |_| Err(()),
        }
    }
}

/// Unsent output after which a client is dropped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OutputLimit {
    /// Bytes after which it is at once; 0 for never.
    pub hard: usize,
    /// Bytes after which it is when they stay for [`Self::soft_s`]; 0 for never.
    pub soft: usize,
    /// In seconds.
    pub soft_s: u64,
}

impl OutputLimit {
    /// Output of which no limit knows: Valkey does not count a client's own buffer, in which short replies are.
    const UNCOUNTED: usize = 16 << 10;

    /// Whether so many bytes are over the hard limit.
    #[inline]
    pub const fn is_over_hard(self, bytes: usize) -> bool {
        self.hard != 0 && bytes > self.hard && bytes > Self::UNCOUNTED
    }

    /// Whether so many bytes are over the soft limit.
    pub const fn is_over_soft(self, bytes: usize) -> bool {
        self.soft != 0 && bytes > self.soft && bytes > Self::UNCOUNTED
    }
}

/// The limits of all classes of clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OutputLimits {
    /// Of clients that are nothing special; monitors are such.
    pub normal: OutputLimit,
    /// Of replicas.
    pub replica: OutputLimit,
    /// Of subscribers.
    pub pubsub: OutputLimit,
}

impl OutputLimits {
    /// That of a client.
    #[inline]
    pub(crate) const fn of(&self, client: &Client) -> OutputLimit {
        if client.modes.has(Modes::SUBSCRIBED) { self.pubsub } else { self.normal }
    }
}

impl Default for OutputLimits {
    fn default() -> Self {
        Self {
            normal: OutputLimit::default(),
            replica: OutputLimit { hard: 256 << 20, soft: 64 << 20, soft_s: 60 },
            pubsub: OutputLimit { hard: 32 << 20, soft: 8 << 20, soft_s: 60 },
        }
    }
}

/// The process's allocator, as MEMORY and INFO ask it. The functions may take milliseconds.
#[derive(Clone, Copy, Debug)]
pub struct Allocator {
    /// What it is called.
    pub name: &'static str,
    /// Gives memory that the calling thread does not use back to the system.
    pub purge: fn(),
    /// What it tells of itself, for people.
    pub statistics: fn() -> String,
    /// Bytes it has from the system; 0 where it does not say.
    pub committed_bytes: fn() -> u64,
}

impl Default for Allocator {
    /// One that nothing is known of.
    fn default() -> Self {
        Self {
            name: "unknown",
            purge: || {},
            statistics: || "Stats not supported for the current allocator".to_owned(),
            committed_bytes: || 0,
        }
    }
}

/// Redis's policies of eviction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MaxmemoryPolicy {
    /// None goes.
    #[default]
    Noeviction,
    /// The least recently used of those with a deadline.
    VolatileLru,
    /// The least recently used.
    AllkeysLru,
    /// The least often used of those with a deadline.
    VolatileLfu,
    /// The least often used.
    AllkeysLfu,
    /// Any with a deadline.
    VolatileRandom,
    /// Any.
    AllkeysRandom,
    /// Those whose deadline is next.
    VolatileTtl,
}

impl MaxmemoryPolicy {
    /// All of them, in the order in which Redis lists them.
    pub const ALL: [Self; 8] = [
        Self::VolatileLru,
        Self::VolatileLfu,
        Self::VolatileRandom,
        Self::VolatileTtl,
        Self::AllkeysLru,
        Self::AllkeysLfu,
        Self::AllkeysRandom,
        Self::Noeviction,
    ];

    /// Its name in the configuration.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Noeviction => "noeviction",
            Self::VolatileLru => "volatile-lru",
            Self::AllkeysLru => "allkeys-lru",
            Self::VolatileLfu => "volatile-lfu",
            Self::AllkeysLfu => "allkeys-lfu",
            Self::VolatileRandom => "volatile-random",
            Self::AllkeysRandom => "allkeys-random",
            Self::VolatileTtl => "volatile-ttl",
        }
    }

    /// Whether accesses are counted.
    pub const fn is_lfu(self) -> bool {
        matches!(self, Self::VolatileLfu | Self::AllkeysLfu)
    }
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            databases: 16,
            proto_max_bulk_len: 512 << 20,
            query_buffer_limit: 1 << 30,
            output_limits: OutputLimits::default(),
            output_backlog_max: 1 << 20,
            config: Config::default(),
            password: Password::default(),
            protected_mode: true,
            timeout_s: 0,
            tcp_keepalive_s: 300,
            buffer_pool_min: 64,
            buffer_pool_max: 1024,
            busy_poll_us: 0,
            hooks: Hooks::default(),
            server_info: Vec::new(),
            cpu: None,
            port: 6379,
            started_ms: 0,
            maxclients: 10_000,
            maxclients_max: u32::MAX,
            compact: CompactLimits::default(),
            pieces: PieceSizes::DEFAULT,
            rdb_versions: Versions::default(),
            hll_sparse_max_bytes: 3000,
            events: EventClasses::NONE,
            allocator: Allocator::default(),
            maxmemory_policy: MaxmemoryPolicy::default(),
            lfu_log_factor: 10,
            lfu_decay_time_minutes: 1,
            observation: Observation::default(),
        }
    }
}

/// From where on commands are logged, and what is counted of their durations.
#[derive(Clone, Debug)]
pub struct Observation {
    /// Microseconds from which on a command is slow; negative for never (`commandlog-execution-slower-than`,
    /// `slowlog-log-slower-than`).
    pub slow_us: i64,
    /// Slow commands kept; 0 for none (`commandlog-slow-execution-max-len`, `slowlog-max-len`).
    pub slow_len_max: usize,
    /// Bytes from which on a request is large; negative for never (`commandlog-request-larger-than`).
    pub large_request_bytes: i64,
    /// Large requests kept; 0 for none (`commandlog-large-request-max-len`).
    pub large_request_len_max: usize,
    /// Bytes from which on a reply is large; negative for never (`commandlog-reply-larger-than`).
    pub large_reply_bytes: i64,
    /// Large replies kept; 0 for none (`commandlog-large-reply-max-len`).
    pub large_reply_len_max: usize,
    /// Milliseconds from which on the latency monitor notes an event; 0 for never (`latency-monitor-threshold`).
    pub latency_threshold_ms: u64,
    /// Whether durations are counted per command (`latency-tracking`).
    pub latency_tracking: bool,
    /// The percentiles that INFO shows of them (`latency-tracking-info-percentiles`).
    pub latency_percentiles: Vec<f64>,
}

impl Default for Observation {
    fn default() -> Self {
        Self {
            slow_us: 10_000,
            slow_len_max: 128,
            large_request_bytes: 1 << 20,
            large_request_len_max: 128,
            large_reply_bytes: 1 << 20,
            large_reply_len_max: 128,
            latency_threshold_ms: 0,
            latency_tracking: true,
            latency_percentiles: vec![50.0, 99.0, 99.9],
        }
    }
}
