//! CLIENT LIST and CLIENT INFO: connections as operators see them.

use super::client_filter::{Filters, text};
use crate::args::Args;
use crate::command::Flow;
use crate::ctx::{Ctx, PartResult, SessionCtx};
use crate::errors::Error;
use crate::keyspace::Millis;
use crate::modes::Modes;
use crate::pubsub::Kind;
use crate::session::{Client, CloseWhen, Memory, PauseState, Session};
use crate::settings::Settings;
use crate::slot::ShardId;
use corelane_resp::{Proto, Reply};

pub(super) fn info(ctx: &mut SessionCtx<'_>, _: Args<'_>, reply: &mut Reply) -> Result<(), Error> {
    let flags = flags_of(ctx.client, PauseState::Running);
    reply.verbatim("txt", &describe(ctx.client, Memory::default(), &flags, ctx.shard.me, ctx.now));
    Ok(())
}

/// One line of CLIENT LIST: Valkey's fields in its order, then the shard.
fn describe(client: &Client, memory: Memory, flags: &str, shard: ShardId, now: Millis) -> String {
    let seconds = |since: Millis| now.saturating_sub(since) / 1000;
    let subscribed =
        |kind| client.subscriptions.as_ref().map_or(0, |subscriptions| subscriptions.count(kind));
    let command = match client.last_command {
        (name, None) => name.to_owned(),
        (container, Some(sub)) => format!("{container}|{sub}"),
    };
    format!(
        "id={id} addr={addr} laddr={laddr} fd={fd} name={name} age={age} idle={idle} flags={flags} capa={capa} db={db} sub={sub} \
         psub={psub} ssub={ssub} multi={multi} watch={watch} qbuf={qbuf} qbuf-free={free} argv-mem={arguments} multi-mem={queue} rbs={room} rbp={room} \
         obl={output} oll=0 omem={output} tot-mem={total} events=r cmd={command} user=default redir=-1 resp={resp} \
         lib-name={lib_name} lib-ver={lib_ver} tot-net-in={net_in} tot-net-out={net_out} tot-cmds={commands} shard={shard}\n",
        id = client.id,
        addr = client.addr(),
        laddr = client.laddr(),
        fd = client.peer.fd,
        name = text(&client.name),
        age = seconds(client.created),
        idle = seconds(client.last_active),
        capa = if client.modes.has(Modes::REDIRECT) { "r" } else { "" },
        db = client.db,
        sub = subscribed(Kind::Channel),
        psub = subscribed(Kind::Pattern),
        ssub = subscribed(Kind::ShardChannel),
        multi = client.transaction.as_ref().map_or(-1, |transaction| transaction.len as i64),
        watch = client.transaction.as_ref().map_or(0, |transaction| transaction.watched.len()),
        queue = client.transaction.as_ref().map_or(0, |transaction| transaction.memory()),
        qbuf = memory.input,
        free = memory.input_free,
        arguments = memory.arguments,
        room = memory.output_room,
        output = memory.output,
        total = memory.total(),
        resp = if client.proto == Proto::Resp3 { 3 } else { 2 },
        lib_name = text(&client.lib_name),
        lib_ver = text(&client.lib_version),
        net_in = client.bytes_in,
        net_out = client.bytes_out,
        commands = client.commands,
        shard = shard.0,
    )
}

/// Valkey's letters for the state of a connection, in its order.
pub(super) fn flags(session: &Session) -> String {
    flags_of(&session.client, session.pause)
}

fn flags_of(client: &Client, pause: PauseState) -> String {
    let letters = [
        ('O', client.modes.has(Modes::MONITOR)),
        ('P', client.modes.has(Modes::SUBSCRIBED)),
        ('x', client.modes.has(Modes::MULTI)),
        ('b', pause != PauseState::Running || client.wait.is_some()),
        ('c', client.close == Some(CloseWhen::AfterOutput)),
        ('A', client.close == Some(CloseWhen::Now)),
        ('U', client.peer.unix),
        ('e', client.modes.has(Modes::NO_EVICT)),
        ('T', client.modes.has(Modes::NO_TOUCH)),
    ];
    let flags: String = letters.into_iter().filter(|(_, set)| *set).map(|(letter, _)| letter).collect();
    if flags.is_empty() { "N".to_owned() } else { flags }
}

pub(super) fn check_filters(args: Args<'_>, settings: &Settings) -> Result<(), Error> {
    Filters::parse(args, settings).map(|_| ())
}

/// The lines of one shard's clients, as raw text: the merge makes one reply of them.
pub(super) fn list(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply) -> Result<Flow, Error> {
    let filters = Filters::parse(args, &ctx.shard.settings)?;
    let skip = (filters.skip_me == Some(true)).then_some(ctx.client_id);
    for session in ctx.sessions.into_iter().flat_map(|sessions| sessions.iter()) {
        let client = &session.client;
        if Some(client.id) == skip || !filters.accept(session, ctx.now) {
            continue;
        }
        let line = describe(client, session.memory(), &flags(session), ctx.shard.me, ctx.now);
        reply.raw(line.as_bytes());
    }
    Ok(Flow::Done)
}

pub(super) fn merge_list(parts: &[PartResult], _: Args<'_>, reply: &mut Reply) {
    let texts: Vec<String> =
        parts.iter().map(|part| String::from_utf8_lossy(&part.reply.buf).into_owned()).collect();
    let mut lines: Vec<&str> = texts.iter().flat_map(|text| text.split_inclusive('\n')).collect();
    let id =
        |line: &str| line.strip_prefix("id=").and_then(|rest| rest.split(' ').next()?.parse::<u64>().ok());
    lines.sort_by_key(|line| id(line));
    reply.verbatim("txt", &lines.concat());
}
