//! Replies byte for byte, in both protocols, as Valkey 9.1 writes them.

use bytes::Bytes;
use corelane_resp::{Frame, Mark, Proto, Reply, SPLICE_LEN_MIN, decode};
use proptest::prelude::*;

/// All bytes in the order in which they are sent.
fn sent(reply: &Reply) -> Vec<u8> {
    let bytes: Vec<u8> = reply.slices().flatten().copied().collect();
    assert_eq!(bytes.len(), reply.len());
    assert_eq!(bytes.is_empty(), reply.is_empty());
    assert!(reply.slices().all(|piece| !piece.is_empty()));
    bytes
}

#[track_caller]
fn check(write: impl Fn(&mut Reply), resp2: &str, resp3: &str) {
    for (proto, expected) in [(Proto::Resp2, resp2), (Proto::Resp3, resp3)] {
        let mut reply = Reply::new(proto);
        write(&mut reply);
        assert_eq!(String::from_utf8_lossy(&sent(&reply)), expected, "{proto:?}");
    }
}

#[test]
fn what_both_protocols_share() {
    let same = |write: fn(&mut Reply), expected| check(write, expected, expected);
    same(Reply::ok, "+OK\r\n");
    same(|reply| reply.simple("QUEUED"), "+QUEUED\r\n");
    same(|reply| reply.error("ERR no"), "-ERR no\r\n");
    same(|reply| reply.error("ERR a\r\nb\n"), "-ERR a  b\r\n");
    same(|reply| reply.error_bytes(b"\r\n"), "-\r\n");
    same(|reply| reply.bulk(b""), "$0\r\n\r\n");
    same(|reply| reply.bulk(b"a\r\nb"), "$4\r\na\r\nb\r\n");
    same(|reply| reply.bulk_shared(Bytes::from_static(b"abc")), "$3\r\nabc\r\n");
    same(|reply| reply.raw(b"+raw\r\n"), "+raw\r\n");
    for count in [0, 1, 9, 10, 99, 100, 12345] {
        check(|reply| reply.array(count), &format!("*{count}\r\n"), &format!("*{count}\r\n"));
        let text = "x".repeat(count);
        let bulk = format!("${count}\r\n{text}\r\n");
        check(|reply| reply.bulk(text.as_bytes()), &bulk, &bulk);
    }
    for value in [0, 1, 9, 10, 42, 99, 100, 1000, -1, -9, -10, -100, i64::MIN, i64::MAX] {
        check(|reply| reply.int(value), &format!(":{value}\r\n"), &format!(":{value}\r\n"));
    }
}

#[test]
fn what_the_protocols_write_differently() {
    check(Reply::null, "$-1\r\n", "_\r\n");
    check(Reply::null_array, "*-1\r\n", "_\r\n");
    check(|reply| reply.map(2), "*4\r\n", "%2\r\n");
    check(|reply| reply.set(2), "*2\r\n", "~2\r\n");
    check(|reply| reply.push(3), "*3\r\n", ">3\r\n");
    check(|reply| reply.bool(true), ":1\r\n", "#t\r\n");
    check(|reply| reply.bool(false), ":0\r\n", "#f\r\n");
    check(|reply| reply.verbatim("mkd", "a"), "$1\r\na\r\n", "=5\r\nmkd:a\r\n");
    check(|reply| reply.bignum("-123"), "$4\r\n-123\r\n", "(-123\r\n");
}

#[test]
fn doubles() {
    for (value, text) in [
        (0.1, "0.1"),
        (3.0, "3"),
        (-0.0, "-0"),
        (1e20, "1e+20"),
        (1e21, "1e+21"),
        (1e-7, "1e-7"),
        (123_456_789_012_345_680.0, "123456789012345680"),
        (1.0 / 3.0, "0.3333333333333333"),
        (f64::INFINITY, "inf"),
        (f64::NEG_INFINITY, "-inf"),
        (f64::NAN, "nan"),
    ] {
        check(
            |reply| reply.double(value),
            &format!("${}\r\n{text}\r\n", text.len()),
            &format!(",{text}\r\n"),
        );
    }
}

#[test]
fn large_payloads_are_not_copied() {
    let payload = Bytes::from(vec![b'x'; SPLICE_LEN_MIN]);
    let mut reply = Reply::default();
    reply.ok();
    reply.bulk_shared(payload.clone());
    reply.bulk_shared(payload.slice(1..));
    assert_eq!(reply.splices().len(), 1);
    assert_eq!(reply.splices()[0].at, 5 + 8);
    assert_eq!(reply.splices()[0].bytes.as_ptr(), payload.as_ptr());
    let expected = [&b"+OK\r\n$16384\r\n"[..], &payload, b"\r\n$16383\r\n", &payload[1..], b"\r\n"].concat();
    assert_eq!(sent(&reply), expected);
    reply.clear();
    assert!(sent(&reply).is_empty());
}

#[test]
fn sealing_moves_what_is_large() {
    let payload = Bytes::from(vec![b'x'; SPLICE_LEN_MIN]);
    let mut reply = Reply::new(Proto::Resp3);
    reply.bulk(b"small");
    reply.seal();
    assert!(reply.splices().is_empty());
    reply.bulk_shared(payload.clone());
    reply.bulk_shared(payload);
    reply.bulk(&[b'y'; 64 << 10]);
    let (before, at) = (sent(&reply), reply.buf.as_ptr());
    reply.seal();
    assert!(reply.buf.is_empty());
    assert_eq!(reply.splices()[0].bytes.as_ptr(), at);
    reply.null();
    assert_eq!(sent(&reply), [&before[..], b"_\r\n"].concat());
}

#[test]
fn sealing_what_is_new_leaves_marks_alone() {
    let (mut reply, mut marks, mut expected) = (Reply::default(), vec![Mark::default()], Vec::new());
    for len in [70_000, 10, 30_000, 40_000, 65_536, 100, 1, 65_536] {
        let since = reply.mark();
        reply.bulk(&vec![b'x'; len]);
        reply.seal_since(since);
        marks.push(reply.mark());
        expected.push([format!("${len}\r\n").as_bytes(), &vec![b'x'; len], b"\r\n"].concat());
    }
    assert_eq!(reply.splices().len(), 3);
    assert_eq!(sent(&reply), expected.concat());
    for (between, expected) in marks.windows(2).zip(&expected) {
        let mut part = Reply::default();
        part.append_range(&reply, between[0], between[1]);
        assert_eq!(&sent(&part), expected);
    }
}

#[test]
fn taking_leaves_an_empty_reply_of_the_same_protocol() {
    let mut reply = Reply::new(Proto::Resp3);
    reply.ok();
    let taken = reply.take();
    assert_eq!((sent(&taken), taken.proto()), (b"+OK\r\n".to_vec(), Proto::Resp3));
    assert!(reply.is_empty());
    assert_eq!(reply.proto(), Proto::Resp3);
    reply.set_proto(Proto::Resp2);
    reply.null();
    assert_eq!(sent(&reply), b"$-1\r\n");
}

/// One thing to do to a reply under construction.
#[derive(Clone, Debug)]
enum Act {
    Bulk(usize),
    Shared(usize),
    Int(i64),
    Append(Vec<Self>),
    Seal,
}

/// Does it, and writes the plain bytes of the same to `model`.
fn act(action: &Act, reply: &mut Reply, model: &mut Vec<u8>) {
    let bulk = |len: usize| [format!("${len}\r\n").into_bytes(), vec![b'z'; len], b"\r\n".to_vec()].concat();
    match action {
        Act::Bulk(len) => {
            reply.bulk(&vec![b'z'; *len]);
            model.extend(bulk(*len));
        }
        Act::Shared(len) => {
            reply.bulk_shared(Bytes::from(vec![b'z'; *len]));
            model.extend(bulk(*len));
        }
        Act::Int(value) => {
            reply.int(*value);
            model.extend(format!(":{value}\r\n").into_bytes());
        }
        Act::Append(actions) => {
            let mut other = Reply::default();
            actions.iter().for_each(|action| act(action, &mut other, model));
            reply.append(&mut other);
            assert!(other.is_empty() && other.slices().next().is_none());
        }
        Act::Seal => reply.seal(),
    }
}

fn any_act() -> impl Strategy<Value = Act> {
    let len = prop_oneof![0..200_usize, SPLICE_LEN_MIN - 2..SPLICE_LEN_MIN + 2, Just(70_000)];
    let leaf = prop_oneof![
        len.clone().prop_map(Act::Bulk),
        len.prop_map(Act::Shared),
        any::<i64>().prop_map(Act::Int),
        Just(Act::Seal),
    ];
    leaf.prop_recursive(2, 20, 5, |inner| prop::collection::vec(inner, 0..5).prop_map(Act::Append))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 100, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn bytes_stay_in_order(actions in prop::collection::vec(any_act(), 0..10)) {
        let (mut reply, mut model) = (Reply::default(), Vec::new());
        actions.iter().for_each(|action| act(action, &mut reply, &mut model));
        prop_assert!(sent(&reply) == model);
    }

    #[test]
    fn marks_divide(head in prop::collection::vec(any_act(), 0..5), tail in prop::collection::vec(any_act(), 0..5)) {
        let unsealed = |actions: Vec<Act>| {
            let keep = |action: &Act| !matches!(action, Act::Seal | Act::Append(_));
            actions.into_iter().filter(keep).collect::<Vec<_>>()
        };
        let (mut reply, mut first, mut second) = (Reply::default(), Vec::new(), Vec::new());
        unsealed(head).iter().for_each(|action| act(action, &mut reply, &mut first));
        let mark = reply.mark();
        let splices = reply.splices().len();
        unsealed(tail).iter().for_each(|action| act(action, &mut reply, &mut second));
        prop_assert_eq!(reply.has_splices_since(mark), reply.splices().len() > splices);
        let (mut front, mut back) = (Reply::default(), Reply::default());
        back.append_range(&reply, mark, reply.mark());
        front.append_range(&reply, Mark::default(), mark);
        prop_assert!(sent(&front) == first && sent(&back) == second);
        let rest = reply.split_off(mark);
        prop_assert!(sent(&reply) == first && sent(&rest) == second);
    }

    #[test]
    fn doubles_read_back_as_they_were(bits in any::<u64>()) {
        let value = f64::from_bits(bits);
        let mut reply = Reply::new(Proto::Resp3);
        reply.double(value);
        let Ok(Some((Frame::Double(read), _))) = decode(&reply.buf) else {
            return Err(TestCaseError::fail(reply.buf.escape_ascii().to_string()));
        };
        prop_assert!(read.to_bits() == bits || (read.is_nan() && value.is_nan()));
    }
}

#[test]
fn doubles_at_the_edges_read_back() {
    for value in [
        f64::MAX,
        f64::MIN,
        f64::MIN_POSITIVE,
        f64::from_bits(1),
        f64::from_bits((1 << 52) - 1),
        2_f64.powi(62),
    ] {
        let mut reply = Reply::new(Proto::Resp3);
        reply.double(value);
        let used = reply.buf.len();
        assert_eq!(decode(&reply.buf), Ok(Some((Frame::Double(value), used))));
    }
}
