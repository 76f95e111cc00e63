//! Code that is not ours on a shard's thread, although nobody asked the shard to run it: wakers, and drops of what nobody
//! wants any more. It may fail without costing the shard; and what it can ask is whose thread it is on.

use std::any::Any;
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};

thread_local! {
    static ON_SHARD: Cell<bool> = const { Cell::new(false) };
}

/// From here on this thread is a shard's.
pub fn enter_shard() {
    ON_SHARD.set(true);
}

/// Whether this thread is a shard's: to wait here for a shard might be to wait for oneself.
#[must_use]
pub fn is_on_shard() -> bool {
    // A thread that ends has no such cells any more, and is done with being a shard.
    ON_SHARD.try_with(Cell::get).unwrap_or_default()
}

/// Runs such code; a panic of it is logged and goes no further.
#[inline]
pub(crate) fn guarded(run: impl FnOnce()) {
    if let Err(panic) = catch_unwind(AssertUnwindSafe(run)) {
        complain(panic);
    }
}

/// Lets go of something that may have a drop of its own.
pub(crate) fn let_go<T>(value: T) {
    guarded(|| drop(value));
}

#[cold]
fn complain(panic: Box<dyn Any + Send>) {
    let message = panic.downcast_ref::<String>().map(String::as_str);
    let message = message.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("no message");
    tracing::error!("a waker or a drop of the embedding program panicked: {message}");
    // What was thrown may throw when it is dropped.
    if let Err(again) = catch_unwind(AssertUnwindSafe(|| drop(panic))) {
        std::mem::forget(again);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    struct Torn;

    impl Drop for Torn {
        fn drop(&mut self) {
            assert!(std::hint::black_box(false), "torn");
        }
    }

    #[test]
    fn a_panic_goes_no_further_not_even_one_of_what_was_thrown() {
        let mut ran = false;
        guarded(|| ran = true);
        guarded(|| panic!("torn"));
        guarded(|| std::panic::panic_any(Torn));
        let_go([Torn].map(Some));
        assert!(ran);
    }

    #[test]
    fn only_a_thread_that_has_entered_is_a_shards() {
        let entered = std::thread::spawn(|| {
            enter_shard();
            is_on_shard()
        });
        assert!(entered.join().unwrap() && !is_on_shard());
    }
}
