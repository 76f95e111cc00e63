//! An experiment as it is saved: everything that its report is made from.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};

use super::drift::Moves;
use super::load::{Load, Outcome, Test};
use super::usage::Usage;
use crate::flags::VERSION;
use crate::machine::Machine;
use crate::time::today;

/// The file of a saved experiment within its directory.
pub(super) const FILE: &str = "run.json";

/// The experiments, by the seeds' order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Kind {
    Placement,
    Compare,
    Accel,
    Env,
}

/// One of the things that are compared with each other.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Case {
    /// Short, for samples to refer to.
    pub(super) name: String,
    /// For tables.
    pub(super) title: String,
    /// How its server is started, or where it is.
    pub(super) server: String,
    /// What the server calls itself.
    #[serde(default)]
    pub(super) identity: String,
}

/// One load, once, on one server.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Sample {
    pub(super) case: String,
    pub(super) load: String,
    /// From 1.
    pub(super) run: usize,
    /// Which of the servers that were loaded at the same time, from 0.
    pub(super) part: usize,
    pub(super) command: String,
    pub(super) test: Test,
    pub(super) usage: Option<Usage>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) moves: Option<Moves>,
}

/// An experiment with everything that was measured.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Recording {
    /// The version of corelane that measured.
    pub(super) corelane_experiment: String,
    pub(super) experiment: Kind,
    /// What whoever ran it calls it.
    pub(super) label: String,
    /// Year, month and day, in UTC.
    pub(super) date: String,
    /// The command line.
    pub(super) command: String,
    pub(super) machine: Machine,
    pub(super) cases: Vec<Case>,
    pub(super) loads: Vec<Load>,
    /// How it was set up, and what could not be measured.
    pub(super) notes: Vec<String>,
    pub(super) samples: Vec<Sample>,
}

impl Recording {
    /// One without samples, of this machine, now.
    pub(super) fn new(experiment: Kind, label: Option<&str>, loads: Vec<Load>) -> Self {
        let machine = Machine::here();
        let words = std::env::args().skip(1).map(|word| hidden(&word));
        Self {
            corelane_experiment: VERSION.to_owned(),
            experiment,
            label: label.map_or_else(|| machine.host.clone(), str::to_owned),
            date: today(),
            command: std::iter::once("corelane".to_owned()).chain(words).collect::<Vec<_>>().join(" "),
            machine,
            cases: Vec::new(),
            loads,
            notes: Vec::new(),
            samples: Vec::new(),
        }
    }

    /// Adds what came of a load.
    pub(super) fn add(
        &mut self,
        case: &str,
        load: &str,
        run: usize,
        outcomes: Vec<Outcome>,
        moves: Option<Moves>,
    ) {
        for (part, outcome) in outcomes.into_iter().enumerate() {
            self.samples.push(Sample {
                case: case.to_owned(),
                load: load.to_owned(),
                run,
                part,
                command: outcome.command,
                test: outcome.test,
                usage: outcome.usage,
                moves,
            });
        }
    }

    /// The one that was saved in a directory, or as a file.
    ///
    /// # Errors
    /// Nothing that can be read is there.
    pub(super) fn load(path: &Path) -> Result<Self> {
        let file = if path.is_dir() { path.join(FILE) } else { path.to_owned() };
        let bytes = fs::read(&file).with_context(|| format!("cannot read {}", file.display()))?;
        let recording: Self = serde_json::from_slice(&bytes)
            .with_context(|| format!("{} holds no run of corelane experiment", file.display()))?;
        if recording.samples.is_empty() {
            bail!("{} holds a run in which nothing was measured", file.display());
        }
        Ok(recording)
    }

    /// How often each load was run.
    pub(super) fn runs(&self) -> usize {
        self.samples.iter().map(|sample| sample.run).max().unwrap_or(0)
    }
}

/// A word of the command line as a shell reads it, without a password in an address.
fn hidden(word: &str) -> String {
    match (word.split_once("://"), word.rsplit_once('@')) {
        (Some((scheme, _)), Some((_, address))) if !word.contains(' ') => {
            quoted(&format!("{scheme}://(redacted)@{address}"))
        }
        _ => quoted(word),
    }
}

/// A word as a shell reads it.
pub(super) fn quoted(word: &str) -> String {
    let is_plain = |letter: char| letter.is_alphanumeric() || "-_./:=,@%+".contains(letter);
    if !word.is_empty() && word.chars().all(is_plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', "'\\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_shown_as_a_shell_reads_them_and_passwords_not_at_all() {
        for (word, shown) in [
            ("--a", "--a"),
            ("redis://:p@w@h:1", "'redis://(redacted)@h:1'"),
            ("redis-server --port {port}", "'redis-server --port {port}'"),
            ("it's", "'it'\\''s'"),
            ("", "''"),
        ] {
            assert_eq!(hidden(word), shown);
        }
    }
}
