//! What the directives that have an effect do, for docs/config.md and `--help`. Sorted by name.

use super::Directive;

const MEANINGS: &[(&str, &str)] = &[
    ("accept", "Each shard accepts on a socket of its own, or the first accepts all and hands them on."),
    ("availability-zone", "Where the server is, for INFO and HELLO."),
    (
        "bind",
        "Addresses to listen on, IPv4 and IPv6; one with a leading `-` may be missing; `*` and `::*` are all.",
    ),
    (
        "buffer-pool-max",
        "Buffers for receives that a shard may come to have; each is 17 KiB, used only while bytes wait in it.",
    ),
    (
        "buffer-pool-min",
        "Buffers for receives that a shard has from the start; whenever they do not suffice, they are doubled.",
    ),
    ("busy-poll-us", "Microseconds for which a shard without work spins before it sleeps."),
    (
        "client-output-buffer-limit",
        "`class hard soft seconds`, for `normal` (monitors, too), `replica` and `pubsub`: a client is closed when more than `hard` bytes are unsent, or more than `soft` for so many seconds; 0 is no limit. The first 16 KiB are not counted.",
    ),
    ("client-query-buffer-limit", "A client is closed when more than so many bytes of it wait to be run."),
    (
        "commandlog-execution-slower-than",
        "Microseconds from which on a command is logged as slow; -1 for never.",
    ),
    ("commandlog-large-reply-max-len", "Large replies that are kept."),
    ("commandlog-large-request-max-len", "Large requests that are kept."),
    ("commandlog-reply-larger-than", "Bytes from which on a reply is logged as large; -1 for never."),
    ("commandlog-request-larger-than", "Bytes from which on a request is logged as large; -1 for never."),
    ("commandlog-slow-execution-max-len", "Slow commands that are kept."),
    ("cpus", "CPUs for the shards, such as `0-3,8`; none given: all that the process may use."),
    ("databases", "How many databases there are."),
    ("enable-debug-command", "Who may run DEBUG: everybody, nobody, or clients of this machine."),
    (
        "enable-protected-configs",
        "Who may set protected directives: everybody, nobody, or clients of this machine.",
    ),
    ("hash-max-listpack-entries", "Fields up to which a hash is one piece of memory."),
    ("hash-max-listpack-value", "Bytes of a field or value up to which it is."),
    ("hll-sparse-max-bytes", "Bytes up to which a HyperLogLog keeps its sparse form."),
    (
        "latency-monitor-threshold",
        "Milliseconds from which on the latency monitor notes an event; 0 for never.",
    ),
    (
        "latency-tracking",
        "Whether durations are counted per command, for LATENCY HISTOGRAM and INFO latencystats.",
    ),
    ("latency-tracking-info-percentiles", "Percentiles that INFO latencystats shows."),
    (
        "lfu-decay-time",
        "Minutes without an access that take one off the counter of a key, under an LFU policy.",
    ),
    ("lfu-log-factor", "How slowly these counters grow."),
    (
        "list-max-listpack-size",
        "Size of the pieces of a list: so many elements, or from -1 to -5 at most 4, 8, 16, 32, 64 KiB.",
    ),
    ("logfile", "The file that is logged to, which may be moved away; none: the standard output."),
    ("loglevel", "How much is logged."),
    (
        "maxclients",
        "Clients at a time, on all shards together; never more than the system has descriptors for.",
    ),
    (
        "maxmemory-policy",
        "What is counted of accesses, for OBJECT FREQ and OBJECT IDLETIME. Nothing is evicted yet.",
    ),
    (
        "metrics-bind",
        "Addresses for metrics; one with a leading `-` may be missing. Whoever reaches them sees how the server is used, and no keys or values.",
    ),
    ("metrics-port", "The TCP port for metrics: /metrics for Prometheus, / for people; 0 for none."),
    (
        "notify-keyspace-events",
        "What is published of keys, on channels: `K` by key, `E` by event; `g$lshztdxemn` for kinds of events, `A` for most.",
    ),
    ("placement", "One shard per physical core, per CPU, or wherever the scheduler puts them."),
    ("port", "The TCP port; 0 for none."),
    ("protected-mode", "Whether clients of other machines are refused as long as there is no password."),
    ("proto-max-bulk-len", "The longest string, and the longest argument of a command."),
    (
        "rdb-version-check",
        "Of which versions RESTORE takes payloads: those that are known, or also Redis's since 7.4 and future ones.",
    ),
    (
        "requirepass",
        "The password of the user `default`, whom AUTH and HELLO ask for it; none: everybody is let in.",
    ),
    ("set-max-intset-entries", "Integers up to which a set of integers is a sorted array."),
    ("set-max-listpack-entries", "Members up to which a set is one piece of memory."),
    ("set-max-listpack-value", "Bytes of a member up to which it is."),
    (
        "shards",
        "How many shards there are; 0: as many as the placement finds cores, at most the cgroup's CPU quota.",
    ),
    ("tcp-backlog", "Connections that may wait to be accepted, per socket."),
    (
        "tcp-keepalive",
        "Seconds between probes of a quiet connection, for connections from then on; 0 for none.",
    ),
    ("timeout", "Seconds without traffic after which a client is closed; 0 for never."),
    ("unixsocket", "The path of a Unix socket to listen on."),
    ("unixsocketperm", "Its permissions, in octal; 0: as the umask says."),
    ("zset-max-listpack-entries", "Members up to which a sorted set is one piece of memory."),
    ("zset-max-listpack-value", "Bytes of a member up to which it is."),
];

impl Directive {
    /// What it does, in one sentence; `None` for one that does nothing here.
    pub fn meaning(&self) -> Option<&'static str> {
        MEANINGS.binary_search_by(|(name, _)| (*name).cmp(self.name)).ok().map(|idx| MEANINGS[idx].1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_directives_with_an_effect_have_a_meaning() {
        assert!(MEANINGS.is_sorted_by(|a, b| a.0 < b.0));
        for (name, _) in MEANINGS {
            let known =
                Directive::find(name).is_some_and(|directive| !directive.idle && directive.name == *name);
            assert!(known, "{name}");
        }
    }
}
