//! The large form of a hash: fields with their values in a table, and the deadlines of those that have one.

use super::table::{Pair, Table, value_of};
use hashbrown::HashMap;
use std::collections::BTreeSet;

/// Unix time in milliseconds.
type Millis = u64;

/// About what a deadline costs beyond its field's name, in bytes: both indices with their share of free places.
const DEADLINE_SHARE: usize = 80;

/// Fields with values, found by the field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fields {
    table: Table<Pair>,
    timed: Option<Box<Timed>>,
}

/// The deadlines of fields. There is at least one as long as this exists.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Timed {
    by_field: HashMap<Box<[u8]>, Millis>,
    /// The same, in the order in which they come.
    order: BTreeSet<(Millis, Box<[u8]>)>,
    /// The key's own deadline: its entry holds whatever comes first, that or a field's.
    key_expiry: Option<Millis>,
    /// Of the names of fields.
    name_bytes: usize,
}

impl Timed {
    fn forget(&mut self, field: &[u8]) -> Option<Millis> {
        let (name, at) = self.by_field.remove_entry(field)?;
        self.name_bytes -= name.len();
        self.order.remove(&(at, name));
        Some(at)
    }
}

impl Fields {
    /// None yet; see [`Table::new`] about `seed`.
    pub fn new(seed: u64) -> Self {
        Self { table: Table::new(seed), timed: None }
    }

    /// How many there are.
    pub const fn len(&self) -> usize {
        self.table.len()
    }

    /// Whether there are none.
    pub const fn is_empty(&self) -> bool {
        self.table.is_empty()
    }

    /// Bytes on the heap, about.
    pub fn heap_bytes(&self) -> usize {
        let deadlines = self.timed.as_ref().map_or(0, |timed| {
            size_of::<Timed>() + timed.by_field.len() * DEADLINE_SHARE + 2 * timed.name_bytes
        });
        size_of::<Self>() + self.table.heap_bytes() + deadlines
    }

    /// The value of a field.
    #[inline]
    pub fn get(&self, field: &[u8]) -> Option<&[u8]> {
        self.table.get(field).map(|pair| value_of(pair.bytes()))
    }

    /// Sets the value of a field, which has no deadline then; true if the field is new.
    pub fn set(&mut self, field: &[u8], value: &[u8]) -> bool {
        self.set_deadline(field, None);
        self.update(field, value)
    }

    /// The same, and the field keeps its deadline.
    pub fn update(&mut self, field: &[u8], value: &[u8]) -> bool {
        let there = self.table.edit(field, |pair| pair.set_value(value)).is_some();
        if !there {
            self.table.insert(Pair::new(field, value));
        }
        !there
    }

    /// Removes a field; true if it was there.
    pub fn remove(&mut self, field: &[u8]) -> bool {
        self.set_deadline(field, None);
        self.table.remove(field).is_some()
    }

    /// When a field vanishes, in Unix milliseconds.
    pub fn deadline(&self, field: &[u8]) -> Option<Millis> {
        self.timed.as_ref()?.by_field.get(field).copied()
    }

    /// Gives a field that is there a deadline, or takes it away.
    pub fn set_deadline(&mut self, field: &[u8], deadline: Option<Millis>) {
        if let Some(timed) = &mut self.timed {
            timed.forget(field);
        }
        if let Some(at) = deadline {
            let timed = self.timed.get_or_insert_default();
            timed.name_bytes += field.len();
            timed.by_field.insert(field.into(), at);
            timed.order.insert((at, field.into()));
        }
        self.settle();
    }

    fn settle(&mut self) {
        if self.timed.as_ref().is_some_and(|timed| timed.order.is_empty()) {
            self.timed = None;
        }
    }

    /// When the next field vanishes.
    pub fn next_deadline(&self) -> Option<Millis> {
        self.timed.as_ref()?.order.first().map(|(at, _)| *at)
    }

    /// Whether no field is left at a time.
    pub fn is_over(&self, now: Millis) -> bool {
        self.timed.as_ref().is_some_and(|timed| {
            timed.order.len() == self.table.len() && timed.order.last().is_some_and(|(at, _)| *at <= now)
        })
    }

    /// Removes fields whose time has come, at most `budget`; how many they were.
    pub fn drop_expired(&mut self, now: Millis, budget: usize) -> usize {
        let mut dropped = 0;
        while let Some(timed) = &mut self.timed
            && dropped < budget
            && timed.order.first().is_some_and(|(at, _)| *at <= now)
        {
            if let Some((_, field)) = timed.order.pop_first() {
                timed.by_field.remove(&field);
                timed.name_bytes -= field.len();
                self.table.remove(&field);
                dropped += 1;
            }
            self.settle();
        }
        dropped
    }

    /// The key's deadline that is kept here, since its entry holds that of a field; the outer `None` where there are no
    /// deadlines of fields.
    pub fn key_expiry(&self) -> Option<Option<Millis>> {
        self.timed.as_ref().map(|timed| timed.key_expiry)
    }

    /// Keeps the key's deadline where there are deadlines of fields. Returns when the first of them all comes.
    pub fn keep_key_expiry(&mut self, expiry: Option<Millis>) -> Option<Millis> {
        let next = self.next_deadline();
        if let Some(timed) = &mut self.timed {
            timed.key_expiry = expiry;
        }
        next.into_iter().chain(expiry).min()
    }

    /// The fields and values themselves.
    pub const fn table(&self) -> &Table<Pair> {
        &self.table
    }

    /// Frees fields, each for one of `budget`; true when none is left. What has been begun with is no hash any more.
    pub fn free_some(&mut self, budget: &mut usize) -> bool {
        while *budget != 0
            && let Some(timed) = &mut self.timed
        {
            if let Some((_, field)) = timed.order.pop_first() {
                timed.forget(&field);
            }
            *budget -= 1;
            self.settle();
        }
        self.timed.is_none() && self.table.free_some(budget)
    }
}
