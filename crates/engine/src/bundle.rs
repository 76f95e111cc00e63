//! A bundle: commands of one transaction that one shard runs in a row, with nothing between them.
//!
//! The shard that holds the transaction's intents gets what it has to do in one message and answers with one. Where all of a
//! transaction is on one shard, the bundle travels with the request for its intents: one hop.

use crate::args::OwnedArgs;
use crate::command::{Command, Pace, Plan};
use crate::commands::CommandId;
use crate::ctx::{Ctx, KeySelection, PartResult, Payload, write_error};
use crate::execute::{PartRun, run_part, run_whole};
use crate::intents::{Mode, Scope};
use crate::journal::Ended;
use crate::keyspace::Millis;
use crate::message::{LockRequest, TxId, TxMessage};
use crate::node::Node;
use crate::session::SessionId;
use crate::timing::Answered;
use corelane_resp::{Mark, Proto, Reply};

/// What a transaction wants to hold on one shard.
#[derive(Clone, Debug, Default)]
pub struct BundleLock {
    /// Hashes of its keys, and of those that its client watches.
    pub(crate) hashes: Vec<u64>,
    /// The shard as a whole.
    pub(crate) whole: bool,
    /// For writing.
    pub(crate) exclusive: bool,
    /// Its client watches keys here.
    pub(crate) watches: bool,
}

impl BundleLock {
    pub(crate) fn mode(&self) -> Mode {
        if self.exclusive { Mode::Exclusive } else { Mode::Shared }
    }

    /// The intents; `None` if it needs none.
    pub(crate) fn scope(&self) -> Option<Scope<'_>> {
        match (self.whole, &*self.hashes) {
            (true, _) => Some(Scope::Whole),
            (false, []) => None,
            (false, hashes) => Some(Scope::Keys(hashes)),
        }
    }
}

/// One command of a bundle.
#[derive(Debug)]
pub struct BundleItem {
    pub(crate) command: &'static Command,
    pub(crate) id: CommandId,
    pub(crate) db: u16,
    pub(crate) proto: Proto,
    pub(crate) no_touch: bool,
    pub(crate) args: OwnedArgs,
    /// The indices of the keys of a part; `None` if the shard runs the whole command.
    pub(crate) part: Option<Vec<u32>>,
}

/// Commands for one shard.
#[derive(Debug)]
pub struct Bundle {
    /// Of the coordinating shard.
    pub(crate) session: SessionId,
    pub(crate) client_id: u64,
    pub(crate) items: Vec<BundleItem>,
    /// Let the intents go afterwards.
    pub(crate) last: bool,
}

/// What they answered.
#[derive(Debug, Default)]
pub struct BundleResult {
    /// A watched key has changed: nothing was run.
    pub(crate) refused: bool,
    /// The replies of whole commands, one after the other, and where each ends.
    pub(crate) reply: Reply,
    pub(crate) ends: Vec<Mark>,
    /// The results of parts.
    pub(crate) parts: Vec<PartResult>,
    /// Nanoseconds for all of them.
    pub(crate) ns: u64,
}

/// A bundle that is being run; one that takes long runs in steps.
pub(crate) struct BundleRun {
    tx: TxId,
    bundle: Box<Bundle>,
    result: Box<BundleResult>,
    /// When it began: that is the time for all of it.
    began: Millis,
    /// The item to run next, and where to go on in it.
    at: usize,
    resume: u64,
    /// What a part has answered so far that goes on.
    unfinished: PartResult,
}

impl BundleRun {
    pub(crate) fn new(tx: TxId, bundle: Box<Bundle>, began: Millis) -> Self {
        Self {
            tx,
            bundle,
            result: Box::default(),
            began,
            at: 0,
            resume: 0,
            unfinished: PartResult::default(),
        }
    }
}

impl Node {
    /// A transaction all of which is here: if nobody is in its way, it runs now and holds nothing. Otherwise, or if it is too long
    /// for one turn, the request is given back.
    pub(crate) fn run_at_once(
        &mut self,
        mut request: Box<LockRequest>,
        now: Millis,
    ) -> Result<(), Box<LockRequest>> {
        let Some((lock, bundle @ Some(_))) = request.bundle_lock_mut() else { return Err(request) };
        if bundle.as_ref().is_some_and(|bundle| bundle.items.len() > self.items_at_once()) {
            return Err(request);
        }
        let intents = &self.participant.intents;
        if lock.scope().is_some_and(|scope| intents.conflicts(scope, lock.mode())) {
            return Err(request);
        }
        let (watches, bundle) = (lock.watches, bundle.take());
        self.run_unless_changed(request.tx, watches, bundle, now);
        Ok(())
    }

    /// So many commands of a bundle are run in a turn.
    const fn items_at_once(&self) -> usize {
        self.core.shard.settings.pieces.piece_len
    }

    /// Runs a bundle, or refuses to because a watched key has changed. In both cases nothing is watched any more.
    pub(crate) fn run_unless_changed(
        &mut self,
        tx: TxId,
        watches: bool,
        bundle: Option<Box<Bundle>>,
        now: Millis,
    ) {
        let Some(bundle) = bundle else { return };
        if watches {
            let changed = self.has_seen_change(bundle.client_id, now);
            self.core.shard.keyspace.unwatch(bundle.client_id);
            if changed {
                let result = BundleResult { refused: true, ..BundleResult::default() };
                self.core.send(tx.coordinator, TxMessage::BundleRan(tx, Box::new(result)));
                return self.on_release(tx, now);
            }
        }
        self.run_bundle(BundleRun::new(tx, bundle, now), now);
    }

    /// The intents of a transaction are held: runs it if all of it is here, otherwise says whether it may go on.
    pub(crate) fn grant_bundle(&mut self, tx: TxId, watches: bool, bundle: Option<Box<Bundle>>, now: Millis) {
        if bundle.is_some() {
            return self.run_unless_changed(tx, watches, bundle, now);
        }
        let Some(client_id) = self.participant.client_of(tx) else { return };
        let failed = watches && self.has_seen_change(client_id, now);
        self.core
            .send(tx.coordinator, TxMessage::Granted(tx, PartResult { failed, ..PartResult::default() }));
    }

    /// Whether a key that a client watches here has changed.
    pub(crate) fn has_seen_change(&mut self, client_id: u64, now: Millis) -> bool {
        self.core.shard.keyspace.has_seen_change(client_id, now) && !self.faults.ignore_watches
    }

    /// Runs the commands that are left of a bundle, as many of them as a turn has time for, or the first step of one that takes long.
    pub(crate) fn run_bundle(&mut self, mut run: BundleRun, now: Millis) {
        let end = run.at + self.items_at_once();
        while run.at < run.bundle.items.len() {
            if run.at == end {
                return self.participant.bundles.push_back(run);
            }
            let item = &run.bundle.items[run.at];
            let core = &mut self.core;
            core.current = Some(item.command.name);
            core.running = item.id;
            core.shard.keyspace.no_touch = item.no_touch;
            core.shard.timing.begin();
            if item.part.is_some() {
                if self.run_item_part(&mut run) {
                    return self.participant.bundles.push_back(run);
                }
            } else {
                self.run_item(&mut run);
            }
            run.at += 1;
        }
        let BundleRun { tx, bundle, result, .. } = run;
        self.core.send(tx.coordinator, TxMessage::BundleRan(tx, result));
        if bundle.last {
            self.on_release(tx, now);
        }
    }

    /// A command all of whose keys are here.
    fn run_item(&mut self, run: &mut BundleRun) {
        let (item, now) = (&run.bundle.items[run.at], run.began);
        let (command, args) = (item.command, item.args.args());
        let core = &mut self.core;
        let reply = &mut run.result.reply;
        reply.set_proto(item.proto);
        let (mark, bytes_before) = (reply.mark(), reply.len());
        if let Err(error) = run_whole(&mut core.shard, command, item.db.into(), now, args, reply) {
            drop(reply.split_off(mark));
            write_error(&error, reply);
        }
        let answered = Answered::since(reply, mark, bytes_before);
        if answered.failed {
            core.shard.stats.count_error(&reply.buf[mark.offset()..]);
        }
        // Not what was written before: the ends of those replies are known already.
        reply.seal_since(mark);
        run.result.ends.push(reply.mark());
        let ns = core.shard.timing.lap();
        run.result.ns += ns;
        if !core.shard.timing.executed(item.id.number, ns, answered) {
            return;
        }
        let ended = Ended { command, args, ns, answered, now };
        if run.tx.coordinator == core.shard.me {
            let session = self.sessions.get_mut(run.bundle.session);
            core.note_here(session.map(|session| &session.client), ended);
        } else {
            core.note_for(run.tx.coordinator, run.bundle.session, ended);
        }
    }

    /// The part of a command that is here; true if it is not finished.
    fn run_item_part(&mut self, run: &mut BundleRun) -> bool {
        let (item, now) = (&run.bundle.items[run.at], run.began);
        let keys = item.part.as_deref().unwrap_or_default();
        let Plan::EachShard { part, merge } = item.command.plan else {
            unreachable!("only such commands have parts in a bundle")
        };
        let mut result = std::mem::take(&mut run.unfinished);
        result.reply.set_proto(item.proto);
        let ctx = Ctx {
            shard: &mut self.core.shard,
            sessions: None,
            client_id: run.bundle.client_id,
            db: item.db.into(),
            now,
            keys: KeySelection::List(keys),
            stage: item.command.is_exclusive().into(),
            payload: std::mem::replace(&mut result.payload, Payload::None),
            pace: Pace::Pieces,
            resume: run.resume,
            looked_up: false,
            elements: 0,
        };
        let PartRun { mut result, again } = run_part(ctx, part, Some(merge), item.args.args(), result);
        let ns = self.core.shard.timing.lap();
        result.ns += ns;
        run.result.ns += ns;
        if let Some(resume) = again {
            (run.resume, run.unfinished) = (resume, result);
            return true;
        }
        run.resume = 0;
        result.keys = keys.to_vec();
        run.result.parts.push(result);
        false
    }
}
