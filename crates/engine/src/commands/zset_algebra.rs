//! Unions, intersections and differences of sorted sets, and of sets, whose members count as having score 1; on whatever shards
//! they are.
//!
//! Where all keys are on one shard, the sets are read where they are. Otherwise each shard ships those of its members that matter,
//! and they are combined where the result is wanted: to be stored at the destination's shard, for the client at the coordinator if
//! they are few, else at the first key's shard. Only there may it take its time ([`super::zset_pieces`]). Scores are shipped as they
//! are, since sums of doubles depend on the order of the sets, which is Valkey's.

use super::set_combine::DESTINATION;
use super::zset_combine::{CARD, DIFF, Form, INTER, Options, UNION};
use super::zset_pieces::{combine, combine_sent, read};
use crate::command::{Command, DecideFn, Find, Flags, Handler, KeyFlags, KeySpec, Plan};
use crate::ctx::{Decide, Next, On, Payload, SentScores};
use crate::errors::Error;

const SOURCE: KeyFlags = KeyFlags::RO.with(KeyFlags::ACCESS);

/// As many keys as the argument at `begin` says.
const fn counted(begin: usize) -> KeySpec {
    let find = Find::Count { count_at: 0, first: 1, step: 1 };
    KeySpec { flags: SOURCE, begin, find, notes: None, flags_for: None }
}

const SOURCES: &[KeySpec] = &[counted(1)];
const DESTINATION_AND_SOURCES: &[KeySpec] =
    &[KeySpec::one(1, KeyFlags::OW.with(KeyFlags::UPDATE)), counted(2)];

/// What the handlers of a command do.
type Stages = (Handler, DecideFn, Handler);

const fn reads(name: &'static str, (read, decide, write): Stages, summary: &'static str) -> Command {
    Command {
        name,
        arity: -3,
        flags: Flags::READONLY.with(Flags::MOVABLEKEYS),
        keys: SOURCES,
        plan: Plan::Staged { read, decide, write },
        since: "6.2.0",
        group: "sorted-set",
        summary,
        ..Command::DEFAULT
    }
}

const fn stores(name: &'static str, stages: Stages, summary: &'static str) -> Command {
    Command {
        arity: -4,
        flags: Flags::WRITE.with(Flags::DENYOOM).with(Flags::MOVABLEKEYS),
        keys: DESTINATION_AND_SOURCES,
        ..reads(name, stages, summary)
    }
}

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
        ..reads("zunion", stages!(UNION), "Returns the union of multiple sorted sets.")
    },
    Command {
        complexity: SHARED,
        syntax: "numkeys key [key ...] [WEIGHTS weight [weight ...]] [AGGREGATE ( SUM | MIN | MAX )] [WITHSCORES]",
        ..reads("zinter", stages!(INTER), "Returns the intersect of multiple sorted sets.")
    },
    Command {
        complexity: LEFT,
        syntax: "numkeys key [key ...] [WITHSCORES]",
        ..reads("zdiff", stages!(DIFF), "Returns the difference between multiple sorted sets.")
    },
    Command {
        since: "7.0.0",
        complexity: "O(N*K) where N is the number of members in the smallest set and K that of sets",
        syntax: "numkeys key [key ...] [LIMIT limit]",
        ..reads(
            "zintercard",
            stages!(CARD),
            "Returns the number of members of the intersect of multiple sorted sets.",
        )
    },
    Command {
        since: "2.0.0",
        complexity: UNITED,
        syntax: "destination numkeys key [key ...] [WEIGHTS weight [weight ...]] [AGGREGATE ( SUM | MIN | MAX )]",
        ..stores("zunionstore", stages!(UNION.stored()), "Stores the union of multiple sorted sets in a key.")
    },
    Command {
        since: "2.0.0",
        complexity: SHARED,
        syntax: "destination numkeys key [key ...] [WEIGHTS weight [weight ...]] [AGGREGATE ( SUM | MIN | MAX )]",
        ..stores(
            "zinterstore",
            stages!(INTER.stored()),
            "Stores the intersect of multiple sorted sets in a key.",
        )
    },
    Command {
        complexity: LEFT,
        syntax: "destination numkeys key [key ...]",
        ..stores(
            "zdiffstore",
            stages!(DIFF.stored()),
            "Stores the difference of multiple sorted sets in a key.",
        )
    },
];

fn decide_form(decide: &mut Decide<'_>, form: Form) -> Next {
    let (options, checked) = match Options::parse(decide.args, form) {
        Ok(options) => (Some(options), Ok(())),
        Err(error) => (None, Err(error)),
    };
    let sent = match sent(decide, checked) {
        Ok(sent) => sent,
        Err(next) => return next,
    };
    let count: usize = sent.iter().map(|one| one.members.len() * one.places.len()).sum();
    if let Some(options) = options
        && !form.stores
        && count <= decide.sizes.brief_len
    {
        combine_sent(sent, form, &options, decide.reply);
        return Next::Reply;
    }
    let place = if form.stores { DESTINATION } else { form.count_at() + 1 };
    Next::Run { stage: 1, on: On::Key(place), payload: Payload::Scores(sent) }
}

/// What the shards have sent in this stage; or what is next where one has failed, or has done all, or the command is bad.
pub(super) fn sent(decide: &mut Decide<'_>, checked: Result<(), Error>) -> Result<Vec<SentScores>, Next> {
    if decide.passes_on_failure() {
        return Err(Next::Reply);
    }
    if let [whole] = &mut *decide.results {
        decide.reply.append(&mut whole.reply);
        return Err(Next::Reply);
    }
    if let Err(error) = checked {
        crate::ctx::write_error(&error, decide.reply);
        return Err(Next::Reply);
    }
    let mut sent = Vec::new();
    for result in decide.results.iter_mut() {
        if let Payload::Scores(own) = std::mem::take(&mut result.payload) {
            sent.extend(own);
        }
    }
    Ok(sent)
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
            // Of a key that comes twice each place counts.
            (
                "ZUNION 4 b a b c WEIGHTS 1 1 10 1 WITHSCORES",
                "[\"z\", \"2\", \"x\", \"2.5999999999999996\", \"y\", \"12\"]",
            ),
            ("ZINTER 4 b c b c WEIGHTS 1 2 3 4 WITHSCORES", "[\"x\", \"2.5999999999999996\", \"y\", \"10\"]"),
            ("ZDIFF 3 c b c\nZDIFF 3 c a a WITHSCORES", "[]\n[\"y\", \"1\", \"z\", \"2\"]"),
            ("ZINTERCARD 5 c b c a a\nZDIFFSTORE d 3 c none c\nZUNIONSTORE d 3 none none a", ":1\n:0\n:1"),
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
