//! What the samples of a recording say: figures by case and load, and whether two of them differ.

use super::recording::{Recording, Sample};
use super::samples::Samples;

/// One measured quantity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Metric {
    Throughput,
    Avg,
    Min,
    P50,
    P95,
    P99,
    Max,
    /// Of the server, in percent of one CPU.
    Cpu,
    /// Of the server, in microseconds per request.
    CpuPerRequest,
    Resident,
    Threads,
    /// Of the load generator, in percent of one CPU.
    ClientCpu,
}

impl Metric {
    /// What is said of every load of the seeds.
    pub(super) const LOAD: [Self; 7] =
        [Self::Throughput, Self::Avg, Self::Min, Self::P50, Self::P95, Self::P99, Self::Max];
    /// All.
    pub(super) const ALL: [Self; 12] = [
        Self::Throughput,
        Self::Avg,
        Self::Min,
        Self::P50,
        Self::P95,
        Self::P99,
        Self::Max,
        Self::Cpu,
        Self::CpuPerRequest,
        Self::Resident,
        Self::Threads,
        Self::ClientCpu,
    ];

    /// The head of a column.
    pub(super) const fn title(self) -> &'static str {
        match self {
            Self::Throughput => "requests/s",
            Self::Avg => "avg (ms)",
            Self::Min => "min (ms)",
            Self::P50 => "p50 (ms)",
            Self::P95 => "p95 (ms)",
            Self::P99 => "p99 (ms)",
            Self::Max => "max (ms)",
            Self::Cpu => "CPU (%)",
            Self::CpuPerRequest => "CPU (µs/request)",
            Self::Resident => "memory (MB)",
            Self::Threads => "threads",
            Self::ClientCpu => "client CPU (%)",
        }
    }

    /// The name in JSON, its unit last.
    pub(super) const fn key(self) -> &'static str {
        match self {
            Self::Throughput => "requests_per_second",
            Self::Avg => "avg_ms",
            Self::Min => "min_ms",
            Self::P50 => "p50_ms",
            Self::P95 => "p95_ms",
            Self::P99 => "p99_ms",
            Self::Max => "max_ms",
            Self::Cpu => "server_cpu_percent",
            Self::CpuPerRequest => "server_cpu_us_per_request",
            Self::Resident => "server_resident_mb",
            Self::Threads => "server_threads",
            Self::ClientCpu => "client_cpu_percent",
        }
    }

    fn of(self, sample: &Sample) -> Option<f64> {
        let (test, latency) = (&sample.test, &sample.test.latency_ms);
        let is_latency =
            matches!(self, Self::Avg | Self::Min | Self::P50 | Self::P95 | Self::P99 | Self::Max);
        // A run that was written down by somebody may lack what nothing takes no time for.
        if is_latency && latency.max == 0.0 || self == Self::ClientCpu && test.client_cpu_seconds == 0.0 {
            return None;
        }
        Some(match self {
            Self::Throughput => test.requests_per_second,
            Self::Avg => latency.avg,
            Self::Min => latency.min,
            Self::P50 => latency.p50,
            Self::P95 => latency.p95,
            Self::P99 => latency.p99,
            Self::Max => latency.max,
            Self::Cpu => sample.usage?.cpu_percent?,
            Self::CpuPerRequest => sample.usage?.cpu_us_per_request?,
            Self::Resident => sample.usage?.resident_bytes / 1e6,
            Self::Threads => sample.usage?.threads as f64,
            Self::ClientCpu => test.client_cpu_seconds / test.seconds.max(1e-9) * 100.0,
        })
    }

    /// A value of it with the digits that mean something.
    pub(super) fn show(self, value: f64) -> String {
        match self {
            Self::Throughput => grouped(value),
            Self::Avg | Self::Min | Self::P50 | Self::P95 | Self::P99 | Self::Max => format!("{value:.3}"),
            Self::Cpu | Self::Resident | Self::ClientCpu => format!("{value:.1}"),
            Self::CpuPerRequest => format!("{value:.2}"),
            Self::Threads => format!("{value:.0}"),
        }
    }
}

/// A whole number in groups of three digits.
pub(super) fn grouped(value: f64) -> String {
    let digits = format!("{value:.0}");
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) && !text.ends_with('-') {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

impl Recording {
    /// A quantity of one case under one load, a figure per run; of several servers that were loaded together, their mean.
    /// `None` where it was not measured.
    pub(super) fn series(&self, case: &str, load: &str, metric: Metric) -> Option<Samples> {
        self.per_run(case, load, |samples| mean(samples, metric))
    }

    /// The same summed over the servers that were loaded together.
    pub(super) fn summed(&self, case: &str, load: &str, metric: Metric) -> Option<Samples> {
        self.per_run(case, load, |samples| Some(mean(samples, metric)? * samples.len() as f64))
    }

    fn per_run(&self, case: &str, load: &str, figure: impl Fn(&[&Sample]) -> Option<f64>) -> Option<Samples> {
        let mut all: Option<Samples> = None;
        for run in 1..=self.runs() {
            let of_run =
                self.samples.iter().filter(|one| one.case == case && one.load == load && one.run == run);
            let of_run: Vec<&Sample> = of_run.collect();
            if of_run.is_empty() {
                continue;
            }
            let figure = figure(&of_run)?;
            match &mut all {
                Some(all) => all.push(figure),
                None => all = Some(Samples::new(figure)),
            }
        }
        all
    }

    /// The spread of the throughput in percent, shown, or a dash where one run has none.
    pub(super) fn spread_cell(&self, case: &str, load: &str) -> String {
        let rate = self.series(case, load, Metric::Throughput).filter(|rate| rate.runs() > 1);
        rate.map_or_else(|| "–".to_owned(), |rate| format!("{:.1}", rate.spread_percent()))
    }

    /// The median of a quantity, shown, or a dash.
    pub(super) fn cell(&self, case: &str, load: &str, metric: Metric) -> String {
        self.series(case, load, metric).map_or_else(|| "–".to_owned(), |all| metric.show(all.median()))
    }
}

fn mean(samples: &[&Sample], metric: Metric) -> Option<f64> {
    let figures: Option<Vec<f64>> = samples.iter().map(|sample| metric.of(sample)).collect();
    Some(figures?.iter().sum::<f64>() / samples.len() as f64)
}

/// How one series stands to another one.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Comparison {
    pub(super) ratio: f64,
    pub(super) finding: Finding,
}

/// What may be said about a ratio.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Finding {
    /// The medians are further apart than the runs of each.
    Differs,
    /// They are not.
    Same,
    /// A single run has no spread.
    SingleRun,
}

impl Comparison {
    /// The median of `own` over that of `base`; `None` where there is nothing to divide by.
    ///
    /// The spread of a series is half the distance between its extremes. Where the medians are no further apart than both
    /// spreads together, the runs show no difference.
    pub(super) fn of(own: &Samples, base: &Samples) -> Option<Self> {
        let ratio = own.ratio(base)?;
        let spread = |series: &Samples| (series.max() - series.min()) / 2.0;
        let distance = (own.median() - base.median()).abs();
        let finding = if own.runs() < 2 || base.runs() < 2 {
            Finding::SingleRun
        } else if distance <= spread(own) + spread(base) {
            Finding::Same
        } else {
            Finding::Differs
        };
        Some(Self { ratio, finding })
    }

    /// As `2.31 ×`, or as no difference.
    pub(super) fn show(self) -> String {
        match self.finding {
            Finding::Differs => format!("{:.2} ×", self.ratio),
            Finding::Same => format!("no difference ({:.2} ×)", self.ratio),
            Finding::SingleRun => format!("{:.2} × (one run)", self.ratio),
        }
    }

    /// As `+54 %` or `−43 %`, or as no difference.
    pub(super) fn percent(self) -> String {
        let percent = (self.ratio - 1.0) * 100.0;
        let signed = format!("{}{:.1} %", if percent < 0.0 { '−' } else { '+' }, percent.abs());
        match self.finding {
            Finding::Differs => signed,
            Finding::Same => format!("no difference ({signed})"),
            Finding::SingleRun => format!("{signed} (one run)"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn samples(figures: &[f64]) -> Samples {
        let mut all = Samples::new(figures[0]);
        figures[1..].iter().for_each(|figure| all.push(*figure));
        all
    }

    #[test]
    fn a_difference_within_the_spread_is_none() {
        for (own, base, shown) in [
            (&[200.0, 210.0, 205.0][..], &[100.0, 105.0, 102.0][..], "2.01 ×"),
            (&[100.0, 110.0, 105.0], &[102.0, 106.0, 104.0], "no difference (1.01 ×)"),
            (&[110.0, 110.0], &[100.0, 120.0], "no difference (1.00 ×)"),
            // The run by run ratios are 2, 3 and 0.5: whoever sees medians of 2 and 1 reckons 2.
            (&[2.0, 3.0, 1.0], &[1.0, 1.0, 2.0], "no difference (2.00 ×)"),
            (&[110.0, 110.0], &[100.0, 100.0], "1.10 ×"),
            (&[150.0], &[100.0], "1.50 × (one run)"),
        ] {
            assert_eq!(
                Comparison::of(&samples(own), &samples(base)).unwrap().show(),
                shown,
                "{own:?} {base:?}"
            );
        }
        assert_eq!(Comparison::of(&samples(&[1.0]), &samples(&[0.0])), None);
        let less = Comparison::of(&samples(&[57.0, 57.0]), &samples(&[100.0, 100.0])).unwrap();
        assert_eq!(less.percent(), "−43.0 %");
    }

    #[test]
    fn digits_are_grouped() {
        assert_eq!(
            [0.4, 999.6, 178_521.29, 12.0, 1e6].map(grouped),
            ["0", "1,000", "178,521", "12", "1,000,000"]
        );
    }
}
