//! The deterministic heart of corelane: commands, keyspace, sessions and transactions across shards.
//!
//! Nothing here has a clock, a thread, a socket or a file: time and random seeds are arguments, bytes and messages go
//! in and out of a [`Node`]. The runtime gives each core one node; the simulator runs many of them in one thread.

mod args;
mod command;
mod commands;
mod coordinator;
mod ctx;
mod dispatch;
mod errors;
mod execute;
mod glob;
mod input;
mod intents;
mod keyspace;
mod message;
mod modes;
mod monitor;
mod node;
mod participant;
mod pause;
mod reply_order;
mod session;
mod settings;
mod slot;
mod stats;

pub use args::{Args, OwnedArgs, parse_int};
pub use command::{
    Check, Command, DecideFn, Find, Flags, Flow, Handler, KeyFlags, KeyRange, KeySpec, Merge, MergeFn, Plan,
    Scope, SessionHandler,
};
pub use commands::{CommandTable, all as all_commands};
pub use ctx::{
    Ctx, Decide, HostRequest, KeySelection, Next, On, Order, PartResult, Payload, ProcessInfo, Rng,
    SessionCtx, Shard, ShardReport,
};
pub use errors::Error;
pub use glob::glob_match;
pub use intents::{Intents, Mode, Scope as IntentScope, Ticket};
pub use keyspace::{
    DbStats, Detached, Entry, EntryMut, Key, KeyHasher, Keyspace, Millis, NewValue, ScanPosition, Value,
};
pub use message::Batch;
pub use modes::Modes;
pub use monitor::Watchers;
pub use node::{Faults, Node, NodeConfig};
pub use pause::Pause;
pub use session::{Client, CloseWhen, Ends, IoState, Peer, Session, SessionId, Sessions};
pub use settings::Settings;
pub use slot::{SLOTS, ShardId, Slot, SlotMap, slot_of};
pub use stats::{ShardStats, TurnHistogram};
