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
    fn new(words: Vec<String>, keys: Keys) -> Self {
        Self { words, keys, queued: Vec::new() }
    }

    /// A transaction, with MULTI and all that is queued.
    fn transaction(queued: Vec<Vec<String>>) -> Self {
        Self { words: vec!["EXEC".into()], keys: Keys::All, queued }
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
}

/// Makes operations.
#[derive(Debug)]
pub struct Workload {
    keys: usize,
    next_value: u64,
}

/// Commands of a transaction.
const QUEUED_MAX: u64 = 5;

type Make = fn(&mut Workload, &mut Rng) -> Operation;

/// Every plan of the command table is in here, the frequent ones several times.
const MAKERS: &[Make] = &[
    |w, r| w.one(r, "GET", 0),
    |w, r| w.one(r, "GET", 0),
    |w, r| w.one(r, "SET", 1),
    |w, r| w.one(r, "SET", 1),
    |w, r| w.one(r, "SETNX", 1),
    |w, r| w.one(r, "APPEND", 1),
    |w, r| w.one(r, "GETDEL", 0),
    |w, r| w.many(r, "MGET", false),
    |w, r| w.many(r, "MGET", false),
    |w, r| w.many(r, "MSET", true),
    |w, r| w.many(r, "MSET", true),
    |w, r| w.many(r, "MSETNX", true),
    |w, r| w.many(r, "DEL", false),
    |w, r| w.many(r, "EXISTS", false),
    |w, r| w.pair(r, "RENAME"),
    |w, r| w.pair(r, "RENAMENX"),
    |w, r| w.pair(r, "COPY"),
    |w, r| w.pair(r, "LCS"),
    |_, _| Operation::new(vec!["DBSIZE".into()], Keys::All),
    |_, _| Operation::new(vec!["KEYS".into(), "*".into()], Keys::All),
    |_, _| Operation::new(vec!["RANDOMKEY".into()], Keys::All),
    |_, r| {
        // Rarely, or there would be nothing left to look at.
        let name = if r.next().is_multiple_of(4) { "FLUSHALL" } else { "DBSIZE" };
        Operation::new(vec![name.into()], Keys::All)
    },
];

/// Beside these, what makes transactions.
const TRANSACTION_MAKERS: &[Make] = &[
    |w, r| w.transaction(r),
    |w, r| w.transaction(r),
    |w, r| {
        let keys: Vec<String> = (0..1 + r.next() % 3).map(|_| w.key(r)).collect();
        let words = std::iter::once("WATCH".to_owned()).chain(keys).collect();
        // It is ordered against everything, as EXEC is.
        Operation::new(words, Keys::All)
    },
    |_, r| {
        if r.next().is_multiple_of(4) {
            return Operation::new(vec!["UNWATCH".into()], Keys::All);
        }
        Operation::transaction(Vec::new())
    },
];

impl Workload {
    /// Commands on `keys` different keys.
    pub fn new(keys: usize) -> Self {
        Self { keys, next_value: 0 }
    }

    /// The next random command.
    pub fn next(&mut self, rng: &mut Rng) -> Operation {
        let makers = if rng.next().is_multiple_of(4) { TRANSACTION_MAKERS } else { MAKERS };
        makers[(rng.next() % makers.len() as u64) as usize](self, rng)
    }

    fn transaction(&mut self, rng: &mut Rng) -> Operation {
        let count = 1 + rng.next() % QUEUED_MAX;
        let queued = (0..count).map(|_| MAKERS[(rng.next() % MAKERS.len() as u64) as usize](self, rng).words);
        Operation::transaction(queued.collect())
    }

    fn key(&self, rng: &mut Rng) -> String {
        format!("key:{}", rng.next() % self.keys as u64)
    }

    /// Values never repeat, so that a reply tells which write it saw.
    fn value(&mut self) -> String {
        self.next_value += 1;
        format!("v{}", self.next_value)
    }

    fn one(&mut self, rng: &mut Rng, name: &str, values: usize) -> Operation {
        let key = self.key(rng);
        let mut words = vec![name.to_owned(), key.clone()];
        words.extend((0..values).map(|_| self.value()));
        Operation::new(words, Keys::Some(vec![key]))
    }

    fn many(&mut self, rng: &mut Rng, name: &str, with_values: bool) -> Operation {
        let count = 1 + rng.next() % 4;
        let keys: Vec<String> = (0..count).map(|_| self.key(rng)).collect();
        let mut words = vec![name.to_owned()];
        for key in &keys {
            words.push(key.clone());
            if with_values {
                words.push(self.value());
            }
        }
        Operation::new(words, Keys::Some(keys))
    }

    fn pair(&mut self, rng: &mut Rng, name: &str) -> Operation {
        let keys = vec![self.key(rng), self.key(rng)];
        Operation::new(vec![name.to_owned(), keys[0].clone(), keys[1].clone()], Keys::Some(keys))
    }
}
