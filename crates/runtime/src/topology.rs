//! Which CPUs there are for us, and which shard runs on which.
//!
//! What counts is the affinity mask of the process (taskset, cgroups, containers), not what the machine has.

use std::io;

use thiserror::Error;

/// Most shards of one server. The mailboxes grow with its square.
pub const SHARDS_MAX: usize = 1024;
/// CPUs that an affinity mask of ours can name; the kernel refuses a shorter mask than it has CPUs.
const CPUS_MAX: usize = 8192;

/// How shards are bound to CPUs.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub enum Placement {
    /// Each shard on a CPU of its own.
    #[default]
    Logical,
    /// Wherever the kernel's scheduler puts them.
    Float,
}

/// Why the shards cannot be placed.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum TopologyError {
    /// Not a list of numbers and ranges.
    #[error("--cpus {list:?} is not a list of CPUs: write numbers and ranges such as 0-3,8")]
    List {
        /// What was given.
        list: String,
    },
    /// A CPU that is not there, or not ours.
    #[error("--cpus names cpu {cpu}, which this process may not use: choose from {allowed}")]
    UnknownCpu {
        /// The first such CPU.
        cpu: usize,
        /// Those that there are, as a list of ranges.
        allowed: String,
    },
    /// Fewer than one or more than [`SHARDS_MAX`].
    #[error("--shards {shards} is out of range: choose 1 to {SHARDS_MAX}")]
    Shards {
        /// What was given.
        shards: usize,
    },
    /// The kernel does not tell the affinity mask.
    #[error("cannot read the CPUs of this process ({0}): give --placement float and --shards")]
    Affinity(String),
}

/// The CPU of each shard, in order; `None` for a shard that is not bound. One entry per shard.
///
/// Without `shards` there is one per CPU. With fewer, the first CPUs are used; with more shards than CPUs none is bound,
/// since two shards on one CPU would only get into each other's way.
///
/// # Errors
/// A bad list, a CPU that is not in `allowed`, a bad number of shards.
pub fn place(
    cpus: Option<&str>,
    shards: Option<usize>,
    placement: Placement,
    allowed: &[usize],
) -> Result<Vec<Option<usize>>, TopologyError> {
    let chosen = match cpus {
        Some(list) => parse(list)?,
        None => allowed.to_vec(),
    };
    if let Some(&cpu) = chosen.iter().find(|cpu| !allowed.contains(cpu)) {
        return Err(TopologyError::UnknownCpu { cpu, allowed: ranges(allowed) });
    }
    let shards = shards.unwrap_or(chosen.len());
    if shards == 0 || shards > SHARDS_MAX {
        return Err(TopologyError::Shards { shards });
    }
    if placement == Placement::Float || shards > chosen.len() {
        return Ok(vec![None; shards]);
    }
    Ok(chosen.into_iter().take(shards).map(Some).collect())
}

/// The CPUs that this process may run on, ascending.
///
/// # Errors
/// The system's, if it cannot tell.
pub fn allowed_cpus() -> Result<Vec<usize>, TopologyError> {
    let mut mask = [0u8; CPUS_MAX / 8];
    // SAFETY: `mask` is writable for as many bytes as the call is told; a mask is plain bits, without invalid values.
    let result = unsafe { libc::sched_getaffinity(0, mask.len(), mask.as_mut_ptr().cast()) };
    if result != 0 {
        return Err(TopologyError::Affinity(io::Error::last_os_error().to_string()));
    }
    // The kernel's mask is an array of longs; on little-endian machines that is the same as an array of bytes.
    let is_set = |cpu: &usize| mask[cpu / 8] & (1 << (cpu % 8)) != 0;
    Ok((0..CPUS_MAX).filter(is_set).collect())
}

#[cfg(target_endian = "big")]
compile_error!("allowed_cpus reads the affinity mask byte by byte");

/// Parses `0-3,8`; ascending, without duplicates.
fn parse(list: &str) -> Result<Vec<usize>, TopologyError> {
    let bad = || TopologyError::List { list: list.to_owned() };
    let number =
        |text: &str| text.trim().parse::<usize>().ok().filter(|&cpu| cpu < CPUS_MAX * 8).ok_or_else(bad);
    let mut cpus = Vec::new();
    for item in list.split(',') {
        let (first, last) = item.split_once('-').unwrap_or((item, item));
        let (first, last) = (number(first)?, number(last)?);
        if first > last {
            return Err(bad());
        }
        cpus.extend(first..=last);
    }
    cpus.sort_unstable();
    cpus.dedup();
    Ok(cpus)
}

/// The inverse of `parse`: `cpus` is ascending.
#[must_use]
pub fn ranges(cpus: &[usize]) -> String {
    let runs = cpus.chunk_by(|a, b| a + 1 == *b).map(|run| match run {
        [one] => one.to_string(),
        [first, .., last] => format!("{first}-{last}"),
        [] => String::new(),
    });
    runs.collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_parsed_and_written_back() {
        for (list, cpus, canonical) in [
            ("0", &[0][..], "0"),
            ("0-3,8", &[0, 1, 2, 3, 8], "0-3,8"),
            (" 5 , 1-2", &[1, 2, 5], "1-2,5"),
            ("4,4,3-5", &[3, 4, 5], "3-5"),
        ] {
            assert_eq!(parse(list).as_deref(), Ok(cpus), "{list}");
            assert_eq!(ranges(cpus), canonical);
        }
        for list in ["", "a", "1-", "-1", "3-1", "1,,2", "0-1-2", "99999999999999999999"] {
            assert_eq!(parse(list), Err(TopologyError::List { list: list.to_owned() }), "{list}");
        }
    }

    #[test]
    fn shards_go_to_the_first_cpus_in_order() {
        let allowed = [0, 1, 4, 5];
        let check = |cpus, shards, expected: &[Option<usize>]| {
            assert_eq!(place(cpus, shards, Placement::Logical, &allowed).as_deref(), Ok(expected));
        };
        check(None, None, &[Some(0), Some(1), Some(4), Some(5)]);
        check(None, Some(2), &[Some(0), Some(1)]);
        check(Some("4-5"), None, &[Some(4), Some(5)]);
        check(Some("4-5"), Some(1), &[Some(4)]);
        check(None, Some(5), &[None; 5]);
        check(Some("1"), Some(3), &[None; 3]);
        assert_eq!(place(Some("1"), None, Placement::Float, &allowed), Ok(vec![None]));
    }

    #[test]
    fn what_cannot_be_placed_is_named() {
        let place =
            |cpus, shards| place(cpus, shards, Placement::Logical, &[0, 1, 2, 7]).unwrap_err().to_string();
        assert_eq!(
            place(Some("0,3"), None),
            "--cpus names cpu 3, which this process may not use: choose from 0-2,7"
        );
        assert_eq!(place(None, Some(0)), "--shards 0 is out of range: choose 1 to 1024");
        assert_eq!(place(None, Some(1025)), "--shards 1025 is out of range: choose 1 to 1024");
        assert_eq!(
            place(Some("x"), None),
            "--cpus \"x\" is not a list of CPUs: write numbers and ranges such as 0-3,8"
        );
    }

    #[test]
    fn the_process_may_use_the_cpu_it_runs_on() {
        // SAFETY: the call takes nothing.
        let here = unsafe { libc::sched_getcpu() };
        assert!(allowed_cpus().unwrap().contains(&(here as usize)));
    }
}
