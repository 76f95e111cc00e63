//! Sorted sets: members with scores, in the order of score and member.

use super::element::Element;
use super::order::compare;
use super::pack::{PACK_LEN_MAX, Pack, PackRef};
use super::ranked::Ranked;
use super::tally::Tally;
use crate::keyspace::Item;
use crate::settings::CompactLimits;

/// Members with scores.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SortedSet {
    /// Few and short ones: member, score, member, score, … in ascending order.
    Pack(Pack),
    /// Many or long ones.
    Ranked(Box<Ranked>),
}

/// The same, for reading.
#[derive(Clone, Copy, Debug)]
pub enum SortedSetRef<'a> {
    /// Few and short ones: member, score, member, score, … in ascending order.
    Pack(PackRef<'a>),
    /// Many or long ones.
    Ranked(&'a Ranked),
}

impl Default for SortedSet {
    fn default() -> Self {
        Self::Pack(Pack::default())
    }
}

/// Integers up to this magnitude are kept as such.
const INTEGER_MAX: f64 = (1u64 << 53) as f64;

/// How a score lies in a pack.
fn packed(score: f64) -> Element<'static> {
    let is_integer = score.trunc() == score && score.abs() <= INTEGER_MAX;
    // So -0 becomes 0, as in Valkey.
    if is_integer { Element::Int(score as i64) } else { Element::Double(score) }
}

fn score_at(pack: PackRef<'_>, member_at: usize) -> f64 {
    pack.next(member_at).and_then(|at| pack.get(at).as_f64()).unwrap_or_default()
}

/// Offset of the member behind the one at `at`.
fn next_pair(pack: PackRef<'_>, at: usize) -> Option<usize> {
    pack.next(at).and_then(|score| pack.next(score))
}

impl SortedSet {
    /// Whether such members come into the small form.
    pub fn is_small(members: &Tally, limits: &CompactLimits) -> bool {
        members.len() <= limits.sorted_entries.min(PACK_LEN_MAX / 2)
            && members.longest() <= limits.sorted_value
    }

    /// Of members in order, each of which comes once.
    pub fn from_sorted(members: &Tally, limits: &CompactLimits) -> Self {
        if Self::is_small(members, limits) {
            let mut pack = Pack::default();
            for (member, score) in members.iter() {
                pack.push_back(Element::of(member));
                pack.push_back(packed(score));
            }
            return Self::Pack(pack);
        }
        let mut ranked = Ranked::new(limits.seed);
        members.iter().for_each(|(member, score)| ranked.insert(member, score));
        Self::Ranked(Box::new(ranked))
    }

    /// For reading.
    #[inline]
    pub fn as_ref(&self) -> SortedSetRef<'_> {
        match self {
            Self::Pack(pack) => SortedSetRef::Pack(pack.as_ref()),
            Self::Ranked(ranked) => SortedSetRef::Ranked(ranked),
        }
    }

    /// Bytes on the heap.
    pub fn heap_bytes(&self) -> usize {
        match self {
            Self::Pack(pack) => pack.heap_bytes(),
            Self::Ranked(ranked) => ranked.heap_bytes(),
        }
    }

    /// Whether freeing it at once may take long.
    pub const fn is_large(&self) -> bool {
        matches!(self, Self::Ranked(_))
    }

    /// Removes elements for the sake of their memory, each for one of `budget`; true when none is left.
    pub fn free_some(&mut self, budget: &mut usize) -> bool {
        match self {
            Self::Pack(_) => {
                *budget = budget.saturating_sub(1);
                *self = Self::default();
                true
            }
            Self::Ranked(ranked) => ranked.free_some(budget),
        }
    }

    /// Prepares for so many members to be given in one command, the longest of so many bytes: it takes its large form if these do
    /// not fit in a small one, whether or not they come to be in it. So does Valkey's.
    #[inline]
    pub fn expect(&mut self, members: usize, longest: usize, limits: &CompactLimits) {
        if members > limits.sorted_entries || longest > limits.sorted_value {
            self.grow(limits.seed);
        }
    }

    /// Gives a member a score, whether it is there or not; returns the score that it had. Scores are never NaN.
    pub fn insert(&mut self, member: &[u8], score: f64, limits: &CompactLimits) -> Option<f64> {
        if let Self::Pack(pack) = self {
            let old = pack.as_ref().find(member, 2).map(|at| (at, score_at(pack.as_ref(), at)));
            if let Some((at, old)) = old {
                #[expect(clippy::float_cmp, reason = "whether it is another one, of which -0 is none")]
                if old != score {
                    move_in_pack(pack, at, member, score);
                }
                return Some(old);
            }
            let fits = pack.as_ref().len() / 2 < limits.sorted_entries
                && member.len() <= limits.sorted_value
                && pack.as_ref().has_room(2);
            if fits {
                insert_in_pack(pack, member, score);
                return None;
            }
        }
        let ranked = self.grow(limits.seed);
        let old = ranked.score(member);
        match old {
            None => ranked.insert(member, score),
            #[expect(clippy::float_cmp, reason = "whether it is another one, of which -0 is none")]
            Some(old) if old != score => ranked.set_score(member, old, score),
            Some(_) => {}
        }
        old
    }

    /// The large form, whatever it has been.
    fn grow(&mut self, seed: u64) -> &mut Ranked {
        if let Self::Pack(_) = self {
            let mut ranked = Ranked::new(seed);
            self.as_ref().visit(0, usize::MAX, false, &mut |member, score| ranked.insert(member, score));
            *self = Self::Ranked(Box::new(ranked));
        }
        match self {
            Self::Ranked(ranked) => ranked,
            Self::Pack(_) => unreachable!("it has just grown"),
        }
    }

    /// Removes a member; true if it was there.
    pub fn remove(&mut self, member: &[u8]) -> bool {
        match self {
            Self::Pack(pack) => {
                let at = pack.as_ref().find(member, 2);
                at.inspect(|at| pack.remove(*at, 2)).is_some()
            }
            Self::Ranked(ranked) => ranked.remove(member),
        }
    }

    /// Removes `count` members from a rank on.
    pub fn remove_range(&mut self, from: usize, count: usize) {
        match self {
            Self::Pack(pack) => {
                if let Some(at) = pack.as_ref().nth(2 * from) {
                    pack.remove(at, count.saturating_mul(2));
                }
            }
            Self::Ranked(ranked) => {
                for _ in 0..count {
                    if ranked.remove_at(from).is_none() {
                        break;
                    }
                }
            }
        }
    }
}

fn insert_in_pack(pack: &mut Pack, member: &[u8], score: f64) {
    let view = pack.as_ref();
    let mut place = view.first();
    while let Some(at) = place {
        if is_behind(view, at, score, member) {
            let next = pack.insert(at, Element::of(member));
            pack.insert(next, packed(score));
            return;
        }
        place = next_pair(view, at);
    }
    pack.push_back(Element::of(member));
    pack.push_back(packed(score));
}

/// Whether the member at `at` comes behind such a one.
#[inline]
fn is_behind(pack: PackRef<'_>, at: usize, score: f64, member: &[u8]) -> bool {
    pack.get(at).with_text(|other| compare((score_at(pack, at), other), (score, member)).is_gt())
}

/// Another score for the member at `at`, which may take it to another place.
fn move_in_pack(pack: &mut Pack, at: usize, member: &[u8], score: f64) {
    let view = pack.as_ref();
    let is_behind = |at: usize| is_behind(view, at, score, member);
    let before = view.prev(at).and_then(|score| view.prev(score));
    let stays = before.is_none_or(|before| !is_behind(before)) && next_pair(view, at).is_none_or(is_behind);
    match view.next(at) {
        Some(score_at) if stays => pack.replace(score_at, packed(score)),
        _ => {
            pack.remove(at, 2);
            insert_in_pack(pack, member, score);
        }
    }
}

impl<'a> SortedSetRef<'a> {
    /// How many members it has.
    pub fn len(self) -> usize {
        match self {
            Self::Pack(pack) => pack.len() / 2,
            Self::Ranked(ranked) => ranked.order().len(),
        }
    }

    /// How many members, and how many bytes they have on the heap, of which a small sorted set has few.
    pub fn extent(self) -> (usize, usize) {
        match self {
            Self::Pack(_) => (self.len(), 0),
            Self::Ranked(ranked) => (self.len(), ranked.heap_bytes()),
        }
    }

    /// Whether it has none.
    pub fn is_empty(self) -> bool {
        self.len() == 0
    }

    /// What OBJECT ENCODING says.
    pub const fn encoding(self) -> &'static str {
        match self {
            Self::Pack(_) => "listpack",
            Self::Ranked(_) => "skiplist",
        }
    }

    /// The score of a member.
    #[inline]
    pub fn score(self, member: &[u8]) -> Option<f64> {
        match self {
            Self::Pack(pack) => pack.find(member, 2).map(|at| score_at(pack, at)),
            Self::Ranked(ranked) => ranked.score(member),
        }
    }

    /// Rank and score of a member, the lowest first.
    pub fn rank(self, member: &[u8]) -> Option<(usize, f64)> {
        let score = self.score(member)?;
        Some((self.count_while(&|other, name| compare((other, name), (score, member)).is_lt()), score))
    }

    /// How many members come before the first one for which `before` is false; it must be true for a front part only.
    pub fn count_while(self, before: &dyn Fn(f64, &[u8]) -> bool) -> usize {
        match self {
            Self::Pack(pack) => {
                let (mut place, mut count) = (pack.first(), 0);
                while let Some(at) = place
                    && pack.get(at).with_text(|member| before(score_at(pack, at), member))
                {
                    place = next_pair(pack, at);
                    count += 1;
                }
                count
            }
            Self::Ranked(ranked) => ranked.order().count_while(before),
        }
    }

    /// Visits `count` members from a rank on, or backwards from the end, in which case the rank counts from there too.
    pub fn visit(self, from: usize, count: usize, reverse: bool, visit: &mut dyn FnMut(&[u8], f64)) {
        let count = count.min(self.len().saturating_sub(from));
        match self {
            Self::Pack(pack) if count > 0 => {
                let rank = if reverse { self.len() - 1 - from } else { from };
                let mut place = pack.nth(2 * rank);
                for _ in 0..count {
                    let Some(at) = place else { break };
                    pack.get(at).with_text(|member| visit(member, score_at(pack, at)));
                    place = if reverse {
                        pack.prev(at).and_then(|score| pack.prev(score))
                    } else {
                        next_pair(pack, at)
                    };
                }
            }
            Self::Pack(_) => {}
            Self::Ranked(ranked) => {
                ranked.order().visit(from, count, reverse, &mut |item| visit(item.key(), item.score()));
            }
        }
    }

    /// Visits members in the order of a scan from `from` on, about `budget` of them; a small set's all at once. Returns where to go
    /// on, `None` at the end.
    pub fn walk(self, from: u64, budget: usize, visit: &mut dyn FnMut(&[u8], f64)) -> Option<u64> {
        match self {
            Self::Pack(_) => {
                self.visit(0, usize::MAX, false, visit);
                None
            }
            Self::Ranked(ranked) => ranked.walk(from, budget, visit),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(100))]
        #[test]
        fn both_forms_behave_like_a_map_in_order(
            entries in prop::sample::select(vec![0usize, 5, 1000]),
            ops in prop::collection::vec((0..4u8, 0..60i32, -4..5i32), 0..300)
        ) {
            let limits = CompactLimits { sorted_entries: entries, ..CompactLimits::default() };
            let (mut set, mut model) = (SortedSet::default(), BTreeMap::<Vec<u8>, f64>::new());
            for (op, member, score) in ops {
                let name = if member % 2 == 0 { member.to_string() } else { format!("m{member}") };
                let (name, score) = (name.as_bytes(), f64::from(score) * 0.5);
                match op {
                    0 => prop_assert_eq!(set.remove(name), model.remove(name).is_some()),
                    1 if member % 7 == 0 => {
                        let mut sorted: Vec<_> = model.clone().into_iter().collect();
                        sorted.sort_by(|a, b| compare((a.1, &a.0), (b.1, &b.0)));
                        let from = sorted.len() / 2;
                        set.remove_range(from, 3);
                        sorted.iter().skip(from).take(3).for_each(|(name, _)| assert!(model.remove(name).is_some()));
                    }
                    _ => prop_assert_eq!(set.insert(name, score, &limits), model.insert(name.to_vec(), score)),
                }
                prop_assert_eq!(set.as_ref().len(), model.len());
            }
            let mut sorted: Vec<_> = model.iter().map(|(name, score)| (name.clone(), *score)).collect();
            sorted.sort_by(|a, b| compare((a.1, &a.0), (b.1, &b.0)));
            for (rank, (name, score)) in sorted.iter().enumerate() {
                prop_assert_eq!(set.as_ref().rank(name), Some((rank, *score)));
            }
            let (mut scanned, mut from) = (BTreeMap::new(), Some(0));
            while let Some(position) = from {
                from = set.as_ref().walk(position, 3, &mut |name, score| {
                    scanned.insert(name.to_vec(), score);
                });
            }
            prop_assert_eq!(&scanned, &model);
            for reverse in [false, true] {
                let mut seen = Vec::new();
                set.as_ref().visit(1, 50, reverse, &mut |name, score| seen.push((name.to_vec(), score)));
                let expected: Vec<_> = sorted.iter().skip(1).take(50).cloned().collect();
                prop_assert_eq!(&seen, &expected);
                sorted.reverse();
            }
            prop_assert_eq!(&set.clone(), &set);
            let mut tally = Tally::default();
            sorted.iter().rev().for_each(|(name, score)| tally.push(name, *score));
            tally.sort();
            let built = SortedSet::from_sorted(&tally, &limits);
            prop_assert_eq!(matches!(built, SortedSet::Pack(_)), model.len() <= entries);
            for (rank, (name, score)) in tally.iter().enumerate() {
                prop_assert_eq!(built.as_ref().rank(name), Some((rank, score)));
            }
            while !set.free_some(&mut 7) {}
        }
    }
}
