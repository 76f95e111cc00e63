//! Commands that wait for keys, on sockets of servers with 1, 2 and 5 shards: order, time, ends of all kinds, and many at once.

mod common;

use std::io::Write;
use std::net::{Shutdown, TcpStream};
use std::time::{Duration, Instant};

use common::client::{Client, Outcome};
use common::resp::Value;
use common::server::{self, Server};
use common::words;

const SHARD_COUNTS: [usize; 3] = [1, 2, 5];
/// How long a command may take to begin to wait.
const BLOCKED_MS_MAX: u64 = 10_000;
/// How long the end of a connection may go unnoticed; one that is owed replies is given up after 10 s.
const ENDED_MS_MAX: u64 = 5000;
/// A reply whose time has come may be this late where many tests share the machine.
const LATE_MS_MAX: u128 = 5000;

fn send(client: &mut Client, line: &str) {
    client.write(&words::encode(&words::parse(line))).expect("the server reads");
}

/// Waits until so many clients wait.
fn await_blocked(admin: &mut Client, count: usize) {
    await_blocked_for(admin, count, BLOCKED_MS_MAX);
}

fn await_blocked_for(admin: &mut Client, count: usize, ms_max: u64) {
    let wanted = format!("blocked_clients:{count}");
    let there = server::poll(ms_max, || {
        admin.run("INFO clients").text().lines().any(|line| line == wanted).then_some(())
    });
    assert!(there.is_some(), "there are not {count} blocked clients: {}", admin.run("INFO clients").text());
}

/// So many connections that wait by this command, one after the other.
fn waiters(server: &Server, admin: &mut Client, count: usize, line: &str) -> Vec<Client> {
    (1..=count)
        .map(|number| {
            let mut client = server.client();
            send(&mut client, line);
            await_blocked(admin, number);
            client
        })
        .collect()
}

fn texts(outcome: &Outcome) -> Vec<String> {
    let value = outcome.value().unwrap_or_else(|| panic!("{outcome:?}"));
    assert!(matches!(value, Value::Array(_)), "{value:?}");
    value.items().iter().map(Value::text).collect()
}

#[test]
fn those_who_wait_are_served_in_order_of_arrival_and_once() {
    for shards in SHARD_COUNTS {
        let server = Server::ours(shards);
        let mut admin = server.client();
        for line in ["BLPOP k 0", "BLPOP k l m n o 0", "BRPOP o n m l k 0"] {
            let mut waiting = waiters(&server, &mut admin, 12, line);
            for (number, client) in waiting.iter_mut().enumerate() {
                admin.check(&format!("RPUSH k e{number}"), ":1\r\n");
                assert_eq!(
                    texts(&client.read()),
                    ["k".to_owned(), format!("e{number}")],
                    "{line}, {shards} shards"
                );
            }
            admin.check("EXISTS k l m n o", ":0\r\n");
            waiting.iter_mut().for_each(|client| client.check("PING", "+PONG\r\n"));
        }
    }
}

#[test]
fn nobody_gives_up_before_the_time_is_up() {
    for shards in SHARD_COUNTS {
        let server = Server::ours(shards);
        let mut admin = server.client();
        for (line, ms) in [
            ("BLPOP a 0.001", 1),
            ("BLPOP a b c d e 0.25", 250),
            ("BRPOPLPUSH a b .1", 100),
            ("BLMPOP 0.3 2 a b LEFT", 300),
            ("BLMOVE a b LEFT LEFT 1", 1000),
            ("BZPOPMIN a b c 0.15", 150),
        ] {
            let mut client = server.client();
            let began = Instant::now();
            assert_eq!(client.run(line), Value::Null, "{line}");
            let waited = began.elapsed().as_millis();
            // The server's clock has milliseconds, which may begin anywhere in ours.
            assert!(waited + 1 >= ms && waited < ms + LATE_MS_MAX, "{line}: {waited} ms, {shards} shards");
        }
        let mut for_ever = waiters(&server, &mut admin, 1, "BLPOP a b 0");
        let mut nearly = server.client();
        send(&mut nearly, "BLPOP a b 0.4");
        assert_eq!(nearly.read().value(), Some(Value::Null));
        await_blocked(&mut admin, 1);
        admin.check("RPUSH b x", ":1\r\n");
        assert_eq!(texts(&for_ever[0].read()), ["b", "x"]);
    }
}

#[test]
fn a_connection_that_ends_while_it_waits_takes_nothing_with_it() {
    for shards in SHARD_COUNTS {
        let server = Server::ours(shards);
        let mut admin = server.client();
        for line in ["BLPOP k 0", "BLPOP j k l m 0", "BLMOVE k m LEFT LEFT 0", "BLMPOP 0 3 m l k LEFT"] {
            let waiting = waiters(&server, &mut admin, 6, line);
            drop(waiting);
            await_blocked(&mut admin, 0);
            admin.check("RPUSH k x", ":1\r\n");
            admin.check("LRANGE k 0 -1", "*1\r\n$1\r\nx\r\n");
            admin.check("DEL k", ":1\r\n");
            admin.check("EXISTS j k l m", ":0\r\n");
        }
        // Ends and pushes race: what was pushed is there, or has reached somebody, or was on its way to one who has just gone.
        let (mut pushed, mut received, mut raced) = (0, 0, 0);
        for round in 0..40 {
            let mut gone = server.client();
            send(&mut gone, "BLPOP k l m 0");
            await_blocked(&mut admin, 1);
            if round % 2 == 0 {
                drop(gone);
                raced += 1;
            } else {
                admin.check(&format!("RPUSH l {round}"), ":1\r\n");
                pushed += 1;
                assert_eq!(texts(&gone.read())[0], "l");
                received += 1;
            }
            admin.check(&format!("RPUSH k {round}"), ":1\r\n");
            pushed += 1;
            await_blocked(&mut admin, 0);
            received += usize::from(admin.run("LPOP k") != Value::Null);
        }
        assert!(
            received <= pushed && received + raced >= pushed,
            "{pushed} pushed, {received} received, {shards} shards"
        );
    }
}

#[test]
fn a_connection_that_ends_leaves_what_it_sent_behind_its_wait() {
    // Little, which is read while the client waits, and so much that reading stops.
    let behind = ["SET w 1\r\n".to_owned(), "SET w 1\r\n".repeat(7_500)];
    for shards in SHARD_COUNTS {
        let server = Server::ours(shards);
        let mut admin = server.client();
        for line in ["BLPOP k 0", "BLPOP k l m n o 0", "GET k\r\nWAIT 7 0"] {
            for (behind, half) in behind.iter().flat_map(|behind| [(behind, false), (behind, true)]) {
                let mut gone = TcpStream::connect(("127.0.0.1", server.port)).expect("it listens");
                write!(gone, "{line}\r\n").expect("the server reads");
                await_blocked(&mut admin, 1);
                write!(gone, "{behind}").expect("there is room");
                gone.shutdown(if half { Shutdown::Write } else { Shutdown::Both }).expect("it is open");
                await_blocked_for(&mut admin, 0, ENDED_MS_MAX);
                admin.check("RPUSH k e", ":1\r\n");
                admin.check("GET w", "$-1\r\n");
                admin.check("DEL k", ":1\r\n");
            }
        }
    }
}

#[test]
fn those_who_are_killed_or_unblocked_leave_the_others_their_turn() {
    for shards in SHARD_COUNTS {
        let server = Server::ours(shards);
        let mut admin = server.client();
        let mut waiting = waiters(&server, &mut admin, 5, "BLPOP j k l 0");
        let list = admin.run("CLIENT LIST").text();
        let blocked: Vec<&str> = list.lines().filter(|line| line.contains("cmd=blpop")).collect();
        assert_eq!(blocked.len(), 5, "{list}");
        let mut ids: Vec<(u64, u64)> = blocked
            .iter()
            .map(|line| {
                let field = |name: &str| {
                    let word = line.split(' ').find_map(|word| word.strip_prefix(name)).expect("a field");
                    word.rsplit(':').next().expect("a number").parse().expect("a number")
                };
                (field("addr="), field("id="))
            })
            .collect();
        let id_of = |client: &mut Client| {
            let port = u64::from(client.stream().local_addr().expect("an address").port());
            let place = ids.iter().position(|(other, _)| *other == port).expect("it is listed");
            ids.swap_remove(place).1
        };
        let doomed: Vec<u64> = waiting[..3].iter_mut().map(id_of).collect();
        assert_eq!(admin.run(&format!("CLIENT KILL ID {}", doomed[0])), Value::Int(1));
        assert_eq!(waiting[0].read(), Outcome::Closed);
        assert_eq!(admin.run(&format!("CLIENT UNBLOCK {} ERROR", doomed[1])), Value::Int(1));
        assert_eq!(
            waiting[1].read(),
            Outcome::Reply(b"-UNBLOCKED client unblocked via CLIENT UNBLOCK\r\n".to_vec())
        );
        assert_eq!(admin.run(&format!("CLIENT UNBLOCK {} TIMEOUT", doomed[2])), Value::Int(1));
        assert_eq!(waiting[2].read().value(), Some(Value::Null));
        assert_eq!(admin.run(&format!("CLIENT UNBLOCK {}", doomed[1])), Value::Int(0));
        await_blocked(&mut admin, 2);
        admin.check("RPUSH l x y z", ":3\r\n");
        assert_eq!(texts(&waiting[3].read()), ["l", "x"]);
        assert_eq!(texts(&waiting[4].read()), ["l", "y"]);
        admin.check("LRANGE l 0 -1", "*1\r\n$1\r\nz\r\n");
        waiting[1].check("PING", "+PONG\r\n");
    }
}

#[test]
fn a_pause_delays_pushes_and_new_waits() {
    for shards in SHARD_COUNTS {
        let server = Server::ours(shards);
        let (mut admin, mut pusher, mut late) = (server.client(), server.client(), server.client());
        let mut waiting = waiters(&server, &mut admin, 1, "BLPOP j k 0");
        let mut short = server.client();
        send(&mut short, "BLPOP q 0.2");
        await_blocked(&mut admin, 2);
        admin.check("CLIENT PAUSE 60000 WRITE", "+OK\r\n");
        send(&mut pusher, "RPUSH k x y");
        send(&mut late, "BRPOP j k 0");
        // A time that is up is up.
        assert_eq!(short.read().value(), Some(Value::Null));
        await_blocked(&mut admin, 3);
        admin.check("EXISTS k", ":0\r\n");
        admin.check("CLIENT UNPAUSE", "+OK\r\n");
        assert_eq!(pusher.read(), Outcome::Reply(b":2\r\n".to_vec()));
        assert_eq!(texts(&waiting[0].read()), ["k", "x"]);
        assert_eq!(texts(&late.read()), ["k", "y"]);
    }
}

#[test]
fn moves_chain_from_shard_to_shard() {
    const LINKS: usize = 20;
    for shards in SHARD_COUNTS {
        let server = Server::ours(shards);
        let mut admin = server.client();
        let mut links: Vec<Client> = Vec::new();
        for number in 0..LINKS {
            let mut client = server.client();
            send(&mut client, &format!("BLMOVE link:{number} link:{} LEFT RIGHT 0", number + 1));
            links.push(client);
            await_blocked(&mut admin, links.len());
        }
        let mut last = server.client();
        send(&mut last, &format!("BLPOP other link:{LINKS} 0"));
        await_blocked(&mut admin, LINKS + 1);
        admin.check("RPUSH link:0 x", ":1\r\n");
        for link in &mut links {
            assert_eq!(link.read(), Outcome::Reply(b"$1\r\nx\r\n".to_vec()), "{shards} shards");
        }
        assert_eq!(texts(&last.read())[1], "x");
        admin.check("DBSIZE", ":0\r\n");
    }
}

/// Keys enough for source and destination to be on one shard and on different ones; the destination missing, or of another type
/// when the client has begun to wait.
#[test]
fn what_is_stored_serves_wherever_its_source_is() {
    const KEYS: usize = 6;
    let stores = [
        ("BLPOP d{n} e{n} 0", "SORT s DESC STORE d{n}", "3"),
        ("BRPOP e{n} d{n} 0", "SORT s BY w* GET # STORE d{n}", "1"),
        ("BZPOPMAX d{n} e{n} 0", "ZUNIONSTORE d{n} 2 s z", "y"),
        ("BZPOPMIN d{n} 0", "ZRANGESTORE d{n} z 1 1", "y"),
        ("BZPOPMIN e{n} d{n} 0", "GEORADIUS z 0 0 20000 km STORE d{n}", "x"),
    ];
    for shards in SHARD_COUNTS {
        let server = Server::ours(shards);
        let (mut admin, mut client) = (server.client(), server.client());
        admin.check("SADD s 1 2 3", ":3\r\n");
        admin.check("MSET w1 30 w2 20 w3 10", "+OK\r\n");
        admin.check("ZADD z 5 x 6 y", ":2\r\n");
        for (waits, stores, expected) in stores {
            for n in 0..2 * KEYS {
                let [waits, stores] = [waits, stores].map(|line| line.replace("{n}", &(n / 2).to_string()));
                send(&mut client, &waits);
                await_blocked(&mut admin, 1);
                if n % 2 == 1 {
                    admin.check(&format!("SET d{} x", n / 2), "+OK\r\n");
                }
                assert!(admin.run(&stores).int() > 0, "{stores}");
                let served = texts(&client.read());
                assert_eq!(
                    served[..2],
                    [format!("d{}", n / 2), expected.to_owned()],
                    "{stores}, {shards} shards"
                );
                admin.run(&format!("DEL d{}", n / 2));
            }
        }
    }
}

/// What a client receives by a command until that is answered with nothing.
fn consume(mut client: Client, line: &str) -> Vec<String> {
    let mut received = Vec::new();
    loop {
        match &client.run(line) {
            Value::Array(items) => received.push(match &items[1] {
                Value::Array(popped) => popped[0].text(),
                element => element.text(),
            }),
            // A move: somebody will pop it.
            Value::Bulk(_) => {}
            _ => return received,
        }
    }
}

/// Producers and consumers on all shards: what was pushed comes out once.
#[test]
fn what_is_pushed_by_many_is_received_once_by_many() {
    const CONSUMERS: usize = 8;
    const ELEMENTS: usize = 300;
    for shards in SHARD_COUNTS {
        let server = Server::ours(shards);
        let commands = [
            "BLPOP a b c d e 0",
            "BRPOP e d c b a 0",
            "BLMPOP 0 5 c a e b d LEFT",
            "BLPOP a 0",
            "BLPOP e a 0",
            "BLMOVE b a LEFT RIGHT 0",
            "BLMOVE d c LEFT RIGHT 0",
            "BRPOPLPUSH e b 0",
        ];
        let received: Vec<String> = std::thread::scope(|scope| {
            let consumer = |line| {
                let client = server.client();
                scope.spawn(move || consume(client, line))
            };
            let consumers: Vec<_> = commands.map(consumer).into();
            assert_eq!(consumers.len(), CONSUMERS);
            for producer in 0..3 {
                let mut client = server.client();
                scope.spawn(move || {
                    for number in 0..ELEMENTS {
                        let key = ["a", "b", "c", "d", "e"][(number * 7 + producer) % 5];
                        let push = format!("RPUSH {key} {producer}-{number}");
                        if number % 5 == 0 {
                            let other = ["b", "d", "a", "e", "c"][number / 5 % 5];
                            client.check("MULTI", "+OK\r\n");
                            client.run(&push);
                            client.run(&format!("LPUSH {other} {producer}-{number}-too"));
                            assert!(!client.run("EXEC").is_error());
                        } else {
                            assert!(!client.run(&push).is_error());
                        }
                    }
                });
            }
            let mut admin = server.client();
            let expected = 3 * (ELEMENTS + ELEMENTS / 5);
            // All is received when nothing is left; then those who wait are told to go.
            let done = server::poll(60_000, || {
                let empty = admin.run("EXISTS a b c d e") == Value::Int(0);
                let waits =
                    admin.run("INFO clients").text().contains(&format!("blocked_clients:{CONSUMERS}\r"));
                (empty && waits && producers_done(&mut admin)).then_some(())
            });
            assert!(done.is_some(), "elements are left: {:?}", admin.run("EXISTS a b c d e"));
            let list = admin.run("CLIENT LIST FLAGS b").text();
            for line in list.lines() {
                let id = line.split(' ').find_map(|word| word.strip_prefix("id=")).expect("an id");
                admin.run(&format!("CLIENT UNBLOCK {id}"));
            }
            let all: Vec<String> =
                consumers.into_iter().flat_map(|consumer| consumer.join().expect("a consumer")).collect();
            assert_eq!(all.len(), expected, "{shards} shards");
            all
        });
        let mut sorted = received.clone();
        sorted.sort();
        sorted.dedup();
        assert_eq!(sorted.len(), received.len(), "an element came twice, {shards} shards");
    }
}

/// Whether nobody but the consumers and this client is connected.
fn producers_done(admin: &mut Client) -> bool {
    let list = admin.run("CLIENT LIST").text();
    !list
        .lines()
        .any(|line| ["cmd=rpush", "cmd=exec", "cmd=lpush", "cmd=multi"].iter().any(|cmd| line.contains(cmd)))
}

#[test]
fn thousands_on_one_key_are_served_in_bounded_turns() {
    const CLIENTS: usize = 1200;
    for shards in [1, 2] {
        let server = Server::ours(shards);
        let (mut admin, mut other) = (server.client(), server.client());
        let mut waiting: Vec<Client> = (0..CLIENTS).map(|_| server.client()).collect();
        for client in &mut waiting {
            send(client, "BLPOP k l 0");
        }
        await_blocked(&mut admin, CLIENTS);
        let elements: Vec<String> = (0..CLIENTS + 5).map(|number| format!("e{number}")).collect();
        send(&mut admin, &format!("RPUSH k {}", elements.join(" ")));
        send(&mut other, "LLEN k");
        assert_eq!(admin.read(), Outcome::Reply(format!(":{}\r\n", CLIENTS + 5).into_bytes()));
        // Whoever asks meanwhile is answered before the push or when all have been served.
        let seen = other.read().value().expect("a reply").int();
        assert!(seen == 0 || seen == 5, "{seen}");
        let mut received: Vec<String> =
            waiting.iter_mut().map(|client| texts(&client.read())[1].clone()).collect();
        received.sort_by_key(|element| element[1..].parse::<usize>().expect("a number"));
        assert_eq!(received, elements[..CLIENTS]);
        admin.check("LLEN k", ":5\r\n");
    }
}

#[test]
fn a_server_ends_although_clients_wait() {
    for shards in SHARD_COUNTS {
        for how in ["TERM", "SHUTDOWN"] {
            let mut server = Server::ours(shards);
            let mut admin = server.client();
            let mut waiting = waiters(&server, &mut admin, 3, "BLPOP a b c d 0");
            let began = Instant::now();
            if how == "TERM" {
                server.signal("TERM");
            } else {
                send(&mut admin, "SHUTDOWN NOSAVE");
            }
            assert!(server.await_exit(20_000).is_some(), "{how}, {shards} shards");
            assert!(began.elapsed() < Duration::from_secs(20));
            for client in &mut waiting {
                assert_eq!(client.read(), Outcome::Closed);
            }
        }
    }
}
