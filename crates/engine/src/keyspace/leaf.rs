//! One leaf of a slot's table: an array of words kept sorted by a 16-bit piece of the hash, the tag, with gaps.
//!
//! Linear probing from a home position that grows with the tag, insertion in tag order (ordered hash tables, Amble and
//! Knuth 1974); the home needs nothing but the tag, so a leaf is resized without touching an entry. Capacities follow the
//! size classes of mimalloc: growth is by a seventh to a quarter, so the table costs 9 to 11 bytes a key at every size, and
//! slots reach their limits at different times.

use super::word::{Item, ItemMut, ItemRef, Word};

/// Bits of the hash that one level of branches uses up.
pub(super) const LEVEL_BITS: u32 = 8;

/// A place in the order of hashes: entries with a hash below it are done.
pub(super) type Position = u64;

/// Words in the order of their tags, some of them free; the last one always is.
pub(crate) struct Leaf<T: Item> {
    pub(super) words: Box<[Word<T>]>,
    pub(super) len: u32,
}

impl<T: Item> Default for Leaf<T> {
    fn default() -> Self {
        Self { words: Box::default(), len: 0 }
    }
}

/// The piece of a hash that a leaf on `level` is sorted by.
#[inline]
pub(super) const fn tag_at(hash: u64, level: u32) -> u16 {
    ((hash << (LEVEL_BITS * level)) >> 48) as u16
}

/// The least capacity of at least `words` that the allocator has a size class for: 4, 8, then four steps per doubling.
const fn capacity_for(words: usize) -> usize {
    if words <= 8 {
        return if words <= 4 { 4 } else { 8 };
    }
    let step = words.next_power_of_two() / 8;
    words.div_ceil(step) * step
}

/// Home positions of a leaf of `capacity` words; the rest takes what is pushed past the last home.
#[inline]
const fn homes(capacity: usize) -> usize {
    capacity - 1 - capacity / 16
}

#[inline]
const fn home(tag: u16, capacity: usize) -> usize {
    (tag as usize * homes(capacity)) >> 16
}

impl<T: Item> Leaf<T> {
    #[inline]
    pub(super) fn find(&self, tag: u16, key: &[u8]) -> Option<usize> {
        if self.words.is_empty() {
            return None;
        }
        let from = home(tag, self.words.len());
        for (offset, word) in self.words[from..].iter().enumerate() {
            if word.is_free() || word.tag() > tag {
                return None;
            }
            if word.tag() == tag && word.item().key() == key {
                return Some(from + offset);
            }
        }
        None
    }

    /// The first word that may hold a key with this hash: where `find` will look first.
    #[inline]
    pub(super) fn candidate(&self, hash: u64, level: u32) -> Option<&Word<T>> {
        let tag = tag_at(hash, level);
        let from = if self.words.is_empty() { return None } else { home(tag, self.words.len()) };
        self.words[from..]
            .iter()
            .find(|word| word.is_free() || word.tag() >= tag)
            .filter(|word| !word.is_free())
    }

    /// Puts a new entry in; its key must not be there.
    pub(super) fn insert(&mut self, tag: u16, item: T) {
        let mut word = Word::new(tag, item);
        loop {
            match self.try_insert(word) {
                Ok(()) => return,
                Err(back) => word = back,
            }
            self.resize(self.words.len() + 1);
        }
    }

    pub(super) fn try_insert(&mut self, word: Word<T>) -> Result<(), Word<T>> {
        let capacity = self.words.len();
        if capacity == 0 || self.len as usize >= homes(capacity) - homes(capacity) / 10 {
            return Err(word);
        }
        let mut at = home(word.tag(), capacity);
        while !self.words[at].is_free() && self.words[at].tag() <= word.tag() {
            at += 1;
        }
        let Some(gap) = self.words[at..capacity - 1].iter().position(Word::is_free) else { return Err(word) };
        self.words[at..=at + gap].rotate_right(1);
        self.words[at] = word;
        self.len += 1;
        Ok(())
    }

    pub(super) fn remove(&mut self, at: usize) -> T {
        let entry = self.take_at(at);
        self.shrink();
        entry
    }

    /// Takes an entry out and closes the gap; what stood behind it moves up to its place. Keeps the capacity.
    pub(super) fn take_at(&mut self, at: usize) -> T {
        let capacity = self.words.len();
        let entry = self.words[at].take().expect("the caller found an entry here");
        let run = self.words[at + 1..]
            .iter()
            .enumerate()
            .take_while(|(offset, word)| !word.is_free() && home(word.tag(), capacity) <= at + offset)
            .count();
        self.words[at..=at + run].rotate_left(1);
        self.len -= 1;
        entry
    }

    /// Gives memory back where less than half of it is in use.
    pub(super) fn shrink(&mut self) {
        let len = self.len as usize;
        if self.words.len() > 8 && len < self.words.len() / 2 {
            self.resize(len + len / 4 + 2);
        }
    }

    /// Removes the entries with tags from `first` to `last` for which `keep` answers false.
    pub(super) fn retain(&mut self, first: u16, last: u16, keep: &mut dyn FnMut(ItemMut<'_, T>) -> bool) {
        if self.words.is_empty() {
            return;
        }
        let mut at = home(first, self.words.len());
        while at < self.words.len() && (self.words[at].is_free() || self.words[at].tag() <= last) {
            let within = !self.words[at].is_free() && self.words[at].tag() >= first;
            if within && !keep(self.words[at].item_mut()) {
                drop(self.take_at(at));
            } else {
                at += 1;
            }
        }
        self.shrink();
    }

    /// Hands up to `budget` items to `free`. The leaf is no table any more: free it to the end.
    pub(super) fn free_some(&mut self, budget: &mut usize, free: &mut dyn FnMut(T)) {
        for word in self.words.iter_mut().filter(|word| !word.is_free()) {
            if *budget == 0 {
                return;
            }
            if let Some(item) = word.take() {
                free(item);
                self.len -= 1;
                *budget -= 1;
            }
        }
        *self = Self::default();
    }

    /// Moves all words into an array of at least `capacity` words.
    pub(super) fn resize(&mut self, capacity: usize) {
        let mut capacity = capacity_for(capacity.max(4));
        let mut words = std::mem::take(&mut self.words);
        'larger: loop {
            let mut target: Box<[Word<T>]> = std::iter::repeat_with(|| Word::FREE).take(capacity).collect();
            let mut next = 0;
            for word in words.iter_mut().filter(|word| !word.is_free()) {
                let at = next.max(home(word.tag(), capacity));
                if at + 1 >= capacity {
                    // Too tight at the end: take what was moved back, in order, and try the next size.
                    let moved: Vec<Word<T>> = target.into_iter().filter(|word| !word.is_free()).collect();
                    words =
                        moved.into_iter().chain(words.into_iter().filter(|word| !word.is_free())).collect();
                    capacity = capacity_for(capacity + 1);
                    continue 'larger;
                }
                std::mem::swap(&mut target[at], word);
                next = at + 1;
            }
            self.words = target;
            return;
        }
    }

    pub(super) fn entries(&self) -> impl Iterator<Item = &Word<T>> {
        self.words.iter().filter(|word| !word.is_free())
    }

    pub(super) fn walk<'a>(
        &'a self,
        from: Position,
        level: u32,
        prefix: u64,
        visit: &mut dyn FnMut(ItemRef<'a, T>) -> bool,
    ) -> Option<Position> {
        let shift = 48 - LEVEL_BITS * level;
        let first = tag_at(from, level);
        let (mut stopped_at, mut go_on) = (None, true);
        let start = if self.words.is_empty() { 0 } else { home(first, self.words.len()) };
        for word in self.words[start..].iter().filter(|word| !word.is_free() && word.tag() >= first) {
            if !go_on && stopped_at != Some(word.tag()) {
                return Some(prefix | u64::from(word.tag()) << shift);
            }
            go_on &= visit(word.item());
            stopped_at = Some(word.tag());
        }
        if go_on {
            return None;
        }
        // The end of the leaf: the next position is the first one after it.
        let width = shift + 16;
        if width >= 64 { None } else { prefix.checked_add(1 << width) }
    }

    /// An entry by its number in hash order.
    pub(super) fn nth(&self, nth: usize) -> Option<ItemRef<'_, T>> {
        self.entries().nth(nth).map(Word::item)
    }
}
