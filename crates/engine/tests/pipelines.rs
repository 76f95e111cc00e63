//! Pipelines of several clients over several shards, cut anywhere, with slow messages and slow readers: what each client
//! gets is what it would have got from one shard, one command at a time.
//!
//! Each client works in a database of its own, so its replies do not depend on the others; but all use the same key
//! names, and intents know no databases, so commands of one client meet the intents of the others.

use corelane_engine::{
    Batch, CloseWhen, Faults, Node, NodeConfig, Peer, SessionId, Settings, ShardId, Ticks,
};
use std::cell::Cell;
use std::collections::VecDeque;

const LARGE: usize = 70_000;

/// xorshift64*.
struct Rng(u64);

impl Rng {
    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) as usize % bound
    }
}

/// A counter by which every command takes long: after a few of them it is the others' turn.
fn slow_ticks() -> Ticks {
    thread_local! {
        static NOW: Cell<u64> = const { Cell::new(0) };
    }
    Ticks { read: || NOW.replace(NOW.get() + 40_000), ..Ticks::STOPPED }
}

fn node(me: u16, shards: u16, settings: &Settings, ticks: Ticks) -> Node {
    let settings = settings.clone();
    Node::new(NodeConfig { me: ShardId(me), shards, seed: 1, settings, ticks, faults: Faults::default() })
}

fn encode(words: &[&[u8]]) -> Vec<u8> {
    let mut out = format!("*{}\r\n", words.len()).into_bytes();
    for word in words {
        out.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
        out.extend_from_slice(word);
        out.extend_from_slice(b"\r\n");
    }
    out
}

/// One command, as RESP or inline.
fn command(rng: &mut Rng, n: usize) -> Vec<u8> {
    let [a, b, c] = std::array::from_fn(|_| format!("k{}", rng.below(6)));
    let value = match rng.below(12) {
        0 => vec![b'a' + (n % 26) as u8; LARGE],
        1 => vec![b'a' + (n % 26) as u8; 3_000],
        _ => format!("v{n}").into_bytes(),
    };
    let words: Vec<&[u8]> = match rng.below(20) {
        0..4 => vec![b"SET", a.as_bytes(), &value],
        4..7 => vec![b"GET", a.as_bytes()],
        7..9 => vec![b"MGET", a.as_bytes(), b.as_bytes(), c.as_bytes()],
        9 => vec![b"MSET", a.as_bytes(), &value, b.as_bytes(), b"x"],
        10 => vec![b"DEL", a.as_bytes(), b.as_bytes()],
        11 => vec![b"EXISTS", a.as_bytes(), b.as_bytes(), c.as_bytes()],
        12 => vec![b"RENAME", a.as_bytes(), b.as_bytes()],
        13 => vec![b"COPY", a.as_bytes(), b.as_bytes(), b"REPLACE"],
        14 => vec![b"STRLEN", a.as_bytes()],
        15 => vec![b"DBSIZE"],
        16 => vec![b"ECHO", a.as_bytes()],
        17 => vec![b"MSETNX", a.as_bytes(), b"y", b.as_bytes(), &value],
        18 => vec![b"NOSUCH", a.as_bytes()],
        _ => return [&b"FLUSHDB\r\n"[..], b"MGET k0 k1 k2\r\n", b"\r\n"][rng.below(3)].to_vec(),
    };
    encode(&words)
}

/// The last thing a client says, and whether the server closes then.
fn ending(rng: &mut Rng) -> (Vec<u8>, bool) {
    match rng.below(5) {
        0 => (encode(&[b"QUIT"]), true),
        1 => (b"*1\r\n!oops\r\n".to_vec(), true),
        2 => (format!("*2\r\n$4\r\nECHO\r\n${LARGE}\r\n{}xx", "z".repeat(LARGE)).into_bytes(), true),
        3 => (b"*3\r\n$3\r\nSET\r\n$1".to_vec(), false),
        _ => (Vec::new(), false),
    }
}

/// What one shard answers when it is asked one thing at a time.
fn expected(pieces: &[Vec<u8>]) -> Vec<u8> {
    let mut node = node(0, 1, &Settings::default(), Ticks::STOPPED);
    let id = node.open(Peer::default(), 1000);
    let mut output = Vec::new();
    for piece in pieces {
        node.feed(id, piece, 1000);
        take(&mut node, id, &mut output);
    }
    output
}

/// Takes and sends all output of a session; what the runtime is told besides.
fn take(node: &mut Node, id: SessionId, into: &mut Vec<u8>) -> (bool, Option<CloseWhen>) {
    let state = node.session_state(id).unwrap();
    let told = (state.read, state.close);
    let taken = state.output.take();
    into.extend(taken.slices().flatten());
    node.output_taken(id, taken.len());
    node.sent(id, taken.len(), 1000);
    told
}

struct Client {
    home: usize,
    id: SessionId,
    input: VecDeque<u8>,
    expected: Vec<u8>,
    closes: bool,
    output: Vec<u8>,
    read: bool,
    closed: bool,
    /// It went away in the middle.
    gone: bool,
}

struct World {
    rng: Rng,
    nodes: Vec<Node>,
    /// By sender and receiver.
    links: Vec<VecDeque<Box<Batch>>>,
    clients: Vec<Client>,
    dirty: Vec<Vec<SessionId>>,
    now: u64,
}

impl World {
    fn new(seed: u64) -> Self {
        let mut rng = Rng(seed * 2 + 1);
        let shards = 1 + rng.below(5);
        let settings = Settings { output_backlog_max: [300, 1 << 20][rng.below(2)], ..Settings::default() };
        let ticks = [Ticks::STOPPED, slow_ticks()][rng.below(2)];
        let mut nodes: Vec<Node> =
            (0..shards).map(|me| node(me as u16, shards as u16, &settings, ticks)).collect();
        let clients = (0..1 + rng.below(4)).map(|db| {
            let mut pieces = vec![encode(&[b"SELECT", db.to_string().as_bytes()])];
            pieces.extend((0..rng.below(60)).map(|n| command(&mut rng, n)));
            let (last, closes) = ending(&mut rng);
            pieces.push(last);
            let home = rng.below(shards);
            let id = nodes[home].open(Peer::default(), 1000);
            let (input, expected) = (pieces.concat().into(), expected(&pieces));
            let (output, read, closed, gone) = (Vec::new(), true, false, false);
            Client { home, id, input, expected, closes, output, read, closed, gone }
        });
        let clients = clients.collect();
        let links = (0..shards * shards).map(|_| VecDeque::new()).collect();
        let dirty = (0..shards).map(|_| Vec::new()).collect();
        Self { rng, nodes, links, clients, dirty, now: 1000 }
    }

    /// Feeds a client that is being read from, if there is one.
    fn feed(&mut self) -> bool {
        let first = self.rng.below(self.clients.len());
        let (before, after) = self.clients.split_at_mut(first);
        let ready =
            |client: &&mut Client| !client.input.is_empty() && client.read && !client.closed && !client.gone;
        let Some(client) = after.iter_mut().chain(before).find(ready) else { return false };
        let piece_max = [20, 500, 40_000][self.rng.below(3)];
        let len = client.input.len().min(1 + self.rng.below(piece_max));
        let bytes: Vec<u8> = client.input.drain(..len).collect();
        self.nodes[client.home].feed(client.id, &bytes, self.now);
        if self.rng.below(100) == 0 {
            client.gone = true;
            self.nodes[client.home].close(client.id);
        }
        true
    }

    /// Delivers one batch, if there is one.
    fn deliver(&mut self) -> bool {
        let (first, count) = (self.rng.below(self.links.len()), self.links.len());
        let mut links = (0..count).map(|n| (first + n) % count);
        let Some(link) = links.find(|link| !self.links[*link].is_empty()) else { return false };
        let batch = self.links[link].pop_front().unwrap();
        let (from, to) = (link / self.nodes.len(), link % self.nodes.len());
        self.nodes[to].receive(ShardId(from as u16), batch, self.now);
        true
    }

    /// The end of a node's turn. As the runtime does, it looks only at sessions that were listed.
    fn end_turn(&mut self) -> bool {
        let mut moved = false;
        let home = self.rng.below(self.nodes.len());
        let (shards, node) = (self.nodes.len(), &mut self.nodes[home]);
        moved |= node.tick(self.now);
        node.take_dirty(&mut self.dirty[home]);
        for id in std::mem::take(&mut self.dirty[home]) {
            let found = self.clients.iter_mut().find(|client| (client.home, client.id) == (home, id));
            let Some(client) = found.filter(|client| !client.gone) else { continue };
            let had = client.output.len();
            let (read, close) = take(node, id, &mut client.output);
            moved |= client.output.len() > had;
            (client.read, client.closed) = (read, close.is_some());
        }
        for to in 0..shards {
            self.links[home * shards + to].extend(node.take_outbox(ShardId(to as u16)));
        }
        moved
    }

    fn run(&mut self) {
        let mut idle = 0;
        while idle < 400 {
            let did = match self.rng.below(3) {
                0 => self.feed(),
                1 => self.deliver(),
                _ => {
                    self.now += self.rng.below(2) as u64;
                    self.end_turn()
                }
            };
            idle = if did { 0 } else { idle + 1 };
        }
    }
}

impl World {
    /// A command that needs every shard alone gets its turn.
    fn prove_that_nothing_is_held(&mut self, seed: u64) {
        let id = self.nodes[0].open(Peer::default(), self.now);
        let (home, db) = (0, self.clients.len());
        let input = [encode(&[b"SELECT", db.to_string().as_bytes()]), encode(&[b"FLUSHDB"])].concat();
        let expected = b"+OK\r\n+OK\r\n".to_vec();
        let (output, read, closed, gone, closes) = (Vec::new(), true, false, false, false);
        let input = VecDeque::from(input);
        self.clients.push(Client { home, id, input, expected, closes, output, read, closed, gone });
        self.run();
        let last = self.clients.pop().unwrap();
        assert!(last.gone || last.output == last.expected, "seed {seed}: some shard is held for ever");
    }
}

#[test]
fn a_client_gets_what_one_shard_would_have_answered() {
    for seed in 0..120 {
        let mut world = World::new(seed);
        world.run();
        world.prove_that_nothing_is_held(seed);
        for (idx, client) in world.clients.iter_mut().enumerate().filter(|(_, client)| !client.gone) {
            let same = client.output.iter().zip(&client.expected).take_while(|(a, b)| a == b).count();
            let tail = |bytes: &[u8]| {
                String::from_utf8_lossy(&bytes[same..][..bytes[same..].len().min(200)]).into_owned()
            };
            assert!(
                client.output == client.expected,
                "seed {seed}, client {idx}, from byte {same} on: {:?} instead of {:?}",
                tail(&client.output),
                tail(&client.expected)
            );
            assert_eq!(client.closed, client.closes, "seed {seed}, client {idx}");
            assert!(
                client.closed || client.input.is_empty(),
                "seed {seed}, client {idx} is no longer read from"
            );
            let owes = world.nodes[client.home].session_state(client.id).unwrap().owes;
            assert!(client.closed || !owes, "seed {seed}, client {idx} is owed something for ever");
        }
    }
}
