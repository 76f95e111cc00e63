//! What clients ask of replication: ROLE, WAIT and WAITAOF, answered by a server without replicas and without a log.

use crate::args::{Args, parse_int};
use crate::command::{Command, Flags, Plan};
use crate::ctx::SessionCtx;
use crate::errors::Error;
use crate::keyspace::Millis;
use crate::session::Wait;
use corelane_resp::Reply;

const WAIT_TIPS: &[&str] = &["request_policy:all_shards", "response_policy:agg_min"];

pub(super) const COMMANDS: &[Command] = &[
    Command {
        name: "role",
        arity: 1,
        flags: Flags::NOSCRIPT.with(Flags::LOADING).with(Flags::STALE).with(Flags::FAST),
        categories: &["@admin", "@dangerous"],
        plan: Plan::Session(role),
        since: "2.8.12",
        group: "server",
        summary: "Returns the replication role.",
        ..Command::DEFAULT
    },
    Command {
        name: "wait",
        arity: 3,
        flags: Flags::BLOCKING,
        categories: &["@connection"],
        plan: Plan::Session(wait),
        since: "3.0.0",
        summary: "Blocks until the asynchronous replication of all preceding write commands sent by the connection is \
                  completed.",
        syntax: "numreplicas timeout",
        tips: WAIT_TIPS,
        ..Command::DEFAULT
    },
    Command {
        name: "waitaof",
        arity: 4,
        flags: Flags::BLOCKING,
        categories: &["@connection"],
        plan: Plan::Session(wait_aof),
        since: "7.2.0",
        summary: "Blocks until all of the preceding write commands sent by the connection are written to the append-only \
                  file of the primary and/or replicas.",
        syntax: "numlocal numreplicas timeout",
        tips: WAIT_TIPS,
        ..Command::DEFAULT
    },
];

fn role(_: &mut SessionCtx<'_>, _: Args<'_>, reply: &mut Reply) -> Result<(), Error> {
    reply.array(3);
    reply.bulk(b"master");
    reply.int(0);
    reply.array(0);
    Ok(())
}

/// When a wait of so many milliseconds is over; `None` for never.
fn deadline(text: &[u8], now: Millis) -> Result<Option<Millis>, Error> {
    let number = parse_int(text).ok_or(Error::text("ERR timeout is not an integer or out of range"))?;
    let timeout_ms = u64::try_from(number).map_err(|_| Error::text("ERR timeout is negative"))?;
    let at = now + timeout_ms;
    if i64::try_from(at).is_err() {
        return Err(Error::text("ERR timeout is out of range"));
    }
    Ok((timeout_ms != 0).then_some(at))
}

fn no_replicas(reply: &mut Reply) {
    reply.int(0);
}

fn neither_log_nor_replicas(reply: &mut Reply) {
    reply.array(2);
    reply.int(0);
    reply.int(0);
}

/// There never is a replica: who asks for one waits until the time is up.
fn wait(ctx: &mut SessionCtx<'_>, args: Args<'_>, reply: &mut Reply) -> Result<(), Error> {
    let replicas = args.int(1)?;
    let until = deadline(args.at(2), ctx.now)?;
    if replicas <= 0 || !ctx.may_block {
        no_replicas(reply);
    } else {
        ctx.client.wait = Some(Box::new(Wait { until, give_up: no_replicas }));
    }
    Ok(())
}

fn wait_aof(ctx: &mut SessionCtx<'_>, args: Args<'_>, reply: &mut Reply) -> Result<(), Error> {
    let local = args.int(1)?;
    if !(0..=1).contains(&local) {
        return Err(Error::text("ERR value is out of range, value must between 0 and 1"));
    }
    let replicas = parse_int(args.at(2)).filter(|replicas| *replicas >= 0).ok_or(Error::NotPositive)?;
    let until = deadline(args.at(3), ctx.now)?;
    if local != 0 {
        return Err(Error::text(
            "ERR WAITAOF cannot be used when numlocal is set but appendonly is disabled.",
        ));
    }
    if replicas == 0 || !ctx.may_block {
        neither_log_nor_replicas(reply);
    } else {
        ctx.client.wait = Some(Box::new(Wait { until, give_up: neither_log_nor_replicas }));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use crate::commands::testing::{Bench, check_all};

    #[test]
    fn a_server_without_replicas_says_so() {
        let number = "-ERR value is not an integer or out of range";
        check_all(&[
            ("ROLE", "[\"master\", :0, []]"),
            ("WAIT 0 0\nWAIT -1 0\nWAITAOF 0 0 0", ":0\n:0\n[:0, :0]"),
            ("WAIT x 0", number),
            (
                "WAIT 0 -1\nWAIT 0 a",
                "-ERR timeout is negative\n-ERR timeout is not an integer or out of range",
            ),
            ("WAIT 0 9223372036854775807", "-ERR timeout is out of range"),
            ("WAITAOF 2 0 0", "-ERR value is out of range, value must between 0 and 1"),
            ("WAITAOF 0 -1 0", "-ERR value is out of range, must be positive"),
            ("WAITAOF 1 0 0", "-ERR WAITAOF cannot be used when numlocal is set but appendonly is disabled."),
        ]);
    }

    #[test]
    fn who_waits_is_answered_in_time_and_in_order() {
        for shards in [1, 2, 5] {
            let mut bench = Bench::new(shards);
            let requests = b"SET a 1\r\nSET b 2\r\nWAIT 1 50\r\nGET a\r\nWAITAOF 0 1 20\r\nGET b\r\n";
            assert_eq!(bench.exchange(requests), b"+OK\r\n+OK\r\n");
            bench.now += 49;
            assert_eq!(bench.exchange(b"PING\r\n"), b"");
            bench.now += 1;
            assert_eq!(bench.exchange(b""), b":0\r\n$1\r\n1\r\n");
            bench.now += 19;
            assert_eq!(bench.exchange(b""), b"");
            bench.now += 1;
            assert_eq!(bench.exchange(b""), b"*2\r\n:0\r\n:0\r\n$1\r\n2\r\n+PONG\r\n");
        }
    }

    #[test]
    fn who_waits_can_be_unblocked_from_any_shard() {
        for shards in [1, 2, 5] {
            let mut bench = Bench::new(shards);
            let blocked = bench.connect(0, 7);
            let id = bench.say(blocked, "CLIENT ID").trim_start_matches(':').to_owned();
            assert_eq!(bench.run(&format!("CLIENT UNBLOCK {id}")), ":0");
            assert_eq!(bench.say(blocked, "WAIT 1 0\nECHO a\nWAITAOF 0 1 0\nECHO b"), "");
            assert!(bench.run("CLIENT LIST FLAGS b").contains(&format!("id={id} ")));
            assert_eq!(bench.run(&format!("CLIENT UNBLOCK {id} TIMEOUT")), ":1");
            assert_eq!(bench.hear(blocked).lines().collect::<Vec<_>>(), [":0", "\"a\""]);
            assert_eq!(bench.run(&format!("CLIENT UNBLOCK {id} ERROR")), ":1");
            let heard = bench.hear(blocked);
            assert_eq!(
                heard.lines().collect::<Vec<_>>(),
                ["-UNBLOCKED client unblocked via CLIENT UNBLOCK", "\"b\""]
            );
        }
    }

    #[test]
    fn who_waits_for_ever_does_not_hold_up_others() {
        let mut bench = Bench::new(2);
        assert_eq!(bench.exchange(b"WAIT 1 0\r\nPING\r\n"), b"");
        bench.now += 1_000_000_000;
        assert_eq!(bench.exchange(b""), b"");
        assert_eq!(bench.nodes[1].blocked_clients(), 1);
        let other = bench.nodes[1].open(crate::session::Peer::default(), bench.now);
        bench.nodes[1].feed(other, b"PING\r\n", bench.now);
        let output = bench.nodes[1].session_state(other).unwrap().output.take();
        assert_eq!(output.slices().collect::<Vec<_>>().concat(), b"+PONG\r\n");
    }
}
