//! CLIENT PAUSE on one shard: which commands of its clients are kept back, and until when.
//!
//! A command is kept back before it is sent anywhere, on the shard of its client, and everything behind it on its
//! connection with it. What other shards had been asked for before the pause reached this one is still run.

use crate::command::{Command, Flags};
use crate::keyspace::Millis;
use crate::node::Node;
use crate::session::PauseState;

/// Connections let go at a time when a pause ends; each may run all it has sent meanwhile.
const RELEASE_BUDGET: usize = 64;

/// A pause in force, or none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pause {
    /// Its end; 0 for no pause.
    until: Millis,
    /// All commands wait, not only those that may change data.
    all: bool,
}

impl Pause {
    /// Whether there may be one; its time may be over.
    #[inline]
    pub(crate) const fn is_set(&self) -> bool {
        self.until != 0
    }

    /// Begins a pause, or makes the one in force longer or stricter, never shorter or laxer.
    pub(crate) fn extend(&mut self, until: Millis, all: bool, now: Millis) {
        if self.until <= now {
            *self = Self { until, all };
            return;
        }
        self.until = self.until.max(until);
        self.all |= all;
    }

    /// CLIENT UNPAUSE.
    pub(crate) fn end(&mut self) {
        *self = Self::default();
    }

    /// Whether the command has to wait; `changes` says so of one that runs others, if they may change data.
    pub(crate) fn holds(&self, command: &Command, changes: bool, now: Millis) -> bool {
        let changes = changes || command.is_write() || command.flags.has(Flags::MAY_REPLICATE);
        self.until > now && (self.all || changes)
    }

    /// Whether keys whose time has come have to wait to be removed.
    pub(crate) const fn holds_expiry(&self, now: Millis) -> bool {
        self.until > now
    }

    /// For INFO: which commands wait, and for how many milliseconds.
    pub(crate) fn remaining(&self, now: Millis) -> (&'static str, Millis) {
        match self.until.saturating_sub(now) {
            0 => ("none", 0),
            left => (if self.all { "all" } else { "write" }, left),
        }
    }

    /// When it ends by itself, if it is set.
    pub(crate) fn deadline(&self) -> Option<Millis> {
        self.is_set().then_some(self.until)
    }
}

impl Node {
    /// Ends a pause whose time is over, and lets some of the connections go on that it holds; true if there are more.
    pub(crate) fn release_paused(&mut self, now: Millis) -> bool {
        let core = &mut self.core;
        if core.shard.pause.deadline().is_some_and(|until| until <= now) {
            core.shard.pause.end();
            core.shard.keyspace.keeps_expired = false;
        }
        if core.paused.is_empty() || core.shard.pause.is_set() {
            return false;
        }
        let count = core.paused.len().min(RELEASE_BUDGET);
        let released: Vec<_> = core.paused.drain(..count).collect();
        // Who was stopped first goes on first: what can go on is taken from the end.
        for id in released.into_iter().rev() {
            let Some(session) = self.sessions.get_mut(id) else { continue };
            session.pause = PauseState::Released;
            self.core.after_change(session, id);
        }
        self.pump(now);
        !self.core.paused.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pause_is_never_made_shorter_or_laxer() {
        let read = Command { flags: Flags::READONLY, ..Command::DEFAULT };
        let write = Command { flags: Flags::WRITE, ..Command::DEFAULT };
        let publish = Command { flags: Flags::MAY_REPLICATE, ..Command::DEFAULT };
        let mut pause = Pause::default();
        assert!(!pause.is_set() && !pause.holds(&write, false, 0));
        pause.extend(100, false, 10);
        assert_eq!((pause.remaining(40), pause.remaining(100)), (("write", 60), ("none", 0)));
        assert!(
            pause.holds(&write, false, 99)
                && pause.holds(&publish, false, 99)
                && !pause.holds(&read, false, 99)
        );
        assert!(!pause.holds(&write, false, 100));
        pause.extend(50, true, 10);
        assert_eq!((pause.deadline(), pause.holds(&read, false, 99)), (Some(100), true));
        pause.extend(300, false, 99);
        assert_eq!((pause.deadline(), pause.holds(&read, false, 299)), (Some(300), true));
        pause.extend(400, false, 300);
        assert!(!pause.holds(&read, false, 301) && pause.holds(&write, false, 301));
        pause.end();
        assert_eq!((pause.deadline(), pause.holds(&write, false, 1)), (None, false));
    }
}
