//! How many messages between shards a transaction costs, and how many of them one after the other: a client waits for the latter.
//!
//! Engines in this thread. In a trip everything that lies ready goes to its shard; a hop, out and back, is two trips.

mod common;

use common::nodes;
use corelane_engine::{Node, Peer, SessionId, ShardId, slot_of};
use corelane_resp::{Frame, decode, encode_command};

const NOW: u64 = 1_700_000_000_000;
const SHARDS: u16 = 4;
/// The client's shard.
const HOME: usize = 0;
/// Far more than anything here takes.
const TRIPS_MAX: usize = 50;

/// What a client's commands cost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Cost {
    /// Trips until its last reply.
    trips: usize,
    /// Batches of messages until all is quiet.
    batches: usize,
}

struct World {
    nodes: Vec<Node>,
    client: SessionId,
}

impl World {
    fn new() -> Self {
        let mut nodes = nodes(SHARDS);
        let client = nodes[HOME].open(Peer::default(), NOW);
        Self { nodes, client }
    }

    /// All batches that lie ready, once each; how many they were.
    fn trip(&mut self) -> usize {
        while self.nodes.iter_mut().fold(false, |more, node| node.tick(NOW) | more) {}
        let ways = (0..SHARDS).flat_map(|from| (0..SHARDS).map(move |to| (from, to)));
        let ready: Vec<_> = ways
            .filter_map(|(from, to)| {
                Some((from, to, self.nodes[usize::from(from)].take_outbox(ShardId(to))?))
            })
            .collect();
        let count = ready.len();
        for (from, to, batch) in ready {
            self.nodes[usize::from(to)].receive(ShardId(from), batch, NOW);
        }
        count
    }

    fn replies(&mut self, pending: &mut Vec<u8>) -> Vec<Frame> {
        let output = self.nodes[HOME].session_state(self.client).expect("it is connected").output.take();
        pending.extend(output.slices().collect::<Vec<_>>().concat());
        let (mut frames, mut at) = (Vec::new(), 0);
        while let Some((frame, len)) = decode(&pending[at..]).expect("replies") {
            frames.push(frame);
            at += len;
        }
        pending.drain(..at);
        frames
    }

    /// Sends lines at once; their last reply, and what they cost.
    fn run(&mut self, lines: &[String]) -> (Frame, Cost) {
        let mut bytes = Vec::new();
        for line in lines {
            encode_command(&mut bytes, &line.split(' ').collect::<Vec<_>>());
        }
        self.nodes[HOME].feed(self.client, &bytes, NOW);
        let (mut pending, mut replies, mut cost) = (Vec::new(), Vec::new(), Cost { trips: 0, batches: 0 });
        for trip in 1..TRIPS_MAX {
            let batches = self.trip();
            let before = replies.len();
            replies.extend(self.replies(&mut pending));
            cost.batches += batches;
            if replies.len() > before && replies.len() == lines.len() {
                cost.trips = if batches == 0 { trip - 1 } else { trip };
            }
            if batches == 0 {
                break;
            }
        }
        assert_eq!(replies.len(), lines.len(), "{lines:?}: {replies:?}");
        (replies.pop().expect("one line or more"), cost)
    }
}

/// Keys of a shard.
fn keys(shard: u16) -> impl Iterator<Item = String> {
    let slots = 16384 / SHARDS;
    let on_shard = move |key: &String| slot_of(key.as_bytes()).0 / slots == shard;
    (0..).map(|number| format!("key:{number}")).filter(on_shard)
}

/// A transaction that writes and reads two keys of each of these shards.
fn transaction(shards: &[u16]) -> Vec<String> {
    let mut lines = vec!["MULTI".to_owned()];
    for &shard in shards {
        let two: Vec<String> = keys(shard).take(2).collect();
        lines.push(format!("MSET {} 1 {} 2", two[0], two[1]));
        lines.push(format!("RPUSH list:{{{}}} x", two[0]));
        lines.push(format!("INCR {}", two[1]));
        lines.push(format!("GET {}", two[0]));
    }
    lines.push("EXEC".to_owned());
    lines
}

fn assert_done(reply: &Frame, commands: usize) {
    let Frame::Array(replies) = reply else { panic!("{reply:?}") };
    assert_eq!(replies.len(), commands);
    assert!(!replies.iter().any(|reply| matches!(reply, Frame::Error(_))), "{replies:?}");
}

#[test]
fn a_transaction_on_one_shard_takes_one_hop() {
    for (shard, expected) in [(0, Cost { trips: 0, batches: 0 }), (1, Cost { trips: 2, batches: 2 })] {
        let (reply, cost) = World::new().run(&transaction(&[shard]));
        assert_done(&reply, 4);
        assert_eq!(cost, expected, "on shard {shard}");
    }
}

#[test]
fn a_transaction_over_several_shards_takes_two_hops() {
    for shards in [&[0, 1][..], &[1, 2], &[1, 2, 3], &[0, 1, 2, 3]] {
        let (reply, cost) = World::new().run(&transaction(shards));
        assert_done(&reply, 4 * shards.len());
        let others = shards.iter().filter(|shard| usize::from(**shard) != HOME).count();
        assert_eq!(cost, Cost { trips: 4, batches: 4 * others }, "on shards {shards:?}");
    }
}

/// What is watched is asked with the same messages.
#[test]
fn watching_costs_a_hop_of_its_own_and_exec_none_more() {
    for (shards, hops) in [(&[1][..], 1), (&[0, 1], 2), (&[1, 2], 2)] {
        let mut world = World::new();
        let watched: Vec<String> = shards.iter().filter_map(|shard| keys(*shard).next()).collect();
        let (reply, cost) = world.run(&[format!("WATCH {}", watched.join(" "))]);
        assert_eq!((reply, cost.trips), (Frame::Simple(b"OK".to_vec().into()), 2), "on shards {shards:?}");
        let (reply, cost) = world.run(&transaction(shards));
        assert_done(&reply, 4 * shards.len());
        assert_eq!(cost.trips, 2 * hops, "on shards {shards:?}");
    }
}
