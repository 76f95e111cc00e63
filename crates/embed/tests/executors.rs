//! Calls in executors of very different kinds, and from many threads at a time.

use std::future::Future;
use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::task::{Context, Poll, Wake, Waker};

use corelane_embed::{Builder, Cache, Error};

/// An executor of one line: every wake is a message.
fn run<F: Future>(future: F) -> (F::Output, usize) {
    struct Ring(mpsc::Sender<()>, AtomicUsize);
    impl Wake for Ring {
        fn wake(self: Arc<Self>) {
            self.1.fetch_add(1, Ordering::Relaxed);
            let _ = self.0.send(());
        }
    }
    let (sender, wakes) = mpsc::channel();
    let ring = Arc::new(Ring(sender, AtomicUsize::new(0)));
    let waker = Waker::from(Arc::clone(&ring));
    let mut future = pin!(future);
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
            return (output, ring.1.load(Ordering::Relaxed));
        }
        wakes.recv().unwrap();
    }
}

async fn work(cache: &Cache, task: usize) -> Result<i64, Error> {
    let key = format!("task:{task}");
    for _ in 0..50 {
        cache.incr(&key).await?;
        cache.incr("common").await?;
    }
    let mut batch = cache.batch();
    batch.get(&key).get("common");
    assert!(batch.send().await.iter().all(Result::is_ok));
    cache.incr_by(&key, 0).await
}

#[test]
fn a_call_wakes_its_task_at_most_once() {
    let cache = Builder::new().shards(2).start().unwrap();
    for _ in 0..100 {
        let (outcome, wakes) = run(cache.incr("a"));
        assert!(outcome.is_ok() && wakes <= 1, "{outcome:?}, {wakes} wakes");
    }
    cache.stop().unwrap();
}

#[test]
fn tokio_tasks_and_threads_share_a_cache() {
    let cache = Builder::new().shards(2).queue_slots(4).start().unwrap();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).build().unwrap();
    let threads: Vec<_> = (0..4)
        .map(|task| {
            let cache = cache.clone();
            std::thread::spawn(move || run(work(&cache, task)).0)
        })
        .collect();
    runtime.block_on(async {
        let tasks: Vec<_> = (4..40)
            .map(|task| {
                let cache = cache.clone();
                tokio::spawn(async move { work(&cache, task).await })
            })
            .collect();
        for task in tasks {
            assert_eq!(task.await.unwrap(), Ok(50));
        }
    });
    assert!(threads.into_iter().all(|thread| thread.join().unwrap() == Ok(50)));
    assert_eq!(cache.get("common").wait(), Ok(Some("2000".into())));
    cache.stop().unwrap();
}

#[test]
fn commands_over_several_shards_are_atomic_among_threads() {
    const ROUNDS: usize = 300;
    let cache = Builder::new().shards(2).start().unwrap();
    let keys = ["a", "b", "c", "d"];
    assert!(keys.iter().any(|key| cache.shard_of(key) != cache.shard_of("a")));
    cache.mset(keys.map(|key| (key, "0"))).wait().unwrap();
    std::thread::scope(|scope| {
        for writer in 0..2 {
            let cache = cache.clone();
            scope.spawn(move || {
                for round in 0..ROUNDS {
                    let value = format!("{writer}:{round}");
                    cache.mset(keys.map(|key| (key, &value))).wait().unwrap();
                }
            });
        }
        for _ in 0..2 {
            scope.spawn(|| {
                for _ in 0..ROUNDS {
                    let values = cache.mget(keys).wait().unwrap();
                    assert!(values.iter().all(|value| *value == values[0]), "torn: {values:?}");
                }
            });
        }
        // A closure sees no half of an MSET either: its two keys are on one shard.
        scope.spawn(|| {
            for _ in 0..ROUNDS {
                let pair = cache.on_owner("a", |keys| {
                    let both = [&b"a"[..], b"b", b"c", b"d"].map(|key| keys.get(key).ok().flatten());
                    both.into_iter().flatten().collect::<Vec<_>>()
                });
                let values = pair.wait().unwrap();
                assert!(values.iter().all(|value| *value == values[0]), "torn: {values:?}");
            }
        });
    });
    cache.stop().unwrap();
}
