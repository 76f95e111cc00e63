//! Bytes behind a pointer of one word: what the large forms of collections keep an element in.
//!
//! ```text
//!  ┌──────────────────────────────┬───────┐
//!  │ length: u8, or 0xff and u32  │ bytes │
//!  └──────────────────────────────┴───────┘
//! ```
//! A `Box<[u8]>` takes two words in every table that holds it; with short elements that is a large part of the whole.

use std::alloc::{Layout, alloc, dealloc, handle_alloc_error};
use std::ptr::NonNull;

const SHORT_MAX: usize = 0xFE;

/// Bytes of a fixed length, owned. Shorter than 4 GiB.
#[repr(transparent)]
pub struct Blob(NonNull<u8>);

const fn head_len(len: usize) -> usize {
    if len <= SHORT_MAX { 1 } else { 5 }
}

fn layout(len: usize) -> Layout {
    Layout::array::<u8>(head_len(len) + len).expect("a blob is shorter than isize::MAX")
}

impl Blob {
    /// A blob of these parts, one behind the other.
    pub fn new(parts: &[&[u8]]) -> Self {
        let len: usize = parts.iter().map(|part| part.len()).sum();
        let layout = layout(len);
        // SAFETY: the layout has at least one byte.
        let raw = unsafe { alloc(layout) };
        let Some(ptr) = NonNull::new(raw) else { handle_alloc_error(layout) };
        let blob = Self(ptr);
        if len <= SHORT_MAX {
            blob.write(0, &[len as u8]);
        } else {
            let len = u32::try_from(len).expect("a blob is shorter than 4 GiB");
            blob.write(0, &[0xFF]);
            blob.write(1, &len.to_le_bytes());
        }
        let mut at = head_len(len);
        for part in parts {
            blob.write(at, part);
            at += part.len();
        }
        blob
    }

    /// Writes `bytes` at `at`, both within the allocation.
    fn write(&self, at: usize, bytes: &[u8]) {
        // SAFETY: only called by `new`, with offsets inside the allocation that it has just made.
        let target = unsafe { self.0.add(at) };
        // SAFETY: as above; the allocation is new, so the ranges do not overlap and nobody else looks at it.
        unsafe { target.copy_from_nonoverlapping(NonNull::from(bytes).cast(), bytes.len()) };
    }

    #[inline]
    fn shape(&self) -> (usize, usize) {
        // SAFETY: the first byte is always there and was written by `new`.
        let first = unsafe { self.0.read() };
        if first != 0xFF {
            return (1, usize::from(first));
        }
        // SAFETY: behind 0xff there are four bytes of length in the allocation.
        let behind = unsafe { self.0.add(1).cast::<[u8; 4]>() };
        // SAFETY: `new` has written them; an array of bytes needs no alignment.
        let len = unsafe { behind.read() };
        (5, u32::from_le_bytes(len) as usize)
    }

    /// The bytes.
    #[inline]
    pub fn bytes(&self) -> &[u8] {
        let (head, len) = self.shape();
        // SAFETY: `new` allocated `head + len` bytes.
        let start = unsafe { self.0.add(head) };
        // SAFETY: `new` wrote them; they live as long as the blob.
        unsafe { std::slice::from_raw_parts(start.as_ptr(), len) }
    }

    /// The bytes, to be changed in place.
    #[inline]
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        let (head, len) = self.shape();
        // SAFETY: `new` allocated `head + len` bytes.
        let start = unsafe { self.0.add(head) };
        // SAFETY: as in `bytes`; the blob is borrowed exclusively.
        unsafe { std::slice::from_raw_parts_mut(start.as_ptr(), len) }
    }

    /// Gives up the handle; `from_raw` takes it back.
    #[inline]
    pub fn into_raw(self) -> NonNull<u8> {
        std::mem::ManuallyDrop::new(self).0
    }

    /// Takes a handle back.
    ///
    /// # Safety
    /// `raw` came from `into_raw`, and no other handle that is made from it is used while this one lives.
    #[inline]
    pub const unsafe fn from_raw(raw: NonNull<u8>) -> Self {
        Self(raw)
    }

    /// Bytes of its allocation.
    #[inline]
    pub fn heap_bytes(&self) -> usize {
        let (head, len) = self.shape();
        head + len
    }
}

impl Drop for Blob {
    fn drop(&mut self) {
        let (_, len) = self.shape();
        // SAFETY: allocated in `new` with the layout of this very length.
        unsafe { dealloc(self.0.as_ptr(), layout(len)) };
    }
}

impl Clone for Blob {
    fn clone(&self) -> Self {
        Self::new(&[self.bytes()])
    }
}

impl PartialEq for Blob {
    fn eq(&self, other: &Self) -> bool {
        self.bytes() == other.bytes()
    }
}

impl Eq for Blob {}

impl std::fmt::Debug for Blob {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "\"{}\"", self.bytes().escape_ascii())
    }
}

// SAFETY: a blob owns its bytes and has no interior mutability.
unsafe impl Send for Blob {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_come_out_as_they_went_in() {
        for len in [0, 1, 253, 254, 255, 256, 70_000] {
            let bytes: Vec<u8> = (0..len).map(|n| n as u8).collect();
            let (a, b) = bytes.split_at(len / 3);
            let mut blob = Blob::new(&[a, b]);
            assert_eq!(blob.bytes(), bytes);
            assert_eq!(blob.heap_bytes(), len + if len < 255 { 1 } else { 5 });
            let copy = blob.clone();
            blob.bytes_mut().fill(7);
            assert_eq!(copy.bytes(), bytes);
            assert_eq!(blob.bytes(), vec![7; len]);
        }
        assert_eq!(size_of::<Option<Blob>>(), size_of::<usize>());
    }
}
