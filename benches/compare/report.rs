//! Outcomes as text for the terminal, Markdown, CSV and JSON.

use std::fmt::Write as _;

use crate::figures::{Figures, Outcome, Verdict};
use crate::metric::Metric;
use crate::procfs::Machine;
use crate::server::Fleet;
use crate::workload::Subject;

/// The columns of a load, in order; other workloads list their metrics one a line.
const LOAD_COLUMNS: [Metric; 4] = [Metric::Throughput, Metric::P50, Metric::P99, Metric::CpuPerRequest];

/// The rows of a workload for the terminal.
pub(crate) fn text(outcome: &Outcome) -> String {
    let mut text = format!("\n{}: {}\n", outcome.workload.name, outcome.workload.about);
    let rows = rows(&outcome.figures);
    let columns = rows.first().map_or(0, Vec::len);
    let letters = |cell: &str| cell.chars().count();
    let widths: Vec<usize> =
        (0..columns).map(|column| rows.iter().map(|row| letters(&row[column])).max().unwrap_or(0)).collect();
    for row in &rows {
        for (column, cell) in row.iter().enumerate() {
            let padding = " ".repeat(widths[column] - letters(cell));
            // Names to the left, figures to the right.
            text.push_str(&if column < 2 {
                format!("  {cell}{padding}")
            } else {
                format!("  {padding}{cell}")
            });
        }
        text.push('\n');
    }
    for line in remarks(outcome) {
        let _ = writeln!(text, "  {line}");
    }
    text
}

/// The whole comparison as a document.
pub(crate) fn markdown(outcomes: &[Outcome], fleet: &Fleet, machine: &Machine) -> String {
    let mut text = String::from("# corelane beside other servers\n\n");
    let _ = writeln!(
        text,
        "Written by `benches/compare/run` on {}, revision {}, on {} × {}, {:.0} GiB, kernel {}.\n",
        machine.date, machine.revision, machine.cpus, machine.cpu, machine.memory_gib, machine.kernel
    );
    for version in fleet.versions() {
        let _ = writeln!(text, "- {version}");
    }
    for note in &fleet.notes {
        let _ = writeln!(text, "- {note}");
    }
    text.push_str(
        "\nMedians of alternating runs, ± half the distance between the extremes. CPU is utime + stime of the server. \
         In parentheses: the ratio to Redis, as the median of the ratios of neighbouring runs.\n",
    );
    for outcome in outcomes {
        let _ = writeln!(text, "\n## {}\n\n{}\n", outcome.workload.name, outcome.workload.about);
        let rows = rows(&outcome.figures);
        for (index, row) in rows.iter().enumerate() {
            let _ = writeln!(text, "| {} |", row.join(" | "));
            if index == 0 {
                let _ = writeln!(text, "|{}", "---|".repeat(row.len()));
            }
        }
        text.push('\n');
        for line in remarks(outcome) {
            let _ = writeln!(text, "- {line}");
        }
        text.push_str("\n```\n");
        for command in &outcome.commands {
            let _ = writeln!(text, "{}", relative(command));
        }
        text.push_str("```\n");
    }
    text
}

/// A command without the directories of its programs, which are this machine's own.
fn relative(command: &str) -> String {
    let words = command.split(' ').map(|word| match word.rsplit_once('/') {
        Some((directory, name)) if directory.is_empty() || directory.starts_with('/') => name,
        _ => word,
    });
    // An empty word was an empty argument.
    words.map(|word| if word.is_empty() { "''" } else { word }).collect::<Vec<_>>().join(" ")
}

/// One line per series.
pub(crate) fn csv(outcomes: &[Outcome]) -> String {
    let mut text = String::from("workload,case,server,metric,median,min,max,runs,ratio_to_redis\n");
    for outcome in outcomes {
        for series in &outcome.figures.series {
            let ratio = outcome.figures.ratio_to_redis(series.case, series.subject, series.metric);
            let _ = writeln!(
                text,
                "{},\"{}\",\"{}\",{},{},{},{},{},{}",
                outcome.workload.name,
                series.case,
                series.subject.name(),
                series.metric.name(),
                rounded(series.samples.median()),
                rounded(series.samples.min()),
                rounded(series.samples.max()),
                series.samples.runs(),
                ratio.map_or(String::new(), |ratio| format!("{ratio:.3}"))
            );
        }
    }
    text
}

/// An array with one object per workload.
pub(crate) fn json(outcomes: &[Outcome]) -> String {
    let items: Vec<String> = outcomes.iter().map(json_outcome).collect();
    format!("[\n{}\n]", items.join(",\n"))
}

fn json_outcome(outcome: &Outcome) -> String {
    let series = outcome.figures.series.iter().map(|series| {
        format!(
            r#"{{"case":{},"server":{},"metric":{},"median":{},"min":{},"max":{},"runs":{}}}"#,
            quoted(series.case),
            quoted(&series.subject.name()),
            quoted(series.metric.name()),
            rounded(series.samples.median()),
            rounded(series.samples.min()),
            rounded(series.samples.max()),
            series.samples.runs()
        )
    });
    let verdicts = outcome.verdicts.iter().map(|verdict| {
        let holds = verdict.holds.map_or("null".to_owned(), |holds| holds.to_string());
        format!(r#"{{"bound":{},"holds":{holds}}}"#, quoted(&verdict.text))
    });
    let list = |texts: &[String]| texts.iter().map(|text| quoted(text)).collect::<Vec<_>>().join(",");
    format!(
        r#"{{"workload":{},"figures":[{}],"bounds":[{}],"skipped":[{}],"failures":[{}]}}"#,
        quoted(outcome.workload.name),
        series.collect::<Vec<_>>().join(","),
        verdicts.collect::<Vec<_>>().join(","),
        list(&outcome.skipped),
        list(&outcome.failures)
    )
}

fn quoted(text: &str) -> String {
    let mut quoted = String::from('"');
    for letter in text.chars() {
        match letter {
            '"' | '\\' => quoted.extend(['\\', letter]),
            letter if letter.is_control() => {
                let _ = write!(quoted, "\\u{:04x}", u32::from(letter));
            }
            letter => quoted.push(letter),
        }
    }
    quoted.push('"');
    quoted
}

/// Four digits behind the point at most.
fn rounded(value: f64) -> f64 {
    (value * 1e4).round() / 1e4
}

/// Heading and rows: a load has one row per case and server, anything else one per case, server and metric.
fn rows(figures: &Figures) -> Vec<Vec<String>> {
    let is_load = figures.series.iter().any(|series| series.metric == Metric::Throughput);
    if is_load { load_rows(figures) } else { plain_rows(figures) }
}

fn load_rows(figures: &Figures) -> Vec<Vec<String>> {
    let heading = ["case", "server", "requests/s", "p50 ms", "p99 ms", "CPU µs/request", "errors"];
    let mut rows = vec![heading.map(str::to_owned).to_vec()];
    for case in figures.cases() {
        for subject in figures.subjects(case) {
            let mut row = vec![case.to_owned(), subject.name()];
            row.extend(LOAD_COLUMNS.map(|metric| cell(figures, case, subject, metric)));
            let errors = figures.find(case, subject, Metric::Errors);
            row.push(errors.map_or(String::new(), |errors| Metric::Errors.show(errors.samples.max())));
            rows.push(row);
        }
    }
    rows
}

fn plain_rows(figures: &Figures) -> Vec<Vec<String>> {
    let mut rows = vec![["case", "server", "metric", "figure"].map(str::to_owned).to_vec()];
    for series in &figures.series {
        let figure = cell(figures, series.case, series.subject, series.metric);
        rows.push(vec![
            series.case.to_owned(),
            series.subject.name(),
            series.metric.name().to_owned(),
            figure,
        ]);
    }
    rows
}

/// Median, spread, and the ratio to Redis.
fn cell(figures: &Figures, case: &str, subject: Subject, metric: Metric) -> String {
    let Some(series) = figures.find(case, subject, metric) else { return String::new() };
    let mut text = metric.show(series.samples.median());
    if series.samples.runs() > 1 {
        let _ = write!(text, " ±{:.0} %", series.samples.spread_percent());
    }
    if subject != Subject::Redis
        && let Some(ratio) = figures.ratio_to_redis(case, subject, metric)
    {
        let _ = write!(text, " ({ratio:.2})");
    }
    text
}

/// Verdicts, then what was left out and what failed.
fn remarks(outcome: &Outcome) -> Vec<String> {
    let mut lines: Vec<String> = outcome.verdicts.iter().map(remark).collect();
    lines.extend(outcome.skipped.iter().map(|skipped| format!("left out: {skipped}")));
    lines.extend(outcome.failures.iter().map(|failure| format!("FAILED: {failure}")));
    lines
}

fn remark(verdict: &Verdict) -> String {
    let word = match verdict.holds {
        Some(true) => "holds",
        Some(false) => "FALLS SHORT",
        None => "not judged",
    };
    format!("{word}: {}", verdict.text)
}
