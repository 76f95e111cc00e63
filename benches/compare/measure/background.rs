//! What a server costs while nobody asks anything of it.

use std::time::{Duration, Instant};

use anyhow::Result;

use super::{Bench, settled_bytes};
use crate::metric::Metric;
use crate::process;
use crate::workload::Subject;

/// Requests after a pause; the slowest counts.
const PAUSES: u32 = 5;

/// Opens connections, uses each once, waits, and divides the growth of resident memory by their number.
pub(super) fn idle_connections(bench: &mut Bench<'_>, count: u64) -> Result<()> {
    let pid = bench.server.pid();
    let before = settled_bytes(pid)?;
    let mut clients = Vec::new();
    for _ in 0..count {
        let mut client = bench.server.connect()?;
        client.ping()?;
        clients.push(client);
    }
    let grown = (settled_bytes(pid)? - before).max(0.0);
    // Still served, all of them: a server that dropped them would look thrifty.
    for client in &mut clients {
        client.ping()?;
    }
    bench.figures.add("idle", bench.subject, Metric::BytesPerConnection, grown / count as f64);
    Ok(())
}

/// CPU with one silent client, and how late the first request after a pause is answered.
pub(super) fn idle(bench: &mut Bench<'_>) -> Result<()> {
    let pid = bench.server.pid();
    let mut client = bench.server.connect()?;
    client.ping()?;
    std::thread::sleep(bench.options.scaled(Duration::from_secs(1), Duration::from_millis(50)));

    let span = bench.options.scaled(Duration::from_secs(10), Duration::from_millis(200));
    let before_us = process::cpu_us(pid)?;
    std::thread::sleep(span);
    let used_us = process::cpu_us(pid)? - before_us;
    let shards = if let Subject::Ours { shards } = bench.subject { shards } else { 1 };
    let percent = used_us / span.as_secs_f64() / 1e6 * 100.0 / shards as f64;
    bench.figures.add("idle", bench.subject, Metric::CpuPerShard, percent);

    let mut slowest = Duration::ZERO;
    for _ in 0..PAUSES {
        std::thread::sleep(bench.options.scaled(Duration::from_millis(500), Duration::from_millis(20)));
        let sent = Instant::now();
        client.ping()?;
        slowest = slowest.max(sent.elapsed());
    }
    bench.figures.add("idle", bench.subject, Metric::FirstRequest, slowest.as_secs_f64() * 1e6);
    Ok(())
}
