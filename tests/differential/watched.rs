//! Which of the keys that clients watch a command touches, whether it changes anything or not.

use super::peers::SHARD_COUNTS;
use crate::common::client::Client;
use crate::common::resp::Value;
use crate::common::server::Server;

/// What is there before each command.
const BEFORE: [&str; 14] = [
    "FLUSHALL",
    "SET s abc",
    "SET n 5",
    "SET ex v EX 1000",
    "SETBIT bits 7 1",
    "HSET h f v g 2",
    "HSET hx f v",
    "HEXPIRE hx 1000 FIELDS 1 f",
    "RPUSH l a b c b",
    "SADD t a b c",
    "SADD i 1 2 3",
    "ZADD z 1 a 2 b 3 c",
    "PFADD p a b c",
    "GEOADD geo 1 1 m 2 2 n",
];
/// Keys that are watched, each by a client of its own.
const KEYS: &str = "s n ex bits h hx l t i z p geo none dst new";
const COMMANDS: &str = include_str!("tables/watched.txt");

fn commands() -> impl Iterator<Item = &'static str> {
    COMMANDS.lines().filter(|line| !line.is_empty() && !line.starts_with('#'))
}

/// The keys whose watchers' transactions each command has aborted; in a transaction itself, or not.
fn touched(server: &Server, in_transaction: bool) -> Vec<Vec<&'static str>> {
    let mut client = server.client();
    let mut watchers: Vec<(&str, Client)> = KEYS.split(' ').map(|key| (key, server.client())).collect();
    let touched_by = |command: &str| {
        BEFORE.iter().for_each(|line| drop(client.run(line)));
        for (key, watcher) in &mut watchers {
            watcher.run(&format!("WATCH {key}"));
        }
        if in_transaction {
            client.run("MULTI");
            client.run(command);
            client.run("EXEC");
        } else {
            client.run(command);
        }
        let is_touched = |watcher: &mut Client| {
            watcher.run("MULTI");
            watcher.run("PING");
            watcher.run("EXEC") == Value::Null
        };
        watchers.iter_mut().filter_map(|(key, watcher)| is_touched(watcher).then_some(*key)).collect()
    };
    commands().map(touched_by).collect()
}

#[test]
fn commands_touch_the_same_watched_keys() {
    let Some(valkey) = Server::valkey() else { return };
    let mut wrong = Vec::new();
    for in_transaction in [false, true] {
        let expected = touched(&valkey, in_transaction);
        for shards in SHARD_COUNTS {
            let ours = touched(&Server::ours(shards), in_transaction);
            for ((command, ours), theirs) in commands().zip(&ours).zip(&expected) {
                if ours != theirs {
                    wrong.push(format!("{command} on {shards} shards: {ours:?}, Valkey {theirs:?}"));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
