//! Lists, for clients that wait: BLPOP, BRPOP, BLMPOP, BLMOVE and BRPOPLPUSH. How they wait is `blocking`'s business; here is what
//! they do where there is something, and until when they wait.

use super::list::TAKEN;
use super::list_edit::{PopOrder, side};
use super::list_move::{MOVED, move_decide, move_read, move_write, pop_decide, pop_key, pop_read};
use super::long_double::LongDouble;
use crate::args::Args;
use crate::command::{Command, Find, Flags, Flow, KeyFlags, KeySpec, Plan};
use crate::ctx::{Ctx, Decide, Next};
use crate::errors::Error;
use crate::keyspace::Millis;
use crate::settings::Settings;
use crate::values::Side;
use corelane_resp::Reply;

const FLAGS: Flags = Flags::WRITE.with(Flags::BLOCKING);
/// All arguments but the last.
pub(super) const NAMED_FIRST: KeySpec = KeySpec { find: Find::Range { last: -2, step: 1 }, ..TAKEN };
pub(super) const COUNTED: KeySpec = KeySpec {
    flags: KeyFlags::RW.with(KeyFlags::ACCESS).with(KeyFlags::DELETE),
    begin: 2,
    find: Find::Count { count_at: 0, first: 1, step: 1 },
    notes: None,
    flags_for: None,
};

pub(super) const COMMANDS: &[Command] = &[
    Command {
        name: "blpop",
        arity: -3,
        flags: FLAGS,
        keys: &[NAMED_FIRST],
        plan: Plan::Staged { read: pop_read, decide: pop_or_wait, write: blpop },
        check: Some(check_last),
        since: "2.0.0",
        group: "list",
        summary: "Removes and returns the first element in a list. Blocks until an element is available otherwise. Deletes \
                  the list if the last element was popped.",
        complexity: "O(N) where N is the number of provided keys.",
        syntax: "key [key ...] timeout",
        ..Command::DEFAULT
    },
    Command {
        name: "brpop",
        arity: -3,
        flags: FLAGS,
        keys: &[NAMED_FIRST],
        plan: Plan::Staged { read: pop_read, decide: pop_or_wait, write: brpop },
        check: Some(check_last),
        since: "2.0.0",
        group: "list",
        summary: "Removes and returns the last element in a list. Blocks until an element is available otherwise. Deletes \
                  the list if the last element was popped.",
        complexity: "O(N) where N is the number of provided keys.",
        syntax: "key [key ...] timeout",
        ..Command::DEFAULT
    },
    Command {
        name: "blmpop",
        arity: -5,
        flags: FLAGS.with(Flags::MOVABLEKEYS),
        keys: &[COUNTED],
        plan: Plan::Staged { read: pop_read, decide: pop_or_wait, write: blmpop },
        check: Some(check_blmpop),
        since: "7.0.0",
        group: "list",
        summary: "Pops the first element from one of multiple lists. Blocks until an element is available otherwise. Deletes \
                  the list if the last element was popped.",
        complexity: "O(N+M) where N is the number of provided keys and M is the number of elements returned.",
        syntax: "timeout numkeys key [key ...] ( LEFT | RIGHT ) #where [COUNT count]",
        ..Command::DEFAULT
    },
    Command {
        name: "blmove",
        arity: 6,
        flags: FLAGS.with(Flags::DENYOOM),
        keys: MOVED,
        plan: Plan::Staged { read: move_read, decide: move_or_wait, write: move_write },
        check: Some(check_blmove),
        since: "6.2.0",
        group: "list",
        summary: "Pops an element from a list, pushes it to another list and returns it. Blocks until an element is available \
                  otherwise. Deletes the list if the last element was moved.",
        syntax: "source destination ( LEFT | RIGHT ) #wherefrom ( LEFT | RIGHT ) #whereto timeout",
        ..Command::DEFAULT
    },
    Command {
        name: "brpoplpush",
        arity: 4,
        flags: FLAGS.with(Flags::DENYOOM),
        keys: MOVED,
        plan: Plan::Staged { read: move_read, decide: move_or_wait, write: move_write },
        check: Some(check_last),
        since: "2.2.0",
        group: "list",
        summary: "Pops an element from a list, pushes it to another list and returns it. Blocks until an element is available \
                  otherwise. Deletes the list if the last element was popped.",
        syntax: "source destination timeout",
        ..Command::DEFAULT
    },
];

/// For how many milliseconds to wait; 0 for ever. `text` is in seconds.
pub(super) fn timeout_ms(text: &[u8], now: Millis) -> Result<u64, Error> {
    const BAD: Error = Error::text("ERR timeout is not a float or out of range");
    let ms = LongDouble::parse(text).ok_or(BAD)?.to_ms();
    if ms < 0 {
        return Err(Error::text("ERR timeout is negative"));
    }
    let ms = u64::try_from(ms).ok().filter(|ms| *ms <= (i64::MAX as u64).saturating_sub(now));
    ms.ok_or(Error::text("ERR timeout is out of range"))
}

/// When a command that waits gives up; `None` for never. Its arguments have been checked.
pub(crate) fn wait_deadline(command: &Command, args: Args<'_>, now: Millis) -> Option<Millis> {
    let place = if command.flags.has(Flags::MOVABLEKEYS) { 1 } else { args.len() - 1 };
    let ms = timeout_ms(args.at(place), now).unwrap_or(0);
    (ms != 0).then(|| now + ms)
}

/// The timeout stands last.
pub(super) fn check_last(args: Args<'_>, settings: &Settings) -> Result<(), Error> {
    timeout_ms(args.at(args.len() - 1), settings.started_ms).map(|_| ())
}

fn check_blmove(args: Args<'_>, settings: &Settings) -> Result<(), Error> {
    side(args.at(3)).and(side(args.at(4)))?;
    check_last(args, settings)
}

fn check_blmpop(args: Args<'_>, settings: &Settings) -> Result<(), Error> {
    PopOrder::parse(args, 2)?;
    timeout_ms(args.at(1), settings.started_ms).map(|_| ())
}

pub(super) fn pop_or_wait(decide: &mut Decide<'_>) -> Next {
    let nothing = decide.stage == 0 && decide.results.iter().all(|result| result.elements == 0);
    let next = pop_decide(decide);
    if nothing { Next::Wait } else { next }
}

fn move_or_wait(decide: &mut Decide<'_>) -> Next {
    let nothing = decide.stage == 0 && !super::list_move::finds_source(decide.results);
    let next = move_decide(decide);
    if nothing { Next::Wait } else { next }
}

fn blpop(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply) -> Result<Flow, Error> {
    pop_key(ctx, args, Side::Left, 1, false, reply)
}

fn brpop(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply) -> Result<Flow, Error> {
    pop_key(ctx, args, Side::Right, 1, false, reply)
}

fn blmpop(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply) -> Result<Flow, Error> {
    let PopOrder { side, count } = PopOrder::parse(args, 2)?;
    pop_key(ctx, args, side, count, true, reply)
}

#[cfg(test)]
mod tests {
    use crate::commands::testing::Bench;

    const SHARDS: [u16; 3] = [1, 2, 5];

    #[test]
    fn what_is_there_is_given_at_once() {
        crate::commands::testing::check_all(&[
            ("RPUSH a 1 2 3 4 5 6\nRPUSH d 7", ":6\n:1"),
            ("BLPOP x y a 0\nBRPOP x a y 0", "[\"a\", \"1\"]\n[\"a\", \"6\"]"),
            ("BLMPOP 0 3 x d a RIGHT COUNT 2", "[\"d\", [\"7\"]]"),
            ("BLMOVE a b LEFT RIGHT 0\nBRPOPLPUSH a b 0\nLRANGE b 0 -1", "\"2\"\n\"5\"\n[\"5\", \"2\"]"),
            (
                "BLPOP a -1\nBLPOP a x",
                "-ERR timeout is negative\n-ERR timeout is not a float or out of range",
            ),
            ("BLPOP a 1e20\nBLPOP a inf", "-ERR timeout is out of range\n-ERR timeout is out of range"),
        ]);
    }

    #[test]
    fn waiters_are_served_in_order_of_arrival() {
        for shards in SHARDS {
            let mut bench = Bench::new(shards);
            let waiters: Vec<_> = (0..4).map(|n| bench.connect(n, 7 + n as u16)).collect();
            for waiter in &waiters {
                assert_eq!(bench.say(*waiter, "BLPOP k l m 0\nECHO on"), "");
            }
            assert_eq!(bench.run("RPUSH k a b"), ":2");
            assert_eq!(bench.hear(waiters[0]), "[\"k\", \"a\"]\n\"on\"");
            assert_eq!(bench.hear(waiters[1]), "[\"k\", \"b\"]\n\"on\"");
            assert_eq!(bench.run("EXISTS k\nRPUSH m c\nRPUSH l d\nDBSIZE"), ":0\n:1\n:1\n:0");
            assert_eq!(bench.hear(waiters[2]), "[\"m\", \"c\"]\n\"on\"");
            assert_eq!(bench.hear(waiters[3]), "[\"l\", \"d\"]\n\"on\"");
            assert_eq!(bench.run("RPUSH k x\nLPOP k"), ":1\n\"x\"");
        }
    }

    #[test]
    fn a_wait_ends_in_time_by_order_or_with_its_connection() {
        for shards in SHARDS {
            let mut bench = Bench::new(shards);
            let (one, two, three) = (bench.connect(0, 7), bench.connect(1, 8), bench.connect(2, 9));
            assert_eq!(bench.say(one, "BLPOP k l 0.05"), "");
            let id = bench.say(two, "CLIENT ID").trim_start_matches(':').to_owned();
            assert_eq!(bench.say(two, "BRPOPLPUSH k l 0"), "");
            assert_eq!(bench.say(three, "BLMOVE l k LEFT LEFT 100"), "");
            assert!(bench.run("INFO clients").contains("blocked_clients:3"));
            bench.now += 50;
            assert_eq!(bench.hear(one), "nil");
            assert_eq!(bench.run(&format!("CLIENT UNBLOCK {id} ERROR")), ":1");
            assert_eq!(bench.hear(two), "-UNBLOCKED client unblocked via CLIENT UNBLOCK");
            bench.leave(three);
            assert_eq!(bench.run("RPUSH k a\nRPUSH l b\nLPOP k\nLPOP l"), ":1\n:1\n\"a\"\n\"b\"");
        }
    }

    #[test]
    fn moves_chain() {
        for shards in SHARDS {
            let mut bench = Bench::new(shards);
            let waiters: Vec<_> = (0..3).map(|n| bench.connect(n, 7 + n as u16)).collect();
            assert_eq!(bench.say(waiters[0], "BLMOVE a b LEFT LEFT 0"), "");
            assert_eq!(bench.say(waiters[1], "BLMOVE b c LEFT LEFT 0"), "");
            assert_eq!(bench.say(waiters[2], "BLPOP c 0"), "");
            assert_eq!(bench.run("RPUSH a x\nDBSIZE"), ":1\n:0");
            assert_eq!(bench.hear(waiters[0]), "\"x\"");
            assert_eq!(bench.hear(waiters[1]), "\"x\"");
            assert_eq!(bench.hear(waiters[2]), "[\"c\", \"x\"]");
        }
    }

    #[test]
    fn keys_come_to_be_in_other_ways_too() {
        let wrong = "-WRONGTYPE Operation against a key holding the wrong kind of value";
        for shards in SHARDS {
            let mut bench = Bench::new(shards);
            let waiter = bench.connect(1, 7);
            bench.run("RPUSH other a b c d e f\nSET s v");
            assert_eq!(bench.say(waiter, "BLPOP k j 0"), "");
            assert_eq!(bench.run("SET k v\nDEL k\nCOPY other k"), "+OK\n:1\n:1");
            assert_eq!(bench.hear(waiter), "[\"k\", \"a\"]");
            bench.run("DEL k");
            assert_eq!(bench.say(waiter, "BLPOP k j 0"), "");
            assert_eq!(bench.run("LMOVE other k LEFT LEFT"), "\"a\"");
            assert_eq!(bench.hear(waiter), "[\"k\", \"a\"]");
            assert_eq!(bench.say(waiter, "BLPOP k j 0"), "");
            assert_eq!(bench.run("RENAME other k"), "+OK");
            assert_eq!(bench.hear(waiter), "[\"k\", \"b\"]");
            assert_eq!(bench.run("SELECT 1\nRPUSH j z\nSELECT 0"), "+OK\n:1\n+OK");
            assert_eq!(bench.say(waiter, "BLPOP j i 0"), "");
            assert_eq!(bench.run("SWAPDB 0 1"), "+OK");
            assert_eq!(bench.hear(waiter), "[\"j\", \"z\"]");
            assert_eq!(bench.run("SWAPDB 0 1"), "+OK");
            assert_eq!(bench.say(waiter, "BLMOVE n s LEFT LEFT 0"), "");
            assert_eq!(bench.run("RPUSH n 1"), ":1");
            assert_eq!(bench.hear(waiter), wrong);
            assert_eq!(bench.run("LPOP n"), "\"1\"");
        }
    }

    #[test]
    fn a_transaction_does_not_wait_and_is_over_before_others_are_served() {
        for shards in SHARDS {
            let mut bench = Bench::new(shards);
            let waiter = bench.connect(1, 7);
            assert_eq!(bench.say(waiter, "BLPOP k j 0"), "");
            assert_eq!(bench.run("MULTI\nBLPOP a b 0\nBLMOVE a b LEFT LEFT 0"), "+OK\n+QUEUED\n+QUEUED");
            assert_eq!(bench.run("RPUSH k 1 2\nLPOP k\nEXEC"), "+QUEUED\n+QUEUED\n[nil, nil, :2, \"1\"]");
            assert_eq!(bench.hear(waiter), "[\"k\", \"2\"]");
            assert_eq!(bench.say(waiter, "BLPOP k j 0"), "");
            assert_eq!(bench.run("MULTI\nRPUSH k 1\nDEL k\nEXEC"), "+OK\n+QUEUED\n+QUEUED\n[:1, :1]");
            assert_eq!(bench.run("RPUSH j 3"), ":1");
            assert_eq!(bench.hear(waiter), "[\"j\", \"3\"]");
        }
    }

    /// Pushes, pops and moves that wait, from clients of all shards at the same time and in circles: what was pushed is there
    /// once in the end, on a key or in a reply of a pop.
    #[test]
    fn nothing_is_lost_or_doubled_when_moves_cross() {
        for (shards, seed) in SHARDS.into_iter().flat_map(|shards| (1..12u64).map(move |seed| (shards, seed)))
        {
            let mut bench = Bench::new(shards);
            let mut random = crate::ctx::Rng::new(seed);
            let clients: Vec<_> = (0..8).map(|n| bench.connect(n, 7 + n as u16)).collect();
            let (mut pushed, mut popped) = (0, Vec::new());
            for _ in 0..60 {
                for client in &clients {
                    let key =
                        |random: &mut crate::ctx::Rng| ["a", "b", "c", "d"][(random.next() % 4) as usize];
                    let (one, two) = (key(&mut random), key(&mut random));
                    let line = match random.next() % 8 {
                        0..=2 => {
                            pushed += 1;
                            format!("RPUSH {one} e{pushed}")
                        }
                        3 => format!("BLPOP {one} {two} 0.02"),
                        4 => format!("LMOVE {one} {two} LEFT RIGHT"),
                        _ => format!("BLMOVE {one} {two} LEFT RIGHT 0.03"),
                    };
                    bench.send(*client, &line);
                }
                if random.next().is_multiple_of(3) {
                    bench.now += 7;
                }
                for client in &clients {
                    popped.push(bench.hear(*client));
                }
            }
            bench.now += 1000;
            for _ in 0..80 {
                for client in &clients {
                    popped.push(bench.hear(*client));
                }
                bench.now += 1000;
            }
            assert!(bench.run("INFO clients").contains("blocked_clients:0"), "{shards} shards, seed {seed}");
            let mut found: Vec<String> = popped
                .iter()
                .flat_map(|replies| replies.lines())
                .filter_map(|line| line.strip_prefix('[')?.rsplit_once(", ")?.1.strip_suffix(']'))
                .map(str::to_owned)
                .collect();
            for key in ["a", "b", "c", "d"] {
                while let element = bench.run(&format!("LPOP {key}"))
                    && element != "nil"
                {
                    found.push(element);
                }
            }
            found.sort();
            let mut all: Vec<String> = (1..=pushed).map(|n| format!("\"e{n}\"")).collect();
            all.sort();
            assert_eq!(found, all, "{shards} shards, seed {seed}");
        }
    }
}
