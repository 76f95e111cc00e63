//! MONITOR beyond its command: who watches, the line that a command is shown as, and its way to the watchers.
//!
//! Every shard counts the monitors of every other one. A command makes a line on the shard of its client, which goes to each
//! shard with monitors in the batch of the turn, and there to all of them: lines of one connection keep its order.

use crate::args::Args;
use crate::command::{Command, Flags};
use crate::ctx::HostRequest;
use crate::keyspace::Millis;
use crate::modes::Modes;
use crate::node::{Core, Node};
use crate::session::{Client, CloseWhen, SessionId};
use crate::settings::OutputLimit;
use crate::slot::ShardId;

/// Output that a monitor may leave unread where `client-output-buffer-limit` sets no limit, in bytes.
const UNREAD_MAX: usize = 64 << 20;
/// A longer scratch line than this is not kept.
const LINE_KEPT_MAX: usize = 16 << 10;

/// The monitors of all shards, as one shard knows them.
#[derive(Debug, Default)]
pub struct Watchers {
    by_shard: Vec<u32>,
    total: u32,
    /// This shard's monitors that have gone and that the other shards still count.
    left: u32,
}

impl Watchers {
    pub(crate) fn new(shards: u16) -> Self {
        Self { by_shard: vec![0; shards.into()], ..Self::default() }
    }

    /// Whether anybody watches.
    #[inline]
    pub(crate) const fn any(&self) -> bool {
        self.total != 0
    }

    /// A client of `shard` begins to watch.
    pub(crate) fn join(&mut self, shard: ShardId) {
        self.by_shard[usize::from(shard.0)] += 1;
        self.total += 1;
    }

    /// Whether the other shards are to be told of monitors that have gone.
    #[inline]
    pub(crate) const fn has_news(&self) -> bool {
        self.left != 0
    }

    /// One of this shard's clients watches no longer.
    pub(crate) fn leave(&mut self) {
        self.left += 1;
    }

    /// So many clients of `shard` watch no longer.
    fn remove(&mut self, shard: ShardId, count: u32) {
        self.by_shard[usize::from(shard.0)] -= count;
        self.total -= count;
    }
}

impl Core {
    /// Shows a command to all monitors.
    #[cold]
    pub(crate) fn show(&mut self, client: &Client, command: &Command, args: Args<'_>, now: Millis) {
        if !self.shard.watchers.any()
            || command.flags.has(Flags::SKIP_MONITOR)
            || command.flags.has(Flags::ADMIN)
        {
            return;
        }
        let mut line = std::mem::take(&mut self.monitor_line);
        line.clear();
        write_line(&mut line, client, command, args, self.shard.wall.shows_at(now));
        for (shard, _) in self.shard.watchers.by_shard.iter().enumerate().filter(|(_, count)| **count > 0) {
            let lines = if shard == usize::from(self.shard.me.0) {
                &mut self.monitor_lines
            } else {
                &mut self.outboxes[shard].monitor_lines
            };
            lines.extend_from_slice(&line);
        }
        if line.capacity() <= LINE_KEPT_MAX {
            self.monitor_line = line;
        }
    }

    /// Has the other shards forget monitors that have gone.
    pub(crate) fn tell_of_left_monitors(&mut self) {
        let left = std::mem::take(&mut self.shard.watchers.left);
        if left == 0 {
            return;
        }
        let me = self.shard.me;
        self.shard.watchers.remove(me, left);
        for (shard, outbox) in self.outboxes.iter_mut().enumerate() {
            if shard != usize::from(me.0) {
                outbox.monitors_left += left;
            }
        }
    }
}

impl Node {
    #[cfg(test)]
    pub(crate) fn has_watchers(&self) -> bool {
        self.core.shard.watchers.any() || !self.core.monitor_lines.is_empty()
    }

    /// Monitors of another shard have gone.
    pub(crate) fn forget_monitors(&mut self, from: ShardId, count: u32) {
        self.core.shard.watchers.remove(from, count);
    }

    /// Writes lines to all monitors of this shard; drops those that do not keep up.
    pub(crate) fn deliver_lines(&mut self, lines: &[u8]) {
        let mut limit = self.core.shard.settings.output_limits.normal;
        if limit.hard == 0 {
            limit.hard = UNREAD_MAX;
        }
        let monitors = std::mem::take(&mut self.monitors);
        self.monitors = monitors.into_iter().filter(|id| self.deliver_to(*id, lines, limit)).collect();
    }

    /// False if the session is no monitor any longer.
    fn deliver_to(&mut self, id: SessionId, lines: &[u8], limit: OutputLimit) -> bool {
        let Some(session) = self.sessions.get_mut(id) else { return false };
        let modes = session.client.modes;
        if modes.has(Modes::MONITOR) && !modes.mutes() && session.client.close.is_none() {
            session.out.raw(lines);
            if limit.is_over_hard(session.output_len()) {
                session.client.close = Some(CloseWhen::Now);
                self.core.shard.stats.output_limit_disconnections += 1;
                let line = session.client.farewell("client-output-buffer-limit");
                self.core.shard.host_requests.push_back(HostRequest::Log(line));
            }
            self.core.after_change(session, id);
        }
        modes.has(Modes::MONITOR.or(Modes::MONITOR_SOON))
    }
}

/// `+<seconds>.<micros> [<db> <addr>] "<arg>" …`, as a status reply.
fn write_line(line: &mut Vec<u8>, client: &Client, command: &Command, args: Args<'_>, now: Millis) {
    let (unix, addr) =
        if client.peer.unix { ("unix:", client.addr().trim_end_matches(":0")) } else { ("", client.addr()) };
    // The engine knows milliseconds.
    let head = format!("+{}.{:06} [{} {unix}{addr}]", now / 1000, now % 1000 * 1000, client.db);
    line.extend_from_slice(head.as_bytes());
    for idx in 0..args.len() {
        line.push(b' ');
        write_quoted(line, command.shown(args, idx));
    }
    line.extend_from_slice(b"\r\n");
}

/// A word in double quotes, with the escapes that redis-cli reads.
fn write_quoted(line: &mut Vec<u8>, word: &[u8]) {
    line.push(b'"');
    for byte in word {
        match byte {
            b'\\' | b'"' => line.extend_from_slice(&[b'\\', *byte]),
            b'\n' => line.extend_from_slice(b"\\n"),
            b'\r' => line.extend_from_slice(b"\\r"),
            b'\t' => line.extend_from_slice(b"\\t"),
            7 => line.extend_from_slice(b"\\a"),
            8 => line.extend_from_slice(b"\\b"),
            b' '..=b'~' => line.push(*byte),
            _ => {
                const HEX: &[u8; 16] = b"0123456789abcdef";
                let digit = |half: u8| HEX[usize::from(half)];
                line.extend_from_slice(&[b'\\', b'x', digit(byte >> 4), digit(byte & 15)]);
            }
        }
    }
    line.push(b'"');
}
