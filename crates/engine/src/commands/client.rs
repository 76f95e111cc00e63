//! CLIENT: the records of its subcommands, and those that are about who a connection is.

use super::client_kill::{check_kill, check_unblock, kill, merge_kill, unblock};
use super::client_list::{check_filters, info, list, merge_list};
use super::client_modes::{capa, get_redir, no_evict, no_touch, reply_mode, tracking_info};
use super::client_pause::{check_pause, pause, unpause};
use super::connection::check_name;
use crate::args::Args;
use crate::command::{Command, Flags, Merge, Plan, Scope};
use crate::ctx::SessionCtx;
use crate::errors::Error;
use corelane_resp::Reply;

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
        LIST,
        KILL,
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
        Command {
            flags: Flags::ADMIN.with(QUIET),
            plan: Plan::EachShard { part: pause, merge: Merge::AllOk },
            scope: Scope::Nothing,
            check: Some(check_pause),
            since: "3.0.0",
            syntax: "timeout [WRITE | ALL]",
            ..of_connection(
                "pause",
                -3,
                Plan::Container,
                "Holds back all commands, or those that write, for a while.",
            )
        },
        Command {
            flags: Flags::ADMIN.with(QUIET),
            plan: Plan::EachShard { part: unpause, merge: Merge::AllOk },
            scope: Scope::Nothing,
            since: "6.2.0",
            complexity: "O(N) where N is the number of paused clients",
            ..of_connection("unpause", 2, Plan::Container, "Lets paused clients go on.")
        },
        Command {
            flags: QUIET.with(Flags::NO_MULTI).with(Flags::ALLOW_BUSY),
            since: "3.2.0",
            syntax: "(ON | OFF | SKIP)",
            ..of_connection("reply", 3, Plan::Session(reply_mode), "Chooses whether commands are answered.")
        },
        Command {
            flags: Flags::ADMIN.with(QUIET).with(Flags::ALLOW_BUSY),
            since: "7.0.0",
            syntax: "(ON | OFF)",
            ..of_connection(
                "no-evict",
                3,
                Plan::Session(no_evict),
                "Keeps the connection when memory is short.",
            )
        },
        Command {
            since: "7.2.0",
            syntax: "(ON | OFF)",
            ..of_connection(
                "no-touch",
                3,
                Plan::Session(no_touch),
                "Has commands be no accesses to their keys.",
            )
        },
        Command {
            flags: Flags::ADMIN.with(QUIET),
            since: "5.0.0",
            complexity: "O(1)",
            syntax: "client-id [TIMEOUT | ERROR]",
            scope: Scope::Nothing,
            check: Some(check_unblock),
            ..of_connection(
                "unblock",
                -3,
                Plan::EachShard { part: unblock, merge: Merge::Sum },
                "Ends the wait of a blocked client.",
            )
        },
        Command {
            since: "6.0.0",
            ..of_connection("getredir", 2, Plan::Session(get_redir), "Tells where tracking messages go.")
        },
        Command {
            flags: QUIET,
            since: "6.2.0",
            ..of_connection(
                "trackinginfo",
                2,
                Plan::Session(tracking_info),
                "Describes the tracking of keys.",
            )
        },
        Command {
            since: "8.0.0",
            syntax: "capability [capability ...]",
            ..of_connection("capa", -3, Plan::Session(capa), "Notes what the client is able to do.")
        },
        Command { group: "connection", categories: CONNECTION, ..super::help::RECORD },
    ],
    ..Command::DEFAULT
}];

const LIST: Command = Command {
    flags: Flags::ADMIN.with(QUIET),
    plan: Plan::EachShard { part: list, merge: Merge::With(merge_list) },
    scope: Scope::Nothing,
    check: Some(check_filters),
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
};

const KILL: Command = Command {
    flags: Flags::ADMIN.with(QUIET),
    plan: Plan::EachShard { part: kill, merge: Merge::With(merge_kill) },
    scope: Scope::Nothing,
    check: Some(check_kill),
    since: "2.4.0",
    complexity: "O(N) where N is the number of client connections",
    syntax: "(ip:port | ([ID client-id [client-id ...]] | \
        [TYPE (NORMAL | MASTER | PRIMARY | SLAVE | REPLICA | PUBSUB)] | [USER username] | [ADDR ip:port] | \
        [LADDR ip:port] | [SKIPME (YES | NO)] | [MAXAGE maxage] | [NAME name] | [IDLE idle] | [FLAGS flags] | \
        [LIB-NAME lib-name] | [LIB-VER lib-ver] | [DB db] | [CAPA capa] | [IP ip] | \
        [NOT-TYPE (NORMAL | MASTER | PRIMARY | SLAVE | REPLICA | PUBSUB)] | \
        [NOT-ID not-client-id [not-client-id ...]] | [NOT-USER not-username] | [NOT-ADDR ip:port] | \
        [NOT-LADDR ip:port] | [NOT-NAME not-name] | [NOT-FLAGS not-flags] | [NOT-LIB-NAME not-lib-name] | \
        [NOT-LIB-VER not-lib-ver] | [NOT-DB not-db] | [NOT-CAPA not-capa] | [NOT-IP not-ip]) ...)",
    ..of_connection("kill", -3, Plan::Container, "Closes connections of any shard.")
};

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
