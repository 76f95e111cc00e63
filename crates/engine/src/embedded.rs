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
use corelane_resp::{Proto, Reply, Span};

/// Words of this length and more get an allocation of their own, which becomes the stored value.
const SHARED_LEN_MIN: usize = 16 << 10;
/// Bytes and words of a usual command, for reservations.
const COMMAND_LEN_GUESS: usize = 48;
const COMMAND_WORDS_GUESS: usize = 3;
/// Bytes of a usual reply in a batch.
const REPLY_LEN_GUESS: usize = 64;
/// Bytes after which shorter words, too, get allocations of their own: their places have to fit into 32 bits, and a larger
/// piece of memory is moved whenever it grows.
const DATA_LEN_MAX: usize = 128 << 20;

/// Commands of one message that are run at a time; the rest waits for later turns, as a connection's would.
const PIECE_CALLS: usize = 256;

/// Commands on their way to one shard, and the database they are for. Their replies come in the same order.
#[derive(Clone, Debug, Default)]
pub struct Calls {
    db: usize,
    data: Vec<u8>,
    spans: Vec<Span>,
    owned: Vec<Bytes>,
    /// Where each command ends.
    ends: Vec<End>,
}

/// Where a command ends in `spans` and in `owned`.
#[derive(Clone, Copy, Debug, Default)]
struct End {
    span: usize,
    owned: usize,
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
    #[inline]
    pub fn word(&mut self, word: &[u8]) {
        let start = self.data.len();
        if word.len() >= SHARED_LEN_MIN || start + word.len() > DATA_LEN_MAX {
            return self.own(Bytes::copy_from_slice(word));
        }
        self.data.extend_from_slice(word);
        self.spans.push(Span::new(start, self.data.len()));
    }

    /// The next word of the command that is being written, not copied if it is long.
    pub fn shared(&mut self, word: Bytes) {
        if word.len() < SHARED_LEN_MIN {
            return self.word(&word);
        }
        self.own(word);
    }

    fn own(&mut self, word: Bytes) {
        self.spans.push(Span::owned(self.owned.len() - self.last_end().owned));
        self.owned.push(word);
    }

    fn last_end(&self) -> End {
        self.ends.last().copied().unwrap_or_default()
    }

    /// The command that is being written is complete. One without words is none.
    #[inline]
    pub fn end(&mut self) {
        if self.spans.len() > self.last_end().span {
            self.ends.push(End { span: self.spans.len(), owned: self.owned.len() });
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
        let start = if idx == 0 { End::default() } else { self.ends[idx - 1] };
        let end = self.ends[idx];
        Args::new(&self.data, &self.spans[start.span..end.span], &self.owned[start.owned..end.owned])
    }

    /// Forgets the commands and keeps their memory.
    pub fn clear(&mut self) {
        self.data.clear();
        self.spans.clear();
        self.owned.clear();
        self.ends.clear();
    }
}

/// Commands that a session has still to run.
#[derive(Debug)]
pub(crate) struct HeldCalls {
    calls: Calls,
    /// The first of them.
    next: usize,
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
}

impl Router {
    /// For that many shards.
    #[must_use]
    pub fn new(shards: u16) -> Self {
        Self { table: CommandTable::new(), slots: SlotMap::new(shards) }
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
    /// There is no such command, its arguments are too few or too many, it acts on a connection (SELECT, HELLO, MONITOR …), of
    /// which an embedding program has none, or it is SHUTDOWN.
    pub fn route(&self, args: Args<'_>) -> Result<Route, Error> {
        let command = match self.table.find(args) {
            Lookup::Command(_, command) | Lookup::Subcommand(_, _, command) => command,
            Lookup::Failed(error) | Lookup::Refused(_, error) => return Err(error),
        };
        if acts_on_connection(command) {
            return Err(Error::owned(format!(
                "ERR '{}' acts on a connection, and an embedded cache has none",
                String::from_utf8_lossy(args.at(0))
            )));
        }
        if command.name == "shutdown" {
            return Err(Error::owned(
                "ERR 'SHUTDOWN' ends a server; call stop to end an embedded cache".to_owned(),
            ));
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
    /// Runs commands of the embedding program. A word longer than `proto-max-bulk-len` is an error of its command.
    pub fn call(&mut self, calls: Calls, now: Millis) -> Called {
        let shard = &self.core.shard;
        let id = self.sessions.open_embedded(now, shard.me.0, shard.slots.shards());
        if let Some(session) = self.sessions.get_mut(id) {
            session.client.proto = Proto::Resp3;
            session.client.db = calls.db;
            if calls.len() > 1 {
                session.out.buf.reserve(calls.len().min(PIECE_CALLS) * REPLY_LEN_GUESS);
            }
            self.core.shard.timing.begin();
            let held = HeldCalls { calls, next: 0 };
            self.core.run_calls(&mut self.coordinator, &mut self.participant, session, id, held, now);
        }
        self.pump(now);
        self.take_answer(id).map_or(Called::Later(id), Called::Done)
    }

    /// Nobody is left to take the replies of calls that had to wait. What blocks them ends, now or when they come to it, as for a
    /// client whose peer has gone, and with it what is behind; everything else runs to its end. True when that has come, and
    /// [`Self::take_answers`] will not name them.
    pub fn see_off(&mut self, id: SessionId, now: Millis) -> bool {
        let Some(session) = self.sessions.get_mut(id) else { return true };
        session.unwanted = true;
        let over = session.client.wait.is_some();
        if over {
            self.close(id);
            self.pump(now);
        }
        over
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
    /// Runs what may be run now, or the first piece of it; the session keeps the rest.
    pub(crate) fn run_calls(
        &mut self,
        coordinator: &mut Coordinator,
        participant: &mut Participant,
        session: &mut Session,
        id: SessionId,
        held: HeldCalls,
        now: Millis,
    ) {
        let mut peers = Peers { coordinator, participant };
        let backlog_max = self.shard.settings.output_backlog_max;
        let HeldCalls { calls, next: from } = held;
        let began = self.shard.timing.last();
        let (mut next, mut in_time) = (from, true);
        while next < calls.len() && in_time && next - from < PIECE_CALLS && session.can_run(backlog_max) {
            if next.is_multiple_of(WARM_MAX) && calls.len() > 1 {
                self.warm_calls(&calls, next);
            }
            self.shard.timing.place = next;
            self.run_call(&mut peers, session, id, &calls, next, now);
            in_time = !self.shard.timing.is_over(began);
            next += 1;
        }
        self.shard.timing.end_run();
        if let Some(stalled) = self.shard.timing.take_stalled() {
            self.note_stalled(&session.client, stalled, calls.args(stalled.place), now);
        }
        session.held_up = next < calls.len();
        if session.held_up {
            if session.can_run(backlog_max) && !session.resuming {
                session.resuming = true;
                self.later.push_back(id);
            }
            session.calls = Some(Box::new(HeldCalls { calls, next }));
        }
        self.after_change(session, id);
    }

    #[inline]
    fn run_call(
        &mut self,
        peers: &mut Peers<'_>,
        session: &mut Session,
        id: SessionId,
        calls: &Calls,
        idx: usize,
        now: Millis,
    ) {
        let args = calls.args(idx);
        let word_len_max = self.shard.settings.proto_max_bulk_len;
        if args.owned().iter().any(|word| word.len() > word_len_max) {
            self.answer(session, |_, _, _| Err(Error::StringTooLong));
            return;
        }
        self.request_bytes = args.request_bytes();
        self.run_command(peers, session, id, args, now);
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
