//! Shards that fail by a panic: nobody waits for ever, and everybody is told why.

use std::sync::mpsc;
use std::time::Duration;

use corelane_embed::{Builder, Cache, Error};

/// Two shards, and a key on each.
fn pair() -> (Cache, String, String) {
    let cache = Builder::new().shards(2).queue_slots(4096).start().unwrap();
    let key_on = |shard| (0..).map(|n| format!("k{n}")).find(|key| cache.shard_of(key) == shard).unwrap();
    let keys = (key_on(0), key_on(1));
    (cache, keys.0, keys.1)
}

/// What `run` returns, unless it waits for ever.
fn in_time<T: Send + 'static>(run: impl FnOnce() -> T + Send + 'static) -> T {
    let (done, outcome) = mpsc::channel();
    std::thread::spawn(move || done.send(run()));
    outcome.recv_timeout(Duration::from_secs(60)).expect("it waits for ever, or has panicked")
}

#[test]
fn closures_that_wait_for_intents_of_a_shard_that_fails_are_told() {
    for _ in 0..8 {
        let (cache, healthy, doomed) = pair();
        let own = cache.clone();
        let outcomes = in_time(move || {
            let wide = || cache.mset([(&healthy, "1"), (&doomed, "1")]).start();
            let before: Vec<_> = (0..200).map(|_| wide()).collect();
            let closures: Vec<_> =
                (0..50).map(|n| cache.on_owner(&doomed, move |_| assert!(n != 10)).start()).collect();
            let after: Vec<_> = (0..200).map(|_| wide()).collect();
            let outcomes: Vec<_> = closures.into_iter().map(|closure| closure.wait()).collect();
            before.into_iter().chain(after).for_each(|wide| drop(wide.wait()));
            outcomes
        });
        assert_eq!(outcomes[10], Err(Error::Panicked));
        assert!(outcomes[..10].iter().all(Result::is_ok), "{outcomes:?}");
        let failed = Err(Error::ShardFailed { shard: 1 });
        assert!(outcomes[11..].iter().all(|outcome| *outcome == failed), "{outcomes:?}");
        assert!(own.stop().is_err());
    }
}

#[test]
fn a_panic_while_the_cache_stops_is_told_as_one() {
    let (cache, _, doomed) = pair();
    let (release, released) = mpsc::channel::<()>();
    let (entered, inside) = mpsc::channel();
    let busy = cache.on_owner(&doomed, move |_| {
        entered.send(()).unwrap();
        released.recv().unwrap();
    });
    let busy = busy.start();
    inside.recv().unwrap();
    // The turn that the closure is in ends with it: what comes now is for the shard that stops.
    let torn = cache.on_owner(&doomed, |_| panic!("the host's own fault")).start();
    let behind: Vec<_> = (0..100).map(|_| cache.incr(&doomed).start()).collect();
    let stopper = cache.clone();
    let (stopping, begun) = mpsc::channel();
    let stopped = std::thread::spawn(move || {
        stopping.send(()).unwrap();
        stopper.stop()
    });
    begun.recv().unwrap();
    std::thread::sleep(Duration::from_millis(50));
    release.send(()).unwrap();
    busy.wait().unwrap();
    let outcomes = in_time(move || {
        let torn = torn.wait();
        (torn, behind.into_iter().map(|call| call.wait()).collect::<Vec<_>>())
    });
    assert_eq!(outcomes.0, Err(Error::Panicked));
    assert!(
        outcomes.1.iter().all(|outcome| *outcome == Err(Error::ShardFailed { shard: 1 })),
        "{outcomes:?}"
    );
    let error = stopped.join().unwrap().unwrap_err().to_string();
    assert_eq!(error, "shard 1 failed: panic in a closure of the embedding program");
}

#[test]
fn commands_without_keys_run_where_a_shard_lives() {
    let (cache, doomed, healthy) = pair();
    let torn = cache.on_owner(&doomed, |_| panic!("the host's own fault"));
    assert_eq!(torn.wait(), Err(Error::Panicked));
    assert_eq!(cache.get(&doomed).wait(), Err(Error::ShardFailed { shard: 0 }));
    for words in [&["PING"][..], &["TIME"], &["COMMAND", "COUNT"]] {
        let reply = cache.execute(words).wait();
        assert!(reply.is_ok(), "{words:?}: {reply:?}");
    }
    assert_eq!(cache.mget([""; 0]).wait(), Ok(vec![]));
    let mut batch = cache.batch();
    batch.execute(&["PING"]).incr(&healthy).get(&doomed).execute(&["ECHO", "there"]);
    let replies: Vec<bool> = batch.wait().unwrap().iter().map(Result::is_ok).collect();
    assert_eq!(replies, [true, true, false, true]);
    assert!(cache.stop().is_err());
}

#[test]
fn a_cache_of_failed_shards_says_so() {
    let (cache, first, second) = pair();
    for key in [&first, &second] {
        assert_eq!(cache.on_owner(key, |_| panic!("the host's own fault")).wait(), Err(Error::Panicked));
    }
    let outcome = in_time({
        let cache = cache.clone();
        move || cache.execute(&["PING"]).wait()
    });
    assert_eq!(outcome, Err(Error::ShardFailed { shard: 0 }));
    assert!(cache.stop().is_err());
}
