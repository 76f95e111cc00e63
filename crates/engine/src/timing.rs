//! The stopwatch of one shard: how long its commands take, and from where on that is worth more than a count.
//!
//! The engine has no clock; it is given a counter that goes up steadily. It is read once per command: where one command
//! ends, the next one begins. What lies between two commands of a turn (their bytes, their parsing) therefore counts
//! with the second; waiting never does, because the first command after a turn reads the counter for itself.

use crate::command_stats::CommandStats;
use crate::commands::CommandNumber;
use crate::settings::Observation;
use corelane_resp::{Mark, Reply};

/// A counter that goes up steadily, the same for all shards.
#[derive(Clone, Copy, Debug)]
pub struct Ticks {
    /// Reads it.
    pub read: fn() -> u64,
    /// Nanoseconds per tick, in units of 2^-32.
    pub ns_q32: u64,
}

impl Ticks {
    /// A counter that stands still: nothing takes any time.
    pub const STOPPED: Self = Self { read: || 0, ns_q32: 1 << 32 };

    #[inline]
    fn ns(self, ticks: u64) -> u64 {
        ((u128::from(ticks) * u128::from(self.ns_q32)) >> 32) as u64
    }
}

/// What a command answered.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Answered {
    /// Its reply is an error.
    pub(crate) failed: bool,
    pub(crate) reply_bytes: usize,
}

impl Answered {
    /// What was written since `mark`, when the reply had `bytes_before`.
    #[inline]
    pub(crate) fn since(reply: &Reply, mark: Mark, bytes_before: usize) -> Self {
        let failed = reply.buf.get(mark.offset()) == Some(&b'-');
        Self { failed, reply_bytes: reply.len() - bytes_before }
    }
}

/// Durations of one shard's commands, and the limits from which on they are logged.
pub struct Timing {
    ticks: Ticks,
    last: u64,
    /// `last` is where the command to come begins.
    running: bool,
    /// Counts with the command being run: the sleep that it asked for.
    extra_ns: u64,
    track: bool,
    /// The least of the two that follow.
    noted_ns_min: u64,
    pub(crate) slow_ns_min: u64,
    pub(crate) latency_ns_min: u64,
    pub(crate) request_bytes_min: usize,
    pub(crate) reply_bytes_min: usize,
    pub(crate) commands: CommandStats,
}

impl Timing {
    pub(crate) fn new(ticks: Ticks, settings: &Observation) -> Self {
        let mut timing = Self {
            ticks,
            last: 0,
            running: false,
            extra_ns: 0,
            track: false,
            noted_ns_min: u64::MAX,
            slow_ns_min: u64::MAX,
            latency_ns_min: u64::MAX,
            request_bytes_min: usize::MAX,
            reply_bytes_min: usize::MAX,
            commands: CommandStats::default(),
        };
        timing.apply(settings);
        timing
    }

    /// Takes the limits from the settings; to be called when those have changed.
    pub(crate) fn apply(&mut self, settings: &Observation) {
        let limit = |from: i64, len_max: usize| (len_max > 0).then(|| u64::try_from(from).ok()).flatten();
        self.track = settings.latency_tracking;
        self.slow_ns_min =
            limit(settings.slow_us, settings.slow_len_max).map_or(u64::MAX, |us| us.saturating_mul(1000));
        self.latency_ns_min = match settings.latency_threshold_ms {
            0 => u64::MAX,
            ms => ms.saturating_mul(1_000_000),
        };
        self.noted_ns_min = self.slow_ns_min.min(self.latency_ns_min);
        let bytes = |from, len_max| limit(from, len_max).map_or(usize::MAX, |bytes| bytes as usize);
        self.request_bytes_min = bytes(settings.large_request_bytes, settings.large_request_len_max);
        self.reply_bytes_min = bytes(settings.large_reply_bytes, settings.large_reply_len_max);
    }

    /// What follows may be a command.
    #[inline]
    pub(crate) fn begin(&mut self) {
        if !self.running {
            self.running = true;
            self.last = (self.ticks.read)();
        }
    }

    /// What follows is no command, and may be a wait.
    #[inline]
    pub(crate) fn stop(&mut self) {
        self.running = false;
    }

    /// Nanoseconds since the last lap, or since the first command of the turn began.
    #[inline]
    pub(crate) fn lap(&mut self) -> u64 {
        let now = (self.ticks.read)();
        let ns = self.ticks.ns(now.saturating_sub(self.last)) + std::mem::take(&mut self.extra_ns);
        self.last = now;
        ns
    }

    /// The counter as it stands, to tell what came first.
    pub(crate) fn moment(&self) -> u64 {
        (self.ticks.read)()
    }

    /// The command being run will keep the shard busy for so long once its reply is written.
    pub(crate) fn add_us(&mut self, us: u64) {
        self.extra_ns += us * 1000;
    }

    /// Counts a command; true if it is to be logged somewhere.
    #[inline]
    pub(crate) fn executed(&mut self, command: CommandNumber, ns: u64, answered: Answered) -> bool {
        self.commands.executed(command, ns, answered.failed, self.track);
        (ns >= self.noted_ns_min) | (answered.reply_bytes >= self.reply_bytes_min)
    }

    /// Forgets all counters.
    pub(crate) fn reset(&mut self) {
        self.commands = CommandStats::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn timing(change: impl FnOnce(&mut Observation)) -> Timing {
        let mut settings = Observation::default();
        change(&mut settings);
        Timing::new(Ticks::STOPPED, &settings)
    }

    #[test]
    fn limits_follow_the_settings() {
        let limits = |timing: Timing| {
            (timing.slow_ns_min, timing.latency_ns_min, timing.request_bytes_min, timing.reply_bytes_min)
        };
        assert_eq!(limits(timing(|_| {})), (10_000_000, u64::MAX, 1 << 20, 1 << 20));
        let all = timing(|settings| {
            settings.slow_us = 0;
            settings.latency_threshold_ms = 7;
            settings.large_request_bytes = 0;
            settings.large_reply_bytes = 1;
        });
        assert_eq!(limits(all), (0, 7_000_000, 0, 1));
        let none = timing(|settings| {
            settings.slow_len_max = 0;
            settings.large_request_bytes = -1;
            settings.large_reply_len_max = 0;
        });
        assert_eq!(limits(none), (u64::MAX, u64::MAX, usize::MAX, usize::MAX));
    }

    #[test]
    fn a_sleep_counts_with_its_command_only() {
        let mut timing = timing(|_| {});
        timing.begin();
        timing.add_us(20_000);
        assert_eq!((timing.lap(), timing.lap()), (20_000_000, 0));
        let answered = Answered::default();
        assert!(timing.executed(CommandNumber(0), 10_000_000, answered));
        assert!(!timing.executed(CommandNumber(0), 9_999_999, answered));
        assert!(timing.executed(CommandNumber(0), 0, Answered { failed: false, reply_bytes: 1 << 20 }));
    }

    #[test]
    fn ticks_become_nanoseconds() {
        let quarter = Ticks { read: || 0, ns_q32: 1 << 30 };
        assert_eq!(quarter.ns(4_000_000_001), 1_000_000_000);
        assert_eq!(Ticks::STOPPED.ns(u64::MAX), u64::MAX);
    }
}
