//! INFO: the server in numbers, gathered from all shards.

use super::{info_commands, info_sections};
use crate::args::Args;
use crate::client_counts::ClientCounts;
use crate::command::{Command, Flags, Flow, Merge, Plan, Scope};
use crate::ctx::{Ctx, PartResult, Payload, ShardReport};
use crate::errors::Error;
use crate::memory::ShardMemory;
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
    summary: "Returns information and statistics about the server.",
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
    pub(super) fn sum(&self, of: impl Fn(&ShardReport) -> u64) -> u64 {
        self.shards.iter().map(|shard| of(shard)).sum()
    }
}

type Section = (&'static str, fn(&Totals<'_>, &mut String));

/// In the order of Valkey's INFO; ours come last.
const SECTIONS: &[Section] = &[
    ("Server", info_sections::server),
    ("Clients", info_sections::clients),
    ("Memory", info_sections::memory),
    ("Persistence", info_sections::persistence),
    ("Stats", info_sections::stats),
    ("Replication", info_sections::replication),
    ("CPU", info_sections::cpu),
    ("Modules", info_sections::modules),
    ("Commandstats", info_commands::command_stats),
    ("Errorstats", info_commands::error_stats),
    ("Latencystats", info_commands::latency_stats),
    ("Cluster", info_sections::cluster),
    ("Keyspace", info_sections::keyspace),
    ("Shards", info_sections::shards),
];

fn report(ctx: &mut Ctx<'_>, args: Args<'_>, _: &mut Reply) -> Result<Flow, Error> {
    let shard = &mut *ctx.shard;
    let memory = is_wanted("Memory", args).then(|| ShardMemory::of(shard, ctx.sessions));
    let (pending_frees, freed) = shard.keyspace.lazy_frees();
    ctx.payload = Payload::Report(Box::new(ShardReport {
        wall: shard.wall,
        shard: shard.me,
        stats: shard.stats.clone(),
        dbs: (0..shard.keyspace.databases()).map(|db| shard.keyspace.stats(db)).collect(),
        memory,
        expired: shard.keyspace.expired,
        expired_fields: shard.keyspace.expired_fields(),
        pending_frees,
        freed,
        clients: ctx.sessions.map(ClientCounts::of).unwrap_or_default(),
        watched_keys: shard.keyspace.watched_keys(),
        waited_keys: shard.waited_keys,
        rates: shard.sampler.rates,
        pubsub: shard.pubsub.counts(),
        pause: shard.pause,
        process: shard.process,
        settings: shard.settings.clone(),
        now: ctx.now,
        commands_ns: shard.timing.commands.total_ns(),
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
