//! Start, stop, panics, and what they leave behind in the host. Alone in its process, since it counts what the process has.

use std::ffi::OsStr;
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use corelane_embed::{Builder, Bytes, Cache, Error, StartError};

fn descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

fn threads() -> usize {
    std::fs::read_dir("/proc/self/task").unwrap().count()
}

fn resident_kib() -> usize {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
    statm.split(' ').nth(1).unwrap().parse::<usize>().unwrap() * 4
}

/// What the host has of signals and limits.
fn belongings() -> String {
    let status = std::fs::read_to_string("/proc/thread-self/status").unwrap();
    let signals = status.lines().filter(|line| line.starts_with("Sig") || line.starts_with("THP"));
    let signals: Vec<&str> = signals.filter(|line| !line.starts_with("SigQ")).collect();
    signals.join("\n") + &std::fs::read_to_string("/proc/self/limits").unwrap()
}

fn eventually(what: &str, mut condition: impl FnMut() -> bool) {
    let began = Instant::now();
    while !condition() {
        assert!(began.elapsed() < Duration::from_secs(30), "in vain: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// The tests of this file, one after the other: each looks at the whole process.
#[test]
fn the_host_stays_as_it_was() {
    a_hundred_lives_leave_nothing_behind();
    the_last_handle_ends_the_shards();
    calls_that_were_sent_are_answered_by_a_cache_that_stops();
    sockets_see_the_same_keys();
    settings_are_those_of_the_server();
    a_start_that_fails_says_why_and_leaves_nothing();
    a_panic_costs_one_shard();
}

fn use_once(cache: &Cache) {
    cache.mset((0..50).map(|n| (format!("key:{n}"), "x".repeat(n * 40)))).wait().unwrap();
    assert_eq!(cache.len().wait(), Ok(50));
}

fn a_hundred_lives_leave_nothing_behind() {
    let before = belongings();
    let mut after_ten = (0, 0, 0);
    for life in 0..100 {
        let cache = Builder::new().shards(2).start().unwrap();
        use_once(&cache);
        cache.stop().unwrap();
        cache.stop().unwrap();
        assert_eq!(cache.get("key:1").wait(), Err(Error::Stopped));
        assert_eq!(cache.get("key:1").try_start().unwrap_err(), Error::Stopped);
        drop(cache);
        if life == 10 {
            after_ten = (descriptors(), threads(), resident_kib());
        }
    }
    eventually("descriptors as before", || descriptors() == after_ten.0);
    eventually("threads as before", || threads() == after_ten.1);
    let grown = resident_kib().saturating_sub(after_ten.2);
    assert!(grown < 8 << 10, "{grown} KiB more in 90 lives");
    assert_eq!(belongings(), before);
}

fn the_last_handle_ends_the_shards() {
    let (fds, threads_before) = (descriptors(), threads());
    let cache = Builder::new().shards(3).start().unwrap();
    let other = cache.clone();
    drop(cache);
    use_once(&other);
    assert!(threads() > threads_before);
    drop(other);
    eventually("no threads", || threads() == threads_before);
    eventually("no descriptors", || descriptors() == fds);
}

fn calls_that_were_sent_are_answered_by_a_cache_that_stops() {
    let cache = Builder::new().shards(2).queue_slots(4096).start().unwrap();
    let sent: Vec<_> = (0..1000).map(|n| cache.incr(format!("key:{}", n % 7)).start()).collect();
    let wide: Vec<_> = (0..100).map(|_| cache.mget((0..7).map(|n| format!("key:{n}"))).start()).collect();
    let stopper = cache.clone();
    let stopping = std::thread::spawn(move || stopper.stop());
    let answered = sent.into_iter().filter(|_| true).map(|call| call.wait()).filter(Result::is_ok).count();
    assert_eq!(answered, 1000);
    assert!(wide.into_iter().all(|call| call.wait().is_ok()));
    stopping.join().unwrap().unwrap();
    assert_eq!(cache.get("key:1").wait(), Err(Error::Stopped));
}

fn sockets_see_the_same_keys() {
    let path = std::env::temp_dir().join(format!("corelane-embed-{}.sock", std::process::id()));
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let cache = Builder::new().shards(2).port(port).unix_socket(&path).start().unwrap();
    assert_eq!(cache.addresses(), [([127, 0, 0, 1], port).into()]);
    cache.set("greeting", "hello").wait().unwrap();
    let mut reply = [0; 11];
    let mut tcp = TcpStream::connect(cache.addresses()[0]).unwrap();
    tcp.write_all(b"GET greeting\r\n").unwrap();
    tcp.read_exact(&mut reply).unwrap();
    assert_eq!(&reply, b"$5\r\nhello\r\n");
    let mut unix = UnixStream::connect(&path).unwrap();
    unix.write_all(b"SET greeting there\r\n").unwrap();
    unix.read_exact(&mut reply[..5]).unwrap();
    assert_eq!(cache.get("greeting").wait(), Ok(Some("there".into())));
    let busy = Builder::new().shards(1).port(port).start().unwrap_err();
    assert!(matches!(busy, StartError::Listen(_)), "{busy}");
    cache.stop().unwrap();
    assert_eq!(tcp.read(&mut reply).unwrap(), 0, "closed");
    assert!(!path.exists());
}

fn settings_are_those_of_the_server() {
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let builder = Builder::new().shards(2).port(port).connections_max(7).password("a secret");
    let cache = builder.config("MaxClients", 6).config("slowlog-max-len", "9").start().unwrap();
    // Calls need no password, and clients do.
    cache.set("greeting", "hello").wait().unwrap();
    let shown = |name: &str| cache.execute(&["CONFIG", "GET", name]).wait().unwrap();
    for (name, value) in [
        ("maxclients", "6"),
        ("commandlog-slow-execution-max-len", "9"),
        ("shards", "2"),
        ("databases", "16"),
    ] {
        assert!(
            format!("{:?}", shown(name)).contains(&format!("{:?}", Bytes::from(value))),
            "{:?}",
            shown(name)
        );
    }
    let mut tcp = TcpStream::connect(cache.addresses()[0]).unwrap();
    tcp.write_all(b"GET greeting\r\nAUTH wrong\r\nAUTH \"a secret\"\r\nGET greeting\r\nQUIT\r\n").unwrap();
    let mut replies = String::new();
    tcp.read_to_string(&mut replies).unwrap();
    let expected = "-NOAUTH Authentication required.\r\n-WRONGPASS invalid username-password pair or user is disabled.\r\n\
        +OK\r\n$5\r\nhello\r\n+OK\r\n";
    assert_eq!(replies, expected);
    cache.execute(&["CONFIG", "SET", "requirepass", "another"]).wait().unwrap();
    assert_eq!(cache.get("greeting").wait(), Ok(Some("hello".into())));
    cache.stop().unwrap();
}

fn a_start_that_fails_says_why_and_leaves_nothing() {
    let fds = descriptors();
    for (builder, part) in [
        (Builder::new().shards(0), "shards: argument must be between 1 and 1024 inclusive"),
        (Builder::new().shards(2000), "shards: argument must be between 1 and 1024 inclusive"),
        (Builder::new().cpus("x"), "cpus \"x\" is not a list of CPUs"),
        (Builder::new().cpus("4095"), "cpus names cpu 4095"),
        (
            Builder::new().port(7).bind(["192.0.2.1"]),
            "this machine has no address 192.0.2.1: correct bind, or write -192",
        ),
        (Builder::new().queue_slots(0), "queue_slots is out of range: choose 1 to 1048576"),
        (Builder::new().queue_slots(1 << 32), "queue_slots is out of range: choose 1 to 1048576"),
        (Builder::new().queue_slots(usize::MAX), "queue_slots is out of range: choose 1 to 1048576"),
        (Builder::new().port(1).connections_max(u32::MAX), "are needed for"),
        (Builder::new().databases(0), "databases: argument must be between 1 and 16384 inclusive"),
        (Builder::new().config("no-such", 1), "no-such: there is no such directive"),
        (
            Builder::new().config("maxclients", "x").config("timeout", "y"),
            "maxclients: argument couldn't be parsed",
        ),
        (Builder::new().config("io-threads", 4), "io-threads: it changes nothing in an embedded cache"),
        (Builder::new().config("loglevel", "debug"), "loglevel: it changes nothing in an embedded cache"),
        (
            Builder::new().config("metrics-port", 9122),
            "metrics-port: it changes nothing in an embedded cache",
        ),
        (
            Builder::new().config("buffer-pool-min", 9).config("buffer-pool-max", 3),
            "buffer-pool-max is only 3",
        ),
        (Builder::new().unix_socket(OsStr::from_bytes(b"/tmp/\xff")), "unixsocket: the path is not UTF-8"),
    ] {
        let error = builder.start().unwrap_err().to_string();
        assert!(error.contains(part), "{error}");
    }
    assert_eq!(descriptors(), fds);
}

fn a_panic_costs_one_shard() {
    std::panic::set_hook(Box::new(|_| {}));
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let cache = Builder::new().shards(2).port(port).start().unwrap();
    let key_on = |shard| (0..).map(|n| format!("k{n}")).find(|key| cache.shard_of(key) == shard).unwrap();
    let (healthy, doomed) = (key_on(0), key_on(1));
    cache.mset([(&healthy, "1"), (&doomed, "1")]).wait().unwrap();
    let clients: Vec<_> = (0..8).map(|_| TcpStream::connect(cache.addresses()[0]).unwrap()).collect();
    let panicking = cache.on_owner(&doomed, |_| panic!("the host's own fault"));
    let failed = Error::ShardFailed { shard: 1 };
    assert_eq!(panicking.wait(), Err(Error::Panicked));

    assert_eq!(cache.get(&doomed).wait(), Err(failed.clone()));
    assert_eq!(cache.get(&doomed).try_start().unwrap_err(), failed);
    assert_eq!(cache.incr(&healthy).wait(), Ok(2));
    assert_eq!(cache.mget([&healthy, &doomed]).wait(), Err(Error::PeerFailed));
    assert!(cache.len().wait().is_err());
    assert_eq!(cache.incr(&healthy).wait(), Ok(3), "nothing is held for the failed shard");
    let mut batch = cache.batch();
    batch.get(&healthy).get(&doomed).incr(&healthy);
    let replies = batch.wait().unwrap();
    assert_eq!((replies[0].is_ok(), &replies[1], replies[2].is_ok()), (true, &Err(failed), true));

    let (mut served, mut closed) = (0, 0);
    for mut client in clients {
        client.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        let asked = client.write_all(format!("INCR {healthy}\r\nGET {doomed}\r\n").as_bytes());
        let mut reply = [0; 256];
        match asked.and_then(|()| client.read(&mut reply)) {
            Ok(len) if len > 0 => {
                served += 1;
                assert!(reply.starts_with(b":"), "{:?}", String::from_utf8_lossy(&reply[..len]));
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => panic!("neither served nor closed"),
            _ => closed += 1,
        }
    }
    assert!(served > 0 && closed > 0, "{served} clients served, {closed} closed");
    for n in 0..16 {
        let mut client = TcpStream::connect(cache.addresses()[0]).unwrap();
        client.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        let mut reply = [0; 7];
        let answered = client.write_all(b"PING\r\n").and_then(|()| client.read_exact(&mut reply));
        let waits = |error: &std::io::Error| error.kind() == ErrorKind::WouldBlock;
        assert!(!answered.as_ref().is_err_and(waits), "client {n} is neither served nor closed");
    }
    let error = cache.stop().unwrap_err().to_string();
    assert_eq!(error, "shard 1 failed: panic in a closure of the embedding program");
    let _ = std::panic::take_hook();
}
