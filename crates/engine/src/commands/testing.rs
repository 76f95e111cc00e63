//! For the tests of commands: a client on a few shards that run in this thread, in virtual time.

use crate::command::PieceSizes;
use crate::config::Config;
use crate::faults::Faults;
use crate::keyspace::Millis;
use crate::node::{Node, NodeConfig};
use crate::session::{CloseWhen, Ends, Peer, SessionId};
use crate::settings::{Observation, Settings};
use crate::slot::ShardId;
use crate::timing::Ticks;
use corelane_resp::{Frame, decode, encode_command};
use std::cell::Cell;

/// Numbers of shards that every table of commands is run on.
const SHARDS: [u16; 3] = [1, 2, 5];

/// Nanoseconds from one reading of the tests' clock to the next.
const TICK_NS: u64 = 1000;

thread_local! {
    static TICKS: Cell<u64> = const { Cell::new(0) };
}

fn tick() -> u64 {
    TICKS.with(|ticks| ticks.replace(ticks.get() + TICK_NS))
}

/// Shards, and one client, who is connected to the last of them.
pub(super) struct Bench {
    pub(super) nodes: Vec<Node>,
    client: SessionId,
    pub(super) now: Millis,
}

/// Another client.
#[derive(Clone, Copy)]
pub(super) struct Visitor {
    shard: usize,
    id: SessionId,
}

impl Visitor {
    /// Its connection.
    pub(super) fn session(self) -> SessionId {
        self.id
    }
}

impl Bench {
    pub(super) fn new(shards: u16) -> Self {
        Self::with(shards, Observation::default())
    }

    /// With limits of its own from which on commands are logged.
    pub(super) fn with(shards: u16, observation: Observation) -> Self {
        let mut config = Config::default();
        config.settle("enable-debug-command", "yes");
        let settings = Settings { observation, config, ..Settings::default() };
        let now = 1_700_000_000_000;
        let config = |me| NodeConfig {
            me: ShardId(me),
            shards,
            seed: 11,
            settings: settings.clone(),
            ticks: Ticks { read: tick, ns_q32: 1 << 32 },
            faults: Faults::default(),
        };
        let mut nodes: Vec<Node> = (0..shards).map(|me| Node::new(config(me))).collect();
        let peer =
            Peer::new(9, false, |_| Ends { addr: "127.0.0.1:5".into(), laddr: "127.0.0.1:6379".into() });
        let client = nodes.last_mut().expect("one shard or more").open(peer, now);
        Self { nodes, client, now }
    }

    /// Changes the settings of all shards.
    pub(super) fn configure(&mut self, change: impl Fn(&mut Settings)) {
        for node in &mut self.nodes {
            change(&mut node.core.shard.settings);
            node.core.shard.apply_settings();
        }
    }

    /// Runs a command, or several on lines of their own; words in double quotes may hold spaces or nothing. Replies come as
    /// `+OK`, `-ERR text`, `:5`, `"bulk"`, `nil`, `[array, of]`, `{key: value}`, `~{set}`, `,1.5`, `#t`.
    pub(super) fn run(&mut self, lines: &str) -> String {
        let replies: Vec<String> = lines.lines().map(|line| self.run_words(&words(line))).collect();
        replies.join("\n")
    }

    /// Runs a command of any bytes.
    pub(super) fn run_words<W: AsRef<[u8]>>(&mut self, words: &[W]) -> String {
        let mut input = Vec::new();
        encode_command(&mut input, words);
        let output = self.exchange(&input);
        let (frame, len) = decode(&output).expect("a reply").expect("a whole reply");
        assert_eq!(len, output.len(), "one reply to one command");
        show(&frame)
    }

    /// Sends bytes and returns the answer, when all shards have come to rest.
    pub(super) fn exchange(&mut self, input: &[u8]) -> Vec<u8> {
        let (now, home) = (self.now, self.nodes.len() - 1);
        self.nodes[home].feed(self.client, input, now);
        self.settle();
        let node = &mut self.nodes[home];
        let output = node.session_state(self.client).expect("the client is connected").output.take();
        let bytes = output.slices().collect::<Vec<_>>().concat();
        node.output_taken(self.client, bytes.len());
        node.sent(self.client, bytes.len(), now);
        bytes
    }

    /// Another client, with the number as its port, on a shard.
    pub(super) fn connect(&mut self, shard: usize, port: u16) -> Visitor {
        let shard = shard % self.nodes.len();
        let ends =
            |peer: &Peer| Ends { addr: format!("127.0.0.1:{}", peer.fd), laddr: "127.0.0.1:6379".into() };
        let peer = Peer::new(port.into(), false, ends);
        Visitor { shard, id: self.nodes[shard].open(peer, self.now) }
    }

    /// Ends a client's connection.
    pub(super) fn leave(&mut self, client: Visitor) {
        self.nodes[client.shard].close(client.id);
        self.settle();
    }

    /// Sends commands in one pipeline and returns the bytes that the client has received meanwhile.
    pub(super) fn say_raw(&mut self, client: Visitor, lines: &str) -> Vec<u8> {
        self.send(client, lines);
        self.hear_raw(client).unwrap_or_default().0
    }

    /// Sends commands in one pipeline, a line each, and returns all that the client has received meanwhile.
    pub(super) fn say(&mut self, client: Visitor, lines: &str) -> String {
        self.send(client, lines);
        self.hear(client)
    }

    /// Sends commands without waiting for anything.
    pub(super) fn send(&mut self, client: Visitor, lines: &str) {
        let mut input = Vec::new();
        lines.lines().for_each(|line| encode_command(&mut input, &words(line)));
        self.nodes[client.shard].feed(client.id, &input, self.now);
    }

    /// All bytes that a client has received meanwhile, and whether its connection is to be closed; `None` if it is.
    fn hear_raw(&mut self, client: Visitor) -> Option<(Vec<u8>, Option<CloseWhen>)> {
        self.settle();
        let node = &mut self.nodes[client.shard];
        let state = node.session_state(client.id)?;
        let (output, close) = (state.output.take(), state.close);
        let bytes = output.slices().collect::<Vec<_>>().concat();
        node.output_taken(client.id, bytes.len());
        node.sent(client.id, bytes.len(), self.now);
        Some((bytes, close))
    }

    /// All that a client has received meanwhile; "closed" at the end when its connection is.
    pub(super) fn hear(&mut self, client: Visitor) -> String {
        let Some((bytes, close)) = self.hear_raw(client) else { return "closed".to_owned() };
        let (mut replies, mut at) = (Vec::new(), 0);
        while close != Some(CloseWhen::Now)
            && let Some((frame, len)) = decode(&bytes[at..]).expect("replies")
        {
            replies.push(show(&frame));
            at += len;
        }
        if close.is_some() {
            self.nodes[client.shard].close(client.id);
            replies.push("closed".to_owned());
        }
        replies.join("\n")
    }

    /// Lets all shards come to rest.
    pub(super) fn settle(&mut self) {
        let now = self.now;
        while self.nodes.iter_mut().fold(false, |more, node| node.tick(now) | more) | self.carry() {}
    }

    /// Brings batches from shard to shard; true if there were any.
    pub(super) fn carry(&mut self) -> bool {
        let (shards, mut any) = (self.nodes.len(), false);
        for (from, to) in (0..shards).flat_map(|from| (0..shards).map(move |to| (from, to))) {
            if let Some(batch) = self.nodes[from].take_outbox(ShardId(to as u16)) {
                self.nodes[to].receive(ShardId(from as u16), batch, self.now);
                any = true;
            }
        }
        any
    }
}

/// Runs a table of commands and replies on several numbers of shards, and with collections that are read element by element.
#[track_caller]
pub(super) fn check_all(table: &[(&str, &str)]) {
    for shards in SHARDS {
        for pieces in [PieceSizes::DEFAULT, PieceSizes::SMALLEST] {
            let mut bench = Bench::new(shards);
            bench.configure(|settings| settings.pieces = pieces);
            for (command, reply) in table {
                assert_eq!(bench.run(command), *reply, "{command} on {shards} shards, {pieces:?}");
            }
        }
    }
}

fn words(line: &str) -> Vec<String> {
    let (mut words, mut quoted, mut open) = (Vec::new(), false, false);
    for c in line.chars() {
        match c {
            '"' => quoted = !quoted,
            ' ' if !quoted => {
                open = false;
                continue;
            }
            _ => {}
        }
        if !open {
            words.push(String::new());
            open = true;
        }
        if c != '"'
            && let Some(word) = words.last_mut()
        {
            word.push(c);
        }
    }
    words
}

fn show(frame: &Frame) -> String {
    let text = |bytes: &[u8]| bytes.escape_ascii().to_string();
    let list = |frames: &[Frame]| frames.iter().map(show).collect::<Vec<_>>().join(", ");
    match frame {
        Frame::Simple(line) => format!("+{}", text(line)),
        Frame::Error(line) => format!("-{}", String::from_utf8_lossy(line)),
        Frame::Int(number) => format!(":{number}"),
        Frame::Bulk(bytes) => format!("\"{}\"", text(bytes)),
        Frame::Null => "nil".to_owned(),
        Frame::Array(frames) => format!("[{}]", list(frames)),
        Frame::Set(frames) => format!("~{{{}}}", list(frames)),
        Frame::Push(frames) => format!(">[{}]", list(frames)),
        Frame::Map(pairs) => {
            let pairs: Vec<String> =
                pairs.iter().map(|(key, value)| format!("{}: {}", show(key), show(value))).collect();
            format!("{{{}}}", pairs.join(", "))
        }
        Frame::Double(number) => format!(",{number}"),
        Frame::Bool(yes) => if *yes { "#t" } else { "#f" }.to_owned(),
        Frame::Verbatim { text: bytes, .. } => format!("={}", text(bytes)),
        Frame::BigNumber(digits) => format!("({}", text(digits)),
        Frame::Attribute(_, frame) => show(frame),
    }
}
