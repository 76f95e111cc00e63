//! What the parts cost, each alone: `cargo bench --bench micro`.
//!
//! Parser, reply writer, keyspace (beside a plain hashbrown map of the same keys and values) and a hop from one shard to
//! another and back. Everything runs in one thread without sockets; what kernel and wakes add, `benches/compare` shows.

use std::hint::black_box;
use std::time::Duration;

use bytes::Bytes;
use corelane_engine::{
    Faults, KeyHasher, Keyspace, NewValue, Node, NodeConfig, Peer, SessionId, Settings, ShardId, SlotMap,
    Ticks, slot_of,
};
use corelane_resp::{Limits, Parser, Proto, Reply, Span, Step, encode_command};
use corelane_runtime::mesh::spsc;
use corelane_runtime::ticks;
use criterion::measurement::WallTime;
use criterion::{BenchmarkGroup, BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};

/// The engine's clock in these benches.
const NOW_MS: u64 = 1_700_000_000_000;
/// Value of a SET, and what a GET finds.
const VALUE: [u8; 64] = [b'x'; 64];
/// The 12-digit keys of redis-benchmark, in numbers that stay in the caches and in numbers that do not.
const KEY_COUNTS: [usize; 2] = [10_000, 1_000_000];

criterion_group! {
    name = micro;
    config = Criterion::default().warm_up_time(Duration::from_millis(500)).measurement_time(Duration::from_secs(2));
    targets = parser, reply, keyspace, hop
}
criterion_main!(micro);

fn parser(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("parser");
    let get = request(&[b"GET", b"key:000000000001"]);
    let set = request(&[b"SET", b"key:000000000001", &VALUE]);
    let mget =
        request(&[&b"MGET"[..]].into_iter().chain([&b"key:000000000001"[..]; 100]).collect::<Vec<_>>());
    for (name, one, count) in
        [("GET", &get, 1), ("GET ×16", &get, 16), ("SET ×16", &set, 16), ("MGET of 100", &mget, 1)]
    {
        let input = one.repeat(count);
        group.throughput(Throughput::Elements(count as u64));
        group.bench_function(name, |bencher| {
            let (mut spans, mut owned, limits) = (Vec::<Span>::new(), Vec::<Bytes>::new(), Limits::default());
            bencher.iter(|| {
                let mut rest = black_box(&input[..]);
                while !rest.is_empty() {
                    let step = Parser::new().parse(rest, &mut spans, &mut owned, &limits);
                    let Ok(Step::Command { used }) = step else { panic!("a whole command, not {step:?}") };
                    black_box(&spans);
                    rest = &rest[used..];
                }
            });
        });
    }
    group.finish();
}

fn reply(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("reply");
    writer(&mut group, "OK", Reply::ok);
    writer(&mut group, "integer", |reply| reply.int(black_box(123_456)));
    writer(&mut group, "null", Reply::null);
    writer(&mut group, "bulk of 64 bytes", |reply| reply.bulk(black_box(&VALUE)));
    writer(&mut group, "double", |reply| reply.double(black_box(1234.5678)));
    group.finish();
}

/// Sixteen replies into a buffer that is then taken away, as a turn does.
fn writer(group: &mut BenchmarkGroup<'_, WallTime>, name: &str, write: impl Fn(&mut Reply)) {
    group.throughput(Throughput::Elements(16));
    group.bench_function(name, |bencher| {
        let mut reply = Reply::new(Proto::Resp3);
        bencher.iter(|| {
            for _ in 0..16 {
                write(&mut reply);
            }
            black_box(&reply);
            reply.clear();
        });
    });
}

fn keyspace(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("keyspace");
    for count in KEY_COUNTS {
        let keys = keys(count);
        ours(&mut group, &keys);
        hashbrown(&mut group, &keys);
    }
    group.finish();
}

fn ours(group: &mut BenchmarkGroup<'_, WallTime>, keys: &[Vec<u8>]) {
    let hasher = KeyHasher::new(1);
    let mut keyspace = Keyspace::new(1, KeyHasher::new(1));
    for key in keys {
        keyspace.set(0, hasher.key(key), NewValue::Slice(&VALUE), None, NOW_MS);
    }
    let mut order = Order::new(keys);
    group.bench_function(BenchmarkId::new("find", keys.len()), |bencher| {
        bencher.iter(|| {
            let found = keyspace.find(0, hasher.key(order.next()), NOW_MS).expect("every key is there");
            black_box(found.string().map(<[u8]>::len))
        });
    });
    group.bench_function(BenchmarkId::new("overwrite", keys.len()), |bencher| {
        bencher.iter(|| keyspace.set(0, hasher.key(order.next()), NewValue::Slice(&VALUE), None, NOW_MS));
    });
    group.bench_function(BenchmarkId::new("remove and insert", keys.len()), |bencher| {
        bencher.iter(|| {
            let key = hasher.key(order.next());
            keyspace.remove(0, key, NOW_MS);
            keyspace.set(0, key, NewValue::Slice(&VALUE), None, NOW_MS);
        });
    });
}

fn hashbrown(group: &mut BenchmarkGroup<'_, WallTime>, keys: &[Vec<u8>]) {
    let mut map = hashbrown::HashMap::<Vec<u8>, Vec<u8>>::new();
    for key in keys {
        map.insert(key.clone(), VALUE.to_vec());
    }
    let mut order = Order::new(keys);
    group.bench_function(BenchmarkId::new("find, hashbrown", keys.len()), |bencher| {
        bencher.iter(|| black_box(map.get(order.next()).expect("every key is there").len()));
    });
    group.bench_function(BenchmarkId::new("overwrite, hashbrown", keys.len()), |bencher| {
        bencher.iter(|| {
            let value = map.get_mut(order.next()).expect("every key is there");
            value.clear();
            value.extend_from_slice(black_box(&VALUE));
        });
    });
    group.bench_function(BenchmarkId::new("remove and insert, hashbrown", keys.len()), |bencher| {
        bencher.iter(|| {
            let key = order.next();
            map.remove(key);
            map.insert(key.to_vec(), VALUE.to_vec());
        });
    });
}

fn hop(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("hop");
    for count in [1, 16] {
        group.throughput(Throughput::Elements(count as u64));
        for (name, owner) in [("GET here", ShardId(0)), ("GET there", ShardId(1))] {
            for (clock, ticks) in [("", ticks()), (" without a clock", Ticks::STOPPED)] {
                let mut pair = Pair::new(ticks);
                let requests = pair.gets(owner, count);
                group.bench_function(BenchmarkId::new(format!("{name}{clock}"), count), |bencher| {
                    bencher.iter(|| black_box(pair.run(&requests)));
                });
            }
        }
    }
    group.throughput(Throughput::Elements(1));
    group.bench_function("mailbox, in and out", |bencher| {
        let (mut producer, mut consumer) = spsc::channel::<u64>(256);
        bencher.iter(|| {
            producer.push(black_box(1)).expect("room for one");
            black_box(consumer.pop())
        });
    });
    group.finish();
}

/// Two shards whose mailboxes are this thread, and one connection on the first.
struct Pair {
    nodes: [Node; 2],
    session: SessionId,
    dirty: Vec<SessionId>,
}

impl Pair {
    /// `ticks` is what the nodes measure durations with.
    fn new(ticks: Ticks) -> Self {
        let node = |me| {
            Node::new(NodeConfig {
                me: ShardId(me),
                shards: 2,
                seed: 1,
                settings: Settings::default(),
                ticks,
                faults: Faults::default(),
            })
        };
        let mut nodes = [node(0), node(1)];
        let session = nodes[0].open(Peer::default(), NOW_MS);
        Self { nodes, session, dirty: Vec::new() }
    }

    /// The bytes of GETs of `count` keys of one shard, all of them set.
    fn gets(&mut self, owner: ShardId, count: usize) -> Vec<u8> {
        let map = SlotMap::new(2);
        let keys: Vec<Vec<u8>> =
            keys(1000).into_iter().filter(|key| map.owner(slot_of(key)) == owner).take(count).collect();
        let set: Vec<u8> = keys.iter().flat_map(|key| request(&[b"SET", key, &VALUE])).collect();
        assert_eq!(self.run(&set), count * b"+OK\r\n".len());
        let get: Vec<u8> = keys.iter().flat_map(|key| request(&[b"GET", key])).collect();
        assert_eq!(self.run(&get), count * (b"$64\r\n\r\n".len() + VALUE.len()));
        get
    }

    /// Feeds requests to the first shard, carries batches there and back, and takes the replies; their bytes.
    fn run(&mut self, requests: &[u8]) -> usize {
        let [here, there] = &mut self.nodes;
        here.feed(self.session, requests, NOW_MS);
        if let Some(batch) = here.take_outbox(ShardId(1)) {
            there.receive(ShardId(0), batch, NOW_MS);
        }
        if let Some(batch) = there.take_outbox(ShardId(0)) {
            here.receive(ShardId(1), batch, NOW_MS);
        }
        self.dirty.clear();
        here.take_dirty(&mut self.dirty);
        let state = here.session_state(self.session).expect("an open session");
        let bytes = state.output.len();
        state.output.clear();
        here.output_taken(self.session, bytes);
        here.sent(self.session, bytes, NOW_MS);
        bytes
    }
}

/// Keys in an order without pattern, over and over.
struct Order<'a> {
    keys: &'a [Vec<u8>],
    state: u64,
}

impl<'a> Order<'a> {
    fn new(keys: &'a [Vec<u8>]) -> Self {
        Self { keys, state: 0x9E37_79B9_7F4A_7C15 }
    }

    /// Marsaglia's xorshift64.
    fn next(&mut self) -> &'a [u8] {
        self.state ^= self.state << 13;
        self.state ^= self.state >> 7;
        self.state ^= self.state << 17;
        &self.keys[(self.state % self.keys.len() as u64) as usize]
    }
}

fn keys(count: usize) -> Vec<Vec<u8>> {
    (0..count).map(|number| format!("key:{number:012}").into_bytes()).collect()
}

fn request(words: &[&[u8]]) -> Vec<u8> {
    let mut bytes = Vec::new();
    encode_command(&mut bytes, words);
    bytes
}
