//! One database of a shard: a table per hash slot, key counts, and hints in the timing wheel.

use super::entry::{Entry, NewValue};
use super::table::Node;
use super::wheel::Wheel;
use super::word::{EntryMut, EntryRef};
use super::{Key, KeyHasher, Millis};
use crate::slot::{SLOTS, Slot};
use std::collections::VecDeque;

/// Hints per live key with a deadline above which stale ones are swept.
const HINTS_PER_KEY_MAX: usize = 2;
/// Hints that are not worth sweeping.
const HINTS_MIN: usize = 4096;

/// Keys warmed at a time: as many misses as a core can have under way.
pub const WARM_MAX: usize = 16;

/// Key counts and sizes of one database on one shard.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DbStats {
    /// Keys, including expired ones not removed yet.
    pub keys: u64,
    /// Keys with a deadline.
    pub expires: u64,
    /// Bytes of all entries.
    pub bytes: u64,
}

/// A place in the scan order of a database: slot, then hash.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ScanPosition {
    /// The slot to look at next.
    pub slot: Slot,
    /// Keys of that slot with a smaller hash are done.
    pub hash: u64,
}

impl ScanPosition {
    /// Before the first key.
    pub const START: Self = Self { slot: Slot(0), hash: 0 };

    /// The beginning of a slot.
    pub const fn at(slot: Slot) -> Self {
        Self { slot, hash: 0 }
    }

    /// As the cursor of SCAN: the slot above 48 bits of the hash. Zero only for the start.
    pub const fn to_cursor(self) -> u64 {
        (self.slot.0 as u64) << 48 | self.hash >> 16
    }

    /// From a cursor; `None` if no scan can have returned it.
    pub const fn from_cursor(cursor: u64) -> Option<Self> {
        if cursor >> 48 >= SLOTS as u64 {
            return None;
        }
        Some(Self { slot: Slot((cursor >> 48) as u16), hash: cursor << 16 })
    }
}

/// One database.
pub struct Db {
    /// A table per slot; empty until the first key comes.
    slots: Box<[Node]>,
    stats: DbStats,
    wheel: Wheel,
    /// Scratch for due hints; empty between calls.
    due: Vec<u32>,
}

/// The wheel's name for all keys of a slot that share the upper 16 bits of their hash.
const fn reference(slot: Slot, hash: u64) -> u32 {
    (slot.0 as u32) << 16 | (hash >> 48) as u32
}

impl Db {
    pub(super) fn new() -> Self {
        Self { slots: Box::default(), stats: DbStats::default(), wheel: Wheel::new(), due: Vec::new() }
    }

    pub(super) fn stats(&self) -> DbStats {
        self.stats
    }

    #[inline]
    pub(super) fn expires_count(&self) -> u64 {
        self.stats.expires
    }

    #[inline]
    pub(super) fn find(&mut self, key: Key<'_>) -> Option<EntryMut<'_>> {
        self.slots.get_mut(usize::from(key.slot.0))?.find(key.hash, key.bytes)
    }

    /// Reads what lookups of these keys will read, one step of all of them before the next step of any, so that the
    /// processor waits for many cache misses at once and not for one after the other.
    pub(super) fn warm(&self, keys: &[(u64, Slot)]) {
        if self.slots.is_empty() {
            return;
        }
        let mut leaves = [None; WARM_MAX];
        for (leaf, (hash, slot)) in leaves.iter_mut().zip(keys) {
            *leaf = Some(self.slots[usize::from(slot.0)].leaf(*hash));
        }
        let mut words = [None; WARM_MAX];
        for ((word, leaf), (hash, _)) in words.iter_mut().zip(&leaves).zip(keys) {
            *word = leaf.and_then(|(leaf, level)| leaf.candidate(*hash, level));
        }
        let ends: usize = words.iter().flatten().map(|word| word.entry().end_byte()).sum();
        std::hint::black_box(ends);
    }

    #[inline]
    pub(super) fn is_expired(&mut self, key: Key<'_>, now: Millis) -> bool {
        self.find(key).is_some_and(|entry| entry.expiry().is_some_and(|at| at <= now))
    }

    /// Sets value and deadline of a key, new or not. `expiry` lies in the future.
    pub(super) fn set(
        &mut self,
        key: Key<'_>,
        value: NewValue<'_>,
        expiry: Option<Millis>,
        now: Millis,
        hasher: &KeyHasher,
    ) {
        if self.slots.is_empty() {
            self.slots = std::iter::repeat_with(Node::default).take(usize::from(SLOTS)).collect();
        }
        let node = &mut self.slots[usize::from(key.slot.0)];
        if let Some(mut entry) = node.find(key.hash, key.bytes) {
            let (old_size, had_expiry) = (entry.size() as u64, entry.expiry().is_some());
            if had_expiry && expiry.is_none() {
                entry.set_expiry(None);
            }
            entry.set_value(value);
            self.stats.bytes = self.stats.bytes - old_size + entry.size() as u64;
            self.stats.expires -= u64::from(had_expiry && expiry.is_none());
            drop(entry);
        } else {
            let entry = Entry::new(key.bytes, value, None);
            self.stats.keys += 1;
            self.stats.bytes += entry.size() as u64;
            node.insert(key.hash, entry, |bytes| hasher.hash(bytes));
        }
        if expiry.is_some() {
            self.set_expiry(key, expiry, now);
        }
    }

    /// Sets the deadline of a key that is there, and leaves a hint in the wheel unless an earlier one stands there.
    pub(super) fn set_expiry(&mut self, key: Key<'_>, expiry: Option<Millis>, now: Millis) {
        let Some(node) = self.slots.get_mut(usize::from(key.slot.0)) else { return };
        let Some(mut entry) = node.find(key.hash, key.bytes) else { return };
        let (old_size, had_expiry) = (entry.size() as u64, entry.expiry().is_some());
        entry.set_expiry(expiry);
        self.stats.bytes = self.stats.bytes - old_size + entry.size() as u64;
        self.stats.expires = self.stats.expires - u64::from(had_expiry) + u64::from(expiry.is_some());
        if let Some(at) = expiry {
            let hint = self.wheel.hint(reference(key.slot, key.hash), at, entry.hint(), now);
            entry.set_hint(hint);
        }
    }

    /// Edits a string in place, keeping the byte count true; the new length, `None` if the key is not there.
    pub(super) fn edit_string(&mut self, key: Key<'_>, change: impl FnOnce(&mut Vec<u8>)) -> Option<usize> {
        let mut entry = self.find(key)?;
        let old_size = entry.size() as u64;
        entry.edit_string(change);
        let (new_size, len) = (entry.size() as u64, entry.string().map(<[u8]>::len));
        drop(entry);
        self.stats.bytes = self.stats.bytes - old_size + new_size;
        len
    }

    pub(super) fn remove(&mut self, key: Key<'_>) -> Option<Entry> {
        let entry = self.slots.get_mut(usize::from(key.slot.0))?.remove(key.hash, key.bytes)?;
        self.stats.keys -= 1;
        self.stats.expires -= u64::from(entry.expiry().is_some());
        self.stats.bytes -= entry.size() as u64;
        Some(entry)
    }

    pub(super) fn walk(
        &self,
        from: ScanPosition,
        to: Slot,
        visit: &mut dyn FnMut(&Entry) -> bool,
    ) -> Option<ScanPosition> {
        let (first, end) = (usize::from(from.slot.0), usize::from(to.0).min(self.slots.len()));
        let mut go_on = true;
        for (idx, node) in self.slots.iter().enumerate().take(end).skip(first) {
            if node.is_empty() {
                continue;
            }
            let slot = Slot(idx as u16);
            if !go_on {
                return Some(ScanPosition::at(slot));
            }
            let hash = if slot == from.slot { from.hash } else { 0 };
            let stopped = node.walk(hash, &mut |entry: EntryRef<'_>| {
                go_on &= visit(&entry);
                go_on
            });
            if let Some(hash) = stopped {
                return Some(ScanPosition { slot, hash });
            }
        }
        None
    }

    pub(super) fn pick(&self, random: u64) -> Option<EntryRef<'_>> {
        if self.stats.keys == 0 {
            return None;
        }
        let from = (random % u64::from(SLOTS)) as usize;
        let (before, after) = self.slots.split_at(from);
        after.iter().chain(before).find(|node| !node.is_empty())?.pick(random / u64::from(SLOTS))
    }

    /// Handles due hints: removes expired keys, hints the others anew. Returns how many were removed and whether more
    /// are due.
    pub(super) fn expire_some(&mut self, now: Millis, budget: usize, hasher: &KeyHasher) -> (u64, bool) {
        if self.wheel.is_empty() {
            return (0, false);
        }
        let mut due = std::mem::take(&mut self.due);
        let more = self.wheel.advance(now, budget, &mut due);
        let mut removed = 0;
        for hint in due.drain(..) {
            removed += self.settle(hint, now, hasher);
        }
        if self.wheel.len() > HINTS_MIN.max(HINTS_PER_KEY_MAX * self.stats.expires as usize) {
            self.wheel.drain_some(budget, &mut due);
            for hint in due.drain(..) {
                removed += self.settle(hint, now, hasher);
            }
        }
        self.due = due;
        (removed, more)
    }

    /// Removes the expired keys that a hint names and leaves a new hint for those that live on.
    fn settle(&mut self, hint: u32, now: Millis, hasher: &KeyHasher) -> u64 {
        let slot = Slot((hint >> 16) as u16);
        let (first, last) =
            (u64::from(hint & 0xFFFF) << 48, u64::from(hint & 0xFFFF) << 48 | ((1 << 48) - 1));
        let Some(node) = self.slots.get(usize::from(slot.0)) else { return 0 };
        let mut found: Vec<Vec<u8>> = Vec::new();
        node.walk(first, &mut |entry| {
            let within = hasher.hash(entry.key()) <= last;
            if within && entry.expiry().is_some() {
                found.push(entry.key().to_vec());
            }
            within
        });
        let mut removed = 0;
        for bytes in &found {
            let key = Key { bytes, hash: hasher.hash(bytes), slot };
            let Some(entry) = self.find(key) else { continue };
            let Some(at) = entry.expiry() else { continue };
            let old = entry.hint();
            drop(entry);
            if at <= now {
                self.remove(key);
                removed += 1;
                continue;
            }
            let hint = self.wheel.hint(hint, at, old, now);
            if let Some(mut entry) = self.find(key) {
                entry.set_hint(hint);
            }
        }
        removed
    }

    pub(super) fn next_expiry(&self, now: Millis) -> Option<Millis> {
        self.wheel.next_deadline(now)
    }
}

/// Flushed databases whose memory is still to be freed.
#[derive(Default)]
pub(super) struct Garbage {
    dbs: VecDeque<(Db, usize)>,
}

impl Garbage {
    pub(super) fn push(&mut self, db: Db) {
        if !db.slots.is_empty() {
            self.dbs.push_back((db, 0));
        }
    }

    pub(super) fn bytes(&self) -> u64 {
        self.dbs.iter().map(|(db, _)| db.stats.bytes).sum()
    }

    /// Frees about `budget` entries; true while more are left.
    pub(super) fn free_some(&mut self, mut budget: usize) -> bool {
        while let Some((db, next)) = self.dbs.front_mut() {
            while let Some(node) = db.slots.get_mut(*next) {
                if budget == 0 || !node.free_some(&mut budget) {
                    return true;
                }
                *next += 1;
            }
            if db.wheel.free_some(&mut budget) {
                return true;
            }
            self.dbs.pop_front();
        }
        false
    }
}
