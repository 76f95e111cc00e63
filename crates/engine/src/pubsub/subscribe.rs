//! How a connection's subscriptions begin and end: asked of the owners, confirmed when all of them have answered.
//!
//! From the request to the confirmation no other command of the connection runs. Messages on what it subscribes to may arrive
//! before all owners have answered; they are held back until the confirmation is written.

use super::{Change, ExecChange, Kind, Name, PubSub, PubSubMessage};
use crate::args::Args;
use crate::command::{Command, Flags};
use crate::ctx::Shard;
use crate::execute::shard_of;
use crate::message::{TxId, TxMessage};
use crate::modes::Modes;
use crate::node::{Core, Node};
use crate::session::{Client, Session, SessionId};
use crate::slot::ShardId;
use corelane_resp::{Proto, Reply};
use std::collections::BTreeSet;

/// What a connection listens to.
#[derive(Debug, Default)]
pub(crate) struct Subscriptions {
    /// By kind; what is being asked for included.
    names: [BTreeSet<Name>; 3],
    /// A change that the owners have not all answered yet.
    pending: Option<Box<Pending>>,
}

/// A change on its way.
#[derive(Debug)]
struct Pending {
    kind: Kind,
    join: bool,
    /// The names that change.
    names: Vec<Name>,
    /// Who has answered.
    answered: Vec<ShardId>,
    /// Who has not.
    awaited: usize,
    confirmations: Reply,
    /// Messages that come behind the confirmations.
    held: Reply,
}

impl Subscriptions {
    /// How many names of a kind.
    pub(crate) fn count(&self, kind: Kind) -> usize {
        self.names[kind as usize].len()
    }

    /// What confirmations tell beside a name: channels of SPUBLISH are counted by themselves.
    fn shown_count(&self, kind: Kind) -> usize {
        match kind {
            Kind::ShardChannel => self.count(kind),
            _ => self.count(Kind::Channel) + self.count(Kind::Pattern),
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.names.iter().all(BTreeSet::is_empty)
    }

    /// The change on its way is part of another command.
    fn confirm_nothing(&mut self) {
        self.pending.iter_mut().for_each(|pending| pending.confirmations.clear());
    }

    /// Whether the client waits for a confirmation.
    pub(crate) fn is_changing(&self) -> bool {
        self.pending.is_some()
    }

    /// Bytes of messages that wait for a confirmation.
    pub(super) fn held_len(&self) -> usize {
        self.pending.as_ref().map_or(0, |pending| pending.held.len())
    }

    /// Where messages go while those who subscribe wait for the confirmation.
    pub(super) fn held_mut(&mut self) -> Option<&mut Reply> {
        self.pending.as_mut().filter(|pending| pending.join).map(|pending| &mut pending.held)
    }

    /// Whether a message that a shard has published under a name is for this connection: while shards are being told of a
    /// change, it is so exactly for messages from those that have counted it.
    pub(super) fn wants(&self, kind: Kind, name: &[u8], from: ShardId) -> bool {
        let Some(pending) = &self.pending else { return true };
        if pending.kind != kind || !pending.names.iter().any(|changing| **changing == *name) {
            return true;
        }
        pending.answered.contains(&from) == pending.join
    }
}

/// One confirmation.
fn confirm(reply: &mut Reply, word: &str, name: Option<&[u8]>, count: usize) {
    reply.push(3);
    reply.bulk(word.as_bytes());
    match name {
        Some(name) => reply.bulk(name),
        None => reply.null(),
    }
    reply.int(count as i64);
}

/// Begins to subscribe a client to names, or to end that: all of its names of the kind, if `all`. `word` is the command's, for
/// the confirmations.
pub(crate) fn change<'a>(
    client: &mut Client,
    shard: &mut Shard,
    (kind, join, word): (Kind, bool, &str),
    names: impl Iterator<Item = &'a [u8]>,
    all: bool,
) {
    let subscriptions = client.subscriptions.get_or_insert_default();
    let names: Vec<Name> = if all {
        subscriptions.names[kind as usize].iter().cloned().collect()
    } else {
        names.map(Name::from).collect()
    };
    let mut confirmations = Reply::new(client.proto);
    if names.is_empty() {
        confirm(&mut confirmations, word, None, subscriptions.shown_count(kind));
    }
    let mut changed = Vec::new();
    for name in names {
        let own = &mut subscriptions.names[kind as usize];
        let changes = if join { own.insert(name.clone()) } else { own.remove(&name) };
        confirm(&mut confirmations, word, Some(&name), subscriptions.shown_count(kind));
        if changes {
            changed.push(name);
        }
    }
    let awaited = ask(shard, Some(client.session), kind, join, &changed);
    client.modes.set(Modes::SUBSCRIBED, true);
    subscriptions.pending = Some(Box::new(Pending {
        kind,
        join,
        names: changed,
        answered: Vec::new(),
        awaited,
        confirmations,
        held: Reply::new(Proto::default()),
    }));
}

/// Asks the owners of names to note a change; returns how many are asked.
fn ask(shard: &mut Shard, session: Option<SessionId>, kind: Kind, join: bool, names: &[Name]) -> usize {
    if names.is_empty() {
        return 0;
    }
    let mut names_of: Vec<Vec<Name>> = vec![Vec::new(); usize::from(shard.slots.shards())];
    for name in names {
        if kind == Kind::Pattern {
            names_of.iter_mut().for_each(|names| names.push(name.clone()));
        } else {
            names_of[usize::from(shard_of(shard, name).0)].push(name.clone());
        }
    }
    let mut asked = 0;
    for (owner, names) in names_of.into_iter().enumerate().filter(|(_, names)| !names.is_empty()) {
        let change = Box::new(Change { session, kind, join, names });
        shard.pubsub.queue.push_back((ShardId(owner as u16), PubSubMessage::Change(change)));
        asked += 1;
    }
    asked
}

/// Ends all subscriptions of a connection that is gone or starts anew; nobody waits for that.
pub(crate) fn leave_all(client: &mut Client, shard: &mut Shard) {
    client.modes.set(Modes::SUBSCRIBED, false);
    let Some(mut subscriptions) = client.subscriptions.take() else { return };
    if let Some(pending) = subscriptions.pending.take() {
        for name in &pending.names {
            shard.pubsub.audiences[pending.kind as usize].remove(name, client.session);
        }
    }
    for kind in Kind::ALL {
        let names: Vec<Name> = std::mem::take(&mut subscriptions.names[kind as usize]).into_iter().collect();
        for name in &names {
            shard.pubsub.audiences[kind as usize].remove(name, client.session);
        }
        ask(shard, None, kind, false, &names);
    }
}

impl PubSub {
    /// On the owner: notes a change of another shard's connection, and answers.
    pub(super) fn note(&mut self, from: ShardId, change: Box<Change>) {
        let Change { session, kind, join, names } = &*change;
        let registry = &mut self.registries[*kind as usize];
        for name in names {
            if *join {
                registry.join(name, from);
            } else {
                registry.leave(name, from);
            }
        }
        if session.is_some() {
            self.queue.push_back((from, PubSubMessage::Changed(change)));
        }
    }
}

impl Core {
    /// Whether a command has to wait: it changes subscriptions, and replies are owed; or it is RESET, and there are
    /// subscriptions to be ended first, which this begins.
    #[cold]
    pub(crate) fn holds_for_subscriptions(
        &mut self,
        session: &mut Session,
        command: &'static Command,
        args: Args<'_>,
    ) -> bool {
        if command.flags.has(Flags::PUBSUB) {
            if session.order.is_empty() {
                return false;
            }
        } else {
            let Some(subscriptions) = &session.client.subscriptions else { return false };
            if command.name != "reset" {
                return false;
            }
            let left = Kind::ALL.into_iter().find(|kind| subscriptions.count(*kind) > 0);
            if session.order.is_empty()
                && let Some(kind) = left
            {
                // What ends then is not a command of the transaction's.
                session.client.discard_transaction(&mut self.shard);
                change(&mut session.client, &mut self.shard, (kind, false, ""), std::iter::empty(), true);
                session.client.subscriptions.iter_mut().for_each(|it| it.confirm_nothing());
                session.in_transaction = true;
            }
        }
        session.blocked = Some(Box::new((command, args.to_owned())));
        true
    }

    /// An owner has answered a connection, which may be gone: if it was the last one that its transaction waits for, that goes on.
    fn count_for_exec(&mut self, id: SessionId) {
        let execs = &mut self.shard.pubsub.execs;
        let Some(change) = execs.get_mut(&id) else { return };
        change.awaited -= 1;
        if change.awaited == 0
            && let Some(ExecChange { tx, at, .. }) = execs.remove(&id)
        {
            self.send(tx.coordinator, TxMessage::Confirmed(tx, at));
        }
    }

    /// A shard has failed: no transaction waits for it to confirm a subscription. Its connection is closed.
    pub(crate) fn give_up_changes(&mut self) {
        for (_, ExecChange { tx, at, .. }) in std::mem::take(&mut self.shard.pubsub.execs) {
            self.send(tx.coordinator, TxMessage::Confirmed(tx, at));
        }
    }

    /// A transaction has run a command that changes subscriptions, and goes on when owners have answered.
    pub(crate) fn wait_for_change(&mut self, session: &mut Session, tx: TxId, at: usize) {
        let pending = session.client.subscriptions.as_ref().and_then(|it| it.pending.as_ref());
        let awaited = pending.map_or(0, |pending| pending.awaited);
        if awaited > 0 {
            self.shard.pubsub.execs.insert(session.client.session, ExecChange { tx, at, awaited });
        } else {
            self.after_subscribing(session);
            self.send(tx.coordinator, TxMessage::Confirmed(tx, at));
        }
    }

    /// To be called when a command has run that may have begun a change: lets the session wait for the owners, or answers.
    pub(crate) fn after_subscribing(&mut self, session: &mut Session) {
        let Some(subscriptions) = &mut session.client.subscriptions else { return };
        let Some(pending) = &subscriptions.pending else { return };
        if pending.awaited > 0 {
            session.in_transaction = true;
            return;
        }
        let Some(mut pending) = subscriptions.pending.take() else { return };
        let ends = subscriptions.is_empty();
        match &mut session.client.transaction {
            Some(transaction) if session.client.modes.has(Modes::MULTI) => {
                transaction.confirmed.append(&mut pending.confirmations);
                transaction.held.append(&mut pending.held);
            }
            _ => {
                session.out.append(&mut pending.confirmations);
                session.out.append(&mut pending.held);
                session.in_transaction = false;
            }
        }
        if ends {
            session.client.subscriptions = None;
            session.client.modes.set(Modes::SUBSCRIBED, false);
        }
    }
}

impl Node {
    /// An owner has noted a change of one of our connections.
    pub(super) fn on_changed(&mut self, from: ShardId, change: &Change) {
        let Some(id) = change.session else { return };
        self.core.count_for_exec(id);
        let Some(session) = self.sessions.get_mut(id) else { return };
        let Some(pending) =
            session.client.subscriptions.as_mut().and_then(|subscriptions| subscriptions.pending.as_mut())
        else {
            return;
        };
        pending.awaited -= 1;
        pending.answered.push(from);
        let audience = &mut self.core.shard.pubsub.audiences[change.kind as usize];
        for name in &change.names {
            if change.join {
                audience.add(name, id);
            } else if change.kind != Kind::Pattern || pending.awaited == 0 {
                audience.remove(name, id);
            }
        }
        if pending.awaited == 0 {
            self.core.after_subscribing(session);
            self.core.after_change(session, id);
        }
    }

    /// The connections that wait for a confirmation: a failed shard may owe it.
    pub(crate) fn subscribing(&self) -> Vec<SessionId> {
        let waits =
            |session: &Session| session.client.subscriptions.as_ref().is_some_and(|it| it.is_changing());
        self.sessions.iter_ids().filter(|(_, session)| waits(session)).map(|(id, _)| id).collect()
    }
}
