//! Runs a workload: every server in turn, as often as asked for, one way of measuring per [`Kind`].

mod background;

mod fill;

mod traffic;

use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::figures::{Figures, Outcome};
use crate::options::Options;
use crate::process;
use crate::procfs;
use crate::server::{Fleet, Server};
use crate::workload::{Kind, Pin, Subject, Workload};

/// Descriptors beyond one per connection: listeners, rings, logs.
const DESCRIPTORS_SPARE: u64 = 200;

/// Measures a workload and judges it. Never fails: what went wrong is part of the outcome.
pub(crate) fn run(workload: &'static Workload, fleet: &Fleet, options: &Options) -> Outcome {
    let mut outcome = Outcome::new(workload);
    if let Err(error) = check_machine(workload, options) {
        outcome.skipped.push(format!("{error:#}"));
        return outcome;
    }
    let mut subjects = Vec::new();
    for &subject in workload.subjects {
        if fleet.has(subject) {
            subjects.push(subject);
        } else if options.peers.contains(&subject.name()) {
            outcome.skipped.push(format!("{}, which was not found on this machine", subject.name()));
        }
    }
    for run in 1..=options.runs(workload.kind) {
        for &subject in &subjects {
            eprintln!("  run {run}: {}", subject.name());
            if let Err(error) = measure(workload, subject, fleet, options, &mut outcome) {
                outcome.failures.push(format!("{}, run {run}: {error:#}", subject.name()));
            }
        }
    }
    outcome.judge(!options.tiny);
    outcome
}

/// A sentence where this machine cannot run a workload at all.
fn check_machine(workload: &Workload, options: &Options) -> Result<()> {
    if workload.pin == Pin::Split && procfs::cpus() < 2 {
        bail!("needs two CPUs, one for the server and one for the client");
    }
    let connections = match workload.kind {
        Kind::Load(loads) => {
            loads.iter().map(|load| scaled_clients(load.clients, options)).max().unwrap_or(0)
        }
        Kind::IdleConnections(connections) => scaled_clients(connections, options),
        Kind::BigSet(_) | Kind::Idle | Kind::Growth(_) | Kind::Memory(_) | Kind::Collections(..) => 1,
    };
    let descriptors = procfs::descriptors_max()?;
    if connections + DESCRIPTORS_SPARE > descriptors {
        bail!(
            "needs {} descriptors, and `ulimit -n` allows {descriptors}; raise it",
            connections + DESCRIPTORS_SPARE
        );
    }
    Ok(())
}

/// One server, once.
fn measure(
    workload: &Workload,
    subject: Subject,
    fleet: &Fleet,
    options: &Options,
    outcome: &mut Outcome,
) -> Result<()> {
    let server = fleet.start(subject, workload.pin)?;
    if !outcome.commands.contains(&server.command) {
        outcome.commands.push(server.command.clone());
    }
    let mut bench = Bench { server, subject, options, figures: &mut outcome.figures };
    let result = match workload.kind {
        Kind::Load(loads) => traffic::loads(&mut bench, loads, workload.pin, &mut outcome.commands),
        Kind::IdleConnections(count) => {
            background::idle_connections(&mut bench, scaled_clients(count, options))
        }
        Kind::BigSet(bytes) => fill::big_set(&mut bench, options.scaled(bytes, 4 << 20)),
        Kind::Idle => background::idle(&mut bench),
        Kind::Growth(keys) => fill::growth(&mut bench, scaled_keys(keys, options)),
        Kind::Collections(count, elements) => {
            fill::collections(&mut bench, (scaled_keys(count, options), elements), fleet, workload.pin)
        }
        Kind::Memory(keys) => fill::memory(&mut bench, scaled_keys(keys, options), fleet, workload.pin),
    };
    result.with_context(|| format!("its last words: {:?}", bench.server.last_words()))
}

fn scaled_clients(clients: u64, options: &Options) -> u64 {
    options.scaled(clients, clients.min(100))
}

fn scaled_keys(keys: u64, options: &Options) -> u64 {
    options.keys.unwrap_or_else(|| options.scaled(keys, (keys / 100).min(20_000)))
}

/// A started server and the place for what is found out about it.
struct Bench<'a> {
    server: Server,
    subject: Subject,
    options: &'a Options,
    figures: &'a mut Figures,
}

/// Waits until resident memory stops changing (background frees, late returns), two seconds at most; in bytes.
fn settled_bytes(pid: u32) -> Result<f64> {
    let deadline = Instant::now() + Duration::from_secs(2);
    let mut before = process::resident_bytes(pid)?;
    loop {
        std::thread::sleep(Duration::from_millis(200));
        let now = process::resident_bytes(pid)?;
        if now == before || Instant::now() > deadline {
            return Ok(now);
        }
        before = now;
    }
}
