//! Commands that wait, beside Valkey's: several connections, and what each of them receives, in which order.
//!
//! A line of the table begins with the number of a connection. `1 ~ BLPOP a 0` sends a command and waits until the server counts one
//! blocked client more; `1 <` reads a reply of that client; every other command is sent and answered. `{id 1}` stands for a connection's
//! number as CLIENT ID says it.

use super::peers::{Peers, SHARD_COUNTS};
use crate::common::client::{Client, Outcome};
use crate::common::server::{self, Server};
use crate::common::words;

/// Connections that take part in a case.
const CLIENTS: usize = 5;
/// How long a command may take to begin to wait.
const BLOCKED_MS_MAX: u64 = 10_000;

struct Cast {
    admin: Client,
    clients: Vec<Client>,
    ids: Vec<String>,
    blocked: i64,
}

impl Cast {
    fn new(server: &Server, proto: u8) -> Self {
        let mut admin = server.client();
        admin.check("FLUSHALL", "+OK\r\n");
        let mut clients: Vec<Client> = (0..CLIENTS).map(|_| server.client()).collect();
        for client in &mut clients {
            client.run(&format!("HELLO {proto}"));
        }
        let ids = clients.iter_mut().map(|client| client.run("CLIENT ID").int().to_string()).collect();
        let mut cast = Self { admin, clients, ids, blocked: 0 };
        // Clients of the case before may just be leaving.
        cast.await_blocked("the beginning");
        cast
    }

    fn await_blocked(&mut self, line: &str) {
        let wanted = format!("blocked_clients:{}", self.blocked);
        let admin = &mut self.admin;
        let there = server::poll(BLOCKED_MS_MAX, || {
            admin.run("INFO clients").text().lines().any(|line| line == wanted).then_some(())
        });
        assert!(there.is_some(), "after {line} there are not {} blocked clients", self.blocked);
    }

    /// Runs a line; what it has to show for it.
    fn run(&mut self, line: &str) -> Option<String> {
        let (number, command) = line.split_once(' ').expect("a number and a command");
        let idx: usize = number.parse::<usize>().expect("a number") - 1;
        if command == "<" {
            self.blocked -= 1;
            return Some(show(&self.clients[idx].read()));
        }
        let (waits, mut command) = match command.strip_prefix("~ ") {
            Some(command) => (true, command.to_owned()),
            None => (false, command.to_owned()),
        };
        for (idx, id) in self.ids.iter().enumerate() {
            command = command.replace(&format!("{{id {}}}", idx + 1), id);
        }
        let command = words::parse(&command);
        if !waits {
            return Some(show(&self.clients[idx].call(&command)));
        }
        self.clients[idx].write(&words::encode(&command)).expect("the server reads");
        self.blocked += 1;
        self.await_blocked(line);
        None
    }
}

fn show(outcome: &Outcome) -> String {
    format!("{outcome:?}")
}

#[test]
fn who_waits_is_served_the_same() {
    let Some(peers) = Peers::start() else { return };
    let table = include_str!("tables/blocking.txt");
    let lines: Vec<&str> = table.lines().filter(|line| !line.starts_with('#')).collect();
    let mut wrong = Vec::new();
    for case in lines.split(|line| line.is_empty()).filter(|case| !case.is_empty()) {
        for proto in [2, 3] {
            let mut theirs = Cast::new(&peers.valkey, proto);
            let expected: Vec<Option<String>> = case.iter().map(|line| theirs.run(line)).collect();
            drop(theirs);
            for (server, shards) in peers.ours.iter().zip(SHARD_COUNTS) {
                let mut ours = Cast::new(server, proto);
                for (line, expected) in case.iter().zip(&expected) {
                    let heard = ours.run(line);
                    if heard != *expected {
                        wrong.push(format!(
                            "{line}, RESP{proto}, {shards} shards, in {}:\n  {heard:?}\n  {expected:?}",
                            case[0]
                        ));
                    }
                }
            }
        }
    }
    assert!(wrong.is_empty(), "ours, then Valkey's:\n{}", wrong.join("\n"));
}
