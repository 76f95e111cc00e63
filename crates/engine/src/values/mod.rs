//! The values of collections: compact while they are small, and what grows when they are not.
//!
//! Every type has an owned form (`Hash`) that its commands change, and a borrowed one (`HashRef`) that they read; both are a
//! [`Pack`] or a sorted array while the collection is small, which then lies in its key's own allocation. Nothing here knows
//! keys, commands, time or other shards.

mod blob;
mod block;
mod chunk;
mod chunks;
mod copying;
mod element;
mod field_table;
mod fields;
mod hash;
pub mod hyperloglog;
mod ints;
mod list;
mod order;
mod pack;
mod ranked;
mod set;
mod sorted_set;
mod table;
mod tally;
mod timed_pack;

pub use blob::Blob;
pub use chunk::Chunk;
pub use chunks::{Chunks, ListSize};
pub use copying::Copying;
pub use element::{Element, decimal};
pub use fields::Fields;
pub use hash::{Hash, HashRef};
pub use ints::{Ints, IntsRef};
pub use list::{Gathering, INLINE_BYTES_MAX, List, ListRef, Place, SHORT_BYTES_MAX, Side, prepared_bytes};
pub use pack::{PACK_LEN_MAX, Pack, PackRef};
pub use ranked::Ranked;
pub use set::{Set, SetRef};
pub use sorted_set::{SortedSet, SortedSetRef};
pub use table::{BlobItem, Member, Pair, Scored, Table, score_of, value_of};
pub use tally::{Tally, TallyIndex};
