//! INFO's sections on commands: how often they ran, how long they took, and which errors they answered.

use super::info::{Totals, field};
use crate::command_stats::{CommandStats, ErrorCounts};
use crate::figures::command_names;

/// Sections that INFO shows only when asked for, by name or with all others.
pub(super) const ON_REQUEST: [&str; 2] = ["Commandstats", "Latencystats"];

fn summed(totals: &Totals<'_>) -> CommandStats {
    CommandStats::sum(totals.shards.iter().filter_map(|shard| shard.commands.as_ref()))
}

/// `cmdstat_<command>`, for each that was called or refused.
pub(super) fn command_stats(totals: &Totals<'_>, out: &mut String) {
    let stats = summed(totals);
    for (number, name) in command_names() {
        let count = stats.count(number);
        if count.calls == 0 && count.rejected == 0 && count.failed == 0 {
            continue;
        }
        let us_per_call = count.ns as f64 / 1000.0 / count.calls.max(1) as f64;
        field(
            out,
            &format!("cmdstat_{name}"),
            format_args!(
                "calls={},usec={},usec_per_call={us_per_call:.2},rejected_calls={},failed_calls={}",
                count.calls,
                count.ns / 1000,
                count.rejected,
                count.failed,
            ),
        );
    }
}

/// `errorstat_<code>`, for each first word of an error.
pub(super) fn error_stats(totals: &Totals<'_>, out: &mut String) {
    for (code, count) in ErrorCounts::sum(totals.shards.iter().map(|shard| &shard.stats.errors_by_code)) {
        let code = String::from_utf8_lossy(&code).replace(['#', ':', '\n', '\r'], "_");
        field(out, &format!("errorstat_{code}"), format_args!("count={count}"));
    }
}

/// `latency_percentiles_usec_<command>`, for each whose durations were counted.
pub(super) fn latency_stats(totals: &Totals<'_>, out: &mut String) {
    let settings = &totals.first.settings.observation;
    if !settings.latency_tracking {
        return;
    }
    let percentiles = &settings.latency_percentiles;
    let stats = summed(totals);
    for (number, name) in command_names() {
        let Some(histogram) = stats.histogram(number) else { continue };
        let shown: Vec<String> = percentiles
            .iter()
            .map(|percent| {
                let us = histogram.percentile_ns(*percent) as f64 / 1000.0;
                format!("p{}={us:.3}", percent_text(*percent))
            })
            .collect();
        field(out, &format!("latency_percentiles_usec_{name}"), shown.join(","));
    }
}

/// Six decimals without the zeros at their end.
fn percent_text(percent: f64) -> String {
    let text = format!("{percent:.6}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

#[cfg(test)]
mod tests {
    use super::percent_text;
    use crate::commands::testing::Bench;
    use crate::figures::command_names;
    use crate::histogram::Coarse;

    fn info(bench: &mut Bench, section: &str) -> Vec<String> {
        let text = bench.run(&format!("INFO {section}"));
        let text = text.trim_matches('"').replace("\\r\\n", "\n");
        text.lines().filter(|line| !line.starts_with('#')).map(str::to_owned).collect()
    }

    #[test]
    fn calls_are_counted_where_they_run_and_told_as_one_server() {
        for shards in [1, 2, 5] {
            let mut bench = Bench::new(shards);
            for number in 0..10 {
                bench.run(&format!("SET key{number} x\nGET key{number}"));
            }
            bench.run("MSET key1 a key2 b key3 c\nMGET key1 key2 key3\nRENAME key1 key2\nRENAME nokey key2");
            bench.run(
                "INCR key3\nGET\nCONFIG GET\nCONFIG GET x\nCONFIG\nNOTHING\nSET a b EX 0\nGETEX key5 EX -1",
            );
            let stats = info(&mut bench, "commandstats");
            let of = |name: &str| {
                let prefix = format!("cmdstat_{name}:");
                let line = stats.iter().find_map(|line| line.strip_prefix(&prefix)).unwrap_or_default();
                let kept: Vec<&str> = line.split(',').filter(|part| !part.starts_with("usec")).collect();
                kept.join(",")
            };
            for (name, expected) in [
                ("set", "calls=11,rejected_calls=0,failed_calls=1"),
                ("get", "calls=10,rejected_calls=1,failed_calls=0"),
                ("mset", "calls=1,rejected_calls=0,failed_calls=0"),
                ("mget", "calls=1,rejected_calls=0,failed_calls=0"),
                ("rename", "calls=2,rejected_calls=0,failed_calls=1"),
                ("incr", "calls=1,rejected_calls=0,failed_calls=1"),
                ("getex", "calls=1,rejected_calls=0,failed_calls=1"),
                ("config|get", "calls=1,rejected_calls=1,failed_calls=0"),
                ("config", "calls=0,rejected_calls=1,failed_calls=0"),
                ("del", ""),
            ] {
                assert_eq!(of(name), expected, "{name} on {shards} shards");
            }
            let get = stats.iter().find(|line| line.starts_with("cmdstat_get:")).expect("GET was called");
            assert!(get.contains("calls=10,usec=10,usec_per_call=1.00,"), "{get}");
            assert_eq!(info(&mut bench, "errorstats"), ["errorstat_ERR:count=8"], "{shards} shards");
            bench.run("CONFIG RESETSTAT");
            assert_eq!(info(&mut bench, "errorstats"), [""; 0]);
            let stats = info(&mut bench, "commandstats");
            assert!(!stats.iter().any(|line| line.contains("cmdstat_get:")), "{stats:?}");
        }
    }

    #[test]
    fn calls_of_a_pipeline_are_exact() {
        for shards in [1, 2, 5] {
            let mut bench = Bench::new(shards);
            let mut input = Vec::new();
            for number in 0..100 {
                let line = ["GET key", "STRLEN key", "SET key 1", "GET other", "INCR key"][number % 5];
                input.extend_from_slice(format!("{line}{}\r\n", number % 7).as_bytes());
            }
            bench.exchange(&input);
            let stats = info(&mut bench, "commandstats");
            for (name, calls) in [("get", 40), ("strlen", 20), ("set", 20), ("incr", 20)] {
                let start = format!("cmdstat_{name}:calls={calls},");
                assert!(stats.iter().any(|line| line.starts_with(&start)), "{start} is not in {stats:?}");
            }
        }
    }

    #[test]
    fn percentiles_are_told_as_set() {
        let mut bench = Bench::new(2);
        bench.run("SET k v\nDEBUG SLEEP 0.5");
        let stats = info(&mut bench, "latencystats");
        assert!(
            stats.contains(&"latency_percentiles_usec_set:p50=1.003,p99=1.003,p99.9=1.003".to_owned()),
            "{stats:?}"
        );
        let debug = "latency_percentiles_usec_debug:p50=501219.327,p99=501219.327,p99.9=501219.327";
        assert!(stats.contains(&debug.to_owned()), "{stats:?}");
        assert_eq!(
            ["50", "99.9", "0", "0.0001", "100"],
            [50.0, 99.9, 0.0, 0.0001, 100.0].map(percent_text)[..]
        );
    }

    #[test]
    fn long_sections_are_shown_on_request_only() {
        let mut bench = Bench::new(2);
        bench.run("PING\nGET");
        for (words, shown) in
            [("", false), ("default", false), ("all", true), ("everything", true), ("latencystats", true)]
        {
            let text = bench.run(&format!("INFO {words}"));
            assert_eq!(text.contains("# Latencystats"), shown, "INFO {words}");
            assert_eq!(text.contains("cmdstat_ping"), shown && words != "latencystats", "INFO {words}");
            assert_eq!(text.contains("errorstat_ERR:count=1"), words != "latencystats", "INFO {words}");
        }
    }

    #[test]
    fn shards_tell_a_watching_thread_the_same() {
        let mut bench = Bench::new(2);
        for key in 0..10 {
            bench.run(&format!("SET key{key} x\nGET key{key}\nGET no{key}"));
        }
        bench.run("GET\nCONFIG GET port");
        let figures: Vec<_> = bench.nodes.iter_mut().map(|node| node.figures()).collect();
        assert_eq!([figures[0].shard.0, figures[1].shard.0], [0, 1]);
        assert_eq!(figures.iter().map(|shard| shard.dbs[0].keys).sum::<u64>(), 10);
        assert_eq!(figures.iter().map(|shard| shard.stats.hits).sum::<u64>(), 10);
        assert_eq!(figures.iter().map(|shard| shard.stats.misses).sum::<u64>(), 10);
        assert_eq!(figures.iter().map(|shard| shard.clients.connections).sum::<usize>(), 1);
        for (name, calls, rejected) in [("get", 20, 1), ("set", 10, 0), ("config|get", 1, 0)] {
            let (number, _) = command_names().find(|(_, known)| known == name).expect("a command");
            let all = figures.iter().flat_map(|shard| &shard.commands);
            let (mut seen, mut durations) = ([0; 2], 0);
            for command in all.filter(|command| command.number == number) {
                seen[0] += command.count.calls;
                seen[1] += command.count.rejected;
                durations += command.durations.as_ref().map_or(0, Coarse::total);
            }
            assert_eq!((seen, durations), ([calls, rejected], calls), "{name}");
        }
    }
}
