//! BITFIELD and BITFIELD_RO: integers of any width up to 64 bits anywhere in a string.

use super::bitmap::{BITMAP, bit_offset, edit_to_len, read_string};
use crate::args::Args;
use crate::command::{Command, Flags, Flow, KeyFlags, KeySpec, Plan};
use crate::ctx::Ctx;
use crate::errors::Error;
use corelane_resp::Reply;

pub(super) const COMMANDS: &[Command] = &[
    Command {
        name: "bitfield",
        arity: -2,
        flags: Flags::WRITE.with(Flags::DENYOOM),
        keys: &[KeySpec {
            notes: Some("This command allows both access and modification of the key"),
            flags_for: Some(key_flags),
            ..KeySpec::one(1, CHANGED.with(KeyFlags::VARIABLE_FLAGS))
        }],
        plan: Plan::OneShard(bitfield),
        since: "3.2.0",
        summary: "Performs arbitrary bitfield integer operations on strings.",
        complexity: "O(1) for each operation",
        syntax: "key [( GET ( encoding offset ) #get-block | ( [OVERFLOW ( WRAP | SAT | FAIL ) #overflow-block] \
            ( SET ( encoding offset value ) #set-block | INCRBY ( encoding offset increment ) #incrby-block ) #write-operation ) \
            #write ) #operation ...]",
        ..BITMAP
    },
    Command {
        name: "bitfield_ro",
        arity: -2,
        flags: Flags::READONLY.with(Flags::FAST),
        keys: &[KeySpec::one(1, READ)],
        plan: Plan::OneShard(bitfield_ro),
        since: "6.0.0",
        summary: "Performs arbitrary read-only bitfield integer operations on strings.",
        complexity: "O(1) for each operation",
        syntax: "key [GET ( encoding offset ) #get-block ...]",
        ..BITMAP
    },
];

const READ: KeyFlags = KeyFlags::RO.with(KeyFlags::ACCESS);
const CHANGED: KeyFlags = KeyFlags::RW.with(KeyFlags::ACCESS).with(KeyFlags::UPDATE);

/// Whether operations that are syntactically right only read.
fn key_flags(args: Args<'_>) -> KeyFlags {
    let mut idx = 2;
    while idx < args.len() {
        let left = args.len() - idx - 1;
        if args.is(idx, "GET") && left >= 2 {
            idx += 3;
        } else if args.is(idx, "OVERFLOW") && left >= 1 {
            idx += 2;
        } else {
            return CHANGED;
        }
    }
    READ
}

/// The type of a field.
#[derive(Clone, Copy, Debug)]
struct Encoding {
    signed: bool,
    bits: u32,
}

impl Encoding {
    fn parse(text: &[u8]) -> Result<Self, Error> {
        let parsed = match text {
            [sign @ (b'i' | b'u'), digits @ ..] => {
                crate::args::parse_int(digits).map(|bits| (*sign == b'i', bits))
            }
            _ => None,
        };
        match parsed {
            Some((signed, bits)) if (1..=if signed { 64 } else { 63 }).contains(&bits) => {
                Ok(Self { signed, bits: bits as u32 })
            }
            _ => Err(Error::text(
                "ERR Invalid bitfield type. Use something like i16 u8. Note that u64 is not supported but i64 is.",
            )),
        }
    }

    /// The smallest and the greatest value.
    const fn range(self) -> (i128, i128) {
        if self.signed {
            (-(1 << (self.bits - 1)), (1 << (self.bits - 1)) - 1)
        } else {
            (0, (1 << self.bits) - 1)
        }
    }

    /// The value of the lowest bits.
    const fn of_bits(self, bits: u64) -> i64 {
        let unused = u64::BITS - self.bits;
        if self.signed { ((bits << unused) as i64) >> unused } else { (bits << unused >> unused) as i64 }
    }

    fn read(self, bytes: &[u8], offset: usize) -> i64 {
        let bit = |at: usize| bytes.get(at / 8).map_or(0, |byte| u64::from(byte >> (7 - at % 8) & 1));
        self.of_bits((offset..offset + self.bits as usize).fold(0, |word, at| word << 1 | bit(at)))
    }

    fn write(self, bytes: &mut [u8], offset: usize, value: i64) {
        for n in 0..self.bits as usize {
            let (at, mask) = (offset + n, 0x80 >> ((offset + n) % 8));
            let set = value >> (self.bits as usize - 1 - n) & 1 != 0;
            let byte = &mut bytes[at / 8];
            *byte = if set { *byte | mask } else { *byte & !mask };
        }
    }

    /// The value that is kept for a new one; `None` where it does not fit and is to be refused.
    fn fit(self, value: i128, overflow: Overflow) -> Option<i64> {
        let (min, max) = self.range();
        if (min..=max).contains(&value) {
            return Some(value as i64);
        }
        match overflow {
            Overflow::Wrap => Some(self.of_bits(value as u64)),
            Overflow::Saturate => Some(value.clamp(min, max) as i64),
            Overflow::Fail => None,
        }
    }
}

#[derive(Clone, Copy, Debug)]
enum Overflow {
    Wrap,
    Saturate,
    Fail,
}

#[derive(Clone, Copy, Debug)]
enum Action {
    Get,
    Set(i64, Overflow),
    Add(i64, Overflow),
}

/// One operation.
#[derive(Clone, Copy, Debug)]
struct Operation {
    encoding: Encoding,
    offset: usize,
    action: Action,
}

impl Operation {
    fn parse_all(ctx: &Ctx<'_>, args: Args<'_>) -> Result<Vec<Self>, Error> {
        let (mut operations, mut overflow, mut idx) = (Vec::new(), Overflow::Wrap, 2);
        while idx < args.len() {
            let left = args.len() - idx - 1;
            if args.is(idx, "OVERFLOW") && left >= 1 {
                overflow = match () {
                    () if args.is(idx + 1, "WRAP") => Overflow::Wrap,
                    () if args.is(idx + 1, "SAT") => Overflow::Saturate,
                    () if args.is(idx + 1, "FAIL") => Overflow::Fail,
                    () => return Err(Error::text("ERR Invalid OVERFLOW type specified")),
                };
                idx += 2;
                continue;
            }
            let (gets, sets) = (args.is(idx, "GET") && left >= 2, args.is(idx, "SET"));
            if !gets && !((sets || args.is(idx, "INCRBY")) && left >= 3) {
                return Err(Error::Syntax);
            }
            let encoding = Encoding::parse(args.at(idx + 1))?;
            let offset = bit_offset(ctx, args.at(idx + 2), Some(encoding.bits.into()))?;
            let action = match () {
                () if gets => Action::Get,
                () if sets => Action::Set(args.int(idx + 3)?, overflow),
                () => Action::Add(args.int(idx + 3)?, overflow),
            };
            operations.push(Self { encoding, offset, action });
            idx += if gets { 3 } else { 4 };
        }
        Ok(operations)
    }

    /// Bytes that a string needs for it if it writes.
    const fn len_needed(&self) -> usize {
        match self.action {
            Action::Get => 0,
            _ => (self.offset + self.encoding.bits as usize).div_ceil(8),
        }
    }

    /// Performs it and writes its reply; true if it has changed something.
    fn run(&self, bytes: &mut [u8], reply: &mut Reply) -> bool {
        let old = self.encoding.read(bytes, self.offset);
        let (value, overflow) = match self.action {
            Action::Get => {
                reply.int(old);
                return false;
            }
            Action::Set(value, overflow) if self.encoding.signed => (i128::from(value), overflow),
            Action::Set(value, overflow) => (i128::from(value as u64), overflow),
            Action::Add(by, overflow) => (i128::from(old) + i128::from(by), overflow),
        };
        let Some(new) = self.encoding.fit(value, overflow) else {
            reply.null();
            return false;
        };
        self.encoding.write(bytes, self.offset, new);
        reply.int(if matches!(self.action, Action::Set(..)) { old } else { new });
        old != new
    }
}

fn bitfield(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply) -> Result<Flow, Error> {
    let operations = Operation::parse_all(ctx, args)?;
    let len = operations.iter().map(Operation::len_needed).max().unwrap_or(0);
    if len == 0 {
        return read_fields(ctx, args, &operations, reply);
    }
    let mut replies = Reply::new(reply.proto());
    edit_to_len(ctx, args.at(1), len, |bytes| {
        operations.iter().fold(false, |changed, operation| operation.run(bytes, &mut replies) | changed)
    })?;
    reply.array(operations.len());
    reply.append(&mut replies);
    Ok(Flow::Done)
}

fn bitfield_ro(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply) -> Result<Flow, Error> {
    let operations = Operation::parse_all(ctx, args)?;
    if operations.iter().any(|operation| operation.len_needed() != 0) {
        return Err(Error::text("ERR BITFIELD_RO only supports the GET subcommand"));
    }
    read_fields(ctx, args, &operations, reply)
}

fn read_fields(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    operations: &[Operation],
    reply: &mut Reply,
) -> Result<Flow, Error> {
    read_string(ctx, args.at(1), |text| {
        reply.array(operations.len());
        for operation in operations {
            reply.int(operation.encoding.read(text.unwrap_or_default(), operation.offset));
        }
    })?;
    Ok(Flow::Done)
}

#[cfg(test)]
mod tests {
    use super::Encoding;
    use crate::commands::testing::check_all;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn what_is_written_is_read_and_nothing_else_changes(
            mut bytes in prop::collection::vec(any::<u8>(), 20), offset in 0..90usize,
            (signed, bits) in (any::<bool>(), 1..64u32), value in any::<u64>(),
        ) {
            let encoding = Encoding { signed, bits };
            let (before, value) = (bytes.clone(), encoding.of_bits(value));
            encoding.write(&mut bytes, offset, value);
            prop_assert_eq!(encoding.read(&bytes, offset), value);
            let bit = |bytes: &[u8], at: usize| bytes[at / 8] >> (7 - at % 8) & 1;
            let outside = (0..160).filter(|at| *at < offset || *at >= offset + bits as usize);
            prop_assert!(outside.clone().all(|at| bit(&bytes, at) == bit(&before, at)));
        }
    }

    #[test]
    fn fields_overflow_as_asked() {
        check_all(&[
            ("BITFIELD k SET u8 0 255 INCRBY u8 0 10 GET i4 4", "[:0, :9, :-7]"),
            ("BITFIELD k OVERFLOW FAIL INCRBY u8 0 250 OVERFLOW SAT INCRBY u8 0 250", "[nil, :255]"),
            ("BITFIELD k INCRBY i8 0 -100 GET u8 #1", "[:-101, :0]"),
            ("BITFIELD none GET u8 0\nEXISTS none\nBITFIELD none", "[:0]\n:0\n[]"),
            ("BITFIELD w OVERFLOW FAIL SET u8 100 300\nSTRLEN w", "[nil]\n:14"),
            (
                "BITFIELD_RO k GET u8 0\nBITFIELD_RO k SET u8 0 1",
                "[:155]\n-ERR BITFIELD_RO only supports the GET subcommand",
            ),
        ]);
    }
}
