//! Typed calls, raw commands, batches and closures, on 1, 2 and 5 shards.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use corelane_embed::{Builder, Bytes, Cache, Error, Frame, LocalError, Ttl};

/// Runs a test on each number of shards.
fn on_shards(test: impl Fn(&Cache)) {
    for shards in [1, 2, 5] {
        let cache = Builder::new().shards(shards).start().unwrap();
        test(&cache);
        cache.stop().unwrap();
    }
}

fn bulk(text: &str) -> Frame {
    Frame::Bulk(Bytes::copy_from_slice(text.as_bytes()))
}

#[test]
fn strings() {
    on_shards(|cache| {
        assert_eq!(cache.get("a").wait(), Ok(None));
        assert_eq!(cache.set("a", "1").wait(), Ok(()));
        assert_eq!(cache.get("a").wait(), Ok(Some("1".into())));
        assert_eq!(cache.set_if_absent("a", "2").wait(), Ok(false));
        assert_eq!(cache.set_if_absent("b", "2").wait(), Ok(true));
        assert_eq!(cache.incr("a").wait(), Ok(2));
        assert_eq!(cache.incr_by("a", -12).wait(), Ok(-10));
        assert_eq!(cache.append("b", "34").wait(), Ok(3));
        assert_eq!(cache.incr("b").wait(), Ok(235));
        assert_eq!(cache.mset([("c", "x"), ("d", "y"), ("e", "z")]).wait(), Ok(()));
        let values = ["x", "y"].map(|text| Some(text.into()));
        assert_eq!(cache.mget(["c", "d", "?"]).wait(), Ok([&values[..], &[None]].concat()));
        let error = cache.incr("c").wait().unwrap_err();
        assert_eq!(error.to_string(), "ERR value is not an integer or out of range");
        assert_eq!(error.code(), Some("ERR"));
    });
}

#[test]
fn keys() {
    on_shards(|cache| {
        cache.mset((0..100).map(|n| (format!("key:{n}"), "value"))).wait().unwrap();
        assert_eq!(cache.len().wait(), Ok(100));
        assert_eq!((cache.exists("key:1").wait(), cache.exists("?").wait()), (Ok(true), Ok(false)));
        assert_eq!((cache.del("key:1").wait(), cache.del("key:1").wait()), (Ok(true), Ok(false)));
        assert_eq!(cache.del_all((0..10).map(|n| format!("key:{n}"))).wait(), Ok(9));
        assert_eq!(cache.ttl("key:1").wait(), Ok(Ttl::NoKey));
        assert_eq!(cache.ttl("key:50").wait(), Ok(Ttl::Forever));
        assert_eq!(cache.expire("key:50", Duration::from_secs(100)).wait(), Ok(true));
        let Ok(Ttl::Left(left)) = cache.ttl("key:50").wait() else { panic!("it has a deadline") };
        assert!(left > Duration::from_secs(90) && left <= Duration::from_secs(100), "{left:?}");
        assert_eq!((cache.persist("key:50").wait(), cache.persist("key:50").wait()), (Ok(true), Ok(false)));
        assert_eq!(cache.expire("key:50", Duration::ZERO).wait(), Ok(true));
        assert_eq!(cache.exists("key:50").wait(), Ok(false));
        cache.set_with_ttl("short", "x", Duration::from_millis(20)).wait().unwrap();
        std::thread::sleep(Duration::from_millis(40));
        assert_eq!(cache.get("short").wait(), Ok(None));
        let error = cache.set_with_ttl("short", "x", Duration::ZERO).wait().unwrap_err();
        assert_eq!(error.to_string(), "ERR invalid expire time in 'set' command");
        cache.flush().wait().unwrap();
        assert_eq!(cache.len().wait(), Ok(0));
    });
}

#[test]
fn lists_of_nothing_are_no_errors() {
    on_shards(|cache| {
        assert_eq!(cache.mget([""; 0]).wait(), Ok(vec![]));
        assert_eq!(cache.mset([("", ""); 0]).wait(), Ok(()));
        assert_eq!(cache.del_all([""; 0]).wait(), Ok(0));
        assert_eq!(cache.batch().wait(), Ok(vec![]));
    });
    let cache = Builder::new().shards(1).start().unwrap();
    cache.stop().unwrap();
    assert_eq!(cache.mget([""; 0]).wait(), Err(Error::Stopped));
}

#[test]
fn what_has_been_answered_has_no_second_answer() {
    let cache = Builder::new().shards(1).start().unwrap();
    let mut context = Context::from_waker(Waker::noop());
    let mut call = cache.set("a", "1").start();
    let mut batch = cache.batch();
    batch.get("a");
    let mut batch = batch.send();
    while Pin::new(&mut call).poll(&mut context).is_pending() {}
    assert_eq!(Pin::new(&mut call).poll(&mut context), Poll::Ready(Err(Error::Stopped)));
    while Pin::new(&mut batch).poll(&mut context).is_pending() {}
    assert_eq!(Pin::new(&mut batch).poll(&mut context), Poll::Ready(vec![]));
    cache.stop().unwrap();
}

#[test]
fn databases_are_apart() {
    let cache = Builder::new().shards(2).databases(3).start().unwrap();
    let other = cache.database(2).unwrap();
    assert!(cache.database(3).is_none());
    cache.set("a", "0").wait().unwrap();
    assert_eq!(other.get("a").wait(), Ok(None));
    other.mset([("a", "2"), ("b", "2"), ("c", "2")]).wait().unwrap();
    assert_eq!((cache.len().wait(), other.len().wait()), (Ok(1), Ok(3)));
    assert_eq!(other.on_owner("a", |keys| keys.get(b"a").unwrap()).wait(), Ok(Some("2".into())));
    other.flush().wait().unwrap();
    assert_eq!((cache.len().wait(), other.len().wait()), (Ok(1), Ok(0)));
    cache.stop().unwrap();
}

#[test]
fn any_command_but_those_about_a_connection() {
    on_shards(|cache| {
        let run = |line: &str| cache.execute(&line.split(' ').collect::<Vec<_>>()).wait();
        assert_eq!(run("PING"), Ok(Frame::Simple("PONG".into())));
        assert_eq!(run("SET {t}a 10"), Ok(Frame::Simple("OK".into())));
        assert_eq!(run("SET b x GET"), Ok(Frame::Null));
        assert_eq!(run("RENAME {t}a c"), Ok(Frame::Simple("OK".into())));
        assert_eq!(run("INCRBYFLOAT c 0.5"), Ok(bulk("10.5")));
        assert_eq!(run("EXISTS b c d c"), Ok(Frame::Int(3)));
        let Ok(Frame::Array(found)) = run("KEYS *") else { panic!("an array") };
        assert_eq!(found.len(), 2);
        let Ok(Frame::Verbatim { text, .. }) = run("INFO keyspace") else { panic!("a text") };
        assert!(String::from_utf8_lossy(&text).contains("db0:keys=2"));
        let Ok(Frame::Map(about)) = run("COMMAND DOCS get") else { panic!("a map, as in RESP3") };
        assert_eq!(about.len(), 1);
        for line in
            ["SELECT 1", "HELLO 3", "RESET", "QUIT", "MONITOR", "CLIENT SETNAME x", "CLIENT ID", "AUTH x"]
        {
            let error = run(line).unwrap_err();
            assert_eq!(error.code(), Some("ERR"), "{line}: {error}");
        }
        for line in ["SHUTDOWN", "shutdown nosave"] {
            let error = run(line).unwrap_err().to_string();
            assert_eq!(error, "ERR 'SHUTDOWN' ends a server; call stop to end an embedded cache");
        }
        assert!(run("NOSUCH").unwrap_err().to_string().starts_with("ERR unknown command 'NOSUCH'"));
        assert!(run("GET").unwrap_err().to_string().starts_with("ERR wrong number of arguments"));
        assert!(cache.execute(&[""; 0]).wait().is_err());
        let Ok(Frame::Verbatim { text, .. }) = run("CLIENT LIST") else { panic!("a text") };
        assert!(text.is_empty(), "no connections: {text:?}");
    });
}

#[test]
fn calls_obey_a_pause_and_wait_for_what_commands_wait_for() {
    on_shards(|cache| {
        cache.set("a", "1").wait().unwrap();
        let began = std::time::Instant::now();
        cache.execute(&["CLIENT", "PAUSE", "60", "WRITE"]).wait().unwrap();
        let mut batch = cache.batch();
        batch.get("a").incr("a").get("a");
        assert_eq!(cache.get("a").wait(), Ok(Some("1".into())), "reads go on");
        assert_eq!(batch.wait().unwrap(), [Ok(bulk("1")), Ok(Frame::Int(2)), Ok(bulk("2"))]);
        assert!(began.elapsed() >= Duration::from_millis(50), "{:?}", began.elapsed());
        let began = std::time::Instant::now();
        assert_eq!(cache.execute(&["WAIT", "1", "60"]).wait(), Ok(Frame::Int(0)));
        assert!(began.elapsed() >= Duration::from_millis(50), "{:?}", began.elapsed());
    });
}

#[test]
fn long_values_are_not_copied() {
    on_shards(|cache| {
        for len in [16 << 10, 17 << 10, 1 << 20] {
            let value = Bytes::from(vec![7; len]);
            cache.set_shared("large", value.clone()).wait().unwrap();
            let got = cache.get("large").wait().unwrap().unwrap();
            assert_eq!(got, value);
            if len > 16 << 10 {
                assert_eq!(got.as_ptr(), value.as_ptr(), "{len} bytes: a copy");
            }
            let again = cache.mget(["large", "?"]).wait().unwrap();
            assert_eq!(again[0].as_ref().unwrap().as_ptr(), got.as_ptr(), "{len} bytes: a copy");
            let seen = cache.on_owner("large", |keys| keys.get(b"large").unwrap().unwrap()).wait().unwrap();
            assert_eq!(seen.as_ptr(), got.as_ptr());
        }
        let error = cache.execute(&[&b"SET"[..], b"x", &vec![0; (512 << 20) + 1]]).wait().unwrap_err();
        assert!(error.to_string().contains("proto-max-bulk-len"), "{error}");
    });
}

#[test]
fn batches_keep_their_order_and_fail_one_by_one() {
    on_shards(|cache| {
        let mut batch = cache.batch();
        for n in 0..1000 {
            batch.set(format!("key:{n}"), n.to_string());
        }
        batch.incr("key:7").get("key:7").del("key:8").get("key:8");
        batch.execute(&["MGET", "key:7", "key:8", "key:9"]).set("key:9", "x").incr("key:9");
        batch.execute(&["SELECT", "1"]).execute(&["DBSIZE"]);
        assert_eq!((batch.len(), batch.is_empty()), (1009, false));
        let replies = batch.wait().unwrap();
        assert!(replies[..1000].iter().all(|reply| *reply == Ok(Frame::Simple("OK".into()))));
        let nine = Frame::Array(vec![bulk("8"), Frame::Null, bulk("9")]);
        let expected =
            [Frame::Int(8), bulk("8"), Frame::Int(1), Frame::Null, nine, Frame::Simple("OK".into())];
        assert_eq!(replies[1000..1006], expected.map(Ok));
        assert!(matches!(&replies[1006], Err(Error::Command(text)) if text.starts_with("ERR value is not")));
        assert!(matches!(&replies[1007], Err(Error::Command(text)) if text.contains("connection")));
        assert_eq!(replies[1008], Ok(Frame::Int(999)));
        assert_eq!(cache.batch().wait(), Ok(Vec::new()));
    });
}

#[test]
fn a_batch_of_many_commands_for_one_key_keeps_its_order() {
    on_shards(|cache| {
        let mut batch = cache.batch();
        for _ in 0..10_000 {
            batch.incr("counter");
        }
        let replies = batch.wait().unwrap();
        assert!((1..=10_000).eq(replies.into_iter().map(|reply| match reply {
            Ok(Frame::Int(sum)) => sum,
            other => panic!("{other:?}"),
        })));
    });
}

#[test]
fn closures_run_where_the_keys_are() {
    on_shards(|cache| {
        let outcome = cache.on_owner("{a}1", |keys| {
            assert!(keys.owns(b"{a}2"));
            keys.set(b"{a}1", b"one").unwrap();
            keys.set_with_ttl(b"{a}2", b"two", Duration::from_millis(30)).unwrap();
            let len = keys.view(b"{a}1", <[u8]>::len).unwrap();
            (len, keys.get(b"{a}2").unwrap(), keys.del(b"{a}1").unwrap(), keys.contains(b"{a}1").unwrap())
        });
        assert_eq!(outcome.wait(), Ok((Some(3), Some("two".into()), true, false)));
        std::thread::sleep(Duration::from_millis(50));
        assert_eq!(cache.exists("{a}2").wait(), Ok(false));
        let elsewhere =
            (0..100).map(|n| format!("k{n}")).find(|key| cache.shard_of(key) != cache.shard_of("a"));
        if let Some(key) = elsewhere {
            let refused = cache.on_owner("a", move |keys| keys.set(key.as_bytes(), b"x"));
            assert_eq!(refused.wait(), Ok(Err(LocalError::Elsewhere)));
        }
        let zero = cache.on_owner("a", |keys| keys.set_with_ttl(b"a", b"x", Duration::ZERO));
        assert_eq!(Error::from(zero.wait().unwrap().unwrap_err()).code(), Some("ERR"));
    });
}

#[test]
fn a_closure_that_would_wait_for_the_cache_is_told() {
    let cache = Builder::new().shards(2).start().unwrap();
    let own = cache.clone();
    let inner = cache.on_owner("a", move |_| (own.get("b").wait(), own.batch().wait(), own.get("b").start()));
    let (call, batch, started) = inner.wait().unwrap();
    assert_eq!((call, batch), (Err(Error::OnShard), Err(Error::OnShard)));
    assert_eq!(started.wait(), Ok(None), "to send is allowed");
    cache.stop().unwrap();
}

#[test]
fn a_full_queue_refuses_or_makes_wait() {
    let cache = Builder::new().shards(1).queue_slots(2).start().unwrap();
    let (release, gate) = std::sync::mpsc::channel::<()>();
    let (entered, inside) = std::sync::mpsc::channel();
    let busy = cache.on_owner("a", move |_| {
        entered.send(()).unwrap();
        gate.recv().unwrap();
    });
    let busy = busy.start();
    inside.recv().unwrap();
    let queued = [cache.incr("a").try_start().unwrap(), cache.incr("a").try_start().unwrap()];
    assert_eq!(cache.incr("a").try_start().unwrap_err(), Error::Full { shard: 0 });
    let waiters: Vec<_> = (0..8)
        .map(|_| {
            let cache = cache.clone();
            std::thread::spawn(move || cache.incr("a").wait().unwrap())
        })
        .collect();
    let late = cache.incr("a").start();
    std::thread::sleep(Duration::from_millis(50));
    assert!(waiters.iter().all(|waiter| !waiter.is_finished()));
    release.send(()).unwrap();
    busy.wait().unwrap();
    let mut sums: Vec<i64> = waiters.into_iter().map(|waiter| waiter.join().unwrap()).collect();
    sums.extend(queued.map(|call| call.wait().unwrap()));
    sums.push(late.wait().unwrap());
    sums.sort_unstable();
    assert_eq!(sums, (1..=11).collect::<Vec<i64>>());
    cache.stop().unwrap();
}

#[test]
fn a_stop_answers_what_it_can_within_a_second() {
    let cache = Builder::new().shards(1).start().unwrap();
    let lasting = |ms| cache.on_owner("a", move |_| std::thread::sleep(Duration::from_millis(ms))).start();
    let sent: Vec<_> = (0..30).map(|_| lasting(100)).collect();
    cache.stop().unwrap();
    let outcomes: Vec<_> = sent.into_iter().map(|call| call.wait()).collect();
    let (answered, rest) = outcomes.split_at(outcomes.iter().take_while(|outcome| outcome.is_ok()).count());
    assert!(answered.len() >= 5 && rest.len() >= 5, "{outcomes:?}");
    assert!(rest.iter().all(|outcome| *outcome == Err(Error::Stopped)), "{outcomes:?}");
}
