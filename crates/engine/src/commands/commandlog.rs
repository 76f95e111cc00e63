//! COMMANDLOG and SLOWLOG: commands that took long, and those whose request or reply was large.
//!
//! Each shard keeps what its clients did (`journal`); all are asked, and their logs become one.

use super::help;
use crate::args::{Args, parse_int};
use crate::command::{Command, Flags, Flow, Merge, MergeFn, Plan, Scope};
use crate::ctx::{Ctx, PartResult, Payload, SessionCtx};
use crate::errors::Error;
use crate::journal::{LogEntry, LogKind, merged};
use crate::settings::Settings;
use corelane_resp::Reply;

/// Entries that SLOWLOG GET tells without a number.
const COUNT_DEFAULT: usize = 10;

pub(super) const OPERATOR: Flags = Flags::ADMIN.with(Flags::LOADING).with(Flags::STALE);

/// A subcommand for operators.
pub(super) const fn for_operators(name: &'static str, arity: i16, plan: Plan) -> Command {
    Command { name, arity, flags: OPERATOR, plan, scope: Scope::Nothing, group: "server", ..Command::DEFAULT }
}

const GET_TIPS: &[&str] = &["request_policy:all_nodes", "nondeterministic_output"];
const LEN_TIPS: &[&str] = &["request_policy:all_nodes", "response_policy:agg_sum", "nondeterministic_output"];
const RESET_TIPS: &[&str] = &["request_policy:all_nodes", "response_policy:all_succeeded"];
const TYPE: &str = "(SLOW | LARGE-REQUEST | LARGE-REPLY) #type";

pub(super) const COMMANDS: &[Command] = &[
    Command {
        name: "slowlog",
        arity: -2,
        since: "2.2.12",
        group: "server",
        summary: "A container for slow log commands.",
        complexity: "Depends on subcommand.",
        subcommands: &[
            Command {
                check: Some(check_slowlog_get),
                since: "2.2.12",
                summary: "Returns the slow log's entries.",
                complexity: "O(N) where N is the number of entries returned",
                syntax: "[count]",
                tips: GET_TIPS,
                ..for_operators(
                    "get",
                    -2,
                    Plan::EachShard { part: tell_slow, merge: Merge::With(write_entries) },
                )
            },
            Command {
                flags: QUIET,
                since: "6.2.0",
                summary: "Shows helpful text about the different subcommands.",
                ..for_operators("help", 2, Plan::Session(slowlog_help))
            },
            Command {
                since: "2.2.12",
                summary: "Returns the number of entries in the slow log.",
                tips: LEN_TIPS,
                ..for_operators("len", 2, Plan::EachShard { part: tell_slow, merge: Merge::With(write_len) })
            },
            Command {
                since: "2.2.12",
                summary: "Clears all entries from the slow log.",
                complexity: "O(N) where N is the number of entries in the slowlog",
                tips: RESET_TIPS,
                ..for_operators("reset", 2, Plan::EachShard { part: reset_slow, merge: Merge::AllOk })
            },
        ],
        ..Command::DEFAULT
    },
    Command {
        name: "commandlog",
        arity: -2,
        since: "8.1.0",
        group: "server",
        summary: "A container for command log commands.",
        complexity: "Depends on subcommand.",
        subcommands: &[
            Command {
                check: Some(check_commandlog_get),
                since: "8.1.0",
                summary: "Returns the specified command log's entries.",
                complexity: "O(N) where N is the number of entries returned",
                syntax: "count (SLOW | LARGE-REQUEST | LARGE-REPLY) #type",
                tips: GET_TIPS,
                ..for_operators("get", 4, asking(write_entries))
            },
            Command {
                flags: QUIET,
                since: "8.1.0",
                summary: "Shows helpful text about the different subcommands.",
                ..for_operators("help", 2, Plan::Session(commandlog_help))
            },
            Command {
                check: Some(check_type),
                since: "8.1.0",
                summary: "Returns the number of entries in the specified type of command log.",
                syntax: TYPE,
                tips: LEN_TIPS,
                ..for_operators("len", 3, asking(write_len))
            },
            Command {
                check: Some(check_type),
                since: "8.1.0",
                summary: "Clears all entries from the specified type of command log.",
                complexity: "O(N) where N is the number of entries in the commandlog",
                syntax: TYPE,
                tips: RESET_TIPS,
                ..for_operators("reset", 3, RESET)
            },
        ],
        ..Command::DEFAULT
    },
];

const RESET: Plan = Plan::EachShard { part: reset, merge: Merge::AllOk };

const fn asking(write: MergeFn) -> Plan {
    Plan::EachShard { part: tell, merge: Merge::With(write) }
}

const QUIET: Flags = Flags::LOADING.with(Flags::STALE);

/// How many entries are asked for; `None` for all.
fn count(args: Args<'_>) -> Result<Option<usize>, Error> {
    let Some(word) = args.get(2) else { return Ok(Some(COUNT_DEFAULT)) };
    match parse_int(word) {
        Some(-1) => Ok(None),
        Some(count @ 0..) => Ok(usize::try_from(count).ok()),
        _ => Err(Error::text("ERR count should be greater than or equal to -1")),
    }
}

/// Which log COMMANDLOG means, which names it last.
fn kind(args: Args<'_>) -> Result<LogKind, Error> {
    let last = args.len() - 1;
    let at_keyword = |name| args.is(last, name);
    match () {
        () if at_keyword("SLOW") => Ok(LogKind::Slow),
        () if at_keyword("LARGE-REQUEST") => Ok(LogKind::LargeRequest),
        () if at_keyword("LARGE-REPLY") => Ok(LogKind::LargeReply),
        () => Err(Error::text("ERR type should be one of the following: slow, large-request, large-reply")),
    }
}

fn check_slowlog_get(args: Args<'_>, _: &Settings) -> Result<(), Error> {
    if args.len() > 3 {
        return Err(super::subcommand_syntax_error(args));
    }
    count(args).map(|_| ())
}

fn check_commandlog_get(args: Args<'_>, _: &Settings) -> Result<(), Error> {
    count(args)?;
    kind(args).map(|_| ())
}

fn check_type(args: Args<'_>, _: &Settings) -> Result<(), Error> {
    kind(args).map(|_| ())
}

fn tell(ctx: &mut Ctx<'_>, args: Args<'_>, _: &mut Reply) -> Result<Flow, Error> {
    tell_of(ctx, kind(args)?);
    Ok(Flow::Done)
}

fn tell_slow(ctx: &mut Ctx<'_>, _: Args<'_>, _: &mut Reply) -> Result<Flow, Error> {
    tell_of(ctx, LogKind::Slow);
    Ok(Flow::Done)
}

fn tell_of(ctx: &mut Ctx<'_>, kind: LogKind) {
    let shard = &mut *ctx.shard;
    let part = shard.journal.part(kind, &shard.settings.observation, shard.timing.moment());
    ctx.payload = Payload::Log(Box::new(part));
}

fn all(parts: &[PartResult]) -> Vec<(u64, &LogEntry)> {
    merged(parts.iter().filter_map(|part| match &part.payload {
        Payload::Log(part) => Some(&**part),
        _ => None,
    }))
}

fn write_entries(parts: &[PartResult], args: Args<'_>, reply: &mut Reply) {
    let mut log = all(parts);
    if let Ok(Some(count)) = count(args) {
        log.truncate(count);
    }
    reply.array(log.len());
    for (id, entry) in log {
        reply.array(6);
        reply.int(id as i64);
        reply.int(entry.at_s as i64);
        reply.int(entry.value as i64);
        reply.array(entry.args.len());
        for arg in &entry.args {
            reply.bulk(arg);
        }
        reply.bulk(entry.addr.as_bytes());
        reply.bulk(&entry.name);
    }
}

fn write_len(parts: &[PartResult], _: Args<'_>, reply: &mut Reply) {
    reply.int(all(parts).len() as i64);
}

fn reset(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply) -> Result<Flow, Error> {
    ctx.shard.journal.clear(kind(args)?);
    reply.ok();
    Ok(Flow::Done)
}

fn reset_slow(ctx: &mut Ctx<'_>, _: Args<'_>, reply: &mut Reply) -> Result<Flow, Error> {
    ctx.shard.journal.clear(LogKind::Slow);
    reply.ok();
    Ok(Flow::Done)
}

fn slowlog_help(_: &mut SessionCtx<'_>, args: Args<'_>, reply: &mut Reply) -> Result<(), Error> {
    const LINES: &[&str] = &[
        "GET [<count>]",
        "    Return top <count> entries from the slowlog (default: 10, -1 mean all).",
        "    Entries are made of:",
        "    id, timestamp, time in microseconds, arguments array, client IP and port,",
        "    client name",
        "LEN",
        "    Return the length of the slowlog.",
        "RESET",
        "    Reset the slowlog.",
    ];
    help::write(LINES, args, reply);
    Ok(())
}

fn commandlog_help(_: &mut SessionCtx<'_>, args: Args<'_>, reply: &mut Reply) -> Result<(), Error> {
    const LINES: &[&str] = &[
        "GET <count> <type>",
        "    Return top <count> entries of the specified <type> from the commandlog (-1 mean all).",
        "    Entries are made of:",
        "    id, timestamp,",
        "        time in microseconds for type of slow,",
        "        or size in bytes for type of large-request,",
        "        or size in bytes for type of large-reply",
        "    arguments array, client IP and port,",
        "    client name",
        "LEN <type>",
        "    Return the length of the specified type of commandlog.",
        "RESET <type>",
        "    Reset the specified type of commandlog.",
    ];
    help::write(LINES, args, reply);
    Ok(())
}

#[cfg(test)]
mod tests {
    use crate::commands::testing::{Bench, check_all};
    use crate::settings::Observation;

    #[test]
    fn logs_are_empty_until_something_is_slow() {
        let wrong_type = "-ERR type should be one of the following: slow, large-request, large-reply";
        let wrong_count = "-ERR count should be greater than or equal to -1";
        check_all(&[
            ("SLOWLOG LEN", ":0"),
            ("SLOWLOG GET", "[]"),
            ("SLOWLOG GET -1", "[]"),
            ("SLOWLOG GET -2", wrong_count),
            ("SLOWLOG GET x", wrong_count),
            (
                "slowlog get 1 2",
                "-ERR unknown subcommand or wrong number of arguments for 'get'. Try SLOWLOG HELP.",
            ),
            ("SLOWLOG RESET", "+OK"),
            ("COMMANDLOG LEN slow", ":0"),
            ("COMMANDLOG LEN Large-Request", ":0"),
            ("COMMANDLOG GET 5 large-reply", "[]"),
            ("COMMANDLOG GET x nothing", wrong_count),
            ("COMMANDLOG GET 5 nothing", wrong_type),
            ("COMMANDLOG RESET nothing", wrong_type),
            ("COMMANDLOG RESET large-reply", "+OK"),
        ]);
    }

    #[test]
    fn a_slow_command_is_logged_once_wherever_it_ran() {
        for shards in [1, 2, 5] {
            let mut bench = Bench::new(shards);
            bench.run("CLIENT SETNAME me");
            bench.run("PING");
            bench.run("DEBUG SLEEP 0.02");
            // Each reading of the clock of the tests is a microsecond after the one before.
            let entry =
                "[:0, :1700000000, :20001, [\"DEBUG\", \"SLEEP\", \"0.02\"], \"127.0.0.1:5\", \"me\"]";
            assert_eq!(bench.run("SLOWLOG GET"), format!("[{entry}]"), "{shards} shards");
            bench.run("DEBUG SLEEP 0.01");
            assert_eq!(bench.run("COMMANDLOG LEN slow"), ":2");
            assert_eq!(bench.run("SLOWLOG GET 0"), "[]");
            assert!(bench.run("COMMANDLOG GET 1 slow").starts_with("[[:1, "));
            assert_eq!(bench.run("SLOWLOG RESET\nSLOWLOG LEN"), "+OK\n:0");
            bench.run("DEBUG SLEEP 0.01");
            assert!(bench.run("SLOWLOG GET").starts_with("[[:2, "), "numbers count on");
        }
    }

    #[test]
    fn every_command_is_logged_once_at_a_limit_of_nothing() {
        for shards in [1, 2, 5] {
            let mut bench = Bench::with(shards, Observation { slow_us: 0, ..Observation::default() });
            for line in ["PING", "SET a 1", "GET b", "MSET a 1 b 2 c 3 d 4", "RENAME a z", "DBSIZE", "KEYS *"]
            {
                bench.run(line);
            }
            let log = bench.run("SLOWLOG GET -1");
            let names: Vec<&str> = log
                .match_indices(", [\"")
                .map(|(at, mark)| log[at + mark.len()..].split('"').next().unwrap_or_default())
                .collect();
            assert_eq!(names, ["KEYS", "DBSIZE", "RENAME", "MSET", "GET", "SET", "PING"], "{shards} shards");
        }
    }

    #[test]
    fn commands_that_wait_are_logged_once_they_have_ended() {
        for shards in [1, 2, 5] {
            let observation = Observation {
                slow_us: 0,
                large_request_bytes: 30,
                large_reply_bytes: 40,
                ..Observation::default()
            };
            let mut bench = Bench::with(shards, observation);
            let one = bench.connect(0, 7);
            bench.say(one, "BLPOP a b c 0");
            bench.run(&format!("RPUSH b {}", "v".repeat(40)));
            bench.hear(one);
            bench.say(one, "BLPOP d e 0.01");
            bench.now += 20;
            assert_eq!(bench.hear(one), "nil");
            let id = bench.say(one, "CLIENT ID\nBLMOVE f g LEFT LEFT 0");
            assert_eq!(bench.run(&format!("CLIENT UNBLOCK {}", &id[1..])), ":1");
            let logged = |bench: &mut Bench, log: &str, word: &str| -> usize {
                bench.run(&format!("COMMANDLOG GET -1 {log}")).matches(&format!("[\"{word}\", ")).count()
            };
            assert_eq!(logged(&mut bench, "slow", "BLPOP"), 2, "{shards} shards");
            assert_eq!(logged(&mut bench, "slow", "BLMOVE"), 1, "{shards} shards");
            assert_eq!(logged(&mut bench, "large-reply", "BLPOP"), 1, "{shards} shards");
            assert_eq!(logged(&mut bench, "large-request", "BLPOP"), 2, "{shards} shards");
            assert_eq!(logged(&mut bench, "large-request", "BLMOVE"), 1, "{shards} shards");
        }
    }

    #[test]
    fn what_fails_in_a_transaction_is_logged() {
        for shards in [1, 2, 5] {
            let mut bench = Bench::with(shards, Observation { slow_us: 0, ..Observation::default() });
            bench.run("MULTI\nBLMPOP 0 1 a UP\nGETRANGE a x y\nEXEC");
            let log = bench.run("SLOWLOG GET -1");
            let count = |word: &str| log.matches(&format!("[\"{word}\"")).count();
            assert_eq!(
                (count("BLMPOP"), count("GETRANGE"), count("EXEC")),
                (1, 1, 0),
                "{shards} shards: {log}"
            );
        }
    }

    #[test]
    fn large_requests_are_logged_once_whoever_watches() {
        for shards in [1, 2, 5] {
            let observation = Observation { large_request_bytes: 30, ..Observation::default() };
            let mut bench = Bench::with(shards, observation);
            let monitor = bench.connect(0, 8);
            bench.say(monitor, "MONITOR");
            bench.run("MULTI\nSET some-key some-value\nEXEC");
            let one = bench.connect(0, 7);
            bench.say(one, "SUBSCRIBE some-channel and-another");
            let log = bench.run("COMMANDLOG GET -1 large-request");
            assert_eq!(log.matches("\"SET\"").count(), 1, "{shards} shards: {log}");
            assert_eq!(log.matches("\"SUBSCRIBE\"").count(), 1, "{shards} shards: {log}");
        }
    }

    #[test]
    fn large_requests_and_replies_are_logged_with_their_sizes() {
        for shards in [1, 2, 5] {
            let observation =
                Observation { large_request_bytes: 60, large_reply_bytes: 60, ..Observation::default() };
            let mut bench = Bench::with(shards, observation);
            let value = "v".repeat(50);
            bench.run(&format!("SET key {value}\nGET key\nMGET key other\nGET other"));
            let replies = bench.run("COMMANDLOG GET -1 large-reply");
            // *2, $50 and the value, and no value.
            let entry = "[[:0, :1700000000, :66, [\"MGET\", \"key\", \"other\"], \"127.0.0.1:5\", \"\"]]";
            assert_eq!(replies, entry, "{shards} shards");
            let requests = bench.run("COMMANDLOG GET -1 large-request");
            // *3, three headers and words: 4 + 9 + 9 + 57 bytes.
            let entry =
                format!("[:0, :1700000000, :79, [\"SET\", \"key\", \"{value}\"], \"127.0.0.1:5\", \"\"]");
            assert_eq!(requests, format!("[{entry}]"), "{shards} shards");
        }
    }
}
