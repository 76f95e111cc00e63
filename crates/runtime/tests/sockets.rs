//! The socket path end to end: a server in this process, real sockets, one to three shards.

mod util;

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::unix::net::{UnixListener, UnixStream};

use corelane_runtime::mesh::PeerKind;
use util::{Client, Running, command, eventually};

fn pattern(len: usize, seed: usize) -> Vec<u8> {
    (0..len).map(|i| (i * 31 + i / 251 + seed * 7) as u8).collect()
}

#[test]
fn answers_over_tcp() {
    for shards in 1..=3 {
        let server = Running::with_shards(shards);
        let mut client = server.client();
        assert_eq!(client.ask(&[b"PING"]), b"+PONG");
        for i in 0..20 {
            let (key, value) = (format!("key{i}"), pattern(i * 13, i));
            assert_eq!(client.ask(&[b"GET", key.as_bytes()]), b"$-1");
            assert_eq!(client.ask(&[b"SET", key.as_bytes(), &value]), b"+OK");
            assert_eq!(client.ask(&[b"GET", key.as_bytes()]), value);
        }
    }
}

#[test]
fn answers_over_a_unix_socket() {
    let path = std::env::temp_dir().join(format!("corelane-sockets-{}.sock", std::process::id()));
    let listener = UnixListener::bind(&path).unwrap();
    let server =
        Running::with_plan(2, |plan| plan.shards[0].listeners.push((listener.into(), PeerKind::Unix)));
    let mut clients: Vec<_> = (0..10).map(|_| Client::new(UnixStream::connect(&path).unwrap())).collect();
    for (i, client) in clients.iter_mut().enumerate() {
        let value = pattern(1 << i, i);
        assert_eq!(client.ask(&[b"SET", b"k", &value]), b"+OK");
        assert_eq!(client.ask(&[b"GET", b"k"]), value);
    }
    drop(server);
    std::fs::remove_file(path).unwrap();
}

#[test]
fn a_pipeline_of_ten_thousand_is_answered_in_order() {
    for shards in [1, 3] {
        let server = Running::with_shards(shards);
        let mut client = server.client();
        let mut sender = client.socket.try_clone().unwrap();
        let writer = std::thread::spawn(move || {
            let mut pipeline = Vec::new();
            for i in 0..10_000 {
                let (key, value) = (format!("k{}", i % 100), format!("v{i}"));
                pipeline.extend(command(&[b"SET", key.as_bytes(), value.as_bytes()]));
                pipeline.extend(command(&[b"GET", key.as_bytes()]));
            }
            sender.write_all(&pipeline).unwrap();
        });
        for i in 0..10_000 {
            assert_eq!(client.reply(), b"+OK", "{i}");
            assert_eq!(String::from_utf8(client.reply()).unwrap(), format!("v{i}"), "{shards} {i}");
        }
        writer.join().unwrap();
    }
}

#[test]
fn large_values_arrive_whole() {
    for shards in [1, 2] {
        let server = Running::with_shards(shards);
        let mut client = server.client();
        for (i, len) in
            [16 << 10, 64 << 10, (64 << 10) + 1, 100_000, 1 << 20, 9 << 20].into_iter().enumerate()
        {
            let (key, value) = (format!("large{i}"), pattern(len, i));
            assert_eq!(client.ask(&[b"SET", key.as_bytes(), &value]), b"+OK");
            assert!(client.ask(&[b"GET", key.as_bytes()]) == value, "{len} bytes");
            assert_eq!(client.ask(&[b"PING"]), b"+PONG");
        }
    }
}

#[test]
fn large_values_in_a_pipeline_arrive_whole() {
    let server = Running::with_shards(2);
    let mut client = server.client();
    let mut sender = client.socket.try_clone().unwrap();
    let writer = std::thread::spawn(move || {
        for i in 0..60 {
            let key = format!("k{i}");
            sender.write_all(&command(&[b"SET", key.as_bytes(), &pattern(300_000 + i, i)])).unwrap();
            sender.write_all(&command(&[b"GET", key.as_bytes()])).unwrap();
            sender.write_all(&command(&[b"PING"])).unwrap();
        }
    });
    for i in 0..60 {
        assert_eq!(client.reply(), b"+OK");
        assert!(client.reply() == pattern(300_000 + i, i), "{i}");
        assert_eq!(client.reply(), b"+PONG");
    }
    writer.join().unwrap();
}

#[test]
fn a_half_closed_connection_gets_its_answers_and_then_ends() {
    for shards in 1..=3 {
        let server = Running::with_shards(shards);
        for round in 0..50 {
            let mut client = server.client();
            let mut pipeline = Vec::new();
            for i in 0..20 {
                let key = format!("k{i}");
                pipeline.extend(command(&[b"SET", key.as_bytes(), b"v"]));
                pipeline.extend(command(&[b"GET", key.as_bytes()]));
            }
            client.socket.write_all(&pipeline).unwrap();
            client.socket.shutdown(Shutdown::Write).unwrap();
            for i in 0..20 {
                assert_eq!(client.reply(), b"+OK", "{shards} shards, round {round}, key {i}");
                assert_eq!(client.reply(), b"v");
            }
            assert!(client.at_end());
        }
        eventually("all connections end", || server.connections().iter().sum::<u32>() == 0);
    }
}

#[test]
fn quit_and_protocol_errors_are_answered_before_the_end() {
    let server = Running::with_shards(1);
    let mut client = server.client();
    assert_eq!(client.ask(&[b"QUIT"]), b"+OK");
    assert!(client.at_end());
    let mut client = server.client();
    client.socket.write_all(b"*1\r\n!boom\r\n").unwrap();
    assert!(client.reply().starts_with(b"-ERR Protocol error"));
    assert!(client.at_end());
}

#[test]
fn clients_that_die_in_the_middle_do_no_harm() {
    let server = Running::with_shards(2);
    let mut survivor = server.client();
    let value = pattern(200_000, 1);
    assert_eq!(survivor.ask(&[b"SET", b"big", &value]), b"+OK");
    for i in 0..100usize {
        let client = server.client();
        let mut pipeline = Vec::new();
        for _ in 0..50 {
            pipeline.extend(command(&[b"GET", b"big"]));
        }
        pipeline.extend(&command(&[b"SET", b"torn", &value])[..i * 1900]);
        (&client.socket).write_all(&pipeline).unwrap();
        if i % 2 == 0 {
            // Reset instead of an orderly end.
            socket2::SockRef::from(&client.socket).set_linger(Some(std::time::Duration::ZERO)).unwrap();
        }
        drop(client);
        assert_eq!(survivor.ask(&[b"PING"]), b"+PONG");
    }
    eventually("the dead are gone", || server.connections().iter().sum::<u32>() == 1);
    assert!(survivor.ask(&[b"GET", b"big"]) == value);
    assert_eq!(survivor.ask(&[b"GET", b"torn"]), b"$-1");
}

#[test]
fn a_client_that_does_not_read_is_not_read_from() {
    /// Far more than the buffers of two sockets and the backlog of a session hold.
    const TAKEN_MAX: usize = 256 << 20;
    let server = Running::with_shards(1);
    let (mut other, mut slow) = (server.client(), server.client());
    slow.socket.set_nonblocking(true).unwrap();
    let value = pattern(10_000, 3);
    let asked = command(&[b"ECHO", &value]);
    let (mut written, mut stuck_since) = (0, None);
    while written < TAKEN_MAX {
        match slow.socket.write(&asked[written % asked.len()..]) {
            Ok(len) => (written, stuck_since) = (written + len, None),
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                let since = *stuck_since.get_or_insert_with(std::time::Instant::now);
                if since.elapsed().as_millis() > 500 {
                    break;
                }
                assert_eq!(other.ask(&[b"PING"]), b"+PONG");
            }
            Err(error) => panic!("{error}"),
        }
    }
    assert!(stuck_since.is_some(), "the server took {written} bytes of requests");
    slow.socket.set_nonblocking(false).unwrap();
    // What was taken in is answered once the client reads.
    for _ in 0..written / asked.len() {
        assert!(slow.reply() == value);
    }
}

#[test]
fn a_flood_does_not_keep_others_waiting() {
    let server = Running::with_shards(1);
    let stop = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
    let flooders: Vec<_> = (0..2)
        .map(|_| {
            let (mut socket, stop) = (server.client().socket, stop.clone());
            std::thread::spawn(move || {
                let flood = command(&[b"SET", b"k", b"some value"]).repeat(20_000);
                let mut reader = socket.try_clone().unwrap();
                let drain = std::thread::spawn(move || {
                    let mut sink = [0; 1 << 16];
                    while matches!(reader.read(&mut sink), Ok(1..)) {}
                });
                while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                    socket.write_all(&flood).unwrap();
                }
                socket.shutdown(Shutdown::Both).unwrap();
                drain.join().unwrap();
            })
        })
        .collect();
    let mut client = server.client();
    for i in 0..300 {
        let began = std::time::Instant::now();
        assert_eq!(client.ask(&[b"PING"]), b"+PONG");
        assert!(began.elapsed().as_millis() < 2000, "request {i} took {:?}", began.elapsed());
    }
    stop.store(true, std::sync::atomic::Ordering::Relaxed);
    for flooder in flooders {
        flooder.join().unwrap();
    }
}

#[test]
fn more_bytes_at_once_than_there_are_buffers_for_arrive_whole() {
    const CLIENTS: usize = 200;
    let server = Running::with_shards(1);
    let mut clients: Vec<_> = (0..CLIENTS).map(|_| server.client()).collect();
    for round in 0..5 {
        let value = |i: usize| pattern(60_000 + i, i + round);
        for (i, client) in clients.iter_mut().enumerate() {
            let key = format!("k{i}");
            let request = command(&[b"SET", key.as_bytes(), &value(i)]);
            // The last byte is missing: no session frees its buffers early.
            client.socket.write_all(&request[..request.len() - 1]).unwrap();
        }
        for (i, client) in clients.iter_mut().enumerate() {
            client.socket.write_all(b"\n").unwrap();
            assert_eq!(client.reply(), b"+OK", "client {i}");
            assert!(client.ask(&[b"GET", format!("k{i}").as_bytes()]) == value(i), "client {i}");
        }
    }
}

#[test]
fn a_command_that_comes_byte_by_byte_is_understood() {
    let server = Running::with_shards(2);
    let mut client = server.client();
    for byte in command(&[b"SET", b"slow", b"loris"]) {
        client.socket.write_all(&[byte]).unwrap();
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    assert_eq!(client.reply(), b"+OK");
    assert_eq!(client.ask(&[b"GET", b"slow"]), b"loris");
}

#[test]
fn connecting_and_leaving_leaks_no_descriptor() {
    let server = Running::with_shards(2);
    let descriptors = || std::fs::read_dir("/proc/self/fd").unwrap().count();
    let round = |count: usize| {
        for i in 0..count {
            let mut client = server.client();
            if i % 3 != 0 {
                assert_eq!(client.ask(&[b"PING"]), b"+PONG");
            }
        }
        eventually("all connections end", || server.connections().iter().sum::<u32>() == 0);
    };
    round(100);
    let before = descriptors();
    round(1000);
    // Other tests in this process open and close descriptors meanwhile; a leak would show hundreds.
    eventually("descriptors return", || descriptors() < before + 100);
}

#[test]
fn fifty_connections_are_spread_evenly() {
    for shards in [2, 3] {
        let server = Running::with_shards(shards);
        let mut clients: Vec<_> = (0..50).map(|_| server.client()).collect();
        for client in &mut clients {
            assert_eq!(client.ask(&[b"PING"]), b"+PONG");
        }
        let counts = server.connections();
        assert_eq!(counts.iter().sum::<u32>(), 50);
        let busiest = f64::from(*counts.iter().max().unwrap());
        assert!(busiest <= 1.2 * 50.0 / shards as f64, "{counts:?}");
    }
}

#[test]
fn more_than_maxclients_are_told_so() {
    let server = Running::with_plan(2, |plan| plan.settings.maxclients = 5);
    let mut clients: Vec<_> = (0..5).map(|_| server.client()).collect();
    for client in &mut clients {
        assert_eq!(client.ask(&[b"PING"]), b"+PONG");
    }
    let mut sixth = server.client();
    assert_eq!(sixth.reply(), b"-ERR max number of clients reached");
    assert!(sixth.at_end());
    drop(clients.pop());
    eventually("there is room again", || server.client().ask(&[b"PING"]) == b"+PONG");
}

#[test]
fn idle_connections_are_closed_when_asked_for() {
    let server = Running::with_plan(1, |plan| plan.settings.timeout_s = 1);
    let mut client = server.client();
    assert_eq!(client.ask(&[b"PING"]), b"+PONG");
    assert!(client.at_end());
}

#[test]
fn stops_under_load_and_answers_what_it_has_read() {
    let server = Running::with_shards(2);
    let address = server.address;
    let clients: Vec<_> = (0..8)
        .map(|i| {
            std::thread::spawn(move || {
                let mut client = Client::new(TcpStream::connect(address).unwrap());
                let pipeline = command(&[b"SET", format!("k{i}").as_bytes(), b"v"]).repeat(16);
                let mut answered = 0;
                while client.socket.write_all(&pipeline).is_ok() {
                    for _ in 0..16 {
                        match client.try_reply() {
                            Some(reply) => assert_eq!(reply, b"+OK"),
                            None => return answered,
                        }
                        answered += 1;
                    }
                }
                answered
            })
        })
        .collect();
    std::thread::sleep(std::time::Duration::from_millis(200));
    let began = std::time::Instant::now();
    server.stop();
    assert!(began.elapsed().as_secs() < 20, "stopped after {:?}", began.elapsed());
    for client in clients {
        assert!(client.join().unwrap() > 0);
    }
    assert!(TcpStream::connect(address).is_err(), "nobody listens any more");
}

#[test]
fn a_first_request_after_idling_is_answered() {
    let server = Running::with_shards(2);
    let mut client = server.client();
    for _ in 0..20 {
        std::thread::sleep(std::time::Duration::from_millis(15));
        assert_eq!(client.ask(&[b"SET", b"a", b"1"]), b"+OK");
        assert_eq!(client.ask(&[b"SET", b"b", b"2"]), b"+OK");
    }
}
