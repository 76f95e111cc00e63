//! Where threads that are no shards hand messages to one: a bounded queue with many producers and one consumer, and the
//! wakers of those who found it full.
//!
//! Who finds it full leaves a waker and tries once more; the shard, when it has taken something, looks for wakers. Both do
//! so behind a fence: whoever comes second sees the other (`loom_tests`, as for sleep).

use std::task::Waker;

use concurrent_queue::{ConcurrentQueue, PushError};

use super::foreign::guarded;
use super::sync::{Ordering, fence};

/// A message that did not get in.
#[derive(Debug, PartialEq, Eq)]
pub enum Refused<M> {
    /// There is no room now.
    Full(M),
    /// The shard has ended, or is about to.
    Closed(M),
}

/// The queue of one shard.
#[derive(Debug)]
pub struct Gate<M> {
    queue: ConcurrentQueue<M>,
    hungry: ConcurrentQueue<Waker>,
}

impl<M> Gate<M> {
    /// A queue for that many messages, at least one.
    #[must_use]
    pub fn new(slots: usize) -> Self {
        Self { queue: ConcurrentQueue::bounded(slots.max(1)), hungry: ConcurrentQueue::unbounded() }
    }

    /// Any thread: appends a message. The shard must be woken afterwards.
    ///
    /// # Errors
    /// The message itself, when there is no room or the gate is closed.
    pub fn push(&self, message: M) -> Result<(), Refused<M>> {
        self.queue.push(message).map_err(|error| match error {
            PushError::Full(message) => Refused::Full(message),
            PushError::Closed(message) => Refused::Closed(message),
        })
    }

    /// Any thread: has `waker` woken when there may be room. To be called after a push that found none, and before one more
    /// try: room that was made in between wakes nobody.
    pub fn wait_for_room(&self, waker: Waker) {
        // Unbounded and never closed: it takes everything.
        let _ = self.hungry.push(waker);
        fence(Ordering::SeqCst);
    }

    /// The shard: the oldest message.
    pub fn pop(&self) -> Option<M> {
        self.queue.pop().ok()
    }

    /// The shard, after it has taken messages: wakes those who wait for room.
    pub fn made_room(&self) {
        fence(Ordering::SeqCst);
        while let Ok(waker) = self.hungry.pop() {
            guarded(|| waker.wake());
        }
    }

    /// Whether there is nothing to pop.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// Lets nothing more in; what is in can still be taken.
    pub fn close(&self) {
        self.queue.close();
        self.made_room();
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::sync::Arc;
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

    #[test]
    fn fills_up_tells_who_waits_and_closes() {
        let gate = Gate::new(2);
        assert_eq!((gate.push(1), gate.push(2), gate.push(3)), (Ok(()), Ok(()), Err(Refused::Full(3))));
        let count = Arc::new(Count::default());
        gate.wait_for_room(Waker::from(Arc::clone(&count)));
        assert_eq!(gate.pop(), Some(1));
        gate.made_room();
        gate.made_room();
        assert_eq!(count.0.load(Ordering::Relaxed), 1, "woken once");
        assert_eq!(gate.push(3), Ok(()));
        gate.wait_for_room(Waker::from(Arc::clone(&count)));
        gate.close();
        assert_eq!(count.0.load(Ordering::Relaxed), 2, "nobody waits for a closed gate");
        assert_eq!(gate.push(4), Err(Refused::Closed(4)));
        assert_eq!([gate.pop(), gate.pop(), gate.pop()], [Some(2), Some(3), None]);
        assert!(gate.is_empty());
    }
}
