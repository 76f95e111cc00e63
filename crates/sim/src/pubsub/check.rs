//! Whether what clients saw is what docs/pubsub.md promises.

use super::{Log, Seen, Sent, Topic, What};
use std::collections::{BTreeMap, BTreeSet};

/// What is known of one PUBLISH.
struct Publication {
    client: usize,
    sharded: bool,
    channel: String,
    sent: u64,
    /// The step of its reply, and the count in it.
    answered: Option<(u64, i64)>,
    /// How many have received it, each pattern by itself.
    received: i64,
}

/// Holds a log against the contract: counts, nothing lost, nothing unasked, nothing twice, one order for all.
///
/// # Errors
/// What is wrong, in a sentence.
pub fn check(log: &Log) -> Result<(), String> {
    let wrong = |text: String| Err(format!("seed {}: {text}", log.seed));
    let mut publications = collect(log);
    for (client, seen) in log.clients.iter().enumerate() {
        let deliveries = deliveries(seen);
        for (topic, payloads) in &deliveries {
            let distinct: BTreeSet<&String> = payloads.iter().map(|(_, payload)| payload).collect();
            if distinct.len() != payloads.len() {
                return wrong(format!("client {client} received a message for {topic:?} twice"));
            }
            for (place, payload) in payloads {
                let Some(publication) = publications.get_mut(payload) else {
                    return wrong(format!("client {client} received {payload}, which nobody has sent"));
                };
                publication.received += 1;
                if !may_receive(seen, topic, *place) {
                    return wrong(format!(
                        "client {client} received {payload} for {topic:?} without a subscription"
                    ));
                }
                let early = publication.client == client && !answered_before(seen, payload, *place);
                if early {
                    return wrong(format!("client {client} received its own {payload} before the reply"));
                }
            }
        }
        for (payload, publication) in &publications {
            for topic in must_receive(seen, publication) {
                let there =
                    deliveries.get(&topic).is_some_and(|all| all.iter().any(|(_, other)| other == payload));
                if !there {
                    return wrong(format!("client {client} has not received {payload} for {topic:?}"));
                }
            }
        }
    }
    let somebody_vanished = log.clients.iter().flatten().any(|seen| seen.what == What::Vanished);
    for (payload, publication) in &publications {
        let Some((_, count)) = publication.answered else { continue };
        let fits =
            if somebody_vanished { count >= publication.received } else { count == publication.received };
        if !fits {
            return wrong(format!(
                "{payload} was counted {count} times and received {} times",
                publication.received
            ));
        }
    }
    match circle(log, &publications) {
        Some(channel) => wrong(format!("there is no order of the messages on {channel} that all have seen")),
        None => Ok(()),
    }
}

fn collect(log: &Log) -> BTreeMap<String, Publication> {
    let mut all = BTreeMap::new();
    for (client, seen) in log.clients.iter().enumerate() {
        for Seen { step, what } in seen {
            match what {
                What::Sent(Sent::Publish { sharded, channel, payload }) => {
                    let (sharded, channel) = (*sharded, channel.clone());
                    let publication =
                        Publication { client, sharded, channel, sent: *step, answered: None, received: 0 };
                    all.insert(payload.clone(), publication);
                }
                What::Published(payload, count) => {
                    let publication = all.get_mut(payload).expect("it was sent before");
                    publication.answered = Some((*step, *count));
                }
                _ => {}
            }
        }
    }
    all
}

/// What came for each topic, in order, with its place in the client's log.
fn deliveries(seen: &[Seen]) -> BTreeMap<Topic, Vec<(usize, String)>> {
    let mut all = BTreeMap::<Topic, Vec<(usize, String)>>::new();
    for (place, one) in seen.iter().enumerate() {
        if let What::Message(topic, _, payload) = &one.what {
            all.entry(topic.clone()).or_default().push((place, payload.clone()));
        }
    }
    all
}

/// Whether the last that was confirmed for the topic before this place is a subscription.
fn may_receive(seen: &[Seen], topic: &Topic, place: usize) -> bool {
    let last = seen[..place].iter().rev().find_map(|one| match &one.what {
        What::Changed(other, on) if other == topic => Some(*on),
        _ => None,
    });
    last == Some(true)
}

/// Whether the reply to a PUBLISH of the client's own stands before this place; or may come later, since that of an earlier one is
/// still owed.
fn answered_before(seen: &[Seen], payload: &str, place: usize) -> bool {
    let mut open = Vec::new();
    for one in &seen[..place] {
        match &one.what {
            What::Sent(Sent::Publish { payload, .. }) => open.push(payload.as_str()),
            What::Published(payload, _) => open.retain(|other| other != payload),
            _ => {}
        }
    }
    open.iter().position(|other| *other == payload) != Some(0)
}

/// The topics for which a client must have received a message: it was subscribed all the while from before it was sent until after
/// it was answered.
fn must_receive(seen: &[Seen], publication: &Publication) -> Vec<Topic> {
    let Some((answered, _)) = publication.answered else { return Vec::new() };
    if seen.iter().any(|one| one.what == What::Vanished) {
        return Vec::new();
    }
    let mut since = BTreeMap::<&Topic, Option<u64>>::new();
    let mut endings = BTreeMap::<&Topic, usize>::new();
    for one in seen.iter().take_while(|one| one.step <= answered) {
        match &one.what {
            What::Changed(topic, true) if endings.get(topic).is_none_or(|count| *count == 0) => {
                since.entry(topic).or_default().get_or_insert(one.step);
            }
            What::Changed(topic, false) => *endings.entry(topic).or_default() -= 1,
            // From now on it may be over.
            What::Sent(Sent::Change(topic, false)) => {
                since.insert(topic, None);
                *endings.entry(topic).or_default() += 1;
            }
            _ => {}
        }
    }
    let matches = |topic: &Topic| match topic {
        Topic::Channel(name) => !publication.sharded && *name == publication.channel,
        Topic::Sharded(name) => publication.sharded && *name == publication.channel,
        Topic::Pattern(pattern) => !publication.sharded && fits(pattern, &publication.channel),
    };
    let certain = |since: &Option<u64>| since.is_some_and(|step| step < publication.sent);
    since
        .iter()
        .filter(|(topic, step)| certain(step) && matches(topic))
        .map(|(topic, _)| (*topic).clone())
        .collect()
}

/// Whether one of the workload's patterns matches one of its channels.
fn fits(pattern: &str, channel: &str) -> bool {
    match pattern {
        "news:*" => true,
        "*:1" => channel.ends_with(":1"),
        "news:[02]" => channel.ends_with('0') || channel.ends_with('2'),
        _ => false,
    }
}

/// A channel whose messages have no order that every subscriber, every publisher and the time between reply and next request agree
/// with.
fn circle(log: &Log, publications: &BTreeMap<String, Publication>) -> Option<String> {
    let mut after = BTreeMap::<&str, BTreeSet<&str>>::new();
    let mut runs = BTreeMap::<(usize, &Topic, &str), &str>::new();
    for (client, seen) in log.clients.iter().enumerate() {
        for one in seen {
            let What::Message(topic, channel, payload) = &one.what else { continue };
            if let Some(before) = runs.insert((client, topic, channel), payload) {
                after.entry(before).or_default().insert(payload);
            }
        }
    }
    for (payload, one) in publications {
        for (other, next) in publications {
            let same = one.channel == next.channel && one.sharded == next.sharded && payload != other;
            let own = one.client == next.client && one.sent < next.sent;
            if same && (own || one.answered.is_some_and(|(step, _)| step < next.sent)) {
                after.entry(payload).or_default().insert(other);
            }
        }
    }
    // Takes away what nothing comes before, until nothing is left or all go round.
    let mut left: BTreeSet<&str> = publications.keys().map(String::as_str).collect();
    loop {
        let led: BTreeSet<&str> = left.iter().filter_map(|name| after.get(name)).flatten().copied().collect();
        if left.iter().all(|name| led.contains(name)) {
            return left.first().map(|name| publications[*name].channel.clone());
        }
        left.retain(|name| led.contains(name));
    }
}
