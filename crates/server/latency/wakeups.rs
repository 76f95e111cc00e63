//! Threads that sleep until a moment and see how late it is when they wake up.
//!
//! The method is that of cyclictest: the moments are a fixed interval apart on the monotonic clock, whatever the delays are.

use std::fmt::Write as _;
use std::io::{self, IsTerminal, Write};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Barrier};
use std::time::Duration;

use anyhow::{Context, Result};
use corelane_runtime::topology::bind_here;

use super::result::{Exact, Kind, Run, Thread, Times};
use super::system;
use crate::output::{fitted, show_line};

/// How often the lines on the terminal are rewritten.
const REFRESH: Duration = Duration::from_millis(100);

/// What is to be measured.
#[derive(Debug)]
pub(super) struct Request {
    pub(super) interval: Duration,
    /// `None`: until it is interrupted.
    pub(super) duration: Option<Duration>,
    pub(super) loops: Option<u64>,
    pub(super) priority: i32,
    /// One thread each; `None` is not bound.
    pub(super) cpus: Vec<Option<usize>>,
    pub(super) mlockall: bool,
    /// Whether to show figures while it runs.
    pub(super) live: bool,
}

/// What a thread shows while it runs; nanoseconds.
#[derive(Debug, Default)]
struct Shown {
    id: AtomicU64,
    wakeups: AtomicU64,
    min: AtomicU64,
    last: AtomicU64,
    sum: AtomicU64,
    max: AtomicU64,
}

impl Shown {
    /// Only the thread itself writes.
    fn show(&self, delays: &Times) {
        let Exact { min, last, sum, max } = delays.exact;
        self.wakeups.store(delays.all.len(), Relaxed);
        self.min.store(min, Relaxed);
        self.last.store(last, Relaxed);
        self.sum.store(sum, Relaxed);
        self.max.store(max, Relaxed);
    }

    fn line(&self, number: usize, request: &Request) -> String {
        let wakeups = self.wakeups.load(Relaxed);
        let us = |ns: u64| ns / 1000;
        let avg = self.sum.load(Relaxed).checked_div(wakeups).unwrap_or(0);
        line(&Line {
            number,
            id: self.id.load(Relaxed),
            priority: request.priority,
            interval_us: request.interval.as_micros() as u64,
            wakeups,
            delays: [self.min.load(Relaxed), self.last.load(Relaxed), avg, self.max.load(Relaxed)].map(us),
        })
    }
}

/// What stands in a line of cyclictest.
#[derive(Debug)]
pub(super) struct Line {
    pub(super) number: usize,
    pub(super) id: u64,
    pub(super) priority: i32,
    pub(super) interval_us: u64,
    pub(super) wakeups: u64,
    /// Minimum, last, average and maximum, in microseconds.
    pub(super) delays: [u64; 4],
}

/// The line, in cyclictest's form.
pub(super) fn line(line: &Line) -> String {
    let Line { number, id, priority, interval_us, wakeups, delays: [min, last, avg, max] } = line;
    format!(
        "T:{number:2} ({id:5}) P:{priority:2} I:{interval_us} C:{wakeups:7} Min:{min:7} Act:{last:5} Avg:{avg:5} Max:{max:8}"
    )
}

/// Measures, and shows what it has to say meanwhile.
///
/// # Errors
/// A thread cannot have its CPU or its priority, or memory cannot be locked.
pub(super) fn run(request: &Request) -> Result<Run> {
    if request.mlockall {
        system::lock_memory().context("cannot lock memory: raise `ulimit -l`, or leave --mlockall out")?;
    }
    let held = system::hold_dma_latency();
    let policy = if request.priority == 0 { "other" } else { "fifo" };
    let mut run = Run::new(Kind::WakeUps, request.interval.as_micros() as u64, policy);
    if request.live {
        run.machine.lines().iter().for_each(show_line);
        match &held {
            Ok(_) => show_line("# /dev/cpu_dma_latency set to 0us"),
            Err(error) => show_line(format_args!("# /dev/cpu_dma_latency is as it was: {error}")),
        }
        // As cyclictest writes it.
        let shown = if request.priority == 0 { "other/other" } else { policy };
        show_line(format_args!("policy: {shown}: loadavg: {}\n", run.load));
    }
    let shown: Vec<Arc<Shown>> = request.cpus.iter().map(|_| Arc::default()).collect();
    let barrier = Arc::new(Barrier::new(request.cpus.len()));
    let threads: Vec<_> = request
        .cpus
        .iter()
        .zip(&shown)
        .map(|(cpu, shown)| {
            let (cpu, shown, barrier) = (*cpu, Arc::clone(shown), Arc::clone(&barrier));
            let plan = Plan {
                interval_ns: request.interval.as_nanos() as u64,
                duration_ns: request.duration.map(|time| system::later(0, time)),
                loops: request.loops,
                priority: request.priority,
            };
            std::thread::spawn(move || {
                let ready = prepare(cpu, plan.priority, &shown);
                barrier.wait();
                ready.map(|()| sleep_and_see(&plan, cpu, &shown))
            })
        })
        .collect();
    if request.live {
        show_until(|| threads.iter().all(std::thread::JoinHandle::is_finished), request, &shown);
    }
    run.threads = threads
        .into_iter()
        .map(|thread| thread.join().map_err(|_| anyhow::anyhow!("a measuring thread has failed"))?)
        .collect::<Result<Vec<Thread>>>()?;
    Ok(run)
}

/// What each thread does.
#[derive(Clone, Copy, Debug)]
struct Plan {
    interval_ns: u64,
    duration_ns: Option<u64>,
    loops: Option<u64>,
    priority: i32,
}

fn prepare(cpu: Option<usize>, priority: i32, shown: &Shown) -> Result<()> {
    shown.id.store(system::thread_id() as u64, Relaxed);
    if let Some(cpu) = cpu {
        bind_here(cpu).with_context(|| format!("cannot run on cpu {cpu}"))?;
    }
    if priority != 0 {
        system::be_urgent(priority).with_context(|| {
            format!("cannot have priority {priority}: run it as root, or with a limit (ulimit -r)")
        })?;
    }
    Ok(())
}

fn sleep_and_see(plan: &Plan, cpu: Option<usize>, shown: &Shown) -> Thread {
    let mut delays = Times::new();
    let first = system::now_ns() + plan.interval_ns;
    let end = plan.duration_ns.map_or(u64::MAX, |time| first.saturating_add(time));
    let mut next = first;
    while next < end && plan.loops.is_none_or(|loops| delays.all.len() < loops) && !system::stopped() {
        system::sleep_until(next);
        let now = system::now_ns();
        if now < next {
            // A signal woke it.
            continue;
        }
        let delay = now - next;
        delays.note(delay);
        shown.show(&delays);
        next += plan.interval_ns;
        if next < now {
            // So late that moments have gone by: those are lost, as in cyclictest.
            next += (now - next).div_ceil(plan.interval_ns) * plan.interval_ns;
        }
    }
    delays.thread(None, cpu, plan.priority)
}

/// Rewrites the lines on a terminal until it is over. Elsewhere nobody would want thousands of copies.
fn show_until(mut is_over: impl FnMut() -> bool, request: &Request, shown: &[Arc<Shown>]) {
    let terminal = io::stdout().is_terminal();
    let mut drawn = false;
    while !is_over() {
        std::thread::sleep(REFRESH);
        if !terminal {
            continue;
        }
        let mut screen = String::new();
        if drawn {
            let _ = write!(screen, "\x1b[{}A", shown.len());
        }
        for (number, shown) in shown.iter().enumerate() {
            let _ = writeln!(screen, "{}\x1b[K", fitted(&shown.line(number, request)));
        }
        // A terminal that has gone away does not keep the measurement from its end.
        let _ = io::stdout().write_all(screen.as_bytes());
        let _ = io::stdout().flush();
        drawn = true;
    }
    if drawn {
        let _ = write!(io::stdout(), "\x1b[{}A\x1b[J", shown.len());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_wake_up_as_often_as_asked_and_never_early() {
        let run = run(&Request {
            interval: Duration::from_micros(500),
            duration: None,
            loops: Some(50),
            priority: 0,
            cpus: vec![None, None],
            mlockall: false,
            live: false,
        })
        .unwrap();
        assert_eq!(run.threads.len(), 2);
        for thread in &run.threads {
            assert_eq!(thread.wakeups, 50);
            assert_eq!(thread.counts.iter().map(|(_, count)| count).sum::<u64>(), 50);
            assert!(0.0 <= thread.min && thread.min <= thread.avg && thread.avg <= thread.max, "{thread:?}");
            assert!(thread.p50 <= thread.p99 && thread.p99 <= thread.p999, "{thread:?}");
        }
    }

    #[test]
    fn lines_look_like_those_of_cyclictest() {
        let shown = line(&Line {
            number: 0,
            id: 9136,
            priority: 0,
            interval_us: 1000,
            wakeups: 299_848,
            delays: [5, 11, 11, 21_205],
        });
        assert_eq!(shown, "T: 0 ( 9136) P: 0 I:1000 C: 299848 Min:      5 Act:   11 Avg:   11 Max:   21205");
    }
}
