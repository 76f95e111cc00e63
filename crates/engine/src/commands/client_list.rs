//! CLIENT LIST and CLIENT INFO: connections as operators see them.

use super::client_filter::{Filters, text};
use crate::args::Args;
use crate::command::Flow;
use crate::ctx::{Ctx, Decide, Next, On, PartResult, Payload};
use crate::errors::Error;
use crate::keyspace::Millis;
use crate::modes::Modes;
use crate::pubsub::Kind;
use crate::session::{CloseWhen, PauseState, Session};
use crate::settings::Settings;
use crate::slot::ShardId;
use corelane_resp::{Mark, Proto, Reply};

/// One line of CLIENT LIST: Valkey's fields in its order, then the shard.
fn describe(session: &Session, touched: bool, shard: ShardId, now: Millis) -> String {
    let (client, memory, flags) = (&session.client, session.memory(), flags(session, touched));
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
        // As in Valkey, who has to fail watches nothing any more.
        watch = client
            .transaction
            .as_ref()
            .filter(|_| !touched)
            .map_or(0, |transaction| transaction.watched.len()),
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

/// Valkey's letters for the state of a connection, in its order. `touched`: a key that it watches has been changed.
pub(super) fn flags(session: &Session, touched: bool) -> String {
    let Session { client, pause, .. } = session;
    let letters = [
        ('O', client.modes.has(Modes::MONITOR)),
        ('P', client.modes.has(Modes::SUBSCRIBED)),
        ('x', client.modes.has(Modes::MULTI)),
        ('b', *pause != PauseState::Running || client.wait.is_some()),
        ('d', touched),
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

/// The lines of one shard's clients, as raw text. Which of them watch changed keys, other shards know, too: these are asked first, and
/// where there are any, the lines are written once more.
fn write_lines(
    ctx: &mut Ctx<'_>,
    accept: impl Fn(&Session, bool) -> bool,
    reply: &mut Reply,
) -> Result<Flow, Error> {
    let touched = match std::mem::take(&mut ctx.payload) {
        Payload::Clients(touched) => touched,
        _ => Vec::new(),
    };
    for session in ctx.sessions.into_iter().flat_map(|sessions| sessions.iter()) {
        let touched = touched.binary_search(&session.client.id).is_ok();
        if accept(session, touched) {
            reply.raw(describe(session, touched, ctx.shard.me, ctx.now).as_bytes());
        }
    }
    if ctx.stage == 0 {
        ctx.payload = Payload::Clients(ctx.shard.keyspace.clients_with_changes().collect());
    }
    Ok(Flow::Done)
}

pub(super) fn list(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply) -> Result<Flow, Error> {
    let (filters, now) = (Filters::parse(args, &ctx.shard.settings)?, ctx.now);
    let skip = (filters.skip_me == Some(true)).then_some(ctx.client_id);
    let accept = |session: &Session, touched: bool| {
        Some(session.client.id) != skip && filters.accept(session, touched, now)
    };
    write_lines(ctx, accept, reply)
}

pub(super) fn info(ctx: &mut Ctx<'_>, _: Args<'_>, reply: &mut Reply) -> Result<Flow, Error> {
    let own = ctx.client_id;
    write_lines(ctx, |session, _| session.client.id == own, reply)
}

pub(super) fn decide(decide: &mut Decide<'_>) -> Next {
    let mut touched: Vec<u64> = Vec::new();
    for result in decide.results.iter_mut() {
        if let Payload::Clients(own) = std::mem::take(&mut result.payload) {
            touched.extend(own);
        }
    }
    if touched.is_empty() {
        merge_lines(decide.results, decide.reply);
        return Next::Reply;
    }
    touched.sort_unstable();
    Next::Run { stage: 1, on: On::All, payload: Payload::Clients(touched) }
}

fn merge_lines(parts: &[PartResult], reply: &mut Reply) {
    if let Some(failed) = parts.iter().find(|part| part.failed) {
        return reply.append_range(&failed.reply, Mark::default(), failed.reply.mark());
    }
    let texts: Vec<String> =
        parts.iter().map(|part| String::from_utf8_lossy(&part.reply.buf).into_owned()).collect();
    let mut lines: Vec<&str> = texts.iter().flat_map(|text| text.split_inclusive('\n')).collect();
    let id =
        |line: &str| line.strip_prefix("id=").and_then(|rest| rest.split(' ').next()?.parse::<u64>().ok());
    lines.sort_by_key(|line| id(line));
    reply.verbatim("txt", &lines.concat());
}
