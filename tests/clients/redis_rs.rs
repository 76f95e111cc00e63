//! The redis crate, as a Rust application uses it.

use std::collections::BTreeSet;
use std::thread;

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
