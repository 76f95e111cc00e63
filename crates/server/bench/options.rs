//! The command line of `corelane bench`: redis-benchmark's, and what it lacks.

use std::path::PathBuf;

use anyhow::{Result, bail, ensure};
use clap::Parser;
use corelane_load::{Credentials, Errors, Keys, Plan, Sizes, Work};

use super::report::Style;
use super::suite::Test;
use super::target::Target;

/// Loads a server that speaks RESP and measures how it answers
#[derive(Debug, Parser)]
#[command(name = "corelane bench", disable_help_flag = true, disable_version_flag = true)]
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
    /// A user's name, to go with the password
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
    #[arg(short, long, value_name = "BYTES", default_value = "3", value_parser = clap::value_parser!(u32).range(1..=1 << 30))]
    pub(super) data_size: u32,
    /// The database
    #[arg(long, value_name = "DB", default_value = "0")]
    pub(super) dbnum: u32,
    /// Speak RESP3
    #[arg(short = '3')]
    pub(super) resp3: bool,
    /// Threads that send [default: 1]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub(super) threads: Option<u32>,
    /// 1: keep connections; 0: a new one for each request
    #[arg(short, long, value_name = "BOOL", default_value = "1", value_parser = clap::value_parser!(u8).range(0..=1))]
    pub(super) keep_alive: u8,
    /// Random keys, members and scores below this number
    #[arg(short, long, value_name = "RANGE", value_parser = clap::value_parser!(u64).range(1..=1_000_000_000_000))]
    pub(super) range: Option<u64>,
    /// Requests that a connection sends at once
    #[arg(short = 'P', long, value_name = "REQUESTS", default_value = "1", value_parser = clap::value_parser!(u32).range(1..=1 << 20))]
    pub(super) pipeline: u32,
    /// One line for each test
    #[arg(short, long)]
    pub(super) quiet: bool,
    /// Significant digits of latencies
    #[arg(long, value_name = "DIGITS", default_value = "3", value_parser = clap::value_parser!(u8).range(1..=5))]
    pub(super) precision: u8,
    /// Lines of comma-separated values
    #[arg(long, conflicts_with = "quiet")]
    pub(super) csv: bool,
    /// One JSON object at the end
    #[arg(long, conflicts_with_all = ["quiet", "csv", "forever"])]
    pub(super) json: bool,
    /// Run the tests again and again
    #[arg(short = 'l', long = "loop")]
    pub(super) forever: bool,
    /// Only these tests, separated by commas
    #[arg(short, long, value_delimiter = ',', conflicts_with = "command")]
    pub(super) tests: Vec<String>,
    /// Go on after error replies, and count them
    #[arg(short = 'e', long = "count-errors")]
    pub(super) count_errors: bool,
    /// Open the connections and leave them idle
    #[arg(short = 'I', long)]
    pub(super) idle: bool,
    /// Read the last argument of the command from stdin
    #[arg(short = 'x', requires = "command")]
    pub(super) stdin: bool,
    /// Of the random numbers [default: a different one each time]
    #[arg(long)]
    pub(super) seed: Option<u64>,
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
        ensure!(self.user.is_none() || self.password.is_some(), "--user needs a password (-a)");
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
        self.threads.unwrap_or(1).min(self.clients) as usize
    }

    /// The sizes of values.
    pub(super) fn sizes(&self) -> Sizes {
        Sizes::Fixed(self.data_size as usize)
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
            cpus: Vec::new(),
            templates: test.templates.clone(),
            keys: Keys::Uniform,
            key_range: self.range,
            sizes: self.sizes(),
            keep_alive: self.keep_alive == 1,
            work: Work { requests: Some(self.requests.unwrap_or(100_000)), ..Work::default() },
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
