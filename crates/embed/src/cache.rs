//! The handle: typed calls, raw commands, batches, closures.

use std::fmt;
use std::net::SocketAddr;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use corelane_engine::{Calls, Local, Route, Router, ShardId};
use corelane_resp::{Frame, Reply};
use corelane_runtime::listen::UnixFile;
use corelane_runtime::mesh::foreign::is_on_shard;
use corelane_runtime::mesh::oneshot::oneshot;
use corelane_runtime::server::Server;
use corelane_runtime::visit::{Doorway, Visit};

use crate::batch::Batch;
use crate::call::{Call, Shape};
use crate::error::{Error, StartError};
use crate::exchange::Exchange;
use crate::shapes::{self, Ttl};

/// A cache in this process.
///
/// A handle costs two reference counts to clone, and may be used from any number of threads and tasks at a time. When the
/// last handle is gone the shards end; [`Cache::stop`] ends them at once and waits for that.
///
/// A handle is for one database: 0, unless it was made by [`Cache::database`]. It has no other state.
///
/// Every call is atomic and strictly serializable, on any number of shards, together with those that come through sockets.
#[derive(Clone)]
pub struct Cache {
    pub(crate) shared: Arc<Shared>,
    db: usize,
}

/// What the handles have in common.
pub(crate) struct Shared {
    pub(crate) doorway: Doorway,
    pub(crate) router: Router,
    databases: usize,
    addresses: Vec<SocketAddr>,
    /// Taken by whoever stops the cache.
    running: Mutex<Option<Running>>,
}

/// What ends with the shards.
pub(crate) struct Running {
    pub(crate) server: Server,
    pub(crate) unix_file: Option<UnixFile>,
}

/// The last handle is gone: the shards end by themselves.
impl Drop for Shared {
    fn drop(&mut self) {
        self.doorway.stop();
    }
}

impl fmt::Debug for Cache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cache").field("router", &self.shared.router).field("database", &self.db).finish()
    }
}

/// The handle itself.
impl Cache {
    pub(crate) fn new(
        doorway: Doorway,
        router: Router,
        databases: usize,
        addresses: Vec<SocketAddr>,
        running: Running,
    ) -> Self {
        let running = Mutex::new(Some(running));
        Self { shared: Arc::new(Shared { doorway, router, databases, addresses, running }), db: 0 }
    }

    /// A handle for another database, 0 to 15 unless [`Builder::databases`](crate::Builder::databases) says otherwise; `None`
    /// if there is no such.
    #[must_use]
    pub fn database(&self, index: usize) -> Option<Self> {
        (index < self.shared.databases).then(|| Self { shared: Arc::clone(&self.shared), db: index })
    }

    /// The TCP addresses that the cache listens on, if it was asked to.
    #[must_use]
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.shared.addresses
    }

    /// The shard that owns a key, from 0 on.
    #[must_use]
    pub fn shard_of(&self, key: impl AsRef<[u8]>) -> usize {
        self.shared.router.owner(key.as_ref()).0.into()
    }

    /// Stops the cache for all handles, and blocks until the shards have ended: calls that have been sent are answered, in so
    /// far as that takes no more than about a second; the rest of them and later ones get [`Error::Stopped`], and so does what waits
    /// for keys, as BLPOP does, once nothing else is to be done. All keys are gone. A second time it does nothing.
    ///
    /// On the thread of a shard, in a closure for instance, it only tells the shards to end and does not wait for it.
    ///
    /// # Errors
    /// A shard had failed, or failed now. All have ended all the same.
    pub fn stop(&self) -> Result<(), StartError> {
        self.shared.doorway.stop();
        if is_on_shard() {
            // Not to be waited for here: a shard ends when what it runs of the host has returned.
            return Ok(());
        }
        let mut running = self.shared.running.lock().unwrap_or_else(PoisonError::into_inner);
        match running.take() {
            Some(Running { server, unix_file }) => {
                let ended = server.join();
                drop(unix_file);
                Ok(ended?)
            }
            None => Ok(()),
        }
    }
}

/// Strings.
impl Cache {
    /// The value of a key. From 16 KiB on it is the stored one, not a copy.
    pub fn get(&self, key: impl AsRef<[u8]>) -> Call<Option<Bytes>> {
        self.keyed(key.as_ref(), &[b"GET"], &[], shapes::value)
    }

    /// Sets a key; an earlier deadline is forgotten.
    pub fn set(&self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Call<()> {
        self.keyed(key.as_ref(), &[b"SET"], &[value.as_ref()], shapes::done)
    }

    /// Sets a key to a value that is not copied from 16 KiB on. A slice of a larger buffer keeps all of that buffer in memory.
    pub fn set_shared(&self, key: impl AsRef<[u8]>, value: Bytes) -> Call<()> {
        let key = key.as_ref();
        let mut calls = Calls::with_capacity(self.db, 1);
        calls.word(b"SET");
        calls.word(key);
        calls.shared(value);
        calls.end();
        self.send_to(self.shared.router.owner(key), calls, shapes::done)
    }

    /// Sets a key that vanishes after `ttl`, rounded up to milliseconds; zero is an error.
    pub fn set_with_ttl(&self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>, ttl: Duration) -> Call<()> {
        self.keyed(key.as_ref(), &[b"SET"], &[value.as_ref(), b"PX", millis(ttl).as_bytes()], shapes::done)
    }

    /// Sets a key unless it is there; true if it was not.
    pub fn set_if_absent(&self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Call<bool> {
        self.keyed(key.as_ref(), &[b"SET"], &[value.as_ref(), b"NX"], shapes::done_or_null)
    }

    /// Adds one to the integer that a key holds, 0 if it is not there; returns the sum.
    pub fn incr(&self, key: impl AsRef<[u8]>) -> Call<i64> {
        self.incr_by(key, 1)
    }

    /// Adds to the integer that a key holds, 0 if it is not there; returns the sum.
    pub fn incr_by(&self, key: impl AsRef<[u8]>, by: i64) -> Call<i64> {
        self.keyed(key.as_ref(), &[b"INCRBY"], &[by.to_string().as_bytes()], shapes::int)
    }

    /// Appends to the value of a key; returns its length.
    pub fn append(&self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Call<u64> {
        self.keyed(key.as_ref(), &[b"APPEND"], &[value.as_ref()], shapes::count)
    }

    /// The values of several keys at one moment, in their order; of no keys, none. For many keys whose values need not be of one moment, a
    /// [`Batch`] costs less.
    pub fn mget<K: AsRef<[u8]>>(&self, keys: impl IntoIterator<Item = K>) -> Call<Vec<Option<Bytes>>> {
        self.listed(b"MGET", keys, |calls, key| calls.word(key.as_ref()), shapes::values)
    }

    /// Sets several keys at one moment, or none.
    pub fn mset<K: AsRef<[u8]>, V: AsRef<[u8]>>(&self, pairs: impl IntoIterator<Item = (K, V)>) -> Call<()> {
        let write = |calls: &mut Calls, (key, value): (K, V)| {
            calls.word(key.as_ref());
            calls.word(value.as_ref());
        };
        self.listed(b"MSET", pairs, write, shapes::done)
    }
}

/// Keys.
impl Cache {
    /// Removes a key; true if it was there.
    pub fn del(&self, key: impl AsRef<[u8]>) -> Call<bool> {
        self.keyed(key.as_ref(), &[b"DEL"], &[], shapes::flag)
    }

    /// Removes several keys, or none, at one moment; returns how many were there.
    pub fn del_all<K: AsRef<[u8]>>(&self, keys: impl IntoIterator<Item = K>) -> Call<u64> {
        self.listed(b"DEL", keys, |calls, key| calls.word(key.as_ref()), shapes::count)
    }

    /// Whether there is such a key.
    pub fn exists(&self, key: impl AsRef<[u8]>) -> Call<bool> {
        self.keyed(key.as_ref(), &[b"EXISTS"], &[], shapes::flag)
    }

    /// Has a key vanish after `ttl`, rounded up to milliseconds; zero removes it now. False if there is no such key.
    pub fn expire(&self, key: impl AsRef<[u8]>, ttl: Duration) -> Call<bool> {
        self.keyed(key.as_ref(), &[b"PEXPIRE"], &[millis(ttl).as_bytes()], shapes::flag)
    }

    /// Takes a key's deadline away; false if it had none, or is not there.
    pub fn persist(&self, key: impl AsRef<[u8]>) -> Call<bool> {
        self.keyed(key.as_ref(), &[b"PERSIST"], &[], shapes::flag)
    }

    /// How long a key will live.
    pub fn ttl(&self, key: impl AsRef<[u8]>) -> Call<Ttl> {
        self.keyed(key.as_ref(), &[b"PTTL"], &[], shapes::ttl)
    }

    /// How many keys the database has.
    pub fn len(&self) -> Call<u64> {
        self.shaped(b"DBSIZE", std::iter::empty::<()>(), |_, ()| (), shapes::count)
    }

    /// Removes all keys of the database.
    pub fn flush(&self) -> Call<()> {
        self.shaped(b"FLUSHDB", std::iter::empty::<()>(), |_, ()| (), shapes::done)
    }
}

/// Anything.
impl Cache {
    /// Runs any command, its name first; replies are as RESP3 has them. An error reply is [`Error::Command`].
    ///
    /// Commands that read or change the state of a connection are refused with such an error, since there is none: SELECT
    /// (see [`Cache::database`]), HELLO, AUTH, RESET, QUIT, MONITOR, MULTI, SUBSCRIBE, and CLIENT where it is about the asking client.
    /// So is SHUTDOWN (see [`Cache::stop`]).
    ///
    /// ```
    /// use corelane_embed::Frame;
    /// # let cache = corelane_embed::Builder::new().shards(1).start()?;
    /// cache.set("greeting", "hello").wait()?;
    /// let part = cache.execute(&["GETRANGE", "greeting", "1", "3"]).wait()?;
    /// assert_eq!(part, Frame::Bulk("ell".into()));
    /// assert_eq!(cache.execute(&["INCR", "greeting"]).wait().unwrap_err().code(), Some("ERR"));
    /// # cache.stop()?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn execute(&self, words: &[impl AsRef<[u8]>]) -> Call<Frame> {
        let mut calls = Calls::with_capacity(self.db, 1);
        for word in words {
            calls.word(word.as_ref());
        }
        calls.end();
        self.route(calls, shapes::frame)
    }

    /// Commands that are sent together, in one message to each shard.
    pub fn batch(&self) -> Batch {
        Batch::new(self.clone(), self.db)
    }

    /// Runs a closure on the shard that owns `key`, with direct access to that shard's keys; returns what it returns.
    ///
    /// While it runs nothing else does on that shard: it is atomic, and should take microseconds. A panic in it fails the shard.
    /// It must not wait for the cache ([`Error::OnShard`]). When nobody wants its result any more that is dropped on the shard, where
    /// the same holds but for panics: one in a drop is logged.
    ///
    /// A closure is no command: `CLIENT PAUSE` does not hold it up, even if it writes, and `MONITOR` does not show it.
    ///
    /// ```
    /// # let cache = corelane_embed::Builder::new().shards(2).start()?;
    /// cache.set("{user:7}:visits", "41").wait()?;
    /// let visits = cache.on_owner("{user:7}", |keys| {
    ///     let visits = keys.view(b"{user:7}:visits", |text| std::str::from_utf8(text).unwrap().parse::<u64>());
    ///     let visits = visits.unwrap().unwrap().unwrap() + 1;
    ///     keys.set(b"{user:7}:visits", visits.to_string().as_bytes()).unwrap();
    ///     visits
    /// });
    /// assert_eq!(visits.wait()?, 42);
    /// # cache.stop()?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn on_owner<R, F>(&self, key: impl AsRef<[u8]>, run: F) -> Call<R, Option<R>>
    where
        R: Send + 'static,
        F: FnOnce(&mut Local<'_>) -> R + Send + 'static,
    {
        let (answerer, answer) = oneshot();
        let task = move |keys: &mut Local<'_>| match catch_unwind(AssertUnwindSafe(|| run(keys))) {
            Ok(value) => answerer.send(Some(value)),
            Err(panic) => {
                answerer.send(None);
                resume_unwind(panic)
            }
        };
        let visit = Visit::Task { db: self.db, task: Box::new(task) };
        let shard = self.shared.router.owner(key.as_ref());
        Call::new(Ok(self.exchange(shard, (visit, answer))), |value| value.ok_or(Error::Panicked))
    }
}

impl Cache {
    /// A command of one key, which stands between the words before and those after it.
    fn keyed<T>(&self, key: &[u8], before: &[&[u8]], after: &[&[u8]], shape: Shape<Reply, T>) -> Call<T> {
        let mut calls = Calls::with_capacity(self.db, 1);
        for word in before {
            calls.word(word);
        }
        calls.word(key);
        for word in after {
            calls.word(word);
        }
        calls.end();
        self.send_to(self.shared.router.owner(key), calls, shape)
    }

    /// A command of any number of items.
    fn shaped<I, T>(
        &self,
        name: &[u8],
        items: impl Iterator<Item = I>,
        write: impl Fn(&mut Calls, I),
        shape: Shape<Reply, T>,
    ) -> Call<T> {
        let mut calls = Calls::with_capacity(self.db, 1);
        calls.word(name);
        for item in items {
            write(&mut calls, item);
        }
        calls.end();
        self.route(calls, shape)
    }

    /// The same, but without items it is no command: a message without any, which a running cache answers.
    fn listed<I, T: Default>(
        &self,
        name: &[u8],
        items: impl IntoIterator<Item = I>,
        write: impl Fn(&mut Calls, I),
        shape: Shape<Reply, T>,
    ) -> Call<T> {
        let mut items = items.into_iter().peekable();
        if items.peek().is_none() {
            return self.send_to(self.any_shard(), Calls::new(self.db), |_| Ok(T::default()));
        }
        self.shaped(name, items, write, shape)
    }

    fn route<T>(&self, calls: Calls, shape: Shape<Reply, T>) -> Call<T> {
        if calls.is_empty() {
            return Call::new(Err(Error::Command("ERR a command needs a name".to_owned())), shape);
        }
        match self.shared.router.route(calls.args(0)) {
            Ok(Route::Shard(shard) | Route::Several(shard)) => self.send_to(shard, calls, shape),
            Ok(Route::Any) => self.send_to(self.any_shard(), calls, shape),
            Err(error) => Call::new(Err(error.into()), shape),
        }
    }

    /// Where commands without keys are run: by the first shard that lives. It is the same for all of them as long as it does, so
    /// that they are run in the order in which they are sent.
    pub(crate) fn any_shard(&self) -> ShardId {
        let doorway = &self.shared.doorway;
        let living = (0..doorway.shards()).find(|&shard| !doorway.has_failed(shard));
        ShardId(living.unwrap_or_default() as u16)
    }

    fn send_to<T>(&self, shard: ShardId, calls: Calls, shape: Shape<Reply, T>) -> Call<T> {
        Call::new(Ok(self.exchange(shard, Visit::calls(calls))), shape)
    }

    pub(crate) fn exchange<A: Send>(
        &self,
        shard: ShardId,
        message: (Visit, corelane_runtime::mesh::oneshot::Answer<A>),
    ) -> Exchange<A> {
        Exchange::new(Arc::clone(&self.shared), shard.0.into(), message)
    }
}

/// Milliseconds, rounded up; what does not fit is refused by the command.
fn millis(time: Duration) -> String {
    time.as_nanos().div_ceil(1_000_000).to_string()
}
