//! More closed-loop connections per shard than one turn of its loop takes in, for a while: nobody is forgotten, nobody
//! waits, memory stays. `CORELANE_SOAK_S` sets the seconds; what was measured goes to stderr.

use std::env;
use std::thread;
use std::time::{Duration, Instant};

use crate::common::client::{Client, Outcome};
use crate::common::random::Random;
use crate::common::server::{self, Server};
use crate::common::words;

const SECONDS_DEFAULT: u64 = 4;
const SHARDS: usize = 2;
/// Few threads with many connections each: more would wait for each other, not for the server.
const THREADS: usize = 2;
const CONNECTIONS_PER_THREAD: usize = 160;
/// A reply later than this is a stall.
const STALL_MS: u128 = 20;
/// What fails the test: fifty times that, as clients and server share the machine with the other tests. A shard that
/// sleeps although there is work does so for longer.
const STALL_MS_MAX: u128 = 50 * STALL_MS;
const GROWTH_MAX: usize = 32 << 20;

/// What one thread saw.
#[derive(Default)]
struct Seen {
    requests: u64,
    stalls: u64,
    longest: Duration,
}

#[test]
fn many_closed_loops_see_no_stall() {
    let seconds = env::var("CORELANE_SOAK_S").map_or(SECONDS_DEFAULT, |text| text.parse().expect("seconds"));
    let server = Server::ours(SHARDS);
    let deadline = Instant::now() + Duration::from_secs(seconds);
    let warm = Instant::now() + Duration::from_secs(seconds / 4);
    let (seen, before) = thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS)
            .map(|number| {
                scope.spawn({
                    let server = &server;
                    move || drive(server, number, deadline)
                })
            })
            .collect();
        server::poll(seconds * 1000, || (Instant::now() >= warm).then_some(()));
        let before = server.resident_bytes();
        let seen: Vec<Seen> =
            threads.into_iter().map(|thread| thread.join().expect("every reply came")).collect();
        (seen, before)
    });
    let growth = server.resident_bytes().saturating_sub(before);
    let requests: u64 = seen.iter().map(|one| one.requests).sum();
    let stalls: u64 = seen.iter().map(|one| one.stalls).sum();
    let longest = seen.iter().map(|one| one.longest).max().unwrap_or_default();
    eprintln!(
        "soak: {requests} requests in {seconds} s over {} connections, {stalls} replies later than {STALL_MS} ms, \
         the latest after {} ms, {} KiB more resident",
        THREADS * CONNECTIONS_PER_THREAD,
        longest.as_millis(),
        growth >> 10
    );
    assert!(longest.as_millis() <= STALL_MS_MAX, "a reply came after {} ms", longest.as_millis());
    assert!(growth < GROWTH_MAX, "{} KiB more resident", growth >> 10);
}

/// Keeps one request of each of its connections under way until `deadline`.
fn drive(server: &Server, number: usize, deadline: Instant) -> Seen {
    let mut clients: Vec<Client> = (0..CONNECTIONS_PER_THREAD).map(|_| server.client()).collect();
    let mut random = Random::new(number as u64);
    let mut seen = Seen::default();
    while Instant::now() < deadline {
        let sent: Vec<Instant> = clients
            .iter_mut()
            .map(|client| {
                let key = random.below(10_000);
                let line = match random.below(10) {
                    0 => format!("MSET key:{key} v key:{} v", key + 1),
                    1 => format!("MGET key:{key} key:{} nope", key + 1),
                    2..5 => format!("SET key:{key} value"),
                    _ => format!("GET key:{key}"),
                };
                client.write(&words::encode(&words::parse(&line))).expect("a request");
                Instant::now()
            })
            .collect();
        for (client, sent) in clients.iter_mut().zip(sent) {
            assert!(matches!(client.read(), Outcome::Reply(_)), "no reply");
            let took = sent.elapsed();
            seen.requests += 1;
            seen.stalls += u64::from(took.as_millis() > STALL_MS);
            seen.longest = seen.longest.max(took);
        }
    }
    seen
}
