//! The sockets a server listens on: every shard gets one of its own per address (SO_REUSEPORT), and all share the Unix
//! socket; or the first shard alone gets all of them and hands connections on.
//!
//! With SO_REUSEPORT a second server of the same user would take half of the connections silently, so each address is
//! first bound without it, as a probe: a busy port is an error even when it is our own kind that has it.

use std::fs;
use std::io;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use socket2::{Domain, SockAddr, Socket, Type};
use thiserror::Error;

use crate::mesh::PeerKind;

/// Where to listen when nothing is said: this machine only. The dash: not every machine has IPv6.
pub const BIND_DEFAULT: [&str; 2] = ["127.0.0.1", "-::1"];

/// Why a socket cannot listen.
#[derive(Debug, Error)]
pub enum ListenError {
    /// Someone else listens there.
    #[error("port {} of {} is in use by another process: stop that one, or choose another --port", .0.port(), .0.ip())]
    Busy(SocketAddr),
    /// We do ourselves.
    #[error("--bind names {} beside another address that includes it, or that it includes: leave out one of them", .0.ip())]
    Twice(SocketAddr),
    /// A port below 1024, or a policy.
    #[error("this user may not listen on port {} of {}: choose a port above 1023, or grant CAP_NET_BIND_SERVICE", .0.port(), .0.ip())]
    Forbidden(SocketAddr),
    /// No interface has the address.
    #[error(
        "this machine has no address {0}: correct --bind, or write -{0} to pass over it where it is missing"
    )]
    NoAddress(IpAddr),
    /// Neither an address nor a name.
    #[error(
        "--bind {0:?} is neither an address nor a host name: write 127.0.0.1, ::1, * (all of IPv4) or ::* (all of IPv6)"
    )]
    Name(String),
    /// All were optional and missing, or there is no port and no Unix socket.
    #[error("there is nowhere to listen: give --port and --bind, or --unixsocket")]
    Nowhere,
    /// Anything else.
    #[error("cannot listen on {address}: {error}")]
    Tcp {
        /// Where.
        address: SocketAddr,
        /// The system's reason.
        error: io::Error,
    },
    /// A live server has it.
    #[error("the Unix socket {} is in use by another process: stop that one, or choose another --unixsocket", .0.display())]
    UnixBusy(PathBuf),
    /// A file that is no socket.
    #[error("{} exists and is not a socket: remove it, or choose another --unixsocket", .0.display())]
    NotASocket(PathBuf),
    /// No directory there, or not for this user.
    #[error("cannot make the Unix socket {} ({error}): choose a --unixsocket in a directory that exists and that this user may write to", path.display())]
    UnixPlace {
        /// Where.
        path: PathBuf,
        /// The system's reason.
        error: io::Error,
    },
    /// Anything else about the Unix socket.
    #[error("cannot listen on the Unix socket {}: {error}", path.display())]
    Unix {
        /// Where.
        path: PathBuf,
        /// The system's reason.
        error: io::Error,
    },
}

/// Which shards accept connections.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub enum Accept {
    /// Each on a socket of its own, among which the kernel spreads connections (SO_REUSEPORT).
    #[default]
    Reuseport,
    /// The first, which hands them to the others.
    Single,
}

impl Accept {
    /// All, in the order in which they are documented.
    pub const ALL: [Self; 2] = [Self::Reuseport, Self::Single];

    /// The word of the directive.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Reuseport => "reuseport",
            Self::Single => "single",
        }
    }

    /// How many of so many shards accept, the first ones.
    pub(crate) fn accepting(self, shards: usize) -> usize {
        if self == Self::Single { shards.min(1) } else { shards }
    }
}

/// Where to listen.
#[derive(Clone, Debug)]
pub struct ListenOptions {
    /// Addresses or names; `*` and `::*` for all of a family; a leading `-` passes over an address that is missing.
    pub bind: Vec<String>,
    /// TCP port; 0: no TCP at all.
    pub port: u16,
    /// Path of the Unix socket.
    pub unixsocket: Option<PathBuf>,
    /// Its permission bits; `None`: what the umask leaves.
    pub unixsocketperm: Option<u32>,
    /// Connections that may wait to be accepted, per socket.
    pub backlog: u32,
    /// Which shards are given sockets.
    pub accept: Accept,
}

/// Listening sockets. The Unix socket's file is removed when this is dropped.
#[derive(Debug)]
pub struct Listeners {
    /// One list per shard.
    pub per_shard: Vec<Vec<(OwnedFd, PeerKind)>>,
    /// The TCP addresses.
    pub addresses: Vec<SocketAddr>,
    /// The Unix socket's file.
    pub unix_file: Option<UnixFile>,
    /// As asked for, or `Single` where the system refuses the other.
    pub accept: Accept,
    /// Why it is not as asked for: a sentence for the log.
    pub warning: Option<String>,
}

/// The file of a Unix socket that is ours; dropping it removes the file, unless another has come in its place.
#[derive(Debug)]
pub struct UnixFile {
    path: PathBuf,
    identity: FileIdentity,
}

/// Device and inode.
type FileIdentity = (u64, u64);

impl UnixFile {
    /// Its path.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for UnixFile {
    fn drop(&mut self) {
        // Who has removed it by hand may have started another server there, whose socket it is then.
        if identity(&self.path).is_ok_and(|found| found == self.identity) {
            // There is nobody to tell.
            let _ = fs::remove_file(&self.path);
        }
    }
}

fn identity(path: &Path) -> io::Result<FileIdentity> {
    fs::symlink_metadata(path).map(|metadata| (metadata.dev(), metadata.ino()))
}

/// Binds and listens everywhere, for that many shards. Where the system has no SO_REUSEPORT (some socket accelerators do not),
/// the first shard accepts for all, and [`Listeners::warning`] says so.
///
/// # Errors
/// The first address that cannot be had; nothing stays bound.
pub fn listen(options: &ListenOptions, shards: usize) -> Result<Listeners, ListenError> {
    let refusal = match options.accept {
        Accept::Reuseport if shards > 1 && options.port != 0 => check_reuse_port().err(),
        _ => None,
    };
    let warning = refusal.as_ref().map(|error| {
        format!(
            "the system refuses SO_REUSEPORT ({error}), so the first shard accepts the connections of all: give --accept \
             single if that is meant to be, or run without the socket accelerator or filter that refuses it"
        )
    });
    let accept = if refusal.is_some() { Accept::Single } else { options.accept };
    let mut listeners = Listeners {
        per_shard: (0..shards).map(|_| Vec::new()).collect(),
        addresses: Vec::new(),
        unix_file: None,
        accept,
        warning,
    };
    let accepting = accept.accepting(shards);
    let places = places(&options.bind, options.port)?;
    listeners.addresses = listen_at(&places, &[], options.backlog, &mut listeners.per_shard[..accepting])?;
    if let Some(path) = &options.unixsocket {
        let (socket, file) = listen_unix(path, options)?;
        listeners.unix_file = Some(file);
        for shard in &mut listeners.per_shard[..accepting] {
            let clone =
                socket.try_clone().map_err(|error| ListenError::Unix { path: path.clone(), error })?;
            shard.push((clone.into(), PeerKind::Unix));
        }
    }
    if listeners.addresses.is_empty() && listeners.unix_file.is_none() {
        return Err(ListenError::Nowhere);
    }
    Ok(listeners)
}

/// An address to listen on.
#[derive(Copy, Clone, Debug)]
pub(crate) struct Place {
    pub(crate) address: SocketAddr,
    /// It is passed over where it is missing.
    optional: bool,
}

/// The addresses that `bind` names, each once; none where there is no port.
pub(crate) fn places(bind: &[String], port: u16) -> Result<Vec<Place>, ListenError> {
    let mut places: Vec<Place> = Vec::new();
    for word in bind.iter().filter(|_| port != 0) {
        let (name, optional) = word.strip_prefix('-').map_or((word.as_str(), false), |name| (name, true));
        for address in resolve(name, port)? {
            // A name and its address, for instance.
            if !places.iter().any(|place| place.address == address) {
                places.push(Place { address, optional });
            }
        }
    }
    Ok(places)
}

/// Adds to each shard's list a socket per address that is not `taken` by other sockets of ours. Returns these addresses.
pub(crate) fn listen_at(
    places: &[Place],
    taken: &[SocketAddr],
    backlog: u32,
    per_shard: &mut [Vec<(OwnedFd, PeerKind)>],
) -> Result<Vec<SocketAddr>, ListenError> {
    let mut all = taken.to_vec();
    for &Place { address, optional } in places {
        if taken.contains(&address) {
            continue;
        }
        match listen_tcp(address, backlog, per_shard) {
            Ok(()) => all.push(address),
            Err(error) if optional && is_missing(&error) => {}
            Err(error) if error.kind() == io::ErrorKind::AddrInUse && is_taken_by(&all, address) => {
                return Err(ListenError::Twice(address));
            }
            Err(error) => return Err(tcp_error(address, error)),
        }
    }
    Ok(all.split_off(taken.len()))
}

/// Whether it is our own sockets on `addresses` that keep another from `wanted`: all addresses and one of them exclude each other.
fn is_taken_by(addresses: &[SocketAddr], wanted: SocketAddr) -> bool {
    let all = |address: &SocketAddr| address.ip().is_unspecified();
    let same_family = |address: &&SocketAddr| address.is_ipv4() == wanted.is_ipv4();
    addresses.iter().filter(same_family).any(|address| all(address) || all(&wanted))
}

fn resolve(name: &str, port: u16) -> Result<Vec<SocketAddr>, ListenError> {
    let name = match name {
        "*" => "0.0.0.0",
        "::*" => "::",
        name => name,
    };
    if let Ok(address) = name.parse::<IpAddr>() {
        return Ok(vec![SocketAddr::new(address, port)]);
    }
    let found = (name, port).to_socket_addrs().map_err(|_| ListenError::Name(name.to_owned()))?;
    let mut addresses: Vec<SocketAddr> = found.collect();
    addresses.sort_unstable();
    addresses.dedup();
    Ok(addresses)
}

/// Whether the system lets several sockets listen on one port; asks a socket that is not bound.
///
/// # Errors
/// The system's, most often that there is no such option.
pub fn check_reuse_port() -> io::Result<()> {
    Socket::new(Domain::IPV4, Type::STREAM.cloexec(), None)
        .or_else(|_| Socket::new(Domain::IPV6, Type::STREAM.cloexec(), None))?
        .set_reuse_port(true)
}

/// Probes the address, then adds one listener to each shard.
fn listen_tcp(
    address: SocketAddr,
    backlog: u32,
    per_shard: &mut [Vec<(OwnedFd, PeerKind)>],
) -> io::Result<()> {
    let probe = bind_tcp(address, false)?;
    if let [only] = per_shard {
        probe.listen(backlog as i32)?;
        only.push((probe.into(), PeerKind::Tcp));
        return Ok(());
    }
    drop(probe);
    for shard in per_shard {
        let socket = bind_tcp(address, true)?;
        socket.listen(backlog as i32)?;
        shard.push((socket.into(), PeerKind::Tcp));
    }
    Ok(())
}

fn bind_tcp(address: SocketAddr, shared: bool) -> io::Result<Socket> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM.cloexec(), None)?;
    socket.set_reuse_address(true)?;
    if shared {
        socket.set_reuse_port(true)?;
    }
    if address.is_ipv6() {
        socket.set_only_v6(true)?;
    }
    socket.bind(&address.into())?;
    Ok(socket)
}

/// The address or its whole family does not exist here.
fn is_missing(error: &io::Error) -> bool {
    matches!(
        error.raw_os_error(),
        Some(
            libc::EADDRNOTAVAIL
                | libc::EAFNOSUPPORT
                | libc::EPROTONOSUPPORT
                | libc::ESOCKTNOSUPPORT
                | libc::EPFNOSUPPORT
                | libc::ENOPROTOOPT
        )
    )
}

fn tcp_error(address: SocketAddr, error: io::Error) -> ListenError {
    match error.raw_os_error() {
        Some(libc::EADDRINUSE) => ListenError::Busy(address),
        Some(libc::EACCES | libc::EPERM) => ListenError::Forbidden(address),
        _ if is_missing(&error) => ListenError::NoAddress(address.ip()),
        _ => ListenError::Tcp { address, error },
    }
}

fn listen_unix(path: &Path, options: &ListenOptions) -> Result<(Socket, UnixFile), ListenError> {
    let failed = |error| ListenError::Unix { path: path.to_owned(), error };
    clear_the_way(path)?;
    let socket = Socket::new(Domain::UNIX, Type::STREAM.cloexec(), None).map_err(failed)?;
    let address = SockAddr::unix(path).map_err(failed)?;
    socket.bind(&address).map_err(|error| match error.raw_os_error() {
        Some(libc::EADDRINUSE) => ListenError::UnixBusy(path.to_owned()),
        Some(libc::ENOENT | libc::EACCES | libc::EPERM | libc::EROFS | libc::ENOTDIR) => {
            ListenError::UnixPlace { path: path.to_owned(), error }
        }
        _ => failed(error),
    })?;
    let file = UnixFile { path: path.to_owned(), identity: identity(path).map_err(failed)? };
    if let Some(mode) = options.unixsocketperm {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).map_err(failed)?;
    }
    socket.listen(options.backlog as i32).map_err(failed)?;
    Ok((socket, file))
}

/// Removes the socket that a dead server left behind; refuses to touch a live one or anything else.
fn clear_the_way(path: &Path) -> Result<(), ListenError> {
    let failed = |error| ListenError::Unix { path: path.to_owned(), error };
    let metadata = match fs::symlink_metadata(path) {
        Ok(metadata) => metadata,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(failed(error)),
    };
    if !metadata.file_type().is_socket() {
        return Err(ListenError::NotASocket(path.to_owned()));
    }
    // Without waiting: a live server whose backlog is full must not hold us up.
    let probe = Socket::new(Domain::UNIX, Type::STREAM.cloexec().nonblocking(), None).map_err(failed)?;
    match probe.connect(&SockAddr::unix(path).map_err(failed)?) {
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
            fs::remove_file(path).map_err(failed)
        }
        _ => Err(ListenError::UnixBusy(path.to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};
    use std::os::unix::net::{UnixListener, UnixStream};

    fn options(bind: &[&str], port: u16) -> ListenOptions {
        let bind = bind.iter().map(|&address| address.to_owned()).collect();
        ListenOptions {
            bind,
            port,
            unixsocket: None,
            unixsocketperm: None,
            backlog: 16,
            accept: Accept::Reuseport,
        }
    }

    fn free_port() -> u16 {
        TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
    }

    fn scratch(name: &str) -> PathBuf {
        let path = std::env::temp_dir().join(format!("corelane-{}-{name}.sock", std::process::id()));
        let _ = fs::remove_file(&path);
        path
    }

    fn refusal(options: &ListenOptions) -> String {
        listen(options, 2).unwrap_err().to_string()
    }

    #[test]
    fn every_shard_listens_on_every_address() {
        let port = free_port();
        let listeners = listen(&options(&["127.0.0.1", "-::1", "-192.0.2.1"], port), 3).unwrap();
        assert!((1..=2).contains(&listeners.addresses.len()), "{:?}", listeners.addresses);
        for shard in &listeners.per_shard {
            assert_eq!(shard.len(), listeners.addresses.len());
            assert!(shard.iter().all(|(_, kind)| *kind == PeerKind::Tcp));
        }
        for address in &listeners.addresses {
            TcpStream::connect(address).unwrap();
        }
    }

    #[test]
    fn a_single_listener_is_the_first_shards() {
        let path = scratch("single");
        let mut options = options(&["127.0.0.1"], free_port());
        options.accept = Accept::Single;
        options.unixsocket = Some(path);
        let listeners = listen(&options, 3).unwrap();
        let counts: Vec<usize> = listeners.per_shard.iter().map(Vec::len).collect();
        assert_eq!((counts, listeners.accept, listeners.warning), (vec![2, 0, 0], Accept::Single, None));
        TcpStream::connect(listeners.addresses[0]).unwrap();
        assert!(refusal(&options).contains("is in use by another process"));
    }

    #[test]
    fn a_busy_port_is_refused_even_if_it_is_our_own_kind_that_has_it() {
        let port = free_port();
        let held = listen(&options(&["127.0.0.1"], port), 2).unwrap();
        let expected = format!(
            "port {port} of 127.0.0.1 is in use by another process: stop that one, or choose another --port"
        );
        assert_eq!(refusal(&options(&["127.0.0.1"], port)), expected);
        assert_eq!(refusal(&options(&["-127.0.0.1"], port)), expected, "optional is not the same as busy");
        drop(held);
        assert!(listen(&options(&["127.0.0.1"], port), 2).is_ok());
    }

    #[test]
    fn an_address_may_be_named_twice_but_not_beside_all_addresses() {
        let port = free_port();
        let listeners = listen(&options(&["127.0.0.1", "-127.0.0.1", "localhost"], port), 2).unwrap();
        let ours = SocketAddr::from(([127, 0, 0, 1], port));
        assert_eq!(listeners.addresses.iter().filter(|&&address| address == ours).count(), 1);
        drop(listeners);
        for (bind, twice) in [(["*", "127.0.0.1"], "127.0.0.1"), (["127.0.0.1", "*"], "0.0.0.0")] {
            let expected = format!("--bind names {twice} beside another address that includes it");
            assert!(refusal(&options(&bind, port)).starts_with(&expected));
        }
    }

    #[test]
    fn what_cannot_be_bound_is_named() {
        let port = free_port();
        assert_eq!(
            refusal(&options(&["192.0.2.1"], port)),
            "this machine has no address 192.0.2.1: correct --bind, or write -192.0.2.1 to pass over it where it is missing"
        );
        assert!(refusal(&options(&["no such host"], port)).starts_with("--bind \"no such host\" is neither"));
        let nowhere = "there is nowhere to listen: give --port and --bind, or --unixsocket";
        assert_eq!(refusal(&options(&["127.0.0.1"], 0)), nowhere);
        assert_eq!(refusal(&options(&["-192.0.2.1"], port)), nowhere);
    }

    #[test]
    fn all_shards_share_the_unix_socket_and_its_file_goes_with_it() {
        let path = scratch("shared");
        let mut options = options(&[], 0);
        options.unixsocket = Some(path.clone());
        options.unixsocketperm = Some(0o600);
        let mut listeners = listen(&options, 2).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(
            refusal(&options).split(':').next(),
            Some(&*format!("the Unix socket {} is in use by another process", path.display()))
        );
        let (socket, kind) = listeners.per_shard[1].remove(0);
        assert_eq!(kind, PeerKind::Unix);
        let mut client = UnixStream::connect(&path).unwrap();
        client.write_all(b"x").unwrap();
        // The refused attempt above probed the socket, so that connection is in front of ours.
        let listener = UnixListener::from(socket);
        let mut received = Vec::new();
        while received.is_empty() {
            let mut server = listener.accept().unwrap().0;
            let mut byte = [0u8; 1];
            let len = server.read(&mut byte).unwrap();
            received.extend_from_slice(&byte[..len]);
        }
        assert_eq!(received, b"x");
        drop(listeners);
        assert!(!path.exists());
    }

    #[test]
    fn a_unix_socket_that_another_server_has_made_meanwhile_stays() {
        let path = scratch("succeeded");
        let mut options = options(&[], 0);
        options.unixsocket = Some(path.clone());
        let first = listen(&options, 1).unwrap();
        fs::remove_file(&path).unwrap();
        let second = listen(&options, 1).unwrap();
        drop(first);
        UnixStream::connect(&path).unwrap();
        drop(second);
        assert!(!path.exists());
    }

    #[test]
    fn a_stale_unix_socket_is_replaced_and_a_file_is_not() {
        let path = scratch("stale");
        drop(UnixListener::bind(&path).unwrap());
        assert!(path.exists(), "std leaves the file behind");
        let mut options = options(&[], 0);
        options.unixsocket = Some(path.clone());
        drop(listen(&options, 1).unwrap());
        fs::write(&path, b"data").unwrap();
        let expected = format!(
            "{} exists and is not a socket: remove it, or choose another --unixsocket",
            path.display()
        );
        assert_eq!(refusal(&options), expected);
        assert_eq!(fs::read(&path).unwrap(), b"data");
        fs::remove_file(&path).unwrap();
    }
}
