//! One element of a pack: a short byte string or a number, and how it lies in memory.
//!
//! ```text
//!  plain element   head, bytes below 0x80
//!    0x00..0x80    the integer itself; that is the whole element
//!    0x80..0xb7    an ASCII string of 0..54 bytes
//!    0xb7          an ASCII string of 55..182 bytes, of whose length the next byte is what is beyond 55
//!    0xb8..0xc0    an integer of 2..9 digits of 7 bits, the lowest first
//!  other element   head, payload, length of both
//!    0xc0, 0xc1    an integer, a double of 8 bytes, little-endian
//!    0xc2, 0xc3    a string whose length follows in 2 or 4 bytes
//!    0xc4..0xf0    a string of 0..43 bytes
//!    0xf0..        a string whose length has its upper 4 bits here and its lower 8 in the next byte
//!  length          is told by its last byte
//!    0xc0..0xf8    0..55
//!    0xf8..0xff    upper bits, behind the lower 8
//!    0xff          behind four little-endian bytes
//! ```
//!
//! After the idea of Redis's listpack, which has a length behind every element. Whoever walks backwards needs none behind a plain one: of
//! all its bytes the head alone is 0x80 or more, and less than the end of any other element. A string that reads as an integer in
//! Redis's strict form is kept as one.

use crate::args::parse_int;
use std::borrow::Cow;

/// Strings of 7-bit bytes, from none on.
const ASCII: u8 = 0x80;
/// Longer ones.
const LONG_ASCII: u8 = 0xB7;
const LONG_ASCII_LEN: usize = (LONG_ASCII - ASCII) as usize;
const LONG_ASCII_END: usize = LONG_ASCII_LEN + 0x80;
/// Integers, from two digits on.
const DIGITS: u8 = 0xB8;
/// Heads from here on begin what has a length behind it, and such lengths end with bytes from here on.
const TAILED: u8 = 0xC0;
const INT64: u8 = 0xC0;
const DOUBLE: u8 = 0xC1;
const STRING16: u8 = 0xC2;
const STRING32: u8 = 0xC3;
/// Strings, from no byte on.
const STRING: u8 = 0xC4;
const STRING_END: usize = (STRING12 - STRING) as usize;
const STRING12: u8 = 0xF0;
/// The last byte of a length that takes two bytes.
const TAIL12: u8 = 0xF8;
const TAIL32: u8 = 0xFF;
/// Lengths from here on take two bytes.
const MEDIUM: usize = (TAIL12 - TAILED) as usize;
/// Lengths from here on take five bytes.
const LONG: usize = ((TAIL32 - TAIL12) as usize) << 8;
/// One element.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Element<'a> {
    /// A string that does not read as an integer.
    Bytes(&'a [u8]),
    /// An integer; its text is the decimal form.
    Int(i64),
    /// A double, such as a score.
    Double(f64),
}

impl<'a> Element<'a> {
    /// What `text` is kept as.
    pub fn of(text: &'a [u8]) -> Self {
        parse_int(text).map_or(Self::Bytes(text), Self::Int)
    }

    /// Its text. Of a double, Rust's shortest form.
    pub fn text(self) -> Cow<'a, [u8]> {
        match self {
            Self::Bytes(bytes) => Cow::Borrowed(bytes),
            Self::Int(int) => Cow::Owned(decimal(int, &mut [0; 20]).to_vec()),
            Self::Double(double) => Cow::Owned(double.to_string().into_bytes()),
        }
    }

    /// Has `read` see its text, for which an integer needs no allocation.
    #[inline]
    pub fn with_text<T>(self, read: impl FnOnce(&[u8]) -> T) -> T {
        match self {
            Self::Bytes(bytes) => read(bytes),
            Self::Int(int) => read(decimal(int, &mut [0; 20])),
            double @ Self::Double(_) => read(&double.text()),
        }
    }

    /// Length of its text in bytes.
    pub fn text_len(self) -> usize {
        match self {
            Self::Bytes(bytes) => bytes.len(),
            other => other.text().len(),
        }
    }

    /// As a number; `None` for a string.
    pub fn as_f64(self) -> Option<f64> {
        match self {
            Self::Bytes(_) => None,
            Self::Int(int) => Some(int as f64),
            Self::Double(double) => Some(double),
        }
    }
}

/// Decimal digits of an `i64`, without an allocation.
pub fn decimal(value: i64, buffer: &mut [u8; 20]) -> &[u8] {
    let mut at = buffer.len();
    let mut rest = value.unsigned_abs();
    loop {
        at -= 1;
        buffer[at] = b'0' + (rest % 10) as u8;
        rest /= 10;
        if rest == 0 {
            break;
        }
    }
    if value < 0 {
        at -= 1;
        buffer[at] = b'-';
    }
    &buffer[at..]
}

pub(super) fn u16_at(bytes: &[u8], at: usize) -> usize {
    usize::from(u16::from_le_bytes([bytes[at], bytes[at + 1]]))
}

fn u32_at(bytes: &[u8], at: usize) -> usize {
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]) as usize
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    bytes[at..].first_chunk().map_or(0, |word| u64::from_le_bytes(*word))
}

/// The number whose upper bits are what one byte is above `least`, and whose lower ones are another byte.
fn u12(upper: u8, least: u8, lower: u8) -> usize {
    usize::from(upper - least) << 8 | usize::from(lower)
}

/// The offset behind the plain element at `at`.
#[inline]
fn plain_end(bytes: &[u8], at: usize) -> usize {
    at + match bytes[at] {
        ..ASCII => 1,
        head @ ASCII..LONG_ASCII => 1 + usize::from(head - ASCII),
        LONG_ASCII => 2 + LONG_ASCII_LEN + usize::from(bytes[at + 1]),
        head => 1 + digits_of(head),
    }
}

/// How many digits an integer with this head has.
fn digits_of(head: u8) -> usize {
    2 + usize::from(head - DIGITS)
}

/// Length of head and payload of the element at `at`, which is not plain.
#[inline]
fn body_len(bytes: &[u8], at: usize) -> usize {
    match bytes[at] {
        STRING16 => 3 + u16_at(bytes, at + 1),
        STRING32 => 5 + u32_at(bytes, at + 1),
        head @ STRING..STRING12 => 1 + usize::from(head - STRING),
        head @ STRING12.. => 2 + u12(head, STRING12, bytes[at + 1]),
        _ => 9,
    }
}

const fn tail_len(body: usize) -> usize {
    match body {
        ..MEDIUM => 1,
        MEDIUM..LONG => 2,
        _ => 5,
    }
}

/// The offset behind the element at `at`.
#[inline]
pub(super) fn end_of(bytes: &[u8], at: usize) -> usize {
    if bytes[at] < TAILED {
        return plain_end(bytes, at);
    }
    let body = body_len(bytes, at);
    at + body + tail_len(body)
}

/// Where the element that ends at `end` begins; none begins before `first`.
#[inline]
pub(super) fn start_before(bytes: &[u8], first: usize, end: usize) -> usize {
    match bytes[end - 1] {
        ..TAILED => plain_start(bytes, first, end),
        last @ TAILED..TAIL12 => end - 1 - usize::from(last - TAILED),
        TAIL32 => end - 5 - u32_at(bytes, end - 5),
        last => end - 2 - u12(last, TAIL12, bytes[end - 2]),
    }
}

/// Where the plain element that ends at `end` begins: at the last head from 0x80 on, or it is an integer that is its own head. In
/// the second case others may be before it, or the head is not one but the end of another element.
#[inline]
fn plain_start(bytes: &[u8], first: usize, end: usize) -> usize {
    const HIGH_BITS: u128 = u128::from_le_bytes([0x80; 16]);
    let least = first.max(end.saturating_sub(LONG_ASCII_END + 1));
    let mut left = end;
    while let Some(word) = bytes[least..left].last_chunk() {
        let high = u128::from_le_bytes(*word) & HIGH_BITS;
        if high != 0 {
            return start_at_head(bytes, left - 1 - high.leading_zeros() as usize / 8, end);
        }
        left -= size_of::<u128>();
    }
    match bytes[least..left].iter().rposition(|byte| *byte >= ASCII) {
        Some(at) => start_at_head(bytes, least + at, end),
        None => end - 1,
    }
}

#[inline]
fn start_at_head(bytes: &[u8], head: usize, end: usize) -> usize {
    if bytes[head] < TAILED && plain_end(bytes, head) == end { head } else { end - 1 }
}

/// The element at `at`.
#[inline]
pub(super) fn read(bytes: &[u8], at: usize) -> Element<'_> {
    let start = match bytes[at] {
        small @ ..ASCII => return Element::Int(small.into()),
        ASCII..LONG_ASCII => return Element::Bytes(&bytes[at + 1..plain_end(bytes, at)]),
        LONG_ASCII => return Element::Bytes(&bytes[at + 2..plain_end(bytes, at)]),
        head @ DIGITS..TAILED => {
            return Element::Int(read_digits(&bytes[at + 1..=at + digits_of(head)]));
        }
        INT64 => return Element::Int(u64_at(bytes, at + 1) as i64),
        DOUBLE => return Element::Double(f64::from_bits(u64_at(bytes, at + 1))),
        STRING16 => 3,
        STRING32 => 5,
        STRING..STRING12 => 1,
        STRING12.. => 2,
    };
    Element::Bytes(&bytes[at + start..at + body_len(bytes, at)])
}

/// The element at `at`, and the offset behind it: for walks, which need both.
#[inline]
pub(super) fn read_on(bytes: &[u8], at: usize) -> (Element<'_>, usize) {
    match bytes[at] {
        small @ ..ASCII => (Element::Int(small.into()), at + 1),
        head @ ASCII..LONG_ASCII => {
            let end = at + 1 + usize::from(head - ASCII);
            (Element::Bytes(&bytes[at + 1..end]), end)
        }
        _ => (read(bytes, at), end_of(bytes, at)),
    }
}

/// Bytes that an element takes at most: what can be told without looking at its text.
#[inline]
pub(super) const fn encoded_len_max(element: Element<'_>) -> usize {
    match element {
        Element::Bytes(bytes) => bytes.len() + 10,
        Element::Int(_) | Element::Double(_) => 10,
    }
}

/// Bytes that an element takes.
#[inline]
pub(super) fn encoded_len(element: Element<'_>) -> usize {
    let body = match element {
        Element::Int(0..0x80) => return 1,
        Element::Int(int) => match digits_for(int) {
            digits @ ..10 => return 1 + digits,
            _ => 9,
        },
        Element::Double(_) => 9,
        Element::Bytes(bytes) => match bytes.len() {
            len @ ..LONG_ASCII_LEN if bytes.is_ascii() => return 1 + len,
            len @ ..LONG_ASCII_END if bytes.is_ascii() => return 2 + len,
            len @ ..STRING_END => 1 + len,
            len @ ..0x1000 => 2 + len,
            len @ ..0x1_0000 => 3 + len,
            len => 5 + len,
        },
    };
    body + tail_len(body)
}

/// Hands out the bytes of an element, piece by piece.
pub(super) fn encode(element: Element<'_>, put: &mut impl FnMut(&[u8])) {
    match element {
        Element::Int(int @ 0..0x80) => put(&[int as u8]),
        Element::Int(int) => match digits_for(int) {
            digits @ ..10 => encode_digits(int, digits, put),
            _ => encode_tailed(&[INT64], &int.to_le_bytes(), put),
        },
        Element::Double(double) => encode_tailed(&[DOUBLE], &double.to_le_bytes(), put),
        Element::Bytes(bytes) => encode_string(bytes, put),
    }
}

fn encode_string(bytes: &[u8], put: &mut impl FnMut(&[u8])) {
    let plain = bytes.len() < LONG_ASCII_END && bytes.is_ascii();
    match bytes.len() {
        len if plain => {
            match len {
                ..LONG_ASCII_LEN => put(&[ASCII + len as u8]),
                _ => put(&[LONG_ASCII, (len - LONG_ASCII_LEN) as u8]),
            }
            put(bytes);
        }
        len @ ..STRING_END => encode_tailed(&[STRING + len as u8], bytes, put),
        len @ ..0x1000 => encode_tailed(&[STRING12 + (len >> 8) as u8, len as u8], bytes, put),
        len @ ..0x1_0000 => {
            let [low, high] = (len as u16).to_le_bytes();
            encode_tailed(&[STRING16, low, high], bytes, put);
        }
        len => {
            let [a, b, c, d] = (len as u32).to_le_bytes();
            encode_tailed(&[STRING32, a, b, c, d], bytes, put);
        }
    }
}

fn encode_tailed(head: &[u8], payload: &[u8], put: &mut impl FnMut(&[u8])) {
    put(head);
    put(payload);
    match head.len() + payload.len() {
        body @ ..MEDIUM => put(&[TAILED + body as u8]),
        body @ MEDIUM..LONG => put(&[body as u8, TAIL12 + (body >> 8) as u8]),
        body => {
            put(&(body as u32).to_le_bytes());
            put(&[TAIL32]);
        }
    }
}

/// How many digits of 7 bits hold an integer with its sign, two at least.
const fn digits_for(int: i64) -> usize {
    let bits = 65 - (int ^ (int >> 63)).leading_zeros() as usize;
    if bits <= 14 { 2 } else { bits.div_ceil(7) }
}

fn encode_digits(int: i64, digits: usize, put: &mut impl FnMut(&[u8])) {
    let mut all = [0; 10];
    all[0] = DIGITS + (digits - 2) as u8;
    for (digit, byte) in all[1..=digits].iter_mut().enumerate() {
        *byte = (int >> (7 * digit)) as u8 & 0x7F;
    }
    put(&all[..=digits]);
}

fn read_digits(digits: &[u8]) -> i64 {
    let int = digits.iter().rev().fold(0, |int, digit| int << 7 | i64::from(*digit));
    // The sign comes down with the shift.
    let shift = 64 - 7 * digits.len();
    int << shift >> shift
}
