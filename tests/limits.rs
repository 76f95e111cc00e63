//! Every limit that can be set, reached on a real server: it holds, on all shards, and is told of.

mod common;

use std::fs;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::Duration;

use common::client::{Client, Outcome};
use common::server::{self, Server};

const SHARD_COUNTS: [usize; 3] = [1, 2, 5];
/// A server must have done what it is waited for by then, in milliseconds.
const PATIENCE_MS: u64 = 20_000;

/// A field of INFO as a number.
fn info(client: &mut Client, field: &str) -> u64 {
    let info = client.run("INFO everything").text();
    let value = info.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
    value.and_then(|value| value.trim().parse().ok()).unwrap_or_else(|| panic!("no {field} in {info}"))
}

fn await_field(client: &mut Client, field: &str, least: u64) {
    let reached = server::poll(PATIENCE_MS, || (info(client, field) >= least).then_some(()));
    assert!(reached.is_some(), "{field} is {}", info(client, field));
}

/// What a fresh connection is told before it is closed; `None` when it may stay.
fn refusal(server: &Server) -> Option<String> {
    let mut stream = TcpStream::connect(("127.0.0.1", server.port)).expect("connect");
    stream.set_read_timeout(Some(Duration::from_millis(PATIENCE_MS))).expect("a time-out");
    // Bytes that are never read would have the server's end reset the connection, and its words be lost.
    stream.shutdown(Shutdown::Write).expect("still open");
    let mut told = String::new();
    stream.read_to_string(&mut told).expect("words or an end");
    (!told.is_empty()).then_some(told)
}

#[test]
fn maxclients_can_be_raised_and_lowered() {
    for shards in SHARD_COUNTS {
        let server = Server::ours_with(shards, &["--maxclients", "50"]);
        let mut admin = server.client();
        let full = "-ERR max number of clients reached\r\n";
        // The connection that waited for the server to start may still be there.
        server::poll(PATIENCE_MS, || (info(&mut admin, "connected_clients") == 1).then_some(()))
            .expect("alone");
        admin.check("CONFIG SET maxclients 3", "+OK\r\n");
        let mut others: Vec<Client> = (0..2).map(|_| server.client()).collect();
        others.iter_mut().for_each(|client| client.check("PING", "+PONG\r\n"));
        assert_eq!(refusal(&server).as_deref(), Some(full), "{shards} shards");
        admin.check("CONFIG SET maxclients 4", "+OK\r\n");
        let mut fourth = server.client();
        fourth.check("PING", "+PONG\r\n");
        assert_eq!(refusal(&server).as_deref(), Some(full), "{shards} shards");
        admin.check("CONFIG SET maxclients 2", "+OK\r\n");
        fourth.check("PING", "+PONG\r\n");
        assert_eq!(info(&mut admin, "maxclients"), 2);
        assert!(info(&mut admin, "rejected_connections") >= 2);
        let too_many = admin.run("CONFIG SET maxclients 4000000000").text();
        if !server::stand_in() {
            assert!(
                too_many.contains("The operating system is not able to handle the specified number"),
                "{too_many}"
            );
            let possible: u32 =
                too_many.rsplit(' ').next().and_then(|word| word.parse().ok()).expect("a number");
            admin.check(&format!("CONFIG SET maxclients {possible}"), "+OK\r\n");
        }
    }
}

#[test]
fn a_quiet_client_is_closed_after_timeout() {
    for shards in SHARD_COUNTS {
        let server = Server::ours(shards);
        let mut quiet: Vec<Client> = (0..2 * shards).map(|_| server.client()).collect();
        quiet.iter_mut().for_each(|client| client.check("PING", "+PONG\r\n"));
        let mut admin = server.client();
        admin.check("CONFIG SET timeout 1", "+OK\r\n");
        for client in &mut quiet {
            assert_eq!(client.read_to_close(), Some(Vec::new()), "{shards} shards");
        }
    }
}

#[test]
fn whom_a_pause_holds_is_not_closed_after_timeout() {
    for shards in SHARD_COUNTS {
        let server = Server::ours(shards);
        let mut admin = server.client();
        admin.check("CLIENT PAUSE 100000 WRITE", "+OK\r\n");
        let mut held = server.client();
        held.write(b"SET k v\r\n").expect("the server reads");
        await_field(&mut admin, "blocked_clients", 1);
        // They came later, so that their end tells that the one before them would have come to its own.
        let mut quiet: Vec<Client> = (0..2 * shards).map(|_| server.client()).collect();
        quiet.iter_mut().for_each(|client| client.check("PING", "+PONG\r\n"));
        admin.check("CONFIG SET timeout 1", "+OK\r\n");
        for client in &mut quiet {
            assert_eq!(client.read_to_close(), Some(Vec::new()), "{shards} shards");
        }
        server.client().check("CLIENT UNPAUSE", "+OK\r\n");
        assert_eq!(held.read(), Outcome::Reply(b"+OK\r\n".to_vec()), "{shards} shards");
    }
}

/// The timers of the server's ends of connections, as in /proc/net/tcp: `02:<hex>` for a keep-alive probe to come.
fn timers(server: &Server) -> Vec<String> {
    let table =
        fs::read_to_string(format!("/proc/{}/net/tcp", server.pid())).expect("the table of connections");
    let port = format!(":{:04X}", server.port);
    let rows = table.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    // State 01 is established.
    let ours = rows.filter(|row| row.len() > 5 && row[1].ends_with(&port) && row[3] == "01");
    ours.map(|row| row[5].to_owned()).collect()
}

#[test]
fn tcp_keepalive_holds_for_connections_from_then_on() {
    let server = Server::ours_with(2, &["--tcp-keepalive", "100"]);
    let mut first = server.client();
    first.check("PING", "+PONG\r\n");
    let probed = |timer: &String| {
        // In hundredths of seconds: between 90 and 100 seconds to go.
        let ticks = timer.strip_prefix("02:").and_then(|ticks| u64::from_str_radix(ticks, 16).ok());
        ticks.is_some_and(|ticks| (9_000..=10_000).contains(&ticks))
    };
    let settled = |expected: &dyn Fn(&[String]) -> bool| {
        let found = server::poll(PATIENCE_MS, || expected(&timers(&server)).then_some(()));
        assert!(found.is_some(), "{:?}", timers(&server));
    };
    settled(&|timers| !timers.is_empty() && timers.iter().all(probed));
    first.check("CONFIG SET tcp-keepalive 0", "+OK\r\n");
    let mut later: Vec<Client> = (0..4).map(|_| server.client()).collect();
    later.iter_mut().for_each(|client| client.check("PING", "+PONG\r\n"));
    settled(&|timers| timers.iter().filter(|timer| timer.starts_with("00:")).count() >= 4);
}

/// Asks for a value of 32 MiB and reads nothing of it.
fn deaf_client(server: &Server, admin: &mut Client) -> Client {
    if admin.run("EXISTS large").int() == 0 {
        admin.check("SETRANGE large 33554431 x", ":33554432\r\n");
    }
    let mut deaf = server.client();
    deaf.check("CLIENT SETNAME deaf", "+OK\r\n");
    deaf.write(b"GET large\r\n").expect("the server reads");
    deaf
}

#[test]
fn too_much_unread_output_closes_a_client() {
    for shards in SHARD_COUNTS {
        let server = Server::ours(shards);
        let mut admin = server.client();
        let dropped = "client_output_buffer_limit_disconnections";
        admin.check("CONFIG SET client-output-buffer-limit \"normal 1mb 0 0\"", "+OK\r\n");
        let _deaf: Vec<Client> = (0..3).map(|_| deaf_client(&server, &mut admin)).collect();
        await_field(&mut admin, dropped, 3);
        if !server::stand_in() {
            let line = "name=deaf: it was over client-output-buffer-limit";
            let told = server::poll(PATIENCE_MS, || server.log().contains(line).then_some(()));
            assert!(told.is_some(), "{}", server.log());
        }
        admin.check("CONFIG SET client-output-buffer-limit \"normal 0 1mb 1\"", "+OK\r\n");
        let _deaf = deaf_client(&server, &mut admin);
        await_field(&mut admin, dropped, 4);
        admin.check("CONFIG SET client-output-buffer-limit \"normal 0 0 0\"", "+OK\r\n");
        let mut patient = deaf_client(&server, &mut admin);
        let Outcome::Reply(reply) = patient.read() else { panic!("no limit, and yet closed") };
        assert_eq!(reply.len(), "$33554432\r\n".len() + (32 << 20) + 2);
    }
}

#[test]
fn too_much_unprocessed_input_closes_a_client() {
    for shards in SHARD_COUNTS {
        let server = Server::ours(shards);
        let mut admin = server.client();
        admin.check("CONFIG SET client-query-buffer-limit 1mb", "+OK\r\n");
        let mut talker = server.client();
        talker.check("CLIENT SETNAME talker", "+OK\r\n");
        let argument = [&b"$10000\r\n"[..], &[b'x'; 10_000], b"\r\n"].concat();
        let mut failed = talker.write(b"*100000\r\n").is_err();
        for _ in 0..400 {
            failed |= talker.write(&argument).is_err();
        }
        assert!(failed || talker.read_to_close().is_some(), "still open, {shards} shards");
        await_field(&mut admin, "client_query_buffer_limit_disconnections", 1);
        if !server::stand_in() {
            assert!(
                server.log().contains("name=talker: it was over client-query-buffer-limit"),
                "{}",
                server.log()
            );
        }
    }
}

#[test]
fn strings_are_no_longer_than_proto_max_bulk_len() {
    for shards in SHARD_COUNTS {
        let server = Server::ours(shards);
        let mut admin = server.client();
        let mut clients: Vec<Client> = (0..2 * shards).map(|_| server.client()).collect();
        admin.check("CONFIG SET proto-max-bulk-len 1mb", "+OK\r\n");
        for client in &mut clients {
            client.check("SETRANGE k 1048575 x", ":1048576\r\n");
            let too_long = "-ERR string exceeds maximum allowed size (proto-max-bulk-len)\r\n";
            client.check("APPEND k x", too_long);
            client.check("SETRANGE k 1048576 x", too_long);
            client.write(b"*2\r\n$3\r\nGET\r\n$1048577\r\n").expect("the server reads");
            let end = b"-ERR Protocol error: invalid bulk length\r\n";
            assert_eq!(client.read_to_close().as_deref(), Some(&end[..]), "{shards} shards");
        }
        admin.check("CONFIG SET proto-max-bulk-len 2mb", "+OK\r\n");
        admin.check("APPEND k x", ":1048577\r\n");
    }
}

#[test]
fn few_buffers_are_enough_for_many_clients() {
    if server::stand_in() {
        return;
    }
    for (shards, size) in [(1, ["1", "1"]), (2, ["1", "3"]), (1, ["64", "1024"])] {
        let flags = ["--buffer-pool-min", size[0], "--buffer-pool-max", size[1]];
        let server = Server::ours_with(shards, &flags);
        let mut clients: Vec<Client> = (0..40).map(|_| server.client()).collect();
        for round in 0..20 {
            for (number, client) in clients.iter_mut().enumerate() {
                let value = format!("{number}-{round}-{}", "x".repeat(3000));
                let pipeline = format!("SET k{number} {value}\r\nGET k{number}\r\n");
                client.write(pipeline.repeat(5).as_bytes()).expect("the server reads");
            }
            for (number, client) in clients.iter_mut().enumerate() {
                let value = format!("{number}-{round}-{}", "x".repeat(3000));
                let bulk = format!("${}\r\n{value}\r\n", value.len());
                for _ in 0..5 {
                    assert_eq!(client.read(), Outcome::Reply(b"+OK\r\n".to_vec()));
                    assert_eq!(client.read(), Outcome::Reply(bulk.clone().into_bytes()), "{size:?}");
                }
            }
        }
        let lines = clients[0].run("INFO shards").text();
        let shortages = lines.split("buffer_shortages=").skip(1);
        let shortages = shortages.map(|rest| rest.split(|letter: char| !letter.is_ascii_digit()).next());
        let shortages: u64 =
            shortages.map(|count| count.and_then(|count| count.parse::<u64>().ok()).expect("a count")).sum();
        assert_eq!(shortages > 0, size[0] == "1", "{shortages} shortages with {size:?}");
    }
}

/// Processor time of the server, in hundredths of a second.
fn cpu_ticks(server: &Server) -> u64 {
    let stat = fs::read_to_string(format!("/proc/{}/stat", server.pid())).expect("/proc of the server");
    let after_name = stat.rsplit(')').next().expect("fields");
    let fields: Vec<u64> = after_name.split_whitespace().map(|field| field.parse().unwrap_or(0)).collect();
    fields[11] + fields[12]
}

#[test]
fn busy_poll_us_has_a_shard_spin_and_can_be_taken_back() {
    if server::stand_in() {
        return;
    }
    let server = Server::ours(1);
    let mut client = server.client();
    client.check("CONFIG SET busy-poll-us 1000000", "+OK\r\n");
    client.check("PING", "+PONG\r\n");
    // Nobody asks for anything, so only spinning takes time.
    let before = cpu_ticks(&server);
    let spun = server::poll(PATIENCE_MS, || (cpu_ticks(&server) >= before + 30).then_some(()));
    assert!(spun.is_some(), "no time was spent");
    client.check("CONFIG SET busy-poll-us 0", "+OK\r\n");
    // It spins no longer when two readings that are far apart differ by little.
    let mut last = cpu_ticks(&server);
    let rest = (0..40).any(|_| {
        let mut waits = 0;
        server::poll(PATIENCE_MS, || {
            waits += 1;
            (waits > 100).then_some(())
        });
        let now = cpu_ticks(&server);
        now - std::mem::replace(&mut last, now) <= 5
    });
    assert!(rest, "still spinning");
}

#[test]
fn strangers_may_send_little() {
    for shards in SHARD_COUNTS {
        let server = Server::ours(shards);
        server.client().check("CONFIG SET requirepass secret", "+OK\r\n");
        for (bytes, reply) in [
            ("*11\r\n", "-ERR Protocol error: unauthenticated multibulk length\r\n"),
            ("*1\r\n$16385\r\n", "-ERR Protocol error: unauthenticated bulk length\r\n"),
        ] {
            let mut stranger = server.client();
            stranger.write(bytes.as_bytes()).expect("the server reads");
            assert_eq!(stranger.read_to_close().as_deref(), Some(reply.as_bytes()), "{shards} shards");
        }
        // In one pipeline, what follows AUTH may be larger.
        let mut guest = server.client();
        let value = "x".repeat(20_000);
        guest.stream().write_all(format!("*2\r\n$4\r\nAUTH\r\n$6\r\nsecret\r\n*2\r\n$4\r\nECHO\r\n$20000\r\n{value}\r\n*11\r\n$4\r\nMGET\r\n{}", "$1\r\na\r\n".repeat(10)).as_bytes()).expect("the server reads");
        assert_eq!(guest.read(), Outcome::Reply(b"+OK\r\n".to_vec()));
        assert_eq!(guest.read(), Outcome::Reply(format!("$20000\r\n{value}\r\n").into_bytes()));
        assert_eq!(guest.read(), Outcome::Reply(format!("*10\r\n{}", "$-1\r\n".repeat(10)).into_bytes()));
    }
}
