//! Random elements and random runs, some of which make no HyperLogLog: after each command the same reply and the same bytes as
//! Valkey's, whatever the limit of the sparse encoding.

use super::peers::{self, Step};
use crate::common::random::Random;
use crate::common::words::Command;

const CASES: u64 = 40;
const COMMANDS: usize = 40;
const KEYS: [&str; 5] = ["a", "b", "c", "{t}1", "d"];

fn command(words: &[&str]) -> Command {
    words.iter().map(|word| word.as_bytes().to_vec()).collect()
}

/// A string with a valid header and runs of all kinds, most of which cover the registers.
fn string(random: &mut Random) -> Vec<u8> {
    let mut bytes = b"HYLL\x01\0\0\0\0\0\0\0\0\0\0\x80".to_vec();
    let header = bytes.len();
    let mut left: usize = 16_384;
    while left > 0 {
        let longest = *random.pick(&[4, 64, 6000]);
        let run = 1 + random.below(longest.min(left));
        left -= run;
        match (longest, run as u16 - 1) {
            (4, run) => bytes.push(0x80 | (random.below(32) as u8) << 2 | run as u8),
            (64, run) => bytes.push(run as u8),
            (_, run) => bytes.extend((run | 0x4000).to_be_bytes()),
        }
    }
    if random.one_in(8) {
        let at = header + random.below(bytes.len() - header);
        bytes[at] = random.next() as u8;
    }
    // What ends in half a run is broken in another way by Valkey than here.
    let mut at = header;
    while at < bytes.len() {
        at += if bytes[at] >> 6 == 1 { 2 } else { 1 };
    }
    bytes.resize(at, 0);
    bytes
}

fn case(seed: u64) -> Vec<Step> {
    let mut random = Random::new(seed);
    let limit = *random.pick(&["3000", "3000", "60", "500", "0", "16000"]);
    let mut commands = vec![command(&["CONFIG", "SET", "hll-sparse-max-bytes", limit])];
    for _ in 0..COMMANDS {
        let key = *random.pick(&KEYS);
        let mut next = match random.below(9) {
            0 => vec![b"SET".to_vec(), key.as_bytes().to_vec(), string(&mut random)],
            1..=4 => command(&["PFADD", key]),
            5 => command(&["PFMERGE", key]),
            6 => command(&["PFCOUNT", key]),
            7 => command(&["PFDEBUG", *random.pick(&["DECODE", "ENCODING", "TODENSE"]), key]),
            _ => command(&["PFCOUNT"]),
        };
        if next[0] == b"PFADD" {
            let count = *random.pick(&[0, 1, 3, 30, 400]);
            let range = *random.pick(&[10, 1000, 100_000, 100_000_000]);
            next.extend((0..count).map(|_| random.below(range).to_string().into_bytes()));
        } else if next[0] == b"PFMERGE" || next.len() == 1 {
            next.extend((0..=random.below(4)).map(|_| random.pick(&KEYS).as_bytes().to_vec()));
        }
        commands.push(next);
        commands.push(command(&["GET", key]));
    }
    commands.into_iter().map(|command| (1, command)).collect()
}

#[test]
fn random_hyperloglogs_have_the_same_bytes() {
    peers::same_cases(&[], CASES, case);
}
