//! What changes sorted sets.

use super::zset_range::{By, Range, parse_score};
use super::zset_read::{open_members, write_member};
use crate::args::Args;
use crate::command::{Command, Flags, Flow, Handler, KeyFlags, KeySpec, Plan};
use crate::ctx::Ctx;
use crate::errors::Error;
use crate::events::EventClasses;
use crate::keyspace::Value;
use crate::settings::CompactLimits;
use crate::typed::{Edited, Missing};
use crate::values::SortedSet;
use corelane_resp::Reply;

const fn key(flags: KeyFlags) -> KeySpec {
    KeySpec::one(1, KeyFlags::RW.with(flags))
}

const ADDED: &[KeySpec] = &[key(KeyFlags::UPDATE)];
const INCREMENTED: &[KeySpec] = &[key(KeyFlags::ACCESS.with(KeyFlags::UPDATE))];
const REMOVED: &[KeySpec] = &[key(KeyFlags::DELETE)];
const POPPED: &[KeySpec] = &[key(KeyFlags::ACCESS.with(KeyFlags::DELETE))];

/// What all of them have in common.
const fn record(name: &'static str, arity: i16, keys: &'static [KeySpec], run: Handler) -> Command {
    Command {
        name,
        arity,
        flags: Flags::WRITE,
        keys,
        plan: Plan::OneShard(run),
        group: "sorted-set",
        complexity: "O(M*log(N)) where N is the number of members in the set and M that of members given or removed",
        ..Command::DEFAULT
    }
}

const FAST: Flags = Flags::WRITE.with(Flags::FAST);

pub(super) const COMMANDS: &[Command] = &[
    Command {
        flags: FAST.with(Flags::DENYOOM),
        since: "1.2.0",
        summary: "Adds one or more members to a sorted set, or updates their scores. Creates the key if it doesn't exist.",
        syntax: "key [NX | XX] #condition @3.0.2 [GT | LT] #comparison @6.2.0 [CH] #change @3.0.2 [INCR] #increment @3.0.2 score member [score member ...] #data",
        ..record("zadd", -4, ADDED, zadd)
    },
    Command {
        flags: FAST.with(Flags::DENYOOM),
        since: "1.2.0",
        summary: "Increments the score of a member in a sorted set.",
        complexity: "O(log(N)) where N is the number of members in the set",
        syntax: "key increment member",
        ..record("zincrby", 4, INCREMENTED, zincrby)
    },
    Command {
        flags: FAST,
        since: "1.2.0",
        summary: "Removes one or more members from a sorted set. Deletes the sorted set if all members were removed.",
        syntax: "key member [member ...]",
        ..record("zrem", -3, REMOVED, zrem)
    },
    Command {
        since: "2.0.0",
        summary: "Removes members in a sorted set within a range of indexes. Deletes the sorted set if all members were removed.",
        syntax: "key start stop",
        ..record("zremrangebyrank", 4, REMOVED, |ctx, args, reply| {
            remove_range(ctx, args, reply, By::Rank, "zremrangebyrank")
        })
    },
    Command {
        since: "1.2.0",
        summary: "Removes members in a sorted set within a range of scores. Deletes the sorted set if all members were removed.",
        syntax: "key min max",
        ..record("zremrangebyscore", 4, REMOVED, |ctx, args, reply| {
            remove_range(ctx, args, reply, By::Score, "zremrangebyscore")
        })
    },
    Command {
        since: "2.8.9",
        summary: "Removes members in a sorted set within a lexicographical range. Deletes the sorted set if all members were removed.",
        syntax: "key min max",
        ..record("zremrangebylex", 4, REMOVED, |ctx, args, reply| {
            remove_range(ctx, args, reply, By::Lex, "zremrangebylex")
        })
    },
    Command {
        flags: FAST,
        since: "5.0.0",
        summary: "Returns the lowest-scoring members from a sorted set after removing them. Deletes the sorted set if the last member was popped.",
        syntax: "key [count]",
        ..record("zpopmin", -2, POPPED, |ctx, args, reply| pop(ctx, args, reply, End::Min))
    },
    Command {
        flags: FAST,
        since: "5.0.0",
        summary: "Returns the highest-scoring members from a sorted set after removing them. Deletes the sorted set if the last member was popped.",
        syntax: "key [count]",
        ..record("zpopmax", -2, POPPED, |ctx, args, reply| pop(ctx, args, reply, End::Max))
    },
];

/// ZADD's options.
#[derive(Clone, Copy, Default)]
pub(super) struct Add {
    pub(super) only_new: bool,
    pub(super) only_there: bool,
    only_greater: bool,
    only_less: bool,
    pub(super) count_changed: bool,
    increment: bool,
    /// The first score's index.
    at: usize,
}

impl Add {
    /// ZADD's and ZINCRBY's words; the latter, like Valkey's, takes the option words for options, too, which leaves no pair of
    /// score and member behind them. `increment` is whether the command by itself says INCR.
    fn parse(args: Args<'_>, increment: bool) -> Result<Self, Error> {
        let mut add = Self { at: 2, increment, ..Self::default() };
        while add.at < args.len() {
            let option = match () {
                () if args.is(add.at, "NX") => &mut add.only_new,
                () if args.is(add.at, "XX") => &mut add.only_there,
                () if args.is(add.at, "CH") => &mut add.count_changed,
                () if args.is(add.at, "INCR") => &mut add.increment,
                () if args.is(add.at, "GT") => &mut add.only_greater,
                () if args.is(add.at, "LT") => &mut add.only_less,
                () => break,
            };
            *option = true;
            add.at += 1;
        }
        let words = args.len() - add.at;
        if words == 0 || !words.is_multiple_of(2) {
            return Err(Error::Syntax);
        }
        if add.only_new && add.only_there {
            return Err(Error::text("ERR XX and NX options at the same time are not compatible"));
        }
        if [add.only_new, add.only_greater, add.only_less].iter().filter(|set| **set).count() > 1 {
            return Err(Error::text("ERR GT, LT, and/or NX options at the same time are not compatible"));
        }
        if add.increment && words > 2 {
            return Err(Error::text("ERR INCR option supports a single increment-element pair"));
        }
        Ok(add)
    }

    /// Adds or changes a member.
    fn apply(
        self,
        set: &mut SortedSet,
        member: &[u8],
        given: f64,
        limits: &CompactLimits,
    ) -> Result<Applied, Error> {
        // Most members that are given are set without a condition.
        let conditional =
            self.increment || self.only_new || self.only_there || self.only_greater || self.only_less;
        if !conditional {
            let old = set.insert(member, given, limits);
            return Ok(Applied::of(old, given));
        }
        let old = set.as_ref().score(member);
        let score = if self.increment { old.map_or(given, |old| old + given) } else { given };
        if score.is_nan() {
            return Err(Error::text("ERR resulting score is not a number (NaN)"));
        }
        let refused = match old {
            None => self.only_there,
            Some(old) => {
                self.only_new || (self.only_greater && score <= old) || (self.only_less && score >= old)
            }
        };
        if refused {
            return Ok(Applied::Refused);
        }
        set.insert(member, score, limits);
        Ok(Applied::of(old, score))
    }
}

/// What became of a member.
#[derive(Clone, Copy)]
enum Applied {
    /// Nothing: an option kept it from being changed.
    Refused,
    /// It had this score already, or one equal to it: -0 and 0 are.
    Same(f64),
    Added(f64),
    Changed(f64),
}

impl Applied {
    #[expect(clippy::float_cmp, reason = "whether it is another one, of which -0 is none")]
    fn of(old: Option<f64>, new: f64) -> Self {
        match old {
            None => Self::Added(new),
            Some(old) if old == new => Self::Same(new),
            Some(_) => Self::Changed(new),
        }
    }
}

fn zadd(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply) -> Result<Flow, Error> {
    add(ctx, args, Add::parse(args, false)?, reply)
}

fn zincrby(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply) -> Result<Flow, Error> {
    add(ctx, args, Add::parse(args, true)?, reply)
}

fn add(ctx: &mut Ctx<'_>, args: Args<'_>, add: Add, reply: &mut Reply) -> Result<Flow, Error> {
    let pairs = || (add.at..args.len()).step_by(2);
    let score_at = |idx: usize| parse_score(args.at(idx)).ok_or(Error::NotFloat);
    let mut longest = 0;
    for idx in pairs() {
        score_at(idx)?;
        longest = longest.max(args.at(idx + 1).len());
    }
    let members = pairs().map(|idx| Ok((score_at(idx)?, args.at(idx + 1))));
    add_members(ctx, args.at(1), add, longest, members, reply)
}

/// Adds members with scores, the longest of which has `longest` bytes, and writes how many were new or what else is asked for.
pub(super) fn add_members<'a>(
    ctx: &mut Ctx<'_>,
    name: &[u8],
    add: Add,
    longest: usize,
    members: impl ExactSizeIterator<Item = Result<(f64, &'a [u8]), Error>>,
    reply: &mut Reply,
) -> Result<Flow, Error> {
    let limits = ctx.shard.settings.compact;
    let missing = if add.only_there { Missing::Skip } else { Missing::Create };
    let key = ctx.key(name);
    let edited = ctx.edit_sorted_set(key, missing, |set| {
        set.expect(members.len(), longest, &limits);
        let (mut added, mut changed, mut last) = (0, 0, Applied::Refused);
        for pair in members {
            let (score, member) = pair?;
            last = add.apply(set, member, score, &limits)?;
            added += i64::from(matches!(last, Applied::Added(_)));
            changed += i64::from(matches!(last, Applied::Changed(_)));
        }
        Ok((added, changed, last))
    })?;
    let (added, changed, last) = edited.map_or(Ok((0, 0, Applied::Refused)), |edited| edited.result)?;
    if added + changed > 0 {
        let event = if add.increment { "zincr" } else { "zadd" };
        ctx.notify(EventClasses::SORTED_SET, event, name);
    }
    match last {
        _ if !add.increment => reply.int(if add.count_changed { added + changed } else { added }),
        Applied::Refused => reply.null(),
        Applied::Same(score) | Applied::Added(score) | Applied::Changed(score) => reply.double(score),
    }
    Ok(Flow::Done)
}

/// Tells that members have been removed, and of the key where it went with them.
pub(super) fn notify_removal<T>(ctx: &mut Ctx<'_>, event: &'static str, key: &[u8], edited: &Edited<T>) {
    ctx.notify(EventClasses::SORTED_SET, event, key);
    if edited.emptied {
        ctx.notify(EventClasses::GENERIC, "del", key);
    }
}

fn zrem(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply) -> Result<Flow, Error> {
    let key = ctx.key(args.at(1));
    let edited = ctx.edit_sorted_set(key, Missing::Skip, |set| {
        args.iter_from(2).filter(|member| set.remove(member)).count()
    })?;
    if let Some(edited) = edited.filter(|edited| edited.result > 0) {
        notify_removal(ctx, "zrem", args.at(1), &edited);
    }
    reply.int(edited.map_or(0, |edited| edited.result) as i64);
    Ok(Flow::Done)
}

fn remove_range(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply,
    by: By,
    event: &'static str,
) -> Result<Flow, Error> {
    let range = Range::parse(by, args.at(2), args.at(3))?;
    let (pacing, key, before) = (ctx.pacing(), ctx.key(args.at(1)), ctx.elements as usize);
    let edited = ctx.edit_sorted_set(key, Missing::Skip, |set| {
        let (from, count) = range.ranks_left(set.as_ref(), before);
        let piece = match count == set.as_ref().len() {
            true => Some(count),
            false => pacing.piece(count, set.as_ref().extent()),
        };
        let here = piece.map(|piece| piece.min(count));
        (here.map(|here| (before + here, count - here)), remove_ranks(set, from, here.unwrap_or(0)))
    })?;
    let Some(edited) = edited.map(|edited| edited.discard_rest(ctx)) else {
        reply.int(0);
        return Ok(Flow::Done);
    };
    let Some((removed, left)) = edited.result else { return Ok(Flow::Later) };
    if left > 0 {
        ctx.elements = removed as u64;
        return Ok(Flow::Again(1));
    }
    if removed > 0 {
        notify_removal(ctx, event, args.at(1), &edited);
    }
    ctx.elements = 0;
    reply.int(removed as i64);
    Ok(Flow::Done)
}

/// Which members are popped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// Those with the lowest scores.
    Min,
    /// Those with the highest.
    Max,
}

impl End {
    /// What is told of a pop.
    pub(super) const fn event(self) -> &'static str {
        match self {
            Self::Min => "zpopmin",
            Self::Max => "zpopmax",
        }
    }
}

/// Removes `count` members from a rank on. Where these are all, the set is empty afterwards, and what it was is returned, to be
/// freed by and by.
fn remove_ranks(set: &mut SortedSet, from: usize, count: usize) -> Option<SortedSet> {
    if count == set.as_ref().len() {
        return Some(std::mem::take(set));
    }
    set.remove_range(from, count);
    None
}

/// Takes up to `count` members from an end and writes each. Returns what the set was if these were all.
pub(super) fn take(
    set: &mut SortedSet,
    end: End,
    count: usize,
    write: &mut dyn FnMut(&[u8], f64),
) -> Option<SortedSet> {
    let (len, reverse) = (set.as_ref().len(), end == End::Max);
    let count = count.min(len);
    let mut left = count;
    set.as_ref().visit(0, count + 1, reverse, &mut |member, score| {
        if left == 0 {
            // Whoever pops one will pop the next: it is loaded while this one is removed.
            std::hint::black_box(member.first());
            return;
        }
        left -= 1;
        write(member, score);
    });
    remove_ranks(set, if reverse { len - count } else { 0 }, count)
}

impl<T> Edited<(T, Option<SortedSet>)> {
    /// Frees what has been left of the set, a large one by and by.
    pub(super) fn discard_rest(self, ctx: &mut Ctx<'_>) -> Edited<T> {
        let Self { result: (result, rest), created, emptied } = self;
        if let Some(rest) = rest {
            ctx.shard.keyspace.discard(Value::SortedSet(rest));
        }
        Edited { result, created, emptied }
    }
}

fn pop(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply, end: End) -> Result<Flow, Error> {
    if args.len() > 3 {
        return Err(Error::Syntax);
    }
    let given = args.get(2).map(|text| {
        crate::args::parse_int(text).and_then(|count| usize::try_from(count).ok()).ok_or(Error::NotPositive)
    });
    let (count, nested) = (given.clone().unwrap_or(Ok(1))?, given.is_some());
    let key = ctx.key(args.at(1));
    let edited = ctx.edit_sorted_set(key, Missing::Skip, |set| {
        let count = count.min(set.as_ref().len());
        if nested {
            open_members(reply, count, true);
        } else {
            reply.array(2);
        }
        let rest = take(set, end, count, &mut |member, score| {
            if nested {
                write_member(reply, member, score, true);
            } else {
                reply.bulk(member);
                reply.double(score);
            }
        });
        (count, rest)
    })?;
    let Some(edited) = edited.map(|edited| edited.discard_rest(ctx)) else {
        reply.array(0);
        return Ok(Flow::Done);
    };
    if edited.result > 0 {
        notify_removal(ctx, end.event(), args.at(1), &edited);
    }
    Ok(Flow::Done)
}

#[cfg(test)]
mod tests {
    use crate::commands::testing::{Bench, check_all};

    #[test]
    fn members_are_added_and_found_in_order() {
        check_all(&[
            ("ZADD z 2 b 1 a 3 c", ":3"),
            ("ZADD z CH 2 b 9 a", ":1"),
            ("ZRANGE z 0 -1 WITHSCORES", "[\"b\", \"2\", \"c\", \"3\", \"a\", \"9\"]"),
            ("ZADD z NX 1 a\nZADD z XX CH 4 b\nZADD z GT CH 3 b\nZADD z LT CH 3 b", ":0\n:1\n:0\n:1"),
            ("ZINCRBY z -1.5 b\nZADD z XX INCR 1 x\nZRANK z a\nZREVRANK z a", "\"1.5\"\nnil\n:2\n:0"),
            ("ZRANGE z (1.5 +inf BYSCORE LIMIT 1 5\nZREVRANGE z 0 0", "[\"a\"]\n[\"a\"]"),
            ("ZCOUNT z 1.5 3\nZREM z b x\nZCARD z", ":2\n:1\n:2"),
            ("ZPOPMIN z\nZPOPMAX z 5\nEXISTS z", "[\"c\", \"3\"]\n[\"a\", \"9\"]\n:0"),
        ]);
    }

    #[test]
    fn large_sets_have_the_other_encoding_and_answer_alike() {
        for shards in [1, 2, 5] {
            let mut bench = Bench::new(shards);
            for n in 0..2000 {
                assert_eq!(bench.run(&format!("ZADD z {} m{n:04}", n % 10)), ":1");
            }
            assert_eq!(bench.run("OBJECT ENCODING z\nZCARD z"), "\"skiplist\"\n:2000");
            assert_eq!(bench.run("ZRANGE z 3 3 BYSCORE LIMIT 199 5"), "[\"m1993\"]");
            assert_eq!(bench.run("ZREVRANGE z 0 1\nZRANK z m0001"), "[\"m1999\", \"m1989\"]\n:200");
            assert_eq!(bench.run("ZREMRANGEBYSCORE z 0 7\nZREMRANGEBYRANK z 0 -3"), ":1600\n:398");
            assert_eq!(
                bench.run("ZRANGE z 0 -1\nCOPY z y\nDEL z\nZCARD y"),
                "[\"m1989\", \"m1999\"]\n:1\n:1\n:2"
            );
        }
    }
}
