//! A connection of the tools to a server that speaks RESP: one request at a time, blocking.

use std::fmt::{self, Display, Formatter};
use std::io::{self, ErrorKind, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};
use corelane_resp::{Frame, decode, encode_command};

/// How long to wait for a connection or an answer.
const PATIENCE: Duration = Duration::from_secs(5);

/// Where redis-cli, and the tools here, find a password.
pub(crate) const PASSWORD_VARIABLE: &str = "REDISCLI_AUTH";

/// A server's error reply to a command that it was asked.
#[derive(Debug)]
pub(crate) struct Refusal(String);

impl Display for Refusal {
    fn fmt(&self, out: &mut Formatter<'_>) -> fmt::Result {
        out.write_str(&self.0)
    }
}

impl std::error::Error for Refusal {}

impl Refusal {
    fn new(words: &[&str], error: &[u8]) -> Self {
        Self(format!("{}: {}", words.join(" "), String::from_utf8_lossy(error).trim_end()))
    }
}

trait Stream: Read + Write + Send {
    fn wait_at_most(&self, time: Duration) -> io::Result<()>;
}

impl Stream for TcpStream {
    fn wait_at_most(&self, time: Duration) -> io::Result<()> {
        self.set_read_timeout(Some(time))
    }
}

impl Stream for UnixStream {
    fn wait_at_most(&self, time: Duration) -> io::Result<()> {
        self.set_read_timeout(Some(time))
    }
}

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

    /// Gives the password, if there is one to be given; with a user's name, that user's. False if there was none, or it was
    /// that of the environment and the server has none.
    ///
    /// # Errors
    /// The server refuses it.
    pub(crate) fn authenticate(&mut self, user: Option<&str>, password: Option<&str>) -> Result<bool> {
        let Some(password) = password else { return Ok(false) };
        let words: Vec<&str> = ["AUTH"].into_iter().chain(user).chain([password]).collect();
        match self.ask(&words)? {
            Frame::Error(error) if user.is_none() && is_needless(&error) && is_of_environment(password) => {
                Ok(false)
            }
            Frame::Error(error) => {
                bail!("the server refuses the password: {}", String::from_utf8_lossy(&error))
            }
            _ => Ok(true),
        }
    }

    /// Looks whether commands are obeyed.
    ///
    /// # Errors
    /// The server wants a password first; `how` says how one is given to this tool.
    pub(crate) fn be_admitted(&mut self, how: &str) -> Result<()> {
        match self.ask(&["PING"])? {
            Frame::Error(error) if error.starts_with(b"NOAUTH") => {
                bail!("the server wants a password ({how}): {}", String::from_utf8_lossy(&error))
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
        self.stream.write_all(&request).map_err(described)?;
        loop {
            let decoded = decode(&self.received).context("what is there does not speak Redis's protocol")?;
            if let Some((frame, len)) = decoded {
                self.received.drain(..len);
                return Ok(frame);
            }
            let mut piece = [0; 16 << 10];
            match self.stream.read(&mut piece) {
                Ok(0) => bail!("the server has closed the connection"),
                Ok(len) => self.received.extend_from_slice(&piece[..len]),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(described(error)),
            }
        }
    }

    /// Itself, if a PING is answered within that time, be it with an error such as NOAUTH.
    pub(crate) fn if_it_answers(mut self, time: Duration) -> Option<Self> {
        self.stream.wait_at_most(time).ok()?;
        self.ask(&["PING"]).ok()?;
        self.stream.wait_at_most(PATIENCE).ok()?;
        Some(self)
    }

    /// Waits for so long, and not after the server's end.
    ///
    /// # Errors
    /// The server has closed the connection, or says what it was not asked.
    pub(crate) fn rest(&mut self, time: Duration) -> Result<()> {
        let end = Instant::now() + time;
        loop {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(());
            }
            self.stream.wait_at_most(left)?;
            let read = self.stream.read(&mut [0; 64]);
            self.stream.wait_at_most(PATIENCE)?;
            match read {
                Ok(0) => bail!("the server has closed the connection"),
                Ok(_) => bail!("the server has said something that it was not asked"),
                // A signal: whoever waits may have to end.
                Err(error) if error.kind() == ErrorKind::Interrupted => return Ok(()),
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {}
                Err(error) => return Err(error).context("the server has closed the connection"),
            }
        }
    }

    /// [`Self::ask`] for a command whose reply is text.
    ///
    /// # Errors
    /// As above, or the reply is an error, which is a [`Refusal`], or something else.
    pub(crate) fn text(&mut self, words: &[&str]) -> Result<String> {
        match self.ask(words)? {
            Frame::Simple(text) | Frame::Bulk(text) | Frame::Verbatim { text, .. } => {
                Ok(String::from_utf8_lossy(&text).into_owned())
            }
            Frame::Error(error) => Err(Refusal::new(words, &error).into()),
            other => bail!("{} was answered with {other:?}", words.join(" ")),
        }
    }

    /// The same for a command whose reply is an array of names and values. Names within a value that is one itself stand behind
    /// its own and a point.
    ///
    /// # Errors
    /// As above.
    pub(crate) fn pairs(&mut self, words: &[&str]) -> Result<Vec<(String, String)>> {
        let elements = match self.ask(words)? {
            Frame::Array(elements) => elements,
            Frame::Error(error) => return Err(Refusal::new(words, &error).into()),
            other => bail!("{} was answered with {other:?}", words.join(" ")),
        };
        let mut pairs = Vec::new();
        flatten(&elements, "", &mut pairs);
        Ok(pairs)
    }
}

/// Whether the server has no password, by its answer to AUTH.
fn is_needless(error: &[u8]) -> bool {
    error.starts_with(b"ERR AUTH <password> called without any password configured")
        || error.starts_with(b"ERR Client sent AUTH, but no password is set")
}

/// Whether a password may be one that was not given for this server in particular.
fn is_of_environment(password: &str) -> bool {
    std::env::var(PASSWORD_VARIABLE).is_ok_and(|common| common == password)
}

fn flatten(elements: &[Frame], prefix: &str, pairs: &mut Vec<(String, String)>) {
    for pair in elements.chunks_exact(2) {
        let name = format!("{prefix}{}", plain(&pair[0]));
        match &pair[1] {
            Frame::Array(inner) if inner.len().is_multiple_of(2) => {
                flatten(inner, &format!("{name}."), pairs)
            }
            value => pairs.push((name, plain(value))),
        }
    }
}

/// A value in one line.
fn plain(frame: &Frame) -> String {
    match frame {
        Frame::Simple(text) | Frame::Bulk(text) => String::from_utf8_lossy(text).into_owned(),
        Frame::Int(int) => int.to_string(),
        Frame::Array(elements) => elements.iter().map(plain).collect::<Vec<_>>().join(" "),
        Frame::Null => "-".to_owned(),
        other => format!("{other:?}"),
    }
}

/// Why a connection is of no use, in words: a limit of time is no fault of the system.
fn described(error: io::Error) -> anyhow::Error {
    match error.kind() {
        ErrorKind::WouldBlock | ErrorKind::TimedOut => {
            anyhow!("the server gives no answer within {} s", PATIENCE.as_secs())
        }
        _ => anyhow!(error).context("the server has closed the connection"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_that_are_pairs_again_have_names_of_their_own() {
        let text = |text: &str| Frame::Bulk(text.to_owned().into_bytes().into());
        let inner = Frame::Array(vec![text("main"), Frame::Int(72), text("expires"), Frame::Int(0)]);
        let words = Frame::Array(vec![text("a"), text("b"), text("c")]);
        let all = [text("peak"), Frame::Int(9), text("db.0"), inner, text("rest"), words];
        let mut pairs = Vec::new();
        flatten(&all, "", &mut pairs);
        let shown: Vec<String> = pairs.iter().map(|(name, value)| format!("{name}={value}")).collect();
        assert_eq!(shown, ["peak=9", "db.0.main=72", "db.0.expires=0", "rest=a b c"]);
    }
}
