//! What the tools print.

use std::fmt::Display;
use std::io::{self, Write};
use std::sync::atomic::Ordering;

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
