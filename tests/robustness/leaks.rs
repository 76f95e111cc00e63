//! Connections that come and go leave nothing behind.

use crate::common::client::Client;
use crate::common::server::Server;

/// One connect and disconnect in each of the ways clients do it.
fn visit(server: &Server, number: usize) {
    let mut client = server.client();
    match number % 5 {
        0 => {}
        1 => client.check("PING", "+PONG\r\n"),
        2 => client.write(b"*2\r\n$3\r\nGET\r\n$1").expect("half a command"),
        3 => {
            client.check(&format!("SET key:{} value", number % 100), "+OK\r\n");
            client.check("QUIT", "+OK\r\n");
        }
        _ => {
            client.write(b"*1\r\n$-7\r\n").expect("a protocol error");
        }
    }
}

#[test]
fn ten_thousand_connections_leak_neither_descriptors_nor_memory() {
    const WARM_UP: usize = 2000;
    const VISITS: usize = 10_000;
    const GROWTH_MAX: usize = 8 << 20;
    let server = Server::ours(2);
    let baseline = server.descriptor_count();
    (0..WARM_UP).for_each(|number| visit(&server, number));
    let before = settled_resident_bytes(&server, baseline);
    (0..VISITS).for_each(|number| visit(&server, number));
    let after = settled_resident_bytes(&server, baseline);
    let growth = after.saturating_sub(before);
    assert!(growth < GROWTH_MAX, "{} KiB more after {VISITS} connections", growth >> 10);
    server.client().check("PING", "+PONG\r\n");
}

/// Waits until only `baseline` descriptors are open.
fn settled_resident_bytes(server: &Server, baseline: usize) -> usize {
    server.await_descriptors(baseline);
    server.resident_bytes()
}

#[test]
fn waves_of_open_connections_use_the_memory_of_one_wave() {
    const WAVE: usize = 300;
    const GROWTH_MAX: usize = 8 << 20;
    let server = Server::ours(3);
    let baseline = server.descriptor_count();
    let wave = || {
        let mut clients: Vec<Client> = (0..WAVE).map(|_| server.client()).collect();
        for (number, client) in clients.iter_mut().enumerate() {
            client.check(&format!("MSET a:{number} 1 b:{number} 2"), "+OK\r\n");
        }
    };
    (0..3).for_each(|_| wave());
    let before = settled_resident_bytes(&server, baseline);
    (0..10).for_each(|_| wave());
    let growth = settled_resident_bytes(&server, baseline).saturating_sub(before);
    assert!(growth < GROWTH_MAX, "{} KiB more after ten waves", growth >> 10);
}

#[test]
fn keys_that_come_and_go_give_their_memory_back_for_reuse() {
    const GROWTH_MAX: usize = 48 << 20;
    let server = Server::ours(2);
    let mut client = server.client();
    let fill_and_flush = |client: &mut Client, round: usize| {
        for n in 0..200 {
            let line =
                format!("MSET a:{round}:{n} \"v\"*20000 b:{round}:{n} \"w\"*20000 c:{round}:{n} \"x\"*20000");
            client.check(&line, "+OK\r\n");
        }
        client.check("FLUSHALL", "+OK\r\n");
    };
    (0..2).for_each(|round| fill_and_flush(&mut client, round));
    let before = server.resident_bytes();
    (2..20).for_each(|round| fill_and_flush(&mut client, round));
    let growth = server.resident_bytes().saturating_sub(before);
    assert!(growth < GROWTH_MAX, "{} MiB more after filling and flushing", growth >> 20);
}
