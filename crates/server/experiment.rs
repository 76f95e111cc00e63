//! `corelane experiment`: the measurements behind what people write about servers, each as one command.
//!
//! An experiment starts servers, or finds them running, loads them by `corelane bench` and keeps every run in a
//! [`recording`]; its report is made from that alone, so that a saved run can be shown again. What an experiment does is
//! in the file of its name; the others know nothing of experiments in particular.

mod process;

mod samples;

mod system;
mod tasks;

mod server;

mod drift;

mod usage;

mod load;

mod recording;

mod figures;

mod redis_form;

mod document;

mod chart;

mod plan;

mod placement;

mod compare;

mod environment;

mod accel;

mod diff;

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use clap::{Args, Parser, Subcommand};

use crate::latency::system::stop_on_signals;
use crate::output::{show, writable};
use document::Report;
use recording::{Kind, Recording};

/// Measures servers as people have published it, and writes reports
#[derive(Debug, Parser)]
#[command(name = "corelane experiment")]
struct Options {
    #[command(subcommand)]
    experiment: Experiment,
}

#[derive(Debug, Subcommand)]
enum Experiment {
    /// A server on a physical core of its own, two on the threads of one core, and one that is moved about
    Placement(placement::Options),
    /// Two servers under the same loads
    Compare(compare::Options),
    /// This machine, in figures that can be compared with another one's
    Env(environment::Options),
    /// Ordinary sockets and the ways around them
    Accel(accel::Options),
    /// Two saved runs of the same experiment
    Diff(diff::Options),
    /// The report of a saved run, once more
    Report(ReportOptions),
}

#[derive(Debug, Args)]
struct ReportOptions {
    /// The directory of a run, or its run.json
    run: PathBuf,
    #[command(flatten)]
    output: Output,
}

/// Where results go.
#[derive(Debug, Args)]
struct Output {
    /// Save report.md, run.json and pictures in a directory
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Print JSON in place of Markdown
    #[arg(long)]
    json: bool,
}

/// What all experiments understand that measure something.
#[derive(Debug, Args)]
struct Common {
    #[command(flatten)]
    output: Output,
    /// How often each load is run, servers alternating
    #[arg(long, value_name = "N", default_value = "3", value_parser = clap::value_parser!(u32).range(1..=1000))]
    repeat: u32,
    /// Run this part of the requests, such as 0.01
    #[arg(long, value_name = "FACTOR", default_value = "1", value_parser = scale)]
    scale: f64,
    /// Only these loads, or these of the things that are compared
    #[arg(long, value_name = "NAME,...", value_delimiter = ',')]
    only: Vec<String>,
    /// Threads of the load generator, in place of the experiment's own number
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1024))]
    threads: Option<u32>,
    /// The program that makes the load, such as 'ssh other corelane'
    #[arg(long, value_name = "CMD", default_value = "corelane")]
    client: String,
    /// With --client: the name of this machine there
    #[arg(long, value_name = "HOST")]
    host: Option<String>,
    /// What the run is called in reports [default: the name of this machine]
    #[arg(long, value_name = "TEXT")]
    label: Option<String>,
    /// Say nothing while it runs
    #[arg(short, long)]
    quiet: bool,
}

fn scale(text: &str) -> Result<f64, String> {
    let factor: Option<f64> = text.parse().ok();
    factor
        .filter(|factor| *factor > 0.0 && *factor <= 1000.0)
        .ok_or_else(|| "not a number above 0, up to 1000".to_owned())
}

/// Runs the tool on the arguments behind its name.
pub(crate) fn run(args: impl Iterator<Item = OsString>) -> ExitCode {
    let name = OsString::from("corelane experiment");
    let options = match Options::try_parse_from(std::iter::once(name).chain(args)) {
        Ok(options) => options,
        Err(error) => {
            // A closed terminal leaves nobody to be told.
            let _ = error.print();
            return ExitCode::from(error.exit_code() as u8);
        }
    };
    stop_on_signals();
    match perform(&options.experiment) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("corelane experiment: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn perform(experiment: &Experiment) -> Result<()> {
    match experiment {
        Experiment::Placement(options) => measured(&options.common, || placement::measure(options)),
        Experiment::Compare(options) => measured(&options.common, || compare::measure(options)),
        Experiment::Env(options) => measured(&options.common, || environment::measure(options)),
        Experiment::Accel(options) => measured(&options.common, || accel::measure(options)),
        Experiment::Report(options) => {
            kept(&options.output, || deliver(&Recording::load(&options.run)?, &options.output))
        }
        Experiment::Diff(options) => kept(&options.output, || {
            let (one, other) = (Recording::load(&options.run_a)?, Recording::load(&options.run_b)?);
            let report = diff::report(&one, &other)?;
            let text = document::markdown(&report, &[&one, &other], options.output.out.is_some());
            publish(&report, &text, &document::json(&report, &[&one, &other]), &options.output)
        }),
    }
}

fn measured(common: &Common, measure: impl FnOnce() -> Result<Recording>) -> Result<()> {
    kept(&common.output, || deliver(&measure()?, &common.output))
}

/// Does the work where its results can be kept. A directory that was made for them goes again if there are none.
fn kept(output: &Output, work: impl FnOnce() -> Result<()>) -> Result<()> {
    let Some(dir) = &output.out else { return work() };
    let existed = dir.exists();
    prepare(dir)?;
    work().inspect_err(|_| {
        if !existed {
            // One that holds something stays.
            let _ = std::fs::remove_dir(dir);
        }
    })
}

/// Looks whether results can be kept, before the work is done.
fn prepare(dir: &Path) -> Result<()> {
    for file in [recording::FILE, document::FILE] {
        if dir.join(file).exists() {
            bail!("{} has a {file} already: give another directory", dir.display());
        }
    }
    std::fs::create_dir_all(dir).with_context(|| format!("cannot create {}", dir.display()))?;
    writable(&dir.join(recording::FILE))
}

fn deliver(recording: &Recording, output: &Output) -> Result<()> {
    let report = match recording.experiment {
        Kind::Placement => placement::report(recording),
        Kind::Compare => compare::report(recording),
        Kind::Env => environment::report(recording),
        Kind::Accel => accel::report(recording),
    };
    if let Some(dir) = &output.out {
        write(dir, recording::FILE, &serde_json::to_string(recording)?)?;
    }
    let text = document::markdown(&report, &[recording], output.out.is_some());
    publish(&report, &text, &document::json(&report, &[recording]), output)
}

/// Prints a report, and saves it with its pictures.
fn publish(report: &Report, text: &str, json: &serde_json::Value, output: &Output) -> Result<()> {
    if let Some(dir) = &output.out {
        write(dir, document::FILE, text)?;
        for picture in &report.pictures {
            picture.draw(dir)?;
        }
    }
    let printed = if output.json { format!("{json}\n") } else { text.to_owned() };
    show(printed);
    if let Some(dir) = &output.out {
        eprintln!("saved in {}", dir.display());
    }
    Ok(())
}

fn write(dir: &Path, file: &str, text: &str) -> Result<()> {
    let path = dir.join(file);
    std::fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))
}
