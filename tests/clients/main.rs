//! Clients nobody wrote for corelane: redis-cli, redis-benchmark, redis-py and redis-rs against one and three shards.

#[path = "../common/mod.rs"]
mod common;

mod redis_rs;
mod tools;
