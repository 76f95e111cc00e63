//! The mesh under loom: every interleaving of a few messages and one sleeper, and proof that the check can fail.
//!
//! Run with `RUSTFLAGS="--cfg loom" cargo test -p corelane-runtime --lib --release mesh`.
//! The two eventfds are modelled as counters under a mutex. A wake is lost when a shard sleeps although every peer is
//! done, its bell is silent and its inbox is not empty.

use std::sync::atomic::{AtomicUsize, Ordering};

use loom::sync::{Arc, Condvar, Mutex};
use loom::thread;

use super::sleep::{SLEEPING, SleepState, Wake};
use super::spsc::{self, Consumer};

/// Involuntary thread switches per interleaving.
const PREEMPTIONS_MAX: usize = 3;

/// How the sleeper goes to sleep.
#[derive(Copy, Clone)]
enum Path {
    /// Waits in its ring until woken.
    Ring,
    /// Its wait in the ring times out at once and it parks.
    RingThenPark,
}

/// What a sleeper waits for: its two events, counted instead of rung, and the end of the model.
struct Bells {
    rung: [usize; 2],
    peers_at_work: usize,
}

struct Door {
    sleep: SleepState,
    bells: Mutex<Bells>,
    changed: Condvar,
}

impl Door {
    fn wake(&self) -> usize {
        let event = match self.sleep.kick() {
            Wake::None => return 0,
            Wake::Ring => 0,
            Wake::Park => 1,
        };
        self.bells.lock().unwrap().rung[event] += 1;
        self.changed.notify_one();
        1
    }

    fn peer_done(&self) {
        self.bells.lock().unwrap().peers_at_work -= 1;
        self.changed.notify_one();
    }

    /// Waits for that event alone, as the real sleeper does, and drains it; false when it would never have come.
    fn sleep_on(&self, event: usize) -> bool {
        let mut bells = self.bells.lock().unwrap();
        while bells.rung[event] == 0 && bells.peers_at_work > 0 {
            bells = self.changed.wait(bells).unwrap();
        }
        std::mem::take(&mut bells.rung[event]) > 0
    }

    /// One attempt to sleep: how many times the shard published that it sleeps, and whether it would have slept for ever.
    fn fall_asleep<const LOOK: bool>(&self, path: Path, mut pending: impl FnMut() -> bool) -> (usize, bool) {
        if !self.sleep.publish_and_look::<LOOK>(SLEEPING[0], &mut pending) {
            return (1, false);
        }
        let outcome = match path {
            Path::Ring => (1, !self.sleep_on(0)),
            Path::RingThenPark if self.sleep.publish_and_look::<LOOK>(SLEEPING[1], &mut pending) => {
                (2, !self.sleep_on(1))
            }
            Path::RingThenPark => (2, false),
        };
        self.sleep.awake();
        outcome
    }
}

/// `messages[i]` messages come from peer `i`; the owner sleeps whenever it finds nothing. Returns the wakes lost over all
/// interleavings; order, loss of messages and superfluous wakes are asserted.
///
/// Interleavings with more than [`PREEMPTIONS_MAX`] involuntary switches are left out: they are millions, and a lost
/// wake needs one.
fn wakes_lost<const LOOK: bool>(path: Path, messages: &'static [usize]) -> usize {
    let lost = std::sync::Arc::new(AtomicUsize::new(0));
    let lost_in_model = std::sync::Arc::clone(&lost);
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(PREEMPTIONS_MAX);
    model.check(move || {
        let bells = Mutex::new(Bells { rung: [0; 2], peers_at_work: messages.len() });
        let door = Arc::new(Door { sleep: SleepState::new(), bells, changed: Condvar::new() });
        let mut inboxes: Vec<Consumer<usize>> = Vec::new();
        let mut peers = Vec::new();
        for &count in messages {
            let (mut tx, rx) = spsc::channel(2);
            inboxes.push(rx);
            let door = Arc::clone(&door);
            peers.push(thread::spawn(move || {
                let mut wakes = 0;
                for message in 0..count {
                    tx.push(message).expect("never more than fit");
                    wakes += door.wake();
                }
                door.peer_done();
                wakes
            }));
        }
        let mut received = vec![0; messages.len()];
        let mut published = 0;
        while received != messages {
            let before: usize = received.iter().sum();
            for (inbox, next) in inboxes.iter_mut().zip(&mut received) {
                while let Some(message) = inbox.pop() {
                    assert_eq!(message, *next, "in the order sent");
                    *next += 1;
                }
            }
            if received.iter().sum::<usize>() == before {
                let pending = || inboxes.iter().any(|inbox| !inbox.is_empty());
                let (times, overslept) = door.fall_asleep::<LOOK>(path, pending);
                published += times;
                lost_in_model.fetch_add(usize::from(overslept), Ordering::Relaxed);
            }
        }
        let wakes: usize = peers.into_iter().map(|peer| peer.join().unwrap()).sum();
        assert!(wakes <= published, "{wakes} wakes for {published} sleeps");
    });
    lost.load(Ordering::Relaxed)
}

#[test]
fn no_wake_is_lost_with_two_peers_and_a_sleeper_in_its_ring() {
    assert_eq!(wakes_lost::<true>(Path::Ring, &[1, 1]), 0);
}

#[test]
fn no_wake_is_lost_with_two_messages_and_a_sleeper_in_its_ring() {
    assert_eq!(wakes_lost::<true>(Path::Ring, &[2]), 0);
}

#[test]
fn no_wake_is_lost_with_two_peers_and_a_parking_sleeper() {
    assert_eq!(wakes_lost::<true>(Path::RingThenPark, &[1, 1]), 0);
}

#[test]
fn no_wake_is_lost_with_two_messages_and_a_parking_sleeper() {
    assert_eq!(wakes_lost::<true>(Path::RingThenPark, &[2]), 0);
}

#[test]
fn without_the_second_look_wakes_are_lost() {
    assert!(wakes_lost::<false>(Path::Ring, &[1]) > 0, "the check cannot fail");
    assert!(wakes_lost::<false>(Path::RingThenPark, &[1]) > 0, "the check cannot fail");
}

#[test]
fn a_full_queue_hands_over_slots_and_values() {
    loom::model(|| {
        let (mut tx, mut rx) = spsc::channel::<Box<usize>>(2);
        let sender = thread::spawn(move || {
            let mut refused = 0;
            for i in 0..3 {
                refused += usize::from(tx.push(Box::new(i)).is_err());
            }
            refused
        });
        let mut received = Vec::new();
        for _ in 0..2 {
            received.extend(rx.pop().map(|message| *message));
        }
        let refused = sender.join().unwrap();
        while let Some(message) = rx.pop() {
            received.push(*message);
        }
        assert_eq!(received.len() + refused, 3);
        assert!(received.is_sorted(), "{received:?}");
    });
}
