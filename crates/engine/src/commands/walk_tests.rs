//! Commands that are done in pieces: what they answer, and what others may do meanwhile.

use super::testing::{Bench, Visitor};
use crate::command::PieceSizes;
use corelane_resp::{Frame, decode, encode_command};

const MANY: usize = 5000;

/// Large collections under the names `h`, `l`, `s` and `z`, sets that share members with `s`, and what SORT may look for.
fn fill(bench: &mut Bench) {
    for start in (0..MANY).step_by(500) {
        let range = start..start + 500;
        let number = |n: usize| n * 7919 % MANY;
        let list = |word: &dyn Fn(usize) -> String| range.clone().map(word).collect::<Vec<_>>().join(" ");
        bench.run(&format!("HSET h {}", list(&|n| format!("f{n} v{n}"))));
        bench.run(&format!("RPUSH l {}", list(&|n| number(n).to_string())));
        bench.run(&format!("SADD s {}", list(&|n| format!("m{n}"))));
        bench.run(&format!("SADD s2 {}", list(&|n| format!("m{}", n * 2))));
        bench.run(&format!("SADD s3 {}", list(&|n| format!("m{}", n * 3))));
        bench.run(&format!("ZADD z {}", list(&|n| format!("{} m{n}", number(n) / 3))));
        bench.run(&format!("ZADD z2 {}", list(&|n| format!("{}.1 m{}", number(n) / 7, n * 2))));
        let place = |n: usize| format!("{}.{:03} {}.{:03} m{n}", n % 2, number(n) / 5, n % 3, n / 5);
        bench.run(&format!("SETRANGE a {} abc\nSETRANGE b {} {start}", start * 100, start * 90));
        bench.run(&format!("GEOADD g {}", list(&place)));
        bench.run(&format!("MSET {}", list(&|n| format!("w:{n} {} w:m{n} {}", number(n) % 100, number(n)))));
    }
}

fn filled(shards: u16, piece_len: usize) -> Bench {
    let mut bench = Bench::new(shards);
    bench.configure(|settings| settings.pieces = PieceSizes { brief_len: piece_len, piece_len });
    fill(&mut bench);
    bench
}

/// Has all shards do one piece of what they are at.
fn tick(bench: &mut Bench) {
    let now = bench.now;
    bench.nodes.iter_mut().for_each(|node| {
        node.tick(now);
    });
}

/// How many bytes a client has received meanwhile.
fn heard(bench: &mut Bench, client: Visitor) -> usize {
    let node = &mut bench.nodes[0];
    let Some(state) = node.session_state(client.session()) else { return 0 };
    let len = state.output.take().slices().map(<[u8]>::len).sum();
    node.output_taken(client.session(), len);
    node.sent(client.session(), len, bench.now);
    len
}

/// What is done in pieces where it takes long.
const COMMANDS: &[&str] = &[
    "HGETALL h",
    "HKEYS h",
    "HVALS h",
    "SMEMBERS s",
    "LRANGE l 0 -1",
    "LRANGE l 7 -100",
    "LRANGE l -3000 4999",
    "ZRANGE z 0 -1 WITHSCORES",
    "ZRANGE z 0 -1 REV",
    "ZRANGEBYSCORE z 10 (1600 WITHSCORES LIMIT 3 4000",
    "ZREVRANGEBYSCORE z +inf 5",
    "ZRANGE z - + BYLEX LIMIT 1 -1",
    "SORT l",
    "SORT l DESC LIMIT 10 20",
    "SORT l LIMIT 100 4500",
    "SORT s ALPHA DESC",
    "SORT s ALPHA LIMIT 2990 20",
    "SORT_RO z BY nosort DESC LIMIT 5 4000",
    "SORT z BY nosort",
    "SORT l BY nosort DESC LIMIT 5 4000",
    "SORT l BY w:* GET # GET w:* GET none*",
    "SORT l BY w:* ALPHA",
    "SORT l BY w:* ALPHA LIMIT 5 40",
    "SORT s BY nosort GET w:* STORE d",
    "SORT l STORE d",
    "SORT l DESC STORE {x}d",
    "SORT s BY nosort STORE d",
    "SORT s",
    "SORT l BY s:* STORE l",
    "SORT h",
    "SINTER s s2",
    "SINTER s s2 s3",
    "SINTER s none",
    "SUNION s s2",
    "SUNION s s2 s3 none",
    "SDIFF s s2",
    "SDIFF s s2 s3",
    "SDIFF none s",
    "SINTERCARD 3 s s2 s3",
    "SINTERCARD 2 s s2 LIMIT 777",
    "SINTERSTORE d s s2",
    "SUNIONSTORE d s s2 s3",
    "SDIFFSTORE {x}d s s2 s3",
    "SUNIONSTORE s2 s s2",
    "ZUNION 2 z z2 WITHSCORES",
    "ZUNION 3 z s z2 WEIGHTS 2 0.1 3 WITHSCORES",
    "ZINTER 2 z z2 WITHSCORES",
    "ZINTER 3 s z2 z AGGREGATE MAX WITHSCORES",
    "ZDIFF 2 z z2 WITHSCORES",
    "ZDIFF 3 s z2 s3",
    "ZINTERCARD 3 z z2 s3",
    "ZINTERCARD 2 z z2 LIMIT 777",
    "ZUNIONSTORE d 2 z z2",
    "ZINTERSTORE d 3 s z z2",
    "ZDIFFSTORE d 2 z s3",
    "ZUNIONSTORE z2 2 z z2 AGGREGATE MIN",
    "ZINTERSTORE d 2 z none",
    "ZUNION 2 z h",
    "ZUNION 2 z z2 SOME",
    "SINTER s h",
    "SUNIONSTORE d z s",
    "COPY s d REPLACE",
    "COPY l {x}d REPLACE",
    "COPY h d REPLACE",
    "COPY z d REPLACE",
    "COPY z2 d",
    "COPY none d REPLACE",
    "DUMP h",
    "DUMP l",
    "DUMP s",
    "DUMP z",
    "ZRANGESTORE d z 0 -1",
    "ZRANGESTORE {x}d z 3 -700 REV",
    "ZRANGESTORE d z 10 (1600 BYSCORE LIMIT 3 4000",
    "ZRANGESTORE z2 z2 0 -1",
    "ZRANGESTORE d none 0 -1",
    "ZRANGESTORE d l 0 -1",
    "GEOSEARCH g FROMLONLAT 1 1 BYRADIUS 150 km WITHDIST WITHHASH",
    "GEOSEARCH g FROMLONLAT 1 1 BYRADIUS 500 km DESC WITHCOORD",
    "GEOSEARCH g FROMMEMBER m77 BYBOX 300 100 km ASC",
    "GEOSEARCH g FROMLONLAT 1 1 BYRADIUS 500 km COUNT 3000",
    "GEOSEARCH g FROMLONLAT 1 1 BYRADIUS 500 km COUNT 1000 ANY",
    "GEOSEARCH g FROMLONLAT 1 1 BYRADIUS 500 km COUNT 10 ANY ASC",
    "GEOSEARCH g FROMLONLAT 179 80 BYRADIUS 5 m",
    "GEOSEARCH l FROMLONLAT 1 1 BYRADIUS 5 m",
    "GEORADIUS_RO g 1 1 200 km DESC",
    "GEOSEARCHSTORE d g FROMLONLAT 1 1 BYRADIUS 500 km",
    "GEOSEARCHSTORE {x}d g FROMLONLAT 1 1 BYRADIUS 500 km STOREDIST",
    "GEOSEARCHSTORE d g FROMLONLAT 1 1 BYRADIUS 500 km COUNT 4000 DESC",
    "GEORADIUS g 1 1 500 km STORE {x}d",
    "GEORADIUSBYMEMBER g m1 500 km STOREDIST d",
    "BITOP AND d a b",
    "BITOP OR {x}d a b none",
    "BITOP XOR b b a a",
    "BITOP NOT {x}d a",
    "BITOP OR d none",
    "BITOP OR d a l",
    "BITCOUNT a",
    "BITCOUNT a 3 -70000",
    "BITCOUNT a 77 2000001 BIT",
    "BITPOS a 1 210000",
    "BITPOS b 1 -3 -9",
    "BITPOS a 0",
    "SETRANGE d 500000 x",
    "BITPOS {x}d 0 240000",
    "LPOS l 4999",
    "LPOS l 17 RANK -1 COUNT 0 MAXLEN 4000",
    "LPOS l nope",
    "COPY l d REPLACE",
    "RPUSH d 5 77 5 6 5 7",
    "LPOS d 5 COUNT 0 RANK 2",
    "LPOS d 5 COUNT 2 RANK -2",
    "LINSERT d BEFORE 4321 new",
    "LINSERT d AFTER nope new",
    "LREM d 0 77",
    "LREM d -2 5",
    "LREM d 1 4321",
    "LREM d 0 nope",
    "LREM none 0 nope",
    "COPY z d REPLACE",
    "ZREMRANGEBYRANK d -4900 -100",
    "ZREMRANGEBYRANK d 0 -1",
    "COPY z d REPLACE",
    "ZREMRANGEBYSCORE d 10 (1600",
    "ZREMRANGEBYLEX d - (m3",
    "ZREMRANGEBYSCORE d -inf +inf",
];

/// What shows what they have stored.
const LOOKS: &[&str] = &[
    "DEBUG DIGEST-VALUE d {x}d l s2 z2 b",
    "OBJECT ENCODING d",
    "OBJECT ENCODING {x}d",
    "LRANGE d 0 10",
    "ZRANGE d 0 10 WITHSCORES",
];

/// Whether the order of the reply depends on where it is made.
fn is_union(command: &str) -> bool {
    command.starts_with("SUNION ")
}

fn sorted(reply: &str) -> String {
    let mut members: Vec<&str> = reply.trim_matches(['[', ']', '~', '{', '}']).split(", ").collect();
    members.sort_unstable();
    members.join(", ")
}

#[test]
fn pieces_make_the_reply_that_one_turn_makes() {
    for shards in [1, 2, 5] {
        let (mut whole, mut pieces) = (filled(shards, 1 << 20), filled(shards, 300));
        for hello in ["HELLO 2", "HELLO 3"] {
            whole.run(hello);
            pieces.run(hello);
            for command in COMMANDS {
                let changes = ["COPY", "BITOP", "SETRANGE", "ZREM", "LREM", "LINSERT"];
                let stores =
                    command.contains("STORE") || changes.iter().any(|name| command.starts_with(name));
                let looks = if stores { LOOKS } else { &[] };
                let both = [&mut whole, &mut pieces].map(|bench| {
                    let replies = std::iter::once(command).chain(looks).map(|look| bench.run(look));
                    replies
                        .map(|reply| if is_union(command) { sorted(&reply) } else { reply })
                        .collect::<Vec<_>>()
                });
                assert!(both[0] == both[1], "{command} on {shards} shards after {hello}");
            }
        }
        let hits = |bench: &mut Bench| {
            let stats = bench.run("INFO stats");
            let at = stats.find("keyspace_hits").expect("a count");
            stats[at..].split("\\r").next().map(str::to_owned)
        };
        assert_eq!(hits(&mut whole), hits(&mut pieces), "on {shards} shards");
    }
}

/// How many turns commands take at least, where a piece is 100 elements of 5000.
const TURNS: &[(usize, &str)] = &[
    (49, "HGETALL h"),
    (49, "LRANGE l 0 -1"),
    (49, "COPY h d REPLACE"),
    (8, "COPY l d REPLACE"),
    (49, "COPY s d REPLACE"),
    (49, "COPY z d REPLACE"),
    (49, "DUMP h"),
    (49, "DUMP l"),
    (49, "DUMP s"),
    (49, "DUMP z"),
    (50, "BITCOUNT c"),
    (50, "BITPOS c 1"),
    (100, "BITOP OR d a c"),
    (49, "LPOS l nope"),
    (49, "LINSERT l AFTER nope new"),
    (49, "LREM l 0 nope"),
    (49, "ZRANGESTORE d z 0 -1"),
    (48, "ZREMRANGEBYRANK d 0 -100"),
    (147, "GEOSEARCH g FROMLONLAT 1 1 BYRADIUS 500 km ASC"),
    (98, "GEOSEARCHSTORE d g FROMLONLAT 1 1 BYRADIUS 500 km"),
];

#[test]
fn a_turn_does_no_more_than_a_piece() {
    for shards in [1, 2] {
        let mut bench = Bench::new(shards);
        bench.configure(|settings| {
            settings.pieces = PieceSizes { brief_len: 100, piece_len: 100 };
            settings.compact.list_size = 8.into();
        });
        fill(&mut bench);
        bench.run("SETRANGE c 6000000 x");
        let client = bench.connect(0, 7);
        for (least, command) in TURNS {
            bench.send(client, command);
            let turns = (0..1000).take_while(|_| {
                bench.carry();
                tick(&mut bench);
                heard(&mut bench, client) == 0
            });
            let turns = turns.count();
            assert!((*least..1000).contains(&turns), "{command} on {shards} shards: {turns} turns");
            bench.settle();
        }
    }
}

#[test]
fn others_go_on_and_writers_wait() {
    for command in ["HGETALL h", "SORT_RO l", "SORT l BY w:* GET w:*", "LRANGE l 0 -1"] {
        let mut bench = filled(1, 100);
        let expected = bench.run(command);
        let key = command.split(' ').nth(1).expect("a key");
        let [reader, other, writer] = [7, 8, 9].map(|port| bench.connect(0, port));
        bench.send(reader, command);
        bench.send(writer, &format!("UNLINK {key}"));
        bench.send(other, "GET w:1");
        for _ in 0..10 {
            tick(&mut bench);
        }
        assert_eq!([reader, writer].map(|client| heard(&mut bench, client)), [0, 0], "{command}");
        assert_ne!(heard(&mut bench, other), 0, "{command}");
        // Whoever comes later to read the key waits behind the writer.
        bench.send(other, &format!("EXISTS {key}"));
        tick(&mut bench);
        assert_eq!(heard(&mut bench, other), 0, "{command}");
        assert_eq!(bench.hear(reader), expected);
        assert_eq!((bench.hear(writer).as_str(), bench.hear(other).as_str()), (":1", ":0"), "{command}");
    }
}

/// The bytes of a request, and of the bulk that answers it.
fn ask(bench: &mut Bench, words: &[&[u8]]) -> Vec<u8> {
    let mut request = Vec::new();
    encode_command(&mut request, words);
    match decode(&bench.exchange(&request)) {
        Ok(Some((Frame::Bulk(bytes), _))) => bytes.to_vec(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn values_are_restored_in_pieces() {
    for shards in [1, 2] {
        let mut bench = filled(shards, 100);
        let node = bench.nodes.len() - 1;
        let client = bench.connect(node, 7);
        for key in ["h", "l", "s", "z"] {
            let payload = ask(&mut bench, &[b"DUMP", key.as_bytes()]);
            let restore = |payload: &[u8]| {
                let mut request = Vec::new();
                encode_command(&mut request, &[&b"RESTORE"[..], b"d", b"0", payload, b"REPLACE"]);
                request
            };
            let now = bench.now;
            bench.nodes[node].feed(client.session(), &restore(&payload), now);
            let turns = (0..1000).take_while(|_| {
                bench.carry();
                tick(&mut bench);
                bench.nodes[node].session_state(client.session()).is_some_and(|state| state.output.is_empty())
            });
            let turns = turns.count();
            assert!((49..1000).contains(&turns), "{key} on {shards} shards: {turns} turns");
            assert_eq!(bench.hear(client), "+OK");
            let look = |bench: &mut Bench, key: &str| {
                let [digest, encoding] =
                    ["DEBUG DIGEST-VALUE", "OBJECT ENCODING"].map(|look| bench.run(&format!("{look} {key}")));
                (digest, encoding)
            };
            assert_eq!(look(&mut bench, "d"), look(&mut bench, key), "{key}");
            // Broken ones change nothing: a checksum that is wrong, and the last element twice, or half of it.
            let mut broken = payload.clone();
            broken[200] ^= 1;
            let now_there = bench.run("DEBUG DIGEST-VALUE d");
            let wrong = b"-ERR DUMP payload version or checksum are wrong\r\n";
            assert_eq!(bench.exchange(&restore(&broken)), wrong);
            bench.run("DEBUG SET-SKIP-CHECKSUM-VALIDATION 1");
            broken.truncate(payload.len() - 13);
            broken.extend_from_slice(&payload[payload.len() - 10..]);
            assert_eq!(bench.exchange(&restore(&broken)), b"-ERR Bad data format\r\n", "{key}");
            assert_eq!(bench.run("DEBUG DIGEST-VALUE d"), now_there);
            bench.run("DEBUG SET-SKIP-CHECKSUM-VALIDATION 0");
        }
    }
}

/// Two clients whose transactions are always under way.
#[test]
fn transactions_in_pieces_hold_up_no_other_command() {
    let mut bench = filled(1, 100);
    let mut clients = [7, 8].map(|port| bench.connect(0, port));
    for client in &mut clients {
        bench.send(*client, &"MULTI\nKEYS *none\nEXEC\n".repeat(30));
    }
    tick(&mut bench);
    let other = bench.connect(0, 9);
    bench.send(other, "KEYS *none");
    let ticks = (0..1000).take_while(|_| {
        tick(&mut bench);
        heard(&mut bench, other) == 0
    });
    let ticks = ticks.count();
    assert!(ticks < 100, "{ticks} turns");
}

#[test]
fn a_long_transaction_takes_several_turns_and_is_seen_whole() {
    for shards in [1, 2] {
        let mut bench = Bench::new(shards);
        let [client, reader, other] = [7, 8, 9].map(|port| bench.connect(0, port));
        for keys in [["{x}a", "{x}b"], ["a", "b"]] {
            let incremented = format!("INCR {}\nINCR {}\n", keys[0], keys[1]).repeat(1500);
            bench.run(&format!("DEL {} {}", keys[0], keys[1]));
            bench.send(client, &format!("MULTI\n{incremented}EXEC"));
            bench.send(reader, &format!("MGET {} {}", keys[0], keys[1]));
            bench.send(other, "EXISTS none");
            let mut turns = [0; 3];
            for turn in 1..100 {
                bench.carry();
                tick(&mut bench);
                for (nth, visitor) in [client, reader, other].into_iter().enumerate() {
                    let said = bench.nodes[0].session_state(visitor.session());
                    let done =
                        said.is_some_and(|state| state.output.len() > if nth == 0 { 40_000 } else { 0 });
                    turns[nth] = if turns[nth] == 0 && done { turn } else { turns[nth] };
                }
            }
            assert!(turns[0] >= 3 && turns[2] < turns[0], "{turns:?} turns on {shards} shards");
            let seen = bench.hear(reader);
            assert!(["[nil, nil]", "[\"1500\", \"1500\"]"].contains(&&*seen), "{seen} on {shards} shards");
            let said = bench.hear(client);
            assert!(said.ends_with(":1499, :1499, :1500, :1500]"), "{said:.99}");
            bench.hear(other);
        }
    }
}

#[test]
fn a_connection_s_own_commands_keep_their_order() {
    for shards in [1, 2, 5] {
        let mut bench = filled(shards, 100);
        let client = bench.connect(0, 7);
        let before = bench.run("SMEMBERS s");
        let mut said =
            bench.say(client, "SMEMBERS s\nSADD s new\nSCARD s\nPING\nSMEMBERS s\nDEL s\nSMEMBERS s");
        // So much output has to be taken before the next commands are run.
        while said.lines().count() < 7 {
            said = format!("{said}\n{}", bench.hear(client));
        }
        let lines: Vec<&str> = said.lines().collect();
        assert_eq!((lines.len(), lines[0] == before), (7, true));
        assert_eq!(lines[1..4], [":1", ":5001", "+PONG"]);
        assert!(lines[4].contains("\"new\"") && lines[4].len() == before.len() + "\"new\", ".len());
        assert_eq!(lines[5..], [":1", "[]"]);
        assert_eq!(bench.say(client, "HELLO 3\nHGETALL h\nHGETALL none").lines().count(), 3);
    }
}

#[test]
fn a_key_whose_time_comes_in_between_has_not_been_there() {
    for (shards, command, nothing) in [
        (1, "HGETALL h", "[]"),
        (1, "LRANGE l 0 -1", "[]"),
        (1, "ZRANGE z 0 -1", "[]"),
        (1, "SORT l", "[]"),
        (1, "SORT s ALPHA STORE d", ":0"),
        (1, "SINTER s s2", "[]"),
        (1, "SDIFF s none", "[]"),
        (1, "COPY h d", ":1"),
        (2, "COPY z {x}d", ":1"),
        (1, "DUMP s", "nil"),
        (1, "LPOS l nope COUNT 0", "[]"),
        (1, "LREM l 0 nope", ":0"),
        (1, "GEOSEARCH g FROMLONLAT 1 1 BYRADIUS 500 km", "[]"),
        (2, "SORT l BY w:*", "[]"),
        (2, "SORT l BY w:* GET # STORE d", ":0"),
    ] {
        let mut bench = filled(shards, 100);
        let key = command.split(' ').nth(1).expect("a key");
        bench.run(&format!("PEXPIRE {key} 50"));
        let reader = bench.connect(0, 7);
        bench.send(reader, command);
        for _ in 0..3 {
            bench.carry();
            tick(&mut bench);
        }
        bench.now += 100;
        assert_eq!(bench.hear(reader), nothing, "{command} on {shards} shards");
        assert_eq!(bench.run(&format!("EXISTS {key} d {{x}}d")), ":0");
    }
}

/// What a piece does has to outweigh that the keys are looked up for it.
#[test]
fn many_sets_take_few_pieces() {
    const SETS: usize = 3000;
    let mut bench = Bench::new(1);
    for n in 0..SETS {
        bench.run(&format!("SADD s:{n} m{n} n{n} all"));
    }
    let keys: String = (0..SETS).map(|n| format!(" s:{n}")).collect();
    for command in ["SUNION", "SINTER", "SDIFF", "ZUNION 3000", "ZINTER 3000", "ZUNIONSTORE d 3000"] {
        let client = bench.connect(0, 7);
        bench.send(client, &format!("{command}{keys}"));
        let ticks = (0..SETS).take_while(|_| {
            tick(&mut bench);
            heard(&mut bench, client) == 0
        });
        let ticks = ticks.count();
        assert!(ticks < 100, "{command}: {ticks} turns");
    }
}

#[test]
fn a_set_whose_time_comes_in_between_is_not_combined() {
    let others = |bench: &mut Bench| bench.run("SCARD s2");
    for shards in [1, 2, 5] {
        for (command, look) in [
            ("SUNION s s2", ""),
            ("SUNION s s2 none", ""),
            ("SUNIONSTORE d s s2", "SMEMBERS d"),
            ("SDIFF s2 s", ""),
            ("ZUNION 2 s s2", ""),
            ("ZUNIONSTORE d 3 s s2 none", "ZRANGE d 0 -1"),
        ] {
            let mut bench = filled(shards, 100);
            let expected = bench.run("SMEMBERS s2").matches('"').count() / 2;
            bench.run("PEXPIRE s 50");
            let reader = bench.connect(0, 7);
            bench.send(reader, command);
            for _ in 0..3 {
                tick(&mut bench);
            }
            bench.now += 100;
            let mut said = bench.hear(reader);
            if !look.is_empty() {
                assert_eq!(said, format!(":{expected}"), "{command} on {shards} shards");
                said = bench.run(look);
            }
            assert_eq!(said.matches('"').count() / 2, expected, "{command} on {shards} shards: {said:.200}");
            assert_eq!(others(&mut bench), format!(":{expected}"));
        }
    }
}

/// A large set is sent, and then another shard has a value of the wrong type.
#[test]
fn what_is_sent_in_vain_is_freed_in_pieces() {
    let mut bench = filled(2, 100);
    for n in 0..8 {
        assert!(bench.run(&format!("SUNION s w:{n}")).starts_with("-WRONGTYPE"));
        bench.settle();
    }
    let freed = bench.run("INFO memory");
    let freed = freed.split("lazyfreed_objects:").nth(1).map(|rest| rest.split("\\r").next());
    assert!(freed.flatten().is_some_and(|freed| freed != "0"), "{freed:?}");
}

#[test]
fn who_leaves_lets_go() {
    for command in ["SMEMBERS s", "SUNION s s2 s3", "SORT l", "SORT s BY nosort STORE d"] {
        let mut bench = filled(1, 100);
        let reader = bench.connect(0, 7);
        bench.send(reader, command);
        tick(&mut bench);
        bench.leave(reader);
        assert_eq!(bench.run("SADD s new\nSCARD s"), ":1\n:5001");
        // What changes something is done nevertheless.
        let stored = if command.contains("STORE") { ":5000" } else { ":0" };
        assert_eq!(bench.run("LLEN d"), stored);
    }
}

#[test]
fn a_transaction_sees_all_at_once() {
    for shards in [1, 2, 5] {
        let mut bench = filled(shards, 100);
        let expected = bench.run("HGETALL h");
        let client = bench.connect(0, 7);
        let said = bench.say(client, "MULTI\nHGETALL h\nHSET h new v\nSORT l STORE d\nLLEN d\nEXEC");
        assert_eq!(said.lines().last(), Some(&*format!("[{expected}, :1, :5000, :5000]")), "{shards} shards");
    }
}

#[test]
fn the_slow_log_has_the_time_of_all_pieces() {
    let mut bench = filled(1, 100);
    // Each reading of the tests' clock is a microsecond after the last.
    bench.run("CONFIG SET slowlog-log-slower-than 40");
    bench.run("SLOWLOG RESET\nLRANGE l 0 -1\nLRANGE l 0 10");
    let logged = bench.run("SLOWLOG GET");
    assert!(logged.contains("\"LRANGE\", \"l\", \"0\", \"-1\"") && !logged.contains("\"10\""), "{logged}");
    let calls = bench.run("INFO commandstats");
    assert!(calls.contains("cmdstat_lrange:calls=2"), "{calls}");
}
