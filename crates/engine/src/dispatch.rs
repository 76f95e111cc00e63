//! From bytes to commands, and from a command to the place where it runs.

use crate::ahead::Ahead;
use crate::args::{Args, OwnedArgs};
use crate::command::{Command, Flags, Plan, Scope};
use crate::commands::Lookup;
use crate::coordinator::Coordinator;
use crate::ctx::{SessionCtx, write_error};
use crate::errors::Error;
use crate::execute::{run_whole, shard_of};
use crate::failover::SHARD_FAILED;
use crate::keyspace::{Millis, WARM_MAX};
use crate::message::{Batch, RequestHead};
use crate::modes::Modes;
use crate::node::{Core, Node};
use crate::participant::{Origin, Participant};
use crate::session::{Client, CloseWhen, PauseState, Session, SessionId};
use crate::slot::{ShardId, Slot};
use crate::timing::Answered;
use corelane_resp::{Parser, ProtocolError, Reply, Step};

/// How far the commands of some input could be run.
enum Ran {
    /// Nothing complete is left, or the session may not run on.
    Stopped,
    /// [`PIECE_COMMANDS`] have been run; there may be more.
    Paused,
    /// A large argument starts at this offset behind the bytes used.
    NeedBulk { start: usize, len: usize },
}

/// Commands of one client's input that are run at a time; the rest waits for the next turn. One that sets a new key costs up to
/// 5 µs where its memory is touched for the first time.
const PIECE_COMMANDS: usize = 128;

impl Core {
    /// Takes input in, and runs what is complete in it, or the first piece of that.
    pub(crate) fn consume(
        &mut self,
        coordinator: &mut Coordinator,
        participant: &mut Participant,
        session: &mut Session,
        id: SessionId,
        mut bytes: &[u8],
        now: Millis,
    ) {
        let mut paused = false;
        loop {
            if session.in_bulk() {
                let taken = session.fill_bulk(bytes);
                bytes = &bytes[taken..];
                match session.finish_bulk() {
                    None => break,
                    Some(Ok(())) => {}
                    Some(Err(error)) => self.protocol_error(session, error),
                }
            }
            if !session.can_run(self.shard.settings.output_backlog_max) {
                session.input.push(bytes);
                break;
            }
            let mut peers = Peers { coordinator, participant };
            if session.input.is_empty() {
                let (used, ran) = self.run_input(&mut peers, session, id, bytes, now);
                let Ran::NeedBulk { start, len } = ran else {
                    session.input.push(&bytes[used..]);
                    paused = matches!(ran, Ran::Paused);
                    break;
                };
                session.input.push(&bytes[used..used + start]);
                bytes = &bytes[used + start..];
                self.begin_bulk(session, len);
            } else {
                session.input.push(bytes);
                let mut input = std::mem::take(&mut session.input);
                let (used, ran) = self.run_input(&mut peers, session, id, input.bytes(), now);
                input.consume(used);
                session.input = input;
                let Ran::NeedBulk { start, len } = ran else {
                    paused = matches!(ran, Ran::Paused);
                    break;
                };
                let rest = session.input.split_off(start);
                self.begin_bulk(session, len);
                return self.consume(coordinator, participant, session, id, &rest, now);
            }
        }
        session.held_up =
            !session.input.is_empty() && !session.can_run(self.shard.settings.output_backlog_max);
        if paused && !session.held_up && !session.input.is_empty() && !session.resuming {
            session.resuming = true;
            self.later.push_back(id);
        }
        if session.input_len() > self.shard.settings.query_buffer_limit {
            self.shard.stats.query_limit_disconnections += 1;
            session.client.close = Some(CloseWhen::Now);
        }
        self.after_change(session, id);
    }

    fn begin_bulk(&mut self, session: &mut Session, len: usize) {
        if !session.begin_bulk(len) {
            self.answer(session, |_, _, _| {
                Err(Error::text("ERR not enough memory for an argument of this length"))
            });
            session.client.close = Some(CloseWhen::AfterOutput);
        }
    }

    /// A session that was held up may run again: the command it was held up with first, then its input.
    pub(crate) fn resume_session(
        &mut self,
        coordinator: &mut Coordinator,
        participant: &mut Participant,
        session: &mut Session,
        id: SessionId,
        now: Millis,
    ) {
        if session.can_run(self.shard.settings.output_backlog_max)
            && let Some(blocked) = session.blocked.take()
        {
            let (command, args) = *blocked;
            let mut peers = Peers { coordinator, participant };
            self.running = self.table.id_of(args.args());
            self.request_bytes = args.args().request_bytes();
            if session.pause == PauseState::Running {
                self.dispatch(&mut peers, session, id, command, args.args(), now);
            } else {
                session.pause = PauseState::Running;
                self.count(session, 1);
                self.run_watched(&mut peers, session, id, command, args.args(), now);
            }
            self.note_if_large(session, command, args.args(), now);
            self.shard.timing.end_run();
            if let Some(stalled) = self.shard.timing.take_stalled() {
                self.note_stalled(&session.client, stalled, args.args(), now);
            }
        }
        self.consume(coordinator, participant, session, id, &[], now);
    }

    /// Runs the complete commands at the front of `data`; returns how many bytes are done with.
    fn run_input(
        &mut self,
        peers: &mut Peers<'_>,
        session: &mut Session,
        id: SessionId,
        data: &[u8],
        now: Millis,
    ) -> (usize, Ran) {
        let mut ahead = std::mem::take(&mut self.ahead);
        ahead.spans[0].clear();
        if let Some(partial) = session.partial.take() {
            (ahead.spans[0], ahead.owned) = (partial.spans, partial.owned);
        }
        let (mut used, mut commands) = (0, 0);
        let mut ran = Ran::Stopped;
        while session.can_run(self.shard.settings.output_backlog_max) {
            let stop = ahead.parse(&mut session.parser, &data[used..], &self.limits);
            if ahead.len > 1 {
                self.warm(session.client.db, &ahead, &data[used..]);
            }
            let base = used;
            for idx in 0..ahead.len {
                if !session.can_run(self.shard.settings.output_backlog_max) {
                    break;
                }
                let args = Args::new(&data[base + ahead.starts[idx]..], &ahead.spans[idx], &ahead.owned);
                used = base + ahead.starts[idx + 1];
                if args.is_empty() {
                    session.client.modes.next_command();
                } else {
                    self.request_bytes = ahead.request_bytes(idx);
                    self.shard.timing.place = idx;
                    self.run_command(peers, session, id, args, now);
                }
            }
            self.end_run(&session.client, &ahead, &data[base..], now);
            if !session.can_run(self.shard.settings.output_backlog_max) {
                // What was read ahead is read again later, an error too: its reply comes after those that are missing.
                session.parser = Parser::new();
                break;
            }
            commands += ahead.len;
            match stop {
                None if commands >= PIECE_COMMANDS => {
                    ran = Ran::Paused;
                    break;
                }
                None => ahead.spans[0].clear(),
                Some(Ok(Step::NeedBulk { start, len })) => {
                    session.partial = Some(ahead.take_partial());
                    ran = Ran::NeedBulk { start, len };
                    break;
                }
                Some(Ok(_)) => {
                    if !ahead.spans[ahead.len].is_empty() {
                        session.partial = Some(ahead.take_partial());
                    }
                    break;
                }
                Some(Err(error)) => {
                    self.protocol_error(session, error);
                    used = data.len();
                    break;
                }
            }
        }
        ahead.owned.clear();
        self.ahead = ahead;
        (used, ran)
    }

    /// Has the keys of commands that were read ahead loaded while there is still something else to do. What is not a
    /// key does no harm.
    fn warm(&self, db: usize, ahead: &Ahead, data: &[u8]) {
        let hasher = self.shard.keyspace.hasher();
        let mut keys = [(0, Slot(0)); WARM_MAX];
        let mut count = 0;
        for idx in 0..ahead.len {
            let args = Args::new(&data[ahead.starts[idx]..], &ahead.spans[idx], &ahead.owned);
            if let Some(key) = args.get(1) {
                let key = hasher.key(key);
                if self.shard.slots.owner(key.slot) == self.shard.me {
                    keys[count] = (key.hash, key.slot);
                    count += 1;
                }
            }
        }
        self.shard.keyspace.warm(db, &keys[..count]);
    }

    fn protocol_error(&mut self, session: &mut Session, error: ProtocolError) {
        session.client.modes.next_command();
        self.answer(session, |_, _, reply| {
            error.reply(reply);
            Ok(())
        });
        session.client.close = Some(CloseWhen::AfterOutput);
    }

    /// Writes a reply that is known now to where it belongs: the output, or behind replies still owed; or nowhere, if the
    /// client wants none. A command may change that with effect on its own reply. An error is counted.
    pub(crate) fn answer(
        &mut self,
        session: &mut Session,
        write: impl FnOnce(&mut crate::ctx::Shard, &mut Client, &mut Reply) -> Result<(), Error>,
    ) -> Answered {
        let direct = session.order.is_empty() && !session.client.modes.mutes();
        let reply = if direct { &mut session.out } else { &mut self.scratch };
        reply.set_proto(session.client.proto);
        let (mark, bytes_before) = (reply.mark(), reply.len());
        if let Err(error) = write(&mut self.shard, &mut session.client, reply) {
            if !reply.is_empty() {
                drop(reply.split_off(mark));
            }
            write_error(&error, reply);
        }
        let answered = Answered::since(reply, mark, bytes_before);
        if answered.failed {
            self.shard.stats.count_error(&reply.buf[mark.offset()..]);
        }
        if !direct {
            if session.client.modes.mutes() {
                self.scratch.clear();
            } else if session.order.is_empty() {
                session.out.append(&mut self.scratch);
            } else {
                session.order.push_ready(&mut self.scratch);
            }
        }
        answered
    }

    /// The same for a command that ends with this reply: takes its time.
    #[inline]
    fn answer_command(
        &mut self,
        session: &mut Session,
        (command, args, now): (&'static Command, Args<'_>, Millis),
        write: impl FnOnce(&mut crate::ctx::Shard, &mut Client, &mut Reply) -> Result<(), Error>,
    ) {
        let answered = self.answer(session, write);
        if !self.shard.timing.shares(command, self.running.number, answered) {
            self.ended_here(&session.client, command, args, answered, now);
        }
    }

    /// Answers a command with an error instead of running it.
    fn refuse(&mut self, session: &mut Session, error: Error) {
        self.shard.timing.commands.rejected(self.running.number);
        self.answer(session, |_, _, _| Err(error));
    }

    pub(crate) fn run_command(
        &mut self,
        peers: &mut Peers<'_>,
        session: &mut Session,
        id: SessionId,
        args: Args<'_>,
        now: Millis,
    ) {
        if !session.client.modes.is_empty() {
            session.client.modes.next_command();
        }
        let (id_in_table, command, container) = match self.table.find(args) {
            Lookup::Command(id, command) => (id, command, None),
            Lookup::Subcommand(id, container, command) => (id, command, Some(container)),
            Lookup::Refused(id, error) => {
                self.running = id;
                return self.refuse(session, error);
            }
            Lookup::Failed(_) if is_http(args.at(0)) => {
                session.client.close = Some(CloseWhen::Now);
                return;
            }
            Lookup::Failed(error) => {
                self.answer(session, |_, _, _| Err(error));
                return;
            }
        };
        self.running = id_in_table;
        self.count(session, 1);
        session.client.last_command = match container {
            None => (command.name, None),
            Some(container) if container.subcommands_hidden => (container.name, None),
            Some(container) => (container.name, Some(command.name)),
        };
        if self.shard.watchers.any() | self.shard.pause.is_set() {
            self.run_watched(peers, session, id, command, args, now);
        } else {
            self.dispatch(peers, session, id, command, args, now);
        }
        self.note_if_large(session, command, args, now);
    }

    /// Logs a large request once it has been run or sent away. One over several shards is not at its end yet; what waits has
    /// not even begun.
    #[inline]
    fn note_if_large(&mut self, session: &Session, command: &'static Command, args: Args<'_>, now: Millis) {
        if self.request_bytes >= self.shard.timing.request_bytes_min
            && !session.in_transaction
            && session.blocked.is_none()
        {
            self.note_large_request(Some(&session.client), command, args, self.request_bytes, now);
        }
    }

    /// Counts a command that begins, or one that does not begin yet after all.
    #[inline]
    fn count(&mut self, session: &mut Session, change: i64) {
        self.shard.stats.commands = self.shard.stats.commands.wrapping_add_signed(change);
        session.client.commands = session.client.commands.wrapping_add_signed(change);
    }

    /// Runs a command while there are monitors, or a pause that may hold it back.
    #[cold]
    fn run_watched(
        &mut self,
        peers: &mut Peers<'_>,
        session: &mut Session,
        id: SessionId,
        command: &'static Command,
        args: Args<'_>,
        now: Millis,
    ) {
        if session.client.modes.has(Modes::MONITOR) {
            if command.name == "monitor" {
                return;
            }
            if [Flags::READONLY, Flags::WRITE, Flags::MAY_REPLICATE]
                .iter()
                .any(|flag| command.flags.has(*flag))
            {
                return self.refuse(session, Error::MonitorKeys);
            }
        } else if self.shard.pause.holds(command, now) {
            session.blocked = Some(Box::new((command, args.to_owned())));
            session.pause = PauseState::Paused;
            self.paused.push_back(id);
            self.count(session, -1);
            return;
        }
        self.dispatch(peers, session, id, command, args, now);
        self.show(&session.client, command, args, now);
    }

    /// Sends a command where its plan and its keys want it.
    fn dispatch(
        &mut self,
        peers: &mut Peers<'_>,
        session: &mut Session,
        id: SessionId,
        command: &'static Command,
        args: Args<'_>,
        now: Millis,
    ) {
        self.current = Some(command.name);
        self.shard.timing.separate(command);
        let run = (command, args, now);
        if let Some(check) = command.check
            && let Err(error) = check(args, &self.shard.settings)
        {
            return self.answer_command(session, run, |_, _, _| Err(error));
        }
        let owner = match command.plan {
            Plan::Session(handler) => {
                self.answer_command(session, run, |shard, client, reply| {
                    handler(&mut SessionCtx { client, shard, now }, args, reply)
                });
                if let Some(until) = session.client.wait.as_ref().and_then(|wait| wait.until) {
                    self.waits.add(until, id);
                }
                return;
            }
            Plan::OneShard(_) => match command.keys {
                [spec, ..] if spec.begin < args.len() => shard_of(&self.shard, args.at(spec.begin)),
                _ => self.shard.me,
            },
            Plan::Routed { route, .. } => match route(args) {
                Ok(slot) => self.shard.slots.owner(slot),
                Err(error) => return self.answer_command(session, run, |_, _, _| Err(error)),
            },
            Plan::EachShard { .. } | Plan::Staged { .. } => {
                match peers.coordinator.sole_owner(&self.shard, command, args) {
                    Some(owner) => owner,
                    None => return self.start_transaction(peers, session, id, command, args),
                }
            }
            Plan::Container => return self.answer_command(session, run, |_, _, _| Err(Error::Syntax)),
        };
        if owner == self.shard.me {
            self.run_here(peers.participant, session, id, command, args, now);
        } else if self.has_failed(owner) {
            self.answer(session, |_, _, _| Err(SHARD_FAILED));
        } else {
            let head = self.head(session, id, args);
            self.shard.stats.hops_out += 1;
            self.outboxes[usize::from(owner.0)].push_request(head, args);
        }
    }

    fn head(&self, session: &mut Session, id: SessionId, args: Args<'_>) -> RequestHead {
        RequestHead {
            session: id,
            seq: session.reserve_reply(args.bytes_len()),
            command: self.running,
            db: session.client.db as u16,
            proto: session.client.proto,
            no_touch: session.client.modes.has(Modes::NO_TOUCH),
        }
    }

    fn run_here(
        &mut self,
        participant: &mut Participant,
        session: &mut Session,
        id: SessionId,
        command: &'static Command,
        args: Args<'_>,
        now: Millis,
    ) {
        if participant.must_wait(&self.shard, &mut self.hashes, command, args) {
            let head = self.head(session, id, args);
            self.shard.stats.waited += 1;
            participant.park(Origin { from: self.shard.me, head }, command, args, &self.hashes);
            return;
        }
        let db = session.client.db;
        self.shard.keyspace.no_touch = session.client.modes.has(Modes::NO_TOUCH);
        self.answer_command(session, (command, args, now), |shard, _, reply| {
            run_whole(shard, command, db, now, args, reply)
        });
    }

    /// A command over several shards: it starts when all replies before it are there, and holds up those behind it.
    fn start_transaction(
        &mut self,
        peers: &mut Peers<'_>,
        session: &mut Session,
        id: SessionId,
        command: &'static Command,
        args: Args<'_>,
    ) {
        if !session.order.is_empty() {
            session.blocked = Some(Box::new((command, args.to_owned())));
            return;
        }
        session.in_transaction = true;
        self.shard.stats.transactions += 1;
        let args: OwnedArgs = args.to_owned();
        let bytes = self.request_bytes;
        let messages = peers.coordinator.start(&self.shard, id, command, &session.client, args, bytes);
        for (to, message) in messages {
            self.send(to, message);
        }
    }
}

/// A browser that was tricked into talking to us begins with one of these words: nothing it says may be run.
fn is_http(name: &[u8]) -> bool {
    name.eq_ignore_ascii_case(b"post") || name.eq_ignore_ascii_case(b"host:")
}

/// The two sides of transactions, borrowed together.
pub(crate) struct Peers<'a> {
    pub(crate) coordinator: &'a mut Coordinator,
    pub(crate) participant: &'a mut Participant,
}

impl Node {
    /// Runs the commands that another shard sent for its clients: read ahead, have their keys loaded, run.
    pub(crate) fn serve(&mut self, from: ShardId, batch: &Batch, now: Millis) {
        let mut ahead = std::mem::take(&mut self.core.ahead);
        let mut heads = [None; WARM_MAX];
        let mut at = 0;
        loop {
            let mut keys = [(0, Slot(0)); WARM_MAX];
            let (mut count, mut keyed) = (0, 0);
            while count < WARM_MAX
                && let Some((head, next)) = batch.request_at(at, &mut ahead.spans[count])
            {
                heads[count] = Some(head);
                if let Some(key) = batch.request_args(&ahead.spans[count]).get(1) {
                    let key = self.core.shard.keyspace.hasher().key(key);
                    keys[keyed] = (key.hash, key.slot);
                    keyed += 1;
                }
                (at, count) = (next, count + 1);
            }
            if let Some(Some(head)) = heads[..count].first() {
                self.core.shard.keyspace.warm(head.db.into(), &keys[..keyed]);
            }
            for (place, (head, spans)) in heads[..count].iter().flatten().zip(&ahead.spans).enumerate() {
                self.core.shard.timing.place = place;
                self.serve_one(from, *head, batch.request_args(spans), now);
            }
            self.core.shard.timing.end_run();
            if let Some(stalled) = self.core.shard.timing.take_stalled()
                && let Some(head) = heads[stalled.place]
            {
                let args = batch.request_args(&ahead.spans[stalled.place]);
                self.core.note_stalled_for((from, head), stalled, args, now);
            }
            if count < WARM_MAX {
                break;
            }
        }
        self.core.ahead = ahead;
    }

    #[inline]
    fn serve_one(&mut self, from: ShardId, head: RequestHead, args: Args<'_>, now: Millis) {
        let core = &mut self.core;
        let command = core.table.resolve(head.command.index, args);
        core.shard.stats.hops_in += 1;
        core.current = Some(command.name);
        core.shard.keyspace.no_touch = head.no_touch;
        core.running = head.command;
        core.shard.timing.separate(command);
        if self.participant.must_wait(&core.shard, &mut core.hashes, command, args) {
            core.shard.stats.waited += 1;
            return self.participant.park(Origin { from, head }, command, args, &core.hashes);
        }
        let answered = core
            .reply_to(from, head, |shard, reply| run_whole(shard, command, head.db.into(), now, args, reply));
        if !core.shard.timing.shares(command, head.command.number, answered) {
            core.ended_for((from, head.session), command, args, answered, now);
        }
    }
}

impl Core {
    /// Lets `run` write a reply for another shard's client. An error is counted.
    pub(crate) fn reply_to(
        &mut self,
        from: ShardId,
        head: RequestHead,
        run: impl FnOnce(&mut crate::ctx::Shard, &mut Reply) -> Result<(), Error>,
    ) -> Answered {
        let shard = &mut self.shard;
        self.outboxes[usize::from(from.0)].push_reply(head.session, head.seq, head.proto, |reply| {
            let (mark, bytes_before) = (reply.mark(), reply.len());
            if let Err(error) = run(shard, reply) {
                drop(reply.split_off(mark));
                write_error(&error, reply);
            }
            let answered = Answered::since(reply, mark, bytes_before);
            if answered.failed {
                shard.stats.count_error(&reply.buf[mark.offset()..]);
            }
            answered
        })
    }
}

/// Whether the command needs every shard, whatever its keys.
pub(crate) fn needs_all_shards(command: &Command) -> bool {
    command.scope != Scope::Keys && !matches!(command.plan, Plan::Routed { .. })
}
