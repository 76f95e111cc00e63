//! The server to be loaded: found, asked for two of its settings, and refused or taken before any load begins.

use std::io::ErrorKind;
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use corelane_load::LoadError;
use corelane_resp::Frame;
use corelane_runtime::outbound::Peer;

use super::options::Options;
use crate::address::unescaped;
use crate::client::Client;

/// How long a server may take to accept the first connection.
const CONNECT_MAX: Duration = Duration::from_millis(900);

/// A server that is there and lets us in.
pub(super) struct Target {
    pub(super) peer: Peer,
    /// As a person writes it.
    pub(super) name: String,
    pub(super) user: Option<String>,
    pub(super) password: Option<String>,
    pub(super) db: u32,
    /// What it says of its settings `save` and `appendonly`.
    pub(super) host: Vec<(String, String)>,
}

impl Target {
    /// Connects, authenticates and asks.
    ///
    /// # Errors
    /// The server cannot be reached, or does not let us in.
    pub(super) fn find(options: &Options) -> Result<Self> {
        let mut place = Place {
            host: options.host.clone(),
            port: options.port,
            user: options.user.clone(),
            password: options.password.clone(),
            db: options.dbnum,
        };
        if let Some(uri) = &options.uri {
            place = place.overridden(uri)?;
        }
        let (peer, name, mut client) = match &options.socket {
            Some(path) => (Peer::unix(path)?, path.display().to_string(), Client::unix(path)?),
            None => {
                let name = format!("{}:{}", place.host, place.port);
                let address = reach(&place, &name)?;
                (Peer::tcp(address), name, Client::tcp(&address.to_string())?)
            }
        };
        if place.password.is_none() && place.user.take().is_some() {
            eprintln!("corelane bench: --user without a password (-a) is not used");
        }
        if !client
            .authenticate(place.user.as_deref(), place.password.as_deref())
            .with_context(|| name.clone())?
        {
            place.password = None;
        }
        let host = settings(&mut client).with_context(|| name.clone())?;
        Ok(Self { peer, name, user: place.user, password: place.password, db: place.db, host })
    }
}

/// The settings that redis-benchmark shows. A server that does not know them is none the worse for it.
fn settings(client: &mut Client) -> Result<Vec<(String, String)>> {
    let mut known = Vec::new();
    for setting in ["save", "appendonly"] {
        match client.ask(&["CONFIG", "GET", setting])? {
            Frame::Error(error) if error.starts_with(b"NOAUTH") => {
                bail!("the server wants a password (-a): {}", String::from_utf8_lossy(&error))
            }
            Frame::Array(words) => {
                if let [Frame::Bulk(name), Frame::Bulk(value)] = &words[..] {
                    let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
                    known.push((text(name), text(value)));
                }
            }
            _ => {}
        }
    }
    Ok(known)
}

/// The first address of a host that accepts.
fn reach(place: &Place, name: &str) -> Result<SocketAddr> {
    let addresses = (place.host.as_str(), place.port).to_socket_addrs();
    let addresses = addresses.with_context(|| format!("the host {} is not known", place.host))?;
    let mut failure = anyhow!("{} has no address", place.host);
    for address in addresses {
        match TcpStream::connect_timeout(&address, CONNECT_MAX) {
            Ok(_) => return Ok(address),
            Err(error) if error.kind() == ErrorKind::AddrNotAvailable => failure = LoadError::Ports.into(),
            Err(error) => failure = anyhow!(error).context(format!("cannot connect to {name}")),
        }
    }
    Err(failure)
}

/// Where a server is and who we are there.
#[derive(Clone, Debug, PartialEq)]
struct Place {
    host: String,
    port: u16,
    user: Option<String>,
    password: Option<String>,
    db: u32,
}

impl Place {
    /// With what a URI says.
    fn overridden(mut self, uri: &str) -> Result<Self> {
        let rest = uri.strip_prefix("redis://").or_else(|| uri.strip_prefix("valkey://"));
        let rest = rest.with_context(|| format!("{uri} does not begin with redis:// (TLS is not spoken)"))?;
        let (place, db) = rest.split_once('/').unwrap_or((rest, ""));
        let (who, place) = place.rsplit_once('@').map_or((None, place), |(who, place)| (Some(who), place));
        if let Some(who) = who {
            let (user, password) = who.split_once(':').unwrap_or(("", who));
            self.user = Some(unescaped(user)?).filter(|user| !user.is_empty());
            self.password = Some(unescaped(password)?);
        }
        let (host, port) = match place.rsplit_once(':') {
            Some((host, port)) if !port.ends_with(']') => (host, Some(port)),
            _ => (place, None),
        };
        let host = host.trim_start_matches('[').trim_end_matches(']');
        if !host.is_empty() {
            host.clone_into(&mut self.host);
        }
        if let Some(port) = port {
            self.port = port.parse().with_context(|| format!("{port} is not a port"))?;
        }
        if !db.is_empty() {
            self.db = db.parse().with_context(|| format!("{db} is not a database"))?;
        }
        Ok(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_uri_says_where_and_who() {
        let plain = Place { host: "h".into(), port: 1, user: None, password: None, db: 0 };
        let read = |uri: &str| plain.clone().overridden(uri);
        let place = read("redis://me:s%40cret@example.org:7000/3").unwrap();
        let who = (place.user.as_deref(), place.password.as_deref());
        assert_eq!((place.host.as_str(), place.port, place.db), ("example.org", 7000, 3));
        assert_eq!(who, (Some("me"), Some("s@cret")));
        assert_eq!(read("redis://:pw@[::1]").unwrap().host, "::1");
        assert_eq!(read("redis://:pw@[::1]:9").unwrap().port, 9);
        assert_eq!(read("redis://:pw@x").unwrap().user, None);
        assert_eq!(read("redis://").unwrap(), plain);
        for bad in ["rediss://x", "x:1", "redis://x:port", "redis://x/db", "redis://%4@x"] {
            assert!(read(bad).is_err(), "{bad}");
        }
    }
}
