//! Hand-written edge cases, in `tables/*.txt`: a redis-cli line a command, a blank line between cases, `#` comments.
//! `@2 ` sends a line over the case's second connection; `{now_s+N}` and `{now_ms-N}` are absolute times;
//! `m{0..3}` stands for `m0 m1 m2`.

use std::collections::BTreeMap;
use std::time::Instant;

use super::peers::{self, Pace, Peers, Step};
use crate::common::words;

#[test]
fn strings() {
    check(include_str!("tables/strings.txt"));
}

#[test]
fn hashes() {
    check(include_str!("tables/hashes.txt"));
}

#[test]
fn sorted_sets() {
    check(include_str!("tables/sorted_sets.txt"));
}

#[test]
fn sorted_sets_combined() {
    check(include_str!("tables/sorted_sets_combined.txt"));
}

#[test]
fn hash_deadlines() {
    check(include_str!("tables/hash_deadlines.txt"));
}

#[test]
fn keys() {
    check(include_str!("tables/keys.txt"));
}

#[test]
fn lists() {
    check(include_str!("tables/lists.txt"));
}

#[test]
fn sort() {
    check(include_str!("tables/sort.txt"));
}

#[test]
fn bitmaps() {
    check(include_str!("tables/bitmaps.txt"));
}

#[test]
fn hyperloglog() {
    check(include_str!("tables/hyperloglog.txt"));
}

#[test]
fn geo() {
    check(include_str!("tables/geo.txt"));
}

#[test]
fn sets() {
    check(include_str!("tables/sets.txt"));
}

#[test]
fn payloads() {
    check(include_str!("tables/dump.txt"));
}

#[test]
fn connection() {
    check(include_str!("tables/connection.txt"));
}

#[test]
fn observation() {
    check(include_str!("tables/observation.txt"));
}

#[test]
fn observation_of_all() {
    const FLAGS: [&str; 6] = [
        "--slowlog-log-slower-than",
        "0",
        "--commandlog-request-larger-than",
        "0",
        "--commandlog-reply-larger-than",
        "0",
    ];
    if let Some(peers) = Peers::start_with(&FLAGS) {
        // Commands of one pipeline to different shards may end in either order.
        check_on(&peers, &[Pace::OneByOne], include_str!("tables/observation_of_all.txt"));
    }
}

#[test]
fn diagnosis() {
    check(include_str!("tables/diagnosis.txt"));
}

#[test]
fn configuration() {
    check(include_str!("tables/configuration.txt"));
}

#[test]
fn transactions() {
    check(include_str!("tables/transactions.txt"));
}

#[test]
fn password() {
    // A password that an earlier case has left must not keep out the next: every case ends without one.
    if let Some(peers) = Peers::start() {
        check_on(&peers, &[Pace::OneByOne], include_str!("tables/password.txt"));
    }
}

/// A difference, and where it showed.
type Found = BTreeMap<String, Vec<String>>;

/// Runs every case on all servers and fails with all the differences at once.
fn check(table: &str) {
    if let Some(peers) = Peers::start() {
        check_on(&peers, &[Pace::OneByOne, Pace::Pipelined], table);
    }
}

fn check_on(peers: &Peers, paces: &[Pace], table: &str) {
    let mut report = Vec::new();
    for case in cases(table) {
        let mut found = Found::new();
        for proto in [2, 3] {
            for &pace in paces {
                compare(peers, proto, pace, &case, &mut found);
            }
        }
        report.extend(found.iter().map(|(text, at)| format!("{text}\n  at {}: {}", at.len(), at.join("; "))));
    }
    assert!(report.is_empty(), "{} differences:\n{}", report.len(), report.join("\n"));
}

fn compare(peers: &Peers, proto: u8, pace: Pace, case: &str, found: &mut Found) {
    let began = Instant::now();
    let steps: Vec<Step> = case.lines().map(|line| step(line, peers::now_ms())).collect();
    let several = steps.iter().any(|&(number, _)| number != 1);
    let iterates = steps.iter().any(|(_, command)| words::name(command) == "SCAN");
    if pace == Pace::Pipelined && (several || iterates) {
        return;
    }
    let theirs = peers::run(&peers.valkey, proto, pace, &steps);
    for server in &peers.ours {
        let ours = peers::run(server, proto, pace, &steps);
        for text in peers::mismatches(&steps, &ours, &theirs, began) {
            found.entry(text).or_default().push(format!("{} RESP{proto} {pace:?}", server.name));
        }
    }
}

/// The cases of a table, comments taken out.
fn cases(table: &str) -> Vec<String> {
    let blocks = table.split("\n\n").map(|block| {
        let lines: Vec<&str> =
            block.lines().filter(|line| !line.is_empty() && !line.starts_with('#')).collect();
        lines.join("\n")
    });
    blocks.filter(|block| !block.is_empty()).collect()
}

fn step(line: &str, now_ms: i64) -> Step {
    let (number, line) = line.strip_prefix("@2 ").map_or((1, line), |rest| (2, rest));
    (number, words::parse(&with_ranges(&with_times(line, now_ms))))
}

/// Replaces `{now_s+N}` and `{now_ms+N}` (or `-N`) by numbers.
fn with_times(line: &str, now_ms: i64) -> String {
    let Some(start) = line.find("{now_") else { return line.to_owned() };
    let end = start + line[start..].find('}').expect("closing brace");
    let (unit, offset) =
        line[start + 5..end].split_at(if line[start..].starts_with("{now_ms") { 2 } else { 1 });
    let base = if unit == "ms" { now_ms } else { now_ms / 1000 };
    let time = base + offset.parse::<i64>().expect("a signed offset");
    with_times(&format!("{}{time}{}", &line[..start], &line[end + 1..]), now_ms)
}

/// Replaces words such as `m{0..3}` by one for each number of the range.
fn with_ranges(line: &str) -> String {
    let numbered = |word: &str| -> Option<String> {
        let (prefix, range) = word.strip_suffix('}')?.split_once('{')?;
        let (from, to) = range.split_once("..")?;
        let range = from.parse::<i64>().ok()?..to.parse().ok()?;
        Some(range.map(|number| format!("{prefix}{number}")).collect::<Vec<_>>().join(" "))
    };
    if !line.contains("..") {
        return line.to_owned();
    }
    line.split(' ')
        .map(|word| numbered(word).unwrap_or_else(|| word.to_owned()))
        .collect::<Vec<_>>()
        .join(" ")
}
