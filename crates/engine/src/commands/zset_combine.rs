//! How ZUNION, ZINTER, ZDIFF and their kin combine sets: by which options, with which scores, and what one shard sends of its sets for
//! those of another.

use super::zset_range::parse_score;
use crate::args::Args;
use crate::ctx::{Payload, SentScores};
use crate::errors::Error;
use crate::keyspace::{EntryRef, ValueRef};
use crate::values::{SetRef, SortedSetRef, Tally, TallyIndex};

/// How sets are combined.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Operation {
    Union,
    Inter,
    /// The first without the others.
    Diff,
}

/// What a command does, by its name.
#[derive(Clone, Copy, Debug)]
pub(super) struct Form {
    pub(super) op: Operation,
    /// Only the number of members is wanted.
    pub(super) counts: bool,
    /// What is told of a key that has got the result.
    pub(super) event: &'static str,
}

pub(super) const UNION: Form = Form { op: Operation::Union, counts: false, event: "zunionstore" };
pub(super) const INTER: Form = Form { op: Operation::Inter, counts: false, event: "zinterstore" };
pub(super) const DIFF: Form = Form { op: Operation::Diff, counts: false, event: "zdiffstore" };
pub(super) const CARD: Form = Form { counts: true, ..INTER };

/// How the scores that a member has become one.
#[derive(Clone, Copy, Debug)]
pub(super) enum Aggregate {
    Sum,
    Min,
    Max,
}

impl Aggregate {
    fn of(self, score: f64, other: f64) -> f64 {
        match self {
            Self::Sum => number(score + other),
            Self::Min if other < score => other,
            Self::Max if other > score => other,
            Self::Min | Self::Max => score,
        }
    }
}

/// A score where the outcome may be none, such as that of infinity minus itself: 0 then, as in Valkey.
fn number(score: f64) -> f64 {
    if score.is_nan() { 0.0 } else { score }
}

/// The number of sources, which stands at `at`, in front of them.
pub(super) fn sources(args: Args<'_>, at: usize) -> Result<usize, Error> {
    let count = args.int(at)?;
    if count < 1 {
        let name = String::from_utf8_lossy(args.at(0)).to_lowercase();
        return Err(Error::owned(format!("ERR at least 1 input key is needed for '{name}' command")));
    }
    let count = usize::try_from(count).ok().filter(|count| *count < args.len() - at);
    count.ok_or(Error::Syntax)
}

/// What stands behind the sources.
#[derive(Clone, Copy)]
pub(super) struct Options<'a> {
    args: Args<'a>,
    /// Where the weights stand.
    weights_at: Option<usize>,
    aggregate: Aggregate,
    pub(super) scores: bool,
    /// 0 for none.
    limit: usize,
}

impl<'a> Options<'a> {
    /// Reads those behind the sources, whose number stands at `at`.
    pub(super) fn parse(args: Args<'a>, at: usize, form: Form) -> Result<Self, Error> {
        let count = sources(args, at)?;
        let combines = form.op != Operation::Diff && !form.counts;
        let mut options = Self { args, weights_at: None, aggregate: Aggregate::Sum, scores: false, limit: 0 };
        let mut idx = at + 1 + count;
        while idx < args.len() {
            let behind = args.len() - idx - 1;
            if combines && behind >= count && args.is(idx, "WEIGHTS") {
                options.weights_at = Some(idx + 1);
                let weight =
                    |idx| parse_score(args.at(idx)).ok_or(Error::text("ERR weight value is not a float"));
                (idx + 1..=idx + count).try_for_each(|idx| weight(idx).map(|_| ()))?;
                idx += count;
            } else if combines && behind >= 1 && args.is(idx, "AGGREGATE") {
                options.aggregate = match () {
                    () if args.is(idx + 1, "SUM") => Aggregate::Sum,
                    () if args.is(idx + 1, "MIN") => Aggregate::Min,
                    () if args.is(idx + 1, "MAX") => Aggregate::Max,
                    () => return Err(Error::Syntax),
                };
                idx += 1;
            } else if at == READ_COUNT_AT && !form.counts && args.is(idx, "WITHSCORES") {
                options.scores = true;
            } else if form.counts && behind >= 1 && args.is(idx, "LIMIT") {
                let limit = args.int(idx + 1).ok().and_then(|limit| usize::try_from(limit).ok());
                options.limit = limit.ok_or(Error::text("ERR LIMIT can't be negative"))?;
                idx += 1;
            } else {
                return Err(Error::Syntax);
            }
            idx += 1;
        }
        Ok(options)
    }

    fn weight(&self, place: usize) -> f64 {
        let at = self.weights_at.map(|at| at + place);
        at.and_then(|at| parse_score(self.args.at(at))).unwrap_or(1.0)
    }
}

/// Where the number of sources stands in commands that reply with the result, and in those that store it.
pub(super) const READ_COUNT_AT: usize = 1;
pub(super) const STORE_COUNT_AT: usize = 2;

/// Members of a sorted set that are visited before their visitor may end the visit.
const VISIT_STEP: usize = 256;

/// Members with scores to be combined.
pub(super) enum Members<'a> {
    Sorted(SortedSetRef<'a>),
    Plain(SetRef<'a>),
    Sent(&'a SentScores, Option<TallyIndex>),
}

/// One of the sets that are combined.
pub(super) struct Source<'a> {
    /// How many members the whole set has.
    len: usize,
    weight: f64,
    members: Members<'a>,
}

impl Members<'_> {
    /// Visits them, while `visit` says so.
    fn try_each(&self, visit: &mut dyn FnMut(&[u8], f64) -> bool) {
        match self {
            Self::Sorted(set) => {
                let (mut from, mut on) = (0, true);
                while on && from < set.len() {
                    set.visit(from, VISIT_STEP, false, &mut |member, score| on = on && visit(member, score));
                    from += VISIT_STEP;
                }
            }
            Self::Plain(set) => {
                set.try_each(|member| member.with_text(|text| visit(text, 1.0)));
            }
            Self::Sent(sent, _) => {
                sent.members.iter().all(|(member, score)| visit(member, score));
            }
        }
    }

    fn score(&self, member: &[u8]) -> Option<f64> {
        match self {
            Self::Sorted(set) => set.score(member),
            Self::Plain(set) => set.contains(member).then_some(1.0),
            Self::Sent(sent, index) => index.as_ref()?.score(&sent.members, member),
        }
    }
}

/// The result of sets in the order of their keys, in no order; an intersection ends at `limit` members, 0 for none.
pub(super) fn combine(
    op: Operation,
    mut sources: Vec<Source<'_>>,
    options: &Options<'_>,
    seed: u64,
) -> Tally {
    let mut result = Tally::default();
    if op == Operation::Diff {
        let Some((first, others)) = sources.split_first() else { return result };
        first.members.try_each(&mut |member, score| {
            if others.iter().all(|other| other.members.score(member).is_none()) {
                result.push(member, score);
            }
            true
        });
        return result;
    }
    sources.sort_by_key(|source| source.len);
    if op == Operation::Union {
        let mut index = TallyIndex::new(sources.last().map_or(0, |source| source.len), seed);
        for source in &sources {
            source.members.try_each(&mut |member, score| {
                let score = number(score * source.weight);
                index.add(&mut result, member, score, |old| options.aggregate.of(old, score));
                true
            });
        }
        return result;
    }
    let Some((smallest, others)) = sources.split_first() else { return result };
    smallest.members.try_each(&mut |member, score| {
        let first = number(score * smallest.weight);
        let score = others.iter().try_fold(first, |score, other| {
            Some(options.aggregate.of(score, other.members.score(member)? * other.weight))
        });
        if let Some(score) = score {
            result.push(member, score);
        }
        options.limit == 0 || result.len() < options.limit
    });
    result
}

pub(super) fn is_source(value: ValueRef<'_>) -> bool {
    matches!(value, ValueRef::Set(_) | ValueRef::SortedSet(_))
}

/// The members of keys, of which some may not be there.
pub(super) fn views<'a>(entries: &'a [Option<EntryRef<'_>>]) -> Vec<Members<'a>> {
    let members = |entry: &'a Option<EntryRef<'_>>| match entry.as_ref().map(|entry| entry.value()) {
        Some(ValueRef::SortedSet(set)) => Members::Sorted(set),
        Some(ValueRef::Set(set)) => Members::Plain(set),
        _ => Members::Plain(SetRef::EMPTY),
    };
    entries.iter().map(members).collect()
}

impl Members<'_> {
    fn len(&self) -> usize {
        match self {
            Self::Sorted(set) => set.len(),
            Self::Plain(set) => set.len(),
            Self::Sent(sent, _) => sent.len,
        }
    }
}

/// The sources whose places among all of them are given, here or sent.
pub(super) fn weighed<'a>(members: Vec<(usize, Members<'a>)>, options: &Options<'_>) -> Vec<Source<'a>> {
    let source = |(place, members): (usize, Members<'a>)| Source {
        len: members.len(),
        weight: options.weight(place),
        members,
    };
    members.into_iter().map(source).collect()
}

/// What a shard ships of its sets, for those of the other shards. Of an intersection only members of all sets that it has; of a
/// difference, where it has the first set, what its others leave of that one.
pub(super) fn send(form: Form, own: &[(usize, Members<'_>)], seed: u64) -> Payload {
    let mut sent: Vec<SentScores> = Vec::with_capacity(own.len());
    let new = |place, len| SentScores { place, len, members: Tally::default(), seed };
    let whole = |place: usize, members: &Members<'_>| {
        let mut one = new(place, members.len());
        members.try_each(&mut |member, score| {
            one.members.push(member, score);
            true
        });
        one
    };
    match form.op {
        Operation::Diff if own.first().is_some_and(|(place, _)| *place == 0) => {
            let (first, others) = own.split_first().expect("it has the first");
            let mut left = new(0, first.1.len());
            first.1.try_each(&mut |member, score| {
                if others.iter().all(|(_, other)| other.score(member).is_none()) {
                    left.members.push(member, score);
                }
                true
            });
            sent.push(left);
        }
        Operation::Inter if own.len() > 1 => {
            sent.extend(own.iter().map(|(place, members)| new(*place, members.len())));
            let smallest = (0..own.len()).min_by_key(|at| own[*at].1.len()).expect("there are two");
            let mut scores = vec![0.0; own.len()];
            own[smallest].1.try_each(&mut |member, _| {
                let in_all = own.iter().zip(&mut scores).all(|((_, members), score)| {
                    members.score(member).inspect(|found| *score = *found).is_some()
                });
                if in_all {
                    sent.iter_mut().zip(&scores).for_each(|(one, score)| one.members.push(member, *score));
                }
                true
            });
        }
        _ => sent.extend(own.iter().map(|(place, members)| whole(*place, members))),
    }
    Payload::Scores(sent)
}

/// The result of what the shards have sent, not yet in order.
pub(super) fn combine_sent<'a>(
    form: Form,
    payloads: impl Iterator<Item = &'a Payload>,
    options: &Options<'_>,
) -> Tally {
    let mut sent: Vec<&SentScores> = Vec::new();
    for payload in payloads {
        if let Payload::Scores(own) = payload {
            sent.extend(own);
        }
    }
    sent.sort_by_key(|one| one.place);
    let seed = sent.first().map_or(0, |one| one.seed);
    let index =
        |one: &SentScores| (form.op != Operation::Union).then(|| TallyIndex::of(&one.members, one.seed));
    let members = sent.into_iter().map(|one| (one.place, Members::Sent(one, index(one)))).collect();
    combine(form.op, weighed(members, options), options, seed)
}
