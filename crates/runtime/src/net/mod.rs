//! The sockets of a shard: accepts, receives, sends and closes them through the shard's ring, and moves bytes between
//! them and the sessions of its node. What the bytes mean is the node's business.
//!
//! One [`Net`] belongs to one shard loop, which calls [`Net::process`] and [`Net::flush`] once a turn. Nothing in here
//! waits or calls into the kernel, except where a connection begins or ends.

mod accept;
mod close;
mod connection;
mod receive;
mod send;
mod sweep;

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::time::{Duration, Instant};

use corelane_engine::{Millis, Node, SessionId};

use crate::mesh::MeshEnd;
use crate::ring::{Buffers, Completion, Op, PoolSize, Ring, Token};
use crate::shard_loop::ShardMail;

pub(crate) use accept::Listener;
use close::Grave;
use connection::Connections;

/// Completions handled in one turn; the rest waits for the next.
const COMPLETIONS_PER_TURN: usize = 256;
/// Time after which a turn takes no further completions.
const TURN_BUDGET: Duration = Duration::from_micros(500);
/// Completions between two looks at the clock.
const BUDGET_CHECK_INTERVAL: usize = 16;
/// A completion with so many bytes has it looked at too: a full buffer of short commands takes a millisecond.
const MUCH_DATA_LEN: i32 = 8 << 10;

/// What the socket path needs of the configuration.
#[derive(Copy, Clone, Debug)]
pub(crate) struct NetLimits {
    /// Seconds without traffic after which a connection is closed; 0: never.
    pub(crate) timeout_s: u32,
    /// Connections of all shards together.
    pub(crate) maxclients: u32,
    /// Seconds between keep-alive probes; 0: none.
    pub(crate) keepalive_s: u32,
}

/// What a turn works with besides the sockets.
pub(crate) struct Turn<'a> {
    /// The shard's engine.
    pub(crate) node: &'a mut Node,
    /// The way to other shards.
    pub(crate) mesh: &'a mut MeshEnd<ShardMail>,
    /// The engine's clock, read once a turn.
    pub(crate) now: Millis,
    /// When the turn began.
    pub(crate) began: Instant,
}

impl Turn<'_> {
    fn now_s(&self) -> u32 {
        (self.now / 1000) as u32
    }
}

/// The sockets of one shard. The ring comes first: it must be closed before the memory that is lent to it is freed.
pub(crate) struct Net {
    ring: Ring,
    buffers: Buffers,
    /// By the numbers of their tokens; places that are free are used again.
    listeners: Vec<Option<Listener>>,
    connections: Connections,
    limits: NetLimits,
    /// What the listeners' sockets were last told.
    keepalive_s: u32,
    /// Reaped and not yet handled; handled up to `next`.
    completions: Vec<Completion>,
    next: usize,
    /// Sessions to be looked after at the end of the turn.
    dirty: Vec<SessionId>,
    /// Connections whose receive found no buffer.
    starved: Vec<SessionId>,
    /// Output of connections that died while it was being sent.
    graves: Vec<Grave>,
    /// Connections with a send at once whose outcome has not been looked at.
    at_once: Vec<SessionId>,
    /// One of them has more to send.
    in_haste: bool,
    /// Completions since the start.
    completed: u64,
    sweep: sweep::Sweep,
    accepting: bool,
    ticking: bool,
}

impl Net {
    /// Makes ring and buffers for the calling thread and starts to accept.
    pub(crate) fn new(
        mesh: &MeshEnd<ShardMail>,
        listeners: Vec<Listener>,
        limits: NetLimits,
        pool: PoolSize,
    ) -> io::Result<Self> {
        let mut ring = Ring::new()?;
        let buffers = ring.register_buffers(pool)?;
        ring.register_eventfd(mesh.park_event())?;
        let mut net = Self {
            ring,
            buffers,
            listeners: listeners.into_iter().map(Some).collect(),
            connections: Connections::default(),
            limits,
            keepalive_s: limits.keepalive_s,
            completions: Vec::with_capacity(COMPLETIONS_PER_TURN),
            next: 0,
            dirty: Vec::new(),
            starved: Vec::new(),
            graves: Vec::new(),
            at_once: Vec::new(),
            in_haste: false,
            completed: 0,
            sweep: sweep::Sweep::default(),
            accepting: true,
            ticking: false,
        };
        net.watch(mesh.ring_event());
        net.accept_all();
        Ok(net)
    }

    /// Hands all submissions to the kernel and has it complete what has arrived.
    #[inline]
    pub(crate) fn submit(&mut self) -> io::Result<()> {
        self.ring.submit()
    }

    /// Whether the kernel has something to do for us: entries to take, or arrivals to complete.
    #[inline]
    pub(crate) fn needs_submit(&mut self) -> bool {
        self.ring.needs_submit()
    }

    /// The same, and waits until something arrives or the tick, which must be on, ends.
    #[inline]
    pub(crate) fn wait(&mut self) -> io::Result<()> {
        debug_assert!(self.ticking);
        self.ring.wait()
    }

    /// The same as [`Net::wait`], at most `timeout`.
    pub(crate) fn wait_for(&mut self, timeout: Duration) -> io::Result<()> {
        self.ring.wait_for(timeout)
    }

    /// Whether a tick will end the next wait.
    #[inline]
    pub(crate) fn is_ticking(&self) -> bool {
        self.ticking
    }

    /// Has a wait that begins now end in a millisecond.
    pub(crate) fn tick(&mut self) {
        self.ticking = true;
        self.ring.tick();
    }

    /// Whether something has arrived, or is left over from the last turn.
    #[inline]
    pub(crate) fn is_ready(&mut self) -> bool {
        self.next < self.completions.len() || !self.dirty.is_empty() || self.in_haste || self.ring.is_ready()
    }

    /// Whether there are submissions for the kernel.
    pub(crate) fn has_queued(&mut self) -> bool {
        self.ring.has_queued()
    }

    /// Whether completions make the park event readable.
    pub(crate) fn notify(&mut self, on: bool) {
        self.ring.notify(on);
    }

    /// Connections of this shard.
    pub(crate) fn connection_count(&self) -> usize {
        self.connections.len()
    }

    /// Submissions and completions since the start.
    pub(crate) fn traffic(&self) -> (u64, u64) {
        (self.ring.submitted(), self.completed)
    }

    /// Handles what has arrived, within the bounds of one turn. Returns whether there was anything but a tick.
    pub(crate) fn process(&mut self, turn: &mut Turn<'_>) -> bool {
        if !self.at_once.is_empty() {
            self.settle_sends(turn);
        }
        if self.next == self.completions.len() {
            self.completions.clear();
            self.next = 0;
            self.ring.reap(&mut self.completions, COMPLETIONS_PER_TURN);
        }
        let (mut handled, mut ticks) = (0, 0);
        while self.next < self.completions.len() {
            let completion = self.completions[self.next];
            self.next += 1;
            handled += 1;
            ticks += usize::from(completion.token == Token::TICK);
            self.dispatch(completion, turn);
            let look = completion.result >= MUCH_DATA_LEN || handled % BUDGET_CHECK_INTERVAL == 0;
            if look && turn.began.elapsed() > TURN_BUDGET {
                break;
            }
        }
        self.completed += handled as u64;
        handled > ticks
    }

    /// Sends what the sessions have to say and acts on their changed states: the end of a turn.
    pub(crate) fn flush(&mut self, turn: &mut Turn<'_>) {
        turn.node.take_dirty(&mut self.dirty);
        let mut dirty = std::mem::take(&mut self.dirty);
        for id in dirty.drain(..) {
            self.attend(id, turn);
        }
        dirty.append(&mut self.dirty);
        self.dirty = dirty;
        if !self.starved.is_empty() {
            self.feed_starved(turn);
        }
    }

    fn dispatch(&mut self, completion: Completion, turn: &mut Turn<'_>) {
        match completion.token.op() {
            Op::Recv => self.on_recv(completion, turn),
            Op::Send | Op::SendAtOnce => self.on_send(completion, turn),
            Op::RecvInto => self.on_recv_into(completion, turn),
            Op::Accept => self.on_accept(completion, turn),
            Op::HangUp => self.on_hangup(completion, turn),
            Op::Wake => {
                if !completion.more() {
                    self.watch(turn.mesh.ring_event());
                }
            }
            Op::Tick => self.ticking = false,
            // A server connects to nobody.
            Op::Ignored | Op::Connect => {}
        }
    }

    /// Has the ring complete when another shard wakes this one. Each write completes once, so the event is never drained.
    fn watch(&mut self, ring_event: BorrowedFd<'_>) {
        self.ring.poll_multi(ring_event.as_raw_fd(), Token::WAKE);
    }
}
