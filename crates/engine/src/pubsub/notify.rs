//! Keyspace notifications: what has happened to keys, as messages on channels named after the key and after the event.

use crate::ctx::Shard;
use crate::events::{EventClasses, KeyEvent};
use crate::execute::shard_of;

impl Shard {
    /// Publishes what has happened to keys, in that order: each channel's owner orders it.
    pub(crate) fn publish_events(&mut self) {
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
        self.pubsub.has_news() || !self.events.is_empty()
    }
}
