//! What a shard does per second, as INFO's `instantaneous_` fields tell it: differences of counters about a second apart.

use crate::keyspace::Millis;
use crate::stats::ShardStats;

/// Shorter distances between two looks would make noise of few events.
const DISTANCE_MS_MIN: Millis = 500;

/// What went on per second between the last two looks.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Rates {
    /// Commands.
    pub commands: f64,
    /// Bytes received.
    pub bytes_in: f64,
    /// Bytes sent.
    pub bytes_out: f64,
    /// Turns of the shard loop.
    pub turns: f64,
    /// Microseconds spent in turns.
    pub turn_us: f64,
}

/// Counters at one look.
type Counters = [u64; 5];

/// Looks at a shard's counters from time to time.
#[derive(Clone, Debug, Default)]
pub struct Sampler {
    at: Millis,
    seen: Counters,
    /// Between the last two looks.
    pub rates: Rates,
}

fn counters(stats: &ShardStats) -> Counters {
    [stats.commands, stats.bytes_in, stats.bytes_out, stats.turns, stats.turn_us.sum_us()]
}

impl Sampler {
    /// Looks, if the last look is long enough ago. Counters that were reset meanwhile count as if they had stood still.
    pub(crate) fn look(&mut self, stats: &ShardStats, now: Millis) {
        let passed_ms = now.saturating_sub(self.at);
        if passed_ms < DISTANCE_MS_MIN {
            return;
        }
        let current = counters(stats);
        if self.at != 0 {
            let rate =
                |idx: usize| current[idx].saturating_sub(self.seen[idx]) as f64 * 1000.0 / passed_ms as f64;
            self.rates = Rates {
                commands: rate(0),
                bytes_in: rate(1),
                bytes_out: rate(2),
                turns: rate(3),
                turn_us: rate(4),
            };
        }
        (self.at, self.seen) = (now, current);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_differences_over_time() {
        let (mut sampler, mut stats) =
            (Sampler::default(), ShardStats { commands: 7, ..ShardStats::default() });
        sampler.look(&stats, 10_000);
        assert_eq!(sampler.rates, Rates::default(), "one look is no rate");
        stats.commands += 300;
        stats.bytes_in += 1000;
        sampler.look(&stats, 10_100);
        assert_eq!(sampler.rates, Rates::default(), "too soon");
        sampler.look(&stats, 12_000);
        assert_eq!((sampler.rates.commands, sampler.rates.bytes_in), (150.0, 500.0));
        stats = ShardStats::default();
        sampler.look(&stats, 13_000);
        assert_eq!(sampler.rates, Rates::default(), "reset");
    }
}
