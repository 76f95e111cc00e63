//! Nodes, mailboxes and clients under one seed.

use crate::check::Violation;
use crate::workload::{Operation, Workload};
use corelane_engine::{Batch, Faults, Node, NodeConfig, Peer, Rng, SessionId, Settings, ShardId, Ticks};
use corelane_resp::{Frame, decode, encode_command};
use std::collections::VecDeque;
use std::fmt;

/// Background turns after which a run that still has open commands is stuck.
const QUIET_TURNS_MAX: usize = 1000;

/// What a run is made of.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Everything random comes from it.
    pub seed: u64,
    /// Nodes.
    pub shards: u16,
    /// Connections.
    pub clients: usize,
    /// Commands of each.
    pub commands: usize,
    /// Keys they are on.
    pub keys: usize,
    /// Breaks the protocol on purpose.
    pub faults: Faults,
}

impl Options {
    /// Sizes that are drawn from the seed too.
    pub fn from_seed(seed: u64) -> Self {
        let mut rng = Rng::new(seed ^ 0x5EED);
        let clients = 2 + (rng.next() % 4) as usize;
        Self {
            seed,
            shards: 1 + (rng.next() % 5) as u16,
            clients,
            commands: 60 / clients,
            keys: 2 + (rng.next() % 6) as usize,
            faults: Faults::default(),
        }
    }
}

/// One command of a history.
#[derive(Debug)]
pub struct Record {
    /// Who sent it.
    pub client: usize,
    /// Its number on that connection.
    pub number: usize,
    /// The step in which it was sent.
    pub sent: u64,
    /// The step in which its reply came.
    pub answered: u64,
    /// The command.
    pub operation: Operation,
    /// The reply.
    pub reply: Frame,
}

impl fmt::Display for Record {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let commands = self.operation.commands();
        let words = commands.iter().map(|words| words.join(" ")).collect::<Vec<_>>().join("; ");
        write!(
            f,
            "[{:5}..{:5}] client {}: {words} -> {:?}",
            self.sent, self.answered, self.client, self.reply
        )
    }
}

/// What the clients of one run saw.
#[derive(Debug)]
pub struct History {
    /// The run's seed.
    pub seed: u64,
    /// All commands.
    pub records: Vec<Record>,
}

struct Client {
    shard: usize,
    session: SessionId,
    left: usize,
    number: usize,
    /// Number, step in which it was sent, replies to skip before its own, operation.
    open: VecDeque<(usize, u64, usize, Operation)>,
    received: Vec<u8>,
    /// Commands it sends without waiting.
    pipeline: usize,
}

struct World {
    nodes: Vec<Node>,
    /// Batches on their way, by `from * shards + to`.
    links: Vec<VecDeque<Box<Batch>>>,
    clients: Vec<Client>,
    workload: Workload,
    rng: Rng,
    step: u64,
    records: Vec<Record>,
}

/// Runs one seed to the end.
///
/// # Errors
/// Commands are left without a reply.
pub fn run(options: &Options) -> Result<History, Violation> {
    let mut world = World::new(options);
    let mut quiet = 0;
    while world.open() > 0 || world.clients.iter().any(|client| client.left > 0) {
        if world.step_once() {
            quiet = 0;
        } else {
            quiet += 1;
        }
        if quiet > QUIET_TURNS_MAX {
            return Err(Violation::Stuck { seed: options.seed, open: world.open() });
        }
    }
    Ok(History { seed: options.seed, records: world.records })
}

impl World {
    fn new(options: &Options) -> Self {
        let mut rng = Rng::new(options.seed);
        let mut nodes: Vec<Node> = (0..options.shards)
            .map(|me| {
                Node::new(NodeConfig {
                    me: ShardId(me),
                    shards: options.shards,
                    seed: options.seed,
                    settings: Settings::default(),
                    ticks: Ticks::STOPPED,
                    faults: options.faults,
                })
            })
            .collect();
        let clients = (0..options.clients)
            .map(|_| {
                let shard = (rng.next() % u64::from(options.shards)) as usize;
                Client {
                    shard,
                    session: nodes[shard].open(Peer::default(), 1),
                    left: options.commands,
                    number: 0,
                    open: VecDeque::new(),
                    received: Vec::new(),
                    pipeline: 1 + (rng.next() % 3) as usize,
                }
            })
            .collect();
        let shards = usize::from(options.shards);
        Self {
            nodes,
            links: (0..shards * shards).map(|_| VecDeque::new()).collect(),
            clients,
            workload: Workload::new(options.keys),
            rng,
            step: 1,
            records: Vec::new(),
        }
    }

    fn open(&self) -> usize {
        self.clients.iter().map(|client| client.open.len()).sum()
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
            6 => self.flush_outboxes(),
            _ => {
                let node = self.pick(self.nodes.len());
                let now = self.now();
                self.nodes[node].tick(now);
                self.collect(node);
                self.flush_outboxes()
            }
        }
    }

    /// A random client sends a command, sometimes in two pieces of bytes.
    fn send_some(&mut self) -> bool {
        let idx = self.pick(self.clients.len());
        let now = self.now();
        let client = &mut self.clients[idx];
        if client.left == 0 || client.open.len() >= client.pipeline {
            return false;
        }
        let operation = self.workload.next(&mut self.rng);
        let mut bytes = Vec::new();
        let commands = operation.commands();
        commands.iter().for_each(|words| encode_command(&mut bytes, words));
        let client = &mut self.clients[idx];
        client.open.push_back((client.number, self.step, commands.len() - 1, operation));
        client.number += 1;
        client.left -= 1;
        let (node, session) = (client.shard, client.session);
        let cut = (self.rng.next() % bytes.len() as u64) as usize;
        self.nodes[node].feed(session, &bytes[..cut], now);
        self.nodes[node].feed(session, &bytes[cut..], now);
        self.collect(node);
        true
    }

    /// The oldest batch of a random pair of shards arrives.
    fn deliver_one(&mut self) -> bool {
        let busy: Vec<usize> = (0..self.links.len()).filter(|link| !self.links[*link].is_empty()).collect();
        if busy.is_empty() {
            return false;
        }
        let link = busy[self.pick(busy.len())];
        let Some(batch) = self.links[link].pop_front() else { return false };
        let (from, to) = (link / self.nodes.len(), link % self.nodes.len());
        let now = self.now();
        self.nodes[to].receive(ShardId(from as u16), batch, now);
        self.collect(to);
        true
    }

    /// Some nodes end their turn: what they have for others goes on its way.
    fn flush_outboxes(&mut self) -> bool {
        let shards = self.nodes.len();
        let mut moved = false;
        for link in 0..shards * shards {
            let (from, to) = (link / shards, link % shards);
            if from != to
                && !self.rng.next().is_multiple_of(4)
                && let Some(batch) = self.nodes[from].take_outbox(ShardId(to as u16))
            {
                self.links[link].push_back(batch);
                moved = true;
            }
        }
        moved
    }

    /// Takes output of a node's sessions to their clients.
    fn collect(&mut self, node: usize) {
        let mut dirty = Vec::new();
        self.nodes[node].take_dirty(&mut dirty);
        for session in dirty {
            let Some(state) = self.nodes[node].session_state(session) else { continue };
            let output = state.output.take();
            let Some(client) = self.clients.iter_mut().position(|c| c.shard == node && c.session == session)
            else {
                continue;
            };
            for piece in output.slices() {
                self.clients[client].received.extend_from_slice(piece);
            }
            self.answer(client);
        }
    }

    fn answer(&mut self, idx: usize) {
        let client = &mut self.clients[idx];
        while let Ok(Some((reply, used))) = decode(&client.received) {
            client.received.drain(..used);
            let (.., skipped, _) = client.open.front_mut().expect("every reply has a request");
            if *skipped > 0 {
                *skipped -= 1;
                continue;
            }
            let (number, sent, _, operation) = client.open.pop_front().expect("it has just been there");
            self.records.push(Record { client: idx, number, sent, answered: self.step, operation, reply });
        }
    }
}
