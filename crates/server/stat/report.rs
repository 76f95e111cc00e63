//! One look at a server: what it says, and that as JSON for programs.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use corelane_engine::config::Directive;
use serde_json::{Map, Value, json};

use super::Section;
use super::text::{Content, Part};
use crate::client::{Client, Refusal};
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

/// Directives with passwords, here and in other servers: reports are for others to read.
const SECRETS: &[&str] =
    &["requirepass", "masterauth", "primaryauth", "tls-key-file-pass", "tls-client-key-file-pass"];

/// What a server tells of something, or its reason for not doing so.
type Told<T> = Result<T, String>;

/// Parts a server's refusal, such as that of a command that is not known or was renamed, from what makes a look impossible.
fn told<T>(outcome: Result<T>) -> Result<Told<T>> {
    match outcome {
        Ok(told) => Ok(Ok(told)),
        Err(error) => error.downcast::<Refusal>().map(|refusal| Err(refusal.to_string())),
    }
}

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
    cfg: Option<Told<Fields>>,
    /// By section of INFO.
    cnt: Option<Told<Vec<(String, Fields)>>>,
    mem: Option<Told<Fields>>,
    shards: Option<Told<Vec<Fields>>>,
    /// Microseconds of processor time by shard.
    cpu_us: BTreeMap<usize, u64>,
    sockets: Option<Told<Vec<Fields>>>,
}

impl Report {
    /// Asks for what is wanted. What the server refuses is said to be refused.
    ///
    /// # Errors
    /// The server does not answer, or refuses everything.
    pub(super) fn take(client: &mut Client, wanted: &dyn Fn(Section) -> bool) -> Result<Self> {
        let info = told(client.text(&["INFO", "everything"]))?.map(|info| sections(&info));
        let of = |name: &str| {
            info.iter()
                .flatten()
                .find(|(section, _)| section == name)
                .map(|(_, fields)| fields.clone())
                .unwrap_or_default()
        };
        let server = of("Server");
        let name = server_name(&server);
        let cfg = wanted(Section::Cfg).then(|| told(configuration(client))).transpose()?;
        let mem = wanted(Section::Mem).then(|| told(client.pairs(&["MEMORY", "STATS"]))).transpose()?;
        let refused = info.as_ref().err().cloned();
        let unless_refused = |fields: Vec<Fields>| refused.clone().map_or(Ok(fields), Err);
        let lines = || of("Shards").iter().map(|(_, line)| parts(line, ',')).collect();
        let shards = wanted(Section::Shard).then(|| unless_refused(lines()));
        let pid = field(&server, "process_id").parse().unwrap_or(0);
        let cpu_us = if shards.is_some() { shard_cpu_us(pid) } else { BTreeMap::new() };
        let list = wanted(Section::Sock).then(|| told(client.text(&["CLIENT", "LIST"]))).transpose()?;
        let of_list = |list: String| list.lines().map(|line| parts(line, ' ')).collect();
        let sockets: Option<Told<Vec<Fields>>> = list.map(|list| list.map(of_list));
        let counted = |(name, _): &(String, Fields)| COUNTED.contains(&name.as_str());
        let cnt = wanted(Section::Cnt).then(|| info.map(|all| all.into_iter().filter(counted).collect()));
        let uptime_s = field(&server, "uptime_in_seconds").parse().unwrap_or(0);
        let uptime = Duration::from_secs(u64::max(uptime_s, 1));
        let report = Self {
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
        };
        match report.refused() {
            Some(why) => bail!("{why}"),
            None => Ok(report),
        }
    }

    /// Why there is nothing at all.
    fn refused(&self) -> Option<&String> {
        fn why<T>(told: Option<&Told<T>>) -> Option<Option<&String>> {
            told.map(|told| told.as_ref().err())
        }
        let asked = [
            why(self.cfg.as_ref()),
            why(self.cnt.as_ref()),
            why(self.mem.as_ref()),
            why(self.shards.as_ref()),
            why(self.sockets.as_ref()),
        ];
        asked.into_iter().flatten().collect::<Option<Vec<_>>>()?.first().copied()
    }

    /// What there is to show; with an earlier look, counters also per second.
    pub(super) fn parts(&self, before: Option<&Self>) -> Vec<Part> {
        let mut all = Vec::new();
        let refused = |title: &str, why: &String| Part {
            title: title.to_owned(),
            content: Content::Words(format!("the server does not tell: {why}")),
        };
        if let Some(Err(why)) = &self.cfg {
            all.push(refused("configuration", why));
        }
        if let Some(Ok(cfg)) = &self.cfg {
            let of_effect = cfg.iter().filter(|(name, _)| has_effect(name));
            let row = |(name, value): &(String, String)| {
                let mark = if is_default(name, value) { "" } else { "*" };
                [mark.to_owned(), name.clone(), value.clone()]
            };
            let title = "configuration in force (* set by somebody)".to_owned();
            all.push(Part::list(title, of_effect.map(row).collect()));
        }
        if let Some(Err(why)) = &self.cnt {
            all.push(refused("counters", why));
        }
        for (section, fields) in self.sections() {
            let row = |(name, value): &(String, String)| {
                let rate = before.and_then(|before| before.rate(section, name, value, self.since(before)));
                let rate = rate.map_or_else(String::new, |rate| format!("  {rate:+.0}/s"));
                [String::new(), name.clone(), format!("{value}{rate}")]
            };
            all.push(Part::list(section.to_lowercase(), fields.iter().map(row).collect()));
        }
        if let Some(Err(why)) = &self.mem {
            all.push(refused("memory", why));
        }
        if let Some(Ok(mem)) = &self.mem {
            let row = |(name, value): &(String, String)| [String::new(), name.clone(), value.clone()];
            all.push(Part::list("memory".to_owned(), mem.iter().map(row).collect()));
        }
        match &self.shards {
            Some(Ok(shards)) => all.push(self.shard_part(shards, before)),
            Some(Err(why)) => all.push(refused("shards", why)),
            None => {}
        }
        match &self.sockets {
            Some(Ok(sockets)) => all.push(socket_part(sockets)),
            Some(Err(why)) => all.push(refused("connections", why)),
            None => {}
        }
        all
    }

    /// Sections of INFO with counters, if there are any.
    fn sections(&self) -> impl Iterator<Item = &(String, Fields)> {
        self.cnt.iter().flatten().flatten()
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
        let (_, fields) = self.sections().find(|(known, _)| known == section)?;
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
        let list = |list: &Vec<Fields>| list.iter().map(object).collect::<Vec<_>>().into();
        let by_section = |sections: &Vec<(String, Fields)>| -> Value {
            let objects = sections.iter().map(|(name, fields)| (name.to_lowercase(), object(fields)));
            objects.collect::<Map<_, _>>().into()
        };
        put("cfg", of_told(self.cfg.as_ref(), object));
        put("cnt", of_told(self.cnt.as_ref(), by_section));
        put("per_second", before.map(|before| self.rates(before)));
        put("mem", of_told(self.mem.as_ref(), object));
        put(
            "shard",
            of_told(self.shards.as_ref(), |shards| {
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
        put("sock", of_told(self.sockets.as_ref(), list));
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
        self.sections().map(of_section).collect::<Map<_, _>>().into()
    }
}

/// All directives, without the passwords.
fn configuration(client: &mut Client) -> Result<Fields> {
    let mut fields = client.pairs(&["CONFIG", "GET", "*"])?;
    let secrets =
        fields.iter_mut().filter(|(name, value)| SECRETS.contains(&name.as_str()) && !value.is_empty());
    secrets.for_each(|(_, value)| "(redacted)".clone_into(value));
    Ok(fields)
}

fn socket_part(sockets: &[Fields]) -> Part {
    let head = SOCKET_COLUMNS.iter().map(|(_, title)| *title).collect();
    let row =
        |fields: &Fields| SOCKET_COLUMNS.iter().map(|(name, _)| field(fields, name).to_owned()).collect();
    let rows = sockets.iter().map(row).collect();
    Part { title: "connections".to_owned(), content: Content::Table { head, rows } }
}

/// For programs: what was told, or an object with the reason why not.
fn of_told<T>(told: Option<&Told<T>>, value: impl FnOnce(&T) -> Value) -> Option<Value> {
    told.map(|told| told.as_ref().map_or_else(|why| json!({ "refused": why }), value))
}

/// A number if that is what the text is, to the digit: `0123`, `1e5` and `+1` are names, hashes and masks.
fn number_or_text(value: &str) -> Value {
    if let Some(int) = value.parse::<i64>().ok().filter(|int| int.to_string() == value) {
        return json!(int);
    }
    if let Some(large) = value.parse::<u64>().ok().filter(|large| large.to_string() == value) {
        return json!(large);
    }
    // Versions and addresses may look like numbers at their beginning only.
    let is_whole = |digits: &str| !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    let is_decimal = value.strip_prefix('-').unwrap_or(value).split_once('.').is_some_and(|(whole, part)| {
        is_whole(whole) && is_whole(part) && (whole == "0" || !whole.starts_with('0'))
    });
    let number = value.parse::<f64>().ok().filter(|_| is_decimal);
    number.map_or_else(|| json!(value), |number| json!(number))
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
        assert_eq!(number_or_text("-1"), json!(-1));
        assert_eq!(number_or_text("-0.5"), json!(-0.5));
        assert_eq!(number_or_text("18446744073709551615"), json!(u64::MAX));
        for text in ["inf", "0770", "00000000", "12e45678", "1e5", "+1", "-", ".", "", "007.5"] {
            assert_eq!(number_or_text(text), json!(text));
        }
    }
}
