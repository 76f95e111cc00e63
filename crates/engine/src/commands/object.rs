//! OBJECT: how a key is stored.

use crate::args::{Args, parse_int};
use crate::command::{Command, Flags, Flow, KeyFlags, KeySpec, Plan};
use crate::ctx::Ctx;
use crate::errors::Error;
use crate::keyspace::Entry;
use corelane_resp::Reply;

const KEY: &[KeySpec] = &[KeySpec::one(2, KeyFlags::RO)];

const fn about_key(
    name: &'static str,
    run: crate::command::Handler,
    since: &'static str,
    summary: &'static str,
) -> Command {
    Command {
        name,
        arity: 3,
        flags: Flags::READONLY,
        keys: KEY,
        plan: Plan::OneShard(run),
        since,
        categories: &["@keyspace"],
        summary,
        syntax: "key",
        tips: &["nondeterministic_output"],
        ..Command::DEFAULT
    }
}

pub(super) const COMMANDS: &[Command] = &[Command {
    name: "object",
    arity: -2,
    since: "2.2.3",
    summary: "Holds the commands on how keys are stored.",
    complexity: "Depends on subcommand.",
    subcommands: &[
        about_key("encoding", encoding, "2.2.3", "Names the internal form of a value."),
        about_key("freq", freq, "4.0.0", "Tells how often a key is used, under an LFU policy."),
        about_key("idletime", idle_time, "2.2.3", "Tells the seconds since a key was last used."),
        about_key("refcount", refcount, "2.2.3", "Tells the references to a value."),
    ],
    ..Command::DEFAULT
}];

/// Redis's name for how a string is held. We hold all of them alike; the names follow Valkey's rules, which clients and
/// tests look at: a value that is an integer is `int`, one that fits 128 bytes together with its key is `embstr`.
pub(super) fn encoding_name(entry: &Entry) -> &'static str {
    /// Bytes of Valkey's object header, of its value's header and of two terminators.
    const OBJECT_OVERHEAD: usize = 14;
    let Some(value) = entry.string() else { return "raw" };
    if entry.is_raw() {
        return "raw";
    }
    if parse_int(value).is_some() {
        return "int";
    }
    let key_header = if entry.key().len() < 32 { 1 } else { 3 };
    let expiry = if entry.expiry().is_some() { 8 } else { 0 };
    let size = OBJECT_OVERHEAD + key_header + entry.key().len() + expiry + value.len();
    if size <= 128 { "embstr" } else { "raw" }
}

fn encoding(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply) -> Result<Flow, Error> {
    let key = ctx.key(args.at(2));
    match ctx.find(key) {
        Some(entry) => reply.bulk(encoding_name(&entry).as_bytes()),
        None => reply.null(),
    }
    Ok(Flow::Done)
}

fn freq(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply) -> Result<Flow, Error> {
    let key = ctx.key(args.at(2));
    if ctx.find(key).is_some() {
        return Err(Error::text(
            "ERR An LFU maxmemory policy is not selected, access frequency not tracked. Please note that when switching \
             between policies at runtime LRU and LFU data will take some time to adjust.",
        ));
    }
    reply.null();
    Ok(Flow::Done)
}

fn idle_time(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply) -> Result<Flow, Error> {
    let (key, now_s) = (ctx.key(args.at(2)), ctx.now / 1000);
    match ctx.find(key) {
        Some(entry) => reply.int(entry.idle_s(now_s) as i64),
        None => reply.null(),
    }
    Ok(Flow::Done)
}

fn refcount(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply) -> Result<Flow, Error> {
    let key = ctx.key(args.at(2));
    match ctx.find(key) {
        Some(_) => reply.int(1),
        None => reply.null(),
    }
    Ok(Flow::Done)
}
