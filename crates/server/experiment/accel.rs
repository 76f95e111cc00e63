//! What a server gains by other ways to its sockets than system calls per request: ordinary sockets beside corelane's rings,
//! polling, and a Unix socket that leaves TCP out.

use std::env;

use anyhow::{Context, Result};
use clap::Args;

use super::chart::Curve;
use super::document::{Block, Drawing, Picture, Report, Section, Table};
use super::figures::{Comparison, Metric};
use super::load::{Load, Test};
use super::placement::picture;
use super::plan::{Bench, choose};
use super::recording::{Case, Kind, Recording};
use super::server::Source;
use super::{Common, redis_form};

const ORDINARY: &str = "ordinary";
/// What is shown of a load.
const COLUMNS: [Metric; 9] = [
    Metric::Throughput,
    Metric::Avg,
    Metric::Min,
    Metric::P50,
    Metric::P95,
    Metric::P99,
    Metric::Max,
    Metric::CpuPerRequest,
    Metric::Cpu,
];

/// Ordinary sockets and the ways around them
#[derive(Debug, Args)]
pub(super) struct Options {
    #[command(flatten)]
    pub(super) common: Common,
    /// A server with ordinary sockets, as a command or an address [default: redis-server or valkey-server, as found]
    #[arg(long, value_name = "CMD|URL")]
    ordinary: Option<String>,
    /// What is measured beside it, as a command or an address [default: corelane, in three ways]
    #[arg(long, value_name = "CMD|URL")]
    accelerated: Option<String>,
    /// Microseconds for which a polling shard looks for work before it sleeps
    #[arg(long, value_name = "US", default_value = "50", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    busy_poll_us: u32,
}

/// A way from the load generator to a server.
struct Way {
    name: &'static str,
    title: String,
    source: Source,
}

/// A command, or an address if it looks like one.
fn source(text: &str) -> Result<Source> {
    let is_command = text.contains(char::is_whitespace);
    Ok(if is_command { Source::Command(text.to_owned()) } else { Source::address(text)? })
}

/// The ordinary server: what was given, or what is installed.
fn ordinary(given: Option<&str>) -> Result<Source> {
    if let Some(text) = given {
        return source(text).context("--ordinary");
    }
    let path = env::var_os("PATH").unwrap_or_default();
    let installed = |name: &&str| env::split_paths(&path).any(|dir| dir.join(name).is_file());
    let program = ["redis-server", "valkey-server"].into_iter().find(installed).context(
        "neither redis-server nor valkey-server is installed: say with --ordinary what to measure beside corelane",
    )?;
    Ok(Source::Command(format!("{program} --port {{port}} --bind 127.0.0.1 --save ''")))
}

fn ways(options: &Options) -> Result<Vec<Way>> {
    let way = |name, title: &str, source| Way { name, title: title.to_owned(), source };
    let mut ways = vec![way(ORDINARY, "ordinary sockets", ordinary(options.ordinary.as_deref())?)];
    if let Some(text) = &options.accelerated {
        ways.push(way("accelerated", "accelerated", source(text).context("--accelerated")?));
        return Ok(ways);
    }
    let command = "corelane --port {port} --bind 127.0.0.1 --shards 1";
    let us = options.busy_poll_us;
    ways.push(way("ring", "corelane's ring", Source::Command(command.to_owned())));
    ways.push(way(
        "ring-polling",
        &format!("corelane's ring, polling for {us} µs"),
        Source::Command(format!("{command} --busy-poll-us {us}")),
    ));
    ways.push(way(
        "ring-unix",
        "corelane's ring, Unix socket",
        Source::Socket(format!("{command} --unixsocket {{dir}}/socket")),
    ));
    Ok(ways)
}

fn loads(scale: f64) -> Vec<Load> {
    let about = "100 clients, 4 threads of the load generator, values of 512 bytes, 10 000 keys";
    vec![Load::new("SET", about, 100, 5_000_000, scale, "-t set -r 10000 -d 512 --threads 4")]
}

/// Runs the experiment.
///
/// # Errors
/// A server or a load fails.
pub(super) fn measure(options: &Options) -> Result<Recording> {
    let common = &options.common;
    let bench = Bench::new(common, None);
    let mut recording =
        Recording::new(Kind::Accel, common.label.as_deref(), bench.threaded(loads(common.scale)));
    let mut ways = ways(options)?;
    recording.cases = ways
        .iter()
        .map(|way| Case {
            name: way.name.to_owned(),
            title: way.title.clone(),
            server: way.source.shown(),
            identity: String::new(),
        })
        .collect();
    choose(&common.only, &mut recording.loads, &mut recording.cases)?;
    ways.retain(|way| recording.cases.iter().any(|case| case.name == way.name));
    for run in bench.runs() {
        for (at, way) in ways.iter().enumerate() {
            let mut server = way.source.start(None)?;
            recording.cases[at].identity.clone_from(&server.identity);
            for load in recording.loads.clone() {
                let outcomes = bench.load(&mut [&mut server], &load, way.name, run)?;
                recording.add(way.name, &load.name, run, outcomes, None);
            }
        }
    }
    recording.notes.push(
        "The load generator is the same in all rows; it reaches every server in its fastest way.".to_owned(),
    );
    recording.notes.push(
        "Not measured: RDMA, which takes a network card for it and a second machine. What is measured is what a program \
         gains on one machine, without a network between client and server."
            .to_owned(),
    );
    Ok(recording)
}

/// What the figures say.
pub(super) fn report(recording: &Recording) -> Report {
    let mut report = Report::new("Ordinary sockets and the ways around them");
    for load in &recording.loads {
        let requests = super::figures::grouped(load.requests as f64);
        let mut blocks = vec![Block::Text(format!("{}; {requests} requests a run.", load.about))];
        blocks.push(Block::Table(figures(recording, &load.name)));
        report.sections.push(Section { title: load.name.clone(), blocks });
        report.conclusions.extend(conclusions(recording, &load.name));
        let mut curves = Vec::new();
        for (at, case) in recording.cases.iter().enumerate() {
            let Some(test) = typical(recording, &case.name, &load.name) else { continue };
            curves.push(Curve { case: at, points: redis_form::points(test) });
            let title = format!("{}, {}: in the form of redis-benchmark", load.name, case.title);
            let about = Block::Text("The run of middle throughput.".to_owned());
            report
                .sections
                .push(Section { title, blocks: vec![about, Block::Lines(redis_form::text(test))] });
        }
        let title = "requests that took no longer, by time".to_owned();
        report.pictures.push(Picture {
            file: "latency.svg",
            title,
            cases: titles(recording),
            drawing: Drawing::Curves(curves),
        });
    }
    for (file, title, metric) in [
        ("throughput.svg", "requests per second", Metric::Throughput),
        ("cpu.svg", "processor time of the server per request, in microseconds", Metric::CpuPerRequest),
    ] {
        report.pictures.push(picture(recording, file, title, metric));
    }
    report
}

fn titles(recording: &Recording) -> Vec<String> {
    recording.cases.iter().map(|case| case.title.clone()).collect()
}

fn figures(recording: &Recording, load: &str) -> Table {
    let titles = COLUMNS.map(Metric::title);
    let mut table = Table::new(1, ["way"].into_iter().chain(titles).chain(["± (%)", "throughput", "p99"]));
    for case in &recording.cases {
        let mut row = vec![case.title.clone()];
        row.extend(COLUMNS.map(|metric| recording.cell(&case.name, load, metric)));
        row.push(recording.spread_cell(&case.name, load));
        for metric in [Metric::Throughput, Metric::P99] {
            row.push(ratio(recording, &case.name, load, metric).map_or_else(String::new, Comparison::show));
        }
        table.row(row);
    }
    table
}

/// A way over ordinary sockets; `None` for these themselves.
fn ratio(recording: &Recording, case: &str, load: &str, metric: Metric) -> Option<Comparison> {
    if case == ORDINARY {
        return None;
    }
    Comparison::of(&recording.series(case, load, metric)?, &recording.series(ORDINARY, load, metric)?)
}

fn conclusions(recording: &Recording, load: &str) -> Vec<String> {
    let sentence = |case: &Case| {
        let of = |metric| Some(ratio(recording, &case.name, load, metric)?.show());
        let cpu = of(Metric::CpuPerRequest).map(|cpu| format!("; processor time per request: {cpu}"));
        Some(format!(
            "{load}, {} against ordinary sockets: throughput: {}; average latency: {}; p99: {}{}.",
            case.title,
            of(Metric::Throughput)?,
            of(Metric::Avg)?,
            of(Metric::P99)?,
            cpu.unwrap_or_default()
        ))
    };
    recording.cases.iter().filter_map(sentence).collect()
}

/// The run whose throughput is the median, or the next lower one.
fn typical<'a>(recording: &'a Recording, case: &str, load: &str) -> Option<&'a Test> {
    let samples = recording.samples.iter().filter(|sample| sample.case == case && sample.load == load);
    let mut tests: Vec<&Test> = samples.map(|sample| &sample.test).collect();
    tests.sort_by(|one, other| one.requests_per_second.total_cmp(&other.requests_per_second));
    tests.get(tests.len().saturating_sub(1) / 2).copied()
}
