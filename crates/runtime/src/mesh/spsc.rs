//! A bounded queue with one producer and one consumer: Lamport's ring with remembered indices.
//!
//! Either side owns one index and only reads the other's; it remembers the last value it read, so a batch of pushes or
//! pops touches the other core's cache line once. The indices count up for ever and wrap; their difference is the length.
//!
//! ```text
//!   slots   [ . . x x x x . . ]      head: next to pop  (written by the consumer)
//!                 ^head   ^tail      tail: next to fill (written by the producer)
//! ```

use std::fmt;
use std::mem::MaybeUninit;

use super::sync::{Arc, AtomicUsize, Ordering, Padded, UnsafeCell};

/// Makes a queue of at least `slots` messages (rounded up to a power of two, at least 2).
#[must_use]
pub fn channel<T: Send>(slots: usize) -> (Producer<T>, Consumer<T>) {
    let slots = slots.max(2).next_power_of_two();
    let ring = Arc::new(Ring {
        head: Padded(AtomicUsize::new(0)),
        tail: Padded(AtomicUsize::new(0)),
        slots: (0..slots).map(|_| UnsafeCell::new(MaybeUninit::uninit())).collect(),
    });
    let producer = Producer { ring: Arc::clone(&ring), tail: 0, head_seen: 0 };
    (producer, Consumer { ring, head: 0, tail_seen: 0 })
}

struct Ring<T> {
    head: Padded<AtomicUsize>,
    tail: Padded<AtomicUsize>,
    slots: Box<[UnsafeCell<MaybeUninit<T>>]>,
}

// SAFETY: a slot is touched by the producer only while it lies outside head..tail and by the consumer only while it lies
// inside; both indices are handed over with release/acquire, so no slot is ever touched by two threads at once. The
// values themselves move between threads, hence `T: Send`.
unsafe impl<T: Send> Sync for Ring<T> {}
// SAFETY: as above; the ring owns the values that are in it.
unsafe impl<T: Send> Send for Ring<T> {}

impl<T> Ring<T> {
    #[inline]
    fn slot(&self, index: usize) -> &UnsafeCell<MaybeUninit<T>> {
        &self.slots[index & (self.slots.len() - 1)]
    }
}

impl<T> Drop for Ring<T> {
    fn drop(&mut self) {
        let tail = self.tail.0.load(Ordering::Relaxed);
        let mut head = self.head.0.load(Ordering::Relaxed);
        while head != tail {
            self.slot(head).with_mut(|slot| {
                // SAFETY: `&mut self` means both ends are gone, so nobody else touches the slot.
                let slot = unsafe { &mut *slot };
                // SAFETY: slots in head..tail were filled and never popped, and each is visited once.
                unsafe { slot.assume_init_drop() };
            });
            head = head.wrapping_add(1);
        }
    }
}

/// The sending end.
pub struct Producer<T> {
    ring: Arc<Ring<T>>,
    tail: usize,
    head_seen: usize,
}

impl<T: Send> Producer<T> {
    /// Appends a message; gives it back when the queue is full.
    ///
    /// # Errors
    /// The message itself, when the consumer has not yet made room.
    #[inline]
    pub fn push(&mut self, message: T) -> Result<(), T> {
        if self.room() == 0 {
            return Err(message);
        }
        self.ring.slot(self.tail).with_mut(|slot| {
            // SAFETY: `room` saw the consumer leave this slot (acquire), and it comes back only after the store below.
            unsafe { *slot = MaybeUninit::new(message) };
        });
        self.tail = self.tail.wrapping_add(1);
        self.ring.tail.0.store(self.tail, Ordering::Release);
        Ok(())
    }

    /// How many messages fit at least; looks at the consumer's index only when the remembered one says "full".
    #[inline]
    pub fn room(&mut self) -> usize {
        let slots = self.slots();
        if self.tail.wrapping_sub(self.head_seen) == slots {
            self.head_seen = self.ring.head.0.load(Ordering::Acquire);
        }
        slots - self.tail.wrapping_sub(self.head_seen)
    }

    /// Capacity in messages.
    #[must_use]
    pub fn slots(&self) -> usize {
        self.ring.slots.len()
    }
}

/// The receiving end.
pub struct Consumer<T> {
    ring: Arc<Ring<T>>,
    head: usize,
    tail_seen: usize,
}

impl<T: Send> Consumer<T> {
    /// Takes the oldest message.
    #[inline]
    pub fn pop(&mut self) -> Option<T> {
        if self.head == self.tail_seen {
            self.tail_seen = self.ring.tail.0.load(Ordering::Acquire);
            if self.head == self.tail_seen {
                return None;
            }
        }
        let message = self.ring.slot(self.head).with_mut(|slot| {
            // SAFETY: head < tail was read with acquire, so the producer filled the slot and will not touch it again
            // before the store below.
            let filled = unsafe { &*slot };
            // SAFETY: the slot is filled, and the store below makes sure that it is read out once only.
            unsafe { filled.assume_init_read() }
        });
        self.head = self.head.wrapping_add(1);
        self.ring.head.0.store(self.head, Ordering::Release);
        Some(message)
    }

    /// True when there was nothing to pop at the moment of the call.
    #[inline]
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.head == self.tail_seen && self.head == self.ring.tail.0.load(Ordering::Acquire)
    }

    /// Capacity in messages.
    #[must_use]
    pub fn slots(&self) -> usize {
        self.ring.slots.len()
    }
}

impl<T> fmt::Debug for Producer<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Producer").field("tail", &self.tail).finish_non_exhaustive()
    }
}

impl<T> fmt::Debug for Consumer<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Consumer").field("head", &self.head).finish_non_exhaustive()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn fills_up_gives_back_and_keeps_order() {
        let (mut tx, mut rx) = channel::<u32>(3);
        assert_eq!((tx.slots(), rx.slots()), (4, 4));
        assert!(rx.is_empty());
        for round in 0..10u32 {
            for i in 0..4 {
                assert_eq!(tx.push(round * 4 + i), Ok(()));
            }
            assert_eq!(tx.push(99), Err(99));
            assert_eq!(tx.room(), 0);
            assert!(!rx.is_empty());
            for i in 0..4 {
                assert_eq!(rx.pop(), Some(round * 4 + i));
            }
            assert_eq!(rx.pop(), None);
            assert!(rx.is_empty());
            assert_eq!(tx.room(), 4);
        }
    }

    #[test]
    fn what_is_left_in_the_queue_is_dropped_once() {
        struct Counted(Arc<AtomicUsize>);
        impl Drop for Counted {
            fn drop(&mut self) {
                self.0.fetch_add(1, Ordering::Relaxed);
            }
        }
        let drops = Arc::new(AtomicUsize::new(0));
        let (mut tx, mut rx) = channel(4);
        for _ in 0..4 {
            assert!(tx.push(Counted(Arc::clone(&drops))).is_ok());
        }
        drop(rx.pop());
        assert_eq!(drops.load(Ordering::Relaxed), 1);
        drop(tx);
        drop(rx);
        assert_eq!(drops.load(Ordering::Relaxed), 4);
    }

    #[test]
    fn two_threads_pass_everything_in_order() {
        const MESSAGES: usize = if cfg!(miri) { 200 } else { 100_000 };
        let (mut tx, mut rx) = channel(8);
        let sender = std::thread::spawn(move || {
            for i in 0..MESSAGES {
                let mut message = Box::new(i);
                while let Err(back) = tx.push(message) {
                    message = back;
                    std::thread::yield_now();
                }
            }
        });
        for expected in 0..MESSAGES {
            let got = loop {
                match rx.pop() {
                    Some(message) => break *message,
                    None => std::thread::yield_now(),
                }
            };
            assert_eq!(got, expected);
        }
        assert_eq!(rx.pop(), None);
        assert!(sender.join().is_ok());
    }
}
