//! From a command to the place where it runs.

use crate::args::{Args, OwnedArgs};
use crate::command::{Command, Flags, Flow, Pace, Plan, Scope};
use crate::commands::{self, Lookup};
use crate::coordinator::Coordinator;
use crate::ctx::{SessionCtx, write_error};
use crate::errors::Error;
use crate::exec::changes_subscriptions;
use crate::execute::{run_at_pace, run_whole, shard_of};
use crate::failover::SHARD_FAILED;
use crate::keyspace::Millis;
use crate::message::RequestHead;
use crate::modes::Modes;
use crate::node::Core;
use crate::participant::{Origin, Participant};
use crate::pubsub;
use crate::session::{Client, CloseWhen, PauseState, Session, SessionId};
use crate::slot::ShardId;
use crate::timing::Answered;
use crate::transaction::Queued;
use corelane_resp::Reply;

impl Core {
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
    pub(crate) fn answer_command(
        &mut self,
        session: &mut Session,
        run: (&'static Command, Args<'_>, Millis),
        write: impl FnOnce(&mut crate::ctx::Shard, &mut Client, &mut Reply) -> Result<(), Error>,
    ) {
        let answered = self.answer(session, write);
        self.note_end(session, run, answered);
    }

    /// Takes the time of a command that has been answered.
    #[inline]
    fn note_end(
        &mut self,
        session: &Session,
        (command, args, now): (&'static Command, Args<'_>, Millis),
        answered: Answered,
    ) {
        if !self.shard.timing.shares(command, self.running.number, answered) {
            self.ended_here(&session.client, command, args, answered, now);
        }
    }

    /// Answers a command with an error instead of running it.
    fn refuse(&mut self, session: &mut Session, error: Error) {
        self.shard.timing.commands.rejected(self.running.number);
        let error = self.refusal(session, error);
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
        let lookup = self.table.find_again(&self.recent, args);
        if self.is_stranger(&session.client) && !lookup.needs_no_password() && !is_http(args.at(0)) {
            self.running = self.table.id_of(args);
            return self.refuse(session, Error::text("NOAUTH Authentication required."));
        }
        let (id_in_table, command, container) = match lookup {
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
                session.client.fail_transaction();
                self.answer(session, |_, _, _| Err(error));
                return;
            }
        };
        self.running = id_in_table;
        if let Some(permit) = command.permit.or_else(|| container?.permit)
            && let Err(error) = permit(&session.client, args, &self.shard.settings)
        {
            return self.refuse(session, error);
        }
        if session.client.modes.has(Modes::MULTI) && command.flags.has(Flags::NO_MULTI) {
            return self.refuse(session, not_in_multi(command, container));
        }
        self.count(session, 1);
        session.client.last_command = match container {
            None => (command.name, None),
            Some(container) if container.subcommands_hidden => (container.name, None),
            Some(container) => (container.name, Some(command.name)),
        };
        let listens = session.client.modes.has(Modes::SUBSCRIBED);
        if self.shard.watchers.any() | self.shard.pause.is_set() | listens {
            if !self.run_watched(peers, session, id, command, args, now) {
                return;
            }
        } else if session.client.modes.has(Modes::MULTI) && is_queued(command) {
            return self.enqueue(session, command, args);
        } else {
            self.dispatch(peers, session, id, command, args, now);
        }
        self.note_if_large(session, command, args, now);
    }

    /// Whether a client has a password to give yet.
    #[inline]
    pub(crate) fn is_stranger(&self, client: &Client) -> bool {
        !client.authenticated && !self.shard.settings.password.is_empty()
    }

    /// Logs a large request once it has been run or sent away. One over several shards is not at its end yet, other than SUBSCRIBE
    /// and its kin, which nobody else logs; what waits has not even begun.
    #[inline]
    pub(crate) fn note_if_large(
        &mut self,
        session: &Session,
        command: &'static Command,
        args: Args<'_>,
        now: Millis,
    ) {
        if self.request_bytes >= self.shard.timing.request_bytes_min
            && (!session.in_transaction || changes_subscriptions(command))
            && session.blocked.is_none()
        {
            self.note_large_request(Some(&session.client), command, args, self.request_bytes, now);
        }
    }

    /// Counts a command that begins, or one that does not begin yet after all.
    #[inline]
    pub(crate) fn count(&mut self, session: &mut Session, change: i64) {
        self.shard.stats.commands = self.shard.stats.commands.wrapping_add_signed(change);
        session.client.commands = session.client.commands.wrapping_add_signed(change);
    }

    /// Runs a command of a client that listens to channels, or while there are monitors, or a pause that may hold it back. False if
    /// it is kept for EXEC.
    #[cold]
    pub(crate) fn run_watched(
        &mut self,
        peers: &mut Peers<'_>,
        session: &mut Session,
        id: SessionId,
        command: &'static Command,
        args: Args<'_>,
        now: Millis,
    ) -> bool {
        if let Some(error) = pubsub::refusal(&session.client, command) {
            self.count(session, -1);
            self.refuse(session, error);
            return true;
        }
        if session.client.modes.has(Modes::MONITOR) {
            if command.name == "monitor" {
                return true;
            }
            if [Flags::READONLY, Flags::WRITE, Flags::MAY_REPLICATE]
                .iter()
                .any(|flag| command.flags.has(*flag))
            {
                self.refuse(session, Error::MonitorKeys);
                return true;
            }
        } else if self.shard.pause.holds(command, runs_changes(session, command), now) {
            session.blocked = Some(Box::new((command, args.to_owned())));
            session.pause = PauseState::Paused;
            self.paused.push_back(id);
            self.count(session, -1);
            return true;
        }
        if session.client.modes.has(Modes::MULTI) && is_queued(command) {
            self.enqueue(session, command, args);
            return false;
        }
        self.dispatch(peers, session, id, command, args, now);
        // EXEC is shown after what it runs.
        if !matches!(command.plan, Plan::Exec) {
            self.show(&session.client, command, args, now);
        }
        true
    }

    /// Keeps a command for EXEC.
    fn enqueue(&mut self, session: &mut Session, command: &'static Command, args: Args<'_>) {
        self.count(session, -1);
        let (id, request_bytes) = (self.running, self.request_bytes);
        let queued = Queued { command, id, args: args.to_owned(), request_bytes };
        session.client.transaction.get_or_insert_default().push(queued);
        self.answer(session, |_, _, reply| {
            reply.simple("QUEUED");
            Ok(())
        });
    }

    /// A refused command between MULTI and EXEC has EXEC refused, too; an EXEC that is refused ends its transaction.
    #[cold]
    fn refusal(&mut self, session: &mut Session, error: Error) -> Error {
        session.client.fail_transaction();
        if !matches!(commands::by_index(self.running.index).plan, Plan::Exec) {
            return error;
        }
        session.client.discard_transaction(&mut self.shard);
        self.tell_of_unwatched();
        let text = error.to_string();
        let text = text.strip_prefix("ERR ").unwrap_or(&text);
        Error::owned(format!("EXECABORT Transaction discarded because of: {text}"))
    }

    /// Sends a command where its plan and its keys want it.
    pub(crate) fn dispatch(
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
        if let Err(error) = command.checked(&session.client, args, &self.shard.settings) {
            return self.answer_command(session, run, |_, _, _| Err(error));
        }
        let owner = match command.plan {
            Plan::Session(handler) => {
                if (command.flags.has(Flags::PUBSUB) || session.client.modes.has(Modes::SUBSCRIBED))
                    && self.holds_for_subscriptions(session, command, args)
                {
                    return;
                }
                self.answer_command(session, run, |shard, client, reply| {
                    handler(&mut SessionCtx { client, shard, now, may_block: true }, args, reply)
                });
                if !self.shard.unwatched.is_empty() {
                    self.tell_of_unwatched();
                }
                if let Some(until) = session.client.wait.as_ref().and_then(|wait| wait.until) {
                    self.waits.add(until, id);
                }
                if session.client.subscriptions.is_some() {
                    self.after_subscribing(session);
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
                match Coordinator::sole_owner(&self.shard, command, args) {
                    Some(owner)
                        if command.flags.has(Flags::BLOCKING) && !self.may_run_here(peers, owner, run) =>
                    {
                        return self.start_transaction(peers, session, id, command, args);
                    }
                    Some(owner) => owner,
                    None => return self.start_transaction(peers, session, id, command, args),
                }
            }
            Plan::Exec => return self.exec(peers, session, id, run),
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

    /// Whether a command that may wait can be run here at once; otherwise it runs as one over several shards does.
    fn may_run_here(
        &mut self,
        peers: &Peers<'_>,
        owner: ShardId,
        (command, args, _): (&'static Command, Args<'_>, Millis),
    ) -> bool {
        owner == self.shard.me && !peers.participant.must_wait(&self.shard, &mut self.hashes, command, args)
    }

    pub(crate) fn head(&self, session: &mut Session, id: SessionId, args: Args<'_>) -> RequestHead {
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
        if command.flags.has(Flags::BLOCKING) {
            return self.run_or_wait(participant, session, id, (command, args, now));
        }
        let run = (command, args, now);
        let mut flow = Flow::Done;
        let answered = self.answer(session, |shard, _, reply| {
            flow = run_at_pace(shard, command, Pace::Brief, (db, now), args, reply)?;
            Ok(())
        });
        if flow == Flow::Later {
            return self.walk_here(participant, session, id, run);
        }
        self.note_end(session, run, answered);
        self.serve_new(participant, None, now);
    }

    /// Runs a command that waits where it finds nothing.
    fn run_or_wait(
        &mut self,
        participant: &mut Participant,
        session: &mut Session,
        id: SessionId,
        (command, args, now): (&'static Command, Args<'_>, Millis),
    ) {
        let mut reply = Reply::new(session.client.proto);
        let db = session.client.db;
        self.shard.would_wait = false;
        let result = run_whole(&mut self.shard, command, db, now, args, &mut reply);
        if std::mem::take(&mut self.shard.would_wait) {
            return self.enlist_here(&mut session.client, id, command, args, now);
        }
        self.answer_command(session, (command, args, now), |_, _, out| {
            out.append(&mut reply);
            result
        });
        self.serve_new(participant, None, now);
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
        if command.scope == Scope::Watch {
            session.client.watch(args);
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

/// Whether a command waits for EXEC if it comes after MULTI.
fn is_queued(command: &Command) -> bool {
    !command.flags.has(Flags::UNQUEUED)
}

/// Whether the command is an EXEC that may change data.
fn runs_changes(session: &Session, command: &Command) -> bool {
    matches!(command.plan, Plan::Exec) && session.client.queues_changes()
}

#[cold]
fn not_in_multi(command: &Command, container: Option<&Command>) -> Error {
    let name = container
        .map_or_else(|| command.name.to_owned(), |container| format!("{}|{}", container.name, command.name));
    Error::owned(format!("ERR Command '{name}' not allowed inside a transaction"))
}

/// The two sides of transactions, borrowed together.
pub(crate) struct Peers<'a> {
    pub(crate) coordinator: &'a mut Coordinator,
    pub(crate) participant: &'a mut Participant,
}

/// Whether the command needs every shard, whatever keys its arguments name.
pub(crate) fn needs_all_shards(command: &Command, args: Args<'_>) -> bool {
    !matches!(command.scope_for(args), Scope::Keys | Scope::Watch)
        && !matches!(command.plan, Plan::Routed { .. })
}
