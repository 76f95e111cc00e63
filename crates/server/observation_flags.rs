//! The directives on what is logged and counted of commands.

use clap::{ArgAction, Args};
use corelane_engine::Observation;
use corelane_runtime::options::{OptionError, parse_percentiles};

/// Negative for never.
fn limit() -> clap::builder::RangedI64ValueParser<i64> {
    clap::value_parser!(i64).range(-1..)
}

#[derive(Args, Debug)]
pub(crate) struct ObservationFlags {
    /// Microseconds from which on a command is logged as slow; -1 for never
    #[arg(long, visible_alias = "commandlog-execution-slower-than", value_name = "US", default_value_t = 10_000, value_parser = limit(), allow_negative_numbers = true)]
    slowlog_log_slower_than: i64,
    /// Slow commands kept
    #[arg(
        long,
        visible_alias = "commandlog-slow-execution-max-len",
        value_name = "N",
        default_value_t = 128
    )]
    slowlog_max_len: usize,
    /// Bytes from which on a request is logged; -1 for never
    #[arg(long, value_name = "BYTES", default_value_t = 1 << 20, value_parser = limit(), allow_negative_numbers = true)]
    commandlog_request_larger_than: i64,
    /// Large requests kept
    #[arg(long, value_name = "N", default_value_t = 128)]
    commandlog_large_request_max_len: usize,
    /// Bytes from which on a reply is logged; -1 for never
    #[arg(long, value_name = "BYTES", default_value_t = 1 << 20, value_parser = limit(), allow_negative_numbers = true)]
    commandlog_reply_larger_than: i64,
    /// Large replies kept
    #[arg(long, value_name = "N", default_value_t = 128)]
    commandlog_large_reply_max_len: usize,
    /// Milliseconds from which on the latency monitor notes an event; 0 for never
    #[arg(long, value_name = "MS", default_value_t = 0)]
    latency_monitor_threshold: u64,
    /// Whether durations are counted per command
    #[arg(long, value_name = "yes|no", default_value = "yes", value_parser = yes_or_no, action = ArgAction::Set)]
    latency_tracking: bool,
    /// Percentiles of durations that INFO shows
    #[arg(long, value_name = "PERCENT ...", default_value = "50 99 99.9", value_parser = percentiles)]
    latency_tracking_info_percentiles: Percentiles,
}

/// A list as one value.
#[derive(Clone, Debug)]
struct Percentiles(Vec<f64>);

impl ObservationFlags {
    pub(crate) fn into_observation(self) -> Observation {
        Observation {
            slow_us: self.slowlog_log_slower_than,
            slow_len_max: self.slowlog_max_len,
            large_request_bytes: self.commandlog_request_larger_than,
            large_request_len_max: self.commandlog_large_request_max_len,
            large_reply_bytes: self.commandlog_reply_larger_than,
            large_reply_len_max: self.commandlog_large_reply_max_len,
            latency_threshold_ms: self.latency_monitor_threshold,
            latency_tracking: self.latency_tracking,
            latency_percentiles: self.latency_tracking_info_percentiles.0,
        }
    }
}

fn percentiles(text: &str) -> Result<Percentiles, OptionError> {
    parse_percentiles(text).map(Percentiles)
}

fn yes_or_no(text: &str) -> Result<bool, String> {
    match text.to_ascii_lowercase().as_str() {
        "yes" => Ok(true),
        "no" => Ok(false),
        _ => Err("it must be yes or no".to_owned()),
    }
}
