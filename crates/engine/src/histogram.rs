//! How long commands took, in an HDR histogram (Gil Tene, 2012) of two significant digits, as Valkey keeps one per command.
//!
//! ```text
//!   nanoseconds   0 … 255      a bucket each
//!                 256 … 511    buckets of 2
//!                 512 … 1023   buckets of 4, and so on: 128 buckets per power of two
//! ```

/// Buckets of the first power of two that has them all, and of each that follows.
const HALF_BUCKETS: usize = 128;
/// Powers of two up to the longest duration: 2^30 ns.
const OCTAVES: usize = 23;
const BUCKETS: usize = (OCTAVES + 1) * HALF_BUCKETS;
/// Buckets that are one of a [`Coarse`] histogram.
const COARSE_STEP: usize = HALF_BUCKETS / 8;
/// Longer durations count as this one.
const NS_MAX: u64 = 1_000_000_000;

/// Counts durations up to 1 s, each to within 1/128. 24 KiB.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Histogram {
    counts: Box<[u64; BUCKETS]>,
}

impl Default for Histogram {
    fn default() -> Self {
        Self { counts: Box::new([0; BUCKETS]) }
    }
}

#[inline]
fn bucket_of(ns: u64) -> usize {
    let octave = (ns | 255).ilog2() as usize - 7;
    octave * HALF_BUCKETS + (ns >> octave) as usize
}

/// The longest duration of a bucket.
fn bucket_end_ns(bucket: usize) -> u64 {
    let octave = (bucket / HALF_BUCKETS).saturating_sub(1);
    let step = (bucket - octave * HALF_BUCKETS) as u64;
    ((step + 1) << octave) - 1
}

impl Histogram {
    /// Counts a duration.
    #[inline]
    pub fn record(&mut self, ns: u64) {
        self.record_often(ns, 1);
    }

    /// Counts a duration several times.
    #[inline]
    pub fn record_often(&mut self, ns: u64, times: u64) {
        self.counts[bucket_of(ns.min(NS_MAX))] += times;
    }

    /// Durations counted.
    pub fn total(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// Adds what another one has counted.
    pub fn add(&mut self, other: &Self) {
        for (count, more) in self.counts.iter_mut().zip(other.counts.iter()) {
            *count += more;
        }
    }

    /// The duration in nanoseconds that the given percentage of all did not exceed; 0 if nothing has been counted.
    pub fn percentile_ns(&self, percent: f64) -> u64 {
        let rank = ((percent / 100.0 * self.total() as f64 + 0.5) as u64).max(1);
        let mut seen = 0;
        for (bucket, count) in self.counts.iter().enumerate() {
            seen += count;
            if seen >= rank {
                return bucket_end_ns(bucket);
            }
        }
        0
    }

    /// The cumulative distribution as LATENCY HISTOGRAM shows it: microseconds and how many took no longer. Starts at
    /// 1024 ns and doubles; steps that add nothing are left out.
    pub fn cumulative_us(&self) -> Vec<(u64, u64)> {
        let (mut steps, mut seen, mut told) = (Vec::new(), 0, 0);
        let mut level_ns = 1024;
        for (bucket, count) in self.counts.iter().enumerate() {
            seen += count;
            // Valkey counts the bucket that begins at the level as well, and names the level by that bucket's end.
            if bucket == bucket_of(level_ns) || bucket == BUCKETS - 1 {
                if seen > told {
                    steps.push((bucket_end_ns(bucket) / 1000, seen));
                    told = seen;
                }
                level_ns *= 2;
            }
        }
        steps
    }
}

/// The same to within an eighth: small enough to be kept and sent around. 1.5 KiB.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Coarse {
    counts: Box<[u64; BUCKETS / COARSE_STEP]>,
}

impl Default for Coarse {
    fn default() -> Self {
        Self { counts: Box::new([0; BUCKETS / COARSE_STEP]) }
    }
}

impl From<&Histogram> for Coarse {
    fn from(fine: &Histogram) -> Self {
        let mut coarse = Self::default();
        for (count, fine) in coarse.counts.iter_mut().zip(fine.counts.chunks_exact(COARSE_STEP)) {
            *count = fine.iter().sum();
        }
        coarse
    }
}

impl Coarse {
    /// Durations counted.
    pub fn total(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// Adds what another one has counted.
    pub fn add(&mut self, other: &Self) {
        for (count, more) in self.counts.iter_mut().zip(other.counts.iter()) {
            *count += more;
        }
    }

    /// Of each bucket, the longest duration in nanoseconds, and how many there were. Powers of two, and so the first
    /// duration of a bucket, are told apart from what is shorter.
    pub fn buckets(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.counts
            .iter()
            .enumerate()
            .map(|(idx, count)| (bucket_end_ns((idx + 1) * COARSE_STEP - 1), *count))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn coarse_buckets_begin_at_powers_of_two() {
        let mut histogram = Histogram::default();
        for ns in [0, 15, 16, 127, 128, 1023, 1024, 1151, 1152, NS_MAX] {
            histogram.record(ns);
        }
        let mut coarse = Coarse::from(&histogram);
        coarse.add(&Coarse::from(&histogram));
        assert_eq!(coarse.total(), 20);
        let below =
            |ns: u64| -> u64 { coarse.buckets().filter(|(end, _)| *end < ns).map(|(_, count)| count).sum() };
        assert_eq!([16, 128, 1024, 1152, 2048, 1 << 30].map(below), [4, 8, 12, 16, 18, 20]);
        assert!(coarse.buckets().is_sorted());
    }

    #[test]
    fn buckets_follow_each_other_without_gaps() {
        for bucket in 0..BUCKETS - 1 {
            assert_eq!(bucket_of(bucket_end_ns(bucket)), bucket);
            assert_eq!(bucket_of(bucket_end_ns(bucket) + 1), bucket + 1);
        }
        assert!(bucket_of(NS_MAX) < BUCKETS);
    }

    #[test]
    fn percentiles_are_within_a_hundredth() {
        let mut histogram = Histogram::default();
        assert_eq!(histogram.percentile_ns(99.0), 0);
        for us in 1..=1000 {
            histogram.record(us * 1000);
        }
        for (percent, exact) in [(0.0, 1000), (50.0, 500_000), (99.0, 990_000), (100.0, 1_000_000)] {
            let got = histogram.percentile_ns(percent);
            assert!(got >= exact && got <= exact + exact / 100, "p{percent}: {got}");
        }
        let mut twice = histogram.clone();
        twice.add(&histogram);
        assert_eq!(twice.total(), 2000);
        assert_eq!(twice.percentile_ns(50.0), histogram.percentile_ns(50.0));
    }

    #[test]
    fn the_distribution_is_told_in_the_steps_of_valkey() {
        let mut histogram = Histogram::default();
        for us in [1, 1, 2, 3, 33, 34, 132, 1056, 20_000, 3_000_000] {
            histogram.record(us * 1000);
        }
        let expected =
            [(1, 2), (2, 3), (4, 4), (33, 5), (66, 6), (132, 7), (1056, 8), (33_816, 9), (1_073_741, 10)];
        assert_eq!(histogram.cumulative_us(), expected);
    }
}
