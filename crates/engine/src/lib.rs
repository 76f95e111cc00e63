//! The deterministic heart of corelane: commands, keyspace, sessions and transactions across shards.
//!
//! Nothing here has a clock, a thread, a socket or a file: time and random seeds are arguments, bytes and messages go
//! in and out of a [`Node`]. The runtime gives each core one node; the simulator runs many of them in one thread.

mod ahead;
mod args;
mod blocking;
mod bundle;
mod client_counts;
mod command;
mod command_stats;
mod commands;
pub mod config;
mod coordinator;
mod ctx;
mod digest;
mod dispatch;
mod embedded;
mod errors;
mod events;
mod exec;
mod exec_locks;
mod execute;
mod failover;
mod faults;
mod feed;
mod figures;
mod geo;
mod glob;
mod histogram;
mod input;
mod intents;
mod journal;
mod keyspace;
mod latency_monitor;
mod local;
mod memory;
mod message;
mod modes;
mod monitor;
mod node;
mod pace;
mod participant;
mod pause;
mod pubsub;
mod rates;
pub mod rdb;
mod reply_order;
mod serve;
mod serving;
mod session;
mod settings;
mod slot;
mod stats;
mod texts;
mod timing;
mod transaction;
mod typed;
pub mod values;
mod waits;
mod walk;
mod wall;

pub use args::{Args, OwnedArgs, parse_int};
pub use bundle::{Bundle, BundleItem, BundleLock, BundleResult};
pub use client_counts::ClientCounts;
pub use command::{
    Check, Command, DecideFn, Find, Flags, Flow, Handler, IsSecret, KeyFlags, KeyRange, KeySpec, Merge,
    MergeFn, Pace, Pacing, Permit, PieceSizes, Plan, Scope, SessionHandler,
};
pub use command_stats::{CommandCount, CommandStats, ErrorCounts};
pub use commands::{
    BitWork, CommandNumber, CommandTable, DumpWork, GeoWork, Matches, RestoreWork, ScoreWork, SetWork,
    SortShare, SortWork, all as all_commands,
};
pub use ctx::{
    Ctx, Decide, HostRequest, KeySelection, Next, On, Order, PartResult, Payload, ProcessInfo, Rng,
    SessionCtx, Shard, ShardReport,
};
pub use embedded::{Called, Calls, Route, Router};
pub use errors::Error;
pub use events::{EventClasses, KeyEvent};
pub use faults::Faults;
pub use figures::{CommandFigures, ShardFigures, command_names};
pub use glob::glob_match;
pub use histogram::{Coarse, Histogram};
pub use intents::{Intents, Mode, Scope as IntentScope, Ticket};
pub use journal::{Journal, LogEntry, LogKind, LogPart, Note};
pub use keyspace::{
    Access, AccessPolicy, DbStats, Detached, Edit, Entry, EntryMut, Item, ItemRef, Key, KeyHasher, Keyspace,
    Lfu, Millis, NewValue, ScanPosition, StringForm, TableShape, Value, ValueRef,
};
pub use latency_monitor::LatencyPart;
pub use local::{Local, LocalError, Task};
pub use memory::{DbMemory, ServerMemory, ShardMemory};
pub use message::Batch;
pub use modes::Modes;
pub use monitor::Watchers;
pub use node::{Node, NodeConfig};
pub use pause::Pause;
pub use rates::{Rates, Sampler};
pub use session::{Client, CloseWhen, Ends, IoState, Peer, Session, SessionId, Sessions, Wait};
pub use settings::{
    Allocator, Hooks, MaxmemoryPolicy, Observation, OutputLimit, OutputLimits, Password, Settings,
};
pub use slot::{SLOTS, ShardId, Slot, SlotMap, slot_of};
pub use stats::{ShardStats, TurnHistogram};
pub use timing::{Ticks, Timing};
pub use transaction::{Transaction, Unwatched};
pub use wall::WallClock;
