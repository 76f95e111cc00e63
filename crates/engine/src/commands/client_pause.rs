//! CLIENT PAUSE and CLIENT UNPAUSE on all shards.

use crate::args::Args;
use crate::command::Flow;
use crate::ctx::Ctx;
use crate::errors::Error;
use crate::keyspace::Millis;
use crate::settings::Settings;
use corelane_resp::Reply;

/// Milliseconds and whether all commands are meant.
fn parse(args: Args<'_>, now: Millis) -> Result<(Millis, bool), Error> {
    let all = match args.get(3) {
        None => true,
        Some(mode) if mode.eq_ignore_ascii_case(b"all") => true,
        Some(mode) if mode.eq_ignore_ascii_case(b"write") => false,
        Some(_) => return Err(Error::text("ERR CLIENT PAUSE mode must be WRITE or ALL")),
    };
    let timeout_ms = crate::args::parse_int(args.at(2))
        .ok_or(Error::text("ERR timeout is not an integer or out of range"))?;
    let timeout_ms = u64::try_from(timeout_ms).map_err(|_| Error::text("ERR timeout is negative"))?;
    let until = now + timeout_ms;
    if until > i64::MAX as u64 {
        return Err(Error::text("ERR timeout is out of range"));
    }
    Ok((until, all))
}

pub(super) fn check_pause(args: Args<'_>, _: &Settings) -> Result<(), Error> {
    parse(args, 0).map(|_| ())
}

pub(super) fn pause(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply) -> Result<Flow, Error> {
    let (until, all) = parse(args, ctx.now)?;
    ctx.shard.pause.extend(until, all, ctx.now);
    ctx.shard.keyspace.keeps_expired = true;
    reply.ok();
    Ok(Flow::Done)
}

pub(super) fn unpause(ctx: &mut Ctx<'_>, _: Args<'_>, reply: &mut Reply) -> Result<Flow, Error> {
    ctx.shard.pause.end();
    ctx.shard.keyspace.keeps_expired = false;
    reply.ok();
    Ok(Flow::Done)
}

#[cfg(test)]
mod tests {
    use crate::commands::testing::{Bench, check_all};

    #[test]
    fn arguments_are_checked() {
        check_all(&[
            ("CLIENT PAUSE abc", "-ERR timeout is not an integer or out of range"),
            ("CLIENT PAUSE -1", "-ERR timeout is negative"),
            ("CLIENT PAUSE 10 x", "-ERR CLIENT PAUSE mode must be WRITE or ALL"),
            ("CLIENT PAUSE 0", "+OK"),
            ("CLIENT PAUSE 0 WRITE", "+OK"),
            ("SET a 1", "+OK"),
            ("CLIENT UNPAUSE", "+OK"),
        ]);
    }

    #[test]
    fn write_holds_back_writes_and_what_comes_after_them() {
        for shards in [1, 2, 5] {
            let mut bench = Bench::new(shards);
            let (one, two) = (bench.connect(0, 77), bench.connect(1, 78));
            assert_eq!(bench.run("SET a 0\nCLIENT PAUSE 60000 WRITE"), "+OK\n+OK");
            assert_eq!(bench.say(one, "GET a\nAPPEND a 1\nGET a\nMGET a b"), "\"0\"");
            assert_eq!(bench.say(two, "MSET a x b y\nGET b"), "", "a command over several shards waits, too");
            assert_eq!(bench.run("GET a\nDBSIZE"), "\"0\"\n:1");
            let info = bench.run("INFO clients");
            let fields =
                "paused_reason:client_pause\\r\\npaused_actions:write\\r\\npaused_timeout_milliseconds:60000";
            assert!(info.contains(fields), "{info}");
            let list = bench.run("CLIENT LIST FLAGS b");
            assert_eq!(list.matches("id=").count(), 2, "{list}");
            assert_eq!(bench.run("CLIENT UNPAUSE"), "+OK");
            let heard = bench.hear(one);
            assert!(heard.starts_with(":2\n"), "{heard}");
            assert_eq!(heard.lines().count(), 3);
            assert_eq!(bench.hear(two), "+OK\n\"y\"");
            assert_eq!(bench.run("CLIENT LIST FLAGS b"), "\"\"");
            assert!(bench.run("INFO clients").contains("paused_reason:none"));
        }
    }

    #[test]
    fn all_holds_back_everything_until_its_time() {
        for shards in [1, 2, 5] {
            let mut bench = Bench::new(shards);
            let clients = [77, 78, 79].map(|port| bench.connect(port.into(), port));
            let start = bench.now;
            assert_eq!(bench.say(clients[0], "CLIENT PAUSE 500\nECHO x"), "+OK");
            bench.now = start + 100;
            // A shorter and laxer pause changes nothing, and has to wait as well.
            assert_eq!(bench.say(clients[1], "CLIENT PAUSE 10 WRITE\nNOSUCH"), "");
            assert_eq!(
                bench.say(clients[2], "XADD\nCLIENT UNPAUSE"),
                "-ERR unknown command 'XADD', with args beginning with: "
            );
            bench.now = start + 499;
            assert!(bench.nodes.iter().all(|node| node.next_deadline(start + 499) == Some(start + 500)));
            assert_eq!(clients.map(|client| bench.hear(client)).concat(), "");
            bench.now = start + 500;
            assert_eq!(bench.hear(clients[0]), "\"x\"");
            let heard = bench.hear(clients[1]);
            assert!(heard.starts_with("+OK\n-ERR unknown command 'NOSUCH'"), "{heard}");
            assert_eq!(bench.hear(clients[2]), "+OK");
        }
    }

    #[test]
    fn keys_stay_until_the_pause_is_over_and_nobody_sees_them() {
        for shards in [1, 2, 5] {
            let mut bench = Bench::new(shards);
            let start = bench.now;
            assert_eq!(
                bench.run("SET a x PX 100\nSET b x PX 100\nSET c x PX 100\nCLIENT PAUSE 500 WRITE"),
                "+OK\n+OK\n+OK\n+OK"
            );
            bench.now = start + 499;
            assert_eq!(bench.run("DBSIZE"), ":3");
            assert!(bench.nodes.iter().all(|node| node.next_deadline(start + 499) == Some(start + 500)));
            assert_eq!(bench.run("EXISTS a\nDBSIZE"), ":0\n:3");
            bench.now = start + 500;
            assert_eq!(bench.run("PING"), "+PONG");
            assert_eq!(bench.run("DBSIZE"), ":0");
        }
    }

    #[test]
    fn clients_go_on_in_the_order_in_which_they_were_stopped() {
        const CLIENTS: u16 = 200;
        let mut bench = Bench::new(1);
        let clients: Vec<_> = (0..CLIENTS).map(|n| bench.connect(0, 1000 + n)).collect();
        bench.run("CLIENT PAUSE 60000 WRITE");
        for client in &clients {
            assert_eq!(bench.say(*client, "INCR a"), "");
        }
        bench.run("CLIENT UNPAUSE");
        for (number, client) in clients.iter().enumerate() {
            assert_eq!(bench.hear(*client), format!(":{}", number + 1));
        }
    }

    #[test]
    fn a_pause_inside_a_pause_holds_again_and_closing_is_no_harm() {
        let mut bench = Bench::new(2);
        let (one, two) = (bench.connect(0, 77), bench.connect(1, 78));
        bench.run("CLIENT PAUSE 60000 WRITE");
        assert_eq!(
            bench.say(one, "CLIENT PAUSE 60000 WRITE\nINCR a\nCLIENT PAUSE 60000 WRITE\nINCR a"),
            "+OK"
        );
        assert_eq!(bench.say(two, "INCR b"), "");
        assert_eq!(bench.run("CLIENT KILL ADDR 127.0.0.1:78"), ":1");
        assert_eq!(bench.hear(two), "closed");
        bench.run("CLIENT UNPAUSE");
        assert_eq!(bench.hear(one), ":1\n+OK");
        bench.run("CLIENT UNPAUSE");
        assert_eq!(bench.hear(one), ":2");
        assert_eq!(bench.run("GET b"), "nil");
    }

    #[test]
    fn expired_keys_are_not_seen_and_stay_until_the_end_of_a_pause() {
        for shards in [1, 2, 5] {
            let mut bench = Bench::new(shards);
            bench.run("SET a 1 PX 50\nSET b 2 PX 50\nSET c 3\nCLIENT PAUSE 200 WRITE");
            bench.now += 100;
            assert_eq!(
                bench.run("GET a\nMGET a b c\nTTL b\nEXISTS a b\nTYPE a"),
                "nil\n[nil, nil, \"3\"]\n:-2\n:0\n+none"
            );
            assert_eq!(bench.run("DBSIZE"), ":3", "{shards} shards");
            assert!(bench.run("INFO stats").contains("expired_keys:0"));
            bench.now += 100;
            assert_eq!(bench.run("GET a\nDBSIZE"), "nil\n:1");
            assert!(bench.run("INFO stats").contains("expired_keys:2"));
            bench.run("SET a 1 PX 50\nCLIENT PAUSE 200 WRITE\nCLIENT UNPAUSE");
            bench.now += 50;
            assert_eq!(bench.run("GET a\nDBSIZE"), "nil\n:1");
        }
    }
}
