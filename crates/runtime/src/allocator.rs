//! The process's allocator, which the program chooses: INFO and MEMORY ask it through what it registers here.

use std::sync::OnceLock;

use corelane_engine::Allocator;

static IN_USE: OnceLock<Allocator> = OnceLock::new();

/// Says what the process's allocator is; call it before the first server is started. Only the first call counts.
pub fn use_allocator(allocator: Allocator) {
    // A second one could only be the same: a process has one allocator.
    let _ = IN_USE.set(allocator);
}

/// What was said, or that nothing is known.
pub(crate) fn in_use() -> Allocator {
    IN_USE.get().copied().unwrap_or_default()
}
