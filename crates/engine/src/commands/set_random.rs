//! Random members of sets: SPOP and SRANDMEMBER.

use super::element::{write_element, write_optional};
use super::picks::Room;
use super::set::{SET, notify_loss, read};
use crate::args::Args;
use crate::command::{Command, Flags, Flow, KeyFlags, KeySpec, Plan};
use crate::ctx::{Ctx, Rng};
use crate::errors::Error;
use crate::keyspace::Value;
use crate::typed::{Edited, Missing};
use crate::values::{Pack, Set, SetRef};
use corelane_resp::Reply;
use hashbrown::HashSet;

/// Where so many times fewer members stay than go, a large set is made anew of those that stay, as in Valkey.
const STAY_SHARE: usize = 5;
/// Up to this share of a large set members are drawn one by one until enough of them are different.
const DRAWN_SHARE: usize = 3;

pub(super) const COMMANDS: &[Command] = &[
    Command {
        name: "spop",
        arity: -2,
        flags: Flags::WRITE.with(Flags::FAST),
        keys: &[KeySpec::one(1, KeyFlags::RW.with(KeyFlags::ACCESS).with(KeyFlags::DELETE))],
        plan: Plan::OneShard(spop),
        summary: "Returns one or more random members from a set after removing them. Deletes the set if the last member \
            was popped.",
        complexity: "O(N) where N is the number of members returned",
        syntax: "key [count] @3.2.0",
        tips: &["nondeterministic_output"],
        ..SET
    },
    Command {
        name: "srandmember",
        arity: -2,
        flags: Flags::READONLY,
        keys: &[KeySpec::one(1, KeyFlags::RO.with(KeyFlags::ACCESS))],
        plan: Plan::OneShard(srandmember),
        summary: "Gets one or multiple random members from a set.",
        complexity: "O(N) where N is the number of members returned; of a large set and more than a third of it, the size of \
            the set",
        syntax: "key [count] @2.6.0",
        tips: &["nondeterministic_output"],
        ..SET
    },
];

fn spop(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply) -> Result<Flow, Error> {
    if args.len() > 3 {
        return Err(Error::Syntax);
    }
    let count = match args.get(2) {
        Some(_) => {
            let count = args.int(2).ok().and_then(|count| usize::try_from(count).ok());
            Some(count.ok_or(Error::NotPositive)?)
        }
        None => None,
    };
    let mut rng = Rng::new(ctx.shard.rng.next());
    let limits = ctx.shard.settings.compact;
    let edited = ctx.edit_set(ctx.key(args.at(1)), Missing::Skip, |set| {
        let Some(count) = count else {
            let member = set.take_random(|| rng.next()).expect("no set is empty");
            reply.bulk(&member);
            return (1, None);
        };
        let len = set.as_ref().len();
        let (count, stay) = (count.min(len), len.saturating_sub(count));
        reply.set(count);
        if matches!(set, Set::Table(_)) && stay * STAY_SHARE <= count {
            let mut staying = Set::Pack(Pack::default());
            for _ in 0..stay {
                let member = set.take_random(|| rng.next()).expect("more are there");
                staying.add(&member, &limits);
            }
            set.as_ref().for_each(|member| write_element(reply, member));
            return (count, Some(std::mem::replace(set, staying)));
        }
        for _ in 0..count {
            let member = set.take_random(|| rng.next()).expect("more are there");
            reply.bulk(&member);
        }
        (count, None)
    })?;
    let Some(Edited { result: (popped, rest), emptied, .. }) = edited else {
        if count.is_some() {
            reply.set(0)
        } else {
            reply.null()
        }
        return Ok(Flow::Done);
    };
    if let Some(rest) = rest {
        ctx.shard.keyspace.discard(Value::Set(rest));
    }
    if popped != 0 {
        notify_loss(ctx, "spop", args.at(1), emptied);
    }
    Ok(Flow::Done)
}

fn srandmember(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply) -> Result<Flow, Error> {
    let mut rng = Rng::new(ctx.shard.rng.next());
    if args.len() == 2 {
        read(ctx, args, |set| write_optional(reply, set.random(|| rng.next())))?;
        return Ok(Flow::Done);
    }
    if args.len() > 3 {
        return Err(Error::Syntax);
    }
    let count = args.int(2)?;
    if count == i64::MIN {
        return Err(Error::text(
            "ERR value is out of range, value must between -9223372036854775807 and 9223372036854775807",
        ));
    }
    let room = Room::new(ctx, reply);
    read(ctx, args, |set| {
        if count > 0 {
            write_different(reply, set, (count as usize).min(set.len()), &mut rng);
            return Ok(());
        }
        let count = if set.is_empty() { 0 } else { count.unsigned_abs() as usize };
        room.admit(count)?;
        reply.array(count);
        for _ in 0..count {
            let member = set.random(|| rng.next()).expect("the set is not empty");
            write_element(reply, member);
            room.check(reply)?;
        }
        Ok(())
    })??;
    Ok(Flow::Done)
}

/// Writes `count` different members, each choice of them as likely as any other; there must be so many.
fn write_different(reply: &mut Reply, set: SetRef<'_>, count: usize, rng: &mut Rng) {
    reply.array(count);
    let SetRef::Table(table) = set else { return write_sample(reply, set, count, rng) };
    if count > table.len() / DRAWN_SHARE {
        return write_sample(reply, set, count, rng);
    }
    let mut seen = HashSet::with_capacity(count);
    while seen.len() < count {
        let member = set.random(|| rng.next()).expect("the set is not empty").text();
        if !seen.contains(&member) {
            reply.bulk(&member);
            seen.insert(member);
        }
    }
}

/// The same by looking at all members; each is taken with the probability that leaves the right number.
fn write_sample(reply: &mut Reply, set: SetRef<'_>, count: usize, rng: &mut Rng) {
    let (mut left, mut wanted) = (set.len() as u64, count as u64);
    set.try_each(|member| {
        if wanted != 0 && rng.next() % left < wanted {
            write_element(reply, member);
            wanted -= 1;
        }
        left -= 1;
        wanted != 0
    });
}

#[cfg(test)]
mod tests {
    use crate::commands::testing::{Bench, check_all};
    use std::collections::BTreeSet;

    fn members(array: &str) -> BTreeSet<String> {
        array.split('"').skip(1).step_by(2).map(str::to_owned).collect()
    }

    /// A set of integers, of short strings or of many.
    fn fill(bench: &mut Bench, len: usize, prefix: &str) -> BTreeSet<String> {
        let all: BTreeSet<String> = (0..len).map(|n| format!("{prefix}{n}")).collect();
        all.iter().for_each(|member| drop(bench.run(&format!("SADD s {member}"))));
        all
    }

    #[test]
    fn popped_members_are_gone_and_different() {
        for (len, prefix) in [(20, ""), (20, "m"), (700, "m")] {
            for count in [0, 1, 5, len / 2, len - 1, len, len + 7] {
                let mut bench = Bench::new(2);
                let all = fill(&mut bench, len, prefix);
                let popped = members(&bench.run(&format!("SPOP s {count}")));
                assert_eq!(popped.len(), count.min(len));
                let rest = members(&bench.run("SMEMBERS s"));
                assert_eq!(popped.union(&rest).cloned().collect::<BTreeSet<_>>(), all);
                assert_eq!(rest.len(), len.saturating_sub(count));
                assert_eq!(bench.run("EXISTS s"), if count < len { ":1" } else { ":0" });
            }
        }
    }

    #[test]
    fn random_members_are_different_or_not_as_asked() {
        for (len, prefix) in [(20, ""), (20, "m"), (700, "m")] {
            let mut bench = Bench::new(2);
            let all = fill(&mut bench, len, prefix);
            for count in [0, 1, 5, 19, 200, 650, 10_000] {
                let picked = members(&bench.run(&format!("SRANDMEMBER s {count}")));
                assert_eq!(picked.len(), count.min(len));
                assert!(picked.is_subset(&all));
                let again = bench.run(&format!("SRANDMEMBER s -{count}"));
                assert_eq!(again.matches('"').count(), 2 * count);
                assert!(members(&again).is_subset(&all));
            }
            assert!(all.contains(bench.run("SRANDMEMBER s").trim_matches('"')));
        }
    }

    /// What goes as a whole is freed by the background, not in the turn of the command.
    #[test]
    fn large_sets_that_go_as_a_whole_are_freed_by_and_by() {
        let freed = |bench: &mut Bench| {
            let info = bench.run("INFO memory\nINFO stats");
            let count = info.split("lazyfreed_objects:").nth(1).and_then(|rest| rest.split("\\r").next());
            count.and_then(|count| count.parse::<u64>().ok()).expect("INFO has lazyfreed_objects")
        };
        for command in [
            "SPOP s 1000",
            "SPOP s 690",
            "ZPOPMIN z 1000",
            "ZMPOP 1 z MAX COUNT 1000",
            "ZREMRANGEBYRANK z 0 -1",
        ] {
            let mut bench = Bench::new(2);
            for n in 0..700 {
                bench.run(&format!("SADD s m{n}\nZADD z {n} m{n}"));
            }
            assert_eq!(freed(&mut bench), 0);
            bench.run(command);
            assert_eq!(freed(&mut bench), 1, "{command}");
        }
    }

    #[test]
    fn what_is_not_there_and_what_is_wrong() {
        let range =
            "-ERR value is out of range, value must between -9223372036854775807 and 9223372036854775807";
        let positive = "-ERR value is out of range, must be positive";
        check_all(&[
            ("SPOP none\nSPOP none 0\nSRANDMEMBER none\nSRANDMEMBER none 3", "nil\n[]\nnil\n[]"),
            (
                "SPOP none x\nSPOP none -1\nSPOP none 1 2",
                &format!("{positive}\n{positive}\n-ERR syntax error"),
            ),
            ("SRANDMEMBER none -9223372036854775808\nSRANDMEMBER none -5", &format!("{range}\n[]")),
            ("SADD s 1\nSPOP s\nEXISTS s", ":1\n\"1\"\n:0"),
        ]);
    }
}
