//! Calls whose answer nobody wants any more, or can have: what they had asked for happens, but they wait for no keys.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Waker};
use std::time::{Duration, Instant};

use corelane_embed::{Builder, Cache, Error, Frame};

fn words(line: &str) -> Vec<&str> {
    line.split(' ').collect()
}

fn run(cache: &Cache, line: &str) -> Result<Frame, Error> {
    cache.execute(&words(line)).wait()
}

/// Keys that cover the shards, and one of them for each way in which a command may wait there.
fn on_shards(test: impl Fn(&Cache, [&str; 2])) {
    for shards in [1, 2, 5] {
        let cache = Builder::new().shards(shards).start().unwrap();
        for keys in [["a", "b"], ["b", "a"], ["a", "{a}2"]] {
            test(&cache, keys);
            cache.flush().wait().unwrap();
        }
        cache.stop().unwrap();
    }
}

/// Every shard has had a turn since this was called: it sees who has left before.
fn turn(cache: &Cache) {
    cache.len().wait().unwrap();
}

/// Returns when so many keys are waited for: a call that is still on its way there would take what is pushed meanwhile, as it may.
fn until_awaited(cache: &Cache, keys: usize) {
    let (start, wanted) = (Instant::now(), format!("\ntotal_blocking_keys:{keys}\r"));
    while !format!("{:?}", run(cache, "INFO clients")).contains(&wanted.escape_default().to_string()) {
        assert!(start.elapsed() < Duration::from_secs(10), "{keys} keys were never waited for");
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn a_dropped_call_waits_for_no_keys() {
    on_shards(|cache, [first, second]| {
        for (line, keys) in [
            (format!("BLPOP {first} 0"), 1),
            (format!("BLPOP {first} {second} 0"), 2),
            (format!("BLMOVE {second} {first} LEFT LEFT 0"), 1),
            (format!("BZPOPMIN {first} {second} 1000"), 2),
        ] {
            let unwanted = cache.execute(&words(&line)).start();
            until_awaited(cache, keys);
            drop(unwanted);
            until_awaited(cache, 0);
            for key in [first, second] {
                let (push, count) = if line.starts_with("BZ") {
                    ("ZADD {} 1 x", "ZCARD {}")
                } else {
                    ("RPUSH {} x", "LLEN {}")
                };
                assert_eq!(run(cache, &push.replace("{}", key)), Ok(Frame::Int(1)), "{line}");
                turn(cache);
                assert_eq!(run(cache, &count.replace("{}", key)), Ok(Frame::Int(1)), "{line}");
                assert_eq!(cache.del(key).wait(), Ok(true), "{line}");
            }
        }
    });
}

#[test]
fn who_waits_behind_it_is_served() {
    on_shards(|cache, [first, second]| {
        let line = format!("BLPOP {first} {second} 0");
        let gone = cache.execute(&words(&line)).start();
        until_awaited(cache, 2);
        let here = cache.execute(&words(&line)).start();
        turn(cache);
        drop(gone);
        turn(cache);
        run(cache, &format!("RPUSH {second} x")).unwrap();
        let Ok(Frame::Array(served)) = here.wait() else { panic!("{line}") };
        assert_eq!(served, [second, "x"].map(|word| Frame::Bulk(word.to_owned().into())));
    });
}

#[test]
fn what_waits_for_nothing_is_done_and_what_is_behind_a_wait_is_not() {
    on_shards(|cache, [first, _]| {
        let mut batch = cache.batch();
        let [before, behind] = ["before", "behind"].map(|name| format!("{{{first}}}{name}"));
        batch.set(&before, "1").execute(&words(&format!("BLPOP {first} 0"))).set(&behind, "1");
        let mut replies = batch.send();
        let mut context = Context::from_waker(Waker::noop());
        assert!(Pin::new(&mut replies).poll(&mut context).is_pending());
        turn(cache);
        drop(replies);
        turn(cache);
        run(cache, &format!("RPUSH {first} x")).unwrap();
        turn(cache);
        let there = [&before, &behind, &first.to_owned()].map(|key| cache.exists(key).wait().unwrap());
        assert_eq!(there, [true, false, true]);
    });
}

#[test]
fn a_pause_loses_no_dropped_call() {
    on_shards(|cache, [first, second]| {
        run(cache, "CLIENT PAUSE 100000 WRITE").unwrap();
        drop(cache.set(first, "1").start());
        drop(cache.execute(&words(&format!("BLPOP {second} 0"))).start());
        run(cache, "CLIENT UNPAUSE").unwrap();
        turn(cache);
        assert_eq!(cache.get(first).wait(), Ok(Some("1".into())));
        run(cache, &format!("RPUSH {second} x")).unwrap();
        assert_eq!(run(cache, &format!("LLEN {second}")), Ok(Frame::Int(1)));
    });
}

/// Each had `stop` take the second that calls are given to be answered.
#[test]
fn a_cache_that_stops_waits_for_nobody_who_waits_for_keys() {
    let stop = |shards| {
        let cache = Builder::new().shards(shards).start().unwrap();
        let blocked = ["BLPOP a 0", "BLMOVE b a LEFT LEFT 0"].map(|line| cache.execute(&words(line)).start());
        turn(&cache);
        let (set, began) = (cache.set("c", "1").start(), Instant::now());
        cache.stop().unwrap();
        let time = began.elapsed();
        assert_eq!(set.wait(), Ok(()), "what waits for nothing is answered");
        assert!(blocked.into_iter().all(|call| call.wait() == Err(Error::Stopped)));
        time
    };
    // A busy machine may take as long by itself, but not each time.
    assert!([1, 2, 5].into_iter().cycle().take(30).any(|shards| stop(shards) < Duration::from_millis(500)));
}
