//! A small blocking client: whatever redis-benchmark cannot do (filling, idling, reading INFO).

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use anyhow::{Context, Result, bail};

/// Longest wait for one reply: FLUSHALL of 20 M keys, or a value of 512 MB, on a slow machine.
const REPLY_WAIT: Duration = Duration::from_secs(120);

/// Requests that are on their way at once while filling.
const FILL_BATCH: u64 = 500;

/// What is spoken on the port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Protocol {
    Resp,
    Memcached,
}

/// One connection.
#[derive(Debug)]
pub(crate) struct Client {
    stream: BufReader<TcpStream>,
    protocol: Protocol,
}

impl Client {
    pub(crate) fn connect(port: u16, protocol: Protocol) -> Result<Self> {
        let stream = TcpStream::connect(("127.0.0.1", port))
            .with_context(|| format!("cannot connect to port {port}"))?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(REPLY_WAIT))?;
        // Small buffer: there may be thousands of these.
        Ok(Self { stream: BufReader::with_capacity(4096, stream), protocol })
    }

    /// One round trip that touches no key.
    pub(crate) fn ping(&mut self) -> Result<()> {
        let request: &[u8] = match self.protocol {
            Protocol::Resp => b"*1\r\n$4\r\nPING\r\n",
            Protocol::Memcached => b"version\r\n",
        };
        self.send(request)?;
        let reply = self.line()?;
        if reply.starts_with("+PONG") || reply.starts_with("VERSION") {
            return Ok(());
        }
        bail!("PING was answered with {reply:?}")
    }

    /// Sends one command of words and returns its reply: the text of a status, integer or bulk.
    ///
    /// # Errors
    /// Error replies, replies of other types, and a connection that breaks.
    pub(crate) fn command(&mut self, words: &[&str]) -> Result<String> {
        let mut request = format!("*{}\r\n", words.len());
        for word in words {
            request.push_str(&format!("${}\r\n{word}\r\n", word.len()));
        }
        self.send(request.as_bytes())?;
        let head = self.line()?;
        match head.split_at_checked(1) {
            Some(("+" | ":", text)) => Ok(text.to_owned()),
            Some(("$", length)) => {
                let length: usize = length.parse().with_context(|| format!("a bulk of length {length:?}"))?;
                let mut body = vec![0; length + 2];
                self.stream.read_exact(&mut body)?;
                body.truncate(length);
                Ok(String::from_utf8_lossy(&body).into_owned())
            }
            _ => bail!("{} was answered with {head:?}", words.join(" ")),
        }
    }

    /// Sets one key to `length` times `x`, sent in pieces of 1 MiB.
    pub(crate) fn set_big(&mut self, key: &str, length: u64) -> Result<()> {
        self.send(format!("*3\r\n$3\r\nSET\r\n${}\r\n{key}\r\n${length}\r\n", key.len()).as_bytes())?;
        let piece = vec![b'x'; 1 << 20];
        let mut left = length;
        while left > 0 {
            let size = left.min(piece.len() as u64);
            self.send(&piece[..usize::try_from(size)?])?;
            left -= size;
        }
        self.send(b"\r\n")?;
        let reply = self.line()?;
        if reply == "+OK" { Ok(()) } else { bail!("SET of {length} bytes was answered with {reply:?}") }
    }

    /// Sends commands whose words are separated by single spaces, many at a time. What they answer does not matter unless it is an
    /// error.
    pub(crate) fn pipelined(&mut self, commands: impl Iterator<Item = String>) -> Result<()> {
        let (mut request, mut sent) = (Vec::new(), 0);
        let mut commands = commands.peekable();
        while let Some(command) = commands.next() {
            let words: Vec<&str> = command.split(' ').collect();
            write!(request, "*{}\r\n", words.len())?;
            for word in words {
                write!(request, "${}\r\n{word}\r\n", word.len())?;
            }
            sent += 1;
            if sent < FILL_BATCH && commands.peek().is_some() {
                continue;
            }
            self.send(&request)?;
            for _ in 0..std::mem::take(&mut sent) {
                let reply = self.line()?;
                if reply.starts_with('-') {
                    bail!("a command while filling was answered with {reply:?}");
                }
            }
            request.clear();
        }
        Ok(())
    }

    /// Sets `key:000000000000` and the `count - 1` after it to values of `value_bytes`: the keys of redis-benchmark.
    /// With a TTL they expire in the next week, long after everything here has ended.
    pub(crate) fn fill(&mut self, count: u64, value_bytes: u64, ttl: bool) -> Result<()> {
        const WEEK_S: u64 = 7 * 24 * 3600;
        let value = "x".repeat(usize::try_from(value_bytes)?);
        let batch_max = if value_bytes > 4096 { 8 } else { FILL_BATCH };
        let mut request = Vec::new();
        for start in (0..count).step_by(usize::try_from(batch_max)?) {
            let end = (start + batch_max).min(count);
            request.clear();
            for number in start..end {
                let words = if ttl { 5 } else { 3 };
                match self.protocol {
                    Protocol::Resp => {
                        write!(request, "*{words}\r\n$3\r\nSET\r\n$16\r\nkey:{number:012}\r\n")?;
                        write!(request, "${value_bytes}\r\n{value}\r\n")?;
                        if ttl {
                            write!(request, "$2\r\nEX\r\n$6\r\n{WEEK_S:06}\r\n")?;
                        }
                    }
                    Protocol::Memcached => {
                        let seconds = if ttl { WEEK_S } else { 0 };
                        write!(request, "set key:{number:012} 0 {seconds} {value_bytes}\r\n{value}\r\n")?;
                    }
                }
            }
            self.send(&request)?;
            for _ in start..end {
                let reply = self.line()?;
                if reply != "+OK" && reply != "STORED" {
                    bail!("a SET while filling was answered with {reply:?}");
                }
            }
        }
        Ok(())
    }

    fn send(&mut self, bytes: &[u8]) -> Result<()> {
        self.stream.get_mut().write_all(bytes).context("the server stopped reading")
    }

    /// The next line of the reply, without its end.
    fn line(&mut self) -> Result<String> {
        let mut line = String::new();
        if self.stream.read_line(&mut line).context("no reply")? == 0 {
            bail!("the server closed the connection");
        }
        line.truncate(line.trim_end().len());
        Ok(line)
    }
}
