//! Batches on their way from shard to shard: delayed, in order between the same two shards, in any order otherwise.

use corelane_engine::{Batch, Node, Rng, ShardId};
use std::collections::VecDeque;

/// By `from * shards + to`.
pub(crate) struct Links(Vec<VecDeque<Box<Batch>>>);

impl Links {
    pub(crate) fn new(shards: usize) -> Self {
        Self((0..shards * shards).map(|_| VecDeque::new()).collect())
    }

    /// The oldest batch of a random pair of shards arrives. Returns at which, `None` if nothing is on its way.
    pub(crate) fn deliver_one(&mut self, nodes: &mut [Node], rng: &mut Rng, now: u64) -> Option<usize> {
        let busy: Vec<usize> = (0..self.0.len()).filter(|link| !self.0[*link].is_empty()).collect();
        if busy.is_empty() {
            return None;
        }
        let link = busy[(rng.next() % busy.len() as u64) as usize];
        let (from, to) = (link / nodes.len(), link % nodes.len());
        nodes[to].receive(ShardId(from as u16), self.0[link].pop_front()?, now);
        Some(to)
    }

    /// Some nodes end their turn: what they have for others goes on its way. False if that is nothing.
    pub(crate) fn take_outboxes(&mut self, nodes: &mut [Node], rng: &mut Rng) -> bool {
        let shards = nodes.len();
        let mut moved = false;
        for link in 0..shards * shards {
            let (from, to) = (link / shards, link % shards);
            if from != to
                && !rng.next().is_multiple_of(4)
                && let Some(batch) = nodes[from].take_outbox(ShardId(to as u16))
            {
                self.0[link].push_back(batch);
                moved = true;
            }
        }
        moved
    }
}
