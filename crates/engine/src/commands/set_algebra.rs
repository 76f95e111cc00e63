//! Intersections, unions and differences of sets, on whatever shards they are.
//!
//! Where all keys are on one shard, the sets are read where they are. Otherwise each shard combines its own first, and the
//! results are combined where they are wanted: to be stored at the destination's shard, for the client at the coordinator if
//! they are small, else at the first key's shard. Only there may it take its time ([`super::set_combine`]).

use super::set::SET;
use super::set_combine::{DESTINATION, Operation, Sink, combine_sent, members_of, run};
use crate::args::Args;
use crate::command::{Command, DecideFn, Find, Flags, Flow, Handler, KeyFlags, KeySpec, Plan};
use crate::ctx::{Ctx, Decide, Next, On, Payload, write_error};
use crate::errors::Error;
use crate::keyspace::Detached;
use crate::settings::Settings;
use corelane_resp::Reply;

const SOURCE: KeyFlags = KeyFlags::RO.with(KeyFlags::ACCESS);

const SOURCES: &[KeySpec] = &[KeySpec::all_from(1, 1, SOURCE)];
const DESTINATION_AND_SOURCES: &[KeySpec] =
    &[KeySpec::one(1, KeyFlags::OW.with(KeyFlags::UPDATE)), KeySpec::all_from(2, 1, SOURCE)];

/// What the handlers of a command do.
type Stages = (Handler, DecideFn, Handler);

const fn reads(name: &'static str, (read, decide, write): Stages, summary: &'static str) -> Command {
    Command {
        name,
        arity: -2,
        flags: Flags::READONLY,
        keys: SOURCES,
        plan: Plan::Staged { read, decide, write },
        summary,
        complexity: "O(N*M) where N is the number of members looked at (of the smallest, of the first, or of all sets) and M the \
            number of sets",
        syntax: "key [key ...]",
        tips: &["nondeterministic_output_order"],
        ..SET
    }
}

const fn stores(name: &'static str, stages: Stages, summary: &'static str) -> Command {
    Command {
        arity: -3,
        flags: Flags::WRITE.with(Flags::DENYOOM),
        keys: DESTINATION_AND_SOURCES,
        syntax: "destination key [key ...]",
        tips: &[],
        ..reads(name, stages, summary)
    }
}

/// What a command does, by its name.
#[derive(Clone, Copy)]
struct Form {
    op: Operation,
    sink: Sink,
    /// Where the keys of the sets begin.
    first: usize,
}

impl Form {
    const fn reads(op: Operation) -> Self {
        Self { op, sink: Sink::Reply, first: 1 }
    }

    const fn stores(op: Operation) -> Self {
        Self { op, sink: Sink::Key, first: DESTINATION + 1 }
    }

    /// Where that is done that needs the sets of all shards, as an index of a key.
    const fn place(self) -> usize {
        if matches!(self.sink, Sink::Key) { DESTINATION } else { self.first }
    }

    /// How many keys the command has, and what becomes of its result.
    fn parse(self, args: Args<'_>) -> Result<(usize, Sink), Error> {
        if !matches!(self.sink, Sink::Count { .. }) {
            return Ok((args.len() - 1, self.sink));
        }
        let CardOptions { keys, limit } = CardOptions::parse(args)?;
        Ok((keys, Sink::Count { limit }))
    }
}

const INTER: Form = Form::reads(Operation::Inter);
const UNION: Form = Form::reads(Operation::Union);
const DIFF: Form = Form::reads(Operation::Diff);
const INTER_STORE: Form = Form::stores(Operation::Inter);
const UNION_STORE: Form = Form::stores(Operation::Union);
const DIFF_STORE: Form = Form::stores(Operation::Diff);
const CARD: Form = Form { op: Operation::Inter, sink: Sink::Count { limit: 0 }, first: 2 };

/// The handlers of a form, as function pointers.
macro_rules! stages {
    ($form:expr) => {
        (
            |ctx, args, reply| read(ctx, args, reply, $form),
            |decide| decide_form(decide, $form),
            |ctx, args, reply| combine(ctx, args, reply, $form),
        )
    };
}

pub(super) const COMMANDS: &[Command] = &[
    reads("sinter", stages!(INTER), "Returns the intersect of multiple sets."),
    reads("sunion", stages!(UNION), "Returns the union of multiple sets."),
    reads("sdiff", stages!(DIFF), "Returns the difference of multiple sets."),
    stores("sinterstore", stages!(INTER_STORE), "Stores the intersect of multiple sets in a key."),
    stores("sunionstore", stages!(UNION_STORE), "Stores the union of multiple sets in a key."),
    stores("sdiffstore", stages!(DIFF_STORE), "Stores the difference of multiple sets in a key."),
    Command {
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
            stages!(CARD),
            "Returns the number of members of the intersect of multiple sets.",
        )
    },
];

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
}

/// Combines the sets of this shard.
fn read(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply, form: Form) -> Result<Flow, Error> {
    let (keys_in_all, sink) = form.parse(args)?;
    let keys: Vec<usize> = ctx.keys.indices().filter(|idx| *idx >= form.first).collect();
    if ctx.keys.len() == keys_in_all {
        return run(ctx, args, &keys, (form.op, sink), reply);
    }
    if keys.is_empty() {
        return Ok(Flow::Done);
    }
    run(ctx, args, &keys, (form.op, Sink::Share { has_first: keys.contains(&form.first) }), reply)
}

/// Combines the sets of all shards.
fn combine(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply, form: Form) -> Result<Flow, Error> {
    let (_, sink) = form.parse(args)?;
    run(ctx, args, &[], (form.op, sink), reply)
}

fn decide_form(decide: &mut Decide<'_>, form: Form) -> Next {
    let sent = match shares(decide) {
        Ok(sent) => sent,
        Err(next) => return next,
    };
    if form.sink != Sink::Key && members_of(&sent) <= decide.sizes.brief_len {
        match form.parse(decide.args) {
            Ok((_, sink)) => combine_sent((form.op, sink), sent, decide.reply),
            Err(error) => write_error(&error, decide.reply),
        }
        return Next::Reply;
    }
    Next::Run { stage: 1, on: On::Key(form.place()), payload: Payload::Values(sent) }
}

/// What the shards have sent in this stage; or what is next where one has failed or has done all.
pub(super) fn shares(decide: &mut Decide<'_>) -> Result<Vec<(u32, Detached)>, Next> {
    if decide.passes_on_failure() {
        return Err(Next::Reply);
    }
    let mut sent = Vec::new();
    for result in decide.results.iter_mut() {
        if let Payload::Values(own) = std::mem::take(&mut result.payload) {
            sent.extend(own);
        }
    }
    if sent.is_empty() {
        decide.results.iter_mut().for_each(|result| decide.reply.append(&mut result.reply));
        return Err(Next::Reply);
    }
    Ok(sent)
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
