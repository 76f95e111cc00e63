//! A connection's input, however it is cut and however slowly its output is taken.

use std::cell::Cell;

use corelane_engine::{Faults, Node, NodeConfig, Peer, Settings, ShardId, Ticks, slot_of};

fn node(settings: Settings) -> Node {
    Node::new(NodeConfig {
        me: ShardId(0),
        shards: 1,
        seed: 1,
        settings,
        ticks: Ticks::STOPPED,
        faults: Faults::default(),
    })
}

fn pipeline(count: usize) -> Vec<u8> {
    let set_get = |i: usize| {
        let (key, value) = (format!("k{}", i % 7), format!("v{i}"));
        format!(
            "*3\r\n$3\r\nSET\r\n$2\r\n{key}\r\n${}\r\n{value}\r\n*2\r\n$3\r\nGET\r\n$2\r\n{key}\r\n",
            value.len()
        )
    };
    (0..count).map(set_get).collect::<String>().into_bytes()
}

fn replies(count: usize) -> Vec<u8> {
    let reply = |i: usize| format!("+OK\r\n${}\r\nv{i}\r\n", format!("v{i}").len());
    (0..count).map(reply).collect::<String>().into_bytes()
}

#[test]
fn a_pipeline_longer_than_what_is_read_ahead_may_be_cut_anywhere() {
    let (input, expected) = (pipeline(40), replies(40));
    let mut node = node(Settings::default());
    for cut in 0..=input.len() {
        let id = node.open(Peer::default(), 1000);
        node.feed(id, &input[..cut], 1000);
        node.feed(id, &input[cut..], 1000);
        let output = &node.session_state(id).unwrap().output.buf;
        assert!(*output == expected, "cut at {cut}: {:?}", String::from_utf8_lossy(output));
        node.close(id);
    }
}

#[test]
fn a_long_pipeline_is_run_in_pieces() {
    let (input, expected) = (pipeline(2000), replies(2000));
    let mut node = node(Settings::default());
    let id = node.open(Peer::default(), 1000);
    let (first, second) = input.split_at(input.len() / 3);
    node.feed(id, first, 1000);
    let mut turns = 0;
    let (mut seen, mut more) = (0, true);
    while more {
        let done = node.session_state(id).unwrap().output.len();
        assert!(done - seen < 128 * 12 * 2 + 1, "{} bytes of replies in a turn", done - seen);
        seen = done;
        if turns == 1 {
            node.feed(id, second, 1000);
            seen = node.session_state(id).unwrap().output.len();
        }
        assert!(node.session_state(id).unwrap().owes || turns > 20);
        more = node.tick(1000);
        turns += 1;
    }
    assert!(turns > 20, "{turns}");
    assert!(node.session_state(id).unwrap().output.buf == expected);
}

#[test]
fn slow_commands_make_pieces_short() {
    thread_local! {
        static NOW: Cell<u64> = const { Cell::new(0) };
    }
    let mut node = Node::new(NodeConfig {
        me: ShardId(0),
        shards: 1,
        seed: 1,
        settings: Settings::default(),
        // Each reading, and so each SET, takes 45 µs.
        ticks: Ticks { read: || NOW.replace(NOW.get() + 45_000), ..Ticks::STOPPED },
        faults: Faults::default(),
    });
    let id = node.open(Peer::default(), 1000);
    let sets = |count: usize| "*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$1\r\nv\r\n".repeat(count);
    node.feed(id, sets(100).as_bytes(), 1000);
    for turn in 1..=20 {
        let done = node.session_state(id).unwrap().output.len() / "+OK\r\n".len();
        assert_eq!(done, turn * 5, "as many in each turn as go into 200 µs, and one more");
        assert_eq!(node.tick(1000), turn < 19);
    }
}

#[test]
fn a_session_held_up_by_its_output_goes_on_when_that_has_been_sent() {
    let (input, expected) = (pipeline(2000), replies(2000));
    let settings = Settings { output_backlog_max: 100, ..Settings::default() };
    let mut node = node(settings);
    let id = node.open(Peer::default(), 1000);
    let mut output = Vec::new();
    for piece in input.chunks(999) {
        node.feed(id, piece, 1000);
    }
    loop {
        let taken = node.session_state(id).unwrap().output.take();
        let len = taken.len();
        if len == 0 {
            break;
        }
        assert!(len < 200, "{len} bytes of output at once");
        output.extend_from_slice(&taken.buf);
        node.output_taken(id, len);
        node.sent(id, len, 1000);
    }
    assert!(output == expected, "{} bytes of {}", output.len(), expected.len());
    assert!(!node.session_state(id).unwrap().owes);
}

#[test]
fn what_is_sent_away_unanswered_is_bounded_in_bytes() {
    let settings = Settings::default();
    let config = NodeConfig {
        me: ShardId(0),
        shards: 2,
        seed: 1,
        settings,
        ticks: Ticks::STOPPED,
        faults: Faults::default(),
    };
    let [mut near, mut far] = [0, 1].map(|me| Node::new(NodeConfig { me: ShardId(me), ..config.clone() }));
    let key = (0..).map(|i| format!("k{i}")).find(|key| slot_of(key.as_bytes()).0 >= 8192).unwrap();
    let value = "v".repeat(20_000);
    let set = format!("*3\r\n$3\r\nSET\r\n${}\r\n{key}\r\n$20000\r\n{value}\r\n", key.len());
    let id = near.open(Peer::default(), 1000);
    let mut sent = 0;
    while near.session_state(id).unwrap().read {
        near.feed(id, set.as_bytes(), 1000);
        sent += 1;
        assert!(sent < 300, "the other shard answers nothing, and the client is still read from");
    }
    let (mut answered, mut rounds) = (0, 0);
    while answered < sent {
        far.receive(ShardId(0), near.take_outbox(ShardId(1)).unwrap(), 1000);
        near.receive(ShardId(1), far.take_outbox(ShardId(0)).unwrap(), 1000);
        answered += near.session_state(id).unwrap().output.take().len() / "+OK\r\n".len();
        rounds += 1;
    }
    assert_eq!((answered, rounds), (sent, 2));
    assert!(near.session_state(id).unwrap().read);
}
