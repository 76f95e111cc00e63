//! The request parser: finds where the arguments of one command lie in the bytes a client has sent.
//!
//! It copies nothing on the usual path, keeps no bytes, and resumes where it stopped. Inline lines are split in
//! `inline.rs`. It does not know what a command means.

use std::ops::Range;

use bytes::Bytes;

use crate::error::ProtocolError;
use crate::inline;

/// Bytes of one request that [`Span`] can address. Longer requests are refused.
const REQUEST_LEN_MAX: usize = (u32::MAX - 1) as usize;

/// Spans reserved for a command at most before its arguments have arrived: a client may announce two thousand
/// million arguments and send none.
const SPANS_RESERVED_MAX: u32 = 64;

/// Where one argument of a command lies in the request bytes; or, for `owned`, in the list of owned arguments.
///
/// An owned argument has `start` = `u32::MAX`, which no range can have, and its index in `end`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    start: u32,
    end: u32,
}

impl Span {
    /// The bytes `start..end` of the request; both below 4 GiB - 1.
    #[inline]
    pub fn new(start: usize, end: usize) -> Self {
        debug_assert!(start <= end && end <= REQUEST_LEN_MAX);
        Self { start: start as u32, end: end as u32 }
    }

    /// The owned argument number `idx`.
    #[inline]
    pub fn owned(idx: usize) -> Self {
        debug_assert!(idx <= REQUEST_LEN_MAX);
        Self { start: u32::MAX, end: idx as u32 }
    }

    /// The index in the list of owned arguments, or `None` where this is a range of the request.
    #[inline]
    pub fn owned_idx(self) -> Option<usize> {
        (self.start == u32::MAX).then_some(self.end as usize)
    }

    /// The range in the request. Meaningless for an owned argument.
    #[inline]
    pub fn range(self) -> Range<usize> {
        debug_assert!(self.start != u32::MAX, "an owned argument has no range");
        self.start as usize..self.end as usize
    }
}

/// The most arguments of a client that has not given its password.
const STRANGER_ARGS_MAX: usize = 10;
/// The longest argument of such a client, in bytes.
const STRANGER_BULK_LEN_MAX: usize = 16 << 10;

/// What a request may ask for. Lengths in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The longest argument (`proto-max-bulk-len`).
    pub bulk_len_max: usize,
    /// The most arguments of one command.
    pub args_max: usize,
    /// The longest line without its end: an inline command, or the digits of a count or a length.
    pub inline_len_max: usize,
    /// From this length on an argument is reported as [`Step::NeedBulk`].
    pub large_bulk_len: usize,
    /// The client has a password to give yet: it may send 10 arguments of 16 KiB, which is enough for that.
    pub stranger: bool,
}

impl Limits {
    /// What is looked at closely: a longer argument may be none.
    #[inline]
    const fn plain_len_max(&self) -> usize {
        if self.stranger && self.bulk_len_max > STRANGER_BULK_LEN_MAX {
            return STRANGER_BULK_LEN_MAX;
        }
        self.bulk_len_max
    }
}

impl Default for Limits {
    /// Valkey's: 512 MiB, `INT_MAX`, 64 KiB; and 32 KiB for large arguments.
    fn default() -> Self {
        Self {
            bulk_len_max: 512 << 20,
            args_max: i32::MAX as usize,
            inline_len_max: 64 << 10,
            large_bulk_len: 32 << 10,
            stranger: false,
        }
    }
}

/// What [`Parser::parse`] came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// A whole command: `spans` hold its arguments, `used` bytes of input belong to it. There may be no argument
    /// at all (blank line, `*0`, `*-1`): the caller skips `used` bytes and sends no reply.
    Command {
        /// Bytes from the start of the input to the end of the command.
        used: usize,
    },
    /// More bytes are needed. `spans` keeps what was found and must be passed again, with input starting at the
    /// same byte.
    NeedMore,
    /// The next argument is a bulk of `len` bytes (at least `large_bulk_len`) whose payload starts at
    /// `input[start]`. The caller collects `len` + 2 bytes elsewhere (it takes what is in the input after
    /// `start`), asks [`Parser::payload_of`] for the payload in them, truncates its input to `start`, then calls
    /// [`Parser::bulk_taken`] and goes on.
    NeedBulk {
        /// Offset of the payload in the input.
        start: usize,
        /// Length of the payload without its CRLF.
        len: usize,
    },
}

/// The part of a request that comes next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// The first byte.
    Start,
    /// A line that is not a count of arguments.
    Inline,
    /// `*<count>\r\n`
    Count,
    /// `$<length>\r\n<payload>\r\n`, `missing` times.
    Args,
}

/// The state of one connection's request stream between two reads. Positions count from the first byte of the
/// command.
#[derive(Clone, Copy, Debug)]
pub struct Parser {
    /// The first byte of what comes next.
    pos: u32,
    /// Arguments not yet found.
    missing: u32,
    /// No end of line lies between `pos` and here.
    scanned: u32,
    /// Where the payload of the argument last reported by [`Step::NeedBulk`] starts.
    bulk_start: u32,
    place: Place,
}

impl Default for Parser {
    fn default() -> Self {
        Self::new()
    }
}

impl Parser {
    /// A parser at the first byte of a command.
    pub const fn new() -> Self {
        Self { pos: 0, missing: 0, scanned: 0, bulk_start: 0, place: Place::Start }
    }

    /// Looks at `input`, whose first byte is the first of the command being parsed, and goes on where the last
    /// call stopped: complete arguments and line parts already searched are not looked at again. At the start of
    /// a command `spans` and `owned` are cleared.
    ///
    /// # Errors
    /// The client broke the protocol: send the text and close. The parser must not be used again.
    #[inline]
    pub fn parse(
        &mut self,
        input: &[u8],
        spans: &mut Vec<Span>,
        owned: &mut Vec<Bytes>,
        limits: &Limits,
    ) -> Result<Step, ProtocolError> {
        if self.place == Place::Start {
            spans.clear();
            owned.clear();
            match input.first() {
                None => return Ok(Step::NeedMore),
                Some(b'*') => self.place = Place::Count,
                Some(_) => self.place = Place::Inline,
            }
        }
        if input.len() > REQUEST_LEN_MAX {
            return match self.resume(&input[..REQUEST_LEN_MAX], spans, owned, limits)? {
                Step::NeedMore => Err(ProtocolError::RequestTooLong),
                step => Ok(step),
            };
        }
        self.resume(input, spans, owned, limits)
    }

    /// The payload of a large argument in the `len` + 2 bytes collected after [`Step::NeedBulk`].
    ///
    /// # Errors
    /// [`ProtocolError::LineEnd`] where it does not end in CRLF.
    pub fn payload_of(collected: &[u8]) -> Result<&[u8], ProtocolError> {
        collected.strip_suffix(b"\r\n").ok_or(ProtocolError::LineEnd)
    }

    /// The large argument that [`Step::NeedBulk`] reported is now number `owned_idx` in the list of owned
    /// arguments, and the input ends where its payload would have started.
    pub fn bulk_taken(&mut self, spans: &mut Vec<Span>, owned_idx: usize) {
        debug_assert!(self.place == Place::Args && self.missing > 0 && self.bulk_start > self.pos);
        spans.push(Span::owned(owned_idx));
        self.go_to(self.bulk_start as usize);
        self.missing -= 1;
    }

    #[inline]
    fn resume(
        &mut self,
        input: &[u8],
        spans: &mut Vec<Span>,
        owned: &mut Vec<Bytes>,
        limits: &Limits,
    ) -> Result<Step, ProtocolError> {
        if self.place == Place::Inline {
            return self.inline_line(input, spans, owned, limits);
        }
        if self.place == Place::Count {
            let (count, next) = match short_length(input, 1) {
                Some((count, next)) if count <= limits.args_max && !limits.stranger => (count, next),
                _ => match self.count_line(input, limits)? {
                    Some(found) => found,
                    None => return Ok(Step::NeedMore),
                },
            };
            self.go_to(next);
            self.missing = count as u32;
            self.place = Place::Args;
            spans.reserve(self.missing.min(SPANS_RESERVED_MAX) as usize);
        }
        self.args(input, spans, limits)
    }

    /// Finds the missing arguments; the usual, complete ones right here.
    #[inline]
    fn args(&mut self, input: &[u8], spans: &mut Vec<Span>, limits: &Limits) -> Result<Step, ProtocolError> {
        let plain_len_end = limits.large_bulk_len.min(limits.plain_len_max().saturating_add(1));
        let mut pos = self.pos as usize;
        let mut missing = self.missing;
        while missing > 0 {
            if input.get(pos) == Some(&b'$')
                && let Some((len, start)) = short_length(input, pos + 1)
                && len < plain_len_end
                && input[start..].get(len..len + 2) == Some(b"\r\n")
            {
                spans.push(Span::new(start, start + len));
                pos = start + len + 2;
                missing -= 1;
                continue;
            }
            if pos != self.pos as usize {
                self.go_to(pos);
            }
            self.missing = missing;
            match self.odd_arg(input, limits)? {
                OddArg::Whole { start, end } => {
                    spans.push(Span::new(start, end));
                    pos = end + 2;
                    missing -= 1;
                }
                OddArg::Stop(step) => return Ok(step),
            }
        }
        *self = Self::new();
        Ok(Step::Command { used: pos })
    }

    /// The argument at `pos` where it is incomplete, large, wrong, or has an uncommon length line.
    #[cold]
    fn odd_arg(&mut self, input: &[u8], limits: &Limits) -> Result<OddArg, ProtocolError> {
        let Some(line_end) = self.line_end(input, limits, ProtocolError::LengthLineTooLong)? else {
            return Ok(OddArg::Stop(Step::NeedMore));
        };
        let line = &input[self.pos as usize..line_end];
        // The first byte of an empty line is its carriage return.
        let kind = input[self.pos as usize];
        let Some(digits) = line.strip_prefix(b"$") else {
            return Err(ProtocolError::NotABulk(kind));
        };
        line_feed(input, line_end)?;
        let len = strict_integer(digits).and_then(|len| usize::try_from(len).ok());
        let Some(len) = len.filter(|&len| len <= limits.bulk_len_max) else {
            return Err(ProtocolError::BulkLength);
        };
        if limits.stranger && len > STRANGER_BULK_LEN_MAX {
            return Err(ProtocolError::StrangerBulkLength);
        }
        let start = line_end + 2;
        if len >= limits.large_bulk_len {
            self.bulk_start = start as u32;
            return Ok(OddArg::Stop(Step::NeedBulk { start, len }));
        }
        match input[start..].get(len..).and_then(|rest| rest.first_chunk()) {
            None => Ok(OddArg::Stop(Step::NeedMore)),
            Some(b"\r\n") => Ok(OddArg::Whole { start, end: start + len }),
            Some(_) => Err(ProtocolError::LineEnd),
        }
    }

    /// The count of arguments and the position after its line; zero for a negative count.
    #[cold]
    fn count_line(&mut self, input: &[u8], limits: &Limits) -> Result<Option<(usize, usize)>, ProtocolError> {
        let Some(line_end) = self.line_end(input, limits, ProtocolError::CountLineTooLong)? else {
            return Ok(None);
        };
        line_feed(input, line_end)?;
        let count = strict_integer(&input[1..line_end]).ok_or(ProtocolError::MultibulkLength)?;
        let count = usize::try_from(count).unwrap_or(0);
        if count > limits.args_max.min(u32::MAX as usize) {
            return Err(ProtocolError::MultibulkLength);
        }
        if limits.stranger && count > STRANGER_ARGS_MAX {
            return Err(ProtocolError::StrangerMultibulkLength);
        }
        Ok(Some((count, line_end + 2)))
    }

    /// Position of the carriage return that ends the line at `pos`, once the byte after it is there too.
    ///
    /// A line is too long by its own length and not by how it was cut into reads, as it is in Valkey, so that the
    /// same bytes always have the same answer.
    fn line_end(
        &mut self,
        input: &[u8],
        limits: &Limits,
        too_long: ProtocolError,
    ) -> Result<Option<usize>, ProtocolError> {
        let from = self.scanned.max(self.pos) as usize;
        let end = input[from..].iter().position(|&byte| byte == b'\r').map_or(input.len(), |at| from + at);
        self.scanned = end as u32;
        if end - self.pos as usize > limits.inline_len_max {
            return Err(too_long);
        }
        Ok((end + 1 < input.len()).then_some(end))
    }

    /// A command typed as a line of words. As in Valkey a zero byte in it hides the end of the line: such a client
    /// gets no answer until the line is too long.
    #[cold]
    fn inline_line(
        &mut self,
        input: &[u8],
        spans: &mut Vec<Span>,
        owned: &mut Vec<Bytes>,
        limits: &Limits,
    ) -> Result<Step, ProtocolError> {
        let from = self.scanned as usize;
        let stop = input[from..].iter().position(|&byte| matches!(byte, b'\n' | 0)).map(|at| from + at);
        let end = stop.filter(|&at| input[at] == b'\n');
        let line = &input[..end.unwrap_or(input.len())];
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        if line.len() > limits.inline_len_max {
            return Err(ProtocolError::InlineTooLong);
        }
        let Some(end) = end else {
            self.scanned = stop.unwrap_or(input.len()) as u32;
            return Ok(Step::NeedMore);
        };
        inline::split(line, spans, owned)?;
        *self = Self::new();
        Ok(Step::Command { used: end + 1 })
    }

    fn go_to(&mut self, pos: usize) {
        self.pos = pos as u32;
        self.scanned = pos as u32;
    }
}

/// What [`Parser::odd_arg`] found.
enum OddArg {
    Whole { start: usize, end: usize },
    Stop(Step),
}

/// Checks that a line feed follows the carriage return at `line_end`.
fn line_feed(input: &[u8], line_end: usize) -> Result<(), ProtocolError> {
    if input.get(line_end + 1) == Some(&b'\n') { Ok(()) } else { Err(ProtocolError::LineEnd) }
}

/// The number at `input[at]`, and the position after its line, if it has one to nine digits in the usual form and
/// the whole line is there. Anything else is left to the exact parsers.
#[inline(always)]
fn short_length(input: &[u8], at: usize) -> Option<(usize, usize)> {
    const DIGITS_MAX: usize = 9;
    let line = input.get(at..)?;
    let first = line.first()?.wrapping_sub(b'0');
    if first > 9 {
        return None;
    }
    let mut value = usize::from(first);
    let mut digits = 1;
    loop {
        let digit = line.get(digits)?.wrapping_sub(b'0');
        if digit > 9 {
            break;
        }
        if digits == DIGITS_MAX || value == 0 {
            return None;
        }
        value = value * 10 + usize::from(digit);
        digits += 1;
    }
    if line.get(digits..digits + 2)? != b"\r\n" {
        return None;
    }
    Some((value, at + digits + 2))
}

/// An integer in the one form that Valkey's `string2ll` takes: no sign but `-`, no leading zero, no space, within
/// `i64`.
fn strict_integer(text: &[u8]) -> Option<i64> {
    let digits = text.strip_prefix(b"-").unwrap_or(text);
    match digits {
        [b'0'] if digits.len() == text.len() => return Some(0),
        [b'1'..=b'9', rest @ ..] if rest.iter().all(u8::is_ascii_digit) => {}
        _ => return None,
    }
    std::str::from_utf8(text).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_state_of_a_connection_is_small() {
        assert!(size_of::<Parser>() <= 24);
        assert_eq!(size_of::<Span>(), 8);
    }

    #[test]
    fn integers_have_one_form() {
        for (text, value) in [
            ("0", 0),
            ("7", 7),
            ("-1", -1),
            ("9223372036854775807", i64::MAX),
            ("-9223372036854775808", i64::MIN),
        ] {
            assert_eq!(strict_integer(text.as_bytes()), Some(value), "{text}");
        }
        for text in ["", "-", "+1", "-0", "01", "-01", " 1", "1 ", "1a", "9223372036854775808", "0x1", "1_0"]
        {
            assert_eq!(strict_integer(text.as_bytes()), None, "{text}");
        }
    }

    #[test]
    fn the_short_form_agrees_with_the_exact_one() {
        for text in ["0", "7", "10", "999999999", "1000000000", "00", "01", "-1", "+1", "", "1a", " 1"] {
            let line = format!("*{text}\r\n");
            if let Some((value, next)) = short_length(line.as_bytes(), 1) {
                assert_eq!(strict_integer(text.as_bytes()), Some(value as i64), "{text}");
                assert_eq!(next, line.len());
            }
            for cut in 0..line.len() {
                assert_eq!(short_length(&line.as_bytes()[..cut], 1), None, "{text} cut at {cut}");
            }
        }
        assert_eq!(short_length(b"*12\r\n", 1), Some((12, 5)));
    }
}
