//! What CONFIG SET changes while the server runs, as it is felt on every shard: thresholds and lengths of the logs, percentiles, the
//! latency monitor, and what is counted of accesses.

mod common;

use common::client::Client;
use common::server::{self, Server};

const SHARD_COUNTS: [usize; 3] = [1, 2, 5];
/// Connections are spread over the shards.
const CLIENTS: usize = 10;
/// Keys enough for every shard to have some.
const KEYS: usize = 40;

fn clients(server: &Server) -> Vec<Client> {
    (0..CLIENTS).map(|_| server.client()).collect()
}

fn field<'a>(info: &'a str, name: &str) -> Option<&'a str> {
    info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))
}

#[test]
fn the_logs_of_commands_follow_their_settings() {
    for shards in SHARD_COUNTS {
        let server = Server::ours(shards);
        let mut clients = clients(&server);
        let echo = |clients: &mut Vec<Client>| {
            clients.iter_mut().for_each(|client| client.check("ECHO x", "$1\r\nx\r\n"))
        };
        let mut admin = server.client();
        for (kind, threshold, len) in [
            ("slow", "commandlog-execution-slower-than", "commandlog-slow-execution-max-len"),
            ("large-request", "commandlog-request-larger-than", "commandlog-large-request-max-len"),
            ("large-reply", "commandlog-reply-larger-than", "commandlog-large-reply-max-len"),
        ] {
            let echoes = |admin: &mut Client| -> usize {
                let log = admin.run(&format!("COMMANDLOG GET -1 {kind}")).items();
                log.iter().filter(|entry| entry.items()[3].items()[0].text() == "ECHO").count()
            };
            admin.check(&format!("CONFIG SET {threshold} 0 {len} 1000"), "+OK\r\n");
            echo(&mut clients);
            assert_eq!(echoes(&mut admin), CLIENTS, "{kind}, {shards} shards");
            // Shorter: the oldest go, and the log stays so short whoever is logged.
            admin.check(&format!("CONFIG SET {len} 3"), "+OK\r\n");
            echo(&mut clients);
            assert_eq!(admin.run(&format!("COMMANDLOG LEN {kind}")).int(), 3, "{kind}, {shards} shards");
            // Longer again: of what has gone no more comes back than what other shards still had.
            admin.check(&format!("CONFIG SET {len} 1000"), "+OK\r\n");
            assert!(
                admin.run(&format!("COMMANDLOG LEN {kind}")).int() <= 3 * shards as i64 + 3,
                "{kind}, {shards} shards"
            );
            admin.check(&format!("CONFIG SET {threshold} -1"), "+OK\r\n");
            admin.check(&format!("COMMANDLOG RESET {kind}"), "+OK\r\n");
            echo(&mut clients);
            assert_eq!(echoes(&mut admin), 0, "{kind}, {shards} shards");
            // Far above what a short command has.
            admin.check(&format!("CONFIG SET {threshold} 100000000"), "+OK\r\n");
            echo(&mut clients);
            assert_eq!(echoes(&mut admin), 0, "{kind}, {shards} shards");
        }
    }
}

#[test]
fn the_latency_monitor_follows_its_threshold() {
    for shards in SHARD_COUNTS {
        let server = Server::ours(shards);
        let mut clients = clients(&server);
        let sleep = |clients: &mut Vec<Client>| {
            clients.iter_mut().for_each(|client| client.check("DEBUG SLEEP 0.003", "+OK\r\n"));
        };
        let mut admin = server.client();
        sleep(&mut clients);
        assert_eq!(admin.run("LATENCY LATEST").items().len(), 0, "it is off by default");
        for client in &mut clients {
            admin.check("CONFIG SET latency-monitor-threshold 2", "+OK\r\n");
            admin.run("LATENCY RESET");
            client.check("DEBUG SLEEP 0.003", "+OK\r\n");
            let latest = admin.run("LATENCY LATEST").items();
            let names: Vec<String> = latest.iter().map(|event| event.items()[0].text()).collect();
            assert!(names.contains(&"command".to_owned()), "{names:?}, {shards} shards");
            admin.check("CONFIG SET latency-monitor-threshold 0", "+OK\r\n");
            admin.run("LATENCY RESET");
        }
        sleep(&mut clients);
        assert_eq!(admin.run("LATENCY LATEST").items().len(), 0, "{shards} shards");
    }
}

#[test]
fn percentiles_and_their_counting_follow_the_settings() {
    for shards in SHARD_COUNTS {
        let server = Server::ours(shards);
        let mut clients = clients(&server);
        let mut shown = |settings: &str| -> Vec<Option<String>> {
            clients[0].check(&format!("CONFIG SET {settings}"), "+OK\r\n");
            let one = |client: &mut Client| {
                client.check("ECHO x", "$1\r\nx\r\n");
                let info = client.run("INFO latencystats").text();
                let line = field(&info, "latency_percentiles_usec_echo")?;
                let names: Vec<&str> =
                    line.trim().split(',').filter_map(|part| part.split('=').next()).collect();
                Some(names.join(" "))
            };
            clients.iter_mut().map(one).collect()
        };
        for (settings, expected) in [
            ("latency-tracking yes", Some("p50 p99 p99.9")),
            ("latency-tracking-info-percentiles \"0 2.5 100\"", Some("p0 p2.5 p100")),
            ("latency-tracking-info-percentiles \"\" latency-tracking no", None),
        ] {
            let found = shown(settings);
            assert!(
                found.iter().all(|names| names.as_deref() == expected),
                "{settings}: {found:?}, {shards} shards"
            );
        }
    }
}

#[test]
fn what_is_counted_of_accesses_follows_the_policy() {
    for shards in SHARD_COUNTS {
        let server = Server::ours(shards);
        let mut client = server.client();
        let is_lfu = |client: &mut Client| -> Vec<bool> {
            (0..KEYS).map(|key| !client.run(&format!("OBJECT FREQ key:{key}")).is_error()).collect()
        };
        for key in 0..KEYS {
            client.check(&format!("SET key:{key} x"), "+OK\r\n");
        }
        assert_eq!(is_lfu(&mut client), [false; KEYS]);
        // With a factor of 0 every access counts; a decay of 0 takes nothing off.
        client.check("CONFIG SET maxmemory-policy allkeys-lfu lfu-log-factor 0 lfu-decay-time 0", "+OK\r\n");
        for key in 0..KEYS {
            client.check(&format!("SET new:{key} x"), "+OK\r\n");
            client.check(&format!("GET new:{key}"), "$1\r\nx\r\n");
            client.check(&format!("GET new:{key}"), "$1\r\nx\r\n");
            assert_eq!(client.run(&format!("OBJECT FREQ new:{key}")).int(), 7, "{shards} shards");
        }
        assert!(client.run("INFO memory").text().contains("maxmemory_policy:allkeys-lfu\r\n"));
        client.check("CONFIG SET lfu-log-factor 1000000000", "+OK\r\n");
        for key in 0..KEYS {
            client.check(&format!("GET new:{key}"), "$1\r\nx\r\n");
            assert_eq!(client.run(&format!("OBJECT FREQ new:{key}")).int(), 7, "{shards} shards");
        }
        client.check("CONFIG SET maxmemory-policy volatile-ttl", "+OK\r\n");
        assert_eq!(is_lfu(&mut client), [false; KEYS], "{shards} shards");
    }
}

/// As in Valkey, nothing is removed during a pause because its time has come; nobody sees it either.
#[test]
fn keys_are_not_removed_while_clients_are_paused() {
    for shards in SHARD_COUNTS {
        let server = Server::ours(shards);
        let (mut client, mut admin) = (server.client(), server.client());
        for mode in ["WRITE", "ALL"] {
            client.check("FLUSHALL", "+OK\r\n");
            let before = expired(&mut admin);
            for key in 0..KEYS {
                client.check(&format!("SET key:{key} x PX 400"), "+OK\r\n");
            }
            // Long enough for the deadlines to pass, and for what would remove keys to have come round.
            admin.check(&format!("CLIENT PAUSE 1500 {mode}"), "+OK\r\n");
            let start = std::time::Instant::now();
            if mode == "WRITE" {
                while start.elapsed().as_millis() < 1000 {
                    client.run("MGET key:0 key:1 key:2");
                    assert_eq!(admin.run("DBSIZE").int(), KEYS as i64, "{shards} shards");
                }
                assert_eq!(expired(&mut admin), before, "{shards} shards");
                assert!(client.run("EXISTS key:0").int() == 0 || server::stand_in());
            }
            // The first answer under ALL comes when the pause is over.
            let gone = server::poll(20_000, || (admin.run("DBSIZE").int() == 0).then_some(()));
            assert!(gone.is_some(), "{shards} shards");
            assert_eq!(expired(&mut admin) - before, KEYS as i64, "{shards} shards");
        }
    }
}

fn expired(client: &mut Client) -> i64 {
    let info = client.run("INFO stats").text();
    field(&info, "expired_keys").and_then(|count| count.trim().parse().ok()).expect("the counter")
}
