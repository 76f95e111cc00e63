//! SIGTERM and SIGINT stop the server, a SIGINT meanwhile ends the process at once; SIGHUP and SIGPIPE are ignored.
//!
//! No handler runs: the signals are blocked before there are other threads, which inherit that, and one thread waits for
//! them. So no shard is ever interrupted in a system call.

use std::io;
use std::mem::MaybeUninit;
use std::thread;

use crate::mesh::Mesh;
use crate::notify::ServiceManager;

/// Signals that stop the server, blocked; see [`StopSignals::watch`].
#[derive(Debug)]
pub(crate) struct StopSignals {
    set: libc::sigset_t,
}

impl StopSignals {
    /// Blocks them for the calling thread and all that it starts. Call it before any thread is started.
    ///
    /// # Errors
    /// The system's; there is no reason for one.
    pub(crate) fn block() -> io::Result<Self> {
        ignore(libc::SIGHUP);
        ignore(libc::SIGPIPE);
        let mut set = MaybeUninit::<libc::sigset_t>::uninit();
        // SAFETY: the set is writable; the call fills it in whole.
        unsafe { libc::sigemptyset(set.as_mut_ptr()) };
        // SAFETY: filled in by the call above, which cannot fail for a valid pointer.
        let mut set = unsafe { set.assume_init() };
        for signal in [libc::SIGTERM, libc::SIGINT] {
            // SAFETY: the set is initialized and the signal's number is valid.
            unsafe { libc::sigaddset(&raw mut set, signal) };
        }
        // SAFETY: the set is initialized, and the old mask is not asked for.
        let result = unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, &raw const set, std::ptr::null_mut()) };
        if result != 0 {
            return Err(io::Error::from_raw_os_error(result));
        }
        Ok(Self { set })
    }

    /// Starts the thread that waits for them: the first stops all shards. Who interrupts then does not want to wait, and the
    /// process ends with code 1; another SIGTERM only says again what is being done.
    ///
    /// # Errors
    /// The thread cannot be started.
    pub(crate) fn watch(self, mesh: Mesh, manager: ServiceManager) -> io::Result<()> {
        let watcher = move || {
            self.wait();
            manager.stopping();
            mesh.stop();
            while self.wait() != libc::SIGINT {}
            std::process::exit(1);
        };
        thread::Builder::new().name("signals".to_owned()).spawn(watcher).map(drop)
    }

    /// Returns the number of the next that arrives.
    fn wait(&self) -> libc::c_int {
        let mut signal = 0;
        // SAFETY: the set is initialized, and `signal` is writable. It fails for an invalid set only.
        unsafe { libc::sigwait(&raw const self.set, &raw mut signal) };
        signal
    }
}

/// Blocks all signals for the calling thread, and for those it starts: a host's handlers run on the host's threads.
pub(crate) fn block_all_here() {
    let mut set = MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: the set is writable; the call fills it in whole.
    unsafe { libc::sigfillset(set.as_mut_ptr()) };
    // SAFETY: filled in by the call above, and the old mask is not asked for. It fails for an invalid request only.
    unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, set.as_ptr(), std::ptr::null_mut()) };
}

fn ignore(signal: libc::c_int) {
    // SAFETY: SIG_IGN installs no code of ours, and the signal's number is valid.
    unsafe { libc::signal(signal, libc::SIG_IGN) };
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mesh::MeshEnd;

    #[test]
    fn a_blocked_signal_is_waited_for_and_stops_the_shards() {
        // On a thread of its own, and sent to that thread only: the rest of the test process does not block it.
        let stopped = thread::spawn(|| {
            let signals = StopSignals::block().unwrap();
            let (mesh, ends) = Mesh::build::<()>(2).unwrap();
            // SAFETY: the call takes nothing.
            let here = unsafe { libc::pthread_self() };
            // SAFETY: the calling thread is alive.
            let sent = unsafe { libc::pthread_kill(here, libc::SIGTERM) };
            assert_eq!(sent, 0);
            assert_eq!(signals.wait(), libc::SIGTERM);
            mesh.stop();
            ends.into_iter().all(|mut end: MeshEnd<()>| end.stop_requested())
        });
        assert!(stopped.join().unwrap());
    }
}
