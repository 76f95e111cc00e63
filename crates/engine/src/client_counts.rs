//! How many connections a shard has, and what they are up to.

use crate::modes::Modes;
use crate::session::{PauseState, Sessions};

/// How many connections a shard has, and in which states, for INFO.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClientCounts {
    /// All.
    pub connections: usize,
    /// Those that a command or a pause blocks.
    pub blocked: usize,
    /// Of these, those that wait for a limited time.
    pub blocked_for_a_time: usize,
    /// Those that listen to channels.
    pub subscribed: usize,
    /// Those that watch keys.
    pub watching: usize,
    /// Bytes of the longest input that waits.
    pub input_max: usize,
    /// Bytes of the longest output that waits.
    pub output_max: usize,
}

impl ClientCounts {
    /// Looks at every connection.
    pub(crate) fn of(sessions: &Sessions) -> Self {
        let mut counts = Self { connections: sessions.len(), ..Self::default() };
        for session in sessions.iter() {
            if let Some(wait) = &session.client.wait {
                counts.blocked += 1;
                counts.blocked_for_a_time += usize::from(wait.until.is_some());
            }
            counts.blocked += usize::from(session.pause == PauseState::Paused);
            counts.subscribed += usize::from(session.client.modes.has(Modes::SUBSCRIBED));
            let watches = session.client.transaction.as_ref().is_some_and(|tx| !tx.watched.is_empty());
            counts.watching += usize::from(watches);
            counts.input_max = counts.input_max.max(session.input_len());
            counts.output_max = counts.output_max.max(session.output_len());
        }
        counts
    }
}
