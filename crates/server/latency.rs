//! `corelane latency`: how late this machine wakes a thread, how long it keeps one from running, and how long a server takes
//! to answer.
//!
//! The first is what cyclictest measures, with its options and its lines; `--intrinsic` is what redis-cli calls the intrinsic
//! latency; `--server` sends PING after PING to any server that speaks RESP.

mod intrinsic;
mod picture;
mod report;
mod round_trips;
pub(crate) mod system;
mod wakeups;

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;
use corelane_runtime::topology::{allowed_cpus, parse_list};

use crate::output::{show, show_line, writable};

/// The options that are about wake-ups only.
const WAKE_UPS: [&str; 6] = ["loops", "priority", "affinity", "mlockall", "histogram", "save"];

/// Measures latency: of waking up, of running undisturbed, or of a server
#[derive(Debug, Parser)]
#[command(name = "corelane latency", disable_help_flag = true)]
struct Options {
    /// Microseconds between two wake-ups
    #[arg(short, long, value_name = "US", default_value = "1000", value_parser = clap::value_parser!(u64).range(1..=1_000_000_000))]
    interval: u64,
    /// How long, as 30, 90s, 5m, 2h or 1d [default: until it is interrupted]
    #[arg(short = 'D', long, value_name = "TIME", value_parser = duration)]
    duration: Option<Duration>,
    /// Wake-ups of each thread, after which it ends
    #[arg(short, long, value_name = "COUNT")]
    loops: Option<u64>,
    /// Priority under SCHED_FIFO, 1 to 99; 0 for the usual scheduling
    #[arg(short, long, default_value = "0", value_parser = clap::value_parser!(i32).range(0..=99))]
    priority: i32,
    /// The CPUs, a thread on each, such as 0-3,8 [default: one thread that is not bound]
    #[arg(short, long, value_name = "CPUS")]
    affinity: Option<String>,
    /// Lock all memory
    #[arg(short, long)]
    mlockall: bool,
    /// Print a histogram of so many microseconds at the end
    #[arg(short = 'h', long, value_name = "US")]
    histogram: Option<usize>,
    /// Print nothing while it runs
    #[arg(short, long)]
    quiet: bool,
    /// Print one JSON object at the end
    #[arg(long)]
    json: bool,
    /// Save the result, with a description of the machine
    #[arg(long, value_name = "FILE")]
    save: Option<PathBuf>,
    /// Draw the histogram
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
    /// Compare what several runs have saved, in a table of Markdown
    #[arg(long, value_name = "FILE", num_args = 1.., conflicts_with_all = WAKE_UPS, conflicts_with_all = ["interval", "duration", "quiet", "json", "svg", "intrinsic", "server"])]
    report: Vec<PathBuf>,
    /// Measure for so many seconds how long a thread that does not wait is kept from running
    #[arg(long, value_name = "SECONDS", conflicts_with_all = WAKE_UPS, conflicts_with_all = ["interval", "duration", "quiet", "svg", "server"])]
    intrinsic: Option<u64>,
    /// Measure the round trips of PING to a server
    #[arg(long, value_name = "HOST:PORT", conflicts_with_all = WAKE_UPS)]
    server: Option<String>,
    /// With --server: a line for every so many seconds
    #[arg(long, value_name = "SECONDS", num_args = 0..=1, default_missing_value = "15", requires = "server")]
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

/// `90`, `90s`, `5m`, `2h`, `1d`.
pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    let (digits, seconds) = match text.as_bytes().last() {
        Some(b's') => (&text[..text.len() - 1], 1),
        Some(b'm') => (&text[..text.len() - 1], 60),
        Some(b'h') => (&text[..text.len() - 1], 3600),
        Some(b'd') => (&text[..text.len() - 1], 86_400),
        _ => (text, 1),
    };
    let amount: f64 = digits.parse().map_err(|_| "not a time such as 30, 90s, 5m, 2h or 1d".to_owned())?;
    Duration::try_from_secs_f64(amount * f64::from(seconds))
        .ok()
        .filter(|time| !time.is_zero())
        .ok_or_else(|| "not a time such as 30, 90s, 5m, 2h or 1d".to_owned())
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
        show(report::compare(&options.report)?);
        return Ok(());
    }
    options.save.iter().chain(&options.svg).try_for_each(|file| writable(file))?;
    system::stop_on_signals();
    if let Some(seconds) = options.intrinsic {
        return intrinsic::run(Duration::from_secs(seconds), options.json);
    }
    if let Some(server) = &options.server {
        return round_trips::run(&round_trips::Request {
            server,
            user: options.user.as_deref(),
            password: options.pass.as_deref(),
            duration: options.duration,
            interval: Duration::from_micros(options.interval),
            history: options.history.map(Duration::from_secs),
            quiet: options.quiet,
            json: options.json,
            svg: options.svg.as_deref(),
        });
    }
    let cpus = match &options.affinity {
        None => vec![None],
        Some(list) => {
            let (cpus, allowed) = (parse_list(list)?, allowed_cpus()?);
            if let Some(cpu) = cpus.iter().find(|cpu| !allowed.contains(cpu)) {
                anyhow::bail!("this process may not use cpu {cpu}");
            }
            cpus.into_iter().map(Some).collect()
        }
    };
    let run = wakeups::run(&wakeups::Request {
        interval: Duration::from_micros(options.interval),
        duration: options.duration,
        loops: options.loops,
        priority: options.priority,
        cpus,
        mlockall: options.mlockall,
        live: !options.quiet && !options.json,
    })?;
    if let Some(file) = &options.save {
        report::save(&run, file)?;
    }
    if let Some(file) = &options.svg {
        let threads = run.threads.iter().map(|thread| (thread.label(), thread.counts.as_slice()));
        picture::draw(file, "How late threads woke up", &threads.collect::<Vec<_>>())?;
    }
    if options.json {
        show_line(serde_json::to_string(&run)?);
    } else {
        show(report::text(&run, options.histogram));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_as_cyclictest_reads_them() {
        assert_eq!(duration("300s"), Ok(Duration::from_secs(300)));
        assert_eq!(duration("2m"), Ok(Duration::from_secs(120)));
        assert_eq!(duration("0.5"), Ok(Duration::from_millis(500)));
        for bad in ["", "s", "x", "0", "-1", "1w"] {
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
