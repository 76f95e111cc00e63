//! RESTORE: a key from bytes that DUMP has made, here or elsewhere.

use crate::args::Args;
use crate::command::{Command, Flags, Flow, KeyFlags, KeySpec, Pace, PieceSizes, Plan};
use crate::ctx::{Ctx, Payload};
use crate::errors::Error;
use crate::events::EventClasses;
use crate::keyspace::{Key, Keyspace, Millis, NewValue, Value};
use crate::rdb::{Checksums, Portable, Reader, Sealed, Unread, Unreadable, Versions, checksum};
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

/// A value that is being restored.
#[derive(Clone, Debug, Default)]
pub struct RestoreWork {
    /// How many bytes of the payload have been summed up, and their checksum.
    summed: (usize, u64),
    /// What is left of the value, and how many units and bytes it has in all.
    unread: Option<(Unread, usize, usize)>,
    /// What has been read of it.
    value: Option<Value>,
    /// How many bytes of the payload are left.
    rest: usize,
}

/// How many short elements a payload has, about; and its bytes. `None` if it is none.
fn extent(payload: &[u8], versions: Versions) -> Option<(usize, usize)> {
    let content = Sealed::of(payload, versions)?.content;
    let unread = Reader::new(content).begin().ok()?;
    let len = unread.units().saturating_mul(unread.unit_len(content.len(), unread.units()));
    // A bad payload may say anything.
    Some((len.min(content.len()), content.len()))
}

impl RestoreWork {
    /// Sums up or reads about as much as `budget` elements come to; true when all is done.
    fn step(
        &mut self,
        payload: &[u8],
        (checksums, versions): (Checksums, Versions),
        budget: usize,
        making: (&CompactLimits, WallClock),
    ) -> Result<bool, Error> {
        let wrong = Error::text("ERR DUMP payload version or checksum are wrong");
        let Some(sealed) = Sealed::of(payload, versions) else { return Err(wrong) };
        let (from, sum) = self.summed;
        if checksums == Checksums::Checked && from < sealed.summed.len() {
            let bytes = budget.saturating_mul(PieceSizes::SHORT_BYTES);
            let end = sealed.summed.len().min(from.saturating_add(bytes));
            self.summed = (end, checksum(sum, &sealed.summed[from..end]));
            let is_wrong = end == sealed.summed.len() && self.summed.1 != sealed.checksum;
            return if is_wrong { Err(wrong) } else { Ok(false) };
        }
        if let Some(number) = sealed.foreign_type() {
            return Err(Error::owned(format!("ERR Unsupported foreign data type: {number}")));
        }
        self.read(sealed.content, budget, making).map_err(|_| Error::text("ERR Bad data format"))
    }

    fn read(
        &mut self,
        content: &[u8],
        budget: usize,
        making: (&CompactLimits, WallClock),
    ) -> Result<bool, Unreadable> {
        let mut reader = Reader::new(content);
        let (mut unread, units, bytes) = match self.unread {
            Some(unread) => {
                reader = Reader::new(&content[content.len() - self.rest..]);
                unread
            }
            None => {
                let unread = reader.begin()?;
                (unread, unread.units(), content.len())
            }
        };
        let piece = (budget / unread.unit_len(bytes, units)).max(1);
        let portable = reader.some(&mut unread, piece)?;
        add(&mut self.value, portable, units, making)?;
        (self.unread, self.rest) = (Some((unread, units, bytes)), reader.rest().len());
        Ok(unread.units() == 0)
    }

    /// Gives up, and has what it has read freed by and by.
    pub(crate) fn discard(self, keyspace: &mut Keyspace) {
        self.value.into_iter().for_each(|value| keyspace.discard(value));
    }
}

/// Adds what has been read to a value of so many units, in the form that the limits ask for. No element may be there already.
fn add(
    value: &mut Option<Value>,
    portable: Portable,
    units: usize,
    (limits, wall): (&CompactLimits, WallClock),
) -> Result<(), Unreadable> {
    let mut is_new = true;
    match portable {
        Portable::String(string) => *value = Some(Value::String(Bytes::from(string))),
        Portable::Hash(fields) => {
            let Value::Hash(hash) = value.get_or_insert_with(|| Value::Hash(Hash::default())) else {
                return Err(Unreadable::Malformed);
            };
            for field in &fields {
                is_new &= hash.set(&field.name, &field.value, limits);
                if let Some(at) = field.expiry {
                    hash.set_deadline(&field.name, Some(wall.moment_of(at)), limits.seed);
                }
            }
        }
        Portable::List(elements) => {
            let Value::List(list) = value.get_or_insert_with(|| Value::List(List::default())) else {
                return Err(Unreadable::Malformed);
            };
            for element in &elements {
                list.prepare(limits.list_size, element.len(), 1);
                list.push(Side::Right, element, limits.list_size);
            }
        }
        Portable::Set(members) => {
            let first = members.first().map_or(&b""[..], |member| member);
            let expected = units.max(members.len());
            let empty = || Value::Set(Set::for_members(first, expected, limits));
            let Value::Set(set) = value.get_or_insert_with(empty) else { return Err(Unreadable::Malformed) };
            members.iter().for_each(|member| is_new &= set.add(member, limits));
        }
        Portable::SortedSet(members) => {
            let Value::SortedSet(set) = value.get_or_insert_with(|| Value::SortedSet(SortedSet::default()))
            else {
                return Err(Unreadable::Malformed);
            };
            for (member, score) in &members {
                is_new &= set.insert(member, *score, limits).is_none();
            }
        }
    }
    if is_new { Ok(()) } else { Err(Unreadable::Malformed) }
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

    /// When the key was used last, or how often.
    fn set_access(&self, ctx: &mut Ctx<'_>, key: Key<'_>) {
        let policy = &ctx.shard.keyspace.access;
        let access = match self {
            Self { idle_s: Some(idle_s), .. } => policy.idle_for(*idle_s, ctx.now),
            Self { frequency: Some(frequency), .. } => policy.used_so_often(*frequency, ctx.now),
            _ => None,
        };
        if let Some(access) = access
            && let Some(mut entry) = ctx.find(key)
        {
            entry.set_access(access);
        }
    }
}

/// The value of a payload that [`payload_of`](super::dump::payload_of) has made, in the form that the limits ask for now; `None` for an
/// empty collection.
pub(super) fn value_of(
    payload: &[u8],
    limits: &CompactLimits,
    wall: WallClock,
) -> Result<Option<Value>, Error> {
    let mut work = RestoreWork::default();
    while !work.step(payload, Default::default(), usize::MAX, (limits, wall))? {}
    Ok(work.value.filter(|value| !value.as_ref().is_empty_collection()))
}

fn restore(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply) -> Result<Flow, Error> {
    let options = Options::parse(args)?;
    let (key, now) = (ctx.key(args.at(1)), ctx.now);
    let (pacing, payload) = (ctx.pacing(), args.at(3));
    let mut work = match std::mem::take(&mut ctx.payload) {
        Payload::Restoring(work) => work,
        _ if !options.replace && ctx.find_to_change(key).is_some() => {
            return Err(Error::text("BUSYKEY Target key name already exists."));
        }
        _ => Box::default(),
    };
    let deadline = options.deadline(args.int(2)?, ctx.present())?;
    let extent = extent(payload, ctx.shard.settings.rdb_versions).unwrap_or_default();
    let Some(piece) = pacing.piece(extent.0, extent) else { return Ok(Flow::Later) };
    let accepted = (ctx.shard.checksums, ctx.shard.settings.rdb_versions);
    let (limits, wall) = (ctx.shard.settings.compact, ctx.shard.wall);
    loop {
        match work.step(payload, accepted, piece, (&limits, wall)) {
            Ok(true) => break,
            Ok(false) if pacing.pace == Pace::Pieces => {
                ctx.payload = Payload::Restoring(work);
                return Ok(Flow::Again(1));
            }
            Ok(false) => {}
            Err(error) => {
                work.discard(&mut ctx.shard.keyspace);
                return Err(error);
            }
        }
    }
    let value = work.value.filter(|value| !value.as_ref().is_empty_collection());
    let value = value.ok_or(Error::text("ERR Bad data format"))?;
    let there = options.replace && ctx.remove(key);
    reply.ok();
    if deadline.is_some_and(|at| at <= now) {
        ctx.shard.keyspace.discard(value);
        if there {
            ctx.notify(EventClasses::GENERIC, "del", key.bytes);
        }
        return Ok(Flow::Done);
    }
    ctx.set(key, NewValue::Owned(value), deadline);
    ctx.notify(EventClasses::GENERIC, "restore", key.bytes);
    options.set_access(ctx, key);
    Ok(Flow::Done)
}
