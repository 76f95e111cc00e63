//! The command line of the comparison.

use std::path::PathBuf;

use clap::Parser;

use crate::load::Generator;
use crate::workload::Kind;

/// Compares corelane with redis-server, valkey-server and memcached on this machine.
#[derive(Debug, Parser)]
#[command(name = "compare")]
pub(crate) struct Options {
    /// Names of the workloads to run, separated by commas (default: all; see --list)
    #[arg(long, value_delimiter = ',', value_name = "NAME,...")]
    only: Vec<String>,
    /// Names of workloads to leave out
    #[arg(long, value_delimiter = ',', value_name = "NAME,...")]
    pub(crate) skip: Vec<String>,
    /// Same as --only memory
    #[arg(long)]
    memory: bool,
    /// Print the workloads and exit
    #[arg(long)]
    pub(crate) list: bool,
    /// The corelane binary to measure (a redis-server or valkey-server is driven in its own dialect)
    #[arg(long, value_name = "PATH", default_value = env!("CARGO_BIN_EXE_corelane"))]
    pub(crate) ours: PathBuf,
    /// Additional arguments for our server, separated by spaces
    #[arg(long, value_name = "ARGS", default_value = "", allow_hyphen_values = true)]
    pub(crate) ours_args: String,
    /// Which peers to start, where present
    #[arg(long, value_delimiter = ',', value_name = "NAME,...", default_value = "redis,valkey,memcached")]
    pub(crate) peers: Vec<String>,
    /// What makes the load
    #[arg(long, value_enum, value_name = "NAME", default_value = "corelane")]
    pub(crate) client: Generator,
    /// Requests of one run, in place of each workload's own number
    #[arg(long, value_name = "N")]
    pub(crate) requests: Option<u64>,
    /// Runs of each server, alternating; memory, which does not vary, is measured once
    #[arg(long, value_name = "N", default_value_t = 3)]
    repeat: usize,
    /// Keys of the growth and memory workloads, in place of 20 000 000 and 2 000 000
    #[arg(long, value_name = "N")]
    pub(crate) keys: Option<u64>,
    /// Each workload once with tiny input, judging nothing: proves that the bench itself works
    #[arg(long)]
    pub(crate) tiny: bool,
    /// Print the figures as JSON in place of tables
    #[arg(long)]
    pub(crate) json: bool,
    /// Exit 1 when a bound is missed
    #[arg(long)]
    pub(crate) check: bool,
    /// Where CSV, Markdown and SVG go (default: benches/runs/<date>-<machine>)
    #[arg(long, value_name = "DIR")]
    pub(crate) out: Option<PathBuf>,
    /// Passed by `cargo bench`
    #[arg(long, hide = true)]
    bench: bool,
}

impl Options {
    /// Names of the workloads asked for; empty means all.
    pub(crate) fn names(&self) -> Vec<&str> {
        let mut names: Vec<&str> = self.only.iter().map(String::as_str).collect();
        if self.memory {
            names.push("memory");
        }
        names
    }

    /// How often each server is measured.
    pub(crate) fn runs(&self, kind: Kind) -> usize {
        let once = self.tiny || matches!(kind, Kind::Memory(_) | Kind::Collections(..));
        if once { 1 } else { self.repeat.max(1) }
    }

    /// `full`, or `tiny` when this run only proves that the bench works.
    pub(crate) fn scaled<T>(&self, full: T, tiny: T) -> T {
        if self.tiny { tiny } else { full }
    }
}
