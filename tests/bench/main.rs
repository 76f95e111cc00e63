//! `corelane bench`, run as a user runs it, and beside the real redis-benchmark.

#[path = "../common/mod.rs"]
mod common;
mod failures;

use std::io::{Read, Write};
use std::net::TcpListener;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use common::server::{self, Server};

/// Between two measurements of the same latency: redis-benchmark tells 8 microseconds apart.
const RESOLUTION_MS: f64 = 0.008;
/// What the machine adds, in parts of the latency: undisturbed rounds stay below it.
const NOISE: f64 = 0.02;
/// An unloaded machine needs one round; others need luck.
const ROUNDS: usize = 40;

fn bench(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_corelane")).arg("bench").args(args).output().expect("corelane runs")
}

fn on(server: &Server, args: &str) -> Output {
    let port = server.port.to_string();
    let args: Vec<&str> = ["-p", &port].into_iter().chain(args.split_whitespace()).collect();
    bench(&args)
}

fn text(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

/// The output with its numbers made alike, without what the progress line left, and without the lines of distributions.
fn shape(output: &Output) -> Vec<String> {
    assert!(output.status.success(), "{}", text(output));
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    let lines = printed.lines().map(|line| line.rsplit('\r').next().unwrap_or_default());
    let shown = lines.filter(|line| !line.contains("cumulative count"));
    shown.map(numbers_alike).collect()
}

fn numbers_alike(line: &str) -> String {
    let mut alike = String::new();
    for word in line.split_inclusive([' ', ',']) {
        let bare = word.trim_end_matches([' ', ',']).trim_matches('"').trim_start_matches("p50=");
        match bare.parse::<f64>() {
            Ok(_) => alike.push_str(&word.replace(bare, "N")),
            Err(_) => alike.push_str(word),
        }
    }
    // Columns are filled up with blanks: how many depends on the numbers.
    alike.split(' ').filter(|word| !word.is_empty()).collect::<Vec<_>>().join(" ")
}

#[test]
fn the_output_has_the_shape_of_redis_benchmarks() {
    if !server::installed("redis-benchmark", "--version") {
        return;
    }
    let server = Server::ours(1);
    let port = server.port.to_string();
    for args in [
        "-n 200 -c 5 -t ping,set,mset,lrange_100",
        "-n 200 -c 5 -q",
        "-n 200 -c 5 --csv",
        "-n 200 -c 5 -P 4 -r 100 -d 20 --threads 2 -t zadd",
        "-n 200 -c 5 -k 0 -q -t get",
        "-n 200 -c 5 -r 10 set key:__rand_int__ value:__rand_int__",
        "-n 200 -c 5 -q set key value",
        "-n 200 -c 5 --csv -q -t get",
        "-n 200 -c 5 -q -t set get a",
        "-n 50 -n 200 -c 9 -c 5 -q -t get -t set,",
        "-n 200 -c 5 -d 0 -P 0 -r 0 --threads 0 -k 2 -t set",
        "-n 200 -c 5 -d -3 -P -3 -r -3 --threads -2 --precision 99 -t set",
        "-n 200 -c 5 -q --user bob -t set",
    ] {
        let words = ["-p", &port].into_iter().chain(args.split(' '));
        let theirs = Command::new("redis-benchmark").args(words).output().expect("redis-benchmark runs");
        assert_eq!(shape(&on(&server, args)), shape(&theirs), "{args}");
        let mut client = server.client();
        if args.contains("-r 0") {
            client.check("STRLEN key:000000000000", ":1\r\n");
        }
    }
}

#[test]
fn distributions_end_with_all_requests() {
    let server = Server::ours(1);
    let printed = text(&on(&server, "-n 500 -c 4 -t get"));
    let (_, percentiles) = printed.split_once("Latency by percentile distribution:\n").expect("a section");
    let (percentiles, rest) = percentiles.split_once("\n\n").expect("its end");
    assert!(percentiles.starts_with("0.000% <= "), "{printed}");
    assert!(percentiles.ends_with("(cumulative count 500)"), "{printed}");
    let last = percentiles.lines().last().expect("a line");
    assert!(last.starts_with("100.000% <= ") && percentiles.contains("\n50.000% <= "), "{printed}");
    let (_, latencies) = rest.split_once("Cumulative distribution of latencies:\n").expect("a section");
    let (latencies, _) = latencies.split_once("\n\n").expect("its end");
    assert!(latencies.starts_with("0.000% <= 0.100 ") || !latencies.starts_with("0.0"), "{printed}");
    assert!(latencies.lines().last().is_some_and(|line| line.starts_with("100.000% <= ")), "{printed}");
}

/// Answers each request after a time: of a hundred, 60 after 1 millisecond, 37 after 3, 3 after 6.
fn slow_server() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("an address").port();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.expect("a connection");
            std::thread::spawn(move || {
                stream.set_nodelay(true).expect("an option");
                let (mut request, mut answered) = ([0; 4096], 0_u64);
                while let Ok(len @ 1..) = stream.read(&mut request) {
                    let came = Instant::now();
                    let settings = request[..len].windows(6).filter(|part| part == b"CONFIG").count();
                    if settings > 0 {
                        stream.write_all(&b"-ERR no such thing\r\n".repeat(settings)).expect("room");
                        continue;
                    }
                    let delay = match answered * 37 % 100 {
                        0..60 => 1,
                        60..97 => 3,
                        _ => 6,
                    };
                    answered += 1;
                    let until = came + Duration::from_millis(delay);
                    std::thread::sleep(Duration::from_millis(delay) - Duration::from_micros(500));
                    while Instant::now() < until {
                        std::hint::spin_loop();
                    }
                    if stream.write_all(b"+OK\r\n").is_err() {
                        break;
                    }
                }
            });
        }
    });
    port
}

/// The last line of CSV: average, minimum, percentiles 50, 95 and 99, maximum.
fn latencies(output: &Output) -> Vec<f64> {
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    let line = printed.lines().last().unwrap_or_else(|| panic!("{}", text(output)));
    let fields = line.split(',').skip(2).map(|field| field.trim_matches('"').parse());
    fields.collect::<Result<_, _>>().unwrap_or_else(|_| panic!("{}", text(output)))
}

#[test]
fn percentiles_are_those_of_redis_benchmark() {
    if !server::installed("redis-benchmark", "--version") {
        return;
    }
    let port = slow_server().to_string();
    let args = ["-p", &port, "-c", "1", "-n", "100", "--csv", "-t", "get"];
    // What disturbs a round only ever adds: the least of several rounds is what the server did.
    let (mut theirs, mut ours) = ([f64::MAX; 6], [f64::MAX; 6]);
    let least = |best: &mut [f64; 6], output: &Output| {
        best.iter_mut().zip(latencies(output)).for_each(|(best, seen)| *best = best.min(seen));
    };
    for _ in 0..ROUNDS {
        least(
            &mut theirs,
            &Command::new("redis-benchmark").args(args).output().expect("redis-benchmark runs"),
        );
        least(&mut ours, &bench(&args));
        // Minimum and percentiles; average and maximum are luck.
        let close = |at: usize| (ours[at] - theirs[at]).abs() <= RESOLUTION_MS + NOISE * theirs[at];
        if (1..5).all(close) {
            assert!(ours[2] >= 1.0 && ours[3] >= 3.0 && ours[4] >= 6.0, "{ours:?}");
            return;
        }
    }
    if let Some(load) = overload() {
        return server::skip(&format!("{load} processes want each CPU: tails of latencies are theirs"));
    }
    panic!("avg, min, p50, p95, p99, max in milliseconds: redis-benchmark {theirs:?}, ours {ours:?}");
}

/// Processes that want to run, per CPU, if there are many.
fn overload() -> Option<f64> {
    let averages = std::fs::read_to_string("/proc/loadavg").ok()?;
    let load: f64 = averages.split(' ').next()?.parse().ok()?;
    let cpus = std::thread::available_parallelism().ok()?.get() as f64;
    Some(load / cpus).filter(|load| *load > 3.0)
}

#[test]
fn exactly_so_many_requests_are_sent() {
    let server = Server::ours(2);
    let mut client = server.client();
    for (args, expected) in [
        ("-n 1000 -c 7 -P 3", 1000),
        ("-n 10 -c 50 --threads 3", 10),
        ("-n 1003 -c 20 -P 16 --threads 2", 1003),
        ("-n 300 -c 10 -k 0", 300),
        ("-n 1 -c 1 -3 --dbnum 0", 1),
    ] {
        client.check("DEL n", &format!(":{}\r\n", u8::from(expected != 1000)));
        let output = on(&server, &format!("{args} -q incr n"));
        assert!(output.status.success(), "{args}: {}", text(&output));
        client.check("GET n", &format!("${}\r\n{expected}\r\n", expected.to_string().len()));
    }
}

#[test]
fn keys_and_values_are_what_was_asked_for() {
    let server = Server::ours(2);
    let mut client = server.client();
    let succeeds = |args: &str| {
        let output = on(&server, args);
        assert!(output.status.success(), "{args}: {}", text(&output));
    };
    succeeds("-n 10 -t set,mset -q");
    client.check("KEYS *", "*1\r\n$16\r\nkey:__rand_int__\r\n");
    succeeds("-n 2000 -r 20 -d 33 -t set -q --dbnum 3");
    client.check("SELECT 3", "+OK\r\n");
    client.check("DBSIZE", ":20\r\n");
    client.check("STRLEN key:000000000019", ":33\r\n");
    succeeds("-n 100 -r 5 -d 7 -q set __rand_key__:x a__data__z");
    client.check("SELECT 0", "+OK\r\n");
    client.check("STRLEN key:000000000004:x", ":9\r\n");
    let mut child = spawn(&server, "-x -n 5 -q set from:stdin");
    child.stdin.take().expect("a pipe").write_all(b"some words").expect("a reader");
    assert!(child.wait().expect("an exit").success());
    client.check("GET from:stdin", "$10\r\nsome words\r\n");
}

/// SET's request has 45 bytes here, and so has what is said before it: for a moment they were in the same buffer.
#[test]
fn requests_as_long_as_the_greeting_are_sent_all_the_same() {
    let server = Server::ours(1);
    let output = on(&server, "-n 100 -c 3 -3 --dbnum 2 -t set -q");
    assert!(output.status.success(), "{}", text(&output));
    let mut client = server.client();
    client.check("DBSIZE", ":0\r\n");
    client.check("SELECT 2", "+OK\r\n");
    client.check("DBSIZE", ":1\r\n");
    let password = "p".repeat(24);
    client.check(&format!("CONFIG SET requirepass {password}"), "+OK\r\n");
    let output = on(&server, &format!("-a {password} -n 100 -c 3 -t set -q"));
    assert!(output.status.success(), "{}", text(&output));
    client.check("SELECT 0", "+OK\r\n");
    client.check("DBSIZE", ":1\r\n");
}

fn spawn(server: &Server, args: &str) -> Child {
    Command::new(env!("CARGO_BIN_EXE_corelane"))
        .args(["bench", "-p", &server.port.to_string()])
        .args(args.split(' '))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("corelane runs")
}

#[test]
fn json_says_everything() {
    let server = Server::ours(1);
    let output = on(&server, "-n 400 -c 8 -P 2 -r 100 -t set,get --json");
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).expect("one object");
    assert_eq!(json["target"], format!("127.0.0.1:{}", server.port));
    assert!(json["machine"]["cpus"].as_u64().is_some_and(|cpus| cpus > 0), "{json}");
    assert_eq!(json["command"].as_array().map(Vec::len), Some(15), "{json}");
    let tests = json["tests"].as_array().expect("tests");
    assert_eq!((tests.len(), &tests[0]["title"], &tests[1]["title"]), (2, &"SET".into(), &"GET".into()));
    for test in tests {
        let number = |name: &str| test[name].as_f64().unwrap_or_else(|| panic!("{name} of {test}"));
        let counted = [number("requests"), number("clients"), number("pipeline"), number("threads")];
        assert_eq!(counted, [400.0, 8.0, 2.0, 1.0]);
        assert_eq!([number("data_size"), number("keyspace"), number("errors")], [3.0, 100.0, 0.0]);
        assert!(number("seconds") > 0.0 && number("client_cpu_seconds") > 0.0, "{test}");
        assert!((number("requests_per_second") - 400.0 / number("seconds")).abs() < 1.0, "{test}");
        let steps =
            ["min", "p50", "p95", "p99", "p99.9", "max"].map(|name| test["latency_ms"][name].as_f64());
        assert!(steps.is_sorted() && steps[0].is_some(), "{test}");
        let counts = test["histogram"].as_array().expect("a histogram").iter();
        assert_eq!(counts.map(|step| step[1].as_u64().expect("a count")).sum::<u64>(), 400);
    }
}

/// Runs with `--json` and returns its only test.
fn measured(server: &Server, args: &str) -> serde_json::Value {
    let output = on(server, &format!("--json {args}"));
    let mut json: serde_json::Value = serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|error| panic!("{args}: {error}: {}", text(&output)));
    json["tests"][0].take()
}

#[test]
fn a_stall_is_seen_by_every_request_that_was_due_meanwhile() {
    let server = Server::ours(1);
    let mut client = server.client();
    let stall = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(500));
        client.check("DEBUG SLEEP 0.4", "+OK\r\n");
    });
    let test = measured(&server, "-c 5 -n 2000 --rate 1000 -t get");
    stall.join().expect("the stall");
    let number = |name: &str| test[name].as_f64().unwrap_or_else(|| panic!("{name} of {test}"));
    assert_eq!(number("requests"), 2000.0);
    assert!((1.9..30.0).contains(&number("seconds")), "{test}");
    // A fifth of the requests were due during the stall, half of them in its first half.
    let late: u64 = test["histogram"]
        .as_array()
        .expect("a histogram")
        .iter()
        .filter(|step| step[0].as_f64().is_some_and(|us| us > 200_000.0))
        .map(|step| step[1].as_u64().expect("a count"))
        .sum();
    assert!(late >= 150, "{late} late: {test}");
}

#[test]
fn a_server_that_cannot_keep_up_is_told() {
    let server = Server::ours(1);
    let test = measured(&server, "-c 2 --duration 0.5 --rate 5000000 -t get");
    let number = |name: &str| test[name].as_f64().unwrap_or_else(|| panic!("{name} of {test}"));
    assert!(number("missed") > 100_000.0 && number("requests") > 0.0, "{test}");
    assert!(number("seconds") < 5.0, "{test}");
    let output = on(&server, "-c 2 --duration 0.2 --rate 5000000 -t get");
    let printed = text(&output);
    assert!(printed.contains("the server did not keep up: "), "{printed}");
    assert!(printed.contains("  rate: 5000000 requests per second, "), "{printed}");
    // So many requests take longer than they should.
    let test = measured(&server, "-c 2 -n 10000 --rate 5000000 -t get");
    assert!(test["missed"] == 0 && test["late_seconds"].as_f64() > Some(0.05), "{test}");
    let printed = text(&on(&server, "-c 2 -n 10000 --rate 5000000 -q -t get"));
    assert!(printed.contains("the server did not keep up: the last request was sent "), "{printed}");
    let csv = on(&server, "-c 2 -n 10000 --rate 5000000 --csv -t get");
    assert_eq!(String::from_utf8_lossy(&csv.stdout).lines().count(), 2, "{}", text(&csv));
    assert!(text(&csv).contains("the server did not keep up: "), "{}", text(&csv));
    // Two requests are due in the time.
    let test = measured(&server, "-c 2 --duration 1.5 --rate 1 -t get");
    assert_eq!((&test["requests"], &test["missed"]), (&2.into(), &0.into()));
    assert!((1.5..2.0).contains(&test["seconds"].as_f64().expect("a time")), "{test}");
}

#[test]
fn time_limits_and_warm_up_hold() {
    let server = Server::ours(1);
    let began = Instant::now();
    let test = measured(&server, "-c 3 --warmup 0.3 --duration 0.5 -t incr");
    assert!(began.elapsed() >= Duration::from_millis(800), "{:?}", began.elapsed());
    let seconds = test["seconds"].as_f64().expect("a time");
    assert!((0.3..10.0).contains(&seconds), "{test}");
    let sent = server.client().run("GET counter:__rand_int__").text().parse::<u64>().expect("a number");
    let counted = test["requests"].as_u64().expect("a count");
    assert!(counted > 0 && counted < sent, "{counted} counted, {sent} sent");
    let test = measured(&server, "-c 3 --warmup 0.1 -n 100 -t get");
    assert_eq!(test["requests"], 100);
}

#[test]
fn keys_follow_their_distribution() {
    let server = Server::ours(1);
    let mut client = server.client();
    measured(&server, "-r 1000 -n 1000 -c 4 --threads 2 --keys sequential -t set");
    client.check("DBSIZE", ":1000\r\n");
    client.check("FLUSHALL", "+OK\r\n");
    measured(&server, "-r 1000 -n 5000 -c 4 -P 8 --keys zipf:1.2 --seed 4 incr __rand_key__");
    let first = client.run("GET key:000000000000").text().parse::<u32>().expect("a number");
    assert!((900..1700).contains(&first), "{first} of 5000 for the first key");
    client.check("FLUSHALL", "+OK\r\n");
    measured(&server, "-r 1000 -n 3000 --keys gaussian:0.5,0.05 incr __rand_key__");
    client.check("EXISTS key:000000000100 key:000000000900", ":0\r\n");
    client.check("EXISTS key:000000000500", ":1\r\n");
}

#[test]
fn sizes_ratios_and_files_are_mixed() {
    let server = Server::ours(1);
    let mut client = server.client();
    measured(&server, "-r 100 -n 3000 -P 4 --sizes 10-20 -t set");
    let sizes: Vec<i64> = (0..100).map(|key| client.run(&format!("STRLEN key:{key:012}")).int()).collect();
    assert!(sizes.iter().all(|size| (10..=20).contains(size)), "{sizes:?}");
    assert!(sizes.contains(&10) && sizes.contains(&20), "{sizes:?}");
    client.check("CONFIG RESETSTAT", "+OK\r\n");
    let test = measured(&server, "-r 100 -n 4000 --ratio 3:1 --sizes 8:1,300:1");
    assert_eq!(test["title"], "GET:SET 3:1");
    let stats = client.run("INFO commandstats").text();
    let calls = |name: &str| -> u32 {
        let (_, behind) = stats.split_once(&format!("cmdstat_{name}:calls=")).expect("the command");
        behind.split(',').next().and_then(|count| count.parse().ok()).expect("a count")
    };
    assert!((850..1150).contains(&calls("set")) && calls("get") + calls("set") == 4000, "{stats}");
    let dir = server::scratch_dir("bench-mix");
    let file = dir.join("mix.txt");
    std::fs::write(&file, "# a mix\n3 LPUSH list \"a b\"\n1 HSET hash f__rand_int__ __data__\n")
        .expect("a file");
    let histograms = dir.join("histograms");
    let args = format!("-r 10 -n 400 -c 3 --commands {} --hdr {}", file.display(), histograms.display());
    measured(&server, &args);
    let pushed = client.run("LLEN list").int();
    assert!((240..360).contains(&pushed), "{pushed}");
    client.check("LINDEX list 0", "$3\r\na b\r\n");
    client.check("HLEN hash", ":10\r\n");
    let saved: Vec<_> = std::fs::read_dir(&histograms).expect("a directory").collect();
    assert_eq!(saved.len(), 1);
    let path = saved[0].as_ref().expect("an entry").path();
    let saved = std::fs::read_to_string(path).expect("a histogram");
    assert!(saved.trim_start().starts_with("Value     Percentile TotalCount 1/(1-Percentile)"), "{saved}");
    assert!(saved.contains("Total count    =          400]"), "{saved}");
    std::fs::remove_dir_all(&dir).expect("the directory made above");
}
