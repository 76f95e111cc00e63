//! The server as a whole: configuration, time and debugging.

use super::object::encoding_name;
use crate::args::Args;
use crate::command::{Command, Flags, Flow, Merge, Plan, Scope};
use crate::ctx::{Ctx, HostRequest, SessionCtx};
use crate::errors::Error;
use crate::glob::glob_match;
use crate::slot::{Slot, slot_of};
use crate::stats::ShardStats;
use corelane_resp::Reply;

const ADMIN: Flags = Flags::ADMIN.with(Flags::NOSCRIPT).with(Flags::LOADING).with(Flags::STALE);

pub(super) const COMMANDS: &[Command] = &[
    Command {
        name: "config",
        arity: -2,
        since: "2.0.0",
        group: "server",
        summary: "Holds the commands on the configuration.",
        complexity: "Depends on subcommand.",
        subcommands: &[
            Command {
                name: "get",
                arity: -3,
                flags: ADMIN,
                plan: Plan::Session(config_get),
                since: "2.0.0",
                group: "server",
                summary: "Tells the values of settings.",
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
                summary: "Sets the counters of INFO to zero on all shards.",
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
        summary: "Tells the server's time as Unix seconds and microseconds.",
        tips: &["nondeterministic_output"],
        ..Command::DEFAULT
    },
    Command {
        name: "debug",
        arity: -2,
        flags: ADMIN,
        plan: Plan::Routed { route: debug_route, run: debug },
        group: "server",
        summary: "Looks into the server and provokes faults, for tests.",
        complexity: "Depends on subcommand.",
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

/// DEBUG OBJECT runs where its key is, everything else on the first shard.
fn debug_route(args: Args<'_>) -> Result<Slot, Error> {
    Ok(match args.get(2) {
        Some(key) if args.is(1, "OBJECT") => slot_of(key),
        _ => Slot(0),
    })
}

fn debug(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply) -> Result<Flow, Error> {
    if args.is(1, "OBJECT") && args.len() == 3 {
        debug_object(ctx, args, reply)?;
    } else if args.is(1, "SLEEP") && args.len() == 3 {
        // Like strtod: what is not a number sleeps for no time.
        let seconds: f64 =
            std::str::from_utf8(args.at(2)).ok().and_then(|text| text.parse().ok()).unwrap_or(0.0);
        let us = (seconds.clamp(0.0, 1e6) * 1e6) as u64;
        ctx.shard.host_request = Some(HostRequest::SleepUs(us));
        ctx.shard.timing.add_us(us);
        reply.ok();
    } else if args.is(1, "PANIC") && args.len() == 2 {
        panic!("DEBUG PANIC asked for this");
    } else {
        let before = "ERR unknown subcommand or wrong number of arguments for '";
        return Err(Error::echo(before, args.at(1), "'. Try DEBUG HELP."));
    }
    Ok(Flow::Done)
}

/// `serializedlength` is that of the plain string in Redis's dump format, without its compression.
fn debug_object(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply) -> Result<(), Error> {
    let (key, now_s) = (ctx.key(args.at(2)), ctx.now / 1000);
    let entry = ctx.find(key).ok_or(Error::NoSuchKey)?;
    let len = entry.string().map_or(0, <[u8]>::len);
    let length_prefix = match len {
        0..64 => 1,
        64..16384 => 2,
        _ => 5,
    };
    let idle = entry.idle_s(now_s);
    reply.simple(&format!(
        "Value at:{:p} refcount:1 encoding:{} serializedlength:{} lru:{} lru_seconds_idle:{idle}",
        entry.key().as_ptr(),
        encoding_name(&entry),
        len + length_prefix,
        now_s.wrapping_sub(idle) & 0xFF_FFFF,
    ));
    Ok(())
}
