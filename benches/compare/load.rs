//! Runs the load generator and reads what it prints.

use std::process::Command;

use anyhow::{Context, Result, bail};
use clap::ValueEnum;

use crate::procfs;
use crate::workload::{Load, Pin};

/// Seconds after which a run is given up.
const RUN_SECONDS_MAX: &str = "300";

/// What makes the load. Both take the same options and print the same lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Generator {
    /// `corelane bench`, which needs less CPU time for a request than the servers do: it is they who are measured.
    Corelane,
    /// redis-benchmark; without a pipeline it is busy before a server is.
    RedisBenchmark,
}

impl Generator {
    /// How its command line begins. Ours is the binary that this bench was built with.
    fn words(self) -> &'static [&'static str] {
        match self {
            Self::Corelane => &[env!("CARGO_BIN_EXE_corelane"), "bench"],
            Self::RedisBenchmark => &["redis-benchmark"],
        }
    }

    /// The line that it gives for `--version`.
    pub(crate) fn version(self) -> Option<String> {
        let line = procfs::output(self.words()[0], &["--version"]);
        line.map(|line| format!("{line}, as the load generator"))
    }
}

/// What a generator says about one run.
#[derive(Debug)]
pub(crate) struct Report {
    pub(crate) requests_per_s: f64,
    pub(crate) p50_ms: f64,
    pub(crate) p99_ms: f64,
    /// Lines it printed about errors.
    pub(crate) errors: usize,
}

/// The command line for a load, with the word PORT for the port.
pub(crate) fn command(generator: Generator, load: &Load, requests: u64, pin: Pin) -> Vec<String> {
    let mut words: Vec<String> = ["timeout", RUN_SECONDS_MAX].map(str::to_owned).to_vec();
    if pin == Pin::Split {
        words.extend(["taskset", "-c", "1"].map(str::to_owned));
    }
    words.extend(generator.words().iter().copied().map(str::to_owned));
    words.extend(["-h", "127.0.0.1", "-p", "PORT", "--csv"].map(str::to_owned));
    let mut option = |name: &str, value: u64| words.extend([name.to_owned(), value.to_string()]);
    option("-n", requests);
    option("-c", load.clients);
    option("-P", load.pipeline);
    option("-d", load.value_bytes);
    option("-r", load.keys);
    option("-k", u64::from(load.keep_alive));
    if load.threads > 1 {
        option("--threads", load.threads);
    }
    if !load.test.contains(' ') {
        words.push("-t".to_owned());
    }
    words.extend(load.test.split(' ').map(str::to_owned));
    words
}

/// Runs a command of [`command`] against a port.
///
/// # Errors
/// It ended before it was done, with what it said, or printed no figures.
pub(crate) fn run(words: &[String], port: u16) -> Result<Report> {
    let port = port.to_string();
    let filled = words.iter().map(|word| if word == "PORT" { &port } else { word });
    let mut filled = filled.collect::<Vec<_>>().into_iter();
    let program = filled.next().context("an empty command line")?;
    let output =
        Command::new(program).args(filled).output().with_context(|| format!("cannot run {program}"))?;

    let stderr = String::from_utf8_lossy(&output.stderr);
    let complaints: Vec<&str> =
        stderr.lines().filter(|line| !line.trim().is_empty() && !is_warning(line)).collect();
    if !output.status.success() {
        bail!("{} ended with {}: {}", words.join(" "), output.status, complaints.join(" / "));
    }
    let stdout = String::from_utf8_lossy(&output.stdout);
    let report =
        parse(&stdout).with_context(|| format!("no figures from {}: {stdout:?}", words.join(" ")))?;
    Ok(Report { errors: complaints.len(), ..report })
}

/// redis-benchmark asks for two settings at its start and warns when the server does not know them.
fn is_warning(line: &str) -> bool {
    line.starts_with("WARNING")
}

/// The last line, whose first field is the test's name, as
/// `"test","rps","avg_latency_ms","min_latency_ms","p50_latency_ms","p95_latency_ms","p99_latency_ms","max_latency_ms"`.
fn parse(stdout: &str) -> Option<Report> {
    let line = stdout.lines().last()?;
    let fields: Vec<&str> = line.split(',').map(|field| field.trim_matches('"')).collect();
    let number = |field: usize| fields.get(field)?.parse::<f64>().ok();
    Some(Report { requests_per_s: number(1)?, p50_ms: number(4)?, p99_ms: number(6)?, errors: 0 })
}
