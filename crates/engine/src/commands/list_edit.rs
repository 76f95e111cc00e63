//! Lists changed in their middle: LSET, LINSERT, LREM, LTRIM. LINSERT and LREM walk over long ones in pieces.

use super::list::{long_in, notify_removal, number_of, range_of, signed};
use crate::args::Args;
use crate::command::{Command, Flags, Flow, KeyFlags, KeySpec, Pace, Plan};
use crate::ctx::Ctx;
use crate::errors::Error;
use crate::events::EventClasses;
use crate::typed::Missing;
use crate::values::{Element, List, ListRef, Place, Side};
use corelane_resp::Reply;

const REMOVED: KeySpec = KeySpec::one(1, KeyFlags::RW.with(KeyFlags::DELETE));

pub(super) const COMMANDS: &[Command] = &[
    Command {
        name: "lset",
        arity: 4,
        flags: Flags::WRITE.with(Flags::DENYOOM),
        keys: &[KeySpec::one(1, KeyFlags::RW.with(KeyFlags::UPDATE))],
        plan: Plan::OneShard(lset),
        group: "list",
        summary: "Sets the value of an element in a list by its index.",
        complexity: "O(N) where N is the length of the list. Setting either the first or the last element of the list is \
                     O(1).",
        syntax: "key index element",
        ..Command::DEFAULT
    },
    Command {
        name: "linsert",
        arity: 5,
        flags: Flags::WRITE.with(Flags::DENYOOM),
        keys: &[super::list::ADDED],
        plan: Plan::OneShard(linsert),
        since: "2.2.0",
        group: "list",
        summary: "Inserts an element before or after another element in a list.",
        complexity: "O(N) where N is the number of elements to traverse before seeing the value pivot. This means that \
                     inserting somewhere on the left end on the list (head) can be considered O(1) and inserting somewhere \
                     on the right end (tail) is O(N).",
        syntax: "key ( BEFORE | AFTER ) #where pivot element",
        ..Command::DEFAULT
    },
    Command {
        name: "lrem",
        arity: 4,
        flags: Flags::WRITE,
        keys: &[REMOVED],
        plan: Plan::OneShard(lrem),
        group: "list",
        summary: "Removes elements from a list. Deletes the list if the last element was removed.",
        complexity: "O(N+M) where N is the length of the list and M is the number of elements removed.",
        syntax: "key count element",
        ..Command::DEFAULT
    },
    Command {
        name: "ltrim",
        arity: 4,
        flags: Flags::WRITE,
        keys: &[REMOVED],
        plan: Plan::OneShard(ltrim),
        group: "list",
        summary: "Removes elements from both ends of a list. Deletes the list if all elements were trimmed.",
        complexity: "O(N) where N is the number of elements to be removed by the operation.",
        syntax: "key start stop",
        ..Command::DEFAULT
    },
];

fn lset(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply) -> Result<Flow, Error> {
    let size = ctx.shard.settings.compact.list_size;
    let (key, element) = (ctx.key(args.at(1)), args.at(3));
    let edited = ctx.edit_list(key, Missing::Skip, |list| {
        let index = args.int(2)?;
        list.prepare(size, element.len(), 1);
        let place = number_of(index, list.as_ref().len()).and_then(|number| list.as_ref().place(number));
        let place = place.ok_or(Error::text("ERR index out of range"))?;
        list.replace(place, element, size);
        list.shrink(size);
        Ok(())
    })?;
    edited.ok_or(Error::NoSuchKey)?.result?;
    ctx.notify(EventClasses::LIST, "lset", args.at(1));
    reply.ok();
    Ok(Flow::Done)
}

fn linsert(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply) -> Result<Flow, Error> {
    let side = if args.is(2, "BEFORE") {
        Side::Left
    } else if args.is(2, "AFTER") {
        Side::Right
    } else {
        return Err(Error::Syntax);
    };
    let size = ctx.shard.settings.compact.list_size;
    let (key, element, pivot) = (ctx.key(args.at(1)), args.at(4), Element::of(args.at(3)));
    let (pacing, resume) = (ctx.pacing(), ctx.resume);
    let edited = ctx.edit_list(key, Missing::Skip, |list| {
        list.prepare(size, element.len(), 1);
        let view = list.as_ref();
        let found =
            look(view, pivot, start(view, Side::Left, resume), Side::Left, pacing.look(view.extent()));
        if let Look::Found(place) = found {
            list.insert(place, side, element, size);
        }
        (found, list.as_ref().len())
    })?;
    match edited.map(|edited| edited.result) {
        None => reply.int(0),
        Some((Look::Nothing, _)) => reply.int(-1),
        Some((Look::Further(_), _)) if pacing.pace == Pace::Brief => return Ok(Flow::Later),
        Some((Look::Further(place), _)) => return Ok(Flow::Again(place.to_number())),
        Some((Look::Found(_), len)) => {
            ctx.notify(EventClasses::LIST, "linsert", args.at(1));
            reply.int(len as i64);
        }
    }
    Ok(Flow::Done)
}

/// What came of looking for an element.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Look {
    /// It is here.
    Found(Place),
    /// It is not there.
    Nothing,
    /// It may be from here on.
    Further(Place),
}

/// Looks at up to `budget` elements from a place on.
fn look(list: ListRef<'_>, wanted: Element<'_>, start: Option<Place>, side: Side, mut budget: usize) -> Look {
    let mut place = start;
    while let Some(at) = place {
        if budget == 0 {
            return Look::Further(at);
        }
        if list.get(at) == wanted {
            return Look::Found(at);
        }
        (place, budget) = (list.step(at, side), budget - 1);
    }
    Look::Nothing
}

/// Where to go on: at an end at first.
fn start(list: ListRef<'_>, side: Side, resume: u64) -> Option<Place> {
    if resume == 0 { list.end(side) } else { Some(Place::from_number(resume)) }
}

/// Whether all elements to be removed are among the first `budget`.
fn is_brief(list: ListRef<'_>, wanted: Element<'_>, side: Side, max: u64, budget: usize) -> bool {
    let equal = list.places(list.end(side), side).take(budget).filter(|place| list.get(*place) == wanted);
    list.len() <= budget || equal.count() as u64 >= max
}

/// Removes elements that equal `wanted`, from a place on, at most so many, and looks at up to `budget`; returns how many, and where to
/// go on.
fn remove_equal(
    list: &mut List,
    wanted: Element<'_>,
    (mut place, side): (Option<Place>, Side),
    max: u64,
    budget: usize,
) -> (u64, Option<Place>) {
    let (mut removed, mut looked) = (0, 0);
    while let Some(at) = place.filter(|_| removed < max && looked < budget) {
        looked += 1;
        if list.as_ref().get(at) != wanted {
            place = list.as_ref().step(at, side);
            continue;
        }
        let before = if side == Side::Right { list.as_ref().step(at, side) } else { None };
        let behind = list.remove(at);
        place = if side == Side::Right { before } else { behind };
        removed += 1;
    }
    (removed, place.filter(|_| removed < max))
}

fn lrem(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply) -> Result<Flow, Error> {
    let count = signed(args.at(2))?;
    let size = ctx.shard.settings.compact.list_size;
    let (key, wanted) = (ctx.key(args.at(1)), Element::of(args.at(3)));
    let side = if count < 0 { Side::Right } else { Side::Left };
    let (pacing, resume, before) = (ctx.pacing(), ctx.resume, ctx.elements);
    let max = if count == 0 { u64::MAX } else { count.unsigned_abs() } - before;
    let edited = ctx.edit_list(key, Missing::Skip, |list| {
        let (view, budget) = (list.as_ref(), pacing.look(list.as_ref().extent()));
        if pacing.pace == Pace::Brief && !is_brief(view, wanted, side, max, budget) {
            return None;
        }
        let (removed, next) = remove_equal(list, wanted, (start(view, side, resume), side), max, budget);
        let removed = before + removed;
        if removed > 0 && next.is_none() {
            list.shrink(size);
        }
        Some((removed, next))
    })?;
    ctx.elements = 0;
    let Some(edited) = edited else {
        reply.int(0);
        return Ok(Flow::Done);
    };
    match edited.result {
        None => return Ok(Flow::Later),
        Some((removed, Some(next))) => {
            ctx.elements = removed;
            return Ok(Flow::Again(next.to_number()));
        }
        Some((removed, None)) => {
            reply.int(removed as i64);
            if removed > 0 {
                notify_removal(ctx, "lrem", args.at(1), edited.emptied);
            }
        }
    }
    Ok(Flow::Done)
}

fn ltrim(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply) -> Result<Flow, Error> {
    let (start, stop) = (args.int(2)?, args.int(3)?);
    let size = ctx.shard.settings.compact.list_size;
    let key = ctx.key(args.at(1));
    // What goes entirely goes as a key does, its memory by and by.
    let len = match ctx.find(key) {
        Some(entry) => entry.list().ok_or(Error::WrongType)?.len(),
        None => 0,
    };
    let (start, count) = range_of(start, stop, len);
    if len > 0 && count == 0 {
        ctx.remove(key);
        notify_removal(ctx, "ltrim", args.at(1), true);
    } else if count < len {
        ctx.edit_list(key, Missing::Skip, |list| {
            list.remove_range(start + count, len - start - count);
            list.remove_range(0, start);
            list.shrink(size);
        })?;
        notify_removal(ctx, "ltrim", args.at(1), false);
    } else if ctx.find_to_change(key).is_some() {
        ctx.announce(ctx.db, EventClasses::LIST, "ltrim", key.bytes);
    }
    reply.ok();
    Ok(Flow::Done)
}

/// Which end of a list a word names.
pub(super) fn side(word: &[u8]) -> Result<Side, Error> {
    if word.eq_ignore_ascii_case(b"LEFT") {
        Ok(Side::Left)
    } else if word.eq_ignore_ascii_case(b"RIGHT") {
        Ok(Side::Right)
    } else {
        Err(Error::Syntax)
    }
}

/// What LMPOP, ZMPOP and their blocking forms are asked for, in arguments whose first is the number of keys.
pub(super) struct PopOrder<S = Side> {
    pub(super) side: S,
    pub(super) count: usize,
}

impl PopOrder {
    pub(super) fn parse(args: Args<'_>, at: usize) -> Result<Self, Error> {
        Self::parse_with(args, at, side)
    }
}

impl<S> PopOrder<S> {
    /// `side` reads the end that elements are popped from.
    pub(super) fn parse_with(
        args: Args<'_>,
        at: usize,
        side: fn(&[u8]) -> Result<S, Error>,
    ) -> Result<Self, Error> {
        let keys = long_in(args.at(at), 1, i64::MAX, "ERR numkeys should be greater than 0")?;
        let place = usize::try_from(keys).ok().and_then(|keys| keys.checked_add(at + 1));
        let place = place.filter(|place| *place < args.len()).ok_or(Error::Syntax)?;
        let side = side(args.at(place))?;
        let count = match args.len() - place {
            1 => 1,
            3 if args.is(place + 1, "COUNT") => {
                long_in(args.at(place + 2), 1, i64::MAX, "ERR count should be greater than 0")?
            }
            _ => {
                // The count is looked at before what follows it.
                if args.is(place + 1, "COUNT")
                    && let Some(count) = args.get(place + 2)
                {
                    long_in(count, 1, i64::MAX, "ERR count should be greater than 0")?;
                }
                return Err(Error::Syntax);
            }
        };
        Ok(Self { side, count: usize::try_from(count).unwrap_or(usize::MAX) })
    }
}

#[cfg(test)]
mod tests {
    use crate::commands::testing::check_all;

    #[test]
    fn elements_are_replaced_inserted_and_removed() {
        check_all(&[
            ("RPUSH k a b a c a", ":5"),
            (
                "LSET k 1 B\nLSET k -1 z\nLSET k 9 x\nLSET m 0 x",
                "+OK\n+OK\n-ERR index out of range\n-ERR no such key",
            ),
            (
                "LINSERT k BEFORE B 1\nLINSERT k after z 2\nLINSERT k BEFORE q 3\nLINSERT m BEFORE q 3",
                ":6\n:7\n:-1\n:0",
            ),
            ("LRANGE k 0 -1", "[\"a\", \"1\", \"B\", \"a\", \"c\", \"z\", \"2\"]"),
            (
                "LREM k -1 a\nLREM k 0 1\nLREM k 5 q\nLRANGE k 0 -1",
                ":1\n:1\n:0\n[\"a\", \"B\", \"c\", \"z\", \"2\"]",
            ),
            (
                "LTRIM k 1 -2\nLRANGE k 0 -1\nLTRIM k 5 6\nEXISTS k\nLTRIM k 0 1",
                "+OK\n[\"B\", \"c\", \"z\"]\n+OK\n:0\n+OK",
            ),
        ]);
    }
}
