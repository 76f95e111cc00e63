//! The mesh under loom: every interleaving of a few messages and one sleeper, and proof that the check can fail.
//!
//! Run with `RUSTFLAGS="--cfg loom" cargo test -p corelane-runtime --lib --release mesh`.
//! The two eventfds are modelled as counters under a mutex. A lost wake shows as a deadlock, which loom reports.

use loom::sync::{Arc, Condvar, Mutex};
use loom::thread;

use super::sleep::{SLEEPING, SleepState, Wake};
use super::spsc::{self, Consumer, Producer};

/// How the sleeper goes to sleep.
#[derive(Copy, Clone)]
enum Path {
    /// Waits in its ring until woken.
    Ring,
    /// Its wait in the ring times out at once and it parks.
    RingThenPark,
}

/// A shard's door with its two events, counted instead of rung.
struct Door {
    sleep: SleepState,
    events: Mutex<[usize; 2]>,
    rung: Condvar,
}

impl Door {
    fn new() -> Self {
        Self { sleep: SleepState::new(), events: Mutex::new([0; 2]), rung: Condvar::new() }
    }

    fn wake(&self) -> usize {
        let event = match self.sleep.kick() {
            Wake::None => return 0,
            Wake::Ring => 0,
            Wake::Park => 1,
        };
        self.events.lock().unwrap()[event] += 1;
        self.rung.notify_one();
        1
    }

    /// Waits for that event alone, as the real sleeper does, and drains it.
    fn sleep_on(&self, event: usize) {
        let mut events = self.events.lock().unwrap();
        while events[event] == 0 {
            events = self.rung.wait(events).unwrap();
        }
        events[event] = 0;
    }

    /// One attempt to sleep; returns how many times the shard published that it sleeps.
    fn fall_asleep<const LOOK: bool>(&self, path: Path, mut pending: impl FnMut() -> bool) -> usize {
        if !self.sleep.publish_and_look::<LOOK>(SLEEPING[0], &mut pending) {
            return 1;
        }
        let mut published = 1;
        match path {
            Path::Ring => self.sleep_on(0),
            Path::RingThenPark => {
                published = 2;
                if self.sleep.publish_and_look::<LOOK>(SLEEPING[1], &mut pending) {
                    self.sleep_on(1);
                }
            }
        }
        self.sleep.awake();
        published
    }
}

/// `messages[i]` messages come from peer `i`; the owner sleeps whenever it finds nothing.
fn exchange<const LOOK: bool>(path: Path, messages: &'static [usize]) {
    loom::model(move || {
        let door = Arc::new(Door::new());
        let mut inboxes: Vec<Consumer<usize>> = Vec::new();
        let peers: Vec<_> = messages
            .iter()
            .map(|&count| {
                let (mut tx, rx): (Producer<usize>, _) = spsc::channel(2);
                inboxes.push(rx);
                let door = Arc::clone(&door);
                thread::spawn(move || {
                    (0..count)
                        .map(|i| tx.push(i).map(|()| door.wake()).expect("never more than fit"))
                        .sum::<usize>()
                })
            })
            .collect();

        let mut received = vec![0; messages.len()];
        let mut published = 0;
        while received != messages {
            let mut found = false;
            for (inbox, next) in inboxes.iter_mut().zip(&mut received) {
                while let Some(message) = inbox.pop() {
                    assert_eq!(message, *next, "in the order sent");
                    *next += 1;
                    found = true;
                }
            }
            if !found {
                published += door.fall_asleep::<LOOK>(path, || inboxes.iter().any(|inbox| !inbox.is_empty()));
            }
        }
        assert!(inboxes.iter().all(Consumer::is_empty));
        let wakes: usize = peers.into_iter().map(|peer| peer.join().unwrap()).sum();
        assert!(wakes <= published, "{wakes} wakes for {published} sleeps");
    });
}

#[test]
fn mesh_two_peers_and_a_sleeper_in_its_ring() {
    exchange::<true>(Path::Ring, &[1, 1]);
}

#[test]
fn mesh_two_messages_and_a_sleeper_in_its_ring() {
    exchange::<true>(Path::Ring, &[2]);
}

#[test]
fn mesh_two_peers_and_a_parking_sleeper() {
    exchange::<true>(Path::RingThenPark, &[1, 1]);
}

#[test]
fn mesh_two_messages_and_a_parking_sleeper() {
    exchange::<true>(Path::RingThenPark, &[2]);
}

#[test]
#[should_panic(expected = "deadlock")]
fn mesh_without_the_second_look_a_wake_is_lost_in_the_ring() {
    exchange::<false>(Path::Ring, &[1]);
}

#[test]
#[should_panic(expected = "deadlock")]
fn mesh_without_the_second_look_a_wake_is_lost_while_parking() {
    exchange::<false>(Path::RingThenPark, &[1]);
}

#[test]
fn mesh_a_full_queue_hands_over_slots_and_values() {
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
