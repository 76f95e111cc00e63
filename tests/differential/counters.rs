//! What commands add to INFO's counters of hits, misses, and keys and fields whose time has come.

use super::peers::SHARD_COUNTS;
use crate::common::client::Client;
use crate::common::server::Server;

const COUNTERS: [&str; 4] = ["keyspace_hits", "keyspace_misses", "expired_keys", "expired_fields"];
/// What is there before each command.
const BEFORE: [&str; 4] = ["FLUSHALL", "SET s v", "HSET h f 1 g 2", "RPUSH l a b"];
/// Commands, on what is there and what is not.
const COMMANDS: &str = include_str!("tables/counters.txt");

fn counters(client: &mut Client) -> Vec<i64> {
    let info = client.run("INFO stats").text();
    let value = |name: &&str| {
        let line = info.lines().find_map(|line| line.strip_prefix(*name)?.strip_prefix(':'));
        line.unwrap_or_else(|| panic!("{name} is missing")).parse().expect("a number")
    };
    COUNTERS.iter().map(value).collect()
}

/// What each command adds to each counter.
fn added(server: &Server) -> Vec<Vec<i64>> {
    let mut client = server.client();
    COMMANDS
        .lines()
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
        .map(|line| {
            BEFORE.iter().for_each(|line| drop(client.run(line)));
            let before = counters(&mut client);
            client.run(line);
            counters(&mut client).iter().zip(before).map(|(after, before)| after - before).collect()
        })
        .collect()
}

#[test]
fn commands_count_alike() {
    let Some(valkey) = Server::valkey() else { return };
    let expected = added(&valkey);
    let lines = COMMANDS.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    let mut wrong = Vec::new();
    for shards in SHARD_COUNTS {
        let ours = added(&Server::ours(shards));
        for ((line, ours), theirs) in lines.clone().zip(&ours).zip(&expected) {
            if ours != theirs {
                wrong.push(format!("{line} on {shards} shards: {ours:?}, Valkey {theirs:?}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{COUNTERS:?}\n{}", wrong.join("\n"));
}
