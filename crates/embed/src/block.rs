//! Waiting in a thread, without an executor: the thread's own waker unparks it.

use std::cell::Cell;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.0.unpark();
    }
}

thread_local! {
    static WAKER: Waker = Waker::from(Arc::new(Unpark(thread::current())));
    /// A shard's thread is running a closure of the host.
    static ON_SHARD: Cell<bool> = const { Cell::new(false) };
}

/// Polls until it is ready, asleep in between.
pub(crate) fn block_on<T>(mut poll: impl FnMut(&mut Context<'_>) -> Poll<T>) -> T {
    WAKER.with(|waker| {
        let mut context = Context::from_waker(waker);
        loop {
            if let Poll::Ready(value) = poll(&mut context) {
                return value;
            }
            // May return early: the next poll finds out.
            thread::park();
        }
    })
}

/// Whether this thread is a shard's.
pub(crate) fn is_on_shard() -> bool {
    ON_SHARD.get()
}

/// Runs a closure of the host on a shard's thread.
pub(crate) fn on_shard<R>(run: impl FnOnce() -> R) -> R {
    /// Also after a panic, although the thread ends then.
    struct Leave;
    impl Drop for Leave {
        fn drop(&mut self) {
            ON_SHARD.set(false);
        }
    }
    ON_SHARD.set(true);
    let _leave = Leave;
    run()
}
