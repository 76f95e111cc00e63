//! When two replies count as equal. Byte for byte, but for the commands listed in [`RULES`].

use super::client::Outcome;
use super::resp::Value;
use super::words;

/// How the replies of one command are compared.
#[derive(Clone, Copy, Debug)]
enum Rule {
    /// Elements in any order.
    Unordered,
    /// `[cursor, elements]` of a finished iteration, elements in any order.
    Scanned,
    /// Positive seconds may differ by what the test itself took.
    Seconds,
    /// Positive milliseconds, the same.
    Milliseconds,
    /// Only the type of the reply.
    Kind,
    /// A map's pairs, in any order.
    Pairs,
    /// A map's field names, and all values but these.
    MapExcept(&'static [&'static str]),
    /// Entries of a log: all but number, time and address; the value where the flag says so.
    Log(bool),
    /// LATENCY HISTOGRAM: names and calls.
    Histograms,
    /// `name=value` words: these must be there, in this order, with equal values where the flag says so.
    Words(&'static [(&'static str, bool)]),
}

/// Commands whose replies legitimately differ between two servers. An entry matches a command that starts with its
/// words; errors are always compared byte for byte.
const RULES: &[(&str, Rule)] = &[
    ("KEYS", Rule::Unordered),
    ("SCAN", Rule::Scanned),
    ("SMEMBERS", Rule::Unordered),
    ("SINTER", Rule::Unordered),
    ("SUNION", Rule::Unordered),
    ("SDIFF", Rule::Unordered),
    ("SPOP", Rule::Kind),
    ("SRANDMEMBER", Rule::Kind),
    ("TTL", Rule::Seconds),
    ("EXPIRETIME", Rule::Seconds),
    ("PTTL", Rule::Milliseconds),
    ("PEXPIRETIME", Rule::Milliseconds),
    ("RANDOMKEY", Rule::Kind),
    ("TIME", Rule::Kind),
    ("LASTSAVE", Rule::Kind),
    ("INFO", Rule::Kind),
    ("HELLO", Rule::MapExcept(&["server", "version", "id", "modules"])),
    ("CONFIG GET", Rule::Pairs),
    ("CLIENT ID", Rule::Kind),
    ("CLIENT INFO", Rule::Words(CLIENT_WORDS)),
    ("CLIENT LIST", Rule::Words(CLIENT_WORDS)),
    ("CLIENT HELP", Rule::Kind),
    ("COMMAND COUNT", Rule::Kind),
    ("COMMAND LIST", Rule::Unordered),
    ("OBJECT IDLETIME", Rule::Seconds),
    ("DEBUG OBJECT", Rule::Words(OBJECT_WORDS)),
    ("SLOWLOG GET", Rule::Log(false)),
    ("COMMANDLOG GET", Rule::Log(true)),
    ("LATENCY DOCTOR", Rule::Kind),
    ("LATENCY HISTOGRAM", Rule::Histograms),
    ("MEMORY USAGE", Rule::Kind),
    ("MEMORY STATS", Rule::Kind),
    ("MEMORY MALLOC-STATS", Rule::Kind),
    ("ROLE", Rule::Kind),
];

const CLIENT_WORDS: &[(&str, bool)] = &[
    ("id", false),
    ("addr", false),
    ("laddr", false),
    ("fd", false),
    ("name", true),
    ("age", false),
    ("idle", false),
    ("flags", true),
    ("capa", true),
    ("db", true),
    ("sub", true),
    ("psub", true),
    ("ssub", true),
    ("multi", true),
    ("watch", true),
    ("qbuf", false),
    ("qbuf-free", false),
    ("argv-mem", false),
    ("multi-mem", true),
    ("tot-mem", false),
    ("events", true),
    ("cmd", true),
    ("user", true),
    ("redir", true),
    ("resp", true),
    ("lib-name", true),
    ("lib-ver", true),
];

const OBJECT_WORDS: &[(&str, bool)] =
    &[("at", false), ("refcount", true), ("encoding", true), ("serializedlength", false), ("lru", false)];

/// Whether `ours` may stand for `theirs` as the outcome of `command`, `slack_ms` being what the test took so far.
pub(crate) fn same(command: &[Vec<u8>], ours: &Outcome, theirs: &Outcome, slack_ms: i64) -> bool {
    if ours == theirs {
        return *ours != Outcome::Hung;
    }
    let (Some(ours), Some(theirs)) = (ours.value(), theirs.value()) else { return false };
    if ours.is_error() || theirs.is_error() {
        return false;
    }
    rule(command).is_some_and(|rule| holds(rule, &ours, &theirs, slack_ms))
}

/// Whether the replies to a command have to be equal byte for byte.
pub(crate) fn is_exact(command: &[Vec<u8>]) -> bool {
    rule(command).is_none()
}

fn rule(command: &[Vec<u8>]) -> Option<Rule> {
    let given: Vec<String> =
        command.iter().take(2).map(|word| words::name(std::slice::from_ref(word))).collect();
    let starts = |pattern: &str| pattern.split(' ').zip(&given).filter(|(a, b)| a == b).count();
    RULES.iter().find(|(pattern, _)| starts(pattern) == pattern.split(' ').count()).map(|&(_, rule)| rule)
}

fn holds(rule: Rule, ours: &Value, theirs: &Value, slack_ms: i64) -> bool {
    match rule {
        Rule::Unordered => {
            std::mem::discriminant(ours) == std::mem::discriminant(theirs) && sorted(ours) == sorted(theirs)
        }
        Rule::Scanned => {
            let (ours, theirs) = (ours.items(), theirs.items());
            ours[0] == theirs[0] && sorted(&ours[1]) == sorted(&theirs[1])
        }
        Rule::Seconds => close(ours, theirs, slack_ms / 1000 + 1),
        Rule::Milliseconds => close(ours, theirs, slack_ms),
        Rule::Kind => std::mem::discriminant(ours) == std::mem::discriminant(theirs),
        Rule::Pairs => {
            let pairs = |value: &Value| {
                let mut pairs = value.pairs();
                pairs.sort();
                pairs
            };
            std::mem::discriminant(ours) == std::mem::discriminant(theirs) && pairs(ours) == pairs(theirs)
        }
        Rule::MapExcept(ignored) => same_map(ours, theirs, ignored),
        Rule::Log(values) => log_entries(ours, values) == log_entries(theirs, values),
        Rule::Histograms => histograms(ours) == histograms(theirs),
        Rule::Words(known) => same_words(&ours.text(), &theirs.text(), known),
    }
}

/// What is compared of a log's entries: arguments, client's name, and the value if it says nothing of time.
fn log_entries(log: &Value, values: bool) -> Vec<Vec<Value>> {
    let kept = |entry: Value| {
        let fields = entry.items();
        assert_eq!(fields.len(), 6, "an entry of a log: {fields:?}");
        let value = if values { fields[2].clone() } else { Value::Null };
        vec![value, fields[3].clone(), fields[5].clone()]
    };
    log.items().into_iter().map(kept).collect()
}

/// Commands and their calls, in any order; that the distribution ends with all of them.
fn histograms(reply: &Value) -> Vec<(String, i64, bool)> {
    let one = |(name, histogram): (Value, Value)| {
        let calls = histogram.field("calls").expect("calls").int();
        let steps = histogram.field("histogram_usec").expect("steps").pairs();
        let complete = steps.last().is_some_and(|(_, count)| count.int() == calls);
        (name.text(), calls, complete)
    };
    let mut all: Vec<(String, i64, bool)> = reply.pairs().into_iter().map(one).collect();
    all.sort();
    all
}

/// The elements, sorted.
pub(crate) fn sorted(value: &Value) -> Vec<Value> {
    let mut items = value.items();
    items.sort();
    items
}

fn close(ours: &Value, theirs: &Value, distance_max: i64) -> bool {
    let (&Value::Int(ours), &Value::Int(theirs)) = (ours, theirs) else { return false };
    ours >= 0 && theirs >= 0 && (ours - theirs).abs() <= distance_max
}

fn same_map(ours: &Value, theirs: &Value, ignored: &[&str]) -> bool {
    let comparable = |value: &Value| -> Vec<(String, Option<Value>)> {
        let pairs = value.pairs().into_iter().map(|(name, value)| (name.text(), value));
        pairs
            .map(|(name, value)| (name.clone(), Some(value).filter(|_| !ignored.contains(&name.as_str()))))
            .collect()
    };
    std::mem::discriminant(ours) == std::mem::discriminant(theirs) && comparable(ours) == comparable(theirs)
}

fn same_words(ours: &str, theirs: &str, known: &[(&str, bool)]) -> bool {
    ours.lines().count() == theirs.lines().count()
        && ours.lines().zip(theirs.lines()).all(|(ours, theirs)| picked(ours, known) == picked(theirs, known))
}

/// The known `name=value` (or `name:value`) words of a line in their order, values only where they are compared.
fn picked(line: &str, known: &[(&str, bool)]) -> Vec<String> {
    let pick = |word: &str| {
        let (name, _) = word.split_once(['=', ':'])?;
        let &(_, compared) = known.iter().find(|(other, _)| *other == name)?;
        Some(if compared { word.to_owned() } else { name.to_owned() })
    };
    line.split_whitespace().filter_map(pick).collect()
}
