//! A caller of the request parser as a server is one, fed by hand.

use bytes::Bytes;
use corelane_resp::{Limits, Parser, ProtocolError, Span, Step};

/// The arguments of one command.
pub(crate) type Command = Vec<Vec<u8>>;

/// All that came of a stream: the commands, then the error that ended it.
pub(crate) type Outcome = (Vec<Command>, Option<ProtocolError>);

/// A connection that parses what it is fed.
#[derive(Default)]
pub(crate) struct Feeder {
    limits: Limits,
    parser: Parser,
    input: Vec<u8>,
    spans: Vec<Span>,
    owned: Vec<Bytes>,
    /// Length of a large argument with its line end, and what has arrived of it.
    large: Option<(usize, Vec<u8>)>,
    pub(crate) outcome: Outcome,
}

impl Feeder {
    pub(crate) fn new(limits: Limits) -> Self {
        Self { limits, ..Self::default() }
    }

    pub(crate) fn feed(&mut self, mut bytes: &[u8]) {
        while self.outcome.1.is_none() {
            if let Some((want, mut got)) = self.large.take() {
                let (part, rest) = bytes.split_at(bytes.len().min(want - got.len()));
                got.extend_from_slice(part);
                bytes = rest;
                if got.len() < want {
                    self.large = Some((want, got));
                    return;
                }
                match Parser::payload_of(&got) {
                    Ok(payload) => self.owned.push(Bytes::copy_from_slice(payload)),
                    Err(error) => self.outcome.1 = Some(error),
                }
                self.parser.bulk_taken(&mut self.spans, self.owned.len().saturating_sub(1));
                continue;
            }
            self.input.extend_from_slice(bytes);
            bytes = &[];
            match self.parser.parse(&self.input, &mut self.spans, &mut self.owned, &self.limits) {
                Ok(Step::Command { used }) => {
                    if !self.spans.is_empty() {
                        self.outcome.0.push(self.command());
                    }
                    self.input.drain(..used);
                }
                Ok(Step::NeedMore) => return,
                Ok(Step::NeedBulk { start, len }) => {
                    assert!(len >= self.limits.large_bulk_len && len <= self.limits.bulk_len_max);
                    let rest = self.input.split_off(start);
                    self.large = Some((len + 2, Vec::new()));
                    self.feed(&rest);
                    return;
                }
                Err(error) => self.outcome.1 = Some(error),
            }
        }
    }

    fn command(&self) -> Command {
        let argument = |span: &Span| match span.owned_idx() {
            Some(idx) => self.owned[idx].to_vec(),
            None => self.input[span.range()].to_vec(),
        };
        self.spans.iter().map(argument).collect()
    }
}

/// What comes of a stream that arrives in these chunks.
pub(crate) fn outcome<'a>(limits: Limits, chunks: impl IntoIterator<Item = &'a [u8]>) -> Outcome {
    let mut feeder = Feeder::new(limits);
    for chunk in chunks {
        feeder.feed(chunk);
    }
    feeder.outcome
}
