//! Random command sequences: the same to every server, then the whole state compared; a failing sequence is cut down
//! to the shortest one that still fails and printed as redis-cli lines.

use std::env;
use std::time::Instant;

use super::grammar;
use super::peers::{self, Pace, Peers, Step};
use super::shrink;
use crate::common::client::Outcome;
use crate::common::compare;
use crate::common::random::Random;
use crate::common::server::Server;
use crate::common::words::{self, Command};

/// Random cases of one run of the suite, per protocol; `.ci/long` sets thousands through `CORELANE_DIFF_CASES`.
pub(crate) const CASES_DEFAULT: u64 = 150;
const STEPS_MAX: usize = 40;

#[test]
fn random_commands_resp2() {
    check(2);
}

#[test]
fn random_commands_resp3() {
    check(3);
}

fn check(proto: u8) {
    let Some(peers) = Peers::start() else { return };
    let number = |name, default| env::var(name).map_or(default, |text| text.parse().expect(name));
    let first = number("CORELANE_DIFF_SEED", 1);
    for seed in first..first + number("CORELANE_DIFF_CASES", CASES_DEFAULT) {
        let pace = if seed % 2 == 0 { Pace::Pipelined } else { Pace::OneByOne };
        let commands = sequence(seed * 2 + u64::from(proto % 2), pace);
        compare(&peers, proto, pace, seed, &commands);
    }
}

/// Only commands on sorted sets: so that they meet more often than among all.
#[test]
fn random_sorted_sets() {
    let Some(peers) = Peers::start() else { return };
    let lines = grammar::family(&["Z", "SADD", "DEL", "COPY", "OBJECT"]);
    let number = |name, default| env::var(name).map_or(default, |text| text.parse().expect(name));
    let first = number("CORELANE_DIFF_SEED", 1);
    for seed in first..first + number("CORELANE_DIFF_CASES", CASES_DEFAULT) {
        let (mut random, now_ms) = (Random::new(seed), peers::now_ms());
        let commands: Vec<Command> =
            (0..2 * STEPS_MAX).map(|_| grammar::command_of(&lines, &mut random, now_ms)).collect();
        let proto = 2 + (seed % 2) as u8;
        compare(&peers, proto, Pace::Pipelined, seed, &commands);
    }
}

fn sequence(seed: u64, pace: Pace) -> Vec<Command> {
    let mut random = Random::new(seed);
    let now_ms = peers::now_ms();
    let count = 2 + random.below(STEPS_MAX);
    let commands: Vec<Command> = (0..count).map(|_| grammar::command(&mut random, now_ms)).collect();
    // EXEC's replies are compared as one.
    let queues = commands.iter().any(|command| words::name(command) == "MULTI");
    let fits = |command: &Command| {
        // A pipeline does not follow a cursor.
        let scans = ["SCAN", "SSCAN"].contains(&words::name(command).as_str());
        !(scans && pace == Pace::Pipelined) && (!queues || is_exact(command))
    };
    commands.into_iter().filter(fits).collect()
}

fn is_exact(command: &Command) -> bool {
    compare::is_exact(command) && words::name(command) != "SSCAN"
}

/// All differences, where sets may be large: the order of such a set's members is no promise, nor what a cursor leads to that
/// nobody gave.
fn mismatches(steps: &[Step], ours: &[Outcome], theirs: &[Outcome], began: Instant) -> Vec<String> {
    peers::mismatches_by(steps, ours, theirs, began, |at, slack_ms| {
        let command = &steps[at].1;
        compare::same(command, &ours[at], &theirs[at], slack_ms)
            || words::name(command) == "SSCAN" && same_scan(command, &ours[at], &theirs[at])
    })
}

fn same_scan(command: &Command, ours: &Outcome, theirs: &Outcome) -> bool {
    let elements = |outcome: &Outcome| {
        let reply = outcome.value().filter(|value| !value.is_error())?.items();
        let given = command.get(2).is_none_or(|cursor| cursor == b"0");
        Some(if given { (reply[0].text(), compare::sorted(&reply[1])) } else { Default::default() })
    };
    elements(ours).is_some_and(|ours| Some(ours) == elements(theirs))
}

fn compare(peers: &Peers, proto: u8, pace: Pace, seed: u64, commands: &[Command]) {
    let steps = with_state(commands);
    let began = Instant::now();
    let theirs = peers::run(&peers.valkey, proto, pace, &steps);
    for server in &peers.ours {
        let ours = peers::run(server, proto, pace, &steps);
        if let Some(first) = mismatches(&steps, &ours, &theirs, began).first() {
            let fails = |commands: &[Command]| {
                let found = difference(server, &peers.valkey, proto, pace, commands);
                found.is_some_and(|found| same_question(&found, first))
            };
            let shortest = shrink::shortest(commands.to_vec(), fails);
            let text = difference(server, &peers.valkey, proto, pace, &shortest);
            let lines: Vec<String> = shortest.iter().map(|command| words::print(command)).collect();
            panic!(
                "CORELANE_DIFF_SEED={seed} ({}, RESP{proto}, {pace:?}), shortest sequence:\n{}\n\n{}",
                server.name,
                lines.join("\n"),
                text.unwrap_or_else(|| "did not fail again".to_owned())
            );
        }
    }
}

/// Whether two differences are about the same command: shrinking must not slip from one fault to another.
fn same_question(one: &str, other: &str) -> bool {
    let question = |text: &str| text.split_whitespace().nth(1).map(str::to_uppercase);
    question(one) == question(other)
}

/// The first difference when `commands` run on both servers.
fn difference(ours: &Server, valkey: &Server, proto: u8, pace: Pace, commands: &[Command]) -> Option<String> {
    let steps = with_state(commands);
    let began = Instant::now();
    let theirs = peers::run(valkey, proto, pace, &steps);
    let replies = peers::run(ours, proto, pace, &steps);
    mismatches(&steps, &replies, &theirs, began).into_iter().next()
}

/// The commands, followed by questions that show the whole state they leave.
fn with_state(commands: &[Command]) -> Vec<Step> {
    let mut all = commands.to_vec();
    // The questions are not to be queued.
    all.push(words::parse("DISCARD"));
    for db in grammar::DATABASES {
        all.push(words::parse(&format!("SELECT {db}")));
        all.push(words::parse("KEYS *"));
        for key in grammar::KEYS {
            for question in ["GET", "PEXPIRETIME"] {
                all.push(vec![question.into(), key.to_vec()]);
            }
        }
        // By now both servers have noticed which keys are past their time.
        all.push(words::parse("DBSIZE"));
    }
    all.into_iter().map(|command| (1, command)).collect()
}
