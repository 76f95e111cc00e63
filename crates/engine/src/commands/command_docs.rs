//! COMMAND DOCS: a command's record for people and tools, its usage line taken apart into arguments.
//!
//! A usage line is what redis-cli shows: words in capitals are tokens, `[ ]` is optional, `|` separates alternatives, `...`
//! repeats, `( )` groups; a token directly before a group belongs to the group. The tree that clients get follows from it.
//! Behind an argument or group, `#name` names it otherwise than by what it shows, `@version` says since when there is one, and
//! `!version` since when it is deprecated; `^` says that clients are told a key specification for it, `^2` which one. People do not see these.

use crate::command::Command;
use corelane_resp::Reply;

/// An argument, or a group of them.
#[derive(Debug, Default, PartialEq, Eq)]
struct Argument {
    /// Of a value; empty for groups and pure tokens.
    name: String,
    token: Option<String>,
    optional: bool,
    multiple: bool,
    /// Its token repeats with it.
    token_repeats: bool,
    children: Vec<Self>,
    /// The children exclude each other.
    one_of: bool,
    /// Its name, if that is not what is displayed.
    label: Option<String>,
    since: Option<String>,
    deprecated_since: Option<String>,
    /// A key specification is named with it.
    names_key_spec: bool,
    /// Which one, where that does not follow from the order.
    key_spec: Option<usize>,
}

impl Argument {
    /// What stands for it in a usage line; of a group, what stands for the first part that has such a word.
    fn shown(&self) -> String {
        if !self.name.is_empty() {
            return self.name.clone();
        }
        if let Some(token) = &self.token {
            return token.to_ascii_lowercase();
        }
        let named = self.children.iter().map(|child| child.name.as_str()).find(|name| !name.is_empty());
        named.unwrap_or("option").to_owned()
    }

    /// Takes a mark in that stands behind it.
    fn mark(&mut self, mark: &str) {
        let (sign, text) = mark.split_at(1);
        if sign == "^" {
            self.names_key_spec = true;
            self.key_spec = text.parse().ok();
            return;
        }
        let place = match sign {
            "#" => &mut self.label,
            "@" => &mut self.since,
            _ => &mut self.deprecated_since,
        };
        *place = Some(text.to_owned());
    }
}

/// A word that says something of the argument before it.
fn is_mark(word: &str) -> bool {
    word.starts_with(['#', '@', '!', '^'])
}

/// Writes name and documentation of a command.
pub(super) fn write(name: &str, command: &Command, reply: &mut Reply) {
    reply.bulk(name.as_bytes());
    let arguments = parse(command.syntax);
    let (has_arguments, has_subcommands) = (!arguments.is_empty(), !command.shown_subcommands().is_empty());
    let history = super::command_history::history(name);
    let optional = [!command.doc_flags.is_empty(), !history.is_empty(), has_arguments, has_subcommands];
    reply.map(4 + optional.into_iter().filter(|there| *there).count());
    let fields = [
        ("summary", command.summary),
        ("since", command.since),
        ("group", command.group),
        ("complexity", command.complexity),
    ];
    for (field, value) in fields {
        reply.bulk(field.as_bytes());
        reply.bulk(value.as_bytes());
    }
    if !command.doc_flags.is_empty() {
        reply.bulk(b"doc_flags");
        reply.set(command.doc_flags.len());
        command.doc_flags.iter().for_each(|flag| reply.simple(flag));
    }
    if !history.is_empty() {
        reply.bulk(b"history");
        reply.set(history.len());
        for (version, change) in history {
            reply.array(2);
            reply.bulk(version.as_bytes());
            reply.bulk(change.as_bytes());
        }
    }
    if has_arguments {
        reply.bulk(b"arguments");
        write_arguments(command, &arguments, &mut 0, reply);
    }
    if has_subcommands {
        reply.bulk(b"subcommands");
        reply.map(command.shown_subcommands().len());
        for sub in command.shown_subcommands() {
            write(&format!("{name}|{}", sub.name), sub, reply);
        }
    }
}

fn kind(command: &Command, argument: &Argument) -> &'static str {
    if !argument.children.is_empty() {
        return if argument.one_of { "oneof" } else { "block" };
    }
    match argument.name.as_str() {
        "" => "pure-token",
        name if name.starts_with("key") || name.ends_with("key") => "key",
        "source" | "destination" | "src" | "dst" => "key",
        "increment" if command.name.ends_with("float") => "double",
        "timeout" if matches!(command.group, "list" | "sorted-set") => "double",
        "limit" | "bit" | "ttl" | "frequency" => "integer",
        "value" if command.group == "bitmap" => "integer",
        "min" | "max" if command.name.ends_with("score") || command.name == "zcount" => "double",
        "score" | "longitude" | "latitude" | "radius" | "width" | "height" => "double",
        "start" | "stop" if command.name == "zrange" => "string",
        "pattern" => "pattern",
        // Valkey calls it so with these two.
        name if name.starts_with("unix-time")
            && command.name.ends_with("expireat")
            && command.group == "hash" =>
        {
            "integer"
        }
        name if name.starts_with("unix-time") => "unix-time",
        "seconds" | "milliseconds" | "increment" | "decrement" | "start" | "stop" | "end" | "offset"
        | "count" | "cursor" | "index" | "numkeys" | "numfields" | "db" | "destination-db" | "index1"
        | "index2" | "min-match-len" | "numreplicas" | "numlocal" | "timeout" | "client-id"
        | "not-client-id" | "not-db" | "maxage" | "idle" | "protover" | "rank" | "num-matches" | "len"
        | "weight" | "num-vertices" => "integer",
        _ => "string",
    }
}

/// `keys_seen` counts the keys so far: where a command has several key specifications, each key has its own.
fn write_arguments(command: &Command, arguments: &[Argument], keys_seen: &mut usize, reply: &mut Reply) {
    reply.array(arguments.len());
    for argument in arguments {
        let kind = kind(command, argument);
        let shown = argument.shown();
        let name = argument.label.as_ref().unwrap_or(&shown);
        let (leaf, flagged) = (argument.children.is_empty(), argument.optional || argument.multiple);
        let there = [
            kind == "key" || argument.names_key_spec,
            argument.token.is_some(),
            argument.since.is_some(),
            argument.deprecated_since.is_some(),
            flagged,
        ];
        // Beside these: the display text of a leaf, the arguments of a group.
        reply.map(3 + there.into_iter().filter(|there| *there).count());
        write_pair("name", name, reply);
        write_pair("type", kind, reply);
        if leaf {
            // A token without a value shows its name.
            write_pair("display_text", if argument.name.is_empty() { name } else { &shown }, reply);
        }
        if kind == "key" || argument.names_key_spec {
            reply.bulk(b"key_spec_index");
            let in_order = (*keys_seen).min(command.keys.len().saturating_sub(1));
            reply.int(argument.key_spec.unwrap_or(in_order) as i64);
            *keys_seen += usize::from(kind == "key");
        }
        if let Some(token) = &argument.token {
            write_pair("token", token, reply);
        }
        if let Some(version) = &argument.since {
            write_pair("since", version, reply);
        }
        if let Some(version) = &argument.deprecated_since {
            write_pair("deprecated_since", version, reply);
        }
        if flagged {
            reply.bulk(b"flags");
            let flags = [
                (argument.optional, "optional"),
                (argument.multiple, "multiple"),
                (argument.token_repeats, "multiple_token"),
            ];
            reply.set(flags.iter().filter(|(set, _)| *set).count());
            flags.iter().filter(|(set, _)| *set).for_each(|(_, name)| reply.simple(name));
        }
        if !leaf {
            reply.bulk(b"arguments");
            write_arguments(command, &argument.children, keys_seen, reply);
        }
    }
}

fn write_pair(field: &str, value: &str, reply: &mut Reply) {
    reply.bulk(field.as_bytes());
    reply.bulk(value.as_bytes());
}

/// Takes a usage line apart.
fn parse(syntax: &str) -> Vec<Argument> {
    let spaced = ["[", "]", "(", ")", "|"]
        .iter()
        .fold(syntax.to_owned(), |text, mark| text.replace(mark, &format!(" {mark} ")));
    let words: Vec<&str> = spaced.split_whitespace().collect();
    let mut at = 0;
    into_sequence(parse_alternatives(&words, &mut at))
}

fn is_token(word: &str) -> bool {
    word.chars().any(|c| c.is_ascii_uppercase()) && !word.chars().any(|c| c.is_ascii_lowercase())
}

/// Alternatives up to the closing bracket or the end; each is a sequence.
fn parse_alternatives(words: &[&str], at: &mut usize) -> Vec<Vec<Argument>> {
    let mut alternatives = vec![Vec::new()];
    while *at < words.len() {
        let word = words[*at];
        *at += 1;
        let sequence = alternatives.last_mut().expect("there is always one");
        match word {
            "]" | ")" => break,
            "|" => alternatives.push(Vec::new()),
            "..." => repeat(sequence),
            mark if is_mark(mark) => {
                sequence.last_mut().expect("a mark stands behind what it marks").mark(mark);
            }
            "[" | "(" => {
                let token_precedes = *at >= 2 && is_token(words[*at - 2]);
                let mut group = group_of(parse_alternatives(words, at));
                group.optional = word == "[";
                if word == "(" && token_precedes {
                    group.token = sequence.pop().and_then(|argument| argument.token);
                    sequence.push(group);
                } else if !repeats_what_precedes(sequence, &group) {
                    sequence.push(group);
                }
            }
            word if is_token(word) => {
                let next = words.get(*at).copied().unwrap_or("");
                let takes_value = !next.is_empty()
                    && !is_token(next)
                    && !is_mark(next)
                    && !matches!(next, "]" | ")" | "|" | "[" | "(" | "...");
                let name = if takes_value { next.to_owned() } else { String::new() };
                *at += usize::from(takes_value);
                sequence.push(Argument { name, token: Some(word.to_owned()), ..Argument::default() });
            }
            word => sequence.push(Argument { name: word.to_owned(), ..Argument::default() }),
        }
    }
    alternatives
}

/// `[key ...]` after `key` says that the key repeats, `[key value ...]` after `key value` that both do, together.
fn repeats_what_precedes(sequence: &mut Vec<Argument>, group: &Argument) -> bool {
    let repeated = if group.children.is_empty() { std::slice::from_ref(group) } else { &group.children };
    let begin = sequence.len().saturating_sub(repeated.len());
    let same = |(one, other): (&Argument, &Argument)| !one.name.is_empty() && one.name == other.name;
    let repeats = repeated.last().is_some_and(|last| last.multiple)
        && sequence.len() - begin == repeated.len()
        && sequence[begin..].iter().zip(repeated).all(same);
    if repeats {
        let once = group_of(vec![sequence.split_off(begin)]);
        sequence.push(Argument { multiple: true, ..once });
    }
    repeats
}

fn repeat(sequence: &mut [Argument]) {
    if let Some(last) = sequence.last_mut() {
        last.multiple = true;
        last.token_repeats = last.token.is_some();
    }
}

fn group_of(mut alternatives: Vec<Vec<Argument>>) -> Argument {
    if alternatives.len() == 1 {
        let mut sequence = alternatives.remove(0);
        if sequence.len() == 1 {
            return sequence.remove(0);
        }
        return Argument { children: sequence, ..Argument::default() };
    }
    let children = alternatives.into_iter().map(|sequence| group_of(vec![sequence])).collect();
    Argument { children, one_of: true, ..Argument::default() }
}

fn into_sequence(mut alternatives: Vec<Vec<Argument>>) -> Vec<Argument> {
    if alternatives.len() == 1 { alternatives.remove(0) } else { vec![group_of(alternatives)] }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shape(arguments: &[Argument]) -> String {
        let one = |argument: &Argument| {
            let mut text = format!("{}:{}", kind(&Command::DEFAULT, argument), argument.name);
            if let Some(token) = &argument.token {
                text.push_str(&format!("={token}"));
            }
            if !argument.children.is_empty() {
                text.push_str(&format!("<{}>", shape(&argument.children)));
            }
            text.push_str(if argument.optional { "?" } else { "" });
            text.push_str(if argument.multiple { "*" } else { "" });
            text
        };
        arguments.iter().map(one).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn marks_are_for_programs() {
        let line = "key [EX seconds @2.0 | NX @1.0] #how @1.0 (a | b !3.0) #which [TYPE (C | D)] #kind";
        let arguments = parse(line);
        let label = |argument: &Argument| argument.label.clone().unwrap_or_default();
        assert_eq!(arguments.iter().map(label).collect::<Vec<_>>(), ["", "how", "which", "kind"]);
        let version = |argument: &Argument| (argument.since.clone(), argument.deprecated_since.clone());
        assert_eq!(version(&arguments[1]), (Some("1.0".to_owned()), None));
        assert_eq!(version(&arguments[1].children[0]), (Some("2.0".to_owned()), None));
        assert_eq!(version(&arguments[2].children[1]), (None, Some("3.0".to_owned())));
    }

    #[test]
    fn usage_lines_are_taken_apart() {
        let cases = [
            ("", ""),
            ("key", "key:key"),
            ("key [key ...]", "key:key*"),
            (
                "key value [NX | XX] [GET]",
                "key:key string:value oneof:<pure-token:=NX pure-token:=XX>? pure-token:=GET?",
            ),
            ("key [EX seconds | PERSIST]", "key:key oneof:<integer:seconds=EX pure-token:=PERSIST>?"),
            (
                "cursor [MATCH pattern] [COUNT count]",
                "integer:cursor pattern:pattern=MATCH? integer:count=COUNT?",
            ),
            ("[command-name ...]", "string:command-name?*"),
            ("key value [key value ...]", "block:<key:key string:value>*"),
            ("[TYPE (NORMAL | MASTER)]", "oneof:=TYPE<pure-token:=NORMAL pure-token:=MASTER>?"),
            ("[AUTH (username password)]", "block:=AUTH<string:username string:password>?"),
        ];
        for (syntax, expected) in cases {
            assert_eq!(shape(&parse(syntax)), expected, "{syntax}");
        }
    }
}
