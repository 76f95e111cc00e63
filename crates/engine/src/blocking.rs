//! Clients that wait for a key to have elements: BLPOP and its kind. Who waits where, and who is served when.
//!
//! A blocking command that finds nothing *enlists*: every shard that owns one of its keys notes it, before the intents are let go
//! under which it found nothing, so no push can slip between. When a command has made a key, the shard serves those who wait
//! for it before it runs anything else, in the order of their arrival. Whoever waits on this shard only is served on the spot.
//! For others the shard takes an intent on the key and sends a *claim* to the shard of the client, which grants it or refuses
//! it, since the time may be up, the connection closed, or another shard have been first; until then nobody else gets at the
//! key. A move to a key of another shard then asks for that key, too. Where it is taken, the move stands in line again:
//! waiting there while the source is held might never end.

use crate::args::{Args, OwnedArgs};
use crate::command::{Command, Plan};
use crate::commands::CommandNumber;
use crate::ctx::{Ctx, KeySelection, Payload};
use crate::execute::{ctx, run_part, run_whole, shard_of};
use crate::failover::SHARD_FAILED;
use crate::intents::{Mode, Scope, Ticket};
use crate::keyspace::Millis;
use crate::message::{LockRequest, TxId, TxMessage, Wanted};
use crate::modes::Modes;
use crate::node::{Core, Node};
use crate::participant::{Participant, Waiter};
use crate::session::{Client, SessionId, Wait};
use crate::slot::ShardId;
use crate::timing::Answered;
use corelane_resp::{Mark, Proto, Reply};
use hashbrown::HashMap;
use std::collections::{BTreeSet, VecDeque};

/// Arguments of a move that are keys.
const SOURCE: u32 = 1;
const DESTINATION: u32 = 2;

/// A database and a key.
type Named = (usize, Box<[u8]>);

/// Names a command that waits: the shard of its client, the connection, and a number that is unique on that shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct WaitId {
    home: ShardId,
    session: SessionId,
    number: u64,
}

/// What shards tell each other of commands that wait.
#[derive(Debug)]
pub enum WaitMessage {
    /// The command of this transaction waits from now on; its intents are let go.
    Enlist(TxId, WaitId),
    /// It does not wait any more.
    Withdraw(WaitId),
    /// There is something for it; the number is the asking shard's.
    Claim(u64, WaitId),
    /// Whether it may be served.
    Answer(u64, bool),
    /// It could not be served after all, and goes on waiting.
    Unclaim(WaitId),
    /// It has been served, in so many nanoseconds.
    Served(WaitId, Reply, u64),
}

/// A command that waits, where its keys are.
struct Blocked {
    id: WaitId,
    command: &'static Command,
    args: OwnedArgs,
    db: usize,
    proto: Proto,
    client_id: u64,
    no_touch: bool,
    /// The keys on this shard for which it waits, as indices into the arguments.
    keys: Vec<u32>,
    /// Its client and all its keys are on this shard.
    alone: bool,
    claimed: bool,
}

/// What a shard is serving: keys, in the order in which they came to be, and the intents that it holds on them.
#[derive(Default)]
pub(crate) struct Serving {
    ready: VecDeque<Named>,
    pub(crate) holds: Vec<Ticket>,
}

/// Where a client of this shard waits.
struct Enlisted {
    number: u64,
    command: CommandNumber,
    shards: Vec<ShardId>,
    /// Taken from the client while a shard has its claim.
    wait: Option<Box<Wait>>,
}

/// Who waits on one shard, and whose clients of it wait.
#[derive(Default)]
pub(crate) struct Blocking {
    next: u64,
    blocked: HashMap<u64, Blocked>,
    by_id: HashMap<WaitId, u64>,
    queues: HashMap<Named, BTreeSet<u64>>,
    /// By the waiter for which an answer is awaited.
    claims: HashMap<u64, Serving>,
    /// Moves that have asked another shard for their destination.
    moves: HashMap<TxId, (u64, Serving)>,
    /// Replies to clients of this shard.
    served: Vec<(SessionId, u64, Reply, u64)>,
    enlisted: HashMap<SessionId, Enlisted>,
}

/// Whether a command moves from its first key to its second, and waits for the first only.
fn moves(command: &Command) -> bool {
    matches!(command.name, "blmove" | "brpoplpush")
}

/// The type of the values that it waits for.
fn wanted(command: &Command) -> &'static str {
    if command.group == "list" { "list" } else { "zset" }
}

impl Blocking {
    pub(crate) fn number(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    fn add(&mut self, blocked: Blocked) {
        let seq = self.number();
        for idx in &blocked.keys {
            let key = (blocked.db, blocked.args.args().at(*idx as usize).into());
            self.queues.entry(key).or_default().insert(seq);
        }
        self.by_id.insert(blocked.id, seq);
        self.blocked.insert(seq, blocked);
    }

    fn remove(&mut self, seq: u64) -> Option<Blocked> {
        let blocked = self.blocked.remove(&seq)?;
        self.by_id.remove(&blocked.id);
        for idx in &blocked.keys {
            let key: Named = (blocked.db, blocked.args.args().at(*idx as usize).into());
            if let Some(queue) = self.queues.get_mut(&key) {
                queue.remove(&seq);
                if queue.is_empty() {
                    self.queues.remove(&key);
                }
            }
        }
        Some(blocked)
    }

    /// How many keys are waited for.
    pub(crate) fn waited_keys(&self) -> usize {
        self.queues.len()
    }

    /// Whether there are replies for clients of this shard.
    pub(crate) fn has_served(&self) -> bool {
        !self.served.is_empty()
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
        let id = self.begin_wait(client, session, command, args, vec![self.shard.me], now);
        let range = command.key_range(args).into_iter().flat_map(|range| range.indices());
        let keys: Vec<u32> = range.map(|idx| idx as u32).collect();
        let no_touch = client.modes.has(Modes::NO_TOUCH);
        let (db, proto, client_id) = (client.db, client.proto, client.id);
        let args = args.to_owned();
        let mut blocked =
            Blocked { id, command, args, db, proto, client_id, no_touch, keys, alone: true, claimed: false };
        if moves(command) {
            blocked.keys.retain(|idx| *idx == SOURCE);
        }
        self.note_blocked(blocked);
    }

    fn note_blocked(&mut self, blocked: Blocked) {
        self.blocking.add(blocked);
        self.shard.keyspace.tells_of_new = true;
    }

    /// Has a client wait until its command's time is up.
    pub(crate) fn begin_wait(
        &mut self,
        client: &mut Client,
        session: SessionId,
        command: &'static Command,
        args: Args<'_>,
        shards: Vec<ShardId>,
        now: Millis,
    ) -> WaitId {
        let number = self.blocking.number();
        let until = crate::commands::wait_deadline(command, args, now);
        client.wait = Some(Box::new(Wait { until, give_up: Reply::null_array }));
        if let Some(until) = until {
            self.waits.add(until, session);
        }
        let command = self.table.id_of(args).number;
        self.blocking.enlisted.insert(session, Enlisted { number, command, shards, wait: None });
        WaitId { home: self.shard.me, session, number }
    }

    /// A client waits no longer: its time is up, or it is gone. Returns which command it is that has waited.
    pub(crate) fn withdraw(&mut self, session: SessionId) -> Option<CommandNumber> {
        let enlisted = self.blocking.enlisted.remove(&session)?;
        let id = WaitId { home: self.shard.me, session, number: enlisted.number };
        for shard in enlisted.shards {
            if shard == self.shard.me {
                self.forget(id);
            } else {
                self.send(shard, TxMessage::Waiting(Box::new(WaitMessage::Withdraw(id))));
            }
        }
        Some(enlisted.command)
    }

    fn forget(&mut self, id: WaitId) {
        let Some(seq) = self.blocking.by_id.get(&id).copied() else { return };
        if !self.blocking.blocked.get(&seq).is_some_and(|blocked| blocked.claimed) {
            self.blocking.remove(seq);
        }
        self.shard.keyspace.tells_of_new = !self.blocking.queues.is_empty();
    }

    /// To be called when a command is at its end: serves those who wait for keys that it has made, then lets go of its intents.
    #[inline]
    pub(crate) fn serve_new(&mut self, participant: &mut Participant, holds: Option<Ticket>, now: Millis) {
        if self.shard.keyspace.has_new() {
            let serving = Serving { holds: holds.into_iter().collect(), ..Serving::default() };
            self.serve_waiters(participant, serving, now);
        } else if let Some(ticket) = holds {
            participant.let_go(ticket);
        }
    }

    #[cold]
    pub(crate) fn serve_waiters(&mut self, participant: &mut Participant, serving: Serving, now: Millis) {
        let mut serving = serving;
        loop {
            self.take_new(&mut serving);
            let Some((db, key)) = serving.ready.front() else { break };
            let Some(seq) = self.next_waiter(*db, key, now) else {
                serving.ready.pop_front();
                continue;
            };
            let free = self.free_keys(participant, &serving, seq);
            if let Err((missing, all)) = free {
                let scope = Scope::Keys(&missing);
                let Some(ticket) = participant.intents.try_acquire(scope, Mode::Exclusive) else {
                    return self.stand_in_line(participant, serving, &all);
                };
                serving.holds.push(ticket);
            }
            let Some(blocked) = self.blocking.blocked.get_mut(&seq) else { continue };
            if blocked.alone {
                self.serve_here(seq, now);
                continue;
            }
            blocked.claimed = true;
            let id = blocked.id;
            self.blocking.claims.insert(seq, serving);
            return self.send(id.home, TxMessage::Waiting(Box::new(WaitMessage::Claim(seq, id))));
        }
        serving.holds.into_iter().for_each(|ticket| participant.let_go(ticket));
        self.shard.keyspace.tells_of_new = !self.blocking.queues.is_empty();
    }

    /// Serves on when it has intents on these keys. What is held is let go: who waits for it may be who is waited for.
    fn stand_in_line(&self, participant: &mut Participant, mut serving: Serving, hashes: &[u64]) {
        let (ticket, granted) = participant.intents.enqueue(Scope::Keys(hashes), Mode::Exclusive);
        serving.holds.drain(..).for_each(|ticket| participant.let_go(ticket));
        participant.waiters.insert(ticket, Waiter::Serve(serving));
        if granted {
            participant.granted.push_back(ticket);
        }
    }

    /// Moves the keys that have come to be to those that are to be served.
    fn take_new(&mut self, serving: &mut Serving) {
        let keyspace = &mut self.shard.keyspace;
        let swapped = std::mem::take(&mut keyspace.swapped);
        serving.ready.extend(keyspace.appeared.drain(..));
        if swapped {
            let mut all: Vec<Named> = self.blocking.queues.keys().cloned().collect();
            all.sort_unstable();
            serving.ready.extend(all);
        }
    }

    /// The first who waits for a key, if it holds what they want.
    fn next_waiter(&mut self, db: usize, name: &[u8], now: Millis) -> Option<u64> {
        let named: Named = (db, name.into());
        if !self.blocking.queues.contains_key(&named) {
            return None;
        }
        let key = self.shard.keyspace.hasher().key(name);
        let found = self.shard.keyspace.find(db, key, now)?.type_name();
        let waiting = self.blocking.queues.get(&named)?;
        waiting.iter().copied().find(|seq| {
            let blocked = self.blocking.blocked.get(seq);
            blocked.is_some_and(|blocked| !blocked.claimed && wanted(blocked.command) == found)
        })
    }

    /// Whether nobody else is at the keys of a waiter that are here; `Err` with those for which intents are needed, and
    /// all of them.
    fn free_keys(
        &self,
        participant: &Participant,
        serving: &Serving,
        seq: u64,
    ) -> Result<(), (Vec<u64>, Vec<u64>)> {
        let Some(blocked) = self.blocking.blocked.get(&seq) else { return Ok(()) };
        let args = blocked.args.args();
        let hasher = self.shard.keyspace.hasher();
        let mut hashes: Vec<u64> =
            blocked.keys.iter().map(|idx| hasher.hash(args.at(*idx as usize))).collect();
        if moves(blocked.command) && shard_of(&self.shard, args.at(DESTINATION as usize)) == self.shard.me {
            hashes.push(hasher.hash(args.at(DESTINATION as usize)));
        }
        let intents = &participant.intents;
        let covered = |hash: &u64| serving.holds.iter().any(|ticket| intents.covers(*ticket, *hash));
        let all = hashes.clone();
        hashes.retain(|hash| !covered(hash));
        // Who is served on the spot needs no intent where nobody has one.
        if hashes.is_empty() || blocked.alone && !intents.conflicts(Scope::Keys(&hashes), Mode::Exclusive) {
            return Ok(());
        }
        Err((hashes, all))
    }

    /// Runs a command that has waited, whose keys are all here.
    fn serve_here(&mut self, seq: u64, now: Millis) {
        let Some(blocked) = self.blocking.remove(seq) else { return };
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
            return self.blocking.add(blocked);
        }
        let ns = self.shard.timing.lap();
        self.blocking.served.push((blocked.id.session, blocked.id.number, reply, ns));
    }
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
    pub(crate) fn on_wait_message(&mut self, from: ShardId, message: WaitMessage, now: Millis) {
        match message {
            WaitMessage::Enlist(tx, id) => self.on_enlist(tx, id, now),
            WaitMessage::Withdraw(id) => self.core.forget(id),
            WaitMessage::Claim(seq, id) => self.on_claim(from, seq, id),
            WaitMessage::Answer(seq, granted) => self.on_claim_answer(seq, granted, now),
            WaitMessage::Unclaim(id) => self.on_unclaim(id),
            WaitMessage::Served(id, reply, ns) => {
                self.on_served((id.session, id.number), Some(from), reply, ns);
            }
        }
    }

    /// The command of a transaction has found nothing: from now on it waits for its keys that are here.
    fn on_enlist(&mut self, tx: TxId, id: WaitId, now: Millis) {
        if let Some(request) = self.participant.request_of(tx) {
            let mut blocked = Blocked {
                id,
                command: request.command,
                args: request.args.clone(),
                db: request.db.into(),
                proto: request.proto,
                client_id: request.client_id,
                no_touch: request.no_touch,
                keys: request.keys.clone(),
                alone: false,
                claimed: false,
            };
            if moves(blocked.command) {
                blocked.keys.retain(|idx| *idx == SOURCE);
            }
            if !blocked.keys.is_empty() {
                self.core.note_blocked(blocked);
            }
        }
        self.on_release(tx, now);
    }

    /// Another shard, or this one, has something for a client of this shard.
    fn on_claim(&mut self, from: ShardId, seq: u64, id: WaitId) {
        let core = &mut self.core;
        let session = self.sessions.get_mut(id.session).filter(|session| session.client.close.is_none());
        let enlisted = core.blocking.enlisted.get_mut(&id.session);
        let mut granted = false;
        if let (Some(session), Some(enlisted)) = (session, enlisted)
            && enlisted.number == id.number
            && let Some(wait) = session.client.wait.take()
        {
            enlisted.wait = Some(wait);
            session.in_transaction = true;
            granted = true;
        }
        core.send(from, TxMessage::Waiting(Box::new(WaitMessage::Answer(seq, granted))));
    }

    fn on_unclaim(&mut self, id: WaitId) {
        let Some(enlisted) = self.core.blocking.enlisted.get_mut(&id.session) else { return };
        let Some(session) = self.sessions.get_mut(id.session).filter(|_| enlisted.number == id.number) else {
            return;
        };
        session.in_transaction = false;
        session.client.wait = enlisted.wait.take();
        if let Some(until) = session.client.wait.as_ref().and_then(|wait| wait.until) {
            self.core.waits.add(until, id.session);
        }
    }

    /// A command of a client of this shard has been served, by a shard whose note of it is gone.
    fn on_served(&mut self, (id, number): (SessionId, u64), by: Option<ShardId>, mut reply: Reply, ns: u64) {
        if self.core.blocking.enlisted.get(&id).is_none_or(|enlisted| enlisted.number != number) {
            return;
        }
        if let Some(enlisted) = self.core.blocking.enlisted.get_mut(&id) {
            enlisted.shards.retain(|shard| Some(*shard) != by);
        }
        let command = self.core.withdraw(id);
        let answered = Answered::since(&reply, Mark::default(), 0);
        if answered.failed {
            self.core.shard.stats.count_error(&reply.buf);
        }
        if let Some(command) = command {
            self.core.shard.timing.executed(command, ns, answered);
        }
        let Some(session) = self.sessions.get_mut(id) else { return };
        session.client.wait = None;
        session.in_transaction = false;
        self.core.answer(session, |_, _, out| {
            out.append(&mut reply);
            Ok(())
        });
        self.core.after_change(session, id);
    }

    /// Gives clients of this shard what was served on the spot.
    pub(crate) fn deliver_served(&mut self) {
        for (id, number, reply, ns) in std::mem::take(&mut self.core.blocking.served) {
            self.on_served((id, number), None, reply, ns);
        }
    }

    fn on_claim_answer(&mut self, seq: u64, granted: bool, now: Millis) {
        let Some(serving) = self.core.blocking.claims.remove(&seq) else { return };
        let Some(blocked) = self.core.blocking.blocked.get(&seq).filter(|_| granted) else {
            self.core.blocking.remove(seq);
            return self.core.serve_waiters(&mut self.participant, serving, now);
        };
        let destination = blocked.args.args().get(DESTINATION as usize).filter(|_| moves(blocked.command));
        let owner = destination.map(|key| shard_of(&self.core.shard, key));
        match owner.filter(|owner| *owner != self.core.shard.me) {
            None => self.serve_claimed(seq, serving, now),
            Some(owner) => {
                let tx = self.coordinator.next_id(self.core.shard.me);
                let request = LockRequest {
                    tx,
                    // Waiting in ascending order of shards ends, as for every command over several of them.
                    wait: owner > self.core.shard.me,
                    command: blocked.command,
                    db: blocked.db as u16,
                    proto: blocked.proto,
                    client_id: blocked.client_id,
                    no_touch: blocked.no_touch,
                    args: blocked.args.clone(),
                    keys: vec![DESTINATION],
                    wanted: Wanted::Usual,
                };
                self.core.blocking.moves.insert(tx, (seq, serving));
                self.core.send(owner, TxMessage::Lock(Box::new(request)));
            }
        }
    }

    /// Runs a command that has waited on its keys that are here, all of which are held.
    fn serve_claimed(&mut self, seq: u64, serving: Serving, now: Millis) {
        let Some(blocked) = self.core.blocking.remove(seq) else { return };
        let mut reply = Reply::new(blocked.proto);
        let mut keys = blocked.keys.clone();
        if moves(blocked.command) {
            keys.push(DESTINATION);
        }
        self.core.shard.keyspace.no_touch = blocked.no_touch;
        self.core.shard.timing.begin();
        self.core.shard.would_wait = false;
        let (shard, args) = (&mut self.core.shard, blocked.args.args());
        let run = crate::execute::run_some(shard, blocked.command, &keys, blocked.db, now, args, &mut reply);
        if let Err(error) = run {
            reply.clear();
            crate::ctx::write_error(&error, &mut reply);
        }
        if std::mem::take(&mut self.core.shard.would_wait) {
            return self.put_back(blocked, serving);
        }
        self.finish_claim(blocked.id, reply, serving, now);
    }

    fn finish_claim(&mut self, id: WaitId, reply: Reply, serving: Serving, now: Millis) {
        let ns = self.core.shard.timing.lap();
        self.core.send(id.home, TxMessage::Waiting(Box::new(WaitMessage::Served(id, reply, ns))));
        self.core.serve_waiters(&mut self.participant, serving, now);
    }

    /// A command that could not be served after all waits on; what was to be served stands in line again.
    fn put_back(&mut self, blocked: Blocked, serving: Serving) {
        let id = blocked.id;
        let hasher = self.core.shard.keyspace.hasher();
        let hashes: Vec<u64> =
            blocked.keys.iter().map(|idx| hasher.hash(blocked.args.args().at(*idx as usize))).collect();
        self.core.send(id.home, TxMessage::Waiting(Box::new(WaitMessage::Unclaim(id))));
        self.core.blocking.add(Blocked { claimed: false, ..blocked });
        self.core.stand_in_line(&mut self.participant, serving, &hashes);
        self.core.shard.keyspace.tells_of_new = true;
    }

    /// The destination of a move that waited is held, or is not, or its shard has failed. True if that is what it was.
    pub(crate) fn on_destination(&mut self, message: &mut TxMessage, from: ShardId, now: Millis) -> bool {
        let tx = match message {
            TxMessage::Granted(tx, _) | TxMessage::Refused(tx) | TxMessage::Lost(tx) => *tx,
            _ => return false,
        };
        let Some((seq, serving)) = self.core.blocking.moves.remove(&tx) else { return false };
        self.core.shard.timing.begin();
        let Some(mut blocked) = self.core.blocking.remove(seq) else { return true };
        match message {
            TxMessage::Granted(_, result) => {
                let mut reply = Reply::new(blocked.proto);
                if result.elements == 0 {
                    let payload = self.take_for_move(&mut blocked, now);
                    if let Payload::Value(content) = &payload
                        && let crate::keyspace::Value::String(text) = &content.value
                    {
                        reply.bulk(text);
                    } else {
                        reply.null();
                    }
                    let key = Some(DESTINATION);
                    self.core.send(from, TxMessage::Run { tx, stage: 2, key, payload, last: true });
                } else {
                    crate::ctx::write_error(&crate::errors::Error::WrongType, &mut reply);
                    self.core.send(from, TxMessage::Release(tx));
                }
                self.finish_claim(blocked.id, reply, serving, now);
            }
            TxMessage::Refused(_) => self.put_back(blocked, serving),
            _ => {
                let mut reply = Reply::new(blocked.proto);
                crate::ctx::write_error(&SHARD_FAILED, &mut reply);
                self.finish_claim(blocked.id, reply, serving, now);
            }
        }
        true
    }

    /// The element that a move takes from its source, which is here.
    fn take_for_move(&mut self, blocked: &mut Blocked, now: Millis) -> Payload {
        let Plan::Staged { write, .. } = blocked.command.plan else { return Payload::None };
        let keys = [SOURCE];
        self.core.shard.keyspace.no_touch = blocked.no_touch;
        let mut ctx: Ctx<'_> = ctx(&mut self.core.shard, blocked.db, now, KeySelection::List(&keys));
        ctx.stage = 1;
        run_part(ctx, write, None, blocked.args.args(), crate::ctx::PartResult::default()).result.payload
    }
}
