//! The server as a whole: its time.

use crate::args::Args;
use crate::command::{Command, Flags, Plan};
use crate::ctx::SessionCtx;
use crate::errors::Error;
use corelane_resp::Reply;

pub(super) const COMMANDS: &[Command] = &[Command {
    name: "time",
    arity: 1,
    flags: Flags::LOADING.with(Flags::STALE).with(Flags::FAST),
    plan: Plan::Session(time),
    since: "2.6.0",
    group: "server",
    summary: "Returns the server time.",
    tips: &["nondeterministic_output"],
    ..Command::DEFAULT
}];

/// The engine counts milliseconds; the reply's microseconds are those it has.
fn time(ctx: &mut SessionCtx<'_>, _: Args<'_>, reply: &mut Reply) -> Result<(), Error> {
    let shown = ctx.shard.wall.shows_at(ctx.now);
    reply.array(2);
    reply.bulk((shown / 1000).to_string().as_bytes());
    reply.bulk((shown % 1000 * 1000).to_string().as_bytes());
    Ok(())
}
