//! The table of one hash slot, or of a large collection: items in the order of their hashes.
//!
//! A leaf ([`Leaf`]) holds entries in the order of 16 bits of their hashes. One that outgrows its limit
//! ([`leaf_len_max`]) becomes a branch of 256 nodes by the next eight bits, as in a hash trie, so that no resize, however
//! many keys share one hash tag, is longer than one leaf. A branch whose leaves run empty becomes a leaf again. The order is
//! that of the whole hash at every size, hence a scan that remembers a position in it misses nothing whatever happens in
//! between.

use super::leaf::{LEVEL_BITS, Leaf, Position, tag_at};
use super::word::{Item, ItemMut, ItemRef, Word};

/// Entries that every leaf holds before it is split, and up to twice as many more. A split reads every key once, which takes
/// up to a millisecond.
const LEAF_LEN_MIN: usize = 2048;
/// Entries with which a branch becomes a leaf again, once one of its leaves is empty.
const MERGE_LEN: u32 = LEAF_LEN_MIN as u32 / 2;
/// A leaf with fewer entries is picked at random as much more seldom.
const EVEN_LEN: u64 = 16;
const FANOUT: usize = 256;
/// Levels below which a leaf is no longer split, for want of hash bits.
const LEVEL_MAX: u32 = 4;

/// One node of a slot's table.
pub(crate) enum Node<T: Item> {
    Leaf(Leaf<T>),
    Branch(Box<[Self; FANOUT]>),
}

impl<T: Item> Default for Node<T> {
    fn default() -> Self {
        Self::Leaf(Leaf::default())
    }
}

#[inline]
const fn child_at(hash: u64, level: u32) -> usize {
    ((hash << (LEVEL_BITS * level)) >> 56) as usize
}

/// Entries that one leaf holds before it is split, between 2048 and 6143. Leaves fill evenly, so that with one limit for
/// all of them many would be split in one turn.
const fn leaf_len_max(salt: u16, hash: u64, level: u32) -> usize {
    let path = if level == 0 { 0 } else { hash >> (u64::BITS - LEVEL_BITS * level) };
    let mixed = (path << 16 | salt as u64).wrapping_add(1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    LEAF_LEN_MIN + ((mixed >> 32) as usize % (2 * LEAF_LEN_MIN))
}

/// What [`Node::find_unless`] found.
pub(crate) enum Found<'a, T: Item> {
    /// No such key.
    Nothing,
    /// An entry that was to go: it has been taken out.
    Gone(T),
    /// An entry that stays.
    Entry(ItemMut<'a, T>),
}

/// How large tables are and how full, for DEBUG HTSTATS.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TableShape {
    /// Places for entries, those that are free included.
    pub places: u64,
    /// Entries.
    pub entries: u64,
    /// Arrays of places; each is searched, and resized, by itself.
    pub leaves: u64,
    /// Entries in the one that has most.
    pub largest: u64,
}

impl std::iter::Sum for TableShape {
    fn sum<I: Iterator<Item = Self>>(shapes: I) -> Self {
        shapes.fold(Self::default(), |sum, shape| Self {
            places: sum.places + shape.places,
            entries: sum.entries + shape.entries,
            leaves: sum.leaves + shape.leaves,
            largest: sum.largest.max(shape.largest),
        })
    }
}

impl<T: Item> Node<T> {
    /// The entry of `key`, whose hash is `hash`.
    #[inline]
    pub(crate) fn find(&mut self, hash: u64, key: &[u8]) -> Option<ItemMut<'_, T>> {
        let (leaf, level) = self.leaf_mut(hash);
        let at = leaf.find(tag_at(hash, level), key)?;
        Some(leaf.words[at].item_mut())
    }

    /// The item of `key`, for reading.
    #[inline]
    pub(crate) fn get(&self, hash: u64, key: &[u8]) -> Option<ItemRef<'_, T>> {
        let (leaf, level) = self.leaf(hash);
        Some(leaf.words[leaf.find(tag_at(hash, level), key)?].item())
    }

    /// One of the items in the leaf that `hash` leads to; `None` where it has none, and in proportion where it has few, so
    /// that their items are not picked more often than others: then try again with other numbers.
    pub(crate) fn random(&self, hash: u64, within: u64) -> Option<ItemRef<'_, T>> {
        let (leaf, level) = self.leaf(hash);
        let len = u64::from(leaf.len);
        let nth = within.checked_rem(if level == 0 { len } else { len.max(EVEN_LEN) })?;
        if nth < len { leaf.nth(nth as usize) } else { None }
    }

    /// Bytes of the leaf that a hash leads to, by entry in it.
    pub(crate) fn leaf_share(&self, hash: u64) -> usize {
        let (leaf, _) = self.leaf(hash);
        (leaf.words.len() * size_of::<Word<T>>()).checked_div(leaf.len as usize).unwrap_or(0)
    }

    /// The leaf that a hash leads to.
    #[inline]
    pub(crate) fn leaf(&self, hash: u64) -> (&Leaf<T>, u32) {
        let (mut node, mut level) = (self, 0);
        loop {
            match node {
                Self::Leaf(leaf) => return (leaf, level),
                Self::Branch(children) => node = &children[child_at(hash, level)],
            }
            level += 1;
        }
    }

    /// The entry of `key`, which is removed instead if `gone` says so.
    #[inline]
    pub(crate) fn find_unless(
        &mut self,
        hash: u64,
        key: &[u8],
        gone: impl FnOnce(&T) -> bool,
    ) -> Found<'_, T> {
        let (leaf, level) = self.leaf_mut(hash);
        let Some(at) = leaf.find(tag_at(hash, level), key) else { return Found::Nothing };
        if gone(&leaf.words[at].item()) {
            return Found::Gone(leaf.remove(at));
        }
        Found::Entry(leaf.words[at].item_mut())
    }

    #[inline]
    fn leaf_mut(&mut self, hash: u64) -> (&mut Leaf<T>, u32) {
        let (mut node, mut level) = (self, 0);
        loop {
            match node {
                Self::Leaf(leaf) => return (leaf, level),
                Self::Branch(children) => node = &mut children[child_at(hash, level)],
            }
            level += 1;
        }
    }

    /// Puts a new entry in; its key must not be there. `hash_of` is asked for the other keys' hashes on a split; `salt` is
    /// always the same for this table, and another one for others.
    pub(crate) fn insert(&mut self, hash: u64, item: T, salt: u16, hash_of: impl Fn(&[u8]) -> u64) {
        let (mut node, mut level) = (self, 0);
        while let Self::Branch(children) = node {
            node = &mut children[child_at(hash, level)];
            level += 1;
        }
        let Self::Leaf(leaf) = node else { return };
        leaf.insert(tag_at(hash, level), item);
        let len = leaf.len as usize;
        if len > LEAF_LEN_MIN && level < LEVEL_MAX && len > leaf_len_max(salt, hash, level) {
            let mut children: Box<[Self; FANOUT]> = Box::new(std::array::from_fn(|_| Self::default()));
            for entry in leaf.words.iter_mut().filter_map(Word::take) {
                let hash = hash_of(entry.key());
                let Self::Leaf(child) = &mut children[child_at(hash, level)] else { continue };
                child.insert(tag_at(hash, level + 1), entry);
            }
            *node = Self::Branch(children);
        }
    }

    /// Takes the entry of `key` out.
    pub(crate) fn remove(&mut self, hash: u64, key: &[u8]) -> Option<T> {
        let (leaf, level) = self.leaf_mut(hash);
        let at = leaf.find(tag_at(hash, level), key)?;
        let item = leaf.remove(at);
        if leaf.len == 0 {
            self.merge(hash, 0);
        }
        Some(item)
    }

    /// Makes leaves of the branches on the way to `hash` that have become small.
    fn merge(&mut self, hash: u64, level: u32) {
        let Self::Branch(children) = self else { return };
        children[child_at(hash, level)].merge(hash, level + 1);
        let mut len = 0;
        for child in children.iter() {
            let Self::Leaf(leaf) = child else { return };
            len += leaf.len;
            if len > MERGE_LEN {
                return;
            }
        }
        let mut whole = Leaf::default();
        for (idx, child) in children.iter_mut().enumerate() {
            let Self::Leaf(leaf) = child else { continue };
            for word in &mut leaf.words {
                // The child's bits of the hash, and the upper half of those that the leaf was sorted by.
                let tag = (idx as u16) << LEVEL_BITS | word.tag() >> LEVEL_BITS;
                if let Some(item) = word.take() {
                    whole.insert(tag, item);
                }
            }
        }
        *self = Self::Leaf(whole);
    }

    /// Entries in it, walking branches.
    pub(crate) fn len(&self) -> usize {
        match self {
            Self::Leaf(leaf) => leaf.len as usize,
            Self::Branch(children) => children.iter().map(Self::len).sum(),
        }
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        matches!(self, Self::Leaf(leaf) if leaf.len == 0)
    }

    /// How large it is and how full; looks at every leaf.
    pub(crate) fn shape(&self) -> TableShape {
        match self {
            Self::Leaf(leaf) => TableShape {
                places: leaf.words.len() as u64,
                entries: u64::from(leaf.len),
                leaves: u64::from(!leaf.words.is_empty()),
                largest: u64::from(leaf.len),
            },
            Self::Branch(children) => children.iter().map(Self::shape).sum(),
        }
    }

    /// Bytes of the tables themselves.
    pub(crate) fn table_bytes(&self) -> usize {
        match self {
            Self::Leaf(leaf) => leaf.words.len() * size_of::<Word<T>>(),
            Self::Branch(children) => {
                size_of::<[Self; FANOUT]>() + children.iter().map(Self::table_bytes).sum::<usize>()
            }
        }
    }

    /// Calls `visit` for entries in the order of their hashes from `from` on. Stops, when `visit` has answered false, at the
    /// next position that lies between two different hashes; returns it, or `None` at the end.
    pub(crate) fn walk<'a>(
        &'a self,
        from: Position,
        visit: &mut dyn FnMut(ItemRef<'a, T>) -> bool,
    ) -> Option<Position> {
        self.walk_level(from, 0, 0, visit)
    }

    /// `prefix` holds the hash bits of the levels above.
    fn walk_level<'a>(
        &'a self,
        from: Position,
        level: u32,
        prefix: u64,
        visit: &mut dyn FnMut(ItemRef<'a, T>) -> bool,
    ) -> Option<Position> {
        match self {
            Self::Leaf(leaf) => leaf.walk(from, level, prefix, visit),
            Self::Branch(children) => {
                let first = child_at(from, level);
                for (idx, child) in children.iter().enumerate().skip(first) {
                    let below = prefix | (idx as u64) << (56 - LEVEL_BITS * level);
                    let from = if idx == first { from } else { below };
                    if let Some(next) = child.walk_level(from, level + 1, below, visit) {
                        return Some(next);
                    }
                }
                None
            }
        }
    }

    /// Removes the entries with hashes between `first` and `last` for which `keep` answers false. `keep` may also see entries
    /// with other hashes, those that share a tag with the bounds.
    pub(crate) fn retain(&mut self, first: u64, last: u64, keep: &mut dyn FnMut(ItemMut<'_, T>) -> bool) {
        self.retain_level(first, last, 0, keep);
    }

    fn retain_level(
        &mut self,
        first: u64,
        last: u64,
        level: u32,
        keep: &mut dyn FnMut(ItemMut<'_, T>) -> bool,
    ) {
        match self {
            Self::Leaf(leaf) => leaf.retain(tag_at(first, level), tag_at(last, level), keep),
            Self::Branch(children) => {
                let (from, to) = (child_at(first, level), child_at(last, level));
                for (idx, child) in children.iter_mut().enumerate().take(to + 1).skip(from) {
                    let first = if idx == from { first } else { 0 };
                    let last = if idx == to { last } else { u64::MAX };
                    child.retain_level(first, last, level + 1, keep);
                }
                if children[from].is_empty() {
                    self.merge(first, level);
                }
            }
        }
    }

    /// Hands up to `budget` items to `free`; true when nothing is left. A node that has been
    /// begun with is no table any more.
    pub(crate) fn free_some(&mut self, budget: &mut usize, free: &mut dyn FnMut(T)) -> bool {
        match self {
            Self::Leaf(leaf) => {
                leaf.free_some(budget, free);
                leaf.len == 0
            }
            Self::Branch(children) => {
                for child in children.iter_mut().filter(|child| !child.is_empty()) {
                    if !child.free_some(budget, free) {
                        return false;
                    }
                }
                *self = Self::default();
                true
            }
        }
    }
}

impl<T: Item> Node<T> {
    /// An entry by its number in hash order; `None` where there are fewer.
    pub(crate) fn nth(&self, mut nth: usize) -> Option<ItemRef<'_, T>> {
        match self {
            Self::Leaf(leaf) => leaf.nth(nth),
            Self::Branch(children) => children.iter().find_map(|child| {
                let len = child.len();
                if nth < len {
                    return child.nth(nth);
                }
                nth -= len;
                None
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::entry::{Entry, NewValue};
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    fn mix(x: u64) -> u64 {
        let x = (x ^ (x >> 31)).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        (x ^ (x >> 29)).wrapping_mul(0xBF58_476D_1CE4_E5B9)
    }
    fn hash(key: &[u8]) -> u64 {
        key.iter().fold(7, |h, b| mix(h ^ u64::from(*b)))
    }
    fn entry(key: &[u8]) -> Entry {
        Entry::new(key, NewValue::Slice(b"v"), None)
    }

    proptest! {
        #[test]
        fn behaves_like_a_map_whatever_the_hashes(
            ops in prop::collection::vec((any::<bool>(), 0..60u8), 0..300), bits in 1..64u32
        ) {
            let squeeze = |key: &[u8]| hash(key) & (u64::MAX << (64 - bits));
            let (mut node, mut model) = (Node::<Entry>::default(), BTreeMap::new());
            for (add, key) in ops {
                let key = [b'k', key];
                if add && node.find(squeeze(&key), &key).is_none() {
                    node.insert(squeeze(&key), entry(&key), 0, squeeze);
                    model.insert(key, ());
                } else if !add {
                    prop_assert_eq!(node.remove(squeeze(&key), &key).is_some(), model.remove(&key).is_some());
                }
                prop_assert_eq!(node.len(), model.len());
                for key in model.keys() {
                    prop_assert!(node.find(squeeze(key), key).is_some());
                }
            }
        }
    }

    #[test]
    fn a_walk_in_steps_returns_every_key_once_also_across_splits() {
        let mut node = Node::<Entry>::default();
        let keys: Vec<Vec<u8>> = (0..30_000u32).map(|k| k.to_le_bytes().to_vec()).collect();
        for key in &keys {
            node.insert(hash(key), entry(key), 0, hash);
        }
        assert!(matches!(node, Node::Branch(_)));
        let (mut seen, mut from) = (Vec::new(), Some(0));
        while let Some(position) = from {
            let mut left = 10;
            from = node.walk(position, &mut |entry| {
                seen.push(entry.key().to_vec());
                left -= 1;
                left > 0
            });
        }
        let mut expected = keys;
        expected.sort();
        seen.sort();
        assert_eq!(seen, expected);
    }

    #[test]
    fn retain_looks_at_a_range_of_hashes_on_every_level() {
        // All keys share the first 14 bits of their hash, so that leaves of three levels are looked at.
        let hash_of = |key: &[u8]| hash(key) >> 14;
        let mut node = Node::<Entry>::default();
        let keys: Vec<Vec<u8>> = (0..30_000u32).map(|k| k.to_le_bytes().to_vec()).collect();
        for key in &keys {
            node.insert(hash_of(key), entry(key), 0, hash_of);
        }
        for bits in [10, 18, 20, 26] {
            let (first, last) = (0x2_AAAA_AAAA_AAAA, 0x2_AAAA_AAAA_AAAA | u64::MAX >> bits);
            let (mut seen, mut len) = (Vec::new(), node.len());
            node.retain(first, last, &mut |entry| {
                let hash = hash_of(entry.key());
                if (first..=last).contains(&hash) {
                    seen.push(entry.key().to_vec());
                }
                !(first..=last).contains(&hash) || hash & 1 == 0
            });
            len -= seen.iter().filter(|key| hash_of(key) & 1 == 1).count();
            assert_eq!(node.len(), len);
            let within = |key: &&Vec<u8>| (first..=last).contains(&hash_of(key));
            let left: Vec<&Vec<u8>> = keys.iter().filter(within).collect();
            assert!(left.iter().all(|key| node.find(hash_of(key), key).is_some() == (hash_of(key) & 1 == 0)));
            assert!(seen.len() >= left.iter().filter(|key| hash_of(key) & 1 == 0).count());
        }
    }

    #[test]
    fn leaves_are_split_at_different_times() {
        // As many inserts as fill all leaves of a branch meet few splits in any stretch of them.
        let mut limits: Vec<usize> = (0..256).map(|child| leaf_len_max(7, child << 56, 1)).collect();
        limits.extend((0..16_384).map(|slot| leaf_len_max(slot, 0, 0)));
        assert!(limits.iter().all(|limit| (LEAF_LEN_MIN..3 * LEAF_LEN_MIN).contains(limit)));
        for (some, most) in [(&limits[..256], 10), (&limits[256..], 200)] {
            for from in (LEAF_LEN_MIN..3 * LEAF_LEN_MIN).step_by(32) {
                let together = some.iter().filter(|limit| (from..from + 32).contains(*limit)).count();
                assert!(together <= most, "{together} of {} from {from} on", some.len());
            }
        }
    }

    #[test]
    fn tables_cost_about_ten_bytes_a_key_at_every_size() {
        let mut node = Node::<Entry>::default();
        for key in 0..8000u32 {
            node.insert(hash(&key.to_le_bytes()), entry(&key.to_le_bytes()), 0, hash);
            if key >= 100 {
                let per_key = node.table_bytes() as f64 / f64::from(key + 1);
                assert!((8.0..13.0).contains(&per_key), "{per_key} bytes at {key} keys");
            }
        }
    }

    #[test]
    fn branches_become_leaves_again() {
        let mut node = Node::<Entry>::default();
        let keys: Vec<Vec<u8>> = (0..2_000_000u32).map(|k| k.to_le_bytes().to_vec()).collect();
        for key in &keys {
            node.insert(hash(key), entry(key), 0, hash);
        }
        let leaves = |node: &Node<Entry>| {
            let Node::Branch(children) = node else { return 1 };
            children.iter().map(|child| if let Node::Branch(_) = child { FANOUT } else { 1 }).sum::<usize>()
        };
        assert_eq!(leaves(&node), FANOUT * FANOUT);
        let (gone, left) = keys.split_at(keys.len() - 3000);
        for (idx, key) in gone.iter().enumerate() {
            assert!(node.remove(hash(key), key).is_some());
            if idx % 100_000 == 0 {
                assert!(keys[idx + 1..].iter().step_by(999).all(|key| node.get(hash(key), key).is_some()));
            }
        }
        assert_eq!((node.len(), leaves(&node)), (left.len(), FANOUT));
        let mut seen = Vec::new();
        node.walk(0, &mut |entry| {
            seen.push(hash(entry.key()));
            true
        });
        assert!(seen.is_sorted_by_key(|hash| hash >> 40), "in the order of the hashes");
        for key in left {
            assert!(node.remove(hash(key), key).is_some());
        }
        assert!(node.is_empty());
    }

    #[test]
    fn deleting_shrinks_and_freeing_is_bounded() {
        let mut node = Node::<Entry>::default();
        for key in 0..20_000u32 {
            node.insert(hash(&key.to_le_bytes()), entry(&key.to_le_bytes()), 0, hash);
        }
        let full = node.table_bytes();
        for key in 0..19_000u32 {
            assert!(node.remove(hash(&key.to_le_bytes()), &key.to_le_bytes()).is_some());
        }
        assert!(node.table_bytes() < full / 4, "{} of {full}", node.table_bytes());
        let (mut steps, mut freed) = (1, 0);
        while !node.free_some(&mut 100, &mut |entry| freed += entry.size()) {
            steps += 1;
        }
        assert_eq!((steps, freed), (10, 1000 * entry(&[0; 4]).size()));
        assert!(node.is_empty());
        assert_eq!(node.table_bytes(), 0);
    }
}
