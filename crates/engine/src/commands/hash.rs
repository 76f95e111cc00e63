//! Hashes: setting, counting and removing fields.

use super::long_double::LongDouble;
use crate::args::{Args, parse_int};
use crate::command::{Command, Flags, Flow, Handler, KeyFlags, KeySpec, Plan};
use crate::ctx::Ctx;
use crate::errors::Error;
use crate::events::EventClasses;
use crate::keyspace::Key;
use crate::settings::CompactLimits;
use crate::typed::Missing;
use crate::values::{Element, Hash, decimal};
use corelane_resp::Reply;

const GROWS: Flags = Flags::WRITE.with(Flags::DENYOOM).with(Flags::FAST);

const fn changes(
    (name, arity): (&'static str, i16),
    flags: Flags,
    keys: &'static [KeySpec],
    run: Handler,
    since: &'static str,
    (syntax, summary): (&'static str, &'static str),
) -> Command {
    Command {
        name,
        arity,
        flags,
        keys,
        plan: Plan::OneShard(run),
        since,
        group: "hash",
        summary,
        syntax,
        ..Command::DEFAULT
    }
}

const UPDATED: &[KeySpec] = &[KeySpec::one(1, KeyFlags::RW.with(KeyFlags::UPDATE))];
const INSERTED: &[KeySpec] = &[KeySpec::one(1, KeyFlags::RW.with(KeyFlags::INSERT))];
const DELETED: &[KeySpec] = &[KeySpec::one(1, KeyFlags::RW.with(KeyFlags::DELETE))];
const COUNTED: &[KeySpec] = &[KeySpec::one(1, KeyFlags::RW.with(KeyFlags::ACCESS).with(KeyFlags::UPDATE))];
const PAIRS: &str = "key field value [field value ...] #data";

pub(super) const COMMANDS: &[Command] = &[
    Command {
        complexity: "O(N) where N is the number of fields that are set",
        ..changes(
            ("hset", -4),
            GROWS,
            UPDATED,
            |ctx, args, reply| {
                let new = set_fields(ctx, args, "hset")?;
                reply.int(new);
                Ok(Flow::Done)
            },
            "2.0.0",
            (PAIRS, "Creates or modifies the value of a field in a hash."),
        )
    },
    Command {
        complexity: "O(N) where N is the number of fields that are set",
        ..changes(
            ("hmset", -4),
            GROWS,
            UPDATED,
            |ctx, args, reply| {
                set_fields(ctx, args, "hmset")?;
                reply.ok();
                Ok(Flow::Done)
            },
            "2.0.0",
            (PAIRS, "Sets the values of multiple fields."),
        )
    },
    changes(
        ("hsetnx", 4),
        GROWS,
        INSERTED,
        hsetnx,
        "2.0.0",
        ("key field value", "Sets the value of a field in a hash only when the field doesn't exist."),
    ),
    Command {
        complexity: "O(N) where N is the number of fields that are named",
        ..changes(
            ("hdel", -3),
            Flags::WRITE.with(Flags::FAST),
            DELETED,
            hdel,
            "2.0.0",
            (
                "key field [field ...]",
                "Deletes one or more fields and their values from a hash. Deletes the hash if no fields remain.",
            ),
        )
    },
    changes(
        ("hincrby", 4),
        GROWS,
        COUNTED,
        hincrby,
        "2.0.0",
        (
            "key field increment",
            "Increments the integer value of a field in a hash by a number. Uses 0 as initial value if the field \
                doesn't exist.",
        ),
    ),
    changes(
        ("hincrbyfloat", 4),
        GROWS,
        COUNTED,
        hincrbyfloat,
        "2.6.0",
        (
            "key field increment",
            "Increments the floating point value of a field by a number. Uses 0 as initial value if the field \
                doesn't exist.",
        ),
    ),
];

/// Tells of a change to a hash, which is gone if it was `emptied`.
pub(super) fn tell(ctx: &mut Ctx<'_>, event: &'static str, key: Key<'_>, emptied: bool) {
    ctx.notify(EventClasses::HASH, event, key.bytes);
    if emptied {
        ctx.notify(EventClasses::GENERIC, "del", key.bytes);
    }
}

/// Sets fields from the third argument on; returns how many are new.
fn set_fields(ctx: &mut Ctx<'_>, args: Args<'_>, name: &'static str) -> Result<i64, Error> {
    if !args.len().is_multiple_of(2) {
        return Err(Error::Arity(name.into()));
    }
    let limits = ctx.shard.settings.compact;
    let key = ctx.key(args.at(1));
    let edited = ctx.edit_hash(key, Missing::Create, |hash| {
        if args.len() / 2 - 1 > limits.hash_entries {
            hash.enlarge(limits.seed);
        }
        let places = (2..args.len()).step_by(2);
        places.map(|idx| i64::from(hash.set(args.at(idx), args.at(idx + 1), &limits))).sum()
    })?;
    tell(ctx, "hset", key, false);
    Ok(edited.map_or(0, |edited| edited.result))
}

fn hsetnx(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply) -> Result<Flow, Error> {
    let limits = ctx.shard.settings.compact;
    let (key, field) = (ctx.key(args.at(1)), args.at(2));
    let edited = ctx.edit_hash(key, Missing::Create, |hash| {
        hash.as_ref().get(field).is_none() && hash.set(field, args.at(3), &limits)
    })?;
    let set = edited.is_some_and(|edited| edited.result);
    if set {
        tell(ctx, "hset", key, false);
    }
    reply.int(set.into());
    Ok(Flow::Done)
}

fn hdel(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply) -> Result<Flow, Error> {
    let key = ctx.key(args.at(1));
    let edited = ctx
        .edit_hash(key, Missing::Skip, |hash| args.iter_from(2).filter(|field| hash.remove(field)).count())?;
    let (removed, emptied) = edited.map_or((0, false), |edited| (edited.result, edited.emptied));
    if removed > 0 {
        tell(ctx, "hdel", key, emptied);
    }
    reply.int(removed as i64);
    Ok(Flow::Done)
}

/// Puts `count` of the present value, `None` for none, into a field, if it is a number.
fn count<T>(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    event: &'static str,
    count: impl FnOnce(Option<Element<'_>>) -> Result<T, Error>,
    set: impl FnOnce(&mut Hash, &[u8], &T, &CompactLimits),
) -> Result<T, Error> {
    let limits = ctx.shard.settings.compact;
    let (key, field) = (ctx.key(args.at(1)), args.at(2));
    let edited = ctx.edit_hash(key, Missing::Create, |hash| {
        let new = count(hash.as_ref().get(field))?;
        set(hash, field, &new, &limits);
        Ok(new)
    })?;
    let new = edited.expect("it is created where it is missing").result?;
    tell(ctx, event, key, false);
    Ok(new)
}

fn hincrby(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply) -> Result<Flow, Error> {
    let by = args.int(3)?;
    let add = |old: Option<Element<'_>>| {
        let old = match old {
            None => 0,
            Some(Element::Int(int)) => int,
            Some(other) => parse_int(&other.text()).ok_or(Error::text("ERR hash value is not an integer"))?,
        };
        old.checked_add(by).ok_or(Error::Overflow)
    };
    let new = count(ctx, args, "hincrby", add, |hash, field, new, limits| {
        hash.update(field, decimal(*new, &mut [0; 20]), limits);
    })?;
    reply.int(new);
    Ok(Flow::Done)
}

fn hincrbyfloat(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply) -> Result<Flow, Error> {
    let by = LongDouble::parse(args.at(3)).ok_or(Error::NotFloat)?;
    if !by.is_finite() {
        return Err(Error::text("ERR value is NaN or Infinity"));
    }
    let add = |old: Option<Element<'_>>| {
        let old = match old {
            None => LongDouble::ZERO,
            Some(text) => {
                LongDouble::parse(&text.text()).ok_or(Error::text("ERR hash value is not a float"))?
            }
        };
        let sum = old + by;
        if !sum.is_finite() {
            return Err(Error::text("ERR increment would produce NaN or Infinity"));
        }
        Ok(sum.to_string())
    };
    let new = count(ctx, args, "hincrbyfloat", add, |hash, field, new, limits| {
        hash.update(field, new.as_bytes(), limits);
    })?;
    reply.bulk(new.as_bytes());
    Ok(Flow::Done)
}

#[cfg(test)]
mod tests {
    use crate::commands::testing::{Bench, check_all};

    #[test]
    fn fields_are_set_and_removed() {
        check_all(&[
            ("HSET h a 1 b x", ":2"),
            ("HSET h a 2 c \"\"\nHGET h a\nHLEN h", ":1\n\"2\"\n:3"),
            ("HMSET h a 3 d 4\nHSETNX h d 5\nHSETNX h e 5\nHGET h d", "+OK\n:0\n:1\n\"4\""),
            ("HDEL h a a nothing b\nHDEL nothing a\nHLEN h", ":2\n:0\n:3"),
            ("HDEL h c d e\nEXISTS h", ":3\n:0"),
            ("HSET h a\nHSET h a 1 b", &"\n-ERR wrong number of arguments for 'hset' command".repeat(2)[1..]),
            ("HMSET h a 1 b", "-ERR wrong number of arguments for 'hmset' command"),
            ("SET s v", "+OK"),
            ("HSET s a 1", "-WRONGTYPE Operation against a key holding the wrong kind of value"),
            ("HDEL s a", "-WRONGTYPE Operation against a key holding the wrong kind of value"),
        ]);
    }

    #[test]
    fn values_are_counted() {
        check_all(&[
            ("HINCRBY h n 5\nHINCRBY h n -7\nHGET h n", ":5\n:-2\n\"-2\""),
            ("HSET h t x\nHINCRBY h t 1", ":1\n-ERR hash value is not an integer"),
            ("HINCRBYFLOAT h t 1", "-ERR hash value is not a float"),
            ("HINCRBYFLOAT h f 10.5\nHINCRBYFLOAT h f 0.1", "\"10.5\"\n\"10.6\""),
            ("HINCRBYFLOAT h f inf", "-ERR value is NaN or Infinity"),
            (
                "HINCRBY h m -9223372036854775808\nHINCRBY h m -1",
                ":-9223372036854775808\n-ERR increment or decrement would overflow",
            ),
            ("HINCRBY new f x\nEXISTS new", "-ERR value is not an integer or out of range\n:0"),
        ]);
    }

    #[test]
    fn many_or_long_fields_make_a_table_that_behaves_the_same() {
        for shards in [1, 2, 5] {
            let mut bench = Bench::new(shards);
            for n in 0..600 {
                assert_eq!(bench.run(&format!("HSET h f{n} {n}")), ":1");
                let encoding = if n < 512 { "\"listpack\"" } else { "\"hashtable\"" };
                assert_eq!(bench.run("OBJECT ENCODING h"), encoding, "{n}");
            }
            assert_eq!(bench.run("HLEN h\nHGET h f77\nHINCRBY h f77 1"), ":600\n\"77\"\n:78");
            for n in 0..600 {
                assert_eq!(bench.run(&format!("HDEL h f{n}")), ":1");
            }
            assert_eq!(bench.run("EXISTS h\nDBSIZE"), ":0\n:0");
            let long = "x".repeat(65);
            bench.run(&format!("HSET long a 1\nHSET long b {long}\nHSET name {long} 1"));
            let encodings = bench.run("OBJECT ENCODING long\nOBJECT ENCODING name\nHGET long a");
            assert_eq!(encodings, "\"hashtable\"\n\"hashtable\"\n\"1\"");
            assert_eq!(bench.run("COPY long other\nRENAME long third"), ":1\n+OK");
            assert_eq!(bench.run("HGET other b\nHGET third b"), format!("\"{long}\"\n\"{long}\""));
        }
    }
}
