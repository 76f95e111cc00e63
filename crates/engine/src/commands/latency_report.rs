//! What LATENCY says in words and pictures: DOCTOR and GRAPH.

use crate::latency_monitor::{LatencyMonitor, Series};
use crate::settings::Observation;
use std::fmt::Write;

/// Columns of a graph.
const COLUMNS: usize = 80;
/// Rows of a graph without its labels.
const ROWS: usize = 4;
/// Heights that one row can show, from low to high; what reaches beyond it is drawn as `|`.
const HEIGHTS: [char; 3] = ['_', 'o', '#'];

/// The report of LATENCY DOCTOR: Valkey's findings, and such advice as applies here.
pub(super) fn doctor(monitor: &LatencyMonitor, settings: &Observation, now_s: u64) -> String {
    if monitor.all().is_empty() && settings.latency_threshold_ms == 0 {
        return "I'm sorry, Dave, I can't do that. Latency monitoring is disabled in this corelane instance. You may use \
                \"CONFIG SET latency-monitor-threshold <milliseconds>.\" in order to enable it.\n"
            .to_owned();
    }
    if monitor.all().is_empty() {
        return "No latency spike was observed during the lifetime of this corelane instance, not in the slightest bit.\n"
            .to_owned();
    }
    let mut text = "Latency spikes are observed in this corelane instance.\n\n".to_owned();
    for (idx, series) in monitor.all().iter().enumerate() {
        let found = series.analyse(now_s);
        let _ = writeln!(
            text,
            "{}. {}: {} latency spikes (average {}ms, mean deviation {}ms, period {:.2} sec). Worst all time event {}ms.",
            idx + 1,
            series.event,
            found.samples,
            found.ms_average,
            found.ms_deviation,
            found.period_s as f64 / found.samples.max(1) as f64,
            series.ms_max,
        );
    }
    text.push_str("\nHere is some advice for you:\n\n");
    for advice in advice(monitor, settings) {
        let _ = writeln!(text, "- {advice}");
    }
    text
}

fn advice(monitor: &LatencyMonitor, settings: &Observation) -> Vec<String> {
    let has = |event: &str| monitor.find(event.as_bytes()).is_some();
    let mut advice = Vec::new();
    if has("command") {
        let threshold_us = settings.latency_threshold_ms * 1000;
        let slower_than_us = u64::try_from(settings.slow_us).ok();
        match slower_than_us.filter(|_| settings.slow_len_max > 0) {
            None => advice.push(format!(
                "There are latency issues with potentially slow commands you are using. Try to enable the Slow Log using \
                 the command 'CONFIG SET slowlog-log-slower-than {threshold_us}'. If the Slow log is disabled no slow \
                 command is logged for you."
            )),
            Some(us) if us > threshold_us => advice.push(format!(
                "Your current Slow Log configuration only logs events that are slower than your configured latency \
                 monitor threshold. Please use 'CONFIG SET slowlog-log-slower-than {threshold_us}'."
            )),
            Some(_) => {}
        }
        advice.push("Check your Slow Log to understand what are the commands you are running which are too slow to execute.".to_owned());
    }
    if has("fast-command") {
        advice.push(
            "Commands that do little took long. This usually means that the system does not provide a shard's thread with \
             CPU time for long periods: lower the system's load, keep other programs and interrupts off the shards' CPUs, \
             and check with 'redis-cli --intrinsic-latency 100' what is the intrinsic latency in your system."
                .to_owned(),
        );
    }
    if has("expire-cycle") {
        advice.push(
            "Expiring large values takes time. If you have very large values that often expire, try to split them into \
             smaller ones, or to spread their deadlines."
                .to_owned(),
        );
    }
    advice
}

/// The graph of LATENCY GRAPH.
pub(super) fn graph(series: &Series, now_s: u64) -> String {
    let samples: Vec<(u64, String)> =
        series.samples().map(|sample| (sample.ms, age(now_s.saturating_sub(sample.at_s)))).collect();
    let highest = samples.iter().map(|(ms, _)| *ms).max().unwrap_or(0);
    let lowest = samples.iter().map(|(ms, _)| *ms).min().unwrap_or(0);
    let mut text = format!(
        "{} - high {highest} ms, low {lowest} ms (all time high {} ms)\n{}\n",
        series.event,
        series.ms_max,
        "-".repeat(COLUMNS),
    );
    for (idx, part) in samples.chunks(COLUMNS).enumerate() {
        if idx > 0 {
            text.push('\n');
        }
        draw(part, lowest, highest, &mut text);
    }
    text
}

fn age(seconds: u64) -> String {
    match seconds {
        0..60 => format!("{seconds}s"),
        60..3600 => format!("{}m", seconds / 60),
        3600..86_400 => format!("{}h", seconds / 3600),
        _ => format!("{}d", seconds / 86_400),
    }
}

/// Draws samples as columns, below each its label from top to bottom.
fn draw(samples: &[(u64, String)], lowest: u64, highest: u64, text: &mut String) {
    let steps = HEIGHTS.len() * ROWS;
    let range = (highest - lowest).max(1) as usize;
    let step = |ms: u64| ((ms - lowest) as usize * steps / range).min(steps - 1);
    for row in 0..ROWS {
        let below = (ROWS - row - 1) * HEIGHTS.len();
        let column = |ms: u64| match step(ms).checked_sub(below) {
            None => ' ',
            Some(height) => HEIGHTS.get(height).copied().unwrap_or('|'),
        };
        text.extend(samples.iter().map(|(ms, _)| column(*ms)));
        text.push('\n');
    }
    text.extend(std::iter::repeat_n(' ', samples.len()));
    text.push('\n');
    let label_len_max = samples.iter().map(|(_, label)| label.len()).max().unwrap_or(0);
    for line in 0..label_len_max {
        text.extend(
            samples.iter().map(|(_, label)| label.as_bytes().get(line).map_or(' ', |c| char::from(*c))),
        );
        text.push('\n');
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn graphs_are_drawn_as_valkey_draws_them() {
        let mut monitor = LatencyMonitor::default();
        for (ms, at_s) in [(100, 1000), (150, 1030), (400, 1060), (250, 4600)] {
            monitor.add("command", ms, at_s);
        }
        let lines = [
            "command - high 400 ms, low 100 ms (all time high 400 ms)",
            &"-".repeat(80),
            "  # ",
            "  |_",
            "  ||",
            "_#||",
            "    ",
            "1553",
            "h99s",
            " mm ",
        ];
        let drawn = graph(monitor.find(b"command").expect("the series"), 4603);
        assert_eq!(drawn.lines().collect::<Vec<_>>(), lines);
    }

    #[test]
    fn the_doctor_advises_what_helps() {
        let mut settings = Observation::default();
        let mut monitor = LatencyMonitor::default();
        assert!(doctor(&monitor, &settings, 0).contains("monitoring is disabled"));
        settings.latency_threshold_ms = 5;
        assert!(doctor(&monitor, &settings, 0).contains("No latency spike was observed"));
        monitor.add("command", 20, 100);
        monitor.add("expire-cycle", 6, 100);
        let report = doctor(&monitor, &settings, 110);
        for part in [
            "1. command: 1 latency spikes (average 20ms, mean deviation 0ms, period 10.00 sec). Worst all time event 20ms.",
            "2. expire-cycle: 1 latency",
            "'CONFIG SET slowlog-log-slower-than 5000'",
            "Check your Slow Log",
            "spread their deadlines",
        ] {
            assert!(report.contains(part), "{part} is not in\n{report}");
        }
        assert!(!report.contains("does not provide"));
        settings.slow_len_max = 0;
        assert!(doctor(&monitor, &settings, 110).contains("Try to enable the Slow Log"));
    }
}
