//! The servers under test: started by a command, or found at an address, and ended again if we have started them.

use std::fs::{self, File};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use super::system;
use crate::address::Address;
use crate::client::PASSWORD_VARIABLE;
use crate::config_file::split;
use crate::info;
use crate::latency::system::stopped;
use crate::target::process::{Place, places_of};

/// Longest wait for a server's first answer.
const START_WAIT: Duration = Duration::from_secs(10);
/// How long a server has to end in order before it is killed.
const END_WAIT: Duration = Duration::from_secs(1);
/// Between two looks at something that is awaited.
const PAUSE: Duration = Duration::from_millis(5);

/// How to come by a server.
#[derive(Clone, Debug)]
pub(super) enum Source {
    /// Start it: `{port}` stands for a free port, `{dir}` for a directory of its own, `corelane` for this program.
    Command(String),
    /// The same, and load it through its Unix socket `{dir}/socket`.
    Socket(String),
    /// It runs.
    Address(Address),
}

/// A server that answers.
#[derive(Debug)]
pub(super) struct Running {
    pub(super) address: Address,
    /// What it calls itself, with its version.
    pub(super) identity: String,
    /// Its process, if that is on this machine and known.
    pub(super) pid: Option<u32>,
    owned: Option<Owned>,
}

/// A process of ours, which ends when this is dropped.
#[derive(Debug)]
struct Owned {
    child: Child,
    dir: PathBuf,
}

impl Source {
    /// A command or an address, whichever is given.
    ///
    /// # Errors
    /// The address is none.
    pub(super) fn choose(command: Option<&str>, url: Option<&str>) -> Result<Option<Self>> {
        Ok(match (command, url) {
            (Some(command), _) => Some(Self::Command(command.to_owned())),
            (None, Some(url)) => Some(Self::address(url)?),
            (None, None) => None,
        })
    }

    /// A server that runs. Where its address has no password, REDISCLI_AUTH has it, if anything.
    ///
    /// # Errors
    /// It is no address.
    pub(super) fn address(url: &str) -> Result<Self> {
        Ok(Self::Address(Address::parse(url)?.or_password(std::env::var(PASSWORD_VARIABLE).ok())))
    }

    /// As it stands in reports.
    pub(super) fn shown(&self) -> String {
        match self {
            Self::Command(command) | Self::Socket(command) => command.clone(),
            Self::Address(address) => address.shown(),
        }
    }

    /// Whether we start it.
    pub(super) fn is_command(&self) -> bool {
        !matches!(self, Self::Address(_))
    }

    /// Starts the server on these CPUs, if it is one to be started, and waits for its first answer.
    ///
    /// # Errors
    /// The command cannot be run, ends at once or does not answer within ten seconds; nobody is at the address.
    pub(super) fn start(&self, cpus: Option<&[usize]>) -> Result<Running> {
        let (command, by_socket) = match self {
            Self::Address(address) => {
                let (identity, pid) = identify(address)?;
                return Ok(Running { address: address.clone(), identity, pid, owned: None });
            }
            Self::Command(command) => (command, false),
            Self::Socket(command) => (command, true),
        };
        let port = free_port()?;
        let dir = scratch(&format!("server-{port}"))?;
        let address =
            if by_socket { Address::unix(&dir.join("socket")) } else { Address::tcp("127.0.0.1", port) };
        let child = spawn(command, port, &dir, cpus).inspect_err(|_| drop(fs::remove_dir_all(&dir)))?;
        let mut owned = Owned { child, dir };
        owned.wait_until_ready(&address, command)?;
        let (identity, pid) = identify(&address)?;
        let own = owned.child.id();
        // A script that starts the server is not the server, if that tells its number.
        let pid = pid.filter(|pid| group_of(*pid) == Some(own)).unwrap_or(own);
        Ok(Running { address, identity, pid: Some(pid), owned: Some(owned) })
    }
}

impl Running {
    /// Text with this server's own directory written as in its command.
    pub(super) fn hide_dir(&self, text: &str) -> String {
        let dir = self.owned.as_ref().map(|owned| owned.dir.display().to_string());
        dir.map_or_else(|| text.to_owned(), |dir| text.replace(&dir, "{dir}"))
    }

    /// An error if the server has ended.
    ///
    /// # Errors
    /// It has, with what it said last.
    pub(super) fn check(&mut self) -> Result<()> {
        let Some(owned) = &mut self.owned else { return Ok(()) };
        match owned.child.try_wait()? {
            None => Ok(()),
            Some(status) => bail!("{} has ended while it was measured: {}", self.identity, owned.end(status)),
        }
    }
}

impl Owned {
    fn wait_until_ready(&mut self, address: &Address, command: &str) -> Result<()> {
        let deadline = Instant::now() + START_WAIT;
        loop {
            let last = match address.connect().and_then(|mut client| client.text(&["PING"])) {
                Ok(_) => return Ok(()),
                Err(error) => format!("{error:#}"),
            };
            if let Some(status) = self.child.try_wait()? {
                bail!("`{command}` does not run: {}", self.end(status));
            }
            if stopped() {
                bail!("interrupted");
            }
            if Instant::now() > deadline {
                let seconds = START_WAIT.as_secs();
                bail!("`{command}` does not answer within {seconds} s: {last}; is its port {{port}}?");
            }
            std::thread::sleep(PAUSE);
        }
    }

    /// How it ended, and the last lines it printed.
    fn end(&self, status: ExitStatus) -> String {
        match last_words(&self.dir.join("log")) {
            words if words.is_empty() => status.to_string(),
            words => format!("{status}: {words}"),
        }
    }
}

impl Drop for Owned {
    fn drop(&mut self) {
        system::signal_group(self.child.id(), libc::SIGTERM);
        let deadline = Instant::now() + END_WAIT;
        while Instant::now() < deadline && matches!(self.child.try_wait(), Ok(None)) {
            std::thread::sleep(PAUSE);
        }
        // It may have ended by itself; what is left to do is the same.
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = fs::remove_dir_all(&self.dir);
    }
}

fn spawn(text: &str, port: u16, dir: &Path, cpus: Option<&[usize]>) -> Result<Child> {
    let port = port.to_string();
    let place = dir.display().to_string();
    let words = split(text).with_context(|| format!("`{text}`"))?;
    let mut words = words.iter().map(|word| word.replace("{port}", &port).replace("{dir}", &place));
    let program = words.next().context("the command of a server is empty")?;
    let mut command = Command::new(program_of(&program)?);
    let log = File::create(dir.join("log")).context("cannot create a server's log")?;
    command.args(words).current_dir(dir).stdin(Stdio::null());
    command.stderr(log.try_clone()?).stdout(log);
    system::prepare(&mut command, cpus);
    command.spawn().with_context(|| format!("cannot run `{text}`"))
}

/// The path of a program: this one for `corelane`; others as given, though they are started elsewhere.
///
/// # Errors
/// The path of this program is not known.
pub(super) fn program_of(word: &str) -> Result<PathBuf> {
    if word == "corelane" {
        return std::env::current_exe().context("cannot find this program's file");
    }
    if word.contains('/') {
        return fs::canonicalize(word).with_context(|| format!("cannot find {word}"));
    }
    Ok(word.into())
}

/// Name and version as INFO tells, and the process if it is on this machine.
fn identify(address: &Address) -> Result<(String, Option<u32>)> {
    let mut client = address.connect()?;
    let answer = client.text(&["PING"])?;
    if answer != "PONG" {
        bail!("{} answers PING with {answer}", address.shown());
    }
    let told = client.text(&["INFO", "server"]).unwrap_or_default();
    let sections = info::sections(&told);
    let identity = match sections.first() {
        Some((_, fields)) => info::server_name(fields),
        None => format!("the server at {}", address.shown()),
    };
    let process = sections.first().map_or("", |(_, fields)| info::field(fields, "process_id"));
    let pid = process.parse().ok().filter(|_| address.is_here());
    // In a container it has another number, which may be somebody else's here.
    let pid = pid.filter(|pid| group_of(*pid).is_some()).filter(|pid| {
        address.is_unix() || places_of(*pid).is_ok_and(|places| listens_on(&places, &address.shown()))
    });
    Ok((identity, pid))
}

fn listens_on(places: &[Place], address: &str) -> bool {
    let port = address.rsplit_once(':').and_then(|(_, port)| port.parse().ok());
    places.iter().any(|place| matches!(place, Place::Tcp(bound) if Some(bound.port()) == port))
}

/// The process group of a process; `None` if there is no such process.
fn group_of(pid: u32) -> Option<u32> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    text.rsplit_once(") ")?.1.split(' ').nth(2)?.parse().ok()
}

/// The last three lines of a file.
pub(super) fn last_words(log: &Path) -> String {
    let text = fs::read(log).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let lines: Vec<&str> = text.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    lines[lines.len().saturating_sub(3)..].join(" / ")
}

/// A directory of our own for something that runs.
pub(super) fn scratch(label: &str) -> Result<PathBuf> {
    let dir = std::env::temp_dir().join(format!("corelane-experiment-{}-{label}", std::process::id()));
    fs::create_dir_all(&dir).with_context(|| format!("cannot create {}", dir.display()))?;
    Ok(dir)
}

/// A port nobody listens on, below the range from which outgoing connections get theirs.
fn free_port() -> Result<u16> {
    const FIRST: u16 = 10_000;
    const COUNT: u16 = 20_000;
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let own = (std::process::id() % 1000 * 20) as u16;
    let candidates =
        (0..COUNT).map(|_| FIRST + own.wrapping_add(NEXT.fetch_add(1, Ordering::Relaxed)) % COUNT);
    let mut free = candidates.filter(|port| TcpListener::bind(("127.0.0.1", *port)).is_ok());
    free.next().context("no port of 127.0.0.1 is free")
}
