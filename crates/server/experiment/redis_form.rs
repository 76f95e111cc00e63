//! A distribution of latencies in the form in which redis-benchmark prints it.

use std::fmt::Write;

use super::load::Test;

/// redis-benchmark tells times apart by 8 µs, and above 16 ms by a two-thousandth of the time.
const STEP_US: u64 = 8;
const STEPS: u64 = 2048;
/// Between two lines of the second list, and from 2 ms on.
const FINE_US: u64 = 100;
const COARSE_US: u64 = 1000;
const FINE_UNTIL_US: u64 = 2000;

/// The greatest time that redis-benchmark takes for the same as this one, in microseconds.
fn equivalent_us(us: u64) -> u64 {
    let mut step = STEP_US;
    while us >= step * STEPS {
        step *= 2;
    }
    us / step * step + step - 1
}

/// Times in steps of redis-benchmark and how many requests took up to so long, from the fastest to the slowest.
fn cumulative(test: &Test) -> Vec<(u64, u64)> {
    let mut list: Vec<(u64, u64)> = Vec::new();
    let mut sum = 0;
    for &(us, count) in test.histogram.iter().filter(|(_, count)| *count > 0) {
        sum += count;
        let us = equivalent_us(us.max(0.0) as u64);
        match list.last_mut() {
            Some(last) if last.0 == us => last.1 = sum,
            _ => list.push((us, sum)),
        }
    }
    list
}

/// The head, both lists and the summary.
pub(super) fn text(test: &Test) -> String {
    let list = cumulative(test);
    let mut text = format!("====== {} ======\n", test.title);
    let _ = writeln!(text, "  {} requests completed in {:.2} seconds", test.requests, test.seconds);
    let _ = writeln!(text, "  {} parallel clients", test.clients);
    let _ = writeln!(text, "  {} bytes payload", test.data_size);
    let _ = writeln!(text, "  keep alive: 1");
    for (name, value) in &test.host_configuration {
        let _ = writeln!(text, "  host configuration \"{name}\": {value}");
    }
    let _ = writeln!(text, "  multi-thread: {}", if test.threads > 1 { "yes" } else { "no" });
    if test.threads > 1 {
        let _ = writeln!(text, "  threads: {}", test.threads);
    }
    text.push_str("\nLatency by percentile distribution:\n");
    by_percentile(&mut text, &list);
    text.push_str("\nCumulative distribution of latencies:\n");
    by_time(&mut text, &list);
    let latency = &test.latency_ms;
    let _ = writeln!(
        text,
        "\nSummary:\n  throughput summary: {:.2} requests per second\n  latency summary (msec):\n\
         {:>13} {:>9} {:>9} {:>9} {:>9} {:>9}",
        test.requests_per_second, "avg", "min", "p50", "p95", "p99", "max"
    );
    let _ = writeln!(
        text,
        "{:>13.3} {:>9.3} {:>9.3} {:>9.3} {:>9.3} {:>9.3}",
        latency.avg, latency.min, latency.p50, latency.p95, latency.p99, latency.max
    );
    text
}

fn line(text: &mut String, percent: f64, us: u64, count: u64) {
    let _ =
        writeln!(text, "{percent:.3}% <= {:.3} milliseconds (cumulative count {count})", us as f64 / 1000.0);
}

/// A line for each halving of what is left above: 0, 50, 75, 87.5 % and so on; the first of those that fall on one time.
fn by_percentile(text: &mut String, list: &[(u64, u64)]) {
    let total = list.last().map_or(0, |(_, count)| *count);
    let mut aim = 0.0_f64;
    for &(us, count) in list {
        let reached = count as f64 / total as f64 * 100.0;
        if reached < aim {
            continue;
        }
        line(text, aim, us, count);
        while aim <= reached && aim < 100.0 {
            aim = next_aim(aim);
        }
    }
    if let Some(&(us, count)) = list.last() {
        line(text, 100.0, us, count);
    }
}

/// Half way from here to the next power of two below what is left: 0, 50, 75, 87.5 and so on.
fn next_aim(percent: f64) -> f64 {
    let left = 100.0 / (100.0 - percent);
    percent + 100.0 / 2_f64.powf(left.log2().floor() + 1.0)
}

/// A line for every tenth of a millisecond, and from two on for every one, where the count has grown.
fn by_time(text: &mut String, list: &[(u64, u64)]) {
    let total = list.last().map_or(0, |(_, count)| *count);
    let (mut at, mut shown, mut until) = (0, None, FINE_US);
    loop {
        let limit = equivalent_us(until);
        while at < list.len() && list[at].0 <= limit {
            at += 1;
        }
        let count = if at == 0 { 0 } else { list[at - 1].1 };
        if shown != Some(count) {
            line(text, count as f64 / total.max(1) as f64 * 100.0, limit, count);
            shown = Some(count);
        }
        if at == list.len() {
            return;
        }
        until += if until > FINE_UNTIL_US { COARSE_US } else { FINE_US };
    }
}

/// Between two points of a picture, in percent: less cannot be seen.
const POINT_PERCENT: f64 = 0.1;

/// Percent of the requests by microseconds, for a picture.
pub(super) fn points(test: &Test) -> Vec<(f64, f64)> {
    let total = test.histogram.iter().map(|(_, count)| count).sum::<u64>().max(1) as f64;
    let mut points: Vec<(f64, f64)> = Vec::new();
    let (mut sum, last) = (0, test.histogram.len().saturating_sub(1));
    for (at, (us, count)) in test.histogram.iter().enumerate() {
        sum += count;
        let percent = sum as f64 / total * 100.0;
        if at == last || points.last().is_none_or(|(_, before)| percent - before >= POINT_PERCENT) {
            points.push((*us, percent));
        }
    }
    points
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_the_steps_of_redis_benchmark() {
        for (us, expected) in
            [(0, 7), (32, 39), (100, 103), (200, 207), (2100, 2103), (16_384, 16_399), (9583, 9583)]
        {
            assert_eq!(equivalent_us(us), expected, "{us}");
        }
    }

    #[test]
    fn percentiles_are_halved_and_times_counted_up() {
        let list = [(39, 1), (127, 60), (143, 90), (2407, 99), (9583, 100)];
        let mut text = String::new();
        by_percentile(&mut text, &list);
        let halved = "0.000% <= 0.039 milliseconds (cumulative count 1)\n\
                      50.000% <= 0.127 milliseconds (cumulative count 60)\n\
                      75.000% <= 0.143 milliseconds (cumulative count 90)\n\
                      93.750% <= 2.407 milliseconds (cumulative count 99)\n\
                      99.219% <= 9.583 milliseconds (cumulative count 100)\n\
                      100.000% <= 9.583 milliseconds (cumulative count 100)\n";
        assert_eq!(text, halved);
        text.clear();
        by_time(&mut text, &list);
        let counted = "1.000% <= 0.103 milliseconds (cumulative count 1)\n\
                       90.000% <= 0.207 milliseconds (cumulative count 90)\n\
                       99.000% <= 3.103 milliseconds (cumulative count 99)\n\
                       100.000% <= 10.103 milliseconds (cumulative count 100)\n";
        assert_eq!(text, counted);
    }
}
