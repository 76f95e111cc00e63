//! Strings.

use crate::args::Args;
use crate::command::{Command, Flags, Flow, KeyFlags, KeySpec, Plan};
use crate::ctx::Ctx;
use crate::errors::Error;
use corelane_resp::Reply;

pub(super) const COMMANDS: &[Command] = &[
    Command {
        name: "get",
        arity: 2,
        flags: Flags::READONLY.with(Flags::FAST),
        keys: &[KeySpec::one(1, KeyFlags::RO.with(KeyFlags::ACCESS))],
        plan: Plan::OneShard(get),
        group: "string",
        summary: "Reads the string at a key.",
        syntax: "key",
        ..Command::DEFAULT
    },
    Command {
        name: "set",
        arity: -3,
        flags: Flags::WRITE.with(Flags::DENYOOM),
        keys: &[KeySpec::one(1, KeyFlags::OW.with(KeyFlags::UPDATE))],
        plan: Plan::OneShard(set),
        group: "string",
        summary: "Stores a string at a key, whatever was there.",
        syntax: "key value",
        ..Command::DEFAULT
    },
];

fn get(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply) -> Result<Flow, Error> {
    let key = ctx.key(args.at(1));
    let Some(entry) = ctx.lookup(key) else {
        reply.null();
        return Ok(Flow::Done);
    };
    match entry.shared_string() {
        Some(bytes) => reply.bulk_shared(bytes.clone()),
        None => reply.bulk(entry.string().ok_or(Error::WrongType)?),
    }
    Ok(Flow::Done)
}

fn set(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply) -> Result<Flow, Error> {
    let key = ctx.key(args.at(1));
    ctx.set(key, args.value(2), None);
    reply.ok();
    Ok(Flow::Done)
}
