//! Long lists: a deque of packs.
//!
//! Valkey's quicklist is one of listpacks, as large as `list-max-listpack-size` allows, and OBJECT ENCODING shows where they begin and
//! end: a list whose elements have come to be in one short listpack is one again. So sizes that decide are those of Valkey's
//! listpacks, which every pack knows of its elements. A pack holds what is in one listpack or, where lists grow at their ends, a
//! part of that ([`Chunk::joined`]): the smaller packs are, the less room is lost in the last one.

use super::chunk::Chunk;
use super::element::Element;
use super::list::{Place, Side};
use super::pack::{PACK_LEN_MAX, Pack};
use std::collections::VecDeque;
use std::ops::Range;

/// Head and end of a listpack in bytes.
pub(super) const LISTPACK_FRAME: usize = 7;
/// A pack whose limit is a number of elements has no more bytes than this, unless one element does.
const SAFE_BYTES_MAX: usize = 8192;
/// So many bytes of a pack are copied while a lone element is.
const COPIED_BYTES: usize = 256;
/// A pack at an end of a list grows to so many bytes before another one is begun.
const PART_BYTES_MAX: usize = 2048;
/// From so many packs on what is lost in the last one counts for less than what each pack costs.
const PARTS_MANY: usize = 32;
const LARGE_PART_BYTES_MAX: usize = 8192;
/// No more packs make up one listpack of Valkey's, which has 64 KiB at most.
const JOINED_MAX: usize = 64;
/// What Valkey adds to an element's length when it asks whether there is room for it.
const OVERHEAD_GUESS: usize = 8;

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

/// A long list.
#[derive(Debug, Default)]
pub struct Chunks {
    chunks: VecDeque<Chunk>,
    len: usize,
    /// Bytes of all packs.
    pack_bytes: usize,
    /// It is what Valkey calls a quicklist; otherwise one listpack that is no longer kept in its entry.
    quick: bool,
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
        Self { chunks: VecDeque::with_capacity(other.count()), quick: other.quick, ..Self::default() }
    }

    /// Copies packs of another list from this one on, as long as all together take no longer than `budget` elements. Returns
    /// where to go on.
    pub(super) fn copy_some(&mut self, from: &Self, first: usize, mut budget: usize) -> Option<usize> {
        for (idx, chunk) in from.chunks.iter().enumerate().skip(first) {
            let copy = chunk.clone();
            budget = budget.saturating_sub(1 + copy.heap_bytes() / COPIED_BYTES);
            self.len += copy.len();
            self.add(self.count(), copy);
            if budget == 0 {
                return Some(idx + 1).filter(|next| *next < from.count());
            }
        }
        None
    }

    /// To be called when all elements are there: Valkey then keeps them in a listpack if they are in one.
    pub(super) fn settle(&mut self) {
        self.quick = !self.is_one_node() || self.chunks.front().is_some_and(Chunk::is_alone);
    }

    pub(super) const fn len(&self) -> usize {
        self.len
    }

    pub(super) fn count(&self) -> usize {
        self.chunks.len()
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
        while *budget > 0 && self.count() > 0 {
            self.drop_chunk(self.count() - 1);
            *budget -= 1;
        }
        self.count() == 0
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

    /// The chunks that would be one listpack in Valkey, a node of its quicklist, with the one at `idx`.
    fn node(&self, idx: usize) -> Range<usize> {
        let (mut start, mut end) = (idx, idx + 1);
        while self.chunks[start].joined {
            start -= 1;
        }
        while self.chunks.get(end).is_some_and(|chunk| chunk.joined) {
            end += 1;
        }
        start..end
    }

    fn is_one_node(&self) -> bool {
        self.count() <= 1 || self.node(0).len() == self.count()
    }

    /// The size of a node's listpack, and how many elements it has.
    fn extent(&self, node: Range<usize>) -> (usize, usize) {
        let chunks = self.chunks.range(node);
        chunks.fold((LISTPACK_FRAME, 0), |(size, len), chunk| (size + chunk.size(), len + chunk.len()))
    }

    /// The size of the listpack with all elements.
    fn size(&self) -> usize {
        self.chunks.iter().fold(LISTPACK_FRAME, |size, chunk| size + chunk.size())
    }

    /// Whether the node of a chunk may have an element more.
    fn allows(&self, idx: usize, limit: Limit, bytes: usize) -> bool {
        if self.chunks[idx].is_alone() || limit.is_large(bytes) {
            return false;
        }
        let (size, len) = self.extent(self.node(idx));
        !limit.is_exceeded(size + bytes + OVERHEAD_GUESS, len + 1) && len < PACK_LEN_MAX
    }

    /// The same for the node at an end, in one walk.
    #[inline]
    fn allows_at_end(&self, side: Side, limit: Limit, bytes: usize) -> bool {
        let end = if side == Side::Left { self.chunks.front() } else { self.chunks.back() };
        let Some(end) = end.filter(|end| !end.is_alone() && !limit.is_large(bytes)) else { return false };
        let (mut size, mut len) = (LISTPACK_FRAME + end.size(), end.len());
        if side == Side::Left {
            let mut idx = 1;
            while let Some(chunk) = self.chunks.get(idx).filter(|chunk| chunk.joined) {
                (size, len, idx) = (size + chunk.size(), len + chunk.len(), idx + 1);
            }
        } else {
            let (mut idx, mut joined) = (self.count() - 1, end.joined);
            while joined {
                idx -= 1;
                let chunk = &self.chunks[idx];
                (size, len, joined) = (size + chunk.size(), len + chunk.len(), chunk.joined);
            }
        }
        !limit.is_exceeded(size + bytes + OVERHEAD_GUESS, len + 1) && len < PACK_LEN_MAX
    }

    pub(super) fn prepare(&mut self, limit: Limit, more_bytes: usize, more: usize) {
        if self.quick {
            return;
        }
        let (size, len) = (self.size(), self.len + more);
        self.quick = limit.is_exceeded(size + more_bytes, len) || len > PACK_LEN_MAX;
    }

    pub(super) fn shrink(&mut self, limit: Limit) {
        if !self.quick || self.count() == 0 || self.chunks[0].is_alone() || !self.is_one_node() {
            return;
        }
        self.quick = match limit.bound {
            Bound::Bytes(max) => self.size() > max / 2,
            Bound::Elements(max) => self.len > max / 2,
        };
    }

    /// The one pack, if the list has become so short.
    pub(super) fn take_short(&mut self, bytes_max: usize) -> Option<Pack> {
        if self.count() == 0 {
            return Some(Pack::default());
        }
        if self.quick || self.chunks.iter().map(|chunk| chunk.pack().bytes().len()).sum::<usize>() > bytes_max
        {
            return None;
        }
        let only = self.gather(0);
        Some(std::mem::take(self.chunks[only].whole()))
    }

    fn add(&mut self, at: usize, chunk: Chunk) {
        self.pack_bytes += chunk.heap_bytes();
        if self.chunks.len() == self.chunks.capacity() {
            // By half, and from one: most long lists have few packs.
            self.chunks.reserve_exact(self.chunks.len().div_ceil(2).max(1));
        }
        self.chunks.insert(at, chunk);
    }

    /// Takes a chunk out. If it was the first of its node, the next one of it is.
    fn drop_chunk(&mut self, at: usize) -> Option<Chunk> {
        let chunk = self.chunks.remove(at)?;
        self.pack_bytes -= chunk.heap_bytes();
        if let Some(next) = self.chunks.get_mut(at) {
            next.joined &= chunk.joined;
        }
        if self.chunks.capacity() > 4 * self.chunks.len() + PARTS_MANY {
            self.chunks.shrink_to(2 * self.chunks.len());
        }
        Some(chunk)
    }

    /// Makes one chunk of a node's; returns which.
    fn gather(&mut self, idx: usize) -> usize {
        let Range { start, end } = self.node(idx);
        for _ in start + 1..end {
            self.absorb(start);
        }
        start
    }

    /// The same for the node of a place, which may be another one then.
    fn gather_at(&mut self, place: Place) -> Place {
        let start = self.node(place.chunk).start;
        let before = self.chunks.range(start..place.chunk).map(Chunk::bytes_of_elements);
        let at = place.at + before.sum::<usize>();
        Place { chunk: self.gather(place.chunk), at }
    }

    /// Adds the next chunk's elements to one.
    fn absorb(&mut self, idx: usize) {
        let Some(next) = self.chunks.remove(idx + 1) else { return };
        self.pack_bytes -= next.heap_bytes();
        self.change(idx, |chunk| chunk.append(&next));
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

    fn put(&mut self, chunk: usize, side: Side, element: Element<'_>) {
        self.change(chunk, |chunk| {
            let start = chunk.pack().first().unwrap_or(0);
            let at = if side == Side::Left { start } else { chunk.pack().bytes().len() };
            chunk.insert(at, element);
        });
    }

    pub(super) fn push(&mut self, side: Side, text: &[u8], limit: Limit) {
        self.len += 1;
        let element = Element::of(text);
        let end = if side == Side::Left { 0 } else { self.count().saturating_sub(1) };
        let mut joined =
            if self.quick { self.allows_at_end(side, limit, text.len()) } else { self.count() > 0 };
        let part_bytes_max = if self.count() < PARTS_MANY { PART_BYTES_MAX } else { LARGE_PART_BYTES_MAX };
        if joined && self.chunks[end].has_room(element, part_bytes_max) {
            return self.put(end, side, element);
        }
        // The pack that was last is full now.
        if self.count() > 0 {
            self.change(end, |chunk| chunk.shrink());
        }
        let mut chunk = Chunk::of(element, self.quick && limit.is_large(text.len()));
        if side == Side::Left {
            // It is the first of the node now, and what was before it is so no more.
            if let Some(next) = self.chunks.front_mut() {
                std::mem::swap(&mut next.joined, &mut joined);
            }
        }
        chunk.joined = joined;
        let at = if side == Side::Left { 0 } else { self.count() };
        self.add(at, chunk);
        if self.node(at).len() > JOINED_MAX {
            self.gather(at);
        }
    }

    pub(super) fn insert(&mut self, place: Place, side: Side, text: &[u8], limit: Limit) {
        self.len += 1;
        let element = Element::of(text);
        if !self.quick || self.allows(place.chunk, limit, text.len()) {
            let end = self.chunks[place.chunk].pack().end_of(place.at);
            let at = if side == Side::Left { place.at } else { end };
            return self.change(place.chunk, |chunk| chunk.insert(at, element));
        }
        let Place { chunk: idx, at } = self.gather_at(place);
        let chunk = &self.chunks[idx];
        let end = chunk.pack().end_of(at);
        let behind = idx + usize::from(side == Side::Right);
        let at_edge = match side {
            Side::Left => chunk.pack().first() == Some(at),
            Side::Right => end == chunk.pack().bytes().len(),
        };
        let large = limit.is_large(text.len());
        if at_edge || chunk.is_alone() {
            let neighbour = if side == Side::Left { idx.checked_sub(1) } else { Some(idx + 1) };
            let neighbour =
                neighbour.filter(|idx| !large && *idx < self.count() && self.allows(*idx, limit, text.len()));
            match (neighbour, side) {
                (Some(idx), Side::Left) => self.put(idx, Side::Right, element),
                (Some(idx), Side::Right) => self.put(idx, Side::Left, element),
                (None, _) => self.add(behind, Chunk::of(element, large)),
            }
            return;
        }
        let split_at = if side == Side::Left { at } else { end };
        self.split(idx, split_at);
        if large {
            return self.add(idx + 1, Chunk::of(element, true));
        }
        match side {
            // Valkey keeps in the old pack what lies on the pivot's side; so it decides which packs are merged.
            Side::Left => self.put(idx, Side::Right, element),
            Side::Right => self.put(idx + 1, Side::Left, element),
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

    /// Joins small neighbours of a node that is one chunk, in Valkey's order.
    fn merge_around(&mut self, mut center: usize, limit: Limit) {
        if center + 1 < self.count() {
            self.gather(center + 1);
        }
        let mut first = center;
        for _ in 0..2 {
            if first > 0 {
                let count = self.count();
                first = self.gather(first - 1);
                center -= count - self.count();
            }
        }
        if center >= 2 && self.merge(center - 2, limit) {
            center -= 1;
        }
        self.merge(center + 1, limit);
        if center >= 1 && self.merge(center - 1, limit) {
            center -= 1;
        }
        self.merge(center, limit);
    }

    /// Joins a node and the next one, each of one chunk, if they fit together.
    fn merge(&mut self, left: usize, limit: Limit) -> bool {
        let (Some(one), Some(two)) = (self.chunks.get(left), self.chunks.get(left + 1)) else { return false };
        let (size, len) = (LISTPACK_FRAME + one.size() + two.size(), one.len() + two.len());
        let fits = !limit.is_exceeded(size, len) && len <= PACK_LEN_MAX;
        if one.is_alone() || two.is_alone() || !fits {
            return false;
        }
        self.absorb(left);
        true
    }

    pub(super) fn replace(&mut self, place: Place, text: &[u8], limit: Limit) {
        let large = self.quick && limit.is_large(text.len());
        if self.chunks[place.chunk].is_alone() == large {
            return self.change(place.chunk, |chunk| chunk.replace(place.at, Element::of(text)));
        }
        let place = self.gather_at(place);
        self.insert(place, Side::Right, text, limit);
        let count = self.count();
        self.remove(place);
        if self.count() == count {
            self.merge_around(place.chunk, limit);
        }
    }

    pub(super) fn remove(&mut self, place: Place) -> Option<Place> {
        self.len -= 1;
        let count = self.count();
        self.change(place.chunk, |chunk| chunk.remove(place.at, 1));
        let first = |chunk: usize| Some(Place { chunk, at: self.get(chunk)?.pack().first()? });
        if self.count() < count {
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
        assert_eq!(self.len, self.chunks.iter().map(Chunk::len).sum());
        assert_eq!(self.pack_bytes, self.chunks.iter().map(|chunk| chunk.heap_bytes()).sum());
        let mut alone_before = false;
        for (idx, chunk) in self.chunks.iter().enumerate() {
            assert_eq!(chunk.size(), chunk.pack().iter().map(listpack_len).sum());
            assert_eq!(chunk.len(), chunk.pack().len());
            assert!(chunk.len() > 0 && (!chunk.is_alone() || chunk.len() == 1));
            assert!(!chunk.joined || idx > 0 && !chunk.is_alone() && !alone_before);
            alone_before = chunk.is_alone();
        }
        assert!(self.quick || self.is_one_node());
    }
}
