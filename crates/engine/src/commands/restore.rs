//! RESTORE: a key from bytes that DUMP has made, here or elsewhere.

use crate::args::Args;
use crate::command::{Command, Flags, Flow, KeyFlags, KeySpec, Plan};
use crate::ctx::Ctx;
use crate::errors::Error;
use crate::events::EventClasses;
use crate::keyspace::{Millis, NewValue, Value};
use crate::rdb::{Portable, Reader, unseal};
use crate::settings::CompactLimits;
use crate::values::{Hash, List, Set, Side, SortedSet};
use crate::wall::{Present, WallClock};
use bytes::Bytes;
use corelane_resp::Reply;

pub(super) const COMMANDS: &[Command] = &[Command {
    name: "restore",
    arity: -4,
    flags: Flags::WRITE.with(Flags::DENYOOM),
    categories: &["@keyspace", "@dangerous"],
    keys: &[KeySpec::one(1, KeyFlags::OW.with(KeyFlags::UPDATE))],
    plan: Plan::OneShard(restore),
    since: "2.6.0",
    summary: "Creates a key from the serialized representation of a value.",
    complexity: "O(1) to create the new key and additional O(N*M) to reconstruct the serialized value, where N is the number of objects composing the value and M their average size. For small string values the time complexity is thus O(1)+O(1*M) where M is small, so simply O(1). However for sorted set values the complexity is O(N*M*log(N)) because inserting values into sorted sets is O(log(N)).",
    syntax: "key ttl serialized-value [REPLACE] @3.0.0 [ABSTTL] @5.0.0 [IDLETIME seconds] @5.0.0 [FREQ frequency] @5.0.0",
    ..Command::DEFAULT
}];

/// A value that was read, in the form that the limits ask for.
fn value_of(portable: Portable, limits: &CompactLimits, wall: WallClock) -> Value {
    match portable {
        Portable::String(string) => Value::String(Bytes::from(string)),
        Portable::Hash(fields) => {
            let mut hash = Hash::default();
            for field in &fields {
                hash.set(&field.name, &field.value, limits);
                if let Some(at) = field.expiry {
                    hash.set_deadline(&field.name, Some(wall.moment_of(at)), limits.seed);
                }
            }
            Value::Hash(hash)
        }
        Portable::List(elements) => {
            let mut list = List::default();
            for element in &elements {
                list.prepare(limits.list_size, element.len(), 1);
                list.push(Side::Right, element, limits.list_size);
            }
            Value::List(list)
        }
        Portable::Set(members) => {
            let first = members.first().map_or(&b""[..], |member| member);
            let mut set = Set::for_members(first, members.len(), limits);
            for member in &members {
                set.add(member, limits);
            }
            Value::Set(set)
        }
        Portable::SortedSet(members) => {
            let mut set = SortedSet::default();
            for (member, score) in &members {
                set.insert(member, *score, limits);
            }
            Value::SortedSet(set)
        }
    }
}

/// RESTORE's options.
#[derive(Default)]
struct Options {
    replace: bool,
    absolute: bool,
    idle_s: Option<u64>,
    frequency: Option<u8>,
}

impl Options {
    fn parse(args: Args<'_>) -> Result<Self, Error> {
        let mut options = Self::default();
        let mut idx = 4;
        while idx < args.len() {
            let has_value = idx + 1 < args.len();
            if args.is(idx, "REPLACE") {
                options.replace = true;
            } else if args.is(idx, "ABSTTL") {
                options.absolute = true;
            } else if args.is(idx, "IDLETIME") && has_value && options.frequency.is_none() {
                let idle = u64::try_from(args.int(idx + 1)?);
                options.idle_s =
                    Some(idle.map_err(|_| Error::text("ERR Invalid IDLETIME value, must be >= 0"))?);
                idx += 1;
            } else if args.is(idx, "FREQ") && has_value && options.idle_s.is_none() {
                let frequency = u8::try_from(args.int(idx + 1)?);
                options.frequency = Some(
                    frequency.map_err(|_| Error::text("ERR Invalid FREQ value, must be >= 0 and <= 255"))?,
                );
                idx += 1;
            } else {
                return Err(Error::Syntax);
            }
            idx += 1;
        }
        Ok(options)
    }

    /// When the key vanishes; `None` for never.
    fn deadline(&self, ttl: i64, Present { now, wall }: Present) -> Result<Option<Millis>, Error> {
        let ttl = u64::try_from(ttl).map_err(|_| Error::text("ERR Invalid TTL value, must be >= 0"))?;
        Ok(match ttl {
            0 => None,
            at if self.absolute => Some(wall.moment_of(at)),
            ttl => Some(now.saturating_add(ttl)),
        })
    }
}

fn restore(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply) -> Result<Flow, Error> {
    let options = Options::parse(args)?;
    let (key, now) = (ctx.key(args.at(1)), ctx.now);
    if !options.replace && ctx.find_to_change(key).is_some() {
        return Err(Error::text("BUSYKEY Target key name already exists."));
    }
    let deadline = options.deadline(args.int(2)?, ctx.present())?;
    let content = unseal(args.at(3), ctx.shard.checksums)
        .ok_or(Error::text("ERR DUMP payload version or checksum are wrong"))?;
    let mut reader = Reader::new(content);
    let portable = reader.value().map_err(|_| Error::text("ERR Bad data format"))?;
    let value = value_of(portable, &ctx.shard.settings.compact, ctx.shard.wall);
    let there = options.replace && ctx.remove(key);
    reply.ok();
    if deadline.is_some_and(|at| at <= now) {
        if there {
            ctx.notify(EventClasses::GENERIC, "del", key.bytes);
        }
        return Ok(Flow::Done);
    }
    ctx.set(key, NewValue::Owned(value), deadline);
    ctx.notify(EventClasses::GENERIC, "restore", key.bytes);
    let policy = &ctx.shard.keyspace.access;
    let access = match options {
        Options { idle_s: Some(idle_s), .. } => policy.idle_for(idle_s, now),
        Options { frequency: Some(frequency), .. } => policy.used_so_often(frequency, now),
        _ => None,
    };
    if let Some(access) = access
        && let Some(mut entry) = ctx.find(key)
    {
        entry.set_access(access);
    }
    Ok(Flow::Done)
}
