//! Everything of one core except input and output: sessions, a shard of the keys, and its end of the transactions.
//!
//! The runtime and the simulator drive it the same way: bytes and mailbox batches go in, output and batches come out.
//! The life of a command is told in docs/life-of-a-command.md; `dispatch` runs commands, `participant` and
//! `coordinator` are the two sides of a command over several shards (docs/transactions.md).

use crate::ahead::Ahead;
use crate::blocking::Blocking;
use crate::commands::{CommandId, CommandTable, Recent};
use crate::coordinator::Coordinator;
use crate::ctx::{HostRequest, Order, ProcessInfo, Rng, Shard};
use crate::faults::Faults;
use crate::journal::Journal;
use crate::keyspace::{KeyHasher, Keyspace, KnownKey, Millis};
use crate::message::{Batch, TxMessage};
use crate::modes::Modes;
use crate::monitor::Watchers;
use crate::participant::Participant;
use crate::pause::Pause;
use crate::pubsub::PubSub;
use crate::rates::Sampler;
use crate::rdb::Checksums;
use crate::session::{CloseWhen, IoState, Peer, Session, SessionId, Sessions, WITHHELD_MAX};
use crate::settings::Settings;
use crate::slot::{ShardId, SlotMap};
use crate::stats::ShardStats;
use crate::timing::{Ticks, Timing};
use crate::waits::Waits;
use crate::wall::WallClock;
use corelane_resp::{Limits, Reply};
use std::collections::VecDeque;
use std::mem::MaybeUninit;

/// Expired keys and stale hints handled per tick; one costs up to a microsecond.
const EXPIRE_BUDGET: usize = 256;
/// Flushed entries freed per tick; one costs up to 0.2 microseconds.
const FREE_BUDGET: usize = 512;
/// Commands run at a time of those that have been granted the intents they waited for.
const GRANTED_BUDGET: usize = 64;
/// Emptied batches kept for the next turns.
const BATCH_POOL_MAX: usize = 16;

/// How to make a node.
#[derive(Clone, Debug)]
pub struct NodeConfig {
    /// Which shard this is.
    pub me: ShardId,
    /// How many there are.
    pub shards: u16,
    /// The process's random seed, the same for all shards.
    pub seed: u64,
    /// The configuration.
    pub settings: Settings,
    /// What durations are measured with.
    pub ticks: Ticks,
    /// For tests only.
    pub faults: Faults,
}

/// One core's engine.
pub struct Node {
    pub(crate) sessions: Sessions,
    pub(crate) core: Core,
    pub(crate) participant: Participant,
    pub(crate) coordinator: Coordinator,
    /// Sessions that are shown all commands, or soon will be.
    pub(crate) monitors: Vec<SessionId>,
    pub(crate) faults: Faults,
}

/// What running a command needs beside its session. Batches are boxed because mailboxes carry them so: a box is made
/// once and goes round.
#[expect(clippy::vec_box, reason = "the boxes themselves travel")]
pub(crate) struct Core {
    pub(crate) shard: Shard,
    pub(crate) table: CommandTable,
    pub(crate) recent: Recent,
    pub(crate) limits: Limits,
    /// What goes to the other shards, by destination.
    pub(crate) outboxes: Vec<Box<Batch>>,
    /// Transaction messages from this shard to itself.
    pub(crate) local: VecDeque<TxMessage>,
    /// Sessions with news for the runtime.
    pub(crate) dirty: Vec<SessionId>,
    /// Sessions whose output waits for replies of other shards, and since when the first of them does.
    pub(crate) withheld: Vec<SessionId>,
    pub(crate) withheld_since: Millis,
    /// Sessions of the embedding program with all their replies.
    pub(crate) answered: Vec<SessionId>,
    /// Other shards that have failed.
    pub(crate) failed: Vec<ShardId>,
    /// Sessions that can go on with what they have.
    pub(crate) resume: Vec<SessionId>,
    /// Sessions whose input is run on in later turns.
    pub(crate) later: VecDeque<SessionId>,
    /// Sessions with a command that waits for the end of a pause, those that waited first in front.
    pub(crate) paused: VecDeque<SessionId>,
    /// Commands as this shard's own monitors are to be shown them.
    pub(crate) monitor_lines: Vec<u8>,
    /// Scratch: one of them.
    pub(crate) monitor_line: Vec<u8>,
    /// Scratch: reply of a command that must wait for earlier ones.
    pub(crate) scratch: Reply,
    /// Scratch: commands read ahead.
    pub(crate) ahead: Ahead,
    /// Scratch: hashes of its keys.
    pub(crate) hashes: Vec<u64>,
    /// When blocked sessions are to be answered.
    pub(crate) waits: Waits,
    /// Commands that wait for keys to have elements.
    pub(crate) blocking: Blocking,
    /// The command being run, for the report of a panic.
    pub(crate) current: Option<&'static str>,
    /// Where it stands in the table.
    pub(crate) running: CommandId,
    /// Its bytes as they arrived.
    pub(crate) request_bytes: usize,
    pool: Vec<Box<Batch>>,
}

impl Node {
    /// A node without keys or connections.
    pub fn new(config: NodeConfig) -> Self {
        let limits = Limits { bulk_len_max: config.settings.proto_max_bulk_len, ..Limits::default() };
        let hasher = KeyHasher::new(config.seed);
        let mut shard = Shard {
            me: config.me,
            slots: SlotMap::new(config.shards),
            keyspace: Keyspace::new(config.settings.databases, hasher),
            known_key: KnownKey::default(),
            wall: WallClock::default(),
            rng: Rng::new(config.seed ^ (u64::from(config.me.0) << 48)),
            stats: ShardStats::default(),
            timing: Timing::new(config.ticks, &config.settings.observation),
            journal: Journal::default(),
            settings: config.settings,
            process: ProcessInfo::default(),
            watchers: Watchers::new(config.shards),
            pause: Pause::default(),
            pubsub: PubSub::new(config.me, config.shards),
            orders: Vec::new(),
            checksums: Checksums::default(),
            sampler: Sampler::default(),
            memory_peak: 0,
            host_requests: VecDeque::new(),
            events: Vec::new(),
            unwatched: Vec::new(),
            would_wait: false,
            waited_keys: 0,
        };
        shard.settings.compact.seed = config.seed;
        shard.apply_settings();
        let table = CommandTable::renamed(&shard.settings.config.renamed);
        let core = Core {
            shard,
            table,
            recent: Recent::default(),
            limits,
            outboxes: (0..config.shards).map(|_| Box::default()).collect(),
            local: VecDeque::new(),
            dirty: Vec::new(),
            withheld: Vec::new(),
            withheld_since: 0,
            answered: Vec::new(),
            failed: Vec::new(),
            resume: Vec::new(),
            later: VecDeque::new(),
            paused: VecDeque::new(),
            monitor_lines: Vec::new(),
            monitor_line: Vec::new(),
            scratch: Reply::default(),
            ahead: Ahead::default(),
            hashes: Vec::new(),
            waits: Waits::default(),
            blocking: Blocking::new(config.faults),
            current: None,
            running: CommandId::default(),
            request_bytes: 0,
            pool: Vec::new(),
        };
        Self {
            sessions: Sessions::default(),
            core,
            participant: Participant::new(config.faults),
            coordinator: Coordinator::default(),
            monitors: Vec::new(),
            faults: config.faults,
        }
    }

    /// A new connection.
    pub fn open(&mut self, peer: Peer, now: Millis) -> SessionId {
        let shard = &mut self.core.shard;
        shard.stats.connections_received += 1;
        let id = self.sessions.open(peer, now, shard.me.0, shard.slots.shards());
        if !shard.settings.password.is_empty()
            && let Some(session) = self.sessions.get_mut(id)
        {
            session.client.authenticated = false;
        }
        id
    }

    /// Bytes that arrived on a connection. Runs every complete command that may be run now.
    pub fn feed(&mut self, id: SessionId, bytes: &[u8], now: Millis) {
        let Some(session) = self.sessions.get_mut(id) else { return };
        session.client.bytes_in += bytes.len() as u64;
        session.client.last_active = now;
        self.core.shard.stats.reads += 1;
        self.core.shard.stats.bytes_in += bytes.len() as u64;
        self.core.shard.timing.begin();
        self.core.consume(&mut self.coordinator, &mut self.participant, session, id, bytes, now);
        self.pump(now);
    }

    /// While a large argument is received: where its next bytes go. The runtime may receive straight into it.
    pub fn bulk_space(&mut self, id: SessionId) -> Option<&mut [MaybeUninit<u8>]> {
        self.sessions.get_mut(id)?.bulk_space()
    }

    /// So many bytes of [`Self::bulk_space`] have been written.
    pub fn bulk_filled(&mut self, id: SessionId, len: usize, now: Millis) {
        if let Some(session) = self.sessions.get_mut(id) {
            session.bulk_filled(len);
            session.client.bytes_in += len as u64;
            session.client.last_active = now;
            self.core.shard.stats.reads += 1;
            self.core.shard.stats.bytes_in += len as u64;
            self.core.shard.timing.begin();
            self.core.consume(&mut self.coordinator, &mut self.participant, session, id, &[], now);
        }
        self.pump(now);
    }

    /// The connection is gone. Commands under way finish, their replies are dropped.
    pub fn close(&mut self, id: SessionId) {
        let monitor =
            |session: &mut Session| session.client.modes.has(Modes::MONITOR.or(Modes::MONITOR_SOON));
        if self.sessions.get_mut(id).is_some_and(monitor) {
            self.core.shard.watchers.leave();
            self.core.tell_of_left_monitors();
        }
        if let Some(session) =
            self.sessions.get_mut(id).filter(|session| session.client.subscriptions.is_some())
        {
            let idle = !self.core.shard.has_pubsub_news();
            self.core.forget_subscriptions(session);
            if idle {
                // Nothing but what this connection leaves: no other is concerned.
                self.step_pubsub();
            }
        }
        if let Some(session) = self.sessions.get_mut(id) {
            session.client.unwatch(&mut self.core.shard);
            self.core.tell_of_unwatched();
        }
        self.core.withdraw(id);
        self.sessions.close(id);
    }

    /// Moves the sessions with news since the last call into `into`, each once.
    pub fn take_dirty(&mut self, into: &mut Vec<SessionId>) {
        into.append(&mut self.core.dirty);
    }

    /// What is to be done for a session; `None` if it is gone.
    pub fn session_state(&mut self, id: SessionId) -> Option<IoState<'_>> {
        let settings = &self.core.shard.settings;
        let session = self.sessions.get_mut(id)?;
        session.dirty = false;
        Some(session.io_state(settings.output_backlog_max))
    }

    /// The runtime has taken so many bytes of a session's output to send them.
    pub fn output_taken(&mut self, id: SessionId, bytes: usize) {
        if let Some(session) = self.sessions.get_mut(id) {
            session.output_taken(bytes);
        }
    }

    /// So many bytes of the output taken have left.
    pub fn sent(&mut self, id: SessionId, bytes: usize, now: Millis) {
        let Some(session) = self.sessions.get_mut(id) else { return };
        session.output_sent(bytes);
        self.core.shard.stats.writes += 1;
        self.core.shard.stats.bytes_out += bytes as u64;
        self.core.after_change(session, id);
        self.pump(now);
    }

    /// A batch from another shard.
    pub fn receive(&mut self, from: ShardId, mut batch: Box<Batch>, now: Millis) {
        self.core.shard.timing.begin();
        for note in batch.notes.drain(..) {
            self.take_note(note);
        }
        for message in std::mem::take(&mut batch.txs) {
            self.handle(from, message, now);
        }
        if batch.monitors_left > 0 {
            self.forget_monitors(from, batch.monitors_left);
        }
        if !batch.monitor_lines.is_empty() {
            self.deliver_lines(&batch.monitor_lines);
        }
        self.serve(from, &batch, now);
        self.deliver(&mut batch);
        for message in batch.pubsub.drain(..) {
            self.on_pubsub(from, message);
        }
        batch.recycle();
        self.core.recycle(batch);
        self.pump(now);
    }

    /// What is to be sent to another shard; `None` if nothing is.
    pub fn take_outbox(&mut self, to: ShardId) -> Option<Box<Batch>> {
        let outbox = &mut self.core.outboxes[usize::from(to.0)];
        if outbox.is_empty() {
            return None;
        }
        let fresh = self.core.pool.pop().unwrap_or_default();
        Some(std::mem::replace(outbox, fresh))
    }

    /// A bounded piece of background work: expiry, freeing, long commands. True if there is more to do at once.
    pub fn tick(&mut self, now: Millis) -> bool {
        self.core.limits.bulk_len_max = self.core.shard.settings.proto_max_bulk_len;
        self.core.shard.timing.stop();
        let mut more = self.core.expire_some(now);
        self.core.shard.stats.expire_steps_cut += u64::from(more);
        more |= self.core.shard.keyspace.free_some(FREE_BUDGET);
        self.release_withheld(now);
        more |= self.release_paused(now);
        self.end_waits(now);
        if !self.core.blocking.later.is_empty() {
            self.serve_on(now);
            self.pump(now);
            self.core.shard.timing.stop();
        }
        if self.participant.has_jobs() {
            self.step_job(now);
            self.pump(now);
            self.core.shard.timing.stop();
        } else if self.participant.has_granted() {
            self.pump(now);
            self.core.shard.timing.stop();
        }
        if self.core.shard.has_pubsub_news() {
            self.pump(now);
        }
        self.run_later(now);
        // What has just been done may have begun something else.
        more | self.participant.has_work() || self.core.has_later()
    }

    /// Runs the next piece of a client's input that was too much for one turn.
    fn run_later(&mut self, now: Millis) {
        let Some(id) = self.core.later.pop_front() else { return };
        self.core.shard.timing.begin();
        if let Some(session) = self.sessions.get_mut(id) {
            session.resuming = false;
            self.core.resume_session(&mut self.coordinator, &mut self.participant, session, id, now);
        }
        self.pump(now);
        self.core.shard.timing.stop();
    }

    /// Sends what has waited for other shards' replies since an earlier millisecond: they may take long.
    fn release_withheld(&mut self, now: Millis) {
        if self.core.withheld.is_empty() || now <= self.core.withheld_since {
            return;
        }
        if self.core.withheld_since == 0 {
            self.core.withheld_since = now;
            return;
        }
        self.core.withheld_since = 0;
        for id in std::mem::take(&mut self.core.withheld) {
            let Some(session) = self.sessions.get_mut(id) else { continue };
            session.withheld = false;
            if !session.dirty && !session.out.is_empty() {
                session.dirty = true;
                self.core.dirty.push(id);
            }
        }
    }

    /// When [`Self::tick`] has something to do although nothing arrives.
    pub fn next_deadline(&self, now: Millis) -> Option<Millis> {
        let withheld = (!self.core.withheld.is_empty()).then_some(now + 1);
        let pause = self.core.shard.pause.deadline();
        let news = self.core.shard.has_pubsub_news().then_some(now);
        let expiry =
            (!self.core.shard.pause.holds_expiry(now)).then(|| self.core.shard.keyspace.next_expiry(now));
        [expiry.flatten(), withheld, pause, news, self.core.waits.next()].into_iter().flatten().min()
    }

    /// The command being run; for the report of a panic.
    pub fn current_command(&self) -> Option<&'static str> {
        self.core.current
    }

    /// Whether a session has had more unsent output than the soft limit for as long as that allows; then it is to be closed.
    /// To be asked about once a second.
    pub fn is_over_soft_limit(&mut self, id: SessionId, now: Millis) -> bool {
        let Some(session) = self.sessions.get_mut(id) else { return false };
        let limit = self.core.shard.settings.output_limits.of(&session.client);
        if !limit.is_over_soft(session.output_len()) {
            session.over_soft_since = None;
            return false;
        }
        let since = *session.over_soft_since.get_or_insert(now);
        if now.saturating_sub(since) <= limit.soft_s * 1000 {
            return false;
        }
        let line = session.client.farewell("the soft client-output-buffer-limit");
        self.core.shard.stats.output_limit_disconnections += 1;
        self.core.shard.host_requests.push_back(HostRequest::Log(line));
        true
    }

    /// The configuration in force.
    pub fn settings(&self) -> &Settings {
        &self.core.shard.settings
    }

    /// Counters, for the runtime to add its own.
    pub fn stats_mut(&mut self) -> &mut ShardStats {
        &mut self.core.shard.stats
    }

    /// Connections open.
    pub fn connections(&self) -> usize {
        self.sessions.len()
    }

    /// What commands have asked of the process, one after the other.
    pub fn request(&mut self) -> Option<HostRequest> {
        self.core.shard.host_requests.pop_front()
    }

    /// Handles messages of this shard to itself, and lets sessions go on that can, until there is nothing left; of commands
    /// that have waited for intents only some, the others in later turns.
    pub(crate) fn pump(&mut self, now: Millis) {
        let mut granted = 0;
        loop {
            if let Some(message) = self.core.local.pop_front() {
                self.core.shard.timing.begin();
                self.handle(self.core.shard.me, message, now);
            } else if let Some(id) = self.core.resume.pop() {
                let Some(session) = self.sessions.get_mut(id) else { continue };
                session.resuming = false;
                self.core.shard.timing.begin();
                self.core.resume_session(&mut self.coordinator, &mut self.participant, session, id, now);
            } else if granted < GRANTED_BUDGET && self.run_granted(now) {
                granted += 1;
            } else if self.core.shard.keyspace.has_new() {
                self.core.serve_new(&mut self.participant, None, now);
            } else if self.core.blocking.has_served() {
                self.deliver_served(now);
            } else if self.core.shard.has_pubsub_news() {
                self.step_pubsub();
            } else if self.core.shard.watchers.has_news() {
                self.core.tell_of_left_monitors();
            } else if !self.core.monitor_lines.is_empty() {
                let lines = std::mem::take(&mut self.core.monitor_lines);
                self.deliver_lines(&lines);
            } else {
                self.core.current = None;
                return;
            }
        }
    }

    /// Does to connections what a command has asked for.
    pub(crate) fn obey(&mut self, now: Millis) {
        for order in std::mem::take(&mut self.core.shard.orders) {
            match order {
                Order::Unblock { id, failed } => self.unblock(id, failed, now),
                Order::Close(id, when) => {
                    let Some(session) = self.sessions.get_mut(id) else { continue };
                    if session.client.close != Some(CloseWhen::Now) {
                        session.client.close = Some(when);
                    }
                    self.core.after_change(session, id);
                }
                Order::Monitor(id) => {
                    let Some(session) = self.sessions.get_mut(id) else { continue };
                    session.client.modes.set(Modes::MONITOR_SOON, true);
                    self.monitors.push(id);
                }
            }
        }
    }

    fn deliver(&mut self, batch: &mut Batch) {
        let mut at = 0;
        while let Some((id, seq, bytes, next)) = batch.reply_at(at) {
            at = next;
            let Some(session) = self.sessions.get_mut(id) else { continue };
            session.order.deliver(seq, bytes, &mut session.out);
            self.core.after_change(session, id);
        }
        for (id, seq, reply) in batch.take_large_replies() {
            let Some(session) = self.sessions.get_mut(id) else { continue };
            session.order.deliver_large(seq, reply, &mut session.out);
            self.core.after_change(session, id);
        }
    }
}

impl Core {
    /// Lists a session for the runtime and for being run on, as its state asks for.
    #[inline]
    pub(crate) fn after_change(&mut self, session: &mut Session, id: SessionId) {
        let settings = &self.shard.settings;
        if settings.output_limits.of(&session.client).is_over_hard(session.output_len()) && !session.embedded
        {
            if session.client.close.is_none() {
                self.shard.stats.output_limit_disconnections += 1;
                let line = session.client.farewell("client-output-buffer-limit");
                self.shard.host_requests.push_back(HostRequest::Log(line));
            }
            session.client.close = Some(CloseWhen::Now);
        }
        let backlog_max = settings.output_backlog_max;
        let runs_on = !session.resuming && session.has_work() && session.can_run(backlog_max);
        if runs_on {
            session.resuming = true;
            self.resume.push(id);
        }
        if session.embedded {
            self.answered.extend(session.is_settled().then_some(id));
            return;
        }
        if runs_on && session.client.close.is_none() && session.out.len() < WITHHELD_MAX {
            // What it runs next may withhold this output.
            return;
        }
        let withhold = session.may_withhold();
        if withhold && !session.withheld && !session.out.is_empty() {
            session.withheld = true;
            self.withheld.push(id);
        }
        let news = (!session.out.is_empty() && !withhold)
            || session.client.close.is_some()
            || session.in_bulk()
            || session.may_end()
            || session.reading_changed(backlog_max);
        if !session.dirty && news {
            session.dirty = true;
            self.dirty.push(id);
        }
    }

    /// A step of the removal of keys whose time has come, unless CLIENT PAUSE holds that up. Its time is taken only for the
    /// latency monitor.
    fn expire_some(&mut self, now: Millis) -> bool {
        let shard = &mut self.shard;
        if shard.pause.holds_expiry(now) {
            return false;
        }
        if shard.timing.latency_ns_min == u64::MAX {
            return shard.keyspace.expire_some(now, EXPIRE_BUDGET);
        }
        shard.timing.begin();
        let more = shard.keyspace.expire_some(now, EXPIRE_BUDGET);
        let ns = shard.timing.lap();
        shard.timing.stop();
        if ns >= shard.timing.latency_ns_min {
            self.note_latency("expire-cycle", ns, now);
        }
        more
    }

    pub(crate) fn send(&mut self, to: ShardId, message: TxMessage) {
        if to == self.shard.me {
            self.local.push_back(message);
        } else if self.has_failed(to) {
            self.bounce(&message);
        } else {
            self.outboxes[usize::from(to.0)].txs.push(message);
        }
    }

    fn recycle(&mut self, batch: Box<Batch>) {
        if self.pool.len() < BATCH_POOL_MAX {
            self.pool.push(batch);
        }
    }
}
