//! What it is worth to have a physical core alone: a server on one, two on the threads of one, one that is moved from CPU to
//! CPU.

use std::time::Duration;

use anyhow::{Context, Result, bail};
use clap::Args;
use corelane_runtime::system_files::SystemFiles;
use corelane_runtime::topology::{allowed_cpus, cores, parse_list, ranges};

use super::Common;
use super::chart::Group;
use super::document::{Block, Drawing, Picture, Report, Section, Table};
use super::drift::{Drift, Moves, bind};
use super::figures::{Comparison, Metric};
use super::load::Load;
use super::plan::{Bench, choose};
use super::recording::{Case, Kind, Recording};
use super::server::Source;
use super::system::{Mask, place};

const EXCLUSIVE: &str = "exclusive";
const SIBLINGS: &str = "siblings";
const DRIFTING: &str = "drifting";
/// A server that uses less than this of its CPU, in percent, was not what was measured.
const CPU_PERCENT_MIN: f64 = 95.0;
/// Moves that are so many times further apart than they were to be are worth a warning.
const INTERVAL_FACTOR_MAX: f64 = 1.5;
/// From so many other cores on, some are left to the server to drift over.
const OTHERS_MIN: usize = 3;

/// A physical core alone, half of one, or none in particular
#[derive(Debug, Args)]
pub(super) struct Options {
    #[command(flatten)]
    pub(super) common: Common,
    /// How the server is started: {port} stands for its port, {dir} for a directory of its own
    #[arg(
        long,
        value_name = "CMD",
        default_value = "corelane --port {port} --bind 127.0.0.1 --shards 1 --placement float"
    )]
    server: String,
    /// Microseconds after which the drifting server is moved to the next CPU
    #[arg(long, value_name = "US", default_value = "10", value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    drift_us: u64,
    /// A CPU of the core for the servers [default: of the last core, of those with two threads if there are such]
    #[arg(long, value_name = "CPU")]
    server_cpu: Option<usize>,
    /// The CPUs that the drifting server is moved over
    #[arg(long, value_name = "CPUS")]
    drift_cpus: Option<String>,
    /// The CPUs for the load generator [default: those of other cores]
    #[arg(long, value_name = "CPUS")]
    client_cpus: Option<String>,
}

/// Who runs where. CPUs ascending.
#[derive(Debug, PartialEq)]
struct Places {
    /// The CPUs of one core.
    core: Vec<usize>,
    drift: Vec<usize>,
    client: Vec<usize>,
}

/// Finds a core for the servers, and CPUs for the others. What is `None` is chosen.
///
/// # Errors
/// There is only one core, or a CPU that is asked for is not there.
fn places(
    cores: &[Vec<usize>],
    server: Option<usize>,
    drift: Option<Vec<usize>>,
    client: Option<Vec<usize>>,
) -> Result<Places> {
    let all: Vec<usize> = cores.iter().flatten().copied().collect();
    let asked = server.iter().chain(drift.iter().flatten()).chain(client.iter().flatten());
    if let Some(cpu) = asked.into_iter().find(|cpu| !all.contains(cpu)) {
        bail!("this process may not use cpu {cpu}");
    }
    let with_server = |core: &&Vec<usize>| server.is_some_and(|cpu| core.contains(&cpu));
    let found = cores.iter().find(with_server).or_else(|| cores.iter().rev().find(|core| core.len() > 1));
    let Some(core) = found.or(cores.last()) else { bail!("this process may use no CPU") };
    let others: Vec<&Vec<usize>> = cores.iter().filter(|other| *other != core).collect();
    let for_client = if others.len() < OTHERS_MIN { others.len() } else { others.len().div_ceil(2) };
    let (near, far) = others.split_at(for_client);
    let sorted = |cores: &[&Vec<usize>]| {
        let mut cpus: Vec<usize> = cores.iter().copied().flatten().copied().collect();
        cpus.sort_unstable();
        cpus
    };
    let client = client.unwrap_or_else(|| sorted(near));
    if client.is_empty() {
        bail!(
            "this process may use only one core, which the load generator would share: give --client-cpus to have it so"
        );
    }
    let drift = drift.unwrap_or_else(|| match far {
        [] => sorted(&cores.iter().collect::<Vec<_>>()),
        far => sorted(&[far, &[core]].concat()),
    });
    Ok(Places { core: core.clone(), drift, client })
}

fn loads(common: &Common) -> Vec<Load> {
    let load =
        |name: &str, about: &str, words: &str| Load::new(name, about, 200, 10_000_000, common.scale, words);
    vec![
        load("SET", "200 clients, values of 33 bytes, 1000 keys", "-t set -r 1000 -d 33"),
        load("GET", "200 clients, 1000 keys", "-t get -r 1000"),
    ]
}

/// All, those included that this machine does not have.
fn cases(places: &Places, options: &Options) -> Vec<Case> {
    let case = |name: &str, title: String| Case {
        name: name.to_owned(),
        title,
        server: options.server.clone(),
        identity: String::new(),
    };
    let threads: Vec<String> = places.core.iter().take(2).map(usize::to_string).collect();
    vec![
        case(EXCLUSIVE, format!("alone on a physical core (cpu {})", places.core[0])),
        case(
            SIBLINGS,
            format!("one of two servers on the threads of a core (cpus {})", threads.join(" and ")),
        ),
        case(DRIFTING, format!("moved over cpus {} every {} µs", ranges(&places.drift), options.drift_us)),
    ]
}

/// Why a case cannot be measured here.
fn obstacle(places: &Places, case: &str) -> Option<&'static str> {
    match case {
        SIBLINGS if places.core.len() < 2 => Some(
            "Not measured: two servers on the threads of one core. The core has one thread here, as \
             /sys/devices/system/cpu/cpu*/topology tells: no SMT, or it is off, or a hypervisor hides it.",
        ),
        DRIFTING if places.drift.len() < 2 => {
            Some("Not measured: a server that is moved about. There is no second CPU for it.")
        }
        _ => None,
    }
}

/// How it is set up, and what is left out of it.
fn notes(places: &Places, cases: &[Case]) -> Vec<String> {
    let mut notes = vec![format!("CPUs of the load generator: {}.", ranges(&places.client))];
    notes.extend(cases.iter().filter_map(|case| obstacle(places, &case.name)).map(str::to_owned));
    let drifts = places.drift.len() > 1 && cases.iter().any(|case| case.name == DRIFTING);
    if drifts && places.drift.iter().any(|cpu| places.client.contains(cpu)) {
        notes.push(
            "The CPUs over which the server is moved include some of the load generator's, for want of others: there it \
             waits for its turn. What it loses is not the cost of moving alone."
                .to_owned(),
        );
    }
    notes
}

/// Runs the experiment.
///
/// # Errors
/// A server or a load fails, or the machine has too few CPUs.
pub(super) fn measure(options: &Options) -> Result<Recording> {
    let list = |text: &Option<String>| text.as_deref().map(parse_list).transpose();
    let cores = cores(&SystemFiles::real(), &allowed_cpus()?);
    let places = places(&cores, options.server_cpu, list(&options.drift_cpus)?, list(&options.client_cpus)?)?;
    // Looking at the processes is work, too, and must not be done where the servers run.
    place(0, &Mask::of(&places.client)).context("cannot leave the CPUs of the servers")?;
    let bench = Bench::new(&options.common, Some(places.client.clone()));
    let mut recording = Recording::new(
        Kind::Placement,
        options.common.label.as_deref(),
        bench.threaded(loads(&options.common)),
    );
    recording.cases = cases(&places, options);
    choose(&options.common.only, &mut recording.loads, &mut recording.cases)?;
    recording.notes = notes(&places, &recording.cases);
    recording.cases.retain(|case| obstacle(&places, &case.name).is_none());
    if recording.cases.is_empty() {
        bail!("nothing of this can be measured here. {}", recording.notes.join(" "));
    }
    let source = Source::Command(options.server.clone());
    for run in bench.runs() {
        for at in 0..recording.cases.len() {
            let name = recording.cases[at].name.clone();
            let cpus: Vec<Vec<usize>> = match name.as_str() {
                SIBLINGS => places.core[..2].iter().map(|cpu| vec![*cpu]).collect(),
                DRIFTING => vec![places.drift.clone()],
                _ => vec![places.core[..1].to_vec()],
            };
            let mut servers = cpus.iter().map(|cpus| source.start(Some(cpus))).collect::<Result<Vec<_>>>()?;
            recording.cases[at].identity.clone_from(&servers[0].identity);
            for load in recording.loads.clone() {
                // A server may have chosen its CPUs by itself.
                for (server, cpus) in servers.iter().zip(&cpus) {
                    bind(server.pid.unwrap_or_default(), cpus)?;
                }
                let mut all: Vec<_> = servers.iter_mut().collect();
                let (outcomes, moves) = if name == DRIFTING {
                    let pid = all[0].pid.unwrap_or_default();
                    let drift = Drift::start(
                        pid,
                        &places.drift,
                        &places.client,
                        Duration::from_micros(options.drift_us),
                    )?;
                    let outcomes = bench.load(&mut all, &load, &name, run)?;
                    (outcomes, Some(drift.stop()?))
                } else {
                    (bench.load(&mut all, &load, &name, run)?, None)
                };
                recording.add(&name, &load.name, run, outcomes, moves);
            }
        }
    }
    Ok(recording)
}

/// What the figures say.
pub(super) fn report(recording: &Recording) -> Report {
    let mut report = Report::new("A server and its physical core");
    for load in &recording.loads {
        report.sections.push(section(recording, load));
        report.conclusions.extend(conclusions(recording, &load.name));
        report.warnings.extend(warnings(recording, &load.name));
    }
    told_of_moves(recording, &mut report);
    let metrics = [
        ("throughput.svg", "requests per second, of one server", Metric::Throughput),
        ("latency.svg", "average latency in milliseconds", Metric::Avg),
        ("p99.svg", "99th percentile of the latency in milliseconds", Metric::P99),
    ];
    for (file, title, metric) in metrics {
        report.pictures.push(picture(recording, file, title, metric));
    }
    report
}

/// How often the server was really moved.
fn told_of_moves(recording: &Recording, report: &mut Report) {
    let moves: Vec<Moves> = recording.samples.iter().filter_map(|sample| sample.moves).collect();
    let Some(asked) = moves.first().map(|moves| moves.asked_us) else { return };
    let count: u64 = moves.iter().map(|moves| moves.count).sum();
    let interval = moves.iter().map(|moves| moves.interval_us).sum::<f64>() / moves.len() as f64;
    let words = format!(
        "All threads of the drifting server that ran were moved {} times, every {interval:.1} µs on average.",
        super::figures::grouped(count as f64)
    );
    report.sections.push(Section { title: "Moves".to_owned(), blocks: vec![Block::Text(words)] });
    if interval > asked as f64 * INTERVAL_FACTOR_MAX {
        report.warnings.push(format!(
            "The server was moved every {interval:.1} µs, not every {asked} µs: a move takes that long here, or nobody was there \
             to make it because the CPUs were busy."
        ));
    }
}

/// Bars of a metric, grouped by load.
pub(super) fn picture(recording: &Recording, file: &'static str, title: &str, metric: Metric) -> Picture {
    let bars = |load: &Load| {
        let all = recording.cases.iter().enumerate();
        all.filter_map(|(at, case)| Some((at, recording.series(&case.name, &load.name, metric)?))).collect()
    };
    let groups = recording.loads.iter().map(|load| Group { name: load.name.clone(), bars: bars(load) });
    Picture {
        file,
        title: title.to_owned(),
        cases: recording.cases.iter().map(|case| case.title.clone()).collect(),
        drawing: Drawing::Bars(groups.collect()),
    }
}

fn section(recording: &Recording, load: &Load) -> Section {
    let titles = Metric::LOAD.map(Metric::title);
    let mut table = Table::new(1, ["placement"].into_iter().chain(titles).chain(["± (%)", "CPU (%)"]));
    for case in &recording.cases {
        let mut row = vec![case.title.clone()];
        row.extend(Metric::LOAD.map(|metric| recording.cell(&case.name, &load.name, metric)));
        row.push(recording.spread_cell(&case.name, &load.name));
        row.push(recording.cell(&case.name, &load.name, Metric::Cpu));
        table.row(row);
        if case.name == SIBLINGS
            && let Some(both) = recording.summed(SIBLINGS, &load.name, Metric::Throughput)
        {
            let mut row = vec!["both servers together".to_owned(), Metric::Throughput.show(both.median())];
            row.resize(Metric::LOAD.len() + 1, String::new());
            let spread =
                if both.runs() > 1 { format!("{:.1}", both.spread_percent()) } else { "–".to_owned() };
            row.extend([spread, String::new()]);
            table.row(row);
        }
    }
    let requests = super::figures::grouped(load.requests as f64);
    let about = format!("{}; {requests} requests a run.", load.about);
    Section { title: load.name.clone(), blocks: vec![Block::Text(about), Block::Table(table)] }
}

fn conclusions(recording: &Recording, load: &str) -> Vec<String> {
    let change = |own: &str, base: &str, metric| {
        let (own, base) = (recording.series(own, load, metric)?, recording.series(base, load, metric)?);
        Comparison::of(&own, &base).map(Comparison::percent)
    };
    let mut sentences = Vec::new();
    if let (Some(rate), Some(delay)) =
        (change(EXCLUSIVE, SIBLINGS, Metric::Throughput), change(EXCLUSIVE, SIBLINGS, Metric::Avg))
    {
        sentences.push(format!(
            "{load}, a server with a physical core of its own against one of two that share one: throughput: {rate}; average \
             latency: {delay}."
        ));
    }
    if let (Some(both), Some(one)) = (
        recording.summed(SIBLINGS, load, Metric::Throughput),
        recording.series(EXCLUSIVE, load, Metric::Throughput),
    ) && let Some(gain) = Comparison::of(&both, &one)
    {
        sentences.push(format!(
            "{load}, both servers on the threads of one core together against one alone on it: throughput: {}.",
            gain.percent()
        ));
    }
    if let (Some(rate), Some(delay), Some(worst)) = (
        change(DRIFTING, EXCLUSIVE, Metric::Throughput),
        change(DRIFTING, EXCLUSIVE, Metric::Avg),
        change(DRIFTING, EXCLUSIVE, Metric::Max),
    ) {
        sentences.push(format!(
            "{load}, a drifting server against one on a core of its own: throughput: {rate}; average latency: {delay}; \
             greatest latency: {worst}."
        ));
    }
    sentences
}

/// Which servers were not busy enough for their placement to be what was measured.
fn warnings(recording: &Recording, load: &str) -> Vec<String> {
    let idle = recording.cases.iter().filter_map(|case| {
        let cpu = recording.series(&case.name, load, Metric::Cpu);
        let Some(cpu) = cpu else { return Some(format!("{load}, {}: the CPU of the server is not known; a load of less than 0.2 s is too short to tell.", case.title)) };
        let client = recording.series(&case.name, load, Metric::ClientCpu).map_or(0.0, |client| client.median());
        (cpu.median() < CPU_PERCENT_MIN).then(|| {
            format!(
                "{load}, {}: the server used {:.0} % of a CPU, less than {CPU_PERCENT_MIN:.0} %. Something else was the limit: \
                 the load generator (it used {client:.0} %; --threads gives it more), or who else runs on this machine.",
                case.title,
                cpu.median()
            )
        })
    });
    idle.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_and_load_are_kept_apart_as_far_as_the_machine_allows() {
        let smt = [vec![0, 4], vec![1, 5], vec![2, 6], vec![3, 7]];
        let found = places(&smt, None, None, None).unwrap();
        assert_eq!(found, Places { core: vec![3, 7], drift: vec![2, 3, 6, 7], client: vec![0, 1, 4, 5] });
        let found = places(&smt, Some(4), None, Some(vec![1])).unwrap();
        assert_eq!((found.core, found.client), (vec![0, 4], vec![1]));
        let two = [vec![0], vec![1]];
        let found = places(&two, None, None, None).unwrap();
        assert_eq!(found, Places { core: vec![1], drift: vec![0, 1], client: vec![0] });
        assert!(obstacle(&found, SIBLINGS).is_some() && obstacle(&found, DRIFTING).is_none());
        let hybrid = [vec![0, 1], vec![2], vec![3]];
        assert_eq!(places(&hybrid, None, None, None).unwrap().core, [0, 1]);
        assert!(places(&[vec![0, 1]], None, None, None).is_err());
        assert_eq!(places(&[vec![0]], None, None, Some(vec![0])).unwrap().drift, [0]);
        let error = places(&two, None, Some(vec![9]), None).unwrap_err();
        assert_eq!(error.to_string(), "this process may not use cpu 9");
    }
}
