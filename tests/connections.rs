//! CLIENT KILL, PAUSE and REPLY, and MONITOR, with several connections at a time on 1, 2 and 5 shards.

mod common;

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::{Duration, Instant};

use common::client::{Client, Outcome};
use common::server::{self, Server};
use common::words;

const SHARD_COUNTS: [usize; 3] = [1, 2, 5];

fn pipeline(client: &mut Client, lines: &[&str]) {
    let commands: Vec<Vec<Vec<u8>>> = lines.iter().map(|line| words::parse(line)).collect();
    client.write(&words::encode_all(&commands)).expect("the server reads");
}

/// A field of CLIENT INFO.
fn field(client: &mut Client, name: &str) -> String {
    let info = client.run("CLIENT INFO").text();
    let value = info.split_whitespace().find_map(|word| word.strip_prefix(name)?.strip_prefix('='));
    value.unwrap_or_else(|| panic!("no {name} in {info}")).to_owned()
}

#[test]
fn kill_closes_the_clients_that_every_filter_means() {
    const FILTERS: [&str; 12] = [
        "ADDR",
        "ID",
        "NAME doomed",
        "LIB-NAME lib",
        "LIB-VER 9",
        "DB 5",
        "FLAGS T",
        "NOT-DB 0",
        "NOT-FLAGS N",
        "CAPA r",
        "NOT-LIB-NAME other",
        "NAME doomed TYPE normal USER default IP 127.0.0.1 NOT-ADDR 1.2.3.4:5",
    ];
    for shards in SHARD_COUNTS {
        let server = Server::ours(shards);
        let mut killer = server.client();
        killer.run("CLIENT SETINFO LIB-NAME other");
        for filter in FILTERS {
            let mut doomed = server.client();
            for line in [
                "CLIENT SETNAME doomed",
                "CLIENT SETINFO LIB-NAME lib",
                "CLIENT SETINFO LIB-VER 9",
                "SELECT 5",
                "CLIENT NO-TOUCH on",
                "CLIENT CAPA redirect",
            ] {
                doomed.check(line, "+OK\r\n");
            }
            let filter = match filter {
                "ADDR" | "ID" => format!("{filter} {}", field(&mut doomed, &filter.to_lowercase())),
                other => other.to_owned(),
            };
            // The connection that waited for the server to start may still be there, and is meant by some filters.
            let killed = killer.run(&format!("CLIENT KILL {filter}")).int();
            assert!((1..=2).contains(&killed), "{filter}: {killed}, {shards} shards");
            assert_eq!(doomed.read(), Outcome::Closed, "{filter}, {shards} shards");
            assert_eq!(killer.run(&format!("CLIENT KILL {filter}")).int(), 0, "{filter} again");
        }
        let mut doomed = server.client();
        let addr = field(&mut doomed, "addr");
        killer.check(&format!("CLIENT KILL {addr}"), "+OK\r\n");
        assert_eq!(doomed.read(), Outcome::Closed);
        let addr = field(&mut killer, "addr");
        pipeline(&mut killer, &["SET a 1", &format!("CLIENT KILL {addr}"), "PING"]);
        assert_eq!(killer.read_to_close(), Some(b"+OK\r\n+OK\r\n".to_vec()));
        server.client().check("GET a", "$1\r\n1\r\n");
    }
}

#[test]
fn an_ipv6_address_is_written_without_its_brackets() {
    let server = Server::ours_with(2, &["--bind", "127.0.0.1 -::1"]);
    let Ok(mut other) = TcpStream::connect(("::1", server.port)) else { return };
    other.write_all(b"CLIENT SETNAME six\r\n").expect("the server reads");
    other.read_exact(&mut [0; 5]).expect("a reply");
    let mut client = server.client();
    let mut named = |filter: &str| client.run(&format!("CLIENT LIST {filter}")).text().contains("name=six");
    assert!(named("IP ::1") && named("NOT-IP 127.0.0.1") && !named("IP [::1]") && !named("NOT-IP ::1"));
}

#[test]
fn clients_killed_in_the_middle_of_pipelines_leave_the_server_whole() {
    let server = Server::ours(5);
    let mut killer = server.client();
    for round in 0..30 {
        let mut doomed: Vec<Client> = (0..8).map(|_| server.client()).collect();
        for client in &mut doomed {
            client.check("CLIENT SETNAME doomed", "+OK\r\n");
            let lines: Vec<String> = (0..200)
                .map(|n| format!("MSET a{n} {round} b{n} {round}\nGET a{n}\nMGET a{n} b{n}"))
                .collect();
            let lines: Vec<&str> = lines.iter().flat_map(|lines| lines.lines()).collect();
            pipeline(client, &lines);
        }
        assert_eq!(killer.run("CLIENT KILL NAME doomed").int(), 8);
        doomed.iter_mut().for_each(|client| assert!(client.read_to_close().is_some(), "still open"));
        for n in (0..200).step_by(20) {
            let both = killer.run(&format!("MGET a{n} b{n}")).items();
            assert_eq!(both[0], both[1], "a command was done by half");
        }
    }
    let left = server::poll(5000, || {
        let list = killer.run("CLIENT LIST NAME doomed").text();
        list.is_empty().then_some(())
    });
    assert!(left.is_some(), "killed clients are still listed");
}

#[test]
fn a_pause_holds_writes_on_all_shards_and_keeps_their_order() {
    for shards in SHARD_COUNTS {
        let server = Server::ours(shards);
        let (mut admin, mut reader) = (server.client(), server.client());
        let mut writers: Vec<Client> = (0..6).map(|_| server.client()).collect();
        writers.iter_mut().for_each(|writer| writer.check("PING", "+PONG\r\n"));
        admin.check("CLIENT PAUSE 60000 WRITE", "+OK\r\n");
        for (number, writer) in writers.iter_mut().enumerate() {
            let key = format!("key:{number}");
            pipeline(
                writer,
                &[
                    &format!("GET {key}"),
                    &format!("APPEND {key} x"),
                    &format!("GET {key}"),
                    &format!("MSET {key} y other:{number} z"),
                    &format!("MGET {key} other:{number}"),
                ],
            );
            assert_eq!(writer.read(), Outcome::Reply(b"$-1\r\n".to_vec()), "a read before the first write");
        }
        reader.check("MGET key:0 key:1 key:2 other:0", "*4\r\n$-1\r\n$-1\r\n$-1\r\n$-1\r\n");
        reader.check("DBSIZE", ":0\r\n");
        let held = reader.run("CLIENT LIST FLAGS b").text();
        assert_eq!(held.lines().count(), writers.len(), "{held}");
        admin.check("CLIENT UNPAUSE", "+OK\r\n");
        for writer in &mut writers {
            for reply in [":1\r\n", "$1\r\nx\r\n", "+OK\r\n", "*2\r\n$1\r\ny\r\n$1\r\nz\r\n"] {
                assert_eq!(writer.read(), Outcome::Reply(reply.into()), "{shards} shards");
            }
        }
        reader.check("DBSIZE", &format!(":{}\r\n", 2 * writers.len()));
    }
}

#[test]
fn who_goes_during_a_pause_has_left_nothing_to_do() {
    for shards in SHARD_COUNTS {
        let server = Server::ours(shards);
        let mut admin = server.client();
        admin.check("CLIENT PAUSE 60000 WRITE", "+OK\r\n");
        for half in [false, true] {
            for requests in [
                "SET w1 1\r\nSET w2 1\r\n",
                "GET w1\r\nMSET w1 1 w2 1\r\nPING\r\n",
                "PUBLISH x y\r\nSET w1 1\r\n",
            ] {
                let mut gone = TcpStream::connect(("127.0.0.1", server.port)).expect("it listens");
                gone.write_all(requests.as_bytes()).expect("the server reads");
                let held = server::poll(5000, || {
                    (admin.run("CLIENT LIST FLAGS b").text().lines().count() == 1).then_some(())
                });
                assert!(held.is_some(), "{requests:?} is not held on {shards} shards");
                gone.shutdown(if half { Shutdown::Write } else { Shutdown::Both }).expect("it is open");
                let left = server::poll(5000, || {
                    admin.run("INFO clients").text().contains("connected_clients:1\r\n").then_some(())
                });
                assert!(left.is_some(), "{requests:?} is still there on {shards} shards");
            }
        }
        admin.check("CLIENT UNPAUSE", "+OK\r\n");
        admin.check("MGET w1 w2", "*2\r\n$-1\r\n$-1\r\n");
    }
}

#[test]
fn a_pause_of_everything_ends_by_itself() {
    const PAUSE: Duration = Duration::from_millis(300);
    for shards in SHARD_COUNTS {
        let server = Server::ours(shards);
        let mut clients: Vec<Client> = (0..6).map(|_| server.client()).collect();
        clients.iter_mut().for_each(|client| client.check("PING", "+PONG\r\n"));
        let began = Instant::now();
        clients[0].check(&format!("CLIENT PAUSE {}", PAUSE.as_millis()), "+OK\r\n");
        for client in &mut clients {
            pipeline(client, &["PING", "CLIENT UNPAUSE"]);
        }
        for client in &mut clients {
            assert_eq!(client.read(), Outcome::Reply(b"+PONG\r\n".to_vec()));
            // The server's clock has milliseconds, which may begin anywhere in ours.
            let waited = began.elapsed() + Duration::from_millis(1);
            assert!(waited >= PAUSE, "answered after {waited:?}");
            assert_eq!(client.read(), Outcome::Reply(b"+OK\r\n".to_vec()));
        }
    }
}

/// The end of a connection comes behind the last of its replies, and that none of them is sent is no reason to keep it.
#[test]
fn who_goes_while_replies_are_muted_is_closed() {
    for shards in SHARD_COUNTS {
        let server = Server::ours(shards);
        let mut admin = server.client();
        for half in [false, true] {
            for requests in [
                "CLIENT REPLY OFF\r\nMSET a 1 b 2 c 3\r\nSET d 1\r\n",
                "CLIENT REPLY SKIP\r\nMSET a 1 b 2 c 3\r\n",
                "CLIENT REPLY OFF\r\nGET a\r\nGET b\r\nGET c\r\nGET d\r\n",
                "CLIENT REPLY OFF\r\nMULTI\r\nSET a 1\r\nSET b 1\r\nRENAME a c\r\nEXEC\r\n",
            ] {
                for _ in 0..10 {
                    let mut gone = TcpStream::connect(("127.0.0.1", server.port)).expect("it listens");
                    gone.write_all(requests.as_bytes()).expect("the server reads");
                    gone.shutdown(if half { Shutdown::Write } else { Shutdown::Both }).expect("it is open");
                    // Whoever has only ended its own half stays until the server closes.
                    let mut end = Vec::new();
                    if half {
                        gone.set_read_timeout(Some(Duration::from_secs(10))).expect("a time");
                        gone.read_to_end(&mut end).expect("the server closes");
                        assert!(end.is_empty(), "{requests:?} on {shards} shards");
                    }
                }
                let left = server::poll(10_000, || {
                    admin.run("INFO clients").text().contains("connected_clients:1\r\n").then_some(())
                });
                assert!(left.is_some(), "{requests:?} is still there on {shards} shards");
            }
        }
    }
}

#[test]
fn muted_replies_of_a_pipeline_are_those_that_were_meant() {
    for shards in SHARD_COUNTS {
        let server = Server::ours(shards);
        let mut client = server.client();
        let mut lines = Vec::new();
        let mut expected = Vec::new();
        for n in 0..500 {
            lines.push(format!("SET key:{n} {n}"));
            expected.extend_from_slice(b"+OK\r\n");
            match n % 5 {
                0 => lines.extend(["CLIENT REPLY SKIP".to_owned(), format!("GET key:{n}")]),
                1 => {
                    lines.extend([
                        "CLIENT REPLY OFF".to_owned(),
                        format!("GET key:{n}"),
                        "DBSIZE".to_owned(),
                    ]);
                    lines.extend([format!("MGET key:{n} key:0 key:1"), "NOSUCH".to_owned()]);
                    lines.push("CLIENT REPLY ON".to_owned());
                    expected.extend_from_slice(b"+OK\r\n");
                }
                2 => lines.extend(["CLIENT REPLY SKIP".to_owned(), format!("MSET key:{n} {n} key:0 0")]),
                _ => {
                    lines.push(format!("GET key:{n}"));
                    expected.extend_from_slice(format!("${}\r\n{n}\r\n", n.to_string().len()).as_bytes());
                }
            }
        }
        lines.push("QUIT".to_owned());
        expected.extend_from_slice(b"+OK\r\n");
        let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
        pipeline(&mut client, &lines);
        let got = client.read_to_close().expect("closed");
        assert_eq!(got.escape_ascii().to_string(), expected.escape_ascii().to_string(), "{shards} shards");
    }
}

#[test]
fn monitors_see_each_connection_in_its_order() {
    const COMMANDS: usize = 200;
    for shards in SHARD_COUNTS {
        let server = Server::ours(shards);
        let mut monitors: Vec<Client> = (0..3).map(|_| server.client()).collect();
        for monitor in &mut monitors {
            monitor.check("MONITOR", "+OK\r\n");
        }
        let mut clients: Vec<Client> = (0..5).map(|_| server.client()).collect();
        for (number, client) in clients.iter_mut().enumerate() {
            let lines: Vec<String> = (0..COMMANDS).map(|n| format!("SET {number}:{n} x")).collect();
            pipeline(client, &lines.iter().map(String::as_str).collect::<Vec<_>>());
        }
        for client in &mut clients {
            for _ in 0..COMMANDS {
                assert_eq!(client.read(), Outcome::Reply(b"+OK\r\n".to_vec()));
            }
        }
        for monitor in &mut monitors {
            let mut next = vec![0; clients.len()];
            while next.iter().sum::<usize>() < clients.len() * COMMANDS {
                let Outcome::Reply(raw) = monitor.read() else { panic!("{next:?}, {shards} shards") };
                let line = String::from_utf8(raw).expect("text");
                let key = line.split('"').nth(3).expect("a key");
                let (number, n) = key.split_once(':').expect("client and number");
                let place = &mut next[number.parse::<usize>().expect("a number")];
                assert_eq!(n.parse(), Ok(*place), "{line}");
                *place += 1;
            }
        }
        // A monitor that goes is forgotten on all shards, and one that resets is a client again.
        monitors.pop();
        monitors[0].check("RESET", "+RESET\r\n");
        clients[0].check("SET a 1", "+OK\r\n");
        let Outcome::Reply(raw) = monitors[1].read() else { panic!("nothing shown") };
        let line = String::from_utf8_lossy(&raw).into_owned();
        assert!(line.ends_with("\"SET\" \"a\" \"1\"\r\n") || line.contains("\"RESET\""), "{line}");
        monitors[0].check("GET a", "$1\r\n1\r\n");
    }
}

#[test]
fn a_monitor_that_does_not_read_is_dropped_and_the_others_go_on() {
    if server::stand_in() {
        return;
    }
    let server = Server::ours_with(2, &["--client-output-buffer-limit", "normal", "4mb", "0", "0"]);
    let mut deaf: Vec<Client> = (0..2).map(|_| server.client()).collect();
    deaf.iter_mut().for_each(|monitor| monitor.check("MONITOR", "+OK\r\n"));
    let mut client = server.client();
    let value = "x".repeat(256 << 10);
    let mut dropped = 0;
    for _ in 0..400 {
        client.check(&format!("SET key {value}"), "+OK\r\n");
        let info = client.run("INFO stats").text();
        let counted =
            info.lines().find_map(|line| line.strip_prefix("client_output_buffer_limit_disconnections:"));
        dropped = counted.and_then(|count| count.parse().ok()).expect("the counter");
        if dropped == deaf.len() {
            break;
        }
    }
    assert_eq!(dropped, deaf.len(), "monitors dropped");
    let mut monitor = server.client();
    monitor.check("MONITOR", "+OK\r\n");
    client.check("PING", "+PONG\r\n");
    assert!(matches!(monitor.read(), Outcome::Reply(raw) if raw.ends_with(b"\"PING\"\r\n")));
}
