//! Numbers as redis-benchmark takes them: what is out of range becomes the nearest that is in it.
//!
//! That is done where it leads to what was most likely meant. No clients (`-c 0`), no requests (`-n 0`) and no digits
//! (`--precision 0`) are refused: redis-benchmark takes one client, never ends, and crashes.

/// The largest value that can be asked for, in bytes.
const DATA_MAX: i64 = 1 << 30;
/// Threads, requests sent at once, and keys, at most.
const THREADS_MAX: i64 = 1024;
const PIPELINE_MAX: i64 = 1 << 20;
const RANGE_MAX: i64 = 1_000_000_000_000;
/// Significant digits.
const DIGITS: i64 = 3;
const DIGITS_MAX: i64 = 5;

fn number(text: &str) -> Result<i64, String> {
    text.parse().map_err(|_| "not a number".to_owned())
}

/// `-d`.
pub(super) fn data_size(text: &str) -> Result<u32, String> {
    Ok(number(text)?.clamp(1, DATA_MAX) as u32)
}

/// `--threads`; 0 is no thread beside the one there is.
pub(super) fn threads(text: &str) -> Result<u32, String> {
    Ok(number(text)?.clamp(0, THREADS_MAX) as u32)
}

/// `-k`.
pub(super) fn keep_alive(text: &str) -> Result<u8, String> {
    Ok(u8::from(number(text)? != 0))
}

/// `-r`.
pub(super) fn range(text: &str) -> Result<u64, String> {
    Ok(number(text)?.clamp(1, RANGE_MAX) as u64)
}

/// `-P`.
pub(super) fn pipeline(text: &str) -> Result<u32, String> {
    Ok(number(text)?.clamp(1, PIPELINE_MAX) as u32)
}

/// `--precision`.
pub(super) fn precision(text: &str) -> Result<u8, String> {
    match number(text)? {
        0 => Err("latencies cannot have no digits".to_owned()),
        ..0 => Ok(DIGITS as u8),
        digits => Ok(digits.min(DIGITS_MAX) as u8),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_out_of_range_is_brought_into_it() {
        assert_eq!(["0", "-3", "7"].map(data_size), [Ok(1), Ok(1), Ok(7)]);
        assert_eq!(["0", "-3", "99"].map(range), [Ok(1), Ok(1), Ok(99)]);
        assert_eq!(["0", "-3", "16"].map(pipeline), [Ok(1), Ok(1), Ok(16)]);
        assert_eq!(["0", "-2", "4", "9999"].map(threads), [Ok(0), Ok(0), Ok(4), Ok(1024)]);
        assert_eq!(["0", "1", "2"].map(keep_alive), [Ok(0), Ok(1), Ok(1)]);
        assert_eq!(["-4", "1", "6", "99"].map(precision), [Ok(3), Ok(1), Ok(5), Ok(5)]);
        assert!(precision("0").is_err() && range("x").is_err());
    }
}
