//! One look at a server, as tables for people and as JSON for programs.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::time::{Duration, Instant};

use anyhow::Result;
use corelane_engine::config::Directive;
use serde_json::{Map, Value, json};

use super::Section;
use crate::client::Client;
use crate::info::{Fields, field, parts, sections, server_name};
use crate::threads::shard_cpu_us;

/// The sections of INFO that hold counters and what they are about.
const COUNTED: &[&str] = &["Server", "Clients", "Stats", "CPU", "Keyspace"];
/// The columns of the table of shards: the field of INFO, and its head.
const SHARD_COLUMNS: &[(&str, &str)] = &[
    ("cpu", "cpu"),
    ("keys", "keys"),
    ("connections", "conns"),
    ("ops_per_sec", "ops/s"),
    ("hops_in", "hops in"),
    ("hops_out", "hops out"),
    ("mail_waiting", "mail"),
    ("mail_waiting_max", "mail max"),
    ("mailbox_full", "full"),
    ("waited", "waited"),
    ("wakes_sent", "wakes"),
    ("parks", "parks"),
    ("submissions_per_turn", "sub/turn"),
    ("completions_per_turn", "cqe/turn"),
    ("turn_us_p999", "p99.9 us"),
    ("turn_us_max", "max us"),
];
/// The columns of the table of connections: the field of CLIENT LIST, and its head.
const SOCKET_COLUMNS: &[(&str, &str)] = &[
    ("id", "id"),
    ("addr", "peer"),
    ("shard", "shard"),
    ("flags", "state"),
    ("age", "age s"),
    ("idle", "idle s"),
    ("tot-net-in", "in"),
    ("tot-net-out", "out"),
    ("tot-cmds", "cmds"),
    ("qbuf", "qbuf"),
    ("omem", "obuf"),
    ("cmd", "last"),
];

/// What a server said.
#[derive(Debug)]
pub(super) struct Report {
    taken: Instant,
    /// A second at least.
    uptime: Duration,
    /// Of a server that is one of ours.
    name: String,
    cfg: Option<Fields>,
    /// By section of INFO.
    cnt: Option<Vec<(String, Fields)>>,
    mem: Option<Fields>,
    shards: Option<Vec<Fields>>,
    /// Microseconds of processor time by shard.
    cpu_us: BTreeMap<usize, u64>,
    sockets: Option<Vec<Fields>>,
}

impl Report {
    /// Asks for what is wanted.
    ///
    /// # Errors
    /// The server does not answer, or with an error.
    pub(super) fn take(client: &mut Client, wanted: &dyn Fn(Section) -> bool) -> Result<Self> {
        let all = sections(&client.text(&["INFO", "everything"])?);
        let of = |name: &str| {
            all.iter()
                .find(|(section, _)| section == name)
                .map(|(_, fields)| fields.clone())
                .unwrap_or_default()
        };
        let server = of("Server");
        let name = server_name(&server);
        let cfg = wanted(Section::Cfg).then(|| client.pairs(&["CONFIG", "GET", "*"])).transpose()?;
        let mem = wanted(Section::Mem).then(|| client.pairs(&["MEMORY", "STATS"])).transpose()?;
        let shards: Option<Vec<Fields>> =
            wanted(Section::Shard).then(|| of("Shards").iter().map(|(_, line)| parts(line, ',')).collect());
        let pid = field(&server, "process_id").parse().unwrap_or(0);
        let cpu_us = if shards.is_some() { shard_cpu_us(pid) } else { BTreeMap::new() };
        let sockets = if wanted(Section::Sock) {
            let list = client.text(&["CLIENT", "LIST"])?;
            Some(list.lines().map(|line| parts(line, ' ')).collect())
        } else {
            None
        };
        let counted = |(name, _): &(String, Fields)| COUNTED.contains(&name.as_str());
        let cnt =
            wanted(Section::Cnt).then(|| all.iter().filter(|section| counted(section)).cloned().collect());
        let uptime_s = field(&server, "uptime_in_seconds").parse().unwrap_or(0);
        let uptime = Duration::from_secs(u64::max(uptime_s, 1));
        Ok(Self { taken: Instant::now(), uptime, name, cfg, cnt, mem, shards, cpu_us, sockets })
    }

    /// For people; with an earlier look, counters also per second.
    pub(super) fn text(&self, before: Option<&Self>) -> String {
        let mut out = format!("{}\n", self.name);
        let seconds = before.map(|before| (self.taken - before.taken).as_secs_f64());
        if let Some(cfg) = &self.cfg {
            out.push_str("\nconfiguration in force (* set by somebody)\n");
            for (name, value) in cfg.iter().filter(|(name, _)| has_effect(name)) {
                let mark = if is_default(name, value) { ' ' } else { '*' };
                let _ = writeln!(out, "{mark} {name:<36} {value}");
            }
        }
        for (section, fields) in self.cnt.iter().flatten() {
            let _ = writeln!(out, "\n{}", section.to_lowercase());
            for (name, value) in fields {
                let rate = before
                    .zip(seconds)
                    .and_then(|(before, seconds)| before.rate(section, name, value, seconds));
                let rate = rate.map_or_else(String::new, |rate| format!("  {rate:+.0}/s"));
                let _ = writeln!(out, "  {name:<36} {value}{rate}");
            }
        }
        if let Some(mem) = &self.mem {
            out.push_str("\nmemory\n");
            for (name, value) in mem {
                let _ = writeln!(out, "  {name:<36} {value}");
            }
        }
        if let Some(shards) = &self.shards {
            let mut head: Vec<&str> = vec!["shard"];
            head.extend(SHARD_COLUMNS.iter().map(|(_, title)| *title));
            head.push("cpu %");
            let rows = shards.iter().enumerate().map(|(number, fields)| {
                let mut row = vec![number.to_string()];
                row.extend(SHARD_COLUMNS.iter().map(|(name, _)| field(fields, name).to_owned()));
                row.push(
                    self.cpu_percent(before, number)
                        .map_or_else(|| "-".to_owned(), |share| format!("{share:.1}")),
                );
                row
            });
            let _ = write!(out, "\nshards\n{}", table(&head, rows));
        }
        if let Some(sockets) = &self.sockets {
            let head: Vec<&str> = SOCKET_COLUMNS.iter().map(|(_, title)| *title).collect();
            let rows = sockets.iter().map(|fields| {
                SOCKET_COLUMNS.iter().map(|(name, _)| field(fields, name).to_owned()).collect()
            });
            let _ = write!(out, "\nconnections\n{}", table(&head, rows));
        }
        out
    }

    /// How much a counter has grown per second since this look.
    fn rate(&self, section: &str, name: &str, now: &str, seconds: f64) -> Option<f64> {
        let (_, fields) = self.cnt.as_ref()?.iter().find(|(known, _)| known == section)?;
        let (before, now): (f64, f64) = (field(fields, name).parse().ok()?, now.parse().ok()?);
        (before != now && seconds > 0.0).then(|| (now - before) / seconds)
    }

    /// Processor time of a shard's thread since an earlier look, or without one since the server's start, in percent of one CPU.
    fn cpu_percent(&self, before: Option<&Self>, shard: usize) -> Option<f64> {
        let used = *self.cpu_us.get(&shard)?;
        let (used, time) = match before {
            Some(before) => (used.checked_sub(*before.cpu_us.get(&shard)?)?, self.taken - before.taken),
            None => (used, self.uptime),
        };
        Some(used as f64 / time.as_micros().max(1) as f64 * 100.0)
    }

    /// For programs: one object.
    pub(super) fn json(&self) -> Value {
        let object = |fields: &Fields| -> Value {
            fields
                .iter()
                .map(|(name, value)| (name.clone(), number_or_text(value)))
                .collect::<Map<_, _>>()
                .into()
        };
        let mut all = Map::from_iter([("server".to_owned(), json!(self.name))]);
        let mut put = |name: &str, value: Option<Value>| {
            if let Some(value) = value {
                all.insert(name.to_owned(), value);
            }
        };
        put("cfg", self.cfg.as_ref().map(object));
        put(
            "cnt",
            self.cnt.as_ref().map(|sections| {
                sections
                    .iter()
                    .map(|(name, fields)| (name.to_lowercase(), object(fields)))
                    .collect::<Map<_, _>>()
                    .into()
            }),
        );
        put("mem", self.mem.as_ref().map(object));
        put(
            "shard",
            self.shards.as_ref().map(|shards| {
                let shards = shards.iter().enumerate().map(|(number, fields)| {
                    let mut shard = object(fields);
                    if let (Some(us), Value::Object(map)) = (self.cpu_us.get(&number), &mut shard) {
                        map.insert("cpu_us".to_owned(), json!(us));
                    }
                    shard
                });
                shards.collect::<Vec<_>>().into()
            }),
        );
        put(
            "sock",
            self.sockets.as_ref().map(|sockets| sockets.iter().map(object).collect::<Vec<_>>().into()),
        );
        all.into()
    }
}

fn number_or_text(value: &str) -> Value {
    if let Ok(int) = value.parse::<i64>() {
        return json!(int);
    }
    // Versions and addresses may look like numbers at their beginning only.
    value
        .parse::<f64>()
        .ok()
        .filter(|number| number.is_finite())
        .map_or_else(|| json!(value), |number| json!(number))
}

/// Of a directive that is known here; of others, nothing is known.
fn has_effect(name: &str) -> bool {
    Directive::find(name).is_none_or(|directive| !directive.idle && directive.name == name)
}

fn is_default(name: &str, value: &str) -> bool {
    Directive::find(name).is_some_and(|directive| directive.default == value)
}

/// Columns as wide as their widest cell, numbers to the right.
fn table(head: &[&str], rows: impl Iterator<Item = Vec<String>>) -> String {
    let rows: Vec<Vec<String>> = rows.collect();
    let width = |column: usize| {
        let cells = rows.iter().map(|row| row[column].chars().count());
        cells.chain([head[column].chars().count()]).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..head.len()).map(width).collect();
    let mut out = String::new();
    let mut line = |cells: &mut dyn Iterator<Item = &str>| {
        for (cell, width) in cells.zip(&widths) {
            let is_number = cell.chars().all(|letter| letter.is_ascii_digit() || letter == '.');
            let _ = if is_number { write!(out, "  {cell:>width$}") } else { write!(out, "  {cell:<width$}") };
        }
        let end = out.trim_end().len();
        out.truncate(end);
        out.push('\n');
    };
    line(&mut head.iter().copied());
    rows.iter().for_each(|row| line(&mut row.iter().map(String::as_str)));
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_are_as_wide_as_their_cells() {
        let rows = [vec!["1".to_owned(), "127.0.0.1:5".to_owned()], vec!["12".to_owned(), "x".to_owned()]];
        assert_eq!(table(&["id", "peer"], rows.into_iter()), "  id  peer\n   1  127.0.0.1:5\n  12  x\n");
    }

    #[test]
    fn numbers_are_numbers_in_json() {
        assert_eq!(number_or_text("12"), json!(12));
        assert_eq!(number_or_text("0.5"), json!(0.5));
        assert_eq!(number_or_text("7.2.4"), json!("7.2.4"));
        assert_eq!(number_or_text("inf"), json!("inf"));
    }
}
