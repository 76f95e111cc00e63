//! Commands over several shards take effect at one moment, seen by real clients on real threads: nobody sees half of
//! one, and what was answered is what everybody sees from then on. The simulator looks for the same with every message
//! delayed and reordered; this holds the whole server to it.

mod common;

use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::thread;

use common::client::Client;
use common::random::Random;
use common::resp::Value;
use common::server::Server;

const SHARDS: usize = 5;
/// Rounds of each reader. Writers go on until all readers are done.
const ROUNDS: usize = 1500;

/// Runs `writers` until every one of `readers` has done its rounds; a reader that fails ends the test.
fn race(server: &Server, writers: &[fn(&mut Client, usize)], readers: &[fn(&mut Client, usize)]) {
    let done = AtomicBool::new(false);
    let results: Vec<thread::Result<()>> = thread::scope(|scope| {
        for write in writers {
            let done = &done;
            scope.spawn(move || {
                let mut client = server.client();
                (0..)
                    .take_while(|_| !done.load(Ordering::Relaxed))
                    .for_each(|round| write(&mut client, round));
            });
        }
        let reading = readers.iter().map(|read| {
            scope.spawn(move || {
                let mut client = server.client();
                (0..ROUNDS).for_each(|round| read(&mut client, round));
            })
        });
        let reading: Vec<_> = reading.collect();
        let results = reading.into_iter().map(thread::ScopedJoinHandle::join).collect();
        done.store(true, Ordering::Relaxed);
        results
    });
    assert!(results.iter().all(Result::is_ok), "a reader saw what no single-threaded server shows");
}

fn assert_all_equal(reply: &Value) {
    let values = reply.items();
    assert!(values.windows(2).all(|pair| pair[0] == pair[1]), "torn: {reply:?}");
}

#[test]
fn nobody_sees_half_of_an_mset_or_of_a_flushall() {
    let server = Server::ours(SHARDS);
    race(
        &server,
        &[
            |client, round| {
                client.check(&format!("MSET a 1-{round} b 1-{round} c 1-{round} d 1-{round}"), "+OK\r\n")
            },
            |client, round| {
                client.check(&format!("MSET d 2-{round} c 2-{round} b 2-{round} a 2-{round}"), "+OK\r\n")
            },
            |client, round| {
                if round % 20 == 0 {
                    client.check("FLUSHALL", "+OK\r\n");
                }
                client.check("PING", "+PONG\r\n");
            },
        ],
        &[
            |client, _| assert_all_equal(&client.run("MGET a b c d")),
            |client, _| assert_all_equal(&client.run("MGET d c b a")),
            |client, _| {
                let count = client.run("EXISTS a b c d").int();
                assert!(count == 0 || count == 4, "{count} of 4 keys");
            },
            |client, _| {
                let count = client.run("DBSIZE").int();
                assert!(count == 0 || count == 4, "{count} of 4 keys");
            },
        ],
    );
}

#[test]
fn a_renamed_key_is_always_in_exactly_one_place() {
    let server = Server::ours(SHARDS);
    server.client().check("SET a v", "+OK\r\n");
    let exactly_one: fn(&mut Client, usize) = |client, _| assert_eq!(client.run("EXISTS a b c").int(), 1);
    race(
        &server,
        &[|client, round| {
            let names = ["a", "b", "c"];
            let (from, to) = (names[round % 3], names[(round + 1) % 3]);
            client.check(&format!("RENAME {from} {to}"), "+OK\r\n");
        }],
        &[
            exactly_one,
            exactly_one,
            |client, _| assert_eq!(client.run("DBSIZE").int(), 1),
            |client, _| assert_eq!(client.run("KEYS *").items().len(), 1),
        ],
    );
}

#[test]
fn swapped_databases_are_seen_whole() {
    let server = Server::ours(SHARDS);
    let mut client = server.client();
    client.check("MSET a zero b zero c zero", "+OK\r\n");
    client.check("SELECT 1", "+OK\r\n");
    client.check("MSET a one b one c one", "+OK\r\n");
    race(
        &server,
        &[|client, _| client.check("SWAPDB 0 1", "+OK\r\n")],
        &[
            |client, _| assert_all_equal(&client.run("MGET a b c")),
            |client, _| {
                assert_eq!(client.run("DBSIZE").int(), 3);
            },
        ],
    );
}

#[test]
fn msetnx_has_one_winner() {
    const CONTENDERS: usize = 6;
    let server = Server::ours(SHARDS);
    for round in 0..150 {
        let wins = AtomicI64::new(0);
        thread::scope(|scope| {
            for number in 0..CONTENDERS {
                let (server, wins) = (&server, &wins);
                scope.spawn(move || {
                    let mut client = server.client();
                    let mut keys: Vec<String> = (0..4).map(|n| format!("k{round}:{n} {number}")).collect();
                    keys.rotate_left(number % 4);
                    let won = client.run(&format!("MSETNX {}", keys.join(" "))).int();
                    wins.fetch_add(won, Ordering::Relaxed);
                });
            }
        });
        assert_eq!(wins.into_inner(), 1, "round {round}");
        let line = format!("MGET k{round}:0 k{round}:1 k{round}:2 k{round}:3");
        assert_all_equal(&server.client().run(&line));
    }
}

/// Once a write has been answered, every command that starts later, on whatever connection, sees it.
#[test]
fn what_was_answered_is_seen_by_all() {
    let server = Server::ours(SHARDS);
    let answered = AtomicI64::new(0);
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut client = server.client();
            for n in 1.. {
                client.check(&format!("MSET x {n} y {n} z {n}"), "+OK\r\n");
                answered.store(n, Ordering::SeqCst);
                if done.load(Ordering::Relaxed) {
                    return;
                }
            }
        });
        let readers: Vec<_> = (0..4)
            .map(|seed| {
                let (server, answered) = (&server, &answered);
                scope.spawn(move || {
                    let mut client = server.client();
                    let mut random = Random::new(seed);
                    for _ in 0..ROUNDS {
                        let before = answered.load(Ordering::SeqCst);
                        let line = *random.pick(&["MGET x", "MGET y z", "MGET z y x", "MGET x none"]);
                        let seen = client.run(line).items()[0].clone();
                        let seen =
                            if seen == Value::Null { 0 } else { seen.text().parse().expect("a number") };
                        assert!(seen >= before, "{line} gave {seen} after {before} had been answered");
                    }
                })
            })
            .collect();
        let results: Vec<_> = readers.into_iter().map(thread::ScopedJoinHandle::join).collect();
        done.store(true, Ordering::Relaxed);
        assert!(results.iter().all(Result::is_ok), "a reader went back in time");
    });
}

#[test]
fn sort_sees_the_keys_that_it_finds_at_one_moment() {
    let server = Server::ours(SHARDS);
    let mut client = server.client();
    client.check("RPUSH l 1 2 3 4 5 6", ":6\r\n");
    client.check("MSET w_1 0 w_2 0 w_3 0 w_4 0 w_5 0 w_6 0", "+OK\r\n");
    race(
        &server,
        &[
            |client, round| {
                let pairs: Vec<String> = (1..=6).map(|key| format!("w_{key} {round}")).collect();
                client.check(&format!("MSET {}", pairs.join(" ")), "+OK\r\n");
            },
            |client, _| client.check("SORT l BY w_* GET w_* STORE stored", ":6\r\n"),
            |client, round| {
                let order = if round % 2 == 0 { "ASC" } else { "DESC" };
                client.check(&format!("SORT l {order} STORE l"), ":6\r\n");
            },
        ],
        &[
            |client, _| assert_all_equal(&client.run("SORT_RO l GET w_*")),
            |client, _| assert_all_equal(&client.run("SORT l BY w_* GET w_* LIMIT 1 4")),
            |client, _| assert_all_equal(&client.run("LRANGE stored 0 -1")),
            |client, _| {
                let order = client.run("SORT l BY w_*").items().iter().map(Value::text).collect::<Vec<_>>();
                assert_eq!(order.concat(), "123456", "all weights are equal");
            },
        ],
    );
}
