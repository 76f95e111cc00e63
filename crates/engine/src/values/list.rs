//! Lists: elements in an order, with two ends.
//!
//! A short list is one pack, in its key's entry or beside it; a longer one is a deque of packs ([`Chunks`]). What OBJECT ENCODING says of
//! either is a question of its own: `list-max-listpack-size` decides it from the size that the list would have in Valkey.

use super::chunk::Chunk;
use super::chunks::{Chunks, LISTPACK_FRAME, Limit, ListSize, listpack_len};
use super::element::{Element, encoded_len_max};
use super::pack::{Pack, PackRef};

/// Packs of more bytes do not lie in their key's entry, where every change would copy them.
pub const INLINE_BYTES_MAX: usize = 1024;
/// Lists of more bytes are several packs.
const PACK_BYTES_MAX: usize = 2048;
/// A list that has become so short is one pack again, and in its key's entry.
pub const SHORT_BYTES_MAX: usize = 512;

/// Elements in an order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum List {
    /// Few: one behind the other.
    Pack(Pack),
    /// Many.
    Chunks(Box<Chunks>),
}

/// The same, for reading.
#[derive(Clone, Copy, Debug)]
pub enum ListRef<'a> {
    /// Few: one behind the other.
    Pack(PackRef<'a>),
    /// Many.
    Chunks(&'a Chunks),
}

/// Where an element is: in which pack, and where there. Good until the list is changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    pub(super) chunk: usize,
    pub(super) at: usize,
}

impl Place {
    /// It as a number that is not 0.
    pub const fn to_number(self) -> u64 {
        ((self.chunk as u64 + 1) << 32) | self.at as u64
    }

    /// The place of a number that [`Self::to_number`] has made.
    pub const fn from_number(number: u64) -> Self {
        Self { chunk: (number >> 32) as usize - 1, at: number as u32 as usize }
    }
}

/// One of a list's ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// Its head.
    Left,
    /// Its tail.
    Right,
}

impl Default for List {
    fn default() -> Self {
        Self::Pack(Pack::default())
    }
}

impl List {
    /// For reading.
    #[inline]
    pub fn as_ref(&self) -> ListRef<'_> {
        match self {
            Self::Pack(pack) => ListRef::Pack(pack.as_ref()),
            Self::Chunks(chunks) => ListRef::Chunks(chunks),
        }
    }

    /// Bytes on the heap.
    pub fn heap_bytes(&self) -> usize {
        match self {
            Self::Pack(pack) => pack.heap_bytes(),
            Self::Chunks(chunks) => chunks.heap_bytes(),
        }
    }

    /// Whether freeing it at once may take long.
    pub fn is_large(&self) -> bool {
        matches!(self, Self::Chunks(chunks) if chunks.count() > 16)
    }

    /// Removes elements for the sake of their memory, a pack of them for one of `budget`; true when none is left.
    pub fn free_some(&mut self, budget: &mut usize) -> bool {
        if let Self::Chunks(chunks) = self
            && !chunks.free_some(budget)
        {
            return false;
        }
        *self = Self::default();
        true
    }

    /// To be called before elements are added, of so many bytes together; `size` is that of its pieces. The list becomes a
    /// quicklist where its listpack would grow too large.
    #[inline]
    pub fn prepare(&mut self, size: ListSize, more_bytes: usize, more: usize) {
        let limit = Limit::of(size);
        match self {
            Self::Chunks(chunks) => chunks.prepare(limit, more_bytes, more),
            Self::Pack(pack) => {
                // An element takes at most twice as many bytes in a listpack as in a pack.
                let (bytes, len) = (pack.as_ref().bytes().len(), pack.as_ref().len() + more);
                if limit.is_exceeded(LISTPACK_FRAME + 2 * bytes + more_bytes, len)
                    && limit.is_exceeded(listpack_size(pack.as_ref()) + more_bytes, len)
                {
                    self.chunked().prepare(limit, more_bytes, more);
                } else if bytes + more_bytes + more > PACK_BYTES_MAX {
                    self.chunked();
                }
            }
        }
    }

    fn chunked(&mut self) -> &mut Chunks {
        if let Self::Pack(pack) = self {
            let pack = std::mem::take(pack);
            *self = Self::Chunks(Box::new(Chunks::from_pack(pack)));
        }
        match self {
            Self::Chunks(chunks) => chunks,
            Self::Pack(_) => unreachable!("it has just been made one"),
        }
    }

    /// Adds an element at an end, for which [`Self::prepare`] was called.
    #[inline]
    pub fn push(&mut self, side: Side, text: &[u8], size: ListSize) {
        match self {
            Self::Pack(pack) => {
                let element = Element::of(text);
                pack.make_room(encoded_len_max(element));
                match side {
                    Side::Left => pack.push_front(element),
                    Side::Right => pack.push_back(element),
                }
            }
            Self::Chunks(chunks) => chunks.push(side, text, Limit::of(size)),
        }
    }

    /// Adds an element before or behind another one; [`Self::prepare`] was called before that was looked for.
    pub fn insert(&mut self, place: Place, side: Side, text: &[u8], size: ListSize) {
        match self {
            Self::Pack(pack) => {
                let at = if side == Side::Left { place.at } else { pack.as_ref().end_of(place.at) };
                let element = Element::of(text);
                pack.make_room(encoded_len_max(element));
                pack.insert(at, element);
            }
            Self::Chunks(chunks) => chunks.insert(place, side, text, Limit::of(size)),
        }
    }

    /// Puts another element in the place of one.
    pub fn replace(&mut self, place: Place, text: &[u8], size: ListSize) {
        match self {
            Self::Pack(pack) => {
                let element = Element::of(text);
                pack.make_room(encoded_len_max(element));
                pack.replace(place.at, element);
            }
            Self::Chunks(chunks) => chunks.replace(place, text, Limit::of(size)),
        }
    }

    /// Removes an element; returns where the next one is then.
    pub fn remove(&mut self, place: Place) -> Option<Place> {
        match self {
            Self::Pack(pack) => {
                pack.remove(place.at, 1);
                (place.at < pack.as_ref().bytes().len()).then_some(place)
            }
            Self::Chunks(chunks) => chunks.remove(place),
        }
    }

    /// Removes `count` elements from number `start` on. Packs that go whole are not looked into.
    pub fn remove_range(&mut self, start: usize, count: usize) {
        if count == 0 {
            return;
        }
        match self {
            Self::Pack(pack) => {
                if let Some(at) = pack.as_ref().nth(start) {
                    pack.remove(at, count);
                }
            }
            Self::Chunks(chunks) => chunks.remove_range(start, count),
        }
    }

    /// A list of these elements, in the form of one that was a quicklist while they were added one after the other.
    pub fn gather<'a>(texts: impl Iterator<Item = &'a [u8]>, size: ListSize) -> Self {
        let mut gathering = Gathering::new(size);
        texts.for_each(|text| gathering.push(text));
        gathering.finish()
    }

    /// To be called after elements were removed or replaced: a quicklist that has become short is a listpack again.
    #[inline]
    pub fn shrink(&mut self, size: ListSize) {
        if let Self::Chunks(chunks) = self {
            chunks.shrink(Limit::of(size));
            if let Some(pack) = chunks.take_short(SHORT_BYTES_MAX) {
                *self = Self::Pack(pack);
            }
        }
    }
}

/// A list that is put together: [`List::gather`] in pieces.
#[derive(Clone, Debug)]
pub struct Gathering {
    chunks: Chunks,
    limit: Limit,
}

impl Gathering {
    /// Without elements yet. `size` is that of its pieces.
    pub fn new(size: ListSize) -> Self {
        Self { chunks: Chunks::quick(), limit: Limit::of(size) }
    }

    /// Adds an element at the end.
    pub fn push(&mut self, text: &[u8]) {
        self.chunks.push(Side::Right, text, self.limit);
    }

    /// The list.
    pub fn finish(mut self) -> List {
        self.chunks.settle();
        match self.chunks.take_short(PACK_BYTES_MAX) {
            Some(pack) => List::Pack(pack),
            None => List::Chunks(Box::new(self.chunks)),
        }
    }
}

impl<'a> ListRef<'a> {
    /// How many elements it has.
    #[inline]
    pub fn len(self) -> usize {
        match self {
            Self::Pack(pack) => pack.len(),
            Self::Chunks(chunks) => chunks.len(),
        }
    }

    /// How many elements, and how many bytes they have on the heap, of which a small list has few.
    pub fn extent(self) -> (usize, usize) {
        match self {
            Self::Pack(_) => (self.len(), 0),
            Self::Chunks(chunks) => (chunks.len(), chunks.heap_bytes()),
        }
    }

    /// Whether it has none.
    #[inline]
    pub fn is_empty(self) -> bool {
        self.len() == 0
    }

    /// What OBJECT ENCODING says.
    pub fn encoding(self) -> &'static str {
        match self {
            Self::Chunks(chunks) if chunks.is_quick() => "quicklist",
            _ => "listpack",
        }
    }

    fn pack(self, chunk: usize) -> Option<PackRef<'a>> {
        match self {
            Self::Pack(pack) => (chunk == 0).then_some(pack),
            Self::Chunks(chunks) => chunks.get(chunk).map(Chunk::pack),
        }
    }

    fn chunks(self) -> usize {
        match self {
            Self::Pack(_) => 1,
            Self::Chunks(chunks) => chunks.count(),
        }
    }

    /// Where element number `idx` is; costs a step for each pack from the nearer end, and for each element in its pack.
    pub fn place(self, idx: usize) -> Option<Place> {
        let (chunk, nth) = match self {
            Self::Pack(_) => (0, idx),
            Self::Chunks(chunks) => chunks.find(idx)?,
        };
        Some(Place { chunk, at: self.pack(chunk)?.nth(nth)? })
    }

    /// Where the element at an end is.
    #[inline]
    pub fn end(self, side: Side) -> Option<Place> {
        let chunk = if side == Side::Left { 0 } else { self.chunks().checked_sub(1)? };
        let pack = self.pack(chunk)?;
        let at = if side == Side::Left { pack.first() } else { pack.last() };
        Some(Place { chunk, at: at? })
    }

    /// The element at a place.
    #[inline]
    pub fn get(self, place: Place) -> Element<'a> {
        self.pack(place.chunk).map_or(Element::Bytes(b""), |pack| pack.get(place.at))
    }

    /// The next place, away from `from`'s side.
    #[inline]
    pub fn step(self, place: Place, from: Side) -> Option<Place> {
        let pack = self.pack(place.chunk)?;
        let at = if from == Side::Left { pack.next(place.at) } else { pack.prev(place.at) };
        if let Some(at) = at {
            return Some(Place { at, ..place });
        }
        let chunk = if from == Side::Left { place.chunk + 1 } else { place.chunk.checked_sub(1)? };
        let pack = self.pack(chunk)?;
        let at = if from == Side::Left { pack.first() } else { pack.last() };
        Some(Place { chunk, at: at? })
    }

    /// The places from one on, away from a side.
    pub fn places(self, start: Option<Place>, from: Side) -> impl Iterator<Item = Place> + 'a {
        std::iter::successors(start, move |place| self.step(*place, from))
    }

    /// Visits `count` elements from a place on, in their order; returns where the next one is.
    pub fn visit(
        self,
        from: Option<Place>,
        mut count: usize,
        mut visit: impl FnMut(Element<'a>),
    ) -> Option<Place> {
        let Place { mut chunk, mut at } = from?;
        loop {
            let (visited, next) = self.pack(chunk)?.visit(at, count, &mut visit);
            if let Some(at) = next {
                return Some(Place { chunk, at });
            }
            (count, chunk) = (count - visited, chunk + 1);
            at = self.pack(chunk)?.first()?;
        }
    }

    /// The elements in their order.
    pub fn iter(self) -> impl Iterator<Item = Element<'a>> {
        self.places(self.end(Side::Left), Side::Left).map(move |place| self.get(place))
    }
}

/// Bytes that an element adds to what decides about encodings; an integer's text, which is not kept, none.
pub fn prepared_bytes(element: Element<'_>) -> usize {
    match element {
        Element::Bytes(bytes) => bytes.len(),
        _ => 0,
    }
}

/// The size of the listpack with these elements.
fn listpack_size(pack: PackRef<'_>) -> usize {
    LISTPACK_FRAME + pack.iter().map(listpack_len).sum::<usize>()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn texts(list: &List) -> Vec<Vec<u8>> {
        list.as_ref().iter().map(|element| element.text().into_owned()).collect()
    }

    fn check(list: &List, model: &[Vec<u8>]) -> Result<(), TestCaseError> {
        let view = list.as_ref();
        prop_assert_eq!(view.len(), model.len());
        prop_assert_eq!(&texts(list)[..], model);
        let backwards = view.places(view.end(Side::Right), Side::Right);
        let backwards: Vec<_> = backwards.map(|place| view.get(place).text().into_owned()).collect();
        prop_assert!(backwards.iter().eq(model.iter().rev()));
        for (idx, text) in model.iter().enumerate() {
            let place = view.place(idx).expect("it is there");
            prop_assert_eq!(&*view.get(place).text(), &text[..]);
        }
        prop_assert!(view.place(model.len()).is_none());
        if let List::Chunks(chunks) = list {
            chunks.check();
        }
        Ok(())
    }

    fn element() -> impl Strategy<Value = Vec<u8>> {
        prop_oneof![
            (-5000..200_000i64).prop_map(|int| int.to_string().into_bytes()),
            prop::collection::vec(any::<u8>(), 0..90),
            (0..400usize).prop_map(|len| vec![b'x'; len]),
            (100..3000usize).prop_map(|len| vec![b'x'; len]),
            Just(vec![b'y'; 9000]),
        ]
    }

    proptest! {
        #[test]
        fn behaves_like_a_vector(
            max in prop_oneof![-5..4i64, Just(100i64)],
            alone_bytes_min in prop_oneof![Just(0), Just(0), Just(1), 20..2000usize, Just(1 << 30)],
            ops in prop::collection::vec((0..9u8, any::<prop::sample::Index>(), element()), 0..80),
        ) {
            let size = ListSize { max, alone_bytes_min };
            let (mut list, mut model) = (List::default(), Vec::<Vec<u8>>::new());
            for (op, place, text) in ops {
                let idx = place.index(model.len() + 1);
                if op < 7 {
                    list.prepare(size, text.len(), 1);
                }
                match (op, list.as_ref().place(idx)) {
                    (0..=2, _) => { list.push(Side::Right, &text, size); model.push(text); }
                    (3, _) => { list.push(Side::Left, &text, size); model.insert(0, text); }
                    (4, Some(at)) => { list.insert(at, Side::Left, &text, size); model.insert(idx, text); }
                    (5, Some(at)) => { list.insert(at, Side::Right, &text, size); model.insert(idx + 1, text); }
                    (6, Some(at)) => {
                        list.replace(at, &text, size);
                        list.shrink(size);
                        model[idx] = text;
                    }
                    (7, Some(at)) => {
                        let next = list.remove(at);
                        model.remove(idx);
                        let next = next.map(|next| list.as_ref().get(next).text().into_owned());
                        prop_assert_eq!(next.as_ref(), model.get(idx));
                        list.shrink(size);
                    }
                    (_, Some(_)) => {
                        let count = (text.len() % 9).min(model.len() - idx);
                        list.remove_range(idx, count);
                        model.drain(idx..idx + count);
                        list.shrink(size);
                    }
                    (_, None) => {}
                }
                check(&list, &model)?;
            }
            while !list.free_some(&mut 1) {}
            prop_assert!(list.as_ref().is_empty());
        }
    }

    #[test]
    fn a_listpack_is_full_when_valkeys_is_though_small_integers_take_less_here() {
        let size = ListSize::from(-2);
        let mut list = List::default();
        for text in std::iter::repeat_n(&b"7"[..], 950).chain([&[b'x'; 7200][..]]) {
            assert_eq!(list.as_ref().encoding(), "listpack");
            list.prepare(size, text.len(), 1);
            list.push(Side::Right, text, size);
        }
        assert_eq!(list.as_ref().encoding(), "quicklist");
    }

    /// Elements of 14 bytes take 15 in a pack; what comes on top is that of packs and their rest.
    #[test]
    fn long_lists_have_little_room_to_spare_from_whichever_end_they_grow() {
        let size = ListSize::from(-2);
        for side in [Side::Left, Side::Right] {
            let mut list = List::default();
            for n in 0..1000 {
                list.prepare(size, 14, 1);
                list.push(side, format!("element:{n:06}").as_bytes(), size);
            }
            let bytes = list.heap_bytes();
            assert!((15_000..15_900).contains(&bytes), "{side:?}: {bytes}");
        }
    }
}
