//! Calls of the embedded cache beside moka, a `Mutex<HashMap>`, and the same cache through a Unix socket.
//!
//! `latency` is wall time of one call in one thread; `cpu` is processor time of the whole process, shards included, per
//! batch of 100 keys.

use std::collections::HashMap;
use std::fs;
use std::hint::black_box;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use corelane_embed::{Builder, Cache};
use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use hdrhistogram::Histogram;

const KEYS: usize = 100_000;
const VALUE: [u8; 64] = [b'v'; 64];
const BATCH: usize = 100;
/// Coprime to `KEYS`, so that all keys are asked for, and no two in a row lie beside each other.
const STRIDE: usize = 7_919;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// `key:` and six digits, without the cost of formatting: what it takes to write keys is not what is measured.
fn key(n: usize) -> [u8; 10] {
    let mut key = *b"key:000000";
    let mut rest = n * STRIDE % KEYS;
    for digit in key[4..].iter_mut().rev() {
        *digit += (rest % 10) as u8;
        rest /= 10;
    }
    key
}

fn filled(cache: Cache) -> Cache {
    for from in (0..KEYS).step_by(1000) {
        let mut batch = cache.batch();
        (from..from + 1000).for_each(|n| {
            batch.set(key(n), VALUE);
        });
        assert!(batch.wait().expect("the cache runs").iter().all(Result::is_ok));
    }
    cache
}

/// Processor time of all threads of this process, in nanoseconds.
fn cpu_ns() -> u64 {
    let tasks = fs::read_dir("/proc/self/task").expect("procfs");
    tasks.flatten().map(|task| spent_ns(task.path().join("schedstat"))).sum()
}

/// Measures processor time instead of wall time; that many threads share the iterations.
fn cpu(bencher: &mut criterion::Bencher<'_>, callers: usize, run: impl Fn(usize) + Sync) {
    bencher.iter_custom(|iterations| {
        let before = cpu_ns();
        let next = AtomicUsize::new(0);
        let work = || {
            loop {
                let n = next.fetch_add(1, Ordering::Relaxed);
                if n >= iterations as usize {
                    break cpu_of_thread_ns();
                }
                run(n * BATCH);
            }
        };
        // The others are gone when the process is asked, and with them their time.
        let others = std::thread::scope(|scope| {
            let others: Vec<_> = (1..callers).map(|_| scope.spawn(work)).collect();
            work();
            others.into_iter().map(|other| other.join().expect("no panic")).sum::<u64>()
        });
        Duration::from_nanos((cpu_ns() + others - before).max(1))
    });
}

fn spent_ns(schedstat: impl AsRef<Path>) -> u64 {
    let text = fs::read_to_string(schedstat).unwrap_or_default();
    text.split(' ').next().and_then(|ns| ns.parse().ok()).unwrap_or_default()
}

fn cpu_of_thread_ns() -> u64 {
    spent_ns("/proc/thread-self/schedstat")
}

fn latency(criterion: &mut Criterion) {
    let path = std::env::temp_dir().join(format!("corelane-bench-{}.sock", std::process::id()));
    let cache = filled(Builder::new().shards(1).unix_socket(&path).start().expect("a cache"));
    let mut group = criterion.benchmark_group("latency");
    let mut n = 0;
    group.bench_function("blocking get, embedded", |bencher| {
        bencher.iter(|| {
            n += 1;
            cache.get(key(n)).wait().expect("a value")
        });
    });
    let mut socket = UnixStream::connect(&path).expect("the socket");
    let mut reply = [0; 4096];
    group.bench_function("blocking get, Unix socket", |bencher| {
        bencher.iter(|| {
            n += 1;
            let key = key(n);
            let request = [b"*2\r\n$3\r\nGET\r\n$10\r\n", &key[..], b"\r\n"].concat();
            socket.write_all(&request).expect("sent");
            let len = socket.read(&mut reply).expect("a reply");
            assert_eq!(reply[..len].len(), b"$64\r\n".len() + VALUE.len() + 2);
        });
    });
    let map = Mutex::new((0..KEYS).map(|n| (key(n), VALUE.to_vec())).collect::<HashMap<_, _>>());
    group.bench_function("get, Mutex<HashMap>", |bencher| {
        bencher.iter(|| {
            n += 1;
            map.lock().expect("no panic").get(&key(n)).cloned()
        });
    });
    let moka = moka::sync::Cache::new(KEYS as u64);
    (0..KEYS).for_each(|n| moka.insert(key(n), VALUE.to_vec()));
    group.bench_function("get, moka", |bencher| {
        bencher.iter(|| {
            n += 1;
            moka.get(&key(n))
        });
    });
    group.finish();
    print_percentiles(&cache, &mut socket);
    cache.stop().expect("a clean end");
}

/// Times single calls, so many this way and so many that way in turn, and prints the percentiles of both and their ratio.
/// After one call through the socket the shard may sleep; in a row, most calls find it awake.
fn print_percentiles(cache: &Cache, socket: &mut UnixStream) {
    // Criterion's own flag for a run that only shows that everything works.
    let calls = if std::env::args().any(|arg| arg == "--test") { 200 } else { 40_000 };
    let mut reply = [0; 4096];
    for (in_a_row, title) in [(1, "in turn"), (100, "a hundred in a row")] {
        let mut times = [(); 2].map(|()| Histogram::<u64>::new(3).expect("3 digits"));
        for n in 0..calls {
            let key = key(n);
            let embedded = n / in_a_row % 2 == 0;
            let began = Instant::now();
            if embedded {
                black_box(cache.get(key).wait().expect("a value"));
            } else {
                let request = [b"*2\r\n$3\r\nGET\r\n$10\r\n", &key[..], b"\r\n"].concat();
                socket.write_all(&request).expect("sent");
                black_box(socket.read(&mut reply).expect("a reply"));
            }
            times[usize::from(!embedded)] += began.elapsed().as_nanos() as u64;
        }
        let us = |way: usize, quantile| times[way].value_at_quantile(quantile) as f64 / 1e3;
        for (way, name) in ["embedded", "Unix socket"].into_iter().enumerate() {
            let [p50, p99] = [us(way, 0.5), us(way, 0.99)];
            println!("one blocking GET, {title}, {name}: p50 {p50:.1} µs, p99 {p99:.1} µs");
        }
        println!("one blocking GET, {title}, embedded / Unix socket: p50 {:.2}", us(0, 0.5) / us(1, 0.5));
    }
}

fn batches(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("cpu");
    group.throughput(Throughput::Elements(BATCH as u64));
    for (shards, callers) in [(1, 1), (1, 4), (2, 1), (2, 4)] {
        let cache = filled(Builder::new().shards(shards).start().expect("a cache"));
        group.bench_function(format!("100 gets in a batch, {shards} shards, {callers} callers"), |bencher| {
            cpu(bencher, callers, |at| {
                let mut batch = cache.batch();
                for n in at..at + BATCH {
                    batch.get(key(n));
                }
                black_box(batch.wait().expect("the cache runs"));
            });
        });
        cache.stop().expect("a clean end");
    }
    let map = Mutex::new((0..KEYS).map(|n| (key(n), VALUE.to_vec())).collect::<HashMap<_, _>>());
    group.bench_function("100 gets, Mutex<HashMap>", |bencher| {
        cpu(bencher, 1, |at| {
            for n in at..at + BATCH {
                black_box(map.lock().expect("no panic").get(&key(n)).cloned());
            }
        });
    });
    let moka = moka::sync::Cache::new(KEYS as u64);
    (0..KEYS).for_each(|n| moka.insert(key(n), VALUE.to_vec()));
    group.bench_function("100 gets, moka", |bencher| {
        cpu(bencher, 1, |at| {
            for n in at..at + BATCH {
                black_box(moka.get(&key(n)));
            }
        });
    });
    group.finish();
}

criterion_group!(benches, latency, batches);
criterion_main!(benches);
