//! Which metrics there are: from a sample of all shards to families.

use std::collections::BTreeMap;

use corelane_engine::{
    Coarse, CommandCount, CommandNumber, ErrorCounts, ServerMemory, ShardFigures, TurnHistogram,
    command_names,
};

use super::family::{Family, Kind, Point, Value, label};
use super::gather::Sample;
use crate::flags;

type Figure = fn(&ShardFigures) -> u64;

/// What each shard counts: name, unit, what it is, where it stands.
const COUNTERS: &[(&str, &str, &str, Figure)] = &[
    ("corelane_shard_commands", "", "Commands run for the shard's clients.", |shard| shard.stats.commands),
    ("corelane_shard_connections_received", "", "Connections accepted.", |shard| {
        shard.stats.connections_received
    }),
    ("corelane_shard_connections_rejected", "", "Connections refused because of maxclients.", |shard| {
        shard.stats.connections_rejected
    }),
    ("corelane_shard_received_bytes", "bytes", "Bytes received from clients.", |shard| shard.stats.bytes_in),
    ("corelane_shard_sent_bytes", "bytes", "Bytes sent to clients.", |shard| shard.stats.bytes_out),
    ("corelane_shard_keyspace_hits", "", "Reads of keys that were there.", |shard| shard.stats.hits),
    ("corelane_shard_keyspace_misses", "", "Reads of keys that were not there.", |shard| shard.stats.misses),
    ("corelane_shard_expired_keys", "", "Keys whose time came.", |shard| shard.expired),
    ("corelane_shard_expired_fields", "", "Fields of hashes whose time came.", |shard| shard.expired_fields),
    ("corelane_shard_error_replies", "", "Error replies.", |shard| shard.stats.errors),
    ("corelane_shard_logins_failed", "", "Wrong names or passwords.", |shard| shard.stats.logins_failed),
    (
        "corelane_shard_output_limit_disconnections",
        "",
        "Clients dropped at their output-buffer limit.",
        |shard| shard.stats.output_limit_disconnections,
    ),
    (
        "corelane_shard_query_limit_disconnections",
        "",
        "Clients dropped at their query-buffer limit.",
        |shard| shard.stats.query_limit_disconnections,
    ),
    ("corelane_shard_hops_received", "", "Commands run here for clients of other shards.", |shard| {
        shard.stats.hops_in
    }),
    ("corelane_shard_hops_sent", "", "Commands sent to other shards.", |shard| shard.stats.hops_out),
    ("corelane_shard_messages", "", "Messages of other shards taken from the mailboxes.", |shard| {
        shard.stats.mail
    }),
    ("corelane_shard_mailbox_full", "", "Turns that could not send because a mailbox was full.", |shard| {
        shard.stats.mailbox_full
    }),
    ("corelane_shard_transactions", "", "Commands over several shards coordinated here.", |shard| {
        shard.stats.transactions
    }),
    ("corelane_shard_transaction_retries", "", "Of these, those that met a conflict.", |shard| {
        shard.stats.transaction_retries
    }),
    ("corelane_shard_commands_waited", "", "Commands that waited behind one over several shards.", |shard| {
        shard.stats.waited
    }),
    ("corelane_shard_wakes_sent", "", "Wake-ups sent to other shards.", |shard| shard.stats.wakes_sent),
    ("corelane_shard_parks", "", "Times the shard parked in its executor.", |shard| shard.stats.parks),
    ("corelane_shard_ring_waits", "", "Times the shard waited in its socket ring.", |shard| {
        shard.stats.ring_waits
    }),
    ("corelane_shard_ring_submissions", "", "Entries submitted to the socket ring.", |shard| {
        shard.stats.ring_submissions
    }),
    ("corelane_shard_ring_completions", "", "Completions reaped from the socket ring.", |shard| {
        shard.stats.ring_completions
    }),
    ("corelane_shard_buffer_shortages", "", "Receives that found no buffer.", |shard| {
        shard.stats.buffer_shortages
    }),
];

/// What each shard has now.
const GAUGES: &[(&str, &str, &str, Figure)] = &[
    (
        "corelane_shard_away",
        "",
        "1 while the shard may run on other CPUs than its own, which others use.",
        |shard| shard.stats.away,
    ),
    ("corelane_shard_connections", "", "Connections open.", |shard| shard.clients.connections as u64),
    ("corelane_shard_blocked_clients", "", "Clients that a command blocks.", |shard| {
        shard.clients.blocked as u64
    }),
    ("corelane_shard_subscribed_clients", "", "Clients that listen to channels.", |shard| {
        shard.clients.subscribed as u64
    }),
    ("corelane_shard_channels", "", "Channels with subscribers.", |shard| shard.channels as u64),
    (
        "corelane_shard_messages_waiting",
        "",
        "Messages of other shards that the last turn with any found.",
        |shard| shard.stats.mail_waiting,
    ),
    ("corelane_shard_messages_waiting_max", "", "The most messages that a turn ever found.", |shard| {
        shard.stats.mail_waiting_max
    }),
    ("corelane_shard_keys_to_be_freed", "", "Flushed keys whose memory is still to be freed.", |shard| {
        shard.pending_frees
    }),
];

/// Bounds of the histogram of turns: powers of two of microseconds up to half a second.
const TURN_OCTAVES: std::ops::Range<u32> = 0..20;
/// Those of commands, of nanoseconds: from 256 ns to a second.
const COMMAND_OCTAVES: std::ops::RangeInclusive<u32> = 8..=30;

/// All metrics.
pub(super) fn families(sample: &Sample) -> Vec<Family> {
    let mut families = about_process(sample);
    let up = sample.shards.iter().enumerate().map(|(shard, figures)| Point {
        labels: label("shard", shard),
        value: Value::Whole(figures.is_some().into()),
    });
    families.push(Family {
        name: "corelane_shard_up",
        unit: "",
        kind: Kind::Gauge,
        help: "Whether the shard has answered within a second.",
        points: up.collect(),
    });
    for (kind, table) in [(Kind::Counter, COUNTERS), (Kind::Gauge, GAUGES)] {
        families.extend(table.iter().map(|&(name, unit, help, of)| Family {
            name,
            unit,
            kind,
            help,
            points: sample.figures().map(|shard| whole(shard, &[], of(shard))).collect(),
        }));
    }
    families.extend(of_shards(sample));
    families.extend(of_commands(sample));
    families
}

fn whole(shard: &ShardFigures, more: &[String], value: u64) -> Point {
    let labels = std::iter::once(label("shard", shard.shard.0)).chain(more.iter().cloned());
    Point { labels: labels.collect::<Vec<_>>().join(","), value: Value::Whole(value) }
}

/// One value without labels, if it is known.
fn single(
    name: &'static str,
    unit: &'static str,
    kind: Kind,
    help: &'static str,
    value: Option<Value>,
) -> Family {
    let points = value.map(|value| Point { labels: String::new(), value });
    Family { name, unit, kind, help, points: points.into_iter().collect() }
}

fn about_process(sample: &Sample) -> Vec<Family> {
    let most = |of: Figure| sample.figures().map(of).max().map(Value::Whole);
    let cpu_us = sample.figures().map(|shard| shard.process.cpu_user_us + shard.process.cpu_sys_us).max();
    let memory = ServerMemory::sum(sample.figures().map(|shard| &shard.memory));
    let bytes = |name, help, value| {
        single(name, "bytes", Kind::Gauge, help, sample.is_whole().then_some(Value::Whole(value)))
    };
    vec![
        Family {
            name: "corelane_build",
            unit: "",
            kind: Kind::Info,
            help: "The program.",
            points: vec![Point { labels: label("version", flags::VERSION), value: Value::Whole(1) }],
        },
        single("corelane_shards", "", Kind::Gauge, "Shards.", Some(Value::Whole(sample.shards.len() as u64))),
        single(
            "corelane_clients_max",
            "",
            Kind::Gauge,
            "Clients that the server takes.",
            most(|shard| shard.maxclients.into()),
        ),
        bytes("corelane_memory_used_bytes", "Keys, values, tables and clients.", memory.used()),
        bytes("corelane_memory_peak_bytes", "The most that was used, shard by shard.", memory.peak),
        bytes(
            "corelane_memory_committed_bytes",
            "What the allocator has from the system.",
            memory.committed(),
        ),
        single(
            "process_resident_memory_bytes",
            "bytes",
            Kind::Gauge,
            "Resident memory.",
            most(|shard| shard.process.rss_bytes),
        ),
        single(
            "process_cpu_seconds",
            "seconds",
            Kind::Counter,
            "Processor time of all threads.",
            cpu_us.map(|us| Value::Number(us as f64 / 1e6)),
        ),
        single(
            "process_start_time_seconds",
            "seconds",
            Kind::Gauge,
            "When the process started, in Unix time.",
            Some(Value::Number(sample.started_s)),
        ),
    ]
}

/// What needs further labels, or is no whole number.
fn of_shards(sample: &Sample) -> Vec<Family> {
    let family = |name, unit, kind, help, points| Family { name, unit, kind, help, points };
    let (mut keys, mut deadlines, mut memory, mut cpu) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    let (mut turns, mut longest) = (Vec::new(), Vec::new());
    for shard in sample.figures() {
        for (number, db) in shard.dbs.iter().enumerate().filter(|(number, db)| *number == 0 || db.keys > 0) {
            let db_label = [label("db", number)];
            keys.push(whole(shard, &db_label, db.keys));
            deadlines.push(whole(shard, &db_label, db.expires));
        }
        let used = ServerMemory::sum(std::iter::once(&shard.memory));
        let rest = used.overhead() - used.tables() - used.clients;
        let parts = [
            ("keys", used.dataset()),
            ("tables", used.tables()),
            ("clients", used.clients),
            ("deadlines", rest),
        ];
        memory.extend(parts.map(|(part, bytes)| whole(shard, &[label("part", part)], bytes)));
        let labels = label("shard", shard.shard.0);
        if let Some(us) = sample.cpu_us.get(&usize::from(shard.shard.0)) {
            cpu.push(Point { labels: labels.clone(), value: Value::Number(*us as f64 / 1e6) });
        }
        longest.push(Point {
            labels: labels.clone(),
            value: Value::Number(shard.stats.turn_us_max as f64 / 1e6),
        });
        turns.push(Point { labels, value: turn_buckets(&shard.stats.turn_us) });
    }
    vec![
        family("corelane_shard_keys", "", Kind::Gauge, "Keys.", keys),
        family("corelane_shard_keys_with_deadline", "", Kind::Gauge, "Keys with a deadline.", deadlines),
        family("corelane_shard_memory_bytes", "bytes", Kind::Gauge, "Memory by purpose.", memory),
        family("corelane_shard_cpu_seconds", "seconds", Kind::Counter, "Processor time of its thread.", cpu),
        family("corelane_shard_turn_max_seconds", "seconds", Kind::Gauge, "The longest turn.", longest),
        family(
            "corelane_shard_turn_duration_seconds",
            "seconds",
            Kind::Histogram,
            "Turns, in processor time.",
            turns,
        ),
    ]
}

/// A turn counts with whole microseconds, cut off: what has a bucket below a power of two took less than that.
fn turn_buckets(turns: &TurnHistogram) -> Value {
    let buckets: Vec<(u64, u64)> = turns.buckets().collect();
    let below = |us: u64| buckets.iter().filter(|(end, _)| *end < us).map(|(_, count)| count).sum();
    Value::Buckets {
        cumulative: TURN_OCTAVES
            .map(|octave| (f64::from(1_u32 << octave) / 1e6, below(1 << octave)))
            .collect(),
        count: buckets.iter().map(|(_, count)| count).sum(),
        sum: turns.sum_us() as f64 / 1e6,
    }
}

/// One command's counters, of all shards.
#[derive(Debug, Default)]
pub(super) struct CommandTotals {
    pub(super) count: CommandCount,
    pub(super) durations: Option<Coarse>,
}

/// By command.
pub(super) fn command_totals(sample: &Sample) -> BTreeMap<CommandNumber, CommandTotals> {
    let mut totals: BTreeMap<CommandNumber, CommandTotals> = BTreeMap::new();
    for command in sample.figures().flat_map(|shard| &shard.commands) {
        let CommandTotals { count, durations } = totals.entry(command.number).or_default();
        count.calls += command.count.calls;
        count.ns += command.count.ns;
        count.rejected += command.count.rejected;
        count.failed += command.count.failed;
        if let Some(more) = &command.durations {
            durations.get_or_insert_default().add(more);
        }
    }
    totals
}

/// Sums over the shards.
fn of_commands(sample: &Sample) -> Vec<Family> {
    let mut totals = if sample.is_whole() { command_totals(sample) } else { BTreeMap::new() };
    let named: Vec<(String, CommandTotals)> = command_names()
        .filter_map(|(number, name)| Some((label("command", name), totals.remove(&number)?)))
        .collect();
    let counter = |name, unit, help, value: fn(&CommandCount) -> Value| Family {
        name,
        unit,
        kind: Kind::Counter,
        help,
        points: named
            .iter()
            .map(|(labels, totals)| Point { labels: labels.clone(), value: value(&totals.count) })
            .collect(),
    };
    let durations = named.iter().filter_map(|(labels, totals)| {
        let value = command_buckets(totals.durations.as_ref()?, &totals.count);
        Some(Point { labels: labels.clone(), value })
    });
    let errors = ErrorCounts::sum(sample.figures().map(|shard| &shard.stats.errors_by_code));
    let errors = errors.into_iter().filter(|_| sample.is_whole()).map(|(code, count)| Point {
        labels: label("code", String::from_utf8_lossy(&code)),
        value: Value::Whole(count),
    });
    vec![
        counter("corelane_command_calls", "", "Calls.", |count| Value::Whole(count.calls)),
        counter("corelane_command_rejected_calls", "", "Calls refused before they ran.", |count| {
            Value::Whole(count.rejected)
        }),
        counter("corelane_command_failed_calls", "", "Calls answered with an error.", |count| {
            Value::Whole(count.failed)
        }),
        counter("corelane_command_time_seconds", "seconds", "Time that calls took in all.", |count| {
            Value::Number(count.ns as f64 / 1e9)
        }),
        Family {
            name: "corelane_command_duration_seconds",
            unit: "seconds",
            kind: Kind::Histogram,
            help: "Time that calls took, as far as latency-tracking was on.",
            points: durations.collect(),
        },
        Family {
            name: "corelane_errors",
            unit: "",
            kind: Kind::Counter,
            help: "Error replies by their first word.",
            points: errors.collect(),
        },
    ]
}

/// The sum is that of all calls, in proportion to those that were tracked: there is none of these alone.
fn command_buckets(durations: &Coarse, of: &CommandCount) -> Value {
    let total = durations.total();
    let below = |ns: u64| durations.buckets().filter(|(end, _)| *end < ns).map(|(_, count)| count).sum();
    Value::Buckets {
        cumulative: COMMAND_OCTAVES
            .map(|octave| (f64::from(1_u32 << octave) / 1e9, below(1 << octave)))
            .collect(),
        count: total,
        sum: of.ns as f64 / 1e9 * total as f64 / of.calls.max(1) as f64,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_their_own_end_with_their_units_and_are_explained() {
        let sample = Sample { at_ms: 0, started_s: 0.0, shards: vec![None], cpu_us: BTreeMap::new() };
        let families = families(&sample);
        let mut names: Vec<&str> = families.iter().map(|family| family.name).collect();
        names.sort_unstable();
        assert!(names.is_sorted_by(|one, other| one < other), "{names:?}");
        for family in &families {
            assert!(
                family.unit.is_empty() || family.name.ends_with(&format!("_{}", family.unit)),
                "{}",
                family.name
            );
            assert!(family.help.ends_with('.') && !family.name.ends_with("_total"), "{}", family.name);
        }
    }

    #[test]
    fn buckets_of_turns_are_cumulative() {
        let mut turns = TurnHistogram::default();
        for us in [0, 1, 3, 4, 100, 3_000_000] {
            turns.record(us);
        }
        let Value::Buckets { cumulative, count, sum } = turn_buckets(&turns) else { panic!("no buckets") };
        assert_eq!((count, sum), (6, 3.000108));
        assert_eq!(cumulative[..4], [(1e-6, 1), (2e-6, 2), (4e-6, 3), (8e-6, 4)]);
        assert_eq!(cumulative.last().map(|(_, within)| *within), Some(5));
    }
}
