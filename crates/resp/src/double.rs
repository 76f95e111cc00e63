//! Doubles as text, digit for digit as Valkey writes them.
//!
//! Valkey's `d2string` prints doubles with an integral value below 2^62 as integers and the others with Grisu2
//! (Florian Loitsch, "Printing Floating-Point Numbers Quickly and Accurately with Integers", PLDI 2010). Grisu2 always
//! reads back to the same double, but some results are not the shortest or not the closest, so
//! the standard library's text would differ: 1044832739001210.8 is `1044832739001210.7` on the wire.

/// Bytes that hold any text: a sign, 17 digits, a point, and either `e-308` or seven more digits.
pub const TEXT_LEN_MAX: usize = 32;

/// Digits that Grisu2 produces at most.
const DIGITS_MAX: usize = 18;

/// Integral values up to this magnitude are printed as integers: `LLONG_MAX / 2` as a double.
const INTEGER_MAX: f64 = (1_u64 << 62) as f64;

/// Bits of a double's significand without the hidden one.
const FRACTION_BITS: u32 = f64::MANTISSA_DIGITS - 1;
const HIDDEN_BIT: u64 = 1 << FRACTION_BITS;
/// What the stored exponent exceeds the exponent of an integral significand by.
const EXPONENT_BIAS: i32 = 1075;

/// Writes the text of `value` into `space` and returns it.
pub(crate) fn double_text(value: f64, space: &mut [u8; TEXT_LEN_MAX]) -> &[u8] {
    if value != 0.0 && value.abs() <= INTEGER_MAX && value.trunc() == value {
        let mut text = Text { space, len: 0 };
        text.push(itoa::Buffer::new().format(value as i64).as_bytes());
        let len = text.len;
        return &space[..len];
    }
    grisu_text(value, space)
}

/// The text of `value` where integral values are no exception: 100000000 is `1e+8`. Valkey's digests are made of it.
pub fn grisu_text(value: f64, space: &mut [u8; TEXT_LEN_MAX]) -> &[u8] {
    let mut text = Text { space, len: 0 };
    if value.is_nan() {
        text.push(b"nan");
    } else if value.is_infinite() {
        text.push(if value > 0.0 { b"inf" } else { b"-inf" });
    } else if value == 0.0 {
        text.push(if value.is_sign_negative() { b"-0" } else { b"0" });
    } else {
        if value < 0.0 {
            text.push(b"-");
        }
        let mut digits = [0; DIGITS_MAX];
        let (count, exponent) = grisu2(value.abs(), &mut digits);
        place_digits(&digits[..count], exponent, value < 0.0, &mut text);
    }
    let len = text.len;
    &space[..len]
}

/// A text being written.
struct Text<'a> {
    space: &'a mut [u8; TEXT_LEN_MAX],
    len: usize,
}

impl Text<'_> {
    fn push(&mut self, part: &[u8]) {
        self.space[self.len..self.len + part.len()].copy_from_slice(part);
        self.len += part.len();
    }

    fn zeros(&mut self, count: usize) {
        self.space[self.len..self.len + count].fill(b'0');
        self.len += count;
    }
}

/// Lays `digits` * 10^`exponent` out: plainly where that stays short, else in scientific notation.
fn place_digits(digits: &[u8], exponent: i32, negative: bool, text: &mut Text<'_>) {
    let count = digits.len() as i32;
    let leading = exponent + count - 1;
    if exponent >= 0 && leading < count + 7 {
        text.push(digits);
        text.zeros(exponent as usize);
    } else if exponent < 0 && (exponent > -7 || leading.abs() < 4) {
        let point = count + exponent;
        if point <= 0 {
            text.push(b"0.");
            text.zeros(point.unsigned_abs() as usize);
            text.push(digits);
        } else {
            let (whole, fraction) = digits.split_at(point as usize);
            text.push(whole);
            text.push(b".");
            text.push(fraction);
        }
    } else {
        // Valkey has room for 18 bytes of sign and digits here.
        let (first, rest) = digits[..digits.len().min(DIGITS_MAX - usize::from(negative))].split_at(1);
        text.push(first);
        if !rest.is_empty() {
            text.push(b".");
            text.push(rest);
        }
        text.push(if leading < 0 { b"e-" } else { b"e+" });
        text.push(itoa::Buffer::new().format(leading.unsigned_abs()).as_bytes());
    }
}

/// `significand` * 2^`exponent`
#[derive(Clone, Copy)]
struct Float {
    significand: u64,
    exponent: i32,
}

impl Float {
    /// A positive finite double.
    fn of(value: f64) -> Self {
        let bits = value.to_bits();
        let fraction = bits & (HIDDEN_BIT - 1);
        match (bits >> FRACTION_BITS) as i32 {
            0 => Self { significand: fraction, exponent: 1 - EXPONENT_BIAS },
            stored => Self { significand: fraction | HIDDEN_BIT, exponent: stored - EXPONENT_BIAS },
        }
    }

    /// The same number with the top bit of its significand set.
    fn normalized(self) -> Self {
        let shift = self.significand.leading_zeros();
        Self { significand: self.significand << shift, exponent: self.exponent - shift as i32 }
    }

    /// The middles between this double and its neighbours, lower and upper, both with the exponent of the upper one,
    /// which is normalized.
    fn boundaries(self) -> (Self, Self) {
        let upper = Self { significand: self.significand * 2 + 1, exponent: self.exponent - 1 }.normalized();
        // Below a power of two doubles lie twice as close.
        let shift = if self.significand == HIDDEN_BIT { 2 } else { 1 };
        let significand = (self.significand << shift) - 1;
        let up = self.exponent - shift - upper.exponent;
        (Self { significand: significand << up, exponent: upper.exponent }, upper)
    }

    /// The upper 64 bits of the product, rounded.
    fn times(self, other: Self) -> Self {
        let product = u128::from(self.significand) * u128::from(other.significand) + (1 << 63);
        Self { significand: (product >> 64) as u64, exponent: self.exponent + other.exponent + 64 }
    }
}

/// The decimal digits of a positive finite double and the power of ten they are to be multiplied by.
fn grisu2(value: f64, digits: &mut [u8; DIGITS_MAX]) -> (usize, i32) {
    let exact = Float::of(value);
    let (lower, upper) = exact.boundaries();
    let (power, power_exponent) = cached_power(upper.exponent);
    let scaled = exact.normalized().times(power);
    let (mut lower, mut upper) = (lower.times(power), upper.times(power));
    // The products are off by one unit at most: stay inside.
    lower.significand += 1;
    upper.significand -= 1;
    let (count, exponent) = generate(scaled, lower, upper, digits);
    (count, exponent - power_exponent)
}

/// A power of ten, and its exponent, that brings a number with this binary exponent into the range where its integral
/// part fits 32 bits: the exponent of the product is in -60..=-32.
fn cached_power(exponent: i32) -> (Float, i32) {
    const LOG10_2: f64 = 0.301_029_995_663_981_14;
    // Two powers may fit: start where Valkey starts, to end where it ends.
    let approximate = (-f64::from(exponent + POWERS.len() as i32) * LOG10_2) as i32;
    let mut idx = (approximate - POWER_FIRST) / POWER_STEP;
    loop {
        let ten = POWER_FIRST + idx * POWER_STEP;
        // floor(log2(10^ten)) - 63, exact for |ten| < 350.
        let binary = ((ten * 217_706) >> 16) - 63;
        match exponent + binary + 64 {
            ..-60 => idx += 1,
            -31.. => idx -= 1,
            _ => return (Float { significand: POWERS[idx as usize], exponent: binary }, ten),
        }
    }
}

/// Writes the digits of the shortest number it finds between the bounds, near `scaled`. Returns their count and the
/// power of ten of the last one.
fn generate(scaled: Float, lower: Float, upper: Float, digits: &mut [u8; DIGITS_MAX]) -> (usize, i32) {
    let distance = upper.significand - scaled.significand;
    let mut width = upper.significand - lower.significand;
    let shift = upper.exponent.unsigned_abs();
    let one = 1_u64 << shift;
    let mut whole = upper.significand >> shift;
    let mut fraction = upper.significand & (one - 1);
    let mut count = 0;
    let mut unit = 1_000_000_000;
    for exponent in (0..10).rev() {
        let digit = whole / unit;
        if digit > 0 || count > 0 {
            digits[count] = b'0' + digit as u8;
            count += 1;
        }
        whole %= unit;
        let rest = (whole << shift) + fraction;
        if rest <= width {
            round(&mut digits[..count], width, rest, unit << shift, distance);
            return (count, exponent);
        }
        unit /= 10;
    }
    let mut scale = 1_u64;
    let mut exponent = 0;
    loop {
        fraction *= 10;
        width *= 10;
        scale *= 10;
        exponent -= 1;
        let digit = fraction >> shift;
        if digit > 0 || count > 0 {
            digits[count] = b'0' + digit as u8;
            count += 1;
        }
        fraction &= one - 1;
        if fraction < width {
            round(&mut digits[..count], width, fraction, one, distance.wrapping_mul(scale));
            return (count, exponent);
        }
    }
}

/// Lowers the last digit while that brings the number, `rest` below the upper bound, nearer to the exact one,
/// `distance` below it, and keeps it within `width` of the bound.
fn round(digits: &mut [u8], width: u64, mut rest: u64, unit: u64, distance: u64) {
    let Some(last) = digits.last_mut() else { return };
    while rest < distance
        && width - rest >= unit
        && (rest + unit < distance || distance - rest > rest + unit - distance)
    {
        *last -= 1;
        rest += unit;
    }
}

/// The power of ten of the first cached one, and from each to the next.
const POWER_FIRST: i32 = -348;
const POWER_STEP: i32 = 8;

/// The first 64 bits of 10^-348, 10^-340, .. 10^340, rounded to nearest.
#[rustfmt::skip]
const POWERS: [u64; 87] = [
    0xfa8fd5a0081c0288, 0xbaaee17fa23ebf76, 0x8b16fb203055ac76, 0xcf42894a5dce35ea,
    0x9a6bb0aa55653b2d, 0xe61acf033d1a45df, 0xab70fe17c79ac6ca, 0xff77b1fcbebcdc4f,
    0xbe5691ef416bd60c, 0x8dd01fad907ffc3c, 0xd3515c2831559a83, 0x9d71ac8fada6c9b5,
    0xea9c227723ee8bcb, 0xaecc49914078536d, 0x823c12795db6ce57, 0xc21094364dfb5637,
    0x9096ea6f3848984f, 0xd77485cb25823ac7, 0xa086cfcd97bf97f4, 0xef340a98172aace5,
    0xb23867fb2a35b28e, 0x84c8d4dfd2c63f3b, 0xc5dd44271ad3cdba, 0x936b9fcebb25c996,
    0xdbac6c247d62a584, 0xa3ab66580d5fdaf6, 0xf3e2f893dec3f126, 0xb5b5ada8aaff80b8,
    0x87625f056c7c4a8b, 0xc9bcff6034c13053, 0x964e858c91ba2655, 0xdff9772470297ebd,
    0xa6dfbd9fb8e5b88f, 0xf8a95fcf88747d94, 0xb94470938fa89bcf, 0x8a08f0f8bf0f156b,
    0xcdb02555653131b6, 0x993fe2c6d07b7fac, 0xe45c10c42a2b3b06, 0xaa242499697392d3,
    0xfd87b5f28300ca0e, 0xbce5086492111aeb, 0x8cbccc096f5088cc, 0xd1b71758e219652c,
    0x9c40000000000000, 0xe8d4a51000000000, 0xad78ebc5ac620000, 0x813f3978f8940984,
    0xc097ce7bc90715b3, 0x8f7e32ce7bea5c70, 0xd5d238a4abe98068, 0x9f4f2726179a2245,
    0xed63a231d4c4fb27, 0xb0de65388cc8ada8, 0x83c7088e1aab65db, 0xc45d1df942711d9a,
    0x924d692ca61be758, 0xda01ee641a708dea, 0xa26da3999aef774a, 0xf209787bb47d6b85,
    0xb454e4a179dd1877, 0x865b86925b9bc5c2, 0xc83553c5c8965d3d, 0x952ab45cfa97a0b3,
    0xde469fbd99a05fe3, 0xa59bc234db398c25, 0xf6c69a72a3989f5c, 0xb7dcbf5354e9bece,
    0x88fcf317f22241e2, 0xcc20ce9bd35c78a5, 0x98165af37b2153df, 0xe2a0b5dc971f303a,
    0xa8d9d1535ce3b396, 0xfb9b7cd9a4a7443c, 0xbb764c4ca7a44410, 0x8bab8eefb6409c1a,
    0xd01fef10a657842c, 0x9b10a4e5e9913129, 0xe7109bfba19c0c9d, 0xac2820d9623bf429,
    0x80444b5e7aa7cf85, 0xbf21e44003acdd2d, 0x8e679c2f5e44ff8f, 0xd433179d9c8cb841,
    0x9e19db92b4e31ba9, 0xeb96bf6ebadf77d9, 0xaf87023b9bf0ee6b,
];

#[cfg(test)]
mod tests {
    use super::*;

    fn check(value: f64, text: &str) {
        let mut space = [0; TEXT_LEN_MAX];
        assert_eq!(std::str::from_utf8(double_text(value, &mut space)), Ok(text), "{value:e}");
    }

    #[test]
    fn special_values() {
        check(f64::NAN, "nan");
        check(-f64::NAN, "nan");
        check(f64::INFINITY, "inf");
        check(f64::NEG_INFINITY, "-inf");
        check(0.0, "0");
        check(-0.0, "-0");
    }

    /// Texts taken from Valkey 9.1 (`ZADD`, `ZSCORE`), one `<bits> <text>` a line; all kinds of magnitudes, and many
    /// where Grisu2 is not the shortest or the closest.
    #[test]
    fn texts_are_those_of_valkey() {
        let samples = include_str!("../tests/data/doubles.txt");
        for line in samples.lines() {
            let (bits, text) = line.split_once(' ').expect("two columns");
            check(f64::from_bits(u64::from_str_radix(bits, 16).expect("hexadecimal")), text);
        }
        assert!(samples.lines().count() > 400);
    }
}
