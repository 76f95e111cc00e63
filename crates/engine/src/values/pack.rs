//! A sequence of short byte strings and integers in one piece of memory, which can be walked from both ends.
//!
//! ```text
//!  ┌─────────┬───────────┬───────────┬───
//!  │ count   │ element   │ element   │ …     count  elements, u16 little-endian
//!  └─────────┴───────────┴───────────┴───
//! ```
//!
//! After the idea of Redis's listpack. Elements (see `element`) are addressed by their offset; an insertion or removal before one
//! moves it.

use super::block::size_class;
use super::element::{Element, encode, encoded_len, end_of, read, read_on, start_before, u16_at};

/// Bytes before the first element.
pub(super) const COUNT_LEN: usize = 2;
/// A pack holds no more elements than its count can say.
pub const PACK_LEN_MAX: usize = u16::MAX as usize;

/// An owned pack.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pack(Vec<u8>);

/// A borrowed pack.
#[derive(Clone, Copy, Debug)]
pub struct PackRef<'a>(&'a [u8]);

impl Default for Pack {
    fn default() -> Self {
        Self(vec![0; COUNT_LEN])
    }
}

impl<'a> PackRef<'a> {
    /// A pack's bytes, as [`Pack::into_bytes`] or [`PackRef::bytes`] gave them.
    pub const fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    /// All its bytes.
    pub const fn bytes(self) -> &'a [u8] {
        self.0
    }

    /// How many elements it has.
    #[inline]
    pub fn len(self) -> usize {
        u16_at(self.0, 0)
    }

    /// Whether it has none.
    pub fn is_empty(self) -> bool {
        self.len() == 0
    }

    /// Where the first element is; `None` in an empty pack.
    pub const fn first(self) -> Option<usize> {
        if self.0.len() > COUNT_LEN { Some(COUNT_LEN) } else { None }
    }

    /// Whether so many more elements can be counted.
    pub fn has_room(self, more: usize) -> bool {
        self.len() + more <= PACK_LEN_MAX
    }

    /// Where the last element is.
    pub fn last(self) -> Option<usize> {
        self.before(self.0.len())
    }

    /// Where the element behind the one at `at` is.
    #[inline]
    pub fn next(self, at: usize) -> Option<usize> {
        let next = self.end_of(at);
        (next < self.0.len()).then_some(next)
    }

    /// Where the element before the one at `at` is.
    pub fn prev(self, at: usize) -> Option<usize> {
        self.before(at)
    }

    fn before(self, at: usize) -> Option<usize> {
        if at <= COUNT_LEN {
            return None;
        }
        Some(start_before(self.0, COUNT_LEN, at))
    }

    /// The offset behind the element at `at`.
    #[inline]
    pub fn end_of(self, at: usize) -> usize {
        end_of(self.0, at)
    }

    /// The element at `at`.
    #[inline]
    pub fn get(self, at: usize) -> Element<'a> {
        read(self.0, at)
    }

    /// Where element number `idx` is, counted from the nearer end.
    pub fn nth(self, idx: usize) -> Option<usize> {
        let len = self.len();
        if idx >= len {
            return None;
        }
        if idx < len / 2 {
            let mut at = self.first()?;
            for _ in 0..idx {
                at = self.next(at)?;
            }
            return Some(at);
        }
        let mut at = self.last()?;
        for _ in idx + 1..len {
            at = self.prev(at)?;
        }
        Some(at)
    }

    /// Visits up to `count` elements from the one at `at` on; returns how many there were, and where the next one is, if any.
    #[inline]
    pub fn visit(
        self,
        mut at: usize,
        count: usize,
        visit: &mut impl FnMut(Element<'a>),
    ) -> (usize, Option<usize>) {
        let mut visited = 0;
        while visited < count && at < self.0.len() {
            let (element, next) = read_on(self.0, at);
            visit(element);
            (at, visited) = (next, visited + 1);
        }
        (visited, (at < self.0.len()).then_some(at))
    }

    /// The elements in order.
    pub fn iter(self) -> impl DoubleEndedIterator<Item = Element<'a>> + Clone {
        Iter { pack: self, front: COUNT_LEN, back: self.0.len() }
    }

    /// Where the first element with this text is among those with numbers 0, `stride`, 2 × `stride`, …
    #[inline]
    pub fn find(self, text: &[u8], stride: usize) -> Option<usize> {
        let wanted = Element::of(text);
        let mut at = self.first()?;
        loop {
            let (element, mut next) = read_on(self.0, at);
            if element == wanted {
                return Some(at);
            }
            for _ in 1..stride {
                next = if next < self.0.len() { self.end_of(next) } else { return None };
            }
            at = if next < self.0.len() { next } else { return None };
        }
    }
}

#[derive(Clone)]
struct Iter<'a> {
    pack: PackRef<'a>,
    front: usize,
    back: usize,
}

impl<'a> Iterator for Iter<'a> {
    type Item = Element<'a>;
    fn next(&mut self) -> Option<Element<'a>> {
        if self.front >= self.back {
            return None;
        }
        let (element, next) = read_on(self.pack.0, self.front);
        self.front = next;
        Some(element)
    }
}

impl DoubleEndedIterator for Iter<'_> {
    fn next_back(&mut self) -> Option<Self::Item> {
        if self.front >= self.back {
            return None;
        }
        self.back = self.pack.before(self.back)?;
        Some(self.pack.get(self.back))
    }
}

impl Pack {
    /// From bytes that [`Self::into_bytes`] or [`PackRef::bytes`] gave.
    pub fn from_bytes(bytes: Vec<u8>) -> Self {
        debug_assert!(bytes.len() >= COUNT_LEN);
        Self(bytes)
    }

    /// Its bytes.
    pub fn into_bytes(self) -> Vec<u8> {
        self.0
    }

    /// For reading.
    #[inline]
    pub fn as_ref(&self) -> PackRef<'_> {
        PackRef(&self.0)
    }

    /// Bytes on the heap.
    pub fn heap_bytes(&self) -> usize {
        self.0.capacity()
    }

    fn add_to_count(&mut self, change: isize) {
        self.add_to_count_at(0, change);
    }

    fn add_to_count_at(&mut self, gap: usize, change: isize) {
        let count = u16_at(&self.0, gap).saturating_add_signed(change);
        self.0[gap..gap + COUNT_LEN].copy_from_slice(&(count as u16).to_le_bytes());
    }

    /// Bytes that it may have more without another allocation.
    pub fn room(&self) -> usize {
        self.0.capacity() - self.0.len()
    }

    /// Prepares for so many bytes more; there is as much room then as its allocation has anyway.
    pub fn make_room(&mut self, more: usize) {
        if self.room() < more {
            self.0.reserve_exact(size_class(self.0.len() + more) - self.0.len());
        }
    }

    /// Gives room back if there is much of it.
    pub fn trim(&mut self) {
        if self.0.capacity() > 2 * self.0.len() + 64 {
            self.shrink();
        }
    }

    /// Gives room back where a smaller block is enough. By a copy: allocators keep a block that becomes smaller by less than half.
    pub fn shrink(&mut self) {
        if size_class(self.0.len()) < size_class(self.0.capacity()) {
            self.0 = self.0.as_slice().to_vec();
        }
    }

    /// Adds an element at the end. The pack must have room.
    pub fn push_back(&mut self, element: Element<'_>) {
        self.push_back_behind(0, element);
    }

    /// Adds an element at the front.
    pub fn push_front(&mut self, element: Element<'_>) {
        self.insert(COUNT_LEN, element);
    }

    /// Adds an element before the one at `at`; at the end for the length of the bytes. Returns where the next one is then.
    pub fn insert(&mut self, at: usize, element: Element<'_>) -> usize {
        let (len, before) = (encoded_len(element), self.0.len());
        self.0.resize(before + len, 0);
        self.0.copy_within(at..before, at + len);
        self.write(at, element);
        self.add_to_count(1);
        at + len
    }

    /// Puts another element in the place of the one at `at`.
    pub fn replace(&mut self, at: usize, element: Element<'_>) {
        let (end, before, len) = (self.as_ref().end_of(at), self.0.len(), encoded_len(element));
        let after = before - (end - at) + len;
        self.0.resize(before.max(after), 0);
        self.0.copy_within(end..before, at + len);
        self.0.truncate(after);
        self.write(at, element);
    }

    /// Writes an element where there is room for it.
    fn write(&mut self, mut at: usize, element: Element<'_>) {
        encode(element, &mut |piece| {
            self.0[at..at + piece.len()].copy_from_slice(piece);
            at += piece.len();
        });
    }

    /// Removes `count` elements from the one at `at` on; `at` is then the element that followed.
    pub fn remove(&mut self, at: usize, count: usize) {
        let (mut end, mut removed) = (at, 0);
        while removed < count && end < self.0.len() {
            end = self.as_ref().end_of(end);
            removed += 1;
        }
        self.0.drain(at..end);
        self.add_to_count(-(removed as isize));
    }
}

/// A pack whose bytes begin behind a gap of others, which its owner knows of. Places in it count from its own beginning.
impl Pack {
    /// Removes bytes from the front: the gap.
    pub fn cut_front(&mut self, gap: usize) {
        if gap > 0 {
            self.0.drain(..gap);
        }
    }

    /// Adds an element at the end.
    pub fn push_back_behind(&mut self, gap: usize, element: Element<'_>) {
        encode(element, &mut |piece| self.0.extend_from_slice(piece));
        self.add_to_count_at(gap, 1);
    }

    /// Adds the elements of another pack at the end.
    pub fn append_behind(&mut self, gap: usize, other: PackRef<'_>) {
        self.make_room(other.0.len() - COUNT_LEN);
        self.0.extend_from_slice(&other.0[COUNT_LEN..]);
        self.add_to_count_at(gap, other.len() as isize);
    }

    /// Adds an element at the front, in the gap if it is wide enough; it grows to what the pack's allocation then has anyway
    /// otherwise. Returns how wide it is then.
    pub fn push_front_behind(&mut self, mut gap: usize, element: Element<'_>) -> usize {
        let (count, len) = (u16_at(&self.0, gap) + 1, encoded_len(element));
        if gap < len {
            let pack = &self.0[gap..];
            let size = size_class(pack.len() + len);
            gap = size - pack.len();
            let mut roomy = Vec::with_capacity(size);
            roomy.resize(gap, 0);
            roomy.extend_from_slice(pack);
            self.0 = roomy;
        }
        // Its last bytes come to lie where the count was.
        gap -= len;
        self.0[gap..gap + COUNT_LEN].copy_from_slice(&(count as u16).to_le_bytes());
        self.write(gap + COUNT_LEN, element);
        gap
    }

    /// Removes the first `count` elements; `end` is where the one behind them is. Returns how wide the gap is then.
    pub fn pop_front_behind(&mut self, gap: usize, end: usize, count: usize) -> usize {
        let left = u16_at(&self.0, gap) - count;
        let gap = gap + end - COUNT_LEN;
        self.0[gap..gap + COUNT_LEN].copy_from_slice(&(left as u16).to_le_bytes());
        gap
    }

    /// Removes all elements from the one at `at` on, which are `count`.
    pub fn truncate_behind(&mut self, gap: usize, at: usize, count: usize) {
        self.0.truncate(gap + at);
        self.add_to_count_at(gap, -(count as isize));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn itoa(int: i64) -> Vec<u8> {
        int.to_string().into_bytes()
    }

    fn texts(pack: &Pack) -> Vec<Vec<u8>> {
        pack.as_ref().iter().map(|element| element.text().into_owned()).collect()
    }

    fn element() -> impl Strategy<Value = Vec<u8>> {
        prop_oneof![
            any::<i64>().prop_map(itoa),
            (-300..70_000i64).prop_map(itoa),
            (-9_000_000..9_000_000i64).prop_map(itoa),
            (0..63u32, -1..2i64, any::<bool>()).prop_map(|(bits, more, negative)| {
                let int = (1 << bits) + more;
                itoa(if negative { -int } else { int })
            }),
            prop::collection::vec(any::<u8>(), 0..70),
            prop::collection::vec(0..0x80u8, 0..200),
            (prop_oneof![40..60usize, 180..187usize, 1785..1800usize], any::<bool>())
                .prop_map(|(len, ascii)| vec![if ascii { b'x' } else { 0xE9 }; len]),
            prop_oneof![105..115usize, 250..260usize, 3830..3845usize, 4090..4100usize]
                .prop_map(|len| vec![b'x'; len]),
            Just(vec![b'y'; 70_000]),
            Just(b"007".to_vec()),
        ]
    }

    proptest! {
        #[test]
        fn behaves_like_a_vector(
            ops in prop::collection::vec((0..5u8, any::<prop::sample::Index>(), element()), 0..40)
        ) {
            let (mut pack, mut model) = (Pack::default(), Vec::<Vec<u8>>::new());
            for (op, place, text) in ops {
                let idx = place.index(model.len() + 1);
                let at = pack.as_ref().nth(idx);
                prop_assert_eq!(at.is_some(), idx < model.len());
                match (op, at) {
                    (0, _) => { pack.push_back(Element::of(&text)); model.push(text); }
                    (1, _) => { pack.push_front(Element::of(&text)); model.insert(0, text); }
                    (2, Some(at)) => { pack.insert(at, Element::of(&text)); model.insert(idx, text); }
                    (3, Some(at)) => { pack.replace(at, Element::of(&text)); model[idx] = text; }
                    (_, Some(at)) => {
                        pack.remove(at, 2);
                        model.drain(idx..(idx + 2).min(model.len()));
                    }
                    (_, None) => {}
                }
                prop_assert_eq!(pack.as_ref().len(), model.len());
                prop_assert_eq!(&texts(&pack), &model);
                let backwards: Vec<_> = pack.as_ref().iter().rev().map(|e| e.text().into_owned()).collect();
                prop_assert!(backwards.iter().eq(model.iter().rev()));
                for text in &model {
                    let at = pack.as_ref().find(text, 1).unwrap();
                    prop_assert_eq!(&*pack.as_ref().get(at).text(), &text[..]);
                }
            }
            let again = Pack::from_bytes(pack.clone().into_bytes());
            prop_assert_eq!(again, pack);
        }
    }

    #[test]
    fn doubles_and_strides() {
        let mut pack = Pack::default();
        for (member, score) in [("a", 1.5), ("b", -0.0), ("1", f64::INFINITY)] {
            pack.push_back(Element::of(member.as_bytes()));
            pack.push_back(Element::Double(score));
        }
        let at = pack.as_ref().find(b"1", 2).unwrap();
        let score = pack.as_ref().next(at).unwrap();
        assert_eq!(pack.as_ref().get(score).as_f64(), Some(f64::INFINITY));
        assert_eq!(pack.as_ref().find(b"c", 2), None);
        assert_eq!(pack.as_ref().len(), 6);
    }
}
