//! LZF, the compression of long strings in RDB (Marc Lehmann's format): reading it.
//!
//! A control byte below 32 is followed by that many bytes and one more, as they are. Otherwise its upper three bits are a
//! length (7: another byte is added to it), the lower five with the next byte a distance: so many bytes and two more are
//! repeated from there, possibly overlapping what they become.

const LITERAL_END: usize = 1 << 5;

/// Decompresses to exactly `len` bytes; `None` if the input does not make sense.
pub(super) fn decompress(input: &[u8], len: usize) -> Option<Vec<u8>> {
    // A few bytes of input must not reserve what they claim to be.
    let mut out = Vec::with_capacity(len.min(input.len().saturating_mul(64)));
    let mut input = input.iter();
    while let Some(&control) = input.next() {
        let control = usize::from(control);
        if control < LITERAL_END {
            let (literal, rest) = input.as_slice().split_at_checked(control + 1)?;
            out.extend_from_slice(literal);
            input = rest.iter();
        } else {
            let mut run = control >> 5;
            if run == 7 {
                run += usize::from(*input.next()?);
            }
            let distance = ((control & 0x1F) << 8 | usize::from(*input.next()?)) + 1;
            let from = out.len().checked_sub(distance)?;
            for at in from..from + run + 2 {
                out.push(out[at]);
            }
        }
        if out.len() > len {
            return None;
        }
    }
    (out.len() == len).then_some(out)
}

#[cfg(test)]
mod tests {
    use super::decompress;

    #[test]
    fn runs_are_repeated() {
        // As Valkey compresses a hundred times x.
        assert_eq!(decompress(b"\x01xx\xe0W\x00\x01xx", 100), Some(vec![b'x'; 100]));
        assert_eq!(decompress(b"\x02abc\x20\x02", 6), Some(b"abcabc".to_vec()));
    }

    #[test]
    fn nonsense_is_refused() {
        for (input, len) in [
            (&b"\x01xx\xe0W\x00\x01xx"[..], 99),
            (b"\x01xx", 3),
            (b"\x05xx", 6),
            (b"\x20\x00", 3),
            (b"\xe0", 3),
            (b"\x01xx\x20", 5),
        ] {
            assert_eq!(decompress(input, len), None, "{input:?}");
        }
    }
}
