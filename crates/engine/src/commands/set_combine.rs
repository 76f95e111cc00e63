//! How SINTER, SUNION, SDIFF and their kin combine sets, at once or a piece at a time.
//!
//! ```text
//! find: visit the members of one set after the other, look for them in the others ─▶ write those that had to be collected first
//! ```

use super::element::write_element;
use crate::args::Args;
use crate::command::{Flow, Pace, Pacing};
use crate::ctx::{Ctx, Payload};
use crate::errors::Error;
use crate::events::EventClasses;
use crate::keyspace::{Detached, EntryRef, Keyspace, NewValue, StringForm, Value, ValueRef};
use crate::settings::CompactLimits;
use crate::values::{Element, Set, SetRef};
use corelane_resp::{Mark, Reply};

/// Where the result of a command that stores it goes.
pub(super) const DESTINATION: usize = 1;
/// Members that are visited before it is looked at how much has been done.
const VISIT_STEP: usize = 64;
/// A union of more sets than these is collected, rather than each member be looked for in all sets before.
const SEARCHED_MAX: usize = 2;

/// To collect a member takes as long as to visit so many.
const COLLECTED_COST: usize = 3;

/// How sets are combined.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Operation {
    Inter,
    Union,
    /// The first without the others.
    Diff,
}

/// What becomes of the result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sink {
    /// Its members are the reply.
    Reply,
    /// Their number is, or this limit, unless that is 0.
    Count { limit: usize },
    /// It is stored at [`DESTINATION`].
    Key,
    /// It is what this shard has to contribute, in a difference with the first set or without it.
    Share { has_first: bool },
}

/// A combination of sets that is under way.
#[derive(Clone, Debug, Default)]
pub struct SetWork {
    /// How many of the keys are there; when the time of one has come meanwhile, the work begins again.
    present: usize,
    /// The sets that other shards have sent, in the order in which they are combined; if none, those of keys are.
    sent: Vec<Detached>,
    phase: Phase,
    /// What has been found, where it is not the reply.
    result: Option<Set>,
    count: usize,
}

/// How far it is.
#[derive(Clone, Copy, Debug)]
enum Phase {
    /// Visits the members of this set, from this place on.
    Find(usize, u64),
    /// Writes what has been collected, from this place on.
    Write(u64),
}

impl Default for Phase {
    fn default() -> Self {
        Self::Find(0, 0)
    }
}

impl Sink {
    const fn limit(self) -> usize {
        if let Self::Count { limit } = self { limit } else { 0 }
    }
}

impl SetWork {
    fn of(mut sent: Vec<(u32, Detached)>) -> Self {
        sent.sort_by_key(|(number, _)| *number);
        Self { sent: sent.into_iter().map(|(_, content)| content).collect(), ..Self::default() }
    }

    /// Makes a set for the result, if it needs one. Intersections begin in the form of the smallest set, or of the first that was
    /// sent, others grow: as in Valkey.
    fn begin(&mut self, op: Operation, sink: Sink, sets: &[SetRef<'_>], are_sent: bool) {
        let collects = matches!(sink, Sink::Key | Sink::Share { .. })
            || (op == Operation::Union && sets.len() > SEARCHED_MAX);
        if collects && self.result.is_none() {
            let like = if are_sent { sets.first() } else { sets.iter().min_by_key(|set| set.len()) };
            self.result = Some(match like {
                Some(like) if op == Operation::Inter => Set::like(*like),
                _ => Set::default(),
            });
        }
    }

    /// Does about as much as it takes to visit `budget` members; true when all is done.
    fn step(
        &mut self,
        (op, sink): (Operation, Sink),
        sets: &[SetRef<'_>],
        budget: usize,
        limits: &CompactLimits,
        reply: &mut Reply,
    ) -> bool {
        match self.phase {
            Phase::Find(nth, from) => {
                let wanted = if sink.limit() == 0 { usize::MAX } else { sink.limit() - self.count };
                let Self { result, count, .. } = self;
                let next = visit(op, sets, (nth, from), (budget, wanted), |member| {
                    *count += 1;
                    match (&mut *result, sink) {
                        (Some(set), _) => drop(member.with_text(|text| set.add(text, limits))),
                        (None, Sink::Count { .. }) => {}
                        (None, _) => write_element(reply, member),
                    }
                });
                match next {
                    Some((nth, from)) => self.phase = Phase::Find(nth, from),
                    None if sink == Sink::Reply && self.result.is_some() => self.phase = Phase::Write(0),
                    None => return true,
                }
            }
            Phase::Write(from) => {
                let set = self.result.as_ref().map_or(SetRef::EMPTY, Set::as_ref);
                self.count = set.len();
                let Some(next) = set.walk(from, budget, |member| write_element(reply, member)) else {
                    return true;
                };
                self.phase = Phase::Write(next);
            }
        }
        false
    }

    /// Whether only writing is left.
    const fn has_found(&self) -> bool {
        matches!(self.phase, Phase::Write(_))
    }

    /// Prepares for the sets, and says how much to do in this call; `None` if that would not be brief and has to be. While sets are
    /// looked at, that is not less than to find so many of them again takes.
    fn piece(
        &mut self,
        pacing: Pacing,
        (op, sink): (Operation, Sink),
        sets: &[SetRef<'_>],
        are_sent: bool,
    ) -> Option<usize> {
        if let Some(result) = self.result.as_ref().filter(|_| self.has_found()) {
            let result = result.as_ref();
            return pacing.piece(result.len(), result.extent());
        }
        let piece = piece(pacing, op, sets)?;
        self.begin(op, sink, sets, are_sent);
        let cost = if self.result.is_some() { COLLECTED_COST } else { 1 };
        Some((piece / cost).max(sets.len()).max(1))
    }

    /// Completes a reply that begins at `start`.
    fn end_reply(&self, sink: Sink, start: Mark, reply: &mut Reply) {
        if let Sink::Count { limit } = sink {
            let count = if limit == 0 { self.count } else { self.count.min(limit) };
            return reply.int(count as i64);
        }
        let mut members = reply.split_off(start);
        reply.set(self.count);
        reply.append(&mut members);
    }

    /// Gives up, and has what it has collected freed by and by.
    pub(crate) fn discard(self, keyspace: &mut Keyspace) {
        let sent = self.sent.into_iter().map(|content| content.value);
        sent.chain(self.result.map(Value::Set)).for_each(|value| keyspace.discard(value));
    }
}

/// Visits members of the result, from a place in a set on, until about `budget` have been looked at or looked for, or about `wanted`
/// found. Returns where to go on.
fn visit<'a>(
    op: Operation,
    sets: &[SetRef<'a>],
    (nth, from): (usize, u64),
    (mut budget, mut wanted): (usize, usize),
    mut visit: impl FnMut(Element<'a>),
) -> Option<(usize, u64)> {
    if op == Operation::Union {
        let mut place = (nth, from);
        while let Some(set) = sets.get(place.0) {
            if budget == 0 {
                return Some(place);
            }
            // Who collects finds out itself what it has already.
            let earlier = if sets.len() > SEARCHED_MAX { &[] } else { &sets[..place.0] };
            let next = set.walk(place.1, budget, |member| {
                budget = budget.saturating_sub(1);
                if !earlier.iter().any(|set| set.has(member)) {
                    visit(member);
                }
            });
            place = next.map_or((place.0 + 1, 0), |from| (place.0, from));
        }
        return None;
    }
    let mut others = sets.to_vec();
    if op == Operation::Inter {
        others.sort_by_key(|set| set.len());
    }
    let first = (!others.is_empty()).then(|| others.remove(0))?;
    let mut from = from;
    while budget > 0 {
        let step = (budget / others.len().max(1)).clamp(1, VISIT_STEP);
        from = first.walk(from, step, |member| {
            let mut looked = 0;
            let mut has = |set: &SetRef<'_>| {
                looked += 1;
                set.has(member)
            };
            let found = match op {
                Operation::Inter => others.iter().all(&mut has),
                _ => !others.iter().any(&mut has),
            };
            budget = budget.saturating_sub(looked.max(1));
            if found {
                wanted = wanted.saturating_sub(1);
                visit(member);
            }
        })?;
        if wanted == 0 {
            return None;
        }
    }
    Some((0, from))
}

/// How much to do in this call; `None` if that would not be brief and has to be.
fn piece(pacing: Pacing, op: Operation, sets: &[SetRef<'_>]) -> Option<usize> {
    let sum = |(len, bytes): (usize, usize), set: &SetRef<'_>| {
        let (more_len, more_bytes) = set.extent();
        (len + more_len, bytes + more_bytes)
    };
    let (len, bytes) = match op {
        Operation::Union => sets.iter().fold((0, 0), sum),
        Operation::Inter => sets.iter().min_by_key(|set| set.len()).map_or((0, 0), |set| set.extent()),
        Operation::Diff => sets.first().map_or((0, 0), |set| set.extent()),
    };
    let searched = if op == Operation::Union { 1 } else { sets.len().saturating_sub(1).max(1) };
    pacing.piece(len.saturating_mul(searched), (len, bytes))
}

/// Combines the sets of `keys`, or those that were sent to this shard.
pub(super) fn run(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    keys: &[usize],
    (op, sink): (Operation, Sink),
    reply: &mut Reply,
) -> Result<Flow, Error> {
    let op = match (op, sink) {
        (Operation::Diff, Sink::Share { has_first: false }) => Operation::Union,
        _ => op,
    };
    let (pacing, limits) = (ctx.pacing(), ctx.shard.settings.compact);
    let mut work = take_up(ctx, args, keys, reply)?;
    let sent = std::mem::take(&mut work.sent);
    let entries = if work.has_found() { Vec::new() } else { hold(ctx, args, keys) };
    let sets: Vec<SetRef<'_>> =
        if sent.is_empty() { views(&entries) } else { sent.iter().filter_map(set_of).collect() };
    let Some(piece) = work.piece(pacing, (op, sink), &sets, !sent.is_empty()) else { return Ok(Flow::Later) };
    let smallest = sets.iter().map(|set| set.len()).min().unwrap_or(0);
    loop {
        if work.step((op, sink), &sets, piece, &limits, reply) {
            break;
        }
        if pacing.pace == Pace::Pieces {
            work.sent = sent;
            ctx.payload = Payload::Combining(Box::new(work));
            return Ok(Flow::Again(1));
        }
    }
    match sink {
        Sink::Reply | Sink::Count { .. } => work.end_reply(sink, Mark::default(), reply),
        Sink::Key => store(ctx, args, narrowed(work.result.take(), op, &limits), op, reply),
        Sink::Share { .. } => {
            let set = narrowed(work.result.take(), op, &limits);
            let number = match (op, sink) {
                (Operation::Inter, _) => u32::try_from(smallest).unwrap_or(u32::MAX),
                (_, Sink::Share { has_first: false }) => 1,
                _ => 0,
            };
            let content = Detached { value: Value::Set(set), expiry: None, form: StringForm::Plain };
            ctx.payload = Payload::Values(vec![(number, content)]);
        }
    }
    work.sent = sent;
    work.discard(&mut ctx.shard.keyspace);
    Ok(Flow::Done)
}

/// The result at a coordinator, for the client, of what shards have sent.
pub(super) fn combine_sent((op, sink): (Operation, Sink), sent: Vec<(u32, Detached)>, reply: &mut Reply) {
    let limits = &CompactLimits::default();
    let mut work = SetWork::of(sent);
    let (sent, start) = (std::mem::take(&mut work.sent), reply.mark());
    let sets: Vec<SetRef<'_>> = sent.iter().filter_map(set_of).collect();
    work.begin(op, sink, &sets, true);
    while !work.step((op, sink), &sets, usize::MAX, limits, reply) {}
    work.end_reply(sink, start, reply);
}

/// The work to be gone on with. It begins again if it was under way with a key whose time has come: as if that had not been there.
fn take_up(ctx: &mut Ctx<'_>, args: Args<'_>, keys: &[usize], reply: &mut Reply) -> Result<SetWork, Error> {
    let payload = match std::mem::take(&mut ctx.payload) {
        Payload::Combining(work) if work.has_found() => return Ok(*work),
        payload => payload,
    };
    let present = look_up(ctx, args, keys, |value| matches!(value, ValueRef::Set(_)))?;
    Ok(match payload {
        Payload::Values(sent) => SetWork::of(sent),
        Payload::Combining(work) if work.present == present => *work,
        stale => {
            stale.discard(&mut ctx.shard.keyspace);
            reply.clear();
            SetWork { present, ..SetWork::default() }
        }
    })
}

fn narrowed(result: Option<Set>, op: Operation, limits: &CompactLimits) -> Set {
    let mut result = result.unwrap_or_default();
    if op == Operation::Inter {
        result.narrow(limits);
    }
    result
}

/// Looks for keys, all of whose values have to be right; returns how many are there.
pub(super) fn look_up(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    keys: &[usize],
    is_right: fn(ValueRef<'_>) -> bool,
) -> Result<usize, Error> {
    let mut present = 0;
    for idx in keys {
        let key = ctx.key(args.at(*idx));
        if let Some(entry) = ctx.lookup_once(key) {
            if !is_right(entry.value()) {
                return Err(Error::WrongType);
            }
            present += 1;
        }
    }
    Ok(present)
}

/// The entries of keys, for reading all of them at once.
pub(super) fn hold<'a>(ctx: &'a Ctx<'_>, args: Args<'_>, keys: &[usize]) -> Vec<Option<EntryRef<'a>>> {
    let (keyspace, db, now) = (&ctx.shard.keyspace, ctx.db, ctx.now);
    keys.iter().map(|idx| keyspace.view(db, keyspace.hasher().key(args.at(*idx)), now)).collect()
}

fn views<'a>(entries: &'a [Option<EntryRef<'_>>]) -> Vec<SetRef<'a>> {
    let set = |entry: &'a Option<EntryRef<'_>>| entry.as_ref().and_then(|entry| entry.set());
    entries.iter().map(|entry| set(entry).unwrap_or(SetRef::EMPTY)).collect()
}

fn set_of(content: &Detached) -> Option<SetRef<'_>> {
    if let Value::Set(set) = &content.value { Some(set.as_ref()) } else { None }
}

/// How many members sets on their way have in all.
pub(super) fn members_of(sent: &[(u32, Detached)]) -> usize {
    sent.iter().filter_map(|(_, content)| set_of(content)).map(SetRef::len).sum()
}

/// Stores the result, or removes the key if it is empty; replies with its size.
fn store(ctx: &mut Ctx<'_>, args: Args<'_>, result: Set, op: Operation, reply: &mut Reply) {
    let name = args.at(DESTINATION);
    let (key, len) = (ctx.key(name), result.as_ref().len());
    reply.int(len as i64);
    if len == 0 {
        if ctx.remove(key) {
            ctx.notify(EventClasses::GENERIC, "del", name);
        }
        return;
    }
    ctx.set(key, NewValue::Owned(Value::Set(result)), None);
    let event = match op {
        Operation::Inter => "sinterstore",
        Operation::Union => "sunionstore",
        Operation::Diff => "sdiffstore",
    };
    ctx.notify(EventClasses::SET, event, name);
}
