//! SORT of many elements, on the shard that has them, a piece at a time.
//!
//! ```text
//! load ─▶ weigh ─▶ order: sort runs ─▶ merge them ─▶ write ─▶ free
//!   │               └─ few are wanted: keep the best ─▲
//!   └─ they stay in their order ─────────────────────┘
//! ```

use super::sort::{FETCH, STORE, SortShare, WEIGH, gather, keep, load, visit_cells, weigh};
use super::sort_options::Options;
use super::sort_order::{MERGED_FACTOR, MergeSort, Weights, arrange};
use super::sort_pattern::Found;
use crate::args::Args;
use crate::command::{Flow, Pacing};
use crate::ctx::{Ctx, Payload};
use crate::errors::Error;
use crate::execute::shard_of;
use crate::texts::TextsBuilder;
use crate::values::Gathering;
use bytes::Bytes;
use corelane_resp::Reply;
use std::cmp::Ordering;
use std::ops::Range;

/// Where LIMIT ends before this many elements, only so many are kept while the others pass by.
const KEPT_MAX: usize = 4096;

/// A SORT that is under way.
#[derive(Clone, Debug)]
pub struct SortWork {
    phase: Phase,
    /// Elements in a piece.
    piece: usize,
    /// The elements of the source, and where each one is.
    texts: TextsBuilder,
    places: Vec<usize>,
    is_set: bool,
    weights: Weights<Bytes>,
    /// What has been found by which elements cannot be sorted.
    failed: Option<Error>,
    order: MergeSort,
    /// The part of the order that is the result.
    picked: Range<usize>,
    output: Output,
}

/// How long the texts of `len` elements can be together that take `bytes` bytes: a text is at most two and a half times as long as
/// an integer in a pack. Room is taken for all of them, since what grows is copied at once.
fn text_bytes(len: usize, bytes: usize) -> usize {
    bytes + (bytes / 2 * 3).min(20 * len)
}

/// How far it is.
#[derive(Clone, Copy, Debug)]
enum Phase {
    /// Reads the source, from this place on.
    Load(u64),
    /// Finds out what the elements are sorted by, from this one on.
    Weigh(usize),
    /// Sorts runs of them, from this one on.
    Order(usize),
    /// Makes one run of all.
    Merge,
    /// Writes the result, from this place in `picked` on.
    Write(usize),
    /// Frees what they were sorted by.
    Free,
}

/// Where the result goes.
#[derive(Clone, Debug)]
enum Output {
    Reply,
    /// Under a key of this shard.
    List(Gathering),
    /// To the shard of the destination.
    Texts(TextsBuilder),
}

impl SortWork {
    /// For a source of `len` elements in `bytes` bytes.
    pub(super) fn new(pacing: Pacing, (len, bytes): (usize, usize)) -> Box<Self> {
        Box::new(Self {
            phase: Phase::Load(0),
            piece: pacing.piece(len, (len, bytes)).unwrap_or(len),
            texts: TextsBuilder::with_capacity(len, text_bytes(len, bytes)),
            places: Vec::with_capacity(len),
            is_set: false,
            weights: Weights::Own,
            failed: None,
            order: MergeSort::new(0),
            picked: 0..0,
            output: Output::Reply,
        })
    }

    /// Does one piece; the last one ends in the reply, or in a payload for the next stage.
    pub(super) fn step(
        mut self: Box<Self>,
        ctx: &mut Ctx<'_>,
        (args, options): (Args<'_>, &Options<'_>),
        reply: &mut Reply,
    ) -> Result<Flow, Error> {
        let (shares, piece) = (ctx.shard.slots.shards() > 1, self.piece);
        match self.phase {
            Phase::Load(from) => {
                let loaded = self.places.len();
                let Self { texts, places, .. } = &mut *self;
                let push = &mut |text: &[u8]| places.push(texts.push(text));
                let loaded = load(ctx, args, options, from, loaded..loaded + piece, push)?;
                if loaded.is_none() {
                    // Its time has come meanwhile: it has not been there.
                    (*texts, *places) = Default::default();
                }
                let (next, is_set) = loaded.unwrap_or_default();
                self.is_set = is_set;
                self.phase = match (next, options.sorting(is_set)) {
                    (Some(next), _) => Phase::Load(next),
                    (None, Some(sorting)) if shares && sorting.by.is_some() => {
                        ctx.payload = SortShare::payload(self.texts.finish(), WEIGH);
                        return Ok(Flow::Done);
                    }
                    (None, Some(_)) => Phase::Weigh(0),
                    (None, None) => self.leave_in_order(options),
                };
            }
            Phase::Weigh(at) => self.weigh(ctx, options, at..self.len().min(at + piece))?,
            Phase::Order(at) => self.sort_run(options, at..self.len().min(at + piece)),
            Phase::Merge => {
                let Self { texts, places, weights, order, .. } = &mut *self;
                let text_of = |idx: u32| texts.at(places[idx as usize]);
                let compare = |a, b| weights.compare(&text_of, options.direction(), a, b);
                if order.merge(piece * MERGED_FACTOR, compare) {
                    self.phase = Phase::Write(0);
                }
            }
            Phase::Write(0) if shares && options.fetches() => {
                let picked = self.picked.clone().map(|idx| self.text(self.order.items()[idx]));
                ctx.payload = SortShare::payload(gather(picked), FETCH);
                return Ok(Flow::Done);
            }
            Phase::Write(at) => {
                if at == 0 {
                    self.open(ctx, args, options, reply);
                }
                let end = self.picked.len().min(at + piece);
                self.write(ctx, options, reply, at..end);
                self.phase = if end < self.picked.len() { Phase::Write(end) } else { Phase::Free };
            }
            Phase::Free => {
                if self.weights.free_some(piece * MERGED_FACTOR) {
                    self.close(ctx, args, options, reply);
                    return Ok(Flow::Done);
                }
            }
        }
        ctx.payload = Payload::Sorting(self);
        Ok(Flow::Again(1))
    }

    fn len(&self) -> usize {
        self.places.len()
    }

    fn text(&self, idx: u32) -> &[u8] {
        self.texts.at(self.places[idx as usize])
    }

    fn leave_in_order(&mut self, options: &Options<'_>) -> Phase {
        let len = self.len();
        self.order = MergeSort::new(len);
        self.order.add_run(0..len as u32, |_, _| Ordering::Equal);
        // Of lists and sorted sets the part that LIMIT names is what has been loaded.
        self.picked = if self.is_set { options.range(len) } else { 0..len };
        Phase::Write(0)
    }

    fn weigh(&mut self, ctx: &mut Ctx<'_>, options: &Options<'_>, range: Range<usize>) -> Result<(), Error> {
        let Some(sorting) = options.sorting(self.is_set) else { return Ok(()) };
        let elements: Vec<&[u8]> = range.clone().map(|idx| self.text(idx as u32)).collect();
        match weigh(ctx, &elements, sorting) {
            Ok(more) => self.weights.append(more, self.places.len()),
            // The keys of the others are looked up nevertheless.
            Err(error) => self.failed = self.failed.take().or(Some(error)),
        }
        if range.end < self.len() {
            self.phase = Phase::Weigh(range.end);
            return Ok(());
        }
        if let Some(error) = self.failed.take() {
            return Err(error);
        }
        self.picked = options.range(self.len());
        let is_part = self.picked.len() < self.len();
        if is_part && matches!(self.weights, Weights::Texts(_)) {
            // Equal ones come in the order of an algorithm that cannot stop in between.
            let elements: Vec<&[u8]> = (0..self.len()).map(|idx| self.text(idx as u32)).collect();
            let order = arrange(&elements, &self.weights, options.direction(), self.picked.clone());
            self.picked = 0..order.len();
            self.order = MergeSort::sorted(order);
            self.phase = Phase::Write(0);
            return Ok(());
        }
        self.order = MergeSort::new(if self.picked.end <= KEPT_MAX { 0 } else { self.len() });
        self.phase = Phase::Order(0);
        Ok(())
    }

    fn sort_run(&mut self, options: &Options<'_>, range: Range<usize>) {
        let Self { texts, places, weights, order, picked, .. } = self;
        let text_of = |idx: u32| texts.at(places[idx as usize]);
        let compare = |a, b| weights.compare(&text_of, options.direction(), a, b);
        let run = range.start as u32..range.end as u32;
        if picked.end <= KEPT_MAX {
            order.add_and_keep(run, picked.end, compare);
        } else {
            order.add_run(run, compare);
        }
        self.phase = if range.end < places.len() { Phase::Order(range.end) } else { Phase::Merge };
    }

    fn open(&mut self, ctx: &Ctx<'_>, args: Args<'_>, options: &Options<'_>, reply: &mut Reply) {
        self.output = match options.store {
            None => {
                reply.array(self.picked.len() * options.width());
                Output::Reply
            }
            Some(at) if shard_of(ctx.shard, args.at(at)) == ctx.shard.me => {
                Output::List(Gathering::new(ctx.shard.settings.compact.list_size))
            }
            Some(_) => Output::Texts(TextsBuilder::default()),
        };
    }

    fn write(&mut self, ctx: &mut Ctx<'_>, options: &Options<'_>, reply: &mut Reply, range: Range<usize>) {
        let Self { texts, places, order, picked, output, .. } = self;
        let row = |idx: usize| texts.at(places[order.items()[picked.start + idx] as usize]);
        let elements: Vec<&[u8]> = range.map(row).collect();
        visit_cells(ctx, options, &elements, &mut |found| match (&mut *output, found) {
            (Output::Reply, Some(found)) => found.write(reply),
            (Output::Reply, None) => reply.null(),
            (Output::List(list), found) => list.push(found.map_or(b"", Found::text)),
            (Output::Texts(rows), found) => {
                rows.push(found.map_or(b"", Found::text));
            }
        });
    }

    fn close(self: Box<Self>, ctx: &mut Ctx<'_>, args: Args<'_>, options: &Options<'_>, reply: &mut Reply) {
        match (self.output, options.store) {
            (Output::List(list), Some(at)) => reply.int(keep(ctx, args.at(at), list.finish()) as i64),
            (Output::Texts(rows), _) => ctx.payload = SortShare::payload(rows.finish(), STORE),
            _ => {}
        }
    }
}
