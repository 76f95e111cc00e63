//! All commands, family by family; every file holds the records, the handlers and their tests together.

mod auth;
mod bitfield;
mod bitmap;
mod bitop;
mod client;
mod client_filter;
mod client_help;
mod client_kill;
mod client_list;
mod client_modes;
mod client_pause;
mod command_docs;
mod command_history;
mod command_info;
mod command_names;
mod commandlog;
mod config;
mod connection;
mod database;
mod deadline;
mod debug;
mod debug_reload;
mod debug_tables;
mod dump;
mod element;
mod element_scan;
mod expire;
mod generic;
mod generic_transfer;
mod geo;
mod geo_options;
mod geo_pieces;
mod geo_search;
mod hash;
mod hash_deadline;
mod hash_field;
mod hash_read;
mod help;
mod hyperloglog;
mod info;
mod info_commands;
mod info_sections;
mod latency;
mod latency_report;
mod list;
mod list_blocking;
mod list_edit;
mod list_move;
mod long_double;
mod memory;
mod monitor;
mod object;
mod picks;
mod pubsub;
mod pubsub_info;
#[cfg(test)]
mod pubsub_tests;
mod recent;
mod replication;
mod restore;
mod scan;
mod server;
mod set;
mod set_algebra;
mod set_combine;
mod set_random;
mod shutdown;
mod sort;
mod sort_options;
mod sort_order;
mod sort_pattern;
mod sort_pieces;
mod string;
mod string_lcs;
mod string_number;
mod string_set;
#[cfg(test)]
mod testing;
mod transactions;
#[cfg(test)]
mod walk_tests;
#[cfg(test)]
mod wall_tests;
mod zset;
mod zset_algebra;
mod zset_combine;
mod zset_pieces;
mod zset_pop;
mod zset_range;
mod zset_range_store;
mod zset_read;

use crate::args::Args;
use crate::command::{Command, Flags};
use crate::errors::{Error, echoed};
use hashbrown::HashMap;
pub(crate) use recent::Recent;

/// The families, in the order in which COMMAND lists them.
static FAMILIES: &[&[Command]] = &[
    string::COMMANDS,
    string_set::COMMANDS,
    string_number::COMMANDS,
    string_lcs::COMMANDS,
    generic::COMMANDS,
    generic_transfer::COMMANDS,
    expire::COMMANDS,
    scan::COMMANDS,
    database::COMMANDS,
    connection::COMMANDS,
    client::COMMANDS,
    monitor::COMMANDS,
    command_info::COMMANDS,
    server::COMMANDS,
    config::COMMANDS,
    auth::COMMANDS,
    debug::COMMANDS,
    replication::COMMANDS,
    shutdown::COMMANDS,
    info::COMMANDS,
    object::COMMANDS,
    commandlog::COMMANDS,
    latency::COMMANDS,
    memory::COMMANDS,
    dump::COMMANDS,
    restore::COMMANDS,
    pubsub::COMMANDS,
    pubsub_info::COMMANDS,
    hash::COMMANDS,
    hash_read::COMMANDS,
    list::COMMANDS,
    list_edit::COMMANDS,
    list_move::COMMANDS,
    transactions::COMMANDS,
    set::COMMANDS,
    set_random::COMMANDS,
    set_algebra::COMMANDS,
    list_blocking::COMMANDS,
    zset::COMMANDS,
    zset_read::COMMANDS,
    hash_deadline::COMMANDS,
    hash_field::COMMANDS,
    bitmap::COMMANDS,
    bitop::COMMANDS,
    bitfield::COMMANDS,
    zset_pop::COMMANDS,
    zset_algebra::COMMANDS,
    zset_range_store::COMMANDS,
    sort::COMMANDS,
    hyperloglog::COMMANDS,
    geo::COMMANDS,
    geo_search::COMMANDS,
];

pub use bitop::BitWork;
pub use dump::DumpWork;
pub use geo_pieces::GeoWork;
pub use list::Matches;
pub(crate) use list_blocking::wait_deadline;
pub use restore::RestoreWork;
pub use set_combine::SetWork;
pub use sort::SortShare;
pub use sort_pieces::SortWork;
pub use zset_pieces::ScoreWork;

/// Bytes of the client's words that an error text repeats.
const ECHOED_MAX: usize = 128;
/// Longer names than this are no command's.
const NAME_LEN_MAX: usize = 32;

/// Every command, family by family.
pub fn all() -> impl Iterator<Item = &'static Command> + Clone {
    FAMILIES.iter().flat_map(|family| family.iter())
}

/// A command by its index: the family in the upper byte, the place in it in the lower.
pub(crate) fn by_index(index: u16) -> &'static Command {
    &FAMILIES[usize::from(index >> 8)][usize::from(index & 0xFF)]
}

/// Numbers all commands and subcommands, from 0 on: each command is followed by its subcommands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct CommandNumber(pub u16);

/// Every command, each followed by its subcommands, which have a number of their own unless they are hidden: its container, if it
/// has one, and its record.
pub(crate) fn numbered() -> impl Iterator<Item = (Option<&'static Command>, &'static Command)> {
    all().flat_map(|command| {
        std::iter::once((None, command))
            .chain(command.shown_subcommands().iter().map(move |sub| (Some(command), sub)))
    })
}

/// A subcommand's name with its container's.
pub(crate) fn full_name(container: Option<&Command>, command: &Command) -> String {
    match container {
        Some(container) => format!("{}|{}", container.name, command.name),
        None => command.name.to_owned(),
    }
}

/// What a name stands for.
pub(crate) enum Lookup {
    Command(CommandId, &'static Command),
    /// Container and subcommand; the id is the container's index and the subcommand's number.
    Subcommand(CommandId, &'static Command, &'static Command),
    /// The command does not take so many arguments.
    Refused(CommandId, Error),
    Failed(Error),
}

impl Lookup {
    /// Whether it is, or is meant to be, what a client may ask for before it has given its password.
    #[cold]
    pub(crate) fn needs_no_password(&self) -> bool {
        match self {
            Self::Command(_, command) | Self::Subcommand(_, _, command) => command.flags.has(Flags::NO_AUTH),
            Self::Refused(id, _) => by_index(id.index).flags.has(Flags::NO_AUTH),
            Self::Failed(_) => false,
        }
    }
}

/// Where a command stands in the table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct CommandId {
    /// Of the command or the container: see [`by_index`].
    pub(crate) index: u16,
    /// Of the command or the subcommand.
    pub(crate) number: CommandNumber,
}

/// Finds commands by name.
pub struct CommandTable {
    by_name: HashMap<Box<[u8]>, CommandId, foldhash::fast::FixedState>,
}

impl Default for CommandTable {
    fn default() -> Self {
        Self::new()
    }
}

impl CommandTable {
    /// A table of all commands.
    pub fn new() -> Self {
        let mut by_name = HashMap::with_hasher(foldhash::fast::FixedState::default());
        let mut number = 0;
        for (family, commands) in FAMILIES.iter().enumerate() {
            for (idx, command) in commands.iter().enumerate() {
                let id = CommandId { index: (family << 8 | idx) as u16, number: CommandNumber(number) };
                by_name.insert(command.name.as_bytes().into(), id);
                number += 1 + command.shown_subcommands().len() as u16;
            }
        }
        Self { by_name }
    }

    /// All commands, some of them under other names; with an empty one, not at all. Names are in lower case.
    pub fn renamed(names: &[(String, String)]) -> Self {
        let mut table = Self::new();
        let ids: Vec<_> = names.iter().map(|(name, _)| table.by_name.remove(name.as_bytes())).collect();
        for ((_, name), id) in names.iter().zip(ids) {
            if let Some(id) = id.filter(|_| !name.is_empty()) {
                table.by_name.insert(name.as_bytes().into(), id);
            }
        }
        table
    }

    /// The index of a command by its name in any case.
    #[inline]
    pub fn index(&self, name: &[u8]) -> Option<u16> {
        self.id(name).map(|id| id.index)
    }

    #[inline]
    fn id(&self, name: &[u8]) -> Option<CommandId> {
        let mut lower = [0; NAME_LEN_MAX];
        let lower = lower.get_mut(..name.len())?;
        lower.copy_from_slice(name);
        lower.make_ascii_lowercase();
        self.by_name.get(&*lower).copied()
    }

    /// The command or subcommand that these arguments ask for, if they are as many as it takes.
    #[inline]
    pub(crate) fn find(&self, args: Args<'_>) -> Lookup {
        Self::found(self.id(args.at(0)), args)
    }

    /// The same, where names have been looked up before.
    #[inline]
    pub(crate) fn find_again(&self, recent: &Recent, args: Args<'_>) -> Lookup {
        Self::found(recent.get(args.at(0), |name| self.id(name)), args)
    }

    #[inline]
    fn found(id: Option<CommandId>, args: Args<'_>) -> Lookup {
        let Some(id) = id else { return Lookup::Failed(unknown_command(args)) };
        let command = by_index(id.index);
        if command.subcommands.is_empty() {
            if command.accepts(args.len()) {
                return Lookup::Command(id, command);
            }
            return Lookup::Refused(id, Error::Arity(command.name.into()));
        }
        find_subcommand(id, command, args)
    }

    /// The command or subcommand that these arguments ask for.
    pub(crate) fn command(&self, args: Args<'_>) -> Option<&'static Command> {
        match self.find(args) {
            Lookup::Command(_, command) | Lookup::Subcommand(_, _, command) => Some(command),
            Lookup::Refused(..) | Lookup::Failed(_) => None,
        }
    }

    /// Where the command or subcommand stands that these arguments were found to ask for before.
    pub(crate) fn id_of(&self, args: Args<'_>) -> CommandId {
        match self.find(args) {
            Lookup::Command(id, _) | Lookup::Subcommand(id, ..) | Lookup::Refused(id, _) => id,
            Lookup::Failed(_) => CommandId::default(),
        }
    }

    /// The same for a command that was found before, on another shard.
    #[inline]
    pub(crate) fn resolve(&self, index: u16, args: Args<'_>) -> &'static Command {
        let command = by_index(index);
        if command.subcommands.is_empty() {
            return command;
        }
        subcommand(command, args).unwrap_or(command)
    }
}

fn subcommand(command: &'static Command, args: Args<'_>) -> Option<&'static Command> {
    subcommand_place(command, args).map(|place| &command.subcommands[place])
}

fn subcommand_place(command: &'static Command, args: Args<'_>) -> Option<usize> {
    let name = args.get(1)?;
    let is_it = |sub: &Command| sub.name.as_bytes().eq_ignore_ascii_case(name);
    // One that is hidden is a form of the command: in another form it is not there.
    let fits = |sub: &Command| !command.subcommands_hidden || sub.accepts(args.len());
    command.subcommands.iter().position(|sub| is_it(sub) && fits(sub))
}

fn find_subcommand(id: CommandId, command: &'static Command, args: Args<'_>) -> Lookup {
    // A container that does something without a subcommand (COMMAND) has a plan of its own.
    if args.len() == 1 {
        if command.accepts(1) {
            return Lookup::Command(id, command);
        }
        return Lookup::Refused(id, Error::Arity(command.name.into()));
    }
    let Some(place) = subcommand_place(command, args) else {
        if command.subcommands_hidden {
            return Lookup::Command(id, command);
        }
        let hint = format!("'. Try {} HELP.", String::from_utf8_lossy(args.at(0)).to_uppercase());
        let name = first_bytes(args.at(1), ECHOED_MAX);
        return Lookup::Failed(Error::echo("ERR unknown subcommand '", name, &hint));
    };
    let sub = &command.subcommands[place];
    let id = match command.subcommands_hidden {
        true => id,
        false => CommandId { number: CommandNumber(id.number.0 + 1 + place as u16), ..id },
    };
    if sub.accepts(args.len()) {
        return Lookup::Subcommand(id, command, sub);
    }
    Lookup::Refused(id, Error::Arity(format!("{}|{}", command.name, sub.name).into()))
}

/// As Valkey refuses a subcommand that it knows, but not with these arguments, and any that is hidden.
fn subcommand_syntax_error(args: Args<'_>) -> Error {
    let name = String::from_utf8_lossy(args.at(0)).to_uppercase();
    let before = "ERR unknown subcommand or wrong number of arguments for '";
    Error::echo(before, first_bytes(args.at(1), ECHOED_MAX), &format!("'. Try {name} HELP."))
}

fn first_bytes(word: &[u8], max: usize) -> &[u8] {
    &word[..word.len().min(max)]
}

fn unknown_command(args: Args<'_>) -> Error {
    let mut text = b"ERR unknown command '".to_vec();
    text.extend_from_slice(echoed(first_bytes(args.at(0), ECHOED_MAX)));
    text.extend_from_slice(b"', with args beginning with: ");
    let (begin, mut left) = (text.len(), ECHOED_MAX);
    for arg in args.iter_from(1) {
        text.push(b'\'');
        text.extend_from_slice(echoed(first_bytes(arg, left)));
        text.extend_from_slice(b"' ");
        left = ECHOED_MAX.saturating_sub(text.len() - begin);
        if left == 0 {
            break;
        }
    }
    Error::Echo(text.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use corelane_resp::Span;

    #[test]
    fn indices_name_commands_and_names_are_unique() {
        let table = CommandTable::new();
        for command in all() {
            let index = table.index(command.name.to_uppercase().as_bytes()).expect(command.name);
            assert_eq!(by_index(index).name, command.name);
            assert!(!command.summary.is_empty() && command.summary.ends_with('.'), "{}", command.name);
        }
        assert_eq!(table.by_name.len(), all().count());
        assert!(table.index(&[b'x'; 100]).is_none());
    }

    #[test]
    fn numbers_follow_the_order_of_the_table() {
        let table = CommandTable::new();
        for (number, (container, command)) in numbered().enumerate() {
            let words: Vec<&str> =
                container.map(|container| container.name).into_iter().chain([command.name]).collect();
            let data = words.concat();
            let first = words[0].len();
            let spans = [Span::new(0, first), Span::new(first, data.len())];
            let id = table.id_of(Args::new(data.as_bytes(), &spans[..words.len()], &[]));
            assert_eq!(usize::from(id.number.0), number, "{words:?}");
        }
    }
}
