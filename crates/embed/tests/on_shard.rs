//! What the host's code may do on a shard's thread: closures, drops of results that nobody wants, and wakers. None of them
//! may wait for the cache, and only closures may fail their shard.

use std::future::Future;
use std::pin::pin;
use std::sync::{Arc, Mutex, mpsc};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::Duration;

use corelane_embed::{Builder, Cache, Error};

type Outcome = Result<Option<corelane_embed::Bytes>, Error>;

/// What `run` returns, unless it waits for ever.
fn in_time<T: Send + 'static>(run: impl FnOnce() -> T + Send + 'static) -> T {
    let (done, outcome) = mpsc::channel();
    thread::spawn(move || done.send(run()));
    outcome.recv_timeout(Duration::from_secs(60)).expect("it waits for ever, or has panicked")
}

/// An executor for one future in this thread, which knows nothing of caches.
fn park_on<F: Future>(future: F) -> F::Output {
    struct Unpark(Thread);
    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut future = pin!(future);
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
            return output;
        }
        thread::park();
    }
}

/// A shard that is busy until it is told, so that what comes next is done behind it.
fn busy(cache: &Cache, key: &str) -> mpsc::Sender<()> {
    let (release, released) = mpsc::channel::<()>();
    let (entered, inside) = mpsc::channel();
    let closure = cache.on_owner(key, move |_| {
        entered.send(()).unwrap();
        let _ = released.recv();
    });
    drop(closure.start());
    inside.recv().unwrap();
    release
}

/// Does something when it is dropped.
struct Last<F: FnOnce() + Send>(Option<F>);

impl<F: FnOnce() + Send> Drop for Last<F> {
    fn drop(&mut self) {
        if let Some(run) = self.0.take() {
            run();
        }
    }
}

fn last<F: FnOnce() + Send>(run: F) -> Last<F> {
    Last(Some(run))
}

/// Calls the closure when it is woken, in the waker's thread.
struct Inline<F: FnOnce() + Send>(Mutex<Option<F>>);

impl<F: FnOnce() + Send + 'static> Inline<F> {
    fn waker(run: F) -> Waker {
        Waker::from(Arc::new(Self(Mutex::new(Some(run)))))
    }
}

impl<F: FnOnce() + Send> Wake for Inline<F> {
    fn wake(self: Arc<Self>) {
        let run = self.0.lock().unwrap().take();
        if let Some(run) = run {
            run();
        }
    }
}

#[test]
fn a_closure_that_polls_for_the_cache_is_told() {
    for shards in [1, 2] {
        let cache = Builder::new().shards(shards).start().unwrap();
        let own = cache.clone();
        let outcome: (Outcome, _, _) = in_time(move || {
            let inner = own.clone();
            let closure = own.on_owner("a", move |_| {
                let mut batch = inner.batch();
                batch.get("a").get("b");
                (park_on(inner.get("a")), park_on(batch.send()), park_on(inner.get("a").start()))
            });
            closure.wait().unwrap()
        });
        let (call, batch, started) = outcome;
        assert_eq!((call, started), (Err(Error::OnShard), Err(Error::OnShard)));
        assert_eq!(batch, [Err(Error::OnShard), Err(Error::OnShard)]);
        cache.set("a", "1").wait().unwrap();
        cache.stop().unwrap();
    }
}

#[test]
fn what_has_come_can_be_taken_anywhere() {
    let cache = Builder::new().shards(1).start().unwrap();
    let started = cache.get("a").start();
    cache.set("a", "1").wait().unwrap();
    let taken = cache.on_owner("a", move |_| park_on(started));
    assert_eq!(taken.wait(), Ok(Ok(None)));
    cache.stop().unwrap();
}

#[test]
fn a_drop_of_an_unwanted_result_may_not_wait_and_may_stop() {
    let cache = Builder::new().shards(2).start().unwrap();
    let (tell, told) = mpsc::channel();
    let release = busy(&cache, "a");
    let own = cache.clone();
    let unwanted = cache.on_owner("a", move |_| {
        last(move || tell.send((own.get("a").wait(), park_on(own.get("a")))).unwrap())
    });
    drop(unwanted.start());
    release.send(()).unwrap();
    let outcome = told.recv_timeout(Duration::from_secs(60)).expect("it waits for ever");
    assert_eq!(outcome, (Err(Error::OnShard), Err(Error::OnShard)));

    let release = busy(&cache, "a");
    let own = cache.clone();
    drop(cache.on_owner("a", move |_| last(move || own.stop().unwrap())).start());
    release.send(()).unwrap();
    in_time(move || cache.stop()).unwrap();
}

#[test]
fn a_waker_may_not_wait() {
    let cache = Builder::new().shards(2).start().unwrap();
    let (tell, told) = mpsc::channel();
    let release = busy(&cache, "a");
    let own = cache.clone();
    let waker = Inline::waker(move || tell.send((own.get("a").wait(), own.batch().wait())).unwrap());
    let mut call = pin!(cache.get("a"));
    assert!(call.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
    release.send(()).unwrap();
    let outcome = told.recv_timeout(Duration::from_secs(60)).expect("it waits for ever");
    assert_eq!(outcome, (Err(Error::OnShard), Err(Error::OnShard)));
    assert_eq!(park_on(call), Ok(None));
    cache.stop().unwrap();
}

#[test]
fn drops_and_wakers_that_panic_cost_no_shard() {
    let cache = Builder::new().shards(1).queue_slots(1).start().unwrap();
    let release = busy(&cache, "a");
    let torn = || assert!(std::hint::black_box(false), "the host's own fault");
    drop(cache.on_owner("a", move |_| last(torn)).try_start().unwrap());
    // There is no room for this one: its waker is called for that, and its answer is not waited for.
    let mut full = pin!(cache.get("a"));
    assert!(full.as_mut().poll(&mut Context::from_waker(&Inline::waker(torn))).is_pending());
    release.send(()).unwrap();
    assert_eq!(cache.incr("a").wait(), Ok(1), "the shard lives");

    let release = busy(&cache, "a");
    let mut call = pin!(cache.incr("a"));
    assert!(call.as_mut().poll(&mut Context::from_waker(&Inline::waker(torn))).is_pending());
    release.send(()).unwrap();
    assert_eq!(park_on(call), Ok(2));
    assert_eq!(cache.incr("a").wait(), Ok(3), "the shard lives");

    let release = busy(&cache, "a");
    drop(cache.on_owner("a", move |_| torn()).try_start().unwrap());
    release.send(()).unwrap();
    let unrun = last(torn);
    // Sent or refused, it does not run, and its drop is the host's, here or on the shard that is no more.
    let unrun = cache.on_owner("a", move |_| drop(unrun));
    let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| unrun.wait()));
    assert!(!matches!(outcome, Ok(Ok(()))));
    let error = cache.stop().unwrap_err().to_string();
    assert_eq!(error, "shard 0 failed: panic in a closure of the embedding program");
}
