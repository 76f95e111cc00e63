//! What keys and values cost: memory, and the longest turn while there get to be many of them.

use std::time::Duration;

use anyhow::{Context, Result};

use super::{Bench, settled_bytes};
use crate::metric::Metric;
use crate::process;
use crate::server::Fleet;
use crate::workload::Pin;

/// Length of the keys that are filled in: `key:` and twelve digits.
const KEY_BYTES: u64 = 16;

/// Peak of resident memory of a server that was sent one value, over the size of the value.
pub(super) fn big_set(bench: &mut Bench<'_>, bytes: u64) -> Result<()> {
    bench.server.connect()?.set_big("big", bytes)?;
    let peak = process::peak_bytes(bench.server.pid())?;
    bench.figures.add("SET", bench.subject, Metric::PeakOverSize, peak / bytes as f64);
    Ok(())
}

/// The longest turn while the keyspace grows, and the longest of FLUSHALL and the frees after it.
pub(super) fn growth(bench: &mut Bench<'_>, keys: u64) -> Result<()> {
    let mut client = bench.server.connect()?;
    client.command(&["CONFIG", "RESETSTAT"])?;
    client.fill(keys, 8, false)?;
    bench.figures.add(
        "growth",
        bench.subject,
        Metric::TurnMax,
        turn_us_max(&client.command(&["INFO", "Shards"])?)?,
    );

    client.command(&["CONFIG", "RESETSTAT"])?;
    client.command(&["FLUSHALL"])?;
    std::thread::sleep(bench.options.scaled(Duration::from_secs(3), Duration::from_millis(100)));
    bench.figures.add(
        "FLUSHALL",
        bench.subject,
        Metric::TurnMax,
        turn_us_max(&client.command(&["INFO", "Shards"])?)?,
    );
    Ok(())
}

/// The greatest `turn_us_max` of a `# Shards` section, in whatever form the field is written.
fn turn_us_max(info: &str) -> Result<f64> {
    let values = info.split("turn_us_max").skip(1).filter_map(|rest| {
        let digits = rest.trim_start_matches([':', '=']);
        let end = digits.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(digits.len());
        digits[..end].parse::<f64>().ok()
    });
    values.reduce(f64::max).with_context(|| format!("INFO Shards has no turn_us_max: {info:?}"))
}

/// Resident memory per key beyond key and value, each case in a fresh server.
pub(super) fn memory(bench: &mut Bench<'_>, keys: u64, fleet: &Fleet, pin: Pin) -> Result<()> {
    let cases = [("8-byte values", 8, false), ("64-byte values", 64, false), ("8-byte values, TTL", 8, true)];
    for (index, (case, value_bytes, ttl)) in cases.into_iter().enumerate() {
        if index > 0 {
            bench.server = fleet.start(bench.subject, pin)?;
        }
        let before = settled_bytes(bench.server.pid())?;
        bench.server.connect()?.fill(keys, value_bytes, ttl)?;
        let grown = settled_bytes(bench.server.pid())? - before;
        let beyond = grown / keys as f64 - (KEY_BYTES + value_bytes) as f64;
        bench.figures.add(case, bench.subject, Metric::BytesPerKey, beyond);
    }
    Ok(())
}

/// Resident memory per element of many collections of one type, each type in a fresh server.
pub(super) fn collections(
    bench: &mut Bench<'_>,
    (count, elements): (u64, u64),
    fleet: &Fleet,
    pin: Pin,
) -> Result<()> {
    /// Elements added by one command.
    const AT_ONCE: u64 = 50;
    type Element = fn(u64) -> String;
    let types: [(&str, &str, Element); 4] = [
        ("hashes", "HSET", |n| format!("field:{n:06} value:{n:06}")),
        ("lists", "RPUSH", |n| format!("element:{n:06}")),
        ("sets", "SADD", |n| format!("member:{n:06}")),
        ("sorted sets", "ZADD", |n| format!("{n} member:{n:06}")),
    ];
    for (index, (case, command, element)) in types.into_iter().enumerate() {
        if index > 0 {
            bench.server = fleet.start(bench.subject, pin)?;
        }
        let before = settled_bytes(bench.server.pid())?;
        let pieces = |key: u64| {
            (0..elements).step_by(AT_ONCE as usize).map(move |first| {
                let all: Vec<String> = (first..elements.min(first + AT_ONCE)).map(element).collect();
                format!("{command} key:{key:012} {}", all.join(" "))
            })
        };
        bench.server.connect()?.pipelined((0..count).flat_map(pieces))?;
        let grown = settled_bytes(bench.server.pid())? - before;
        bench.figures.add(case, bench.subject, Metric::BytesPerElement, grown / (count * elements) as f64);
    }
    Ok(())
}
