//! What a cache is made of, and its start.

use std::fmt::Display;
use std::hash::{BuildHasher, RandomState};
use std::path::Path;
use std::time::Duration;

use corelane_engine::Router;
use corelane_engine::config::{Config, Directive};
use corelane_runtime::listen::{Listeners, listen};
use corelane_runtime::options::ServerOptions;
use corelane_runtime::preflight::check_guest;
use corelane_runtime::server::{Server, ServerPlan, ShardPlan, Tenancy};
use corelane_runtime::topology::{Layout, Machine, Placement, place};

use crate::cache::{Cache, Running};
use crate::error::StartError;

/// Messages that may wait at a shard unless said otherwise.
const QUEUE_SLOTS_DEFAULT: usize = 1024;
/// The most that may: their places take 128 MiB.
const QUEUE_SLOTS_MAX: usize = 1 << 20;
/// Fewer connections than this make no server, unless fewer were asked for.
const CONNECTIONS_MIN: u32 = 32;
/// Directives about what belongs to the host: a cache writes no log and serves no metrics.
const OF_THE_HOST: [&str; 4] = ["logfile", "loglevel", "metrics-bind", "metrics-port"];

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
    config: Config,
    queue_slots: usize,
    /// `maxclients` was set.
    connections_named: bool,
    /// The first directive that could not be set, and why.
    wrong: Option<(String, String)>,
}

impl Default for Builder {
    fn default() -> Self {
        Self {
            config: Config::default(),
            queue_slots: QUEUE_SLOTS_DEFAULT,
            connections_named: false,
            wrong: None,
        }
        .config("port", 0)
        .config("bind", "127.0.0.1")
        .placement(Placement::Float)
    }
}

impl Builder {
    /// A shard per physical core that the process may use, bound to none, without listeners.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets a directive of the server by its name, such as `maxclients` or `lfu-log-factor`, as a line of its configuration file
    /// would; `docs/config.md` lists them. What is set later counts, whether by this method or by one of its own. A
    /// directive that changes nothing here is refused by [`Builder::start`], as is an unknown one or a value that it does not
    /// take.
    pub fn config(mut self, directive: &str, value: impl Display) -> Self {
        let set = match Directive::find(directive) {
            None => Err("there is no such directive; docs/config.md lists them".to_owned()),
            Some(known) if known.idle || OF_THE_HOST.contains(&known.name) => {
                Err("it changes nothing in an embedded cache".to_owned())
            }
            Some(known) => {
                self.connections_named |= known.name == "maxclients";
                self.config.set(known, &value.to_string())
            }
        };
        if let Err(why) = set
            && self.wrong.is_none()
        {
            self.wrong = Some((directive.to_owned(), why));
        }
        self
    }

    /// How many shards, 1 to 1024. Each is a thread.
    pub fn shards(mut self, shards: usize) -> Self {
        if !(1..=1024).contains(&shards) && self.wrong.is_none() {
            self.wrong =
                Some(("shards".to_owned(), "argument must be between 1 and 1024 inclusive".to_owned()));
        }
        self.config("shards", shards)
    }

    /// The CPUs for the shards, as in `0-3,8`. Without it, those of the process's affinity mask. Only with
    /// [`Placement::Physical`] or [`Placement::Logical`] are shards bound to them.
    pub fn cpus(self, list: impl Display) -> Self {
        self.config("cpus", list)
    }

    /// Whether shards are bound to CPUs: [`Placement::Float`] unless said otherwise, since the host has threads of its own.
    pub fn placement(self, placement: Placement) -> Self {
        self.config("placement", placement.name())
    }

    /// How many databases there are, 1 to 16384: 16 unless said otherwise.
    pub fn databases(self, databases: usize) -> Self {
        self.config("databases", databases)
    }

    /// The longest key or value in bytes, 1 MiB or more: 512 MiB unless said otherwise.
    pub fn value_len_max(self, bytes: usize) -> Self {
        self.config("proto-max-bulk-len", bytes)
    }

    /// How many messages may wait at a shard before callers wait, 1 to 1 048 576: 1024 unless said otherwise. A message takes
    /// about 200 bytes and its words, its place 128 bytes, used or not.
    pub fn queue_slots(mut self, slots: usize) -> Self {
        self.queue_slots = slots;
        self
    }

    /// How long a shard without work spins before it sleeps, at most a second: not at all unless said otherwise.
    pub fn busy_poll(self, time: Duration) -> Self {
        self.config("busy-poll-us", time.as_micros())
    }

    /// Listens for Redis clients on a TCP port.
    pub fn port(self, port: u16) -> Self {
        self.config("port", port)
    }

    /// The addresses to listen on with [`Builder::port`]: 127.0.0.1 unless said otherwise. Without a [`Builder::password`] only
    /// clients of this machine are served, unless `protected-mode` is set to `no`.
    pub fn bind<A: Into<String>>(self, addresses: impl IntoIterator<Item = A>) -> Self {
        let addresses: Vec<String> = addresses.into_iter().map(Into::into).collect();
        self.config("bind", addresses.join(" "))
    }

    /// Listens for Redis clients on a Unix socket. The path has to be UTF-8.
    pub fn unix_socket(mut self, path: impl AsRef<Path>) -> Self {
        if path.as_ref().to_str().is_none() && self.wrong.is_none() {
            self.wrong = Some(("unixsocket".to_owned(), "the path is not UTF-8".to_owned()));
        }
        self.config("unixsocket", path.as_ref().display())
    }

    /// The permission bits of the Unix socket's file, 0o777 at most: what the umask leaves, unless said otherwise.
    pub fn unix_socket_mode(self, mode: u32) -> Self {
        self.config("unixsocketperm", format_args!("{mode:o}"))
    }

    /// The password that clients of the listeners have to give (AUTH, HELLO): none unless said otherwise. Calls through
    /// [`Cache`] need none.
    pub fn password(self, password: impl Display) -> Self {
        self.config("requirepass", password)
    }

    /// Most connections at a time. The process's limit of descriptors is not raised: with listeners, more than fit are an error
    /// of [`Builder::start`]. Without this, 10 000 or as many as fit, but at least 32.
    pub fn connections_max(self, connections: u32) -> Self {
        self.config("maxclients", connections)
    }

    /// Closes connections that have been silent for so many seconds; 0: never.
    pub fn connection_timeout_s(self, seconds: u32) -> Self {
        self.config("timeout", seconds)
    }

    /// Starts the shards; returns when each of them serves.
    ///
    /// Neither signals nor limits of the process are changed. Shard threads block all signals, so that the host's handlers run
    /// on the host's threads.
    ///
    /// # Errors
    /// The first thing that stands in the way, in one sentence that says what to do; nothing is left running.
    pub fn start(self) -> Result<Cache, StartError> {
        if let Some((directive, why)) = self.wrong {
            return Err(StartError::Config { directive, why });
        }
        if !(1..=QUEUE_SLOTS_MAX).contains(&self.queue_slots) {
            return Err(StartError::Setting { setting: "queue_slots", range: "1 to 1048576" });
        }
        self.config.check().map_err(StartError::Contradiction)?;
        let options = ServerOptions::from_config(self.config);
        let machine = Machine::here()?;
        let layout: Layout = place(options.cpus.as_deref(), options.shards, options.placement, &machine)?;
        let shards = layout.cpus.len();
        let listens = options.port != 0 || options.unixsocket.is_some();
        let connections = match (listens, self.connections_named) {
            (false, _) => 0..=0,
            (true, false) => CONNECTIONS_MIN.min(options.maxclients)..=options.maxclients,
            (true, true) => options.maxclients..=options.maxclients,
        };
        let fitting = check_guest(shards, connections)?;
        let maxclients = if listens { fitting } else { options.maxclients };
        let mut listeners = listeners(&options, shards)?;
        let sockets = std::mem::take(&mut listeners.per_shard);
        let settings = options.settings(shards, maxclients);
        let databases = settings.databases;
        let plan = ServerPlan {
            shards: ShardPlan::placed(&layout, sockets),
            settings,
            seed: RandomState::new().hash_one(std::process::id()),
            tenancy: Tenancy::Guest,
            gate_slots: self.queue_slots,
            listening: None,
        };
        let server = Server::start(plan)?;
        let doorway = server.doorway().expect("there are slots for visits").clone();
        let running = Running { server, unix_file: listeners.unix_file };
        let router = Router::new(shards as u16);
        Ok(Cache::new(doorway, router, databases, listeners.addresses, running))
    }
}

fn listeners(options: &ServerOptions, shards: usize) -> Result<Listeners, StartError> {
    if options.port != 0 || options.unixsocket.is_some() {
        return Ok(listen(&options.listen(), shards)?);
    }
    Ok(Listeners {
        per_shard: (0..shards).map(|_| Vec::new()).collect(),
        addresses: Vec::new(),
        unix_file: None,
        accept: options.accept,
        warning: None,
    })
}
