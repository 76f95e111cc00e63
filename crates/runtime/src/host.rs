//! A whole server process, from options to exit: checks, limits, signals, sockets, shards, and the order between them.

use std::fs;
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::time::Duration;

use thiserror::Error;

use crate::listen::{ListenError, Listeners, listen};
use crate::options::ServerOptions;
use crate::preflight::{PreflightError, preflight};
use crate::server::{ServeError, Server, ServerPlan, ShardPlan};
use crate::signals::StopSignals;
use crate::topology::{TopologyError, allowed_cpus, place};

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
    /// Keeps the Unix socket's file until the server has ended.
    _listeners: Listeners,
}

impl Host {
    /// Starts a server; it accepts connections when this returns. Call it before any other thread is started.
    ///
    /// # Errors
    /// The first thing that stands in the way; nothing is left running.
    pub fn start(options: &ServerOptions) -> Result<Self, HostError> {
        let cpus = place(options.cpus.as_deref(), options.shards, options.placement, &allowed_cpus()?)?;
        let found = preflight(cpus.len(), options.maxclients)?;
        let mut listeners = listen(&options.listen(), cpus.len())?;
        let signals = StopSignals::block().map_err(HostError::Signals)?;
        let mut settings = options.settings(cpus.len(), found.maxclients);
        settings.server_info = server_info();
        let sockets = std::mem::take(&mut listeners.per_shard);
        let shards = cpus.iter().zip(sockets).map(|(&cpu, listeners)| ShardPlan { cpu, listeners });
        let plan = ServerPlan {
            shards: shards.collect(),
            settings,
            seed: random_seed(),
            timeout_s: options.timeout_s,
            tcp_keepalive_s: options.tcp_keepalive_s,
            busy_poll: Duration::from_micros(options.busy_poll_us.into()),
        };
        let server = Server::start(plan)?;
        signals.watch(server.mesh().clone()).map_err(HostError::Signals)?;
        let summary = summary(&cpus, &listeners);
        Ok(Self { server, warnings: found.warnings, summary, _listeners: listeners })
    }

    /// Sentences about what is not as it was asked for.
    #[must_use]
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// One line: how many shards, where they run, where they listen.
    #[must_use]
    pub fn summary(&self) -> &str {
        &self.summary
    }

    /// Serves until SHUTDOWN, SIGTERM or SIGINT; a second signal ends the process from within.
    ///
    /// # Errors
    /// A shard failed, and all have ended.
    pub fn wait(self) -> Result<(), HostError> {
        Ok(self.server.join()?)
    }
}

/// Serves with these options until the server is told to stop.
///
/// # Errors
/// As [`Host::start`] and [`Host::wait`].
pub fn serve(options: &ServerOptions) -> Result<(), HostError> {
    Host::start(options)?.wait()
}

fn summary(cpus: &[Option<usize>], listeners: &Listeners) -> String {
    let mut places: Vec<String> = listeners.addresses.iter().map(ToString::to_string).collect();
    places.extend(listeners.unix_file.iter().map(|file| file.path().display().to_string()));
    let bound: Option<Vec<String>> = cpus.iter().map(|cpu| cpu.map(|cpu| cpu.to_string())).collect();
    let on = bound.map_or_else(|| "on any cpu".to_owned(), |cpus| format!("on cpu {}", cpus.join(",")));
    let shards = if cpus.len() == 1 { "1 shard".to_owned() } else { format!("{} shards", cpus.len()) };
    format!("{shards} {on}, ready to accept connections on {}", places.join(" "))
}

/// What INFO says about the process.
fn server_info() -> Vec<(&'static str, String)> {
    let read = |path| fs::read_to_string(path).unwrap_or_default().trim().to_owned();
    let run_id: String = (0..3).map(|_| format!("{:016x}", random_seed())).collect();
    let executable = std::env::current_exe().map(|path| path.display().to_string()).unwrap_or_default();
    vec![
        ("os", format!("Linux {} {}", read("/proc/sys/kernel/osrelease"), std::env::consts::ARCH)),
        ("multiplexing_api", "io_uring".to_owned()),
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

    #[test]
    fn the_summary_is_one_line() {
        let addresses = vec!["127.0.0.1:6379".parse().unwrap(), "[::1]:6379".parse().unwrap()];
        let listeners = Listeners { per_shard: Vec::new(), addresses, unix_file: None };
        assert_eq!(
            summary(&[Some(0), Some(4)], &listeners),
            "2 shards on cpu 0,4, ready to accept connections on 127.0.0.1:6379 [::1]:6379"
        );
        assert!(summary(&[None], &listeners).starts_with("1 shard on any cpu, ready"));
    }

    #[test]
    fn what_info_says_has_a_value_each() {
        for (name, value) in server_info() {
            assert!(!value.is_empty() && !value.contains('\n'), "{name}: {value:?}");
        }
        assert_ne!(random_seed(), random_seed());
    }
}
