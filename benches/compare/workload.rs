//! The workloads and the bounds they are held to: data, in one table.
//!
//! 64-byte values under 100 000 random keys and 50 clients unless a workload says otherwise. Bounds are ratios of
//! medians, or absolute figures.

use anyhow::{Result, bail};

use crate::metric::Metric;
use crate::metric::Metric::{
    BytesPerConnection, BytesPerElement, BytesPerKey, CpuPerRequest, CpuPerShard, Errors, FirstRequest, P50,
    P99, PeakOverSize, Throughput, TurnMax,
};

/// A server as a workload wants it started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Subject {
    Ours { shards: usize },
    Redis,
    Valkey,
    Memcached,
}

use Subject::{Memcached, Redis, Valkey};

const ONE: Subject = Subject::Ours { shards: 1 };
const TWO: Subject = Subject::Ours { shards: 2 };

impl Subject {
    /// The name in tables.
    pub(crate) fn name(self) -> String {
        match self {
            Self::Ours { shards: 1 } => "corelane, 1 shard".to_owned(),
            Self::Ours { shards } => format!("corelane, {shards} shards"),
            Redis => "redis".to_owned(),
            Valkey => "valkey".to_owned(),
            Memcached => "memcached".to_owned(),
        }
    }
}

/// Which CPUs server and client may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pin {
    /// Server on CPU 0, client on CPU 1.
    Split,
    /// The scheduler decides for both.
    Free,
}

/// One call of the load generator.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Load {
    /// The row's name in the tables.
    pub(crate) case: &'static str,
    /// The value of its `-t`, or a whole command.
    pub(crate) test: &'static str,
    /// What there is beside the keys when it begins.
    pub(crate) stock: Stock,
    pub(crate) clients: u64,
    pub(crate) threads: u64,
    pub(crate) pipeline: u64,
    pub(crate) value_bytes: u64,
    pub(crate) keys: u64,
    pub(crate) requests: u64,
    pub(crate) keep_alive: bool,
}

/// A collection that a load finds, under the name that redis-benchmark uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stock {
    Nothing,
    /// `mylist` of as many elements as there are requests.
    ListForAll,
    /// `mylist` of 1000 elements.
    List,
    /// `myset` of as many members as there are requests.
    SetForAll,
    /// `myzset` of as many members as there are requests.
    SortedSetForAll,
}

/// What a workload does with a server.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Kind {
    /// The load generator, over keys that all exist.
    Load(&'static [Load]),
    /// Opens this many connections, uses each once, and leaves them alone.
    IdleConnections(u64),
    /// SETs one value of this many bytes.
    BigSet(u64),
    /// Nothing at all, then single requests with pauses between.
    Idle,
    /// Grows the keyspace to this many keys, then FLUSHALL.
    Growth(u64),
    /// Fills this many keys with values of 8 and 64 bytes, and with a TTL.
    Memory(u64),
    /// Fills collections of each type: how many, and of how many elements.
    Collections(u64, u64),
}

/// On which side of its limit a figure must stay, inclusive.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Limit {
    AtMost(f64),
    AtLeast(f64),
}

use Limit::{AtLeast, AtMost};

/// What a figure is divided by before it meets its limit.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Against {
    /// Nothing: the limit is absolute.
    Nothing,
    /// The same case of another server.
    Server(Subject),
    /// Another case of the same server.
    Case(&'static str),
}

/// One requirement.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bound {
    pub(crate) metric: Metric,
    pub(crate) subject: Subject,
    /// The case it is about; every case of the workload where `None`.
    pub(crate) case: Option<&'static str>,
    pub(crate) against: Against,
    pub(crate) limit: Limit,
}

/// A named workload.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Workload {
    pub(crate) name: &'static str,
    pub(crate) about: &'static str,
    pub(crate) subjects: &'static [Subject],
    pub(crate) pin: Pin,
    pub(crate) kind: Kind,
    pub(crate) bounds: &'static [Bound],
}

/// The workloads with these names, in the table's order, or all of them when there are none; without those to skip.
pub(crate) fn select(names: &[&str], skipped: &[String]) -> Result<Vec<&'static Workload>> {
    let skipped: Vec<&str> = skipped.iter().map(String::as_str).collect();
    let unknown = |name: &&&str| ALL.iter().all(|workload| workload.name != **name);
    if let Some(unknown) = names.iter().chain(&skipped).find(unknown) {
        let known: Vec<&str> = ALL.iter().map(|workload| workload.name).collect();
        bail!("there is no workload {unknown:?}; there are {}", known.join(", "));
    }
    let wanted = |name| (names.is_empty() || names.contains(&name)) && !skipped.contains(&name);
    Ok(ALL.iter().filter(|workload| wanted(workload.name)).collect())
}

const fn against(metric: Metric, subject: Subject, other: Subject, limit: Limit) -> Bound {
    Bound { metric, subject, case: None, against: Against::Server(other), limit }
}

const fn absolute(metric: Metric, subject: Subject, limit: Limit) -> Bound {
    Bound { metric, subject, case: None, against: Against::Nothing, limit }
}

const SET: Load = Load {
    case: "SET",
    test: "set",
    stock: Stock::Nothing,
    clients: 50,
    threads: 1,
    pipeline: 1,
    value_bytes: 64,
    keys: 100_000,
    requests: 400_000,
    keep_alive: true,
};
const GET: Load = Load { case: "GET", test: "get", ..SET };
const SET_P16: Load = Load { pipeline: 16, requests: 3_000_000, ..SET };
const GET_P16: Load = Load { pipeline: 16, requests: 3_000_000, ..GET };
const SET_P100: Load = Load { pipeline: 100, requests: 4_000_000, ..SET };
const GET_P100: Load = Load { pipeline: 100, requests: 4_000_000, ..GET };

const P1: &[Load] = &[SET, GET];
const P16: &[Load] = &[SET_P16, GET_P16];
const P100: &[Load] = &[SET_P100, GET_P100];
// Longer runs: with threads, redis-benchmark notices the end of one only every 250 ms, and counts that time.
const SET_THREADS: Load = Load { threads: 2, requests: 800_000, ..SET };
const SET_P16_THREADS: Load = Load { pipeline: 16, requests: 6_000_000, ..SET_THREADS };
const P1_THREADS: &[Load] = &[SET_THREADS, Load { case: "GET", test: "get", ..SET_THREADS }];
const P16_THREADS: &[Load] = &[SET_P16_THREADS, Load { case: "GET", test: "get", ..SET_P16_THREADS }];
const FEW_AND_MANY: &[Load] = &[
    Load { case: "50 clients", value_bytes: 3, ..SET_THREADS },
    Load { case: "9000 clients", value_bytes: 3, clients: 9000, ..SET_THREADS },
];
const ONE_CLIENT: &[Load] =
    &[Load { clients: 1, requests: 100_000, ..SET }, Load { clients: 1, requests: 100_000, ..GET }];
const SHORT: &[Load] = &[
    Load { keep_alive: false, requests: 100_000, ..SET },
    Load { keep_alive: false, requests: 100_000, ..GET },
];
const KIB_16: Load = Load { value_bytes: 16 << 10, keys: 10_000, requests: 200_000, ..SET };
const MIB_1: Load = Load { value_bytes: 1 << 20, keys: 100, requests: 5_000, ..SET };
const BIG_16K: &[Load] = &[KIB_16, Load { case: "GET", test: "get", ..KIB_16 }];
const BIG_1M: &[Load] = &[MIB_1, Load { case: "GET", test: "get", ..MIB_1 }];

/// redis-benchmark's default suite, as far as it is about collections. Of LRANGE it would count its own preparation.
const fn on_collections(pipeline: u64, requests: u64) -> [Load; 12] {
    let load = Load { pipeline, requests, value_bytes: 3, ..SET };
    let range = Load { stock: Stock::List, requests: requests / 4, ..load };
    [
        Load { case: "HSET", test: "hset", ..load },
        Load { case: "LPUSH", test: "lpush", ..load },
        Load { case: "LPOP", test: "lpop", stock: Stock::ListForAll, ..load },
        Load { case: "RPOP", test: "rpop", stock: Stock::ListForAll, ..load },
        Load { case: "SADD", test: "sadd", ..load },
        Load { case: "SPOP", test: "spop", stock: Stock::SetForAll, ..load },
        Load { case: "ZADD", test: "zadd", ..load },
        Load { case: "ZPOPMIN", test: "zpopmin", stock: Stock::SortedSetForAll, ..load },
        Load { case: "LRANGE_100", test: "LRANGE mylist 0 99", ..range },
        Load { case: "LRANGE_300", test: "LRANGE mylist 0 299", ..range },
        Load { case: "LRANGE_600", test: "LRANGE mylist 0 599", ..range },
        Load { case: "MSET(10)", test: "mset", requests: requests / 4, ..load },
    ]
}
const COLLECTIONS_P1: &[Load] = &on_collections(1, 200_000);
const COLLECTIONS_P16: &[Load] = &on_collections(16, 1_600_000);

const REDIS_LIKE: &[Subject] = &[ONE, Redis, Valkey];
const ONE_AND_TWO: &[Subject] = &[ONE, TWO, Redis, Valkey];

/// Every workload, in the order in which they run.
pub(crate) const ALL: &[Workload] = &[
    Workload {
        name: "pinned-p1",
        about: "one shard on CPU 0, client on CPU 1, 50 clients, no pipeline",
        subjects: REDIS_LIKE,
        pin: Pin::Split,
        kind: Kind::Load(P1),
        bounds: &[
            against(Throughput, ONE, Redis, AtLeast(1.0)),
            against(CpuPerRequest, ONE, Redis, AtMost(1.0)),
        ],
    },
    Workload {
        name: "pinned-p16",
        about: "one shard on CPU 0, client on CPU 1, 50 clients, pipeline 16",
        subjects: REDIS_LIKE,
        pin: Pin::Split,
        kind: Kind::Load(P16),
        bounds: &[against(CpuPerRequest, ONE, Redis, AtMost(0.65))],
    },
    Workload {
        name: "pinned-p100",
        about: "one shard on CPU 0, client on CPU 1, 50 clients, pipeline 100",
        subjects: REDIS_LIKE,
        pin: Pin::Split,
        kind: Kind::Load(P100),
        bounds: &[against(CpuPerRequest, ONE, Redis, AtMost(0.60))],
    },
    Workload {
        name: "unpinned-p1",
        about: "one shard, nothing pinned, 50 clients in 2 threads, no pipeline",
        subjects: REDIS_LIKE,
        pin: Pin::Free,
        kind: Kind::Load(P1_THREADS),
        bounds: &[against(CpuPerRequest, ONE, Redis, AtMost(0.90))],
    },
    Workload {
        name: "two-shards-p1",
        about: "two shards, nothing pinned, 50 clients in 2 threads, no pipeline",
        subjects: ONE_AND_TWO,
        pin: Pin::Free,
        kind: Kind::Load(P1_THREADS),
        bounds: &[
            against(CpuPerRequest, TWO, ONE, AtMost(1.6)),
            against(Throughput, TWO, Redis, AtLeast(1.0)),
        ],
    },
    Workload {
        name: "two-shards-p16",
        about: "two shards, nothing pinned, 50 clients in 2 threads, pipeline 16",
        subjects: ONE_AND_TWO,
        pin: Pin::Free,
        kind: Kind::Load(P16_THREADS),
        bounds: &[
            against(CpuPerRequest, TWO, ONE, AtMost(1.5)),
            against(Throughput, TWO, Redis, AtLeast(1.2)),
        ],
    },
    Workload {
        name: "conns-9000",
        about: "two shards, nothing pinned, SET of 3 bytes, 9 000 clients against 50",
        subjects: &[TWO, Redis, Valkey],
        pin: Pin::Free,
        kind: Kind::Load(FEW_AND_MANY),
        bounds: &[
            Bound {
                metric: Throughput,
                subject: TWO,
                case: Some("9000 clients"),
                against: Against::Case("50 clients"),
                limit: AtLeast(0.85),
            },
            absolute(Errors, TWO, AtMost(0.0)),
        ],
    },
    Workload {
        name: "idle-conns",
        about: "9 000 connections that were used once and are idle: growth of resident memory, each",
        subjects: &[ONE, TWO, Redis, Valkey, Memcached],
        pin: Pin::Free,
        kind: Kind::IdleConnections(9000),
        bounds: &[
            absolute(BytesPerConnection, ONE, AtMost(2048.0)),
            absolute(BytesPerConnection, TWO, AtMost(2048.0)),
        ],
    },
    Workload {
        name: "one-client",
        about: "one shard on CPU 0, one client on CPU 1, no pipeline",
        subjects: REDIS_LIKE,
        pin: Pin::Split,
        kind: Kind::Load(ONE_CLIENT),
        bounds: &[against(P50, ONE, Redis, AtMost(1.0)), against(P99, ONE, Redis, AtMost(1.0))],
    },
    Workload {
        name: "one-client-two-shards",
        about: "two shards, nothing pinned, one client, no pipeline",
        subjects: &[TWO, Redis, Valkey],
        pin: Pin::Free,
        kind: Kind::Load(ONE_CLIENT),
        bounds: &[against(P50, TWO, Redis, AtMost(1.5))],
    },
    Workload {
        name: "short-conns",
        about: "one shard on CPU 0, client on CPU 1, a connection for each request",
        subjects: REDIS_LIKE,
        pin: Pin::Split,
        kind: Kind::Load(SHORT),
        bounds: &[against(CpuPerRequest, ONE, Redis, AtMost(0.9))],
    },
    Workload {
        name: "big-16k",
        about: "one shard on CPU 0, client on CPU 1, 50 clients, values of 16 KiB",
        subjects: REDIS_LIKE,
        pin: Pin::Split,
        kind: Kind::Load(BIG_16K),
        bounds: &[against(CpuPerRequest, ONE, Redis, AtMost(1.0))],
    },
    Workload {
        name: "big-1m",
        about: "one shard on CPU 0, client on CPU 1, 50 clients, values of 1 MiB",
        subjects: REDIS_LIKE,
        pin: Pin::Split,
        kind: Kind::Load(BIG_1M),
        bounds: &[against(CpuPerRequest, ONE, Redis, AtMost(1.0))],
    },
    Workload {
        name: "set-512m",
        about: "one SET of 512 MB: peak of resident memory over the value's size",
        subjects: REDIS_LIKE,
        pin: Pin::Free,
        kind: Kind::BigSet(512 << 20),
        bounds: &[absolute(PeakOverSize, ONE, AtMost(1.2))],
    },
    Workload {
        name: "idle",
        about: "a server with one silent client: CPU over ten seconds, then requests with pauses between",
        subjects: &[ONE, TWO, Redis, Valkey, Memcached],
        pin: Pin::Free,
        kind: Kind::Idle,
        bounds: &[
            // Under 1 %.
            absolute(CpuPerShard, ONE, AtMost(0.99)),
            absolute(CpuPerShard, TWO, AtMost(0.99)),
            absolute(FirstRequest, ONE, AtMost(1000.0)),
            absolute(FirstRequest, TWO, AtMost(1000.0)),
        ],
    },
    Workload {
        name: "growth-20m",
        about: "growth of one shard to 20 M keys, then FLUSHALL: its longest turn",
        subjects: &[ONE],
        pin: Pin::Free,
        kind: Kind::Growth(20_000_000),
        bounds: &[absolute(TurnMax, ONE, AtMost(2000.0))],
    },
    Workload {
        name: "collections-p1",
        about: "one shard on CPU 0, client on CPU 1, 50 clients, no pipeline: redis-benchmark's suite on collections",
        subjects: ONE_AND_TWO,
        pin: Pin::Split,
        kind: Kind::Load(COLLECTIONS_P1),
        bounds: &[against(CpuPerRequest, ONE, Redis, AtMost(1.05))],
    },
    Workload {
        name: "collections-p16",
        about: "the same with pipeline 16",
        subjects: ONE_AND_TWO,
        pin: Pin::Split,
        kind: Kind::Load(COLLECTIONS_P16),
        bounds: &[against(CpuPerRequest, ONE, Redis, AtMost(0.75))],
    },
    Workload {
        name: "memory-small",
        about: "100 000 collections of 10 elements: resident memory per element",
        subjects: REDIS_LIKE,
        pin: Pin::Free,
        kind: Kind::Collections(100_000, 10),
        bounds: &[against(BytesPerElement, ONE, Valkey, AtMost(1.0))],
    },
    Workload {
        name: "memory-large",
        about: "100 000 collections of 1000 elements: resident memory per element",
        subjects: REDIS_LIKE,
        pin: Pin::Free,
        kind: Kind::Collections(100_000, 1000),
        bounds: &[against(BytesPerElement, ONE, Valkey, AtMost(1.0))],
    },
    Workload {
        name: "memory",
        about: "2 M keys of 16 bytes: resident memory per key beyond key and value",
        subjects: &[ONE, Redis, Valkey, Memcached],
        pin: Pin::Free,
        kind: Kind::Memory(2_000_000),
        bounds: &[
            Bound { case: Some("8-byte values"), ..absolute(BytesPerKey, ONE, AtMost(30.0)) },
            Bound { case: Some("64-byte values"), ..absolute(BytesPerKey, ONE, AtMost(30.0)) },
            Bound { case: Some("8-byte values, TTL"), ..absolute(BytesPerKey, ONE, AtMost(40.0)) },
        ],
    },
];
