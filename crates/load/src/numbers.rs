//! Random numbers: which key, which size, which command.

use std::ops::RangeInclusive;

/// A generator of random numbers that is small and fast (SplitMix64, by Steele, Lea and Flood).
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// The sequence of a seed.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// 64 random bits.
    #[inline]
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Below `end`, which is not 0.
    #[inline]
    pub fn below(&mut self, end: u64) -> u64 {
        ((u128::from(self.bits()) * u128::from(end)) >> 64) as u64
    }

    /// From 0 to 1, both excluded.
    #[inline]
    pub fn unit(&mut self) -> f64 {
        ((self.bits() >> 12) as f64 + 0.5) / (1_u64 << 52) as f64
    }

    /// With mean 0 and standard deviation 1 (Box and Muller).
    pub fn normal(&mut self) -> f64 {
        let radius = (-2.0 * self.unit().ln()).sqrt();
        radius * (std::f64::consts::TAU * self.unit()).cos()
    }
}

/// How keys are chosen from a range.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Keys {
    /// All alike.
    Uniform,
    /// The key of rank k as often as 1/k to this power: few keys get most requests. Key 0 is the most frequent.
    Zipf(f64),
    /// Around a key, with a standard deviation, both as parts of the range; what falls outside is drawn again.
    Gaussian {
        /// 0 to 1.
        mean: f64,
        /// Above 0.
        deviation: f64,
    },
    /// One after the other; from the start again after the last.
    Sequential,
}

/// Chooses keys.
#[derive(Clone, Debug)]
pub(crate) struct KeySource {
    keys: Keys,
    range: u64,
    zipf: Option<Zipf>,
    /// The next number of [`Keys::Sequential`].
    pub(crate) next: u64,
}

impl KeySource {
    /// Keys below `range`, which is not 0.
    pub(crate) fn new(keys: Keys, range: u64) -> Self {
        let zipf = match keys {
            Keys::Zipf(exponent) => Some(Zipf::new(range, exponent)),
            _ => None,
        };
        Self { keys, range, zipf, next: 0 }
    }

    #[inline]
    pub(crate) fn draw(&mut self, random: &mut Random) -> u64 {
        match (self.keys, &self.zipf) {
            (Keys::Sequential, _) => {
                let number = self.next % self.range;
                self.next += 1;
                number
            }
            (Keys::Gaussian { mean, deviation }, _) => self.gaussian(mean, deviation, random),
            (Keys::Zipf(_), Some(zipf)) => zipf.rank(random) - 1,
            _ => random.below(self.range),
        }
    }

    fn gaussian(&self, mean: f64, deviation: f64, random: &mut Random) -> u64 {
        let range = self.range as f64;
        loop {
            let number = (mean + deviation * random.normal()) * range;
            if (0.0..range).contains(&number) {
                return number as u64;
            }
        }
    }
}

/// Ranks by Zipf's law, in constant time and memory: rejection-inversion, by Hörmann and Derflinger (1996).
#[derive(Clone, Debug)]
struct Zipf {
    exponent: f64,
    /// The integral of the density, from 1.5 back by 1 and at the last rank and a half.
    first: f64,
    last: f64,
    /// Below this distance from a rank a draw is taken without asking further.
    sure: f64,
    ranks: f64,
}

impl Zipf {
    fn new(ranks: u64, exponent: f64) -> Self {
        let mut zipf = Self { exponent, first: 0.0, last: 0.0, sure: 0.0, ranks: ranks as f64 };
        zipf.first = zipf.integral(1.5) - 1.0;
        zipf.last = zipf.integral(zipf.ranks + 0.5);
        zipf.sure = 2.0 - zipf.inverse(zipf.integral(2.5) - zipf.density(2.0));
        zipf
    }

    fn density(&self, x: f64) -> f64 {
        x.powf(-self.exponent)
    }

    /// Of the density, up to a constant.
    fn integral(&self, x: f64) -> f64 {
        let log = x.ln();
        let power = (1.0 - self.exponent) * log;
        // (e^p - 1) / p, which tends to 1.
        log * if power.abs() > 1e-8 { power.exp_m1() / power } else { 1.0 + power / 2.0 }
    }

    fn inverse(&self, y: f64) -> f64 {
        let power = (y * (1.0 - self.exponent)).max(-1.0);
        let log = if power.abs() > 1e-8 { power.ln_1p() / power } else { 1.0 - power / 2.0 };
        (log * y).exp()
    }

    /// From 1 on.
    fn rank(&self, random: &mut Random) -> u64 {
        loop {
            let y = self.last + random.unit() * (self.first - self.last);
            let x = self.inverse(y);
            let rank = (x + 0.5).floor().clamp(1.0, self.ranks);
            if rank - x <= self.sure || y >= self.integral(rank + 0.5) - self.density(rank) {
                return rank as u64;
            }
        }
    }
}

/// How many bytes values have.
#[derive(Clone, Debug, PartialEq)]
pub enum Sizes {
    /// Always so many.
    Fixed(usize),
    /// All of a range alike.
    Uniform(RangeInclusive<usize>),
    /// Around a mean, with a standard deviation; at least 1, and at most the mean and four deviations.
    Gaussian(f64, f64),
    /// Sizes by weights.
    Weighted(Vec<(usize, u32)>),
}

impl Sizes {
    /// The largest possible.
    #[must_use]
    pub fn max(&self) -> usize {
        match self {
            Self::Fixed(size) => *size,
            Self::Uniform(range) => *range.end(),
            Self::Gaussian(mean, deviation) => (mean + 4.0 * deviation) as usize,
            Self::Weighted(sizes) => sizes.iter().map(|(size, _)| *size).max().unwrap_or(0),
        }
    }

    pub(crate) fn draw(&self, random: &mut Random) -> usize {
        match self {
            Self::Fixed(size) => *size,
            Self::Uniform(range) => {
                range.start() + random.below((range.end() - range.start() + 1) as u64) as usize
            }
            Self::Gaussian(mean, deviation) => {
                let size = mean + deviation * random.normal();
                size.clamp(1.0, mean + 4.0 * deviation) as usize
            }
            Self::Weighted(sizes) => pick(sizes, random).copied().unwrap_or(0),
        }
    }
}

/// One of them, by weight; `None` if there is no weight at all.
pub(crate) fn pick<'a, T>(weighted: &'a [(T, u32)], random: &mut Random) -> Option<&'a T> {
    let total: u64 = weighted.iter().map(|(_, weight)| u64::from(*weight)).sum();
    let mut at = random.below(total.max(1));
    weighted.iter().find_map(|(one, weight)| {
        let hit = at < u64::from(*weight);
        at = at.saturating_sub(u64::from(*weight));
        hit.then_some(one)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const DRAWS: usize = 200_000;

    fn counts(keys: Keys, range: u64) -> Vec<usize> {
        let mut random = Random::new(7);
        let mut source = KeySource::new(keys, range);
        let mut counts = vec![0; range as usize];
        (0..DRAWS).for_each(|_| counts[source.draw(&mut random) as usize] += 1);
        counts
    }

    /// Whether a count is what a probability promises, within five standard deviations.
    fn fits(count: usize, probability: f64) -> bool {
        let expected = probability * DRAWS as f64;
        (count as f64 - expected).abs() <= 5.0 * expected.sqrt() + 1.0
    }

    #[test]
    fn uniform_and_sequential_keys_cover_the_range() {
        assert!(counts(Keys::Uniform, 100).iter().all(|count| fits(*count, 0.01)));
        assert_eq!(counts(Keys::Sequential, 100), vec![DRAWS / 100; 100]);
    }

    #[test]
    fn zipf_is_as_its_law_says() {
        for exponent in [0.5, 0.99, 1.0, 1.4] {
            let sum: f64 = (1..=50).map(|rank| f64::from(rank).powf(-exponent)).sum();
            for (rank, count) in counts(Keys::Zipf(exponent), 50).into_iter().enumerate() {
                let probability = (rank as f64 + 1.0).powf(-exponent) / sum;
                assert!(fits(count, probability), "exponent {exponent}, rank {rank}: {count}");
            }
        }
        assert_eq!(counts(Keys::Zipf(0.99), 1), [DRAWS]);
    }

    #[test]
    fn gaussian_keys_lie_around_their_mean() {
        let counts = counts(Keys::Gaussian { mean: 0.5, deviation: 0.1 }, 100);
        let within: usize = counts[40..60].iter().sum();
        assert!(fits(within, 0.6827), "{within} within one deviation");
        assert!(counts[0] < 10 && counts[99] < 10);
    }

    #[test]
    fn sizes_are_as_asked_for() {
        let mut random = Random::new(3);
        let mut mean = |sizes: &Sizes| {
            let drawn: Vec<usize> = (0..DRAWS).map(|_| sizes.draw(&mut random)).collect();
            assert!(drawn.iter().all(|size| *size <= sizes.max()), "{sizes:?}");
            drawn.iter().sum::<usize>() as f64 / DRAWS as f64
        };
        assert_eq!(mean(&Sizes::Fixed(12)), 12.0);
        assert!((mean(&Sizes::Uniform(10..=30)) - 20.0).abs() < 0.1);
        assert!((mean(&Sizes::Gaussian(500.0, 50.0)) - 499.5).abs() < 1.0);
        assert!((mean(&Sizes::Weighted(vec![(100, 9), (1000, 1)])) - 190.0).abs() < 5.0);
    }
}
