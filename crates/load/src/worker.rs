//! One thread's share of a run: its connections, what each of them waits for, and the latencies.

use std::collections::VecDeque;
use std::io;
use std::sync::atomic::Ordering;
use std::time::Duration;

use corelane_runtime::outbound::{Lost, Next, Outbound, Traffic, Wait};
use corelane_runtime::{thread_cpu_time, wait_precisely};
use hdrhistogram::Histogram;

use crate::LATENCY_MAX_NS;
use crate::numbers::{KeySource, Keys, Random, pick};
use crate::pace::Pace;
use crate::plan::{Errors, LoadError, Plan};
use crate::replies::Scanner;
use crate::silence::Silence;
use crate::template::{Filling, Template, data};

/// Connections that are being opened at once: fewer than servers let wait to be accepted.
const OPENING_MAX: usize = 128;
/// How long it is tried to open a connection when ports have run out, or the server's queue is full.
const OPENING_NS_MAX: u64 = 3_000_000_000;
/// Between two looks at whether others have ended the run, with a rate.
const WAIT_NS_MAX: u64 = 50_000_000;
/// A shorter wait is not worth a timer.
const WAIT_NS_MIN: u64 = 10_000;

/// What a thread has measured.
#[derive(Debug)]
pub(crate) struct Tally {
    pub(crate) latencies: Histogram<u64>,
    pub(crate) errors: u64,
    pub(crate) error: Option<String>,
    pub(crate) cpu: Duration,
    /// Requests that were due and have not been sent, because the server did not keep up.
    pub(crate) missed: u64,
    /// With a rate: how late the last request was sent, in nanoseconds.
    pub(crate) late: u64,
    /// When the last reply came.
    pub(crate) last: u64,
}

/// For latencies in nanoseconds.
pub(crate) fn histogram(digits: u8) -> Histogram<u64> {
    Histogram::new_with_bounds(1, LATENCY_MAX_NS, digits).expect("the plan's digits are 1 to 5")
}

/// One connection.
#[derive(Debug, Default)]
struct Client {
    scanner: Scanner,
    /// Replies to its greeting that are still to come.
    greeting: usize,
    greeted: bool,
    /// What was sent last were requests, whose bytes can be used again.
    prepared: bool,
    /// Replies to requests that are still to come.
    owed: usize,
    /// When those were sent, and whether they count.
    since: u64,
    counts: bool,
    /// With a rate: when each of them should have been sent; the last `unsent` of them have not been.
    due: VecDeque<u64>,
    unsent: usize,
    /// Waits in the queue of those that may be given another request.
    queued: bool,
}

/// A fixed rate.
#[derive(Debug)]
struct Schedule {
    /// The moment of the next request, and the time between two.
    next: f64,
    interval: f64,
    /// Connections that may be given a request.
    queue: VecDeque<usize>,
}

/// A thread's share.
pub(crate) struct Worker<'a> {
    plan: &'a Plan,
    pace: &'a Pace,
    index: usize,
    clients: Vec<Client>,
    greeting: (Vec<u8>, Vec<&'static str>),
    filling: Filling,
    /// The only template, whose requests all have this length.
    uniform: Option<(&'a Template, usize)>,
    numbers: usize,
    now: u64,
    count_from: u64,
    send_until: u64,
    /// Requests that are this thread's to send.
    share: u64,
    exhausted: bool,
    opening: usize,
    opening_since: u64,
    ready: usize,
    started: bool,
    silence: Silence,
    /// Connections that go on sending.
    active: usize,
    owed: usize,
    schedule: Option<Schedule>,
    tally: Tally,
    latency_ns: u64,
    failure: Option<LoadError>,
}

impl<'a> Worker<'a> {
    pub(crate) fn new(plan: &'a Plan, pace: &'a Pace, index: usize) -> Self {
        let clients = plan.clients / plan.threads + usize::from(index < plan.clients % plan.threads);
        let seed = plan.seed.wrapping_add((index as u64).wrapping_mul(0x5851_f42d_4c95_7f2d));
        let uniform = match &plan.templates[..] {
            [(template, _)] => template.request_len().map(|len| (template, len)),
            _ => None,
        };
        Self {
            plan,
            pace,
            index,
            clients: (0..clients).map(|_| Client::default()).collect(),
            greeting: plan.credentials.greeting(),
            filling: Filling {
                random: Random::new(seed),
                keys: KeySource::new(plan.keys, plan.key_range.unwrap_or(1).max(1)),
                sizes: plan.sizes.clone(),
                data: data(plan.sizes.max()),
            },
            uniform,
            numbers: plan.templates.iter().map(|(template, _)| template.numbers()).max().unwrap_or(0),
            now: pace.now(),
            count_from: u64::MAX,
            send_until: u64::MAX,
            share: 0,
            exhausted: false,
            opening: 0,
            opening_since: 0,
            ready: 0,
            started: false,
            silence: Silence::new(plan.patience, pace.now()),
            active: clients,
            owed: 0,
            schedule: None,
            tally: Tally {
                latencies: histogram(plan.digits),
                errors: 0,
                error: None,
                cpu: Duration::ZERO,
                missed: 0,
                late: 0,
                last: 0,
            },
            latency_ns: 0,
            failure: None,
        }
    }

    /// Opens the connections, sends until there is nothing left to send, and waits for what is owed.
    pub(crate) fn run(mut self, outbound: &mut Outbound) -> Result<Tally, LoadError> {
        self.connect(outbound)?;
        let mut cpu = None;
        while !self.is_done() {
            let wait = self.wait(outbound);
            self.turn(outbound, wait)?;
            if cpu.is_none() && self.now >= self.count_from {
                cpu = Some(thread_cpu_time());
            }
            let counter = &self.pace.counters[self.index];
            counter.requests.store(self.tally.latencies.len(), Ordering::Relaxed);
            counter.latency_ns.store(self.latency_ns, Ordering::Relaxed);
        }
        self.tally.cpu = cpu.map_or(Duration::ZERO, |cpu| thread_cpu_time() - cpu);
        Ok(self.tally)
    }

    fn turn(&mut self, outbound: &mut Outbound, wait: Wait) -> Result<(), LoadError> {
        outbound.turn(self, wait).map_err(LoadError::Ring)?;
        match self.failure.take() {
            Some(failure) => Err(failure),
            None if self.pace.has_failed() => Err(LoadError::Stopped),
            None => self.listen(),
        }
    }

    /// An error where the server has said nothing for too long.
    fn listen(&mut self) -> Result<(), LoadError> {
        let waits = match &self.schedule {
            _ if !self.started => self.opening > 0,
            _ if self.plan.idle => false,
            None => self.active > 0,
            // With nobody in the queue all connections wait for replies, or to be opened again.
            Some(schedule) => self.owed > 0 || schedule.queue.is_empty() && !self.exhausted,
        };
        let Some(silence) = self.silence.too_long(self.now, waits, self.now >= self.send_until) else {
            return Ok(());
        };
        let owing = self.clients.iter().filter(|client| client.owed > 0 || !client.greeted).count();
        Err(LoadError::Silent { silence, waiting: owing, connections: self.clients.len(), owed: self.owed })
    }

    /// Until all connections of all threads are ready.
    fn connect(&mut self, outbound: &mut Outbound) -> Result<(), LoadError> {
        let mut opened = 0;
        while self.ready < self.clients.len() {
            while opened < self.clients.len() && self.opening < OPENING_MAX {
                outbound.open().map_err(|error| self.not_opened(error))?;
                opened += 1;
                self.opening += 1;
            }
            self.turn(outbound, Wait::Long)?;
            self.pace.counters[self.index].ready.store(self.ready, Ordering::Relaxed);
            if self.pace.is_stopped() {
                return Err(LoadError::Stopped);
            }
        }
        self.pace.arrive();
        let start = loop {
            if let Some(start) = self.pace.started() {
                break start;
            }
            self.turn(outbound, Wait::For(Duration::from_millis(1)))?;
        };
        (self.count_from, self.send_until) = self.pace.span(start);
        self.now = self.pace.now();
        self.started = true;
        if self.plan.idle {
            return Ok(());
        }
        if let Some(rate) = self.plan.work.rate {
            wait_precisely();
            let interval = 1e9 * self.plan.threads as f64 / rate;
            let next = start as f64 + interval * self.index as f64 / self.plan.threads as f64;
            self.schedule = Some(Schedule { next, interval, queue: VecDeque::new() });
            (0..self.clients.len()).for_each(|idx| self.enqueue(idx));
            return Ok(());
        }
        for idx in 0..self.clients.len() {
            outbound.send(idx, self);
        }
        Ok(())
    }

    fn is_done(&self) -> bool {
        if self.plan.idle {
            return self.pace.is_stopped();
        }
        match self.schedule {
            Some(_) => self.exhausted && self.owed == 0,
            None => self.active == 0,
        }
    }

    /// Sends what is due, and says how long to wait for the next.
    fn wait(&mut self, outbound: &mut Outbound) -> Wait {
        let Some(mut schedule) = self.schedule.take() else { return Wait::Long };
        self.now = self.pace.now();
        if self.now >= self.send_until && !self.exhausted {
            self.exhausted = true;
            self.tally.missed =
                ((self.send_until as f64 - schedule.next) / schedule.interval).max(0.0) as u64;
        }
        while schedule.next <= self.now as f64 && !self.exhausted {
            let Some(idx) = schedule.queue.pop_front() else { break };
            let due = schedule.next as u64;
            if self.take(1, due) == 0 {
                break;
            }
            self.tally.late = self.now - due;
            schedule.next += schedule.interval;
            let client = &mut self.clients[idx];
            client.due.push_back(due);
            client.unsent += 1;
            client.owed += 1;
            self.owed += 1;
            if client.owed < self.plan.pipeline {
                schedule.queue.push_back(idx);
            } else {
                client.queued = false;
            }
            if client.unsent == 1 {
                outbound.send(idx, self);
            }
        }
        let left = (schedule.next.min(self.send_until as f64) - self.now as f64).max(0.0) as u64;
        let wait = match (self.exhausted || schedule.queue.is_empty(), left) {
            (true, _) => Wait::Long,
            (false, ..WAIT_NS_MIN) => Wait::No,
            (false, left) => Wait::For(Duration::from_nanos(left.min(WAIT_NS_MAX))),
        };
        self.schedule = Some(schedule);
        wait
    }

    /// A connection may be given another request.
    fn enqueue(&mut self, idx: usize) {
        if let Some(schedule) = &mut self.schedule
            && !std::mem::replace(&mut self.clients[idx].queued, true)
        {
            schedule.queue.push_back(idx);
        }
    }

    /// Takes up to `wanted` requests, which are to be sent at this moment. 0: there will be no more.
    #[inline]
    fn take(&mut self, wanted: u64, at: u64) -> u64 {
        if self.now >= self.send_until || self.pace.is_stopped() {
            self.exhausted = true;
            return 0;
        }
        if at < self.count_from {
            return wanted;
        }
        if self.share == 0 {
            self.take_share();
        }
        let taken = wanted.min(self.share);
        self.share -= taken;
        taken
    }

    #[cold]
    fn take_share(&mut self) {
        if self.exhausted {
            return;
        }
        let (first, count) = self.pace.take();
        self.share = count;
        self.exhausted = count == 0;
        if self.plan.keys == Keys::Sequential {
            self.filling.keys.next = first.wrapping_mul(self.numbers as u64);
        }
    }

    fn fail(&mut self, failure: LoadError) -> Next {
        self.failure.get_or_insert(failure);
        Next::Close
    }

    /// Why there is no connection.
    fn not_opened(&self, error: io::Error) -> LoadError {
        match error.raw_os_error() {
            Some(libc::EMFILE | libc::ENFILE) => {
                LoadError::Descriptors { clients: self.plan.clients, open: self.ready + self.opening }
            }
            Some(libc::EADDRNOTAVAIL) => LoadError::Ports,
            _ => LoadError::Connect(error),
        }
    }

    /// The connection is ready for requests.
    fn greeted(&mut self, idx: usize) -> Next {
        if !std::mem::replace(&mut self.clients[idx].greeted, true) {
            self.ready += 1;
            self.opening -= 1;
            return Next::Wait;
        }
        if self.schedule.is_some() {
            self.enqueue(idx);
            return if self.clients[idx].unsent > 0 { Next::Send } else { Next::Wait };
        }
        Next::Send
    }

    /// So many replies have come for requests.
    #[inline]
    fn note(&mut self, idx: usize, replies: usize) -> Next {
        let client = &mut self.clients[idx];
        if replies == 0 {
            return Next::Wait;
        }
        client.owed -= replies;
        self.owed -= replies;
        self.tally.last = self.now;
        if self.schedule.is_some() {
            return self.note_due(idx, replies);
        }
        if client.counts {
            let latency = self.now - client.since;
            self.latency_ns += latency * replies as u64;
            self.tally.latencies.saturating_record_n(latency, replies as u64);
        }
        match (client.owed, self.plan.keep_alive) {
            (1.., _) => Next::Wait,
            (0, true) => Next::Send,
            (0, false) if self.share == 0 && self.exhausted => Next::Send,
            (0, false) => self.reopen(idx),
        }
    }

    /// The same where requests are sent at a rate.
    fn note_due(&mut self, idx: usize, replies: usize) -> Next {
        for due in self.clients[idx].due.drain(..replies) {
            if due >= self.count_from {
                let latency = self.now - due;
                self.latency_ns += latency;
                self.tally.latencies.saturating_record(latency);
            }
        }
        if self.plan.keep_alive || self.clients[idx].owed > 0 {
            self.enqueue(idx);
            return Next::Wait;
        }
        self.reopen(idx)
    }

    fn reopen(&mut self, idx: usize) -> Next {
        let client = &mut self.clients[idx];
        client.scanner = Scanner::default();
        Next::Reopen
    }

    #[cold]
    fn refused(&mut self, errors: &[(usize, String)], greeting: usize, owed: usize) {
        for (at, text) in errors {
            let text = text.clone();
            if *at < greeting {
                let commands = &self.greeting.1;
                let command = commands[commands.len() - greeting + at];
                self.fail(LoadError::Refused { command, text });
            } else if at - greeting >= owed {
                self.fail(LoadError::Refused { command: "the connection", text });
            } else if self.plan.errors == Errors::End {
                self.fail(LoadError::Reply(text));
            } else {
                self.tally.errors += 1;
                self.tally.error.get_or_insert(text);
            }
        }
    }
}

impl Traffic for Worker<'_> {
    fn batch(&mut self) {
        self.now = self.pace.now();
    }

    fn opened(&mut self, idx: usize) -> Next {
        self.silence.broken(self.now);
        self.opening_since = 0;
        if self.greeting.1.is_empty() {
            return self.greeted(idx);
        }
        self.clients[idx].greeting = self.greeting.1.len();
        Next::Send
    }

    fn received(&mut self, idx: usize, bytes: &[u8]) -> Next {
        self.silence.broken(self.now);
        let client = &mut self.clients[idx];
        let mut errors = Vec::new();
        let scanned = client
            .scanner
            .scan(bytes, |at, text| errors.push((at as usize, String::from_utf8_lossy(text).into_owned())));
        let replies = match scanned {
            Ok(replies) => replies as usize,
            Err(error) => return self.fail(LoadError::Protocol(error.to_string())),
        };
        let (greeting, owed) = (client.greeting, client.owed);
        if !errors.is_empty() {
            self.refused(&errors, greeting, owed);
            if self.failure.is_some() {
                return Next::Close;
            }
        }
        let greetings = replies.min(greeting);
        let replies = replies - greetings;
        if replies > owed {
            return self
                .fail(LoadError::Protocol("the server sent more replies than there were requests".into()));
        }
        if greetings > 0 {
            let client = &mut self.clients[idx];
            client.greeting -= greetings;
            return if client.greeting == 0 { self.greeted(idx) } else { Next::Wait };
        }
        self.note(idx, replies)
    }

    fn fill(&mut self, idx: usize, out: &mut Vec<u8>) -> usize {
        if self.clients[idx].greeting > 0 {
            self.clients[idx].prepared = false;
            out.clear();
            out.extend_from_slice(&self.greeting.0);
            return out.len();
        }
        let count = if self.schedule.is_some() || self.clients[idx].unsent > 0 {
            std::mem::take(&mut self.clients[idx].unsent)
        } else {
            let count = self.take(self.plan.pipeline as u64, self.now) as usize;
            let client = &mut self.clients[idx];
            client.owed = count;
            client.since = self.now;
            client.counts = self.now >= self.count_from;
            self.owed += count;
            self.active -= usize::from(count == 0);
            count
        };
        if let Some((template, len)) = self.uniform {
            // A greeting may be as long as the requests are.
            let prepared = std::mem::replace(&mut self.clients[idx].prepared, true);
            if !prepared || out.len() != len * self.plan.pipeline {
                out.clear();
                (0..self.plan.pipeline).for_each(|_| template.write(out, &mut self.filling));
            } else {
                template.renew(&mut out[..len * count], &mut self.filling);
            }
            return len * count;
        }
        out.clear();
        for _ in 0..count {
            if let Some(template) = pick(&self.plan.templates, &mut self.filling.random) {
                template.write(out, &mut self.filling);
            }
        }
        out.len()
    }

    fn lost(&mut self, idx: usize, how: Lost) -> Next {
        let error = match how {
            Lost::NotOpened(error) => error,
            Lost::Closed if self.clients[idx].greeting > 0 => {
                return self.fail(LoadError::Closed(" instead of answering AUTH, HELLO or SELECT".into()));
            }
            Lost::Closed => return self.fail(LoadError::Closed(String::new())),
            Lost::Broken(error) => return self.fail(LoadError::Closed(format!(": {error}"))),
        };
        // Ports come free again a second after they were used last; a queue, too.
        let is_full = error.kind() == io::ErrorKind::WouldBlock;
        let is_short = !self.plan.keep_alive && error.kind() == io::ErrorKind::AddrNotAvailable;
        if self.opening_since == 0 {
            self.opening_since = self.now;
        }
        if (is_full || is_short) && self.now - self.opening_since < OPENING_NS_MAX {
            return Next::ReopenLater;
        }
        let failure = self.not_opened(error);
        self.fail(failure)
    }
}
