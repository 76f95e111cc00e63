//! Results in text, saved, and several of them side by side.

use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde_json::Value;

use super::result::{Kind, Run, Thread};
use super::wakeups::{Line, line};
use crate::flags::VERSION;
use crate::machine::shown;

/// The lines of cyclictest, with percentiles behind them, and a histogram of so many microseconds.
pub(super) fn text(run: &Run, histogram: Option<u32>) -> String {
    let mut text = String::new();
    for (number, thread) in run.threads.iter().enumerate() {
        let shown = line(&Line {
            number,
            id: thread.id as u64,
            priority: thread.priority,
            interval_us: run.interval_us,
            wakeups: thread.wakeups,
            delays: [thread.min, thread.last, thread.avg, thread.max].map(|us| us as u64),
        });
        let _ =
            writeln!(text, "{shown} p50: {:.1} p99: {:.1} p99.9: {:.1}", thread.p50, thread.p99, thread.p999);
    }
    if let Some(end) = histogram {
        text.push_str("# Histogram\n");
        let end = u64::from(end);
        for us in 0..end {
            let counts = run
                .threads
                .iter()
                .map(|thread| thread.counts.iter().find(|(at, _)| *at == us).map_or(0, |(_, count)| *count));
            let counts: Vec<String> = counts.map(|count| format!("{count:06}")).collect();
            let _ = writeln!(text, "{us:06} {}", counts.join("\t"));
        }
        let each =
            |figure: &dyn Fn(&Thread) -> String| run.threads.iter().map(figure).collect::<Vec<_>>().join(" ");
        let within = |thread: &Thread| {
            let shown = thread.counts.iter().filter(|(at, _)| *at < end);
            format!("{:09}", shown.map(|(_, count)| count).sum::<u64>())
        };
        let whole = |us: f64| format!("{:05}", us as u64);
        let _ = writeln!(text, "# Total: {}", each(&within));
        let _ = writeln!(text, "# Min Latencies: {}", each(&|thread| whole(thread.min)));
        let _ = writeln!(text, "# Avg Latencies: {}", each(&|thread| whole(thread.avg)));
        let _ = writeln!(text, "# Max Latencies: {}", each(&|thread| whole(thread.max)));
        let over: Vec<String> = run
            .threads
            .iter()
            .map(|thread| {
                let beyond = thread.counts.iter().filter(|(at, _)| *at >= end);
                format!("{:05}", beyond.map(|(_, count)| count).sum::<u64>())
            })
            .collect();
        let _ = writeln!(text, "# Histogram Overflows: {}", over.join(" "));
    }
    text
}

/// Saves a result.
///
/// # Errors
/// The file cannot be written.
pub(super) fn save(run: &Run, file: &Path) -> Result<()> {
    fs::write(file, serde_json::to_vec_pretty(run)?)
        .with_context(|| format!("cannot write {}", file.display()))
}

/// A result that was saved, and what its machine is called.
#[derive(Debug)]
pub(super) struct Saved {
    name: String,
    run: Run,
}

/// Reads what was saved. Machines of one name are told apart by their files.
///
/// # Errors
/// A file cannot be read, or holds something else.
pub(super) fn load(files: &[PathBuf]) -> Result<Vec<Saved>> {
    let mut results = Vec::new();
    for file in files {
        let bytes = fs::read(file).with_context(|| format!("cannot read {}", file.display()))?;
        let run: Run = serde_json::from_slice(&bytes)
            .with_context(|| format!("{} holds no result of corelane latency --save", file.display()))?;
        let name = run.label.clone().unwrap_or_else(|| run.machine.host.clone());
        results.push(Saved { name, run });
    }
    let names: Vec<String> = results.iter().map(|saved| saved.name.clone()).collect();
    let stem = |file: &Path| file.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    let is_twice = |text: &str, texts: &[String]| texts.iter().filter(|other| *other == text).count() > 1;
    let stems: Vec<String> = files.iter().map(|file| stem(file)).collect();
    for (at, saved) in results.iter_mut().enumerate().filter(|(_, saved)| is_twice(&saved.name, &names)) {
        let file =
            if is_twice(&stems[at], &stems) { files[at].display().to_string() } else { stems[at].clone() };
        saved.name = format!("{} ({file})", saved.name);
    }
    Ok(results)
}

/// A row of Markdown.
fn row(cells: &[String]) -> String {
    let cells: Vec<String> = cells.iter().map(|cell| cell.replace('|', "\\|")).collect();
    format!("| {} |\n", cells.join(" | "))
}

/// The first rows of a table: its head, and which columns are names.
fn head(names: usize, titles: &[&str]) -> String {
    let rule: String = (0..titles.len()).map(|at| if at < names { "|---" } else { "|---:" }).collect();
    format!("| {} |\n{rule}|\n", titles.join(" | "))
}

/// The report on results that were saved: what was measured, with clock, cores and caches beside it, and the machines.
pub(super) fn markdown(results: &[Saved]) -> String {
    let mut text = String::from("# Latency of machines\n");
    for kind in Kind::ALL {
        let of_kind: Vec<&Saved> = results.iter().filter(|saved| saved.run.kind == kind).collect();
        if of_kind.is_empty() {
            continue;
        }
        let _ = write!(text, "\n## {}\n\nMicroseconds; Act is the last one.\n\n", kind.title());
        text += &head(
            2,
            &[
                "machine",
                "what",
                "clock (MHz)",
                "cores",
                "L1d",
                "L1i",
                "L2",
                "L3",
                "interval",
                kind.counted(),
                "Min",
                "Act",
                "Avg",
                "p50",
                "p99",
                "p99.9",
                "Max",
            ],
        );
        for Saved { name, run } in of_kind {
            for thread in &run.threads {
                let machine = &run.machine;
                let interval =
                    if run.interval_us == 0 { "–".to_owned() } else { run.interval_us.to_string() };
                let caches = [machine.l1d, machine.l1i, machine.l2, machine.l3].map(shown);
                let mut cells = vec![name.clone(), thread.label(), format!("{:.0}", machine.mhz)];
                cells.push(machine.cores.to_string());
                cells.extend(caches);
                cells.extend([interval, thread.wakeups.to_string()]);
                let times =
                    [thread.min, thread.last, thread.avg, thread.p50, thread.p99, thread.p999, thread.max];
                cells.extend(times.map(|us| format!("{us:.1}")));
                text += &row(&cells);
            }
        }
    }
    text + &machines(results)
}

fn machines(results: &[Saved]) -> String {
    let mut text = String::from("\n## Machines\n\n");
    text += &head(
        2,
        &[
            "machine",
            "model",
            "CPUs",
            "cores",
            "threads per core",
            "governor",
            "virtualisation",
            "kernel",
            "policy",
            "load at the start",
        ],
    );
    for Saved { name, run } in results {
        let machine = &run.machine;
        let known = |text: &str| if text.is_empty() { "unknown".to_owned() } else { text.to_owned() };
        text += &row(&[
            name.clone(),
            known(&machine.model),
            machine.cpus.to_string(),
            machine.cores.to_string(),
            machine.threads_per_core.to_string(),
            known(&machine.governor),
            known(&machine.virtualisation),
            known(&machine.kernel),
            run.policy.clone(),
            run.load.clone(),
        ]);
    }
    text
}

/// The same as an object, with the histograms.
///
/// # Errors
/// None that is known of.
pub(super) fn json(results: &[Saved]) -> Result<Value> {
    let object = |saved: &Saved| -> Result<Value> {
        let mut run = serde_json::to_value(&saved.run)?;
        run["name"] = saved.name.as_str().into();
        Ok(run)
    };
    let all: Result<Vec<Value>> = results.iter().map(object).collect();
    Ok(serde_json::json!({ "corelane_latency": VERSION, "results": all? }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::latency::result::Times;
    use crate::machine::Machine;

    fn run() -> Run {
        let mut run = Run::new(Kind::WakeUps, 1000, "other");
        run.machine =
            Machine { host: "vm".into(), mhz: 2494.2, cores: 4, threads_per_core: 1, ..Machine::default() };
        run.load = "0.00 0.04 0.69 1/235 9864".to_owned();
        let mut times = Times::new();
        [5000, 11_000, 11_000, 21_205_000].iter().for_each(|ns| times.note(*ns));
        run.threads.push(Thread { id: 9136, ..times.thread(None, None, 0) });
        run
    }

    #[test]
    fn a_histogram_ends_like_that_of_cyclictest() {
        let text = text(&run(), Some(12));
        let expected = "# Histogram\n000000 000000\n000001 000000\n000002 000000\n000003 000000\n000004 000000\n\
                        000005 000001\n000006 000000\n000007 000000\n000008 000000\n000009 000000\n000010 000000\n\
                        000011 000002\n# Total: 000000003\n# Min Latencies: 00005\n# Avg Latencies: 05308\n\
                        # Max Latencies: 21205\n# Histogram Overflows: 00001\n";
        let (line, histogram) = text.split_once('\n').unwrap();
        assert!(
            line.starts_with("T: 0 ( 9136) P: 0 I:1000 C:      4 Min:      5 Act:21205 Avg: 5308"),
            "{line}"
        );
        assert_eq!(histogram, expected);
    }

    #[test]
    fn machines_of_one_name_are_told_apart_by_their_files() {
        let dir = std::env::temp_dir().join(format!("corelane-latency-{}", std::process::id()));
        fs::create_dir_all(&dir).unwrap();
        let [one, other, named] = ["one.json", "other.json", "named.json"].map(|name| dir.join(name));
        save(&run(), &one).unwrap();
        save(&run(), &other).unwrap();
        save(&Run { label: Some("server 3".to_owned()), ..run() }, &named).unwrap();
        let results = load(&[one, other, named]).unwrap();
        fs::remove_dir_all(&dir).unwrap();
        let names: Vec<&str> = results.iter().map(|saved| saved.name.as_str()).collect();
        assert_eq!(names, ["vm (one)", "vm (other)", "server 3"]);
        let text = markdown(&results);
        for part in [
            "# Latency of machines\n\n## How late threads woke up\n",
            "| server 3 | not bound | 2494 | 4 | unknown | unknown | unknown | unknown | 1000 | 4 | 5.0 | 21205.0 | 5308.0 |",
            "| vm (one) | unknown | 0 | 4 | 1 | unknown | unknown | unknown | other | 0.00 0.04 0.69 1/235 9864 |",
        ] {
            assert!(text.contains(part), "{part} in {text}");
        }
        let json = json(&results).unwrap();
        assert_eq!(
            (&json["results"][2]["name"], &json["results"][2]["kind"]),
            (&"server 3".into(), &"wake-ups".into())
        );
    }
}
