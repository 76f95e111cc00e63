//! MONITOR: shows its client the commands of all clients on all shards, as `crate::monitor` brings them.

use crate::args::Args;
use crate::command::{Command, Flags, Flow, Merge, Plan, Scope};
use crate::ctx::{Ctx, Order};
use crate::errors::Error;
use crate::session::home_of;
use corelane_resp::Reply;

pub(super) const COMMANDS: &[Command] = &[Command {
    name: "monitor",
    arity: 1,
    flags: Flags::ADMIN.with(Flags::NOSCRIPT).with(Flags::LOADING).with(Flags::STALE),
    plan: Plan::EachShard { part: monitor, merge: Merge::AllOk },
    scope: Scope::Nothing,
    group: "server",
    summary: "Listens for all requests received by the server in real-time.",
    ..Command::DEFAULT
}];

/// Has this shard count one more monitor; and if it is one of its own clients, show it everything after the reply.
fn monitor(ctx: &mut Ctx<'_>, _: Args<'_>, reply: &mut Reply) -> Result<Flow, Error> {
    let home = home_of(ctx.client_id, ctx.shard.slots.shards());
    ctx.shard.watchers.join(home);
    if home == ctx.shard.me {
        let mut own = ctx.sessions.into_iter().flat_map(|sessions| sessions.iter_ids());
        let own = own.find(|(_, session)| session.client.id == ctx.client_id);
        let (id, _) = own.expect("a client is there while its own shard runs its command");
        ctx.shard.orders.push(Order::Monitor(id));
    }
    reply.ok();
    Ok(Flow::Done)
}

#[cfg(test)]
mod tests {
    use crate::commands::testing::Bench;

    #[test]
    fn monitors_see_the_commands_of_all_shards() {
        for shards in [1, 2, 5] {
            let mut bench = Bench::new(shards);
            let monitors = [77, 78, 79].map(|port| bench.connect(port.into(), port));
            for monitor in monitors {
                assert_eq!(bench.say(monitor, "MONITOR"), "+OK");
            }
            bench.now += 1234;
            let clients = [(0, 90), (1, 91), (4, 92)].map(|(shard, port)| (port, bench.connect(shard, port)));
            for (port, client) in clients {
                bench.say(client, "set a 1\nMSET a 1 b 2 c 3\nGET a\nNOSUCH\nGET\nGET a b\nCLIENT LIST\nSELECT 3\nSET k v BAD");
                let shown = [
                    "0|\"set\" \"a\" \"1\"",
                    "0|\"MSET\" \"a\" \"1\" \"b\" \"2\" \"c\" \"3\"",
                    "0|\"GET\" \"a\"",
                    "3|\"SELECT\" \"3\"",
                    "3|\"SET\" \"k\" \"v\" \"BAD\"",
                ];
                let expected = shown.map(|line| {
                    let (db, words) = line.split_once('|').unwrap();
                    format!("+1700000001.234000 [{db} 127.0.0.1:{port}] {words}").replace('"', "\\\"")
                });
                for monitor in monitors {
                    assert_eq!(bench.hear(monitor), expected.join("\n"), "{shards} shards");
                }
            }
            // A monitor that has reset is one no longer, and shards forget those that are gone.
            assert_eq!(bench.say(monitors[0], "RESET\nGET a"), "+RESET\n\"1\"");
            bench.run("CLIENT KILL ADDR 127.0.0.1:78");
            assert_eq!(bench.hear(monitors[1]), "closed");
            bench.hear(monitors[2]);
            bench.run("PING");
            assert_eq!(
                (bench.hear(monitors[0]), bench.hear(monitors[2]).lines().count()),
                (String::new(), 1)
            );
            assert_eq!(bench.say(monitors[2], "QUIT").lines().last(), Some("closed"));
            bench.run("PING");
            assert!(bench.nodes.iter().all(|node| !node.has_watchers()));
        }
    }

    #[test]
    fn secrets_and_control_characters_are_not_shown() {
        let mut bench = Bench::new(2);
        let (monitor, client) = (bench.connect(0, 77), bench.connect(1, 78));
        bench.say(monitor, "HELLO 3\nMONITOR");
        bench.say(client, "HELLO 3 AUTH default secret SETNAME me");
        let line = "+1700000000.000000 [0 127.0.0.1:78] \"HELLO\" \"3\" \"AUTH\" \"(redacted)\" \"(redacted)\" \"SETNAME\" \"me\"";
        assert_eq!(bench.hear(monitor), line.replace('"', "\\\""));
        bench.run_words(&[&b"ECHO"[..], b"k\0\"\\ \n\r\t\x07\x08\x1b\x7f\xffz"]);
        let line = r#"+1700000000.000000 [0 127.0.0.1:5] "ECHO" "k\x00\"\\ \n\r\t\a\b\x1b\x7f\xffz""#;
        assert_eq!(bench.hear(monitor), line.replace('\\', "\\\\").replace('"', "\\\""));
    }

    #[test]
    fn a_monitor_goes_on_without_the_keys() {
        for shards in [1, 2, 5] {
            let mut bench = Bench::new(shards);
            let monitor = bench.connect(0, 77);
            assert_eq!(bench.say(monitor, "MONITOR\nMONITOR"), "+OK");
            let refused = "-ERR Replica can't interact with the keyspace";
            assert_eq!(bench.say(monitor, "GET a\nSET a 1\nDBSIZE"), [refused; 3].join("\n"));
            let said = bench.say(monitor, "PING");
            assert!(
                said.starts_with("+PONG\n+17000") && said.ends_with(" [0 127.0.0.1:77] \\\"PING\\\""),
                "{said}"
            );
            let list = bench.run("CLIENT LIST FLAGS O");
            assert!(list.contains("id=") && list.contains(" cmd=ping "), "{list}");
            bench.run("CLIENT PAUSE 60000 ALL");
            assert!(bench.say(monitor, "PING").starts_with("+PONG\n"));
            bench.now += 60_000;
            assert_eq!(bench.say(monitor, "CLIENT REPLY OFF"), "");
            bench.run("PING");
            assert_eq!(bench.hear(monitor), "");
        }
    }

    #[test]
    fn held_back_commands_are_shown_when_they_run_and_once() {
        let mut bench = Bench::new(2);
        let (monitor, client) = (bench.connect(0, 77), bench.connect(1, 78));
        bench.say(monitor, "MONITOR");
        bench.run("CLIENT PAUSE 500 WRITE");
        assert_eq!(bench.say(client, "GET a\nMSET a 1 b 2\nGET a"), "nil");
        assert_eq!(bench.hear(monitor).lines().count(), 1);
        bench.now += 500;
        assert_eq!(bench.hear(client), "+OK\n\"1\"");
        let shown = bench.hear(monitor);
        let words: Vec<&str> = shown.lines().filter_map(|line| line.split("] ").nth(1)).collect();
        assert_eq!(words, [r#"\"MSET\" \"a\" \"1\" \"b\" \"2\""#, r#"\"GET\" \"a\""#]);
    }

    #[test]
    fn a_monitor_that_does_not_read_is_dropped() {
        let mut bench = Bench::new(2);
        let (monitor, client) = (bench.connect(0, 77), bench.connect(1, 78));
        bench.say(monitor, "MONITOR");
        let large = format!("ECHO {}", "x".repeat(1 << 20));
        for _ in 0..64 {
            assert!(bench.say(client, &large).starts_with('"'));
        }
        assert_eq!(bench.hear(monitor), "closed");
        let info = bench.run("INFO stats");
        assert!(bench.nodes.iter().all(|node| !node.has_watchers()));
        assert!(info.contains("client_output_buffer_limit_disconnections:1"), "{info}");
    }
}
