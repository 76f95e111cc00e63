//! Payloads of DUMP go from us to Valkey and Redis and back, of every type and size, and arrive as they were.

mod common;

use std::process::Command;

use common::client::{Client, Outcome};
use common::resp::Value;
use common::server::{self, Server};

/// What makes a key `k`, with elements that are compact and not.
fn makers() -> Vec<String> {
    let long = "x".repeat(100);
    let many = |command: &str, element: &dyn Fn(usize) -> String, count: usize| {
        let elements: Vec<String> = (0..count).map(element).collect();
        format!("{command} k {}", elements.join(" "))
    };
    let mut lines = vec![
        "SET k value".to_owned(),
        "SET k 12345".to_owned(),
        "SET k -9223372036854775808".to_owned(),
        "SET k 007".to_owned(),
        format!("SET k {}", "y".repeat(20_000)),
        format!("SET k {}", "abcd".repeat(100)),
        "SETBIT k 77 1".to_owned(),
    ];
    for count in [1, 5, 60, 700] {
        lines.push(many("RPUSH", &|n| format!("e{n}"), count));
        lines.push(many("RPUSH", &|n| (n * n).to_string(), count));
        lines.push(many("RPUSH", &|n| format!("{n}{long}"), count));
        lines.push(many("SADD", &|n| format!("m{n}"), count));
        lines.push(many("SADD", &|n| (n * 70_000).to_string(), count));
        lines.push(many("SADD", &|n| format!("{n}{long}"), count));
        lines.push(many("HSET", &|n| format!("f{n} v{n}"), count));
        lines.push(many("HSET", &|n| format!("f{n} {n}"), count));
        lines.push(many("HSET", &|n| format!("f{n} {n}{long}"), count));
        lines.push(many("ZADD", &|n| format!("{n} m{n}"), count));
        lines.push(many("ZADD", &|n| format!("{} m{n}", n as f64 / 7.0), count));
        lines.push(many("ZADD", &|n| format!("-{n}e-5 {n}{long}"), count));
    }
    lines.push("ZADD k inf a -inf b 0 c -0 d 1e300 e 3.0000000000000004 f".to_owned());
    lines
}

/// A bulk that a command answers with.
fn bulk(client: &mut Client, line: &str) -> Vec<u8> {
    match client.run(line) {
        Value::Bulk(bytes) => bytes,
        other => panic!("{line}: {other:?}"),
    }
}

/// What `k` holds, in a form that can be compared. Servers write scores in different ways, also in their digests.
fn content(client: &mut Client) -> String {
    if client.run("TYPE k") != Value::Simple("zset".to_owned()) {
        return format!("{:?}", client.run("DEBUG DIGEST-VALUE k"));
    }
    let number =
        |text: &str| text.parse::<f64>().map_or_else(|_| text.to_owned(), |score| format!("{score:?}"));
    let words = client.run("ZRANGE k 0 -1 WITHSCORES").items();
    words.iter().map(|word| number(&word.text()) + " ").collect()
}

fn restore(client: &mut Client, payload: Vec<u8>, what: &str) {
    let command = [b"RESTORE".to_vec(), b"k".to_vec(), b"0".to_vec(), payload, b"REPLACE".to_vec()];
    match client.call(&command) {
        Outcome::Reply(reply) if reply == b"+OK\r\n" => {}
        other => panic!("{what}: {other:?}"),
    }
}

/// Carries `k` from one server to another, where it must arrive as it was.
fn carry(from: &mut Client, to: &mut Client, what: &str) {
    let payload = bulk(from, "DUMP k");
    restore(to, payload, what);
    assert_eq!(content(from), content(to), "{what}");
}

fn redis() -> Option<Server> {
    server::installed("redis-server", "--version").then(|| {
        Server::start("Redis", |port, dir| {
            let mut command = Command::new("redis-server");
            command.args(["--port", &port.to_string(), "--bind", "127.0.0.1", "--save", ""]);
            command.args(["--enable-debug-command", "yes", "--dir"]).arg(dir).current_dir(dir);
            command
        })
    })
}

#[test]
fn values_survive_the_way_to_other_servers_and_back() {
    let ours = Server::ours(2);
    let mut own = ours.client();
    for peer in [Server::valkey(), redis()].into_iter().flatten() {
        let mut other = peer.client();
        for line in makers() {
            let what = format!("{}: {}", peer.name, &line[..line.len().min(60)]);
            for client in [&mut own, &mut other] {
                client.run("DEL k");
                let reply = client.run(&line);
                assert!(!reply.is_error(), "{what}: {reply:?}");
            }
            carry(&mut own, &mut other, &what);
            carry(&mut other, &mut own, &what);
            // How a string was made may show in its encoding, and is not in a payload; Redis 7.0 has other encodings.
            if peer.name == "Valkey" && own.run("TYPE k") != Value::Simple("string".to_owned()) {
                assert_eq!(own.run("OBJECT ENCODING k"), other.run("OBJECT ENCODING k"), "{what}");
            }
        }
    }
}

#[test]
fn hyperloglogs_count_the_same_wherever_they_are() {
    let ours = Server::ours(2);
    let mut own = ours.client();
    for peer in [Server::valkey(), redis()].into_iter().flatten() {
        let mut other = peer.client();
        for count in [1, 30, 900, 1400, 5000] {
            let elements: Vec<String> = (0..count).map(|n| format!("e{n}")).collect();
            let what = format!("{}: {count}", peer.name);
            let line = format!("PFADD k {}", elements.join(" "));
            let bytes: Vec<Vec<u8>> = [&mut own, &mut other]
                .into_iter()
                .map(|client| {
                    client.run("DEL k l");
                    client.check(&line, ":1\r\n");
                    bulk(client, "GET k")
                })
                .collect();
            assert!(bytes[0] == bytes[1], "{what}: other bytes");
            carry(&mut own, &mut other, &what);
            carry(&mut other, &mut own, &what);
            for line in
                ["PFCOUNT k", "PFADD k e0", "PFADD k another", "PFCOUNT k", "PFMERGE l k", "PFCOUNT l"]
            {
                assert_eq!(own.run(line), other.run(line), "{what}: {line}");
            }
            assert!(
                bulk(&mut own, "GET l") == bulk(&mut other, "GET l"),
                "{what}: other bytes after PFMERGE"
            );
        }
    }
}

#[test]
fn deadlines_of_fields_survive_too() {
    let Some(valkey) = Server::valkey() else { return };
    let ours = Server::ours(2);
    let (mut own, mut other) = (ours.client(), valkey.client());
    for _ in 0..2 {
        own.run("DEL k");
        own.run("HSET k f v g w");
        own.run("HPEXPIREAT k 4102444800000 FIELDS 1 f");
        let payload = bulk(&mut own, "DUMP k");
        restore(&mut other, payload, "fields");
        let deadlines = "HPEXPIRETIME k FIELDS 3 f g h";
        assert_eq!(other.run(deadlines), own.run(deadlines));
        std::mem::swap(&mut own, &mut other);
    }
}
