//! A run: threads, and what they report.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use corelane_runtime::outbound::Outbound;
use corelane_runtime::topology::bind_here;

use crate::pace::Pace;
use crate::plan::{LoadError, Outcome, Plan};
use crate::worker::{Tally, Worker, histogram};

/// Between two looks at what the threads have done.
const LOOK: Duration = Duration::from_millis(100);
/// How long replies are waited for after the run was stopped.
const STOP_MAX: Duration = Duration::from_millis(500);

/// How far a run is.
#[derive(Clone, Copy, Debug, Default)]
pub struct Progress {
    /// Connections that are ready.
    pub ready: usize,
    /// Requests that have been answered, and counted.
    pub requests: u64,
    /// Their latencies together, in seconds.
    pub latency_s: f64,
    /// Since counting began; 0 before.
    pub seconds: f64,
}

/// Does what the plan says. `watch` is told every 100 milliseconds how far it is. `stop` ends it early, with what has come of it.
///
/// # Errors
/// What keeps it from its end; all connections are closed then.
pub fn run(plan: &Plan, stop: &AtomicBool, mut watch: impl FnMut(Progress)) -> Result<Outcome, LoadError> {
    let pace = Pace::new(plan);
    let main = thread::current();
    let results: Vec<Result<Tally, LoadError>> = thread::scope(|scope| {
        let threads: Vec<_> = (0..plan.threads)
            .map(|index| {
                let (pace, main) = (&pace, main.clone());
                scope.spawn(move || worker(plan, pace, index, &main))
            })
            .collect();
        let mut stopped_at = None;
        while !threads.iter().all(thread::ScopedJoinHandle::is_finished) {
            thread::park_timeout(LOOK);
            watch(progress(&pace));
            if stop.load(Ordering::Relaxed) {
                pace.stop();
                if stopped_at.get_or_insert_with(Instant::now).elapsed() > STOP_MAX {
                    pace.fail();
                }
            }
        }
        threads.into_iter().map(|thread| thread.join().unwrap_or(Err(LoadError::Stopped))).collect()
    });
    collect(plan, &pace, results)
}

fn worker(plan: &Plan, pace: &Pace, index: usize, main: &Thread) -> Result<Tally, LoadError> {
    let result = (|| {
        if let Some(cpu) = plan.cpus.get(index % plan.cpus.len().max(1)) {
            bind_here(*cpu).map_err(|error| LoadError::Cpu { cpu: *cpu, error })?;
        }
        let mut outbound = Outbound::new(plan.peer.clone()).map_err(LoadError::Ring)?;
        Worker::new(plan, pace, index).run(&mut outbound)
    })();
    if result.is_err() {
        pace.fail();
    }
    main.unpark();
    result
}

fn progress(pace: &Pace) -> Progress {
    let sum = |of: fn(&crate::pace::Counter) -> u64| pace.counters.iter().map(of).sum::<u64>();
    let now = pace.now();
    let counting = pace.started().map_or(now, |start| pace.span(start).0);
    Progress {
        ready: sum(|counter| counter.ready.load(Ordering::Relaxed) as u64) as usize,
        requests: sum(|counter| counter.requests.load(Ordering::Relaxed)),
        latency_s: sum(|counter| counter.latency_ns.load(Ordering::Relaxed)) as f64 / 1e9,
        seconds: now.saturating_sub(counting) as f64 / 1e9,
    }
}

/// Puts together what the threads did. Of several failures the one counts that is not a consequence of others.
fn collect(plan: &Plan, pace: &Pace, results: Vec<Result<Tally, LoadError>>) -> Result<Outcome, LoadError> {
    let mut outcome = Outcome {
        requests: 0,
        seconds: 0.0,
        errors: 0,
        error: None,
        missed: 0,
        late: Duration::ZERO,
        cpu_seconds: 0.0,
        latencies: histogram(plan.digits),
    };
    let mut failure = None;
    let (mut first, mut last) = (u64::MAX, 0);
    for result in results {
        match result {
            Ok(tally) => {
                outcome.errors += tally.errors;
                outcome.missed += tally.missed;
                outcome.late = outcome.late.max(Duration::from_nanos(tally.late));
                outcome.error = outcome.error.or(tally.error);
                outcome.cpu_seconds += tally.cpu.as_secs_f64();
                outcome.requests += tally.latencies.len();
                outcome.latencies.add(&tally.latencies).expect("histograms of equal bounds");
                last = last.max(tally.last);
            }
            Err(error) if failure.is_none() || matches!(failure, Some(LoadError::Stopped)) => {
                failure = Some(error);
            }
            Err(_) => {}
        }
    }
    if let Some(failure) = failure {
        return Err(failure);
    }
    if let Some(start) = pace.started() {
        let (from, until) = pace.span(start);
        first = first.min(from);
        // Where few requests are due the last reply comes long before the end.
        let by_time = plan.work.requests.is_none_or(|requests| outcome.requests < requests);
        if plan.work.rate.is_some() && plan.work.duration.is_some() && by_time && !pace.is_stopped() {
            last = last.max(until);
        }
    }
    outcome.seconds = last.saturating_sub(first) as f64 / 1e9;
    Ok(outcome)
}
