//! Deadlines: EXPIRE and its kin set them, TTL and its kin tell them, PERSIST takes them away.

use super::deadline::{Condition, Form, to_seconds};
use crate::args::Args;
use crate::command::{Command, Flags, Flow, Handler, KeyFlags, KeySpec, Plan};
use crate::ctx::Ctx;
use crate::errors::Error;
use crate::events::EventClasses;
use crate::keyspace::Millis;
use corelane_resp::Reply;

const UPDATED: &[KeySpec] = &[KeySpec::one(1, KeyFlags::RW.with(KeyFlags::UPDATE))];
const ACCESSED: &[KeySpec] = &[KeySpec::one(1, KeyFlags::RO.with(KeyFlags::ACCESS))];

const fn sets(
    name: &'static str,
    run: Handler,
    since: &'static str,
    syntax: &'static str,
    summary: &'static str,
) -> Command {
    Command {
        name,
        arity: -3,
        flags: Flags::WRITE.with(Flags::FAST),
        categories: &["@keyspace"],
        keys: UPDATED,
        plan: Plan::OneShard(run),
        since,
        summary,
        syntax,
        ..Command::DEFAULT
    }
}

const fn tells(name: &'static str, run: Handler, since: &'static str, summary: &'static str) -> Command {
    Command {
        name,
        arity: 2,
        flags: Flags::READONLY.with(Flags::FAST),
        categories: &["@keyspace"],
        keys: ACCESSED,
        plan: Plan::OneShard(run),
        since,
        summary,
        syntax: "key",
        ..Command::DEFAULT
    }
}

pub(super) const COMMANDS: &[Command] = &[
    sets(
        "expire",
        |ctx, args, reply| {
            set_deadline(ctx, args, reply, Form { name: "expire", unit_ms: 1000, relative: true })
        },
        "1.0.0",
        "key seconds [NX | XX | GT | LT] #condition @7.0.0",
        "Sets the expiration time of a key in seconds.",
    ),
    sets(
        "pexpire",
        |ctx, args, reply| {
            set_deadline(ctx, args, reply, Form { name: "pexpire", unit_ms: 1, relative: true })
        },
        "2.6.0",
        "key milliseconds [NX | XX | GT | LT] #condition @7.0.0",
        "Sets the expiration time of a key in milliseconds.",
    ),
    sets(
        "expireat",
        |ctx, args, reply| {
            set_deadline(ctx, args, reply, Form { name: "expireat", unit_ms: 1000, relative: false })
        },
        "1.2.0",
        "key unix-time-seconds [NX | XX | GT | LT] #condition @7.0.0",
        "Sets the expiration time of a key to a Unix timestamp.",
    ),
    sets(
        "pexpireat",
        |ctx, args, reply| {
            set_deadline(ctx, args, reply, Form { name: "pexpireat", unit_ms: 1, relative: false })
        },
        "2.6.0",
        "key unix-time-milliseconds [NX | XX | GT | LT] #condition @7.0.0",
        "Sets the expiration time of a key to a Unix milliseconds timestamp.",
    ),
    Command {
        tips: &["nondeterministic_output"],
        ..tells("ttl", ttl, "1.0.0", "Returns the expiration time in seconds of a key.")
    },
    Command {
        tips: &["nondeterministic_output"],
        ..tells("pttl", pttl, "2.6.0", "Returns the expiration time in milliseconds of a key.")
    },
    tells("expiretime", expire_time, "7.0.0", "Returns the expiration time of a key as a Unix timestamp."),
    tells(
        "pexpiretime",
        pexpire_time,
        "7.0.0",
        "Returns the expiration time of a key as a Unix milliseconds timestamp.",
    ),
    Command {
        name: "persist",
        arity: 2,
        flags: Flags::WRITE.with(Flags::FAST),
        categories: &["@keyspace"],
        keys: UPDATED,
        plan: Plan::OneShard(persist),
        since: "2.2.0",
        summary: "Removes the expiration time of a key.",
        syntax: "key",
        ..Command::DEFAULT
    },
];

fn set_deadline(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply, form: Form) -> Result<Flow, Error> {
    let condition = Condition::parse(args, args.len())?;
    let deadline = form.deadline(args.int(2)?, ctx.present())?;
    let key = ctx.key(args.at(1));
    let allowed =
        condition.is_none() || ctx.find(key).is_some_and(|entry| condition.allows(entry.expiry(), deadline));
    let deadline = u64::try_from(deadline).unwrap_or(0);
    let set = allowed && ctx.shard.keyspace.use_and_set_expiry(ctx.db, key, Some(deadline), ctx.now);
    if set {
        ctx.notify_deadline(key, deadline);
    } else {
        // An access, though nothing has changed.
        ctx.find_to_change(key);
    }
    reply.int(set.into());
    Ok(Flow::Done)
}

/// Writes what `tell` makes of a key's deadline; -1 where it has none, -2 where it is not there.
fn tell(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply,
    tell: impl Fn(Millis) -> Millis,
) -> Result<Flow, Error> {
    let key = ctx.key(args.at(1));
    reply.int(match ctx.peek(key) {
        None => -2,
        Some(entry) => entry.expiry().map_or(-1, |at| tell(at) as i64),
    });
    Ok(Flow::Done)
}

fn ttl(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply) -> Result<Flow, Error> {
    let now = ctx.now;
    tell(ctx, args, reply, |at| to_seconds(at - now))
}

fn pttl(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply) -> Result<Flow, Error> {
    let now = ctx.now;
    tell(ctx, args, reply, |at| at - now)
}

fn expire_time(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply) -> Result<Flow, Error> {
    let wall = ctx.shard.wall;
    tell(ctx, args, reply, |at| to_seconds(wall.shows_at(at)))
}

fn pexpire_time(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply) -> Result<Flow, Error> {
    let wall = ctx.shard.wall;
    tell(ctx, args, reply, |at| wall.shows_at(at))
}

fn persist(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply) -> Result<Flow, Error> {
    let key = ctx.key(args.at(1));
    let had_deadline = ctx.find(key).is_some_and(|entry| entry.expiry().is_some());
    if had_deadline {
        ctx.shard.keyspace.use_and_set_expiry(ctx.db, key, None, ctx.now);
        ctx.notify(EventClasses::GENERIC, "persist", key.bytes);
    } else {
        ctx.find_to_change(key);
    }
    reply.int(had_deadline.into());
    Ok(Flow::Done)
}

#[cfg(test)]
mod tests {
    use crate::commands::testing::{Bench, check_all};

    #[test]
    fn deadlines_are_set_told_and_taken_away() {
        check_all(&[
            ("SET k v", "+OK"),
            ("TTL k\nPTTL k\nEXPIRETIME k\nPEXPIRETIME k\nPERSIST k", ":-1\n:-1\n:-1\n:-1\n:0"),
            ("TTL x\nPTTL x\nEXPIRETIME x\nPEXPIRETIME x\nPERSIST x", ":-2\n:-2\n:-2\n:-2\n:0"),
            ("EXPIRE k 10\nTTL k\nPTTL k\nEXPIRETIME k", ":1\n:10\n:10000\n:1700000010"),
            ("PEXPIRE k 1500\nTTL k\nPTTL k", ":1\n:2\n:1500"),
            ("PEXPIRE k 1499\nTTL k\nPEXPIRETIME k\nEXPIRETIME k", ":1\n:1\n:1700000001499\n:1700000001"),
            ("EXPIREAT k 1700000100\nTTL k", ":1\n:100"),
            ("PEXPIREAT k 1700000000007\nPTTL k", ":1\n:7"),
            ("PERSIST k\nTTL k\nEXPIRE x 10", ":1\n:-1\n:0"),
        ]);
    }

    #[test]
    fn deadlines_in_the_past_remove_the_key() {
        for command in ["EXPIRE k 0", "EXPIRE k -1", "PEXPIREAT k 5", "PEXPIRE k -9223372036854775808"] {
            check_all(&[("SET k v", "+OK"), (command, ":1"), ("EXISTS k", ":0"), (command, ":0")]);
        }
    }

    #[test]
    fn conditions_compare_old_and_new_deadlines() {
        let persistent = [("NX", 1), ("XX", 0), ("GT", 0), ("LT", 1), ("XX LT", 0), ("GT XX", 0)];
        let volatile = [("NX", 0), ("XX", 1), ("nx nx", 0), ("xx gt", 1), ("LT XX", 0), ("GT", 1), ("LT", 0)];
        for (condition, set) in persistent {
            check_all(&[("SET k v", "+OK"), (&format!("EXPIRE k 20 {condition}"), &format!(":{set}"))]);
        }
        for (condition, set) in volatile {
            let (later, same) = (format!("EXPIRE k 20 {condition}"), format!("EXPIRE k 10 {condition}"));
            let strict = condition.to_lowercase().contains(['g', 'l']);
            let set_same = if strict { 0 } else { set };
            check_all(&[
                ("SET k v\nEXPIRE k 10", "+OK\n:1"),
                (&same, &format!(":{set_same}")),
                (&later, &format!(":{set}")),
                ("TTL k", if set == 1 { ":20" } else { ":10" }),
            ]);
        }
        check_all(&[("SET k v\nEXPIRE k 10\nEXPIRE k 5 LT\nTTL k", "+OK\n:1\n:1\n:5")]);
    }

    #[test]
    fn bad_arguments_are_refused_as_in_valkey() {
        let nx = "-ERR NX and XX, GT or LT options at the same time are not compatible";
        let gt_lt = "-ERR GT and LT options at the same time are not compatible";
        let number = "-ERR value is not an integer or out of range";
        check_all(&[
            ("EXPIRE k abc", number),
            ("EXPIREAT k 1e3", number),
            ("EXPIRE k abc ZZ", "-ERR Unsupported option ZZ"),
            ("EXPIRE k 10 ZZ NX XX", "-ERR Unsupported option ZZ"),
            ("EXPIRE k 10 NX XX", nx),
            ("EXPIRE k 10 LT GT XX NX", nx),
            ("PEXPIRE k 10 GT LT", gt_lt),
            ("EXPIRE k 9223372036854775807", "-ERR invalid expire time in 'expire' command"),
            ("EXPIRE k -9223372036854775808", "-ERR invalid expire time in 'expire' command"),
            ("PEXPIRE k 9223372036854775807", "-ERR invalid expire time in 'pexpire' command"),
            ("EXPIREAT k 9223372036854776", "-ERR invalid expire time in 'expireat' command"),
            ("PEXPIREAT k 9223372036854775807", ":0"),
            ("EXPIRE k", "-ERR wrong number of arguments for 'expire' command"),
        ]);
    }

    #[test]
    fn keys_vanish_at_their_deadline_whether_or_not_anybody_looks() {
        for shards in [1, 2, 5] {
            let mut bench = Bench::new(shards);
            for key in 0..100 {
                bench.run(&format!("SET k{key} v\nPEXPIRE k{key} {}", 1000 + key));
            }
            bench.now += 1000 + 49;
            assert_eq!(bench.run("EXISTS k49\nEXISTS k50\nTTL k49\nPTTL k50"), ":0\n:1\n:-2\n:1");
            let dbsize = bench.run("DBSIZE");
            assert!(
                [":50", ":51", ":52", ":53", ":54", ":55", ":56", ":57"].contains(&dbsize.as_str()),
                "{dbsize}"
            );
            bench.now += 58;
            assert_eq!(bench.run("PING\nDBSIZE"), "+PONG\n:0");
        }
    }
}
