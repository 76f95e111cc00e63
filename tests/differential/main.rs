//! Every command against a real Valkey 9.1: the same commands, the same bytes back; RESP2 and RESP3, one, two and five
//! shards. Where replies may differ is data in `common/compare.rs`.
//!
//! `CORELANE_DIFF_CASES` sets how many random cases run (default [`random::CASES_DEFAULT`]); `CORELANE_DIFF_SEED` the
//! first seed.

#[path = "../common/mod.rs"]
mod common;

mod blocking;
mod configuration;
mod counters;
mod filters;
mod generated;
mod geo;
mod grammar;
mod hyperloglog;
mod introspection;
mod monitor;
mod peers;
mod pubsub;
mod random;
mod scan;
mod secrets;
mod shrink;
mod sort;
mod tables;
mod watched;
