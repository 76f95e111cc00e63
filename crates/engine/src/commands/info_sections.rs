//! INFO's sections: each field under Valkey's name where Valkey has it and it means something here, summed over all shards.

use super::info::{Totals, field};
use crate::ctx::ShardReport;
use crate::memory::ServerMemory;
use std::fmt::Display;

/// Writes several fields.
fn fields<V: Display>(out: &mut String, values: impl IntoIterator<Item = (&'static str, V)>) {
    for (name, value) in values {
        field(out, name, value);
    }
}

/// Writes an amount of memory twice: in bytes, and for people.
fn amount(out: &mut String, name: &str, bytes: u64) {
    field(out, name, bytes);
    field(out, &format!("{name}_human"), human(bytes));
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

pub(super) fn server(totals: &Totals<'_>, out: &mut String) {
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
    field(out, "config_file", settings.config.file.as_deref().unwrap_or_default());
    field(out, "availability_zone", settings.config.value("availability-zone"));
    let uptime_s = totals.first.now.saturating_sub(settings.started_ms) / 1000;
    field(out, "server_time_usec", totals.first.wall.shows_at(totals.first.now) * 1000);
    field(out, "uptime_in_seconds", uptime_s);
    field(out, "uptime_in_days", uptime_s / 86_400);
    field(out, "lru_clock", (totals.first.now / 1000) & 0xFF_FFFF);
    field(out, "io_threads_active", 0);
    field(out, "shards", totals.shards.len());
}

pub(super) fn clients(totals: &Totals<'_>, out: &mut String) {
    let most = |of: fn(&ShardReport) -> usize| totals.shards.iter().map(|shard| of(shard)).max().unwrap_or(0);
    let sum = |of: fn(&ShardReport) -> usize| totals.sum(|shard| of(shard) as u64);
    field(out, "connected_clients", sum(|shard| shard.clients.connections));
    field(out, "cluster_connections", 0);
    field(out, "maxclients", totals.first.settings.maxclients);
    field(out, "client_recent_max_input_buffer", most(|shard| shard.clients.input_max));
    field(out, "client_recent_max_output_buffer", most(|shard| shard.clients.output_max));
    field(out, "blocked_clients", sum(|shard| shard.clients.blocked));
    field(out, "tracking_clients", 0);
    field(out, "pubsub_clients", sum(|shard| shard.clients.subscribed));
    field(out, "watching_clients", sum(|shard| shard.clients.watching));
    field(out, "clients_in_timeout_table", sum(|shard| shard.clients.blocked_for_a_time));
    field(out, "total_watched_keys", sum(|shard| shard.watched_keys));
    field(out, "total_blocking_keys", sum(|shard| shard.waited_keys));
    // Nothing here waits for a key to go.
    field(out, "total_blocking_keys_on_nokey", 0);
    let (actions, left_ms) = totals.first.pause.remaining(totals.first.now);
    field(out, "paused_reason", if left_ms == 0 { "none" } else { "client_pause" });
    field(out, "paused_actions", actions);
    field(out, "paused_timeout_milliseconds", left_ms);
}

pub(super) fn memory(totals: &Totals<'_>, out: &mut String) {
    let memory = ServerMemory::sum(totals.shards.iter().filter_map(|shard| shard.memory.as_ref()));
    let (process, settings) = (totals.first.process, &totals.first.settings);
    let (used, committed, rss) = (memory.used(), memory.committed(), memory.rss);
    amount(out, "used_memory", used);
    amount(out, "used_memory_rss", rss);
    amount(out, "used_memory_peak", memory.peak);
    field(out, "used_memory_peak_perc", format_args!("{:.2}%", memory.peak_percent()));
    field(out, "used_memory_overhead", memory.overhead());
    field(out, "used_memory_startup", 0);
    field(out, "used_memory_dataset", memory.dataset());
    field(out, "used_memory_dataset_perc", format_args!("{:.2}%", memory.dataset_percent()));
    field(out, "used_memory_rss_peak", process.rss_peak_bytes);
    fields(
        out,
        [
            ("allocator_allocated", used),
            ("allocator_active", committed),
            ("allocator_resident", committed),
            ("allocator_muzzy", 0),
        ],
    );
    amount(out, "total_system_memory", process.memory_bytes);
    scripting_memory(out);
    amount(out, "maxmemory", settings.config.number("maxmemory") as u64);
    field(out, "maxmemory_policy", settings.maxmemory_policy.name());
    for (name, more, less) in [
        ("allocator_frag", committed, used),
        ("allocator_rss", committed, committed),
        ("rss_overhead", rss, committed),
        ("mem_fragmentation", rss, used),
    ] {
        field(out, &format!("{name}_ratio"), format_args!("{:.2}", ServerMemory::ratio(more, less)));
        field(out, &format!("{name}_bytes"), more as i64 - less as i64);
    }
    fields(
        out,
        [
            ("mem_not_counted_for_evict", 0),
            ("mem_replication_backlog", 0),
            ("mem_total_replication_buffers", 0),
            ("mem_replicas_repl_buffer", 0),
            ("mem_clients_slaves", 0),
            ("mem_clients_normal", memory.clients),
            ("mem_cluster_links", 0),
            ("mem_cluster_slot_import", 0),
            ("mem_cluster_slot_export", 0),
            ("mem_aof_buffer", 0),
        ],
    );
    field(out, "mem_allocator", settings.allocator.name);
    field(out, "mem_overhead_db_hashtable_rehashing", 0);
    field(out, "active_defrag_running", 0);
    field(out, "lazyfree_pending_objects", totals.sum(|shard| shard.pending_frees));
    field(out, "lazyfreed_objects", totals.sum(|shard| shard.freed));
}

/// There are no scripts, and nothing that could run them.
fn scripting_memory(out: &mut String) {
    amount(out, "used_memory_lua", 0);
    fields(
        out,
        [
            "used_memory_vm_eval",
            "used_memory_scripts_eval",
            "number_of_cached_scripts",
            "number_of_functions",
            "number_of_libraries",
            "used_memory_vm_functions",
        ]
        .map(|name| (name, 0)),
    );
    amount(out, "used_memory_vm_total", 0);
    field(out, "used_memory_functions", 0);
    amount(out, "used_memory_scripts", 0);
}

/// Nothing is written to a disk or read from one: this is what Valkey says of a server that has not done so yet. There, too,
/// the last time of saving is that of the start, times that nothing has taken are -1, and what has never failed is `ok`.
pub(super) fn persistence(totals: &Totals<'_>, out: &mut String) {
    fields(
        out,
        [
            ("loading", 0),
            ("async_loading", 0),
            ("current_cow_peak", 0),
            ("current_cow_size", 0),
            ("current_cow_size_age", 0),
        ],
    );
    field(out, "current_fork_perc", "0.00");
    fields(out, [("current_save_keys_processed", 0), ("current_save_keys_total", 0)]);
    field(out, "rdb_bgsave_in_progress", 0);
    field(out, "rdb_last_save_time", totals.first.settings.started_ms / 1000);
    field(out, "rdb_last_bgsave_status", "ok");
    fields(
        out,
        [
            ("rdb_last_bgsave_time_sec", -1),
            ("rdb_current_bgsave_time_sec", -1),
            ("rdb_saves", 0),
            ("rdb_last_cow_size", 0),
            ("rdb_last_load_keys_expired", 0),
            ("rdb_last_load_keys_loaded", 0),
            ("aof_enabled", 0),
            ("aof_rewrite_in_progress", 0),
            ("aof_rewrite_scheduled", 0),
            ("aof_last_rewrite_time_sec", -1),
            ("aof_current_rewrite_time_sec", -1),
        ],
    );
    field(out, "aof_last_bgrewrite_status", "ok");
    fields(out, [("aof_rewrites", 0), ("aof_rewrites_consecutive_failures", 0)]);
    field(out, "aof_last_write_status", "ok");
    fields(
        out,
        [
            ("aof_last_cow_size", 0),
            ("module_fork_in_progress", 0),
            ("module_fork_last_cow_size", 0),
            ("slot_migration_fork_in_progress", 0),
        ],
    );
}

type Counter = fn(&ShardReport) -> u64;

/// Counters of things that do not exist here: their number is zero.
const ABSENT: [&str; 36] = [
    "sync_full",
    "sync_partial_ok",
    "sync_partial_err",
    "evicted_keys",
    "evicted_clients",
    "evicted_scripts",
    "latest_fork_usec",
    "total_forks",
    "migrate_cached_sockets",
    "slave_expires_tracked_keys",
    "active_defrag_hits",
    "active_defrag_misses",
    "active_defrag_key_hits",
    "active_defrag_key_misses",
    "total_active_defrag_time",
    "current_active_defrag_time",
    "tracking_total_keys",
    "tracking_total_items",
    "tracking_total_prefixes",
    "total_net_repl_input_bytes",
    "total_net_repl_output_bytes",
    "total_net_cluster_slot_import_bytes",
    "total_net_cluster_slot_export_bytes",
    "unexpected_error_replies",
    "io_threaded_reads_processed",
    "io_threaded_writes_processed",
    "io_threaded_freed_objects",
    "io_threaded_accept_processed",
    "io_threaded_poll_processed",
    "io_threaded_total_prefetch_batches",
    "io_threaded_total_prefetch_entries",
    "acl_access_denied_cmd",
    "acl_access_denied_key",
    "acl_access_denied_channel",
    "acl_access_denied_tls_cert",
    "acl_access_denied_db",
];

pub(super) fn stats(totals: &Totals<'_>, out: &mut String) {
    let sums: [(&str, Counter); 20] = [
        ("total_connections_received", |shard| shard.stats.connections_received),
        ("total_commands_processed", |shard| shard.stats.commands),
        ("total_net_input_bytes", |shard| shard.stats.bytes_in),
        ("total_net_output_bytes", |shard| shard.stats.bytes_out),
        ("rejected_connections", |shard| shard.stats.connections_rejected),
        ("expired_keys", |shard| shard.expired),
        ("expired_fields", |shard| shard.expired_fields),
        ("expired_time_cap_reached_count", |shard| shard.stats.expire_steps_cut),
        ("keyspace_hits", |shard| shard.stats.hits),
        ("keyspace_misses", |shard| shard.stats.misses),
        ("total_error_replies", |shard| shard.stats.errors),
        ("acl_access_denied_auth", |shard| shard.stats.logins_failed),
        ("total_reads_processed", |shard| shard.stats.reads),
        ("total_writes_processed", |shard| shard.stats.writes),
        ("client_query_buffer_limit_disconnections", |shard| shard.stats.query_limit_disconnections),
        ("client_output_buffer_limit_disconnections", |shard| shard.stats.output_limit_disconnections),
        ("eventloop_cycles", |shard| shard.stats.turns),
        ("eventloop_duration_cmd_sum", |shard| shard.commands_ns / 1000),
        ("transactions_over_shards", |shard| shard.stats.transactions),
        ("transactions_retried", |shard| shard.stats.transaction_retries),
    ];
    fields(out, sums.map(|(name, of)| (name, totals.sum(of))));
    field(out, "pubsub_channels", totals.sum(|shard| shard.pubsub.channels as u64));
    // Every shard knows all of them.
    field(out, "pubsub_patterns", totals.first.pubsub.patterns);
    field(out, "pubsubshard_channels", totals.sum(|shard| shard.pubsub.shard_channels as u64));
    let rate = |of: fn(&ShardReport) -> f64| totals.shards.iter().map(|shard| of(shard)).sum::<f64>();
    let (commands, turns) = (rate(|shard| shard.rates.commands), rate(|shard| shard.rates.turns));
    field(out, "instantaneous_ops_per_sec", commands.round() as u64);
    for (name, bytes) in [
        ("instantaneous_input_kbps", rate(|shard| shard.rates.bytes_in)),
        ("instantaneous_output_kbps", rate(|shard| shard.rates.bytes_out)),
        ("instantaneous_input_repl_kbps", 0.0),
        ("instantaneous_output_repl_kbps", 0.0),
    ] {
        field(out, name, format_args!("{:.2}", bytes / 1024.0));
    }
    field(out, "eventloop_duration_sum", totals.sum(|shard| shard.stats.turn_us.sum_us()));
    field(out, "instantaneous_eventloop_cycles_per_sec", turns.round() as u64);
    let us_per_turn = if turns > 0.0 { rate(|shard| shard.rates.turn_us) / turns } else { 0.0 };
    field(out, "instantaneous_eventloop_duration_usec", us_per_turn.round() as u64);
    fields(out, ABSENT.map(|name| (name, 0)));
}

pub(super) fn replication(totals: &Totals<'_>, out: &mut String) {
    field(out, "role", "master");
    field(out, "connected_slaves", 0);
    field(out, "replicas_waiting_psync", 0);
    field(out, "master_failover_state", "no-failover");
    // Nobody follows this server: what names its history is what names the process.
    let run_id = totals.first.settings.server_info.iter().find(|(name, _)| *name == "run_id");
    field(out, "master_replid", run_id.map_or("", |(_, id)| id));
    field(out, "master_replid2", "0".repeat(40));
    fields(
        out,
        [
            ("master_repl_offset", 0),
            ("second_repl_offset", -1),
            ("repl_backlog_active", 0),
            ("repl_backlog_size", totals.first.settings.config.number("repl-backlog-size")),
            ("repl_backlog_first_byte_offset", 0),
            ("repl_backlog_histlen", 0),
        ],
    );
}

pub(super) fn cpu(totals: &Totals<'_>, out: &mut String) {
    let process = totals.first.process;
    let sys_us = totals.sum(|shard| shard.process.thread_sys_us);
    let user_us = totals.sum(|shard| shard.process.thread_user_us);
    for (name, us) in [
        ("used_cpu_sys", process.cpu_sys_us),
        ("used_cpu_user", process.cpu_user_us),
        ("used_cpu_sys_children", process.children_sys_us),
        ("used_cpu_user_children", process.children_user_us),
        // What runs commands: in Valkey one thread, here the shards'.
        ("used_cpu_sys_main_thread", sys_us),
        ("used_cpu_user_main_thread", user_us),
        ("used_active_time_main_thread", sys_us + user_us),
    ] {
        field(out, name, format_args!("{:.6}", us as f64 / 1e6));
    }
}

/// There are none: the section is its heading.
pub(super) fn modules(_: &Totals<'_>, _: &mut String) {}

pub(super) fn cluster(_: &Totals<'_>, out: &mut String) {
    field(out, "cluster_enabled", 0);
}

pub(super) fn keyspace(totals: &Totals<'_>, out: &mut String) {
    for db in 0..totals.first.dbs.len() {
        let keys = totals.sum(|shard| shard.dbs[db].keys);
        let expires = totals.sum(|shard| shard.dbs[db].expires);
        let timed = totals.sum(|shard| shard.dbs[db].timed);
        let deadlines: u128 = totals.shards.iter().map(|shard| shard.dbs[db].deadline_sum).sum();
        let mean = deadlines.checked_div(expires.into()).unwrap_or(0);
        let avg_ttl_ms = mean.saturating_sub(totals.first.now.into());
        if keys > 0 {
            field(
                out,
                &format!("db{db}"),
                format_args!(
                    "keys={keys},expires={expires},avg_ttl={avg_ttl_ms},keys_with_volatile_items={timed}"
                ),
            );
        }
    }
}

/// A line per shard, as `name=value` pairs.
pub(super) fn shards(totals: &Totals<'_>, out: &mut String) {
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
                 wakes_sent={},parks={},ring_waits={},submissions_per_turn={:.2},completions_per_turn={:.2},buffer_shortages={},ops_per_sec={:.0},\
                 turn_us_sum={},mail={},mail_waiting={},mail_waiting_max={},mailbox_full={},away={}",
                shard.clients.connections,
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
                stats.buffer_shortages,
                shard.rates.commands,
                stats.turn_us.sum_us(),
                stats.mail,
                stats.mail_waiting,
                stats.mail_waiting_max,
                stats.mailbox_full,
                stats.away,
            ),
        );
    }
}

#[cfg(test)]
mod tests {
    use super::human;
    use crate::commands::testing::Bench;
    use crate::ctx::ProcessInfo;

    #[test]
    fn sizes_are_written_as_redis_writes_them() {
        for (bytes, text) in
            [(0, "0B"), (1023, "1023B"), (1024, "1.00K"), (3_969_624, "3.79M"), (25_276_510_208, "23.54G")]
        {
            assert_eq!(human(bytes), text);
        }
    }

    /// A field of INFO.
    fn info(bench: &mut Bench, name: &str) -> String {
        let text = bench.run("INFO everything");
        let line = text.split("\\r\\n").find_map(|line| line.strip_prefix(&format!("{name}:")));
        line.unwrap_or_else(|| panic!("{name} in {text}")).to_owned()
    }

    #[test]
    fn figures_are_summed_over_shards() {
        for shards in [1, 2, 5] {
            let mut bench = Bench::new(shards);
            bench.run("DEBUG POPULATE 100");
            for key in 0..10 {
                bench.run(&format!("EXPIRE key:{key} {}", 100 + key));
            }
            assert_eq!(
                info(&mut bench, "db0"),
                "keys=100,expires=10,avg_ttl=104500,keys_with_volatile_items=0"
            );
            bench.now += 1000;
            assert_eq!(
                info(&mut bench, "db0"),
                "keys=100,expires=10,avg_ttl=103500,keys_with_volatile_items=0"
            );
            bench.run("PERSIST key:0\nDEL key:1\nSET key:2 x\nSET key:3 x KEEPTTL\nGETEX key:4 EX 1000");
            assert_eq!(
                info(&mut bench, "db0"),
                "keys=99,expires=7,avg_ttl=233142,keys_with_volatile_items=0"
            );
            bench.run("GET key:5\nGET nokey\nFLUSHALL");
            for (name, value) in [
                ("keyspace_hits", "2"),
                ("keyspace_misses", "1"),
                ("lazyfree_pending_objects", "0"),
                ("lazyfreed_objects", "99"),
                ("connected_clients", "1"),
                ("blocked_clients", "0"),
                ("maxmemory_policy", "noeviction"),
                ("role", "master"),
            ] {
                assert_eq!(info(&mut bench, name), value, "{name}");
            }
        }
    }

    #[test]
    fn rates_and_peaks_follow_the_looks_of_the_runtime() {
        for shards in [1, 2, 5] {
            let mut bench = Bench::new(shards);
            let look = |bench: &mut Bench| {
                let now = bench.now;
                bench.nodes.iter_mut().for_each(|node| node.set_process_info(ProcessInfo::default(), now));
            };
            look(&mut bench);
            bench.run("DEBUG POPULATE 1000");
            for _ in 0..99 {
                bench.run("PING");
            }
            bench.now += 1000;
            look(&mut bench);
            assert_eq!(info(&mut bench, "instantaneous_ops_per_sec"), "100");
            assert_eq!(info(&mut bench, "instantaneous_output_kbps"), "0.68");
            bench.run("FLUSHALL");
            bench.now += 1000;
            look(&mut bench);
            let (peak, used) = (info(&mut bench, "used_memory_peak"), info(&mut bench, "used_memory"));
            assert!(peak.parse::<u64>().unwrap() > used.parse::<u64>().unwrap() + 20_000, "{peak} {used}");
        }
    }

    #[test]
    fn what_does_not_exist_is_zero_and_what_does_is_counted() {
        for shards in [1, 2, 5] {
            let mut bench = Bench::new(shards);
            bench.run("CONFIG SET repl-backlog-size 1mb");
            for (idx, node) in bench.nodes.iter_mut().enumerate() {
                let thread_user_us = 1_500_000 * (idx as u64 + 1);
                node.set_process_info(ProcessInfo { thread_user_us, ..ProcessInfo::default() }, 0);
            }
            let threads_s = (1..=shards).map(|number| 1.5 * f64::from(number)).sum::<f64>();
            for (name, value) in [
                ("used_memory_scripts_human", "0B"),
                ("number_of_functions", "0"),
                ("rdb_last_bgsave_status", "ok"),
                ("rdb_last_bgsave_time_sec", "-1"),
                ("evicted_scripts", "0"),
                ("instantaneous_input_repl_kbps", "0.00"),
                ("repl_backlog_size", "1048576"),
                ("used_cpu_sys_main_thread", "0.000000"),
                ("used_cpu_user_main_thread", &format!("{threads_s:.6}")),
                ("used_active_time_main_thread", &format!("{threads_s:.6}")),
            ] {
                assert_eq!(info(&mut bench, name), value, "{name}");
            }
            bench.run("DEBUG SLEEP 0.5\nCONFIG RESETSTAT\nDEBUG SLEEP 0.25");
            let us: u64 = info(&mut bench, "eventloop_duration_cmd_sum").parse().unwrap();
            assert!((250_000..250_100).contains(&us), "{us}");
            bench.run("DEBUG SET-ACTIVE-EXPIRE 0");
            for key in 0..3000 {
                bench.run(&format!("SET key:{key} x PX 10"));
            }
            assert_eq!(info(&mut bench, "expired_time_cap_reached_count"), "0");
            bench.now += 1000;
            bench.run("DEBUG SET-ACTIVE-EXPIRE 1");
            for _ in 0..1000 {
                let now = bench.now;
                bench.nodes.iter_mut().for_each(|node| while node.tick(now) {});
            }
            let cut: u64 = info(&mut bench, "expired_time_cap_reached_count").parse().unwrap();
            assert_eq!((cut > 0, info(&mut bench, "expired_keys")), (true, "3000".to_owned()), "{cut}");
        }
    }

    #[test]
    fn sections_are_told_by_name() {
        let mut bench = Bench::new(2);
        let headings = |bench: &mut Bench, line: &str| -> Vec<String> {
            let text = bench.run(line);
            text.trim_matches('"')
                .split("\\r\\n")
                .filter_map(|line| line.strip_prefix("# "))
                .map(str::to_owned)
                .collect()
        };
        assert_eq!(headings(&mut bench, "INFO CPU server cpu"), ["Server", "CPU"]);
        assert_eq!(headings(&mut bench, "INFO nosuch"), [""; 0]);
        let default = headings(&mut bench, "INFO");
        assert_eq!(headings(&mut bench, "INFO default"), default);
        assert!(!default.contains(&"Commandstats".to_owned()) && default.contains(&"Modules".to_owned()));
        assert!(headings(&mut bench, "INFO all").len() > default.len());
    }

    #[test]
    fn blocked_clients_are_counted_on_their_shards() {
        for shards in [1, 2, 5] {
            let mut bench = Bench::new(shards);
            for (shard, wait) in [(0, "WAIT 1 0"), (1, "WAIT 1 5000"), (2, "WAITAOF 0 1 0")] {
                let client = bench.connect(shard, 10 + shard as u16);
                assert_eq!(bench.say(client, wait), "");
            }
            assert_eq!(info(&mut bench, "blocked_clients"), "3");
            assert_eq!(info(&mut bench, "clients_in_timeout_table"), "1");
        }
    }

    #[test]
    fn commands_that_wait_are_counted_when_they_are_answered() {
        for shards in [1, 2, 5] {
            let mut bench = Bench::new(shards);
            let lines = ["BLPOP k l 0", "BLPOP k m 1", "BLPOP k 0", "BLPOP k 0", "BLMOVE n o LEFT LEFT 0"];
            let waiters: Vec<_> = (0..5).map(|n| bench.connect(n, 7 + n as u16)).collect();
            // A key that is waited for in two ways is one.
            let other = bench.connect(1, 6);
            assert_eq!(bench.say(other, "BZPOPMIN k 0"), "");
            let id = bench.say(waiters[2], "CLIENT ID").trim_start_matches(':').to_owned();
            for (waiter, line) in waiters.iter().zip(lines) {
                assert_eq!(bench.say(*waiter, line), "");
            }
            let keys = |bench: &mut Bench| info(bench, "total_blocking_keys");
            let calls = |bench: &mut Bench, name: &str| {
                let stats = bench.run("INFO commandstats");
                let line = stats.split(&format!("cmdstat_{name}:")).nth(1)?.split("\\r").next()?.to_owned();
                let numbers = line.split(',').filter(|field| !field.starts_with("usec"));
                Some(numbers.filter_map(|field| field.split('=').nth(1)).collect::<Vec<_>>().join(" "))
            };
            let some = |text: &str| Some(text.to_owned());
            assert_eq!((keys(&mut bench), calls(&mut bench, "blpop")), ("4".to_owned(), None), "{shards}");
            bench.leave(other);
            bench.run("RPUSH k a\nRPUSH n b");
            assert_eq!((keys(&mut bench), calls(&mut bench, "blpop")), ("2".to_owned(), some("1 0 0")));
            assert_eq!(calls(&mut bench, "blmove"), some("1 0 0"));
            bench.now += 1000;
            assert_eq!(bench.hear(waiters[1]), "nil");
            assert_eq!((keys(&mut bench), calls(&mut bench, "blpop")), ("1".to_owned(), some("2 0 0")));
            let lines = format!("CLIENT LIST ID {id}\nCLIENT UNBLOCK {id} ERROR\nCLIENT LIST ID {id}");
            let shown = bench.run(&lines);
            assert!(shown.find("tot-cmds=1 ") < shown.find("tot-cmds=2 "), "{shown}");
            assert_eq!(calls(&mut bench, "blpop"), some("3 1 0"));
            bench.leave(waiters[3]);
            assert_eq!((keys(&mut bench), calls(&mut bench, "blpop")), ("0".to_owned(), some("3 1 0")));
        }
    }
}
