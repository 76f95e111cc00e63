//! A report as Markdown and as JSON: an experiment says what is in it, this file how it is written.

use std::fmt::Write;
use std::path::Path;

use anyhow::Result;
use serde_json::{Value, json};

use super::chart::{self, Curve, Group};
use super::figures::Metric;
use super::recording::Recording;

/// The file of a report within its directory.
pub(super) const FILE: &str = "report.md";

/// What there is to say about an experiment.
pub(super) struct Report {
    pub(super) title: String,
    pub(super) sections: Vec<Section>,
    /// Sentences, computed from the figures.
    pub(super) conclusions: Vec<String>,
    /// What makes figures doubtful.
    pub(super) warnings: Vec<String>,
    pub(super) pictures: Vec<Picture>,
}

pub(super) struct Section {
    pub(super) title: String,
    pub(super) blocks: Vec<Block>,
}

pub(super) enum Block {
    Text(String),
    Table(Table),
    /// Lines of a program.
    Lines(String),
}

/// Names to the left, figures to the right.
pub(super) struct Table {
    head: Vec<String>,
    /// How many columns are names.
    names: usize,
    rows: Vec<Vec<String>>,
}

/// A picture that belongs to a report.
pub(super) struct Picture {
    pub(super) file: &'static str,
    pub(super) title: String,
    pub(super) cases: Vec<String>,
    pub(super) drawing: Drawing,
}

pub(super) enum Drawing {
    Bars(Vec<Group>),
    Curves(Vec<Curve>),
}

impl Report {
    /// One that says nothing yet.
    pub(super) fn new(title: &str) -> Self {
        Self {
            title: title.to_owned(),
            sections: Vec::new(),
            conclusions: Vec::new(),
            warnings: Vec::new(),
            pictures: Vec::new(),
        }
    }

    /// One of a recording that was changed by hand, and makes no sense.
    pub(super) fn senseless(title: &str, why: &str) -> Self {
        let mut report = Self::new(title);
        report.warnings.push(why.to_owned());
        report
    }
}

impl Table {
    /// An empty one, whose first columns are names.
    pub(super) fn new(names: usize, head: impl IntoIterator<Item = impl Into<String>>) -> Self {
        Self { head: head.into_iter().map(Into::into).collect(), names, rows: Vec::new() }
    }

    pub(super) fn row(&mut self, cells: impl IntoIterator<Item = impl Into<String>>) {
        self.rows.push(cells.into_iter().map(Into::into).collect());
    }

    fn write(&self, text: &mut String) {
        let line = |cells: &[String]| {
            let cells: Vec<String> = cells.iter().map(|cell| cell.replace('|', "\\|")).collect();
            format!("| {} |\n", cells.join(" | "))
        };
        text.push_str(&line(&self.head));
        for column in 0..self.head.len() {
            text.push_str(if column < self.names { "|---" } else { "|---:" });
        }
        text.push_str("|\n");
        for row in &self.rows {
            text.push_str(&line(row));
        }
    }
}

impl Picture {
    /// Draws it into a directory.
    ///
    /// # Errors
    /// The file cannot be written.
    pub(super) fn draw(&self, dir: &Path) -> Result<()> {
        let file = dir.join(self.file);
        match &self.drawing {
            Drawing::Bars(groups) => chart::bars(&file, &self.title, &self.cases, groups),
            Drawing::Curves(curves) => chart::distribution(&file, &self.title, &self.cases, curves),
        }
    }
}

/// The report as Markdown; `pictures` is whether they lie beside it.
pub(super) fn markdown(report: &Report, recordings: &[&Recording], pictures: bool) -> String {
    let mut text = format!("# {}\n\n", report.title);
    for recording in recordings {
        let runs = match recording.runs() {
            1 => "one run of each".to_owned(),
            runs => {
                let alternating = if recording.cases.len() > 1 { "alternating " } else { "" };
                format!("medians of {runs} {alternating}runs, ± half the distance between the extremes")
            }
        };
        let _ = writeln!(text, "{}, {}: {runs}.\n", recording.label, recording.date);
    }
    list(&mut text, "Warnings", &report.warnings);
    list(&mut text, "Conclusion", &report.conclusions);
    for section in &report.sections {
        let _ = writeln!(text, "## {}\n", section.title);
        for block in &section.blocks {
            match block {
                Block::Text(words) => text.push_str(words),
                Block::Table(table) => table.write(&mut text),
                Block::Lines(lines) => {
                    let _ = write!(text, "```\n{}\n```\n", lines.trim_end());
                }
            }
            text.truncate(text.trim_end().len());
            text.push_str("\n\n");
        }
    }
    for picture in report.pictures.iter().filter(|_| pictures) {
        let _ = writeln!(text, "![{}]({})\n", picture.title, picture.file);
    }
    for recording in recordings {
        setting(&mut text, recording, recordings.len() > 1);
    }
    text.truncate(text.trim_end().len());
    text.push('\n');
    text
}

fn list(text: &mut String, title: &str, lines: &[String]) {
    if lines.is_empty() {
        return;
    }
    let _ = writeln!(text, "## {title}\n");
    for line in lines {
        let _ = writeln!(text, "- {line}");
    }
    text.push('\n');
}

/// How it was measured: machine, versions, what was left out, commands.
fn setting(text: &mut String, recording: &Recording, named: bool) {
    let behind = if named { format!(" of {}", recording.label) } else { String::new() };
    list(text, &format!("Notes{behind}"), &recording.notes);
    let _ = writeln!(text, "## Machine and versions{behind}\n");
    for line in recording.machine.lines() {
        let _ = writeln!(text, "- {}", line.trim_start_matches("# "));
    }
    for case in &recording.cases {
        let _ = writeln!(text, "- {}: {}, `{}`", case.title, case.identity, case.server);
    }
    let _ = writeln!(text, "- measured by corelane {}\n", recording.corelane_experiment);
    let _ = writeln!(text, "## Commands{behind}\n\n```sh\n{}\n```\n", recording.command);
    let _ = writeln!(text, "which ran, for the first time each:\n\n```sh");
    let mut seen: Vec<(&str, &str, usize)> = Vec::new();
    for sample in &recording.samples {
        let this = (sample.case.as_str(), sample.load.as_str(), sample.part);
        if !seen.contains(&this) {
            seen.push(this);
            let _ = writeln!(text, "{}", sample.command);
        }
    }
    text.push_str("```\n\n");
}

/// The report for programs.
pub(super) fn json(report: &Report, recordings: &[&Recording]) -> Value {
    let runs: Vec<Value> = recordings.iter().map(|recording| summary(recording)).collect();
    json!({
        "title": report.title,
        "warnings": report.warnings,
        "conclusions": report.conclusions,
        "runs": runs,
    })
}

fn summary(recording: &Recording) -> Value {
    let mut figures = Vec::new();
    for load in &recording.loads {
        for case in &recording.cases {
            for metric in Metric::ALL {
                let Some(all) = recording.series(&case.name, &load.name, metric) else { continue };
                figures.push(json!({
                    "load": load.name, "case": case.name, "metric": metric.key(), "median": all.median(),
                    "min": all.min(), "max": all.max(), "spread_percent": all.spread_percent(), "runs": all.runs(),
                }));
            }
        }
    }
    json!({
        "experiment": recording.experiment, "label": recording.label, "date": recording.date,
        "corelane_experiment": recording.corelane_experiment, "command": recording.command,
        "machine": recording.machine, "cases": recording.cases, "loads": recording.loads, "notes": recording.notes,
        "figures": figures,
    })
}
