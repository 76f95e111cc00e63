//! Long lists: a deque of packs, none much larger than `list-max-listpack-size` allows.
//!
//! Where packs begin and end follows Valkey's quicklist, since OBJECT ENCODING shows it: a list whose elements have come to be
//! in one short pack is a listpack again. Sizes that decide are those of Valkey's listpacks, which every pack knows of its
//! elements.

use super::chunk::Chunk;
use super::element::Element;
use super::list::{Place, Side};
use super::pack::{Pack, PackRef};
use std::collections::VecDeque;

/// Head and end of a listpack in bytes.
pub(super) const LISTPACK_FRAME: usize = 7;
/// A pack whose limit is a number of elements has no more bytes than this, unless one element does.
const SAFE_BYTES_MAX: usize = 8192;
/// So many bytes of a pack are copied while a lone element is.
const COPIED_BYTES: usize = 256;
/// What Valkey adds to an element's length when it asks whether there is room for it.
pub(super) const OVERHEAD_GUESS: usize = 8;

/// How large the pieces of a long list may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ListSize {
    /// Where positive, elements; where negative, bytes: 4, 8, 16, 32, 64 KiB (`list-max-listpack-size`).
    pub max: i64,
    /// Bytes from which on an element gets a piece of its own; 0: where it is larger than a piece may be
    /// (`DEBUG QUICKLIST-PACKED-THRESHOLD`).
    pub alone_bytes_min: usize,
}

impl From<i64> for ListSize {
    fn from(max: i64) -> Self {
        Self { max, alone_bytes_min: 0 }
    }
}

/// What `list-max-listpack-size` says.
#[derive(Clone, Copy, Debug)]
pub(super) enum Bound {
    Bytes(usize),
    Elements(usize),
}

/// A [`ListSize`] made ready for use.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limit {
    bound: Bound,
    alone_bytes_min: usize,
}

impl Limit {
    pub(super) fn of(ListSize { max, alone_bytes_min }: ListSize) -> Self {
        let bound = match max {
            0.. => Bound::Elements(max.max(1) as usize),
            _ => Bound::Bytes(4096 << (max.unsigned_abs() - 1).min(4)),
        };
        Self { bound, alone_bytes_min }
    }

    pub(super) const fn is_exceeded(self, bytes: usize, elements: usize) -> bool {
        match self.bound {
            Bound::Bytes(max) => bytes > max,
            Bound::Elements(max) => bytes > SAFE_BYTES_MAX || elements > max,
        }
    }

    /// Whether an element gets a pack of its own.
    pub(super) const fn is_large(self, bytes: usize) -> bool {
        if self.alone_bytes_min != 0 {
            return bytes >= self.alone_bytes_min;
        }
        match self.bound {
            Bound::Bytes(max) => bytes > max,
            Bound::Elements(_) => bytes > SAFE_BYTES_MAX,
        }
    }
}

/// An element's size in a listpack: head and payload, and its length from behind.
pub(super) fn listpack_len(element: Element<'_>) -> usize {
    let body = match element {
        Element::Int(0..=127) => 1,
        Element::Int(-4096..=4095) => 2,
        Element::Int(-0x8000..=0x7FFF) => 3,
        Element::Int(-0x80_0000..=0x7F_FFFF) => 4,
        Element::Int(-0x8000_0000..=0x7FFF_FFFF) => 5,
        Element::Int(_) | Element::Double(_) => 9,
        Element::Bytes(bytes) => match bytes.len() {
            len @ 0..64 => 1 + len,
            len @ 64..4096 => 2 + len,
            len => 5 + len,
        },
    };
    let tail = match body {
        0..=127 => 1,
        128..16_383 => 2,
        16_383..2_097_151 => 3,
        2_097_151..268_435_455 => 4,
        _ => 5,
    };
    body + tail
}

/// The size of the listpack with these elements.
pub(super) fn listpack_size(pack: PackRef<'_>) -> usize {
    LISTPACK_FRAME + pack.iter().map(listpack_len).sum::<usize>()
}

/// A long list.
#[derive(Debug, Default)]
pub struct Chunks {
    chunks: VecDeque<Chunk>,
    len: usize,
    /// Bytes of all packs.
    pack_bytes: usize,
    /// It is what Valkey calls a quicklist; otherwise one pack that is no longer kept in its entry.
    quick: bool,
    /// As many as `chunks` has.
    count: usize,
}

impl Clone for Chunks {
    fn clone(&self) -> Self {
        let mut copy = Self::like(self);
        copy.copy_some(self, 0, usize::MAX);
        copy
    }
}

/// Elements, and where packs begin and end; not how much memory these have.
impl PartialEq for Chunks {
    fn eq(&self, other: &Self) -> bool {
        self.quick == other.quick && self.chunks == other.chunks
    }
}

impl Eq for Chunks {}

impl Chunks {
    pub(super) fn from_pack(pack: Pack) -> Self {
        let mut chunks = Self { len: pack.as_ref().len(), ..Self::default() };
        if chunks.len > 0 {
            chunks.add(0, Chunk::from_pack(pack));
        }
        chunks
    }

    /// None yet.
    pub(super) fn quick() -> Self {
        Self { quick: true, ..Self::default() }
    }

    /// An empty one, to be filled by [`Self::copy_some`].
    pub(super) fn like(other: &Self) -> Self {
        Self { chunks: VecDeque::with_capacity(other.count), quick: other.quick, ..Self::default() }
    }

    /// Copies packs of another list from this one on, as long as all together take no longer than `budget` elements. Returns
    /// where to go on.
    pub(super) fn copy_some(&mut self, from: &Self, first: usize, mut budget: usize) -> Option<usize> {
        for (idx, chunk) in from.chunks.iter().enumerate().skip(first) {
            let copy = chunk.clone();
            budget = budget.saturating_sub(1 + copy.heap_bytes() / COPIED_BYTES);
            self.len += copy.len();
            self.add(self.count, copy);
            if budget == 0 {
                return Some(idx + 1).filter(|next| *next < from.count);
            }
        }
        None
    }

    /// To be called when all elements are there: Valkey then keeps them in a listpack if they are in one pack.
    pub(super) fn settle(&mut self) {
        self.quick = self.count > 1 || self.chunks.front().is_some_and(Chunk::is_alone);
    }

    pub(super) const fn len(&self) -> usize {
        self.len
    }

    pub(super) const fn count(&self) -> usize {
        self.count
    }

    pub(super) const fn is_quick(&self) -> bool {
        self.quick
    }

    pub(super) fn get(&self, chunk: usize) -> Option<&Chunk> {
        self.chunks.get(chunk)
    }

    pub(super) fn heap_bytes(&self) -> usize {
        size_of::<Self>() + self.chunks.capacity() * size_of::<Chunk>() + self.pack_bytes
    }

    pub(super) fn free_some(&mut self, budget: &mut usize) -> bool {
        while *budget > 0 && self.count > 0 {
            self.drop_chunk(self.count - 1);
            *budget -= 1;
        }
        self.count == 0
    }

    /// Which chunk holds element `idx`, and as its which element.
    pub(super) fn find(&self, idx: usize) -> Option<(usize, usize)> {
        if idx >= self.len {
            return None;
        }
        if idx < self.len / 2 {
            let mut left = idx;
            for (number, chunk) in self.chunks.iter().enumerate() {
                if left < chunk.len() {
                    return Some((number, left));
                }
                left -= chunk.len();
            }
            return None;
        }
        let mut end = self.len;
        for (number, chunk) in self.chunks.iter().enumerate().rev() {
            end -= chunk.len();
            if idx >= end {
                return Some((number, idx - end));
            }
        }
        None
    }

    pub(super) fn prepare(&mut self, limit: Limit, more_bytes: usize, more: usize) {
        if self.quick {
            return;
        }
        let size = self.chunks.front().map_or(LISTPACK_FRAME, Chunk::size);
        let full = self.chunks.front().is_some_and(|chunk| !chunk.has_room(more));
        self.quick = limit.is_exceeded(size + more_bytes, self.len + more) || full;
    }

    pub(super) fn shrink(&mut self, limit: Limit) {
        if !self.quick || self.count != 1 || self.chunks[0].is_alone() {
            return;
        }
        let (size, len) = (self.chunks[0].size(), self.len);
        self.quick = match limit.bound {
            Bound::Bytes(max) => size > max / 2,
            Bound::Elements(max) => len > max / 2,
        };
    }

    /// The one pack, if the list has become so short.
    pub(super) fn take_short(&mut self, bytes_max: usize) -> Option<Pack> {
        match self.chunks.front_mut() {
            None => Some(Pack::default()),
            Some(chunk) if !self.quick && chunk.pack().bytes().len() <= bytes_max => {
                Some(std::mem::take(chunk.whole()))
            }
            Some(_) => None,
        }
    }

    fn add(&mut self, at: usize, chunk: Chunk) {
        self.pack_bytes += chunk.heap_bytes();
        if self.chunks.len() == self.chunks.capacity() {
            // By half, and from one: most long lists have few packs.
            self.chunks.reserve_exact(self.chunks.len().div_ceil(2).max(1));
        }
        self.chunks.insert(at, chunk);
        self.count += 1;
    }

    fn drop_chunk(&mut self, at: usize) -> Option<Chunk> {
        let chunk = self.chunks.remove(at)?;
        self.pack_bytes -= chunk.heap_bytes();
        self.count -= 1;
        Some(chunk)
    }

    /// Changes a chunk; one that is empty then goes.
    fn change(&mut self, at: usize, change: impl FnOnce(&mut Chunk)) {
        let chunk = &mut self.chunks[at];
        let before = chunk.heap_bytes();
        change(chunk);
        chunk.trim();
        self.pack_bytes = self.pack_bytes - before + chunk.heap_bytes();
        if chunk.len() == 0 {
            self.drop_chunk(at);
        }
    }

    fn put(&mut self, chunk: usize, side: Side, text: &[u8]) {
        self.change(chunk, |chunk| {
            let start = chunk.pack().first().unwrap_or(0);
            let at = if side == Side::Left { start } else { chunk.pack().bytes().len() };
            chunk.insert(at, text);
        });
    }

    pub(super) fn push(&mut self, side: Side, text: &[u8], limit: Limit) {
        self.len += 1;
        let end = if side == Side::Left { 0 } else { self.count.saturating_sub(1) };
        let room = self.chunks.get(end).is_some_and(|chunk| !self.quick || chunk.allows(limit, text.len()));
        if room {
            return self.put(end, side, text);
        }
        // The pack that was last is full now.
        if self.count > 0 {
            self.change(end, |chunk| chunk.shrink());
        }
        let at = if side == Side::Left { 0 } else { self.count };
        self.add(at, Chunk::of(text, self.quick && limit.is_large(text.len())));
    }

    pub(super) fn insert(&mut self, place: Place, side: Side, text: &[u8], limit: Limit) {
        self.len += 1;
        let Place { chunk: idx, at } = place;
        let chunk = &self.chunks[idx];
        let end = chunk.pack().end_of(at);
        let behind = idx + usize::from(side == Side::Right);
        if !self.quick || chunk.allows(limit, text.len()) {
            let at = if side == Side::Left { at } else { end };
            return self.change(idx, |chunk| chunk.insert(at, text));
        }
        let at_edge = match side {
            Side::Left => chunk.pack().first() == Some(at),
            Side::Right => end == chunk.pack().bytes().len(),
        };
        let large = limit.is_large(text.len());
        if at_edge || chunk.is_alone() {
            let neighbour = if side == Side::Left { idx.checked_sub(1) } else { Some(idx + 1) };
            let neighbour = neighbour.filter(|idx| {
                !large && self.chunks.get(*idx).is_some_and(|chunk| chunk.allows(limit, text.len()))
            });
            match (neighbour, side) {
                (Some(idx), Side::Left) => self.put(idx, Side::Right, text),
                (Some(idx), Side::Right) => self.put(idx, Side::Left, text),
                (None, _) => self.add(behind, Chunk::of(text, large)),
            }
            return;
        }
        let split_at = if side == Side::Left { at } else { end };
        self.split(idx, split_at);
        if large {
            return self.add(idx + 1, Chunk::of(text, true));
        }
        match side {
            // Valkey keeps in the old pack what lies on the pivot's side; so it decides which packs are merged.
            Side::Left => self.put(idx, Side::Right, text),
            Side::Right => self.put(idx + 1, Side::Left, text),
        }
        self.merge_around(idx + usize::from(side == Side::Left), limit);
    }

    /// Divides a chunk: what begins at `at` becomes the next one.
    fn split(&mut self, idx: usize, at: usize) {
        let pack = self.chunks[idx].pack();
        let mut tail = Pack::default();
        let mut count = 0;
        let mut next = Some(at);
        while let Some(place) = next {
            tail.push_back(pack.get(place));
            count += 1;
            next = pack.next(place);
        }
        self.change(idx, |chunk| chunk.remove(at, count));
        self.add(idx + 1, Chunk::from_pack(tail));
    }

    /// Joins small neighbours of a chunk, in Valkey's order.
    fn merge_around(&mut self, center: usize, limit: Limit) {
        let mut center = center;
        if center >= 2 && self.merge(center - 2, limit) {
            center -= 1;
        }
        self.merge(center + 1, limit);
        if center >= 1 && self.merge(center - 1, limit) {
            center -= 1;
        }
        self.merge(center, limit);
    }

    /// Joins a chunk and the next one, if they fit together.
    fn merge(&mut self, left: usize, limit: Limit) -> bool {
        let (Some(one), Some(two)) = (self.chunks.get(left), self.chunks.get(left + 1)) else { return false };
        let fits = !limit.is_exceeded(one.size() + two.size() - LISTPACK_FRAME, one.len() + two.len());
        if one.is_alone() || two.is_alone() || !fits || !one.has_room(two.len()) {
            return false;
        }
        let Some(two) = self.drop_chunk(left + 1) else { return false };
        self.change(left, |one| one.append(&two));
        true
    }

    pub(super) fn replace(&mut self, place: Place, text: &[u8], limit: Limit) {
        let (alone, large) = (self.chunks[place.chunk].is_alone(), self.quick && limit.is_large(text.len()));
        if alone == large {
            return self.change(place.chunk, |chunk| chunk.replace(place.at, text));
        }
        self.insert(place, Side::Right, text, limit);
        let count = self.count;
        self.remove(place);
        if self.count == count {
            self.merge_around(place.chunk, limit);
        }
    }

    pub(super) fn remove(&mut self, place: Place) -> Option<Place> {
        self.len -= 1;
        let count = self.count;
        self.change(place.chunk, |chunk| chunk.remove(place.at, 1));
        let first = |chunk: usize| Some(Place { chunk, at: self.get(chunk)?.pack().first()? });
        if self.count < count {
            first(place.chunk)
        } else if place.at < self.chunks[place.chunk].pack().bytes().len() {
            Some(place)
        } else {
            first(place.chunk + 1)
        }
    }

    pub(super) fn remove_range(&mut self, start: usize, count: usize) {
        let Some((mut idx, mut nth)) = self.find(start) else { return };
        let mut left = count.min(self.len - start);
        self.len -= left;
        while left > 0 {
            let here = (self.chunks[idx].len() - nth).min(left);
            left -= here;
            if here == self.chunks[idx].len() {
                self.drop_chunk(idx);
                continue;
            }
            if let Some(at) = self.chunks[idx].pack().nth(nth) {
                self.change(idx, |chunk| chunk.remove(at, here));
            }
            (idx, nth) = (idx + 1, 0);
        }
    }

    /// Whether what it keeps of its chunks is true.
    #[cfg(test)]
    pub(super) fn check(&self) {
        assert_eq!(self.count, self.chunks.len());
        assert_eq!(self.len, self.chunks.iter().map(Chunk::len).sum());
        assert_eq!(self.pack_bytes, self.chunks.iter().map(|chunk| chunk.heap_bytes()).sum());
        for chunk in &self.chunks {
            assert_eq!(chunk.size(), listpack_size(chunk.pack()));
            assert!(chunk.len() > 0 && (!chunk.is_alone() || chunk.len() == 1));
        }
        assert!(self.quick || self.count <= 1);
    }
}
