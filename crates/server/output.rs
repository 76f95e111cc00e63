//! What the tools print.

use std::fmt::Display;
use std::fs::{self, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::path::Path;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context, Result};
use ratatui::crossterm::terminal;

use crate::latency::system::STOPPED;

/// Whether something could not be printed although somebody wants to read it.
static LOST: AtomicBool = AtomicBool::new(false);

/// Prints; false if that cannot be. That nobody reads any more, as in `corelane stat | head -1`, is no fault. A full disk is: it is
/// told once, and [`exit_code`] knows of it.
pub(crate) fn printed(text: impl Display) -> bool {
    let mut out = io::stdout();
    let outcome = write!(out, "{text}").and_then(|()| out.flush());
    if let Err(error) = &outcome
        && error.kind() != ErrorKind::BrokenPipe
        && !LOST.swap(true, Ordering::Relaxed)
    {
        eprintln!("corelane: cannot write to stdout: {error}");
    }
    outcome.is_ok()
}

/// The exit code of a tool: 1 if what it printed was lost.
pub(crate) fn exit_code(code: ExitCode) -> ExitCode {
    if LOST.load(Ordering::Relaxed) { ExitCode::FAILURE } else { code }
}

/// [`printed`]; where that cannot be, it has the tool end.
pub(crate) fn show(text: impl Display) {
    if !printed(text) {
        STOPPED.store(true, Ordering::Relaxed);
    }
}

/// The same with the end of a line.
pub(crate) fn show_line(text: impl Display) {
    show(format_args!("{text}\n"));
}

/// As much of a line as the terminal has columns for: one that is wrapped cannot be written over.
pub(crate) fn fitted(line: &str) -> &str {
    let columns = terminal::size().map_or(usize::MAX, |(columns, _)| usize::from(columns));
    // The last column stays free: a cursor behind it is on either line.
    beginning(line, columns.saturating_sub(1))
}

fn beginning(line: &str, letters: usize) -> &str {
    line.char_indices().nth(letters).map_or(line, |(end, _)| &line[..end])
}

/// Looks whether a file can be written, before there is something to be written to it. What is in it stays.
///
/// # Errors
/// It cannot.
pub(crate) fn writable(file: &Path) -> Result<()> {
    let existed = file.exists();
    OpenOptions::new()
        .create(true)
        .append(true)
        .open(file)
        .with_context(|| format!("cannot write {}", file.display()))?;
    if !existed {
        fs::remove_file(file).with_context(|| format!("cannot remove {}", file.display()))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_cut_between_letters() {
        assert_eq!(
            [("µs µs", 4), ("µs", 2), ("µs", 9), ("µs", 0)].map(|(line, most)| beginning(line, most)),
            ["µs µ", "µs", "µs", ""]
        );
    }
}
