//! A blocking client that hands back reply bytes as they came.

use std::fmt;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::Duration;

use super::resp::{self, Value};
use super::words;

/// How long a reply may take before the test calls the server hung.
pub(crate) const REPLY_MS_MAX: u64 = 20_000;

/// What came back for one command.
#[derive(Clone, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// One whole reply, byte for byte.
    Reply(Vec<u8>),
    /// The server closed the connection instead.
    Closed,
    /// Nothing whole within [`REPLY_MS_MAX`].
    Hung,
}

impl fmt::Debug for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Reply(raw) => write!(f, "{}", raw.escape_ascii()),
            Self::Closed => write!(f, "(closed)"),
            Self::Hung => write!(f, "(no reply)"),
        }
    }
}

impl Outcome {
    /// The decoded reply, where there was one.
    pub(crate) fn value(&self) -> Option<Value> {
        match self {
            Self::Reply(raw) => Some(resp::decode_whole(raw)),
            Self::Closed | Self::Hung => None,
        }
    }
}

/// One connection.
#[derive(Debug)]
pub(crate) struct Client {
    stream: TcpStream,
    pending: Vec<u8>,
}

impl Client {
    pub(crate) fn connect(port: u16) -> Self {
        Self::try_connect(port).expect("connect")
    }

    pub(crate) fn try_connect(port: u16) -> io::Result<Self> {
        let stream = TcpStream::connect(("127.0.0.1", port))?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(Duration::from_millis(REPLY_MS_MAX)))?;
        stream.set_write_timeout(Some(Duration::from_millis(REPLY_MS_MAX)))?;
        Ok(Self { stream, pending: Vec::new() })
    }

    /// Writes bytes as they are. A server that has closed makes this fail, which the next read reports.
    pub(crate) fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.stream.write_all(bytes)
    }

    /// Says that nothing more will be written.
    pub(crate) fn finish(&self) {
        // Fails only where the server has closed already.
        let _ = self.stream.shutdown(Shutdown::Write);
    }

    /// The next whole reply.
    pub(crate) fn read(&mut self) -> Outcome {
        loop {
            if let Some((_, used)) = resp::decode(&self.pending).expect("a well-formed reply") {
                return Outcome::Reply(self.pending.drain(..used).collect());
            }
            match self.fill() {
                Ok(0) => return Outcome::Closed,
                Ok(_) => {}
                Err(error) if is_timeout(&error) => return Outcome::Hung,
                Err(_) => return Outcome::Closed,
            }
        }
    }

    /// Everything until the server closes; `None` if it does not.
    pub(crate) fn read_to_close(&mut self) -> Option<Vec<u8>> {
        loop {
            match self.fill() {
                Ok(0) => return Some(std::mem::take(&mut self.pending)),
                Ok(_) => {}
                Err(error) if is_timeout(&error) => return None,
                Err(_) => return Some(std::mem::take(&mut self.pending)),
            }
        }
    }

    fn fill(&mut self) -> io::Result<usize> {
        let mut chunk = [0; 16 << 10];
        loop {
            match self.stream.read(&mut chunk) {
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
                Ok(count) => {
                    self.pending.extend_from_slice(&chunk[..count]);
                    return Ok(count);
                }
            }
        }
    }

    /// Sends one command and waits for what comes back.
    pub(crate) fn call(&mut self, command: &[Vec<u8>]) -> Outcome {
        if self.write(&words::encode(command)).is_err() {
            return Outcome::Closed;
        }
        self.read()
    }

    /// Sends a redis-cli line and decodes its reply, which must come.
    pub(crate) fn run(&mut self, line: &str) -> Value {
        let outcome = self.call(&words::parse(line));
        outcome.value().unwrap_or_else(|| panic!("{line}: {outcome:?}"))
    }

    /// Asserts that a redis-cli line is answered with exactly these bytes.
    pub(crate) fn check(&mut self, line: &str, expected: &str) {
        let outcome = self.call(&words::parse(line));
        let Outcome::Reply(raw) = &outcome else { panic!("{line}: {outcome:?}") };
        assert_eq!(raw.escape_ascii().to_string(), expected.as_bytes().escape_ascii().to_string(), "{line}");
    }

    /// The raw socket, for tests that misbehave on purpose.
    pub(crate) fn stream(&mut self) -> &mut TcpStream {
        &mut self.stream
    }
}

fn is_timeout(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut)
}
