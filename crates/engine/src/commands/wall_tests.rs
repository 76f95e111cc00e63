//! Commands on a machine whose clock somebody has set.

use super::testing::Bench;
use crate::wall::WallClock;

/// The system's clock is set an hour ahead or back: what is left to live stays as it was, and moments are the new clock's.
#[test]
fn clients_speak_of_the_wall_clock_and_ttls_do_not_hear_of_it() {
    for (shards, ahead_s) in [(1, 3600), (3, 3600), (3, -3600)] {
        let mut bench = Bench::new(shards);
        bench.run("SET old v EX 100\nHSET h f v g v\nHEXPIRE h 100 FIELDS 1 f");
        for node in &mut bench.nodes {
            node.set_wall_clock(WallClock::ahead_by(ahead_s * 1000));
        }
        let shown = 1_700_000_000 + ahead_s;
        let (at, told) = (shown + 10, |reply: &str| reply.to_owned());
        for (lines, expected) in [
            ("PTTL old".to_owned(), ":100000".to_owned()),
            (
                "EXPIRETIME old\nPEXPIRETIME old".to_owned(),
                format!(":{}\n:{}", shown + 100, (shown + 100) * 1000),
            ),
            ("HPTTL h FIELDS 1 f".to_owned(), told("[:100000]")),
            ("HEXPIRETIME h FIELDS 1 f".to_owned(), format!("[:{}]", shown + 100)),
            ("HPEXPIRETIME h FIELDS 1 f".to_owned(), format!("[:{}]", (shown + 100) * 1000)),
            ("TIME".to_owned(), format!("[\"{shown}\", \"0\"]")),
            (format!("EXPIREAT old {at}\nTTL old"), told(":1\n:10")),
            (format!("PEXPIREAT old {at}500\nPTTL old"), told(":1\n:10500")),
            (format!("SET k v EXAT {at}\nTTL k"), told("+OK\n:10")),
            (format!("GETEX k PXAT {at}700\nPTTL k"), told("\"v\"\n:10700")),
            (format!("MSETEX 2 a 1 b 2 EXAT {at}\nTTL a\nTTL b"), told(":1\n:10\n:10")),
            (format!("HEXPIREAT h {at} FIELDS 1 f\nHTTL h FIELDS 1 f"), told("[:1]\n[:10]")),
            (format!("HGETEX h EXAT {at} FIELDS 1 g\nHTTL h FIELDS 1 g"), told("[\"v\"]\n[:10]")),
            (format!("HSETEX h PXAT {at}000 FIELDS 1 f w\nHTTL h FIELDS 1 f"), told(":1\n[:10]")),
            (format!("EXPIREAT a {}\nEXISTS a", shown - 1), told(":1\n:0")),
            (
                format!("SET b v EXAT {}\nEXISTS b\nSET b v PXAT 1\nEXISTS b", shown - 1),
                told("+OK\n:0\n+OK\n:0"),
            ),
            (format!("HEXPIREAT h {} FIELDS 1 g\nHGET h g", shown - 1), told("[:2]\nnil")),
        ] {
            assert_eq!(bench.run(&lines), expected, "{lines}, {ahead_s} s ahead");
        }
        assert!(bench.run("INFO server").contains(&format!("server_time_usec:{shown}000000")));
    }
}

#[test]
fn a_payload_has_the_moments_of_the_wall_clock() {
    let mut bench = Bench::new(2);
    bench.run("HSET h f v g v\nHEXPIRE h 100 FIELDS 1 f");
    let payload = |bench: &mut Bench| bench.exchange(b"DUMP h\r\n");
    let before = payload(&mut bench);
    let set = |bench: &mut Bench, ms| {
        bench.nodes.iter_mut().for_each(|node| node.set_wall_clock(WallClock::ahead_by(ms)));
    };
    set(&mut bench, 50_000);
    assert_ne!(payload(&mut bench), before);
    let head = before.windows(2).position(|two| two == b"\r\n").expect("a bulk") + 2;
    let dumped = &before[head..before.len() - 2];
    assert_eq!(bench.run_words(&[&b"RESTORE"[..], b"copy", b"0", dumped]), "+OK");
    assert_eq!(bench.run("HTTL copy FIELDS 1 f\nHTTL h FIELDS 1 f"), "[:50]\n[:100]");
    let at = b"1700000070000";
    assert_eq!(bench.run_words(&[&b"RESTORE"[..], b"k", at, dumped, b"ABSTTL"]), "+OK");
    assert_eq!(bench.run("TTL k"), ":20");
}
