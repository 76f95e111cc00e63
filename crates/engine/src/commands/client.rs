//! CLIENT: the connections, as clients and operators see them.

use super::connection::check_name;
use crate::args::Args;
use crate::command::{Command, Flags, Flow, Merge, Plan, Scope};
use crate::ctx::{Ctx, PartResult, SessionCtx};
use crate::errors::Error;
use crate::keyspace::Millis;
use crate::session::{Client, Session};
use crate::settings::Settings;
use crate::slot::ShardId;
use corelane_resp::{Proto, Reply};

const QUIET: Flags = Flags::NOSCRIPT.with(Flags::LOADING).with(Flags::STALE);
const CONNECTION: &[&str] = &["@connection"];

const fn of_connection(name: &'static str, arity: i16, plan: Plan, summary: &'static str) -> Command {
    Command {
        name,
        arity,
        flags: QUIET.with(Flags::ALLOW_BUSY),
        plan,
        group: "connection",
        categories: CONNECTION,
        summary,
        ..Command::DEFAULT
    }
}

const ALL_NODES: &[&str] = &["request_policy:all_nodes", "response_policy:all_succeeded"];

pub(super) const COMMANDS: &[Command] = &[Command {
    name: "client",
    arity: -2,
    since: "2.4.0",
    group: "connection",
    summary: "Holds the commands on connections.",
    complexity: "Depends on subcommand.",
    subcommands: &[
        Command {
            since: "5.0.0",
            ..of_connection("id", 2, Plan::Session(id), "Tells the connection's number.")
        },
        Command {
            flags: QUIET,
            since: "6.2.0",
            tips: &["nondeterministic_output"],
            ..of_connection("info", 2, Plan::Session(info), "Describes the connection.")
        },
        Command {
            flags: Flags::ADMIN.with(QUIET),
            plan: Plan::EachShard { part: list, merge: Merge::With(merge_list) },
            scope: Scope::Nothing,
            check: Some(check_list),
            since: "2.4.0",
            complexity: "O(N) where N is the number of client connections",
            syntax: "[TYPE (NORMAL | MASTER | REPLICA | PUBSUB)] [ID client-id [client-id ...]] [USER username] \
                [ADDR ip:port] [LADDR ip:port] [SKIPME (YES | NO)] [MAXAGE maxage] [NAME name] [IDLE idle] \
                [FLAGS flags] [LIB-NAME lib-name] [LIB-VER lib-ver] [DB db] [CAPA capa] [IP ip] \
                [NOT-TYPE (NORMAL | MASTER | REPLICA | PUBSUB)] [NOT-ID not-client-id [not-client-id ...]] \
                [NOT-USER not-username] [NOT-ADDR ip:port] [NOT-LADDR ip:port] [NOT-NAME not-name] \
                [NOT-FLAGS not-flags] [NOT-LIB-NAME not-lib-name] [NOT-LIB-VER not-lib-ver] [NOT-DB not-db] \
                [NOT-CAPA not-capa] [NOT-IP not-ip]",
            tips: &["nondeterministic_output"],
            ..of_connection("list", -2, Plan::Container, "Lists the connections of all shards.")
        },
        Command {
            since: "2.6.9",
            ..of_connection("getname", 2, Plan::Session(get_name), "Tells the connection's name.")
        },
        Command {
            since: "2.6.9",
            syntax: "connection-name",
            tips: ALL_NODES,
            ..of_connection("setname", 3, Plan::Session(set_name), "Names the connection.")
        },
        Command {
            since: "7.2.0",
            syntax: "(LIB-NAME libname | LIB-VER libver)",
            tips: ALL_NODES,
            ..of_connection("setinfo", 4, Plan::Session(set_info), "Notes the client library.")
        },
    ],
    ..Command::DEFAULT
}];

fn id(ctx: &mut SessionCtx<'_>, _: Args<'_>, reply: &mut Reply) -> Result<(), Error> {
    reply.int(ctx.client.id as i64);
    Ok(())
}

fn get_name(ctx: &mut SessionCtx<'_>, _: Args<'_>, reply: &mut Reply) -> Result<(), Error> {
    if ctx.client.name.is_empty() {
        reply.null();
    } else {
        reply.bulk(&ctx.client.name);
    }
    Ok(())
}

fn set_name(ctx: &mut SessionCtx<'_>, args: Args<'_>, reply: &mut Reply) -> Result<(), Error> {
    check_name(args.at(2))?;
    ctx.client.name = args.at(2).into();
    reply.ok();
    Ok(())
}

fn set_info(ctx: &mut SessionCtx<'_>, args: Args<'_>, reply: &mut Reply) -> Result<(), Error> {
    let (field, option) = if args.is(2, "LIB-NAME") {
        (&mut ctx.client.lib_name, "lib-name")
    } else if args.is(2, "LIB-VER") {
        (&mut ctx.client.lib_version, "lib-ver")
    } else {
        return Err(Error::echo("ERR Unrecognized option '", args.at(2), "'"));
    };
    if check_name(args.at(3)).is_err() {
        let text = format!("ERR {option} cannot contain spaces, newlines or special characters.");
        return Err(Error::owned(text));
    }
    *field = args.at(3).into();
    reply.ok();
    Ok(())
}

fn info(ctx: &mut SessionCtx<'_>, _: Args<'_>, reply: &mut Reply) -> Result<(), Error> {
    reply.verbatim("txt", &describe(ctx.client, Buffers::default(), ctx.shard.me, ctx.now));
    Ok(())
}

/// What a session holds beyond its client's attributes, in bytes.
#[derive(Clone, Copy, Default)]
struct Buffers {
    input: usize,
    output: usize,
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// One line of CLIENT LIST: Valkey's fields in its order, then the shard.
fn describe(client: &Client, buffers: Buffers, shard: ShardId, now: Millis) -> String {
    let seconds = |since: Millis| now.saturating_sub(since) / 1000;
    let command = match client.last_command {
        (name, None) => name.to_owned(),
        (container, Some(sub)) => format!("{container}|{sub}"),
    };
    format!(
        "id={id} addr={addr} laddr={laddr} fd={fd} name={name} age={age} idle={idle} flags={flags} capa= db={db} sub=0 psub=0 \
         ssub=0 multi=-1 watch=0 qbuf={qbuf} qbuf-free=0 argv-mem=0 multi-mem=0 rbs=0 rbp=0 obl={obl} oll=0 omem={omem} \
         tot-mem={total} events=r cmd={command} user=default redir=-1 resp={resp} lib-name={lib_name} lib-ver={lib_ver} \
         tot-net-in={net_in} tot-net-out={net_out} tot-cmds={commands} shard={shard}\n",
        id = client.id,
        addr = client.peer.ends().addr,
        laddr = client.peer.ends().laddr,
        fd = client.peer.fd,
        name = text(&client.name),
        age = seconds(client.created),
        idle = seconds(client.last_active),
        flags = flags(client),
        db = client.db,
        qbuf = buffers.input,
        obl = buffers.output,
        omem = buffers.output,
        total = buffers.input + buffers.output + size_of::<Session>(),
        resp = if client.proto == Proto::Resp3 { 3 } else { 2 },
        lib_name = text(&client.lib_name),
        lib_ver = text(&client.lib_version),
        net_in = client.bytes_in,
        net_out = client.bytes_out,
        commands = client.commands,
        shard = shard.0,
    )
}

fn flags(client: &Client) -> &'static str {
    if client.peer.unix { "U" } else { "N" }
}

/// A condition that CLIENT LIST puts on clients.
enum Filter {
    Ids(Vec<i64>),
    /// Only the type "normal" exists here.
    Normal(bool),
    User(bool),
    Text(fn(&Client) -> String, String),
    SkipMe,
    MaxAge(u64),
    Idle(u64),
    Db(usize),
    Flags(String),
    /// No connection has any capability: only asking for none is met.
    Capa(String),
    Not(Box<Self>),
}

impl Filter {
    fn accepts(&self, client: &Client, now: Millis) -> bool {
        let age = |since: Millis| now.saturating_sub(since) / 1000;
        match self {
            Self::Ids(ids) => ids.contains(&(client.id as i64)),
            Self::Normal(yes) | Self::User(yes) => *yes,
            // An empty field counts as one that was never set.
            Self::Text(field, wanted) => !wanted.is_empty() && field(client) == *wanted,
            // The asking client's last command is this very one; see `list`.
            Self::SkipMe => true,
            Self::MaxAge(seconds) => age(client.created) >= *seconds,
            Self::Idle(seconds) => age(client.last_active) >= *seconds,
            Self::Db(db) => client.db == *db,
            Self::Flags(wanted) => wanted.chars().all(|flag| flags(client).contains(flag)),
            Self::Capa(wanted) => wanted.is_empty(),
            Self::Not(filter) => !filter.accepts(client, now),
        }
    }
}

fn check_list(args: Args<'_>, settings: &Settings) -> Result<(), Error> {
    parse_filters(args, settings).map(|_| ())
}

fn parse_filters(args: Args<'_>, settings: &Settings) -> Result<Vec<Filter>, Error> {
    let mut filters = Vec::new();
    let mut idx = 2;
    while idx < args.len() {
        let word = args.at(idx).to_ascii_uppercase();
        let (negative, name) = match word.strip_prefix(b"NOT-") {
            Some(b"IDLE" | b"MAXAGE" | b"SKIPME") => return Err(Error::Syntax),
            Some(rest) => (true, rest),
            None => (false, &word[..]),
        };
        let value = args.get(idx + 1).ok_or(Error::Syntax)?;
        idx += 2;
        let filter = if name == b"ID" {
            let mut ids = vec![parse_id(value)?];
            while let Some(id) = args.get(idx).and_then(|next| parse_id(next).ok()) {
                ids.push(id);
                idx += 1;
            }
            Filter::Ids(ids)
        } else {
            parse_filter(name, value, negative, settings)?
        };
        filters.push(if negative { Filter::Not(Box::new(filter)) } else { filter });
    }
    Ok(filters)
}

fn parse_id(value: &[u8]) -> Result<i64, Error> {
    let id = crate::args::parse_int(value).ok_or(Error::Syntax)?;
    if id < 1 {
        return Err(Error::text("ERR client-id should be greater than 0"));
    }
    Ok(id)
}

fn parse_number(what: &str, value: &[u8]) -> Result<i64, Error> {
    crate::args::parse_int(value)
        .ok_or_else(|| Error::owned(format!("ERR {what} is not an integer or out of range")))
}

fn parse_seconds(what: &str, value: &[u8]) -> Result<u64, Error> {
    match parse_number(what, value)? {
        number @ 1.. => Ok(number.unsigned_abs()),
        _ => Err(Error::owned(format!("ERR {what} should be greater than 0"))),
    }
}

/// Checks that a filter's letters are all among the `known`.
fn check_letters(what: &str, known: &[u8], value: &[u8], negative: bool) -> Result<(), Error> {
    if value.iter().all(|letter| known.contains(letter)) {
        return Ok(());
    }
    let place =
        if negative { format!("NOT-{} filter", what.to_uppercase()) } else { "provided filter".to_owned() };
    Err(Error::echo(&format!("ERR Unknown {what} found in the {place}: "), value, ""))
}

fn parse_filter(name: &[u8], value: &[u8], negative: bool, settings: &Settings) -> Result<Filter, Error> {
    /// The letters that CLIENT LIST can show.
    const FLAGS: &[u8] = b"AbBcdeEiIMNOPrRStTuUx";
    const CAPABILITIES: &[u8] = b"r";
    let wanted = text(value);
    Ok(match name {
        b"TYPE" => match value.to_ascii_lowercase().as_slice() {
            b"normal" => Filter::Normal(true),
            b"master" | b"primary" | b"replica" | b"slave" | b"pubsub" => Filter::Normal(false),
            _ => return Err(Error::echo("ERR Unknown client type '", value, "'")),
        },
        b"USER" if value == b"default" => Filter::User(true),
        b"USER" => return Err(Error::echo("ERR No such user '", value, "'")),
        b"ADDR" => Filter::Text(|client| client.peer.ends().addr.clone(), wanted),
        b"LADDR" => Filter::Text(|client| client.peer.ends().laddr.clone(), wanted),
        b"NAME" => Filter::Text(|client| text(&client.name), wanted),
        b"LIB-NAME" => Filter::Text(|client| text(&client.lib_name), wanted),
        b"LIB-VER" => Filter::Text(|client| text(&client.lib_version), wanted),
        b"IP" => Filter::Text(
            |client| client.peer.ends().addr.rsplit_once(':').map_or("", |(ip, _)| ip).to_owned(),
            wanted,
        ),
        b"SKIPME" if value.eq_ignore_ascii_case(b"yes") => Filter::SkipMe,
        b"SKIPME" if value.eq_ignore_ascii_case(b"no") => Filter::Normal(true),
        b"MAXAGE" => Filter::MaxAge(parse_seconds("maxage", value)?),
        b"IDLE" => Filter::Idle(parse_seconds("idle", value)?),
        b"DB" => {
            let (last, what) = (settings.databases - 1, if negative { "NOT-DB" } else { "DB" });
            let db = usize::try_from(parse_number(what, value)?).ok().filter(|db| *db <= last);
            let error = || Error::owned(format!("ERR {what} number should be between 0 and {last}"));
            Filter::Db(db.ok_or_else(error)?)
        }
        b"FLAGS" => {
            check_letters("flags", FLAGS, value, negative)?;
            Filter::Flags(wanted)
        }
        b"CAPA" => {
            check_letters("capa", CAPABILITIES, value, negative)?;
            Filter::Capa(wanted)
        }
        _ => return Err(Error::Syntax),
    })
}

/// The lines of one shard's clients, as raw text: the merge makes one reply of them.
fn list(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply) -> Result<Flow, Error> {
    let filters = parse_filters(args, &ctx.shard.settings)?;
    let skip = filters.iter().any(|filter| matches!(filter, Filter::SkipMe)).then_some(ctx.client_id);
    for session in ctx.sessions.into_iter().flat_map(|sessions| sessions.iter()) {
        let client = &session.client;
        if Some(client.id) == skip || !filters.iter().all(|filter| filter.accepts(client, ctx.now)) {
            continue;
        }
        let buffers = Buffers { input: session.input_len(), output: session.output_len() };
        reply.raw(describe(client, buffers, ctx.shard.me, ctx.now).as_bytes());
    }
    Ok(Flow::Done)
}

fn merge_list(parts: &[PartResult], _: Args<'_>, reply: &mut Reply) {
    let texts: Vec<String> =
        parts.iter().map(|part| String::from_utf8_lossy(&part.reply.buf).into_owned()).collect();
    let mut lines: Vec<&str> = texts.iter().flat_map(|text| text.split_inclusive('\n')).collect();
    let id =
        |line: &str| line.strip_prefix("id=").and_then(|rest| rest.split(' ').next()?.parse::<u64>().ok());
    lines.sort_by_key(|line| id(line));
    reply.verbatim("txt", &lines.concat());
}
