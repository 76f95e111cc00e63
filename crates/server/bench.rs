//! `corelane bench`: loads a server that speaks RESP and measures how it answers, with the options, the tests and the output of
//! redis-benchmark.
//!
//! The load itself is the business of `corelane-load`; here are the command line, the list of tests and what is printed.

mod lenient;
mod mix;
mod options;
mod report;
mod suite;
mod target;

use std::ffi::OsString;
use std::io::{self, IsTerminal};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, ensure};
use clap::Parser;
use corelane_load::{LoadError, Plan, Progress};
use corelane_runtime::preflight;

use crate::latency::system::{STOPPED, stop_on_signals};
use crate::machine::Machine;
use crate::output::{fitted, printed, show, show_line, writable};
use options::Options;
use report::{Finished, Style};
use suite::Test;
use target::Target;

/// The exit code of a run that was interrupted.
const INTERRUPTED: u8 = 130;
/// Between two looks of the progress line.
const LOOK: Duration = Duration::from_millis(250);

/// Runs the tool on the arguments behind its name.
pub(crate) fn run(args: impl Iterator<Item = OsString>) -> ExitCode {
    let args: Vec<OsString> = args.collect();
    let name = OsString::from("corelane bench");
    let options = match Options::try_parse_from(std::iter::once(name).chain(args.iter().cloned())) {
        Ok(options) => options,
        Err(error) => {
            // A closed terminal leaves nobody to be told.
            let _ = error.print();
            return ExitCode::from(error.exit_code() as u8);
        }
    };
    let tests = match options.check().and_then(|()| suite::tests(&options)) {
        Ok(tests) => tests,
        Err(error) => {
            eprintln!("corelane bench: {error:#}");
            return ExitCode::from(crate::USAGE);
        }
    };
    match load(&options, &args, &tests) {
        Ok(()) if STOPPED.load(Ordering::Relaxed) => ExitCode::from(INTERRUPTED),
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("corelane bench: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn load(options: &Options, args: &[OsString], tests: &[Test]) -> Result<()> {
    let descriptors = options.clients + options.threads() as u32 + 16;
    let fitting = preflight::raise_descriptors(0, descriptors)?;
    ensure!(
        fitting.clients >= descriptors,
        "{} connections do not fit into the {} files that may be open: raise the limit (ulimit -n {})",
        options.clients,
        fitting.limit,
        descriptors + 64
    );
    if let Some(dir) = &options.hdr {
        prepare(dir, tests)?;
    }
    let target = Target::find(options)?;
    stop_on_signals();
    let style = options.style();
    let mut finished = Vec::new();
    if style == Style::Csv && !printed(format_args!("{}\n", report::CSV_HEAD)) {
        return Ok(());
    }
    loop {
        for test in tests {
            let plan = options.plan(&target, test)?;
            if options.idle {
                return idle(&plan);
            }
            let mut line = Line::new(test, style);
            let outcome = match corelane_load::run(&plan, &STOPPED, |progress| line.show(progress)) {
                Ok(outcome) => outcome,
                Err(LoadError::Stopped) if STOPPED.load(Ordering::Relaxed) => return Ok(()),
                Err(error) => {
                    line.clear();
                    if let LoadError::Ring(_) = error {
                        // Says what is missing, if it is one of the usual things.
                        preflight::check_io_uring()?;
                    }
                    return Err(anyhow!(error).context(format!("{} ({})", test.title, target.name)));
                }
            };
            line.clear();
            let one = Finished { test, outcome, options, host: &target.host };
            if !printed(one.show(style)) {
                return Ok(());
            }
            if style == Style::Csv {
                eprint!("{}", one.notes());
            }
            if let Some(dir) = &options.hdr {
                let file = histogram_file(dir, &test.title);
                std::fs::write(&file, report::hgrm(&one.outcome.latencies))
                    .with_context(|| format!("cannot write {}", file.display()))?;
            }
            finished.push(one.json());
            if STOPPED.load(Ordering::Relaxed) {
                break;
            }
        }
        if !options.forever || STOPPED.load(Ordering::Relaxed) {
            break;
        }
    }
    match style {
        Style::Json => {
            show_line(report::json(&shown(args, options), &target.name, &Machine::here(), &finished)?)
        }
        Style::Full | Style::Quiet if options.command.is_empty() => show_line(""),
        _ => {}
    }
    Ok(())
}

/// The command line as it may be kept: without the password.
fn shown(args: &[OsString], options: &Options) -> Vec<String> {
    const HIDDEN: &str = "(redacted)";
    let mut before = String::new();
    let word_of = |word: &OsString| {
        let word = word.to_string_lossy().into_owned();
        let follows =
            before == "--pass" || (before.ends_with('a') && before.strip_prefix('-').is_some_and(is_letters));
        before.clone_from(&word);
        let password = options.password.as_deref().unwrap_or_default();
        match word.strip_suffix(password) {
            Some("") if follows => HIDDEN.to_owned(),
            Some(flag @ "--pass=") if !password.is_empty() => format!("{flag}{HIDDEN}"),
            _ => match (options.uri.as_deref(), word.rsplit_once('@')) {
                (Some(uri), Some((head, place))) if word.ends_with(uri) => {
                    let scheme = head.find("://").map_or(0, |at| at + 3);
                    format!("{}{HIDDEN}@{place}", &head[..scheme])
                }
                _ => word,
            },
        }
    };
    args.iter().map(word_of).collect()
}

fn is_letters(flags: &str) -> bool {
    flags.bytes().all(|flag| flag.is_ascii_alphanumeric())
}

/// Makes the directory of the histograms, and looks whether they can be written.
fn prepare(dir: &Path, tests: &[Test]) -> Result<()> {
    std::fs::create_dir_all(dir).with_context(|| format!("cannot make {}", dir.display()))?;
    tests.iter().try_for_each(|test| writable(&histogram_file(dir, &test.title)))
}

/// The file for the histogram of a test.
fn histogram_file(dir: &Path, title: &str) -> PathBuf {
    let plain = |letter: char| if letter.is_ascii_alphanumeric() { letter } else { '_' };
    let name: String = title.chars().take(64).map(plain).collect();
    dir.join(name.trim_matches('_')).with_extension("hgrm")
}

/// Opens connections and leaves them alone.
fn idle(plan: &Plan) -> Result<()> {
    let mut said = false;
    let result = corelane_load::run(plan, &STOPPED, |progress| {
        if !said && progress.ready == plan.clients {
            said = true;
            show_line(format_args!("{} idle connections are open; Ctrl-C ends it", progress.ready));
        }
    });
    match result {
        Ok(_) | Err(LoadError::Stopped) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// The line that shows how far a test is, on a terminal.
struct Line<'a> {
    title: &'a str,
    live: bool,
    len: usize,
    at: Instant,
    before: Progress,
}

impl<'a> Line<'a> {
    fn new(test: &'a Test, style: Style) -> Self {
        let live = io::stdout().is_terminal() && matches!(style, Style::Full | Style::Quiet);
        Self { title: &test.title, live, len: 0, at: Instant::now(), before: Progress::default() }
    }

    fn show(&mut self, progress: Progress) {
        if !self.live || self.at.elapsed() < LOOK {
            return;
        }
        let mean = |requests: u64, seconds: f64| {
            if requests == 0 { 0.0 } else { seconds * 1000.0 / requests as f64 }
        };
        let text = if progress.requests == 0 {
            format!("{}: {} connections", self.title, progress.ready)
        } else {
            let Progress { requests, latency_s, seconds, .. } = self.before;
            let (new, span) = (progress.requests - requests, (progress.seconds - seconds).max(1e-9));
            format!(
                "{}: rps={:.1} (overall: {:.1}) avg_msec={:.3} (overall: {:.3})",
                self.title,
                new as f64 / span,
                progress.requests as f64 / progress.seconds.max(1e-9),
                mean(new, progress.latency_s - latency_s),
                mean(progress.requests, progress.latency_s)
            )
        };
        let text = fitted(&text);
        show(format_args!("\r{text:<width$}", width = self.len));
        (self.len, self.before, self.at) = (text.chars().count(), progress, Instant::now());
    }

    fn clear(&mut self) {
        if self.len > 0 {
            show(format_args!("\r{:width$}\r", "", width = self.len));
            self.len = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_line_is_kept_without_its_password() {
        for (line, kept) in [
            ("-p 1 -a set -t set", "-p 1 -a (redacted) -t set"),
            ("-qa pw -t get", "-qa (redacted) -t get"),
            ("--pass pw", "--pass (redacted)"),
            ("--pass=pw", "--pass=(redacted)"),
            ("-u redis://me:p@w@h:1/2 -q", "-u redis://(redacted)@h:1/2 -q"),
            ("--uri=redis://h:1", "--uri=redis://h:1"),
            ("set a b@c", "set a b@c"),
        ] {
            let args: Vec<OsString> = line.split(' ').map(OsString::from).collect();
            let words = std::iter::once(OsString::from("x")).chain(args.iter().cloned());
            let options = Options::try_parse_from(words).unwrap();
            assert_eq!(shown(&args, &options).join(" "), kept);
        }
    }
}
