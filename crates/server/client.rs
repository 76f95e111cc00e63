//! A connection of the tools to a server that speaks RESP: one request at a time, blocking.

use std::io::{ErrorKind, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use corelane_resp::{Frame, decode, encode_command};

/// How long to wait for a connection or an answer.
const PATIENCE: Duration = Duration::from_secs(5);

trait Stream: Read + Write + Send {}
impl<T: Read + Write + Send> Stream for T {}

/// One connection.
pub(crate) struct Client {
    stream: Box<dyn Stream>,
    received: Vec<u8>,
}

impl Client {
    /// Connects over TCP.
    ///
    /// # Errors
    /// Not an address, or nobody there.
    pub(crate) fn tcp(address: &str) -> Result<Self> {
        let addresses = address
            .to_socket_addrs()
            .with_context(|| format!("{address} is not HOST:PORT, or the host is not known"))?;
        let mut failure = None;
        for place in addresses {
            match TcpStream::connect_timeout(&place, PATIENCE) {
                Ok(stream) => {
                    stream.set_nodelay(true)?;
                    stream.set_read_timeout(Some(PATIENCE))?;
                    stream.set_write_timeout(Some(PATIENCE))?;
                    return Ok(Self { stream: Box::new(stream), received: Vec::new() });
                }
                Err(error) => failure = Some(error),
            }
        }
        match failure {
            Some(error) => Err(error).with_context(|| format!("cannot connect to {address}")),
            None => bail!("{address} has no address"),
        }
    }

    /// Connects to a Unix socket.
    ///
    /// # Errors
    /// Nobody listens there.
    pub(crate) fn unix(path: &Path) -> Result<Self> {
        let stream =
            UnixStream::connect(path).with_context(|| format!("cannot connect to {}", path.display()))?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        Ok(Self { stream: Box::new(stream), received: Vec::new() })
    }

    /// Gives the password, if there is one to be given.
    ///
    /// # Errors
    /// The server refuses it.
    pub(crate) fn authenticate(&mut self, password: Option<&str>) -> Result<()> {
        let Some(password) = password else { return Ok(()) };
        match self.ask(&["AUTH", password])? {
            Frame::Error(error) => {
                bail!("the server refuses the password: {}", String::from_utf8_lossy(&error))
            }
            _ => Ok(()),
        }
    }

    /// Sends a command and waits for its reply, which may be an error.
    ///
    /// # Errors
    /// The connection breaks, or nothing comes for five seconds.
    pub(crate) fn ask(&mut self, words: &[&str]) -> Result<Frame> {
        let mut request = Vec::new();
        encode_command(&mut request, words);
        self.stream.write_all(&request).context("the server has closed the connection")?;
        loop {
            if let Some((frame, len)) = decode(&self.received)? {
                self.received.drain(..len);
                return Ok(frame);
            }
            let mut piece = [0; 16 << 10];
            match self.stream.read(&mut piece) {
                Ok(0) => bail!("the server has closed the connection"),
                Ok(len) => self.received.extend_from_slice(&piece[..len]),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error).context("the server does not answer"),
            }
        }
    }

    /// The same for a command whose reply is text.
    ///
    /// # Errors
    /// As above, or the reply is an error or something else.
    pub(crate) fn text(&mut self, words: &[&str]) -> Result<String> {
        match self.ask(words)? {
            Frame::Simple(text) | Frame::Bulk(text) | Frame::Verbatim { text, .. } => {
                Ok(String::from_utf8_lossy(&text).into_owned())
            }
            Frame::Error(error) => bail!("{}: {}", words.join(" "), String::from_utf8_lossy(&error)),
            other => bail!("{} was answered with {other:?}", words.join(" ")),
        }
    }

    /// The same for a command whose reply is a flat array of names and values.
    ///
    /// # Errors
    /// As above.
    pub(crate) fn pairs(&mut self, words: &[&str]) -> Result<Vec<(String, String)>> {
        let elements = match self.ask(words)? {
            Frame::Array(elements) => elements,
            Frame::Error(error) => bail!("{}: {}", words.join(" "), String::from_utf8_lossy(&error)),
            other => bail!("{} was answered with {other:?}", words.join(" ")),
        };
        let text = |frame: &Frame| match frame {
            Frame::Simple(text) | Frame::Bulk(text) => String::from_utf8_lossy(text).into_owned(),
            Frame::Int(int) => int.to_string(),
            other => format!("{other:?}"),
        };
        Ok(elements.chunks_exact(2).map(|pair| (text(&pair[0]), text(&pair[1]))).collect())
    }
}
