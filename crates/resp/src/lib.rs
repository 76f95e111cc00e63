//! RESP2 and RESP3 without input or output: bytes in, positions or frames out, and replies as bytes.
//!
//! A server uses [`Parser`] for what clients send and [`Reply`] for what it answers; a client uses
//! [`encode_command`] and [`decode`]. Nothing here knows commands, sockets, or clocks. Texts and limits are
//! those of Valkey 9.1.

#![forbid(unsafe_code)]

mod double;
mod error;
mod frame;
mod frames;
mod inline;
mod reply;
mod request;

pub use double::{TEXT_LEN_MAX as DOUBLE_LEN_MAX, grisu_text};
pub use error::ProtocolError;
pub use frame::{DecodeError, Frame, decode, encode_command, frame_len};
pub use frames::Frames;
pub use reply::{Mark, Proto, Reply, SPLICE_LEN_MIN, Splice};
pub use request::{Limits, Parser, Span, Step};
