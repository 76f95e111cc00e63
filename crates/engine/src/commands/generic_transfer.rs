//! What a key holds goes to another key or database: RENAME, RENAMENX, COPY and MOVE.
//!
//! The two keys of the first three may live on different shards. All stages run under intents on both: a first one looks
//! which of them are there, one takes (or copies) what the source holds, one puts it under the destination.

use super::database::db_index;
use crate::args::Args;
use crate::command::{Command, Flags, Flow, KeyFlags, KeySpec, Pace, Plan};
use crate::ctx::{Ctx, Decide, Next, On, PartResult, Payload};
use crate::errors::Error;
use crate::events::EventClasses;
use crate::keyspace::{Detached, StringForm};
use crate::settings::Settings;
use crate::values::Copying;
use corelane_resp::Reply;

const MOVED: KeySpec = KeySpec::one(1, KeyFlags::RW.with(KeyFlags::ACCESS).with(KeyFlags::DELETE));

pub(super) const COMMANDS: &[Command] = &[
    Command {
        name: "rename",
        arity: 3,
        flags: Flags::WRITE,
        categories: &["@keyspace"],
        keys: &[MOVED, KeySpec::one(2, KeyFlags::OW.with(KeyFlags::UPDATE))],
        plan: Plan::Staged { read: look, decide: decide_rename, write: rename },
        summary: "Renames a key and overwrites the destination.",
        syntax: "key newkey",
        ..Command::DEFAULT
    },
    Command {
        name: "renamenx",
        arity: 3,
        flags: Flags::WRITE.with(Flags::FAST),
        categories: &["@keyspace"],
        keys: &[MOVED, KeySpec::one(2, KeyFlags::OW.with(KeyFlags::INSERT))],
        plan: Plan::Staged { read: look, decide: decide_rename_nx, write: rename },
        summary: "Renames a key only when the target key name doesn't exist.",
        syntax: "key newkey",
        ..Command::DEFAULT
    },
    Command {
        name: "copy",
        arity: -3,
        flags: Flags::WRITE.with(Flags::DENYOOM),
        categories: &["@keyspace"],
        keys: &[
            KeySpec::one(1, KeyFlags::RO.with(KeyFlags::ACCESS)),
            KeySpec::one(2, KeyFlags::OW.with(KeyFlags::UPDATE)),
        ],
        plan: Plan::Staged { read: look_for_copy, decide: decide_copy, write: copy },
        check: Some(check_copy),
        since: "6.2.0",
        summary: "Copies the value of a key to a new key.",
        complexity: "O(N) where N is the number of elements in the value; O(1) for strings",
        syntax: "source destination [DB destination-db] [REPLACE]",
        ..Command::DEFAULT
    },
    Command {
        name: "move",
        arity: 3,
        flags: Flags::WRITE.with(Flags::FAST),
        categories: &["@keyspace"],
        keys: &[KeySpec::one(1, KeyFlags::RW.with(KeyFlags::ACCESS).with(KeyFlags::UPDATE))],
        plan: Plan::OneShard(move_to_db),
        summary: "Moves a key to another database.",
        syntax: "key db",
        ..Command::DEFAULT
    },
];

/// Arguments that are keys.
const SOURCE: usize = 1;
const DESTINATION: usize = 2;

/// Stages behind the first look.
const TAKE: u8 = 1;
const PUT: u8 = 2;

/// A key that was found, as a bit of `elements`.
const fn bit(idx: usize) -> u64 {
    1 << idx
}

/// Whether any shard has found the key at this index.
fn found(results: &[PartResult], idx: usize) -> bool {
    results.iter().any(|result| result.elements & bit(idx) != 0)
}

/// Looks which keys are there; the source must be.
fn look(ctx: &mut Ctx<'_>, args: Args<'_>, _: &mut Reply) -> Result<Flow, Error> {
    for idx in ctx.keys.indices() {
        let key = ctx.key(args.at(idx));
        if ctx.find_to_change(key).is_some() {
            ctx.elements |= bit(idx);
        } else if idx == SOURCE {
            return Err(Error::NoSuchKey);
        }
    }
    Ok(Flow::Done)
}

fn decide_rename(decide: &mut Decide<'_>) -> Next {
    next_of_rename(decide, true, Reply::ok)
}

fn decide_rename_nx(decide: &mut Decide<'_>) -> Next {
    next_of_rename(decide, false, |reply| reply.int(1))
}

fn next_of_rename(decide: &mut Decide<'_>, replace: bool, done: fn(&mut Reply)) -> Next {
    if decide.stage == 0 {
        if decide.passes_on_failure() {
            return Next::Reply;
        }
        let same = decide.args.at(SOURCE) == decide.args.at(DESTINATION);
        if !replace && (same || found(decide.results, DESTINATION)) {
            decide.reply.int(0);
            return Next::Reply;
        }
        if same {
            done(decide.reply);
            return Next::Reply;
        }
    }
    next_of_transfer(decide, done)
}

/// Takes, puts, answers.
fn next_of_transfer(decide: &mut Decide<'_>, done: fn(&mut Reply)) -> Next {
    match decide.stage {
        0 => Next::Run { stage: TAKE, on: On::Key(SOURCE), payload: Payload::None },
        TAKE => {
            let payload = decide.results.first_mut().map(|result| std::mem::take(&mut result.payload));
            Next::Run { stage: PUT, on: On::Key(DESTINATION), payload: payload.unwrap_or_default() }
        }
        _ => {
            done(decide.reply);
            Next::Reply
        }
    }
}

fn rename(ctx: &mut Ctx<'_>, args: Args<'_>, _: &mut Reply) -> Result<Flow, Error> {
    if ctx.stage == TAKE {
        let key = ctx.key(args.at(SOURCE));
        let entry = ctx.shard.keyspace.take(ctx.db, key, ctx.now);
        ctx.payload = entry.map_or(Payload::None, |entry| Payload::Value(entry.detach()));
    } else {
        let events = [("rename_from", SOURCE), ("rename_to", DESTINATION)];
        put(ctx, args, ctx.db, &events);
    }
    Ok(Flow::Done)
}

/// Puts what an earlier stage has taken under the destination, and notes these events of the keys at these places. Where that was
/// nothing, because the source's time came after it had been looked at, the destination's comes now.
fn put(ctx: &mut Ctx<'_>, args: Args<'_>, db: usize, events: &[(&'static str, usize)]) {
    let key = ctx.key(args.at(DESTINATION));
    // What is put is a new key, and has not been used as often as the one before it.
    ctx.shard.keyspace.remove(db, key, ctx.now);
    if let Payload::Value(content) = std::mem::take(&mut ctx.payload) {
        ctx.shard.keyspace.put(db, key, content, ctx.now);
        ctx.notify_in(db, EventClasses::NEW, "new", key.bytes);
        for (event, place) in events {
            ctx.notify_in(db, EventClasses::GENERIC, event, args.at(*place));
        }
    }
}

/// COPY's options.
struct CopyOptions {
    db: Option<usize>,
    replace: bool,
}

impl CopyOptions {
    fn parse(args: Args<'_>, databases: usize) -> Result<Self, Error> {
        let mut options = Self { db: None, replace: false };
        let mut idx = 3;
        while idx < args.len() {
            if args.is(idx, "REPLACE") {
                options.replace = true;
            } else if args.is(idx, "DB") && idx + 1 < args.len() {
                idx += 1;
                options.db = Some(db_index(args.at(idx), databases)?);
            } else {
                return Err(Error::Syntax);
            }
            idx += 1;
        }
        Ok(options)
    }
}

fn check_copy(args: Args<'_>, settings: &Settings) -> Result<(), Error> {
    CopyOptions::parse(args, settings.databases).map(|_| ())
}

fn look_for_copy(ctx: &mut Ctx<'_>, args: Args<'_>, _: &mut Reply) -> Result<Flow, Error> {
    let target = CopyOptions::parse(args, ctx.shard.settings.databases)?.db.unwrap_or(ctx.db);
    // Keys that are the same live on the same shard, so no other one needs to look at this.
    if target == ctx.db && args.at(SOURCE) == args.at(DESTINATION) {
        return Err(Error::SameObject);
    }
    for idx in ctx.keys.indices() {
        let key = ctx.key(args.at(idx));
        let there = if idx == SOURCE {
            let pacing = ctx.pacing();
            match ctx.lookup_once(key).map(|entry| entry.value().extent()) {
                Some(extent) if pacing.pace == Pace::Brief && !pacing.is_brief(extent.0, extent) => {
                    return Ok(Flow::Later);
                }
                // Then the destination does not matter.
                None => return Ok(Flow::Done),
                Some(_) => true,
            }
        } else {
            ctx.shard.keyspace.find_to_change(target, key, ctx.now).is_some()
        };
        if there {
            ctx.elements |= bit(idx);
        }
    }
    Ok(Flow::Done)
}

fn decide_copy(decide: &mut Decide<'_>) -> Next {
    if decide.stage == 0 {
        let replace = decide.args.iter_from(3).any(|option| option.eq_ignore_ascii_case(b"REPLACE"));
        if !found(decide.results, SOURCE) || (found(decide.results, DESTINATION) && !replace) {
            decide.reply.int(0);
            return Next::Reply;
        }
    }
    next_of_transfer(decide, |reply| reply.int(1))
}

fn copy(ctx: &mut Ctx<'_>, args: Args<'_>, _: &mut Reply) -> Result<Flow, Error> {
    if ctx.stage == TAKE {
        return Ok(take_copy(ctx, args));
    }
    let target = CopyOptions::parse(args, ctx.shard.settings.databases)?.db.unwrap_or(ctx.db);
    put(ctx, args, target, &[("copy_to", DESTINATION)]);
    Ok(Flow::Done)
}

/// Copies what the source holds, a piece at a time if that is large.
fn take_copy(ctx: &mut Ctx<'_>, args: Args<'_>) -> Flow {
    let (pacing, key) = (ctx.pacing(), ctx.key(args.at(SOURCE)));
    let begun = match std::mem::take(&mut ctx.payload) {
        Payload::Copying(copying) => Some(copying),
        _ => None,
    };
    let Some(entry) = ctx.find(key) else {
        // Its time has come.
        begun.into_iter().for_each(|copying| ctx.shard.keyspace.discard(copying.into_value()));
        return Flow::Done;
    };
    let (value, extent) = (entry.value(), entry.value().extent());
    let piece = pacing.piece(extent.0, extent).unwrap_or(usize::MAX);
    let mut copying = begun.or_else(|| Copying::new(value).map(Box::new));
    let is_done = copying.as_mut().is_none_or(|copying| copying.step(value, piece));
    let payload = match copying {
        None => Payload::Value(entry.clone_detached()),
        Some(copying) if !is_done => Payload::Copying(copying),
        Some(copying) => {
            let (expiry, form) = (entry.expiry(), StringForm::Plain);
            Payload::Value(Detached { value: copying.into_value(), expiry, form })
        }
    };
    drop(entry);
    ctx.payload = payload;
    if is_done { Flow::Done } else { Flow::Again(1) }
}

fn move_to_db(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply) -> Result<Flow, Error> {
    let target = db_index(args.at(2), ctx.shard.settings.databases)?;
    if target == ctx.db {
        return Err(Error::SameObject);
    }
    let (key, now) = (ctx.key(args.at(1)), ctx.now);
    let keyspace = &mut ctx.shard.keyspace;
    let source = keyspace.find_to_change(ctx.db, key, now).is_some();
    let free = source && keyspace.find_to_change(target, key, now).is_none();
    let entry = if free { keyspace.take(ctx.db, key, now) } else { None };
    reply.int(entry.is_some().into());
    if let Some(entry) = entry {
        keyspace.put(target, key, entry.detach(), now);
        ctx.notify_in(target, EventClasses::NEW, "new", key.bytes);
        ctx.notify(EventClasses::GENERIC, "move_from", key.bytes);
        ctx.notify_in(target, EventClasses::GENERIC, "move_to", key.bytes);
    }
    Ok(Flow::Done)
}

#[cfg(test)]
mod tests {
    use crate::commands::testing::{Bench, check_all};

    #[test]
    fn a_renamed_key_keeps_value_deadline_and_encoding() {
        check_all(&[
            ("SET a v\nEXPIRE a 100\nSET b old", "+OK\n:1\n+OK"),
            ("RENAME a b\nGET b\nTTL b\nEXISTS a", "+OK\n\"v\"\n:100\n:0"),
            ("SET p v\nRENAME p b\nTTL b\nDBSIZE", "+OK\n+OK\n:-1\n:1"),
            ("RENAME b b\nGET b", "+OK\n\"v\""),
            ("RENAME x y", "-ERR no such key"),
            ("RENAME x x", "-ERR no such key"),
            ("GET b", "\"v\""),
        ]);
    }

    #[test]
    fn renamenx_leaves_a_destination_alone() {
        check_all(&[
            ("SET a 1\nSET b 2", "+OK\n+OK"),
            ("RENAMENX a b\nGET a\nGET b", ":0\n\"1\"\n\"2\""),
            ("RENAMENX a a", ":0"),
            ("RENAMENX a c\nGET c\nEXISTS a", ":1\n\"1\"\n:0"),
            ("RENAMENX x y", "-ERR no such key"),
            ("RENAMENX x x", "-ERR no such key"),
        ]);
    }

    #[test]
    fn copies_go_to_other_keys_and_databases() {
        check_all(&[
            ("SET a 1\nEXPIRE a 50", "+OK\n:1"),
            ("COPY a b\nGET b\nTTL b\nGET a", ":1\n\"1\"\n:50\n\"1\""),
            ("SET a 2\nCOPY a b\nGET b", "+OK\n:0\n\"1\""),
            ("COPY a b replace\nGET b\nTTL b", ":1\n\"2\"\n:-1"),
            ("COPY a a DB 3\nCOPY a a DB 3\nCOPY a c DB 3 REPLACE", ":1\n:0\n:1"),
            ("SELECT 3\nGET a\nGET c\nDBSIZE", "+OK\n\"2\"\n\"2\"\n:2"),
            ("COPY x y\nCOPY x y DB 1 REPLACE REPLACE DB 0", ":0\n:0"),
        ]);
    }

    #[test]
    fn bad_arguments_are_refused_as_in_valkey() {
        let (same, db) =
            ("-ERR source and destination objects are the same", "-ERR DB index is out of range");
        let int = "-ERR value is out of range, value must between -2147483648 and 2147483647";
        let number = "-ERR value is not an integer or out of range";
        check_all(&[
            ("COPY k k", same),
            ("COPY k k DB 0", same),
            ("COPY k k DB 16", db),
            ("COPY k l DB x", number),
            ("COPY k l DB 99999999999", int),
            ("COPY k l DB", "-ERR syntax error"),
            ("COPY k l FOO", "-ERR syntax error"),
            ("COPY k l REPLACE DB -1", db),
            ("MOVE k 0", same),
            ("MOVE k 16", db),
            ("MOVE k -1", db),
            ("MOVE k x", number),
            ("MOVE k 99999999999", int),
        ]);
    }

    #[test]
    fn moved_keys_keep_their_deadline() {
        check_all(&[
            ("SET k v\nEXPIRE k 9\nMOVE k 2\nMOVE k 2\nEXISTS k", "+OK\n:1\n:1\n:0\n:0"),
            ("SET k w\nMOVE k 2\nGET k", "+OK\n:0\n\"w\""),
            ("SELECT 2\nGET k\nTTL k", "+OK\n\"v\"\n:9"),
        ]);
    }

    #[test]
    fn large_values_travel_without_being_copied() {
        let mut bench = Bench::new(5);
        let value = "x".repeat(100_000);
        bench.run(&format!("SET a {value}"));
        let keys: Vec<String> = (0..40).map(|n| format!("key:{n}")).collect();
        for key in &keys {
            assert_eq!(bench.run(&format!("RENAME a {key}\nRENAME {key} a")), "+OK\n+OK");
            let copied = bench.run(&format!("COPY a {key}\nGET {key}"));
            assert!(copied == format!(":1\n\"{value}\""), "COPY a {key}");
        }
        assert_eq!(bench.run("DBSIZE"), ":41");
    }
}
