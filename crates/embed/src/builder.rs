//! What a cache is made of, and its start.

use std::hash::{BuildHasher, RandomState};
use std::path::PathBuf;
use std::time::Duration;

use corelane_engine::{Router, Settings};
use corelane_runtime::listen::{Accept, ListenOptions, Listeners, listen};
use corelane_runtime::preflight::check_guest;
use corelane_runtime::server::{Server, ServerPlan, ShardPlan, Tenancy};
use corelane_runtime::topology::{Layout, Machine, Placement, place};

use crate::cache::{Cache, Running};
use crate::error::StartError;

/// Messages that may wait at a shard unless said otherwise.
const QUEUE_SLOTS_DEFAULT: usize = 1024;
/// Connections that may wait to be accepted.
const BACKLOG: u32 = 511;
/// Most databases; each costs every shard a table of slots.
const DATABASES_MAX: usize = 1 << 16;

/// How to make a [`Cache`]. Everything has a default.
///
/// ```
/// use corelane_embed::Builder;
/// use std::time::Duration;
///
/// let cache = Builder::new().shards(2).start()?;
/// cache.set_with_ttl("session:1", "alice", Duration::from_secs(60)).wait()?;
/// assert_eq!(cache.get("session:1").wait()?.as_deref(), Some(&b"alice"[..]));
/// cache.stop()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
#[must_use = "nothing is started yet"]
pub struct Builder {
    shards: Option<usize>,
    cpus: Option<String>,
    placement: Placement,
    settings: Settings,
    queue_slots: usize,
    busy_poll: Duration,
    listen: ListenOptions,
    timeout_s: u32,
}

impl Default for Builder {
    fn default() -> Self {
        let settings = Settings { port: 0, ..Settings::default() };
        let listen = ListenOptions {
            bind: vec!["127.0.0.1".to_owned()],
            port: 0,
            unixsocket: None,
            unixsocketperm: None,
            backlog: BACKLOG,
            accept: Accept::default(),
        };
        Self {
            shards: None,
            cpus: None,
            placement: Placement::Float,
            settings,
            queue_slots: QUEUE_SLOTS_DEFAULT,
            busy_poll: Duration::ZERO,
            listen,
            timeout_s: 0,
        }
    }
}

impl Builder {
    /// A shard per physical core that the process may use, bound to none, without listeners.
    pub fn new() -> Self {
        Self::default()
    }

    /// How many shards, 1 to 1024. Each is a thread.
    pub fn shards(mut self, shards: usize) -> Self {
        self.shards = Some(shards);
        self
    }

    /// The CPUs for the shards, as in `0-3,8`. Without it, those of the process's affinity mask. Only with
    /// [`Placement::Physical`] or [`Placement::Logical`] are shards bound to them.
    pub fn cpus(mut self, list: impl Into<String>) -> Self {
        self.cpus = Some(list.into());
        self
    }

    /// Whether shards are bound to CPUs: [`Placement::Float`] unless said otherwise, since the host has threads of its own.
    pub fn placement(mut self, placement: Placement) -> Self {
        self.placement = placement;
        self
    }

    /// How many databases there are: 16 unless said otherwise.
    pub fn databases(mut self, databases: usize) -> Self {
        self.settings.databases = databases;
        self
    }

    /// The longest key or value in bytes: 512 MiB unless said otherwise.
    pub fn value_len_max(mut self, bytes: usize) -> Self {
        self.settings.proto_max_bulk_len = bytes;
        self
    }

    /// How many messages may wait at a shard before callers wait: 1024 unless said otherwise. A message takes about 200 bytes
    /// and its words.
    pub fn queue_slots(mut self, slots: usize) -> Self {
        self.queue_slots = slots;
        self
    }

    /// How long a shard without work spins before it sleeps: not at all unless said otherwise.
    pub fn busy_poll(mut self, time: Duration) -> Self {
        self.busy_poll = time;
        self
    }

    /// Listens for Redis clients on a TCP port.
    pub fn port(mut self, port: u16) -> Self {
        self.listen.port = port;
        self.settings.port = port;
        self
    }

    /// The addresses to listen on with [`Builder::port`]: 127.0.0.1 unless said otherwise.
    pub fn bind<A: Into<String>>(mut self, addresses: impl IntoIterator<Item = A>) -> Self {
        self.listen.bind = addresses.into_iter().map(Into::into).collect();
        self
    }

    /// Listens for Redis clients on a Unix socket.
    pub fn unix_socket(mut self, path: impl Into<PathBuf>) -> Self {
        self.listen.unixsocket = Some(path.into());
        self
    }

    /// The permission bits of the Unix socket's file: what the umask leaves, unless said otherwise.
    pub fn unix_socket_mode(mut self, mode: u32) -> Self {
        self.listen.unixsocketperm = Some(mode);
        self
    }

    /// Most connections at a time: 10 000 unless said otherwise. The process's limit of descriptors is not raised.
    pub fn connections_max(mut self, connections: u32) -> Self {
        self.settings.maxclients = connections;
        self
    }

    /// Closes connections that have been silent for so many seconds; 0: never.
    pub fn connection_timeout_s(mut self, seconds: u32) -> Self {
        self.timeout_s = seconds;
        self
    }

    /// Starts the shards; returns when each of them serves.
    ///
    /// Neither signals nor limits of the process are changed. Shard threads block all signals, so that the host's handlers run
    /// on the host's threads.
    ///
    /// # Errors
    /// The first thing that stands in the way, in one sentence that says what to do; nothing is left running.
    pub fn start(self) -> Result<Cache, StartError> {
        let range = |setting, range| Err(StartError::Setting { setting, range });
        if !(1..=DATABASES_MAX).contains(&self.settings.databases) {
            return range("databases", "1 to 65536");
        }
        if self.queue_slots == 0 {
            return range("queue_slots", "1 or more");
        }
        let layout: Layout = place(self.cpus.as_deref(), self.shards, self.placement, &Machine::here()?)?;
        let shards = layout.cpus.len();
        check_guest(shards)?;
        let mut listeners = self.listeners(shards)?;
        let sockets = std::mem::take(&mut listeners.per_shard);
        let shard_plans =
            layout.cpus.iter().zip(sockets).map(|(&cpu, listeners)| ShardPlan { cpu, listeners });
        let (databases, word_len_max) = (self.settings.databases, self.settings.proto_max_bulk_len);
        let plan = ServerPlan {
            shards: shard_plans.collect(),
            settings: self.settings,
            seed: RandomState::new().hash_one(std::process::id()),
            timeout_s: self.timeout_s,
            tcp_keepalive_s: 300,
            busy_poll: self.busy_poll,
            tenancy: Tenancy::Guest { gate_slots: self.queue_slots },
        };
        let server = Server::start(plan)?;
        let doorway = server.doorway().expect("a guest has a doorway").clone();
        let running = Running { server, unix_file: listeners.unix_file };
        let router = Router::new(shards as u16, word_len_max);
        Ok(Cache::new(doorway, router, databases, listeners.addresses, running))
    }

    fn listeners(&self, shards: usize) -> Result<Listeners, StartError> {
        if self.listen.port != 0 || self.listen.unixsocket.is_some() {
            return Ok(listen(&self.listen, shards)?);
        }
        Ok(Listeners {
            per_shard: (0..shards).map(|_| Vec::new()).collect(),
            addresses: Vec::new(),
            unix_file: None,
            accept: Accept::default(),
            warning: None,
        })
    }
}
