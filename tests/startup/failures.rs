//! Failures of the start: one sentence on stderr that says what to do, exit code 1; a command line that makes no sense: 2.

use std::fs;
use std::net::TcpListener;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::Command;

use crate::common::server::{self, Server};
use crate::{PATIENCE_MS, restrict};

/// Runs our server until it exits, which it must; its exit code and stderr.
fn failed_start(mut command: Command, label: &str) -> (Option<i32>, String) {
    let dir = server::scratch_dir(label);
    command.current_dir(&dir);
    let mut child = server::spawn(command, &dir);
    let status = server::poll(PATIENCE_MS, || child.try_wait().expect("the state of a child"));
    if status.is_none() {
        child.kill().expect("a running child");
        child.wait().expect("an exit");
    }
    let stderr = fs::read_to_string(dir.join("stderr")).expect("text on stderr");
    fs::remove_dir_all(&dir).expect("the directory made above");
    let status = status.unwrap_or_else(|| panic!("{label}: it runs, stderr:\n{stderr}"));
    (status.code(), stderr)
}

/// Exit code 1, and nothing on stderr but one line that has each of `parts`.
fn assert_fails(label: &str, command: Command, parts: &[&str]) {
    let (code, stderr) = failed_start(command, label);
    assert_eq!(code, Some(1), "{label}: {stderr}");
    assert_eq!(stderr.trim().lines().count(), 1, "{label}: {stderr}");
    for part in parts {
        assert!(stderr.contains(part), "{label}: no {part:?} in {stderr}");
    }
}

fn ours(port: u16, flags: &[&str]) -> Command {
    let mut command = server::ours_command(port, 1, Path::new("."));
    command.args(flags);
    command
}

#[test]
fn a_busy_port() {
    if server::stand_in() {
        return;
    }
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("an address").port();
    let sentence =
        |port| format!("port {port} of 127.0.0.1 is in use by another process: stop that one, or choose");
    for accept in ["reuseport", "single"] {
        assert_fails("busy-port", ours(port, &["--accept", accept]), &[&sentence(port)]);
        let running = Server::ours_with(2, &["--accept", accept]);
        assert_fails("own-port", ours(running.port, &[]), &[&sentence(running.port)]);
        running.client().check("PING", "+PONG\r\n");
    }
}

#[test]
fn an_address_of_another_machine() {
    if server::stand_in() {
        return;
    }
    let with_bind = |bind: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_corelane"));
        command.args(["--shards", "1", "--port", &server::free_port().to_string(), "--bind", bind]);
        command
    };
    let sentence =
        "this machine has no address 192.0.2.1: correct --bind, or write -192.0.2.1 to pass over it";
    assert_fails("foreign-address", with_bind("192.0.2.1"), &[sentence]);
    assert_fails(
        "no-address",
        with_bind("-192.0.2.1"),
        &["there is nowhere to listen: give --port and --bind"],
    );
    assert_fails("no-name", with_bind("no.such.host.invalid"), &["is neither an address nor a host name"]);
}

#[test]
fn cpus_and_shards_that_are_not_there() {
    if server::stand_in() {
        return;
    }
    let with = |flags: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_corelane"));
        command.args(["--port", &server::free_port().to_string(), "--bind", "127.0.0.1"]).args(flags);
        command
    };
    let unknown = "--cpus names cpu 9999, which this process may not use: choose from ";
    assert_fails("unknown-cpu", with(&["--cpus", "0,9999"]), &[unknown]);
    let (code, sentence) = failed_start(with(&["--cpus", "first"]), "no-list");
    assert_eq!(code, Some(2));
    assert!(sentence.contains("--cpus \"first\" is not a list of CPUs"), "{sentence}");
    let (code, sentence) = failed_start(with(&["--shards", "1025"]), "too-many-shards");
    assert_eq!(code, Some(2));
    assert_eq!(sentence, "corelane: --shards 1025: shards: argument must be between 0 and 1024 inclusive\n");
}

#[test]
fn too_few_descriptors() {
    if server::stand_in() {
        return;
    }
    // 56 are for one shard and the process, as in preflight.rs.
    for limit in [12, 56 + 31] {
        let mut command = ours(server::free_port(), &[]);
        restrict::limit(&mut command, libc::RLIMIT_NOFILE, limit, limit);
        let sentence = format!(
            "only {limit} file descriptors may be open and 88 are needed for 32 clients: raise the limit (ulimit -n 10240, \
             docker run --ulimit nofile=10240, or LimitNOFILE=10240 in the systemd unit)"
        );
        assert_fails("descriptors", command, &[&sentence]);
    }
}

#[test]
fn too_little_locked_memory() {
    if server::stand_in() {
        return;
    }
    let mut command = ours(server::free_port(), &[]);
    restrict::limit(&mut command, libc::RLIMIT_MEMLOCK, 0, 64 << 10);
    let sentence = "only 64 KiB of memory may be locked and corelane needs 512: raise the limit (ulimit -l unlimited, \
        docker run --ulimit memlock=-1, or LimitMEMLOCK=infinity in the systemd unit)";
    assert_fails("memlock", command, &[sentence]);
}

#[test]
fn no_io_uring() {
    let disabled = fs::read_to_string("/proc/sys/kernel/io_uring_disabled").unwrap_or_default();
    if server::stand_in() {
        return;
    }
    if !matches!(disabled.trim(), "" | "0") {
        return server::skip("kernel.io_uring_disabled is not 0");
    }
    let table = [
        (
            libc::SYS_io_uring_setup,
            libc::EPERM,
            "io_uring is forbidden for this process: allow io_uring_setup,",
        ),
        (
            libc::SYS_io_uring_setup,
            libc::ENOSYS,
            "io_uring is missing: use a kernel built with CONFIG_IO_URING",
        ),
        (
            libc::SYS_io_uring_setup,
            libc::ENOMEM,
            "of memory may be locked and corelane needs 512: raise the limit",
        ),
        (libc::SYS_io_uring_register, libc::EPERM, "io_uring is forbidden for this process"),
        (libc::SYS_io_uring_enter, libc::EPERM, "io_uring is forbidden for this process"),
    ];
    for (call, errno, sentence) in table {
        let mut command = ours(server::free_port(), &[]);
        restrict::refuse(&mut command, call, None, errno);
        assert_fails("io-uring", command, &[sentence]);
    }
}

#[test]
fn a_unix_socket_that_cannot_be_made() {
    if server::stand_in() {
        return;
    }
    let dir = server::scratch_dir("unix-place");
    let path = |name: &str| dir.join(name).display().to_string();
    let _live = UnixListener::bind(path("live.sock")).expect("a socket");
    fs::write(path("file"), "data").expect("a file");
    let place = "choose a --unixsocket in a directory that exists and that this user may write to";
    let table = [
        (path("no/such/directory.sock"), place),
        ("/proc/corelane.sock".to_owned(), place),
        (path("live.sock"), "is in use by another process: stop that one, or choose another --unixsocket"),
        (path("file"), "exists and is not a socket: remove it, or choose another --unixsocket"),
    ];
    for (path, sentence) in &table {
        assert_fails("unix", ours(server::free_port(), &["--unixsocket", path]), &[path, sentence]);
    }
    assert_eq!(fs::read(path("file")).expect("the file"), b"data");
    fs::remove_dir_all(dir).expect("the directory made above");
}

#[test]
fn usage_errors_have_an_exit_code_of_their_own() {
    if server::stand_in() {
        return;
    }
    for (flag, value) in [("--no-such-flag", "1"), ("--placement", "here"), ("--accept", "none")] {
        let (code, stderr) = failed_start(ours(server::free_port(), &[flag, value]), "usage");
        assert_eq!(code, Some(2), "{stderr}");
        assert!(stderr.contains(flag), "{stderr}");
    }
}
