//! A server without descriptors left. Alone in its process, since it lowers the limit of the process.

use std::fs::File;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::Command;
use std::time::{Duration, Instant};

use corelane_runtime::server::{Server, ServerPlan};
use socket2::{Domain, Socket, Type};

/// Enough for the server and the clients; what is left is used up before the clients connect.
const LIMIT: usize = 256;
const CLIENTS: usize = 20;
const ROOM: usize = 6;

fn limit_descriptors() {
    let pid = std::process::id().to_string();
    let limit = Command::new("prlimit").args(["--pid", &pid, &format!("--nofile={LIMIT}:")]).status();
    assert!(limit.unwrap().success());
}

fn ping(client: &mut TcpStream) {
    client.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    client.write_all(b"PING\r\n").unwrap();
    let mut reply = [0; 7];
    client.read_exact(&mut reply).unwrap();
    assert_eq!(&reply, b"+PONG\r\n");
}

#[test]
fn connections_beyond_the_limit_wait_until_there_is_room() {
    limit_descriptors();
    let (plan, address) = ServerPlan::local(1, 0).unwrap();
    let server = Server::start(plan).unwrap();
    let served = || server.mesh().connections().sum::<u32>() as usize;
    let sockets: Vec<_> =
        (0..CLIENTS).map(|_| Socket::new(Domain::IPV4, Type::STREAM, None).unwrap()).collect();
    let room: Vec<_> = (0..ROOM).map(|_| File::open("/dev/null").unwrap()).collect();
    let full: Vec<_> = std::iter::from_fn(|| File::open("/dev/null").ok()).collect();
    drop(room);

    for socket in &sockets {
        socket.connect(&address.into()).unwrap();
    }
    // The kernel hands connections out in the order in which they came.
    let mut clients: Vec<_> = sockets.into_iter().map(TcpStream::from).collect();
    clients[..ROOM].iter_mut().for_each(ping);
    std::thread::sleep(Duration::from_millis(200));
    assert_eq!(served(), ROOM, "there is room for no more");
    clients[..ROOM].iter_mut().for_each(ping);

    drop(full);
    clients.iter_mut().for_each(ping);
    assert_eq!(served(), CLIENTS);
    drop(clients);
    let began = Instant::now();
    while served() > 0 {
        assert!(began.elapsed() < Duration::from_secs(30));
        std::thread::sleep(Duration::from_millis(5));
    }
    server.stop();
    server.join().unwrap();
}
