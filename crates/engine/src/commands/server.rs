//! The server as a whole: configuration and time.

use crate::args::Args;
use crate::command::{Command, Flags, Flow, Merge, Plan, Scope};
use crate::ctx::{Ctx, SessionCtx};
use crate::errors::Error;
use crate::glob::glob_match;
use crate::stats::ShardStats;
use corelane_resp::Reply;

const ADMIN: Flags = Flags::ADMIN.with(Flags::NOSCRIPT).with(Flags::LOADING).with(Flags::STALE);

pub(super) const COMMANDS: &[Command] = &[
    Command {
        name: "config",
        arity: -2,
        since: "2.0.0",
        group: "server",
        summary: "A container for server configuration commands.",
        complexity: "Depends on subcommand.",
        subcommands: &[
            Command {
                name: "get",
                arity: -3,
                flags: ADMIN,
                plan: Plan::Session(config_get),
                since: "2.0.0",
                group: "server",
                summary: "Returns the effective values of configuration parameters.",
                complexity: "O(N) when N is the number of configuration parameters provided",
                syntax: "parameter [parameter ...]",
                ..Command::DEFAULT
            },
            Command {
                name: "resetstat",
                arity: 2,
                flags: ADMIN,
                plan: Plan::EachShard { part: reset_stats, merge: Merge::AllOk },
                scope: Scope::Nothing,
                since: "2.0.0",
                group: "server",
                summary: "Resets the server's statistics.",
                tips: &["request_policy:all_nodes", "response_policy:all_succeeded"],
                ..Command::DEFAULT
            },
        ],
        ..Command::DEFAULT
    },
    Command {
        name: "time",
        arity: 1,
        flags: Flags::LOADING.with(Flags::STALE).with(Flags::FAST),
        plan: Plan::Session(time),
        since: "2.6.0",
        group: "server",
        summary: "Returns the server time.",
        tips: &["nondeterministic_output"],
        ..Command::DEFAULT
    },
];

fn config_get(ctx: &mut SessionCtx<'_>, args: Args<'_>, reply: &mut Reply) -> Result<(), Error> {
    let shown = &ctx.shard.settings.shown;
    let mut found: Vec<(&[u8], &str)> = Vec::new();
    for wanted in args.iter_from(2) {
        // A plain name is answered in the letters it was asked in.
        let is_pattern = wanted.iter().any(|byte| matches!(byte, b'[' | b'*' | b'?'));
        for (name, value) in shown.iter().filter(|(name, _)| glob_match(wanted, name.as_bytes(), true)) {
            let name = if is_pattern { name.as_bytes() } else { wanted };
            if !found.iter().any(|(other, _)| other.eq_ignore_ascii_case(name)) {
                found.push((name, value));
            }
        }
    }
    reply.map(found.len());
    for (name, value) in found {
        reply.bulk(name);
        reply.bulk(value.as_bytes());
    }
    Ok(())
}

fn reset_stats(ctx: &mut Ctx<'_>, _: Args<'_>, reply: &mut Reply) -> Result<Flow, Error> {
    ctx.shard.stats = ShardStats::default();
    ctx.shard.keyspace.expired = 0;
    ctx.shard.timing.reset();
    reply.ok();
    Ok(Flow::Done)
}

/// The engine's clock counts milliseconds and never goes back; the reply's microseconds are those it has.
fn time(ctx: &mut SessionCtx<'_>, _: Args<'_>, reply: &mut Reply) -> Result<(), Error> {
    reply.array(2);
    reply.bulk((ctx.now / 1000).to_string().as_bytes());
    reply.bulk((ctx.now % 1000 * 1000).to_string().as_bytes());
    Ok(())
}
