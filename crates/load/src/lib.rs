//! Loads a server that speaks RESP, and measures how it answers.
//!
//! A [`Plan`] says what is sent, over how many connections and for how long; [`run`] does it with a thread for each share of the
//! connections and returns an [`Outcome`]. Nothing is printed here. The sockets are the runtime's
//! ([`corelane_runtime::outbound`]): the ring, the receive buffers and the sends of the server itself, from the other side.

#![forbid(unsafe_code)]

mod numbers;
mod pace;
mod plan;
mod replies;
mod run;
mod silence;
mod template;
mod worker;

pub use hdrhistogram::Histogram;
pub use numbers::{Keys, Random, Sizes};
pub use plan::{Credentials, Errors, LoadError, Outcome, Plan, Work};
pub use replies::{NoReply, Scanner};
pub use run::{Progress, run};
pub use silence::Patience;
pub use template::{DATA, RAND_INT, RAND_KEY, Template};

/// The longest latency that is told apart from longer ones, in nanoseconds: ten minutes.
pub const LATENCY_MAX_NS: u64 = 600_000_000_000;
