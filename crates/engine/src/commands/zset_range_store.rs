//! ZRANGESTORE: a range of a sorted set in a key of its own.

use super::zset_pieces::store;
use super::zset_range::{Preset, Query, Range};
use crate::args::Args;
use crate::command::{Command, Flags, Flow, KeyFlags, KeySpec, Plan};
use crate::ctx::{Ctx, Decide, Next, On, Payload};
use crate::errors::Error;
use crate::keyspace::{Detached, StringForm, Value};
use crate::settings::CompactLimits;
use crate::values::{SortedSet, SortedSetRef, Tally};
use corelane_resp::Reply;

const DESTINATION: usize = 1;
const SOURCE: usize = 2;
const QUERY_AT: usize = 3;

const EVENT: &str = "zrangestore";

pub(super) const COMMANDS: &[Command] = &[Command {
    name: "zrangestore",
    arity: -5,
    flags: Flags::WRITE.with(Flags::DENYOOM),
    keys: &[
        KeySpec::one(DESTINATION, KeyFlags::OW.with(KeyFlags::UPDATE)),
        KeySpec::one(SOURCE, KeyFlags::RO.with(KeyFlags::ACCESS)),
    ],
    plan: Plan::Staged { read, decide, write },
    check: Some(|args, _| parse(args).map(|_| ())),
    since: "6.2.0",
    group: "sorted-set",
    summary: "Stores a range of members from sorted set in a key.",
    complexity: "O(log(N)+M) where N is the number of members in the source and M that of members stored",
    syntax: "dst src min max [BYSCORE | BYLEX] #sortby [REV] [LIMIT (offset count)]",
    ..Command::DEFAULT
}];

fn parse(args: Args<'_>) -> Result<Query<'_>, Error> {
    Query::parse(args, QUERY_AT, Preset { by: None, reverse: None, store: true })
}

fn decide(decide: &mut Decide<'_>) -> Next {
    if decide.passes_on_failure() {
        return Next::Reply;
    }
    for result in decide.results.iter_mut() {
        if let payload @ Payload::Value(_) = std::mem::take(&mut result.payload) {
            return Next::Run { stage: 1, on: On::Key(DESTINATION), payload };
        }
        decide.reply.append(&mut result.reply);
    }
    Next::Reply
}

/// Makes the set that is to be stored, in pieces if it is large; stores it if that is to be here, and ships it otherwise.
fn read(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply) -> Result<Flow, Error> {
    let query = parse(args)?;
    if !ctx.keys.contains(SOURCE) {
        return Ok(Flow::Done);
    }
    let (pacing, limits) = (ctx.pacing(), ctx.shard.settings.compact);
    let (mut set, done) = taken_up(ctx);
    let key = ctx.key(args.at(SOURCE));
    let source = ctx.lookup_once(key);
    let is_there = source.is_some();
    let next = match &source {
        None => None,
        Some(entry) => {
            let source = entry.sorted_set().ok_or(Error::WrongType)?;
            let part = query.part(source);
            let Some(piece) = pacing.piece(part.1, source.extent()) else { return Ok(Flow::Later) };
            fill(&mut set, source, (&query, part), (done, piece), &limits)
        }
    };
    drop(source);
    if !is_there {
        // Its time may have come when half of it was there.
        ctx.shard.keyspace.discard(Value::SortedSet(std::mem::take(&mut set)));
    }
    if next.is_none() && ctx.keys.contains(DESTINATION) {
        reply.int(set.as_ref().len() as i64);
        store(ctx, args.at(DESTINATION), set, EVENT);
        return Ok(Flow::Done);
    }
    let content = Detached { value: Value::SortedSet(set), expiry: None, form: StringForm::Plain };
    if let Some(next) = next {
        ctx.payload = Payload::Values(vec![(next as u32, content)]);
        return Ok(Flow::Again(1));
    }
    ctx.payload = Payload::Value(content);
    Ok(Flow::Done)
}

/// A set that is under way, and how many members it has.
fn taken_up(ctx: &mut Ctx<'_>) -> (SortedSet, usize) {
    if let Payload::Values(begun) = std::mem::take(&mut ctx.payload)
        && let Some((done, Detached { value: Value::SortedSet(set), .. })) = begun.into_iter().next()
    {
        return (set, done as usize);
    }
    Default::default()
}

/// Adds `piece` members of a part of a set to another one that has the first `done` of them. Returns how many that are then, or
/// `None` if all.
fn fill(
    set: &mut SortedSet,
    source: SortedSetRef<'_>,
    (query, (from, count)): (&Query<'_>, (usize, usize)),
    (done, piece): (usize, usize),
    limits: &CompactLimits,
) -> Option<usize> {
    let unsigned = unsigned_zeros(source, query, (from, count), limits);
    // In ascending order, whichever was asked for.
    let first = if query.reverse { source.len() - from - count } else { from };
    let (mut nth, mut few) = (done, Tally::default());
    // A small set is made at once.
    let is_few = count <= limits.sorted_entries;
    let end = if is_few { count } else { count.min(done.saturating_add(piece)) };
    set.expect(count, 0, limits);
    source.visit(first + done, end - done, false, &mut |member, score| {
        let visited = if query.reverse { count - 1 - nth } else { nth };
        let score = if visited < unsigned { score + 0.0 } else { score };
        nth += 1;
        if is_few {
            few.push(member, score);
        } else {
            set.insert(member, score, limits);
        }
    });
    if is_few {
        *set = SortedSet::from_sorted(&few, limits);
    }
    (end < count).then_some(end)
}

/// How many of the first members that are visited lose the sign of a zero: as in Valkey, where a set that has not grown large yet has
/// no -0.
fn unsigned_zeros(
    source: SortedSetRef<'_>,
    query: &Query<'_>,
    (from, count): (usize, usize),
    limits: &CompactLimits,
) -> usize {
    if matches!(query.range, Range::Rank(..)) && count > limits.sorted_entries {
        return 0;
    }
    let (mut is_small, mut unsigned) = (true, 0);
    source.visit(from, count.min(limits.sorted_entries), query.reverse, &mut |member, _| {
        is_small &= member.len() <= limits.sorted_value;
        unsigned += usize::from(is_small);
    });
    unsigned
}

fn write(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply) -> Result<Flow, Error> {
    if let Payload::Value(Detached { value: Value::SortedSet(set), .. }) = std::mem::take(&mut ctx.payload) {
        reply.int(set.as_ref().len() as i64);
        store(ctx, args.at(DESTINATION), set, EVENT);
    }
    Ok(Flow::Done)
}

#[cfg(test)]
mod tests {
    use crate::commands::testing::check_all;

    #[test]
    fn ranges_are_stored() {
        check_all(&[
            ("ZADD a 1 x 2 y 3 z 4 w\nSET d v", ":4\n+OK"),
            ("ZRANGESTORE d a 1 2\nZRANGE d 0 -1 WITHSCORES", ":2\n[\"y\", \"2\", \"z\", \"3\"]"),
            ("ZRANGESTORE d a 0 1 REV\nZRANGE d 0 -1", ":2\n[\"z\", \"w\"]"),
            ("ZRANGESTORE d a +inf (1 BYSCORE REV LIMIT 1 1\nZRANGE d 0 -1", ":1\n[\"z\"]"),
            ("ZRANGESTORE a a 0 -2\nZCARD a\nZRANGESTORE d none 0 1\nEXISTS d", ":3\n:3\n:0\n:0"),
            (
                "SET s v\nZRANGESTORE d s 0 1",
                "+OK\n-WRONGTYPE Operation against a key holding the wrong kind of value",
            ),
            ("ZRANGESTORE d a 0 1 WITHSCORES", "-ERR syntax error"),
        ]);
    }
}
