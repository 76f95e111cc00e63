//! The counter that durations are measured with: the processor's time stamp counter where the kernel itself keeps time with
//! it, otherwise the monotonic clock.
//!
//! One reading of the time stamp counter takes 8 ns on the machine of benches/runs: `cargo bench --bench micro hop` shows
//! commands with it and without.

use std::fs;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use corelane_engine::Ticks;

/// What the kernel keeps time with.
const CLOCK_SOURCE: &str = "/sys/devices/system/clocksource/clocksource0/current_clocksource";
/// The counter's speed is taken over this time; each end is known to within some ten nanoseconds.
const CALIBRATION: Duration = Duration::from_millis(2);
/// Readings of both clocks at each end, of which the quickest counts.
const CALIBRATION_READINGS: usize = 16;
/// Speeds that are credible, in ticks per microsecond.
const TICKS_PER_US: std::ops::Range<u64> = 100..20_000;

/// The counter, the same for the whole process. The first call takes two milliseconds.
#[must_use]
pub fn ticks() -> Ticks {
    static TICKS: OnceLock<Ticks> = OnceLock::new();
    *TICKS.get_or_init(|| time_stamps().unwrap_or(Ticks { read: monotonic_ns, ns_q32: 1 << 32 }))
}

fn monotonic_ns() -> u64 {
    static ORIGIN: OnceLock<Instant> = OnceLock::new();
    ORIGIN.get_or_init(Instant::now).elapsed().as_nanos() as u64
}

/// The time stamp counter, if the kernel trusts it: then it runs at one speed, in step on all CPUs.
#[cfg(target_arch = "x86_64")]
fn time_stamps() -> Option<Ticks> {
    let source = fs::read_to_string(CLOCK_SOURCE).ok()?;
    if source.trim() != "tsc" {
        return None;
    }
    let (from, began) = at_once();
    std::thread::sleep(CALIBRATION);
    let (to, ended) = at_once();
    let (ticks, ns) = (to.checked_sub(from)?, u64::try_from((ended - began).as_nanos()).ok()?);
    if ns == 0 || !TICKS_PER_US.contains(&(ticks * 1000 / ns)) {
        return None;
    }
    let ns_q32 = u64::try_from((u128::from(ns) << 32) / u128::from(ticks)).ok()?;
    Some(Ticks { read: time_stamp, ns_q32 })
}

#[cfg(not(target_arch = "x86_64"))]
fn time_stamps() -> Option<Ticks> {
    None
}

#[cfg(target_arch = "x86_64")]
fn time_stamp() -> u64 {
    // SAFETY: every x86-64 processor has the instruction, and it only reads a counter.
    unsafe { std::arch::x86_64::_rdtsc() }
}

/// Both clocks at one moment.
#[cfg(target_arch = "x86_64")]
fn at_once() -> (u64, Instant) {
    let readings = (0..CALIBRATION_READINGS).map(|_| {
        let before = time_stamp();
        let moment = Instant::now();
        let after = time_stamp();
        (after.saturating_sub(before), before, moment)
    });
    let (width, before, moment) = readings.min_by_key(|(width, ..)| *width).expect("there are readings");
    (before + width / 2, moment)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_counters_run_at_the_speed_of_the_clock() {
        for ticks in [ticks(), Ticks { read: monotonic_ns, ns_q32: 1 << 32 }] {
            let (before, began) = ((ticks.read)(), Instant::now());
            std::thread::sleep(Duration::from_millis(20));
            let (after, ns) = ((ticks.read)(), began.elapsed().as_nanos());
            let measured = (u128::from(after - before) * u128::from(ticks.ns_q32)) >> 32;
            assert!(measured.abs_diff(ns) < ns / 4, "{measured} ns instead of {ns}");
        }
    }
}
