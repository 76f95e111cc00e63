//! What is remembered of single commands: the logs of COMMANDLOG and SLOWLOG, and the events of LATENCY.
//!
//! Whoever runs a command knows how long it took, and only if that was remarkable does more. The logs of a shard hold the
//! commands of its clients. One that ran for another shard's client goes there as a [`Note`], in the batch that carries
//! the reply and before it: that shard knows who the client is.
//!
//! A question visits all shards, and [`merged`] makes one log of theirs. Each entry has the time at which it was logged;
//! entries later than the earliest moment at which a shard was asked are left out, so that all shards tell of the same
//! moment. The number of an entry follows from how many there ever were before it, on all shards.

use crate::ahead::Ahead;
use crate::args::Args;
use crate::command::{Command, Flags};
use crate::keyspace::Millis;
use crate::latency_monitor::LatencyMonitor;
use crate::message::RequestHead;
use crate::node::{Core, Node};
use crate::session::{Client, SessionId};
use crate::settings::Observation;
use crate::slot::ShardId;
use crate::timing::{Answered, Stalled};
use std::collections::VecDeque;

/// Arguments of a command that are kept; instead of the last one stands how many there were.
const ARGS_MAX: usize = 32;
/// Bytes of an argument that are kept.
const ARG_LEN_MAX: usize = 128;

/// Why a command is logged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogKind {
    /// It took long.
    Slow,
    /// It had many bytes.
    LargeRequest,
    /// Its reply had many bytes.
    LargeReply,
}

/// A command that was remarkable.
#[derive(Clone, Debug)]
pub struct LogEntry {
    kind: LogKind,
    /// When it was logged, by the shards' common counter.
    at: u64,
    /// Microseconds or bytes.
    pub(crate) value: u64,
    /// Unix seconds.
    pub(crate) at_s: u64,
    /// Shortened.
    pub(crate) args: Vec<Box<[u8]>>,
    /// Where the client is, and its name; empty if it is gone.
    pub(crate) addr: String,
    pub(crate) name: Box<[u8]>,
}

/// A remarkable command on its way to the shard of its client, who is still to be named.
#[derive(Debug)]
pub struct Note {
    session: SessionId,
    entry: LogEntry,
}

/// One log of one shard, newest entry first.
#[derive(Debug, Default)]
pub(crate) struct CommandLog {
    entries: VecDeque<LogEntry>,
    /// Entries that there ever were.
    ever: u64,
}

/// What a shard knows of a log when it is asked.
#[derive(Clone, Debug)]
pub struct LogPart {
    /// Newest first.
    entries: Vec<LogEntry>,
    ever: u64,
    /// Entries that the log of all shards may have.
    len_max: usize,
    /// When the shard was asked.
    asked_at: u64,
}

/// What a shard remembers.
#[derive(Debug, Default)]
pub struct Journal {
    logs: [CommandLog; 3],
    pub(crate) latency: LatencyMonitor,
}

impl Journal {
    /// A shard's part of a log, cut to the length that the settings allow it now.
    pub(crate) fn part(&mut self, kind: LogKind, settings: &Observation, asked_at: u64) -> LogPart {
        let log = &mut self.logs[kind as usize];
        let (from, len_max) = limits(kind, settings);
        // One that is switched off stays as it is.
        let on = from >= 0 && len_max > 0;
        if on {
            log.entries.truncate(len_max);
        }
        let len_max = if on { len_max } else { usize::MAX };
        LogPart { entries: log.entries.iter().cloned().collect(), ever: log.ever, len_max, asked_at }
    }

    pub(crate) fn clear(&mut self, kind: LogKind) {
        self.logs[kind as usize].entries.clear();
    }

    fn push(&mut self, entry: LogEntry, settings: &Observation) {
        let (_, len_max) = limits(entry.kind, settings);
        if len_max > 0 {
            let log = &mut self.logs[entry.kind as usize];
            log.entries.push_front(entry);
            log.entries.truncate(len_max);
            log.ever += 1;
        }
    }
}

/// The entries of all shards, newest first, each with its number.
pub(crate) fn merged<'a>(parts: impl Iterator<Item = &'a LogPart> + Clone) -> Vec<(u64, &'a LogEntry)> {
    let asked_at = parts.clone().map(|part| part.asked_at).min().unwrap_or(0);
    let len_max = parts.clone().map(|part| part.len_max).min().unwrap_or(0);
    let all = parts.clone().flat_map(|part| &part.entries);
    let later = all.clone().filter(|entry| entry.at > asked_at).count() as u64;
    let mut entries: Vec<&LogEntry> = all.filter(|entry| entry.at <= asked_at).collect();
    // Stable: what one shard logged at one moment stays in its order.
    entries.sort_by_key(|entry| std::cmp::Reverse(entry.at));
    entries.truncate(len_max);
    let ever = parts.map(|part| part.ever).sum::<u64>() - later;
    entries.into_iter().zip(1..).map(|(entry, before)| (ever - before, entry)).collect()
}

/// From which value on a log takes entries, negative for never, and its length.
fn limits(kind: LogKind, settings: &Observation) -> (i64, usize) {
    match kind {
        LogKind::Slow => (settings.slow_us, settings.slow_len_max),
        LogKind::LargeRequest => (settings.large_request_bytes, settings.large_request_len_max),
        LogKind::LargeReply => (settings.large_reply_bytes, settings.large_reply_len_max),
    }
}

/// The arguments as a log keeps them.
fn shortened(command: &Command, args: Args<'_>) -> Vec<Box<[u8]>> {
    let kept = args.len().min(ARGS_MAX);
    let one = |idx: usize| {
        if idx == ARGS_MAX - 1 && args.len() > ARGS_MAX {
            return format!("... ({} more arguments)", args.len() - ARGS_MAX + 1).into_bytes();
        }
        let arg = command.shown(args, idx);
        match arg.get(..ARG_LEN_MAX) {
            Some(start) if arg.len() > ARG_LEN_MAX => {
                let more = format!("... ({} more bytes)", arg.len() - ARG_LEN_MAX);
                [start, more.as_bytes()].concat()
            }
            _ => arg.to_vec(),
        }
    };
    (0..kept).map(|idx| one(idx).into_boxed_slice()).collect()
}

/// A command that has ended, as far as a log is concerned.
#[derive(Clone, Copy)]
pub(crate) struct Ended<'a> {
    pub(crate) command: &'static Command,
    pub(crate) args: Args<'a>,
    pub(crate) ns: u64,
    pub(crate) answered: Answered,
    pub(crate) now: Millis,
}

fn entry(kind: LogKind, value: u64, command: &Command, args: Args<'_>, now: Millis) -> LogEntry {
    let (addr, name) = (String::new(), Box::default());
    LogEntry { kind, at: 0, value, at_s: now / 1000, args: shortened(command, args), addr, name }
}

impl Core {
    /// A command has ended on the shard of its client.
    #[inline]
    pub(crate) fn ended_here(
        &mut self,
        client: &Client,
        command: &'static Command,
        args: Args<'_>,
        answered: Answered,
        now: Millis,
    ) {
        let ns = self.shard.timing.lap();
        if self.shard.timing.executed(self.running.number, ns, answered) {
            self.note_here(Some(client), Ended { command, args, ns, answered, now });
        }
    }

    /// A command has ended for a client of another shard.
    #[inline]
    pub(crate) fn ended_for(
        &mut self,
        (from, session): (ShardId, SessionId),
        command: &'static Command,
        args: Args<'_>,
        answered: Answered,
        now: Millis,
    ) {
        let ns = self.shard.timing.lap();
        if self.shard.timing.executed(self.running.number, ns, answered) {
            self.note_for(from, session, Ended { command, args, ns, answered, now });
        }
    }

    /// Takes the time of the small reads at the end of what was read ahead.
    #[inline]
    pub(crate) fn end_run(&mut self, client: &Client, ahead: &Ahead, data: &[u8], now: Millis) {
        self.shard.timing.end_run();
        if let Some(stalled) = self.shard.timing.take_stalled() {
            let place = stalled.place;
            let args = Args::new(&data[ahead.starts[place]..], &ahead.spans[place], &ahead.owned);
            self.note_stalled(client, stalled, args, now);
        }
    }

    /// Logs a run of small reads that was held up.
    #[cold]
    pub(crate) fn note_stalled(&mut self, client: &Client, stalled: Stalled, args: Args<'_>, now: Millis) {
        let Some(command) = self.table.command(args) else { return };
        let ended = Ended { command, args, ns: stalled.ns, answered: Answered::default(), now };
        self.note_here(Some(client), ended);
    }

    /// The same for a client of another shard.
    #[cold]
    pub(crate) fn note_stalled_for(
        &mut self,
        (from, head): (ShardId, RequestHead),
        stalled: Stalled,
        args: Args<'_>,
        now: Millis,
    ) {
        let command = self.table.resolve(head.command.index, args);
        let ended = Ended { command, args, ns: stalled.ns, answered: Answered::default(), now };
        self.note_for(from, head.session, ended);
    }

    /// Logs a command of one of this shard's clients; of one that is gone if it is `None`.
    #[cold]
    pub(crate) fn note_here(&mut self, client: Option<&Client>, ended: Ended<'_>) {
        for entry in self.entries(ended).into_iter().flatten() {
            self.log(client, entry);
        }
    }

    #[cold]
    pub(crate) fn note_for(&mut self, from: ShardId, session: SessionId, ended: Ended<'_>) {
        for entry in self.entries(ended).into_iter().flatten() {
            self.outboxes[usize::from(from.0)].notes.push(Note { session, entry });
        }
    }

    /// The command had more bytes than go without notice.
    #[cold]
    pub(crate) fn note_large_request(
        &mut self,
        client: Option<&Client>,
        command: &Command,
        args: Args<'_>,
        bytes: usize,
        now: Millis,
    ) {
        if !command.flags.has(Flags::SKIP_COMMANDLOG) {
            self.log(client, entry(LogKind::LargeRequest, bytes as u64, command, args, now));
        }
    }

    /// The entries that a command is worth; the latency monitor notes it here.
    fn entries(&mut self, ended: Ended<'_>) -> [Option<LogEntry>; 2] {
        let Ended { command, args, ns, answered, now } = ended;
        let timing = &self.shard.timing;
        let logged = !command.flags.has(Flags::SKIP_COMMANDLOG);
        let slow = logged && ns >= timing.slow_ns_min;
        let large = logged && answered.reply_bytes >= timing.reply_bytes_min;
        if ns >= timing.latency_ns_min {
            let event = if command.flags.has(Flags::FAST) { "fast-command" } else { "command" };
            self.note_latency(event, ns, now);
        }
        [
            slow.then(|| entry(LogKind::Slow, ns / 1000, command, args, now)),
            large.then(|| entry(LogKind::LargeReply, answered.reply_bytes as u64, command, args, now)),
        ]
    }

    /// Something took as long as the latency monitor wants to know of.
    pub(crate) fn note_latency(&mut self, event: &'static str, ns: u64, now: Millis) {
        let at_s = self.shard.wall.shows_at(now) / 1000;
        self.shard.journal.latency.add(event, ns / 1_000_000, at_s);
    }

    fn log(&mut self, client: Option<&Client>, mut entry: LogEntry) {
        if let Some(client) = client {
            entry.addr.clone_from(&client.peer.ends().addr);
            entry.name.clone_from(&client.name);
        }
        let shard = &mut self.shard;
        entry.at = shard.timing.moment();
        entry.at_s = shard.wall.shows_at(entry.at_s * 1000) / 1000;
        shard.journal.push(entry, &shard.settings.observation);
    }
}

impl Node {
    /// A note from another shard.
    pub(crate) fn take_note(&mut self, note: Note) {
        let session = self.sessions.get_mut(note.session);
        self.core.log(session.map(|session| &session.client), note.entry);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::CommandTable;
    use corelane_resp::Span;

    fn shortened_words(words: &[&str]) -> Vec<String> {
        let data = words.concat();
        let mut start = 0;
        let spans: Vec<Span> = words
            .iter()
            .map(|word| {
                start += word.len();
                Span::new(start - word.len(), start)
            })
            .collect();
        let args = Args::new(data.as_bytes(), &spans, &[]);
        let command = CommandTable::new().command(args).unwrap_or(&Command::DEFAULT);
        let kept = shortened(command, args);
        kept.iter().map(|arg| String::from_utf8_lossy(arg).into_owned()).collect()
    }

    #[test]
    fn arguments_are_cut_as_valkey_cuts_them() {
        let words = vec!["x"; 32];
        assert_eq!(shortened_words(&words), words);
        let kept = shortened_words(&["x"; 33]);
        assert_eq!((kept.len(), kept[31].as_str()), (32, "... (2 more arguments)"));
        let (fits, long) = ("a".repeat(128), "a".repeat(129));
        assert_eq!(shortened_words(&[&fits, &long]), [fits.clone(), format!("{fits}... (1 more bytes)")]);
    }

    #[test]
    fn secrets_are_not_logged() {
        for (command, kept) in [
            ("AUTH user pass", "AUTH (redacted) (redacted)"),
            ("hello 3 auth user pass SETNAME me", "hello 3 auth (redacted) (redacted) SETNAME me"),
            ("CONFIG SET timeout 5 requirepass x", "CONFIG SET timeout 5 requirepass (redacted)"),
            ("CONFIG SET dir requirepass", "CONFIG SET dir requirepass"),
            ("CONFIG SET requirepass two words", "CONFIG SET requirepass (redacted) (redacted)"),
            ("CONFIG GET requirepass", "CONFIG GET requirepass"),
            ("SET auth pass", "SET auth pass"),
        ] {
            let words: Vec<&str> = command.split(' ').collect();
            assert_eq!(shortened_words(&words).join(" "), kept);
        }
    }

    fn logged(journal: &mut Journal, at: u64, settings: &Observation) {
        let args = Args::new(b"", &[], &[]);
        let entry = LogEntry { at, ..entry(LogKind::Slow, at, &Command::DEFAULT, args, 1000) };
        journal.push(entry, settings);
    }

    fn ids(parts: &[LogPart]) -> Vec<(u64, u64)> {
        merged(parts.iter()).into_iter().map(|(id, entry)| (id, entry.value)).collect()
    }

    #[test]
    fn a_log_keeps_the_newest_and_counts_on() {
        let mut journal = Journal::default();
        let mut settings = Observation { slow_len_max: 3, ..Observation::default() };
        for at in 0..5 {
            logged(&mut journal, at, &settings);
        }
        let mut known = |settings: &Observation| ids(&[journal.part(LogKind::Slow, settings, 9)]);
        assert_eq!(known(&settings), [(4, 4), (3, 3), (2, 2)]);
        settings.slow_len_max = 1;
        assert_eq!(known(&settings), [(4, 4)]);
        settings.slow_len_max = 0;
        assert_eq!(known(&settings), [(4, 4)], "a log that is switched off stays as it is");
        logged(&mut journal, 9, &settings);
        assert_eq!(journal.part(LogKind::Slow, &settings, 9).ever, 5);
        journal.clear(LogKind::Slow);
        settings.slow_len_max = 3;
        logged(&mut journal, 9, &settings);
        assert_eq!(ids(&[journal.part(LogKind::Slow, &settings, 9)]), [(5, 9)]);
    }

    #[test]
    fn the_logs_of_shards_make_one() {
        let settings = Observation { slow_len_max: 4, ..Observation::default() };
        let mut shards = [Journal::default(), Journal::default()];
        for (shard, at) in [(0, 10), (1, 11), (1, 12), (0, 13), (1, 14), (0, 20), (1, 21)] {
            logged(&mut shards[shard], at, &settings);
        }
        let part = |shard: &mut Journal, asked_at| shard.part(LogKind::Slow, &settings, asked_at);
        let [one, other] = &mut shards;
        let later = [part(one, 30), part(other, 31)];
        assert_eq!(ids(&later), [(6, 21), (5, 20), (4, 14), (3, 13)]);
        // The first was asked before it logged 20; the second knows of 21, and keeps it for the next time.
        one.logs[0].entries.pop_front();
        one.logs[0].ever -= 1;
        assert_eq!(ids(&[part(one, 15), part(other, 31)]), [(4, 14), (3, 13), (2, 12), (1, 11)]);
    }
}
