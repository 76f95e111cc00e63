//! From bytes to commands: a connection's input is parsed where it lies, and what is complete in it is run in pieces.

use crate::ahead::Ahead;
use crate::args::Args;
use crate::coordinator::Coordinator;
use crate::ctx::HostRequest;
use crate::dispatch::Peers;
use crate::errors::Error;
use crate::keyspace::{KnownKey, Millis, WARM_MAX};
use crate::node::Core;
use crate::participant::Participant;
use crate::session::{CloseWhen, PauseState, Session, SessionId};
use corelane_resp::{Limits, Parser, ProtocolError, Step};

/// How far the commands of some input could be run.
enum Ran {
    /// Nothing complete is left, or the session may not run on.
    Stopped,
    /// [`PIECE_COMMANDS`] have been run, or some for long enough; there may be more.
    Paused,
    /// A large argument starts at this offset behind the bytes used.
    NeedBulk { start: usize, len: usize },
}

/// Commands of one client's input that are run at a time; the rest waits for the next turn.
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
            if session.client.close.is_none() {
                let line = session.client.farewell("client-query-buffer-limit");
                self.shard.host_requests.push_back(HostRequest::Log(line));
            }
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
            let mut begun = true;
            if session.pause == PauseState::Running {
                self.dispatch(&mut peers, session, id, command, args.args(), now);
            } else {
                session.pause = PauseState::Running;
                self.count(session, 1);
                begun = self.run_watched(&mut peers, session, id, command, args.args(), now);
            }
            if begun {
                self.note_if_large(session, command, args.args(), now);
            }
            self.shard.timing.end_run();
            if let Some(stalled) = self.shard.timing.take_stalled() {
                self.note_stalled(&session.client, stalled, args.args(), now);
            }
        }
        match session.calls.take() {
            Some(held) => self.run_calls(coordinator, participant, session, id, *held, now),
            None => self.consume(coordinator, participant, session, id, &[], now),
        }
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
        let began = self.shard.timing.last();
        while session.can_run(self.shard.settings.output_backlog_max) {
            let stop = self.parse(&mut ahead, session, &data[used..]);
            ahead.keys = [KnownKey::default(); WARM_MAX];
            if ahead.len > 1 {
                self.warm(session.client.db, &mut ahead, &data[used..]);
            }
            let (done, in_time) =
                self.run_ahead(peers, (&mut *session, id), &ahead, &data[used..], (now, began));
            used += done;
            if !session.can_run(self.shard.settings.output_backlog_max) {
                // What was read ahead is read again later, an error too: its reply comes after those that are missing.
                session.parser = Parser::new();
                break;
            }
            commands += ahead.len;
            if !in_time {
                (session.parser, ran) = (Parser::new(), Ran::Paused);
                break;
            }
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

    /// Runs the commands that were read ahead from the front of `data`, or as many as the session may and has time for, its
    /// piece having begun at `began`. Returns how many bytes are done with, and whether there is time for more.
    #[inline]
    fn run_ahead(
        &mut self,
        peers: &mut Peers<'_>,
        (session, id): (&mut Session, SessionId),
        ahead: &Ahead,
        data: &[u8],
        (now, began): (Millis, u64),
    ) -> (usize, bool) {
        let (mut used, mut in_time) = (0, true);
        for idx in 0..ahead.len {
            if !session.can_run(self.shard.settings.output_backlog_max) || !in_time {
                break;
            }
            let args = Args::new(&data[ahead.starts[idx]..], &ahead.spans[idx], &ahead.owned);
            used = ahead.starts[idx + 1];
            if args.is_empty() {
                session.client.modes.next_command();
            } else {
                self.request_bytes = ahead.request_bytes(idx);
                self.shard.timing.place = idx;
                self.shard.known_key = ahead.keys[idx];
                self.run_command(peers, session, id, args, now);
                in_time = !self.shard.timing.is_over(began);
            }
        }
        self.shard.known_key = KnownKey::default();
        self.end_run(&session.client, ahead, data, now);
        (used, in_time)
    }

    /// Reads commands ahead; what stopped it, if something did.
    fn parse(
        &self,
        ahead: &mut Ahead,
        session: &mut Session,
        data: &[u8],
    ) -> Option<Result<Step, ProtocolError>> {
        if self.is_stranger(&session.client) {
            // The next command may be AUTH, after which others may be larger.
            let limits = Limits { stranger: true, ..self.limits };
            return ahead.parse(&mut session.parser, data, &limits, 1);
        }
        ahead.parse(&mut session.parser, data, &self.limits, WARM_MAX)
    }

    /// Has the keys of commands that were read ahead loaded while there is still something else to do. What is not a
    /// key does no harm.
    fn warm(&self, db: usize, ahead: &mut Ahead, data: &[u8]) {
        let hasher = self.shard.keyspace.hasher();
        let mut ours = [KnownKey::default(); WARM_MAX];
        let mut count = 0;
        for idx in 0..ahead.len {
            let args = Args::new(&data[ahead.starts[idx]..], &ahead.spans[idx], &ahead.owned);
            if let Some(key) = args.get(1) {
                ahead.keys[idx] = KnownKey::new(hasher.key(key));
                if self.shard.slots.owner(ahead.keys[idx].slot) == self.shard.me {
                    ours[count] = ahead.keys[idx];
                    count += 1;
                }
            }
        }
        self.shard.keyspace.warm(db, &ours[..count]);
    }

    pub(crate) fn protocol_error(&mut self, session: &mut Session, error: ProtocolError) {
        session.client.modes.next_command();
        self.answer(session, |_, _, reply| {
            error.reply(reply);
            Ok(())
        });
        session.client.close = Some(CloseWhen::AfterOutput);
    }
}
