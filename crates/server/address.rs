//! Where a server is: an address as users write it, as the tools connect to it, and as the load generator takes it.

use std::net::Ipv6Addr;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use crate::client::Client;

/// Where servers are unless they are told otherwise.
const PORT: u16 = 6379;

/// The place of a server.
#[derive(Clone, Debug, PartialEq)]
enum Place {
    Tcp { host: String, port: u16 },
    Unix(PathBuf),
}

/// A server's address with what it takes to be let in.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Address {
    place: Place,
    user: Option<String>,
    password: Option<String>,
    /// The number of the database.
    db: u32,
}

impl Address {
    pub(crate) fn tcp(host: &str, port: u16) -> Self {
        Self { place: Place::Tcp { host: host.to_owned(), port }, user: None, password: None, db: 0 }
    }

    pub(crate) fn unix(path: &Path) -> Self {
        Self { place: Place::Unix(path.to_owned()), user: None, password: None, db: 0 }
    }

    /// Reads `redis://[[USER]:PASSWORD@]HOST[:PORT]`, `HOST[:PORT]`, `unix://PATH` or a path that begins with a slash.
    ///
    /// # Errors
    /// It is none of these.
    pub(crate) fn parse(text: &str) -> Result<Self> {
        if let Some(path) = text.strip_prefix("unix://") {
            return Ok(Self::unix(Path::new(path)));
        }
        if text.starts_with('/') {
            return Ok(Self::unix(Path::new(text)));
        }
        let uri = text.strip_prefix("redis://");
        let rest = uri.unwrap_or(text).trim_end_matches('/');
        if rest.contains("://") {
            bail!("{text} is no address: write redis://HOST:PORT, HOST:PORT or unix://PATH");
        }
        let (access, address) = rest.rsplit_once('@').map_or((None, rest), |(one, two)| (Some(one), two));
        // As redis-cli writes it: who has no use for a database's number takes no notice of it.
        let (address, db) = address.split_once('/').filter(|_| uri.is_some()).unwrap_or((address, "0"));
        let db = db.parse().ok().with_context(|| format!("{db} is no number of a database"))?;
        let (host, port) = host_and_port(address)?;
        if host.is_empty() {
            bail!("no host is named");
        }
        let mut address = Self { db, ..Self::tcp(host, port) };
        if let Some(access) = access {
            let plain = |word: &str| if uri.is_some() { unescaped(word) } else { Ok(word.to_owned()) };
            let (user, password) = access.split_once(':').unwrap_or(("", access));
            address.user = Some(plain(user)?).filter(|user| !user.is_empty());
            address.password = Some(plain(password)?);
        }
        Ok(address)
    }

    /// The same server under the name that another machine has for this one.
    pub(crate) fn under(mut self, name: &str) -> Self {
        if let Place::Tcp { host, .. } = &mut self.place {
            name.clone_into(host);
        }
        self
    }

    /// As it stands in reports: without the password.
    pub(crate) fn shown(&self) -> String {
        match &self.place {
            Place::Tcp { host, port } if host.contains(':') => format!("[{host}]:{port}"),
            Place::Tcp { host, port } => format!("{host}:{port}"),
            Place::Unix(path) => path.display().to_string(),
        }
    }

    /// The options of `corelane bench` that lead there, with what is to stand for a password, if there is one.
    pub(crate) fn words(&self, password: Option<&str>) -> Vec<String> {
        let mut words = match &self.place {
            Place::Tcp { host, port } => {
                vec!["-h".to_owned(), host.clone(), "-p".to_owned(), port.to_string()]
            }
            Place::Unix(path) => vec!["-s".to_owned(), path.display().to_string()],
        };
        if self.db > 0 {
            words.extend(["--dbnum".to_owned(), self.db.to_string()]);
        }
        if let Some(user) = &self.user {
            words.extend(["--user".to_owned(), user.clone()]);
        }
        if let (Some(_), Some(shown)) = (&self.password, password) {
            words.extend(["-a".to_owned(), shown.to_owned()]);
        }
        words
    }

    pub(crate) fn password(&self) -> Option<&str> {
        self.password.as_deref()
    }

    /// The same with a password, unless it has one.
    pub(crate) fn or_password(mut self, password: Option<String>) -> Self {
        self.password = self.password.or(password);
        self
    }

    /// The same for a user, unless it names one.
    pub(crate) fn or_user(mut self, user: Option<&str>) -> Self {
        self.user = self.user.or_else(|| user.map(str::to_owned));
        self
    }

    /// Whether it is reached by a Unix socket.
    pub(crate) fn is_unix(&self) -> bool {
        matches!(self.place, Place::Unix(_))
    }

    /// Connects, and gives the password.
    ///
    /// # Errors
    /// Nobody is there, or it refuses, or wants a password where there is none.
    pub(crate) fn connect(&self) -> Result<Client> {
        let mut client = match &self.place {
            Place::Tcp { .. } => Client::tcp(&self.shown())?,
            Place::Unix(path) => Client::unix(path)?,
        };
        client
            .authenticate(self.user.as_deref(), self.password.as_deref())
            .and_then(|_| client.be_admitted("in REDISCLI_AUTH, or as redis://:PASSWORD@HOST:PORT"))
            .with_context(|| self.shown())?;
        Ok(client)
    }

    /// Whether the server runs on this machine, as far as its address tells.
    pub(crate) fn is_here(&self) -> bool {
        match &self.place {
            Place::Tcp { host, .. } => host == "localhost" || host.starts_with("127.") || host == "::1",
            Place::Unix(_) => true,
        }
    }
}

/// The parts of `HOST[:PORT]`. An address of IPv6 before a port stands in brackets.
fn host_and_port(text: &str) -> Result<(&str, u16)> {
    let (host, port) = match text.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((host, "")) => (host, None),
        Some((host, port)) => (host, Some(port.strip_prefix(':').context("behind a ] stands :PORT")?)),
        None if is_ipv6(text) => (text, None),
        None => text.rsplit_once(':').map_or((text, None), |(host, port)| (host, Some(port))),
    };
    let port = match port {
        None => PORT,
        Some(port) => {
            port.parse().ok().filter(|port| *port > 0).context("the port is no number up to 65535")?
        }
    };
    Ok((host, port))
}

/// An address of IPv6, perhaps with its zone.
fn is_ipv6(text: &str) -> bool {
    let (address, zone) = text.split_once('%').unwrap_or((text, ""));
    address.parse::<Ipv6Addr>().is_ok() && !zone.contains(':')
}

/// Without the escapes of URIs.
///
/// # Errors
/// A % without two digits, or what is no text.
pub(crate) fn unescaped(text: &str) -> Result<String> {
    let mut bytes = Vec::new();
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        if byte != b'%' {
            bytes.push(byte);
            continue;
        }
        let mut digit = || rest.next().and_then(|digit| char::from(digit).to_digit(16));
        let (Some(high), Some(low)) = (digit(), digit()) else {
            bail!("a % in the address's user or password has no two digits behind it: % itself is %25")
        };
        bytes.push((high * 16 + low) as u8);
    }
    String::from_utf8(bytes).context("the address's user or password is no text")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_in_all_their_forms() {
        for (text, shown, words) in [
            ("redis://10.0.0.1:7000", "10.0.0.1:7000", "-h 10.0.0.1 -p 7000"),
            ("localhost:1", "localhost:1", "-h localhost -p 1"),
            ("redis://cache", "cache:6379", "-h cache -p 6379"),
            ("redis://[::1]:7/", "[::1]:7", "-h ::1 -p 7"),
            ("redis://:p:w@h:1", "h:1", "-h h -p 1 -a (redacted)"),
            ("redis://me:pw@h:1", "h:1", "-h h -p 1 --user me -a (redacted)"),
            ("unix:///run/c.sock", "/run/c.sock", "-s /run/c.sock"),
            ("/run/c.sock", "/run/c.sock", "-s /run/c.sock"),
            ("::1", "[::1]:6379", "-h ::1 -p 6379"),
            ("[::1]", "[::1]:6379", "-h ::1 -p 6379"),
            ("2001:db8::5:6", "[2001:db8::5:6]:6379", "-h 2001:db8::5:6 -p 6379"),
            ("[2001:db8:0:0:0:0:5:6]", "[2001:db8:0:0:0:0:5:6]:6379", "-h 2001:db8:0:0:0:0:5:6 -p 6379"),
            ("fe80::1%eth0", "[fe80::1%eth0]:6379", "-h fe80::1%eth0 -p 6379"),
            ("fe80::1%eth0:7", "[fe80::1%eth0]:7", "-h fe80::1%eth0 -p 7"),
            ("redis://h:7/", "h:7", "-h h -p 7"),
            ("redis://h:7/3", "h:7", "-h h -p 7 --dbnum 3"),
            ("redis://h/0", "h:6379", "-h h -p 6379"),
        ] {
            let address = Address::parse(text).unwrap();
            assert_eq!(
                (address.shown(), address.words(Some("(redacted)")).join(" ")),
                (shown.to_owned(), words.to_owned())
            );
        }
        let address = Address::parse("redis://:p:w@h:1").unwrap().or_password(Some("other".to_owned()));
        assert_eq!((address.password(), address.words(None).len()), (Some("p:w"), 4));
        let address = Address::parse("redis://m%65:p%40%25@h").unwrap();
        assert_eq!((address.user.as_deref(), address.password()), (Some("me"), Some("p@%")));
        assert_eq!(Address::parse("me:5%@h").unwrap().password(), Some("5%"));
        for bad in ["", "http://x", "h:0", "h:70000", "h:x", ":1", "redis://h/x", "redis://:5%@h", "[::1]7"] {
            assert!(Address::parse(bad).is_err(), "{bad}");
        }
    }
}
