//! Clients nobody wrote for corelane: redis-cli, redis-benchmark, redis-py, redis-rs, ioredis, go-redis, a Prometheus exporter, against servers of
//! several sizes.

#[path = "../common/mod.rs"]
mod common;

mod programs;
mod redis_rs;
mod tools;
