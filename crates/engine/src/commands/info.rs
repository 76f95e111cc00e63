//! INFO: the server in numbers, gathered from all shards.

use super::info_commands;
use crate::args::Args;
use crate::command::{Command, Flags, Flow, Merge, Plan, Scope};
use crate::ctx::{Ctx, PartResult, Payload, ShardReport};
use crate::errors::Error;
use corelane_resp::Reply;
use std::fmt::Write;

pub(super) const COMMANDS: &[Command] = &[Command {
    name: "info",
    arity: -1,
    flags: Flags::LOADING.with(Flags::STALE),
    plan: Plan::EachShard { part: report, merge: Merge::With(write_info) },
    scope: Scope::Nothing,
    group: "server",
    categories: &["@dangerous"],
    summary: "Tells the server's state and counters.",
    syntax: "[section [section ...]]",
    tips: &["nondeterministic_output", "request_policy:all_shards", "response_policy:special"],
    ..Command::DEFAULT
}];

/// What every section is made of.
pub(super) struct Totals<'a> {
    pub(super) shards: &'a [&'a ShardReport],
    pub(super) first: &'a ShardReport,
}

impl Totals<'_> {
    fn sum(&self, of: impl Fn(&ShardReport) -> u64) -> u64 {
        self.shards.iter().map(|shard| of(shard)).sum()
    }
}

type Section = (&'static str, fn(&Totals<'_>, &mut String));

/// In the order of Valkey's INFO; ours come last.
const SECTIONS: &[Section] = &[
    ("Server", server),
    ("Clients", clients),
    ("Memory", memory),
    ("Persistence", persistence),
    ("Stats", stats),
    ("Replication", replication),
    ("CPU", cpu),
    ("Commandstats", info_commands::command_stats),
    ("Errorstats", info_commands::error_stats),
    ("Latencystats", info_commands::latency_stats),
    ("Cluster", cluster),
    ("Keyspace", keyspace),
    ("Shards", shards),
];

fn report(ctx: &mut Ctx<'_>, args: Args<'_>, _: &mut Reply) -> Result<Flow, Error> {
    let shard = &mut *ctx.shard;
    ctx.payload = Payload::Report(Box::new(ShardReport {
        shard: shard.me,
        stats: shard.stats.clone(),
        dbs: (0..shard.keyspace.databases()).map(|db| shard.keyspace.stats(db)).collect(),
        entry_bytes: shard.keyspace.entry_bytes(),
        expired: shard.keyspace.expired,
        connections: ctx.sessions.map_or(0, |sessions| sessions.len()),
        pause: shard.pause,
        process: shard.process,
        settings: shard.settings.clone(),
        now: ctx.now,
        commands: info_commands::ON_REQUEST
            .iter()
            .any(|section| is_wanted(section, args))
            .then(|| shard.timing.commands.clone()),
    }));
    Ok(Flow::Done)
}

fn write_info(parts: &[PartResult], args: Args<'_>, reply: &mut Reply) {
    let reports: Vec<&ShardReport> = parts
        .iter()
        .filter_map(|part| match &part.payload {
            Payload::Report(report) => Some(&**report),
            _ => None,
        })
        .collect();
    let Some(first) = reports.first() else { return reply.verbatim("txt", "") };
    let totals = Totals { shards: &reports, first };
    let mut text = String::new();
    for (name, write) in SECTIONS.iter().filter(|(name, _)| is_wanted(name, args)) {
        if !text.is_empty() {
            text.push_str("\r\n");
        }
        let _ = write!(text, "# {name}\r\n");
        write(&totals, &mut text);
    }
    reply.verbatim("txt", &text);
}

/// Whether the arguments ask for a section.
fn is_wanted(section: &str, args: Args<'_>) -> bool {
    let by_default = !info_commands::ON_REQUEST.contains(&section);
    if args.len() == 1 {
        return by_default;
    }
    args.iter_from(1).any(|word| match word.to_ascii_lowercase().as_slice() {
        b"all" | b"everything" => true,
        b"default" => by_default,
        word => word.eq_ignore_ascii_case(section.as_bytes()),
    })
}

/// Writing to a `String` cannot fail.
pub(super) fn field(out: &mut String, name: &str, value: impl std::fmt::Display) {
    let _ = write!(out, "{name}:{value}\r\n");
}

/// Bytes as Redis writes them for people: two decimals and a unit.
fn human(bytes: u64) -> String {
    const UNITS: [&str; 4] = ["K", "M", "G", "T"];
    if bytes < 1024 {
        return format!("{bytes}B");
    }
    let mut value = bytes as f64 / 1024.0;
    let mut unit = 0;
    while value >= 1024.0 && unit < UNITS.len() - 1 {
        value /= 1024.0;
        unit += 1;
    }
    format!("{value:.2}{}", UNITS[unit])
}

fn server(totals: &Totals<'_>, out: &mut String) {
    let settings = &totals.first.settings;
    field(out, "redis_version", "7.2.4");
    field(out, "server_name", "corelane");
    field(out, "corelane_version", env!("CARGO_PKG_VERSION"));
    field(out, "server_mode", "standalone");
    field(out, "arch_bits", usize::BITS);
    for (name, value) in &settings.server_info {
        field(out, name, value);
    }
    field(out, "tcp_port", settings.port);
    let uptime_s = totals.first.now.saturating_sub(settings.started_ms) / 1000;
    field(out, "server_time_usec", totals.first.now * 1000);
    field(out, "uptime_in_seconds", uptime_s);
    field(out, "uptime_in_days", uptime_s / 86_400);
    field(out, "shards", totals.shards.len());
}

fn clients(totals: &Totals<'_>, out: &mut String) {
    field(out, "connected_clients", totals.sum(|shard| shard.connections as u64));
    field(out, "maxclients", totals.first.settings.maxclients);
    field(out, "blocked_clients", 0);
    let (actions, left_ms) = totals.first.pause.remaining(totals.first.now);
    field(out, "paused_reason", if left_ms == 0 { "none" } else { "client_pause" });
    field(out, "paused_actions", actions);
    field(out, "paused_timeout_milliseconds", left_ms);
}

fn memory(totals: &Totals<'_>, out: &mut String) {
    let used = totals.sum(|shard| shard.entry_bytes);
    let process = totals.first.process;
    field(out, "used_memory", used);
    field(out, "used_memory_human", human(used));
    field(out, "used_memory_rss", process.rss_bytes);
    field(out, "used_memory_rss_human", human(process.rss_bytes));
    field(out, "used_memory_dataset", used);
    field(out, "total_system_memory", process.memory_bytes);
    field(out, "total_system_memory_human", human(process.memory_bytes));
    field(out, "maxmemory", 0);
    field(out, "maxmemory_human", human(0));
    field(out, "maxmemory_policy", "noeviction");
    field(out, "mem_allocator", "mimalloc");
}

fn persistence(_: &Totals<'_>, out: &mut String) {
    for name in
        ["loading", "async_loading", "rdb_bgsave_in_progress", "aof_enabled", "aof_rewrite_in_progress"]
    {
        field(out, name, 0);
    }
}

type Counter = fn(&ShardReport) -> u64;

fn stats(totals: &Totals<'_>, out: &mut String) {
    let sums: [(&str, Counter); 13] = [
        ("total_connections_received", |shard| shard.stats.connections_received),
        ("total_commands_processed", |shard| shard.stats.commands),
        ("total_net_input_bytes", |shard| shard.stats.bytes_in),
        ("total_net_output_bytes", |shard| shard.stats.bytes_out),
        ("rejected_connections", |shard| shard.stats.connections_rejected),
        ("expired_keys", |shard| shard.expired),
        ("keyspace_hits", |shard| shard.stats.hits),
        ("keyspace_misses", |shard| shard.stats.misses),
        ("total_error_replies", |shard| shard.stats.errors),
        ("client_query_buffer_limit_disconnections", |shard| shard.stats.query_limit_disconnections),
        ("client_output_buffer_limit_disconnections", |shard| shard.stats.output_limit_disconnections),
        ("transactions_over_shards", |shard| shard.stats.transactions),
        ("transactions_retried", |shard| shard.stats.transaction_retries),
    ];
    for (name, of) in sums {
        field(out, name, totals.sum(of));
    }
    field(out, "evicted_keys", 0);
}

fn replication(_: &Totals<'_>, out: &mut String) {
    field(out, "role", "master");
    field(out, "connected_slaves", 0);
}

fn cpu(totals: &Totals<'_>, out: &mut String) {
    let process = totals.first.process;
    field(out, "used_cpu_sys", format_args!("{:.6}", process.cpu_sys_us as f64 / 1e6));
    field(out, "used_cpu_user", format_args!("{:.6}", process.cpu_user_us as f64 / 1e6));
}

fn cluster(_: &Totals<'_>, out: &mut String) {
    field(out, "cluster_enabled", 0);
}

fn keyspace(totals: &Totals<'_>, out: &mut String) {
    for db in 0..totals.first.dbs.len() {
        let keys = totals.sum(|shard| shard.dbs[db].keys);
        let expires = totals.sum(|shard| shard.dbs[db].expires);
        if keys > 0 {
            field(out, &format!("db{db}"), format_args!("keys={keys},expires={expires},avg_ttl=0"));
        }
    }
}

/// A line per shard, as `name=value` pairs.
fn shards(totals: &Totals<'_>, out: &mut String) {
    for shard in totals.shards {
        let stats = &shard.stats;
        let keys: u64 = shard.dbs.iter().map(|db| db.keys).sum();
        // -1: not bound to any.
        let cpu = shard.settings.cpu.map_or(-1, |cpu| cpu as i64);
        let per_turn = |count: u64| count as f64 / stats.turns.max(1) as f64;
        field(
            out,
            &format!("shard{}", shard.shard.0),
            format_args!(
                "cpu={cpu},keys={keys},connections={},commands={},turns={},turn_us_max={},turn_us_p999={},hops_in={},hops_out={},waited={},\
                 wakes_sent={},parks={},ring_waits={},submissions_per_turn={:.2},completions_per_turn={:.2}",
                shard.connections,
                stats.commands,
                stats.turns,
                stats.turn_us_max,
                stats.turn_us.quantile_us(0.999),
                stats.hops_in,
                stats.hops_out,
                stats.waited,
                stats.wakes_sent,
                stats.parks,
                stats.ring_waits,
                per_turn(stats.ring_submissions),
                per_turn(stats.ring_completions),
            ),
        );
    }
}

#[cfg(test)]
mod tests {
    use super::human;

    #[test]
    fn sizes_are_written_as_redis_writes_them() {
        for (bytes, text) in
            [(0, "0B"), (1023, "1023B"), (1024, "1.00K"), (3_969_624, "3.79M"), (25_276_510_208, "23.54G")]
        {
            assert_eq!(human(bytes), text);
        }
    }
}
