//! CONFIG: the configuration as it is, and changes to it, which take effect on all shards at once.

use super::help;
use crate::args::Args;
use crate::command::{Command, Flags, Flow, Merge, Plan, Scope};
use crate::config::{Config, Directive, bytes};
use crate::ctx::{Ctx, Decide, HostRequest, Next, On, Payload, SessionCtx};
use crate::errors::Error;
use crate::glob::glob_match;
use crate::session::Client;
use crate::settings::Settings;
use crate::slot::ShardId;
use crate::stats::ShardStats;
use corelane_resp::Reply;

const ADMIN: Flags = Flags::ADMIN.with(Flags::NOSCRIPT).with(Flags::LOADING).with(Flags::STALE);
const ALL_NODES: &[&str] = &["request_policy:all_nodes", "response_policy:all_succeeded"];

const fn of_config(name: &'static str, arity: i16, plan: Plan, summary: &'static str) -> Command {
    Command { name, arity, flags: ADMIN, plan, since: "2.0.0", group: "server", summary, ..Command::DEFAULT }
}

pub(super) const COMMANDS: &[Command] = &[Command {
    name: "config",
    arity: -2,
    since: "2.0.0",
    group: "server",
    summary: "A container for server configuration commands.",
    complexity: "Depends on subcommand.",
    subcommands: &[
        Command {
            complexity: "O(N) when N is the number of configuration parameters provided",
            syntax: "parameter [parameter ...]",
            ..of_config(
                "get",
                -3,
                Plan::Session(get),
                "Returns the effective values of configuration parameters.",
            )
        },
        help::record(show_help, "5.0.0", "server"),
        Command {
            scope: Scope::Nothing,
            tips: ALL_NODES,
            ..of_config(
                "resetstat",
                2,
                Plan::EachShard { part: reset_stats, merge: Merge::AllOk },
                "Resets the server's statistics.",
            )
        },
        Command {
            since: "2.8.0",
            tips: ALL_NODES,
            ..of_config("rewrite", 2, Plan::Session(rewrite), "Persists the effective configuration to file.")
        },
        Command {
            scope: Scope::Alone,
            check: Some(check_set),
            admit: Some(admit_set),
            secrets: Some(is_secret),
            complexity: "O(N) when N is the number of configuration parameters provided",
            syntax: "parameter value [parameter value ...] #data",
            tips: ALL_NODES,
            ..of_config(
                "set",
                -4,
                Plan::Staged { read: begin_set, decide: decide_set, write: set },
                "Sets configuration parameters in-flight.",
            )
        },
    ],
    ..Command::DEFAULT
}];

const HELP: &[&str] = &[
    "GET <pattern>",
    "    Return parameters matching the glob-like <pattern> and their values.",
    "SET <directive> <value>",
    "    Set the configuration <directive> to <value>.",
    "RESETSTAT",
    "    Reset statistics reported by the INFO command.",
    "REWRITE",
    "    Rewrite the configuration file.",
];

fn show_help(_: &mut SessionCtx<'_>, args: Args<'_>, reply: &mut Reply) -> Result<(), Error> {
    help::write(HELP, args, reply);
    Ok(())
}

fn get(ctx: &mut SessionCtx<'_>, args: Args<'_>, reply: &mut Reply) -> Result<(), Error> {
    let mut found: Vec<(&[u8], &str)> = Vec::new();
    for wanted in args.iter_from(2) {
        // A plain name is answered in the letters it was asked in.
        let is_pattern = wanted.iter().any(|byte| matches!(byte, b'[' | b'*' | b'?'));
        let matches = |known: &&Directive| {
            glob_match(wanted, known.name.as_bytes(), true) && !(known.hidden && is_pattern)
        };
        for directive in Directive::all().iter().filter(matches) {
            let name = if is_pattern { directive.name.as_bytes() } else { wanted };
            if !found.iter().any(|(other, _)| other.eq_ignore_ascii_case(name)) {
                found.push((name, ctx.shard.settings.config.value_of(directive)));
            }
        }
    }
    reply.map(found.len());
    for (name, value) in found {
        reply.bulk(name);
        reply.bulk(&bytes::to_bytes(value));
    }
    Ok(())
}

fn failed(name: &[u8], why: &str) -> Error {
    let name = String::from_utf8_lossy(name);
    Error::owned(format!("ERR CONFIG SET failed (possibly related to argument '{name}') - {why}"))
}

/// The directives and values of the arguments. Valkey looks at all names before it looks at the first value.
fn pairs<'a>(args: Args<'a>, protected: bool) -> Result<Vec<(&'static Directive, &'a [u8])>, Error> {
    if args.len() % 2 == 1 {
        return Err(Error::Syntax);
    }
    let mut pairs: Vec<(&Directive, &[u8])> = Vec::new();
    for idx in (2..args.len()).step_by(2) {
        let name = args.at(idx);
        let directive = std::str::from_utf8(name).ok().and_then(Directive::find).ok_or_else(|| {
            Error::echo("ERR Unknown option or number of arguments for CONFIG SET - '", name, "'")
        })?;
        if directive.fixed {
            return Err(failed(name, "can't set immutable config"));
        }
        if directive.protected && !protected {
            return Err(failed(name, "can't set protected config"));
        }
        if (2..idx).step_by(2).any(|before| args.at(before).eq_ignore_ascii_case(name)) {
            return Err(failed(name, "duplicate parameter"));
        }
        pairs.push((directive, args.at(idx + 1)));
    }
    Ok(pairs)
}

/// The configuration after the change.
fn changed(args: Args<'_>, settings: &Settings) -> Result<Config, Error> {
    let mut config = settings.config.clone();
    for (idx, (directive, value)) in pairs(args, true)?.into_iter().enumerate() {
        let name = args.at(2 + 2 * idx);
        config.set(directive, &bytes::to_text(value)).map_err(|why| failed(name, &why))?;
        if directive.name == "maxclients" && config.number("maxclients") > i64::from(settings.maxclients_max)
        {
            let why = "The operating system is not able to handle the specified number of clients, try with";
            return Err(failed(name, &format!("{why} {}", settings.maxclients_max)));
        }
    }
    Ok(config)
}

/// Whether it is the value of a directive that is a secret. Where a value is missing, nobody can tell which words are values.
fn is_secret(args: Args<'_>, idx: usize) -> bool {
    let names_secret = |idx: usize| {
        let name = std::str::from_utf8(args.at(idx)).ok();
        name.and_then(Directive::find).is_some_and(|directive| directive.secret)
    };
    let odd = args.len() % 2 == 1;
    if odd { (2..idx).any(names_secret) } else { idx > 2 && idx % 2 == 1 && names_secret(idx - 1) }
}

fn admit_set(client: &Client, args: Args<'_>, settings: &Settings) -> Result<(), Error> {
    pairs(args, settings.config.allows("enable-protected-configs", client)).map(drop)
}

fn check_set(args: Args<'_>, settings: &Settings) -> Result<(), Error> {
    changed(args, settings).map(drop)
}

/// The first shard has the server listen where it is to; nothing has changed if it cannot.
const LISTEN: u8 = 1;
/// All shards take the new values.
const APPLY: u8 = 2;

/// What may fail has to wait until every shard is ours.
fn begin_set(_: &mut Ctx<'_>, _: Args<'_>, _: &mut Reply) -> Result<Flow, Error> {
    Ok(Flow::Done)
}

fn decide_set(decide: &mut Decide<'_>) -> Next {
    if decide.passes_on_failure() {
        return Next::Reply;
    }
    match decide.stage {
        0 => Next::Run { stage: LISTEN, on: On::All, payload: Payload::None },
        LISTEN => Next::Run { stage: APPLY, on: On::All, payload: Payload::None },
        _ => {
            decide.reply.ok();
            Next::Reply
        }
    }
}

fn set(ctx: &mut Ctx<'_>, args: Args<'_>, _: &mut Reply) -> Result<Flow, Error> {
    let (stage, is_first) = (ctx.stage, ctx.shard.me == ShardId(0));
    let settings = &mut ctx.shard.settings;
    let config = changed(args, settings)?;
    if stage == LISTEN {
        if is_first && listen(args, settings, &config)? {
            ctx.shard.host_requests.push_back(HostRequest::Listen);
        }
        return Ok(Flow::Done);
    }
    if is_first {
        (settings.hooks.changed)(&settings.config, &config);
    }
    settings.apply(config);
    ctx.shard.apply_settings();
    Ok(Flow::Done)
}

/// Has the process listen where the new configuration says. Returns whether that is elsewhere than before.
fn listen(args: Args<'_>, settings: &Settings, new: &Config) -> Result<bool, Error> {
    let moves = |directive: &&Directive| {
        let differs = new.value_of(directive) != settings.config.value_of(directive);
        differs && matches!(directive.name, "bind" | "port")
    };
    let pairs = pairs(args, true)?;
    let Some(directive) = pairs.iter().map(|(directive, _)| *directive).find(moves) else { return Ok(false) };
    (settings.hooks.listen)(new).map_err(|()| {
        let why = match directive.name {
            "bind" => "Failed to bind to specified addresses.",
            _ => "Unable to listen on this port. Check server logs.",
        };
        failed(directive.name.as_bytes(), why)
    })?;
    Ok(true)
}

fn rewrite(ctx: &mut SessionCtx<'_>, _: Args<'_>, reply: &mut Reply) -> Result<(), Error> {
    let settings = &ctx.shard.settings;
    (settings.hooks.rewrite)(&settings.config).map_err(|why| Error::owned(format!("ERR {why}")))?;
    reply.ok();
    Ok(())
}

fn reset_stats(ctx: &mut Ctx<'_>, _: Args<'_>, reply: &mut Reply) -> Result<Flow, Error> {
    ctx.shard.stats = ShardStats::default();
    ctx.shard.keyspace.reset_stats();
    ctx.shard.timing.reset();
    reply.ok();
    Ok(Flow::Done)
}

#[cfg(test)]
mod tests {
    use super::super::testing::{Bench, check_all};

    #[test]
    fn what_has_expired_is_counted_anew() {
        for shards in [1, 3] {
            let mut bench = Bench::new(shards);
            let counts = |bench: &mut Bench| {
                let info = bench.run("INFO stats");
                ["expired_keys:2", "expired_fields:1"].map(|field| info.contains(field))
            };
            bench.run("HSET h f v g v\nHEXPIREAT h 1 FIELDS 1 f\nMSET a 1 b 2\nEXPIREAT a 1\nEXPIREAT b 1");
            assert_eq!(counts(&mut bench), [true, true], "{shards} shards");
            bench.run("CONFIG RESETSTAT");
            assert_eq!(counts(&mut bench), [false, false], "{shards} shards");
        }
    }

    #[test]
    fn settings_change_on_all_shards_or_on_none() {
        check_all(&[
            ("CONFIG SET timeout 7 slowlog-max-len 3", "+OK"),
            ("CONFIG GET timeout", r#"["timeout", "7"]"#),
            ("CONFIG GET Commandlog-Slow-Execution-Max-Len", r#"["Commandlog-Slow-Execution-Max-Len", "3"]"#),
            (
                "CONFIG SET timeout 8 slowlog-max-len x",
                "-ERR CONFIG SET failed (possibly related to argument 'slowlog-max-len') - argument couldn't be parsed into an integer",
            ),
            ("CONFIG GET timeout", r#"["timeout", "7"]"#),
            (
                "CONFIG SET timeout 8 TIMEOUT 9",
                "-ERR CONFIG SET failed (possibly related to argument 'TIMEOUT') - duplicate parameter",
            ),
            ("CONFIG SET nope 1", "-ERR Unknown option or number of arguments for CONFIG SET - 'nope'"),
            (
                "CONFIG SET databases 1",
                "-ERR CONFIG SET failed (possibly related to argument 'databases') - can't set immutable config",
            ),
            ("CONFIG SET port 6379 bind \"127.0.0.1 -::1\"", "+OK"),
            (
                "CONFIG SET timeout 9 port 1",
                "-ERR CONFIG SET failed (possibly related to argument 'port') - Unable to listen on this port. Check server logs.",
            ),
            (
                "CONFIG SET bind ::1 port 1",
                "-ERR CONFIG SET failed (possibly related to argument 'bind') - Failed to bind to specified addresses.",
            ),
            ("CONFIG GET timeout", r#"["timeout", "7"]"#),
            ("CONFIG GET port", r#"["port", "6379"]"#),
            (
                "CONFIG SET dir /",
                "-ERR CONFIG SET failed (possibly related to argument 'dir') - can't set protected config",
            ),
            ("CONFIG SET timeout", "-ERR wrong number of arguments for 'config|set' command"),
            ("CONFIG SET timeout 1 port", "-ERR syntax error"),
            ("CONFIG REWRITE", "-ERR The server is running without a config file"),
        ]);
    }
}
