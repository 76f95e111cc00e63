//! Runs a command, or its part, on one shard.

use crate::args::Args;
use crate::command::{Command, Flow, Handler, KeyRange, Merge, Pace, Plan};
use crate::ctx::{Ctx, Decide, KeySelection, Next, On, PartResult, Payload, Shard};
use crate::errors::Error;
use crate::keyspace::Millis;
use crate::slot::{ShardId, slot_of};
use corelane_resp::{Mark, Reply};

/// The owner of a key.
#[inline]
pub(crate) fn shard_of(shard: &Shard, key: &[u8]) -> ShardId {
    if shard.slots.shards() == 1 {
        return shard.me;
    }
    let slot = shard.known_key.of(key).map_or_else(|| slot_of(key), |key| key.slot);
    shard.slots.owner(slot)
}

/// A context that sees no connections.
#[inline]
pub(crate) fn ctx<'a>(shard: &'a mut Shard, db: usize, now: Millis, keys: KeySelection<'a>) -> Ctx<'a> {
    Ctx {
        shard,
        sessions: None,
        client_id: 0,
        db,
        now,
        keys,
        stage: 0,
        payload: Payload::None,
        pace: Pace::Whole,
        resume: 0,
        looked_up: false,
        elements: 0,
    }
}

/// Runs a command all of whose keys live on this shard, to its end.
#[inline]
pub(crate) fn run_whole(
    shard: &mut Shard,
    command: &Command,
    db: usize,
    now: Millis,
    args: Args<'_>,
    reply: &mut Reply,
) -> Result<(), Error> {
    run_at_pace(shard, command, Pace::Whole, (db, now), args, reply).map(|_| ())
}

/// Runs a command all of whose keys live on this shard; one that must be brief may be put off ([`Flow::Later`]).
#[inline]
pub(crate) fn run_at_pace(
    shard: &mut Shard,
    command: &Command,
    pace: Pace,
    (db, now): (usize, Millis),
    args: Args<'_>,
    reply: &mut Reply,
) -> Result<Flow, Error> {
    match command.plan {
        Plan::OneShard(run) | Plan::Routed { run, .. } => {
            let mut ctx = ctx(shard, db, now, KeySelection::Range(KeyRange::NONE));
            ctx.pace = pace;
            run(&mut ctx, args, reply)
        }
        Plan::EachShard { part, merge } => {
            run_parts(shard, command, part, merge, db, now, args, reply).map(|()| Flow::Done)
        }
        Plan::Staged { read, decide, write } => {
            let keys = KeySelection::Range(command.key_range(args).unwrap_or(KeyRange::NONE));
            run_stages(shard, (read, decide, write), pace, keys, (db, now), args, reply)
        }
        Plan::Session(_) | Plan::Exec | Plan::Container => unreachable!("such commands run on their session"),
    }
}

#[expect(clippy::too_many_arguments, reason = "the pieces of a plan and the circumstances of one request")]
fn run_parts(
    shard: &mut Shard,
    command: &Command,
    part: Handler,
    merge: Merge,
    db: usize,
    now: Millis,
    args: Args<'_>,
    reply: &mut Reply,
) -> Result<(), Error> {
    let keys = command.key_range(args).unwrap_or(KeyRange::NONE);
    let selection = KeySelection::Range(keys);
    match merge {
        Merge::AllOk | Merge::Sum => part(&mut ctx(shard, db, now, selection), args, reply).map(|_| ()),
        Merge::InKeyOrder => {
            reply.array(keys.len());
            for idx in keys.indices() {
                let one = KeyRange::one(idx);
                part(&mut ctx(shard, db, now, KeySelection::Range(one)), args, reply)?;
            }
            Ok(())
        }
        Merge::With(merge) => {
            let mut result = PartResult { reply: Reply::new(reply.proto()), ..PartResult::default() };
            let mut ctx = ctx(shard, db, now, selection);
            part(&mut ctx, args, &mut result.reply)?;
            (result.elements, result.payload) = (ctx.elements, ctx.payload);
            result.keys = keys.indices().map(|idx| idx as u32).collect();
            merge(&[result], args, reply);
            Ok(())
        }
    }
}

fn run_stages(
    shard: &mut Shard,
    (read, decide, write): (Handler, crate::command::DecideFn, Handler),
    pace: Pace,
    keys: KeySelection<'_>,
    (db, now): (usize, Millis),
    args: Args<'_>,
    reply: &mut Reply,
) -> Result<Flow, Error> {
    let (mut stage, mut run, mut on, mut payload) = (0, read, On::All, Payload::None);
    loop {
        let selection = match on {
            On::All => keys,
            On::Key(idx) => KeySelection::Range(KeyRange::one(idx)),
        };
        let mut result = PartResult {
            reply: Reply::new(reply.proto()),
            keys: selection.indices().map(|idx| idx as u32).collect(),
            ..PartResult::default()
        };
        let mut ctx = ctx(shard, db, now, selection);
        (ctx.stage, ctx.payload) = (stage, payload);
        ctx.pace = if stage == 0 { pace } else { Pace::Whole };
        if run(&mut ctx, args, &mut result.reply)? == Flow::Later {
            return Ok(Flow::Later);
        }
        (result.elements, result.payload) = (ctx.elements, ctx.payload);
        let mut results = [result];
        let sizes = shard.settings.pieces;
        match decide(&mut Decide { stage, args, sizes, results: &mut results, reply }) {
            Next::Reply => return Ok(Flow::Done),
            Next::Wait => {
                shard.would_wait = true;
                return Ok(Flow::Done);
            }
            Next::Run { stage: next, on: place, payload: handed } => {
                (stage, run, on, payload) = (next, write, place, handed);
            }
        }
    }
}

/// Runs a staged command on some of its keys, all of which live on this shard.
pub(crate) fn run_some(
    shard: &mut Shard,
    command: &Command,
    keys: &[u32],
    db: usize,
    now: Millis,
    args: Args<'_>,
    reply: &mut Reply,
) -> Result<(), Error> {
    let Plan::Staged { read, decide, write } = command.plan else { return Err(Error::Syntax) };
    let keys = KeySelection::List(keys);
    run_stages(shard, (read, decide, write), Pace::Whole, keys, (db, now), args, reply).map(|_| ())
}

/// What a part wrote, before it becomes a `PartResult`.
pub(crate) struct PartRun {
    pub(crate) result: PartResult,
    /// Where the handler wants to go on, if it is not finished.
    pub(crate) again: Option<u64>,
}

/// Runs a handler for the given keys as a part of a command over several shards. An error becomes the part's reply.
pub(crate) fn run_part(
    mut ctx: Ctx<'_>,
    run: Handler,
    merge: Option<Merge>,
    args: Args<'_>,
    mut result: PartResult,
) -> PartRun {
    ctx.elements = result.elements;
    let keys = ctx.keys;
    let mut outcome = Ok(Flow::Done);
    let start = result.reply.mark();
    if matches!(merge, Some(Merge::InKeyOrder)) {
        for idx in keys.indices() {
            ctx.keys = KeySelection::Range(KeyRange::one(idx));
            outcome = run(&mut ctx, args, &mut result.reply);
            result.ends.push(result.reply.mark());
            if outcome.is_err() {
                break;
            }
        }
    } else {
        outcome = run(&mut ctx, args, &mut result.reply);
    }
    result.elements = ctx.elements;
    result.payload = ctx.payload;
    let again = match outcome {
        Ok(Flow::Done | Flow::Later) => None,
        Ok(Flow::Again(resume)) => {
            result.reply.seal();
            Some(resume)
        }
        Err(error) => {
            drop(result.reply.split_off(start));
            crate::ctx::write_error(&error, &mut result.reply);
            result.failed = true;
            None
        }
    };
    PartRun { result, again }
}

/// Makes one reply of the parts'.
pub(crate) fn merge_parts(merge: Merge, parts: &[PartResult], args: Args<'_>, reply: &mut Reply) {
    if let Some(failed) = parts.iter().find(|part| part.failed) {
        reply.append_range(&failed.reply, Mark::default(), failed.reply.mark());
        return;
    }
    match merge {
        Merge::AllOk => reply.ok(),
        Merge::Sum => reply.int(parts.iter().map(PartResult::int).sum()),
        Merge::InKeyOrder => {
            let mut elements: Vec<(u32, usize, usize)> = parts
                .iter()
                .enumerate()
                .flat_map(|(part, result)| {
                    result.keys.iter().enumerate().map(move |(n, key)| (*key, part, n))
                })
                .collect();
            elements.sort_unstable();
            reply.array(elements.len());
            for (_, part, n) in elements {
                let result = &parts[part];
                let from = if n == 0 { Mark::default() } else { result.ends[n - 1] };
                reply.append_range(&result.reply, from, result.ends[n]);
            }
        }
        Merge::With(merge) => merge(parts, args, reply),
    }
}
