//! DEBUG RELOAD: every value becomes what RDB makes of it, and is read again, as after a restart. Nothing of it is on a disk.

use super::dump::payload_of;
use super::restore::value_of;
use crate::args::Args;
use crate::command::Flow;
use crate::ctx::Ctx;
use crate::errors::Error;
use crate::keyspace::{NewValue, ScanPosition};
use crate::settings::Settings;
use crate::slot::Slot;
use corelane_resp::Reply;

pub(super) fn check(args: Args<'_>, _: &Settings) -> Result<(), Error> {
    match args.len() {
        2 => Ok(()),
        _ => Err(Error::text(
            "ERR DEBUG RELOAD takes no options here: there is no file to be written or left alone",
        )),
    }
}

/// All keys of the shard, in one turn: what a test asks for has few.
pub(super) fn reload(ctx: &mut Ctx<'_>, _: Args<'_>, reply: &mut Reply) -> Result<Flow, Error> {
    let (now, wall, limits) = (ctx.now, ctx.shard.wall, ctx.shard.settings.compact);
    let keyspace = &mut ctx.shard.keyspace;
    for db in 0..keyspace.databases() {
        let mut names: Vec<Box<[u8]>> = Vec::new();
        keyspace.walk(db, ScanPosition::START, Slot::END, usize::MAX, now, &mut |entry| {
            names.push(entry.key().into())
        });
        for name in names {
            let key = keyspace.hasher().key(&name);
            let Some(entry) = keyspace.find(db, key, now) else { continue };
            let (payload, deadline) = (payload_of(entry.value(), wall), entry.expiry());
            drop(entry);
            match value_of(&payload, &limits, wall)? {
                Some(value) => keyspace.set(db, key, NewValue::Owned(value), deadline, now),
                // Nothing but fields that have expired.
                None => drop(keyspace.take(db, key, now)),
            }
        }
    }
    reply.ok();
    Ok(Flow::Done)
}

#[cfg(test)]
mod tests {
    use crate::commands::testing::Bench;

    #[test]
    fn values_are_the_same_afterwards_in_the_form_of_the_limits() {
        for shards in [1, 3] {
            let mut bench = Bench::new(shards);
            bench.run("SET s v EX 100\nAPPEND r x\nAPPEND r y\nRPUSH l a b 3\nSADD n 1 2 3\nSADD m a b\nZADD z 1 a 2.5 b\nHSET h f v g v\nHEXPIRE h 50 FIELDS 1 f\nSELECT 3\nSET s other\nSELECT 0");
            let digest = bench.run("DEBUG DIGEST");
            assert_eq!(
                bench.run("OBJECT ENCODING r\nOBJECT ENCODING n\nOBJECT ENCODING l"),
                "\"raw\"\n\"intset\"\n\"listpack\""
            );
            bench.run("CONFIG SET set-max-intset-entries 2 list-max-listpack-size 2");
            assert_eq!(bench.run("DEBUG RELOAD\nDEBUG DIGEST"), format!("+OK\n{digest}"));
            assert_eq!(
                bench.run("OBJECT ENCODING r\nOBJECT ENCODING n\nOBJECT ENCODING l"),
                "\"embstr\"\n\"listpack\"\n\"quicklist\""
            );
            assert_eq!(bench.run("TTL s\nHTTL h FIELDS 2 f g\nDBSIZE"), ":100\n[:50, :-1]\n:7");
            assert!(bench.run("DEBUG RELOAD NOSAVE").starts_with("-ERR DEBUG RELOAD takes no options here"));
        }
    }
}
