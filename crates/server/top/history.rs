//! What happened between two looks, and how that went over the last minutes.

use std::collections::VecDeque;

use super::look::{Look, ShardLook};

/// Looks that are remembered: as many as the widest terminal has columns for, and then some.
const LOOKS_MAX: usize = 600;

/// Per second between two looks.
#[derive(Clone, Debug, Default)]
pub(super) struct Rates {
    pub(super) commands: f64,
    /// Of what was read meanwhile, or ever if nothing was; `None` if nothing ever was.
    pub(super) hit_ratio: Option<f64>,
    pub(super) hits: f64,
    pub(super) misses: f64,
    pub(super) bytes_in: f64,
    pub(super) bytes_out: f64,
    pub(super) errors: f64,
    pub(super) expired: f64,
    /// Mean microseconds of a turn; `None` if there was none.
    pub(super) turn_us: Option<f64>,
    /// As [`Look::rows`].
    pub(super) rows: Vec<RowRates>,
}

/// Of one shard.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct RowRates {
    pub(super) commands: f64,
    pub(super) hops: f64,
    /// Of one CPU.
    pub(super) cpu_percent: Option<f64>,
}

/// The last look, what happened since the one before, and the curves.
#[derive(Debug, Default)]
pub(super) struct History {
    pub(super) last: Option<Look>,
    pub(super) rates: Rates,
    /// Commands per second.
    pub(super) commands: VecDeque<u64>,
    /// Mean turn times in nanoseconds.
    pub(super) turn_ns: VecDeque<u64>,
}

impl History {
    /// Takes a look in. A server that was started anew meanwhile, or whose counters were reset, has done nothing since.
    pub(super) fn add(&mut self, look: Look) {
        if let Some(before) = &self.last {
            self.rates = Rates::between(before, &look);
            // As they are shown: rounded.
            remember(&mut self.commands, self.rates.commands.round() as u64);
            remember(&mut self.turn_ns, (self.rates.turn_us.unwrap_or(0.0) * 1000.0).round() as u64);
        }
        self.last = Some(look);
    }
}

fn remember(curve: &mut VecDeque<u64>, value: u64) {
    if curve.len() == LOOKS_MAX {
        curve.pop_front();
    }
    curve.push_back(value);
}

fn ratio(part: u64, rest: u64) -> Option<f64> {
    let all = part + rest;
    (all > 0).then(|| part as f64 / all as f64)
}

impl Rates {
    fn between(before: &Look, now: &Look) -> Self {
        let seconds = (now.at - before.at).as_secs_f64().max(1e-6);
        let grown = |of: fn(&Look) -> u64| of(now).saturating_sub(of(before));
        let rate = |of: fn(&Look) -> u64| grown(of) as f64 / seconds;
        let (hits, misses) = (grown(|look| look.hits), grown(|look| look.misses));
        let turns = grown(|look| look.whole.turns);
        let turn_us = grown(|look| look.whole.turn_us_sum) as f64 / turns.max(1) as f64;
        Self {
            commands: rate(|look| look.whole.commands),
            hit_ratio: ratio(hits, misses).or_else(|| ratio(now.hits, now.misses)),
            hits: hits as f64 / seconds,
            misses: misses as f64 / seconds,
            bytes_in: rate(|look| look.bytes_in),
            bytes_out: rate(|look| look.bytes_out),
            errors: rate(|look| look.errors),
            expired: rate(|look| look.expired),
            turn_us: (turns > 0).then_some(turn_us),
            rows: now
                .rows()
                .iter()
                .enumerate()
                .map(|(idx, row)| {
                    before.rows().get(idx).map_or_else(RowRates::default, |old| row_rates(old, row, seconds))
                })
                .collect(),
        }
    }
}

fn row_rates(before: &ShardLook, now: &ShardLook, seconds: f64) -> RowRates {
    let rate = |before: u64, now: u64| now.saturating_sub(before) as f64 / seconds;
    RowRates {
        commands: rate(before.commands, now.commands),
        hops: rate(before.hops, now.hops),
        cpu_percent: before.cpu_us.zip(now.cpu_us).map(|(before, now)| rate(before, now) / 1e4),
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::super::look::example as look;
    use super::*;

    #[test]
    fn rates_are_differences_over_time() {
        let (start, mut history) = (Instant::now(), History::default());
        history.add(look(start, 1000));
        assert!(history.commands.is_empty() && history.rates.rows.is_empty());
        history.add(look(start + Duration::from_secs(2), 9000));
        let rates = &history.rates;
        assert_eq!((rates.commands, rates.turn_us, rates.bytes_in), (4000.0, Some(5.0), 120_000.0));
        assert_eq!(rates.hit_ratio, Some(2.0 / 3.0));
        assert_eq!(rates.rows[1], RowRates { commands: 3000.0, hops: 0.0, cpu_percent: Some(3.0) });
        let mut uneven = History::default();
        uneven.add(look(start, 0));
        uneven.add(look(start + Duration::from_secs(3), 2000));
        assert_eq!((uneven.rates.commands.round(), uneven.commands.back()), (667.0, Some(&667)));
        history.add(look(start + Duration::from_secs(3), 10));
        assert_eq!((history.rates.commands, history.rates.turn_us), (0.0, None), "reset");
        assert_eq!(history.commands, [4000, 0]);
        for second in 4..2000 {
            history.add(look(start + Duration::from_secs(second), 10));
        }
        assert_eq!(history.commands.len(), LOOKS_MAX);
    }
}
