//! What can be set when a server starts, as plain data with its defaults, and how it reaches the engine.

use std::path::PathBuf;

use corelane_engine::{Observation, Settings};
use thiserror::Error;

use crate::listen::{Accept, BIND_DEFAULT, ListenOptions};
use crate::topology::Placement;

/// Directives by the names and with the defaults of redis.conf, and ours: shards, cpus, placement, busy-poll-us.
#[derive(Clone, Debug)]
pub struct ServerOptions {
    /// Addresses to listen on; see [`ListenOptions::bind`].
    pub bind: Vec<String>,
    /// TCP port; 0: none.
    pub port: u16,
    /// Path of the Unix socket.
    pub unixsocket: Option<PathBuf>,
    /// Its permission bits.
    pub unixsocketperm: Option<u32>,
    /// Number of shards; `None`: what [`place`](crate::topology::place) finds.
    pub shards: Option<usize>,
    /// CPUs for the shards, such as `0-3,8`; `None`: those of the affinity mask.
    pub cpus: Option<String>,
    /// How shards are spread over cores, and whether they are bound to them.
    pub placement: Placement,
    /// Which shards accept connections.
    pub accept: Accept,
    /// Most clients at a time.
    pub maxclients: u32,
    /// Number of databases.
    pub databases: usize,
    /// Microseconds that a shard without work spins before it sleeps.
    pub busy_poll_us: u32,
    /// Seconds without traffic after which a client is dropped; 0: never.
    pub timeout_s: u32,
    /// Seconds between keep-alive probes; 0: none.
    pub tcp_keepalive_s: u32,
    /// Connections that may wait to be accepted, per socket.
    pub tcp_backlog: u32,
    /// Bytes of unsent output after which a client is dropped; 0: no limit.
    pub output_buffer_limit: usize,
    /// Bytes of unprocessed input after which a client is dropped.
    pub query_buffer_limit: usize,
    /// Longest string in bytes.
    pub proto_max_bulk_len: usize,
    /// From where on commands are logged.
    pub observation: Observation,
}

impl Default for ServerOptions {
    fn default() -> Self {
        let engine = Settings::default();
        Self {
            bind: BIND_DEFAULT.map(str::to_owned).to_vec(),
            port: engine.port,
            unixsocket: None,
            unixsocketperm: None,
            shards: None,
            cpus: None,
            placement: Placement::default(),
            accept: Accept::default(),
            maxclients: engine.maxclients,
            databases: engine.databases,
            busy_poll_us: 0,
            timeout_s: 0,
            tcp_keepalive_s: 300,
            tcp_backlog: 511,
            output_buffer_limit: engine.output_buffer_limit,
            query_buffer_limit: engine.query_buffer_limit,
            proto_max_bulk_len: engine.proto_max_bulk_len,
            observation: engine.observation,
        }
    }
}

impl ServerOptions {
    /// Where to listen.
    #[must_use]
    pub fn listen(&self) -> ListenOptions {
        ListenOptions {
            bind: self.bind.clone(),
            port: self.port,
            unixsocket: self.unixsocket.clone(),
            unixsocketperm: self.unixsocketperm,
            backlog: self.tcp_backlog,
            accept: self.accept,
        }
    }

    /// What the engines are told: `shards` and `maxclients` are those that the start-up settled on.
    #[must_use]
    pub fn settings(&self, shards: usize, maxclients: u32) -> Settings {
        Settings {
            databases: self.databases,
            proto_max_bulk_len: self.proto_max_bulk_len,
            query_buffer_limit: self.query_buffer_limit,
            output_buffer_limit: self.output_buffer_limit,
            port: self.port,
            maxclients,
            observation: self.observation.clone(),
            shown: self.shown(shards, maxclients),
            ..Settings::default()
        }
    }

    /// CONFIG GET: ours, and those of Redis that clients and benchmarks ask for although they cannot be set here.
    fn shown(&self, shards: usize, maxclients: u32) -> Vec<(&'static str, String)> {
        let path = self.unixsocket.as_ref().map_or_else(String::new, |path| path.display().to_string());
        let limit = self.output_buffer_limit;
        let mut shown = vec![
            ("accept", self.accept.name().to_owned()),
            ("appendonly", "no".to_owned()),
            ("bind", self.bind.join(" ")),
            ("busy-poll-us", self.busy_poll_us.to_string()),
            (
                "client-output-buffer-limit",
                format!("normal {limit} 0 0 slave {limit} 0 0 pubsub {limit} 0 0"),
            ),
            ("client-query-buffer-limit", self.query_buffer_limit.to_string()),
            ("cpus", self.cpus.clone().unwrap_or_default()),
            ("databases", self.databases.to_string()),
            ("maxclients", maxclients.to_string()),
            ("maxmemory", "0".to_owned()),
            ("maxmemory-policy", "noeviction".to_owned()),
            ("placement", self.placement.name().to_owned()),
            ("port", self.port.to_string()),
            ("proto-max-bulk-len", self.proto_max_bulk_len.to_string()),
            ("save", String::new()),
            ("shards", shards.to_string()),
            ("tcp-backlog", self.tcp_backlog.to_string()),
            ("tcp-keepalive", self.tcp_keepalive_s.to_string()),
            ("timeout", self.timeout_s.to_string()),
            ("unixsocket", path),
            ("unixsocketperm", format!("{:o}", self.unixsocketperm.unwrap_or(0))),
        ];
        shown.extend(shown_observation(&self.observation));
        shown.sort_unstable_by_key(|&(name, _)| name);
        shown
    }
}

/// Where two names stand for the same, both are shown.
fn shown_observation(observation: &Observation) -> [(&'static str, String); 11] {
    let percentiles: Vec<String> = observation.latency_percentiles.iter().map(f64::to_string).collect();
    let tracking = if observation.latency_tracking { "yes" } else { "no" };
    [
        ("commandlog-execution-slower-than", observation.slow_us.to_string()),
        ("slowlog-log-slower-than", observation.slow_us.to_string()),
        ("commandlog-slow-execution-max-len", observation.slow_len_max.to_string()),
        ("slowlog-max-len", observation.slow_len_max.to_string()),
        ("commandlog-request-larger-than", observation.large_request_bytes.to_string()),
        ("commandlog-large-request-max-len", observation.large_request_len_max.to_string()),
        ("commandlog-reply-larger-than", observation.large_reply_bytes.to_string()),
        ("commandlog-large-reply-max-len", observation.large_reply_len_max.to_string()),
        ("latency-monitor-threshold", observation.latency_threshold_ms.to_string()),
        ("latency-tracking", tracking.to_owned()),
        ("latency-tracking-info-percentiles", percentiles.join(" ")),
    ]
}

/// Why a value of a directive cannot be used.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum OptionError {
    /// Not an amount of memory.
    #[error("{0:?} is not an amount of memory: write bytes, or a number with kb, mb or gb")]
    Bytes(String),
    /// Not `class hard soft seconds`.
    #[error("write client-output-buffer-limit as \"normal BYTES 0 0\": hard limit only, for class normal")]
    OutputLimit,
    /// Not percentages.
    #[error("write latency-tracking-info-percentiles as numbers from 0 to 100, such as \"50 99 99.9\"")]
    Percentiles,
    /// Not octal, or more than permission bits.
    #[error("{0:?} is not a file mode: write an octal number up to 777, such as 770")]
    Mode(String),
}

/// Parses an amount of memory as redis.conf writes it: `1k` is 1000 bytes, `1kb` 1024, and so on for m and g.
///
/// # Errors
/// Not a number with one of these units, or too large.
pub fn parse_bytes(text: &str) -> Result<usize, OptionError> {
    const UNITS: [(&str, usize); 8] = [
        ("kb", 1 << 10),
        ("mb", 1 << 20),
        ("gb", 1 << 30),
        ("k", 1000),
        ("m", 1_000_000),
        ("g", 1_000_000_000),
        ("b", 1),
        ("", 1),
    ];
    let lower = text.to_ascii_lowercase();
    let parsed = UNITS.iter().find_map(|(unit, size)| Some((lower.strip_suffix(unit)?, size)));
    let number = parsed.and_then(|(digits, size)| digits.parse::<usize>().ok()?.checked_mul(*size));
    number.ok_or_else(|| OptionError::Bytes(text.to_owned()))
}

/// Parses `client-output-buffer-limit`: groups of class, hard limit, soft limit and seconds. Only the hard limit of class
/// `normal` has a meaning here; other classes are read over.
///
/// # Errors
/// Incomplete groups, unknown classes, a soft limit for class `normal`.
pub fn parse_output_limit(text: &str) -> Result<usize, OptionError> {
    let words: Vec<&str> = text.split_ascii_whitespace().collect();
    let mut limit = None;
    for group in words.chunks(4) {
        let &[class, hard, soft, seconds] = group else {
            return Err(OptionError::OutputLimit);
        };
        match class.to_ascii_lowercase().as_str() {
            "normal" if soft == "0" && seconds == "0" => limit = Some(parse_bytes(hard)?),
            "slave" | "replica" | "pubsub" => {}
            _ => return Err(OptionError::OutputLimit),
        }
    }
    limit.ok_or(OptionError::OutputLimit)
}

/// Parses `latency-tracking-info-percentiles`; it may be empty.
///
/// # Errors
/// Not numbers, or not between 0 and 100.
pub fn parse_percentiles(text: &str) -> Result<Vec<f64>, OptionError> {
    let one = |word: &str| word.parse().ok().filter(|percent| (0.0..=100.0).contains(percent));
    text.split_ascii_whitespace().map(|word| one(word).ok_or(OptionError::Percentiles)).collect()
}

/// Parses the octal permission bits of `unixsocketperm`.
///
/// # Errors
/// Not octal, or beyond 777.
pub fn parse_mode(text: &str) -> Result<u32, OptionError> {
    let mode = u32::from_str_radix(text, 8).ok().filter(|&mode| mode <= 0o777);
    mode.ok_or_else(|| OptionError::Mode(text.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_of_memory_as_in_redis_conf() {
        for (text, bytes) in [
            ("0", 0),
            ("17", 17),
            ("17b", 17),
            ("2k", 2000),
            ("2kb", 2048),
            ("3M", 3_000_000),
            ("1GB", 1 << 30),
        ] {
            assert_eq!(parse_bytes(text), Ok(bytes), "{text}");
        }
        for text in ["", "kb", "-1", "1.5mb", "1tb", "1 mb", "99999999999gb", "18446744073709551616"] {
            assert_eq!(parse_bytes(text), Err(OptionError::Bytes(text.to_owned())), "{text}");
        }
    }

    #[test]
    fn output_limits_of_class_normal() {
        assert_eq!(parse_output_limit("normal 1mb 0 0"), Ok(1 << 20));
        assert_eq!(parse_output_limit("pubsub 32mb 8mb 60 normal 0 0 0"), Ok(0));
        for text in ["", "normal", "normal 1 2 3", "pubsub 1 2 3", "other 1 0 0", "normal 1 0 0 x"] {
            assert_eq!(parse_output_limit(text), Err(OptionError::OutputLimit), "{text}");
        }
    }

    #[test]
    fn percentiles_lie_between_0_and_100() {
        assert_eq!(parse_percentiles("50 99.9  100"), Ok(vec![50.0, 99.9, 100.0]));
        assert_eq!(parse_percentiles(""), Ok(Vec::new()));
        for text in ["x", "50 101", "-1", "nan"] {
            assert_eq!(parse_percentiles(text), Err(OptionError::Percentiles), "{text}");
        }
    }

    #[test]
    fn modes_are_octal() {
        assert_eq!(parse_mode("770"), Ok(0o770));
        for text in ["", "778", "1777", "rwx"] {
            assert_eq!(parse_mode(text), Err(OptionError::Mode(text.to_owned())), "{text}");
        }
    }

    #[test]
    fn settings_carry_the_options() {
        let options =
            ServerOptions { port: 7000, databases: 4, output_buffer_limit: 99, ..ServerOptions::default() };
        let settings = options.settings(3, 50);
        assert_eq!((settings.port, settings.databases, settings.maxclients), (7000, 4, 50));
        assert_eq!(settings.output_buffer_limit, 99);
        let shown = |name| settings.shown.iter().find(|(known, _)| *known == name).unwrap().1.as_str();
        assert_eq!((shown("shards"), shown("maxclients"), shown("bind")), ("3", "50", "127.0.0.1 -::1"));
    }
}
