//! HyperLogLogs: strings that tell about how many different elements they have been given, in the format of Redis.
//!
//! ```text
//!  ┌────────┬──────────┬───────────┬─────────────────────────┬───────────┐
//!  │ "HYLL" │ encoding │ 3 unused  │ last count, LE; highest │ registers │
//!  │        │ u8       │           │ bit: it is out of date  │           │
//!  └────────┴──────────┴───────────┴─────────────────────────┴───────────┘
//! ```
//! An element's hash names a register and a rank, which is the number of zeros behind its other bits and one; a register keeps
//! the highest rank it has seen. The *dense* encoding has 6 bits for each of the 16384 registers, lowest bits first; the *sparse*
//! one is in `sparse.rs`. How registers become a count is in `estimate.rs`.

mod estimate;
mod sparse;

pub use estimate::count_of;

/// How many registers there are.
pub const REGISTERS: usize = 1 << REGISTER_BITS;
const REGISTER_BITS: u32 = 14;
/// Bits of a hash beside those that name the register.
const RANK_BITS: u32 = 64 - REGISTER_BITS;
/// Bits of a register in the dense encoding.
const DENSE_BITS: usize = 6;
const MAGIC: &[u8] = b"HYLL";
const ENCODING_AT: usize = 4;
const COUNT_AT: usize = 8;
const HEADER_LEN: usize = 16;
const DENSE_LEN: usize = HEADER_LEN + REGISTERS * DENSE_BITS / 8;

/// The highest rank of every register.
pub type Registers = [u8; REGISTERS];

/// How the registers are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Encoding {
    /// 6 bits each.
    Dense,
    /// As runs of equal ones.
    Sparse,
}

/// The runs of a sparse HyperLogLog do not cover the registers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Corrupt;

/// How the registers are written; `None` for a string that is no HyperLogLog.
pub fn encoding(bytes: &[u8]) -> Option<Encoding> {
    match *bytes.get(..HEADER_LEN)?.strip_prefix(MAGIC)?.first()? {
        0 => (bytes.len() == DENSE_LEN).then_some(Encoding::Dense),
        1 => Some(Encoding::Sparse),
        _ => None,
    }
}

/// One that has seen nothing.
pub fn empty() -> Vec<u8> {
    let mut bytes = [MAGIC, &[1], &[0; HEADER_LEN - MAGIC.len() - 1]].concat();
    sparse::push_zeros(&mut bytes, REGISTERS);
    bytes
}

/// The register of an element, and its rank.
pub fn place(element: &[u8]) -> (usize, u8) {
    let hash = murmur(element);
    let rest = hash >> REGISTER_BITS | 1 << RANK_BITS;
    (hash as usize % REGISTERS, rest.trailing_zeros() as u8 + 1)
}

/// The count that was noted last, unless something has changed since.
pub fn noted_count(bytes: &[u8]) -> Option<u64> {
    let count = bytes[COUNT_AT..HEADER_LEN].try_into().map_or(u64::MAX, u64::from_le_bytes);
    (count >> 63 == 0).then_some(count)
}

/// Notes a count.
pub fn note_count(bytes: &mut [u8], count: u64) {
    bytes[COUNT_AT..HEADER_LEN].copy_from_slice(&count.to_le_bytes());
}

/// Says that the count that was noted is out of date.
pub fn forget_count(bytes: &mut [u8]) {
    bytes[HEADER_LEN - 1] |= 1 << 7;
}

/// Whether [`raise`] would change anything.
///
/// # Errors
/// [`Corrupt`] where no run covers the register.
pub fn is_below(bytes: &[u8], register: usize, rank: u8) -> Result<bool, Corrupt> {
    let registers = &bytes[HEADER_LEN..];
    let present = match encoding(bytes) {
        Some(Encoding::Dense) => dense_at(registers, register),
        _ => sparse::at(registers, register)?,
    };
    Ok(present < rank)
}

/// Brings a register to a rank, if it is below that; true if it was. One that gets longer than `sparse_max` bytes, or whose rank
/// the sparse encoding cannot hold, becomes dense.
///
/// # Errors
/// [`Corrupt`] where the runs do not cover the registers.
pub fn raise(bytes: &mut Vec<u8>, register: usize, rank: u8, sparse_max: usize) -> Result<bool, Corrupt> {
    if encoding(bytes) == Some(Encoding::Sparse) {
        match sparse::raise(bytes, register, rank, sparse_max)? {
            sparse::Raised::No => return Ok(false),
            sparse::Raised::Yes => {
                forget_count(bytes);
                return Ok(true);
            }
            sparse::Raised::TooLong => drop(make_dense(bytes)?),
        }
    }
    let registers = &mut bytes[HEADER_LEN..];
    if dense_at(registers, register) >= rank {
        return Ok(false);
    }
    set_dense(registers, register, rank);
    forget_count(bytes);
    Ok(true)
}

/// Makes it dense; true if it was not.
///
/// # Errors
/// [`Corrupt`] where the runs do not cover the registers.
pub fn make_dense(bytes: &mut Vec<u8>) -> Result<bool, Corrupt> {
    if encoding(bytes) == Some(Encoding::Dense) {
        return Ok(false);
    }
    let mut dense = vec![0; DENSE_LEN];
    dense[..HEADER_LEN].copy_from_slice(&bytes[..HEADER_LEN]);
    dense[ENCODING_AT] = 0;
    sparse::for_each_run(&bytes[HEADER_LEN..], |first, len, rank| {
        if rank > 0 {
            (first..first + len).for_each(|register| set_dense(&mut dense[HEADER_LEN..], register, rank));
        }
    })?;
    *bytes = dense;
    Ok(true)
}

/// Raises registers to those of a HyperLogLog.
///
/// # Errors
/// [`Corrupt`] where the runs do not cover the registers.
pub fn merge(into: &mut Registers, bytes: &[u8]) -> Result<(), Corrupt> {
    let registers = &bytes[HEADER_LEN..];
    if encoding(bytes) == Some(Encoding::Sparse) {
        return sparse::for_each_run(registers, |first, len, rank| {
            into[first..first + len].iter_mut().for_each(|highest| *highest = rank.max(*highest));
        });
    }
    // Four registers are three bytes.
    for (four, bytes) in into.as_chunks_mut::<4>().0.iter_mut().zip(registers.as_chunks::<3>().0) {
        let bits = u32::from_le_bytes([bytes[0], bytes[1], bytes[2], 0]);
        for (idx, highest) in four.iter_mut().enumerate() {
            *highest = (*highest).max((bits >> (DENSE_BITS * idx)) as u8 & RANK_MASK);
        }
    }
    Ok(())
}

/// The runs of a sparse one, as PFDEBUG DECODE shows them.
pub fn decoded(bytes: &[u8]) -> String {
    sparse::decoded(&bytes[HEADER_LEN..])
}

const RANK_MASK: u8 = (1 << DENSE_BITS) - 1;

/// Byte of a register's lowest bit, and that bit's number in it.
const fn dense_place(register: usize) -> (usize, usize) {
    (register * DENSE_BITS / 8, register * DENSE_BITS % 8)
}

fn dense_at(registers: &[u8], register: usize) -> u8 {
    let (at, bit) = dense_place(register);
    let high = registers.get(at + 1).copied().unwrap_or(0);
    (u16::from_le_bytes([registers[at], high]) >> bit) as u8 & RANK_MASK
}

fn set_dense(registers: &mut [u8], register: usize, rank: u8) {
    let (at, bit) = dense_place(register);
    let high = registers.get(at + 1).copied().unwrap_or(0);
    let others = u16::from_le_bytes([registers[at], high]) & !(u16::from(RANK_MASK) << bit);
    let [low, high] = (others | u16::from(rank) << bit).to_le_bytes();
    registers[at] = low;
    if let Some(byte) = registers.get_mut(at + 1) {
        *byte = high;
    }
}

/// `MurmurHash64A` (Austin Appleby, 2008) with Redis's seed.
fn murmur(bytes: &[u8]) -> u64 {
    const SEED: u64 = 0xADC8_3B19;
    const M: u64 = 0xC6A4_A793_5BD1_E995;
    const R: u32 = 47;
    let mut hash = SEED ^ (bytes.len() as u64).wrapping_mul(M);
    let (words, rest) = bytes.as_chunks::<8>();
    for word in words {
        let mut k = u64::from_le_bytes(*word).wrapping_mul(M);
        k ^= k >> R;
        hash = (hash ^ k.wrapping_mul(M)).wrapping_mul(M);
    }
    if !rest.is_empty() {
        let mut last = [0; 8];
        last[..rest.len()].copy_from_slice(rest);
        hash = (hash ^ u64::from_le_bytes(last)).wrapping_mul(M);
    }
    hash = (hash ^ hash >> R).wrapping_mul(M);
    hash ^ hash >> R
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn registers(bytes: &[u8]) -> Registers {
        let mut all = [0; REGISTERS];
        merge(&mut all, bytes).unwrap();
        all
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(60))]
        #[test]
        fn registers_are_kept_in_either_encoding(
            ranks in prop::collection::vec((0..REGISTERS, 0..6usize, 1..36u8), 1..400),
            sparse_max in prop::sample::select(vec![0usize, 40, 3000]),
        ) {
            let (mut bytes, mut model) = (empty(), [0u8; REGISTERS]);
            for (register, near, rank) in ranks {
                // Neighbours of few places, so that runs meet.
                let register = (register % 40 * 400 + near) % REGISTERS;
                prop_assert_eq!(is_below(&bytes, register, rank), Ok(model[register] < rank));
                prop_assert_eq!(raise(&mut bytes, register, rank, sparse_max), Ok(model[register] < rank));
                model[register] = model[register].max(rank);
                prop_assert!(encoding(&bytes).is_some() && noted_count(&bytes).is_none());
            }
            prop_assert!(registers(&bytes) == model);
            make_dense(&mut bytes).unwrap();
            prop_assert_eq!(encoding(&bytes), Some(Encoding::Dense));
            prop_assert!(registers(&bytes) == model);
        }

        #[test]
        fn no_bytes_make_it_fail_otherwise_than_with_an_error(
            runs in prop::collection::vec(any::<u8>(), 0..60), register in 0..REGISTERS,
        ) {
            let mut bytes = empty()[..HEADER_LEN].to_vec();
            bytes.extend(runs);
            let merged = merge(&mut [0; REGISTERS], &bytes);
            prop_assert_eq!(make_dense(&mut bytes.clone()).is_ok(), merged.is_ok());
            decoded(&bytes);
            for rank in [1, 20, 40] {
                let below = is_below(&bytes, register, rank);
                let raised = raise(&mut bytes, register, rank, 3000);
                prop_assert!(raised.is_err() || raised == below);
            }
        }
    }

    #[test]
    fn counts_are_near_the_truth() {
        let (mut bytes, mut next) = (empty(), 1);
        for n in 0..200_000u64 {
            let (register, rank) = place(&n.to_le_bytes());
            raise(&mut bytes, register, rank, 3000).unwrap();
            if n + 1 == next {
                let counted = count_of(&registers(&bytes));
                let error = counted.abs_diff(next) as f64 / next as f64;
                assert!(error < 0.03, "{counted} for {next}");
                next = next * 3 + 1;
            }
        }
    }

    #[test]
    fn strings_of_other_kinds_are_told_apart() {
        let sparse = empty();
        assert_eq!((encoding(&sparse), sparse.len()), (Some(Encoding::Sparse), 18));
        assert_eq!(encoding(&sparse[..15]), None);
        assert_eq!(encoding(b"HYLK\x01\0\0\0\0\0\0\0\0\0\0\0\x7f\xff"), None);
        assert_eq!(encoding(b"HYLL\x02\0\0\0\0\0\0\0\0\0\0\0\x7f\xff"), None);
        assert_eq!(encoding(b"HYLL\x00\0\0\0\0\0\0\0\0\0\0\0\x7f\xff"), None);
    }
}
