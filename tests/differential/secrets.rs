//! Passwords are shown nowhere: not in the logs of commands, not to monitors, not in CLIENT LIST, INFO or the server's own log; what
//! stands in their place is what Valkey puts there.

use std::collections::BTreeSet;

use super::peers::SHARD_COUNTS;
use crate::common::client::{Client, Outcome};
use crate::common::resp::Value;
use crate::common::server::{self, Server};

/// Every password of the tests has it in it.
const MARK: &str = "hush";
/// The last command that a monitor sees.
const LAST: &str = "ECHO the-end";
/// The log that takes every command, whatever its request or reply.
const SETUP: &str = "CONFIG SET commandlog-execution-slower-than 0 commandlog-request-larger-than 0 \
    commandlog-reply-larger-than 0 commandlog-slow-execution-max-len 1000 commandlog-large-request-max-len 1000 \
    commandlog-large-reply-max-len 1000";

/// What both servers are told, one after the other.
const LINES: &[&str] = &[
    "AUTH hush-a",
    "AUTH default hush-b",
    "auth nobody hush-c",
    "HELLO 3 AUTH default hush-d SETNAME me",
    "HELLO 2 SETNAME me auth default hush-e",
    "HELLO 2 AUTH nobody hush-f",
    "CONFIG SET requirepass hush-g",
    "AUTH hush-g",
    "AUTH hush-x",
    "AUTH default hush-g",
    "config set timeout 0 REQUIREPASS hush-h loglevel notice",
    "CONFIG SET masterauth hush-i primaryuser hush-j",
    "CONFIG SET primaryauth hush-k",
    "CONFIG SET masteruser hush-l",
    "CONFIG SET tls-key-file-pass hush-m",
    "CONFIG SET tls-client-key-file-pass hush-n",
    "CONFIG SET timeout x requirepass hush-o",
    "CONFIG SET requirepass hush-p timeout x",
    "CONFIG SET nosuch x requirepass hush-q",
    "CONFIG SET requirepass hush-r nosuch x",
    "CONFIG SET requirepass \"\" masterauth \"\" masteruser \"\" tls-key-file-pass \"\" tls-client-key-file-pass \"\"",
];

/// Where Valkey shows a password and we do not.
const OURS: &[&str] = &[
    "HELLO 2 AUTH hush-s",
    "AUTH hush-a hush-b hush-c",
    "CONFIG SET requirepass hush-t two",
    "CONFIG SET timeout requirepass hush-u",
    "CONFIG SET requirepass hush-v timeout",
];

/// What the logs of a server hold of these lines, oldest first, and everything else in which a password might stand.
fn told(server: &Server, lines: &[&str]) -> (Vec<String>, String) {
    let (mut client, mut monitor) = (server.client(), server.client());
    client.check(SETUP, "+OK\r\n");
    monitor.check("MONITOR", "+OK\r\n");
    let mut seen = String::new();
    for line in lines {
        client.run(line);
        seen += &client.run("CLIENT LIST").text();
    }
    client.check(LAST, "$7\r\nthe-end\r\n");
    while !seen.contains("the-end") {
        let Outcome::Reply(raw) = monitor.read() else { panic!("the monitor was closed: {seen}") };
        seen += &String::from_utf8_lossy(&raw);
    }
    seen += &client.run("INFO everything").text();
    seen += &server.log();
    let mut commands = Vec::new();
    for (name, log) in [
        ("slow", "SLOWLOG GET -1"),
        ("request", "COMMANDLOG GET -1 large-request"),
        ("reply", "COMMANDLOG GET -1 large-reply"),
    ] {
        for entry in client.run(log).items().iter().rev() {
            let words: Vec<String> = entry.items()[3].items().iter().map(Value::text).collect();
            commands.push(format!("{name}: {}", words.join(" ")));
        }
    }
    (commands, seen)
}

fn assert_silent(server: &Server, commands: &[String], seen: &str) {
    for text in commands.iter().map(String::as_str).chain(seen.lines()) {
        assert!(!text.contains(MARK), "{}: {text}", server.name);
    }
    assert!(seen.contains("\"AUTH\" \"(redacted)\"") || seen.contains("\"HELLO\""), "{seen}");
}

#[test]
fn passwords_are_shown_nowhere() {
    let Some(valkey) = Server::valkey() else { return };
    let (theirs, _) = told(&valkey, LINES);
    for shards in SHARD_COUNTS {
        let server = Server::ours(shards);
        let (ours, seen) = told(&server, LINES);
        assert_silent(&server, &ours, &seen);
        for kind in ["slow", "request", "reply"] {
            let of = |commands: &[String]| -> Vec<String> {
                commands
                    .iter()
                    .filter(|line| line.starts_with(kind) && line.contains("(redacted)"))
                    .cloned()
                    .collect()
            };
            assert_eq!(of(&ours), of(&theirs), "{shards} shards");
        }
        if !server::stand_in() {
            let (ours, seen) = told(&server, OURS);
            assert_silent(&server, &ours, &seen);
        }
    }
}

#[test]
fn renamed_commands_keep_their_secrets() {
    if server::stand_in() {
        return;
    }
    for shards in SHARD_COUNTS {
        let names = [("AUTH", "letmein"), ("HELLO", "hi"), ("SET", "auth"), ("CONFIG", "set")];
        let mut flags = vec!["--slowlog-log-slower-than", "0"];
        flags.extend(names.iter().flat_map(|(name, new)| ["--rename-command", name, new]));
        let server = Server::ours_with(shards, &flags);
        let (mut client, mut monitor) = (server.client(), server.client());
        monitor.check("MONITOR", "+OK\r\n");
        for line in [
            "letmein default hush-a",
            "hi 2 AUTH default hush-b",
            "set SET masterauth hush-c",
            "auth key shown",
            LAST,
        ] {
            assert!(!client.run(line).is_error(), "{line}");
        }
        let mut seen = String::new();
        while !seen.contains("the-end") {
            let Outcome::Reply(raw) = monitor.read() else { panic!("the monitor was closed: {seen}") };
            seen += &String::from_utf8_lossy(&raw);
        }
        let log = format!("{:?}", client.run("SLOWLOG GET -1"));
        for text in [&log, &seen] {
            assert!(!text.contains(MARK) && text.contains("shown"), "{text}");
        }
    }
}

/// The names of directives that Valkey hides are those that we hide.
#[test]
fn what_is_secret_for_valkey_is_secret_here() {
    let Some(valkey) = Server::valkey() else { return };
    let server = Server::ours(1);
    let hidden = |client: &mut Client| -> BTreeSet<String> {
        client.check(
            "CONFIG SET commandlog-execution-slower-than 0 commandlog-slow-execution-max-len 1000",
            "+OK\r\n",
        );
        let names: Vec<String> =
            client.run("CONFIG GET *").items().chunks(2).map(|pair| pair[0].text()).collect();
        for name in &names {
            // Wrong on purpose for every directive but a text, and refused for those as a whole.
            client.run(&format!("CONFIG SET {name} hush no-such-directive x"));
        }
        let log = client.run("SLOWLOG GET -1").items();
        let words = log.iter().map(|entry| entry.items()[3].items());
        let hidden = words.filter(|words| words.len() > 3 && words[3].text() == "(redacted)");
        hidden.map(|words| words[2].text()).collect()
    };
    assert_eq!(hidden(&mut server.client()), hidden(&mut valkey.client()));
}
