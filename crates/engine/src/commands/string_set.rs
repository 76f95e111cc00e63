//! SET and its kin: storing strings with conditions and deadlines.

use super::string::{count_present, write_string};
use crate::args::{Args, parse_int};
use crate::command::{Command, Find, Flags, Flow, KeyFlags, KeySpec, Plan};
use crate::ctx::{Ctx, Decide, Next, On, Payload};
use crate::errors::Error;
use crate::events::EventClasses;
use crate::keyspace::{Key, Millis, NewValue};
use crate::settings::Settings;
use crate::wall::{Present, WallClock};
use corelane_resp::Reply;

const GROWING: Flags = Flags::WRITE.with(Flags::DENYOOM);
const OVERWRITTEN: &[KeySpec] = &[KeySpec::one(1, KeyFlags::OW.with(KeyFlags::UPDATE))];

/// Any word behind the value counts, as in Valkey, which does not parse the options for this.
fn set_key_flags(args: Args<'_>) -> KeyFlags {
    if args.iter_from(3).any(|word| word.eq_ignore_ascii_case(b"get")) {
        KeyFlags::RW.with(KeyFlags::ACCESS).with(KeyFlags::UPDATE)
    } else {
        KeyFlags::OW.with(KeyFlags::UPDATE)
    }
}
const EXPIRY_SYNTAX: &str = "key seconds value";

pub(super) const COMMANDS: &[Command] = &[
    Command {
        name: "set",
        arity: -3,
        flags: GROWING,
        keys: &[KeySpec {
            notes: Some("RW and ACCESS due to the optional `GET` argument"),
            flags_for: Some(set_key_flags),
            ..KeySpec::one(
                1,
                KeyFlags::RW.with(KeyFlags::ACCESS).with(KeyFlags::UPDATE).with(KeyFlags::VARIABLE_FLAGS),
            )
        }],
        plan: Plan::OneShard(set),
        group: "string",
        summary: "Sets the string value of a key, ignoring its type. The key is created if it doesn't exist.",
        syntax: "key value [NX @2.6.12 | XX @2.6.12 | IFEQ comparison-value @8.1.0] #condition [GET] @6.2.0 [EX seconds \
            @2.6.12 | PX milliseconds @2.6.12 | EXAT unix-time-seconds @6.2.0 | PXAT unix-time-milliseconds @6.2.0 | \
            KEEPTTL @6.0.0] #expiration",
        ..Command::DEFAULT
    },
    Command {
        name: "setnx",
        arity: 3,
        flags: GROWING.with(Flags::FAST),
        keys: &[KeySpec::one(1, KeyFlags::OW.with(KeyFlags::INSERT))],
        plan: Plan::OneShard(setnx),
        group: "string",
        summary: "Sets the string value of a key only when the key doesn't exist.",
        syntax: "key value",
        ..Command::DEFAULT
    },
    Command {
        name: "setex",
        arity: 4,
        flags: GROWING,
        keys: OVERWRITTEN,
        plan: Plan::OneShard(|ctx, args, reply| setex(ctx, args, reply, "setex", 1000)),
        since: "2.0.0",
        group: "string",
        summary: "Sets the string value and expiration time of a key. Creates the key if it doesn't exist.",
        syntax: EXPIRY_SYNTAX,
        ..Command::DEFAULT
    },
    Command {
        name: "psetex",
        arity: 4,
        flags: GROWING,
        keys: OVERWRITTEN,
        plan: Plan::OneShard(|ctx, args, reply| setex(ctx, args, reply, "psetex", 1)),
        since: "2.6.0",
        group: "string",
        summary: "Sets both string value and expiration time in milliseconds of a key. The key is created if it doesn't \
            exist.",
        syntax: "key milliseconds value",
        ..Command::DEFAULT
    },
    Command {
        name: "getset",
        arity: 3,
        flags: GROWING.with(Flags::FAST),
        keys: &[KeySpec::one(1, KeyFlags::RW.with(KeyFlags::ACCESS).with(KeyFlags::UPDATE))],
        plan: Plan::OneShard(getset),
        group: "string",
        summary: "Returns the previous string value of a key after setting it to a new value.",
        syntax: "key value",
        ..Command::DEFAULT
    },
    Command {
        name: "getex",
        arity: -2,
        flags: Flags::WRITE.with(Flags::FAST),
        keys: &[KeySpec {
            notes: Some("RW and UPDATE because it changes the TTL"),
            flags_for: None,
            ..KeySpec::one(1, KeyFlags::RW.with(KeyFlags::ACCESS).with(KeyFlags::UPDATE))
        }],
        plan: Plan::OneShard(getex),
        since: "6.2.0",
        group: "string",
        summary: "Returns the string value of a key after setting its expiration time.",
        syntax: "key [EX seconds | PX milliseconds | EXAT unix-time-seconds | PXAT unix-time-milliseconds | PERSIST] \
            #expiration",
        ..Command::DEFAULT
    },
    Command {
        name: "msetex",
        arity: -4,
        flags: GROWING.with(Flags::MOVABLEKEYS),
        keys: &[KeySpec {
            flags: KeyFlags::OW.with(KeyFlags::UPDATE),
            begin: 1,
            find: Find::Count { count_at: 0, first: 1, step: 2 },
            notes: None,
            flags_for: None,
        }],
        plan: Plan::Staged { read: count_present, decide: decide_msetex, write: write_msetex },
        check: Some(check_msetex),
        since: "9.1.0",
        group: "string",
        summary: "Atomically creates or modifies the string values of one or more keys, and optionally set their expiration.",
        complexity: "O(N) where N is the number of keys to set.",
        syntax: "numkeys key value [key value ...] #data [NX | XX] #condition [EX seconds | PX milliseconds | EXAT \
            unix-time-seconds | PXAT unix-time-milliseconds | KEEPTTL] #expiration",
        tips: &["request_policy:multi_shard", "response_policy:all_succeeded"],
        ..Command::DEFAULT
    },
    Command {
        name: "delifeq",
        arity: 3,
        flags: Flags::WRITE.with(Flags::FAST),
        keys: &[KeySpec::one(1, KeyFlags::RM.with(KeyFlags::DELETE))],
        plan: Plan::OneShard(delifeq),
        since: "9.0.0",
        group: "string",
        summary: "Delete key if value matches string.",
        syntax: "key value",
        ..Command::DEFAULT
    },
];

/// What happens to a key's deadline.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Deadline {
    /// SET takes it away, GETEX leaves it.
    #[default]
    Unsaid,
    Keep,
    Persist,
    /// In Unix milliseconds.
    At(Millis),
}

/// Under which condition a value is stored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Condition<'a> {
    #[default]
    Always,
    Absent,
    Present,
    Equals(&'a [u8]),
}

/// Options of SET, GETEX and MSETEX.
#[derive(Clone, Copy, Debug, Default)]
struct Options<'a> {
    condition: Condition<'a>,
    deadline: Deadline,
    get: bool,
}

/// A deadline that is still a number and its unit.
#[derive(Clone, Copy)]
struct Span<'a> {
    number: &'a [u8],
    unit_ms: i64,
    relative: bool,
}

impl Span<'_> {
    /// On the engine's clock. Only positive numbers are deadlines.
    fn resolve(self, present: Present, name: &'static str) -> Result<Millis, Error> {
        let number = parse_int(self.number).ok_or(Error::NotInteger)?;
        Some(number)
            .filter(|number| *number > 0)
            .and_then(|number| present.deadline(number, self.unit_ms, self.relative))
            .map(|at| at.max(1) as Millis)
            .ok_or(Error::InvalidExpire(name.into()))
    }
}

/// The longest option is `keepttl`.
const OPTION_LEN_MAX: usize = 7;

/// Which options a command has.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Set,
    GetEx,
    MSetEx,
}

impl Kind {
    const fn name(self) -> &'static str {
        match self {
            Self::Set => "set",
            Self::GetEx => "getex",
            Self::MSetEx => "msetex",
        }
    }
}

/// Reads the options from argument `from` on. Syntax comes before numbers, as in Valkey.
fn parse_options(args: Args<'_>, from: usize, kind: Kind, present: Present) -> Result<Options<'_>, Error> {
    let mut options = Options::default();
    let mut span: Option<Span<'_>> = None;
    let mut idx = from;
    while idx < args.len() {
        let mut lower = [0; OPTION_LEN_MAX];
        let word = lower.get_mut(..args.at(idx).len()).ok_or(Error::Syntax)?;
        word.copy_from_slice(args.at(idx));
        word.make_ascii_lowercase();
        let value = args.get(idx + 1);
        let stores = kind != Kind::GetEx;
        match (&*word, value) {
            (b"nx", _) if stores && matches!(options.condition, Condition::Always | Condition::Absent) => {
                options.condition = Condition::Absent;
            }
            (b"xx", _) if stores && matches!(options.condition, Condition::Always | Condition::Present) => {
                options.condition = Condition::Present;
            }
            (b"ifeq", Some(value)) if kind == Kind::Set && options.condition == Condition::Always => {
                options.condition = Condition::Equals(value);
                idx += 1;
            }
            (b"get", _) if kind == Kind::Set => options.get = true,
            (b"keepttl", _) if stores && span.is_none() => options.deadline = Deadline::Keep,
            (b"persist", _) if kind == Kind::GetEx && span.is_none() => options.deadline = Deadline::Persist,
            (b"ex" | b"px" | b"exat" | b"pxat", Some(number)) if options.deadline == Deadline::Unsaid => {
                let unit_ms = if word[0] == b'e' { 1000 } else { 1 };
                let new = Span { number, unit_ms, relative: word.len() == 2 };
                // A unit may be repeated, the last one counts; two different ones exclude each other.
                if span.is_some_and(|old| (old.unit_ms, old.relative) != (new.unit_ms, new.relative)) {
                    return Err(Error::Syntax);
                }
                span = Some(new);
                idx += 1;
            }
            _ => return Err(Error::Syntax),
        }
        idx += 1;
    }
    if let Some(span) = span {
        options.deadline = Deadline::At(span.resolve(present, kind.name())?);
    }
    Ok(options)
}

/// Sets a key and tells so; `deadline_given` if the deadline is not the one it had.
#[inline]
fn store(
    ctx: &mut Ctx<'_>,
    key: Key<'_>,
    value: NewValue<'_>,
    deadline: Option<Millis>,
    deadline_given: bool,
) {
    if ctx.shard.settings.events == EventClasses::NONE {
        return ctx.set(key, value, deadline);
    }
    let past = deadline.is_some_and(|at| at <= ctx.now);
    let there = ctx.find(key).is_some();
    ctx.set(key, value, deadline);
    if past {
        if there {
            ctx.notify(EventClasses::EXPIRED, "expired", key.bytes);
        }
        return;
    }
    ctx.notify(EventClasses::STRING, "set", key.bytes);
    if deadline_given {
        ctx.notify(EventClasses::GENERIC, "expire", key.bytes);
    }
}

fn set(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply) -> Result<Flow, Error> {
    let key = ctx.key(args.at(1));
    if args.len() == 3 {
        store(ctx, key, args.value(2), None, false);
        reply.ok();
        return Ok(Flow::Done);
    }
    let options = parse_options(args, 3, Kind::Set, ctx.present())?;
    if options.get {
        write_string(ctx, args.at(1), reply)?;
    }
    let (allowed, old_deadline) = match ctx.find(key) {
        None => (matches!(options.condition, Condition::Always | Condition::Absent), None),
        Some(entry) => {
            let allowed = match options.condition {
                Condition::Always | Condition::Present => true,
                Condition::Absent => false,
                Condition::Equals(value) => entry.string().ok_or(Error::WrongType)? == value,
            };
            (allowed, entry.expiry())
        }
    };
    if allowed {
        let deadline = match options.deadline {
            Deadline::At(at) => Some(at),
            Deadline::Keep => old_deadline,
            Deadline::Unsaid | Deadline::Persist => None,
        };
        store(ctx, key, args.value(2), deadline, matches!(options.deadline, Deadline::At(_)));
    } else if !options.get {
        // An access, though nothing has changed.
        ctx.find_to_change(key);
    }
    if !options.get {
        if allowed { reply.ok() } else { reply.null() }
    }
    Ok(Flow::Done)
}

fn setnx(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply) -> Result<Flow, Error> {
    let key = ctx.key(args.at(1));
    let free = ctx.find_to_change(key).is_none();
    if free {
        store(ctx, key, args.value(2), None, false);
    }
    reply.int(free.into());
    Ok(Flow::Done)
}

fn setex(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply,
    name: &'static str,
    unit_ms: i64,
) -> Result<Flow, Error> {
    let span = Span { number: args.at(2), unit_ms, relative: true };
    let at = span.resolve(ctx.present(), name)?;
    let key = ctx.key(args.at(1));
    store(ctx, key, args.value(3), Some(at), true);
    reply.ok();
    Ok(Flow::Done)
}

fn getset(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply) -> Result<Flow, Error> {
    write_string(ctx, args.at(1), reply)?;
    let key = ctx.key(args.at(1));
    store(ctx, key, args.value(2), None, false);
    Ok(Flow::Done)
}

fn getex(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply) -> Result<Flow, Error> {
    let options = parse_options(args, 2, Kind::GetEx, ctx.present())?;
    write_string(ctx, args.at(1), reply)?;
    let key = ctx.key(args.at(1));
    match options.deadline {
        Deadline::At(at) => {
            if ctx.shard.keyspace.set_expiry(ctx.db, key, Some(at), ctx.now) {
                ctx.notify_deadline(key, at);
            }
        }
        Deadline::Persist => {
            if ctx.find(key).is_some_and(|entry| entry.expiry().is_some()) {
                ctx.shard.keyspace.set_expiry(ctx.db, key, None, ctx.now);
                ctx.notify(EventClasses::GENERIC, "persist", key.bytes);
            }
        }
        Deadline::Unsaid | Deadline::Keep => {}
    }
    Ok(Flow::Done)
}

/// Where MSETEX's options begin.
fn msetex_options(args: Args<'_>) -> Result<usize, Error> {
    let count = parse_int(args.at(1))
        .filter(|count| (1..=i64::from(i32::MAX)).contains(count))
        .ok_or(Error::text("ERR invalid numkeys value or out of range"))?;
    let options = 2 + 2 * count as usize;
    if options > args.len() { Err(Error::Syntax) } else { Ok(options) }
}

/// Any time of ours, so that what overflows with it overflows later too.
const SOME_TIME: Present = Present { now: 1 << 41, wall: WallClock::ahead_by(0) };

/// A deadline only has to be valid here; which moment it names is decided where it is written.
fn check_msetex(args: Args<'_>, _: &Settings) -> Result<(), Error> {
    parse_options(args, msetex_options(args)?, Kind::MSetEx, SOME_TIME).map(|_| ())
}

fn decide_msetex(decide: &mut Decide<'_>) -> Next {
    if decide.stage == 1 {
        decide.reply.int(1);
        return Next::Reply;
    }
    let present: i64 = decide.results.iter().map(|result| result.int()).sum();
    let keys: usize = decide.results.iter().map(|result| result.keys.len()).sum();
    let options = msetex_options(decide.args)
        .and_then(|from| parse_options(decide.args, from, Kind::MSetEx, SOME_TIME));
    let allowed = match options.map(|options| options.condition) {
        Ok(Condition::Absent) => present == 0,
        Ok(Condition::Present) => present as usize == keys,
        _ => true,
    };
    if allowed {
        return Next::Run { stage: 1, on: On::All, payload: Payload::None };
    }
    decide.reply.int(0);
    Next::Reply
}

fn write_msetex(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply) -> Result<Flow, Error> {
    let options = parse_options(args, msetex_options(args)?, Kind::MSetEx, ctx.present())?;
    for idx in ctx.keys.indices() {
        let key = ctx.key(args.at(idx));
        let deadline = match options.deadline {
            Deadline::At(at) => Some(at),
            Deadline::Keep => ctx.find(key).and_then(|entry| entry.expiry()),
            Deadline::Unsaid | Deadline::Persist => None,
        };
        store(ctx, key, args.value(idx + 1), deadline, matches!(options.deadline, Deadline::At(_)));
    }
    reply.ok();
    Ok(Flow::Done)
}

fn delifeq(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply) -> Result<Flow, Error> {
    let key = ctx.key(args.at(1));
    let equal = match ctx.find_to_change(key) {
        None => false,
        Some(entry) => entry.string().ok_or(Error::WrongType)? == args.at(2),
    };
    if equal {
        ctx.remove(key);
        ctx.notify(EventClasses::GENERIC, "del", key.bytes);
    }
    reply.int(equal.into());
    Ok(Flow::Done)
}

#[cfg(test)]
mod tests {
    use crate::commands::testing::check_all;

    #[test]
    fn set_keeps_to_its_conditions() {
        check_all(&[
            ("SET k 1 XX\nSET k 1 NX\nSET k 2 NX\nGET k", "nil\n+OK\nnil\n\"1\""),
            ("SET k 2 XX GET\nSET k 3 nx get\nGET k", "\"1\"\n\"2\"\n\"2\""),
            ("SET k 3 IFEQ x\nSET k 3 IFEQ 2\nSET k 4 IFEQ 3 GET\nSET n 1 IFEQ x", "nil\n+OK\n\"3\"\nnil"),
            ("SETNX k 1\nSETNX n 1\nGETSET k 5\nGETSET new 1", ":0\n:1\n\"4\"\nnil"),
            ("DELIFEQ k 4\nDELIFEQ k 5\nDELIFEQ k 5", ":0\n:1\n:0"),
        ]);
    }

    #[test]
    fn deadlines_are_set_kept_and_dropped() {
        check_all(&[
            ("SET k v EX 10\nTTL k\nSET k w KEEPTTL\nTTL k\nSET k v\nTTL k", "+OK\n:10\n+OK\n:10\n+OK\n:-1"),
            ("SETEX k 20 v\nTTL k\nPSETEX k 1500 v\nPTTL k", "+OK\n:20\n+OK\n:1500"),
            (
                "GETEX k\nPTTL k\nGETEX k PERSIST\nTTL k\nGETEX k PX 7\nPTTL k",
                "\"v\"\n:1500\n\"v\"\n:-1\n\"v\"\n:7",
            ),
            ("SET k v PXAT 1700000000009\nPTTL k\nSET k v EXAT 1\nEXISTS k", "+OK\n:9\n+OK\n:0"),
            (
                "MSETEX 2 a 1 b 2 EX 10\nTTL a\nTTL b\nMSETEX 2 a 3 c 4 KEEPTTL\nTTL a\nTTL c",
                ":1\n:10\n:10\n:1\n:10\n:-1",
            ),
            (
                "MSETEX 2 a 5 x 5 NX\nMSETEX 2 a 5 x 5 XX\nMSETEX 2 a 5 b 5 XX\nMGET a b",
                ":0\n:0\n:1\n[\"5\", \"5\"]",
            ),
        ]);
    }

    #[test]
    fn bad_options_are_refused_as_in_valkey() {
        let syntax = "-ERR syntax error";
        for command in [
            "SET k v foo",
            "SET k v NX XX",
            "SET k v NX IFEQ v",
            "SET k v IFEQ",
            "SET k v EX",
            "SET k v EX 10 PX 10",
            "SET k v EX 10 KEEPTTL",
            "SET k v PERSIST",
            "GETEX k EX 10 PERSIST",
            "GETEX x foo",
            "MSETEX 2 a 1",
            "MSETEX 1 a 1 NX XX",
            "MSETEX 1 a 1 b",
            "MSETEX 1 a 1 GET",
        ] {
            check_all(&[(command, syntax)]);
        }
        let numkeys = "-ERR invalid numkeys value or out of range";
        check_all(&[
            ("SET k v EX a", "-ERR value is not an integer or out of range"),
            ("SET k v EX 0", "-ERR invalid expire time in 'set' command"),
            ("SET k v PX 9223372036854775807", "-ERR invalid expire time in 'set' command"),
            ("SETEX k 0 v", "-ERR invalid expire time in 'setex' command"),
            ("PSETEX k -1 v", "-ERR invalid expire time in 'psetex' command"),
            ("GETEX x EX 0", "-ERR invalid expire time in 'getex' command"),
            ("MSETEX 1 a 1 EX 0", "-ERR invalid expire time in 'msetex' command"),
            ("MSETEX 0 a 1", numkeys),
            ("MSETEX a a 1", numkeys),
            ("MSETEX 1000000000000 a 1", numkeys),
            ("MSETEX 1 a", "-ERR wrong number of arguments for 'msetex' command"),
        ]);
    }
}
