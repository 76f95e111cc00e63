//! Throughput, latency and CPU under a load generator.

use anyhow::Result;

use super::{Bench, scaled_clients};
use crate::load;
use crate::metric::Metric;
use crate::options::Options;
use crate::process;
use crate::workload::{Load, Pin, Stock};

/// Drives each load in turn, over keys that all exist.
pub(super) fn loads(
    bench: &mut Bench<'_>,
    loads: &[Load],
    pin: Pin,
    commands: &mut Vec<String>,
) -> Result<()> {
    let loads: Vec<Load> = loads.iter().map(|load| scaled(load, bench.options)).collect();
    if let Some(first) = loads.first() {
        // The loads of a workload share their keys and sizes, so one fill serves them all.
        bench.server.connect()?.fill(first.keys, first.value_bytes, false)?;
    }
    for load in &loads {
        let words = load::command(bench.options.client, load, load.requests, pin);
        let shown = words.join(" ");
        if !commands.contains(&shown) {
            commands.push(shown);
        }
        stock(bench, load)?;
        let before_us = process::cpu_us(bench.server.pid())?;
        let report = load::run(&words, bench.server.port)?;
        let cpu_us = process::cpu_us(bench.server.pid())? - before_us;

        let mut add = |metric, sample| bench.figures.add(load.case, bench.subject, metric, sample);
        add(Metric::Throughput, report.requests_per_s);
        add(Metric::P50, report.p50_ms);
        add(Metric::P99, report.p99_ms);
        add(Metric::CpuPerRequest, cpu_us / load.requests as f64);
        let refused = refused_connections(bench)?;
        bench.figures.add(load.case, bench.subject, Metric::Errors, report.errors as f64 + refused);
    }
    Ok(())
}

/// Makes anew what a load is to find.
fn stock(bench: &Bench<'_>, load: &Load) -> Result<()> {
    let mut client = bench.server.connect()?;
    let (key, count) = match load.stock {
        Stock::Nothing => return Ok(()),
        Stock::ListForAll => ("mylist", load.requests),
        Stock::List => ("mylist", 1000),
        Stock::SetForAll => ("myset", load.requests),
        Stock::SortedSetForAll => ("myzset", load.requests),
    };
    client.command(&["DEL", key])?;
    client.pipelined((0..count).map(|number| match load.stock {
        Stock::SetForAll => format!("SADD {key} element:{number:012}"),
        Stock::SortedSetForAll => format!("ZADD {key} {number} element:{number:012}"),
        _ => format!("RPUSH {key} xxx"),
    }))
}

/// A load with the numbers the command line asks for.
fn scaled(load: &Load, options: &Options) -> Load {
    let requests = options.requests.unwrap_or_else(|| options.scaled(load.requests, load.requests.min(2000)));
    Load {
        requests,
        clients: scaled_clients(load.clients, options),
        keys: options.scaled(load.keys, load.keys.min(100)),
        ..*load
    }
}

/// `rejected_connections` of INFO; 0 where the server does not count them.
fn refused_connections(bench: &Bench<'_>) -> Result<f64> {
    let info = bench.server.connect()?.command(&["INFO", "stats"])?;
    let count = info.lines().find_map(|line| line.strip_prefix("rejected_connections:"));
    Ok(count.and_then(|count| count.trim().parse().ok()).unwrap_or(0.0))
}
