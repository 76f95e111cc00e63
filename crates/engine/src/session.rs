//! One connection: its client's attributes, input that is not a whole command yet, replies owed and output to send.
//!
//! A session is a plain state machine without a socket: bytes go in, bytes come out. Running the commands is the
//! node's business (`node`).

use crate::args::OwnedArgs;
use crate::command::Command;
use crate::embedded::HeldCalls;
use crate::input::Input;
use crate::keyspace::Millis;
use crate::modes::Modes;
use crate::pubsub::Subscriptions;
use crate::reply_order::ReplyOrder;
use crate::slot::ShardId;
use crate::transaction::Transaction;
use bytes::Bytes;
use corelane_resp::{Parser, Proto, ProtocolError, Reply, Span};
use slab::Slab;
use std::cell::OnceCell;
use std::mem::MaybeUninit;

/// Replies a connection may owe before no more of its commands are run.
const OWED_MAX: usize = 4096;
/// And bytes of arguments that it may have on their way, which other shards keep until they can run the commands.
const OWED_LEN_MAX: usize = 4 << 20;
/// Unprocessed input after which a connection that cannot run commands is no longer read from.
const INPUT_BACKLOG_MAX: usize = 64 << 10;
/// Output that is not kept back for the sake of a fuller send.
pub(crate) const WITHHELD_MAX: usize = 16 << 10;
/// The generation of a session fits this many bits.
const GENERATION_MASK: u32 = (1 << 24) - 1;

/// Names a session: its place in the slab, and how often that place was used before.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SessionId {
    /// Place in the slab.
    pub idx: u32,
    /// Below 2^24; wraps.
    pub generation: u32,
}

/// The two ends of a connection, as CLIENT LIST shows them.
#[derive(Clone, Debug, Default)]
pub struct Ends {
    /// The other one.
    pub addr: String,
    /// Ours.
    pub laddr: String,
}

/// What the runtime knows of a new connection.
#[derive(Clone, Debug)]
pub struct Peer {
    /// The descriptor.
    pub fd: i32,
    /// A Unix socket.
    pub unix: bool,
    /// Finds out the ends of such a connection. Few clients are ever asked for theirs, and most short ones cannot be.
    pub find_ends: fn(&Self) -> Ends,
    ends: OnceCell<Box<Ends>>,
}

impl Default for Peer {
    fn default() -> Self {
        Self::new(0, false, |_| Ends::default())
    }
}

impl Peer {
    /// A connection whose ends `find_ends` tells, once, while it is open.
    pub const fn new(fd: i32, unix: bool, find_ends: fn(&Self) -> Ends) -> Self {
        Self { fd, unix, find_ends, ends: OnceCell::new() }
    }

    /// Whether it comes from this machine.
    pub fn is_local(&self) -> bool {
        let host = self.ends().addr.rsplit_once(':').map_or("", |(host, _)| host);
        let address = host.trim_start_matches('[').trim_end_matches(']').parse::<core::net::IpAddr>();
        self.unix || address.is_ok_and(|address| address.to_canonical().is_loopback())
    }

    /// The connection's ends.
    pub fn ends(&self) -> &Ends {
        self.ends.get_or_init(|| Box::new((self.find_ends)(self)))
    }
}

/// When the runtime must close a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CloseWhen {
    /// As soon as all output has been sent.
    AfterOutput,
    /// At once.
    Now,
}

/// Attributes of a client that commands read and change.
#[derive(Debug)]
pub struct Client {
    /// Unique in the process, counts up on each shard.
    pub id: u64,
    /// Its connection, on its shard.
    pub session: SessionId,
    /// Where it comes from.
    pub peer: Peer,
    /// CLIENT SETNAME.
    pub name: Box<[u8]>,
    /// CLIENT SETINFO LIB-NAME.
    pub lib_name: Box<[u8]>,
    /// CLIENT SETINFO LIB-VER.
    pub lib_version: Box<[u8]>,
    /// The selected database.
    pub db: usize,
    /// The protocol of its replies.
    pub proto: Proto,
    /// When it connected.
    pub created: Millis,
    /// When its last command came.
    pub last_active: Millis,
    /// The last command, and for a subcommand its container.
    pub last_command: (&'static str, Option<&'static str>),
    /// Bytes received.
    pub bytes_in: u64,
    /// Bytes sent.
    pub bytes_out: u64,
    /// Commands run.
    pub commands: u64,
    /// What it has asked for that few do.
    pub modes: Modes,
    /// Set by QUIT, CLIENT KILL and errors after which the connection makes no sense.
    pub close: Option<CloseWhen>,
    /// It may run all commands: it has given the password, or none was asked for when it came.
    pub authenticated: bool,
    /// Set by a command that blocks; no other is run before it is taken away.
    pub wait: Option<Box<Wait>>,
    /// Channels and patterns it listens to.
    pub(crate) subscriptions: Option<Box<Subscriptions>>,
    /// Since its first MULTI or WATCH.
    pub transaction: Option<Box<Transaction>>,
}

impl Client {
    /// A client as it is when it connects.
    pub(crate) fn new(id: u64, peer: Peer, now: Millis) -> Self {
        Self {
            id,
            peer,
            name: Box::default(),
            lib_name: Box::default(),
            lib_version: Box::default(),
            db: 0,
            proto: Proto::default(),
            created: now,
            last_active: now,
            last_command: ("NULL", None),
            bytes_in: 0,
            bytes_out: 0,
            commands: 0,
            modes: Modes::NONE,
            close: None,
            authenticated: true,
            wait: None,
            session: SessionId::default(),
            subscriptions: None,
            transaction: None,
        }
    }

    /// A line for the log: which client was dropped for having gone over a limit.
    #[cold]
    pub(crate) fn farewell(&self, limit: &str) -> String {
        let addr = &self.peer.ends().addr;
        format!(
            "closed client id={} addr={addr} name={}: it was over {limit}",
            self.id,
            self.name.escape_ascii()
        )
    }
}

/// What a client that is blocked waits for.
#[derive(Debug)]
pub struct Wait {
    /// When it is given up; `None` for never.
    pub until: Option<Millis>,
    /// Writes the reply that is due then.
    pub give_up: fn(&mut Reply),
}

/// What CLIENT PAUSE does to a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PauseState {
    /// Nothing.
    Running,
    /// A command waits for the end of the pause, and all behind it.
    Paused,
    /// The pause is over, the command is still to be run.
    Released,
}

impl Client {
    /// The other end, as CLIENT LIST shows it.
    pub fn addr(&self) -> &str {
        &self.peer.ends().addr
    }

    /// Our end.
    pub fn laddr(&self) -> &str {
        &self.peer.ends().laddr
    }

    /// A command over several shards is about to be answered: if it was MONITOR, everything after the answer is shown.
    pub(crate) fn transaction_ended(&mut self) {
        if self.modes.has(Modes::MONITOR_SOON) {
            self.modes.set(Modes::MONITOR_SOON, false);
            self.modes.set(Modes::MONITOR, true);
        }
    }
}

/// The shard that the client with this number is connected to.
pub(crate) const fn home_of(client_id: u64, shards: u16) -> ShardId {
    ShardId((client_id.saturating_sub(1) % shards as u64) as u16)
}

/// What a session holds beyond its client's attributes, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Memory {
    /// Input that is not run yet.
    pub(crate) input: usize,
    /// Room in its buffer beyond that.
    pub(crate) input_free: usize,
    /// Arguments of a command that waits or is not complete.
    pub(crate) arguments: usize,
    /// Output that has not left.
    pub(crate) output: usize,
    /// Room in the buffer that output is written to.
    pub(crate) output_room: usize,
}

impl Memory {
    /// All of it, and the session itself.
    pub(crate) fn total(&self) -> usize {
        let output = self.output.max(self.output_room);
        size_of::<Session>() + self.input + self.input_free + self.arguments + output
    }
}

/// A large argument that is being received into its own allocation.
#[derive(Debug)]
struct Bulk {
    payload: Vec<u8>,
    /// Payload and line end.
    want: usize,
}

/// A command whose beginning has arrived.
#[derive(Debug, Default)]
pub(crate) struct Partial {
    pub(crate) spans: Vec<Span>,
    pub(crate) owned: Vec<Bytes>,
}

/// One connection.
#[derive(Debug)]
pub struct Session {
    /// What commands see of it.
    pub client: Client,
    pub(crate) out: Reply,
    /// Output that the runtime has taken but not sent.
    unsent: usize,
    pub(crate) order: ReplyOrder,
    /// Length of the arguments of all commands sent away since no reply was owed.
    owed_len: usize,
    pub(crate) input: Input,
    pub(crate) parser: Parser,
    pub(crate) partial: Option<Box<Partial>>,
    bulk: Option<Box<Bulk>>,
    /// A command that waits: one over several shards for all replies before it, or any for the end of a pause.
    pub(crate) blocked: Option<Box<(&'static Command, OwnedArgs)>>,
    /// A command over several shards is under way.
    pub(crate) in_transaction: bool,
    /// Whether `blocked` waits for the end of a pause.
    pub(crate) pause: PauseState,
    /// Listed for the runtime.
    pub(crate) dirty: bool,
    /// Listed because its output waits for replies of other shards.
    pub(crate) withheld: bool,
    /// Listed for being run on.
    pub(crate) resuming: bool,
    /// Commands were left over because the session could not run on; not the beginning of one.
    pub(crate) held_up: bool,
    /// What the runtime was last told.
    reading: bool,
    /// The runtime waits for it to be settled, in order to close its connection.
    pub(crate) ending: bool,
    /// Since when its output has been over the soft limit.
    pub(crate) over_soft_since: Option<Millis>,
    /// Belongs to the embedding program instead of a connection: other clients do not see it, and its replies are taken
    /// when all are there.
    pub(crate) embedded: bool,
    /// The commands of such a session that wait to be run.
    pub(crate) calls: Option<Box<HeldCalls>>,
    /// Nobody is left to take the replies of such a session: it waits for no keys.
    pub(crate) unwanted: bool,
}

/// What the runtime has to do for a session.
pub struct IoState<'a> {
    /// Send this; take it with [`Reply::take`] when no earlier send is under way.
    pub output: &'a mut Reply,
    /// Whether to go on receiving.
    pub read: bool,
    /// Whether to close.
    pub close: Option<CloseWhen>,
    /// Whether commands that have arrived whole are still to be answered: a connection whose peer has ended it waits for
    /// these answers, but not for those behind a command that waits.
    pub owes: bool,
    /// Whether a command waits, which nobody needs when the peer has gone.
    pub waits: bool,
}

impl Session {
    fn new(client: Client) -> Self {
        Self {
            client,
            out: Reply::default(),
            unsent: 0,
            order: ReplyOrder::default(),
            owed_len: 0,
            input: Input::default(),
            parser: Parser::new(),
            partial: None,
            bulk: None,
            blocked: None,
            in_transaction: false,
            pause: PauseState::Running,
            dirty: false,
            withheld: false,
            resuming: false,
            held_up: false,
            reading: true,
            ending: false,
            over_soft_since: None,
            embedded: false,
            calls: None,
            unwanted: false,
        }
    }

    /// Output that has not left the process.
    pub fn output_len(&self) -> usize {
        self.out.len() + self.unsent
    }

    /// Bytes of input that wait to be run, those included that wait for EXEC.
    pub fn input_len(&self) -> usize {
        let queued = self.client.transaction.as_ref().map_or(0, |transaction| transaction.bytes);
        self.input.len() + self.bulk.as_ref().map_or(0, |bulk| bulk.payload.len()) + queued
    }

    /// What it holds.
    pub(crate) fn memory(&self) -> Memory {
        let (bulk, room) = self.bulk.as_ref().map_or((0, 0), |bulk| (bulk.payload.len(), bulk.want));
        let blocked = self.blocked.as_ref().map_or(0, |blocked| blocked.1.args().bytes_len());
        let partial = self.partial.as_ref().map_or(0, |partial| partial.owned.iter().map(Bytes::len).sum());
        Memory {
            input: self.input.len() + bulk,
            input_free: self.input.free() + room - bulk,
            arguments: blocked + partial,
            output: self.output_len(),
            output_room: self.out.buf.capacity(),
        }
    }

    /// Whether the next command may be run now.
    #[inline]
    pub(crate) fn can_run(&self, output_backlog_max: usize) -> bool {
        !self.in_transaction
            && self.pause != PauseState::Paused
            && (self.blocked.is_none() || self.order.is_empty())
            && self.client.close.is_none()
            && self.client.wait.is_none()
            && (self.order.is_empty() || self.order.len() < OWED_MAX && self.owed_len <= OWED_LEN_MAX)
            && (self.output_len() + self.order.held_len() <= output_backlog_max || self.embedded)
    }

    /// A place for the reply to a command that is sent away with so many bytes of arguments: its sequence number.
    #[inline]
    pub(crate) fn reserve_reply(&mut self, args_len: usize) -> u32 {
        if self.order.is_empty() {
            self.owed_len = 0;
        }
        self.owed_len += args_len;
        self.order.reserve(self.client.modes.mutes())
    }

    /// Whether everything it was asked has been answered, or will never be.
    pub(crate) fn is_settled(&self) -> bool {
        if self.unwanted && self.client.wait.is_some() {
            return true;
        }
        let waits = self.in_transaction || self.client.wait.is_some() || self.resuming;
        let idle = self.order.is_empty() && !waits && !self.has_work();
        idle || self.client.close.is_some()
    }

    /// Whether there is something to run once it may be.
    pub(crate) fn has_work(&self) -> bool {
        self.blocked.is_some() || self.held_up
    }

    /// Whether it is better to send nothing yet: replies of other shards are on their way, or a command over several shards
    /// is under way, and one send for all costs a fraction of two.
    #[inline]
    pub(crate) fn may_withhold(&self) -> bool {
        (!self.order.is_empty() || self.in_transaction)
            && self.out.len() < WITHHELD_MAX
            && self.client.close.is_none()
    }

    /// Whether a command waits that nobody needs when the peer has gone: for keys, for replicas, or for the end of a pause.
    pub(crate) fn is_waiting(&self) -> bool {
        self.client.wait.is_some() || self.pause == PauseState::Paused
    }

    /// Whether the runtime looks out for the end of its connection: nobody needs what waits then, and what is settled is closed.
    pub(crate) fn may_end(&self) -> bool {
        self.ending || self.is_waiting()
    }

    /// Whether replies are under way that do not depend on what the client does.
    pub(crate) fn is_owed(&self) -> bool {
        !self.order.is_empty() || self.in_transaction || self.resuming
    }

    fn wants_read(&self, output_backlog_max: usize) -> bool {
        self.client.close.is_none()
            && (self.input.len() < INPUT_BACKLOG_MAX || self.can_run(output_backlog_max) && !self.resuming)
    }

    /// Whether what the runtime was told about reading is out of date.
    pub(crate) fn reading_changed(&self, output_backlog_max: usize) -> bool {
        self.reading != self.wants_read(output_backlog_max)
    }

    pub(crate) fn io_state(&mut self, output_backlog_max: usize) -> IoState<'_> {
        self.reading = self.wants_read(output_backlog_max);
        let settled = self.order.is_empty() && !self.in_transaction;
        let close = match self.client.close {
            Some(CloseWhen::AfterOutput) if !settled => None,
            other => other,
        };
        let waits = self.is_waiting();
        let owes = !settled || self.has_work() && !waits || self.resuming;
        IoState { output: &mut self.out, read: self.reading, close, owes, waits }
    }

    /// The runtime has taken so many bytes of output.
    pub(crate) fn output_taken(&mut self, bytes: usize) {
        self.unsent += bytes;
    }

    pub(crate) fn output_sent(&mut self, bytes: usize) {
        self.unsent = self.unsent.saturating_sub(bytes);
        self.client.bytes_out += bytes as u64;
    }

    /// Makes room for a large argument; false if there is none in memory.
    pub(crate) fn begin_bulk(&mut self, len: usize) -> bool {
        let mut payload = Vec::new();
        if payload.try_reserve_exact(len + 2).is_err() {
            return false;
        }
        self.bulk = Some(Box::new(Bulk { payload, want: len + 2 }));
        true
    }

    /// Whether a large argument is being received.
    pub(crate) fn in_bulk(&self) -> bool {
        self.bulk.is_some()
    }

    /// Takes what belongs to the large argument from the front of `bytes`; returns how much that was.
    pub(crate) fn fill_bulk(&mut self, bytes: &[u8]) -> usize {
        let Some(bulk) = &mut self.bulk else { return 0 };
        let taken = bytes.len().min(bulk.want - bulk.payload.len());
        bulk.payload.extend_from_slice(&bytes[..taken]);
        taken
    }

    /// Where the next bytes of the large argument go.
    pub(crate) fn bulk_space(&mut self) -> Option<&mut [MaybeUninit<u8>]> {
        let bulk = self.bulk.as_mut()?;
        let missing = bulk.want - bulk.payload.len();
        Some(&mut bulk.payload.spare_capacity_mut()[..missing])
    }

    /// So many bytes of `bulk_space` have been written.
    pub(crate) fn bulk_filled(&mut self, len: usize) {
        if let Some(bulk) = &mut self.bulk {
            let filled = bulk.payload.len() + len;
            assert!(filled <= bulk.want, "more was received than there was room for");
            // SAFETY: the capacity is `want`, and the caller has initialised `len` bytes behind the present length
            // through `bulk_space`.
            unsafe { bulk.payload.set_len(filled) };
        }
    }

    /// If the large argument is complete, adds it to the arguments; `None` if it is not yet.
    pub(crate) fn finish_bulk(&mut self) -> Option<Result<(), ProtocolError>> {
        let mut bulk = self.bulk.take_if(|bulk| bulk.payload.len() == bulk.want)?;
        let len = match Parser::payload_of(&bulk.payload) {
            Ok(payload) => payload.len(),
            Err(error) => return Some(Err(error)),
        };
        bulk.payload.truncate(len);
        let partial = self.partial.get_or_insert_default();
        partial.owned.push(Bytes::from(std::mem::take(&mut bulk.payload)));
        self.parser.bulk_taken(&mut partial.spans, partial.owned.len() - 1);
        Some(Ok(()))
    }
}

/// The sessions of one shard.
#[derive(Debug, Default)]
pub struct Sessions {
    slab: Slab<(u32, Session)>,
    /// How many of them are the embedding program's.
    embedded: usize,
    generation: u32,
    opened: u64,
}

impl Sessions {
    /// Connections open.
    pub fn len(&self) -> usize {
        self.slab.len() - self.embedded
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// All but those of the embedding program.
    pub fn iter(&self) -> impl Iterator<Item = &Session> {
        self.slab.iter().map(|(_, (_, session))| session).filter(|session| !session.embedded)
    }

    /// The same with their names.
    pub fn iter_ids(&self) -> impl Iterator<Item = (SessionId, &Session)> {
        let all = self.slab.iter().map(|(idx, (generation, session))| {
            (SessionId { idx: idx as u32, generation: *generation }, session)
        });
        all.filter(|(_, session)| !session.embedded)
    }

    /// A session, unless it has been closed.
    #[inline]
    pub fn get_mut(&mut self, id: SessionId) -> Option<&mut Session> {
        match self.slab.get_mut(id.idx as usize) {
            Some((generation, session)) if *generation == id.generation => Some(session),
            _ => None,
        }
    }

    /// `shard` and `shards` make the client's id unique in the process.
    pub(crate) fn open(&mut self, peer: Peer, now: Millis, shard: u16, shards: u16) -> SessionId {
        self.opened += 1;
        self.generation = (self.generation + 1) & GENERATION_MASK;
        let client = Client::new((self.opened - 1) * u64::from(shards) + u64::from(shard) + 1, peer, now);
        let entry = self.slab.vacant_entry();
        let id = SessionId { idx: entry.key() as u32, generation: self.generation };
        entry.insert((self.generation, Session::new(Client { session: id, ..client })));
        id
    }

    /// A session of the embedding program.
    pub(crate) fn open_embedded(&mut self, now: Millis, shard: u16, shards: u16) -> SessionId {
        let id = self.open(Peer::default(), now, shard, shards);
        if let Some(session) = self.get_mut(id) {
            session.embedded = true;
            self.embedded += 1;
        }
        id
    }

    /// The connections that replies of other shards are owed to.
    pub(crate) fn owed(&self) -> Vec<SessionId> {
        self.iter_ids().filter(|(_, session)| !session.order.is_empty()).map(|(id, _)| id).collect()
    }

    pub(crate) fn close(&mut self, id: SessionId) -> bool {
        let Some(session) = self.get_mut(id) else { return false };
        self.embedded -= usize::from(session.embedded);
        self.slab.remove(id.idx as usize);
        true
    }
}
