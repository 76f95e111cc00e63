//! One look at a server: what its INFO says, as numbers.

use std::collections::BTreeMap;
use std::time::Instant;

use anyhow::{Result, ensure};

use crate::client::Client;
use crate::info::{Fields, field, parts, sections, server_name};
use crate::threads::shard_cpu_us;

/// What a server said, and when. Counters are since its start.
#[derive(Clone, Debug)]
pub(super) struct Look {
    pub(super) at: Instant,
    pub(super) name: String,
    /// Of the process: used where no shards are told.
    pub(super) whole: ShardLook,
    /// None of other servers.
    pub(super) shards: Vec<ShardLook>,
    pub(super) uptime_s: u64,
    pub(super) clients: u64,
    pub(super) blocked: u64,
    pub(super) memory: u64,
    pub(super) memory_peak: u64,
    pub(super) memory_resident: u64,
    pub(super) hits: u64,
    pub(super) misses: u64,
    pub(super) bytes_in: u64,
    pub(super) bytes_out: u64,
    pub(super) errors: u64,
    pub(super) expired: u64,
}

/// What is told of one shard.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct ShardLook {
    /// What stands in its column; empty where it is not bound.
    pub(super) cpu: String,
    /// Microseconds of processor time; `None` where they are not known.
    pub(super) cpu_us: Option<u64>,
    pub(super) commands: u64,
    pub(super) keys: u64,
    pub(super) connections: u64,
    pub(super) hops: u64,
    pub(super) mail_waiting: u64,
    pub(super) turns: u64,
    pub(super) turn_us_sum: u64,
    pub(super) turn_us_p999: Option<u64>,
    pub(super) turn_us_max: Option<u64>,
}

fn number(fields: &Fields, name: &str) -> u64 {
    field(fields, name).parse().unwrap_or(0)
}

impl Look {
    /// Asks a server.
    ///
    /// # Errors
    /// The server is gone, does not answer, or refuses.
    pub(super) fn take(client: &mut Client) -> Result<Self> {
        let info = client.text(&["INFO", "everything"])?;
        Self::read(&info, Instant::now(), shard_cpu_us)
    }

    /// Reads the text of INFO; `cpu_of` tells the processor times of a process's shards.
    fn read(info: &str, at: Instant, cpu_of: impl Fn(u32) -> BTreeMap<usize, u64>) -> Result<Self> {
        let all: BTreeMap<String, Fields> = sections(info).into_iter().collect();
        ensure!(
            all.contains_key("Server"),
            "INFO has no section Server: this is no server that can be watched"
        );
        let none = Fields::new();
        let of = |name: &str| all.get(name).unwrap_or(&none);
        let (server, clients, memory, stats) = (of("Server"), of("Clients"), of("Memory"), of("Stats"));
        let cpu_s = |name: &str| field(of("CPU"), name).parse::<f64>().unwrap_or(0.0);
        let whole = ShardLook {
            cpu_us: Some(((cpu_s("used_cpu_sys") + cpu_s("used_cpu_user")) * 1e6) as u64),
            commands: number(stats, "total_commands_processed"),
            keys: of("Keyspace").iter().map(|(_, line)| number(&parts(line, ','), "keys")).sum(),
            connections: number(clients, "connected_clients"),
            turns: number(stats, "eventloop_cycles"),
            turn_us_sum: number(stats, "eventloop_duration_sum"),
            ..ShardLook::default()
        };
        let shard_lines = of("Shards");
        let cpu_us = match field(server, "process_id").parse() {
            Ok(pid) if !shard_lines.is_empty() => cpu_of(pid),
            _ => BTreeMap::new(),
        };
        let shards = shard_lines.iter().enumerate();
        let shards = shards.map(|(idx, (_, line))| shard(&parts(line, ','), cpu_us.get(&idx).copied()));
        Ok(Self {
            at,
            name: server_name(server),
            whole,
            shards: shards.collect(),
            uptime_s: number(server, "uptime_in_seconds"),
            clients: number(clients, "connected_clients"),
            blocked: number(clients, "blocked_clients"),
            memory: number(memory, "used_memory"),
            memory_peak: number(memory, "used_memory_peak"),
            memory_resident: number(memory, "used_memory_rss"),
            hits: number(stats, "keyspace_hits"),
            misses: number(stats, "keyspace_misses"),
            bytes_in: number(stats, "total_net_input_bytes"),
            bytes_out: number(stats, "total_net_output_bytes"),
            errors: number(stats, "total_error_replies"),
            expired: number(stats, "expired_keys"),
        })
    }

    /// What the table has a row for each: the shards, or the server as one.
    pub(super) fn rows(&self) -> &[ShardLook] {
        if self.shards.is_empty() { std::slice::from_ref(&self.whole) } else { &self.shards }
    }
}

fn shard(line: &Fields, cpu_us: Option<u64>) -> ShardLook {
    let cpu = field(line, "cpu");
    let turn_us_sum = number(line, "turn_us_sum");
    ShardLook {
        cpu: if cpu.starts_with('-') { String::new() } else { cpu.to_owned() },
        // From another machine: the time that the shard worked.
        cpu_us: cpu_us.or(Some(turn_us_sum)),
        commands: number(line, "commands"),
        keys: number(line, "keys"),
        connections: number(line, "connections"),
        hops: number(line, "hops_in") + number(line, "hops_out"),
        mail_waiting: number(line, "mail_waiting"),
        turns: number(line, "turns"),
        turn_us_sum,
        turn_us_p999: field(line, "turn_us_p999").parse().ok(),
        turn_us_max: field(line, "turn_us_max").parse().ok(),
    }
}

/// A server with two shards that has run so many commands, a quarter of them on the first.
#[cfg(test)]
pub(super) fn example(at: Instant, commands: u64) -> Look {
    let shard = |commands| ShardLook { commands, cpu_us: Some(commands * 10), ..ShardLook::default() };
    Look {
        at,
        name: "corelane 0.1.0".to_owned(),
        whole: ShardLook { turns: commands, turn_us_sum: commands * 5, ..shard(commands) },
        shards: vec![shard(commands / 4), shard(commands / 4 * 3)],
        uptime_s: 93_784,
        clients: 50,
        blocked: 2,
        memory: 3 << 20,
        memory_peak: 4 << 20,
        memory_resident: 12 << 20,
        hits: commands / 2,
        misses: commands / 4,
        bytes_in: commands * 30,
        bytes_out: commands * 5,
        errors: 0,
        expired: 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OURS: &str = "# Server\r\ncorelane_version:0.1.0\r\nprocess_id:7\r\nuptime_in_seconds:90\r\n\
        # Clients\r\nconnected_clients:3\r\n# Stats\r\ntotal_commands_processed:30\r\nkeyspace_hits:4\r\n\
        # CPU\r\nused_cpu_sys:1.5\r\nused_cpu_user:0.5\r\n# Keyspace\r\ndb0:keys=5,expires=0\r\ndb3:keys=2\r\n\
        # Shards\r\nshard0:cpu=2,keys=3,commands=10,hops_in=1,hops_out=2,turn_us_sum=9,turn_us_max=70\r\n\
        shard1:cpu=-1,keys=4,commands=20,hops_in=2,hops_out=1,turn_us_sum=8\r\n";

    #[test]
    fn ours_is_read_shard_by_shard() {
        let cpu_of = |pid| if pid == 7 { BTreeMap::from([(0, 1234)]) } else { BTreeMap::new() };
        let look = Look::read(OURS, Instant::now(), cpu_of).unwrap();
        assert_eq!(
            (look.name.as_str(), look.uptime_s, look.clients, look.hits),
            ("corelane 0.1.0", 90, 3, 4)
        );
        assert_eq!((look.whole.keys, look.whole.cpu_us, look.whole.commands), (7, Some(2_000_000), 30));
        let [first, second] = look.rows() else { panic!("{look:?}") };
        assert_eq!(
            (first.cpu.as_str(), first.cpu_us, first.hops, first.turn_us_max),
            ("2", Some(1234), 3, Some(70))
        );
        assert_eq!((second.cpu.as_str(), second.cpu_us, second.turn_us_max), ("", Some(8), None));
    }

    #[test]
    fn others_are_one_row_and_no_server_is_an_error() {
        let info =
            "# Server\r\nredis_version:7.2.4\r\nprocess_id:7\r\n# Stats\r\ntotal_commands_processed:30\r\n";
        let look = Look::read(info, Instant::now(), |_| panic!("it has no shards")).unwrap();
        assert_eq!((look.name.as_str(), look.rows().len(), look.rows()[0].commands), ("redis 7.2.4", 1, 30));
        assert!(Look::read("", Instant::now(), |_| BTreeMap::new()).is_err());
    }
}
