//! The side of a command over several shards that its connection is on: announce, decide, run, answer.
//!
//! docs/transactions.md tells the protocol and why it is strictly serializable, free of deadlock and of starvation.

use crate::args::{Args, OwnedArgs};
use crate::blocking::{WaitId, WaitMessage, moves};
use crate::command::{Command, Plan, Scope};
use crate::ctx::{Decide, Next, On, PartResult, Payload, Shard, write_error};
use crate::dispatch::needs_all_shards;
use crate::exec::Exec;
use crate::execute::{merge_parts, shard_of};
use crate::failover::SHARD_FAILED;
use crate::journal::Ended;
use crate::keyspace::Millis;
use crate::message::{LockRequest, TxId, TxMessage, Wanted};
use crate::modes::Modes;
use crate::node::Node;
use crate::session::{Client, SessionId};
use crate::slot::ShardId;
use crate::timing::Answered;
use corelane_resp::{Mark, Proto, Reply};
use hashbrown::HashMap;

/// How far a transaction is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// All shards were asked at once; each answers at once.
    Announced,
    /// After a conflict: one shard after the other in ascending order, waiting at each; this one was asked last.
    Ordered(usize),
    /// All intents are held; a stage is running.
    Running(u8),
}

/// One shard's part in a transaction.
pub(crate) struct Part {
    pub(crate) shard: ShardId,
    pub(crate) keys: Vec<u32>,
    locked: bool,
    result: PartResult,
}

/// A command over several shards, or a transaction.
pub(crate) struct Tx {
    pub(crate) id: TxId,
    pub(crate) session: SessionId,
    pub(crate) client_id: u64,
    pub(crate) command: &'static Command,
    db: u16,
    pub(crate) proto: Proto,
    no_touch: bool,
    pub(crate) args: OwnedArgs,
    /// As it arrived.
    request_bytes: usize,
    /// In ascending order of shards.
    pub(crate) parts: Vec<Part>,
    phase: Phase,
    /// Answers still to come.
    pub(crate) awaited: usize,
    refused: bool,
    /// What its parts took so far, all shards together, in nanoseconds.
    pub(crate) ns: u64,
    /// The parts that the stage under way runs on.
    active: Vec<usize>,
    /// The commands of a transaction.
    pub(crate) exec: Option<Box<Exec>>,
    /// The transaction that it belongs to, and its place there.
    parent: Option<(TxId, usize)>,
    /// It tries this command again that waits, and has not found anything yet.
    tries: Option<WaitId>,
}

/// The transactions of one shard's clients.
#[derive(Default)]
pub(crate) struct Coordinator {
    txs: HashMap<u64, Tx>,
    next: u64,
}

impl Coordinator {
    /// The transactions in which a shard takes part.
    pub(crate) fn with_part_on(&self, shard: ShardId) -> impl Iterator<Item = TxId> {
        let takes_part = move |tx: &&Tx| tx.parts.iter().any(|part| part.shard == shard);
        self.txs.values().filter(takes_part).map(|tx| tx.id)
    }

    /// The shard that owns all keys of the command; `None` if several do, or it is for all shards.
    pub(crate) fn sole_owner(shard: &Shard, command: &Command, args: Args<'_>) -> Option<ShardId> {
        // A lone shard has what keys lead to, too.
        let alone = shard.slots.shards() == 1 && command.scope == Scope::Keys;
        if command.scope == Scope::Watch || !alone && needs_all_shards(command, args) {
            return None;
        }
        // Without proper keys the command fails the same way wherever it runs.
        let Some(range) = command.key_range(args) else { return Some(shard.me) };
        let mut owners = range.indices().filter_map(|idx| args.get(idx)).map(|key| shard_of(shard, key));
        let first = owners.next().unwrap_or(shard.me);
        owners.all(|owner| owner == first).then_some(first)
    }

    /// Begins a transaction; returns the messages that announce it.
    pub(crate) fn start(
        &mut self,
        shard: &Shard,
        session: SessionId,
        command: &'static Command,
        client: &Client,
        args: OwnedArgs,
        request_bytes: usize,
    ) -> Vec<(ShardId, TxMessage)> {
        let who = (session, client.id);
        let circumstances = (client.db, client.proto, client.modes);
        let parts = Self::divide(shard, command, args.args());
        let tx = self.new_tx(shard, who, (command, args, request_bytes), circumstances, parts);
        self.announce(tx)
    }

    /// The same for a command of a transaction, which holds the intents.
    pub(crate) fn start_within(
        &mut self,
        shard: &Shard,
        parent: &Tx,
        at: usize,
        (command, args, request_bytes): (&'static Command, OwnedArgs, usize),
        circumstances: (usize, Proto, Modes),
    ) -> Vec<(ShardId, TxMessage)> {
        let parts = Self::divide(shard, command, args.args());
        let who = (parent.session, parent.client_id);
        let mut tx = self.new_tx(shard, who, (command, args, request_bytes), circumstances, parts);
        tx.parent = Some((parent.id, at));
        self.announce(tx)
    }

    /// The same for a command that waits: somebody has something for it.
    pub(crate) fn start_again(
        &mut self,
        shard: &Shard,
        id: WaitId,
        client: &Client,
        (command, args): (&'static Command, OwnedArgs),
        parts: Vec<Part>,
    ) -> (TxId, Vec<(ShardId, TxMessage)>) {
        let circumstances = (client.db, client.proto, client.modes);
        let mut tx = self.new_tx(shard, (id.session, client.id), (command, args, 0), circumstances, parts);
        tx.tries = Some(id);
        (tx.id, self.announce(tx))
    }

    /// A transaction; its messages are still to be sent.
    pub(crate) fn begin(
        &mut self,
        shard: &Shard,
        session: SessionId,
        command: &'static Command,
        client: &Client,
        args: OwnedArgs,
        exec: Box<Exec>,
    ) -> Tx {
        let parts = exec.shards().map(|shard| Part::new(shard, Vec::new())).collect();
        let circumstances = (client.db, client.proto, client.modes);
        let mut tx = self.new_tx(shard, (session, client.id), (command, args, 0), circumstances, parts);
        tx.exec = Some(exec);
        tx
    }

    fn new_tx(
        &mut self,
        shard: &Shard,
        (session, client_id): (SessionId, u64),
        (command, args, request_bytes): (&'static Command, OwnedArgs, usize),
        (db, proto, modes): (usize, Proto, Modes),
        parts: Vec<Part>,
    ) -> Tx {
        let id = TxId { coordinator: shard.me, number: self.next };
        self.next += 1;
        Tx {
            id,
            session,
            client_id,
            command,
            db: db as u16,
            proto,
            no_touch: modes.has(Modes::NO_TOUCH),
            args,
            request_bytes,
            awaited: parts.len(),
            parts,
            phase: Phase::Announced,
            refused: false,
            ns: 0,
            active: Vec::new(),
            exec: None,
            parent: None,
            tries: None,
        }
    }

    fn announce(&mut self, tx: Tx) -> Vec<(ShardId, TxMessage)> {
        let messages = tx.parts.iter().map(|part| (part.shard, tx.lock(part, false))).collect();
        self.put(tx);
        messages
    }

    pub(crate) fn put(&mut self, tx: Tx) {
        self.txs.insert(tx.id.number, tx);
    }

    pub(crate) fn take(&mut self, id: TxId) -> Option<Tx> {
        self.txs.remove(&id.number)
    }

    pub(crate) fn get_mut(&mut self, id: TxId) -> Option<&mut Tx> {
        self.txs.get_mut(&id.number)
    }

    /// Which shard owns which keys of a command; all shards, if it is for all.
    pub(crate) fn divide(shard: &Shard, command: &Command, args: Args<'_>) -> Vec<Part> {
        let mut keys_of: Vec<Vec<u32>> = vec![Vec::new(); usize::from(shard.slots.shards())];
        if let Some(range) = command.key_range(args) {
            for idx in range.indices() {
                keys_of[usize::from(shard_of(shard, args.at(idx)).0)].push(idx as u32);
            }
        }
        let all = needs_all_shards(command, args);
        let parts = keys_of.into_iter().enumerate().filter(|(_, keys)| all || !keys.is_empty());
        parts.map(|(idx, keys)| Part::new(ShardId(idx as u16), keys)).collect()
    }
}

/// Whether somebody who has come before waits for the key that a command which is tried again would take from.
fn is_behind(command: &Command, results: &[PartResult]) -> bool {
    let there = results.iter().filter(|result| result.elements != 0);
    // A look for the first key that is there says which it has found.
    let first = there.min_by_key(|result| result.elements);
    if moves(command) {
        results.iter().any(|result| result.failed)
    } else {
        first.is_some_and(|first| first.failed)
    }
}

impl Part {
    fn new(shard: ShardId, keys: Vec<u32>) -> Self {
        Self { shard, keys, locked: false, result: PartResult::default() }
    }
}

impl Tx {
    pub(crate) fn lock(&self, part: &Part, wait: bool) -> TxMessage {
        TxMessage::Lock(Box::new(self.lock_request(part, wait)))
    }

    pub(crate) fn lock_request(&self, part: &Part, wait: bool) -> LockRequest {
        let wanted = match (&self.exec, self.parent) {
            (Some(exec), _) => exec.wanted(part.shard, None),
            (None, Some(_)) => Wanted::Covered,
            (None, None) => self.tries.map_or(Wanted::Usual, Wanted::Try),
        };
        LockRequest {
            tx: self.id,
            wait,
            command: self.command,
            db: self.db,
            proto: self.proto,
            client_id: self.client_id,
            no_touch: self.no_touch,
            args: self.args.clone(),
            keys: part.keys.clone(),
            wanted,
        }
    }

    /// Whether a shard has found that a watched key has changed.
    fn has_seen_change(&self) -> bool {
        self.exec.is_some() && self.parts.iter().any(|part| part.locked && part.result.failed)
    }

    fn part_mut(&mut self, shard: ShardId) -> &mut Part {
        self.parts.iter_mut().find(|part| part.shard == shard).expect("only shards that were asked answer")
    }
}

impl Node {
    pub(crate) fn on_granted(&mut self, from: ShardId, id: TxId, result: PartResult, now: Millis) {
        let Some(tx) = self.coordinator.txs.get_mut(&id.number) else { return };
        let part = tx.part_mut(from);
        part.locked = true;
        let ns = result.ns;
        part.result = result;
        tx.ns += ns;
        tx.awaited -= 1;
        self.after_lock_answer(id, now);
    }

    pub(crate) fn on_refused(&mut self, id: TxId, now: Millis) {
        let Some(tx) = self.coordinator.txs.get_mut(&id.number) else { return };
        tx.refused = true;
        tx.awaited -= 1;
        self.after_lock_answer(id, now);
    }

    fn after_lock_answer(&mut self, id: TxId, now: Millis) {
        let Some(tx) = self.coordinator.txs.get_mut(&id.number) else { return };
        if tx.awaited != 0 {
            return;
        }
        let session = tx.session;
        if tx.tries.is_some() && !self.is_tried_by(session, id) {
            return self.abandon(id);
        }
        let Some(tx) = self.coordinator.txs.get_mut(&id.number) else { return };
        if tx.has_seen_change() {
            return self.refuse_exec(id, now);
        }
        let next = match tx.phase {
            Phase::Announced if tx.refused => {
                self.core.shard.stats.transaction_retries += 1;
                tx.refused = false;
                for part in tx.parts.iter_mut().filter(|part| part.locked) {
                    part.locked = false;
                    self.core.send(part.shard, TxMessage::Release(id));
                }
                Some(0)
            }
            Phase::Ordered(asked) if asked + 1 < tx.parts.len() => Some(asked + 1),
            _ => None,
        };
        let Some(next) = next else { return self.locked(id, now) };
        tx.phase = Phase::Ordered(next);
        tx.awaited = 1;
        let message = tx.lock(&tx.parts[next], true);
        self.core.send(tx.parts[next].shard, message);
    }

    /// All intents are held: from here on nothing can fail.
    fn locked(&mut self, id: TxId, now: Millis) {
        let Some(tx) = self.coordinator.txs.get_mut(&id.number) else { return };
        match tx.command.plan {
            Plan::Exec => self.advance(id, now),
            Plan::EachShard { .. } if tx.command.is_exclusive() => {
                tx.phase = Phase::Running(1);
                tx.awaited = tx.parts.len();
                tx.active = (0..tx.parts.len()).collect();
                for part in &tx.parts {
                    let run =
                        TxMessage::Run { tx: id, stage: 1, key: None, payload: Payload::None, last: true };
                    self.core.send(part.shard, run);
                }
            }
            Plan::EachShard { .. } => self.finish(id, None, now),
            _ => {
                tx.active = (0..tx.parts.len()).collect();
                self.decide(id, 0, now);
            }
        }
    }

    pub(crate) fn on_ran(&mut self, from: ShardId, id: TxId, result: PartResult, now: Millis) {
        let Some(tx) = self.coordinator.txs.get_mut(&id.number) else { return };
        tx.ns += result.ns;
        tx.part_mut(from).result = result;
        tx.awaited -= 1;
        if tx.awaited != 0 {
            return;
        }
        match (tx.command.plan, tx.phase) {
            (Plan::EachShard { .. }, _) => self.finish(id, None, now),
            (_, Phase::Running(stage)) => self.decide(id, stage, now),
            _ => {}
        }
    }

    /// A stage of a staged command has finished everywhere.
    fn decide(&mut self, id: TxId, stage: u8, now: Millis) {
        let Some(tx) = self.coordinator.txs.get_mut(&id.number) else { return };
        let Plan::Staged { decide, .. } = tx.command.plan else { return };
        let active = std::mem::take(&mut tx.active);
        let mut results: Vec<PartResult> =
            active.iter().map(|idx| std::mem::take(&mut tx.parts[*idx].result)).collect();
        let mut reply = Reply::new(tx.proto);
        if tx.tries.is_some() && is_behind(tx.command, &results) {
            return self.fail_try(id);
        }
        let (args, sizes) = (tx.args.args(), self.core.shard.settings.pieces);
        let next = decide(&mut Decide { stage, args, sizes, results: &mut results, reply: &mut reply });
        // What nobody has taken, as where another shard has failed, may be large.
        results.into_iter().for_each(|result| result.payload.discard(&mut self.core.shard.keyspace));
        if !matches!(next, Next::Wait) && tx.tries.take().is_some() {
            let session = tx.session;
            self.end_wait_by_try(session);
        }
        let Some(tx) = self.coordinator.txs.get_mut(&id.number) else { return };
        let (stage, on, payload) = match next {
            Next::Run { stage, on, payload } => (stage, on, payload),
            Next::Reply => return self.finish(id, Some(reply), now),
            Next::Wait if tx.parent.is_some() => return self.finish(id, Some(reply), now),
            Next::Wait if tx.tries.is_some() => return self.fail_try(id),
            Next::Wait => return self.enlist(id, now),
        };
        let key = match on {
            On::All => None,
            On::Key(key) => Some(key as u32),
        };
        tx.active = (0..tx.parts.len())
            .filter(|idx| key.is_none_or(|key| tx.parts[*idx].keys.contains(&key)))
            .collect();
        tx.phase = Phase::Running(stage);
        tx.awaited = tx.active.len();
        // Mostly there is one, and what it is sent may be large.
        let copies: Vec<Payload> = tx.active.iter().skip(1).map(|_| payload.clone()).collect();
        let payloads = copies.into_iter().chain([payload]);
        for (idx, payload) in tx.active.iter().zip(payloads) {
            self.core.send(tx.parts[*idx].shard, TxMessage::Run { tx: id, stage, key, payload, last: false });
        }
    }

    /// The client of a command that is tried again waits no more.
    fn abandon(&mut self, id: TxId) {
        let Some(tx) = self.coordinator.txs.remove(&id.number) else { return };
        for part in &tx.parts {
            self.core.send(part.shard, TxMessage::Release(id));
        }
    }

    /// A command that was tried again has found nothing, and waits on. Its intents are let go before anybody hears of that: a shard
    /// that still held them would claim it at once, again and again, and who stands in line for the keys would stay there.
    fn fail_try(&mut self, id: TxId) {
        let session = self.coordinator.txs.get(&id.number).map(|tx| tx.session);
        self.abandon(id);
        if let Some(session) = session {
            self.core.stay_enlisted(session, None);
        }
    }

    /// The command has found nothing and waits, on all its shards, from before they let go of its keys.
    fn enlist(&mut self, id: TxId, now: Millis) {
        let has_failed = |part: &Part| self.core.has_failed(part.shard);
        if self.coordinator.txs.get(&id.number).is_some_and(|tx| tx.parts.iter().any(has_failed)) {
            return self.on_lost(id, now);
        }
        let Some(tx) = self.coordinator.txs.remove(&id.number) else { return };
        let shards: Vec<ShardId> = tx.parts.iter().map(|part| part.shard).collect();
        let Some(session) = self.sessions.get_mut(tx.session) else {
            shards.into_iter().for_each(|shard| self.core.send(shard, TxMessage::Release(id)));
            return;
        };
        session.in_transaction = false;
        let core = &mut self.core;
        let args = tx.args.clone();
        if tx.request_bytes >= core.shard.timing.request_bytes_min {
            let (args, bytes) = (tx.args.args(), tx.request_bytes);
            core.note_large_request(Some(&session.client), tx.command, args, bytes, now);
        }
        let wait = core.begin_wait(&mut session.client, tx.session, tx.command, args, shards.clone(), now);
        for shard in shards {
            core.send(shard, TxMessage::Waiting(Box::new(WaitMessage::Enlist(id, wait))));
        }
        core.after_change(session, tx.session);
    }

    /// A shard that takes part has failed: no further answer counts.
    pub(crate) fn on_lost(&mut self, id: TxId, now: Millis) {
        let Some(tx) = self.coordinator.txs.remove(&id.number) else { return };
        for part in &tx.parts {
            self.core.send(part.shard, TxMessage::Release(id));
        }
        if tx.tries.is_some() {
            if self.is_tried_by(tx.session, id) {
                self.fail_wait(tx.session);
            }
            return;
        }
        let mut reply = Reply::new(tx.proto);
        write_error(&SHARD_FAILED, &mut reply);
        self.core.shard.stats.count_error(&reply.buf);
        self.answer_tx(&tx, reply, now);
    }

    /// Answers the client, and lets go of what is still held.
    fn finish(&mut self, id: TxId, reply: Option<Reply>, now: Millis) {
        let Some(mut tx) = self.coordinator.txs.remove(&id.number) else { return };
        let released_by_run = matches!(tx.command.plan, Plan::EachShard { .. }) && tx.command.is_exclusive();
        if !released_by_run {
            for part in &tx.parts {
                self.core.send(part.shard, TxMessage::Release(id));
            }
        }
        let reply = reply.unwrap_or_else(|| {
            let results: Vec<PartResult> =
                tx.parts.iter_mut().map(|part| std::mem::take(&mut part.result)).collect();
            let mut reply = Reply::new(tx.proto);
            if let Plan::EachShard { merge, .. } = tx.command.plan {
                merge_parts(merge, &results, tx.args.args(), &mut reply);
            }
            reply
        });
        self.account(&tx, &reply, now);
        self.answer_tx(&tx, reply, now);
    }

    /// Gives a reply to whom it is for.
    pub(crate) fn answer_tx(&mut self, tx: &Tx, mut reply: Reply, now: Millis) {
        if let Some((parent, at)) = tx.parent {
            return self.on_child_finished(parent, at, reply, now);
        }
        let mut held = Reply::default();
        if let Some(session) = self.sessions.get_mut(tx.session) {
            if tx.exec.is_some() {
                let transaction = session.client.transaction.as_mut();
                held =
                    transaction.map(|transaction| std::mem::take(&mut transaction.held)).unwrap_or_default();
                session.client.discard_transaction(&mut self.core.shard);
            }
        } else if tx.command.scope == Scope::Watch {
            // It has ended before its watches came to be.
            for part in &tx.parts {
                self.core.send(part.shard, TxMessage::Unwatch(tx.client_id));
            }
        }
        self.answer_transaction(tx.session, &mut reply, &mut held);
    }

    /// `held` are messages that come behind the reply.
    fn answer_transaction(&mut self, id: SessionId, reply: &mut Reply, held: &mut Reply) {
        let Some(session) = self.sessions.get_mut(id) else { return };
        session.in_transaction = false;
        session.client.transaction_ended();
        if !session.client.modes.mutes() {
            session.out.append(reply);
        }
        session.out.append(held);
        self.core.after_change(session, id);
    }

    /// Counts a command over several shards, once: its time is that of all its parts, and of making one reply of theirs.
    pub(crate) fn account(&mut self, tx: &Tx, reply: &Reply, now: Millis) {
        let answered = Answered::since(reply, Mark::default(), 0);
        let core = &mut self.core;
        if answered.failed {
            core.shard.stats.count_error(&reply.buf);
        }
        let ns = tx.ns + core.shard.timing.lap();
        let args = tx.args.args();
        let remarkable = core.shard.timing.executed(core.table.id_of(args).number, ns, answered);
        // Of one that has waited, and is tried again, this was told when that began.
        let large = tx.request_bytes > 0 && tx.request_bytes >= core.shard.timing.request_bytes_min;
        if !remarkable && !large {
            return;
        }
        let client = self.sessions.get_mut(tx.session).map(|session| &session.client);
        if large {
            core.note_large_request(client, tx.command, args, tx.request_bytes, now);
        }
        core.note_here(client, Ended { command: tx.command, args, ns, answered, now });
    }
}
