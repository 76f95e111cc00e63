//! A command's arguments: borrowed from where they arrived, or owned on their way to another shard.

use crate::errors::Error;
use crate::keyspace::NewValue;
use bytes::Bytes;
use corelane_resp::Span;
use std::ops::Index;

/// The arguments of a command, its name first.
#[derive(Clone, Copy)]
pub struct Args<'a> {
    data: &'a [u8],
    spans: &'a [Span],
    owned: &'a [Bytes],
}

impl<'a> Args<'a> {
    /// Arguments that lie in `data` at `spans`, or in `owned`.
    pub const fn new(data: &'a [u8], spans: &'a [Span], owned: &'a [Bytes]) -> Self {
        Self { data, spans, owned }
    }

    /// How many there are, the name included.
    #[inline]
    pub const fn len(&self) -> usize {
        self.spans.len()
    }

    /// Whether there is not even a name.
    pub const fn is_empty(&self) -> bool {
        self.spans.is_empty()
    }

    /// Argument `idx`, which must exist.
    #[inline]
    pub fn at(&self, idx: usize) -> &'a [u8] {
        let span = self.spans[idx];
        match span.owned_idx() {
            None => &self.data[span.range()],
            Some(owned) => &self.owned[owned],
        }
    }

    /// Argument `idx`, if there is one.
    pub fn get(&self, idx: usize) -> Option<&'a [u8]> {
        (idx < self.len()).then(|| self.at(idx))
    }

    /// Argument `idx` as a value to store: long ones are shared, not copied.
    #[inline]
    pub fn value(&self, idx: usize) -> NewValue<'a> {
        match self.spans[idx].owned_idx() {
            None => NewValue::Slice(self.at(idx)),
            Some(owned) => NewValue::Shared(self.owned[owned].clone()),
        }
    }

    /// Argument `idx` where it has an allocation of its own.
    #[inline]
    pub fn shared(&self, idx: usize) -> Option<&'a Bytes> {
        self.spans[idx].owned_idx().map(|owned| &self.owned[owned])
    }

    /// The arguments that have allocations of their own, the longest among them.
    #[inline]
    pub const fn owned(self) -> &'a [Bytes] {
        self.owned
    }

    /// Length of all arguments together.
    #[inline]
    pub fn bytes_len(self) -> usize {
        (0..self.len()).map(|idx| self.at(idx).len()).sum()
    }

    /// Length of the request that they make, as an array of bulks.
    pub fn request_bytes(self) -> usize {
        let digits = |number: usize| number.checked_ilog10().unwrap_or(0) as usize + 1;
        // A mark, the number and a line end; then the argument and a line end.
        let argument = |idx: usize| digits(self.at(idx).len()) + self.at(idx).len() + 5;
        digits(self.len()) + 3 + (0..self.len()).map(argument).sum::<usize>()
    }

    /// All arguments from `from` on.
    pub fn iter_from(self, from: usize) -> impl Iterator<Item = &'a [u8]> {
        (from..self.len()).map(move |idx| self.at(idx))
    }

    /// Argument `idx` as a signed integer in Redis's strict form (no sign but `-`, no spaces, no leading zeros).
    #[inline]
    pub fn int(&self, idx: usize) -> Result<i64, Error> {
        parse_int(self.at(idx)).ok_or(Error::NotInteger)
    }

    /// Whether argument `idx` is `word`, in any case.
    #[inline]
    pub fn is(&self, idx: usize, word: &str) -> bool {
        self.at(idx).eq_ignore_ascii_case(word.as_bytes())
    }

    /// The same without the first `count` arguments.
    pub fn skip(self, count: usize) -> Self {
        Self { spans: &self.spans[count..], ..self }
    }

    /// A copy that owns its bytes; long arguments are shared.
    pub fn to_owned(self) -> OwnedArgs {
        let mut data = Vec::with_capacity(
            self.spans.iter().filter(|s| s.owned_idx().is_none()).map(|s| s.range().len()).sum(),
        );
        let mut spans = Vec::with_capacity(self.len());
        for span in self.spans {
            if span.owned_idx().is_some() {
                spans.push(*span);
                continue;
            }
            let start = data.len();
            data.extend_from_slice(&self.data[span.range()]);
            spans.push(Span::new(start, data.len()));
        }
        OwnedArgs { data: Bytes::from(data), spans, owned: self.owned.to_vec() }
    }
}

impl Index<usize> for Args<'_> {
    type Output = [u8];
    #[inline]
    fn index(&self, idx: usize) -> &[u8] {
        self.at(idx)
    }
}

/// Arguments that own their bytes. A clone shares them.
#[derive(Clone, Debug)]
pub struct OwnedArgs {
    data: Bytes,
    spans: Vec<Span>,
    owned: Vec<Bytes>,
}

impl OwnedArgs {
    /// The arguments, borrowed.
    pub fn args(&self) -> Args<'_> {
        Args::new(&self.data, &self.spans, &self.owned)
    }
}

/// An `i64` in Redis's strict form (`string2ll`): digits without leading zeros, at most one `-`, `-0` is none.
#[inline]
pub fn parse_int(text: &[u8]) -> Option<i64> {
    let (negative, digits) = match text {
        [b'-', rest @ ..] => (true, rest),
        _ => (false, text),
    };
    match digits {
        [b'0'] => return (!negative).then_some(0),
        [b'1'..=b'9', ..] if digits.len() <= 19 => {}
        _ => return None,
    }
    let mut value: u64 = 0;
    for &digit in digits {
        if !digit.is_ascii_digit() {
            return None;
        }
        // Nineteen digits stay below 2^64.
        value = value * 10 + u64::from(digit - b'0');
    }
    if negative { 0i64.checked_sub_unsigned(value) } else { i64::try_from(value).ok() }
}

#[cfg(test)]
mod tests {
    use super::parse_int;

    #[test]
    fn integers_are_read_as_redis_reads_them() {
        let good: [(&str, i64); 7] = [
            ("0", 0),
            ("-1", -1),
            ("10", 10),
            ("9223372036854775807", i64::MAX),
            ("-9223372036854775808", i64::MIN),
            ("123", 123),
            ("1000000000000000000", 1_000_000_000_000_000_000),
        ];
        for (text, value) in good {
            assert_eq!(parse_int(text.as_bytes()), Some(value), "{text}");
        }
        for text in [
            "",
            "-",
            "-0",
            "+1",
            "01",
            " 1",
            "1 ",
            "9223372036854775808",
            "-9223372036854775809",
            "1e3",
            "99999999999999999999",
        ] {
            assert_eq!(parse_int(text.as_bytes()), None, "{text:?}");
        }
    }
}
