//! Within a connection a command sees all earlier effects, and whole-database commands are ordered against everything
//! before them: pipelines over five shards, checked against a model of one keyspace.

mod common;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use common::client::{Client, Outcome};
use common::random::Random;
use common::server::Server;
use common::words;

/// Replies of the model, as RESP2 bytes.
fn int(n: usize) -> String {
    format!(":{n}\r\n")
}

fn bulk(value: Option<&String>) -> String {
    value.map_or_else(|| "$-1\r\n".to_owned(), |value| format!("${}\r\n{value}\r\n", value.len()))
}

const OK: &str = "+OK\r\n";

/// A keyspace in the test itself.
#[derive(Default)]
struct Model(BTreeMap<String, String>);

impl Model {
    /// Runs a command given as words and returns the reply a single-threaded Redis would give.
    fn run(&mut self, line: &str) -> String {
        let words: Vec<&str> = line.split(' ').collect();
        let args = &words[1..];
        match words[0] {
            "SET" => {
                self.set(args[0], args[1]);
                OK.to_owned()
            }
            "GET" => bulk(self.0.get(args[0])),
            "MGET" => {
                let values: String = args.iter().map(|key| bulk(self.0.get(*key))).collect();
                format!("*{}\r\n{values}", args.len())
            }
            "MSET" => {
                args.chunks(2).for_each(|pair| self.set(pair[0], pair[1]));
                OK.to_owned()
            }
            "MSETNX" => {
                let free = args.chunks(2).all(|pair| !self.0.contains_key(pair[0]));
                if free {
                    args.chunks(2).for_each(|pair| self.set(pair[0], pair[1]));
                }
                int(usize::from(free))
            }
            "DEL" => int(args.iter().filter(|key| self.0.remove(**key).is_some()).count()),
            "EXISTS" => int(args.iter().filter(|key| self.0.contains_key(**key)).count()),
            "APPEND" => {
                let value = self.0.entry(args[0].to_owned()).or_default();
                value.push_str(args[1]);
                int(value.len())
            }
            "COPY" if args[0] == args[1] => "-ERR source and destination objects are the same\r\n".to_owned(),
            "COPY" => {
                let copied = !self.0.contains_key(args[1]) && self.0.contains_key(args[0]);
                if copied {
                    let value = self.0[args[0]].clone();
                    self.set(args[1], &value);
                }
                int(usize::from(copied))
            }
            "RENAME" => match self.0.remove(args[0]) {
                Some(value) => {
                    self.set(args[1], &value);
                    OK.to_owned()
                }
                None => "-ERR no such key\r\n".to_owned(),
            },
            "DBSIZE" => int(self.0.len()),
            "FLUSHALL" => {
                self.0.clear();
                OK.to_owned()
            }
            other => panic!("the model has no {other}"),
        }
    }

    fn set(&mut self, key: &str, value: &str) {
        self.0.insert(key.to_owned(), value.to_owned());
    }
}

/// Sends `lines` as one write and compares every reply with the model's.
fn check_pipeline(client: &mut Client, model: &mut Model, lines: &[String]) {
    let commands: Vec<words::Command> = lines.iter().map(|line| words::parse(line)).collect();
    client.write(&words::encode_all(&commands)).expect("a pipeline");
    for (at, line) in lines.iter().enumerate() {
        let expected = model.run(line);
        let Outcome::Reply(raw) = client.read() else { panic!("no reply to {line}") };
        let raw = String::from_utf8_lossy(&raw).into_owned();
        assert_eq!(raw, expected, "{line}, after:\n{}", lines[..at].join("\n"));
    }
}

fn random_line(random: &mut Random, keys: &str, whole_database: bool) -> String {
    let number = random.next() % 10_000;
    let mut key = || format!("{keys}:{}", random.below(12));
    let (a, b, c) = (key(), key(), key());
    match random.below(if whole_database { 16 } else { 13 }) {
        0 | 1 => format!("SET {a} {number}"),
        2 => format!("GET {a}"),
        3 | 4 => format!("MGET {a} {b} {c} {a}"),
        5 | 6 => format!("MSET {a} {number} {b} x{number} {c} y{number}"),
        7 => format!("DEL {a} {b}"),
        8 => format!("EXISTS {a} {b} {a}"),
        9 => format!("APPEND {a} {number}"),
        10 => format!("RENAME {a} {b}"),
        11 => format!("COPY {a} {b}"),
        12 => format!("MSETNX {a} 1 {b} 2"),
        13 | 14 => "DBSIZE".to_owned(),
        _ => "FLUSHALL".to_owned(),
    }
}

#[test]
fn the_pipeline_of_the_contract_with_random_keys() {
    const REPEATS: u64 = 200;
    let server = Server::ours(5);
    let mut client = server.client();
    let mut model = Model::default();
    let mut random = Random::new(1);
    for _ in 0..REPEATS {
        let (a, b) = (format!("a{}", random.next()), format!("b{}", random.next()));
        let lines = [
            format!("SET {a} 1"),
            format!("SET {b} 2"),
            format!("MGET {a} {b} none"),
            format!("DEL {a}"),
            "DBSIZE".to_owned(),
            format!("GET {a}"),
            format!("SET {a} 3"),
            "FLUSHALL".to_owned(),
            format!("GET {b}"),
            format!("GET {a}"),
            "DBSIZE".to_owned(),
        ];
        check_pipeline(&mut client, &mut model, &lines);
    }
}

#[test]
fn random_pipelines_match_the_model() {
    const PIPELINES: u64 = 120;
    let server = Server::ours(5);
    let mut client = server.client();
    let mut model = Model::default();
    for seed in 0..PIPELINES {
        let mut random = Random::new(seed);
        let count = 1 + random.below(120);
        let lines: Vec<String> = (0..count).map(|_| random_line(&mut random, "key", true)).collect();
        check_pipeline(&mut client, &mut model, &lines);
    }
}

/// Each connection has keys of its own while others work on theirs and one flushes and swaps other databases: nobody
/// may notice anybody.
#[test]
fn connections_side_by_side_each_match_their_model() {
    const CONNECTIONS: u64 = 8;
    const PIPELINES: u64 = 30;
    let server = Server::ours(5);
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| disturb(&server, &done));
        let workers: Vec<_> = (0..CONNECTIONS)
            .map(|number| {
                scope.spawn({
                    let server = &server;
                    move || work(server, number, PIPELINES)
                })
            })
            .collect();
        let results: Vec<_> = workers.into_iter().map(thread::ScopedJoinHandle::join).collect();
        done.store(true, Ordering::Relaxed);
        assert!(results.iter().all(Result::is_ok), "a connection saw what it should not");
    });
}

fn work(server: &Server, number: u64, pipelines: u64) {
    let mut client = server.client();
    let mut model = Model::default();
    let mut random = Random::new(1000 + number);
    let keys = format!("conn{number}");
    for _ in 0..pipelines {
        let count = 1 + random.below(40);
        let lines: Vec<String> = (0..count).map(|_| random_line(&mut random, &keys, false)).collect();
        check_pipeline(&mut client, &mut model, &lines);
    }
}

fn disturb(server: &Server, done: &AtomicBool) {
    let mut client = server.client();
    client.check("SELECT 9", OK);
    while !done.load(Ordering::Relaxed) {
        client.check("MSET a 1 b 2 c 3 d 4 e 5", OK);
        client.check("SWAPDB 8 9", OK);
        client.check("FLUSHDB", OK);
    }
}
