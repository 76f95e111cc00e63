//! The system calls of the experiments: CPUs for processes that are about to start or already run, and signals to them.

use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;

/// CPUs that a mask of ours can name.
const CPUS_MAX: usize = 8192;

/// A set of CPUs as the kernel takes it: bits, lowest first, as on every little-endian machine.
#[derive(Clone)]
pub(super) struct Mask([u8; CPUS_MAX / 8]);

impl Mask {
    pub(super) fn of(cpus: &[usize]) -> Self {
        let mut mask = [0; CPUS_MAX / 8];
        for &cpu in cpus.iter().filter(|cpu| **cpu < CPUS_MAX) {
            mask[cpu / 8] |= 1 << (cpu % 8);
        }
        Self(mask)
    }
}

/// Lets a thread run on these CPUs only; 0 is the calling one.
///
/// # Errors
/// The system's: there is no such thread, or it may not run there.
pub(super) fn place(thread: i32, mask: &Mask) -> io::Result<()> {
    // SAFETY: the mask is readable for as many bytes as the call is told.
    let result = unsafe { libc::sched_setaffinity(thread, mask.0.len(), mask.0.as_ptr().cast()) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Wakes the calling thread as soon as its time has come, where the kernel would let it wait 50 µs longer.
pub(super) fn wake_precisely() {
    // SAFETY: takes numbers alone, and cannot fail with these.
    unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1_u64) };
}

/// Has a command start on these CPUs, if any are given, in a process group of its own, and end with us however we end.
pub(super) fn prepare(command: &mut Command, cpus: Option<&[usize]>) {
    command.process_group(0);
    let mask = cpus.map(Mask::of);
    let before = move || {
        // SAFETY: takes numbers alone.
        unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
        mask.as_ref().map_or(Ok(()), |mask| place(0, mask))
    };
    // SAFETY: between fork and exec the closure makes two system calls and touches no memory but its own.
    unsafe { command.pre_exec(before) };
}

/// Sends a signal to all processes of a group that [`prepare`] has made; its number is that of its first process.
pub(super) fn signal_group(first: u32, signal: libc::c_int) {
    // SAFETY: takes numbers alone. A group that is gone is no harm: its number stays taken until we have waited.
    unsafe { libc::kill(-(first as i32), signal) };
}

/// Lets this process and what it starts have as many descriptors as it may. Returns that number.
///
/// # Errors
/// The system's.
pub(super) fn raise_descriptors() -> io::Result<u64> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the structure is writable.
    if unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) } != 0 {
        return Err(io::Error::last_os_error());
    }
    limit.rlim_cur = limit.rlim_max;
    // SAFETY: the structure is readable.
    if unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit) } != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(limit.rlim_max)
}
