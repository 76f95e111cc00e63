//! Unions, intersections and differences of sorted sets, and of sets, whose members count as having score 1; on whatever shards
//! they are.
//!
//! Where all keys are on one shard, the sets are read where they are. Otherwise each shard ships those of its members that matter,
//! and they are combined where the result is wanted: at the coordinator for the client, at the destination's shard to be stored.
//! Scores are shipped as they are, since sums of doubles depend on the order of the sets, which is Valkey's.

use super::set_combine::hold_those;
use super::zset_combine::{
    CARD, DIFF, Form, INTER, Options, READ_COUNT_AT, STORE_COUNT_AT, UNION, combine, combine_sent, is_source,
    send, sources, views, weighed,
};
use super::zset_read::{open_members, write_member};
use crate::args::Args;
use crate::command::{
    Command, DecideFn, Find, Flags, Flow, Handler, KeyFlags, KeySpec, Merge, MergeFn, Plan,
};
use crate::ctx::{Ctx, Decide, Next, On, PartResult, Payload};
use crate::errors::Error;
use crate::events::EventClasses;
use crate::keyspace::{NewValue, Value};
use crate::values::{SortedSet, Tally};
use corelane_resp::{Mark, Reply};

const SOURCE: KeyFlags = KeyFlags::RO.with(KeyFlags::ACCESS);

/// As many keys as the argument at `begin` says.
const fn counted(begin: usize) -> KeySpec {
    let find = Find::Count { count_at: 0, first: 1, step: 1 };
    KeySpec { flags: SOURCE, begin, find, notes: None, flags_for: None }
}

const SOURCES: &[KeySpec] = &[counted(1)];
const DESTINATION_AND_SOURCES: &[KeySpec] =
    &[KeySpec::one(1, KeyFlags::OW.with(KeyFlags::UPDATE)), counted(2)];

const fn reads(name: &'static str, part: Handler, merge: MergeFn, summary: &'static str) -> Command {
    Command {
        name,
        arity: -3,
        flags: Flags::READONLY.with(Flags::MOVABLEKEYS),
        keys: SOURCES,
        plan: Plan::EachShard { part, merge: Merge::With(merge) },
        since: "6.2.0",
        group: "sorted-set",
        summary,
        ..Command::DEFAULT
    }
}

const fn stores(
    name: &'static str,
    (read, decide, write): (Handler, DecideFn, Handler),
    summary: &'static str,
) -> Command {
    Command {
        name,
        arity: -4,
        flags: Flags::WRITE.with(Flags::DENYOOM).with(Flags::MOVABLEKEYS),
        keys: DESTINATION_AND_SOURCES,
        plan: Plan::Staged { read, decide, write },
        ..reads(name, read, merge_union, summary)
    }
}

const UNITED: &str =
    "O(N)+O(M*log(M)) where N is the number of members in all sets and M that of members in the result";
const SHARED: &str = "O(N*K)+O(M*log(M)) where N is the number of members in the smallest set, K that of sets and M that of members in \
    the result";
const LEFT: &str = "O(N*K)+O(M*log(M)) where N is the number of members in the first set, K that of sets and M that of members in the \
    result";

pub(super) const COMMANDS: &[Command] = &[
    Command {
        complexity: UNITED,
        syntax: "numkeys key [key ...] [WEIGHTS weight [weight ...]] [AGGREGATE ( SUM | MIN | MAX )] [WITHSCORES]",
        ..reads(
            "zunion",
            |ctx, args, reply| read(ctx, args, reply, UNION),
            merge_union,
            "Returns the union of multiple sorted sets.",
        )
    },
    Command {
        complexity: SHARED,
        syntax: "numkeys key [key ...] [WEIGHTS weight [weight ...]] [AGGREGATE ( SUM | MIN | MAX )] [WITHSCORES]",
        ..reads(
            "zinter",
            |ctx, args, reply| read(ctx, args, reply, INTER),
            merge_inter,
            "Returns the intersect of multiple sorted sets.",
        )
    },
    Command {
        complexity: LEFT,
        syntax: "numkeys key [key ...] [WITHSCORES]",
        ..reads(
            "zdiff",
            |ctx, args, reply| read(ctx, args, reply, DIFF),
            merge_diff,
            "Returns the difference between multiple sorted sets.",
        )
    },
    Command {
        since: "7.0.0",
        complexity: "O(N*K) where N is the number of members in the smallest set and K that of sets",
        syntax: "numkeys key [key ...] [LIMIT limit]",
        ..reads(
            "zintercard",
            |ctx, args, reply| read(ctx, args, reply, CARD),
            merge_card,
            "Returns the number of members of the intersect of multiple sorted sets.",
        )
    },
    Command {
        since: "2.0.0",
        complexity: UNITED,
        syntax: "destination numkeys key [key ...] [WEIGHTS weight [weight ...]] [AGGREGATE ( SUM | MIN | MAX )]",
        ..stores(
            "zunionstore",
            (
                |ctx, args, _| read_to_store(ctx, args, UNION),
                |decide| decide_store(decide, UNION),
                |ctx, args, _| store_sent(ctx, args, UNION),
            ),
            "Stores the union of multiple sorted sets in a key.",
        )
    },
    Command {
        since: "2.0.0",
        complexity: SHARED,
        syntax: "destination numkeys key [key ...] [WEIGHTS weight [weight ...]] [AGGREGATE ( SUM | MIN | MAX )]",
        ..stores(
            "zinterstore",
            (
                |ctx, args, _| read_to_store(ctx, args, INTER),
                |decide| decide_store(decide, INTER),
                |ctx, args, _| store_sent(ctx, args, INTER),
            ),
            "Stores the intersect of multiple sorted sets in a key.",
        )
    },
    Command {
        complexity: LEFT,
        syntax: "destination numkeys key [key ...]",
        ..stores(
            "zdiffstore",
            (
                |ctx, args, _| read_to_store(ctx, args, DIFF),
                |decide| decide_store(decide, DIFF),
                |ctx, args, _| store_sent(ctx, args, DIFF),
            ),
            "Stores the difference of multiple sorted sets in a key.",
        )
    },
];

/// Where the result goes.
const DESTINATION: usize = 1;

fn write(form: Form, mut result: Tally, options: &Options<'_>, reply: &mut Reply) {
    if form.counts {
        return reply.int(result.len() as i64);
    }
    result.sort();
    open_members(reply, result.len(), options.scores);
    result.iter().for_each(|(member, score)| write_member(reply, member, score, options.scores));
}

/// What the sources on this shard come to.
enum Look<'a> {
    /// The result, not yet in order, since all keys of the command are here.
    All(Tally, Options<'a>),
    /// What is to be sent.
    Some(Payload),
}

/// Looks at the sources on this shard. Their types are looked at before the options, as in Valkey.
fn look<'a>(ctx: &mut Ctx<'_>, args: Args<'a>, form: Form, at: usize) -> Result<Look<'a>, Error> {
    let first = at + 1;
    let keys_in_all = sources(args, at)? + usize::from(at == STORE_COUNT_AT);
    let all_here = ctx.keys.len() == keys_in_all;
    let keys: Vec<usize> = ctx.keys.indices().filter(|idx| *idx >= first).collect();
    let seed = ctx.shard.settings.compact.seed;
    let entries = hold_those(ctx, args, &keys, is_source)?;
    let options = Options::parse(args, at, form);
    let own: Vec<_> = keys.iter().map(|idx| idx - first).zip(views(&entries)).collect();
    if all_here {
        let options = options?;
        return Ok(Look::All(combine(form.op, weighed(own, &options), &options, seed), options));
    }
    // With bad options the coordinator refuses the command, whatever is sent.
    Ok(Look::Some(if options.is_ok() { send(form, &own, seed) } else { Payload::None }))
}

fn read(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply, form: Form) -> Result<Flow, Error> {
    match look(ctx, args, form, READ_COUNT_AT)? {
        Look::All(result, options) => write(form, result, &options, reply),
        Look::Some(sent) => ctx.payload = sent,
    }
    Ok(Flow::Done)
}

fn merge_union(parts: &[PartResult], args: Args<'_>, reply: &mut Reply) {
    merge(parts, args, reply, UNION);
}

fn merge_inter(parts: &[PartResult], args: Args<'_>, reply: &mut Reply) {
    merge(parts, args, reply, INTER);
}

fn merge_diff(parts: &[PartResult], args: Args<'_>, reply: &mut Reply) {
    merge(parts, args, reply, DIFF);
}

fn merge_card(parts: &[PartResult], args: Args<'_>, reply: &mut Reply) {
    merge(parts, args, reply, CARD);
}

fn merge(parts: &[PartResult], args: Args<'_>, reply: &mut Reply, form: Form) {
    if let [whole] = parts {
        return reply.append_range(&whole.reply, Mark::default(), whole.reply.mark());
    }
    match Options::parse(args, READ_COUNT_AT, form) {
        Ok(options) => {
            let result = combine_sent(form, parts.iter().map(|part| &part.payload), &options);
            write(form, result, &options, reply);
        }
        Err(error) => crate::ctx::write_error(&error, reply),
    }
}

fn read_to_store(ctx: &mut Ctx<'_>, args: Args<'_>, form: Form) -> Result<Flow, Error> {
    match look(ctx, args, form, STORE_COUNT_AT)? {
        Look::All(result, _) => store(ctx, args.at(DESTINATION), result, form.event),
        Look::Some(sent) => ctx.payload = sent,
    }
    Ok(Flow::Done)
}

fn decide_store(decide: &mut Decide<'_>, form: Form) -> Next {
    next_of_store(decide, |args| Options::parse(args, STORE_COUNT_AT, form).map(|_| ()))
}

/// After a stage of a command that stores scores that it has read: the number of members where that has been done; else what the
/// shards have sent goes to the shard of the destination, unless `check` refuses the arguments.
pub(super) fn next_of_store(
    decide: &mut Decide<'_>,
    check: impl FnOnce(Args<'_>) -> Result<(), Error>,
) -> Next {
    if let Some(failed) = decide.results.iter().find(|result| result.failed) {
        decide.reply.append_range(&failed.reply, Mark::default(), failed.reply.mark());
        return Next::Reply;
    }
    // One shard has done all, in the first stage or in the second.
    if let [whole] = &*decide.results {
        decide.reply.int(whole.elements as i64);
        return Next::Reply;
    }
    if let Err(error) = check(decide.args) {
        crate::ctx::write_error(&error, decide.reply);
        return Next::Reply;
    }
    let mut sent = Vec::new();
    for result in decide.results.iter_mut() {
        if let Payload::Scores(own) = std::mem::take(&mut result.payload) {
            sent.extend(own);
        }
    }
    Next::Run { stage: 1, on: On::Key(DESTINATION), payload: Payload::Scores(sent) }
}

fn store_sent(ctx: &mut Ctx<'_>, args: Args<'_>, form: Form) -> Result<Flow, Error> {
    let options = Options::parse(args, STORE_COUNT_AT, form)?;
    let payload = std::mem::take(&mut ctx.payload);
    let result = combine_sent(form, std::iter::once(&payload), &options);
    store(ctx, args.at(DESTINATION), result, form.event);
    Ok(Flow::Done)
}

/// Stores a result, or removes the key if it is empty.
pub(super) fn store(ctx: &mut Ctx<'_>, name: &[u8], mut result: Tally, event: &'static str) {
    let key = ctx.key(name);
    ctx.elements = result.len() as u64;
    if result.is_empty() {
        if ctx.remove(key) {
            ctx.notify(EventClasses::GENERIC, "del", name);
        }
        return;
    }
    result.sort();
    let set = SortedSet::from_sorted(&result, &ctx.shard.settings.compact);
    ctx.set(key, NewValue::Owned(Value::SortedSet(set)), None);
    ctx.notify(EventClasses::SORTED_SET, event, name);
}

#[cfg(test)]
mod tests {
    use crate::commands::testing::{Bench, check_all};

    const WRONG: &str = "-WRONGTYPE Operation against a key holding the wrong kind of value";

    #[test]
    fn sets_are_combined_with_weights_and_an_aggregate() {
        check_all(&[
            ("ZADD a 1 x 2 y 3 z\nZADD b 10 y 20 z 30 w\nSADD s z w q", ":3\n:3\n:3"),
            ("ZUNION 3 a b s", "[\"q\", \"x\", \"y\", \"z\", \"w\"]"),
            (
                "ZUNION 2 a b WEIGHTS 2 -1 WITHSCORES",
                "[\"w\", \"-30\", \"z\", \"-14\", \"y\", \"-6\", \"x\", \"2\"]",
            ),
            ("ZINTER 3 a b s WITHSCORES\nZINTER 2 a none", "[\"z\", \"24\"]\n[]"),
            ("ZINTER 2 a b AGGREGATE MIN WITHSCORES", "[\"y\", \"2\", \"z\", \"3\"]"),
            ("ZDIFF 2 a b WITHSCORES\nZDIFF 3 s none b", "[\"x\", \"1\"]\n[\"q\"]"),
            ("ZINTERCARD 2 a b\nZINTERCARD 2 a b LIMIT 1\nZINTERCARD 3 a b s LIMIT 0", ":2\n:1\n:1"),
            (
                "ZUNIONSTORE a 2 a b AGGREGATE MAX\nZRANGE a 0 -1 WITHSCORES",
                ":4\n[\"x\", \"1\", \"y\", \"10\", \"z\", \"20\", \"w\", \"30\"]",
            ),
            (
                "ZINTERSTORE n 2 s b WEIGHTS 0.5 1\nZRANGE n 0 -1 WITHSCORES",
                ":2\n[\"z\", \"20.5\", \"w\", \"30.5\"]",
            ),
            ("ZDIFFSTORE n 2 b a\nEXISTS n\nZDIFFSTORE n 2 a b\nZRANGE n 0 -1", ":0\n:0\n:1\n[\"x\"]"),
        ]);
    }

    #[test]
    fn what_is_wrong_is_said_in_valkeys_order() {
        let none = |name: &str| format!("-ERR at least 1 input key is needed for '{name}' command");
        check_all(&[
            ("SET t v\nZADD a 1 x", "+OK\n:1"),
            (
                "ZUNION x a\nZINTER 0 a\nZUNIONSTORE t -1 a",
                &format!(
                    "-ERR value is not an integer or out of range\n{}\n{}",
                    none("zinter"),
                    none("zunionstore")
                ),
            ),
            (
                "ZDIFF 3 a b\nZUNION 2 a t SOME\nZUNION 2 a b SOME",
                &format!("-ERR syntax error\n{WRONG}\n-ERR syntax error"),
            ),
            (
                "ZUNIONSTORE d 2 a t SOME\nZUNIONSTORE d 2 a b WITHSCORES\nEXISTS d",
                &format!("{WRONG}\n-ERR syntax error\n:0"),
            ),
            (
                "ZINTER 2 a b WEIGHTS 1 x\nZINTER 2 a b WEIGHTS 1",
                "-ERR weight value is not a float\n-ERR syntax error",
            ),
            (
                "ZDIFF 1 a AGGREGATE SUM\nZINTERCARD 2 a b LIMIT -1",
                "-ERR syntax error\n-ERR LIMIT can't be negative",
            ),
            ("ZINTERSTORE t 2 a none\nEXISTS t", ":0\n:0"),
        ]);
    }

    /// Sums of doubles depend on their order, which is that of the sets' sizes, wherever the sets are.
    #[test]
    fn sums_are_the_same_on_any_shards() {
        check_all(&[
            ("ZADD a 0.1 x\nZADD b 0.2 x 1 y\nZADD c 0.3 x 1 y 2 z", ":1\n:2\n:3"),
            ("ZUNION 3 c b a WITHSCORES", "[\"x\", \"0.6000000000000001\", \"y\", \"2\", \"z\", \"2\"]"),
            ("ZINTER 3 c b a WITHSCORES", "[\"x\", \"0.6000000000000001\"]"),
            ("ZADD p inf x\nZADD m -inf x 1 y", ":1\n:2"),
            ("ZINTER 3 p m a WITHSCORES\nZUNION 1 p WEIGHTS 0 WITHSCORES", "[\"x\", \"0\"]\n[\"x\", \"0\"]"),
        ]);
    }

    #[test]
    fn large_results_are_as_those_of_a_model() {
        for shards in [1, 2, 5] {
            let mut bench = Bench::new(shards);
            for n in 0..3000 {
                bench.run(&format!("ZADD a {n} m{n}"));
                if n % 3 == 0 {
                    bench.run(&format!("ZADD b {} m{n}\nSADD s m{}", 2 * n, 2 * n));
                }
            }
            assert_eq!(
                bench.run("ZUNIONSTORE u 3 a b s\nZCARD u\nZSCORE u m6\nZSCORE u m5998"),
                ":3500\n:3500\n\"19\"\nnil"
            );
            assert_eq!(
                bench.run("ZINTERSTORE i 3 a b s\nZSCORE i m2994\nZDIFFSTORE d 2 a b\nZSCORE d m1"),
                ":500\n\"8983\"\n:2000\n\"1\""
            );
            assert_eq!(
                bench.run("ZINTERCARD 2 a b\nZINTERCARD 2 a b LIMIT 700\nOBJECT ENCODING i"),
                ":1000\n:700\n\"skiplist\""
            );
        }
    }
}
