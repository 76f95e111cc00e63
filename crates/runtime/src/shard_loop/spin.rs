//! Whether it pays to spin before sleeping.
//!
//! A shard that has just been busy often gets its next work within microseconds. To look for it a little longer, with
//! `sched_yield` in between, saves a sleep and a wake, and in a virtual machine two exits. Three cases:
//! - Someone else wants this CPU: the yield lets them run at once, which costs this shard nothing, and it finds a larger
//!   batch afterwards. On two shared cores (one shard, 50 clients in two threads, no pipeline) this takes 6.3 µs of CPU per
//!   request to 5.1 µs. So it yields for up to [`SHARED_MAX`].
//! - Nobody else wants it: the time is this shard's own, and a few µs of it were more than
//!   they saved. It stops after [`ALONE_MAX`], and such times do not count as a success.
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
    began: Instant,
    last: Instant,
    alone: Duration,
    /// A success counts even if nobody else ran: without spinning it would have taken a sleep and a wake.
    awaiting: bool,
}

impl Spin {
    /// With a time to spin in any case.
    pub(crate) fn new(asked: Duration) -> Self {
        Self { asked, confidence: CONFIDENCE_MAX, skipped: 0 }
    }

    /// Changes the time to spin in any case.
    pub(crate) fn set_asked(&mut self, asked: Duration) {
        self.asked = asked;
    }

    /// Whether to spin at all. `active`: something was done since the last sleep.
    pub(crate) fn is_worth_it(&mut self, active: bool) -> bool {
        !self.asked.is_zero() || (active && self.is_promising())
    }

    /// Begins to spin. `awaiting`: another shard was asked for something.
    pub(crate) fn attempt(&self, active: bool, awaiting: bool, now: Instant) -> Attempt {
        let (total_max, alone_max) = match (active && self.confidence > 0, awaiting) {
            (true, true) => (SHARED_MAX, SHARED_MAX),
            (true, false) => (SHARED_MAX, ALONE_MAX),
            (false, _) => (Duration::ZERO, Duration::ZERO),
        };
        let (asked, alone) = (self.asked, Duration::ZERO);
        Attempt { asked, total_max, alone_max, began: now, last: now, alone, awaiting }
    }

    /// How it went: whether something came, and whether a sleep would not have found it just as well. Work that comes while
    /// nobody else runs and no answer is owed is found by the call into the kernel that would have slept. `visited`: it was
    /// brought by a thread of an embedding program, which would have had to wake this shard.
    pub(crate) fn note(&mut self, attempt: &Attempt, came: bool, visited: bool) {
        let let_others_run = attempt.last - attempt.began > attempt.alone;
        self.confidence = match came && (attempt.awaiting || let_others_run || visited) {
            true => (self.confidence + 2).min(CONFIDENCE_MAX),
            false => self.confidence.saturating_sub(1),
        };
    }

    fn is_promising(&mut self) -> bool {
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
    /// Whether to yield and look once more; to be told of each yield when it is over.
    pub(crate) fn goes_on(&mut self, now: Instant) -> bool {
        let step = now - self.last;
        self.last = now;
        if step <= YIELD_ALONE_MAX {
            self.alone += step;
        }
        let total = now - self.began;
        total < self.asked || (total < self.total_max && self.alone < self.alone_max)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Spins with yields that take `step_ns` each, in vain or not; returns for how many microseconds.
    fn spin_us(spin: &mut Spin, active: bool, awaiting: bool, step_ns: u64, came: bool) -> u128 {
        let began = Instant::now();
        if !spin.is_worth_it(active) {
            return 0;
        }
        let mut attempt = spin.attempt(active, awaiting, began);
        let mut now = began + Duration::from_nanos(step_ns);
        while attempt.goes_on(now) {
            now += Duration::from_nanos(step_ns);
        }
        spin.note(&attempt, came, false);
        (now - began).as_micros()
    }

    #[test]
    fn spins_longer_when_others_run_or_an_answer_is_owed() {
        let mut spin = Spin::new(Duration::ZERO);
        assert_eq!(spin_us(&mut spin, true, false, 500, true), 1);
        assert_eq!(spin_us(&mut spin, true, true, 500, true), 20);
        assert_eq!(spin_us(&mut spin, true, false, 4000, true), 20);
        assert_eq!(spin_us(&mut spin, false, true, 500, true), 0);
    }

    #[test]
    fn spins_while_it_pays_and_tries_again_later() {
        for (step_ns, came) in [(500, false), (500, true), (4000, false)] {
            let mut spin = Spin::new(Duration::ZERO);
            for _ in 0..CONFIDENCE_MAX {
                assert_ne!(spin_us(&mut spin, true, false, step_ns, came), 0);
            }
            for _ in 1..RETRY_INTERVAL {
                assert_eq!(spin_us(&mut spin, true, false, step_ns, came), 0);
            }
            assert_ne!(spin_us(&mut spin, true, false, 4000, true), 0, "tried again, and it pays");
            for _ in 0..100 {
                assert_ne!(spin_us(&mut spin, true, false, 4000, true), 0);
            }
        }
    }

    #[test]
    fn visitors_are_worth_it_although_nobody_else_runs() {
        let mut spin = Spin::new(Duration::ZERO);
        for _ in 0..2 * CONFIDENCE_MAX {
            assert!(spin.is_worth_it(true));
            let attempt = spin.attempt(true, false, Instant::now());
            spin.note(&attempt, true, true);
        }
    }

    #[test]
    fn spins_as_asked_in_any_case() {
        let mut spin = Spin::new(Duration::from_micros(70));
        assert_eq!(spin_us(&mut spin, true, false, 500, false), 70);
        assert_eq!(spin_us(&mut spin, false, false, 500, false), 70);
    }
}
