//! A call: nothing happens until it is started, awaited or waited for.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use corelane_resp::Reply;
use corelane_runtime::mesh::foreign::is_on_shard;

use crate::block::{Wait, block_on};
use crate::error::Error;
use crate::exchange::Exchange;

/// What a call makes of its answer.
pub(crate) type Shape<A, T> = fn(A) -> Result<T, Error>;

/// A call of the cache, for threads and for async programs alike.
///
/// Nothing is sent before one of these:
/// - [`wait`](Self::wait) sends it and blocks the thread until the answer is there;
/// - `.await` does the same in any executor;
/// - [`start`](Self::start) only sends it, so that several calls can be under way at a time; wait for or await each later.
///
/// **A full queue.** A shard's queue holds a bounded number of messages
/// ([`Builder::queue_slots`](crate::Builder::queue_slots)). When it is full, `wait` and `.await` wait for room;
/// [`try_start`](Self::try_start) fails with [`Error::Full`].
///
/// **Dropping** a call that has been sent does not call it back: the command runs, and its answer is thrown away. But what waits
/// for keys, as BLPOP does, waits no longer than somebody wants its answer: a drop ends that, as the end of a connection does
/// for a client. So a time-out of the executor may be put around it. One that [`start`](Self::start) found no room for has not been sent,
/// and does not run when it is dropped.
///
/// **Wakers** are called on the shard's thread, which serves nobody meanwhile; executors usually do no more there than to make a note. One
/// that polls at once instead gets what has come, and [`Error::OnShard`] for what would have to be waited for. A panic of a
/// waker is logged.
///
/// ```
/// # let cache = corelane_embed::Builder::new().shards(2).start()?;
/// let (first, second) = (cache.incr("a").start(), cache.incr("b").start());
/// assert_eq!(first.wait()? + second.wait()?, 2);
/// # cache.stop()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use = "nothing is sent until a call is started, awaited or waited for"]
pub struct Call<T, A: Send = Reply> {
    state: State<A>,
    shape: Shape<A, T>,
}

enum State<A: Send> {
    UnderWay(Exchange<A>),
    /// Known without asking a shard; `None` once it has been handed out.
    Failed(Option<Error>),
}

impl<T, A: Send> Call<T, A> {
    pub(crate) fn new(exchange: Result<Exchange<A>, Error>, shape: Shape<A, T>) -> Self {
        let state = match exchange {
            Ok(exchange) => State::UnderWay(exchange),
            Err(error) => State::Failed(Some(error)),
        };
        Self { state, shape }
    }

    /// Sends it and blocks this thread until the answer is there.
    ///
    /// # Errors
    /// The command's, or that the cache or its shard has ended. [`Error::OnShard`] on the thread of a shard.
    pub fn wait(mut self) -> Result<T, Error> {
        block_on(Wait::Short, |context| self.poll_answer(context))
    }

    /// Sends it now. If there is no room it is sent when it is waited for or awaited, and not at all if it is dropped before;
    /// [`try_start`](Self::try_start) tells.
    pub fn start(mut self) -> Self {
        if let State::UnderWay(exchange) = &mut self.state
            && let Err(error) = exchange.send(None)
            && !matches!(error, Error::Full { .. })
        {
            self.state = State::Failed(Some(error));
        }
        self
    }

    /// Sends it now, if there is room.
    ///
    /// # Errors
    /// [`Error::Full`] if there is none, or that the cache or its shard has ended.
    pub fn try_start(mut self) -> Result<Self, Error> {
        match &mut self.state {
            State::UnderWay(exchange) => exchange.send(None)?,
            State::Failed(error) => return Err(error.take().unwrap_or(Error::Stopped)),
        }
        Ok(self)
    }

    fn poll_answer(&mut self, context: &mut Context<'_>) -> Poll<Result<T, Error>> {
        match &mut self.state {
            // Nobody would be left to answer: what has not come is not waited for.
            State::UnderWay(exchange) if is_on_shard() => {
                let answer = exchange.poll_sent(context);
                Poll::Ready(answer.and_then(|answer| (self.shape)(answer)))
            }
            State::UnderWay(exchange) => exchange.poll(context).map(|answer| (self.shape)(answer?)),
            State::Failed(error) => Poll::Ready(Err(error.take().unwrap_or(Error::Stopped))),
        }
    }
}

impl<T, A: Send> Future for Call<T, A> {
    type Output = Result<T, Error>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        self.poll_answer(context)
    }
}

/// Nothing in it is pinned.
impl<T, A: Send> Unpin for Call<T, A> {}

impl<T, A: Send> fmt::Debug for Call<T, A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Call").finish_non_exhaustive()
    }
}
