//! The errors a client can get, with their wire texts, in one place.

use std::borrow::Cow;

/// What a command answers instead of a result. Displays as the reply's text without the leading `-`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The key holds another type.
    #[error("WRONGTYPE Operation against a key holding the wrong kind of value")]
    WrongType,
    /// An option is unknown, misplaced or in conflict with another.
    #[error("ERR syntax error")]
    Syntax,
    /// An argument that must be a 64-bit integer is not one.
    #[error("ERR value is not an integer or out of range")]
    NotInteger,
    /// An argument that must be a number is not one.
    #[error("ERR value is not a valid float")]
    NotFloat,
    /// A result that does not fit.
    #[error("ERR increment or decrement would overflow")]
    Overflow,
    /// An offset or index out of range.
    #[error("ERR offset is out of range")]
    OffsetRange,
    /// A string would exceed `proto-max-bulk-len`.
    #[error("ERR string exceeds maximum allowed size (proto-max-bulk-len)")]
    StringTooLong,
    /// An expiry time that is zero, negative or overflows.
    #[error("ERR invalid expire time in '{0}' command")]
    InvalidExpire(Cow<'static, str>),
    /// The source key is not there.
    #[error("ERR no such key")]
    NoSuchKey,
    /// A database index that does not exist.
    #[error("ERR DB index is out of range")]
    DbRange,
    /// A database index that is not a number.
    #[error("ERR invalid DB index")]
    DbInvalid,
    /// Too few or too many arguments.
    #[error("ERR wrong number of arguments for '{0}' command")]
    Arity(Cow<'static, str>),
    /// A SCAN cursor that is not a number.
    #[error("ERR invalid cursor")]
    InvalidCursor,
    /// An argument that must be a positive integer.
    #[error("ERR value is out of range, must be positive")]
    NotPositive,
    /// Source and destination are the same.
    #[error("ERR source and destination objects are the same")]
    SameObject,
    /// HELLO with a version other than 2 or 3.
    #[error("NOPROTO unsupported protocol version")]
    NoProto,
    /// A command on keys, asked for by a monitor.
    #[error("ERR Replica can't interact with the keyspace")]
    MonitorKeys,
    /// Any other text, code included.
    #[error("{0}")]
    Text(Cow<'static, str>),
    /// A text that echoes bytes of the client, code included.
    #[error("{}", String::from_utf8_lossy(.0))]
    Echo(Box<[u8]>),
}

impl Error {
    /// An error with a text of its own, code included.
    pub const fn text(text: &'static str) -> Self {
        Self::Text(Cow::Borrowed(text))
    }

    /// An error whose text was made for this occasion, code included.
    pub fn owned(text: String) -> Self {
        Self::Text(Cow::Owned(text))
    }

    /// `before`, a word of the client up to its first NUL, `after`.
    pub fn echo(before: &str, word: &[u8], after: &str) -> Self {
        Self::Echo([before.as_bytes(), echoed(word), after.as_bytes()].concat().into())
    }

    /// The reply's bytes without the leading `-`.
    pub fn wire(&self) -> Cow<'_, [u8]> {
        match self {
            Self::Echo(bytes) => Cow::Borrowed(bytes),
            other => Cow::Owned(other.to_string().into_bytes()),
        }
    }
}

/// A client's word as Valkey echoes it in an error: up to its first NUL, as C's `%s` prints it.
pub(crate) fn echoed(word: &[u8]) -> &[u8] {
    let end = word.iter().position(|&byte| byte == 0).unwrap_or(word.len());
    &word[..end]
}
