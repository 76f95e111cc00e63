//! A panic in a shard's thread, mostly in a command: what is printed, and the end of the process.

use std::backtrace::Backtrace;
use std::cell::RefCell;
use std::future::{Future, poll_fn};
use std::panic::{AssertUnwindSafe, PanicHookInfo, catch_unwind};
use std::pin::pin;
use std::task::Poll;

thread_local! {
    /// Message, place and backtrace of this thread's panic, noted by the hook while the stack was still there.
    static NOTED: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// Has panics of shard threads noted for [`report_and_exit`] instead of printed; other threads keep what there was.
pub(crate) fn install_hook() {
    let previous = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        let on_shard = std::thread::current().name().is_some_and(|name| name.starts_with("shard-"));
        if on_shard {
            NOTED.with_borrow_mut(|noted| *noted = Some(describe(info)));
        } else {
            previous(info);
        }
    }));
}

/// Runs a future to its end; `None` if it panicked. An executor would let go of the task without a word, and its thread sleep on.
pub(crate) async fn guarded<T>(future: impl Future<Output = T>) -> Option<T> {
    let mut future = pin!(future);
    poll_fn(|context| match catch_unwind(AssertUnwindSafe(|| future.as_mut().poll(context))) {
        Ok(poll) => poll.map(Some),
        Err(_) => Poll::Ready(None),
    })
    .await
}

/// Prints what the hook has noted and ends the process: the shard's data may be torn.
pub(crate) fn report_and_exit(shard: usize, command: Option<&'static str>) -> ! {
    let noted = NOTED.with_borrow_mut(Option::take);
    let command = command.unwrap_or("no command");
    let noted = noted.as_deref().unwrap_or("the panic left no message");
    eprintln!("corelane: panic in {command} on shard {shard}: {noted}");
    std::process::exit(1)
}

fn describe(info: &PanicHookInfo<'_>) -> String {
    let payload = info.payload();
    let message = payload.downcast_ref::<String>().map(String::as_str);
    let message = message.or_else(|| payload.downcast_ref::<&str>().copied()).unwrap_or("no message");
    let place = info.location().map_or_else(|| "an unknown place".to_owned(), ToString::to_string);
    format!("{message} at {place}\n{}", Backtrace::force_capture())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_between_two_waits_ends_the_future_that_is_guarded() {
        let executor = glommio::LocalExecutorBuilder::default().make().unwrap();
        let (whole, torn) = executor.run(async {
            let wait = || glommio::timer::sleep(std::time::Duration::from_millis(1));
            let whole = guarded(async {
                wait().await;
                7
            });
            let torn = guarded(async {
                wait().await;
                assert!(std::hint::black_box(false), "torn");
            });
            (whole.await, torn.await)
        });
        assert_eq!((whole, torn), (Some(7), None));
    }

    #[test]
    fn a_panic_is_noted_with_message_place_and_backtrace() {
        install_hook();
        let thread = std::thread::Builder::new().name("shard-7".to_owned());
        let noted = thread.spawn(|| {
            let caught = catch_unwind(|| panic!("torn {}", 42));
            assert!(caught.is_err());
            NOTED.with_borrow_mut(Option::take)
        });
        let noted = noted.unwrap().join().unwrap().unwrap();
        assert!(noted.starts_with("torn 42 at ") && noted.contains("panics.rs"), "{noted}");
        assert!(noted.contains("a_panic_is_noted"), "{noted}");
    }
}
