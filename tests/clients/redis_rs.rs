//! The redis crate, as a Rust application uses it.

use std::collections::{BTreeMap, BTreeSet};
use std::thread;
use std::time::Duration;

use redis::{Client, Commands, Connection, RedisResult, Value};

use crate::common::server::Server;

const SHARD_COUNTS: [usize; 2] = [1, 3];

fn connect(server: &Server, protocol: &str) -> Connection {
    let url = format!("redis://127.0.0.1:{}/?protocol={protocol}", server.port);
    Client::open(url).and_then(|client| client.get_connection()).expect("a connection")
}

#[test]
fn typed_commands() {
    for shards in SHARD_COUNTS {
        let server = Server::ours(shards);
        for protocol in ["resp2", "resp3"] {
            let mut connection = connect(&server, protocol);
            commands(&mut connection).unwrap_or_else(|error| panic!("{} {protocol}: {error}", server.name));
        }
    }
}

fn commands(connection: &mut Connection) -> RedisResult<()> {
    let () = redis::cmd("FLUSHALL").query(connection)?;
    let () = connection.set("k", 42)?;
    assert_eq!(connection.get::<_, i64>("k")?, 42);
    assert_eq!(connection.get::<_, Option<String>>("missing")?, None);
    let () = connection.mset(&[("a", "1"), ("b", "2")])?;
    assert_eq!(connection.mget::<_, Vec<Option<i64>>>(&["a", "b", "c"])?, [Some(1), Some(2), None]);
    assert_eq!(connection.incr::<_, _, i64>("k", 8)?, 50);
    let () = connection.set_ex("e", "v", 100)?;
    assert!((99..=100).contains(&connection.ttl::<_, i64>("e")?));
    assert!(connection.exists::<_, bool>("e")?);
    assert_eq!(connection.del::<_, i64>(&["a", "b", "c"])?, 2);
    assert_eq!(connection.append::<_, _, i64>("s", "abc")?, 3);
    assert_eq!(connection.getrange::<_, String>("s", 1, -1)?, "bc");
    let () = connection.rename("s", "t")?;
    let error = connection.rename::<_, _, ()>("s", "t").expect_err("no such key");
    assert!(error.to_string().contains("no such key"), "{error}");
    let error = redis::cmd("NOSUCH").query::<Value>(connection).expect_err("unknown command");
    assert!(error.to_string().contains("unknown command"), "{error}");
    Ok(())
}

#[test]
fn pipelines_and_scans() {
    for shards in SHARD_COUNTS {
        let server = Server::ours(shards);
        for protocol in ["resp2", "resp3"] {
            let mut connection = connect(&server, protocol);
            let mut pipe = redis::pipe();
            for n in 0..1000 {
                pipe.set(format!("p:{n}"), n).ignore();
                pipe.get(format!("p:{n}"));
            }
            let values: Vec<i64> = pipe.query(&mut connection).expect("a pipeline");
            assert_eq!(values, (0..1000).collect::<Vec<_>>());
            let found: BTreeSet<String> = {
                let keys = connection.scan_match::<_, String>("p:*").expect("a scan");
                keys.map(|key| key.expect("a key")).collect()
            };
            assert_eq!(found, (0..1000).map(|n| format!("p:{n}")).collect());
        }
    }
}

#[test]
fn many_connections_at_once() {
    let server = Server::ours(3);
    thread::scope(|scope| {
        for number in 0..16 {
            let server = &server;
            scope.spawn(move || {
                let mut connection = connect(server, "resp3");
                for n in 0..200 {
                    let () = connection.set(format!("{number}:{n}"), n).expect("SET");
                    let value: i64 = connection.get(format!("{number}:{n}")).expect("GET");
                    assert_eq!(value, n);
                }
            });
        }
    });
    assert_eq!(connect(&server, "resp2").exists::<_, i64>(&["0:0", "15:199"]).expect("EXISTS"), 2);
}

#[test]
fn collections_and_transactions() {
    for shards in SHARD_COUNTS {
        let server = Server::ours(shards);
        for protocol in ["resp2", "resp3"] {
            let mut connection = connect(&server, protocol);
            collections(&mut connection)
                .unwrap_or_else(|error| panic!("{} {protocol}: {error}", server.name));
            transactions(&server, protocol)
                .unwrap_or_else(|error| panic!("{} {protocol}: {error}", server.name));
        }
    }
}

fn collections(connection: &mut Connection) -> RedisResult<()> {
    let () = redis::cmd("FLUSHALL").query(connection)?;
    let () = connection.hset_multiple("h", &[("a", "1"), ("b", "two")])?;
    assert_eq!(connection.hgetall::<_, BTreeMap<String, String>>("h")?.len(), 2);
    assert_eq!(connection.hincr::<_, _, _, i64>("h", "a", 4)?, 5);
    assert_eq!(connection.rpush::<_, _, i64>("l", &[1, 2, 3])?, 3);
    assert_eq!(connection.lrange::<_, Vec<i64>>("l", 0, -1)?, [1, 2, 3]);
    assert_eq!(connection.lpop::<_, Vec<i64>>("l", std::num::NonZeroUsize::new(2))?, [1, 2]);
    assert_eq!(connection.sadd::<_, _, i64>("s", &["x", "y", "x"])?, 2);
    assert_eq!(connection.sadd::<_, _, i64>("s2", &["y", "z"])?, 2);
    assert_eq!(connection.sinter::<_, Vec<String>>(&["s", "s2"])?, ["y"]);
    assert_eq!(connection.sunionstore::<_, _, i64>("s3", &["s", "s2"])?, 3);
    assert_eq!(connection.zadd_multiple::<_, _, _, i64>("z", &[(1.0, "one"), (2.5, "more")])?, 2);
    let ranked: Vec<(String, f64)> = connection.zrange_withscores("z", 0, -1)?;
    assert_eq!(ranked, [("one".to_owned(), 1.0), ("more".to_owned(), 2.5)]);
    let members: BTreeSet<String> = connection.sscan::<_, String>("s3")?.collect::<RedisResult<_>>()?;
    assert_eq!(members.len(), 3);
    assert!(!connection.setbit::<_, bool>("bits", 7, true)?);
    assert_eq!(connection.bitcount::<_, i64>("bits")?, 1);
    Ok(())
}

fn transactions(server: &Server, protocol: &str) -> RedisResult<()> {
    let mut connection = connect(server, protocol);
    let replies: (i64, i64) = redis::pipe()
        .atomic()
        .cmd("SET")
        .arg("t1")
        .arg(1)
        .ignore()
        .incr("t1", 1)
        .incr("t2", 5)
        .query(&mut connection)?;
    assert_eq!(replies, (2, 5));
    thread::scope(|scope| {
        for _ in 0..5 {
            scope.spawn(|| {
                let mut connection = connect(server, protocol);
                for _ in 0..10 {
                    let _: (i64, i64) =
                        redis::transaction(&mut connection, &["t1", "t2"], |connection, pipe| {
                            let value: i64 = connection.get("t1")?;
                            pipe.set("t1", value + 1).ignore().get("t1").incr("t2", 1).query(connection)
                        })
                        .expect("a transaction");
                }
            });
        }
    });
    assert_eq!(connection.mget::<_, (i64, i64)>(&["t1", "t2"])?, (52, 55));
    let () = redis::cmd("DEL").arg(&["t1", "t2"]).query(&mut connection)?;
    Ok(())
}

#[test]
fn channels_and_waiting() {
    for shards in SHARD_COUNTS {
        let server = Server::ours(shards);
        for protocol in ["resp2", "resp3"] {
            let (mut publisher, mut subscriber) = (connect(&server, protocol), connect(&server, protocol));
            let mut heard = subscriber.as_pubsub();
            heard.set_read_timeout(Some(Duration::from_secs(5))).expect("a timeout");
            // One by one: the client takes the first confirmation for that of the whole command, and the
            // PUBLISH below must find all three.
            heard.subscribe("news").expect("SUBSCRIBE");
            heard.subscribe("weather").expect("SUBSCRIBE");
            heard.psubscribe("n*").expect("PSUBSCRIBE");
            assert_eq!(publisher.publish::<_, _, i64>("news", "hello").expect("PUBLISH"), 2);
            assert_eq!(publisher.publish::<_, _, i64>("weather", "rain").expect("PUBLISH"), 1);
            let messages: BTreeMap<String, String> = (0..3)
                .map(|_| heard.get_message().expect("a message"))
                .map(|message| {
                    (message.get_channel_name().to_owned(), message.get_payload().expect("a payload"))
                })
                .collect();
            assert_eq!((messages["news"].as_str(), messages["weather"].as_str()), ("hello", "rain"));

            thread::scope(|scope| {
                let waiter = scope.spawn(|| {
                    let mut connection = connect(&server, protocol);
                    connection.blpop::<_, Vec<String>>(&["none", "queue"], 5.0).expect("BLPOP")
                });
                thread::sleep(Duration::from_millis(50));
                let () = publisher.rpush("queue", "job").expect("RPUSH");
                assert_eq!(waiter.join().expect("no panic"), ["queue", "job"]);
            });
        }
    }
}
