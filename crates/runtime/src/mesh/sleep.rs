//! Whether a shard is awake, and who wakes it: one byte per shard that the shard and all its peers agree through.
//!
//! ```text
//!              begin_wait                   begin_park
//!   Running ---------------> WaitingInRing ------------> Parked      (owner: publish, fence, look again)
//!      ^                           |                        |
//!      +------- awake -------------+------------------------+        (owner, after it slept or found something)
//!      +------- kick  -------------+------------------------+        (one peer; it also writes the descriptor)
//! ```
//!
//! The protocol is store-buffering with a fence on both sides: the owner publishes that it goes to sleep and then looks
//! into its inboxes, a peer fills an inbox and then looks at the state. Whoever's fence comes second sees the other. A
//! kick is a swap, so of many peers one gets to wake the sleeper and the others pay for one load. The owner's writes are
//! swaps too: all writes then form one chain that each of them has seen, which loom can follow (it takes a store beside a
//! swap for unordered), at the price of a few nanoseconds per sleep.
//!
//! A wake may come late (the owner woke by itself in between): the descriptor is then readable for nothing, and the next
//! sleep ends at once. That costs a turn and loses nothing.

use super::sync::{AtomicU8, Ordering, Padded, fence};

/// What [`SleepState::kick`] asks of the peer that called it.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
#[must_use = "a sleeper that is not woken sleeps on"]
pub enum Wake {
    /// The shard is awake, or someone else is waking it.
    None,
    /// It waits in its ring: write the event its ring polls.
    Ring,
    /// It is parked in glommio: write the event registered with its ring.
    Park,
}

const RUNNING: u8 = 0;
const WAITING_IN_RING: u8 = 1;
const PARKED: u8 = 2;

/// One shard's state. Written by its owner, and by a peer only from asleep to `Running`.
#[derive(Debug)]
pub struct SleepState(Padded<AtomicU8>);

impl SleepState {
    /// A shard that runs.
    #[must_use]
    pub fn new() -> Self {
        Self(Padded(AtomicU8::new(RUNNING)))
    }

    /// Owner: about to wait in the ring. True: do sleep. False: `pending` found something and the state is `Running` again.
    #[inline]
    #[must_use]
    pub fn begin_wait(&self, pending: impl FnMut() -> bool) -> bool {
        self.publish_and_look::<true>(WAITING_IN_RING, pending)
    }

    /// Owner: about to park in glommio, from `Running` or straight from a wait in the ring that timed out. As
    /// [`Self::begin_wait`]; a peer that kicked during that wait has left its message where `pending` looks.
    #[inline]
    #[must_use]
    pub fn begin_park(&self, pending: impl FnMut() -> bool) -> bool {
        self.publish_and_look::<true>(PARKED, pending)
    }

    /// Owner: awake again, whatever woke it.
    #[inline]
    pub fn awake(&self) {
        self.0.0.swap(RUNNING, Ordering::AcqRel);
    }

    /// Peer, after it put something where the owner's `pending` looks: how the owner must be woken.
    #[inline]
    pub fn kick(&self) -> Wake {
        fence(Ordering::SeqCst);
        if self.0.0.load(Ordering::Relaxed) == RUNNING {
            return Wake::None;
        }
        match self.0.0.swap(RUNNING, Ordering::AcqRel) {
            WAITING_IN_RING => Wake::Ring,
            PARKED => Wake::Park,
            _ => Wake::None,
        }
    }

    /// The one place where a shard goes to sleep. `LOOK` is false only in the test that shows what happens then.
    #[inline]
    pub(super) fn publish_and_look<const LOOK: bool>(
        &self,
        state: u8,
        mut pending: impl FnMut() -> bool,
    ) -> bool {
        self.0.0.swap(state, Ordering::AcqRel);
        fence(Ordering::SeqCst);
        if LOOK && pending() {
            self.awake();
            return false;
        }
        true
    }
}

impl Default for SleepState {
    fn default() -> Self {
        Self::new()
    }
}

/// The states by number, for the model check.
#[cfg(all(test, loom))]
pub(super) const SLEEPING: [u8; 2] = [WAITING_IN_RING, PARKED];

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_running_shard_is_never_signalled() {
        let state = SleepState::new();
        assert_eq!(state.kick(), Wake::None);
        assert!(state.begin_wait(|| false));
        state.awake();
        assert_eq!(state.kick(), Wake::None);
    }

    #[test]
    fn one_kick_per_sleep_and_of_the_right_kind() {
        let state = SleepState::new();
        assert!(state.begin_wait(|| false));
        assert_eq!([state.kick(), state.kick()], [Wake::Ring, Wake::None]);
        assert!(state.begin_park(|| false));
        assert_eq!([state.kick(), state.kick()], [Wake::Park, Wake::None]);
    }

    #[test]
    fn something_pending_keeps_the_shard_awake() {
        let state = SleepState::new();
        assert!(!state.begin_wait(|| true));
        assert_eq!(state.kick(), Wake::None);
        assert!(!state.begin_park(|| true));
        assert_eq!(state.kick(), Wake::None);
    }
}
