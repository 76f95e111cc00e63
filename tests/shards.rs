//! What only a sharded server shows: connections spread over the shards, and INFO's `# Shards`.

mod common;

use std::collections::BTreeMap;

use common::client::Client;
use common::server::{self, Server};

/// Connections per shard, from CLIENT LIST.
fn connections(client: &mut Client, shards: usize) -> Vec<usize> {
    let list = client.run("CLIENT LIST").text();
    let mut counts = vec![0; shards];
    for line in list.lines() {
        let shard = line.split(' ').find_map(|word| word.strip_prefix("shard=")).expect("a shard");
        counts[shard.parse::<usize>().expect("a number")] += 1;
    }
    counts
}

/// The same once there are `total` of them.
fn settled(client: &mut Client, shards: usize, total: usize) -> Vec<usize> {
    let counts = server::poll(5000, || {
        let counts = connections(client, shards);
        (counts.iter().sum::<usize>() == total).then_some(counts)
    });
    counts.unwrap_or_else(|| panic!("never {total} connections in CLIENT LIST"))
}

#[test]
fn fifty_connections_load_no_shard_with_more_than_a_fifth_above_the_mean() {
    const CONNECTIONS: usize = 50;
    if server::stand_in() {
        return;
    }
    for (shards, accept) in [(2, "reuseport"), (5, "reuseport"), (1, "single"), (2, "single"), (5, "single")]
    {
        let server = Server::ours_with(shards, &["--accept", accept]);
        let mut client = server.client();
        for round in 0..5 {
            let mut others: Vec<Client> = (1..CONNECTIONS).map(|_| server.client()).collect();
            others.iter_mut().for_each(|other| other.check("PING", "+PONG\r\n"));
            let counts = settled(&mut client, shards, CONNECTIONS);
            let busiest = counts.iter().max().expect("shards");
            let fair = busiest * shards * 10 <= CONNECTIONS * 12;
            assert!(fair, "{accept}, round {round}: connections per shard {counts:?}");
            drop(others);
            settled(&mut client, shards, 1);
        }
    }
}

/// The fields of each shard's line of INFO.
fn shard_lines(client: &mut Client) -> Vec<BTreeMap<String, f64>> {
    let info = client.run("INFO shards").text();
    let lines = info.lines().filter(|line| line.starts_with("shard"));
    lines
        .map(|line| {
            let (_, fields) = line.split_once(':').expect("a colon");
            let pairs = fields.split(',').map(|pair| pair.split_once('=').expect("name=value"));
            pairs.map(|(name, value)| (name.to_owned(), value.parse().expect("a number"))).collect()
        })
        .collect()
}

fn sum(lines: &[BTreeMap<String, f64>], field: &str) -> f64 {
    lines.iter().map(|line| line[field]).sum()
}

#[test]
fn info_accounts_for_every_key_connection_and_hop() {
    const KEYS: usize = 300;
    const CONNECTIONS: usize = 12;
    if server::stand_in() {
        return;
    }
    let server = Server::ours(3);
    let mut clients: Vec<Client> = (0..CONNECTIONS).map(|_| server.client()).collect();
    for n in 0..KEYS {
        clients[n % CONNECTIONS].check(&format!("SET key:{n} v"), "+OK\r\n");
    }
    let lines = server::poll(5000, || {
        let lines = shard_lines(&mut clients[0]);
        (sum(&lines, "connections") == CONNECTIONS as f64).then_some(lines)
    });
    let lines = lines.expect("twelve connections in INFO");
    assert_eq!(lines.len(), 3);
    assert_eq!(sum(&lines, "keys"), KEYS as f64);
    assert!(lines.iter().all(|line| line["keys"] > 50.0), "keys spread over the shards: {lines:?}");
    // Two of three keys live on another shard than their client.
    assert!(sum(&lines, "hops_out") > KEYS as f64 / 3.0, "{lines:?}");
    for field in ["turns", "turn_us_max", "turn_us_p999", "hops_in", "parks", "wakes_sent"] {
        assert!(lines.iter().all(|line| line.contains_key(field)), "{field} in {lines:?}");
    }
    assert!(lines.iter().all(|line| line["turns"] > 0.0), "{lines:?}");
}

/// The shard that serves a connection.
fn shard_of(client: &mut Client) -> usize {
    let info = client.run("CLIENT INFO").text();
    let shard = info.split_whitespace().find_map(|word| word.strip_prefix("shard=")).expect("a shard");
    shard.parse().expect("a number")
}

#[test]
fn messages_for_a_shard_that_is_held_up_are_seen_to_wait() {
    const ROUNDS: usize = 12;
    if server::stand_in() {
        return;
    }
    let server = Server::ours(2);
    let (mut on_first, mut on_second): (Vec<Client>, Vec<Client>) = (Vec::new(), Vec::new());
    while on_first.is_empty() || on_second.len() < ROUNDS + 1 {
        let mut client = server.client();
        let side = if shard_of(&mut client) == 0 { &mut on_first } else { &mut on_second };
        side.push(client);
    }
    let mut quick = on_second.pop().expect("a client of the second shard");
    // Turns of the second shard follow each other while the first sleeps: each leaves a message for it.
    let asked: String = (0..20).map(|key| format!("GET key:{key}\r\n")).collect();
    on_first[0].write(b"DEBUG SLEEP 0.5\r\n").expect("a server that reads");
    for client in &mut on_second {
        client.write(asked.as_bytes()).expect("a server that reads");
        quick.check("PING", "+PONG\r\n");
    }
    for client in &mut on_second {
        (0..20).for_each(|_| drop(client.read().value().expect("a reply")));
    }
    let lines = shard_lines(&mut quick);
    assert!(lines[0]["mail"] >= lines[0]["mail_waiting_max"], "{lines:?}");
    assert!(lines[0]["mail_waiting_max"] >= ROUNDS as f64 / 2.0, "{lines:?}");
    assert_eq!(sum(&lines, "mailbox_full"), 0.0, "{lines:?}");
    assert!(lines.iter().all(|line| line["turn_us_sum"] > 0.0), "{lines:?}");
}
