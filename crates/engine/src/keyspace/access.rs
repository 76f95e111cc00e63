//! When, or how often, a key is used: 24 bits per key, read as a time under an LRU policy and as a counter under LFU.
//!
//! ```text
//! LRU   seconds since 1970, modulo 2^24 (half a year)
//! LFU   bits 8..24 minutes since 1970, modulo 2^16 (45 days) │ 0..8 logarithmic counter
//! ```
//! The counter is that of Redis: an access raises it with a probability that falls as it grows, each `decay_minutes`
//! without one take one off (Morris, "Counting large numbers of events in small registers", 1978). After a change of
//! policy the bits of the old one are read as the new one's, which puts itself right with use, as in Redis.

use super::Millis;

/// Where the counter of a new key starts, so that it is not the first to go.
const COUNTER_NEW: u8 = 5;
const SECONDS_MASK: u64 = 0xFF_FFFF;

/// The 24 bits of one key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Access(pub(super) u32);

/// How accesses are counted under LFU (`lfu-log-factor`, `lfu-decay-time`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lfu {
    /// The larger, the more accesses it takes to raise a counter.
    pub log_factor: u32,
    /// Minutes without an access that take one off; 0 for never.
    pub decay_minutes: u32,
}

/// What is kept of accesses.
#[derive(Clone, Debug, Default)]
pub struct AccessPolicy {
    lfu: Option<Lfu>,
    /// State of a xorshift generator (Marsaglia, 2003), never zero once it is used.
    random: u64,
}

impl AccessPolicy {
    /// Counts accesses from now on, or with `None` keeps their times.
    pub fn set_lfu(&mut self, lfu: Option<Lfu>) {
        self.lfu = lfu;
    }

    /// Whether accesses are counted.
    pub const fn is_lfu(&self) -> bool {
        self.lfu.is_some()
    }

    /// For a new key.
    #[inline]
    pub(super) fn fresh(&self, now: Millis) -> Access {
        match self.lfu {
            None => at_second(now),
            Some(_) => counted(now, COUNTER_NEW),
        }
    }

    /// For a key that is used.
    #[inline]
    pub(super) fn used(&mut self, before: Access, now: Millis) -> Access {
        match self.lfu {
            None => at_second(now),
            Some(lfu) => self.count(lfu, before, now),
        }
    }

    fn count(&mut self, lfu: Lfu, before: Access, now: Millis) -> Access {
        let counter = decayed(lfu, before, now);
        let above = u64::from(counter.saturating_sub(COUNTER_NEW)) * u64::from(lfu.log_factor);
        let raise = counter < u8::MAX && self.next_random().is_multiple_of(above + 1);
        counted(now, counter + u8::from(raise))
    }

    fn next_random(&mut self) -> u64 {
        let mut x = self.random | (u64::from(self.random == 0) * 0x9E37_79B9_7F4A_7C15);
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        self.random = x;
        x >> 11
    }

    /// Seconds since the last access; `None` where accesses are counted.
    pub fn idle_s(&self, access: Access, now: Millis) -> Option<u64> {
        self.lfu.is_none().then(|| (now / 1000).wrapping_sub(u64::from(access.0)) & SECONDS_MASK)
    }

    /// For a key that is to look as if it had not been used for so many seconds; `None` where accesses are counted.
    pub fn idle_for(&self, idle_s: u64, now: Millis) -> Option<Access> {
        self.lfu.is_none().then(|| at_second(now.saturating_sub(idle_s.saturating_mul(1000))))
    }

    /// For a key whose counter is to have this value; `None` where accesses are not counted.
    pub fn used_so_often(&self, frequency: u8, now: Millis) -> Option<Access> {
        self.lfu.is_some().then(|| counted(now, frequency))
    }

    /// The counter as of now; `None` where accesses are not counted.
    pub fn frequency(&self, access: Access, now: Millis) -> Option<u8> {
        self.lfu.map(|lfu| decayed(lfu, access, now))
    }
}

impl Access {
    /// The bits as a time of LRU.
    pub const fn seconds(self) -> u32 {
        self.0
    }

    /// The time of LFU, in minutes modulo 2^16.
    pub const fn minutes(self) -> u32 {
        self.0 >> 8
    }
}

const fn at_second(now: Millis) -> Access {
    Access(((now / 1000) & SECONDS_MASK) as u32)
}

const fn minute_of(now: Millis) -> u16 {
    (now / 60_000) as u16
}

fn counted(now: Millis, counter: u8) -> Access {
    Access(u32::from(minute_of(now)) << 8 | u32::from(counter))
}

fn decayed(lfu: Lfu, access: Access, now: Millis) -> u8 {
    let counter = access.0 as u8;
    let passed = u32::from(minute_of(now).wrapping_sub(access.minutes() as u16));
    let lost = passed.checked_div(lfu.decay_minutes).unwrap_or(0);
    counter.saturating_sub(u8::try_from(lost).unwrap_or(u8::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Millis = 1_700_000_000_000;
    const MINUTE: Millis = 60_000;

    #[test]
    fn times_wrap_after_half_a_year() {
        let mut policy = AccessPolicy::default();
        let access = policy.fresh(NOW);
        assert_eq!(policy.idle_s(access, NOW + 7000), Some(7));
        let again = policy.used(access, NOW + 5000);
        assert_eq!(policy.idle_s(again, NOW + 7000), Some(2));
        assert_eq!(policy.idle_s(access, NOW + ((1 << 24) + 3) * 1000), Some(3));
        assert_eq!(policy.frequency(access, NOW), None);
    }

    #[test]
    fn counters_grow_logarithmically_and_decay() {
        let mut policy = AccessPolicy::default();
        policy.set_lfu(Some(Lfu { log_factor: 10, decay_minutes: 1 }));
        let mut access = policy.fresh(NOW);
        assert_eq!((policy.frequency(access, NOW), policy.idle_s(access, NOW)), (Some(5), None));
        access = policy.used(access, NOW);
        assert_eq!(policy.frequency(access, NOW), Some(6), "the first access always counts");
        // Redis's documentation: a factor of 10 brings a thousand hits to about 18, a hundred thousand to about 142.
        for (hits, least, most) in [(999, 14, 30), (99_000, 110, 180)] {
            for _ in 0..hits {
                access = policy.used(access, NOW);
            }
            let counter = policy.frequency(access, NOW).unwrap();
            assert!((least..=most).contains(&counter), "{counter} after {hits} more");
        }
        let before = policy.frequency(access, NOW).unwrap();
        assert_eq!(policy.frequency(access, NOW + 10 * MINUTE), Some(before - 10));
        assert_eq!(policy.frequency(access, NOW + 300 * MINUTE), Some(0));
        policy.set_lfu(Some(Lfu { log_factor: 0, decay_minutes: 0 }));
        assert_eq!(policy.frequency(access, NOW + 300 * MINUTE), Some(before));
        for _ in 0..300 {
            access = policy.used(access, NOW);
        }
        assert_eq!(policy.frequency(access, NOW), Some(u8::MAX), "every access counts, up to the end");
    }
}
