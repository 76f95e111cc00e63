//! DEBUG HTSTATS and HTSTATS-KEY: how large tables are and how full. Head and lines are Valkey's; behind `full` stand our own, since
//! tables here have leaves where others have buckets and chains.

use crate::args::{Args, parse_int};
use crate::command::Flow;
use crate::ctx::{Ctx, PartResult, Payload};
use crate::errors::Error;
use crate::keyspace::{TableShape, ValueRef};
use crate::settings::Settings;
use crate::values::{HashRef, SetRef, SortedSetRef};
use corelane_resp::Reply;
use std::fmt::Write;

fn database(args: Args<'_>, settings: &Settings) -> Result<usize, Error> {
    let number = parse_int(args.at(2)).ok_or(Error::NotInteger)?;
    let db = usize::try_from(number).ok().filter(|db| *db < settings.databases);
    db.ok_or(Error::text("ERR Out of range database"))
}

pub(super) fn check_database(args: Args<'_>, settings: &Settings) -> Result<(), Error> {
    database(args, settings).map(drop)
}

pub(super) fn of_database(ctx: &mut Ctx<'_>, args: Args<'_>, _: &mut Reply) -> Result<Flow, Error> {
    let db = database(args, &ctx.shard.settings)?;
    ctx.payload = Payload::Tables(ctx.shard.keyspace.db_shape(db));
    Ok(Flow::Done)
}

/// There is no second table for deadlines: they stand in the entries.
pub(super) fn write_database(parts: &[PartResult], args: Args<'_>, reply: &mut Reply) {
    let shapes = parts.iter().filter_map(|part| match part.payload {
        Payload::Tables(shape) => Some(shape),
        _ => None,
    });
    let mut text = "[Dictionary HT]\n".to_owned();
    write_shape(shapes.sum(), args, &mut text);
    text.push_str("[Expires HT]\n");
    reply.verbatim("txt", &text);
}

pub(super) fn of_key(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply) -> Result<Flow, Error> {
    let key = ctx.key(args.at(2));
    let entry = ctx.find(key).ok_or(Error::NoSuchKey)?;
    let shape = match entry.value() {
        ValueRef::Hash(HashRef::Table(fields)) => fields.shape(),
        ValueRef::Set(SetRef::Table(members)) => members.shape(),
        ValueRef::SortedSet(SortedSetRef::Ranked(ranked)) => ranked.shape(),
        _ => {
            return Err(Error::text(
                "ERR The value stored at the specified key is not represented using an hash table",
            ));
        }
    };
    let mut text = String::new();
    write_shape(shape, args, &mut text);
    reply.verbatim("txt", &text);
    Ok(Flow::Done)
}

/// A leaf is resized in one go, so nothing is ever being rehashed. Writing to a `String` cannot fail.
fn write_shape(shape: TableShape, args: Args<'_>, text: &mut String) {
    let TableShape { places, entries, leaves, largest } = shape;
    if entries == 0 {
        return;
    }
    let _ = write!(
        text,
        "Hash table 0 stats (main hash table):\n table size: {places}\n number of entries: {entries}\n rehashing index: -1\n"
    );
    if args.get(3).is_some_and(|word| word.eq_ignore_ascii_case(b"full")) {
        let _ = write!(text, " leaves: {leaves}\n entries in the largest leaf: {largest}\n");
    }
}

#[cfg(test)]
mod tests {
    use crate::commands::testing::{Bench, check_all};

    const NO_TABLE: &str =
        "-ERR The value stored at the specified key is not represented using an hash table";

    /// The number behind a name in a reply.
    fn number(text: &str, name: &str) -> u64 {
        let digits = text.split(&format!(" {name}: ")).nth(1).and_then(|rest| rest.split("\\n").next());
        digits.unwrap_or_else(|| panic!("{name} in {text}")).parse().unwrap()
    }

    #[test]
    fn databases_are_told_as_one_table() {
        for shards in [1, 2, 5] {
            let mut bench = Bench::new(shards);
            bench.run("DEBUG POPULATE 20000");
            let brief = bench.run("DEBUG HTSTATS 0");
            assert_eq!(number(&brief, "number of entries"), 20_000);
            let places = number(&brief, "table size");
            assert!((20_000..120_000).contains(&places), "{places}");
            assert!(brief.ends_with(" rehashing index: -1\\n[Expires HT]\\n\""), "{brief}");
            let full = bench.run("DEBUG HTSTATS 0 FULL");
            let (leaves, largest) = (number(&full, "leaves"), number(&full, "entries in the largest leaf"));
            assert!(leaves <= 16_384 && largest > 20_000 / leaves && largest < 20, "{leaves} {largest}");
            assert_eq!(bench.run("DEBUG HTSTATS 1"), "\"[Dictionary HT]\\n[Expires HT]\\n\"");
        }
    }

    #[test]
    fn values_that_are_tables_are_told() {
        for shards in [1, 2, 5] {
            let mut bench = Bench::new(shards);
            bench.run("CONFIG SET hash-max-listpack-entries 2 set-max-listpack-entries 2 zset-max-listpack-entries 2");
            bench.run("HSET h a 1 b 2 c 3\nSADD s a b c\nZADD z 1 a 2 b 3 c\nHSET t a 1 b 2 c 3\nHEXPIRE t 100 FIELDS 1 a");
            for key in ["h", "s", "z", "t"] {
                let text = bench.run(&format!("DEBUG HTSTATS-KEY {key} full"));
                assert_eq!(
                    (number(&text, "number of entries"), number(&text, "table size")),
                    (3, 4),
                    "{key}"
                );
                assert_eq!((number(&text, "leaves"), number(&text, "entries in the largest leaf")), (1, 3));
            }
        }
    }

    #[test]
    fn what_is_no_table_is_refused() {
        check_all(&[
            ("SADD s a b c\nDEBUG HTSTATS-KEY s", &format!(":3\n{NO_TABLE}")),
            ("SET x y\nDEBUG HTSTATS-KEY x full", &format!("+OK\n{NO_TABLE}")),
            ("DEBUG HTSTATS-KEY nokey", "-ERR no such key"),
            ("DEBUG HTSTATS 16\nDEBUG HTSTATS -1", "-ERR Out of range database\n-ERR Out of range database"),
            ("DEBUG HTSTATS x", "-ERR value is not an integer or out of range"),
        ]);
    }
}
