//! What shards send each other: batches of single-shard commands and their replies, and transaction messages.
//!
//! Commands and replies travel flat, so that a hop allocates nothing per command:
//!
//! ```text
//! request  session idx u32 │ generation u32 │ seq u32 │ command u16 │ db u16 │ proto u8 │ no_touch u8 │ number u16 │ argc u32 │ len u32 × argc │ bytes
//! reply    session idx u32 │ generation u32 │ seq u32 │ len u32 │ bytes
//! ```
//! A length with the top bit set names an argument in the batch's list of owned ones. Replies with spliced payloads,
//! which are rare and large, travel beside the flat ones.

use crate::args::{Args, OwnedArgs};
use crate::bundle::{Bundle, BundleLock, BundleResult};
use crate::command::Command;
use crate::commands::{self, CommandId, CommandNumber};
use crate::ctx::{PartResult, Payload};
use crate::journal::Note;
use crate::pubsub::PubSubMessage;
use crate::session::SessionId;
use bytes::Bytes;
use corelane_resp::{Mark, Proto, Reply, Span};

const OWNED_BIT: u32 = 1 << 31;
const REQUEST_HEADER: usize = 24;
const REPLY_HEADER: usize = 16;

/// Everything one shard has for another at the end of a turn.
#[derive(Default, Debug)]
pub struct Batch {
    requests: Vec<u8>,
    owned: Vec<Bytes>,
    /// Flat replies; a `Reply` so that handlers write into it directly.
    replies: Reply,
    large_replies: Vec<(SessionId, u32, Reply)>,
    /// Transaction messages.
    pub txs: Vec<TxMessage>,
    /// Commands as the destination's monitors are shown them.
    pub monitor_lines: Vec<u8>,
    /// Monitors of the sending shard that have gone, those included that `txs` announces.
    pub monitors_left: u32,
    /// Subscriptions and published messages; come after everything else.
    pub(crate) pubsub: Vec<PubSubMessage>,
    /// Bytes of the published messages among them.
    pub(crate) post_bytes: usize,
    /// Remarkable commands; come before everything else.
    pub notes: Vec<Note>,
    /// Commands in `requests`.
    pub request_count: u32,
}

/// Who asked, and under which circumstances.
#[derive(Clone, Copy, Debug)]
pub struct RequestHead {
    /// The connection, on the sending shard.
    pub session: SessionId,
    /// The reply's place among the connection's replies.
    pub seq: u32,
    /// Where the command stands in the table.
    pub(crate) command: CommandId,
    /// The selected database.
    pub db: u16,
    /// The protocol of the reply.
    pub proto: Proto,
    /// It is no access to its keys.
    pub no_touch: bool,
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes(bytes[at..at + 2].try_into().expect("two bytes"))
}

impl Batch {
    /// Whether there is nothing to send.
    pub fn is_empty(&self) -> bool {
        self.requests.is_empty()
            && self.replies.is_empty()
            && self.large_replies.is_empty()
            && self.txs.is_empty()
            && self.monitor_lines.is_empty()
            && self.monitors_left == 0
            && self.pubsub.is_empty()
            && self.notes.is_empty()
    }

    /// Empties it and keeps its memory, within reason.
    pub fn recycle(&mut self) {
        const KEEP_MAX: usize = 256 << 10;
        if self.requests.capacity() > KEEP_MAX {
            self.requests = Vec::new();
        }
        if self.replies.buf.capacity() > KEEP_MAX {
            self.replies = Reply::default();
        }
        self.requests.clear();
        self.owned.clear();
        self.replies.clear();
        self.large_replies.clear();
        self.txs.clear();
        self.monitor_lines.clear();
        self.monitor_lines.shrink_to(KEEP_MAX);
        self.monitors_left = 0;
        self.pubsub.clear();
        self.post_bytes = 0;
        self.notes.clear();
        self.request_count = 0;
    }

    /// Appends a command.
    pub fn push_request(&mut self, head: RequestHead, args: Args<'_>) {
        let out = &mut self.requests;
        out.extend_from_slice(&head.session.idx.to_le_bytes());
        out.extend_from_slice(&head.session.generation.to_le_bytes());
        out.extend_from_slice(&head.seq.to_le_bytes());
        out.extend_from_slice(&head.command.index.to_le_bytes());
        out.extend_from_slice(&head.db.to_le_bytes());
        out.extend_from_slice(&[u8::from(head.proto == Proto::Resp3), head.no_touch.into()]);
        out.extend_from_slice(&head.command.number.0.to_le_bytes());
        out.extend_from_slice(&(args.len() as u32).to_le_bytes());
        for idx in 0..args.len() {
            let word = match args.shared(idx) {
                None => args.at(idx).len() as u32,
                Some(bytes) => {
                    self.owned.push(bytes.clone());
                    (self.owned.len() - 1) as u32 | OWNED_BIT
                }
            };
            out.extend_from_slice(&word.to_le_bytes());
        }
        for idx in 0..args.len() {
            if args.shared(idx).is_none() {
                out.extend_from_slice(args.at(idx));
            }
        }
        self.request_count += 1;
    }

    /// The request at byte `at`: its head, its arguments' spans in `spans`, and where the next one starts.
    pub fn request_at(&self, at: usize, spans: &mut Vec<Span>) -> Option<(RequestHead, usize)> {
        let bytes = &self.requests[..];
        if at >= bytes.len() {
            return None;
        }
        let head = RequestHead {
            session: SessionId { idx: u32_at(bytes, at), generation: u32_at(bytes, at + 4) },
            seq: u32_at(bytes, at + 8),
            command: CommandId {
                index: u16_at(bytes, at + 12),
                number: CommandNumber(u16_at(bytes, at + 18)),
            },
            db: u16_at(bytes, at + 14),
            proto: if bytes[at + 16] == 1 { Proto::Resp3 } else { Proto::Resp2 },
            no_touch: bytes[at + 17] == 1,
        };
        let argc = u32_at(bytes, at + 20) as usize;
        let lengths = at + REQUEST_HEADER;
        let mut start = lengths + 4 * argc;
        spans.clear();
        for word in bytes[lengths..start].chunks_exact(4) {
            let word = u32_at(word, 0);
            if word & OWNED_BIT != 0 {
                spans.push(Span::owned((word & !OWNED_BIT) as usize));
                continue;
            }
            spans.push(Span::new(start, start + word as usize));
            start += word as usize;
        }
        Some((head, start))
    }

    /// The arguments whose spans `request_at` gave.
    pub fn request_args<'a>(&'a self, spans: &'a [Span]) -> Args<'a> {
        Args::new(&self.requests, spans, &self.owned)
    }

    /// Lets `write` append a reply. With `None` it has written nothing, and there is no reply yet.
    pub fn push_reply<T>(
        &mut self,
        session: SessionId,
        seq: u32,
        proto: Proto,
        write: impl FnOnce(&mut Reply) -> Option<T>,
    ) -> Option<T> {
        let start = self.begin_reply(session, seq, proto);
        let written = write(&mut self.replies);
        match written {
            Some(_) => self.end_reply(start, session, seq),
            None => self.replies.buf.truncate(start.offset() - REPLY_HEADER),
        }
        written
    }

    fn begin_reply(&mut self, session: SessionId, seq: u32, proto: Proto) -> Mark {
        let out = &mut self.replies.buf;
        out.extend_from_slice(&session.idx.to_le_bytes());
        out.extend_from_slice(&session.generation.to_le_bytes());
        out.extend_from_slice(&seq.to_le_bytes());
        out.extend_from_slice(&[0; 4]);
        self.replies.set_proto(proto);
        self.replies.mark()
    }

    fn end_reply(&mut self, start: Mark, session: SessionId, seq: u32) {
        if self.replies.has_splices_since(start) {
            let reply = self.replies.split_off(start);
            self.large_replies.push((session, seq, reply));
            let end = self.replies.buf.len();
            self.replies.buf.truncate(end - REPLY_HEADER);
            return;
        }
        let from = start.offset();
        let len = (self.replies.buf.len() - from) as u32;
        self.replies.buf[from - 4..from].copy_from_slice(&len.to_le_bytes());
    }

    /// The flat reply at byte `at`, and where the next one starts.
    pub fn reply_at(&self, at: usize) -> Option<(SessionId, u32, &[u8], usize)> {
        let bytes = &self.replies.buf[..];
        if at >= bytes.len() {
            return None;
        }
        let session = SessionId { idx: u32_at(bytes, at), generation: u32_at(bytes, at + 4) };
        let (seq, len) = (u32_at(bytes, at + 8), u32_at(bytes, at + 12) as usize);
        let start = at + REPLY_HEADER;
        Some((session, seq, &bytes[start..start + len], start + len))
    }

    /// Takes the replies with spliced payloads.
    pub fn take_large_replies(&mut self) -> Vec<(SessionId, u32, Reply)> {
        std::mem::take(&mut self.large_replies)
    }
}

/// Names a transaction: its coordinator and a number that is unique there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TxId {
    /// The coordinating shard.
    pub coordinator: crate::slot::ShardId,
    /// Counts up.
    pub number: u64,
}

/// What a coordinator asks of a participant first.
#[derive(Debug)]
pub struct LockRequest {
    /// Whose intents they are.
    pub tx: TxId,
    /// Wait in line where they conflict; otherwise refuse.
    pub wait: bool,
    /// What will be run.
    pub command: &'static Command,
    /// The selected database.
    pub db: u16,
    /// The protocol of the parts' replies.
    pub proto: Proto,
    /// The asking client's number.
    pub client_id: u64,
    /// It is no access to the keys.
    pub no_touch: bool,
    /// All arguments of the command.
    pub args: OwnedArgs,
    /// The indices of the keys that the participant owns.
    pub keys: Vec<u32>,
    /// The intents it asks for.
    pub wanted: Wanted,
}

/// Which intents a request asks for.
#[derive(Debug)]
pub enum Wanted {
    /// Those of its command's scope and keys.
    Usual,
    /// The same, for a command that waits and is tried again.
    Try(crate::blocking::WaitId),
    /// None: the transaction holds them that the command belongs to.
    Covered,
    /// Those of a transaction; and the commands to run under them, where that is all of it.
    Bundle(Box<BundleLock>, Option<Box<Bundle>>),
}

impl LockRequest {
    /// What a transaction wants, where it is one.
    pub(crate) fn bundle_lock_mut(&mut self) -> Option<(&mut BundleLock, &mut Option<Box<Bundle>>)> {
        match &mut self.wanted {
            Wanted::Bundle(lock, bundle) => Some((lock, bundle)),
            Wanted::Usual | Wanted::Try(_) | Wanted::Covered => None,
        }
    }
}

/// The messages of docs/transactions.md.
#[derive(Debug)]
pub enum TxMessage {
    /// Take intents, and run the reading part under them.
    Lock(Box<LockRequest>),
    /// The intents are held; the reading part's result.
    Granted(TxId, PartResult),
    /// They conflict; nothing is held.
    Refused(TxId),
    /// Run a writing stage; `last` also releases.
    Run {
        /// Of this transaction.
        tx: TxId,
        /// 1, 2, …
        stage: u8,
        /// Only for this key, where the stage is for one.
        key: Option<u32>,
        /// From an earlier stage.
        payload: Payload,
        /// Release the intents afterwards.
        last: bool,
    },
    /// The stage's result.
    Ran(TxId, PartResult),
    /// Let the intents go.
    Release(TxId),
    /// Run these commands of a transaction.
    Bundle(TxId, Box<Bundle>),
    /// What they answered.
    BundleRan(TxId, Box<BundleResult>),
    /// A client, named by its number, watches nothing any more.
    Unwatch(u64),
    /// About a command that waits for a key to have elements.
    Waiting(Box<crate::blocking::WaitMessage>),
    /// From a coordinator to itself: the subscriptions have changed that this command of a transaction, by its place, asks for.
    Confirmed(TxId, usize),
    /// From a coordinator to itself: a shard that takes part has failed.
    Lost(TxId),
}

impl RequestHead {
    /// The command that is asked for.
    pub fn command(&self) -> &'static Command {
        commands::by_index(self.command.index)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_and_replies_come_out_as_they_went_in() {
        let mut batch = Batch::default();
        let data = b"SETkeyvalue";
        let spans = [Span::new(0, 3), Span::new(3, 6), Span::new(6, 11), Span::owned(0)];
        let large = [Bytes::from(vec![7; 40_000])];
        for seq in 0..3 {
            let head = RequestHead {
                session: SessionId { idx: 5, generation: 9 },
                seq,
                command: CommandId { index: 1, number: CommandNumber(0x0102) },
                db: 3,
                proto: Proto::Resp3,
                no_touch: seq == 1,
            };
            batch.push_request(head, Args::new(data, &spans, &large));
        }
        let (mut at, mut seen, mut spans) = (0, 0, Vec::new());
        while let Some((head, next)) = batch.request_at(at, &mut spans) {
            let args = batch.request_args(&spans);
            assert_eq!(head.command, CommandId { index: 1, number: CommandNumber(0x0102) });
            assert_eq!((head.seq, head.db, head.proto, head.session.generation), (seen, 3, Proto::Resp3, 9));
            assert_eq!(head.no_touch, seen == 1);
            assert_eq!(
                (&args[0], &args[1], &args[2], args[3].len()),
                (&b"SET"[..], &b"key"[..], &b"value"[..], 40_000)
            );
            (at, seen) = (next, seen + 1);
        }
        assert_eq!(seen, 3);

        let session = SessionId { idx: 1, generation: 2 };
        batch.push_reply(session, 7, Proto::Resp2, |reply| {
            reply.bulk(b"x");
            Some(())
        });
        let large = Bytes::from(vec![0; 50_000]);
        batch.push_reply(session, 8, Proto::Resp2, |reply| {
            reply.bulk_shared(large);
            Some(())
        });
        assert_eq!(batch.push_reply(session, 5, Proto::Resp2, |_| None::<()>), None);
        batch.push_reply(session, 9, Proto::Resp2, |reply| {
            reply.null();
            Some(())
        });
        let (_, seq, bytes, next) = batch.reply_at(0).unwrap();
        assert_eq!((seq, bytes), (7, &b"$1\r\nx\r\n"[..]));
        let (_, seq, bytes, next) = batch.reply_at(next).unwrap();
        assert_eq!((seq, bytes), (9, &b"$-1\r\n"[..]));
        assert!(batch.reply_at(next).is_none());
        let large = batch.take_large_replies();
        assert_eq!((large.len(), large[0].1, large[0].2.len()), (1, 8, 50_010));
        batch.recycle();
        assert!(batch.is_empty());
    }
}
