//! The large form of hashes, sets and sorted sets: elements found by their keys, in the order of their hashes.
//!
//! It is the keyspace's own table ([`Node`]): 8 to 11 bytes an element beyond the element itself, no operation that is longer
//! than one leaf, and an order in which a scan misses nothing whatever happens in between.

use super::blob::Blob;
use crate::keyspace::{Item, ItemRef, KeyHasher, Node, TableShape};
use std::ptr::NonNull;

/// About what an element costs in the table, in bytes.
const SHARE: usize = 10;
/// How often an element is looked for at random.
const PICKS: usize = 64;

/// Elements by key.
pub struct Table<T: Item> {
    node: Node<T>,
    len: usize,
    /// Of all elements.
    bytes: usize,
    hasher: KeyHasher,
}

impl<T: Item> Table<T> {
    /// An empty table; an outsider who does not know `seed` cannot make keys collide.
    pub fn new(seed: u64) -> Self {
        Self { node: Node::default(), len: 0, bytes: 0, hasher: KeyHasher::new(seed) }
    }

    /// How many elements it has.
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Whether it has none.
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// How large it is and how full; looks at every leaf.
    pub fn shape(&self) -> TableShape {
        self.node.shape()
    }

    /// Bytes on the heap, about.
    pub const fn heap_bytes(&self) -> usize {
        self.bytes + self.len * SHARE
    }

    /// The element of a key.
    #[inline]
    pub fn get(&self, key: &[u8]) -> Option<ItemRef<'_, T>> {
        self.node.get(self.hasher.hash(key), key)
    }

    /// Whether there is an element of this key.
    #[inline]
    pub fn contains(&self, key: &[u8]) -> bool {
        self.get(key).is_some()
    }

    /// Changes an element, but not its key; `None` if it is not there.
    pub fn edit<R>(&mut self, key: &[u8], change: impl FnOnce(&mut T) -> R) -> Option<R> {
        let mut item = self.node.find(self.hasher.hash(key), key)?;
        self.bytes -= item.heap_bytes();
        let result = change(&mut item);
        self.bytes += item.heap_bytes();
        Some(result)
    }

    /// Adds an element; there must be none with its key.
    pub fn insert(&mut self, item: T) {
        self.len += 1;
        self.bytes += item.heap_bytes();
        let (hash, hasher) = (self.hasher.hash(item.key()), &self.hasher);
        self.node.insert(hash, item, 0, |key| hasher.hash(key));
    }

    /// Takes an element out.
    pub fn remove(&mut self, key: &[u8]) -> Option<T> {
        let item = self.node.remove(self.hasher.hash(key), key)?;
        self.len -= 1;
        self.bytes -= item.heap_bytes();
        Some(item)
    }

    /// An element picked nearly evenly by random numbers; `None` if there is none.
    pub fn random(&self, mut random: impl FnMut() -> u64) -> Option<ItemRef<'_, T>> {
        if self.is_empty() {
            return None;
        }
        // About every fourth pick finds an element in the sparsest of tables.
        (0..PICKS).find_map(|_| self.node.random(random(), random())).or_else(|| self.node.nth(0))
    }

    /// Visits elements in scan order from `from` on, until about `budget` have been seen. Returns where to go on, `None` at the
    /// end. An element that is there all the time is visited by a series of such calls exactly once.
    pub fn walk<'a>(
        &'a self,
        from: u64,
        mut budget: usize,
        visit: &mut dyn FnMut(ItemRef<'a, T>),
    ) -> Option<u64> {
        self.node.walk(from, &mut |item| {
            visit(item);
            budget = budget.saturating_sub(1);
            budget != 0
        })
    }

    /// Visits all elements.
    pub fn for_each<'a>(&'a self, mut visit: impl FnMut(ItemRef<'a, T>)) {
        self.walk(0, usize::MAX, &mut visit);
    }

    /// Frees elements, each for one of `budget`; true when none is left. What has been begun with is no table any more.
    pub fn free_some(&mut self, budget: &mut usize) -> bool {
        let Self { node, len, bytes, .. } = self;
        node.free_some(budget, &mut |item| {
            *len -= 1;
            *bytes -= item.heap_bytes();
        })
    }
}

impl<T: Item + Clone> Table<T> {
    /// An empty one, to be filled by [`Self::copy_some`].
    pub fn like(other: &Self) -> Self {
        Self { node: Node::default(), len: 0, bytes: 0, hasher: other.hasher.clone() }
    }

    /// Copies about `budget` elements of another table, from a place of [`Self::walk`] on. Returns where to go on.
    pub fn copy_some(&mut self, from: &Self, place: u64, budget: usize) -> Option<u64> {
        from.walk(place, budget, &mut |item| self.insert(T::clone(&item)))
    }
}

impl<T: Item + Clone> Clone for Table<T> {
    fn clone(&self) -> Self {
        let mut copy = Self::like(self);
        copy.copy_some(self, 0, usize::MAX);
        copy
    }
}

impl<T: Item + PartialEq> PartialEq for Table<T> {
    fn eq(&self, other: &Self) -> bool {
        let mut equal = self.len == other.len;
        self.for_each(|item| equal = equal && other.get(item.key()).is_some_and(|same| *same == *item));
        equal
    }
}

impl<T: Item + Eq> Eq for Table<T> {}

impl<T: Item> std::fmt::Debug for Table<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Table").field("len", &self.len).finish_non_exhaustive()
    }
}

/// An element that is nothing but a [`Blob`].
pub trait BlobItem: Item {
    /// The blob.
    fn blob(&self) -> &Blob;
}

macro_rules! blob_items {
    ($($(#[$doc:meta])* $name:ident, $key:ident;)*) => {
        $(
            $(#[$doc])*
            #[derive(Clone, Debug, PartialEq, Eq)]
            #[repr(transparent)]
            pub struct $name(Blob);

            // SAFETY: the pointer is that of the blob's allocation, and a blob is nothing else.
            unsafe impl Item for $name {
                #[inline]
                fn key(&self) -> &[u8] {
                    $key(self.0.bytes())
                }
                #[inline]
                fn into_raw(self) -> NonNull<u8> {
                    self.0.into_raw()
                }
                #[inline]
                unsafe fn from_raw(raw: NonNull<u8>) -> Self {
                    // SAFETY: the caller's promise is the same.
                    Self(unsafe { Blob::from_raw(raw) })
                }
                #[inline]
                fn heap_bytes(&self) -> usize {
                    self.0.heap_bytes()
                }
            }

            impl BlobItem for $name {
                #[inline]
                fn blob(&self) -> &Blob {
                    &self.0
                }
            }
        )*
    };
}

blob_items! {
    /// The member of a set.
    Member, whole;
    /// A field with its value.
    Pair, field_of;
    /// A member with its score.
    Scored, member_of;
}

const fn whole(bytes: &[u8]) -> &[u8] {
    bytes
}

impl Member {
    /// A member.
    pub fn new(bytes: &[u8]) -> Self {
        Self(Blob::new(&[bytes]))
    }
}

/// Length of a pair's field, and where it begins: a byte, or 0xff and four.
#[inline]
fn field_place(bytes: &[u8]) -> (usize, usize) {
    match bytes {
        [0xFF, a, b, c, d, ..] => (u32::from_le_bytes([*a, *b, *c, *d]) as usize, 5),
        [short, ..] => (usize::from(*short), 1),
        [] => (0, 0),
    }
}

/// The field in the bytes of a [`Pair`].
#[inline]
pub(super) fn field_of(bytes: &[u8]) -> &[u8] {
    let (len, at) = field_place(bytes);
    &bytes[at..at + len]
}

/// The value in the bytes of a [`Pair`].
#[inline]
pub fn value_of(bytes: &[u8]) -> &[u8] {
    let (len, at) = field_place(bytes);
    &bytes[at + len..]
}

impl Pair {
    /// A field with its value.
    pub fn new(field: &[u8], value: &[u8]) -> Self {
        if field.len() < 0xFF {
            return Self(Blob::new(&[&[field.len() as u8], field, value]));
        }
        let len = (field.len() as u32).to_le_bytes();
        Self(Blob::new(&[&[0xFF], &len, field, value]))
    }

    /// The field.
    pub fn field(&self) -> &[u8] {
        field_of(self.0.bytes())
    }

    /// The value.
    pub fn value(&self) -> &[u8] {
        value_of(self.0.bytes())
    }

    /// Another value for the field.
    pub fn set_value(&mut self, value: &[u8]) {
        if value.len() == self.value().len() {
            let bytes = self.0.bytes_mut();
            let at = bytes.len() - value.len();
            bytes[at..].copy_from_slice(value);
        } else {
            *self = Self::new(self.field(), value);
        }
    }
}

const SCORE_LEN: usize = 8;

#[inline]
fn member_of(bytes: &[u8]) -> &[u8] {
    &bytes[SCORE_LEN..]
}

/// The score in the bytes of a [`Scored`].
#[inline]
pub fn score_of(bytes: &[u8]) -> f64 {
    let mut word = [0; SCORE_LEN];
    word.copy_from_slice(&bytes[..SCORE_LEN]);
    f64::from_le_bytes(word)
}

impl Scored {
    /// A member with its score.
    pub fn new(member: &[u8], score: f64) -> Self {
        Self(Blob::new(&[&score.to_le_bytes(), member]))
    }

    /// The score.
    #[inline]
    pub fn score(&self) -> f64 {
        score_of(self.0.bytes())
    }

    /// Another score for the member.
    pub fn set_score(&mut self, score: f64) {
        self.0.bytes_mut()[..SCORE_LEN].copy_from_slice(&score.to_le_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    proptest! {
        #[test]
        fn behaves_like_a_map(ops in prop::collection::vec((0..4u8, 0..200u16, 0..300usize), 0..400)) {
            let (mut table, mut model) = (Table::<Pair>::new(7), BTreeMap::<Vec<u8>, Vec<u8>>::new());
            for (op, key, len) in ops {
                let key = vec![b'k'; usize::from(key)];
                let value = vec![b'v'; len];
                match op {
                    0 => prop_assert_eq!(table.remove(&key).is_some(), model.remove(&key).is_some()),
                    1 => {
                        let there = table.edit(&key, |pair| pair.set_value(&value)).is_some();
                        prop_assert_eq!(there, model.contains_key(&key));
                        model.entry(key).and_modify(|old| *old = value);
                    }
                    _ if !table.contains(&key) => {
                        table.insert(Pair::new(&key, &value));
                        model.insert(key, value);
                    }
                    _ => {}
                }
                prop_assert_eq!(table.len(), model.len());
            }
            let mut seen = BTreeMap::new();
            let (mut from, mut bytes) = (Some(0), 0);
            while let Some(position) = from {
                from = table.walk(position, 3, &mut |pair| {
                    bytes += pair.heap_bytes();
                    seen.insert(pair.field().to_vec(), pair.value().to_vec());
                });
            }
            prop_assert_eq!(&seen, &model);
            prop_assert_eq!(table.heap_bytes(), bytes + model.len() * SHARE);
            prop_assert_eq!(&table.clone(), &table);
            for (key, value) in &model {
                let pair = Pair::new(key, value);
                prop_assert_eq!(table.get(key).unwrap().bytes(), pair.blob().bytes());
            }
        }
    }

    #[test]
    fn every_element_is_picked_about_as_often() {
        let mut table = Table::<Member>::new(1);
        for n in 0..20_000u32 {
            table.insert(Member::new(&n.to_le_bytes()));
        }
        let mut rng = crate::ctx::Rng::new(3);
        let mut counts = vec![0u32; 20_000];
        for _ in 0..400_000 {
            let member = table.random(|| rng.next()).unwrap();
            let bytes: [u8; 4] = member.bytes().try_into().unwrap();
            counts[u32::from_le_bytes(bytes) as usize] += 1;
        }
        assert!(counts.iter().all(|count| (1..150).contains(count)), "{:?}", counts.iter().max());
        for n in 0..19_000u32 {
            table.remove(&n.to_le_bytes()).unwrap();
        }
        // Four or so in a leaf, seldom none.
        counts.fill(0);
        for _ in 0..100_000 {
            let member = table.random(|| rng.next()).unwrap();
            let bytes: [u8; 4] = member.bytes().try_into().unwrap();
            counts[u32::from_le_bytes(bytes) as usize] += 1;
        }
        let left = &counts[19_000..];
        assert!(
            left.iter().all(|count| (50..160).contains(count)),
            "{:?} {:?}",
            left.iter().min(),
            left.iter().max()
        );
    }

    #[test]
    fn scores_change_in_place_and_freeing_is_bounded() {
        let mut table = Table::<Scored>::new(9);
        for n in 0..1000u32 {
            table.insert(Scored::new(&n.to_le_bytes(), f64::from(n)));
        }
        table.edit(&7u32.to_le_bytes(), |scored| scored.set_score(-1.5)).unwrap();
        assert_eq!(table.get(&7u32.to_le_bytes()).unwrap().score(), -1.5);
        let mut steps = 1;
        while !table.free_some(&mut 100) {
            steps += 1;
        }
        assert_eq!((steps, table.heap_bytes()), (10, 0));
    }
}
