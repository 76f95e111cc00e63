//! ZUNION, ZINTER, ZDIFF and their kin, at once or a piece at a time.
//!
//! ```text
//! index what was sent ─▶ find ─▶ sort runs ─▶ merge them ─▶ write, or build a sorted set
//!                         └─▶ send, where other shards have keys of the command
//! ```

use super::set_combine::{DESTINATION, Operation, hold, look_up};
use super::sort_order::{MERGED_FACTOR, MergeSort};
use super::zset_combine::{
    Form, Found, Members, Options, Source, arrange, combine_some, is_source, piece, placed, send_some,
    sources, to_send, views, weighed,
};
use super::zset_read::{open_members, write_member};
use crate::args::Args;
use crate::command::{Flow, Pace, Pacing};
use crate::ctx::{Ctx, Payload, SentScores};
use crate::errors::Error;
use crate::events::EventClasses;
use crate::keyspace::{Keyspace, NewValue, Value};
use crate::settings::CompactLimits;
use crate::values::{SortedSet, Tally, TallyIndex};
use corelane_resp::Reply;

/// To add a member to a sorted set takes as long as to look at so many.
const BUILT_COST: usize = 4;

/// A combination of sorted sets that is under way.
#[derive(Clone, Debug)]
pub struct ScoreWork {
    /// How many of the keys are there; when the time of one has come meanwhile, the work begins again.
    present: usize,
    /// The sets that other shards have sent, in the order of their keys; if none, those of keys are combined.
    sent: Vec<SentScores>,
    indexes: Vec<TallyIndex>,
    phase: Phase,
    found: Found,
    /// What is to be sent.
    shares: Vec<SentScores>,
    order: MergeSort,
    set: SortedSet,
}

/// How far it is.
#[derive(Clone, Copy, Debug)]
enum Phase {
    /// Looks at the members of this source, from this place on.
    Find(usize, u64),
    /// All are found.
    Found,
    /// Sorts runs of them, from this place on.
    Order(usize),
    /// Makes one run of all.
    Merge,
    /// Writes or stores them, from this place in the order on.
    Write(usize),
}

impl ScoreWork {
    fn new(present: usize, mut sent: Vec<SentScores>) -> Self {
        sent.sort_by_key(|one| one.places[0]);
        Self {
            present,
            sent,
            indexes: Vec::new(),
            phase: Phase::Find(0, 0),
            found: Found::default(),
            shares: Vec::new(),
            order: MergeSort::new(0),
            set: SortedSet::default(),
        }
    }

    /// Gives up, and has what it has built freed by and by.
    pub(crate) fn discard(self, keyspace: &mut Keyspace) {
        keyspace.discard(Value::SortedSet(self.set));
    }

    /// Whether all members of the result are found: the sets are not needed any more.
    const fn has_found(&self) -> bool {
        !matches!(self.phase, Phase::Find(..))
    }

    /// How much to do in this call, and whether a look at all members takes long; `None` if that would not be brief and has to be.
    fn piece(&self, pacing: Pacing, op: Operation, own: &[(usize, Members<'_>)]) -> Option<(usize, bool)> {
        if self.has_found() {
            let (len, bytes) = (self.found.members.len(), self.found.members.bytes());
            return Some((pacing.piece(len, (len, bytes))?, true));
        }
        piece(pacing, op, own)
    }

    /// Does a piece; true when all is done.
    fn step(
        &mut self,
        (form, options): (Form, &Options<'_>),
        sources: &[Source<'_>],
        budget: usize,
        limits: &CompactLimits,
        reply: &mut Reply,
    ) -> bool {
        let members = &mut self.found.members;
        match self.phase {
            Phase::Find(nth, from) => {
                // Not less than to find so many sets again takes.
                let budget = budget.max(sources.len());
                let next = combine_some(form.op, sources, options, (nth, from), budget, &mut self.found);
                self.phase = next.map_or(Phase::Found, |(nth, from)| Phase::Find(nth, from));
            }
            Phase::Found if form.counts => return true,
            Phase::Found if members.len() <= budget || SortedSet::is_small(members, limits) => {
                members.sort();
                if form.stores {
                    self.set = SortedSet::from_sorted(members, limits);
                } else {
                    write(members, options, reply);
                }
                return true;
            }
            Phase::Found => {
                self.order = MergeSort::new(members.len());
                self.phase = Phase::Order(0);
            }
            Phase::Order(from) => {
                let end = members.len().min(from + budget);
                self.order.add_run(from as u32..end as u32, |a, b| members.compare(a, b));
                self.phase = if end < members.len() { Phase::Order(end) } else { Phase::Merge };
            }
            Phase::Merge => {
                if self.order.merge(budget * MERGED_FACTOR, |a, b| members.compare(a, b)) {
                    if form.stores {
                        self.set.expect(members.len(), members.longest(), limits);
                    } else {
                        open_members(reply, members.len(), options.scores);
                    }
                    self.phase = Phase::Write(0);
                }
            }
            Phase::Write(from) => {
                let budget = if form.stores { (budget / BUILT_COST).max(1) } else { budget };
                let end = members.len().min(from + budget);
                for place in &self.order.items()[from..end] {
                    let (member, score) = members.at(*place as usize);
                    if form.stores {
                        self.set.insert(member, score, limits);
                    } else {
                        write_member(reply, member, score, options.scores);
                    }
                }
                self.phase = Phase::Write(end);
                return end == members.len();
            }
        }
        false
    }
}

fn write(members: &Tally, options: &Options<'_>, reply: &mut Reply) {
    open_members(reply, members.len(), options.scores);
    members.iter().for_each(|(member, score)| write_member(reply, member, score, options.scores));
}

/// Lists members that were sent, if they are to be found, about `budget` of them; true when all are listed.
fn list_some(indexes: &mut Vec<TallyIndex>, sent: &[SentScores], op: Operation, budget: usize) -> bool {
    if op == Operation::Union {
        return true;
    }
    let nth = indexes.len().saturating_sub(1);
    let Some(one) = sent.get(nth) else { return true };
    if indexes.is_empty() {
        indexes.push(TallyIndex::new(one.members.len(), one.seed));
    }
    if indexes[nth].list_some(&one.members, budget)
        && let Some(next) = sent.get(nth + 1)
    {
        indexes.push(TallyIndex::new(next.members.len(), next.seed));
        return false;
    }
    indexes[nth].lists(&one.members)
}

/// What was sent, to be combined, in the order of the keys.
fn views_of<'a>(sent: &'a [SentScores], indexes: &'a [TallyIndex]) -> Vec<(usize, Members<'a>)> {
    let views = |(nth, one): (usize, &'a SentScores)| {
        one.places.iter().map(move |place| (*place, Members::Sent(one, indexes.get(nth))))
    };
    let mut views: Vec<_> = sent.iter().enumerate().flat_map(views).collect();
    views.sort_by_key(|(place, _)| *place);
    views
}

/// Combines the sources of this shard.
pub(super) fn read(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply, form: Form) -> Result<Flow, Error> {
    let keys_in_all = sources(args, form.count_at())? + usize::from(form.stores);
    let keys: Vec<usize> = ctx.keys.indices().filter(|idx| *idx > form.count_at()).collect();
    if keys.is_empty() {
        return Ok(Flow::Done);
    }
    let is_whole = ctx.keys.len() == keys_in_all;
    run(ctx, args, (&keys, is_whole), reply, form)
}

/// Combines what the shards have sent.
pub(super) fn combine(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply,
    form: Form,
) -> Result<Flow, Error> {
    run(ctx, args, (&[], true), reply, form)
}

/// Combines the sets of keys, or those that were sent to this shard, for the result or for what is to be sent. The types of the
/// sets are looked at before the options, as in Valkey.
fn run(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    (keys, is_whole): (&[usize], bool),
    reply: &mut Reply,
    form: Form,
) -> Result<Flow, Error> {
    let (pacing, limits) = (ctx.pacing(), ctx.shard.settings.compact);
    let mut work = take_up(ctx, args, keys, reply)?;
    let (sent, mut indexes) = (std::mem::take(&mut work.sent), std::mem::take(&mut work.indexes));
    let entries = if work.has_found() { Vec::new() } else { hold(ctx, args, keys) };
    let options = Options::parse(args, form);
    let listed = pacing.sizes.piece_len;
    let mut again = !sent.is_empty() && !list_some(&mut indexes, &sent, form.op, listed);
    while again && pacing.pace != Pace::Pieces {
        again = !list_some(&mut indexes, &sent, form.op, usize::MAX);
    }
    let first = form.count_at() + 1;
    let own: Vec<_> = match &sent[..] {
        [] => keys.iter().map(|idx| idx - first).zip(views(&entries)).collect(),
        sent => views_of(sent, &indexes),
    };
    let Some((piece, takes_long)) = work.piece(pacing, form.op, &own) else { return Ok(Flow::Later) };
    if is_whole {
        let options = options?;
        let mut sources = weighed(own, &options);
        arrange(form.op, &mut sources);
        if matches!(work.phase, Phase::Find(0, 0)) {
            work.found = Found::new(form.op, &sources, takes_long, limits.seed);
        }
        while !again && !work.step((form, &options), &sources, piece, &limits, reply) {
            again = pacing.pace == Pace::Pieces;
        }
    } else if options.is_ok() {
        // With bad options the coordinator refuses the command, whatever is sent.
        let (own, piece) = (placed(&own), piece.max(keys.len()));
        if work.shares.is_empty() {
            work.shares = to_send(form.op, &own, takes_long, limits.seed);
        }
        while !again
            && let Phase::Find(nth, from) = work.phase
            && let Some((nth, from)) = send_some(form.op, &own, (nth, from), piece, &mut work.shares)
        {
            work.phase = Phase::Find(nth, from);
            again = pacing.pace == Pace::Pieces;
        }
    }
    if again {
        (work.sent, work.indexes) = (sent, indexes);
        ctx.payload = Payload::Scoring(Box::new(work));
        return Ok(Flow::Again(1));
    }
    match () {
        () if !is_whole => ctx.payload = Payload::Scores(std::mem::take(&mut work.shares)),
        () if form.stores => {
            let set = std::mem::take(&mut work.set);
            reply.int(set.as_ref().len() as i64);
            store(ctx, args.at(DESTINATION), set, form.event);
        }
        () if form.counts => reply.int(work.found.members.len() as i64),
        () => {}
    }
    Ok(Flow::Done)
}

/// The result at a coordinator, for the client, of what shards have sent.
pub(super) fn combine_sent(mut sent: Vec<SentScores>, form: Form, options: &Options<'_>, reply: &mut Reply) {
    sent.sort_by_key(|one| one.places[0]);
    let mut indexes = Vec::new();
    while !list_some(&mut indexes, &sent, form.op, usize::MAX) {}
    let mut sources = weighed(views_of(&sent, &indexes), options);
    arrange(form.op, &mut sources);
    let seed = sent.first().map_or(0, |one| one.seed);
    let mut found = Found::new(form.op, &sources, false, seed);
    let mut next = Some((0, 0));
    while let Some(place) = next {
        next = combine_some(form.op, &sources, options, place, usize::MAX, &mut found);
    }
    if form.counts {
        return reply.int(found.members.len() as i64);
    }
    found.members.sort();
    write(&found.members, options, reply);
}

/// Stores a result, or removes the key if it is empty.
pub(super) fn store(ctx: &mut Ctx<'_>, name: &[u8], result: SortedSet, event: &'static str) {
    let key = ctx.key(name);
    if result.as_ref().is_empty() {
        if ctx.remove(key) {
            ctx.notify(EventClasses::GENERIC, "del", name);
        }
        return;
    }
    ctx.set(key, NewValue::Owned(Value::SortedSet(result)), None);
    ctx.notify(EventClasses::SORTED_SET, event, name);
}

/// The work to be gone on with. It begins again if it was under way with a key whose time has come: as if that had not been there.
fn take_up(ctx: &mut Ctx<'_>, args: Args<'_>, keys: &[usize], reply: &mut Reply) -> Result<ScoreWork, Error> {
    let payload = match std::mem::take(&mut ctx.payload) {
        Payload::Scoring(work) if work.has_found() => return Ok(*work),
        payload => payload,
    };
    let present = look_up(ctx, args, keys, is_source)?;
    Ok(match payload {
        Payload::Scores(sent) => ScoreWork::new(0, sent),
        Payload::Scoring(work) if work.present == present => *work,
        stale => {
            stale.discard(&mut ctx.shard.keyspace);
            reply.clear();
            ScoreWork::new(present, Vec::new())
        }
    })
}
