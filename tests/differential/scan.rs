//! What SCAN promises: an element present during the whole iteration is returned, whatever comes and goes meanwhile,
//! tables growing and shrinking included; and RANDOMKEY, whose answer no other server can give.

use std::collections::BTreeSet;

use super::peers::SHARD_COUNTS;
use crate::common::client::Client;
use crate::common::random::Random;
use crate::common::server::{self, Server};
use crate::common::words;

/// One SCAN step: the next cursor, its elements added to `seen`.
fn step(client: &mut Client, cursor: &str, options: &str, seen: &mut BTreeSet<String>) -> String {
    let reply = client.run(&format!("SCAN {cursor} {options}")).items();
    seen.extend(reply[1].items().iter().map(|element| element.text()));
    reply[0].text()
}

fn set_range(client: &mut Client, prefix: &str, numbers: std::ops::Range<usize>) {
    let commands = numbers.map(|n| words::parse(&format!("SET {prefix}:{n} {n}")));
    pipeline(client, commands.collect());
}

fn delete_range(client: &mut Client, prefix: &str, numbers: std::ops::Range<usize>) {
    let commands = numbers.map(|n| words::parse(&format!("DEL {prefix}:{n}")));
    pipeline(client, commands.collect());
}

fn pipeline(client: &mut Client, commands: Vec<words::Command>) {
    for chunk in commands.chunks(500) {
        client.write(&words::encode_all(chunk)).expect("a pipeline");
        for command in chunk {
            assert!(!client.read().value().expect("a reply").is_error(), "{}", words::print(command));
        }
    }
}

#[test]
fn elements_present_all_along_are_returned_while_others_come_and_go() {
    const STABLE: usize = 1000;
    const CHURN: usize = 1500;
    for shards in SHARD_COUNTS {
        let server = Server::ours(shards);
        let mut client = server.client();
        for (seed, options) in ["", "COUNT 1", "COUNT 100", "MATCH stable:* COUNT 37"].iter().enumerate() {
            client.check("FLUSHALL", "+OK\r\n");
            set_range(&mut client, "stable", 0..STABLE);
            let mut random = Random::new(seed as u64);
            let mut seen = BTreeSet::new();
            let mut cursor = step(&mut client, "0", options, &mut seen);
            let mut steps = 1;
            while cursor != "0" {
                // The table grows, or shrinks, several times over during the iteration, and no more after that, so
                // that it ends.
                if steps < 40 && random.one_in(2) {
                    set_range(&mut client, "churn", 0..CHURN);
                } else if steps < 40 {
                    delete_range(&mut client, "churn", 0..CHURN);
                }
                cursor = step(&mut client, &cursor, options, &mut seen);
                steps += 1;
                assert!(steps < 50_000, "{}: SCAN {options} does not end", server.name);
            }
            let missing: Vec<usize> =
                (0..STABLE).filter(|n| !seen.contains(&format!("stable:{n}"))).collect();
            assert!(missing.is_empty(), "{}: SCAN {options} left out stable:{missing:?}", server.name);
        }
    }
}

#[test]
fn a_quiet_iteration_returns_every_element_and_only_these() {
    for shards in SHARD_COUNTS {
        let server = Server::ours(shards);
        let mut client = server.client();
        set_range(&mut client, "key", 0..3000);
        client.run("SELECT 1");
        set_range(&mut client, "other", 0..10);
        client.run("SELECT 0");
        for options in ["", "COUNT 1", "COUNT 5000", "TYPE string COUNT 50"] {
            let mut seen = BTreeSet::new();
            let mut cursor = step(&mut client, "0", options, &mut seen);
            while cursor != "0" {
                cursor = step(&mut client, &cursor, options, &mut seen);
            }
            assert_eq!(seen.len(), 3000, "{}: SCAN {options}", server.name);
            assert!(seen.iter().all(|key| key.starts_with("key:")), "{}: SCAN {options}", server.name);
        }
    }
}

#[test]
fn a_step_returns_about_count_elements() {
    for shards in SHARD_COUNTS {
        let server = Server::ours(shards);
        let mut client = server.client();
        set_range(&mut client, "key", 0..5000);
        let mut cursor = "0".to_owned();
        loop {
            let mut seen = BTreeSet::new();
            cursor = step(&mut client, &cursor, "COUNT 10", &mut seen);
            assert!(seen.len() <= 100, "{}: {} elements for COUNT 10", server.name, seen.len());
            if cursor == "0" {
                break;
            }
        }
    }
}

#[test]
fn a_cursor_from_anywhere_is_answered() {
    let mut random = Random::new(1);
    for shards in SHARD_COUNTS {
        let server = Server::ours(shards);
        let mut client = server.client();
        set_range(&mut client, "key", 0..500);
        let random_cursors = (0..200).map(|_| random.next());
        let bits = (0..64).map(|bit| 1_u64 << bit);
        for cursor in random_cursors.chain(bits).chain([u64::MAX]) {
            let reply = client.run(&format!("SCAN {cursor}"));
            assert!(reply.is_error() || reply.items().len() == 2, "SCAN {cursor}: {reply:?}");
        }
    }
}

#[test]
fn randomkey_returns_every_key_sooner_or_later() {
    for shards in SHARD_COUNTS {
        let server = Server::ours(shards);
        let mut client = server.client();
        set_range(&mut client, "key", 0..20);
        let mut seen = BTreeSet::new();
        for _ in 0..5000 {
            seen.insert(client.run("RANDOMKEY").text());
            if seen.len() == 20 {
                break;
            }
        }
        let expected: BTreeSet<String> = (0..20).map(|n| format!("key:{n}")).collect();
        assert_eq!(seen, expected, "{}", server.name);
    }
}

#[test]
fn a_key_past_its_time_is_gone_from_every_answer() {
    for shards in SHARD_COUNTS {
        let server = Server::ours(shards);
        let mut client = server.client();
        for key in ["a", "b", "c", "d", "e"] {
            client.check(&format!("SET {key} v PX 30"), "+OK\r\n");
        }
        let gone = server::poll(5000, || (client.run("EXISTS a b c d e").int() == 0).then_some(()));
        assert!(gone.is_some(), "{}: keys outlive their time", server.name);
        client.check("GET a", "$-1\r\n");
        client.check("KEYS *", "*0\r\n");
        client.check("RANDOMKEY", "$-1\r\n");
        client.check("MGET a b", "*2\r\n$-1\r\n$-1\r\n");
        client.check("TTL c", ":-2\r\n");
        client.check("SETNX a new", ":1\r\n");
        let emptied = server::poll(5000, || (client.run("DBSIZE").int() == 1).then_some(()));
        assert!(emptied.is_some(), "{}: expired keys are never reclaimed", server.name);
    }
}
