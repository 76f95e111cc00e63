//! OBJECT: how a key is stored.

use super::help;
use crate::args::{Args, parse_int};
use crate::command::{Command, Flags, Flow, KeyFlags, KeySpec, Plan};
use crate::ctx::{Ctx, SessionCtx};
use crate::errors::Error;
use crate::keyspace::{Entry, StringForm, ValueRef};
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
    summary: "A container for object introspection commands.",
    complexity: "Depends on subcommand.",
    subcommands: &[
        about_key("encoding", encoding, "2.2.3", "Returns the internal encoding of an object."),
        about_key("freq", freq, "4.0.0", "Returns the logarithmic access frequency counter of an object."),
        Command { categories: &["@keyspace"], ..help::record(object_help, "6.2.0", "generic") },
        about_key("idletime", idle_time, "2.2.3", "Returns the time since the last access to an object."),
        about_key("refcount", refcount, "2.2.3", "Returns the reference count of a value of a key."),
    ],
    ..Command::DEFAULT
}];

const HELP: &[&str] = &[
    "ENCODING <key>",
    "    Return the kind of internal representation used in order to store the value",
    "    associated with a <key>.",
    "FREQ <key>",
    "    Return the access frequency index of the <key>. The returned integer is",
    "    proportional to the logarithm of the recent access frequency of the key.",
    "IDLETIME <key>",
    "    Return the idle time of the <key>, that is the approximated number of",
    "    seconds elapsed since the last access to the key.",
    "REFCOUNT <key>",
    "    Return the number of references of the value associated with the specified",
    "    <key>.",
];

fn object_help(_: &mut SessionCtx<'_>, args: Args<'_>, reply: &mut Reply) -> Result<(), Error> {
    help::write(HELP, args, reply);
    Ok(())
}

/// Redis's name for how a string is held. We hold all of them alike; the names follow Valkey's rules, which clients and
/// tests look at: a value that is an integer is `int`, one that fits 128 bytes together with its key is `embstr`.
pub(super) fn encoding_name(entry: &Entry) -> &'static str {
    /// Bytes of Valkey's object header, of its value's header and of two terminators.
    const OBJECT_OVERHEAD: usize = 14;
    let value = match entry.value() {
        ValueRef::String(value) => value,
        ValueRef::Hash(hash) => return hash.encoding(),
        ValueRef::List(list) => return list.encoding(),
        ValueRef::Set(set) => return set.encoding(),
        ValueRef::SortedSet(set) => return set.encoding(),
    };
    match entry.form() {
        StringForm::Raw => return "raw",
        StringForm::Plain if parse_int(value).is_some() => return "int",
        StringForm::Plain | StringForm::Text => {}
    }
    let key_header = if entry.key().len() < 32 { 1 } else { 3 };
    let expiry = if entry.expiry().is_some() { 8 } else { 0 };
    let size = OBJECT_OVERHEAD + key_header + entry.key().len() + expiry + value.len();
    if size <= 128 { "embstr" } else { "raw" }
}

fn encoding(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply) -> Result<Flow, Error> {
    let key = ctx.key(args.at(2));
    match ctx.peek_quietly(key) {
        Some(entry) => reply.bulk(encoding_name(&entry).as_bytes()),
        None => reply.null(),
    }
    Ok(Flow::Done)
}

fn freq(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply) -> Result<Flow, Error> {
    let (key, now) = (ctx.key(args.at(2)), ctx.now);
    let Some(access) = ctx.peek_quietly(key).map(|entry| entry.access()) else {
        reply.null();
        return Ok(Flow::Done);
    };
    let frequency = ctx.shard.keyspace.access.frequency(access, now).ok_or(Error::text(
        "ERR An LFU maxmemory policy is not selected, access frequency not tracked. Please note that when switching \
         between policies at runtime LRU and LFU data will take some time to adjust.",
    ))?;
    reply.int(frequency.into());
    Ok(Flow::Done)
}

fn idle_time(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply) -> Result<Flow, Error> {
    let (key, now) = (ctx.key(args.at(2)), ctx.now);
    let Some(access) = ctx.peek_quietly(key).map(|entry| entry.access()) else {
        reply.null();
        return Ok(Flow::Done);
    };
    let idle_s = ctx.shard.keyspace.access.idle_s(access, now).ok_or(Error::text(
        "ERR An LFU maxmemory policy is selected, idle time not tracked. Please note that when switching between \
         policies at runtime LRU and LFU data will take some time to adjust.",
    ))?;
    reply.int(idle_s as i64);
    Ok(Flow::Done)
}

fn refcount(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply) -> Result<Flow, Error> {
    let key = ctx.key(args.at(2));
    match ctx.peek_quietly(key) {
        Some(_) => reply.int(1),
        None => reply.null(),
    }
    Ok(Flow::Done)
}

#[cfg(test)]
mod tests {
    use crate::commands::testing::{Bench, check_all};
    use crate::settings::MaxmemoryPolicy;

    #[test]
    fn encodings_follow_what_was_done_to_a_string() {
        check_all(&[
            ("SET k 10\nOBJECT ENCODING k", "+OK\n\"int\""),
            ("INCRBYFLOAT k 1\nOBJECT ENCODING k", "\"11\"\n\"embstr\""),
            ("COPY k c\nRENAME k r\nOBJECT ENCODING c\nOBJECT ENCODING r", ":1\n+OK\n\"embstr\"\n\"embstr\""),
            ("PERSIST r\nEXPIRE r 100\nOBJECT ENCODING r", ":0\n:1\n\"embstr\""),
            ("INCR r\nOBJECT ENCODING r", ":12\n\"int\""),
            ("APPEND r 3\nOBJECT ENCODING r", ":3\n\"raw\""),
            ("OBJECT ENCODING nokey\nOBJECT REFCOUNT nokey\nOBJECT REFCOUNT r", "nil\nnil\n:1"),
        ]);
    }

    #[test]
    fn a_change_that_is_not_made_is_an_access_too() {
        const DUMPED: &str = "RESTORE k 0 x";
        for (key, lines) in [
            ("SET k a", "SETNX k b"),
            ("SET k a", "SET k b NX"),
            ("SET k a", "SET k b IFEQ c"),
            ("SET k a", "DELIFEQ k b"),
            ("SET k a", "MSETNX z 1 k 2"),
            ("SET k a", "MSETEX 2 z 1 k 2 NX"),
            ("SET k a", "PERSIST k"),
            ("SET k a", "EXPIRE k 100 XX"),
            ("SET k a", "RENAMENX k other"),
            ("SET k a", "RENAMENX other k"),
            ("SET k a", "COPY k other"),
            ("SET k a", "COPY other k"),
            ("SET k a", "MOVE k 3"),
            ("SET k a", DUMPED),
            ("RPUSH k a", "LTRIM k 0 5"),
            ("HSET k f v", "HSETEX k NX FIELDS 1 g v"),
            ("SADD k a", "SMOVE k z b"),
            ("SADD k a", "SMOVE set k b"),
        ] {
            for shards in [1, 2, 5] {
                for (touches, idle) in [("off", ":0"), ("on", ":4")] {
                    let mut bench = Bench::new(shards);
                    bench.run(&format!("{key}\nSET other 1\nSADD set a\nSELECT 3\nSET k 1\nSELECT 0"));
                    bench.now += 4_000;
                    bench.run(&format!("CLIENT NO-TOUCH {touches}\n{lines}"));
                    assert_eq!(bench.run("OBJECT IDLETIME k"), idle, "{lines}, {shards} shards, {touches}");
                }
            }
        }
    }

    #[test]
    fn frequency_is_told_under_lfu_only_and_idle_time_without() {
        for shards in [1, 2, 5] {
            let mut bench = Bench::new(shards);
            bench.run("SET k v");
            bench.now += 3000;
            assert_eq!(bench.run("OBJECT IDLETIME k\nOBJECT FREQ nokey"), ":3\nnil");
            assert!(bench.run("OBJECT FREQ k").starts_with("-ERR An LFU maxmemory policy is not selected"));
            bench.configure(|settings| {
                (settings.maxmemory_policy, settings.lfu_log_factor) = (MaxmemoryPolicy::AllkeysLfu, 0);
            });
            assert!(bench.run("OBJECT IDLETIME k").starts_with("-ERR An LFU maxmemory policy is selected"));
            assert_eq!(
                bench.run("SET new v\nOBJECT FREQ new\nGET new\nOBJECT FREQ new"),
                "+OK\n:5\n\"v\"\n:6"
            );
            bench.run("SET renamed v\nSET copy v\nTOUCH renamed copy\nTOUCH renamed copy");
            for (line, frequency) in [
                ("APPEND new x", 7),
                ("EXPIRE new 100", 8),
                ("SETRANGE new 0 y", 9),
                ("COPY new copy REPLACE", 10),
                ("SET new z KEEPTTL", 11),
                ("EXISTS new", 11),
                ("PERSIST new", 12),
                ("TOUCH new", 13),
                ("RENAME new renamed", 5),
            ] {
                bench.run(line);
                let key = if line.starts_with("RENAME") { "renamed" } else { "new" };
                assert_eq!(bench.run(&format!("OBJECT FREQ {key}")), format!(":{frequency}"), "{line}");
            }
            assert_eq!(bench.run("OBJECT FREQ copy"), ":5", "a copy is a new key");
        }
    }
}
