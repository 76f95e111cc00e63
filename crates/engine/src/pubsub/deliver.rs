//! From the queue of messages to other shards and to the connections.

use super::{Kind, Post, PubSubMessage, UNTAKEN_MAX, subscribe};
use crate::ctx::HostRequest;
use crate::glob::glob_match;
use crate::message::Batch;
use crate::modes::Modes;
use crate::node::{Core, Node};
use crate::session::{CloseWhen, Session, SessionId};
use crate::slot::ShardId;
use corelane_resp::{Mark, Proto, Reply};

impl Node {
    /// Moves what commands have published or asked for to where it goes: other shards, or this one's connections.
    pub(crate) fn step_pubsub(&mut self) {
        if self.core.shard.has_events() {
            self.core.shard.publish_events();
        }
        while let Some((to, message)) = self.core.shard.pubsub.queue.pop_front() {
            if to == self.core.shard.me {
                self.on_pubsub(to, message);
            } else if !self.core.has_failed(to) {
                self.core.outboxes[usize::from(to.0)].push_pubsub(message);
            }
        }
    }

    /// What another shard, or this one, has sent.
    pub(crate) fn on_pubsub(&mut self, from: ShardId, message: PubSubMessage) {
        match message {
            PubSubMessage::Change(change) => self.core.shard.pubsub.note(from, change),
            PubSubMessage::Changed(change) => self.on_changed(from, &change),
            PubSubMessage::Publish(post) => {
                let Post { kind, channel, payload } = *post;
                self.core.shard.pubsub.publish(kind, &channel, || payload);
            }
            PubSubMessage::Deliver(post) => self.deliver_post(from, &post),
            PubSubMessage::Overrun => self.close_subscribers(),
        }
    }

    /// Writes a message to all connections of this shard that listen.
    fn deliver_post(&mut self, from: ShardId, post: &Post) {
        let word = if post.kind == Kind::ShardChannel { "smessage" } else { "message" };
        self.deliver_under(from, post.kind, &post.channel, |frame| {
            frame.bulk(word.as_bytes());
            frame.bulk(&post.channel);
            frame.bulk_shared(post.payload.clone());
            3
        });
        if post.kind != Kind::Channel {
            return;
        }
        let patterns = &self.core.shard.pubsub.audiences[Kind::Pattern as usize].names;
        let matching = patterns.keys().filter(|pattern| glob_match(pattern, &post.channel, false));
        for pattern in matching.cloned().collect::<Vec<_>>() {
            self.deliver_under(from, Kind::Pattern, &pattern, |frame| {
                frame.bulk(b"pmessage");
                frame.bulk(&pattern);
                frame.bulk(&post.channel);
                frame.bulk_shared(post.payload.clone());
                4
            });
        }
    }

    /// Writes a message to the connections that listen to a name. `write` writes the parts of its frame and returns how many.
    fn deliver_under(
        &mut self,
        from: ShardId,
        kind: Kind,
        name: &[u8],
        write: impl FnOnce(&mut Reply) -> usize,
    ) {
        let audience = &mut self.core.shard.pubsub.audiences[kind as usize].names;
        let Some(listeners) = audience.get_mut(name) else { return };
        let listeners = std::mem::take(listeners);
        let mut parts = Reply::new(Proto::Resp3);
        let count = write(&mut parts);
        for id in &listeners {
            let Some(session) = self.sessions.get_mut(*id) else { continue };
            self.core.push_to(session, *id, (from, kind, name), (count, &parts));
        }
        if let Some(place) = self.core.shard.pubsub.audiences[kind as usize].names.get_mut(name) {
            *place = listeners;
        }
    }

    /// Closes all connections of this shard that listen to something: they have missed messages.
    fn close_subscribers(&mut self) {
        let listens = |session: &Session| session.client.modes.has(Modes::SUBSCRIBED);
        let ids: Vec<SessionId> =
            self.sessions.iter_ids().filter(|(_, session)| listens(session)).map(|(id, _)| id).collect();
        for id in ids {
            let Some(session) = self.sessions.get_mut(id) else { continue };
            self.core.drop_slow(session, "the messages that may wait between two shards");
            self.core.after_change(session, id);
        }
    }
}

impl Core {
    /// Writes a message to one connection, between its replies.
    fn push_to(
        &mut self,
        session: &mut Session,
        id: SessionId,
        (from, kind, name): (ShardId, Kind, &[u8]),
        (count, parts): (usize, &Reply),
    ) {
        let Some(subscriptions) = &mut session.client.subscriptions else { return };
        if session.client.close.is_some() || !subscriptions.wants(kind, name, from) {
            return;
        }
        let mut held = subscriptions.held_len();
        let out = match (subscriptions.held_mut(), &mut session.client.transaction) {
            (Some(behind_confirmation), _) => behind_confirmation,
            (None, Some(transaction)) if session.in_transaction && session.client.modes.has(Modes::MULTI) => {
                held += transaction.held.len();
                &mut transaction.held
            }
            (None, _) => &mut session.out,
        };
        out.set_proto(session.client.proto);
        out.push(count);
        out.append_range(parts, Mark::default(), parts.mark());
        if held > 0 && self.shard.settings.output_limits.pubsub.is_over_hard(session.output_len() + held) {
            self.drop_slow(session, "client-output-buffer-limit");
        }
        self.after_change(session, id);
    }

    /// Has a connection closed that does not keep up.
    fn drop_slow(&mut self, session: &mut Session, limit: &str) {
        if session.client.close != Some(CloseWhen::Now) {
            self.shard.stats.output_limit_disconnections += 1;
            let line = session.client.farewell(limit);
            self.shard.host_requests.push_back(HostRequest::Log(line));
        }
        session.client.close = Some(CloseWhen::Now);
    }

    /// A connection is gone, with its subscriptions.
    pub(crate) fn forget_subscriptions(&mut self, session: &mut Session) {
        subscribe::leave_all(&mut session.client, &mut self.shard);
    }
}

impl Batch {
    /// Appends a message; when too many wait already, only that they do.
    fn push_pubsub(&mut self, message: PubSubMessage) {
        if let PubSubMessage::Deliver(post) = &message {
            let len = post.channel.len() + post.payload.len() + size_of::<Post>();
            if self.post_bytes + len > UNTAKEN_MAX {
                if !matches!(self.pubsub.last(), Some(PubSubMessage::Overrun)) {
                    self.pubsub.push(PubSubMessage::Overrun);
                }
                return;
            }
            self.post_bytes += len;
        }
        self.pubsub.push(message);
    }
}
