//! `corelane doctor`: looks whether this machine can run the server, and what would make it run better; changes nothing.
//!
//! One line per check: `ok`, `warn` or `fail`, the name, what was found and what to do. It takes the server's directives, so
//! that it looks at what the server would do with them. The exit code is 1 if something failed, since then the server
//! would not start.

mod cpus;
mod machine;
mod network;

use std::ffi::OsString;
use std::fmt::Write;
use std::process::ExitCode;

use corelane_runtime::options::ServerOptions;
use corelane_runtime::system_files::SystemFiles;
use corelane_runtime::topology::{Layout, Machine, TopologyError, place};

use crate::output::{show, show_line};

/// The words of `corelane doctor --help`.
const HELP: &str = "\
Checks whether this machine can run the server, and says what to change

Usage: corelane doctor [--json] [directives of the server]

A line per check: ok, warn or fail, its name, and what to do. The exit code is 1 if a check failed.
Give the directives that the server will have, such as --port, --shards or --maxclients: it is their effect that is checked.

      --json  Print one JSON object instead of lines";

/// How it stands with one thing.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
enum Level {
    Ok,
    /// The server runs, but not as well as it could.
    Warn,
    /// The server does not start.
    Fail,
}

impl Level {
    fn name(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Warn => "warn",
            Self::Fail => "fail",
        }
    }
}

/// What a check found.
#[derive(PartialEq, Eq, Debug)]
struct Verdict {
    level: Level,
    text: String,
}

impl Verdict {
    fn ok(text: impl Into<String>) -> Self {
        Self { level: Level::Ok, text: text.into() }
    }

    fn warn(text: impl Into<String>) -> Self {
        Self { level: Level::Warn, text: text.into() }
    }

    fn fail(text: impl ToString) -> Self {
        Self { level: Level::Fail, text: text.to_string() }
    }
}

/// What is looked at.
struct Patient {
    files: SystemFiles,
    options: ServerOptions,
    machine: Result<Machine, TopologyError>,
    layout: Result<Layout, TopologyError>,
}

impl Patient {
    /// This machine with a server that has these options.
    fn here(options: ServerOptions) -> Self {
        Self::of(Machine::here(), options)
    }

    fn of(machine: Result<Machine, TopologyError>, options: ServerOptions) -> Self {
        let layout = machine
            .clone()
            .and_then(|machine| place(options.cpus.as_deref(), options.shards, options.placement, &machine));
        let files = machine.as_ref().map_or_else(|_| SystemFiles::real(), |machine| machine.files.clone());
        Self { files, options, machine, layout }
    }

    /// How many shards there would be.
    fn shards(&self) -> usize {
        self.layout.as_ref().map_or(1, |layout| layout.cpus.len())
    }

    /// The CPUs to which shards would be bound; none if they float.
    fn bound(&self) -> Vec<usize> {
        self.layout.iter().flat_map(|layout| layout.cpus.iter().copied().flatten()).collect()
    }
}

type Check = fn(&Patient) -> Verdict;

/// In the order in which they are printed: what the server cannot do without comes first.
const CHECKS: &[(&str, Check)] = &[
    ("kernel", machine::kernel),
    ("io-uring", machine::io_uring),
    ("memlock", machine::memlock),
    ("descriptors", machine::descriptors),
    ("overcommit", machine::overcommit),
    ("huge-pages", machine::huge_pages),
    ("clock", machine::clock),
    ("placement", cpus::placement),
    ("quota", cpus::quota),
    ("governor", cpus::governor),
    ("interrupts", cpus::interrupts),
    ("reuseport", network::reuseport),
    ("listen", network::listen),
    ("metrics", network::metrics),
    ("access", network::access),
    ("backlog", network::backlog),
    ("overflows", network::overflows),
];

/// What follows `doctor` on the command line: whether JSON is wanted, and the directives of the server. `None`: it asks for help.
pub(crate) fn arguments(words: impl Iterator<Item = OsString>) -> Option<(bool, Vec<OsString>)> {
    let words: Vec<OsString> = words.collect();
    if words.iter().any(|word| word == "--help" || word == "-h" || word == "help") {
        return None;
    }
    let json = words.iter().any(|word| word == "--json");
    Some((json, words.into_iter().filter(|word| word != "--json").collect()))
}

/// Prints how to use it.
pub(crate) fn help() -> ExitCode {
    show_line(HELP);
    ExitCode::SUCCESS
}

/// Checks everything and prints what was found.
pub(crate) fn run(options: ServerOptions, json: bool) -> ExitCode {
    let patient = Patient::here(options);
    let found: Vec<(&str, Verdict)> = CHECKS.iter().map(|(name, check)| (*name, check(&patient))).collect();
    let text = if json { as_json(&found) } else { as_lines(&found) };
    show(text);
    if count(&found, Level::Fail) > 0 { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

fn count(found: &[(&str, Verdict)], level: Level) -> usize {
    found.iter().filter(|(_, verdict)| verdict.level == level).count()
}

/// Writing to a `String` cannot fail.
fn as_lines(found: &[(&str, Verdict)]) -> String {
    let width = found.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
    let mut text = String::new();
    for (name, Verdict { level, text: what }) in found {
        let _ = writeln!(text, "{:<4}  {name:<width$}  {what}", level.name());
    }
    let plural = |count: usize, word: &str| format!("{count} {word}{}", if count == 1 { "" } else { "s" });
    let warnings = plural(count(found, Level::Warn), "warning");
    let _ = match count(found, Level::Fail) {
        0 => writeln!(text, "corelane can run here: {warnings}"),
        failures => writeln!(text, "corelane cannot run here: {}, {warnings}", plural(failures, "failure")),
    };
    text
}

/// One object: `can_run`, and `checks` with `name`, `level` and `text` each.
fn as_json(found: &[(&str, Verdict)]) -> String {
    let checks: Vec<String> = found
        .iter()
        .map(|(name, Verdict { level, text })| {
            format!(
                "{{\"name\":{},\"level\":{},\"text\":{}}}",
                quoted(name),
                quoted(level.name()),
                quoted(text)
            )
        })
        .collect();
    let can_run = count(found, Level::Fail) == 0;
    format!("{{\"can_run\":{can_run},\"checks\":[\n  {}\n]}}\n", checks.join(",\n  "))
}

/// A string of JSON (RFC 8259, section 7).
fn quoted(text: &str) -> String {
    let mut quoted = String::from('"');
    for character in text.chars() {
        match character {
            '"' | '\\' => quoted.extend(['\\', character]),
            control if u32::from(control) < 0x20 => {
                let _ = write!(quoted, "\\u{:04x}", u32::from(control));
            }
            other => quoted.push(other),
        }
    }
    quoted.push('"');
    quoted
}

#[cfg(test)]
pub(crate) mod testing {
    //! Machines made of files.

    use std::fs;
    use std::path::PathBuf;

    use super::*;

    /// A machine that is removed when dropped.
    pub(crate) struct Made {
        root: PathBuf,
    }

    impl Made {
        /// With these files; a test names its own with `label`.
        pub(crate) fn new(label: &str, files: &[(&str, &str)]) -> Self {
            let root = std::env::temp_dir().join(format!("corelane-doctor-{}-{label}", std::process::id()));
            let _ = fs::remove_dir_all(&root);
            for (path, text) in files {
                let path = root.join(path);
                fs::create_dir_all(path.parent().unwrap()).unwrap();
                fs::write(path, text).unwrap();
            }
            Self { root }
        }

        /// A server with these options on the CPUs 0 to `cpus` - 1 of it.
        pub(super) fn patient(&self, cpus: usize, options: ServerOptions) -> Patient {
            let files = SystemFiles::below(&self.root);
            let quota = corelane_runtime::topology::cpu_quota(&files);
            Patient::of(Ok(Machine { allowed: (0..cpus).collect(), quota, files }), options)
        }
    }

    impl Drop for Made {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.root);
        }
    }

    /// Runs a check on two CPUs with default options, and looks at its level and a part of its text.
    pub(super) fn check(label: &str, check: Check, files: &[(&str, &str)], level: Level, part: &str) {
        let made = Made::new(label, files);
        let verdict = check(&made.patient(2, ServerOptions::default()));
        assert_eq!(verdict.level, level, "{label}: {verdict:?}");
        assert!(verdict.text.contains(part), "{label}: {verdict:?}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found() -> Vec<(&'static str, Verdict)> {
        vec![
            ("kernel", Verdict::ok("6.1")),
            ("io-uring", Verdict::fail("say \"please\"\t\\")),
            ("clock", Verdict::warn("slow")),
        ]
    }

    #[test]
    fn a_line_per_check_and_one_about_all() {
        assert_eq!(
            as_lines(&found()),
            "ok    kernel    6.1\nfail  io-uring  say \"please\"\t\\\nwarn  clock     slow\n\
             corelane cannot run here: 1 failure, 1 warning\n"
        );
        assert!(as_lines(&found()[..1]).ends_with("corelane can run here: 0 warnings\n"));
    }

    #[test]
    fn json_is_one_object() {
        assert_eq!(
            as_json(&found()),
            "{\"can_run\":false,\"checks\":[\n  \
             {\"name\":\"kernel\",\"level\":\"ok\",\"text\":\"6.1\"},\n  \
             {\"name\":\"io-uring\",\"level\":\"fail\",\"text\":\"say \\\"please\\\"\\u0009\\\\\"},\n  \
             {\"name\":\"clock\",\"level\":\"warn\",\"text\":\"slow\"}\n]}\n"
        );
        assert!(as_json(&found()[..1]).starts_with("{\"can_run\":true,"));
    }

    #[test]
    fn arguments_of_its_own_are_told_from_those_of_the_server() {
        let words = |line: &str| {
            arguments(line.split_ascii_whitespace().map(OsString::from).collect::<Vec<_>>().into_iter())
        };
        assert_eq!(words("--port 1 --json"), Some((true, vec!["--port".into(), "1".into()])));
        assert_eq!(words(""), Some((false, vec![])));
        assert_eq!(words("--port 1 --help"), None);
    }

    #[test]
    fn names_are_unique_and_every_text_is_one_line() {
        let patient = Patient::here(ServerOptions { port: 0, ..ServerOptions::default() });
        for (idx, (name, check)) in CHECKS.iter().enumerate() {
            assert!(CHECKS[..idx].iter().all(|(other, _)| other != name), "{name}");
            let text = check(&patient).text;
            assert!(!text.is_empty() && !text.contains('\n') && !text.ends_with('.'), "{name}: {text:?}");
        }
    }
}
