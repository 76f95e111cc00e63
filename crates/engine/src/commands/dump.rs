//! DUMP: what a key holds as bytes that Redis and Valkey understand, too.

use crate::args::Args;
use crate::command::{Command, Flags, Flow, KeyFlags, KeySpec, PieceSizes, Plan};
use crate::ctx::{Ctx, Payload};
use crate::errors::Error;
use crate::keyspace::ValueRef;
use crate::rdb::{Writer, checksum, seal};
use crate::values::{Place, Side};
use crate::wall::WallClock;
use bytes::Bytes;
use corelane_resp::Reply;

pub(super) const COMMANDS: &[Command] = &[Command {
    name: "dump",
    arity: 2,
    flags: Flags::READONLY,
    categories: &["@keyspace"],
    keys: &[KeySpec::one(1, KeyFlags::RO.with(KeyFlags::ACCESS))],
    plan: Plan::OneShard(dump),
    since: "2.6.0",
    summary: "Returns a serialized representation of the value stored at a key.",
    complexity: "O(1) to access the key and additional O(N*M) to serialize it, where N is the number of objects composing the value and M their average size. For small string values the time complexity is thus O(1)+O(1*M) where M is small, so simply O(1).",
    syntax: "key",
    tips: &["nondeterministic_output"],
    ..Command::DEFAULT
}];

/// A payload that is being written.
#[derive(Clone, Debug)]
pub struct DumpWork {
    writer: Writer,
    /// Where in the value to go on.
    place: u64,
    /// How many bytes have been summed up, and their checksum.
    summed: (usize, u64),
}

impl DumpWork {
    /// What stands in front of a value's elements.
    fn new(value: ValueRef<'_>) -> Self {
        let mut writer = Writer::default();
        let (len, bytes) = extent(value);
        writer.reserve(if bytes > 0 { bytes + ELEMENT_FRAME * len } else { 0 });
        match value {
            ValueRef::String(string) => writer.string(string.len()),
            ValueRef::Hash(hash) => {
                let mut deadlines = false;
                if hash.has_deadlines() {
                    hash.for_each(|field, _| deadlines = deadlines || hash.deadline(&field.text()).is_some());
                }
                writer.hash(hash.len(), deadlines);
            }
            ValueRef::List(list) => writer.list(list.len()),
            ValueRef::Set(set) => writer.set(set.len()),
            ValueRef::SortedSet(set) => writer.sorted_set(set.len()),
        }
        Self { writer, place: 0, summed: (0, 0) }
    }

    /// Writes about `budget` elements more; true when all are written. Fields with deadlines come at once: some might go between
    /// two pieces.
    fn step(&mut self, value: ValueRef<'_>, wall: WallClock, budget: usize) -> bool {
        let (writer, place) = (&mut self.writer, self.place);
        let next = match value {
            ValueRef::String(string) => {
                let from = place as usize;
                let end =
                    string.len().min(from.saturating_add(budget.saturating_mul(PieceSizes::SHORT_BYTES)));
                writer.part(&string[from..end]);
                (end < string.len()).then_some(end as u64)
            }
            ValueRef::Hash(hash) => {
                let budget = if hash.has_deadlines() { usize::MAX } else { budget };
                hash.walk(place, budget, |field, value| {
                    let field = field.text();
                    writer.field(&field, &value.text(), hash.deadline(&field).map(|at| wall.shows_at(at)));
                })
            }
            ValueRef::List(list) => {
                let first = if place == 0 { list.end(Side::Left) } else { Some(Place::from_number(place)) };
                list.visit(first, budget, |element| writer.element(&element.text())).map(Place::to_number)
            }
            ValueRef::Set(set) => set.walk(place, budget, |member| writer.element(&member.text())),
            ValueRef::SortedSet(set) => {
                let from = place as usize;
                set.visit(from, budget, false, &mut |member, score| writer.member(member, score));
                from.checked_add(budget).filter(|next| *next < set.len()).map(|next| next as u64)
            }
        };
        let (before, sum) = self.summed;
        let bytes = self.writer.bytes();
        self.summed = (bytes.len(), checksum(sum, &bytes[before..]));
        self.place = next.unwrap_or(place);
        next.is_none()
    }
}

/// A value's whole payload.
pub(super) fn payload_of(value: ValueRef<'_>, wall: WallClock) -> Vec<u8> {
    let mut work = DumpWork::new(value);
    while !work.step(value, wall, usize::MAX) {}
    seal(work.writer, work.summed)
}

/// What an element has beside it in a payload: its length, or a score, or more digits than bytes.
const ELEMENT_FRAME: usize = 16;

/// How much there is to write. A long string is as many short elements.
fn extent(value: ValueRef<'_>) -> (usize, usize) {
    match value {
        ValueRef::String(string) => (string.len() / PieceSizes::SHORT_BYTES, string.len()),
        _ => value.extent(),
    }
}

fn dump(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply) -> Result<Flow, Error> {
    let (pacing, key, wall) = (ctx.pacing(), ctx.key(args.at(1)), ctx.shard.wall);
    let begun = match std::mem::take(&mut ctx.payload) {
        Payload::Dumping(work) => Some(work),
        _ => None,
    };
    let Some(entry) = ctx.lookup_once(key) else {
        reply.null();
        return Ok(Flow::Done);
    };
    let (value, extent) = (entry.value(), extent(entry.value()));
    let Some(piece) = pacing.piece(extent.0, extent) else { return Ok(Flow::Later) };
    let mut work = begun.unwrap_or_else(|| Box::new(DumpWork::new(value)));
    let is_done = work.step(value, wall, piece);
    drop(entry);
    if !is_done {
        ctx.payload = Payload::Dumping(work);
        return Ok(Flow::Again(1));
    }
    let DumpWork { writer, summed, .. } = *work;
    reply.bulk_shared(Bytes::from(seal(writer, summed)));
    Ok(Flow::Done)
}
