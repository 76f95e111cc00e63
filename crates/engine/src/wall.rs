//! The wall clock beside the engine's. The engine's never jumps, so that no key is gone too early or stays too long because somebody
//! has set the system's clock; from then on the two differ. What a client says and sees of moments (EXPIREAT, TIME) is the
//! wall clock's.

use crate::keyspace::Millis;

/// How far the wall clock is ahead of the engine's.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct WallClock {
    ahead_ms: i64,
}

impl WallClock {
    /// One that is so far ahead; negative: behind.
    #[must_use]
    pub const fn ahead_by(ms: i64) -> Self {
        Self { ahead_ms: ms }
    }

    /// What it shows at a moment of the engine's clock, in Unix milliseconds.
    pub(crate) const fn shows_at(self, moment: Millis) -> Millis {
        moment.saturating_add_signed(self.ahead_ms)
    }

    /// The moment of the engine's clock at which it shows this.
    pub(crate) const fn moment_of(self, shown: Millis) -> Millis {
        shown.saturating_add_signed(self.ahead_ms.saturating_neg())
    }
}

/// The time that a command is run at, on both clocks.
#[derive(Copy, Clone, Debug)]
pub(crate) struct Present {
    pub(crate) now: Millis,
    pub(crate) wall: WallClock,
}

impl Present {
    /// A deadline that a client states: so many units from now on, or from 1970 on. `None` if that is beyond what numbers can say.
    pub(crate) fn deadline(self, number: i64, unit_ms: i64, relative: bool) -> Option<i64> {
        let ms = number.checked_mul(unit_ms)?;
        match relative {
            true => ms.checked_add(self.now as i64),
            false => Some(ms.saturating_sub(self.wall.ahead_ms)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_go_from_clock_to_clock_and_back() {
        for ahead_ms in [0, 3_600_000, -3_600_000] {
            let wall = WallClock::ahead_by(ahead_ms);
            let now = 1_700_000_000_000;
            assert_eq!(wall.shows_at(now) as i64 - now as i64, ahead_ms);
            assert_eq!(wall.moment_of(wall.shows_at(now)), now);
            let present = Present { now, wall };
            let in_ten_s = wall.shows_at(now) as i64 + 10_000;
            assert_eq!(present.deadline(in_ten_s, 1, false), Some(now as i64 + 10_000));
            assert_eq!(present.deadline(10, 1000, true), Some(now as i64 + 10_000));
            assert_eq!(present.deadline(i64::MAX, 1, true), None);
            assert_eq!(present.deadline(i64::MAX, 1000, false), None);
        }
        assert_eq!(WallClock::ahead_by(-5).shows_at(3), 0, "before 1970 there is nothing");
    }
}
