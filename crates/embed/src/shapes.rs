//! From replies to values: what each typed call makes of its reply.

use std::time::Duration;

use bytes::Bytes;
use corelane_resp::{Frame, Frames, Reply};

use crate::error::Error;

/// How long a key will live.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Ttl {
    /// There is no such key.
    NoKey,
    /// It has no deadline.
    Forever,
    /// It vanishes after this time.
    Left(Duration),
}

/// The one frame of a reply; an error reply is an error.
pub(crate) fn frame(reply: Reply) -> Result<Frame, Error> {
    match Frames::new(reply).next()? {
        Some(frame) => checked(frame),
        None => Err(Error::Unexpected("nothing".to_owned())),
    }
}

/// Makes an error reply an error.
pub(crate) fn checked(frame: Frame) -> Result<Frame, Error> {
    match frame {
        Frame::Error(text) => Err(Error::of_reply(&text)),
        frame => Ok(frame),
    }
}

fn unexpected<T>(frame: &Frame) -> Result<T, Error> {
    Err(Error::Unexpected(format!("{frame:?}")))
}

fn value_of(frame: Frame) -> Result<Option<Bytes>, Error> {
    match frame {
        Frame::Bulk(bytes) => Ok(Some(bytes)),
        Frame::Null => Ok(None),
        other => unexpected(&other),
    }
}

pub(crate) fn value(reply: Reply) -> Result<Option<Bytes>, Error> {
    value_of(frame(reply)?)
}

pub(crate) fn values(reply: Reply) -> Result<Vec<Option<Bytes>>, Error> {
    match frame(reply)? {
        Frame::Array(items) => items.into_iter().map(value_of).collect(),
        other => unexpected(&other),
    }
}

pub(crate) fn done(reply: Reply) -> Result<(), Error> {
    match frame(reply)? {
        Frame::Simple(_) => Ok(()),
        other => unexpected(&other),
    }
}

/// For SET with NX: OK, or nothing.
pub(crate) fn done_or_null(reply: Reply) -> Result<bool, Error> {
    match frame(reply)? {
        Frame::Simple(_) => Ok(true),
        Frame::Null => Ok(false),
        other => unexpected(&other),
    }
}

pub(crate) fn int(reply: Reply) -> Result<i64, Error> {
    match frame(reply)? {
        Frame::Int(value) => Ok(value),
        other => unexpected(&other),
    }
}

pub(crate) fn count(reply: Reply) -> Result<u64, Error> {
    let value = int(reply)?;
    u64::try_from(value).map_err(|_| Error::Unexpected(value.to_string()))
}

pub(crate) fn flag(reply: Reply) -> Result<bool, Error> {
    Ok(int(reply)? != 0)
}

/// PTTL: -2 without a key, -1 without a deadline.
pub(crate) fn ttl(reply: Reply) -> Result<Ttl, Error> {
    Ok(match int(reply)? {
        -2 => Ttl::NoKey,
        left => u64::try_from(left).map_or(Ttl::Forever, |ms| Ttl::Left(Duration::from_millis(ms))),
    })
}
