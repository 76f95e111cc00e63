//! The ends of connections. Memory that the kernel may still read or write outlives them.

use std::io;
use std::time::{Duration, Instant};

use corelane_engine::SessionId;
use corelane_resp::Reply;

use super::connection::{Phase, Recv};
use super::send::Vectors;
use super::{Net, Turn};
use crate::mesh::MeshEnd;
use crate::ring::{Completion, Op, Token};
use crate::shard_loop::ShardMail;

/// Output whose connection was closed while it was being sent; kept until the kernel lets go of it.
pub(super) struct Grave {
    token: Token,
    _out: Reply,
    _vectors: Option<Box<Vectors>>,
}

impl Net {
    /// Closes a connection whose output has been sent, if that is what it waits for. One that its peer has ended also
    /// waits for the answers to what came before the end, as if a single thread had run the commands at once.
    #[inline]
    pub(super) fn end_if_sent(&mut self, id: SessionId, turn: &mut Turn<'_>) {
        let Some(connection) = self.connections.by_id(id) else { return };
        if connection.phase != Phase::Ending || connection.sending || connection.more_output {
            return;
        }
        let Some(state) = turn.node.session_state(id) else { return self.close(id, turn) };
        if !state.output.is_empty() {
            self.dirty.push(id);
        } else if state.close.is_some() || !state.owes {
            self.close(id, turn);
        } else {
            turn.node.note_ending(id);
        }
    }

    /// The peer has ended a connection that was not read from. Who waits for an answer has no use for it then; whoever else it is
    /// reads on one day, and comes upon the end.
    pub(super) fn on_hangup(&mut self, completion: Completion, turn: &mut Turn<'_>) {
        let Some(connection) = self.connections.by_token(Op::HangUp, completion.token) else { return };
        let id = connection.id;
        connection.watched = false;
        let waits = turn.node.session_state(id).is_some_and(|state| state.waits);
        if waits && connection.paused && connection.phase == Phase::Open && completion.result > 0 {
            connection.phase = Phase::Ending;
            self.steer(id, turn);
        }
    }

    /// Closes a connection at once. Idempotent.
    pub(super) fn close(&mut self, id: SessionId, turn: &mut Turn<'_>) {
        let Some(connection) = self.connections.by_id(id) else { return };
        if connection.recv == Recv::Into {
            // The kernel writes into the session's memory: the session has to stay until the receive has ended.
            if connection.phase != Phase::Dying {
                connection.phase = Phase::Dying;
                self.ring.cancel_fd(connection.fd);
            }
            return;
        }
        let Some(connection) = self.connections.remove(id) else { return };
        if connection.recv != Recv::Idle || connection.sending || connection.watched {
            self.ring.cancel_fd(connection.fd);
        }
        self.ring.close(connection.fd);
        if connection.sending {
            let token = connection.send_token();
            self.graves.push(Grave { token, _out: connection.out, _vectors: connection.vectors });
        }
        turn.node.close(id);
        turn.mesh.uncount_connection(turn.mesh.me());
    }

    /// The kernel is done with the output of a connection that is gone.
    pub(super) fn bury(&mut self, token: Token) {
        let found = self.graves.iter().position(|grave| grave.token == token);
        debug_assert!(found.is_some(), "a send without a connection");
        if let Some(idx) = found {
            self.graves.swap_remove(idx);
        }
    }
}

/// The end of the server.
impl Net {
    /// Reads no more from any connection, and closes each when it has been sent what it is owed.
    pub(crate) fn end_all(&mut self, turn: &mut Turn<'_>) {
        for idx in 0..self.connections.bound() {
            let Some(connection) = self.connections.at(idx) else { continue };
            if connection.phase == Phase::Open {
                connection.phase = Phase::Ending;
            }
            let id = connection.id;
            self.steer(id, turn);
        }
    }

    /// Closes every connection at once.
    pub(crate) fn close_all(&mut self, turn: &mut Turn<'_>) {
        for idx in 0..self.connections.bound() {
            let Some(connection) = self.connections.at(idx) else { continue };
            let id = connection.id;
            self.close(id, turn);
        }
    }

    /// Closes every connection without the engine, which is of no more use.
    pub(crate) fn hang_up(&mut self, mesh: &MeshEnd<ShardMail>) {
        self.stop_accepting();
        for idx in 0..self.connections.bound() {
            let Some(id) = self.connections.at(idx).map(|connection| connection.id) else { continue };
            let Some(connection) = self.connections.remove(id) else { continue };
            self.ring.cancel_fd(connection.fd);
            self.ring.close(connection.fd);
            if connection.sending {
                let token = connection.send_token();
                self.graves.push(Grave { token, _out: connection.out, _vectors: connection.vectors });
            }
            mesh.uncount_connection(mesh.me());
        }
    }

    /// Cancels what is left and waits until the kernel has let go of all memory; false if that took too long.
    pub(crate) fn release(&mut self, limit: Duration) -> io::Result<bool> {
        let began = Instant::now();
        self.ring.cancel_all();
        while self.ring.in_flight() > 0 {
            if began.elapsed() > limit {
                return Ok(false);
            }
            self.ring.wait_for(Duration::from_millis(1))?;
            self.completions.clear();
            self.ring.reap(&mut self.completions, usize::MAX);
        }
        self.completions.clear();
        self.next = 0;
        Ok(true)
    }
}
