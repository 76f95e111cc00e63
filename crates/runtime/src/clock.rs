//! The engine's clock: Unix milliseconds that never go back and never jump.
//!
//! Wall time is read at the start; from then on the monotonic clock advances it, and about once a second a correction
//! brings it nearer to the wall clock, by at most a thousandth of the time that has passed: a drift of some milliseconds is
//! gone within seconds, and a TTL is never off by more than 0.1 %. All clones share the correction, so the shards agree on the time.
//!
//! A step of the system's clock (somebody has set it) expires no key early and keeps none longer: the engine's clock goes on as it
//! was, and from then on [`Clock::wall`] tells by how much the wall clock is ahead of it.
//!
//! The monotonic clock stands still while the machine sleeps. What the clock since boot has gained on it by then is no step but time
//! that has passed, and is added as soon as it is seen.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use corelane_engine::{Millis, WallClock};

use crate::process::since_boot_us;

/// Monotonic time between two looks at the wall clock.
const INTERVAL_US: u64 = 1_000_000;
/// The correction changes by at most one microsecond in this many.
const SLEW: i64 = 1_000;
/// A shorter sleep is left to the correction: the clocks are not read at one moment.
const SLEEP_MIN_US: u64 = 100_000;
/// A difference from the wall clock that is a step; what is less is left to the correction.
const STEP_MIN_US: u64 = 2_000_000;

/// Tells the time. One per thread: clones of one clock agree, and each by itself never goes back.
#[derive(Clone, Debug)]
pub struct Clock {
    origin: Instant,
    origin_us: u64,
    /// The clock since boot at the origin.
    origin_boot_us: u64,
    shared: Arc<Shared>,
    /// Monotonic microseconds since the origin at which this clone will look whether a correction is due.
    due_us: Cell<u64>,
    told_ms: Cell<Millis>,
}

/// Written once an interval by whichever clone comes first.
#[derive(Debug, Default)]
struct Shared {
    correction_us: AtomicI64,
    corrected_at_us: AtomicU64,
    /// For how long the machine has slept.
    slept_us: AtomicU64,
    /// By how much steps of the wall clock have brought it ahead.
    ahead_us: AtomicI64,
}

/// The clocks of the system that are looked at once an interval, in microseconds.
#[derive(Copy, Clone, Debug)]
struct Look {
    wall_us: u64,
    boot_us: u64,
    /// Monotonic time since the origin. It is read last: a thread that is kept from its CPU in between has not slept.
    elapsed_us: u64,
}

impl Look {
    fn since(origin: Instant) -> Self {
        let (wall_us, boot_us) = (wall_us(), since_boot_us());
        Self { wall_us, boot_us, elapsed_us: origin.elapsed().as_micros() as u64 }
    }
}

impl Clock {
    /// Starts at the present wall time.
    #[must_use]
    pub fn new() -> Self {
        let origin = Instant::now();
        Self::starting_at(origin, Look::since(origin))
    }

    fn starting_at(origin: Instant, look: Look) -> Self {
        Self {
            origin,
            origin_us: look.wall_us,
            origin_boot_us: look.boot_us,
            shared: Arc::default(),
            due_us: Cell::new(INTERVAL_US),
            told_ms: Cell::new(0),
        }
    }

    /// The time at a moment, which is normally now; for a moment before one already asked about, the time told then.
    #[inline]
    #[must_use]
    pub fn at(&self, moment: Instant) -> Millis {
        let elapsed_us = self.elapsed_us(moment);
        if elapsed_us >= self.due_us.get() {
            self.correct(elapsed_us, Look::since(self.origin));
        }
        self.tell(elapsed_us)
    }

    /// The time now.
    #[must_use]
    pub fn now_ms(&self) -> Millis {
        self.at(Instant::now())
    }

    #[inline]
    fn elapsed_us(&self, moment: Instant) -> u64 {
        moment.saturating_duration_since(self.origin).as_micros() as u64
    }

    #[inline]
    fn tell(&self, elapsed_us: u64) -> Millis {
        let correction_us = self.shared.correction_us.load(Ordering::Relaxed);
        let slept_us = self.shared.slept_us.load(Ordering::Relaxed);
        let us = (self.origin_us + elapsed_us + slept_us).saturating_add_signed(correction_us);
        let told = self.told_ms.get().max(us / 1000);
        self.told_ms.set(told);
        told
    }

    /// Adds what the machine has slept, and moves the correction towards the wall clock, if no other clone has done so in this
    /// interval.
    #[cold]
    fn correct(&self, elapsed_us: u64, look: Look) {
        self.due_us.set(elapsed_us + INTERVAL_US);
        let before_us = self.shared.corrected_at_us.load(Ordering::Acquire);
        let passed_us = elapsed_us.saturating_sub(before_us);
        let won = passed_us >= INTERVAL_US
            && self
                .shared
                .corrected_at_us
                .compare_exchange(before_us, elapsed_us, Ordering::AcqRel, Ordering::Relaxed)
                .is_ok();
        if !won {
            return;
        }
        let slept_before_us = self.shared.slept_us.load(Ordering::Relaxed);
        let slept_us = look.boot_us.saturating_sub(self.origin_boot_us).saturating_sub(look.elapsed_us);
        let slept_us = if slept_us >= slept_before_us + SLEEP_MIN_US { slept_us } else { slept_before_us };
        self.shared.slept_us.store(slept_us, Ordering::Relaxed);
        let ahead_us = self.shared.ahead_us.load(Ordering::Relaxed);
        let error_us =
            (look.wall_us as i64) - (self.origin_us + look.elapsed_us + slept_us) as i64 - ahead_us;
        let correction_us = self.shared.correction_us.load(Ordering::Relaxed);
        let step_us = error_us - correction_us;
        if step_us.unsigned_abs() > STEP_MIN_US {
            self.shared.ahead_us.store(ahead_us + step_us, Ordering::Relaxed);
            tell_of_step(step_us);
        } else {
            self.shared.correction_us.store(slewed(correction_us, error_us, passed_us), Ordering::Relaxed);
        }
    }

    /// By how much the wall clock is ahead, on account of steps.
    #[must_use]
    pub fn wall(&self) -> WallClock {
        WallClock::ahead_by(self.shared.ahead_us.load(Ordering::Relaxed) / 1000)
    }
}

fn tell_of_step(step_us: i64) {
    tracing::warn!(
        "the system's clock has been set {:.1} s {}: TTLs go on as they were, and TIME and moments such as those of EXPIREAT follow it",
        step_us.unsigned_abs() as f64 / 1e6,
        if step_us > 0 { "ahead" } else { "back" }
    );
}

impl Default for Clock {
    fn default() -> Self {
        Self::new()
    }
}

/// `current_us` moved towards `target_us` as far as `passed_us` allows.
fn slewed(current_us: i64, target_us: i64, passed_us: u64) -> i64 {
    let step_us = passed_us as i64 / SLEW;
    target_us.clamp(current_us - step_us, current_us + step_us)
}

fn wall_us() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_micros() as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    const HOUR_US: u64 = 3_600_000_000;
    const START_US: u64 = 1_800_000_000_000_000;
    const BOOT_US: u64 = 5_000_000;

    fn clock() -> Clock {
        Clock::starting_at(Instant::now(), look(0, 0))
    }

    /// The clocks so long after the start, the wall clock that far away.
    fn look(elapsed_us: u64, offset_us: i64) -> Look {
        let wall_us = (START_US + elapsed_us).checked_add_signed(offset_us).unwrap();
        Look { wall_us, boot_us: BOOT_US + elapsed_us, elapsed_us }
    }

    /// Runs `seconds` with the wall clock `offset_us` away; returns the time told at the end, less its start.
    fn run(clock: &Clock, from_s: u64, seconds: u64, offset_us: i64) -> Millis {
        for second in from_s..from_s + seconds {
            let elapsed_us = second * 1_000_000;
            let before = clock.told_ms.get();
            clock.correct(elapsed_us, look(elapsed_us, offset_us));
            assert!(clock.tell(elapsed_us) >= before, "went back");
        }
        clock.tell((from_s + seconds) * 1_000_000) - START_US / 1000
    }

    #[test]
    fn advances_with_the_monotonic_clock() {
        let clock = clock();
        assert_eq!(clock.tell(0), START_US / 1000);
        assert_eq!(clock.tell(1_500_000), START_US / 1000 + 1500);
        assert_eq!(clock.elapsed_us(clock.origin + Duration::from_millis(3)), 3000);
        assert_eq!(clock.elapsed_us(clock.origin - Duration::from_secs(1)), 0);
    }

    #[test]
    fn a_small_drift_is_corrected_within_seconds() {
        assert_eq!(run(&clock(), 1, 60, 5_000), 61_005);
        assert_eq!(run(&clock(), 1, 60, -5_000), 60_995);
    }

    #[test]
    fn a_jump_of_the_wall_clock_is_told_by_the_wall_clock_alone() {
        for offset_us in [HOUR_US as i64, -(HOUR_US as i64), -(START_US as i64)] {
            let clock = clock();
            assert_eq!(run(&clock, 1, 1000, offset_us), 1_001_000, "offset {offset_us}");
            assert_eq!(clock.clone().wall(), WallClock::ahead_by(offset_us / 1000));
            // What follows is corrected from there on.
            assert_eq!(run(&clock, 1001, 60, offset_us + 5000), 1_061_005);
        }
    }

    #[test]
    fn never_goes_back_even_for_an_earlier_moment() {
        let clock = clock();
        let late = clock.tell(10_000_000);
        assert_eq!(clock.tell(9_000_000), late);
        clock.correct(10_000_000, Look { wall_us: 0, boot_us: 0, elapsed_us: 0 });
        assert_eq!(clock.tell(10_000_000), late);
    }

    /// It was taken for a step of the wall clock: a key with a TTL of a minute outlived a night.
    #[test]
    fn what_the_machine_sleeps_has_passed() {
        let clock = clock();
        assert_eq!(run(&clock, 1, 5, 0), 6000);
        let slept = |elapsed_us, skew_us| Look {
            boot_us: BOOT_US + elapsed_us + HOUR_US + skew_us,
            ..look(elapsed_us, HOUR_US as i64)
        };
        clock.correct(6_000_000, slept(6_000_000, 0));
        let told = |elapsed_us| clock.tell(elapsed_us) - START_US / 1000;
        assert_eq!(told(6_000_000), 3_606_000);
        // The clock since boot is read a little before or after the others.
        for (second, skew_us) in [(7, 3000), (8, 0), (9, 90_000)] {
            let now_us = second * 1_000_000;
            clock.correct(now_us, slept(now_us, skew_us));
            assert_eq!(told(now_us), 3_600_000 + second * 1000);
        }
    }

    /// A turn had begun long before its thread came to look at the clocks.
    #[test]
    fn who_was_kept_from_the_cpu_has_not_slept() {
        let clock = clock();
        clock.correct(1_000_000, look(1_900_000, 0));
        assert_eq!(clock.tell(2_000_000) - START_US / 1000, 2000);
    }

    #[test]
    fn steps_add_up_and_may_be_taken_back() {
        let clock = clock();
        for (second, offset_s, ahead_s) in
            [(1, 0, 0), (2, 1, 0), (3, 60, 60), (4, 60, 60), (5, 61, 60), (6, -9, -9), (7, 0, 0)]
        {
            clock.correct(second * 1_000_000, look(second * 1_000_000, offset_s * 1_000_000));
            // The correction has begun with what was too small for a step.
            let told = clock.shared.ahead_us.load(Ordering::Relaxed);
            assert!((told - ahead_s * 1_000_000).abs() < 10_000, "second {second}: {told}");
        }
    }

    #[test]
    fn clones_share_one_correction_an_interval() {
        let (a, seen) = (clock(), look(4_000_000, 50_000));
        let b = a.clone();
        a.correct(4_000_000, seen);
        b.correct(4_000_000, seen);
        assert_eq!(a.tell(4_000_000), START_US / 1000 + 4004);
        assert_eq!(b.tell(4_000_000), a.tell(4_000_000));
    }

    #[test]
    fn starts_at_the_wall_clock() {
        let told = Clock::new().now_ms();
        assert!((wall_us() / 1000).abs_diff(told) < 60_000);
    }
}
