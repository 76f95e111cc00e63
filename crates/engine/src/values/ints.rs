//! A sorted array of integers, as narrow as the widest of them needs: the form of small sets of integers (Redis's intset).
//!
//! ```text
//!  ┌───────┬─────┬─────┬───
//!  │ width │ int │ int │ …     width  2, 4 or 8 bytes; integers little-endian, in ascending order
//!  └───────┴─────┴─────┴───
//! ```

const HEADER: usize = 1;

/// An owned array.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ints(Vec<u8>);

/// A borrowed one.
#[derive(Clone, Copy, Debug)]
pub struct IntsRef<'a>(&'a [u8]);

impl Default for Ints {
    fn default() -> Self {
        Self(vec![2])
    }
}

const fn width_of(int: i64) -> usize {
    match int {
        -0x8000..0x8000 => 2,
        -0x8000_0000..0x8000_0000 => 4,
        _ => 8,
    }
}

impl<'a> IntsRef<'a> {
    /// From the bytes of an array.
    pub const fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    /// All its bytes.
    pub const fn bytes(self) -> &'a [u8] {
        self.0
    }

    fn width(self) -> usize {
        self.0[0].into()
    }

    /// How many integers it has.
    pub fn len(self) -> usize {
        (self.0.len() - HEADER) / self.width()
    }

    /// Whether it has none.
    pub const fn is_empty(self) -> bool {
        self.0.len() == HEADER
    }

    /// Integer number `idx` in ascending order, which must exist.
    #[inline]
    pub fn at(self, idx: usize) -> i64 {
        let width = self.width();
        let start = HEADER + idx * width;
        let mut word = [0; 8];
        word[8 - width..].copy_from_slice(&self.0[start..start + width]);
        i64::from_le_bytes(word) >> (64 - 8 * width)
    }

    /// Where the integer is, or where it belongs.
    ///
    /// # Errors
    /// It is not there; the number is that of the first greater one.
    pub fn search(self, int: i64) -> Result<usize, usize> {
        let (mut from, mut to) = (0, self.len());
        while from < to {
            let middle = usize::midpoint(from, to);
            match self.at(middle).cmp(&int) {
                std::cmp::Ordering::Equal => return Ok(middle),
                std::cmp::Ordering::Less => from = middle + 1,
                std::cmp::Ordering::Greater => to = middle,
            }
        }
        Err(from)
    }

    /// Whether the integer is there.
    pub fn contains(self, int: i64) -> bool {
        width_of(int) <= self.width() && self.search(int).is_ok()
    }

    /// The integers in ascending order.
    pub fn iter(self) -> impl DoubleEndedIterator<Item = i64> + ExactSizeIterator + Clone + 'a {
        (0..self.len()).map(move |idx| self.at(idx))
    }
}

impl Ints {
    /// From bytes that [`Self::into_bytes`] or [`IntsRef::bytes`] gave.
    pub fn from_bytes(bytes: Vec<u8>) -> Self {
        debug_assert!(!bytes.is_empty());
        Self(bytes)
    }

    /// Its bytes.
    pub fn into_bytes(self) -> Vec<u8> {
        self.0
    }

    /// For reading.
    pub fn as_ref(&self) -> IntsRef<'_> {
        IntsRef(&self.0)
    }

    /// Bytes on the heap.
    pub fn heap_bytes(&self) -> usize {
        self.0.capacity()
    }

    /// Adds an integer; false if it was there.
    pub fn insert(&mut self, int: i64) -> bool {
        let width = width_of(int);
        if width > self.as_ref().width() {
            self.widen(width);
        }
        let Err(idx) = self.as_ref().search(int) else { return false };
        let width = self.as_ref().width();
        let at = HEADER + idx * width;
        self.0.splice(at..at, int.to_le_bytes()[..width].iter().copied());
        true
    }

    fn widen(&mut self, width: usize) {
        let mut wide = Vec::with_capacity(HEADER + (self.as_ref().len() + 1) * width);
        wide.push(width as u8);
        for int in self.as_ref().iter() {
            wide.extend_from_slice(&int.to_le_bytes()[..width]);
        }
        self.0 = wide;
    }

    /// Removes an integer; false if it was not there.
    pub fn remove(&mut self, int: i64) -> bool {
        let Ok(idx) = self.as_ref().search(int) else { return false };
        self.remove_at(idx);
        true
    }

    /// Removes integer number `idx`, which must exist.
    pub fn remove_at(&mut self, idx: usize) {
        let width = self.as_ref().width();
        let at = HEADER + idx * width;
        self.0.drain(at..at + width);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    proptest! {
        #[test]
        fn behaves_like_a_sorted_set(
            ops in prop::collection::vec((any::<bool>(), prop_oneof![-20..20i64, -70_000..70_000i64, any::<i64>()]), 0..200)
        ) {
            let (mut ints, mut model) = (Ints::default(), BTreeSet::new());
            for (add, int) in ops {
                if add {
                    prop_assert_eq!(ints.insert(int), model.insert(int));
                } else {
                    prop_assert_eq!(ints.as_ref().contains(int), model.contains(&int));
                    prop_assert_eq!(ints.remove(int), model.remove(&int));
                }
                prop_assert!(ints.as_ref().iter().eq(model.iter().copied()));
                prop_assert_eq!(ints.as_ref().len(), model.len());
            }
            prop_assert_eq!(Ints::from_bytes(ints.as_ref().bytes().to_vec()), ints);
        }
    }
}
