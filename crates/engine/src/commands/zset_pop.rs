//! Popping from the first of several sorted sets that is there: ZMPOP. And for clients that wait: BZPOPMIN, BZPOPMAX and BZMPOP. How
//! they wait is `blocking`'s business.

use super::list_blocking::{COUNTED, NAMED_FIRST, check_last, pop_or_wait, timeout_ms};
use super::list_edit::PopOrder;
use super::list_move::{find_first, pop_decide};
use super::zset::{End, notify_removal, take};
use crate::args::Args;
use crate::command::{Command, Flags, Flow, Handler, KeySpec, Plan};
use crate::ctx::Ctx;
use crate::errors::Error;
use crate::keyspace::ValueRef;
use crate::settings::Settings;
use crate::typed::Missing;
use corelane_resp::Reply;

const WAITS: Flags = Flags::WRITE.with(Flags::BLOCKING);

const fn waits(name: &'static str, write: Handler, summary: &'static str) -> Command {
    Command {
        name,
        arity: -3,
        flags: WAITS.with(Flags::FAST),
        keys: &[NAMED_FIRST],
        plan: Plan::Staged { read, decide: pop_or_wait, write },
        check: Some(check_last),
        since: "5.0.0",
        group: "sorted-set",
        summary,
        complexity: "O(log(N)) where N is the number of members in the sorted set",
        syntax: "key [key ...] timeout",
        ..Command::DEFAULT
    }
}

const SEVERAL: &str = "O(K) + O(M*log(N)) where K is the number of keys, N that of members in the sorted set, and M that of members \
    popped";

pub(super) const COMMANDS: &[Command] = &[
    Command {
        name: "zmpop",
        arity: -4,
        flags: Flags::WRITE.with(Flags::MOVABLEKEYS),
        keys: &[KeySpec { begin: 1, ..COUNTED }],
        plan: Plan::Staged {
            read,
            decide: pop_decide,
            write: |ctx, args, reply| pop_some(ctx, args, reply, 1),
        },
        check: Some(|args, _| order(args, 1).map(|_| ())),
        since: "7.0.0",
        group: "sorted-set",
        summary: "Returns the highest- or lowest-scoring members from one or more sorted sets after removing them. Deletes the sorted set if the last member was popped.",
        complexity: SEVERAL,
        syntax: "numkeys key [key ...] ( MIN | MAX ) #where [COUNT count]",
        ..Command::DEFAULT
    },
    waits(
        "bzpopmin",
        |ctx, args, reply| pop_one(ctx, args, reply, End::Min),
        "Removes and returns the member with the lowest score from one or more sorted sets. Blocks until a member is available otherwise. Deletes the sorted set if the last element was popped.",
    ),
    waits(
        "bzpopmax",
        |ctx, args, reply| pop_one(ctx, args, reply, End::Max),
        "Removes and returns the member with the highest score from one or more sorted sets. Blocks until a member is available otherwise. Deletes the sorted set if the last element was popped.",
    ),
    Command {
        name: "bzmpop",
        arity: -5,
        flags: WAITS.with(Flags::MOVABLEKEYS),
        keys: &[COUNTED],
        check: Some(check_bzmpop),
        since: "7.0.0",
        complexity: SEVERAL,
        syntax: "timeout numkeys key [key ...] ( MIN | MAX ) #where [COUNT count]",
        ..waits(
            "bzmpop",
            |ctx, args, reply| pop_some(ctx, args, reply, 2),
            "Removes and returns a member by score from one or more sorted sets. Blocks until a member is available otherwise. Deletes the sorted set if the last element was popped.",
        )
    },
];

fn end(text: &[u8]) -> Result<End, Error> {
    match () {
        () if text.eq_ignore_ascii_case(b"MIN") => Ok(End::Min),
        () if text.eq_ignore_ascii_case(b"MAX") => Ok(End::Max),
        () => Err(Error::Syntax),
    }
}

fn order(args: Args<'_>, at: usize) -> Result<PopOrder<End>, Error> {
    PopOrder::parse_with(args, at, end)
}

fn check_bzmpop(args: Args<'_>, settings: &Settings) -> Result<(), Error> {
    order(args, 2)?;
    timeout_ms(args.at(1), settings.started_ms).map(|_| ())
}

fn read(ctx: &mut Ctx<'_>, args: Args<'_>, _: &mut Reply) -> Result<Flow, Error> {
    find_first(ctx, args, |value| matches!(value, ValueRef::SortedSet(_)));
    Ok(Flow::Done)
}

fn pop_one(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply, end: End) -> Result<Flow, Error> {
    pop(ctx, args, reply, PopOrder { side: end, count: 1 }, false)
}

fn pop_some(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply, at: usize) -> Result<Flow, Error> {
    pop(ctx, args, reply, order(args, at)?, true)
}

/// Pops from the one key that is selected: its name, and a member with its score or an array of such pairs.
fn pop(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply,
    order: PopOrder<End>,
    array: bool,
) -> Result<Flow, Error> {
    let Some(idx) = ctx.keys.indices().next() else { return Ok(Flow::Done) };
    let (name, key) = (args.at(idx), ctx.key(args.at(idx)));
    let edited = ctx.edit_sorted_set(key, Missing::Skip, |set| {
        reply.array(if array { 2 } else { 3 });
        reply.bulk(name);
        if array {
            reply.array(order.count.min(set.as_ref().len()));
        }
        let rest = take(set, order.side, order.count, &mut |member, score| {
            if array {
                reply.array(2);
            }
            reply.bulk(member);
            reply.double(score);
        });
        ((), rest)
    })?;
    match edited.map(|edited| edited.discard_rest(ctx)) {
        Some(edited) => notify_removal(ctx, order.side.event(), name, &edited),
        None => reply.null_array(),
    }
    Ok(Flow::Done)
}

#[cfg(test)]
mod tests {
    use crate::commands::testing::{Bench, check_all};

    const SHARDS: [u16; 3] = [1, 2, 5];

    #[test]
    fn the_first_key_with_members_gives_them() {
        check_all(&[
            ("ZADD a 1 x 2 y 3 z\nZADD b 4 w", ":3\n:1"),
            (
                "ZMPOP 3 none a b MIN\nZMPOP 2 b a MAX COUNT 9",
                "[\"a\", [[\"x\", \"1\"]]]\n[\"b\", [[\"w\", \"4\"]]]",
            ),
            (
                "BZPOPMAX none a 0\nBZMPOP 0 2 none a MIN COUNT 7\nEXISTS a b",
                "[\"a\", \"z\", \"3\"]\n[\"a\", [[\"y\", \"2\"]]]\n:0",
            ),
            ("ZMPOP 2 a b MAX", "nil"),
            (
                "SADD s 1\nZMPOP 2 none s MIN",
                ":1\n-WRONGTYPE Operation against a key holding the wrong kind of value",
            ),
            ("BZPOPMIN s 0", "-WRONGTYPE Operation against a key holding the wrong kind of value"),
            (
                "BZMPOP x 1 a MIN\nBZMPOP x 1 a UP",
                "-ERR timeout is not a float or out of range\n-ERR syntax error",
            ),
        ]);
    }

    #[test]
    fn waiters_are_served_in_order_of_arrival_from_their_end() {
        for shards in SHARDS {
            let mut bench = Bench::new(shards);
            let waiters: Vec<_> = (0..4).map(|n| bench.connect(n, 7 + n as u16)).collect();
            let commands =
                ["BZPOPMAX k l m 0", "BZPOPMIN l k 0", "BZMPOP 0 3 k l m MAX COUNT 2", "BZPOPMIN m k 0"];
            for (waiter, command) in waiters.iter().zip(commands) {
                assert_eq!(bench.say(*waiter, &format!("{command}\nECHO on")), "");
            }
            assert_eq!(bench.run("ZADD k 1 a 2 b 3 c 4 d 5 e"), ":5");
            assert_eq!(bench.hear(waiters[0]), "[\"k\", \"e\", \"5\"]\n\"on\"");
            assert_eq!(bench.hear(waiters[1]), "[\"k\", \"a\", \"1\"]\n\"on\"");
            assert_eq!(bench.hear(waiters[2]), "[\"k\", [[\"d\", \"4\"], [\"c\", \"3\"]]]\n\"on\"");
            assert_eq!(bench.hear(waiters[3]), "[\"k\", \"b\", \"2\"]\n\"on\"");
            assert_eq!(bench.run("EXISTS k\nINFO clients").find("blocked_clients:0").map(|_| ()), Some(()));
        }
    }

    #[test]
    fn a_wait_ends_in_time_by_order_or_with_its_connection() {
        for shards in SHARDS {
            let mut bench = Bench::new(shards);
            let (one, two, three) = (bench.connect(0, 7), bench.connect(1, 8), bench.connect(2, 9));
            assert_eq!(bench.say(one, "BZPOPMIN k l 0.05"), "");
            let id = bench.say(two, "CLIENT ID").trim_start_matches(':').to_owned();
            assert_eq!(bench.say(two, "BZMPOP 0 2 k l MIN"), "");
            assert_eq!(bench.say(three, "BZPOPMAX k l 100"), "");
            bench.now += 50;
            assert_eq!(bench.hear(one), "nil");
            assert_eq!(bench.run(&format!("CLIENT UNBLOCK {id}")), ":1");
            assert_eq!(bench.hear(two), "nil");
            bench.leave(three);
            assert_eq!(bench.run("ZADD k 1 a\nZADD l 2 b\nZCARD k\nZCARD l"), ":1\n:1\n:1\n:1");
        }
    }

    /// Whatever makes a sorted set wakes who waits for one; what makes something else does not.
    #[test]
    fn keys_come_to_be_in_other_ways_too() {
        for shards in SHARDS {
            let mut bench = Bench::new(shards);
            let waiter = bench.connect(1, 7);
            bench.run("ZADD other 1 a 2 b\nSADD s x");
            let makers = [
                ("COPY other k", ":1", "\"a\", \"1\""),
                ("ZUNIONSTORE k 2 other s", ":3", "\"a\", \"1\""),
                ("ZINTERSTORE k 2 other other WEIGHTS 2 2", ":2", "\"a\", \"4\""),
                ("ZDIFFSTORE k 1 s", ":1", "\"x\", \"1\""),
                ("ZRANGESTORE k other 1 1", ":1", "\"b\", \"2\""),
                ("ZINCRBY k 7 a", "\"7\"", "\"a\", \"7\""),
                ("RENAME other k", "+OK", "\"a\", \"1\""),
            ];
            for (command, reply, found) in makers {
                assert_eq!(bench.say(waiter, "BZPOPMIN j k 0"), "");
                assert_eq!(bench.run("RPUSH k v\nSADD j v\nDEL k j"), ":1\n:1\n:2");
                assert_eq!(bench.hear(waiter), "", "{command} on {shards} shards");
                assert_eq!(bench.run(command), reply, "{shards} shards");
                assert_eq!(bench.hear(waiter), format!("[\"k\", {found}]"), "{command} on {shards} shards");
                bench.run("DEL k");
            }
            assert_eq!(bench.say(waiter, "BZPOPMIN j k 0"), "");
            assert_eq!(bench.run("SET k v\nZADD src 3 c\nZUNIONSTORE k 1 src"), "+OK\n:1\n:1");
            assert_eq!(bench.hear(waiter), "[\"k\", \"c\", \"3\"]");
        }
    }

    #[test]
    fn a_transaction_does_not_wait_and_is_over_before_others_are_served() {
        for shards in SHARDS {
            let mut bench = Bench::new(shards);
            let waiter = bench.connect(1, 7);
            assert_eq!(bench.say(waiter, "BZPOPMAX k j 0"), "");
            assert_eq!(bench.run("MULTI\nBZPOPMIN a b 0\nBZMPOP 0 2 a b MIN"), "+OK\n+QUEUED\n+QUEUED");
            assert_eq!(
                bench.run("ZADD k 1 a 2 b\nZPOPMAX k\nEXEC"),
                "+QUEUED\n+QUEUED\n[nil, nil, :2, [\"b\", \"2\"]]"
            );
            assert_eq!(bench.hear(waiter), "[\"k\", \"a\", \"1\"]");
        }
    }

    /// Clients of all shards add and wait at the same time: each member that was added is popped once or there in the end.
    #[test]
    fn nothing_is_lost_or_doubled() {
        for (shards, seed) in SHARDS.into_iter().flat_map(|shards| (1..10u64).map(move |seed| (shards, seed)))
        {
            let mut bench = Bench::new(shards);
            let mut random = crate::ctx::Rng::new(seed);
            let clients: Vec<_> = (0..8).map(|n| bench.connect(n, 7 + n as u16)).collect();
            let (mut added, mut heard) = (0, String::new());
            for _ in 0..60 {
                for client in &clients {
                    let mut key = || ["a", "b", "c"][(random.next() % 3) as usize];
                    let (one, two) = (key(), key());
                    let line = match random.next() % 6 {
                        0..=2 => {
                            added += 1;
                            format!("ZADD {one} {} e{added}.", added % 5)
                        }
                        3 => format!("BZPOPMIN {one} {two} 0.02"),
                        4 => format!("BZMPOP 0.03 2 {one} {two} MAX COUNT 2"),
                        _ => format!("BZPOPMAX {one} {two} 0.02"),
                    };
                    bench.send(*client, &line);
                }
                if random.next().is_multiple_of(3) {
                    bench.now += 7;
                }
                clients.iter().for_each(|client| heard += &bench.hear(*client));
            }
            for _ in 0..80 {
                bench.now += 1000;
                clients.iter().for_each(|client| heard += &bench.hear(*client));
            }
            assert!(bench.run("INFO clients").contains("blocked_clients:0"), "{shards} shards, seed {seed}");
            heard += &bench.run("ZRANGE a 0 -1\nZRANGE b 0 -1\nZRANGE c 0 -1");
            for n in 1..=added {
                assert_eq!(
                    heard.matches(&format!("\"e{n}.\"")).count(),
                    1,
                    "e{n} on {shards} shards, seed {seed}"
                );
            }
        }
    }
}
