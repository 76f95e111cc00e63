//! `--metrics-port`: metrics as parsers of others read them, HTTP as it should not be spoken, the page in a browser.

mod common;

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use common::server::{self, Server};

const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
const PLAIN: &str = "text/plain; version=0.0.4; charset=utf-8";

/// A server and the port of its metrics.
fn with_metrics(shards: usize) -> (Server, u16) {
    let port = server::free_port();
    (Server::ours_with(shards, &["--metrics-port", &port.to_string()]), port)
}

fn connect(port: u16) -> TcpStream {
    let stream = TcpStream::connect(("127.0.0.1", port)).expect("metrics are served");
    stream.set_read_timeout(Some(Duration::from_secs(20))).expect("a timeout");
    stream
}

/// Everything that comes until the server closes.
fn rest(stream: &mut TcpStream) -> String {
    let mut text = Vec::new();
    stream.read_to_end(&mut text).expect("an end");
    String::from_utf8(text).expect("UTF-8")
}

/// Sends bytes and returns everything that comes back.
fn exchange(port: u16, request: &str) -> String {
    let mut stream = connect(port);
    stream.write_all(request.as_bytes()).expect("a server that reads");
    rest(&mut stream)
}

/// Content type and body of a page.
fn page(port: u16, path: &str, accept: &str) -> (String, String) {
    let request = format!("GET {path} HTTP/1.1\r\nHost: x\r\nAccept: {accept}\r\nConnection: close\r\n\r\n");
    let response = exchange(port, &request);
    let (head, body) = response.split_once("\r\n\r\n").expect("a head");
    assert!(head.starts_with("HTTP/1.1 200 OK\r\n"), "{head}");
    let header = |name: &str| {
        let line = head.lines().find_map(|line| line.strip_prefix(name));
        line.unwrap_or_else(|| panic!("{name} in {head}")).to_owned()
    };
    assert_eq!(header("Content-Length: "), body.len().to_string());
    (header("Content-Type: "), body.to_owned())
}

/// The metrics of a server whose shards have all answered: on a busy machine one may take more than its second.
fn metrics(port: u16, accept: &str, shards: usize) -> (String, String) {
    let told = server::poll(20_000, || {
        let (kind, body) = page(port, "/metrics", accept);
        (sum(&samples(&body), "corelane_shard_up") == shards as f64).then_some((kind, body))
    });
    told.expect("all shards up")
}

/// The samples by name and labels.
fn samples(body: &str) -> BTreeMap<String, f64> {
    let lines = body.lines().filter(|line| !line.starts_with('#'));
    lines
        .map(|line| {
            let (name, value) = line.rsplit_once(' ').expect("a value");
            (name.to_owned(), value.parse().expect("a number"))
        })
        .collect()
}

/// The sum of the samples with a name, whatever their labels.
fn sum(samples: &BTreeMap<String, f64>, name: &str) -> f64 {
    let of = samples.iter().filter(|(known, _)| known.split('{').next() == Some(name));
    of.map(|(_, value)| value).sum()
}

/// Reads metrics with Python's prometheus_client; prints families, types, units and how many samples each has.
const PARSER: &str = "
import sys
if sys.argv[1] == 'open':
    from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse
else:
    from prometheus_client.parser import text_string_to_metric_families as parse
for family in parse(sys.stdin.read()):
    print(family.name, family.type, family.unit or '-', len(family.samples), bool(family.documentation))
";

fn parsed(format: &str, body: &str) -> Vec<String> {
    let mut child = Command::new("python3")
        .args(["-c", PARSER, format])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("python3 runs");
    child.stdin.take().expect("a pipe").write_all(body.as_bytes()).expect("a reader");
    let output = child.wait_with_output().expect("an end");
    assert!(output.status.success(), "{}\n{body}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).lines().map(str::to_owned).collect()
}

#[test]
fn both_formats_are_read_by_the_parser_of_prometheus() {
    if server::stand_in() || !server::installed("python3", "--version") {
        return;
    }
    let found = Command::new("python3").args(["-c", "import prometheus_client"]).output();
    if !found.is_ok_and(|output| output.status.success()) {
        return server::skip("prometheus_client not found: `pip install prometheus_client`");
    }
    for shards in [1, 2, 5] {
        let (server, port) = with_metrics(shards);
        let mut client = server.client();
        for key in 0..20 {
            client.check(&format!("SET key:{key} x"), "+OK\r\n");
            client.run(&format!("GET key:{key}"));
        }
        client.run("INCR key:1");
        let (kind, body) = metrics(port, OPEN_METRICS, shards);
        assert_eq!(kind, OPEN_METRICS);
        assert!(body.ends_with("\n# EOF\n"), "{body}");
        let open = parsed("open", &body);
        for family in [
            "corelane_build info - 1 True".to_owned(),
            format!("corelane_shard_commands counter - {shards} True"),
            format!("corelane_shard_received_bytes counter bytes {shards} True"),
            format!("corelane_shard_up gauge - {shards} True"),
            format!("corelane_shard_memory_bytes gauge bytes {} True", 4 * shards),
            format!("corelane_shard_cpu_seconds counter seconds {shards} True"),
            format!("corelane_shard_turn_duration_seconds histogram seconds {} True", 23 * shards),
            "corelane_errors counter - 1 True".to_owned(),
        ] {
            assert!(open.contains(&family), "{family} in {open:#?}");
        }
        let (kind, body) = metrics(port, "*/*", shards);
        assert_eq!(kind, PLAIN);
        let plain = parsed("plain", &body);
        assert_eq!(plain.len(), open.len());
        assert!(body.contains("# TYPE corelane_shard_commands_total counter\n"), "{body}");
    }
}

#[test]
fn figures_are_those_of_the_commands_that_ran() {
    if server::stand_in() {
        return;
    }
    for shards in [1, 3] {
        let (server, port) = with_metrics(shards);
        let mut client = server.client();
        for key in 0..30 {
            client.check(&format!("SET key:{key} x EX 1000"), "+OK\r\n");
            client.run(&format!("GET key:{key}"));
            client.run(&format!("GET other:{key}"));
        }
        client.run("INCR key:1");
        client.run("SELECT 3");
        client.check("SET there x", "+OK\r\n");
        let told = server::poll(5000, || {
            let told = samples(&page(port, "/metrics", "*/*").1);
            // The connection that waited for the start may take a moment to be gone.
            let settled =
                sum(&told, "corelane_shard_keys") == 31.0 && sum(&told, "corelane_shard_connections") == 1.0;
            settled.then_some(told)
        });
        let told = told.expect("31 keys and one connection");
        for (name, value) in [
            ("corelane_shards", shards as f64),
            ("corelane_shard_up", shards as f64),
            ("corelane_shard_keys_with_deadline", 30.0),
            ("corelane_shard_keyspace_hits_total", 30.0),
            ("corelane_shard_keyspace_misses_total", 30.0),
            ("corelane_shard_connections", 1.0),
            ("corelane_clients_max", 10_000.0),
            ("corelane_command_calls_total{command=\"set\"}", 31.0),
            ("corelane_command_calls_total{command=\"get\"}", 60.0),
            ("corelane_command_failed_calls_total{command=\"incr\"}", 1.0),
            ("corelane_command_duration_seconds_count{command=\"get\"}", 60.0),
            ("corelane_command_duration_seconds_bucket{command=\"get\",le=\"+Inf\"}", 60.0),
            ("corelane_errors_total{code=\"ERR\"}", 1.0),
        ] {
            let got = told.get(name).copied().unwrap_or_else(|| sum(&told, name));
            assert_eq!(got, value, "{name} on {shards} shards");
        }
        let spent = told["corelane_command_duration_seconds_sum{command=\"get\"}"];
        assert!(spent > 0.0 && spent < 5.0, "{spent}");
        let there = sum(
            &told.into_iter().filter(|(name, _)| name.contains("db=\"3\"")).collect(),
            "corelane_shard_keys",
        );
        assert_eq!(there, 1.0);
    }
}

#[test]
fn a_shard_that_is_held_up_is_told_to_be_down_and_the_others_are_served() {
    if server::stand_in() {
        return;
    }
    let (server, port) = with_metrics(3);
    let mut client = server.client();
    for key in 0..30 {
        client.check(&format!("SET key:{key} v"), "+OK\r\n");
    }
    client.write(b"DEBUG SLEEP 4\r\n").expect("a server that reads");
    let down = server::poll(3000, || {
        let told = samples(&page(port, "/metrics", "*/*").1);
        (sum(&told, "corelane_shard_up") == 2.0).then_some(told)
    });
    let down = down.expect("a shard that is down");
    let counted = down.keys().filter(|name| name.starts_with("corelane_shard_commands_total")).count();
    assert_eq!(counted, 2);
    // A sum without one of the shards would be taken for a counter that was reset.
    let sums = ["corelane_command_", "corelane_errors_", "corelane_memory_"];
    let sums = down.keys().filter(|name| sums.iter().any(|sum| name.starts_with(sum))).collect::<Vec<_>>();
    assert!(sums.is_empty(), "{sums:?}");
    assert!(down.contains_key("process_cpu_seconds_total"), "{down:?}");
    let json = page(port, "/metrics.json", "*/*").1;
    assert!(json.contains("\"commands\":null") && json.contains("\"used\":null"), "{json}");
    assert_eq!(client.read().value().expect("a reply").text(), "OK");
    let up = server::poll(5000, || {
        let told = samples(&page(port, "/metrics", "*/*").1);
        (sum(&told, "corelane_shard_up") == 3.0).then_some(told)
    });
    let up = up.expect("it is up again");
    assert!(up["corelane_command_calls_total{command=\"set\"}"] >= 30.0, "{up:?}");
}

#[test]
fn what_is_no_request_is_refused_and_the_connection_closed() {
    if server::stand_in() {
        return;
    }
    let (_server, port) = with_metrics(1);
    let long = format!("GET / HTTP/1.1\r\nHost: x\r\nX: {}\r\n\r\n", "a".repeat(300_000));
    let many = format!("GET / HTTP/1.1\r\nHost: x\r\n{}\r\n", "A: b\r\n".repeat(100));
    for (request, status) in [
        ("PING\r\n\r\n", "400 Bad Request"),
        ("*1\r\n$4\r\nPING\r\n", "400 Bad Request"),
        ("GET /metrics HTTP/1.1\r\n\r\n", "400 Bad Request"),
        ("POST /metrics HTTP/1.1\r\nHost: x\r\n\r\n", "405 Method Not Allowed"),
        ("GET / HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\nabc", "413 Content Too Large"),
        ("GET / HTTP/3.0\r\nHost: x\r\n\r\n", "505 HTTP Version Not Supported"),
        ("GET /nothing HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", "404 Not Found"),
        ("GET /../etc/passwd HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", "404 Not Found"),
        (&long, "431 Request Header Fields Too Large"),
        (&many, "431 Request Header Fields Too Large"),
    ] {
        let response = exchange(port, request);
        let start: String = request.chars().take(60).collect();
        assert!(response.starts_with(&format!("HTTP/1.1 {status}\r\n")), "{start:?}: {response}");
        assert!(response.contains("\r\nConnection: close\r\n"), "{response}");
    }
    // Several requests in one piece, one of them for the head alone.
    let response = exchange(
        port,
        "HEAD /metrics HTTP/1.1\r\nHost: x\r\n\r\nGET /metrics.json HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n",
    );
    assert_eq!(response.matches("HTTP/1.1 200 OK\r\n").count(), 2, "{response}");
    assert!(response.ends_with('}') && !response.contains("# TYPE"), "{response}");
}

#[test]
fn slow_and_many_clients_take_nothing_from_the_others() {
    const CLIENTS: usize = 300;
    if server::stand_in() {
        return;
    }
    let (server, port) = with_metrics(2);
    let before = server.descriptor_count();
    // They begin a request and say nothing more.
    let slow = |_| {
        let mut stream = connect(port);
        stream.write_all(b"GET /metrics HT").expect("a server that reads");
        stream
    };
    let started = Instant::now();
    assert_eq!(rest(&mut slow(0)), "", "it is closed without an answer");
    let waited = started.elapsed();
    assert!((4..15).contains(&waited.as_secs()), "{waited:?}");
    let many: Vec<TcpStream> = (0..CLIENTS).map(slow).collect();
    let asked = Instant::now();
    page(port, "/metrics", "*/*");
    assert!(asked.elapsed() < Duration::from_secs(10), "{:?}", asked.elapsed());
    assert!(server.descriptor_count() < before + 40, "{} descriptors", server.descriptor_count());
    server.client().check("PING", "+PONG\r\n");
    drop(many);
    // Idle ones make room at once.
    let mut idle: Vec<TcpStream> = (0..80).map(|_| connect(port)).collect();
    for stream in &mut idle {
        stream.write_all(b"HEAD / HTTP/1.1\r\nHost: x\r\n\r\n").expect("a server that reads");
        let mut piece = [0; 4096];
        let len = stream.read(&mut piece).expect("a response");
        assert!(piece[..len].starts_with(b"HTTP/1.1 200 OK\r\n"));
    }
    let asked = Instant::now();
    page(port, "/metrics", "*/*");
    assert!(asked.elapsed() < Duration::from_secs(3), "{:?}", asked.elapsed());
}

#[test]
fn metrics_are_for_this_machine_unless_said_otherwise() {
    if server::stand_in() {
        return;
    }
    let (server, port) = with_metrics(1);
    let bound = |log: &str| log.lines().find(|line| line.contains("metrics on ")).map(str::to_owned);
    let line = server::poll(5000, || bound(&server.log())).expect("a line in the log");
    assert!(line.contains(&format!("http://127.0.0.1:{port}")) && !line.contains("0.0.0.0"), "{line}");
    // The port is taken, and an address that is none.
    let start = |flags: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_corelane"));
        let output = command.args(["--port", &server::free_port().to_string()]).args(flags).output();
        output.expect("corelane runs")
    };
    let output = start(&["--metrics-port", &port.to_string()]);
    assert_eq!(output.status.code(), Some(1));
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.contains("cannot serve metrics on 127.0.0.1:"), "{said}");
    assert_eq!(start(&["--metrics-bind", "somewhere", "--metrics-port", "1"]).status.code(), Some(2));
    let mut client = server.client();
    client.check("CONFIG GET metrics-port", &format!("*2\r\n$12\r\nmetrics-port\r\n$5\r\n{port}\r\n"));
    assert!(
        matches!(client.run("CONFIG SET metrics-port 1").text().as_str(), text if text.contains("immutable"))
    );
}

/// What the page looks like to somebody who has waited for some seconds, as HTML.
#[test]
fn the_page_shows_figures_in_a_browser() {
    if server::stand_in() || !server::installed("chromium", "--version") {
        return;
    }
    let (server, port) = with_metrics(2);
    let mut client = server.client();
    for key in 0..50 {
        client.check(&format!("SET key:{key} x"), "+OK\r\n");
        client.run(&format!("GET key:{key}"));
    }
    let (_, told) = page(port, "/metrics.json", "*/*");
    let told: serde_json::Value = serde_json::from_str(&told).expect("JSON");
    for shard in told["shards"].as_array().expect("shards") {
        let counts = shard["command_ns"].as_array().expect("the times of its commands");
        let calls: u64 = counts.iter().filter_map(serde_json::Value::as_u64).sum();
        assert!(calls > 0, "{shard}");
    }
    let (kind, html) = page(port, "/", "text/html");
    assert_eq!(kind, "text/html; charset=utf-8");
    assert!(!html.contains("https://") && !html.contains("http://"), "it loads nothing from elsewhere");
    let profile = server.path("chromium");
    let output = Command::new("chromium")
        .args(["--headless", "--no-sandbox", "--disable-gpu", "--virtual-time-budget=6000", "--dump-dom"])
        .arg(format!("--user-data-dir={}", profile.display()))
        .arg(format!("http://127.0.0.1:{port}/"))
        .stdin(Stdio::null())
        .output()
        .expect("chromium runs");
    let dom = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    for part in [
        "data-looks=",
        ">live<",
        ", 2 shards",
        "<td>set</td>",
        "<b>50</b>",
        "<b>100.0 %</b>",
        "Memory, used: ",
        "<th scope=\"col\">command, 50 %</th><th scope=\"col\">99 %</th><th scope=\"col\">99.9 %</th>",
    ] {
        assert!(dom.contains(part), "{part} in {dom}");
    }
    // Processor time, commands and hits of each shard, and the share of each command: SET, GET, and the PING of the start.
    assert_eq!(dom.matches("<td class=\"bar\"").count(), 2 * 3 + 3, "{dom}");
}
