//! Members with scores on their way: results before they are a sorted set, and what one shard sends another.
//!
//! All members lie in one piece of memory, so that a million of them cost two allocations, not a million.

use super::order::compare;
use crate::keyspace::KeyHasher;
use hashbrown::HashTable;
use std::cmp::Ordering;

/// Members with scores, in the order in which they came.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Tally {
    bytes: Vec<u8>,
    items: Vec<Item>,
    longest: usize,
}

#[derive(Clone, Copy, Debug, PartialEq)]
struct Item {
    at: usize,
    len: usize,
    score: f64,
}

impl Tally {
    /// With room for so many members that have so many bytes together: what grows is copied at once.
    pub fn with_capacity(members: usize, bytes: usize) -> Self {
        Self { bytes: Vec::with_capacity(bytes), items: Vec::with_capacity(members), longest: 0 }
    }

    /// Adds a member with its score, whether or not it is there already.
    pub fn push(&mut self, member: &[u8], score: f64) {
        self.items.push(Item { at: self.bytes.len(), len: member.len(), score });
        self.bytes.extend_from_slice(member);
        self.longest = self.longest.max(member.len());
    }

    /// How many members it has.
    pub const fn len(&self) -> usize {
        self.items.len()
    }

    /// Whether it has none.
    pub const fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    /// How many members there is room for.
    #[cfg(test)]
    pub const fn room(&self) -> usize {
        self.items.capacity()
    }

    /// Bytes of all members together.
    pub const fn bytes(&self) -> usize {
        self.bytes.len()
    }

    /// Bytes of its longest member.
    pub const fn longest(&self) -> usize {
        self.longest
    }

    fn member(&self, item: &Item) -> &[u8] {
        &self.bytes[item.at..item.at + item.len]
    }

    /// The member at a place, with its score.
    pub fn at(&self, place: usize) -> (&[u8], f64) {
        let item = &self.items[place];
        (self.member(item), item.score)
    }

    /// Which of the members at two places comes first in a sorted set.
    pub fn compare(&self, a: u32, b: u32) -> Ordering {
        let pair = |(member, score)| (score, member);
        compare(pair(self.at(a as usize)), pair(self.at(b as usize)))
    }

    /// Visits the members at about `budget` places from a place on; returns where to go on, `None` at the end.
    pub fn walk(&self, from: u64, budget: usize, visit: &mut dyn FnMut(&[u8], f64)) -> Option<u64> {
        let end = (from as usize).saturating_add(budget).min(self.len());
        self.items[from as usize..end].iter().for_each(|item| visit(self.member(item), item.score));
        (end < self.len()).then_some(end as u64)
    }

    /// Its members with their scores, in order.
    pub fn iter(&self) -> impl Iterator<Item = (&[u8], f64)> {
        self.items.iter().map(|item| (self.member(item), item.score))
    }

    /// Brings them into the order of sorted sets. Takes O(N) for what is sorted already, or in a few parts.
    pub fn sort(&mut self) {
        let bytes = &self.bytes;
        let pair = |item: &Item| (item.score, &bytes[item.at..item.at + item.len]);
        self.items.sort_by(|a, b| compare(pair(a), pair(b)));
    }
}

/// Finds members of a tally, each of which is there once. It knows places only, so it goes with one tally, which it is given each
/// time.
#[derive(Clone, Debug)]
pub struct TallyIndex {
    places: HashTable<u32>,
    hasher: KeyHasher,
}

impl TallyIndex {
    /// With room for so many members; an outsider who does not know `seed` cannot make them collide.
    pub fn new(members: usize, seed: u64) -> Self {
        Self { places: HashTable::with_capacity(members), hasher: KeyHasher::new(seed) }
    }

    /// Lists the members at about `budget` more places; true when all are listed.
    pub fn list_some(&mut self, tally: &Tally, budget: usize) -> bool {
        let Self { places, hasher } = self;
        let from = places.len();
        let end = from.saturating_add(budget).min(tally.len());
        let hash_at = |place: &u32| hasher.hash(tally.at(*place as usize).0);
        for place in from as u32..end as u32 {
            places.insert_unique(hash_at(&place), place, hash_at);
        }
        end == tally.len()
    }

    /// Whether all members are listed.
    pub fn lists(&self, tally: &Tally) -> bool {
        self.places.len() == tally.len()
    }

    /// The score of a member.
    pub fn score(&self, tally: &Tally, member: &[u8]) -> Option<f64> {
        let is_same = |place: &u32| tally.member(&tally.items[*place as usize]) == member;
        let place = self.places.find(self.hasher.hash(member), is_same)?;
        Some(tally.items[*place as usize].score)
    }

    /// Adds a member to a tally, or changes the score that it has there.
    pub fn add(&mut self, tally: &mut Tally, member: &[u8], score: f64, change: impl FnOnce(f64) -> f64) {
        let hash = self.hasher.hash(member);
        let is_same = |place: &u32| tally.member(&tally.items[*place as usize]) == member;
        if let Some(place) = self.places.find(hash, is_same) {
            let item = &mut tally.items[*place as usize];
            item.score = change(item.score);
            return;
        }
        let place = u32::try_from(tally.len()).expect("no shard has memory for four billion members");
        tally.push(member, score);
        let hasher = &self.hasher;
        self.places
            .insert_unique(hash, place, |place| hasher.hash(tally.member(&tally.items[*place as usize])));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    proptest! {
        #[test]
        fn adds_like_a_map_and_sorts(pairs in prop::collection::vec((0..40u32, -5..5i32), 0..200)) {
            let (mut tally, mut index) = (Tally::default(), TallyIndex::new(0, 7));
            let mut model = BTreeMap::<Vec<u8>, f64>::new();
            for (member, score) in pairs {
                let (member, score) = (format!("{member}").repeat(member as usize % 3).into_bytes(), f64::from(score));
                index.add(&mut tally, &member, score, |old| old + score);
                *model.entry(member).or_default() += score;
            }
            prop_assert_eq!(tally.len(), model.len());
            prop_assert_eq!(tally.longest(), model.keys().map(Vec::len).max().unwrap_or(0));
            let mut whole = TallyIndex::new(tally.len(), 9);
            while !whole.list_some(&tally, 7) {}
            for (member, score) in &model {
                prop_assert_eq!(index.score(&tally, member), Some(*score));
                prop_assert_eq!(whole.score(&tally, member), Some(*score));
            }
            prop_assert_eq!(whole.score(&tally, b"no member"), None);
            tally.sort();
            let mut sorted: Vec<_> = model.into_iter().collect();
            sorted.sort_by(|a, b| compare((a.1, &a.0), (b.1, &b.0)));
            let found: Vec<_> = tally.iter().map(|(member, score)| (member.to_vec(), score)).collect();
            prop_assert_eq!(found, sorted);
        }
    }
}
