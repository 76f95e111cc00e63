//! Hashes: reading fields.

use super::element::{nothing, write_element, write_optional};
use super::element_scan::{ElementScan, parse_place, write_found};
use super::picks::Room;
use crate::args::Args;
use crate::command::{Command, Flags, Flow, Handler, KeyFlags, KeySpec, Plan};
use crate::ctx::{Ctx, Rng};
use crate::errors::Error;
use crate::values::{Element, HashRef};
use corelane_resp::{Proto, Reply};
use hashbrown::HashSet;

const ACCESSED: &[KeySpec] = &[KeySpec::one(1, KeyFlags::RO.with(KeyFlags::ACCESS))];
const LOOKED_AT: &[KeySpec] = &[KeySpec::one(1, KeyFlags::RO)];
const QUICK: Flags = Flags::READONLY.with(Flags::FAST);
const WHOLE: &str = "O(N) where N is the size of the hash";

const fn reads(
    (name, arity): (&'static str, i16),
    flags: Flags,
    run: Handler,
    since: &'static str,
    (syntax, summary): (&'static str, &'static str),
) -> Command {
    Command {
        name,
        arity,
        flags,
        keys: ACCESSED,
        plan: Plan::OneShard(run),
        since,
        group: "hash",
        summary,
        syntax,
        ..Command::DEFAULT
    }
}

const fn reads_all(name: &'static str, run: Handler, summary: &'static str) -> Command {
    Command {
        complexity: WHOLE,
        tips: &["nondeterministic_output_order"],
        ..reads((name, 2), Flags::READONLY, run, "2.0.0", ("key", summary))
    }
}

pub(super) const COMMANDS: &[Command] = &[
    reads(("hget", 3), QUICK, hget, "2.0.0", ("key field", "Returns the value of a field in a hash.")),
    Command {
        complexity: "O(N) where N is the number of fields that are named",
        ..reads(
            ("hmget", -3),
            QUICK,
            hmget,
            "2.0.0",
            ("key field [field ...]", "Returns the values of all fields in a hash."),
        )
    },
    reads_all("hgetall", hgetall, "Returns all fields and values in a hash."),
    reads_all("hkeys", hkeys, "Returns all fields in a hash."),
    reads_all("hvals", hvals, "Returns all values in a hash."),
    Command {
        keys: LOOKED_AT,
        ..reads(("hlen", 2), QUICK, hlen, "2.0.0", ("key", "Returns the number of fields in a hash."))
    },
    Command {
        keys: LOOKED_AT,
        ..reads(
            ("hstrlen", 3),
            QUICK,
            hstrlen,
            "3.2.0",
            ("key field", "Returns the length of the value of a field."),
        )
    },
    Command {
        keys: LOOKED_AT,
        ..reads(
            ("hexists", 3),
            QUICK,
            hexists,
            "2.0.0",
            ("key field", "Determines whether a field exists in a hash."),
        )
    },
    Command {
        complexity: "O(N) where N is the number of fields returned; of a large hash and more than a third of it, \
            the size of the hash",
        tips: &["nondeterministic_output"],
        ..reads(
            ("hrandfield", -2),
            Flags::READONLY,
            hrandfield,
            "6.2.0",
            ("key [count [WITHVALUES]] #options", "Returns one or more random fields from a hash."),
        )
    },
    Command {
        complexity: "O(1) for a call, O(N) for a whole iteration, where N is the number of fields",
        tips: &["nondeterministic_output"],
        ..reads(
            ("hscan", -3),
            Flags::READONLY,
            hscan,
            "2.8.0",
            (
                "key cursor [MATCH pattern] [COUNT count] [NOVALUES]",
                "Iterates over fields and values of a hash.",
            ),
        )
    },
];

/// Lets `read` look at the hash of the first key, `None` where there is none.
fn read<T>(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    read: impl FnOnce(Option<HashRef<'_>>) -> T,
) -> Result<T, Error> {
    let key = ctx.key(args.at(1));
    match ctx.lookup(key) {
        None => Ok(read(None)),
        Some(entry) => Ok(read(Some(entry.hash().ok_or(Error::WrongType)?))),
    }
}

fn hget(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply) -> Result<Flow, Error> {
    read(ctx, args, |hash| write_optional(reply, hash.and_then(|hash| hash.get(args.at(2)))))?;
    Ok(Flow::Done)
}

fn hmget(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply) -> Result<Flow, Error> {
    read(ctx, args, |hash| {
        reply.array(args.len() - 2);
        args.iter_from(2).for_each(|field| write_optional(reply, hash.and_then(|hash| hash.get(field))));
    })?;
    Ok(Flow::Done)
}

fn hgetall(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply) -> Result<Flow, Error> {
    read_all(ctx, args, reply, Reply::map, |reply, field, value| {
        write_element(reply, field);
        write_element(reply, value);
    })
}

fn hkeys(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply) -> Result<Flow, Error> {
    read_all(ctx, args, reply, Reply::array, |reply, field, _| write_element(reply, field))
}

fn hvals(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply) -> Result<Flow, Error> {
    read_all(ctx, args, reply, Reply::array, |reply, _, value| write_element(reply, value))
}

/// Writes something of every field, in pieces if there are many. Fields with deadlines come at once: some might go between two
/// pieces.
fn read_all(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply,
    open: fn(&mut Reply, usize),
    write: impl Fn(&mut Reply, Element<'_>, Element<'_>),
) -> Result<Flow, Error> {
    let (pacing, resume) = (ctx.pacing(), ctx.resume);
    let Some(entry) = ctx.lookup_once(ctx.key(args.at(1))) else { return Ok(nothing(ctx, reply, open)) };
    let hash = entry.hash().ok_or(Error::WrongType)?;
    let piece = if hash.has_deadlines() { Some(usize::MAX) } else { pacing.piece(hash.len(), hash.extent()) };
    let Some(piece) = piece else { return Ok(Flow::Later) };
    if resume == 0 {
        open(reply, hash.len());
    }
    let next = hash.walk(resume, piece, |field, value| write(reply, field, value));
    Ok(next.map_or(Flow::Done, Flow::Again))
}

fn hlen(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply) -> Result<Flow, Error> {
    reply.int(read(ctx, args, |hash| hash.map_or(0, HashRef::len))? as i64);
    Ok(Flow::Done)
}

fn hstrlen(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply) -> Result<Flow, Error> {
    let value_len = |hash: HashRef<'_>| hash.get(args.at(2)).map(Element::text_len);
    reply.int(read(ctx, args, |hash| hash.and_then(value_len).unwrap_or(0))? as i64);
    Ok(Flow::Done)
}

fn hexists(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply) -> Result<Flow, Error> {
    reply.int(read(ctx, args, |hash| hash.is_some_and(|hash| hash.get(args.at(2)).is_some()))?.into());
    Ok(Flow::Done)
}

/// What HRANDFIELD was asked for.
struct Picks {
    /// Negative: so many, and fields may come several times.
    count: i64,
    with_values: bool,
}

impl Picks {
    fn parse(args: Args<'_>) -> Result<Self, Error> {
        let count = args.int(2)?;
        if count == i64::MIN {
            return Err(Error::text(
                "ERR value is out of range, value must between -9223372036854775807 and 9223372036854775807",
            ));
        }
        let with_values = args.len() > 3;
        if args.len() > 4 || (with_values && !args.is(3, "WITHVALUES")) {
            return Err(Error::Syntax);
        }
        if with_values && count.unsigned_abs() > (i64::MAX / 2).unsigned_abs() {
            return Err(Error::text("ERR value is out of range"));
        }
        Ok(Self { count, with_values })
    }

    fn write(&self, reply: &mut Reply, field: Element<'_>, value: Element<'_>) {
        if self.with_values && reply.proto() == Proto::Resp3 {
            reply.array(2);
        }
        write_element(reply, field);
        if self.with_values {
            write_element(reply, value);
        }
    }

    fn write_len(&self, reply: &mut Reply, picked: usize) {
        let flat = self.with_values && reply.proto() == Proto::Resp2;
        reply.array(if flat { 2 * picked } else { picked });
    }
}

fn hrandfield(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply) -> Result<Flow, Error> {
    let picks = if args.len() > 2 { Some(Picks::parse(args)?) } else { None };
    let mut rng = Rng::new(ctx.shard.rng.next());
    let room = Room::new(ctx, reply);
    read(ctx, args, |hash| {
        match (picks, hash) {
            (None, hash) => {
                let picked = hash.and_then(|hash| hash.random(|| rng.next()));
                write_optional(reply, picked.map(|(field, _)| field));
            }
            (Some(_), None) => reply.array(0),
            (Some(picks), Some(hash)) if picks.count < 0 => {
                let count = picks.count.unsigned_abs() as usize;
                room.admit(count)?;
                picks.write_len(reply, count);
                for _ in 0..count {
                    let (field, value) = hash.random(|| rng.next()).expect("no hash is empty");
                    picks.write(reply, field, value);
                    room.check(reply)?;
                }
            }
            (Some(picks), Some(hash)) => write_different(reply, &picks, hash, &mut rng),
        }
        Ok(())
    })??;
    Ok(Flow::Done)
}

/// Writes as many different fields as were asked for, or all: each choice of them is as likely as any other.
fn write_different(reply: &mut Reply, picks: &Picks, hash: HashRef<'_>, rng: &mut Rng) {
    const SHARE_MAX: usize = 3;
    let len = hash.len();
    let count = (picks.count as usize).min(len);
    picks.write_len(reply, count);
    if matches!(hash, HashRef::Pack(_)) || count > len / SHARE_MAX {
        // Looks at all; each is taken with the probability that leaves the right number.
        let (mut left, mut wanted) = (len as u64, count as u64);
        hash.for_each(|field, value| {
            if wanted != 0 && rng.next() % left < wanted {
                picks.write(reply, field, value);
                wanted -= 1;
            }
            left -= 1;
        });
        return;
    }
    let mut seen = HashSet::with_capacity(count);
    while seen.len() < count {
        let Some((Element::Bytes(field), value)) = hash.random(|| rng.next()) else { return };
        if seen.insert(field) {
            picks.write(reply, Element::Bytes(field), value);
        }
    }
}

fn hscan(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply) -> Result<Flow, Error> {
    let place = parse_place(args)?;
    read(ctx, args, |hash| {
        let (mut found, mut count, mut next) = (Reply::new(reply.proto()), 0, None);
        if let Some(hash) = hash {
            let options = ElementScan::parse(args, "NOVALUES")?;
            // A small hash is returned as a whole, whatever the cursor.
            let from = if matches!(hash, HashRef::Pack(_)) { Some(0) } else { place };
            next = from.and_then(|from| {
                hash.walk(from, options.count, |field, value| {
                    if !options.matches(&field.text()) {
                        return;
                    }
                    write_element(&mut found, field);
                    if !options.names_only {
                        write_element(&mut found, value);
                    }
                    count += if options.names_only { 1 } else { 2 };
                })
            });
        }
        write_found(reply, next, count, &mut found);
        Ok(Flow::Done)
    })?
}

#[cfg(test)]
mod tests {
    use crate::commands::testing::{Bench, check_all};
    use std::collections::BTreeSet;

    #[test]
    fn fields_are_read() {
        check_all(&[
            ("HSET h a 1 b x", ":2"),
            ("HGET h a\nHGET h c\nHGET nothing a", "\"1\"\nnil\nnil"),
            ("HMGET h b c a\nHMGET nothing a", "[\"x\", nil, \"1\"]\n[nil]"),
            ("HGETALL h\nHGETALL nothing", "[\"a\", \"1\", \"b\", \"x\"]\n[]"),
            ("HKEYS h\nHVALS h\nHLEN h", "[\"a\", \"b\"]\n[\"1\", \"x\"]\n:2"),
            ("HSTRLEN h a\nHSTRLEN h c\nHEXISTS h a\nHEXISTS h c", ":1\n:0\n:1\n:0"),
            (
                "HSCAN h 0\nHSCAN h 7 NOVALUES MATCH b",
                "[\"0\", [\"a\", \"1\", \"b\", \"x\"]]\n[\"0\", [\"b\"]]",
            ),
            ("HSCAN nothing 0 COUNT 0\nHSCAN nothing x", "[\"0\", []]\n-ERR invalid cursor"),
            (
                "HSCAN h 0 COUNT 0\nHSCAN h 0 NOSCORES",
                "-ERR syntax error\n-ERR NOSCORES option can only be used in ZSCAN",
            ),
        ]);
    }

    /// The elements of a rendered array of plain bulks.
    fn elements(array: &str) -> Vec<String> {
        array.split('"').skip(1).step_by(2).map(str::to_owned).collect()
    }

    #[test]
    fn random_fields_are_different_or_not_as_asked() {
        for fields in [5, 700] {
            let mut bench = Bench::new(2);
            for n in 0..fields {
                bench.run(&format!("HSET h f{n} {n}"));
            }
            for count in [0, 1, 3, 5, 200, 650, 10_000] {
                let picked = elements(&bench.run(&format!("HRANDFIELD h {count}")));
                assert_eq!(picked.len(), count.min(fields));
                assert_eq!(picked.iter().collect::<BTreeSet<_>>().len(), picked.len());
                let again = elements(&bench.run(&format!("HRANDFIELD h -{count} WITHVALUES")));
                assert_eq!(again.len(), 2 * count);
                assert!(again.chunks(2).all(|pair| pair[0] == format!("f{}", pair[1])));
            }
            assert!(bench.run("HRANDFIELD h").starts_with("\"f"));
        }
    }

    #[test]
    fn a_scan_of_a_changing_hash_returns_every_field_that_stays() {
        let mut bench = Bench::new(1);
        for n in 0..3000 {
            bench.run(&format!("HSET h f{n} {n}"));
        }
        let (mut cursor, mut seen, mut calls) = ("0".to_owned(), Vec::new(), 0);
        while calls == 0 || cursor != "0" {
            let reply = elements(&bench.run(&format!("HSCAN h {cursor} COUNT 50 NOVALUES")));
            cursor.clone_from(&reply[0]);
            seen.extend(reply[1..].iter().cloned());
            calls += 1;
            // Odd fields go, others come: the table shrinks and grows between calls.
            for n in 0..40 {
                bench.run(&format!("HDEL h f{}\nHSET h new{calls}:{n} 1", (calls * 40 + n) * 2 + 1));
            }
        }
        let unique: BTreeSet<&String> = seen.iter().collect();
        assert_eq!(unique.len(), seen.len(), "nothing twice");
        assert!((0..3000).step_by(2).all(|n| unique.contains(&format!("f{n}"))));
        assert!(calls > 30);
    }
}
