//! Starting and ending: start-up failures in one sentence, SIGTERM under load, a panicking command.

use std::fs;
use std::io::Write;
use std::net::TcpListener;
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::common::client::Outcome;
use crate::common::server::{self, Server};
use crate::common::words;

/// SIGTERM must end the server within 2 s; ten times that, as the machine may be busy.
const EXIT_MS_MAX: u64 = 20_000;

#[test]
fn sigterm_and_sigint_under_load_end_the_server_cleanly() {
    for signal in ["TERM", "INT"] {
        let mut server = Server::ours(3);
        let served = AtomicUsize::new(0);
        let port = server.port;
        let status = std::thread::scope(|scope| {
            for number in 0..8 {
                let served = &served;
                scope.spawn(move || load(port, number, served));
            }
            let loaded = server::poll(20_000, || (served.load(Ordering::Relaxed) > 2000).then_some(()));
            assert!(loaded.is_some(), "no load: {} commands served", served.load(Ordering::Relaxed));
            server.signal(signal);
            server.await_exit(EXIT_MS_MAX)
        });
        let status = status.unwrap_or_else(|| panic!("SIG{signal}: still running"));
        assert_eq!(status.code(), Some(0), "SIG{signal}: {status}, log:\n{}", server.log());
    }
}

/// Pipelines over all shards until the server goes away.
fn load(port: u16, number: usize, served: &AtomicUsize) {
    let Ok(mut client) = crate::common::client::Client::try_connect(port) else { return };
    let line = |n: usize| format!("MSET a:{number}:{n} 1 b:{number}:{n} 2");
    let commands: Vec<words::Command> = (0..20).map(|n| words::parse(&line(n))).collect();
    let input = words::encode_all(&commands);
    while client.write(&input).is_ok() {
        for _ in &commands {
            match client.read() {
                Outcome::Reply(raw) => assert_eq!(raw, b"+OK\r\n"),
                Outcome::Closed => return,
                Outcome::Hung => panic!("no reply and no close"),
            }
        }
        served.fetch_add(commands.len(), Ordering::Relaxed);
    }
}

#[test]
fn what_was_read_before_sigterm_is_answered() {
    let mut server = Server::ours(2);
    let mut client = server.client();
    client.check("MSET a 1 b 2", "+OK\r\n");
    server.signal("TERM");
    let rest = client.read_to_close().expect("a close");
    assert!(rest.is_empty(), "nothing was asked: {}", rest.escape_ascii());
    let status = server.await_exit(EXIT_MS_MAX).expect("an exit");
    assert_eq!(status.code(), Some(0), "{status}, log:\n{}", server.log());
}

/// Runs our server with `command` until it exits, which it must; its exit code and stderr.
fn failed_start(mut command: Command, label: &str) -> (Option<i32>, String) {
    let dir = server::scratch_dir(label);
    command.current_dir(&dir);
    let mut child = server::spawn(command, &dir);
    let status = server::poll(EXIT_MS_MAX, || child.try_wait().expect("the state of a child"));
    if status.is_none() {
        child.kill().expect("a running child");
        child.wait().expect("an exit");
    }
    let stderr = fs::read_to_string(dir.join("stderr")).expect("text on stderr");
    fs::remove_dir_all(&dir).expect("the directory made above");
    let status = status.unwrap_or_else(|| panic!("{label}: it runs, stderr:\n{stderr}"));
    (status.code(), stderr)
}

/// A start-up failure: exit code 1, one line on stderr, naming `names`.
fn assert_fails_in_one_sentence(command: Command, label: &str, names: &[&str]) {
    let (code, stderr) = failed_start(command, label);
    assert_eq!(code, Some(1), "{label}: {stderr}");
    assert_eq!(stderr.trim().lines().count(), 1, "{label}: {stderr}");
    for name in names {
        assert!(stderr.to_lowercase().contains(name), "{label}: no {name:?} in {stderr}");
    }
}

fn ours(port: u16, flags: &[&str]) -> Command {
    let mut command = server::ours_command(port, 1, std::path::Path::new("."));
    command.args(flags);
    command
}

#[test]
fn a_busy_port_is_one_sentence() {
    if server::stand_in() {
        return;
    }
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("an address").port();
    assert_fails_in_one_sentence(ours(port, &[]), "busy-port", &[&port.to_string()]);
}

#[test]
fn a_port_busy_by_our_own_kind_is_one_sentence() {
    if server::stand_in() {
        return;
    }
    let running = Server::ours(2);
    assert_fails_in_one_sentence(ours(running.port, &[]), "own-port", &[&running.port.to_string()]);
    running.client().check("PING", "+PONG\r\n");
}

#[test]
fn an_unknown_cpu_is_one_sentence() {
    if server::stand_in() {
        return;
    }
    let mut command = Command::new(env!("CARGO_BIN_EXE_corelane"));
    command.args(["--port", &server::free_port().to_string(), "--bind", "127.0.0.1", "--cpus", "9999"]);
    assert_fails_in_one_sentence(command, "unknown-cpu", &["cpu", "9999"]);
}

#[test]
fn too_few_descriptors_are_one_sentence() {
    if server::stand_in() {
        return;
    }
    let mut command = Command::new("sh");
    let script = format!(
        "ulimit -S -n 12 && ulimit -H -n 12 && exec {} --bind 127.0.0.1 --shards 2 --port {}",
        env!("CARGO_BIN_EXE_corelane"),
        server::free_port()
    );
    command.args(["-c", &script]);
    assert_fails_in_one_sentence(command, "descriptors", &["descriptors"]);
}

#[test]
fn an_unknown_flag_is_a_usage_error() {
    if server::stand_in() {
        return;
    }
    let (code, stderr) = failed_start(ours(server::free_port(), &["--no-such-flag", "1"]), "unknown-flag");
    assert_eq!(code, Some(2), "{stderr}");
    assert!(stderr.contains("no-such-flag"), "{stderr}");
}

#[test]
fn a_panicking_command_names_itself_its_shard_and_its_backtrace_and_ends_the_server() {
    if server::stand_in() {
        return;
    }
    let mut server = Server::ours(3);
    let mut client = server.client();
    client.check("MSET a 1 b 2 c 3", "+OK\r\n");
    // The reply never comes: the state may be torn, so the server ends.
    let _ = client.stream().write_all(b"DEBUG PANIC\r\n");
    assert_eq!(client.read(), Outcome::Closed);
    let status = server.await_exit(EXIT_MS_MAX).expect("an exit");
    assert_eq!(status.code(), Some(1), "{status}, log:\n{}", server.log());
    let log = server.log().to_lowercase();
    for part in ["debug", "shard", "backtrace"] {
        assert!(log.contains(part), "no {part:?} in the log:\n{log}");
    }
    let frames =
        log.lines().filter(|line| line.trim_start().starts_with(|c: char| c.is_ascii_digit())).count();
    assert!(frames > 3, "no frames in the log:\n{log}");
}
