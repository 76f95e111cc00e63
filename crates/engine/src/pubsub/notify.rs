//! Keyspace notifications: what has happened to keys, as messages on channels named after the key and after the event.

use crate::ctx::Shard;
use crate::events::{EventClasses, KeyEvent};
use crate::execute::shard_of;
use crate::keyspace::Expired;

/// The events by which Valkey tells of it.
const fn told_of(what: Expired) -> &'static [(EventClasses, &'static str)] {
    match what {
        Expired::Key => &[(EventClasses::EXPIRED, "expired")],
        Expired::Fields => &[(EventClasses::HASH, "hexpired")],
        Expired::LastField => &[(EventClasses::HASH, "hexpired"), (EventClasses::GENERIC, "del")],
    }
}

impl Shard {
    /// Notes an event, behind the end of keys whose time has come.
    #[cold]
    pub(crate) fn note_event(&mut self, event: KeyEvent) {
        self.note_expired();
        self.events.push(event);
    }

    /// Notes what has expired. A look for such a key that found nothing came after that.
    fn note_expired(&mut self) {
        let Self { keyspace, events, settings, .. } = self;
        if !keyspace.has_expired() {
            return;
        }
        keyspace.take_expired(|db, key, what| {
            let misses = events.iter().rev().take_while(|event| event.class == EventClasses::MISSED).count();
            let first = events.len() - misses;
            let miss = events[first..].iter().position(|event| event.db == db && event.key == key);
            let mut place = miss.map_or(events.len(), |miss| first + miss);
            for &(class, name) in told_of(what) {
                if settings.events.has(class) {
                    events.insert(place, KeyEvent { class, name, db, key: key.clone() });
                    place += 1;
                }
            }
        });
    }

    /// Publishes what has happened to keys, in that order: each channel's owner orders it.
    pub(crate) fn publish_events(&mut self) {
        self.note_expired();
        let classes = self.settings.events;
        for KeyEvent { name, db, key, .. } in std::mem::take(&mut self.events) {
            let channel = |kind: &str, rest: &[u8]| [format!("__{kind}@{db}__:").as_bytes(), rest].concat();
            if classes.has(EventClasses::KEYSPACE) {
                self.publish_event(channel("keyspace", &key), name.as_bytes());
            }
            if classes.has(EventClasses::KEYEVENT) {
                self.publish_event(channel("keyevent", name.as_bytes()), &key);
            }
        }
    }

    fn publish_event(&mut self, channel: Vec<u8>, payload: &[u8]) {
        let owner = shard_of(self, &channel);
        self.pubsub.publish_by(owner, channel, payload);
    }

    /// Whether there is something to send to those who listen.
    #[inline]
    pub(crate) fn has_pubsub_news(&self) -> bool {
        self.pubsub.has_news() || self.has_events()
    }

    /// Whether something has happened to keys that is to be told.
    #[inline]
    pub(crate) fn has_events(&self) -> bool {
        !self.events.is_empty() || self.settings.events != EventClasses::NONE && self.keyspace.has_expired()
    }
}
