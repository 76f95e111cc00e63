//! Two servers side by side: few clients, ten thousand, random keys; what each uses meanwhile.

use anyhow::{Context, Result, bail};
use clap::Args;

use super::Common;
use super::document::{Block, Report, Section, Table};
use super::figures::{Comparison, Finding, Metric};
use super::load::Load;
use super::placement::picture;
use super::plan::{Bench, choose};
use super::recording::{Case, Kind, Recording};
use super::server::Source;
use super::system::raise_descriptors;

/// What the tables show of a load.
const COLUMNS: [Metric; 6] =
    [Metric::Throughput, Metric::Avg, Metric::P50, Metric::P95, Metric::P99, Metric::Max];
/// Descriptors that the load generator needs beside its connections.
const DESCRIPTORS_SPARE: u64 = 64;

/// Two servers under the same loads
#[derive(Debug, Args)]
pub(super) struct Options {
    #[command(flatten)]
    pub(super) common: Common,
    #[arg(
        help = "The first server: redis://[[USER]:PASSWORD@]HOST[:PORT], HOST:PORT or unix://PATH",
        long,
        value_name = "URL",
        required_unless_present = "start_a",
        conflicts_with = "start_a"
    )]
    a: Option<String>,
    /// The other server
    #[arg(long, value_name = "URL", required_unless_present = "start_b", conflicts_with = "start_b")]
    b: Option<String>,
    /// Start the first server: {port} stands for its port, {dir} for a directory of its own
    #[arg(long, value_name = "CMD")]
    start_a: Option<String>,
    /// Start the other server
    #[arg(long, value_name = "CMD")]
    start_b: Option<String>,
    /// What the first server is called in reports [default: what it calls itself]
    #[arg(long, value_name = "TEXT")]
    name_a: Option<String>,
    /// What the other server is called
    #[arg(long, value_name = "TEXT")]
    name_b: Option<String>,
}

/// The parts of the comparison: a title, and the loads in it.
const PARTS: [(&str, &[&str]); 3] = [
    ("25 clients, values of 3 bytes", &["SET", "GET", "HSET"]),
    ("10 000 clients", &["SET-10000-clients"]),
    ("Random keys, requests of 61 bytes", &["SET-random-keys"]),
];

fn loads(scale: f64) -> Vec<Load> {
    let load = |name: &str, about: &str, clients, requests, words: &str| {
        Load::new(name, about, clients, requests, scale, words)
    };
    let few = "25 clients, values of 3 bytes";
    vec![
        load("SET", few, 25, 100_000, "-t set"),
        load("GET", few, 25, 100_000, "-t get"),
        load("HSET", few, 25, 100_000, "-t hset"),
        load("SET-10000-clients", "10 000 clients, values of 3 bytes", 10_000, 100_000, "-t set"),
        load(
            "SET-random-keys",
            "50 clients, 10 000 random keys, requests of 61 bytes",
            50,
            1_000_000,
            "-r 10000 SET key:__rand_int__ value:__rand_int__",
        ),
    ]
}

/// Runs the experiment.
///
/// # Errors
/// A server or a load fails.
pub(super) fn measure(options: &Options) -> Result<Recording> {
    let common = &options.common;
    let bench = Bench::new(common, None);
    let mut recording =
        Recording::new(Kind::Compare, common.label.as_deref(), bench.threaded(loads(common.scale)));
    choose(&common.only, &mut recording.loads, &mut Vec::new())?;
    if options.name_a.is_some() && options.name_a == options.name_b {
        bail!("two servers of one name cannot be told apart: --name-a and --name-b");
    }
    let descriptors = raise_descriptors().context("cannot raise the limit of descriptors")?;
    let fits = |load: &Load| load.clients + DESCRIPTORS_SPARE <= descriptors;
    for load in recording.loads.iter().filter(|load| !fits(load)) {
        recording.notes.push(format!(
            "Not measured: {}. A process may have {descriptors} descriptors here (ulimit -Hn), too few for {} connections.",
            load.name, load.clients
        ));
    }
    recording.loads.retain(fits);
    if recording.loads.is_empty() {
        bail!("nothing can be measured: {}", recording.notes.join(" "));
    }
    let first = Source::choose(options.start_a.as_deref(), options.a.as_deref()).context("--a")?;
    let other = Source::choose(options.start_b.as_deref(), options.b.as_deref()).context("--b")?;
    let sources =
        [first.context("--a or --start-a is needed")?, other.context("--b or --start-b is needed")?];
    let mut servers = [sources[0].start(None)?, sources[1].start(None)?];
    let same = servers[0].identity == servers[1].identity;
    for (at, given) in [&options.name_a, &options.name_b].into_iter().enumerate() {
        let identity = &servers[at].identity;
        let name = ["a", "b"][at].to_owned();
        let own = if same { format!("{identity} ({name})") } else { identity.clone() };
        let title = given.clone().unwrap_or(own);
        if recording.cases.iter().any(|case| case.title == title) {
            bail!("both servers would be called {title}: --name-a and --name-b tell them apart");
        }
        recording.cases.push(Case { name, title, server: sources[at].shown(), identity: identity.clone() });
    }
    for run in bench.runs() {
        for load in recording.loads.clone() {
            for (server, at) in servers.iter_mut().zip(0..) {
                let name = recording.cases[at].name.clone();
                let outcomes = bench.load(&mut [server], &load, &name, run)?;
                recording.add(&name, &load.name, run, outcomes, None);
            }
        }
    }
    if sources.iter().any(Source::is_command) {
        recording
            .notes
            .push("Servers were started once, and idle while the other one was loaded.".to_owned());
    }
    Ok(recording)
}

/// What the figures say.
pub(super) fn report(recording: &Recording) -> Report {
    let [a, b] = &recording.cases[..] else {
        return Report::senseless("Two servers", "This run has not two servers.");
    };
    let mut report = Report::new(&format!("{} beside {}", a.title, b.title));
    for (title, names) in PARTS {
        let of_part = recording.loads.iter().filter(|load| names.contains(&load.name.as_str()));
        let of_part: Vec<&Load> = of_part.collect();
        let Some(first) = of_part.first() else { continue };
        let about =
            format!("{}; {} requests a run.", first.about, super::figures::grouped(first.requests as f64));
        let blocks = vec![
            Block::Text(about),
            Block::Table(figures(recording, &of_part)),
            Block::Text(format!("{} over {}:", a.title, b.title)),
            Block::Table(ratios(recording, &of_part)),
        ];
        report.sections.push(Section { title: title.to_owned(), blocks });
        report.conclusions.extend(conclusions(recording, title, &of_part));
    }
    report.sections.push(resources(recording));
    for (file, title, metric) in [
        ("throughput.svg", "requests per second", Metric::Throughput),
        ("p99.svg", "99th percentile of the latency in milliseconds", Metric::P99),
    ] {
        report.pictures.push(picture(recording, file, title, metric));
    }
    report
}

fn figures(recording: &Recording, loads: &[&Load]) -> Table {
    let titles = COLUMNS.map(Metric::title);
    let mut table = Table::new(2, ["load", "server"].into_iter().chain(titles).chain(["± (%)"]));
    for load in loads {
        for case in &recording.cases {
            let mut row = vec![load.name.clone(), case.title.clone()];
            row.extend(COLUMNS.map(|metric| recording.cell(&case.name, &load.name, metric)));
            row.push(recording.spread_cell(&case.name, &load.name));
            table.row(row);
        }
    }
    table
}

/// The first server over the other one.
fn ratio(recording: &Recording, load: &str, metric: Metric) -> Option<Comparison> {
    let [a, b] = &recording.cases[..] else { return None };
    Comparison::of(&recording.series(&a.name, load, metric)?, &recording.series(&b.name, load, metric)?)
}

fn ratios(recording: &Recording, loads: &[&Load]) -> Table {
    let mut table = Table::new(1, ["load", "requests/s", "avg", "p50", "p95", "p99", "max"]);
    for load in loads {
        let shown = COLUMNS.map(|metric| {
            ratio(recording, &load.name, metric).map_or_else(|| "–".to_owned(), Comparison::show)
        });
        table.row(std::iter::once(load.name.clone()).chain(shown));
    }
    table
}

/// A sentence on throughput, and one on each of two percentiles.
fn conclusions(recording: &Recording, part: &str, loads: &[&Load]) -> Vec<String> {
    let [a, b] = &recording.cases[..] else { return Vec::new() };
    let sentence = |what: &str, metric: Metric| {
        let ratios: Option<Vec<Comparison>> =
            loads.iter().map(|load| ratio(recording, &load.name, metric)).collect();
        Some(format!("{part}: the {what} of {} is {} that of {}.", a.title, range(&ratios?)?, b.title))
    };
    [("throughput", Metric::Throughput), ("p95", Metric::P95), ("p99", Metric::P99)]
        .into_iter()
        .filter_map(|(what, metric)| sentence(what, metric))
        .collect()
}

/// Several ratios in words; `None` if there is none.
fn range(ratios: &[Comparison]) -> Option<String> {
    let least = ratios.iter().map(|one| one.ratio).min_by(f64::total_cmp)?;
    let most = ratios.iter().map(|one| one.ratio).max_by(f64::total_cmp)?;
    let figures = if ratios.len() == 1 { format!("{least:.2}") } else { format!("{least:.2} to {most:.2}") };
    let same = ratios.iter().filter(|one| one.finding == Finding::Same).count();
    Some(if same == ratios.len() {
        format!("no different (the medians are {figures} ×, which is within the spread) from")
    } else if same > 0 {
        format!("{figures} × (no difference in {same} of {} loads)", ratios.len())
    } else if ratios.iter().any(|one| one.finding == Finding::SingleRun) {
        format!("{figures} × (of one run, whose spread is not known)")
    } else {
        format!("{figures} ×")
    })
}

/// What the servers used.
fn resources(recording: &Recording) -> Section {
    const USED: [Metric; 4] = [Metric::Cpu, Metric::CpuPerRequest, Metric::Resident, Metric::Threads];
    let titles = USED.map(Metric::title);
    let mut table =
        Table::new(2, ["load", "server", "PID"].into_iter().chain(titles).chain([Metric::ClientCpu.title()]));
    for load in &recording.loads {
        for case in &recording.cases {
            let mut row = vec![load.name.clone(), case.title.clone(), pid(recording, case)];
            row.extend(USED.map(|metric| recording.cell(&case.name, &load.name, metric)));
            row.push(recording.cell(&case.name, &load.name, Metric::ClientCpu));
            table.row(row);
        }
    }
    let about = "CPU while the load lasts, in percent of one CPU, and in microseconds per request; resident memory and threads at \
                 its end. A dash: the server's process is not on this machine, or not known, or the load was too short (0.2 s) to tell.";
    Section {
        title: "What the servers used".to_owned(),
        blocks: vec![Block::Text(about.to_owned()), Block::Table(table)],
    }
}

/// The process of a server, or a dash.
fn pid(recording: &Recording, case: &Case) -> String {
    let of_case = recording.samples.iter().filter(|sample| sample.case == case.name);
    let pid = of_case.filter_map(|sample| sample.usage).map(|usage| usage.pid).find(|pid| *pid != 0);
    pid.map_or_else(|| "–".to_owned(), |pid| pid.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ratios_are_put_into_words() {
        let ratio = |ratio, finding| Comparison { ratio, finding };
        let words = |ratios: &[Comparison]| range(ratios).unwrap();
        assert_eq!(words(&[ratio(2.2, Finding::Differs), ratio(2.6, Finding::Differs)]), "2.20 to 2.60 ×");
        assert_eq!(
            words(&[ratio(1.01, Finding::Same)]),
            "no different (the medians are 1.01 ×, which is within the spread) from"
        );
        assert_eq!(
            words(&[ratio(1.0, Finding::Same), ratio(1.5, Finding::Differs)]),
            "1.00 to 1.50 × (no difference in 1 of 2 loads)"
        );
        assert_eq!(
            words(&[ratio(2.0, Finding::SingleRun)]),
            "2.00 × (of one run, whose spread is not known)"
        );
        assert_eq!(range(&[]), None);
    }
}
