//! Drives corelane engines on the hardware: one thread, one glommio executor and one io_uring for the sockets per core.
//!
//! The only crate that names glommio and io-uring. What a command means is the engine's business; this crate owns the
//! process (start-up, signals, exit), the shards' threads, their sockets and the mailboxes between them.
//!
//! Under `--cfg loom` only [`mesh`] is built, without its descriptors: the queues and sleep states that loom checks.

pub mod mesh;
