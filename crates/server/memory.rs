//! The thread that gives free memory back to the system.
//!
//! mimalloc returns pages that have been free for a while when some thread happens to free another one. For a shard that
//! is in the middle of a turn, and for the 30 MiB or so that fall due together it takes milliseconds (FLUSHALL of 20 M
//! keys: turns of 2.5 to 8.5 ms, 1.8 ms without). So the allocator is told to wait for ever, and a thread of its own has it
//! return memory once a second.

use std::io;
use std::time::Duration;

use libmimalloc_sys::{mi_collect, mi_option_set, mi_option_t};

/// `mi_option_purge_delay` of mimalloc.h: milliseconds for which free pages are kept.
const PURGE_DELAY: mi_option_t = 15;
/// In effect never: eleven days.
const PURGE_DELAY_MS: i64 = 1_000_000_000;
/// How often free memory is returned, as in mimalloc itself.
const RETURN_INTERVAL: Duration = Duration::from_secs(1);

/// Takes the return of memory away from the shards. The thread ends with the process.
///
/// # Errors
/// The thread could not be started.
pub(crate) fn return_in_background() -> io::Result<()> {
    // SAFETY: the option exists in every version of mimalloc 3, and any value is valid for it.
    unsafe { mi_option_set(PURGE_DELAY, PURGE_DELAY_MS) };
    std::thread::Builder::new().name("memory".to_owned()).spawn(|| {
        loop {
            std::thread::sleep(RETURN_INTERVAL);
            // SAFETY: it may be called at any time by any thread; it touches this thread's heap, and pages nobody owns.
            unsafe { mi_collect(true) };
        }
    })?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resident_bytes() -> usize {
        let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
        statm.split_whitespace().nth(1).unwrap().parse::<usize>().unwrap() * 4096
    }

    /// Says that the process is this test's own.
    const ALONE: &str = "CORELANE_TEST_ALONE";

    /// In a process of its own: other tests of this one take memory meanwhile.
    #[test]
    fn what_one_thread_frees_another_returns() {
        if std::env::var_os(ALONE).is_none() {
            let name = "memory::tests::what_one_thread_frees_another_returns";
            let mut alone = std::process::Command::new(std::env::current_exe().unwrap());
            let output = alone.args([name, "--exact", "--nocapture"]).env(ALONE, "1").output().unwrap();
            let said = String::from_utf8_lossy(&output.stdout);
            assert!(
                output.status.success() && said.contains("1 passed"),
                "{said}{}",
                String::from_utf8_lossy(&output.stderr)
            );
            return;
        }
        return_in_background().unwrap();
        let before = resident_bytes();
        let blocks: Vec<Vec<u8>> = (0..128 << 10).map(|_| vec![1; 1 << 10]).collect();
        let full = resident_bytes();
        // Some of it may have lain free from what other tests gave back.
        assert!(full > before + (64 << 20), "{before} {full}");
        drop(blocks);
        let returned = (0..100).any(|_| {
            std::thread::sleep(Duration::from_millis(100));
            resident_bytes() < before + (32 << 20)
        });
        assert!(returned, "{before} {full} {}", resident_bytes());
    }
}
