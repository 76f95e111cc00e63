//! The figures of several runs of one measurement: median, extremes, spread, ratios. The benches reckon with this file, too.

/// One figure per run, in the order of the runs; never empty.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Samples(Vec<f64>);

impl Samples {
    pub(crate) fn new(first: f64) -> Self {
        Self(vec![first])
    }

    pub(crate) fn push(&mut self, sample: f64) {
        self.0.push(sample);
    }

    /// The middle sample.
    pub(crate) fn median(&self) -> f64 {
        median(self.0.clone())
    }

    pub(crate) fn min(&self) -> f64 {
        self.0.iter().copied().fold(f64::INFINITY, f64::min)
    }

    pub(crate) fn max(&self) -> f64 {
        self.0.iter().copied().fold(f64::NEG_INFINITY, f64::max)
    }

    pub(crate) fn runs(&self) -> usize {
        self.figures().len()
    }

    /// All, in the order of the runs.
    pub(crate) fn figures(&self) -> &[f64] {
        &self.0
    }

    /// Half the distance between the extremes, in percent of the median; 0 for a median of 0.
    pub(crate) fn spread_percent(&self) -> f64 {
        let median = self.median();
        if median == 0.0 { 0.0 } else { (self.max() - self.min()) / 2.0 / median * 100.0 }
    }

    /// The median over that of another series, as whoever sees both reckons. `None` where that is 0.
    pub(crate) fn ratio(&self, base: &Self) -> Option<f64> {
        let base = base.median();
        (base != 0.0).then(|| self.median() / base)
    }
}

/// The middle value, or the mean of the two in the middle. There is at least one.
pub(crate) fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    if values.len() % 2 == 1 { values[middle] } else { (values[middle - 1] + values[middle]) / 2.0 }
}
