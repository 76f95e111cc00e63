//! The large form of sorted sets: the elements in order, and a table that finds them by member.
//!
//! An element has one allocation, with score and member. The order owns it; the table knows its address only.

use super::order::Order;
use super::table::{BlobItem, Scored, Table};
use crate::keyspace::{Item, TableShape};
use std::mem::ManuallyDrop;
use std::ptr::NonNull;

/// An element that somebody else owns and keeps for as long as this is used.
struct Alias(ManuallyDrop<Scored>);

// SAFETY: the pointer is that of the element's allocation, and an alias is nothing else.
unsafe impl Item for Alias {
    #[inline]
    fn key(&self) -> &[u8] {
        self.0.key()
    }
    #[inline]
    fn into_raw(self) -> NonNull<u8> {
        ManuallyDrop::into_inner(self.0).into_raw()
    }
    #[inline]
    unsafe fn from_raw(raw: NonNull<u8>) -> Self {
        // SAFETY: the caller's promise is the same.
        Self(ManuallyDrop::new(unsafe { Scored::from_raw(raw) }))
    }
    #[inline]
    fn heap_bytes(&self) -> usize {
        0
    }
}

/// A second handle of an element, and the first one again.
fn share(item: Scored) -> (Scored, Alias) {
    let raw = item.into_raw();
    // SAFETY: `raw` has just been given up.
    let owner = unsafe { Scored::from_raw(raw) };
    // SAFETY: an alias only reads the member, which never changes, and `Ranked` drops it before its owner; the score is written
    // through the owner only while no reference made from the alias lives.
    let alias = unsafe { Alias::from_raw(raw) };
    (owner, alias)
}

/// Many members with scores.
pub struct Ranked {
    /// Comes first: what it knows the addresses of must outlive it.
    index: Table<Alias>,
    order: Order,
    seed: u64,
}

impl Ranked {
    /// Without members; an outsider who does not know `seed` cannot make members collide.
    pub(super) fn new(seed: u64) -> Self {
        Self { index: Table::new(seed), order: Order::default(), seed }
    }

    /// How large the table of its members is and how full.
    pub fn shape(&self) -> TableShape {
        self.index.shape()
    }

    /// The members in order.
    pub(super) const fn order(&self) -> &Order {
        &self.order
    }

    /// Bytes on the heap, about.
    pub(super) const fn heap_bytes(&self) -> usize {
        size_of::<Self>() + self.index.heap_bytes() + self.order.heap_bytes()
    }

    /// The score of a member.
    #[inline]
    pub(super) fn score(&self, member: &[u8]) -> Option<f64> {
        self.index.get(member).map(|item| item.0.score())
    }

    /// Adds a member that is not there.
    pub(super) fn insert(&mut self, member: &[u8], score: f64) {
        let (owner, alias) = share(Scored::new(member, score));
        self.index.insert(alias);
        self.order.insert(owner);
    }

    /// Gives a member another score than `old`, which it has.
    pub(super) fn set_score(&mut self, member: &[u8], old: f64, new: f64) {
        let rank = self.order.rank(old, member);
        if let Some(mut item) = self.order.remove(rank) {
            item.set_score(new);
            self.order.insert(item);
        }
    }

    /// Takes the member of a rank out.
    pub(super) fn remove_at(&mut self, rank: usize) -> Option<Scored> {
        let item = self.order.remove(rank)?;
        self.index.remove(item.key());
        Some(item)
    }

    /// Removes a member; true if it was there.
    pub(super) fn remove(&mut self, member: &[u8]) -> bool {
        let Some(score) = self.score(member) else { return false };
        let rank = self.order.rank(score, member);
        self.remove_at(rank).is_some()
    }

    /// Visits members in the order of a scan; see [`Table::walk`].
    pub(super) fn walk(&self, from: u64, budget: usize, visit: &mut dyn FnMut(&[u8], f64)) -> Option<u64> {
        self.index.walk(from, budget, &mut |item| visit(item.0.key(), item.0.score()))
    }

    /// Frees members, each for one of `budget`; true when none is left. What has been begun with is no set any more.
    pub(super) fn free_some(&mut self, budget: &mut usize) -> bool {
        self.index.free_some(budget) && self.order.free_some(budget)
    }
}

impl Ranked {
    /// An empty one, to be filled by [`Self::copy_some`].
    pub(super) fn like(other: &Self) -> Self {
        Self::new(other.seed)
    }

    /// Copies `count` members of another one, from this rank on. Returns where to go on.
    pub(super) fn copy_some(&mut self, from: &Self, rank: usize, count: usize) -> Option<usize> {
        from.order.visit(rank, count, false, &mut |item| self.insert(item.key(), item.score()));
        rank.checked_add(count).filter(|next| *next < from.order.len())
    }
}

impl Clone for Ranked {
    fn clone(&self) -> Self {
        let mut copy = Self::like(self);
        copy.copy_some(self, 0, usize::MAX);
        copy
    }
}

impl PartialEq for Ranked {
    fn eq(&self, other: &Self) -> bool {
        let list = |set: &Self| {
            let mut items = Vec::with_capacity(set.order.len());
            set.order.visit(0, set.order.len(), false, &mut |item| items.push(item.blob().clone()));
            items
        };
        self.order.len() == other.order.len() && list(self) == list(other)
    }
}

impl Eq for Ranked {}

impl std::fmt::Debug for Ranked {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Ranked").field("len", &self.order.len()).finish_non_exhaustive()
    }
}
