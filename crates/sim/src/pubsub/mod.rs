//! Publish/subscribe under one seed: several nodes, batches that are delayed, clients that subscribe, publish and vanish; and what
//! each of them received, in its order.
//!
//! All speak RESP3, so that messages and replies are told apart. [`check`] holds what they saw against the contract of
//! docs/pubsub.md.

mod check;
#[cfg(test)]
mod tests;

pub use check::check;

use crate::links::Links;
use corelane_engine::{Faults, Node, NodeConfig, Peer, Rng, SessionId, Settings, ShardId, Ticks};
use corelane_resp::{Frame, decode, encode_command};
use std::collections::VecDeque;

const CHANNELS: u64 = 4;
/// Patterns that match several channels, one, and none.
const PATTERNS: [&str; 4] = ["news:*", "*:1", "news:[02]", "nothing*"];
/// Turns without anything new after which a run is over.
const QUIET_TURNS: usize = 400;

/// Something one client sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Sent {
    /// To a channel; payloads never repeat.
    Publish {
        /// By SPUBLISH.
        sharded: bool,
        /// Where.
        channel: String,
        /// What.
        payload: String,
    },
    /// (Un)subscribes to one channel or pattern.
    Change(Topic, bool),
}

/// What can be subscribed to.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Topic {
    /// SUBSCRIBE.
    Channel(String),
    /// PSUBSCRIBE.
    Pattern(String),
    /// SSUBSCRIBE.
    Sharded(String),
}

/// What one client saw, with the step in which it did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seen {
    /// When.
    pub step: u64,
    /// What.
    pub what: What,
}

/// What there is to see.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum What {
    /// It sent this.
    Sent(Sent),
    /// The reply to a PUBLISH of its own: its payload and the count.
    Published(String, i64),
    /// A subscription is confirmed (true), or its end.
    Changed(Topic, bool),
    /// A message that came for this topic: the channel and the payload.
    Message(Topic, String, String),
    /// Its connection was closed.
    Vanished,
}

/// What the clients of one run saw, each in its order.
#[derive(Clone, Debug)]
pub struct Log {
    /// The run's seed.
    pub seed: u64,
    /// By client.
    pub clients: Vec<Vec<Seen>>,
}

struct Client {
    shard: usize,
    session: SessionId,
    left: usize,
    /// Payloads of PUBLISHes whose reply is still to come, in order; changes are confirmed by pushes.
    open: VecDeque<String>,
    unconfirmed: usize,
    received: Vec<u8>,
    vanished: bool,
}

struct World {
    nodes: Vec<Node>,
    links: Links,
    clients: Vec<Client>,
    log: Log,
    rng: Rng,
    step: u64,
    payloads: u64,
}

/// Runs one seed until all is quiet.
///
/// # Errors
/// Something was never answered.
pub fn run(seed: u64) -> Result<Log, String> {
    let mut world = World::new(seed);
    let mut quiet = 0;
    while quiet < QUIET_TURNS {
        quiet = if world.step_once() { 0 } else { quiet + 1 };
    }
    for (idx, client) in world.clients.iter().enumerate().filter(|(_, client)| !client.vanished) {
        if client.left + client.open.len() + client.unconfirmed != 0 {
            return Err(format!("seed {seed}: client {idx} was not answered: {:?}", client.open));
        }
    }
    Ok(world.log)
}

impl World {
    fn new(seed: u64) -> Self {
        let mut rng = Rng::new(seed ^ 0x9B5B);
        let shards = 1 + (rng.next() % 5) as u16;
        let config = |me| NodeConfig {
            me: ShardId(me),
            shards,
            seed,
            settings: Settings::default(),
            ticks: Ticks::STOPPED,
            faults: Faults::default(),
        };
        let mut nodes: Vec<Node> = (0..shards).map(|me| Node::new(config(me))).collect();
        let clients = (0..3 + rng.next() % 4).map(|_| {
            let shard = (rng.next() % u64::from(shards)) as usize;
            let session = nodes[shard].open(Peer::default(), 1);
            let mut hello = Vec::new();
            encode_command(&mut hello, &["HELLO", "3"]);
            nodes[shard].feed(session, &hello, 1);
            Client {
                shard,
                session,
                left: 25,
                open: VecDeque::new(),
                unconfirmed: 0,
                received: Vec::new(),
                vanished: false,
            }
        });
        let clients: Vec<Client> = clients.collect();
        let log = Log { seed, clients: vec![Vec::new(); clients.len()] };
        let links = Links::new(usize::from(shards));
        Self { nodes, links, clients, log, rng, step: 1, payloads: 0 }
    }

    fn pick(&mut self, count: usize) -> usize {
        (self.rng.next() % count.max(1) as u64) as usize
    }

    fn now(&self) -> u64 {
        1_000_000 + self.step / 16
    }

    /// One random event; false if it moved nothing.
    fn step_once(&mut self) -> bool {
        self.step += 1;
        match self.pick(8) {
            0 | 1 => self.send_some(),
            2..=5 => self.deliver_one(),
            6 => self.take_outboxes(),
            _ => {
                let (node, now) = (self.pick(self.nodes.len()), self.now());
                self.nodes[node].tick(now);
                self.collect(node);
                self.take_outboxes()
            }
        }
    }

    fn send_some(&mut self) -> bool {
        let idx = self.pick(self.clients.len());
        let client = &self.clients[idx];
        if client.left == 0 || client.vanished || client.open.len() + client.unconfirmed > 3 {
            return false;
        }
        self.clients[idx].left -= 1;
        if self.rng.next().is_multiple_of(60) {
            self.vanish(idx);
            return true;
        }
        let sent = self.choose();
        let mut bytes = Vec::new();
        encode_command(&mut bytes, &words(&sent));
        let client = &mut self.clients[idx];
        match &sent {
            Sent::Publish { payload, .. } => client.open.push_back(payload.clone()),
            Sent::Change(..) => client.unconfirmed += 1,
        }
        let (shard, session, now) = (client.shard, client.session, self.now());
        self.note(idx, What::Sent(sent));
        self.nodes[shard].feed(session, &bytes, now);
        self.collect(shard);
        true
    }

    fn choose(&mut self) -> Sent {
        let channel = format!("news:{}", self.rng.next() % CHANNELS);
        let sharded = self.rng.next().is_multiple_of(4);
        if !self.rng.next().is_multiple_of(3) {
            self.payloads += 1;
            return Sent::Publish { sharded, channel, payload: format!("m{}", self.payloads) };
        }
        let topic = match self.rng.next() % 3 {
            0 => Topic::Pattern(PATTERNS[self.pick(PATTERNS.len())].to_owned()),
            _ if sharded => Topic::Sharded(channel),
            _ => Topic::Channel(channel),
        };
        Sent::Change(topic, !self.rng.next().is_multiple_of(3))
    }

    fn vanish(&mut self, idx: usize) {
        let client = &mut self.clients[idx];
        client.vanished = true;
        self.nodes[client.shard].close(client.session);
        let shard = client.shard;
        self.note(idx, What::Vanished);
        self.collect(shard);
    }

    fn note(&mut self, idx: usize, what: What) {
        self.log.clients[idx].push(Seen { step: self.step, what });
    }

    fn deliver_one(&mut self) -> bool {
        let now = self.now();
        let Some(node) = self.links.deliver_one(&mut self.nodes, &mut self.rng, now) else { return false };
        self.collect(node);
        true
    }

    fn take_outboxes(&mut self) -> bool {
        self.links.take_outboxes(&mut self.nodes, &mut self.rng)
    }

    /// Takes output of a node's sessions to their clients.
    fn collect(&mut self, node: usize) {
        let mut dirty = Vec::new();
        self.nodes[node].take_dirty(&mut dirty);
        for session in dirty {
            let Some(state) = self.nodes[node].session_state(session) else { continue };
            let output = state.output.take();
            let place =
                self.clients.iter().position(|c| c.shard == node && c.session == session && !c.vanished);
            let Some(idx) = place else { continue };
            for piece in output.slices() {
                self.clients[idx].received.extend_from_slice(piece);
            }
            while let Ok(Some((frame, used))) = decode(&self.clients[idx].received) {
                self.clients[idx].received.drain(..used);
                self.understand(idx, &frame);
            }
        }
    }

    fn understand(&mut self, idx: usize, frame: &Frame) {
        let what = match frame {
            // The reply to HELLO.
            Frame::Map(_) => return,
            Frame::Int(count) => {
                let payload = self.clients[idx].open.pop_front().expect("every reply has a PUBLISH");
                What::Published(payload, *count)
            }
            Frame::Push(parts) => {
                let parts: Vec<String> = parts.iter().map(text).collect();
                let what = pushed(&parts);
                self.clients[idx].unconfirmed -= usize::from(matches!(what, What::Changed(..)));
                what
            }
            other => panic!("seed {}: client {idx} received {other:?}", self.log.seed),
        };
        self.note(idx, what);
    }
}

fn words(sent: &Sent) -> Vec<String> {
    let (name, rest): (&str, Vec<&String>) = match sent {
        Sent::Publish { sharded: false, channel, payload } => ("PUBLISH", vec![channel, payload]),
        Sent::Publish { sharded: true, channel, payload } => ("SPUBLISH", vec![channel, payload]),
        Sent::Change(Topic::Channel(name), true) => ("SUBSCRIBE", vec![name]),
        Sent::Change(Topic::Channel(name), false) => ("UNSUBSCRIBE", vec![name]),
        Sent::Change(Topic::Pattern(name), true) => ("PSUBSCRIBE", vec![name]),
        Sent::Change(Topic::Pattern(name), false) => ("PUNSUBSCRIBE", vec![name]),
        Sent::Change(Topic::Sharded(name), true) => ("SSUBSCRIBE", vec![name]),
        Sent::Change(Topic::Sharded(name), false) => ("SUNSUBSCRIBE", vec![name]),
    };
    std::iter::once(name.to_owned()).chain(rest.into_iter().cloned()).collect()
}

fn pushed(parts: &[String]) -> What {
    let parts: Vec<&str> = parts.iter().map(String::as_str).collect();
    let (channel, pattern) =
        (|name: &str| Topic::Channel(name.to_owned()), |name: &str| Topic::Pattern(name.to_owned()));
    let sharded = |name: &str| Topic::Sharded(name.to_owned());
    match parts[..] {
        ["message", name, payload] => What::Message(channel(name), name.to_owned(), payload.to_owned()),
        ["smessage", name, payload] => What::Message(sharded(name), name.to_owned(), payload.to_owned()),
        ["pmessage", by, name, payload] => What::Message(pattern(by), name.to_owned(), payload.to_owned()),
        ["subscribe", name, _] => What::Changed(channel(name), true),
        ["unsubscribe", name, _] => What::Changed(channel(name), false),
        ["psubscribe", name, _] => What::Changed(pattern(name), true),
        ["punsubscribe", name, _] => What::Changed(pattern(name), false),
        ["ssubscribe", name, _] => What::Changed(sharded(name), true),
        ["sunsubscribe", name, _] => What::Changed(sharded(name), false),
        _ => panic!("an unknown push: {parts:?}"),
    }
}

fn text(frame: &Frame) -> String {
    match frame {
        Frame::Bulk(bytes) | Frame::Simple(bytes) => String::from_utf8_lossy(bytes).into_owned(),
        Frame::Int(number) => number.to_string(),
        other => format!("{other:?}"),
    }
}
