//! What shards send each other: batches of the engine, and connections that another shard should serve.

use std::os::fd::OwnedFd;

/// One message of a mailbox; `B` is the engine's batch, which the mesh does not look into.
#[derive(Debug)]
pub enum Mail<B> {
    /// Requests and replies, for `Node::receive`.
    Batch(B),
    /// A connection just accepted by a shard that had too many. The sender has already counted it for the receiver.
    Connection(OwnedFd, PeerKind),
}

/// The family of a connection's socket, as far as its options and its entry in CLIENT LIST differ.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum PeerKind {
    /// IPv4 or IPv6.
    Tcp,
    /// A Unix stream socket.
    Unix,
}
