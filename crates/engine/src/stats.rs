//! Counters of one shard. The engine counts commands and hops, the runtime turns, waits and rings; INFO shows them.

use crate::command_stats::ErrorCounts;

/// Buckets of the turn histogram: powers of two of microseconds, each in eight steps.
const TURN_BUCKETS: usize = 8 * 20;

/// Durations in eighths of powers of two, as in an HDR histogram of one significant digit.
#[derive(Clone, Debug)]
pub struct TurnHistogram {
    counts: Box<[u64; TURN_BUCKETS]>,
    total: u64,
    sum_us: u64,
}

impl Default for TurnHistogram {
    fn default() -> Self {
        Self { counts: Box::new([0; TURN_BUCKETS]), total: 0, sum_us: 0 }
    }
}

fn bucket_of(us: u64) -> usize {
    if us < 8 {
        return us as usize;
    }
    let exponent = us.ilog2() as usize;
    let step = (us >> (exponent - 3)) as usize & 7;
    ((exponent - 2) * 8 + step).min(TURN_BUCKETS - 1)
}

fn bucket_end(bucket: usize) -> u64 {
    if bucket < 8 {
        return bucket as u64;
    }
    let (exponent, step) = (bucket / 8 + 2, bucket % 8);
    ((8 + step as u64 + 1) << (exponent - 3)) - 1
}

impl TurnHistogram {
    /// Counts a turn of `us` microseconds.
    #[inline]
    pub fn record(&mut self, us: u64) {
        self.counts[bucket_of(us)] += 1;
        self.total += 1;
        self.sum_us += us;
    }

    /// All turns together, in microseconds.
    pub const fn sum_us(&self) -> u64 {
        self.sum_us
    }

    /// Of each bucket, the longest duration in microseconds, and how many turns it has.
    pub fn buckets(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.counts.iter().enumerate().map(|(bucket, count)| (bucket_end(bucket), *count))
    }

    /// The duration in microseconds that the given share of all turns did not exceed, to within an eighth.
    pub fn quantile_us(&self, share: f64) -> u64 {
        let rank = (self.total as f64 * share).ceil() as u64;
        let mut seen = 0;
        for (bucket, count) in self.counts.iter().enumerate() {
            seen += count;
            if seen >= rank && seen > 0 {
                return bucket_end(bucket);
            }
        }
        0
    }
}

/// Counters of one shard since the start, or since they were reset.
#[derive(Clone, Debug, Default)]
pub struct ShardStats {
    /// Commands run for this shard's clients, wherever they were executed.
    pub commands: u64,
    /// Connections accepted on this shard, those handed over to it included.
    pub connections_received: u64,
    /// Connections refused because of `maxclients`.
    pub connections_rejected: u64,
    /// Clients dropped at their output-buffer limit.
    pub output_limit_disconnections: u64,
    /// Clients dropped at their query-buffer limit.
    pub query_limit_disconnections: u64,
    /// Bytes received from clients.
    pub bytes_in: u64,
    /// Bytes sent to clients.
    pub bytes_out: u64,
    /// Times that bytes were received.
    pub reads: u64,
    /// Times that bytes were sent.
    pub writes: u64,
    /// Reads of keys that were there.
    pub hits: u64,
    /// Reads of keys that were not.
    pub misses: u64,
    /// Error replies.
    pub errors: u64,
    /// Wrong names or passwords of users.
    pub logins_failed: u64,
    /// Error replies by their first word.
    pub errors_by_code: ErrorCounts,
    /// Commands of other shards' clients executed here.
    pub hops_in: u64,
    /// Commands sent to other shards.
    pub hops_out: u64,
    /// Commands over several shards coordinated here.
    pub transactions: u64,
    /// Of these, how often one met a conflict and went the ordered way.
    pub transaction_retries: u64,
    /// Commands that waited behind an intent.
    pub waited: u64,
    /// Turns of the shard loop.
    pub turns: u64,
    /// The longest turn, in microseconds of thread CPU time.
    pub turn_us_max: u64,
    /// All turns.
    pub turn_us: TurnHistogram,
    /// Waits in the socket ring.
    pub ring_waits: u64,
    /// Times the shard parked in its executor.
    pub parks: u64,
    /// Wakes sent to other shards.
    pub wakes_sent: u64,
    /// Entries submitted to the socket ring.
    pub ring_submissions: u64,
    /// Completions reaped from the socket ring.
    pub ring_completions: u64,
    /// Receives that found no buffer and were tried again.
    pub buffer_shortages: u64,
    /// Steps of the removal of keys whose time has come that ended although more were due.
    pub expire_steps_cut: u64,
    /// Messages of other shards taken from the mailboxes.
    pub mail: u64,
    /// Of these, how many waited there in the last turn that found any.
    pub mail_waiting: u64,
    /// The most that ever waited there.
    pub mail_waiting_max: u64,
    /// How often the mailbox of another shard was full at the end of a turn, so that a batch for it had to stay.
    pub mailbox_full: u64,
    /// 1 while the shard may run on other CPUs than its own, which others use.
    pub away: u64,
}

impl ShardStats {
    /// Counts the messages of other shards that a turn has found.
    #[inline]
    pub fn count_mail(&mut self, messages: u64) {
        if messages > 0 {
            self.mail += messages;
            self.mail_waiting = messages;
            self.mail_waiting_max = self.mail_waiting_max.max(messages);
        }
    }

    /// Counts a read of a key.
    #[inline]
    pub(crate) fn count_read(&mut self, was_there: bool) {
        if was_there {
            self.hits += 1;
        } else {
            self.misses += 1;
        }
    }

    /// Counts an error reply, given from its `-` on.
    #[cold]
    pub(crate) fn count_error(&mut self, reply: &[u8]) {
        self.errors += 1;
        self.errors_by_code.record(reply);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_within_an_eighth() {
        let mut histogram = TurnHistogram::default();
        assert_eq!(histogram.quantile_us(0.999), 0);
        for us in 0..10_000 {
            histogram.record(us);
        }
        for share in [0.5, 0.9, 0.999] {
            let (got, exact) = (histogram.quantile_us(share) as f64, 10_000.0 * share);
            assert!(got >= exact - 1.0 && got <= exact * 1.13, "{share}: {got}");
        }
        assert_eq!(histogram.buckets().map(|(_, count)| count).sum::<u64>(), 10_000);
        assert_eq!(histogram.buckets().nth(8), Some((8, 1)));
        for bucket in 1..TURN_BUCKETS - 1 {
            assert_eq!(bucket_of(bucket_end(bucket)), bucket);
            assert_eq!(bucket_of(bucket_end(bucket) + 1), bucket + 1);
        }
    }
}
