//! Publish/subscribe: which connections listen to what, and the way of a message to them.
//!
//! The owner of a channel's slot knows which shards have how many subscribers of it; patterns are known so on every shard
//! (`registry`). PUBLISH runs on the owner, which sends one message to each shard with somebody to tell, and there it is written
//! to the connections (`audience`, `deliver`). A subscription changes when the owner has noted it and its answer has come back
//! (`subscribe`): messages and answers take the same queues, so what an owner publishes before the change never reaches the
//! connection, what it publishes after always does, and all subscribers see one order. docs/pubsub.md has the contract.

mod audience;
mod deliver;
mod notify;
mod registry;
mod subscribe;

pub(crate) use subscribe::{Subscriptions, change};

use crate::command::{Command, Flags};
use crate::errors::Error;
use crate::glob::glob_match;
use crate::message::TxId;
use crate::modes::Modes;
use crate::session::{Client, SessionId};
use crate::slot::ShardId;
use audience::Audience;
use bytes::Bytes;
use corelane_resp::Proto;
use hashbrown::HashMap;
use registry::Registry;
use std::collections::VecDeque;

/// Bytes of messages that wait for another shard to take them; from there on the subscribers of that shard count as too slow,
/// and are closed.
const UNTAKEN_MAX: usize = 64 << 20;

/// What can be subscribed to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A channel.
    Channel,
    /// All channels whose names a glob pattern matches.
    Pattern,
    /// A channel of SPUBLISH, which patterns do not match.
    ShardChannel,
}

impl Kind {
    pub(crate) const ALL: [Self; 3] = [Self::Channel, Self::Pattern, Self::ShardChannel];
}

/// The name of a channel, or a pattern.
pub(crate) type Name = Box<[u8]>;

/// Subscriptions that begin or end.
#[derive(Debug)]
pub(crate) struct Change {
    /// Of which connection of the asking shard; `None` if it is gone and nobody waits for the answer.
    session: Option<SessionId>,
    kind: Kind,
    join: bool,
    names: Vec<Name>,
}

/// A published message.
#[derive(Clone, Debug)]
pub(crate) struct Post {
    /// Not a pattern.
    kind: Kind,
    channel: Name,
    payload: Bytes,
}

/// What shards send each other about subscriptions. One queue per pair of shards keeps the order.
#[derive(Debug)]
pub(crate) enum PubSubMessage {
    /// To the owner: note this, and answer.
    Change(Box<Change>),
    /// The answer.
    Changed(Box<Change>),
    /// To the owner of the channel: publish this.
    Publish(Box<Post>),
    /// From the owner of the channel: tell your subscribers.
    Deliver(Box<Post>),
    /// In place of messages that were too many for the batch: your subscribers have missed some.
    Overrun,
}

/// How many channels and patterns have subscribers, for INFO.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct PubSubCounts {
    /// Channels that this shard owns.
    pub channels: usize,
    /// Patterns, of all shards.
    pub patterns: usize,
    /// Channels of SPUBLISH that this shard owns.
    pub shard_channels: usize,
}

/// A command of a transaction that changes subscriptions.
#[derive(Debug)]
struct ExecChange {
    tx: TxId,
    /// Its place in the transaction.
    at: usize,
    /// Owners who have not answered.
    awaited: usize,
}

/// What one shard knows of subscriptions.
#[derive(Debug, Default)]
pub(crate) struct PubSub {
    me: ShardId,
    shards: u16,
    /// By kind: of the channels that this shard owns, and of all patterns.
    registries: [Registry; 3],
    /// By kind: the connections of this shard.
    audiences: [Audience; 3],
    /// What is to be sent, to this shard itself too.
    queue: VecDeque<(ShardId, PubSubMessage)>,
    /// Transactions of connections of this shard that wait for a change of subscriptions.
    execs: HashMap<SessionId, ExecChange>,
    /// Scratch: the shards that a message goes to.
    told: Vec<bool>,
}

impl PubSub {
    pub(crate) fn new(me: ShardId, shards: u16) -> Self {
        Self { me, shards, ..Self::default() }
    }

    /// How much there is to subscribe to.
    pub(crate) fn counts(&self) -> PubSubCounts {
        PubSubCounts {
            channels: self.registries[Kind::Channel as usize].len(),
            patterns: self.registries[Kind::Pattern as usize].len(),
            shard_channels: self.registries[Kind::ShardChannel as usize].len(),
        }
    }

    /// Who has subscribed to channels that this shard owns, or to patterns.
    pub(crate) fn registry(&self, kind: Kind) -> &Registry {
        &self.registries[kind as usize]
    }

    /// Sends a message to all subscribers of a channel that this shard owns, and to those of patterns that match it; returns how
    /// often it will be delivered. `payload` is made only if somebody is to have it.
    pub(crate) fn publish(&mut self, kind: Kind, channel: &[u8], payload: impl FnOnce() -> Bytes) -> i64 {
        let mut count = 0;
        self.told.clear();
        self.told.resize(self.shards.into(), false);
        let mut note = |shares: &[(ShardId, u32)]| {
            for (shard, listeners) in shares {
                self.told[usize::from(shard.0)] = true;
                count += i64::from(*listeners);
            }
        };
        note(self.registries[kind as usize].shares(channel));
        if kind == Kind::Channel {
            for (pattern, shares) in self.registries[Kind::Pattern as usize].iter() {
                if glob_match(pattern, channel, false) {
                    note(shares);
                }
            }
        }
        if count == 0 {
            return 0;
        }
        let post = Post { kind, channel: channel.into(), payload: payload() };
        for (shard, _) in self.told.iter().enumerate().filter(|(_, told)| **told) {
            let message = PubSubMessage::Deliver(Box::new(post.clone()));
            self.queue.push_back((ShardId(shard as u16), message));
        }
        count
    }

    /// Has the owner of a channel publish a message.
    fn publish_by(&mut self, owner: ShardId, channel: Vec<u8>, payload: &[u8]) {
        let payload = || Bytes::copy_from_slice(payload);
        if owner == self.me {
            self.publish(Kind::Channel, &channel, payload);
            return;
        }
        let post = Post { kind: Kind::Channel, channel: channel.into(), payload: payload() };
        self.queue.push_back((owner, PubSubMessage::Publish(Box::new(post))));
    }

    /// Whether there is something to send.
    #[inline]
    pub(crate) fn has_news(&self) -> bool {
        !self.queue.is_empty()
    }

    /// Forgets the subscribers of a shard that has failed.
    pub(crate) fn forget(&mut self, failed: ShardId) {
        self.registries.iter_mut().for_each(|registry| registry.forget(failed));
    }
}

/// What a client is told that listens to channels and may not run a command: in RESP2 nearly none, since messages and replies
/// look alike.
pub(crate) fn refusal(client: &Client, command: &Command) -> Option<Error> {
    let speaks_freely = !client.modes.has(Modes::SUBSCRIBED) || client.proto == Proto::Resp3;
    if speaks_freely || command.flags.has(Flags::WHILE_LISTENING) {
        return None;
    }
    let name = match client.last_command {
        (name, None) => name.to_owned(),
        (container, Some(sub)) => format!("{container}|{sub}"),
    };
    Some(Error::owned(format!(
        "ERR Can't execute '{name}': only (P|S)SUBSCRIBE / (P|S)UNSUBSCRIBE / PING / QUIT / RESET are allowed in this context"
    )))
}
