//! Parking in glommio until the park event is written, or for a while.
//!
//! glommio has no public wait for a descriptor, but a `BufferedFile` reads any of them through its ring. One read of the
//! event is kept in flight from park to park and completes exactly when somebody writes the event: a park that ends by
//! its time-out allocates nothing and leaves nothing behind.

use std::future::{Future, poll_fn};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, IntoRawFd};
use std::pin::Pin;
use std::rc::Rc;
use std::task::Poll;
use std::time::Duration;

use glommio::io::BufferedFile;
use glommio::timer::Timer;

/// Bytes that a read of an eventfd returns.
const EVENT_LEN: usize = 8;

type Read = Pin<Box<dyn Future<Output = io::Result<()>>>>;

/// A shard's waits for its park event. Lives in the shard's executor.
pub(crate) struct Parker {
    event: Rc<BufferedFile>,
    read: Option<Read>,
}

impl Parker {
    /// For the given event, of which it keeps a duplicate.
    pub(crate) fn new(event: BorrowedFd<'_>) -> io::Result<Self> {
        let fd = event.try_clone_to_owned()?.into_raw_fd();
        // SAFETY: the duplicate is open and, from here on, owned by the file alone.
        let event = Rc::new(unsafe { BufferedFile::from_raw_fd(fd) });
        Ok(Self { event, read: None })
    }

    /// Waits until the event is written or `limit` has passed. True: it was written, now or since the last park.
    pub(crate) async fn park(&mut self, limit: Duration) -> io::Result<bool> {
        let mut timer = Timer::new(limit);
        let event = &self.event;
        let read = self.read.get_or_insert_with(|| read_once(Rc::clone(event)));
        let outcome = poll_fn(|cx| {
            if let Poll::Ready(outcome) = read.as_mut().poll(cx) {
                return Poll::Ready(Some(outcome));
            }
            Pin::new(&mut timer).poll(cx).map(|_| None)
        });
        match outcome.await {
            None => Ok(false),
            Some(outcome) => {
                self.read = None;
                outcome.map(|()| true)
            }
        }
    }

    /// Ends the read that is in flight, so that the executor can end too.
    pub(crate) async fn finish(mut self) {
        if let Some(read) = self.read.take() {
            let one = 1u64.to_ne_bytes();
            // SAFETY: `one` is 8 readable bytes, and the descriptor is open. If the write fails the event is readable.
            unsafe { libc::write(self.event.as_raw_fd(), one.as_ptr().cast(), one.len()) };
            // Whatever it returned, the read is over.
            let _ = read.await;
        }
        if let Ok(event) = Rc::try_unwrap(self.event) {
            // Nothing was written to it that a failing close could lose.
            let _ = event.close().await;
        }
    }
}

fn read_once(event: Rc<BufferedFile>) -> Read {
    Box::pin(async move {
        match event.read_at(0, EVENT_LEN).await {
            Ok(_) => Ok(()),
            Err(error) => Err(io::Error::other(error.to_string())),
        }
    })
}

#[cfg(test)]
mod tests {
    use std::os::fd::{AsFd, OwnedFd};

    use glommio::{LocalExecutorBuilder, Placement};

    use super::*;

    const PARKS: usize = 100_000;

    fn eventfd() -> OwnedFd {
        // SAFETY: no memory is involved.
        let fd = unsafe { libc::eventfd(0, libc::EFD_NONBLOCK | libc::EFD_CLOEXEC) };
        assert!(fd >= 0);
        // SAFETY: the descriptor is fresh.
        unsafe { OwnedFd::from_raw_fd(fd) }
    }

    fn ring(event: BorrowedFd<'_>) {
        let one = 1u64.to_ne_bytes();
        // SAFETY: `one` is 8 readable bytes.
        assert_eq!(unsafe { libc::write(event.as_raw_fd(), one.as_ptr().cast(), one.len()) }, 8);
    }

    fn resident_kib() -> usize {
        let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
        statm.split(' ').nth(1).unwrap().parse::<usize>().unwrap() * 4
    }

    fn descriptors() -> usize {
        std::fs::read_dir("/proc/self/fd").unwrap().count()
    }

    fn in_executor<F: Future<Output = ()> + 'static>(task: F) {
        let builder = LocalExecutorBuilder::new(Placement::Unbound).io_memory(64 << 10);
        builder.make().unwrap().run(task);
    }

    #[test]
    fn a_hundred_thousand_parks_leave_memory_and_descriptors_as_they_were() {
        in_executor(async {
            let event = eventfd();
            let mut parker = Parker::new(event.as_fd()).unwrap();
            let mut before = (0, 0);
            for i in 0..PARKS {
                if i == PARKS / 10 {
                    before = (resident_kib(), descriptors());
                }
                let rung = i % 2 == 0;
                if rung {
                    ring(event.as_fd());
                }
                let limit = if rung { Duration::from_secs(10) } else { Duration::from_micros(1) };
                assert_eq!(parker.park(limit).await.unwrap(), rung, "park {i}");
            }
            let after = (resident_kib(), descriptors());
            assert!(after.0 < before.0 + 2048, "resident: {} KiB, then {} KiB", before.0, after.0);
            // Other tests of this process come and go; a leak would show one descriptor per park.
            assert!(after.1 < before.1 + 1000, "descriptors: {}, then {}", before.1, after.1);
            parker.finish().await;
        });
    }

    #[test]
    fn a_write_from_another_thread_ends_a_park() {
        in_executor(async {
            let event = eventfd();
            let mut parker = Parker::new(event.as_fd()).unwrap();
            let other = event.try_clone().unwrap();
            let thread = std::thread::spawn(move || {
                std::thread::sleep(Duration::from_millis(20));
                ring(other.as_fd());
            });
            let began = std::time::Instant::now();
            assert!(parker.park(Duration::from_secs(60)).await.unwrap());
            assert!(began.elapsed() < Duration::from_secs(30));
            thread.join().unwrap();
            parker.finish().await;
        });
    }
}
