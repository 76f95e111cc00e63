//! Commands on one shard that take long: they are done in pieces, one in a turn, so that other clients have their turns, too.
//!
//! Until the last piece such a command holds intents on its keys, like one over several shards: who wants to change them
//! waits, so it sees them as they were at its beginning. Their time may come meanwhile: then the command answers as if the key
//! had not been there.

use crate::args::{Args, OwnedArgs};
use crate::command::{Command, Flow, Pace, Plan};
use crate::ctx::{KeySelection, PartResult, Shard};
use crate::execute::{PartRun, ctx, run_part};
use crate::intents::Ticket;
use crate::keyspace::Millis;
use crate::node::{Core, Node};
use crate::participant::{Origin, Participant};
use crate::session::{Session, SessionId};

/// Such a command.
pub(crate) struct Walk {
    pub(crate) origin: Origin,
    command: &'static Command,
    args: OwnedArgs,
    ticket: Option<Ticket>,
    /// When it began: that is what it sees.
    began: Millis,
    resume: u64,
    result: PartResult,
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
        self.walks.push_back(Walk { origin, command, args, ticket, began: now, resume: 0, result });
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
        core.current = Some(walk.command.name);
        core.shard.keyspace.no_touch = head.no_touch;
        core.shard.timing.begin();
        let args = walk.args.args();
        let keys = walk.command.key_range(args).map_or(KeySelection::List(&[]), KeySelection::Range);
        let mut ctx = ctx(&mut core.shard, head.db.into(), walk.began, keys);
        (ctx.pace, ctx.resume, ctx.looked_up) = (Pace::Pieces, walk.resume, true);
        ctx.payload = std::mem::take(&mut walk.result.payload);
        let PartRun { mut result, again } = run_part(ctx, run, None, args, walk.result);
        result.ns += core.shard.timing.lap();
        walk.result = result;
        if let Some(resume) = again {
            walk.resume = resume;
            self.participant.walks.push_back(walk);
            return;
        }
        self.end_walk(walk, now);
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
