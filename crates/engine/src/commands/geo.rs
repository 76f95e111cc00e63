//! Places in sorted sets: adding them, where they are and how far from each other. A member's score is the number of its cell.

use super::zset::{Add, add_members};
use super::zset_range::parse_score;
use crate::args::Args;
use crate::command::{Command, Flags, Flow, Handler, KeyFlags, KeySpec, Plan};
use crate::ctx::Ctx;
use crate::errors::Error;
use crate::geo::{Position, distance, geohash_text};
use crate::values::SortedSetRef;
use corelane_resp::{Proto, Reply};

/// What all of them have in common.
pub(super) const GEO: Command = Command { group: "geo", since: "3.2.0", ..Command::DEFAULT };

pub(super) const READ: &[KeySpec] = &[KeySpec::one(1, KeyFlags::RO.with(KeyFlags::ACCESS))];

const fn reads(name: &'static str, arity: i16, run: Handler) -> Command {
    Command { name, arity, flags: Flags::READONLY, keys: READ, plan: Plan::OneShard(run), ..GEO }
}

pub(super) const COMMANDS: &[Command] = &[
    Command {
        name: "geoadd",
        arity: -5,
        flags: Flags::WRITE.with(Flags::DENYOOM),
        keys: &[KeySpec::one(1, KeyFlags::RW.with(KeyFlags::UPDATE))],
        plan: Plan::OneShard(geoadd),
        summary: "Adds one or more members to a geospatial index. The key is created if it doesn't exist.",
        complexity: "O(log(N)) for each member added, where N is the number of members in the sorted set",
        syntax: "key [NX | XX] #condition @6.2.0 [CH] #change @6.2.0 longitude latitude member [longitude latitude member ...] #data",
        ..GEO
    },
    Command {
        summary: "Returns the distance between two members of a geospatial index.",
        syntax: "key member1 member2 [M | KM | FT | MI] #unit",
        ..reads("geodist", -4, geodist)
    },
    Command {
        summary: "Returns members from a geospatial index as geohash strings.",
        complexity: "O(1) for each member",
        syntax: "key [member ...]",
        ..reads("geohash", -2, geohash)
    },
    Command {
        summary: "Returns the longitude and latitude of members from a geospatial index.",
        complexity: "O(1) for each member",
        syntax: "key [member ...]",
        ..reads("geopos", -2, geopos)
    },
];

/// The position in two arguments from `idx` on.
pub(super) fn position_at(args: Args<'_>, idx: usize) -> Result<Position, Error> {
    let number = |idx: usize| parse_score(args.at(idx)).ok_or(Error::NotFloat);
    let position = Position { lon: number(idx)?, lat: number(idx + 1)? };
    if position.is_valid() {
        return Ok(position);
    }
    let Position { lon, lat } = position;
    Err(Error::owned(format!("ERR invalid longitude,latitude pair {lon:.6},{lat:.6}")))
}

/// Metres of the unit that an argument names.
pub(super) fn unit_at(args: Args<'_>, idx: usize) -> Result<f64, Error> {
    let units = [("M", 1.0), ("KM", 1000.0), ("FT", 0.3048), ("MI", 1609.34)];
    let named = units.iter().find(|(name, _)| args.is(idx, name)).map(|(_, metres)| *metres);
    named.ok_or(Error::text("ERR unsupported unit provided. please use M, KM, FT, MI"))
}

/// Four decimals, as a bulk.
pub(super) fn write_distance(reply: &mut Reply, distance: f64) {
    let scaled = (distance * 10_000.0).round_ties_even() as u64;
    reply.bulk(format!("{}.{:04}", scaled / 10_000, scaled % 10_000).as_bytes());
}

/// Longitude and latitude with up to seventeen decimals.
pub(super) fn write_position(reply: &mut Reply, position: Position) {
    reply.array(2);
    for degrees in [position.lon, position.lat] {
        let text = format!("{degrees:.17}");
        let text = text.trim_end_matches('0').trim_end_matches('.');
        let text = if text == "-0" { "0" } else { text };
        match reply.proto() {
            Proto::Resp2 => reply.bulk(text.as_bytes()),
            Proto::Resp3 => reply.raw(format!(",{text}\r\n").as_bytes()),
        }
    }
}

fn geoadd(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply) -> Result<Flow, Error> {
    let (mut add, mut at) = (Add::default(), 2);
    while at < args.len() {
        match () {
            () if args.is(at, "NX") => add.only_new = true,
            () if args.is(at, "XX") => add.only_there = true,
            () if args.is(at, "CH") => add.count_changed = true,
            () => break,
        }
        at += 1;
    }
    let words = args.len() - at;
    if words == 0 || !words.is_multiple_of(3) || (add.only_new && add.only_there) {
        return Err(Error::Syntax);
    }
    let places = || (at..args.len()).step_by(3);
    let mut longest = 0;
    for idx in places() {
        position_at(args, idx)?;
        longest = longest.max(args.at(idx + 2).len());
    }
    let members = places().map(|idx| Ok((position_at(args, idx)?.score(), args.at(idx + 2))));
    add_members(ctx, args.at(1), add, longest, members, reply)
}

/// Gives `read` the sorted set of the key, if there is one.
fn with_set<T>(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    read: impl FnOnce(Option<SortedSetRef<'_>>) -> T,
) -> Result<T, Error> {
    let key = ctx.key(args.at(1));
    match ctx.lookup(key) {
        None => Ok(read(None)),
        Some(entry) => Ok(read(Some(entry.sorted_set().ok_or(Error::WrongType)?))),
    }
}

fn geodist(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply) -> Result<Flow, Error> {
    if args.len() > 5 {
        return Err(Error::Syntax);
    }
    let unit = if args.len() == 5 { unit_at(args, 4)? } else { 1.0 };
    let metres = with_set(ctx, args, |set| {
        let [a, b] = [2, 3].map(|idx| set.and_then(|set| set.score(args.at(idx))).map(Position::of_score));
        Some(distance(a?, b?))
    })?;
    match metres {
        Some(metres) => write_distance(reply, metres / unit),
        None => reply.null(),
    }
    Ok(Flow::Done)
}

fn geohash(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply) -> Result<Flow, Error> {
    with_set(ctx, args, |set| {
        reply.array(args.len() - 2);
        for member in args.iter_from(2) {
            match set.and_then(|set| set.score(member)) {
                Some(score) => reply.bulk(&geohash_text(score)),
                None => reply.null(),
            }
        }
    })?;
    Ok(Flow::Done)
}

fn geopos(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply) -> Result<Flow, Error> {
    with_set(ctx, args, |set| {
        reply.array(args.len() - 2);
        for member in args.iter_from(2) {
            match set.and_then(|set| set.score(member)) {
                Some(score) => write_position(reply, Position::of_score(score)),
                None => reply.null_array(),
            }
        }
    })?;
    Ok(Flow::Done)
}

#[cfg(test)]
mod tests {
    use crate::commands::testing::check_all;

    #[test]
    fn places_are_added_and_told() {
        check_all(&[
            ("GEOADD s 13.361389 38.115556 Palermo 15.087269 37.502669 Catania", ":2"),
            (
                "GEODIST s Palermo Catania\nGEODIST s Palermo Catania KM\nGEODIST s x Catania",
                "\"166274.1516\"\n\"166.2742\"\nnil",
            ),
            ("GEOHASH s Palermo x", "[\"sqc8b49rny0\", nil]"),
            ("GEOPOS s Palermo x", "[[\"13.36138933897018433\", \"38.11555639549629859\"], nil]"),
            ("GEOADD s XX CH 14 38 Palermo 1 1 x\nZCARD s\nGEODIST s Palermo Palermo", ":1\n:2\n\"0.0000\""),
            ("GEOADD s 181 1 x", "-ERR invalid longitude,latitude pair 181.000000,1.000000"),
        ]);
    }
}
