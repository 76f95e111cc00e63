//! The threads of a process, which the kernel calls tasks.

use std::collections::BTreeMap;
use std::fs;

/// The threads of a process; none where there is no such process.
pub(super) fn threads_of(pid: u32) -> Vec<i32> {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    tasks.filter_map(|task| task.file_name().to_str()?.parse().ok()).collect()
}

/// Processor time of each thread so far, in µs; empty where the kernel does not tell.
pub(super) fn thread_times(pid: u32) -> BTreeMap<i32, f64> {
    let time = |thread: i32| {
        let text = fs::read_to_string(format!("/proc/{pid}/task/{thread}/schedstat")).ok()?;
        let ns: f64 = text.split(' ').next()?.parse().ok()?;
        Some((thread, ns / 1e3))
    };
    threads_of(pid).into_iter().filter_map(time).collect()
}
