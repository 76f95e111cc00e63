//! Subscribers that never read: closed at the hard limit, or some time after the soft one; the server's memory stays bounded, and
//! those who read hear everything. `CORELANE_SOAK_S` sets for how many seconds rounds of them come and go.

use std::env;
use std::time::{Duration, Instant};

use crate::common::client::{Client, Outcome};
use crate::common::resp::Value;
use crate::common::server::{self, Server};
use crate::common::words;

const SHARDS: usize = 2;
const SLEEPERS: usize = 6;
const MESSAGE_LEN: usize = 4000;
/// Messages published before their replies and deliveries are read.
const PIPELINE: usize = 50;
/// What the kernel keeps of each sleeper's messages beyond the limit is far less than so many.
const MESSAGES_MAX: usize = 20_000;
/// Beyond what the limit lets each sleeper have: buffers that have grown, and what the allocator keeps.
const GROWTH_MAX: usize = 64 << 20;

fn next(client: &mut Client) -> Value {
    let outcome = client.read();
    outcome.value().unwrap_or_else(|| panic!("a message or reply: {outcome:?}"))
}

/// Numbered messages on one channel, and one who reads them all.
struct Station {
    publisher: Client,
    listener: Client,
    number: usize,
}

impl Station {
    fn new(server: &Server) -> Self {
        let mut listener = server.client();
        listener.run("SUBSCRIBE news");
        Self { publisher: server.client(), listener, number: 0 }
    }

    /// Publishes some messages, which the listener must hear in their order. Returns to how many the last one went.
    fn publish(&mut self, count: usize) -> i64 {
        let first = self.number;
        self.number += count;
        let message =
            |number: usize| words::parse(&format!("PUBLISH news {number}:{}", "x".repeat(MESSAGE_LEN)));
        let commands: Vec<_> = (first..self.number).map(message).collect();
        self.publisher.write(&words::encode_all(&commands)).expect("the server reads");
        for number in first..self.number {
            let parts = next(&mut self.listener).items();
            assert!(parts[2].text().starts_with(&format!("{number}:")), "message {number} comes next");
        }
        (0..count).map(|_| next(&mut self.publisher).int()).last().unwrap_or_default()
    }
}

fn sleepers(server: &Server) -> Vec<Client> {
    let subscribed = |_| {
        let mut client = server.client();
        client.run("SUBSCRIBE news");
        client
    };
    (0..SLEEPERS).map(subscribed).collect()
}

#[test]
fn subscribers_that_never_read_are_closed_at_the_hard_limit() {
    let seconds = env::var("CORELANE_SOAK_S").map_or(0, |text| text.parse().expect("seconds"));
    let server = Server::ours_with(SHARDS, &["--client-output-buffer-limit", "pubsub 1mb 0 0"]);
    let mut station = Station::new(&server);
    station.publish(PIPELINE);
    let (before, until) = (server.resident_bytes(), Instant::now() + Duration::from_secs(seconds));
    for round in 0.. {
        if round > 1 && Instant::now() > until {
            break;
        }
        let mut sleepers = sleepers(&server);
        let mut left = SLEEPERS as i64 + 1;
        for _ in 0..MESSAGES_MAX / PIPELINE {
            left = station.publish(PIPELINE);
            let growth = server.resident_bytes().saturating_sub(before);
            assert!(growth < (SLEEPERS << 20) + GROWTH_MAX, "{} KiB more resident", growth >> 10);
            if left == 1 {
                break;
            }
        }
        assert_eq!(left, 1, "in round {round}, only who reads is left");
        for sleeper in &mut sleepers {
            while let Outcome::Reply(_) = sleeper.read() {}
        }
    }
}

#[test]
fn subscribers_that_never_read_are_closed_some_time_after_the_soft_limit() {
    const SOFT_S: u64 = 2;
    let limit = format!("pubsub 64mb 256kb {SOFT_S}");
    let server = Server::ours_with(SHARDS, &["--client-output-buffer-limit", &limit]);
    let mut station = Station::new(&server);
    // Far less than the hard limit, far more than the soft one and what the kernel keeps of it.
    let _sleepers = sleepers(&server);
    let began = Instant::now();
    let mut left = SLEEPERS as i64 + 1;
    for _ in 0..(40 << 20) / MESSAGE_LEN / PIPELINE {
        left = station.publish(PIPELINE);
    }
    if began.elapsed() < Duration::from_secs(SOFT_S) {
        assert_eq!(left, SLEEPERS as i64 + 1, "nobody is closed before {SOFT_S} s");
    }
    let gone = server::poll(20_000, || (station.publish(1) == 1).then_some(()));
    assert!(gone.is_some(), "they are closed after {SOFT_S} s");
    assert!(began.elapsed() >= Duration::from_secs(SOFT_S), "not before {SOFT_S} s: {:?}", began.elapsed());
    let info = station.publisher.run("INFO stats").text();
    assert!(info.contains(&format!("client_output_buffer_limit_disconnections:{SLEEPERS}")), "{info}");
}
