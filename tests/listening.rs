//! CONFIG SET port and bind: a running server listens elsewhere, on every shard, or stays where it is.

mod common;

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};

use common::client::Client;
use common::server::{self, Server, free_port};

const SHARD_COUNTS: [usize; 3] = [1, 2, 5];
/// Connections enough for every shard to have some.
const CLIENTS: usize = 20;

/// Whether somebody answers there.
fn answers(ip: [u8; 4], port: u16) -> bool {
    let Ok(mut stream) = TcpStream::connect((Ipv4Addr::from(ip), port)) else { return false };
    let mut reply = [0; 7];
    stream.write_all(b"PING\r\n").is_ok() && stream.read_exact(&mut reply).is_ok() && &reply == b"+PONG\r\n"
}

const LOOPBACK: [u8; 4] = [127, 0, 0, 1];
const SECOND: [u8; 4] = [127, 0, 0, 2];

#[test]
fn a_server_moves_to_another_port_and_back() {
    for accept in ["reuseport", "single"] {
        for shards in SHARD_COUNTS {
            let server = Server::ours_with(shards, &["--accept", accept]);
            let (first, second) = (server.port, free_port());
            let mut stays = server.client();
            let descriptors = server.descriptor_count();
            for _ in 0..20 {
                stays.check(&format!("CONFIG SET port {second}"), "+OK\r\n");
                assert!(!answers(LOOPBACK, first), "the old port, {shards} shards, {accept}");
                let mut clients: Vec<Client> = (0..CLIENTS).map(|_| Client::connect(second)).collect();
                clients.iter_mut().for_each(|client| client.check("PING", "+PONG\r\n"));
                let info = stays.run("INFO server").text();
                let listener = format!("listener0:name=tcp,bind=127.0.0.1,port={second}\r\n");
                assert!(
                    info.contains(&listener) && info.contains(&format!("tcp_port:{second}\r\n")),
                    "{info}"
                );
                assert_eq!(stays.run("CONFIG GET port").items()[1].text(), second.to_string());
                clients[CLIENTS - 1].check(&format!("CONFIG SET port {first}"), "+OK\r\n");
                assert!(answers(LOOPBACK, first) && !answers(LOOPBACK, second), "{shards} shards, {accept}");
            }
            server.await_descriptors(descriptors);
        }
    }
}

#[test]
fn an_address_becomes_all_addresses_and_one_again() {
    for shards in SHARD_COUNTS {
        let server = Server::ours(shards);
        let port = server.port;
        let mut admin = server.client();
        assert!(!answers(SECOND, port));
        admin.check("CONFIG SET bind *", "+OK\r\n");
        assert!(answers(LOOPBACK, port) && answers(SECOND, port), "{shards} shards");
        admin.check("CONFIG SET bind \"127.0.0.2 -192.0.2.1\"", "+OK\r\n");
        assert!(!answers(LOOPBACK, port) && answers(SECOND, port), "{shards} shards");
        admin.check("CONFIG SET port 0", "+OK\r\n");
        assert!(!answers(SECOND, port));
        admin.check(&format!("CONFIG SET bind 127.0.0.1 port {port}"), "+OK\r\n");
        assert!(answers(LOOPBACK, port) && !answers(SECOND, port), "{shards} shards");
    }
}

#[test]
fn where_it_cannot_listen_it_stays() {
    for shards in SHARD_COUNTS {
        let server = Server::ours(shards);
        let port = server.port;
        let busy = TcpListener::bind((Ipv4Addr::from(LOOPBACK), free_port())).expect("a port");
        let taken = busy.local_addr().expect("its address").port();
        let mut admin = server.client();
        let failed = |argument: &str, why: &str| {
            format!("-ERR CONFIG SET failed (possibly related to argument '{argument}') - {why}\r\n")
        };
        let port_failed = failed("port", "Unable to listen on this port. Check server logs.");
        let bind_failed = failed("bind", "Failed to bind to specified addresses.");
        admin.check(&format!("CONFIG SET timeout 77 port {taken}"), &port_failed);
        admin.check(&format!("CONFIG SET port {taken} bind \"127.0.0.2 127.0.0.1\""), &port_failed);
        admin.check(&format!("CONFIG SET bind \"127.0.0.2 127.0.0.1\" port {taken}"), &bind_failed);
        admin.check("CONFIG SET bind 192.0.2.1", &bind_failed);
        admin.check("CONFIG SET bind no-such-host.invalid", &bind_failed);
        let many: Vec<String> = (1..=17).map(|last| format!("127.0.0.{last}")).collect();
        let many = format!("CONFIG SET bind \"{}\"", many.join(" "));
        admin.check(&many, &failed("bind", "Too many bind addresses specified."));
        assert!(answers(LOOPBACK, port) && !answers(SECOND, taken), "{shards} shards");
        assert_eq!(admin.run("CONFIG GET timeout").items()[1].text(), "0");
        assert_eq!(admin.run("CONFIG GET port").items()[1].text(), port.to_string());
        drop(busy);
        // As a part of a transaction, too.
        admin.check("MULTI", "+OK\r\n");
        admin.check(&format!("CONFIG SET port {taken}"), "+QUEUED\r\n");
        admin.check("CONFIG SET bind 192.0.2.1", "+QUEUED\r\n");
        admin.check("EXEC", &format!("*2\r\n+OK\r\n{bind_failed}"));
        assert!(answers(LOOPBACK, taken) && !answers(LOOPBACK, port), "{shards} shards");
    }
}

#[test]
fn two_who_move_it_at_once_leave_it_in_one_place() {
    if server::stand_in() {
        return;
    }
    for shards in SHARD_COUNTS {
        let server = Server::ours(shards);
        let ports = [free_port(), free_port()];
        let mut movers: Vec<Client> = (0..CLIENTS).map(|_| server.client()).collect();
        for round in 0..10 {
            for (idx, mover) in movers.iter_mut().enumerate() {
                let line = format!("CONFIG SET port {}\r\n", ports[(idx + round) % 2]);
                mover.write(line.as_bytes()).expect("the server reads");
            }
            movers.iter_mut().for_each(|mover| assert_eq!(format!("{:?}", mover.read()), r"+OK\r\n"));
            let port = movers[0].run("CONFIG GET port").items()[1].text();
            let found: Vec<String> =
                ports.iter().filter(|port| answers(LOOPBACK, **port)).map(ToString::to_string).collect();
            assert_eq!(found, [port], "{shards} shards");
        }
    }
}
