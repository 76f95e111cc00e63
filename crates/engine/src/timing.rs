//! The stopwatch of one shard: how long its commands take, and from where on that is worth more than a count.
//!
//! The engine has no clock; it is given a counter that goes up steadily. It is read once per command: where one command
//! ends, the next one begins. What lies between two commands of a turn (their bytes, their parsing) therefore counts
//! with the second; waiting never does, because the first command after a turn reads the counter for itself.
//!
//! Reading it costs 8 ns, a GET in a pipeline about 100 beside its share of the system calls. So the same small read
//! several times in a row in one piece of input is a *run*, whose commands share one reading and count with equal parts
//! of its time. What ends before or after a run has its own reading, so a command that can be slow is never taken for another; and
//! where limits are so low that a run could hide something ([`SHARING_NS_MIN`]), there are none.

use crate::command::{Command, Flags, Plan};
use crate::command_stats::CommandStats;
use crate::commands::CommandNumber;
use crate::settings::Observation;
use corelane_resp::{Mark, Reply};

/// From limits of this length on, small reads may share readings.
const SHARING_NS_MIN: u64 = 1_000_000;
/// For so long a client's commands may be run before it is the others' turn. Commands may be slow, and so is each that
/// touches fresh memory in a virtual machine whose host has to find it first: 10 µs a page, now and then a thousand.
const PIECE_NS: u64 = 200_000;
/// A reply of so many bytes is not small.
const SHARING_REPLY_BYTES: usize = 4096;

/// A counter that goes up steadily, the same for all shards.
#[derive(Clone, Copy, Debug)]
pub struct Ticks {
    /// Reads it.
    pub read: fn() -> u64,
    /// Nanoseconds per tick, in units of 2^-32.
    pub ns_q32: u64,
}

impl Ticks {
    /// A counter that stands still: nothing takes any time.
    pub const STOPPED: Self = Self { read: || 0, ns_q32: 1 << 32 };

    fn of_ns(self, ns: u64) -> u64 {
        u64::try_from((u128::from(ns) << 32) / u128::from(self.ns_q32)).unwrap_or(u64::MAX >> 1)
    }

    #[inline]
    fn ns(self, ticks: u64) -> u64 {
        ((u128::from(ticks) * u128::from(self.ns_q32)) >> 32) as u64
    }
}

/// What a command answered.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Answered {
    /// Its reply is an error.
    pub(crate) failed: bool,
    pub(crate) reply_bytes: usize,
}

impl Answered {
    /// What was written since `mark`, when the reply had `bytes_before`.
    #[inline]
    pub(crate) fn since(reply: &Reply, mark: Mark, bytes_before: usize) -> Self {
        let failed = reply.buf.get(mark.offset()) == Some(&b'-');
        Self { failed, reply_bytes: reply.len() - bytes_before }
    }
}

/// Small reads of one kind in a row, whose time has not been taken yet.
#[derive(Clone, Copy, Default)]
struct Run {
    number: CommandNumber,
    count: u32,
    /// Where the last of them stands in the piece of input.
    place: usize,
}

/// A run that took as long as is to be noted. Which of its commands was held up is not known, and none is likely to be at
/// fault: the last one stands for it.
#[derive(Clone, Copy)]
pub(crate) struct Stalled {
    pub(crate) place: usize,
    pub(crate) ns: u64,
}

/// Durations of one shard's commands, and the limits from which on they are logged.
pub struct Timing {
    ticks: Ticks,
    /// [`PIECE_NS`].
    piece_ticks: i64,
    last: u64,
    /// `last` is where the command to come begins.
    running: bool,
    track: bool,
    run: Run,
    /// The longest of the runs that are to be noted.
    stalled: Option<Stalled>,
    /// The place of the command being run in its piece of input.
    pub(crate) place: usize,
    /// Smaller replies may belong to a run; 0 if there are none.
    shared_reply_bytes: usize,
    /// The least of the two that follow.
    noted_ns_min: u64,
    pub(crate) slow_ns_min: u64,
    pub(crate) latency_ns_min: u64,
    pub(crate) request_bytes_min: usize,
    pub(crate) reply_bytes_min: usize,
    pub(crate) commands: CommandStats,
}

impl Timing {
    pub(crate) fn new(ticks: Ticks, settings: &Observation) -> Self {
        let mut timing = Self {
            ticks,
            piece_ticks: ticks.of_ns(PIECE_NS) as i64,
            last: 0,
            running: false,
            track: false,
            run: Run::default(),
            stalled: None,
            place: 0,
            shared_reply_bytes: 0,
            noted_ns_min: u64::MAX,
            slow_ns_min: u64::MAX,
            latency_ns_min: u64::MAX,
            request_bytes_min: usize::MAX,
            reply_bytes_min: usize::MAX,
            commands: CommandStats::default(),
        };
        timing.apply(settings);
        timing
    }

    /// Takes the limits from the settings; to be called when those have changed.
    pub(crate) fn apply(&mut self, settings: &Observation) {
        let limit = |from: i64, len_max: usize| (len_max > 0).then(|| u64::try_from(from).ok()).flatten();
        self.track = settings.latency_tracking;
        self.slow_ns_min =
            limit(settings.slow_us, settings.slow_len_max).map_or(u64::MAX, |us| us.saturating_mul(1000));
        self.latency_ns_min = match settings.latency_threshold_ms {
            0 => u64::MAX,
            ms => ms.saturating_mul(1_000_000),
        };
        self.noted_ns_min = self.slow_ns_min.min(self.latency_ns_min);
        let bytes = |from, len_max| limit(from, len_max).map_or(usize::MAX, |bytes| bytes as usize);
        self.request_bytes_min = bytes(settings.large_request_bytes, settings.large_request_len_max);
        self.reply_bytes_min = bytes(settings.large_reply_bytes, settings.large_reply_len_max);
        self.shared_reply_bytes = match self.noted_ns_min {
            SHARING_NS_MIN.. => SHARING_REPLY_BYTES.min(self.reply_bytes_min),
            _ => 0,
        };
    }

    /// What follows may be a command.
    #[inline]
    pub(crate) fn begin(&mut self) {
        if !self.running {
            self.running = true;
            self.last = (self.ticks.read)();
        }
    }

    /// What follows is no command, and may be a wait.
    #[inline]
    pub(crate) fn stop(&mut self) {
        self.running = false;
    }

    /// A command that may belong to a run: one that reads one key in constant time.
    #[inline]
    fn may_share(command: &Command) -> bool {
        command.flags.has(Flags::READONLY | Flags::FAST) && matches!(command.plan, Plan::OneShard(_))
    }

    /// Whether a command that has ended belongs to a run, and is counted with that.
    #[inline]
    pub(crate) fn shares(&mut self, command: &Command, number: CommandNumber, answered: Answered) -> bool {
        if self.shared_reply_bytes == 0 || !Self::may_share(command) {
            return false;
        }
        let shares = answered.reply_bytes < self.shared_reply_bytes && !answered.failed;
        if self.run.count > 0 && (!shares || self.run.number != number) {
            self.take_run(1);
        }
        if shares {
            self.run = Run { number, count: self.run.count + 1, place: self.place };
        }
        shares
    }

    /// What is run next may not share a reading with what was run before.
    #[inline]
    pub(crate) fn separate(&mut self, command: &Command) {
        if self.run.count > 0 && !Self::may_share(command) {
            self.take_run(0);
        }
    }

    /// Takes the time of the run, if there is one.
    #[inline]
    pub(crate) fn end_run(&mut self) {
        if self.run.count > 0 {
            self.take_run(0);
        }
    }

    /// Takes the time of the run. So many `others` have ended since; their equal part is left for the next reading.
    fn take_run(&mut self, others: u64) {
        let Run { number, count, place } = std::mem::take(&mut self.run);
        let ticks = ((self.ticks.read)().wrapping_sub(self.last) as i64).max(0) as u64;
        let part = ticks - ticks / (u64::from(count) + others) * others;
        self.last = self.last.wrapping_add(part);
        let ns = self.ticks.ns(part);
        self.commands.executed_often(number, count, ns, self.track);
        if ns >= self.noted_ns_min && self.stalled.is_none_or(|stalled| stalled.ns < ns) {
            self.stalled = Some(Stalled { place, ns });
        }
    }

    /// The run that is to be noted, once.
    #[inline]
    pub(crate) fn take_stalled(&mut self) -> Option<Stalled> {
        self.stalled.take()
    }

    /// Nanoseconds since the last lap, or since the first command of the turn began.
    #[inline]
    pub(crate) fn lap(&mut self) -> u64 {
        let now = (self.ticks.read)();
        // The counter wraps around; should it ever step back, no time has passed.
        let ticks = now.wrapping_sub(std::mem::replace(&mut self.last, now)) as i64;
        self.ticks.ns(ticks.max(0) as u64)
    }

    /// Where the last command ended, or the one to come begins.
    #[inline]
    pub(crate) fn last(&self) -> u64 {
        self.last
    }

    /// Whether the commands since `began`, a value of [`Self::last`], have taken so long that others should have their turn.
    /// To ask costs no reading: it uses theirs.
    #[inline]
    pub(crate) fn is_over(&self, began: u64) -> bool {
        self.last.wrapping_sub(began) as i64 > self.piece_ticks
    }

    /// The counter as it stands, to tell what came first.
    pub(crate) fn moment(&self) -> u64 {
        (self.ticks.read)()
    }

    /// The command being run has taken so long before.
    pub(crate) fn add_ns(&mut self, ns: u64) {
        self.last = self.last.wrapping_sub(self.ticks.of_ns(ns));
    }

    /// The command being run will keep the shard busy for so long once its reply is written.
    pub(crate) fn add_us(&mut self, us: u64) {
        self.add_ns(us.saturating_mul(1000));
    }

    /// Counts a command; true if it is to be logged somewhere.
    #[inline]
    pub(crate) fn executed(&mut self, command: CommandNumber, ns: u64, answered: Answered) -> bool {
        self.commands.executed(command, ns, answered.failed, self.track);
        (ns >= self.noted_ns_min) | (answered.reply_bytes >= self.reply_bytes_min)
    }

    /// Forgets all counters.
    pub(crate) fn reset(&mut self) {
        self.commands = CommandStats::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::numbered;
    use crate::histogram::Histogram;
    use std::cell::Cell;

    fn timing(change: impl FnOnce(&mut Observation)) -> Timing {
        let mut settings = Observation::default();
        change(&mut settings);
        Timing::new(Ticks::STOPPED, &settings)
    }

    #[test]
    fn limits_follow_the_settings() {
        let limits = |timing: Timing| {
            (timing.slow_ns_min, timing.latency_ns_min, timing.request_bytes_min, timing.reply_bytes_min)
        };
        assert_eq!(limits(timing(|_| {})), (10_000_000, u64::MAX, 1 << 20, 1 << 20));
        let all = timing(|settings| {
            settings.slow_us = 0;
            settings.latency_threshold_ms = 7;
            settings.large_request_bytes = 0;
            settings.large_reply_bytes = 1;
        });
        assert_eq!(limits(all), (0, 7_000_000, 0, 1));
        let none = timing(|settings| {
            settings.slow_len_max = 0;
            settings.large_request_bytes = -1;
            settings.large_reply_len_max = 0;
        });
        assert_eq!(limits(none), (u64::MAX, u64::MAX, usize::MAX, usize::MAX));
    }

    #[test]
    fn a_sleep_counts_with_its_command_only() {
        let mut timing = timing(|_| {});
        timing.begin();
        timing.add_us(20_000);
        assert_eq!((timing.lap(), timing.lap()), (20_000_000, 0));
        let answered = Answered::default();
        assert!(timing.executed(CommandNumber(0), 10_000_000, answered));
        assert!(!timing.executed(CommandNumber(0), 9_999_999, answered));
        assert!(timing.executed(CommandNumber(0), 0, Answered { failed: false, reply_bytes: 1 << 20 }));
    }

    thread_local! {
        static NOW: Cell<u64> = const { Cell::new(0) };
    }

    fn pass_us(us: u64) {
        NOW.with(|now| now.set(now.get() + us * 1000));
    }

    fn find(name: &str) -> (&'static Command, CommandNumber) {
        let (number, (_, command)) =
            numbered().enumerate().find(|(_, (_, command))| command.name == name).expect("the command");
        (command, CommandNumber(number as u16))
    }

    /// A command that takes so long; what `answer_command` does with it.
    fn run(timing: &mut Timing, name: &str, us: u64, answered: Answered) -> u64 {
        let (command, number) = find(name);
        timing.separate(command);
        pass_us(us);
        if timing.shares(command, number, answered) {
            return 0;
        }
        let ns = timing.lap();
        timing.executed(number, ns, answered);
        ns / 1000
    }

    fn clocked(settings: &Observation) -> Timing {
        let mut timing = Timing::new(Ticks { read: || NOW.with(Cell::get), ns_q32: 1 << 32 }, settings);
        timing.begin();
        timing
    }

    fn cost_us(timing: &Timing, name: &str) -> (u64, u64) {
        let count = timing.commands.count(find(name).1);
        (count.calls, count.ns / 1000)
    }

    #[test]
    fn small_reads_in_a_row_share_a_reading() {
        let mut timing = clocked(&Observation::default());
        let small = Answered { failed: false, reply_bytes: 10 };
        for us in [1, 2, 3] {
            assert_eq!(run(&mut timing, "get", us, small), 0);
        }
        assert_eq!(cost_us(&timing, "get"), (0, 0), "their time is not taken yet");
        assert_eq!(run(&mut timing, "set", 50, small), 50, "what is no small read has its own reading");
        assert_eq!(cost_us(&timing, "get"), (3, 6));
        run(&mut timing, "get", 8, small);
        run(&mut timing, "strlen", 2, small);
        timing.end_run();
        assert_eq!((cost_us(&timing, "get"), cost_us(&timing, "strlen")), ((4, 11), (1, 5)));
        run(&mut timing, "get", 4, small);
        let large = Answered { failed: false, reply_bytes: SHARING_REPLY_BYTES };
        assert_eq!(run(&mut timing, "get", 6, large), 5);
        let failed = Answered { failed: true, reply_bytes: 10 };
        assert_eq!(run(&mut timing, "get", 7, failed), 7);
        assert_eq!(timing.commands.count(find("get").1).failed, 1);
        assert_eq!(cost_us(&timing, "get"), (7, 28));
        assert_eq!(timing.commands.histogram(find("get").1).map(Histogram::total), Some(7));
        assert!(timing.take_stalled().is_none());
    }

    #[test]
    fn a_run_that_was_held_up_is_noted() {
        let mut timing = clocked(&Observation::default());
        for (place, us) in [1, 20_000, 1].into_iter().enumerate() {
            timing.place = place;
            run(&mut timing, "get", us, Answered::default());
        }
        timing.end_run();
        let stalled = timing.take_stalled().expect("20 ms are noted");
        assert_eq!((stalled.place, stalled.ns), (2, 20_002_000));
        assert!(timing.take_stalled().is_none());
    }

    #[test]
    fn a_piece_is_over_by_the_time_of_its_commands() {
        let mut timing = clocked(&Observation::default());
        pass_us(1000);
        timing.lap();
        let began = timing.last();
        run(&mut timing, "set", 200, Answered::default());
        assert!(!timing.is_over(began));
        run(&mut timing, "set", 1, Answered::default());
        assert!(timing.is_over(began));
        assert!(!timing.is_over(timing.last()));
    }

    #[test]
    fn low_limits_take_every_command_s_time() {
        let mut timing = clocked(&Observation { slow_us: 999, ..Observation::default() });
        assert_eq!(run(&mut timing, "get", 3, Answered::default()), 3);
        let mut timing =
            clocked(&Observation { latency_threshold_ms: 1, slow_us: -1, ..Observation::default() });
        assert_eq!(run(&mut timing, "get", 3, Answered::default()), 0);
    }

    #[test]
    fn ticks_become_nanoseconds() {
        let quarter = Ticks { read: || 0, ns_q32: 1 << 30 };
        assert_eq!(quarter.ns(4_000_000_001), 1_000_000_000);
        assert_eq!(quarter.of_ns(1_000_000_000), 4_000_000_000);
        assert_eq!(Ticks::STOPPED.ns(u64::MAX), u64::MAX);
    }
}
