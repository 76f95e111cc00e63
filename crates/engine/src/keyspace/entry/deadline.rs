//! When an entry vanishes: its key's deadline, and those of the fields of a hash.
//!
//! An entry holds one moment at which it is to be looked at. Where fields of a hash have deadlines, that is the first of theirs
//! and the key's, and the key's own stands with theirs.

use super::{Entry, HAS_EXPIRY, KIND_BOXED, KIND_MASK, RAW, StringForm, TEXT};
use crate::keyspace::Value;
use crate::values::{Fields, Hash};

impl Entry {
    /// When the key vanishes, in Unix milliseconds.
    #[inline]
    pub fn expiry(&self) -> Option<u64> {
        if self.shape().tag & (KIND_MASK | HAS_EXPIRY) == KIND_BOXED | HAS_EXPIRY
            && let Some(fields) = self.timed_fields()
        {
            return fields.key_expiry().flatten();
        }
        self.due()
    }

    /// Sets or removes the deadline. The hint survives a change of deadline; without a deadline there is none.
    pub fn set_expiry(&mut self, expiry: Option<u64>) {
        let shape = self.shape();
        let expiry = match shape.tag & KIND_MASK {
            KIND_BOXED => match self.boxed_mut(shape) {
                Value::Hash(Hash::Table(fields)) => fields.keep_key_expiry(expiry),
                _ => expiry,
            },
            _ => expiry,
        };
        self.set_due(expiry);
    }

    /// Where the value is a hash whose fields may have deadlines, and this the key's: has the entry come due with the first.
    pub(super) fn adopt(&mut self, expiry: Option<u64>) {
        if self.timed_fields().is_some() {
            self.set_expiry(expiry);
        }
    }

    /// The fields of a hash some of which have deadlines.
    #[inline]
    pub(super) fn timed_fields(&self) -> Option<&Fields> {
        let shape = self.shape();
        if shape.tag & KIND_MASK != KIND_BOXED {
            return None;
        }
        match self.boxed(shape) {
            Value::Hash(Hash::Table(fields)) if fields.key_expiry().is_some() => Some(fields),
            _ => None,
        }
    }

    /// Whether fields of it have deadlines.
    #[inline]
    pub fn has_timed_fields(&self) -> bool {
        self.shape().tag & HAS_EXPIRY != 0 && self.timed_fields().is_some()
    }

    /// Whether nothing of it is left at a time: the key's deadline has passed, or those of all its fields.
    pub fn is_over(&self, now: u64) -> bool {
        self.due().is_some_and(|at| at <= now)
            && self
                .timed_fields()
                .is_none_or(|fields| fields.is_over(now) || self.expiry().is_some_and(|at| at <= now))
    }

    /// Removes fields whose time has come, at most `budget`; how many they were.
    pub(in crate::keyspace) fn drop_expired_fields(&mut self, now: u64, budget: usize) -> usize {
        let (shape, expiry) = (self.shape(), self.expiry());
        if shape.tag & KIND_MASK != KIND_BOXED {
            return 0;
        }
        let Value::Hash(Hash::Table(fields)) = self.boxed_mut(shape) else { return 0 };
        let dropped = fields.drop_expired(now, budget);
        self.set_expiry(expiry);
        dropped
    }

    /// What OBJECT ENCODING says of a string beyond what its bytes and length say.
    pub fn form(&self) -> StringForm {
        match self.shape().tag & (RAW | TEXT) {
            0 => StringForm::Plain,
            TEXT => StringForm::Text,
            _ => StringForm::Raw,
        }
    }
}
