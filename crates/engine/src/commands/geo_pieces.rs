//! How members are searched for in areas, at once or a piece at a time.
//!
//! ```text
//! look at the members of the cells ─▶ sort runs ─▶ merge them ─▶ write, or build a sorted set
//! ```

use super::geo::{write_distance, write_position};
use super::geo_options::{Order, Query};
use super::sort_order::{MERGED_FACTOR, MergeSort, order_part};
use crate::command::Pacing;
use crate::geo::{Area, Found, Position};
use crate::keyspace::{Keyspace, Value};
use crate::settings::CompactLimits;
use crate::values::{SortedSet, SortedSetRef, Tally};
use corelane_resp::Reply;
use std::cmp::Ordering;

/// Members looked at in one go where a few are enough.
const ANY_PIECE: usize = 64;

/// A search that is under way.
#[derive(Clone, Debug)]
pub struct GeoWork {
    members: Members,
    phase: Phase,
    /// The places of the members that were chosen, in their order, unless that is the one in which they were found.
    order: Option<MergeSort>,
    set: SortedSet,
}

/// How far it is.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Phase {
    /// Looks at the members of this cell, from so many of them on.
    Look(usize, usize),
    /// All are found.
    Found,
    /// Sorts runs of them, from this place on.
    Order(usize),
    /// Makes one run of all.
    Merge,
    /// Writes or stores them, from this place in the order on.
    Write(usize),
}

impl Default for GeoWork {
    fn default() -> Self {
        Self { members: Members::default(), phase: Phase::Look(0, 0), order: None, set: SortedSet::default() }
    }
}

impl GeoWork {
    /// What was found, to be stored.
    pub(super) fn into_set(self) -> SortedSet {
        self.set
    }

    /// Gives up, and has what it has built freed by and by.
    pub(crate) fn discard(self, keyspace: &mut Keyspace) {
        keyspace.discard(Value::SortedSet(self.set));
    }

    /// How much to do in this call; `None` if that would not be brief and has to be.
    pub(super) fn piece(
        &mut self,
        pacing: Pacing,
        query: &Query,
        set: Option<SortedSetRef<'_>>,
    ) -> Option<usize> {
        let Some(set) = set else {
            if matches!(self.phase, Phase::Look(..)) {
                // If it was there, its time has come.
                *self = Self::default();
            }
            return pacing.piece(self.members.items.len(), (0, 0));
        };
        let looked_at = if self.phase == Phase::Look(0, 0) {
            let looked_at = cells(set, query).into_iter().map(|(_, count)| count).sum();
            let found_max = query.count.filter(|_| query.any).map_or(looked_at, |count| count.min(looked_at));
            self.members.reserve(found_max, set.extent());
            looked_at
        } else {
            set.len()
        };
        let piece = pacing.piece(looked_at, set.extent());
        let brief_len = pacing.sizes.brief_len;
        if piece.is_none()
            && query.any
            && self.members.look(set, query, (0, 0), brief_len).is_none()
            && self.members.items.len() <= brief_len
        {
            // The first few were enough.
            self.phase = Phase::Found;
            return Some(usize::MAX);
        }
        piece
    }

    /// Does a piece; true when all is done.
    pub(super) fn step(
        &mut self,
        query: &Query,
        set: Option<SortedSetRef<'_>>,
        budget: usize,
        limits: &CompactLimits,
        reply: &mut Reply,
    ) -> bool {
        let items = &self.members.items;
        match (self.phase, &mut self.order) {
            (Phase::Look(nth, from), _) => {
                let next = set.and_then(|set| self.members.look(set, query, (nth, from), budget));
                self.phase = next.map_or(Phase::Found, |(nth, from)| Phase::Look(nth, from));
            }
            (Phase::Found, order) => {
                let count = chosen(query, items);
                let compare = |a: &u32, b: &u32| compare(query, items, *a, *b);
                (self.phase, *order) = match sorted_by(query) {
                    None => (Phase::Write(0), None),
                    Some(_) if count == items.len() => (Phase::Order(0), Some(MergeSort::new(count))),
                    Some(_) => {
                        // A part of them comes as Valkey's algorithm leaves it, which does not stop on the way.
                        let mut places: Vec<u32> = (0..items.len() as u32).collect();
                        order_part(&mut places, 0..count, compare);
                        places.truncate(count);
                        (Phase::Write(0), Some(MergeSort::sorted(places)))
                    }
                };
            }
            (Phase::Order(from), Some(order)) => {
                let end = items.len().min(from.saturating_add(budget));
                order.add_run(from as u32..end as u32, |a, b| compare(query, items, a, b));
                self.phase = if end < items.len() { Phase::Order(end) } else { Phase::Merge };
            }
            (Phase::Merge, Some(order)) => {
                let budget = budget.saturating_mul(MERGED_FACTOR);
                if order.merge(budget, |a, b| compare(query, items, a, b)) {
                    self.phase = Phase::Write(0);
                }
            }
            (Phase::Order(_) | Phase::Merge, None) => unreachable!("there is something to be sorted"),
            (Phase::Write(from), _) => {
                let count = chosen(query, items);
                let end = count.min(from.saturating_add(budget));
                if query.store.is_some() {
                    self.build(query, from..end, limits);
                } else {
                    self.write(query, from..end, reply);
                }
                self.phase = Phase::Write(end);
                return end == count;
            }
        }
        false
    }

    /// The members at these places in the order.
    fn in_order(&self, range: std::ops::Range<usize>) -> impl Iterator<Item = (&[u8], &Item)> {
        range.map(|nth| {
            let place = self.order.as_ref().map_or(nth, |order| order.items()[nth] as usize);
            let item = &self.members.items[place];
            (self.members.member(item), item)
        })
    }

    fn write(&self, query: &Query, range: std::ops::Range<usize>, reply: &mut Reply) {
        let details = [query.with_distance, query.with_hash, query.with_position];
        let details = details.into_iter().filter(|with| *with).count();
        if range.start == 0 {
            reply.array(chosen(query, &self.members.items));
        }
        for (member, item) in self.in_order(range) {
            if details > 0 {
                reply.array(1 + details);
            }
            reply.bulk(member);
            if query.with_distance {
                write_distance(reply, item.found.distance / query.unit);
            }
            if query.with_hash {
                reply.int(item.score as i64);
            }
            if query.with_position {
                write_position(reply, item.found.position);
            }
        }
    }

    fn build(&mut self, query: &Query, range: std::ops::Range<usize>, limits: &CompactLimits) {
        let mut some = Tally::default();
        for (member, item) in self.in_order(range.clone()) {
            some.push(
                member,
                if query.store_distance { item.found.distance / query.unit } else { item.score },
            );
        }
        let count = chosen(query, &self.members.items);
        if range.len() == count {
            some.sort();
            self.set = SortedSet::from_sorted(&some, limits);
        } else {
            self.set.expect(count, 0, limits);
            for (member, score) in some.iter() {
                self.set.insert(member, score, limits);
            }
        }
    }
}

/// What the results are sorted by. Some of them means the nearest.
fn sorted_by(query: &Query) -> Option<Order> {
    query.order.or((query.count.is_some() && !query.any).then_some(Order::Near))
}

/// How many are asked for of those that were found.
fn chosen(query: &Query, items: &[Item]) -> usize {
    query.count.map_or(items.len(), |count| count.min(items.len()))
}

fn compare(query: &Query, items: &[Item], a: u32, b: u32) -> Ordering {
    let [a, b] = [a, b].map(|place| items[place as usize].found.distance);
    let near = a.partial_cmp(&b).unwrap_or(Ordering::Equal);
    if sorted_by(query) == Some(Order::Far) { near.reverse() } else { near }
}

/// The members of the cells to look at: the first one's rank, and how many.
fn cells(set: SortedSetRef<'_>, query: &Query) -> Vec<(usize, usize)> {
    let (Some(centre), Some(area)) = (query.centre, &query.area) else { return Vec::new() };
    let mut cells = area.cells(centre, query.unit);
    if query.store.is_some() {
        // A member can be stored but once.
        let all = cells.clone();
        let mut idx = 0;
        cells.retain(|cell| {
            idx += 1;
            !all[..idx - 1].contains(cell)
        });
    }
    let ranks = cells.iter().map(|cell| {
        let (min, end) = cell.scores();
        let [first, behind] = [min, end].map(|end| set.count_while(&|score, _| score < end));
        (first, behind.saturating_sub(first))
    });
    ranks.collect()
}

/// Members that were found, in the order in which they were.
#[derive(Clone, Debug, Default)]
struct Members {
    bytes: Vec<u8>,
    items: Vec<Item>,
}

#[derive(Clone, Copy, Debug)]
struct Item {
    at: usize,
    len: usize,
    score: f64,
    found: Found,
}

impl Members {
    /// Makes room for so many of a set, or less: what grows is copied at once, what is not written to costs nothing.
    fn reserve(&mut self, count: usize, (len, bytes): (usize, usize)) {
        if bytes > 0 {
            self.items.reserve(count);
            self.bytes.reserve(bytes / len.max(1) * count);
        }
    }

    /// Looks at about `budget` members more, from so many in this cell on. Returns where to go on.
    fn look(
        &mut self,
        set: SortedSetRef<'_>,
        query: &Query,
        (first, mut from): (usize, usize),
        mut budget: usize,
    ) -> Option<(usize, usize)> {
        let (Some(centre), Some(area)) = (query.centre, &query.area) else { return None };
        let limit = query.count.filter(|_| query.any).unwrap_or(usize::MAX);
        for (nth, (rank, count)) in cells(set, query).into_iter().enumerate().skip(first) {
            while from < count && self.items.len() < limit {
                if budget == 0 {
                    return Some((nth, from));
                }
                let here = (count - from).min(budget).min(if query.any { ANY_PIECE } else { usize::MAX });
                set.visit(rank + from, here, false, &mut |member, score| {
                    if self.items.len() < limit {
                        self.add(member, score, (centre, area, query.unit));
                    }
                });
                (from, budget) = (from + here, budget - here);
            }
            from = 0;
        }
        None
    }

    fn add(&mut self, member: &[u8], score: f64, (centre, area, unit): (Position, &Area, f64)) {
        if let Some(found) = area.find(centre, unit, score) {
            self.items.push(Item { at: self.bytes.len(), len: member.len(), score, found });
            self.bytes.extend_from_slice(member);
        }
    }

    fn member(&self, item: &Item) -> &[u8] {
        &self.bytes[item.at..item.at + item.len]
    }
}
