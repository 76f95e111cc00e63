//! The command line: directives by the names of redis.conf, each once, with what `--help` says about it.
//!
//! As in Redis a directive takes all words up to the next one (`--bind 127.0.0.1 ::1`).

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Parser, ValueEnum};
use corelane_runtime::listen::Accept;
use corelane_runtime::options::{ServerOptions, parse_bytes, parse_mode, parse_output_limit};
use corelane_runtime::topology::Placement;

use crate::observation_flags::ObservationFlags;

/// Smallest limit for strings and for input: as in Redis, 1 MiB.
const LIMIT_MIN_BYTES: usize = 1 << 20;

/// A Redis-compatible, shared-nothing, thread-per-core cache server.
#[derive(Parser, Debug)]
#[command(name = "corelane", version)]
pub(crate) struct Flags {
    /// TCP port; 0 for none
    #[arg(long, default_value_t = 6379)]
    port: u16,
    /// Addresses to listen on; * and ::* for all; with a leading - an address may be missing [default: 127.0.0.1 -::1]
    #[arg(long, value_name = "ADDRESS ...", allow_hyphen_values = true)]
    bind: Option<String>,
    /// Also listen on this Unix socket
    #[arg(long, value_name = "PATH")]
    unixsocket: Option<PathBuf>,
    /// Permissions of the Unix socket, octal
    #[arg(long, value_name = "MODE", value_parser = parse_mode)]
    unixsocketperm: Option<u32>,
    /// Number of shards, each with a thread of its own [default: one per core, no more than the cgroup's CPU quota]
    #[arg(long, value_name = "N")]
    shards: Option<usize>,
    /// CPUs for the shards, such as 0-3,8 [default: all that this process may use]
    #[arg(long, value_name = "LIST")]
    cpus: Option<String>,
    /// How shards are spread over the CPUs
    #[arg(long, value_enum, default_value_t = PlacementFlag::Physical)]
    placement: PlacementFlag,
    /// Which shards accept connections
    #[arg(long, value_enum, default_value_t = AcceptFlag::Reuseport)]
    accept: AcceptFlag,
    /// Microseconds that a shard without work spins before it sleeps
    #[arg(long, value_name = "US", default_value_t = 0, value_parser = clap::value_parser!(u32).range(..=1_000_000))]
    busy_poll_us: u32,
    /// Most clients at a time
    #[arg(long, value_name = "N", default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(1..))]
    maxclients: u32,
    /// Number of databases
    #[arg(long, value_name = "N", default_value_t = 16, value_parser = clap::value_parser!(u32).range(1..=16_384))]
    databases: u32,
    /// Seconds without traffic after which a client is dropped; 0 for never
    #[arg(long, value_name = "S", default_value_t = 0, value_parser = clap::value_parser!(u32).range(..=0x7fff_ffff))]
    timeout: u32,
    /// Seconds between TCP keep-alive probes; 0 for none
    #[arg(long, value_name = "S", default_value_t = 300, value_parser = clap::value_parser!(u32).range(..=32_767))]
    tcp_keepalive: u32,
    /// Connections that may wait to be accepted
    #[arg(long, value_name = "N", default_value_t = 511, value_parser = clap::value_parser!(u32).range(1..=0x7fff_ffff))]
    tcp_backlog: u32,
    /// Unsent output after which a client is dropped: normal BYTES 0 0; 0 for no limit
    #[arg(long, value_name = "LIMITS", value_parser = parse_output_limit, default_value = "normal 0 0 0")]
    client_output_buffer_limit: usize,
    /// Unprocessed input after which a client is dropped
    #[arg(long, value_name = "BYTES", value_parser = parse_limit, default_value = "1gb")]
    client_query_buffer_limit: usize,
    /// Longest string
    #[arg(long, value_name = "BYTES", value_parser = parse_limit, default_value = "512mb")]
    proto_max_bulk_len: usize,
    #[command(flatten)]
    observation: ObservationFlags,
}

/// [`Placement`] as a word.
#[derive(Copy, Clone, Debug, ValueEnum)]
enum PlacementFlag {
    /// One per physical core
    Physical,
    /// One per CPU, two on a core with two threads
    Logical,
    /// Wherever the scheduler puts them
    Float,
}

/// [`Accept`] as a word.
#[derive(Copy, Clone, Debug, ValueEnum)]
enum AcceptFlag {
    /// Each on a socket of its own, and the kernel spreads connections
    Reuseport,
    /// The first, which hands them on
    Single,
}

impl Flags {
    pub(crate) fn into_options(self) -> ServerOptions {
        let bind = self.bind.map(|bind| bind.split_ascii_whitespace().map(str::to_owned).collect());
        ServerOptions {
            bind: bind.unwrap_or_else(|| ServerOptions::default().bind),
            port: self.port,
            unixsocket: self.unixsocket,
            unixsocketperm: self.unixsocketperm,
            shards: self.shards,
            cpus: self.cpus,
            placement: match self.placement {
                PlacementFlag::Physical => Placement::Physical,
                PlacementFlag::Logical => Placement::Logical,
                PlacementFlag::Float => Placement::Float,
            },
            accept: match self.accept {
                AcceptFlag::Reuseport => Accept::Reuseport,
                AcceptFlag::Single => Accept::Single,
            },
            maxclients: self.maxclients,
            databases: self.databases as usize,
            busy_poll_us: self.busy_poll_us,
            timeout_s: self.timeout,
            tcp_keepalive_s: self.tcp_keepalive,
            tcp_backlog: self.tcp_backlog,
            output_buffer_limit: self.client_output_buffer_limit,
            query_buffer_limit: self.client_query_buffer_limit,
            proto_max_bulk_len: self.proto_max_bulk_len,
            observation: self.observation.into_observation(),
        }
    }
}

/// Makes one word of all values of a directive: those up to the next word that starts with two dashes.
pub(crate) fn join_values(args: impl Iterator<Item = OsString>) -> Vec<OsString> {
    let mut joined: Vec<OsString> = Vec::new();
    // 0: outside of a directive, 1: after its name, 2: after its first value.
    let mut values = 0;
    for arg in args {
        if arg.as_encoded_bytes().starts_with(b"--") {
            values = 1;
            joined.push(arg);
        } else if values == 2 {
            let last = joined.last_mut().expect("a value has been pushed");
            last.push(" ");
            last.push(arg);
        } else {
            values = if values == 1 { 2 } else { 0 };
            joined.push(arg);
        }
    }
    joined
}

fn parse_limit(text: &str) -> Result<usize, String> {
    let bytes = parse_bytes(text).map_err(|error| error.to_string())?;
    if bytes < LIMIT_MIN_BYTES {
        return Err("it must be at least 1mb".to_owned());
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    fn parse(line: &str) -> Result<ServerOptions, clap::Error> {
        let words = std::iter::once("corelane").chain(line.split_ascii_whitespace()).map(OsString::from);
        Flags::try_parse_from(join_values(words)).map(Flags::into_options)
    }

    #[test]
    fn the_table_of_flags_is_consistent() {
        Flags::command().debug_assert();
    }

    #[test]
    fn defaults_are_those_of_the_library() {
        assert_eq!(format!("{:?}", parse("").unwrap()), format!("{:?}", ServerOptions::default()));
    }

    #[test]
    fn a_directive_takes_all_words_up_to_the_next() {
        let options =
            parse("--bind 127.0.0.1 -::1 --port 7000 --client-output-buffer-limit normal 1mb 0 0 --shards 3")
                .unwrap();
        assert_eq!(options.bind, ["127.0.0.1", "-::1"]);
        assert_eq!((options.port, options.shards, options.output_buffer_limit), (7000, Some(3), 1 << 20));
        assert_eq!(parse("--bind -::1").unwrap().bind, ["-::1"]);
    }

    #[test]
    fn logs_have_two_names() {
        for line in [
            "--slowlog-log-slower-than -1 --slowlog-max-len 5",
            "--commandlog-execution-slower-than -1 --commandlog-slow-execution-max-len 5",
        ] {
            let observation = parse(line).unwrap().observation;
            assert_eq!((observation.slow_us, observation.slow_len_max), (-1, 5), "{line}");
        }
        let observation =
            parse("--latency-tracking no --latency-tracking-info-percentiles 50 100").unwrap().observation;
        assert_eq!(
            (observation.latency_tracking, observation.latency_percentiles),
            (false, vec![50.0, 100.0])
        );
    }

    #[test]
    fn values_out_of_range_are_usage_errors() {
        for line in [
            "--port 65536",
            "--port -1",
            "--port",
            "--maxclients 0",
            "--databases 0",
            "--proto-max-bulk-len 1k",
            "--unixsocketperm 999",
            "--client-output-buffer-limit 5",
            "--placement here",
            "--slowlog-log-slower-than -2",
            "--latency-tracking maybe",
            "--latency-tracking-info-percentiles 50 101",
            "--no-such-flag 1",
            "stray",
        ] {
            assert_eq!(parse(line).map_err(|error| error.exit_code()).unwrap_err(), 2, "{line}");
        }
    }
}
