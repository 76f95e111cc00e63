//! What is measured: names and units, as they appear in tables and CSV files.

/// One measured quantity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Metric {
    Throughput,
    P50,
    P99,
    CpuPerRequest,
    Errors,
    BytesPerConnection,
    PeakOverSize,
    CpuPerShard,
    FirstRequest,
    TurnMax,
    BytesPerKey,
    BytesPerElement,
}

impl Metric {
    /// Name and unit, the unit last.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Throughput => "requests_per_s",
            Self::P50 => "p50_ms",
            Self::P99 => "p99_ms",
            Self::CpuPerRequest => "cpu_us_per_request",
            Self::Errors => "errors",
            Self::BytesPerConnection => "bytes_per_connection",
            Self::PeakOverSize => "peak_over_size",
            Self::CpuPerShard => "cpu_percent_per_shard",
            Self::FirstRequest => "first_request_us",
            Self::TurnMax => "turn_us_max",
            Self::BytesPerKey => "bytes_per_key_beyond_data",
            Self::BytesPerElement => "bytes_per_element",
        }
    }

    /// The words of a sentence about it.
    pub(crate) const fn words(self) -> &'static str {
        match self {
            Self::Throughput => "throughput",
            Self::P50 => "p50",
            Self::P99 => "p99",
            Self::CpuPerRequest => "CPU per request",
            Self::Errors => "errors",
            Self::BytesPerConnection => "resident bytes per idle connection",
            Self::PeakOverSize => "peak resident memory over the value's size",
            Self::CpuPerShard => "CPU % per shard",
            Self::FirstRequest => "first request after idle (µs)",
            Self::TurnMax => "turn_us_max",
            Self::BytesPerKey => "resident bytes per key beyond key and value",
            Self::BytesPerElement => "resident bytes per element, data included",
        }
    }

    /// A value of it with the digits that mean something.
    pub(crate) fn show(self, value: f64) -> String {
        match self {
            Self::Throughput
            | Self::Errors
            | Self::BytesPerConnection
            | Self::TurnMax
            | Self::FirstRequest => {
                format!("{value:.0}")
            }
            Self::P50 | Self::P99 => format!("{value:.3}"),
            Self::CpuPerRequest | Self::PeakOverSize | Self::CpuPerShard => format!("{value:.2}"),
            Self::BytesPerKey | Self::BytesPerElement => format!("{value:.1}"),
        }
    }
}
