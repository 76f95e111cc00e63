//! Commands on one shard that take long: they are done in pieces, one in a turn, so that other clients have their turns, too.
//!
//! Until the last piece such a command holds intents on its keys, like one over several shards: who wants to change them
//! waits, so it sees them as they were at its beginning. Their time may come meanwhile: then the command answers as if the key
//! had not been there.

use crate::args::{Args, OwnedArgs};
use crate::command::{Command, Flow, KeyRange, Pace, PieceSizes, Plan};
use crate::ctx::{Decide, KeySelection, Next, On, PartResult, Shard};
use crate::execute::{PartRun, ctx, run_part};
use crate::intents::Ticket;
use crate::keyspace::Millis;
use crate::node::{Core, Node};
use crate::participant::{Origin, Participant};
use crate::session::{Session, SessionId};
use corelane_resp::Reply;

/// Such a command.
pub(crate) struct Walk {
    pub(crate) origin: Origin,
    command: &'static Command,
    args: OwnedArgs,
    ticket: Option<Ticket>,
    /// When it began: that is what it sees.
    began: Millis,
    /// What is being run: 0 for the reading part, then the stage of a staged command, and for which keys.
    stage: u8,
    on: On,
    resume: u64,
    result: PartResult,
}

impl Walk {
    /// What is run has ended: goes on to the next stage; false if there is none, and the reply is complete.
    fn begin_stage(&mut self, sizes: PieceSizes) -> bool {
        let Plan::Staged { decide, .. } = self.command.plan else { return false };
        if self.result.failed {
            return false;
        }
        let (args, proto) = (self.args.args(), self.origin.head.proto);
        let mut reply = Reply::new(proto);
        let results = std::slice::from_mut(&mut self.result);
        let next = decide(&mut Decide { stage: self.stage, args, sizes, results, reply: &mut reply });
        let Next::Run { stage, on, payload } = next else {
            // None that waits for keys is put off.
            self.result.reply = reply;
            return false;
        };
        let ns = self.result.ns;
        (self.stage, self.on, self.resume) = (stage, on, 0);
        self.result = PartResult { payload, ns, ..PartResult::default() };
        self.result.reply.set_proto(proto);
        true
    }
}

impl Participant {
    /// Has a command that takes long done in pieces, under intents that it holds already, or takes now.
    #[cold]
    pub(crate) fn walk(
        &mut self,
        shard: &mut Shard,
        (origin, ticket): (Origin, Option<Ticket>),
        command: &'static Command,
        args: Args<'_>,
        now: Millis,
    ) {
        let ticket = match self.faults.reads_unguarded {
            true => ticket,
            false => ticket.or_else(|| Some(self.hold(shard, command, args))),
        };
        let mut result = PartResult::default();
        result.reply.set_proto(origin.head.proto);
        let args = args.to_owned();
        self.walks.push_back(Walk {
            origin,
            command,
            args,
            ticket,
            began: now,
            stage: 0,
            on: On::All,
            resume: 0,
            result,
        });
    }
}

impl Node {
    /// Does a piece of one of the commands that take long.
    pub(crate) fn step_walk(&mut self, now: Millis) {
        let Some(mut walk) = self.participant.walks.pop_front() else { return };
        let (head, core) = (walk.origin.head, &mut self.core);
        let is_gone = walk.origin.from == core.shard.me && self.sessions.get_mut(head.session).is_none();
        if is_gone && !walk.command.is_exclusive_for(walk.args.args()) {
            walk.result.payload.discard(&mut core.shard.keyspace);
            return core.serve_new(&mut self.participant, walk.ticket, now);
        }
        let (Plan::OneShard(run) | Plan::Staged { read: run, .. }) = walk.command.plan else {
            unreachable!("only such commands are done in pieces on one shard")
        };
        let run = match walk.command.plan {
            Plan::Staged { write, .. } if walk.stage > 0 => write,
            _ => run,
        };
        core.current = Some(walk.command.name);
        core.shard.keyspace.no_touch = head.no_touch;
        core.shard.timing.begin();
        let args = walk.args.args();
        let keys = match walk.on {
            On::All => walk.command.key_range(args).map_or(KeySelection::List(&[]), KeySelection::Range),
            On::Key(idx) => KeySelection::Range(KeyRange::one(idx)),
        };
        let mut ctx = ctx(&mut core.shard, head.db.into(), walk.began, keys);
        (ctx.pace, ctx.stage, ctx.resume, ctx.looked_up) = (Pace::Pieces, walk.stage, walk.resume, true);
        ctx.payload = std::mem::take(&mut walk.result.payload);
        let PartRun { mut result, again } = run_part(ctx, run, None, args, walk.result);
        result.ns += core.shard.timing.lap();
        walk.result = result;
        if let Some(resume) = again {
            walk.resume = resume;
        } else if !walk.begin_stage(core.shard.settings.pieces) {
            return self.end_walk(walk, now);
        }
        self.participant.walks.push_back(walk);
    }

    fn end_walk(&mut self, walk: Walk, now: Millis) {
        let Walk { origin, command, args, ticket, mut result, .. } = walk;
        self.core.running = origin.head.command;
        self.core.shard.timing.add_ns(result.ns);
        self.conclude(origin, command, args.args(), now, |_, reply| {
            reply.append(&mut result.reply);
            Ok(Flow::Done)
        });
        self.core.serve_new(&mut self.participant, ticket, now);
    }
}

impl Core {
    /// A command of this shard's own client takes long.
    #[cold]
    pub(crate) fn walk_here(
        &mut self,
        participant: &mut Participant,
        session: &mut Session,
        id: SessionId,
        (command, args, now): (&'static Command, Args<'_>, Millis),
    ) {
        let origin = Origin { from: self.shard.me, head: self.head(session, id, args) };
        participant.walk(&mut self.shard, (origin, None), command, args, now);
    }
}
