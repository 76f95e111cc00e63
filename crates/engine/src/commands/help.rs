//! HELP of the containers: in Valkey's words, of the subcommands that there are here.

use crate::args::Args;
use crate::command::{Command, Flags, Plan, SessionHandler};
use corelane_resp::Reply;

/// The record of a HELP with a text of its own.
pub(super) const fn record(run: SessionHandler, since: &'static str, group: &'static str) -> Command {
    Command {
        name: "help",
        arity: 2,
        flags: Flags::LOADING.with(Flags::STALE),
        plan: Plan::Session(run),
        since,
        group,
        summary: "Returns helpful text about the different subcommands.",
        ..Command::DEFAULT
    }
}

/// Writes the lines between a heading with the command's name and what HELP says of itself.
pub(super) fn write(lines: &[&str], args: Args<'_>, reply: &mut Reply) {
    let name = String::from_utf8_lossy(args.at(0)).to_uppercase();
    reply.array(lines.len() + 3);
    reply.simple(&format!("{name} <subcommand> [<arg> [value] [opt] ...]. Subcommands are:"));
    for line in lines.iter().chain(&["HELP", "    Print this help."]) {
        reply.simple(line);
    }
}
