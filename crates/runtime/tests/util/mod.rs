//! A server in this process and a small client for it.

use std::io::{BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use corelane_runtime::server::{Server, ServerPlan};

/// Far more than anything here takes; a test that hangs fails instead.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// A server that stops when the test ends.
pub(crate) struct Running {
    server: Option<Server>,
    pub(crate) address: SocketAddr,
}

impl Running {
    pub(crate) fn with_shards(shards: usize) -> Self {
        Self::with_plan(shards, |_| {})
    }

    pub(crate) fn with_plan(shards: usize, change: impl FnOnce(&mut ServerPlan)) -> Self {
        let (mut plan, address) = ServerPlan::local(shards, 0).unwrap();
        change(&mut plan);
        Self { server: Some(Server::start(plan).unwrap()), address }
    }

    pub(crate) fn client(&self) -> Client<TcpStream> {
        Client::new(TcpStream::connect(self.address).unwrap())
    }

    pub(crate) fn server(&self) -> &Server {
        self.server.as_ref().unwrap()
    }

    pub(crate) fn connections(&self) -> Vec<u32> {
        self.server().mesh().connections().collect()
    }

    /// Stops the server and reports how that went.
    pub(crate) fn stop(mut self) {
        let server = self.server.take().unwrap();
        server.stop();
        server.join().unwrap();
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(server) = self.server.take() {
            server.stop();
            let ended = server.join();
            assert!(ended.is_ok() || std::thread::panicking(), "{ended:?}");
        }
    }
}

/// What a client needs of a socket.
pub(crate) trait Socket: Read + Write {
    fn split(&self) -> Self;
    fn be_patient(&self);
}

impl Socket for TcpStream {
    fn split(&self) -> Self {
        self.try_clone().unwrap()
    }
    fn be_patient(&self) {
        self.set_nodelay(true).unwrap();
        self.set_read_timeout(Some(PATIENCE)).unwrap();
        self.set_write_timeout(Some(PATIENCE)).unwrap();
    }
}

impl Socket for std::os::unix::net::UnixStream {
    fn split(&self) -> Self {
        self.try_clone().unwrap()
    }
    fn be_patient(&self) {
        self.set_read_timeout(Some(PATIENCE)).unwrap();
        self.set_write_timeout(Some(PATIENCE)).unwrap();
    }
}

/// Sends commands, reads replies.
pub(crate) struct Client<S: Socket> {
    pub(crate) socket: S,
    input: BufReader<S>,
}

impl<S: Socket> Client<S> {
    pub(crate) fn new(socket: S) -> Self {
        socket.be_patient();
        Self { input: BufReader::new(socket.split()), socket }
    }

    pub(crate) fn send(&mut self, args: &[&[u8]]) {
        self.socket.write_all(&command(args)).unwrap();
    }

    pub(crate) fn ask(&mut self, args: &[&[u8]]) -> Vec<u8> {
        self.send(args);
        self.reply()
    }

    /// One reply that is a line, or a bulk string without its header; `None` for a closed connection.
    pub(crate) fn try_reply(&mut self) -> Option<Vec<u8>> {
        let mut line = Vec::new();
        std::io::BufRead::read_until(&mut self.input, b'\n', &mut line).ok()?;
        let line = line.strip_suffix(b"\r\n")?.to_vec();
        let Some(len) = line.strip_prefix(b"$") else { return Some(line) };
        let len: i64 = std::str::from_utf8(len).unwrap().parse().unwrap();
        if len < 0 {
            return Some(line);
        }
        let mut bulk = vec![0; len as usize + 2];
        self.input.read_exact(&mut bulk).ok()?;
        bulk.truncate(len as usize);
        Some(bulk)
    }

    pub(crate) fn reply(&mut self) -> Vec<u8> {
        self.try_reply().expect("the server closed the connection")
    }

    /// True when the server has closed the connection and there is nothing more to read.
    pub(crate) fn at_end(&mut self) -> bool {
        matches!(self.input.read(&mut [0]), Ok(0) | Err(_))
    }
}

/// A command in the protocol's form.
pub(crate) fn command(args: &[&[u8]]) -> Vec<u8> {
    let mut bytes = format!("*{}\r\n", args.len()).into_bytes();
    for arg in args {
        bytes.extend_from_slice(format!("${}\r\n", arg.len()).as_bytes());
        bytes.extend_from_slice(arg);
        bytes.extend_from_slice(b"\r\n");
    }
    bytes
}

/// Waits until `condition` holds.
pub(crate) fn eventually(what: &str, mut condition: impl FnMut() -> bool) {
    let began = std::time::Instant::now();
    while !condition() {
        assert!(began.elapsed() < PATIENCE, "in vain: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}
