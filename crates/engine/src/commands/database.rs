//! Databases as wholes: SELECT, DBSIZE, FLUSHDB, FLUSHALL and SWAPDB.

use crate::args::{Args, parse_int};
use crate::command::{Command, Flags, Flow, Merge, Plan, Scope};
use crate::ctx::{Ctx, SessionCtx};
use crate::errors::Error;
use crate::settings::Settings;
use corelane_resp::Reply;

const ALL_SUCCEED: &[&str] = &["request_policy:all_shards", "response_policy:all_succeeded"];

pub(super) const COMMANDS: &[Command] = &[
    Command {
        name: "select",
        arity: 2,
        flags: Flags::LOADING.with(Flags::STALE).with(Flags::FAST).with(Flags::ALLOW_BUSY),
        plan: Plan::Session(select),
        group: "connection",
        summary: "Changes the selected database.",
        syntax: "index",
        ..Command::DEFAULT
    },
    Command {
        name: "dbsize",
        arity: 1,
        flags: Flags::READONLY.with(Flags::FAST),
        categories: &["@keyspace"],
        plan: Plan::EachShard { part: size, merge: Merge::Sum },
        scope: Scope::Whole,
        group: "server",
        summary: "Returns the number of keys in the database.",
        tips: &["request_policy:all_shards", "response_policy:agg_sum"],
        ..Command::DEFAULT
    },
    Command {
        name: "flushdb",
        arity: -1,
        flags: Flags::WRITE,
        categories: &["@keyspace", "@dangerous"],
        plan: Plan::EachShard { part: flush_selected, merge: Merge::AllOk },
        scope: Scope::Whole,
        check: Some(check_flush),
        group: "server",
        summary: "Removes all keys from the current database.",
        complexity: "O(1); O(N) in the background, where N is the number of keys",
        syntax: "[ASYNC @4.0.0 | SYNC @6.2.0] #flush-type",
        tips: ALL_SUCCEED,
        ..Command::DEFAULT
    },
    Command {
        name: "flushall",
        arity: -1,
        flags: Flags::WRITE,
        categories: &["@keyspace", "@dangerous"],
        plan: Plan::EachShard { part: flush_all, merge: Merge::AllOk },
        scope: Scope::Whole,
        check: Some(check_flush),
        group: "server",
        summary: "Removes all keys from all databases.",
        complexity: "O(1); O(N) in the background, where N is the number of keys",
        syntax: "[ASYNC @4.0.0 | SYNC @6.2.0] #flush-type",
        tips: ALL_SUCCEED,
        ..Command::DEFAULT
    },
    Command {
        name: "swapdb",
        arity: 3,
        flags: Flags::WRITE.with(Flags::FAST),
        categories: &["@keyspace", "@dangerous"],
        plan: Plan::EachShard { part: swap, merge: Merge::AllOk },
        scope: Scope::Whole,
        check: Some(check_swap),
        since: "4.0.0",
        group: "server",
        summary: "Swaps two databases.",
        syntax: "index1 index2",
        ..Command::DEFAULT
    },
];

/// The number of a database that exists, as Valkey reads one: an `int` of C.
pub(super) fn db_index(text: &[u8], databases: usize) -> Result<usize, Error> {
    let number = parse_int(text).ok_or(Error::NotInteger)?;
    if i32::try_from(number).is_err() {
        let (min, max) = (i32::MIN, i32::MAX);
        return Err(Error::owned(format!("ERR value is out of range, value must between {min} and {max}")));
    }
    usize::try_from(number).ok().filter(|db| *db < databases).ok_or(Error::DbRange)
}

fn select(ctx: &mut SessionCtx<'_>, args: Args<'_>, reply: &mut Reply) -> Result<(), Error> {
    ctx.client.db = db_index(args.at(1), ctx.shard.settings.databases)?;
    reply.ok();
    Ok(())
}

/// As in Redis, keys whose time has come count until they are removed, which is a few milliseconds later.
fn size(ctx: &mut Ctx<'_>, _: Args<'_>, reply: &mut Reply) -> Result<Flow, Error> {
    reply.int(ctx.shard.keyspace.stats(ctx.db).keys as i64);
    Ok(Flow::Done)
}

fn check_flush(args: Args<'_>, _: &Settings) -> Result<(), Error> {
    match args.len() {
        1 => Ok(()),
        2 if args.is(1, "ASYNC") || args.is(1, "SYNC") => Ok(()),
        _ => Err(Error::Syntax),
    }
}

fn flush_selected(ctx: &mut Ctx<'_>, _: Args<'_>, reply: &mut Reply) -> Result<Flow, Error> {
    ctx.shard.keyspace.flush(ctx.db, ctx.now);
    reply.ok();
    Ok(Flow::Done)
}

fn flush_all(ctx: &mut Ctx<'_>, _: Args<'_>, reply: &mut Reply) -> Result<Flow, Error> {
    for db in 0..ctx.shard.keyspace.databases() {
        ctx.shard.keyspace.flush(db, ctx.now);
    }
    reply.ok();
    Ok(Flow::Done)
}

fn parse_swap(args: Args<'_>, databases: usize) -> Result<(usize, usize), Error> {
    let number = |idx: usize, error: &'static str| {
        parse_int(args.at(idx)).and_then(|number| i32::try_from(number).ok()).ok_or(Error::text(error))
    };
    let numbers = (number(1, "ERR invalid first DB index")?, number(2, "ERR invalid second DB index")?);
    let existing =
        |number: i32| usize::try_from(number).ok().filter(|db| *db < databases).ok_or(Error::DbRange);
    Ok((existing(numbers.0)?, existing(numbers.1)?))
}

fn check_swap(args: Args<'_>, settings: &Settings) -> Result<(), Error> {
    parse_swap(args, settings.databases).map(|_| ())
}

fn swap(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply) -> Result<Flow, Error> {
    let (a, b) = parse_swap(args, ctx.shard.settings.databases)?;
    ctx.shard.keyspace.swap(a, b, ctx.now);
    reply.ok();
    Ok(Flow::Done)
}

#[cfg(test)]
mod tests {
    use crate::commands::testing::{Bench, check_all};

    #[test]
    fn databases_are_apart() {
        check_all(&[
            ("SET a 0\nSET b 0\nSELECT 15\nDBSIZE\nGET a", "+OK\n+OK\n+OK\n:0\nnil"),
            ("SET a 15\nDBSIZE\nSELECT 0\nDBSIZE\nGET a", "+OK\n:1\n+OK\n:2\n\"0\""),
            ("SWAPDB 0 15\nGET a\nDBSIZE", "+OK\n\"15\"\n:1"),
            ("SWAPDB 3 3\nFLUSHDB\nDBSIZE\nSELECT 15\nDBSIZE", "+OK\n+OK\n:0\n+OK\n:2"),
            ("SET c 1\nSELECT 7\nSET c 1\nFLUSHALL async\nDBSIZE", "+OK\n+OK\n+OK\n+OK\n:0"),
            ("SELECT 15\nDBSIZE\nFLUSHDB SYNC", "+OK\n:0\n+OK"),
        ]);
    }

    #[test]
    fn bad_arguments_are_refused_as_in_valkey() {
        let range = "-ERR DB index is out of range";
        let number = "-ERR value is not an integer or out of range";
        check_all(&[
            ("SELECT abc", number),
            ("SELECT 01", number),
            ("SELECT 16", range),
            ("SELECT -1", range),
            (
                "SELECT 99999999999",
                "-ERR value is out of range, value must between -2147483648 and 2147483647",
            ),
            ("SWAPDB a b", "-ERR invalid first DB index"),
            ("SWAPDB 99999999999 0", "-ERR invalid first DB index"),
            ("SWAPDB 0 b", "-ERR invalid second DB index"),
            ("SWAPDB 0 16", range),
            ("SWAPDB 16 0", range),
            ("FLUSHDB x", "-ERR syntax error"),
            ("FLUSHALL SYNC ASYNC", "-ERR syntax error"),
            ("DBSIZE x", "-ERR wrong number of arguments for 'dbsize' command"),
        ]);
    }

    #[test]
    fn a_flush_gives_all_memory_back_by_and_by() {
        let mut bench = Bench::new(2);
        for key in 0..5000 {
            bench.run(&format!("SET key:{key} value"));
        }
        let bytes = |bench: &Bench| -> u64 {
            bench.nodes.iter().map(|node| node.core.shard.keyspace.entry_bytes()).sum()
        };
        assert!(bytes(&bench) > 5000 * 20);
        bench.run("FLUSHALL");
        assert_eq!(bytes(&bench), 0);
    }
}
