//! `corelane latency`: how late this machine wakes a thread, how long it keeps one from running, and how long a server takes
//! to answer.
//!
//! The first is what cyclictest measures, with its options and its lines; `--intrinsic` is what redis-cli calls the intrinsic
//! latency; `--server` sends PING after PING to any server that speaks RESP.

mod intrinsic;
mod picture;
mod report;
mod result;
mod round_trips;
pub(crate) mod system;
mod wakeups;

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;
use corelane_runtime::topology::{allowed_cpus, parse_list};

use crate::address::Address;
use crate::output::{show, show_line, writable};
use result::{Kind, Run};

/// The options that are about wake-ups only.
const WAKE_UPS: [&str; 5] = ["loops", "priority", "affinity", "mlockall", "histogram"];

/// Microseconds that a histogram may have, a line for each: those of a second, as with cyclictest.
const HISTOGRAM_MAX: i64 = 1_000_000;

/// Measures latency: of waking up, of running undisturbed, or of a server
#[derive(Debug, Parser)]
#[command(name = "corelane latency", disable_help_flag = true)]
struct Options {
    /// Microseconds between two wake-ups
    #[arg(short, long, value_name = "US", default_value = "1000", value_parser = clap::value_parser!(u64).range(1..=1_000_000_000))]
    interval: u64,
    /// How long, as 30, 500ms, 90s, 5m, 2h or 1d [default: until it is interrupted]
    #[arg(short = 'D', long, value_name = "TIME", value_parser = duration)]
    duration: Option<Duration>,
    /// Wake-ups of each thread, after which it ends
    #[arg(short, long, value_name = "COUNT")]
    loops: Option<u64>,
    /// Priority under SCHED_FIFO, 1 to 99; 0 for the usual scheduling
    #[arg(short, long, default_value = "0", value_parser = clap::value_parser!(i32).range(0..=99))]
    priority: i32,
    /// The CPUs, a thread on each, such as 0-3,8; all without a value [default: one thread that is not bound]
    #[arg(short, long, value_name = "CPUS", num_args = 0..=1, default_missing_value = "")]
    affinity: Option<String>,
    /// Lock all memory
    #[arg(short, long)]
    mlockall: bool,
    /// Print a histogram of so many microseconds at the end
    #[arg(short = 'h', long, value_name = "US", value_parser = clap::value_parser!(u32).range(..=HISTOGRAM_MAX))]
    histogram: Option<u32>,
    /// Print nothing while it runs
    #[arg(short, long)]
    quiet: bool,
    /// Print one JSON object at the end
    #[arg(long)]
    json: bool,
    /// Save the result, with a description of the machine
    #[arg(long, value_name = "FILE")]
    save: Option<PathBuf>,
    /// With --save: what the machine is called in reports [default: its host name]
    #[arg(long, value_name = "TEXT", requires = "save")]
    label: Option<String>,
    /// Draw the histogram
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
    /// Compare what several runs have saved, in a report in Markdown, or with --json as an object
    #[arg(long, value_name = "FILE", num_args = 1.., conflicts_with_all = WAKE_UPS, conflicts_with_all = ["interval", "duration", "quiet", "save", "svg", "intrinsic", "server"])]
    report: Vec<PathBuf>,
    /// Measure for so many seconds how long a thread that does not wait is kept from running
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..), conflicts_with_all = WAKE_UPS, conflicts_with_all = ["interval", "duration", "quiet", "server"])]
    intrinsic: Option<u64>,
    #[arg(
        help = "Measure the round trips of PING to a server: HOST[:PORT], redis://[[USER]:PASSWORD@]HOST[:PORT] or unix://PATH",
        long,
        value_name = "ADDRESS",
        conflicts_with_all = WAKE_UPS
    )]
    server: Option<String>,
    /// With --server: a line for every so many seconds
    #[arg(long, value_name = "SECONDS", num_args = 0..=1, default_missing_value = "15", value_parser = clap::value_parser!(u64).range(1..), requires = "server")]
    history: Option<u64>,
    /// With --server: a user's name, to go with the password
    #[arg(long, value_name = "NAME", requires = "pass")]
    user: Option<String>,
    /// With --server: its password
    #[arg(long, value_name = "PASSWORD", env = "REDISCLI_AUTH", hide_env_values = true)]
    pass: Option<String>,
    /// Print help
    #[arg(long, action = clap::ArgAction::Help)]
    help: Option<bool>,
}

/// `90`, `500ms`, `90s`, `5m`, `2h`, `1d`.
pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    let (digits, seconds) = match text.as_bytes().last() {
        Some(b's') if text.ends_with("ms") => (&text[..text.len() - 2], 0.001),
        Some(b's') => (&text[..text.len() - 1], 1.0),
        Some(b'm') => (&text[..text.len() - 1], 60.0),
        Some(b'h') => (&text[..text.len() - 1], 3600.0),
        Some(b'd') => (&text[..text.len() - 1], 86_400.0),
        _ => (text, 1.0),
    };
    let amount: f64 =
        digits.parse().map_err(|_| "not a time such as 30, 500ms, 90s, 5m, 2h or 1d".to_owned())?;
    Duration::try_from_secs_f64(amount * seconds)
        .ok()
        .filter(|time| !time.is_zero())
        .ok_or_else(|| "not a time such as 30, 500ms, 90s, 5m, 2h or 1d".to_owned())
}

/// Runs the tool on the arguments behind its name.
pub(crate) fn run(args: impl Iterator<Item = OsString>) -> ExitCode {
    let name = OsString::from("corelane latency");
    let options = match Options::try_parse_from(std::iter::once(name).chain(args)) {
        Ok(options) => options,
        Err(error) => {
            // A closed terminal leaves nobody to be told.
            let _ = error.print();
            return ExitCode::from(error.exit_code() as u8);
        }
    };
    match measure(&options) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("corelane latency: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn measure(options: &Options) -> anyhow::Result<()> {
    if !options.report.is_empty() {
        let results = report::load(&options.report)?;
        if options.json {
            show_line(report::json(&results)?);
        } else {
            show(report::markdown(&results));
        }
        return Ok(());
    }
    options.save.iter().chain(&options.svg).try_for_each(|file| writable(file))?;
    system::stop_on_signals();
    let mut run = if let Some(seconds) = options.intrinsic {
        intrinsic::run(Duration::from_secs(seconds), options.json)
    } else if let Some(server) = &options.server {
        round_trips(options, server)?
    } else {
        wake_ups(options)?
    };
    run.label.clone_from(&options.label);
    if let Some(file) = &options.save {
        report::save(&run, file)?;
    }
    if let Some(file) = &options.svg {
        let threads = run.threads.iter().map(|thread| (thread.label(), thread.counts.as_slice()));
        picture::draw(file, run.kind.title(), &threads.collect::<Vec<_>>())?;
    }
    if run.kind == Kind::WakeUps {
        if options.json {
            show_line(serde_json::to_string(&run)?);
        } else {
            show(report::text(&run, options.histogram));
        }
    }
    Ok(())
}

fn round_trips(options: &Options, server: &str) -> anyhow::Result<Run> {
    let address = Address::parse(server)?.or_user(options.user.as_deref()).or_password(options.pass.clone());
    round_trips::run(&round_trips::Request {
        server: &address,
        duration: options.duration,
        interval: Duration::from_micros(options.interval),
        history: options.history.map(Duration::from_secs),
        quiet: options.quiet,
        json: options.json,
    })
}

fn wake_ups(options: &Options) -> anyhow::Result<Run> {
    let cpus = match options.affinity.as_deref() {
        None => vec![None],
        Some("") => allowed_cpus()?.into_iter().map(Some).collect(),
        Some(list) => {
            let (cpus, allowed) = (parse_list(list)?, allowed_cpus()?);
            if let Some(cpu) = cpus.iter().find(|cpu| !allowed.contains(cpu)) {
                anyhow::bail!("this process may not use cpu {cpu}");
            }
            cpus.into_iter().map(Some).collect()
        }
    };
    wakeups::run(&wakeups::Request {
        interval: Duration::from_micros(options.interval),
        duration: options.duration,
        loops: options.loops,
        priority: options.priority,
        cpus,
        mlockall: options.mlockall,
        live: !options.quiet && !options.json,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_as_cyclictest_reads_them() {
        assert_eq!(duration("300s"), Ok(Duration::from_secs(300)));
        assert_eq!(duration("2m"), Ok(Duration::from_secs(120)));
        assert_eq!(duration("0.5"), Ok(Duration::from_millis(500)));
        assert_eq!(duration("500ms"), Ok(Duration::from_millis(500)));
        for bad in ["", "s", "x", "0", "-1", "1w", "ms"] {
            assert!(duration(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn the_command_line_is_that_of_cyclictest() {
        let words = "x -i 500 -D 10s -p 80 -a 0 -m -h 400 -q";
        let options = Options::try_parse_from(words.split(' ')).unwrap();
        assert_eq!((options.interval, options.priority, options.histogram), (500, 80, Some(400)));
        assert!(options.mlockall && options.quiet);
        assert!(Options::try_parse_from(["x", "-i", "0"]).is_err());
        assert!(Options::try_parse_from(["x", "-p", "100"]).is_err());
    }
}
