//! A cache in your process: the shards of [corelane](https://github.com/corelane/corelane), a Redis-compatible server, without
//! the sockets in between.
//!
//! Each shard is a thread that owns a part of the keys and runs one command after the other; there are no locks. Callers in
//! other threads send it messages through a bounded queue.
//!
//! ```
//! use corelane_embed::Builder;
//!
//! let cache = Builder::new().shards(2).start()?;
//! cache.set("greeting", "hello").wait()?;
//! assert_eq!(cache.get("greeting").wait()?.as_deref(), Some(&b"hello"[..]));
//! cache.stop()?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! - Every method returns a [`Call`]: `.wait()` blocks a thread, `.await` works in any executor, `.start()` lets several calls be
//!   under way at a time.
//! - Typed calls are methods of [`Cache`]; [`Cache::execute`] runs every other command.
//! - A [`Batch`] sends many commands in one message to each shard.
//! - [`Cache::on_owner`] runs a closure where the keys are.
//! - With [`Builder::port`] or [`Builder::unix_socket`] Redis clients can connect as well, and see the same keys.
//!
//! **What it promises.** Calls are strictly serializable, whatever shards their keys are on: no history of calls, real time
//! included, that one thread could not have produced. Values of 16 KiB and more are returned as they are stored, not copied.
//!
//! **What it needs.** Linux 6.1 or newer with io_uring allowed; [`Builder::start`] says in one sentence what is missing. About four
//! descriptors per shard. Start it after `fork`, not before: a child process has none of the shards' threads.
//!
//! **What it leaves alone.** The process's signals, limits, panic hook and allocator. A panic in a command or in a closure ends
//! one shard: calls on its keys get [`Error::ShardFailed`], and the host and the other shards go on. (With `panic = "abort"` it
//! ends the process, as any panic does.)

mod batch;
mod block;
mod builder;
mod cache;
mod call;
mod error;
mod exchange;
mod shapes;

pub use batch::{Batch, BatchReplies};
pub use builder::Builder;
pub use bytes::Bytes;
pub use cache::Cache;
pub use call::Call;
pub use corelane_engine::{Local, LocalError};
pub use corelane_resp::{Frame, Reply};
pub use corelane_runtime::topology::Placement;
pub use error::{Error, StartError};
pub use shapes::Ttl;
