//! What the tools print.

use std::fmt::Display;
use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::path::Path;
use std::sync::atomic::Ordering;

use anyhow::{Context, Result};

use crate::latency::system::STOPPED;

/// Prints. Where nobody reads any more, as in `corelane latency | head -1`, it has the tool end.
pub(crate) fn show(text: impl Display) {
    let mut out = io::stdout();
    if write!(out, "{text}").and_then(|()| out.flush()).is_err() {
        STOPPED.store(true, Ordering::Relaxed);
    }
}

/// The same with the end of a line.
pub(crate) fn show_line(text: impl Display) {
    show(format_args!("{text}\n"));
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
