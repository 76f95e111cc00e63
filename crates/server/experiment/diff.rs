//! Two saved runs of one experiment side by side, also per CPU clock.

use std::path::PathBuf;

use anyhow::{Result, bail};
use clap::Args;

use super::Output;
use super::chart::Group;
use super::document::{Block, Drawing, Picture, Report, Section, Table};
use super::figures::{Comparison, Finding, Metric};
use super::recording::{Case, Recording};
use super::samples::Samples;
use crate::machine::{Machine, shown};

/// How far throughput and clock may be apart to be called in proportion.
const PROPORTION: f64 = 0.1;

/// Two saved runs of the same experiment
#[derive(Debug, Args)]
pub(super) struct Options {
    /// The directory of a run, or its run.json
    pub(super) run_a: PathBuf,
    /// The one that it is compared with
    pub(super) run_b: PathBuf,
    #[command(flatten)]
    pub(super) output: Output,
}

/// A load in a case that both runs have.
struct Row<'a> {
    load: &'a str,
    case: &'a Case,
    rates: [Samples; 2],
    comparison: Comparison,
}

/// The first run over the other one.
///
/// # Errors
/// They are of different experiments, or have no load in common.
pub(super) fn report(a: &Recording, b: &Recording) -> Result<Report> {
    if a.experiment != b.experiment {
        bail!("these are runs of different experiments");
    }
    let rows = rows(a, b);
    if rows.is_empty() {
        bail!("these runs have no load in common");
    }
    let (name_a, name_b) = names(a, b);
    let mut report = Report::new(&format!("{name_a} beside {name_b}"));
    let clock = (a.machine.mhz > 0.0 && b.machine.mhz > 0.0).then(|| a.machine.mhz / b.machine.mhz);
    let mut blocks = vec![Block::Table(throughput(&rows, &name_a, &name_b, a, b))];
    if clock.is_none() {
        blocks.push(Block::Text("One of the machines does not tell its clock.".to_owned()));
    }
    report.sections.push(Section { title: "Throughput".to_owned(), blocks });
    report.sections.push(Section {
        title: "Latency and processor time".to_owned(),
        blocks: vec![Block::Table(others(&rows, &name_a, &name_b, a, b))],
    });
    report.sections.push(Section {
        title: "Machines".to_owned(),
        blocks: vec![Block::Table(machines(&name_a, &name_b, &a.machine, &b.machine))],
    });
    report.conclusions = conclusions(&rows, &name_a, &name_b, clock);
    report.warnings = warnings(&rows, a, b);
    let group = |row: &Row<'_>| {
        let name =
            if a.cases.len() > 1 { format!("{} {}", row.load, row.case.name) } else { row.load.to_owned() };
        Group { name, bars: row.rates.iter().cloned().enumerate().collect() }
    };
    report.pictures.push(Picture {
        file: "throughput.svg",
        title: "requests per second".to_owned(),
        cases: vec![name_a, name_b],
        drawing: Drawing::Bars(rows.iter().map(group).collect()),
    });
    Ok(report)
}

/// What the runs are called; equal ones are told apart.
fn names(a: &Recording, b: &Recording) -> (String, String) {
    if a.label == b.label {
        return (format!("{} ({}, A)", a.label, a.date), format!("{} ({}, B)", b.label, b.date));
    }
    (a.label.clone(), b.label.clone())
}

fn rows<'a>(a: &'a Recording, b: &Recording) -> Vec<Row<'a>> {
    let mut rows = Vec::new();
    for load in &a.loads {
        for case in &a.cases {
            let rate = |recording: &Recording| recording.series(&case.name, &load.name, Metric::Throughput);
            let (Some(one), Some(other)) = (rate(a), rate(b)) else { continue };
            let Some(comparison) = Comparison::of(&one, &other) else { continue };
            rows.push(Row { load: &load.name, case, rates: [one, other], comparison });
        }
    }
    rows
}

fn throughput(rows: &[Row<'_>], name_a: &str, name_b: &str, a: &Recording, b: &Recording) -> Table {
    let per_clock = |recording: &Recording, samples: &Samples| match recording.machine.mhz {
        mhz if mhz > 0.0 => Some(samples.median() / mhz),
        _ => None,
    };
    let cell = |figure: Option<f64>| figure.map_or_else(|| "–".to_owned(), |figure| format!("{figure:.1}"));
    let mut table = Table::new(
        2,
        [
            "load",
            "server",
            name_a,
            name_b,
            "A / B",
            &format!("{name_a} per MHz"),
            &format!("{name_b} per MHz"),
            "A / B per MHz",
        ],
    );
    for row in rows {
        let [one, other] = &row.rates;
        let clocked = (per_clock(a, one), per_clock(b, other));
        let ratio = match clocked {
            (Some(one), Some(other)) => format!("{:.2} ×", one / other),
            _ => "–".to_owned(),
        };
        table.row([
            row.load.to_owned(),
            row.case.title.clone(),
            Metric::Throughput.show(one.median()),
            Metric::Throughput.show(other.median()),
            row.comparison.show(),
            cell(clocked.0),
            cell(clocked.1),
            ratio,
        ]);
    }
    table
}

fn others(rows: &[Row<'_>], name_a: &str, name_b: &str, a: &Recording, b: &Recording) -> Table {
    let mut table = Table::new(3, ["load", "server", "figure", name_a, name_b, "A / B"]);
    for row in rows {
        for metric in [Metric::Avg, Metric::P50, Metric::P99, Metric::CpuPerRequest] {
            let of = |recording: &Recording| recording.series(&row.case.name, row.load, metric);
            let (Some(one), Some(other)) = (of(a), of(b)) else { continue };
            let ratio = Comparison::of(&one, &other).map_or_else(|| "–".to_owned(), Comparison::show);
            table.row([
                row.load.to_owned(),
                row.case.title.clone(),
                metric.title().to_owned(),
                metric.show(one.median()),
                metric.show(other.median()),
                ratio,
            ]);
        }
    }
    table
}

fn machines(name_a: &str, name_b: &str, a: &Machine, b: &Machine) -> Table {
    let mut table = Table::new(1, ["", name_a, name_b]);
    for ((name, one), (_, other)) in described(a).into_iter().zip(described(b)) {
        table.row([name.to_owned(), one, other]);
    }
    table
}

fn described(machine: &Machine) -> [(&'static str, String); 10] {
    let known = |text: &str| if text.is_empty() { "unknown".to_owned() } else { text.to_owned() };
    [
        ("model", known(&machine.model)),
        ("clock (MHz)", format!("{:.0}", machine.mhz)),
        ("CPUs", machine.cpus.to_string()),
        ("cores", machine.cores.to_string()),
        ("L1d", shown(machine.l1d)),
        ("L1i", shown(machine.l1i)),
        ("L2", shown(machine.l2)),
        ("L3", shown(machine.l3)),
        ("virtualisation", known(&machine.virtualisation)),
        ("kernel", known(&machine.kernel)),
    ]
}

fn conclusions(rows: &[Row<'_>], name_a: &str, name_b: &str, clock: Option<f64>) -> Vec<String> {
    let product: f64 = rows.iter().map(|row| row.comparison.ratio.ln()).sum();
    let overall = (product / rows.len() as f64).exp();
    let ratios = || rows.iter().map(|row| row.comparison.ratio);
    let (least, most) = (ratios().fold(f64::INFINITY, f64::min), ratios().fold(0.0, f64::max));
    let mut lines = vec![format!(
        "{name_a} answers {overall:.2} × as many requests per second as {name_b} ({least:.2} to {most:.2} ×, the mean is geometric)."
    )];
    let same = rows.iter().filter(|row| row.comparison.finding == Finding::Same).count();
    if same > 0 {
        lines.push(format!(
            "In {same} of {} rows there is no difference within the spread of the runs.",
            rows.len()
        ));
    }
    if let Some(clock) = clock {
        let per_clock = overall / clock;
        let verdict = if (per_clock - 1.0).abs() <= PROPORTION {
            "throughput is about in proportion to the clock"
        } else {
            "throughput is not in proportion to the clock"
        };
        lines.push(format!(
            "Its clock is {clock:.2} × that of {name_b}, so per clock it is {per_clock:.2} ×: {verdict}."
        ));
    }
    lines
}

/// What makes the comparison doubtful.
fn warnings(rows: &[Row<'_>], a: &Recording, b: &Recording) -> Vec<String> {
    let mut lines = Vec::new();
    for load in &a.loads {
        let other = b.loads.iter().find(|other| other.name == load.name);
        if let Some(other) = other.filter(|other| other.words != load.words) {
            lines.push(format!(
                "{}: the runs had different options: `{}` and `{}`.",
                load.name,
                load.words.join(" "),
                other.words.join(" ")
            ));
        }
    }
    for case in &a.cases {
        let other = b.cases.iter().find(|other| other.name == case.name);
        if let Some(other) = other.filter(|other| other.identity != case.identity) {
            lines.push(format!(
                "{}: not the same in both runs: {} and {}.",
                case.title, case.identity, other.identity
            ));
        }
    }
    if rows.iter().any(|row| row.comparison.finding == Finding::SingleRun) {
        lines.push("A run was made only once, so that its spread is not known.".to_owned());
    }
    lines
}
