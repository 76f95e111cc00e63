//! From list to list: LMOVE and RPOPLPUSH. And from the first of several that has elements: LMPOP.
//!
//! Where all keys live on one shard, all is done in the first look. Otherwise a first look, under intents on all keys, tells
//! the coordinator what is where; it then has the element taken from one shard and put on the other.

use super::list::{TAKEN, notify_removal, pop_some};
use super::list_edit::{PopOrder, side};
use crate::args::Args;
use crate::command::{Command, Find, Flags, Flow, KeyFlags, KeySpec, Plan};
use crate::ctx::{Ctx, Decide, Next, On, PartResult, Payload};
use crate::errors::Error;
use crate::events::EventClasses;
use crate::keyspace::{Detached, StringForm, Value, ValueRef};
use crate::settings::Settings;
use crate::typed::Missing;
use crate::values::{Element, Side, prepared_bytes};
use corelane_resp::{Mark, Reply};

pub(super) const MOVED: &[KeySpec] = &[TAKEN, KeySpec::one(2, KeyFlags::RW.with(KeyFlags::INSERT))];

pub(super) const COMMANDS: &[Command] = &[
    Command {
        name: "lmove",
        arity: 5,
        flags: Flags::WRITE.with(Flags::DENYOOM),
        keys: MOVED,
        plan: Plan::Staged { read: move_read, decide: move_decide, write: move_write },
        check: Some(check_move),
        since: "6.2.0",
        group: "list",
        summary: "Returns an element after popping it from one list and pushing it to another. Deletes the list if the last \
                  element was moved.",
        syntax: "source destination ( LEFT | RIGHT ) #wherefrom ( LEFT | RIGHT ) #whereto",
        ..Command::DEFAULT
    },
    Command {
        name: "rpoplpush",
        arity: 3,
        flags: Flags::WRITE.with(Flags::DENYOOM),
        keys: MOVED,
        plan: Plan::Staged { read: move_read, decide: move_decide, write: move_write },
        since: "1.2.0",
        group: "list",
        summary: "Returns the last element of a list after removing and pushing it to another list. Deletes the list if the \
                  last element was popped.",
        syntax: "source destination",
        ..Command::DEFAULT
    },
    Command {
        name: "lmpop",
        arity: -4,
        flags: Flags::WRITE.with(Flags::MOVABLEKEYS),
        keys: &[KeySpec {
            flags: KeyFlags::RW.with(KeyFlags::ACCESS).with(KeyFlags::DELETE),
            begin: 1,
            find: Find::Count { count_at: 0, first: 1, step: 1 },
            notes: None,
            flags_for: None,
        }],
        plan: Plan::Staged { read: pop_read, decide: pop_decide, write: lmpop_write },
        check: Some(|args, _| PopOrder::parse(args, 1).map(|_| ())),
        since: "7.0.0",
        group: "list",
        summary: "Returns multiple elements from a list after removing them. Deletes the list if the last element was popped.",
        complexity: "O(N+M) where N is the number of provided keys and M is the number of elements returned.",
        syntax: "numkeys key [key ...] ( LEFT | RIGHT ) #where [COUNT count]",
        ..Command::DEFAULT
    },
];

const SOURCE: usize = 1;
const DESTINATION: usize = 2;
/// Stages behind the first look.
const TAKE: u8 = 1;
const PUT: u8 = 2;

/// What a first look has found, as bits of `elements`.
const DONE: u64 = 1;
const SOURCE_THERE: u64 = 2;
const SOURCE_WRONG: u64 = 4;
const DESTINATION_WRONG: u64 = 8;

fn check_move(args: Args<'_>, _: &Settings) -> Result<(), Error> {
    side(args.at(3)).and(side(args.at(4))).map(|_| ())
}

/// From which end to which: LMOVE says so.
fn sides(args: Args<'_>) -> Result<(Side, Side), Error> {
    if args.is(0, "LMOVE") || args.is(0, "BLMOVE") {
        return Ok((side(args.at(3))?, side(args.at(4))?));
    }
    Ok((Side::Right, Side::Left))
}

pub(super) fn move_read(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply) -> Result<Flow, Error> {
    for idx in ctx.keys.indices() {
        let key = ctx.key(args.at(idx));
        let Some(right) = ctx.find(key).map(|entry| entry.list().is_some()) else { continue };
        ctx.elements |= match (idx, right) {
            (SOURCE, true) => SOURCE_THERE,
            (SOURCE, false) => SOURCE_THERE | SOURCE_WRONG,
            (_, true) => 0,
            (_, false) => DESTINATION_WRONG,
        };
    }
    if ctx.keys.len() > 1 && ctx.elements == SOURCE_THERE {
        move_here(ctx, args, reply)?;
        ctx.elements |= DONE;
    }
    Ok(Flow::Done)
}

pub(super) fn move_decide(decide: &mut Decide<'_>) -> Next {
    let result = match decide.stage {
        0 => {
            let found = decide.results.iter().fold(0, |found, result| found | result.elements);
            if found & SOURCE_THERE == 0 {
                decide.reply.null();
                return Next::Reply;
            }
            if found & (SOURCE_WRONG | DESTINATION_WRONG) != 0 {
                crate::ctx::write_error(&Error::WrongType, decide.reply);
                return Next::Reply;
            }
            if found & DONE == 0 {
                return Next::Run { stage: TAKE, on: On::Key(SOURCE), payload: Payload::None };
            }
            decide.results.first()
        }
        TAKE => {
            let payload = decide.results.first_mut().map(|result| std::mem::take(&mut result.payload));
            let payload = payload.unwrap_or_default();
            return Next::Run { stage: PUT, on: On::Key(DESTINATION), payload };
        }
        _ => decide.results.first(),
    };
    copy_reply(result, decide.reply);
    Next::Reply
}

/// Whether the first look has found the source.
pub(super) fn finds_source(results: &[PartResult]) -> bool {
    results.iter().any(|result| result.elements & SOURCE_THERE != 0)
}

fn copy_reply(result: Option<&PartResult>, reply: &mut Reply) {
    if let Some(result) = result {
        reply.append_range(&result.reply, Mark::default(), result.reply.mark());
    }
}

pub(super) fn move_write(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply) -> Result<Flow, Error> {
    let (from, to) = sides(args)?;
    if ctx.stage == TAKE {
        ctx.payload = take(ctx, args.at(SOURCE), from)?.map_or(Payload::None, |text| {
            let value = Value::String(text.into());
            Payload::Value(Detached { value, expiry: None, form: StringForm::Plain })
        });
        return Ok(Flow::Done);
    }
    // Where nothing has come, the source's time was up between the two stages.
    match std::mem::take(&mut ctx.payload) {
        Payload::Value(Detached { value: Value::String(text), .. }) => {
            put(ctx, args.at(DESTINATION), to, &text)?;
            reply.bulk(&text);
        }
        _ => reply.null(),
    }
    Ok(Flow::Done)
}

fn take(ctx: &mut Ctx<'_>, name: &[u8], side: Side) -> Result<Option<Vec<u8>>, Error> {
    let size = ctx.shard.settings.compact.list_size;
    let key = ctx.key(name);
    let edited = ctx.edit_list(key, Missing::Skip, |list| {
        let view = list.as_ref();
        let place = view.end(side).expect("a list that a key holds has elements");
        let text = view.get(place).text().into_owned();
        list.remove(place);
        list.shrink(size);
        text
    })?;
    let Some(edited) = edited else { return Ok(None) };
    notify_removal(ctx, side.popped(), name, edited.emptied);
    Ok(Some(edited.result))
}

fn put(ctx: &mut Ctx<'_>, name: &[u8], side: Side, text: &[u8]) -> Result<(), Error> {
    let size = ctx.shard.settings.compact.list_size;
    let key = ctx.key(name);
    ctx.edit_list(key, Missing::Create, |list| {
        list.prepare(size, prepared_bytes(Element::of(text)), 1);
        list.push(side, text, size);
    })?;
    ctx.notify(EventClasses::LIST, side.pushed(), name);
    Ok(())
}

/// Both keys are lists, or the destination is not there, and both live here. The push is told before the pop.
fn move_here(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply) -> Result<(), Error> {
    let (from, to) = sides(args)?;
    let size = ctx.shard.settings.compact.list_size;
    let (source, destination) = (args.at(SOURCE), args.at(DESTINATION));
    let key = ctx.key(source);
    let same = source == destination;
    let edited = ctx.edit_list(key, Missing::Skip, |list| {
        let view = list.as_ref();
        let place = view.end(from).expect("a list that a key holds has elements");
        let text = view.get(place).text().into_owned();
        let bytes = prepared_bytes(view.get(place));
        list.remove(place);
        if same {
            list.prepare(size, bytes, 1);
            list.push(to, &text, size);
        }
        list.shrink(size);
        text
    })?;
    let Some(edited) = edited else {
        reply.null();
        return Ok(());
    };
    if same {
        ctx.notify(EventClasses::LIST, to.pushed(), destination);
    } else {
        put(ctx, destination, to, &edited.result)?;
    }
    notify_removal(ctx, from.popped(), source, edited.emptied);
    reply.bulk(&edited.result);
    Ok(())
}

pub(super) fn pop_read(ctx: &mut Ctx<'_>, args: Args<'_>, _: &mut Reply) -> Result<Flow, Error> {
    find_first(ctx, args, |value| matches!(value, ValueRef::List(_)));
    Ok(Flow::Done)
}

/// Looks for the first key that is there: its place in the arguments, doubled, and one more if it is of another type.
pub(super) fn find_first(ctx: &mut Ctx<'_>, args: Args<'_>, is_right: fn(ValueRef<'_>) -> bool) {
    let keys = ctx.keys;
    for idx in keys.indices() {
        let key = ctx.key(args.at(idx));
        if let Some(right) = ctx.find(key).map(|entry| is_right(entry.value())) {
            ctx.elements = (idx as u64) << 1 | u64::from(!right);
            break;
        }
    }
}

pub(super) fn pop_decide(decide: &mut Decide<'_>) -> Next {
    if decide.stage == TAKE {
        copy_reply(decide.results.first(), decide.reply);
        return Next::Reply;
    }
    match decide.results.iter().map(|result| result.elements).filter(|found| *found != 0).min() {
        None => decide.reply.null_array(),
        Some(found) if found & 1 != 0 => crate::ctx::write_error(&Error::WrongType, decide.reply),
        Some(found) => {
            let on = On::Key((found >> 1) as usize);
            return Next::Run { stage: TAKE, on, payload: Payload::None };
        }
    }
    Next::Reply
}

fn lmpop_write(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply) -> Result<Flow, Error> {
    let PopOrder { side, count } = PopOrder::parse(args, 1)?;
    pop_key(ctx, args, side, count, true, reply)
}

/// Pops from the one key that is selected: its name, and an element or an array of some.
pub(super) fn pop_key(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    side: Side,
    count: usize,
    array: bool,
    reply: &mut Reply,
) -> Result<Flow, Error> {
    let Some(idx) = ctx.keys.indices().next() else { return Ok(Flow::Done) };
    let size = ctx.shard.settings.compact.list_size;
    let (name, key) = (args.at(idx), ctx.key(args.at(idx)));
    let edited = ctx.edit_list(key, Missing::Skip, |list| {
        reply.array(2);
        reply.bulk(name);
        pop_some(list, side, count, size, array, reply);
    })?;
    match edited {
        Some(edited) => notify_removal(ctx, side.popped(), name, edited.emptied),
        None => reply.null_array(),
    }
    Ok(Flow::Done)
}

#[cfg(test)]
mod tests {
    use crate::commands::testing::check_all;

    #[test]
    fn elements_move_from_list_to_list() {
        check_all(&[
            ("RPUSH a 1 2 3", ":3"),
            ("LMOVE a b LEFT RIGHT\nRPOPLPUSH a b\nLRANGE b 0 -1", "\"1\"\n\"3\"\n[\"3\", \"1\"]"),
            ("LMOVE a a LEFT LEFT\nLMOVE b b LEFT RIGHT\nLRANGE b 0 -1", "\"2\"\n\"3\"\n[\"1\", \"3\"]"),
            ("RPOPLPUSH a b\nEXISTS a\nRPOPLPUSH a b\nLLEN b", "\"2\"\n:0\nnil\n:3"),
            ("SET s v\nRPOPLPUSH x s", "+OK\nnil"),
            ("RPOPLPUSH b s", "-WRONGTYPE Operation against a key holding the wrong kind of value"),
            ("RPOPLPUSH s b", "-WRONGTYPE Operation against a key holding the wrong kind of value"),
        ]);
    }

    #[test]
    fn the_first_key_with_elements_gives_them() {
        check_all(&[
            ("RPUSH c 1 2 3\nRPUSH d 4", ":3\n:1"),
            ("LMPOP 4 a b c d LEFT\nLMPOP 2 d c RIGHT COUNT 9", "[\"c\", [\"1\"]]\n[\"d\", [\"4\"]]"),
            ("LMPOP 3 a d c RIGHT COUNT 9\nLMPOP 1 c LEFT", "[\"c\", [\"3\", \"2\"]]\nnil"),
            ("SET s v\nRPUSH d 1", "+OK\n:1"),
            ("LMPOP 3 a s d LEFT", "-WRONGTYPE Operation against a key holding the wrong kind of value"),
            ("LMPOP 3 a d s LEFT", "[\"d\", [\"1\"]]"),
        ]);
    }
}
