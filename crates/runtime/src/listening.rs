//! Where a running server listens, which CONFIG SET may change. The first shard has a second descriptor of every shard's TCP
//! sockets: it has those that are to go let go of their addresses, binds the new ones, and puts the old ones back if that fails.
//! The shards are told afterwards; until then their old sockets accept nobody, and the kernel queues who comes to the new ones.

use std::cell::RefCell;
use std::fmt;
use std::io;
use std::net::{Shutdown, SocketAddr};
use std::os::fd::OwnedFd;
use std::path::PathBuf;

use corelane_engine::config::Config;
use socket2::SockRef;

use crate::listen::{ListenError, Listeners, Place, listen_at, places};
use crate::mesh::PeerKind;

thread_local! {
    /// The first shard's; nothing on other threads.
    static HERE: RefCell<Option<Listening>> = const { RefCell::new(None) };
}

/// The TCP sockets of all shards.
#[derive(Debug)]
pub struct Listening {
    tcp: Vec<Bound>,
    unix: Option<PathBuf>,
    backlog: u32,
    /// How many shards accept, and how many there are.
    accepting: usize,
    shards: usize,
    /// What the shards have not been told yet.
    moves: Vec<(usize, Box<Move>)>,
}

/// One address, and a descriptor of each accepting shard's socket there.
#[derive(Debug)]
struct Bound {
    address: SocketAddr,
    sockets: Vec<OwnedFd>,
}

impl Bound {
    /// Second descriptors of the shards' sockets at an address, which have this index in their lists.
    fn of(address: SocketAddr, idx: usize, per_shard: &[Vec<(OwnedFd, PeerKind)>]) -> io::Result<Self> {
        let copies = per_shard.iter().map(|sockets| sockets[idx].0.try_clone());
        Ok(Self { address, sockets: copies.collect::<io::Result<_>>()? })
    }
}

/// What changes for one shard.
#[derive(Debug)]
pub(crate) struct Move {
    /// Addresses where nobody listens any more.
    pub(crate) left: Vec<SocketAddr>,
    /// Sockets that listen now.
    pub(crate) sockets: Vec<(OwnedFd, PeerKind)>,
    /// What INFO says about all of them.
    pub(crate) info: Vec<(&'static str, String)>,
}

impl Listening {
    /// Takes note of the sockets that a server starts with.
    ///
    /// # Errors
    /// Too few descriptors.
    pub fn of(listeners: &Listeners, backlog: u32) -> io::Result<Self> {
        let shards = listeners.per_shard.len();
        let accepting = listeners.accept.accepting(shards);
        let per_shard = &listeners.per_shard[..accepting];
        let tcp =
            listeners.addresses.iter().enumerate().map(|(idx, &address)| Bound::of(address, idx, per_shard));
        Ok(Self {
            tcp: tcp.collect::<io::Result<_>>()?,
            unix: listeners.unix_file.as_ref().map(|file| file.path().to_owned()),
            backlog,
            accepting,
            shards,
            moves: Vec::new(),
        })
    }

    /// Has this thread, which is the first shard's, see to it from now on.
    pub(crate) fn settle_here(self) {
        HERE.set(Some(self));
    }

    /// What INFO says about where the server listens, in Valkey's form.
    pub(crate) fn info(&self) -> Vec<(&'static str, String)> {
        const NAMES: [&str; 2] = ["listener0", "listener1"];
        let addresses: Vec<String> =
            self.tcp.iter().map(|bound| format!("bind={}", bound.address.ip())).collect();
        let port = self.tcp.first().map(|bound| bound.address.port());
        let tcp = port.map(|port| format!("name=tcp,{},port={port}", addresses.join(",")));
        let unix = self.unix.as_ref().map(|path| format!("name=unix,bind={}", path.display()));
        NAMES.into_iter().zip([tcp, unix].into_iter().flatten()).collect()
    }

    /// Listens on these places and on no others; on failure everything is as it was.
    fn listen_on(&mut self, places: &[Place]) -> Result<(), ListenError> {
        let is_wanted = |bound: &Bound| places.iter().any(|place| place.address == bound.address);
        let (stay, go): (Vec<Bound>, Vec<Bound>) =
            std::mem::take(&mut self.tcp).into_iter().partition(is_wanted);
        self.tcp = stay;
        for socket in go.iter().flat_map(|bound| &bound.sockets) {
            // Such a socket keeps its address from nobody who, as we do, asks for SO_REUSEADDR, and can listen again.
            let _ = SockRef::from(socket).shutdown(Shutdown::Both);
        }
        let opened = self.open(places);
        match opened {
            Ok(sockets) => {
                let left: Vec<SocketAddr> = go.iter().map(|bound| bound.address).collect();
                let info = self.info();
                for (shard, sockets) in sockets.into_iter().enumerate() {
                    self.moves
                        .push((shard, Box::new(Move { left: left.clone(), sockets, info: info.clone() })));
                }
                Ok(())
            }
            Err(error) => {
                for bound in go {
                    self.restore(bound);
                }
                Err(error)
            }
        }
    }

    /// Opens sockets where there are none yet; returns each shard's.
    fn open(&mut self, places: &[Place]) -> Result<Vec<Vec<(OwnedFd, PeerKind)>>, ListenError> {
        let mut sockets: Vec<Vec<_>> = (0..self.shards).map(|_| Vec::new()).collect();
        let taken: Vec<SocketAddr> = self.tcp.iter().map(|bound| bound.address).collect();
        let addresses = listen_at(places, &taken, self.backlog, &mut sockets[..self.accepting])?;
        let mut bound = Vec::new();
        for (idx, &address) in addresses.iter().enumerate() {
            let one = Bound::of(address, idx, &sockets[..self.accepting]);
            bound.push(one.map_err(|error| ListenError::Tcp { address, error })?);
        }
        self.tcp.append(&mut bound);
        Ok(sockets)
    }

    fn restore(&mut self, bound: Bound) {
        for socket in &bound.sockets {
            if let Err(error) = SockRef::from(socket).listen(self.backlog as i32) {
                tracing::error!("cannot listen on {} again: {error}", bound.address);
            }
        }
        self.tcp.push(bound);
    }
}

impl fmt::Display for Listening {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let tcp = self.tcp.iter().map(|bound| bound.address.to_string());
        let places: Vec<String> =
            tcp.chain(self.unix.iter().map(|path| path.display().to_string())).collect();
        f.write_str(if places.is_empty() { "no address" } else { "" })?;
        f.write_str(&places.join(" "))
    }
}

/// Listens where the configuration says; see [`Hooks::listen`](corelane_engine::Hooks). Names are resolved on the way, which holds
/// the shard up.
pub(crate) fn listen_elsewhere(config: &Config) -> Result<(), ()> {
    let bind: Vec<String> = config.value("bind").split_ascii_whitespace().map(str::to_owned).collect();
    HERE.with_borrow_mut(|here| {
        let listening = here.as_mut().ok_or(())?;
        let places = places(&bind, config.number("port") as u16);
        match places.and_then(|places| listening.listen_on(&places)) {
            Ok(()) => {
                tracing::info!("listening on {listening} now");
                Ok(())
            }
            Err(error) => {
                tracing::warn!("CONFIG SET changes nothing: {error}");
                Err(())
            }
        }
    })
}

/// What the shards are to be told, by their numbers.
pub(crate) fn take_moves() -> Vec<(usize, Box<Move>)> {
    HERE.with_borrow_mut(|here| {
        here.as_mut().map(|listening| std::mem::take(&mut listening.moves)).unwrap_or_default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::listen::{Accept, ListenOptions, listen};
    use std::net::{TcpListener, TcpStream};

    fn free_port() -> u16 {
        TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
    }

    fn listening(port: u16, shards: usize, accept: Accept) -> (Listeners, Listening) {
        let options = ListenOptions {
            bind: vec!["127.0.0.1".to_owned()],
            port,
            unixsocket: None,
            unixsocketperm: None,
            backlog: 16,
            accept,
        };
        let listeners = listen(&options, shards).unwrap();
        let listening = Listening::of(&listeners, 16).unwrap();
        (listeners, listening)
    }

    fn at(names: &[&str], port: u16) -> Vec<Place> {
        places(&names.iter().map(|&name| name.to_owned()).collect::<Vec<_>>(), port).unwrap()
    }

    fn reaches(port: u16) -> bool {
        TcpStream::connect(("127.0.0.1", port)).is_ok()
    }

    #[test]
    fn a_server_moves_and_its_old_port_is_free_at_once() {
        for (shards, accept) in [(1, Accept::Reuseport), (3, Accept::Reuseport), (3, Accept::Single)] {
            let (old, new) = (free_port(), free_port());
            let (_shards_have, mut listening) = listening(old, shards, accept);
            listening.listen_on(&at(&["127.0.0.1"], new)).unwrap();
            assert!(reaches(new) && !reaches(old));
            let per_shard: Vec<usize> = listening.moves.iter().map(|(_, of)| of.sockets.len()).collect();
            let expected: Vec<usize> =
                (0..shards).map(|shard| usize::from(shard == 0 || accept == Accept::Reuseport)).collect();
            assert_eq!(per_shard, expected);
            assert_eq!(listening.moves[0].1.left, [SocketAddr::from(([127, 0, 0, 1], old))]);
            assert_eq!(listening.info(), [("listener0", format!("name=tcp,bind=127.0.0.1,port={new}"))]);
            listening.listen_on(&[]).unwrap();
            assert!(!reaches(new));
            assert_eq!(listening.to_string(), "no address");
        }
    }

    #[test]
    fn one_address_gives_way_to_all_and_all_to_one() {
        for shards in [1, 2] {
            let port = free_port();
            let (_shards_have, mut listening) = listening(port, shards, Accept::Reuseport);
            listening.listen_on(&at(&["*"], port)).unwrap();
            assert!(TcpStream::connect(("127.0.0.2", port)).is_ok());
            listening.listen_on(&at(&["127.0.0.1", "-192.0.2.1"], port)).unwrap();
            assert!(reaches(port) && TcpStream::connect(("127.0.0.2", port)).is_err());
        }
    }

    #[test]
    fn what_stays_is_not_touched() {
        let port = free_port();
        let (_shards_have, mut listening) = listening(port, 2, Accept::Reuseport);
        let waiting = TcpStream::connect(("127.0.0.1", port)).unwrap();
        listening.listen_on(&at(&["127.0.0.1", "127.0.0.2"], port)).unwrap();
        assert!(listening.moves.iter().all(|(_, of)| of.left.is_empty() && of.sockets.len() == 1));
        assert!(waiting.take_error().unwrap().is_none());
        assert!(reaches(port) && TcpStream::connect(("127.0.0.2", port)).is_ok());
    }

    #[test]
    fn what_cannot_be_had_changes_nothing() {
        for shards in [1, 2] {
            let (old, new) = (free_port(), free_port());
            let (_shards_have, mut listening) = listening(old, shards, Accept::Reuseport);
            let busy = TcpListener::bind(("127.0.0.2", new)).unwrap();
            for names in [&["127.0.0.1", "127.0.0.2"][..], &["127.0.0.1", "192.0.2.1"], &["*", "127.0.0.1"]] {
                listening.listen_on(&at(names, new)).unwrap_err();
                assert!(reaches(old) && !reaches(new), "{names:?}");
                assert!(listening.moves.is_empty());
            }
            drop(busy);
            listening.listen_on(&at(&["127.0.0.1", "127.0.0.2"], new)).unwrap();
            assert!(reaches(new));
        }
        assert!(places(&["no such host".to_owned()], 1).is_err());
    }
}
