//! Parking until the park event is written, or for a while: in glommio, or, where there is no executor, in the kernel.
//!
//! glommio has no public wait for a descriptor, but a `BufferedFile` reads any of them through its ring. One read of the
//! event is kept in flight from park to park and completes exactly when somebody writes the event: a park that ends by
//! its time-out allocates nothing and leaves nothing behind.
//!
//! glommio adds a waker each time that a read in flight is polled, and counts wakers in 16 bits: after seven minutes without
//! an event the count would overflow. So a read is polled when it begins, and again only when it has completed ([`Bell`]).

use std::future::{Future, poll_fn};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, IntoRawFd, OwnedFd};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use glommio::io::BufferedFile;
use glommio::timer::Timer;

use crate::server::Tenancy;

/// Bytes that a read of an eventfd returns.
const EVENT_LEN: usize = 8;

type Read = Pin<Box<dyn Future<Output = io::Result<()>>>>;

/// A shard's waits for its park event.
pub(crate) enum Parker {
    /// Lives in the shard's executor.
    Executor(ExecutorPark),
    /// The shard's loop has its thread to itself.
    Thread(ThreadPark),
}

impl Parker {
    /// For the given event, of which it keeps a duplicate.
    pub(crate) fn new(event: BorrowedFd<'_>, tenancy: Tenancy) -> io::Result<Self> {
        Ok(match tenancy {
            Tenancy::Owner => Self::Executor(ExecutorPark::new(event)?),
            Tenancy::Guest => Self::Thread(ThreadPark(event.try_clone_to_owned()?)),
        })
    }

    /// Waits until the event is written or `limit` has passed. True: it was written, now or since the last park.
    pub(crate) async fn park(&mut self, limit: Duration) -> io::Result<bool> {
        match self {
            Self::Executor(park) => park.park(limit).await,
            Self::Thread(park) => park.park(limit),
        }
    }

    /// Lets the executor do what it has to do.
    pub(crate) async fn service(&self) {
        if let Self::Executor(_) = self {
            // A task that is always ready would keep the reactor out, and yielding does not reach it.
            glommio::timer::sleep(Duration::from_nanos(1)).await;
        }
    }

    /// Ends what is in flight, so that the executor can end too.
    pub(crate) async fn finish(self) {
        if let Self::Executor(park) = self {
            park.finish().await;
        }
    }
}

/// Parking without an executor.
pub(crate) struct ThreadPark(OwnedFd);

impl ThreadPark {
    fn park(&self, limit: Duration) -> io::Result<bool> {
        let mut poll = libc::pollfd { fd: self.0.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        let limit_ms = limit.as_micros().div_ceil(1000).min(libc::c_int::MAX as u128) as libc::c_int;
        // SAFETY: `poll` is one writable entry.
        let ready = unsafe { libc::poll(&raw mut poll, 1, limit_ms) };
        if ready < 0 {
            let error = io::Error::last_os_error();
            return if error.kind() == io::ErrorKind::Interrupted { Ok(false) } else { Err(error) };
        }
        if ready > 0 {
            let mut count = [0u8; EVENT_LEN];
            // SAFETY: `count` is writable, and the event is open and non-blocking. If the read fails the next park ends at once.
            unsafe { libc::read(self.0.as_raw_fd(), count.as_mut_ptr().cast(), EVENT_LEN) };
        }
        Ok(ready > 0)
    }
}

/// What the read in flight wakes: it notes that, and wakes who parks.
#[derive(Default)]
struct Bell {
    rung: AtomicBool,
    parked: Mutex<Option<Waker>>,
}

impl Bell {
    /// Who parks from now on.
    fn wakes(&self, waker: &Waker) {
        let mut parked = self.parked.lock().unwrap_or_else(PoisonError::into_inner);
        if !parked.as_ref().is_some_and(|parked| parked.will_wake(waker)) {
            *parked = Some(waker.clone());
        }
    }
}

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.rung.store(true, Ordering::Release);
        if let Some(parked) = &*self.parked.lock().unwrap_or_else(PoisonError::into_inner) {
            parked.wake_by_ref();
        }
    }
}

/// Parking in glommio.
pub(crate) struct ExecutorPark {
    event: Rc<BufferedFile>,
    read: Option<Read>,
    bell: Arc<Bell>,
    /// The bell's.
    waker: Waker,
}

impl ExecutorPark {
    fn new(event: BorrowedFd<'_>) -> io::Result<Self> {
        let fd = event.try_clone_to_owned()?.into_raw_fd();
        // SAFETY: the duplicate is open and, from here on, owned by the file alone.
        let event = Rc::new(unsafe { BufferedFile::from_raw_fd(fd) });
        let bell = Arc::new(Bell::default());
        Ok(Self { event, read: None, waker: Waker::from(Arc::clone(&bell)), bell })
    }

    async fn park(&mut self, limit: Duration) -> io::Result<bool> {
        let mut timer = Timer::new(limit);
        let (event, bell, waker) = (&self.event, &self.bell, &self.waker);
        let read = self.read.get_or_insert_with(|| {
            // One that is new has to be polled to begin.
            bell.rung.store(true, Ordering::Release);
            read_once(Rc::clone(event))
        });
        let outcome = poll_fn(|cx| {
            bell.wakes(cx.waker());
            if bell.rung.swap(false, Ordering::Acquire)
                && let Poll::Ready(outcome) = read.as_mut().poll(&mut Context::from_waker(waker))
            {
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

    async fn finish(mut self) {
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
    use std::os::fd::AsFd;

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
            let mut parker = ExecutorPark::new(event.as_fd()).unwrap();
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
    fn a_park_after_very_many_without_an_event_still_ends_by_one() {
        in_executor(async {
            let event = eventfd();
            let mut parker = ExecutorPark::new(event.as_fd()).unwrap();
            for i in 0..PARKS {
                assert!(!parker.park(Duration::ZERO).await.unwrap(), "park {i}");
            }
            ring(event.as_fd());
            assert!(parker.park(Duration::from_secs(10)).await.unwrap());
            assert!(!parker.park(Duration::from_millis(1)).await.unwrap());
            parker.finish().await;
        });
    }

    #[test]
    fn a_thread_parks_until_the_event_is_written_or_the_time_is_over() {
        let event = eventfd();
        let park = ThreadPark(event.try_clone().unwrap());
        assert!(!park.park(Duration::from_millis(5)).unwrap());
        ring(event.as_fd());
        assert!(park.park(Duration::from_secs(10)).unwrap());
        assert!(!park.park(Duration::ZERO).unwrap(), "read");
        let thread = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(20));
            ring(event.as_fd());
        });
        assert!(park.park(Duration::from_secs(60)).unwrap());
        thread.join().unwrap();
    }

    #[test]
    fn a_write_from_another_thread_ends_a_park() {
        in_executor(async {
            let event = eventfd();
            let mut parker = ExecutorPark::new(event.as_fd()).unwrap();
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
