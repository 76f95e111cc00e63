//! Is there a serial order that explains a history?
//!
//! The search of Wing and Gong (1993) with the memory of Lowe (2017): take any operation that nothing else had to
//! precede, let the model execute it, and go on if it answers what the client saw; remember pairs of operations done and resulting
//! state that led nowhere.

use crate::model::Model;
use crate::world::{History, Record};
use std::collections::HashSet;
use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};

/// Operations in one history; the search keeps them as bits.
const RECORDS_MAX: usize = 128;

/// What was wrong with a run.
#[derive(Debug)]
pub enum Violation {
    /// No serial order explains the replies.
    Unexplained {
        /// The run's seed.
        seed: u64,
        /// The history, a line per operation.
        history: String,
    },
    /// Commands were never answered although all messages had been delivered.
    Stuck {
        /// The run's seed.
        seed: u64,
        /// How many.
        open: usize,
    },
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unexplained { seed, history } => {
                write!(f, "seed {seed}: no serial order explains this history:\n{history}")
            }
            Self::Stuck { seed, open } => write!(f, "seed {seed}: {open} commands were never answered"),
        }
    }
}

impl std::error::Error for Violation {}

/// Looks for a serial order of the history.
///
/// # Errors
/// There is none.
pub fn check(history: &History) -> Result<(), Violation> {
    let records = &history.records;
    assert!(records.len() <= RECORDS_MAX, "the search holds at most {RECORDS_MAX} operations");
    let before: Vec<u128> = (0..records.len()).map(|idx| predecessors(records, idx)).collect();
    let mut search = Search { records, before, dead_ends: HashSet::new() };
    if search.explain(0, &Model::default()) {
        return Ok(());
    }
    let lines: Vec<String> = records.iter().map(Record::to_string).collect();
    Err(Violation::Unexplained { seed: history.seed, history: lines.join("\n") })
}

/// The operations that come before `idx` in every order: those answered before it was sent, and those of its own
/// connection that the contract orders.
fn predecessors(records: &[Record], idx: usize) -> u128 {
    let record = &records[idx];
    let mut before = 0;
    for (other_idx, other) in records.iter().enumerate() {
        let same_client = other.client == record.client && other.number < record.number;
        if other.answered < record.sent || (same_client && other.operation.ordered_with(&record.operation)) {
            before |= 1 << other_idx;
        }
    }
    before
}

struct Search<'a> {
    records: &'a [Record],
    before: Vec<u128>,
    dead_ends: HashSet<(u128, u64)>,
}

impl Search<'_> {
    fn explain(&mut self, done: u128, state: &Model) -> bool {
        if done.count_ones() as usize == self.records.len() {
            return true;
        }
        let mut hasher = DefaultHasher::new();
        state.hash(&mut hasher);
        if !self.dead_ends.insert((done, hasher.finish())) {
            return false;
        }
        for idx in 0..self.records.len() {
            let bit = 1 << idx;
            if done & bit != 0 || self.before[idx] & !done != 0 {
                continue;
            }
            let mut next = state.clone();
            let record = &self.records[idx];
            if next.explains(record.client, &record.operation, &record.reply)
                && self.explain(done | bit, &next)
            {
                return true;
            }
        }
        false
    }
}
