//! What ends an experiment: servers that are not there, die or are ended; loads that fail; interrupts.

use std::fs;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Instant;

use super::common::server::{self, Server, poll};
use super::{END_MAX, SERVER, command, complaint, experiment, generator, text};

#[test]
fn servers_that_cannot_be_reached_or_do_not_start_are_told_at_once() {
    let started = Instant::now();
    let free = server::free_port().to_string();
    let output = experiment(&["env", "--url", &format!("127.0.0.1:{free}")]);
    assert_eq!(output.status.code(), Some(1));
    assert!(
        complaint(&output).contains(&format!("cannot connect to 127.0.0.1:{free}")),
        "{}",
        complaint(&output)
    );
    // A directory that exists and takes no files: told before anything is measured.
    let output = experiment(&["env", "--url", &format!("127.0.0.1:{free}"), "--out", "/proc/self"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(complaint(&output).contains("cannot write /proc/self/run.json"), "{}", complaint(&output));
    let output = experiment(&["env", "--server", "sh -c 'echo no disk left; exit 3'"]);
    assert_eq!(output.status.code(), Some(1));
    let said = complaint(&output);
    assert!(said.contains("does not run: exit status: 3: no disk left"), "{said}");
    assert!(started.elapsed() < 2 * END_MAX, "{:?}", started.elapsed());

    let ours = Server::ours(1);
    ours.client().check("CONFIG SET requirepass hunter2", "+OK\r\n");
    for (url, why) in [
        (format!("redis://:wrong@127.0.0.1:{}", ours.port), "the server refuses the password: WRONGPASS"),
        (format!("redis://nobody:wrong@127.0.0.1:{}", ours.port), "the server refuses the password"),
        (format!("127.0.0.1:{}", ours.port), "NOAUTH"),
    ] {
        let output = experiment(&["env", "--url", &url]);
        assert_eq!(output.status.code(), Some(1));
        assert!(complaint(&output).contains(why), "{url}: {}", complaint(&output));
    }
    let dir = server::scratch_dir("experiment-password");
    let out = dir.join("run");
    let url = format!("redis://:hunter2@127.0.0.1:{}", ours.port);
    let client = generator(&dir, "true");
    let args = [
        "env",
        "--url",
        &url,
        "--client",
        &client,
        "--only",
        "SET-100000",
        "--repeat",
        "1",
        "--out",
        text(&out),
    ];
    let output = experiment(&args);
    assert!(output.status.success(), "{}", complaint(&output));
    for file in ["report.md", "run.json"] {
        let saved = fs::read_to_string(out.join(file)).expect("a saved run");
        assert!(saved.contains("(redacted)") && !saved.contains("hunter2"), "{saved}");
    }
    fs::remove_dir_all(&dir).expect("the directory made above");
}

/// A run that is under way, and the process of the server that it has started.
pub(super) struct UnderWay {
    pub(super) child: Child,
    pub(super) server: u32,
    pub(super) dir: PathBuf,
}

/// Starts a run whose load takes a minute, and waits until its server is loaded.
pub(super) fn under_way(label: &str, first: &[&str]) -> UnderWay {
    let dir = server::scratch_dir(label);
    let socket = dir.join("s");
    let client = generator(&dir, &format!("touch {}/loaded; exec sleep 60", dir.display()));
    let server = format!("{SERVER} --unixsocket {}", socket.display());
    let mut command = command(first);
    command.args(["--client", &client, "--repeat", "1", "--server", &server, "-q"]);
    // What is killed cannot clear up behind itself.
    command.env("TMPDIR", &dir);
    let child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().expect("corelane runs");
    let loaded = dir.join("loaded");
    poll(30_000, || loaded.exists().then_some(())).expect("a load within 30 s");
    let server = redis::Client::open(format!("unix://{}", socket.display()))
        .and_then(|client| client.get_connection())
        .and_then(|mut connection| redis::cmd("INFO").arg("server").query::<String>(&mut connection))
        .expect("the server's INFO");
    let pid = server.lines().find_map(|line| line.strip_prefix("process_id:")).expect("its process");
    UnderWay { child, server: pid.trim().parse().expect("a number"), dir }
}

fn kill(signal: &str, pid: u32) {
    let status =
        Command::new("kill").args([&format!("-{signal}"), &pid.to_string()]).status().expect("kill runs");
    assert!(status.success(), "kill -{signal} {pid}");
}

#[test]
fn a_server_that_dies_ends_the_run_within_a_second() {
    let run = under_way("experiment-dies", &["env"]);
    kill("KILL", run.server);
    let died = Instant::now();
    let output = run.child.wait_with_output().expect("an exit");
    assert!(died.elapsed() < END_MAX, "{:?}", died.elapsed());
    assert_eq!(output.status.code(), Some(1));
    let said = complaint(&output);
    assert!(said.contains("has ended while it was measured: signal: 9 (SIGKILL)"), "{said}");
    fs::remove_dir_all(&run.dir).expect("the directory made above");
}

#[test]
fn whoever_interrupts_a_run_leaves_nothing_behind() {
    for signal in ["INT", "TERM", "KILL"] {
        let kept = server::scratch_dir(&format!("experiment-kept-{signal}"));
        let out = kept.join("out");
        let run = under_way(&format!("experiment-{signal}"), &["env", "--out", text(&out)]);
        assert!(out.exists(), "it is looked at first whether results can be kept");
        kill(signal, run.child.id());
        let output = run.child.wait_with_output().expect("an exit");
        if signal != "KILL" {
            assert_eq!(output.status.code(), Some(1));
            assert!(complaint(&output).contains("interrupted"), "{}", complaint(&output));
            assert!(!out.exists(), "an empty directory is left");
        }
        fs::remove_dir_all(&kept).expect("the directory made above");
        let process = PathBuf::from(format!("/proc/{}", run.server));
        poll(5_000, || (!process.exists()).then_some(()))
            .unwrap_or_else(|| panic!("the server lives after {signal}"));
        fs::remove_dir_all(&run.dir).expect("the directory made above");
    }
}

/// Waits until a server is under load, and kills it; the tool has to notice.
fn kill_under_load(url: &str, args: &[&str], why: &str) {
    let child = command(args).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().expect("corelane runs");
    let loaded = || {
        let client = redis::Client::open(url).ok()?;
        let mut connection = client.get_connection().ok()?;
        let info: String = redis::cmd("INFO").query(&mut connection).ok()?;
        let field =
            |name: &str| info.lines().find_map(|line| line.strip_prefix(name)?.trim().parse::<u64>().ok());
        // Beyond what starting it takes.
        (field("total_commands_processed:")? > 1000).then(|| field("process_id:")).flatten()
    };
    let pid = poll(30_000, loaded).expect("a load within 30 s");
    kill("KILL", pid as u32);
    let died = Instant::now();
    let output = child.wait_with_output().expect("an exit");
    assert!(died.elapsed() < END_MAX, "{:?}", died.elapsed());
    assert_eq!(output.status.code(), Some(1));
    assert!(complaint(&output).contains(why), "{}", complaint(&output));
}

#[test]
fn a_server_that_dies_under_a_real_load_ends_the_run_within_a_second() {
    let dir = server::scratch_dir("experiment-real-death");
    let socket = dir.join("s");
    let server = format!("{SERVER} --unixsocket {}", socket.display());
    let url = format!("unix://{}", socket.display());
    kill_under_load(
        &url,
        &["env", "--server", &server, "--scale", "1000", "-q"],
        "has ended while it was measured: signal: 9 (SIGKILL)",
    );
    let ours = Server::ours(1);
    let url = format!("redis://127.0.0.1:{}", ours.port);
    kill_under_load(
        &url,
        &["env", "--url", &url, "--scale", "1000", "-q"],
        " ended with exit status: 1: corelane bench: ",
    );
    fs::remove_dir_all(&dir).expect("the directory made above");
}

#[test]
fn loads_that_fail_are_failures_with_their_own_words() {
    let dir = server::scratch_dir("experiment-loads");
    let failing = generator(&dir, "echo too many connections >&2; exit 4");
    let errors = format!("sh -c 'cat {}/errors'", dir.display());
    for (client, why) in [
        (failing.as_str(), "ended with exit status: 4: too many connections"),
        (&errors, "7 of 1000 requests were answered with errors"),
        ("sh -c 'echo fast'", "no JSON was printed"),
        ("sh -c 'echo {}'", "no tests were printed"),
        ("no-such-generator", "cannot run no-such-generator"),
    ] {
        let output = experiment(&["env", "--client", client, "--server", SERVER, "-q"]);
        assert_eq!(output.status.code(), Some(1), "{client}");
        assert!(complaint(&output).contains(why), "{client}: {}", complaint(&output));
    }
    fs::remove_dir_all(&dir).expect("the directory made above");
}
