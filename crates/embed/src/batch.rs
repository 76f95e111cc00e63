//! Many commands in one message to each shard.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use corelane_engine::{Calls, Route, ShardId};
use corelane_resp::{Frame, Frames, Reply};
use corelane_runtime::mesh::foreign::is_on_shard;
use corelane_runtime::visit::Visit;

use crate::block::{Wait, block_on};
use crate::cache::Cache;
use crate::error::Error;
use crate::exchange::Exchange;
use crate::shapes::checked;

/// Commands in one message. A turn of a shard must stay short, so a batch with more for one shard takes several messages.
const COMMANDS_PER_MESSAGE: usize = 1024;

/// Commands for which each message has memory from the start.
const RESERVED: usize = 32;

/// Commands that are sent together: one message to each shard concerned. With more than 1024 commands for one shard it takes
/// further rounds.
///
/// The commands for one shard run in the order of the batch, those for different shards at the same time. It is not a
/// transaction: commands of others may run in between. A command over several shards (MGET, DBSIZE …) runs when all before it
/// are done, and before all behind it; so each command sees the effects of those before it.
///
/// ```
/// use corelane_embed::Frame;
/// # let cache = corelane_embed::Builder::new().shards(2).start()?;
/// let mut batch = cache.batch();
/// batch.set("a", "1").set("b", "2").get("a").execute(&["APPEND", "b", "!"]);
/// let replies = batch.wait()?;
/// assert_eq!(replies[2], Ok(Frame::Bulk("1".into())));
/// assert_eq!(replies[3], Ok(Frame::Int(2)));
/// # cache.stop()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use = "nothing is sent until a batch is awaited or waited for"]
pub struct Batch {
    cache: Cache,
    db: usize,
    /// Run one after the other.
    phases: Vec<Phase>,
    /// Results known without asking.
    refused: Vec<(usize, Error)>,
    len: usize,
    /// The command being written.
    scratch: Calls,
}

/// Messages that are sent at the same time.
#[derive(Default)]
struct Phase {
    parts: Vec<Part>,
    /// Nothing may be added: it is one command over several shards.
    sealed: bool,
}

/// One message.
struct Part {
    shard: ShardId,
    calls: Calls,
    /// Where in the batch each command stands.
    places: Vec<usize>,
}

impl Batch {
    pub(crate) fn new(cache: Cache, db: usize) -> Self {
        Self { cache, db, phases: Vec::new(), refused: Vec::new(), len: 0, scratch: Calls::new(db) }
    }

    /// How many commands there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Adds GET: a bulk, or null.
    pub fn get(&mut self, key: impl AsRef<[u8]>) -> &mut Self {
        self.keyed(key.as_ref(), b"GET", &[])
    }

    /// Adds SET.
    pub fn set(&mut self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> &mut Self {
        self.keyed(key.as_ref(), b"SET", &[value.as_ref()])
    }

    /// Adds DEL of one key: 0 or 1.
    pub fn del(&mut self, key: impl AsRef<[u8]>) -> &mut Self {
        self.keyed(key.as_ref(), b"DEL", &[])
    }

    /// Adds INCR: the sum.
    pub fn incr(&mut self, key: impl AsRef<[u8]>) -> &mut Self {
        self.keyed(key.as_ref(), b"INCR", &[])
    }

    /// Adds any command; see [`Cache::execute`].
    pub fn execute(&mut self, words: &[impl AsRef<[u8]>]) -> &mut Self {
        self.scratch.clear();
        for word in words {
            self.scratch.word(word.as_ref());
        }
        self.scratch.end();
        let place = self.len;
        self.len += 1;
        if self.scratch.is_empty() {
            self.refused.push((place, Error::Command("ERR a command needs a name".to_owned())));
            return self;
        }
        let scratch = std::mem::take(&mut self.scratch);
        match self.cache.shared.router.route(scratch.args(0)) {
            Ok(Route::Shard(shard)) => self.part(shard, place).push(scratch.args(0)),
            Ok(Route::Any) => self.part(self.cache.any_shard(), place).push(scratch.args(0)),
            Ok(Route::Several(shard)) => {
                self.phases.push(Phase::default());
                self.part(shard, place).push(scratch.args(0));
                self.phases.last_mut().expect("the phase just begun").sealed = true;
            }
            Err(error) => self.refused.push((place, error.into())),
        }
        self.scratch = scratch;
        self
    }

    fn keyed(&mut self, key: &[u8], name: &[u8], after: &[&[u8]]) -> &mut Self {
        let shard = self.cache.shared.router.owner(key);
        let place = self.len;
        self.len += 1;
        let calls = self.part(shard, place);
        calls.word(name);
        calls.word(key);
        for word in after {
            calls.word(word);
        }
        calls.end();
        self
    }

    /// The message that a command for a shard goes into.
    fn part(&mut self, shard: ShardId, place: usize) -> &mut Calls {
        let is_full = |part: &Part| part.shard == shard && part.places.len() == COMMANDS_PER_MESSAGE;
        // A second message to a shard might overtake the first: it has to wait for it.
        if self.phases.last().is_none_or(|phase| phase.sealed || phase.parts.iter().any(is_full)) {
            self.phases.push(Phase::default());
        }
        let db = self.db;
        let parts = &mut self.phases.last_mut().expect("there is one").parts;
        let at = parts.iter().position(|part| part.shard == shard).unwrap_or_else(|| {
            parts.push(Part {
                shard,
                calls: Calls::with_capacity(db, RESERVED),
                places: Vec::with_capacity(RESERVED),
            });
            parts.len() - 1
        });
        parts[at].places.push(place);
        &mut parts[at].calls
    }

    /// Sends it and blocks this thread until all replies are there: one for each command, in their order. Commands fail one by
    /// one.
    ///
    /// # Errors
    /// [`Error::OnShard`] on the thread of a shard.
    pub fn wait(self) -> Result<Vec<Result<Frame, Error>>, Error> {
        if is_on_shard() {
            return Err(Error::OnShard);
        }
        let mut send = self.send();
        Ok(block_on(Wait::Long, |context| Pin::new(&mut send).poll(context)))
    }

    /// The same for async programs: what to await.
    pub fn send(self) -> BatchReplies {
        let mut replies: Vec<Option<Result<Frame, Error>>> = vec![None; self.len];
        for (place, error) in self.refused {
            replies[place] = Some(Err(error));
        }
        let mut phases = self.phases;
        phases.reverse();
        BatchReplies { cache: self.cache, phases, under_way: Vec::new(), replies }
    }
}

impl fmt::Debug for Batch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Batch").field("len", &self.len).finish_non_exhaustive()
    }
}

/// The replies of a [`Batch`], to be awaited: one for each command, in their order. Polled on the thread of a shard it is ready at
/// once, with [`Error::OnShard`] for what is missing. Dropped half-way it leaves the messages that were sent to run, which may be the
/// first part of the batch alone, and of a message what is before a command that waits for keys; dropped before it was polled it sends
/// nothing. Once the replies have been handed out, another poll gives none.
#[must_use = "nothing is sent until it is awaited"]
pub struct BatchReplies {
    cache: Cache,
    /// Not begun, the next one last.
    phases: Vec<Phase>,
    under_way: Vec<(Exchange<Reply>, Vec<usize>)>,
    replies: Vec<Option<Result<Frame, Error>>>,
}

impl BatchReplies {
    fn begin_phase(&mut self) -> bool {
        let Some(phase) = self.phases.pop() else { return false };
        for part in phase.parts {
            let exchange = self.cache.exchange(part.shard, Visit::calls(part.calls));
            self.under_way.push((exchange, part.places));
        }
        true
    }

    /// Takes what has been answered. All messages are sent first, so that the shards work at the same time; then one answer
    /// after the other is waited for, that of the last message first: whoever answers before it wakes nobody.
    fn poll_phase(&mut self, context: &mut Context<'_>) {
        for (exchange, _) in &mut self.under_way {
            // What fails is told once more by the poll below.
            let _ = exchange.send(Some(context.waker()));
        }
        while let Some((exchange, places)) = self.under_way.last_mut() {
            let Poll::Ready(answer) = exchange.poll(context) else { return };
            distribute(answer, places, &mut self.replies);
            self.under_way.pop();
        }
    }
}

impl Future for BatchReplies {
    type Output = Vec<Result<Frame, Error>>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        loop {
            self.poll_phase(context);
            // Nobody would be left to answer: what is missing is not waited for.
            if is_on_shard() {
                break;
            }
            if !self.under_way.is_empty() {
                return Poll::Pending;
            }
            if !self.begin_phase() {
                break;
            }
        }
        let missing = || match is_on_shard() {
            true => Err(Error::OnShard),
            false => Err(Error::Unexpected("nothing".to_owned())),
        };
        let replies = std::mem::take(&mut self.replies);
        Poll::Ready(replies.into_iter().map(|reply| reply.unwrap_or_else(missing)).collect())
    }
}

/// Puts the replies of one message to their places.
fn distribute(answer: Result<Reply, Error>, places: &[usize], replies: &mut [Option<Result<Frame, Error>>]) {
    match answer {
        Err(error) => places.iter().for_each(|&place| replies[place] = Some(Err(error.clone()))),
        Ok(reply) => {
            let mut frames = Frames::new(reply);
            for &place in places {
                replies[place] = match frames.next() {
                    Ok(frame) => frame.map(checked),
                    Err(error) => Some(Err(error.into())),
                };
            }
        }
    }
}

impl fmt::Debug for BatchReplies {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BatchReplies").field("len", &self.replies.len()).finish_non_exhaustive()
    }
}
