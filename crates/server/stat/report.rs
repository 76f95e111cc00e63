//! One look at a server: what it says, and that as JSON for programs.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::Result;
use corelane_engine::config::Directive;
use serde_json::{Map, Value, json};

use super::Section;
use super::text::{Content, Part};
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
    /// The same moment, in UTC.
    time: String,
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
        Ok(Self {
            taken: Instant::now(),
            time: crate::time::now(),
            uptime,
            name,
            cfg,
            cnt,
            mem,
            shards,
            cpu_us,
            sockets,
        })
    }

    /// What there is to show; with an earlier look, counters also per second.
    pub(super) fn parts(&self, before: Option<&Self>) -> Vec<Part> {
        let mut all = Vec::new();
        if let Some(cfg) = &self.cfg {
            let of_effect = cfg.iter().filter(|(name, _)| has_effect(name));
            let row = |(name, value): &(String, String)| {
                let mark = if is_default(name, value) { "" } else { "*" };
                [mark.to_owned(), name.clone(), value.clone()]
            };
            let title = "configuration in force (* set by somebody)".to_owned();
            all.push(Part::list(title, of_effect.map(row).collect()));
        }
        for (section, fields) in self.cnt.iter().flatten() {
            let row = |(name, value): &(String, String)| {
                let rate = before.and_then(|before| before.rate(section, name, value, self.since(before)));
                let rate = rate.map_or_else(String::new, |rate| format!("  {rate:+.0}/s"));
                [String::new(), name.clone(), format!("{value}{rate}")]
            };
            all.push(Part::list(section.to_lowercase(), fields.iter().map(row).collect()));
        }
        if let Some(mem) = &self.mem {
            let row = |(name, value): &(String, String)| [String::new(), name.clone(), value.clone()];
            all.push(Part::list("memory".to_owned(), mem.iter().map(row).collect()));
        }
        if let Some(shards) = &self.shards {
            all.push(self.shard_part(shards, before));
        }
        if let Some(sockets) = &self.sockets {
            let head = SOCKET_COLUMNS.iter().map(|(_, title)| *title).collect();
            let row = |fields: &Fields| {
                SOCKET_COLUMNS.iter().map(|(name, _)| field(fields, name).to_owned()).collect()
            };
            let rows = sockets.iter().map(row).collect();
            all.push(Part { title: "connections".to_owned(), content: Content::Table { head, rows } });
        }
        all
    }

    fn shard_part(&self, shards: &[Fields], before: Option<&Self>) -> Part {
        let title = "shards".to_owned();
        if shards.is_empty() {
            let words = format!("{} does not tell of shards: only corelane has them.", self.name);
            return Part { title, content: Content::Words(words) };
        }
        let mut head: Vec<&str> = vec!["shard"];
        head.extend(SHARD_COLUMNS.iter().map(|(_, title)| *title));
        head.push("cpu %");
        let row = |(number, fields): (usize, &Fields)| {
            let mut row = vec![number.to_string()];
            row.extend(SHARD_COLUMNS.iter().map(|(name, _)| field(fields, name).to_owned()));
            let share = self.cpu_percent(before, number);
            row.push(share.map_or_else(|| "-".to_owned(), |share| format!("{share:.1}")));
            row
        };
        Part { title, content: Content::Table { head, rows: shards.iter().enumerate().map(row).collect() } }
    }

    /// What the server calls itself.
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// When it was, in UTC.
    pub(super) fn time(&self) -> &str {
        &self.time
    }

    /// Seconds since an earlier look.
    fn since(&self, before: &Self) -> f64 {
        (self.taken - before.taken).as_secs_f64()
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

    /// For programs: one object; with an earlier look, what has changed since also per second.
    pub(super) fn json(&self, before: Option<&Self>) -> Value {
        let object = |fields: &Fields| -> Value {
            fields
                .iter()
                .map(|(name, value)| (name.clone(), number_or_text(value)))
                .collect::<Map<_, _>>()
                .into()
        };
        let mut all =
            Map::from_iter([("server".to_owned(), json!(self.name)), ("time".to_owned(), json!(self.time))]);
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
        put("per_second", before.map(|before| self.rates(before)));
        put("mem", self.mem.as_ref().map(object));
        put(
            "shard",
            self.shards.as_ref().map(|shards| {
                let shards = shards.iter().enumerate().map(|(number, fields)| {
                    let mut shard = object(fields);
                    if let (Some(us), Value::Object(map)) = (self.cpu_us.get(&number), &mut shard) {
                        map.insert("cpu_us".to_owned(), json!(us));
                    }
                    if let (Some(share), Value::Object(map)) = (self.cpu_percent(before, number), &mut shard)
                    {
                        map.insert("cpu_percent".to_owned(), json!((share * 10.0).round() / 10.0));
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

impl Report {
    /// By section, how much each counter that has changed grew per second.
    fn rates(&self, before: &Self) -> Value {
        let of_section = |(section, fields): &(String, Fields)| {
            let rate = |name: &str, value: &str| before.rate(section, name, value, self.since(before));
            let rates =
                fields.iter().filter_map(|(name, value)| Some((name.clone(), json!(rate(name, value)?))));
            (section.to_lowercase(), rates.collect::<Map<_, _>>().into())
        };
        self.cnt.iter().flatten().map(of_section).collect::<Map<_, _>>().into()
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_numbers_in_json() {
        assert_eq!(number_or_text("12"), json!(12));
        assert_eq!(number_or_text("0.5"), json!(0.5));
        assert_eq!(number_or_text("7.2.4"), json!("7.2.4"));
        assert_eq!(number_or_text("inf"), json!("inf"));
    }
}
