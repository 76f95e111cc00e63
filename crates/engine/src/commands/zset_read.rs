//! What reads sorted sets.

use super::element::nothing;
use super::element_scan::{ElementScan, parse_place, write_found};
use super::picks::Room;
use super::zset_range::{By, Preset, Query, Range};
use crate::args::Args;
use crate::command::{Command, Flags, Flow, Handler, KeyFlags, KeySpec, Plan};
use crate::ctx::{Ctx, Rng};
use crate::errors::Error;
use crate::values::SortedSetRef;
use corelane_resp::{Proto, Reply};

const KEY: &[KeySpec] = &[KeySpec::one(1, KeyFlags::RO.with(KeyFlags::ACCESS))];
const COUNTED: &[KeySpec] = &[KeySpec::one(1, KeyFlags::RO)];
const FAST: Flags = Flags::READONLY.with(Flags::FAST);

/// What all of them have in common.
const fn record(name: &'static str, arity: i16, run: Handler) -> Command {
    Command {
        name,
        arity,
        flags: Flags::READONLY,
        keys: KEY,
        plan: Plan::OneShard(run),
        group: "sorted-set",
        complexity: "O(log(N)+M) where N is the number of members in the set and M that of members returned",
        ..Command::DEFAULT
    }
}

const LOGARITHMIC: &str = "O(log(N)) where N is the number of members in the set";

pub(super) const COMMANDS: &[Command] = &[
    Command {
        flags: FAST,
        keys: COUNTED,
        since: "1.2.0",
        summary: "Returns the number of members in a sorted set.",
        complexity: "O(1)",
        syntax: "key",
        ..record("zcard", 2, zcard)
    },
    Command {
        flags: FAST,
        since: "1.2.0",
        summary: "Returns the score of a member in a sorted set.",
        complexity: "O(1)",
        syntax: "key member",
        ..record("zscore", 3, zscore)
    },
    Command {
        flags: FAST,
        since: "6.2.0",
        summary: "Returns the score of one or more members in a sorted set.",
        complexity: "O(M) where M is the number of members asked for",
        syntax: "key member [member ...]",
        ..record("zmscore", -3, zmscore)
    },
    Command {
        flags: FAST,
        since: "2.0.0",
        summary: "Returns the index of a member in a sorted set ordered by ascending scores.",
        complexity: LOGARITHMIC,
        syntax: "key member [WITHSCORE]",
        ..record("zrank", -3, |ctx, args, reply| rank(ctx, args, reply, "zrank"))
    },
    Command {
        flags: FAST,
        since: "2.0.0",
        summary: "Returns the index of a member in a sorted set ordered by descending scores.",
        complexity: LOGARITHMIC,
        syntax: "key member [WITHSCORE]",
        ..record("zrevrank", -3, |ctx, args, reply| rank(ctx, args, reply, "zrevrank"))
    },
    Command {
        flags: FAST,
        since: "2.0.0",
        summary: "Returns the count of members in a sorted set that have scores within a range.",
        complexity: LOGARITHMIC,
        syntax: "key min max",
        ..record("zcount", 4, |ctx, args, reply| count(ctx, args, reply, By::Score))
    },
    Command {
        flags: FAST,
        since: "2.8.9",
        summary: "Returns the number of members in a sorted set within a lexicographical range.",
        complexity: LOGARITHMIC,
        syntax: "key min max",
        ..record("zlexcount", 4, |ctx, args, reply| count(ctx, args, reply, By::Lex))
    },
    Command {
        since: "1.2.0",
        summary: "Returns members in a sorted set within a range of indexes.",
        syntax: "key start stop [BYSCORE | BYLEX] #sortby @6.2.0 [REV] @6.2.0 [LIMIT (offset count)] @6.2.0 [WITHSCORES]",
        ..record("zrange", -4, |ctx, args, reply| range(ctx, args, reply, None, None))
    },
    Command {
        since: "1.2.0",
        summary: "Returns members in a sorted set within a range of indexes in reverse order.",
        syntax: "key start stop [WITHSCORES]",
        ..record("zrevrange", -4, |ctx, args, reply| range(ctx, args, reply, Some(By::Rank), Some(true)))
    },
    Command {
        since: "1.0.5",
        summary: "Returns members in a sorted set within a range of scores.",
        syntax: "key min max [WITHSCORES @2.0.0] [LIMIT (offset count)]",
        ..record("zrangebyscore", -4, |ctx, args, reply| {
            range(ctx, args, reply, Some(By::Score), Some(false))
        })
    },
    Command {
        since: "2.2.0",
        summary: "Returns members in a sorted set within a range of scores in reverse order.",
        syntax: "key max min [WITHSCORES] [LIMIT (offset count)]",
        ..record("zrevrangebyscore", -4, |ctx, args, reply| {
            range(ctx, args, reply, Some(By::Score), Some(true))
        })
    },
    Command {
        since: "2.8.9",
        summary: "Returns members in a sorted set within a lexicographical range.",
        syntax: "key min max [LIMIT (offset count)]",
        ..record("zrangebylex", -4, |ctx, args, reply| range(ctx, args, reply, Some(By::Lex), Some(false)))
    },
    Command {
        since: "2.8.9",
        summary: "Returns members in a sorted set within a lexicographical range in reverse order.",
        syntax: "key max min [LIMIT (offset count)]",
        ..record("zrevrangebylex", -4, |ctx, args, reply| range(ctx, args, reply, Some(By::Lex), Some(true)))
    },
    Command {
        since: "6.2.0",
        summary: "Returns one or more random members from a sorted set.",
        complexity: "O(M*log(N)) where M is the number of members asked for and N that of members in the set",
        syntax: "key [(count [WITHSCORES]) #options]",
        tips: &["nondeterministic_output"],
        ..record("zrandmember", -2, zrandmember)
    },
    Command {
        since: "2.8.0",
        summary: "Iterates over members and scores of a sorted set.",
        complexity: "O(1) for a call, O(N) for a whole iteration, where N is the number of members in the set",
        syntax: "key cursor [MATCH pattern] [COUNT count] [NOSCORES]",
        tips: &["nondeterministic_output"],
        ..record("zscan", -3, zscan)
    },
];

/// Reads the set of the first key; `None` if it is not there.
fn with_set<T>(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    read: impl FnOnce(SortedSetRef<'_>) -> T,
) -> Result<Option<T>, Error> {
    let key = ctx.key(args.at(1));
    let Some(entry) = ctx.lookup(key) else { return Ok(None) };
    entry.sorted_set().ok_or(Error::WrongType).map(|set| Some(read(set)))
}

/// Opens a reply of `count` members, with their scores where `scores`.
pub(super) fn open_members(reply: &mut Reply, count: usize, scores: bool) {
    reply.array(if scores && reply.proto() == Proto::Resp2 { 2 * count } else { count });
}

/// A member of such a reply: in RESP3 with its score in an array of its own.
pub(super) fn write_member(reply: &mut Reply, member: &[u8], score: f64, scores: bool) {
    if scores && reply.proto() == Proto::Resp3 {
        reply.array(2);
    }
    reply.bulk(member);
    if scores {
        reply.double(score);
    }
}

fn zcard(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply) -> Result<Flow, Error> {
    let len = with_set(ctx, args, |set| set.len())?;
    reply.int(len.unwrap_or(0) as i64);
    Ok(Flow::Done)
}

fn zscore(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply) -> Result<Flow, Error> {
    match with_set(ctx, args, |set| set.score(args.at(2)))?.flatten() {
        Some(score) => reply.double(score),
        None => reply.null(),
    }
    Ok(Flow::Done)
}

fn zmscore(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply) -> Result<Flow, Error> {
    let count = args.len() - 2;
    let there = with_set(ctx, args, |set| {
        reply.array(count);
        for member in args.iter_from(2) {
            match set.score(member) {
                Some(score) => reply.double(score),
                None => reply.null(),
            }
        }
    })?;
    if there.is_none() {
        reply.array(count);
        (0..count).for_each(|_| reply.null());
    }
    Ok(Flow::Done)
}

fn rank(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply, name: &'static str) -> Result<Flow, Error> {
    if args.len() > 4 {
        return Err(Error::Arity(name.into()));
    }
    let with_score = args.len() > 3;
    if with_score && !args.is(3, "WITHSCORE") {
        return Err(Error::Syntax);
    }
    let found = with_set(ctx, args, |set| set.rank(args.at(2)).map(|found| (found, set.len())))?;
    let Some(((rank, score), len)) = found.flatten() else {
        if with_score {
            reply.null_array()
        } else {
            reply.null()
        }
        return Ok(Flow::Done);
    };
    if with_score {
        reply.array(2);
    }
    reply.int(if name == "zrevrank" { len - 1 - rank } else { rank } as i64);
    if with_score {
        reply.double(score);
    }
    Ok(Flow::Done)
}

fn count(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply, by: By) -> Result<Flow, Error> {
    let range = Range::parse(by, args.at(2), args.at(3))?;
    let count = with_set(ctx, args, |set| range.ranks(set, false).1)?;
    reply.int(count.unwrap_or(0) as i64);
    Ok(Flow::Done)
}

fn range(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply,
    by: Option<By>,
    reverse: Option<bool>,
) -> Result<Flow, Error> {
    let query = Query::parse(args, 2, Preset { by, reverse, store: false })?;
    let (pacing, written) = (ctx.pacing(), ctx.resume as usize);
    let Some(entry) = ctx.lookup_once(ctx.key(args.at(1))) else {
        return Ok(nothing(ctx, reply, Reply::array));
    };
    let set = entry.sorted_set().ok_or(Error::WrongType)?;
    let (from, count) = query.part(set);
    let Some(piece) = pacing.piece(count, set.extent()) else { return Ok(Flow::Later) };
    if written == 0 {
        open_members(reply, count, query.scores);
    }
    let here = piece.min(count - written);
    set.visit(from + written, here, query.reverse, &mut |member, score| {
        write_member(reply, member, score, query.scores);
    });
    Ok(if written + here < count { Flow::Again((written + here) as u64) } else { Flow::Done })
}

/// How many members ZRANDMEMBER returns at most where they may come more than once.
const PICKS_MAX: i64 = i64::MAX;

fn zrandmember(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply) -> Result<Flow, Error> {
    let mut rng = Rng::new(ctx.shard.rng.next());
    if args.len() == 2 {
        let one = |set: SortedSetRef<'_>| {
            let rank = (rng.next() % set.len() as u64) as usize;
            set.visit(rank, 1, false, &mut |member, _| reply.bulk(member));
        };
        if with_set(ctx, args, one)?.is_none() {
            reply.null();
        }
        return Ok(Flow::Done);
    }
    let count = args.int(2)?;
    if count == i64::MIN {
        return Err(Error::owned(format!(
            "ERR value is out of range, value must between -{PICKS_MAX} and {PICKS_MAX}"
        )));
    }
    let scores = args.len() > 3;
    if args.len() > 4 || (scores && !args.is(3, "WITHSCORES")) {
        return Err(Error::Syntax);
    }
    if scores && count.unsigned_abs() > PICKS_MAX.unsigned_abs() / 2 {
        return Err(Error::text("ERR value is out of range"));
    }
    let room = Room::new(ctx, reply);
    match with_set(ctx, args, |set| write_picks(set, count, scores, &mut rng, reply, room))? {
        Some(written) => written?,
        None => reply.array(0),
    }
    Ok(Flow::Done)
}

/// Members picked at random: different ones where `count` is positive, otherwise each anew.
fn write_picks(
    set: SortedSetRef<'_>,
    count: i64,
    scores: bool,
    rng: &mut Rng,
    reply: &mut Reply,
    room: Room,
) -> Result<(), Error> {
    let (len, wanted) = (set.len(), usize::try_from(count.unsigned_abs()).unwrap_or(usize::MAX));
    let write = |rank: usize, count: usize, reply: &mut Reply| {
        set.visit(rank, count, false, &mut |member, score| write_member(reply, member, score, scores));
    };
    if count >= 0 && wanted >= len {
        open_members(reply, len, scores);
        write(0, len, reply);
        return Ok(());
    }
    if count < 0 {
        room.admit(wanted)?;
        open_members(reply, wanted, scores);
        return (0..wanted).try_for_each(|_| {
            write((rng.next() % len as u64) as usize, 1, reply);
            room.check(reply)
        });
    }
    open_members(reply, wanted, scores);
    // Floyd's way of choosing `wanted` of `len` ranks.
    let mut chosen = std::collections::BTreeSet::new();
    for end in len - wanted..len {
        let pick = (rng.next() % (end as u64 + 1)) as usize;
        let rank = if chosen.insert(pick) { pick } else { end };
        chosen.insert(rank);
        write(rank, 1, reply);
    }
    Ok(())
}

fn zscan(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply) -> Result<Flow, Error> {
    let place = parse_place(args)?;
    let (mut found, mut count) = (Reply::new(reply.proto()), 0);
    let next = with_set(ctx, args, |set| {
        let options = ElementScan::parse(args, "NOSCORES")?;
        // A small set is returned as a whole, whatever the cursor.
        let from = if matches!(set, SortedSetRef::Pack(_)) { Some(0) } else { place };
        let mut text = Reply::new(Proto::Resp2);
        Ok(from.and_then(|from| {
            set.walk(from, options.count, &mut |member, score| {
                if !options.matches(member) {
                    return;
                }
                found.bulk(member);
                count += 1;
                if !options.names_only {
                    // A text in both protocols.
                    text.clear();
                    text.double(score);
                    found.raw(&text.buf);
                    count += 1;
                }
            })
        }))
    })?;
    write_found(reply, next.transpose()?.flatten(), count, &mut found);
    Ok(Flow::Done)
}

#[cfg(test)]
mod tests {
    use crate::commands::testing::Bench;
    use std::collections::BTreeMap;

    /// Cursor, members and scores of a reply to ZSCAN.
    fn page(reply: &str) -> (String, Vec<(String, String)>) {
        let words: Vec<&str> = reply.split('"').skip(1).step_by(2).collect();
        let pairs = words[1..].chunks_exact(2).map(|pair| (pair[0].to_owned(), pair[1].to_owned()));
        (words[0].to_owned(), pairs.collect())
    }

    /// Members that are there all the time are found exactly once, whatever is added, removed or given another score meanwhile.
    #[test]
    fn a_scan_finds_what_stays_while_the_rest_changes() {
        for (shards, seed) in [(1, 1u64), (2, 2), (5, 3), (5, 4)] {
            let (mut bench, mut random) = (Bench::new(shards), crate::ctx::Rng::new(seed));
            for n in 0..700 {
                bench.run(&format!("ZADD z {} stays{n}", n % 7));
            }
            let (mut found, mut cursor, mut pages) = (BTreeMap::<String, usize>::new(), "0".to_owned(), 0);
            loop {
                let (next, pairs) = page(&bench.run(&format!("ZSCAN z {cursor} COUNT 7")));
                assert!(pairs.len() < 200, "a page is small: {}", pairs.len());
                for (member, _) in pairs {
                    *found.entry(member).or_default() += 1;
                }
                pages += 1;
                if next == "0" {
                    break;
                }
                cursor = next;
                for _ in 0..20 {
                    let n = random.next() % 2000;
                    match random.next() % 4 {
                        0 => bench.run(&format!("ZREM z goes{n}")),
                        1 => bench.run(&format!("ZINCRBY z 1 stays{}", n % 700)),
                        _ => bench.run(&format!("ZADD z {n} goes{n}")),
                    };
                }
            }
            assert!(pages > 20, "{pages} pages");
            for n in 0..700 {
                assert_eq!(found.get(&format!("stays{n}")), Some(&1), "stays{n} on {shards} shards");
            }
        }
    }

    /// A scan that began while the set was large goes on when most of it is gone, and one of a small set is over at once.
    #[test]
    fn a_scan_survives_a_change_of_size() {
        let mut bench = Bench::new(2);
        for n in 0..1000 {
            bench.run(&format!("ZADD z {n} m{n}"));
        }
        let (cursor, first) = page(&bench.run("ZSCAN z 0 COUNT 500"));
        assert_ne!(cursor, "0");
        bench.run("ZREMRANGEBYRANK z 20 -1");
        let (cursor, second) = page(&bench.run(&format!("ZSCAN z {cursor} COUNT 5000")));
        assert_eq!(cursor, "0");
        let all: std::collections::BTreeSet<_> = first.into_iter().chain(second).collect();
        for n in 0..20 {
            assert!(all.contains(&(format!("m{n}"), n.to_string())), "m{n}");
        }
        bench.run("DEL z\nZADD z 1 a 2 b");
        assert_eq!(page(&bench.run("ZSCAN z 0 COUNT 1")).1.len(), 2);
    }
}
