//! Keys, whatever their type: DEL, UNLINK, EXISTS, TOUCH and TYPE.

use crate::args::Args;
use crate::command::{Command, Flags, Flow, KeyFlags, KeySpec, Merge, Plan};
use crate::ctx::Ctx;
use crate::errors::Error;
use crate::events::EventClasses;
use corelane_resp::Reply;

const REMOVED: &[KeySpec] = &[KeySpec::all_from(1, 1, KeyFlags::RM.with(KeyFlags::DELETE))];
const READ: &[KeySpec] = &[KeySpec::all_from(1, 1, KeyFlags::RO)];
const SUMMED: &[&str] = &["request_policy:multi_shard", "response_policy:agg_sum"];

pub(super) const COMMANDS: &[Command] = &[
    Command {
        name: "del",
        arity: -2,
        flags: Flags::WRITE,
        categories: &["@keyspace"],
        keys: REMOVED,
        plan: Plan::EachShard { part: remove, merge: Merge::Sum },
        summary: "Deletes one or more keys.",
        complexity: "O(N) where N is the number of keys, and of elements in their values",
        syntax: "key [key ...]",
        tips: SUMMED,
        ..Command::DEFAULT
    },
    Command {
        name: "unlink",
        arity: -2,
        flags: Flags::WRITE.with(Flags::FAST),
        categories: &["@keyspace"],
        keys: REMOVED,
        plan: Plan::EachShard { part: remove, merge: Merge::Sum },
        since: "4.0.0",
        summary: "Asynchronously deletes one or more keys.",
        complexity: "O(N) where N is the number of keys",
        syntax: "key [key ...]",
        tips: SUMMED,
        ..Command::DEFAULT
    },
    Command {
        name: "exists",
        arity: -2,
        flags: Flags::READONLY.with(Flags::FAST),
        categories: &["@keyspace"],
        keys: READ,
        plan: Plan::EachShard { part: exists, merge: Merge::Sum },
        summary: "Determines whether one or more keys exist.",
        complexity: "O(N) where N is the number of keys",
        syntax: "key [key ...]",
        tips: SUMMED,
        ..Command::DEFAULT
    },
    Command {
        name: "touch",
        arity: -2,
        flags: Flags::READONLY.with(Flags::FAST),
        categories: &["@keyspace"],
        keys: READ,
        plan: Plan::EachShard { part: touch, merge: Merge::Sum },
        since: "3.2.1",
        summary: "Returns the number of existing keys out of those specified after updating the time they were last \
            accessed.",
        complexity: "O(N) where N is the number of keys",
        syntax: "key [key ...]",
        tips: SUMMED,
        ..Command::DEFAULT
    },
    Command {
        name: "type",
        arity: 2,
        flags: Flags::READONLY.with(Flags::FAST),
        categories: &["@keyspace"],
        keys: &[KeySpec::one(1, KeyFlags::RO)],
        plan: Plan::OneShard(type_of),
        summary: "Determines the type of value stored at a key.",
        syntax: "key",
        ..Command::DEFAULT
    },
];

/// Writes how many of the keys to handle `is_one` is true for.
fn count(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply,
    is_one: impl Fn(&mut Ctx<'_>, crate::keyspace::Key<'_>) -> bool,
) -> Result<Flow, Error> {
    let mut counted = 0;
    for idx in ctx.keys.indices() {
        let key = ctx.key(args.at(idx));
        counted += i64::from(is_one(ctx, key));
    }
    reply.int(counted);
    Ok(Flow::Done)
}

fn remove(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply) -> Result<Flow, Error> {
    count(ctx, args, reply, |ctx, key| {
        let removed = ctx.remove(key);
        if removed {
            ctx.notify(EventClasses::GENERIC, "del", key.bytes);
        }
        removed
    })
}

fn exists(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply) -> Result<Flow, Error> {
    count(ctx, args, reply, |ctx, key| ctx.peek(key).is_some())
}

fn touch(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply) -> Result<Flow, Error> {
    count(ctx, args, reply, |ctx, key| ctx.access(key).is_some())
}

fn type_of(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply) -> Result<Flow, Error> {
    let key = ctx.key(args.at(1));
    reply.simple(ctx.peek(key).map_or("none", |entry| entry.type_name()));
    Ok(Flow::Done)
}

#[cfg(test)]
mod tests {
    use crate::commands::testing::{Bench, check_all};

    #[test]
    fn keys_are_counted_wherever_they_live() {
        check_all(&[
            ("SET a 1\nSET b 2\nSET c 3", "+OK\n+OK\n+OK"),
            ("EXISTS a b x a", ":3"),
            ("TOUCH a b x a", ":3"),
            ("DEL a x a b", ":2"),
            ("UNLINK c x", ":1"),
            ("EXISTS a b c", ":0"),
            ("UNLINK c", ":0"),
            ("DEL", "-ERR wrong number of arguments for 'del' command"),
        ]);
    }

    #[test]
    fn type_names_the_type() {
        check_all(&[("SET a 1", "+OK"), ("TYPE a", "+string"), ("TYPE b", "+none")]);
    }

    #[test]
    fn only_touch_is_an_access() {
        let mut bench = Bench::new(2);
        bench.run("SET a 1");
        bench.now += 5000;
        bench.run("EXISTS a\nTYPE a\nTTL a");
        assert_eq!(bench.run("OBJECT IDLETIME a"), ":5");
        bench.run("TOUCH a");
        assert_eq!(bench.run("OBJECT IDLETIME a"), ":0");
    }
}
