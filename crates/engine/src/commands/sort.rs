//! SORT and SORT_RO: the elements of a list, a set or a sorted set in order, or what other keys hold about them.
//!
//! The keys that BY and GET name with a `*` are known only once the source has been read. With such a pattern the command is
//! therefore one on the whole database, otherwise one on its source and its destination. What a shard can do alone, it does at
//! once; else:
//!
//! ```text
//! stage 0  the source's shard   loads the elements, and sorts them if it can
//! WEIGH    all shards           what the keys of BY hold, each shard its own; the coordinator sorts
//! FETCH    all shards           what the keys of GET hold about the elements of the result
//! STORE    the destination's    keeps the result as a list
//! ```

use super::sort_options::{Options, Sorting};
use super::sort_order::{Weights, parse_weight};
use super::sort_pattern::{Found, Pattern, names_keys};
use super::sort_pieces::SortWork;
use crate::args::Args;
use crate::command::{Command, Find, Flags, Flow, KeyFlags, KeySpec, Pace, Plan};
use crate::ctx::{Ctx, Decide, Next, On, PartResult, Payload, write_error};
use crate::errors::Error;
use crate::events::EventClasses;
use crate::execute::shard_of;
use crate::keyspace::{NewValue, Value, ValueRef};
use crate::texts::{Texts, TextsBuilder};
use crate::values::{List, Place, Side};
use bytes::Bytes;
use corelane_resp::{Mark, Reply};
use std::ops::Range;

const RECORD: Command = Command {
    arity: -2,
    categories: &["@set", "@sortedset", "@list", "@dangerous"],
    widens: Some(reads_pattern_keys),
    complexity: "O(N+M*log(M)) where N is the number of elements in the source and M the number of elements returned; O(N) \
                 where they are not sorted",
    ..Command::DEFAULT
};

const SOURCE_KEY: KeySpec = KeySpec::one(SOURCE, KeyFlags::RO.with(KeyFlags::ACCESS));
const PATTERN_KEYS: KeySpec = KeySpec {
    notes: Some(
        "For the optional BY/GET keyword. It is marked 'unknown' because the key names derive from the content of the key we sort",
    ),
    find: Find::Unknown(None),
    ..SOURCE_KEY
};
const DESTINATION_KEY: KeySpec = KeySpec {
    flags: KeyFlags::OW.with(KeyFlags::UPDATE),
    notes: Some(
        "For the optional STORE keyword. It is marked 'unknown' because the keyword can appear anywhere in the argument array",
    ),
    find: Find::Unknown(Some(destination)),
    ..SOURCE_KEY
};

pub(super) const COMMANDS: &[Command] = &[
    Command {
        name: "sort",
        flags: Flags::WRITE.with(Flags::DENYOOM).with(Flags::MOVABLEKEYS),
        keys: &[SOURCE_KEY, PATTERN_KEYS, DESTINATION_KEY],
        plan: Plan::Staged { read, decide, write: run_stage },
        only_reads: Some(|args| destination(args).is_none()),
        check: Some(|args, _| Options::parse(args, true).map(|_| ())),
        summary: "Sorts the elements in a list, a set, or a sorted set, optionally storing the result.",
        syntax: "key [BY pattern] #by-pattern ^ [LIMIT (offset count)] [GET pattern ...] #get-pattern ^ [ASC | DESC] #order \
                 [ALPHA] #sorting [STORE destination] ^2",
        ..RECORD
    },
    Command {
        name: "sort_ro",
        flags: Flags::READONLY.with(Flags::MOVABLEKEYS),
        keys: &[SOURCE_KEY, PATTERN_KEYS],
        plan: Plan::Staged { read, decide, write: run_stage },
        check: Some(|args, _| Options::parse(args, false).map(|_| ())),
        since: "7.0.0",
        summary: "Returns the sorted elements of a list, a set, or a sorted set.",
        syntax: "key [BY pattern] #by-pattern ^ [LIMIT (offset count)] [GET pattern ...] #get-pattern ^ [ASC | DESC] #order \
                 [ALPHA] #sorting",
        ..RECORD
    },
];

pub(super) const SOURCE: usize = 1;

/// Stages behind the first one.
pub(super) const WEIGH: u8 = 1;
pub(super) const FETCH: u8 = 2;
pub(super) const STORE: u8 = 3;

/// Where the last STORE's key is, in whatever stands behind the source.
fn destination(args: Args<'_>) -> Option<usize> {
    let (mut idx, mut found) = (SOURCE + 1, None);
    while idx < args.len() {
        if args.is(idx, "STORE") && idx + 1 < args.len() {
            found = Some(idx + 1);
            idx += 1;
        } else if args.is(idx, "LIMIT") {
            idx += 2;
        } else if args.is(idx, "BY") || args.is(idx, "GET") {
            idx += 1;
        }
        idx += 1;
    }
    found
}

/// Whether BY or GET may stand for keys.
fn reads_pattern_keys(args: Args<'_>) -> bool {
    let is_option = |idx: usize| args.is(idx, "BY") || args.is(idx, "GET");
    (SOURCE + 2..args.len()).any(|idx| is_option(idx - 1) && names_keys(args.at(idx)))
}

/// What the stages hand on.
#[derive(Clone, Debug)]
pub struct SortShare {
    /// Elements of the source, or what the result is made of, or the result.
    texts: Texts,
    /// What the next stage is to do.
    stage: u8,
    /// What this shard's keys hold, by number of element and pattern.
    found: Vec<(u64, Bytes)>,
}

impl SortShare {
    pub(super) fn payload(texts: Texts, stage: u8) -> Payload {
        Payload::Sort(Box::new(Self { texts, stage, found: Vec::new() }))
    }
}

/// Hands over the elements of the source, those of a list or a sorted set that stay in their order only as far as LIMIT wants
/// them: of these the ones in `part`, whose first is at `from`. Returns where to go on, and whether the source is a set; `None`
/// without a source.
pub(super) fn load(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    options: &Options<'_>,
    from: u64,
    part: Range<usize>,
    push: &mut dyn FnMut(&[u8]),
) -> Result<Option<(Option<u64>, bool)>, Error> {
    let Some(entry) = ctx.lookup_once(ctx.key(args.at(SOURCE))) else { return Ok(None) };
    let wanted = |len: usize| if options.unsorted { options.range(len) } else { 0..len };
    let reverse = options.unsorted && options.descending;
    let next = match entry.value() {
        ValueRef::Set(set) => {
            return Ok(Some((set.walk(from, part.len(), |member| push(&member.text())), true)));
        }
        ValueRef::List(list) => {
            let range = wanted(list.len());
            let (side, first) = match reverse {
                false => (Side::Left, range.start),
                true => (Side::Right, list.len().wrapping_sub(range.start + 1)),
            };
            let first = if from == 0 { list.place(first) } else { Some(Place::from_number(from)) };
            let (mut places, end) = (list.places(first, side), part.end.min(range.len()));
            places.by_ref().take(end - part.start).for_each(|place| push(&list.get(place).text()));
            places.next().filter(|_| end < range.len()).map(Place::to_number)
        }
        ValueRef::SortedSet(set) => {
            let (range, first) = (wanted(set.len()), part.start);
            let end = part.end.min(range.len());
            set.visit(range.start + first, end - first, reverse, &mut |member, _| push(member));
            (end < range.len()).then_some(end as u64)
        }
        ValueRef::String(_) | ValueRef::Hash(_) => return Err(Error::WrongType),
    };
    Ok(Some((next, false)))
}

/// How many elements the source has, and how many bytes; `None` without a source.
fn extent(ctx: &mut Ctx<'_>, args: Args<'_>) -> Option<(usize, usize)> {
    match ctx.find(ctx.key(args.at(SOURCE)))?.value() {
        ValueRef::Set(set) => Some(set.extent()),
        ValueRef::List(list) => Some(list.extent()),
        ValueRef::SortedSet(set) => Some(set.extent()),
        ValueRef::String(_) | ValueRef::Hash(_) => None,
    }
}

/// What the elements are sorted by; all keys must be on this shard.
pub(super) fn weigh(
    ctx: &mut Ctx<'_>,
    elements: &[&[u8]],
    sorting: Sorting<'_>,
) -> Result<Weights<Bytes>, Error> {
    let mut name = Vec::new();
    let Some(by) = sorting.by else {
        if sorting.alpha {
            return Ok(Weights::Own);
        }
        let numbers = elements.iter().map(|element| parse_weight(element));
        return Ok(Weights::Numbers(numbers.collect::<Result<_, _>>()?));
    };
    if sorting.alpha {
        let texts =
            elements.iter().map(|element| by.look_up(ctx, element, &mut name, |found| found.to_bytes()));
        return Ok(Weights::Texts(texts.collect()));
    }
    let numbers: Vec<_> = elements
        .iter()
        .map(|element| by.look_up(ctx, element, &mut name, |found| parse_weight(found.text())))
        .collect();
    // All of them are looked up, also behind one that is no number.
    let numbers = numbers.into_iter().map(|number| number.unwrap_or(Ok(0.0)));
    Ok(Weights::Numbers(numbers.collect::<Result<_, _>>()?))
}

fn read(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply) -> Result<Flow, Error> {
    if !ctx.keys.contains(SOURCE) {
        return Ok(Flow::Done);
    }
    let options = Options::parse(args, true)?;
    if let Payload::Sorting(work) = std::mem::take(&mut ctx.payload) {
        return work.step(ctx, (args, &options), reply);
    }
    let pacing = ctx.pacing();
    if pacing.pace != Pace::Whole
        && let Some(extent) = extent(ctx, args)
        && !pacing.is_brief(extent.0, extent)
    {
        if pacing.pace == Pace::Brief {
            // What is put off has looked its key up.
            drop(ctx.lookup_once(ctx.key(args.at(SOURCE))));
            return Ok(Flow::Later);
        }
        return SortWork::new(pacing, extent).step(ctx, (args, &options), reply);
    }
    let mut texts = TextsBuilder::default();
    let loaded = load(ctx, args, &options, 0, 0..usize::MAX, &mut |text| {
        texts.push(text);
    })?;
    let is_set = loaded.is_some_and(|(_, is_set)| is_set);
    let texts = texts.finish();
    let elements: Vec<&[u8]> = texts.iter().collect();
    let has_all = ctx.shard.slots.shards() == 1;
    let picked: Vec<&[u8]> = match options.sorting(is_set) {
        Some(sorting) if !has_all && sorting.by.is_some() => {
            ctx.payload = SortShare::payload(texts, WEIGH);
            return Ok(Flow::Done);
        }
        Some(sorting) => {
            let weights = weigh(ctx, &elements, sorting)?;
            options.arrange(&elements, &weights).into_iter().map(|idx| elements[idx as usize]).collect()
        }
        // Of lists and sorted sets that is what has been loaded.
        None if is_set => elements[options.range(elements.len())].to_vec(),
        None => elements,
    };
    if !has_all && options.fetches() {
        ctx.payload = SortShare::payload(gather(picked.into_iter()), FETCH);
        return Ok(Flow::Done);
    }
    let Some(store_at) = options.store else {
        reply.array(picked.len() * options.width());
        visit_cells(ctx, &options, &picked, &mut |found| match found {
            Some(found) => found.write(reply),
            None => reply.null(),
        });
        return Ok(Flow::Done);
    };
    let mut rows = TextsBuilder::default();
    visit_cells(ctx, &options, &picked, &mut |found| {
        rows.push(found.map_or(b"", Found::text));
    });
    let rows = rows.finish();
    if shard_of(ctx.shard, args.at(store_at)) == ctx.shard.me {
        reply.int(store(ctx, args.at(store_at), &rows) as i64);
    } else {
        ctx.payload = SortShare::payload(rows, STORE);
    }
    Ok(Flow::Done)
}

/// What the result has for these elements: themselves, or what GET finds about each of them.
pub(super) fn visit_cells(
    ctx: &mut Ctx<'_>,
    options: &Options<'_>,
    elements: &[&[u8]],
    put: &mut dyn FnMut(Option<Found<'_>>),
) {
    let mut name = Vec::new();
    for element in elements {
        if options.gets.is_empty() {
            put(Some(Found::Slice(element)));
        }
        for pattern in &options.gets {
            if pattern.look_up(ctx, element, &mut name, |found| put(Some(found))).is_none() {
                put(None);
            }
        }
    }
}

pub(super) fn gather<'a>(texts: impl Iterator<Item = &'a [u8]>) -> Texts {
    let mut gathered = TextsBuilder::default();
    texts.for_each(|text| {
        gathered.push(text);
    });
    gathered.finish()
}

/// Keeps the result under the destination; returns how many elements it has.
fn store(ctx: &mut Ctx<'_>, name: &[u8], rows: &Texts) -> usize {
    keep(ctx, name, List::gather(rows.iter(), ctx.shard.settings.compact.list_size))
}

/// The same where it is a list already.
pub(super) fn keep(ctx: &mut Ctx<'_>, name: &[u8], list: List) -> usize {
    let key = ctx.key(name);
    let len = list.as_ref().len();
    if len > 0 {
        ctx.set(key, NewValue::Owned(Value::List(list)), None);
        ctx.notify(EventClasses::LIST, "sortstore", name);
    } else if ctx.remove(key) {
        ctx.notify(EventClasses::GENERIC, "del", name);
    }
    len
}

/// The stages behind the first one, on one of several shards.
fn run_stage(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply) -> Result<Flow, Error> {
    let options = Options::parse(args, true)?;
    let Payload::Sort(mut share) = std::mem::take(&mut ctx.payload) else { return Ok(Flow::Done) };
    let patterns = match (ctx.stage, options.by) {
        (STORE, _) => {
            let at = options.store.unwrap_or(SOURCE);
            reply.int(store(ctx, args.at(at), &share.texts) as i64);
            return Ok(Flow::Done);
        }
        (WEIGH, Some(by)) => vec![by],
        _ => options.gets,
    };
    let mut name = Vec::new();
    for (row, element) in share.texts.iter().enumerate() {
        for (column, pattern) in patterns.iter().enumerate() {
            if !pattern.write_name(element, &mut name) || shard_of(ctx.shard, &name) != ctx.shard.me {
                continue;
            }
            if let Some(text) = pattern.look_up(ctx, element, &mut name, |found| found.to_bytes()) {
                share.found.push(((row * patterns.len() + column) as u64, text));
            }
        }
    }
    ctx.payload = Payload::Sort(share);
    Ok(Flow::Done)
}

fn decide(decide: &mut Decide<'_>) -> Next {
    match next(decide) {
        Ok(next) => next,
        Err(error) => {
            write_error(&error, decide.reply);
            Next::Reply
        }
    }
}

/// Everything that all shards have found, in order of its numbers; and what they were asked about.
fn combine(results: &mut [PartResult]) -> (Texts, Vec<(u64, Bytes)>) {
    let (mut texts, mut all) = (Texts::default(), Vec::new());
    for result in results {
        if let Payload::Sort(share) = std::mem::take(&mut result.payload) {
            texts = share.texts;
            all.extend(share.found);
        }
    }
    all.sort_unstable_by_key(|(number, _)| *number);
    (texts, all)
}

fn next(decide: &mut Decide<'_>) -> Result<Next, Error> {
    if let Some(done) = decide.results.iter().find(|result| !result.reply.is_empty()) {
        decide.reply.append_range(&done.reply, Mark::default(), done.reply.mark());
        return Ok(Next::Reply);
    }
    let options = Options::parse(decide.args, true)?;
    if decide.stage == 0 {
        let shares = decide.results.iter_mut().map(|result| std::mem::take(&mut result.payload));
        let share = shares.into_iter().find_map(|payload| match payload {
            Payload::Sort(share) => Some(share),
            _ => None,
        });
        return Ok(hand_on(*share.expect("the source's shard has answered or handed on"), &options));
    }
    let (texts, found) = combine(decide.results);
    let elements: Vec<&[u8]> = texts.iter().collect();
    if decide.stage == FETCH {
        return Ok(finish(&options, &elements, found, decide.reply));
    }
    let mut weights: Vec<Option<Bytes>> = vec![None; elements.len()];
    found.into_iter().for_each(|(row, text)| weights[row as usize] = Some(text));
    let weights = if options.alpha {
        Weights::Texts(weights)
    } else {
        let number = |weight: &Option<Bytes>| weight.as_ref().map_or(Ok(0.0), |text| parse_weight(text));
        Weights::Numbers(weights.iter().map(number).collect::<Result<_, _>>()?)
    };
    let order = options.arrange(&elements, &weights);
    let picked: Vec<&[u8]> = order.into_iter().map(|idx| elements[idx as usize]).collect();
    if options.fetches() {
        let share = SortShare::payload(gather(picked.into_iter()), FETCH);
        return Ok(Next::Run { stage: FETCH, on: On::All, payload: share });
    }
    Ok(finish(&options, &picked, Vec::new(), decide.reply))
}

/// The stage that a share of stage 0 is for.
fn hand_on(share: SortShare, options: &Options<'_>) -> Next {
    let on = match options.store {
        Some(at) if share.stage == STORE => On::Key(at),
        _ => On::All,
    };
    Next::Run { stage: share.stage, on, payload: Payload::Sort(Box::new(share)) }
}

/// The result is known: to the client, or to the destination.
fn finish(options: &Options<'_>, elements: &[&[u8]], found: Vec<(u64, Bytes)>, reply: &mut Reply) -> Next {
    let width = options.width();
    let mut found = found.into_iter().peekable();
    let mut cell = |row: usize, column: usize| match options.gets.get(column) {
        None => Some(Bytes::copy_from_slice(elements[row])),
        Some(Pattern::Element) => Some(Bytes::copy_from_slice(elements[row])),
        Some(_) => {
            found.next_if(|(number, _)| *number == (row * width + column) as u64).map(|(_, text)| text)
        }
    };
    let cells = (0..elements.len()).flat_map(|row| (0..width).map(move |column| (row, column)));
    let Some(store_at) = options.store else {
        reply.array(elements.len() * width);
        for (row, column) in cells {
            match cell(row, column) {
                Some(text) => reply.bulk_shared(text),
                None => reply.null(),
            }
        }
        return Next::Reply;
    };
    let mut rows = TextsBuilder::default();
    for (row, column) in cells {
        rows.push(&cell(row, column).unwrap_or_default());
    }
    let payload = SortShare::payload(rows.finish(), STORE);
    Next::Run { stage: STORE, on: On::Key(store_at), payload }
}

#[cfg(test)]
mod tests {
    use crate::commands::testing::{Bench, check_all};

    const WRONG: &str = "-WRONGTYPE Operation against a key holding the wrong kind of value";
    const NO_NUMBER: &str = "-ERR One or more scores can't be converted into double";

    #[test]
    fn elements_are_sorted_by_themselves() {
        check_all(&[
            ("RPUSH l 3 -1 10 2.5 3", ":5"),
            (
                "SORT l\nSORT_RO l DESC",
                "[\"-1\", \"2.5\", \"3\", \"3\", \"10\"]\n[\"10\", \"3\", \"3\", \"2.5\", \"-1\"]",
            ),
            (
                "SORT l ALPHA LIMIT 1 2\nSORT l LIMIT 9 1\nSORT l LIMIT -3 1",
                "[\"10\", \"2.5\"]\n[]\n[\"-1\"]",
            ),
            (
                "SORT l BY nosort DESC LIMIT 1 2\nSORT l BY nosort",
                "[\"2.5\", \"10\"]\n[\"3\", \"-1\", \"10\", \"2.5\", \"3\"]",
            ),
            (
                "ZADD z 3 a 1 b 2 c\nSORT z BY nosort\nSORT z BY nosort DESC LIMIT 0 1",
                ":3\n[\"b\", \"c\", \"a\"]\n[\"a\"]",
            ),
            (
                "SADD s 3 1 2\nSORT s\nSORT s DESC GET # GET none",
                ":3\n[\"1\", \"2\", \"3\"]\n[\"3\", nil, \"2\", nil, \"1\", nil]",
            ),
            ("SORT none\nSORT z\nSORT none STORE l\nEXISTS l", &format!("[]\n{NO_NUMBER}\n:0\n:0")),
            ("SET str v\nSORT str\nHSET h f v\nSORT h STORE z", &format!("+OK\n{WRONG}\n:1\n{WRONG}")),
        ]);
    }

    #[test]
    fn other_keys_decide_and_tell() {
        check_all(&[
            ("RPUSH l 1 2 3 4\nMSET w_1 30 w_2 10 w_3 20 o_1 a o_2 b", ":4\n+OK"),
            ("HSET h_1 f 5 g x\nHSET h_2 f 4\nHSET h_3 g y", ":2\n:1\n:1"),
            ("SORT l BY w_*\nSORT l BY w_* DESC LIMIT 0 2", "[\"4\", \"2\", \"3\", \"1\"]\n[\"1\", \"3\"]"),
            ("SORT l BY h_*->f GET h_*->g GET #", "[\"y\", \"3\", nil, \"4\", nil, \"2\", \"x\", \"1\"]"),
            ("SORT l BY w_* ALPHA GET o_*", "[nil, \"b\", nil, \"a\"]"),
            ("SORT l BY nosort GET o_* GET h_*", "[\"a\", nil, \"b\", nil, nil, nil, nil, nil]"),
            ("SORT l BY w_* GET o_* STORE d\nLRANGE d 0 -1\nTYPE d", ":4\n[\"\", \"b\", \"\", \"a\"]\n+list"),
            (
                "SORT l BY w_* STORE l\nLRANGE l 0 -1\nSORT l STORE w_1\nTYPE w_1",
                ":4\n[\"4\", \"2\", \"3\", \"1\"]\n:4\n+list",
            ),
            ("SET w_2 x\nSORT l BY w_*\nSORT l BY w_* STORE d", &format!("+OK\n{NO_NUMBER}\n{NO_NUMBER}")),
            ("SORT l BY w_* LIMIT 4 1 STORE d\nEXISTS d", &format!("{NO_NUMBER}\n:1")),
            (
                "SET w_2 1\nSORT l BY w_* LIMIT 4 1 STORE d\nEXISTS d\nSORT none BY w_* GET o_*",
                "+OK\n:0\n:0\n[]",
            ),
        ]);
    }

    #[test]
    fn transactions_and_waiting_clients_see_what_is_stored() {
        for shards in [1, 2, 5] {
            let mut bench = Bench::new(shards);
            bench.run("RPUSH l 2 1 3\nMSET w_1 9 w_2 8 w_3 7");
            let waiter = bench.connect(1, 7);
            bench.send(waiter, "BLPOP to 0");
            assert_eq!(bench.run("SORT l BY w_* GET # STORE to"), ":3");
            assert_eq!(bench.hear(waiter), "[\"to\", \"3\"]");
            let queued = "MULTI\nSET w_1 1\nSORT l BY w_* STORE to\nLRANGE to 0 -1\nSORT l GET w_*\nEXEC";
            let reply = bench.run(queued);
            let expected = "[+OK, :3, [\"1\", \"3\", \"2\"], [\"1\", \"8\", \"7\"]]";
            assert_eq!(reply.lines().last(), Some(expected), "on {shards} shards");
        }
    }

    #[test]
    fn large_results_are_the_same_on_any_number_of_shards() {
        let run = |shards| {
            let mut bench = Bench::new(shards);
            for n in 0..700 {
                bench.run(&format!(
                    "SADD s m{n}\nSET w:m{n} {}\nHSET h:m{n} f {}",
                    n * 37 % 101,
                    "x".repeat(n)
                ));
            }
            ["BY w:* LIMIT 100 50", "BY w:* DESC GET # GET h:*->f", "BY nosort GET w:* STORE d", "ALPHA DESC"]
                .map(|options| bench.run(&format!("SORT s {options}\nLRANGE d 0 -1\nOBJECT ENCODING d")))
        };
        assert!(run(1) == run(2) && run(2) == run(5));
    }
}
