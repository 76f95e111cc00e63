//! `corelane latency`, run as a user runs it, and beside the real cyclictest.

mod common;

use std::fs;
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use common::server::{self, Server};

/// An unloaded machine needs one round; others need luck.
const ROUNDS: usize = 8;

fn latency(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_corelane")).arg("latency").args(args).output().expect("corelane runs")
}

fn text(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

/// The number behind `Avg:` in the first line of a thread.
fn average(printed: &str) -> f64 {
    let line = printed.lines().find(|line| line.starts_with("T: 0 (")).expect("a line of a thread");
    let (_, behind) = line.split_once("Avg:").expect("an average");
    behind.split_whitespace().next().and_then(|word| word.parse().ok()).expect("a number")
}

#[test]
fn averages_are_those_of_cyclictest() {
    if !server::installed("cyclictest", "--help") {
        return;
    }
    let mut seen = Vec::new();
    for _ in 0..ROUNDS {
        let theirs = Command::new("cyclictest").args(["-q", "-D", "1s"]).output().expect("cyclictest runs");
        let (theirs, ours) = (average(&text(&theirs)), average(&text(&latency(&["-q", "-D", "1s"]))));
        if (ours - theirs).abs() <= (theirs * 0.2).max(3.0) {
            return;
        }
        seen.push((theirs, ours));
    }
    panic!("averages of cyclictest and ours, in microseconds: {seen:?}");
}

#[test]
fn results_are_saved_compared_and_drawn() {
    let dir = server::scratch_dir("latency");
    let file = |name: &str| dir.join(name).to_str().expect("a path in UTF-8").to_owned();
    let output =
        latency(&["-i", "200", "-l", "100", "-h", "50", "--save", &file("a.json"), "--svg", &file("a.svg")]);
    let printed = text(&output);
    assert!(output.status.success(), "{printed}");
    assert!(
        printed.contains("# /dev/cpu_dma_latency ") && printed.contains("\npolicy: other/other: loadavg: "),
        "{printed}"
    );
    assert!(printed.contains(" P: 0 I:200 C:    100 Min:"), "{printed}");
    for part in
        ["\n# Histogram\n000000 ", "\n# Total: 000000", "\n# Max Latencies: ", "\n# Histogram Overflows: "]
    {
        assert!(printed.contains(part), "{part} in {printed}");
    }
    let drawn = fs::read_to_string(file("a.svg")).expect("a picture");
    assert!(drawn.starts_with("<svg ") && drawn.contains("not bound"), "{drawn}");
    let report = text(&latency(&["--report", &file("a.json"), &file("a.json")]));
    assert!(report.starts_with("# Latency of machines\n\n## How late threads woke up\n"), "{report}");
    assert_eq!(report.matches(" | 200 | 100 | ").count(), 2, "{report}");
    assert!(report.contains("| threads per core | governor | virtualisation |"), "{report}");
    fs::write(file("b.json"), "{}").expect("a file");
    let output = latency(&["--report", &file("b.json")]);
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output).contains("holds no result of corelane latency --save"), "{}", text(&output));
    let json = text(&latency(&["-l", "20", "--json"]));
    assert!(json.starts_with("{\"machine\":{") && json.contains("\"wakeups\":20"), "{json}");
    fs::remove_dir_all(&dir).expect("the directory made above");
}

#[test]
fn what_else_is_measured_is_saved_and_drawn_too() {
    let dir = server::scratch_dir("latency-else");
    let file = |name: &str| dir.join(name).to_str().expect("a path in UTF-8").to_owned();
    let socket = file("socket");
    let server = Server::ours_with(1, &["--unixsocket", &socket]);
    let [tcp, unix] = [format!("redis://127.0.0.1:{}", server.port), format!("unix://{socket}")];
    let mut saved = vec!["--report".to_owned()];
    for (name, what) in [
        ("tcp", &["--server", &tcp, "-D", "200ms"][..]),
        ("unix", &["--server", &unix, "-D", "200ms"]),
        ("path", &["--server", &socket, "-D", "200ms"]),
        ("intrinsic", &["--intrinsic", "1", "--label", "a machine"]),
    ] {
        let (json, svg) = (file(&format!("{name}.json")), file(&format!("{name}.svg")));
        let output = latency(&[what, &["--save", &json, "--svg", &svg]].concat());
        assert!(output.status.success(), "{name}: {}", text(&output));
        assert!(fs::read_to_string(&svg).expect("a picture").starts_with("<svg "), "{name}");
        saved.push(json);
    }
    let words: Vec<&str> = saved.iter().map(String::as_str).collect();
    let report = text(&latency(&words));
    let round_trips = report.split_once("## Round trips of PING\n").expect("a section").1;
    assert!(round_trips.contains(&format!(" (tcp) | 127.0.0.1:{} | ", server.port)), "{report}");
    assert!(round_trips.contains(&format!(" (unix) | {socket} | ")), "{report}");
    assert!(round_trips.contains("## How long one computation took\n"), "{report}");
    assert!(round_trips.contains("| a machine | not bound | "), "{report}");
    let json = text(&latency(&[&words[..], &["--json"]].concat()));
    let json: serde_json::Value = serde_json::from_str(&json).expect("an object");
    let kinds = json["results"].as_array().expect("results").iter().map(|run| run["kind"].as_str());
    let expected = ["round-trips", "round-trips", "round-trips", "intrinsic"].map(Some);
    assert_eq!(kinds.collect::<Vec<_>>(), expected);
    fs::remove_dir_all(&dir).expect("the directory made above");
}

#[test]
fn bad_flags_are_usage_errors() {
    for args in [
        &["-i", "0"][..],
        &["-D", "soon"],
        &["-p", "100"],
        &["--nope"],
        // What would change nothing is refused.
        &["--server", "localhost:1", "-p", "1"],
        &["--server", "localhost:1", "--intrinsic", "1"],
        &["--intrinsic", "0"],
        &["--server", "localhost:1", "--history", "0"],
        // A line for each microsecond has to be held in memory.
        &["-l", "1", "-h", "99999999999"],
        &["-l", "1", "-h", "1000001"],
        &["--intrinsic", "1", "-i", "100"],
        &["--intrinsic", "1", "-m"],
        &["--report", "a", "--save", "b"],
        &["--label", "a"],
        &["--history", "1"],
        &["--user", "somebody", "--server", "localhost:1"],
    ] {
        assert_eq!(latency(args).status.code(), Some(2), "{args:?}");
    }
    for output in ["--save", "--svg"] {
        let began = Instant::now();
        let output = latency(&["-D", "60", output, "/nonexistent/file"]);
        assert!(text(&output).contains("cannot write /nonexistent/file"), "{}", text(&output));
        assert!(output.status.code() == Some(1) && began.elapsed() < Duration::from_secs(5));
    }
    let output = latency(&["-a", "9999", "-l", "1"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output).contains("may not use cpu 9999"), "{}", text(&output));
}

/// The allocator has far more addresses than memory.
#[test]
fn locked_memory_is_what_is_used() {
    let mut child = Command::new(env!("CARGO_BIN_EXE_corelane"))
        .args(["latency", "-m", "-q", "-D", "60s"])
        .stdout(std::process::Stdio::null())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .expect("corelane runs");
    let status = format!("/proc/{}/status", child.id());
    // The thread that measures starts once memory is locked.
    let measuring = server::poll(20_000, || {
        let told = fs::read_to_string(&status).unwrap_or_default();
        let ended = child.try_wait().expect("a child").is_some();
        (ended || told.contains("\nThreads:\t2\n")).then_some(told)
    });
    child.kill().expect("a process to be killed");
    let said = text(&child.wait_with_output().expect("an exit"));
    if said.contains("cannot lock memory") {
        return server::skip(&said);
    }
    let told = measuring.unwrap_or_else(|| panic!("it does not begin: {said}"));
    let kib = |name: &str| -> u64 {
        let line = told.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_else(|| panic!("{told}"));
        line.trim().trim_end_matches(" kB").parse().expect("a number")
    };
    assert!(kib("VmLck:") > 0 && kib("VmRSS:") < 512 << 10, "{told}");
}

/// As with `| head -1`, it ends without a panic.
#[test]
fn it_ends_when_nobody_reads_what_it_prints() {
    let server = Server::ours(1);
    let address = format!("127.0.0.1:{}", server.port);
    let (server_args, intrinsic): (&[&str], &[&str]) =
        (&["--server", &address, "--history", "1"], &["--intrinsic", "600"]);
    for args in [intrinsic, server_args] {
        let mut child = Command::new(env!("CARGO_BIN_EXE_corelane"))
            .arg("latency")
            .args(args)
            .stdout(std::process::Stdio::piped())
            .stderr(std::process::Stdio::piped())
            .spawn()
            .expect("corelane runs");
        drop(child.stdout.take());
        let output = child.wait_with_output().expect("an exit");
        assert_eq!(output.status.code(), Some(0), "{args:?}: {}", text(&output));
        assert_eq!(text(&output), "", "{args:?}");
    }
}

#[test]
fn a_thread_that_does_not_wait_is_watched() {
    let printed = text(&latency(&["--intrinsic", "1"]));
    assert!(printed.starts_with("Max latency so far: "), "{printed}");
    assert!(printed.contains(" total runs (avg latency: "), "{printed}");
}

#[test]
fn round_trips_are_measured_and_failures_told_at_once() {
    let mut server = Server::ours(1);
    server.client().check("CONFIG SET requirepass secret", "+OK\r\n");
    let address = format!("127.0.0.1:{}", server.port);
    let output = latency(&["--server", &address, "--pass", "secret", "-i", "100", "-D", "1", "--json"]);
    let printed = text(&output);
    assert!(output.status.success() && printed.contains("\"p99_us\":"), "{printed}");
    let history = text(&latency(&["--server", &address, "--pass", "secret", "-D", "2.5", "--history", "1"]));
    assert_eq!(history.matches(" seconds range").count(), 2, "{history}");
    let refused = latency(&["--server", &address, "--pass", "wrong", "-D", "1"]);
    assert_eq!(refused.status.code(), Some(1));
    assert!(text(&refused).contains("the server refuses the password: WRONGPASS"), "{}", text(&refused));

    let unasked = latency(&["--server", &address, "-D", "1"]);
    assert_eq!(unasked.status.code(), Some(1));
    let hint = format!(
        "{address}: the server wants a password (in REDISCLI_AUTH, or as redis://:PASSWORD@HOST:PORT): NOAUTH"
    );
    assert!(text(&unasked).contains(&hint), "{}", text(&unasked));
    let named = latency(&["--server", &address, "--user", "default", "--pass", "secret", "-D", "0.1"]);
    assert!(named.status.success(), "{}", text(&named));

    // A request a minute: the end is noticed in between.
    let interval = "60000000";
    let child = Command::new(env!("CARGO_BIN_EXE_corelane"))
        .args(["latency", "--server", &address, "--pass", "secret", "-q", "-i", interval])
        .stderr(std::process::Stdio::piped())
        .stdout(std::process::Stdio::null())
        .spawn()
        .expect("corelane runs");
    std::thread::sleep(Duration::from_millis(300));
    server.signal("KILL");
    server.await_exit(10_000).expect("an exit");
    let ended = Instant::now();
    let output = child.wait_with_output().expect("an exit");
    assert_eq!(output.status.code(), Some(1), "{}", text(&output));
    assert!(ended.elapsed() < Duration::from_secs(1), "{:?}", ended.elapsed());
    let output = latency(&["--server", &address, "--user", "default", "--pass", "secret"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output).contains("cannot connect to 127.0.0.1:"), "{}", text(&output));
}
