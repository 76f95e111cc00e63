//! What the threads of a run have in common: who may send how many requests, and when counting begins and ends.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crate::plan::Plan;

/// Requests that a thread takes for itself at once, at most; as many as fill the next pipeline.
const SHARE_MAX: u64 = 1024;
/// No start yet, or no end.
const NEVER: u64 = u64::MAX;

/// What one thread has done so far, on a cache line of its own.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct Counter {
    /// Requests that have been answered.
    pub(crate) requests: AtomicU64,
    /// Their latencies together, in nanoseconds.
    pub(crate) latency_ns: AtomicU64,
    /// Connections that are ready.
    pub(crate) ready: AtomicUsize,
}

/// The common state. Moments are nanoseconds since it was made.
#[derive(Debug)]
pub(crate) struct Pace {
    base: Instant,
    requests: u64,
    share: u64,
    taken: AtomicU64,
    waiting_threads: AtomicUsize,
    start: AtomicU64,
    warmup: Duration,
    duration: Option<Duration>,
    stopped: AtomicBool,
    failed: AtomicBool,
    /// One per thread.
    pub(crate) counters: Vec<Counter>,
}

impl Pace {
    pub(crate) fn new(plan: &Plan) -> Self {
        let requests = plan.work.requests.unwrap_or(u64::MAX);
        let pipeline = plan.pipeline as u64;
        let share = (requests / (plan.threads as u64 * 64)).clamp(1, SHARE_MAX).next_multiple_of(pipeline);
        Self {
            base: Instant::now(),
            requests,
            share,
            taken: AtomicU64::new(0),
            waiting_threads: AtomicUsize::new(plan.threads),
            start: AtomicU64::new(NEVER),
            warmup: plan.work.warmup,
            duration: plan.work.duration,
            stopped: AtomicBool::new(false),
            failed: AtomicBool::new(false),
            counters: (0..plan.threads).map(|_| Counter::default()).collect(),
        }
    }

    pub(crate) fn now(&self) -> u64 {
        self.base.elapsed().as_nanos() as u64
    }

    /// A thread's connections are ready. With the last thread it begins.
    pub(crate) fn arrive(&self) {
        if self.waiting_threads.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.start.store(self.now(), Ordering::Release);
        }
    }

    /// When it began.
    pub(crate) fn started(&self) -> Option<u64> {
        Some(self.start.load(Ordering::Acquire)).filter(|start| *start != NEVER)
    }

    /// From when on it counts, and until when requests are sent.
    pub(crate) fn span(&self, start: u64) -> (u64, u64) {
        let from = start.saturating_add(self.warmup.as_nanos() as u64);
        (from, self.duration.map_or(NEVER, |time| from.saturating_add(time.as_nanos() as u64)))
    }

    /// Takes a share of the requests: the number of the first, and how many there are.
    pub(crate) fn take(&self) -> (u64, u64) {
        let first = self.taken.fetch_add(self.share, Ordering::Relaxed);
        (first, self.share.min(self.requests.saturating_sub(first)))
    }

    /// Ends the run in order: what has been sent is still waited for.
    pub(crate) fn stop(&self) {
        self.stopped.store(true, Ordering::Relaxed);
    }

    pub(crate) fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::Relaxed)
    }

    /// Ends the run at once.
    pub(crate) fn fail(&self) {
        self.failed.store(true, Ordering::Relaxed);
    }

    pub(crate) fn has_failed(&self) -> bool {
        self.failed.load(Ordering::Relaxed)
    }
}
