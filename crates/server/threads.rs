//! Processor time of the shards' threads, where the server runs on this machine.

use std::collections::BTreeMap;
use std::fs;

/// Microseconds of processor time so far by shard, as /proc tells; empty where the process is not on this machine.
pub(crate) fn shard_cpu_us(pid: u32) -> BTreeMap<usize, u64> {
    /// `USER_HZ` is 100 on every architecture that io_uring and we run on.
    const US_PER_TICK: u64 = 10_000;
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let times = tasks.filter_map(|task| {
        let stat = fs::read_to_string(task.path().join("stat")).ok()?;
        let (head, fields) = stat.rsplit_once(") ")?;
        let shard = head.rsplit_once("(shard-")?.1.parse().ok()?;
        // The first field behind the name is the third.
        let ticks = |field: usize| fields.split(' ').nth(field - 3)?.parse::<u64>().ok();
        Some((shard, (ticks(14)? + ticks(15)?) * US_PER_TICK))
    });
    let mut shards = BTreeMap::new();
    for (shard, us) in times {
        // The executor's helpers bear the shard's name, too.
        *shards.entry(shard).or_default() += us;
    }
    shards
}
