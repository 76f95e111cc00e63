//! Commands by the names that clients of this server have for them: `rename-command` gives some another one, others none.

use crate::command::Command;

/// Own and new names, all in lower case; an empty one forbids the command.
#[derive(Clone, Copy)]
pub(super) struct Names<'a>(pub(super) &'a [(String, String)]);

impl<'a> Names<'a> {
    /// The commands that there are for clients.
    pub(super) fn all(self) -> impl Iterator<Item = &'static Command> + Clone + use<'a> {
        super::all()
            .filter(move |command| !self.0.iter().any(|(own, new)| own == command.name && new.is_empty()))
    }

    /// A command by what clients call it, in any case.
    pub(super) fn find(self, name: &[u8]) -> Option<&'static Command> {
        let is = |known: &str| known.as_bytes().eq_ignore_ascii_case(name);
        let own = match self.0.iter().find(|(_, new)| !new.is_empty() && is(new)) {
            Some((own, _)) => Some(own.as_str()),
            None if self.0.iter().any(|(own, _)| is(own)) => return None,
            None => None,
        };
        super::all().find(|command| own.map_or_else(|| is(command.name), |own| own == command.name))
    }

    /// A command or, as `container|name`, a subcommand: its own full name, and its record.
    pub(super) fn find_full(self, name: &[u8]) -> Option<(String, &'static Command)> {
        let mut words = name.split(|byte| *byte == b'|');
        let command = self.find(words.next()?)?;
        match (words.next(), words.next()) {
            (None, _) => Some((command.name.to_owned(), command)),
            (Some(second), None) => {
                let is_it = |sub: &&Command| sub.name.as_bytes().eq_ignore_ascii_case(second);
                let sub = command.shown_subcommands().iter().find(is_it)?;
                Some((format!("{}|{}", command.name, sub.name), sub))
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::testing::Bench;

    #[test]
    fn a_renamed_command_is_found_under_its_new_name_only() {
        let pair = |own: &str, new: &str| (own.to_owned(), new.to_owned());
        let renamed =
            [pair("get", "fetch"), pair("config", ""), pair("set", "get"), pair("client", "klient")];
        let names = Names(&renamed);
        let found = |name: &str| names.find_full(name.as_bytes()).map(|(own, _)| own);
        let some = |name: &str| Some(name.to_owned());
        assert_eq!((found("FETCH"), found("get"), found("set")), (some("get"), some("set"), None));
        assert_eq!((found("config"), found("config|get"), found("")), (None, None, None));
        assert_eq!((found("klient|LIST"), found("client|list")), (some("client|list"), None));
        assert_eq!(names.all().count() + 1, crate::commands::all().count());
    }

    #[test]
    fn command_tells_of_renamed_commands() {
        let mut bench = Bench::new(2);
        let count = bench.run("COMMAND COUNT");
        bench.configure(|settings| {
            settings.config.renamed = vec![("get".into(), "fetch".into()), ("config".into(), String::new())];
        });
        let keys = "COMMAND GETKEYS fetch k\nCOMMAND GETKEYS get k\nCOMMAND GETKEYSANDFLAGS FETCH k";
        assert_eq!(bench.run(keys), "[\"k\"]\n-ERR Invalid command specified\n[[\"k\", [+RO, +access]]]");
        assert_eq!(bench.run("COMMAND INFO get config config|get\nCOMMAND DOCS get"), "[nil, nil, nil]\n[]");
        assert!(bench.run("COMMAND INFO fetch").starts_with("[[\"get\", :2, "));
        assert_eq!(
            bench.run("COMMAND LIST FILTERBY PATTERN get\nCOMMAND LIST FILTERBY PATTERN config*"),
            "[\"get\"]\n[]"
        );
        assert_ne!(bench.run("COMMAND COUNT"), count);
    }
}
