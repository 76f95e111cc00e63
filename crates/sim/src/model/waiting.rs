//! Who waits in the model, in order of arrival, and who may be served.

use super::reply::Expected;
use super::{Model, Value};
use crate::workload::Operation;
use corelane_resp::Frame;
use std::collections::BTreeSet;

/// A command that waits.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Waiter {
    client: usize,
    /// The keys that it waits for.
    keys: Vec<String>,
    /// It waits for sorted sets, not for lists.
    sorted: bool,
    /// CLIENT UNBLOCK has ended it: with an error, or as if its time were up.
    unblocked: Option<bool>,
    /// In the end it will have been served.
    served: bool,
    /// It will have vanished: nobody has to wait for it, nor serve it.
    gone: bool,
}

impl Waiter {
    fn is_in_line(&self) -> bool {
        self.unblocked.is_none() && !self.gone
    }
}

impl Model {
    /// A command begins to wait, until it is served or otherwise; false if it had no reason to.
    pub fn enlists(&mut self, client: usize, operation: &Operation, served: bool, gone: bool) -> bool {
        let keys = operation.awaited_keys();
        if keys.iter().any(|key| self.keys.contains_key(key)) {
            return false;
        }
        let sorted = operation.words[0].starts_with("BZ");
        self.waiting.push(Waiter { client, keys, sorted, unblocked: None, served, gone });
        true
    }

    /// A command that waits ends, by being served before all who have come later; says whether `reply` is what it answers.
    pub fn ends(&mut self, client: usize, operation: &Operation, reply: &Frame) -> bool {
        let Some(place) = self.waiting.iter().position(|waiter| waiter.client == client) else {
            return false;
        };
        let waiter = self.waiting.remove(place);
        if let Some(failed) = waiter.unblocked {
            return if failed { matches!(reply, Frame::Error(_)) } else { matches!(reply, Frame::Null) };
        }
        if matches!(reply, Frame::Null) {
            return true;
        }
        // What it takes is the first of its keys that is there.
        let Some(key) = waiter.keys.iter().find(|key| self.keys.contains_key(*key)).cloned() else {
            return false;
        };
        let before = &self.waiting[..place];
        if before
            .iter()
            .any(|other| other.is_in_line() && other.sorted == waiter.sorted && other.keys.contains(&key))
        {
            return false;
        }
        self.execute(&operation.words).is(reply)
    }

    /// Whether anybody waits for a key that is there.
    pub fn is_anybody_kept_waiting(&self) -> bool {
        self.waiting
            .iter()
            .any(|waiter| waiter.is_in_line() && waiter.keys.iter().any(|key| self.is_there(waiter, key)))
    }

    /// Whether there is a list for somebody who has come first and will be served.
    pub fn has_somebody_to_serve(&self) -> bool {
        let mut seen = BTreeSet::new();
        let waiting = self.waiting.iter().filter(|waiter| waiter.is_in_line());
        let keys = waiting.flat_map(|waiter| waiter.keys.iter().map(move |key| (key, waiter)));
        keys.into_iter().any(|(key, waiter)| {
            seen.insert((key, waiter.sorted)) && waiter.served && self.is_there(waiter, key)
        })
    }

    fn is_there(&self, waiter: &Waiter, key: &str) -> bool {
        match self.keys.get(key) {
            Some(Value::List(_)) => !waiter.sorted,
            Some(Value::Sorted(_)) => waiter.sorted,
            _ => false,
        }
    }

    /// CLIENT UNBLOCK.
    pub(super) fn unblock(&mut self, operation: &Operation) -> Expected {
        let waits =
            |waiter: &&mut Waiter| Some(waiter.client) == operation.target && waiter.unblocked.is_none();
        let found = self.waiting.iter_mut().find(waits);
        let answer = Expected::Int(found.is_some().into());
        if let Some(waiter) = found {
            waiter.unblocked = Some(operation.words.last().is_some_and(|word| word == "ERROR"));
        }
        answer
    }
}
