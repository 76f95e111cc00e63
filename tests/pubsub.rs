//! Publish/subscribe with many connections at a time on 1, 2 and 5 shards: one order for all, exact counts, and subscribers that do
//! not read.

mod common;

use common::client::{Client, Outcome};
use common::resp::Value;
use common::server::Server;
use common::words;

const SHARD_COUNTS: [usize; 3] = [1, 2, 5];
const CHANNELS: usize = 4;
const PUBLISHERS: usize = 4;
const MESSAGES: usize = 200;

fn pipeline(client: &mut Client, lines: &[String]) {
    let commands: Vec<Vec<Vec<u8>>> = lines.iter().map(|line| words::parse(line)).collect();
    client.write(&words::encode_all(&commands)).expect("the server reads");
}

fn next(client: &mut Client) -> Value {
    let outcome = client.read();
    outcome.value().unwrap_or_else(|| panic!("a message or reply: {outcome:?}"))
}

/// The messages of each channel, in the order in which a subscriber received them.
fn received(client: &mut Client) -> Vec<Vec<String>> {
    let mut channels = vec![Vec::new(); CHANNELS];
    for _ in 0..PUBLISHERS * MESSAGES {
        let parts: Vec<String> = next(client).items().iter().map(Value::text).collect();
        let [.., channel, payload] = &parts[..] else { panic!("{parts:?}") };
        let idx: usize = channel.trim_start_matches("channel").parse().expect("one of ours");
        channels[idx].push(payload.clone());
    }
    channels
}

#[test]
fn all_subscribers_see_one_order_and_every_message_is_counted() {
    for shards in SHARD_COUNTS {
        let server = Server::ours(shards);
        let names: Vec<String> = (0..CHANNELS).map(|idx| format!("channel{idx}")).collect();
        let mut subscribers: Vec<Client> = (0..6).map(|_| server.client()).collect();
        for (n, subscriber) in subscribers.iter_mut().enumerate() {
            if n % 2 == 0 {
                pipeline(subscriber, &[format!("SUBSCRIBE {}", names.join(" "))]);
                (0..CHANNELS).for_each(|_| drop(next(subscriber)));
            } else {
                subscriber.run("PSUBSCRIBE channel*");
            }
        }
        let mut publishers: Vec<Client> = (0..PUBLISHERS).map(|_| server.client()).collect();
        for (n, publisher) in publishers.iter_mut().enumerate() {
            let lines: Vec<String> =
                (0..MESSAGES).map(|m| format!("PUBLISH {} {n}:{m}", names[m % CHANNELS])).collect();
            pipeline(publisher, &lines);
        }
        let first = received(&mut subscribers[0]);
        for subscriber in &mut subscribers[1..] {
            assert!(received(subscriber) == first, "one order for all, on {shards} shards");
        }
        for publisher in &mut publishers {
            (0..MESSAGES).for_each(|_| assert_eq!(next(publisher).int(), 6, "{shards} shards"));
        }
        for messages in &first {
            for n in 0..PUBLISHERS {
                let prefix = format!("{n}:");
                let own: Vec<usize> =
                    messages.iter().filter_map(|text| text.strip_prefix(&prefix)?.parse().ok()).collect();
                assert!(own.is_sorted() && own.len() == MESSAGES / CHANNELS, "{own:?}");
            }
        }
    }
}

#[test]
fn a_message_after_the_confirmation_arrives_and_one_after_the_end_does_not() {
    for shards in SHARD_COUNTS {
        let server = Server::ours(shards);
        let (mut subscriber, mut publisher) = (server.client(), server.client());
        for round in 0..300 {
            let command = if round % 3 == 0 { "PSUBSCRIBE" } else { "SUBSCRIBE" };
            subscriber.run(&format!("{command} c{round}"));
            assert_eq!(
                publisher.run(&format!("PUBLISH c{round} x")).int(),
                1,
                "{shards} shards, round {round}"
            );
            assert_eq!(next(&mut subscriber).items().last().map(Value::text).as_deref(), Some("x"));
            subscriber.run(&format!("{} c{round}", command.replace("SUB", "UNSUB")));
            assert_eq!(
                publisher.run(&format!("PUBLISH c{round} x")).int(),
                0,
                "{shards} shards, round {round}"
            );
        }
    }
}

#[test]
fn a_subscriber_that_does_not_read_is_closed_and_the_others_hear_all() {
    const LEN: usize = 20_000;
    for shards in SHARD_COUNTS {
        let server = Server::ours_with(shards, &["--client-output-buffer-limit", "pubsub 1mb 0 0"]);
        let (mut slow, mut reader, mut publisher) = (server.client(), server.client(), server.client());
        slow.run("SUBSCRIBE news");
        reader.run("SUBSCRIBE news");
        let message = format!("PUBLISH news {}", "x".repeat(LEN));
        // Beyond the limit come what the kernel's buffers hold, which grow up to some megabytes.
        let dropped = (0..5000).any(|_| {
            let count = publisher.run(&message).int();
            assert_eq!(next(&mut reader).items().last().map(|text| text.text().len()), Some(LEN));
            count == 1
        });
        assert!(dropped, "the slow one is closed, on {shards} shards");
        let info = publisher.run("INFO stats").text();
        assert!(info.contains("client_output_buffer_limit_disconnections:1"), "{info}");
        while let Outcome::Reply(_) = slow.read() {}
    }
}
