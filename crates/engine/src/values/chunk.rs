//! One piece of a long list: a pack with room on both sides.

use super::chunks::{LISTPACK_FRAME, Limit, OVERHEAD_GUESS, listpack_len, listpack_size};
use super::element::Element;
use super::list::element_size;
use super::pack::{Pack, PackRef};

/// Room in front of a pack that is never given back for being too much, in bytes.
const GAP_KEPT: usize = 64;

/// Some elements of a long list.
#[derive(Clone, Debug)]
pub struct Chunk {
    /// Its bytes begin behind `gap` others, so that a list is pushed to and popped from in front without moving the rest.
    pack: Pack,
    gap: usize,
    /// The size of the listpack with these elements.
    size: usize,
    /// It has one element, which is too large for the others.
    alone: bool,
}

impl PartialEq for Chunk {
    fn eq(&self, other: &Self) -> bool {
        self.pack().bytes() == other.pack().bytes() && self.alone == other.alone
    }
}

impl Eq for Chunk {}

impl Chunk {
    pub(super) fn of(text: &[u8], alone: bool) -> Self {
        let mut chunk = Self { pack: Pack::default(), gap: 0, size: LISTPACK_FRAME, alone };
        chunk.insert(chunk.pack().bytes().len(), text);
        chunk
    }

    pub(super) fn from_pack(pack: Pack) -> Self {
        Self { size: listpack_size(pack.as_ref()), pack, gap: 0, alone: false }
    }

    /// Its elements.
    #[inline]
    pub fn pack(&self) -> PackRef<'_> {
        PackRef::new(&self.pack.as_ref().bytes()[self.gap..])
    }

    /// Its elements, with no gap before them.
    pub(super) fn whole(&mut self) -> &mut Pack {
        self.pack.cut_front(std::mem::take(&mut self.gap));
        &mut self.pack
    }

    pub(super) fn len(&self) -> usize {
        self.pack().len()
    }

    pub(super) const fn size(&self) -> usize {
        self.size
    }

    pub(super) const fn is_alone(&self) -> bool {
        self.alone
    }

    pub(super) fn heap_bytes(&self) -> usize {
        self.pack.heap_bytes()
    }

    pub(super) fn has_room(&self, more: usize) -> bool {
        self.pack().has_room(more)
    }

    pub(super) fn allows(&self, limit: Limit, bytes: usize) -> bool {
        !self.alone
            && !limit.is_large(bytes)
            && !limit.is_exceeded(self.size + bytes + OVERHEAD_GUESS, self.len() + 1)
            && self.has_room(1)
    }

    /// Adds an element before the one at `at`; at the end for the length of the bytes.
    pub(super) fn insert(&mut self, at: usize, text: &[u8]) {
        self.size += element_size(text);
        self.pack.make_room(text.len());
        let (element, pack) = (Element::of(text), self.pack());
        if at == pack.bytes().len() {
            self.pack.push_back_behind(self.gap, element);
        } else if pack.first() == Some(at) {
            self.gap = self.pack.push_front_behind(self.gap, element);
        } else {
            self.whole().insert(at, element);
        }
    }

    /// Removes elements from `at` on.
    pub(super) fn remove(&mut self, at: usize, count: usize) {
        let pack = self.pack();
        let (mut next, mut left, mut size) = (Some(at), count, 0);
        while let Some(place) = next.filter(|_| left > 0) {
            size += listpack_len(pack.get(place));
            (next, left) = (pack.next(place), left - 1);
        }
        let at_front = pack.first() == Some(at);
        self.size -= size;
        match next {
            None => self.pack.truncate_behind(self.gap, at, count - left),
            Some(end) if at_front => self.gap = self.pack.pop_front_behind(self.gap, end, count),
            Some(_) => self.whole().remove(at, count),
        }
    }

    pub(super) fn replace(&mut self, at: usize, text: &[u8]) {
        self.size -= listpack_len(self.pack().get(at));
        self.size += element_size(text);
        self.whole().replace(at, Element::of(text));
    }

    /// Adds the elements of another one.
    pub(super) fn append(&mut self, other: &Self) {
        other.pack().iter().for_each(|element| self.pack.push_back_behind(self.gap, element));
        self.size += other.size - LISTPACK_FRAME;
    }

    /// Gives room back if there is much of it.
    pub(super) fn trim(&mut self) {
        if self.gap > GAP_KEPT + self.pack().bytes().len() {
            self.whole();
        }
        self.pack.trim();
    }

    /// Gives room back.
    pub(super) fn shrink(&mut self) {
        self.whole().shrink();
    }
}
