//! `corelane stat`: what a running server is doing: its configuration, counters, memory, shards and connections.

mod report;
mod text;

use std::ffi::OsString;
use std::io::{self, ErrorKind, IsTerminal};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result};
use clap::{Parser, ValueEnum};

use crate::output::{printed, show_line};
use crate::target::Target;
use report::Report;

/// Shows what a running server is doing
#[derive(Debug, Parser)]
#[command(name = "corelane stat", disable_help_flag = true)]
struct Options {
    #[command(flatten)]
    target: Target,
    /// What to show
    #[arg(short, long = "section", value_delimiter = ',', default_value = "cnt")]
    sections: Vec<Section>,
    /// Show it again every so many seconds, with counters per second
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    watch: Option<Duration>,
    /// Print JSON, an object per look
    #[arg(long)]
    json: bool,
    /// Print Markdown
    #[arg(long, conflicts_with = "json")]
    markdown: bool,
    /// Remove the Unix socket given by --unixsocket if its server is gone
    #[arg(short, long, requires = "unixsocket", conflicts_with_all = ["host", "pid", "watch", "json", "markdown"])]
    clear: bool,
    /// Print help
    #[arg(long, action = clap::ArgAction::Help)]
    help: Option<bool>,
}

/// A part of what can be shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Section {
    /// Everything
    All,
    /// The configuration in force
    Cfg,
    /// Counters
    Cnt,
    /// Memory by part
    Mem,
    /// Shards
    Shard,
    /// Connections
    Sock,
}

/// A number of seconds above 0, as `--watch` takes it.
pub(crate) fn seconds(text: &str) -> Result<Duration, String> {
    let seconds: Option<f64> = text.parse().ok();
    seconds
        .and_then(|seconds| Duration::try_from_secs_f64(seconds).ok())
        .filter(|time| !time.is_zero())
        .ok_or_else(|| "not a number of seconds above 0".to_owned())
}

/// Runs the tool on the arguments behind its name.
pub(crate) fn run(args: impl Iterator<Item = OsString>) -> ExitCode {
    let name = OsString::from("corelane stat");
    let options = match Options::try_parse_from(std::iter::once(name).chain(args)) {
        Ok(options) => options,
        Err(error) => {
            // A closed terminal leaves nobody to be told.
            let _ = error.print();
            return ExitCode::from(error.exit_code() as u8);
        }
    };
    match show(&options) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("corelane stat: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn show(options: &Options) -> Result<()> {
    if options.clear
        && let Some(path) = &options.target.unixsocket
    {
        return clear(path);
    }
    let mut client = options.target.connect()?;
    let wanted = |section| options.sections.iter().any(|one| *one == section || *one == Section::All);
    let mut before: Option<Report> = None;
    loop {
        let report = Report::take(&mut client, &wanted)?;
        let shown = if options.json {
            format!("{}\n", report.json(before.as_ref()))
        } else if options.markdown {
            text::markdown(report.name(), report.time(), &report.parts(before.as_ref()))
        } else {
            let clear =
                if options.watch.is_some() && io::stdout().is_terminal() { "\x1b[2J\x1b[H" } else { "" };
            let time = options.watch.map(|_| report.time());
            format!("{clear}{}", text::plain(report.name(), time, &report.parts(before.as_ref())))
        };
        if !printed(shown) {
            return Ok(());
        }
        let Some(pause) = options.watch else { return Ok(()) };
        before = Some(report);
        client.rest(pause)?;
    }
}

/// Removes a socket that nobody listens on.
fn clear(path: &PathBuf) -> Result<()> {
    use std::os::unix::fs::FileTypeExt;
    let meta = std::fs::symlink_metadata(path).with_context(|| format!("cannot see {}", path.display()))?;
    anyhow::ensure!(meta.file_type().is_socket(), "{} is no socket", path.display());
    match UnixStream::connect(path) {
        Err(error) if error.kind() == ErrorKind::ConnectionRefused => {}
        Err(error) => {
            return Err(error).with_context(|| format!("{} may be somebody's: it stays", path.display()));
        }
        Ok(_) => anyhow::bail!("{} belongs to a running server", path.display()),
    }
    std::fs::remove_file(path).with_context(|| format!("cannot remove {}", path.display()))?;
    show_line(format_args!("removed {}", path.display()));
    Ok(())
}
