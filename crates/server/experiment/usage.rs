//! What a server uses while it is loaded: processor time, memory, threads.

use std::time::Instant;

use serde::{Deserialize, Serialize};

use super::drift::threads_of;
use super::process::{cpu_us, peak_bytes, resident_bytes};

/// What a server used during one load.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Usage {
    /// Of one CPU; more than 100 for several threads.
    pub(super) cpu_percent: f64,
    pub(super) cpu_us_per_request: f64,
    /// At the end of the load.
    pub(super) resident_bytes: f64,
    pub(super) peak_bytes: f64,
    pub(super) threads: usize,
}

/// A process that is looked at again and again.
#[derive(Debug)]
pub(super) struct Watch {
    pid: u32,
    /// When, and the processor time so far in µs.
    looks: Vec<(Instant, f64)>,
    resident_bytes: f64,
    peak_bytes: f64,
    threads: usize,
}

impl Watch {
    pub(super) fn start(pid: u32) -> Self {
        let mut watch = Self { pid, looks: Vec::new(), resident_bytes: 0.0, peak_bytes: 0.0, threads: 0 };
        watch.look();
        watch
    }

    /// Notes how it stands; nothing if the process is gone.
    pub(super) fn look(&mut self) {
        let now = Instant::now();
        if let (Ok(cpu), Ok(resident), Ok(peak)) =
            (cpu_us(self.pid), resident_bytes(self.pid), peak_bytes(self.pid))
        {
            self.looks.push((now, cpu));
            (self.resident_bytes, self.peak_bytes) = (resident, peak);
            self.threads = threads_of(self.pid).len();
        }
    }

    /// What was used in the last `seconds`, in which there were so many requests.
    pub(super) fn usage(self, seconds: f64, requests: u64) -> Option<Usage> {
        let (&(first, cpu_first), &(last, cpu_last)) = (self.looks.first()?, self.looks.last()?);
        // The load generator connects, loads and ends: what is before the load is not the load.
        let from = self.looks.iter().find(|(at, _)| (last - *at).as_secs_f64() <= seconds);
        let &(start, cpu_start) = from.filter(|(at, _)| *at < last).unwrap_or(&(first, cpu_first));
        let elapsed = (last - start).as_secs_f64();
        if elapsed <= 0.0 {
            return None;
        }
        Some(Usage {
            cpu_percent: (cpu_last - cpu_start) / elapsed / 1e4,
            cpu_us_per_request: (cpu_last - cpu_first) / requests.max(1) as f64,
            resident_bytes: self.resident_bytes,
            peak_bytes: self.peak_bytes,
            threads: self.threads,
        })
    }
}
