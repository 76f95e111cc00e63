//! What the kernel says about a process. The benches read the same figures with this file.

use std::fs;

use anyhow::{Context, Result};

/// `USER_HZ`, the unit of `/proc/PID/stat`: 100 on every architecture that io_uring and we run on.
const TICKS_PER_SECOND: f64 = 100.0;
/// That, in microseconds.
pub(crate) const US_PER_TICK: f64 = 1e6 / TICKS_PER_SECOND;

/// utime + stime of all threads of a process so far, in µs (to 10 ms).
///
/// # Errors
/// There is no such process.
pub(crate) fn cpu_us(pid: u32) -> Result<f64> {
    let path = format!("/proc/{pid}/stat");
    let text = fs::read_to_string(&path).with_context(|| format!("cannot read {path}"))?;
    // The name, in parentheses, may hold blanks: fields are counted from behind it, where the state is field 3.
    let behind = text.rsplit_once(") ").context("a /proc/PID/stat without a name")?.1;
    let fields: Vec<&str> = behind.split(' ').collect();
    let ticks = |field: usize| -> Result<f64> {
        fields.get(field - 3).and_then(|text| text.parse().ok()).context("a short /proc/PID/stat")
    };
    Ok((ticks(14)? + ticks(15)?) * US_PER_TICK)
}

/// Resident memory now, in bytes.
///
/// # Errors
/// There is no such process.
pub(crate) fn resident_bytes(pid: u32) -> Result<f64> {
    status_bytes(pid, "VmRSS:")
}

/// The most resident memory so far, in bytes.
///
/// # Errors
/// There is no such process.
pub(crate) fn peak_bytes(pid: u32) -> Result<f64> {
    status_bytes(pid, "VmHWM:")
}

fn status_bytes(pid: u32, field: &str) -> Result<f64> {
    let path = format!("/proc/{pid}/status");
    let text = fs::read_to_string(&path).with_context(|| format!("cannot read {path}"))?;
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix(field))
        .with_context(|| format!("{path}: no {field}"))?;
    let kib: f64 =
        line.trim().trim_end_matches(" kB").parse().with_context(|| format!("{path}: {field}{line}"))?;
    Ok(kib * 1024.0)
}
