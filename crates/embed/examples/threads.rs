//! A plain threaded program: workers count requests per client in windows, and share what is expensive to make.
//!
//! `cargo run --release -p corelane-embed --example threads`

use std::error::Error as StdError;
use std::thread;
use std::time::{Duration, Instant};

use corelane_embed::{Builder, Bytes, Cache, Error};

const WORKERS: usize = 4;
const REQUESTS_PER_WORKER: usize = 5_000;
const CLIENTS: usize = 50;
/// Requests a client may make per window.
const ALLOWED: i64 = 300;
const WINDOW: Duration = Duration::from_secs(60);

fn main() -> Result<(), Box<dyn StdError>> {
    let cache = Builder::new().shards(2).start()?;
    let began = Instant::now();
    let workers: Vec<_> = (0..WORKERS)
        .map(|worker| {
            let cache = cache.clone();
            thread::spawn(move || work(&cache, worker))
        })
        .collect();
    let mut refused = 0;
    for worker in workers {
        refused += worker.join().map_err(|_| "a worker panicked")??;
    }
    let requests = WORKERS * REQUESTS_PER_WORKER;
    println!("{requests} requests in {:?}, {refused} refused", began.elapsed());
    assert_eq!(refused, requests - CLIENTS * ALLOWED as usize);

    let mut batch = cache.batch();
    for client in 0..CLIENTS {
        batch.get(format!("requests:{client}"));
    }
    let counts = batch.wait()?;
    println!("{} counters, the first is {:?}", counts.len(), counts[0]);
    cache.stop()?;
    Ok(())
}

/// Serves requests; returns how many were refused.
fn work(cache: &Cache, worker: usize) -> Result<usize, Error> {
    let mut refused = 0;
    for n in 0..REQUESTS_PER_WORKER {
        let client = (n + worker) % CLIENTS;
        if !may_pass(cache, client)? {
            refused += 1;
            continue;
        }
        let page = page(cache, n % 7)?;
        assert!(page.ends_with(b"</html>"));
    }
    Ok(refused)
}

/// Counts a request in its client's window.
fn may_pass(cache: &Cache, client: usize) -> Result<bool, Error> {
    let key = format!("requests:{client}");
    let count = cache.incr(&key).wait()?;
    if count == 1 {
        cache.expire(&key, WINDOW).wait()?;
    }
    Ok(count <= ALLOWED)
}

/// A page, made once and then shared by all workers without a copy.
fn page(cache: &Cache, number: usize) -> Result<Bytes, Error> {
    let key = format!("page:{number}");
    if let Some(page) = cache.get(&key).wait()? {
        return Ok(page);
    }
    let page = Bytes::from(format!("<html>{}</html>", "expensive ".repeat(3_000)));
    cache.set_shared(&key, page.clone()).wait()?;
    Ok(page)
}
