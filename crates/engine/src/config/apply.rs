//! From the configuration's text to the typed fields that the engine works with.

use super::{Config, bytes};
use crate::events::EventClasses;
use crate::rdb::Versions;
use crate::settings::{
    CompactLimits, MaxmemoryPolicy, Observation, OutputLimit, OutputLimits, Password, Settings,
};

fn size(config: &Config, name: &str) -> usize {
    usize::try_from(config.number(name)).unwrap_or(0)
}

fn observation(config: &Config) -> Observation {
    let percentiles = config.value("latency-tracking-info-percentiles").split_ascii_whitespace();
    Observation {
        slow_us: config.number("commandlog-execution-slower-than"),
        slow_len_max: size(config, "commandlog-slow-execution-max-len"),
        large_request_bytes: config.number("commandlog-request-larger-than"),
        large_request_len_max: size(config, "commandlog-large-request-max-len"),
        large_reply_bytes: config.number("commandlog-reply-larger-than"),
        large_reply_len_max: size(config, "commandlog-large-reply-max-len"),
        latency_threshold_ms: config.number("latency-monitor-threshold") as u64,
        latency_tracking: config.is_on("latency-tracking"),
        latency_percentiles: percentiles.filter_map(|word| word.parse().ok()).collect(),
    }
}

fn compact(config: &Config) -> CompactLimits {
    CompactLimits {
        hash_entries: size(config, "hash-max-listpack-entries"),
        hash_value: size(config, "hash-max-listpack-value"),
        list_size: config.number("list-max-listpack-size").into(),
        set_ints: size(config, "set-max-intset-entries"),
        set_entries: size(config, "set-max-listpack-entries"),
        set_value: size(config, "set-max-listpack-value"),
        sorted_entries: size(config, "zset-max-listpack-entries"),
        sorted_value: size(config, "zset-max-listpack-value"),
        seed: 0,
    }
}

fn output_limits(config: &Config) -> OutputLimits {
    let words: Vec<&str> = config.value("client-output-buffer-limit").split(' ').collect();
    let mut limits = OutputLimits::default();
    for group in words.chunks_exact(4) {
        let number = |idx: usize| group[idx].parse().unwrap_or(0);
        let limit = OutputLimit { hard: number(1), soft: number(2), soft_s: number(3) as u64 };
        match group[0] {
            "normal" => limits.normal = limit,
            "pubsub" => limits.pubsub = limit,
            _ => limits.replica = limit,
        }
    }
    limits
}

impl Settings {
    /// Sets every field that a directive stands for. What only the runtime knows stays as it is.
    pub fn apply(&mut self, config: Config) {
        let policy = config.value("maxmemory-policy");
        let policy = MaxmemoryPolicy::ALL.into_iter().find(|known| known.name() == policy);
        self.databases = size(&config, "databases");
        self.proto_max_bulk_len = size(&config, "proto-max-bulk-len");
        self.query_buffer_limit = size(&config, "client-query-buffer-limit");
        self.output_limits = output_limits(&config);
        self.port = config.number("port") as u16;
        self.maxclients = config.number("maxclients") as u32;
        self.timeout_s = config.number("timeout") as u32;
        self.tcp_keepalive_s = config.number("tcp-keepalive") as u32;
        self.buffer_pool_min = config.number("buffer-pool-min") as u16;
        self.buffer_pool_max = config.number("buffer-pool-max") as u16;
        self.busy_poll_us = config.number("busy-poll-us") as u64;
        self.maxmemory_policy = policy.unwrap_or_default();
        self.lfu_log_factor = config.number("lfu-log-factor") as u32;
        self.lfu_decay_time_minutes = config.number("lfu-decay-time") as u32;
        self.observation = observation(&config);
        // No directives have these.
        let (seed, alone_bytes_min) = (self.compact.seed, self.compact.list_size.alone_bytes_min);
        self.compact = CompactLimits { seed, ..compact(&config) };
        self.compact.list_size.alone_bytes_min = alone_bytes_min;
        self.hll_sparse_max_bytes = size(&config, "hll-sparse-max-bytes");
        self.rdb_versions =
            if config.value("rdb-version-check") == "relaxed" { Versions::Relaxed } else { Versions::Strict };
        self.password = Password((&*bytes::to_bytes(config.value("requirepass"))).into());
        self.protected_mode = config.is_on("protected-mode");
        self.events = EventClasses::from_letters(config.value("notify-keyspace-events"));
        self.config = config;
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Directive, Kind};
    use super::*;

    #[test]
    fn defaults_of_the_table_are_those_of_the_settings() {
        let mut settings = Settings::default();
        settings.apply(Config::default());
        assert_eq!(format!("{settings:?}"), format!("{:?}", Settings::default()));
    }

    /// Directives in force that the program or a command asks the configuration for by name.
    const BY_NAME: [&str; 15] = [
        "accept",
        "availability-zone",
        "bind",
        "cpus",
        "enable-debug-command",
        "enable-protected-configs",
        "logfile",
        "loglevel",
        "metrics-bind",
        "metrics-port",
        "placement",
        "shards",
        "tcp-backlog",
        "unixsocket",
        "unixsocketperm",
    ];
    /// What directives may be set to: the first of these that is valid and not the default is tried.
    const VALUES: [&str; 15] = [
        "yes",
        "no",
        "1",
        "2",
        "2mb",
        "7",
        "normal 1 2 3",
        "5 6",
        "900 1",
        "1 2 3",
        "KEA",
        "C",
        "127.0.0.1",
        "::1",
        "{port}",
    ];

    fn another(directive: &Directive) -> String {
        let candidates = match directive.kind {
            Kind::Enum(words) | Kind::Words(words) => words,
            _ => &VALUES,
        };
        let differs = |text: &&&str| directive.parse(text).is_ok_and(|value| value != directive.default);
        candidates.iter().find(differs).map_or_else(String::new, |text| (*text).to_owned())
    }

    #[test]
    fn what_is_in_force_reaches_a_field_and_what_is_idle_reaches_none() {
        let typed = |config: Config| {
            let mut settings = Settings::default();
            settings.apply(config);
            settings.config = Config::default();
            format!("{settings:?}")
        };
        let before = typed(Config::default());
        for directive in Directive::all().iter().filter(|known| known.alias_of.is_none()) {
            let mut config = Config::default();
            let value = another(directive);
            if config.set(directive, &value).is_err() {
                assert!(directive.idle, "{directive:?} has but one value");
                continue;
            }
            let reaches = typed(config) != before;
            assert!(!(directive.idle && reaches), "{} has an effect", directive.name);
            let read = reaches || BY_NAME.contains(&directive.name);
            assert!(directive.idle || read, "{} = {value} changes nothing", directive.name);
        }
    }

    #[test]
    fn passwords_are_not_printed() {
        let mut config = Config::default();
        for directive in Directive::all().iter().filter(|known| known.secret) {
            config.set(directive, "hush").unwrap();
        }
        let mut settings = Settings::default();
        settings.apply(config);
        let printed = format!("{settings:?} {:#?}", settings.config);
        assert!(!printed.contains("hush") && printed.contains("(redacted)"), "{printed}");
    }

    #[test]
    fn values_reach_their_fields() {
        let mut config = Config::default();
        for (name, text) in [
            ("maxmemory-policy", "allkeys-lfu"),
            ("slowlog-log-slower-than", "-1"),
            ("timeout", "5"),
            ("client-output-buffer-limit", "normal 1mb 1kb 2"),
        ] {
            config.set(Directive::find(name).unwrap(), text).unwrap();
        }
        let mut settings = Settings::default();
        settings.apply(config);
        assert_eq!(settings.maxmemory_policy, MaxmemoryPolicy::AllkeysLfu);
        assert_eq!((settings.observation.slow_us, settings.timeout_s), (-1, 5));
        assert_eq!(settings.output_limits.normal, OutputLimit { hard: 1 << 20, soft: 1 << 10, soft_s: 2 });
    }
}
