//! From registers to a count: Otmar Ertl, "New cardinality estimation algorithms for HyperLogLog sketches" (2017), which is
//! unbiased from nothing to the largest counts.

use super::{RANK_BITS, REGISTERS, Registers};

/// How many different elements these registers have seen, about: the standard error is 0.81 %.
pub fn count_of(registers: &Registers) -> u64 {
    /// 1 / (2 ln 2).
    const ALPHA: f64 = 0.721_347_520_444_481_7;
    let mut with_rank = [0u32; 64];
    for rank in registers {
        with_rank[usize::from(*rank & 63)] += 1;
    }
    let m = REGISTERS as f64;
    let highest = RANK_BITS as usize + 1;
    let mut z = m * tau((m - f64::from(with_rank[highest])) / m);
    for count in with_rank[1..highest].iter().rev() {
        z = (z + f64::from(*count)) * 0.5;
    }
    z += m * sigma(f64::from(with_rank[0]) / m);
    (ALPHA * m * m / z).round() as u64
}

/// Correction for registers without an element.
#[expect(clippy::float_cmp, reason = "the series has ended when it changes no more")]
fn sigma(mut x: f64) -> f64 {
    if x == 1.0 {
        return f64::INFINITY;
    }
    let (mut y, mut z) = (1.0, x);
    loop {
        x *= x;
        let before = z;
        z += x * y;
        y += y;
        if before == z {
            return z;
        }
    }
}

/// Correction for registers with the highest rank.
#[expect(clippy::float_cmp, reason = "the series has ended when it changes no more")]
fn tau(mut x: f64) -> f64 {
    if x == 0.0 || x == 1.0 {
        return 0.0;
    }
    let (mut y, mut z) = (1.0, 1.0 - x);
    loop {
        x = x.sqrt();
        let before = z;
        y *= 0.5;
        z -= (1.0 - x) * (1.0 - x) * y;
        if before == z {
            return z / 3.0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_and_everything_have_counts() {
        assert_eq!(count_of(&[0; REGISTERS]), 0);
        let mut one = [0; REGISTERS];
        one[77] = 9;
        assert_eq!(count_of(&one), 1);
        assert!(count_of(&[51; REGISTERS]) > 1 << 60);
    }
}
