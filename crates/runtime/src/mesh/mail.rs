//! What shards are sent: by each other, batches of the engine, connections that another shard should serve, and sockets to listen on; by the
//! embedding program, visits.

use std::os::fd::OwnedFd;

/// One message; `B` is the engine's batch, `L` are listening sockets and `V` is what comes from threads that are no shards. The mesh
/// looks into none of them.
#[derive(Debug)]
pub enum Mail<B, L, V> {
    /// Requests and replies, for `Node::receive`.
    Batch(B),
    /// A connection just accepted by a shard that had too many. The sender has already counted it for the receiver.
    Connection(OwnedFd, PeerKind),
    /// Where the receiver is to listen from now on.
    Listen(L),
    /// Something the embedding program asks for.
    Visit(V),
}

/// The family of a connection's socket, as far as its options and its entry in CLIENT LIST differ.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum PeerKind {
    /// IPv4 or IPv6.
    Tcp,
    /// A Unix stream socket.
    Unix,
}
