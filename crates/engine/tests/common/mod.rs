//! Engines in this thread, for tests that carry their messages.

use corelane_engine::{Faults, Node, NodeConfig, Settings, ShardId, Ticks};

/// All shards of one server.
pub(crate) fn nodes(shards: u16) -> Vec<Node> {
    let config = |me| NodeConfig {
        me: ShardId(me),
        shards,
        seed: 7,
        settings: Settings::default(),
        ticks: Ticks::STOPPED,
        faults: Faults::default(),
    };
    (0..shards).map(|me| Node::new(config(me))).collect()
}
