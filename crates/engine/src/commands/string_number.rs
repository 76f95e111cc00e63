//! Strings as numbers: counting.

use super::long_double::LongDouble;
use crate::args::{Args, parse_int};
use crate::command::{Command, Flags, Flow, Handler, KeyFlags, KeySpec, Plan};
use crate::ctx::Ctx;
use crate::errors::Error;
use crate::events::EventClasses;
use crate::keyspace::{NewValue, StringForm};
use crate::values::decimal;
use corelane_resp::Reply;

const COUNTED: &[KeySpec] = &[KeySpec::one(1, KeyFlags::RW.with(KeyFlags::ACCESS).with(KeyFlags::UPDATE))];

const fn counts(
    name: &'static str,
    arity: i16,
    run: Handler,
    since: &'static str,
    syntax: &'static str,
    summary: &'static str,
) -> Command {
    Command {
        name,
        arity,
        flags: Flags::WRITE.with(Flags::DENYOOM).with(Flags::FAST),
        keys: COUNTED,
        plan: Plan::OneShard(run),
        since,
        group: "string",
        summary,
        syntax,
        ..Command::DEFAULT
    }
}

pub(super) const COMMANDS: &[Command] = &[
    counts(
        "incr",
        2,
        |ctx, args, reply| add(ctx, args, reply, 1),
        "1.0.0",
        "key",
        "Increments the integer value of a key by one. Uses 0 as initial value if the key doesn't exist.",
    ),
    counts(
        "decr",
        2,
        |ctx, args, reply| add(ctx, args, reply, -1),
        "1.0.0",
        "key",
        "Decrements the integer value of a key by one. Uses 0 as initial value if the key doesn't exist.",
    ),
    counts(
        "incrby",
        3,
        incrby,
        "1.0.0",
        "key increment",
        "Increments the integer value of a key by a number. Uses 0 as initial value if the key doesn't exist.",
    ),
    counts(
        "decrby",
        3,
        decrby,
        "1.0.0",
        "key decrement",
        "Decrements the integer value of a key by a number. Uses 0 as initial value if the key doesn't exist.",
    ),
    counts(
        "incrbyfloat",
        3,
        incrbyfloat,
        "2.6.0",
        "key increment",
        "Increments the floating point value of a key by a number. Uses 0 as initial value if the key doesn't \
            exist.",
    ),
];

fn incrby(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply) -> Result<Flow, Error> {
    let by = args.int(2)?;
    add(ctx, args, reply, by)
}

fn decrby(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply) -> Result<Flow, Error> {
    let by = args.int(2)?.checked_neg().ok_or(Error::text("ERR decrement would overflow"))?;
    add(ctx, args, reply, by)
}

fn add(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply, by: i64) -> Result<Flow, Error> {
    let key = ctx.key(args.at(1));
    let (old, expiry) = match ctx.find(key) {
        None => (0, None),
        Some(entry) => {
            let text = entry.string().ok_or(Error::WrongType)?;
            (parse_int(text).ok_or(Error::NotInteger)?, entry.expiry())
        }
    };
    let new = old.checked_add(by).ok_or(Error::Overflow)?;
    ctx.set(key, NewValue::Slice(decimal(new, &mut [0; 20])), expiry);
    ctx.notify(EventClasses::STRING, "incrby", key.bytes);
    reply.int(new);
    Ok(Flow::Done)
}

fn incrbyfloat(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply) -> Result<Flow, Error> {
    let key = ctx.key(args.at(1));
    let (old, expiry) = match ctx.find(key) {
        None => (LongDouble::ZERO, None),
        Some(entry) => {
            let text = entry.string().ok_or(Error::WrongType)?;
            (LongDouble::parse(text).ok_or(Error::NotFloat)?, entry.expiry())
        }
    };
    let by = LongDouble::parse(args.at(2)).ok_or(Error::NotFloat)?;
    let sum = old + by;
    if !sum.is_finite() {
        return Err(Error::text("ERR increment would produce NaN or Infinity"));
    }
    let text = sum.to_string();
    ctx.set(key, NewValue::Slice(text.as_bytes()), expiry);
    // Valkey keeps even a whole number as text here.
    ctx.shard.keyspace.set_form(ctx.db, key, StringForm::Text);
    ctx.notify(EventClasses::STRING, "incrbyfloat", key.bytes);
    reply.bulk(text.as_bytes());
    Ok(Flow::Done)
}

#[cfg(test)]
mod tests {
    use crate::commands::testing::check_all;

    #[test]
    fn numbers_are_counted_up_and_down() {
        let overflow = "-ERR increment or decrement would overflow";
        let not_integer = "-ERR value is not an integer or out of range";
        check_all(&[
            ("INCR n\nINCR n\nDECR n\nINCRBY n 40\nDECRBY n 50\nGET n", ":1\n:2\n:1\n:41\n:-9\n\"-9\""),
            ("SET n 9223372036854775807", "+OK"),
            ("INCR n", overflow),
            ("DECRBY n -9223372036854775808", "-ERR decrement would overflow"),
            ("SET n 10 EX 9\nINCR n\nTTL n", "+OK\n:11\n:9"),
            ("SET n \" 1\"\nINCR n", &format!("+OK\n{not_integer}")),
            ("INCRBY n 1.5", not_integer),
        ]);
    }

    #[test]
    fn fractions_are_added_in_extended_precision() {
        let not_float = "-ERR value is not a valid float";
        check_all(&[
            ("SET f 10.50\nINCRBYFLOAT f 0.1\nINCRBYFLOAT f -5", "+OK\n\"10.6\"\n\"5.6\""),
            ("SET f 5.0e3\nINCRBYFLOAT f 2.0e2", "+OK\n\"5200\""),
            ("SET f 0.1\nINCRBYFLOAT f 0.2", "+OK\n\"0.3\""),
            ("SET f 0x10\nINCRBYFLOAT f 1", "+OK\n\"17\""),
            ("SET f 1 EX 5\nINCRBYFLOAT f 1\nTTL f", "+OK\n\"2\"\n:5"),
            ("INCRBYFLOAT new 3.0\nINCRBYFLOAT new -3", "\"3\"\n\"0\""),
            ("INCRBYFLOAT f abc", not_float),
            ("INCRBYFLOAT f \" 1\"", not_float),
            ("INCRBYFLOAT f inf", "-ERR increment would produce NaN or Infinity"),
        ]);
    }
}
