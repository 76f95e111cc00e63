//! Strings: reading, deleting, appending and editing.

use crate::args::Args;
use crate::command::{Command, Flags, Flow, KeyFlags, KeySpec, Merge, Plan};
use crate::ctx::{Ctx, Decide, Next, On, Payload};
use crate::errors::Error;
use crate::events::EventClasses;
use crate::keyspace::NewValue;
use crate::settings::Settings;
use corelane_resp::Reply;

const FAST_READ: Flags = Flags::READONLY.with(Flags::FAST);
const GROWING: Flags = Flags::WRITE.with(Flags::DENYOOM);
const READ: &[KeySpec] = &[KeySpec::one(1, KeyFlags::RO.with(KeyFlags::ACCESS))];
const MULTI_SHARD: &[&str] = &["request_policy:multi_shard", "response_policy:all_succeeded"];

pub(super) const COMMANDS: &[Command] = &[
    Command {
        name: "get",
        arity: 2,
        flags: FAST_READ,
        keys: READ,
        plan: Plan::OneShard(get),
        group: "string",
        summary: "Returns the string value of a key.",
        syntax: "key",
        ..Command::DEFAULT
    },
    Command {
        name: "mget",
        arity: -2,
        flags: FAST_READ,
        keys: &[KeySpec::all_from(1, 1, KeyFlags::RO.with(KeyFlags::ACCESS))],
        plan: Plan::EachShard { part: mget, merge: Merge::InKeyOrder },
        group: "string",
        summary: "Atomically returns the string values of one or more keys.",
        complexity: "O(N) where N is the number of keys to retrieve.",
        syntax: "key [key ...]",
        tips: &["request_policy:multi_shard"],
        ..Command::DEFAULT
    },
    Command {
        name: "mset",
        arity: -3,
        flags: GROWING,
        keys: &[KeySpec::all_from(1, 2, KeyFlags::OW.with(KeyFlags::UPDATE))],
        plan: Plan::EachShard { part: mset, merge: Merge::AllOk },
        check: Some(check_mset),
        since: "1.0.1",
        group: "string",
        summary: "Atomically creates or modifies the string values of one or more keys.",
        complexity: "O(N) where N is the number of keys to set.",
        syntax: "key value [key value ...] #data",
        tips: MULTI_SHARD,
        ..Command::DEFAULT
    },
    Command {
        name: "msetnx",
        arity: -3,
        flags: GROWING,
        keys: &[KeySpec::all_from(1, 2, KeyFlags::OW.with(KeyFlags::INSERT))],
        plan: Plan::Staged { read: count_present, decide: decide_msetnx, write: mset },
        check: Some(check_msetnx),
        since: "1.0.1",
        group: "string",
        summary: "Atomically modifies the string values of one or more keys only when all keys don't exist.",
        complexity: "O(N) where N is the number of keys to set.",
        syntax: "key value [key value ...] #data",
        ..Command::DEFAULT
    },
    Command {
        name: "getdel",
        arity: 2,
        flags: Flags::WRITE.with(Flags::FAST),
        keys: &[KeySpec::one(1, KeyFlags::RW.with(KeyFlags::ACCESS).with(KeyFlags::DELETE))],
        plan: Plan::OneShard(getdel),
        since: "6.2.0",
        group: "string",
        summary: "Returns the string value of a key after deleting the key.",
        syntax: "key",
        ..Command::DEFAULT
    },
    Command {
        name: "strlen",
        arity: 2,
        flags: FAST_READ,
        keys: &[KeySpec::one(1, KeyFlags::RO)],
        plan: Plan::OneShard(strlen),
        since: "2.2.0",
        group: "string",
        summary: "Returns the length of a string value.",
        syntax: "key",
        ..Command::DEFAULT
    },
    Command {
        name: "append",
        arity: 3,
        flags: GROWING.with(Flags::FAST),
        keys: &[KeySpec::one(1, KeyFlags::RW.with(KeyFlags::INSERT))],
        plan: Plan::OneShard(append),
        since: "2.0.0",
        group: "string",
        summary: "Appends a string to the value of a key. Creates the key if it doesn't exist.",
        syntax: "key value",
        ..Command::DEFAULT
    },
    Command {
        name: "getrange",
        arity: 4,
        flags: Flags::READONLY,
        keys: READ,
        plan: Plan::OneShard(getrange),
        since: "2.4.0",
        group: "string",
        summary: "Returns a substring of the string stored at a key.",
        complexity: "O(N) where N is the length of the returned string.",
        syntax: "key start end",
        ..Command::DEFAULT
    },
    Command {
        name: "substr",
        arity: 4,
        flags: Flags::READONLY,
        keys: READ,
        plan: Plan::OneShard(getrange),
        group: "string",
        summary: "Returns a substring from a string value.",
        complexity: "O(N) where N is the length of the returned string.",
        syntax: "key start end",
        ..Command::DEFAULT
    },
    Command {
        name: "setrange",
        arity: 4,
        flags: GROWING,
        keys: &[KeySpec::one(1, KeyFlags::RW.with(KeyFlags::UPDATE))],
        plan: Plan::OneShard(setrange),
        since: "2.2.0",
        group: "string",
        summary: "Overwrites a part of a string value with another by an offset. Creates the key if it doesn't exist.",
        complexity: "O(N) where N is the length of the value.",
        syntax: "key offset value",
        ..Command::DEFAULT
    },
];

/// Writes the string at a key as a bulk; null if the key is not there.
pub(super) fn write_string(ctx: &mut Ctx<'_>, key: &[u8], reply: &mut Reply) -> Result<(), Error> {
    let key = ctx.key(key);
    let Some(entry) = ctx.lookup(key) else {
        reply.null();
        return Ok(());
    };
    match entry.shared_string() {
        Some(bytes) => reply.bulk_shared(bytes.clone()),
        None => reply.bulk(entry.string().ok_or(Error::WrongType)?),
    }
    Ok(())
}

fn get(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply) -> Result<Flow, Error> {
    write_string(ctx, args.at(1), reply)?;
    Ok(Flow::Done)
}

/// A key with a value of another type counts as absent.
fn mget(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply) -> Result<Flow, Error> {
    for idx in ctx.keys.indices() {
        if write_string(ctx, args.at(idx), reply).is_err() {
            reply.null();
        }
    }
    Ok(Flow::Done)
}

fn check_pairs(args: Args<'_>, name: &'static str) -> Result<(), Error> {
    if args.len().is_multiple_of(2) { Err(Error::Arity(name.into())) } else { Ok(()) }
}

fn check_mset(args: Args<'_>, _: &Settings) -> Result<(), Error> {
    check_pairs(args, "mset")
}

fn check_msetnx(args: Args<'_>, _: &Settings) -> Result<(), Error> {
    check_pairs(args, "msetnx")
}

fn mset(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply) -> Result<Flow, Error> {
    for idx in ctx.keys.indices() {
        let key = ctx.key(args.at(idx));
        ctx.set(key, args.value(idx + 1), None);
        ctx.notify(EventClasses::STRING, "set", key.bytes);
    }
    reply.ok();
    Ok(Flow::Done)
}

/// How many of the keys are there; they are about to be changed.
pub(super) fn count_present(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply) -> Result<Flow, Error> {
    let mut present = 0;
    for idx in ctx.keys.indices() {
        let key = ctx.key(args.at(idx));
        present += i64::from(ctx.find_to_change(key).is_some());
    }
    reply.int(present);
    Ok(Flow::Done)
}

fn decide_msetnx(decide: &mut Decide<'_>) -> Next {
    let present: i64 = decide.results.iter().map(|result| result.int()).sum();
    if decide.stage == 0 && present == 0 {
        return Next::Run { stage: 1, on: On::All, payload: Payload::None };
    }
    decide.reply.int(i64::from(decide.stage == 1));
    Next::Reply
}

fn getdel(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply) -> Result<Flow, Error> {
    write_string(ctx, args.at(1), reply)?;
    let key = ctx.key(args.at(1));
    if ctx.remove(key) {
        ctx.notify(EventClasses::GENERIC, "del", key.bytes);
    }
    Ok(Flow::Done)
}

fn strlen(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply) -> Result<Flow, Error> {
    let key = ctx.key(args.at(1));
    let len = match ctx.lookup(key) {
        None => 0,
        Some(entry) => entry.string().ok_or(Error::WrongType)?.len(),
    };
    reply.int(len as i64);
    Ok(Flow::Done)
}

/// Refuses a string that would be longer than `proto-max-bulk-len`.
fn check_len(ctx: &Ctx<'_>, len: usize) -> Result<(), Error> {
    if len > ctx.shard.settings.proto_max_bulk_len { Err(Error::StringTooLong) } else { Ok(()) }
}

/// The length of the string at a key, `None` if there is none.
pub(super) fn string_len(ctx: &mut Ctx<'_>, key: &[u8]) -> Result<Option<usize>, Error> {
    let key = ctx.key(key);
    match ctx.shard.keyspace.find_to_change(ctx.db, key, ctx.now) {
        None => Ok(None),
        Some(entry) => Ok(Some(entry.string().ok_or(Error::WrongType)?.len())),
    }
}

fn append(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply) -> Result<Flow, Error> {
    let (key, tail) = (ctx.key(args.at(1)), args.at(2));
    let len = match string_len(ctx, args.at(1))? {
        None => {
            ctx.set(key, args.value(2), None);
            tail.len()
        }
        Some(len) => {
            check_len(ctx, len.saturating_add(tail.len()))?;
            ctx.shard.keyspace.edit_string(ctx.db, key, |value| {
                value.extend_from_slice(tail);
                true
            });
            len + tail.len()
        }
    };
    ctx.notify(EventClasses::STRING, "append", key.bytes);
    reply.int(len as i64);
    Ok(Flow::Done)
}

/// The part of a string of `len` bytes from `start` to `end` inclusive, negative ones counted from the end, cut to it.
fn range_of(start: i64, end: i64, len: usize) -> std::ops::Range<usize> {
    let len = len as i64;
    if start < 0 && end < 0 && start > end {
        return 0..0;
    }
    let from = |position: i64| if position < 0 { (len + position).max(0) } else { position };
    let (start, end) = (from(start), from(end).min(len - 1));
    if start > end || len == 0 { 0..0 } else { start as usize..end as usize + 1 }
}

fn getrange(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply) -> Result<Flow, Error> {
    let (start, end) = (args.int(2)?, args.int(3)?);
    let key = ctx.key(args.at(1));
    let Some(entry) = ctx.lookup(key) else {
        reply.bulk(b"");
        return Ok(Flow::Done);
    };
    let value = entry.string().ok_or(Error::WrongType)?;
    let range = range_of(start, end, value.len());
    match entry.shared_string() {
        Some(bytes) => reply.bulk_shared(bytes.slice(range)),
        None => reply.bulk(&value[range]),
    }
    Ok(Flow::Done)
}

fn setrange(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply) -> Result<Flow, Error> {
    let offset = usize::try_from(args.int(2)?).map_err(|_| Error::OffsetRange)?;
    let (key, part) = (ctx.key(args.at(1)), args.at(3));
    let len = string_len(ctx, args.at(1))?;
    if part.is_empty() {
        reply.int(len.unwrap_or(0) as i64);
        return Ok(Flow::Done);
    }
    let end = offset.saturating_add(part.len());
    check_len(ctx, end)?;
    if len.is_none() {
        ctx.set(key, NewValue::Slice(b""), None);
    }
    ctx.shard.keyspace.edit_string(ctx.db, key, |value| {
        if value.len() < end {
            value.resize(end, 0);
        }
        value[offset..end].copy_from_slice(part);
        true
    });
    ctx.notify(EventClasses::STRING, "setrange", key.bytes);
    reply.int(len.unwrap_or(0).max(end) as i64);
    Ok(Flow::Done)
}

#[cfg(test)]
mod tests {
    use crate::commands::testing::check_all;

    #[test]
    fn strings_are_read_appended_and_edited() {
        check_all(&[
            ("APPEND k ab\nAPPEND k cd\nGET k\nSTRLEN k\nSTRLEN x", ":2\n:4\n\"abcd\"\n:4\n:0"),
            (
                "GETRANGE k 0 -1\nGETRANGE k -3 -2\nGETRANGE k 2 1\nGETRANGE k 4 9",
                "\"abcd\"\n\"bc\"\n\"\"\n\"\"",
            ),
            (
                "GETRANGE k -100 1\nGETRANGE x 0 1\nSUBSTR k 1 2\nGETRANGE k -1 -5",
                "\"ab\"\n\"\"\n\"bc\"\n\"\"",
            ),
            ("SETRANGE k 1 XY\nGET k\nSETRANGE k 6 z\nSTRLEN k", ":4\n\"aXYd\"\n:7\n:7"),
            ("SETRANGE k 1 \"\"\nSETRANGE x 1 \"\"\nEXISTS x", ":7\n:0\n:0"),
            ("SETRANGE k -1 a", "-ERR offset is out of range"),
            ("SETRANGE k 536870911 ab", "-ERR string exceeds maximum allowed size (proto-max-bulk-len)"),
            ("GETDEL k\nGETDEL k", "\"aXYd\\x00\\x00z\"\nnil"),
        ]);
    }

    #[test]
    fn several_keys_are_set_and_read_together() {
        check_all(&[
            ("MSET a 1 b 2 c 3 a 4", "+OK"),
            ("MGET a b x c a", "[\"4\", \"2\", nil, \"3\", \"4\"]"),
            ("MSETNX x 1 a 2\nGET x", ":0\nnil"),
            ("MSETNX x 1 y 2 x 3\nMGET x y", ":1\n[\"3\", \"2\"]"),
            ("MSET a", "-ERR wrong number of arguments for 'mset' command"),
            ("MSET a 1 b", "-ERR wrong number of arguments for 'mset' command"),
            ("MSETNX a 1 b", "-ERR wrong number of arguments for 'msetnx' command"),
        ]);
    }
}
