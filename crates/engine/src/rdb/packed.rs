//! Redis's three compact encodings inside RDB strings: listpack, ziplist and intset. Reading them.

use super::read::Unreadable;

type Elements = Vec<Vec<u8>>;

fn text(int: i64) -> Vec<u8> {
    int.to_string().into_bytes()
}

/// Bytes that are taken from the front.
struct Bytes<'a>(&'a [u8]);

impl<'a> Bytes<'a> {
    fn take(&mut self, len: usize) -> Result<&'a [u8], Unreadable> {
        let (taken, rest) = self.0.split_at_checked(len).ok_or(Unreadable::Malformed)?;
        self.0 = rest;
        Ok(taken)
    }

    fn byte(&mut self) -> Result<u8, Unreadable> {
        Ok(self.take(1)?[0])
    }

    /// A little-endian integer with a sign.
    fn int(&mut self, len: usize) -> Result<i64, Unreadable> {
        let mut word = [0; 8];
        word[8 - len..].copy_from_slice(self.take(len)?);
        Ok(i64::from_le_bytes(word) >> (64 - 8 * len))
    }

    /// A little-endian length.
    fn len(&mut self, len: usize) -> Result<usize, Unreadable> {
        let mut word = [0; 8];
        word[..len].copy_from_slice(self.take(len)?);
        Ok(u64::from_le_bytes(word) as usize)
    }
}

/// The elements of a listpack: total bytes u32, count u16, elements, 0xff.
pub(super) fn listpack(bytes: &[u8]) -> Result<Elements, Unreadable> {
    let mut rest = Bytes(bytes);
    let (total, count) = (rest.len(4)?, rest.len(2)?);
    if total != bytes.len() {
        return Err(Unreadable::Malformed);
    }
    let mut elements = Vec::new();
    loop {
        let before = rest.0.len();
        let element = match rest.byte()? {
            0xFF => break,
            head @ 0..0x80 => text(head.into()),
            head @ 0x80..0xC0 => rest.take(usize::from(head & 0x3F))?.to_vec(),
            head @ 0xC0..0xE0 => {
                // Thirteen bits with a sign.
                let int = i64::from(head & 0x1F) << 8 | i64::from(rest.byte()?);
                text(if int < 1 << 12 { int } else { int - (1 << 13) })
            }
            head @ 0xE0..0xF0 => {
                let len = usize::from(head & 0x0F) << 8 | usize::from(rest.byte()?);
                rest.take(len)?.to_vec()
            }
            0xF0 => {
                let len = rest.len(4)?;
                rest.take(len)?.to_vec()
            }
            0xF1 => text(rest.int(2)?),
            0xF2 => text(rest.int(3)?),
            0xF3 => text(rest.int(4)?),
            0xF4 => text(rest.int(8)?),
            _ => return Err(Unreadable::Malformed),
        };
        let tail = match before - rest.0.len() {
            0..128 => 1,
            128..16_384 => 2,
            16_384..2_097_152 => 3,
            2_097_152..268_435_456 => 4,
            _ => 5,
        };
        rest.take(tail)?;
        elements.push(element);
    }
    // The count says nothing where it is the greatest.
    let counted = count == usize::from(u16::MAX) || count == elements.len();
    if counted && rest.0.is_empty() { Ok(elements) } else { Err(Unreadable::Malformed) }
}

/// The elements of a ziplist: total bytes u32, offset of the last u32, count u16, elements, 0xff. Before every element stands
/// the length of the one before it.
pub(super) fn ziplist(bytes: &[u8]) -> Result<Elements, Unreadable> {
    let mut rest = Bytes(bytes);
    let (total, _, count) = (rest.len(4)?, rest.len(4)?, rest.len(2)?);
    if total != bytes.len() {
        return Err(Unreadable::Malformed);
    }
    let mut elements = Vec::new();
    loop {
        match rest.byte()? {
            0xFF => break,
            0xFE => drop(rest.take(4)?),
            _ => {}
        }
        let element = match rest.byte()? {
            head @ 0..0x40 => rest.take(usize::from(head))?.to_vec(),
            head @ 0x40..0x80 => {
                let len = usize::from(head & 0x3F) << 8 | usize::from(rest.byte()?);
                rest.take(len)?.to_vec()
            }
            0x80 => {
                let len = rest.take(4)?.iter().fold(0, |len, byte| len << 8 | usize::from(*byte));
                rest.take(len)?.to_vec()
            }
            0xC0 => text(rest.int(2)?),
            0xD0 => text(rest.int(4)?),
            0xE0 => text(rest.int(8)?),
            0xF0 => text(rest.int(3)?),
            0xFE => text(rest.int(1)?),
            head @ 0xF1..=0xFD => text(i64::from(head & 0x0F) - 1),
            _ => return Err(Unreadable::Malformed),
        };
        elements.push(element);
    }
    let counted = count == usize::from(u16::MAX) || count == elements.len();
    if counted && rest.0.is_empty() { Ok(elements) } else { Err(Unreadable::Malformed) }
}

/// The members of an intset: width u32, count u32, integers in ascending order.
pub(super) fn intset(bytes: &[u8]) -> Result<Elements, Unreadable> {
    let mut rest = Bytes(bytes);
    let (width, count) = (rest.len(4)?, rest.len(4)?);
    if !matches!(width, 2 | 4 | 8) || rest.0.len() != count.saturating_mul(width) {
        return Err(Unreadable::Malformed);
    }
    let ints: Vec<i64> = (0..count).map(|_| rest.int(width)).collect::<Result<_, _>>()?;
    if ints.is_sorted_by(|a, b| a < b) {
        Ok(ints.into_iter().map(text).collect())
    } else {
        Err(Unreadable::Malformed)
    }
}
