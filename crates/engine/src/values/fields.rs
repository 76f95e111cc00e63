//! The large form of a hash: fields with their values in a table.

use super::table::{Pair, Table, value_of};

/// Fields with values, found by the field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fields {
    table: Table<Pair>,
}

impl Fields {
    /// None yet; see [`Table::new`] about `seed`.
    pub fn new(seed: u64) -> Self {
        Self { table: Table::new(seed) }
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
    pub const fn heap_bytes(&self) -> usize {
        size_of::<Self>() + self.table.heap_bytes()
    }

    /// The value of a field.
    #[inline]
    pub fn get(&self, field: &[u8]) -> Option<&[u8]> {
        self.table.get(field).map(|pair| value_of(pair.bytes()))
    }

    /// Sets the value of a field; true if the field is new.
    pub fn set(&mut self, field: &[u8], value: &[u8]) -> bool {
        let there = self.table.edit(field, |pair| pair.set_value(value)).is_some();
        if !there {
            self.table.insert(Pair::new(field, value));
        }
        !there
    }

    /// Removes a field; true if it was there.
    pub fn remove(&mut self, field: &[u8]) -> bool {
        self.table.remove(field).is_some()
    }

    /// The fields and values themselves.
    pub const fn table(&self) -> &Table<Pair> {
        &self.table
    }

    /// Frees fields, each for one of `budget`; true when none is left. What has been begun with is no hash any more.
    pub fn free_some(&mut self, budget: &mut usize) -> bool {
        self.table.free_some(budget)
    }
}
