//! The command line: a configuration file, and directives that go before what it says.
//!
//! The flags are the directives, each under its own name; the table of the engine has them all. As in Redis a directive
//! takes all words up to the next one (`--bind 127.0.0.1 ::1`), and may be given in any letters.

use std::ffi::OsString;

use anyhow::{Context, Result, anyhow, bail};
use clap::{Arg, ArgAction, ArgMatches, Command};
use corelane_engine::all_commands;
use corelane_engine::config::{Config, Directive, Kind};
use corelane_runtime::topology::parse_list;

use crate::config_file::{self, Line};
use crate::tools;

/// How much a misspelt name may look like another one before it is taken for it.
const SIMILAR_MIN: f64 = 0.8;

/// What the command line asks for.
#[derive(Debug)]
pub(crate) struct Invocation {
    pub(crate) config: Config,
    /// Only look whether the configuration makes sense.
    pub(crate) check_only: bool,
    /// Directives that change nothing here.
    pub(crate) idle: Vec<&'static str>,
}

/// The form of a directive's values, for people.
fn value_name(kind: Kind) -> String {
    match kind {
        Kind::Bool => "yes|no".to_owned(),
        Kind::Int { .. } => "N".to_owned(),
        Kind::Octal => "MODE".to_owned(),
        Kind::Bytes { .. } | Kind::BytesOrPercent => "BYTES".to_owned(),
        Kind::Enum(words) | Kind::Words(words) if words.len() <= 4 => words.join("|"),
        Kind::Enum(_) | Kind::Words(_) => "WORD".to_owned(),
        Kind::Text | Kind::Special(_) => "TEXT".to_owned(),
    }
}

/// The version with the commit it was built from, where that is known.
pub(crate) const VERSION: &str = match option_env!("CORELANE_COMMIT") {
    Some(commit) => commit,
    None => env!("CARGO_PKG_VERSION"),
};

/// The command line as clap knows it. Directives without effect are known but not listed.
pub(crate) fn command() -> Command {
    let directives = Directive::all().iter().map(|directive| {
        let target = Directive::find(directive.name).unwrap_or(directive);
        let arg = Arg::new(directive.name)
            .long(directive.name)
            .value_name(value_name(target.kind))
            .allow_hyphen_values(true)
            .action(ArgAction::Append)
            .hide(target.idle || directive.alias_of.is_some());
        let meaning = target.meaning().unwrap_or_default();
        match target.default {
            "" => arg.help(meaning),
            default => arg.help(format!("{meaning} [default: {default}]")),
        }
    });
    Command::new("corelane")
        .version(VERSION)
        .about("A Redis-compatible, shared-nothing, thread-per-core cache server.")
        .after_help(format!("{}\nThe directives are explained in docs/config.md.", tools::overview()))
        .arg(Arg::new("FILE").help("Configuration file in the form of redis.conf; - for the standard input"))
        .arg(
            Arg::new("check-config")
                .long("check-config")
                .action(ArgAction::SetTrue)
                .help("Only look whether the configuration makes sense"),
        )
        .arg(
            Arg::new("rename-command")
                .long("rename-command")
                .value_name("COMMAND NAME")
                .action(ArgAction::Append)
                .help("Give a command another name; an empty one forbids it"),
        )
        .args(directives)
}

/// Reads the command line, without the program's name, and the file that it names.
///
/// # Errors
/// Whatever makes no sense, in one sentence. What clap has to say is said by it.
pub(crate) fn parse(args: impl Iterator<Item = OsString>) -> Result<Invocation> {
    let words = std::iter::once(OsString::from("corelane")).chain(args);
    invocation(&command().try_get_matches_from(join_values(words))?)
}

fn invocation(matches: &ArgMatches) -> Result<Invocation> {
    let mut invocation = Invocation {
        config: Config::default(),
        check_only: matches.get_flag("check-config"),
        idle: Vec::new(),
    };
    let names = Directive::all().iter().map(|directive| directive.name).chain(["rename-command"]);
    for name in names.clone() {
        let values = matches.get_many::<String>(name).unwrap_or_default();
        if let Some(next) = values.into_iter().find(|value| value.starts_with("--")) {
            bail!("--{name} needs a value; what follows is {next}");
        }
    }
    if let Some(path) = matches.get_one::<String>("FILE") {
        for line in config_file::read(path)? {
            invocation.take(&line).with_context(|| line.place.clone())?;
        }
        let absolute =
            std::fs::canonicalize(path).map_or_else(|_| path.clone(), |path| path.display().to_string());
        invocation.config.file = (path != "-").then_some(absolute);
    }
    for name in names {
        for value in matches.get_many::<String>(name).unwrap_or_default() {
            let (_, words) = config_file::parse_line(&format!("{name} {value}"))?.unwrap_or_default();
            let place = format!("--{name}");
            invocation.take(&Line { place, name: name.to_owned(), words }).with_context(|| {
                format!("--{name} {}", if is_secret(name) { "(redacted)" } else { value })
            })?;
        }
    }
    invocation.config.check().map_err(anyhow::Error::msg)?;
    if !invocation.config.value("cpus").is_empty() {
        parse_list(invocation.config.value("cpus"))?;
    }
    Ok(invocation)
}

impl Invocation {
    fn take(&mut self, line: &Line) -> Result<()> {
        if line.name == "rename-command" {
            return self.rename(&line.words);
        }
        let directive = Directive::find(&line.name).ok_or_else(|| unknown(&line.name))?;
        let single = !matches!(directive.kind, Kind::Special(_) | Kind::Words(_)) && directive.name != "bind";
        if line.words.is_empty() || (single && line.words.len() > 1) {
            bail!("{} takes {}", directive.name, if single { "one value" } else { "values" });
        }
        let mut value = line.words.join(" ");
        if directive.idle && value != directive.default && !self.idle.contains(&directive.name) {
            self.idle.push(directive.name);
        }
        let refused = |why| anyhow!("{}: {why}", directive.name);
        if directive.name == "save" && !value.is_empty() {
            // Each line is one or more points in addition to those before; an empty one forgets them.
            directive.parse(&value).map_err(refused)?;
            value = format!("{} {value}", self.config.value_of(directive)).trim_start().to_owned();
        }
        self.config.set(directive, &value).map_err(refused)
    }

    fn rename(&mut self, words: &[String]) -> Result<()> {
        let [name, new] = words else { bail!("rename-command takes a command and its new name, or \"\"") };
        let (name, new) = (name.to_ascii_lowercase(), new.to_ascii_lowercase());
        let renamed = |name: &str| self.config.renamed.iter().any(|(other, _)| other == name);
        let known = |name: &str| all_commands().any(|command| command.name == name) && !renamed(name);
        if !known(&name) {
            bail!("there is no command {name:?} to be renamed");
        }
        let taken = self.config.renamed.iter().any(|(_, other)| !new.is_empty() && *other == new);
        if known(&new) || taken {
            bail!("there is a command {new:?} already");
        }
        self.config.renamed.push((name, new));
        Ok(())
    }
}

fn is_secret(name: &str) -> bool {
    Directive::find(name).is_some_and(|directive| directive.secret)
}

fn unknown(name: &str) -> anyhow::Error {
    let likeness = |known: &&Directive| strsim::jaro_winkler(known.name, name);
    let nearest = Directive::all().iter().max_by(|a, b| likeness(a).total_cmp(&likeness(b)));
    match nearest.filter(|nearest| likeness(nearest) >= SIMILAR_MIN) {
        Some(nearest) => anyhow!("there is no directive {name}; there is {}", nearest.name),
        None => anyhow!("there is no directive {name}; docs/config.md lists them"),
    }
}

/// Makes one word of all values of a directive: those up to the next word that starts with two dashes. Names of directives
/// become lower case.
pub(crate) fn join_values(args: impl Iterator<Item = OsString>) -> Vec<OsString> {
    let mut joined: Vec<OsString> = Vec::new();
    // 0: outside of a directive, 1: after its name, 2: after its first value.
    let mut values = 0;
    for arg in args {
        if arg.as_encoded_bytes().starts_with(b"--") {
            values = 1;
            joined.push(arg.to_ascii_lowercase());
        } else if values == 0 {
            joined.push(arg);
        } else {
            let quoted = OsString::from(config_file::quote(&arg.to_string_lossy()));
            if values == 2 {
                let last = joined.last_mut().expect("a value has been pushed");
                last.push(" ");
                last.push(quoted);
            } else {
                joined.push(quoted);
                values = 2;
            }
        }
    }
    joined
}

#[cfg(test)]
mod tests {
    use corelane_runtime::options::ServerOptions;

    use super::*;

    fn parsed(line: &str) -> Result<Config> {
        parse(line.split_ascii_whitespace().map(OsString::from)).map(|invocation| invocation.config)
    }

    #[test]
    fn the_table_of_flags_is_consistent() {
        command().debug_assert();
    }

    #[test]
    fn nothing_said_is_the_defaults() {
        assert_eq!(parsed("").unwrap(), Config::default());
    }

    #[test]
    fn a_directive_takes_all_words_up_to_the_next() {
        let line = "--bind 127.0.0.1 -::1 --PORT 7000 --client-output-buffer-limit normal 1mb 0 0 --shards 3";
        let config = parsed(line).unwrap();
        assert!(config.value("client-output-buffer-limit").starts_with("normal 1048576 0 0 slave"));
        let options = ServerOptions::from_config(config);
        assert_eq!(
            (options.bind, options.port, options.shards),
            (vec!["127.0.0.1".into(), "-::1".into()], 7000, Some(3))
        );
    }

    #[test]
    fn lines_of_save_add_up() {
        for (line, expected) in [
            ("--save 900 1 --timeout 3 --save 300 10", "900 1 300 10"),
            ("--save 900 1 300 10 --save 60 5", "900 1 300 10 60 5"),
            ("--save \"\" --save 7 7", "7 7"),
        ] {
            let words = line.split(' ').map(|word| OsString::from(word.replace("\"\"", "")));
            let invocation = parse(words).unwrap();
            assert_eq!(invocation.config.value("save"), expected, "{line}");
            assert_eq!(invocation.idle, ["save"]);
        }
        for line in ["--save 900 --save 1", "--save 900 1 --save x"] {
            assert!(parsed(line).is_err(), "{line}");
        }
    }

    #[test]
    fn values_out_of_range_and_unknown_names_are_refused() {
        for line in [
            "--port 65536",
            "--port -1",
            "--port",
            "--port 1 2",
            "--maxclients 0",
            "--proto-max-bulk-len 1k",
            "--unixsocketperm 999",
            "--client-output-buffer-limit 5",
            "--placement here",
            "--no-such-flag 1",
            "--rename-command get",
            "--rename-command nope x",
            "--rename-command get set",
            "--appendonly yes",
            "no-such-file.conf",
        ] {
            assert!(parsed(line).is_err(), "{line}");
        }
    }

    #[test]
    fn flags_go_before_the_file() {
        let dir = std::env::temp_dir().join(format!("corelane-flags-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let write = |name: &str, text: &str| {
            let path = dir.join(name);
            std::fs::write(&path, text).unwrap();
            path.display().to_string()
        };
        let inner = write("inner.conf", "timeout 5\nrename-command KEYS \"\"\n");
        let outer = write(
            "outer.conf",
            &format!("# comment\ntimeout 4\nmaxclients 77\ninclude {inner}\ndaemonize yes\n"),
        );
        let args = [outer.as_str(), "--maxclients", "8"].map(OsString::from);
        let invocation = parse(args.into_iter()).unwrap();
        let config = &invocation.config;
        assert_eq!((config.value("timeout"), config.value("maxclients")), ("5", "8"));
        assert_eq!(config.renamed, [("keys".to_owned(), String::new())]);
        assert_eq!(invocation.idle, ["daemonize"]);
        let wrong = write("wrong.conf", "\ntimeot 4\n");
        let error = format!("{:#}", parse([OsString::from(wrong)].into_iter()).unwrap_err());
        assert!(error.contains("line 2") && error.contains("there is timeout"), "{error}");
        std::fs::remove_dir_all(dir).unwrap();
    }
}
