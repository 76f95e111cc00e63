//! The keys that clients watch (WATCH), and whether they have changed since.
//!
//! Whatever changes a key touches it here, which costs one comparison while nobody watches anything. As in Valkey, a client
//! one of whose keys was touched watches none of them any longer: it is known as one whose transaction is to fail. What time
//! does to a key is found out when it is asked: a key that was there and is there no longer has changed, and so has a hash of whose
//! fields one has had its time.

use super::Millis;
use hashbrown::HashMap;
use std::collections::BTreeSet;

/// What a client watches here.
#[derive(Debug, Default)]
struct Watches {
    touched: bool,
    keys: Vec<WatchedKey>,
}

/// A key, and what it was when the client began to watch it.
#[derive(Clone, Debug)]
pub(super) struct WatchedKey {
    pub(super) db: usize,
    pub(super) key: Box<[u8]>,
    pub(super) was: Was,
}

/// What time may change.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Was {
    pub(super) there: bool,
    /// When the first of a hash's fields vanishes, or the key; who moves that touches the key.
    pub(super) whole_until: Option<Millis>,
}

/// The watched keys of one shard.
#[derive(Debug, Default)]
pub(super) struct Watched {
    /// Databases and clients by key; no set is empty. Thousands of clients may watch one key, and all go when it is touched.
    watchers: HashMap<Box<[u8]>, BTreeSet<(usize, u64)>, foldhash::fast::FixedState>,
    clients: HashMap<u64, Watches, foldhash::fast::FixedState>,
}

impl Watched {
    /// Whether there is no key whose changes matter.
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.watchers.is_empty()
    }

    /// Keys that are watched, each once.
    pub(super) fn len(&self) -> usize {
        let databases = |watchers: &BTreeSet<(usize, u64)>| {
            let mut databases: Vec<usize> = watchers.iter().map(|(db, _)| *db).collect();
            databases.dedup();
            databases.len()
        };
        self.watchers.values().map(databases).sum()
    }

    /// A client begins to watch a key, unless it does so already or its transaction is to fail anyhow.
    pub(super) fn add(&mut self, client: u64, db: usize, key: &[u8], was: Was) {
        let watches = self.clients.entry(client).or_default();
        if !watches.touched && self.watchers.entry(key.into()).or_default().insert((db, client)) {
            watches.keys.push(WatchedKey { db, key: key.into(), was });
        }
    }

    /// A key has changed.
    #[cold]
    pub(super) fn touch(&mut self, db: usize, key: &[u8]) {
        let Some(watchers) = self.watchers.get(key) else { return };
        let clients: Vec<u64> = watchers.range((db, 0)..=(db, u64::MAX)).map(|(_, client)| *client).collect();
        for client in clients {
            self.forget(client);
            self.clients.insert(client, Watches { touched: true, keys: Vec::new() });
        }
    }

    /// A client watches nothing any more, and what was watched does not matter.
    pub(super) fn forget(&mut self, client: u64) {
        let Some(watches) = self.clients.remove(&client) else { return };
        for WatchedKey { db, key, .. } in watches.keys {
            let Some(watchers) = self.watchers.get_mut(&key) else { continue };
            watchers.remove(&(db, client));
            if watchers.is_empty() {
                self.watchers.remove(&key);
            }
        }
    }

    /// What a client watches; `None` if one of its keys has been touched.
    pub(super) fn of_client(&self, client: u64) -> Option<&[WatchedKey]> {
        match self.clients.get(&client) {
            Some(watches) if watches.touched => None,
            Some(watches) => Some(&watches.keys),
            None => Some(&[]),
        }
    }

    /// The clients one of whose keys has been touched.
    pub(super) fn touched(&self) -> impl Iterator<Item = u64> {
        self.clients.iter().filter(|(_, watches)| watches.touched).map(|(client, _)| *client)
    }

    /// The keys of one database that anybody watches.
    pub(super) fn of_database(&self, db: usize) -> Vec<Box<[u8]>> {
        let watched = self.watchers.iter().filter(|(_, watchers)| watchers.iter().any(|(of, _)| *of == db));
        watched.map(|(key, _)| key.clone()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::{Was, Watched};

    #[test]
    fn who_watches_a_key_that_is_touched_watches_nothing_any_more() {
        let mut watched = Watched::default();
        for (client, db, key) in [(1, 0, "a"), (1, 0, "b"), (2, 0, "b"), (2, 3, "b"), (1, 0, "a")] {
            watched.add(client, db, key.as_bytes(), Was::default());
        }
        assert_eq!((watched.len(), watched.of_client(1).map(<[_]>::len)), (3, Some(2)));
        watched.touch(1, b"b");
        watched.touch(0, b"c");
        watched.touch(0, b"a");
        assert!(watched.of_client(1).is_none() && watched.of_client(2).is_some());
        watched.add(1, 0, b"c", Was::default());
        assert_eq!((watched.len(), watched.of_database(3).len(), watched.of_database(1).len()), (2, 1, 0));
        watched.forget(2);
        assert!(watched.is_empty() && watched.of_client(1).is_none());
        watched.forget(1);
        watched.forget(1);
        assert_eq!(watched.of_client(1).map(<[_]>::len), Some(0));
    }
}
