//! Serving commands that wait, on the shard that owns the key: when a command has made one, whoever waits for it is served before
//! anybody else gets at it, first come, first served. How that is agreed with the shard of the client is told in `blocking`.
//!
//! What is served for others is held: the intents of the command that made the key are not let go before, or some are taken.
//! A key that a command holds is looked at when that lets go, before those who stand in line. Where the command that waits needs another key
//! of this shard, which is held, it stands in line for both: to hold one while waiting for the other might never end.

use crate::blocking::{Answer, Blocked, Busy, Claim, DESTINATION, Named, WaitId, WaitMessage, moves};
use crate::execute::{run_some, run_whole, shard_of};
use crate::intents::{Mode, Scope, Ticket};
use crate::keyspace::Millis;
use crate::message::{LockRequest, TxId, TxMessage, Wanted};
use crate::node::{Core, Node};
use crate::participant::{Participant, Waiter};
use corelane_resp::Reply;
use std::collections::VecDeque;

/// Commands served in a row; one costs a few microseconds. What is left waits for the next turn.
const SERVED_MAX: usize = 128;

/// What a shard is serving: keys, in the order in which they came to be, and the intents that it holds on them.
#[derive(Default)]
pub(crate) struct Serving {
    pub(crate) ready: VecDeque<Named>,
    pub(crate) holds: Vec<Ticket>,
}

/// Whether a command that waits can be run now.
enum Access {
    Free,
    /// Somebody holds the key itself.
    Held,
    /// Somebody holds another key that it needs: it stands in line.
    InLine,
    /// Somebody who has come first is about to be served from another key that it would take first.
    Behind,
}

impl Core {
    /// Whether something was left for the next turn.
    pub(crate) fn has_later(&self) -> bool {
        !self.later.is_empty() || !self.blocking.later.is_empty()
    }

    /// To be called when a command is at its end: serves those who wait for keys that it has made, then lets go of its intents.
    #[inline]
    pub(crate) fn serve_new(&mut self, participant: &mut Participant, holds: Option<Ticket>, now: Millis) {
        if self.shard.keyspace.has_new() || holds.is_some() && !self.blocking.deferred.is_empty() {
            self.serve_waiters(participant, Serving::under(holds), now);
        } else if let Some(ticket) = holds {
            participant.let_go(ticket);
        }
    }

    #[cold]
    pub(crate) fn serve_waiters(&mut self, participant: &mut Participant, mut serving: Serving, now: Millis) {
        if self.blocking.misses_new() && !serving.holds.is_empty() {
            self.shard.keyspace.appeared.clear();
        }
        serving.ready.extend(self.blocking.deferred.drain(..));
        let mut served = 0;
        loop {
            self.take_new(&mut serving);
            let Some(named) = serving.ready.front() else {
                serving.holds.drain(..).for_each(|ticket| participant.let_go(ticket));
                serving.ready = self.take_free(participant);
                if serving.ready.is_empty() {
                    break;
                }
                continue;
            };
            let Some(seq) = self.next_waiter(named, now) else {
                serving.ready.pop_front();
                continue;
            };
            match self.access(participant, &mut serving, seq, now) {
                Access::Free => {}
                Access::Held => {
                    self.blocking.deferred.extend(serving.ready.pop_front());
                    continue;
                }
                Access::Behind => {
                    self.blocking.left.extend(serving.ready.pop_front());
                    continue;
                }
                Access::InLine => {
                    serving.ready.pop_front();
                    continue;
                }
            }
            served += 1;
            if served > SERVED_MAX {
                return self.serve_later(participant, serving);
            }
            if !self.blocking.blocked.get(&seq).is_some_and(|blocked| blocked.alone) {
                self.hold_ready(participant, &mut serving);
                return self.claim(serving, seq);
            }
            if !self.serve_here(seq, now) {
                serving.ready.pop_front();
            }
        }
        self.shard.keyspace.tells_of_new = self.blocking.is_awaited();
    }

    /// Moves the keys that have come to be to those that are to be served.
    fn take_new(&mut self, serving: &mut Serving) {
        let keyspace = &mut self.shard.keyspace;
        let swapped = std::mem::take(&mut keyspace.swapped);
        serving.ready.extend(keyspace.appeared.drain(..));
        if swapped {
            serving.ready.extend(self.blocking.awaited_keys());
        }
    }

    /// Of the keys that were held, those that are not any more.
    fn take_free(&mut self, participant: &Participant) -> VecDeque<Named> {
        let hasher = self.shard.keyspace.hasher();
        let is_free = |named: &Named| {
            !participant.intents.conflicts(Scope::Keys(&[hasher.hash(&named.1)]), Mode::Exclusive)
        };
        let (free, held) = std::mem::take(&mut self.blocking.deferred).into_iter().partition(is_free);
        self.blocking.deferred = held;
        free
    }

    /// The first who waits for a key, if it holds what they want; `None`, too, while somebody is about to serve that one.
    fn next_waiter(&mut self, named: &Named, now: Millis) -> Option<u64> {
        if !self.blocking.is_awaited() {
            return None;
        }
        let key = self.shard.keyspace.hasher().key(&named.1);
        let found = self.shard.keyspace.find(named.0, key, now)?.type_name();
        let seq = self.blocking.first(named, found)?;
        self.blocking.blocked.get(&seq).is_some_and(|blocked| blocked.busy == Busy::No).then_some(seq)
    }

    /// Sees to it that nobody else is at those keys of a waiter that it needs here, if the first key ready is to be taken.
    fn access(
        &mut self,
        participant: &mut Participant,
        serving: &mut Serving,
        seq: u64,
        now: Millis,
    ) -> Access {
        if let (Some(blocked), Some((_, key))) = (self.blocking.blocked.get(&seq), serving.ready.front()) {
            let (id, at) = (blocked.id, place_of(blocked, key));
            let keys: Vec<u32> = blocked.keys.iter().copied().filter(|idx| *idx <= at).collect();
            if keys.len() > 1 && self.is_behind(id, &keys, now) {
                return Access::Behind;
            }
        }
        let (Some(blocked), Some((_, key))) = (self.blocking.blocked.get_mut(&seq), serving.ready.front())
        else {
            return Access::Held;
        };
        let args = blocked.args.args();
        let hasher = self.shard.keyspace.hasher();
        let at = place_of(blocked, key);
        let mut needed = vec![hasher.hash(key)];
        let before = blocked.keys.iter().filter(|idx| **idx < at);
        needed.extend(before.map(|idx| hasher.hash(args.at(*idx as usize))));
        if moves(blocked.command) && shard_of(&self.shard, args.at(DESTINATION as usize)) == self.shard.me {
            needed.push(hasher.hash(args.at(DESTINATION as usize)));
        }
        let intents = &mut participant.intents;
        let covered = |hash: &u64| serving.holds.iter().any(|ticket| intents.covers(*ticket, *hash));
        let missing: Vec<u64> = needed.iter().copied().filter(|hash| !covered(hash)).collect();
        let free = !intents.conflicts(Scope::Keys(&missing), Mode::Exclusive);
        // Who is served on the spot needs no intent where nobody has one.
        if missing.is_empty() || free && blocked.alone {
            return Access::Free;
        }
        if free {
            serving.holds.extend(intents.try_acquire(Scope::Keys(&missing), Mode::Exclusive));
            return Access::Free;
        }
        if missing.contains(&needed[0]) && intents.conflicts(Scope::Keys(&needed[..1]), Mode::Exclusive) {
            return Access::Held;
        }
        let (ticket, granted) = intents.enqueue(Scope::Keys(&needed), Mode::Exclusive);
        blocked.busy = Busy::InLine(ticket);
        participant.waiters.insert(ticket, Waiter::Serve(seq));
        if granted {
            participant.granted.push_back(ticket);
        }
        Access::InLine
    }

    /// Whether somebody who has come before this command waits for the first of these keys that is there.
    pub(crate) fn is_behind(&mut self, id: WaitId, keys: &[u32], now: Millis) -> bool {
        let Some(seq) = self.blocking.by_id.get(&id).copied() else { return false };
        let Some(blocked) = self.blocking.blocked.get(&seq) else { return false };
        let awaited = keys.iter().filter(|idx| blocked.keys.contains(idx));
        for idx in awaited {
            let name = blocked.args.args().at(*idx as usize);
            let key = self.shard.keyspace.hasher().key(name);
            if let Some(found) = self.shard.keyspace.find(blocked.db, key, now) {
                let found = found.type_name();
                return self
                    .blocking
                    .first(&(blocked.db, name.into()), found)
                    .is_some_and(|first| first < seq);
            }
        }
        false
    }

    /// Leaves the rest for a later turn. Nobody gets at the keys until then.
    fn serve_later(&mut self, participant: &mut Participant, mut serving: Serving) {
        self.hold_ready(participant, &mut serving);
        self.blocking.later.push_back(serving);
    }

    /// Holds all keys that are still to be served. Those that others hold are looked at when these let go.
    fn hold_ready(&mut self, participant: &mut Participant, serving: &mut Serving) {
        let intents = &mut participant.intents;
        for named in std::mem::take(&mut serving.ready) {
            let hash = self.shard.keyspace.hasher().hash(&named.1);
            if !serving.holds.iter().any(|ticket| intents.covers(*ticket, hash)) {
                if !self.blocking.awaits(&named) {
                    continue;
                }
                let Some(ticket) = intents.try_acquire(Scope::Keys(&[hash]), Mode::Exclusive) else {
                    self.blocking.deferred.push_back(named);
                    continue;
                };
                serving.holds.push(ticket);
            }
            serving.ready.push_back(named);
        }
    }

    /// Asks the shard of a client whether it may be served.
    fn claim(&mut self, serving: Serving, seq: u64) {
        let (Some(blocked), Some((_, key))) = (self.blocking.blocked.get_mut(&seq), serving.ready.front())
        else {
            return;
        };
        blocked.busy = Busy::Asked;
        let (id, at) = (blocked.id, place_of(blocked, key));
        self.blocking.claims.insert(seq, (serving, at));
        let claim = WaitMessage::Claim(Claim { seq, id, at });
        self.send(id.home, TxMessage::Waiting(Box::new(claim)));
    }

    /// Runs a command that has waited, whose client and keys are all here; false if it waits on.
    fn serve_here(&mut self, seq: u64, now: Millis) -> bool {
        let Some(blocked) = self.blocking.remove(seq) else { return true };
        self.current = Some(blocked.command.name);
        self.shard.keyspace.no_touch = blocked.no_touch;
        self.shard.timing.begin();
        let mut reply = Reply::new(blocked.proto);
        let args = blocked.args.args();
        self.shard.would_wait = false;
        if let Err(error) = run_whole(&mut self.shard, blocked.command, blocked.db, now, args, &mut reply) {
            reply.clear();
            crate::ctx::write_error(&error, &mut reply);
        }
        if std::mem::take(&mut self.shard.would_wait) {
            self.blocking.put(seq, blocked);
            return false;
        }
        self.look_again(&blocked);
        let ns = self.shard.timing.lap();
        self.blocking.served.push((blocked.id.session, blocked.id.number, reply, ns));
        true
    }
}

/// Which of a command's arguments is this key, the first time.
fn place_of(blocked: &Blocked, key: &[u8]) -> u32 {
    let args = blocked.args.args();
    blocked.keys.iter().copied().find(|idx| args.at(*idx as usize) == key).unwrap_or(u32::MAX)
}

impl Participant {
    /// Lets intents go. What waited for them is run in its turn.
    pub(crate) fn let_go(&mut self, ticket: Ticket) {
        let mut granted = Vec::new();
        self.intents.release(ticket, &mut granted);
        self.granted.extend(granted);
    }
}

impl Node {
    /// A command that waits has stood in line for its keys, and has its turn.
    pub(crate) fn serve_in_line(&mut self, ticket: Ticket, seq: u64, now: Millis) {
        self.core.end_busy(seq, Busy::InLine(ticket));
        self.core.serve_waiters(&mut self.participant, Serving::under(Some(ticket)), now);
    }

    /// Goes on with what was too much for one turn.
    pub(crate) fn serve_on(&mut self, now: Millis) {
        if let Some(serving) = self.core.blocking.later.pop_front() {
            self.core.serve_waiters(&mut self.participant, serving, now);
        }
    }

    pub(crate) fn on_claim_answer(&mut self, seq: u64, answer: Answer, now: Millis) {
        let Some((serving, at)) = self.core.blocking.claims.remove(&seq) else { return };
        let id = self.core.blocking.blocked.get_mut(&seq).map(|blocked| {
            blocked.busy = Busy::Unsettled;
            blocked.id
        });
        match (id, answer) {
            (Some(_), Answer::Granted) => return self.serve_granted(seq, serving, at, now),
            (Some(_), Answer::Tried(tx)) => return self.join(tx, seq, serving, at, now),
            (None, Answer::Tried(tx)) => self.core.send(tx.coordinator, TxMessage::Refused(tx)),
            (Some(id), Answer::Refused) => self.core.forget(id),
            (Some(_), Answer::Busy) | (None, _) => {}
        }
        self.core.serve_waiters(&mut self.participant, serving, now);
    }

    /// Takes part in trying a command again, with the intents that are held for it. When they are let go, serving goes on.
    fn join(&mut self, tx: TxId, seq: u64, serving: Serving, at: u32, now: Millis) {
        let Some(blocked) = self.core.blocking.blocked.get(&seq) else { return };
        let request = LockRequest {
            tx,
            wait: false,
            command: blocked.command,
            db: blocked.db as u16,
            proto: blocked.proto,
            client_id: blocked.client_id,
            no_touch: blocked.no_touch,
            args: blocked.args.clone(),
            keys: blocked.keys.iter().copied().filter(|idx| *idx <= at).collect(),
            wanted: Wanted::Try(blocked.id),
        };
        self.participant.hold_for(Box::new(request), serving);
        self.grant(tx, now);
    }

    /// Runs a command that has waited on its keys that are here, all of which are held.
    fn serve_granted(&mut self, seq: u64, serving: Serving, at: u32, now: Millis) {
        let Some(blocked) = self.core.blocking.remove(seq) else { return };
        let mut reply = Reply::new(blocked.proto);
        let mut keys: Vec<u32> = blocked.keys.iter().copied().filter(|idx| *idx <= at).collect();
        if moves(blocked.command) {
            keys.push(DESTINATION);
        }
        self.core.current = Some(blocked.command.name);
        self.core.shard.keyspace.no_touch = blocked.no_touch;
        self.core.shard.timing.begin();
        self.core.shard.would_wait = false;
        let (shard, args) = (&mut self.core.shard, blocked.args.args());
        let run = run_some(shard, blocked.command, &keys, blocked.db, now, args, &mut reply);
        if let Err(error) = run {
            reply.clear();
            crate::ctx::write_error(&error, &mut reply);
        }
        let id = blocked.id;
        let outcome = if std::mem::take(&mut self.core.shard.would_wait) {
            self.core.blocking.put(seq, blocked);
            self.core.end_busy(seq, Busy::Unsettled);
            WaitMessage::NotServed(id)
        } else {
            self.core.look_again(&blocked);
            WaitMessage::Served(id, reply, self.core.shard.timing.lap())
        };
        self.core.send(id.home, TxMessage::Waiting(Box::new(outcome)));
        self.core.serve_waiters(&mut self.participant, serving, now);
    }
}
