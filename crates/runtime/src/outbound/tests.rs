//! Connections to echo servers: whatever is sent comes back, connections are opened anew, and ends are told.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};

use super::*;

/// Sends `requests` times as many bytes as are to come back, on each connection.
struct Echo {
    requests: usize,
    len: usize,
    back: Vec<usize>,
    lost: Vec<Lost>,
    reopen: bool,
    opened: usize,
}

impl Echo {
    fn new(connections: usize, requests: usize, len: usize) -> Self {
        let back = vec![0; connections];
        Self { requests, len, back, lost: Vec::new(), reopen: false, opened: 0 }
    }

    fn done(&self) -> bool {
        self.back.iter().all(|back| *back == self.requests * self.len)
    }
}

impl Traffic for Echo {
    fn batch(&mut self) {}

    fn opened(&mut self, _: usize) -> Next {
        self.opened += 1;
        Next::Send
    }

    fn received(&mut self, idx: usize, bytes: &[u8]) -> Next {
        assert!(bytes.iter().all(|byte| *byte == b'e'));
        self.back[idx] += bytes.len();
        let whole = self.back[idx].is_multiple_of(self.len);
        if !whole || self.back[idx] == self.requests * self.len {
            return Next::Wait;
        }
        if self.reopen { Next::Reopen } else { Next::Send }
    }

    fn fill(&mut self, _: usize, out: &mut Vec<u8>) -> usize {
        out.resize(self.len, b'e');
        self.len
    }

    fn lost(&mut self, _: usize, how: Lost) -> Next {
        self.lost.push(how);
        Next::Close
    }
}

/// An echo server that ends with its last connection.
fn echo_server(connections: usize) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming().take(connections) {
            std::thread::spawn(move || copy(stream.unwrap()));
        }
    });
    address
}

fn copy(mut stream: TcpStream) {
    let mut bytes = vec![0; 1 << 16];
    while let Ok(len @ 1..) = stream.read(&mut bytes) {
        if stream.write_all(&bytes[..len]).is_err() {
            return;
        }
    }
}

fn run(outbound: &mut Outbound, echo: &mut Echo) {
    let began = Instant::now();
    while !echo.done() {
        outbound.turn(echo, Wait::Long).unwrap();
        assert!(began.elapsed() < Duration::from_secs(60), "{:?} came back", echo.back);
    }
}

#[test]
fn what_is_sent_comes_back_whatever_its_size() {
    for (connections, requests, len) in [(1, 100, 5), (40, 20, 300), (3, 4, 5 << 20)] {
        let mut outbound = Outbound::new(Peer::tcp(echo_server(connections))).unwrap();
        let mut echo = Echo::new(connections, requests, len);
        (0..connections).for_each(|_| outbound.open().unwrap());
        run(&mut outbound, &mut echo);
        assert!(echo.lost.is_empty(), "{:?}", echo.lost);
    }
}

#[test]
fn connections_are_opened_anew() {
    let mut outbound = Outbound::new(Peer::tcp(echo_server(12))).unwrap();
    let mut echo = Echo { reopen: true, ..Echo::new(3, 4, 10) };
    (0..3).for_each(|_| outbound.open().unwrap());
    run(&mut outbound, &mut echo);
    assert_eq!((echo.opened, echo.lost.len()), (12, 0));
}

#[test]
fn ends_are_told() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let mut outbound = Outbound::new(Peer::tcp(address)).unwrap();
    let mut echo = Echo::new(1, 1, 1);
    outbound.open().unwrap();
    let server = std::thread::spawn(move || drop((listener.accept().unwrap(), listener)));
    while echo.lost.is_empty() {
        outbound.turn(&mut echo, Wait::Long).unwrap();
    }
    server.join().unwrap();
    outbound.open().unwrap();
    while echo.lost.len() < 2 {
        outbound.turn(&mut echo, Wait::Long).unwrap();
    }
    assert!(matches!(&echo.lost[0], Lost::Closed | Lost::Broken(_)), "{:?}", echo.lost);
    assert!(matches!(&echo.lost[1], Lost::NotOpened(_)), "{:?}", echo.lost);
}
