//! A deterministic simulator of corelane engines, and a checker of what their clients saw.
//!
//! One seed is one run: several nodes in one thread, clients with random commands and pipelines, and mailboxes whose
//! batches are delayed and overtake each other between different pairs of shards (between the same two they stay in order, as in the
//! runtime). The checker then looks for a serial order that explains every reply and respects real time
//! (docs/transactions.md). No clock, no thread: a failing seed fails again.

mod check;
mod clients;
mod links;
mod model;
pub mod pubsub;
mod workload;
mod world;

pub use check::{Violation, check};
pub use model::Model;
pub use workload::{Keys, Operation, Profile, Workload};
pub use world::{History, Options, Record, run};

/// Runs one seed and checks its history.
///
/// # Errors
/// The history has no explanation, or a command was never answered.
pub fn run_and_check(options: &Options) -> Result<History, Violation> {
    let history = run(options)?;
    check(&history)?;
    Ok(history)
}
