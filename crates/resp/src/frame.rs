//! The client's side: commands as bytes, and replies as frames.
//!
//! Decoding is iterative and bounded, so that a hostile server costs no stack and no memory beyond the bytes it has
//! really sent. What RESP3 calls streamed types is refused: no server sends them.

use bytes::Bytes;

/// Levels of aggregates within each other.
const DEPTH_MAX: usize = 64;

/// Bytes of one simple string, error, or number.
const LINE_LEN_MAX: usize = 1 << 20;

/// Bytes of one bulk: what `proto-max-bulk-len` may allow.
const BULK_LEN_MAX: u64 = i64::MAX as u64;

/// Elements, or pairs, of one aggregate.
const COUNT_MAX: u64 = i32::MAX as u64;

/// Elements reserved before they have arrived.
const RESERVED_MAX: u64 = 1024;

/// One reply.
#[derive(Clone, Debug, PartialEq)]
pub enum Frame {
    /// `+`
    Simple(Bytes),
    /// `-` and `!`: the text begins with the error code.
    Error(Bytes),
    /// `:`
    Int(i64),
    /// `$`
    Bulk(Bytes),
    /// `_`, `$-1`, `*-1`
    Null,
    /// `*`
    Array(Vec<Self>),
    /// `%`: pairs of key and value in the order of the wire.
    Map(Vec<(Self, Self)>),
    /// `~`
    Set(Vec<Self>),
    /// `>`: not the reply to a command.
    Push(Vec<Self>),
    /// `,`
    Double(f64),
    /// `#`
    Bool(bool),
    /// `=`: text of a stated format (`txt`, `mkd`).
    Verbatim {
        /// Three bytes.
        format: [u8; 3],
        /// Without the format.
        text: Bytes,
    },
    /// `(`: a sign and digits.
    BigNumber(Bytes),
    /// `|`: pairs that say something about the reply after them.
    Attribute(Vec<(Self, Self)>, Box<Self>),
}

/// The server broke the protocol, or a limit of this decoder.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// The first byte of a frame says no type.
    #[error("a reply cannot start with byte 0x{0:02x}")]
    Kind(u8),
    /// A carriage return without its line feed, or a bulk longer than it said.
    #[error("a part of the reply does not end in CRLF")]
    LineEnd,
    /// A simple string, error or number of over 1 MiB.
    #[error("a line of the reply is too long")]
    LineTooLong,
    /// A value that its type cannot have.
    #[error("a value of the reply does not fit its type")]
    Value,
    /// A length or count that is no number or too large: over `i64::MAX` or `INT_MAX`.
    #[error("a length in the reply is invalid")]
    Length,
    /// Aggregates in over 64 levels.
    #[error("the reply is nested too deeply")]
    TooDeep,
}

/// Appends a command as an array of bulk strings.
pub fn encode_command(out: &mut Vec<u8>, args: &[impl AsRef<[u8]>]) {
    let mut digits = itoa::Buffer::new();
    let mut head = |out: &mut Vec<u8>, kind: u8, count: usize| {
        out.push(kind);
        out.extend_from_slice(digits.format(count).as_bytes());
        out.extend_from_slice(b"\r\n");
    };
    head(out, b'*', args.len());
    for arg in args {
        let arg = arg.as_ref();
        // The longest head, the argument, and the line end.
        out.reserve(arg.len() + 32);
        head(out, b'$', arg.len());
        out.extend_from_slice(arg);
        out.extend_from_slice(b"\r\n");
    }
}

/// The reply at the start of `input` and its length in bytes, or `None` while it is incomplete.
///
/// # Errors
/// The bytes are no reply, or one beyond the limits. The connection cannot be used any more.
pub fn decode(input: &[u8]) -> Result<Option<(Frame, usize)>, DecodeError> {
    // Incomplete replies are found without building anything.
    if frame_len(input)?.is_none() {
        return Ok(None);
    }
    let mut nest = Nest::default();
    let mut pos = 0;
    while let Some((item, next)) = item(input, pos)? {
        pos = next;
        let done = match item {
            Item::Aggregate(kind, count) => nest.open(kind, count)?,
            leaf => nest.add(leaf.into_frame()),
        };
        if let Some(frame) = done {
            return Ok(Some((frame, pos)));
        }
    }
    Ok(None)
}

/// Aggregates within each other that are being built.
#[derive(Default)]
pub(crate) struct Nest {
    open: Vec<Building>,
}

impl Nest {
    /// Begins an aggregate; returns the outermost frame if it is complete thereby.
    pub(crate) fn open(&mut self, kind: Kind, count: u64) -> Result<Option<Frame>, DecodeError> {
        let building = Building::new(kind, count);
        if building.missing == 0 {
            return Ok(self.add(building.finish()));
        }
        if self.open.len() == DEPTH_MAX {
            return Err(DecodeError::TooDeep);
        }
        self.open.push(building);
        Ok(None)
    }

    /// Adds a complete frame; returns the outermost one if it is complete thereby.
    pub(crate) fn add(&mut self, mut frame: Frame) -> Option<Frame> {
        loop {
            let Some(parent) = self.open.last_mut() else { return Some(frame) };
            parent.items.push(frame);
            parent.missing -= 1;
            if parent.missing > 0 {
                return None;
            }
            frame = self.open.pop()?.finish();
        }
    }
}

/// The length in bytes of the reply at the start of `input`, or `None` while it is incomplete. Accepts exactly what
/// [`decode`] accepts, and builds nothing.
///
/// # Errors
/// Those of [`decode`].
pub fn frame_len(input: &[u8]) -> Result<Option<usize>, DecodeError> {
    let mut missing = [0_u64; DEPTH_MAX];
    let mut depth = 0;
    let mut pos = 0;
    loop {
        let Some((item, next)) = item(input, pos)? else {
            return Ok(None);
        };
        pos = next;
        if let Item::Aggregate(kind, count) = item
            && kind.children(count) > 0
        {
            *missing.get_mut(depth).ok_or(DecodeError::TooDeep)? = kind.children(count);
            depth += 1;
            continue;
        }
        loop {
            if depth == 0 {
                return Ok(Some(pos));
            }
            missing[depth - 1] -= 1;
            if missing[depth - 1] > 0 {
                break;
            }
            depth -= 1;
        }
    }
}

/// The kinds of aggregates.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Kind {
    Array,
    Map,
    Set,
    Push,
    Attribute,
}

impl Kind {
    /// Frames that follow a head with this count.
    fn children(self, count: u64) -> u64 {
        match self {
            Self::Array | Self::Set | Self::Push => count,
            Self::Map => count * 2,
            Self::Attribute => count * 2 + 1,
        }
    }
}

/// An aggregate some of whose frames are still to come.
struct Building {
    kind: Kind,
    missing: u64,
    items: Vec<Frame>,
}

impl Building {
    fn new(kind: Kind, count: u64) -> Self {
        let missing = kind.children(count);
        Self { kind, missing, items: Vec::with_capacity(missing.min(RESERVED_MAX) as usize) }
    }

    fn finish(self) -> Frame {
        let mut items = self.items;
        match self.kind {
            Kind::Array => Frame::Array(items),
            Kind::Set => Frame::Set(items),
            Kind::Push => Frame::Push(items),
            Kind::Map => Frame::Map(pairs(items)),
            Kind::Attribute => {
                let about = items.pop().unwrap_or(Frame::Null);
                Frame::Attribute(pairs(items), Box::new(about))
            }
        }
    }
}

/// An even number of frames, two by two.
fn pairs(items: Vec<Frame>) -> Vec<(Frame, Frame)> {
    let mut items = items.into_iter();
    let mut pairs = Vec::with_capacity(items.len() / 2);
    while let (Some(key), Some(value)) = (items.next(), items.next()) {
        pairs.push((key, value));
    }
    pairs
}

/// One head or leaf, with its bytes where they lie.
pub(crate) enum Item<'a> {
    Simple(&'a [u8]),
    Error(&'a [u8]),
    Int(i64),
    Bulk(&'a [u8]),
    Null,
    Double(f64),
    Bool(bool),
    Verbatim([u8; 3], &'a [u8]),
    BigNumber(&'a [u8]),
    Aggregate(Kind, u64),
}

impl Item<'_> {
    /// A leaf as a frame; a head as if it had no elements.
    pub(crate) fn into_frame(self) -> Frame {
        match self {
            Self::Simple(text) => Frame::Simple(Bytes::copy_from_slice(text)),
            Self::Error(text) => Frame::Error(Bytes::copy_from_slice(text)),
            Self::Int(value) => Frame::Int(value),
            Self::Bulk(bytes) => Frame::Bulk(Bytes::copy_from_slice(bytes)),
            Self::Null => Frame::Null,
            Self::Double(value) => Frame::Double(value),
            Self::Bool(value) => Frame::Bool(value),
            Self::Verbatim(format, text) => Frame::Verbatim { format, text: Bytes::copy_from_slice(text) },
            Self::BigNumber(digits) => Frame::BigNumber(Bytes::copy_from_slice(digits)),
            Self::Aggregate(kind, _) => Building::new(kind, 0).finish(),
        }
    }
}

/// The head or leaf at `pos` and the position after it; `None` where it is incomplete.
pub(crate) fn item(input: &[u8], pos: usize) -> Result<Option<(Item<'_>, usize)>, DecodeError> {
    let Some((&kind, rest)) = input.get(pos..).and_then(<[u8]>::split_first) else {
        return Ok(None);
    };
    if !b"+-:$*_,#(%~>|=!".contains(&kind) {
        return Err(DecodeError::Kind(kind));
    }
    let Some(line) = line(rest)? else {
        return Ok(None);
    };
    let next = pos + 1 + line.len() + 2;
    let item = match kind {
        b'+' => Item::Simple(line),
        b'-' => Item::Error(line),
        b':' => Item::Int(integer(line).ok_or(DecodeError::Value)?),
        b'_' if line.is_empty() => Item::Null,
        b',' => Item::Double(double(line).ok_or(DecodeError::Value)?),
        b'#' if line == b"t" => Item::Bool(true),
        b'#' if line == b"f" => Item::Bool(false),
        b'(' if is_number(line) => Item::BigNumber(line),
        b'_' | b'#' | b'(' => return Err(DecodeError::Value),
        b'$' | b'*' if line == b"-1" => Item::Null,
        b'*' => Item::Aggregate(Kind::Array, length(line, COUNT_MAX)?),
        b'%' => Item::Aggregate(Kind::Map, length(line, COUNT_MAX)?),
        b'~' => Item::Aggregate(Kind::Set, length(line, COUNT_MAX)?),
        b'>' => Item::Aggregate(Kind::Push, length(line, COUNT_MAX)?),
        b'|' => Item::Aggregate(Kind::Attribute, length(line, COUNT_MAX)?),
        _ => return bulk(input, next, kind, length(line, BULK_LEN_MAX)? as usize),
    };
    Ok(Some((item, next)))
}

/// A payload of `len` bytes and its line end at `start`.
fn bulk(input: &[u8], start: usize, kind: u8, len: usize) -> Result<Option<(Item<'_>, usize)>, DecodeError> {
    let Some((payload, rest)) = input[start..].split_at_checked(len) else {
        return Ok(None);
    };
    let item = match (kind, payload) {
        (b'$', bytes) => Item::Bulk(bytes),
        (b'!', text) => Item::Error(text),
        (_, [a, b, c, b':', text @ ..]) => Item::Verbatim([*a, *b, *c], text),
        _ => return Err(DecodeError::Value),
    };
    match rest {
        [b'\r', b'\n', ..] => Ok(Some((item, start + len + 2))),
        [] | [b'\r'] => Ok(None),
        _ => Err(DecodeError::LineEnd),
    }
}

/// The line at the start of `rest` without its end.
fn line(rest: &[u8]) -> Result<Option<&[u8]>, DecodeError> {
    let searched = &rest[..rest.len().min(LINE_LEN_MAX + 1)];
    let Some(end) = searched.iter().position(|&byte| byte == b'\r') else {
        return if searched.len() > LINE_LEN_MAX { Err(DecodeError::LineTooLong) } else { Ok(None) };
    };
    match rest.get(end + 1) {
        None => Ok(None),
        Some(b'\n') => Ok(Some(&rest[..end])),
        Some(_) => Err(DecodeError::LineEnd),
    }
}

fn length(text: &[u8], max: u64) -> Result<u64, DecodeError> {
    let len = integer(text).and_then(|len| u64::try_from(len).ok()).ok_or(DecodeError::Length)?;
    if len > max { Err(DecodeError::Length) } else { Ok(len) }
}

/// A sign and digits.
fn is_number(text: &[u8]) -> bool {
    let digits = text.strip_prefix(b"-").or_else(|| text.strip_prefix(b"+")).unwrap_or(text);
    !digits.is_empty() && digits.iter().all(u8::is_ascii_digit)
}

fn integer(text: &[u8]) -> Option<i64> {
    // Numbers of a few digits are nearly all there are.
    if (1..=9).contains(&text.len()) && text.iter().all(u8::is_ascii_digit) {
        return Some(text.iter().fold(0, |value, digit| value * 10 + i64::from(digit - b'0')));
    }
    std::str::from_utf8(text).ok()?.parse().ok()
}

fn double(text: &[u8]) -> Option<f64> {
    match text {
        b"inf" => Some(f64::INFINITY),
        b"-inf" => Some(f64::NEG_INFINITY),
        b"nan" | b"-nan" => Some(f64::NAN),
        _ if text.iter().all(|byte| byte.is_ascii_digit() || b"+-.eE".contains(byte)) => {
            std::str::from_utf8(text).ok()?.parse().ok()
        }
        _ => None,
    }
}
