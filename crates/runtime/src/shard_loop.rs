//! The one task of a shard's executor: turn after turn it moves bytes and batches between the sockets, the engine and the
//! other shards, and decides how to sleep when there is nothing to move.
//!
//! One turn:
//! 1. hand all submissions to the kernel and reap what has arrived, in one call;
//! 2. feed the sessions, which run their commands;
//! 3. run the batches of the other shards;
//! 4. one send per connection, one batch and at most one wake per destination;
//! 5. nothing to do: spin while that pays or is asked for, wait in the ring until nothing has come for a millisecond, then park in glommio.
//!
//! A turn is bounded, so none of this starves the rest; and glommio's own reactor gets to run every [`SERVICE_INTERVAL`]
//! however busy the sockets are.

mod crowding;
mod meter;
mod panics;
mod park;
mod spin;

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

use corelane_engine::{Batch, HostRequest, Millis, Node, ShardId};

use crate::clock::Clock;
use crate::listening::{Move, take_moves};
use crate::mesh::foreign::let_go;
use crate::mesh::{Mail, MeshEnd};
use crate::net::{Net, Turn};
use crate::process;
use crate::server::{Serving, Tenancy};
use crate::visit::{Visit, Visits};

use crowding::Crowding;
pub(crate) use crowding::Home;
use meter::TurnMeter;
pub(crate) use panics::install_hook;
use park::Parker;
use spin::Spin;

/// What the shards send each other.
pub(crate) type ShardMail = Mail<Box<Batch>, Box<Move>, Visit>;

/// First park after something happened; each further one in a row lasts twice as long. Nothing depends on these times but
/// glommio, which may park although tasks are runnable, and the cost of an idle shard: a park takes about 0.1 ms of CPU.
const PARK_FIRST: Duration = Duration::from_millis(10);
/// Longest park.
const PARK_MAX: Duration = Duration::from_millis(40);
/// A busy shard lets glommio's reactor run this often.
const SERVICE_INTERVAL: Duration = Duration::from_millis(10);
/// INFO's figures on the process are renewed this often.
const PROCESS_INTERVAL: Duration = Duration::from_secs(1);
/// How long a stopping server waits for clients to take their last replies.
const FAREWELL_MAX: Duration = Duration::from_secs(1);
/// Between two looks at whether the other shards are done too.
const FAREWELL_STEP: Duration = Duration::from_millis(1);
/// And for the kernel to let go of cancelled operations.
const RELEASE_MAX: Duration = Duration::from_millis(300);
/// Messages taken from one peer in a turn.
const MAIL_PER_PEER: usize = 64;
/// Time after which a turn takes no further messages: a peer that was faster would make each turn longer than the last.
pub(crate) const MAIL_BUDGET: Duration = Duration::from_millis(1);

/// One shard: its engine, its sockets, its end of the mesh.
pub(crate) struct ShardLoop {
    /// Comes first: its ring must be closed before the sessions' memory, into which it receives, is freed.
    net: Net,
    node: Node,
    mesh: MeshEnd<ShardMail>,
    clock: Clock,
    parker: Parker,
    meter: TurnMeter,
    spin: Spin,
    /// Where it may leave its CPU to others.
    crowding: Option<Crowding>,
    serving: Serving,
    tenancy: Tenancy,
    visits: Visits,
    /// Sockets to listen on that other shards are still to be given.
    moves: Vec<(usize, Box<Move>)>,
    /// Something was done since the last sleep.
    active: bool,
    /// In the last turn that did something, other shards were asked for something.
    awaiting: bool,
    /// Completions have been waited for and not been looked at: the next turn need not call the kernel first.
    waited: bool,
    /// The last park ended without an event, and nothing has been submitted since.
    dormant: bool,
    /// How long the next park may last.
    park_next: Duration,
    /// Nothing has happened since the last tick was set.
    quiet: bool,
    serviced: Instant,
    /// When INFO's figures on the process were renewed.
    process_read: Option<Instant>,
    traffic_seen: (u64, u64),
    sweep_at: Option<Millis>,
}

/// Why a shard's loop ended before it was told to.
#[derive(Debug)]
pub(crate) enum LoopError {
    /// The ring or the events failed.
    Io(io::Error),
    /// The command that panicked, if it was one.
    Panic(Option<&'static str>),
}

impl From<io::Error> for LoopError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

/// How a turn ended.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
enum Pace {
    /// There is more to do at once.
    Busy,
    /// There was something to do, and all of it is done.
    Active,
    /// There was nothing to do.
    Idle,
}

impl ShardLoop {
    /// Must be called inside the shard's executor, if it has one.
    pub(crate) fn new(
        node: Node,
        net: Net,
        mesh: MeshEnd<ShardMail>,
        clock: Clock,
        busy_poll: Duration,
        serving: Serving,
        tenancy: Tenancy,
    ) -> io::Result<Self> {
        let parker = Parker::new(mesh.park_event(), tenancy)?;
        Ok(Self {
            node,
            net,
            mesh,
            clock,
            parker,
            meter: TurnMeter::new(),
            spin: Spin::new(busy_poll),
            crowding: None,
            serving,
            tenancy,
            visits: Visits::default(),
            moves: Vec::new(),
            active: false,
            awaiting: false,
            waited: false,
            dormant: false,
            park_next: PARK_FIRST,
            quiet: false,
            serviced: Instant::now(),
            process_read: None,
            traffic_seen: (0, 0),
            sweep_at: None,
        })
    }

    /// Has it run elsewhere while others use its CPU; to be called in the shard's thread.
    pub(crate) fn may_leave(&mut self, home: Option<Home>) {
        self.crowding = home.and_then(|home| Crowding::watch(home, Instant::now()));
    }

    /// Serves until the mesh is stopped.
    ///
    /// # Errors
    /// The ring failed, or there was a panic that is not to end the process.
    pub(crate) async fn run(mut self) -> Result<(), LoopError> {
        let (me, tenancy) = (self.mesh.me(), self.tenancy);
        let outcome = panics::guarded(self.serve()).await;
        let mut outcome = outcome.unwrap_or_else(|| Err(panicked(me, tenancy, None)));
        if outcome.is_ok() {
            let ended = panics::guarded(async { self.say_farewell() }).await;
            outcome = ended.unwrap_or_else(|| Err(panicked(me, tenancy, None)));
        }
        match outcome {
            Ok(()) => {
                let freed = panics::guarded(self.finish()).await;
                freed.unwrap_or_else(|| Err(panicked(me, tenancy, None)))
            }
            Err(LoopError::Panic(what)) => {
                self.fail().await;
                Err(LoopError::Panic(what))
            }
            Err(error) => Err(error),
        }
    }

    async fn serve(&mut self) -> Result<(), LoopError> {
        while !self.mesh.stop_requested() {
            match self.guarded_turn()? {
                Pace::Busy => {}
                Pace::Active if self.mesh.shards() > 1 => {}
                Pace::Active | Pace::Idle => self.rest().await?,
            }
            if self.meter.began() - self.serviced > SERVICE_INTERVAL {
                self.service().await;
            }
        }
        Ok(())
    }

    /// A turn whose panic, too, ends the process or this shard, with the command's name: what that was changing may be torn.
    fn guarded_turn(&mut self) -> Result<Pace, LoopError> {
        match catch_unwind(AssertUnwindSafe(|| self.turn())) {
            Ok(pace) => Ok(pace?),
            Err(_) => Err(panicked(self.mesh.me(), self.tenancy, self.node.current_command())),
        }
    }

    /// The end after a panic. Connections are closed and visitors told; the engine's memory stays, since what is torn cannot
    /// be freed.
    async fn fail(self) {
        let Self { mut net, mut node, mut mesh, visits, parker, .. } = self;
        mesh.fail();
        drop(visits);
        // Whoever waits for one of them is told by its drop.
        node.take_tasks().into_iter().for_each(let_go);
        net.hang_up(&mesh);
        if !matches!(net.release(RELEASE_MAX), Ok(true)) {
            std::mem::forget(net);
        }
        std::mem::forget(node);
        // Connections that were handed over and not opened are closed here: the other ends of the mailboxes keep what is in them.
        for from in 0..mesh.shards() {
            while let Some(mail) = mesh.recv(from) {
                if matches!(mail, Mail::Connection(..)) {
                    mesh.uncount_connection(mesh.me());
                }
            }
        }
        parker.finish().await;
    }

    fn turn(&mut self) -> io::Result<Pace> {
        let began = self.meter.begin();
        if !std::mem::take(&mut self.waited) && self.net.needs_submit() {
            self.net.submit()?;
        }
        let now = self.clock.at(began);
        let mut turn = Turn { node: &mut self.node, mesh: &mut self.mesh, now, began };
        let asked_before = turn.node.stats_mut().hops_out;
        let mut active = self.net.process(&mut turn);
        while let Some(failed) = turn.mesh.next_failure() {
            turn.node.shard_failed(ShardId(failed as u16), now);
        }
        active |= drain_inboxes(&mut self.net, &mut turn);
        active |= self.visits.serve(&mut turn);
        let mut busy = turn.node.tick(now);
        let sweep_at = self.net.sweep(&mut turn);
        self.visits.answer(turn.node);
        self.net.flush(&mut turn);
        if turn.mesh.shards() > 1 {
            busy |= send_batches(&mut turn);
        }
        self.sweep_at = sweep_at;
        self.settle();
        busy |= self.pass_on_moves();
        if active {
            self.awaiting = self.node.stats_mut().hops_out != asked_before;
            self.active = true;
            self.quiet = false;
            self.park_next = PARK_FIRST;
        }
        self.dormant &= !active && !self.net.has_queued();
        Ok(match (busy || self.net.is_ready(), active) {
            (true, _) => Pace::Busy,
            (_, true) => Pace::Active,
            _ => Pace::Idle,
        })
    }

    /// The end of a turn: counters, and what a command asked of the process.
    fn settle(&mut self) {
        let (submitted, completed) = self.net.traffic();
        let stats = self.node.stats_mut();
        stats.ring_submissions += submitted - self.traffic_seen.0;
        stats.ring_completions += completed - self.traffic_seen.1;
        self.traffic_seen = (submitted, completed);
        self.meter.end(stats);
        while let Some(request) = self.node.request() {
            match request {
                HostRequest::SleepUs(us) => std::thread::sleep(Duration::from_micros(us)),
                HostRequest::Shutdown => self.mesh.stop_all(),
                HostRequest::Log(line) => tracing::warn!("{line}"),
                HostRequest::Listen => self.moves.append(&mut take_moves()),
            }
        }
    }

    /// Gives the shards their new sockets to listen on. Returns whether some could not be given yet.
    fn pass_on_moves(&mut self) -> bool {
        for (shard, moved) in std::mem::take(&mut self.moves) {
            if shard == self.mesh.me() {
                relisten(&mut self.net, &mut self.node, *moved);
            } else if !self.mesh.has_room(shard) {
                self.moves.push((shard, moved));
            } else {
                let sent = self.mesh.send(shard, Mail::Listen(moved));
                debug_assert!(sent.is_ok(), "there was room");
                self.node.stats_mut().wakes_sent += u64::from(self.mesh.wake(shard));
            }
        }
        !self.moves.is_empty()
    }

    /// Sleeps, as deep as it takes, until there is something to do.
    async fn rest(&mut self) -> io::Result<()> {
        if self.spin()? {
            return Ok(());
        }
        if self.quiet && !self.net.is_ticking() {
            return self.park().await;
        }
        if self.mesh.begin_wait() {
            if !self.net.is_ticking() {
                self.net.tick();
                self.quiet = true;
            }
            self.net.wait()?;
            self.mesh.awake();
            self.waited = true;
            self.node.stats_mut().ring_waits += 1;
        }
        Ok(())
    }

    async fn park(&mut self) -> io::Result<()> {
        let limit = self.park_limit();
        if limit.is_zero() || !self.mesh.begin_park() {
            return Ok(());
        }
        self.net.notify(true);
        if !std::mem::take(&mut self.dormant) {
            // Completions that were deferred before notifications were on have written no event.
            self.net.submit()?;
        }
        if !self.net.is_ready() {
            self.net.trim_buffers();
            self.node.stats_mut().parks += 1;
            let rung = self.parker.park(limit).await?;
            self.park_next = (self.park_next * 2).min(PARK_MAX);
            self.note_service();
            // Without an event the kernel has nothing for us, and is not asked before the next park.
            self.dormant = !rung && !self.net.is_ready();
            self.waited = self.dormant;
        }
        self.net.notify(false);
        self.mesh.awake();
        Ok(())
    }

    /// Looks for work a little longer, if that is likely to pay; true when some came.
    fn spin(&mut self) -> io::Result<bool> {
        let active = std::mem::take(&mut self.active);
        if !self.spin.is_worth_it(active) {
            return Ok(false);
        }
        if self.net.has_queued() {
            self.net.submit()?;
        }
        let mut attempt = self.spin.attempt(active, self.awaiting, Instant::now());
        let mut came = false;
        let mut goes_on = true;
        while !came && goes_on {
            std::thread::yield_now();
            came = self.net.is_ready() || !self.mesh.inbox_empty() || self.mesh.stop_requested();
            goes_on = attempt.goes_on(Instant::now());
        }
        self.spin.note(&attempt, came, self.mesh.has_visitor());
        Ok(came)
    }

    /// How long there will be nothing to do unless something arrives, at most as long as a park may take. Waits in the ring
    /// need not know: their tick is as short as any deadline.
    fn park_limit(&self) -> Duration {
        let now = self.clock.now_ms();
        let deadline = [self.sweep_at, self.node.next_deadline(now)].into_iter().flatten().min();
        let until = deadline.map(|deadline| Duration::from_millis(deadline.saturating_sub(now)));
        until.map_or(self.park_next, |until| until.min(self.park_next))
    }

    /// glommio's reactor has run; a time, too, for what is to be done every second or so.
    fn note_service(&mut self) {
        self.serviced = Instant::now();
        self.node.set_wall_clock(self.clock.wall());
        if let Some(crowding) = &mut self.crowding {
            self.node.stats_mut().away = crowding.look(self.mesh.me(), self.serviced).into();
        }
        self.spin.set_asked(Duration::from_micros(self.node.settings().busy_poll_us));
        if self.process_read.is_none_or(|at| self.serviced - at > PROCESS_INTERVAL) {
            self.process_read = Some(self.serviced);
            self.node.set_process_info(process::read(), self.clock.now_ms());
        }
    }

    /// Lets glommio's reactor run.
    async fn service(&mut self) {
        self.parker.service().await;
        self.note_service();
    }

    /// Stops accepting and reading, sends what is owed, and stays at the others' service until they have done the same.
    fn say_farewell(&mut self) -> Result<(), LoopError> {
        let began = Instant::now();
        self.net.stop_accepting();
        self.net.refuse_newcomers();
        self.mesh.close_gate();
        self.guarded_turn()?;
        let now = self.clock.now_ms();
        let mut turn = Turn { node: &mut self.node, mesh: &mut self.mesh, now, began };
        self.net.end_all(&mut turn);
        while began.elapsed() < FAREWELL_MAX && !self.serving.is_over() {
            let served = self.net.connection_count() == 0 && self.visits.are_served(&mut self.node);
            if served && self.mesh.inbox_empty() {
                self.serving.finish();
            }
            if self.guarded_turn()? == Pace::Idle {
                self.net.wait_for(FAREWELL_STEP)?;
            }
            // Looks for news, too: a shard that fails now answers nobody.
            self.mesh.stop_requested();
        }
        let mut turn = Turn { node: &mut self.node, mesh: &mut self.mesh, now, began };
        self.net.close_all(&mut turn);
        Ok(())
    }

    /// Frees what it has, in so far as the kernel has let go of it. A process of our own ends now, which frees at once what would take
    /// seconds key by key.
    async fn finish(self) -> Result<(), LoopError> {
        let Self { mut net, mut node, parker, tenancy, .. } = self;
        node.take_tasks().into_iter().for_each(let_go);
        if !net.release(RELEASE_MAX)? {
            // The kernel may still write to this memory and into the sessions' values: it stays until the process ends.
            std::mem::forget((net, node));
        } else if tenancy == Tenancy::Owner {
            std::mem::forget(node);
        }
        parker.finish().await;
        Ok(())
    }
}

/// What a panic comes to: the end of the process, or of this shard alone.
fn panicked(me: usize, tenancy: Tenancy, command: Option<&'static str>) -> LoopError {
    match tenancy {
        Tenancy::Owner => panics::report_and_exit(me, command),
        Tenancy::Guest => LoopError::Panic(command),
    }
}

/// Listens where the server does from now on.
fn relisten(net: &mut Net, node: &mut Node, moved: Move) {
    net.relisten(&moved.left, moved.sockets);
    node.set_listener_info(moved.info);
}

/// Runs what the other shards sent, one message of each in turn. Returns whether there was anything.
fn drain_inboxes(net: &mut Net, turn: &mut Turn<'_>) -> bool {
    let taken = take_mail(net, turn);
    turn.node.stats_mut().count_mail(taken);
    taken > 0
}

/// Returns how many messages there were.
fn take_mail(net: &mut Net, turn: &mut Turn<'_>) -> u64 {
    let mut taken = 0;
    for _ in 0..MAIL_PER_PEER {
        let before = taken;
        for from in 0..turn.mesh.shards() {
            let Some(mail) = turn.mesh.recv(from) else { continue };
            taken += 1;
            match mail {
                Mail::Batch(batch) => turn.node.receive(ShardId(from as u16), batch, turn.now),
                Mail::Connection(socket, kind) => net.open(socket, kind, turn),
                Mail::Listen(moved) => relisten(net, turn.node, *moved),
                Mail::Visit(_) => unreachable!("visits come through the gate"),
            }
        }
        if taken == before || turn.began.elapsed() > MAIL_BUDGET {
            break;
        }
    }
    taken
}

/// Sends each shard what the turn has produced for it. Returns whether something had to stay because a mailbox is full.
fn send_batches(turn: &mut Turn<'_>) -> bool {
    let mut stayed = false;
    for to in 0..turn.mesh.shards() {
        if to == turn.mesh.me() {
            continue;
        }
        if !turn.mesh.has_room(to) {
            turn.node.stats_mut().mailbox_full += 1;
            stayed = true;
            continue;
        }
        let Some(batch) = turn.node.take_outbox(ShardId(to as u16)) else { continue };
        let sent = turn.mesh.send(to, Mail::Batch(batch));
        debug_assert!(sent.is_ok(), "there was room");
        turn.node.stats_mut().wakes_sent += u64::from(turn.mesh.wake(to));
    }
    stayed
}
