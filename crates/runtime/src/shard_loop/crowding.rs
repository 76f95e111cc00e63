//! Whether others want a shard's CPU, and that it may go elsewhere while they do.
//!
//! A bound shard waits for its CPU while another program runs there, even if the next CPU is idle: with a load generator on a
//! machine whose CPUs all have shards, redis-benchmark's default on two of them, that costs a fifth of the throughput and
//! half of the latency. So a shard whose CPU was not named by anybody (`--cpus`) is let go while it is crowded, and bound again
//! when it has been quiet for a while; unless somebody has bound it from outside meanwhile. What it waits for its CPU tells the kernel in `/proc/thread-self/schedstat`.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};

use crate::topology::{allowed_cpus, bind_here, bind_here_to_any, ranges};

/// Between two looks.
const PERIOD: Duration = Duration::from_millis(250);
/// A shard that waits for this part of a period is crowded, if it has something to do: one client whose thread shares the CPU makes
/// it wait for 0.03 to 0.05, fifty for 0.4.
const CROWDED: f64 = 0.02;
/// One that runs for less has nothing to do.
const BUSY: f64 = 0.05;
/// One that waits for less is alone.
const QUIET: f64 = 0.005;
/// How long it stays away at least.
const STAY_MIN: Duration = Duration::from_secs(5);
/// And where it was crowded again each time that it came back.
const STAY_MAX: Duration = Duration::from_secs(300);
/// Crowded sooner after its return than this, it has come back too early.
const TRIAL: Duration = Duration::from_secs(10);
/// What it takes to start says nothing.
const START: Duration = Duration::from_secs(1);

/// Where a shard belongs, and where else it may run.
#[derive(Clone, Debug)]
pub(crate) struct Home {
    /// Its CPU.
    pub(crate) cpu: usize,
    /// All CPUs that it may run on, its own among them.
    pub(crate) any_of: Vec<usize>,
}

/// Times that a thread has run and has waited for a CPU.
#[derive(Clone, Copy, Default, Debug)]
struct Spent {
    ran: Duration,
    waited: Duration,
}

/// Watches how long the calling thread waits for its CPU.
pub(crate) struct Crowding {
    home: Home,
    schedstat: File,
    spent: Spent,
    looked: Instant,
    judge: Judge,
}

impl Crowding {
    /// Of the calling thread, which is bound; `None` where it has nowhere else to go, or the kernel does not tell.
    pub(crate) fn watch(home: Home, now: Instant) -> Option<Self> {
        if home.any_of.len() < 2 {
            return None;
        }
        let schedstat = File::open("/proc/thread-self/schedstat").ok()?;
        let spent = read(&schedstat)?;
        Some(Self { home, schedstat, spent, looked: now, judge: Judge::new(now) })
    }

    /// Looks once a period; moves the thread if that is called for. Returns whether it is away.
    pub(crate) fn look(&mut self, me: usize, now: Instant) -> bool {
        let over = now - self.looked;
        if over < PERIOD {
            return self.judge.away;
        }
        let Some(spent) = read(&self.schedstat) else { return self.judge.away };
        let was_away = self.judge.away;
        let share = |until: Duration, from: Duration| until.saturating_sub(from).div_duration_f64(over);
        let (ran, waited) = (share(spent.ran, self.spent.ran), share(spent.waited, self.spent.waited));
        (self.spent, self.looked) = (spent, now);
        if self.judge.changes(ran, waited, now) {
            if !self.is_as_left(was_away) {
                // Somebody has bound it from outside (taskset), and knows why.
                self.judge.away = was_away;
                return was_away;
            }
            self.go(me, waited);
        }
        self.judge.away
    }

    /// Whether the thread may run where it was left.
    fn is_as_left(&self, away: bool) -> bool {
        let cpus = allowed_cpus().unwrap_or_default();
        if away { cpus == self.home.any_of } else { cpus == [self.home.cpu] }
    }

    fn go(&self, me: usize, waited: f64) {
        let Home { cpu, any_of } = &self.home;
        let (moved, text) = if self.judge.away {
            let percent = waited * 100.0;
            let cpus = ranges(any_of);
            let text = format!(
                "shard {me} has waited {percent:.0} % of the time for cpu {cpu}, which others use: it may run on cpus {cpus} until it is quiet there"
            );
            (bind_here_to_any(any_of), text)
        } else {
            (bind_here(*cpu), format!("shard {me} is back on cpu {cpu}"))
        };
        match moved {
            Ok(()) => tracing::info!("{text}"),
            Err(error) => tracing::warn!("shard {me} cannot change its CPUs: {error}"),
        }
    }
}

/// Nanoseconds run, nanoseconds waited, and times run.
fn read(schedstat: &File) -> Option<Spent> {
    let mut text = [0; 96];
    let len = schedstat.read_at(&mut text, 0).ok()?;
    let mut words = std::str::from_utf8(&text[..len]).ok()?.split_ascii_whitespace();
    let mut time = || Some(Duration::from_nanos(words.next()?.parse().ok()?));
    Some(Spent { ran: time()?, waited: time()? })
}

/// Decides when to leave and when to return.
#[derive(Debug)]
struct Judge {
    away: bool,
    started: Instant,
    /// When it left or returned, if it ever did.
    moved: Option<Instant>,
    stay: Duration,
}

impl Judge {
    const fn new(now: Instant) -> Self {
        Self { away: false, started: now, moved: None, stay: STAY_MIN }
    }

    /// Whether a thread that has run and waited for these parts of a period is to leave, or to return.
    fn changes(&mut self, ran: f64, waited: f64, now: Instant) -> bool {
        let passed = self.moved.map(|moved| now - moved);
        let changes = if self.away {
            passed >= Some(self.stay) && waited < QUIET
        } else {
            ran >= BUSY && waited >= CROWDED && now - self.started >= START
        };
        if changes {
            if !self.away {
                let too_early = passed.is_some_and(|passed| passed < TRIAL);
                self.stay = if too_early { (self.stay * 2).min(STAY_MAX) } else { STAY_MIN };
            }
            self.away = !self.away;
            self.moved = Some(now);
        }
        changes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    /// How many seconds it takes until it changes.
    fn seconds(judge: &mut Judge, now: &mut Instant, ran: f64, waited: f64) -> Option<u64> {
        (1..1000).find(|_| {
            *now += SECOND;
            judge.changes(ran, waited, *now)
        })
    }

    #[test]
    fn it_leaves_a_crowd_and_returns_when_it_is_quiet() {
        let mut now = Instant::now();
        let mut judge = Judge::new(now);
        for (ran, waited) in [(0.01, 0.9), (0.9, 0.01), (0.0, 0.0)] {
            assert_eq!(seconds(&mut judge, &mut now, ran, waited), None, "{ran} {waited}");
        }
        assert_eq!(seconds(&mut judge, &mut now, 0.4, 0.4), Some(1));
        assert_eq!(seconds(&mut judge, &mut now, 0.4, 0.01), None, "still crowded");
        assert_eq!(seconds(&mut judge, &mut now, 0.4, 0.001), Some(1));
        // Crowded at once again, it stays away longer each time.
        for stay in [10, 20, 40, 80, 160, 300, 300] {
            assert_eq!(seconds(&mut judge, &mut now, 0.4, 0.4), Some(1));
            assert_eq!(seconds(&mut judge, &mut now, 0.0, 0.0), Some(stay));
        }
        now += TRIAL;
        assert_eq!(seconds(&mut judge, &mut now, 0.4, 0.4), Some(1));
        assert_eq!(seconds(&mut judge, &mut now, 0.0, 0.0), Some(5));
    }

    #[test]
    fn the_kernel_tells_how_long_a_thread_has_run() {
        let schedstat = File::open("/proc/thread-self/schedstat").unwrap();
        let began = Instant::now();
        let before = read(&schedstat).unwrap();
        while began.elapsed() < Duration::from_millis(50) {}
        let after = read(&schedstat).unwrap();
        let spent = after.ran + after.waited - before.ran - before.waited;
        assert!(spent > Duration::from_millis(20), "{before:?} {after:?}");
    }
}
