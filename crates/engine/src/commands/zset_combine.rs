//! How ZUNION, ZINTER, ZDIFF and their kin combine sets: by which options, with which scores, and what one shard sends of its sets for
//! those of another.

use super::set_combine::Operation;
use super::zset_range::parse_score;
use crate::args::Args;
use crate::command::Pacing;
use crate::ctx::SentScores;
use crate::errors::Error;
use crate::keyspace::{EntryRef, ValueRef};
use crate::values::{SetRef, SortedSetRef, Tally, TallyIndex};
use hashbrown::{HashMap, HashSet};

/// What a command does, by its name.
#[derive(Clone, Copy, Debug)]
pub(super) struct Form {
    pub(super) op: Operation,
    /// Only the number of members is wanted.
    pub(super) counts: bool,
    /// The result is stored.
    pub(super) stores: bool,
    /// What is told of a key that has got it.
    pub(super) event: &'static str,
}

impl Form {
    /// Where the number of sources stands, in front of them.
    pub(super) const fn count_at(self) -> usize {
        if self.stores { 2 } else { 1 }
    }

    /// The same that stores its result.
    pub(super) const fn stored(self) -> Self {
        Self { stores: true, ..self }
    }
}

pub(super) const UNION: Form =
    Form { op: Operation::Union, counts: false, stores: false, event: "zunionstore" };
pub(super) const INTER: Form =
    Form { op: Operation::Inter, counts: false, stores: false, event: "zinterstore" };
pub(super) const DIFF: Form = Form { op: Operation::Diff, counts: false, stores: false, event: "zdiffstore" };
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
    /// Reads those behind the sources.
    pub(super) fn parse(args: Args<'a>, form: Form) -> Result<Self, Error> {
        let at = form.count_at();
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
            } else if !form.stores && !form.counts && args.is(idx, "WITHSCORES") {
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

/// Members that are visited before it is looked at how much has been done.
const VISIT_STEP: usize = 256;

/// Members with scores to be combined.
#[derive(Clone, Copy)]
pub(super) enum Members<'a> {
    Sorted(SortedSetRef<'a>),
    Plain(SetRef<'a>),
    /// With an index, where members are looked for.
    Sent(&'a SentScores, Option<&'a TallyIndex>),
}

/// One of the sets that are combined.
pub(super) struct Source<'a> {
    /// How many members the whole set has.
    len: usize,
    weight: f64,
    members: Members<'a>,
}

impl Members<'_> {
    /// Visits about `budget` of them from a place on; returns where to go on.
    fn walk(&self, from: u64, budget: usize, visit: &mut dyn FnMut(&[u8], f64)) -> Option<u64> {
        match self {
            Self::Sorted(set) => {
                set.visit(from as usize, budget, false, visit);
                let next = from.saturating_add(budget as u64);
                (next < set.len() as u64).then_some(next)
            }
            Self::Plain(set) => set.walk(from, budget, |member| member.with_text(|text| visit(text, 1.0))),
            Self::Sent(sent, _) => sent.members.walk(from, budget, visit),
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

/// What has been found so far of a result, in no order.
#[derive(Clone, Debug, Default)]
pub(super) struct Found {
    pub(super) members: Tally,
    /// Of a union.
    index: Option<TallyIndex>,
}

impl Found {
    /// Nothing of a result of these sources. With room for all that there may be, if a look at them takes long: what grows is
    /// copied at once.
    pub(super) fn new(op: Operation, sources: &[Source<'_>], takes_long: bool, seed: u64) -> Self {
        let largest = sources.iter().map(|source| source.len).max().unwrap_or(0);
        // A set that comes more than once has its members only once.
        let mut seen = HashSet::new();
        let mut members =
            sources.iter().map(|source| &source.members).filter(|members| seen.insert(members.address()));
        let room = match op {
            Operation::Union => {
                members.fold((0, 0), |(len, bytes), more| (len + more.len(), bytes + more.bytes()))
            }
            _ => members.next().map_or((0, 0), |members| (members.len(), members.bytes())),
        };
        let (len, bytes) = if takes_long { room } else { (0, 0) };
        Self {
            members: Tally::with_capacity(len, bytes),
            index: (op == Operation::Union).then(|| TallyIndex::new(len.max(largest), seed)),
        }
    }
}

/// Puts sources, which come in the order of their keys, into the order in which they are combined.
pub(super) fn arrange(op: Operation, sources: &mut [Source<'_>]) {
    if op != Operation::Diff {
        sources.sort_by_key(|source| source.len);
    }
}

/// How many members to visit before it is looked at how much has been done, where each is looked for in `others` sets.
fn visit_step(budget: usize, others: usize) -> usize {
    (budget / others.max(1)).clamp(1, VISIT_STEP)
}

/// Looks at members of the sources, from a place in one of them on, until about `budget` have been looked at or looked for;
/// returns where to go on. An intersection ends at `limit` members, 0 for none.
pub(super) fn combine_some(
    op: Operation,
    sources: &[Source<'_>],
    options: &Options<'_>,
    mut place: (usize, u64),
    mut budget: usize,
    found: &mut Found,
) -> Option<(usize, u64)> {
    let others = sources.get(1..).unwrap_or_default();
    let (limit, Found { members, index }) = (options.limit, found);
    while let Some(source) = sources.get(place.0) {
        if budget == 0 {
            return Some(place);
        }
        let (walked, step) = (&source.members, visit_step(budget, others.len()));
        let next = match (op, &mut *index) {
            (Operation::Union, Some(index)) => walked.walk(place.1, budget, &mut |member, score| {
                budget = budget.saturating_sub(1);
                let score = number(score * source.weight);
                index.add(members, member, score, |old| options.aggregate.of(old, score));
            }),
            (Operation::Inter, _) => walked.walk(place.1, step, &mut |member, score| {
                let first = number(score * source.weight);
                let score = others.iter().try_fold(first, |score, other| {
                    budget = budget.saturating_sub(1);
                    Some(options.aggregate.of(score, other.members.score(member)? * other.weight))
                });
                budget = budget.saturating_sub(usize::from(others.is_empty()));
                if let Some(score) = score.filter(|_| limit == 0 || members.len() < limit) {
                    members.push(member, score);
                }
            }),
            _ => walked.walk(place.1, step, &mut |member, score| {
                if is_in_none(member, others.iter().map(|other| &other.members), &mut budget) {
                    members.push(member, score);
                }
            }),
        };
        place = match next {
            Some(_) if limit != 0 && members.len() >= limit => return None,
            Some(from) => (place.0, from),
            None if op == Operation::Union => (place.0 + 1, 0),
            None => return None,
        };
    }
    None
}

/// Whether none of these sets has a member; each that is looked into takes one of `budget`.
fn is_in_none<'a, 'b: 'a>(
    member: &[u8],
    mut others: impl ExactSizeIterator<Item = &'a Members<'b>>,
    budget: &mut usize,
) -> bool {
    *budget = budget.saturating_sub(usize::from(others.len() == 0));
    others.all(|other| {
        *budget = budget.saturating_sub(1);
        other.score(member).is_none()
    })
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

    /// Where they are in memory: what tells one set from another.
    fn address(&self) -> usize {
        match self {
            Self::Sorted(SortedSetRef::Pack(pack)) | Self::Plain(SetRef::Pack(pack)) => {
                pack.bytes().as_ptr().addr()
            }
            Self::Sorted(SortedSetRef::Ranked(ranked)) => std::ptr::from_ref(*ranked).addr(),
            Self::Plain(SetRef::Ints(ints)) => ints.bytes().as_ptr().addr(),
            Self::Plain(SetRef::Table(table)) => std::ptr::from_ref(*table).addr(),
            Self::Sent(sent, _) => std::ptr::from_ref(*sent).addr(),
        }
    }

    /// How long they may be together, about.
    fn bytes(&self) -> usize {
        match self {
            Self::Sorted(set) => set.extent().1,
            Self::Plain(set) => set.extent().1,
            Self::Sent(sent, _) => sent.members.bytes(),
        }
    }
}

/// How many members have to be looked at, and what they look like ([`crate::command::Pacing`]).
fn extent<'a, 'b: 'a>(
    op: Operation,
    sets: impl ExactSizeIterator<Item = &'a Members<'b>>,
) -> (usize, (usize, usize)) {
    let searched = if op == Operation::Union { 1 } else { sets.len().saturating_sub(1).max(1) };
    let sizes = sets.map(|members| (members.len(), members.bytes()));
    let (len, bytes) = match op {
        Operation::Union => sizes.fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1)),
        Operation::Inter => sizes.min_by_key(|(len, _)| *len).unwrap_or((0, 0)),
        Operation::Diff => sizes.take(1).fold((0, 0), |_, one| one),
    };
    (searched, (len, bytes))
}

/// How much to do in this call, and whether a look at all takes long; `None` if that would not be brief and has to be.
pub(super) fn piece(pacing: Pacing, op: Operation, own: &[(usize, Members<'_>)]) -> Option<(usize, bool)> {
    let (searched, extent) = extent(op, own.iter().map(|(_, members)| members));
    let count = extent.0.saturating_mul(searched);
    Some((pacing.piece(count, extent)?, !pacing.is_brief(count, extent)))
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

/// A set, with all its places among those of the command.
pub(super) type Placed<'a> = (Vec<usize>, Members<'a>);

/// Each set once, however often its key comes.
pub(super) fn placed<'a>(own: &[(usize, Members<'a>)]) -> Vec<Placed<'a>> {
    let (mut placed, mut known) = (Vec::<Placed<'a>>::new(), HashMap::new());
    for (place, members) in own {
        let nth = *known.entry(members.address()).or_insert(placed.len());
        match placed.get_mut(nth) {
            Some((places, _)) => places.push(*place),
            None => placed.push((vec![*place], *members)),
        }
    }
    placed
}

/// Whether a shard has the first set of a difference: it ships what its others leave of that one.
fn has_first(op: Operation, own: &[Placed<'_>]) -> bool {
    op == Operation::Diff && own.first().is_some_and(|(places, _)| places[0] == 0)
}

/// Looks at members that a shard ships of its sets, for those of the other shards, until about `budget` have been looked at or looked
/// for; returns where to go on. Of an intersection only members of all sets that it has; of a difference, where it has the first
/// set, what its others leave of that one.
pub(super) fn send_some(
    op: Operation,
    own: &[Placed<'_>],
    mut place: (usize, u64),
    mut budget: usize,
    sent: &mut [SentScores],
) -> Option<(usize, u64)> {
    let is_rest = has_first(op, own);
    let is_common = op == Operation::Inter && own.len() > 1;
    let smallest = own.iter().min_by_key(|(_, members)| members.len()).filter(|_| is_common);
    let mut scores = vec![0.0; if smallest.is_some() { own.len() } else { 0 }];
    while let Some((places, members)) = own.get(place.0) {
        if budget == 0 {
            return Some(place);
        }
        let step = visit_step(budget, own.len() - 1);
        let next = if is_rest {
            // Nothing is left of what is taken from itself.
            let others = own[1..].iter().map(|(_, members)| members);
            let rest = (places.len() == 1).then_some(members);
            rest.and_then(|rest| {
                rest.walk(place.1, step, &mut |member, score| {
                    if is_in_none(member, others.clone(), &mut budget) {
                        sent[0].members.push(member, score);
                    }
                })
            })
        } else if let Some((_, smallest)) = smallest {
            smallest.walk(place.1, step, &mut |member, _| {
                let in_all = own.iter().zip(&mut scores).all(|((_, members), score)| {
                    budget = budget.saturating_sub(1);
                    members.score(member).inspect(|found| *score = *found).is_some()
                });
                if in_all {
                    sent.iter_mut().zip(&scores).for_each(|(one, score)| one.members.push(member, *score));
                }
            })
        } else {
            members.walk(place.1, budget, &mut |member, score| {
                budget = budget.saturating_sub(1);
                sent[place.0].members.push(member, score);
            })
        };
        place = match next {
            Some(from) => (place.0, from),
            None if is_rest || smallest.is_some() => return None,
            None => (place.0 + 1, 0),
        };
    }
    None
}

/// What is to be filled by [`send_some`].
pub(super) fn to_send(op: Operation, own: &[Placed<'_>], takes_long: bool, seed: u64) -> Vec<SentScores> {
    let count = if has_first(op, own) { 1 } else { own.len() };
    let new = |(places, members): &Placed<'_>| {
        let (len, bytes) = match op {
            _ if !takes_long => (0, 0),
            Operation::Inter => extent(op, own.iter().map(|(_, members)| members)).1,
            _ => (members.len(), members.bytes()),
        };
        let members_found = Tally::with_capacity(len, bytes);
        SentScores { places: places.clone(), len: members.len(), members: members_found, seed }
    };
    own[..count].iter().map(new).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::values::{Element, Set};

    /// A thousand times the same set is no reason for room for a thousand, nor to ship it a thousand times.
    #[test]
    fn a_set_that_comes_often_is_one() {
        let mut set = Set::default();
        (0..3000).for_each(|n| {
            let _ = Element::Int(n).with_text(|text| set.add(text, &Default::default()));
        });
        let own: Vec<_> = (0..1000).map(|place| (place, Members::Plain(set.as_ref()))).collect();
        let sources: Vec<_> =
            own.iter().map(|(_, members)| Source { len: 3000, weight: 1.0, members: *members }).collect();
        for op in [Operation::Union, Operation::Inter, Operation::Diff] {
            let room = Found::new(op, &sources, true, 7).members.room();
            assert!((3000..6000).contains(&room), "{room} for {op:?}");
            let sent = to_send(op, &placed(&own), true, 7);
            assert_eq!(sent.iter().map(|one| one.places.len()).collect::<Vec<_>>(), [1000]);
        }
    }
}
