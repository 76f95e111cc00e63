//! Counting different elements: HyperLogLogs in strings, on whatever shards they are.
//!
//! Where all keys are on one shard, the registers are read where they are. Otherwise each shard brings its own together, and ships
//! one byte for each register.

use crate::args::Args;
use crate::command::{Command, Flags, Flow, KeyFlags, KeySpec, Merge, Plan};
use crate::ctx::{Ctx, Decide, Next, On, PartResult, Payload, SessionCtx, write_error};
use crate::errors::Error;
use crate::events::EventClasses;
use crate::keyspace::{Detached, Key, NewValue, StringForm, Value};
use crate::values::hyperloglog::{self as hll, Corrupt, Encoding, REGISTERS, Registers};
use bytes::Bytes;
use corelane_resp::{Mark, Reply};

/// What all of them have in common.
const HYPERLOGLOG: Command = Command { group: "hyperloglog", since: "2.8.9", ..Command::DEFAULT };

pub(super) const COMMANDS: &[Command] = &[
    Command {
        name: "pfadd",
        arity: -2,
        flags: Flags::WRITE.with(Flags::DENYOOM).with(Flags::FAST),
        keys: &[KeySpec::one(1, KeyFlags::RW.with(KeyFlags::INSERT))],
        plan: Plan::OneShard(pfadd),
        summary: "Adds elements to a HyperLogLog key. Creates the key if it doesn't exist.",
        complexity: "O(1) for each element",
        syntax: "key [element ...]",
        ..HYPERLOGLOG
    },
    Command {
        name: "pfcount",
        arity: -2,
        flags: Flags::READONLY.with(Flags::MAY_REPLICATE),
        keys: &[KeySpec {
            notes: Some(
                "RW because it may change the internal representation of the key, and propagate to replicas",
            ),
            ..KeySpec::all_from(1, 1, KeyFlags::RW.with(KeyFlags::ACCESS))
        }],
        plan: Plan::EachShard { part: count_part, merge: Merge::With(merge_counts) },
        summary: "Returns the approximated cardinality of the set(s) observed by the HyperLogLog key(s).",
        complexity: "O(1) for one key whose count is known, O(N) with N keys otherwise",
        syntax: "key [key ...]",
        ..HYPERLOGLOG
    },
    Command {
        name: "pfmerge",
        arity: -2,
        flags: Flags::WRITE.with(Flags::DENYOOM),
        keys: &[
            KeySpec::one(1, KeyFlags::RW.with(KeyFlags::ACCESS).with(KeyFlags::INSERT)),
            KeySpec::all_from(2, 1, KeyFlags::RO.with(KeyFlags::ACCESS)),
        ],
        plan: Plan::Staged { read: read_to_merge, decide: decide_merge, write: merge_shares },
        summary: "Merges one or more HyperLogLog values into a single key.",
        complexity: "O(N) with N keys",
        syntax: "destkey [sourcekey ...]",
        ..HYPERLOGLOG
    },
    Command {
        name: "pfdebug",
        arity: 3,
        flags: Flags::WRITE.with(Flags::DENYOOM).with(Flags::ADMIN),
        keys: &[KeySpec::one(2, KeyFlags::RW.with(KeyFlags::ACCESS))],
        plan: Plan::OneShard(pfdebug),
        summary: "Internal commands for debugging HyperLogLog values.",
        syntax: "subcommand key",
        doc_flags: &["syscmd"],
        ..HYPERLOGLOG
    },
    Command {
        name: "pfselftest",
        arity: 1,
        flags: Flags::ADMIN,
        plan: Plan::Session(pfselftest),
        summary: "An internal command for testing HyperLogLog values.",
        doc_flags: &["syscmd"],
        ..HYPERLOGLOG
    },
];

const fn corrupt(_: Corrupt) -> Error {
    Error::text("INVALIDOBJ Corrupted HLL object detected")
}

/// The string of a key, which has to be a HyperLogLog.
fn checked(string: Option<&[u8]>) -> Result<(&[u8], Encoding), Error> {
    let bytes = string.ok_or(Error::WrongType)?;
    let encoding = hll::encoding(bytes);
    let encoding = encoding.ok_or(Error::text("WRONGTYPE Key is not a valid HyperLogLog string value."))?;
    Ok((bytes, encoding))
}

/// Looks at the HyperLogLog of a key that is about to be changed; `None` where there is none.
fn look<T>(
    ctx: &mut Ctx<'_>,
    key: Key<'_>,
    look: impl FnOnce(&[u8], Encoding) -> Result<T, Error>,
) -> Result<Option<T>, Error> {
    let Some(entry) = ctx.shard.keyspace.find_to_change(ctx.db, key, ctx.now) else { return Ok(None) };
    let (bytes, encoding) = checked(entry.string())?;
    look(bytes, encoding).map(Some)
}

/// Changes the HyperLogLog of a key, which is there.
fn edit<T>(ctx: &mut Ctx<'_>, key: Key<'_>, change: impl FnOnce(&mut Vec<u8>) -> T) -> T {
    let mut result = None;
    ctx.shard.keyspace.edit_string(ctx.db, key, |bytes| {
        result = Some(change(bytes));
        true
    });
    result.expect("the key is there")
}

fn pfadd(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply) -> Result<Flow, Error> {
    let key = ctx.key(args.at(1));
    let places = || args.iter_from(2).map(hll::place);
    let changes = look(ctx, key, |bytes, _| {
        let mut changes = false;
        for (register, rank) in places() {
            changes = changes || hll::is_below(bytes, register, rank).map_err(corrupt)?;
        }
        Ok(changes)
    })?;
    match changes {
        None => ctx.set(key, NewValue::Slice(&hll::empty()), None),
        Some(true) => {}
        Some(false) => {
            reply.int(0);
            return Ok(Flow::Done);
        }
    }
    let sparse_max = ctx.shard.settings.hll_sparse_max_bytes;
    edit(ctx, key, |bytes| {
        hll::forget_count(bytes);
        places().try_for_each(|(register, rank)| hll::raise(bytes, register, rank, sparse_max).map(|_| ()))
    })
    .map_err(corrupt)?;
    ctx.notify(EventClasses::STRING, "pfadd", args.at(1));
    reply.int(1);
    Ok(Flow::Done)
}

/// The registers of several keys together, and whether one of these is dense.
#[derive(Debug)]
struct Together {
    registers: Box<Registers>,
    dense: bool,
}

impl Together {
    fn new() -> Self {
        Self { registers: Box::new([0; REGISTERS]), dense: false }
    }

    /// Those of all keys that are handled here, for which there must be no others where `all_here`. Otherwise those are shipped,
    /// or the first error with its key's index, since that of the first key of all counts.
    fn of_keys(
        ctx: &mut Ctx<'_>,
        args: Args<'_>,
        reply: &mut Reply,
        all_here: bool,
    ) -> Result<Option<Self>, Error> {
        let mut together = Self::new();
        for idx in ctx.keys.indices() {
            match together.add(ctx, args.at(idx)) {
                Err(error) if all_here => return Err(error),
                Err(error) => {
                    write_error(&error, reply);
                    ctx.elements = idx as u64;
                    return Ok(None);
                }
                Ok(()) => {}
            }
        }
        if all_here {
            return Ok(Some(together));
        }
        ctx.payload = together.ship();
        Ok(None)
    }

    fn add(&mut self, ctx: &mut Ctx<'_>, name: &[u8]) -> Result<(), Error> {
        let key = ctx.key(name);
        let Some(entry) = ctx.lookup(key) else { return Ok(()) };
        let (bytes, encoding) = checked(entry.string())?;
        self.dense |= encoding == Encoding::Dense;
        hll::merge(&mut self.registers, bytes).map_err(corrupt)
    }

    fn ship(self) -> Payload {
        let value = Value::String(Bytes::from(self.registers as Box<[u8]>));
        let content = Detached { value, expiry: None, form: StringForm::Raw };
        Payload::Values(vec![(u32::from(self.dense), content)])
    }

    /// Takes in what other shards have shipped.
    fn receive(&mut self, payload: &Payload) {
        let Payload::Values(values) = payload else { return };
        for (dense, content) in values {
            let Value::String(registers) = &content.value else { continue };
            self.dense |= *dense != 0;
            for (highest, rank) in self.registers.iter_mut().zip(registers) {
                *highest = (*highest).max(*rank);
            }
        }
    }
}

fn count_part(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply) -> Result<Flow, Error> {
    if args.len() == 2 {
        let count = count_of_key(ctx, args.at(1))?;
        reply.int(count as i64);
        return Ok(Flow::Done);
    }
    let all_here = ctx.keys.len() + 1 == args.len();
    if let Some(together) = Together::of_keys(ctx, args, reply, all_here)? {
        reply.int(hll::count_of(&together.registers) as i64);
    }
    Ok(Flow::Done)
}

/// The count of one key, which is noted in it.
fn count_of_key(ctx: &mut Ctx<'_>, name: &[u8]) -> Result<u64, Error> {
    let key = ctx.key(name);
    let mut registers = Box::new([0; REGISTERS]);
    {
        let Some(entry) = ctx.lookup(key) else { return Ok(0) };
        let (bytes, _) = checked(entry.string())?;
        if let Some(count) = hll::noted_count(bytes) {
            return Ok(count);
        }
        hll::merge(&mut registers, bytes).map_err(corrupt)?;
    }
    let count = hll::count_of(&registers);
    edit(ctx, key, |bytes| hll::note_count(bytes, count));
    Ok(count)
}

/// The part with the first key of those that cannot be read.
fn first_failed(parts: &[PartResult]) -> Option<&PartResult> {
    parts.iter().filter(|part| part.failed || part.elements > 0).min_by_key(|part| part.elements)
}

fn merge_counts(parts: &[PartResult], _: Args<'_>, reply: &mut Reply) {
    if let [whole] = parts {
        return reply.append_range(&whole.reply, Mark::default(), whole.reply.mark());
    }
    if let Some(failed) = first_failed(parts) {
        return reply.append_range(&failed.reply, Mark::default(), failed.reply.mark());
    }
    let mut together = Together::new();
    parts.iter().for_each(|part| together.receive(&part.payload));
    reply.int(hll::count_of(&together.registers) as i64);
}

/// Where the result goes.
const DESTINATION: usize = 1;

fn read_to_merge(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply) -> Result<Flow, Error> {
    let all_here = ctx.keys.len() + DESTINATION == args.len();
    if let Some(together) = Together::of_keys(ctx, args, reply, all_here)? {
        store(ctx, args, &together)?;
    }
    Ok(Flow::Done)
}

fn decide_merge(decide: &mut Decide<'_>) -> Next {
    if let Some(failed) = first_failed(decide.results) {
        decide.reply.append_range(&failed.reply, Mark::default(), failed.reply.mark());
        return Next::Reply;
    }
    let mut values = Vec::new();
    for result in decide.results.iter_mut() {
        if let Payload::Values(own) = std::mem::take(&mut result.payload) {
            values.extend(own);
        }
    }
    if values.is_empty() {
        decide.reply.ok();
        return Next::Reply;
    }
    Next::Run { stage: 1, on: On::Key(DESTINATION), payload: Payload::Values(values) }
}

fn merge_shares(ctx: &mut Ctx<'_>, args: Args<'_>, _: &mut Reply) -> Result<Flow, Error> {
    let mut together = Together::new();
    together.receive(&std::mem::take(&mut ctx.payload));
    store(ctx, args, &together)?;
    Ok(Flow::Done)
}

/// Raises the destination's registers, register by register, to these, its own among them.
fn store(ctx: &mut Ctx<'_>, args: Args<'_>, together: &Together) -> Result<(), Error> {
    let key = ctx.key(args.at(DESTINATION));
    if ctx.find(key).is_none() {
        ctx.set(key, NewValue::Slice(&hll::empty()), None);
    }
    let sparse_max = ctx.shard.settings.hll_sparse_max_bytes;
    edit(ctx, key, |bytes| {
        if together.dense {
            hll::make_dense(bytes)?;
        }
        for (register, rank) in together.registers.iter().enumerate().filter(|(_, rank)| **rank > 0) {
            hll::raise(bytes, register, *rank, sparse_max)?;
        }
        hll::forget_count(bytes);
        Ok(())
    })
    .map_err(corrupt)?;
    ctx.notify(EventClasses::STRING, "pfadd", args.at(DESTINATION));
    Ok(())
}

fn pfdebug(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply) -> Result<Flow, Error> {
    let key = ctx.key(args.at(2));
    let get_registers = args.is(1, "GETREG");
    let mut registers = Box::new([0; REGISTERS]);
    let encoding = look(ctx, key, |bytes, encoding| {
        if get_registers {
            hll::merge(&mut registers, bytes).map_err(corrupt)?;
        } else if args.is(1, "DECODE") && encoding == Encoding::Sparse {
            reply.bulk(hll::decoded(bytes).as_bytes());
        }
        Ok(encoding)
    })?;
    let encoding = encoding.ok_or(Error::text("ERR The specified key does not exist"))?;
    if get_registers || args.is(1, "TODENSE") {
        let changes = encoding == Encoding::Sparse;
        if changes {
            edit(ctx, key, hll::make_dense).map_err(corrupt)?;
        }
        if !get_registers {
            reply.int(changes.into());
            return Ok(Flow::Done);
        }
        reply.array(REGISTERS);
        registers.iter().for_each(|rank| reply.int((*rank).into()));
    } else if args.is(1, "ENCODING") {
        reply.simple(if encoding == Encoding::Dense { "dense" } else { "sparse" });
    } else if !args.is(1, "DECODE") {
        return Err(Error::echo("ERR Unknown PFDEBUG subcommand '", args.at(1), "'"));
    } else if encoding == Encoding::Dense {
        return Err(Error::text("ERR HLL encoding is not sparse"));
    }
    Ok(Flow::Done)
}

/// Adds numbers to one that stays sparse as long as it can and to one that is dense, and compares registers and counts.
fn pfselftest(_: &mut SessionCtx<'_>, _: Args<'_>, reply: &mut Reply) -> Result<(), Error> {
    const NUMBERS: u64 = 20_000;
    /// Of the count, in units of its standard error.
    const ERROR_MAX: f64 = 5.0;
    const STANDARD_ERROR: f64 = 1.04 / 128.0;
    let failed =
        |what: &str, number: u64| Error::owned(format!("ERR TESTFAILED {what} after {number} elements"));
    let (mut sparse, mut dense, mut model) = (hll::empty(), hll::empty(), Box::new([0u8; REGISTERS]));
    hll::make_dense(&mut dense).map_err(corrupt)?;
    for number in 1..=NUMBERS {
        let (register, rank) = hll::place(&number.to_le_bytes());
        model[register] = model[register].max(rank);
        hll::raise(&mut sparse, register, rank, usize::MAX).map_err(corrupt)?;
        hll::raise(&mut dense, register, rank, usize::MAX).map_err(corrupt)?;
        if number.is_power_of_two() || number == NUMBERS {
            for bytes in [&sparse, &dense] {
                let mut registers = Box::new([0; REGISTERS]);
                hll::merge(&mut registers, bytes).map_err(corrupt)?;
                if registers != model {
                    return Err(failed("Register mismatch", number));
                }
                let off = hll::count_of(&registers).abs_diff(number) as f64;
                if off > (number as f64 * STANDARD_ERROR * ERROR_MAX).max(2.0) {
                    return Err(failed("Too large an error", number));
                }
            }
        }
    }
    reply.ok();
    Ok(())
}

#[cfg(test)]
mod tests {
    use crate::commands::testing::{Bench, check_all};

    const INVALID: &str = "-WRONGTYPE Key is not a valid HyperLogLog string value.";

    #[test]
    fn elements_are_counted_once_and_merged() {
        check_all(&[
            ("PFADD a x y z\nPFADD a x y\nPFADD a\nPFADD b\nPFCOUNT a\nPFCOUNT b", ":1\n:0\n:0\n:1\n:3\n:0"),
            ("PFADD b z 1 2\nPFCOUNT a b\nPFCOUNT a b c none\nPFCOUNT none", ":1\n:5\n:5\n:0"),
            (
                "PFMERGE d a b none\nPFCOUNT d\nPFMERGE a\nPFCOUNT a\nPFMERGE e\nEXISTS e",
                "+OK\n:5\n+OK\n:3\n+OK\n:1",
            ),
            (
                "PFDEBUG ENCODING d\nPFDEBUG TODENSE b\nPFMERGE d b\nPFDEBUG ENCODING d",
                "+sparse\n:1\n+OK\n+dense",
            ),
            ("PFCOUNT d\nOBJECT ENCODING d\nPFSELFTEST", ":5\n\"raw\"\n+OK"),
            (
                "SET s v\nPFADD s x\nPFCOUNT s a\nPFMERGE a s",
                &format!("+OK\n{INVALID}\n{INVALID}\n{INVALID}"),
            ),
        ]);
    }

    #[test]
    fn counts_over_shards_are_those_of_one() {
        let counts = [1, 2, 5].map(|shards| {
            let mut bench = Bench::new(shards);
            for n in 0..3000 {
                bench.run(&format!("PFADD key:{} {n}", n % 7));
            }
            let keys: Vec<String> = (0..7).map(|n| format!("key:{n}")).collect();
            bench.run(&format!("PFMERGE all {}", keys.join(" ")));
            bench.run(&format!(
                "PFCOUNT {}\nPFCOUNT all\nPFCOUNT key:1\nPFDEBUG ENCODING key:1",
                keys.join(" ")
            ))
        });
        assert!(counts.iter().all(|count| *count == counts[0]), "{counts:?}");
        let count: u64 = counts[0].lines().next().unwrap()[1..].parse().unwrap();
        assert!(count.abs_diff(3000) < 100, "{count}");
    }

    #[test]
    fn a_count_that_is_noted_is_no_change_until_it_is_out_of_date() {
        check_all(&[
            ("PFADD a x\nWATCH a\nPFADD a x\nMULTI\nPING\nEXEC", ":1\n+OK\n:0\n+OK\n+QUEUED\n[+PONG]"),
            (
                "GETRANGE a 8 15\nPFCOUNT a\nGETRANGE a 8 15",
                "\"\\x00\\x00\\x00\\x00\\x00\\x00\\x00\\x80\"\n:1\n\"\\x01\\x00\\x00\\x00\\x00\\x00\\x00\\x00\"",
            ),
            ("WATCH a\nPFCOUNT a\nMULTI\nPING\nEXEC", "+OK\n:1\n+OK\n+QUEUED\n[+PONG]"),
        ]);
    }
}
