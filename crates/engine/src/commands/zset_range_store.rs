//! ZRANGESTORE: a range of a sorted set in a key of its own.

use super::zset_algebra::sent;
use super::zset_pieces::store_members;
use super::zset_range::{Preset, Query, Range};
use crate::args::Args;
use crate::command::{Command, Flags, Flow, KeyFlags, KeySpec, Plan};
use crate::ctx::{Ctx, Decide, Next, On, Payload, SentScores};
use crate::errors::Error;
use crate::values::Tally;
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
    match sent(decide, Ok(())) {
        Ok(sent) => Next::Run { stage: 1, on: On::Key(DESTINATION), payload: Payload::Scores(sent) },
        Err(next) => next,
    }
}

fn read(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply) -> Result<Flow, Error> {
    let query = parse(args)?;
    if !ctx.keys.contains(SOURCE) {
        return Ok(Flow::Done);
    }
    let key = ctx.key(args.at(SOURCE));
    let mut found = Tally::default();
    let limits = ctx.shard.settings.compact;
    if let Some(entry) = ctx.lookup(key) {
        let set = entry.sorted_set().ok_or(Error::WrongType)?;
        let (from, count) = query.part(set);
        // As in Valkey, where a set that has not grown large yet has no -0.
        let mut small = !matches!(query.range, Range::Rank(..)) || count <= limits.sorted_entries;
        set.visit(from, count, query.reverse, &mut |member, score| {
            small &= found.len() < limits.sorted_entries && member.len() <= limits.sorted_value;
            found.push(member, if small { score + 0.0 } else { score });
        });
    }
    if ctx.keys.contains(DESTINATION) {
        store_members(ctx, args.at(DESTINATION), found, EVENT);
        reply.int(ctx.elements as i64);
    } else {
        let seed = ctx.shard.settings.compact.seed;
        ctx.payload =
            Payload::Scores(vec![SentScores { places: vec![0], len: found.len(), members: found, seed }]);
    }
    Ok(Flow::Done)
}

fn write(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply) -> Result<Flow, Error> {
    if let Payload::Scores(sent) = std::mem::take(&mut ctx.payload) {
        let found = sent.into_iter().next().map(|one| one.members).unwrap_or_default();
        store_members(ctx, args.at(DESTINATION), found, EVENT);
        reply.int(ctx.elements as i64);
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
