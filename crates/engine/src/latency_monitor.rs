//! The latency monitor: events that took longer than `latency-monitor-threshold`, a series per kind.

use crate::settings::Observation;
use std::collections::VecDeque;

/// Samples that a series keeps.
const SAMPLES_MAX: usize = 160;

/// The worst that happened within one second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Sample {
    /// Unix seconds.
    pub(crate) at_s: u64,
    pub(crate) ms: u64,
}

/// The samples of one kind of event, oldest first.
#[derive(Clone, Debug)]
pub(crate) struct Series {
    pub(crate) event: &'static str,
    samples: VecDeque<Sample>,
    /// The longest since the series began.
    pub(crate) ms_max: u64,
    /// All together, and how many there were.
    pub(crate) ms_sum: u64,
    pub(crate) count: u64,
}

/// What LATENCY DOCTOR says of a series.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Analysis {
    pub(crate) samples: usize,
    pub(crate) ms_average: u64,
    /// The mean distance from the average.
    pub(crate) ms_deviation: u64,
    /// Seconds since the oldest sample.
    pub(crate) period_s: u64,
}

impl Series {
    pub(crate) fn samples(&self) -> impl Iterator<Item = Sample> {
        self.samples.iter().copied()
    }

    /// Adds what another shard noted of the same event.
    fn merge(&mut self, other: &Self) {
        self.ms_max = self.ms_max.max(other.ms_max);
        self.ms_sum += other.ms_sum;
        self.count += other.count;
        let mut both: Vec<Sample> = self.samples.iter().chain(&other.samples).copied().collect();
        both.sort_by_key(|sample| (sample.at_s, std::cmp::Reverse(sample.ms)));
        both.dedup_by_key(|sample| sample.at_s);
        let surplus = both.len().saturating_sub(SAMPLES_MAX);
        self.samples = both.into_iter().skip(surplus).collect();
    }

    pub(crate) fn latest(&self) -> Sample {
        self.samples.back().copied().unwrap_or_default()
    }

    pub(crate) fn analyse(&self, now_s: u64) -> Analysis {
        let count = self.samples.len() as u64;
        let Some(oldest) = self.samples.front() else { return Analysis::default() };
        let average = self.samples.iter().map(|sample| sample.ms).sum::<u64>() / count;
        let deviation = self.samples.iter().map(|sample| sample.ms.abs_diff(average)).sum::<u64>() / count;
        let period_s = now_s.saturating_sub(oldest.at_s).max(1);
        Analysis { samples: count as usize, ms_average: average, ms_deviation: deviation, period_s }
    }

    fn add(&mut self, ms: u64, at_s: u64) {
        self.ms_max = self.ms_max.max(ms);
        self.ms_sum += ms;
        self.count += 1;
        match self.samples.back_mut() {
            Some(last) if last.at_s == at_s => last.ms = last.ms.max(ms),
            _ => {
                if self.samples.len() == SAMPLES_MAX {
                    self.samples.pop_front();
                }
                self.samples.push_back(Sample { at_s, ms });
            }
        }
    }
}

/// What a shard knows of latency when it is asked.
#[derive(Clone, Debug)]
pub struct LatencyPart {
    pub(crate) monitor: LatencyMonitor,
    pub(crate) settings: Observation,
    /// Unix seconds.
    pub(crate) now_s: u64,
}

/// All series, in the order in which they began.
#[derive(Clone, Debug, Default)]
pub(crate) struct LatencyMonitor {
    series: Vec<Series>,
}

impl LatencyMonitor {
    pub(crate) fn add(&mut self, event: &'static str, ms: u64, at_s: u64) {
        let idx = self.series.iter().position(|series| series.event == event).unwrap_or_else(|| {
            let samples = VecDeque::new();
            self.series.push(Series { event, samples, ms_max: 0, ms_sum: 0, count: 0 });
            self.series.len() - 1
        });
        self.series[idx].add(ms, at_s);
    }

    /// The events of several shards as one.
    pub(crate) fn merged<'a>(shards: impl IntoIterator<Item = &'a Self>) -> Self {
        let mut merged = Self::default();
        for series in shards.into_iter().flat_map(|shard| &shard.series) {
            match merged.series.iter_mut().find(|known| known.event == series.event) {
                Some(known) => known.merge(series),
                None => merged.series.push(series.clone()),
            }
        }
        merged
    }

    pub(crate) fn all(&self) -> &[Series] {
        &self.series
    }

    /// A series by its name, in the letters in which it is written.
    pub(crate) fn find(&self, event: &[u8]) -> Option<&Series> {
        self.series.iter().find(|series| series.event.as_bytes() == event)
    }

    /// Keeps the series that `keep` says yes to.
    pub(crate) fn retain(&mut self, keep: impl Fn(&str) -> bool) {
        self.series.retain(|series| keep(series.event));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_has_one_sample_the_worst() {
        let mut monitor = LatencyMonitor::default();
        for (ms, at_s) in [(5, 100), (9, 100), (7, 100), (3, 102)] {
            monitor.add("command", ms, at_s);
        }
        let series = monitor.find(b"command").expect("the series");
        let samples: Vec<Sample> = series.samples().collect();
        assert_eq!(samples, [Sample { at_s: 100, ms: 9 }, Sample { at_s: 102, ms: 3 }]);
        assert_eq!((series.ms_max, series.ms_sum, series.count), (9, 24, 4));
        let analysis = Analysis { samples: 2, ms_average: 6, ms_deviation: 3, period_s: 10 };
        assert_eq!(series.analyse(110), analysis);
        assert!(monitor.find(b"Command").is_none());
        monitor.retain(|event| event != "command");
        assert!(monitor.all().is_empty());
    }

    #[test]
    fn shards_are_told_as_one() {
        let mut shards = [LatencyMonitor::default(), LatencyMonitor::default()];
        for (shard, event, ms, at_s) in [
            (0, "command", 5, 100),
            (1, "command", 9, 100),
            (1, "command", 2, 99),
            (0, "command", 1, 101),
            (1, "expire-cycle", 4, 7),
        ] {
            shards[shard].add(event, ms, at_s);
        }
        let merged = LatencyMonitor::merged(&shards);
        let command = merged.find(b"command").expect("the series");
        let samples: Vec<(u64, u64)> = command.samples().map(|sample| (sample.at_s, sample.ms)).collect();
        assert_eq!(samples, [(99, 2), (100, 9), (101, 1)]);
        assert_eq!((command.ms_max, command.ms_sum, command.count), (9, 17, 4));
        assert_eq!(merged.all().len(), 2);
        for second in 0..2 * SAMPLES_MAX as u64 {
            shards[second as usize % 2].add("command", 1, 200 + second);
        }
        assert_eq!(LatencyMonitor::merged(&shards).all()[0].samples().count(), SAMPLES_MAX);
    }

    #[test]
    fn a_series_has_a_limit() {
        let mut monitor = LatencyMonitor::default();
        for second in 0..500 {
            monitor.add("command", 500 - second, second);
        }
        let series = &monitor.all()[0];
        assert_eq!(series.samples().count(), SAMPLES_MAX);
        assert_eq!(series.samples().next(), Some(Sample { at_s: 340, ms: 160 }));
        assert_eq!((series.ms_max, series.latest().ms), (500, 1));
    }
}
