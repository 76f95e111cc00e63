//! What the kernel says about this machine.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result};

/// How many descriptors this process, and so every server it starts, may open.
pub(crate) fn descriptors_max() -> Result<u64> {
    let text = fs::read_to_string("/proc/self/limits").context("cannot read /proc/self/limits")?;
    let line =
        text.lines().find(|line| line.starts_with("Max open files")).context("no limit of open files")?;
    Ok(line.split_whitespace().nth(3).and_then(|soft| soft.parse().ok()).unwrap_or(u64::MAX))
}

/// Number of CPUs this process may use.
pub(crate) fn cpus() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// Where the figures come from.
#[derive(Debug)]
pub(crate) struct Machine {
    pub(crate) cpu: String,
    pub(crate) cpus: usize,
    pub(crate) kernel: String,
    pub(crate) memory_gib: f64,
    pub(crate) date: String,
    pub(crate) revision: String,
}

impl Machine {
    pub(crate) fn read() -> Result<Self> {
        let cpuinfo = fs::read_to_string("/proc/cpuinfo").context("cannot read /proc/cpuinfo")?;
        let field = |name: &str| {
            let line = cpuinfo.lines().find(|line| line.starts_with(name))?;
            Some(line.split_once(':')?.1.trim().to_owned())
        };
        let meminfo = fs::read_to_string("/proc/meminfo").context("cannot read /proc/meminfo")?;
        let total_kib: f64 =
            meminfo.split_whitespace().nth(1).and_then(|kib| kib.parse().ok()).unwrap_or(0.0);
        let kernel =
            fs::read_to_string("/proc/sys/kernel/osrelease").context("cannot read the kernel's release")?;
        Ok(Self {
            cpu: field("model name")
                .or_else(|| field("CPU part"))
                .unwrap_or_else(|| "unknown-cpu".to_owned()),
            cpus: cpus(),
            kernel: kernel.trim().to_owned(),
            memory_gib: total_kib / f64::from(1 << 20),
            date: output("date", &["+%F"]).unwrap_or_else(|| "undated".to_owned()),
            revision: output("git", &["describe", "--always", "--dirty"])
                .unwrap_or_else(|| "unknown".to_owned()),
        })
    }

    /// `benches/runs/<date>-<machine>`, the machine being its CPU and how many of them.
    pub(crate) fn results_directory(&self) -> PathBuf {
        let words = self.cpu.to_lowercase().replace(|letter: char| !letter.is_ascii_alphanumeric(), " ");
        let name = words.split_whitespace().collect::<Vec<_>>().join("-");
        let root = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
        root.join("benches/runs").join(format!("{}-{name}-{}-cpus", self.date, self.cpus))
    }
}

/// First line of what a command prints; `None` when it fails.
pub(crate) fn output(program: &str, arguments: &[&str]) -> Option<String> {
    let output = Command::new(program).args(arguments).output().ok()?;
    let text = String::from_utf8_lossy(&output.stdout);
    let line = text.lines().next()?.trim().to_owned();
    output.status.success().then_some(line)
}
