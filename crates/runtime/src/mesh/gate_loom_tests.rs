//! The gate and the oneshot under loom: threads that are no shards, a sleeper, a full queue, an answer.
//!
//! Run with the other models, see `loom_tests`. The real queue is checked, built upon loom's atomics.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Wake, Waker};

use loom::sync::{Arc, Condvar, Mutex};
use loom::thread;

use super::gate::{Gate, Refused};
use super::oneshot::oneshot;
use super::sleep::{SLEEPING, SleepState, Wake as Kick};

/// Involuntary thread switches per interleaving.
const PREEMPTIONS_MAX: usize = 2;

/// Something to sleep on: rung so often, and how many may still ring.
struct Bell {
    state: Mutex<(usize, usize)>,
    changed: Condvar,
}

impl Bell {
    fn new(ringers: usize) -> Self {
        Self { state: Mutex::new((0, ringers)), changed: Condvar::new() }
    }

    fn ring(&self) {
        self.state.lock().unwrap().0 += 1;
        self.changed.notify_all();
    }

    fn ringer_done(&self) {
        self.state.lock().unwrap().1 -= 1;
        self.changed.notify_all();
    }

    /// False when it would never have been rung.
    fn sleep(&self) -> bool {
        let mut state = self.state.lock().unwrap();
        while state.0 == 0 && state.1 > 0 {
            state = self.changed.wait(state).unwrap();
        }
        std::mem::take(&mut state.0) > 0
    }
}

/// A bell as a waker.
struct Ringer(Arc<Bell>);

impl Wake for Ringer {
    fn wake(self: std::sync::Arc<Self>) {
        self.0.ring();
    }
}

fn waker(bell: &Arc<Bell>) -> Waker {
    Waker::from(std::sync::Arc::new(Ringer(Arc::clone(bell))))
}

fn model(check: impl Fn(&AtomicUsize) + Send + Sync + 'static) -> usize {
    let lost = std::sync::Arc::new(AtomicUsize::new(0));
    let lost_in_model = std::sync::Arc::clone(&lost);
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(PREEMPTIONS_MAX);
    model.check(move || check(&lost_in_model));
    lost.load(Ordering::Relaxed)
}

/// A visitor that has left something at the gate, and wakes the shard. It rings no more.
fn knock(sleep: &SleepState, bell: &Bell) {
    if sleep.kick() != Kick::None {
        bell.ring();
    }
    bell.ringer_done();
}

/// A shard that sleeps until somebody knocks, unless there is something at the gate; counts sleeps that nobody would have ended.
fn rest<const LOOK: bool, M>(gate: &Gate<M>, sleep: &SleepState, bell: &Bell, lost: &AtomicUsize) {
    if sleep.publish_and_look::<LOOK>(SLEEPING[0], || !gate.is_empty()) {
        let woken = bell.sleep();
        lost.fetch_add(usize::from(!woken), Ordering::Relaxed);
        sleep.awake();
    }
}

/// Two threads send a message each to a shard that sleeps when it finds none; returns the wakes lost.
fn visits_lost<const LOOK: bool>() -> usize {
    model(|lost| {
        let gate = Arc::new(Gate::new(2));
        let sleep = Arc::new(SleepState::new());
        let bell = Arc::new(Bell::new(2));
        let visitors: Vec<_> = (0..2)
            .map(|message| {
                let (gate, sleep, bell) = (Arc::clone(&gate), Arc::clone(&sleep), Arc::clone(&bell));
                thread::spawn(move || {
                    assert_eq!(gate.push(message), Ok(()));
                    knock(&sleep, &bell);
                })
            })
            .collect();
        let mut received = Vec::new();
        while received.len() < 2 {
            if let Some(message) = gate.pop() {
                received.push(message);
            } else {
                rest::<LOOK, _>(&gate, &sleep, &bell, lost);
            }
        }
        received.sort_unstable();
        assert_eq!(received, [0, 1]);
        for visitor in visitors {
            visitor.join().unwrap();
        }
    })
}

#[test]
fn no_visit_is_slept_over() {
    assert_eq!(visits_lost::<true>(), 0);
}

#[test]
fn without_the_second_look_visits_are_slept_over() {
    assert!(visits_lost::<false>() > 0, "the check cannot fail");
}

/// A thread drops what it has asked for, while the shard answers it, or goes to sleep; returns the wakes lost.
fn leaves_lost<const LOOK: bool>() -> usize {
    model(|lost| {
        let gate = Arc::new(Gate::<()>::new(1));
        let sleep = Arc::new(SleepState::new());
        let bell = Arc::new(Bell::new(1));
        let (answerer, mut answer) = oneshot::<Box<usize>>();
        let visitor = {
            let (gate, sleep, bell) = (Arc::clone(&gate), Arc::clone(&sleep), Arc::clone(&bell));
            thread::spawn(move || {
                assert!(answer.abandon(), "it has not been answered");
                gate.leave();
                knock(&sleep, &bell);
            })
        };
        while !gate.take_left() {
            rest::<LOOK, _>(&gate, &sleep, &bell, lost);
        }
        assert!(answerer.is_abandoned(), "the flag comes behind the word");
        answerer.send(Box::new(7));
        visitor.join().unwrap();
    })
}

#[test]
fn nobody_who_leaves_is_slept_over() {
    assert_eq!(leaves_lost::<true>(), 0);
}

#[test]
fn without_the_second_look_who_leaves_is_slept_over() {
    assert!(leaves_lost::<false>() > 0, "the check cannot fail");
}

/// A thread that finds the gate full waits until the shard has made room; returns how often it would have waited for ever.
fn hungry_lost<const TELL: bool>() -> usize {
    model(|lost| {
        let gate = Arc::new(Gate::new(1));
        assert_eq!(gate.push(0), Ok(()));
        let bell = Arc::new(Bell::new(1));
        let visitor = {
            let (gate, bell) = (Arc::clone(&gate), Arc::clone(&bell));
            thread::spawn(move || {
                let mut lost = 0;
                let mut message = 1;
                while let Err(Refused::Full(back)) = gate.push(message) {
                    gate.wait_for_room(waker(&bell));
                    let Err(Refused::Full(back)) = gate.push(back) else { break };
                    message = back;
                    lost += usize::from(!bell.sleep());
                }
                lost
            })
        };
        assert_eq!(gate.pop(), Some(0));
        if TELL {
            gate.made_room();
        }
        bell.ringer_done();
        lost.fetch_add(visitor.join().unwrap(), Ordering::Relaxed);
        assert_eq!(gate.pop(), Some(1));
    })
}

#[test]
fn who_waits_for_room_is_told() {
    assert_eq!(hungry_lost::<true>(), 0);
}

#[test]
fn without_being_told_who_waits_for_room_waits_for_ever() {
    assert!(hungry_lost::<false>() > 0, "the check cannot fail");
}

/// A receiver that polls twice with different wakers while the value comes, or the sender goes.
fn answer(sends: bool) {
    let lost = model(move |lost| {
        let (answerer, mut answer) = oneshot::<Box<usize>>();
        let bells = [Arc::new(Bell::new(1)), Arc::new(Bell::new(1))];
        let sender = {
            let bells = [Arc::clone(&bells[0]), Arc::clone(&bells[1])];
            thread::spawn(move || {
                if sends {
                    answerer.send(Box::new(7));
                } else {
                    drop(answerer);
                }
                bells.iter().for_each(|bell| bell.ringer_done());
            })
        };
        let mut polls = 0;
        let value = loop {
            let bell = &bells[polls.min(1)];
            match answer.poll(&mut Context::from_waker(&waker(bell))) {
                Poll::Ready(value) => break value,
                Poll::Pending if polls >= 1 => {
                    lost.fetch_add(usize::from(!bell.sleep()), Ordering::Relaxed);
                }
                Poll::Pending => {}
            }
            polls += 1;
        };
        assert_eq!(value.map(|value| *value), sends.then_some(7));
        sender.join().unwrap();
    });
    assert_eq!(lost, 0, "the last waker was not woken");
}

#[test]
fn the_answer_wakes_the_last_waker() {
    answer(true);
}

#[test]
fn a_lost_answer_wakes_the_last_waker() {
    answer(false);
}
