//! What is to be done, what came of it, and what may go wrong.

use std::io;
use std::time::Duration;

use corelane_runtime::outbound::Peer;
use hdrhistogram::Histogram;

use crate::numbers::{Keys, Sizes};
use crate::silence::Patience;
use crate::template::{Template, plain};

/// Who we are, and what is to be set for each connection.
#[derive(Clone, Debug, Default)]
pub struct Credentials {
    /// A name, if it is not the default user.
    pub user: Option<String>,
    /// None: no authentication.
    pub password: Option<String>,
    /// RESP3 instead of RESP2.
    pub resp3: bool,
    /// The database.
    pub db: u32,
}

impl Credentials {
    /// What to send over a fresh connection, and which command each of the replies is for.
    pub(crate) fn greeting(&self) -> (Vec<u8>, Vec<&'static str>) {
        let mut bytes = Vec::new();
        let mut commands = Vec::new();
        if let Some(password) = &self.password {
            let password = password.as_bytes();
            match &self.user {
                Some(user) => bytes.extend(plain(&[b"AUTH", user.as_bytes(), password])),
                None => bytes.extend(plain(&[b"AUTH", password])),
            }
            commands.push("AUTH");
        }
        if self.resp3 {
            bytes.extend(plain(&[b"HELLO", b"3"]));
            commands.push("HELLO 3");
        }
        if self.db > 0 {
            bytes.extend(plain(&[b"SELECT", self.db.to_string().as_bytes()]));
            commands.push("SELECT");
        }
        (bytes, commands)
    }
}

/// What error replies do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Errors {
    /// The first ends the run.
    End,
    /// They are counted.
    Count,
}

/// How much is to be done.
#[derive(Clone, Copy, Debug, Default)]
pub struct Work {
    /// So many requests; None: as many as fit into `duration`.
    pub requests: Option<u64>,
    /// Ends after this time, if there are not enough requests for it.
    pub duration: Option<Duration>,
    /// So long it runs before anything counts.
    pub warmup: Duration,
    /// Requests per second, at fixed intervals whether or not the server keeps up; a latency then begins when its request should have
    /// been sent. None: each connection sends as soon as it has its replies.
    pub rate: Option<f64>,
}

/// A load.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The server.
    pub peer: Peer,
    /// What each connection begins with.
    pub credentials: Credentials,
    /// Connections.
    pub clients: usize,
    /// Requests that a connection sends at once.
    pub pipeline: usize,
    /// Threads that share the connections.
    pub threads: usize,
    /// The CPUs of the threads, in turn; none: wherever the system puts them.
    pub cpus: Vec<usize>,
    /// Requests with their weights; at least one.
    pub templates: Vec<(Template, u32)>,
    /// How the numbers in requests are chosen,
    pub keys: Keys,
    /// and below what; None: there are none.
    pub key_range: Option<u64>,
    /// The sizes of values.
    pub sizes: Sizes,
    /// Whether connections stay; otherwise there is one for each batch of requests.
    pub keep_alive: bool,
    /// How much.
    pub work: Work,
    /// How long the server may say nothing.
    pub patience: Patience,
    /// What errors do.
    pub errors: Errors,
    /// Of the random numbers.
    pub seed: u64,
    /// Significant digits of latencies, 1 to 5.
    pub digits: u8,
    /// Only opens the connections and leaves them idle until it is stopped.
    pub idle: bool,
}

/// What came of it.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// Answered.
    pub requests: u64,
    /// From the first request to the last reply; with a rate and a duration the whole of that at least.
    pub seconds: f64,
    /// Error replies among the answers.
    pub errors: u64,
    /// One of them.
    pub error: Option<String>,
    /// With a rate and a duration: requests that were due and have not been sent, because the server did not keep up.
    pub missed: u64,
    /// With a rate: how late the last request was sent.
    pub late: Duration,
    /// Processor time of the threads meanwhile.
    pub cpu_seconds: f64,
    /// Latencies in nanoseconds.
    pub latencies: Histogram<u64>,
}

impl Outcome {
    /// Requests per second.
    #[must_use]
    pub fn rate(&self) -> f64 {
        if self.seconds > 0.0 { self.requests as f64 / self.seconds } else { 0.0 }
    }
}

/// Why there is no outcome.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// A thread's ring.
    #[error("io_uring does not work here: {0}")]
    Ring(io::Error),
    /// A thread cannot run where it should.
    #[error("this process may not use cpu {cpu}: {error}")]
    Cpu {
        /// Its number.
        cpu: usize,
        /// The system's reason.
        error: io::Error,
    },
    /// No more descriptors.
    #[error(
        "{clients} connections do not fit into the limit of open files, which ended it after {open}: raise it (ulimit -n {})",
        clients + 64
    )]
    Descriptors {
        /// As many as were wanted.
        clients: usize,
        /// As many as there were, in one thread.
        open: usize,
    },
    /// No more ports.
    #[error(
        "no local port is left for another connection: take fewer clients, keep connections alive (-k 1), widen \
         net.ipv4.ip_local_port_range, or use a Unix socket (-s)"
    )]
    Ports,
    /// Nobody there.
    #[error("cannot connect: {0}")]
    Connect(io::Error),
    /// The server has gone.
    #[error("the server has closed the connection{0}")]
    Closed(String),
    /// The server is there, and says nothing.
    #[error(
        "the server has said nothing for {} s: {waiting} of {connections} connections wait for it, {owed} replies are owed",
        silence.as_secs_f64()
    )]
    Silent {
        /// How long.
        silence: Duration,
        /// Connections of one thread that wait,
        waiting: usize,
        /// of so many,
        connections: usize,
        /// for so many replies.
        owed: usize,
    },
    /// The server does not want us.
    #[error("the server refuses {command}: {text}")]
    Refused {
        /// What was sent.
        command: &'static str,
        /// What it says.
        text: String,
    },
    /// An error reply, with [`Errors::End`].
    #[error("Error from server: {0}")]
    Reply(String),
    /// Not RESP, or more replies than requests.
    #[error("{0}")]
    Protocol(String),
    /// It was to stop.
    #[error("interrupted")]
    Stopped,
}
