//! What the engine needs to know of the configuration. Plain data; every shard has its own copy.

/// Settings of the engine, with Redis's names and defaults where Redis has them.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Number of databases.
    pub databases: usize,
    /// Longest string in bytes (`proto-max-bulk-len`).
    pub proto_max_bulk_len: usize,
    /// Bytes of unprocessed input after which a client is dropped (`client-query-buffer-limit`).
    pub query_buffer_limit: usize,
    /// Bytes of unsent output after which a normal client is dropped; 0 for no limit (`client-output-buffer-limit`).
    pub output_buffer_limit: usize,
    /// Bytes of unsent output after which no more of a client's commands are run until it has read.
    pub output_backlog_max: usize,
    /// All settings as CONFIG GET shows them: name and value, sorted by name.
    pub shown: Vec<(&'static str, String)>,
    /// What INFO says about the process and does not change: field and value.
    pub server_info: Vec<(&'static str, String)>,
    /// The CPU to which this engine's shard is bound, for INFO.
    pub cpu: Option<usize>,
    /// The port that INFO shows.
    pub port: u16,
    /// The Unix time at which the server started, in milliseconds.
    pub started_ms: u64,
    /// Most connections at a time.
    pub maxclients: u32,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            databases: 16,
            proto_max_bulk_len: 512 << 20,
            query_buffer_limit: 1 << 30,
            output_buffer_limit: 0,
            output_backlog_max: 1 << 20,
            shown: Vec::new(),
            server_info: Vec::new(),
            cpu: None,
            port: 6379,
            started_ms: 0,
            maxclients: 10_000,
        }
    }
}
