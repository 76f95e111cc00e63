//! New connections: accepted here, served here or handed to a shard that has fewer.

use std::io;
use std::net::{Shutdown, SocketAddr};
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, IntoRawFd, OwnedFd};
use std::time::Duration;

use corelane_engine::{Ends, Millis, Peer, Settings};
use socket2::{SockRef, TcpKeepalive};

use super::{Net, Turn};
use crate::mesh::{Mail, PeerKind};
use crate::ring::{Completion, Token};

/// After an accept that failed for lack of descriptors or memory, milliseconds until the next try.
const BACKOFF_MS: Millis = 50;
/// Unanswered keep-alive probes after which a peer counts as dead; they come at a third of `tcp-keepalive`, as in Redis.
const KEEPALIVE_PROBES: u32 = 3;
/// What a client is told that comes on top of `maxclients`.
const TOO_MANY: &[u8] = b"-ERR max number of clients reached\r\n";

/// What a client from elsewhere is told as long as there is no password.
const DENIED: &[u8] = b"-DENIED Running in protected mode because protected mode is enabled and no password is set for the \
default user. In this mode connections are only accepted from the loopback interface. If you want to connect from external \
computers, you may adopt one of the following solutions: 1) Just disable protected mode sending the command 'CONFIG SET \
protected-mode no' from the loopback interface by connecting from the same host the server is running, however MAKE SURE it's \
not publicly accessible from internet if you do so. Use CONFIG REWRITE to make this change permanent. 2) Alternatively you can \
just disable the protected mode by editing the configuration file, and setting the protected mode option to 'no', and then \
restarting the server. 3) If you started the server manually just for testing, restart it with the '--protected-mode no' \
option. 4) Set up an authentication password for the default user. NOTE: You only need to do one of the above things in order \
for the server to start accepting connections from the outside.\r\n";

/// An end that the system cannot name any more.
const UNKNOWN_END: &str = "?:0";

/// A listening socket of this shard.
#[derive(Debug)]
pub(crate) struct Listener {
    socket: OwnedFd,
    kind: PeerKind,
    /// Its own; `None` for a Unix socket.
    address: Option<SocketAddr>,
    /// Clients of other machines can reach it.
    exposed: bool,
    /// It accepts no more, and goes when the kernel has let go of it.
    left: bool,
    /// An accept is in flight.
    armed: bool,
    /// No accept before that time.
    paused_until: Option<Millis>,
}

impl Listener {
    /// Takes over a bound and listening socket. Options that every connection needs are set here: accepted sockets
    /// inherit them, which saves two calls per connection.
    pub(crate) fn new(socket: OwnedFd, kind: PeerKind, keepalive_s: u32) -> io::Result<Self> {
        let address = SockRef::from(&socket).local_addr().ok().and_then(|address| address.as_socket());
        let exposed = kind == PeerKind::Tcp && is_elsewhere(address);
        let listener = Self { socket, kind, address, exposed, left: false, armed: false, paused_until: None };
        if kind == PeerKind::Tcp {
            SockRef::from(&listener.socket).set_tcp_nodelay(true)?;
            listener.set_keepalive(keepalive_s);
        }
        Ok(listener)
    }

    /// Has connections that are accepted from now on be probed so often; 0 for never.
    pub(super) fn set_keepalive(&self, keepalive_s: u32) {
        if self.kind != PeerKind::Tcp {
            return;
        }
        let options = SockRef::from(&self.socket);
        let interval_s = (keepalive_s / KEEPALIVE_PROBES).max(1);
        let keepalive = TcpKeepalive::new()
            .with_time(Duration::from_secs(keepalive_s.max(1).into()))
            .with_interval(Duration::from_secs(interval_s.into()))
            .with_retries(KEEPALIVE_PROBES);
        let set = match keepalive_s {
            0 => options.set_keepalive(false),
            _ => options.set_tcp_keepalive(&keepalive),
        };
        if let Err(error) = set {
            tracing::warn!("cannot set tcp-keepalive to {keepalive_s}: {error}");
        }
    }
}

impl Net {
    /// Starts an accept on every listener that has none.
    pub(super) fn accept_all(&mut self) {
        for (idx, slot) in self.listeners.iter_mut().enumerate() {
            let Some(listener) = slot else { continue };
            if !listener.armed && !listener.left && listener.paused_until.is_none() {
                listener.armed = true;
                self.ring.accept_multi(listener.socket.as_raw_fd(), Token::listener(idx as u32));
            }
        }
    }

    /// Leaves some addresses, whose sockets listen no more, and takes over sockets that do.
    pub(crate) fn relisten(&mut self, left: &[SocketAddr], sockets: Vec<(OwnedFd, PeerKind)>) {
        for slot in &mut self.listeners {
            if let Some(listener) = slot
                && listener.address.is_some_and(|address| left.contains(&address))
            {
                listener.left = true;
                *slot = slot.take().filter(|listener| listener.armed);
            }
        }
        for (socket, kind) in sockets {
            match Listener::new(socket, kind, self.keepalive_s) {
                Ok(listener) => match self.listeners.iter_mut().find(|slot| slot.is_none()) {
                    Some(free) => *free = Some(listener),
                    None => self.listeners.push(Some(listener)),
                },
                Err(error) => tracing::error!("a new socket cannot be listened on: {error}"),
            }
        }
        if self.accepting {
            self.accept_all();
        }
    }

    /// Accepts no more connections, for good.
    pub(crate) fn stop_accepting(&mut self) {
        self.accepting = false;
        for idx in 0..self.listeners.len() {
            self.ring.cancel(Token::listener(idx as u32));
        }
    }

    /// Has the kernel refuse who comes now, since all shards end: otherwise it would let them in, to wait for the end of the process.
    pub(crate) fn refuse_newcomers(&self) {
        for listener in self.listeners.iter().flatten() {
            // A Unix socket is shared by all shards, and another may have been first.
            let _ = SockRef::from(&listener.socket).shutdown(Shutdown::Both);
        }
    }

    /// Resumes what [`BACKOFF_MS`] has interrupted. Returns when it has to be called again.
    pub(super) fn resume_accepting(&mut self, now: Millis) -> Option<Millis> {
        let mut due = false;
        for listener in self.listeners.iter_mut().flatten() {
            if listener.paused_until.is_some_and(|until| until <= now) {
                listener.paused_until = None;
                due = true;
            }
        }
        if due && self.accepting {
            self.accept_all();
        }
        self.listeners.iter().flatten().filter_map(|listener| listener.paused_until).min()
    }

    pub(super) fn has_paused_listener(&self) -> bool {
        self.listeners.iter().flatten().any(|listener| listener.paused_until.is_some())
    }

    pub(super) fn on_accept(&mut self, completion: Completion, turn: &mut Turn<'_>) {
        let slot = &mut self.listeners[completion.token.idx() as usize];
        let Some(listener) = slot else { return };
        let (kind, exposed) = (listener.kind, listener.exposed);
        listener.armed = completion.more();
        if completion.result >= 0 {
            // SAFETY: the kernel has just made this descriptor for us; nobody else knows it.
            let socket = unsafe { OwnedFd::from_raw_fd(completion.result) };
            if exposed && is_protected_from(&socket, turn.node.settings()) {
                turn.node.stats_mut().connections_rejected += 1;
                tracing::debug!("refused a client of another machine: protected mode is on");
                refuse(&socket, DENIED);
            } else {
                self.admit(socket, kind, turn);
            }
        } else if is_exhaustion(-completion.result) {
            let error = io::Error::from_raw_os_error(-completion.result);
            tracing::warn!("cannot accept a connection, the next attempt is in {BACKOFF_MS} ms: {error}");
            listener.paused_until = Some(turn.now + BACKOFF_MS);
            self.sweep.hurry(turn.now + BACKOFF_MS);
        }
        let slot = &mut self.listeners[completion.token.idx() as usize];
        *slot = slot.take().filter(|listener| listener.armed || !listener.left);
        if self.accepting {
            self.accept_all();
        }
    }

    /// Finds the shard for a new connection.
    fn admit(&mut self, socket: OwnedFd, kind: PeerKind, turn: &mut Turn<'_>) {
        if !self.accepting {
            return;
        }
        if turn.mesh.connections().sum::<u32>() >= self.limits.maxclients {
            turn.node.stats_mut().connections_rejected += 1;
            tracing::debug!("refused a client: there are {} already", self.limits.maxclients);
            refuse(&socket, TOO_MANY);
            return;
        }
        let me = turn.mesh.me();
        let shard = turn.mesh.place_connection();
        if shard == me {
            return self.open(socket, kind, turn);
        }
        match turn.mesh.send(shard, Mail::Connection(socket, kind)) {
            Ok(()) => {
                turn.node.stats_mut().wakes_sent += u64::from(turn.mesh.wake(shard));
            }
            Err(mail) => {
                turn.mesh.uncount_connection(shard);
                turn.mesh.count_connection(me);
                if let Mail::Connection(socket, kind) = mail {
                    self.open(socket, kind, turn);
                }
            }
        }
    }

    /// Serves a connection that has been counted for this shard.
    pub(crate) fn open(&mut self, socket: OwnedFd, kind: PeerKind, turn: &mut Turn<'_>) {
        let peer = Peer::new(socket.as_raw_fd(), kind == PeerKind::Unix, find_ends);
        let id = turn.node.open(peer, turn.now);
        self.connections.insert(socket.into_raw_fd(), id, turn.now_s());
        self.steer(id, turn);
    }
}

/// Tells a client why it cannot stay; a full socket buffer is its own fault.
fn refuse(socket: &OwnedFd, why: &[u8]) {
    // An error means that the client is gone already.
    let _ = SockRef::from(socket).send_with_flags(why, libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT);
}

fn is_exhaustion(errno: i32) -> bool {
    matches!(errno, libc::EMFILE | libc::ENFILE | libc::ENOBUFS | libc::ENOMEM)
}

/// Whether an address may be that of another machine; one that is not known may be.
fn is_elsewhere(address: Option<SocketAddr>) -> bool {
    address.is_none_or(|address| !address.ip().to_canonical().is_loopback())
}

/// Whether protected mode keeps this client out.
fn is_protected_from(socket: &OwnedFd, settings: &Settings) -> bool {
    let peer = || SockRef::from(socket).peer_addr().ok().and_then(|address| address.as_socket());
    settings.protected_mode && settings.password.is_empty() && is_elsewhere(peer())
}

/// A connection's two ends, as the system names them now.
fn find_ends(peer: &Peer) -> Ends {
    // SAFETY: the session that asks belongs to a connection whose descriptor is open until the session is closed.
    let socket = unsafe { BorrowedFd::borrow_raw(peer.fd) };
    let options = SockRef::from(&socket);
    if peer.unix {
        let path = options.local_addr().ok();
        let path = path.as_ref().and_then(|address| address.as_pathname());
        let end = path.map_or_else(|| UNKNOWN_END.to_owned(), |path| format!("{}:0", path.display()));
        return Ends { addr: end.clone(), laddr: end };
    }
    let text = |address: io::Result<socket2::SockAddr>| {
        let address = address.ok().and_then(|address| address.as_socket());
        address.map_or_else(|| UNKNOWN_END.to_owned(), |address| address.to_string())
    };
    Ends { addr: text(options.peer_addr()), laddr: text(options.local_addr()) }
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};

    use super::*;

    #[test]
    fn accepted_sockets_inherit_the_options_of_the_listener() {
        let listening = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listening.local_addr().unwrap();
        let listener = Listener::new(listening.try_clone().unwrap().into(), PeerKind::Tcp, 300).unwrap();
        let _client = TcpStream::connect(address).unwrap();
        let (served, _) = listening.accept().unwrap();
        let options = SockRef::from(&served);
        assert!(options.tcp_nodelay().unwrap());
        assert!(options.keepalive().unwrap());
        assert_eq!(options.tcp_keepalive_time().unwrap(), Duration::from_secs(300));
        assert_eq!(options.tcp_keepalive_interval().unwrap(), Duration::from_secs(100));
        assert!(!listener.armed);
    }

    #[test]
    fn both_ends_are_described() {
        let listening = TcpListener::bind("127.0.0.1:0").unwrap();
        let client = TcpStream::connect(listening.local_addr().unwrap()).unwrap();
        let (served, _) = listening.accept().unwrap();
        let peer = Peer::new(served.as_raw_fd(), false, find_ends);
        assert_eq!(peer.ends().addr, client.local_addr().unwrap().to_string());
        assert_eq!(peer.ends().laddr, client.peer_addr().unwrap().to_string());
    }
}
