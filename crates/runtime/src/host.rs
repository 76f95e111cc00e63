//! A whole server process, from options to exit: checks, limits, signals, sockets, shards, and the order between them.

use std::fs;
use std::hash::{BuildHasher, RandomState};
use std::io;

use thiserror::Error;

use crate::allocator;
use crate::listen::{Accept, ListenError, Listeners, listen};
use crate::listening::{Listening, listen_elsewhere};
use crate::notify::ServiceManager;
use crate::options::ServerOptions;
use crate::preflight::{PreflightError, most_clients, preflight};
use crate::server::{ServeError, Server, ServerPlan, ShardPlan, Tenancy};
use crate::signals::StopSignals;
use crate::topology::{Layout, Machine, Placement, TopologyError, place, ranges};
use crate::visit::Doorway;

/// Why a server did not start, or did not end well. Each text is one sentence that says what to do.
#[derive(Debug, Error)]
pub enum HostError {
    /// CPUs and shards.
    #[error(transparent)]
    Topology(#[from] TopologyError),
    /// The machine or its limits.
    #[error(transparent)]
    Preflight(#[from] PreflightError),
    /// Addresses and ports.
    #[error(transparent)]
    Listen(#[from] ListenError),
    /// The shards.
    #[error(transparent)]
    Serve(#[from] ServeError),
    /// Second descriptors of the listening sockets.
    #[error("cannot keep account of the listening sockets: {0}")]
    Descriptors(#[source] io::Error),
    /// The thread for signals.
    #[error("cannot wait for signals: {0}")]
    Signals(#[source] io::Error),
}

/// A server that serves this process's options; one per process, since it takes over the process's signals and limits.
#[derive(Debug)]
pub struct Host {
    server: Server,
    warnings: Vec<String>,
    summary: String,
    banner: Vec<String>,
    manager: ServiceManager,
    /// Keeps the Unix socket's file until the server has ended.
    _listeners: Listeners,
}

impl Host {
    /// Starts a server; it accepts connections when this returns. Call it before any other thread is started.
    ///
    /// # Errors
    /// The first thing that stands in the way; nothing is left running.
    pub fn start(options: &ServerOptions) -> Result<Self, HostError> {
        let machine = Machine::here()?;
        let layout = place(options.cpus.as_deref(), options.shards, options.placement, &machine)?;
        let shards = layout.cpus.len();
        let found = preflight(shards, options.maxclients)?;
        let mut listeners = listen(&options.listen(), shards)?;
        let signals = StopSignals::block().map_err(HostError::Signals)?;
        let mut settings = options.settings(shards, found.maxclients);
        let manager = ServiceManager::of_this_process();
        settings.server_info.clone_from(&options.program_info);
        settings.server_info.extend(server_info());
        settings.server_info.push(("process_supervised", manager.name().to_owned()));
        settings.server_info.extend(placement_info(&layout, &machine, options.placement, listeners.accept));
        settings.allocator = allocator::in_use();
        let listening = Listening::of(&listeners, options.tcp_backlog).map_err(HostError::Descriptors)?;
        let places = listening.to_string();
        settings.server_info.extend(listening.info());
        settings.hooks.listen = listen_elsewhere;
        settings.maxclients_max = most_clients(shards);
        let sockets = std::mem::take(&mut listeners.per_shard);
        let plan = ServerPlan {
            shards: ShardPlan::placed(&layout, sockets),
            settings,
            seed: random_seed(),
            tenancy: Tenancy::Owner,
            gate_slots: options.gate_slots,
            listening: Some(listening),
        };
        let banner = vec![
            format!(
                "Linux {}, sockets through io_uring (deferred task work, multishot receive, provided buffers)",
                fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default().trim()
            ),
            format!(
                "{} databases, at most {} clients, strings of at most {} bytes",
                plan.settings.databases, plan.settings.maxclients, plan.settings.proto_max_bulk_len
            ),
        ];
        let server = Server::start(plan)?;
        signals.watch(server.mesh().clone(), manager.clone()).map_err(HostError::Signals)?;
        let summary = summary(&layout, &machine, &places);
        manager.ready(&summary);
        let warnings = found.warnings.into_iter().chain(layout.warning).chain(listeners.warning.take());
        Ok(Self { server, warnings: warnings.collect(), banner, summary, manager, _listeners: listeners })
    }

    /// Sentences about what is not as it was asked for.
    #[must_use]
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// What the server found and settled on, for the log.
    #[must_use]
    pub fn banner(&self) -> &[String] {
        &self.banner
    }

    /// One line: how many shards, where they run, where they listen.
    #[must_use]
    pub fn summary(&self) -> &str {
        &self.summary
    }

    /// The way in for other threads, if the options have slots for them.
    #[must_use]
    pub fn doorway(&self) -> Option<Doorway> {
        self.server.doorway().cloned()
    }

    /// Serves until SHUTDOWN, SIGTERM or SIGINT; a SIGINT after one of these signals ends the process from within.
    ///
    /// # Errors
    /// A shard failed, and all have ended.
    pub fn wait(self) -> Result<(), HostError> {
        let ended = self.server.join();
        // SHUTDOWN goes past the thread that waits for signals.
        self.manager.stopping();
        Ok(ended?)
    }
}

/// Serves with these options until the server is told to stop.
///
/// # Errors
/// As [`Host::start`] and [`Host::wait`].
pub fn serve(options: &ServerOptions) -> Result<(), HostError> {
    Host::start(options)?.wait()
}

fn summary(layout: &Layout, machine: &Machine, places: &str) -> String {
    let cpus = &layout.cpus;
    let bound: Option<Vec<String>> = cpus.iter().map(|cpu| cpu.map(|cpu| cpu.to_string())).collect();
    let mut on = match bound {
        Some(cpus) => format!("on cpu {}", cpus.join(",")),
        None if layout.elsewhere.is_empty() => "on any cpu".to_owned(),
        None => format!("on any cpu of {}", layout.shard_cpus()),
    };
    if let Some(quota) = machine.quota {
        on.push_str(&format!(" with a quota of {quota}"));
    }
    let shards = if cpus.len() == 1 { "1 shard".to_owned() } else { format!("{} shards", cpus.len()) };
    format!("{shards} {on}, ready to accept connections on {places}")
}

/// What INFO says about the shards' CPUs: those they are bound to or kept to, `any` where they are neither.
fn placement_info(
    layout: &Layout,
    machine: &Machine,
    placement: Placement,
    accept: Accept,
) -> [(&'static str, String); 6] {
    [
        ("placement", placement.name().to_owned()),
        ("shard_cpus", layout.shard_cpus()),
        ("allowed_cpus", ranges(&machine.allowed)),
        ("physical_cores", layout.cores.to_string()),
        ("cpu_quota", machine.quota.map_or_else(|| "none".to_owned(), |quota| quota.to_string())),
        ("accept", accept.name().to_owned()),
    ]
}

/// What INFO says about the process.
fn server_info() -> Vec<(&'static str, String)> {
    let read = |path| fs::read_to_string(path).unwrap_or_default().trim().to_owned();
    let run_id: String = (0..3).map(|_| format!("{:016x}", random_seed())).collect();
    let executable = std::env::current_exe().map(|path| path.display().to_string()).unwrap_or_default();
    vec![
        ("os", format!("Linux {} {}", read("/proc/sys/kernel/osrelease"), std::env::consts::ARCH)),
        ("multiplexing_api", "io_uring".to_owned()),
        ("monotonic_clock", "POSIX clock_gettime".to_owned()),
        ("process_id", std::process::id().to_string()),
        ("run_id", run_id[..40].to_owned()),
        ("executable", executable),
    ]
}

/// 64 bits that the standard library draws from the system's random source and its own keyed hash.
fn random_seed() -> u64 {
    RandomState::new().hash_one(std::process::id())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::system_files::SystemFiles;
    use crate::topology::CpuQuota;

    #[test]
    fn the_summary_is_one_line() {
        let places = "127.0.0.1:6379 [::1]:6379";
        let machine = |quota| Machine { allowed: vec![0, 2, 3, 4], quota, files: SystemFiles::real() };
        let layout = |cpus| Layout { cpus, elsewhere: Vec::new(), cores: 2, warning: None };
        let (bound, floating) = (layout(vec![Some(0), Some(4)]), layout(vec![None]));
        assert_eq!(
            summary(&bound, &machine(None), places),
            "2 shards on cpu 0,4, ready to accept connections on 127.0.0.1:6379 [::1]:6379"
        );
        let limited = machine(Some(CpuQuota { millicpus: 1500 }));
        assert!(
            summary(&floating, &limited, places).starts_with("1 shard on any cpu with a quota of 1.5, ready")
        );
        let mut kept = floating.clone();
        kept.elsewhere = vec![2, 3];
        assert!(summary(&kept, &machine(None), places).starts_with("1 shard on any cpu of 2-3, ready"));
        let info = |layout: &Layout, machine: &Machine| {
            placement_info(layout, machine, Placement::Physical, Accept::Single)
                .map(|(name, value)| format!("{name}:{value}"))
                .join(" ")
        };
        assert_eq!(
            info(&bound, &machine(None)),
            "placement:physical shard_cpus:0,4 allowed_cpus:0,2-4 physical_cores:2 cpu_quota:none accept:single"
        );
        assert!(
            info(&floating, &limited)
                .contains("shard_cpus:any allowed_cpus:0,2-4 physical_cores:2 cpu_quota:1.5")
        );
    }

    #[test]
    fn what_info_says_has_a_value_each() {
        for (name, value) in server_info() {
            assert!(!value.is_empty() && !value.contains('\n'), "{name}: {value:?}");
        }
        assert_ne!(random_seed(), random_seed());
    }
}
