//! Random SORTs of random elements. They have a test of their own since Valkey changes the encoding of a sorted set that it sorts.

use std::time::Instant;

use super::peers::{self, Pace, Peers, Step};
use crate::common::random::Random;
use crate::common::words::{self, Command};

const SEEDS: u64 = 12;
const COMMANDS: usize = 60;
const ELEMENTS_MAX: usize = 120;

/// Sources, weights and fields: few different weights, so that many elements are equal.
fn data(random: &mut Random) -> Vec<Command> {
    let mut commands = Vec::new();
    for source in ["RPUSH list", "SADD set", "ZADD zset"] {
        let mut line = source.to_owned();
        for _ in 0..=random.below(ELEMENTS_MAX) {
            if source.starts_with('Z') {
                line.push_str(&format!(" {}", random.below(9)));
            }
            line.push_str(&format!(" {}", random.below(ELEMENTS_MAX)));
        }
        commands.push(words::parse(&line));
    }
    for element in 0..ELEMENTS_MAX {
        if !random.one_in(5) {
            commands.push(words::parse(&format!("SET w_{element} {}", random.below(7))));
        }
        if random.one_in(2) {
            commands.push(words::parse(&format!("HSET h_{element} f {} g text", random.below(40))));
        }
    }
    commands
}

fn sort(random: &mut Random) -> Command {
    const LIMITS: [&str; 8] = ["0", "1", "5", "17", "40", "90", "-1", "200"];
    let source = *random.pick(&["list", "list", "set", "zset", "none"]);
    let by = *random.pick(&["", "BY w_*", "BY w_*", "BY h_*->f", "BY nosort", "BY none_*"]);
    // Elements of sets and sorted sets whose texts are equal come in the order of a hash table.
    let ties = by.contains('*') && source != "list";
    let mut line = format!("SORT {source} {by} {}", random.pick(&["", "ASC", "DESC"]));
    if !ties && random.one_in(2) {
        line.push_str(" ALPHA");
    }
    for _ in 0..random.below(3) {
        let pattern = *random.pick(&["#", "w_*", "h_*->f", "h_*->g", "none"]);
        line.push_str(&format!(" GET {pattern}"));
    }
    if random.one_in(2) {
        line.push_str(&format!(" LIMIT {} {}", random.pick(&LIMITS), random.pick(&LIMITS)));
    }
    if random.one_in(3) {
        line.push_str(" STORE stored");
    }
    words::parse(&line)
}

#[test]
fn random_sorts() {
    let Some(peers) = Peers::start() else { return };
    for seed in 0..SEEDS {
        let mut random = Random::new(seed);
        let mut commands = data(&mut random);
        for _ in 0..COMMANDS {
            commands.push(sort(&mut random));
            commands.push(words::parse("LRANGE stored 0 -1"));
        }
        let steps: Vec<Step> = commands.into_iter().map(|command| (1, command)).collect();
        let (proto, pace) = if seed % 2 == 0 { (2, Pace::OneByOne) } else { (3, Pace::Pipelined) };
        let began = Instant::now();
        let theirs = peers::run(&peers.valkey, proto, pace, &steps);
        for server in &peers.ours {
            let ours = peers::run(server, proto, pace, &steps);
            let found = peers::mismatches(&steps, &ours, &theirs, began);
            assert!(found.is_empty(), "seed {seed}, {}: {}", server.name, found[0]);
        }
    }
}
