//! What a client can do wrong on the wire, in Valkey's words.

use crate::reply::Reply;

/// The client broke the protocol. The text follows `-ERR ` on the wire, and the connection is closed after it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProtocolError {
    /// A line that is no command grew over `inline_len_max` without ending.
    #[error("Protocol error: too big inline request")]
    InlineTooLong,
    /// An inline command with an open quote, or with text right after a closing one.
    #[error("Protocol error: unbalanced quotes in request")]
    UnbalancedQuotes,
    /// The line with the count of arguments grew over `inline_len_max` without ending.
    #[error("Protocol error: too big mbulk count string")]
    CountLineTooLong,
    /// The count of arguments is no integer, or over `args_max`.
    #[error("Protocol error: invalid multibulk length")]
    MultibulkLength,
    /// The line with the length of an argument grew over `inline_len_max` without ending.
    #[error("Protocol error: too big bulk count string")]
    LengthLineTooLong,
    /// An argument does not start with `$`.
    #[error("Protocol error: expected '$', got '{}'", char::from(shown(*.0)))]
    NotABulk(u8),
    /// The length of an argument is no integer, negative, or over `bulk_len_max`.
    #[error("Protocol error: invalid bulk length")]
    BulkLength,
    /// A count of arguments that only a client who has given its password may ask for.
    #[error("Protocol error: unauthenticated multibulk length")]
    StrangerMultibulkLength,
    /// A length of an argument that only a client who has given its password may ask for.
    #[error("Protocol error: unauthenticated bulk length")]
    StrangerBulkLength,
    /// A line or an argument does not end in CRLF.
    #[error("Protocol error: invalid CRLF in request")]
    LineEnd,
    /// The command is longer than a [`crate::Span`] can address (4 GiB). Valkey has no such limit.
    #[error("Protocol error: too big request")]
    RequestTooLong,
}

impl ProtocolError {
    /// Appends the error reply. Unlike the text of `Display` it holds the client's byte as it was.
    pub fn reply(self, reply: &mut Reply) {
        let mut text = format!("ERR {self}").into_bytes();
        if let Self::NotABulk(byte) = self
            && !byte.is_ascii()
        {
            text.truncate("ERR Protocol error: expected '$', got '".len());
            text.extend_from_slice(&[byte, b'\'']);
        }
        reply.error_bytes(&text);
    }
}

/// The byte as an error may show it: a line end would end the reply.
fn shown(byte: u8) -> u8 {
    if matches!(byte, b'\r' | b'\n') { b' ' } else { byte }
}
