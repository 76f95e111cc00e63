//! Many clients wait for each other's keys, in different orders, while others push and read: everybody gets on. Engines in this
//! thread, messages in random order between pairs of shards.

mod common;

use common::nodes;
use corelane_engine::{Batch, Node, Peer, Rng, SessionId, ShardId};
use corelane_resp::{decode, encode_command};
use std::collections::VecDeque;

const SEEDS: u64 = 40;
/// Events after which a run has come to no end; it takes some 15,000.
const STEPS_MAX: usize = 200_000;
/// Events without effect after which a run has come to rest.
const QUIET_MAX: usize = 1500;
const PUSHES: usize = 60;
const WAITING: [&str; 8] = [
    "BLPOP a b c d e 0",
    "BRPOP e d c b a 0",
    "BLMPOP 0 5 c a e b d LEFT",
    "BLPOP a 0",
    "BLPOP e a 0",
    "BLMOVE b a LEFT RIGHT 0",
    "BLMOVE d c LEFT RIGHT 0",
    "BRPOPLPUSH e b 0",
];

struct Client {
    shard: usize,
    id: SessionId,
    received: Vec<u8>,
    is_answered: bool,
    script: VecDeque<String>,
    /// It says the same again and again.
    repeats: bool,
}

struct World {
    nodes: Vec<Node>,
    /// By `from * shards + to`.
    links: Vec<VecDeque<Box<Batch>>>,
    clients: Vec<Client>,
    rng: Rng,
}

/// What one of the clients that push says.
fn pushes(producer: usize) -> VecDeque<String> {
    let push = |number: usize| {
        let key = ["a", "b", "c", "d", "e"][(number * 7 + producer) % 5];
        let push = format!("RPUSH {key} {producer}-{number}");
        if !number.is_multiple_of(5) {
            return vec![push];
        }
        let other = ["b", "d", "a", "e", "c"][number / 5 % 5];
        let too = format!("LPUSH {other} {producer}-{number}-too");
        vec!["MULTI".to_owned(), push, too, "EXEC".to_owned()]
    };
    (0..PUSHES).flat_map(push).collect()
}

impl World {
    fn new(seed: u64) -> Self {
        let shards = 2 + (seed % 4) as u16;
        let nodes = nodes(shards);
        let links = (0..shards * shards).map(|_| VecDeque::new()).collect();
        let mut world = Self { nodes, links, clients: Vec::new(), rng: Rng::new(seed) };
        WAITING.into_iter().for_each(|line| world.connect([line.to_owned()].into(), true));
        (0..3).for_each(|producer| world.connect(pushes(producer), false));
        world.connect((0..40).map(|_| "EXISTS a b c d e".to_owned()).collect(), false);
        world
    }

    fn pick(&mut self, count: usize) -> usize {
        (self.rng.next() % count as u64) as usize
    }

    fn connect(&mut self, script: VecDeque<String>, repeats: bool) {
        let shard = self.pick(self.nodes.len());
        let id = self.nodes[shard].open(Peer::default(), 1);
        self.clients.push(Client { shard, id, received: Vec::new(), is_answered: true, script, repeats });
    }

    /// A random event; false if it moved nothing.
    fn step(&mut self) -> bool {
        let shards = self.nodes.len();
        let moved = match self.pick(8) {
            0 | 1 => self.say(),
            2..=5 => {
                let busy: Vec<usize> =
                    (0..self.links.len()).filter(|link| !self.links[*link].is_empty()).collect();
                let link = if busy.is_empty() { return false } else { busy[self.pick(busy.len())] };
                let batch = self.links[link].pop_front().expect("there is one");
                self.nodes[link % shards].receive(ShardId((link / shards) as u16), batch, 1);
                true
            }
            6 => self.flush(),
            _ => {
                let node = self.pick(shards);
                self.nodes[node].tick(1);
                false
            }
        };
        self.hear() | moved
    }

    fn say(&mut self) -> bool {
        let idx = self.pick(self.clients.len());
        let client = &mut self.clients[idx];
        let Some(line) = client.script.front().filter(|_| client.is_answered) else { return false };
        let mut bytes = Vec::new();
        encode_command(&mut bytes, &line.split(' ').collect::<Vec<_>>());
        client.is_answered = false;
        if !client.repeats {
            client.script.pop_front();
        }
        self.nodes[client.shard].feed(client.id, &bytes, 1);
        true
    }

    fn flush(&mut self) -> bool {
        let (shards, mut moved) = (self.nodes.len(), false);
        for link in 0..self.links.len() {
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

    fn hear(&mut self) -> bool {
        let mut moved = false;
        for client in &mut self.clients {
            let state = self.nodes[client.shard].session_state(client.id).expect("it is connected");
            for piece in state.output.take().slices() {
                client.received.extend_from_slice(piece);
            }
            if let Some((_, len)) = decode(&client.received).expect("replies") {
                client.received.drain(..len);
                client.is_answered = true;
                moved = true;
            }
        }
        moved
    }
}

/// Who was behind somebody else's turn was tried again and again with what that one waited for in its hands.
#[test]
fn everybody_gets_on() {
    for seed in 0..SEEDS {
        let mut world = World::new(seed);
        let (mut quiet, mut steps) = (0, 0);
        while quiet < QUIET_MAX {
            quiet = if world.step() { 0 } else { quiet + 1 };
            steps += 1;
            assert!(steps < STEPS_MAX, "seed {seed} comes to no end");
        }
        let done = |client: &Client| client.repeats || client.is_answered && client.script.is_empty();
        assert!(world.clients.iter().all(done), "seed {seed}: somebody waits for ever");
    }
}
