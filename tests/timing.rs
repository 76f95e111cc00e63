//! What commands cost, as clients see it: SLOWLOG, COMMANDLOG, LATENCY and INFO's sections on commands, of several shards as
//! of one server.

mod common;

use std::collections::BTreeMap;

use common::client::Client;
use common::resp::Value;
use common::server::Server;

const SHARD_COUNTS: [usize; 3] = [1, 2, 5];
/// Connections are spread over the shards.
const CLIENTS: usize = 10;

fn clients(server: &Server) -> Vec<Client> {
    let mut clients: Vec<Client> = (0..CLIENTS).map(|_| server.client()).collect();
    for (number, client) in clients.iter_mut().enumerate() {
        client.check(&format!("CLIENT SETNAME client-{number}"), "+OK\r\n");
    }
    clients
}

/// A section of INFO: field and value.
fn info(client: &mut Client, section: &str) -> BTreeMap<String, String> {
    let text = client.run(&format!("INFO {section}")).text();
    let fields = text.lines().filter_map(|line| line.split_once(':'));
    fields.map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
}

/// A value of a line such as `calls=5,usec=7`.
fn part(line: &str, name: &str) -> f64 {
    let value = line.split(',').find_map(|part| part.strip_prefix(name)?.strip_prefix('='));
    value.unwrap_or_else(|| panic!("no {name} in {line}")).parse().expect("a number")
}

fn own_address(client: &mut Client) -> String {
    let info = client.run("CLIENT INFO").text();
    info.split(' ').find_map(|word| word.strip_prefix("addr=")).expect("an address").to_owned()
}

#[test]
fn a_slow_command_is_logged_once_with_its_client() {
    for shards in SHARD_COUNTS {
        let server = Server::ours_with(
            shards,
            &["--slowlog-log-slower-than", "20000", "--latency-monitor-threshold", "20"],
        );
        let mut clients = clients(&server);
        clients[0].run("SLOWLOG RESET");
        for client in &mut clients {
            client.check("DEBUG SLEEP 0.03", "+OK\r\n");
        }
        // The machine may be slow, too: entries of other commands are none of ours.
        let log = clients[3].run("SLOWLOG GET -1").items();
        let sleeps: Vec<Vec<Value>> =
            log.iter().map(Value::items).filter(|fields| fields[3].items()[0].text() == "DEBUG").collect();
        assert_eq!(sleeps.len(), CLIENTS, "{shards} shards: {log:?}");
        for (client, fields) in clients.iter_mut().rev().zip(&sleeps) {
            let us = fields[2].int();
            assert!((30_000..10_000_000).contains(&us), "{us} us");
            let words: Vec<String> = fields[3].items().iter().map(Value::text).collect();
            assert_eq!(words, ["DEBUG", "SLEEP", "0.03"]);
            assert_eq!(fields[4].text(), own_address(client));
            assert_eq!(fields[5].text(), client.run("CLIENT GETNAME").text());
        }
        let ids: Vec<i64> = log.iter().map(|entry| entry.items()[0].int()).collect();
        assert!(ids.windows(2).all(|pair| pair[0] == pair[1] + 1), "{ids:?}");

        let history = clients[7].run("LATENCY HISTORY command").items();
        assert!(!history.is_empty() && history.iter().all(|sample| sample.items()[1].int() >= 30));
        let latest = clients[8].run("LATENCY LATEST").items();
        let command = latest.iter().map(Value::items).find(|event| event[0].text() == "command");
        assert!(command.expect("the event")[3].int() >= 30);
        assert!(clients[1].run("LATENCY GRAPH command").text().starts_with("command - high "));
        assert!(clients[1].run("LATENCY DOCTOR").text().contains("command: "));
        assert!(clients[2].run("LATENCY RESET").int() >= 1);
    }
}

#[test]
fn every_command_is_logged_once_wherever_it_runs() {
    for shards in SHARD_COUNTS {
        let server =
            Server::ours_with(shards, &["--slowlog-log-slower-than", "0", "--slowlog-max-len", "10000"]);
        let mut clients = clients(&server);
        clients[0].run("SLOWLOG RESET");
        for (number, client) in clients.iter_mut().enumerate() {
            for key in 0..20 {
                client.check(&format!("SET key-{number}-{key} x"), "+OK\r\n");
            }
            client.run("MGET a b c d e f");
            client.check("MSET a 1 b 2 c 3 d 4", "+OK\r\n");
        }
        let log = clients[9].run("SLOWLOG GET -1").items();
        let mut counts: BTreeMap<String, usize> = BTreeMap::new();
        for (newer, entry) in log.iter().enumerate() {
            let fields = entry.items();
            let words: Vec<String> = fields[3].items().iter().map(Value::text).collect();
            *counts.entry(words[0].clone()).or_default() += 1;
            if let Some(rest) = words.get(1).and_then(|word| word.strip_prefix("key-")) {
                let number = rest.split('-').next().expect("a number");
                assert_eq!(fields[5].text(), format!("client-{number}"), "entry {newer}");
            }
        }
        let expected = [("MGET", CLIENTS), ("MSET", CLIENTS), ("SET", CLIENTS * 20)];
        for (name, count) in expected {
            assert_eq!(counts.get(name), Some(&count), "{name} on {shards} shards");
        }
        let ids: Vec<i64> = log.iter().map(|entry| entry.items()[0].int()).collect();
        assert!(ids.windows(2).all(|pair| pair[0] == pair[1] + 1), "{ids:?}");
    }
}

#[test]
fn counters_of_all_shards_add_up() {
    for shards in SHARD_COUNTS {
        let server = Server::ours(shards);
        let mut clients = clients(&server);
        clients[0].check("CONFIG RESETSTAT", "+OK\r\n");
        for (number, client) in clients.iter_mut().enumerate() {
            for key in 0..50 {
                client.check(&format!("SET key-{number}-{key} x"), "+OK\r\n");
            }
            client.run("MGET key-0-0 key-1-1 key-2-2");
            client.run("INCR key-0-0");
            client.run("GET");
            client.run("RENAME nosuch key-0-0");
        }
        let stats = info(&mut clients[4], "commandstats");
        let calls = CLIENTS as f64;
        for (name, expected) in [
            ("set", [calls * 50.0, 0.0, 0.0]),
            ("mget", [calls, 0.0, 0.0]),
            ("incr", [calls, 0.0, calls]),
            ("get", [0.0, calls, 0.0]),
            ("rename", [calls, 0.0, calls]),
            ("config|resetstat", [1.0, 0.0, 0.0]),
        ] {
            let line =
                stats.get(&format!("cmdstat_{name}")).unwrap_or_else(|| panic!("no {name}: {stats:?}"));
            let counts = ["calls", "rejected_calls", "failed_calls"].map(|count| part(line, count));
            assert_eq!(counts, expected, "{name} on {shards} shards");
        }
        let errors = info(&mut clients[5], "errorstats");
        assert_eq!(errors.get("errorstat_ERR").map(|line| part(line, "count")), Some(calls * 3.0));
        let percentiles = info(&mut clients[6], "latencystats");
        let set = percentiles.get("latency_percentiles_usec_set").expect("SET was called");
        let [p50, p99] = ["p50", "p99"].map(|name| part(set, name));
        assert!(p50 > 0.0 && p50 <= p99, "{set}");
        let histogram = clients[7].run("LATENCY HISTOGRAM set");
        let calls_told = histogram.field("set").and_then(|set| set.field("calls")).expect("SET was called");
        assert_eq!(calls_told.int(), CLIENTS as i64 * 50);
    }
}

#[test]
fn durations_are_counted_as_set() {
    for shards in SHARD_COUNTS {
        let server = Server::ours_with(shards, &["--latency-tracking", "no"]);
        let mut client = server.client();
        client.run("GET key");
        assert!(info(&mut client, "latencystats").is_empty());
        assert!(info(&mut client, "commandstats").contains_key("cmdstat_get"));
        assert!(client.run("LATENCY HISTOGRAM").items().is_empty());

        let server = Server::ours_with(shards, &["--latency-tracking-info-percentiles", "50", "100"]);
        let mut client = server.client();
        client.run("GET key");
        let line = info(&mut client, "latencystats").remove("latency_percentiles_usec_get").expect("GET");
        let names: Vec<&str> = line.split(',').filter_map(|part| part.split('=').next()).collect();
        assert_eq!(names, ["p50", "p100"]);
    }
}

#[test]
fn a_batch_with_a_slow_command_blames_only_that_one() {
    for shards in SHARD_COUNTS {
        let server = Server::ours_with(shards, &["--slowlog-log-slower-than", "250000"]);
        let mut client = server.client();
        client.run("SLOWLOG RESET");
        for key in 0..40 {
            client.run(&format!("SET key-{key} x"));
        }
        let mut batch = Vec::new();
        for key in 0..40 {
            batch.extend_from_slice(format!("GET key-{key}\r\n").as_bytes());
            if key == 20 {
                batch.extend_from_slice(b"DEBUG SLEEP 0.3\r\n");
            }
        }
        client.write(&batch).expect("a batch");
        for _ in 0..41 {
            client.read().value().expect("a reply");
        }
        let log = client.run("SLOWLOG GET -1").items();
        let names: Vec<String> = log.iter().map(|entry| entry.items()[3].items()[0].text()).collect();
        assert_eq!(names, ["DEBUG"], "{shards} shards");
    }
}
