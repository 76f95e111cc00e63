//! Transactions: MULTI, EXEC, DISCARD, WATCH and UNWATCH. The queue is `crate::transaction`, running it `crate::exec`.

use crate::args::Args;
use crate::command::{Command, Flags, Flow, KeyFlags, KeySpec, Merge, Plan, Scope};
use crate::ctx::{Ctx, SessionCtx};
use crate::errors::Error;
use crate::modes::Modes;
use corelane_resp::Reply;

const STEERS: Flags = Flags::NOSCRIPT.with(Flags::LOADING).with(Flags::STALE);
const AT_ONCE: Flags = STEERS.with(Flags::FAST).with(Flags::ALLOW_BUSY);

const fn of_transactions(
    name: &'static str,
    arity: i16,
    flags: Flags,
    since: &'static str,
    plan: Plan,
    summary: &'static str,
) -> Command {
    Command {
        name,
        arity,
        flags,
        categories: &["@transaction"],
        plan,
        since,
        group: "transactions",
        summary,
        ..Command::DEFAULT
    }
}

pub(super) const COMMANDS: &[Command] = &[
    of_transactions(
        "multi",
        1,
        AT_ONCE.with(Flags::NO_MULTI),
        "1.2.0",
        Plan::Session(multi),
        "Starts a transaction.",
    ),
    Command {
        complexity: "Depends on commands in the transaction",
        ..of_transactions(
            "exec",
            1,
            STEERS.with(Flags::SKIP_COMMANDLOG).with(Flags::UNQUEUED),
            "1.2.0",
            Plan::Exec,
            "Executes all commands in a transaction.",
        )
    },
    Command {
        complexity: "O(N), when N is the number of queued commands",
        ..of_transactions(
            "discard",
            1,
            AT_ONCE.with(Flags::UNQUEUED),
            "2.0.0",
            Plan::Session(discard),
            "Discards a transaction.",
        )
    },
    Command {
        keys: &[KeySpec::all_from(1, 1, KeyFlags::RO)],
        scope: Scope::Watch,
        complexity: "O(1) for every key.",
        syntax: "key [key ...]",
        ..of_transactions(
            "watch",
            -2,
            AT_ONCE.with(Flags::NO_MULTI),
            "2.2.0",
            Plan::EachShard { part: watch, merge: Merge::AllOk },
            "Monitors changes to keys to determine the execution of a transaction.",
        )
    },
    of_transactions(
        "unwatch",
        1,
        AT_ONCE,
        "2.2.0",
        Plan::Session(unwatch),
        "Forgets about watched keys of a transaction.",
    ),
];

fn multi(ctx: &mut SessionCtx<'_>, _: Args<'_>, reply: &mut Reply) -> Result<(), Error> {
    ctx.client.begin_transaction();
    reply.ok();
    Ok(())
}

fn discard(ctx: &mut SessionCtx<'_>, _: Args<'_>, reply: &mut Reply) -> Result<(), Error> {
    if !ctx.client.modes.has(Modes::MULTI) {
        return Err(Error::text("ERR DISCARD without MULTI"));
    }
    ctx.client.discard_transaction(ctx.shard);
    reply.ok();
    Ok(())
}

/// The session has noted the keys of all shards; this shard notes its own.
fn watch(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply) -> Result<Flow, Error> {
    for idx in ctx.keys.indices() {
        let key = ctx.key(args.at(idx));
        ctx.shard.keyspace.watch(ctx.client_id, ctx.db, key, ctx.now);
    }
    reply.ok();
    Ok(Flow::Done)
}

fn unwatch(ctx: &mut SessionCtx<'_>, _: Args<'_>, reply: &mut Reply) -> Result<(), Error> {
    ctx.client.unwatch(ctx.shard);
    reply.ok();
    Ok(())
}

#[cfg(test)]
mod tests {
    use crate::commands::testing::{Bench, check_all};

    const ABORTED: &str = "-EXECABORT Transaction discarded because of previous errors.";

    #[test]
    fn commands_are_queued_and_run_in_order() {
        check_all(&[
            ("EXEC\nDISCARD\nUNWATCH", "-ERR EXEC without MULTI\n-ERR DISCARD without MULTI\n+OK"),
            ("MULTI\nEXEC\nMULTI\nDISCARD\nEXEC", "+OK\n[]\n+OK\n+OK\n-ERR EXEC without MULTI"),
            ("MULTI\nSET a 1\nINCR a\nGET a\nEXEC", "+OK\n+QUEUED\n+QUEUED\n+QUEUED\n[+OK, :2, \"2\"]"),
            (
                "MULTI\nMSET a 1 b 2 c 3 d 4\nINCR c\nMGET a b c d e\nRENAME a e\nDEL b c\nMGET a b c d e\nEXEC",
                "+OK\n+QUEUED\n+QUEUED\n+QUEUED\n+QUEUED\n+QUEUED\n+QUEUED\n[+OK, :4, [\"1\", \"2\", \"4\", \"4\", nil], \
                 +OK, :2, [nil, nil, nil, \"4\", \"1\"]]",
            ),
            (
                "MULTI\nSELECT 3\nSET a x\nSELECT 99\nGET a\nSELECT 0\nGET a\nPING\nEXEC",
                "+OK\n+QUEUED\n+QUEUED\n+QUEUED\n+QUEUED\n+QUEUED\n+QUEUED\n+QUEUED\n[+OK, +OK, -ERR DB index is out of range, \
                 \"x\", +OK, nil, +PONG]",
            ),
            (
                "MULTI\nFLUSHALL\nDBSIZE\nMSET a 1 b 2\nDBSIZE\nKEYS a\nSWAPDB 0 1\nDBSIZE\nRANDOMKEY\nSWAPDB 0 1\nEXEC",
                "+OK\n+QUEUED\n+QUEUED\n+QUEUED\n+QUEUED\n+QUEUED\n+QUEUED\n+QUEUED\n+QUEUED\n+QUEUED\n\
                 [+OK, :0, +OK, :2, [\"a\"], +OK, :0, nil, +OK]",
            ),
            (
                "MULTI\nCONFIG SET maxclients 77\nCONFIG GET maxclients\nFLUSHALL x\nMSET a\nMSETNX c 1 d 2\nMSETNX d 1 e 2\n\
                 WAIT 1 0\nMONITOR\nEXEC",
                "+OK\n+QUEUED\n+QUEUED\n+QUEUED\n-ERR wrong number of arguments for 'mset' command\n+QUEUED\n+QUEUED\n+QUEUED\n\
                 +QUEUED\n-EXECABORT Transaction discarded because of previous errors.",
            ),
            (
                "MULTI\nCONFIG SET maxclients 77\nCONFIG GET maxclients\nFLUSHALL x\nMSETNX c 1 d 2\nMSETNX d 1 e 2\n\
                 WAIT 1 0\nMONITOR\nINCR c x\nEXEC",
                "+OK\n+QUEUED\n+QUEUED\n+QUEUED\n+QUEUED\n+QUEUED\n+QUEUED\n+QUEUED\n\
                 -ERR wrong number of arguments for 'incr' command\n-EXECABORT Transaction discarded because of previous errors.",
            ),
            (
                "MULTI\nCONFIG SET maxclients 77\nCONFIG GET maxclients\nFLUSHALL x\nMSETNX c 1 d 2\nMSETNX d 1 e 2\n\
                 WAIT 1 0\nMONITOR\nINCR c\nEXEC",
                "+OK\n+QUEUED\n+QUEUED\n+QUEUED\n+QUEUED\n+QUEUED\n+QUEUED\n+QUEUED\n+QUEUED\n[+OK, [\"maxclients\", \"77\"], \
                 -ERR syntax error, :1, :0, :0, -ERR MONITOR isn't allowed for DENY BLOCKING client, :2]",
            ),
            ("PING\nMULTI\nRESET\nEXEC", "+PONG\n+OK\n+RESET\n-ERR EXEC without MULTI"),
        ]);
    }

    /// From 64 KiB on, all of it or one of them: the shard panicked.
    #[test]
    fn replies_may_be_long() {
        let value = "x".repeat(16_000);
        let push = "RPUSH l ".to_owned() + &format!("{value} ").repeat(5);
        let all = vec![format!("\"{value}\""); 5].join(", ");
        let queued = |count| "+OK\n".to_owned() + &"+QUEUED\n".repeat(count);
        for (lines, replies) in [
            ("GET a\n".repeat(9), vec![format!("\"{value}\""); 9].join(", ")),
            ("STRLEN a\nLRANGE l 0 -1\nGET b\nGET a\nLRANGE l 0 -1\n".to_owned(), {
                format!(":16000, [{all}], nil, \"{value}\", [{all}]")
            }),
            ("LRANGE l 0 -1\nMGET a b\nSTRLEN a\nSTRLEN b\n".to_owned(), {
                format!("[{all}], [\"{value}\", nil], :16000, :0")
            }),
        ] {
            let request = format!("SET a {value}\n{}\nMULTI\n{lines}EXEC\nPING", push.trim_end());
            let queued = queued(lines.lines().count());
            check_all(&[(&request, &format!("+OK\n:5\n{queued}[{replies}]\n+PONG"))]);
        }
    }

    #[test]
    fn subcommands_named_like_a_way_out_are_queued() {
        check_all(&[("MULTI\nSLOWLOG RESET\nLATENCY RESET\nEXEC", "+OK\n+QUEUED\n+QUEUED\n[+OK, :0]")]);
    }

    #[test]
    fn what_cannot_be_queued_fails_the_transaction() {
        for (bad, error) in [
            ("NOSUCH", "-ERR unknown command 'NOSUCH', with args beginning with: "),
            ("GET", "-ERR wrong number of arguments for 'get' command"),
            ("MULTI", "-ERR Command 'multi' not allowed inside a transaction"),
            ("WATCH a", "-ERR Command 'watch' not allowed inside a transaction"),
            ("CLIENT REPLY ON", "-ERR Command 'client|reply' not allowed inside a transaction"),
            ("DISCARD x", "-ERR wrong number of arguments for 'discard' command"),
        ] {
            check_all(&[
                ("MULTI\nSET a 1", "+OK\n+QUEUED"),
                (bad, error),
                ("GET a\nEXEC", &format!("+QUEUED\n{ABORTED}")),
                ("EXEC\nGET a", "-ERR EXEC without MULTI\nnil"),
            ]);
        }
        let text =
            "-EXECABORT Transaction discarded because of: wrong number of arguments for 'exec' command";
        check_all(&[("MULTI\nEXEC x\nPING", &format!("+OK\n{text}\n+PONG"))]);
    }

    /// The other client says `meanwhile` between WATCH and MULTI; what EXEC answers to a GET of `a` and an ECHO.
    fn watched(before: &str, keys: &str, meanwhile: &str) -> String {
        let replies = [1, 2, 5].map(|shards| {
            let mut bench = Bench::new(shards);
            let other = bench.connect(0, 77);
            bench.run(before);
            assert_eq!(bench.run(&format!("WATCH {keys}")), "+OK");
            bench.say(other, meanwhile);
            bench.now += 10;
            let reply = bench.run("MULTI\nECHO x\nEXEC");
            let none = bench.nodes.iter().all(|node| node.core.shard.keyspace.watched_keys() == 0);
            assert!(none, "nothing is watched after EXEC");
            assert_eq!(bench.run("MULTI\nEXEC"), "+OK\n[]");
            reply.lines().last().unwrap_or_default().to_owned()
        });
        assert!(replies.iter().all(|reply| *reply == replies[0]), "{replies:?}");
        replies[0].clone()
    }

    #[test]
    fn a_changed_key_fails_the_transaction_of_those_who_watch_it() {
        let changes = [
            "SET b 5",
            "SET b 1",
            "APPEND b x",
            "SETRANGE b 0 x",
            "INCR b",
            "DEL b",
            "UNLINK b c",
            "EXPIRE b 100",
            "EXPIRE b -1",
            "GETEX b PX 1000",
            "GETDEL b",
            "MSET c 1 b 2",
            "RENAME b d",
            "RENAME c b",
            "COPY c b REPLACE",
            "MOVE b 2",
            "FLUSHDB",
            "FLUSHALL",
            "SWAPDB 0 3",
            "PEXPIRE b 10",
            "MULTI\nSET b 2\nEXEC",
            "MULTI\nSET e 2\nMSETNX f 1 g 2\nSET b 2\nEXEC",
        ];
        for change in changes {
            assert_eq!(watched("MSET a 1 b 2 c 3", "a b c", change), "nil", "{change}");
        }
        for same in [
            "GET b",
            "SET d 1",
            "SETNX b 1",
            "SELECT 1\nSET b 1",
            "TOUCH b",
            "PERSIST b",
            "RENAME b b",
            "RENAMENX c b",
            "COPY c b",
            "EXPIRE b 100 XX",
            "SWAPDB 1 2",
            "SWAPDB 0 0",
            "SELECT 1\nFLUSHDB",
            "MULTI\nSET b 2\nDISCARD",
        ] {
            assert_eq!(watched("MSET a 1 b 2 c 3", "a b c", same), "[\"x\"]", "{same}");
        }
        // A key that is not there and does not come to be has not changed.
        for same in ["FLUSHALL", "DEL b", "SWAPDB 0 1", "EXPIRE b 10"] {
            assert_eq!(watched("SET a 1", "b", same), "[\"x\"]", "{same}");
        }
        for change in ["SET b 1", "SET b 1\nDEL b", "SET b 1 PX 5", "SELECT 1\nSET b 1\nSWAPDB 0 1"] {
            assert_eq!(watched("SET a 1", "b", change), "nil", "{change}");
        }
        assert_eq!(watched("SET b 1 PX 5", "b", "PING"), "nil");
    }

    #[test]
    fn a_field_whose_time_has_come_has_changed_its_hash() {
        // The test's clock goes on by ten milliseconds before EXEC.
        for (before, meanwhile) in [
            ("HSET b f 1 g 2\nHPEXPIRE b 5 FIELDS 1 f", "PING"),
            ("HSET b f 1 g 2\nHPEXPIRE b 5 FIELDS 1 f", "HGETALL b"),
            ("HSET b f 1 g 2\nHPEXPIRE b 500 FIELDS 1 g\nHPEXPIRE b 10 FIELDS 1 f", "PING"),
            ("HSET b f 1\nHPEXPIRE b 5 FIELDS 1 f", "PING"),
            ("HSET b f 1 g 2\nHPEXPIRE b 500 FIELDS 1 f\nPEXPIRE b 5", "PING"),
            ("HSET b f 1 g 2", "HPEXPIRE b 500 FIELDS 1 f"),
        ] {
            assert_eq!(watched(before, "a b", meanwhile), "nil", "{before}, {meanwhile}");
        }
        for (before, meanwhile) in [
            ("HSET b f 1 g 2\nHPEXPIRE b 11 FIELDS 1 f", "HGETALL b"),
            ("HSET b f 1 g 2\nHPEXPIRE b 0 FIELDS 1 f", "PING"),
            ("HSET b f 1 g 2\nHPEXPIRE b 5 FIELDS 1 f\nHPERSIST b FIELDS 1 f", "PING"),
            ("SELECT 1\nHSET b f 1 g 2\nHPEXPIRE b 5 FIELDS 1 f\nSELECT 0", "PING"),
        ] {
            assert_eq!(watched(before, "a b", meanwhile), "[\"x\"]", "{before}, {meanwhile}");
        }
    }

    #[test]
    fn watches_end_with_unwatch_discard_reset_exec_and_the_connection() {
        for shards in [1, 2, 5] {
            for (end, replies) in [
                ("UNWATCH", "+OK"),
                ("MULTI\nDISCARD", "+OK\n+OK"),
                ("RESET", "+RESET"),
                ("MULTI\nEXEC", "+OK\n[]"),
                ("QUIT", "+OK\nclosed"),
                ("MULTI\nNOSUCH\nEXEC", ""),
            ] {
                let mut bench = Bench::new(shards);
                let client = bench.connect(1, 77);
                assert_eq!(bench.say(client, "WATCH a b c a\nSELECT 2\nWATCH a"), "+OK\n+OK\n+OK");
                let info = bench.run("INFO clients");
                assert!(info.contains("watching_clients:1\\r\\n"), "{info}");
                assert!(info.contains("total_watched_keys:4\\r\\n"), "{info}");
                assert!(bench.say(client, "CLIENT INFO").contains(" multi=0 watch=4 "));
                let said = bench.say(client, end);
                assert!(replies.is_empty() || said == replies, "{end}: {said}");
                bench.settle();
                let info = bench.run("INFO clients");
                assert!(info.contains("total_watched_keys:0\\r\\n"), "{end}: {info}");
            }
        }
    }

    #[test]
    fn client_list_shows_the_queue() {
        let mut bench = Bench::new(2);
        let client = bench.connect(0, 77);
        assert!(bench.say(client, "CLIENT INFO").contains(" flags=N "));
        bench.say(client, "MULTI\nGET a\nGET b");
        let list = bench.run("CLIENT LIST FLAGS x");
        assert!(
            list.contains("addr=127.0.0.1:77 ") && list.contains(" flags=x ") && list.contains(" multi=2 "),
            "{list}"
        );
        assert!(bench.say(client, "CLIENT INFO\nEXEC").contains(" flags=x "));
    }

    #[test]
    fn a_pause_holds_back_what_would_change_data() {
        for shards in [1, 2, 5] {
            let mut bench = Bench::new(shards);
            let (reader, writer) = (bench.connect(0, 77), bench.connect(1, 78));
            bench.say(writer, "MULTI\nSET a 1\nSET b 1");
            bench.run("CLIENT PAUSE 1000 WRITE");
            assert_eq!(
                bench.say(reader, "MULTI\nGET a\nMGET a b\nEXEC").lines().last(),
                Some("[nil, [nil, nil]]")
            );
            assert_eq!(bench.say(writer, "EXEC"), "");
            assert_eq!(bench.say(reader, "MULTI\nSET c 1\nEXEC"), "+OK");
            bench.now += 1001;
            assert_eq!(bench.hear(writer), "[+OK, +OK]");
            assert_eq!(bench.hear(reader), "+QUEUED\n[+OK]");
        }
    }

    #[test]
    fn a_client_that_leaves_has_its_transaction_run() {
        for shards in [1, 2, 5] {
            let mut bench = Bench::new(shards);
            let client = bench.connect(0, 77);
            bench.say(client, "WATCH w");
            bench.send(client, "MULTI\nSELECT 2\nMSET a 1 b 2\nRENAME a c\nSELECT 1\nINCR c\nEXEC");
            bench.nodes[0].close(client.session());
            bench.settle();
            assert_eq!(
                bench.run("SELECT 2\nMGET a b c").lines().last(),
                Some("[nil, \"2\", \"1\"]"),
                "{shards}"
            );
            assert_eq!(bench.run("SELECT 1\nGET c"), "+OK\n\"1\"");
            assert!(bench.nodes.iter().all(|node| node.core.shard.keyspace.watched_keys() == 0));
        }
    }

    #[test]
    fn monitors_are_shown_what_runs_and_then_exec() {
        for shards in [1, 2, 5] {
            let mut bench = Bench::new(shards);
            let (monitor, client) = (bench.connect(0, 77), bench.connect(1, 78));
            bench.say(monitor, "MONITOR");
            bench
                .say(client, "MULTI\nSET a 1\nSELECT 2\nMGET a b c\nRENAME a b\nEXEC\nMULTI\nGET a\nDISCARD");
            bench.say(client, "WATCH a\nMULTI\nGET a\nNOSUCH\nEXEC");
            let heard = bench.hear(monitor);
            let heard: Vec<&str> = heard.lines().filter_map(|line| line.split("] ").nth(1)).collect();
            let words = [
                "MULTI", "SET", "SELECT", "MGET", "RENAME", "EXEC", "MULTI", "DISCARD", "WATCH", "MULTI",
                "EXEC",
            ];
            let names: Vec<&str> = heard.iter().map(|line| line.split("\\\"").nth(1).unwrap_or("")).collect();
            assert_eq!(names, words, "{shards} shards: {heard:?}");
        }
    }

    #[test]
    fn commands_of_a_transaction_are_counted_once_each() {
        for shards in [1, 2, 5] {
            let mut bench = Bench::new(shards);
            bench.run(
                "MULTI\nSET a 1\nMGET a b c d\nINCR a\nSETNX b 1\nRENAME a c\nLCS b c\nINCR c\nSADD\nEXEC",
            );
            bench.run("MULTI\nSET a 1\nMGET a b c d\nRENAME a c\nINCR c\nEXEC");
            let stats = bench.run("INFO commandstats errorstats");
            for calls in [
                "set:calls=1,",
                "mget:calls=1,",
                "rename:calls=1,",
                "incr:calls=1,",
                "multi:calls=2,",
                "exec:calls=2,",
            ] {
                assert!(stats.contains(&format!("cmdstat_{calls}")), "{calls} on {shards}: {stats}");
            }
            assert!(stats.contains("errorstat_EXECABORT:count=1"), "{stats}");
        }
    }

    #[test]
    fn subscriptions_change_within_a_transaction_and_messages_come_behind_it() {
        for shards in [1, 2, 5] {
            for (hello, kind) in [("HELLO 2", '*'), ("HELLO 3", '>')] {
                let mut bench = Bench::new(shards);
                let client = bench.connect(1, 7);
                bench.say(client, hello);
                bench.say(client, "MULTI\nSET k v\nSUBSCRIBE a b\nPUBLISH b hi\nUNSUBSCRIBE a\nGET k");
                let output = String::from_utf8(bench.say_raw(client, "EXEC")).expect("text");
                let word = |word: &str, name: &str, count: u8| {
                    format!("{kind}3\r\n${}\r\n{word}\r\n$1\r\n{name}\r\n:{count}\r\n", word.len())
                };
                let expected = format!(
                    "*5\r\n+OK\r\n{}{}:1\r\n{}$1\r\nv\r\n{kind}3\r\n$7\r\nmessage\r\n$1\r\nb\r\n$2\r\nhi\r\n",
                    word("subscribe", "a", 1),
                    word("subscribe", "b", 2),
                    word("unsubscribe", "a", 1)
                );
                assert_eq!(output, expected, "{shards} shards, {hello}");
                assert_eq!(bench.run("PUBLISH a x\nPUBLISH b y"), ":0\n:1");
                assert_eq!(bench.say(client, "UNSUBSCRIBE").lines().count(), 2, "the message and the answer");
            }
        }
    }

    #[test]
    fn a_client_that_leaves_while_it_subscribes_holds_nobody_up() {
        for shards in [1, 2, 5] {
            let mut bench = Bench::new(shards);
            let client = bench.connect(1, 7);
            bench.say(client, "MULTI\nSET k 1\nPSUBSCRIBE p*\nAPPEND k 2\nSUBSCRIBE c\nAPPEND k 3");
            bench.send(client, "EXEC");
            bench.nodes[1 % usize::from(shards)].close(client.session());
            bench.settle();
            assert_eq!(bench.run("GET k\nPUBLISH px 1\nPUBLISH c 1\nPUBSUB NUMPAT"), "\"123\"\n:0\n:0\n:0");
        }
    }

    #[test]
    fn a_long_queue_of_changes_is_run_one_after_the_other() {
        let mut bench = Bench::new(1);
        bench.run("MULTI");
        for _ in 0..20_000 {
            bench.run("UNSUBSCRIBE nothing");
        }
        assert!(bench.run("EXEC").starts_with("[["));
    }

    #[test]
    fn client_list_shows_whose_transaction_will_fail() {
        for shards in [1, 2, 5] {
            let mut bench = Bench::new(shards);
            let (one, two) = (bench.connect(0, 7), bench.connect(1, 8));
            bench.say(one, "WATCH a b c d");
            bench.say(two, "WATCH e f");
            let field = |line: &str, name: &str| {
                let value = line.split(&format!(" {name}=")).nth(1).and_then(|rest| rest.split(' ').next());
                value.unwrap_or_default().to_owned()
            };
            let shown = |bench: &mut Bench| {
                let info = bench.say(one, "CLIENT INFO");
                (field(&info, "flags"), field(&info, "watch"))
            };
            let list = |bench: &mut Bench, filter: &str| {
                bench.run(&format!("CLIENT LIST {filter}")).matches("id=").count()
            };
            assert_eq!((shown(&mut bench), list(&mut bench, "FLAGS d")), (("N".into(), "4".into()), 0));
            bench.run("SET c 1");
            assert_eq!((shown(&mut bench), list(&mut bench, "FLAGS d")), (("d".into(), "0".into()), 1));
            assert_eq!((list(&mut bench, "NOT-FLAGS d"), list(&mut bench, "")), (2, 3), "{shards} shards");
            assert!(bench.run("CLIENT LIST").contains("flags=d "), "{shards} shards");
            bench.say(one, "UNWATCH");
            assert_eq!((shown(&mut bench), list(&mut bench, "FLAGS d")), (("N".into(), "0".into()), 0));
        }
    }

    #[test]
    fn a_flush_is_seen_by_who_watches_what_was_there() {
        for shards in [1, 2, 5] {
            for (flush, failing) in [("FLUSHDB", 1), ("FLUSHALL", 2), ("SELECT 1\nFLUSHDB\nSELECT 0", 1)] {
                let mut bench = Bench::new(shards);
                let (one, two, three) = (bench.connect(0, 7), bench.connect(1, 8), bench.connect(2, 9));
                bench.run("SET c 1\nSELECT 1\nSET c 1\nSELECT 0");
                bench.say(one, "WATCH a c");
                bench.say(two, "SELECT 1\nWATCH c");
                bench.say(three, "WATCH a b");
                bench.run(flush);
                let found = bench.run("CLIENT LIST FLAGS d").matches("id=").count();
                assert_eq!(found, failing, "{flush} on {shards} shards");
                assert_eq!(bench.say(three, "MULTI\nEXEC"), "+OK\n[]", "{flush} on {shards} shards");
            }
        }
    }

    #[test]
    fn what_a_failed_transaction_had_queued_is_dropped() {
        let mut bench = Bench::new(2);
        let client = bench.connect(1, 7);
        let shown = |bench: &mut Bench| {
            let line = bench.run("CLIENT LIST FLAGS x");
            let words: Vec<&str> = line.split(' ').filter(|word| word.starts_with("multi")).collect();
            words.join(" ")
        };
        bench.say(client, "MULTI\nSET a 1\nSET b 1");
        assert!(shown(&mut bench).starts_with("multi=2 multi-mem="));
        assert!(!shown(&mut bench).ends_with("multi-mem=0"));
        bench.say(client, "GET");
        assert_eq!(shown(&mut bench), "multi=0 multi-mem=0");
        assert_eq!(bench.say(client, "SET c 1"), "+QUEUED");
        assert_eq!(shown(&mut bench), "multi=0 multi-mem=0");
        // It changes nothing, so that a pause for writes does not hold its end.
        bench.run("CLIENT PAUSE 1000 WRITE");
        let aborted = "-EXECABORT Transaction discarded because of previous errors.";
        assert_eq!(bench.say(client, "EXEC\nEXISTS a b c"), format!("{aborted}\n:0"));
    }
}
