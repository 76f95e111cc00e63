//! Moves a running server from CPU to CPU.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use serde::{Deserialize, Serialize};

use super::system::{Mask, place, wake_precisely};
use super::tasks::{thread_times, threads_of};
use crate::latency::system::{be_urgent, now_ns, sleep_until};

/// After so many moves the threads of the server are looked up anew, and all of them moved.
const MOVES_PER_LOOK: u64 = 256;

/// What was done to a server.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Moves {
    pub(super) count: u64,
    /// From one to the next, in microseconds, as it was to be.
    pub(super) asked_us: u64,
    /// The same as it came about.
    pub(super) interval_us: f64,
}

/// The thread that moves a server.
#[derive(Debug)]
pub(super) struct Drift {
    over: Arc<AtomicBool>,
    thread: Option<JoinHandle<Result<Moves>>>,
}

impl Drift {
    /// Has the threads of a process that do run move to the first of these CPUs, then to the next, and so on, for an interval each. The
    /// thread that sees to it stays on the CPUs `own`.
    ///
    /// # Errors
    /// No thread can be had.
    pub(super) fn start(pid: u32, cpus: &[usize], own: &[usize], interval: Duration) -> Result<Self> {
        let over = Arc::new(AtomicBool::new(false));
        let (masks, own) = (cpus.iter().map(|cpu| Mask::of(&[*cpu])).collect::<Vec<_>>(), Mask::of(own));
        let end = Arc::clone(&over);
        let move_about = move || {
            place(0, &own).context("cannot choose the CPUs of the thread that moves the server")?;
            wake_precisely();
            // Before the load on its CPU, where that is permitted; without it, moves only come later.
            let _ = be_urgent(1);
            drift(pid, &masks, interval.as_nanos() as u64, &end)
        };
        let thread = std::thread::Builder::new().name("drift".to_owned()).spawn(move_about)?;
        Ok(Self { over, thread: Some(thread) })
    }

    /// Ends it, and tells what it did.
    ///
    /// # Errors
    /// The server could not be moved.
    pub(super) fn stop(mut self) -> Result<Moves> {
        self.over.store(true, Ordering::Relaxed);
        let thread = self.thread.take().context("it was stopped before")?;
        thread.join().map_err(|_| anyhow!("the thread that moves the server has panicked"))?
    }
}

impl Drop for Drift {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
    }
}

fn drift(pid: u32, masks: &[Mask], interval_ns: u64, over: &AtomicBool) -> Result<Moves> {
    let start = now_ns();
    let (mut count, mut next) = (0u64, start);
    let (mut known, mut awake) = (BTreeMap::new(), Vec::new());
    while !over.load(Ordering::Relaxed) {
        let mask = &masks[count as usize % masks.len()];
        if count.is_multiple_of(MOVES_PER_LOOK) {
            let threads = threads_of(pid);
            if threads.is_empty() {
                break;
            }
            awake = awake_since(&mut known, pid, &threads);
            move_all(&threads, mask)?;
        } else {
            move_all(&awake, mask)?;
        }
        count += 1;
        next = (next + interval_ns).max(now_ns());
        sleep_until(next);
    }
    let interval_us = (now_ns() - start) as f64 / 1000.0 / count.max(1) as f64;
    Ok(Moves { count, asked_us: interval_ns / 1000, interval_us })
}

/// Those of the threads that have run since the last look, or all if that is not known or none has: to move one that sleeps takes time
/// and changes nothing.
fn awake_since(known: &mut BTreeMap<i32, f64>, pid: u32, threads: &[i32]) -> Vec<i32> {
    let old = std::mem::replace(known, thread_times(pid));
    let has_run = |thread: &&i32| old.get(*thread) != known.get(*thread);
    let awake: Vec<i32> = threads.iter().filter(has_run).copied().collect();
    if awake.is_empty() { threads.to_vec() } else { awake }
}

/// Has threads run on these CPUs. Those that have ended meanwhile do not count.
///
/// # Errors
/// They may not run there.
pub(super) fn move_all(threads: &[i32], mask: &Mask) -> Result<()> {
    for &thread in threads {
        match place(thread, mask) {
            Err(error) if error.raw_os_error() != Some(libc::ESRCH) => return Err(refused(&error)),
            _ => {}
        }
    }
    Ok(())
}

fn refused(error: &io::Error) -> anyhow::Error {
    anyhow!("the system does not let the server move: {error}")
}

/// Has all threads of a process run on these CPUs, those included that it starts meanwhile.
///
/// # Errors
/// They may not run there, or there is no such process.
pub(super) fn bind(pid: u32, cpus: &[usize]) -> Result<()> {
    let mask = Mask::of(cpus);
    let mut known = Vec::new();
    loop {
        let threads = threads_of(pid);
        if threads.is_empty() {
            bail!("there is no process {pid} to be bound to a CPU");
        }
        move_all(&threads, &mask)?;
        if threads == known {
            return Ok(());
        }
        known = threads;
    }
}
