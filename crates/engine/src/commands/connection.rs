//! Connections: greeting, echo and farewell.

use crate::args::Args;
use crate::command::{Command, Flags, Plan};
use crate::config::bytes;
use crate::ctx::SessionCtx;
use crate::errors::Error;
use crate::modes::Modes;
use crate::session::{Client, CloseWhen};
use corelane_resp::{Proto, Reply};

const ANY_STATE: Flags = Flags::LOADING.with(Flags::STALE).with(Flags::FAST);
const BEFORE_AUTH: Flags = ANY_STATE.with(Flags::NOSCRIPT).with(Flags::NO_AUTH).with(Flags::ALLOW_BUSY);
const FAREWELL: Flags = BEFORE_AUTH.with(Flags::UNQUEUED).with(Flags::WHILE_LISTENING);

pub(super) const COMMANDS: &[Command] = &[
    Command {
        name: "ping",
        arity: -1,
        flags: Flags::FAST.with(Flags::WHILE_LISTENING),
        plan: Plan::Session(ping),
        group: "connection",
        summary: "Returns the server's liveliness response.",
        syntax: "[message]",
        tips: &["request_policy:all_shards", "response_policy:all_succeeded"],
        ..Command::DEFAULT
    },
    Command {
        name: "echo",
        arity: 2,
        flags: ANY_STATE,
        plan: Plan::Session(echo),
        group: "connection",
        summary: "Returns the given string.",
        syntax: "message",
        ..Command::DEFAULT
    },
    Command {
        name: "quit",
        arity: -1,
        flags: FAREWELL,
        plan: Plan::Session(quit),
        group: "connection",
        summary: "Closes the connection.",
        ..Command::DEFAULT
    },
    Command {
        name: "reset",
        arity: 1,
        flags: FAREWELL,
        plan: Plan::Session(reset),
        since: "6.2.0",
        group: "connection",
        summary: "Resets the connection.",
        ..Command::DEFAULT
    },
    Command {
        name: "hello",
        arity: -1,
        flags: BEFORE_AUTH,
        plan: Plan::Session(hello),
        secrets: Some(is_secret_of_hello),
        since: "6.0.0",
        group: "connection",
        summary: "Handshakes with the server.",
        syntax: "[protover [AUTH (username password)] [SETNAME clientname]] #arguments",
        ..Command::DEFAULT
    },
];

fn ping(ctx: &mut SessionCtx<'_>, args: Args<'_>, reply: &mut Reply) -> Result<(), Error> {
    match args.len() {
        // In RESP2 what a subscriber gets looks like a message.
        1 | 2 if ctx.client.modes.has(Modes::SUBSCRIBED) && ctx.client.proto == Proto::Resp2 => {
            reply.array(2);
            reply.bulk(b"pong");
            reply.bulk(args.get(1).unwrap_or_default());
        }
        1 => reply.simple("PONG"),
        2 => reply.bulk(args.at(1)),
        _ => return Err(Error::Arity("ping".into())),
    }
    Ok(())
}

fn echo(_: &mut SessionCtx<'_>, args: Args<'_>, reply: &mut Reply) -> Result<(), Error> {
    reply.bulk(args.at(1));
    Ok(())
}

fn quit(ctx: &mut SessionCtx<'_>, _: Args<'_>, reply: &mut Reply) -> Result<(), Error> {
    ctx.client.close = Some(CloseWhen::AfterOutput);
    reply.ok();
    Ok(())
}

fn reset(ctx: &mut SessionCtx<'_>, _: Args<'_>, reply: &mut Reply) -> Result<(), Error> {
    ctx.client.discard_transaction(ctx.shard);
    ctx.client.db = 0;
    ctx.client.authenticated = ctx.shard.settings.password.is_empty();
    ctx.client.name = Box::default();
    ctx.client.proto = Proto::Resp2;
    if ctx.client.modes.has(Modes::MONITOR) {
        ctx.shard.watchers.leave();
    }
    ctx.client.modes.reset();
    reply.simple("RESET");
    Ok(())
}

/// Whether it is one of the two words behind AUTH.
fn is_secret_of_hello(args: Args<'_>, idx: usize) -> bool {
    idx > 2 && (args.is(idx - 1, "AUTH") || args.is(idx - 2, "AUTH"))
}

/// What HELLO asks for.
#[derive(Default)]
struct Hello<'a> {
    proto: Option<Proto>,
    auth: Option<(&'a [u8], &'a [u8])>,
    name: Option<&'a [u8]>,
}

fn parse_hello<'a>(args: Args<'a>) -> Result<Hello<'a>, Error> {
    let mut hello = Hello::default();
    if args.len() > 1 {
        let version =
            args.int(1).map_err(|_| Error::text("ERR Protocol version is not an integer or out of range"))?;
        hello.proto = Some(match version {
            2 => Proto::Resp2,
            3 => Proto::Resp3,
            _ => return Err(Error::NoProto),
        });
    }
    let mut idx = 2;
    while idx < args.len() {
        let left = args.len() - idx - 1;
        if args.is(idx, "AUTH") && left >= 2 {
            hello.auth = Some((args.at(idx + 1), args.at(idx + 2)));
            idx += 3;
        } else if args.is(idx, "SETNAME") && left >= 1 {
            hello.name = Some(args.at(idx + 1));
            check_name(args.at(idx + 1))?;
            idx += 2;
        } else {
            return Err(Error::echo("ERR Syntax error in HELLO option '", args.at(idx), "'"));
        }
    }
    Ok(hello)
}

fn hello(ctx: &mut SessionCtx<'_>, args: Args<'_>, reply: &mut Reply) -> Result<(), Error> {
    let hello = parse_hello(args)?;
    if let Some((user, password)) = hello.auth {
        super::auth::authenticate(ctx, user, password)?;
    }
    if !ctx.client.authenticated && !ctx.shard.settings.password.is_empty() {
        return Err(Error::text(
            "NOAUTH HELLO must be called with the client already authenticated, otherwise the HELLO <proto> AUTH <user> \
             <pass> option can be used to authenticate the client and select the RESP protocol version at the same time",
        ));
    }
    if let Some(name) = hello.name {
        ctx.client.name = name.into();
    }
    if let Some(proto) = hello.proto {
        ctx.client.proto = proto;
        reply.set_proto(proto);
    }
    greet(ctx.client, ctx.shard.settings.config.value("availability-zone"), reply);
    Ok(())
}

fn greet(client: &Client, zone: &str, reply: &mut Reply) {
    reply.map(7 + usize::from(!zone.is_empty()));
    for (field, value) in [("server", "corelane"), ("version", env!("CARGO_PKG_VERSION"))] {
        reply.bulk(field.as_bytes());
        reply.bulk(value.as_bytes());
    }
    reply.bulk(b"proto");
    reply.int(if client.proto == Proto::Resp3 { 3 } else { 2 });
    reply.bulk(b"id");
    reply.int(client.id as i64);
    for (field, value) in [("mode", "standalone"), ("role", "master")] {
        reply.bulk(field.as_bytes());
        reply.bulk(value.as_bytes());
    }
    reply.bulk(b"modules");
    reply.array(0);
    if !zone.is_empty() {
        reply.bulk(b"availability_zone");
        reply.bulk(&bytes::to_bytes(zone));
    }
}

/// Client names may hold printable characters other than the space only.
pub(super) fn check_name(name: &[u8]) -> Result<(), Error> {
    if name.iter().all(|byte| (b'!'..=b'~').contains(byte)) {
        return Ok(());
    }
    Err(Error::text("ERR Client names cannot contain spaces, newlines or special characters."))
}
