//! Intersections, unions and differences of sets, on whatever shards they are.
//!
//! Where all keys are on one shard, the sets are read where they are. Otherwise each shard combines its own first, and the
//! results are combined where they are wanted: at the coordinator for the client, at the destination's shard to be stored.

use super::element::write_element;
use super::set::SET;
use crate::args::Args;
use crate::command::{Command, Find, Flags, Flow, Handler, KeyFlags, KeySpec, Merge, MergeFn, Plan};
use crate::ctx::{Ctx, Decide, Next, On, PartResult, Payload};
use crate::errors::Error;
use crate::events::EventClasses;
use crate::keyspace::{Detached, EntryRef, NewValue, StringForm, Value, ValueRef};
use crate::settings::{CompactLimits, Settings};
use crate::values::{Element, Set, SetRef};
use corelane_resp::{Mark, Reply};

const SOURCE: KeyFlags = KeyFlags::RO.with(KeyFlags::ACCESS);

const SOURCES: &[KeySpec] = &[KeySpec::all_from(1, 1, SOURCE)];
const DESTINATION_AND_SOURCES: &[KeySpec] =
    &[KeySpec::one(1, KeyFlags::OW.with(KeyFlags::UPDATE)), KeySpec::all_from(2, 1, SOURCE)];

const fn reads(name: &'static str, part: Handler, merge: MergeFn, summary: &'static str) -> Command {
    Command {
        name,
        arity: -2,
        flags: Flags::READONLY,
        keys: SOURCES,
        plan: Plan::EachShard { part, merge: Merge::With(merge) },
        summary,
        complexity: "O(N*M) where N is the number of members looked at (of the smallest, of the first, or of all sets) and M the \
            number of sets",
        syntax: "key [key ...]",
        tips: &["nondeterministic_output_order"],
        ..SET
    }
}

const fn stores(name: &'static str, read: Handler, write: Handler, summary: &'static str) -> Command {
    Command {
        name,
        arity: -3,
        flags: Flags::WRITE.with(Flags::DENYOOM),
        keys: DESTINATION_AND_SOURCES,
        plan: Plan::Staged { read, decide: decide_store, write },
        syntax: "destination key [key ...]",
        tips: &[],
        ..reads(name, read, merge_union, summary)
    }
}

pub(super) const COMMANDS: &[Command] = &[
    reads(
        "sinter",
        |ctx, args, reply| read(ctx, args, reply, Operation::Inter),
        merge_inter,
        "Returns the intersect of multiple sets.",
    ),
    reads(
        "sunion",
        |ctx, args, reply| read(ctx, args, reply, Operation::Union),
        merge_union,
        "Returns the union of multiple sets.",
    ),
    reads(
        "sdiff",
        |ctx, args, reply| read(ctx, args, reply, Operation::Diff),
        merge_diff,
        "Returns the difference of multiple sets.",
    ),
    stores(
        "sinterstore",
        |ctx, args, _| read_to_store(ctx, args, Operation::Inter),
        |ctx, args, _| store_shares(ctx, args, Operation::Inter),
        "Stores the intersect of multiple sets in a key.",
    ),
    stores(
        "sunionstore",
        |ctx, args, _| read_to_store(ctx, args, Operation::Union),
        |ctx, args, _| store_shares(ctx, args, Operation::Union),
        "Stores the union of multiple sets in a key.",
    ),
    stores(
        "sdiffstore",
        |ctx, args, _| read_to_store(ctx, args, Operation::Diff),
        |ctx, args, _| store_shares(ctx, args, Operation::Diff),
        "Stores the difference of multiple sets in a key.",
    ),
    Command {
        name: "sintercard",
        arity: -3,
        flags: Flags::READONLY.with(Flags::MOVABLEKEYS),
        keys: &[KeySpec {
            flags: SOURCE,
            begin: 1,
            find: Find::Count { count_at: 0, first: 1, step: 1 },
            notes: None,
            flags_for: None,
        }],
        check: Some(|args, _: &Settings| CardOptions::parse(args).map(|_| ())),
        since: "7.0.0",
        syntax: "numkeys key [key ...] [LIMIT limit]",
        tips: &[],
        ..reads(
            "sintercard",
            count_part,
            merge_count,
            "Returns the number of members of the intersect of multiple sets.",
        )
    },
];

/// How sets are combined.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Operation {
    Inter,
    Union,
    /// The first without the others.
    Diff,
}

/// Visits the members of the result, while `visit` says so.
fn visit<'a>(op: Operation, sets: &[SetRef<'a>], mut visit: impl FnMut(Element<'a>) -> bool) {
    match op {
        Operation::Inter => {
            let Some((smallest, others)) = by_size(sets) else { return };
            smallest.try_each(|member| !others.iter().all(|set| set.has(member)) || visit(member));
        }
        Operation::Union => {
            for (idx, set) in sets.iter().enumerate() {
                let earlier = &sets[..idx];
                if !set.try_each(|member| earlier.iter().any(|set| set.has(member)) || visit(member)) {
                    return;
                }
            }
        }
        Operation::Diff => {
            let Some((first, others)) = sets.split_first() else { return };
            first.try_each(|member| others.iter().any(|set| set.has(member)) || visit(member));
        }
    }
}

/// The smallest of the sets, and the others from the smallest to the largest.
fn by_size<'a>(sets: &[SetRef<'a>]) -> Option<(SetRef<'a>, Vec<SetRef<'a>>)> {
    let mut others = sets.to_vec();
    others.sort_by_key(|set| set.len());
    (!others.is_empty()).then(|| (others.remove(0), others))
}

/// The result as a set. Intersections have the form of the smallest set, or of `like`, others grow: as in Valkey.
fn combine(op: Operation, sets: &[SetRef<'_>], like: Option<SetRef<'_>>, limits: &CompactLimits) -> Set {
    if op == Operation::Union {
        let mut result = Set::default();
        for set in sets {
            set.for_each(|member| {
                member.with_text(|text| result.add(text, limits));
            });
        }
        return result;
    }
    let like = like.or_else(|| sets.iter().min_by_key(|set| set.len()).copied());
    let mut result = match like {
        Some(like) if op == Operation::Inter => Set::like(like),
        _ => Set::default(),
    };
    visit(op, sets, |member| {
        member.with_text(|text| result.add(text, limits));
        true
    });
    if op == Operation::Inter {
        result.narrow(limits);
    }
    result
}

/// The entries of keys, for reading all of them at once; all of them are sets.
fn hold<'a>(
    ctx: &'a mut Ctx<'_>,
    args: Args<'_>,
    keys: &[usize],
) -> Result<Vec<Option<EntryRef<'a>>>, Error> {
    hold_those(ctx, args, keys, |value| matches!(value, ValueRef::Set(_)))
}

/// The same, of keys all of whose values `is_right`.
pub(super) fn hold_those<'a>(
    ctx: &'a mut Ctx<'_>,
    args: Args<'_>,
    keys: &[usize],
    is_right: fn(ValueRef<'_>) -> bool,
) -> Result<Vec<Option<EntryRef<'a>>>, Error> {
    for idx in keys {
        let key = ctx.key(args.at(*idx));
        if ctx.lookup(key).is_some_and(|entry| !is_right(entry.value())) {
            return Err(Error::WrongType);
        }
    }
    let (keyspace, db, now) = (&ctx.shard.keyspace, ctx.db, ctx.now);
    Ok(keys.iter().map(|idx| keyspace.view(db, keyspace.hasher().key(args.at(*idx)), now)).collect())
}

fn views<'a>(entries: &'a [Option<EntryRef<'_>>]) -> Vec<SetRef<'a>> {
    let set = |entry: &'a Option<EntryRef<'_>>| entry.as_ref().and_then(|entry| entry.set());
    entries.iter().map(|entry| set(entry).unwrap_or(SetRef::EMPTY)).collect()
}

/// What a shard contributes of its own sets. Its number: for an intersection the size of its smallest set, for a difference 0 where
/// the first set is among them.
fn share(op: Operation, has_first: bool, sets: &[SetRef<'_>], limits: &CompactLimits) -> Payload {
    let (number, own) = match op {
        Operation::Inter => (sets.iter().map(|set| set.len()).min().unwrap_or(0), op),
        Operation::Diff if !has_first => (1, Operation::Union),
        _ => (0, op),
    };
    let value = Value::Set(combine(own, sets, None, limits));
    let number = u32::try_from(number).unwrap_or(u32::MAX);
    Payload::Values(vec![(number, Detached { value, expiry: None, form: StringForm::Plain })])
}

/// The shares of all shards, those with the smallest number first.
fn shares<'a>(payloads: impl Iterator<Item = &'a Payload>) -> Vec<SetRef<'a>> {
    let mut shares = Vec::new();
    for payload in payloads {
        let Payload::Values(values) = payload else { continue };
        for (number, content) in values {
            if let Value::Set(set) = &content.value {
                shares.push((*number, set.as_ref()));
            }
        }
    }
    shares.sort_by_key(|(number, _)| *number);
    shares.into_iter().map(|(_, set)| set).collect()
}

fn write_result(op: Operation, sets: &[SetRef<'_>], reply: &mut Reply) {
    let (mut found, mut count) = (Reply::new(reply.proto()), 0);
    visit(op, sets, |member| {
        write_element(&mut found, member);
        count += 1;
        true
    });
    reply.set(count);
    reply.append(&mut found);
}

fn read(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply, op: Operation) -> Result<Flow, Error> {
    let keys: Vec<usize> = ctx.keys.indices().collect();
    let limits = ctx.shard.settings.compact;
    let entries = hold(ctx, args, &keys)?;
    let sets = views(&entries);
    if keys.len() + 1 < args.len() {
        ctx.payload = share(op, keys.contains(&1), &sets, &limits);
    } else if op == Operation::Union && sets.len() > 2 {
        let union = combine(op, &sets, None, &limits);
        reply.set(union.as_ref().len());
        union.as_ref().for_each(|member| write_element(reply, member));
    } else {
        write_result(op, &sets, reply);
    }
    Ok(Flow::Done)
}

fn merge_inter(parts: &[PartResult], _: Args<'_>, reply: &mut Reply) {
    merge(parts, reply, Operation::Inter);
}

fn merge_union(parts: &[PartResult], _: Args<'_>, reply: &mut Reply) {
    merge(parts, reply, Operation::Union);
}

fn merge_diff(parts: &[PartResult], _: Args<'_>, reply: &mut Reply) {
    merge(parts, reply, Operation::Diff);
}

fn merge(parts: &[PartResult], reply: &mut Reply, op: Operation) {
    match parts {
        [whole] => reply.append_range(&whole.reply, Mark::default(), whole.reply.mark()),
        parts => write_result(op, &shares(parts.iter().map(|part| &part.payload)), reply),
    }
}

/// What SINTERCARD was asked for.
struct CardOptions {
    keys: usize,
    /// 0 for none.
    limit: usize,
}

impl CardOptions {
    fn parse(args: Args<'_>) -> Result<Self, Error> {
        let keys = args.int(1).ok().and_then(|keys| usize::try_from(keys).ok()).filter(|keys| *keys > 0);
        let keys = keys.ok_or(Error::text("ERR numkeys should be greater than 0"))?;
        if keys > args.len() - 2 {
            return Err(Error::text("ERR Number of keys can't be greater than number of args"));
        }
        let mut options = Self { keys, limit: 0 };
        let mut idx = 2 + keys;
        while idx < args.len() {
            if !args.is(idx, "LIMIT") || idx + 1 == args.len() {
                return Err(Error::Syntax);
            }
            let limit = args.int(idx + 1).ok().and_then(|limit| usize::try_from(limit).ok());
            options.limit = limit.ok_or(Error::text("ERR LIMIT can't be negative"))?;
            idx += 2;
        }
        Ok(options)
    }

    fn count(&self, sets: &[SetRef<'_>]) -> i64 {
        let mut count = 0;
        visit(Operation::Inter, sets, |_| {
            count += 1;
            count != self.limit
        });
        count as i64
    }
}

fn count_part(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply) -> Result<Flow, Error> {
    let options = CardOptions::parse(args)?;
    let keys: Vec<usize> = ctx.keys.indices().collect();
    let limits = ctx.shard.settings.compact;
    let entries = hold(ctx, args, &keys)?;
    let sets = views(&entries);
    if keys.len() == options.keys {
        reply.int(options.count(&sets));
    } else {
        ctx.payload = share(Operation::Inter, false, &sets, &limits);
    }
    Ok(Flow::Done)
}

fn merge_count(parts: &[PartResult], args: Args<'_>, reply: &mut Reply) {
    match (parts, CardOptions::parse(args)) {
        ([several, more @ ..], Ok(options)) if !more.is_empty() => {
            let payloads = std::iter::once(several).chain(more).map(|part| &part.payload);
            reply.int(options.count(&shares(payloads)));
        }
        _ => merge(parts, reply, Operation::Inter),
    }
}

/// Where the result goes.
const DESTINATION: usize = 1;

fn read_to_store(ctx: &mut Ctx<'_>, args: Args<'_>, op: Operation) -> Result<Flow, Error> {
    let keys: Vec<usize> = ctx.keys.indices().filter(|idx| *idx != DESTINATION).collect();
    let all_here = ctx.keys.len() + 1 == args.len();
    let limits = ctx.shard.settings.compact;
    let entries = hold(ctx, args, &keys)?;
    let sets = views(&entries);
    if all_here {
        let result = combine(op, &sets, None, &limits);
        store(ctx, args, result, op);
    } else if !keys.is_empty() {
        ctx.payload = share(op, keys.contains(&2), &sets, &limits);
    }
    Ok(Flow::Done)
}

fn decide_store(decide: &mut Decide<'_>) -> Next {
    next_of_store(decide, DESTINATION)
}

/// After the first stage of a command that stores what it has read: the number of elements where that has been done already, else
/// what the shards have shipped goes to the shard of the key at `destination`.
pub(super) fn next_of_store(decide: &mut Decide<'_>, destination: usize) -> Next {
    if let Some(failed) = decide.results.iter().find(|result| result.failed) {
        decide.reply.append_range(&failed.reply, Mark::default(), failed.reply.mark());
        return Next::Reply;
    }
    let mut values = Vec::new();
    for result in decide.results.iter_mut() {
        if let Payload::Values(own) = std::mem::take(&mut result.payload) {
            values.extend(own);
        }
    }
    if values.is_empty() {
        decide.reply.int(decide.results.iter().map(|result| result.elements as i64).sum());
        return Next::Reply;
    }
    Next::Run { stage: 1, on: On::Key(destination), payload: Payload::Values(values) }
}

fn store_shares(ctx: &mut Ctx<'_>, args: Args<'_>, op: Operation) -> Result<Flow, Error> {
    let (limits, payload) = (ctx.shard.settings.compact, std::mem::take(&mut ctx.payload));
    let shares = shares(std::iter::once(&payload));
    let result = combine(op, &shares, shares.first().copied(), &limits);
    store(ctx, args, result, op);
    Ok(Flow::Done)
}

/// Stores the result, or removes the key if it is empty.
fn store(ctx: &mut Ctx<'_>, args: Args<'_>, result: Set, op: Operation) {
    let name = args.at(DESTINATION);
    let (key, len) = (ctx.key(name), result.as_ref().len());
    ctx.elements = len as u64;
    if len == 0 {
        if ctx.remove(key) {
            ctx.notify(EventClasses::GENERIC, "del", name);
        }
        return;
    }
    ctx.set(key, NewValue::Owned(Value::Set(result)), None);
    let event = match op {
        Operation::Inter => "sinterstore",
        Operation::Union => "sunionstore",
        Operation::Diff => "sdiffstore",
    };
    ctx.notify(EventClasses::SET, event, name);
}

#[cfg(test)]
mod tests {
    use crate::commands::testing::{Bench, check_all};
    use std::collections::BTreeSet;

    const WRONG: &str = "-WRONGTYPE Operation against a key holding the wrong kind of value";

    #[test]
    fn integers_are_combined_wherever_they_are() {
        check_all(&[
            ("SADD a 1 2 3 4\nSADD b 2 3 9\nSADD c 3 4", ":4\n:3\n:2"),
            (
                "SINTER a b c\nSINTER a b\nSINTER a\nSINTER a none",
                "[\"3\"]\n[\"2\", \"3\"]\n[\"1\", \"2\", \"3\", \"4\"]\n[]",
            ),
            (
                "SDIFF a b c\nSDIFF a\nSDIFF none a\nSDIFF a none b",
                "[\"1\"]\n[\"1\", \"2\", \"3\", \"4\"]\n[]\n[\"1\", \"4\"]",
            ),
            ("SINTERCARD 2 a b\nSINTERCARD 2 a b LIMIT 1\nSINTERCARD 2 a none", ":2\n:1\n:0"),
            ("SINTERSTORE d a b\nSMEMBERS d\nOBJECT ENCODING d", ":2\n[\"2\", \"3\"]\n\"intset\""),
            ("SUNIONSTORE e a b c\nSMEMBERS e", ":5\n[\"1\", \"2\", \"3\", \"4\", \"9\"]"),
            ("SDIFFSTORE a a b\nSMEMBERS a", ":2\n[\"1\", \"4\"]"),
            ("SINTERSTORE a a none\nEXISTS a", ":0\n:0"),
            (
                "SET s v\nSUNIONSTORE d s\nSINTER none s\nSDIFF none s",
                &format!("+OK\n{WRONG}\n{WRONG}\n{WRONG}"),
            ),
            ("SINTERCARD 2 none s\nSUNIONSTORE s none\nEXISTS s", &format!("{WRONG}\n:0\n:0")),
        ]);
    }

    #[test]
    fn large_sets_give_the_same_on_any_number_of_shards() {
        let members = |array: &str| -> BTreeSet<String> {
            array.split('"').skip(1).step_by(2).map(str::to_owned).collect()
        };
        let model: Vec<BTreeSet<String>> =
            [2, 3, 5].iter().map(|step| (0..900).step_by(*step).map(|n| format!("m{n}")).collect()).collect();
        for shards in [1, 2, 5] {
            let mut bench = Bench::new(shards);
            for (idx, set) in model.iter().enumerate() {
                set.iter().for_each(|member| drop(bench.run(&format!("SADD key:{idx} {member}"))));
            }
            let keys = "key:0 key:1 key:2";
            let inter: BTreeSet<String> =
                model[0].iter().filter(|m| model[1].contains(*m) && model[2].contains(*m)).cloned().collect();
            let union: BTreeSet<String> = model.iter().flatten().cloned().collect();
            let diff: BTreeSet<String> = model[0]
                .iter()
                .filter(|m| !model[1].contains(*m) && !model[2].contains(*m))
                .cloned()
                .collect();
            for (name, expected) in [("SINTER", &inter), ("SUNION", &union), ("SDIFF", &diff)] {
                assert_eq!(&members(&bench.run(&format!("{name} {keys}"))), expected, "{name} on {shards}");
                let stored = bench.run(&format!("{name}STORE to {keys}"));
                assert_eq!(stored, format!(":{}", expected.len()), "{name}STORE on {shards}");
                assert_eq!(&members(&bench.run("SMEMBERS to")), expected);
            }
            assert_eq!(bench.run(&format!("SINTERCARD 3 {keys} LIMIT 7")), ":7");
        }
    }
}
