//! The configuration as users see it: directives by name, their values as text, and how a value is checked.
//!
//! The table (`table`) is the one place that knows the directives; the configuration file, the command line, CONFIG and
//! docs/config.md derive from it. What the engine works with are the typed fields of [`Settings`](crate::Settings), which
//! `apply` sets from the values. Every shard has a copy of both.

mod apply;
pub mod bytes;
mod document;
mod meaning;
mod special;
mod table;
mod value;

use crate::session::Client;
pub use document::document;
use table::DIRECTIVES;
pub(crate) use value::amount;

/// Addresses that `bind` may name, as in Redis.
const BIND_MAX: usize = 16;

/// What values a directive takes.
#[derive(Clone, Copy, Debug)]
pub enum Kind {
    /// `yes` or `no`.
    Bool,
    /// A whole number.
    Int {
        /// The least.
        min: i64,
        /// The greatest.
        max: i64,
    },
    /// Permission bits.
    Octal,
    /// An amount of memory, such as `100mb`.
    Bytes {
        /// The least, in bytes.
        min: i64,
        /// The greatest.
        max: i64,
    },
    /// An amount of memory, or a share of what there is, such as `5%`.
    BytesOrPercent,
    /// One of these words.
    Enum(&'static [&'static str]),
    /// Some of these words; the first alone is for none of them.
    Words(&'static [&'static str]),
    /// Anything.
    Text,
    /// What this function accepts and returns in its usual form.
    Special(fn(&str) -> Result<String, String>),
}

/// One directive.
#[derive(Clone, Copy, Debug)]
pub struct Directive {
    /// Its name, in lower case.
    pub name: &'static str,
    /// What its values are.
    pub kind: Kind,
    /// The value it has when nobody sets it.
    pub default: &'static str,
    /// It is set when the server starts, and not later.
    pub fixed: bool,
    /// It is known, can be read and set, and changes nothing here.
    pub idle: bool,
    /// Patterns of CONFIG GET do not find it; its name does.
    pub hidden: bool,
    /// It may be set only where `enable-protected-configs` allows it.
    pub protected: bool,
    /// Its value is a password or the like: not to be logged.
    pub secret: bool,
    /// Redis and Valkey do not have it.
    pub ours: bool,
    /// Another name of the directive with this name.
    pub alias_of: Option<&'static str>,
}

impl Directive {
    const NOTHING: Self = Self {
        name: "",
        kind: Kind::Text,
        default: "",
        fixed: false,
        idle: false,
        hidden: false,
        protected: false,
        secret: false,
        ours: false,
        alias_of: None,
    };

    const fn new(name: &'static str, kind: Kind, default: &'static str) -> Self {
        Self { name, kind, default, ..Self::NOTHING }
    }
    const fn alias(name: &'static str, of: &'static str) -> Self {
        Self { alias_of: Some(of), ..Self::new(name, Kind::Text, "") }
    }
    const fn fixed(self) -> Self {
        Self { fixed: true, ..self }
    }
    const fn idle(self) -> Self {
        Self { idle: true, ..self }
    }
    const fn hidden(self) -> Self {
        Self { hidden: true, ..self }
    }
    const fn protected(self) -> Self {
        Self { protected: true, ..self }
    }
    const fn secret(self) -> Self {
        Self { secret: true, ..self }
    }
    const fn ours(self) -> Self {
        Self { ours: true, ..self }
    }

    /// All of them, sorted by name, aliases included.
    pub fn all() -> &'static [Self] {
        DIRECTIVES
    }

    /// The directive of a name in any letters; of an alias, the one it stands for.
    pub fn find(name: &str) -> Option<&'static Self> {
        let found = |name: &str| {
            DIRECTIVES.binary_search_by(|known| known.name.cmp(name)).ok().map(|idx| &DIRECTIVES[idx])
        };
        let directive = found(&name.to_ascii_lowercase())?;
        directive.alias_of.map_or(Some(directive), found)
    }

    /// Brings a value into its usual form.
    ///
    /// # Errors
    /// Redis's sentence on what it should be.
    pub fn parse(&self, text: &str) -> Result<String, String> {
        let value = value::parse(self.kind, text)?;
        match (self.name, value.as_str()) {
            ("shutdown-on-sigint" | "shutdown-on-sigterm", value) if value.starts_with("save nosave") => {
                Err("shutdown options SAVE and NOSAVE can't be used simultaneously".to_owned())
            }
            ("logfile" | "unixsocket", value)
                if value.chars().any(|letter| bytes::byte_of(letter).is_some()) =>
            {
                Err("argument must be valid UTF-8".to_owned())
            }
            ("dbfilename", "") => Err("dbfilename can't be empty".to_owned()),
            ("appendonly", "yes") => Err("this server writes no append-only file".to_owned()),
            ("bind", value) if value.split_ascii_whitespace().count() > BIND_MAX => {
                Err("Too many bind addresses specified.".to_owned())
            }
            // Valkey's shortest.
            ("watchdog-period", value) if matches!(value.parse(), Ok(1..200)) => Ok("200".to_owned()),
            ("cluster-enabled", "yes") => Err("this server takes no part in clusters".to_owned()),
            _ => Ok(value),
        }
    }

    fn idx(&self) -> usize {
        let place = DIRECTIVES.binary_search_by(|known| known.name.cmp(self.name));
        place.expect("directives come from the table")
    }
}

/// A value for each directive, in its usual form.
#[derive(Clone, PartialEq, Eq)]
pub struct Config {
    /// As in the table; those of aliases are not used.
    values: Vec<String>,
    /// What the start-up found in place of what was asked for: index, what was asked for, what was found.
    settled: Vec<(usize, String, String)>,
    /// The file that the server was started with, for CONFIG REWRITE.
    pub file: Option<String>,
    /// New names of commands, by their own (`rename-command`); an empty one forbids the command.
    pub renamed: Vec<(String, String)>,
}

/// What is not as by default; no passwords.
impl std::fmt::Debug for Config {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let default = Self::default();
        let mut map = f.debug_map();
        for directive in self.changed_since(&default) {
            let value = if directive.secret { "(redacted)" } else { self.value_of(directive) };
            map.entry(&directive.name, &value);
        }
        map.entry(&"file", &self.file).entry(&"renamed", &self.renamed).finish()
    }
}

impl Default for Config {
    fn default() -> Self {
        let values = DIRECTIVES.iter().map(|directive| directive.default.to_owned()).collect();
        Self { values, settled: Vec::new(), file: None, renamed: Vec::new() }
    }
}

impl Config {
    /// The value of a directive, which must exist.
    pub fn value(&self, name: &str) -> &str {
        let directive = Directive::find(name).expect("only directives of the table are asked for");
        self.value_of(directive)
    }

    /// The value of a directive.
    pub fn value_of(&self, directive: &Directive) -> &str {
        let of = directive.alias_of.and_then(Directive::find).unwrap_or(directive);
        &self.values[of.idx()]
    }

    /// Sets a directive to a value, which is checked.
    ///
    /// # Errors
    /// What is wrong with the value. `client-output-buffer-limit` changes the classes that the value names.
    pub fn set(&mut self, directive: &Directive, text: &str) -> Result<(), String> {
        let mut value = directive.parse(text)?;
        if directive.name == "client-output-buffer-limit" {
            value = special::with_output_limits(self.value_of(directive), &value);
        }
        self.values[directive.idx()] = value;
        Ok(())
    }

    /// Sets what the start-up found out, such as the number of shards. A file does not get to see it.
    pub fn settle(&mut self, name: &str, value: &str) {
        let directive = Directive::find(name).expect("only directives of the table are settled");
        let idx = directive.idx();
        let asked = std::mem::replace(&mut self.values[idx], value.to_owned());
        if asked != value {
            self.settled.push((idx, asked, value.to_owned()));
        }
    }

    /// The value as somebody has asked for it: what belongs into a file.
    pub fn asked_of(&self, directive: &Directive) -> &str {
        let value = self.value_of(directive);
        let settled = self.settled.iter().find(|(idx, _, found)| *idx == directive.idx() && found == value);
        settled.map_or(value, |(_, asked, _)| asked)
    }

    /// Looks whether the values go together.
    ///
    /// # Errors
    /// Which do not, in one sentence.
    pub fn check(&self) -> Result<(), String> {
        let (least, most) = (self.number("buffer-pool-min"), self.number("buffer-pool-max"));
        if least > most {
            return Err(format!(
                "buffer-pool-min is {least}, and buffer-pool-max is only {most}: raise the one or lower the other"
            ));
        }
        let port = self.number("port");
        if port != 0 && port == self.number("metrics-port") && self.shares_addresses() {
            return Err(format!("port and metrics-port are both {port}: choose another for one of them"));
        }
        Ok(())
    }

    /// Whether clients and readers of metrics come to one address.
    fn shares_addresses(&self) -> bool {
        let addresses = |name| {
            let words = self.value(name).split_ascii_whitespace();
            words.map(|word| word.strip_prefix('-').unwrap_or(word)).collect::<Vec<_>>()
        };
        let (clients, metrics) = (addresses("bind"), addresses("metrics-bind"));
        let any = |address: &&str| matches!(*address, "*" | "::*" | "0.0.0.0" | "::");
        metrics.iter().any(|address| clients.contains(address)) || clients.iter().chain(&metrics).any(any)
    }

    /// The directives whose values differ from those in `before`.
    pub fn changed_since<'a>(&'a self, before: &'a Self) -> impl Iterator<Item = &'static Directive> + 'a {
        let differ = move |directive: &&Directive| {
            directive.alias_of.is_none() && self.value_of(directive) != before.value_of(directive)
        };
        DIRECTIVES.iter().filter(differ)
    }

    /// Whether a directive with the values `yes`, `no` and `local` lets this client do what it is about.
    pub fn allows(&self, name: &str, client: &Client) -> bool {
        match self.value(name) {
            "yes" => true,
            "local" => client.peer.is_local(),
            _ => false,
        }
    }

    /// Whether a directive with the values `yes` and `no` has the former.
    pub fn is_on(&self, name: &str) -> bool {
        self.value(name) == "yes"
    }

    /// The number that a directive has; 0 where it is not one.
    pub fn number(&self, name: &str) -> i64 {
        self.value(name).parse().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_sorted_and_its_defaults_are_in_their_usual_form() {
        assert!(DIRECTIVES.is_sorted_by(|a, b| a.name < b.name));
        for directive in DIRECTIVES {
            if let Some(target) = directive.alias_of {
                assert!(Directive::find(target).is_some_and(|found| found.alias_of.is_none()), "{target}");
            } else if directive.name != "rdma-bind" {
                assert_eq!(
                    directive.parse(directive.default).as_deref(),
                    Ok(directive.default),
                    "{directive:?}"
                );
            }
        }
    }

    #[test]
    fn values_are_set_by_any_name() {
        let mut config = Config::default();
        let set =
            |config: &mut Config, name: &str, text: &str| config.set(Directive::find(name).unwrap(), text);
        set(&mut config, "SlowLog-Max-Len", "7").unwrap();
        assert_eq!(config.value("commandlog-slow-execution-max-len"), "7");
        set(&mut config, "proto-max-bulk-len", "3mb").unwrap();
        assert_eq!(config.number("proto-max-bulk-len"), 3 << 20);
        set(&mut config, "client-output-buffer-limit", "normal 1mb 0 0").unwrap();
        set(&mut config, "client-output-buffer-limit", "pubsub 1 2 3 replica 4 5 6").unwrap();
        assert_eq!(config.value("client-output-buffer-limit"), "normal 1048576 0 0 slave 4 5 6 pubsub 1 2 3");
        assert!(set(&mut config, "appendonly", "yes").is_err());
        assert!(Directive::find("no-such").is_none());
    }

    #[test]
    fn what_was_found_is_in_force_and_what_was_asked_for_is_kept() {
        let mut config = Config::default();
        let shards = Directive::find("shards").unwrap();
        config.settle("shards", "4");
        assert_eq!((config.value("shards"), config.asked_of(shards)), ("4", "0"));
        config.settle("maxclients", "100");
        let maxclients = Directive::find("maxclients").unwrap();
        config.set(maxclients, "50").unwrap();
        assert_eq!(config.asked_of(maxclients), "50");
        let changed: Vec<&str> =
            config.changed_since(&Config::default()).map(|directive| directive.name).collect();
        assert_eq!(changed, ["maxclients", "shards"]);
    }
}
