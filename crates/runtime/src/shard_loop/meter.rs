//! How long turns take, in thread CPU time, without asking for it each turn.
//!
//! Reading the thread's CPU clock is a system call, reading the wall clock is not. A turn never uses more CPU time than
//! wall time, so a turn that is short by the wall clock is counted as such. For a longer one, which may only have been
//! interrupted, the CPU clock decides: it is read when the turn ends, and was read at most [`MARK_AGE_MAX`] before the
//! turn began. The figure is therefore never too low, and too high by at most that much.

use std::time::{Duration, Instant};

use corelane_engine::ShardStats;

/// A shorter turn is counted with its wall time.
const WALL_TRUSTED_MAX: Duration = Duration::from_micros(100);
/// Age at which the last reading of the CPU clock is renewed: one reading of about 0.3 µs per 250 µs at most.
const MARK_AGE_MAX: Duration = Duration::from_micros(250);

/// Measures the turns of the thread that calls it.
pub(crate) struct TurnMeter {
    began: Instant,
    mark_wall: Instant,
    mark_cpu: Duration,
}

impl TurnMeter {
    pub(crate) fn new() -> Self {
        let now = Instant::now();
        Self { began: now, mark_wall: now, mark_cpu: thread_cpu_time() }
    }

    /// A turn begins.
    #[inline]
    pub(crate) fn begin(&mut self) -> Instant {
        self.began = Instant::now();
        if self.began - self.mark_wall > MARK_AGE_MAX {
            self.mark(self.began);
        }
        self.began
    }

    /// When the last turn began.
    #[inline]
    pub(crate) fn began(&self) -> Instant {
        self.began
    }

    /// The turn is over, and what comes next may wait.
    #[inline]
    pub(crate) fn end(&mut self, stats: &mut ShardStats) {
        let now = Instant::now();
        let wall = now - self.began;
        let length = if wall <= WALL_TRUSTED_MAX { wall } else { wall.min(self.mark(now)) };
        let length_us = length.as_micros() as u64;
        stats.turns += 1;
        stats.turn_us.record(length_us);
        stats.turn_us_max = stats.turn_us_max.max(length_us);
    }

    /// Reads the CPU clock; returns how much has been used since the last reading.
    fn mark(&mut self, now: Instant) -> Duration {
        let cpu = thread_cpu_time();
        let used = cpu.saturating_sub(self.mark_cpu);
        (self.mark_wall, self.mark_cpu) = (now, cpu);
        used
    }
}

fn thread_cpu_time() -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is a writable timespec; the clock exists on every Linux.
    let result = unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) };
    debug_assert_eq!(result, 0);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_turn_that_was_only_interrupted_is_not_long() {
        let (mut meter, mut stats) = (TurnMeter::new(), ShardStats::default());
        meter.begin();
        std::thread::sleep(Duration::from_millis(300));
        meter.end(&mut stats);
        assert!(stats.turn_us_max < 100_000, "{} us", stats.turn_us_max);
        assert_eq!(stats.turns, 1);
    }

    #[test]
    fn work_is_counted() {
        let (mut meter, mut stats) = (TurnMeter::new(), ShardStats::default());
        let until = thread_cpu_time() + Duration::from_millis(20);
        meter.begin();
        while thread_cpu_time() < until {}
        meter.end(&mut stats);
        assert!(stats.turn_us_max >= 19_000, "{} us", stats.turn_us_max);
    }
}
