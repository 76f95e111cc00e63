//! Where threads that are no shards hand messages to one: a bounded queue with many producers and one consumer, and the
//! wakers of those who found it full.
//!
//! Who finds it full leaves a waker and tries once more; the shard, when it has taken something, looks for wakers. Both do
//! so behind a fence: whoever comes second sees the other (`loom_tests`, as for sleep).
//!
//! Who has sent something and does not want the answer any more raises a flag beside the queue, which has always room.

use std::task::Waker;

use concurrent_queue::{ConcurrentQueue, PushError};

use super::foreign::guarded;
use super::sync::{AtomicU8, Ordering, fence};

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
    /// 1 from when a visitor has left until the shard has looked.
    left: AtomicU8,
}

impl<M> Gate<M> {
    /// A queue for that many messages, at least one.
    #[must_use]
    pub fn new(slots: usize) -> Self {
        let queue = ConcurrentQueue::bounded(slots.max(1));
        Self { queue, hungry: ConcurrentQueue::unbounded(), left: AtomicU8::new(0) }
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

    /// Any thread: somebody who waited for an answer does so no more. The shard must be woken afterwards.
    pub fn leave(&self) {
        self.left.store(1, Ordering::Release);
    }

    /// The shard: whether somebody has left since the last call.
    pub fn take_left(&self) -> bool {
        self.left.load(Ordering::Relaxed) != 0 && self.left.swap(0, Ordering::Acquire) != 0
    }

    /// Whether there is nothing to pop, and nobody has left.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.queue.is_empty() && self.left.load(Ordering::Relaxed) == 0
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

    #[test]
    fn who_leaves_is_noticed_once() {
        let gate = Gate::<u8>::new(1);
        assert!(!gate.take_left());
        gate.leave();
        gate.leave();
        assert!(!gate.is_empty(), "there is something to look at");
        assert!(gate.take_left() && !gate.take_left() && gate.is_empty());
    }
}
