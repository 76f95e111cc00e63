//! Deadlines of fields of hashes: HEXPIRE and its kin set them, HTTL and its kin tell them, HPERSIST takes them away.

use super::deadline::{Condition, Form, to_seconds};
use super::hash::tell;
use crate::args::Args;
use crate::command::{Command, Flags, Flow, Handler, KeyFlags, KeySpec, Plan};
use crate::ctx::Ctx;
use crate::errors::Error;
use crate::keyspace::Millis;
use crate::typed::Missing;
use crate::values::Hash;
use corelane_resp::Reply;

const UPDATED: &[KeySpec] = &[KeySpec::one(1, KeyFlags::RW.with(KeyFlags::UPDATE))];
const ACCESSED: &[KeySpec] = &[KeySpec::one(1, KeyFlags::RO.with(KeyFlags::ACCESS))];
const NAMED: &str = "key FIELDS (numfields ^ field [field ...]) #fields";
pub(super) const PER_FIELD: &str = "O(N) where N is the number of fields that are named";

const fn sets(name: &'static str, run: Handler, syntax: &'static str, summary: &'static str) -> Command {
    Command {
        name,
        arity: -6,
        flags: Flags::WRITE.with(Flags::FAST),
        keys: UPDATED,
        plan: Plan::OneShard(run),
        since: "9.0.0",
        group: "hash",
        summary,
        complexity: PER_FIELD,
        syntax,
        ..Command::DEFAULT
    }
}

const fn tells(name: &'static str, run: Handler, summary: &'static str) -> Command {
    Command {
        arity: -5,
        flags: Flags::READONLY.with(Flags::FAST),
        keys: ACCESSED,
        ..sets(name, run, NAMED, summary)
    }
}

pub(super) const COMMANDS: &[Command] = &[
    sets(
        "hexpire",
        |ctx, args, reply| {
            set_deadlines(ctx, args, reply, Form { name: "hexpire", unit_ms: 1000, relative: true })
        },
        "key seconds [NX | XX | GT | LT] #condition FIELDS (numfields field [field ...]) #fields",
        "Sets expiry time on hash fields.",
    ),
    sets(
        "hpexpire",
        |ctx, args, reply| {
            set_deadlines(ctx, args, reply, Form { name: "hpexpire", unit_ms: 1, relative: true })
        },
        "key milliseconds [NX | XX | GT | LT] #condition @9.0.0 FIELDS (numfields ^ field [field ...]) #fields",
        "Sets expiry time on hash object.",
    ),
    sets(
        "hexpireat",
        |ctx, args, reply| {
            set_deadlines(ctx, args, reply, Form { name: "hexpireat", unit_ms: 1000, relative: false })
        },
        "key unix-time-seconds [NX | XX | GT | LT] #condition @9.0.0 FIELDS (numfields ^ field [field ...]) #fields",
        "Sets expiry time on hash fields.",
    ),
    sets(
        "hpexpireat",
        |ctx, args, reply| {
            set_deadlines(ctx, args, reply, Form { name: "hpexpireat", unit_ms: 1, relative: false })
        },
        "key unix-time-milliseconds [NX | XX | GT | LT] #condition @9.0.0 FIELDS (numfields ^ field [field ...]) \
            #fields",
        "Sets expiration time on hash field.",
    ),
    tells(
        "httl",
        |ctx, args, reply| {
            let now = ctx.now;
            tell_deadlines(ctx, args, reply, |at| to_seconds(at.saturating_sub(now)))
        },
        "Returns the remaining time to live (in seconds) of a hash key's field(s) that have an associated expiration.",
    ),
    tells(
        "hpttl",
        |ctx, args, reply| {
            let now = ctx.now;
            tell_deadlines(ctx, args, reply, |at| at.saturating_sub(now))
        },
        "Returns the remaining time to live in milliseconds of a hash key's field(s) that have an associated \
            expiration.",
    ),
    tells(
        "hexpiretime",
        |ctx, args, reply| {
            let wall = ctx.shard.wall;
            tell_deadlines(ctx, args, reply, |at| to_seconds(wall.shows_at(at)))
        },
        "Returns Unix timestamps in seconds since the epoch at which the given key's field(s) will expire.",
    ),
    tells(
        "hpexpiretime",
        |ctx, args, reply| {
            let wall = ctx.shard.wall;
            tell_deadlines(ctx, args, reply, |at| wall.shows_at(at))
        },
        "Returns the Unix timestamp in milliseconds since Unix epoch at which the given key's field(s) will expire.",
    ),
    Command {
        arity: -5,
        ..sets("hpersist", hpersist, NAMED, "Remove the existing expiration on a hash key's field(s).")
    },
];

/// The number of fields does not fit what follows it.
pub(super) const fn count_error() -> Error {
    Error::text("ERR numfields should be greater than 0 and match the provided number of fields")
}

/// Where FIELDS stands, from the argument `from` on: as the last one it is none.
pub(super) fn fields_at(args: Args<'_>, from: usize) -> Result<usize, Error> {
    (from..args.len() - 1).find(|idx| args.is(*idx, "FIELDS")).ok_or(count_error())
}

/// The index of the first field behind FIELDS at `at`, whose number must be right; `per_field` arguments belong to each.
pub(super) fn first_field(args: Args<'_>, at: usize, per_field: usize) -> Result<usize, Error> {
    let (number, first) = (at + 1, at + 2);
    if number >= args.len() {
        return Err(count_error());
    }
    let count = usize::try_from(args.int(number)?).unwrap_or(0);
    let fits = count != 0 && count.checked_mul(per_field) == args.len().checked_sub(first);
    if fits { Ok(first) } else { Err(count_error()) }
}

const MISSING: i64 = -2;
const NEVER: i64 = -1;
const REFUSED: i64 = 0;
const SET: i64 = 1;
const REMOVED: i64 = 2;

/// Gives a field that is there a deadline, or removes it if that has passed; true if so.
pub(super) fn set_or_remove(hash: &mut Hash, field: &[u8], at: Millis, now: Millis, seed: u64) -> bool {
    if at <= now {
        return hash.remove(field);
    }
    hash.set_deadline(field, Some(at), seed);
    false
}

fn set_deadlines(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply, form: Form) -> Result<Flow, Error> {
    let end = fields_at(args, 3)?;
    let condition = Condition::parse(args, end)?;
    let first = first_field(args, end, 1)?;
    let at = form.deadline_of_field(args.int(2)?, ctx.present())?;
    let (key, now, seed) = (ctx.key(args.at(1)), ctx.now, ctx.shard.settings.compact.seed);
    let (mut set, mut removed) = (false, 0);
    let edited = ctx.edit_hash(key, Missing::Skip, |hash| {
        reply.array(args.len() - first);
        for field in args.iter_from(first) {
            let present = hash.as_ref();
            let result = if present.get(field).is_none() {
                MISSING
            } else if !condition.allows(present.deadline(field), at as i64) {
                REFUSED
            } else if set_or_remove(hash, field, at, now, seed) {
                REMOVED
            } else {
                SET
            };
            set |= result == SET;
            removed += usize::from(result == REMOVED);
            reply.int(result);
        }
    })?;
    ctx.shard.keyspace.count_expired_fields(removed);
    if set {
        tell(ctx, "hexpire", key, false);
    }
    match edited {
        None => write_missing(args, first, reply),
        Some(edited) if removed > 0 => tell(ctx, "hexpired", key, edited.emptied),
        Some(_) => {}
    }
    Ok(Flow::Done)
}

fn write_missing(args: Args<'_>, first: usize, reply: &mut Reply) {
    reply.array(args.len() - first);
    args.iter_from(first).for_each(|_| reply.int(MISSING));
}

/// Writes what `tell` makes of the deadline of every field; -1 where it has none, -2 where it is not there.
fn tell_deadlines(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply,
    tell: impl Fn(Millis) -> u64,
) -> Result<Flow, Error> {
    if !args.is(2, "FIELDS") {
        return Err(Error::Syntax);
    }
    let first = first_field(args, 2, 1).map_err(|error| match error {
        Error::NotInteger => error,
        _ => Error::Syntax,
    })?;
    let key = ctx.key(args.at(1));
    let Some(entry) = ctx.lookup(key) else {
        write_missing(args, first, reply);
        return Ok(Flow::Done);
    };
    let hash = entry.hash().ok_or(Error::WrongType)?;
    reply.array(args.len() - first);
    for field in args.iter_from(first) {
        reply.int(match hash.get(field) {
            None => MISSING,
            Some(_) => hash.deadline(field).map_or(NEVER, |at| tell(at) as i64),
        });
    }
    Ok(Flow::Done)
}

fn hpersist(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply) -> Result<Flow, Error> {
    if !args.is(2, "FIELDS") {
        return Err(Error::Syntax);
    }
    let first = first_field(args, 2, 1)?;
    let (key, seed) = (ctx.key(args.at(1)), ctx.shard.settings.compact.seed);
    let edited = ctx.edit_hash(key, Missing::Skip, |hash| {
        reply.array(args.len() - first);
        let mut changed = false;
        for field in args.iter_from(first) {
            let had_one = hash.as_ref().deadline(field).is_some();
            reply.int(match hash.as_ref().get(field) {
                None => MISSING,
                Some(_) if had_one => SET,
                Some(_) => NEVER,
            });
            if had_one {
                hash.set_deadline(field, None, seed);
                changed = true;
            }
        }
        changed
    })?;
    match edited {
        None => write_missing(args, first, reply),
        Some(edited) if edited.result => tell(ctx, "hpersist", key, false),
        Some(_) => {}
    }
    Ok(Flow::Done)
}

#[cfg(test)]
mod tests {
    use crate::commands::testing::{Bench, check_all};

    #[test]
    fn deadlines_of_fields_are_set_told_and_taken_away() {
        check_all(&[
            ("HSET h a 1 b 2 c 3", ":3"),
            ("HEXPIRE h 10 FIELDS 2 a zz\nHTTL h FIELDS 3 a b zz", "[:1, :-2]\n[:10, :-1, :-2]"),
            ("HPEXPIRE h 1500 GT FIELDS 2 a b\nHPEXPIRE h 1500 LT FIELDS 2 a b", "[:0, :0]\n[:1, :1]"),
            ("HPTTL h FIELDS 1 a\nHEXPIRETIME h FIELDS 1 a", "[:1500]\n[:1700000002]"),
            (
                "HPERSIST h FIELDS 3 a c zz\nHPEXPIRETIME h FIELDS 2 a b",
                "[:1, :-1, :-2]\n[:-1, :1700000001500]",
            ),
            ("HEXPIRE h 0 FIELDS 2 b b\nHLEN h\nTTL h", "[:2, :-2]\n:2\n:-1"),
            ("HEXPIREAT h 1 FIELDS 2 a c\nEXISTS h", "[:2, :2]\n:0"),
            ("HEXPIRE h 1 FIELDS 1 a\nHTTL h FIELDS 1 a\nHPERSIST h FIELDS 1 a", "[:-2]\n[:-2]\n[:-2]"),
        ]);
    }

    #[test]
    fn fields_vanish_at_their_deadline_and_the_key_with_the_last_whether_or_not_anybody_looks() {
        for shards in [1, 2, 5] {
            let mut bench = Bench::new(shards);
            for key in 0..40 {
                bench.run(&format!("HSET h{key} a 1 b 2 c 3\nHPEXPIRE h{key} 1000 FIELDS 1 a"));
                bench.run(&format!("HPEXPIRE h{key} 2000 FIELDS 2 b c"));
            }
            bench.run("EXPIRE h0 100\nHSET h1 d 4\nPEXPIRE h2 500");
            assert_eq!(bench.run("TTL h0\nTTL h1\nPTTL h2\nHLEN h1"), ":100\n:-1\n:500\n:4");
            bench.now += 1000;
            assert_eq!(
                bench.run("HGET h0 a\nHLEN h1\nHLEN h2\nTTL h0\nHMGET h3 a b"),
                "nil\n:3\n:0\n:99\n[nil, \"2\"]"
            );
            assert_eq!(bench.run("DBSIZE"), ":39");
            bench.run("RENAME h4 moved\nCOPY h5 copy\nPERSIST h0");
            bench.now += 999;
            assert_eq!(bench.run("HLEN h0\nHLEN moved\nHPTTL copy FIELDS 1 b\nTTL h0"), ":2\n:2\n[:1]\n:-1");
            bench.now += 1;
            assert_eq!(bench.run("EXISTS h0 moved copy h9\nHGETALL h1"), ":0\n[\"d\", \"4\"]");
            bench.now += 100;
            assert_eq!(bench.run("PING\nDBSIZE\nKEYS *"), "+PONG\n:1\n[\"h1\"]");
        }
    }

    /// An access removes some hundred of them; nobody sees the others meanwhile.
    #[test]
    fn very_many_fields_that_are_due_at_once_are_gone_at_once() {
        let mut bench = Bench::new(1);
        for n in 0..5000 {
            bench.run(&format!("HSET h due{n} {n}"));
        }
        let names: Vec<String> = (0..5000).map(|n| format!("due{n}")).collect();
        bench.run(&format!("HPEXPIRE h 1000 FIELDS 5000 {}", names.join(" ")));
        bench.run("HSET h a 1 b 2");
        bench.run("DEBUG SET-ACTIVE-EXPIRE 0");
        bench.now += 1000;
        assert_eq!(
            bench.run("HLEN h\nHGET h due4999\nHEXISTS h due4998\nHSTRLEN h due4997"),
            ":2\nnil\n:0\n:0"
        );
        assert_eq!(
            bench.run("HDEL h due4996\nHSETNX h due4995 1\nHTTL h FIELDS 2 due4995 due4994"),
            ":0\n:1\n[:-1, :-2]"
        );
        assert_eq!(bench.run("HINCRBY h due4993 5\nHLEN h\nHDEL h due4995 due4993"), ":5\n:4\n:2");
        let mut seen: Vec<String> = (0..8).map(|_| bench.run("HRANDFIELD h")).collect();
        seen.sort();
        seen.dedup();
        assert!(seen.iter().all(|field| field == "\"a\"" || field == "\"b\""), "{seen:?}");
        assert_eq!(bench.run("HRANDFIELD h 10").matches('"').count(), 4);
        assert_eq!(bench.run("HKEYS h").matches('"').count(), 4);
        assert_eq!(bench.run("COPY h copy\nHLEN copy\nHDEL copy a b\nEXISTS copy"), ":1\n:2\n:2\n:0");
        assert_eq!(bench.run("HGETDEL h FIELDS 1 a\nHLEN h\nHDEL h b\nEXISTS h"), "[\"1\"]\n:1\n:1\n:0");
    }

    #[test]
    fn setting_a_field_takes_its_deadline_away_and_counting_does_not() {
        check_all(&[
            ("HSET h a 1 b 1\nHEXPIRE h 10 FIELDS 2 a b", ":2\n[:1, :1]"),
            ("HINCRBY h a 1\nHINCRBYFLOAT h a 1\nHSETNX h a 1", ":2\n\"3\"\n:0"),
            ("HSET h b 2\nHTTL h FIELDS 2 a b", ":0\n[:10, :-1]"),
            ("HDEL h a\nHSET h a 1\nHTTL h FIELDS 1 a", ":1\n:1\n[:-1]"),
        ]);
    }
}
