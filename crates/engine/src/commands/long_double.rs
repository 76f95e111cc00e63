//! C's `long double` on x86: 64 bits of mantissa, as INCRBYFLOAT computes with in Redis and Valkey.
//!
//! The arithmetic is LLVM's (`rustc_apfloat`); what is here is `strtold`'s syntax and `printf("%.17Lf")` without its
//! trailing zeros.

use rustc_apfloat::ieee::X87DoubleExtended;
use rustc_apfloat::{Float, Round};
use std::fmt;
use std::ops::Add;

/// Longer texts are no numbers (Valkey's MAX_LONG_DOUBLE_CHARS).
const TEXT_LEN_MAX: usize = 5 * 1024;
/// Decimals that are printed.
const DECIMALS: u32 = 17;

/// A number of 80 bits.
#[derive(Clone, Copy)]
pub(super) struct LongDouble(X87DoubleExtended);

impl LongDouble {
    pub(super) const ZERO: Self = Self(X87DoubleExtended::ZERO);

    /// Reads a number as `strtold` does; `None` for anything else, for surrounding spaces and for NaN.
    pub(super) fn parse(text: &[u8]) -> Option<Self> {
        if text.len() >= TEXT_LEN_MAX {
            return None;
        }
        let text = std::str::from_utf8(text).ok()?;
        let (negative, digits) = match text.as_bytes().first()? {
            b'-' => (true, &text[1..]),
            b'+' => (false, &text[1..]),
            _ => (false, text),
        };
        let magnitude = parse_magnitude(&digits.to_ascii_lowercase())?;
        Some(Self(if negative { -magnitude } else { magnitude }))
    }

    pub(super) fn is_finite(self) -> bool {
        self.0.is_finite()
    }

    /// Seconds as milliseconds, rounded up; what does not fit is the end of the range.
    pub(super) fn to_ms(self) -> i128 {
        let ms = (self.0 * X87DoubleExtended::from_u128(1000).value).value;
        ms.to_i128_r(i128::BITS as usize, Round::TowardPositive, &mut false).value
    }
}

fn parse_magnitude(text: &str) -> Option<X87DoubleExtended> {
    if text == "inf" || text == "infinity" {
        return Some(X87DoubleExtended::INFINITY);
    }
    let hex = text.strip_prefix("0x");
    let (mantissa, exponent) = match hex {
        Some(rest) => split_exponent(rest, 'p'),
        None => split_exponent(text, 'e'),
    };
    let is_digit = |c: char| if hex.is_some() { c.is_ascii_hexdigit() } else { c.is_ascii_digit() };
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    if whole.len() + fraction.len() == 0 || !whole.chars().chain(fraction.chars()).all(is_digit) {
        return None;
    }
    let exponent = exponent.map_or(Some(0), parse_exponent)?;
    let normal = match hex {
        Some(_) => normal_hex(whole, fraction, exponent),
        // With as many digits as a text can have, this much is out of range either way.
        None => format!("{whole}.{fraction}e{}", exponent.clamp(-20_000, 20_000)),
    };
    let parsed: X87DoubleExtended = normal.parse().ok()?;
    // Out of range is refused, as `strtold` reports ERANGE.
    if parsed.is_infinite() || (parsed.is_zero() && mantissa.chars().any(|c| c != '0' && c != '.')) {
        return None;
    }
    Some(parsed)
}

/// Digits with or without a sign; more than any text could make up for counts as 10^12.
fn parse_exponent(text: &str) -> Option<i64> {
    const FAR: i64 = 1_000_000_000_000;
    let digits = text.strip_prefix(['-', '+']).unwrap_or(text);
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let magnitude = digits.parse::<i64>().unwrap_or(FAR).min(FAR);
    Some(if text.starts_with('-') { -magnitude } else { magnitude })
}

/// The hexadecimal number `whole.fraction` × 2^exponent, short enough for a parser whose exponents are 16 bits wide: zeros
/// in front are left out, and all digits beyond what rounding looks at are one that says whether any is not zero.
fn normal_hex(whole: &str, fraction: &str, exponent: i64) -> String {
    /// Enough for 64 bits of mantissa, whatever the first digit, and the bit that decides on rounding.
    const DIGITS_MAX: usize = 20;
    let digits = format!("{whole}{fraction}");
    let significant = digits.trim_start_matches('0');
    let zeros = digits.len() - significant.len();
    let (kept, rest) = significant.split_at(significant.len().min(DIGITS_MAX));
    let sticky = u8::from(rest.bytes().any(|digit| digit != b'0'));
    // The value is 0.kept × 2^exponent from here on. Beyond the clamp it is out of range either way.
    let exponent = exponent + 4 * (whole.len() as i64 - zeros as i64);
    format!("0x0.{kept}{sticky}p{}", exponent.clamp(-20_000, 20_000))
}

fn split_exponent(text: &str, mark: char) -> (&str, Option<&str>) {
    match text.split_once(mark) {
        Some((mantissa, exponent)) => (mantissa, Some(exponent)),
        None => (text, None),
    }
}

impl Add for LongDouble {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        Self((self.0 + other.0).value)
    }
}

impl fmt::Display for LongDouble {
    /// Seventeen decimals without trailing zeros; "0" for both zeros.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bits = self.0.to_bits();
        let mantissa = bits as u64;
        let exponent = ((bits >> 64) & 0x7FFF) as i32 - 16383 - 63;
        let text = if mantissa == 0 {
            "0".to_owned()
        } else if exponent >= 0 {
            whole_number(mantissa, exponent as u32)
        } else {
            with_decimals(mantissa, exponent.unsigned_abs())
        };
        if self.0.is_negative() && text != "0" {
            f.write_str("-")?;
        }
        f.write_str(&text)
    }
}

/// The digits of mantissa × 2^exponent.
fn whole_number(mantissa: u64, exponent: u32) -> String {
    const BASE: u64 = 1_000_000_000;
    const STEP_BITS: u32 = 29;
    let mut limbs = vec![mantissa % BASE, mantissa / BASE % BASE, mantissa / BASE / BASE];
    let mut left = exponent;
    while left > 0 {
        let step = left.min(STEP_BITS);
        let mut carry = 0;
        for limb in &mut limbs {
            let value = (*limb << step) + carry;
            (*limb, carry) = (value % BASE, value / BASE);
        }
        if carry > 0 {
            limbs.push(carry);
        }
        left -= step;
    }
    while limbs.len() > 1 && limbs.last() == Some(&0) {
        limbs.pop();
    }
    let mut text = limbs.last().map_or(String::new(), u64::to_string);
    for limb in limbs.iter().rev().skip(1) {
        text.push_str(&format!("{limb:09}"));
    }
    text
}

/// mantissa / 2^shift to seventeen decimals, rounded to nearest, ties to even.
fn with_decimals(mantissa: u64, shift: u32) -> String {
    let unit = 10u128.pow(DECIMALS);
    // Below 2^64 × 10^17 < 2^121.
    let scaled = u128::from(mantissa) * unit;
    let rounded = if shift >= 128 {
        0
    } else {
        let (quotient, rest, half) = (scaled >> shift, scaled & ((1 << shift) - 1), 1u128 << (shift - 1));
        quotient + u128::from(rest > half || (rest == half && quotient & 1 == 1))
    };
    let decimals = format!("{:017}", rounded % unit);
    let decimals = decimals.trim_end_matches('0');
    let whole = rounded / unit;
    if decimals.is_empty() { whole.to_string() } else { format!("{whole}.{decimals}") }
}

#[cfg(test)]
mod tests {
    use super::LongDouble;

    fn sum(a: &str, b: &str) -> String {
        let parse = |text: &str| LongDouble::parse(text.as_bytes()).expect("a number");
        (parse(a) + parse(b)).to_string()
    }

    /// Answers of Valkey 9.1.
    #[test]
    fn sums_are_those_of_a_long_double() {
        for (a, b, expected) in [
            ("0.1", "0.2", "0.3"),
            ("1.5", "1.1", "2.6"),
            ("3", "1e-17", "3.00000000000000001"),
            ("1e17", "0.1", "100000000000000000.1015625"),
            ("-0", "0", "0"),
            ("5.0e3", "2", "5002"),
            ("0x10", "1", "17"),
            ("0x1.8p1", "0", "3"),
            (".5", "5.", "5.5"),
            ("18446744073709551616", "1", "18446744073709551616"),
        ] {
            assert_eq!(sum(a, b), expected, "{a} + {b}");
        }
    }

    /// The exponent of a hexadecimal number may be far outside the range of the number itself.
    #[test]
    fn long_hexadecimal_numbers_keep_their_exponents() {
        let zeros = "0".repeat(5000);
        assert_eq!(sum(&format!("0x1{zeros}p-20000"), "0"), "1");
        assert_eq!(sum(&format!("0x0.{zeros}8p20004"), "0"), "8");
        assert_eq!(sum(&format!("0x1{zeros}p-36440"), "0"), "0");
        assert!(LongDouble::parse(format!("0x1{zeros}").as_bytes()).is_none());
        assert!(LongDouble::parse(format!("0x1{zeros}p-40000").as_bytes()).is_none());
        // Half of the last bit, and a bit more, five thousand digits behind.
        assert_eq!(sum(&format!("0x10000000000000000.8{zeros}"), "0"), "18446744073709551616");
        assert_eq!(sum(&format!("0x10000000000000001.{zeros}1"), "0"), "18446744073709551618");
    }

    #[test]
    fn what_strtold_would_not_read_to_the_end_is_no_number() {
        for text in ["", " 1", "1 ", "abc", "1e", "1e+", "--1", "1.2.3", ".", "0x", "nan", "1f", "1e99999"] {
            assert!(LongDouble::parse(text.as_bytes()).is_none(), "{text:?}");
        }
        assert!(!LongDouble::parse(b"-inf").expect("infinity is one").is_finite());
    }
}
