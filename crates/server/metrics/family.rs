//! A metric family, and how it is written in the two formats: OpenMetrics 1.0, and Prometheus's text format 0.0.4.

use std::fmt::{Display, Write};

/// What a family counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Only grows, but for a restart or CONFIG RESETSTAT.
    Counter,
    Gauge,
    Histogram,
    /// A 1, and what there is to say in its labels.
    Info,
}

/// One value with its labels.
#[derive(Clone, Debug)]
pub(super) struct Point {
    /// As written between the braces, without them.
    pub(super) labels: String,
    pub(super) value: Value,
}

#[derive(Clone, Debug)]
pub(super) enum Value {
    Whole(u64),
    Number(f64),
    Buckets {
        /// Upper bounds, and how many are within each and all before it.
        cumulative: Vec<(f64, u64)>,
        count: u64,
        sum: f64,
    },
}

/// Points of one name.
#[derive(Clone, Debug)]
pub(super) struct Family {
    pub(super) name: &'static str,
    /// The name ends with it; empty for mere numbers.
    pub(super) unit: &'static str,
    pub(super) kind: Kind,
    pub(super) help: &'static str,
    pub(super) points: Vec<Point>,
}

/// Which of the formats.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Format {
    OpenMetrics,
    Prometheus,
}

impl Format {
    pub(super) const fn content_type(self) -> &'static str {
        match self {
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
            Self::Prometheus => "text/plain; version=0.0.4; charset=utf-8",
        }
    }

    /// What a client prefers, by its Accept header: Prometheus's text unless it wants OpenMetrics at least as much.
    pub(super) fn accepted(accept: &str) -> Self {
        let wish = |wanted: &dyn Fn(&str) -> bool| {
            let ranges = accept.split(',').filter_map(|range| {
                let mut parts = range.split(';').map(str::trim);
                let media = parts.next()?.to_ascii_lowercase();
                let quality =
                    parts.find_map(|part| part.strip_prefix("q=")).map_or(Some(1.0), |q| q.parse().ok());
                wanted(&media).then_some(quality.unwrap_or(0.0))
            });
            ranges.fold(0.0, f64::max)
        };
        let open = wish(&|media| media == "application/openmetrics-text");
        let plain = wish(&|media| media == "text/plain");
        if open > 0.0 && open >= plain { Self::OpenMetrics } else { Self::Prometheus }
    }
}

/// `name="value"`, with what must not stand in quotes escaped.
pub(super) fn label(name: &str, value: impl Display) -> String {
    let value = value.to_string().replace('\\', r"\\").replace('"', "\\\"").replace('\n', "\\n");
    format!("{name}=\"{value}\"")
}

/// All families in a format.
pub(super) fn write(families: &[Family], format: Format) -> String {
    let mut out = String::new();
    for family in families {
        write_family(&mut out, family, format);
    }
    if format == Format::OpenMetrics {
        out.push_str("# EOF\n");
    }
    out
}

// Writing into a string cannot fail.
fn write_family(out: &mut String, family: &Family, format: Format) {
    let Family { name, unit, kind, help, points } = family;
    let suffix = match kind {
        Kind::Counter => "_total",
        Kind::Info => "_info",
        Kind::Gauge | Kind::Histogram => "",
    };
    let (described, kind) = match (format, kind) {
        (Format::OpenMetrics, Kind::Counter) => ((*name).to_owned(), "counter"),
        (Format::OpenMetrics, Kind::Info) => ((*name).to_owned(), "info"),
        (Format::Prometheus, Kind::Counter) => (format!("{name}{suffix}"), "counter"),
        (Format::Prometheus, Kind::Info) => (format!("{name}{suffix}"), "gauge"),
        (_, Kind::Gauge) => ((*name).to_owned(), "gauge"),
        (_, Kind::Histogram) => ((*name).to_owned(), "histogram"),
    };
    let _ = writeln!(out, "# TYPE {described} {kind}");
    if format == Format::OpenMetrics && !unit.is_empty() {
        let _ = writeln!(out, "# UNIT {described} {unit}");
    }
    let _ = writeln!(out, "# HELP {described} {help}");
    for Point { labels, value } in points {
        let sample = |out: &mut String, end: &str, labels: &str, value: &dyn Display| {
            let braces = if labels.is_empty() { String::new() } else { format!("{{{labels}}}") };
            let _ = writeln!(out, "{name}{end}{braces} {value}");
        };
        match value {
            Value::Whole(value) => sample(out, suffix, labels, value),
            Value::Number(value) => sample(out, suffix, labels, value),
            Value::Buckets { cumulative, count, sum } => {
                let comma = if labels.is_empty() { "" } else { "," };
                for (bound, within) in cumulative {
                    let labels = format!("{labels}{comma}le=\"{}\"", bound_text(*bound));
                    sample(out, "_bucket", &labels, within);
                }
                sample(out, "_bucket", &format!("{labels}{comma}le=\"+Inf\""), count);
                sample(out, "_sum", labels, sum);
                sample(out, "_count", labels, count);
            }
        }
    }
}

/// Bounds are text to those who read them: whole ones have a decimal, as OpenMetrics wants it.
fn bound_text(bound: f64) -> String {
    if bound.fract() == 0.0 { format!("{bound:.1}") } else { bound.to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_get_what_they_prefer() {
        for (accept, format) in [
            ("", Format::Prometheus),
            ("*/*", Format::Prometheus),
            ("text/html,application/xhtml+xml", Format::Prometheus),
            ("application/openmetrics-text; version=1.0.0", Format::OpenMetrics),
            (
                "application/openmetrics-text;version=1.0.0,application/openmetrics-text;version=0.0.1;q=0.75,text/plain;version=0.0.4;q=0.5,*/*;q=0.1",
                Format::OpenMetrics,
            ),
            ("application/openmetrics-text;q=0.2, text/plain;q=0.9", Format::Prometheus),
            ("application/openmetrics-text;q=0", Format::Prometheus),
            ("application/openmetrics-text;q=x", Format::Prometheus),
        ] {
            assert_eq!(Format::accepted(accept), format, "{accept}");
        }
    }

    #[test]
    fn the_formats_differ_in_names_units_and_the_end() {
        let families = [
            Family {
                name: "a_bytes",
                unit: "bytes",
                kind: Kind::Counter,
                help: "What a is.",
                points: vec![Point { labels: label("of", "x\"\\\n"), value: Value::Whole(7) }],
            },
            Family {
                name: "b_seconds",
                unit: "seconds",
                kind: Kind::Histogram,
                help: "What b is.",
                points: vec![Point {
                    labels: String::new(),
                    value: Value::Buckets { cumulative: vec![(0.5, 1), (1.0, 2)], count: 3, sum: 4.5 },
                }],
            },
        ];
        let open = write(&families, Format::OpenMetrics);
        let expected = "# TYPE a_bytes counter\n# UNIT a_bytes bytes\n# HELP a_bytes What a is.\n\
            a_bytes_total{of=\"x\\\"\\\\\\n\"} 7\n\
            # TYPE b_seconds histogram\n# UNIT b_seconds seconds\n# HELP b_seconds What b is.\n\
            b_seconds_bucket{le=\"0.5\"} 1\nb_seconds_bucket{le=\"1.0\"} 2\nb_seconds_bucket{le=\"+Inf\"} 3\n\
            b_seconds_sum 4.5\nb_seconds_count 3\n# EOF\n";
        assert_eq!(open, expected);
        let plain = write(&families, Format::Prometheus);
        assert!(plain.starts_with("# TYPE a_bytes_total counter\n# HELP a_bytes_total What"), "{plain}");
        assert!(!plain.contains("UNIT") && !plain.contains("EOF"), "{plain}");
    }
}
