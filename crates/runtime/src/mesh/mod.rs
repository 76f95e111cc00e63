//! The mesh: how the shards of one process reach each other.
//!
//! Every ordered pair of shards has a bounded queue of its own ([`spsc`]); every shard has a door: a sleep state
//! ([`sleep`]) and two descriptors through which it is woken, once per sleep. Nothing here takes a lock, and a running
//! shard is never signalled.
//!
//! ```text
//!            sender                                   receiver
//!   push into the pair's queue               publish "asleep" in the door
//!   SeqCst fence                             SeqCst fence
//!   read the receiver's door                 look into all inboxes again
//!     Running        nothing to do             something there: stay awake
//!     WaitingInRing  write its ring event      nothing: sleep
//!     Parked         write its park event
//! ```
//!
//! One of the two fences comes first, so either the sender sees the sleeper or the sleeper sees the message. loom checks
//! exactly this, and that it breaks when the second look is left out (`loom_tests`).
//!
//! Must not know: what a message means, sockets, glommio. Shards are plain indexes here, `0..shards`.

mod sync;

pub mod foreign;
pub mod gate;
pub mod oneshot;
pub mod sleep;
pub mod spsc;

#[cfg(not(loom))]
pub mod balance;
#[cfg(not(loom))]
mod end;
#[cfg(not(loom))]
mod entrance;
#[cfg(not(loom))]
mod event;
#[cfg(not(loom))]
mod mail;

#[cfg(not(loom))]
pub use end::{MAILBOX_SLOTS, Mesh, MeshEnd};
#[cfg(not(loom))]
pub use entrance::Entrance;
#[cfg(not(loom))]
pub use mail::{Mail, PeerKind};

#[cfg(all(test, loom))]
mod gate_loom_tests;
#[cfg(all(test, loom))]
mod loom_tests;
