//! Commands that wait, on engines in this thread, message by message: what a run against a server meets too seldom.

mod common;

use common::nodes;
use corelane_engine::{Node, Peer, SessionId, ShardId, slot_of};
use corelane_resp::{Frame, decode, encode_command};

const NOW: u64 = 1_700_000_000_000;

/// A key of each of two shards.
fn keys() -> [String; 2] {
    let on = |upper: bool| {
        let fits = |key: &String| (slot_of(key.as_bytes()).0 >= 8192) == upper;
        (0..).map(|number| format!("key:{number}")).find(fits).expect("there is one")
    };
    [on(false), on(true)]
}

fn say(node: &mut Node, session: SessionId, line: &str) {
    let mut bytes = Vec::new();
    encode_command(&mut bytes, &line.split(' ').collect::<Vec<_>>());
    node.feed(session, &bytes, NOW);
}

fn hear(node: &mut Node, session: SessionId) -> Vec<Frame> {
    let output = node.session_state(session).expect("it is connected").output.take();
    let bytes = output.slices().collect::<Vec<_>>().concat();
    let (mut frames, mut at) = (Vec::new(), 0);
    while let Some((frame, len)) = decode(&bytes[at..]).expect("replies") {
        frames.push(frame);
        at += len;
    }
    frames
}

/// Brings batches from shard to shard, but to and from those that are `dead`; true if there were any.
fn carry(nodes: &mut [Node], dead: &[u16]) -> bool {
    let (shards, mut any) = (nodes.len() as u16, false);
    for (from, to) in (0..shards).flat_map(|from| (0..shards).map(move |to| (from, to))) {
        if dead.contains(&from) || dead.contains(&to) {
            continue;
        }
        if let Some(batch) = nodes[usize::from(from)].take_outbox(ShardId(to)) {
            nodes[usize::from(to)].receive(ShardId(from), batch, NOW);
            any = true;
        }
    }
    any
}

fn settle(nodes: &mut [Node]) {
    while carry(nodes, &[]) | nodes.iter_mut().fold(false, |more, node| node.tick(NOW) | more) {}
}

fn pair(key: &str, element: &str) -> Frame {
    Frame::Array(vec![
        Frame::Bulk(key.as_bytes().to_vec().into()),
        Frame::Bulk(element.as_bytes().to_vec().into()),
    ])
}

/// A client that had gone was served by its own shard, which had not got its own note of that: the element was lost.
#[test]
fn who_has_gone_is_not_served_by_the_next_command() {
    let mut nodes = nodes(1);
    let (gone, other) = (nodes[0].open(Peer::default(), NOW), nodes[0].open(Peer::default(), NOW));
    say(&mut nodes[0], gone, "BLPOP k 0");
    nodes[0].close(gone);
    say(&mut nodes[0], other, "RPUSH k x");
    say(&mut nodes[0], other, "LLEN k");
    assert_eq!(hear(&mut nodes[0], other), [Frame::Int(1), Frame::Int(1)]);
}

/// A transaction that made two keys was seen by half: whoever waited for both got the second one's element.
#[test]
fn who_waits_for_several_keys_sees_whole_transactions() {
    let [a, b] = keys();
    for home in [0, 1] {
        let mut nodes = nodes(2);
        let (waiter, pusher) = (nodes[home].open(Peer::default(), NOW), nodes[1].open(Peer::default(), NOW));
        say(&mut nodes[home], waiter, &format!("BLPOP {a} {b} 0"));
        settle(&mut nodes);
        for line in
            ["MULTI".to_owned(), format!("RPUSH {b} second"), format!("RPUSH {a} first"), "EXEC".to_owned()]
        {
            say(&mut nodes[1], pusher, &line);
        }
        // The shard of the second key is always ahead of the other.
        for _ in 0..20 {
            nodes[1].tick(NOW);
            if let Some(batch) = nodes[0].take_outbox(ShardId(1)) {
                nodes[1].receive(ShardId(0), batch, NOW);
            }
            nodes[1].tick(NOW);
            if let Some(batch) = nodes[1].take_outbox(ShardId(0)) {
                nodes[0].receive(ShardId(1), batch, NOW);
            }
        }
        settle(&mut nodes);
        assert_eq!(hear(&mut nodes[home], waiter), [pair(&a, "first")]);
    }
}

/// Such a client was closed after `timeout`, or when its peer had said that it would send no more.
#[test]
fn who_waits_for_another_shard_is_owed_an_answer() {
    let [here, there] = keys();
    for (line, owed) in [
        (format!("GET {here}"), false),
        (format!("GET {there}"), true),
        (format!("MGET {here} {there}"), true),
    ] {
        let mut nodes = nodes(2);
        let client = nodes[0].open(Peer::default(), NOW);
        say(&mut nodes[0], client, &line);
        assert_eq!((nodes[0].owes(client), nodes[0].may_be_silent(client)), (owed, false), "{line}");
        settle(&mut nodes);
        assert!(!nodes[0].owes(client), "{line}");
    }
}

/// Its connection stayed for ten seconds: nothing was to be sent, so nobody looked.
#[test]
fn the_end_of_what_is_owed_is_told_even_if_the_client_wants_no_replies() {
    let [here, there] = keys();
    for line in [format!("GET {there}"), format!("MGET {here} {there}"), "DBSIZE".to_owned()] {
        let mut nodes = nodes(2);
        let client = nodes[0].open(Peer::default(), NOW);
        say(&mut nodes[0], client, "CLIENT REPLY OFF");
        say(&mut nodes[0], client, &line);
        assert!(hear(&mut nodes[0], client).is_empty() && nodes[0].owes(client), "{line}");
        nodes[0].note_ending(client);
        nodes[0].take_dirty(&mut Vec::new());
        settle(&mut nodes);
        let mut news = Vec::new();
        nodes[0].take_dirty(&mut news);
        assert!(news.contains(&client) && !nodes[0].owes(client), "{line}");
    }
}

#[test]
fn a_failed_shard_is_not_waited_for_and_its_clients_are_not_served() {
    let [a, b] = keys();
    let mut nodes = nodes(2);
    let lost = Frame::Error("SHARDFAILED a shard that this command needs has failed".into());
    let of_failed = nodes[1].open(Peer::default(), NOW);
    say(&mut nodes[1], of_failed, &format!("BLPOP {a} 0"));
    settle(&mut nodes);
    let clients: Vec<SessionId> = (0..4).map(|_| nodes[0].open(Peer::default(), NOW)).collect();
    let [on_both, on_failed, here, pusher] = clients[..] else { unreachable!("there are four") };
    say(&mut nodes[0], on_both, &format!("BLPOP {a} {b} 0"));
    say(&mut nodes[0], on_failed, &format!("BLMOVE {b} {a} LEFT LEFT 0"));
    settle(&mut nodes);
    say(&mut nodes[0], here, &format!("BLPOP {a} 0"));
    // The element is offered to the other shard's client, whose shard will never answer.
    say(&mut nodes[0], pusher, &format!("RPUSH {a} x"));
    carry(&mut nodes, &[1]);
    assert_eq!(hear(&mut nodes[0], pusher), [Frame::Int(1)]);
    assert_eq!(hear(&mut nodes[0], here), []);
    nodes[0].shard_failed(ShardId(1), NOW);
    assert_eq!(hear(&mut nodes[0], on_both), std::slice::from_ref(&lost));
    assert_eq!(hear(&mut nodes[0], on_failed), std::slice::from_ref(&lost));
    assert_eq!(hear(&mut nodes[0], here), [pair(&a, "x")]);
    // And nobody can begin to.
    say(&mut nodes[0], on_both, &format!("BLPOP {a} {b} 0"));
    say(&mut nodes[0], pusher, &format!("RPUSH {a} y"));
    say(&mut nodes[0], pusher, &format!("LPOP {a}"));
    assert_eq!(hear(&mut nodes[0], on_both), [lost]);
    assert_eq!(hear(&mut nodes[0], pusher), [Frame::Int(1), Frame::Bulk(b"y".to_vec().into())]);
}

/// A shard may fail between the granting of a claim and its answer.
#[test]
fn a_client_being_served_by_a_shard_that_fails_is_told() {
    let [_, b] = keys();
    let mut nodes = nodes(2);
    let (waiter, pusher) = (nodes[0].open(Peer::default(), NOW), nodes[1].open(Peer::default(), NOW));
    say(&mut nodes[0], waiter, &format!("BLPOP {b} 0"));
    settle(&mut nodes);
    say(&mut nodes[1], pusher, &format!("RPUSH {b} x"));
    let claim = nodes[1].take_outbox(ShardId(0)).expect("a claim");
    nodes[0].receive(ShardId(1), claim, NOW);
    nodes[0].shard_failed(ShardId(1), NOW);
    let [Frame::Error(text)] = &hear(&mut nodes[0], waiter)[..] else { panic!("no error") };
    assert!(text.starts_with(b"SHARDFAILED"));
    say(&mut nodes[0], waiter, "PING");
    assert_eq!(hear(&mut nodes[0], waiter).len(), 1);
}

#[test]
fn many_are_served_in_bounded_turns_and_nobody_gets_between() {
    let mut nodes = nodes(1);
    let node = &mut nodes[0];
    let waiters: Vec<SessionId> = (0..1000).map(|_| node.open(Peer::default(), NOW)).collect();
    waiters.iter().for_each(|waiter| say(node, *waiter, "BLPOP k 0"));
    let (pusher, other) = (node.open(Peer::default(), NOW), node.open(Peer::default(), NOW));
    let elements: Vec<String> = (0..1001).map(|number| number.to_string()).collect();
    say(node, pusher, &format!("RPUSH k {}", elements.join(" ")));
    say(node, other, "LPOP k");
    assert_eq!(hear(node, pusher), [Frame::Int(1001)]);
    let answered = |node: &mut Node, from: &mut usize| {
        let before = *from;
        while *from < waiters.len()
            && let [reply] = &hear(node, waiters[*from])[..]
        {
            assert_eq!(*reply, pair("k", &from.to_string()));
            *from += 1;
        }
        *from - before
    };
    let (mut from, mut turns, mut more) = (0, 0, true);
    while more {
        let served = answered(node, &mut from);
        assert!(served <= 256, "{served} in one turn");
        assert_eq!(hear(node, other), [], "it has got between");
        more = node.tick(NOW);
        turns += 1;
    }
    answered(node, &mut from);
    assert_eq!(from, waiters.len());
    assert!(turns > 3, "{turns} turns");
    assert_eq!(hear(node, other), [Frame::Bulk(b"1000".to_vec().into())]);
}
