//! One database of a shard: a table per hash slot, and exact counts. Deadlines are looked after in `expiry`.

use super::access::AccessPolicy;
use super::entry::{Entry, StringForm};
use super::table::{Found, Node};
use super::wheel::Wheel;
use super::word::{EntryMut, EntryRef};
use super::{Key, KeyHasher, KnownKey, Millis, NewValue, Value, ValueRef};
use crate::slot::{SLOTS, Slot};

/// Slots that are counted together, so that an entry is found by its number without looking at every slot.
const GROUP: usize = 128;

/// Keys warmed at a time: as many misses as a core can have under way.
pub(crate) const WARM_MAX: usize = 16;

/// Fields whose time has come that are removed when somebody looks at their hash; the others are hidden until their turn comes.
const FIELDS_PER_ACCESS_MAX: usize = 256;

/// What has come to its end at a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expired {
    /// The key.
    Key,
    /// Some fields of its hash.
    Fields,
    /// The last fields of its hash, and the key with them.
    LastField,
}

/// Key counts and sizes of one database on one shard.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DbStats {
    /// Keys, including expired ones not removed yet.
    pub keys: u64,
    /// Keys with a deadline.
    pub expires: u64,
    /// Keys with fields that have a deadline.
    pub timed: u64,
    /// Bytes of all entries.
    pub bytes: u64,
    /// The sum of all deadlines, in Unix milliseconds.
    pub deadline_sum: u128,
}

/// What has become of a change to a value.
#[derive(Debug)]
pub enum Edit<T, F> {
    /// It was made; whether the key was removed since its collection is empty.
    Done(T, bool),
    /// The value is of another type.
    WrongType,
    /// There is no such key; the change comes back.
    Missing(F),
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
#[derive(Default)]
pub(super) struct Db {
    /// A table per slot; empty until the first key comes.
    pub(super) slots: Box<[Node<Entry>]>,
    pub(super) counts: Counts,
    pub(super) wheel: Wheel,
    /// Fields of hashes that were removed since their time had come.
    pub(super) expired_fields: u64,
    /// Hints that were handed out and not looked at yet.
    pub(super) pending: Vec<u32>,
}

/// What is counted as entries come and go.
#[derive(Default)]
pub(super) struct Counts {
    pub(super) stats: DbStats,
    /// Keys by groups of slots; as long as there are slots.
    groups: Box<[u32]>,
    /// Large values of keys that are gone or have another value; to be freed by and by.
    pub(super) large: Vec<Value>,
    /// Keys whose time has come, or that of some of their fields, where somebody wants to know.
    pub(super) gone: Option<Vec<(Box<[u8]>, Expired)>>,
}

impl Counts {
    fn add(&mut self, slot: Slot, entry: &Entry) {
        self.stats.keys += 1;
        self.stats.expires += u64::from(entry.expiry().is_some());
        self.stats.timed += u64::from(entry.has_timed_fields());
        self.stats.deadline_sum += u128::from(entry.expiry().unwrap_or(0));
        self.stats.bytes += entry.size() as u64;
        self.groups[usize::from(slot.0) / GROUP] += 1;
    }

    pub(super) fn subtract(&mut self, slot: Slot, entry: &Entry) {
        self.stats.keys -= 1;
        self.stats.expires -= u64::from(entry.expiry().is_some());
        self.stats.timed -= u64::from(entry.has_timed_fields());
        self.stats.deadline_sum -= u128::from(entry.expiry().unwrap_or(0));
        self.stats.bytes -= entry.size() as u64;
        self.groups[usize::from(slot.0) / GROUP] -= 1;
    }

    /// The same for an entry that nobody needs any more.
    pub(super) fn discard(&mut self, slot: Slot, entry: &mut Entry, now: Millis) {
        self.note_gone(entry, now);
        self.subtract(slot, entry);
        self.large.extend(entry.take_large());
    }

    /// Lists a key whose time has come, if somebody wants to know.
    pub(super) fn note_gone(&mut self, entry: &Entry, now: Millis) {
        if let Some(gone) = &mut self.gone {
            let itself = entry.expiry().is_some_and(|at| at <= now);
            gone.push((entry.key().into(), if itself { Expired::Key } else { Expired::LastField }));
        }
    }

    /// Lets `change` change an entry.
    #[inline]
    fn change<T>(&mut self, entry: &mut Entry, change: impl FnOnce(&mut Entry) -> T) -> T {
        let (size, expiry, timed) = (entry.size() as u64, entry.expiry(), entry.has_timed_fields());
        let result = change(entry);
        self.stats.bytes = self.stats.bytes - size + entry.size() as u64;
        let now = entry.expiry();
        self.stats.timed = self.stats.timed - u64::from(timed) + u64::from(entry.has_timed_fields());
        if expiry != now {
            self.stats.expires = self.stats.expires - u64::from(expiry.is_some()) + u64::from(now.is_some());
            self.stats.deadline_sum -= u128::from(expiry.unwrap_or(0));
            self.stats.deadline_sum += u128::from(now.unwrap_or(0));
        }
        result
    }
}

impl Counts {
    /// Removes fields of a hash whose time has come, at most `budget`; how many they were.
    #[cold]
    pub(super) fn drop_expired_fields(&mut self, entry: &mut Entry, now: Millis, budget: usize) -> u64 {
        let dropped = self.change(entry, |entry| entry.drop_expired_fields(now, budget)) as u64;
        if dropped != 0
            && let Some(gone) = &mut self.gone
        {
            gone.push((entry.key().into(), Expired::Fields));
        }
        dropped
    }
}

impl Db {
    pub(super) fn stats(&self) -> DbStats {
        self.counts.stats
    }

    pub(super) fn view(&self, key: Key<'_>) -> Option<EntryRef<'_>> {
        self.slots.get(usize::from(key.slot.0))?.get(key.hash, key.bytes)
    }

    #[inline]
    pub(super) fn find(&mut self, key: Key<'_>) -> Option<EntryMut<'_>> {
        self.slots.get_mut(usize::from(key.slot.0))?.find(key.hash, key.bytes)
    }

    /// Reads what lookups of these keys will read, one step of all of them before the next step of any, so that the
    /// processor waits for many cache misses at once and not for one after the other.
    pub(super) fn warm(&self, keys: &[KnownKey]) {
        if self.slots.is_empty() {
            return;
        }
        let mut leaves = [None; WARM_MAX];
        for (leaf, key) in leaves.iter_mut().zip(keys) {
            *leaf = Some(self.slots[usize::from(key.slot.0)].leaf(key.hash));
        }
        let mut words = [None; WARM_MAX];
        for ((word, leaf), key) in words.iter_mut().zip(&leaves).zip(keys) {
            *word = leaf.and_then(|(leaf, level)| leaf.candidate(key.hash, level));
        }
        let ends: usize = words.iter().flatten().map(|word| word.item().end_byte()).sum();
        std::hint::black_box(ends);
    }

    /// The entry of a key, unless its deadline has passed: then it is removed, and true returned beside `None`. With `keep` it
    /// stays.
    #[inline]
    pub(super) fn find_live(
        &mut self,
        key: Key<'_>,
        now: Millis,
        keep: bool,
    ) -> (Option<EntryMut<'_>>, bool) {
        let Some(node) = self.slots.get_mut(usize::from(key.slot.0)) else { return (None, false) };
        let mut is_due = false;
        let is_over = |entry: &Entry| {
            is_due = entry.due().is_some_and(|at| at <= now);
            is_due && !keep && entry.is_over(now)
        };
        match node.find_unless(key.hash, key.bytes, is_over) {
            Found::Entry(mut entry) => {
                if is_due {
                    if entry.is_over(now) {
                        return (None, false);
                    }
                    self.expired_fields +=
                        self.counts.drop_expired_fields(&mut entry, now, FIELDS_PER_ACCESS_MAX);
                }
                (Some(entry), false)
            }
            Found::Nothing => (None, false),
            Found::Gone(mut entry) => {
                self.counts.discard(key.slot, &mut entry, now);
                (None, true)
            }
        }
    }

    /// Sets value and deadline of a key, new or not; the deadline lies in the future. `accessed` makes it an access to a key
    /// that is there. Returns how many expired keys were removed on the way.
    pub(super) fn set(
        &mut self,
        key: Key<'_>,
        value: NewValue<'_>,
        expiry: Option<Millis>,
        (now, accessed): (Millis, bool),
        (hasher, access): (&KeyHasher, &mut AccessPolicy),
    ) -> u64 {
        if self.slots.is_empty() {
            self.slots = std::iter::repeat_with(Node::default).take(usize::from(SLOTS)).collect();
            self.counts.groups = vec![0; usize::from(SLOTS) / GROUP].into_boxed_slice();
        }
        // Only such a value can have deadlines of its own.
        let owned = matches!(value, NewValue::Owned(_));
        let node = &mut self.slots[usize::from(key.slot.0)];
        if let Some(mut entry) = node.find(key.hash, key.bytes) {
            let mut old = None;
            self.counts.change(&mut entry, |entry| {
                old = entry.take_large();
                entry.set_value_and_expiry(value, expiry);
            });
            self.counts.large.extend(old);
            if accessed {
                let used = access.used(entry.access(), now);
                entry.set_access(used);
            }
            if let Some(at) = if owned { entry.due() } else { expiry } {
                self.wheel.hint_entry(&mut entry, key.slot, key.hash, at, now);
            }
        } else {
            let mut entry = Entry::new(key.bytes, value, expiry);
            entry.set_access(access.fresh(now));
            if let Some(at) = if owned { entry.due() } else { expiry } {
                self.wheel.hint_entry(&mut entry, key.slot, key.hash, at, now);
            }
            self.counts.add(key.slot, &entry);
            node.insert(key.hash, entry, key.slot.0, |bytes| hasher.hash(bytes));
        }
        if expiry.is_some() { self.sweep_a_little(now, hasher) } else { 0 }
    }

    /// Sets the form of a string.
    pub(super) fn set_form(&mut self, key: Key<'_>, form: StringForm) {
        if let Some(mut entry) = self.find(key) {
            entry.set_form(form);
        }
    }

    /// Sets the deadline of a key that is there. Returns how many expired keys were removed on the way.
    pub(super) fn set_expiry(
        &mut self,
        key: Key<'_>,
        expiry: Option<Millis>,
        now: Millis,
        hasher: &KeyHasher,
    ) -> u64 {
        let Some(node) = self.slots.get_mut(usize::from(key.slot.0)) else { return 0 };
        let Some(mut entry) = node.find(key.hash, key.bytes) else { return 0 };
        self.counts.change(&mut entry, |entry| entry.set_expiry(expiry));
        let Some(at) = entry.due() else { return 0 };
        self.wheel.hint_entry(&mut entry, key.slot, key.hash, at, now);
        drop(entry);
        self.sweep_a_little(now, hasher)
    }

    /// Edits a value, and removes the key of a collection that is empty then. True beside the result: the key's time had come.
    pub(super) fn edit<T, F: FnOnce(&mut Value) -> T>(
        &mut self,
        key: Key<'_>,
        now: Millis,
        access: Option<&mut AccessPolicy>,
        scratch: &mut Vec<u8>,
        is_right: impl FnOnce(ValueRef<'_>) -> bool,
        change: F,
    ) -> (Edit<T, F>, bool) {
        let Some(node) = self.slots.get_mut(usize::from(key.slot.0)) else {
            return (Edit::Missing(change), false);
        };
        let mut is_due = false;
        let expired = |entry: &Entry| {
            is_due = entry.due().is_some_and(|at| at <= now);
            is_due && entry.is_over(now)
        };
        let mut entry = match node.find_unless(key.hash, key.bytes, expired) {
            Found::Entry(entry) => entry,
            Found::Nothing => return (Edit::Missing(change), false),
            Found::Gone(mut entry) => {
                self.counts.discard(key.slot, &mut entry, now);
                return (Edit::Missing(change), true);
            }
        };
        if let Some(access) = access {
            let used = access.used(entry.access(), now);
            entry.set_access(used);
        }
        if !is_right(entry.value()) {
            return (Edit::WrongType, false);
        }
        if is_due {
            self.expired_fields += self.counts.drop_expired_fields(&mut entry, now, FIELDS_PER_ACCESS_MAX);
        }
        let due = entry.due();
        let result = self.counts.change(&mut entry, |entry| entry.edit(scratch, change));
        if let Some(at) = entry.due()
            && due != Some(at)
        {
            self.wheel.hint_entry(&mut entry, key.slot, key.hash, at, now);
        }
        let emptied = entry.value().is_empty_collection();
        drop(entry);
        if emptied && let Some(mut entry) = self.remove(key) {
            // Fields whose time has come may be many.
            self.counts.large.extend(entry.take_large());
        }
        (Edit::Done(result, emptied), false)
    }

    /// Edits a string in place, keeping the byte count true; what `change` returns, or false if the key is not there.
    pub(super) fn edit_string(&mut self, key: Key<'_>, change: impl FnOnce(&mut Vec<u8>) -> bool) -> bool {
        let slot = self.slots.get_mut(usize::from(key.slot.0));
        let Some(mut entry) = slot.and_then(|slot| slot.find(key.hash, key.bytes)) else { return false };
        let mut changed = false;
        self.counts.change(&mut entry, |entry| entry.edit_string(|bytes| changed = change(bytes)));
        changed
    }

    pub(super) fn remove(&mut self, key: Key<'_>) -> Option<Entry> {
        let entry = self.slots.get_mut(usize::from(key.slot.0))?.remove(key.hash, key.bytes)?;
        self.counts.subtract(key.slot, &entry);
        Some(entry)
    }

    /// Visits up to about `budget` entries from `from` on and before slot `to`. Returns where to go on.
    pub(super) fn walk(
        &self,
        from: ScanPosition,
        to: Slot,
        mut budget: usize,
        visit: &mut dyn FnMut(&Entry),
    ) -> Option<ScanPosition> {
        let (first, end) = (usize::from(from.slot.0), usize::from(to.0).min(self.slots.len()));
        for (idx, node) in self.slots.iter().enumerate().take(end).skip(first) {
            if node.is_empty() {
                continue;
            }
            let slot = Slot(idx as u16);
            let hash = if slot == from.slot { from.hash } else { 0 };
            if budget == 0 {
                return Some(ScanPosition { slot, hash });
            }
            let stopped = node.walk(hash, &mut |entry: EntryRef<'_>| {
                visit(&entry);
                budget = budget.saturating_sub(1);
                budget != 0
            });
            if let Some(hash) = stopped {
                return Some(ScanPosition { slot, hash });
            }
        }
        None
    }

    /// An entry by its number in scan order, which must be less than the number of keys.
    pub(super) fn nth(&self, nth: u64) -> Option<EntryRef<'_>> {
        let mut left = nth;
        for (group, count) in self.slots.chunks(GROUP).zip(&self.counts.groups) {
            if left >= u64::from(*count) {
                left -= u64::from(*count);
                continue;
            }
            for node in group {
                let len = node.len() as u64;
                if left < len {
                    return node.nth(left as usize);
                }
                left -= len;
            }
        }
        None
    }
}
