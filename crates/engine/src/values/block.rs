//! The sizes in which allocators hand out memory.

/// The size of the block in which so many bytes are kept: of mimalloc's and jemalloc's sizes, every fourth is a power of two. So room that
/// is made grows by an eighth at least.
pub(super) fn size_class(bytes: usize) -> usize {
    bytes.next_multiple_of((bytes.next_power_of_two() / 8).max(16))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_those_of_blocks() {
        let sizes =
            [(1, 16), (17, 32), (113, 128), (129, 160), (186, 192), (193, 224), (7169, 8192), (8193, 10_240)];
        for (bytes, size) in sizes {
            assert_eq!(size_class(bytes), size, "{bytes}");
        }
    }
}
