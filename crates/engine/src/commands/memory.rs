//! MEMORY: what the data and the server's own structures take, and what the allocator says.

use super::help;
use crate::args::Args;
use crate::command::{Command, Flags, Flow, KeyFlags, KeySpec, Merge, Plan, Scope};
use crate::ctx::{Ctx, PartResult, Payload, SessionCtx};
use crate::errors::Error;
use crate::memory::{ServerMemory, ShardMemory};
use corelane_resp::Reply;

const SPECIAL: &[&str] = &["nondeterministic_output", "request_policy:all_shards", "response_policy:special"];
const HEAVY: &str = "Depends on how much memory is allocated, could be slow";

const fn about_server(name: &'static str, plan: Plan, summary: &'static str) -> Command {
    Command {
        name,
        arity: 2,
        plan,
        scope: Scope::Nothing,
        since: "4.0.0",
        group: "server",
        summary,
        ..Command::DEFAULT
    }
}

pub(super) const COMMANDS: &[Command] = &[Command {
    name: "memory",
    arity: -2,
    since: "4.0.0",
    group: "server",
    summary: "A container for memory diagnostics commands.",
    complexity: "Depends on subcommand.",
    subcommands: &[
        Command {
            tips: SPECIAL,
            ..about_server(
                "doctor",
                Plan::EachShard { part: report, merge: Merge::With(doctor) },
                "Outputs a memory problems report.",
            )
        },
        help::record(show_help, "4.0.0", "server"),
        Command {
            flags: Flags::LOADING,
            complexity: HEAVY,
            tips: SPECIAL,
            ..about_server("malloc-stats", Plan::Session(malloc_stats), "Returns the allocator statistics.")
        },
        Command {
            flags: Flags::LOADING,
            complexity: HEAVY,
            tips: &["request_policy:all_shards", "response_policy:all_succeeded"],
            ..about_server(
                "purge",
                Plan::EachShard { part: purge, merge: Merge::AllOk },
                "Asks the allocator to release memory.",
            )
        },
        Command {
            tips: SPECIAL,
            ..about_server(
                "stats",
                Plan::EachShard { part: report, merge: Merge::With(stats) },
                "Returns details about memory usage.",
            )
        },
        Command {
            name: "usage",
            arity: -3,
            flags: Flags::READONLY,
            keys: &[KeySpec::one(2, KeyFlags::RO)],
            plan: Plan::OneShard(usage),
            since: "4.0.0",
            group: "server",
            summary: "Estimates the memory usage of a key.",
            complexity: "O(N) where N is the number of samples.",
            syntax: "key [SAMPLES count]",
            ..Command::DEFAULT
        },
    ],
    ..Command::DEFAULT
}];

const HELP: &[&str] = &[
    "DOCTOR",
    "    Return memory problems reports.",
    "MALLOC-STATS",
    "    Return internal statistics report from the memory allocator.",
    "PURGE",
    "    Attempt to purge dirty pages for reclamation by the allocator.",
    "STATS",
    "    Return information about the memory usage of the server.",
    "USAGE <key> [SAMPLES <count>]",
    "    Return memory in bytes used by <key> and its value. Nested values are",
    "    sampled up to <count> times (default: 5, 0 means sample all).",
];

fn show_help(_: &mut SessionCtx<'_>, args: Args<'_>, reply: &mut Reply) -> Result<(), Error> {
    help::write(HELP, args, reply);
    Ok(())
}

fn malloc_stats(ctx: &mut SessionCtx<'_>, _: Args<'_>, reply: &mut Reply) -> Result<(), Error> {
    reply.bulk((ctx.shard.settings.allocator.statistics)().as_bytes());
    Ok(())
}

/// Each shard purges what its own thread has allocated.
fn purge(ctx: &mut Ctx<'_>, _: Args<'_>, reply: &mut Reply) -> Result<Flow, Error> {
    (ctx.shard.settings.allocator.purge)();
    reply.ok();
    Ok(Flow::Done)
}

/// Strings are never sampled, so that the number only has to be one.
fn check_samples(args: Args<'_>) -> Result<(), Error> {
    let mut idx = 3;
    while idx < args.len() {
        if !args.is(idx, "SAMPLES") || idx + 1 == args.len() {
            return Err(Error::Syntax);
        }
        if args.int(idx + 1)? < 0 {
            return Err(Error::Syntax);
        }
        idx += 2;
    }
    Ok(())
}

/// The entry's allocations, and the key's share of the table it stands in.
fn usage(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply) -> Result<Flow, Error> {
    check_samples(args)?;
    let key = ctx.key(args.at(2));
    match ctx.find(key).map(|entry| entry.size()) {
        None => reply.null(),
        Some(size) => reply.int((size + ctx.shard.keyspace.table_share(ctx.db, key)) as i64),
    }
    Ok(Flow::Done)
}

fn report(ctx: &mut Ctx<'_>, _: Args<'_>, _: &mut Reply) -> Result<Flow, Error> {
    let memory = ShardMemory::of(ctx.shard, ctx.sessions);
    ctx.payload = Payload::Memory(Box::new(memory));
    Ok(Flow::Done)
}

fn total(parts: &[PartResult]) -> ServerMemory {
    ServerMemory::sum(parts.iter().filter_map(|part| match &part.payload {
        Payload::Memory(memory) => Some(&**memory),
        _ => None,
    }))
}

fn stats(parts: &[PartResult], _: Args<'_>, reply: &mut Reply) {
    let memory = total(parts);
    let keys = memory.keys();
    let dbs: Vec<_> = memory.dbs.iter().enumerate().filter(|(_, db)| db.keys > 0).collect();
    let before = [
        ("peak.allocated", memory.peak),
        ("total.allocated", memory.used()),
        ("startup.allocated", 0),
        ("replication.backlog", 0),
        ("replicas.repl.buffer", 0),
        ("clients.slaves", 0),
        ("clients.normal", memory.clients),
        ("cluster.links", 0),
        ("cluster.slot_import", 0),
        ("cluster.slot_export", 0),
        ("aof.buffer", 0),
        ("lua.caches", 0),
        ("functions.caches", 0),
    ];
    let between = [
        ("overhead.db.hashtable.lut", memory.tables()),
        ("overhead.db.hashtable.rehashing", 0),
        ("overhead.total", memory.overhead()),
        ("db.dict.rehashing.count", 0),
        ("keys.count", keys),
        ("keys.bytes-per-key", memory.used().checked_div(keys).unwrap_or(0)),
        ("dataset.bytes", memory.dataset()),
    ];
    let integer = |reply: &mut Reply, name: &str, value: i64| {
        reply.bulk(name.as_bytes());
        reply.int(value);
    };
    let ratio = |reply: &mut Reply, name: &str, value: f64| {
        reply.bulk(name.as_bytes());
        reply.double(value);
    };
    reply.map(before.len() + dbs.len() + between.len() + 14);
    before.iter().for_each(|(name, value)| integer(reply, name, *value as i64));
    for (db, shares) in dbs {
        reply.bulk(format!("db.{db}").as_bytes());
        reply.map(2);
        integer(reply, "overhead.hashtable.main", shares.table as i64);
        integer(reply, "overhead.hashtable.expires", shares.wheel as i64);
    }
    between.iter().for_each(|(name, value)| integer(reply, name, *value as i64));
    ratio(reply, "dataset.percentage", memory.dataset_percent());
    ratio(reply, "peak.percentage", memory.peak_percent());
    for (name, value) in [
        ("allocator.allocated", memory.used()),
        ("allocator.active", memory.committed()),
        ("allocator.resident", memory.committed()),
        ("allocator.muzzy", 0),
    ] {
        integer(reply, name, value as i64);
    }
    let (used, committed, resident) = (memory.used(), memory.committed(), memory.rss);
    for (name, more, less) in [
        ("allocator-fragmentation", committed, used),
        ("allocator-rss", committed, committed),
        ("rss-overhead", resident, committed),
    ] {
        ratio(reply, &format!("{name}.ratio"), ServerMemory::ratio(more, less));
        integer(reply, &format!("{name}.bytes"), more as i64 - less as i64);
    }
    ratio(reply, "fragmentation", ServerMemory::ratio(resident, used));
    integer(reply, "fragmentation.bytes", resident as i64 - used as i64);
}

/// In the manner of Valkey's doctor; the first sentence is its own.
fn doctor(parts: &[PartResult], _: Args<'_>, reply: &mut Reply) {
    const TOO_LITTLE_BYTES: u64 = 5 << 20;
    const FRAGMENTED_BYTES_MIN: u64 = 10 << 20;
    const CLIENT_BYTES_MAX: u64 = 200 << 10;
    let memory = total(parts);
    if memory.used() < TOO_LITTLE_BYTES {
        return reply.verbatim(
            "txt",
            "Hi Sam, this instance is empty or is using very little memory, my issues detector can't be used in these \
             conditions. Please, leave for your mission on Earth and fill it with some data. The new Sam and I will be back to \
             our programming as soon as I finished rebooting.\n",
        );
    }
    let mut issues = String::new();
    if memory.peak > memory.used() / 2 * 3 {
        issues.push_str(
            " * Peak memory: In the past this instance used more than 150% of the memory that it uses now. What it had then \
             may still be resident; it is used again as data comes in, and MEMORY PURGE gives back what can be given back.\n\n",
        );
    }
    let unused = memory.rss.saturating_sub(memory.used());
    if ServerMemory::ratio(memory.rss, memory.used()) > 1.4 && unused > FRAGMENTED_BYTES_MIN {
        issues.push_str(
            " * High total RSS: The resident memory is more than 1.4 times what data and structures take. The rest is memory \
             that the allocator keeps, or gaps in pages that are in use. MEMORY MALLOC-STATS tells more, MEMORY PURGE gives \
             back what can be given back.\n\n",
        );
    }
    if memory.clients.checked_div(memory.connections).unwrap_or(0) > CLIENT_BYTES_MAX {
        issues.push_str(
            " * Big client buffers: On average a client has more than 200 KiB in its buffers. CLIENT LIST shows whose they \
             are (qbuf, omem); clients that do not read their replies are the usual reason.\n\n",
        );
    }
    if issues.is_empty() {
        return reply.verbatim(
            "txt",
            "Hi Sam, I can't find any memory issue in your instance. I can only account for what occurs on this base.\n",
        );
    }
    let text = format!(
        "Sam, I detected a few issues in this instance memory implants:\n\n{issues}I'm here to keep you safe, Sam. I want to \
         help you.\n"
    );
    reply.verbatim("txt", &text);
}

#[cfg(test)]
mod tests {
    use crate::commands::testing::{Bench, check_all};

    #[test]
    fn a_key_costs_its_entry_and_its_share_of_the_table() {
        for shards in [1, 2, 5] {
            let mut bench = Bench::new(shards);
            let usage = |bench: &mut Bench, key: &str| -> u64 {
                bench.run(&format!("MEMORY USAGE {key}")).trim_start_matches(':').parse().unwrap()
            };
            bench.run("SET a b\nSET b c EX 100\nDEBUG POPULATE 1 big 100000");
            // Eight bytes of header, two of content, a table of four words.
            assert_eq!(usage(&mut bench, "a"), 8 + 2 + 32);
            assert_eq!(usage(&mut bench, "b"), 16 + 2 + 32);
            assert!((100_000..100_200).contains(&usage(&mut bench, "big:0")));
            assert_eq!(bench.run("MEMORY USAGE a SAMPLES 5 samples 0"), bench.run("MEMORY USAGE a"));
        }
        let (syntax, number) = ("-ERR syntax error", "-ERR value is not an integer or out of range");
        check_all(&[
            ("MEMORY USAGE nokey\nMEMORY USAGE nokey SAMPLES 3", "nil\nnil"),
            ("MEMORY USAGE nokey SAMPLES", syntax),
            ("MEMORY USAGE nokey SAMPLES -1", syntax),
            ("MEMORY USAGE nokey x 5", syntax),
            ("MEMORY USAGE nokey SAMPLES x", number),
            ("MEMORY USAGE", "-ERR wrong number of arguments for 'memory|usage' command"),
            ("MEMORY x", "-ERR unknown subcommand 'x'. Try MEMORY HELP."),
            ("MEMORY PURGE", "+OK"),
            ("MEMORY MALLOC-STATS", "\"Stats not supported for the current allocator\""),
        ]);
    }

    #[test]
    fn figures_are_those_of_all_shards_together() {
        for shards in [1, 2, 5] {
            let mut bench = Bench::new(shards);
            assert!(bench.run("MEMORY DOCTOR").contains("this instance is empty"));
            bench.run("HELLO 3\nDEBUG POPULATE 1000\nSELECT 2\nSET x y EX 100");
            let stats = bench.run("MEMORY STATS");
            for part in [
                "\"keys.count\": :1001",
                "\"db.0\": {\"overhead",
                "\"db.2\": {\"overhead",
                "\"clients.slaves\": :0",
            ] {
                assert!(stats.contains(part), "{part} in {stats}");
            }
            assert!(!stats.contains("\"db.1\""), "{stats}");
            let field = |name: &str| -> u64 {
                let (_, rest) = stats.split_once(&format!("\"{name}\": :")).expect(name);
                rest.split(|c: char| !c.is_ascii_digit()).next().unwrap().parse().unwrap()
            };
            assert_eq!(field("total.allocated"), field("dataset.bytes") + field("overhead.total"));
            assert!(field("dataset.bytes") >= 1000 * 22 && field("dataset.bytes") < 1000 * 40, "{stats}");
            assert_eq!(field("peak.allocated"), field("total.allocated"));
            bench.run("DEBUG POPULATE 100 large 100000");
            let verdict = bench.run("MEMORY DOCTOR");
            assert!(verdict.contains("find any memory issue"), "{verdict}");
            bench.run("FLUSHALL");
            assert!(bench.run("MEMORY STATS").contains("\"keys.count\": :0"));
        }
    }

    #[test]
    fn lists_of_middling_size_and_those_that_have_become_short_take_little_more_than_their_elements() {
        let mut bench = Bench::new(1);
        let usage = |bench: &mut Bench| -> usize { bench.run("MEMORY USAGE k")[1..].parse().unwrap() };
        for (push, pop) in [("RPUSH", "LPOP"), ("LPUSH", "RPOP")] {
            for (n, most) in [(20, 380), (70, 1400), (130, 2150), (200, 3400)] {
                for n in 0..n {
                    bench.run(&format!("{push} k element:{n:06}"));
                }
                let one_by_one = usage(&mut bench);
                assert!(one_by_one > 15 * n && one_by_one < most, "{push} {n}: {one_by_one}");
                if n == 130 {
                    bench.run(&format!("{pop} k 85"));
                    let left = usage(&mut bench);
                    assert!(left < 900, "{pop} 85: {left}");
                }
                bench.run(&format!("{pop} k {}", if n == 130 { 42 } else { n - 3 }));
                let short = usage(&mut bench);
                assert!(short < 100, "{pop} {n}: {short}");
                bench.run("DEL k");
            }
        }
    }
}
