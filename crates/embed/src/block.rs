//! Waiting in a thread, without an executor: the thread's own waker unparks it, unless it is still looking.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

/// How long an answer is looked for before the thread sleeps: a shard that has to be woken first may have answered by then.
const LOOK_MAX: Duration = Duration::from_micros(30);
/// Failures that use up all confidence; a success restores two.
const CONFIDENCE_MAX: u8 = 8;
/// Waits without a look before it is tried again.
const RETRY_INTERVAL: u8 = 32;

/// What is waited for.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum Wait {
    /// One answer. To look for it a moment, yielding, saves the caller a sleep and the shard a wake, which in a virtual machine
    /// is most of a call's time.
    Short,
    /// So much work that the caller would only burn what the shard needs.
    Long,
}

/// A thread that waits.
struct Waiter {
    thread: Thread,
    woken: AtomicBool,
}

impl Wake for Waiter {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.woken.store(true, Ordering::Release);
        self.thread.unpark();
    }
}

impl Waiter {
    fn of_this_thread() -> Arc<Self> {
        Arc::new(Self { thread: thread::current(), woken: AtomicBool::new(false) })
    }

    fn is_woken(&self) -> bool {
        self.woken.load(Ordering::Acquire)
    }

    /// Looks for the wake for a while; true when it has come.
    fn look(&self) -> bool {
        let began = Instant::now();
        loop {
            // Whoever else wants this CPU, perhaps the shard, gets it.
            thread::yield_now();
            if self.is_woken() {
                return true;
            }
            if began.elapsed() > LOOK_MAX {
                return false;
            }
        }
    }
}

/// How well looking went in this thread.
#[derive(Copy, Clone, Debug)]
struct Patience {
    confidence: u8,
    skipped: u8,
}

impl Patience {
    const NEW: Self = Self { confidence: CONFIDENCE_MAX, skipped: 0 };

    /// Whether to look this time.
    fn is_worth_it(&mut self) -> bool {
        if self.confidence > 0 {
            return true;
        }
        self.skipped += 1;
        if self.skipped < RETRY_INTERVAL {
            return false;
        }
        self.skipped = 0;
        true
    }

    fn note(&mut self, came: bool) {
        self.confidence = match came {
            true => (self.confidence + 2).min(CONFIDENCE_MAX),
            false => self.confidence.saturating_sub(1),
        };
    }
}

thread_local! {
    static WAITER: (Arc<Waiter>, Waker) = {
        let waiter = Waiter::of_this_thread();
        (Arc::clone(&waiter), Waker::from(waiter))
    };
    static PATIENCE: Cell<Patience> = const { Cell::new(Patience::NEW) };
}

/// Polls until it is ready; in between it looks for the wake for a moment, if that is likely to pay, and sleeps.
pub(crate) fn block_on<T>(wait: Wait, mut poll: impl FnMut(&mut Context<'_>) -> Poll<T>) -> T {
    WAITER.with(|(waiter, waker)| {
        let mut context = Context::from_waker(waker);
        loop {
            // Before the waker is handed out, which releases it: a wake for this poll comes later and is not lost.
            waiter.woken.store(false, Ordering::Relaxed);
            if let Poll::Ready(value) = poll(&mut context) {
                return value;
            }
            if wait == Wait::Short {
                look_if_worth_it(waiter);
            }
            while !waiter.is_woken() {
                // May return early, not least for a wake that was seen without it.
                thread::park();
            }
        }
    })
}

fn look_if_worth_it(waiter: &Waiter) {
    let mut patience = PATIENCE.get();
    if patience.is_worth_it() {
        patience.note(waiter.look());
    }
    PATIENCE.set(patience);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Ready at the second poll, for which a wake comes after that time.
    fn woken_after(wait: Wait, time: Duration) -> u32 {
        let mut polls = 0;
        block_on(wait, |context| {
            polls += 1;
            if polls > 1 {
                return Poll::Ready(polls);
            }
            let waker = context.waker().clone();
            thread::spawn(move || {
                thread::sleep(time);
                waker.wake();
            });
            Poll::Pending
        })
    }

    #[test]
    fn it_polls_again_once_it_is_woken_and_not_before() {
        for wait in [Wait::Short, Wait::Long] {
            for time in [Duration::ZERO, Duration::from_millis(5)] {
                assert_eq!(woken_after(wait, time), 2, "{wait:?} {time:?}");
                // What an earlier unpark has left behind ends no sleep for good.
                thread::current().unpark();
                assert_eq!(woken_after(wait, time), 2, "{wait:?} {time:?}");
            }
        }
    }

    #[test]
    fn a_wake_within_a_poll_is_not_lost() {
        let mut polls = 0;
        block_on(Wait::Short, |context| {
            polls += 1;
            context.waker().wake_by_ref();
            if polls < 3 { Poll::Pending } else { Poll::Ready(()) }
        });
    }

    #[test]
    fn it_looks_while_that_pays_and_tries_again_later() {
        let mut patience = Patience::NEW;
        for _ in 0..CONFIDENCE_MAX {
            assert!(patience.is_worth_it());
            patience.note(false);
        }
        for _ in 0..3 {
            assert!((1..RETRY_INTERVAL).all(|_| !patience.is_worth_it()));
            assert!(patience.is_worth_it());
            patience.note(false);
        }
        assert!((1..RETRY_INTERVAL).all(|_| !patience.is_worth_it()));
        assert!(patience.is_worth_it());
        patience.note(true);
        assert!(patience.is_worth_it());
    }
}
