//! Commands that the program around the shards asks for itself: they come without bytes of a protocol, and their replies go
//! back to the caller instead of a socket.
//!
//! The caller finds out by a [`Router`] which shard a command belongs to, and puts it into [`Calls`] for that shard. There
//! [`Node::call`] runs them in a session of their own that no other client sees: what a command waits for (intents, other
//! shards, a pause) and what is counted and watched are the same as for a connection.

use crate::args::Args;
use crate::command::{Command, Flags, Plan};
use crate::commands::{CommandTable, Lookup};
use crate::coordinator::Coordinator;
use crate::dispatch::{Peers, needs_all_shards};
use crate::errors::Error;
use crate::keyspace::{KnownKey, Millis, WARM_MAX};
use crate::node::{Core, Node};
use crate::participant::Participant;
use crate::session::{Session, SessionId};
use crate::slot::{ShardId, SlotMap, slot_of};
use bytes::Bytes;
use corelane_resp::{Proto, Reply, Span, encode_command};

/// Words of this length and more get an allocation of their own, which becomes the stored value.
const SHARED_LEN_MIN: usize = 16 << 10;
/// Bytes and words of a usual command, for reservations.
const COMMAND_LEN_GUESS: usize = 48;
const COMMAND_WORDS_GUESS: usize = 3;
/// Bytes of a usual reply in a batch.
const REPLY_LEN_GUESS: usize = 64;
/// Bytes that the shorter words of one message may have together, so that their places fit into 32 bits.
const DATA_LEN_MAX: usize = 1 << 30;

/// Commands of one message that are run at a time; the rest waits for later turns, as a connection's would.
const PIECE_CALLS: usize = 256;

/// Commands on their way to one shard, and the database they are for. Their replies come in the same order.
#[derive(Clone, Debug, Default)]
pub struct Calls {
    db: usize,
    data: Vec<u8>,
    spans: Vec<Span>,
    owned: Vec<Bytes>,
    /// Where each command ends in `spans`.
    ends: Vec<usize>,
}

impl Calls {
    /// None yet.
    #[must_use]
    pub fn new(db: usize) -> Self {
        Self { db, ..Self::default() }
    }

    /// The same, with memory for that many commands of a few short words each.
    #[must_use]
    pub fn with_capacity(db: usize, commands: usize) -> Self {
        Self {
            db,
            data: Vec::with_capacity(commands * COMMAND_LEN_GUESS),
            spans: Vec::with_capacity(commands * COMMAND_WORDS_GUESS),
            owned: Vec::new(),
            ends: Vec::with_capacity(commands),
        }
    }

    /// How many commands there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// The next word of the command that is being written.
    ///
    /// # Panics
    /// The words shorter than 16 KiB have more than 1 GiB together.
    #[inline]
    pub fn word(&mut self, word: &[u8]) {
        if word.len() >= SHARED_LEN_MIN {
            return self.shared(Bytes::copy_from_slice(word));
        }
        let start = self.data.len();
        assert!(start < DATA_LEN_MAX, "one message holds at most 1 GiB of short words");
        self.data.extend_from_slice(word);
        self.spans.push(Span::new(start, self.data.len()));
    }

    /// The next word of the command that is being written, not copied if it is long.
    pub fn shared(&mut self, word: Bytes) {
        if word.len() < SHARED_LEN_MIN {
            return self.word(&word);
        }
        self.spans.push(Span::owned(self.owned.len()));
        self.owned.push(word);
    }

    /// The command that is being written is complete. One without words is none.
    #[inline]
    pub fn end(&mut self) {
        let written = self.ends.last().copied().unwrap_or_default();
        if self.spans.len() > written {
            self.ends.push(self.spans.len());
        }
    }

    /// Appends a whole command.
    #[inline]
    pub fn push(&mut self, args: Args<'_>) {
        for idx in 0..args.len() {
            match args.shared(idx) {
                Some(word) => self.shared(word.clone()),
                None => self.word(args.at(idx)),
            }
        }
        self.end();
    }

    /// Command number `idx`, which must exist.
    #[inline]
    #[must_use]
    pub fn args(&self, idx: usize) -> Args<'_> {
        let start = if idx == 0 { 0 } else { self.ends[idx - 1] };
        Args::new(&self.data, &self.spans[start..self.ends[idx]], &self.owned)
    }

    /// Forgets the commands and keeps their memory.
    pub fn clear(&mut self) {
        self.data.clear();
        self.spans.clear();
        self.owned.clear();
        self.ends.clear();
    }
}

/// Where a command is to be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Route {
    /// To this shard, which has all it needs.
    Shard(ShardId),
    /// To any shard.
    Any,
    /// To any shard: it coordinates others, this one among them.
    Several(ShardId),
}

/// Knows which shard a command belongs to.
pub struct Router {
    table: CommandTable,
    slots: SlotMap,
    word_len_max: usize,
}

impl Router {
    /// For that many shards, and words of at most so many bytes (`proto-max-bulk-len`).
    #[must_use]
    pub fn new(shards: u16, word_len_max: usize) -> Self {
        Self { table: CommandTable::new(), slots: SlotMap::new(shards), word_len_max }
    }

    /// The shard that owns a key.
    #[inline]
    #[must_use]
    pub fn owner(&self, key: &[u8]) -> ShardId {
        self.slots.owner(slot_of(key))
    }

    /// Where a command goes.
    ///
    /// # Errors
    /// There is no such command, its arguments are too few, too many or too long, or it acts on a connection (SELECT, HELLO,
    /// MONITOR …), of which an embedding program has none.
    pub fn route(&self, args: Args<'_>) -> Result<Route, Error> {
        let command = match self.table.find(args) {
            Lookup::Command(_, command) | Lookup::Subcommand(_, _, command) => command,
            Lookup::Failed(error) | Lookup::Refused(_, error) => return Err(error),
        };
        if args.iter_from(0).any(|word| word.len() > self.word_len_max) {
            return Err(Error::StringTooLong);
        }
        if acts_on_connection(command) {
            return Err(Error::owned(format!(
                "ERR '{}' acts on a connection, and an embedded cache has none",
                String::from_utf8_lossy(args.at(0))
            )));
        }
        Ok(match command.plan {
            Plan::Session(_) | Plan::Exec | Plan::Container => Route::Any,
            Plan::OneShard(_) => match command.keys {
                [spec, ..] if spec.begin < args.len() => Route::Shard(self.owner(args.at(spec.begin))),
                _ => Route::Any,
            },
            Plan::Routed { route, .. } => Route::Shard(self.slots.owner(route(args)?)),
            Plan::EachShard { .. } | Plan::Staged { .. } => self.route_keys(command, args),
        })
    }

    fn route_keys(&self, command: &Command, args: Args<'_>) -> Route {
        if needs_all_shards(command, args) {
            return Route::Several(ShardId(0));
        }
        let Some(range) = command.key_range(args) else { return Route::Any };
        let mut owners = range.indices().filter_map(|idx| args.get(idx)).map(|key| self.owner(key));
        let Some(first) = owners.next() else { return Route::Any };
        if owners.all(|owner| owner == first) { Route::Shard(first) } else { Route::Several(first) }
    }
}

impl std::fmt::Debug for Router {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Router").field("shards", &self.slots.shards()).finish_non_exhaustive()
    }
}

/// Whether a command reads or changes the state of the connection it comes on.
fn acts_on_connection(command: &Command) -> bool {
    let stateless = matches!(command.name, "ping" | "echo");
    let in_session = command.group == "connection" && matches!(command.plan, Plan::Session(_));
    let listens = command.flags.has(Flags::PUBSUB) && matches!(command.plan, Plan::Session(_));
    in_session && !stateless
        || listens && command.name != "numpat"
        || command.group == "connection" && command.name == "info"
        || command.name == "monitor"
        || command.group == "transactions"
}

/// What became of calls.
#[derive(Debug)]
pub enum Called {
    /// Their replies, in RESP3 and in order.
    Done(Reply),
    /// They wait for something; [`Node::take_answers`] will name them by this.
    Later(SessionId),
}

impl Node {
    /// Runs commands of the embedding program.
    pub fn call(&mut self, calls: &Calls, now: Millis) -> Called {
        let shard = &self.core.shard;
        let id = self.sessions.open_embedded(now, shard.me.0, shard.slots.shards());
        if let Some(session) = self.sessions.get_mut(id) {
            session.client.proto = Proto::Resp3;
            session.client.db = calls.db;
            if calls.len() > 1 {
                session.out.buf.reserve(calls.len().min(PIECE_CALLS) * REPLY_LEN_GUESS);
            }
            self.core.shard.timing.begin();
            self.core.run_calls(&mut self.coordinator, &mut self.participant, session, id, calls, now);
        }
        self.pump(now);
        self.take_answer(id).map_or(Called::Later(id), Called::Done)
    }

    /// Appends the calls that had to wait and are answered now.
    pub fn take_answers(&mut self, into: &mut Vec<(SessionId, Reply)>) {
        while let Some(id) = self.core.answered.pop() {
            // One that was answered at once, or is listed twice, is gone.
            into.extend(self.take_answer(id).map(|reply| (id, reply)));
        }
    }

    fn take_answer(&mut self, id: SessionId) -> Option<Reply> {
        let session = self.sessions.get_mut(id).filter(|session| session.is_settled())?;
        let reply = session.out.take();
        self.close(id);
        Some(reply)
    }
}

impl Core {
    /// Runs what may be run now; the session keeps the rest as if it had arrived on a connection.
    fn run_calls(
        &mut self,
        coordinator: &mut Coordinator,
        participant: &mut Participant,
        session: &mut Session,
        id: SessionId,
        calls: &Calls,
        now: Millis,
    ) {
        let mut peers = Peers { coordinator, participant };
        let backlog_max = self.shard.settings.output_backlog_max;
        for idx in 0..calls.len() {
            if idx.is_multiple_of(WARM_MAX) && calls.len() > 1 {
                self.warm_calls(calls, idx);
            }
            if !session.can_run(backlog_max) {
                session.hold(&rest_of(calls, idx));
                break;
            }
            if idx == PIECE_CALLS {
                session.hold(&rest_of(calls, idx));
                session.resuming = true;
                self.later.push_back(id);
                break;
            }
            self.run_command(&mut peers, session, id, calls.args(idx), now);
        }
        self.after_change(session, id);
    }

    /// Has the keys of the commands from `from` on loaded while there is still something else to do.
    fn warm_calls(&self, calls: &Calls, from: usize) {
        let hasher = self.shard.keyspace.hasher();
        let mut keys = [KnownKey::default(); WARM_MAX];
        let mut count = 0;
        for idx in from..calls.len().min(from + WARM_MAX) {
            if let Some(key) = calls.args(idx).get(1) {
                let key = hasher.key(key);
                if self.shard.slots.owner(key.slot) == self.shard.me {
                    keys[count] = KnownKey::new(key);
                    count += 1;
                }
            }
        }
        self.shard.keyspace.warm(calls.db, &keys[..count]);
    }
}

/// The commands from `from` on as a client would send them.
fn rest_of(calls: &Calls, from: usize) -> Vec<u8> {
    let mut rest = Vec::new();
    for idx in from..calls.len() {
        let words: Vec<&[u8]> = calls.args(idx).iter_from(0).collect();
        encode_command(&mut rest, &words);
    }
    rest
}
