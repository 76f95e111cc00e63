//! Names that were looked up lately, as they were sent: a client says the same few again and again, in the same case.

use super::CommandId;
use std::cell::Cell;

/// Names that are kept; a power of two.
const NAMES: usize = 16;

/// A name of 1 to 16 bytes as two words that overlap, and its length; the length 0 is that of no name.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
struct Name {
    words: [u64; 2],
    len: usize,
}

impl Name {
    #[inline]
    fn of(bytes: &[u8]) -> Option<Self> {
        let half = |word: &[u8; 4]| u64::from(u32::from_le_bytes(*word));
        let words = match (bytes.first_chunk(), bytes.last_chunk()) {
            (Some(first), Some(last)) if bytes.len() <= 16 => {
                [u64::from_le_bytes(*first), u64::from_le_bytes(*last)]
            }
            (None, None) => match (bytes.first_chunk(), bytes.last_chunk(), bytes) {
                (Some(first), Some(last), _) => [half(first), half(last)],
                (_, _, [first, .., last]) => [u64::from(*first) | u64::from(bytes[1]) << 8, u64::from(*last)],
                _ => return None,
            },
            _ => return None,
        };
        Some(Self { words, len: bytes.len() })
    }

    #[inline]
    const fn place(&self) -> usize {
        let mixed = (self.words[0] ^ self.words[1].rotate_left(29) ^ self.len as u64)
            .wrapping_mul(0x9E37_79B9_7F4A_7C15);
        (mixed >> 32) as usize % NAMES
    }
}

/// The last name at each place with what it was found to mean.
#[derive(Default)]
pub(crate) struct Recent([Cell<(Name, CommandId)>; NAMES]);

impl Recent {
    /// What a name means; `find` is asked if it was not looked up lately.
    #[inline]
    pub(super) fn get(
        &self,
        name: &[u8],
        find: impl FnOnce(&[u8]) -> Option<CommandId>,
    ) -> Option<CommandId> {
        let Some(key) = Name::of(name) else { return find(name) };
        let place = &self.0[key.place()];
        let (known, id) = place.get();
        if known == key {
            return Some(id);
        }
        let id = find(name)?;
        place.set((key, id));
        Some(id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_differ_as_their_words_do() {
        let text = b"abcdefghijklmnopq";
        let mut seen = Vec::new();
        for len in 0..=text.len() {
            match Name::of(&text[..len]) {
                Some(name) => seen.push(name),
                None => assert!(!(2..=16).contains(&len), "{len}"),
            }
        }
        assert_eq!(seen.len(), 15);
        for len in 2..=16 {
            let name = Name::of(&text[..len]).unwrap();
            assert_eq!(seen.iter().filter(|other| **other == name).count(), 1);
            for idx in 0..len {
                let mut changed = text[..len].to_vec();
                changed[idx] ^= 1;
                assert!(Name::of(&changed).unwrap() != name, "byte {idx} of {len}");
            }
        }
    }

    #[test]
    fn a_name_is_looked_up_once_and_what_is_not_there_again() {
        let (recent, asked) = (Recent::default(), Cell::new(0));
        let find = |found| {
            asked.set(asked.get() + 1);
            found
        };
        let id = CommandId { index: 7, ..CommandId::default() };
        for _ in 0..3 {
            assert_eq!(recent.get(b"nothing", |_| find(None)), None);
        }
        for _ in 0..3 {
            assert_eq!(recent.get(b"GET", |_| find(Some(id))), Some(id));
        }
        assert_eq!(asked.get(), 4);
    }
}
