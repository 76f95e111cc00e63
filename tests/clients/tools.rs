//! redis-cli, redis-benchmark and redis-py as programs.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Output, Stdio};

use crate::common::server::{self, Server};
use crate::common::words;

const SHARD_COUNTS: [usize; 2] = [1, 3];

/// Runs redis-cli to its end, with `input` on stdin.
fn redis_cli(server: &Server, args: &[&str], input: &[u8]) -> Output {
    let mut command = Command::new("redis-cli");
    command.args(["-p", &server.port.to_string()]).args(args);
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("redis-cli runs");
    let mut stdin = child.stdin.take().expect("a pipe");
    std::thread::scope(|scope| {
        scope.spawn(move || stdin.write_all(input));
        child.wait_with_output().expect("redis-cli ends")
    })
}

/// What redis-cli prints for one command.
fn cli(server: &Server, args: &[&str]) -> String {
    let output = redis_cli(server, args, b"");
    assert!(output.status.success(), "redis-cli {args:?}: {output:?}");
    String::from_utf8_lossy(&output.stdout).trim_end().to_owned()
}

fn with_redis_cli(check: impl Fn(&Server)) {
    if server::installed("redis-cli", "--version") {
        SHARD_COUNTS.iter().for_each(|&shards| check(&Server::ours(shards)));
    }
}

#[test]
fn redis_cli_runs_commands() {
    with_redis_cli(|server| {
        assert_eq!(cli(server, &["SET", "k", "hello world"]), "OK");
        assert_eq!(cli(server, &["GET", "k"]), "hello world");
        assert_eq!(cli(server, &["--no-raw", "GET", "k"]), "\"hello world\"");
        assert_eq!(cli(server, &["--no-raw", "GET", "nope"]), "(nil)");
        assert_eq!(cli(server, &["-3", "--no-raw", "MGET", "k", "nope"]), "1) \"hello world\"\n2) (nil)");
        assert_eq!(cli(server, &["-n", "5", "SET", "k", "five"]), "OK");
        assert_eq!(cli(server, &["-n", "5", "GET", "k"]), "five");
        assert_eq!(cli(server, &["-r", "5", "INCR", "n"]), "1\n2\n3\n4\n5");
        assert_eq!(cli(server, &["GET", "k", "x"]), "ERR wrong number of arguments for 'get' command");
        assert!(cli(server, &["INFO"]).contains("redis_version:"));
        let output = redis_cli(server, &["-x", "SET", "big"], &[b'x'; 3 << 20]);
        assert_eq!(String::from_utf8_lossy(&output.stdout), "OK\n");
        assert_eq!(cli(server, &["STRLEN", "big"]), (3 << 20).to_string());
        let output = redis_cli(server, &[], b"SET \"a b\" 'c d'\nGET \"a b\"\nBAD\nPING\n");
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let lines: Vec<&str> = text.lines().filter(|line| !line.is_empty()).collect();
        assert_eq!([lines[0], lines[1], lines[3]], ["OK", "c d", "PONG"]);
        assert!(lines[2].starts_with("ERR unknown command 'BAD'"), "{lines:?}");
    });
}

#[test]
fn redis_cli_scan_lists_every_key() {
    with_redis_cli(|server| {
        pipe_in(server, 3000);
        let listed =
            |args: &[&str]| -> BTreeSet<String> { cli(server, args).lines().map(str::to_owned).collect() };
        let all: BTreeSet<String> = (0..3000).map(|n| format!("key:{n}")).collect();
        assert_eq!(listed(&["--scan"]), all);
        assert_eq!(
            listed(&["--scan", "--pattern", "key:29*"]),
            all.iter().filter(|key| key.starts_with("key:29")).cloned().collect()
        );
    });
}

/// Loads `count` keys through `redis-cli --pipe`.
fn pipe_in(server: &Server, count: usize) {
    let input: Vec<u8> =
        (0..count).flat_map(|n| words::encode(&words::parse(&format!("SET key:{n} value:{n}")))).collect();
    let output = redis_cli(server, &["--pipe"], &input);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(text.contains(&format!("errors: 0, replies: {count}")), "{output:?}");
}

#[test]
fn redis_cli_pipe_loads_and_counts_errors() {
    with_redis_cli(|server| {
        pipe_in(server, 20_000);
        assert_eq!(cli(server, &["DBSIZE"]), "20000");
        assert_eq!(cli(server, &["GET", "key:19999"]), "value:19999");
        let output = redis_cli(
            server,
            &["--pipe"],
            &words::encode_all(&[words::parse("INCR key:1"), words::parse("INCR n")]),
        );
        assert!(String::from_utf8_lossy(&output.stdout).contains("errors: 1, replies: 2"), "{output:?}");
    });
}

/// Starts redis-cli in a mode that does not end, and returns its first `count` lines.
fn first_lines(server: &Server, args: &[&str], count: usize) -> Vec<String> {
    let mut command = Command::new("redis-cli");
    command.args(["-p", &server.port.to_string()]).args(args).stdin(Stdio::null()).stdout(Stdio::piped());
    let mut child = command.spawn().expect("redis-cli runs");
    let stdout = BufReader::new(child.stdout.take().expect("a pipe"));
    let lines = stdout.lines().take(count).map(|line| line.expect("text")).collect();
    child.kill().expect("redis-cli still runs");
    child.wait().expect("redis-cli ends");
    lines
}

#[test]
fn redis_cli_connects_to_a_unix_socket_with_the_permissions_asked_for() {
    if !server::installed("redis-cli", "--version") {
        return;
    }
    for shards in SHARD_COUNTS {
        let server = Server::ours_with(shards, &["--unixsocket", "test.sock", "--unixsocketperm", "700"]);
        let path = server.path("test.sock");
        let mode = std::fs::metadata(&path).expect("the socket").permissions().mode();
        assert_eq!(mode & 0o777, 0o700, "{}", server.name);
        for n in 0..10 {
            let mut command = Command::new("redis-cli");
            let output = command
                .arg("-s")
                .arg(&path)
                .args(["MSET", &format!("a:{n}"), "1", &format!("b:{n}"), "2"])
                .output();
            assert_eq!(output.expect("redis-cli runs").stdout, b"OK\n");
        }
        assert_eq!(cli(&server, &["DBSIZE"]), "20");
    }
}

#[test]
fn redis_cli_stat_shows_keys_and_clients() {
    with_redis_cli(|server| {
        pipe_in(server, 123);
        let lines = first_lines(server, &["--stat", "-i", "0.05"], 4);
        let row: Vec<&str> = lines[3].split_whitespace().collect();
        assert_eq!(row[0], "123", "keys in {lines:?}");
        let clients: usize = row[2].parse().expect("a count of clients");
        assert!(clients >= 1, "clients in {lines:?}");
    });
}

#[test]
fn redis_cli_latency_measures() {
    with_redis_cli(|server| {
        let text = cli(server, &["--raw", "--latency", "-i", "0.2"]);
        let numbers: Vec<f64> = text.split_whitespace().map(|word| word.parse().expect("a number")).collect();
        let [min, max, average, count] = numbers[..] else { panic!("four numbers in {text:?}") };
        assert!(min <= average && average <= max && count >= 1.0, "{text}");
    });
}

#[test]
fn redis_benchmark_completes_every_test() {
    if !server::installed("redis-benchmark", "--version") {
        return;
    }
    for shards in SHARD_COUNTS {
        let server = Server::ours(shards);
        let variants: [&[&str]; 6] = [
            &["-c", "50", "-n", "3000"],
            &["-c", "50", "-n", "6000", "-P", "16", "-r", "1000"],
            &["-c", "1", "-n", "300"],
            &["-c", "20", "-n", "2000", "-P", "100", "--threads", "2"],
            &["-c", "10", "-n", "500", "-k", "0"],
            &["-c", "5", "-n", "200", "-d", "20000", "-3"],
        ];
        for variant in variants {
            let mut command = Command::new("redis-benchmark");
            command
                .args(["-p", &server.port.to_string(), "-t", "ping,set,get,incr,mset", "--csv"])
                .args(variant);
            let output = command.output().expect("redis-benchmark runs");
            let text = String::from_utf8_lossy(&output.stdout).into_owned();
            assert!(output.status.success(), "{variant:?}: {output:?}");
            for test in ["PING_INLINE", "PING_MBULK", "SET", "GET", "INCR", "MSET (10 keys)"] {
                assert!(text.contains(&format!("\"{test}\",")), "{variant:?}: no {test} in {text}");
            }
            assert!(!String::from_utf8_lossy(&output.stderr).contains("rror"), "{variant:?}: {output:?}");
        }
    }
}

#[test]
fn redis_py_works_in_both_protocols() {
    let present = Command::new("python3").args(["-c", "import redis"]).output();
    if !present.is_ok_and(|output| output.status.success()) {
        server::skip("redis-py not found (`pip install redis`)");
        return;
    }
    for shards in SHARD_COUNTS {
        let server = Server::ours(shards);
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/clients/redis_client.py");
        let output =
            Command::new("python3").args([script, &server.port.to_string()]).output().expect("python3 runs");
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(text.contains("all good"), "{}: {}", server.name, String::from_utf8_lossy(&output.stderr));
    }
}
