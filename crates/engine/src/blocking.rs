//! Clients that wait for a key to have elements: BLPOP and its kind. Who waits where; what the shard of the client decides.
//!
//! A blocking command that finds nothing *enlists*: every shard that owns one of its keys notes it, before the intents are let go
//! under which it found nothing, so no push can slip between. When a command has made a key, the shard serves those who wait
//! for it (`serving`): at once where the client and all its keys are there, otherwise after a *claim* to the shard of the client.
//! That shard decides: the time may be up, the connection closed, or another shard have been first.
//!
//! Where the command needs nothing of other shards, the claim is granted and the claiming shard runs it. Otherwise it is *tried*
//! again as a command over several shards, in which the claiming shard takes part with the intents that it holds. A try that finds
//! nothing, since somebody else was there before all intents were held, changes nothing: the command waits on at its place.
//! Until a claim is settled, its command is *busy* and nobody behind it is served.

use crate::args::{Args, OwnedArgs};
use crate::command::Command;
use crate::commands::{CommandNumber, CommandTable};
use crate::coordinator::Coordinator;
use crate::faults::Faults;
use crate::intents::Ticket;
use crate::journal::Ended;
use crate::keyspace::Millis;
use crate::message::{TxId, TxMessage};
use crate::modes::Modes;
use crate::node::{Core, Node};
use crate::serving::Serving;
use crate::session::{Client, SessionId, Wait};
use crate::slot::ShardId;
use crate::timing::Answered;
use corelane_resp::{Mark, Proto, Reply};
use hashbrown::HashMap;
use std::collections::{BTreeSet, VecDeque};

/// Arguments of a move that are keys.
pub(crate) const SOURCE: u32 = 1;
pub(crate) const DESTINATION: u32 = 2;

/// A database and a key.
pub(crate) type Named = (usize, Box<[u8]>);

/// The key that is waited for, and the type that it must have.
type Awaited = (usize, &'static str, Box<[u8]>);

/// Names a command that waits: the shard of its client, the connection, and a number that is unique on that shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct WaitId {
    pub(crate) home: ShardId,
    pub(crate) session: SessionId,
    pub(crate) number: u64,
}

/// What shards tell each other of commands that wait.
#[derive(Debug)]
pub enum WaitMessage {
    /// The command of this transaction waits from now on; its intents are let go.
    Enlist(TxId, WaitId),
    /// It does not wait any more.
    Withdraw(WaitId),
    /// There is something for it.
    Claim(Claim),
    /// May it be served? The number is the claim's.
    Answer(u64, Answer),
    /// It has not been served after all, and waits on; nobody claims it.
    WaitsOn(WaitId),
    /// From a shard that was to serve it: there was nothing any more.
    NotServed(WaitId),
    /// It has been served, in so many nanoseconds.
    Served(WaitId, Reply, u64),
}

/// A shard has something for a command that waits.
#[derive(Clone, Copy, Debug)]
pub struct Claim {
    /// The claiming shard's number for it.
    pub(crate) seq: u64,
    pub(crate) id: WaitId,
    /// Which argument is the key that is there.
    pub(crate) at: u32,
}

/// What a claim is answered with.
#[derive(Clone, Copy, Debug)]
pub enum Answer {
    /// It does not wait.
    Refused,
    /// Another shard's claim is being settled; its outcome will be told.
    Busy,
    /// Serve it.
    Granted,
    /// It is tried again by this transaction.
    Tried(TxId),
}

/// A command that waits, where its keys are.
pub(crate) struct Blocked {
    pub(crate) id: WaitId,
    pub(crate) command: &'static Command,
    pub(crate) args: OwnedArgs,
    pub(crate) db: usize,
    pub(crate) proto: Proto,
    pub(crate) client_id: u64,
    pub(crate) no_touch: bool,
    /// The keys on this shard for which it waits, as indices into the arguments.
    pub(crate) keys: Vec<u32>,
    /// Its client and all its keys are on this shard.
    pub(crate) alone: bool,
    pub(crate) busy: Busy,
}

/// Who is about to serve a command that waits, as a shard of its keys sees it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Busy {
    /// Nobody.
    No,
    /// This shard, when it is granted this ticket.
    InLine(Ticket),
    /// This shard has asked the client's, which will answer.
    Asked,
    /// The outcome is the client's shard's to tell.
    Unsettled,
}

impl Blocked {
    fn awaited(&self) -> impl Iterator<Item = Awaited> {
        let wanted = wanted(self.command);
        self.keys.iter().map(move |idx| (self.db, wanted, self.args.args().at(*idx as usize).into()))
    }
}

/// How far a command that waits is, on the shard of its client.
#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    /// Nobody claims it.
    Idle,
    /// This transaction tries it again.
    Tried(TxId),
    /// A shard is serving it.
    Granted,
}

/// Where a client of this shard waits, and for what.
struct Enlisted {
    number: u64,
    shards: Vec<ShardId>,
    command: &'static Command,
    args: OwnedArgs,
    state: State,
    /// Taken from the client while a shard is serving it.
    wait: Option<Box<Wait>>,
}

/// A command that waits no longer.
pub(crate) struct Waited {
    command: &'static Command,
    args: OwnedArgs,
}

impl Waited {
    /// Its number in the statistics.
    pub(crate) fn number(&self, table: &CommandTable) -> CommandNumber {
        table.id_of(self.args.args()).number
    }
}

/// Who waits on one shard, and whose clients of it wait.
#[derive(Default)]
pub(crate) struct Blocking {
    next: u64,
    pub(crate) blocked: HashMap<u64, Blocked>,
    pub(crate) by_id: HashMap<WaitId, u64>,
    queues: HashMap<Awaited, BTreeSet<u64>>,
    /// By the waiter for which an answer is awaited; with the argument that is the key.
    pub(crate) claims: HashMap<u64, (Serving, u32)>,
    /// Keys to look at when those who hold them let go.
    pub(crate) deferred: VecDeque<Named>,
    /// Keys that were left to somebody who has come first and is about to be served.
    pub(crate) left: VecDeque<Named>,
    /// What is served on in a later turn.
    pub(crate) later: VecDeque<Serving>,
    /// Replies to clients of this shard.
    pub(crate) served: Vec<(SessionId, u64, Reply, u64)>,
    enlisted: HashMap<SessionId, Enlisted>,
    faults: Faults,
}

/// Whether a command moves from its first key to its second, and waits for the first only.
pub(crate) fn moves(command: &Command) -> bool {
    matches!(command.name, "blmove" | "brpoplpush")
}

/// The type of the values that it waits for.
fn wanted(command: &Command) -> &'static str {
    if command.group == "list" { "list" } else { "zset" }
}

impl Blocking {
    pub(crate) fn new(faults: Faults) -> Self {
        Self { faults, ..Self::default() }
    }

    fn number(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    fn add(&mut self, blocked: Blocked) {
        let seq = self.number();
        self.put(seq, blocked);
    }

    /// Notes a command at a place in the order of arrival.
    pub(crate) fn put(&mut self, seq: u64, blocked: Blocked) {
        for awaited in blocked.awaited() {
            self.queues.entry(awaited).or_default().insert(seq);
        }
        self.by_id.insert(blocked.id, seq);
        self.blocked.insert(seq, blocked);
    }

    pub(crate) fn remove(&mut self, seq: u64) -> Option<Blocked> {
        let blocked = self.blocked.remove(&seq)?;
        self.by_id.remove(&blocked.id);
        for awaited in blocked.awaited() {
            if let Some(queue) = self.queues.get_mut(&awaited) {
                queue.remove(&seq);
                if queue.is_empty() {
                    self.queues.remove(&awaited);
                }
            }
        }
        Some(blocked)
    }

    /// Whether anybody waits on this shard.
    pub(crate) fn is_awaited(&self) -> bool {
        !self.queues.is_empty()
    }

    /// Whether anybody waits for a key.
    pub(crate) fn awaits(&self, named: &Named) -> bool {
        ["list", "zset"].iter().any(|found| self.first(named, found).is_some())
    }

    /// The first who waits for a key, which holds such values.
    pub(crate) fn first(&self, named: &Named, found: &'static str) -> Option<u64> {
        let queue = self.queues.get(&(named.0, found, named.1.clone()))?;
        if self.faults.serves_last { queue.last().copied() } else { queue.first().copied() }
    }

    /// All keys that somebody waits for, in an order of their own.
    pub(crate) fn awaited_keys(&self) -> BTreeSet<Named> {
        self.queues.keys().map(|(db, _, key)| (*db, key.clone())).collect()
    }

    pub(crate) fn misses_new(&self) -> bool {
        self.faults.misses_new
    }

    /// How many keys are waited for; one that is waited for with values of several types is one.
    pub(crate) fn waited_keys(&self) -> usize {
        self.queues.keys().map(|(db, _, key)| (db, key)).collect::<BTreeSet<_>>().len()
    }

    /// Whether there are replies for clients of this shard.
    pub(crate) fn has_served(&self) -> bool {
        !self.served.is_empty()
    }

    /// Those of another shard that wait here.
    fn of_home(&self, home: ShardId) -> Vec<WaitId> {
        let mut found: Vec<(u64, WaitId)> =
            self.by_id.iter().filter(|(id, _)| id.home == home).map(|(id, seq)| (*seq, *id)).collect();
        found.sort_unstable_by_key(|(seq, _)| *seq);
        found.into_iter().map(|(_, id)| id).collect()
    }
}

impl Core {
    /// Notes a command of a client of this shard, all of whose keys are here, as waiting.
    pub(crate) fn enlist_here(
        &mut self,
        client: &mut Client,
        session: SessionId,
        command: &'static Command,
        args: Args<'_>,
        now: Millis,
    ) {
        let args = args.to_owned();
        let id = self.begin_wait(client, session, command, args.clone(), vec![self.shard.me], now);
        let range = command.key_range(args.args()).into_iter().flat_map(|range| range.indices());
        let keys: Vec<u32> = range.map(|idx| idx as u32).collect();
        let no_touch = client.modes.has(Modes::NO_TOUCH);
        let (db, proto, client_id) = (client.db, client.proto, client.id);
        self.note_blocked(Blocked {
            id,
            command,
            args,
            db,
            proto,
            client_id,
            no_touch,
            keys,
            alone: true,
            busy: Busy::No,
        });
    }

    fn note_blocked(&mut self, mut blocked: Blocked) {
        if moves(blocked.command) {
            blocked.keys.retain(|idx| *idx == SOURCE);
        }
        if !blocked.keys.is_empty() {
            self.blocking.add(blocked);
            self.shard.keyspace.tells_of_new = true;
        }
    }

    /// Has a client wait until its command's time is up.
    pub(crate) fn begin_wait(
        &mut self,
        client: &mut Client,
        session: SessionId,
        command: &'static Command,
        args: OwnedArgs,
        shards: Vec<ShardId>,
        now: Millis,
    ) -> WaitId {
        let number = self.blocking.number();
        let until = crate::commands::wait_deadline(command, args.args(), now);
        // It has been counted, and is once more when its wait ends. Somebody may have reset the counters meanwhile.
        self.shard.stats.commands = self.shard.stats.commands.saturating_sub(1);
        client.commands = client.commands.saturating_sub(1);
        client.wait = Some(Box::new(Wait { until, give_up: Reply::null_array }));
        if let Some(until) = until {
            self.waits.add(until, session);
        }
        let enlisted = Enlisted { number, shards, command, args, state: State::Idle, wait: None };
        self.blocking.enlisted.insert(session, enlisted);
        WaitId { home: self.shard.me, session, number }
    }

    /// A client waits no longer: it is being answered, its time is up, or it is gone. Returns the command that has waited.
    pub(crate) fn withdraw(&mut self, session: SessionId) -> Option<Waited> {
        let enlisted = self.blocking.enlisted.remove(&session)?;
        let id = WaitId { home: self.shard.me, session, number: enlisted.number };
        for shard in enlisted.shards {
            if shard == self.shard.me {
                // At once: the next command may be one that serves it.
                self.forget(id);
            } else {
                self.send(shard, TxMessage::Waiting(Box::new(WaitMessage::Withdraw(id))));
            }
        }
        Some(Waited { command: enlisted.command, args: enlisted.args })
    }

    /// Counts a command that has waited, and logs it if it is worth that. Its time is that of its running alone.
    pub(crate) fn account_waited(
        &mut self,
        client: &Client,
        waited: &Waited,
        (ns, answered): (u64, Answered),
        now: Millis,
    ) {
        let (command, args) = (waited.command, waited.args.args());
        if self.shard.timing.executed(self.table.id_of(args).number, ns, answered) {
            self.note_here(Some(client), Ended { command, args, ns, answered, now });
        }
    }

    /// A command does not wait here any more. Who stood behind it may be served.
    pub(crate) fn forget(&mut self, id: WaitId) {
        let Some(seq) = self.blocking.by_id.get(&id).copied() else { return };
        let Some(blocked) = self.blocking.remove(seq) else { return };
        self.look_again(&blocked);
        self.shard.keyspace.tells_of_new = self.blocking.is_awaited();
    }

    /// Nobody is about to serve this command any more. Keys that have come to be meanwhile were left to it, and others to
    /// whoever comes before.
    pub(crate) fn look_again(&mut self, blocked: &Blocked) {
        self.shard.keyspace.appeared.extend(self.blocking.left.drain(..));
        if blocked.busy != Busy::No {
            let keys = blocked.awaited().map(|(db, _, key)| (db, key));
            self.shard.keyspace.appeared.extend(keys);
        }
    }

    /// A claim has come to nothing, and the command waits on.
    fn waits_on(&mut self, id: WaitId) {
        if let Some(seq) = self.blocking.by_id.get(&id).copied() {
            self.end_busy(seq, Busy::Unsettled);
        }
    }

    /// Nobody is about to serve a command any more, if it was as told that somebody was.
    pub(crate) fn end_busy(&mut self, seq: u64, was: Busy) {
        let found = self.blocking.blocked.get(&seq);
        if found.is_none_or(|blocked| blocked.busy != was) {
            return;
        }
        let Some(mut blocked) = self.blocking.blocked.remove(&seq) else { return };
        self.look_again(&blocked);
        blocked.busy = Busy::No;
        self.blocking.blocked.insert(seq, blocked);
    }

    /// What the shards of a client's keys have to know of it after a claim that has come to nothing.
    pub(crate) fn stay_enlisted(&mut self, session: SessionId, except: Option<ShardId>) {
        let Some(enlisted) = self.blocking.enlisted.get_mut(&session) else { return };
        enlisted.state = State::Idle;
        let id = WaitId { home: self.shard.me, session, number: enlisted.number };
        let shards = enlisted.shards.clone();
        for shard in shards.into_iter().filter(|shard| Some(*shard) != except) {
            self.send(shard, TxMessage::Waiting(Box::new(WaitMessage::WaitsOn(id))));
        }
    }
}

impl Node {
    pub(crate) fn on_wait_message(&mut self, from: ShardId, message: WaitMessage, now: Millis) {
        match message {
            WaitMessage::Enlist(tx, id) => self.on_enlist(tx, id, now),
            WaitMessage::Withdraw(id) => self.core.forget(id),
            WaitMessage::Claim(claim) => self.on_claim(from, claim),
            WaitMessage::Answer(seq, answer) => self.on_claim_answer(seq, answer, now),
            WaitMessage::WaitsOn(id) => self.core.waits_on(id),
            WaitMessage::NotServed(id) => self.on_not_served(from, id),
            WaitMessage::Served(id, reply, ns) => self.on_served((id.session, id.number), reply, ns, now),
        }
    }

    /// The command of a transaction has found nothing: from now on it waits for its keys that are here.
    fn on_enlist(&mut self, tx: TxId, id: WaitId, now: Millis) {
        if let Some(request) = self.participant.request_of(tx) {
            let blocked = Blocked {
                id,
                command: request.command,
                args: request.args.clone(),
                db: request.db.into(),
                proto: request.proto,
                client_id: request.client_id,
                no_touch: request.no_touch,
                keys: request.keys.clone(),
                alone: false,
                busy: Busy::No,
            };
            self.core.note_blocked(blocked);
        }
        self.on_release(tx, now);
    }

    /// Another shard, or this one, has something for a client of this shard.
    fn on_claim(&mut self, from: ShardId, claim: Claim) {
        let (answer, messages) = self.decide_claim(from, claim);
        let message = WaitMessage::Answer(claim.seq, answer);
        self.core.send(from, TxMessage::Waiting(Box::new(message)));
        for (to, message) in messages {
            self.core.send(to, message);
        }
    }

    fn decide_claim(&mut self, from: ShardId, claim: Claim) -> (Answer, Vec<(ShardId, TxMessage)>) {
        let Claim { id, at, .. } = claim;
        let core = &mut self.core;
        let session = self.sessions.get_mut(id.session).filter(|session| session.client.close.is_none());
        let enlisted =
            core.blocking.enlisted.get_mut(&id.session).filter(|enlisted| enlisted.number == id.number);
        let (Some(session), Some(enlisted)) = (session, enlisted) else {
            let blind = self.faults.grants_blindly;
            return (if blind { Answer::Granted } else { Answer::Refused }, Vec::new());
        };
        if enlisted.state != State::Idle {
            return (if self.faults.grants_blindly { Answer::Granted } else { Answer::Busy }, Vec::new());
        }
        let mut parts = Coordinator::divide(&core.shard, enlisted.command, enlisted.args.args());
        if !moves(enlisted.command) {
            // The first key that is there is taken: nobody asks what is behind it.
            parts.iter_mut().for_each(|part| part.keys.retain(|idx| *idx <= at));
            parts.retain(|part| !part.keys.is_empty());
        }
        if parts.iter().all(|part| part.shard == from) || self.faults.grants_blindly {
            enlisted.state = State::Granted;
            enlisted.wait = session.client.wait.take();
            session.in_transaction = true;
            return (Answer::Granted, Vec::new());
        }
        let what = (enlisted.command, enlisted.args.clone());
        let (tx, mut messages) = self.coordinator.start_again(&core.shard, id, &session.client, what, parts);
        enlisted.state = State::Tried(tx);
        messages.retain(|(to, _)| *to != from);
        (Answer::Tried(tx), messages)
    }

    /// Whether a transaction that tries a command which waits may go on: its client may not wait any more.
    pub(crate) fn is_tried_by(&self, session: SessionId, tx: TxId) -> bool {
        let enlisted = self.core.blocking.enlisted.get(&session);
        enlisted.is_some_and(|enlisted| enlisted.state == State::Tried(tx))
    }

    /// A try holds all that it needs, and will be answered.
    pub(crate) fn end_wait_by_try(&mut self, id: SessionId) {
        self.core.withdraw(id);
        if let Some(session) = self.sessions.get_mut(id) {
            session.client.wait = None;
            session.in_transaction = true;
            self.core.count(session, 1);
        }
    }

    /// A shard that was to serve a command found nothing, since a deadline had passed.
    fn on_not_served(&mut self, from: ShardId, id: WaitId) {
        let Some(enlisted) = self.core.blocking.enlisted.get_mut(&id.session) else { return };
        let Some(session) = self.sessions.get_mut(id.session).filter(|_| enlisted.number == id.number) else {
            return;
        };
        session.in_transaction = false;
        session.client.wait = enlisted.wait.take();
        if let Some(until) = session.client.wait.as_ref().and_then(|wait| wait.until) {
            self.core.waits.add(until, id.session);
        }
        self.core.after_change(session, id.session);
        self.core.stay_enlisted(id.session, Some(from));
    }

    /// A command of a client of this shard has been served.
    fn on_served(&mut self, (id, number): (SessionId, u64), mut reply: Reply, ns: u64, now: Millis) {
        if self.core.blocking.enlisted.get(&id).is_none_or(|enlisted| enlisted.number != number) {
            return;
        }
        let waited = self.core.withdraw(id);
        let answered = Answered::since(&reply, Mark::default(), 0);
        if answered.failed {
            self.core.shard.stats.count_error(&reply.buf);
        }
        let Some(session) = self.sessions.get_mut(id) else { return };
        if let Some(waited) = waited {
            self.core.count(session, 1);
            self.core.account_waited(&session.client, &waited, (ns, answered), now);
        }
        session.client.wait = None;
        session.in_transaction = false;
        self.core.answer(session, |_, _, out| {
            out.append(&mut reply);
            Ok(())
        });
        self.core.after_change(session, id);
    }

    /// Gives clients of this shard what was served on the spot.
    pub(crate) fn deliver_served(&mut self, now: Millis) {
        for (id, number, reply, ns) in std::mem::take(&mut self.core.blocking.served) {
            self.on_served((id, number), reply, ns, now);
        }
    }

    /// A shard has failed: nobody of it waits any more, and nobody here can wait for it.
    pub(crate) fn forget_waits_of(&mut self, failed: ShardId, now: Millis) {
        for id in self.core.blocking.of_home(failed) {
            let seq = self.core.blocking.by_id.get(&id).copied();
            self.core.forget(id);
            if let Some((serving, _)) = seq.and_then(|seq| self.core.blocking.claims.remove(&seq)) {
                self.core.serve_waiters(&mut self.participant, serving, now);
            }
        }
        let waits_there =
            |(id, enlisted): (&SessionId, &Enlisted)| enlisted.shards.contains(&failed).then_some(*id);
        let mut lost: Vec<SessionId> = self.core.blocking.enlisted.iter().filter_map(waits_there).collect();
        lost.sort_unstable_by_key(|id| (id.idx, id.generation));
        for id in lost {
            self.fail_wait(id);
        }
    }

    /// Answers a client that waits with the failure of a shard.
    pub(crate) fn fail_wait(&mut self, id: SessionId) {
        self.core.withdraw(id);
        let Some(session) = self.sessions.get_mut(id) else { return };
        session.client.wait = None;
        session.in_transaction = false;
        self.core.answer(session, |_, _, _| Err(crate::failover::SHARD_FAILED));
        self.core.after_change(session, id);
    }
}

impl Serving {
    /// What is served under an intent that is held.
    pub(crate) fn under(holds: Option<Ticket>) -> Self {
        Self { holds: holds.into_iter().collect(), ..Self::default() }
    }
}
