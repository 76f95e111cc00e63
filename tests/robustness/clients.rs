//! Clients that misbehave while others are served.

use std::io::{ErrorKind, Read, Write};
use std::time::{Duration, Instant};

use crate::common::client::{Client, Outcome};
use crate::common::random::Random;
use crate::common::server::{self, Server};
use crate::common::words;

/// Longest answer another client may get while one misbehaves. Far above what it takes, as the machine may be busy.
const OTHERS_MS_MAX: u128 = 2000;

/// Asks something that involves every shard, and checks that the answer is prompt.
fn assert_serves(client: &mut Client, doing: &str) {
    let began = Instant::now();
    client.check("MSET served:1 a served:2 b served:3 c served:4 d", "+OK\r\n");
    client.check("MGET served:1 served:4", "*2\r\n$1\r\na\r\n$1\r\nd\r\n");
    let took_ms = began.elapsed().as_millis();
    assert!(took_ms < OTHERS_MS_MAX, "{doing}: another client waited {took_ms} ms");
}

#[test]
fn garbage_is_refused_and_forgotten() {
    let server = Server::ours(3);
    let mut bystander = server.client();
    let descriptors = server.descriptor_count();
    for seed in 0..300 {
        let mut random = Random::new(seed);
        let mut client = server.client();
        let len = 1 + random.below(20_000);
        let garbage = random.bytes(len);
        // The server may have closed before all of it was written.
        let _ = client.write(&garbage);
        client.finish();
        assert!(client.read_to_close().is_some(), "seed {seed}: still open after garbage and a half-close");
    }
    assert_serves(&mut bystander, "garbage");
    server.await_descriptors(descriptors);
}

#[test]
fn commands_that_come_a_byte_at_a_time_do_not_hold_up_others() {
    const SLOW: usize = 150;
    let server = Server::ours(3);
    let mut bystander = server.client();
    let mut slow: Vec<(Client, Vec<u8>)> = (0..SLOW)
        .map(|n| {
            (server.client(), words::encode(&words::parse(&format!("SET slow:{n:03} \"value {n:03}\""))))
        })
        .collect();
    let len = slow[0].1.len();
    for at in 0..len {
        for (client, bytes) in &mut slow {
            client.write(&bytes[at..=at]).expect("one byte");
        }
        assert_serves(&mut bystander, "slow clients");
    }
    for (client, _) in &mut slow {
        assert_eq!(client.read(), Outcome::Reply(b"+OK\r\n".to_vec()));
    }
    assert_eq!(bystander.run(&format!("GET slow:{:03}", SLOW - 1)).text(), format!("value {:03}", SLOW - 1));
}

#[test]
fn half_open_connections_are_closed_when_the_peer_is_done() {
    let partial: [&[u8]; 6] =
        [b"", b"*", b"*2\r\n$3\r\nGE", b"*2\r\n$3\r\nGET\r\n$5\r\nab", b"PIN", b"*1\r\n$4\r\nPING"];
    let server = Server::ours(2);
    for input in partial {
        let mut client = server.client();
        client.write(input).expect("a few bytes");
        client.finish();
        assert_eq!(client.read_to_close(), Some(Vec::new()), "{}", input.escape_ascii());
    }
}

#[test]
fn replies_still_come_after_the_peer_is_done_writing() {
    const COUNT: usize = 5000;
    let server = Server::ours(5);
    let mut client = server.client();
    let commands: Vec<words::Command> =
        (0..COUNT).map(|n| words::parse(&format!("MSET a:{n} 1 b:{n} 2 c:{n} 3"))).collect();
    client.write(&words::encode_all(&commands)).expect("a pipeline");
    client.finish();
    let all = client.read_to_close().expect("a close after the replies");
    assert_eq!(all.len(), COUNT * b"+OK\r\n".len());
    assert_eq!(server.client().run("DBSIZE").int(), 3 * COUNT as i64);
}

#[test]
fn silent_connections_cost_nobody_anything() {
    let server = Server::ours(2);
    let mut bystander = server.client();
    let silent: Vec<Client> = (0..300).map(|_| server.client()).collect();
    for _ in 0..50 {
        assert_serves(&mut bystander, "silent clients");
    }
    drop(silent);
    assert_serves(&mut bystander, "silent clients gone");
}

#[test]
fn declared_lengths_cost_no_memory_until_the_bytes_come() {
    const GROWTH_MAX: usize = 64 << 20;
    let server = Server::ours(2);
    let mut bystander = server.client();
    assert_serves(&mut bystander, "start");
    let before = server.resident_bytes();
    let heads: [&[u8]; 4] = [
        b"*2\r\n$3\r\nGET\r\n$536870912\r\nabc",
        b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$536870000\r\nxyz",
        b"*1048576\r\n$3\r\nDEL\r\n",
        b"*2147483647\r\n$4\r\nMGET\r\n",
    ];
    let mut waiting = Vec::new();
    for head in heads.iter().cycle().take(80) {
        let mut client = server.client();
        client.write(head).expect("a few bytes");
        waiting.push(client);
    }
    for _ in 0..20 {
        assert_serves(&mut bystander, "declared lengths");
    }
    let growth = server.resident_bytes().saturating_sub(before);
    assert!(growth < GROWTH_MAX, "{} MiB for 80 declared lengths", growth >> 20);
    let mut client = server.client();
    client.write(b"*2\r\n$3\r\nGET\r\n$1073741824\r\n").expect("a few bytes");
    let error = b"-ERR Protocol error: invalid bulk length\r\n".to_vec();
    assert_eq!(client.read_to_close(), Some(error));
    drop(waiting);
    assert_serves(&mut bystander, "declared lengths gone");
}

#[test]
fn clients_that_vanish_in_the_middle_of_a_pipeline_harm_nobody() {
    let server = Server::ours(3);
    let mut bystander = server.client();
    bystander.run("SET big \"x\"*2000");
    let descriptors = server.descriptor_count();
    let commands: Vec<words::Command> =
        (0..3000).map(|n| words::parse(&format!("MGET big other:{n} big"))).collect();
    let input = words::encode_all(&commands);
    for round in 0..30 {
        let mut client = server.client();
        let stream = client.stream();
        stream.set_write_timeout(Some(Duration::from_millis(50))).expect("a time-out");
        // Replies are never read, so writing may block; dropping the socket with unread bytes resets it.
        let _ = stream.write_all(&input[..input.len() - round * 7]);
        drop(client);
        assert_serves(&mut bystander, "vanished clients");
    }
    server.await_descriptors(descriptors);
}

/// A client that asks for gigabytes and reads nothing is stopped by back-pressure or dropped at its limit.
#[test]
fn a_client_that_does_not_read_cannot_fill_the_memory() {
    const GROWTH_MAX: usize = 256 << 20;
    if server::stand_in() {
        return;
    }
    let server = Server::ours(2);
    let mut bystander = server.client();
    bystander.run("SET big \"x\"*100000");
    let before = server.resident_bytes();
    let commands: Vec<words::Command> = (0..200).map(|_| words::parse("GET big")).collect();
    let input = words::encode_all(&commands);
    let mut greedy = server.client();
    greedy.stream().set_write_timeout(Some(Duration::from_millis(500))).expect("a time-out");
    // 200 commands a round ask for 20 MB: 300 rounds for 6 GB, unless writing blocks or fails before.
    let mut rounds = 0;
    while rounds < 300 && greedy.stream().write_all(&input).is_ok() {
        rounds += 1;
        assert_serves(&mut bystander, "a client that does not read");
    }
    assert_serves(&mut bystander, "a client that does not read");
    let growth = server.resident_bytes().saturating_sub(before);
    assert!(growth < GROWTH_MAX, "{} MiB of replies nobody reads after {rounds} rounds", growth >> 20);
}

/// One client sends as fast as it can while another asks now and then.
#[test]
fn a_flooding_client_does_not_starve_others() {
    let server = Server::ours(2);
    let mut bystander = server.client();
    let commands: Vec<words::Command> =
        (0..2000).map(|n| words::parse(&format!("INCR n:{}", n % 100))).collect();
    let input = words::encode_all(&commands);
    std::thread::scope(|scope| {
        let flood = scope.spawn(|| {
            let mut client = server.client();
            for _ in 0..50 {
                client.write(&input).expect("a pipeline");
                for _ in &commands {
                    assert!(matches!(client.read(), Outcome::Reply(_)));
                }
            }
        });
        while !flood.is_finished() {
            assert_serves(&mut bystander, "a flood");
        }
        flood.join().expect("the flooding client was served too");
    });
}

#[test]
fn a_large_value_goes_in_and_out_in_pieces() {
    const LEN: usize = 64 << 20;
    let server = Server::ours(2);
    let mut bystander = server.client();
    let mut client = server.client();
    client.write(format!("*3\r\n$3\r\nSET\r\n$1\r\nk\r\n${LEN}\r\n").as_bytes()).expect("a head");
    let piece: Vec<u8> = (0..1 << 20).map(|n| (n % 251) as u8).collect();
    for number in 0..LEN / piece.len() {
        client.write(&piece).expect("a piece");
        if number % 8 == 0 {
            assert_serves(&mut bystander, "a large value");
        }
    }
    client.write(b"\r\n").expect("the end");
    assert_eq!(client.read(), Outcome::Reply(b"+OK\r\n".to_vec()));
    client.write(b"GET k\r\n").expect("a command");
    let mut head = [0; 11];
    client.stream().read_exact(&mut head).expect("a head");
    assert_eq!(&head, format!("${LEN}\r\n").as_bytes());
    let mut read = vec![0; piece.len()];
    for _ in 0..LEN / piece.len() {
        client.stream().read_exact(&mut read).expect("a piece");
        assert!(read == piece, "a piece differs");
    }
    let mut end = [0; 2];
    client.stream().read_exact(&mut end).expect("the end");
    assert_eq!(&end, b"\r\n");
    client.check("STRLEN k", &format!(":{LEN}\r\n"));
}

#[test]
fn a_connection_closed_by_quit_is_closed_for_good() {
    let server = Server::ours(2);
    let mut client = server.client();
    client.check("QUIT", "+OK\r\n");
    let mut rest = Vec::new();
    match client.stream().read_to_end(&mut rest) {
        Ok(_) => assert!(rest.is_empty(), "after QUIT: {}", rest.escape_ascii()),
        Err(error) => assert_eq!(error.kind(), ErrorKind::ConnectionReset),
    }
}
