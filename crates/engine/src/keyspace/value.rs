//! Values, and how the small ones lie in their entry's own allocation.

use super::entry::StringForm;
use crate::values::{
    Hash, HashRef, INLINE_BYTES_MAX, Ints, IntsRef, List, ListRef, Pack, PackRef, SHORT_BYTES_MAX, Set,
    SetRef, SortedSet, SortedSetRef,
};
use bytes::Bytes;

/// A value that is owned: with an allocation of its own, or on its way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    /// A string; replies share it without a copy.
    String(Bytes),
    /// A hash.
    Hash(Hash),
    /// A list.
    List(List),
    /// A set.
    Set(Set),
    /// A sorted set.
    SortedSet(SortedSet),
}

/// A value where it is kept.
#[derive(Clone, Copy, Debug)]
pub enum ValueRef<'a> {
    /// A string.
    String(&'a [u8]),
    /// A hash.
    Hash(HashRef<'a>),
    /// A list.
    List(ListRef<'a>),
    /// A set.
    Set(SetRef<'a>),
    /// A sorted set.
    SortedSet(SortedSetRef<'a>),
}

impl Default for Value {
    fn default() -> Self {
        Self::String(Bytes::new())
    }
}

/// How the payload of an entry is to be read: three bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Kind {
    /// A short string itself.
    String = 0,
    /// The address of a `Box<Value>`.
    Boxed = 1,
    /// The pack of a hash.
    HashPack = 2,
    /// The pack of a list.
    ListPack = 3,
    /// The integers of a set.
    SetInts = 4,
    /// The pack of a set.
    SetPack = 5,
    /// The pack of a sorted set.
    SortedPack = 6,
}

impl Kind {
    /// From the lowest three bits of an entry's tag.
    #[inline]
    pub(super) const fn of(tag: u8) -> Self {
        match tag & 0b111 {
            0 => Self::String,
            1 => Self::Boxed,
            2 => Self::HashPack,
            3 => Self::ListPack,
            4 => Self::SetInts,
            5 => Self::SetPack,
            _ => Self::SortedPack,
        }
    }

    /// The value in a payload of this kind; that of a box is not in it.
    #[inline]
    pub(super) fn read(self, payload: &[u8]) -> ValueRef<'_> {
        match self {
            Self::String | Self::Boxed => ValueRef::String(payload),
            Self::HashPack => ValueRef::Hash(HashRef::Pack(PackRef::new(payload))),
            Self::ListPack => ValueRef::List(ListRef::Pack(PackRef::new(payload))),
            Self::SetInts => ValueRef::Set(SetRef::Ints(IntsRef::new(payload))),
            Self::SetPack => ValueRef::Set(SetRef::Pack(PackRef::new(payload))),
            Self::SortedPack => ValueRef::SortedSet(SortedSetRef::Pack(PackRef::new(payload))),
        }
    }

    /// The same, owned.
    pub(super) fn own(self, payload: Vec<u8>) -> Value {
        match self {
            Self::String | Self::Boxed => Value::String(Bytes::from(payload)),
            Self::HashPack => Value::Hash(Hash::Pack(Pack::from_bytes(payload))),
            Self::ListPack => Value::List(List::Pack(Pack::from_bytes(payload))),
            Self::SetInts => Value::Set(Set::Ints(Ints::from_bytes(payload))),
            Self::SetPack => Value::Set(Set::Pack(Pack::from_bytes(payload))),
            Self::SortedPack => Value::SortedSet(SortedSet::Pack(Pack::from_bytes(payload))),
        }
    }
}

impl Value {
    /// Bytes that the value holds on the heap, its own struct included.
    pub fn size(&self) -> usize {
        let heap = match self {
            Self::String(bytes) => bytes.len(),
            Self::Hash(hash) => hash.heap_bytes(),
            Self::List(list) => list.heap_bytes(),
            Self::Set(set) => set.heap_bytes(),
            Self::SortedSet(set) => set.heap_bytes(),
        };
        size_of::<Self>() + heap
    }

    /// For reading.
    #[inline]
    pub fn as_ref(&self) -> ValueRef<'_> {
        match self {
            Self::String(bytes) => ValueRef::String(bytes),
            Self::Hash(hash) => ValueRef::Hash(hash.as_ref()),
            Self::List(list) => ValueRef::List(list.as_ref()),
            Self::Set(set) => ValueRef::Set(set.as_ref()),
            Self::SortedSet(set) => ValueRef::SortedSet(set.as_ref()),
        }
    }

    /// What an entry holds of it: a payload of its own, or `Err` where the value needs a box.
    pub(super) fn into_payload(self, len_end: usize) -> Result<(Kind, Vec<u8>), Self> {
        let (kind, bytes) = match self {
            Self::Hash(Hash::Pack(pack)) => (Kind::HashPack, pack.into_bytes()),
            Self::List(List::Pack(mut pack)) => {
                if pack.as_ref().bytes().len() > INLINE_BYTES_MAX {
                    pack.shrink();
                    return Err(Self::List(List::Pack(pack)));
                }
                (Kind::ListPack, pack.into_bytes())
            }
            Self::Set(Set::Ints(ints)) => (Kind::SetInts, ints.into_bytes()),
            Self::Set(Set::Pack(pack)) => (Kind::SetPack, pack.into_bytes()),
            Self::SortedSet(SortedSet::Pack(pack)) => (Kind::SortedPack, pack.into_bytes()),
            Self::String(bytes) if bytes.len() < len_end => (Kind::String, bytes.to_vec()),
            other => return Err(other),
        };
        if bytes.len() < len_end { Ok((kind, bytes)) } else { Err(kind.own(bytes)) }
    }

    /// Has a list that does not lie in its entry give back room; true if it has become so short that it should lie there.
    pub(super) fn trim_list(&mut self) -> bool {
        let Self::List(List::Pack(pack)) = self else { return false };
        pack.trim();
        pack.as_ref().bytes().len() <= SHORT_BYTES_MAX
    }

    /// Whether freeing it at once may take long.
    pub(super) fn is_large(&self) -> bool {
        match self {
            Self::String(_) => false,
            Self::Hash(hash) => hash.is_large(),
            Self::List(list) => list.is_large(),
            Self::Set(set) => set.is_large(),
            Self::SortedSet(set) => set.is_large(),
        }
    }

    /// Frees parts of it, each for one of `budget`; true when nothing is left.
    pub(super) fn free_some(&mut self, budget: &mut usize) -> bool {
        match self {
            Self::String(_) => true,
            Self::Hash(hash) => hash.free_some(budget),
            Self::List(list) => list.free_some(budget),
            Self::Set(set) => set.free_some(budget),
            Self::SortedSet(set) => set.free_some(budget),
        }
    }
}

impl ValueRef<'_> {
    /// Redis's name of the type, as TYPE prints it.
    pub const fn type_name(self) -> &'static str {
        match self {
            Self::String(_) => "string",
            Self::Hash(_) => "hash",
            Self::List(_) => "list",
            Self::Set(_) => "set",
            Self::SortedSet(_) => "zset",
        }
    }

    /// How many elements, and how many bytes they come to where it is large. A string, which is shared, is as short as can be.
    pub fn extent(self) -> (usize, usize) {
        match self {
            Self::String(_) => (0, 0),
            Self::Hash(hash) => hash.extent(),
            Self::List(list) => list.extent(),
            Self::Set(set) => set.extent(),
            Self::SortedSet(set) => set.extent(),
        }
    }

    /// Whether it is a collection without an element, which no key may hold.
    pub fn is_empty_collection(self) -> bool {
        match self {
            Self::String(_) => false,
            Self::Hash(hash) => hash.is_empty(),
            Self::List(list) => list.is_empty(),
            Self::Set(set) => set.is_empty(),
            Self::SortedSet(set) => set.is_empty(),
        }
    }
}

/// What a key holds, on its way to another key, database or shard.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Detached {
    /// The value.
    pub value: Value,
    /// The deadline in Unix milliseconds.
    pub expiry: Option<u64>,
    /// What OBJECT ENCODING says of it, if it is a string.
    pub form: StringForm,
}
