//! The servers a comparison runs over, and the running of one case on one of them.

use std::collections::BTreeMap;
use std::env;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use crate::common::client::{Client, Outcome};
use crate::common::compare;
use crate::common::resp::Value;
use crate::common::server::Server;
use crate::common::words::{self, Command};

/// The shard counts every comparison covers.
pub(crate) const SHARD_COUNTS: [usize; 3] = [1, 2, 5];

/// A command and the connection (numbered from 1) that sends it.
pub(crate) type Step = (usize, Command);

/// Valkey, and ours in every size.
pub(crate) struct Peers {
    pub valkey: Server,
    pub ours: Vec<Server>,
}

impl Peers {
    /// Starts them all; `None` where there is no Valkey.
    pub(crate) fn start() -> Option<Self> {
        Self::start_with(&[])
    }

    /// The same with further flags for all of them.
    pub(crate) fn start_with(flags: &[&str]) -> Option<Self> {
        let valkey = Server::valkey_with(flags)?;
        Some(Self { valkey, ours: SHARD_COUNTS.map(|shards| Server::ours_with(shards, flags)).into() })
    }
}

/// How the commands of a case go out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pace {
    /// Each after the reply to the one before.
    OneByOne,
    /// All in one write.
    Pipelined,
}

/// Runs `steps` on an emptied `server` over fresh connections that speak RESP version `proto`.
pub(crate) fn run(server: &Server, proto: u8, pace: Pace, steps: &[Step]) -> Vec<Outcome> {
    run_phases(server, proto, &[(pace, steps.to_vec())])
}

/// The same for steps that go out in different ways; all outcomes in a row.
pub(crate) fn run_phases(server: &Server, proto: u8, phases: &[(Pace, Vec<Step>)]) -> Vec<Outcome> {
    let mut clients: BTreeMap<usize, Client> = BTreeMap::new();
    for &(number, _) in phases.iter().flat_map(|(_, steps)| steps) {
        clients.entry(number).or_insert_with(|| {
            let mut client = server.client();
            assert!(proto == 2 || !client.run("HELLO 3").is_error(), "HELLO 3");
            client
        });
    }
    server.client().check("FLUSHALL", "+OK\r\n");
    let mut outcomes = Vec::new();
    for (pace, steps) in phases {
        outcomes.extend(match pace {
            Pace::OneByOne => one_by_one(steps, &mut clients),
            Pace::Pipelined => pipelined(steps, clients.get_mut(&1).expect("pipelines use connection 1")),
        });
    }
    outcomes
}

fn one_by_one(steps: &[Step], clients: &mut BTreeMap<usize, Client>) -> Vec<Outcome> {
    let call = |(number, command): &Step| {
        let client = clients.get_mut(number).expect("one for each number");
        match words::name(command).as_str() {
            "SCAN" => scan(client, command, 1),
            "HSCAN" | "SSCAN" | "ZSCAN" => scan(client, command, 2),
            _ => client.call(command),
        }
    };
    steps.iter().map(call).collect()
}

fn pipelined(steps: &[Step], client: &mut Client) -> Vec<Outcome> {
    let commands: Vec<Command> = steps.iter().map(|(_, command)| command.clone()).collect();
    // A failure shows as a closed connection when reading.
    let _ = client.write(&words::encode_all(&commands));
    commands.iter().map(|_| client.read()).collect()
}

/// Follows the cursor to the end: the reply is then `["0", all elements]`, duplicates dropped, whatever the order and
/// the size of the steps were. `cursor_at` is where the cursor stands.
fn scan(client: &mut Client, command: &Command, cursor_at: usize) -> Outcome {
    const STEPS_MAX: usize = 10_000;
    let mut command = command.clone();
    let mut elements = Vec::new();
    for step in 0..STEPS_MAX {
        let outcome = client.call(&command);
        let Some(Value::Array(reply)) = outcome.value() else { return outcome };
        if step == 0 && reply[0].text() == "0" {
            return outcome;
        }
        elements.extend(reply[1].items());
        if reply[0].text() == "0" {
            elements.sort();
            elements.dedup();
            return Outcome::Reply(array_reply(&elements));
        }
        command[cursor_at] = reply[0].text().into_bytes();
    }
    panic!("SCAN does not end: {}", words::print(&command));
}

fn array_reply(elements: &[Value]) -> Vec<u8> {
    let mut raw = format!("*2\r\n$1\r\n0\r\n*{}\r\n", elements.len()).into_bytes();
    for element in elements {
        let Value::Bulk(bytes) = element else { panic!("SCAN gave {element:?}") };
        raw.extend_from_slice(format!("${}\r\n", bytes.len()).as_bytes());
        raw.extend_from_slice(bytes);
        raw.extend_from_slice(b"\r\n");
    }
    raw
}

/// Runs these cases and as many others, pipelined, in RESP2 and RESP3 by turns: `steps_of` makes one from its number. Panics at
/// the first that differs. `CORELANE_DIFF_SEED` is the number of the first of the others.
pub(crate) fn same_cases(pinned: &[u64], cases: u64, steps_of: impl Fn(u64) -> Vec<Step>) {
    let Some(peers) = Peers::start() else { return };
    let number = |name, default| env::var(name).map_or(default, |text| text.parse().expect(name));
    let first = number("CORELANE_DIFF_SEED", 0);
    let others = first..first + number("CORELANE_DIFF_CASES", cases);
    for seed in pinned.iter().copied().chain(others) {
        let (steps, began, proto) = (steps_of(seed), Instant::now(), 2 + (seed % 2) as u8);
        let theirs = run(&peers.valkey, proto, Pace::Pipelined, &steps);
        for server in &peers.ours {
            let ours = run(server, proto, Pace::Pipelined, &steps);
            let found = mismatches(&steps, &ours, &theirs, began);
            let first = found.first().map_or("", |text| text.as_str());
            assert!(found.is_empty(), "case {seed}, {}: {} differences: {first}", server.name, found.len());
        }
    }
}

/// All differences between what `ours` and `theirs` answered; `began` is when the first of the two runs did.
pub(crate) fn mismatches(
    steps: &[Step],
    ours: &[Outcome],
    theirs: &[Outcome],
    began: Instant,
) -> Vec<String> {
    mismatches_by(steps, ours, theirs, began, |at, slack_ms| {
        compare::same(&steps[at].1, &ours[at], &theirs[at], slack_ms)
    })
}

/// The same by another measure of equality, which is given the number of a step and the milliseconds that times may differ by.
pub(crate) fn mismatches_by(
    steps: &[Step],
    ours: &[Outcome],
    theirs: &[Outcome],
    began: Instant,
    same: impl Fn(usize, i64) -> bool,
) -> Vec<String> {
    let slack_ms = 20 + began.elapsed().as_millis() as i64;
    let differs = |at: &usize| !same(*at, slack_ms);
    let describe = |at: usize| {
        let line = words::print(&steps[at].1);
        format!("> {line}\n  ours:   {}\n  Valkey: {}", show(&ours[at]), show(&theirs[at]))
    };
    (0..steps.len()).filter(differs).map(describe).collect()
}

fn show(outcome: &Outcome) -> String {
    const SHOWN_MAX: usize = 2000;
    match outcome {
        Outcome::Reply(raw) if raw.len() > SHOWN_MAX => {
            format!("{}... ({} bytes)", raw[..SHOWN_MAX].escape_ascii(), raw.len())
        }
        Outcome::Reply(raw) => raw.escape_ascii().to_string(),
        other => format!("{other:?}"),
    }
}

/// Milliseconds since the Unix epoch, for commands that take absolute times.
pub(crate) fn now_ms() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).expect("a clock after 1970").as_millis() as i64
}
