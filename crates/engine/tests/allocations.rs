//! The common path allocates nothing: a local GET that hits, an overwriting SET of equal size, a hop of either, and changes of
//! collections that leave them as large as they are, once buffers have grown.

use corelane_engine::{Batch, Faults, Node, NodeConfig, Peer, SessionId, Settings, ShardId, Ticks, slot_of};
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

/// The system's allocator, with a counter per thread.
struct Counting;

// SAFETY: all calls are handed on to the system's allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.with(|count| count.set(count.get() + 1));
        // SAFETY: the caller keeps the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }
    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        // SAFETY: the caller keeps the contract of `dealloc`.
        unsafe { System.dealloc(ptr, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn count(run: impl FnOnce()) -> u64 {
    let before = ALLOCATIONS.with(Cell::get);
    run();
    ALLOCATIONS.with(Cell::get) - before
}

fn node(me: u16, shards: u16) -> Node {
    let settings = Settings::default();
    Node::new(NodeConfig {
        me: ShardId(me),
        shards,
        seed: 7,
        settings,
        ticks: Ticks::STOPPED,
        faults: Faults::default(),
    })
}

fn command(words: &[&str]) -> Vec<u8> {
    let mut bytes = Vec::new();
    corelane_resp::encode_command(&mut bytes, words);
    bytes
}

/// Empties a session's output and keeps its buffer, as the runtime does. Returns its length.
fn drain(node: &mut Node, dirty: &mut Vec<SessionId>) -> usize {
    node.take_dirty(dirty);
    let mut len = 0;
    for id in dirty.drain(..) {
        if let Some(state) = node.session_state(id) {
            len += state.output.len();
            state.output.clear();
        }
    }
    len
}

#[test]
fn local_reads_and_overwriting_writes_allocate_nothing() {
    let mut node = node(0, 1);
    let id = node.open(Peer::default(), 1);
    let mut dirty = Vec::with_capacity(8);
    let value = "x".repeat(64);
    let (set, get) = (command(&["SET", "key:000000000001", &value]), command(&["GET", "key:000000000001"]));
    let pipeline = [&set[..], &get].concat().repeat(16);
    for bytes in [&set, &get, &pipeline] {
        for _ in 0..3 {
            node.feed(id, bytes, 1);
            drain(&mut node, &mut dirty);
        }
        let mut replied = 0;
        let allocations = count(|| {
            for _ in 0..1000 {
                node.feed(id, bytes, 2);
                replied += drain(&mut node, &mut dirty);
            }
        });
        assert!(replied >= 5000, "{replied} bytes of replies");
        assert_eq!(allocations, 0, "in 1000 times {} bytes of input", bytes.len());
    }
}

#[test]
fn a_hop_allocates_nothing_once_its_batches_have_grown() {
    let mut nodes = [node(0, 2), node(1, 2)];
    let id = nodes[0].open(Peer::default(), 1);
    let key = (0..)
        .map(|n| format!("key:{n:012}"))
        .find(|key| slot_of(key.as_bytes()).0 >= 8192)
        .unwrap_or_default();
    let value = "x".repeat(64);
    let bytes = [command(&["SET", &key, &value]), command(&["GET", &key])].concat().repeat(8);
    let mut dirty = Vec::with_capacity(8);
    let mut round = |nodes: &mut [Node; 2]| {
        nodes[0].feed(id, &bytes, 1);
        let there: Box<Batch> = nodes[0].take_outbox(ShardId(1)).expect("the key lives there");
        nodes[1].receive(ShardId(0), there, 1);
        let back = nodes[1].take_outbox(ShardId(0)).expect("every command is answered");
        nodes[0].receive(ShardId(1), back, 1);
        drain(&mut nodes[0], &mut dirty)
    };
    for _ in 0..50 {
        round(&mut nodes);
    }
    let mut replied = 0;
    let allocations = count(|| {
        for _ in 0..1000 {
            replied += round(&mut nodes);
        }
    });
    assert_eq!(replied, 1000 * 8 * (5 + 71));
    assert_eq!(allocations, 0);
}

/// How often 1000 rounds of `lines` allocate, after a few rounds without counting; `fill` makes what they work on.
fn allocations_of(fill: &[String], lines: &[&str]) -> u64 {
    let mut node = node(0, 1);
    let id = node.open(Peer::default(), 1);
    let mut dirty = Vec::with_capacity(8);
    let encode = |line: &str| command(&line.split(' ').collect::<Vec<_>>());
    for line in fill {
        node.feed(id, &encode(line), 1);
        drain(&mut node, &mut dirty);
    }
    let round: Vec<u8> = lines.iter().flat_map(|line| encode(line)).collect();
    let mut replied = 0;
    for _ in 0..20 {
        node.feed(id, &round, 2);
        drain(&mut node, &mut dirty);
    }
    let allocations = count(|| {
        for _ in 0..1000 {
            node.feed(id, &round, 3);
            replied += drain(&mut node, &mut dirty);
        }
    });
    assert!(replied >= 4000 * lines.len(), "{replied} bytes of replies to {lines:?}");
    allocations
}

#[test]
fn collections_that_stay_as_large_as_they_are_allocate_nothing() {
    let members = |count: usize, make: fn(usize) -> String| (0..count).map(make).collect::<Vec<String>>();
    let small = [
        "HSET h a 1 field value b 2".to_owned(),
        "RPUSH l a b c".to_owned(),
        "SADD i 1 2 3".to_owned(),
        "SADD s a b c".to_owned(),
        "ZADD z 1 a 2 b 3 c".to_owned(),
    ];
    let large = [
        members(1000, |n| format!("HSET h field{n} value{n}")),
        members(3000, |n| format!("RPUSH l element-of-a-list-{n}")),
        members(1000, |n| format!("SADD i {n}")),
        members(1000, |n| format!("SADD s member{n}")),
        members(1000, |n| format!("ZADD z {n} member{n}")),
    ]
    .concat();
    // Lines for small ones, how often these may allocate, and the same for large ones.
    type Case<'a> = (&'a [&'a str], u64, &'a [&'a str], u64);
    let cases: [Case<'_>; 6] = [
        (&["HSET h field VALUE"], 0, &["HSET h field500 VALUE500"], 0),
        // A small list lies in the allocation of its key, which is as large as it.
        (&["LPUSH l x", "LPOP l"], 2000, &["LPUSH l x", "LPOP l"], 0),
        (&["RPUSH l x", "RPOP l"], 2000, &["RPUSH l element-of-a-list-0000", "RPOP l"], 0),
        (&["SADD i 2", "SADD s b"], 0, &["SADD i 500", "SADD s member500"], 0),
        (&["ZADD z 9 b", "ZADD z 8 b"], 0, &["ZADD z 1.5 member500", "ZADD z 700.5 member500"], 0),
        // Now and then the number needs a byte more; the member passes through full nodes of the tree, which split.
        (&["ZINCRBY z 1 b"], 5, &["ZINCRBY z 1 member500"], 20),
    ];
    for (of_small, most, of_large, most_of_large) in cases {
        let allocations = allocations_of(&small, of_small);
        assert!(allocations <= most, "{allocations} of {of_small:?} on small ones");
        let allocations = allocations_of(&large, of_large);
        assert!(allocations <= most_of_large, "{allocations} of {of_large:?} on large ones");
    }
}
