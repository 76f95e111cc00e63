//! What a server uses while it is loaded: processor time, memory, threads.

use std::collections::BTreeMap;
use std::time::Instant;

use serde::{Deserialize, Serialize};

use super::process::{US_PER_TICK, cpu_us, peak_bytes, resident_bytes};
use super::tasks::{thread_times, threads_of};

/// What a server used during one load.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Usage {
    /// The process; 0 where it was not noted.
    #[serde(default)]
    pub(super) pid: u32,
    /// Of one CPU; more than 100 for several threads. `None` where the load was too short to tell.
    pub(super) cpu_percent: Option<f64>,
    pub(super) cpu_us_per_request: Option<f64>,
    /// At the end of the load.
    pub(super) resident_bytes: f64,
    pub(super) peak_bytes: f64,
    pub(super) threads: usize,
}

/// In a shorter load the looks are too far apart to tell a share of a CPU.
const LOAD_S_MIN: f64 = 0.2;
/// So many units of the clock make a figure worth showing: to one percent.
const UNITS_MIN: f64 = 100.0;
/// Between two updates of what a thread that does not sleep has used, in µs: a tick of the slowest usual kernels.
const UPDATE_US: f64 = 10_000.0;

/// A process that is looked at again and again.
#[derive(Debug)]
pub(super) struct Watch {
    pid: u32,
    looks: Vec<Look>,
    started: Instant,
    /// Processor time of each thread at the last look, in µs.
    before: BTreeMap<i32, f64>,
    /// The kernel tells nanoseconds of each thread, not ticks of the process only.
    is_fine: bool,
    resident_bytes: f64,
    peak_bytes: f64,
    threads: usize,
}

/// One look.
#[derive(Clone, Copy, Debug)]
struct Look {
    /// Since the first one.
    seconds: f64,
    /// Processor time since then, in µs.
    cpu_us: f64,
}

impl Watch {
    pub(super) fn start(pid: u32) -> Self {
        let before = thread_times(pid);
        let mut watch = Self {
            pid,
            looks: Vec::new(),
            is_fine: !before.is_empty(),
            before,
            started: Instant::now(),
            resident_bytes: 0.0,
            peak_bytes: 0.0,
            threads: 0,
        };
        watch.look();
        watch
    }

    /// Notes how it stands; nothing if the process is gone.
    pub(super) fn look(&mut self) {
        let seconds = self.started.elapsed().as_secs_f64();
        if let (Ok(cpu), Ok(resident), Ok(peak)) =
            (cpu_us(self.pid), resident_bytes(self.pid), peak_bytes(self.pid))
        {
            let cpu_us = if self.is_fine { self.used() } else { cpu };
            self.looks.push(Look { seconds, cpu_us });
            (self.resident_bytes, self.peak_bytes) = (resident, peak);
            self.threads = threads_of(self.pid).len();
        }
    }

    /// What the threads have used since the first look. One that ends takes with it what it used since the look before.
    fn used(&mut self) -> f64 {
        let now = thread_times(self.pid);
        let new = now.iter().map(|(thread, us)| us - self.before.get(thread).unwrap_or(&0.0)).sum::<f64>();
        self.before = now;
        self.looks.last().map_or(0.0, |look| look.cpu_us) + new.max(0.0)
    }

    /// What was used in a load of so many seconds and requests meanwhile.
    pub(super) fn usage(self, seconds: f64, requests: u64) -> Option<Usage> {
        let (first, last) = (self.looks.first()?, self.looks.last()?);
        let used_us = last.cpu_us - first.cpu_us;
        let unit_us = if self.is_fine { UPDATE_US / UNITS_MIN } else { US_PER_TICK };
        Some(Usage {
            pid: self.pid,
            cpu_percent: busiest_percent(&self.looks, seconds)
                .filter(|_| seconds * 1e6 >= UNITS_MIN * unit_us),
            cpu_us_per_request: (used_us >= UNITS_MIN * unit_us).then(|| used_us / requests.max(1) as f64),
            resident_bytes: self.resident_bytes,
            peak_bytes: self.peak_bytes,
            threads: self.threads,
        })
    }
}

/// The greatest share of a CPU, in percent, in any `seconds` of the looks: the load generator connects before the load, and
/// ends some time after it. `None` where that is too short for the looks, or longer than all of them.
fn busiest_percent(looks: &[Look], seconds: f64) -> Option<f64> {
    if seconds < LOAD_S_MIN {
        return None;
    }
    let end = looks.last()?.seconds;
    // The greatest share begins or ends at a look.
    let begins = looks.iter().map(|look| look.seconds);
    let begins = begins.chain(looks.iter().map(|look| look.seconds - seconds));
    let shares = begins.filter(|begin| *begin >= looks[0].seconds && begin + seconds <= end + 1e-9);
    shares
        .map(|begin| (used_until(looks, begin + seconds) - used_until(looks, begin)) / seconds / 1e4)
        .max_by(f64::total_cmp)
}

/// The processor time until a moment, as if it grew evenly between two looks.
fn used_until(looks: &[Look], seconds: f64) -> f64 {
    let after = looks.partition_point(|look| look.seconds < seconds);
    match (after.checked_sub(1).map(|at| looks[at]), looks.get(after)) {
        (Some(before), Some(after)) => {
            let part = (seconds - before.seconds) / (after.seconds - before.seconds);
            before.cpu_us + part * (after.cpu_us - before.cpu_us)
        }
        (Some(look), None) => look.cpu_us,
        (None, look) => look.map_or(0.0, |look| look.cpu_us),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A look every 20 ms: idle for 0.1 s, then at 60 %, then idle again.
    fn looks(busy_s: f64, idle_s: f64) -> Vec<Look> {
        let used = |at: f64| (at - 0.1).clamp(0.0, busy_s) * 0.6e6;
        let count = ((0.1 + busy_s + idle_s) / 0.02).round() as usize;
        (0..=count).map(|n| n as f64 * 0.02).map(|seconds| Look { seconds, cpu_us: used(seconds) }).collect()
    }

    #[test]
    fn the_share_of_a_cpu_is_that_of_the_load_wherever_it_lay() {
        for idle_s in [0.0, 0.5, 3.0] {
            let percent = busiest_percent(&looks(0.5, idle_s), 0.5).unwrap();
            assert!((percent - 60.0).abs() < 0.5, "{percent} with {idle_s} s behind it");
        }
        assert_eq!(busiest_percent(&looks(0.1, 1.0), 0.1), None);
        assert_eq!(busiest_percent(&looks(0.5, 0.0), 5.0), None);
    }

    #[test]
    fn processor_time_of_threads_is_summed() {
        if thread_times(std::process::id()).is_empty() {
            // A kernel without CONFIG_SCHED_INFO: ticks are all there is.
            return;
        }
        let mut watch = Watch::start(std::process::id());
        let began = Instant::now();
        let (mut n, mut end) = (0u64, began);
        while (end - began).as_secs_f64() < 0.05 {
            n = std::hint::black_box(n.wrapping_mul(31) + 1);
            end = Instant::now();
        }
        std::thread::sleep(std::time::Duration::from_millis(1));
        watch.look();
        let used = watch.looks.last().unwrap().cpu_us;
        assert!(used > 5_000.0, "{used}");
    }
}
