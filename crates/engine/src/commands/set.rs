//! Sets: members come, go, are looked for and move.

use super::element::nothing;
use super::element::write_element;
use super::element_scan::{ElementScan, parse_place, write_found};
use crate::args::Args;
use crate::command::{Command, Flags, Flow, KeyFlags, KeySpec, Plan};
use crate::ctx::{Ctx, Decide, Next, On, Payload, write_error};
use crate::errors::Error;
use crate::events::EventClasses;
use crate::typed::Missing;
use crate::values::{Set, SetRef};
use corelane_resp::Reply;

const LOOKED_AT: &[KeySpec] = &[KeySpec::one(1, KeyFlags::RO)];
const ACCESSED: &[KeySpec] = &[KeySpec::one(1, KeyFlags::RO.with(KeyFlags::ACCESS))];
const QUICK: Flags = Flags::READONLY.with(Flags::FAST);

/// What all of them have in common.
pub(super) const SET: Command = Command { group: "set", ..Command::DEFAULT };

pub(super) const COMMANDS: &[Command] = &[
    Command {
        name: "sadd",
        arity: -3,
        flags: Flags::WRITE.with(Flags::DENYOOM).with(Flags::FAST),
        keys: &[KeySpec::one(1, KeyFlags::RW.with(KeyFlags::INSERT))],
        plan: Plan::OneShard(sadd),
        summary: "Adds one or more members to a set. Creates the key if it doesn't exist.",
        complexity: "O(N) where N is the number of members given",
        syntax: "key member [member ...]",
        ..SET
    },
    Command {
        name: "srem",
        arity: -3,
        flags: Flags::WRITE.with(Flags::FAST),
        keys: &[KeySpec::one(1, KeyFlags::RW.with(KeyFlags::DELETE))],
        plan: Plan::OneShard(srem),
        summary: "Removes one or more members from a set. Deletes the set if the last member was removed.",
        complexity: "O(N) where N is the number of members given",
        syntax: "key member [member ...]",
        ..SET
    },
    Command {
        name: "sismember",
        arity: 3,
        flags: QUICK,
        keys: LOOKED_AT,
        plan: Plan::OneShard(sismember),
        summary: "Determines whether a member belongs to a set.",
        syntax: "key member",
        ..SET
    },
    Command {
        name: "smismember",
        arity: -3,
        flags: QUICK,
        keys: ACCESSED,
        plan: Plan::OneShard(smismember),
        since: "6.2.0",
        summary: "Determines whether multiple members belong to a set.",
        complexity: "O(N) where N is the number of members given",
        syntax: "key member [member ...]",
        ..SET
    },
    Command {
        name: "scard",
        arity: 2,
        flags: QUICK,
        keys: LOOKED_AT,
        plan: Plan::OneShard(scard),
        summary: "Returns the number of members in a set.",
        syntax: "key",
        ..SET
    },
    Command {
        name: "smembers",
        arity: 2,
        flags: Flags::READONLY,
        keys: ACCESSED,
        plan: Plan::OneShard(smembers),
        summary: "Returns all members of a set.",
        complexity: "O(N) where N is the number of members",
        syntax: "key",
        tips: &["nondeterministic_output_order"],
        ..SET
    },
    Command {
        name: "smove",
        arity: 4,
        flags: Flags::WRITE.with(Flags::FAST),
        keys: &[
            KeySpec::one(1, KeyFlags::RW.with(KeyFlags::ACCESS).with(KeyFlags::DELETE)),
            KeySpec::one(2, KeyFlags::RW.with(KeyFlags::INSERT)),
        ],
        plan: Plan::Staged { read: look, decide: decide_smove, write: smove },
        summary: "Moves a member from one set to another.",
        syntax: "source destination member",
        ..SET
    },
    Command {
        name: "sscan",
        arity: -3,
        flags: Flags::READONLY,
        keys: ACCESSED,
        plan: Plan::OneShard(sscan),
        since: "2.8.0",
        summary: "Iterates over members of a set.",
        complexity: "O(1) for a call, O(N) for a whole iteration, where N is the number of members",
        syntax: "key cursor [MATCH pattern] [COUNT count]",
        tips: &["nondeterministic_output"],
        ..SET
    },
];

/// Lets `read` look at the set of the first key, an empty one where there is none.
pub(super) fn read<T>(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    read: impl FnOnce(SetRef<'_>) -> T,
) -> Result<T, Error> {
    let key = ctx.key(args.at(1));
    match ctx.lookup(key) {
        None => Ok(read(SetRef::EMPTY)),
        Some(entry) => Ok(read(entry.set().ok_or(Error::WrongType)?)),
    }
}

/// Tells that a set has lost members and, if so, its key.
pub(super) fn notify_loss(ctx: &mut Ctx<'_>, name: &'static str, key: &[u8], emptied: bool) {
    ctx.notify(EventClasses::SET, name, key);
    if emptied {
        ctx.notify(EventClasses::GENERIC, "del", key);
    }
}

fn sadd(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply) -> Result<Flow, Error> {
    reply.int(add(ctx, args.at(1), args.skip(2))?);
    Ok(Flow::Done)
}

/// Adds members; returns how many are new.
fn add(ctx: &mut Ctx<'_>, key: &[u8], members: Args<'_>) -> Result<i64, Error> {
    let limits = ctx.shard.settings.compact;
    let edited = ctx.edit_set(ctx.key(key), Missing::Create, |set| {
        if set.as_ref().is_empty() {
            *set = Set::for_members(members.at(0), members.len(), &limits);
        } else {
            set.expect(members.len(), &limits);
        }
        members.iter_from(0).filter(|member| set.add(member, &limits)).count()
    })?;
    let added = edited.map_or(0, |edited| edited.result);
    if added != 0 {
        ctx.notify(EventClasses::SET, "sadd", key);
    }
    Ok(added as i64)
}

fn srem(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply) -> Result<Flow, Error> {
    reply.int(remove(ctx, args.at(1), args.skip(2))?);
    Ok(Flow::Done)
}

/// Removes members; returns how many there were.
fn remove(ctx: &mut Ctx<'_>, key: &[u8], members: Args<'_>) -> Result<i64, Error> {
    let edited = ctx.edit_set(ctx.key(key), Missing::Skip, |set| {
        members.iter_from(0).filter(|member| set.remove(member)).count()
    })?;
    let Some(edited) = edited else { return Ok(0) };
    if edited.result != 0 {
        notify_loss(ctx, "srem", key, edited.emptied);
    }
    Ok(edited.result as i64)
}

fn sismember(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply) -> Result<Flow, Error> {
    reply.int(read(ctx, args, |set| set.contains(args.at(2)))?.into());
    Ok(Flow::Done)
}

fn smismember(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply) -> Result<Flow, Error> {
    read(ctx, args, |set| {
        reply.array(args.len() - 2);
        args.iter_from(2).for_each(|member| reply.int(set.contains(member).into()));
    })?;
    Ok(Flow::Done)
}

fn scard(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply) -> Result<Flow, Error> {
    reply.int(read(ctx, args, |set| set.len())? as i64);
    Ok(Flow::Done)
}

fn smembers(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply) -> Result<Flow, Error> {
    let (pacing, resume) = (ctx.pacing(), ctx.resume);
    let Some(entry) = ctx.lookup_once(ctx.key(args.at(1))) else {
        return Ok(nothing(ctx, reply, Reply::set));
    };
    let set = entry.set().ok_or(Error::WrongType)?;
    let Some(piece) = pacing.piece(set.len(), set.extent()) else { return Ok(Flow::Later) };
    if resume == 0 {
        reply.set(set.len());
    }
    let next = set.walk(resume, piece, |member| write_element(reply, member));
    Ok(next.map_or(Flow::Done, Flow::Again))
}

fn sscan(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply) -> Result<Flow, Error> {
    let place = parse_place(args)?;
    read(ctx, args, |set| {
        let (mut found, mut count, mut next) = (Reply::new(reply.proto()), 0, None);
        if !set.is_empty() {
            let options = ElementScan::parse(args, "")?;
            // A small set is returned as a whole, whatever the cursor.
            let from = if matches!(set, SetRef::Table(_)) { place } else { Some(0) };
            next = from.and_then(|from| {
                set.walk(from, options.count, |member| {
                    if options.matches(&member.text()) {
                        write_element(&mut found, member);
                        count += 1;
                    }
                })
            });
        }
        write_found(reply, next, count, &mut found);
        Ok(Flow::Done)
    })?
}

/// SMOVE's keys.
const SOURCE: usize = 1;
const DESTINATION: usize = 2;
/// Its stages behind the first look.
const TAKE: u8 = 1;
const PUT: u8 = 2;

/// What the first look has found, as bits of `elements`.
const SOURCE_THERE: u64 = 1;
const MEMBER_THERE: u64 = 2;
const SOURCE_IS_NO_SET: u64 = 4;
const DESTINATION_IS_NO_SET: u64 = 8;

fn look(ctx: &mut Ctx<'_>, args: Args<'_>, _: &mut Reply) -> Result<Flow, Error> {
    for idx in ctx.keys.indices() {
        let key = ctx.key(args.at(idx));
        let found = ctx.find_to_change(key).map_or(0, |entry| match (idx, entry.set()) {
            (SOURCE, Some(set)) if set.contains(args.at(3)) => SOURCE_THERE | MEMBER_THERE,
            (SOURCE, Some(_)) => SOURCE_THERE,
            (SOURCE, None) => SOURCE_THERE | SOURCE_IS_NO_SET,
            (_, Some(_)) => 0,
            (_, None) => DESTINATION_IS_NO_SET,
        });
        ctx.elements |= found;
    }
    Ok(Flow::Done)
}

fn decide_smove(decide: &mut Decide<'_>) -> Next {
    let found = decide.results.iter().fold(0, |found, result| found | result.elements);
    let has = |bits: u64| found & bits != 0;
    match decide.stage {
        0 if has(SOURCE_THERE) && has(SOURCE_IS_NO_SET | DESTINATION_IS_NO_SET) => {
            write_error(&Error::WrongType, decide.reply);
            Next::Reply
        }
        0 if has(MEMBER_THERE) && decide.args.at(SOURCE) != decide.args.at(DESTINATION) => {
            Next::Run { stage: TAKE, on: On::Key(SOURCE), payload: Payload::None }
        }
        0 => {
            decide.reply.int(has(MEMBER_THERE).into());
            Next::Reply
        }
        // The source's time may have come meanwhile.
        TAKE if found != 0 => Next::Run { stage: PUT, on: On::Key(DESTINATION), payload: Payload::None },
        stage => {
            decide.reply.int((stage == PUT).into());
            Next::Reply
        }
    }
}

fn smove(ctx: &mut Ctx<'_>, args: Args<'_>, _: &mut Reply) -> Result<Flow, Error> {
    if ctx.stage == TAKE {
        ctx.elements = remove(ctx, args.at(SOURCE), args.skip(3))? as u64;
    } else {
        add(ctx, args.at(DESTINATION), args.skip(3))?;
    }
    Ok(Flow::Done)
}

#[cfg(test)]
mod tests {
    use crate::commands::testing::{Bench, check_all};
    use std::collections::BTreeSet;

    const WRONG: &str = "-WRONGTYPE Operation against a key holding the wrong kind of value";

    #[test]
    fn members_come_and_go() {
        check_all(&[
            ("SADD s 3 1 2 1\nSADD s 1", ":3\n:0"),
            ("SMEMBERS s\nSCARD s\nSCARD none", "[\"1\", \"2\", \"3\"]\n:3\n:0"),
            ("SISMEMBER s 2\nSISMEMBER s 02\nSMISMEMBER s 1 x\nSMISMEMBER none a", ":1\n:0\n[:1, :0]\n[:0]"),
            ("SADD s x\nSMEMBERS s\nOBJECT ENCODING s", ":1\n[\"1\", \"2\", \"3\", \"x\"]\n\"listpack\""),
            ("SREM s 1 2 4\nSREM s 3 x\nEXISTS s\nSREM s x", ":2\n:2\n:0\n:0"),
            ("SET t v\nSADD t a\nSREM t a\nSCARD t", &["+OK", WRONG, WRONG, WRONG].join("\n")),
        ]);
    }

    #[test]
    fn a_member_moves_whatever_shards_the_keys_are_on() {
        for n in 0..20 {
            check_all(&[
                (&format!("SADD a 1 x\nSMOVE a b{n} x\nSMOVE a b{n} x"), ":2\n:1\n:0"),
                (&format!("SMEMBERS a\nSMEMBERS b{n}"), "[\"1\"]\n[\"x\"]"),
                (&format!("SMOVE a b{n} 1\nEXISTS a\nSCARD b{n}"), ":1\n:0\n:2"),
                (&format!("SET a v\nSMOVE b{n} a 1\nSMOVE a b{n} 1"), &format!("+OK\n{WRONG}\n{WRONG}")),
                (&format!("SMOVE none a 1\nSMOVE b{n} b{n} 1\nSMOVE b{n} b{n} 2"), ":0\n:1\n:0"),
            ]);
        }
    }

    #[test]
    fn a_scan_of_a_changing_set_returns_every_member_that_stays() {
        let elements =
            |array: &str| -> Vec<String> { array.split('"').skip(1).step_by(2).map(str::to_owned).collect() };
        let mut bench = Bench::new(1);
        for n in 0..3000 {
            bench.run(&format!("SADD s m{n}"));
        }
        let (mut cursor, mut seen, mut calls) = ("0".to_owned(), Vec::new(), 0);
        while calls == 0 || cursor != "0" {
            let reply = elements(&bench.run(&format!("SSCAN s {cursor} COUNT 50")));
            cursor.clone_from(&reply[0]);
            seen.extend(reply[1..].iter().cloned());
            calls += 1;
            // Odd members go, others come: the table shrinks and grows between calls.
            for n in 0..40 {
                bench.run(&format!("SREM s m{}\nSADD s new{calls}:{n}", (calls * 40 + n) * 2 + 1));
            }
        }
        let unique: BTreeSet<&String> = seen.iter().collect();
        assert_eq!(unique.len(), seen.len(), "nothing twice");
        assert!((0..3000).step_by(2).all(|n| unique.contains(&format!("m{n}"))));
        assert!(calls > 30);
    }
}
