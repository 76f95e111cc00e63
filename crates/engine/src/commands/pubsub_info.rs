//! PUBSUB: which channels and patterns have subscribers, and how many.

use super::help;
use crate::args::{Args, parse_int};
use crate::command::{Command, Flags, Flow, Merge, Plan, Scope};
use crate::ctx::{Ctx, PartResult, SessionCtx};
use crate::errors::Error;
use crate::execute::shard_of;
use crate::glob::glob_match;
use crate::pubsub::Kind;
use corelane_resp::Reply;

const QUIET: Flags = Flags::PUBSUB.with(Flags::LOADING).with(Flags::STALE);

const fn telling(name: &'static str, since: &'static str, plan: Plan) -> Command {
    Command {
        name,
        arity: -2,
        flags: QUIET,
        plan,
        scope: Scope::Nothing,
        since,
        group: "pubsub",
        ..Command::DEFAULT
    }
}

pub(super) const COMMANDS: &[Command] = &[Command {
    name: "pubsub",
    arity: -2,
    since: "2.8.0",
    group: "pubsub",
    summary: "A container for Pub/Sub commands.",
    complexity: "Depends on subcommand.",
    subcommands: &[
        Command {
            summary: "Returns the active channels.",
            complexity: "O(N) where N is the number of active channels, and assuming constant time pattern matching (relatively \
                         short channels and patterns)",
            syntax: "[pattern]",
            check: Some(check_channels),
            ..telling(
                "channels",
                "2.8.0",
                Plan::EachShard { part: channels, merge: Merge::With(write_names) },
            )
        },
        help::record(show_help, "6.2.0", "pubsub"),
        Command {
            arity: 2,
            summary: "Returns a count of unique pattern subscriptions.",
            ..telling("numpat", "2.8.0", Plan::Session(numpat))
        },
        Command {
            summary: "Returns a count of subscribers to channels.",
            complexity: "O(N) for the NUMSUB subcommand, where N is the number of requested channels",
            syntax: "[channel ...]",
            ..telling("numsub", "2.8.0", Plan::EachShard { part: numsub, merge: Merge::With(write_counts) })
        },
        Command {
            summary: "Returns the active shard channels.",
            complexity: "O(N) where N is the number of active shard channels, and assuming constant time pattern matching \
                         (relatively short shard channels).",
            syntax: "[pattern]",
            check: Some(check_shard_channels),
            ..telling(
                "shardchannels",
                "7.0.0",
                Plan::EachShard { part: shard_channels, merge: Merge::With(write_names) },
            )
        },
        Command {
            summary: "Returns the count of subscribers of shard channels.",
            complexity: "O(N) for the SHARDNUMSUB subcommand, where N is the number of requested shard channels",
            syntax: "[shardchannel ...]",
            ..telling(
                "shardnumsub",
                "7.0.0",
                Plan::EachShard { part: shard_numsub, merge: Merge::With(write_counts) },
            )
        },
    ],
    ..Command::DEFAULT
}];

const HELP: &[&str] = &[
    "CHANNELS [<pattern>]",
    "    Return the currently active channels matching a <pattern> (default: '*').",
    "NUMPAT",
    "    Return number of subscriptions to patterns.",
    "NUMSUB [<channel> ...]",
    "    Return the number of subscribers for the specified channels, excluding",
    "    pattern subscriptions(default: no channels).",
    "SHARDCHANNELS [<pattern>]",
    "    Return the currently active shard level channels matching a <pattern> (default: '*').",
    "SHARDNUMSUB [<shardchannel> ...]",
    "    Return the number of subscribers for the specified shard level channel(s)",
];

fn show_help(_: &mut SessionCtx<'_>, args: Args<'_>, reply: &mut Reply) -> Result<(), Error> {
    help::write(HELP, args, reply);
    Ok(())
}

fn at_most_one_pattern(args: Args<'_>) -> Result<(), Error> {
    if args.len() <= 3 {
        return Ok(());
    }
    Err(Error::echo(
        "ERR unknown subcommand or wrong number of arguments for '",
        args.at(1),
        "'. Try PUBSUB HELP.",
    ))
}

fn check_channels(args: Args<'_>, _: &crate::settings::Settings) -> Result<(), Error> {
    at_most_one_pattern(args)
}

fn check_shard_channels(args: Args<'_>, _: &crate::settings::Settings) -> Result<(), Error> {
    at_most_one_pattern(args)
}

fn numpat(ctx: &mut SessionCtx<'_>, _: Args<'_>, reply: &mut Reply) -> Result<(), Error> {
    reply.int(ctx.shard.pubsub.counts().patterns as i64);
    Ok(())
}

/// The names of this shard's channels that match.
fn list(ctx: &mut Ctx<'_>, kind: Kind, args: Args<'_>, reply: &mut Reply) -> Result<Flow, Error> {
    let pattern = args.get(2);
    for (name, _) in ctx.shard.pubsub.registry(kind).iter() {
        if pattern.is_none_or(|pattern| glob_match(pattern, name, false)) {
            reply.bulk(name);
            ctx.elements += 1;
        }
    }
    Ok(Flow::Done)
}

fn channels(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply) -> Result<Flow, Error> {
    list(ctx, Kind::Channel, args, reply)
}

fn shard_channels(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply) -> Result<Flow, Error> {
    list(ctx, Kind::ShardChannel, args, reply)
}

fn write_names(parts: &[PartResult], _: Args<'_>, reply: &mut Reply) {
    reply.array(parts.iter().map(|part| part.elements as usize).sum());
    for part in parts {
        reply.raw(&part.reply.buf);
    }
}

/// A line for each name: how many subscribers it has, if this shard knows.
fn count(ctx: &mut Ctx<'_>, kind: Kind, args: Args<'_>, reply: &mut Reply) -> Result<Flow, Error> {
    for name in args.iter_from(2) {
        let own = shard_of(ctx.shard, name) == ctx.shard.me;
        reply.int(if own { ctx.shard.pubsub.registry(kind).count(name) } else { 0 });
    }
    Ok(Flow::Done)
}

fn numsub(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply) -> Result<Flow, Error> {
    count(ctx, Kind::Channel, args, reply)
}

fn shard_numsub(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply) -> Result<Flow, Error> {
    count(ctx, Kind::ShardChannel, args, reply)
}

fn write_counts(parts: &[PartResult], args: Args<'_>, reply: &mut Reply) {
    let names = args.iter_from(2).count();
    let mut counts = vec![0; names];
    for part in parts {
        let lines = part.reply.buf.split(|byte| *byte == b'\n');
        for (count, line) in counts.iter_mut().zip(lines) {
            let digits = line.strip_prefix(b":").and_then(|line| line.strip_suffix(b"\r"));
            *count += digits.and_then(parse_int).unwrap_or(0);
        }
    }
    reply.array(names * 2);
    for (name, count) in args.iter_from(2).zip(counts) {
        reply.bulk(name);
        reply.int(count);
    }
}
