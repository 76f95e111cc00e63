//! Flushed databases: their memory is freed in steps, because freeing millions of entries at once would take seconds.

use super::db::Db;
use super::table::Node;
use super::wheel::Wheel;
use std::collections::VecDeque;

/// What is left of flushed databases.
#[derive(Default)]
pub(super) struct Garbage {
    dbs: VecDeque<Remains>,
    bytes: u64,
}

struct Remains {
    slots: Box<[Node]>,
    /// Slots before this one are freed.
    next: usize,
    wheel: Wheel,
}

impl Garbage {
    pub(super) fn push(&mut self, db: Db) {
        if !db.slots.is_empty() {
            self.bytes += db.counts.stats.bytes;
            self.dbs.push_back(Remains { slots: db.slots, next: 0, wheel: db.wheel });
        }
    }

    /// Bytes of the entries that are still to be freed.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Frees about `budget` entries; true while more are left.
    pub(super) fn free_some(&mut self, mut budget: usize) -> bool {
        let mut freed = 0;
        while budget != 0
            && let Some(db) = self.dbs.front_mut()
        {
            if db.free_some(&mut budget, &mut freed) {
                self.dbs.pop_front();
            }
        }
        self.bytes -= freed;
        !self.dbs.is_empty()
    }
}

impl Remains {
    /// Frees up to `budget` entries and adds their bytes to `freed`; true when nothing is left.
    fn free_some(&mut self, budget: &mut usize, freed: &mut u64) -> bool {
        while let Some(node) = self.slots.get_mut(self.next) {
            if !node.free_some(budget, freed) {
                return false;
            }
            self.next += 1;
        }
        !self.wheel.free_some(budget)
    }
}
