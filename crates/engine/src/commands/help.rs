//! HELP of the containers: in Valkey's words where we have all of its subcommands, otherwise usage and summary of ours, from
//! the records.

use super::all;
use super::command_docs::usage;
use crate::args::Args;
use crate::command::{Command, Flags, Plan, SessionHandler};
use corelane_resp::Reply;

/// Writes the HELP of a container from its records.
pub(super) fn write_records(container: &str, reply: &mut Reply) {
    for command in all().filter(|command| command.name == container) {
        let lines = lines(command);
        reply.array(lines.len());
        for line in &lines {
            reply.simple(line);
        }
    }
}

/// In the form that Valkey gives them.
fn lines(container: &Command) -> Vec<String> {
    let name = container.name.to_ascii_uppercase();
    let mut lines = vec![format!("{name} <subcommand> [<arg> [value] [opt] ...]. Subcommands are:")];
    for sub in container.subcommands.iter().filter(|sub| sub.name != "help") {
        lines.push(format!("{} {}", sub.name.to_ascii_uppercase(), usage(sub.syntax)).trim_end().to_owned());
        lines.push(format!("    {}", sub.summary));
    }
    lines.extend(["HELP".to_owned(), "    Print this help.".to_owned()]);
    lines
}

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn help_follows_from_the_records() {
        const fn one(name: &'static str, syntax: &'static str, summary: &'static str) -> Command {
            Command { name, syntax, summary, ..Command::DEFAULT }
        }
        const SUBCOMMANDS: &[Command] =
            &[one("get", "key", "Gets."), one("help", "", "Helps."), one("reset", "", "Resets.")];
        let container = Command { name: "thing", subcommands: SUBCOMMANDS, ..Command::DEFAULT };
        let expected = "THING <subcommand> [<arg> [value] [opt] ...]. Subcommands are:|GET key|    Gets.|RESET|    Resets.|\
            HELP|    Print this help.";
        assert_eq!(lines(&container).join("|"), expected);
    }
}
