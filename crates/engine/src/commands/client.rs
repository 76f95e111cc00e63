//! CLIENT: the records of its subcommands, and those that are about who a connection is.

use super::client_help::show_help;
use super::client_kill::{check_kill, check_unblock, decide_kill, kill, unblock};
use super::client_list::{check_filters, decide, info, list};
use super::client_modes::{capa, get_redir, no_evict, no_touch, reply_mode, tracking_info};
use super::client_pause::{check_pause, pause, unpause};
use super::connection::check_name;
use super::help;
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
    summary: "A container for client connection commands.",
    complexity: "Depends on subcommand.",
    subcommands: &[
        Command {
            since: "5.0.0",
            ..of_connection("id", 2, Plan::Session(id), "Returns the unique client ID of the connection.")
        },
        Command {
            flags: QUIET,
            since: "6.2.0",
            tips: &["nondeterministic_output"],
            plan: Plan::Staged { read: info, decide, write: info },
            scope: Scope::Nothing,
            ..of_connection("info", 2, Plan::Container, "Returns information about the connection.")
        },
        LIST,
        KILL,
        Command {
            since: "2.6.9",
            ..of_connection("getname", 2, Plan::Session(get_name), "Returns the name of the connection.")
        },
        Command {
            since: "2.6.9",
            syntax: "connection-name",
            tips: ALL_NODES,
            ..of_connection("setname", 3, Plan::Session(set_name), "Sets the connection name.")
        },
        Command {
            since: "7.2.0",
            syntax: "(LIB-NAME libname | LIB-VER libver) #attr",
            tips: ALL_NODES,
            ..of_connection(
                "setinfo",
                4,
                Plan::Session(set_info),
                "Sets information specific to the client or connection.",
            )
        },
        Command {
            flags: Flags::ADMIN.with(QUIET),
            plan: Plan::EachShard { part: pause, merge: Merge::AllOk },
            scope: Scope::Nothing,
            check: Some(check_pause),
            since: "3.0.0",
            syntax: "timeout [WRITE | ALL] #mode @6.2.0",
            ..of_connection("pause", -3, Plan::Container, "Suspends commands processing.")
        },
        Command {
            flags: Flags::ADMIN.with(QUIET),
            plan: Plan::EachShard { part: unpause, merge: Merge::AllOk },
            scope: Scope::Nothing,
            since: "6.2.0",
            complexity: "O(N) where N is the number of paused clients",
            ..of_connection("unpause", 2, Plan::Container, "Resumes processing commands from paused clients.")
        },
        Command {
            flags: QUIET.with(Flags::NO_MULTI).with(Flags::ALLOW_BUSY),
            since: "3.2.0",
            syntax: "(ON | OFF | SKIP) #action",
            ..of_connection(
                "reply",
                3,
                Plan::Session(reply_mode),
                "Instructs the server whether to reply to commands.",
            )
        },
        Command {
            flags: Flags::ADMIN.with(QUIET).with(Flags::ALLOW_BUSY),
            since: "7.0.0",
            syntax: "(ON | OFF) #enabled",
            ..of_connection(
                "no-evict",
                3,
                Plan::Session(no_evict),
                "Sets the client eviction mode of the connection.",
            )
        },
        Command {
            since: "7.2.0",
            syntax: "(ON | OFF) #enabled",
            ..of_connection(
                "no-touch",
                3,
                Plan::Session(no_touch),
                "Controls whether commands sent by the client affect the LRU/LFU of accessed keys.",
            )
        },
        Command {
            flags: Flags::ADMIN.with(QUIET),
            since: "5.0.0",
            complexity: "O(1)",
            syntax: "client-id [TIMEOUT | ERROR] #unblock-type",
            scope: Scope::Nothing,
            check: Some(check_unblock),
            ..of_connection(
                "unblock",
                -3,
                Plan::EachShard { part: unblock, merge: Merge::Sum },
                "Unblocks a client blocked by a blocking command from a different connection.",
            )
        },
        Command {
            since: "6.0.0",
            ..of_connection(
                "getredir",
                2,
                Plan::Session(get_redir),
                "Returns the client ID to which the connection's tracking notifications are redirected.",
            )
        },
        Command {
            flags: QUIET,
            since: "6.2.0",
            ..of_connection(
                "trackinginfo",
                2,
                Plan::Session(tracking_info),
                "Returns information about server-assisted client-side caching for the connection.",
            )
        },
        Command {
            since: "8.0.0",
            syntax: "capability [capability ...]",
            ..of_connection("capa", -3, Plan::Session(capa), "A client claims its capability.")
        },
        Command {
            group: "connection",
            categories: CONNECTION,
            ..help::record(show_help, "5.0.0", "connection")
        },
    ],
    ..Command::DEFAULT
}];

const LIST: Command = Command {
    flags: Flags::ADMIN.with(QUIET),
    plan: Plan::Staged { read: list, decide, write: list },
    scope: Scope::Nothing,
    check: Some(check_filters),
    since: "2.4.0",
    complexity: "O(N) where N is the number of client connections",
    syntax: "[TYPE (NORMAL | MASTER | REPLICA | PUBSUB)] #client-type @5.0.0 [ID client-id [client-id ...]] @6.2.0 [USER \
        username] @8.1.0 [ADDR ip:port] #addr @8.1.0 [LADDR ip:port] #laddr @8.1.0 [SKIPME (YES | NO)] @8.1.0 [MAXAGE \
        maxage] @8.1.0 [NAME name] @9.0.0 [IDLE idle] @9.0.0 [FLAGS flags] @9.0.0 [LIB-NAME lib-name] @9.0.0 [LIB-VER \
        lib-ver] @9.0.0 [DB db] @9.0.0 [CAPA capa] @9.0.0 [IP ip] @9.0.0 [NOT-TYPE (NORMAL | MASTER | REPLICA | \
        PUBSUB)] #not-client-type @9.0.0 [NOT-ID not-client-id [not-client-id ...]] @9.0.0 [NOT-USER not-username] \
        @9.0.0 [NOT-ADDR ip:port] #not-addr @9.0.0 [NOT-LADDR ip:port] #not-laddr @9.0.0 [NOT-NAME not-name] @9.0.0 \
        [NOT-FLAGS not-flags] @9.0.0 [NOT-LIB-NAME not-lib-name] @9.0.0 [NOT-LIB-VER not-lib-ver] @9.0.0 [NOT-DB \
        not-db] @9.0.0 [NOT-CAPA not-capa] @9.0.0 [NOT-IP not-ip] @9.0.0",
    tips: &["nondeterministic_output"],
    ..of_connection("list", -2, Plan::Container, "Lists open connections.")
};

const KILL: Command = Command {
    flags: Flags::ADMIN.with(QUIET),
    plan: Plan::Staged { read: kill, decide: decide_kill, write: kill },
    scope: Scope::Nothing,
    check: Some(check_kill),
    since: "2.4.0",
    complexity: "O(N) where N is the number of client connections",
    syntax: "(ip:port #old-format !2.8.12 | ([ID client-id [client-id ...]] @2.8.12 | [TYPE (NORMAL | MASTER @3.2.0 | \
        PRIMARY @8.0.0 | SLAVE | REPLICA @5.0.0 | PUBSUB)] #client-type @2.8.12 | [USER username] | [ADDR ip:port] \
        #addr | [LADDR ip:port] #laddr @6.2.0 | [SKIPME (YES | NO)] | [MAXAGE maxage] @8.0.0 | [NAME name] @9.0.0 | \
        [IDLE idle] @9.0.0 | [FLAGS flags] @9.0.0 | [LIB-NAME lib-name] @9.0.0 | [LIB-VER lib-ver] @9.0.0 | [DB db] \
        @9.0.0 | [CAPA capa] @9.0.0 | [IP ip] @9.0.0 | [NOT-TYPE (NORMAL | MASTER | PRIMARY | SLAVE | REPLICA | \
        PUBSUB)] #not-client-type @9.0.0 | [NOT-ID not-client-id [not-client-id ...]] @9.0.0 | [NOT-USER not-username] \
        @9.0.0 | [NOT-ADDR ip:port] #not-addr @9.0.0 | [NOT-LADDR ip:port] #not-laddr @9.0.0 | [NOT-NAME not-name] \
        @9.0.0 | [NOT-FLAGS not-flags] @9.0.0 | [NOT-LIB-NAME not-lib-name] @9.0.0 | [NOT-LIB-VER not-lib-ver] @9.0.0 \
        | [NOT-DB not-db] @9.0.0 | [NOT-CAPA not-capa] @9.0.0 | [NOT-IP not-ip] @9.0.0) ... #new-format) #filter",
    ..of_connection("kill", -3, Plan::Container, "Terminates open connections.")
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
