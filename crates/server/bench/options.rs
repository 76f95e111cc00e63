//! The command line of `corelane bench`: redis-benchmark's, and what it lacks.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Result, bail, ensure};
use clap::Parser;
use corelane_load::{Credentials, Errors, Keys, Patience, Plan, Sizes, Work};
use corelane_runtime::topology::{allowed_cpus, parse_list};

use super::lenient;
use super::mix;
use super::report::Style;
use super::suite::Test;
use super::target::Target;
use crate::flags::VERSION;
use crate::latency::duration;

/// Requests of a test, unless something else is asked for.
const REQUESTS: u64 = 100_000;
/// How long a server may say nothing while it owes replies: longer than anything takes that is worth being repeated.
const SILENCE_MAX: Duration = Duration::from_secs(10);
/// The same once a test's duration is over.
const SILENCE_END_MAX: Duration = Duration::from_secs(3);

/// Loads a server that speaks RESP and measures how it answers
#[derive(Debug, Parser)]
#[command(
    name = "corelane bench",
    version = VERSION,
    args_override_self = true,
    disable_help_flag = true,
    disable_version_flag = true
)]
pub(super) struct Options {
    /// The server's host
    #[arg(short = 'h', long, value_name = "HOST", default_value = "127.0.0.1")]
    pub(super) host: String,
    /// The server's port
    #[arg(short, long, default_value = "6379")]
    pub(super) port: u16,
    /// The server's Unix socket, instead of host and port
    #[arg(short, long, value_name = "PATH")]
    pub(super) socket: Option<PathBuf>,
    /// A password
    #[arg(
        short = 'a',
        long = "pass",
        value_name = "PASSWORD",
        env = "REDISCLI_AUTH",
        hide_env_values = true
    )]
    pub(super) password: Option<String>,
    /// A user's name, to go with the password; without one it is not used
    #[arg(long, value_name = "NAME")]
    pub(super) user: Option<String>,
    #[arg(
        help = "The server and all of that: redis://[NAME:PASSWORD@]HOST[:PORT][/DB]",
        short,
        long,
        conflicts_with_all = ["socket"]
    )]
    pub(super) uri: Option<String>,
    /// Connections
    #[arg(short, long, default_value = "50", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub(super) clients: u32,
    /// Requests of each test [default: 100000]
    #[arg(short = 'n', long, value_parser = clap::value_parser!(u64).range(1..))]
    pub(super) requests: Option<u64>,
    /// Bytes of a value
    #[arg(short, long, value_name = "BYTES", default_value = "3", allow_hyphen_values = true, value_parser = lenient::data_size)]
    pub(super) data_size: u32,
    /// The database
    #[arg(long, value_name = "DB", default_value = "0")]
    pub(super) dbnum: u32,
    /// Speak RESP3
    #[arg(short = '3')]
    pub(super) resp3: bool,
    /// Threads that send; 0 is one, too [default: 1]
    #[arg(long, allow_hyphen_values = true, value_parser = lenient::threads)]
    pub(super) threads: Option<u32>,
    /// 1: keep connections; 0: a new one for each request
    #[arg(short, long, value_name = "BOOL", default_value = "1", allow_hyphen_values = true, value_parser = lenient::keep_alive)]
    pub(super) keep_alive: u8,
    /// Random keys, members and scores below this number
    #[arg(short, long, value_name = "RANGE", allow_hyphen_values = true, value_parser = lenient::range)]
    pub(super) range: Option<u64>,
    /// Requests that a connection sends at once
    #[arg(short = 'P', long, value_name = "REQUESTS", default_value = "1", allow_hyphen_values = true, value_parser = lenient::pipeline)]
    pub(super) pipeline: u32,
    /// One line for each test
    #[arg(short, long)]
    pub(super) quiet: bool,
    /// Significant digits of latencies, 1 to 5
    #[arg(long, value_name = "DIGITS", default_value = "3", allow_hyphen_values = true, value_parser = lenient::precision)]
    pub(super) precision: u8,
    /// Lines of comma-separated values, also with -q
    #[arg(long)]
    pub(super) csv: bool,
    /// One JSON object at the end
    #[arg(long, conflicts_with_all = ["csv", "forever"])]
    pub(super) json: bool,
    /// Run the tests again and again
    #[arg(short = 'l', long = "loop")]
    pub(super) forever: bool,
    /// Only these tests, separated by commas; a command goes before them
    #[arg(short, long)]
    pub(super) tests: Option<String>,
    /// Go on after error replies, and count them
    #[arg(short = 'e', long = "count-errors")]
    pub(super) count_errors: bool,
    /// Open the connections and leave them idle
    #[arg(short = 'I', long)]
    pub(super) idle: bool,
    /// Read the last argument of the command from stdin
    #[arg(short = 'x', requires = "command")]
    pub(super) stdin: bool,
    /// Requests per second, sent at fixed intervals whether or not the server keeps up; latencies begin when a request is due
    #[arg(long, value_name = "RATE", value_parser = mix::rate, conflicts_with = "idle")]
    pub(super) rate: Option<f64>,
    /// Run each test for so long, as 30, 90s, 5m or 2h; with -n, at most
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub(super) duration: Option<Duration>,
    /// Run so long before anything counts
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub(super) warmup: Option<Duration>,
    /// End when the server has owed replies and said nothing for so long, as 30 or 5m; 0: never [default: 10, at the end of --duration 3]
    #[arg(long, value_name = "TIME", value_parser = mix::timeout)]
    pub(super) timeout: Option<Duration>,
    /// How random keys are chosen: uniform, zipf or zipf:EXPONENT, gaussian or gaussian:MEAN,DEVIATION (parts of the range), sequential
    #[arg(long, default_value = "uniform", value_parser = mix::keys)]
    pub(super) keys: Keys,
    /// Sizes of values instead of -d: FROM-TO, SIZE:WEIGHT,… or gaussian:MEAN,DEVIATION
    #[arg(long, value_parser = mix::sizes, conflicts_with = "data_size")]
    pub(super) sizes: Option<Sizes>,
    /// GETs and SETs mixed in this ratio, such as 9:1, instead of the tests
    #[arg(long, value_name = "READS:WRITES", value_parser = mix::ratio, conflicts_with_all = ["tests", "command", "commands"])]
    pub(super) ratio: Option<(u32, u32)>,
    /// Commands from a file instead of the tests, each line a weight and a command
    #[arg(long, value_name = "FILE", conflicts_with_all = ["tests", "command"])]
    pub(super) commands: Option<PathBuf>,
    /// Bind the threads to these CPUs, such as 0-3,8
    #[arg(long, value_name = "CPUS")]
    cpus: Option<String>,
    /// Write a histogram of each test there, as HdrHistogram's plotter reads it
    #[arg(long, value_name = "DIR")]
    pub(super) hdr: Option<PathBuf>,
    /// Of the random numbers [default: a different one each time]
    #[arg(long)]
    pub(super) seed: Option<u64>,
    /// Print version
    #[arg(short = 'v', long, action = clap::ArgAction::Version)]
    version: Option<bool>,
    /// Print help
    #[arg(long, action = clap::ArgAction::Help)]
    help: Option<bool>,
    /// A command to be sent instead of the tests; __rand_int__, __rand_key__ and __data__ in it are replaced
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    pub(super) command: Vec<String>,
}

impl Options {
    /// What the parser does not know.
    ///
    /// # Errors
    /// Options that make no sense together.
    pub(super) fn check(&self) -> Result<()> {
        if let Some(word) = self.command.first().filter(|word| word.starts_with('-')) {
            bail!("there is no option {word}: see corelane bench --help");
        }
        ensure!(self.range.is_some() || self.keys == Keys::Uniform, "--keys needs a range (-r)");
        if let Some(list) = &self.cpus {
            let (cpus, allowed) = (parse_list(list)?, allowed_cpus()?);
            if let Some(cpu) = cpus.iter().find(|cpu| !allowed.contains(cpu)) {
                bail!("this process may not use cpu {cpu}");
            }
        }
        Ok(())
    }

    pub(super) fn style(&self) -> Style {
        match (self.json, self.csv, self.quiet) {
            (true, _, _) => Style::Json,
            (_, true, _) => Style::Csv,
            (_, _, true) => Style::Quiet,
            _ => Style::Full,
        }
    }

    /// Threads there will be: none without a connection.
    pub(super) fn threads(&self) -> usize {
        self.threads.unwrap_or(1).clamp(1, self.clients) as usize
    }

    /// The sizes of values.
    pub(super) fn value_sizes(&self) -> Sizes {
        self.sizes.clone().unwrap_or(Sizes::Fixed(self.data_size as usize))
    }

    fn patience(&self) -> Patience {
        match self.timeout {
            None => Patience { running: Some(SILENCE_MAX), ending: Some(SILENCE_END_MAX) },
            Some(Duration::ZERO) => Patience::default(),
            Some(limit) => Patience { running: Some(limit), ending: Some(limit) },
        }
    }

    /// The load of a test.
    ///
    /// # Errors
    /// The server's address cannot be used.
    pub(super) fn plan(&self, target: &Target, test: &Test) -> Result<Plan> {
        Ok(Plan {
            peer: target.peer.clone(),
            credentials: Credentials {
                user: target.user.clone(),
                password: target.password.clone(),
                resp3: self.resp3,
                db: target.db,
            },
            clients: self.clients as usize,
            pipeline: self.pipeline as usize,
            threads: self.threads(),
            cpus: self.cpus.as_deref().map(parse_list).transpose()?.unwrap_or_default(),
            templates: test.templates.clone(),
            keys: self.keys,
            key_range: self.range,
            sizes: self.value_sizes(),
            keep_alive: self.keep_alive == 1,
            work: Work {
                requests: self.requests.or(if self.duration.is_some() { None } else { Some(REQUESTS) }),
                duration: self.duration,
                warmup: self.warmup.unwrap_or_default(),
                rate: self.rate,
            },
            patience: self.patience(),
            errors: if self.count_errors { Errors::Count } else { Errors::End },
            seed: self.seed.unwrap_or_else(random_seed),
            digits: self.precision,
            idle: self.idle,
        })
    }
}

/// Something else each time.
fn random_seed() -> u64 {
    use std::hash::{BuildHasher, Hasher, RandomState};
    RandomState::new().build_hasher().finish()
}
