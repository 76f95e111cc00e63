//! Programs in other languages with clients nobody wrote for corelane, and what operators point at a server: ioredis, go-redis,
//! redis-py's asyncio, a Prometheus exporter, redis-cli's analyses.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use crate::common::client::Client;
use crate::common::server::{self, Server};

const SHARD_COUNTS: [usize; 3] = [1, 2, 5];

fn source(file: &str) -> String {
    format!("{}/tests/clients/{file}", env!("CARGO_MANIFEST_DIR"))
}

/// Runs a program with the port of a server of each size as its last argument; it ends by saying "all good".
fn check(command: impl Fn() -> Command) {
    for shards in SHARD_COUNTS {
        let server = Server::ours(shards);
        let mut command = command();
        let output = command.arg(server.port.to_string()).output().expect("the program runs");
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        let complaint = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success() && said.contains("all good"), "{}: {said}{complaint}", server.name);
    }
}

fn succeeds(command: &mut Command) -> bool {
    command.output().is_ok_and(|output| output.status.success())
}

#[test]
fn ioredis_works() {
    if !succeeds(Command::new("node").args(["-e", "require('ioredis')"])) {
        return server::skip("ioredis not found (`npm install ioredis`, its node_modules in NODE_PATH)");
    }
    check(|| {
        let mut command = Command::new("node");
        command.arg(source("ioredis.js"));
        command
    });
}

#[test]
fn go_redis_works_in_both_protocols() {
    if !server::installed("go", "version") {
        return;
    }
    let program = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("go-redis-{}", std::process::id()));
    let mut build = Command::new("go");
    build.args(["build", "-o"]).arg(&program).arg(".").current_dir(source("go_redis"));
    let built = build.output().expect("go runs");
    assert!(built.status.success(), "go build: {}", String::from_utf8_lossy(&built.stderr));
    check(|| Command::new(&program));
    std::fs::remove_file(&program).expect("the program is there");
}

#[test]
fn redis_py_asyncio_works_in_both_protocols() {
    if !succeeds(Command::new("python3").args(["-c", "import redis.asyncio"])) {
        return server::skip("redis-py not found (`pip install redis`)");
    }
    check(|| {
        let mut command = Command::new("python3");
        command.arg(source("redis_async.py"));
        command
    });
}

/// What redis-cli prints in a mode that ends by itself, and whether it succeeded.
fn redis_cli(server: &Server, args: &[&str]) -> (String, bool) {
    let output = Command::new("redis-cli").args(["-p", &server.port.to_string()]).args(args).output();
    let output = output.expect("redis-cli runs");
    let text = [output.stdout, output.stderr].concat();
    (String::from_utf8_lossy(&text).into_owned(), output.status.success())
}

#[test]
fn redis_cli_finds_big_keys() {
    if !server::installed("redis-cli", "--version") {
        return;
    }
    for shards in SHARD_COUNTS {
        let server = Server::ours(shards);
        let mut client = server.client();
        client.check("DEBUG POPULATE 500", "+OK\r\n");
        client.check("DEBUG POPULATE 1 giant 30000", "+OK\r\n");
        let (text, ended_well) = redis_cli(&server, &["--bigkeys"]);
        assert!(ended_well && text.contains("Sampled 501 keys in the keyspace!"), "{text}");
        assert!(text.contains("Biggest string found '\"giant:0\"' has 30000 bytes"), "{text}");
        let (text, ended_well) = redis_cli(&server, &["--memkeys"]);
        assert!(ended_well && text.contains("Biggest string found '\"giant:0\"' has 30"), "{text}");
        let (text, _) = redis_cli(&server, &["--hotkeys"]);
        assert!(text.contains("An LFU maxmemory policy is not selected"), "{text}");
    }
}

#[test]
fn redis_cli_finds_hot_keys_under_an_lfu_policy() {
    if !server::installed("redis-cli", "--version") {
        return;
    }
    for shards in SHARD_COUNTS {
        let server = Server::ours_with(shards, &["--maxmemory-policy", "allkeys-lfu"]);
        let mut client = server.client();
        client.check("DEBUG POPULATE 100", "+OK\r\n");
        for _ in 0..500 {
            client.check("GET key:42", "$8\r\nvalue:42\r\n");
        }
        let (text, ended_well) = redis_cli(&server, &["--hotkeys"]);
        assert!(ended_well && text.contains("Sampled 100 keys in the keyspace!"), "{text}");
        let found = text.lines().find(|line| line.starts_with("hot key found with counter:"));
        assert!(found.is_some_and(|line| line.ends_with("keyname: \"key:42\"")), "{text}");
    }
}

/// A process that is killed when dropped.
struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        // Both fail only where it is gone already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The program of github.com/oliver006/redis_exporter, by the name that Go or Debian gives it.
fn exporter() -> Option<&'static str> {
    let names = ["redis_exporter", "prometheus-redis-exporter"];
    let found = names.into_iter().find(|name| succeeds(Command::new(name).arg("--version")));
    if found.is_none() {
        server::skip("redis_exporter not found (`apt-get install prometheus-redis-exporter`)");
    }
    found
}

/// The body of a page; `None` while nobody listens.
fn page(port: u16, path: &str) -> Option<String> {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).ok()?;
    write!(stream, "GET {path} HTTP/1.0\r\n\r\n").ok()?;
    let mut text = String::new();
    stream.read_to_string(&mut text).ok()?;
    text.split_once("\r\n\r\n").map(|(_, body)| body.to_owned())
}

#[test]
fn a_prometheus_exporter_scrapes_without_error() {
    let Some(program) = exporter() else { return };
    for shards in SHARD_COUNTS {
        let server = Server::ours(shards);
        use_a_little(&mut server.client());
        let port = server::free_port();
        let mut command = Command::new(program);
        command.args(["--web.listen-address", &format!("127.0.0.1:{port}")]);
        command.args(["--redis.addr", &format!("redis://127.0.0.1:{}", server.port)]);
        command.args(["--check-single-keys", "db0=large:0", "--include-system-metrics"]);
        let child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("the exporter runs");
        let _exporter = Killed(child);
        let text = server::poll(20_000, || page(port, "/metrics")).expect("metrics");
        let value = |metric: &str| -> f64 {
            let line = text.lines().find_map(|line| line.strip_prefix(metric)?.strip_prefix(' '));
            line.and_then(|number| number.parse().ok()).unwrap_or_else(|| panic!("no {metric} in {text}"))
        };
        let equal = [
            ("redis_up", 1.0),
            ("redis_exporter_last_scrape_error{err=\"\"}", 0.0),
            ("redis_db_keys{db=\"db0\"}", 102.0),
            ("redis_db_keys_expiring{db=\"db0\"}", 1.0),
            ("redis_key_size{db=\"db0\",key=\"large:0\"}", 20_000.0),
            ("redis_keyspace_hits_total", 1.0),
            ("redis_keyspace_misses_total", 1.0),
            ("redis_connected_slaves", 0.0),
            ("redis_commands_total{cmd=\"set\"}", 1.0),
            ("redis_commands_failed_calls_total{cmd=\"set\"}", 0.0),
            ("redis_blocked_clients", 0.0),
            ("redis_cluster_enabled", 0.0),
        ];
        for (metric, expected) in equal {
            assert_eq!(value(metric), expected, "{metric} of {}", server.name);
        }
        let positive = [
            "redis_memory_used_bytes",
            "redis_memory_used_rss_bytes",
            "redis_memory_used_peak_bytes",
            "redis_memory_used_dataset_bytes",
            "redis_mem_fragmentation_ratio",
            "redis_total_system_memory_bytes",
            "redis_allocator_active_bytes",
            "redis_commands_processed_total",
            "redis_connected_clients",
            "redis_connections_received_total",
            "redis_net_input_bytes_total",
            "redis_net_output_bytes_total",
            "redis_db_avg_ttl_seconds{db=\"db0\"}",
            "redis_config_maxclients",
        ];
        for metric in positive {
            assert!(value(metric) > 0.0, "{metric} of {}", server.name);
        }
    }
}

/// 102 keys, one of them with a deadline and one large; a hit and a miss.
fn use_a_little(client: &mut Client) {
    for command in ["DEBUG POPULATE 100", "DEBUG POPULATE 1 large 20000", "SET k v EX 100"] {
        client.check(command, "+OK\r\n");
    }
    client.check("GET k", "$1\r\nv\r\n");
    client.check("GET nokey", "$-1\r\n");
}
