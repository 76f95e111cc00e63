//! Whom CLIENT LIST and CLIENT KILL mean by each condition and by each pair of conditions, beside Valkey: connections in all states, told
//! apart by their names.

use super::peers::SHARD_COUNTS;
use crate::common::client::Client;
use crate::common::server::{self, Server};

/// Connections by their names, and what they have run.
const STATES: [(&str, &[&str]); 12] = [
    ("plain", &[]),
    ("elsewhere", &["SELECT 3"]),
    ("listens", &["SUBSCRIBE a"]),
    ("listens-3", &["HELLO 3", "PSUBSCRIBE a*"]),
    ("monitors", &["MONITOR"]),
    ("queues", &["MULTI"]),
    ("has-to-fail", &["WATCH changed", "MULTI"]),
    ("watches", &["WATCH other"]),
    ("library", &["CLIENT SETINFO lib-name some", "CLIENT SETINFO lib-ver 1"]),
    ("no-touch", &["CLIENT NO-TOUCH on"]),
    ("no-evict", &["CLIENT NO-EVICT on"]),
    ("redirects", &["CLIENT CAPA redirect"]),
];
/// `PLAIN` and `LISTENS` are the ids of these two.
const CONDITIONS: [&str; 30] = [
    "ID PLAIN",
    "ID PLAIN LISTENS PLAIN",
    "ID",
    "ID 0",
    "ID x",
    "NOT-ID LISTENS",
    "NOT-ID",
    "TYPE normal",
    "TYPE PubSub",
    "TYPE replica",
    "NOT-TYPE pubsub",
    "SKIPME yes",
    "SKIPME no",
    "NAME plain",
    "NAME \"\"",
    "NOT-NAME plain",
    "IDLE 1000",
    "FLAGS N",
    "FLAGS S",
    "FLAGS xd",
    "FLAGS O",
    "NOT-FLAGS d",
    "NOT-FLAGS P",
    "NOT-FLAGS S",
    "LIB-NAME some",
    "NOT-LIB-VER \"\"",
    "DB 3",
    "NOT-DB 0",
    "NOT-CAPA r",
    "IP 127.0.0.1",
];

struct World {
    asking: Client,
    _clients: Vec<Client>,
}

impl World {
    fn new(server: &Server) -> Self {
        let mut asking = server.client();
        asking.run("CLIENT SETNAME asking");
        // The connection that waited for the server to start may still be there.
        let alone = || (asking.run("CLIENT LIST").text().lines().count() == 1).then_some(());
        server::poll(5000, alone).expect("no other connection");
        let connect = |(name, commands): &(&str, &[&str])| {
            let mut client = server.client();
            client.run(&format!("CLIENT SETNAME {name}"));
            commands.iter().for_each(|line| drop(client.run(line)));
            client
        };
        let clients = STATES.iter().map(connect).collect();
        asking.run("INCR changed");
        Self { asking, _clients: clients }
    }

    fn with_ids(&mut self, conditions: &str) -> String {
        let list = self.asking.run("CLIENT LIST").text();
        let id = |name: &str| {
            let line = list.lines().find(|line| line.contains(&format!(" name={name} ")));
            line.and_then(|line| line.strip_prefix("id=")?.split(' ').next()).expect("an id").to_owned()
        };
        conditions.replace("PLAIN", &id("plain")).replace("LISTENS", &id("listens"))
    }

    /// Whom CLIENT LIST shows.
    fn listed(&mut self, conditions: &str) -> String {
        let line = format!("CLIENT LIST {}", self.with_ids(conditions));
        names(&self.asking.run(&line).text())
    }
}

/// The names in the lines of a CLIENT LIST, or its error.
fn names(reply: &str) -> String {
    let name = |line: &str| line.split(' ').find_map(|word| word.strip_prefix("name=").map(str::to_owned));
    match reply.lines().map(name).collect::<Option<Vec<String>>>() {
        Some(mut names) => {
            names.sort();
            names.join(" ")
        }
        None => reply.to_owned(),
    }
}

fn pairs() -> Vec<String> {
    let alone = CONDITIONS.iter().map(|&condition| condition.to_owned());
    let both = CONDITIONS.iter().flat_map(|one| CONDITIONS.iter().map(move |other| format!("{one} {other}")));
    alone.chain(both).collect()
}

#[test]
fn conditions_on_clients_mean_the_same_alone_and_in_pairs() {
    let Some(valkey) = Server::valkey() else { return };
    let mut theirs = World::new(&valkey);
    let expected: Vec<String> = pairs().iter().map(|line| theirs.listed(line)).collect();
    let mut wrong = Vec::new();
    for shards in SHARD_COUNTS {
        let server = Server::ours(shards);
        let mut ours = World::new(&server);
        for (line, theirs) in pairs().iter().zip(&expected) {
            let ours = ours.listed(line);
            if ours != *theirs {
                wrong.push(format!("CLIENT LIST {line} on {shards} shards: {ours}\n    Valkey: {theirs}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{} differences:\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
fn conditions_on_clients_kill_the_same_ones() {
    let Some(valkey) = Server::valkey() else { return };
    for conditions in
        CONDITIONS.into_iter().chain(["ID PLAIN ID LISTENS", "FLAGS P FLAGS d", "NOT-FLAGS d TYPE normal"])
    {
        let reply = |world: &mut World| {
            let line = format!("CLIENT KILL {}", world.with_ids(conditions));
            format!("{:?}", world.asking.run(&line))
        };
        let left = |server: &Server| names(&server.client().run("CLIENT LIST").text());
        let mut theirs = World::new(&valkey);
        let (expected, remaining) = (reply(&mut theirs), left(&valkey));
        for shards in SHARD_COUNTS {
            let server = Server::ours(shards);
            let mut ours = World::new(&server);
            assert_eq!(reply(&mut ours), expected, "CLIENT KILL {conditions} on {shards} shards");
            let gone = server::poll(5000, || (left(&server) == remaining).then_some(()));
            assert!(
                gone.is_some(),
                "CLIENT KILL {conditions} on {shards}: {}, Valkey {remaining}",
                left(&server)
            );
        }
    }
}
