//! CONFIG beside Valkey's: every directive it has, set to values of all kinds and read back, and the defaults.

use std::collections::BTreeMap;

use super::peers::SHARD_COUNTS;
use crate::common::client::Client;
use crate::common::server::Server;

/// Directives that Valkey does not have.
const OURS: [&str; 9] = [
    "accept",
    "buffer-pool-max",
    "buffer-pool-min",
    "busy-poll-us",
    "cpus",
    "metrics-bind",
    "metrics-port",
    "placement",
    "shards",
];
/// Defaults that differ, and why.
const OWN_DEFAULTS: [(&str, &str); 7] = [
    ("bind", "the tests give one; without, it is the loopback here, and everything in Valkey"),
    ("dir", "nothing is read or written, so there is none"),
    ("enable-debug-command", "the tests give one"),
    ("maxclients", "what the limit of descriptors leaves"),
    ("port", "the tests give one"),
    ("save", "there are no snapshots"),
    ("syslog-ident", "the program's name"),
];
/// What every directive is set to.
const VALUES: [&str; 31] = [
    "yes",
    "NO",
    "0",
    "1",
    "2",
    "-1",
    "-2",
    "64",
    "100",
    "101",
    "1000",
    "2147483648",
    "65536",
    "1k",
    "1KB",
    "3mb",
    "2gb",
    "5%",
    "101%",
    "x",
    "",
    "a b c",
    "10 20 30",
    "-99999999999",
    "9223372036854775807",
    "9999999999999999999999",
    "9223372036854775808",
    "-1b",
    "0x10",
    " 1",
    "5  6",
];
/// The same for those whose values have a form of their own.
const FORMS: [(&str, &[&str]); 13] = [
    (
        "client-output-buffer-limit",
        &[
            "normal 1 2 3",
            "NORMAL 1mb 2mb 3",
            "replica 1 1 1 pubsub 2 2 2",
            "slave 5 6 7",
            "master 1 1 1",
            "normal 1 1",
            "normal -1 1 1",
            "normal x 1 1",
            "normal 1 1 -1",
            "normal 1 1 1 other 2 2 2",
            "normal 1 1 1 normal 2 2 2",
        ],
    ),
    (
        "latency-tracking-info-percentiles",
        &["", "50", "50 99.9 100", "0", "101", "-1", "x", "50 x", "1e1", "99.99999"],
    ),
    ("notify-keyspace-events", &["KEA", "AKE", "g$lshzxetd", "KEx", "m", "n", "q", "Kq", "KElg"]),
    ("save", &["", "900 1", "900 1 300 10", "900", "0 1", "-1 1", "1 -1", "x y", "1 x", "900  1"]),
    ("oom-score-adj-values", &["0 200 800", "1 2 3", "1 2", "1 2 3 4", "-2000 0 2000", "-2001 0 1", "a 1 2"]),
    (
        "shutdown-on-sigterm",
        &["default", "nosave now", "SAVE", "force", "save nosave", "other", "default save", "safe failover"],
    ),
    ("cluster-announce-ip", &["10.0.0.1", "::1", "a_b", "a-b", "a/b", "a~b", "a,b", "é"]),
    ("cluster-announce-human-nodename", &["a_b", "a:b", "a/b", "a~b", "a,b", "a@b", "é"]),
    ("locale-collate", &["C", "POSIX", "C.UTF-8"]),
    ("cluster-announce-hostname", &["a.b-c", "a_b", "host", "-", "a b"]),
    ("dbfilename", &["a", "a/b", ""]),
    ("maxmemory-clients", &["0%", "100%", "5%5", "%", "-5%", "0", "12345"]),
    ("tcp-keepalive", &[" 1", "1 ", "+1", "01", "0x1", "1.0"]),
];
/// Directives with fewer values: others would end the test, reach for the network or change the machine. Valkey is lost for
/// minutes when `maxclients` is far too high.
const FEW: [(&str, &[&str]); 7] = [
    ("bind", &["127.0.0.1"]),
    ("dir", &["/", ""]),
    ("maxclients", &["100", "0", "-1", "x", "4294967296"]),
    ("port", &["-1", "65536", "x", ""]),
    ("requirepass", &[""]),
    ("tls-port", &["0", "-1", "65536", "x"]),
    ("oom-score-adj", &["no", "x", ""]),
];

/// What Valkey accepts and we do not, or the other way round, and why.
fn on_purpose(name: &str, value: &str) -> bool {
    match name {
        // No append-only file is written here: better to say so than to let somebody believe it.
        "appendonly" => value.eq_ignore_ascii_case("yes"),
        // There is nothing here that would have to be able to do it.
        "activedefrag" => true,
        // It makes three numbers of two words.
        "oom-score-adj-values" => value == "5  6",
        // Nobody has so much that the greatest number here would not do.
        "maxmemory" | "cluster-link-sendbuf-limit" | "maxmemory-clients" => value == "9223372036854775808",
        // A Valkey that was built without TLS ends then.
        "tls-cluster" | "tls-replication" => value.eq_ignore_ascii_case("yes"),
        _ => false,
    }
}

/// Directives that no pattern finds.
const HIDDEN: &str = "aof-disable-auto-gc cluster-message-gossip-perc cluster-ping-interval debug-context enable-debug-assert \
    io-threads-always-active key-load-delay loading-process-events-interval-bytes lua-enable-deprecated-api lua-enable-insecure-api \
    min-io-threads-avoid-copy-reply min-string-size-avoid-copy-reply min-string-size-avoid-copy-reply-threaded \
    rdb-key-save-delay use-exit-on-panic watchdog-period";

/// All directives that the patterns find, and their values.
fn matching(client: &mut Client, patterns: &str) -> BTreeMap<String, String> {
    let words = client.run(&format!("CONFIG GET {patterns}")).items();
    words.chunks_exact(2).map(|pair| (pair[0].text(), pair[1].text())).collect()
}

fn all(client: &mut Client) -> BTreeMap<String, String> {
    let mut all = matching(client, HIDDEN);
    assert_eq!(all.len(), HIDDEN.split(' ').count());
    let visible = matching(client, "*");
    assert!(all.keys().all(|name| !visible.contains_key(name)));
    all.extend(visible);
    all
}

#[test]
fn all_directives_are_there_with_their_defaults() {
    let Some(valkey) = Server::valkey() else { return };
    let ours = all(&mut Server::ours(1).client());
    let theirs = all(&mut valkey.client());
    let only_ours: Vec<&String> = ours.keys().filter(|name| !theirs.contains_key(*name)).collect();
    assert_eq!(only_ours, OURS);
    let mut found = Vec::new();
    for (name, value) in &theirs {
        match ours.get(name) {
            None => found.push(format!("{name} is missing")),
            Some(own) if own != value && !OWN_DEFAULTS.iter().any(|(known, _)| known == name) => {
                found.push(format!("{name}: {own:?}, Valkey: {value:?}"));
            }
            Some(_) => {}
        }
    }
    assert!(found.is_empty(), "{} differences:\n{}", found.len(), found.join("\n"));
}

/// The reply to setting a directive, and its value then.
fn set(client: &mut Client, name: &str, value: &str) -> (String, String) {
    let words = |words: &[&str]| words.iter().map(|word| word.as_bytes().to_vec()).collect::<Vec<_>>();
    let reply = format!("{:?}", client.call(&words(&["CONFIG", "SET", name, value])));
    let value = format!("{:?}", client.call(&words(&["CONFIG", "GET", name])));
    (reply, value)
}

#[test]
fn every_directive_takes_what_valkeys_takes() {
    let Some(valkey) = Server::valkey() else { return };
    let server = Server::ours(2);
    let (mut ours, mut theirs) = (server.client(), valkey.client());
    let mut found = Vec::new();
    for (name, default) in all(&mut theirs) {
        let of = |table: &[(&str, &'static [&'static str])]| {
            table.iter().find(|(known, _)| *known == name).map(|(_, values)| *values)
        };
        let own = (!OWN_DEFAULTS.iter().any(|(known, _)| *known == name)).then_some(default.as_str());
        let values = of(&FEW).unwrap_or(&VALUES).iter().chain(of(&FORMS).unwrap_or_default()).copied();
        let before = found.len();
        for value in values.chain(own).filter(|value| !on_purpose(&name, value)) {
            let (ours, theirs) = (set(&mut ours, &name, value), set(&mut theirs, &name, value));
            // Where nothing was set, the value is the default.
            let same = ours == theirs || (own.is_none() && ours.0.contains("ERR") && ours.0 == theirs.0);
            if !same && found.len() < before + 2 {
                found.push(format!("{name} {value:?}: {ours:?}\n    Valkey: {theirs:?}"));
            }
        }
        set(&mut ours, &name, &default);
        set(&mut theirs, &name, &default);
    }
    assert!(found.is_empty(), "{} differences:\n{}", found.len(), found.join("\n"));
}

#[test]
fn what_is_read_can_be_set_back() {
    for shards in SHARD_COUNTS {
        let server = Server::ours_with(shards, &["--enable-protected-configs", "yes"]);
        let mut client = server.client();
        let before = all(&mut client);
        let mut fixed = 0;
        for (name, value) in &before {
            let (reply, _) = set(&mut client, name, value);
            if reply.contains("immutable config") || name == "rdma-bind" {
                fixed += 1;
            } else {
                assert_eq!(reply, "+OK\\r\\n", "{name} {value:?}");
            }
        }
        assert!(fixed < before.len() / 4, "{fixed} of {} cannot be set", before.len());
        assert_eq!(all(&mut client), before);
    }
}
