//! What can go wrong: with one call, and with the start.

use corelane_engine::LocalError;
use corelane_resp::DecodeError;
use corelane_runtime::listen::ListenError;
use corelane_runtime::preflight::PreflightError;
use corelane_runtime::server::ServeError;
use corelane_runtime::topology::TopologyError;
use thiserror::Error;

/// Why a call has no result.
#[derive(Clone, Debug, PartialEq, Error)]
#[non_exhaustive]
pub enum Error {
    /// The command answered with this error, its code first: `WRONGTYPE Operation against …`. It changed nothing.
    #[error("{0}")]
    Command(String),
    /// The shard's queue is full, and the call was not to wait ([`Call::try_start`](crate::Call::try_start)). Nothing has been
    /// sent.
    #[error("the queue of shard {shard} is full")]
    Full {
        /// Which shard.
        shard: usize,
    },
    /// The cache has been stopped. The command may have run, if the call was under way at that time.
    #[error("the cache has been stopped")]
    Stopped,
    /// A panic ended that shard; its keys are lost, and other shards go on. The command may have run.
    #[error("shard {shard} has failed")]
    ShardFailed {
        /// Which shard.
        shard: usize,
    },
    /// The closure panicked, and its shard fails by that.
    #[error("the closure panicked, and its shard failed")]
    Panicked,
    /// A shard that a command over several shards needs has failed. The command may have run on the others.
    #[error("a shard that this command needs has failed")]
    PeerFailed,
    /// The call would wait on the thread of a shard, for that or another shard: nobody would be left to answer. Such a thread
    /// runs closures, which use what they are given, drops results that nobody wants any more, and calls wakers. A call that has
    /// been started runs all the same.
    #[error("what runs on a shard must not wait for the cache")]
    OnShard,
    /// The reply was none of those this method expects. Report it: it is a defect of this crate.
    #[error("unexpected reply: {0}")]
    Unexpected(String),
    /// The reply could not be read. Report it: it is a defect of this crate.
    #[error("unreadable reply: {0}")]
    Unreadable(#[from] DecodeError),
}

/// Errors of commands that are more than texts.
impl From<corelane_engine::Error> for Error {
    fn from(error: corelane_engine::Error) -> Self {
        Self::of_reply(&error.wire())
    }
}

impl From<LocalError> for Error {
    fn from(error: LocalError) -> Self {
        Self::Command(error.to_string())
    }
}

impl Error {
    /// What an error reply means.
    pub(crate) fn of_reply(text: &[u8]) -> Self {
        if text.starts_with(b"SHARDFAILED ") {
            return Self::PeerFailed;
        }
        Self::Command(String::from_utf8_lossy(text).into_owned())
    }

    /// The code of a command's error: `WRONGTYPE`, `ERR`, …; `None` for other errors.
    #[must_use]
    pub fn code(&self) -> Option<&str> {
        match self {
            Self::Command(text) => text.split(' ').next(),
            _ => None,
        }
    }
}

/// Why a cache did not start, or did not end well. The texts say what to do.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum StartError {
    /// The shards cannot be placed as asked for.
    #[error("{}", without_dashes(.0))]
    Placement(TopologyError),
    /// The kernel or the process's limits do not suffice. Nothing has been changed about them.
    #[error(transparent)]
    Machine(#[from] PreflightError),
    /// A listener could not be had.
    #[error("{}", without_dashes(.0))]
    Listen(ListenError),
    /// A shard failed.
    #[error(transparent)]
    Shards(#[from] ServeError),
    /// A directive is unknown, without effect, or has a value that it does not take.
    #[error("{directive}: {why}")]
    Config {
        /// Which, as it was given.
        directive: String,
        /// What is wrong with it.
        why: String,
    },
    /// Two directives contradict each other.
    #[error("{0}")]
    Contradiction(String),
    /// A setting that is no directive is out of its range.
    #[error("{setting} is out of range: choose {range}")]
    Setting {
        /// Which.
        setting: &'static str,
        /// What it may be.
        range: &'static str,
    },
}

impl From<TopologyError> for StartError {
    fn from(error: TopologyError) -> Self {
        Self::Placement(error)
    }
}

impl From<ListenError> for StartError {
    fn from(error: ListenError) -> Self {
        Self::Listen(error)
    }
}

/// A sentence for the server's command line with the directives as [`Builder::config`](crate::Builder::config) has them.
fn without_dashes(error: &impl std::fmt::Display) -> String {
    let text = error.to_string();
    text.strip_prefix("--").unwrap_or(&text).replace(" --", " ")
}
