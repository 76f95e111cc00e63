//! Drives corelane engines on the hardware: one thread, one glommio executor and one io_uring for the sockets per core.
//!
//! The only crate that names glommio and io-uring. What a command means is the engine's business; this crate owns the
//! process (start-up, signals, exit), the shards' threads, their sockets and the mailboxes between them.
//!
//! Under `--cfg loom` only [`mesh`] is built, without its descriptors: the queues and sleep states that loom checks.

pub mod mesh;

#[cfg(not(loom))]
pub mod options;

#[cfg(not(loom))]
pub mod system_files;

#[cfg(not(loom))]
pub mod topology;

#[cfg(not(loom))]
pub mod preflight;

#[cfg(not(loom))]
pub mod listen;

#[cfg(not(loom))]
pub mod listening;

#[cfg(not(loom))]
mod signals;

#[cfg(not(loom))]
pub mod visit;

#[cfg(not(loom))]
mod notify;

#[cfg(not(loom))]
pub mod host;

#[cfg(not(loom))]
pub mod server;

#[cfg(not(loom))]
pub mod clock;

#[cfg(not(loom))]
mod allocator;
#[cfg(not(loom))]
mod ticks;

#[cfg(not(loom))]
mod process;
#[cfg(not(loom))]
mod shard_loop;

#[cfg(not(loom))]
mod net;

#[cfg(not(loom))]
pub mod outbound;

#[cfg(not(loom))]
mod ring;

#[cfg(not(loom))]
pub use allocator::use_allocator;
#[cfg(not(loom))]
pub use host::serve;
#[cfg(not(loom))]
pub use process::{thread_cpu_time, wait_precisely};
#[cfg(not(loom))]
pub use ticks::ticks;
