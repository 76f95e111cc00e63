//! One element of a pack: a short byte string or a number, and how it lies in memory.
//!
//! ```text
//!  element = head, payload, length of both
//!  head    0x00..0x80  the integer itself; that is the whole element
//!          0x80..0xc0  a string of 0..63 bytes
//!          0xc0..0xc4  an integer of 2, 3, 4 or 8 bytes, little-endian
//!          0xc4, 0xc5  a string whose length follows in 2 or 4 bytes
//!          0xc6        a double of 8 bytes
//!          0xd0..0xe0  a string whose length has its upper 4 bits here and its lower 8 in the next byte
//!  length  is told by its last byte
//!          0x80..0xf0  0..0x6f
//!          0xf0..0xff  upper 4 bits, behind the lower 8
//!          0xff        behind four little-endian bytes
//! ```
//!
//! After the idea of Redis's listpack. A string that reads as an integer in Redis's strict form is kept as one.

use crate::args::parse_int;
use std::borrow::Cow;

const SHORT_STRING: u8 = 0x80;
const INT16: u8 = 0xC0;
const INT24: u8 = 0xC1;
const INT32: u8 = 0xC2;
const INT64: u8 = 0xC3;
const STRING16: u8 = 0xC4;
const STRING32: u8 = 0xC5;
const DOUBLE: u8 = 0xC6;
const STRING12: u8 = 0xD0;
/// The last byte of a length that takes one byte, or of no length at all where it is less.
const TAIL: u8 = 0x80;
const TAIL12: u8 = 0xF0;
const TAIL32: u8 = 0xFF;
/// Lengths from here on take two bytes.
const MEDIUM: usize = (TAIL12 - TAIL) as usize;
/// Lengths from here on take five bytes.
const LONG: usize = ((TAIL32 - TAIL12) as usize) << 8;
/// Bytes around an element's text.
pub(super) const ELEMENT_FRAME_MAX: usize = 10;
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

/// The number whose upper bits are what one byte is above `least`, and whose lower ones are another byte.
fn u12(upper: u8, least: u8, lower: u8) -> usize {
    usize::from(upper - least) << 8 | usize::from(lower)
}

/// Length of head and payload of the element at `at`.
#[inline]
fn body_len(bytes: &[u8], at: usize) -> usize {
    match bytes[at] {
        0..SHORT_STRING => 1,
        head @ SHORT_STRING..INT16 => 1 + usize::from(head - SHORT_STRING),
        INT16 => 3,
        INT24 => 4,
        INT32 => 5,
        STRING16 => 3 + u16_at(bytes, at + 1),
        STRING32 => 5 + u32_at(bytes, at + 1),
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
    if bytes[at] < SHORT_STRING {
        return at + 1;
    }
    let body = body_len(bytes, at);
    at + body + tail_len(body)
}

/// Where the element that ends at `end` begins.
pub(super) fn start_before(bytes: &[u8], end: usize) -> usize {
    match bytes[end - 1] {
        ..TAIL => end - 1,
        last @ TAIL..TAIL12 => end - 1 - usize::from(last - TAIL),
        TAIL32 => end - 5 - u32_at(bytes, end - 5),
        last => end - 2 - u12(last, TAIL12, bytes[end - 2]),
    }
}

/// The element at `at`.
#[inline]
pub(super) fn read(bytes: &[u8], at: usize) -> Element<'_> {
    let int = |len: usize| {
        let mut word = [0; 8];
        word[8 - len..].copy_from_slice(&bytes[at + 1..=at + len]);
        // The sign comes down with the shift.
        i64::from_le_bytes(word) >> (64 - 8 * len)
    };
    match bytes[at] {
        small @ 0..SHORT_STRING => Element::Int(small.into()),
        INT16 => Element::Int(int(2)),
        INT24 => Element::Int(int(3)),
        INT32 => Element::Int(int(4)),
        INT64 => Element::Int(int(8)),
        DOUBLE => Element::Double(f64::from_bits(int(8) as u64)),
        head => {
            let start = match head {
                STRING16 => 3,
                STRING32 => 5,
                STRING12.. => 2,
                _ => 1,
            };
            Element::Bytes(&bytes[at + start..at + body_len(bytes, at)])
        }
    }
}

/// The element at `at`, and the offset behind it: for walks, which need both.
#[inline]
pub(super) fn read_on(bytes: &[u8], at: usize) -> (Element<'_>, usize) {
    match bytes[at] {
        small @ 0..SHORT_STRING => (Element::Int(small.into()), at + 1),
        head @ SHORT_STRING..INT16 => {
            let end = at + 1 + usize::from(head - SHORT_STRING);
            (Element::Bytes(&bytes[at + 1..end]), end + 1)
        }
        head @ STRING12.. => {
            let body = 2 + u12(head, STRING12, bytes[at + 1]);
            (Element::Bytes(&bytes[at + 2..at + body]), at + body + tail_len(body))
        }
        _ => (read(bytes, at), end_of(bytes, at)),
    }
}

/// Writes an element with its tail.
pub(super) fn encode(element: Element<'_>, out: &mut Vec<u8>) {
    let start = out.len();
    match element {
        Element::Int(int @ 0..0x80) => return out.push(int as u8),
        Element::Int(int) => encode_int(int, out),
        Element::Double(double) => {
            out.push(DOUBLE);
            out.extend_from_slice(&double.to_le_bytes());
        }
        Element::Bytes(bytes) => {
            match bytes.len() {
                len @ 0..64 => out.push(SHORT_STRING + len as u8),
                len @ 64..0x1000 => out.extend_from_slice(&[STRING12 + (len >> 8) as u8, len as u8]),
                len @ 0x1000..0x1_0000 => {
                    out.push(STRING16);
                    out.extend_from_slice(&(len as u16).to_le_bytes());
                }
                len => {
                    out.push(STRING32);
                    out.extend_from_slice(&(len as u32).to_le_bytes());
                }
            }
            out.extend_from_slice(bytes);
        }
    }
    match out.len() - start {
        body @ ..MEDIUM => out.push(TAIL + body as u8),
        body @ MEDIUM..LONG => out.extend_from_slice(&[body as u8, TAIL12 + (body >> 8) as u8]),
        body => {
            out.extend_from_slice(&(body as u32).to_le_bytes());
            out.push(TAIL32);
        }
    }
}

fn encode_int(int: i64, out: &mut Vec<u8>) {
    let bytes = int.to_le_bytes();
    let (head, len) = match int {
        -0x8000..0x8000 => (INT16, 2),
        -0x80_0000..0x80_0000 => (INT24, 3),
        -0x8000_0000..0x8000_0000 => (INT32, 4),
        _ => (INT64, 8),
    };
    out.push(head);
    out.extend_from_slice(&bytes[..len]);
}
