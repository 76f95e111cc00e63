//! `benches/compare/run`: corelane beside Redis, Valkey and memcached, on one machine, one command.
//!
//! Starts each server in turn on a free loopback port, drives it, reads its CPU time and memory from `/proc`, and
//! writes the figures next to the bounds of [`workload`]. It knows nothing of corelane's inside: whatever it reports
//! about us, a user could have measured from outside.

mod options;

mod workload;

mod metric;

mod figures;

mod server;

mod procfs;

#[path = "../../crates/server/experiment/process.rs"]
mod process;

#[path = "../../crates/server/experiment/samples.rs"]
mod samples;

mod client;

mod load;

mod measure;

mod report;

mod chart;

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::Parser;

use figures::Outcome;
use options::Options;
use server::Fleet;

fn main() -> ExitCode {
    match run(&Options::parse()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("compare: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Runs what was asked for; false when a measurement failed, or when `--check` was given and a bound was missed.
fn run(options: &Options) -> Result<bool> {
    if options.list {
        for workload in workload::ALL {
            println!("{:<22} {}", workload.name, workload.about);
        }
        return Ok(true);
    }
    let chosen = workload::select(&options.names(), &options.skip)?;
    let fleet = Fleet::find(options)?;
    let machine = procfs::Machine::read()?;
    for note in &fleet.notes {
        eprintln!("note: {note}");
    }

    let mut outcomes = Vec::new();
    for workload in chosen {
        eprintln!("{}: {}", workload.name, workload.about);
        let outcome = measure::run(workload, &fleet, options);
        if !options.json {
            print!("{}", report::text(&outcome));
        }
        outcomes.push(outcome);
        // What was measured is kept, whatever becomes of the workloads that follow.
        save(&outcomes, &fleet, &machine, options)?;
    }
    if options.json {
        println!("{}", report::json(&outcomes));
    }
    if let Some(directory) = results_directory(&machine, options) {
        eprintln!("results: {}", directory.display());
    }
    Ok(verdict(&outcomes, options))
}

fn verdict(outcomes: &[Outcome], options: &Options) -> bool {
    let failed = outcomes.iter().any(|outcome| !outcome.failures.is_empty());
    let missed =
        outcomes.iter().flat_map(|outcome| &outcome.verdicts).any(|verdict| verdict.holds == Some(false));
    let refused = failed || (options.check && missed);
    !refused
}

/// Where results go, if anywhere: a `--tiny` run is no result, and kept only where `--out` says so.
fn results_directory(machine: &procfs::Machine, options: &Options) -> Option<PathBuf> {
    match &options.out {
        Some(directory) => Some(directory.clone()),
        None if options.tiny => None,
        None => Some(machine.results_directory()),
    }
}

/// Writes CSV, Markdown and SVG to the results directory.
fn save(outcomes: &[Outcome], fleet: &Fleet, machine: &procfs::Machine, options: &Options) -> Result<()> {
    let Some(directory) = results_directory(machine, options) else { return Ok(()) };
    std::fs::create_dir_all(&directory).with_context(|| format!("cannot create {}", directory.display()))?;
    let write = |name: &str, text: String| {
        let path = directory.join(name);
        std::fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))
    };
    write("compare.csv", report::csv(outcomes))?;
    write("compare.md", report::markdown(outcomes, fleet, machine))?;
    chart::ratios(outcomes, &directory.join("compare.svg"))
}
