//! The command table as clients see it, and argument lists made from it.

use super::arguments::Choices;
use crate::common::client::Client;
use crate::common::resp::Value;
use crate::common::words::{self, Command};

/// Groups of commands that are not about keys and values, and where they are compared instead.
const GROUPS_EXCLUDED: &[(&str, &str)] = &[
    (
        "server",
        "administration, clocks, what is different by nature: tables/{observation,configuration,diagnosis}.txt",
    ),
    ("connection", "state of connections: tables/connection.txt, connections.rs"),
    ("pubsub", "messages to several connections: pubsub.rs"),
    ("transactions", "half of all cases are transactions"),
    ("scripting", "no data"),
    ("cluster", "no data"),
];
/// Commands of those groups that change or look at all keys.
const INCLUDED: &[&str] = &["flushall", "flushdb", "swapdb", "dbsize", "ping", "echo", "select"];
/// SORT and SORT_RO make a sorted set large in Valkey, which later replies would show: they are not mixed with others, and not on
/// such keys.
pub(super) const SORTS: &str = "SORT";
/// Further commands that are left out, and why.
const EXCLUDED: &[(&str, &str)] = &[
    ("spop", "which members go is random: unit tests in set_random.rs"),
    ("dump", "the bytes may differ, what they restore may not: tests/payloads.rs"),
    ("wait", "waits for replicas"),
    ("waitaof", "waits for replicas"),
    ("migrate", "needs another server"),
    ("object|help", "text for people"),
    ("object|refcount", "Valkey counts its queue, too: tables/observation.txt"),
    ("pfdebug", "for tests of the server itself"),
    ("pfselftest", "for tests of the server itself"),
];

/// An argument as COMMAND DOCS describes it.
#[derive(Clone, Debug, Default)]
pub(super) struct Argument {
    pub(super) name: String,
    pub(super) kind: String,
    pub(super) token: Option<String>,
    pub(super) optional: bool,
    pub(super) multiple: bool,
    token_repeats: bool,
    children: Vec<Self>,
}

#[derive(Debug)]
struct Entry {
    /// The name; of a subcommand two words.
    words: Vec<String>,
    group: String,
    arguments: Vec<Argument>,
}

/// All commands for which arguments are made.
#[derive(Debug)]
pub(super) struct Table(Vec<Entry>);

impl Table {
    /// As the server tells it.
    pub(super) fn of(client: &mut Client) -> Self {
        let mut entries = Vec::new();
        for (name, docs) in client.run("COMMAND DOCS").pairs() {
            entries.extend(entry(&name.text(), &docs));
            let subcommands = docs.field("subcommands").map(|value| value.pairs()).unwrap_or_default();
            entries.extend(subcommands.iter().filter_map(|(name, docs)| entry(&name.text(), docs)));
        }
        entries.sort_by(|a, b| a.words.cmp(&b.words));
        assert!(entries.len() > 100, "only {} commands", entries.len());
        Self(entries)
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// This command, or another one if it is not to be mixed with others.
    pub(super) fn mixable(&self, number: usize) -> usize {
        if self.0[number].words[0].starts_with(SORTS) { 0 } else { number }
    }

    /// One use of a command.
    pub(super) fn command(&self, number: usize, choices: &mut Choices<'_>) -> Command {
        let entry = &self.0[number];
        choices.begin(&entry.group, &entry.words[0]);
        let mut made: Command = entry.words.iter().map(|word| word.clone().into_bytes()).collect();
        if choices.below(30) == 29 {
            made.splice(0..0, words::parse("COMMAND GETKEYS"));
        }
        sequence(&entry.arguments, choices, &mut made);
        made
    }
}

fn entry(name: &str, docs: &Value) -> Option<Entry> {
    let group = docs.field("group").expect("a group").text();
    let excluded = GROUPS_EXCLUDED.iter().any(|(other, _)| *other == group) && !INCLUDED.contains(&name);
    if excluded || EXCLUDED.iter().any(|(other, _)| *other == name) || docs.field("subcommands").is_some() {
        return None;
    }
    let arguments = docs.field("arguments").map(|value| arguments(&value)).unwrap_or_default();
    let words = name.split('|').map(str::to_uppercase).collect();
    Some(Entry { words, group, arguments })
}

fn arguments(list: &Value) -> Vec<Argument> {
    let text = |value: &Value, field: &str| value.field(field).map(|value| value.text());
    let one = |value: Value| {
        let flags = value.field("flags").map(|flags| flags.items()).unwrap_or_default();
        let has = |flag: &str| flags.iter().any(|value| value.text() == flag);
        Argument {
            name: text(&value, "name").expect("a name"),
            kind: text(&value, "type").expect("a type"),
            token: text(&value, "token"),
            optional: has("optional"),
            multiple: has("multiple"),
            token_repeats: has("multiple_token"),
            children: value.field("arguments").map(|list| arguments(&list)).unwrap_or_default(),
        }
    };
    list.items().into_iter().map(one).collect()
}

/// Arguments in their order, adjacent optional ones in any; a number of things says how many follow, mostly.
fn sequence(arguments: &[Argument], choices: &mut Choices<'_>, made: &mut Command) {
    let mut announced = None;
    let mut rest = arguments;
    while let Some(first) = rest.first() {
        let optional = rest.iter().take_while(|argument| argument.optional).count();
        if optional == 0 {
            rest = &rest[1..];
            if first.kind == "integer" && first.name.starts_with("num") {
                let count = 1 + choices.below(3);
                announced = Some(count);
                let said = if choices.below(10) == 9 { choices.below(5) } else { count };
                made.extend(first.token.iter().map(|token| token.clone().into_bytes()));
                made.push(said.to_string().into_bytes());
            } else {
                one(first, announced.filter(|_| first.multiple), choices, made);
            }
            continue;
        }
        let mut open: Vec<&Argument> = rest[..optional].iter().collect();
        rest = &rest[optional..];
        while !open.is_empty() {
            let next = open.remove(choices.below(open.len()));
            if choices.below(5) >= 3 {
                one(next, None, choices, made);
            }
        }
    }
}

/// One argument, so often as it may stand there, or `count` times.
fn one(argument: &Argument, count: Option<usize>, choices: &mut Choices<'_>, made: &mut Command) {
    let times = match count {
        Some(count) => count,
        None if argument.multiple => 1 + choices.below(4),
        None => 1,
    };
    for time in 0..times {
        if let Some(token) = &argument.token
            && (time == 0 || argument.token_repeats)
        {
            made.push(choices.spelled(token));
        }
        match argument.kind.as_str() {
            "pure-token" => {}
            "oneof" => {
                let chosen = &argument.children[choices.below(argument.children.len())];
                one(chosen, None, choices, made);
            }
            "block" => sequence(&argument.children, choices, made),
            _ => made.push(choices.word(argument)),
        }
    }
}
