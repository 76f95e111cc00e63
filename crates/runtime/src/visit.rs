//! What other threads of the process (an embedding program's, one that watches) ask of a shard, on its way there and while it waits for its answer.

use std::task::Waker;

use corelane_engine::{Called, Calls, Node, SessionId, ShardFigures, Task};
use corelane_resp::Reply;

use crate::mesh::gate::Refused;
use crate::mesh::oneshot::{Answer, Answerer, oneshot};
use crate::mesh::{Entrance, Mail};
use crate::net::Turn;
use crate::shard_loop::{MAIL_BUDGET, ShardMail};

/// Commands served between two looks at the clock; a closure counts as so many.
const COMMANDS_PER_LOOK: usize = 64;

/// One visit.
pub enum Visit {
    /// Commands, and where their replies go.
    Calls(Calls, Answerer<Reply>),
    /// A closure to be run with the shard's keys of a database.
    Task {
        /// The database.
        db: usize,
        /// The closure.
        task: Task,
    },
    /// What the shard has counted, and where to tell it.
    Figures(Answerer<Box<ShardFigures>>),
}

impl std::fmt::Debug for Visit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Calls(..) => "Calls",
            Self::Task { .. } => "Task",
            Self::Figures(_) => "Figures",
        })
    }
}

impl Visit {
    /// Commands, and where to wait for their replies, which are in RESP3.
    #[must_use]
    pub fn calls(calls: Calls) -> (Self, Answer<Reply>) {
        let (answerer, answer) = oneshot();
        (Self::Calls(calls, answerer), answer)
    }

    /// A question for what a shard has counted, and where to wait for the answer.
    #[must_use]
    pub fn figures() -> (Self, Answer<Box<ShardFigures>>) {
        let (answerer, answer) = oneshot();
        (Self::Figures(answerer), answer)
    }
}

/// The way to the shards, for any thread.
#[derive(Clone, Debug)]
pub struct Doorway(Entrance<ShardMail>);

impl Doorway {
    pub(crate) fn new(entrance: Entrance<ShardMail>) -> Self {
        Self(entrance)
    }

    /// How many shards there are.
    #[must_use]
    pub fn shards(&self) -> usize {
        self.0.shards()
    }

    /// Brings a visit to a shard. Without room there, it fails, or leaves `waker` to be woken when there may be some.
    ///
    /// # Errors
    /// The visit itself, when there is no room or the shard has ended.
    pub fn send(&self, shard: usize, visit: Visit, waker: Option<&Waker>) -> Result<(), Refused<Visit>> {
        let mail = Mail::Visit(visit);
        let sent = match waker {
            Some(waker) => self.0.send_or_wait(shard, mail, waker),
            None => self.0.send(shard, mail),
        };
        sent.map_err(|refused| match refused {
            Refused::Full(Mail::Visit(visit)) => Refused::Full(visit),
            Refused::Closed(Mail::Visit(visit)) => Refused::Closed(visit),
            Refused::Full(_) | Refused::Closed(_) => unreachable!("what comes back is what was sent"),
        })
    }

    /// Somebody wants no answer any more, and has said so at its oneshot.
    pub fn leave(&self, shard: usize) {
        self.0.leave(shard);
    }

    /// Whether a shard has failed.
    #[must_use]
    pub fn has_failed(&self, shard: usize) -> bool {
        self.0.mesh().has_failed(shard)
    }

    /// Has all shards stop: they answer what has been sent, and let nothing more in.
    pub fn stop(&self) {
        self.0.mesh().stop();
    }
}

/// The visits that a shard has let in and not answered.
#[derive(Default)]
pub(crate) struct Visits {
    /// The visitor whose commands are being run. Kept here, so that after a panic they are told when the failure is known.
    current: Option<Answerer<Reply>>,
    waiting: Vec<(SessionId, Answerer<Reply>)>,
    answers: Vec<(SessionId, Reply)>,
}

impl Visits {
    /// Serves who has come through the gate; true if somebody had.
    pub(crate) fn serve(&mut self, turn: &mut Turn<'_>) -> bool {
        let (mut any, mut since_look) = (self.see_off(turn), 0);
        while let Some(mail) = turn.mesh.visitor() {
            any = true;
            // Who left before this one came does not take what it brings.
            self.see_off(turn);
            match mail {
                Mail::Visit(Visit::Calls(calls, answerer)) => {
                    since_look += calls.len();
                    self.call(calls, answerer, turn);
                }
                Mail::Visit(Visit::Task { db, task }) => {
                    since_look += COMMANDS_PER_LOOK;
                    turn.node.visit(db, task, turn.now);
                }
                Mail::Visit(Visit::Figures(answerer)) => {
                    since_look += COMMANDS_PER_LOOK;
                    answerer.send(Box::new(turn.node.figures()));
                }
                Mail::Batch(_) | Mail::Connection(..) | Mail::Listen(_) => {
                    unreachable!("only visits come through the gate")
                }
            }
            if since_look >= COMMANDS_PER_LOOK {
                since_look = 0;
                if turn.began.elapsed() > MAIL_BUDGET {
                    break;
                }
            }
        }
        if any {
            turn.mesh.made_room();
        }
        any
    }

    /// Ends what those wait for who have left; true if somebody had.
    #[inline]
    fn see_off(&mut self, turn: &mut Turn<'_>) -> bool {
        let left = turn.mesh.visitor_left();
        if left {
            let Turn { node, now, .. } = turn;
            self.waiting.retain(|(id, answerer)| !(answerer.is_abandoned() && node.see_off(*id, *now)));
        }
        left
    }

    fn call(&mut self, calls: Calls, answerer: Answerer<Reply>, turn: &mut Turn<'_>) {
        self.current = Some(answerer);
        let called = turn.node.call(calls, turn.now);
        match (called, self.current.take()) {
            (Called::Done(reply), Some(answerer)) => answerer.send(reply),
            (Called::Later(id), Some(answerer)) => {
                if !(answerer.is_abandoned() && turn.node.see_off(id, turn.now)) {
                    self.waiting.push((id, answerer));
                }
            }
            (_, None) => unreachable!("it was put there before the call"),
        }
    }

    /// Answers the visits that had to wait and need not any more.
    pub(crate) fn answer(&mut self, node: &mut Node) {
        node.take_answers(&mut self.answers);
        for (id, reply) in self.answers.drain(..) {
            if let Some(at) = self.waiting.iter().position(|(waiting, _)| *waiting == id) {
                self.waiting.swap_remove(at).1.send(reply);
            }
        }
    }

    /// Whether nobody waits for an answer but of commands that are blocked: those may wait for ever.
    pub(crate) fn are_served(&self, node: &mut Node) -> bool {
        self.waiting.iter().all(|(id, _)| node.is_blocked(*id))
    }
}
