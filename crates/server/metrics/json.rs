//! A sample as one JSON object, for the dashboard and for whoever would rather not read metrics.
//!
//! Counters are since the start; who wants rates or percentiles of a time takes differences. Histograms are lists of
//! counts, each for durations up to the bound at its place in `bounds`; zeros at the end are left out. What is summed over the
//! shards is null while one of them does not answer.

use corelane_engine::{Coarse, ServerMemory, ShardFigures, TurnHistogram, command_names};
use serde_json::{Value, json};

use super::families::command_totals;
use super::gather::Sample;
use crate::flags;

/// The object.
pub(super) fn object(sample: &Sample) -> Value {
    let memory = ServerMemory::sum(sample.figures().map(|shard| &shard.memory));
    let whole = sample.is_whole();
    let sum = |of: fn(&ShardFigures) -> usize| whole.then(|| sample.figures().map(of).sum::<usize>());
    let totals = command_totals(sample);
    let mut durations = Coarse::default();
    totals.values().filter_map(|command| command.durations.as_ref()).for_each(|more| durations.add(more));
    let commands = command_names().filter_map(|(number, name)| {
        let count = totals.get(&number)?.count;
        Some(json!({
            "name": name, "calls": count.calls, "ns": count.ns, "rejected": count.rejected, "failed": count.failed,
        }))
    });
    let shards = sample.shards.iter().enumerate().map(|(number, figures)| match figures {
        Some(figures) => shard(figures, sample.cpu_us.get(&number).copied()),
        None => json!({ "shard": number, "up": false }),
    });
    json!({
        "version": flags::VERSION,
        "at_ms": sample.at_ms,
        "uptime_s": (sample.at_ms as f64 / 1000.0 - sample.started_s).max(0.0) as u64,
        "clients": sum(|shard| shard.clients.connections),
        "blocked_clients": sum(|shard| shard.clients.blocked),
        "clients_max": sample.figures().map(|shard| shard.maxclients).max(),
        "memory": {
            "used": whole.then(|| memory.used()), "keys": whole.then(|| memory.dataset()),
            "peak": whole.then_some(memory.peak),
            "resident": sample.figures().map(|shard| shard.process.rss_bytes).max(),
        },
        "command_ns": whole.then(|| trimmed(durations.buckets().map(|(_, count)| count))),
        "commands": whole.then(|| commands.collect::<Vec<_>>()),
        "shards": shards.collect::<Vec<_>>(),
        "bounds": {
            "command_ns": durations.buckets().map(|(end, _)| end).collect::<Vec<_>>(),
            "turn_us": TurnHistogram::default().buckets().map(|(end, _)| end).collect::<Vec<_>>(),
        },
    })
}

/// How long the commands took that ran on a shard.
fn command_durations(figures: &ShardFigures) -> Coarse {
    let mut durations = Coarse::default();
    figures
        .commands
        .iter()
        .filter_map(|command| command.durations.as_ref())
        .for_each(|more| durations.add(more));
    durations
}

fn shard(figures: &ShardFigures, cpu_us: Option<u64>) -> Value {
    let stats = &figures.stats;
    json!({
        "shard": figures.shard.0,
        "up": true,
        "cpu_us": cpu_us,
        "commands": stats.commands,
        "keys": figures.dbs.iter().map(|db| db.keys).sum::<u64>(),
        "hits": stats.hits,
        "misses": stats.misses,
        "bytes_in": stats.bytes_in,
        "bytes_out": stats.bytes_out,
        "errors": stats.errors,
        "expired": figures.expired,
        "connections": figures.clients.connections,
        "hops_in": stats.hops_in,
        "hops_out": stats.hops_out,
        "messages_waiting": stats.mail_waiting,
        "messages_waiting_max": stats.mail_waiting_max,
        "memory": ServerMemory::sum(std::iter::once(&figures.memory)).used(),
        "command_ns": trimmed(command_durations(figures).buckets().map(|(_, count)| count)),
        "turns": stats.turns,
        "turn_us_max": stats.turn_us_max,
        "turn_us": trimmed(stats.turn_us.buckets().map(|(_, count)| count)),
    })
}

fn trimmed(counts: impl Iterator<Item = u64>) -> Vec<u64> {
    let mut counts: Vec<u64> = counts.collect();
    let len = counts.iter().rposition(|count| *count != 0).map_or(0, |last| last + 1);
    counts.truncate(len);
    counts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zeros_at_the_end_are_left_out() {
        assert_eq!(trimmed([0, 3, 0, 1, 0, 0].into_iter()), [0, 3, 0, 1]);
        assert_eq!(trimmed([0; 5].into_iter()), [0; 0]);
    }
}
