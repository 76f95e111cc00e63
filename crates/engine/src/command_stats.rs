//! What each command has cost on one shard: INFO's commandstats and latencystats, LATENCY HISTOGRAM.

use crate::commands::{CommandNumber, numbered};
use crate::histogram::Histogram;

/// One command's counters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CommandCount {
    /// Times it was executed here.
    pub calls: u64,
    /// How long that took, in nanoseconds.
    pub ns: u64,
    /// Times it was refused before it was executed.
    pub rejected: u64,
    /// Times its reply was an error.
    pub failed: u64,
}

/// What is kept of one command, side by side for the sake of the cache.
#[derive(Clone, Debug, Default)]
struct Kept {
    count: CommandCount,
    /// 24 KiB, from the first call on.
    histogram: Option<Histogram>,
}

/// The counters of all commands, by their numbers.
#[derive(Clone, Debug)]
pub struct CommandStats {
    kept: Vec<Kept>,
}

impl Default for CommandStats {
    fn default() -> Self {
        Self { kept: vec![Kept::default(); numbered().count()] }
    }
}

impl CommandStats {
    /// A command has been executed; `track` is the setting `latency-tracking`.
    #[inline]
    pub(crate) fn executed(&mut self, command: CommandNumber, ns: u64, failed: bool, track: bool) {
        let Kept { count, histogram } = &mut self.kept[usize::from(command.0)];
        count.calls += 1;
        count.ns += ns;
        if failed {
            count.failed += 1;
        }
        if track {
            histogram.get_or_insert_default().record(ns);
        }
    }

    /// A command has been executed several times, which took `ns` in all.
    pub(crate) fn executed_often(&mut self, command: CommandNumber, times: u32, ns: u64, track: bool) {
        let Kept { count, histogram } = &mut self.kept[usize::from(command.0)];
        count.calls += u64::from(times);
        count.ns += ns;
        if track {
            histogram.get_or_insert_default().record_often(ns / u64::from(times), u64::from(times));
        }
    }

    /// A command has been refused before it was executed.
    pub(crate) fn rejected(&mut self, command: CommandNumber) {
        self.kept[usize::from(command.0)].count.rejected += 1;
    }

    /// The counters of a command.
    pub fn count(&self, command: CommandNumber) -> CommandCount {
        self.kept[usize::from(command.0)].count
    }

    /// The durations of a command; `None` if none was counted.
    pub fn histogram(&self, command: CommandNumber) -> Option<&Histogram> {
        self.kept[usize::from(command.0)].histogram.as_ref()
    }

    /// How long all commands together have taken, in nanoseconds.
    pub(crate) fn total_ns(&self) -> u64 {
        self.kept.iter().map(|kept| kept.count.ns).sum()
    }

    /// The numbers of the commands that were called or refused.
    pub(crate) fn seen(&self) -> impl Iterator<Item = CommandNumber> + '_ {
        let seen = self.kept.iter().enumerate().filter(|(_, kept)| kept.count != CommandCount::default());
        seen.map(|(number, _)| CommandNumber(number as u16))
    }

    /// The sum of several shards' counters.
    pub fn sum<'a>(shards: impl IntoIterator<Item = &'a Self>) -> Self {
        let mut sum = Self::default();
        for shard in shards {
            for (sum, more) in sum.kept.iter_mut().zip(&shard.kept) {
                sum.count.calls += more.count.calls;
                sum.count.ns += more.count.ns;
                sum.count.rejected += more.count.rejected;
                sum.count.failed += more.count.failed;
                if let Some(more) = &more.histogram {
                    sum.histogram.get_or_insert_default().add(more);
                }
            }
        }
        sum
    }
}

/// How often each kind of error was answered, by the first word of its text.
#[derive(Clone, Debug, Default)]
pub struct ErrorCounts {
    /// Sorted by word.
    by_code: Vec<(Box<[u8]>, u64)>,
}

/// Different words that are kept; further ones are counted together, under this name.
const CODES_MAX: usize = 128;
const OVERFLOW: &[u8] = b"ERRORSTATS_OVERFLOW";
/// A first word that is longer is none.
const CODE_LEN_MAX: usize = 31;

impl ErrorCounts {
    /// Counts an error reply, given from its `-` on.
    pub(crate) fn record(&mut self, reply: &[u8]) {
        let text = reply.strip_prefix(b"-").unwrap_or(reply);
        let code_len = text.iter().take(CODE_LEN_MAX).position(|byte| *byte == b' ');
        self.add(code_len.map_or(b"ERR", |len| &text[..len]), 1);
    }

    fn add(&mut self, code: &[u8], count: u64) {
        match self.by_code.binary_search_by(|(known, _)| (**known).cmp(code)) {
            Ok(idx) => self.by_code[idx].1 += count,
            Err(_) if self.by_code.len() >= CODES_MAX && code != OVERFLOW => self.add(OVERFLOW, count),
            Err(idx) => self.by_code.insert(idx, (code.into(), count)),
        }
    }

    /// The sum of several shards' counts, sorted by word.
    pub fn sum<'a>(shards: impl IntoIterator<Item = &'a Self>) -> Vec<(Box<[u8]>, u64)> {
        let mut sum = Self::default();
        for (code, count) in shards.into_iter().flat_map(|shard| &shard.by_code) {
            sum.add(code, *count);
        }
        sum.by_code
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_are_counted_by_their_first_word() {
        let (mut one, mut other) = (ErrorCounts::default(), ErrorCounts::default());
        for reply in
            ["-ERR syntax error\r\n", "-WRONGTYPE Operation\r\n", "-ERR no such key\r\n", "-nospace\r\n"]
        {
            one.record(reply.as_bytes());
        }
        other.record(b"-WRONGTYPE again\r\n");
        let sum = ErrorCounts::sum([&one, &other]);
        assert_eq!(sum, [(b"ERR"[..].into(), 3), (b"WRONGTYPE"[..].into(), 2)]);
    }

    #[test]
    fn words_beyond_the_limit_are_counted_together() {
        let mut counts = ErrorCounts::default();
        for number in 0..CODES_MAX + 50 {
            counts.record(format!("-CODE{number:04} text\r\n").as_bytes());
        }
        let sum = ErrorCounts::sum([&counts]);
        assert_eq!(sum.len(), CODES_MAX + 1);
        assert_eq!(sum.last(), Some(&(OVERFLOW.into(), 50)));
    }

    #[test]
    fn counters_of_shards_add_up() {
        let (mut one, mut other) = (CommandStats::default(), CommandStats::default());
        let command = CommandNumber(3);
        one.executed(command, 1000, false, true);
        one.rejected(command);
        other.executed(command, 500, true, true);
        other.executed(CommandNumber(4), 1, false, false);
        let sum = CommandStats::sum([&one, &other]);
        assert_eq!(sum.count(command), CommandCount { calls: 2, ns: 1500, rejected: 1, failed: 1 });
        assert_eq!(sum.histogram(command).map(Histogram::total), Some(2));
        assert!(sum.histogram(CommandNumber(4)).is_none());
    }
}
