//! What a monitor is shown, beside Valkey's: equal but for the time and the address.

use super::peers::SHARD_COUNTS;
use crate::common::client::{Client, Outcome};
use crate::common::server::Server;
use crate::common::words;

/// Commands of all kinds, those included that are not shown.
const SCRIPT: &str = r#"SELECT 3
ping
GET x y
get x
NOSUCH a
HELLO 3 AUTH default x
HELLO 2
CONFIG GET port
CLIENT ID
CLIENT LIST
CLIENT KILL 1.2.3.4:5
CLIENT SETNAME me
COMMAND COUNT
SET k v BAD
SET k "\x00\"\\ \n\r\t\a\b\x1b\x7f\xff"
MSET a 1 b 2 c 3 d 4
MGET a b c d
DEL a b c d
DBSIZE
KEYS *
RENAME k k2
CLIENT REPLY ON
CLIENT UNPAUSE
MONITOR x
SWAPDB 3 4
RESET
GET end
QUIT"#;

/// Runs the script, and returns what the monitors were shown of it, less times and addresses.
fn shown(server: &Server, proto: u8) -> Vec<Vec<String>> {
    let mut monitors: Vec<Client> = (0..3).map(|_| server.client()).collect();
    for monitor in &mut monitors {
        monitor.run(&format!("HELLO {proto}"));
        monitor.check("MONITOR", "+OK\r\n");
        // The later ones' greetings are shown to the earlier ones; each forgets what it has seen so far.
    }
    let mut client = server.client();
    client.run("ECHO begin");
    for line in SCRIPT.lines() {
        let outcome = client.call(&words::parse(line));
        assert!(matches!(outcome, Outcome::Reply(_)), "{line}: {outcome:?}");
    }
    monitors.iter_mut().map(|monitor| lines_between(monitor, "\"ECHO\" \"begin\"", "\"QUIT\"")).collect()
}

fn lines_between(monitor: &mut Client, begin: &str, end: &str) -> Vec<String> {
    let mut lines = Vec::new();
    let mut begun = false;
    loop {
        let Outcome::Reply(raw) = monitor.read() else { panic!("no {end} behind {lines:?}") };
        let line = raw.escape_ascii().to_string().replace("\\\"", "\"");
        let (head, words) = line.split_once("] ").expect("a line of MONITOR");
        let (time, place) = head.split_once(" [").expect("time and place");
        let (seconds, micros) = time.split_once('.').expect("seconds and their fraction");
        assert!(seconds.starts_with('+') && micros.len() == 6, "{line}");
        let (db, addr) = place.split_once(' ').expect("database and address");
        assert!(addr.starts_with("127.0.0.1:"), "{line}");
        if begun {
            lines.push(format!("{db} {words}"));
        }
        begun |= words.starts_with(begin);
        if words.starts_with(end) {
            return lines;
        }
    }
}

#[test]
fn monitors_are_shown_what_those_of_valkey_are() {
    let Some(valkey) = Server::valkey() else { return };
    for proto in [2, 3] {
        let theirs = shown(&valkey, proto);
        for shards in SHARD_COUNTS {
            let ours = shown(&Server::ours(shards), proto);
            assert_eq!(ours, theirs, "RESP{proto}, {shards} shards");
        }
    }
}
