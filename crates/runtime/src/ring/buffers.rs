//! The provided-buffer ring: memory that the kernel picks from when bytes arrive, so that an idle connection owns none.
//!
//! ```text
//!   ring     [addr len bid tail] [addr len bid -] …     a power of two of 16-byte entries, shared with the kernel
//!   memory   | 17 KiB | 64 | 17 KiB | 64 | …            a cache line of padding between buffers
//! ```
//! The padding gives consecutive buffers different cache sets: small requests touch only the first lines of a buffer,
//! and at a stride of whole pages these would all compete for the same few ways of the first-level cache.

use std::io;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU16, Ordering};

use io_uring::{IoUring, types::BufRingEntry};

/// Bytes of one buffer: a value of 16 KiB and the command around it, which then needs no second receive and no copy.
pub(crate) const BUFFER_LEN: usize = 17 << 10;
/// The one buffer group of a shard's ring.
pub(crate) const GROUP: u16 = 0;

const STRIDE: usize = BUFFER_LEN + 64;

/// How many buffers a shard has.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PoolSize {
    /// From the start (`buffer-pool-min`).
    pub(crate) min: u16,
    /// At most (`buffer-pool-max`); a power of two holds them, so no more than 32 768.
    pub(crate) max: u16,
}

/// Anonymous private memory.
struct Mapping {
    base: NonNull<u8>,
    len: usize,
}

impl Mapping {
    fn new(len: usize) -> io::Result<Self> {
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        // SAFETY: a fresh anonymous mapping at an address of the kernel's choice aliases nothing.
        let base = unsafe { libc::mmap(std::ptr::null_mut(), len, protection, flags, -1, 0) };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let base = NonNull::new(base.cast()).ok_or_else(io::Error::last_os_error)?;
        Ok(Self { base, len })
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: exactly the range that `new` mapped, unmapped once; whoever lent it to a ring closed that ring first.
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.len) };
    }
}

/// The buffers of one shard.
pub(crate) struct Buffers {
    entries: Mapping,
    memory: Mapping,
    /// Buffers there may be.
    max: u16,
    /// Entries of the ring, less one.
    mask: u16,
    /// Buffers handed to the kernel so far; their ids are below it.
    provided: u16,
    /// Free-running, as in the kernel.
    tail: u16,
    /// Whether more than the first few buffers may have been touched since the last trim.
    grown: bool,
}

impl Buffers {
    /// Maps the memory and registers it as group [`GROUP`] of `ring`.
    ///
    /// # Safety
    /// The kernel may write to the buffers as long as the ring is open, so it must be closed before `Self` is dropped.
    pub(crate) unsafe fn register(ring: &IoUring, size: PoolSize) -> io::Result<Self> {
        let entry_count = size.max.next_power_of_two();
        let entries = Mapping::new(usize::from(entry_count) * size_of::<BufRingEntry>())?;
        let memory = Mapping::new(usize::from(size.max) * STRIDE)?;
        let address = entries.base.as_ptr() as u64;
        let submitter = ring.submitter();
        // SAFETY: the mapping is page-aligned, holds that many entries, and outlives the ring by this function's contract.
        unsafe { submitter.register_buf_ring_with_flags(address, entry_count, GROUP, 0) }?;
        let mut buffers = Self {
            entries,
            memory,
            max: size.max,
            mask: entry_count - 1,
            provided: 0,
            tail: 0,
            grown: false,
        };
        buffers.provide(size.min.min(size.max));
        Ok(buffers)
    }

    /// The first `len` bytes of a buffer that a completion named.
    ///
    /// # Safety
    /// A completion must have handed out `id` with at least `len` bytes, and it must not have been given back since.
    #[inline]
    pub(crate) unsafe fn filled<'a>(&self, id: u16, len: usize) -> &'a [u8] {
        debug_assert!(id < self.provided && len <= BUFFER_LEN);
        let start = self.address(id);
        // SAFETY: the kernel wrote these bytes and, by this function's contract, does not write them until they are given back.
        unsafe { std::slice::from_raw_parts(start, len) }
    }

    /// Hands a buffer (back) to the kernel.
    #[inline]
    pub(crate) fn give_back(&mut self, id: u16) {
        debug_assert!(id < self.provided);
        let address = self.address(id) as u64;
        let first = self.entries.base.as_ptr().cast::<BufRingEntry>();
        let slot = usize::from(self.tail & self.mask);
        // SAFETY: the mask keeps the slot inside the mapping of `mask` + 1 entries.
        let entry = unsafe { first.add(slot) };
        // SAFETY: zeroed memory is a valid entry; the kernel does not read the entries beyond the published tail, and at
        // most as many buffers as entries exist, so this slot has been consumed.
        let entry = unsafe { &mut *entry };
        entry.set_addr(address);
        entry.set_len(BUFFER_LEN as u32);
        entry.set_bid(id);
        self.tail = self.tail.wrapping_add(1);
        // SAFETY: `first` is the base of the registered ring.
        let tail = unsafe { BufRingEntry::tail(first) };
        // SAFETY: the tail is an aligned u16 in memory that lives as long as `self`; everybody accesses it atomically.
        let tail = unsafe { AtomicU16::from_ptr(tail.cast_mut()) };
        tail.store(self.tail, Ordering::Release);
    }

    /// After `-ENOBUFS`: as many buffers again, up to `max`.
    pub(crate) fn grow(&mut self) {
        self.grown = true;
        self.provide(self.provided.min(self.max - self.provided));
    }

    /// Returns the pages of the buffers to the system if a burst has touched many of them.
    ///
    /// # Safety
    /// No completion may hold a buffer, and the kernel must not be receiving: between two calls into a ring whose work
    /// is deferred to its owner that is so.
    pub(crate) unsafe fn trim(&mut self) {
        if !std::mem::take(&mut self.grown) {
            return;
        }
        let base = self.memory.base.as_ptr().cast();
        // SAFETY: the range is our own mapping and, by this function's contract, nobody needs its content.
        unsafe { libc::madvise(base, self.memory.len, libc::MADV_DONTNEED) };
    }

    fn provide(&mut self, count: u16) {
        for _ in 0..count {
            let id = self.provided;
            self.provided += 1;
            self.give_back(id);
        }
    }

    #[inline]
    fn address(&self, id: u16) -> *mut u8 {
        self.memory.base.as_ptr().wrapping_add(usize::from(id) * STRIDE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pool_doubles_up_to_its_most() {
        let ring = IoUring::new(4).unwrap();
        // SAFETY: nothing is received through this ring, so the kernel writes to no buffer.
        let mut buffers = unsafe { Buffers::register(&ring, PoolSize { min: 3, max: 10 }) }.unwrap();
        let mut sizes = vec![buffers.provided];
        for _ in 0..3 {
            buffers.grow();
            sizes.push(buffers.provided);
        }
        assert_eq!(sizes, [3, 6, 10, 10]);
        // SAFETY: as above.
        let small =
            unsafe { Buffers::register(&IoUring::new(4).unwrap(), PoolSize { min: 64, max: 1 }) }.unwrap();
        assert_eq!(small.provided, 1);
    }
}
