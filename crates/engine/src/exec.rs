//! EXEC on the shard of its client: which shards a transaction needs, what each of them runs, and the reply.
//!
//! A transaction asks for all its intents first, those on watched keys included (`coordinator`). When it holds them, its commands
//! are handed out in order, in as few bundles (`bundle`) as possible: a command that needs its own connection only is run
//! here, one on a single shard goes into that shard's bundle, one with a part per shard into those of all of them. What has to
//! decide between its stages, or looks at the state of servers instead of data, is a *barrier*: what was handed out before it is
//! awaited, then it runs like any command over several shards, except that it asks for no intents of its own.

use crate::args::Args;
use crate::bundle::{Bundle, BundleItem, BundleLock, BundleResult};
use crate::command::{Command, Flags, Plan, Scope};
use crate::coordinator::{Coordinator, Part, Tx};
use crate::ctx::{PartResult, SessionCtx, write_error};
use crate::dispatch::{Peers, needs_all_shards};
use crate::errors::Error;
use crate::execute::{merge_parts, shard_of};
use crate::journal::Ended;
use crate::keyspace::Millis;
use crate::message::{LockRequest, TxId, TxMessage, Wanted};
use crate::modes::Modes;
use crate::node::{Core, Node};
use crate::session::{Client, Peer, Session, SessionId};
use crate::slot::ShardId;
use crate::timing::Answered;
use crate::transaction::{Queued, Unwatched};
use corelane_resp::{Mark, Proto, Reply};

/// A command's reply, as far as it is known.
enum Answer {
    /// Not yet.
    None,
    /// Made here.
    Own(Reply),
    /// A stretch of a bundle's replies.
    In(usize, Mark, Mark),
    /// Results of its parts.
    Parts(Vec<PartResult>),
}

/// What an item of a bundle under way belongs to.
#[derive(Clone, Copy)]
enum Place {
    Whole(usize),
    Part(usize),
}

/// The commands of a transaction that is being run.
pub(crate) struct Exec {
    queue: Vec<Queued>,
    /// The first command that has not been handed out.
    next: usize,
    answers: Vec<Answer>,
    /// Replies of bundles, which answers refer to.
    replies: Vec<Reply>,
    /// What each shard has been given.
    under_way: Vec<(ShardId, Vec<Place>)>,
    /// What is wanted of each shard; `None` where nothing is.
    locks: Vec<Option<BundleLock>>,
    /// It runs on one shard, which asks for its intents itself.
    alone: bool,
    /// The shards have let go of their intents.
    released: bool,
    /// The state of the connection, should it end before the commands do.
    last_seen: (usize, Proto, Modes),
}

/// What comes next.
enum Step {
    /// A bundle for each of these shards.
    Bundles(Vec<(ShardId, Bundle)>),
    /// This command on its own.
    Barrier(usize),
    /// This command, which changes subscriptions.
    Subscribe(usize),
    /// The reply.
    Finish,
}

impl Core {
    /// EXEC.
    pub(crate) fn exec(
        &mut self,
        peers: &mut Peers<'_>,
        session: &mut Session,
        id: SessionId,
        (command, args, now): (&'static Command, Args<'_>, Millis),
    ) {
        if !session.client.modes.has(Modes::MULTI) {
            let error = Error::text("ERR EXEC without MULTI");
            return self.answer_exec(session, (command, args, now), error);
        }
        if session.client.transaction.as_ref().is_some_and(|transaction| transaction.failed) {
            session.client.discard_transaction(&mut self.shard);
            self.tell_of_unwatched();
            let error = Error::text("EXECABORT Transaction discarded because of previous errors.");
            return self.answer_exec(session, (command, args, now), error);
        }
        if !session.order.is_empty() {
            session.blocked = Some(Box::new((command, args.to_owned())));
            return;
        }
        let transaction = session.client.transaction.get_or_insert_default();
        let (queue, watched) =
            (std::mem::take(&mut transaction.queue), std::mem::take(&mut transaction.watched));
        session.in_transaction = true;
        self.shard.stats.transactions += 1;
        let client = &session.client;
        let locks = self.locks_for(&queue, &watched);
        let exec = Box::new(Exec::new(client, queue, locks));
        let tx = peers.coordinator.begin(&self.shard, id, command, client, args.to_owned(), exec);
        self.announce(peers.coordinator, &mut session.client, tx, watched.is_empty(), now);
    }

    fn answer_exec(
        &mut self,
        session: &mut Session,
        (command, args, now): (&'static Command, Args<'_>, Millis),
        error: Error,
    ) {
        self.show(&session.client, command, args, now);
        self.answer_command(session, (command, args, now), |_, _, _| Err(error));
    }

    /// Asks for the intents; a transaction on one shard is sent there with its commands at once, unless what it does here
    /// depends on watched keys.
    fn announce(
        &mut self,
        coordinator: &mut Coordinator,
        client: &mut Client,
        mut tx: Tx,
        unconditional: bool,
        now: Millis,
    ) {
        let on_its_own = |queued: &Queued| {
            needs_all_shards(queued.command, queued.args.args()) || changes_subscriptions(queued.command)
        };
        let stays = |queued: &Queued| matches!(queued.command.plan, Plan::Session(_));
        let exec = tx.exec.as_mut().expect("it has just been made");
        exec.alone = tx.parts.len() == 1
            && !exec.queue.iter().any(on_its_own)
            && (unconditional || !exec.queue.iter().any(stays) && !self.shard.watchers.any());
        if !exec.alone {
            return coordinator.ask_all(self, tx);
        }
        let bundle = match self.plan_step(client, (tx.session, tx.client_id), exec, now) {
            Step::Bundles(mut bundles) => bundles.pop().map(|(_, bundle)| bundle),
            Step::Barrier(_) | Step::Subscribe(_) => unreachable!("a command on one shard is none"),
            Step::Finish => None,
        };
        let bundle = bundle.unwrap_or_else(|| {
            let items = Vec::new();
            exec.under_way = vec![(tx.parts[0].shard, Vec::new())];
            Bundle { session: tx.session, client_id: tx.client_id, items, last: true }
        });
        exec.released = true;
        coordinator.ask_with(self, tx, Box::new(bundle));
    }

    /// Hands out as many of the commands as can run without waiting for one another.
    fn plan_step(
        &mut self,
        client: &mut Client,
        (session, client_id): (SessionId, u64),
        exec: &mut Exec,
        now: Millis,
    ) -> Step {
        let mut bundles: Vec<(Bundle, Vec<Place>)> = Vec::new();
        bundles.resize_with(exec.locks.len(), || {
            (Bundle { session, client_id, items: Vec::new(), last: false }, Vec::new())
        });
        let mut barrier = None;
        while exec.next < exec.queue.len() && barrier.is_none() {
            let at = exec.next;
            let queued = &exec.queue[at];
            let (command, args) = (queued.command, queued.args.args());
            let mut place = |owner: ShardId, part: Option<Vec<u32>>, client: &Client| {
                let (bundle, places) = &mut bundles[usize::from(owner.0)];
                places.push(if part.is_some() { Place::Part(at) } else { Place::Whole(at) });
                bundle.items.push(BundleItem {
                    command,
                    id: queued.id,
                    db: client.db as u16,
                    proto: client.proto,
                    no_touch: client.modes.has(Modes::NO_TOUCH),
                    args: queued.args.clone(),
                    part,
                });
            };
            match self.way_of(client, command, args) {
                Way::Here => exec.answers[at] = Answer::Own(self.run_here_in_exec(client, queued, now)),
                Way::Refused(error) => {
                    exec.answers[at] = Answer::Own(self.refused(queued, client, &error, now))
                }
                Way::Whole(owner) => place(owner, None, client),
                Way::Parts(parts) => {
                    exec.answers[at] = Answer::Parts(Vec::new());
                    parts.into_iter().for_each(|Part { shard, keys, .. }| place(shard, Some(keys), client));
                }
                Way::Barrier => {
                    barrier = Some(at);
                    break;
                }
            }
            self.begins_in_exec(client, queued, now);
            exec.next += 1;
        }
        exec.last_seen = (client.db, client.proto, client.modes);
        let last = exec.next == exec.queue.len();
        let mut handed_out = Vec::new();
        for (idx, (mut bundle, places)) in bundles.into_iter().enumerate() {
            if !places.is_empty() {
                let shard = ShardId(idx as u16);
                bundle.last = last;
                exec.under_way.push((shard, places));
                handed_out.push((shard, bundle));
            }
        }
        match barrier {
            _ if !handed_out.is_empty() => Step::Bundles(handed_out),
            Some(at) => {
                let queued = &exec.queue[at];
                self.begins_in_exec(client, queued, now);
                exec.next += 1;
                if changes_subscriptions(queued.command) { Step::Subscribe(at) } else { Step::Barrier(at) }
            }
            None => Step::Finish,
        }
    }

    /// Counts and shows a command that is handed out.
    fn begins_in_exec(&mut self, client: &mut Client, queued: &Queued, now: Millis) {
        self.shard.stats.commands += 1;
        client.commands += 1;
        self.show(client, queued.command, queued.args.args(), now);
        if queued.request_bytes >= self.shard.timing.request_bytes_min {
            let (args, bytes) = (queued.args.args(), queued.request_bytes);
            self.note_large_request(Some(client), queued.command, args, bytes, now);
        }
    }

    fn run_here_in_exec(&mut self, client: &mut Client, queued: &Queued, now: Millis) -> Reply {
        let Plan::Session(handler) = queued.command.plan else { unreachable!("nothing else runs here") };
        let args = queued.args.args();
        self.current = Some(queued.command.name);
        self.running = queued.id;
        let mut reply = Reply::new(client.proto);
        let mut ctx = SessionCtx { client, shard: &mut self.shard, now, may_block: false };
        if let Err(error) = handler(&mut ctx, args, &mut reply) {
            reply.clear();
            write_error(&error, &mut reply);
        }
        let answered = Answered::since(&reply, Mark::default(), 0);
        if answered.failed {
            self.shard.stats.count_error(&reply.buf);
        }
        self.ended_here(client, queued.command, args, answered, now);
        reply
    }

    fn refused(&mut self, queued: &Queued, client: &Client, error: &Error, now: Millis) -> Reply {
        let mut reply = Reply::new(client.proto);
        write_error(error, &mut reply);
        self.shard.stats.count_error(&reply.buf);
        let answered = Answered { failed: true, reply_bytes: reply.len() };
        if self.shard.timing.executed(queued.id.number, 0, answered) {
            let args = queued.args.args();
            self.note_here(Some(client), Ended { command: queued.command, args, ns: 0, answered, now });
        }
        reply
    }

    /// How a command of a transaction is run.
    fn way_of(&self, client: &Client, command: &'static Command, args: Args<'_>) -> Way {
        let shard = &self.shard;
        if let Err(error) = command.checked(client, args, &shard.settings) {
            return Way::Refused(error);
        }
        match command.plan {
            Plan::Session(_) if command.name == "ssubscribe" => {
                Way::Refused(Error::text("ERR SSUBSCRIBE isn't allowed for a DENY BLOCKING client"))
            }
            Plan::Session(_) if changes_subscriptions(command) => Way::Barrier,
            Plan::Session(_) => Way::Here,
            Plan::OneShard(_) => Way::Whole(match command.keys {
                [spec, ..] if spec.begin < args.len() => shard_of(shard, args.at(spec.begin)),
                _ => shard.me,
            }),
            Plan::Routed { route, .. } => match route(args) {
                Ok(slot) => Way::Whole(shard.slots.owner(slot)),
                Err(error) => Way::Refused(error),
            },
            Plan::EachShard { .. } | Plan::Staged { .. } => {
                if command.name == "monitor" {
                    return Way::Refused(Error::text("ERR MONITOR isn't allowed for DENY BLOCKING client"));
                }
                match (Coordinator::sole_owner(shard, command, args), command.plan) {
                    (Some(owner), _) => Way::Whole(owner),
                    (None, Plan::EachShard { .. }) if matches!(command.scope, Scope::Keys | Scope::Whole) => {
                        Way::Parts(Coordinator::divide(shard, command, args))
                    }
                    (None, _) => Way::Barrier,
                }
            }
            Plan::Exec | Plan::Container => Way::Refused(Error::Syntax),
        }
    }

    /// Tells shards of clients that watch nothing any more.
    pub(crate) fn tell_of_unwatched(&mut self) {
        while let Some(Unwatched { client, shards }) = self.shard.unwatched.pop() {
            for shard in shards {
                if shard == self.shard.me {
                    self.shard.keyspace.unwatch(client);
                } else {
                    self.send(shard, TxMessage::Unwatch(client));
                }
            }
        }
    }
}

/// Whether a command is SUBSCRIBE or one of its kin, for which owners of channels have to answer.
pub(crate) fn changes_subscriptions(command: &Command) -> bool {
    command.flags.has(Flags::PUBSUB) && command.name.ends_with("subscribe")
}

/// How a command of a transaction is run.
enum Way {
    /// On its connection.
    Here,
    /// Not at all.
    Refused(Error),
    /// In the bundle of one shard.
    Whole(ShardId),
    /// In the bundles of several.
    Parts(Vec<Part>),
    /// On its own.
    Barrier,
}

impl Exec {
    fn new(client: &Client, queue: Vec<Queued>, locks: Vec<Option<BundleLock>>) -> Self {
        Self {
            answers: queue.iter().map(|_| Answer::None).collect(),
            queue,
            next: 0,
            replies: Vec::new(),
            under_way: Vec::new(),
            locks,
            alone: false,
            released: false,
            last_seen: (client.db, client.proto, client.modes),
        }
    }

    /// What it wants of a shard, and the bundle if that is all of it.
    pub(crate) fn wanted(&self, shard: ShardId, bundle: Option<Box<Bundle>>) -> Wanted {
        let lock = self.locks[usize::from(shard.0)].clone().unwrap_or_default();
        Wanted::Bundle(Box::new(lock), bundle)
    }

    /// The shards that it needs.
    pub(crate) fn shards(&self) -> impl Iterator<Item = ShardId> {
        let needed = self.locks.iter().enumerate().filter(|(_, lock)| lock.is_some());
        needed.map(|(idx, _)| ShardId(idx as u16))
    }

    /// The shards on which its client watches keys.
    fn watching(&self) -> impl Iterator<Item = ShardId> {
        let watching = |lock: &Option<BundleLock>| lock.as_ref().is_some_and(|lock| lock.watches);
        let found = self.locks.iter().enumerate().filter(move |(_, lock)| watching(lock));
        found.map(|(idx, _)| ShardId(idx as u16))
    }

    /// Takes in what a bundle has answered.
    fn take(&mut self, from: ShardId, result: BundleResult) {
        let idx = self.under_way.iter().position(|(shard, _)| *shard == from);
        let (_, places) = self.under_way.swap_remove(idx.expect("only shards with a bundle answer"));
        let (mut ends, mut parts, mut from) =
            (result.ends.into_iter(), result.parts.into_iter(), Mark::default());
        let bundle = self.replies.len();
        for place in places {
            match place {
                Place::Whole(at) => {
                    let to = ends.next().expect("every whole command has a reply");
                    self.answers[at] = Answer::In(bundle, std::mem::replace(&mut from, to), to);
                }
                Place::Part(at) => {
                    if let (Answer::Parts(results), Some(part)) = (&mut self.answers[at], parts.next()) {
                        results.push(part);
                    }
                }
            }
        }
        self.replies.push(result.reply);
    }

    /// All replies as one.
    fn reply(&mut self, proto: Proto) -> Reply {
        let mut all = Reply::new(proto);
        all.array(self.answers.len());
        for answer in &mut self.answers {
            match answer {
                Answer::Own(reply) => all.append(reply),
                Answer::In(bundle, from, to) => all.append_range(&self.replies[*bundle], *from, *to),
                Answer::None | Answer::Parts(_) => unreachable!("every command has been answered"),
            }
        }
        all
    }

    /// A client in the place of one that is gone.
    fn stand_in(&self, client_id: u64) -> Client {
        let (db, proto, modes) = self.last_seen;
        let mut client = Client::new(client_id, Peer::default(), 0);
        (client.db, client.proto, client.modes) = (db, proto, modes);
        client
    }
}

impl Node {
    /// All intents are held and no watched key has changed, or what was handed out has been answered: goes on.
    pub(crate) fn advance(&mut self, id: TxId, now: Millis) {
        let Some(mut tx) = self.coordinator.take(id) else { return };
        let Some(mut exec) = tx.exec.take() else { return };
        let who = (tx.session, tx.client_id);
        let step = match self.sessions.get_mut(tx.session) {
            Some(session) => self.core.plan_step(&mut session.client, who, &mut exec, now),
            None => self.core.plan_step(&mut exec.stand_in(tx.client_id), who, &mut exec, now),
        };
        match step {
            Step::Bundles(bundles) => {
                tx.awaited = bundles.len();
                exec.released = bundles.iter().all(|(_, bundle)| bundle.last);
                let idle = exec.shards().filter(|shard| !bundles.iter().any(|(busy, _)| busy == shard));
                for shard in idle.filter(|_| exec.released) {
                    self.core.send(shard, TxMessage::Release(id));
                }
                for (shard, bundle) in bundles {
                    self.core.send(shard, TxMessage::Bundle(id, Box::new(bundle)));
                }
                tx.exec = Some(exec);
                self.coordinator.put(tx);
            }
            Step::Barrier(at) => {
                let queued = &exec.queue[at];
                let (db, proto, modes) = exec.last_seen;
                let child = (queued.command, queued.args.clone(), queued.request_bytes);
                tx.exec = Some(exec);
                let messages =
                    self.coordinator.start_within(&self.core.shard, &tx, at, child, (db, proto, modes));
                self.coordinator.put(tx);
                for (shard, message) in messages {
                    self.core.send(shard, message);
                }
            }
            Step::Subscribe(at) => {
                if let Some(session) = self.sessions.get_mut(tx.session) {
                    self.core.run_here_in_exec(&mut session.client, &exec.queue[at], now);
                    self.core.wait_for_change(session, id, at);
                } else {
                    self.core.send(id.coordinator, TxMessage::Confirmed(id, at));
                }
                tx.exec = Some(exec);
                self.coordinator.put(tx);
            }
            Step::Finish => {
                let proto = exec.last_seen.1;
                let reply = exec.reply(proto);
                tx.exec = Some(exec);
                self.finish_exec(tx, reply, now);
            }
        }
    }

    /// A watched key has changed.
    pub(crate) fn refuse_exec(&mut self, id: TxId, now: Millis) {
        let Some(tx) = self.coordinator.take(id) else { return };
        let mut reply = Reply::new(tx.proto);
        reply.null_array();
        if let Some(exec) = tx.exec.as_ref().filter(|exec| exec.alone) {
            // They were counted when they were sent away.
            self.core.shard.stats.commands -= exec.queue.len() as u64;
        }
        self.finish_exec(tx, reply, now);
    }

    /// A bundle has been run.
    pub(crate) fn on_bundle_ran(&mut self, from: ShardId, id: TxId, result: BundleResult, now: Millis) {
        let Some(tx) = self.coordinator.get_mut(id) else { return };
        if result.refused {
            return self.refuse_exec(id, now);
        }
        let Some(exec) = &mut tx.exec else { return };
        tx.ns += result.ns;
        exec.take(from, result);
        tx.awaited -= 1;
        if tx.awaited > 0 {
            return;
        }
        let answers =
            exec.answers.iter_mut().zip(&exec.queue).filter(|(answer, _)| matches!(answer, Answer::Parts(_)));
        for (answer, queued) in answers {
            let Answer::Parts(parts) = std::mem::replace(answer, Answer::None) else { continue };
            let client = self.sessions.get_mut(tx.session).map(|session| &session.client);
            *answer = Answer::Own(self.core.merge_in_exec(queued, client, &parts, now));
        }
        self.advance(id, now);
    }

    /// A barrier has been run.
    pub(crate) fn on_child_finished(&mut self, parent: TxId, at: usize, reply: Reply, now: Millis) {
        let Some(exec) = self.coordinator.get_mut(parent).and_then(|tx| tx.exec.as_mut()) else { return };
        exec.answers[at] = Answer::Own(reply);
        self.advance(parent, now);
    }

    /// Subscriptions have been changed for a command of a transaction. Its client is told so even if it wants no replies.
    pub(crate) fn on_confirmed(&mut self, id: TxId, at: usize, now: Millis) {
        let Some(tx) = self.coordinator.get_mut(id) else { return };
        let mut reply = Reply::default();
        if let Some(session) = self.sessions.get_mut(tx.session) {
            let transaction = session.client.transaction.as_mut();
            reply = transaction.map(|own| std::mem::take(&mut own.confirmed)).unwrap_or_default();
            if session.client.modes.mutes() {
                session.out.append(&mut reply);
            }
        }
        self.on_child_finished(id, at, reply, now);
    }

    fn finish_exec(&mut self, tx: Tx, reply: Reply, now: Millis) {
        let Some(exec) = &tx.exec else { return };
        if !exec.alone {
            for shard in exec.watching() {
                self.core.send(shard, TxMessage::Unwatch(tx.client_id));
            }
        }
        if !exec.released {
            for shard in exec.shards() {
                self.core.send(shard, TxMessage::Release(tx.id));
            }
        }
        if let Some(session) = self.sessions.get_mut(tx.session) {
            self.core.show(&session.client, tx.command, tx.args.args(), now);
        }
        self.account(&tx, &reply, now);
        self.answer_tx(&tx, reply, now);
    }
}

impl Core {
    /// The reply of a command whose parts were in several bundles. It counts once.
    fn merge_in_exec(
        &mut self,
        queued: &Queued,
        client: Option<&Client>,
        parts: &[PartResult],
        now: Millis,
    ) -> Reply {
        let (command, args) = (queued.command, queued.args.args());
        let Plan::EachShard { merge, .. } = command.plan else {
            unreachable!("only such commands have parts")
        };
        let mut reply = Reply::new(parts.first().map_or(Proto::default(), |part| part.reply.proto()));
        merge_parts(merge, parts, args, &mut reply);
        let answered = Answered::since(&reply, Mark::default(), 0);
        if answered.failed {
            self.shard.stats.count_error(&reply.buf);
        }
        let ns = parts.iter().map(|part| part.ns).sum();
        if self.shard.timing.executed(queued.id.number, ns, answered) {
            self.note_here(client, Ended { command, args, ns, answered, now });
        }
        reply
    }
}

impl Coordinator {
    /// Announces a transaction to all shards that it needs.
    fn ask_all(&mut self, core: &mut Core, tx: Tx) {
        for part in &tx.parts {
            core.send(part.shard, tx.lock(part, false));
        }
        self.put(tx);
    }

    /// Sends a transaction to the only shard that it needs.
    fn ask_with(&mut self, core: &mut Core, mut tx: Tx, bundle: Box<Bundle>) {
        tx.awaited = 1;
        let part = &tx.parts[0];
        let request = LockRequest {
            wanted: tx.exec.as_ref().map_or(Wanted::Usual, |exec| exec.wanted(part.shard, Some(bundle))),
            ..tx.lock_request(part, true)
        };
        core.send(part.shard, TxMessage::Lock(Box::new(request)));
        self.put(tx);
    }
}
