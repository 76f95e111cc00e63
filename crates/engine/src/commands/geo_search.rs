//! Members of a sorted set whose places are in an area: GEOSEARCH, GEOSEARCHSTORE, GEORADIUS and GEORADIUSBYMEMBER.
//!
//! The source's shard searches ([`super::geo_pieces`]). Where the result is stored on another one, it is sent there.

use super::geo::{GEO, READ};
use super::geo_options::{Form, Query, RADIUS_EVENT, SEARCH_DESTINATION, SEARCH_EVENT};
use super::zset_pieces::store;
use crate::args::Args;
use crate::command::{Command, Find, Flags, Flow, Handler, KeyFlags, KeySpec, Pace, Plan};
use crate::ctx::{Ctx, Decide, Next, On, Payload};
use crate::errors::Error;
use crate::keyspace::{Detached, StringForm, Value};
use corelane_resp::Reply;

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
    let (pacing, limits, key) = (ctx.pacing(), ctx.shard.settings.compact, ctx.key(args.at(form.source())));
    let mut work = match std::mem::take(&mut ctx.payload) {
        Payload::Searching(work) => work,
        _ => Box::default(),
    };
    let query = {
        let entry = ctx.lookup_once(key);
        let set = match &entry {
            None => None,
            Some(entry) => Some(entry.sorted_set().ok_or(Error::WrongType)?),
        };
        let query = Query::parse(args, form, set)?;
        let Some(piece) = work.piece(pacing, &query, set) else { return Ok(Flow::Later) };
        loop {
            if work.step(&query, set, piece, &limits, reply) {
                break;
            }
            if pacing.pace == Pace::Pieces {
                drop(entry);
                ctx.payload = Payload::Searching(work);
                return Ok(Flow::Again(1));
            }
        }
        query
    };
    let Some(destination) = query.store else { return Ok(Flow::Done) };
    let set = work.into_set();
    if ctx.keys.contains(destination) {
        reply.int(set.as_ref().len() as i64);
        store(ctx, args.at(destination), set, form.event());
    } else {
        let content = Detached { value: Value::SortedSet(set), expiry: None, form: StringForm::Plain };
        ctx.payload = Payload::Values(vec![(destination as u32, content)]);
    }
    Ok(Flow::Done)
}

fn decide(decide: &mut Decide<'_>) -> Next {
    if decide.passes_on_failure() {
        return Next::Reply;
    }
    if let Some(done) = decide.results.iter_mut().find(|result| !result.reply.is_empty()) {
        decide.reply.append(&mut done.reply);
        return Next::Reply;
    }
    for result in decide.results.iter_mut() {
        if let Payload::Values(sent) = std::mem::take(&mut result.payload)
            && let [(place, _)] = sent[..]
        {
            return Next::Run { stage: 1, on: On::Key(place as usize), payload: Payload::Values(sent) };
        }
    }
    unreachable!("the source's shard has answered or sent")
}

fn store_sent(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply) -> Result<Flow, Error> {
    if let Payload::Values(sent) = std::mem::take(&mut ctx.payload) {
        for (place, content) in sent {
            let Value::SortedSet(set) = content.value else { continue };
            let event = if place as usize == SEARCH_DESTINATION { SEARCH_EVENT } else { RADIUS_EVENT };
            reply.int(set.as_ref().len() as i64);
            store(ctx, args.at(place as usize), set, event);
        }
    }
    Ok(Flow::Done)
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
