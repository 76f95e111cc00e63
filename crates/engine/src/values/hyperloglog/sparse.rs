//! The sparse encoding of registers: runs of equal ones.
//!
//! ```text
//!   00llllll           l + 1 registers of 0
//!   01llllll llllllll  l + 1 registers of 0, high bits first
//!   1rrrrrll           l + 1 registers of rank r + 1
//! ```
//! Redis writes the same runs for the same elements in the same order, as its comparison by bytes in the tests shows: a run is split
//! where a register rises, and up to five runs from the one before are then joined with their neighbours where these are equal.

use super::{Corrupt, HEADER_LEN, REGISTERS};
use std::fmt::Write;

/// Highest rank.
const RANK_MAX: u8 = 32;
/// Longest run of a rank.
const RANK_RUN_MAX: usize = 4;
/// Longest run of zeros in one byte.
const SHORT_ZEROS_MAX: usize = 64;
/// Runs that are looked at when neighbours are joined.
const JOIN_MAX: usize = 5;

/// Equal registers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Run {
    rank: u8,
    registers: usize,
    /// Bytes that it takes.
    bytes: usize,
}

/// The run at `at`. A second byte that is missing counts as 0.
fn run_at(runs: &[u8], at: usize) -> Run {
    let byte = runs[at];
    match byte >> 6 {
        0 => Run { rank: 0, registers: usize::from(byte) + 1, bytes: 1 },
        1 => {
            let low = runs.get(at + 1).copied().unwrap_or(0);
            let registers = usize::from(byte & 0x3F) << 8 | usize::from(low);
            Run { rank: 0, registers: registers + 1, bytes: 2 }
        }
        _ => Run { rank: (byte >> 2 & 0x1F) + 1, registers: usize::from(byte & 3) + 1, bytes: 1 },
    }
}

/// Adds a run of zeros, which may be empty.
pub(super) fn push_zeros(runs: &mut Vec<u8>, registers: usize) {
    match registers {
        0 => {}
        1..=SHORT_ZEROS_MAX => runs.push(registers as u8 - 1),
        _ => runs.extend(((registers - 1) as u16 | 0x4000).to_be_bytes()),
    }
}

/// A run of a rank.
const fn rank_run(rank: u8, registers: usize) -> u8 {
    0x80 | (rank - 1) << 2 | (registers - 1) as u8
}

/// Visits runs with their first register and its rank.
pub(super) fn for_each_run(runs: &[u8], mut visit: impl FnMut(usize, usize, u8)) -> Result<(), Corrupt> {
    let (mut at, mut first) = (0, 0);
    while at < runs.len() {
        let run = run_at(runs, at);
        if first + run.registers > REGISTERS {
            return Err(Corrupt);
        }
        visit(first, run.registers, run.rank);
        first += run.registers;
        at += run.bytes;
    }
    if first == REGISTERS { Ok(()) } else { Err(Corrupt) }
}

/// Where a register is.
struct Found {
    /// Of its run.
    at: usize,
    run: Run,
    /// The run's first register.
    first: usize,
    /// Of the run before, if there is one.
    before: Option<usize>,
}

fn find(runs: &[u8], register: usize) -> Result<Found, Corrupt> {
    let (mut at, mut first, mut before) = (0, 0, None);
    while at < runs.len() {
        let run = run_at(runs, at);
        if register < first + run.registers {
            return Ok(Found { at, run, first, before });
        }
        before = Some(at);
        first += run.registers;
        at += run.bytes;
    }
    Err(Corrupt)
}

/// The rank of a register.
pub(super) fn at(runs: &[u8], register: usize) -> Result<u8, Corrupt> {
    find(runs, register).map(|found| found.run.rank)
}

/// What became of a register.
pub(super) enum Raised {
    /// It was as high already.
    No,
    Yes,
    /// Nothing: the sparse encoding cannot hold it any more.
    TooLong,
}

/// Brings a register to a rank. `bytes` is the whole string; with the header it must not get longer than `len_max`.
pub(super) fn raise(
    bytes: &mut Vec<u8>,
    register: usize,
    rank: u8,
    len_max: usize,
) -> Result<Raised, Corrupt> {
    if rank > RANK_MAX {
        return Ok(Raised::TooLong);
    }
    let Found { at, run, first, before } = find(&bytes[HEADER_LEN..], register)?;
    if run.rank >= rank {
        return Ok(Raised::No);
    }
    let (ahead, behind) = (register - first, first + run.registers - 1 - register);
    let at = at + HEADER_LEN;
    let mut split = Vec::with_capacity(5);
    let push_rest = |split: &mut Vec<u8>, registers| {
        if run.rank == 0 {
            push_zeros(split, registers);
        } else if registers > 0 {
            split.push(rank_run(run.rank, registers));
        }
    };
    push_rest(&mut split, ahead);
    split.push(rank_run(rank, 1));
    push_rest(&mut split, behind);
    if split.len() > run.bytes && bytes.len() + split.len() - run.bytes > len_max {
        return Ok(Raised::TooLong);
    }
    let end = (at + run.bytes).min(bytes.len());
    bytes.splice(at..end, split);
    join(bytes, before.unwrap_or(0) + HEADER_LEN);
    Ok(Raised::Yes)
}

/// Joins neighbours of equal rank, from the run at `at` on.
fn join(bytes: &mut Vec<u8>, mut at: usize) {
    for _ in 0..JOIN_MAX {
        if at >= bytes.len() {
            break;
        }
        let run = run_at(bytes, at);
        if run.rank > 0 && at + 1 < bytes.len() {
            let next = run_at(bytes, at + 1);
            let registers = run.registers + next.registers;
            if next.rank == run.rank && registers <= RANK_RUN_MAX {
                bytes[at] = rank_run(run.rank, registers);
                bytes.remove(at + 1);
                continue;
            }
        }
        at += run.bytes;
    }
}

/// The runs in words: `z:` and `Z:` for short and long runs of zeros, `v:` for rank and length of others.
pub(super) fn decoded(runs: &[u8]) -> String {
    let (mut text, mut at) = (String::new(), 0);
    while at < runs.len() {
        let run = run_at(runs, at);
        let gap = if at == 0 { "" } else { " " };
        // Writing to a string cannot fail.
        let _ = match (run.rank, run.bytes) {
            (0, 1) => write!(text, "{gap}z:{}", run.registers),
            (0, _) => write!(text, "{gap}Z:{}", run.registers),
            (rank, _) => write!(text, "{gap}v:{rank},{}", run.registers),
        };
        at += run.bytes;
    }
    text
}
