//! The reply writer: RESP2 or RESP3 bytes in order, with large payloads spliced in instead of copied.
//!
//! ```text
//!   buf      $5\r\nhello\r\n$70000\r\n|\r\n:1\r\n
//!   splices                            ^ at = 19, 70000 bytes
//! ```

use bytes::Bytes;

use crate::double::double_text;

/// From this length on a shared payload is spliced in; shorter ones are cheaper to copy.
pub const SPLICE_LEN_MIN: usize = 16 << 10;

/// From this length on [`Reply::seal`] turns the flat buffer into a shared payload.
const SEAL_LEN_MIN: usize = 64 << 10;

/// The version of the protocol that a connection has chosen with `HELLO`.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub enum Proto {
    /// What every connection starts with.
    #[default]
    Resp2,
    /// Typed replies.
    Resp3,
}

/// A shared payload at its place among the reply bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Splice {
    /// Offset in the flat buffer before which the payload goes.
    pub at: usize,
    /// The payload.
    pub bytes: Bytes,
}

/// A place in a reply. [`Reply::seal`] makes earlier marks meaningless.
#[derive(Clone, Copy, Debug, Default)]
pub struct Mark {
    buf: usize,
    splices: usize,
}

impl Mark {
    /// The length of the flat buffer at that place.
    pub fn offset(self) -> usize {
        self.buf
    }
}

/// Reply bytes in order: a flat buffer, and shared payloads spliced in at offsets of it without a copy.
#[derive(Default, Debug)]
pub struct Reply {
    /// The flat bytes. Appending whole replies here is allowed; removing is not.
    pub buf: Vec<u8>,
    /// In order of `at`.
    splices: Vec<Splice>,
    spliced_len: usize,
    proto: Proto,
}

impl Reply {
    /// An empty reply in the given protocol.
    pub fn new(proto: Proto) -> Self {
        Self { proto, ..Self::default() }
    }

    /// The protocol of what is written next.
    #[inline]
    pub fn proto(&self) -> Proto {
        self.proto
    }

    /// Writes in `proto` from here on.
    #[inline]
    pub fn set_proto(&mut self, proto: Proto) {
        self.proto = proto;
    }

    /// Whether there is nothing to send.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes to send, spliced ones included.
    #[inline]
    pub fn len(&self) -> usize {
        self.buf.len() + self.spliced_len
    }

    /// Drops the content, keeps protocol and capacity.
    #[inline]
    pub fn clear(&mut self) {
        self.buf.clear();
        if !self.splices.is_empty() {
            self.splices.clear();
            self.spliced_len = 0;
        }
    }

    /// `+OK`
    #[inline]
    pub fn ok(&mut self) {
        self.buf.extend_from_slice(b"+OK\r\n");
    }

    /// `+<text>`; the text must not hold a line end.
    #[inline]
    pub fn simple(&mut self, text: &str) {
        debug_assert!(!text.contains(['\r', '\n']));
        self.buf.reserve(text.len() + 3);
        self.buf.push(b'+');
        self.buf.extend_from_slice(text.as_bytes());
        self.buf.extend_from_slice(b"\r\n");
    }

    /// `-<text>`, where the text begins with the error code (`ERR …`). Line ends in it become spaces.
    pub fn error(&mut self, text: &str) {
        self.error_bytes(text.as_bytes());
    }

    /// [`Reply::error`] for a text that echoes bytes of the client.
    pub fn error_bytes(&mut self, text: &[u8]) {
        let end = text.iter().rposition(|byte| !is_line_end(*byte)).map_or(0, |last| last + 1);
        self.buf.reserve(end + 3);
        self.buf.push(b'-');
        self.buf.extend(text[..end].iter().map(|&byte| if is_line_end(byte) { b' ' } else { byte }));
        self.buf.extend_from_slice(b"\r\n");
    }

    /// `:<value>`
    #[inline]
    pub fn int(&mut self, value: i64) {
        match value {
            0..=99 => self.header(b':', value as usize),
            _ => self.long_header(b':', value),
        }
    }

    /// `$<len>` and the bytes, copied.
    #[inline]
    pub fn bulk(&mut self, bytes: &[u8]) {
        // One reservation for the longest header, the payload, and the line end.
        self.buf.reserve(bytes.len() + 32);
        self.header(b'$', bytes.len());
        self.buf.extend_from_slice(bytes);
        self.buf.extend_from_slice(b"\r\n");
    }

    /// `$<len>` and the bytes, shared from [`SPLICE_LEN_MIN`] on.
    #[inline]
    pub fn bulk_shared(&mut self, bytes: Bytes) {
        if bytes.len() < SPLICE_LEN_MIN {
            self.bulk(&bytes);
            return;
        }
        self.header(b'$', bytes.len());
        self.splice(bytes);
        self.buf.extend_from_slice(b"\r\n");
    }

    /// No value: `$-1` or `_`.
    #[inline]
    pub fn null(&mut self) {
        match self.proto {
            Proto::Resp2 => self.buf.extend_from_slice(b"$-1\r\n"),
            Proto::Resp3 => self.buf.extend_from_slice(b"_\r\n"),
        }
    }

    /// No array: `*-1` or `_`.
    #[inline]
    pub fn null_array(&mut self) {
        match self.proto {
            Proto::Resp2 => self.buf.extend_from_slice(b"*-1\r\n"),
            Proto::Resp3 => self.buf.extend_from_slice(b"_\r\n"),
        }
    }

    /// The head of an array of `count` replies, which follow.
    #[inline]
    pub fn array(&mut self, count: usize) {
        self.header(b'*', count);
    }

    /// The head of a map of `count` pairs, whose keys and values follow in turn.
    #[inline]
    pub fn map(&mut self, count: usize) {
        match self.proto {
            Proto::Resp2 => self.header(b'*', count * 2),
            Proto::Resp3 => self.header(b'%', count),
        }
    }

    /// The head of a set of `count` replies, which follow.
    #[inline]
    pub fn set(&mut self, count: usize) {
        self.typed_header(b'~', count);
    }

    /// The head of a push message of `count` parts, which follow.
    #[inline]
    pub fn push(&mut self, count: usize) {
        self.typed_header(b'>', count);
    }

    /// `,<value>`, or a bulk of the same text.
    pub fn double(&mut self, value: f64) {
        let mut space = [0; crate::double::TEXT_LEN_MAX];
        let text = double_text(value, &mut space);
        match self.proto {
            Proto::Resp2 => self.bulk(text),
            Proto::Resp3 => self.line(b',', text),
        }
    }

    /// `#t` or `#f`, or the integers 1 and 0.
    #[inline]
    pub fn bool(&mut self, value: bool) {
        self.buf.extend_from_slice(match (self.proto, value) {
            (Proto::Resp2, true) => b":1\r\n",
            (Proto::Resp2, false) => b":0\r\n",
            (Proto::Resp3, true) => b"#t\r\n",
            (Proto::Resp3, false) => b"#f\r\n",
        });
    }

    /// Text of a stated format (`txt`, `mkd`: three bytes), or a bulk without it.
    pub fn verbatim(&mut self, format: &str, text: &str) {
        debug_assert_eq!(format.len(), 3);
        if self.proto == Proto::Resp2 {
            return self.bulk(text.as_bytes());
        }
        self.header(b'=', text.len() + 4);
        self.buf.extend_from_slice(format.as_bytes());
        self.buf.push(b':');
        self.buf.extend_from_slice(text.as_bytes());
        self.buf.extend_from_slice(b"\r\n");
    }

    /// `(<digits>`, or a bulk of the same text.
    pub fn bignum(&mut self, digits: &str) {
        match self.proto {
            Proto::Resp2 => self.bulk(digits.as_bytes()),
            Proto::Resp3 => self.line(b'(', digits.as_bytes()),
        }
    }

    /// Bytes that are replies already.
    #[inline]
    pub fn raw(&mut self, bytes: &[u8]) {
        self.buf.extend_from_slice(bytes);
    }

    /// Moves the content of `other` to the end; `other` is empty afterwards and keeps its protocol.
    pub fn append(&mut self, other: &mut Self) {
        if self.is_empty() {
            self.clear();
            std::mem::swap(&mut self.buf, &mut other.buf);
            std::mem::swap(&mut self.splices, &mut other.splices);
            std::mem::swap(&mut self.spliced_len, &mut other.spliced_len);
            return;
        }
        if other.buf.len() >= SEAL_LEN_MIN {
            other.seal();
        }
        let offset = self.buf.len();
        self.splices
            .extend(other.splices.drain(..).map(|splice| Splice { at: splice.at + offset, ..splice }));
        self.spliced_len += std::mem::take(&mut other.spliced_len);
        self.buf.append(&mut other.buf);
    }

    /// The present end, for [`Self::split_off`].
    #[inline]
    pub fn mark(&self) -> Mark {
        Mark { buf: self.buf.len(), splices: self.splices.len() }
    }

    /// Whether payloads have been spliced in since `mark`.
    #[inline]
    pub fn has_splices_since(&self, mark: Mark) -> bool {
        self.splices.len() > mark.splices
    }

    /// Takes away what was written since `mark`, as a reply of its own.
    pub fn split_off(&mut self, mark: Mark) -> Self {
        let mut tail = Self { buf: self.buf.split_off(mark.buf), proto: self.proto, ..Self::default() };
        tail.splices = self.splices.split_off(mark.splices);
        for splice in &mut tail.splices {
            splice.at -= mark.buf;
            tail.spliced_len += splice.bytes.len();
        }
        self.spliced_len -= tail.spliced_len;
        tail
    }

    /// Copies what `other` holds between two of its marks to the end; spliced payloads are shared.
    pub fn append_range(&mut self, other: &Self, from: Mark, to: Mark) {
        let mut start = from.buf;
        for splice in &other.splices[from.splices..to.splices] {
            self.buf.extend_from_slice(&other.buf[start..splice.at]);
            self.splice(splice.bytes.clone());
            start = splice.at;
        }
        self.buf.extend_from_slice(&other.buf[start..to.buf]);
    }

    /// The pieces to send, in order; none is empty.
    pub fn slices(&self) -> impl Iterator<Item = &[u8]> {
        let starts = std::iter::once(0).chain(self.splices.iter().map(|splice| splice.at));
        let ends = self.splices.iter().map(|splice| splice.at).chain([self.buf.len()]);
        let payloads = self.splices.iter().map(|splice| splice.bytes.as_ref()).chain([&[][..]]);
        starts
            .zip(ends)
            .zip(payloads)
            .flat_map(|((start, end), payload)| [&self.buf[start..end], payload])
            .filter(|piece| !piece.is_empty())
    }

    /// Makes a flat buffer of 64 KiB and more a shared payload, so that it is never copied again. A shorter one
    /// stays. All marks become void.
    pub fn seal(&mut self) {
        if self.buf.len() < SEAL_LEN_MIN {
            return;
        }
        let flat = Bytes::from(std::mem::take(&mut self.buf));
        let mut sealed = Vec::with_capacity(self.splices.len() * 2 + 1);
        let mut start = 0;
        for splice in self.splices.drain(..) {
            sealed.push(Splice { at: 0, bytes: flat.slice(start..splice.at) });
            start = splice.at;
            sealed.push(Splice { at: 0, bytes: splice.bytes });
        }
        sealed.push(Splice { at: 0, bytes: flat.slice(start..) });
        sealed.retain(|splice| !splice.bytes.is_empty());
        self.splices = sealed;
        self.spliced_len += flat.len();
    }

    /// The same for what was written since `mark`. Marks taken up to then stay what they are, those of after become void.
    pub fn seal_since(&mut self, mark: Mark) {
        if self.buf.len() - mark.buf >= SEAL_LEN_MIN {
            let mut tail = self.split_off(mark);
            tail.seal();
            self.append(&mut tail);
        }
    }

    /// The flat bytes, and the shared payloads in order.
    pub(crate) fn into_parts(self) -> (Vec<u8>, Vec<Splice>) {
        (self.buf, self.splices)
    }

    /// Takes the content out and leaves an empty reply in the same protocol.
    pub fn take(&mut self) -> Self {
        let proto = self.proto;
        std::mem::replace(self, Self::new(proto))
    }

    /// The shared payloads and where they go.
    #[inline]
    pub fn splices(&self) -> &[Splice] {
        &self.splices
    }

    fn splice(&mut self, bytes: Bytes) {
        self.spliced_len += bytes.len();
        self.splices.push(Splice { at: self.buf.len(), bytes });
    }

    /// A head that is `*` in RESP2.
    #[inline]
    fn typed_header(&mut self, kind: u8, count: usize) {
        match self.proto {
            Proto::Resp2 => self.header(b'*', count),
            Proto::Resp3 => self.header(kind, count),
        }
    }

    /// `<kind><count>\r\n`
    #[inline]
    fn header(&mut self, kind: u8, count: usize) {
        match count {
            0..=9 => self.buf.extend_from_slice(&[kind, digit(count), b'\r', b'\n']),
            10..=99 => {
                self.buf.extend_from_slice(&[kind, digit(count / 10), digit(count % 10), b'\r', b'\n']);
            }
            _ => self.long_header(kind, count as i64),
        }
    }

    fn long_header(&mut self, kind: u8, value: i64) {
        self.line(kind, itoa::Buffer::new().format(value).as_bytes());
    }

    /// `<kind><text>\r\n`
    fn line(&mut self, kind: u8, text: &[u8]) {
        self.buf.reserve(text.len() + 3);
        self.buf.push(kind);
        self.buf.extend_from_slice(text);
        self.buf.extend_from_slice(b"\r\n");
    }
}

/// The digit for a number below ten.
#[inline(always)]
fn digit(value: usize) -> u8 {
    b'0' + value as u8
}

fn is_line_end(byte: u8) -> bool {
    matches!(byte, b'\r' | b'\n')
}
