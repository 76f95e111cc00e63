//! Asks the shards what they have counted, and remembers the answer for a moment: however many scrape, the shards are asked
//! a few times a second at most.

use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use corelane_engine::ShardFigures;
use corelane_runtime::mesh::oneshot::Answer;
use corelane_runtime::visit::{Doorway, Visit};

use crate::threads::shard_cpu_us;

/// How long the shards have for their answers; one that is held up for longer is told to be down.
const PATIENCE: Duration = Duration::from_secs(1);
/// How long an answer is good for: so long, or as long as it took.
const FRESH: Duration = Duration::from_millis(200);

/// What all shards have counted, at about one moment.
#[derive(Debug)]
pub(super) struct Sample {
    /// Milliseconds of Unix time.
    pub(super) at_ms: u64,
    /// Seconds of Unix time.
    pub(super) started_s: f64,
    /// By shard; `None` where there was no answer in time.
    pub(super) shards: Vec<Option<Box<ShardFigures>>>,
    /// Microseconds of processor time by shard.
    pub(super) cpu_us: BTreeMap<usize, u64>,
}

impl Sample {
    /// The figures of the shards that have answered.
    pub(super) fn figures(&self) -> impl Iterator<Item = &ShardFigures> + Clone {
        self.shards.iter().flatten().map(|figures| &**figures)
    }

    /// Whether all shards have answered. Otherwise there are no sums over them: one without a shard looks like a counter that was reset,
    /// and the next one, with it, like everything that the shard ever counted happening at once.
    pub(super) fn is_whole(&self) -> bool {
        self.shards.iter().all(Option::is_some)
    }
}

/// The way to the shards, and what they said last.
#[derive(Debug)]
pub(super) struct Gather {
    doorway: Doorway,
    started_s: f64,
    last: Option<(Rc<Sample>, Instant)>,
}

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

fn unix_time() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

impl Gather {
    /// To be made when the server starts.
    pub(super) fn new(doorway: Doorway) -> Self {
        Self { doorway, started_s: unix_time().as_secs_f64(), last: None }
    }

    /// What the shards have counted so far, or had a moment ago.
    pub(super) fn sample(&mut self) -> Rc<Sample> {
        if let Some((sample, good_until)) = &self.last
            && Instant::now() < *good_until
        {
            return Rc::clone(sample);
        }
        let began = Instant::now();
        let sample = Rc::new(Sample {
            at_ms: unix_time().as_millis() as u64,
            started_s: self.started_s,
            shards: self.ask(began + PATIENCE),
            cpu_us: shard_cpu_us(std::process::id()),
        });
        let good_until = Instant::now() + FRESH.max(began.elapsed());
        self.last = Some((Rc::clone(&sample), good_until));
        sample
    }

    /// Asks all shards at the same time.
    fn ask(&self, until: Instant) -> Vec<Option<Box<ShardFigures>>> {
        let mut answers: Vec<Option<Answer<Box<ShardFigures>>>> = (0..self.doorway.shards())
            .map(|shard| {
                let (visit, answer) = Visit::figures();
                // No room: the shard has not answered earlier questions either.
                self.doorway.send(shard, visit, None).ok().map(|()| answer)
            })
            .collect();
        let mut figures: Vec<Option<Box<ShardFigures>>> = answers.iter().map(|_| None).collect();
        let waker = Waker::from(Arc::new(Unpark(thread::current())));
        let mut context = Context::from_waker(&waker);
        loop {
            for (answer, figures) in answers.iter_mut().zip(&mut figures) {
                let polled = answer.as_mut().map(|answer| answer.poll(&mut context));
                if let Some(Poll::Ready(told)) = polled {
                    (*answer, *figures) = (None, told);
                }
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() || answers.iter().all(Option::is_none) {
                return figures;
            }
            thread::park_timeout(left);
        }
    }
}
