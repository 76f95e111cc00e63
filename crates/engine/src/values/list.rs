//! Lists: elements in an order, with two ends.

use super::pack::{Pack, PackRef};

/// Elements in an order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum List {
    /// Few: one behind the other.
    Pack(Pack),
}

/// The same, for reading.
#[derive(Clone, Copy, Debug)]
pub enum ListRef<'a> {
    /// Few: one behind the other.
    Pack(PackRef<'a>),
}

impl Default for List {
    fn default() -> Self {
        Self::Pack(Pack::default())
    }
}

impl List {
    /// For reading.
    #[inline]
    pub fn as_ref(&self) -> ListRef<'_> {
        let Self::Pack(pack) = self;
        ListRef::Pack(pack.as_ref())
    }

    /// Bytes on the heap.
    pub fn heap_bytes(&self) -> usize {
        let Self::Pack(pack) = self;
        pack.heap_bytes()
    }

    /// Whether freeing it at once may take long.
    pub const fn is_large(&self) -> bool {
        false
    }

    /// Removes elements for the sake of their memory, each for one of `budget`; true when none is left.
    pub fn free_some(&mut self, budget: &mut usize) -> bool {
        *budget = budget.saturating_sub(1);
        *self = Self::default();
        true
    }
}

impl ListRef<'_> {
    /// How many elements it has.
    pub fn len(self) -> usize {
        let Self::Pack(pack) = self;
        pack.len()
    }

    /// Whether it has none.
    pub fn is_empty(self) -> bool {
        self.len() == 0
    }

    /// What OBJECT ENCODING says.
    pub const fn encoding(self) -> &'static str {
        "listpack"
    }
}
