//! What can be set when a server starts, as plain data with its defaults, and how it reaches the engine.

use std::path::PathBuf;

use corelane_engine::config::Config;
use corelane_engine::{Hooks, Settings};

use crate::listen::{Accept, ListenOptions};
use crate::topology::Placement;

/// What the start-up needs of the configuration, and the configuration itself.
#[derive(Clone, Debug)]
pub struct ServerOptions {
    /// Addresses to listen on; see [`ListenOptions::bind`].
    pub bind: Vec<String>,
    /// TCP port; 0: none.
    pub port: u16,
    /// Path of the Unix socket.
    pub unixsocket: Option<PathBuf>,
    /// Its permission bits.
    pub unixsocketperm: Option<u32>,
    /// Number of shards; `None`: what [`place`](crate::topology::place) finds.
    pub shards: Option<usize>,
    /// CPUs for the shards, such as `0-3,8`; `None`: those of the affinity mask.
    pub cpus: Option<String>,
    /// How shards are spread over cores, and whether they are bound to them.
    pub placement: Placement,
    /// Which shards accept connections.
    pub accept: Accept,
    /// Most clients at a time.
    pub maxclients: u32,
    /// Connections that may wait to be accepted, per socket.
    pub tcp_backlog: u32,
    /// All directives.
    pub config: Config,
    /// What the program does for CONFIG.
    pub hooks: Hooks,
    /// What INFO's section `Server` says of the program: field and value.
    pub program_info: Vec<(&'static str, String)>,
    /// Visits of the program's other threads that may wait at each shard; 0: there are none.
    pub gate_slots: usize,
}

impl Default for ServerOptions {
    fn default() -> Self {
        Self::from_config(Config::default())
    }
}

/// The member of `all` with this name; the table of directives knows no other names.
fn named<T: Copy + Default>(all: &[T], name: fn(T) -> &'static str, wanted: &str) -> T {
    all.iter().copied().find(|known| name(*known) == wanted).unwrap_or_default()
}

impl ServerOptions {
    /// The options that a configuration stands for.
    #[must_use]
    pub fn from_config(config: Config) -> Self {
        let text = |name| Some(config.value(name).to_owned()).filter(|value| !value.is_empty());
        let mode = u32::from_str_radix(config.value("unixsocketperm"), 8).ok();
        Self {
            bind: config.value("bind").split_ascii_whitespace().map(str::to_owned).collect(),
            port: config.number("port") as u16,
            unixsocket: text("unixsocket").map(PathBuf::from),
            unixsocketperm: mode.filter(|mode| *mode != 0),
            shards: usize::try_from(config.number("shards")).ok().filter(|shards| *shards != 0),
            cpus: text("cpus"),
            placement: named(&Placement::ALL, Placement::name, config.value("placement")),
            accept: named(&Accept::ALL, Accept::name, config.value("accept")),
            maxclients: config.number("maxclients") as u32,
            tcp_backlog: config.number("tcp-backlog").max(1) as u32,
            hooks: Hooks::default(),
            program_info: Vec::new(),
            gate_slots: 0,
            config,
        }
    }

    /// Where to listen.
    #[must_use]
    pub fn listen(&self) -> ListenOptions {
        ListenOptions {
            bind: self.bind.clone(),
            port: self.port,
            unixsocket: self.unixsocket.clone(),
            unixsocketperm: self.unixsocketperm,
            backlog: self.tcp_backlog,
            accept: self.accept,
        }
    }

    /// What the engines are told: `shards` and `maxclients` are those that the start-up settled on.
    #[must_use]
    pub fn settings(&self, shards: usize, maxclients: u32) -> Settings {
        let mut config = self.config.clone();
        config.settle("shards", &shards.to_string());
        config.settle("maxclients", &maxclients.to_string());
        let mut settings = Settings { hooks: self.hooks, ..Settings::default() };
        settings.apply(config);
        settings
    }
}

#[cfg(test)]
mod tests {
    use corelane_engine::config::Directive;

    use super::*;
    use crate::listen::BIND_DEFAULT;

    #[test]
    fn defaults_come_from_the_table_of_directives() {
        let options = ServerOptions::default();
        assert_eq!(options.bind, BIND_DEFAULT);
        assert_eq!((options.port, options.shards, options.maxclients), (6379, None, 10_000));
        assert_eq!((options.placement, options.accept), (Placement::default(), Accept::default()));
        assert_eq!((options.unixsocket, options.unixsocketperm, options.cpus), (None, None, None));
    }

    #[test]
    fn settings_carry_the_options() {
        let mut config = Config::default();
        for (name, value) in [("port", "7000"), ("databases", "4"), ("placement", "float")] {
            config.set(Directive::find(name).unwrap(), value).unwrap();
        }
        let options = ServerOptions::from_config(config);
        assert_eq!((options.port, options.placement), (7000, Placement::Float));
        let settings = options.settings(3, 50);
        assert_eq!((settings.port, settings.databases, settings.maxclients), (7000, 4, 50));
        let shown = |name| settings.config.value(name);
        assert_eq!((shown("shards"), shown("maxclients"), shown("bind")), ("3", "50", "127.0.0.1 -::1"));
    }
}
