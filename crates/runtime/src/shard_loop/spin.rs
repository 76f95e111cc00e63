//! Whether it pays to spin before sleeping.
//!
//! A shard that has just been busy often gets its next work within microseconds. To look for it a little longer, with
//! `sched_yield` in between, saves a sleep and a wake, and in a virtual machine two exits. Three cases:
//! - Someone else wants this CPU: the yield lets them run at once, which costs this shard nothing, and it finds a larger
//!   batch afterwards. On two shared cores (one shard, 50 clients in two threads, no pipeline) this takes 6.3 µs of CPU per
//!   request to 5.1 µs. So it yields for up to [`SHARED_MAX`].
//! - Nobody else wants it: the time is this shard's own, and 3 µs of it were already more than they saved: [`ALONE_MAX`].
//! - But another shard owes an answer, for which a client waits: it is worth up to [`SHARED_MAX`] again. One client whose
//!   keys are on the other shard sees 31 µs instead of 55.
//!
//! Work that comes too seldom is not worth any of it, so after a few failures in a row spinning is only tried now and then.

use std::time::{Duration, Instant};

/// How long to spin while others run, or while another shard owes an answer.
const SHARED_MAX: Duration = Duration::from_micros(20);
/// How long to spin while nobody else runs.
const ALONE_MAX: Duration = Duration::from_micros(1);
/// A yield that takes longer has let somebody else run.
const YIELD_ALONE_MAX: Duration = Duration::from_micros(2);
/// Failures that use up all confidence; a success restores two.
const CONFIDENCE_MAX: u8 = 8;
/// Sleeps without spinning before it is tried again.
const RETRY_INTERVAL: u8 = 32;

/// Remembers how well spinning went.
#[derive(Debug)]
pub(crate) struct Spin {
    /// What the user asks for in any case.
    asked: Duration,
    confidence: u8,
    skipped: u8,
}

/// One time of spinning.
#[derive(Debug)]
pub(crate) struct Attempt {
    asked: Duration,
    total_max: Duration,
    alone_max: Duration,
    times: Option<Times>,
}

#[derive(Debug)]
struct Times {
    began: Instant,
    last: Instant,
    alone: Duration,
}

impl Spin {
    /// With a time to spin in any case.
    pub(crate) fn new(asked: Duration) -> Self {
        Self { asked, confidence: CONFIDENCE_MAX, skipped: 0 }
    }

    /// What to do now, if anything. `active`: something was done since the last sleep; `awaiting`: another shard was asked.
    pub(crate) fn attempt(&mut self, active: bool, awaiting: bool) -> Option<Attempt> {
        let (asked, times) = (self.asked, None);
        if active && self.is_worth_it() {
            let alone_max = if awaiting { SHARED_MAX } else { ALONE_MAX };
            return Some(Attempt { asked, total_max: SHARED_MAX, alone_max, times });
        }
        let nothing = Duration::ZERO;
        (!asked.is_zero()).then_some(Attempt { asked, total_max: nothing, alone_max: nothing, times })
    }

    /// Whether something came in that time.
    pub(crate) fn note(&mut self, came: bool) {
        self.confidence = match came {
            true => (self.confidence + 2).min(CONFIDENCE_MAX),
            false => self.confidence.saturating_sub(1),
        };
    }

    fn is_worth_it(&mut self) -> bool {
        if self.confidence == 0 {
            self.skipped += 1;
            if self.skipped < RETRY_INTERVAL {
                return false;
            }
            self.skipped = 0;
            self.confidence = 1;
        }
        true
    }
}

impl Attempt {
    /// Whether to yield and look once more; to be asked before each yield.
    pub(crate) fn goes_on(&mut self, now: Instant) -> bool {
        let Some(times) = &mut self.times else {
            self.times = Some(Times { began: now, last: now, alone: Duration::ZERO });
            return true;
        };
        let step = now - times.last;
        times.last = now;
        if step <= YIELD_ALONE_MAX {
            times.alone += step;
        }
        let total = now - times.began;
        total < self.asked || (total < self.total_max && times.alone < self.alone_max)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Microseconds after which an attempt ends whose yields take `step_ns` each.
    fn lasts_us(attempt: Option<Attempt>, step_ns: u64) -> u128 {
        let Some(mut attempt) = attempt else { return 0 };
        let began = Instant::now();
        let mut now = began;
        while attempt.goes_on(now) {
            now += Duration::from_nanos(step_ns);
        }
        (now - began).as_micros()
    }

    #[test]
    fn spins_longer_when_others_run_or_an_answer_is_owed() {
        let mut spin = Spin::new(Duration::ZERO);
        assert_eq!(lasts_us(spin.attempt(true, false), 500), 1);
        assert_eq!(lasts_us(spin.attempt(true, true), 500), 20);
        assert_eq!(lasts_us(spin.attempt(true, false), 4000), 20);
        assert_eq!(lasts_us(spin.attempt(false, true), 500), 0);
    }

    #[test]
    fn spins_while_it_pays_and_tries_again_later() {
        let mut spin = Spin::new(Duration::ZERO);
        for _ in 0..CONFIDENCE_MAX {
            assert!(spin.attempt(true, false).is_some());
            spin.note(false);
        }
        for _ in 1..RETRY_INTERVAL {
            assert!(spin.attempt(true, false).is_none());
        }
        assert!(spin.attempt(true, false).is_some());
        spin.note(true);
        spin.note(false);
        assert!(spin.attempt(true, false).is_some());
    }

    #[test]
    fn spins_as_asked_in_any_case() {
        let mut spin = Spin::new(Duration::from_micros(70));
        assert_eq!(lasts_us(spin.attempt(true, false), 500), 70);
        assert_eq!(lasts_us(spin.attempt(false, false), 500), 70);
    }
}
