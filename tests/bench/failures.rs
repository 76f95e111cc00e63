//! What `corelane bench` refuses, and what ends it: options, passwords, servers that go away or say nothing, limits.

use std::io::Write;
use std::net::TcpListener;
use std::process::Command;
use std::time::{Duration, Instant};

use super::common::server::{self, Server};
use super::{bench, on, spawn, text};

/// Connections that a bench has to manage.
const MANY: usize = 10_000;

#[test]
fn refusals_and_unreachable_servers_are_told_at_once() {
    let server = Server::ours(1);
    server.client().check("CONFIG SET requirepass secret", "+OK\r\n");
    let nobody = server::free_port().to_string();
    let port = server.port.to_string();
    let cases: &[(&[&str], &str)] = &[
        (&["-p", &port, "-t", "get"], "the server wants a password (-a): NOAUTH"),
        (&["-p", &port, "-t", "get", "-a", "wrong"], "refuses the password: WRONGPASS"),
        (&["-p", &port, "-t", "get", "-a", "secret", "--user", "nobody"], "refuses the password: WRONGPASS"),
        (&["-p", &nobody, "-t", "get"], "cannot connect to 127.0.0.1:"),
        (&["-s", "/nonexistent/socket", "-t", "get"], "cannot connect to /nonexistent/socket"),
        (&["-h", "host.invalid", "-t", "get"], "the host host.invalid is not known"),
        (&["-p", &port, "-a", "secret", "-q", "nocommand"], "Error from server: ERR unknown command"),
        (&["-p", &port, "-a", "secret", "--dbnum", "99", "-t", "get"], "the server refuses SELECT: ERR"),
    ];
    for (args, expected) in cases {
        let began = Instant::now();
        let output = bench(args);
        assert_eq!(output.status.code(), Some(1), "{args:?}: {}", text(&output));
        assert!(text(&output).contains(expected), "{args:?}: {}", text(&output));
        if args[1] != "host.invalid" {
            assert!(began.elapsed() < Duration::from_secs(1), "{args:?}: {:?}", began.elapsed());
        }
    }
    let uri = format!("redis://:secret@127.0.0.1:{port}/1");
    let output = bench(&["-u", &uri, "-n", "10", "-t", "get", "-q"]);
    assert!(output.status.success(), "{}", text(&output));
    let counted = bench(&["-p", &port, "-a", "secret", "-e", "-n", "30", "-q", "nocommand"]);
    assert!(counted.status.success(), "{}", text(&counted));
    assert!(
        text(&counted).contains("30 error replies, the first: ERR unknown command"),
        "{}",
        text(&counted)
    );
}

#[test]
fn a_server_that_dies_ends_the_run_at_once() {
    for args in ["-n 1000000000 -q -t set", "-n 1000000000 -q -t set --threads 2 -P 8", "-I"] {
        let mut server = Server::ours(1);
        let child = spawn(&server, args);
        std::thread::sleep(Duration::from_millis(500));
        server.signal("KILL");
        server.await_exit(10_000).expect("an exit");
        let ended = Instant::now();
        let output = child.wait_with_output().expect("an exit");
        assert!(ended.elapsed() < Duration::from_secs(1), "{args}: {:?}", ended.elapsed());
        assert_eq!(output.status.code(), Some(1), "{args}: {}", text(&output));
        assert!(text(&output).contains("the server has closed the connection"), "{args}: {}", text(&output));
    }
}

/// Stopped, its kernel still takes connections and requests for it.
#[test]
fn a_server_that_says_nothing_ends_the_run() {
    for (args, least_ms, most_ms, expected) in [
        (
            "-c 20 -n 1000000000 -q -t set --timeout 1",
            1000,
            4000,
            "20 of 20 connections wait for it, 20 replies",
        ),
        (
            "-c 4 -P 3 -n 1000000000 -q -t set --rate 2000 --timeout 1",
            1000,
            4000,
            " of 4 connections wait for it",
        ),
        ("-c 4 -n 1000000000 -k 0 -q -t set --timeout 1", 1000, 4000, " connections wait for it"),
        ("-c 5 --duration 1 -q -t set --threads 2", 3000, 6000, "the server has said nothing for 3"),
    ] {
        let server = Server::ours(1);
        let child = spawn(&server, args);
        std::thread::sleep(Duration::from_millis(500));
        server.signal("STOP");
        let stopped = Instant::now();
        let output = child.wait_with_output().expect("an exit");
        let took = stopped.elapsed().as_millis();
        server.signal("CONT");
        assert_eq!(output.status.code(), Some(1), "{args}: {}", text(&output));
        assert!(text(&output).contains(expected), "{args}: {}", text(&output));
        assert!((least_ms - 300..most_ms).contains(&took), "{args}: {took} ms");
    }
    let server = Server::ours(1);
    server.signal("STOP");
    let output = on(&server, "-n 10 -q -t get");
    server.signal("CONT");
    assert!(text(&output).contains("no answer within 5 s"), "{}", text(&output));
    assert_eq!(output.status.code(), Some(1), "{}", text(&output));
    let slow = on(&server, "-n 2 -c 1 --timeout 0 -q debug sleep 0.5");
    assert!(slow.status.success(), "{}", text(&slow));
    let slow = on(&server, "-n 2 -c 1 --timeout 0.2 -q debug sleep 0.5");
    assert_eq!(slow.status.code(), Some(1), "{}", text(&slow));
}

#[test]
fn what_is_no_resp_server_is_told() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("an address").port().to_string();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            // A peer that has gone is not told.
            let _ = stream.expect("a connection").write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n");
        }
    });
    let output = bench(&["-p", &port, "-t", "get"]);
    assert_eq!(output.status.code(), Some(1), "{}", text(&output));
}

#[test]
fn a_password_for_all_servers_does_no_harm_to_one_without() {
    let server = Server::ours(1);
    let run = |args: &[&str]| {
        Command::new(env!("CARGO_BIN_EXE_corelane"))
            .args(["bench", "-p", &server.port.to_string(), "-n", "10", "-q", "-t", "set"])
            .args(args)
            .env("REDISCLI_AUTH", "secret")
            .output()
            .expect("corelane runs")
    };
    assert!(run(&[]).status.success(), "{}", text(&run(&[])));
    let given = run(&["-a", "other"]);
    assert!(text(&given).contains("refuses the password: ERR AUTH <password> called"), "{}", text(&given));
    server.client().check("CONFIG SET requirepass secret", "+OK\r\n");
    assert!(run(&[]).status.success(), "{}", text(&run(&[])));
}

#[test]
fn the_version_is_told_and_files_are_looked_at_first() {
    for flag in ["-v", "--version"] {
        let output = bench(&[flag]);
        assert!(output.status.success() && text(&output).starts_with("corelane bench "), "{}", text(&output));
    }
    let server = Server::ours(1);
    let began = Instant::now();
    let output = on(&server, "-t get --duration 60 --hdr /proc/nowhere");
    assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output).contains("cannot make /proc/nowhere"), "{}", text(&output));
}

#[test]
fn bad_flags_are_usage_errors() {
    for args in [
        &["-n", "0"][..],
        &["-c", "0"],
        &["-k", "x"],
        &["-P", "x"],
        &["-t", "nope"],
        &["-t", ","],
        &["--nope"],
        &["--csv", "--json"],
        &["-x"],
        &["--precision", "0"],
        &["--rate", "0"],
        &["--keys", "zipf"],
        &["--keys", "normal", "-r", "5"],
        &["--sizes", "5-1"],
        &["--ratio", "9"],
        &["--ratio", "1:1", "-t", "get"],
        &["--commands", "/nonexistent/file"],
        &["--duration", "soon"],
        &["--cpus", "9999"],
    ] {
        assert_eq!(bench(args).status.code(), Some(2), "{args:?}: {}", text(&bench(args)));
    }
}

#[test]
fn ten_thousand_connections_work() {
    let fitting = Command::new("sh").args(["-c", "ulimit -Hn"]).output().expect("a shell");
    let limit = String::from_utf8_lossy(&fitting.stdout).trim().parse().unwrap_or(usize::MAX);
    if limit < MANY + 1000 {
        return server::skip(&format!("only {limit} descriptors may be open, {} are needed", MANY + 1000));
    }
    let server = Server::ours(1);
    let output = on(&server, &format!("-c {MANY} -n 30000 -t set -q"));
    assert!(output.status.success(), "{}", text(&output));
    assert!(text(&output).starts_with("SET: "), "{}", text(&output));
    server.client().check("STRLEN key:__rand_int__", ":3\r\n");
}

#[test]
fn too_many_connections_for_the_limit_are_told() {
    let server = Server::ours(1);
    let line = format!(
        "ulimit -n 200; exec {} bench -p {} -c 5000 -t get -n 10",
        env!("CARGO_BIN_EXE_corelane"),
        server.port
    );
    // Root may raise the hard limit, too: then it works.
    let output = Command::new("sh").args(["-c", &line]).output().expect("a shell");
    let told = text(&output).contains("5000 connections do not fit into the 200 files that may be open");
    assert!(output.status.success() || told, "{}", text(&output));
}

/// Runs in a network of its own, with a hundred ports.
#[test]
fn ports_that_have_run_out_are_told() {
    let script = "ip link set lo up && echo 40000 40099 > /proc/sys/net/ipv4/ip_local_port_range || exit 99
        $0 --port 6399 --bind 127.0.0.1 --shards 1 > /dev/null 2>&1 & server=$!
        for _ in $(seq 200); do
            $0 bench -p 6399 -c 1 -n 1 -t get -q > /dev/null 2>&1 && break
            sleep 0.1
        done
        $0 bench -p 6399 -c 150 -n 1000 -t get -q; code=$?
        kill $server; wait $server; exit $code";
    let program = env!("CARGO_BIN_EXE_corelane");
    let output = Command::new("unshare").args(["-r", "-n", "sh", "-c", script, program]).output();
    let Ok(output) = output.as_ref() else { return server::skip("unshare not found") };
    if output.status.code() != Some(1) || !text(output).contains("bench:") {
        return server::skip(&format!("no network of its own (unshare -r -n): {}", text(output)));
    }
    assert!(text(output).contains("no local port is left for another connection"), "{}", text(output));
}
