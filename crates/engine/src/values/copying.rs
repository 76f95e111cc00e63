//! Copies of large collections that are made in pieces, in the form of what is copied.

use super::chunks::Chunks;
use super::fields::Fields;
use super::hash::{Hash, HashRef};
use super::list::{List, ListRef};
use super::ranked::Ranked;
use super::set::{Set, SetRef};
use super::sorted_set::{SortedSet, SortedSetRef};
use super::table::Table;
use crate::keyspace::{Value, ValueRef};

/// A copy that is being made. Nothing may change what is copied meanwhile.
#[derive(Clone, Debug)]
pub struct Copying {
    copy: Value,
    /// Where to go on.
    place: u64,
}

impl Copying {
    /// Begins to copy a value; `None` for one that can only be copied as a whole.
    pub fn new(value: ValueRef<'_>) -> Option<Self> {
        let copy = match value {
            ValueRef::Hash(HashRef::Table(fields)) => {
                Value::Hash(Hash::Table(Box::new(Fields::like(fields)?)))
            }
            ValueRef::List(ListRef::Chunks(chunks)) => {
                Value::List(List::Chunks(Box::new(Chunks::like(chunks))))
            }
            ValueRef::Set(SetRef::Table(table)) => Value::Set(Set::Table(Box::new(Table::like(table)))),
            ValueRef::SortedSet(SortedSetRef::Ranked(ranked)) => {
                Value::SortedSet(SortedSet::Ranked(Box::new(Ranked::like(ranked))))
            }
            _ => return None,
        };
        Some(Self { copy, place: 0 })
    }

    /// Copies about `budget` elements more of the value that it was begun with; true when all are copied.
    pub fn step(&mut self, value: ValueRef<'_>, budget: usize) -> bool {
        let place = self.place;
        let next = match (&mut self.copy, value) {
            (Value::Hash(Hash::Table(copy)), ValueRef::Hash(HashRef::Table(fields))) => {
                copy.copy_some(fields, place, budget)
            }
            (Value::List(List::Chunks(copy)), ValueRef::List(ListRef::Chunks(chunks))) => {
                copy.copy_some(chunks, place as usize, budget).map(|next| next as u64)
            }
            (Value::Set(Set::Table(copy)), ValueRef::Set(SetRef::Table(table))) => {
                copy.copy_some(table, place, budget)
            }
            (
                Value::SortedSet(SortedSet::Ranked(copy)),
                ValueRef::SortedSet(SortedSetRef::Ranked(ranked)),
            ) => copy.copy_some(ranked, place as usize, budget).map(|next| next as u64),
            _ => unreachable!("what is copied keeps its form"),
        };
        self.place = next.unwrap_or(place);
        next.is_none()
    }

    /// What has been copied so far.
    pub fn into_value(self) -> Value {
        self.copy
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::CompactLimits;

    fn large() -> [Value; 4] {
        let limits = CompactLimits { list_size: 3.into(), ..CompactLimits::default() };
        let (mut hash, mut list) = (Hash::default(), List::default());
        let (mut set, mut sorted) = (Set::default(), SortedSet::default());
        for n in 0..3000 {
            let text = format!("element {n}").into_bytes();
            hash.set(&text, b"v", &limits);
            list.prepare(limits.list_size, text.len(), 1);
            list.push(super::super::list::Side::Right, &text, limits.list_size);
            set.add(&text, &limits);
            sorted.insert(&text, f64::from(n % 7), &limits);
        }
        [Value::Hash(hash), Value::List(list), Value::Set(set), Value::SortedSet(sorted)]
    }

    #[test]
    fn a_copy_in_pieces_is_the_copy_at_once() {
        for value in large() {
            for budget in [1, 7, 100, usize::MAX] {
                let mut copying = Copying::new(value.as_ref()).expect("it is large");
                let mut steps = 1;
                while !copying.step(value.as_ref(), budget) {
                    steps += 1;
                }
                let copy = copying.into_value();
                assert!(copy == value, "{}", value.as_ref().type_name());
                assert_eq!(copy.size(), value.clone().size(), "{}", value.as_ref().type_name());
                assert!(steps >= 1000 / budget.min(1000), "{steps} steps of {budget}");
            }
        }
    }
}
