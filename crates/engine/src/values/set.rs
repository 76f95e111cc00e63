//! Sets: members without order.

use super::ints::{Ints, IntsRef};
use super::pack::{Pack, PackRef};

/// Members without order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Set {
    /// Integers only, and not many.
    Ints(Ints),
    /// Few and short ones.
    Pack(Pack),
}

/// The same, for reading.
#[derive(Clone, Copy, Debug)]
pub enum SetRef<'a> {
    /// Integers only, and not many.
    Ints(IntsRef<'a>),
    /// Few and short ones.
    Pack(PackRef<'a>),
}

impl Default for Set {
    fn default() -> Self {
        Self::Ints(Ints::default())
    }
}

impl Set {
    /// For reading.
    #[inline]
    pub fn as_ref(&self) -> SetRef<'_> {
        match self {
            Self::Ints(ints) => SetRef::Ints(ints.as_ref()),
            Self::Pack(pack) => SetRef::Pack(pack.as_ref()),
        }
    }

    /// Bytes on the heap.
    pub fn heap_bytes(&self) -> usize {
        match self {
            Self::Ints(ints) => ints.heap_bytes(),
            Self::Pack(pack) => pack.heap_bytes(),
        }
    }

    /// Whether freeing it at once may take long.
    pub const fn is_large(&self) -> bool {
        false
    }

    /// Removes members for the sake of their memory, each for one of `budget`; true when none is left.
    pub fn free_some(&mut self, budget: &mut usize) -> bool {
        *budget = budget.saturating_sub(1);
        *self = Self::default();
        true
    }
}

impl SetRef<'_> {
    /// How many members it has.
    pub fn len(self) -> usize {
        match self {
            Self::Ints(ints) => ints.len(),
            Self::Pack(pack) => pack.len(),
        }
    }

    /// Whether it has none.
    pub fn is_empty(self) -> bool {
        self.len() == 0
    }

    /// What OBJECT ENCODING says.
    pub const fn encoding(self) -> &'static str {
        match self {
            Self::Ints(_) => "intset",
            Self::Pack(_) => "listpack",
        }
    }
}
