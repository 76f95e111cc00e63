//! A machine in figures that can be compared with another machine's: GET, SET, LPUSH and LPOP, and the machine's description.

use anyhow::{Context, Result};
use clap::Args;

use super::Common;
use super::document::{Block, Report, Section, Table};
use super::figures::Metric;
use super::load::Load;
use super::placement::picture;
use super::plan::{Bench, choose};
use super::recording::{Case, Kind, Recording};
use super::server::Source;

/// What the table shows of a load.
const COLUMNS: [Metric; 5] = [Metric::Throughput, Metric::Avg, Metric::P50, Metric::P99, Metric::Cpu];

/// This machine, in figures that can be compared with another one's
#[derive(Debug, Args)]
pub(super) struct Options {
    #[command(flatten)]
    pub(super) common: Common,
    /// How the server is started: {port} stands for its port, {dir} for a directory of its own
    #[arg(
        long,
        value_name = "CMD",
        default_value = "corelane --port {port} --bind 127.0.0.1 --shards 1",
        conflicts_with = "url"
    )]
    server: String,
    #[arg(
        help = "A server that runs: redis://[[USER]:PASSWORD@]HOST[:PORT], HOST:PORT or unix://PATH",
        long,
        value_name = "URL"
    )]
    url: Option<String>,
}

/// The two command lines of the document, test by test: keys, and names of tests in redis-benchmark's order.
const LINES: [(u64, &[&str]); 2] =
    [(100_000, &["SET", "GET"]), (1_000_000, &["SET", "GET", "LPUSH", "LPOP"])];

fn loads(scale: f64) -> Vec<Load> {
    let of_line = |(keys, tests): (u64, &'static [&'static str])| {
        tests.iter().map(move |test| {
            let about = format!("50 clients, {} keys", super::figures::grouped(keys as f64));
            let words = format!("-t {} -r {keys}", test.to_lowercase());
            Load::new(&format!("{test}-{keys}"), &about, 50, 100_000, scale, &words)
        })
    };
    LINES.into_iter().flat_map(of_line).collect()
}

/// Runs the experiment.
///
/// # Errors
/// The server or a load fails.
pub(super) fn measure(options: &Options) -> Result<Recording> {
    let common = &options.common;
    let bench = Bench::new(common, None);
    let mut recording =
        Recording::new(Kind::Env, common.label.as_deref(), bench.threaded(loads(common.scale)));
    choose(&common.only, &mut recording.loads, &mut Vec::new())?;
    let command = options.url.is_none().then_some(options.server.as_str());
    let source =
        Source::choose(command, options.url.as_deref()).context("--url")?.context("a server is needed")?;
    let mut server = source.start(None)?;
    recording.cases.push(Case {
        name: "server".to_owned(),
        title: "the server".to_owned(),
        server: source.shown(),
        identity: server.identity.clone(),
    });
    for run in bench.runs() {
        for load in recording.loads.clone() {
            let outcomes = bench.load(&mut [&mut server], &load, "server", run)?;
            recording.add("server", &load.name, run, outcomes, None);
        }
    }
    Ok(recording)
}

/// What the figures say.
pub(super) fn report(recording: &Recording) -> Report {
    let Some(case) = recording.cases.first() else {
        return Report::senseless("A machine", "This run has no server.");
    };
    let mut report = Report::new(&format!("{} on {}", case.identity, recording.label));
    let titles = COLUMNS.map(Metric::title);
    let mut table = Table::new(2, ["test", "load"].into_iter().chain(titles).chain(["± (%)"]));
    let mut lines = String::new();
    let mut about = "";
    for load in &recording.loads {
        let Some(rate) = recording.series(&case.name, &load.name, Metric::Throughput) else { continue };
        let test = test_of(load);
        let mut row = vec![test.to_owned(), load.about.clone()];
        row.extend(COLUMNS.map(|metric| recording.cell(&case.name, &load.name, metric)));
        row.push(recording.spread_cell(&case.name, &load.name));
        table.row(row);
        if about != load.about {
            about = &load.about;
            lines.push_str(&format!("# {about}, {} requests\n", load.requests));
        }
        lines.push_str(&format!("{test}: {:.2} requests per second\n", rate.median()));
    }
    let compared = "Another machine's run is set beside this one by `corelane experiment diff`.";
    let blocks = vec![
        Block::Table(table),
        Block::Text("As redis-benchmark -q prints it:".to_owned()),
        Block::Lines(lines),
    ];
    report.sections.push(Section { title: "Throughput".to_owned(), blocks });
    report
        .sections
        .push(Section { title: "Next".to_owned(), blocks: vec![Block::Text(compared.to_owned())] });
    report.pictures.push(picture(recording, "throughput.svg", "requests per second", Metric::Throughput));
    report
}

/// The test's name without the number of keys.
fn test_of(load: &Load) -> &str {
    load.name.split_once('-').map_or(load.name.as_str(), |(test, _)| test)
}
