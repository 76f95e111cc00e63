//! Sorted sets: members with scores, in the order of score and member.

use super::pack::{Pack, PackRef};

/// Members with scores.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SortedSet {
    /// Few and short ones: member, score, member, score, … in ascending order.
    Pack(Pack),
}

/// The same, for reading.
#[derive(Clone, Copy, Debug)]
pub enum SortedSetRef<'a> {
    /// Few and short ones: member, score, member, score, … in ascending order.
    Pack(PackRef<'a>),
}

impl Default for SortedSet {
    fn default() -> Self {
        Self::Pack(Pack::default())
    }
}

impl SortedSet {
    /// For reading.
    #[inline]
    pub fn as_ref(&self) -> SortedSetRef<'_> {
        let Self::Pack(pack) = self;
        SortedSetRef::Pack(pack.as_ref())
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

impl SortedSetRef<'_> {
    /// How many members it has.
    pub fn len(self) -> usize {
        let Self::Pack(pack) = self;
        pack.len() / 2
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
