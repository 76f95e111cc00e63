//! Sets: members without order.

use super::element::Element;
use super::ints::{Ints, IntsRef};
use super::pack::{Pack, PackRef};
use super::table::{Member, Table};
use crate::args::parse_int;
use crate::settings::CompactLimits;

/// A table of more members than this is freed in pieces.
const FREED_AT_ONCE_MAX: usize = 64;
/// Members of a large set that are visited before its visitor may end the visit.
const VISIT_STEP: usize = 64;

/// Members without order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Set {
    /// Integers only, and not many.
    Ints(Ints),
    /// Few and short ones.
    Pack(Pack),
    /// Many or long ones.
    Table(Box<Table<Member>>),
}

/// The same, for reading.
#[derive(Clone, Copy, Debug)]
pub enum SetRef<'a> {
    /// Integers only, and not many.
    Ints(IntsRef<'a>),
    /// Few and short ones.
    Pack(PackRef<'a>),
    /// Many or long ones.
    Table(&'a Table<Member>),
}

impl Default for Set {
    fn default() -> Self {
        Self::Ints(Ints::default())
    }
}

impl Set {
    /// An empty set in the form that Valkey gives one which is made for `first` and is to have about `expected` members.
    pub fn for_members(first: &[u8], expected: usize, limits: &CompactLimits) -> Self {
        if expected <= limits.set_ints && parse_int(first).is_some() {
            Self::default()
        } else if expected <= limits.set_entries {
            Self::Pack(Pack::default())
        } else {
            Self::Table(Box::new(Table::new(limits.seed)))
        }
    }

    /// An empty set in the form in which Valkey begins an intersection whose smallest set is `other`.
    pub fn like(other: SetRef<'_>) -> Self {
        if matches!(other, SetRef::Ints(_)) { Self::default() } else { Self::Pack(Pack::default()) }
    }

    /// Prepares for so many more members, in one command: it takes its large form if they may be too many for its present one.
    pub fn expect(&mut self, more: usize, limits: &CompactLimits) {
        let too_many = match self {
            Self::Ints(_) => more > limits.set_ints,
            Self::Pack(_) => more > limits.set_entries,
            Self::Table(_) => false,
        };
        if too_many {
            self.enlarge(limits.seed);
        }
    }

    /// For reading.
    #[inline]
    pub fn as_ref(&self) -> SetRef<'_> {
        match self {
            Self::Ints(ints) => SetRef::Ints(ints.as_ref()),
            Self::Pack(pack) => SetRef::Pack(pack.as_ref()),
            Self::Table(table) => SetRef::Table(table),
        }
    }

    /// Bytes on the heap, about.
    pub fn heap_bytes(&self) -> usize {
        match self {
            Self::Ints(ints) => ints.heap_bytes(),
            Self::Pack(pack) => pack.heap_bytes(),
            Self::Table(table) => size_of::<Table<Member>>() + table.heap_bytes(),
        }
    }

    /// Whether freeing it at once may take long.
    pub const fn is_large(&self) -> bool {
        match self {
            Self::Ints(_) | Self::Pack(_) => false,
            Self::Table(table) => table.len() > FREED_AT_ONCE_MAX,
        }
    }

    /// Removes members for the sake of their memory, each for one of `budget`; true when none is left.
    pub fn free_some(&mut self, budget: &mut usize) -> bool {
        let done = if let Self::Table(table) = self {
            table.free_some(budget)
        } else {
            *budget = budget.saturating_sub(1);
            true
        };
        if done {
            *self = Self::default();
        }
        done
    }

    /// Gives it its large form, in which it stays.
    fn enlarge(&mut self, seed: u64) -> &mut Table<Member> {
        if !matches!(self, Self::Table(_)) {
            let mut table = Box::new(Table::new(seed));
            self.as_ref().for_each(|member| table.insert(member.with_text(Member::new)));
            *self = Self::Table(table);
        }
        let Self::Table(table) = self else { unreachable!("it has just got this form") };
        table
    }

    /// Adds a member; true if it is new.
    #[inline]
    pub fn add(&mut self, member: &[u8], limits: &CompactLimits) -> bool {
        match self {
            Self::Ints(ints) => {
                if let Some(int) = parse_int(member) {
                    let added = ints.insert(int);
                    if added && ints.as_ref().len() > limits.set_ints {
                        self.enlarge(limits.seed);
                    }
                    return added;
                }
                if !packs(ints.as_ref(), limits) || member.len() > limits.set_value {
                    self.enlarge(limits.seed).insert(Member::new(member));
                    return true;
                }
                let mut pack = Pack::default();
                ints.as_ref().iter().for_each(|int| pack.push_back(Element::Int(int)));
                pack.push_back(Element::Bytes(member));
                *self = Self::Pack(pack);
                true
            }
            Self::Pack(pack) => {
                if pack.as_ref().find(member, 1).is_some() {
                    return false;
                }
                let fits = pack.as_ref().len() < limits.set_entries && member.len() <= limits.set_value;
                if fits && pack.as_ref().has_room(1) {
                    pack.push_back(Element::of(member));
                } else {
                    self.enlarge(limits.seed).insert(Member::new(member));
                }
                true
            }
            Self::Table(table) => {
                let new = !table.contains(member);
                if new {
                    table.insert(Member::new(member));
                }
                new
            }
        }
    }

    /// Removes a member; true if it was there.
    pub fn remove(&mut self, member: &[u8]) -> bool {
        match self {
            Self::Ints(ints) => parse_int(member).is_some_and(|int| ints.remove(int)),
            Self::Pack(pack) => {
                let place = pack.as_ref().find(member, 1);
                if let Some(at) = place {
                    pack.remove(at, 1);
                }
                place.is_some()
            }
            Self::Table(table) => table.remove(member).is_some(),
        }
    }

    /// Removes a member picked by `random`, nearly evenly, and returns it.
    pub fn take_random(&mut self, random: impl FnMut() -> u64) -> Option<Vec<u8>> {
        let member = self.as_ref().random(random)?.text().into_owned();
        self.remove(&member);
        Some(member)
    }

    /// Makes integers of it, if it has no other members and not too many.
    pub fn narrow(&mut self, limits: &CompactLimits) {
        let set = self.as_ref();
        if matches!(set, SetRef::Ints(_)) || set.len() > limits.set_ints {
            return;
        }
        let mut ints = Ints::default();
        let all = set.try_each(|member| match member {
            Element::Int(int) => {
                ints.insert(int);
                true
            }
            other => parse_int(&other.text()).is_some_and(|int| ints.insert(int)),
        });
        if all {
            *self = Self::Ints(ints);
        }
    }
}

/// Whether integers and one member more may become a pack.
fn packs(ints: IntsRef<'_>, limits: &CompactLimits) -> bool {
    let len = ints.len();
    let widest = |idx: usize| Element::Int(ints.at(idx)).text_len();
    len < limits.set_entries && (len == 0 || widest(0).max(widest(len - 1)) <= limits.set_value)
}

impl SetRef<'static> {
    /// A set without members.
    pub const EMPTY: Self = Self::Ints(IntsRef::new(&[2]));
}

impl<'a> SetRef<'a> {
    /// How many members it has.
    #[inline]
    pub fn len(self) -> usize {
        match self {
            Self::Ints(ints) => ints.len(),
            Self::Pack(pack) => pack.len(),
            Self::Table(table) => table.len(),
        }
    }

    /// How many members, and how many bytes they have on the heap, of which a small set has few.
    pub fn extent(self) -> (usize, usize) {
        match self {
            Self::Ints(_) | Self::Pack(_) => (self.len(), 0),
            Self::Table(table) => (table.len(), table.heap_bytes()),
        }
    }

    /// Whether it has none.
    pub fn is_empty(self) -> bool {
        self.len() == 0
    }

    /// What OBJECT ENCODING says.
    pub const fn encoding(self) -> &'static str {
        match self {
            Self::Ints(_) => "intset",
            Self::Pack(_) => "listpack",
            Self::Table(_) => "hashtable",
        }
    }

    /// Whether this is a member.
    #[inline]
    pub fn contains(self, member: &[u8]) -> bool {
        match self {
            Self::Ints(ints) => parse_int(member).is_some_and(|int| ints.contains(int)),
            Self::Pack(pack) => pack.find(member, 1).is_some(),
            Self::Table(table) => table.contains(member),
        }
    }

    /// The same of another set's member.
    #[inline]
    pub fn has(self, member: Element<'_>) -> bool {
        match (self, member) {
            (Self::Ints(ints), Element::Int(int)) => ints.contains(int),
            (_, member) => member.with_text(|text| self.contains(text)),
        }
    }

    /// Visits all members: integers in ascending order, few others in the order in which they came, many in any.
    pub fn for_each(self, mut visit: impl FnMut(Element<'a>)) {
        match self {
            Self::Ints(ints) => ints.iter().for_each(|int| visit(Element::Int(int))),
            Self::Pack(pack) => pack.iter().for_each(visit),
            Self::Table(table) => table.for_each(|member| visit(Element::Bytes(member.bytes()))),
        }
    }

    /// Visits members while `visit` says so; true if it always did.
    pub fn try_each(self, mut visit: impl FnMut(Element<'a>) -> bool) -> bool {
        match self {
            Self::Ints(ints) => ints.iter().all(|int| visit(Element::Int(int))),
            Self::Pack(pack) => pack.iter().all(visit),
            Self::Table(_) => {
                let (mut from, mut on) = (Some(0), true);
                while let (Some(place), true) = (from, on) {
                    from = self.walk(place, VISIT_STEP, |member| on = on && visit(member));
                }
                on
            }
        }
    }

    /// Visits some from a place in the order on, about `budget` of a large one, all of a small one. Returns where to go on, `None`
    /// at the end. A member that is there all the time is visited by a series of such calls exactly once.
    pub fn walk(self, from: u64, budget: usize, mut visit: impl FnMut(Element<'a>)) -> Option<u64> {
        let Self::Table(table) = self else {
            self.for_each(visit);
            return None;
        };
        table.walk(from, budget, &mut |member| visit(Element::Bytes(member.bytes())))
    }

    /// A member picked by `random`, nearly evenly; `None` if there is none.
    pub fn random(self, mut random: impl FnMut() -> u64) -> Option<Element<'a>> {
        let nth = |random: u64| random.checked_rem(self.len() as u64).map(|idx| idx as usize);
        match self {
            Self::Ints(ints) => nth(random()).map(|idx| Element::Int(ints.at(idx))),
            Self::Pack(pack) => Some(pack.get(pack.nth(nth(random())?)?)),
            Self::Table(table) => Some(Element::Bytes(table.random(random)?.bytes())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    fn text() -> impl Strategy<Value = Vec<u8>> {
        prop_oneof![
            4 => (-3..30i64).prop_map(|n| n.to_string().into_bytes()),
            2 => prop::collection::vec(b'a'..=b'c', 0..3),
            1 => Just(vec![b'x'; 65]),
        ]
    }

    fn members(set: SetRef<'_>) -> BTreeSet<Vec<u8>> {
        let mut all = BTreeSet::new();
        set.for_each(|member| assert!(all.insert(member.text().into_owned())));
        all
    }

    proptest! {
        #[test]
        fn behaves_like_a_set_in_every_form(
            ops in prop::collection::vec((0..5u8, text()), 0..80), ints in 0..12usize, entries in 0..12usize,
        ) {
            let limits = CompactLimits { set_ints: ints, set_entries: entries, ..CompactLimits::default() };
            let (mut set, mut model) = (Set::default(), BTreeSet::<Vec<u8>>::new());
            let mut rng = crate::ctx::Rng::new(ops.len() as u64);
            for (op, member) in ops {
                match op {
                    0 => prop_assert_eq!(set.remove(&member), model.remove(&member)),
                    1 if model.len() > 3 => {
                        let taken = set.take_random(|| rng.next()).unwrap();
                        prop_assert!(model.remove(&taken));
                    }
                    _ => prop_assert_eq!(set.add(&member, &limits), model.insert(member)),
                }
                let seen = set.as_ref();
                prop_assert_eq!(seen.len(), model.len());
                prop_assert_eq!(&members(seen), &model);
                prop_assert!(model.iter().all(|member| seen.contains(member) && seen.has(Element::of(member))));
                prop_assert!(!seen.contains(b"no member"));
                let picked = seen.random(|| rng.next()).map(|member| member.text().into_owned());
                prop_assert_eq!(picked.is_some(), !model.is_empty());
                prop_assert!(picked.is_none_or(|picked| model.contains(&picked)));
            }
            let mut narrowed = set.clone();
            narrowed.narrow(&limits);
            prop_assert_eq!(&members(narrowed.as_ref()), &model);
            while !set.free_some(&mut 7) {}
            prop_assert!(set.as_ref().is_empty());
        }
    }

    #[test]
    fn forms_change_at_the_limits() {
        let limits = CompactLimits::default();
        let mut set = Set::default();
        let mut add = |member: &str| {
            set.add(member.as_bytes(), &limits);
            set.as_ref().encoding()
        };
        assert!((0..512).all(|n| add(&n.to_string()) == "intset"));
        assert_eq!(add("512"), "hashtable");
        let mut set = Set::default();
        for n in 0..127 {
            set.add(n.to_string().as_bytes(), &limits);
        }
        set.add(b"x", &limits);
        assert_eq!(set.as_ref().encoding(), "listpack");
        set.add(b"y", &limits);
        assert_eq!(set.as_ref().encoding(), "hashtable");
    }

    #[test]
    fn freeing_a_large_one_takes_steps_and_a_visit_can_end() {
        let (limits, mut set) = (CompactLimits::default(), Set::default());
        for n in 0..1000 {
            set.add(format!("m{n}").as_bytes(), &limits);
        }
        let mut seen = 0;
        assert!(!set.as_ref().try_each(|_| {
            seen += 1;
            seen < 100
        }));
        assert_eq!(seen, 100);
        assert!(set.is_large() && set.heap_bytes() > 1000 * 8);
        let mut steps = 1;
        while !set.free_some(&mut 100) {
            steps += 1;
        }
        assert_eq!(steps, 10);
    }
}
