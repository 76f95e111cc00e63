//! CLIENT KILL and CLIENT UNBLOCK: what one client does to others, whichever shards they are on.

use super::client_filter::Filters;
use crate::args::Args;
use crate::command::Flow;
use crate::ctx::{Ctx, Decide, Next, On, Order, PartResult, Payload};
use crate::errors::Error;
use crate::session::CloseWhen;
use crate::settings::Settings;
use corelane_resp::Reply;

/// `CLIENT KILL ip:port`, which says whether there was one; with options it says how many.
fn is_old_form(args: Args<'_>) -> bool {
    args.len() == 3
}

pub(super) fn check_kill(args: Args<'_>, settings: &Settings) -> Result<(), Error> {
    if is_old_form(args) { Ok(()) } else { Filters::parse(args, settings).map(|_| ()) }
}

/// Closes the clients of one shard that are meant; answers how many. Where it matters which clients watch keys that have been changed,
/// all shards are asked for these before.
pub(super) fn kill(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply) -> Result<Flow, Error> {
    let old = is_old_form(args);
    let filters = if old { Filters::default() } else { Filters::parse(args, &ctx.shard.settings)? };
    let touched = match std::mem::take(&mut ctx.payload) {
        Payload::Clients(touched) => touched,
        _ if filters.ask_for_touched() => {
            ctx.payload = Payload::Clients(ctx.shard.keyspace.clients_with_changes().collect());
            return Ok(Flow::Done);
        }
        _ => Vec::new(),
    };
    let skip = (!old && filters.skip_me != Some(false)).then_some(ctx.client_id);
    let mut killed = 0;
    for (id, session) in ctx.sessions.into_iter().flat_map(|sessions| sessions.iter_ids()) {
        let client = &session.client;
        let meant = if old {
            client.addr().as_bytes() == args.at(2)
        } else {
            let touched = touched.binary_search(&client.id).is_ok();
            Some(client.id) != skip && filters.accept(session, touched, ctx.now)
        };
        if meant && client.close != Some(CloseWhen::Now) {
            killed += 1;
            let when = if client.id == ctx.client_id { CloseWhen::AfterOutput } else { CloseWhen::Now };
            ctx.shard.orders.push(Order::Close(id, when));
        }
    }
    reply.int(killed);
    Ok(Flow::Done)
}

pub(super) fn decide_kill(decide: &mut Decide<'_>) -> Next {
    let touched: Vec<Vec<u64>> = decide
        .results
        .iter_mut()
        .filter_map(|result| match std::mem::take(&mut result.payload) {
            Payload::Clients(own) => Some(own),
            _ => None,
        })
        .collect();
    if !touched.is_empty() {
        let mut touched = touched.concat();
        touched.sort_unstable();
        return Next::Run { stage: 1, on: On::All, payload: Payload::Clients(touched) };
    }
    match decide.results.iter().map(PartResult::int).sum() {
        killed if !is_old_form(decide.args) => decide.reply.int(killed),
        0 => decide.reply.error("ERR No such client"),
        _ => decide.reply.ok(),
    }
    Next::Reply
}

pub(super) fn check_unblock(args: Args<'_>, _: &Settings) -> Result<(), Error> {
    if args.len() == 4 && !args.is(3, "TIMEOUT") && !args.is(3, "ERROR") {
        return Err(Error::text("ERR CLIENT UNBLOCK reason should be TIMEOUT or ERROR"));
    }
    args.int(2).map(drop)
}

/// Ends the wait of one client, if it is on this shard and blocked; answers 1 then.
pub(super) fn unblock(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply) -> Result<Flow, Error> {
    let wanted = args.int(2)?;
    let failed = args.len() == 4 && args.is(3, "ERROR");
    let mut sessions = ctx.sessions.into_iter().flat_map(|sessions| sessions.iter_ids());
    let found =
        sessions.find(|(_, session)| session.client.id as i64 == wanted && session.client.wait.is_some());
    if let Some((id, _)) = found {
        ctx.shard.orders.push(Order::Unblock { id, failed });
    }
    reply.int(found.is_some().into());
    Ok(Flow::Done)
}

#[cfg(test)]
mod tests {
    use crate::commands::testing::{Bench, check_all};

    #[test]
    fn kill_says_how_many_or_whether() {
        check_all(&[
            ("CLIENT KILL 1.2.3.4:5", "-ERR No such client"),
            ("CLIENT KILL ID 999", ":0"),
            ("CLIENT KILL ID", "-ERR No such client"),
            ("CLIENT KILL TYPE pubsub", ":0"),
            ("CLIENT KILL TYPE normal x", "-ERR syntax error"),
            ("CLIENT KILL USER default", ":0"),
            ("CLIENT KILL SKIPME maybe", "-ERR syntax error"),
            ("CLIENT UNBLOCK 1", ":0"),
            ("CLIENT UNBLOCK 1 x", "-ERR CLIENT UNBLOCK reason should be TIMEOUT or ERROR"),
            ("CLIENT UNBLOCK 1 ERROR x", ":0"),
            ("CLIENT UNBLOCK x", "-ERR value is not an integer or out of range"),
        ]);
    }

    #[test]
    fn every_filter_finds_its_client_on_any_shard() {
        for shards in [1, 2, 5] {
            let mut bench = Bench::new(shards);
            let setup = "CLIENT SETNAME some\nCLIENT SETINFO lib-name lib\nCLIENT SETINFO lib-ver 9\nSELECT 3\n\
                CLIENT CAPA redirect\nCLIENT NO-EVICT on\nWATCH changed";
            let filters = [
                "ADDR 127.0.0.1:77",
                "NAME some",
                "LIB-NAME lib",
                "LIB-VER 9",
                "DB 3",
                "CAPA r",
                "FLAGS e",
                "FLAGS de",
                "NOT-DB 0",
                "NOT-FLAGS N",
                "NOT-ADDR 127.0.0.1:5",
                "IP 127.0.0.1",
                "LADDR 127.0.0.1:6379",
                "MAXAGE 5 NAME some",
                "IDLE 5 NAME some",
                "TYPE normal",
                "USER default",
                "SKIPME yes",
            ];
            for (number, filter) in filters.iter().enumerate() {
                let victim = bench.connect(number, 77);
                assert_eq!(bench.say(victim, setup).lines().count(), 7);
                bench.run("SELECT 3\nINCR changed\nSELECT 0");
                bench.now += 5000;
                assert_eq!(bench.run(&format!("CLIENT KILL {filter}")), ":1", "{filter} on {shards} shards");
                assert_eq!(bench.hear(victim), "closed", "{filter} on {shards} shards");
                assert_eq!(bench.run(&format!("CLIENT KILL {filter}")), ":0", "{filter} again");
            }
            let victim = bench.connect(1, 78);
            let id = bench.say(victim, "CLIENT ID");
            assert_eq!(bench.run(&format!("CLIENT KILL ID 998 {} 999", &id[1..])), ":1");
            let victim = bench.connect(1, 79);
            assert_eq!(bench.run("CLIENT KILL 127.0.0.1:79"), "+OK");
            assert_eq!(bench.hear(victim), "closed");
        }
    }

    #[test]
    fn the_own_connection_closes_after_the_reply() {
        for shards in [1, 2, 5] {
            let mut bench = Bench::new(shards);
            for (kill, reply) in [("127.0.0.1:77", "+OK"), ("ADDR 127.0.0.1:77 SKIPME no", ":1")] {
                let client = bench.connect(0, 77);
                let said = bench.say(client, &format!("SET a 1\nECHO x\nCLIENT KILL {kill}\nECHO y"));
                assert_eq!(said, format!("+OK\n\"x\"\n{reply}\nclosed"));
            }
            let client = bench.connect(0, 77);
            assert_eq!(bench.say(client, "CLIENT KILL ADDR 127.0.0.1:77\nECHO y"), ":0\n\"y\"");
        }
    }

    #[test]
    fn a_client_that_waits_for_other_shards_can_be_killed() {
        let mut bench = Bench::new(5);
        let (victim, killer) = (bench.connect(0, 77), bench.connect(1, 78));
        bench.send(victim, "MSET a 1 b 2 c 3 d 4\nGET a\nGET b");
        bench.send(killer, "CLIENT KILL ADDR 127.0.0.1:77\nMGET a b");
        let heard = bench.hear(killer);
        assert!(heard.starts_with(":1\n["), "{heard}");
        assert_eq!(bench.hear(victim), "closed");
        assert_eq!(bench.run("MGET a b c d"), "[\"1\", \"2\", \"3\", \"4\"]");
        assert_eq!(bench.run("MSET a 5 b 6 c 7 d 8"), "+OK");
    }
}
