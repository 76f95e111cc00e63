//! An eventfd: the bell at a shard's door. Ringing it from any thread makes it readable until it is drained.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

#[derive(Debug)]
pub(super) struct EventFd(OwnedFd);

impl EventFd {
    /// # Errors
    /// `EMFILE`/`ENFILE` when descriptors are used up.
    pub(super) fn new() -> io::Result<Self> {
        // SAFETY: eventfd takes two integers and touches no memory of ours.
        let fd = unsafe { libc::eventfd(0, libc::EFD_NONBLOCK | libc::EFD_CLOEXEC) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the descriptor is fresh, open and owned by nobody else.
        Ok(Self(unsafe { OwnedFd::from_raw_fd(fd) }))
    }

    /// Makes the descriptor readable. Cannot fail in a way that matters: `EAGAIN` means that it is readable already.
    pub(super) fn ring(&self) {
        let one = 1u64.to_ne_bytes();
        // SAFETY: `one` is 8 readable bytes, and the descriptor is ours and open.
        let written = unsafe { libc::write(self.0.as_raw_fd(), one.as_ptr().cast(), one.len()) };
        debug_assert!(written == 8 || io::Error::last_os_error().kind() == io::ErrorKind::WouldBlock);
    }

    /// Makes it unreadable; true when it was rung since the last time.
    pub(super) fn drain(&self) -> bool {
        let mut count = [0u8; 8];
        // SAFETY: `count` is 8 writable bytes, and the descriptor is ours, open and non-blocking.
        let read = unsafe { libc::read(self.0.as_raw_fd(), count.as_mut_ptr().cast(), count.len()) };
        read == 8
    }
}

impl AsFd for EventFd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn is_readable_from_ring_to_drain() {
        let event = EventFd::new().unwrap();
        assert!(!event.drain());
        event.ring();
        event.ring();
        assert!(event.drain());
        assert!(!event.drain());
    }
}
