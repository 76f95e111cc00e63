//! The way in for threads that are no shards: a gate per shard, and its bell.

use std::sync::Arc;
use std::task::Waker;

use super::end::Mesh;
use super::gate::{Gate, Refused};

/// Sends to any shard, from any thread.
#[derive(Debug)]
pub struct Entrance<M> {
    gates: Arc<[Arc<Gate<M>>]>,
    mesh: Mesh,
}

impl<M> Clone for Entrance<M> {
    fn clone(&self) -> Self {
        Self { gates: Arc::clone(&self.gates), mesh: self.mesh.clone() }
    }
}

impl<M: Send> Entrance<M> {
    pub(super) fn new(gates: Arc<[Arc<Gate<M>>]>, mesh: Mesh) -> Self {
        Self { gates, mesh }
    }

    /// How many shards there are.
    #[must_use]
    pub fn shards(&self) -> usize {
        self.gates.len()
    }

    /// The handle that stops the shards.
    #[must_use]
    pub fn mesh(&self) -> &Mesh {
        &self.mesh
    }

    /// Hands a message to a shard, and wakes it if it sleeps.
    ///
    /// # Errors
    /// The message itself, when the gate is full or closed.
    pub fn send(&self, shard: usize, message: M) -> Result<(), Refused<M>> {
        self.gates[shard].push(message)?;
        self.mesh.wake(shard);
        Ok(())
    }

    /// Tells a shard that somebody who sent it something wants no answer any more.
    pub fn leave(&self, shard: usize) {
        self.gates[shard].leave();
        self.mesh.wake(shard);
    }

    /// The same as [`Self::send`], and if the gate is full has `waker` woken when there may be room.
    ///
    /// # Errors
    /// As [`Self::send`].
    pub fn send_or_wait(&self, shard: usize, message: M, waker: &Waker) -> Result<(), Refused<M>> {
        let message = match self.send(shard, message) {
            Err(Refused::Full(message)) => message,
            sent => return sent,
        };
        self.gates[shard].wait_for_room(waker.clone());
        self.send(shard, message)
    }
}
