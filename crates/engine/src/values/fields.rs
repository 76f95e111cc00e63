//! The large form of a hash, and of a small one some of whose fields have deadlines, which is Valkey's large form, too.
//!
//! Many fields are a table ([`FieldTable`]), few with deadlines one piece of memory ([`TimedPack`]). Fields whose time has come are removed in
//! pieces ([`Fields::drop_expired`]). Those that are still there when it returns are hidden: nothing here shows them or counts them,
//! and a field of the same name is a new one.

use super::field_table::FieldTable;
use super::pack::PackRef;
use super::timed_pack::TimedPack;
use crate::keyspace::TableShape;

/// Unix time in milliseconds.
type Millis = u64;

/// Fields with values, found by the field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fields {
    form: Form,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Form {
    Few(TimedPack),
    Many(FieldTable),
}

impl Fields {
    /// None yet; see [`super::Table::new`] about `seed`.
    pub fn new(seed: u64) -> Self {
        Self { form: Form::Many(FieldTable::new(seed)) }
    }

    /// Those of a small hash, field, value, field, value, …, some of which are to have deadlines.
    pub(super) fn of_pack(pack: PackRef<'_>, seed: u64) -> Self {
        let mut fields = Self { form: Form::Few(TimedPack::with_room(pack, seed)) };
        let mut elements = pack.iter();
        while let (Some(field), Some(value)) = (elements.next(), elements.next()) {
            field.with_text(|field| value.with_text(|value| fields.set(field, value)));
        }
        fields
    }

    /// In the form for many.
    fn grow(&mut self) -> &mut FieldTable {
        if let Form::Few(few) = &self.form {
            self.form = Form::Many(few.to_table());
        }
        match &mut self.form {
            Form::Many(many) => many,
            Form::Few(_) => unreachable!("it has just got the other form"),
        }
    }

    /// An empty one, to be filled by [`Self::copy_some`]; `None` if fields have deadlines, which only whole copies keep.
    pub fn like(other: &Self) -> Option<Self> {
        let Form::Many(many) = &other.form else { return None };
        Some(Self { form: Form::Many(FieldTable::like(many)?) })
    }

    /// Copies about `budget` fields of another hash, from a place of [`Self::walk`] on. Returns where to go on.
    pub fn copy_some(&mut self, from: &Self, place: u64, budget: usize) -> Option<u64> {
        match (&mut self.form, &from.form) {
            (Form::Many(copy), Form::Many(many)) => copy.copy_some(many, place, budget),
            _ => unreachable!("few fields are copied at once"),
        }
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        match &self.form {
            Form::Few(few) => few.len(),
            Form::Many(many) => many.len(),
        }
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// How many take up memory, hidden ones included.
    pub fn stored(&self) -> usize {
        match &self.form {
            Form::Few(few) => few.stored(),
            Form::Many(many) => many.stored(),
        }
    }

    /// How many pieces of memory there are to be freed, about.
    pub fn pieces(&self) -> usize {
        match &self.form {
            Form::Few(_) => 1,
            Form::Many(many) => many.stored(),
        }
    }

    /// How large the table is and how full.
    pub fn shape(&self) -> TableShape {
        match &self.form {
            Form::Few(few) => {
                let entries = few.stored() as u64;
                TableShape { places: entries, entries, leaves: 1, largest: entries }
            }
            Form::Many(many) => many.shape(),
        }
    }

    /// Bytes on the heap, about.
    pub fn heap_bytes(&self) -> usize {
        let form = match &self.form {
            Form::Few(few) => few.heap_bytes(),
            Form::Many(many) => many.heap_bytes(),
        };
        size_of::<Self>() + form
    }

    /// The value of a field.
    #[inline]
    pub fn get(&self, field: &[u8]) -> Option<&[u8]> {
        match &self.form {
            Form::Few(few) => few.get(field).map(|field| field.value),
            Form::Many(many) => many.get(field),
        }
    }

    /// Sets the value of a field, which has no deadline then; true if the field is new.
    pub fn set(&mut self, field: &[u8], value: &[u8]) -> bool {
        match &mut self.form {
            Form::Few(few) if few.has_room(field.len() + value.len()) => few.set(field, value, false),
            _ => self.grow().set(field, value),
        }
    }

    /// The same, and the field keeps its deadline.
    pub fn update(&mut self, field: &[u8], value: &[u8]) -> bool {
        match &mut self.form {
            Form::Few(few) if few.has_room(field.len() + value.len()) => few.set(field, value, true),
            _ => self.grow().update(field, value),
        }
    }

    /// Removes a field; true if it was there.
    pub fn remove(&mut self, field: &[u8]) -> bool {
        match &mut self.form {
            Form::Few(few) => few.remove(field),
            Form::Many(many) => many.remove(field),
        }
    }

    /// When a field that is there vanishes, in Unix milliseconds.
    pub fn deadline(&self, field: &[u8]) -> Option<Millis> {
        match &self.form {
            Form::Few(few) => few.get(field)?.deadline(),
            Form::Many(many) => many.deadline(field),
        }
    }

    /// Gives a field that is there a deadline below 2^63, or takes it away.
    pub fn set_deadline(&mut self, field: &[u8], deadline: Option<Millis>) {
        match &mut self.form {
            Form::Few(few) => few.set_deadline(field, deadline),
            Form::Many(many) => many.set_deadline(field, deadline),
        }
    }

    /// When the next field vanishes, or the first of the hidden ones was to.
    pub fn next_deadline(&self) -> Option<Millis> {
        match &self.form {
            Form::Few(few) => few.next_deadline(),
            Form::Many(many) => many.next_deadline(),
        }
    }

    /// Whether no field is left at a time.
    pub fn is_over(&self, now: Millis) -> bool {
        match &self.form {
            Form::Few(few) => few.is_over(now),
            Form::Many(many) => many.is_over(now),
        }
    }

    /// Removes fields whose time has come, at most `budget`, and hides the others of them; how many it has removed.
    pub fn drop_expired(&mut self, now: Millis, budget: usize) -> usize {
        match &mut self.form {
            Form::Few(few) => few.drop_expired(now, budget),
            Form::Many(many) => many.drop_expired(now, budget),
        }
    }

    /// The key's deadline that is kept here, since its entry holds that of a field; the outer `None` where there are no
    /// deadlines of fields.
    pub fn key_expiry(&self) -> Option<Option<Millis>> {
        match &self.form {
            Form::Few(few) => few.key_expiry(),
            Form::Many(many) => many.key_expiry(),
        }
    }

    /// Keeps the key's deadline where there are deadlines of fields. Returns when the first of them all comes.
    pub fn keep_key_expiry(&mut self, expiry: Option<Millis>) -> Option<Millis> {
        match &mut self.form {
            Form::Few(few) => few.keep_key_expiry(expiry),
            Form::Many(many) => many.keep_key_expiry(expiry),
        }
        self.next_deadline().into_iter().chain(expiry).min()
    }

    /// Visits all fields with their values, in any order.
    pub fn for_each<'a>(&'a self, mut visit: impl FnMut(&'a [u8], &'a [u8])) {
        match &self.form {
            Form::Few(few) => few.visible().for_each(|field| visit(field.name, field.value)),
            Form::Many(many) => many.for_each(visit),
        }
    }

    /// Visits some, as [`super::Table::walk`] does, or all of few; hidden ones count for the budget.
    pub fn walk<'a>(
        &'a self,
        from: u64,
        budget: usize,
        visit: &mut dyn FnMut(&'a [u8], &'a [u8]),
    ) -> Option<u64> {
        if let Form::Many(many) = &self.form {
            return many.walk(from, budget, visit);
        }
        self.for_each(visit);
        None
    }

    /// A field with its value, picked nearly evenly; `None` if there is none. Where nearly all are hidden, the next one that is not.
    pub fn random(&self, mut random: impl FnMut() -> u64) -> Option<(&[u8], &[u8])> {
        match &self.form {
            Form::Few(few) => {
                let idx = random().checked_rem(few.len() as u64)? as usize;
                few.visible().nth(idx).map(|field| (field.name, field.value))
            }
            Form::Many(many) => many.random(random),
        }
    }

    /// Frees fields, each for one of `budget`; true when none is left. What has been begun with is no hash any more.
    pub fn free_some(&mut self, budget: &mut usize) -> bool {
        match &mut self.form {
            Form::Few(_) => {
                *budget = budget.saturating_sub(1);
                true
            }
            Form::Many(many) => many.free_some(budget),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::pack::Pack;
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    proptest! {
        #[test]
        fn nobody_sees_what_is_over_though_it_is_removed_in_pieces(
            ops in prop::collection::vec((0..8u8, 0..12u8, 0..30u64), 0..80), budget in 0..3usize, few: bool,
        ) {
            let empty = Pack::default();
            let mut fields = if few { Fields::of_pack(empty.as_ref(), 7) } else { Fields::new(7) };
            let mut model = BTreeMap::<Vec<u8>, (u64, Option<u64>)>::new();
            let mut now = 1;
            for (op, name, number) in ops {
                let field = format!("field{name}").into_bytes();
                let value = number.to_string().into_bytes();
                let there = model.contains_key(&field);
                match op {
                    0 => prop_assert_eq!(fields.remove(&field), model.remove(&field).is_some()),
                    1 => {
                        prop_assert_eq!(fields.set(&field, &value), !there);
                        model.insert(field, (number, None));
                    }
                    2 => {
                        prop_assert_eq!(fields.update(&field, &value), !there);
                        model.entry(field).and_modify(|old| old.0 = number).or_insert((number, None));
                    }
                    3 if there => {
                        fields.set_deadline(&field, Some(now + 1 + number));
                        model.get_mut(&field).unwrap().1 = Some(now + 1 + number);
                    }
                    4 if there => {
                        fields.set_deadline(&field, None);
                        model.get_mut(&field).unwrap().1 = None;
                    }
                    5 if number == 0 => drop(fields.grow()),
                    _ => {
                        now += number;
                        model.retain(|_, (_, at)| at.is_none_or(|at| at > now));
                        prop_assert!(!fields.is_over(now) || model.is_empty());
                        fields.drop_expired(now, budget);
                    }
                }
                check(&fields, &model)?;
            }
            while fields.drop_expired(now, 3) != 0 {}
            check(&fields, &model)?;
            prop_assert_eq!(fields.stored(), model.len());
        }
    }

    #[test]
    fn few_fields_with_deadlines_take_little_more_than_their_text() {
        let limits = crate::settings::CompactLimits::default();
        let mut hash = super::super::hash::Hash::default();
        for n in 0..10 {
            hash.set(format!("field:{n:06}").as_bytes(), format!("value:{n:06}").as_bytes(), &limits);
        }
        for n in 0..10 {
            hash.set_deadline(format!("field:{n:06}").as_bytes(), Some(1_700_000_000_000), limits.seed);
        }
        assert_eq!(hash.as_ref().encoding(), "hashtable");
        assert!(hash.heap_bytes() < 10 * (12 + 12 + 9) + 200, "{}", hash.heap_bytes());
    }

    #[test]
    fn many_or_long_fields_are_a_table() {
        let is_few = |fields: &Fields| matches!(fields.form, Form::Few(_));
        let mut fields = Fields::of_pack(Pack::default().as_ref(), 7);
        for n in 0..128 {
            fields.set(format!("field{n}").as_bytes(), b"1");
            fields.set_deadline(format!("field{n}").as_bytes(), Some(1000 + n));
        }
        fields.keep_key_expiry(Some(5000));
        assert!(
            is_few(&fields) && !fields.update(b"field7", b"2") && fields.deadline(b"field7") == Some(1007)
        );
        fields.drop_expired(1009, 3);
        assert!(fields.set(b"field8", b"3") && fields.set(&[b'x'; 9000], b"4"));
        assert!(!is_few(&fields));
        assert_eq!((fields.len(), fields.get(b"field9"), fields.deadline(b"field8")), (120, None, None));
        assert_eq!((fields.key_expiry(), fields.deadline(b"field10")), (Some(Some(5000)), Some(1010)));
    }

    fn check(fields: &Fields, model: &BTreeMap<Vec<u8>, (u64, Option<u64>)>) -> Result<(), TestCaseError> {
        prop_assert_eq!(fields.len(), model.len());
        prop_assert_eq!(fields.is_empty(), model.is_empty());
        let (mut all, mut walked) = (BTreeMap::new(), 0);
        fields.for_each(|field, value| drop(all.insert(field.to_vec(), value.to_vec())));
        prop_assert_eq!(fields.walk(0, usize::MAX, &mut |_, _| walked += 1), None);
        prop_assert_eq!((all.len(), walked), (model.len(), model.len()));
        for (field, (number, at)) in model {
            let value = number.to_string().into_bytes();
            prop_assert_eq!(all.get(field), Some(&value));
            prop_assert_eq!(fields.get(field), Some(&value[..]));
            prop_assert_eq!(fields.deadline(field), *at);
        }
        let gone = (0..12)
            .map(|name| format!("field{name}").into_bytes())
            .filter(|field| !model.contains_key(field));
        for field in gone {
            prop_assert_eq!(fields.get(&field), None);
        }
        let mut rng = crate::ctx::Rng::new(model.len() as u64);
        let picked = fields.random(|| rng.next());
        prop_assert_eq!(picked.is_some(), !model.is_empty());
        prop_assert!(picked.is_none_or(|(field, _)| model.contains_key(field)));
        Ok(())
    }
}
