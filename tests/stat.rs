//! `corelane stat`, run as a user runs it, on our server and on a Valkey.

mod common;

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::net::{UnixDatagram, UnixListener};
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use common::server::{self, Server};

fn stat(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_corelane")).arg("stat").args(args).output().expect("corelane runs")
}

fn text(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

fn good(args: &[&str]) -> String {
    let output = stat(args);
    assert!(output.status.success(), "{args:?}: {}", text(&output));
    text(&output)
}

/// The words of the line that begins with `first`.
fn row<'a>(printed: &'a str, first: &str) -> Vec<&'a str> {
    let words = printed.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    words
        .into_iter()
        .find(|words| words.first() == Some(&first))
        .unwrap_or_else(|| panic!("{first}: {printed}"))
}

#[test]
fn every_section_says_what_the_server_says() {
    if server::stand_in() {
        return;
    }
    for shards in [1, 2, 5] {
        let server = Server::ours(shards);
        let mut client = server.client();
        client.check("CONFIG SET timeout 77", "+OK\r\n");
        client.check("CLIENT SETNAME somebody", "+OK\r\n");
        client.check("SET k v", "+OK\r\n");
        let pid = server.pid().to_string();
        let all = good(&["-p", &pid, "-s", "all"]);
        assert!(all.starts_with("corelane "), "{all}");
        assert_eq!(row(&all, "*")[0], "*");
        assert!(all.lines().any(|line| line.starts_with("* timeout ") && line.ends_with(" 77")), "{all}");
        assert_eq!(row(&all, "db0")[1].split(',').next(), Some("keys=1"));
        assert_eq!(row(&all, "keys.count")[1], "1");
        assert!(row(&all, "db.0.overhead.hashtable.main")[1].parse::<u64>().is_ok(), "{all}");
        let table = all.split("\nshards\n").nth(1).expect("a table of shards");
        assert_eq!(table.lines().skip(1).take_while(|line| !line.is_empty()).count(), shards, "{table}");
        assert!(table.contains("  mail  mail max  full  "), "{table}");
        let sockets = all.split("\nconnections\n").nth(1).expect("a table of connections");
        assert!(sockets.contains("client|list") && sockets.contains(" set"), "{sockets}");

        let counted = good(&["-h", &format!("127.0.0.1:{}", server.port)]);
        assert!(counted.contains("total_commands_processed") && !counted.contains("\nshards\n"), "{counted}");
        let json = good(&["-p", &pid, "-s", "shard,mem", "--json"]);
        assert_eq!(json.lines().count(), 1);
        assert!(json.contains("\"shard\":[{") && json.contains("\"keys.count\":1"), "{json}");
        assert!(json.contains("\"time\":\"20") && json.contains("\"cpu_percent\":"), "{json}");
        let report = good(&["-p", &pid, "-s", "all", "--markdown"]);
        assert!(report.starts_with("# corelane ") && report.contains("\n| * | timeout | 77 |\n"), "{report}");
        for title in [
            "\n## stats\n\n| name | value |\n|---|---|\n",
            "\n## shards\n\n| shard | cpu | keys |",
            "\n## memory\n",
        ] {
            assert!(report.contains(title), "{title} in {report}");
        }
    }
}

/// The numbers behind a name in JSON.
fn numbers(json: &str, name: &str) -> Vec<u64> {
    let name = format!("\"{name}\":");
    json.split(&name)
        .skip(1)
        .filter_map(|piece| piece.split(|letter: char| !letter.is_ascii_digit()).next()?.parse().ok())
        .collect()
}

#[test]
fn processor_time_is_told_per_shard() {
    if server::stand_in() {
        return;
    }
    let server = Server::ours_with(2, &["--busy-poll-us", "1000000"]);
    let pid = server.pid().to_string();
    let cpu_us = || numbers(&good(&["-p", &pid, "-s", "shard", "--json"]), "cpu_us");
    let before = cpu_us();
    assert_eq!(before.len(), 2, "{before:?}");
    // They spin: a tick is 10 ms.
    let grown = server::poll(10_000, || {
        let now = cpu_us();
        now.iter().zip(&before).all(|(now, before)| now > before).then_some(())
    });
    assert!(grown.is_some(), "{before:?} {:?}", cpu_us());
}

/// A server may listen at more places than one, and its metrics are at a port, too.
#[test]
fn a_process_is_found_wherever_it_listens() {
    if server::stand_in() {
        return;
    }
    let metrics = server::free_port().to_string();
    let server = Server::ours_with(1, &["--metrics-port", &metrics]);
    let pid = server.pid().to_string();
    assert!(good(&["-p", &pid]).starts_with("corelane "));
    let dir = server::scratch_dir("stat-unix");
    let socket = dir.join("socket");
    let path = socket.to_str().expect("a path in UTF-8");
    let hidden = Server::ours_with(1, &["--unixsocket", path]);
    let mut client = hidden.client();
    client.check("CONFIG SET requirepass secret", "+OK\r\n");
    for args in [&["-p", &hidden.pid().to_string()][..], &["--unixsocket", path]] {
        let refused = stat(args);
        assert_eq!(refused.status.code(), Some(1));
        assert!(text(&refused).contains("the server wants a password ("), "{}", text(&refused));
        assert!(
            text(&refused).contains("REDISCLI_AUTH") && text(&refused).contains("NOAUTH"),
            "{}",
            text(&refused)
        );
        assert!(good(&[args, &["--pass", "secret", "--user", "default"]].concat()).starts_with("corelane "));
        let wrong = stat(&[args, &["--pass", "wrong"]].concat());
        assert_eq!(wrong.status.code(), Some(1));
        assert!(text(&wrong).contains("the server refuses the password: WRONGPASS"), "{}", text(&wrong));
    }
    fs::remove_dir_all(&dir).expect("the directory made above");
}

#[test]
fn other_servers_are_shown_too() {
    let Some(valkey) = Server::valkey() else { return };
    let all = good(&["-h", &format!("127.0.0.1:{}", valkey.port), "-s", "all"]);
    assert!(all.starts_with("valkey 9."), "{all}");
    assert!(all.contains("does not tell of shards: only corelane has them."), "{all}");
}

/// As of those who rent a server: CONFIG is not theirs.
#[test]
fn what_a_server_refuses_is_left_out_and_told() {
    if server::stand_in() {
        return;
    }
    let server = Server::ours_with(2, &["--rename-command", "CONFIG", "", "--rename-command", "INFO", ""]);
    let address = format!("127.0.0.1:{}", server.port);
    let all = good(&["-h", &address, "-s", "all"]);
    assert!(
        all.contains("\nconfiguration\n  the server does not tell: CONFIG GET *: ERR unknown command"),
        "{all}"
    );
    assert!(all.contains("\nshards\n  the server does not tell: INFO everything: ERR unknown"), "{all}");
    assert_eq!(row(&all, "keys.count")[1], "0");
    let json = good(&["-h", &address, "-s", "all", "--json"]);
    let json: serde_json::Value = serde_json::from_str(&json).expect("JSON");
    assert!(json["cfg"]["refused"].is_string() && json["sock"].is_array(), "{json}");
    let nothing = stat(&["-h", &address, "-s", "cnt,cfg"]);
    assert_eq!(nothing.status.code(), Some(1), "{}", text(&nothing));
    assert!(
        text(&nothing).starts_with("corelane stat: CONFIG GET *: ERR unknown command"),
        "{}",
        text(&nothing)
    );
}

#[test]
fn reports_show_no_password() {
    if server::stand_in() {
        return;
    }
    let server = Server::ours(1);
    server.client().check("CONFIG SET requirepass hunter2", "+OK\r\n");
    let address = format!("redis://:hunter2@127.0.0.1:{}", server.port);
    for form in [&[][..], &["--markdown"], &["--json"]] {
        let printed = good(&[&["-h", &address, "-s", "all"], form].concat());
        assert!(printed.contains("(redacted)") && !printed.contains("hunter2"), "{printed}");
    }
}

/// A full disk, unlike a pipe that nobody reads.
#[test]
fn what_cannot_be_printed_is_a_failure() {
    let server = Server::ours(1);
    let port = server.port.to_string();
    let address = format!("127.0.0.1:{port}");
    let lines: [&[&str]; 7] = [
        &["stat", "-h", &address],
        &["bench", "-p", &port, "-n", "10", "-t", "get", "-q"],
        &["bench", "-p", &port, "-n", "10", "-t", "get", "--json"],
        &["latency", "-l", "1", "-q"],
        &[
            "experiment",
            "env",
            "--url",
            &address,
            "--only",
            "GET-100000",
            "--scale",
            "0.0001",
            "--repeat",
            "1",
            "-q",
        ],
        &["doctor", "--port", "0"],
        &["--check-config"],
    ];
    for line in lines {
        let full =
            fs::OpenOptions::new().write(true).open("/dev/full").expect("a device that is always full");
        let output = Command::new(env!("CARGO_BIN_EXE_corelane")).args(line).stdout(full).output();
        let output = output.expect("corelane runs");
        assert_eq!(output.status.code(), Some(1), "{line:?}: {}", text(&output));
        assert!(
            text(&output).contains("corelane: cannot write to stdout: No space left"),
            "{line:?}: {}",
            text(&output)
        );
    }
}

#[test]
fn watching_goes_on_until_the_server_is_gone() {
    for (interval, looks_min) in [("0.1", 2), ("60", 1)] {
        let mut server = Server::ours(2);
        let child = Command::new(env!("CARGO_BIN_EXE_corelane"))
            .args(["stat", "-s", "shard", "--watch", interval, "-h", &format!("127.0.0.1:{}", server.port)])
            .stdout(std::process::Stdio::piped())
            .stderr(std::process::Stdio::piped())
            .spawn()
            .expect("corelane runs");
        std::thread::sleep(Duration::from_millis(800));
        server.signal("KILL");
        server.await_exit(10_000).expect("an exit");
        let ended = Instant::now();
        let output = child.wait_with_output().expect("an exit");
        assert!(ended.elapsed() < Duration::from_secs(1), "every {interval} s: {:?}", ended.elapsed());
        let printed = text(&output);
        assert_eq!(output.status.code(), Some(1), "{printed}");
        assert!(printed.matches("\nshards\n").count() >= looks_min, "{printed}");
        assert!(printed.ends_with("the server has closed the connection\n"), "{printed}");
    }
}

#[test]
fn looks_in_json_have_times_and_rates() {
    let server = Server::ours(1);
    let mut child = Command::new(env!("CARGO_BIN_EXE_corelane"))
        .args(["stat", "--json", "--watch", "0.3", "-h", &format!("redis://127.0.0.1:{}", server.port)])
        .stdout(std::process::Stdio::piped())
        .spawn()
        .expect("corelane runs");
    let mut lines = BufReader::new(child.stdout.take().expect("a pipe")).lines();
    let mut look = || -> serde_json::Value {
        let line = lines.next().expect("a look").expect("a line");
        serde_json::from_str(&line).expect("an object")
    };
    let [first, second] = [look(), look()];
    child.kill().expect("a process to be killed");
    child.wait().expect("an exit");
    assert!(first.get("per_second").is_none(), "{first}");
    let rate = &second["per_second"]["stats"]["total_commands_processed"];
    assert!(rate.as_f64().is_some_and(|rate| rate > 0.0), "{second}");
    for look in [first, second] {
        assert!(look["time"].as_str().is_some_and(|time| time.len() == 20 && time.ends_with('Z')), "{look}");
    }
}

#[test]
fn failures_are_sentences() {
    let dir = server::scratch_dir("stat");
    let socket = dir.join("socket");
    let path = socket.to_str().expect("a path in UTF-8");
    let fails = |args: &[&str], code: i32, sentence: &str| {
        let output = stat(args);
        assert_eq!(output.status.code(), Some(code), "{args:?}: {}", text(&output));
        assert!(text(&output).contains(sentence), "{args:?}: {}", text(&output));
    };
    fails(&["-h", &format!("127.0.0.1:{}", server::free_port())], 1, "cannot connect to 127.0.0.1:");
    fails(&["-p", &std::process::id().to_string()], 1, "listens nowhere");
    fails(&["-p", "4194305"], 1, "cannot look at the descriptors of process 4194305");
    let memcached = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let other = memcached.local_addr().expect("an address").to_string();
    let answers = std::thread::spawn(move || {
        use std::io::{Read, Write};
        let mut stream = memcached.accept().expect("a connection").0;
        let _ = stream.read(&mut [0; 64]);
        stream.write_all(b"ERROR\r\n").expect("somebody who reads");
    });
    fails(&["-h", &other], 1, "what is there does not speak Redis's protocol");
    answers.join().expect("a thread that ends");
    fails(&["-s", "nothing"], 2, "invalid value 'nothing'");
    fails(&["--json", "--markdown"], 2, "cannot be used with");
    fails(&["-h", "http://localhost"], 1, "http://localhost is no address");
    fails(&["--watch", "0"], 2, "not a number of seconds above 0");
    fails(&["--user", "somebody"], 2, "--pass <PASSWORD>");
    fails(&["-p", "1", "-h", "localhost:1"], 2, "cannot be used with");
    fails(&["--unixsocket", path], 1, "cannot connect to ");
    fails(&["--unixsocket", path, "-c"], 1, "cannot see ");
    fails(&["-h", "localhost:1", "-c"], 2, "cannot be used with");
    fails(&["-p", "1", "-c"], 2, "cannot be used with");
    drop(UnixListener::bind(&socket).expect("a socket"));
    assert_eq!(good(&["--unixsocket", path, "-c"]), format!("removed {path}\n"));
    assert!(!socket.exists());
    let listener = UnixListener::bind(&socket).expect("a socket");
    fails(&["--unixsocket", path, "-c"], 1, "belongs to a running server");
    drop(listener);
    // One for datagrams, such as the system's log, takes no connections from anybody.
    let log = dir.join("log");
    let _datagrams = UnixDatagram::bind(&log).expect("a socket");
    fails(&["--unixsocket", log.to_str().expect("a path in UTF-8"), "-c"], 1, "may be somebody's: it stays");
    assert!(log.exists());
    fs::remove_dir_all(&dir).expect("the directory made above");
}
