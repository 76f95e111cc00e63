//! Fields of hashes read or set together with their deadlines, or read and removed: HGETEX, HSETEX, HGETDEL.

use super::deadline::Form;
use super::element::write_optional;
use super::hash::tell;
use super::hash_deadline::{PER_FIELD, fields_at, first_field, set_or_remove};
use crate::args::Args;
use crate::command::{Command, Flags, Flow, KeyFlags, KeySpec, Plan};
use crate::ctx::Ctx;
use crate::errors::Error;
use crate::events::EventClasses;
use crate::keyspace::Millis;
use crate::typed::Missing;
use crate::values::HashRef;
use crate::wall::Present;
use corelane_resp::Reply;

const WRITES: Flags = Flags::WRITE.with(Flags::FAST);

const BASE: Command = Command {
    arity: -5,
    flags: WRITES,
    since: "9.0.0",
    group: "hash",
    complexity: PER_FIELD,
    ..Command::DEFAULT
};

pub(super) const COMMANDS: &[Command] = &[
    Command {
        name: "hgetex",
        keys: &[KeySpec::one(1, KeyFlags::RW.with(KeyFlags::ACCESS).with(KeyFlags::UPDATE))],
        plan: Plan::OneShard(hgetex),
        summary: "Gets the value of one or more fields of a given hash key, and optionally sets their expiration time \
            or time-to-live (TTL).",
        syntax: "key [EX seconds | PX milliseconds | EXAT unix-time-seconds | PXAT unix-time-milliseconds | PERSIST] \
            #expiration FIELDS (numfields ^ field [field ...]) #fields",
        ..BASE
    },
    Command {
        name: "hsetex",
        arity: -6,
        flags: WRITES.with(Flags::DENYOOM),
        keys: &[KeySpec::one(1, KeyFlags::RW.with(KeyFlags::INSERT))],
        plan: Plan::OneShard(hsetex),
        summary: "Sets the value of one or more fields of a given hash key, and optionally sets their expiration time.",
        syntax: "key [NX | XX] #key-condition [FNX | FXX] #fields-condition [EX seconds | PX milliseconds | EXAT \
            unix-time-seconds | PXAT unix-time-milliseconds | KEEPTTL] #expiration FIELDS (numfields ^ field value \
            [field value ...] #data) #fields",
        ..BASE
    },
    Command {
        name: "hgetdel",
        since: "9.1.0",
        keys: &[KeySpec::one(1, KeyFlags::RW.with(KeyFlags::ACCESS).with(KeyFlags::DELETE))],
        plan: Plan::OneShard(hgetdel),
        summary: "Returns the values of one or more fields and deletes them from a hash.",
        syntax: NAMED,
        ..BASE
    },
];

const NAMED: &str = "key FIELDS (numfields ^ field [field ...]) #fields";

/// What happens to the deadlines.
#[derive(Clone, Copy)]
enum Then {
    /// They stay with HGETEX, and go with HSETEX.
    Unsaid,
    /// They become this; where its number stands, and how it is meant.
    At(usize, Form),
    Persist,
    Keep,
}

/// Whether something has to be there, or must not be.
#[derive(Clone, Copy, PartialEq, Eq)]
enum There {
    Any,
    Not,
    All,
}

struct Options {
    then: Then,
    key: There,
    fields: There,
}

impl Options {
    /// Reads the options before FIELDS, which stands at `end`.
    fn parse(args: Args<'_>, end: usize, name: &'static str) -> Result<Self, Error> {
        let sets = name == "hsetex";
        let mut options = Self { then: Then::Unsaid, key: There::Any, fields: There::Any };
        let mut idx = 2;
        while idx < end {
            let option = args.at(idx).to_ascii_lowercase();
            let form = |unit_ms, relative| Form { name, unit_ms, relative };
            let form = match option.as_slice() {
                b"ex" => Some(form(1000, true)),
                b"px" => Some(form(1, true)),
                b"exat" => Some(form(1000, false)),
                b"pxat" => Some(form(1, false)),
                _ => None,
            };
            match (option.as_slice(), form) {
                (_, Some(form)) if idx + 1 < end => {
                    options.choose(Then::At(idx + 1, form), form)?;
                    idx += 1;
                }
                (b"persist", _) if !sets => options.settle(Then::Persist)?,
                (b"keepttl", _) if sets => options.settle(Then::Keep)?,
                (b"nx", _) if sets => require(&mut options.key, There::Not)?,
                (b"xx", _) if sets => require(&mut options.key, There::All)?,
                (b"fnx", _) if sets => require(&mut options.fields, There::Not)?,
                (b"fxx", _) if sets => require(&mut options.fields, There::All)?,
                _ => return Err(Error::Syntax),
            }
            idx += 1;
        }
        Ok(options)
    }

    /// The same unit may be said again; the last counts.
    fn choose(&mut self, then: Then, form: Form) -> Result<(), Error> {
        match self.then {
            Then::Unsaid => {}
            Then::At(_, old) if (old.unit_ms, old.relative) == (form.unit_ms, form.relative) => {}
            _ => return Err(Error::Syntax),
        }
        self.then = then;
        Ok(())
    }

    fn settle(&mut self, then: Then) -> Result<(), Error> {
        if matches!(self.then, Then::At(..)) {
            return Err(Error::Syntax);
        }
        self.then = then;
        Ok(())
    }

    fn deadline(&self, args: Args<'_>, present: Present) -> Result<Option<Millis>, Error> {
        match self.then {
            Then::At(idx, form) => form.deadline_of_field(args.int(idx)?, present).map(Some),
            _ => Ok(None),
        }
    }
}

fn require(place: &mut There, wanted: There) -> Result<(), Error> {
    if *place != There::Any && *place != wanted {
        return Err(Error::Syntax);
    }
    *place = wanted;
    Ok(())
}

fn write_nulls(args: Args<'_>, first: usize, reply: &mut Reply) {
    reply.array(args.len() - first);
    args.iter_from(first).for_each(|_| reply.null());
}

fn hgetex(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply) -> Result<Flow, Error> {
    let end = fields_at(args, 2)?;
    let options = Options::parse(args, end, "hgetex")?;
    let first = first_field(args, end, 1)?;
    let (key, now, seed) = (ctx.key(args.at(1)), ctx.now, ctx.shard.settings.compact.seed);
    let deadline = options.deadline(args, ctx.present()).map_err(|error| {
        // The key is looked up first.
        let is_right = ctx.peek(key).is_none_or(|entry| entry.hash().is_some());
        if is_right { error } else { Error::WrongType }
    })?;
    let (mut event, mut expired) = (None, 0);
    let edited = ctx.edit_hash(key, Missing::Skip, |hash| {
        reply.array(args.len() - first);
        for field in args.iter_from(first) {
            let value = hash.as_ref().get(field);
            write_optional(reply, value);
            if value.is_none() {
                continue;
            }
            if let Some(at) = deadline {
                let removed = set_or_remove(hash, field, at, now, seed);
                expired += usize::from(removed);
                event = Some(if removed { "hexpired" } else { "hexpire" });
            } else if matches!(options.then, Then::Persist) && hash.as_ref().deadline(field).is_some() {
                hash.set_deadline(field, None, seed);
                event = Some("hpersist");
            }
        }
    })?;
    ctx.shard.keyspace.count_expired_fields(expired);
    ctx.shard.stats.count_read(edited.is_some());
    match (edited, event) {
        (None, _) => {
            write_nulls(args, first, reply);
            ctx.notify(EventClasses::MISSED, "keymiss", key.bytes);
        }
        (Some(edited), Some(event)) => tell(ctx, event, key, edited.emptied),
        (Some(_), None) => {}
    }
    Ok(Flow::Done)
}

fn hsetex(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply) -> Result<Flow, Error> {
    let end = fields_at(args, 2)?;
    let options = Options::parse(args, end, "hsetex")?;
    let first = first_field(args, end, 2)?;
    let (key, now, limits) = (ctx.key(args.at(1)), ctx.now, ctx.shard.settings.compact);
    let places = || (first..args.len()).step_by(2);
    let allows = |hash: HashRef<'_>| {
        let mut present = places().map(|idx| hash.get(args.at(idx)).is_some());
        match options.fields {
            There::Any => true,
            There::Not => !present.any(|there| there),
            There::All => present.all(|there| there),
        }
    };
    let exists = match ctx.find(key) {
        None => false,
        Some(entry) => {
            entry.hash().ok_or(Error::WrongType)?;
            true
        }
    };
    if options.key != There::Any && exists == (options.key == There::Not) {
        ctx.find_to_change(key);
        reply.int(0);
        return Ok(Flow::Done);
    }
    let deadline = options.deadline(args, ctx.present())?;
    let is_over = deadline.is_some_and(|at| at <= now);
    let mut expired = 0;
    let edited = ctx.edit_hash(key, Missing::Create, |hash| {
        if !allows(hash.as_ref()) {
            return None;
        }
        for idx in places() {
            let (field, value) = (args.at(idx), args.at(idx + 1));
            if is_over {
                hash.remove(field);
                expired += 1;
            } else if matches!(options.then, Then::Keep) {
                hash.update(field, value, &limits);
            } else {
                hash.set(field, value, &limits);
            }
        }
        if !is_over && deadline.is_some() {
            places().for_each(|idx| hash.set_deadline(args.at(idx), deadline, limits.seed));
        }
        Some(())
    })?;
    ctx.shard.keyspace.count_expired_fields(expired);
    let edited = edited.expect("it is created where it is missing");
    reply.int(edited.result.is_some().into());
    if edited.result.is_some() {
        if is_over && !exists {
            ctx.notify(EventClasses::NEW, "new", key.bytes);
        }
        tell(ctx, "hset", key, false);
        if deadline.is_some() {
            tell(ctx, "hexpire", key, false);
        }
        if is_over {
            tell(ctx, "hexpired", key, edited.emptied);
        }
    }
    Ok(Flow::Done)
}

fn hgetdel(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply) -> Result<Flow, Error> {
    if !args.is(2, "FIELDS") {
        return Err(Error::Syntax);
    }
    let first = first_field(args, 2, 1)?;
    let key = ctx.key(args.at(1));
    let edited = ctx.edit_hash(key, Missing::Skip, |hash| {
        reply.array(args.len() - first);
        let mut removed = false;
        for field in args.iter_from(first) {
            write_optional(reply, hash.as_ref().get(field));
            removed |= hash.remove(field);
        }
        removed
    })?;
    match edited {
        None => write_nulls(args, first, reply),
        Some(edited) if edited.result => tell(ctx, "hdel", key, edited.emptied),
        Some(_) => {}
    }
    Ok(Flow::Done)
}

#[cfg(test)]
mod tests {
    use crate::commands::testing::check_all;

    #[test]
    fn fields_are_read_and_set_with_deadlines() {
        check_all(&[
            ("HSETEX h EX 10 FIELDS 2 a 1 b 2\nHTTL h FIELDS 2 a b", ":1\n[:10, :10]"),
            (
                "HSETEX h KEEPTTL FIELDS 1 a 3\nHSETEX h FIELDS 1 b 4\nHTTL h FIELDS 2 a b",
                ":1\n:1\n[:10, :-1]",
            ),
            (
                "HSETEX h NX FIELDS 1 a 9\nHSETEX x XX FIELDS 1 a 9\nHSETEX h FNX FIELDS 2 a 1 z 1",
                ":0\n:0\n:0",
            ),
            ("HSETEX x FXX FIELDS 1 a 9\nEXISTS x", ":0\n:0"),
            ("HGETEX h PERSIST FIELDS 2 a zz\nHTTL h FIELDS 1 a", "[\"3\", nil]\n[:-1]"),
            ("HGETEX h PX 700 FIELDS 1 a\nHPTTL h FIELDS 1 a", "[\"3\"]\n[:700]"),
            ("HGETEX h EXAT 1 FIELDS 1 a\nHGETALL h", "[\"3\"]\n[\"b\", \"4\"]"),
            ("HGETDEL h FIELDS 2 b b\nEXISTS h", "[\"4\", nil]\n:0"),
            ("HSETEX h EX 0 FIELDS 1 a 1\nEXISTS h", ":1\n:0"),
        ]);
    }
}
