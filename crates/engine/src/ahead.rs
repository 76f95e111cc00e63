//! Commands read ahead of being run.

use crate::keyspace::{KnownKey, WARM_MAX};
use crate::session::Partial;
use bytes::Bytes;
use corelane_resp::{Limits, Parser, ProtocolError, Span, Step};

/// Commands read ahead from one input, so that their keys can be loaded together.
pub(crate) struct Ahead {
    /// Complete commands; one more may be incomplete.
    pub(crate) len: usize,
    /// Where each command starts, and the last one ends.
    pub(crate) starts: [usize; WARM_MAX + 1],
    pub(crate) spans: [Vec<Span>; WARM_MAX + 1],
    /// Owned arguments of the last command; the others have none.
    pub(crate) owned: Vec<Bytes>,
    /// The first key of each command, if it has been hashed.
    pub(crate) keys: [KnownKey; WARM_MAX],
}

impl Default for Ahead {
    fn default() -> Self {
        Self {
            len: 0,
            starts: [0; WARM_MAX + 1],
            spans: std::array::from_fn(|_| Vec::new()),
            owned: Vec::new(),
            keys: [KnownKey::default(); WARM_MAX],
        }
    }
}

impl Ahead {
    /// Reads commands from the front of `data`, at most `count_max` and as many as can be warmed. What ended that, if not
    /// the number: more input is needed, or an error, which come after the complete commands.
    pub(crate) fn parse(
        &mut self,
        parser: &mut Parser,
        data: &[u8],
        limits: &Limits,
        count_max: usize,
    ) -> Option<Result<Step, ProtocolError>> {
        self.len = 0;
        self.starts[0] = 0;
        while self.len < count_max.min(WARM_MAX) {
            let start = self.starts[self.len];
            if self.len > 0 {
                // Only the first command may have been begun earlier.
                self.spans[self.len].clear();
                if start == data.len() {
                    return Some(Ok(Step::NeedMore));
                }
            }
            match parser.parse(&data[start..], &mut self.spans[self.len], &mut self.owned, limits) {
                Ok(Step::Command { used }) => {
                    self.len += 1;
                    self.starts[self.len] = start + used;
                    if !self.owned.is_empty() {
                        return None;
                    }
                }
                other => return Some(other),
            }
        }
        None
    }

    /// Bytes of a command as it arrived.
    #[inline]
    pub(crate) fn request_bytes(&self, idx: usize) -> usize {
        let flat = self.starts[idx + 1] - self.starts[idx];
        // Only the last command has owned arguments, each with a line end.
        if idx + 1 < self.len || self.owned.is_empty() {
            return flat;
        }
        flat + self.owned.iter().map(|bytes| bytes.len() + 2).sum::<usize>()
    }

    /// The beginning of a command that is not complete.
    pub(crate) fn take_partial(&mut self) -> Box<Partial> {
        Box::new(Partial {
            spans: std::mem::take(&mut self.spans[self.len]),
            owned: std::mem::take(&mut self.owned),
        })
    }
}
