//! What a server is loaded with, and how: `corelane bench` as a process of its own, watched together with the server.

use std::fs::{self, File};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::recording::quoted;
use super::server::{Running, last_words, program_of, scratch};
use super::system;
use super::usage::{Usage, Watch};
use crate::client::PASSWORD_VARIABLE;
use crate::config_file::split;
use crate::latency::system::stopped;

/// Between two looks at the processes.
const PAUSE: Duration = Duration::from_millis(20);
/// How long a server has to be seen ended after its load has failed.
const GRACE: Duration = Duration::from_millis(100);

/// One load.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Load {
    pub(super) name: String,
    /// A sentence on it, for people.
    pub(super) about: String,
    pub(super) clients: u64,
    pub(super) requests: u64,
    /// The options of `corelane bench`, its address aside, and the words of a command at the end, if it is not one of the
    /// usual tests.
    pub(super) words: Vec<String>,
}

impl Load {
    /// A load of `requests`, scaled, but one for each client at least; `words` are its further options.
    pub(super) fn new(name: &str, about: &str, clients: u64, requests: u64, scale: f64, words: &str) -> Self {
        let requests = ((requests as f64 * scale) as u64).max(clients);
        let mut all = vec!["-n".to_owned(), requests.to_string(), "-c".to_owned(), clients.to_string()];
        all.extend(words.split(' ').map(str::to_owned));
        Self { name: name.to_owned(), about: about.to_owned(), clients, requests, words: all }
    }

    /// The same by so many threads of the load generator.
    pub(super) fn threaded(mut self, threads: Option<u32>) -> Self {
        if let Some(threads) = threads {
            if let Some(at) = self.words.iter().position(|word| word == "--threads") {
                self.words.drain(at..at + 2);
            }
            self.words.splice(0..0, ["--threads".to_owned(), threads.to_string()]);
        }
        self
    }
}

/// What `corelane bench --json` says about one test.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Test {
    pub(super) title: String,
    pub(super) requests: u64,
    pub(super) clients: u64,
    pub(super) pipeline: u64,
    pub(super) threads: u64,
    pub(super) data_size: u64,
    /// Names and values of settings that the server has told.
    #[serde(default)]
    pub(super) host_configuration: Vec<(String, String)>,
    pub(super) keyspace: Option<u64>,
    pub(super) seconds: f64,
    pub(super) requests_per_second: f64,
    pub(super) errors: u64,
    pub(super) client_cpu_seconds: f64,
    pub(super) latency_ms: Latency,
    /// How many requests took up to so many microseconds, and longer than the entry before.
    pub(super) histogram: Vec<(f64, u64)>,
}

/// Milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Latency {
    pub(super) avg: f64,
    pub(super) min: f64,
    pub(super) p50: f64,
    pub(super) p95: f64,
    pub(super) p99: f64,
    #[serde(rename = "p99.9")]
    pub(super) p999: f64,
    pub(super) max: f64,
}

/// Who makes the load.
#[derive(Clone, Debug)]
pub(super) struct Generator {
    /// Such as `corelane`, or `ssh other corelane`.
    pub(super) program: String,
    /// This machine's name for whoever makes the load, if it is not this machine.
    pub(super) host: Option<String>,
    /// Where it runs.
    pub(super) cpus: Option<Vec<usize>>,
}

/// What came of a load.
#[derive(Clone, Debug)]
pub(super) struct Outcome {
    pub(super) test: Test,
    /// `None` where the server's process is not known.
    pub(super) usage: Option<Usage>,
    pub(super) command: String,
}

/// A process that makes load; killed when dropped.
struct Process {
    child: Child,
    dir: std::path::PathBuf,
    command: String,
    watch: Option<Watch>,
    ended: Option<Instant>,
}

impl Drop for Process {
    fn drop(&mut self) {
        system::signal_group(self.child.id(), libc::SIGKILL);
        // It may have ended by itself; what is left to do is the same.
        let _ = self.child.wait();
        let _ = fs::remove_dir_all(&self.dir);
    }
}

impl Generator {
    /// Loads each of these servers at the same time with the same load, and waits for all to be done.
    ///
    /// # Errors
    /// A server ends, a load fails or answers with errors, or somebody interrupts it.
    pub(super) fn run(&self, servers: &mut [&mut Running], load: &Load) -> Result<Vec<Outcome>> {
        let mut processes = Vec::new();
        for (number, server) in servers.iter().enumerate() {
            processes.push(self.start(server, load, number)?);
        }
        while processes.iter().any(|process| process.ended.is_none()) {
            if stopped() {
                bail!("interrupted");
            }
            for (process, server) in processes.iter_mut().zip(servers.iter_mut()) {
                server.check()?;
                process.look(server)?;
            }
            std::thread::sleep(PAUSE);
        }
        processes.iter_mut().map(Process::outcome).collect()
    }

    fn start(&self, server: &Running, load: &Load, number: usize) -> Result<Process> {
        let program = split(&self.program).with_context(|| format!("`{}`", self.program))?;
        let first = program.first().context("the command of the load generator is empty")?;
        let address = match &self.host {
            Some(host) => server.address.clone().under(host),
            None => server.address.clone(),
        };
        // Others can read a command line, but not the environment of a process.
        let in_environment = self.program == "corelane";
        let words = |password: Option<&str>| -> Vec<String> {
            let mut words = vec!["bench".to_owned(), "--json".to_owned()];
            words.extend(address.words(password));
            words.extend(load.words.iter().cloned());
            words
        };
        let dir = scratch(&format!("load-{number}"))?;
        let mut command = Command::new(program_of(first)?);
        let given = words(address.password().filter(|_| !in_environment));
        command.args(&program[1..]).args(given).stdin(Stdio::null());
        match address.password().filter(|_| in_environment) {
            Some(password) => command.env(PASSWORD_VARIABLE, password),
            None => command.env_remove(PASSWORD_VARIABLE),
        };
        command.stdout(File::create(dir.join("out"))?).stderr(File::create(dir.join("err"))?);
        system::prepare(&mut command, self.cpus.as_deref());
        let child = command.spawn().with_context(|| format!("cannot run {}", self.program));
        let child = child.inspect_err(|_| drop(fs::remove_dir_all(&dir)))?;
        let watch = server.pid.map(Watch::start);
        let command = words(Some("(redacted)"))
            .iter()
            .fold(self.program.clone(), |line, word| format!("{line} {}", quoted(word)));
        let command = server.hide_dir(&command);
        Ok(Process { child, dir, command, watch, ended: None })
    }
}

impl Process {
    /// Notes what the server uses, and whether the load has ended.
    fn look(&mut self, server: &mut Running) -> Result<()> {
        if self.ended.is_some() {
            return Ok(());
        }
        if let Some(status) = self.child.try_wait()? {
            self.ended = Some(Instant::now());
            if !status.success() {
                // Most often because the server has gone, which is better to know.
                std::thread::sleep(GRACE);
                server.check()?;
                bail!("`{}` ended with {status}: {}", self.command, last_words(&self.dir.join("err")));
            }
        }
        if let Some(watch) = &mut self.watch {
            watch.look();
        }
        Ok(())
    }

    fn outcome(&mut self) -> Result<Outcome> {
        let text = fs::read_to_string(self.dir.join("out"))
            .context("cannot read what the load generator printed")?;
        let test = read(&text).with_context(|| format!("`{}`", self.command))?;
        if test.errors > 0 {
            bail!(
                "`{}`: {} of {} requests were answered with errors",
                self.command,
                test.errors,
                test.requests
            );
        }
        let usage = self.watch.take().and_then(|watch| watch.usage(test.seconds, test.requests));
        Ok(Outcome { test, usage, command: self.command.clone() })
    }
}

/// The only test in what was printed.
fn read(text: &str) -> Result<Test> {
    let mut report: Value = serde_json::from_str(text.trim()).context("no JSON was printed")?;
    let tests: Vec<Test> = serde_json::from_value(report["tests"].take()).context("no tests were printed")?;
    let [test] = <[Test; 1]>::try_from(tests)
        .map_err(|tests| anyhow::anyhow!("{} tests were run, not one", tests.len()))?;
    Ok(test)
}
