//! One piece of a long list: a pack with room on both sides.

use super::chunks::listpack_len;
use super::element::{Element, encoded_len, encoded_len_max};
use super::pack::{COUNT_LEN, PACK_LEN_MAX, Pack, PackRef};

/// Room in front of a pack that is never given back for being too much, in bytes.
const GAP_KEPT: usize = 64;

/// Some elements of a long list.
#[derive(Clone, Debug)]
pub struct Chunk {
    /// Its bytes begin behind `gap` others, so that a list is pushed to and popped from in front without moving the rest.
    pack: Pack,
    /// What its elements take in a listpack.
    size: usize,
    gap: u32,
    /// As many as the pack has.
    len: u16,
    /// It has one element, which is too large for the others.
    alone: bool,
    /// In Valkey it would be in the same listpack as the one before.
    pub(super) joined: bool,
}

impl PartialEq for Chunk {
    fn eq(&self, other: &Self) -> bool {
        self.pack().bytes() == other.pack().bytes()
            && (self.alone, self.joined) == (other.alone, other.joined)
    }
}

impl Eq for Chunk {}

impl Chunk {
    pub(super) fn of(element: Element<'_>, alone: bool) -> Self {
        let mut chunk = Self { alone, ..Self::from_pack(Pack::default()) };
        chunk.insert(chunk.pack().bytes().len(), element);
        chunk
    }

    pub(super) fn from_pack(mut pack: Pack) -> Self {
        pack.shrink();
        let view = pack.as_ref();
        let (size, len) = (view.iter().map(listpack_len).sum(), view.len() as u16);
        Self { size, len, pack, gap: 0, alone: false, joined: false }
    }

    const fn gap(&self) -> usize {
        self.gap as usize
    }

    /// Its elements.
    #[inline]
    pub fn pack(&self) -> PackRef<'_> {
        PackRef::new(&self.pack.as_ref().bytes()[self.gap()..])
    }

    /// Its elements, with no gap before them.
    pub(super) fn whole(&mut self) -> &mut Pack {
        self.pack.cut_front(std::mem::take(&mut self.gap) as usize);
        &mut self.pack
    }

    #[inline]
    pub(super) fn len(&self) -> usize {
        usize::from(self.len)
    }

    /// Bytes of its elements.
    pub(super) fn bytes_of_elements(&self) -> usize {
        self.pack().bytes().len() - COUNT_LEN
    }

    /// What its elements take in a listpack.
    pub(super) const fn size(&self) -> usize {
        self.size
    }

    pub(super) const fn is_alone(&self) -> bool {
        self.alone
    }

    pub(super) fn heap_bytes(&self) -> usize {
        self.pack.heap_bytes()
    }

    /// Whether it has no more bytes than that with one more element.
    #[inline]
    pub(super) fn has_room(&self, element: Element<'_>, bytes_max: usize) -> bool {
        let bytes = self.pack().bytes().len();
        let fits = bytes + encoded_len_max(element) <= bytes_max || bytes + encoded_len(element) <= bytes_max;
        fits && self.len() < PACK_LEN_MAX
    }

    /// Adds an element before the one at `at`; at the end for the length of the bytes.
    #[inline]
    pub(super) fn insert(&mut self, at: usize, element: Element<'_>) {
        self.size += listpack_len(element);
        self.len += 1;
        let pack = self.pack();
        if at == pack.bytes().len() {
            if self.pack.room() < encoded_len_max(element) {
                self.make_room_behind(encoded_len(element));
            }
            self.pack.push_back_behind(self.gap(), element);
        } else if pack.first() == Some(at) {
            let gap = self.pack.push_front_behind(self.gap(), element);
            self.set_gap(gap);
        } else {
            let pack = self.whole();
            pack.make_room(encoded_len(element));
            pack.insert(at, element);
        }
    }

    /// Sees to room for so many bytes at the end: that of the gap, if moving the pack does not cost more than it was worth.
    fn make_room_behind(&mut self, more: usize) {
        if self.pack.room() < more && self.gap() > self.pack().bytes().len() / 4 {
            self.whole();
        }
        self.pack.make_room(more);
    }

    fn set_gap(&mut self, gap: usize) {
        match u32::try_from(gap) {
            Ok(gap) => self.gap = gap,
            Err(_) => {
                self.gap = 0;
                self.pack.cut_front(gap);
            }
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
        self.len -= (count - left) as u16;
        match next {
            None => self.pack.truncate_behind(self.gap(), at, count - left),
            Some(end) if at_front => {
                let gap = self.pack.pop_front_behind(self.gap(), end, count);
                self.set_gap(gap);
            }
            Some(_) => self.whole().remove(at, count),
        }
    }

    pub(super) fn replace(&mut self, at: usize, element: Element<'_>) {
        let old = self.pack().get(at);
        let (old_size, old_bytes) = (listpack_len(old), encoded_len(old));
        self.size = self.size - old_size + listpack_len(element);
        let more = encoded_len(element).saturating_sub(old_bytes);
        let pack = self.whole();
        pack.make_room(more);
        pack.replace(at, element);
    }

    /// Adds the elements of another one.
    pub(super) fn append(&mut self, other: &Self) {
        self.pack.append_behind(self.gap(), other.pack());
        self.size += other.size;
        self.len += other.len;
    }

    /// Gives room back if there is much of it.
    pub(super) fn trim(&mut self) {
        if self.gap() > GAP_KEPT + self.pack().bytes().len() {
            self.whole();
        }
        self.pack.trim();
    }

    /// Gives room back.
    pub(super) fn shrink(&mut self) {
        self.whole();
        self.pack.shrink();
    }
}
