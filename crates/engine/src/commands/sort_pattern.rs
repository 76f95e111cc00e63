//! Patterns of SORT: from an element to what another key holds about it.

use crate::ctx::Ctx;
use crate::errors::echoed;
use bytes::Bytes;
use corelane_resp::Reply;

/// Where BY and GET look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pattern<'a> {
    /// `#`: the element itself.
    Element,
    /// Without a `*` it is no key of any element's.
    Nothing,
    /// A key whose name is made of the element.
    Key {
        before: &'a [u8],
        after: &'a [u8],
        /// The key holds a hash, and this is the field.
        field: Option<&'a [u8]>,
    },
}

/// A text that was found.
#[derive(Clone, Copy, Debug)]
pub(super) enum Found<'a> {
    Slice(&'a [u8]),
    /// It has an allocation of its own.
    Shared(&'a Bytes),
}

impl<'a> Found<'a> {
    pub(super) fn text(self) -> &'a [u8] {
        match self {
            Self::Slice(text) => text,
            Self::Shared(text) => text,
        }
    }

    /// For another shard.
    pub(super) fn to_bytes(self) -> Bytes {
        match self {
            Self::Slice(text) => Bytes::copy_from_slice(text),
            Self::Shared(text) => text.clone(),
        }
    }

    pub(super) fn write(self, reply: &mut Reply) {
        match self {
            Self::Slice(text) => reply.bulk(text),
            Self::Shared(text) => reply.bulk_shared(text.clone()),
        }
    }
}

/// Whether a pattern stands for keys. As everywhere in patterns, what counts is what C sees: the bytes before the first NUL.
pub(super) fn names_keys(text: &[u8]) -> bool {
    echoed(text).contains(&b'*')
}

impl<'a> Pattern<'a> {
    pub(super) fn parse(text: &'a [u8]) -> Self {
        let seen = echoed(text);
        if seen == b"#" {
            return Self::Element;
        }
        let Some(star) = seen.iter().position(|byte| *byte == b'*') else { return Self::Nothing };
        let arrow = seen[star + 1..].windows(2).position(|two| two == b"->").map(|at| star + 1 + at);
        // An arrow at the end is part of the key's name.
        let arrow = arrow.filter(|at| at + 2 < seen.len());
        let end = arrow.unwrap_or(text.len());
        let field = arrow.map(|at| &text[at + 2..]);
        Self::Key { before: &text[..star], after: &text[star + 1..end], field }
    }

    /// Whether it takes a look at a key.
    pub(super) const fn is_key(self) -> bool {
        matches!(self, Self::Key { .. })
    }

    /// Writes the name of an element's key; false if it has none.
    pub(super) fn write_name(self, element: &[u8], name: &mut Vec<u8>) -> bool {
        let Self::Key { before, after, .. } = self else { return false };
        name.clear();
        name.extend_from_slice(before);
        name.extend_from_slice(element);
        name.extend_from_slice(after);
        true
    }

    /// Lets `read` see what is found for an element; `name` is space for the key's name. The key must be on this shard.
    pub(super) fn look_up<T>(
        self,
        ctx: &mut Ctx<'_>,
        element: &[u8],
        name: &mut Vec<u8>,
        read: impl FnOnce(Found<'_>) -> T,
    ) -> Option<T> {
        if !self.write_name(element, name) {
            return (self == Self::Element).then(|| read(Found::Slice(element)));
        }
        let entry = ctx.lookup(ctx.key(name))?;
        match self {
            Self::Key { field: Some(field), .. } => {
                let value = entry.hash()?.get(field)?;
                Some(read(Found::Slice(&value.text())))
            }
            _ => match entry.shared_string() {
                Some(text) => Some(read(Found::Shared(text))),
                None => entry.string().map(|text| read(Found::Slice(text))),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_are_read_as_c_strings() {
        let key = |before, after, field| Pattern::Key { before, after, field };
        let cases: [(&[u8], Pattern<'_>); 12] = [
            (b"#", Pattern::Element),
            (b"#\0x", Pattern::Element),
            (b"##", Pattern::Nothing),
            (b"", Pattern::Nothing),
            (b"name\0*", Pattern::Nothing),
            (b"*", key(b"", b"", None)),
            (b"w_*_x*", key(b"w_", b"_x*", None)),
            (b"h_*->f", key(b"h_", b"", Some(b"f"))),
            (b"h_*y->f->g", key(b"h_", b"y", Some(b"f->g"))),
            (b"h_*->", key(b"h_", b"->", None)),
            (b"a->b_*", key(b"a->b_", b"", None)),
            (b"*\0->f", key(b"", b"\0->f", None)),
        ];
        for (text, pattern) in cases {
            assert_eq!(Pattern::parse(text), pattern, "{:?}", String::from_utf8_lossy(text));
        }
    }
}
