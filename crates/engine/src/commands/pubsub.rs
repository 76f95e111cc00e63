//! Publish/subscribe: SUBSCRIBE and its kin, and PUBLISH; `crate::pubsub` does the work.

use crate::args::Args;
use crate::command::{Command, Flags, Flow, KeyFlags, KeySpec, Plan, SessionHandler};
use crate::ctx::{Ctx, SessionCtx};
use crate::errors::Error;
use crate::pubsub::{Kind, change};
use bytes::Bytes;
use corelane_resp::Reply;

const LISTENING: Flags =
    Flags::PUBSUB.with(Flags::NOSCRIPT).with(Flags::LOADING).with(Flags::STALE).with(Flags::WHILE_LISTENING);
const SENDING: Flags =
    Flags::PUBSUB.with(Flags::LOADING).with(Flags::STALE).with(Flags::FAST).with(Flags::MAY_REPLICATE);

const fn listening(name: &'static str, arity: i16, run: SessionHandler, summary: &'static str) -> Command {
    Command {
        name,
        arity,
        flags: LISTENING,
        plan: Plan::Session(run),
        since: "2.0.0",
        group: "pubsub",
        summary,
        ..Command::DEFAULT
    }
}

pub(super) const COMMANDS: &[Command] = &[
    Command {
        complexity: "O(N) where N is the number of channels to subscribe to.",
        syntax: "channel [channel ...]",
        ..listening("subscribe", -2, subscribe, "Listens for messages published to channels.")
    },
    Command {
        complexity: "O(N) where N is the number of patterns to subscribe to.",
        syntax: "pattern [pattern ...]",
        ..listening(
            "psubscribe",
            -2,
            psubscribe,
            "Listens for messages published to channels that match one or more patterns.",
        )
    },
    Command {
        complexity: "O(N) where N is the number of shard channels to subscribe to.",
        syntax: "shardchannel [shardchannel ...]",
        keys: &[KeySpec::all_from(1, 1, KeyFlags::NOT_KEY)],
        since: "7.0.0",
        ..listening("ssubscribe", -2, ssubscribe, "Listens for messages published to shard channels.")
    },
    Command {
        complexity: "O(N) where N is the number of channels to unsubscribe.",
        syntax: "[channel ...]",
        ..listening("unsubscribe", -1, unsubscribe, "Stops listening to messages posted to channels.")
    },
    Command {
        complexity: "O(N) where N is the number of patterns to unsubscribe.",
        syntax: "[pattern ...]",
        ..listening(
            "punsubscribe",
            -1,
            punsubscribe,
            "Stops listening to messages published to channels that match one or more patterns.",
        )
    },
    Command {
        complexity: "O(N) where N is the number of shard channels to unsubscribe.",
        syntax: "[shardchannel ...]",
        keys: &[KeySpec::all_from(1, 1, KeyFlags::NOT_KEY)],
        since: "7.0.0",
        ..listening("sunsubscribe", -1, sunsubscribe, "Stops listening to messages posted to shard channels.")
    },
    Command {
        name: "publish",
        arity: 3,
        flags: SENDING,
        keys: &[KeySpec::one(1, KeyFlags::NOT_KEY.with(KeyFlags::NOT_SHOWN))],
        plan: Plan::OneShard(publish),
        since: "2.0.0",
        group: "pubsub",
        summary: "Posts a message to a channel.",
        complexity: "O(N+M) where N is the number of clients subscribed to the receiving channel and M is the total number of \
                     subscribed patterns (by any client).",
        syntax: "channel message",
        ..Command::DEFAULT
    },
    Command {
        name: "spublish",
        arity: 3,
        flags: SENDING,
        keys: &[KeySpec::one(1, KeyFlags::NOT_KEY)],
        plan: Plan::OneShard(spublish),
        since: "7.0.0",
        group: "pubsub",
        summary: "Posts a message to a shard channel.",
        complexity: "O(N) where N is the number of clients subscribed to the receiving shard channel.",
        syntax: "shardchannel message",
        ..Command::DEFAULT
    },
];

fn join(ctx: &mut SessionCtx<'_>, kind: Kind, word: &str, args: Args<'_>) -> Result<(), Error> {
    change(ctx.client, ctx.shard, (kind, true, word), args.iter_from(1), false);
    Ok(())
}

fn leave(ctx: &mut SessionCtx<'_>, kind: Kind, word: &str, args: Args<'_>) -> Result<(), Error> {
    change(ctx.client, ctx.shard, (kind, false, word), args.iter_from(1), args.len() == 1);
    Ok(())
}

fn subscribe(ctx: &mut SessionCtx<'_>, args: Args<'_>, _: &mut Reply) -> Result<(), Error> {
    join(ctx, Kind::Channel, "subscribe", args)
}

fn psubscribe(ctx: &mut SessionCtx<'_>, args: Args<'_>, _: &mut Reply) -> Result<(), Error> {
    join(ctx, Kind::Pattern, "psubscribe", args)
}

fn ssubscribe(ctx: &mut SessionCtx<'_>, args: Args<'_>, _: &mut Reply) -> Result<(), Error> {
    join(ctx, Kind::ShardChannel, "ssubscribe", args)
}

fn unsubscribe(ctx: &mut SessionCtx<'_>, args: Args<'_>, _: &mut Reply) -> Result<(), Error> {
    leave(ctx, Kind::Channel, "unsubscribe", args)
}

fn punsubscribe(ctx: &mut SessionCtx<'_>, args: Args<'_>, _: &mut Reply) -> Result<(), Error> {
    leave(ctx, Kind::Pattern, "punsubscribe", args)
}

fn sunsubscribe(ctx: &mut SessionCtx<'_>, args: Args<'_>, _: &mut Reply) -> Result<(), Error> {
    leave(ctx, Kind::ShardChannel, "sunsubscribe", args)
}

fn post(ctx: &mut Ctx<'_>, kind: Kind, args: Args<'_>, reply: &mut Reply) -> Result<Flow, Error> {
    // What has happened to keys here before comes before it.
    if ctx.shard.has_events() {
        ctx.shard.publish_events();
    }
    let payload = || args.shared(2).cloned().unwrap_or_else(|| Bytes::copy_from_slice(args.at(2)));
    reply.int(ctx.shard.pubsub.publish(kind, args.at(1), payload));
    Ok(Flow::Done)
}

fn publish(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply) -> Result<Flow, Error> {
    post(ctx, Kind::Channel, args, reply)
}

fn spublish(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply) -> Result<Flow, Error> {
    post(ctx, Kind::ShardChannel, args, reply)
}
