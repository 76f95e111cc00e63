//! Every command of the table, with arguments made from what COMMAND DOCS says of it, beside Valkey: the same replies, and the
//! same data afterwards, in both forms of collections, in transactions and outside. What fails is shrunk twice: the choices
//! that made it (proptest), then the commands themselves.
//!
//! A failure prints lines for the table of its family (`tables/*.txt`), to be put behind those of [`FILL`] that they need.

mod arguments;
mod table;

use proptest::collection::vec;
use proptest::prelude::any;
use proptest::test_runner::{Config, RngAlgorithm, TestCaseError, TestError, TestRng, TestRunner};
use std::env;
use std::time::Instant;

use super::peers::{self, Pace, Peers, Step};
use super::shrink;
use crate::common::client::Outcome;
use crate::common::compare;
use crate::common::resp::Value;
use crate::common::server::Server;
use crate::common::words::{self, Command};
use arguments::Choices;
use table::Table;

/// Argument lists for each command, all in one case.
const CALLS_OF_EACH: usize = 14;
/// Cases of commands mixed at random in one run of the suite, for each protocol; `CORELANE_DIFF_CASES` sets another number.
const CASES_DEFAULT: u32 = 60;
/// Commands of such a case.
const STEPS_MAX: usize = 24;
/// Choices that make one command.
const CHOICES_MAX: usize = 40;
/// Runs of proptest's own shrinking.
const SHRINKS_MAX: u32 = 150;

/// What the keys hold at the beginning of each case: two or three of each type, on different shards.
const FILL: &[&str] = &[
    "SET s1 hello",
    "SET s2 10",
    "SET s3 3.5 EX 5000",
    "RPUSH l1 a b c b 1",
    "RPUSH l2 1 2 3 10 x 7 8 9 2",
    "SADD i1 1 2 3 10 -1",
    "SADD t1 a b c f",
    "SADD t2 a 1 2 x y z 7 8 hello",
    "ZADD z1 1 a 2 b 3 c",
    "ZADD q1 0 a 0 b 0 c 0 f",
    "ZADD q2 1 1 1 10 1 2 1 a 1 hello 1 x 1 z",
    "ZADD z2 -inf a 0 b 0 c 1.5 x 10 y 10 z +inf 1",
    "HSET h1 f 1 g v a 2.5",
    "HSET h2 a 1 b 2 c 3 d 4 e 5 f 6 g hello",
    "HSET h3 a 1 f 2 x 3",
    "HEXPIRE h3 4000 FIELDS 1 f",
];
/// The thresholds of small collections, as CONFIG SET takes them: the usual ones, and such that half of [`FILL`] is large.
const FORMS: [&str; 2] = [
    "CONFIG SET hash-max-listpack-entries 512 list-max-listpack-size -2 set-max-intset-entries 512 \
        set-max-listpack-entries 128 zset-max-listpack-entries 128",
    "CONFIG SET hash-max-listpack-entries 4 list-max-listpack-size 4 set-max-intset-entries 4 \
        set-max-listpack-entries 5 zset-max-listpack-entries 4",
];
/// From which length on an element of a long list gets a piece of its own: the usual one, and one that `hello` has.
const ALONE: [&str; 2] = ["DEBUG QUICKLIST-PACKED-THRESHOLD 0", "DEBUG QUICKLIST-PACKED-THRESHOLD 5"];
/// What is asked of every key in the end.
const QUESTIONS: &[&str] = &[
    "TYPE @",
    "OBJECT ENCODING @",
    "PEXPIRETIME @",
    "DEBUG DIGEST-VALUE @",
    "HPEXPIRETIME @ FIELDS 3 a f x",
];

/// Replies whose order is no promise where the collection is large, beside those of `common/compare.rs`.
const UNORDERED: &[&str] = &["HKEYS", "HVALS"];
/// The same for fields with values.
const PAIRED: &[&str] = &["HGETALL"];
/// The same for whole iterations.
const SCANS: &[&str] = &["HSCAN", "SSCAN", "ZSCAN"];
/// Replies that are arrays of times from now on, or of moments that were given so.
const TIMES: &[&str] = &["HTTL", "HPTTL", "HEXPIRETIME", "HPEXPIRETIME"];
/// Replies of which only type and length are the same everywhere.
const RANDOM: &[&str] = &["SRANDMEMBER", "HRANDFIELD", "ZRANDMEMBER"];

/// One case, as proptest makes and shrinks it.
#[derive(Clone, Debug)]
struct Recipe {
    forms: usize,
    in_transaction: bool,
    proto: u8,
    commands: Vec<Command>,
}

#[test]
fn every_command_of_the_table() {
    let Some(peers) = Peers::start() else { return };
    let table = Table::of(&mut peers.ours[0].client());
    let mut found = Vec::new();
    for number in 0..table.len() {
        for (forms, proto) in [(0, 2), (1, 3)] {
            let recipe = |tapes: Vec<Vec<u16>>, in_transaction| Recipe {
                forms,
                in_transaction,
                proto,
                commands: commands(&table, Some(number), &tapes, in_transaction),
            };
            let strategy = (vec(vec(any::<u16>(), 1..CHOICES_MAX), CALLS_OF_EACH), any::<bool>());
            let mut runner = runner(1, number as u64 * 4 + u64::from(proto));
            let outcome = runner.run(&strategy, |(tapes, in_transaction)| {
                verify(&peers, &recipe(tapes, in_transaction)).map_err(TestCaseError::fail)
            });
            if let Err(TestError::Fail(_, (tapes, in_transaction))) = outcome {
                found.push(shortest(&peers, recipe(tapes, in_transaction)));
            }
        }
    }
    assert!(found.is_empty(), "{} differences:\n{}", found.len(), found.join("\n"));
}

#[test]
fn commands_of_the_table_mixed_resp2() {
    mixed(2);
}

#[test]
fn commands_of_the_table_mixed_resp3() {
    mixed(3);
}

fn mixed(proto: u8) {
    let Some(peers) = Peers::start() else { return };
    let table = Table::of(&mut peers.ours[0].client());
    let cases = env::var("CORELANE_DIFF_CASES").map_or(CASES_DEFAULT, |text| text.parse().expect("a number"));
    let recipe = |(tapes, in_transaction, forms): (Vec<Vec<u16>>, bool, bool)| Recipe {
        forms: forms.into(),
        in_transaction,
        proto,
        commands: commands(&table, None, &tapes, in_transaction),
    };
    let strategy = (vec(vec(any::<u16>(), 1..CHOICES_MAX), 1..STEPS_MAX), any::<bool>(), any::<bool>());
    let outcome = runner(cases, proto.into())
        .run(&strategy, |choices| verify(&peers, &recipe(choices)).map_err(TestCaseError::fail));
    if let Err(TestError::Fail(_, choices)) = outcome {
        panic!("{}", shortest(&peers, recipe(choices)));
    }
}

/// A runner whose choices follow from `CORELANE_DIFF_SEED` and `stream`.
fn runner(cases: u32, stream: u64) -> TestRunner {
    let first: u64 = env::var("CORELANE_DIFF_SEED").map_or(1, |text| text.parse().expect("a seed"));
    let mut seed = [0; 32];
    seed[..8].copy_from_slice(&first.to_le_bytes());
    seed[8..16].copy_from_slice(&stream.to_le_bytes());
    let config = Config {
        cases,
        failure_persistence: None,
        max_shrink_iters: SHRINKS_MAX,
        source_file: Some(file!()),
        ..Config::default()
    };
    TestRunner::new_with_rng(config, TestRng::from_seed(RngAlgorithm::ChaCha, &seed))
}

/// The commands that the choices make, each of any kind or all of one.
fn commands(table: &Table, number: Option<usize>, tapes: &[Vec<u16>], in_transaction: bool) -> Vec<Command> {
    let now_ms = peers::now_ms();
    let made = tapes.iter().enumerate().map(|(idx, tape)| {
        let mut choices = Choices::new(tape, idx, now_ms);
        let number = number.unwrap_or_else(|| table.mixable(choices.below(table.len())));
        let command = table.command(number, &mut choices);
        arguments::with_lexical_keys(if in_transaction { command } else { choices.damaged(command) })
    });
    made.filter(|command| !in_transaction || is_exact(command)).collect()
}

/// Whether it may keep the order of its source.
fn sorts_by(command: &Command) -> bool {
    words::name(command).starts_with(table::SORTS)
        && command.iter().any(|word| word.eq_ignore_ascii_case(b"BY"))
}

fn is_exact(command: &Command) -> bool {
    let name = words::name(command);
    let loose = [UNORDERED, PAIRED, SCANS, TIMES, RANDOM].iter().any(|names| names.contains(&name.as_str()));
    // EXEC's replies are compared as one, and nobody asks for the form of a source in between.
    let loose = loose || sorts_by(command) && arguments::holds_set(&command[1]);
    compare::is_exact(command) && !loose
}

impl Recipe {
    /// Filling, running and looking, each sent in its own way.
    fn phases(&self) -> [(Pace, Vec<Step>); 3] {
        let steps = |commands: Vec<Command>| commands.into_iter().map(|command| (1, command)).collect();
        let mut fill: Vec<Command> = vec![words::parse(FORMS[self.forms]), words::parse(ALONE[self.forms])];
        fill.extend(FILL.iter().map(|line| words::parse(line)));
        let mut run = self.commands.clone();
        if self.in_transaction {
            run.insert(0, words::parse("MULTI"));
            run.push(words::parse("EXEC"));
        } else {
            // Whether the source has an order has to be known where it may show.
            let with_form = |command: Command| {
                let form = (sorts_by(&command) && command.len() > 1)
                    .then(|| vec![b"OBJECT".to_vec(), b"ENCODING".to_vec(), command[1].clone()]);
                form.into_iter().chain([command])
            };
            run = run.into_iter().flat_map(with_form).collect();
        }
        let mut look = vec![words::parse("SELECT 0"), words::parse("KEYS *")];
        for key in arguments::keys().chain(arguments::lexical_keys()) {
            look.extend(QUESTIONS.iter().map(|line| {
                let words = words::parse(line).into_iter();
                words.map(|word| if word == b"@" { key.to_vec() } else { word }).collect()
            }));
        }
        look.push(words::parse("DEBUG DIGEST"));
        [(Pace::Pipelined, steps(fill)), (Pace::OneByOne, steps(run)), (Pace::Pipelined, steps(look))]
    }

    /// The case as lines of a table.
    fn lines(&self) -> String {
        let [.., (_, run), _] = &self.phases();
        let lines: Vec<String> = run.iter().map(|(_, command)| words::print(command)).collect();
        let forms = if self.forms == 0 { "small" } else { "large" };
        format!("# RESP{}, {forms} forms\n{}", self.proto, lines.join("\n"))
    }
}

/// Runs a case everywhere.
///
/// # Errors
/// The first difference.
fn verify(peers: &Peers, recipe: &Recipe) -> Result<(), String> {
    let began = Instant::now();
    let phases = recipe.phases();
    let theirs = peers::run_phases(&peers.valkey, recipe.proto, &phases);
    for server in &peers.ours {
        let ours = peers::run_phases(server, recipe.proto, &phases);
        first_difference(server, &phases, &ours, &theirs, began).map_or(Ok(()), Err)?;
    }
    Ok(())
}

fn first_difference(
    server: &Server,
    phases: &[(Pace, Vec<Step>)],
    ours: &[Outcome],
    theirs: &[Outcome],
    began: Instant,
) -> Option<String> {
    let steps: Vec<Step> = phases.iter().flat_map(|(_, steps)| steps.clone()).collect();
    let found = peers::mismatches_by(&steps, ours, theirs, began, |at, slack_ms| {
        let command = &steps[at].1;
        let is_large_set = |at: usize| {
            let form = theirs[at].value().filter(|value| matches!(value, Value::Bulk(_)));
            form.is_some_and(|form| form.text() == "hashtable")
        };
        same(command, &ours[at], &theirs[at], slack_ms)
            || sorts_by(command) && is_large_set(at - 1) && same_unsorted(command, &ours[at], &theirs[at])
    });
    found.into_iter().next().map(|text| format!("{}: {text}", server.name))
}

/// Whether the replies count as equal here, where collections may be large.
fn same(command: &[Vec<u8>], ours: &Outcome, theirs: &Outcome, slack_ms: i64) -> bool {
    if compare::same(command, ours, theirs, slack_ms) {
        return true;
    }
    let (Some(ours), Some(theirs)) = (ours.value(), theirs.value()) else { return false };
    if ours.is_error() || theirs.is_error() || ours == Value::Null || theirs == Value::Null {
        return false;
    }
    let (name, kind) = (words::name(command), std::mem::discriminant(&ours));
    let name = name.as_str();
    if kind != std::mem::discriminant(&theirs) {
        return false;
    }
    if UNORDERED.contains(&name) {
        return compare::sorted(&ours) == compare::sorted(&theirs);
    }
    let sorted_pairs = |value: &Value| {
        let mut pairs = value.pairs();
        pairs.sort();
        pairs
    };
    if PAIRED.contains(&name) {
        return sorted_pairs(&ours) == sorted_pairs(&theirs);
    }
    if SCANS.contains(&name) {
        let (ours, theirs) = (ours.items(), theirs.items());
        // An iteration of several steps has been made one, without what occurs twice.
        let distinct = |elements: &Value| {
            let mut elements = compare::sorted(elements);
            elements.dedup();
            elements
        };
        return ours[0] == theirs[0] && distinct(&ours[1]) == distinct(&theirs[1]);
    }
    let (Value::Array(ours), Value::Array(theirs)) = (&ours, &theirs) else {
        return RANDOM.contains(&name);
    };
    let close = |(a, b): (&Value, &Value)| {
        let positive = matches!((a, b), (Value::Int(1..), Value::Int(1..)));
        a == b || (positive && (a.int() - b.int()).abs() <= slack_ms)
    };
    ours.len() == theirs.len()
        && (RANDOM.contains(&name) || (TIMES.contains(&name) && ours.iter().zip(theirs).all(close)))
}

/// Whether SORT's replies are equal but for the order of a source that has none: LIMIT then makes a choice.
fn same_unsorted(command: &Command, ours: &Outcome, theirs: &Outcome) -> bool {
    let is_limited = command.iter().any(|word| word.eq_ignore_ascii_case(b"LIMIT"));
    let elements = |outcome: &Outcome| match outcome.value() {
        Some(reply @ Value::Array(_)) if is_limited => Some(vec![Value::Null; reply.items().len()]),
        Some(reply @ Value::Array(_)) => Some(compare::sorted(&reply)),
        _ => None,
    };
    elements(ours).is_some_and(|ours| Some(ours) == elements(theirs))
}

/// A failing case with fewer and plainer commands, as text with what differs.
fn shortest(peers: &Peers, recipe: Recipe) -> String {
    let Err(first) = verify(peers, &recipe) else { return format!("{}\n(only once)", recipe.lines()) };
    let with = |commands: &[Command]| Recipe { commands: commands.to_vec(), ..recipe.clone() };
    let question =
        |text: &str| text.split('>').nth(1).map(|line| line.trim().split(' ').next().map(str::to_uppercase));
    let fails = |commands: &[Command]| {
        verify(peers, &with(commands)).is_err_and(|text| question(&text) == question(&first))
    };
    let best = with(&shrink::shortest(recipe.commands.clone(), fails));
    let text = verify(peers, &best).err().unwrap_or_else(|| "did not fail again".to_owned());
    format!("{}\n{text}\n", best.lines())
}
