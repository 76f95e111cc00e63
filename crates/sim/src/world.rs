//! Nodes, mailboxes and clients under one seed.

use crate::check::Violation;
use crate::clients::Client;
use crate::links::Links;
use crate::workload::{Keys, Operation, Profile, Workload};
use corelane_engine::{Faults, Node, NodeConfig, Peer, PieceSizes, Rng, Settings, ShardId, Ticks};
use corelane_resp::{Frame, encode_command};
use std::fmt;

/// Background turns in which nothing happens, after which a run is over.
const QUIET_TURNS_MAX: usize = 1000;
/// The same, after which something is done for clients that all wait for one another.
const IDLE_TURNS_MAX: usize = 150;
/// Steps in a millisecond.
const STEPS_PER_MS: u64 = 16;

/// What a run is made of.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Everything random comes from it.
    pub seed: u64,
    /// Nodes.
    pub shards: u16,
    /// Connections.
    pub clients: usize,
    /// Commands of each.
    pub commands: usize,
    /// Keys of each type that they are on.
    pub keys: usize,
    /// Which commands.
    pub profile: Profile,
    /// Breaks the protocol on purpose.
    pub faults: Faults,
}

impl Options {
    /// Sizes that are drawn from the seed too.
    pub fn from_seed(seed: u64) -> Self {
        let mut rng = Rng::new(seed ^ 0x5EED);
        let clients = 2 + (rng.next() % 4) as usize;
        let shards = 1 + (rng.next() % 5) as u16;
        let keys = 2 + (rng.next() % 6) as usize;
        let profile = Profile::pick(&mut rng);
        Self::sized(seed, profile, shards, clients, keys)
    }

    /// The same with these commands.
    pub fn of_profile(seed: u64, profile: Profile) -> Self {
        let drawn = Self::from_seed(seed);
        Self::sized(seed, profile, drawn.shards, drawn.clients, 2 + (seed % 6) as usize)
    }

    fn sized(seed: u64, profile: Profile, shards: u16, clients: usize, keys: usize) -> Self {
        let (clients, keys) = match profile {
            Profile::Strings => (clients, keys),
            // Many on few keys, or hardly anybody would meet.
            Profile::Waiting => (clients + 2, 2 + keys / 4),
            _ => (clients, 1 + keys / 2),
        };
        Self { seed, shards, clients, commands: 60 / clients, keys, profile, faults: Faults::default() }
    }
}

/// One command of a history.
#[derive(Debug)]
pub struct Record {
    /// Who sent it.
    pub client: usize,
    /// Its number on that connection.
    pub number: usize,
    /// The step in which it was sent.
    pub sent: u64,
    /// The step from which on it was seen to wait.
    pub waiting: Option<u64>,
    /// The step in which its reply came.
    pub answered: Option<u64>,
    /// The step in which its client vanished before that.
    pub gone: Option<u64>,
    /// The command.
    pub operation: Operation,
    /// The reply.
    pub reply: Option<Frame>,
}

impl fmt::Display for Record {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let commands = self.operation.commands();
        let words = commands.iter().map(|words| words.join(" ")).collect::<Vec<_>>().join("; ");
        let step = |step: Option<u64>| step.map_or_else(|| "-".to_owned(), |step| step.to_string());
        write!(f, "[{:5}..{:>5}] client {}: {words}", self.sent, step(self.answered), self.client)?;
        if self.waiting.is_some() {
            write!(f, " (waits from {})", step(self.waiting))?;
        }
        match (&self.reply, self.gone) {
            (Some(reply), _) => write!(f, " -> {reply:?}"),
            (None, gone) => write!(f, " -> nothing; gone {}", step(gone)),
        }
    }
}

/// What the clients of one run saw.
#[derive(Debug)]
pub struct History {
    /// The run's seed.
    pub seed: u64,
    /// All commands.
    pub records: Vec<Record>,
    /// Whoever waits is served before anybody else gets at the key: they wait for one key each.
    pub serves_at_once: bool,
}

/// What a client is to send.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Wanted {
    Push,
    Wait,
}

struct World {
    nodes: Vec<Node>,
    links: Links,
    clients: Vec<Client>,
    workload: Workload,
    rng: Rng,
    step: u64,
    records: Vec<Record>,
    options: Options,
    /// Connections opened so far, by shard.
    opened: Vec<u64>,
    /// Nobody sends anything but the question that is under way.
    is_probing: bool,
    reader: Option<usize>,
}

/// Runs one seed to the end, when nothing moves any more, and reads all keys then.
///
/// # Errors
/// Commands are left without a reply that do not wait for a key, or have given up too early.
pub fn run(options: &Options) -> Result<History, Violation> {
    let mut world = World::new(options);
    world.run_until_quiet()?;
    let stuck = world.stuck();
    if stuck > 0 || world.clients.iter().any(|client| client.left > 0) {
        return Err(Violation::Stuck { seed: options.seed, open: stuck });
    }
    world.read_all();
    if let Some(early) = world.records.iter().find(|record| gave_up_early(record)) {
        return Err(Violation::Early { seed: options.seed, record: early.to_string() });
    }
    let serves_at_once = matches!(options.profile, Profile::Queues);
    Ok(History { seed: options.seed, records: world.records, serves_at_once })
}

/// Whether a command that waits has ended too soon, with nobody having asked for it.
fn gave_up_early(record: &Record) -> bool {
    let (true, Some(Frame::Null), Some(answered)) =
        (record.operation.may_wait(), &record.reply, record.answered)
    else {
        return false;
    };
    let timeout_ms = record.operation.timeout_s() * 1000.0;
    let waited_ms = answered / STEPS_PER_MS - record.sent / STEPS_PER_MS;
    !record.operation.unblocked && (timeout_ms == 0.0 || (waited_ms as f64) < timeout_ms)
}

/// Half of the runs read all collections in pieces of one element, half of these keep even small ones in their large forms.
fn settings_of(seed: u64) -> Settings {
    let mut settings = Settings::default();
    if seed.is_multiple_of(2) {
        settings.pieces = PieceSizes::SMALLEST;
    }
    if seed.is_multiple_of(4) {
        settings.compact.hash_entries = 0;
        settings.compact.set_entries = 0;
        settings.compact.set_ints = 0;
        settings.compact.sorted_entries = 0;
        settings.compact.list_size = 1.into();
    }
    settings
}

impl World {
    fn new(options: &Options) -> Self {
        let nodes = (0..options.shards)
            .map(|me| {
                Node::new(NodeConfig {
                    me: ShardId(me),
                    shards: options.shards,
                    seed: options.seed,
                    settings: settings_of(options.seed),
                    ticks: Ticks::STOPPED,
                    faults: options.faults,
                })
            })
            .collect();
        let shards = usize::from(options.shards);
        let mut world = Self {
            nodes,
            links: Links::new(shards),
            clients: Vec::new(),
            workload: Workload::new(options.keys, options.profile),
            rng: Rng::new(options.seed),
            step: 1,
            records: Vec::new(),
            options: *options,
            opened: vec![0; shards],
            is_probing: false,
            reader: None,
        };
        (0..options.clients).for_each(|_| world.connect(options.commands));
        world
    }

    fn connect(&mut self, commands: usize) {
        let shard = self.pick(self.nodes.len());
        let now = self.now();
        let session = self.nodes[shard].open(Peer::default(), now);
        // Numbers as the engine gives them.
        let id = self.opened[shard] * self.nodes.len() as u64 + shard as u64 + 1;
        self.opened[shard] += 1;
        let pipeline = 1 + self.pick(3);
        self.clients.push(Client::new(shard, session, id, commands, pipeline));
    }

    /// How many commands are not answered, beside those that wait for a key and those behind them.
    fn stuck(&self) -> usize {
        let waits = |client: &Client| client.open.front().is_some_and(|open| open.waiting.is_some());
        self.clients.iter().filter(|client| !waits(client)).map(|client| client.open.len()).sum()
    }

    fn pick(&mut self, count: usize) -> usize {
        (self.rng.next() % count.max(1) as u64) as usize
    }

    fn now(&self) -> u64 {
        1_000_000 + self.step / STEPS_PER_MS
    }

    fn run_until_quiet(&mut self) -> Result<(), Violation> {
        let mut quiet = 0;
        while quiet <= QUIET_TURNS_MAX {
            quiet = if self.step_once() { 0 } else { quiet + 1 };
            if quiet > IDLE_TURNS_MAX && self.clients.iter().any(|client| client.left > 0) {
                self.is_probing = true;
                let kept_waiting = self.kept_waiting();
                self.is_probing = false;
                if let Some(record) = kept_waiting {
                    return Err(Violation::KeptWaiting { seed: self.options.seed, record });
                }
                // Those that could still send something wait for those that wait for them.
                self.vanish_one();
                quiet = 0;
            }
        }
        Ok(())
    }

    /// A client that only reads, on behalf of the simulator.
    fn reader(&mut self) -> usize {
        if self.reader.is_none() {
            self.connect(0);
            self.reader = Some(self.clients.len() - 1);
        }
        self.reader.unwrap_or_default()
    }

    /// While nothing moves: somebody who waits for a key that is there.
    fn kept_waiting(&mut self) -> Option<String> {
        let reader = self.reader();
        for idx in (0..self.clients.len()).filter(|idx| *idx != reader) {
            // Where a time is up meanwhile, what was sent behind is run: such a key is asked for again, when all is at rest.
            if !self.is_there(idx) {
                continue;
            }
            self.come_to_rest();
            if self.is_there(idx) {
                let kept = self.clients[idx].open.pop_front();
                return kept.map(|open| open.record(idx).to_string());
            }
        }
        None
    }

    /// Goes on until nothing is on its way and no node has anything to do: what is done in pieces may take many turns, and few of
    /// the random events are turns of the node that is at it.
    fn come_to_rest(&mut self) {
        let is_moving = |world: &mut Self| {
            world.step += 1;
            let mut moved = world.deliver_one() | world.take_outboxes();
            for node in 0..world.nodes.len() {
                let now = world.now();
                moved |= world.nodes[node].tick(now) | world.collect(node);
            }
            moved
        };
        let mut still = 0;
        while still < IDLE_TURNS_MAX {
            still = if is_moving(self) { 0 } else { still + 1 };
        }
    }

    /// Whether a client waits for a key that is there.
    fn is_there(&mut self, idx: usize) -> bool {
        let reader = self.reader();
        let waiting = self.clients[idx].open.front().filter(|open| open.waiting.is_some());
        let sorted = waiting.is_some_and(|open| open.operation.words[0].starts_with("BZ"));
        let keys = waiting.map(|open| open.operation.awaited_keys()).unwrap_or_default();
        keys.into_iter().any(|key| {
            let words = [if sorted { "ZCARD" } else { "LLEN" }, &key].map(str::to_owned);
            self.send(reader, Operation::new(words.into(), Keys::Some(vec![key])));
            while !self.clients[reader].open.is_empty() {
                self.step_once();
            }
            // It is a question of ours, no part of the history.
            let place = self.records.iter().rposition(|record| record.client == reader);
            matches!(place.and_then(|place| self.records.remove(place).reply), Some(Frame::Int(1..)))
        })
    }

    /// One random event; false if it moved nothing.
    fn step_once(&mut self) -> bool {
        self.step += 1;
        match self.pick(8) {
            0 | 1 => self.send_some(),
            2..=5 => self.deliver_one(),
            6 => self.take_outboxes(),
            _ => {
                let node = self.pick(self.nodes.len());
                let now = self.now();
                // Of what is done in pieces, each moves something.
                let goes_on = self.nodes[node].tick(now);
                goes_on | self.collect(node) | self.take_outboxes()
            }
        }
    }

    /// A random client sends a command, sometimes in two pieces of bytes; or it vanishes.
    fn send_some(&mut self) -> bool {
        let may_send = |idx: &usize| self.clients[*idx].may_send();
        let senders: Vec<usize> = (0..self.clients.len()).filter(may_send).collect();
        if self.is_probing || senders.is_empty() {
            return false;
        }
        let idx = senders[self.pick(senders.len())];
        if self.options.profile.waits() && self.rng.next().is_multiple_of(40) {
            self.vanish(idx);
            return true;
        }
        let wanted =
            (self.options.profile == Profile::Waiting && self.rng.next().is_multiple_of(2)).then(|| {
                // Some mostly push and others mostly wait, or all would wait for one another.
                if idx.is_multiple_of(2) { Wanted::Push } else { Wanted::Wait }
            });
        let operation = loop {
            let operation = match wanted {
                Some(Wanted::Push) => self.workload.push(&mut self.rng),
                _ => self.next_operation(),
            };
            let may_wait = operation.may_wait();
            // What is sent behind it waits; what was sent before could be taken for it.
            let is_free = self.clients[idx].open.is_empty();
            if is_free && wanted == Some(Wanted::Wait) && !may_wait {
                continue;
            }
            if !may_wait || is_free {
                break operation;
            }
        };
        self.send(idx, operation);
        true
    }

    fn next_operation(&mut self) -> Operation {
        if !self.options.profile.waits() || !self.rng.next().is_multiple_of(30) {
            return self.workload.next(&mut self.rng);
        }
        let target = self.pick(self.clients.len());
        let how = if self.rng.next().is_multiple_of(2) { "ERROR" } else { "TIMEOUT" };
        let words = ["CLIENT", "UNBLOCK", &self.clients[target].id.to_string(), how].map(str::to_owned);
        Operation { target: Some(target), ..Operation::new(words.into(), Keys::All) }
    }

    fn send(&mut self, idx: usize, operation: Operation) {
        let now = self.now();
        let mut bytes = Vec::new();
        let commands = operation.commands();
        commands.iter().for_each(|words| encode_command(&mut bytes, words));
        let cut = (self.rng.next() % bytes.len() as u64) as usize;
        let client = &mut self.clients[idx];
        client.opens(operation, commands.len() - 1, self.step);
        let (node, session) = (client.shard, client.session);
        self.nodes[node].feed(session, &bytes[..cut], now);
        self.nodes[node].feed(session, &bytes[cut..], now);
        self.collect(node);
    }

    /// Some client that waits vanishes.
    fn vanish_one(&mut self) {
        let waiting: Vec<usize> =
            (0..self.clients.len()).filter(|idx| !self.clients[*idx].open.is_empty()).collect();
        if !waiting.is_empty() {
            let idx = waiting[self.pick(waiting.len())];
            self.vanish(idx);
        }
    }

    /// A client's connection ends; another one goes on.
    fn vanish(&mut self, idx: usize) {
        let client = &mut self.clients[idx];
        let (shard, session, left) = (client.shard, client.session, std::mem::take(&mut client.left));
        self.nodes[shard].close(session);
        let open = std::mem::take(&mut self.clients[idx].open);
        let gone = Some(self.step);
        self.records.extend(open.into_iter().map(|open| Record { gone, ..open.record(idx) }));
        self.clients[idx].gone = true;
        self.connect(left);
        self.collect(shard);
    }

    fn deliver_one(&mut self) -> bool {
        let now = self.now();
        let Some(node) = self.links.deliver_one(&mut self.nodes, &mut self.rng, now) else { return false };
        self.collect(node);
        true
    }

    fn take_outboxes(&mut self) -> bool {
        self.links.take_outboxes(&mut self.nodes, &mut self.rng)
    }

    /// Takes output of a node's sessions to their clients, and looks who waits there.
    fn collect(&mut self, node: usize) -> bool {
        let mut dirty = Vec::new();
        self.nodes[node].take_dirty(&mut dirty);
        let mut moved = false;
        for session in dirty {
            let Some(state) = self.nodes[node].session_state(session) else { continue };
            let output = state.output.take();
            let is_its = |client: &Client| client.shard == node && client.session == session && !client.gone;
            let Some(idx) = self.clients.iter().position(is_its) else { continue };
            for piece in output.slices() {
                self.clients[idx].received.extend_from_slice(piece);
            }
            let answered = self.clients[idx].take_replies();
            moved |= !answered.is_empty();
            for (open, reply) in answered {
                let (answered, reply) = (Some(self.step), Some(reply));
                self.records.push(Record { answered, reply, ..open.record(idx) });
            }
        }
        for client in self.clients.iter_mut().filter(|client| client.shard == node && !client.gone) {
            let waits = self.nodes[node].may_be_silent(client.session);
            if let Some(open) = client.open.front_mut().filter(|open| waits && open.operation.may_wait()) {
                open.waiting.get_or_insert(self.step);
            }
        }
        moved
    }

    /// Another client reads everything, one key after the other; then whoever still waits is noted.
    fn read_all(&mut self) {
        let reader = self.reader();
        let keys: Vec<(&str, String)> = self.workload.all_keys().collect();
        for (family, key) in keys {
            let words = match family {
                "key" => vec!["GET".to_owned(), key.clone()],
                "list" => ["LRANGE", &key, "0", "-1"].map(str::to_owned).to_vec(),
                "set" => vec!["SMEMBERS".to_owned(), key.clone()],
                "log" => vec!["PFCOUNT".to_owned(), key.clone()],
                "sorted" => ["ZRANGE", &key, "0", "-1"].map(str::to_owned).to_vec(),
                _ => vec!["HLEN".to_owned(), key.clone()],
            };
            self.step += 1;
            self.send(reader, Operation::new(words, Keys::Some(vec![key])));
            while !self.clients[reader].open.is_empty() {
                self.step_once();
            }
        }
        for idx in 0..self.clients.len() {
            // What was sent behind it has not been run.
            let open = self.clients[idx].open.pop_front();
            self.records.extend(open.map(|open| open.record(idx)));
        }
        let unblocked: Vec<usize> = (self.records.iter())
            .filter(|record| record.reply != Some(Frame::Int(0)))
            .filter_map(|record| record.operation.target)
            .collect();
        for record in &mut self.records {
            record.operation.unblocked = unblocked.contains(&record.client);
        }
    }
}
