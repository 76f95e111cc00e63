//! What mimalloc tells of itself, and how it gives memory back, for MEMORY and INFO.

use std::ffi::{CStr, c_char, c_void};
use std::ptr;

use corelane_engine::Allocator;

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
    fn mimalloc_tells_of_itself() {
        let kept = vec![1_u8; 256 << 10];
        assert!(committed_bytes() >= kept.len() as u64, "{}", committed_bytes());
        assert!(statistics().contains("commit"), "{}", statistics());
        purge();
    }
}
