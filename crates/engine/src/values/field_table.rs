//! Many fields with their values in a table, and the deadlines of those that have one; see [`super::fields`].

use super::ranked::Ranked;
use super::table::{Pair, Table, field_of, value_of};
use crate::keyspace::{Item, TableShape};

/// Unix time in milliseconds.
type Millis = u64;

/// Fields with values, found by the field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct FieldTable {
    table: Table<Pair>,
    timed: Option<Box<Timed>>,
    seed: u64,
}

/// The deadlines of fields. There is at least one as long as this exists.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Timed {
    /// Fields by their deadlines, as [`rank_of`] makes scores of them.
    deadlines: Ranked,
    /// The key's own deadline: its entry holds whatever comes first, that or a field's.
    key_expiry: Option<Millis>,
    /// Fields whose time had come by then are hidden; 0 where none are.
    hidden_until: Millis,
}

/// Half of what a deadline can be, which becomes the score 0.
const MIDDLE: i64 = 1 << 62;

/// A score for each deadline below 2^63, in the same order: numbers whose bits have the order of the numbers, with their sign.
const fn rank_of(at: Millis) -> f64 {
    let distance = at as i64 - MIDDLE;
    let size = f64::from_bits(distance.unsigned_abs());
    if distance < 0 { -size } else { size }
}

/// The deadline of a score.
const fn deadline_of(score: f64) -> Millis {
    let distance = score.abs().to_bits() as i64;
    (if score < 0.0 { MIDDLE - distance } else { MIDDLE + distance }) as Millis
}

impl Timed {
    fn first(&self) -> Option<Millis> {
        let mut first = None;
        self.deadlines.order().visit(0, 1, false, &mut |item| first = Some(deadline_of(item.score())));
        first
    }

    fn last(&self) -> Option<Millis> {
        let mut last = None;
        self.deadlines.order().visit(0, 1, true, &mut |item| last = Some(deadline_of(item.score())));
        last
    }

    fn deadline(&self, field: &[u8]) -> Option<Millis> {
        self.deadlines.score(field).map(deadline_of)
    }
}

impl FieldTable {
    /// None yet; see [`Table::new`] about `seed`.
    pub(super) fn new(seed: u64) -> Self {
        Self { table: Table::new(seed), timed: None, seed }
    }

    /// An empty one, to be filled by [`Self::copy_some`]; `None` if fields have deadlines, which only whole copies keep.
    pub(super) fn like(other: &Self) -> Option<Self> {
        other.timed.is_none().then(|| Self {
            table: Table::like(&other.table),
            timed: None,
            seed: other.seed,
        })
    }

    /// Copies about `budget` fields of another hash, from a place of [`Self::walk`] on. Returns where to go on.
    pub(super) fn copy_some(&mut self, from: &Self, place: u64, budget: usize) -> Option<u64> {
        self.table.copy_some(&from.table, place, budget)
    }

    /// How many there are.
    pub(super) fn len(&self) -> usize {
        self.table.len() - self.hidden()
    }

    /// How many take up memory, hidden ones included.
    pub(super) const fn stored(&self) -> usize {
        self.table.len()
    }

    /// How many are hidden.
    fn hidden(&self) -> usize {
        match &self.timed {
            Some(timed) if timed.hidden_until != 0 => {
                let end = rank_of(timed.hidden_until);
                timed.deadlines.order().count_while(&|score, _| score <= end)
            }
            _ => 0,
        }
    }

    fn is_hidden(&self, field: &[u8]) -> bool {
        self.timed.as_ref().is_some_and(|timed| {
            timed.hidden_until != 0 && timed.deadline(field).is_some_and(|at| at <= timed.hidden_until)
        })
    }

    /// How large the table is and how full.
    pub(super) fn shape(&self) -> TableShape {
        self.table.shape()
    }

    /// Bytes on the heap, about, beside its own.
    pub(super) fn heap_bytes(&self) -> usize {
        let deadlines = self
            .timed
            .as_ref()
            .map_or(0, |timed| size_of::<Timed>() - size_of::<Ranked>() + timed.deadlines.heap_bytes());
        self.table.heap_bytes() + deadlines
    }

    /// The value of a field.
    #[inline]
    pub(super) fn get(&self, field: &[u8]) -> Option<&[u8]> {
        if self.timed.is_some() && self.is_hidden(field) {
            return None;
        }
        self.table.get(field).map(|pair| value_of(pair.bytes()))
    }

    /// Sets the value of a field, which has no deadline then; true if the field is new.
    pub(super) fn set(&mut self, field: &[u8], value: &[u8]) -> bool {
        let hidden = self.timed.is_some() && self.is_hidden(field);
        self.set_deadline(field, None);
        let there = self.table.edit(field, |pair| pair.set_value(value)).is_some();
        if !there {
            self.table.insert(Pair::new(field, value));
        }
        !there || hidden
    }

    /// The same, and the field keeps its deadline.
    pub(super) fn update(&mut self, field: &[u8], value: &[u8]) -> bool {
        if self.get(field).is_none() {
            return self.set(field, value);
        }
        self.table.edit(field, |pair| pair.set_value(value));
        false
    }

    /// Removes a field; true if it was there.
    pub(super) fn remove(&mut self, field: &[u8]) -> bool {
        if self.timed.is_some() && self.is_hidden(field) {
            return false;
        }
        self.set_deadline(field, None);
        self.table.remove(field).is_some()
    }

    /// When a field that is there vanishes, in Unix milliseconds.
    pub(super) fn deadline(&self, field: &[u8]) -> Option<Millis> {
        self.timed.as_ref()?.deadline(field)
    }

    /// Gives a field that is there a deadline below 2^63, or takes it away.
    pub(super) fn set_deadline(&mut self, field: &[u8], deadline: Option<Millis>) {
        match (deadline, &mut self.timed) {
            (None, None) => return,
            (None, Some(timed)) => {
                timed.deadlines.remove(field);
            }
            (Some(at), timed) => {
                let timed = timed.get_or_insert_with(|| {
                    let deadlines = Ranked::new(self.seed);
                    Box::new(Timed { deadlines, key_expiry: None, hidden_until: 0 })
                });
                match timed.deadlines.score(field) {
                    Some(old) => timed.deadlines.set_score(field, old, rank_of(at)),
                    None => timed.deadlines.insert(field, rank_of(at)),
                }
            }
        }
        self.settle();
    }

    fn settle(&mut self) {
        if self.timed.as_ref().is_some_and(|timed| timed.deadlines.order().len() == 0) {
            self.timed = None;
        }
    }

    /// When the next field vanishes, or the first of the hidden ones was to.
    pub(super) fn next_deadline(&self) -> Option<Millis> {
        self.timed.as_ref()?.first()
    }

    /// Whether no field is left at a time.
    pub(super) fn is_over(&self, now: Millis) -> bool {
        self.timed.as_ref().is_some_and(|timed| {
            timed.deadlines.order().len() == self.table.len() && timed.last().is_some_and(|at| at <= now)
        })
    }

    /// Removes fields whose time has come, at most `budget`, and hides the others of them; how many it has removed.
    pub(super) fn drop_expired(&mut self, now: Millis, budget: usize) -> usize {
        let mut dropped = 0;
        while let Some(timed) = &mut self.timed
            && timed.first().is_some_and(|at| at <= now)
        {
            timed.hidden_until = now;
            if dropped == budget {
                return dropped;
            }
            if let Some(item) = timed.deadlines.remove_at(0) {
                self.table.remove(item.key());
                dropped += 1;
            }
            self.settle();
        }
        if let Some(timed) = &mut self.timed {
            timed.hidden_until = 0;
        }
        dropped
    }

    /// The key's deadline that is kept here, since its entry holds that of a field; the outer `None` where there are no
    /// deadlines of fields.
    pub(super) fn key_expiry(&self) -> Option<Option<Millis>> {
        self.timed.as_ref().map(|timed| timed.key_expiry)
    }

    /// Keeps the key's deadline where there are deadlines of fields.
    pub(super) fn keep_key_expiry(&mut self, expiry: Option<Millis>) {
        if let Some(timed) = &mut self.timed {
            timed.key_expiry = expiry;
        }
    }

    /// The same, and until when fields are hidden.
    pub(super) fn keep(&mut self, expiry: Option<Millis>, hidden_until: Millis) {
        if let Some(timed) = &mut self.timed {
            (timed.key_expiry, timed.hidden_until) = (expiry, hidden_until);
        }
    }

    /// Visits all fields with their values, in any order.
    pub(super) fn for_each<'a>(&'a self, mut visit: impl FnMut(&'a [u8], &'a [u8])) {
        let hides = self.hidden() != 0;
        self.table.for_each(|pair| {
            let bytes = pair.bytes();
            let (field, value) = (field_of(bytes), value_of(bytes));
            if !hides || !self.is_hidden(field) {
                visit(field, value);
            }
        });
    }

    /// Visits some, as [`Table::walk`] does; hidden ones count for the budget.
    pub(super) fn walk<'a>(
        &'a self,
        from: u64,
        budget: usize,
        visit: &mut dyn FnMut(&'a [u8], &'a [u8]),
    ) -> Option<u64> {
        let hides = self.hidden() != 0;
        self.table.walk(from, budget, &mut |pair| {
            let bytes = pair.bytes();
            let (field, value) = (field_of(bytes), value_of(bytes));
            if !hides || !self.is_hidden(field) {
                visit(field, value);
            }
        })
    }

    /// A field with its value, picked nearly evenly; `None` if there is none. Where nearly all are hidden, the next one that is not.
    pub(super) fn random(&self, mut random: impl FnMut() -> u64) -> Option<(&[u8], &[u8])> {
        const PICKS_MAX: usize = 64;
        let hides = self.hidden() != 0;
        for _ in 0..PICKS_MAX {
            let bytes = self.table.random(&mut random)?.bytes();
            if !hides || !self.is_hidden(field_of(bytes)) {
                return Some((field_of(bytes), value_of(bytes)));
            }
        }
        let (mut found, mut place) = (None, Some(0));
        while let Some(from) = place
            && found.is_none()
        {
            place = self.walk(from, 1, &mut |field, value| found = Some((field, value)));
        }
        found
    }

    /// Frees fields, each for one of `budget`; true when none is left. What has been begun with is no hash any more.
    pub(super) fn free_some(&mut self, budget: &mut usize) -> bool {
        if let Some(timed) = &mut self.timed
            && !timed.deadlines.free_some(budget)
        {
            return false;
        }
        self.timed = None;
        self.table.free_some(budget)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scores_have_the_order_of_deadlines() {
        let some = [0, 1, 2, 1 << 40, 1_700_000_000_000, MIDDLE as u64 - 1, MIDDLE as u64, i64::MAX as u64];
        for pair in some.windows(2) {
            assert!(rank_of(pair[0]) < rank_of(pair[1]), "{pair:?}");
        }
        assert!(some.iter().all(|at| deadline_of(rank_of(*at)) == *at && rank_of(*at).is_finite()));
    }
}
