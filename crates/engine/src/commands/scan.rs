//! Finding keys without knowing them: KEYS, SCAN and RANDOMKEY.
//!
//! A cursor is a place in an order that all keys have, whatever comes and goes: by slot, then by hash. So a full
//! iteration returns every key that is there from its start to its end exactly once, across all shards.

use crate::args::{Args, parse_int};
use crate::command::{Command, Flags, Flow, Merge, Plan, Scope};
use crate::ctx::{Ctx, PartResult};
use crate::errors::Error;
use crate::glob::glob_match;
use crate::keyspace::{Entry, ScanPosition};
use crate::slot::{Slot, slot_of};
use corelane_resp::{Mark, Reply};

/// Keys that one step of KEYS looks at.
const KEYS_STEP: usize = 500;
/// Keys that one SCAN looks at, however many it is asked for; about half a millisecond.
pub(super) const SCAN_STEP_MAX: usize = 4096;
/// What SCAN looks at without COUNT.
pub(super) const COUNT_DEFAULT: usize = 10;

pub(super) const COMMANDS: &[Command] = &[
    Command {
        name: "keys",
        arity: 2,
        flags: Flags::READONLY,
        categories: &["@keyspace", "@dangerous"],
        plan: Plan::EachShard { part: keys, merge: Merge::With(merge_keys) },
        scope: Scope::Whole,
        summary: "Returns all key names that match a pattern.",
        complexity: "O(N) where N is the number of keys in the database",
        syntax: "pattern",
        tips: &["request_policy:all_shards", "nondeterministic_output_order"],
        ..Command::DEFAULT
    },
    Command {
        name: "scan",
        arity: -2,
        flags: Flags::READONLY,
        categories: &["@keyspace"],
        plan: Plan::Routed { route, run: scan },
        since: "2.8.0",
        summary: "Iterates over the key names in the database.",
        complexity: "O(1) for a call, O(N) for a whole iteration, where N is the number of keys in the database",
        syntax: "cursor [MATCH pattern] [COUNT count] [TYPE type] @6.0.0",
        tips: &["nondeterministic_output", "request_policy:special", "response_policy:special"],
        ..Command::DEFAULT
    },
    Command {
        name: "randomkey",
        arity: 1,
        flags: Flags::READONLY,
        categories: &["@keyspace"],
        plan: Plan::EachShard { part: random_key, merge: Merge::With(merge_random) },
        scope: Scope::Whole,
        summary: "Returns a random key name from the database.",
        tips: &["request_policy:all_shards", "response_policy:special", "nondeterministic_output"],
        ..Command::DEFAULT
    },
];

/// A pattern for keys.
#[derive(Clone, Copy, Debug)]
struct Pattern<'a>(&'a [u8]);

impl Pattern<'_> {
    fn matches(self, key: &[u8]) -> bool {
        self.0 == b"*" || glob_match(self.0, key, false)
    }

    /// The only slot that keys can be in which match: where the pattern begins with a whole hash tag in plain bytes, or
    /// is nothing but plain bytes.
    fn slot(self) -> Option<Slot> {
        let plain_len = self.0.iter().position(|byte| b"*?[\\".contains(byte)).unwrap_or(self.0.len());
        let plain = &self.0[..plain_len];
        let open = plain.iter().position(|byte| *byte == b'{');
        let has_tag = open.is_some_and(|open| {
            plain[open + 1..].iter().position(|byte| *byte == b'}').is_some_and(|len| len != 0)
        });
        (has_tag || plain_len == self.0.len()).then(|| slot_of(plain))
    }
}

/// From where to where a shard's slots are to be looked at.
struct Section {
    from: ScanPosition,
    to: Slot,
}

fn keys(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply) -> Result<Flow, Error> {
    let pattern = Pattern(args.at(1));
    let mut section = Section { from: ScanPosition::START, to: Slot::END };
    if let Some(slot) = pattern.slot() {
        section = Section { from: ScanPosition::at(slot), to: Slot(slot.0 + 1) };
    }
    if ctx.resume != 0 {
        section.from = ScanPosition::from_cursor(ctx.resume).ok_or(Error::InvalidCursor)?;
    }
    let (mut visited, keyspace) = (0, &ctx.shard.keyspace);
    let next = keyspace.walk(ctx.db, section.from, section.to, KEYS_STEP, ctx.now, &mut |entry| {
        if pattern.matches(entry.key()) {
            reply.bulk(entry.key());
            visited += 1;
        }
    });
    ctx.elements += visited;
    Ok(next.map_or(Flow::Done, |position| Flow::Again(position.to_cursor())))
}

fn merge_keys(parts: &[PartResult], _: Args<'_>, reply: &mut Reply) {
    reply.array(parts.iter().map(|part| part.elements as usize).sum());
    for part in parts {
        reply.append_range(&part.reply, Mark::default(), part.reply.mark());
    }
}

/// What SCAN was asked for.
struct ScanOptions<'a> {
    /// `None` for a cursor that no SCAN has returned.
    position: Option<ScanPosition>,
    pattern: Option<Pattern<'a>>,
    count: usize,
    kind: Option<Kind>,
}

/// The types that TYPE can name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Kind(&'static str);

impl Kind {
    const ALL: [&'static str; 6] = ["string", "list", "set", "zset", "hash", "stream"];

    fn parse(name: &[u8]) -> Result<Self, Error> {
        let known = Self::ALL.into_iter().find(|known| known.as_bytes().eq_ignore_ascii_case(name));
        known.map(Self).ok_or_else(|| Error::echo("ERR unknown type name '", name, "'"))
    }
}

impl<'a> ScanOptions<'a> {
    fn parse(args: Args<'a>) -> Result<Self, Error> {
        let position = ScanPosition::from_cursor(parse_cursor(args.at(1)).ok_or(Error::InvalidCursor)?);
        let mut options = Self { position, pattern: None, count: COUNT_DEFAULT, kind: None };
        let mut idx = 2;
        while idx < args.len() {
            let has_value = idx + 1 < args.len();
            if args.is(idx, "COUNT") && has_value {
                let count = args.int(idx + 1)?;
                options.count =
                    usize::try_from(count).ok().filter(|count| *count != 0).ok_or(Error::Syntax)?;
            } else if args.is(idx, "MATCH") && has_value {
                options.pattern = Some(Pattern(args.at(idx + 1)));
            } else if args.is(idx, "TYPE") && has_value {
                options.kind = Some(Kind::parse(args.at(idx + 1))?);
            } else if args.is(idx, "NOVALUES") {
                return Err(Error::text("ERR NOVALUES option can only be used in HSCAN"));
            } else if args.is(idx, "NOSCORES") {
                return Err(Error::text("ERR NOSCORES option can only be used in ZSCAN"));
            } else {
                return Err(Error::Syntax);
            }
            idx += 2;
        }
        Ok(options)
    }

    /// Where to look; `None` if the iteration is over. Where the pattern names a slot, only there.
    fn section(&self) -> Option<Section> {
        let from = self.position?;
        let Some(slot) = self.pattern.and_then(Pattern::slot) else {
            return Some(Section { from, to: Slot::END });
        };
        let section = Section { from: from.max(ScanPosition::at(slot)), to: Slot(slot.0 + 1) };
        (section.from.slot == slot).then_some(section)
    }

    fn accepts(&self, entry: &Entry) -> bool {
        self.kind.is_none_or(|kind| kind.0 == entry.type_name())
            && self.pattern.is_none_or(|pattern| pattern.matches(entry.key()))
    }
}

/// A cursor as Valkey reads it: strictly, or else as C's `strtoull` does.
pub(super) fn parse_cursor(text: &[u8]) -> Option<u64> {
    if let Some(number) = parse_int(text) {
        return u64::try_from(number).ok();
    }
    let text = std::str::from_utf8(text).ok()?;
    let text = text.trim_start_matches([' ', '\t', '\n', '\x0b', '\x0c', '\r']);
    let (negative, digits) = match text.strip_prefix('-') {
        Some(digits) => (true, digits),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    if !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let number: u64 = digits.parse().ok()?;
    Some(if negative { number.wrapping_neg() } else { number })
}

fn route(args: Args<'_>) -> Result<Slot, Error> {
    let options = ScanOptions::parse(args)?;
    Ok(options.section().map_or(Slot(0), |section| section.from.slot))
}

fn scan(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply) -> Result<Flow, Error> {
    let options = ScanOptions::parse(args)?;
    let mut found = Reply::new(reply.proto());
    let (mut count, mut cursor) = (0, 0);
    if let Some(Section { from, to }) = options.section() {
        // The slots of this shard end here; the next one's begin where they end.
        let end = to.min(Slot(ctx.shard.slots.range(ctx.shard.me).end));
        let budget = options.count.min(SCAN_STEP_MAX);
        let next = ctx.shard.keyspace.walk(ctx.db, from, end, budget, ctx.now, &mut |entry| {
            if options.accepts(entry) {
                found.bulk(entry.key());
                count += 1;
            }
        });
        cursor = match next {
            Some(position) => position.to_cursor(),
            None if end < to => ScanPosition::at(end).to_cursor(),
            None => 0,
        };
    }
    reply.array(2);
    reply.bulk(cursor.to_string().as_bytes());
    reply.array(count);
    reply.append(&mut found);
    Ok(Flow::Done)
}

/// A shard's candidate, and in `elements` when it would come if keys came at random, each as likely as the other: of
/// the candidates of all shards, the first then is any key of all with the same probability.
fn random_key(ctx: &mut Ctx<'_>, _: Args<'_>, reply: &mut Reply) -> Result<Flow, Error> {
    let crate::ctx::Shard { keyspace, rng, .. } = &mut *ctx.shard;
    ctx.elements = u64::MAX;
    let Some(key) = keyspace.random_key(ctx.db, ctx.now, || rng.next()) else {
        reply.null();
        return Ok(Flow::Done);
    };
    reply.bulk(&key);
    // Uniform in (0, 1]; the first of n arrivals of rate 1 has rate n.
    let uniform = ((rng.next() >> 11) + 1) as f64 / (1u64 << 53) as f64;
    let arrival = -uniform.ln() / keyspace.stats(ctx.db).keys as f64;
    // Floats that are not negative are in the order of their bits.
    ctx.elements = arrival.abs().to_bits();
    Ok(Flow::Done)
}

fn merge_random(parts: &[PartResult], _: Args<'_>, reply: &mut Reply) {
    if let Some(first) = parts.iter().min_by_key(|part| part.elements) {
        reply.append_range(&first.reply, Mark::default(), first.reply.mark());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::testing::{Bench, check_all};
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    fn key_name(n: usize) -> String {
        if n.is_multiple_of(3) { format!("{{tag}}{n}") } else { format!("key:{n}") }
    }

    /// A bench with so many keys.
    fn filled(shards: u16, keys: usize) -> Bench {
        let mut bench = Bench::new(shards);
        for n in 0..keys {
            bench.run(&format!("SET {} v", key_name(n)));
        }
        bench
    }

    /// The elements of a rendered array of plain bulks.
    fn elements(array: &str) -> Vec<String> {
        array.split('"').skip(1).step_by(2).map(str::to_owned).collect()
    }

    /// One call: the next cursor and the keys.
    fn scan_once(bench: &mut Bench, cursor: &str, options: &str) -> (String, Vec<String>) {
        let mut all = elements(&bench.run(&format!("SCAN {cursor} {options}"))).into_iter();
        (all.next().expect("a cursor"), all.collect())
    }

    fn scan_all(bench: &mut Bench, options: &str) -> Vec<String> {
        let (mut cursor, mut found) = ("0".to_owned(), Vec::new());
        loop {
            let (next, keys) = scan_once(bench, &cursor, options);
            found.extend(keys);
            cursor = next;
            if cursor == "0" {
                found.sort();
                return found;
            }
        }
    }

    fn names(count: usize, filter: impl Fn(&str) -> bool) -> Vec<String> {
        let mut names: Vec<String> = (0..count).map(key_name).filter(|name| filter(name)).collect();
        names.sort();
        names
    }

    #[test]
    fn keys_and_scan_return_what_matches_once() {
        for shards in [1, 2, 5] {
            let mut bench = filled(shards, 700);
            for pattern in ["*", "key:*", "*7", "{tag}*", "{tag}3", "key:1", "nothing", "k[e]y:?", "{t*"] {
                let expected = names(700, |name| glob_match(pattern.as_bytes(), name.as_bytes(), false));
                let mut keys = elements(&bench.run(&format!("KEYS {pattern}")));
                keys.sort();
                assert_eq!(keys, expected, "KEYS {pattern} on {shards} shards");
                for count in ["1", "7", "100000", "9223372036854775807"] {
                    let options = format!("MATCH {pattern} COUNT {count}");
                    assert_eq!(scan_all(&mut bench, &options), expected, "{options} on {shards} shards");
                }
            }
            assert_eq!(scan_all(&mut bench, "TYPE STRING"), names(700, |_| true));
            assert_eq!(scan_all(&mut bench, "TYPE hash"), names(0, |_| true));
        }
    }

    #[test]
    fn a_pattern_that_names_a_slot_is_looked_for_only_there() {
        let mut bench = filled(5, 300);
        let (mut cursor, mut calls, mut found) = ("0".to_owned(), 0, 0);
        while calls == 0 || cursor != "0" {
            let (next, keys) = scan_once(&mut bench, &cursor, "COUNT 30 MATCH {tag}*");
            (cursor, calls, found) = (next, calls + 1, found + keys.len());
        }
        assert_eq!((calls, found), (4, 100));
        for (pattern, slot) in [
            ("{tag}*", Some("{tag}")),
            ("a{tag}?x", Some("{tag}")),
            ("plain", Some("plain")),
            ("{}plain", Some("{}plain")),
            ("{}{a}*", None),
            ("{ta*}", None),
            ("*{tag}", None),
            ("\\{tag}", None),
            ("{tag", Some("{tag")),
        ] {
            assert_eq!(
                Pattern(pattern.as_bytes()).slot(),
                slot.map(|key| slot_of(key.as_bytes())),
                "{pattern}"
            );
        }
    }

    #[test]
    fn one_call_looks_at_a_bounded_number_of_keys() {
        let mut bench = filled(1, 6000);
        let (cursor, keys) = scan_once(&mut bench, "0", "COUNT 1000000");
        assert!(cursor != "0" && (SCAN_STEP_MAX..SCAN_STEP_MAX + 20).contains(&keys.len()), "{}", keys.len());
        assert_eq!(scan_once(&mut bench, "0", "COUNT 5").1.len(), 5);
    }

    #[test]
    fn arguments_are_read_and_refused_as_in_valkey() {
        let (syntax, cursor) = ("-ERR syntax error", "-ERR invalid cursor");
        let (number, empty) = ("-ERR value is not an integer or out of range", "[\"0\", []]");
        check_all(&[
            ("SCAN abc", cursor),
            ("SCAN abc COUNT x", cursor),
            ("SCAN -1", cursor),
            ("SCAN \"\"", cursor),
            ("SCAN 18446744073709551616", cursor),
            ("SCAN 18446744073709551615", empty),
            ("SCAN 9223372036854775807 MATCH {a}*", empty),
            ("SCAN -05", empty),
            ("SCAN 0 COUNT", syntax),
            ("SCAN 0 COUNT 0", syntax),
            ("SCAN 0 COUNT -5", syntax),
            ("SCAN 0 COUNT x FOO bar", number),
            ("SCAN 0 FOO bar COUNT x", syntax),
            ("SCAN 0 MATCH a b", syntax),
            ("SCAN 0 TYPE foo COUNT x", "-ERR unknown type name 'foo'"),
            ("SCAN 0 TYPE", syntax),
            ("SCAN 0 NOVALUES", "-ERR NOVALUES option can only be used in HSCAN"),
            ("SCAN 0 NOSCORES", "-ERR NOSCORES option can only be used in ZSCAN"),
            ("KEYS", "-ERR wrong number of arguments for 'keys' command"),
            ("KEYS *", "[]"),
            ("RANDOMKEY", "nil"),
        ]);
        for text in ["0", "+0", " \t0", "00", "-0"] {
            assert_eq!(parse_cursor(text.as_bytes()), Some(0), "{text:?}");
        }
        for text in ["0 ", "+", "- 1", "+-1", "0x1", "1.0"] {
            assert_eq!(parse_cursor(text.as_bytes()), None, "{text:?}");
        }
    }

    #[test]
    fn random_keys_come_evenly_from_all_shards() {
        for shards in [1, 2, 5] {
            // Most keys share a slot; that must not matter.
            let mut bench = filled(shards, 30);
            let mut seen: BTreeMap<String, u32> = BTreeMap::new();
            for _ in 0..3000 {
                *seen.entry(bench.run("RANDOMKEY")).or_default() += 1;
            }
            assert_eq!(seen.len(), 30);
            // Each is expected 100 times with a standard deviation of 10.
            assert!(seen.values().all(|count| (50..150).contains(count)), "{seen:?}");
            bench.run("SELECT 1\nSET only 1\nPEXPIRE only 10");
            assert_eq!(bench.run("RANDOMKEY"), "\"only\"");
            bench.now += 10;
            assert_eq!(bench.run("RANDOMKEY"), "nil");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(40))]
        /// What is there all the time is returned exactly once, whatever comes, goes, grows and shrinks meanwhile.
        #[test]
        fn scans_keep_their_promise_while_keys_come_and_go(
            shards in 1..6u16, count in 1..60usize,
            changes in prop::collection::vec((any::<bool>(), 100..160usize, 1..60usize), 1..40)
        ) {
            let mut bench = filled(shards, 100);
            let (mut cursor, mut seen, mut changes) = ("0".to_owned(), Vec::new(), changes.into_iter());
            loop {
                let (next, keys) = scan_once(&mut bench, &cursor, &format!("COUNT {count}"));
                seen.extend(keys);
                cursor = next;
                if cursor == "0" {
                    break;
                }
                if let Some((add, from, len)) = changes.next() {
                    for n in from..from + len {
                        let verb = if add { "SET" } else { "DEL" };
                        bench.run(&format!("{verb} {}{}", key_name(n), if add { " v" } else { "" }));
                    }
                }
            }
            let mut stable: Vec<String> = seen.iter().filter(|name| names(100, |_| true).contains(name)).cloned().collect();
            stable.sort();
            prop_assert_eq!(stable, names(100, |_| true));
        }
    }
}
