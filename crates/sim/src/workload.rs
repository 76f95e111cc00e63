//! Random commands on few keys, so that they meet.

use corelane_engine::Rng;

/// One command, and what the checker must know of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Operation {
    /// Name and arguments.
    pub words: Vec<String>,
    /// The keys it touches; all of them for a command on the whole database.
    pub keys: Keys,
    /// What EXEC runs.
    pub queued: Vec<Vec<String>>,
    /// The client that CLIENT UNBLOCK is for.
    pub target: Option<usize>,
    /// CLIENT UNBLOCK has ended a wait of its client.
    pub unblocked: bool,
}

/// What an operation touches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Keys {
    /// These keys.
    Some(Vec<String>),
    /// The database.
    All,
}

impl Operation {
    pub(crate) fn new(words: Vec<String>, keys: Keys) -> Self {
        Self { words, keys, queued: Vec::new(), target: None, unblocked: false }
    }

    /// A transaction, with MULTI and all that is queued.
    fn transaction(queued: Vec<Vec<String>>) -> Self {
        Self { queued, ..Self::new(vec!["EXEC".into()], Keys::All) }
    }

    /// The commands that a client sends for it; the last one's reply is its own.
    pub fn commands(&self) -> Vec<Vec<String>> {
        if self.words[0] != "EXEC" {
            return vec![self.words.clone()];
        }
        let mut commands = vec![vec!["MULTI".to_owned()]];
        commands.extend(self.queued.iter().cloned());
        commands.push(self.words.clone());
        commands
    }

    /// Whether two operations of one connection must take effect in the order in which they were sent.
    pub fn ordered_with(&self, other: &Self) -> bool {
        match (&self.keys, &other.keys) {
            (Keys::All, _) | (_, Keys::All) => true,
            // Over several keys it may span shards, and is then ordered against everything. Between commands that turn out to live on
            // one shard the engine keeps that order too, since messages to a shard do not overtake each other.
            (Keys::Some(a), Keys::Some(b)) => a.iter().any(|key| b.contains(key)),
        }
    }

    /// Whether it waits where it finds nothing.
    pub fn may_wait(&self) -> bool {
        matches!(
            self.words[0].as_str(),
            "BLPOP" | "BRPOP" | "BLMPOP" | "BLMOVE" | "BRPOPLPUSH" | "BZPOPMIN" | "BZPOPMAX"
        )
    }

    /// The keys that it waits for, in the order of its arguments.
    pub fn awaited_keys(&self) -> Vec<String> {
        let words = &self.words;
        match words[0].as_str() {
            "BLMOVE" | "BRPOPLPUSH" => vec![words[1].clone()],
            "BLMPOP" => words[3..words.len() - 3].to_vec(),
            _ => words[1..words.len() - 1].to_vec(),
        }
    }

    /// How long it waits, in seconds; 0 for ever.
    pub fn timeout_s(&self) -> f64 {
        let text = if self.words[0] == "BLMPOP" { &self.words[1] } else { &self.words[self.words.len() - 1] };
        text.parse().expect("the workload's timeouts are numbers")
    }
}

/// Which commands a run is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Profile {
    /// Strings only.
    Strings,
    /// All types, with some that wait for sorted sets.
    Collections,
    /// Lists, and commands that wait for one key each: those are served before anybody else gets at it.
    Queues,
    /// Lists, and commands that wait for several keys, or move to others.
    Waiting,
    /// Everything.
    All,
}

impl Profile {
    const ALL: [Self; 5] = [Self::Strings, Self::Collections, Self::Queues, Self::Waiting, Self::All];

    /// A random one.
    pub fn pick(rng: &mut Rng) -> Self {
        Self::ALL[(rng.next() % Self::ALL.len() as u64) as usize]
    }

    /// Whether some of its commands wait.
    pub(crate) const fn waits(self) -> bool {
        !matches!(self, Self::Strings)
    }

    /// What its commands are taken from.
    const fn makers(self) -> &'static [&'static [Make]] {
        match self {
            Self::Strings => &[STRINGS],
            Self::Collections => &[STRINGS, LISTS, SETS, OTHERS, MEASURED],
            Self::Queues => &[LISTS, WAITING_FOR_ONE],
            Self::Waiting => &[LISTS, WAITING, WAITING_FOR_ONE],
            Self::All => &[STRINGS, LISTS, SETS, OTHERS, MEASURED, WAITING, WAITING_FOR_ONE],
        }
    }
}

/// Makes operations.
#[derive(Debug)]
pub struct Workload {
    keys: usize,
    next_value: u64,
    profile: Profile,
}

/// Commands of a transaction.
const QUEUED_MAX: u64 = 5;
/// One in so many commands on a pair of keys goes from one type's keys to another's.
const CROSSING: u64 = 16;

/// A place that GEOADD puts members at.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place {
    /// As it is given.
    pub(crate) lon: &'static str,
    lat: &'static str,
    /// What the sorted set keeps of it.
    pub(crate) score: i64,
    /// From the centre of all searches, rounded up.
    pub(crate) distance_km: i64,
}

pub(crate) const PLACES: [Place; 3] = [
    Place { lon: "13.361389", lat: "38.115556", score: 3_479_099_956_230_698, distance_km: 191 },
    Place { lon: "15.087269", lat: "37.502669", score: 3_479_447_370_796_909, distance_km: 57 },
    Place { lon: "2.349014", lat: "48.864716", score: 3_663_832_805_879_806, distance_km: 1680 },
];

/// A payload of DUMP with nothing but ASCII in it, and the list that it holds.
pub(crate) const PAYLOAD: &str = "\x01\x03\x02ra\x02rf\x02rl\n\x00u3A\x7fF\x0eWI";
pub(crate) const RESTORED: [&str; 3] = ["ra", "rf", "rl"];

type Make = fn(&mut Workload, &mut Rng) -> Operation;

/// The frequent ones several times.
const STRINGS: &[Make] = &[
    |w, r| w.one(r, "GET", 0),
    |w, r| w.one(r, "GET", 0),
    |w, r| w.one(r, "SET", 1),
    |w, r| w.one(r, "SET", 1),
    |w, r| w.one(r, "SETNX", 1),
    |w, r| w.one(r, "APPEND", 1),
    |w, r| w.one(r, "GETDEL", 0),
    |w, r| w.many(r, "MGET", "key", false),
    |w, r| w.many(r, "MGET", "key", false),
    |w, r| w.many(r, "MSET", "key", true),
    |w, r| w.many(r, "MSET", "key", true),
    |w, r| w.many(r, "MSETNX", "key", true),
    |w, r| w.many(r, "DEL", "key", false),
    |w, r| w.many(r, "EXISTS", "key", false),
    |w, r| w.pair(r, "RENAME", "key"),
    |w, r| w.pair(r, "RENAMENX", "key"),
    |w, r| w.pair(r, "COPY", "key"),
    |w, r| w.pair(r, "LCS", "key"),
    |w, r| {
        let how = if r.next().is_multiple_of(2) { "AND" } else { "OR" };
        let keys: Vec<String> = (0..2 + r.next() % 2).map(|_| w.key(r, "key")).collect();
        w.worded(&["BITOP", how], &keys, &[])
    },
    |w, r| w.one(r, "BITCOUNT", 0),
    |w, r| w.on_key(r, "BITPOS", "key", &["1"]),
    |_, _| Operation::new(vec!["DBSIZE".into()], Keys::All),
    |_, _| Operation::new(vec!["KEYS".into(), "*".into()], Keys::All),
    |_, _| Operation::new(vec!["RANDOMKEY".into()], Keys::All),
    flush,
];

const LISTS: &[Make] = &[
    |w, r| w.push(r),
    |w, r| w.push(r),
    |w, r| w.push(r),
    |w, r| w.push(r),
    |w, r| w.on_key(r, "LPOP", "list", &[]),
    |w, r| w.on_key(r, "RPOP", "list", &[]),
    |w, r| w.on_key(r, "LLEN", "list", &[]),
    |w, r| w.on_key(r, "LRANGE", "list", &["0", "-1"]),
    |w, r| {
        let keys = [w.key(r, "list"), w.key(r, "list")];
        w.worded(&["LMOVE"], &keys, &[side(r), side(r)])
    },
    |w, r| w.pair(r, "RPOPLPUSH", "list"),
    |w, r| {
        let keys: Vec<String> = (0..1 + r.next() % 3).map(|_| w.key(r, "list")).collect();
        w.worded(&["LMPOP", &keys.len().to_string()], &keys, &[side(r), "COUNT", "2"])
    },
    |w, r| w.many(r, "UNLINK", "list", false),
    |w, r| w.pair(r, "RENAME", "list"),
    |w, r| w.pair(r, "COPY", "list"),
    |w, r| w.on_key(r, "LPOS", "list", &[RESTORED[2]]),
    |w, r| w.on_key(r, "LREM", "list", &["0", RESTORED[0]]),
    |w, r| {
        let value = w.value();
        w.on_key(r, "LINSERT", "list", &["AFTER", RESTORED[1], &value])
    },
    |w, r| w.on_key(r, "DUMP", "list", &[]),
    |w, r| w.on_key(r, "RESTORE", "list", &["0", PAYLOAD]),
    |w, r| w.on_key(r, "RESTORE", "list", &["0", PAYLOAD, "REPLACE"]),
    |w, r| w.on_key(r, "SORT_RO", "list", &["ALPHA"]),
    |w, r| {
        let keys = [w.key(r, "list"), w.key(r, "list")];
        let words = ["SORT", &keys[0], "ALPHA", "STORE", &keys[1]].map(str::to_owned);
        Operation::new(words.into(), Keys::Some(keys.into()))
    },
    flush,
];

const SETS: &[Make] = &[
    |w, r| w.on_member(r, "SADD", "set", 2),
    |w, r| w.on_member(r, "SADD", "set", 1),
    |w, r| w.on_member(r, "SREM", "set", 1),
    |w, r| w.on_key(r, "SMEMBERS", "set", &[]),
    |w, r| {
        let (keys, member) = ([w.key(r, "set"), w.key(r, "set")], member(r));
        w.worded(&["SMOVE"], &keys, &[&member])
    },
    |w, r| w.many(r, "SINTER", "set", false),
    |w, r| w.many(r, "SUNION", "set", false),
    |w, r| w.many(r, "SDIFF", "set", false),
    |w, r| w.store(r, "SINTERSTORE"),
    |w, r| w.store(r, "SUNIONSTORE"),
    |w, r| w.store(r, "SDIFFSTORE"),
    |w, r| {
        let keys = [w.key(r, "set"), w.key(r, "set")];
        w.worded(&["SINTERCARD", "2"], &keys, &[])
    },
    |w, r| w.pair(r, "COPY", "set"),
];

/// Sorted sets and hashes.
const OTHERS: &[Make] = &[
    |w, r| {
        let (score, member) = ((r.next() % 4).to_string(), member(r));
        w.on_key(r, "ZADD", "sorted", &[&score, &member])
    },
    |w, r| w.on_member(r, "ZREM", "sorted", 1),
    |w, r| w.wait_for(r, "BZPOPMIN", "sorted", 1),
    |w, r| w.wait_for(r, "BZPOPMAX", "sorted", 2),
    |w, r| {
        let keys = [w.key(r, "sorted"), w.key(r, "sorted"), w.key(r, "sorted")];
        let words = ["ZUNIONSTORE", &keys[0], "2", &keys[1], &keys[2], "AGGREGATE", "MAX"].map(str::to_owned);
        Operation::new(words.into(), Keys::Some(keys.into()))
    },
    |w, r| w.scored(r, "ZINTERSTORE", &["AGGREGATE", "MAX"]),
    |w, r| w.scored(r, "ZDIFFSTORE", &[]),
    |w, r| w.scored(r, "ZUNION", &["AGGREGATE", "MAX"]),
    |w, r| w.scored(r, "ZINTER", &["AGGREGATE", "MAX"]),
    |w, r| w.scored(r, "ZDIFF", &[]),
    |w, r| w.scored(r, "ZINTERCARD", &[]),
    |w, r| {
        let keys = [w.key(r, "sorted"), w.key(r, "sorted")];
        w.worded(&["ZRANGESTORE"], &keys, &["0", "1"])
    },
    |w, r| w.on_key(r, "ZRANGE", "sorted", &["0", "-1"]),
    |w, r| w.on_key(r, "ZREMRANGEBYRANK", "sorted", &["-3", "-2"]),
    |w, r| w.on_key(r, "ZREMRANGEBYSCORE", "sorted", &["1", "2"]),
    |w, r| w.pair(r, "COPY", "sorted"),
    |w, r| {
        let (field, value) = (member(r), w.value());
        w.on_key(r, "HSET", "hash", &[&field, &value])
    },
    |w, r| w.on_member(r, "HGET", "hash", 1),
    |w, r| w.on_member(r, "HDEL", "hash", 1),
    |w, r| w.on_key(r, "HLEN", "hash", &[]),
    |w, r| w.on_key(r, "HKEYS", "hash", &[]),
    |w, r| w.pair(r, "RENAME", "hash"),
    |w, r| w.pair(r, "COPY", "hash"),
    |w, r| w.many(r, "TOUCH", "hash", false),
];

/// Places in sorted sets, and HyperLogLogs, whose few elements are counted exactly.
const MEASURED: &[Make] = &[
    |w, r| {
        let (place, member) = (PLACES[(r.next() % PLACES.len() as u64) as usize], member(r));
        w.on_key(r, "GEOADD", "sorted", &[place.lon, place.lat, &member])
    },
    |w, r| {
        let search = search(r);
        w.on_key(r, "GEOSEARCH", "sorted", &search)
    },
    |w, r| {
        let keys = [w.key(r, "sorted"), w.key(r, "sorted")];
        let search = search(r);
        w.worded(&["GEOSEARCHSTORE"], &keys, &search)
    },
    |w, r| w.on_member(r, "PFADD", "log", 1),
    |w, r| w.on_member(r, "PFADD", "log", 2),
    |w, r| w.on_key(r, "PFCOUNT", "log", &[]),
    |w, r| w.many(r, "PFCOUNT", "log", false),
    |w, r| w.many(r, "PFMERGE", "log", false),
    |w, r| w.many(r, "DEL", "log", false),
    |w, r| w.pair(r, "COPY", "log"),
    |w, r| w.pair(r, "RENAME", "log"),
];

const WAITING_FOR_ONE: &[Make] = &[
    |w, r| w.wait_for(r, "BLPOP", "list", 1),
    |w, r| w.wait_for(r, "BRPOP", "list", 1),
    |w, r| {
        let key = [w.key(r, "list")];
        w.worded(&["BLMPOP", timeout(r), "1"], &key, &[side(r), "COUNT", "2"])
    },
];

const WAITING: &[Make] = &[
    |w, r| {
        let count = 2 + r.next() % 2;
        w.wait_for(r, "BLPOP", "list", count)
    },
    |w, r| w.wait_for(r, "BRPOP", "list", 2),
    |w, r| {
        let keys: Vec<String> = (0..2 + r.next() % 2).map(|_| w.key(r, "list")).collect();
        w.worded(&["BLMPOP", timeout(r), &keys.len().to_string()], &keys, &[side(r), "COUNT", "2"])
    },
    |w, r| {
        let keys = [w.key(r, "list"), w.key(r, "list")];
        w.worded(&["BLMOVE"], &keys, &[side(r), side(r), timeout(r)])
    },
    |w, r| {
        let keys = [w.key(r, "list"), w.key(r, "list")];
        w.worded(&["BRPOPLPUSH"], &keys, &[timeout(r)])
    },
];

/// Beside these, what makes transactions.
const TRANSACTIONS: &[Make] = &[
    |w, r| w.transaction(r),
    |w, r| w.transaction(r),
    |w, r| {
        let keys: Vec<String> = (0..1 + r.next() % 3).map(|_| w.watched_key(r)).collect();
        let words = std::iter::once("WATCH".to_owned()).chain(keys).collect();
        // It is ordered against everything, as EXEC is.
        Operation::new(words, Keys::All)
    },
    |_, r| {
        if r.next().is_multiple_of(4) {
            // It waits for no reply, and is ordered with WATCH and EXEC only.
            return Operation::new(vec!["UNWATCH".into()], Keys::Some(Vec::new()));
        }
        Operation::transaction(Vec::new())
    },
];

fn flush(_: &mut Workload, rng: &mut Rng) -> Operation {
    // Rarely, or there would be nothing left to look at.
    let name = if rng.next().is_multiple_of(4) { "FLUSHALL" } else { "DBSIZE" };
    Operation::new(vec![name.into()], Keys::All)
}

fn side(rng: &mut Rng) -> &'static str {
    if rng.next().is_multiple_of(2) { "LEFT" } else { "RIGHT" }
}

/// One in three for ever, the others for some milliseconds of the simulator's.
fn timeout(rng: &mut Rng) -> &'static str {
    ["0", "0.004", "0.015"][(rng.next() % 3) as usize]
}

/// Around one centre: the radius decides which places are found. Scores that are no place's are far away.
fn search(rng: &mut Rng) -> [&'static str; 6] {
    let radius = ["20", "100", "300", "3000"][(rng.next() % 4) as usize];
    ["FROMLONLAT", "15", "37", "BYRADIUS", radius, "km"]
}

fn member(rng: &mut Rng) -> String {
    format!("m{}", rng.next() % 4)
}

impl Workload {
    /// Commands on `keys` different keys of each type.
    pub fn new(keys: usize, profile: Profile) -> Self {
        Self { keys, next_value: 0, profile }
    }

    /// The next random command.
    pub fn next(&mut self, rng: &mut Rng) -> Operation {
        if rng.next().is_multiple_of(5) {
            return TRANSACTIONS[(rng.next() % TRANSACTIONS.len() as u64) as usize](self, rng);
        }
        self.plain(rng)
    }

    fn plain(&mut self, rng: &mut Rng) -> Operation {
        let tables = self.profile.makers();
        let makers = tables[(rng.next() % tables.len() as u64) as usize];
        makers[(rng.next() % makers.len() as u64) as usize](self, rng)
    }

    /// The names of all commands, those in transactions included.
    pub fn names() -> impl Iterator<Item = String> {
        let mut rng = Rng::new(1);
        let mut workload = Self::new(2, Profile::All);
        let tables = Profile::All.makers().iter().chain([&TRANSACTIONS]);
        let operations: Vec<Operation> = tables
            .flat_map(|makers| makers.iter())
            .flat_map(|make| (0..8).map(|_| make(&mut workload, &mut rng)).collect::<Vec<_>>())
            .collect();
        operations.into_iter().map(|operation| operation.words[0].clone())
    }

    fn transaction(&mut self, rng: &mut Rng) -> Operation {
        let count = 1 + rng.next() % QUEUED_MAX;
        let queued = (0..count).map(|_| self.plain(rng).words);
        Operation::transaction(queued.collect())
    }

    fn key(&self, rng: &mut Rng, family: &str) -> String {
        // Only sometimes, since most commands then end in an error. The bytes of a HyperLogLog are nothing that the model knows.
        if self.profile == Profile::All && family != "log" && rng.next().is_multiple_of(CROSSING * 2) {
            return self.any_key(rng);
        }
        format!("{family}:{}", rng.next() % self.keys as u64)
    }

    fn any_key(&self, rng: &mut Rng) -> String {
        let families: Vec<&str> = self.families().iter().copied().filter(|family| *family != "log").collect();
        format!(
            "{}:{}",
            families[(rng.next() % families.len() as u64) as usize],
            rng.next() % self.keys as u64
        )
    }

    fn watched_key(&self, rng: &mut Rng) -> String {
        let families = self.families();
        let family = families[(rng.next() % families.len() as u64) as usize];
        self.key(rng, family)
    }

    const fn families(&self) -> &'static [&'static str] {
        match self.profile {
            Profile::Strings => &["key"],
            Profile::Queues | Profile::Waiting => &["list"],
            Profile::Collections | Profile::All => &["key", "list", "set", "sorted", "hash", "log"],
        }
    }

    /// All keys there can be.
    pub fn all_keys(&self) -> impl Iterator<Item = (&'static str, String)> {
        let keys = self.keys;
        self.families()
            .iter()
            .flat_map(move |family| (0..keys).map(move |n| (*family, format!("{family}:{n}"))))
    }

    /// Values never repeat, so that a reply tells which write it saw.
    fn value(&mut self) -> String {
        self.next_value += 1;
        format!("v{}", self.next_value)
    }

    /// A command of words, then keys, then words.
    fn worded(&self, before: &[&str], keys: &[String], after: &[&str]) -> Operation {
        let words = before.iter().map(|word| (*word).to_owned());
        let words = words.chain(keys.iter().cloned()).chain(after.iter().map(|word| (*word).to_owned()));
        Operation::new(words.collect(), Keys::Some(keys.to_vec()))
    }

    fn on_key(&self, rng: &mut Rng, name: &str, family: &str, after: &[&str]) -> Operation {
        self.worded(&[name], &[self.key(rng, family)], after)
    }

    fn on_member(&self, rng: &mut Rng, name: &str, family: &str, count: usize) -> Operation {
        let members: Vec<String> = (0..count).map(|_| member(rng)).collect();
        let members: Vec<&str> = members.iter().map(String::as_str).collect();
        self.on_key(rng, name, family, &members)
    }

    /// A command that pushes.
    pub(crate) fn push(&mut self, rng: &mut Rng) -> Operation {
        let name = if rng.next().is_multiple_of(2) { "LPUSH" } else { "RPUSH" };
        let values: Vec<String> = (0..1 + rng.next() % 2).map(|_| self.value()).collect();
        let values: Vec<&str> = values.iter().map(String::as_str).collect();
        self.on_key(rng, name, "list", &values)
    }

    fn wait_for(&self, rng: &mut Rng, name: &str, family: &str, count: u64) -> Operation {
        let keys: Vec<String> = (0..count).map(|_| self.key(rng, family)).collect();
        self.worded(&[name], &keys, &[timeout(rng)])
    }

    fn store(&self, rng: &mut Rng, name: &str) -> Operation {
        let keys: Vec<String> = (0..2 + rng.next() % 2).map(|_| self.key(rng, "set")).collect();
        self.worded(&[name], &keys, &[])
    }

    /// A combination of two or three sorted sets, or sets, perhaps of one with itself.
    fn scored(&self, rng: &mut Rng, name: &str, after: &[&str]) -> Operation {
        let family = |rng: &mut Rng| if rng.next().is_multiple_of(4) { "set" } else { "sorted" };
        let sources: Vec<String> = (0..2 + rng.next() % 2)
            .map(|_| {
                let family = family(rng);
                self.key(rng, family)
            })
            .collect();
        let mut keys: Vec<String> =
            name.ends_with("STORE").then(|| self.key(rng, "sorted")).into_iter().collect();
        let mut words: Vec<String> = std::iter::once(name.to_owned()).chain(keys.iter().cloned()).collect();
        words.push(sources.len().to_string());
        words.extend(sources.iter().cloned().chain(after.iter().map(|word| (*word).to_owned())));
        keys.extend(sources);
        Operation::new(words, Keys::Some(keys))
    }

    fn one(&mut self, rng: &mut Rng, name: &str, values: usize) -> Operation {
        let key = self.key(rng, "key");
        let mut words = vec![name.to_owned(), key.clone()];
        words.extend((0..values).map(|_| self.value()));
        Operation::new(words, Keys::Some(vec![key]))
    }

    fn many(&mut self, rng: &mut Rng, name: &str, family: &str, with_values: bool) -> Operation {
        let count = 1 + rng.next() % 4;
        let keys: Vec<String> = (0..count).map(|_| self.key(rng, family)).collect();
        let mut words = vec![name.to_owned()];
        for key in &keys {
            words.push(key.clone());
            if with_values {
                words.push(self.value());
            }
        }
        Operation::new(words, Keys::Some(keys))
    }

    fn pair(&mut self, rng: &mut Rng, name: &str, family: &str) -> Operation {
        let keys = [self.key(rng, family), self.key(rng, family)];
        self.worded(&[name], &keys, &[])
    }
}
