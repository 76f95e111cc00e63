//! LATENCY: what took longer than `latency-monitor-threshold`, and how durations are spread.
//!
//! The events that exist here are `command`, `fast-command` (of commands flagged so) and `expire-cycle`. Each shard keeps
//! what happened on it; all are asked, and what they tell becomes one.

use super::commandlog::{OPERATOR, for_operators};
use super::help;
use super::{full_name, latency_report, numbered};
use crate::args::Args;
use crate::command::{Command, Flags, Flow, Merge, MergeFn, Plan};
use crate::command_stats::CommandStats;
use crate::commands::CommandNumber;
use crate::ctx::{Ctx, PartResult, Payload, SessionCtx};
use crate::errors::Error;
use crate::latency_monitor::{LatencyMonitor, LatencyPart};
use corelane_resp::Reply;

const TIPS: &[&str] = &["nondeterministic_output", "request_policy:all_nodes", "response_policy:special"];

const fn on_latency(name: &'static str, arity: i16, write: MergeFn, summary: &'static str) -> Command {
    Command {
        flags: OPERATOR.with(Flags::NOSCRIPT),
        since: "2.8.13",
        summary,
        tips: TIPS,
        ..for_operators(name, arity, Plan::EachShard { part: tell, merge: Merge::With(write) })
    }
}

pub(super) const COMMANDS: &[Command] = &[Command {
    name: "latency",
    arity: -2,
    since: "2.8.13",
    group: "server",
    summary: "A container for latency diagnostics commands.",
    complexity: "Depends on subcommand.",
    subcommands: &[
        on_latency("doctor", 2, doctor, "Returns a human-readable latency analysis report."),
        Command { syntax: "event", ..on_latency("graph", 3, graph, "Returns a latency graph for an event.") },
        Command {
            flags: Flags::LOADING.with(Flags::STALE),
            since: "2.8.13",
            summary: "Returns helpful text about the different subcommands.",
            ..for_operators("help", 2, Plan::Session(help))
        },
        Command {
            since: "7.0.0",
            plan: Plan::EachShard { part: durations, merge: Merge::With(write_histograms) },
            complexity: "O(N) where N is the number of commands with latency information being retrieved.",
            syntax: "[command ...]",
            ..on_latency(
                "histogram",
                -2,
                write_histograms,
                "Returns the cumulative distribution of latencies of a subset or all commands.",
            )
        },
        Command {
            syntax: "event",
            ..on_latency("history", 3, history, "Returns timestamp-latency samples for an event.")
        },
        on_latency("latest", 2, latest, "Returns the latest latency samples for all events."),
        Command {
            syntax: "[event [event ...]]",
            plan: Plan::EachShard { part: reset, merge: Merge::With(write_reset) },
            tips: &["request_policy:all_nodes", "response_policy:agg_sum"],
            ..on_latency("reset", -2, write_reset, "Resets the latency data for one or more events.")
        },
    ],
    ..Command::DEFAULT
}];

fn tell(ctx: &mut Ctx<'_>, _: Args<'_>, _: &mut Reply) -> Result<Flow, Error> {
    ctx.payload = Payload::Latency(Box::new(LatencyPart {
        monitor: ctx.shard.journal.latency.clone(),
        settings: ctx.shard.settings.observation.clone(),
        now_s: ctx.shard.wall.shows_at(ctx.now) / 1000,
    }));
    Ok(Flow::Done)
}

fn told(parts: &[PartResult]) -> impl Iterator<Item = &LatencyPart> {
    parts.iter().filter_map(|part| match &part.payload {
        Payload::Latency(part) => Some(&**part),
        _ => None,
    })
}

fn events(parts: &[PartResult]) -> LatencyMonitor {
    LatencyMonitor::merged(told(parts).map(|part| &part.monitor))
}

fn now_s(parts: &[PartResult]) -> u64 {
    told(parts).map(|part| part.now_s).max().unwrap_or(0)
}

fn doctor(parts: &[PartResult], _: Args<'_>, reply: &mut Reply) {
    if let Some(first) = told(parts).next() {
        reply.verbatim("txt", &latency_report::doctor(&events(parts), &first.settings, now_s(parts)));
    }
}

fn graph(parts: &[PartResult], args: Args<'_>, reply: &mut Reply) {
    let event = args.at(2);
    match events(parts).find(event) {
        Some(series) => reply.verbatim("txt", &latency_report::graph(series, now_s(parts))),
        None => {
            let error = Error::echo("ERR No samples available for event '", event, "'");
            reply.error_bytes(&error.wire());
        }
    }
}

fn history(parts: &[PartResult], args: Args<'_>, reply: &mut Reply) {
    let events = events(parts);
    let series = events.find(args.at(2));
    reply.array(series.map_or(0, |series| series.samples().count()));
    for sample in series.into_iter().flat_map(|series| series.samples()) {
        reply.array(2);
        reply.int(sample.at_s as i64);
        reply.int(sample.ms as i64);
    }
}

fn latest(parts: &[PartResult], _: Args<'_>, reply: &mut Reply) {
    let events = events(parts);
    reply.array(events.all().len());
    for series in events.all() {
        let latest = series.latest();
        reply.array(6);
        reply.bulk(series.event.as_bytes());
        for number in [latest.at_s, latest.ms, series.ms_max, series.ms_sum, series.count] {
            reply.int(number as i64);
        }
    }
}

fn is_named(event: &str, args: Args<'_>) -> bool {
    args.len() == 2 || args.iter_from(2).any(|name| name == event.as_bytes())
}

/// Tells what there was, then forgets it.
fn reset(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply) -> Result<Flow, Error> {
    tell(ctx, args, reply)?;
    ctx.shard.journal.latency.retain(|event| !is_named(event, args));
    Ok(Flow::Done)
}

fn write_reset(parts: &[PartResult], args: Args<'_>, reply: &mut Reply) {
    let events = events(parts);
    reply.int(events.all().iter().filter(|series| is_named(series.event, args)).count() as i64);
}

fn durations(ctx: &mut Ctx<'_>, _: Args<'_>, _: &mut Reply) -> Result<Flow, Error> {
    ctx.payload = Payload::Commands(Box::new(ctx.shard.timing.commands.clone()));
    Ok(Flow::Done)
}

fn write_histograms(parts: &[PartResult], args: Args<'_>, reply: &mut Reply) {
    let stats = CommandStats::sum(parts.iter().filter_map(|part| match &part.payload {
        Payload::Commands(commands) => Some(&**commands),
        _ => None,
    }));
    let all: Vec<(String, &str, CommandNumber)> = numbered()
        .enumerate()
        .map(|(number, (container, command))| {
            let name = full_name(container, command);
            (name, container.map_or(command.name, |container| container.name), CommandNumber(number as u16))
        })
        .filter(|(.., number)| stats.histogram(*number).is_some())
        .collect();
    let asked_for = |word: &[u8], (name, container, _): &(String, &str, CommandNumber)| {
        [name.as_str(), container].iter().any(|name| name.as_bytes().eq_ignore_ascii_case(word))
    };
    let chosen: Vec<&(String, &str, CommandNumber)> = match args.len() {
        2 => all.iter().collect(),
        _ => args.iter_from(2).flat_map(|word| all.iter().filter(move |one| asked_for(word, one))).collect(),
    };
    reply.map(chosen.len());
    for (name, _, number) in chosen {
        let Some(histogram) = stats.histogram(*number) else { continue };
        reply.bulk(name.as_bytes());
        reply.map(2);
        reply.bulk(b"calls");
        reply.int(histogram.total() as i64);
        reply.bulk(b"histogram_usec");
        let steps = histogram.cumulative_us();
        reply.map(steps.len());
        for (us, count) in steps {
            reply.int(us as i64);
            reply.int(count as i64);
        }
    }
}

fn help(_: &mut SessionCtx<'_>, args: Args<'_>, reply: &mut Reply) -> Result<(), Error> {
    const LINES: &[&str] = &[
        "DOCTOR",
        "    Return a human readable latency analysis report.",
        "GRAPH <event>",
        "    Return an ASCII latency graph for the <event> class.",
        "HISTORY <event>",
        "    Return time-latency samples for the <event> class.",
        "LATEST",
        "    Return the latest latency samples for all events.",
        "RESET [<event> ...]",
        "    Reset latency data of one or more <event> classes.",
        "    (default: reset all data for all event classes)",
        "HISTOGRAM [COMMAND ...]",
        "    Return a cumulative distribution of latencies in the format of a histogram for the specified command names.",
        "    If no commands are specified then all histograms are replied.",
    ];
    help::write(LINES, args, reply);
    Ok(())
}

#[cfg(test)]
mod tests {
    use crate::commands::testing::{Bench, check_all};
    use crate::settings::Observation;

    #[test]
    fn without_events_there_is_nothing_to_tell() {
        check_all(&[
            ("LATENCY LATEST", "[]"),
            ("LATENCY HISTORY command", "[]"),
            ("LATENCY GRAPH command", "-ERR No samples available for event 'command'"),
            ("LATENCY RESET", ":0"),
            ("LATENCY RESET command fast-command", ":0"),
            ("LATENCY HISTOGRAM nothing", "[]"),
        ]);
    }

    #[test]
    fn slow_commands_are_events() {
        for shards in [1, 2, 5] {
            let observation = Observation { latency_threshold_ms: 10, ..Observation::default() };
            let mut bench = Bench::with(shards, observation);
            bench.run("DEBUG SLEEP 0.03\nDEBUG SLEEP 0.02\nDEBUG SLEEP 0.001");
            bench.now += 2000;
            bench.run("DEBUG SLEEP 0.015");
            let latest = "[[\"command\", :1700000002, :15, :30, :65, :3]]";
            assert_eq!(bench.run("LATENCY LATEST"), latest, "{shards} shards");
            assert_eq!(bench.run("LATENCY HISTORY command"), "[[:1700000000, :30], [:1700000002, :15]]");
            assert_eq!(bench.run("LATENCY RESET fast-command command"), ":1");
            assert_eq!(bench.run("LATENCY LATEST"), "[]");
        }
    }

    #[test]
    fn durations_are_summed_over_shards() {
        for shards in [1, 2, 5] {
            let mut bench = Bench::new(shards);
            for number in 0..20 {
                bench.run(&format!("SET key{number} x"));
            }
            bench.run("MGET key1 key2 key3 key4\nCONFIG GET x\nDEBUG SLEEP 0.02");
            // A single command takes the microsecond between two readings; 1000 ns fall below the first step.
            let sets = "[\"set\", [\"calls\", :20, \"histogram_usec\", [:1, :20]]]";
            assert_eq!(bench.run("LATENCY HISTOGRAM set nothing"), sets, "{shards} shards");
            let config = "[\"config|get\", [\"calls\", :1, \"histogram_usec\", [:1, :1]]]";
            assert_eq!(bench.run("LATENCY HISTOGRAM CONFIG"), config);
            assert_eq!(bench.run("LATENCY HISTOGRAM config|get"), config);
            let debug = "[\"debug\", [\"calls\", :1, \"histogram_usec\", [:33816, :1]]]";
            assert_eq!(bench.run("LATENCY HISTOGRAM debug"), debug);
            assert!(bench.run("LATENCY HISTOGRAM mget").contains("\"calls\", :1,"));
            let all = bench.run("LATENCY HISTOGRAM");
            assert!(all.contains("\"set\"") && all.contains("\"latency|histogram\""), "{all}");
            bench.run("CONFIG RESETSTAT");
            assert_eq!(bench.run("LATENCY HISTOGRAM set"), "[]");
        }
    }
}
