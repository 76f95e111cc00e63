//! Words for arguments: of the kind that is asked for, mostly, and of all others.

use super::table::{Argument, SORTS};
use crate::common::words::{self, Command};

/// Keys by the type that they hold at first; those of the last line hold nothing.
const KEYS: &[(&str, &[&[u8]])] = &[
    ("string", &[b"s1", b"s2", b"s3"]),
    ("list", &[b"l1", b"l2"]),
    ("set", &[b"i1", b"t1", b"t2"]),
    ("sorted-set", &[b"z1", b"z2"]),
    ("hash", &[b"h1", b"h2", b"h3"]),
    ("none", &[b"n1", b"n2", b"", b"\x00\xff\r\n"]),
];
/// Sorted sets of one score, for what is about lexical order, and a missing key: with several scores the reply is unspecified,
/// and depends on the heights of Valkey's skip list.
const LEXICAL: [&[u8]; 3] = [b"q1", b"q2", b"q3"];
/// Fields, members, elements and values.
const WORDS: &[&[u8]] = &[
    b"a",
    b"b",
    b"f",
    b"1",
    b"x",
    b"c",
    b"2",
    b"10",
    b"",
    b"3.5",
    b"-1",
    b"hello",
    b"007",
    b" 1",
    b"9223372036854775807",
    b"a-word-that-is-longer-than-what-fits-into-a-small-collection-of-any-kind",
    b"\x00\x01\xff\r\n",
    b"nan",
    b"1e3",
];
const INTEGERS: &[&str] = &[
    "1",
    "0",
    "2",
    "-1",
    "3",
    "5",
    "-2",
    "100",
    "-100",
    "9223372036854775807",
    "-9223372036854775808",
    "1.5",
    "x",
    "",
    " 1",
    "+1",
    "01",
];
const DOUBLES: &[&str] = &[
    "1", "0", "-1", "1.5", "10", "2", "inf", "-inf", "nan", "1e3", "0.1", "1e400", "x", "", "1 ", ".5",
    "0x10",
];
/// Ends of ranges: by index, by score and by lexical order.
const ENDS: &[&str] = &[
    "0", "-1", "1", "2", "(1", "[a", "-", "+", "inf", "-inf", "[c", "(b", "(0", "10", "-3", "(inf", "[", "x",
    "nan", "1.5", "",
];
const ENCODINGS: &[&str] = &["u8", "i8", "u1", "i16", "u63", "i64", "u64", "i0", "x8", "u"];
const OFFSETS: &[&str] = &["0", "1", "#1", "7", "100", "#0", "-1", "#", "x"];
const PATTERNS: &[&str] = &["*", "?", "[a-f]", "s*", "h?", "*1", "", "[", "\\a"];
const BAD_TIMES: &[&str] = &["0", "-1", "x", "9223372036854775807", "9223372036854776", "1.5", ""];
const JUNK: &[&str] =
    &["", "x", "-1", "99999999999999999999", "NX", "COUNT", "LIMIT", "WITHSCORES", "1.5", "\u{0}"];

/// Every key that a command may be on.
pub(super) fn keys() -> impl Iterator<Item = &'static [u8]> {
    KEYS.iter().flat_map(|(_, keys)| keys.iter().copied())
}

/// Keys that only commands about lexical order are on.
pub(super) fn lexical_keys() -> impl Iterator<Item = &'static [u8]> {
    LEXICAL.into_iter()
}

/// Whether a key holds a set at first.
pub(super) fn holds_set(key: &[u8]) -> bool {
    KEYS.iter().any(|(group, keys)| *group == "set" && keys.contains(&key))
}

/// Numbers that decide what is made, the plainest by 0: so a shrunk case is a plain one.
#[derive(Debug)]
pub(super) struct Choices<'a> {
    tape: std::slice::Iter<'a, u16>,
    /// The command's place in its case.
    step: usize,
    now_ms: i64,
    group: &'static str,
    picks_at_random: bool,
    cuts_indexes: bool,
    sorts: bool,
}

impl<'a> Choices<'a> {
    pub(super) fn new(tape: &'a [u16], step: usize, now_ms: i64) -> Self {
        Self {
            tape: tape.iter(),
            step,
            now_ms,
            group: "none",
            picks_at_random: false,
            cuts_indexes: false,
            sorts: false,
        }
    }

    /// To be called before a command is made.
    pub(super) fn begin(&mut self, group: &str, name: &str) {
        let group = match group {
            "bitmap" | "hyperloglog" => "string",
            "geo" => "sorted-set",
            other => other,
        };
        self.group = KEYS.iter().map(|(name, _)| *name).find(|name| *name == group).unwrap_or("");
        self.picks_at_random = name.contains("RAND");
        self.cuts_indexes = name == "LSET";
        self.sorts = name.starts_with(SORTS);
    }

    /// A number below `bound`.
    pub(super) fn below(&mut self, bound: usize) -> usize {
        usize::from(self.tape.next().copied().unwrap_or(0)) % bound
    }

    fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len())]
    }

    fn text(&mut self, from: &[&str]) -> Vec<u8> {
        self.pick(from).as_bytes().to_vec()
    }

    /// A word of the syntax, in any case.
    pub(super) fn spelled(&mut self, token: &str) -> Vec<u8> {
        if self.below(8) == 7 { token.to_lowercase().into_bytes() } else { token.as_bytes().to_vec() }
    }

    /// A value for an argument that is no group.
    pub(super) fn word(&mut self, argument: &Argument) -> Vec<u8> {
        let name = argument.name.as_str();
        match (name, argument.kind.as_str()) {
            ("seconds", _) => self.time(0, 1),
            ("milliseconds" | "ttl", _) => self.time(0, 1000),
            ("unix-time-seconds", _) => self.time(self.now_ms / 1000, 1),
            ("unix-time-milliseconds", _) => self.time(self.now_ms, 1000),
            // Never zero: that would be for ever.
            ("timeout", _) => self.text(&["0.01", "0.001", "-1", "x", "nan", "1e400"]),
            ("cursor", _) => self.text(&["0", "x", ""]),
            ("encoding", _) => self.text(ENCODINGS),
            ("offset", "string" | "integer") if self.group == "string" => self.text(OFFSETS),
            ("start" | "stop" | "min" | "max" | "end", _) => self.end(),
            (_, "key") => self.key(),
            (_, "integer") => self.integer(),
            (_, "double") => self.text(DOUBLES),
            (_, "pattern") => self.text(PATTERNS),
            _ => self.pick(WORDS).to_vec(),
        }
    }

    fn key(&mut self) -> Vec<u8> {
        let all: Vec<&[u8]> = keys().filter(|key| !(self.sorts && key.starts_with(b"z"))).collect();
        let own = KEYS.iter().find(|(group, _)| *group == self.group);
        match (own, self.below(8)) {
            (Some((_, keys)), 0..=4) => self.pick(keys).to_vec(),
            (_, 0..=6) => self.pick(&all).to_vec(),
            _ => self.pick(KEYS[KEYS.len() - 1].1).to_vec(),
        }
    }

    /// Not so many random elements that the other server runs out of memory.
    fn integer(&mut self) -> Vec<u8> {
        let word = self.text(INTEGERS);
        // Valkey's LSET looks at 32 bits of an index, so that some far outside are inside for it.
        let is_bounded = self.picks_at_random || self.cuts_indexes;
        if is_bounded && word.len() > 4 { b"-7".to_vec() } else { word }
    }

    fn end(&mut self) -> Vec<u8> {
        if self.below(2) == 0 { self.text(ENDS) } else { self.integer() }
    }

    /// A time hours ahead, different in each command of a case so that none hangs on a millisecond; sometimes a bad one.
    fn time(&mut self, base: i64, per_second: i64) -> Vec<u8> {
        if self.below(6) == 5 {
            return self.text(BAD_TIMES);
        }
        let ahead_s = 1000 + self.step as i64 * 100 + self.below(60) as i64;
        (base + ahead_s * per_second).to_string().into_bytes()
    }

    /// The command, one in eight with an argument dropped, doubled, replaced, moved or added: not where a cursor or a time to
    /// wait might come of it.
    pub(super) fn damaged(&mut self, command: Command) -> Command {
        if self.below(8) != 7 || may_wait(&command) || words::name(&command).ends_with("SCAN") {
            return command;
        }
        let mut damaged = command.clone();
        let at = self.below(command.len());
        match self.below(5) {
            0 if at > 0 => drop(damaged.remove(at)),
            1 => damaged.insert(at + 1, command[at].clone()),
            2 if at > 0 => damaged[at] = self.text(JUNK),
            3 if at > 0 => damaged.swap(1, at),
            _ => damaged.push(self.text(JUNK)),
        }
        if ends_soon(&damaged) { command } else { damaged }
    }
}

/// The command on keys of its own if it is about lexical order.
pub(super) fn with_lexical_keys(mut command: Command) -> Command {
    let is_lexical = |word: &Vec<u8>| word.to_ascii_uppercase().windows(3).any(|part| part == b"LEX");
    if command.iter().any(is_lexical) {
        for word in command.iter_mut().skip(1) {
            let place = match word.as_slice() {
                b"z1" => Some(0),
                b"z2" => Some(1),
                other => keys().any(|key| key == other).then_some(2),
            };
            if let Some(place) = place {
                *word = LEXICAL[place].to_vec();
            }
        }
    }
    command
}

/// Whether it may wait for as long as one of its arguments says.
fn may_wait(command: &Command) -> bool {
    let name = words::name(command);
    name.starts_with("BL") || name.starts_with("BR") || name.starts_with("BZ")
}

/// Whether it may set a deadline that passes while the case runs.
fn ends_soon(command: &Command) -> bool {
    let name = words::name(command);
    let takes_time = name.contains("EXPIRE")
        || ["SET", "SETEX", "PSETEX", "GETEX", "MSETEX", "HGETEX", "HSETEX", "RESTORE"]
            .contains(&name.as_str());
    let soon =
        |word: &Vec<u8>| std::str::from_utf8(word).is_ok_and(|word| matches!(word.parse(), Ok(1..60_000)));
    takes_time && command[1..].iter().any(soon)
}
