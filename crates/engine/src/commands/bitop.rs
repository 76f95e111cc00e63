//! BITOP: strings combined bit by bit, on whatever shards they are.

use super::bitmap::{BITMAP, read_string};
use super::set_algebra::shares;
use crate::args::Args;
use crate::command::{Command, Flags, Flow, KeyFlags, KeySpec, Plan};
use crate::ctx::{Ctx, Decide, Next, On, Payload};
use crate::errors::Error;
use crate::events::EventClasses;
use crate::keyspace::{Detached, NewValue, StringForm, Value};
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

    /// Brings another source into the result so far, which is as if zeros followed the shorter of the two.
    fn apply(self, result: &mut Vec<u8>, source: &[u8]) {
        if result.len() < source.len() {
            result.resize(source.len(), 0);
        }
        let (common, rest) = result.split_at_mut(source.len());
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

fn check(args: Args<'_>, _: &Settings) -> Result<(), Error> {
    Operation::parse(args).map(|_| ())
}

/// Combines the sources of this shard; stores the result if everything is here, and ships it otherwise.
fn read(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply) -> Result<Flow, Error> {
    let op = Operation::parse(args)?;
    let all_here = ctx.keys.len() + DESTINATION == args.len();
    let mut result: Option<Vec<u8>> = None;
    for idx in ctx.keys.indices().filter(|idx| *idx != DESTINATION) {
        result = Some(read_string(ctx, args.at(idx), |text| {
            let text = text.unwrap_or_default();
            match result {
                None => text.to_vec(),
                Some(mut result) => {
                    op.apply(&mut result, text);
                    result
                }
            }
        })?);
    }
    let Some(result) = result else { return Ok(Flow::Done) };
    if all_here {
        store(ctx, args, op, result, reply);
    } else {
        let value = Value::String(Bytes::from(result));
        ctx.payload = Payload::Values(vec![(0, Detached { value, expiry: None, form: StringForm::Plain })]);
    }
    Ok(Flow::Done)
}

fn decide(decide: &mut Decide<'_>) -> Next {
    match shares(decide) {
        Ok(sent) => Next::Run { stage: 1, on: On::Key(DESTINATION), payload: Payload::Values(sent) },
        Err(next) => next,
    }
}

fn write(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply) -> Result<Flow, Error> {
    let op = Operation::parse(args)?;
    let mut result: Option<Vec<u8>> = None;
    if let Payload::Values(values) = std::mem::take(&mut ctx.payload) {
        for (_, content) in values {
            let Value::String(text) = content.value else { continue };
            match &mut result {
                None => result = Some(text.to_vec()),
                Some(result) => op.apply(result, &text),
            }
        }
    }
    store(ctx, args, op, result.unwrap_or_default(), reply);
    Ok(Flow::Done)
}

/// Stores the result, or removes the key if it is empty; replies with its size.
fn store(ctx: &mut Ctx<'_>, args: Args<'_>, op: Operation, mut result: Vec<u8>, reply: &mut Reply) {
    let name = args.at(DESTINATION);
    let key = ctx.key(name);
    reply.int(result.len() as i64);
    if result.is_empty() {
        if ctx.remove(key) {
            ctx.notify(EventClasses::GENERIC, "del", name);
        }
        return;
    }
    if op == Operation::Not {
        result.iter_mut().for_each(|byte| *byte = !*byte);
    }
    ctx.set(key, NewValue::Owned(Value::String(Bytes::from(result))), None);
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
