//! The system calls of the measurement.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::mem::MaybeUninit;
use std::os::fd::RawFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Whether a tool is to end.
pub(crate) static STOPPED: AtomicBool = AtomicBool::new(false);

extern "C" fn on_signal(_: libc::c_int) {
    STOPPED.store(true, Ordering::Relaxed);
}

/// Has SIGINT, SIGTERM and SIGHUP end the measurement in order: see [`stopped`].
pub(crate) fn stop_on_signals() {
    let handler: extern "C" fn(libc::c_int) = on_signal;
    for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
        // SAFETY: the handler stores to an atomic, which is allowed in one; the signals can be caught.
        unsafe { libc::signal(signal, handler as libc::sighandler_t) };
    }
}

/// Whether the measurement is to end.
pub(crate) fn stopped() -> bool {
    STOPPED.load(Ordering::Relaxed)
}

/// Waits until there is something to read, a signal comes, or the time is over. False if the other end of what the descriptor
/// stands for is gone: of a terminal, a pipe, or a connection.
pub(crate) fn wait_for_input(fd: RawFd, max: Duration) -> bool {
    let mut asked = libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
    // SAFETY: the structure is one, and outlives the call.
    let ready = unsafe { libc::poll(&raw mut asked, 1, max.as_millis() as i32) };
    ready <= 0 || asked.revents & (libc::POLLHUP | libc::POLLERR | libc::POLLNVAL) == 0
}

/// Nanoseconds of the monotonic clock.
pub(crate) fn now_ns() -> u64 {
    let mut time = MaybeUninit::<libc::timespec>::uninit();
    // SAFETY: the structure is writable.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, time.as_mut_ptr()) };
    // SAFETY: this clock is always there, so the call has filled the structure.
    let time = unsafe { time.assume_init() };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// A moment so long after another one; what is centuries away is never.
pub(super) fn later(ns: u64, time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).map_or(u64::MAX, |time| ns.saturating_add(time))
}

/// Sleeps until this moment of the monotonic clock, or until a signal comes.
pub(crate) fn sleep_until(ns: u64) {
    let time = libc::timespec { tv_sec: (ns / 1_000_000_000) as i64, tv_nsec: (ns % 1_000_000_000) as i64 };
    // SAFETY: the time is readable; what is left of it is not asked for.
    unsafe {
        libc::clock_nanosleep(
            libc::CLOCK_MONOTONIC,
            libc::TIMER_ABSTIME,
            &raw const time,
            std::ptr::null_mut(),
        )
    };
}

/// The kernel's number of the calling thread.
pub(super) fn thread_id() -> i32 {
    // SAFETY: takes nothing and always succeeds.
    unsafe { libc::gettid() }
}

/// Gives the calling thread a priority under SCHED_FIFO.
///
/// # Errors
/// The system's: mostly that it takes CAP_SYS_NICE or an RLIMIT_RTPRIO.
pub(crate) fn be_urgent(priority: i32) -> io::Result<()> {
    let parameters = libc::sched_param { sched_priority: priority };
    // SAFETY: the parameters are readable; 0 is the calling thread.
    let result = unsafe { libc::sched_setscheduler(0, libc::SCHED_FIFO, &raw const parameters) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Keeps all memory of the process resident, what there is and what will be from its first use on: the allocator sets aside a gigabyte of
/// addresses, which would otherwise be filled with memory at once.
///
/// # Errors
/// The system's: mostly that RLIMIT_MEMLOCK is too low.
pub(super) fn lock_memory() -> io::Result<()> {
    // SAFETY: takes flags alone.
    let result = unsafe { libc::mlockall(libc::MCL_CURRENT | libc::MCL_FUTURE | libc::MCL_ONFAULT) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Keeps the CPUs out of sleep states that take long to leave, as long as the file is open.
///
/// # Errors
/// The system's: mostly that it takes root.
pub(super) fn hold_dma_latency() -> io::Result<File> {
    let mut file = OpenOptions::new().write(true).open("/dev/cpu_dma_latency")?;
    file.write_all(&0i32.to_ne_bytes())?;
    Ok(file)
}
