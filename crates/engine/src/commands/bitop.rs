//! BITOP: strings combined bit by bit, on whatever shards they are.

use super::bitmap::BITMAP;
use super::set_algebra::shares;
use super::set_combine::{hold, look_up};
use crate::args::Args;
use crate::command::{Command, Flags, Flow, KeyFlags, KeySpec, Plan};
use crate::ctx::{Ctx, Decide, Next, On, Payload};
use crate::errors::Error;
use crate::events::EventClasses;
use crate::keyspace::{Detached, NewValue, StringForm, Value, ValueRef};
use crate::settings::Settings;
use bytes::Bytes;
use corelane_resp::Reply;

pub(super) const COMMANDS: &[Command] = &[Command {
    name: "bitop",
    arity: -4,
    flags: Flags::WRITE.with(Flags::DENYOOM),
    keys: &[
        KeySpec::one(2, KeyFlags::OW.with(KeyFlags::UPDATE)),
        KeySpec::all_from(3, 1, KeyFlags::RO.with(KeyFlags::ACCESS)),
    ],
    plan: Plan::Staged { read, decide, write },
    check: Some(check),
    since: "2.6.0",
    summary: "Performs bitwise operations on multiple strings, and stores the result.",
    complexity: "O(N) where N is the length of all strings together",
    syntax: "( AND | OR | XOR | NOT ) #operation destkey key [key ...]",
    ..BITMAP
}];

/// Where the result goes.
const DESTINATION: usize = 2;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Operation {
    And,
    Or,
    Xor,
    Not,
}

impl Operation {
    fn parse(args: Args<'_>) -> Result<Self, Error> {
        let named = [("AND", Self::And), ("OR", Self::Or), ("XOR", Self::Xor), ("NOT", Self::Not)];
        let op = named.iter().find(|(name, _)| args.is(1, name)).map(|(_, op)| *op).ok_or(Error::Syntax)?;
        if op == Self::Not && args.len() != 4 {
            return Err(Error::text("ERR BITOP NOT must be called with a single source key."));
        }
        Ok(op)
    }

    /// Brings a part of another source into that of the result, which is as if zeros followed the shorter of the two.
    fn apply(self, result: &mut [u8], source: &[u8]) {
        let (common, rest) = result.split_at_mut(source.len().min(result.len()));
        let pairs = common.iter_mut().zip(source);
        match self {
            Self::And => {
                pairs.for_each(|(byte, other)| *byte &= other);
                rest.fill(0);
            }
            Self::Or => pairs.for_each(|(byte, other)| *byte |= other),
            Self::Xor | Self::Not => pairs.for_each(|(byte, other)| *byte ^= other),
        }
    }
}

/// A combination of strings that is under way.
#[derive(Clone, Debug, Default)]
pub struct BitWork {
    /// How many sources are there; when the time of one has come meanwhile, the work begins again.
    present: usize,
    /// The strings that other shards have sent; if none, those of keys are combined.
    sent: Vec<Bytes>,
    result: Vec<u8>,
}

impl BitWork {
    /// Combines about `budget` bytes more of the sources; true when all are.
    fn step(&mut self, op: Operation, sources: &[&[u8]], budget: usize) -> bool {
        let len = sources.iter().map(|source| source.len()).max().unwrap_or(0);
        let from = self.result.len();
        let end = len.min(from.saturating_add((budget / sources.len().max(1)).max(1)));
        let parts = sources.iter().map(|source| &source[from.min(source.len())..end.min(source.len())]);
        self.result.reserve_exact(len - from);
        for (nth, part) in parts.enumerate() {
            if nth == 0 {
                self.result.extend_from_slice(part);
                self.result.resize(end, 0);
            } else {
                op.apply(&mut self.result[from..], part);
            }
        }
        if op == Operation::Not {
            self.result[from..].iter_mut().for_each(|byte| *byte = !*byte);
        }
        end == len
    }
}

fn check(args: Args<'_>, _: &Settings) -> Result<(), Error> {
    Operation::parse(args).map(|_| ())
}

/// Combines the sources of this shard; stores the result if everything is here, and ships it otherwise.
fn read(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply) -> Result<Flow, Error> {
    let op = Operation::parse(args)?;
    let all_here = ctx.keys.len() + DESTINATION == args.len();
    let keys: Vec<usize> = ctx.keys.indices().filter(|idx| *idx != DESTINATION).collect();
    if keys.is_empty() {
        return Ok(Flow::Done);
    }
    let pacing = ctx.pacing();
    let present = look_up(ctx, args, &keys, |value| matches!(value, ValueRef::String(_)))?;
    let mut work = match std::mem::take(&mut ctx.payload) {
        Payload::Bits(work) if work.present == present => work,
        _ => Box::new(BitWork { present, ..BitWork::default() }),
    };
    let is_done = {
        let entries = hold(ctx, args, &keys);
        let texts: Vec<&[u8]> = entries
            .iter()
            .map(|entry| entry.as_ref().and_then(|entry| entry.string()).unwrap_or_default())
            .collect();
        let bytes = texts.iter().map(|text| text.len()).sum();
        let Some(piece) = pacing.piece_of_bytes(bytes) else { return Ok(Flow::Later) };
        work.step(op, &texts, piece)
    };
    if !is_done {
        ctx.payload = Payload::Bits(work);
        return Ok(Flow::Again(1));
    }
    let result = Bytes::from(work.result);
    if all_here {
        store(ctx, args, result, reply);
    } else {
        let content = Detached { value: Value::String(result), expiry: None, form: StringForm::Plain };
        ctx.payload = Payload::Values(vec![(0, content)]);
    }
    Ok(Flow::Done)
}

fn decide(decide: &mut Decide<'_>) -> Next {
    match shares(decide) {
        Ok(sent) => Next::Run { stage: 1, on: On::Key(DESTINATION), payload: Payload::Values(sent) },
        Err(next) => next,
    }
}

/// Combines what the shards have sent.
fn write(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply) -> Result<Flow, Error> {
    let op = Operation::parse(args)?;
    let mut work = match std::mem::take(&mut ctx.payload) {
        Payload::Bits(work) => work,
        Payload::Values(values) => {
            let text = |(_, content): (u32, Detached)| match content.value {
                Value::String(text) => Some(text),
                _ => None,
            };
            Box::new(BitWork { sent: values.into_iter().filter_map(text).collect(), ..BitWork::default() })
        }
        _ => Box::default(),
    };
    if let [whole] = &work.sent[..] {
        store(ctx, args, whole.clone(), reply);
        return Ok(Flow::Done);
    }
    let sent = std::mem::take(&mut work.sent);
    let texts: Vec<&[u8]> = sent.iter().map(|text| &text[..]).collect();
    let bytes = texts.iter().map(|text| text.len()).sum();
    let piece = ctx.pacing().piece_of_bytes(bytes).unwrap_or(usize::MAX);
    if !work.step(op, &texts, piece) {
        work.sent = sent;
        ctx.payload = Payload::Bits(work);
        return Ok(Flow::Again(1));
    }
    store(ctx, args, Bytes::from(work.result), reply);
    Ok(Flow::Done)
}

/// Stores the result, or removes the key if it is empty; replies with its size.
fn store(ctx: &mut Ctx<'_>, args: Args<'_>, result: Bytes, reply: &mut Reply) {
    let name = args.at(DESTINATION);
    let key = ctx.key(name);
    reply.int(result.len() as i64);
    if result.is_empty() {
        if ctx.remove(key) {
            ctx.notify(EventClasses::GENERIC, "del", name);
        }
        return;
    }
    ctx.set(key, NewValue::Owned(Value::String(result)), None);
    ctx.shard.keyspace.set_form(ctx.db, key, StringForm::Raw);
    ctx.notify(EventClasses::STRING, "set", name);
}

#[cfg(test)]
mod tests {
    use crate::commands::testing::check_all;

    #[test]
    fn strings_are_combined_wherever_they_are() {
        check_all(&[
            ("SET a abc\nSET b ab\nSET c abcd", "+OK\n+OK\n+OK"),
            ("BITOP AND d a b c\nGET d", ":4\n\"ab\\x00\\x00\""),
            ("BITOP OR d a b none\nGET d", ":3\n\"abc\""),
            ("BITOP XOR d a b c\nGET d", ":4\n\"ab\\x00d\""),
            ("BITOP NOT d a\nGET d", ":3\n\"\\x9e\\x9d\\x9c\""),
            ("BITOP AND d none nothing\nEXISTS d", ":0\n:0"),
            ("BITOP NOT d a b", "-ERR BITOP NOT must be called with a single source key."),
            ("BITOP NAND d a b", "-ERR syntax error"),
        ]);
    }
}
