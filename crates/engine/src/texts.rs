//! Many texts in one allocation, for what has to travel between shards more than once.

use bytes::Bytes;

const LEN_BYTES: usize = 4;

/// Texts one after the other, each behind its length in four bytes. A clone shares them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Texts(Bytes);

/// Texts that are being put together.
#[derive(Clone, Debug, Default)]
pub(crate) struct TextsBuilder {
    bytes: Vec<u8>,
}

impl TextsBuilder {
    /// With room for `count` texts of `bytes` bytes in all.
    pub(crate) fn with_capacity(count: usize, bytes: usize) -> Self {
        Self { bytes: Vec::with_capacity(bytes + count * LEN_BYTES) }
    }

    /// Adds a text, which is shorter than 4 GiB as every value is; returns its place.
    pub(crate) fn push(&mut self, text: &[u8]) -> usize {
        let (len, place) = (u32::try_from(text.len()), self.bytes.len());
        let len = len.expect("no value is longer than 512 MiB");
        self.bytes.extend_from_slice(&len.to_le_bytes());
        self.bytes.extend_from_slice(text);
        place
    }

    /// The text at a place.
    pub(crate) fn at(&self, place: usize) -> &[u8] {
        first_of(&self.bytes[place..]).map_or(b"", |(text, _)| text)
    }

    /// All of them.
    pub(crate) fn finish(self) -> Texts {
        Texts(Bytes::from(self.bytes))
    }
}

impl Texts {
    /// The texts in their order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &[u8]> {
        let mut rest = &self.0[..];
        std::iter::from_fn(move || {
            let (text, behind) = first_of(rest)?;
            rest = behind;
            Some(text)
        })
    }
}

/// The first text, and what is behind it.
fn first_of(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (len, behind) = bytes.split_first_chunk::<LEN_BYTES>()?;
    Some(behind.split_at(u32::from_le_bytes(*len) as usize))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_come_out_as_they_went_in() {
        let long = vec![b'x'; 70_000];
        let texts: [&[u8]; 4] = [b"", b"a\0b", &long, b""];
        let mut builder = TextsBuilder::with_capacity(texts.len(), 0);
        let places = texts.map(|text| builder.push(text));
        assert_eq!(places.map(|place| builder.at(place)), texts);
        assert_eq!(builder.finish().clone().iter().collect::<Vec<_>>(), texts);
        assert_eq!(Texts::default().iter().count(), 0);
    }
}
