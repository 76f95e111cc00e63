//! Calls of an embedding program on nodes in this thread: what they wait for, and what a failed shard does to them.

mod common;

use bytes::Bytes;
use common::nodes;
use corelane_engine::{Called, Calls, Node, Peer, Route, Router, SessionId, ShardId};
use corelane_resp::{Frame, Frames, Reply};

const NOW: u64 = 1_700_000_000_000;

/// Brings all batches to their shards once; true if there were any. What is for a shard in `dead` is lost.
fn carry(nodes: &mut [Node], dead: &[u16]) -> bool {
    let mut any = false;
    for from in 0..nodes.len() {
        for to in 0..nodes.len() {
            let Some(batch) = nodes[from].take_outbox(ShardId(to as u16)) else { continue };
            any = true;
            if !dead.contains(&(to as u16)) && !dead.contains(&(from as u16)) {
                nodes[to].receive(ShardId(from as u16), batch, NOW);
            }
        }
    }
    any
}

fn calls(commands: &[&str]) -> Calls {
    let mut calls = Calls::new(0);
    for command in commands {
        command.split(' ').for_each(|word| calls.word(word.as_bytes()));
        calls.end();
    }
    calls
}

fn frames(reply: Reply) -> Vec<Frame> {
    let mut frames = Frames::new(reply);
    std::iter::from_fn(|| frames.next().expect("a reply")).collect()
}

fn bulk(text: &'static str) -> Frame {
    Frame::Bulk(text.into())
}

fn answers(node: &mut Node) -> Vec<(SessionId, Vec<Frame>)> {
    let mut into = Vec::new();
    node.take_answers(&mut into);
    into.into_iter().map(|(id, reply)| (id, frames(reply))).collect()
}

fn later(called: Called) -> SessionId {
    match called {
        Called::Later(id) => id,
        Called::Done(reply) => panic!("it had to wait: {:?}", frames(reply)),
    }
}

fn done(called: Called) -> Vec<Frame> {
    match called {
        Called::Done(reply) => frames(reply),
        Called::Later(_) => panic!("it had nothing to wait for"),
    }
}

/// Two keys, the first on shard 0, the other on shard 1.
fn keys() -> [String; 2] {
    let router = Router::new(2);
    [0, 1].map(|shard| {
        let key = (0..).map(|n| format!("k{n}")).find(|key| router.owner(key.as_bytes()) == ShardId(shard));
        key.expect("every shard owns keys")
    })
}

#[test]
fn the_router_sends_commands_where_their_keys_are() {
    let router = Router::new(2);
    let [a, b] = keys();
    let route = |command: &str| router.route(calls(&[command]).args(0));
    assert_eq!(route(&format!("GET {b}")), Ok(Route::Shard(ShardId(1))));
    assert_eq!(route(&format!("MGET {b} {b}")), Ok(Route::Shard(ShardId(1))));
    assert_eq!(route(&format!("MGET {b} {a}")), Ok(Route::Several(ShardId(1))));
    assert_eq!(route("DBSIZE"), Ok(Route::Several(ShardId(0))));
    assert_eq!(route("PING"), Ok(Route::Any));
    assert!(route("SELECT 1").is_err() && route("GET").is_err() && route("NOSUCH").is_err());
}

#[test]
fn commands_behind_one_over_several_shards_wait_for_it() {
    let mut nodes = nodes(2);
    let [a, b] = keys();
    let commands = [
        format!("SET {a} 1"),
        format!("MSET {a} 2 {b} 2"),
        format!("INCR {a}"),
        format!("MGET {a} {b}"),
        format!("GET {a}"),
    ];
    let id = later(nodes[0].call(calls(&commands.each_ref().map(|command| command.as_str())), NOW));
    assert_eq!(answers(&mut nodes[0]), []);
    while carry(&mut nodes, &[]) {}
    let ok = Frame::Simple("OK".into());
    let both = Frame::Array(vec![bulk("3"), bulk("2")]);
    assert_eq!(answers(&mut nodes[0]), [(id, vec![ok.clone(), ok, Frame::Int(3), both, bulk("3")])]);
    assert_eq!(answers(&mut nodes[0]), []);
    assert_eq!(nodes[0].connections(), 0, "no client sees them");
    assert_eq!(
        done(nodes[0].call(calls(&["CLIENT LIST"]), NOW).or_carried(&mut nodes)),
        [Frame::Verbatim { format: *b"txt", text: "".into() }]
    );
}

/// For calls that may have to wait for the other node.
trait OrCarried {
    fn or_carried(self, nodes: &mut [Node]) -> Called;
}

impl OrCarried for Called {
    fn or_carried(self, nodes: &mut [Node]) -> Called {
        let Self::Later(_) = self else { return self };
        while carry(nodes, &[]) {}
        let mut into = Vec::new();
        nodes[0].take_answers(&mut into);
        Self::Done(into.pop().expect("an answer").1)
    }
}

#[test]
fn a_task_waits_for_intents_and_others_wait_for_it() {
    let mut nodes = nodes(2);
    let [a, b] = keys();
    later(nodes[1].call(calls(&[&format!("MSET {a} 1 {b} 1")]), NOW));
    // The announcement reaches shard 0, which holds an intent on `a` from now on.
    let batch = nodes[1].take_outbox(ShardId(0)).expect("an announcement");
    nodes[0].receive(ShardId(1), batch, NOW);
    let (key, seen) = (a.clone(), std::sync::mpsc::channel());
    let task = move |keys: &mut corelane_engine::Local<'_>| {
        seen.0.send(keys.get(key.as_bytes())).expect("the test listens");
    };
    nodes[0].visit(0, Box::new(task), NOW);
    assert!(seen.1.try_recv().is_err(), "it waits");
    let id = later(nodes[0].call(calls(&[&format!("INCR {a}")]), NOW));
    while carry(&mut nodes, &[]) {}
    assert_eq!(seen.1.try_recv(), Ok(Ok(Some("1".into()))));
    assert_eq!(answers(&mut nodes[0]), [(id, vec![Frame::Int(2)])]);
}

#[test]
fn a_failed_shard_is_waited_for_no_longer() {
    let mut nodes = nodes(2);
    let [a, b] = keys();
    let wide = later(nodes[0].call(calls(&[&format!("MGET {a} {b}")]), NOW));
    // A client whose reply would come from there.
    let client = nodes[0].open(Peer::default(), NOW);
    nodes[0].feed(client, format!("GET {b}\r\n").as_bytes(), NOW);
    let other = nodes[0].open(Peer::default(), NOW);
    carry(&mut nodes, &[1]);
    nodes[0].shard_failed(ShardId(1), NOW);
    let lost = Frame::Error("SHARDFAILED a shard that this command needs has failed".into());
    assert_eq!(answers(&mut nodes[0]), [(wide, vec![lost.clone()])]);
    assert!(nodes[0].session_state(client).expect("until the runtime closes it").close.is_some());
    assert!(nodes[0].session_state(other).expect("it is owed nothing").close.is_none());
    let needs_it =
        [format!("GET {b}"), format!("MSET {a} 1 {b} 1"), "DBSIZE".to_owned(), format!("INCR {a}")];
    let needs_it = calls(&needs_it.each_ref().map(|command| command.as_str()));
    assert_eq!(done(nodes[0].call(needs_it, NOW)), [lost.clone(), lost.clone(), lost, Frame::Int(1)]);
    assert!(nodes[0].take_outbox(ShardId(1)).is_none(), "nothing is kept for it");
}

#[test]
fn what_a_failed_shard_held_is_let_go() {
    let mut nodes = nodes(2);
    let [a, b] = keys();
    later(nodes[1].call(calls(&[&format!("MSET {a} 1 {b} 1")]), NOW));
    let batch = nodes[1].take_outbox(ShardId(0)).expect("an announcement");
    nodes[0].receive(ShardId(1), batch, NOW);
    let id = later(nodes[0].call(calls(&[&format!("INCR {a}")]), NOW));
    nodes[0].shard_failed(ShardId(1), NOW);
    assert_eq!(answers(&mut nodes[0]), [(id, vec![Frame::Int(1)])]);
    assert_eq!(done(nodes[0].call(calls(&[&format!("INCR {a}")]), NOW)), [Frame::Int(2)]);
}

/// The answer to calls that are run in pieces.
fn run_on(node: &mut Node, id: SessionId) -> Vec<Frame> {
    let mut turns = 0;
    loop {
        node.tick(NOW + turns);
        if let Some((answered, frames)) = answers(node).pop() {
            assert_eq!(answered, id);
            return frames;
        }
        turns += 1;
        assert!(turns < 1000, "in vain");
    }
}

#[test]
fn calls_that_wait_keep_their_long_words_uncopied_and_have_no_limit_of_input() {
    let ok = Frame::Simple("OK".into());
    let value = Bytes::from(vec![b'x'; 20 << 10]);
    for pause in [false, true] {
        let node = &mut nodes(1)[0];
        done(node.call(calls(&["CONFIG SET client-query-buffer-limit 1048576"]), NOW));
        if pause {
            done(node.call(calls(&["CLIENT PAUSE 100000 WRITE"]), NOW));
        }
        let mut many = Calls::new(0);
        for n in 0..700 {
            many.word(b"SET");
            many.word(format!("k{n}").as_bytes());
            many.shared(value.clone());
            many.end();
        }
        let id = later(node.call(many, NOW));
        if pause {
            node.tick(NOW);
            assert_eq!(answers(node), []);
            done(node.call(calls(&["CLIENT UNPAUSE"]), NOW));
        }
        assert_eq!(run_on(node, id), vec![ok.clone(); 700]);
        for key in ["k0", "k256", "k699"] {
            let [Frame::Bulk(got)] = &done(node.call(calls(&[&format!("GET {key}")]), NOW))[..] else {
                panic!("{key} is a string")
            };
            assert_eq!((got, got.as_ptr()), (&value, value.as_ptr()), "{key} is a copy");
        }
    }
}

#[test]
fn a_word_over_the_present_limit_is_an_error_of_its_command() {
    let node = &mut nodes(1)[0];
    let too_long = Frame::Error("ERR string exceeds maximum allowed size (proto-max-bulk-len)".into());
    let long = "x".repeat((1 << 20) + 1);
    let set = format!("SET a {long}");
    let ok = Frame::Simple("OK".into());
    done(node.call(calls(&["CONFIG SET proto-max-bulk-len 1mb"]), NOW));
    let both = calls(&["SET a 1", &set, &format!("SET {long} 1"), "GET a"]);
    assert_eq!(done(node.call(both, NOW)), [ok.clone(), too_long.clone(), too_long, bulk("1")]);
    done(node.call(calls(&["CONFIG SET proto-max-bulk-len 2mb"]), NOW));
    assert_eq!(done(node.call(calls(&[&set, "STRLEN a"]), NOW)), [ok, Frame::Int((1 << 20) + 1)]);
}

#[test]
fn large_calls_are_logged_by_their_own_length() {
    let node = &mut nodes(1)[0];
    done(node.call(calls(&["CONFIG SET commandlog-request-larger-than 1000"]), NOW));
    let long = format!("SET a {}", "x".repeat(1000));
    done(node.call(calls(&["SET b 1", &long, "SET c 1"]), NOW));
    assert_eq!(done(node.call(calls(&["COMMANDLOG LEN large-request"]), NOW)), [Frame::Int(1)]);
}
