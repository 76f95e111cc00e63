//! Results in text, saved, and several of them side by side.

use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use super::wakeups::{Line, Run, line};
use crate::machine::shown;

/// The lines of cyclictest, with percentiles behind them, and a histogram of so many microseconds.
pub(super) fn text(run: &Run, histogram: Option<usize>) -> String {
    let mut text = String::new();
    for (number, thread) in run.threads.iter().enumerate() {
        let shown = line(&Line {
            number,
            id: thread.id as u64,
            priority: thread.priority,
            interval_us: run.interval_us,
            wakeups: thread.wakeups,
            delays: [thread.min, thread.last, thread.avg, thread.max].map(|us| us as u64),
        });
        let _ =
            writeln!(text, "{shown} p50: {:.1} p99: {:.1} p99.9: {:.1}", thread.p50, thread.p99, thread.p999);
    }
    if let Some(end) = histogram {
        text.push_str("# Histogram: microseconds, then wake-ups of each thread\n");
        for us in 0..end as u64 {
            let counts = run
                .threads
                .iter()
                .map(|thread| thread.counts.iter().find(|(at, _)| *at == us).map_or(0, |(_, count)| *count));
            let counts: Vec<String> = counts.map(|count| format!("{count:06}")).collect();
            let _ = writeln!(text, "{us:06} {}", counts.join("\t"));
        }
        let over: Vec<String> = run
            .threads
            .iter()
            .map(|thread| {
                let beyond = thread.counts.iter().filter(|(at, _)| *at >= end as u64);
                format!("{:05}", beyond.map(|(_, count)| count).sum::<u64>())
            })
            .collect();
        let _ = writeln!(text, "# Histogram Overflows: {}", over.join(" "));
    }
    text
}

/// Saves a result.
///
/// # Errors
/// The file cannot be written.
pub(super) fn save(run: &Run, file: &Path) -> Result<()> {
    fs::write(file, serde_json::to_vec_pretty(run)?)
        .with_context(|| format!("cannot write {}", file.display()))
}

/// A table of Markdown over results that were saved, a line per thread.
///
/// # Errors
/// A file cannot be read, or holds something else.
pub(super) fn compare(files: &[PathBuf]) -> Result<String> {
    let mut table = String::from(
        "| machine | model | clock (MHz) | CPUs | cores | L1d | L1i | L2 | L3 | thread | wake-ups | Min | Avg | p99 | Max (µs) |\n\
         |---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|\n",
    );
    for file in files {
        let bytes = fs::read(file).with_context(|| format!("cannot read {}", file.display()))?;
        let run: Run = serde_json::from_slice(&bytes)
            .with_context(|| format!("{} holds no result of corelane latency --save", file.display()))?;
        let machine = &run.machine;
        for thread in &run.threads {
            let _ = writeln!(
                table,
                "| {} | {} | {:.0} | {} | {} | {} | {} | {} | {} | {} | {} | {:.1} | {:.1} | {:.1} | {:.1} |",
                machine.host,
                machine.model,
                machine.mhz,
                machine.cpus,
                machine.cores,
                shown(machine.l1d),
                shown(machine.l1i),
                shown(machine.l2),
                shown(machine.l3),
                thread.label(),
                thread.wakeups,
                thread.min,
                thread.avg,
                thread.p99,
                thread.max
            );
        }
    }
    Ok(table)
}
