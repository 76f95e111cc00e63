//! Members of a sorted set whose places are in an area: GEOSEARCH, GEOSEARCHSTORE, GEORADIUS and GEORADIUSBYMEMBER.
//!
//! The source's shard searches. Where the result is stored on another one, the members are sent there with their scores.

use super::geo::{GEO, READ, write_distance, write_position};
use super::geo_options::{Form, Order, Query, RADIUS_EVENT, SEARCH_DESTINATION, SEARCH_EVENT};
use super::sort_order::order_part;
use super::zset_pieces::store_members;
use crate::args::Args;
use crate::command::{Command, Find, Flags, Flow, Handler, KeyFlags, KeySpec, Plan};
use crate::ctx::{Ctx, Decide, Next, On, Payload, SentScores};
use crate::errors::Error;
use crate::geo::{Area, Found, Position};
use crate::values::{SortedSetRef, Tally};
use corelane_resp::{Mark, Reply};
use std::cmp::Ordering;

const SOURCE_KEY: KeySpec = KeySpec::one(1, KeyFlags::RO.with(KeyFlags::ACCESS));
const STORED: KeyFlags = KeyFlags::OW.with(KeyFlags::UPDATE);

const fn store_key(word: &'static str, begin: usize) -> KeySpec {
    KeySpec {
        flags: STORED.with(KeyFlags::VARIABLE_FLAGS),
        find: Find::Keyword { word, key: destination },
        flags_for: Some(|_| STORED),
        ..KeySpec::one(begin, KeyFlags::NONE)
    }
}

/// Searches, and stores the result where there is something to store it in.
const fn searches(name: &'static str, arity: i16, read: Handler) -> Command {
    Command {
        name,
        arity,
        flags: Flags::WRITE.with(Flags::DENYOOM).with(Flags::MOVABLEKEYS),
        plan: Plan::Staged { read, decide, write: store_sent },
        complexity: "O(N+log(M)) where N is the number of members in the cells around the area and M that of all members",
        ..GEO
    }
}

const fn only_reads(name: &'static str, arity: i16, run: Handler) -> Command {
    Command {
        flags: Flags::READONLY,
        keys: READ,
        plan: Plan::OneShard(run),
        since: "3.2.10",
        ..searches(name, arity, run)
    }
}

pub(super) const COMMANDS: &[Command] = &[
    Command {
        since: "6.2.0",
        summary: "Queries a geospatial index for members inside an area of a box, circle, or a polygon.",
        syntax: "key [FROMMEMBER member | FROMLONLAT (longitude latitude) #fromlonlat] #from ( ( BYRADIUS radius ( M | KM | FT | MI ) #unit ) #circle | \
                 ( BYBOX width height ( M | KM | FT | MI ) #unit ) #box | ( BYPOLYGON num-vertices longitude latitude \
                 [longitude latitude ...] #vertices ) #polygon @9.0.0 ) #by [ASC | DESC] #order [( COUNT count [ANY] ) #count-block] \
                 [WITHCOORD] [WITHDIST] [WITHHASH]",
        ..only_reads("geosearch", -7, |ctx, args, reply| search(ctx, args, reply, Form::Search))
    },
    Command {
        flags: Flags::WRITE.with(Flags::DENYOOM),
        keys: &[KeySpec::one(1, STORED), KeySpec::one(2, KeyFlags::RO.with(KeyFlags::ACCESS))],
        since: "6.2.0",
        summary: "Queries a geospatial index for members inside an area of a box, a circle, or a polygon, optionally stores the result.",
        syntax: "destination source [FROMMEMBER member | FROMLONLAT (longitude latitude) #fromlonlat] #from ( ( BYRADIUS radius ( M | KM | FT | MI ) #unit ) #circle | \
                 ( BYBOX width height ( M | KM | FT | MI ) #unit ) #box | ( BYPOLYGON num-vertices longitude latitude \
                 [longitude latitude ...] #vertices ) #polygon @9.0.0 ) #by [ASC | DESC] #order [( COUNT count [ANY] ) #count-block] \
                 [STOREDIST]",
        ..searches("geosearchstore", -8, |ctx, args, reply| search(ctx, args, reply, Form::SearchStore))
    },
    Command {
        keys: &[SOURCE_KEY, store_key("STORE", 6), store_key("STOREDIST", 6)],
        summary: "Queries a geospatial index for members within a distance from a coordinate, optionally stores the result.",
        syntax: "key longitude latitude radius ( M | KM | FT | MI ) #unit [WITHCOORD] [WITHDIST] [WITHHASH] [( COUNT count [ANY] @6.2.0 ) #count-block] \
                 [ASC | DESC] #order [STORE key #storekey | STOREDIST key #storedistkey] #store",
        ..searches("georadius", -6, |ctx, args, reply| {
            search(ctx, args, reply, Form::Radius { stores: true })
        })
    },
    Command {
        summary: "Returns members from a geospatial index that are within a distance from a coordinate.",
        syntax: "key longitude latitude radius ( M | KM | FT | MI ) #unit [WITHCOORD] [WITHDIST] [WITHHASH] [( COUNT count [ANY] @6.2.0 ) #count-block] \
                 [ASC | DESC] #order",
        ..only_reads("georadius_ro", -6, |ctx, args, reply| {
            search(ctx, args, reply, Form::Radius { stores: false })
        })
    },
    Command {
        keys: &[SOURCE_KEY, store_key("STORE", 5), store_key("STOREDIST", 5)],
        summary: "Queries a geospatial index for members within a distance from a member, optionally stores the result.",
        syntax: "key member radius ( M | KM | FT | MI ) #unit [WITHCOORD] [WITHDIST] [WITHHASH] [( COUNT count [ANY] ) #count-block] \
                 [ASC | DESC] #order [STORE key #storekey | STOREDIST key #storedistkey] #store",
        ..searches("georadiusbymember", -5, |ctx, args, reply| {
            search(ctx, args, reply, Form::RadiusByMember { stores: true })
        })
    },
    Command {
        summary: "Returns members from a geospatial index that are within a distance from a member.",
        syntax: "key member radius ( M | KM | FT | MI ) #unit [WITHCOORD] [WITHDIST] [WITHHASH] [( COUNT count [ANY] ) #count-block] \
                 [ASC | DESC] #order",
        ..only_reads("georadiusbymember_ro", -5, |ctx, args, reply| {
            search(ctx, args, reply, Form::RadiusByMember { stores: false })
        })
    },
];

/// The index of the last key behind STORE or STOREDIST, if there is one. Valkey looks from here on whatever the command is.
fn destination(args: Args<'_>) -> Option<usize> {
    let (mut idx, mut found) = (5, None);
    while idx + 1 < args.len() {
        if args.is(idx, "STORE") || args.is(idx, "STOREDIST") {
            found = Some(idx + 1);
            idx += 1;
        }
        idx += 1;
    }
    found
}

fn search(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply, form: Form) -> Result<Flow, Error> {
    if form.may_store() && !ctx.keys.contains(form.source()) {
        return Ok(Flow::Done);
    }
    let key = ctx.key(args.at(form.source()));
    let (query, members) = {
        let entry = ctx.lookup(key);
        let set = match &entry {
            None => None,
            Some(entry) => Some(entry.sorted_set().ok_or(Error::WrongType)?),
        };
        let query = Query::parse(args, form, set)?;
        let members = set.map_or_else(Members::default, |set| Members::of(set, &query));
        (query, members)
    };
    let Some(destination) = query.store else {
        members.write(&query, reply);
        return Ok(Flow::Done);
    };
    let members = members.tally(&query);
    if ctx.keys.contains(destination) {
        store_members(ctx, args.at(destination), members, form.event());
        reply.int(ctx.elements as i64);
    } else {
        let sent = SentScores { places: vec![destination], len: members.len(), members, seed: 0 };
        ctx.payload = Payload::Scores(vec![sent]);
    }
    Ok(Flow::Done)
}

fn decide(decide: &mut Decide<'_>) -> Next {
    if let Some(failed) = decide.results.iter().find(|result| result.failed) {
        decide.reply.append_range(&failed.reply, Mark::default(), failed.reply.mark());
        return Next::Reply;
    }
    if let Some(done) = decide.results.iter_mut().find(|result| !result.reply.is_empty()) {
        decide.reply.append(&mut done.reply);
        return Next::Reply;
    }
    for result in decide.results.iter_mut() {
        if let Payload::Scores(sent) = std::mem::take(&mut result.payload)
            && let [SentScores { places, .. }] = &*sent
        {
            return Next::Run { stage: 1, on: On::Key(places[0]), payload: Payload::Scores(sent) };
        }
    }
    unreachable!("the source's shard has answered or sent")
}

fn store_sent(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply) -> Result<Flow, Error> {
    if let Payload::Scores(sent) = std::mem::take(&mut ctx.payload) {
        for one in sent {
            let [place] = one.places[..] else { continue };
            let event = if place == SEARCH_DESTINATION { SEARCH_EVENT } else { RADIUS_EVENT };
            store_members(ctx, args.at(place), one.members, event);
        }
    }
    reply.int(ctx.elements as i64);
    Ok(Flow::Done)
}

/// Members that were found, in the order in which they were.
#[derive(Debug, Default)]
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
    fn of(set: SortedSetRef<'_>, query: &Query) -> Self {
        /// Members looked at in one go where a few are enough.
        const PIECE: usize = 64;
        let mut members = Self::default();
        let (Some(centre), Some(area)) = (query.centre, &query.area) else { return members };
        let limit = query.count.filter(|_| query.any).unwrap_or(usize::MAX);
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
        for cell in cells {
            let (min, end) = cell.scores();
            let mut from = set.count_while(&|score, _| score < min);
            let to = set.count_while(&|score, _| score < end);
            while from < to && members.items.len() < limit {
                let count = if query.any { PIECE.min(to - from) } else { to - from };
                set.visit(from, count, false, &mut |member, score| {
                    if members.items.len() < limit {
                        members.look(member, score, centre, area, query.unit);
                    }
                });
                from += count;
            }
        }
        members
    }

    fn look(&mut self, member: &[u8], score: f64, centre: Position, area: &Area, unit: f64) {
        if let Some(found) = area.find(centre, unit, score) {
            self.items.push(Item { at: self.bytes.len(), len: member.len(), score, found });
            self.bytes.extend_from_slice(member);
        }
    }

    fn member(&self, item: &Item) -> &[u8] {
        &self.bytes[item.at..item.at + item.len]
    }

    /// Those that are asked for, in the order that is.
    fn chosen(&self, query: &Query) -> Vec<Item> {
        let total = self.items.len();
        let count = query.count.map_or(total, |count| count.min(total));
        // Some of them means the nearest.
        let order = query.order.or((query.count.is_some() && !query.any).then_some(Order::Near));
        let mut places: Vec<u32> = (0..total as u32).collect();
        if let Some(order) = order {
            order_part(&mut places, 0..count, |a, b| {
                let [a, b] = [a, b].map(|place| self.items[*place as usize].found.distance);
                let near = a.partial_cmp(&b).unwrap_or(Ordering::Equal);
                if order == Order::Near { near } else { near.reverse() }
            });
        }
        places[..count].iter().map(|place| self.items[*place as usize]).collect()
    }

    fn write(&self, query: &Query, reply: &mut Reply) {
        let chosen = self.chosen(query);
        let details = [query.with_distance, query.with_hash, query.with_position];
        let details = details.into_iter().filter(|with| *with).count();
        reply.array(chosen.len());
        for item in &chosen {
            if details > 0 {
                reply.array(1 + details);
            }
            reply.bulk(self.member(item));
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

    fn tally(&self, query: &Query) -> Tally {
        let mut tally = Tally::default();
        for item in &self.chosen(query) {
            let score = if query.store_distance { item.found.distance / query.unit } else { item.score };
            tally.push(self.member(item), score);
        }
        tally
    }
}

#[cfg(test)]
mod tests {
    use crate::commands::testing::check_all;

    const SICILY: &str = "GEOADD s 13.361389 38.115556 Palermo 15.087269 37.502669 Catania";

    #[test]
    fn members_are_found_in_areas() {
        check_all(&[
            (SICILY, ":2"),
            (
                "GEORADIUS s 15 37 200 km\nGEORADIUS s 15 37 100 km",
                "[\"Palermo\", \"Catania\"]\n[\"Catania\"]",
            ),
            (
                "GEOSEARCH s FROMLONLAT 15 37 BYRADIUS 200 km DESC WITHDIST",
                "[[\"Palermo\", \"190.4424\"], [\"Catania\", \"56.4413\"]]",
            ),
            ("GEOSEARCH s FROMMEMBER Palermo BYBOX 400 400 km COUNT 1", "[\"Palermo\"]"),
            ("GEOSEARCH s BYPOLYGON 3 12 37.5 14 37.5 13.3 39", "[\"Palermo\"]"),
            ("GEORADIUSBYMEMBER s Palermo 1 km WITHHASH", "[[\"Palermo\", :3479099956230698]]"),
            (
                "GEOSEARCH none FROMMEMBER x BYRADIUS 1 m\nGEORADIUS_RO s 15 37 200 km COUNT 1",
                "[]\n[\"Catania\"]",
            ),
        ]);
    }

    #[test]
    fn a_polygon_around_a_pole_has_its_members() {
        check_all(&[
            ("GEOADD s 80 55 in -100 55 out 80 20 south", ":3"),
            ("GEOSEARCH s BYPOLYGON 3 -25.4627 39.64013 180 39.75973 89.2013 63.59693", "[\"in\"]"),
        ]);
    }

    #[test]
    fn results_are_stored_wherever_the_key_is() {
        check_all(&[
            (SICILY, ":2"),
            (
                "GEOSEARCHSTORE d s FROMLONLAT 15 37 BYRADIUS 200 km\nGEODIST d Palermo Catania",
                ":2\n\"166274.1516\"",
            ),
            (
                "GEORADIUS s 15 37 100 km STORE e\nZRANGE e 0 -1 WITHSCORES",
                ":1\n[\"Catania\", \"3479447370796909\"]",
            ),
            (
                "GEORADIUSBYMEMBER s Palermo 1 km STOREDIST f\nZRANGE f 0 -1 WITHSCORES",
                ":1\n[\"Palermo\", \"0\"]",
            ),
            (
                "GEORADIUS s 1 1 1 km STORE d\nEXISTS d\nGEOSEARCHSTORE e none FROMMEMBER x BYRADIUS 1 m\nEXISTS e",
                ":0\n:0\n:0\n:0",
            ),
            ("GEORADIUS s 15 37 200 km STORE s COUNT 1\nZCARD s", ":1\n:1"),
            (
                "SET t v\nGEORADIUS t 1 1 1 km STORE d",
                "+OK\n-WRONGTYPE Operation against a key holding the wrong kind of value",
            ),
        ]);
    }
}
