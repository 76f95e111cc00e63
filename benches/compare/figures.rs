//! The samples of one workload, and what they say about its bounds.

use crate::metric::Metric;
use crate::samples::{Samples, median};
use crate::workload::{Against, Bound, Limit, Subject, Workload};

/// All samples of one quantity: one per run.
#[derive(Debug)]
pub(crate) struct Series {
    pub(crate) case: &'static str,
    pub(crate) subject: Subject,
    pub(crate) metric: Metric,
    pub(crate) samples: Samples,
}

/// Every series of a workload, in the order in which they were first measured. No series is empty.
#[derive(Debug, Default)]
pub(crate) struct Figures {
    pub(crate) series: Vec<Series>,
}

impl Figures {
    /// Adds one sample.
    pub(crate) fn add(&mut self, case: &'static str, subject: Subject, metric: Metric, sample: f64) {
        match self.series.iter_mut().find(|one| one.is(case, subject, metric)) {
            Some(series) => series.samples.push(sample),
            None => self.series.push(Series { case, subject, metric, samples: Samples::new(sample) }),
        }
    }

    pub(crate) fn find(&self, case: &str, subject: Subject, metric: Metric) -> Option<&Series> {
        self.series.iter().find(|one| one.is(case, subject, metric))
    }

    /// The cases in the order of measurement.
    pub(crate) fn cases(&self) -> Vec<&'static str> {
        let mut cases = Vec::new();
        for series in &self.series {
            if !cases.contains(&series.case) {
                cases.push(series.case);
            }
        }
        cases
    }

    /// The servers that were measured in a case, in the order of measurement.
    pub(crate) fn subjects(&self, case: &str) -> Vec<Subject> {
        let mut subjects = Vec::new();
        for series in self.series.iter().filter(|series| series.case == case) {
            if !subjects.contains(&series.subject) {
                subjects.push(series.subject);
            }
        }
        subjects
    }

    /// The ratio to Redis in the same case, where both were measured.
    pub(crate) fn ratio_to_redis(&self, case: &str, subject: Subject, metric: Metric) -> Option<f64> {
        neighbouring_ratio(
            &self.find(case, subject, metric)?.samples,
            &self.find(case, Subject::Redis, metric)?.samples,
        )
    }
}

impl Series {
    fn is(&self, case: &str, subject: Subject, metric: Metric) -> bool {
        self.case == case && self.subject == subject && self.metric == metric
    }
}

/// What became of one bound in one case.
#[derive(Debug)]
pub(crate) struct Verdict {
    /// The requirement and the figure, as a sentence.
    pub(crate) text: String,
    /// `None`: not judged, because something it needs was not measured, or the input was tiny.
    pub(crate) holds: Option<bool>,
}

/// Everything that is known about a workload after it ran.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) workload: &'static Workload,
    pub(crate) figures: Figures,
    pub(crate) verdicts: Vec<Verdict>,
    /// Servers that did not take part, and why.
    pub(crate) skipped: Vec<String>,
    /// Measurements that went wrong, and how.
    pub(crate) failures: Vec<String>,
    /// The commands that were run, each once.
    pub(crate) commands: Vec<String>,
}

impl Outcome {
    pub(crate) fn new(workload: &'static Workload) -> Self {
        Self {
            workload,
            figures: Figures::default(),
            verdicts: Vec::new(),
            skipped: Vec::new(),
            failures: Vec::new(),
            commands: Vec::new(),
        }
    }

    /// Holds the figures against the workload's bounds. With `judge` false every verdict stays open.
    pub(crate) fn judge(&mut self, judge: bool) {
        let cases = self.figures.cases();
        for bound in self.workload.bounds {
            let about: Vec<&str> = bound.case.map_or_else(|| cases.clone(), |case| vec![case]);
            for case in about {
                self.verdicts.push(weigh(&self.figures, bound, case, judge));
            }
        }
    }
}

fn weigh(figures: &Figures, bound: &Bound, case: &str, judge: bool) -> Verdict {
    let (sign, limit) = match bound.limit {
        Limit::AtMost(limit) => ('≤', limit),
        Limit::AtLeast(limit) => ('≥', limit),
    };
    let times = match bound.against {
        Against::Nothing => String::new(),
        Against::Server(other) => format!(" × {}", other.name()),
        Against::Case(other) => format!(" × {other}"),
    };
    let requirement =
        format!("{case}, {}: {} {sign} {limit}{times}", bound.subject.name(), bound.metric.words());
    let Some(figure) = figure(figures, bound, case) else {
        return Verdict { text: format!("{requirement}: not measured"), holds: None };
    };
    let holds = match bound.limit {
        Limit::AtMost(limit) => figure <= limit,
        Limit::AtLeast(limit) => figure >= limit,
    };
    let shown = match bound.against {
        Against::Nothing => bound.metric.show(figure),
        Against::Server(_) | Against::Case(_) => format!("{figure:.2}"),
    };
    Verdict { text: format!("{requirement}: {shown}"), holds: judge.then_some(holds) }
}

/// The figure that meets the limit; `None` when a part of it was not measured.
fn figure(figures: &Figures, bound: &Bound, case: &str) -> Option<f64> {
    let own = figures.find(case, bound.subject, bound.metric)?;
    match bound.against {
        Against::Nothing => Some(own.samples.median()),
        Against::Server(other) => {
            neighbouring_ratio(&own.samples, &figures.find(case, other, bound.metric)?.samples)
        }
        Against::Case(other) => {
            neighbouring_ratio(&own.samples, &figures.find(other, bound.subject, bound.metric)?.samples)
        }
    }
}

/// The median of the ratios of runs that followed each other, so that a machine that gets slower or faster over the
/// minutes does not count; the ratio of the medians where a run is missing. `None` where `base` has a 0.
fn neighbouring_ratio(own: &Samples, base: &Samples) -> Option<f64> {
    if base.figures().contains(&0.0) {
        return None;
    }
    if own.runs() != base.runs() {
        return own.ratio(base);
    }
    Some(median(own.figures().iter().zip(base.figures()).map(|(own, base)| own / base).collect()))
}
