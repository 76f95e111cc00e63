//! The order that SORT puts elements in.
//!
//! Numbers that are equal are ordered by their elements, so there is one right order. Elements whose texts to sort by are equal
//! keep the order of their source, as in Valkey, except where LIMIT has only a part sorted that BY orders: then Valkey's
//! algorithm shows, which is the quicksort of Bentley and McIlroy ("Engineering a Sort Function", 1993) without the parts that are
//! not asked for, and ours is that, too. Only where its pivots of many items go bad again and again, so that it would take quadratic
//! time, ours goes on with another algorithm, and equal ones may come in another order.

use crate::errors::{Error, echoed};
use std::cmp::Ordering;
use std::ops::Range;

/// So many more items than of elements that are read go into a piece where they are only compared.
pub(super) const MERGED_FACTOR: usize = 4;

/// What elements are sorted by.
#[derive(Clone, Debug)]
pub(super) enum Weights<T> {
    /// Their own texts.
    Own,
    /// A number each.
    Numbers(Vec<f64>),
    /// What is found under a pattern; nothing comes first.
    Texts(Vec<Option<T>>),
}

impl<T: AsRef<[u8]>> Weights<T> {
    /// Adds those of further elements, of which there will be `count` in all.
    pub(super) fn append(&mut self, more: Self, count: usize) {
        fn add<T>(all: &mut Vec<T>, more: Vec<T>, count: usize) {
            all.reserve_exact(count - all.len());
            all.extend(more);
        }
        match (self, more) {
            (Self::Numbers(all), Self::Numbers(more)) => add(all, more, count),
            (Self::Texts(all), Self::Texts(more)) => add(all, more, count),
            (all, more) => *all = more,
        }
    }

    /// Frees texts; true when none is left.
    pub(super) fn free_some(&mut self, budget: usize) -> bool {
        let Self::Texts(texts) = self else { return true };
        texts.truncate(texts.len().saturating_sub(budget));
        texts.is_empty()
    }

    /// Which of two elements, of which `text_of` tells the texts, comes first.
    #[inline]
    pub(super) fn compare<'a>(
        &self,
        text_of: &impl Fn(u32) -> &'a [u8],
        direction: Direction,
        a: u32,
        b: u32,
    ) -> Ordering {
        let collation = direction.collation;
        direction.of(match self {
            Self::Own => collation.compare(text_of(a), text_of(b)),
            Self::Numbers(numbers) => {
                let by_number = numbers[a as usize].partial_cmp(&numbers[b as usize]);
                by_number.unwrap_or(Ordering::Equal).then_with(|| text_of(a).cmp(text_of(b)))
            }
            Self::Texts(texts) => match (&texts[a as usize], &texts[b as usize]) {
                (Some(a), Some(b)) => collation.compare(a.as_ref(), b.as_ref()),
                (a, b) => a.is_some().cmp(&b.is_some()),
            },
        })
    }
}

/// A number to sort by, as Valkey reads it: a text of C, up to its first NUL.
pub(super) fn parse_weight(text: &[u8]) -> Result<f64, Error> {
    super::zset_range::parse_score(echoed(text))
        .ok_or(Error::text("ERR One or more scores can't be converted into double"))
}

/// How texts are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Collation {
    /// Byte by byte.
    Bytes,
    /// As C's locale does: up to the first NUL.
    Locale,
}

impl Collation {
    fn compare(self, a: &[u8], b: &[u8]) -> Ordering {
        match self {
            Self::Bytes => a.cmp(b),
            Self::Locale => echoed(a).cmp(echoed(b)),
        }
    }
}

/// How elements are to be sorted.
#[derive(Clone, Copy, Debug)]
pub(super) struct Direction {
    pub(super) descending: bool,
    pub(super) collation: Collation,
}

impl Direction {
    fn of(self, order: Ordering) -> Ordering {
        if self.descending { order.reverse() } else { order }
    }
}

/// The numbers of the elements that are in `range` of the order.
pub(super) fn arrange<T: AsRef<[u8]>>(
    elements: &[&[u8]],
    weights: &Weights<T>,
    direction: Direction,
    range: Range<usize>,
) -> Vec<u32> {
    let mut order: Vec<u32> = (0..elements.len() as u32).collect();
    let compare = |a: &u32, b: &u32| weights.compare(&|idx: u32| elements[idx as usize], direction, *a, *b);
    match weights {
        Weights::Numbers(_) => sort_part(&mut order, range.clone(), compare),
        Weights::Own => order.sort_by(compare),
        Weights::Texts(_) => order_part(&mut order, range.clone(), compare),
    }
    order.truncate(range.end);
    order.drain(..range.start);
    order
}

/// A stable merge sort that can stop between any two items, from the bottom up: two neighbouring runs become one, all over,
/// until one is left.
#[derive(Clone, Debug)]
pub(super) struct MergeSort {
    /// All items; sorted within runs.
    items: Vec<u32>,
    /// The runs of the next round, as far as they are made.
    merged: Vec<u32>,
    run_len: usize,
    /// The next items of the two runs that are being merged.
    left: usize,
    right: usize,
}

impl MergeSort {
    /// With room for so many items.
    pub(super) fn new(count: usize) -> Self {
        let (items, merged) = (Vec::with_capacity(count), Vec::with_capacity(count));
        Self { items, merged, run_len: 1, left: 0, right: 0 }
    }

    /// Of items that are in order.
    pub(super) const fn sorted(items: Vec<u32>) -> Self {
        Self { items, merged: Vec::new(), run_len: usize::MAX, left: 0, right: 0 }
    }

    /// Adds a run and sorts it. All runs but the last are of one length.
    pub(super) fn add_run(&mut self, run: Range<u32>, compare: impl Fn(u32, u32) -> Ordering) {
        let start = self.items.len();
        self.run_len = self.run_len.max(run.len());
        self.items.extend(run);
        self.items[start..].sort_by(|a, b| compare(*a, *b));
    }

    /// Adds more items in place of a run and keeps the first ones of all; there is nothing left to merge then.
    pub(super) fn add_and_keep(
        &mut self,
        more: Range<u32>,
        kept: usize,
        compare: impl Fn(u32, u32) -> Ordering,
    ) {
        self.run_len = usize::MAX;
        self.items.extend(more);
        self.items.sort_by(|a, b| compare(*a, *b));
        self.items.truncate(kept);
    }

    /// Merges up to `budget` items; true when all are in order.
    pub(super) fn merge(&mut self, budget: usize, compare: impl Fn(u32, u32) -> Ordering) -> bool {
        let Self { items, merged, run_len, left, right } = self;
        let len = items.len();
        for _ in 0..budget {
            if *run_len >= len {
                break;
            }
            let pair = merged.len() - merged.len() % (2 * *run_len);
            let (middle, end) = ((pair + *run_len).min(len), (pair + 2 * *run_len).min(len));
            if merged.len() == pair {
                (*left, *right) = (pair, middle);
            }
            let from_right = *left == middle || *right < end && compare(items[*right], items[*left]).is_lt();
            let next = if from_right { &mut *right } else { &mut *left };
            merged.push(items[*next]);
            *next += 1;
            if merged.len() == len {
                std::mem::swap(items, merged);
                merged.clear();
                *run_len *= 2;
            }
        }
        *run_len >= len
    }

    /// The items, in order once they have been merged.
    pub(super) fn items(&self) -> &[u32] {
        &self.items
    }
}

/// Puts those items at their places that belong in `range`; equal ones come in the order of Valkey's algorithms: a stable one for all
/// of them, a quicksort for a part.
pub(super) fn order_part(items: &mut [u32], range: Range<usize>, compare: impl Fn(&u32, &u32) -> Ordering) {
    if range.len() < items.len() {
        let depth = DEPTH_MAX + 2 * items.len().checked_ilog2().unwrap_or(0);
        quicksort_part(items, 0, &range, depth, &compare);
    } else {
        items.sort_by(compare);
    }
}

/// Puts those items at their places that belong in `range`, where all items are different.
fn sort_part(items: &mut [u32], range: Range<usize>, compare: impl Fn(&u32, &u32) -> Ordering) {
    if range.is_empty() {
        return;
    }
    if range.start > 0 {
        items.select_nth_unstable_by(range.start, &compare);
    }
    let (tail, len) = (&mut items[range.start..], range.len());
    if len < tail.len() {
        tail.select_nth_unstable_by(len, &compare);
    }
    tail[..len].sort_unstable_by(&compare);
}

/// Below this many items they are inserted one after the other.
const INSERTION_END: usize = 7;
/// From this many on the pivot is a median of medians.
const NINTHER_MIN: usize = 41;
/// Levels that there may be beyond twice the logarithm of the count. Members of an area come in runs that rise and fall, of which
/// the pivots are bad ones more often than those of random items.
const DEPTH_MAX: u32 = 64;
/// So few items are sorted by the quicksort however deep it gets: at worst by a quarter of the square of comparisons.
const QUADRATIC_MAX: usize = 512;

/// The same where items may be equal. They begin at place `at` of all. Deeper than `depth` levels what is still large is
/// merged instead.
fn quicksort_part(
    items: &mut [u32],
    at: usize,
    range: &Range<usize>,
    depth: u32,
    compare: &impl Fn(&u32, &u32) -> Ordering,
) {
    let len = items.len();
    if len < INSERTION_END {
        for end in 1..len {
            let mut place = end;
            while place > 0 && compare(&items[place - 1], &items[place]).is_gt() {
                items.swap(place - 1, place);
                place -= 1;
            }
        }
        return;
    }
    if depth == 0 && len > QUADRATIC_MAX {
        return items.sort_by(compare);
    }
    let depth = depth.saturating_sub(1);
    items.swap(0, pivot(items, compare));
    let (less, greater) = partition(items, compare);
    let wanted =
        |start: usize, len: usize| len > 1 && at + start < range.end && at + start + len > range.start;
    if wanted(0, less) {
        quicksort_part(&mut items[..less], at, range, depth, compare);
    }
    if wanted(len - greater, greater) {
        quicksort_part(&mut items[len - greater..], at + len - greater, range, depth, compare);
    }
}

/// Where the item is that the others are compared with.
fn pivot(items: &[u32], compare: &impl Fn(&u32, &u32) -> Ordering) -> usize {
    let len = items.len();
    let middle = len / 2;
    if len == INSERTION_END {
        return middle;
    }
    let median = |a: usize, b: usize, c: usize| {
        let is_less = |x: usize, y: usize| compare(&items[x], &items[y]).is_lt();
        if is_less(a, b) {
            if is_less(b, c) {
                b
            } else if is_less(a, c) {
                c
            } else {
                a
            }
        } else if compare(&items[b], &items[c]).is_gt() {
            b
        } else if is_less(a, c) {
            a
        } else {
            c
        }
    };
    if len < NINTHER_MIN {
        return median(0, middle, len - 1);
    }
    let step = len / 8;
    let low = median(0, step, 2 * step);
    let mid = median(middle - step, middle, middle + step);
    let high = median(len - 1 - 2 * step, len - 1 - step, len - 1);
    median(low, mid, high)
}

/// Puts what is less than the first item before, what is greater behind those that equal it; returns how many are less and
/// how many greater. Equal ones gather at both ends first.
fn partition(items: &mut [u32], compare: &impl Fn(&u32, &u32) -> Ordering) -> (usize, usize) {
    let len = items.len();
    // `equal_low` and `low` are the ends of their parts, `high` and `equal_high` the places behind which theirs begin, all plus one.
    let (mut equal_low, mut low, mut high, mut equal_high) = (1, 1, len, len);
    loop {
        while low < high {
            match compare(&items[low], &items[0]) {
                Ordering::Greater => break,
                Ordering::Equal => {
                    items.swap(equal_low, low);
                    equal_low += 1;
                }
                Ordering::Less => {}
            }
            low += 1;
        }
        while low < high {
            match compare(&items[high - 1], &items[0]) {
                Ordering::Less => break,
                Ordering::Equal => {
                    items.swap(high - 1, equal_high - 1);
                    equal_high -= 1;
                }
                Ordering::Greater => {}
            }
            high -= 1;
        }
        if low >= high {
            break;
        }
        items.swap(low, high - 1);
        low += 1;
        high -= 1;
    }
    let (less, greater) = (low - equal_low, equal_high - high);
    exchange(items, 0, low, equal_low.min(less));
    exchange(items, low, len, greater.min(len - equal_high));
    (less, greater)
}

/// Exchanges the first `count` items from `start` on with the last before `end`.
fn exchange(items: &mut [u32], start: usize, end: usize, count: usize) {
    for idx in 0..count {
        items.swap(start + idx, end - count + idx);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_part_of_the_order_is_that_of_the_whole(
            keys in proptest::collection::vec(0u8..12, 0..300), from in 0usize..300, len in 0usize..300, down: bool,
        ) {
            let texts: Vec<Option<Vec<u8>>> =
                keys.iter().map(|key| key.checked_sub(1).map(|key| vec![key])).collect();
            let names: Vec<String> = (0..keys.len()).map(|n| format!("{n:03}")).collect();
            let elements: Vec<&[u8]> = names.iter().map(String::as_bytes).collect();
            let start = from.min(keys.len());
            let range = start..(start + len).min(keys.len());
            let direction = Direction { descending: down, collation: Collation::Bytes };
            let weights: Weights<Vec<u8>> = Weights::Texts(texts);
            let mut expected: Vec<u8> = keys.clone();
            expected.sort_unstable();
            if down {
                expected.reverse();
            }
            let order = arrange(&elements, &weights, direction, range.clone());
            let found: Vec<u8> = order.iter().map(|idx| keys[*idx as usize]).collect();
            prop_assert_eq!(&found[..], &expected[range.clone()]);
            let mut unique = order.clone();
            unique.sort_unstable();
            unique.dedup();
            prop_assert_eq!(unique.len(), order.len());
            let numbers = keys.iter().map(|key| f64::from(*key)).collect();
            let order = arrange::<Vec<u8>>(&elements, &Weights::Numbers(numbers), direction, range.clone());
            let mut expected: Vec<u32> = (0..keys.len() as u32).collect();
            expected.sort_by_key(|idx| (keys[*idx as usize], *idx));
            if down {
                expected.reverse();
            }
            prop_assert_eq!(&order[..], &expected[range]);
        }
    }

    proptest! {
        #[test]
        fn a_merge_sort_in_pieces_is_a_stable_sort(
            keys in proptest::collection::vec(0u8..20, 0..300), run in 1usize..40, budget in 1usize..50,
        ) {
            let compare = |a: u32, b: u32| keys[a as usize].cmp(&keys[b as usize]);
            let (mut sort, mut best) = (MergeSort::new(keys.len()), MergeSort::new(0));
            for start in (0..keys.len()).step_by(run) {
                let more = start as u32..keys.len().min(start + run) as u32;
                sort.add_run(more.clone(), compare);
                best.add_and_keep(more, 10, compare);
            }
            while !sort.merge(budget, compare) {}
            prop_assert!(best.merge(1, compare));
            let mut expected: Vec<u32> = (0..keys.len() as u32).collect();
            expected.sort_by_key(|idx| keys[*idx as usize]);
            prop_assert_eq!(sort.items(), &expected[..]);
            prop_assert_eq!(best.items(), &expected[..keys.len().min(10)]);
        }
    }

    #[test]
    fn an_order_made_to_be_slow_is_not() {
        // All equal, rising and falling texts, with a part asked for.
        for make in [|_: usize| 5, |n: usize| n, |n: usize| 10_000 - n] {
            let texts = (0..10_000).map(|n| Some(format!("{:05}", make(n)).into_bytes())).collect();
            let elements = vec![&b"e"[..]; 10_000];
            let direction = Direction { descending: false, collation: Collation::Locale };
            assert_eq!(arrange(&elements, &Weights::Texts(texts), direction, 5000..5010).len(), 10);
        }
    }
}
