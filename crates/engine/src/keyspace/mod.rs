//! The keys of one shard: sixteen databases, each a table per hash slot, with deadlines.
//!
//! What a caller sees has no expired key in it, whether or not it has been removed yet. No method walks or frees a
//! whole database: growth is per slot, FLUSHALL hands the old tables to [`Keyspace::free_some`], and expiry runs in
//! steps ([`Keyspace::expire_some`]). Time is an argument; nothing here knows commands or other shards.

mod access;
mod db;
mod entry;
mod expiry;
mod garbage;
mod leaf;
mod table;
#[cfg(test)]
mod tests;
mod value;
mod watched;
mod wheel;
mod word;

pub use access::{Access, AccessPolicy, Lfu};
pub(crate) use db::Expired;
pub(crate) use db::WARM_MAX;
pub use db::{DbStats, Edit, ScanPosition};
pub use entry::{Entry, NewValue, StringForm};
pub(crate) use table::Node;
pub use table::TableShape;
pub use value::{Detached, Value, ValueRef};
pub(crate) use word::EntryRef;
pub use word::{EntryMut, Item, ItemRef};

use crate::memory::DbMemory;
use crate::slot::{Slot, slot_of};
use db::Db;
use garbage::Garbage;
use std::hash::{BuildHasher, Hasher};
use watched::{Was, Watched};

/// Unix time in milliseconds on the engine's clock, which never goes back.
pub type Millis = u64;

/// A key with what is computed from it once: its hash and its slot.
#[derive(Clone, Copy, Debug)]
pub struct Key<'a> {
    /// The key itself.
    pub bytes: &'a [u8],
    /// Its hash under the process's seed.
    pub hash: u64,
    /// The hash slot it belongs to.
    pub slot: Slot,
}

/// What was computed of a key that lies somewhere in a client's input. To be forgotten before that input is.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct KnownKey {
    /// Address and length of its bytes.
    place: (usize, usize),
    pub(crate) hash: u64,
    pub(crate) slot: Slot,
}

impl KnownKey {
    pub(crate) fn new(key: Key<'_>) -> Self {
        Self { place: (key.bytes.as_ptr().addr(), key.bytes.len()), hash: key.hash, slot: key.slot }
    }

    /// The key with these bytes, if it is this one where it lies.
    #[inline]
    pub(crate) fn of<'a>(&self, bytes: &'a [u8]) -> Option<Key<'a>> {
        let is_it = (bytes.as_ptr().addr(), bytes.len()) == self.place;
        is_it.then_some(Key { bytes, hash: self.hash, slot: self.slot })
    }
}

/// Hashes keys; the same on every shard of a process.
#[derive(Clone, Debug)]
pub struct KeyHasher(foldhash::quality::FixedState);

impl KeyHasher {
    /// A hasher that an outsider who does not know `seed` cannot make collide.
    pub fn new(seed: u64) -> Self {
        Self(foldhash::quality::FixedState::with_seed(seed))
    }

    /// The hash of a key's bytes.
    #[inline]
    pub fn hash(&self, key: &[u8]) -> u64 {
        let mut hasher = self.0.build_hasher();
        hasher.write(key);
        hasher.finish()
    }

    /// Slot and hash of a key.
    #[inline]
    pub fn key<'a>(&self, bytes: &'a [u8]) -> Key<'a> {
        Key { bytes, hash: self.hash(bytes), slot: slot_of(bytes) }
    }
}

/// All databases of a shard.
pub struct Keyspace {
    dbs: Vec<Db>,
    garbage: Garbage,
    hasher: KeyHasher,
    /// Where small collections are changed.
    scratch: Vec<u8>,
    watched: Watched,
    /// The database at which expiry goes on.
    expire_next: usize,
    /// Whether keys are removed when their time has come, and not only when somebody looks for them.
    pub expires_actively: bool,
    /// Clients are paused: keys whose time has come are not removed when somebody reads them.
    pub keeps_expired: bool,
    /// What is kept of accesses.
    pub access: AccessPolicy,
    /// Keys removed because their time had come.
    pub expired: u64,
    /// Fields that had expired in databases that have been flushed, or were given a deadline in the past.
    expired_fields_before: u64,
    /// The command being run is no access to keys that are there (CLIENT NO-TOUCH).
    pub no_touch: bool,
    /// Somebody waits for a key to have elements.
    pub tells_of_new: bool,
    /// Databases and keys that have been set since, while somebody waits.
    pub appeared: Vec<(usize, Box<[u8]>)>,
    /// Databases have been exchanged, while somebody waits.
    pub swapped: bool,
}

impl Keyspace {
    /// `databases` empty databases.
    pub fn new(databases: usize, hasher: KeyHasher) -> Self {
        Self {
            dbs: (0..databases).map(|_| Db::default()).collect(),
            garbage: Garbage::default(),
            hasher,
            scratch: Vec::new(),
            watched: Watched::default(),
            expire_next: 0,
            expires_actively: true,
            keeps_expired: false,
            access: AccessPolicy::default(),
            expired: 0,
            expired_fields_before: 0,
            no_touch: false,
            tells_of_new: false,
            appeared: Vec::new(),
            swapped: false,
        }
    }

    /// The hasher that `Key`s for this keyspace come from.
    pub fn hasher(&self) -> &KeyHasher {
        &self.hasher
    }

    /// How many databases there are.
    pub fn databases(&self) -> usize {
        self.dbs.len()
    }

    /// Key counts and sizes of a database.
    pub fn stats(&self, db: usize) -> DbStats {
        self.dbs[db].stats()
    }

    /// Loads what lookups of these keys (at most `WARM_MAX`) will read into the processor's cache.
    #[inline]
    pub(crate) fn warm(&self, db: usize, keys: &[KnownKey]) {
        self.dbs[db].warm(keys);
    }

    /// The entry of a key that is there and has not expired. An expired one is removed on the way, but for `keeps_expired`.
    #[inline]
    pub fn find(&mut self, db: usize, key: Key<'_>, now: Millis) -> Option<EntryMut<'_>> {
        let (entry, expired) = self.dbs[db].find_live(key, now, self.keeps_expired);
        self.expired += u64::from(expired);
        entry
    }

    /// The same, and notes that the key is used.
    #[inline]
    pub fn find_to_use(&mut self, db: usize, key: Key<'_>, now: Millis) -> Option<EntryMut<'_>> {
        let (mut entry, expired) = self.dbs[db].find_live(key, now, self.keeps_expired);
        self.expired += u64::from(expired);
        if let Some(entry) = &mut entry {
            let used = self.access.used(entry.access(), now);
            entry.set_access(used);
        }
        entry
    }

    /// The entry of a key that is about to be changed, which is an access unless the client wants none.
    #[inline]
    pub fn find_to_change(&mut self, db: usize, key: Key<'_>, now: Millis) -> Option<EntryMut<'_>> {
        if self.no_touch { self.find(db, key, now) } else { self.find_to_use(db, key, now) }
    }

    /// The entry of a key that is there and has not expired, for reading it beside others. It is no access.
    pub(crate) fn view(&self, db: usize, key: Key<'_>, now: Millis) -> Option<EntryRef<'_>> {
        self.dbs[db].view(key).filter(|entry| entry.expiry().is_none_or(|at| at > now))
    }

    /// Whether the key is there and has not expired.
    pub fn contains(&mut self, db: usize, key: Key<'_>, now: Millis) -> bool {
        self.find(db, key, now).is_some()
    }

    /// Sets a key's value, whatever it was before, and its deadline: `None` for none. A deadline that has passed
    /// removes the key.
    pub fn set(&mut self, db: usize, key: Key<'_>, value: NewValue<'_>, expiry: Option<Millis>, now: Millis) {
        if expiry.is_some_and(|at| at <= now) {
            self.expire(db, key, now);
            return;
        }
        self.touch(db, key.bytes);
        if self.tells_of_new {
            self.appeared.push((db, key.bytes.into()));
        }
        let accessed = !self.no_touch;
        let how = (&self.hasher, &mut self.access);
        self.expired += self.dbs[db].set(key, value, expiry, (now, accessed), how);
    }

    /// Whether somebody may be served who waits for a key.
    #[inline]
    pub fn has_new(&self) -> bool {
        !self.appeared.is_empty() | self.swapped
    }

    /// Puts what another key held under this one, whatever was there.
    pub fn put(&mut self, db: usize, key: Key<'_>, content: Detached, now: Millis) {
        let Detached { value, expiry, form } = content;
        self.set(db, key, NewValue::Owned(value), expiry, now);
        if form != StringForm::Plain {
            self.set_form(db, key, form);
        }
    }

    /// Sets what OBJECT ENCODING says of a string.
    pub fn set_form(&mut self, db: usize, key: Key<'_>, form: StringForm) {
        self.dbs[db].set_form(key, form);
    }

    /// Changes the value of a key by `change`, which must leave its type as it is, if `is_right` says so of the present one. It
    /// is an access unless the client wants none. A collection that is empty then is removed with its key. Whether anything has
    /// changed only the caller knows, who tells it to [`Self::touch`].
    #[inline]
    pub fn edit<T, F: FnOnce(&mut Value) -> T>(
        &mut self,
        db: usize,
        key: Key<'_>,
        now: Millis,
        is_right: impl FnOnce(ValueRef<'_>) -> bool,
        change: F,
    ) -> Edit<T, F> {
        let Self { dbs, access, scratch, no_touch, expired, .. } = self;
        let access = (!*no_touch).then_some(access);
        let (edit, gone) = dbs[db].edit(key, now, access, scratch, is_right, change);
        *expired += u64::from(gone);
        edit
    }

    /// Changes a string in place; the key must be there. Who watches it is told if `change` returns true.
    pub fn edit_string(&mut self, db: usize, key: Key<'_>, change: impl FnOnce(&mut Vec<u8>) -> bool) {
        if self.dbs[db].edit_string(key, change) {
            self.touch(db, key.bytes);
        }
    }

    /// Removes a key; true if it was there and had not expired. A large value is freed by and by.
    pub fn remove(&mut self, db: usize, key: Key<'_>, now: Millis) -> bool {
        let taken = self.take(db, key, now);
        let found = taken.is_some();
        if let Some(mut entry) = taken {
            self.garbage.push_value(entry.take_large());
        }
        found
    }

    /// Removes a key that was given a deadline in the past; true if it was there.
    fn expire(&mut self, db: usize, key: Key<'_>, now: Millis) -> bool {
        let removed = self.remove(db, key, now);
        self.expired += u64::from(removed);
        removed
    }

    /// Removes a key and returns its value and deadline, if it was there and had not expired.
    pub fn take(&mut self, db: usize, key: Key<'_>, now: Millis) -> Option<Entry> {
        let entry = self.dbs[db].remove(key)?;
        if entry.is_over(now) {
            self.dbs[db].counts.note_gone(&entry, now);
            self.expired += 1;
            return None;
        }
        self.touch(db, key.bytes);
        Some(entry)
    }

    /// Gives a key a deadline or takes it away; false if the key is not there. A deadline that has passed removes it.
    pub fn set_expiry(&mut self, db: usize, key: Key<'_>, expiry: Option<Millis>, now: Millis) -> bool {
        if expiry.is_some_and(|at| at <= now) {
            return self.expire(db, key, now);
        }
        self.find(db, key, now).is_some() && self.change_expiry(db, key, expiry, now)
    }

    /// The same, and is an access to a key that stays.
    pub fn use_and_set_expiry(
        &mut self,
        db: usize,
        key: Key<'_>,
        expiry: Option<Millis>,
        now: Millis,
    ) -> bool {
        if expiry.is_some_and(|at| at <= now) {
            return self.expire(db, key, now);
        }
        self.find_to_change(db, key, now).is_some() && self.change_expiry(db, key, expiry, now)
    }

    /// For a key that is there.
    fn change_expiry(&mut self, db: usize, key: Key<'_>, expiry: Option<Millis>, now: Millis) -> bool {
        let has_deadline = |entry: EntryMut<'_>| entry.expiry().is_some();
        if !self.watched.is_empty() && (expiry.is_some() || self.dbs[db].find(key).is_some_and(has_deadline))
        {
            self.touch(db, key.bytes);
        }
        self.expired += self.dbs[db].set_expiry(key, expiry, now, &self.hasher);
        true
    }

    /// Visits keys of a database in scan order from `from`, expired ones left out, up to slot `to` or until about `budget`
    /// have been looked at, expired ones included. Returns where to go on, `None` at the end. A key that is there all
    /// the time is visited by a series of such calls exactly once.
    pub fn walk(
        &self,
        db: usize,
        from: ScanPosition,
        to: Slot,
        budget: usize,
        now: Millis,
        visit: &mut dyn FnMut(&Entry),
    ) -> Option<ScanPosition> {
        self.dbs[db].walk(from, to, budget, &mut |entry| {
            if !entry.is_over(now) {
                visit(entry);
            }
        })
    }

    /// A key picked evenly by `random`, not expired; `None` if there is none, or if a thousand picks have met expired ones
    /// only. Those are removed.
    pub fn random_key(&mut self, db: usize, now: Millis, mut random: impl FnMut() -> u64) -> Option<Vec<u8>> {
        const PICKS: usize = 1000;
        for _ in 0..PICKS {
            let keys = self.dbs[db].stats().keys;
            let key = self.dbs[db].nth(random().checked_rem(keys)?)?.key().to_vec();
            if self.contains(db, self.hasher.key(&key), now) {
                return Some(key);
            }
        }
        None
    }

    /// Empties a database. Its memory is freed by and by (see `free_some`). Watched keys that it has are touched.
    pub fn flush(&mut self, db: usize, now: Millis) {
        self.touch_present(db, &[db], now);
        let gone = self.dbs[db].counts.gone.take();
        self.expired_fields_before += self.dbs[db].expired_fields;
        self.garbage.push(std::mem::take(&mut self.dbs[db]));
        self.dbs[db].counts.gone = gone;
    }

    /// Exchanges two databases. Watched keys that either of them has are touched.
    pub fn swap(&mut self, a: usize, b: usize, now: Millis) {
        if a == b {
            return;
        }
        for db in [a, b] {
            self.touch_present(db, &[a, b], now);
        }
        self.dbs.swap(a, b);
        let gone = self.dbs[a].counts.gone.take();
        self.dbs[a].counts.gone = std::mem::replace(&mut self.dbs[b].counts.gone, gone);
        self.swapped = self.tells_of_new;
    }

    /// Touches the watched keys of `db` that any of the databases `present_in` has.
    fn touch_present(&mut self, db: usize, present_in: &[usize], now: Millis) {
        if self.watched.is_empty() {
            return;
        }
        for bytes in self.watched.of_database(db) {
            let key = self.hasher.key(&bytes);
            if present_in.iter().any(|of| self.contains(*of, key, now)) {
                self.touch(db, &bytes);
            }
        }
    }

    /// A key's value or deadline has changed: whoever watches it is to know.
    #[inline]
    pub fn touch(&mut self, db: usize, key: &[u8]) {
        if !self.watched.is_empty() {
            self.watched.touch(db, key);
        }
    }

    /// A client, named by a number, begins to watch a key.
    pub fn watch(&mut self, client: u64, db: usize, key: Key<'_>, now: Millis) {
        let was = self.find(db, key, now).map_or_else(Was::default, |entry| {
            // Fields that are over already are not there any more for anybody.
            let whole_until = entry.due().filter(|at| entry.has_timed_fields() && *at > now);
            Was { there: true, whole_until }
        });
        self.watched.add(client, db, key.bytes, was);
    }

    /// A client watches nothing any more.
    pub fn unwatch(&mut self, client: u64) {
        self.watched.forget(client);
    }

    /// Whether a key that a client watches has changed since it began to watch it, or has expired, itself or a field of it.
    pub fn has_seen_change(&mut self, client: u64, now: Millis) -> bool {
        let Some(keys) = self.watched.of_client(client) else { return true };
        let were_there: Vec<_> = keys.iter().filter(|watched| watched.was.there).cloned().collect();
        were_there.iter().any(|watched| {
            let is_over = watched.was.whole_until.is_some_and(|at| at <= now) && !self.keeps_expired;
            is_over || !self.contains(watched.db, self.hasher.key(&watched.key), now)
        })
    }

    /// The clients, by their numbers, that watch a key here which has been changed since.
    pub(crate) fn clients_with_changes(&self) -> impl Iterator<Item = u64> {
        self.watched.touched()
    }

    /// Keys that clients watch, each once.
    pub fn watched_keys(&self) -> usize {
        self.watched.len()
    }

    /// Frees what no key holds any more, a large value by and by.
    pub fn discard(&mut self, value: Value) {
        if value.is_large() {
            self.garbage.push_value(Some(value));
        }
    }

    /// Frees about `budget` entries of flushed databases, or elements of large values; true while more are left.
    pub fn free_some(&mut self, budget: usize) -> bool {
        for db in &mut self.dbs {
            for value in db.counts.large.drain(..) {
                self.garbage.push_value(Some(value));
            }
        }
        self.garbage.free_some(budget)
    }

    /// Removes keys whose time has come, handling at most about `budget` keys; true while more are due.
    pub fn expire_some(&mut self, now: Millis, budget: usize) -> bool {
        if !self.expires_actively {
            return false;
        }
        let mut left = budget;
        for _ in 0..self.dbs.len() {
            self.expired += self.dbs[self.expire_next].expire_some(now, &mut left, &self.hasher);
            self.expire_next = (self.expire_next + 1) % self.dbs.len();
            if left == 0 {
                break;
            }
        }
        left == 0 && self.next_expiry(now) == Some(now)
    }

    /// When `expire_some` has something to do next.
    pub fn next_expiry(&self, now: Millis) -> Option<Millis> {
        if !self.expires_actively {
            return None;
        }
        self.dbs.iter().filter_map(|db| db.next_expiry(now)).min()
    }

    /// Whether keys whose time has come are listed for [`Self::take_expired`].
    pub fn list_expired(&mut self, on: bool) {
        for db in &mut self.dbs {
            db.counts.gone = on.then(|| db.counts.gone.take().unwrap_or_default());
        }
    }

    /// Whether something has expired since the last [`Self::take_expired`], and is listed.
    pub fn has_expired(&self) -> bool {
        self.dbs.iter().any(|db| db.counts.gone.as_ref().is_some_and(|gone| !gone.is_empty()))
    }

    /// Tells what has expired, of which database and key, in the order in which that was noticed.
    pub fn take_expired(&mut self, mut tell: impl FnMut(usize, Box<[u8]>, Expired)) {
        for (idx, db) in self.dbs.iter_mut().enumerate() {
            for (key, what) in db.counts.gone.iter_mut().flat_map(std::mem::take) {
                tell(idx, key, what);
            }
        }
    }

    /// Counts fields that were removed because they were given a deadline in the past.
    pub fn count_expired_fields(&mut self, count: usize) {
        self.expired_fields_before += count as u64;
    }

    /// Begins to count anew what has expired.
    pub fn reset_stats(&mut self) {
        self.expired = 0;
        self.expired_fields_before = 0;
        self.dbs.iter_mut().for_each(|db| db.expired_fields = 0);
    }

    /// Fields of hashes that were removed since their time had come.
    pub fn expired_fields(&self) -> u64 {
        self.dbs.iter().map(|db| db.expired_fields).sum::<u64>() + self.expired_fields_before
    }

    /// Keys of flushed databases: how many are still to be freed, and how many have been.
    pub fn lazy_frees(&self) -> (u64, u64) {
        self.garbage.keys()
    }

    /// Bytes of a database's tables; looks at every slot.
    pub fn db_memory(&self, db: usize) -> DbMemory {
        let Db { slots, counts, wheel, .. } = &self.dbs[db];
        let tables: usize = slots.iter().map(|node| size_of_val(node) + node.table_bytes()).sum();
        DbMemory { keys: counts.stats.keys, table: tables as u64, wheel: wheel.bytes() as u64 }
    }

    /// How large a database's tables are and how full; looks at every slot.
    pub fn db_shape(&self, db: usize) -> TableShape {
        self.dbs[db].slots.iter().map(Node::shape).sum()
    }

    /// Bytes of the table that a key stands in, by key in it.
    pub fn table_share(&self, db: usize, key: Key<'_>) -> usize {
        self.dbs[db].slots.get(usize::from(key.slot.0)).map_or(0, |node| node.leaf_share(key.hash))
    }

    /// Bytes of all entries, those that wait to be freed included.
    pub fn entry_bytes(&self) -> u64 {
        self.dbs.iter().map(|db| db.stats().bytes).sum::<u64>() + self.garbage.bytes()
    }
}
