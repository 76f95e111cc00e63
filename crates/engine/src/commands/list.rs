//! Lists from their ends, and reading them: LPUSH, RPUSH, LPUSHX, RPUSHX, LPOP, RPOP, LLEN, LRANGE, LINDEX, LPOS.
//!
//! LINDEX costs as much as it walks over, in one turn, LRANGE and LPOS in pieces; all else here is bounded by its arguments.

use super::element::{nothing, write_element};
use crate::args::{Args, parse_int};
use crate::command::{Command, Flags, Flow, KeyFlags, KeySpec, Pace, Plan};
use crate::ctx::{Ctx, Payload};
use crate::errors::Error;
use crate::events::EventClasses;
use crate::typed::Missing;
use crate::values::{Element, List, ListRef, ListSize, Place, Side};
use corelane_resp::Reply;

const PUSH_COMPLEXITY: &str = "O(1) for each element added, so O(N) to add N elements when the command is called with \
                               multiple arguments.";
pub(super) const ADDED: KeySpec = KeySpec::one(1, KeyFlags::RW.with(KeyFlags::INSERT));
pub(super) const TAKEN: KeySpec = KeySpec::one(1, KeyFlags::RW.with(KeyFlags::ACCESS).with(KeyFlags::DELETE));
pub(super) const READ: KeySpec = KeySpec::one(1, KeyFlags::RO.with(KeyFlags::ACCESS));

const PUSH: Command = Command {
    arity: -3,
    flags: Flags::WRITE.with(Flags::DENYOOM).with(Flags::FAST),
    keys: &[ADDED],
    group: "list",
    complexity: PUSH_COMPLEXITY,
    syntax: "key element [element ...]",
    ..Command::DEFAULT
};

const POP: Command = Command {
    arity: -2,
    flags: Flags::WRITE.with(Flags::FAST),
    keys: &[TAKEN],
    group: "list",
    complexity: "O(N) where N is the number of elements returned",
    syntax: "key [count @6.2.0]",
    ..Command::DEFAULT
};

const LOOK: Command = Command { flags: Flags::READONLY, keys: &[READ], group: "list", ..Command::DEFAULT };

pub(super) const COMMANDS: &[Command] = &[
    Command {
        name: "lpush",
        plan: Plan::OneShard(lpush),
        summary: "Prepends one or more elements to a list. Creates the key if it doesn't exist.",
        ..PUSH
    },
    Command {
        name: "rpush",
        plan: Plan::OneShard(rpush),
        summary: "Appends one or more elements to a list. Creates the key if it doesn't exist.",
        ..PUSH
    },
    Command {
        name: "lpushx",
        plan: Plan::OneShard(lpushx),
        since: "2.2.0",
        summary: "Prepends one or more elements to a list only when the list exists.",
        ..PUSH
    },
    Command {
        name: "rpushx",
        plan: Plan::OneShard(rpushx),
        since: "2.2.0",
        summary: "Appends one or more elements to a list only when the list exists.",
        ..PUSH
    },
    Command {
        name: "lpop",
        plan: Plan::OneShard(lpop),
        summary: "Returns and removes one or more elements from the beginning of a list. Deletes the list if the last \
                  element was popped.",
        ..POP
    },
    Command {
        name: "rpop",
        plan: Plan::OneShard(rpop),
        summary: "Returns and removes one or more elements from the end of a list. Deletes the list if the last element \
                  was popped.",
        ..POP
    },
    Command {
        name: "llen",
        arity: 2,
        flags: Flags::READONLY.with(Flags::FAST),
        keys: &[KeySpec::one(1, KeyFlags::RO)],
        plan: Plan::OneShard(llen),
        summary: "Returns the length of a list.",
        syntax: "key",
        ..LOOK
    },
    Command {
        name: "lrange",
        arity: 4,
        plan: Plan::OneShard(lrange),
        summary: "Returns a range of elements from a list.",
        complexity: "O(S+N) where S is the distance of start offset from HEAD for small lists, from nearest end (HEAD or \
                     TAIL) for large lists; and N is the number of elements in the specified range.",
        syntax: "key start stop",
        ..LOOK
    },
    Command {
        name: "lindex",
        arity: 3,
        plan: Plan::OneShard(lindex),
        summary: "Returns an element from a list by its index.",
        complexity: "O(N) where N is the number of elements to traverse to get to the element at index. This makes asking \
                     for the first or the last element of the list O(1).",
        syntax: "key index",
        ..LOOK
    },
    Command {
        name: "lpos",
        arity: -3,
        plan: Plan::OneShard(lpos),
        since: "6.0.6",
        summary: "Returns the index of matching elements in a list.",
        complexity: "O(N) where N is the number of elements in the list, for the average case. When searching for elements \
                     near the head or the tail of the list, or when the MAXLEN option is provided, the command may run in \
                     constant time.",
        syntax: "key element [RANK rank] [COUNT num-matches] [MAXLEN len]",
        ..LOOK
    },
];

impl Side {
    /// The event of a push there.
    pub(super) const fn pushed(self) -> &'static str {
        match self {
            Self::Left => "lpush",
            Self::Right => "rpush",
        }
    }

    /// The event of a pop there.
    pub(super) const fn popped(self) -> &'static str {
        match self {
            Self::Left => "lpop",
            Self::Right => "rpop",
        }
    }
}

/// An integer within bounds, or the error that Valkey gives for it.
pub(super) fn long_in(text: &[u8], min: i64, max: i64, error: &'static str) -> Result<i64, Error> {
    parse_int(text).filter(|number| (min..=max).contains(number)).ok_or(Error::text(error))
}

/// A number that may count from the end.
pub(super) fn signed(text: &[u8]) -> Result<i64, Error> {
    let number = parse_int(text).ok_or(Error::NotInteger)?;
    if number == i64::MIN {
        return Err(Error::text(
            "ERR value is out of range, value must between -9223372036854775807 and 9223372036854775807",
        ));
    }
    Ok(number)
}

fn push(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply,
    side: Side,
    missing: Missing,
) -> Result<Flow, Error> {
    let size = ctx.shard.settings.compact.list_size;
    let bytes = args.iter_from(2).map(<[u8]>::len).sum();
    let edited = ctx.edit_list(ctx.key(args.at(1)), missing, |list| {
        list.prepare(size, bytes, args.len() - 2);
        for element in args.iter_from(2) {
            list.push(side, element, size);
        }
        list.as_ref().len()
    })?;
    reply.int(edited.map_or(0, |edited| edited.result as i64));
    if edited.is_some() {
        ctx.notify(EventClasses::LIST, side.pushed(), args.at(1));
    }
    Ok(Flow::Done)
}

fn lpush(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply) -> Result<Flow, Error> {
    push(ctx, args, reply, Side::Left, Missing::Create)
}

fn rpush(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply) -> Result<Flow, Error> {
    push(ctx, args, reply, Side::Right, Missing::Create)
}

fn lpushx(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply) -> Result<Flow, Error> {
    push(ctx, args, reply, Side::Left, Missing::Skip)
}

fn rpushx(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply) -> Result<Flow, Error> {
    push(ctx, args, reply, Side::Right, Missing::Skip)
}

/// Removes up to `count` elements from an end and writes them, the outermost first; without `array` only one, by itself.
pub(super) fn pop_some(
    list: &mut List,
    side: Side,
    count: usize,
    size: ListSize,
    array: bool,
    reply: &mut Reply,
) {
    let view = list.as_ref();
    let count = count.min(view.len());
    if array {
        reply.array(count);
    }
    if count == 1
        && let Some(place) = view.end(side)
    {
        write_element(reply, view.get(place));
        list.remove(place);
        return list.shrink(size);
    }
    for place in view.places(view.end(side), side).take(count) {
        write_element(reply, view.get(place));
    }
    let start = if side == Side::Left { 0 } else { view.len() - count };
    list.remove_range(start, count);
    list.shrink(size);
}

/// Tells of a removal, and of the key's if that was the last element.
pub(super) fn notify_removal(ctx: &mut Ctx<'_>, event: &'static str, key: &[u8], emptied: bool) {
    ctx.notify(EventClasses::LIST, event, key);
    if emptied {
        ctx.notify(EventClasses::GENERIC, "del", key);
    }
}

fn pop(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply, side: Side) -> Result<Flow, Error> {
    if args.len() > 3 {
        return Err(Error::Arity(side.popped().into()));
    }
    let count = match args.get(2) {
        Some(text) => Some(parse_int(text).filter(|count| *count >= 0).ok_or(Error::NotPositive)?),
        None => None,
    };
    let size = ctx.shard.settings.compact.list_size;
    let key = ctx.key(args.at(1));
    let edited = ctx.edit_list(key, Missing::Skip, |list| {
        let number = count.map_or(1, |count| usize::try_from(count).unwrap_or(usize::MAX));
        pop_some(list, side, number, size, count.is_some(), reply);
    })?;
    match edited {
        Some(_) if count == Some(0) => {}
        Some(edited) => notify_removal(ctx, side.popped(), args.at(1), edited.emptied),
        None if count.is_some() => reply.null_array(),
        None => reply.null(),
    }
    Ok(Flow::Done)
}

fn lpop(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply) -> Result<Flow, Error> {
    pop(ctx, args, reply, Side::Left)
}

fn rpop(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply) -> Result<Flow, Error> {
    pop(ctx, args, reply, Side::Right)
}

fn llen(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply) -> Result<Flow, Error> {
    let key = ctx.key(args.at(1));
    let len = match ctx.lookup(key) {
        Some(entry) => entry.list().ok_or(Error::WrongType)?.len(),
        None => 0,
    };
    reply.int(len as i64);
    Ok(Flow::Done)
}

/// The elements from `start` to `stop`, both counted from the end where negative: the first one's number, and how many.
pub(super) fn range_of(start: i64, stop: i64, len: usize) -> (usize, usize) {
    let len = len as i64;
    let from_front = |idx: i64| if idx < 0 { idx.saturating_add(len) } else { idx };
    let (start, stop) = (from_front(start).max(0), from_front(stop).min(len - 1));
    if start > stop { (0, 0) } else { (start as usize, (stop - start + 1) as usize) }
}

fn lrange(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply) -> Result<Flow, Error> {
    let (start, stop) = (args.int(2)?, args.int(3)?);
    let (pacing, resume, written) = (ctx.pacing(), ctx.resume, ctx.elements as usize);
    let (next, end) = {
        let Some(entry) = ctx.lookup_once(ctx.key(args.at(1))) else {
            return Ok(nothing(ctx, reply, Reply::array));
        };
        let list = entry.list().ok_or(Error::WrongType)?;
        let (start, count) = range_of(start, stop, list.len());
        let Some(piece) = pacing.piece(count, list.extent()) else { return Ok(Flow::Later) };
        if resume == 0 {
            reply.array(count);
        }
        let first = if resume == 0 { list.place(start) } else { Some(Place::from_number(resume)) };
        let end = count.min(written.saturating_add(piece));
        let next = list.visit(first, end - written, |element| write_element(reply, element));
        (next.filter(|_| end < count), end)
    };
    ctx.elements = end as u64;
    Ok(next.map_or(Flow::Done, |place| Flow::Again(place.to_number())))
}

/// The number of the element with this index, which counts from the end where it is negative.
pub(super) fn number_of(index: i64, len: usize) -> Option<usize> {
    let number = if index < 0 { index.checked_add(len as i64)? } else { index };
    usize::try_from(number).ok().filter(|number| *number < len)
}

fn lindex(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply) -> Result<Flow, Error> {
    let key = ctx.key(args.at(1));
    let Some(entry) = ctx.lookup(key) else {
        reply.null();
        return Ok(Flow::Done);
    };
    let list = entry.list().ok_or(Error::WrongType)?;
    let index = args.int(2)?;
    match number_of(index, list.len()).and_then(|number| list.place(number)) {
        Some(place) => write_element(reply, list.get(place)),
        None => reply.null(),
    }
    Ok(Flow::Done)
}

/// LPOS's options.
struct Search {
    side: Side,
    /// Matches to pass over.
    skip: u64,
    count: Option<u64>,
    len_max: u64,
}

impl Search {
    fn parse(args: Args<'_>) -> Result<Self, Error> {
        let mut search = Self { side: Side::Left, skip: 0, count: None, len_max: 0 };
        for idx in (3..args.len()).step_by(2) {
            let number = args.get(idx + 1);
            match number {
                Some(number) if args.is(idx, "RANK") => {
                    let rank = signed(number)?;
                    if rank == 0 {
                        return Err(Error::text(
                            "ERR RANK can't be zero: use 1 to start from the first match, 2 from the second ... or use \
                             negative to start from the end of the list",
                        ));
                    }
                    search.side = if rank < 0 { Side::Right } else { Side::Left };
                    search.skip = rank.unsigned_abs() - 1;
                }
                Some(number) if args.is(idx, "COUNT") => {
                    search.count = Some(long_in(number, 0, i64::MAX, "ERR COUNT can't be negative")? as u64);
                }
                Some(number) if args.is(idx, "MAXLEN") => {
                    search.len_max = long_in(number, 0, i64::MAX, "ERR MAXLEN can't be negative")? as u64;
                }
                _ => return Err(Error::Syntax),
            }
        }
        Ok(search)
    }
}

/// A search that is under way.
#[derive(Clone, Debug, Default)]
pub struct Matches {
    /// How many elements have been looked at.
    seen: usize,
    /// How many that match have been passed over.
    passed: u64,
    /// The numbers of those that count.
    found: Vec<i64>,
}

impl Matches {
    /// Looks at up to `budget` elements more, from a place on. Returns where to go on.
    fn look(
        &mut self,
        (list, wanted): (ListRef<'_>, Element<'_>),
        search: &Search,
        mut place: Option<Place>,
        mut budget: usize,
    ) -> Option<Place> {
        let or_all =
            |count: u64| if count == 0 { usize::MAX } else { usize::try_from(count).unwrap_or(usize::MAX) };
        let (count_max, len_max) = (search.count.map_or(1, or_all), or_all(search.len_max));
        while let Some(at) = place.filter(|_| self.found.len() < count_max && self.seen < len_max) {
            if budget == 0 {
                return Some(at);
            }
            match list.get(at) == wanted {
                true if self.passed < search.skip => self.passed += 1,
                true if search.side == Side::Left => self.found.push(self.seen as i64),
                true => self.found.push((list.len() - 1 - self.seen) as i64),
                false => {}
            }
            (self.seen, budget) = (self.seen + 1, budget - 1);
            place = list.step(at, search.side);
        }
        None
    }
}

fn lpos(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply) -> Result<Flow, Error> {
    let search = Search::parse(args)?;
    let (key, pacing, resume) = (ctx.key(args.at(1)), ctx.pacing(), ctx.resume);
    let mut matches = match std::mem::take(&mut ctx.payload) {
        Payload::Matches(matches) => matches,
        _ => Box::default(),
    };
    let next = match ctx.lookup_once(key) {
        // If it was there, its time has come.
        None => {
            *matches = Matches::default();
            None
        }
        Some(entry) => {
            let list = entry.list().ok_or(Error::WrongType)?;
            let place = if resume == 0 { list.end(search.side) } else { Some(Place::from_number(resume)) };
            let wanted = Element::of(args.at(2));
            matches.look((list, wanted), &search, place, pacing.look(list.extent()))
        }
    };
    if let Some(next) = next {
        if pacing.pace == Pace::Brief {
            return Ok(Flow::Later);
        }
        ctx.payload = Payload::Matches(matches);
        return Ok(Flow::Again(next.to_number()));
    }
    let found = &matches.found;
    match search.count {
        None if found.is_empty() => reply.null(),
        None => reply.int(found[0]),
        Some(_) => {
            reply.array(found.len());
            found.iter().for_each(|number| reply.int(*number));
        }
    }
    Ok(Flow::Done)
}

#[cfg(test)]
mod tests {
    use crate::commands::testing::{Bench, check_all};

    const WRONG: &str = "-WRONGTYPE Operation against a key holding the wrong kind of value";

    #[test]
    fn elements_go_in_and_out_at_both_ends() {
        check_all(&[
            ("RPUSH k a b c\nLPUSH k 1 2\nLLEN k", ":3\n:5\n:5"),
            ("LRANGE k 0 -1", "[\"2\", \"1\", \"a\", \"b\", \"c\"]"),
            ("LPOP k\nRPOP k\nLPOP k 2\nRPOP k 9\nEXISTS k", "\"2\"\n\"c\"\n[\"1\", \"a\"]\n[\"b\"]\n:0"),
            ("LPOP k\nLPOP k 1\nLPOP k 0\nLLEN k", "nil\nnil\nnil\n:0"),
            ("LPUSHX k a\nRPUSHX k a\nRPUSH k x\nLPUSHX k a b\nRPUSHX k c", ":0\n:0\n:1\n:3\n:4"),
            ("LINDEX k 0\nLINDEX k -1\nLINDEX k 4\nLINDEX k -5", "\"b\"\n\"c\"\nnil\nnil"),
            (
                "SET s v\nLPUSH s a\nLPOP s\nLLEN s\nLRANGE s 0 1",
                &format!("+OK\n{WRONG}\n{WRONG}\n{WRONG}\n{WRONG}"),
            ),
        ]);
    }

    #[test]
    fn matches_are_counted_from_either_end() {
        check_all(&[
            ("RPUSH k a b c 1 b b", ":6"),
            ("LPOS k b\nLPOS k b RANK 2\nLPOS k b RANK -1\nLPOS k x", ":1\n:4\n:5\nnil"),
            ("LPOS k b COUNT 0\nLPOS k b COUNT 2 RANK -1", "[:1, :4, :5]\n[:5, :4]"),
            ("LPOS k b MAXLEN 1\nLPOS k b COUNT 0 MAXLEN 5\nLPOS k 1 RANK 1", "nil\n[:1, :4]\n:3"),
        ]);
    }

    #[test]
    fn long_lists_are_quicklists_until_they_are_short_again() {
        for shards in [1, 5] {
            let mut bench = Bench::new(shards);
            let element = "x".repeat(100);
            let line = format!("RPUSH k {}", vec![element; 70].join(" "));
            assert_eq!(bench.run(&line), ":70");
            assert_eq!(bench.run("OBJECT ENCODING k"), "\"listpack\"");
            assert_eq!(bench.run(&line), ":140");
            assert_eq!(bench.run("OBJECT ENCODING k\nCOPY k l\nLLEN l"), "\"quicklist\"\n:1\n:140");
            bench.run("LPOP k 110");
            assert_eq!(bench.run("OBJECT ENCODING k\nLLEN k"), "\"listpack\"\n:30");
        }
    }
}
