//! Strings as arrays of bits: setting, reading, counting and finding them. Bit 0 is the highest of the first byte.

use super::string::string_len;
use crate::args::Args;
use crate::command::{Command, Flags, Flow, KeyFlags, KeySpec, Plan};
use crate::ctx::Ctx;
use crate::errors::Error;
use crate::events::EventClasses;
use crate::keyspace::NewValue;
use corelane_resp::Reply;

const READ: &[KeySpec] = &[KeySpec::one(1, KeyFlags::RO.with(KeyFlags::ACCESS))];

/// What all of them have in common.
pub(super) const BITMAP: Command = Command { group: "bitmap", ..Command::DEFAULT };

pub(super) const COMMANDS: &[Command] = &[
    Command {
        name: "setbit",
        arity: 4,
        flags: Flags::WRITE.with(Flags::DENYOOM),
        keys: &[KeySpec::one(1, KeyFlags::RW.with(KeyFlags::ACCESS).with(KeyFlags::UPDATE))],
        plan: Plan::OneShard(setbit),
        since: "2.2.0",
        summary: "Sets or clears the bit at offset of the string value. Creates the key if it doesn't exist.",
        syntax: "key offset value",
        ..BITMAP
    },
    Command {
        name: "getbit",
        arity: 3,
        flags: Flags::READONLY.with(Flags::FAST),
        keys: READ,
        plan: Plan::OneShard(getbit),
        since: "2.2.0",
        summary: "Returns a bit value by offset.",
        syntax: "key offset",
        ..BITMAP
    },
    Command {
        name: "bitcount",
        arity: -2,
        flags: Flags::READONLY,
        keys: READ,
        plan: Plan::OneShard(bitcount),
        since: "2.6.0",
        summary: "Counts the number of set bits (population counting) in a string.",
        complexity: "O(N) where N is the number of bytes looked at",
        syntax: "key [( start [( end [BYTE | BIT] #unit @7.0.0 ) #end-unit-block] ) #range]",
        ..BITMAP
    },
    Command {
        name: "bitpos",
        arity: -3,
        flags: Flags::READONLY,
        keys: READ,
        plan: Plan::OneShard(bitpos),
        since: "2.8.7",
        summary: "Finds the first set (1) or clear (0) bit in a string.",
        complexity: "O(N) where N is the number of bytes looked at",
        syntax: "key bit [( start [( end [BYTE | BIT] #unit @7.0.0 ) #end-unit-block] ) #range]",
        ..BITMAP
    },
];

/// The number of a bit, in units of `scale` bits where it begins with `#`.
pub(super) fn bit_offset(ctx: &Ctx<'_>, text: &[u8], scale: Option<u64>) -> Result<usize, Error> {
    let (digits, scale) = match (text, scale) {
        ([b'#', digits @ ..], Some(scale)) => (digits, scale),
        _ => (text, 1),
    };
    let offset = crate::args::parse_int(digits).and_then(|offset| u64::try_from(offset).ok());
    let offset = offset.and_then(|offset| offset.checked_mul(scale)).map(|offset| offset as usize);
    offset
        .filter(|offset| offset / 8 < ctx.shard.settings.proto_max_bulk_len)
        .ok_or(Error::text("ERR bit offset is not an integer or out of range"))
}

/// The string of a key, an empty one where there is none, for `read` to look at.
pub(super) fn read_string<T>(
    ctx: &mut Ctx<'_>,
    name: &[u8],
    read: impl FnOnce(Option<&[u8]>) -> T,
) -> Result<T, Error> {
    let key = ctx.key(name);
    match ctx.lookup_once(key) {
        None => Ok(read(None)),
        Some(entry) => Ok(read(Some(entry.string().ok_or(Error::WrongType)?))),
    }
}

/// Lets `change` change the string of a key, which is made first if it is not there, and then has `len` bytes or more. Tells
/// clients if it has grown, or if `change` returns true.
pub(super) fn edit_to_len(
    ctx: &mut Ctx<'_>,
    name: &[u8],
    len: usize,
    change: impl FnOnce(&mut [u8]) -> bool,
) -> Result<(), Error> {
    let key = ctx.key(name);
    let old = string_len(ctx, name)?;
    if old.is_none() {
        ctx.set(key, NewValue::Slice(b""), None);
    }
    let mut changed = old.unwrap_or(0) < len;
    ctx.shard.keyspace.edit_string(ctx.db, key, |value| {
        if changed {
            value.resize(len, 0);
        }
        changed |= change(value);
        changed
    });
    if changed {
        ctx.notify(EventClasses::STRING, "setbit", name);
    }
    Ok(())
}

fn setbit(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply) -> Result<Flow, Error> {
    let offset = bit_offset(ctx, args.at(2), None)?;
    let bit = match args.at(3) {
        b"0" => false,
        b"1" => true,
        _ => return Err(Error::text("ERR bit is not an integer or out of range")),
    };
    let mask = 0x80 >> (offset % 8);
    let mut was = false;
    edit_to_len(ctx, args.at(1), offset / 8 + 1, |bytes| {
        let byte = &mut bytes[offset / 8];
        was = *byte & mask != 0;
        *byte = if bit { *byte | mask } else { *byte & !mask };
        was != bit
    })?;
    reply.int(was.into());
    Ok(Flow::Done)
}

fn getbit(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply) -> Result<Flow, Error> {
    let offset = bit_offset(ctx, args.at(2), None)?;
    let byte = read_string(ctx, args.at(1), |text| text.and_then(|text| text.get(offset / 8).copied()))?;
    reply.int((byte.unwrap_or(0) << (offset % 8) >> 7).into());
    Ok(Flow::Done)
}

/// The part of a string that BITCOUNT and BITPOS look at.
struct Range {
    start: i64,
    end: Option<i64>,
    /// Both count bits.
    in_bits: bool,
}

impl Range {
    /// Reads start, end and unit from argument `from` on; `None` where there are none.
    fn parse(args: Args<'_>, from: usize) -> Result<Option<Self>, Error> {
        if args.len() == from {
            return Ok(None);
        }
        if args.len() > from + 3 {
            return Err(Error::Syntax);
        }
        let start = args.int(from)?;
        let in_bits = args.len() == from + 3 && args.is(from + 2, "BIT");
        if args.len() == from + 3 && !in_bits && !args.is(from + 2, "BYTE") {
            return Err(Error::Syntax);
        }
        let end = if args.len() > from + 1 { Some(args.int(from + 1)?) } else { None };
        Ok(Some(Self { start, end, in_bits }))
    }

    /// The first bit and the one behind the last, of a string of so many bytes; `None` where it names none.
    fn bits(&self, bytes: usize) -> Option<(usize, usize)> {
        let unit = if self.in_bits { 1 } else { 8 };
        let total = bytes as i64 * 8 / unit;
        let place = |idx: i64| if idx < 0 { idx.saturating_add(total).max(0) } else { idx };
        let (start, end) = (place(self.start), place(self.end.unwrap_or(-1)).min(total - 1));
        (start <= end).then(|| ((start * unit) as usize, ((end + 1) * unit) as usize))
    }
}

fn bitcount(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply) -> Result<Flow, Error> {
    let range = Range::parse(args, 2)?.unwrap_or(Range { start: 0, end: None, in_bits: false });
    let (pacing, resume, before) = (ctx.pacing(), ctx.resume as usize, ctx.elements as usize);
    let counted = read_string(ctx, args.at(1), |text| {
        // Where its time has come on the way, it was not there.
        let Some(text) = text else { return Some((0, None, 0)) };
        let bits = match range {
            // Valkey finds nothing between two ends counted from behind that are in the wrong order.
            Range { start, end: Some(end), .. } if end < start && start < 0 => None,
            range => range.bits(text.len()),
        };
        let Some((from, to)) = bits else { return Some((0, None, 0)) };
        let piece = pacing.piece_of_bytes((to - from) / 8)?;
        let (from, end) = piece_of(from.max(resume), to, piece);
        Some((count_ones(text, from, end), (end < to).then_some(end), before))
    })?;
    let Some((count, next, before)) = counted else { return Ok(Flow::Later) };
    if let Some(next) = next {
        ctx.elements = (before + count) as u64;
        return Ok(Flow::Again(next as u64));
    }
    ctx.elements = 0;
    reply.int((before + count) as i64);
    Ok(Flow::Done)
}

/// The bits of so many bytes, of those from `from` on and before `to`.
fn piece_of(from: usize, to: usize, bytes: usize) -> (usize, usize) {
    (from, to.min(from.saturating_add(bytes.saturating_mul(8))))
}

fn ones(bytes: &[u8]) -> usize {
    let (words, rest) = bytes.as_chunks::<8>();
    let of_words: usize = words.iter().map(|word| u64::from_ne_bytes(*word).count_ones() as usize).sum();
    of_words + rest.iter().map(|byte| byte.count_ones() as usize).sum::<usize>()
}

/// Bits that are set from `from` on and before `to`, which is behind it.
fn count_ones(bytes: &[u8], from: usize, to: usize) -> usize {
    let (first, last) = (from / 8, (to - 1) / 8);
    let before = bytes[first] & !(0xFF >> (from % 8));
    let behind = bytes[last] & (0x7F >> ((to - 1) % 8));
    ones(&bytes[first..=last]) - (before.count_ones() + behind.count_ones()) as usize
}

fn bitpos(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply) -> Result<Flow, Error> {
    let bit = match args.int(2)? {
        0 => false,
        1 => true,
        _ => return Err(Error::text("ERR The bit argument must be 1 or 0.")),
    };
    let range = Range::parse(args, 3)?;
    let range = range.unwrap_or(Range { start: 0, end: None, in_bits: false });
    let (pacing, resume) = (ctx.pacing(), ctx.resume as usize);
    let found = read_string(ctx, args.at(1), |text| {
        let Some(text) = text else { return Some((if bit { None } else { Some(0) }, None)) };
        let Some((from, to)) = range.bits(text.len()) else { return Some((None, None)) };
        let (from, end) = piece_of(from.max(resume), to, pacing.piece_of_bytes((to - from) / 8)?);
        let found = first_bit(text, bit, from, end);
        if found.is_none() && end < to {
            return Some((None, Some(end)));
        }
        // Without an end, zeros follow the string.
        Some((found.or_else(|| (!bit && range.end.is_none()).then_some(to)), None))
    })?;
    let Some((found, next)) = found else { return Ok(Flow::Later) };
    if let Some(next) = next {
        return Ok(Flow::Again(next as u64));
    }
    reply.int(found.map_or(-1, |at| at as i64));
    Ok(Flow::Done)
}

/// The first bit of this value from `from` on and before `to`.
fn first_bit(bytes: &[u8], bit: bool, from: usize, to: usize) -> Option<usize> {
    let without = if bit { 0 } else { 0xFF };
    let has = |at: &usize| (bytes[at / 8] & (0x80 >> (at % 8)) != 0) == bit;
    let first_whole = from.next_multiple_of(8).min(to);
    if let Some(at) = (from..first_whole).find(has) {
        return Some(at);
    }
    let rest = &bytes[first_whole.div_ceil(8)..to.div_ceil(8).max(first_whole.div_ceil(8))];
    let byte = first_whole / 8 + rest.iter().position(|byte| *byte != without)?;
    (byte * 8..(byte * 8 + 8).min(to)).find(has)
}

#[cfg(test)]
mod tests {
    use super::{count_ones, first_bit};
    use crate::commands::testing::check_all;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn bits_are_counted_and_found_as_one_by_one(
            bytes in prop::collection::vec(prop_oneof![Just(0u8), Just(0xFF), any::<u8>()], 1..40),
            (from, to) in (0..320usize, 0..320usize), bit in any::<bool>(),
        ) {
            let from = from % (bytes.len() * 8);
            let to = from + 1 + to % (bytes.len() * 8 - from);
            let has = |at: &usize| (bytes[at / 8] >> (7 - at % 8)) & 1 == u8::from(bit);
            prop_assert_eq!(first_bit(&bytes, bit, from, to), (from..to).find(has));
            let count = (from..to).filter(|at| (bytes[at / 8] >> (7 - at % 8)) & 1 == 1).count();
            prop_assert_eq!(count_ones(&bytes, from, to), count);
        }
    }

    #[test]
    fn bits_are_set_read_counted_and_found() {
        check_all(&[
            ("SETBIT k 7 1\nSETBIT k 7 0\nSETBIT k 9 1\nGET k", ":0\n:1\n:0\n\"\\x00@\""),
            ("GETBIT k 9\nGETBIT k 8\nGETBIT k 900\nGETBIT none 1", ":1\n:0\n:0\n:0"),
            (
                "SET s foobar\nBITCOUNT s\nBITCOUNT s 1 1\nBITCOUNT s 5 30 BIT\nBITCOUNT none",
                "+OK\n:26\n:6\n:17\n:0",
            ),
            ("BITPOS s 1\nBITPOS s 0\nBITPOS s 1 2\nBITPOS none 0\nBITPOS none 1", ":1\n:0\n:17\n:0\n:-1"),
        ]);
    }
}
