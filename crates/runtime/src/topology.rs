//! Which CPUs there are for us, and which shard runs on which.
//!
//! What counts is the affinity mask of the process (taskset, cpusets, containers) and the quota of its cgroups, not what the
//! machine has.

mod cores;
mod quota;

use std::io;
use std::time::Duration;

use thiserror::Error;

use crate::system_files::SystemFiles;
pub use cores::{cores, cores_first};
pub use quota::{CpuQuota, cpu_quota};

/// Most shards of one server. The mailboxes grow with its square.
pub const SHARDS_MAX: usize = 1024;
/// CPUs that an affinity mask of ours can name; the kernel refuses a shorter mask than it has CPUs.
const CPUS_MAX: usize = 8192;

/// How shards are bound to CPUs.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub enum Placement {
    /// A shard per physical core, on the first of its threads.
    #[default]
    Physical,
    /// A shard per CPU as the kernel counts them: two on a core with two threads.
    Logical,
    /// Wherever the kernel's scheduler puts them, as many as for `Physical`.
    Float,
}

impl Placement {
    /// All, in the order in which they are documented.
    pub const ALL: [Self; 3] = [Self::Physical, Self::Logical, Self::Float];

    /// The word of the directive.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Physical => "physical",
            Self::Logical => "logical",
            Self::Float => "float",
        }
    }
}

/// Why the shards cannot be placed.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
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

/// What there is to place shards on.
#[derive(Clone, Debug)]
pub struct Machine {
    /// The CPUs of the affinity mask, ascending.
    pub allowed: Vec<usize>,
    /// The cgroup's, if there is one.
    pub quota: Option<CpuQuota>,
    /// Where cores are described.
    pub files: SystemFiles,
}

impl Machine {
    /// This one.
    ///
    /// # Errors
    /// The affinity mask cannot be read.
    pub fn here() -> Result<Self, TopologyError> {
        let files = SystemFiles::real();
        Ok(Self { allowed: allowed_cpus()?, quota: cpu_quota(&files), files })
    }
}

/// Where the shards run.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Layout {
    /// The CPU of each shard, in order; `None` for a shard that is not bound. One entry per shard.
    pub cpus: Vec<Option<usize>>,
    /// Where a shard may run while others use its CPU; empty where the CPUs were named, which are theirs for good. Of shards
    /// that are not bound: the CPUs that were named for all of them together; empty where none were.
    pub elsewhere: Vec<usize>,
    /// Physical cores among the CPUs that were to be chosen from.
    pub cores: usize,
    /// What speaks against it: a sentence for the log.
    pub warning: Option<String>,
}

impl Layout {
    /// The CPUs of the shards as a list, `any` where they are not bound to any.
    pub(crate) fn shard_cpus(&self) -> String {
        let bound: Vec<usize> = self.cpus.iter().copied().flatten().collect();
        let cpus = if bound.is_empty() { &self.elsewhere } else { &bound };
        if cpus.is_empty() { "any".to_owned() } else { ranges(cpus) }
    }
}

/// Places the shards.
///
/// - `cpus`, if given, names what to choose from, and there is one shard on each; else the affinity mask does, and there is
///   one per core, or per CPU with [`Placement::Logical`], but no more than the quota keeps busy (rounded up).
/// - `shards`, if given, overrides that number. Fewer shards than CPUs take the first ones, cores before second threads.
/// - More shards than CPUs are not bound: two on one CPU would only get into each other's way; `cpus`, if given, is where they
///   all are. Neither are those with [`Placement::Float`], nor those of a
///   process whose quota is below its CPUs, unless `cpus` is given: other groups run on the same CPUs, and would all have
///   bound theirs to the first ones.
///
/// # Errors
/// A bad list, a CPU that is not allowed, a bad number of shards.
pub fn place(
    cpus: Option<&str>,
    shards: Option<usize>,
    placement: Placement,
    machine: &Machine,
) -> Result<Layout, TopologyError> {
    let chosen = match cpus {
        Some(list) => parse_list(list)?,
        None => machine.allowed.clone(),
    };
    if let Some(&cpu) = chosen.iter().find(|cpu| !machine.allowed.contains(cpu)) {
        return Err(TopologyError::UnknownCpu { cpu, allowed: ranges(&machine.allowed) });
    }
    let (by_core, cores) = cores_first(&machine.files, &chosen);
    let by_default = if cpus.is_some() || placement == Placement::Logical { chosen.len() } else { cores };
    let quota_cpus = machine.quota.map_or(usize::MAX, CpuQuota::cpus);
    let is_shared = cpus.is_none() && quota_cpus < by_default;
    let shards = shards.unwrap_or(if cpus.is_some() { by_default } else { by_default.min(quota_cpus) });
    if shards == 0 || shards > SHARDS_MAX {
        return Err(TopologyError::Shards { shards });
    }
    let warning = machine.quota.filter(|quota| shards > quota.cpus()).map(|quota| over_quota(shards, quota));
    if placement == Placement::Float || shards > chosen.len() || is_shared {
        let named = if cpus.is_some() { chosen } else { Vec::new() };
        return Ok(Layout { cpus: vec![None; shards], elsewhere: named, cores, warning });
    }
    let elsewhere = if cpus.is_some() { Vec::new() } else { chosen.clone() };
    let mut bound = if placement == Placement::Physical { by_core } else { chosen };
    bound.truncate(shards);
    bound.sort_unstable();
    Ok(Layout { cpus: bound.into_iter().map(Some).collect(), elsewhere, cores, warning })
}

fn over_quota(shards: usize, quota: CpuQuota) -> String {
    format!(
        "the cgroup's quota is {quota} CPUs for {shards} shards, so the kernel will stop them for part of every period: give \
         --shards {}, or raise the quota (cpu.max, docker run --cpus, CPUQuota= in the systemd unit)",
        quota.cpus()
    )
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

/// Binds the calling thread to a CPU.
///
/// # Errors
/// The system's, if the thread may not run there.
pub fn bind_here(cpu: usize) -> io::Result<()> {
    bind_here_to_any(&[cpu])
}

/// Has the calling thread run on any of these CPUs.
///
/// # Errors
/// The system's, if the thread may run on none of them.
pub fn bind_here_to_any(cpus: &[usize]) -> io::Result<()> {
    let mut mask = [0u8; CPUS_MAX / 8];
    for cpu in cpus {
        mask[cpu / 8] |= 1 << (cpu % 8);
    }
    // SAFETY: `mask` is readable for as many bytes as the call is told.
    let result = unsafe { libc::sched_setaffinity(0, mask.len(), mask.as_ptr().cast()) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// `struct sched_attr` of the kernel in its first version, which all later ones take.
#[repr(C)]
#[derive(Default)]
struct SchedAttr {
    size: u32,
    policy: u32,
    flags: u64,
    nice: i32,
    priority: u32,
    runtime_ns: u64,
    deadline_ns: u64,
    period_ns: u64,
}

/// Asks for the calling thread to be run for shorter times and so to be run sooner, where others share its CPU: the slice of the
/// EEVDF scheduler, from Linux 6.12 on. Threads of another policy than the usual one keep theirs; older kernels ignore it.
pub(crate) fn shorten_slice_here(slice: Duration) {
    let mut attr = SchedAttr { size: size_of::<SchedAttr>() as u32, ..SchedAttr::default() };
    let size = attr.size;
    // SAFETY: the kernel writes at most `size` bytes to `attr`, which has as many and for which any bits are valid.
    let got = unsafe { libc::syscall(libc::SYS_sched_getattr, 0, &raw mut attr, size, 0) };
    if got != 0 || attr.policy != libc::SCHED_OTHER as u32 {
        return;
    }
    (attr.size, attr.runtime_ns) = (size, slice.as_nanos() as u64);
    // SAFETY: `attr` is readable for as many bytes as it says. What fails leaves everything as it was.
    unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const attr, 0) };
}

#[cfg(target_endian = "big")]
compile_error!("allowed_cpus reads the affinity mask byte by byte");

/// Parses `0-3,8`; ascending, without duplicates.
///
/// # Errors
/// Not a list of numbers and ranges.
pub fn parse_list(list: &str) -> Result<Vec<usize>, TopologyError> {
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

/// The inverse of [`parse_list`]: `cpus` is ascending.
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
    use crate::system_files::fake::Tree;

    #[test]
    fn lists_are_parsed_and_written_back() {
        for (list, cpus, canonical) in [
            ("0", &[0][..], "0"),
            ("0-3,8", &[0, 1, 2, 3, 8], "0-3,8"),
            (" 5 , 1-2", &[1, 2, 5], "1-2,5"),
            ("4,4,3-5", &[3, 4, 5], "3-5"),
        ] {
            assert_eq!(parse_list(list).as_deref(), Ok(cpus), "{list}");
            assert_eq!(ranges(cpus), canonical);
        }
        for list in ["", "a", "1-", "-1", "3-1", "1,,2", "0-1-2", "99999999999999999999"] {
            assert_eq!(parse_list(list), Err(TopologyError::List { list: list.to_owned() }), "{list}");
        }
    }

    /// Two packages of two cores with two threads each, numbered as Intel does: CPU n and n + 4 are one core.
    fn machine(label: &str, allowed: &[usize], millicpus: Option<u64>) -> (Tree, Machine) {
        let paths: Vec<String> = (0..8)
            .map(|cpu| format!("sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list"))
            .collect();
        let lists: Vec<String> = (0..8).map(|cpu| format!("{},{}", cpu % 4, cpu % 4 + 4)).collect();
        let files: Vec<(&str, &str)> =
            paths.iter().zip(&lists).map(|(path, list)| (path.as_str(), list.as_str())).collect();
        let tree = Tree::new(label, &files);
        let quota = millicpus.map(|millicpus| CpuQuota { millicpus });
        let machine = Machine { allowed: allowed.to_vec(), quota, files: tree.files.clone() };
        (tree, machine)
    }

    fn bound(cpus: &[usize]) -> Vec<Option<usize>> {
        cpus.iter().copied().map(Some).collect()
    }

    #[test]
    fn shards_go_to_cores_before_they_go_to_threads() {
        use Placement::{Float, Logical, Physical};
        let (_tree, all) = machine("place-all", &[0, 1, 2, 3, 4, 5, 6, 7], None);
        let (_tree, some) = machine("place-some", &[0, 1, 4, 6, 7], None);
        let cases = [
            (&all, None, None, Physical, bound(&[0, 1, 2, 3])),
            (&all, None, None, Logical, bound(&[0, 1, 2, 3, 4, 5, 6, 7])),
            (&all, None, None, Float, vec![None; 4]),
            (&all, None, Some(2), Physical, bound(&[0, 1])),
            (&all, None, Some(6), Physical, bound(&[0, 1, 2, 3, 4, 5])),
            (&all, None, Some(9), Physical, vec![None; 9]),
            (&all, Some("0,4"), None, Physical, bound(&[0, 4])),
            (&all, Some("0-1,4-5"), Some(2), Physical, bound(&[0, 1])),
            (&all, Some("4-5"), Some(1), Logical, bound(&[4])),
            (&all, Some("1"), Some(3), Physical, vec![None; 3]),
            (&all, Some("1"), None, Float, vec![None]),
            (&some, None, None, Physical, bound(&[0, 1, 6, 7])),
            (&some, None, None, Logical, bound(&[0, 1, 4, 6, 7])),
            (&some, None, Some(3), Logical, bound(&[0, 1, 4])),
        ];
        for (machine, cpus, shards, placement, expected) in cases {
            let layout = place(cpus, shards, placement, machine).unwrap();
            assert_eq!(layout.cpus, expected, "{cpus:?} {shards:?} {placement:?} of {:?}", machine.allowed);
            if expected[0].is_none() {
                let named = cpus.map(|list| parse_list(list).unwrap());
                assert_eq!(layout.shard_cpus(), named.map_or("any".to_owned(), |named| ranges(&named)));
            }
            assert_eq!(layout.warning, None);
        }
    }

    #[test]
    fn a_quota_bounds_the_default_and_leaves_the_shards_unbound() {
        use Placement::{Logical, Physical};
        let all = [0, 1, 2, 3, 4, 5, 6, 7];
        let cases = [
            (2500, None, None, Physical, vec![None; 3], false),
            (500, None, None, Physical, vec![None], false),
            (4000, None, None, Physical, bound(&[0, 1, 2, 3]), false),
            (6000, None, None, Logical, vec![None; 6], false),
            (2500, None, Some(2), Physical, vec![None; 2], false),
            (2500, None, Some(4), Physical, vec![None; 4], true),
            (2500, Some("0-3"), None, Physical, bound(&[0, 1, 2, 3]), true),
            (2500, Some("0-3"), Some(3), Physical, bound(&[0, 1, 2]), false),
        ];
        for (idx, (millicpus, cpus, shards, placement, expected, warns)) in cases.into_iter().enumerate() {
            let (_tree, machine) = machine(&format!("quota-{idx}"), &all, Some(millicpus));
            let layout = place(cpus, shards, placement, &machine).unwrap();
            assert_eq!(layout.cpus, expected, "{millicpus} {cpus:?} {shards:?} {placement:?}");
            assert_eq!(layout.warning.is_some(), warns, "{:?}", layout.warning);
        }
        let warning = over_quota(4, CpuQuota { millicpus: 2500 });
        assert!(warning.starts_with("the cgroup's quota is 2.5 CPUs for 4 shards"), "{warning}");
        assert!(warning.contains("give --shards 3,"), "{warning}");
    }

    #[test]
    fn what_cannot_be_placed_is_named() {
        let (_tree, machine) = machine("unplaced", &[0, 1, 2, 7], None);
        let place = |cpus, shards| place(cpus, shards, Placement::Logical, &machine).unwrap_err().to_string();
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
