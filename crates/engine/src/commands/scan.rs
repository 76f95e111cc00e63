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
const SCAN_STEP_MAX: usize = 4096;
/// What SCAN looks at without COUNT.
const COUNT_DEFAULT: usize = 10;

pub(super) const COMMANDS: &[Command] = &[
    Command {
        name: "keys",
        arity: 2,
        flags: Flags::READONLY,
        categories: &["@keyspace", "@dangerous"],
        plan: Plan::EachShard { part: keys, merge: Merge::With(merge_keys) },
        scope: Scope::Whole,
        summary: "Lists all keys that match a pattern.",
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
        summary: "Lists the keys of the database step by step.",
        complexity: "O(1) for a call, O(N) for a whole iteration, where N is the number of keys in the database",
        syntax: "cursor [MATCH pattern] [COUNT count] [TYPE type]",
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
        summary: "Picks a key of the database at random.",
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
        known.map(Self).ok_or_else(|| {
            let name = String::from_utf8_lossy(name);
            Error::owned(format!("ERR unknown type name '{name}'"))
        })
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
fn parse_cursor(text: &[u8]) -> Option<u64> {
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
