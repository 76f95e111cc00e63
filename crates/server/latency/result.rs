//! What a measurement found: figures and a histogram for each thread, server or computation that was measured, as it is printed,
//! drawn and saved.

use std::time::{SystemTime, UNIX_EPOCH};

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

use crate::machine::Machine;

/// What was measured.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Kind {
    /// How late threads woke up.
    #[default]
    WakeUps,
    /// How long a server took to answer PING.
    RoundTrips,
    /// How long a thread that never waits was kept from running.
    Intrinsic,
}

impl Kind {
    /// All, in the order of reports.
    pub(super) const ALL: [Self; 3] = [Self::WakeUps, Self::RoundTrips, Self::Intrinsic];

    /// Over a picture or a table.
    pub(super) const fn title(self) -> &'static str {
        match self {
            Self::WakeUps => "How late threads woke up",
            Self::RoundTrips => "Round trips of PING",
            Self::Intrinsic => "How long one computation took",
        }
    }

    /// What is counted.
    pub(super) const fn counted(self) -> &'static str {
        match self {
            Self::WakeUps => "wake-ups",
            Self::RoundTrips => "round trips",
            Self::Intrinsic => "computations",
        }
    }
}

/// One measurement.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Run {
    pub(super) machine: Machine,
    #[serde(default)]
    pub(super) kind: Kind,
    /// What whoever ran it calls the machine.
    #[serde(default)]
    pub(super) label: Option<String>,
    /// Seconds of Unix time at the start.
    pub(super) started: u64,
    /// 0 where there is none.
    pub(super) interval_us: u64,
    pub(super) policy: String,
    /// As /proc/loadavg says at the start.
    pub(super) load: String,
    pub(super) threads: Vec<Thread>,
}

/// One thread's share of it. Times in microseconds.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Thread {
    pub(super) id: i32,
    /// What it measured, where that is not the thread itself: a server.
    #[serde(default)]
    pub(super) name: Option<String>,
    /// The CPU to which it was bound.
    pub(super) cpu: Option<usize>,
    pub(super) priority: i32,
    pub(super) wakeups: u64,
    pub(super) min: f64,
    pub(super) last: f64,
    pub(super) avg: f64,
    pub(super) max: f64,
    pub(super) p50: f64,
    pub(super) p99: f64,
    pub(super) p999: f64,
    /// How many had this whole number of microseconds; ascending.
    pub(super) counts: Vec<(u64, u64)>,
}

impl Thread {
    /// What it is called in a picture.
    pub(super) fn label(&self) -> String {
        match (&self.name, self.cpu) {
            (Some(name), _) => name.clone(),
            (None, Some(cpu)) => format!("cpu {cpu}"),
            (None, None) => "not bound".to_owned(),
        }
    }
}

/// Times as they come, in nanoseconds.
#[derive(Debug)]
pub(super) struct Times {
    /// Rounded to three digits.
    pub(super) all: Histogram<u64>,
    pub(super) exact: Exact,
}

/// What a histogram does not keep to the nanosecond.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Exact {
    /// 0 where there is none.
    pub(super) min: u64,
    pub(super) last: u64,
    pub(super) sum: u64,
    pub(super) max: u64,
}

/// The longest time that is told apart, in nanoseconds; one minute.
const TIME_MAX_NS: u64 = 60_000_000_000;

impl Times {
    pub(super) fn new() -> Self {
        let all = Histogram::new_with_bounds(1, TIME_MAX_NS, 3).expect("the bounds of a histogram");
        Self { all, exact: Exact::default() }
    }

    /// Adds one.
    pub(super) fn note(&mut self, ns: u64) {
        let exact = &mut self.exact;
        exact.min = if self.all.is_empty() { ns } else { exact.min.min(ns) };
        (exact.last, exact.sum, exact.max) = (ns, exact.sum + ns, exact.max.max(ns));
        self.all.saturating_record(ns);
    }

    /// The figures of the calling thread. Percentiles are those of the histogram, but no greater than the maximum.
    pub(super) fn thread(&self, name: Option<String>, cpu: Option<usize>, priority: i32) -> Thread {
        let us = |ns: u64| ns as f64 / 1000.0;
        let at = |quantile| us(self.all.value_at_quantile(quantile).clamp(self.exact.min, self.exact.max));
        Thread {
            id: super::system::thread_id(),
            name,
            cpu,
            priority,
            wakeups: self.all.len(),
            min: us(self.exact.min),
            last: us(self.exact.last),
            avg: us(self.exact.sum) / self.all.len().max(1) as f64,
            max: us(self.exact.max),
            p50: at(0.5),
            p99: at(0.99),
            p999: at(0.999),
            counts: self.by_microseconds(),
        }
    }

    /// Counts by whole microseconds.
    fn by_microseconds(&self) -> Vec<(u64, u64)> {
        let mut counts: Vec<(u64, u64)> = Vec::new();
        for value in self.all.iter_recorded() {
            let us = value.value_iterated_to() / 1000;
            match counts.last_mut() {
                Some((last, count)) if *last == us => *count += value.count_at_value(),
                _ => counts.push((us, value.count_at_value())),
            }
        }
        counts
    }
}

impl Run {
    /// One of this machine, now, without figures.
    pub(super) fn new(kind: Kind, interval_us: u64, policy: &str) -> Self {
        Self {
            machine: Machine::here(),
            kind,
            label: None,
            started: SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs(),
            interval_us,
            policy: policy.to_owned(),
            load: std::fs::read_to_string("/proc/loadavg").unwrap_or_default().trim().to_owned(),
            threads: Vec::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_percentile_is_beyond_the_greatest_time() {
        let mut times = Times::new();
        // A histogram takes these two for the same, and for the greatest of their kind.
        times.note(1_000_001);
        times.note(1_000_002);
        let thread = times.thread(None, Some(3), 0);
        assert_eq!(
            (thread.min, thread.p50, thread.p999, thread.max),
            (1000.001, 1000.002, 1000.002, 1000.002)
        );
        assert_eq!((thread.wakeups, thread.last, thread.label()), (2, 1000.002, "cpu 3".to_owned()));
        assert_eq!(thread.counts, [(1000, 2)]);
        let nothing = Times::new().thread(Some("h:1".to_owned()), None, 0);
        assert_eq!(
            (nothing.min, nothing.p99, nothing.avg, nothing.label()),
            (0.0, 0.0, 0.0, "h:1".to_owned())
        );
    }
}
