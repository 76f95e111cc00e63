//! COMMAND: what the command table says, as clients ask for it.

use super::command_names::Names;
use super::{command_docs, help};
use crate::args::Args;
use crate::command::{Command, Find, Flags, KeyFlags, KeyRange, KeySpec, Plan};
use crate::ctx::SessionCtx;
use crate::errors::Error;
use crate::glob::glob_match;
use corelane_resp::Reply;

const QUIET: Flags = Flags::LOADING.with(Flags::STALE);

pub(super) const COMMANDS: &[Command] = &[Command {
    name: "command",
    arity: -1,
    flags: QUIET,
    plan: Plan::Session(info_all),
    since: "2.8.13",
    group: "server",
    categories: &["@connection"],
    summary: "Returns detailed information about all commands.",
    complexity: "O(N) where N is the number of commands",
    tips: &["nondeterministic_output_order"],
    subcommands: &[
        Command {
            name: "count",
            arity: 2,
            flags: QUIET,
            plan: Plan::Session(count),
            since: "2.8.13",
            group: "server",
            categories: &["@connection"],
            summary: "Returns a count of commands.",
            ..Command::DEFAULT
        },
        Command {
            name: "docs",
            arity: -2,
            flags: QUIET,
            plan: Plan::Session(docs),
            since: "7.0.0",
            group: "server",
            categories: &["@connection"],
            summary: "Returns documentary information about one, multiple or all commands.",
            complexity: "O(N) where N is the number of commands to look up",
            syntax: "[command-name ...]",
            tips: &["nondeterministic_output_order"],
            ..Command::DEFAULT
        },
        Command {
            name: "getkeys",
            arity: -3,
            flags: QUIET,
            plan: Plan::Session(get_keys),
            since: "2.8.13",
            group: "server",
            categories: &["@connection"],
            summary: "Extracts the key names from an arbitrary command.",
            complexity: "O(N) where N is the number of arguments",
            syntax: "command [arg ...]",
            ..Command::DEFAULT
        },
        Command {
            name: "getkeysandflags",
            arity: -3,
            flags: QUIET,
            plan: Plan::Session(get_keys_and_flags),
            since: "7.0.0",
            group: "server",
            categories: &["@connection"],
            summary: "Extracts the key names and access flags for an arbitrary command.",
            complexity: "O(N) where N is the number of arguments",
            syntax: "command [arg ...]",
            ..Command::DEFAULT
        },
        Command { categories: &["@connection"], ..help::record(show_help, "5.0.0", "server") },
        Command {
            name: "info",
            arity: -2,
            flags: QUIET,
            plan: Plan::Session(info),
            since: "2.8.13",
            group: "server",
            categories: &["@connection"],
            summary: "Returns information about one, multiple or all commands.",
            complexity: "O(N) where N is the number of commands to look up",
            syntax: "[command-name ...]",
            tips: &["nondeterministic_output_order"],
            ..Command::DEFAULT
        },
        Command {
            name: "list",
            arity: -2,
            flags: QUIET,
            plan: Plan::Session(list),
            since: "7.0.0",
            group: "server",
            categories: &["@connection"],
            summary: "Returns a list of command names.",
            complexity: "O(N) where N is the number of commands",
            syntax: "[FILTERBY (MODULE module-name | ACLCAT category | PATTERN pattern)]",
            tips: &["nondeterministic_output_order"],
            ..Command::DEFAULT
        },
    ],
    ..Command::DEFAULT
}];

/// The commands as clients of this server know them.
fn names<'a>(ctx: &'a SessionCtx<'_>) -> Names<'a> {
    Names(&ctx.shard.settings.config.renamed)
}

fn info_all(ctx: &mut SessionCtx<'_>, _: Args<'_>, reply: &mut Reply) -> Result<(), Error> {
    let all = names(ctx).all();
    reply.array(all.clone().count());
    for command in all {
        describe(command.name, command, reply);
    }
    Ok(())
}

fn count(ctx: &mut SessionCtx<'_>, _: Args<'_>, reply: &mut Reply) -> Result<(), Error> {
    reply.int(names(ctx).all().count() as i64);
    Ok(())
}

fn info(ctx: &mut SessionCtx<'_>, args: Args<'_>, reply: &mut Reply) -> Result<(), Error> {
    if args.len() == 2 {
        return info_all(ctx, args, reply);
    }
    reply.array(args.len() - 2);
    for name in args.iter_from(2) {
        match names(ctx).find_full(name) {
            Some((name, command)) => describe(&name, command, reply),
            None => reply.null(),
        }
    }
    Ok(())
}

fn docs(ctx: &mut SessionCtx<'_>, args: Args<'_>, reply: &mut Reply) -> Result<(), Error> {
    let found: Vec<(String, &Command)> = if args.len() == 2 {
        names(ctx).all().map(|command| (command.name.to_owned(), command)).collect()
    } else {
        args.iter_from(2).filter_map(|name| names(ctx).find_full(name)).collect()
    };
    reply.map(found.len());
    for (name, command) in found {
        command_docs::write(&name, command, reply);
    }
    Ok(())
}

/// Picks commands by full name and record.
type Filter<'a> = Box<dyn Fn(&str, &Command) -> bool + 'a>;

fn list(ctx: &mut SessionCtx<'_>, args: Args<'_>, reply: &mut Reply) -> Result<(), Error> {
    let filter: Filter<'_> = match args.len() {
        2 => Box::new(|_, _| true),
        5 if args.is(2, "FILTERBY") && args.is(3, "MODULE") => Box::new(|_, _| false),
        5 if args.is(2, "FILTERBY") && args.is(3, "ACLCAT") => {
            let category = format!("@{}", String::from_utf8_lossy(args.at(4)).to_ascii_lowercase());
            Box::new(move |_, command| categories(command).contains(&category.as_str()))
        }
        5 if args.is(2, "FILTERBY") && args.is(3, "PATTERN") => {
            let pattern = args.at(4);
            Box::new(move |name, _| glob_match(pattern, name.as_bytes(), true))
        }
        _ => return Err(Error::Syntax),
    };
    let found: Vec<String> = names(ctx)
        .all()
        .flat_map(|command| {
            let subs =
                command.shown_subcommands().iter().map(|sub| (format!("{}|{}", command.name, sub.name), sub));
            std::iter::once((command.name.to_owned(), command)).chain(subs)
        })
        .filter(|(name, command)| filter(name, command))
        .map(|(name, _)| name)
        .collect();
    reply.array(found.len());
    for name in found {
        reply.bulk(name.as_bytes());
    }
    Ok(())
}

const HELP: &[&str] = &[
    "(no subcommand)",
    "    Return details about all commands.",
    "COUNT",
    "    Return the total number of commands in this server.",
    "LIST",
    "    Return a list of all commands in this server.",
    "INFO [<command-name> ...]",
    "    Return details about multiple commands.",
    "    If no command names are given, documentation details for all",
    "    commands are returned.",
    "DOCS [<command-name> ...]",
    "    Return documentation details about multiple commands.",
    "    If no command names are given, documentation details for all",
    "    commands are returned.",
    "GETKEYS <full-command>",
    "    Return the keys from a full command.",
    "GETKEYSANDFLAGS <full-command>",
    "    Return the keys and the access flags from a full command.",
];

fn show_help(_: &mut SessionCtx<'_>, args: Args<'_>, reply: &mut Reply) -> Result<(), Error> {
    help::write(HELP, args, reply);
    Ok(())
}

fn get_keys(ctx: &mut SessionCtx<'_>, args: Args<'_>, reply: &mut Reply) -> Result<(), Error> {
    let inner = args.skip(2);
    let (_, range) = keys_of(names(ctx), inner)?;
    reply.array(range.len());
    for idx in range.indices() {
        reply.bulk(inner.get(idx).unwrap_or_default());
    }
    Ok(())
}

fn get_keys_and_flags(ctx: &mut SessionCtx<'_>, args: Args<'_>, reply: &mut Reply) -> Result<(), Error> {
    let inner = args.skip(2);
    let (command, range) = keys_of(names(ctx), inner)?;
    reply.array(range.len());
    for (number, idx) in range.indices().enumerate() {
        reply.array(2);
        reply.bulk(inner.get(idx).unwrap_or_default());
        // Several specifications name one key each.
        let named = command.keys.iter().filter(|spec| !matches!(spec.find, Find::Unknown(None)));
        let spec = named.take(number + 1).last().unwrap_or(&command.keys[0]);
        let flags = spec.flags_for.map_or(spec.flags, |flags_for| flags_for(inner));
        write_words(flags.names(), reply);
    }
    Ok(())
}

/// The command that the arguments make, and where its keys are.
fn keys_of(names: Names<'_>, inner: Args<'_>) -> Result<(&'static Command, KeyRange), Error> {
    let command = lookup(names, inner).ok_or(Error::text("ERR Invalid command specified"))?;
    if command.keys.iter().all(|spec| spec.flags.has(KeyFlags::NOT_KEY)) {
        return Err(Error::text("ERR The command has no key arguments"));
    }
    if !command.accepts(inner.len()) {
        return Err(Error::text("ERR Invalid number of arguments specified for command"));
    }
    let range = command
        .key_range(inner)
        .filter(|range| !range.is_empty() && !command.keys.iter().any(|spec| spec.finds_none(inner)))
        .ok_or(Error::text("ERR Invalid arguments specified for command"))?;
    Ok((command, range))
}

/// The command or subcommand that these arguments name, however many they are; a container alone is itself.
fn lookup(names: Names<'_>, args: Args<'_>) -> Option<&'static Command> {
    let command = names.find(args.at(0))?;
    match args.get(1) {
        Some(_) if !command.shown_subcommands().is_empty() => super::subcommand(command, args),
        _ => Some(command),
    }
}

/// The access categories of a command, in Redis's order.
fn categories(command: &Command) -> Vec<&'static str> {
    const ORDER: &[&str] = &[
        "@keyspace",
        "@read",
        "@write",
        "@set",
        "@sortedset",
        "@list",
        "@hash",
        "@string",
        "@bitmap",
        "@hyperloglog",
        "@geo",
        "@stream",
        "@pubsub",
        "@admin",
        "@fast",
        "@slow",
        "@blocking",
        "@dangerous",
        "@connection",
        "@transaction",
        "@scripting",
    ];
    let mut found = command.categories.to_vec();
    let by_flag = [
        (Flags::WRITE, "@write"),
        (Flags::READONLY, "@read"),
        (Flags::ADMIN, "@admin"),
        (Flags::ADMIN, "@dangerous"),
        (Flags::PUBSUB, "@pubsub"),
        (Flags::BLOCKING, "@blocking"),
    ];
    found.extend(by_flag.iter().filter(|(flag, _)| command.flags.has(*flag)).map(|(_, name)| *name));
    found.push(if command.flags.has(Flags::FAST) { "@fast" } else { "@slow" });
    found.extend(match command.group {
        "string" => Some("@string"),
        "hash" => Some("@hash"),
        "sorted-set" => Some("@sortedset"),
        "list" => Some("@list"),
        "set" => Some("@set"),
        "bitmap" => Some("@bitmap"),
        "hyperloglog" => Some("@hyperloglog"),
        "geo" => Some("@geo"),
        "connection" if command.shown_subcommands().is_empty() => Some("@connection"),
        _ => None,
    });
    ORDER.iter().filter(|name| found.contains(name)).copied().collect()
}

fn write_words<'a>(words: impl Iterator<Item = &'a str>, reply: &mut Reply) {
    let words: Vec<&str> = words.collect();
    reply.set(words.len());
    for word in words {
        reply.simple(word);
    }
}

/// One element of COMMAND's reply.
fn describe(name: &str, command: &Command, reply: &mut Reply) {
    reply.array(10);
    reply.bulk(name.as_bytes());
    reply.int(command.arity.into());
    write_words(command.flags.names(), reply);
    let (first, last, step) = match command.shown_keys() {
        [KeySpec { begin, find: Find::Range { last, step }, .. }, rest @ ..] => {
            let ranges = rest.iter().take_while(|spec| matches!(spec.find, Find::Range { .. })).count();
            let last = match rest.last().map(|spec| spec.find) {
                Some(Find::Range { last: last @ ..0, .. }) => last.into(),
                _ if *last < 0 => (*last).into(),
                _ => i64::from(*last) + (*begin + ranges) as i64,
            };
            (*begin as i64, last, *step as i64)
        }
        _ => (0, 0, 0),
    };
    for number in [first, last, step] {
        reply.int(number);
    }
    write_words(categories(command).into_iter(), reply);
    reply.set(command.tips.len());
    for tip in command.tips {
        reply.bulk(tip.as_bytes());
    }
    reply.set(command.shown_keys().len());
    for spec in command.shown_keys() {
        describe_keys(spec, reply);
    }
    reply.array(command.shown_subcommands().len());
    for sub in command.shown_subcommands() {
        describe(&format!("{name}|{}", sub.name), sub, reply);
    }
}

fn describe_keys(spec: &KeySpec, reply: &mut Reply) {
    reply.map(3 + usize::from(spec.notes.is_some()));
    if let Some(notes) = spec.notes {
        reply.bulk(b"notes");
        reply.bulk(notes.as_bytes());
    }
    reply.bulk(b"flags");
    write_words(spec.flags.names(), reply);
    reply.bulk(b"begin_search");
    match spec.find {
        Find::Unknown(_) => write_search("unknown", &[], reply),
        Find::Keyword { word, .. } => {
            reply.map(2);
            reply.bulk(b"type");
            reply.bulk(b"keyword");
            reply.bulk(b"spec");
            reply.map(2);
            reply.bulk(b"keyword");
            reply.bulk(word.as_bytes());
            reply.bulk(b"startfrom");
            reply.int(spec.begin as i64);
        }
        _ => write_search("index", &[("index", spec.begin as i64)], reply),
    }
    reply.bulk(b"find_keys");
    match spec.find {
        Find::Range { last, step } => {
            let fields = [("lastkey", last.into()), ("keystep", step as i64), ("limit", 0)];
            write_search("range", &fields, reply);
        }
        Find::Count { count_at, first, step } => {
            let fields =
                [("keynumidx", count_at as i64), ("firstkey", first as i64), ("keystep", step as i64)];
            write_search("keynum", &fields, reply);
        }
        Find::Keyword { .. } => {
            write_search("range", &[("lastkey", 0), ("keystep", 1), ("limit", 0)], reply);
        }
        Find::Unknown(_) => write_search("unknown", &[], reply),
    }
}

fn write_search(kind: &str, fields: &[(&str, i64)], reply: &mut Reply) {
    reply.map(2);
    reply.bulk(b"type");
    reply.bulk(kind.as_bytes());
    reply.bulk(b"spec");
    reply.map(fields.len());
    for (name, value) in fields {
        reply.bulk(name.as_bytes());
        reply.int(*value);
    }
}
