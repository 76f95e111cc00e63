//! What is printed of a test: redis-benchmark's report, its line, its CSV, or JSON.

use std::fmt::Write;
use std::time::Duration;

use anyhow::Result;
use corelane_load::{Histogram, Outcome};
use serde_json::{Value, json as object};

use super::options::Options;
use super::suite::Test;
use crate::flags::VERSION;
use crate::machine::Machine;

/// How results are shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Style {
    Full,
    Quiet,
    Csv,
    Json,
}

/// From when on the last request of a run at a rate was late enough to be told of: more than a thread that wakes up late,
const LATE_MIN: Duration = Duration::from_millis(50);
/// and more than this part of the run.
const LATE_PART_MIN: f64 = 0.01;

/// The first line of CSV.
pub(super) const CSV_HEAD: &str = "\"test\",\"rps\",\"avg_latency_ms\",\"min_latency_ms\",\"p50_latency_ms\",\"p95_latency_ms\",\"p99_latency_ms\",\"max_latency_ms\"";

/// A test and its result.
#[derive(Debug)]
pub(super) struct Finished<'a> {
    pub(super) test: &'a Test,
    pub(super) outcome: Outcome,
    pub(super) options: &'a Options,
    pub(super) host: &'a [(String, String)],
}

fn ms(ns: u64) -> f64 {
    ns as f64 / 1e6
}

impl Finished<'_> {
    /// As text; empty for JSON, which comes at the end.
    pub(super) fn show(&self, style: Style) -> String {
        let (title, rate) = (&self.test.title, self.outcome.rate());
        let errors = self.notes();
        let [avg, min, p50, p95, p99, max] = self.latencies();
        match style {
            Style::Json => String::new(),
            Style::Quiet => format!("{title}: {rate:.2} requests per second, p50={p50:.3} msec\n{errors}"),
            Style::Csv => {
                let title = title.replace('"', "\"\"");
                format!(
                    "\"{title}\",\"{rate:.2}\",\"{avg:.3}\",\"{min:.3}\",\"{p50:.3}\",\"{p95:.3}\",\"{p99:.3}\",\"{max:.3}\"\n"
                )
            }
            Style::Full => self.report() + &errors,
        }
    }

    /// Error replies, and a rate that was not kept; mostly empty.
    pub(super) fn notes(&self) -> String {
        let mut notes = match (self.outcome.errors, &self.outcome.error) {
            (0, _) | (_, None) => String::new(),
            (count, Some(error)) => format!("{count} error replies, the first: {error}\n"),
        };
        let late = self.outcome.late;
        if self.outcome.missed > 0 {
            let _ = writeln!(
                notes,
                "the server did not keep up: {} requests that were due have not been sent",
                self.outcome.missed
            );
        } else if late >= LATE_MIN && late.as_secs_f64() > self.outcome.seconds * LATE_PART_MIN {
            let _ = writeln!(
                notes,
                "the server did not keep up: the last request was sent {:.2} seconds after it was due",
                late.as_secs_f64()
            );
        }
        notes
    }

    /// Mean, minimum, percentiles 50, 95 and 99, maximum, in milliseconds.
    fn latencies(&self) -> [f64; 6] {
        let times = &self.outcome.latencies;
        if times.is_empty() {
            return [0.0; 6];
        }
        let at = |quantile| ms(times.value_at_quantile(quantile));
        [times.mean() / 1e6, ms(times.min()), at(0.5), at(0.95), at(0.99), ms(times.max())]
    }

    fn report(&self) -> String {
        let (outcome, options) = (&self.outcome, self.options);
        let mut text = format!("====== {} ======\n", self.test.title);
        let _ = write!(
            text,
            "  {} requests completed in {:.2} seconds\n  {} parallel clients\n  {} bytes payload\n  keep alive: {}\n",
            outcome.requests, outcome.seconds, options.clients, self.test.payload, options.keep_alive
        );
        for (name, value) in self.host {
            let _ = writeln!(text, "  host configuration \"{name}\": {value}");
        }
        match options.threads {
            None | Some(0) => text.push_str("  multi-thread: no\n"),
            Some(_) => {
                let _ = write!(text, "  multi-thread: yes\n  threads: {}\n", options.threads());
            }
        }
        if let Some(rate) = options.rate {
            let _ = writeln!(text, "  rate: {rate} requests per second, latencies from when they were due");
        }
        if let Some(warmup) = options.warmup {
            let _ = writeln!(text, "  warm-up: {} seconds", warmup.as_secs_f64());
        }
        text.push_str("\nLatency by percentile distribution:\n");
        let steps = cumulative(&outcome.latencies);
        by_percentile(&mut text, &steps);
        text.push_str("\nCumulative distribution of latencies:\n");
        by_latency(&mut text, &steps);
        let _ = write!(
            text,
            "\nSummary:\n  throughput summary: {:.2} requests per second\n  latency summary (msec):\n",
            outcome.rate()
        );
        let names = ["avg", "min", "p50", "p95", "p99", "max"];
        let row = |cells: Vec<String>| cells.iter().map(|cell| format!("{cell:>10}")).collect::<String>();
        let _ = writeln!(text, "   {}", row(names.map(str::to_owned).to_vec()));
        let _ = writeln!(text, "   {}", row(self.latencies().map(|value| format!("{value:.3}")).to_vec()));
        text
    }

    /// As an object of the list `tests`.
    pub(super) fn json(&self) -> Value {
        let (outcome, options) = (&self.outcome, self.options);
        let [avg, min, p50, p95, p99, max] = self.latencies();
        let p999 =
            if outcome.latencies.is_empty() { 0.0 } else { ms(outcome.latencies.value_at_quantile(0.999)) };
        object!({
            "title": self.test.title,
            "requests": outcome.requests,
            "clients": options.clients,
            "pipeline": options.pipeline,
            "threads": options.threads(),
            "data_size": self.test.payload,
            "keyspace": options.range,
            "keys": format!("{:?}", options.keys).to_lowercase(),
            "host_configuration": self.host,
            "keep_alive": options.keep_alive == 1,
            "rate": options.rate,
            "missed": outcome.missed,
            "late_seconds": outcome.late.as_secs_f64(),
            "seconds": outcome.seconds,
            "requests_per_second": outcome.rate(),
            "errors": outcome.errors,
            "error": outcome.error,
            "client_cpu_seconds": outcome.cpu_seconds,
            "latency_ms": {
                "avg": avg, "min": min, "p50": p50, "p95": p95, "p99": p99, "p99.9": p999, "max": max,
            },
            "histogram": by_microseconds(&outcome.latencies),
        })
    }
}

/// A histogram as text, with milliseconds, as HdrHistogram's own libraries print it and its plotter reads it.
pub(super) fn hgrm(times: &Histogram<u64>) -> String {
    let mut text =
        format!("{:>12} {:>14} {:>10} {:>14}\n\n", "Value", "Percentile", "TotalCount", "1/(1-Percentile)");
    let mut count = 0;
    for step in times.iter_quantiles(5) {
        count += step.count_since_last_iteration();
        let (value, quantile) = (ms(step.value_iterated_to()), step.quantile_iterated_to());
        let _ = write!(text, "{value:>12.3} {quantile:>2.12} {count:>10}");
        let _ =
            if quantile < 1.0 { writeln!(text, " {:>14.2}", 1.0 / (1.0 - quantile)) } else { writeln!(text) };
    }
    let (mean, deviation) = (times.mean() / 1e6, times.stdev() / 1e6);
    let _ = writeln!(text, "#[Mean    = {mean:>12.3}, StdDeviation   = {deviation:>12.3}]");
    let _ = writeln!(text, "#[Max     = {:>12.3}, Total count    = {:>12}]", ms(times.max()), times.len());
    text
}

/// Everything as one object.
///
/// # Errors
/// The machine's description cannot be told as JSON.
pub(super) fn json(args: &[String], target: &str, machine: &Machine, tests: &[Value]) -> Result<String> {
    let command = ["corelane", "bench"].map(str::to_owned).into_iter();
    let command: Vec<String> = command.chain(args.iter().cloned()).collect();
    Ok(object!({
        "corelane_bench": VERSION,
        "command": command,
        "target": target,
        "machine": serde_json::to_value(machine)?,
        "tests": tests,
    })
    .to_string())
}

/// Latencies in nanoseconds that occurred, ascending, and how many there were up to each.
fn cumulative(times: &Histogram<u64>) -> Vec<(u64, u64)> {
    let mut sum = 0;
    let steps = times.iter_recorded().map(|step| {
        sum += step.count_since_last_iteration();
        (step.value_iterated_to(), sum)
    });
    steps.collect()
}

/// Whole microseconds, rounded up, and how many latencies fell into each.
fn by_microseconds(times: &Histogram<u64>) -> Vec<(u64, u64)> {
    let mut counts: Vec<(u64, u64)> = Vec::new();
    for step in times.iter_recorded() {
        let (us, count) = (step.value_iterated_to().div_ceil(1000), step.count_since_last_iteration());
        match counts.last_mut() {
            Some((last, sum)) if *last == us => *sum += count,
            _ => counts.push((us, count)),
        }
    }
    counts
}

fn step(text: &mut String, percent: f64, ns: u64, count: u64) {
    let _ = writeln!(text, "{percent:.3}% <= {:.3} milliseconds (cumulative count {count})", ms(ns));
}

/// Half of what is left with each line.
fn by_percentile(text: &mut String, steps: &[(u64, u64)]) {
    let Some(&(max, total)) = steps.last() else { return };
    let (mut left, mut shown) = (100.0, 0);
    loop {
        let percent = 100.0 - left;
        let wanted = ((percent / 100.0 * total as f64).ceil() as u64).max(1);
        let at = steps.partition_point(|(_, count)| *count < wanted);
        let (ns, count) = steps[at.min(steps.len() - 1)];
        if count != shown {
            step(text, percent, ns, count);
            shown = count;
        }
        if count == total {
            break;
        }
        left /= 2.0;
    }
    step(text, 100.0, max, total);
}

/// Steps of 0.1 milliseconds up to 2, then of 1.
fn by_latency(text: &mut String, steps: &[(u64, u64)]) {
    const FINE_NS: u64 = 100_000;
    const FINE_END_NS: u64 = 2_000_000;
    const COARSE_NS: u64 = 1_000_000;
    let Some(&(_, total)) = steps.last() else { return };
    let (mut bound, mut shown) = (FINE_NS, None);
    loop {
        let at = steps.partition_point(|(ns, _)| *ns <= bound);
        let count = at.checked_sub(1).map_or(0, |at| steps[at].1);
        if shown != Some(count) {
            step(text, count as f64 * 100.0 / total as f64, bound, count);
            shown = Some(count);
        }
        if count == total {
            return;
        }
        bound += if bound < FINE_END_NS { FINE_NS } else { COARSE_NS };
        // Nothing lies between here and the next latency.
        if let Some((next, _)) = steps.get(at)
            && *next > bound
            && bound > FINE_END_NS
        {
            bound = next.div_ceil(COARSE_NS) * COARSE_NS;
        }
    }
}
