//! The side of a command over several shards that owns keys: intents, parts and stages; and commands that wait.
//!
//! The protocol is told in docs/transactions.md. A single-shard command that meets a foreign intent on its key is
//! parked here under a ticket of its own and runs when the ticket is granted.

use crate::args::{Args, OwnedArgs};
use crate::bundle::BundleRun;
use crate::command::{Command, Flow, Merge, Pace, Plan, Scope};
use crate::ctx::{Ctx, KeySelection, PartResult};
use crate::errors::Error;
use crate::execute::{PartRun, run_at_pace, run_part};
use crate::faults::Faults;
use crate::intents::{Intents, Mode, Scope as IntentScope, Ticket};
use crate::journal::Ended;
use crate::keyspace::Millis;
use crate::local::Task;
use crate::message::{LockRequest, RequestHead, TxId, TxMessage, Wanted};
use crate::node::Node;
use crate::serving::Serving;
use crate::slot::ShardId;
use crate::timing::Answered;
use crate::walk::Walk;
use corelane_resp::{Mark, Reply};
use hashbrown::HashMap;
use std::collections::VecDeque;

/// Where a parked command came from.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Origin {
    pub(crate) from: ShardId,
    pub(crate) head: RequestHead,
}

/// What a ticket is for.
pub(crate) enum Waiter {
    Tx(TxId),
    Single {
        origin: Origin,
        command: &'static Command,
        args: OwnedArgs,
    },
    /// A command that waits, and needs further keys to be served.
    Serve(u64),
    /// Runs under its ticket for the whole shard.
    Task {
        db: usize,
        task: Task,
    },
}

/// A transaction that holds intents here, or waits for them.
struct Held {
    request: Box<LockRequest>,
    ticket: Option<Ticket>,
    /// What goes on when it lets go: it tries a command again that has waited, under these intents.
    serving: Option<Serving>,
}

/// A part that is run in steps.
struct Job {
    tx: TxId,
    /// Of a part that writes.
    stage: Option<Stage>,
    result: PartResult,
    resume: u64,
}

/// What a coordinator asks to be run.
#[derive(Clone, Copy)]
struct Stage {
    number: u8,
    key: Option<u32>,
    last: bool,
}

/// The participant's state of one shard.
#[derive(Default)]
pub(crate) struct Participant {
    pub(crate) intents: Intents,
    pub(crate) waiters: HashMap<Ticket, Waiter>,
    held: HashMap<TxId, Held>,
    jobs: VecDeque<Job>,
    /// Single-shard commands that are run in pieces.
    pub(crate) walks: VecDeque<Walk>,
    /// Bundles that are run in steps.
    pub(crate) bundles: VecDeque<BundleRun>,
    /// Tickets granted whose commands are still to be run; they hold their intents.
    pub(crate) granted: VecDeque<Ticket>,
    pub(crate) faults: Faults,
}

fn mode_of(command: &Command, args: Args<'_>) -> Mode {
    if command.is_exclusive_for(args) { Mode::Exclusive } else { Mode::Shared }
}

/// The intents that a single-shard command would need.
fn single_scope<'a>(command: &Command, args: Args<'_>, hashes: &'a [u64]) -> IntentScope<'a> {
    if matches!(command.plan, Plan::Routed { .. }) || command.scope_for(args) == Scope::Whole {
        IntentScope::Whole
    } else {
        IntentScope::Keys(hashes)
    }
}

fn hash_keys(shard: &crate::ctx::Shard, hashes: &mut Vec<u64>, command: &Command, args: Args<'_>) {
    hashes.clear();
    let hasher = shard.keyspace.hasher();
    if let Some(range) = command.key_range(args) {
        hashes.extend(range.indices().filter_map(|idx| args.get(idx)).map(|key| hasher.hash(key)));
    }
}

impl Participant {
    /// Of a shard without keys.
    pub(crate) fn new(faults: Faults) -> Self {
        Self { faults, ..Self::default() }
    }

    /// Whether a single-shard command has to wait behind an intent. If so, `hashes` holds its keys'.
    #[inline]
    pub(crate) fn must_wait(
        &self,
        shard: &crate::ctx::Shard,
        hashes: &mut Vec<u64>,
        command: &Command,
        args: Args<'_>,
    ) -> bool {
        if self.intents.is_idle() {
            return false;
        }
        hash_keys(shard, hashes, command, args);
        if hashes.is_empty() && !matches!(command.plan, Plan::Routed { .. }) {
            return false;
        }
        self.intents.conflicts(single_scope(command, args, hashes), mode_of(command, args))
    }

    /// Takes the intents of a command that need not wait.
    pub(crate) fn hold(
        &mut self,
        shard: &crate::ctx::Shard,
        command: &'static Command,
        args: Args<'_>,
    ) -> Ticket {
        let mut hashes = Vec::new();
        hash_keys(shard, &mut hashes, command, args);
        let (ticket, granted) =
            self.intents.enqueue(single_scope(command, args, &hashes), mode_of(command, args));
        assert!(granted, "a command is run only when nothing conflicts");
        ticket
    }

    /// Lets a command wait for its turn.
    pub(crate) fn park(&mut self, origin: Origin, command: &'static Command, args: Args<'_>, hashes: &[u64]) {
        let (ticket, granted) =
            self.intents.enqueue(single_scope(command, args, hashes), mode_of(command, args));
        assert!(!granted, "a command is parked only when it conflicts");
        self.waiters.insert(ticket, Waiter::Single { origin, command, args: args.to_owned() });
    }

    /// The transactions of another shard that hold intents here, or wait for them.
    pub(crate) fn held_for(&self, coordinator: ShardId) -> Vec<TxId> {
        self.held.keys().filter(|tx| tx.coordinator == coordinator).copied().collect()
    }

    /// Has a transaction take part under intents that are held for it.
    pub(crate) fn hold_for(&mut self, request: Box<LockRequest>, serving: Serving) {
        self.held.insert(request.tx, Held { request, ticket: None, serving: Some(serving) });
    }

    /// The number of the client whose transaction holds intents here.
    pub(crate) fn client_of(&self, tx: TxId) -> Option<u64> {
        self.held.get(&tx).map(|held| held.request.client_id)
    }

    /// What a transaction that holds intents here has asked for.
    pub(crate) fn request_of(&self, tx: TxId) -> Option<&LockRequest> {
        self.held.get(&tx).map(|held| &*held.request)
    }

    /// Whether something is being run in steps.
    pub(crate) fn has_jobs(&self) -> bool {
        !self.jobs.is_empty() || !self.bundles.is_empty() || !self.walks.is_empty()
    }

    /// Whether there is something to be done that waits for nothing.
    pub(crate) fn has_work(&self) -> bool {
        self.has_jobs() || self.has_granted()
    }

    /// Whether commands have been granted what they waited for and have not been run.
    pub(crate) fn has_granted(&self) -> bool {
        !self.granted.is_empty()
    }
}

impl Node {
    /// Handles a message of a transaction, whichever side it is for.
    pub(crate) fn handle(&mut self, from: ShardId, message: TxMessage, now: Millis) {
        if self.core.blocking.has_served() {
            self.deliver_served(now);
        }
        match message {
            TxMessage::Waiting(message) => self.on_wait_message(from, *message, now),
            TxMessage::Lock(request) => self.on_lock(request, now),
            TxMessage::Run { tx, stage, key, payload, last } => {
                let stage = Stage { number: stage, key, last };
                self.run_stage(tx, stage, PartResult { payload, ..PartResult::default() }, 0, now);
            }
            TxMessage::Release(tx) => self.on_release(tx, now),
            TxMessage::Granted(tx, result) => self.on_granted(from, tx, result, now),
            TxMessage::Refused(tx) => self.on_refused(tx, now),
            TxMessage::Ran(tx, result) => self.on_ran(from, tx, result, now),
            TxMessage::Lost(tx) => self.on_lost(tx, now),
            TxMessage::Bundle(tx, bundle) => {
                if self.participant.held.contains_key(&tx) {
                    self.run_bundle(BundleRun::new(tx, bundle, now), now);
                }
            }
            TxMessage::BundleRan(tx, result) => self.on_bundle_ran(from, tx, *result, now),
            TxMessage::Confirmed(tx, at) => self.on_confirmed(tx, at, now),
            TxMessage::Unwatch(client) => self.core.shard.keyspace.unwatch(client),
        }
    }

    fn on_lock(&mut self, request: Box<LockRequest>, now: Millis) {
        let request = match self.run_at_once(request, now) {
            Ok(()) => return,
            Err(request) => request,
        };
        let (tx, command) = (request.tx, request.command);
        let mut mode = mode_of(command, request.args.args());
        let hashes: Vec<u64> = {
            let hasher = self.core.shard.keyspace.hasher();
            request.keys.iter().map(|idx| hasher.hash(request.args.args().at(*idx as usize))).collect()
        };
        let scope = match (&request.wanted, command.scope_for(request.args.args())) {
            (Wanted::Covered, _) | (_, Scope::Nothing) => None,
            (Wanted::Bundle(lock, _), _) => {
                mode = lock.mode();
                lock.scope()
            }
            (Wanted::Usual | Wanted::Try(_), Scope::Whole | Scope::Alone) => Some(IntentScope::Whole),
            (Wanted::Usual | Wanted::Try(_), Scope::Keys | Scope::Watch) => Some(IntentScope::Keys(&hashes)),
        };
        let Some(scope) = scope else {
            self.participant.held.insert(tx, Held { request, ticket: None, serving: None });
            return self.grant(tx, now);
        };
        let intents = &mut self.participant.intents;
        let (ticket, granted) = if request.wait {
            intents.enqueue(scope, mode)
        } else {
            match intents.try_acquire(scope, mode) {
                Some(ticket) => (ticket, true),
                None => return self.core.send(tx.coordinator, TxMessage::Refused(tx)),
            }
        };
        self.participant.held.insert(tx, Held { request, ticket: Some(ticket), serving: None });
        if granted {
            self.grant(tx, now);
        } else {
            self.participant.waiters.insert(ticket, Waiter::Tx(tx));
        }
    }

    /// The intents are held: run the reading part, if there is one, and tell the coordinator.
    pub(crate) fn grant(&mut self, tx: TxId, now: Millis) {
        let Some(held) = self.participant.held.get(&tx) else { return };
        let command = held.request.command;
        let reads = match command.plan {
            Plan::EachShard { .. } => !command.is_exclusive(),
            _ => true,
        };
        if self.faults.release_early
            && let Some(ticket) = self.participant.held.get_mut(&tx).and_then(|held| held.ticket.take())
        {
            self.release(ticket);
        }
        if let Some(held) = self.participant.held.get_mut(&tx)
            && let Some((lock, bundle)) = held.request.bundle_lock_mut()
        {
            let (watches, bundle) = (lock.watches, bundle.take());
            return self.grant_bundle(tx, watches, bundle, now);
        }
        if !reads {
            return self.core.send(tx.coordinator, TxMessage::Granted(tx, PartResult::default()));
        }
        self.run_reading_part(tx, PartResult::default(), 0, now);
    }

    fn run_reading_part(&mut self, tx: TxId, mut result: PartResult, resume: u64, now: Millis) {
        let Some(held) = self.participant.held.get(&tx) else { return };
        let request = &held.request;
        result.reply.set_proto(request.proto);
        let (run, merge) = match request.command.plan {
            Plan::EachShard { part, merge } => (part, Some(merge)),
            Plan::Staged { read, .. } => (read, None),
            _ => unreachable!("only these plans are locked"),
        };
        let sees_sessions = request.command.scope == Scope::Nothing;
        if sees_sessions {
            self.core.shard.waited_keys = self.core.blocking.waited_keys();
        }
        let ctx = Ctx {
            shard: &mut self.core.shard,
            sessions: sees_sessions.then_some(&self.sessions),
            client_id: request.client_id,
            db: request.db.into(),
            now,
            keys: KeySelection::List(&request.keys),
            stage: 0,
            payload: std::mem::take(&mut result.payload),
            pace: Pace::Pieces,
            resume,
            looked_up: false,
            elements: 0,
        };
        self.core.current = Some(request.command.name);
        ctx.shard.keyspace.no_touch = request.no_touch;
        ctx.shard.timing.begin();
        let PartRun { mut result, again } = run_part(ctx, run, merge, request.args.args(), result);
        result.ns += self.core.shard.timing.lap();
        if let Some(resume) = again {
            self.participant.jobs.push_back(Job { tx, stage: None, result, resume });
            return;
        }
        result.keys.clone_from(&request.keys);
        if let Wanted::Try(id) = request.wanted {
            // Whoever has come first is to be served first.
            result.failed |= self.core.is_behind(id, &request.keys, now);
        }
        if sees_sessions {
            self.obey(now);
        }
        self.core.send(tx.coordinator, TxMessage::Granted(tx, result));
    }

    /// Goes on with one of each sort of what is run in steps: whichever there are more of, the others get on.
    pub(crate) fn step_job(&mut self, now: Millis) {
        self.step_walk(now);
        if let Some(run) = self.participant.bundles.pop_front() {
            self.run_bundle(run, now);
        }
        if let Some(job) = self.participant.jobs.pop_front() {
            match job.stage {
                None => self.run_reading_part(job.tx, job.result, job.resume, now),
                Some(stage) => self.run_stage(job.tx, stage, job.result, job.resume, now),
            }
        }
    }

    fn run_stage(&mut self, tx: TxId, stage: Stage, mut result: PartResult, resume: u64, now: Millis) {
        let Some(held) = self.participant.held.get(&tx) else { return };
        let request = &held.request;
        let (run, merge): (_, Option<Merge>) = match request.command.plan {
            Plan::EachShard { part, merge } => (part, Some(merge)),
            Plan::Staged { write, .. } => (write, None),
            _ => unreachable!("only these plans are run in stages"),
        };
        let sees_sessions = request.command.scope == Scope::Nothing;
        let one = stage.key.map(|key| [key]);
        let keys = one.as_ref().map_or(&request.keys[..], |one| &one[..]);
        let ctx = Ctx {
            shard: &mut self.core.shard,
            sessions: sees_sessions.then_some(&self.sessions),
            client_id: request.client_id,
            db: request.db.into(),
            now,
            keys: KeySelection::List(keys),
            stage: stage.number,
            payload: std::mem::take(&mut result.payload),
            pace: Pace::Pieces,
            resume,
            looked_up: false,
            elements: 0,
        };
        self.core.current = Some(request.command.name);
        result.reply.set_proto(request.proto);
        ctx.shard.keyspace.no_touch = request.no_touch;
        ctx.shard.timing.begin();
        let PartRun { mut result, again } = run_part(ctx, run, merge, request.args.args(), result);
        result.ns += self.core.shard.timing.lap();
        if let Some(resume) = again {
            self.participant.jobs.push_back(Job { tx, stage: Some(stage), result, resume });
            return;
        }
        result.keys = keys.to_vec();
        if sees_sessions {
            self.obey(now);
        }
        self.core.send(tx.coordinator, TxMessage::Ran(tx, result));
        if stage.last {
            self.on_release(tx, now);
        }
    }

    pub(crate) fn on_release(&mut self, tx: TxId, now: Millis) {
        let Some(held) = self.participant.held.remove(&tx) else {
            return self.core.serve_new(&mut self.participant, None, now);
        };
        if let Some(serving) = held.serving {
            self.core.serve_waiters(&mut self.participant, serving, now);
        } else if let Some(ticket) = held.ticket {
            // One that was never granted need not be: its coordinator has given up.
            self.participant.waiters.remove(&ticket);
            self.core.serve_new(&mut self.participant, Some(ticket), now);
        }
    }

    /// Lets intents go. What waited for them is run by [`Self::run_granted`]: it may be thousands of commands.
    fn release(&mut self, ticket: Ticket) {
        let mut granted = Vec::new();
        self.participant.intents.release(ticket, &mut granted);
        self.participant.granted.extend(granted);
    }

    /// Runs one command that has been granted what it waited for; false if there is none.
    pub(crate) fn run_granted(&mut self, now: Millis) -> bool {
        let Some(ticket) = self.participant.granted.pop_front() else { return false };
        match self.participant.waiters.remove(&ticket) {
            Some(Waiter::Tx(tx)) => self.grant(tx, now),
            Some(Waiter::Single { origin, command, args }) => {
                self.run_parked((origin, ticket), command, args.args(), now);
            }
            Some(Waiter::Task { db, task }) => {
                self.run_task(db, task, now);
                self.core.serve_new(&mut self.participant, Some(ticket), now);
            }
            Some(Waiter::Serve(seq)) => self.serve_in_line(ticket, seq, now),
            None => {}
        }
        true
    }

    fn run_parked(
        &mut self,
        (origin, ticket): (Origin, Ticket),
        command: &'static Command,
        args: Args<'_>,
        now: Millis,
    ) {
        let (head, core) = (origin.head, &mut self.core);
        core.current = Some(command.name);
        core.running = head.command;
        core.shard.keyspace.no_touch = head.no_touch;
        core.shard.timing.begin();
        let done = self.conclude(origin, command, args, now, |shard, reply| {
            run_at_pace(shard, command, Pace::Brief, (head.db.into(), now), args, reply)
        });
        if done {
            self.core.serve_new(&mut self.participant, Some(ticket), now);
        } else {
            self.participant.walk(&mut self.core.shard, (origin, Some(ticket)), command, args, now);
        }
    }

    /// Lets `run` write the reply of a single-shard command that did not run when it came; false if it is put off again.
    pub(crate) fn conclude(
        &mut self,
        origin: Origin,
        command: &'static Command,
        args: Args<'_>,
        now: Millis,
        run: impl FnOnce(&mut crate::ctx::Shard, &mut Reply) -> Result<Flow, Error>,
    ) -> bool {
        let (head, core) = (origin.head, &mut self.core);
        if origin.from != core.shard.me {
            let Some(answered) = core.reply_to(origin.from, head, run) else { return false };
            core.ended_for((origin.from, head.session), command, args, answered, now);
            return true;
        }
        let mut reply = Reply::new(head.proto);
        match run(&mut core.shard, &mut reply) {
            Ok(Flow::Later) => return false,
            Ok(_) => {}
            Err(error) => {
                reply.clear();
                crate::ctx::write_error(&error, &mut reply);
            }
        }
        let answered = Answered::since(&reply, Mark::default(), 0);
        if answered.failed {
            core.shard.stats.count_error(&reply.buf);
        }
        let ns = core.shard.timing.lap();
        let remarkable = core.shard.timing.executed(head.command.number, ns, answered);
        let session = self.sessions.get_mut(head.session);
        if remarkable {
            let client = session.as_ref().map(|session| &session.client);
            core.note_here(client, Ended { command, args, ns, answered, now });
        }
        if let Some(session) = session {
            session.order.deliver_large(head.seq, reply, &mut session.out);
            self.core.after_change(session, head.session);
        }
        true
    }
}
