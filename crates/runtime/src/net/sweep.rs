//! Once a second, a few connections per turn: closes what has been idle for too long and frees the memory of what has
//! gone quiet.

use corelane_engine::{Millis, Settings};
use corelane_resp::Reply;

use super::connection::Phase;
use super::{Net, NetLimits, Turn};

/// Time between two passes over the connections.
const PASS_INTERVAL_MS: Millis = 1000;
/// Connections looked at in one turn.
const STEP_COUNT_MAX: usize = 256;
/// Seconds without traffic after which the output buffers of a connection are freed.
const QUIET_S: u32 = 2;
/// Seconds without progress after which a connection is closed whose peer has ended it but does not take its last replies.
const ENDING_S: u32 = 10;

/// Where the current pass is.
#[derive(Debug, Default)]
pub(super) struct Sweep {
    next_idx: usize,
    next_at: Millis,
}

impl Sweep {
    /// Has the next pass start at `at` at the latest.
    pub(super) fn hurry(&mut self, at: Millis) {
        self.next_at = self.next_at.min(at);
    }
}

impl Net {
    /// Some of the pass, if it is time for one. Returns when to call it next.
    pub(crate) fn sweep(&mut self, turn: &mut Turn<'_>) -> Option<Millis> {
        self.follow_settings(turn.node.settings());
        if turn.now < self.sweep.next_at {
            return self.next_sweep();
        }
        let end = self.connections.bound().min(self.sweep.next_idx + STEP_COUNT_MAX);
        for idx in self.sweep.next_idx..end {
            self.inspect(idx, turn);
        }
        self.sweep.next_idx = end;
        if end == self.connections.bound() {
            self.sweep = Sweep { next_idx: 0, next_at: turn.now + PASS_INTERVAL_MS };
            if let Some(at) = self.resume_accepting(turn.now) {
                self.sweep.hurry(at);
            }
        }
        self.next_sweep()
    }

    /// Settings may have been changed.
    fn follow_settings(&mut self, settings: &Settings) {
        self.limits = NetLimits {
            timeout_s: settings.timeout_s,
            maxclients: settings.maxclients,
            keepalive_s: settings.tcp_keepalive_s,
        };
        if self.keepalive_s != self.limits.keepalive_s {
            self.keepalive_s = self.limits.keepalive_s;
            for listener in self.listeners.iter().flatten() {
                listener.set_keepalive(self.keepalive_s);
            }
        }
    }

    /// When there is something to sweep.
    pub(crate) fn next_sweep(&self) -> Option<Millis> {
        let needed = self.connections.len() > 0 || self.has_paused_listener();
        needed.then_some(self.sweep.next_at)
    }

    /// Frees the receive buffers that only a burst needs. To be called when nothing has arrived for a while.
    pub(crate) fn trim_buffers(&mut self) {
        if !self.is_ready() {
            // SAFETY: no completion is left unhandled, so all buffers are the kernel's, which fills them only while this
            // thread is inside a call into the ring.
            unsafe { self.buffers.trim() };
        }
    }

    fn inspect(&mut self, idx: usize, turn: &mut Turn<'_>) {
        let now_s = turn.now_s();
        let Some(connection) = self.connections.at(idx) else { return };
        let quiet_s = now_s.saturating_sub(connection.active_s);
        let id = connection.id;
        let timeout_s = self.limits.timeout_s;
        // Who waits for the server is not idle.
        let expired = timeout_s > 0 && quiet_s >= timeout_s && !turn.node.may_be_silent(id);
        let abandoned = connection.phase == Phase::Ending && quiet_s >= ENDING_S;
        if (expired || abandoned) && !turn.node.owes(id) || turn.node.is_over_soft_limit(id, turn.now) {
            return self.close(id, turn);
        }
        if connection.fat && quiet_s >= QUIET_S && !connection.sending {
            connection.fat = false;
            connection.out = Reply::default();
            connection.vectors = None;
            if let Some(state) = turn.node.session_state(id)
                && state.output.is_empty()
            {
                *state.output = Reply::new(state.output.proto());
            }
        }
    }
}
