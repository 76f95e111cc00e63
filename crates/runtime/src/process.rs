//! What INFO says about the process: memory and processor time, from /proc; and what a thread has used.

use std::fs;
use std::mem::MaybeUninit;
use std::time::Duration;

use corelane_engine::ProcessInfo;

/// Reads the figures; what cannot be read is 0. Costs some 50 microseconds.
pub(crate) fn read() -> ProcessInfo {
    let [cpu_user_us, cpu_sys_us, children_user_us, children_sys_us] =
        fs::read_to_string("/proc/self/stat").ok().and_then(|stat| cpu_us(&stat)).unwrap_or_default();
    let rss_peak_kib =
        fs::read_to_string("/proc/self/status").ok().and_then(|status| peak_kib(&status)).unwrap_or(0);
    let rss_pages = fs::read_to_string("/proc/self/statm").ok().and_then(|statm| nth(&statm, 1)).unwrap_or(0);
    let [thread_user_us, thread_sys_us] = thread_cpu_us();
    let memory_kib = fs::read_to_string("/proc/meminfo").ok().and_then(|info| nth(&info, 1)).unwrap_or(0);
    ProcessInfo {
        rss_bytes: rss_pages * sysconf(libc::_SC_PAGESIZE),
        rss_peak_bytes: rss_peak_kib * 1024,
        cpu_user_us,
        cpu_sys_us,
        children_user_us,
        children_sys_us,
        thread_user_us,
        thread_sys_us,
        memory_bytes: memory_kib * 1024,
    }
}

/// User and system time of the calling thread.
fn thread_cpu_us() -> [u64; 2] {
    let mut usage = MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: the structure is writable. The call fails for an invalid request only; a failure would leave zeros.
    unsafe { libc::getrusage(libc::RUSAGE_THREAD, usage.as_mut_ptr()) };
    // SAFETY: all bytes are written, and any value is valid.
    let usage = unsafe { usage.assume_init() };
    [usage.ru_utime, usage.ru_stime].map(|time| time.tv_sec as u64 * 1_000_000 + time.tv_usec as u64)
}

/// Processor time that the calling thread has used, the kernel's work for it included.
#[must_use]
pub fn thread_cpu_time() -> Duration {
    let mut time = MaybeUninit::<libc::timespec>::zeroed();
    // SAFETY: the structure is writable. This clock is always there; a failure would leave zeros.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, time.as_mut_ptr()) };
    // SAFETY: all bytes are written, and any value is valid.
    let time = unsafe { time.assume_init() };
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// Microseconds since the machine was booted, what it has slept included.
pub(crate) fn since_boot_us() -> u64 {
    let mut time = MaybeUninit::<libc::timespec>::zeroed();
    // SAFETY: the structure is writable. This clock is always there; a failure would leave zeros.
    unsafe { libc::clock_gettime(libc::CLOCK_BOOTTIME, time.as_mut_ptr()) };
    // SAFETY: all bytes are written, and any value is valid.
    let time = unsafe { time.assume_init() };
    time.tv_sec as u64 * 1_000_000 + time.tv_nsec as u64 / 1000
}

/// Has the calling thread's waits end when they should, and not up to 50 microseconds later.
pub fn wait_precisely() {
    // SAFETY: the call takes integers only. If it fails waits are as coarse as before.
    unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1 as libc::c_ulong) };
}

/// The largest resident size, from the text of /proc/PID/status.
fn peak_kib(status: &str) -> Option<u64> {
    nth(status.lines().find(|line| line.starts_with("VmHWM:"))?, 1)
}

/// User and system time, of the process and of its children, from the text of /proc/PID/stat. The name before them may hold anything but ends with the last
/// parenthesis.
fn cpu_us(stat: &str) -> Option<[u64; 4]> {
    let (_, fields) = stat.rsplit_once(')')?;
    let us = |ticks: u64| ticks * 1_000_000 / sysconf(libc::_SC_CLK_TCK).max(1);
    Some([us(nth(fields, 11)?), us(nth(fields, 12)?), us(nth(fields, 13)?), us(nth(fields, 14)?)])
}

fn nth(text: &str, idx: usize) -> Option<u64> {
    text.split_whitespace().nth(idx)?.parse().ok()
}

fn sysconf(name: libc::c_int) -> u64 {
    // SAFETY: the call takes an integer only; an unknown name gives -1.
    let value = unsafe { libc::sysconf(name) };
    u64::try_from(value).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_has_its_own_time() {
        let began = thread_cpu_us();
        let busy = |since: [u64; 2]| thread_cpu_us().iter().sum::<u64>() - since.iter().sum::<u64>();
        while busy(began) < 2_000 {}
        let elsewhere = std::thread::spawn(thread_cpu_us).join().unwrap();
        assert!(elsewhere.iter().sum::<u64>() < thread_cpu_us().iter().sum(), "{elsewhere:?}");
    }

    #[test]
    fn a_process_has_memory_and_time() {
        let info = read();
        // The kernel counts the peak on its own: it may lag a little behind the present size.
        let sizes = [info.rss_bytes, info.rss_peak_bytes];
        assert!(sizes.iter().all(|size| (100_000..info.memory_bytes).contains(size)), "{info:?}");
        assert_eq!(
            cpu_us("1 (a) b) S 1 2 3 4 5 6 7 8 9 10 300 200 6 4 0").map(|[a, b, c, d]| [
                a * 2 == b * 3,
                c * 50 == a,
                d * 50 == b
            ]),
            Some([true; 3])
        );
    }
}
