//! `corelane experiment`: reports of recorded runs, small real runs, and everything that goes wrong.
//!
//! The recordings in `tests/experiment` hold the figures of published measurements, so that the reports have to come to the
//! published conclusions. `CORELANE_GOLDEN=write` writes the reports anew; look at the difference then.

#[path = "../common/mod.rs"]
mod common;
mod failures;

use std::collections::BTreeSet;
use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::Duration;

use common::server::{self, poll};
use failures::under_way;

/// The server of most runs here.
const SERVER: &str = "corelane --port {port} --bind 127.0.0.1 --shards 1 --placement float";
/// How soon a failure has to end the tool.
const END_MAX: Duration = Duration::from_secs(1);

fn command(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_corelane"));
    command.arg("experiment").args(args);
    command
}

fn experiment(args: &[&str]) -> Output {
    command(args).output().expect("corelane runs")
}

fn printed(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn complaint(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn recorded(file: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/experiment").join(file)
}

fn text(path: &Path) -> &str {
    path.to_str().expect("a path in UTF-8")
}

/// Something in place of `corelane bench` that first does what the words of a shell say, and then has measured something.
fn generator(dir: &Path, first: &str) -> String {
    let test = r#"{"tests":[{"title":"SET","requests":1000,"clients":50,"pipeline":1,"threads":1,"data_size":3,"keyspace":null,
        "seconds":0.5,"requests_per_second":2000,"errors":ERRORS,"client_cpu_seconds":0.1,"latency_ms":{"avg":0.2,"min":0.1,"p50":0.2,
        "p95":0.3,"p99":0.4,"p99.9":0.5,"max":0.6},"histogram":[[200,900],[600,100]]}]}"#;
    for (name, errors) in [("result", "0"), ("errors", "7")] {
        fs::write(dir.join(name), test.replace("ERRORS", errors)).expect("a file");
    }
    format!("sh -c '{first}; cat {}/result'", dir.display())
}

#[test]
fn reports_of_published_figures_come_to_the_published_conclusions() {
    let (ec2, premises) = (recorded("env-ec2.json"), recorded("env-premises.json"));
    let (placement, compare) = (recorded("placement.json"), recorded("compare.json"));
    let (accel, twice) = (recorded("accel.json"), recorded("twice.json"));
    // What the documents conclude: 54 % more, 43 to 45 % less; 2.2 to 2.6, 3.5 and 2.57 times; 2.3 times, with the
    // distribution that redis-benchmark has printed; as much as the clock.
    for (words, golden, published) in [
        (
            vec!["report", text(&placement)],
            "placement.md",
            &["throughput: +54.2 %", "latency: −42.9 %", "latency: −45.0 %", "| 231,585 |"][..],
        ),
        (
            vec!["report", text(&compare)],
            "compare.md",
            &[
                "is 2.23 to 2.58 ×",
                "is 3.50 ×",
                "is 2.57 ×",
                "| Go service | 171260 | 17.7 |",
                "| Redis | 160596 | 26.5 |",
                "| 513.0 | 3 |",
            ],
        ),
        (
            vec!["report", text(&accel)],
            "accel.md",
            &[
                "throughput: 2.30 ×",
                "\n  host configuration \"save\": 3600 1 300 100 60 10000\n  host configuration \"appendonly\": no\n  multi-thread: yes\n",
                "\n96.875% <= 0.175 milliseconds (cumulative count 4890339)\n98.438% <= 0.183 milliseconds (cumulative count \
                 4967042)\n99.609% <= 0.191 milliseconds (cumulative count 4991789)\n",
                "\n99.998% <= 2.103 milliseconds (cumulative count 4999920)\n99.999% <= 3.103 milliseconds (cumulative count \
                 4999931)\n",
            ],
        ),
        // One server measured twice, on a machine that others kept busy.
        (
            vec!["report", text(&twice)],
            "twice.md",
            &[
                "SET | no difference (0.86 ×)",
                "is no different (the medians are 0.86 to 1.41 ×, which is within the spread) from",
            ],
        ),
        (vec!["report", text(&ec2)], "env.md", &["SET: 175746.92 requests per second\nGET: 188323.91"]),
        (
            vec!["diff", text(&ec2), text(&premises)],
            "diff.md",
            &["is 1.26 × that", "about in proportion to the clock"],
        ),
    ] {
        let output = experiment(&words);
        assert!(output.status.success(), "{words:?}: {}", complaint(&output));
        let file = recorded(golden);
        if env::var_os("CORELANE_GOLDEN").is_some_and(|mode| mode == "write") {
            fs::write(&file, printed(&output)).expect("a file that can be written");
        }
        let expected = fs::read_to_string(&file).expect("a report that was looked at");
        assert_eq!(printed(&output), expected, "{golden}");
        for part in published {
            assert!(expected.contains(part), "{part} in {golden}");
        }
    }
}

#[test]
fn a_saved_run_is_shown_again_and_pictures_are_drawn() {
    let dir = server::scratch_dir("experiment-again");
    let out = dir.join("again");
    let source = recorded("compare.json");
    let output = experiment(&["report", text(&source), "--out", text(&out), "--json"]);
    assert!(output.status.success(), "{}", complaint(&output));
    let json = printed(&output);
    for part in
        [r#""metric":"requests_per_second""#, r#""spread_percent":0.0"#, r#""conclusions":["25 clients"#]
    {
        assert!(json.contains(part), "{part} in {json}");
    }
    let report = fs::read_to_string(out.join("report.md")).expect("a report");
    assert!(report.contains("![requests per second](throughput.svg)"), "{report}");
    for picture in ["throughput.svg", "p99.svg"] {
        let svg = fs::read_to_string(out.join(picture)).expect("a picture");
        assert!(
            svg.starts_with("<svg ") && svg.contains("Go service") && svg.contains("SET-random-keys"),
            "{svg}"
        );
    }
    let once_more = experiment(&["report", text(&out)]);
    assert_eq!(printed(&once_more), printed(&experiment(&["report", text(&source)])));
    let output = experiment(&["report", text(&source), "--out", text(&out)]);
    assert_eq!(output.status.code(), Some(1));
    assert!(
        complaint(&output).contains("has a run.json already: give another directory"),
        "{}",
        complaint(&output)
    );
    fs::remove_dir_all(&dir).expect("the directory made above");
}

#[test]
fn bad_flags_are_usage_errors_and_bad_runs_failures() {
    for words in [
        "",
        "nope",
        "placement --repeat 0",
        "placement --drift-us 0",
        "placement --scale 0",
        "placement --scale x",
        "placement --threads 0",
        "compare",
        "compare --a localhost:1",
        "compare --a localhost:1 --start-a x --b localhost:2",
        "accel --busy-poll-us 0",
        "diff one",
        "report",
    ] {
        let args: Vec<&str> = words.split_whitespace().collect();
        assert_eq!(experiment(&args).status.code(), Some(2), "{words}");
    }
    let (compare, env) = (recorded("compare.json"), recorded("env-ec2.json"));
    for (args, why) in [
        (&["env", "--only", "PUT"][..], "there is no PUT here; there are SET-100000, GET-100000"),
        (&["env", "--url", "http://x"], "http://x is no address"),
        (&["env", "--client", ""], "the command of the load generator is empty"),
        (&["env", "--server", "no-such-program {port}"], "cannot run `no-such-program {port}`"),
        (&["env", "--server", "\"open"], "a quote is not closed"),
        (&["placement", "--client-cpus", "9999"], "this process may not use cpu 9999"),
        (
            &["compare", "--a", "localhost:1", "--b", "localhost:2", "--name-a", "x", "--name-b", "x"],
            "two servers of one name cannot be told apart",
        ),
        (&["diff", text(&compare), text(&env)], "these are runs of different experiments"),
        (&["report", "Cargo.toml"], "Cargo.toml holds no run of corelane experiment"),
        (&["report", "no/such/run"], "cannot read no/such/run"),
    ] {
        let output = experiment(args);
        assert_eq!(output.status.code(), Some(1), "{args:?}: {}", complaint(&output));
        assert!(complaint(&output).contains(why), "{args:?}: {}", complaint(&output));
    }
}

/// The words of a command line, with either kind of quotes.
fn words(line: &str) -> Vec<String> {
    let (mut words, mut quote) = (vec![String::new()], None);
    for letter in line.chars() {
        let word = words.last_mut().expect("it begins with one");
        match (letter, quote) {
            (_, Some(open)) if letter == open => quote = None,
            (_, Some(_)) => word.push(letter),
            ('\'' | '"', None) => quote = Some(letter),
            (' ', None) => words.push(String::new()),
            (_, None) => word.push(letter),
        }
    }
    words
}

/// What stands for a table of a published document has loads and cases of these names. Each command gets as far as to a server that
/// cannot be started, or reached.
#[test]
fn the_commands_for_published_tables_are_understood() {
    let document = fs::read_to_string("docs/reproduce.md").expect("the document");
    let rows = document.lines().filter(|line| line.starts_with('|'));
    let commands = rows.flat_map(|row| row.split('`').skip(1).step_by(2));
    let mut measured = 0;
    for line in commands.filter(|text| text.starts_with("corelane experiment ")) {
        if line.starts_with("corelane experiment diff ") {
            continue;
        }
        let mut args =
            words(&line.replace("HOST", "host.invalid").replace("redis-server", "no-such-program"));
        args.drain(..2);
        let (program, option) = ("no-such-program {port}", args[0].clone());
        match option.as_str() {
            "env" => args.extend(["--server", program].map(str::to_owned)),
            "accel" => args.extend(["--ordinary", program].map(str::to_owned)),
            _ => {}
        }
        if let Some(at) = args.iter().position(|word| word == "--out") {
            args.drain(at..at + 2);
        }
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        let output = experiment(&args);
        let said = complaint(&output);
        assert_eq!(output.status.code(), Some(1), "{line}: {said}");
        let stopped = ["cannot run `no-such-program", "host.invalid", "only one core"];
        assert!(stopped.iter().any(|why| said.contains(why)), "{line}: {said}");
        measured += 1;
    }
    assert!(measured >= 13, "{measured} commands");
}

#[test]
fn a_drifting_server_really_runs_on_one_cpu_after_another() {
    if std::thread::available_parallelism().map_or(1, usize::from) < 2 {
        return server::skip("one CPU: a server cannot be moved");
    }
    let mut run =
        under_way("experiment-drift", &["placement", "--only", "SET,drifting", "--drift-us", "2000"]);
    let socket = format!("unix://{}/s", run.dir.display());
    let client = redis::Client::open(socket).expect("an address");
    let mut connection = client.get_connection().expect("a connection");
    let mut seen = BTreeSet::new();
    let found = poll(20_000, || {
        redis::cmd("PING").exec(&mut connection).expect("an answer");
        // The CPU on which a thread ran last is field 39; the name before the third may hold blanks.
        for task in fs::read_dir(format!("/proc/{}/task", run.server)).expect("its threads").flatten() {
            let stat = fs::read_to_string(task.path().join("stat")).unwrap_or_default();
            if stat.contains("(shard-0)") {
                let cpu = stat.rsplit_once(") ").and_then(|(_, behind)| behind.split(' ').nth(36));
                seen.extend(cpu.and_then(|cpu| cpu.parse::<usize>().ok()));
            }
        }
        (seen.len() > 1).then_some(())
    });
    run.child.kill().expect("a process to be killed");
    run.child.wait().expect("an exit");
    assert!(found.is_some(), "the shard ran on {seen:?} only");
    fs::remove_dir_all(&run.dir).expect("the directory made above");
}

#[test]
fn small_real_runs_of_all_experiments_are_saved_shown_and_compared() {
    let dir = server::scratch_dir("experiment-real");
    let out = |name: &str| dir.join(name).to_str().expect("a path in UTF-8").to_owned();
    let [compare, env_a, env_b, accel, diff] = ["compare", "env-a", "env-b", "accel", "diff"].map(out);
    let loads = "SET,GET,HSET,SET-random-keys";
    let run = |words: &[&str]| {
        let output = experiment(words);
        assert!(output.status.success(), "{words:?}: {}", complaint(&output));
        printed(&output)
    };
    let small = ["--scale", "0.02", "--repeat", "2", "-q"];
    let report = run(&[
        &["compare", "--start-a", SERVER, "--start-b", SERVER, "--only", loads, "--out", &compare],
        &small[..],
    ]
    .concat());
    let version = env!("CARGO_PKG_VERSION");
    for part in [
        format!("# corelane {version} (a) beside corelane {version} (b)"),
        "## Random keys, requests of 61 bytes\n\n50 clients, 10 000 random keys, requests of 61 bytes; 20,000 requests a run.".to_owned(),
        "medians of 2 alternating runs".to_owned(),
        "corelane bench --json -h 127.0.0.1 -p ".to_owned(),
    ] {
        assert!(report.contains(&part), "{part} in {report}");
    }
    let (_, used) = report.split_once("## What the servers used").expect("a section");
    let rows: Vec<Vec<&str>> = used
        .lines()
        .filter(|line| line.starts_with("| SET") || line.starts_with("| GET"))
        .map(|line| line.split(" | ").collect())
        .collect();
    // The first loads are too short for shares of a CPU.
    let known = |row: &Vec<&str>| [row[2], row[5], row[6]].iter().all(|cell| *cell != "–");
    assert!(rows.len() == 6 && rows.iter().all(known), "resources are known of both: {report}");
    for out in [&env_a, &env_b] {
        let report = run(&[&["env", "--server", SERVER, "--out", out, "--label", out], &small[..]].concat());
        assert!(report.contains("\nLPOP: ") && report.contains(" requests per second\n"), "{report}");
    }
    let report = run(&["diff", &env_a, &env_b, "--out", &diff]);
    assert!(
        report.contains(" × as many requests per second as ") && report.contains("Its clock is 1.00 ×"),
        "{report}"
    );
    let ways = "ordinary,ring,ring-unix";
    let tiny = ["--scale", "0.001", "--repeat", "1", "--threads", "1", "-q"];
    let report =
        run(&[&["accel", "--ordinary", SERVER, "--only", ways, "--out", &accel], &tiny[..]].concat());
    assert_eq!(report.matches("\nLatency by percentile distribution:\n0.000% <= ").count(), 3, "{report}");
    assert!(report.contains(" -s {dir}/socket "), "{report}");
    for picture in ["latency.svg", "throughput.svg", "cpu.svg"] {
        let svg = fs::read_to_string(Path::new(&accel).join(picture)).expect("a picture");
        assert!(svg.contains("ordinary sockets") && svg.contains("ring, Unix socket"), "{svg}");
    }
    fs::remove_dir_all(&dir).expect("the directory made above");
}

#[test]
fn placements_are_measured_as_far_as_the_machine_has_them() {
    if two_cpus().is_none() {
        return server::skip("one CPU: none for the load generator");
    }
    let output = experiment(&[
        "placement",
        "--server",
        SERVER,
        "--scale",
        "0.0005",
        "--repeat",
        "2",
        "--drift-us",
        "100",
        "-q",
    ]);
    let report = printed(&output);
    assert!(output.status.success(), "{}", complaint(&output));
    assert!(report.contains("- SET, a drifting server"), "{report}");
    assert!(report.contains("All threads of the drifting server that ran were moved "), "{report}");
    let has_siblings = report.contains("both servers together");
    let reason = "Not measured: two servers on the threads of one core";
    assert_ne!(has_siblings, report.contains(reason), "{report}");
    let words = "placement --only SET,siblings --scale 0.0005 --repeat 1 --server";
    let alone = experiment(&words.split(' ').chain([SERVER]).collect::<Vec<_>>());
    assert_eq!(alone.status.success(), has_siblings, "{}", complaint(&alone));
    let said = complaint(&alone);
    assert!(has_siblings || said.contains("nothing of this can be measured here. "), "{said}");
}

/// Two CPUs that this process may use, if there are so many.
fn two_cpus() -> Option<[usize; 2]> {
    let status = fs::read_to_string("/proc/self/status").expect("our own status");
    let list = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:")).expect("our CPUs");
    let mut cpus = list.trim().split(',').flat_map(|range| {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let number = |text: &str| text.parse::<usize>().expect("a number");
        number(first)..=number(last)
    });
    Some([cpus.next()?, cpus.next()?])
}

/// Where the machine has no SMT, the files that say so are covered, in a mount namespace, by some that say the opposite.
#[test]
fn servers_on_the_threads_of_a_core_are_loaded_together_and_summed() {
    let Some([one, other]) = two_cpus() else {
        return server::skip("one CPU: no two servers beside each other");
    };
    let dir = server::scratch_dir("experiment-siblings");
    let client = generator(&dir, "sleep 0.7");
    let siblings = dir.join("siblings");
    fs::write(&siblings, format!("{one},{other}\n")).expect("a file");
    let covered = |cpu| format!("/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list");
    let [first, second] = [covered(one), covered(other)];
    let script = r#"mount --bind "$1" "$2" && mount --bind "$1" "$3" || exit 99; shift 3; exec "$@""#;
    let (cpu, end) = (one.to_string(), ["--repeat", "2", "-q"]);
    let output = Command::new("unshare")
        .args([
            "-m",
            "sh",
            "-c",
            script,
            "sh",
            text(&siblings),
            &first,
            &second,
            env!("CARGO_BIN_EXE_corelane"),
        ])
        .args(["experiment", "placement", "--client", &client, "--only", "SET,exclusive,siblings"])
        .args(["--server-cpu", &cpu, "--client-cpus", &cpu])
        .args(end)
        .output();
    let Some(output) = output.ok().filter(|output| ![Some(1), Some(99)].contains(&output.status.code()))
    else {
        return server::skip(
            "`unshare -r -m` and `mount --bind` are not permitted here: no core with two threads can be had",
        );
    };
    let report = printed(&output);
    assert!(output.status.success(), "{}", complaint(&output));
    for part in [
        format!("| one of two servers on the threads of a core (cpus {one} and {other}) | 2,000 | 0.200 |"),
        "| both servers together | 4,000 |".to_owned(),
        "both servers on the threads of one core together against one alone on it: throughput: +100.0 %."
            .to_owned(),
        "the server used ".to_owned(),
    ] {
        assert!(report.contains(&part), "{part} in {report}");
    }
    fs::remove_dir_all(&dir).expect("the directory made above");
}
