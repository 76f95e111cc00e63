//! The intents of one shard: who may touch which key while commands over several shards are under way.
//!
//! A ticket stands for a set of keys, or for the whole shard, to be read (shared) or written (exclusive). Tickets on a
//! key are served first come, first served; shared ones run together. All keys of a ticket enter their queues in one
//! step, so the queues agree on the order of any two tickets and nothing can deadlock on one shard. Keys are 64-bit
//! hashes: a collision costs needless waiting, nothing else.

use hashbrown::HashMap;
use std::collections::{BTreeMap, VecDeque};

/// What a ticket is going to do.
#[derive(Copy, Clone, Eq, PartialEq, Debug)]
pub enum Mode {
    /// Read.
    Shared,
    /// Write.
    Exclusive,
}

impl Mode {
    const fn conflicts(self, other: Self) -> bool {
        !matches!((self, other), (Self::Shared, Self::Shared))
    }
}

/// What a ticket is for.
#[derive(Copy, Clone, Debug)]
pub enum Scope<'a> {
    /// These keys; they may repeat.
    Keys(&'a [u64]),
    /// Every key of the shard.
    Whole,
}

/// Names a request for intents. Later ones are greater.
#[derive(Copy, Clone, Eq, PartialEq, Ord, PartialOrd, Hash, Debug)]
pub struct Ticket(u64);

#[derive(Debug)]
struct State {
    /// Sorted, each once; `None` for the whole shard.
    keys: Option<Box<[u64]>>,
    mode: Mode,
    granted: bool,
}

/// All intents of one shard, held and waited for.
#[derive(Debug, Default)]
pub struct Intents {
    tickets: BTreeMap<Ticket, State>,
    /// Tickets on each key in the order of their arrival.
    queues: HashMap<u64, VecDeque<(Ticket, Mode)>>,
    /// Tickets on the whole shard.
    wholes: BTreeMap<Ticket, Mode>,
    next: u64,
}

impl Intents {
    /// No intents.
    pub fn new() -> Self {
        Self::default()
    }

    /// Whether nothing is held or waited for; commands need to look no further then.
    #[inline]
    pub fn is_idle(&self) -> bool {
        self.tickets.is_empty()
    }

    /// Tickets held, and tickets that wait.
    pub fn counts(&self) -> (usize, usize) {
        let held = self.tickets.values().filter(|state| state.granted).count();
        (held, self.tickets.len() - held)
    }

    /// Whether a request would have to wait behind anything held or waited for.
    pub fn conflicts(&self, scope: Scope<'_>, mode: Mode) -> bool {
        match scope {
            Scope::Keys(keys) => keys.iter().any(|key| self.blocked_on_key(*key, mode, Ticket(self.next))),
            Scope::Whole => self.tickets.values().any(|state| state.mode.conflicts(mode)),
        }
    }

    /// Grants at once or not at all.
    pub fn try_acquire(&mut self, scope: Scope<'_>, mode: Mode) -> Option<Ticket> {
        if self.conflicts(scope, mode) {
            return None;
        }
        Some(self.enqueue(scope, mode).0)
    }

    /// Stands in line; says whether it was granted at once.
    pub fn enqueue(&mut self, scope: Scope<'_>, mode: Mode) -> (Ticket, bool) {
        let granted = !self.conflicts(scope, mode);
        let ticket = Ticket(self.next);
        self.next += 1;
        let keys = match scope {
            Scope::Whole => {
                self.wholes.insert(ticket, mode);
                None
            }
            Scope::Keys(keys) => {
                let mut keys = keys.to_vec();
                keys.sort_unstable();
                keys.dedup();
                for key in &keys {
                    self.queues.entry(*key).or_default().push_back((ticket, mode));
                }
                Some(keys.into_boxed_slice())
            }
        };
        self.tickets.insert(ticket, State { keys, mode, granted });
        (ticket, granted)
    }

    /// Lets a ticket go, held or waiting; tickets that are granted thereby are appended in the order of their arrival.
    pub fn release(&mut self, ticket: Ticket, granted: &mut Vec<Ticket>) {
        let Some(state) = self.tickets.remove(&ticket) else { return };
        let mut candidates: Vec<Ticket> = match &state.keys {
            // Everything may have waited for the whole shard.
            None => {
                self.wholes.remove(&ticket);
                self.tickets.iter().filter(|(_, state)| !state.granted).map(|(ticket, _)| *ticket).collect()
            }
            Some(keys) => keys.iter().flat_map(|key| self.leave(*key, ticket)).collect(),
        };
        candidates.extend(self.wholes.keys());
        candidates.sort_unstable();
        candidates.dedup();
        for candidate in candidates {
            if self.may_run(candidate)
                && let Some(state) = self.tickets.get_mut(&candidate)
                && !state.granted
            {
                state.granted = true;
                granted.push(candidate);
            }
        }
    }

    /// Takes a ticket out of a key's queue; returns those at the head of it.
    fn leave(&mut self, key: u64, ticket: Ticket) -> Vec<Ticket> {
        let Some(queue) = self.queues.get_mut(&key) else { return Vec::new() };
        queue.retain(|(other, _)| *other != ticket);
        let Some(&(first, mode)) = queue.front() else {
            self.queues.remove(&key);
            return Vec::new();
        };
        if mode == Mode::Exclusive {
            return vec![first];
        }
        queue.iter().take_while(|(_, mode)| *mode == Mode::Shared).map(|(ticket, _)| *ticket).collect()
    }

    /// Whether something that arrived before `ticket` keeps it from key `key`.
    fn blocked_on_key(&self, key: u64, mode: Mode, ticket: Ticket) -> bool {
        let by_key = self.queues.get(&key).is_some_and(|queue| {
            queue.iter().take_while(|(other, _)| *other < ticket).any(|(_, other)| other.conflicts(mode))
        });
        by_key || self.wholes.range(..ticket).any(|(_, other)| other.conflicts(mode))
    }

    fn may_run(&self, ticket: Ticket) -> bool {
        let Some(state) = self.tickets.get(&ticket) else { return false };
        match &state.keys {
            Some(keys) => !keys.iter().any(|key| self.blocked_on_key(*key, state.mode, ticket)),
            None => !self.tickets.range(..ticket).any(|(_, other)| other.mode.conflicts(state.mode)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Tickets in the order of their arrival: one runs when no earlier one conflicts.
    #[derive(Default)]
    struct Naive(Vec<(Ticket, Option<Vec<u64>>, Mode)>);

    impl Naive {
        fn granted(&self, at: usize) -> bool {
            let (_, keys, mode) = &self.0[at];
            self.0[..at].iter().all(|(_, other_keys, other_mode)| {
                let meet = match (keys, other_keys) {
                    (Some(a), Some(b)) => a.iter().any(|key| b.contains(key)),
                    _ => true,
                };
                !meet || !mode.conflicts(*other_mode)
            })
        }
    }

    proptest! {
        #[test]
        fn tickets_are_granted_as_in_a_plain_list(
            ops in prop::collection::vec((0..4u8, prop::collection::vec(0..5u64, 1..4), any::<bool>(), any::<prop::sample::Index>()), 1..80)
        ) {
            let (mut intents, mut naive) = (Intents::new(), Naive::default());
            for (kind, keys, exclusive, which) in ops {
                let mode = if exclusive { Mode::Exclusive } else { Mode::Shared };
                let whole = kind == 0 && keys.len() == 3;
                let scope = if whole { Scope::Whole } else { Scope::Keys(&keys) };
                let before: Vec<Ticket> = (0..naive.0.len()).filter(|at| naive.granted(*at)).map(|at| naive.0[at].0).collect();
                if kind < 2 {
                    let (ticket, granted) = intents.enqueue(scope, mode);
                    naive.0.push((ticket, (!whole).then(|| keys.clone()), mode));
                    prop_assert_eq!(granted, naive.granted(naive.0.len() - 1));
                } else if kind == 2 {
                    let ticket = intents.try_acquire(scope, mode);
                    naive.0.push((ticket.unwrap_or(Ticket(u64::MAX)), (!whole).then(|| keys.clone()), mode));
                    let expected = naive.granted(naive.0.len() - 1);
                    prop_assert_eq!(ticket.is_some(), expected);
                    if !expected {
                        naive.0.pop();
                    }
                } else if !naive.0.is_empty() {
                    let (ticket, _, _) = naive.0.remove(which.index(naive.0.len()));
                    let mut granted = Vec::new();
                    intents.release(ticket, &mut granted);
                    let after: Vec<Ticket> = (0..naive.0.len())
                        .filter(|at| naive.granted(*at)).map(|at| naive.0[at].0)
                        .filter(|ticket| !before.contains(ticket)).collect();
                    prop_assert_eq!(granted, after);
                }
                prop_assert_eq!(intents.is_idle(), naive.0.is_empty());
            }
            // Everything held is let go in turn: nothing is left waiting.
            while !naive.0.is_empty() {
                let at = (0..naive.0.len()).find(|at| naive.granted(*at));
                prop_assert!(at.is_some(), "deadlock");
                let (ticket, _, _) = naive.0.remove(at.unwrap_or(0));
                intents.release(ticket, &mut Vec::new());
            }
            prop_assert!(intents.is_idle() && intents.queues.is_empty() && intents.wholes.is_empty());
        }
    }
}
