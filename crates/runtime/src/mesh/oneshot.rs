//! One value from a shard to whoever waits for it, in a thread or in any executor.
//!
//! ```text
//!   state   VALUE   the value is there, or will never be
//!           WAKER   the waker is there and not being changed
//!           GONE    the receiver does not want the value any more
//! ```
//! The receiver owns the waker's cell while `WAKER` is not set, the sender from the moment it sets `VALUE` and finds `WAKER`.
//! Either sets its bit by one read-modify-write and learns by it whether the other came first.

use std::fmt;
use std::task::{Context, Poll, Waker};

use super::foreign::{guarded, let_go};
use super::sync::{Arc, AtomicU8, Ordering, UnsafeCell};

const VALUE: u8 = 1;
const WAKER: u8 = 2;
const GONE: u8 = 4;

struct Slot<T> {
    state: AtomicU8,
    value: UnsafeCell<Option<T>>,
    waker: UnsafeCell<Option<Waker>>,
}

// SAFETY: each cell is touched by the one end that owns it at that moment, as told at the top, and handed over with
// acquire and release. The value moves between threads, hence `T: Send`; wakers may be used from any.
unsafe impl<T: Send> Sync for Slot<T> {}
// SAFETY: as above; the slot owns what is in it.
unsafe impl<T: Send> Send for Slot<T> {}

/// Makes the two ends.
#[must_use]
pub fn oneshot<T: Send>() -> (Answerer<T>, Answer<T>) {
    let slot = Arc::new(Slot {
        state: AtomicU8::new(0),
        value: UnsafeCell::new(None),
        waker: UnsafeCell::new(None),
    });
    (Answerer { slot: Some(Arc::clone(&slot)) }, Answer { slot })
}

/// The sending end. Dropped without a value, it tells the receiver that none will come.
pub struct Answerer<T: Send> {
    /// `None` once it has been used.
    slot: Option<Arc<Slot<T>>>,
}

impl<T: Send> Answerer<T> {
    /// Sends the value and wakes the receiver if it waits; a value that nobody wants is dropped. A panic of the waker or of that
    /// drop is logged.
    pub fn send(mut self, value: T) {
        self.complete(Some(value));
    }

    /// Whether the receiver has said that it wants no value any more.
    #[must_use]
    pub fn is_abandoned(&self) -> bool {
        self.slot.as_ref().is_some_and(|slot| slot.state.load(Ordering::Acquire) & GONE != 0)
    }

    fn complete(&mut self, value: Option<T>) {
        let Some(slot) = self.slot.take() else { return };
        slot.value.with_mut(|cell| {
            // SAFETY: the receiver does not touch the value before it has seen `VALUE`, which is set below, once.
            unsafe { *cell = value };
        });
        if slot.state.fetch_or(VALUE, Ordering::AcqRel) & WAKER != 0 {
            let waker = slot.waker.with_mut(|cell| {
                // SAFETY: `WAKER` was set, so the receiver had left the cell, and having set `VALUE` makes it ours.
                let waker = unsafe { &mut *cell };
                waker.take()
            });
            guarded(|| waker.into_iter().for_each(Waker::wake));
        }
        let_go(slot);
    }
}

impl<T: Send> Drop for Answerer<T> {
    fn drop(&mut self) {
        self.complete(None);
    }
}

/// The receiving end. Dropping it leaves the sender undisturbed; one that is to know calls [`Self::abandon`] before.
pub struct Answer<T: Send> {
    slot: Arc<Slot<T>>,
}

impl<T: Send> Answer<T> {
    /// The value, once; `None` when the sender is gone without one, or the value has been taken.
    pub fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Option<T>> {
        let state = &self.slot.state;
        if state.load(Ordering::Acquire) == 0 {
            // The first time: the cell is ours.
        } else if state.fetch_and(!WAKER, Ordering::AcqRel) & VALUE != 0 {
            return Poll::Ready(self.take());
        }
        self.slot.waker.with_mut(|cell| {
            // SAFETY: `WAKER` is not set and was not when `VALUE` was last looked at, so the sender stays away from the
            // cell until it is set below.
            let waker = unsafe { &mut *cell };
            match waker {
                Some(waker) => waker.clone_from(cx.waker()),
                None => *waker = Some(cx.waker().clone()),
            }
        });
        if state.fetch_or(WAKER, Ordering::AcqRel) & VALUE != 0 {
            return Poll::Ready(self.take());
        }
        Poll::Pending
    }

    /// Tells the sender that nobody will ask for the value any more. True if it comes before the value.
    pub fn abandon(&mut self) -> bool {
        self.slot.state.fetch_or(GONE, Ordering::AcqRel) & VALUE == 0
    }

    fn take(&mut self) -> Option<T> {
        self.slot.value.with_mut(|cell| {
            // SAFETY: `VALUE` has been seen with acquire: the sender is done with the value.
            let value = unsafe { &mut *cell };
            value.take()
        })
    }
}

impl<T: Send> fmt::Debug for Answerer<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Answerer").finish_non_exhaustive()
    }
}

impl<T: Send> fmt::Debug for Answer<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Answer").finish_non_exhaustive()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::sync::atomic::AtomicUsize;
    use std::task::Wake;

    use super::*;

    #[derive(Default)]
    struct Count(AtomicUsize);

    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn counted() -> (Arc<Count>, Waker) {
        let count = Arc::new(Count::default());
        (Arc::clone(&count), Waker::from(count))
    }

    #[test]
    fn the_last_waker_is_woken_once() {
        let ((first, one), (second, two)) = (counted(), counted());
        let (answerer, mut answer) = oneshot();
        assert_eq!(answer.poll(&mut Context::from_waker(&one)), Poll::Pending);
        assert_eq!(answer.poll(&mut Context::from_waker(&two)), Poll::Pending);
        answerer.send(7);
        let woken = [&first, &second].map(|count| count.0.load(Ordering::Relaxed));
        assert_eq!(woken, [0, 1]);
        assert_eq!(answer.poll(&mut Context::from_waker(&one)), Poll::Ready(Some(7)));
        assert_eq!(answer.poll(&mut Context::from_waker(&one)), Poll::Ready(None));
    }

    #[test]
    fn a_sender_that_is_dropped_says_so() {
        let (count, waker) = counted();
        let (answerer, mut answer) = oneshot::<u8>();
        assert_eq!(answer.poll(&mut Context::from_waker(&waker)), Poll::Pending);
        drop(answerer);
        assert_eq!(count.0.load(Ordering::Relaxed), 1);
        assert_eq!(answer.poll(&mut Context::from_waker(&waker)), Poll::Ready(None));
        let (answerer, mut answer) = oneshot();
        assert!(!answerer.is_abandoned());
        assert!(answer.abandon());
        drop(answer);
        assert!(answerer.is_abandoned());
        answerer.send(vec![1]);
        let (answerer, mut answer) = oneshot();
        answerer.send(7);
        assert!(!answer.abandon(), "there is nothing left to be told");
    }
}
