//! How handlers of collections change what a key holds.

use crate::ctx::Ctx;
use crate::errors::Error;
use crate::events::{EventClasses, KeyEvent};
use crate::keyspace::{Edit, Key, Millis, NewValue, Value, ValueRef};
use crate::values::{Hash, List, Set, SortedSet};

/// What a change has come to.
#[derive(Clone, Copy, Debug)]
pub struct Edited<T> {
    /// What the closure returned.
    pub result: T,
    /// The key was not there before.
    pub created: bool,
    /// The key is not there any more, or has not come to be, since the collection has no elements.
    pub emptied: bool,
}

/// What to do with a key that is not there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Missing {
    /// Make an empty collection for it.
    Create,
    /// Nothing.
    Skip,
}

macro_rules! edits {
    ($($name:ident, $type:ident;)*) => {
        impl Ctx<'_> {
            $(
                /// Changes the collection of a key, which is an access to it. `None` where it is not there and is not to be
                /// made. A key whose collection is empty afterwards is removed.
                ///
                /// # Errors
                /// [`Error::WrongType`] where the key holds something else.
                pub fn $name<T>(
                    &mut self,
                    key: Key<'_>,
                    missing: Missing,
                    change: impl FnOnce(&mut $type) -> T,
                ) -> Result<Option<Edited<T>>, Error> {
                    self.edit_value(
                        key,
                        (missing == Missing::Create).then_some(|| Value::$type($type::default())),
                        |value| matches!(value, ValueRef::$type(_)),
                        |value| match value {
                            Value::$type(collection) => change(collection),
                            _ => unreachable!("the type has been looked at"),
                        },
                    )
                }
            )*
        }
    };
}

edits! {
    edit_hash, Hash;
    edit_list, List;
    edit_set, Set;
    edit_sorted_set, SortedSet;
}

impl Ctx<'_> {
    #[inline]
    fn edit_value<T>(
        &mut self,
        key: Key<'_>,
        fresh: Option<impl FnOnce() -> Value>,
        is_right: impl FnOnce(ValueRef<'_>) -> bool,
        change: impl FnOnce(&mut Value) -> T,
    ) -> Result<Option<Edited<T>>, Error> {
        let keyspace = &mut self.shard.keyspace;
        match keyspace.edit(self.db, key, self.now, is_right, change) {
            Edit::Done(result, emptied) => Ok(Some(Edited { result, created: false, emptied })),
            Edit::WrongType => Err(Error::WrongType),
            Edit::Missing(change) => {
                let Some(fresh) = fresh else { return Ok(None) };
                let mut value = fresh();
                let result = change(&mut value);
                let emptied = value.as_ref().is_empty_collection();
                if !emptied {
                    self.set(key, NewValue::Owned(value), None);
                }
                Ok(Some(Edited { result, created: !emptied, emptied }))
            }
        }
    }

    /// Tells whoever listens what has happened to a key of the selected database, and whoever watches it that it has changed. To
    /// be called in the order of the events, as Valkey sends them.
    #[inline]
    pub fn notify(&mut self, class: EventClasses, name: &'static str, key: &[u8]) {
        self.notify_in(self.db, class, name, key);
    }

    /// The same for a key of another database.
    #[inline]
    pub fn notify_in(&mut self, db: usize, class: EventClasses, name: &'static str, key: &[u8]) {
        // What time does to a watched key is found out by EXEC.
        if class != EventClasses::MISSED && class != EventClasses::EXPIRED {
            self.shard.keyspace.touch(db, key);
        }
        self.announce(db, class, name, key);
    }

    /// The same to all but those who watch the key: for them it has not changed.
    #[inline]
    pub fn announce(&mut self, db: usize, class: EventClasses, name: &'static str, key: &[u8]) {
        if self.shard.settings.events.has(class) {
            self.shard.note_event(KeyEvent { class, name, db, key: key.into() });
        }
    }

    /// Tells that a key that was there has a new deadline, or has gone since that has passed.
    pub(crate) fn notify_deadline(&mut self, key: Key<'_>, deadline: Millis) {
        if deadline <= self.now {
            self.notify(EventClasses::EXPIRED, "expired", key.bytes);
        } else {
            self.notify(EventClasses::GENERIC, "expire", key.bytes);
        }
    }

    /// Sets a key's value and deadline while events of keys are told: an expired key goes first, and a key that was not there
    /// is new.
    #[cold]
    pub(crate) fn set_and_note(&mut self, key: Key<'_>, value: NewValue<'_>, expiry: Option<Millis>) {
        let there = self.find(key).is_some();
        self.shard.keyspace.set(self.db, key, value, expiry, self.now);
        if !there && expiry.is_none_or(|at| at > self.now) {
            self.notify(EventClasses::NEW, "new", key.bytes);
        }
    }
}
