//! Publish/subscribe and keyspace notifications beside Valkey's: several connections, and after each command what every one of
//! them has received.

use super::peers::{Peers, SHARD_COUNTS};
use crate::common::client::{Client, Outcome};
use crate::common::resp::{self, Value};
use crate::common::server::Server;
use crate::common::words;

/// Connections that take part in a case; lines begin with the number of one of them.
const CLIENTS: usize = 3;

/// Looks for messages that are still to come; the shards need one or two turns each to bring them.
const ROUNDS: usize = 5_000;

/// What each connection received in one step.
type Heard = Vec<Vec<Vec<u8>>>;

struct Cast {
    clients: Vec<Option<Client>>,
    pings: usize,
}

impl Cast {
    fn new(server: &Server, proto: u8) -> Self {
        let mut clients: Vec<Client> = (0..CLIENTS).map(|_| server.client()).collect();
        clients[0].check("FLUSHALL", "+OK\r\n");
        clients[0].check("CONFIG SET notify-keyspace-events \"\"", "+OK\r\n");
        for client in &mut clients {
            client.run(&format!("HELLO {proto}"));
        }
        Self { clients: clients.into_iter().map(Some).collect(), pings: 0 }
    }

    fn send(&mut self, line: &str) {
        let (number, command) = line.split_once(' ').expect("a number and a command");
        let idx: usize = number.parse::<usize>().expect("a number") - 1;
        let Some(client) = &mut self.clients[idx] else { panic!("{line}: this connection is closed") };
        client.write(&words::encode(&words::parse(command))).expect("the server reads");
    }

    /// What has come until a PING is answered; up to [`ROUNDS`] of them, as long as less has come than `expected`.
    fn hear(&mut self, expected: Option<&Heard>) -> Heard {
        let mut heard = vec![Vec::new(); CLIENTS];
        for _ in 0..ROUNDS {
            self.pings += 1;
            let token = format!("ping-{}", self.pings);
            // The last one may be waiting: what comes meanwhile belongs to this step.
            for (idx, heard) in heard.iter_mut().enumerate().rev() {
                self.ping(idx, &token, heard);
            }
            let missing =
                |expected: &Heard| expected.iter().zip(&heard).any(|(all, some)| some.len() < all.len());
            if !expected.is_some_and(missing) {
                break;
            }
        }
        // Replies keep their order, and messages of one channel; those of several channels and patterns have none.
        for heard in &mut heard {
            heard.sort_by_key(|frame| is_message(frame).then(|| channel(frame)));
        }
        heard
    }

    /// Reads what comes until this PING is answered.
    fn ping(&mut self, idx: usize, token: &str, heard: &mut Vec<Vec<u8>>) {
        let Some(client) = &mut self.clients[idx] else { return };
        // A connection that the server has closed shows that when it is read.
        let _ = client.write(&words::encode(&words::parse(&format!("PING {token}"))));
        while self.read(idx, heard) {
            let last = heard.last().expect("a frame has been read");
            if last.windows(token.len()).any(|part| part == token.as_bytes()) {
                heard.pop();
                break;
            }
        }
    }

    /// Reads one frame; false if there are none any more.
    fn read(&mut self, idx: usize, into: &mut Vec<Vec<u8>>) -> bool {
        let Some(client) = &mut self.clients[idx] else { return false };
        match client.read() {
            Outcome::Reply(raw) => {
                into.push(raw);
                true
            }
            Outcome::Closed => {
                into.push(b"(closed)".to_vec());
                self.clients[idx] = None;
                false
            }
            Outcome::Hung => panic!("connection {} hears nothing behind {}", idx + 1, show(into)),
        }
    }
}

fn is_message(frame: &[u8]) -> bool {
    let kinds: [&[u8]; 3] = [b"\r\nmessage\r\n", b"\r\nsmessage\r\n", b"\r\npmessage\r\n"];
    kinds.iter().any(|kind| frame.windows(kind.len()).take(16).any(|part| part == *kind))
}

/// The parts of a message within which order counts: what stands before the payload, and that, too, where messages come from
/// several keys.
fn channel(frame: &[u8]) -> Vec<Value> {
    let mut parts = resp::decode_whole(frame).items();
    if !parts.iter().any(|part| part.text().starts_with("__keyevent@")) {
        parts.pop();
    }
    parts
}

fn show(frames: &[Vec<u8>]) -> String {
    frames.iter().map(|frame| frame.escape_ascii().to_string()).collect::<Vec<_>>().join("  ")
}

fn compare(table: &str) {
    let Some(peers) = Peers::start() else { return };
    let mut wrong = Vec::new();
    let lines: Vec<&str> = table.lines().filter(|line| !line.starts_with('#')).collect();
    for case in lines.split(|line| line.is_empty()).filter(|case| !case.is_empty()) {
        for proto in [2, 3] {
            let mut theirs = Cast::new(&peers.valkey, proto);
            let expected: Vec<Heard> = case
                .iter()
                .map(|line| {
                    theirs.send(line);
                    theirs.hear(None)
                })
                .collect();
            for (server, shards) in peers.ours.iter().zip(SHARD_COUNTS) {
                let mut ours = Cast::new(server, proto);
                for (line, expected) in case.iter().zip(&expected) {
                    ours.send(line);
                    let heard = ours.hear(Some(expected));
                    for (idx, (ours, theirs)) in heard.iter().zip(expected).enumerate() {
                        if ours != theirs {
                            wrong.push(format!(
                                "connection {} after {line}, RESP{proto}, {shards} shards:\n  {}\n  {}",
                                idx + 1,
                                show(ours),
                                show(theirs)
                            ));
                        }
                    }
                }
            }
        }
    }
    assert!(wrong.is_empty(), "ours, then Valkey's:\n{}", wrong.join("\n"));
}

#[test]
fn subscribers_hear_the_same() {
    compare(include_str!("tables/pubsub.txt"));
}

#[test]
fn events_of_keys_are_the_same() {
    compare(include_str!("tables/events.txt"));
}

#[test]
fn events_of_collections_are_the_same() {
    compare(include_str!("tables/events_of_types.txt"));
}
