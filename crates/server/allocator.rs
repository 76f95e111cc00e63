//! The allocator of this binary: mimalloc, asked for no more alignment than it gives anyway; what it tells of itself, and how it gives
//! memory back, for MEMORY and INFO.

use std::alloc::{GlobalAlloc, Layout};
use std::ffi::{CStr, c_char, c_void};
use std::ptr;

use corelane_engine::Allocator;
use libmimalloc_sys::{
    mi_free, mi_malloc, mi_malloc_aligned, mi_realloc, mi_realloc_aligned, mi_zalloc, mi_zalloc_aligned,
};

#[global_allocator]
static ALLOCATOR: Mimalloc = Mimalloc;

/// mimalloc, without the detour by its functions for aligned memory, which the `mimalloc` crate takes for every allocation. Those ask for
/// up to `align - 1` bytes more where the size is no power of two, which lifts some sizes into the next class (186 bytes take 224 instead of 192).
struct Mimalloc;

/// Whether any block of this size is aligned as asked: blocks of mimalloc are, to 8 bytes, and to 16 from that size on.
const fn is_aligned_anyway(size: usize, align: usize) -> bool {
    align <= 8 || align == 16 && size >= 16
}

// SAFETY: every function hands its size and alignment to mimalloc, whose contract is that of malloc; where the alignment is left out,
// each block has it.
unsafe impl GlobalAlloc for Mimalloc {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let (size, align) = (layout.size(), layout.align());
        if is_aligned_anyway(size, align) {
            // SAFETY: any size is valid.
            return unsafe { mi_malloc(size) }.cast();
        }
        // SAFETY: the alignment of a layout is a power of two.
        unsafe { mi_malloc_aligned(size, align) }.cast()
    }

    #[inline]
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        let (size, align) = (layout.size(), layout.align());
        if is_aligned_anyway(size, align) {
            // SAFETY: any size is valid.
            return unsafe { mi_zalloc(size) }.cast();
        }
        // SAFETY: the alignment of a layout is a power of two.
        unsafe { mi_zalloc_aligned(size, align) }.cast()
    }

    #[inline]
    unsafe fn dealloc(&self, block: *mut u8, _: Layout) {
        // SAFETY: the caller got the block from one of these functions, and gives it up.
        unsafe { mi_free(block.cast()) };
    }

    #[inline]
    unsafe fn realloc(&self, block: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        if is_aligned_anyway(new_size, layout.align()) {
            // SAFETY: the caller got the block from one of these functions, and gives it up for the new one.
            return unsafe { mi_realloc(block.cast(), new_size) }.cast();
        }
        // SAFETY: as above, and the alignment of a layout is a power of two.
        unsafe { mi_realloc_aligned(block.cast(), new_size, layout.align()) }.cast()
    }
}

/// The allocator of this binary.
pub(crate) const MIMALLOC: Allocator = Allocator { name: "mimalloc", purge, statistics, committed_bytes };

/// Gives what the calling thread's heap does not use back to the system.
fn purge() {
    // SAFETY: may be called at any time from any thread.
    unsafe { libmimalloc_sys::mi_collect(true) };
}

fn statistics() -> String {
    let mut text = String::new();
    // SAFETY: `append` is called back during this call only, with the pointer given here.
    unsafe { libmimalloc_sys::mi_stats_print_out(Some(append), (&raw mut text).cast()) };
    text
}

unsafe extern "C" fn append(message: *const c_char, text: *mut c_void) {
    // SAFETY: mimalloc hands out a string that ends with a NUL and lives until this returns.
    let message = unsafe { CStr::from_ptr(message) };
    // SAFETY: the pointer is the one that `statistics` gave, and its `String` is borrowed by nobody else meanwhile.
    let text = unsafe { &mut *text.cast::<String>() };
    text.push_str(&message.to_string_lossy());
}

/// Bytes that mimalloc has from the system and may use.
fn committed_bytes() -> u64 {
    let mut committed = 0;
    let none = ptr::null_mut;
    // SAFETY: each pointer may be null, and the one that is not can be written to.
    unsafe {
        libmimalloc_sys::mi_process_info(
            none(),
            none(),
            none(),
            none(),
            none(),
            &raw mut committed,
            none(),
            none(),
        );
    }
    committed as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_aligned_as_asked() {
        for align in [1, 2, 4, 8, 16, 32, 64, 4096] {
            for size in (1..200).chain([255, 1000, 4095, 10_000, 100_000]) {
                let layout = Layout::from_size_align(size, align).unwrap();
                // SAFETY: the size is not zero.
                let blocks: Vec<*mut u8> =
                    (0..3).map(|_| unsafe { ALLOCATOR.alloc_zeroed(layout) }).collect();
                for block in blocks {
                    assert!(block.addr().is_multiple_of(align), "{size} bytes aligned to {align}");
                    // SAFETY: the block has this layout and is given up.
                    let grown = unsafe { ALLOCATOR.realloc(block, layout, size + 5) };
                    assert!(grown.addr().is_multiple_of(align), "{size} and 5 bytes aligned to {align}");
                    let layout = Layout::from_size_align(size + 5, align).unwrap();
                    // SAFETY: it is the block of this layout.
                    unsafe { ALLOCATOR.dealloc(grown, layout) };
                }
            }
        }
    }

    #[test]
    fn a_block_takes_no_more_than_its_size_class() {
        // SAFETY: any size is valid.
        assert_eq!(unsafe { libmimalloc_sys::mi_good_size(186) }, 192);
        let layout = Layout::from_size_align(186, 8).unwrap();
        // SAFETY: the size is not zero.
        let block = unsafe { ALLOCATOR.alloc(layout) };
        // SAFETY: the block is mimalloc's.
        assert_eq!(unsafe { libmimalloc_sys::mi_usable_size(block.cast()) }, 192);
        // SAFETY: the block has this layout and is given up.
        unsafe { ALLOCATOR.dealloc(block, layout) };
    }

    #[test]
    fn mimalloc_tells_of_itself() {
        let kept = vec![1_u8; 256 << 10];
        assert!(committed_bytes() >= kept.len() as u64, "{}", committed_bytes());
        assert!(statistics().contains("commit"), "{}", statistics());
        purge();
    }
}
