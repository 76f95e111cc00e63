//! Tests of the keyspace as a whole: against a plain map in virtual time, and for what must stay bounded.

use super::*;
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};

/// Milliseconds that an expired key may be there unseen: a tick of the timing wheel.
const LATE_MAX: Millis = 8;
/// Far more than any of these tests has keys.
const PLENTY: usize = 1_000_000;
/// Operations of one random history. Miri, which is a thousand times slower, gets few.
const OPS: std::ops::Range<usize> = if cfg!(miri) { 1..8 } else { 1..120 };

fn keyspace(databases: usize) -> Keyspace {
    Keyspace::new(databases, KeyHasher::new(3))
}

fn key<'a>(keyspace: &Keyspace, bytes: &'a [u8]) -> Key<'a> {
    keyspace.hasher().key(bytes)
}

/// Two pairs of keys of one slot, so alike in their hashes that hints do not tell those of a pair apart.
fn twins() -> Vec<Vec<u8>> {
    let hasher = KeyHasher::new(3);
    let (mut seen, mut found) = (BTreeMap::new(), Vec::new());
    for n in 0.. {
        let name = format!("{{t}}{n}").into_bytes();
        if let Some(other) = seen.insert(hasher.hash(&name) >> 46, name.clone()) {
            found.extend([other, name]);
        }
        if found.len() == 4 {
            break;
        }
    }
    found
}

fn names() -> Vec<Vec<u8>> {
    let mut names = twins();
    names.extend((0..20).map(|n| format!("key:{n}").into_bytes()));
    names.extend((0..6).map(|n| format!("{{t}}:{n}").into_bytes()));
    names
}

/// What a test expects of one database.
type Model = BTreeMap<Vec<u8>, (Vec<u8>, Option<Millis>)>;

#[derive(Clone, Debug)]
enum Op {
    Set(usize, Vec<u8>, usize, Option<Millis>),
    Expire(usize, Vec<u8>, Option<Millis>),
    Edit(usize, Vec<u8>),
    Remove(usize, Vec<u8>),
    Move(usize, Vec<u8>, Vec<u8>),
    Find(usize, Vec<u8>),
    Flush(usize),
    Swap(usize, usize),
    Tick(Millis, usize),
    Free(usize),
}

fn op() -> impl Strategy<Value = Op> {
    let db = || 0..3usize;
    let name = || prop::sample::select(names());
    // All orders of magnitude alike, up to some years.
    let span = || (0..38u32, any::<u64>()).prop_map(|(bits, random)| 1 + random % (1 << bits));
    let len = prop_oneof![4 => 0..40usize, 1 => 16_380..16_390usize];
    prop_oneof![
        8 => (db(), name(), len, prop::option::of(span())).prop_map(|(db, k, len, ttl)| Op::Set(db, k, len, ttl)),
        4 => (db(), name(), prop::option::of(span())).prop_map(|(db, k, ttl)| Op::Expire(db, k, ttl)),
        1 => (db(), name()).prop_map(|(db, k)| Op::Edit(db, k)),
        3 => (db(), name()).prop_map(|(db, k)| Op::Remove(db, k)),
        2 => (db(), name(), name()).prop_map(|(db, from, to)| Op::Move(db, from, to)),
        2 => (db(), name()).prop_map(|(db, k)| Op::Find(db, k)),
        1 => db().prop_map(Op::Flush),
        1 => (db(), db()).prop_map(|(a, b)| Op::Swap(a, b)),
        6 => (span(), 0..20usize).prop_map(|(span, budget)| Op::Tick(span, budget)),
        1 => (0..20usize).prop_map(Op::Free),
    ]
}

/// A keyspace beside its model.
struct Pair {
    keyspace: Keyspace,
    models: Vec<Model>,
    now: Millis,
}

impl Pair {
    fn live(&self, db: usize, name: &[u8]) -> Option<&(Vec<u8>, Option<Millis>)> {
        self.models[db].get(name).filter(|(_, expiry)| expiry.is_none_or(|at| at > self.now))
    }

    fn apply(&mut self, op: Op) {
        let (hasher, now) = (self.keyspace.hasher().clone(), self.now);
        match op {
            Op::Set(db, name, len, ttl) => {
                let (value, expiry) = (vec![len as u8; len], ttl.map(|ttl| now + ttl));
                self.keyspace.set(db, hasher.key(&name), NewValue::Slice(&value), expiry, now);
                self.models[db].insert(name, (value, expiry));
            }
            Op::Expire(db, name, ttl) => {
                let expiry = ttl.map(|ttl| now + ttl);
                let there = self.keyspace.set_expiry(db, hasher.key(&name), expiry, now);
                assert_eq!(there, self.live(db, &name).is_some());
                if there && let Some((_, old)) = self.models[db].get_mut(&name) {
                    *old = expiry;
                }
            }
            Op::Edit(db, name) => {
                if self.keyspace.contains(db, hasher.key(&name), now) {
                    self.keyspace.edit_string(db, hasher.key(&name), |value| {
                        value.push(7);
                        true
                    });
                    if let Some((value, _)) = self.models[db].get_mut(&name) {
                        value.push(7);
                    }
                }
            }
            Op::Remove(db, name) => {
                let there = self.live(db, &name).is_some();
                assert_eq!(self.keyspace.remove(db, hasher.key(&name), now), there);
                self.models[db].remove(&name);
            }
            Op::Move(db, from, to) => {
                let content = self.live(db, &from).cloned();
                let taken = self.keyspace.take(db, hasher.key(&from), now);
                assert_eq!(taken.is_some(), content.is_some());
                self.models[db].remove(&from);
                if let (Some(taken), Some(content)) = (taken, content) {
                    self.keyspace.put(db, hasher.key(&to), taken.detach(), now);
                    self.models[db].insert(to, content);
                }
            }
            Op::Find(db, name) => {
                let found = self.keyspace.find(db, hasher.key(&name), now);
                let found = found.map(|entry| (entry.string().map(<[u8]>::to_vec), entry.expiry()));
                let expected = self.live(db, &name).cloned();
                assert_eq!(found, expected.map(|(value, expiry)| (Some(value), expiry)));
            }
            Op::Flush(db) => {
                self.keyspace.flush(db, now);
                self.models[db].clear();
            }
            Op::Swap(a, b) => {
                self.keyspace.swap(a, b, self.now);
                self.models.swap(a, b);
            }
            Op::Tick(span, budget) => {
                self.now += span;
                self.keyspace.expire_some(self.now, budget);
            }
            Op::Free(budget) => drop(self.keyspace.free_some(budget)),
        }
    }

    /// Compares all that can be seen, and the counts with what is really there.
    fn check(&mut self) {
        let mut next_due = None;
        for db in 0..self.models.len() {
            let (mut seen, mut from) = (BTreeSet::new(), Some(ScanPosition::START));
            while let Some(position) = from {
                from = self.keyspace.walk(db, position, Slot::END, 3, self.now, &mut |entry| {
                    assert!(seen.insert(entry.key().to_vec()), "visited once");
                });
            }
            let live: BTreeSet<Vec<u8>> =
                self.models[db].keys().filter(|name| self.live(db, name).is_some()).cloned().collect();
            assert_eq!(seen, live);
            let mut counted = DbStats::default();
            self.keyspace.dbs[db].walk(ScanPosition::START, Slot::END, PLENTY, &mut |entry| {
                counted.keys += 1;
                counted.expires += u64::from(entry.expiry().is_some());
                counted.bytes += entry.size() as u64;
                counted.deadline_sum += u128::from(entry.expiry().unwrap_or(0));
                next_due = next_due.into_iter().chain(entry.expiry()).min();
            });
            assert_eq!(self.keyspace.stats(db), counted);
            let numbered =
                (0..counted.keys).map(|nth| self.keyspace.dbs[db].nth(nth).map(|e| e.key().to_vec()));
            assert_eq!(numbered.collect::<BTreeSet<_>>().len() as u64, counted.keys);
        }
        if let Some(due) = next_due {
            let next = self.keyspace.next_expiry(self.now).expect("a hint for every deadline");
            assert!(next <= (due + LATE_MAX).max(self.now), "{next} for {due}");
        }
    }

    /// Lets time pass from one deadline to the next until none is left.
    fn run_out(&mut self) {
        while let Some(next) = self.keyspace.next_expiry(self.now) {
            self.now = next;
            while self.keyspace.expire_some(self.now, 5) {}
            let late = self.now.saturating_sub(LATE_MAX);
            for db in &self.keyspace.dbs {
                db.walk(ScanPosition::START, Slot::END, PLENTY, &mut |entry| {
                    assert!(entry.expiry().is_none_or(|at| at > late), "removed in time");
                });
            }
        }
        for (db, model) in self.models.iter().enumerate() {
            let stats = self.keyspace.stats(db);
            let persistent = model.values().filter(|(_, expiry)| expiry.is_none()).count();
            assert_eq!((stats.keys, stats.expires), (persistent as u64, 0));
        }
        while self.keyspace.free_some(10) {}
        let left: u64 = (0..self.models.len()).map(|db| self.keyspace.stats(db).bytes).sum();
        assert_eq!(self.keyspace.entry_bytes(), left);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 1 } else { 64 }))]
    #[test]
    fn behaves_like_maps_whose_keys_vanish_in_time(start in 0..u64::MAX >> 20, ops in prop::collection::vec(op(), OPS)) {
        let mut pair = Pair { keyspace: keyspace(3), models: vec![Model::new(); 3], now: start };
        for op in ops {
            pair.apply(op);
            pair.check();
        }
        pair.run_out();
    }
}

/// Runs `step` very often and asserts that hints stay bounded.
fn assert_hints_bounded(mut step: impl FnMut(&mut Keyspace, u64, Millis)) {
    let mut keyspace = keyspace(1);
    let (rounds, mut most) = (if cfg!(miri) { 6000 } else { 120_000 }, 0);
    for round in 0..rounds {
        let now = 1_700_000_000_000 + round / 50;
        step(&mut keyspace, round, now);
        most = most.max(keyspace.dbs[0].wheel.len());
    }
    assert!(most <= 4096 + 4, "{most} hints");
}

#[test]
fn setting_deadlines_again_and_again_takes_no_memory() {
    assert_hints_bounded(|keyspace, round, now| {
        let name = key(keyspace, b"k");
        keyspace.set(0, name, NewValue::Slice(b"v"), Some(now + 3_600_000 - round), now);
        keyspace.set_expiry(0, name, Some(now + 60_000 + round % 1000), now);
    });
}

#[test]
fn setting_and_deleting_keys_with_deadlines_takes_no_memory() {
    assert_hints_bounded(|keyspace, round, now| {
        let bytes = round.to_le_bytes();
        let name = key(keyspace, &bytes);
        keyspace.set(0, name, NewValue::Slice(b"v"), Some(now + 100_000_000), now);
        keyspace.remove(0, name, now);
    });
}

#[test]
fn giving_and_taking_deadlines_takes_no_memory() {
    let mut keys = Vec::new();
    assert_hints_bounded(|keyspace, round, now| {
        if keys.is_empty() {
            keys = names();
        }
        let bytes = &keys[round as usize % keys.len()];
        let name = key(keyspace, bytes);
        keyspace.set(0, name, NewValue::Slice(b"v"), None, now);
        keyspace.set_expiry(0, name, Some(now + 1000 * (1 + round % 100_000)), now);
        keyspace.set_expiry(0, name, None, now);
    });
}

#[test]
fn many_keys_that_expire_at_once_are_removed_in_bounded_steps() {
    // Those of one slot, so that hints are shared, and others.
    for tag in ["{t}", ""] {
        let mut keyspace = keyspace(2);
        let keys = if cfg!(miri) { 500 } else { 30_000 };
        for n in 0..keys {
            let name = format!("{tag}{n}");
            let name = key(&keyspace, name.as_bytes());
            keyspace.set(n % 2, name, NewValue::Slice(b"v"), Some(1000 + n as u64 % 3), 0);
        }
        let count = |keyspace: &Keyspace| (keyspace.stats(0).keys + keyspace.stats(1).keys) as usize;
        let (mut steps, mut left) = (0, keys);
        while keyspace.expire_some(1010, 256) || count(&keyspace) != 0 {
            assert!(left - count(&keyspace) <= 256, "a step is bounded");
            (steps, left) = (steps + 1, count(&keyspace));
            assert!(steps < keys, "every step gets on");
        }
        assert_eq!((count(&keyspace), keyspace.expired as usize), (0, keys));
        assert_eq!(keyspace.next_expiry(1010), None);
    }
}

#[test]
fn a_database_full_of_due_keys_does_not_keep_others_from_expiring() {
    let mut keyspace = keyspace(3);
    for n in 0..3000u32 {
        let bytes = n.to_le_bytes();
        let name = key(&keyspace, &bytes);
        keyspace.set(0, name, NewValue::Slice(b"v"), Some(5), 0);
    }
    let name = key(&keyspace, b"k");
    keyspace.set(2, name, NewValue::Slice(b"v"), Some(5), 0);
    keyspace.expire_some(16, 100);
    keyspace.expire_some(16, 100);
    keyspace.expire_some(16, 100);
    assert_eq!(keyspace.stats(2).keys, 0);
    assert!(keyspace.stats(0).keys > 2500);
}

#[test]
fn flushed_memory_is_counted_until_it_is_freed() {
    let mut keyspace = keyspace(1);
    for n in 0..2000u32 {
        let name = format!("{{t}}{n}");
        let name = key(&keyspace, name.as_bytes());
        keyspace.set(0, name, NewValue::Slice(b"value"), (n % 2 == 0).then_some(99), 0);
    }
    let full = keyspace.entry_bytes();
    keyspace.flush(0, 0);
    assert_eq!((keyspace.entry_bytes(), keyspace.stats(0)), (full, DbStats::default()));
    let (mut last, mut steps) = (full, 0);
    while keyspace.free_some(100) {
        let bytes = keyspace.entry_bytes();
        assert!(bytes < last || bytes == 0, "entries first, then hints");
        assert!(last - bytes <= full / 15, "a step is bounded");
        (last, steps) = (bytes, steps + 1);
    }
    assert_eq!(keyspace.entry_bytes(), 0);
    assert!((20..=32).contains(&steps), "{steps} steps");
    assert_eq!(keyspace.next_expiry(1000), None);
}

#[test]
fn expired_keys_are_gone_for_every_way_of_asking() {
    let mut keyspace = keyspace(1);
    let name = key(&keyspace, b"k");
    let set = |keyspace: &mut Keyspace| keyspace.set(0, name, NewValue::Slice(b"v"), Some(10), 9);
    set(&mut keyspace);
    assert!(keyspace.contains(0, name, 9));
    assert!(keyspace.find(0, name, 10).is_none());
    set(&mut keyspace);
    assert!(!keyspace.remove(0, name, 10));
    set(&mut keyspace);
    assert!(keyspace.take(0, name, 10).is_none());
    set(&mut keyspace);
    assert!(!keyspace.set_expiry(0, name, Some(100), 10));
    set(&mut keyspace);
    assert!(keyspace.random_key(0, 10, || 5).is_none());
    assert_eq!((keyspace.expired, keyspace.stats(0)), (5, DbStats::default()));
    keyspace.set(0, name, NewValue::Slice(b"v"), Some(10), 10);
    assert!(!keyspace.contains(0, name, 10), "a deadline that has passed removes the key");
}
