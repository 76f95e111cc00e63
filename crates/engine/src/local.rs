//! The keys of one shard, for a closure of the embedding program that runs there.
//!
//! The closure runs when nobody holds an intent on any key of the shard, and until it returns nothing else runs there: it
//! is as atomic as a command. It sees the keys of its shard only.

use std::time::Duration;

use crate::command::KeyRange;
use crate::ctx::{Ctx, KeySelection, Shard};
use crate::errors::Error;
use crate::execute::{ctx, shard_of};
use crate::intents::{Mode, Scope};
use crate::keyspace::{Key, Millis, NewValue};
use crate::node::Node;
use crate::participant::Waiter;
use bytes::Bytes;

/// Something to be done on a shard.
pub type Task = Box<dyn FnOnce(&mut Local<'_>) + Send>;

/// The keys of one shard and one database.
pub struct Local<'a> {
    shard: &'a mut Shard,
    db: usize,
    now: Millis,
}

/// Why a key cannot be used here.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LocalError {
    /// Another shard has it: use keys with one hash tag, as `{user:7}:name`, to have them together.
    #[error("another shard owns this key")]
    Elsewhere,
    /// What a command would answer.
    #[error(transparent)]
    Command(#[from] Error),
}

impl std::fmt::Debug for Local<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Local").field("shard", &self.shard.me.0).field("db", &self.db).finish_non_exhaustive()
    }
}

impl Local<'_> {
    /// Whether this shard owns a key.
    #[must_use]
    pub fn owns(&self, key: &[u8]) -> bool {
        shard_of(self.shard, key) == self.shard.me
    }

    /// Lets `look` see the value of a key where it lies; `None` if there is no such key.
    ///
    /// # Errors
    /// The key is elsewhere, or not a string.
    pub fn view<R>(&mut self, key: &[u8], look: impl FnOnce(&[u8]) -> R) -> Result<Option<R>, LocalError> {
        self.with(key, |ctx, key| {
            let Some(entry) = ctx.lookup(key) else { return Ok(None) };
            Ok(Some(look(entry.string().ok_or(Error::WrongType)?)))
        })
    }

    /// The value of a key: copied, or shared if it is 16 KiB or longer.
    ///
    /// # Errors
    /// The key is elsewhere, or not a string.
    pub fn get(&mut self, key: &[u8]) -> Result<Option<Bytes>, LocalError> {
        self.with(key, |ctx, key| {
            let Some(entry) = ctx.lookup(key) else { return Ok(None) };
            if let Some(shared) = entry.shared_string() {
                return Ok(Some(shared.clone()));
            }
            Ok(Some(Bytes::copy_from_slice(entry.string().ok_or(Error::WrongType)?)))
        })
    }

    /// Whether there is such a key.
    ///
    /// # Errors
    /// The key is elsewhere.
    pub fn contains(&mut self, key: &[u8]) -> Result<bool, LocalError> {
        self.with(key, |ctx, key| Ok(ctx.peek(key).is_some()))
    }

    /// Sets a key, as SET does: an earlier deadline is forgotten.
    ///
    /// # Errors
    /// The key is elsewhere, or key or value longer than `proto-max-bulk-len`.
    pub fn set(&mut self, key: &[u8], value: &[u8]) -> Result<(), LocalError> {
        self.put(key, value, None)
    }

    /// Sets a key that vanishes after `ttl`, rounded up to milliseconds.
    ///
    /// # Errors
    /// The key is elsewhere, key or value longer than `proto-max-bulk-len`, or `ttl` zero or too long.
    pub fn set_with_ttl(&mut self, key: &[u8], value: &[u8], ttl: Duration) -> Result<(), LocalError> {
        let invalid = || Error::InvalidExpire("set".into());
        let ttl_ms = u64::try_from(ttl.as_nanos().div_ceil(1_000_000)).map_err(|_| invalid())?;
        let deadline = self.now.checked_add(ttl_ms).filter(|at| ttl_ms > 0 && i64::try_from(*at).is_ok());
        self.put(key, value, Some(deadline.ok_or_else(invalid)?))
    }

    /// Removes a key; true if it was there.
    ///
    /// # Errors
    /// The key is elsewhere.
    pub fn del(&mut self, key: &[u8]) -> Result<bool, LocalError> {
        self.with(key, |ctx, key| Ok(ctx.remove(key)))
    }

    fn put(&mut self, key: &[u8], value: &[u8], deadline: Option<Millis>) -> Result<(), LocalError> {
        if key.len().max(value.len()) > self.shard.settings.proto_max_bulk_len {
            return Err(Error::StringTooLong.into());
        }
        self.with(key, |ctx, key| {
            ctx.set(key, NewValue::Slice(value), deadline);
            Ok(())
        })
    }

    fn with<R>(
        &mut self,
        key: &[u8],
        run: impl FnOnce(&mut Ctx<'_>, Key<'_>) -> Result<R, Error>,
    ) -> Result<R, LocalError> {
        if !self.owns(key) {
            return Err(LocalError::Elsewhere);
        }
        let mut ctx = ctx(self.shard, self.db, self.now, KeySelection::Range(KeyRange::NONE));
        let key = ctx.key(key);
        Ok(run(&mut ctx, key)?)
    }
}

impl Node {
    /// Runs a task as soon as no command over several shards has an intent here: now, or when the last of them is done.
    pub fn visit(&mut self, db: usize, task: Task, now: Millis) {
        if self.participant.intents.is_idle() {
            self.run_task(db, task, now);
        } else {
            let (ticket, granted) = self.participant.intents.enqueue(Scope::Whole, Mode::Exclusive);
            self.participant.waiters.insert(ticket, Waiter::Task { db, task });
            if granted {
                self.participant.granted.push_back(ticket);
            }
        }
        self.pump(now);
    }

    /// Takes out the tasks that wait for intents: they have not run, and never will. Nothing else is to be touched of a node
    /// that is torn.
    pub fn take_tasks(&mut self) -> Vec<Task> {
        let waiters = self.participant.waiters.extract_if(|_, waiter| matches!(waiter, Waiter::Task { .. }));
        waiters
            .filter_map(|(_, waiter)| if let Waiter::Task { task, .. } = waiter { Some(task) } else { None })
            .collect()
    }

    pub(crate) fn run_task(&mut self, db: usize, task: Task, now: Millis) {
        self.core.current = Some("a closure of the embedding program");
        self.core.shard.keyspace.no_touch = false;
        task(&mut Local { shard: &mut self.core.shard, db, now });
    }
}
