//! Inline commands: one line of words, as typed into a terminal, with Valkey's `sdssplitargs` rules for quotes.
//!
//! One difference is on purpose: Valkey 9.1.2 drops a raw byte 0xff from a word; here it stays.

use bytes::Bytes;

use crate::error::ProtocolError;
use crate::request::Span;

/// Splits a line without its end into words. Without quotes they are spans of the line; with quotes all of them
/// are owned.
///
/// # Errors
/// [`ProtocolError::UnbalancedQuotes`]: a quote stays open.
pub(crate) fn split(line: &[u8], spans: &mut Vec<Span>, owned: &mut Vec<Bytes>) -> Result<(), ProtocolError> {
    let quoted = line.iter().any(|byte| matches!(byte, b'"' | b'\''));
    let mut at = 0;
    loop {
        at += line[at..].iter().take_while(|&&byte| is_space(byte)).count();
        if at == line.len() {
            return Ok(());
        }
        if quoted {
            let word = quoted_word(line, &mut at)?;
            spans.push(Span::owned(owned.len()));
            owned.push(word.into());
        } else {
            let len = line[at..].iter().take_while(|&&byte| !ends_word(byte)).count();
            spans.push(Span::new(at, at + len));
            at += len;
        }
    }
}

/// The word at `at`, which moves behind it. Quoted and bare parts follow each other freely.
fn quoted_word(line: &[u8], at: &mut usize) -> Result<Vec<u8>, ProtocolError> {
    let mut word = Vec::new();
    while let Some(&byte) = line.get(*at) {
        if ends_word(byte) {
            break;
        }
        *at += 1;
        match byte {
            b'"' => double_quoted(line, at, &mut word)?,
            b'\'' => single_quoted(line, at, &mut word)?,
            _ => word.push(byte),
        }
    }
    Ok(word)
}

/// Reads on behind an opening `"` up to and over the closing one: `\n \r \t \b \a`, `\xHH`, and any other byte
/// after a backslash for itself. A backslash before the last byte of the line is an ordinary byte.
fn double_quoted(line: &[u8], at: &mut usize, word: &mut Vec<u8>) -> Result<(), ProtocolError> {
    loop {
        let (byte, taken) = match &line[*at..] {
            [] => return Err(ProtocolError::UnbalancedQuotes),
            [b'"', ..] => {
                *at += 1;
                return Ok(());
            }
            [b'\\', b'x', high, low, ..] if high.is_ascii_hexdigit() && low.is_ascii_hexdigit() => {
                (hex(*high) << 4 | hex(*low), 4)
            }
            [b'\\', escaped, _, ..] => (unescape(*escaped), 2),
            [byte, ..] => (*byte, 1),
        };
        word.push(byte);
        *at += taken;
    }
}

/// Reads on behind an opening `'` up to and over the closing one: only `\'` is an escape.
fn single_quoted(line: &[u8], at: &mut usize, word: &mut Vec<u8>) -> Result<(), ProtocolError> {
    loop {
        let (byte, taken) = match &line[*at..] {
            [] => return Err(ProtocolError::UnbalancedQuotes),
            [b'\'', ..] => {
                *at += 1;
                return Ok(());
            }
            [b'\\', b'\'', _, ..] => (b'\'', 2),
            [byte, ..] => (*byte, 1),
        };
        word.push(byte);
        *at += taken;
    }
}

fn unescape(byte: u8) -> u8 {
    match byte {
        b'n' => b'\n',
        b'r' => b'\r',
        b't' => b'\t',
        b'b' => 0x08,
        b'a' => 0x07,
        other => other,
    }
}

/// The value of a hexadecimal digit.
fn hex(digit: u8) -> u8 {
    match digit {
        b'0'..=b'9' => digit - b'0',
        _ => (digit | 0x20) - b'a' + 10,
    }
}

/// C's `isspace`: what may stand before a word.
fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\n' | 0x0b | 0x0c | b'\r')
}

/// What ends a word: fewer bytes than [`is_space`].
fn ends_word(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\n' | b'\r')
}
