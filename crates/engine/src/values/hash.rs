//! Hashes: fields with values.

use super::element::Element;
use super::fields::Fields;
use super::pack::{Pack, PackRef};
use crate::settings::CompactLimits;

/// A table of more fields than this is freed in pieces.
const FREED_AT_ONCE_MAX: usize = 64;

/// Fields and their values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Hash {
    /// Few and short ones: field, value, field, value, …
    Pack(Pack),
    /// Many or long ones, or some with deadlines.
    Table(Box<Fields>),
}

/// The same, for reading.
#[derive(Clone, Copy, Debug)]
pub enum HashRef<'a> {
    /// Few and short ones: field, value, field, value, …
    Pack(PackRef<'a>),
    /// Many or long ones, or some with deadlines.
    Table(&'a Fields),
}

impl Default for Hash {
    fn default() -> Self {
        Self::Pack(Pack::default())
    }
}

impl Hash {
    /// For reading.
    #[inline]
    pub fn as_ref(&self) -> HashRef<'_> {
        match self {
            Self::Pack(pack) => HashRef::Pack(pack.as_ref()),
            Self::Table(fields) => HashRef::Table(fields),
        }
    }

    /// Bytes on the heap, about.
    pub fn heap_bytes(&self) -> usize {
        match self {
            Self::Pack(pack) => pack.heap_bytes(),
            Self::Table(fields) => fields.heap_bytes(),
        }
    }

    /// Whether freeing it at once may take long.
    pub fn is_large(&self) -> bool {
        match self {
            Self::Pack(_) => false,
            Self::Table(fields) => fields.pieces() > FREED_AT_ONCE_MAX,
        }
    }

    /// Removes elements for the sake of their memory, each for one of `budget`; true when none is left.
    pub fn free_some(&mut self, budget: &mut usize) -> bool {
        let done = match self {
            Self::Pack(_) => {
                *budget = budget.saturating_sub(1);
                true
            }
            Self::Table(fields) => fields.free_some(budget),
        };
        if done {
            *self = Self::default();
        }
        done
    }

    /// Gives it its large form, in which it stays.
    pub fn enlarge(&mut self, seed: u64) -> &mut Fields {
        if let Self::Pack(pack) = self {
            let mut fields = Box::new(Fields::new(seed));
            HashRef::Pack(pack.as_ref()).for_each(|field, value| {
                fields.set(&field.text(), &value.text());
            });
            *self = Self::Table(fields);
        }
        let Self::Table(fields) = self else { unreachable!("it has just got this form") };
        fields
    }

    /// Sets the value of a field; true if the field is new.
    #[inline]
    pub fn set(&mut self, field: &[u8], value: &[u8], limits: &CompactLimits) -> bool {
        if let Self::Pack(pack) = self
            && field.len() <= limits.hash_value
            && value.len() <= limits.hash_value
        {
            // A hash may have more fields than the limit if that was lowered: whatever sets one then enlarges it.
            let len = pack.as_ref().len() / 2;
            if len <= limits.hash_entries
                && let Some(at) = value_place(pack.as_ref(), field)
            {
                pack.replace(at, Element::of(value));
                return false;
            }
            if len < limits.hash_entries && pack.as_ref().has_room(2) {
                pack.push_back(Element::of(field));
                pack.push_back(Element::of(value));
                return true;
            }
        }
        self.enlarge(limits.seed).set(field, value)
    }

    /// Changes the value of a field without any other change to it, or sets it.
    pub fn update(&mut self, field: &[u8], value: &[u8], limits: &CompactLimits) {
        if let Self::Table(fields) = self {
            fields.update(field, value);
        } else {
            self.set(field, value, limits);
        }
    }

    /// Gives a field that is there a deadline in Unix milliseconds, for which the hash takes its large form, or takes it away.
    pub fn set_deadline(&mut self, field: &[u8], deadline: Option<u64>, seed: u64) {
        match self {
            Self::Table(fields) => fields.set_deadline(field, deadline),
            Self::Pack(_) if deadline.is_none() => {}
            Self::Pack(pack) => {
                let mut fields = Fields::of_pack(pack.as_ref(), seed);
                fields.set_deadline(field, deadline);
                *self = Self::Table(Box::new(fields));
            }
        }
    }

    /// Removes a field; true if it was there.
    pub fn remove(&mut self, field: &[u8]) -> bool {
        match self {
            Self::Table(fields) => fields.remove(field),
            Self::Pack(pack) => {
                let place = pack.as_ref().find(field, 2);
                if let Some(at) = place {
                    pack.remove(at, 2);
                }
                place.is_some()
            }
        }
    }
}

/// Where the value of a field is.
#[inline]
fn value_place(pack: PackRef<'_>, field: &[u8]) -> Option<usize> {
    pack.next(pack.find(field, 2)?)
}

impl<'a> HashRef<'a> {
    /// How many fields it has.
    pub fn len(self) -> usize {
        match self {
            Self::Pack(pack) => pack.len() / 2,
            Self::Table(fields) => fields.len(),
        }
    }

    /// How many fields, and how many bytes they have on the heap, of which a small hash has few.
    pub fn extent(self) -> (usize, usize) {
        match self {
            Self::Pack(_) => (self.len(), 0),
            Self::Table(fields) => (fields.len(), fields.heap_bytes()),
        }
    }

    /// Whether any field has a deadline.
    pub fn has_deadlines(self) -> bool {
        matches!(self, Self::Table(fields) if fields.next_deadline().is_some())
    }

    /// Whether it has none.
    pub fn is_empty(self) -> bool {
        self.len() == 0
    }

    /// What OBJECT ENCODING says.
    pub const fn encoding(self) -> &'static str {
        match self {
            Self::Pack(_) => "listpack",
            Self::Table(_) => "hashtable",
        }
    }

    /// The value of a field.
    #[inline]
    pub fn get(self, field: &[u8]) -> Option<Element<'a>> {
        match self {
            Self::Pack(pack) => value_place(pack, field).map(|at| pack.get(at)),
            Self::Table(fields) => fields.get(field).map(Element::Bytes),
        }
    }

    /// When a field vanishes, in Unix milliseconds; `None` for never.
    pub fn deadline(self, field: &[u8]) -> Option<u64> {
        match self {
            Self::Pack(_) => None,
            Self::Table(fields) => fields.deadline(field),
        }
    }

    /// Visits all fields with their values: in the order in which they came while it is small, later in any.
    pub fn for_each(self, mut visit: impl FnMut(Element<'a>, Element<'a>)) {
        match self {
            Self::Pack(pack) => {
                let mut elements = pack.iter();
                while let (Some(field), Some(value)) = (elements.next(), elements.next()) {
                    visit(field, value);
                }
            }
            Self::Table(fields) => {
                fields.for_each(|field, value| visit(Element::Bytes(field), Element::Bytes(value)));
            }
        }
    }

    /// Visits some from a place in the order on, about `budget` of a large one, all of a small one. Returns where to go on, `None`
    /// at the end. A field that is there all the time is visited by a series of such calls exactly once.
    pub fn walk(
        self,
        from: u64,
        budget: usize,
        mut visit: impl FnMut(Element<'a>, Element<'a>),
    ) -> Option<u64> {
        let Self::Table(fields) = self else {
            self.for_each(visit);
            return None;
        };
        fields.walk(from, budget, &mut |field, value| visit(Element::Bytes(field), Element::Bytes(value)))
    }

    /// A field with its value, picked nearly evenly; `None` if there is none.
    pub fn random(self, mut random: impl FnMut() -> u64) -> Option<(Element<'a>, Element<'a>)> {
        match self {
            Self::Pack(pack) => {
                let idx = random().checked_rem(self.len() as u64)? as usize;
                let at = pack.nth(2 * idx)?;
                Some((pack.get(at), pack.get(pack.next(at)?)))
            }
            Self::Table(fields) => {
                let (field, value) = fields.random(random)?;
                Some((Element::Bytes(field), Element::Bytes(value)))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    fn text() -> impl Strategy<Value = Vec<u8>> {
        prop_oneof![
            (0..12u8).prop_map(|n| n.to_string().into_bytes()),
            prop::collection::vec(b'a'..=b'c', 0..3),
            (60..70usize).prop_map(|len| vec![b'x'; len]),
            Just(vec![b'y'; 300]),
        ]
    }

    fn content(hash: HashRef<'_>) -> BTreeMap<Vec<u8>, Vec<u8>> {
        let mut all = BTreeMap::new();
        hash.for_each(|field, value| {
            let twice = all.insert(field.text().into_owned(), value.text().into_owned());
            assert_eq!(twice, None);
        });
        all
    }

    proptest! {
        #[test]
        fn behaves_like_a_map_in_both_forms(
            ops in prop::collection::vec((0..4u8, text(), text()), 0..60), entries in 0..20usize,
        ) {
            let limits = CompactLimits { hash_entries: entries, ..CompactLimits::default() };
            let (mut hash, mut model) = (Hash::default(), BTreeMap::<Vec<u8>, Vec<u8>>::new());
            let mut large = false;
            for (op, field, value) in ops {
                if op == 0 {
                    prop_assert_eq!(hash.remove(&field), model.remove(&field).is_some());
                } else {
                    large |= field.len() > 64 || value.len() > 64;
                    prop_assert_eq!(hash.set(&field, &value, &limits), model.insert(field, value).is_none());
                }
                large |= model.len() > entries;
                let seen = hash.as_ref();
                prop_assert_eq!(seen.encoding(), if large { "hashtable" } else { "listpack" });
                prop_assert_eq!(seen.len(), model.len());
                prop_assert_eq!(&content(seen), &model);
                for (field, value) in &model {
                    prop_assert_eq!(&*seen.get(field).unwrap().text(), &value[..]);
                }
                let mut rng = crate::ctx::Rng::new(model.len() as u64);
                let picked = seen.random(|| rng.next());
                prop_assert_eq!(picked.is_some(), !model.is_empty());
                if let Some((field, value)) = picked {
                    prop_assert_eq!(model.get(&*field.text()), Some(&value.text().into_owned()));
                }
            }
            prop_assert_eq!(&content(hash.clone().as_ref()), &model);
            while !hash.free_some(&mut 7) {}
            prop_assert!(hash.as_ref().is_empty());
        }
    }

    #[test]
    fn freeing_a_large_one_takes_steps() {
        let (limits, mut hash) = (CompactLimits::default(), Hash::default());
        assert!(!hash.is_large());
        for n in 0..1000 {
            hash.set(n.to_string().as_bytes(), b"v", &limits);
        }
        assert!(hash.is_large() && hash.heap_bytes() > 1000 * 8);
        let mut steps = 1;
        while !hash.free_some(&mut 100) {
            steps += 1;
        }
        assert_eq!(steps, 10);
    }
}
