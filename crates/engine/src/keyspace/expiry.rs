//! Deadlines of one database: hints go into the timing wheel with every deadline, and what it hands out is looked at.
//!
//! A hint names all keys of a slot that share the upper 18 bits of their hash; few do, so the keys that are looked at for
//! nothing are few. All of them are looked at: those that have expired are removed, the others hinted anew, which leaves
//! most hints where they are. Hints whose key is gone or has an earlier one are swept out when they outnumber those
//! that are needed, in part by whoever adds hints, so that their number is bounded whatever clients do.

use super::db::Db;
use super::entry::Entry;
use super::wheel::Wheel;
use super::{KeyHasher, Millis};
use crate::slot::Slot;

/// Hints per key with a deadline above which stale ones are swept.
const HINTS_PER_KEY_MAX: usize = 2;
/// Hints that are not worth sweeping.
const HINTS_MIN: usize = 4096;
/// Hints swept for each one added beyond that; at least half of those swept are stale.
const SWEPT_PER_HINT: usize = 4;
/// Fields of one hash that are removed at a time.
const FIELDS_PER_STEP_MAX: usize = 256;
/// Bits of the hash that a hint holds, beside 14 bits of the slot.
const HASH_BITS: u32 = 18;

/// The wheel's name for a key.
const fn reference(slot: Slot, hash: u64) -> u32 {
    (slot.0 as u32) << HASH_BITS | (hash >> (u64::BITS - HASH_BITS)) as u32
}

impl Wheel {
    /// Sees to it that an entry with the deadline `at` is looked at in time.
    #[inline]
    pub(super) fn hint_entry(&mut self, entry: &mut Entry, slot: Slot, hash: u64, at: Millis, now: Millis) {
        let mark = self.hint(reference(slot, hash), at, entry.hint(), now);
        entry.set_hint(mark);
    }
}

impl Db {
    /// Looks at keys whose hints are due, and sweeps stale hints; each key and each hint costs one of `budget`. Returns how
    /// many keys were removed.
    pub(super) fn expire_some(&mut self, now: Millis, budget: &mut usize, hasher: &KeyHasher) -> u64 {
        let mut removed = self.settle_pending(now, budget, hasher);
        while *budget != 0 && !self.wheel.is_empty() {
            self.wheel.advance(now, *budget, &mut self.pending);
            if self.pending.is_empty() {
                break;
            }
            removed += self.settle_pending(now, budget, hasher);
        }
        removed + self.sweep(now, budget, hasher)
    }

    /// When `expire_some` has something to do next.
    pub(super) fn next_expiry(&self, now: Millis) -> Option<Millis> {
        if !self.pending.is_empty() || self.has_stale_hints() {
            return Some(now);
        }
        self.wheel.next_deadline(now)
    }

    /// To be called after a hint was added: does as much sweeping as keeps the number of hints bounded.
    #[inline]
    pub(super) fn sweep_a_little(&mut self, now: Millis, hasher: &KeyHasher) -> u64 {
        let mut budget = SWEPT_PER_HINT;
        if self.has_stale_hints() { self.sweep(now, &mut budget, hasher) } else { 0 }
    }

    #[inline]
    fn has_stale_hints(&self) -> bool {
        self.wheel.len()
            > HINTS_MIN
                .max(HINTS_PER_KEY_MAX * (self.counts.stats.expires + self.counts.stats.timed) as usize)
    }

    fn sweep(&mut self, now: Millis, budget: &mut usize, hasher: &KeyHasher) -> u64 {
        let mut removed = 0;
        while *budget != 0 && self.has_stale_hints() {
            if self.pending.is_empty() {
                self.wheel.drain_some(*budget, &mut self.pending);
            }
            if self.pending.is_empty() {
                break;
            }
            removed += self.settle_pending(now, budget, hasher);
        }
        removed
    }

    fn settle_pending(&mut self, now: Millis, budget: &mut usize, hasher: &KeyHasher) -> u64 {
        let mut removed = 0;
        while *budget != 0
            && let Some(hint) = self.pending.pop()
        {
            let (seen, gone) = self.settle(hint, now, hasher);
            *budget = budget.saturating_sub(1 + seen);
            removed += gone;
        }
        removed
    }

    /// Looks at the keys that a hint names: removes the expired ones and hints the others anew. Returns how many it has
    /// looked at, and how many it has removed.
    fn settle(&mut self, hint: u32, now: Millis, hasher: &KeyHasher) -> (usize, u64) {
        let slot = Slot((hint >> HASH_BITS) as u16);
        let first = u64::from(hint) << (u64::BITS - HASH_BITS);
        let (mut seen, mut removed) = (0, 0);
        let Self { slots, wheel, counts, expired_fields, .. } = self;
        let Some(node) = slots.get_mut(usize::from(slot.0)) else { return (0, 0) };
        node.retain(first, first | u64::MAX >> HASH_BITS, &mut |mut entry| {
            seen += 1;
            let Some(mut at) = entry.due() else { return true };
            let hash = hasher.hash(entry.key());
            if reference(slot, hash) != hint {
                return true;
            }
            if at <= now {
                if entry.is_over(now) {
                    counts.discard(slot, &mut entry, now);
                    removed += 1;
                    return false;
                }
                let dropped = counts.drop_expired_fields(&mut entry, now, FIELDS_PER_STEP_MAX);
                *expired_fields += dropped;
                seen += dropped as usize;
                match entry.due() {
                    Some(next) => at = next,
                    None => return true,
                }
            }
            wheel.hint_entry(&mut entry, slot, hash, at, now);
            true
        });
        (seen, removed)
    }
}
