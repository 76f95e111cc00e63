//! The provided-buffer ring: memory that the kernel picks from when bytes arrive, so that an idle connection owns none.
//!
//! ```text
//!   ring     [addr len bid tail] [addr len bid -] …     BUFFERS_MAX entries of 16 bytes, shared with the kernel
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
/// Buffers that are there from the start, and again after an idle time.
pub(crate) const BUFFERS_MIN: u16 = 64;
/// Buffers at most: 17 MiB per shard.
pub(crate) const BUFFERS_MAX: u16 = 1024;
/// The one buffer group of a shard's ring.
pub(crate) const GROUP: u16 = 0;

const STRIDE: usize = BUFFER_LEN + 64;

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
    pub(crate) unsafe fn register(ring: &IoUring) -> io::Result<Self> {
        let entries = Mapping::new(usize::from(BUFFERS_MAX) * size_of::<BufRingEntry>())?;
        let memory = Mapping::new(usize::from(BUFFERS_MAX) * STRIDE)?;
        let address = entries.base.as_ptr() as u64;
        let submitter = ring.submitter();
        // SAFETY: the mapping is page-aligned, holds BUFFERS_MAX entries, and outlives the ring by this function's contract.
        unsafe { submitter.register_buf_ring_with_flags(address, BUFFERS_MAX, GROUP, 0) }?;
        let mut buffers = Self { entries, memory, provided: 0, tail: 0, grown: false };
        buffers.provide(BUFFERS_MIN);
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
        let slot = usize::from(self.tail & (BUFFERS_MAX - 1));
        // SAFETY: the mask keeps the slot inside the mapping of BUFFERS_MAX entries.
        let entry = unsafe { first.add(slot) };
        // SAFETY: zeroed memory is a valid entry; the kernel does not read the entries beyond the published tail, and at
        // most BUFFERS_MAX buffers exist, so this slot has been consumed.
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

    /// After `-ENOBUFS`: as many buffers again, up to [`BUFFERS_MAX`].
    pub(crate) fn grow(&mut self) {
        self.grown = true;
        self.provide(self.provided.min(BUFFERS_MAX - self.provided));
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
