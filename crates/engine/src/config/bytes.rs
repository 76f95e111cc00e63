//! Values that are not text in UTF-8, kept as text: each byte that does not fit in stands as a letter of its own, as in
//! Python's `surrogateescape`. There and back nothing is lost.

use std::borrow::Cow;

/// The letter of byte 0; the letters of all bytes end at the last that there is, U+10FFFF. Nobody's alphabet has them.
const FIRST: u32 = 0x0010_FF00;

fn letter_of(byte: u8) -> char {
    char::from_u32(FIRST + u32::from(byte)).expect("up to U+10FFFF all are letters")
}

/// The byte that a letter stands for, if it is one of those that stand for bytes.
pub fn byte_of(letter: char) -> Option<u8> {
    u8::try_from(u32::from(letter).checked_sub(FIRST)?).ok()
}

/// The letter for a byte, which is the byte itself below 80.
pub fn letter(byte: u8) -> char {
    if byte.is_ascii() { char::from(byte) } else { letter_of(byte) }
}

/// Bytes as text.
pub fn to_text(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        for plain in chunk.valid().chars() {
            match byte_of(plain) {
                None => text.push(plain),
                // Such a letter itself, as its bytes.
                Some(_) => text.extend(plain.encode_utf8(&mut [0; 4]).bytes().map(letter_of)),
            }
        }
        text.extend(chunk.invalid().iter().copied().map(letter_of));
    }
    text
}

/// The bytes that a text stands for.
pub fn to_bytes(text: &str) -> Cow<'_, [u8]> {
    if text.chars().all(|letter| byte_of(letter).is_none()) {
        return Cow::Borrowed(text.as_bytes());
    }
    let mut bytes = Vec::with_capacity(text.len());
    for letter in text.chars() {
        match byte_of(letter) {
            Some(byte) => bytes.push(byte),
            None => bytes.extend(letter.encode_utf8(&mut [0; 4]).bytes()),
        }
    }
    Cow::Owned(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn text_is_itself_and_other_bytes_come_back() {
        for bytes in [&b"plain"[..], "ä€𝄞".as_bytes(), b"", b"a\0b"] {
            assert_eq!(to_text(bytes).as_bytes(), bytes);
        }
        for bytes in [&b"\xff"[..], b"a\xc3", b"\xc3\xa4\xff\xa4", "\u{10FFFF}".as_bytes()] {
            let text = to_text(bytes);
            assert!(text.chars().any(|letter| byte_of(letter).is_some()), "{bytes:?}");
            assert_eq!(to_bytes(&text), bytes);
        }
    }

    proptest! {
        #[test]
        fn nothing_is_lost(bytes in prop::collection::vec(any::<u8>(), 0..40), letter in any::<char>()) {
            for bytes in [bytes, letter.to_string().into_bytes()] {
                let text = to_text(&bytes);
                prop_assert_eq!(&*to_bytes(&text), &bytes[..]);
            }
        }
    }
}
