//! Tests of publish/subscribe on several numbers of shards.

use super::testing::Bench;

const SHARDS: [u16; 3] = [1, 2, 5];

fn hellos(bench: &mut Bench) -> [super::testing::Visitor; 2] {
    let clients = [bench.connect(0, 71), bench.connect(1, 72)];
    for client in clients {
        bench.say(client, "HELLO 3");
    }
    clients
}

#[test]
fn messages_reach_all_who_listen() {
    for shards in SHARDS {
        let mut bench = Bench::new(shards);
        let (one, two) = (bench.connect(0, 71), bench.connect(3, 72));
        assert_eq!(
            bench.say(one, "SUBSCRIBE a b a"),
            "[\"subscribe\", \"a\", :1]\n[\"subscribe\", \"b\", :2]\n[\"subscribe\", \"a\", :2]"
        );
        assert_eq!(
            bench.say(two, "PSUBSCRIBE a* ?\nSUBSCRIBE a"),
            "[\"psubscribe\", \"a*\", :1]\n[\"psubscribe\", \"?\", :2]\n[\"subscribe\", \"a\", :3]"
        );
        assert_eq!(bench.run("PUBLISH a x\nPUBLISH b y\nPUBLISH nobody z"), ":4\n:2\n:0");
        let mut heard: Vec<String> = bench.hear(one).lines().map(str::to_owned).collect();
        heard.sort();
        assert_eq!(heard, ["[\"message\", \"a\", \"x\"]", "[\"message\", \"b\", \"y\"]"], "{shards} shards");
        let mut heard: Vec<String> = bench.hear(two).lines().map(str::to_owned).collect();
        heard.sort();
        let expected = [
            "[\"message\", \"a\", \"x\"]",
            "[\"pmessage\", \"?\", \"a\", \"x\"]",
            "[\"pmessage\", \"?\", \"b\", \"y\"]",
            "[\"pmessage\", \"a*\", \"a\", \"x\"]",
        ];
        assert_eq!(heard, expected, "{shards} shards");
        assert_eq!(bench.run("PUBSUB NUMSUB a b c\nPUBSUB NUMPAT"), "[\"a\", :2, \"b\", :1, \"c\", :0]\n:2");
        let info = bench.run("INFO");
        for line in ["pubsub_channels:2", "pubsub_patterns:2", "pubsubshard_channels:0", "pubsub_clients:2"] {
            assert!(info.contains(line), "{line}: {info}");
        }
        bench.say(two, "PUNSUBSCRIBE\nUNSUBSCRIBE a");
        assert_eq!(bench.run("PUBLISH a x\nPUBSUB NUMPAT\nPUBSUB CHANNELS b*"), ":1\n:0\n[\"b\"]");
        assert_eq!(bench.say(one, "QUIT").lines().last(), Some("closed"));
        // The shards hear of it in the next turn.
        assert_eq!(bench.run("PING\nPUBLISH a x\nPUBSUB CHANNELS"), "+PONG\n:0\n[]");
    }
}

#[test]
fn channels_of_slots_are_apart() {
    for shards in SHARDS {
        let mut bench = Bench::new(shards);
        let [one, two] = hellos(&mut bench);
        assert_eq!(
            bench.say(one, "SSUBSCRIBE a\nPSUBSCRIBE *"),
            ">[\"ssubscribe\", \"a\", :1]\n>[\"psubscribe\", \"*\", :1]"
        );
        bench.say(two, "SUBSCRIBE a");
        assert_eq!(
            bench.run("SPUBLISH a x\nPUBLISH a y\nPUBSUB SHARDNUMSUB a\nPUBSUB SHARDCHANNELS"),
            ":1\n:2\n[\"a\", :1]\n[\"a\"]"
        );
        assert_eq!(bench.hear(one), ">[\"smessage\", \"a\", \"x\"]\n>[\"pmessage\", \"*\", \"a\", \"y\"]");
        assert_eq!(bench.hear(two), ">[\"message\", \"a\", \"y\"]");
        assert_eq!(
            bench.say(one, "SUNSUBSCRIBE\nSUNSUBSCRIBE"),
            ">[\"sunsubscribe\", \"a\", :0]\n>[\"sunsubscribe\", nil, :0]"
        );
    }
}

#[test]
fn who_publishes_to_itself_has_the_reply_first() {
    for shards in SHARDS {
        let mut bench = Bench::new(shards);
        let [one, _] = hellos(&mut bench);
        for channel in ["a", "b", "c", "d", "e"] {
            let said = bench.say(one, &format!("SUBSCRIBE {channel}\nPUBLISH {channel} x\nUNSUBSCRIBE"));
            let expected = format!(
                ">[\"subscribe\", \"{channel}\", :1]\n:1\n>[\"message\", \"{channel}\", \"x\"]\n>[\"unsubscribe\", \"{channel}\", :0]"
            );
            assert_eq!(said, expected, "{shards} shards");
        }
    }
}

#[test]
fn what_happened_to_keys_comes_before_what_is_published_then() {
    let mut bench = Bench::new(1);
    bench.run("CONFIG SET notify-keyspace-events Kg$x");
    let one = bench.connect(0, 71);
    let two = bench.connect(0, 72);
    bench.say(one, "PSUBSCRIBE *");
    bench.say(two, "SET k v\nPUBLISH c 1\nMULTI\nDEL k\nPUBLISH c 2\nSET k v PX 1\nEXEC\nPUBLISH c 3");
    let told = |channel: &str, text: &str| format!("[\"pmessage\", \"*\", \"{channel}\", \"{text}\"]");
    let key = |event| told("__keyspace@0__:k", event);
    let all =
        [key("set"), told("c", "1"), key("del"), told("c", "2"), key("set"), key("expire"), told("c", "3")];
    assert_eq!(bench.hear(one), all.join("\n"));
}

#[test]
fn who_wants_no_replies_is_told_of_subscriptions() {
    for shards in SHARDS {
        let mut bench = Bench::new(shards);
        let one = bench.connect(0, 71);
        let said = bench.say(one, "CLIENT REPLY OFF\nMULTI\nSUBSCRIBE a b\nGET x\nEXEC");
        assert_eq!(said, "[\"subscribe\", \"a\", :1]\n[\"subscribe\", \"b\", :2]", "{shards} shards");
        assert_eq!(bench.run("PUBLISH b x"), ":1");
        assert_eq!(bench.hear(one), "[\"message\", \"b\", \"x\"]");
        assert_eq!(
            bench.say(one, "UNSUBSCRIBE"),
            "[\"unsubscribe\", \"a\", :1]\n[\"unsubscribe\", \"b\", :0]"
        );
    }
}

#[test]
fn subscribers_may_do_little_in_resp2() {
    for shards in SHARDS {
        let mut bench = Bench::new(shards);
        let one = bench.connect(0, 71);
        bench.say(one, "SUBSCRIBE a b");
        let refused = |name: &str| {
            format!(
                "-ERR Can't execute '{name}': only (P|S)SUBSCRIBE / (P|S)UNSUBSCRIBE / PING / QUIT / RESET are allowed in this \
                 context"
            )
        };
        assert_eq!(
            bench.say(one, "GET x\nSLOWLOG RESET\nPING\nPING hi\nCLIENT LIST\nPUBSUB NUMPAT"),
            [
                refused("get"),
                refused("slowlog|reset"),
                "[\"pong\", \"\"]".to_owned(),
                "[\"pong\", \"hi\"]".to_owned(),
                refused("client|list"),
                refused("pubsub|numpat")
            ]
            .join("\n")
        );
        let list = bench.run("CLIENT LIST TYPE pubsub");
        assert!(list.contains(" flags=P ") && list.contains(" sub=2 psub=0 ssub=0 "), "{list}");
        assert_eq!(bench.say(one, "RESET\nGET x\nPING"), "+RESET\nnil\n+PONG");
        assert_eq!(bench.run("PUBSUB CHANNELS\nPUBLISH a x"), "[]\n:0");
        bench.say(one, "SSUBSCRIBE q\nPSUBSCRIBE a");
        assert_eq!(bench.run("CLIENT KILL TYPE pubsub"), ":1");
        assert_eq!(bench.hear(one), "closed");
        assert_eq!(bench.run("PING\nPUBSUB SHARDCHANNELS\nPUBSUB NUMPAT"), "+PONG\n[]\n:0");
    }
}

#[test]
fn reset_between_multi_and_exec_ends_subscriptions_and_the_transaction() {
    for shards in SHARDS {
        let mut bench = Bench::new(shards);
        let [one, other] = hellos(&mut bench);
        bench.say(one, "SUBSCRIBE a b\nPSUBSCRIBE *\nWATCH k\nMULTI\nSET k v");
        assert_eq!(bench.say(one, "RESET\nPING\nGET k"), "+RESET\n+PONG\nnil", "{shards} shards");
        assert_eq!(bench.say(other, "PUBLISH a x\nPUBSUB NUMPAT"), ":0\n:0");
        assert_eq!(bench.say(one, "MULTI\nSET k v\nEXEC"), "+OK\n+QUEUED\n[+OK]");
    }
}

#[test]
fn a_muted_client_hears_what_it_listens_to() {
    for shards in SHARDS {
        let mut bench = Bench::new(shards);
        let [one, _] = hellos(&mut bench);
        assert_eq!(bench.say(one, "CLIENT REPLY OFF\nSUBSCRIBE k\nGET a"), ">[\"subscribe\", \"k\", :1]");
        bench.run("PUBLISH k 1");
        assert_eq!(bench.say(one, "CLIENT REPLY ON"), ">[\"message\", \"k\", \"1\"]\n+OK");
    }
}

#[test]
fn subscribers_that_do_not_read_are_dropped() {
    for shards in SHARDS {
        let mut bench = Bench::new(shards);
        bench.configure(|settings| settings.output_limits.pubsub.hard = 100_000);
        let (slow, other) = (bench.connect(0, 71), bench.connect(1, 72));
        bench.say(slow, "SUBSCRIBE a");
        bench.say(other, "SUBSCRIBE b");
        let message = format!("PUBLISH a {}", "x".repeat(20_000));
        for _ in 0..4 {
            assert_eq!(bench.run(&message), ":1");
        }
        assert_eq!(bench.run(&message), ":1");
        assert_eq!(bench.hear(slow), "closed");
        bench.run("PING");
        assert_eq!(bench.run(&message), ":0");
        assert_eq!(bench.say(other, "PING"), "[\"pong\", \"\"]");
    }
}

#[test]
fn expired_keys_are_told_without_anybody_looking() {
    for shards in SHARDS {
        let mut bench = Bench::new(shards);
        let [one, _] = hellos(&mut bench);
        bench.run("CONFIG SET notify-keyspace-events Ex");
        bench.say(one, "PSUBSCRIBE *");
        for key in 0..20 {
            bench.run(&format!("SET k{key} v PX 100"));
        }
        assert_eq!(bench.hear(one), "");
        bench.now += 1000;
        // Some turns of the shards, at which they remove what is due.
        bench.run("PING\nPING");
        let heard = bench.hear(one);
        assert_eq!(heard.lines().count(), 20, "{shards} shards: {heard}");
        assert!(heard.lines().all(|line| line.contains("\"__keyevent@0__:expired\", \"k")), "{heard}");
    }
}

#[test]
fn a_renaming_is_told_in_one_order() {
    let mut bench = Bench::new(1);
    let [one, _] = hellos(&mut bench);
    bench.run("CONFIG SET notify-keyspace-events EAn\nSET a v");
    bench.say(one, "PSUBSCRIBE *");
    bench.run("RENAME a b");
    let heard = bench.hear(one);
    let told: Vec<&str> =
        heard.lines().filter_map(|line| line.split_once("__:")).map(|(_, told)| told).collect();
    assert_eq!(told, ["new\", \"b\"]", "rename_from\", \"a\"]", "rename_to\", \"b\"]"]);
}

#[test]
fn all_subscribers_see_one_order() {
    for shards in SHARDS {
        let mut bench = Bench::new(shards);
        let listeners: Vec<_> = (0..5).map(|n| bench.connect(n, 200 + n as u16)).collect();
        for (n, listener) in listeners.iter().enumerate() {
            bench.say(*listener, if n % 2 == 0 { "HELLO 3\nSUBSCRIBE a" } else { "HELLO 3\nPSUBSCRIBE ?" });
        }
        let publishers: Vec<_> = (0..5).map(|n| bench.connect(n, 300 + n as u16)).collect();
        for round in 0..20 {
            for (n, publisher) in publishers.iter().enumerate() {
                bench.send(*publisher, &format!("PUBLISH a {n}:{round}"));
            }
        }
        let order = |heard: String| -> Vec<String> {
            heard.lines().filter_map(|line| line.rsplit_once(", ")).map(|(_, last)| last.to_owned()).collect()
        };
        let first = order(bench.hear(listeners[0]));
        assert_eq!(first.len(), 100);
        for listener in &listeners[1..] {
            assert_eq!(order(bench.hear(*listener)), first, "{shards} shards");
        }
        for publisher in publishers {
            assert_eq!(bench.hear(publisher), vec![":5"; 20].join("\n"));
        }
    }
}
