//! The contract holds for many seeds, and the checker notices when it does not.

use super::{Log, What, check, run};

const SEEDS: u64 = 300;

#[test]
fn messages_keep_their_contract() {
    let mut messages = 0;
    for seed in 0..SEEDS {
        let log = run(seed).unwrap_or_else(|text| panic!("{text}"));
        check(&log).unwrap_or_else(|text| panic!("{text}"));
        messages +=
            log.clients.iter().flatten().filter(|seen| matches!(seen.what, What::Message(..))).count();
    }
    assert!(messages > 10 * SEEDS as usize, "only {messages} messages");
}

/// Changes logs of runs in a way that breaks the contract; how many of them the checker objects to.
fn noticed(spoil: impl Fn(&mut Log) -> bool) -> (usize, usize) {
    let (mut spoiled, mut found) = (0, 0);
    for seed in 0..100 {
        let mut log = run(seed).expect("answered");
        if spoil(&mut log) {
            spoiled += 1;
            found += usize::from(check(&log).is_err());
        }
    }
    (spoiled, found)
}

fn is_message(what: &What) -> bool {
    matches!(what, What::Message(..))
}

/// The client and the places of its first two messages for the same topic and channel.
fn two_of_one(log: &Log) -> Option<(usize, usize, usize)> {
    let same = |a: &What, b: &What| match (a, b) {
        (What::Message(topic, channel, _), What::Message(other, place, _)) => {
            topic == other && channel == place
        }
        _ => false,
    };
    log.clients.iter().enumerate().find_map(|(client, seen)| {
        (0..seen.len()).find_map(|first| {
            let second =
                (first + 1..seen.len()).find(|second| same(&seen[first].what, &seen[*second].what))?;
            Some((client, first, second))
        })
    })
}

#[test]
fn a_lost_or_doubled_message_and_a_wrong_count_are_noticed() {
    let vanished = |log: &Log| log.clients.iter().flatten().any(|seen| seen.what == What::Vanished);
    let (spoiled, found) = noticed(|log| {
        let seen = log.clients.iter_mut().find(|seen| seen.iter().any(|one| is_message(&one.what)));
        let Some(seen) = seen else { return false };
        seen.retain({
            let mut first = true;
            move |one| !(is_message(&one.what) && std::mem::take(&mut first))
        });
        !vanished(log)
    });
    assert!(spoiled > 10 && found == spoiled, "{found} of {spoiled} lost messages");
    let (spoiled, found) = noticed(|log| {
        let Some((client, first, _)) = two_of_one(log) else { return false };
        let again = log.clients[client][first].clone();
        log.clients[client].insert(first, again);
        true
    });
    assert!(spoiled > 10 && found == spoiled, "{found} of {spoiled} doubled messages");
    let (spoiled, found) = noticed(|log| {
        let counts = log.clients.iter_mut().flatten().find_map(|seen| match &mut seen.what {
            What::Published(_, count) if *count > 0 => Some(count),
            _ => None,
        });
        counts.is_some_and(|count| {
            *count -= 1;
            true
        })
    });
    assert!(spoiled > 10 && found == spoiled, "{found} of {spoiled} wrong counts");
}

#[test]
fn another_order_is_noticed_where_somebody_can_tell() {
    let (spoiled, found) = noticed(|log| {
        let Some((client, first, second)) = two_of_one(log) else { return false };
        let (one, other) =
            (log.clients[client][first].what.clone(), log.clients[client][second].what.clone());
        log.clients[client][first].what = other;
        log.clients[client][second].what = one;
        true
    });
    assert!(spoiled > 10 && found > spoiled / 2, "{found} of {spoiled} changed orders");
}
