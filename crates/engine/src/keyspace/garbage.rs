//! Flushed databases and large values: their memory is freed in steps, because freeing millions of entries or elements at
//! once would take seconds.

use super::db::Db;
use super::entry::Entry;
use super::table::Node;
use super::value::Value;
use super::wheel::Wheel;
use std::collections::VecDeque;

/// What is left of flushed databases, and of large values.
#[derive(Default)]
pub(super) struct Garbage {
    dbs: VecDeque<Remains>,
    values: VecDeque<Value>,
    bytes: u64,
    /// Entries that are still to be freed.
    keys: u64,
    /// Entries that have been freed.
    freed: u64,
}

struct Remains {
    slots: Box<[Node<Entry>]>,
    /// Slots before this one are freed.
    next: usize,
    wheel: Wheel,
}

impl Garbage {
    pub(super) fn push(&mut self, db: Db) {
        if !db.slots.is_empty() {
            self.bytes += db.counts.stats.bytes;
            self.keys += db.counts.stats.keys;
            for value in db.counts.large {
                self.push_value(Some(value));
            }
            self.dbs.push_back(Remains { slots: db.slots, next: 0, wheel: db.wheel });
        }
    }

    /// Takes a value that takes long to free.
    pub(super) fn push_value(&mut self, value: Option<Value>) {
        if let Some(value) = value {
            self.keys += 1;
            self.bytes += value.size() as u64;
            self.values.push_back(value);
        }
    }

    /// Bytes of the entries that are still to be freed.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Entries: how many are still to be freed, and how many have been.
    pub(super) fn keys(&self) -> (u64, u64) {
        (self.keys, self.freed)
    }

    /// Frees about `budget` entries; true while more are left.
    pub(super) fn free_some(&mut self, mut budget: usize) -> bool {
        let mut freed = Freed::default();
        while budget != 0
            && let Some(value) = self.values.front_mut()
        {
            let before = value.size() as u64;
            let done = value.free_some(&mut budget);
            freed.bytes += before - if done { 0 } else { value.size() as u64 };
            if done {
                freed.keys += 1;
                self.values.pop_front();
            }
        }
        while budget != 0
            && let Some(db) = self.dbs.front_mut()
        {
            if db.free_some(&mut budget, &mut freed) {
                self.dbs.pop_front();
            }
        }
        self.bytes -= freed.bytes;
        self.keys -= freed.keys;
        self.freed += freed.keys;
        for value in freed.large {
            self.push_value(Some(value));
        }
        !self.dbs.is_empty() || !self.values.is_empty()
    }
}

/// What a step has freed.
#[derive(Default)]
struct Freed {
    bytes: u64,
    keys: u64,
    /// Values among it that take long to free themselves.
    large: Vec<Value>,
}

impl Remains {
    /// Frees up to `budget` entries and adds them to `freed`; true when nothing is left.
    fn free_some(&mut self, budget: &mut usize, freed: &mut Freed) -> bool {
        while let Some(node) = self.slots.get_mut(self.next) {
            let before = *budget;
            let done = node.free_some(budget, &mut |mut entry| {
                freed.bytes += entry.size() as u64;
                freed.large.extend(entry.take_large());
            });
            freed.keys += (before - *budget) as u64;
            if !done {
                return false;
            }
            self.next += 1;
        }
        !self.wheel.free_some(budget)
    }
}
