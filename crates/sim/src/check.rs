//! Is there a serial order that explains a history?
//!
//! The search of Wing and Gong (1993) with the memory of Lowe (2017): take any step that nothing else had to
//! precede, let the model execute it, and go on if it answers what the client saw; remember pairs of steps done and resulting
//! state that led nowhere.
//!
//! An operation is one step, but for a command that was seen to wait: it begins to, and it ends, which are two. Who waits is served
//! in order of arrival, and in the end nobody waits for something that is there. What a client has sent that has
//! vanished may have taken effect or not; if it waited, only before that.

use crate::model::Model;
use crate::world::{History, Record};
use corelane_resp::Frame;
use std::collections::HashSet;
use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};

/// Steps in one history; the search keeps them as bits.
const STEPS_MAX: usize = 128;

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
    /// A command waits for something that is there, although nothing moves any more.
    KeptWaiting {
        /// The run's seed.
        seed: u64,
        /// The operation.
        record: String,
    },
    /// A command gave up before its time.
    Early {
        /// The run's seed.
        seed: u64,
        /// The operation.
        record: String,
    },
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unexplained { seed, history } => {
                write!(f, "seed {seed}: no serial order explains this history:\n{history}")
            }
            Self::Stuck { seed, open } => write!(f, "seed {seed}: {open} commands were never answered"),
            Self::KeptWaiting { seed, record } => write!(f, "seed {seed}: waits for what is there: {record}"),
            Self::Early { seed, record } => write!(f, "seed {seed}: gave up before its time: {record}"),
        }
    }
}

impl std::error::Error for Violation {}

/// Looks for a serial order of the history.
///
/// # Errors
/// There is none.
pub fn check(history: &History) -> Result<(), Violation> {
    let steps = steps(history);
    assert!(steps.len() <= STEPS_MAX, "the search holds at most {STEPS_MAX} steps");
    let needed = mask(&steps, |step| !step.optional);
    let mut search = Search { history, steps, needed, dead_ends: HashSet::new(), deepest: 0 };
    if search.explain(0, &Model::default()) {
        return Ok(());
    }
    let mut lines: Vec<String> = history.records.iter().map(Record::to_string).collect();
    lines.push("Left over by the order that got farthest:".to_owned());
    let left = |(idx, _): &(usize, &Step)| search.deepest & 1 << idx == 0;
    let left = search.steps.iter().enumerate().filter(left);
    lines.extend(left.map(|(_, step)| format!("{:?} {}", step.kind, history.records[step.record])));
    Err(Violation::Unexplained { seed: history.seed, history: lines.join("\n") })
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Whole,
    Enlists,
    Ends,
}

struct Step {
    record: usize,
    kind: Kind,
    /// When it took place: not before, and not after.
    earliest: u64,
    latest: u64,
    /// It may not have taken place.
    optional: bool,
    /// Steps that come before it in every order.
    before: u128,
    /// Steps that come after it, if it took place.
    after: u128,
}

fn mask(steps: &[Step], is_in: impl Fn(&Step) -> bool) -> u128 {
    steps.iter().enumerate().filter(|(_, step)| is_in(step)).fold(0, |mask, (idx, _)| mask | 1 << idx)
}

fn steps(history: &History) -> Vec<Step> {
    let mut steps: Vec<Step> = Vec::new();
    for (record, it) in history.records.iter().enumerate() {
        let step = |kind, latest, optional| Step {
            record,
            kind,
            earliest: it.sent,
            latest,
            optional,
            before: 0,
            after: 0,
        };
        let latest = it.answered.unwrap_or(u64::MAX);
        if let Some(gone) = it.gone {
            steps.push(step(Kind::Whole, if it.waiting.is_some() { gone } else { u64::MAX }, true));
            if it.waiting.is_some() && history.records.iter().any(|other| unblocks(other, it)) {
                // It may have been unblocked, and have vanished before it heard of it.
                steps.push(step(Kind::Enlists, gone, true));
            }
        } else if it.reply.is_none() {
            steps.push(step(Kind::Enlists, it.waiting.unwrap_or(u64::MAX), false));
        } else if has_two_steps(history, it) {
            steps.push(step(Kind::Enlists, it.waiting.unwrap_or(latest), false));
            steps.push(step(Kind::Ends, latest, false));
        } else {
            steps.push(step(Kind::Whole, latest, false));
        }
    }
    for idx in 0..steps.len() {
        let this = &steps[idx];
        let record = &history.records[this.record];
        let before = mask(&steps, |other| {
            let other_record = &history.records[other.record];
            let same_client = other_record.client == record.client && other_record.number < record.number;
            let same = other.record == this.record && other.kind == Kind::Enlists && this.kind == Kind::Ends;
            same || !other.optional && other.latest < this.earliest
                || same_client && other_record.operation.ordered_with(&record.operation)
        });
        let after = mask(&steps, |other| this.optional && this.latest < other.earliest);
        (steps[idx].before, steps[idx].after) = (before, after);
    }
    steps
}

/// Whether this is a CLIENT UNBLOCK that may have ended what the record's client waited for.
fn unblocks(other: &Record, record: &Record) -> bool {
    other.operation.target == Some(record.client) && other.reply != Some(Frame::Int(0))
}

/// A command that was seen to wait, or must have. One whose time was up has waited for nothing: that it once
/// found nothing is all there is to explain.
fn has_two_steps(history: &History, record: &Record) -> bool {
    if !record.operation.may_wait() {
        return false;
    }
    match &record.reply {
        Some(Frame::Error(text)) if text.starts_with(b"UNBLOCKED") => true,
        Some(Frame::Null) => history.records.iter().any(|other| unblocks(other, record)),
        _ => record.waiting.is_some(),
    }
}

struct Search<'a> {
    history: &'a History,
    steps: Vec<Step>,
    needed: u128,
    dead_ends: HashSet<(u128, u64)>,
    /// The most that could be explained.
    deepest: u128,
}

impl Search<'_> {
    fn explain(&mut self, done: u128, state: &Model) -> bool {
        let kept_waiting = state.is_anybody_kept_waiting();
        if done & self.needed == self.needed && !kept_waiting {
            return true;
        }
        let mut hasher = DefaultHasher::new();
        state.hash(&mut hasher);
        if !self.dead_ends.insert((done, hasher.finish())) {
            return false;
        }
        if done.count_ones() > self.deepest.count_ones() {
            self.deepest = done;
        }
        // Where everybody waits for one key, nothing comes between a push and who is served by it.
        let only_ends = self.history.serves_at_once && state.has_somebody_to_serve();
        for optional in [false, true] {
            for idx in 0..self.steps.len() {
                let step = &self.steps[idx];
                let bit = 1 << idx;
                if step.optional != optional
                    || done & bit != 0
                    || step.before & !done != 0
                    || step.after & done != 0
                    || only_ends && step.kind != Kind::Ends && !optional
                {
                    continue;
                }
                let mut next = state.clone();
                if self.take(step, &mut next) && self.explain(done | bit, &next) {
                    return true;
                }
            }
        }
        false
    }

    fn take(&self, step: &Step, state: &mut Model) -> bool {
        let record = &self.history.records[step.record];
        match (step.kind, &record.reply) {
            (Kind::Enlists, reply) => {
                // Who has been unblocked may have been while a shard asked for it.
                let served = !matches!(reply, Some(Frame::Null | Frame::Error(_)));
                state.enlists(record.client, &record.operation, served, record.gone.is_some())
            }
            (Kind::Ends, Some(reply)) => state.ends(record.client, &record.operation, reply),
            (_, reply) => state.explains(record.client, &record.operation, reply.as_ref()),
        }
    }
}
