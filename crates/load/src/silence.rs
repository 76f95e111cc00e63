//! How long a server may say nothing while it owes replies.

use std::time::Duration;

/// How long may pass without a byte from the server; `None` is any time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Patience {
    /// While requests are sent.
    pub running: Option<Duration>,
    /// When the duration of a run is over, and what was sent is waited for.
    pub ending: Option<Duration>,
}

/// When something was heard last.
#[derive(Debug)]
pub(crate) struct Silence {
    patience: Patience,
    /// Nanoseconds; moves on while nothing is awaited.
    heard: u64,
}

impl Silence {
    pub(crate) fn new(patience: Patience, now: u64) -> Self {
        Self { patience, heard: now }
    }

    /// The server has said something.
    #[inline]
    pub(crate) fn broken(&mut self, now: u64) {
        self.heard = now;
    }

    /// How long it has lasted, if that is too long. `waits`: whether the server owes something; `ended`: whether the run's time
    /// is over.
    pub(crate) fn too_long(&mut self, now: u64, waits: bool, ended: bool) -> Option<Duration> {
        if !waits {
            self.heard = now;
            return None;
        }
        let limit = if ended { self.patience.ending } else { self.patience.running };
        let silent = Duration::from_nanos(now.saturating_sub(self.heard));
        limit.filter(|limit| silent >= *limit)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: u64 = 1_000_000_000;

    #[test]
    fn silence_counts_only_while_something_is_owed() {
        let patience =
            Patience { running: Some(Duration::from_secs(10)), ending: Some(Duration::from_secs(3)) };
        let mut silence = Silence::new(patience, 0);
        assert_eq!(silence.too_long(10 * S - 1, true, false), None);
        assert_eq!(silence.too_long(10 * S, true, false), patience.running);
        silence.broken(12 * S);
        assert_eq!(silence.too_long(14 * S, true, true), None);
        assert_eq!(silence.too_long(15 * S, true, true), patience.ending);
        assert_eq!(silence.too_long(40 * S, false, false), None);
        assert_eq!(silence.too_long(49 * S, true, false), None);
        let mut endless = Silence::new(Patience::default(), 0);
        assert_eq!(endless.too_long(1000 * S, true, true), None);
    }
}
