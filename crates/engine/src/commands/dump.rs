//! DUMP: what a key holds as bytes that Redis and Valkey understand, too.

use crate::args::Args;
use crate::command::{Command, Flags, Flow, KeyFlags, KeySpec, Plan};
use crate::ctx::Ctx;
use crate::errors::Error;
use crate::keyspace::ValueRef;
use crate::rdb::{Writer, seal};
use crate::wall::WallClock;
use bytes::Bytes;
use corelane_resp::Reply;

pub(super) const COMMANDS: &[Command] = &[Command {
    name: "dump",
    arity: 2,
    flags: Flags::READONLY,
    categories: &["@keyspace"],
    keys: &[KeySpec::one(1, KeyFlags::RO.with(KeyFlags::ACCESS))],
    plan: Plan::OneShard(dump),
    since: "2.6.0",
    summary: "Returns a serialized representation of the value stored at a key.",
    complexity: "O(1) to access the key and additional O(N*M) to serialize it, where N is the number of objects composing the value and M their average size. For small string values the time complexity is thus O(1)+O(1*M) where M is small, so simply O(1).",
    syntax: "key",
    tips: &["nondeterministic_output"],
    ..Command::DEFAULT
}];

/// A value as it is written.
fn written(value: ValueRef<'_>, wall: WallClock) -> Writer {
    let mut writer = Writer::default();
    match value {
        ValueRef::String(string) => writer.string(string),
        ValueRef::Hash(hash) => {
            let mut deadlines = false;
            hash.for_each(|field, _| deadlines = deadlines || hash.deadline(&field.text()).is_some());
            writer.hash(hash.len(), deadlines);
            hash.for_each(|field, value| {
                let field = field.text();
                writer.field(&field, &value.text(), hash.deadline(&field).map(|at| wall.shows_at(at)));
            });
        }
        ValueRef::List(list) => {
            writer.list(list.len());
            list.iter().for_each(|element| writer.element(&element.text()));
        }
        ValueRef::Set(set) => {
            writer.set(set.len());
            set.for_each(|member| writer.element(&member.text()));
        }
        ValueRef::SortedSet(set) => {
            writer.sorted_set(set.len());
            set.visit(0, set.len(), false, &mut |member, score| writer.member(member, score));
        }
    }
    writer
}

fn dump(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply) -> Result<Flow, Error> {
    let (key, wall) = (ctx.key(args.at(1)), ctx.shard.wall);
    match ctx.lookup(key) {
        Some(entry) => {
            let payload = seal(written(entry.value(), wall));
            drop(entry);
            reply.bulk_shared(Bytes::from(payload));
        }
        None => reply.null(),
    }
    Ok(Flow::Done)
}
