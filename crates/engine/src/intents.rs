//! The intents of one shard: who may touch which key while commands over several shards are under way.
//!
//! A ticket stands for a set of keys, or for the whole shard, to be read (shared) or written (exclusive). It is granted
//! once no earlier ticket that conflicts with it is left, held or waiting: tickets on a key are served first come, first
//! served, and shared ones run together. All keys of a ticket are asked for in one step, so a ticket waits only for
//! earlier ones: nothing can deadlock on one shard, and nothing starves. Keys are 64-bit hashes; a collision costs
//! needless waiting, nothing else.
//!
//! Every ticket counts what still blocks it: each of its keys whose queue it does not lead, and the gate (see [`Gate`])
//! between tickets on keys and tickets on the whole shard. So asking and releasing cost O(log n) for each key of the
//! ticket and each ticket that moves up by it, however many others wait.

use hashbrown::HashMap;
use std::collections::{BTreeMap, BTreeSet};

/// What a ticket is going to do.
#[derive(Copy, Clone, Eq, PartialEq, Debug)]
pub enum Mode {
    /// Read.
    Shared,
    /// Write.
    Exclusive,
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

/// All intents of one shard, held and waited for.
#[derive(Debug, Default)]
pub struct Intents {
    tickets: HashMap<Ticket, State, foldhash::fast::FixedState>,
    /// Tickets on each key; a key without tickets has no queue.
    queues: HashMap<u64, Queue, foldhash::fast::FixedState>,
    gate: Gate,
    waiting: usize,
    next: u64,
}

#[derive(Debug)]
struct State {
    /// Sorted, each once; `None` for the whole shard.
    keys: Option<Box<[u64]>>,
    mode: Mode,
    /// Queues that it does not lead, and one more if the gate is closed to it. Granted at zero.
    blockers: usize,
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

    /// How many tickets are held.
    pub fn held(&self) -> usize {
        self.tickets.len() - self.waiting
    }

    /// How many tickets wait to be granted.
    pub fn waiting(&self) -> usize {
        self.waiting
    }

    /// Whether a request would have to wait behind anything held or waited for.
    pub fn conflicts(&self, scope: Scope<'_>, mode: Mode) -> bool {
        let Scope::Keys(keys) = scope else { return !self.gate.whole_may_pass(mode, None) };
        let may_lead = |key| self.queues.get(key).is_none_or(|queue| queue.may_lead(mode));
        !self.gate.keyed_may_pass(mode, None) || !keys.iter().all(may_lead)
    }

    /// Whether a ticket that is held is for writing a key.
    pub fn covers(&self, ticket: Ticket, key: u64) -> bool {
        let is_for = |state: &State| state.keys.as_ref().is_none_or(|keys| keys.binary_search(&key).is_ok());
        self.tickets.get(&ticket).is_some_and(|state| state.mode == Mode::Exclusive && is_for(state))
    }

    /// Grants at once or not at all.
    pub fn try_acquire(&mut self, scope: Scope<'_>, mode: Mode) -> Option<Ticket> {
        (!self.conflicts(scope, mode)).then(|| self.enqueue(scope, mode).0)
    }

    /// Stands in line; says whether it was granted at once.
    pub fn enqueue(&mut self, scope: Scope<'_>, mode: Mode) -> (Ticket, bool) {
        let ticket = Ticket(self.next);
        self.next += 1;
        let (keys, blockers) = match scope {
            Scope::Whole => (None, usize::from(!self.gate.enter_whole(ticket, mode))),
            Scope::Keys(keys) => {
                let mut keys = keys.to_vec();
                keys.sort_unstable();
                keys.dedup();
                let mut blockers = usize::from(!self.gate.enter_keyed(ticket, mode));
                for key in &keys {
                    blockers += usize::from(!self.queues.entry(*key).or_default().enter(ticket, mode));
                }
                (Some(keys.into_boxed_slice()), blockers)
            }
        };
        self.waiting += usize::from(blockers != 0);
        self.tickets.insert(ticket, State { keys, mode, blockers });
        (ticket, blockers == 0)
    }

    /// Lets a ticket go, held or waiting; tickets that are granted thereby are appended in the order of their arrival.
    ///
    /// # Panics
    /// If the ticket has been released before.
    pub fn release(&mut self, ticket: Ticket, granted: &mut Vec<Ticket>) {
        let state = self.tickets.remove(&ticket).expect("a ticket is released once");
        self.waiting -= usize::from(state.blockers != 0);
        let old_len = granted.len();
        let Self { tickets, queues, gate, waiting, .. } = self;
        let mut unblock = |ticket: Ticket| {
            let state = tickets.get_mut(&ticket).expect("whatever stands in a queue is live");
            state.blockers -= 1;
            if state.blockers == 0 {
                *waiting -= 1;
                granted.push(ticket);
            }
        };
        for key in state.keys.iter().flatten() {
            let queue = queues.get_mut(key).expect("a live ticket stands in the queues of its keys");
            queue.leave(ticket, &mut unblock);
            if queue.leaders == 0 {
                queues.remove(key);
            }
        }
        gate.leave(ticket, state.mode, state.keys.is_none(), &mut unblock);
        granted[old_len..].sort_unstable();
    }
}

/// The tickets on one key. Those that lead are not kept from it by anybody: one exclusive or any number of shared ones.
#[derive(Debug, Default)]
struct Queue {
    leaders: usize,
    /// Whether the leader, if there is one, is exclusive.
    exclusive: bool,
    /// The others in the order of their arrival.
    followers: BTreeMap<Ticket, Mode>,
}

impl Queue {
    /// Whether a newcomer would lead at once.
    fn may_lead(&self, mode: Mode) -> bool {
        self.leaders == 0 || (mode == Mode::Shared && !self.exclusive && self.followers.is_empty())
    }

    fn lead(&mut self, mode: Mode) {
        self.leaders += 1;
        self.exclusive = mode == Mode::Exclusive;
    }

    /// Adds a newcomer; true if it leads.
    fn enter(&mut self, ticket: Ticket, mode: Mode) -> bool {
        let leads = self.may_lead(mode);
        if leads {
            self.lead(mode);
        } else {
            self.followers.insert(ticket, mode);
        }
        leads
    }

    /// Takes a ticket out, wherever it stands, and tells `unblock` who leads now.
    fn leave(&mut self, ticket: Ticket, unblock: &mut impl FnMut(Ticket)) {
        if self.followers.remove(&ticket).is_none() {
            self.leaders -= 1;
        }
        while let Some((&first, &mode)) = self.followers.first_key_value() {
            if self.leaders != 0 && (self.exclusive || mode == Mode::Exclusive) {
                return;
            }
            self.followers.remove(&first);
            self.lead(mode);
            unblock(first);
        }
    }
}

/// The order between tickets on keys and tickets on the whole shard. Two tickets on keys never meet here; of any other
/// two the later one waits at the gate, unless both are shared. It is open to a ticket as long as the earliest live
/// ticket of each sort that it conflicts with is a later one.
#[derive(Debug, Default)]
struct Gate {
    keyed: Live,
    whole: Live,
    /// Those it is closed to. They are live as well.
    keyed_blocked: Live,
    whole_blocked: BTreeMap<Ticket, Mode>,
}

/// Tickets by mode, in the order of their arrival.
#[derive(Debug, Default)]
struct Live {
    shared: BTreeSet<Ticket>,
    exclusive: BTreeSet<Ticket>,
}

impl Live {
    fn of(&mut self, mode: Mode) -> &mut BTreeSet<Ticket> {
        match mode {
            Mode::Shared => &mut self.shared,
            Mode::Exclusive => &mut self.exclusive,
        }
    }

    /// Whether none of these that conflicts with `mode` came before `ticket`, which is a newcomer if `None`.
    fn let_pass(&self, mode: Mode, ticket: Option<Ticket>) -> bool {
        let later = |tickets: &BTreeSet<Ticket>| {
            tickets.first().is_none_or(|first| ticket.is_some_and(|ticket| ticket <= *first))
        };
        later(&self.exclusive) && (mode == Mode::Shared || later(&self.shared))
    }
}

impl Gate {
    fn keyed_may_pass(&self, mode: Mode, ticket: Option<Ticket>) -> bool {
        self.whole.let_pass(mode, ticket)
    }

    fn whole_may_pass(&self, mode: Mode, ticket: Option<Ticket>) -> bool {
        self.whole.let_pass(mode, ticket) && self.keyed.let_pass(mode, ticket)
    }

    /// Adds a newcomer; true if the gate is open to it.
    fn enter_keyed(&mut self, ticket: Ticket, mode: Mode) -> bool {
        let open = self.keyed_may_pass(mode, None);
        self.keyed.of(mode).insert(ticket);
        if !open {
            self.keyed_blocked.of(mode).insert(ticket);
        }
        open
    }

    /// Adds a newcomer; true if the gate is open to it.
    fn enter_whole(&mut self, ticket: Ticket, mode: Mode) -> bool {
        let open = self.whole_may_pass(mode, None);
        self.whole.of(mode).insert(ticket);
        if !open {
            self.whole_blocked.insert(ticket, mode);
        }
        open
    }

    /// Takes a ticket out and tells `unblock` to whom the gate has opened.
    fn leave(&mut self, ticket: Ticket, mode: Mode, whole: bool, unblock: &mut impl FnMut(Ticket)) {
        if whole {
            self.whole.of(mode).remove(&ticket);
            self.whole_blocked.remove(&ticket);
            for mode in [Mode::Shared, Mode::Exclusive] {
                // The earliest of a mode is the first to pass.
                while let Some(&first) = self.keyed_blocked.of(mode).first()
                    && self.keyed_may_pass(mode, Some(first))
                {
                    self.keyed_blocked.of(mode).remove(&first);
                    unblock(first);
                }
            }
        } else {
            self.keyed.of(mode).remove(&ticket);
            self.keyed_blocked.of(mode).remove(&ticket);
        }
        // Whatever keeps the first of these back keeps back the ones behind it, or it does so itself.
        while let Some((&first, &mode)) = self.whole_blocked.first_key_value()
            && self.whole_may_pass(mode, Some(first))
        {
            self.whole_blocked.remove(&first);
            unblock(first);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Mode::{Exclusive, Shared};
    use super::*;
    use proptest::prelude::*;

    fn enqueue(intents: &mut Intents, keys: &[u64], mode: Mode) -> (Ticket, bool) {
        intents.enqueue(Scope::Keys(keys), mode)
    }

    fn release(intents: &mut Intents, ticket: Ticket) -> Vec<Ticket> {
        let mut granted = Vec::new();
        intents.release(ticket, &mut granted);
        granted
    }

    #[test]
    fn a_reader_does_not_overtake_a_writer_that_waits() {
        let mut intents = Intents::new();
        let (reader, _) = enqueue(&mut intents, &[1], Shared);
        let (writer, at_once) = enqueue(&mut intents, &[1], Exclusive);
        assert!(!at_once);
        assert!(intents.conflicts(Scope::Keys(&[1]), Shared));
        assert_eq!(intents.try_acquire(Scope::Keys(&[2, 1]), Shared), None);
        let (second, _) = enqueue(&mut intents, &[1], Shared);
        let (third, _) = enqueue(&mut intents, &[1, 1], Shared);
        assert_eq!((intents.held(), intents.waiting()), (1, 3));
        assert_eq!(release(&mut intents, reader), [writer]);
        assert_eq!(release(&mut intents, writer), [second, third]);
    }

    #[test]
    fn a_writer_that_gives_up_lets_the_readers_behind_it_join() {
        let mut intents = Intents::new();
        let (reader, _) = enqueue(&mut intents, &[1], Shared);
        let (writer, _) = enqueue(&mut intents, &[1, 2], Exclusive);
        let (second, _) = enqueue(&mut intents, &[2, 1], Shared);
        assert_eq!(release(&mut intents, writer), [second]);
        assert_eq!(release(&mut intents, reader), []);
        assert_eq!(release(&mut intents, second), []);
        assert!(intents.is_idle());
    }

    #[test]
    fn a_ticket_waits_for_all_of_its_keys() {
        let mut intents = Intents::new();
        let (a, _) = enqueue(&mut intents, &[1], Exclusive);
        let (b, _) = enqueue(&mut intents, &[2], Exclusive);
        let (both, _) = enqueue(&mut intents, &[1, 2], Exclusive);
        let (behind, _) = enqueue(&mut intents, &[1], Exclusive);
        assert_eq!(release(&mut intents, a), []);
        assert_eq!(release(&mut intents, b), [both]);
        assert_eq!(release(&mut intents, both), [behind]);
    }

    #[test]
    fn the_whole_shard_waits_for_every_key_and_every_key_for_it() {
        let mut intents = Intents::new();
        let (reader, _) = enqueue(&mut intents, &[1], Shared);
        let (snapshot, at_once) = intents.enqueue(Scope::Whole, Shared);
        assert!(at_once);
        let (flush, at_once) = intents.enqueue(Scope::Whole, Exclusive);
        assert!(!at_once);
        let (late_writer, _) = enqueue(&mut intents, &[2], Exclusive);
        let (late_reader, _) = enqueue(&mut intents, &[3], Shared);
        assert!(intents.conflicts(Scope::Keys(&[9]), Shared));
        assert!(intents.conflicts(Scope::Whole, Shared));
        assert_eq!(release(&mut intents, reader), []);
        assert_eq!(release(&mut intents, snapshot), [flush]);
        assert_eq!(release(&mut intents, flush), [late_writer, late_reader]);
    }

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
                !meet || (*mode, *other_mode) == (Shared, Shared)
            })
        }

        fn all_granted(&self) -> Vec<Ticket> {
            (0..self.0.len()).filter(|at| self.granted(*at)).map(|at| self.0[at].0).collect()
        }
    }

    #[derive(Clone, Debug)]
    struct Request {
        keys: Option<Vec<u64>>,
        mode: Mode,
    }

    #[derive(Clone, Debug)]
    enum Op {
        Enqueue(Request),
        TryAcquire(Request),
        Release(prop::sample::Index),
    }

    fn op() -> impl Strategy<Value = Op> {
        let keys = prop::option::weighted(0.85, prop::collection::vec(0..6u64, 0..4));
        let request = (keys, prop_oneof![Just(Shared), Just(Exclusive)])
            .prop_map(|(keys, mode)| Request { keys, mode });
        prop_oneof![
            3 => request.clone().prop_map(Op::Enqueue),
            1 => request.prop_map(Op::TryAcquire),
            3 => any::<prop::sample::Index>().prop_map(Op::Release),
        ]
    }

    fn apply(intents: &mut Intents, naive: &mut Naive, op: Op) -> Result<(), TestCaseError> {
        match op {
            Op::Enqueue(Request { keys, mode }) => {
                let scope = keys.as_ref().map_or(Scope::Whole, |keys| Scope::Keys(keys));
                let conflicts = intents.conflicts(scope, mode);
                let (ticket, granted) = intents.enqueue(scope, mode);
                naive.0.push((ticket, keys, mode));
                prop_assert_eq!(granted, naive.granted(naive.0.len() - 1));
                prop_assert_eq!(granted, !conflicts);
            }
            Op::TryAcquire(Request { keys, mode }) => {
                let scope = keys.as_ref().map_or(Scope::Whole, |keys| Scope::Keys(keys));
                let ticket = intents.try_acquire(scope, mode);
                naive.0.push((ticket.unwrap_or(Ticket(u64::MAX)), keys, mode));
                prop_assert_eq!(ticket.is_some(), naive.granted(naive.0.len() - 1));
                if ticket.is_none() {
                    naive.0.pop();
                }
            }
            Op::Release(_) if naive.0.is_empty() => {}
            Op::Release(which) => {
                let before = naive.all_granted();
                let (ticket, _, _) = naive.0.remove(which.index(naive.0.len()));
                let mut after = naive.all_granted();
                after.retain(|ticket| !before.contains(ticket));
                prop_assert_eq!(release(intents, ticket), after);
            }
        }
        prop_assert_eq!(intents.held(), naive.all_granted().len());
        prop_assert_eq!(intents.held() + intents.waiting(), naive.0.len());
        prop_assert_eq!(intents.is_idle(), naive.0.is_empty());
        Ok(())
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(512))]
        #[test]
        fn tickets_are_granted_as_in_a_plain_list(ops in prop::collection::vec(op(), 1..80)) {
            let (mut intents, mut naive) = (Intents::new(), Naive::default());
            for op in ops {
                apply(&mut intents, &mut naive, op)?;
            }
            // Whoever holds something lets it go, one at a time: everybody gets a turn, and nothing is left behind.
            while let Some(&ticket) = naive.all_granted().last() {
                release(&mut intents, ticket);
                naive.0.retain(|(other, _, _)| *other != ticket);
            }
            prop_assert!(naive.0.is_empty() && intents.is_idle() && intents.queues.is_empty());
            prop_assert!(intents.gate.is_empty());
        }
    }

    impl Gate {
        fn is_empty(&self) -> bool {
            let lives = [&self.keyed, &self.whole, &self.keyed_blocked];
            self.whole_blocked.is_empty()
                && lives.iter().all(|live| live.shared.is_empty() && live.exclusive.is_empty())
        }
    }
}
