//! The client's side: what each reply decodes to, what is refused, and that both decoders agree on it.

use bytes::Bytes;
use corelane_resp::{DecodeError, Frame, decode, encode_command, frame_len};

fn bulk(text: &'static str) -> Frame {
    Frame::Bulk(Bytes::from_static(text.as_bytes()))
}

#[track_caller]
fn check(input: &str, frame: Frame) {
    assert_eq!(decode(input.as_bytes()), Ok(Some((frame, input.len()))));
    assert_eq!(frame_len(input.as_bytes()), Ok(Some(input.len())));
    let longer = format!("{input}+next\r\n");
    assert_eq!(frame_len(longer.as_bytes()), Ok(Some(input.len())));
    for end in 0..input.len() {
        assert_eq!(decode(&input.as_bytes()[..end]), Ok(None), "cut at {end}");
    }
}

#[track_caller]
fn refuse(input: &str, error: DecodeError) {
    assert_eq!(decode(input.as_bytes()), Err(error));
    assert_eq!(frame_len(input.as_bytes()), Err(error));
}

#[test]
fn leaves() {
    check("+OK\r\n", Frame::Simple("OK".into()));
    check("+\r\n", Frame::Simple("".into()));
    check("-ERR no\r\n", Frame::Error("ERR no".into()));
    check("!6\r\nERR\r\na\r\n", Frame::Error("ERR\r\na".into()));
    check(":0\r\n", Frame::Int(0));
    check(":-9223372036854775808\r\n", Frame::Int(i64::MIN));
    check(":1234567890\r\n", Frame::Int(1_234_567_890));
    check("$0\r\n\r\n", bulk(""));
    check("$4\r\na\r\nb\r\n", bulk("a\r\nb"));
    check("$-1\r\n", Frame::Null);
    check("*-1\r\n", Frame::Null);
    check("_\r\n", Frame::Null);
    check("#t\r\n", Frame::Bool(true));
    check("#f\r\n", Frame::Bool(false));
    check(",1.5\r\n", Frame::Double(1.5));
    check(",1e+20\r\n", Frame::Double(1e20));
    check(",-inf\r\n", Frame::Double(f64::NEG_INFINITY));
    check(",inf\r\n", Frame::Double(f64::INFINITY));
    check("(-12345678901234567890\r\n", Frame::BigNumber("-12345678901234567890".into()));
    check("=7\r\ntxt:a\nb\r\n", Frame::Verbatim { format: *b"txt", text: "a\nb".into() });
}

#[test]
fn aggregates() {
    check("*0\r\n", Frame::Array(vec![]));
    check("*2\r\n:1\r\n$1\r\na\r\n", Frame::Array(vec![Frame::Int(1), bulk("a")]));
    check("%0\r\n", Frame::Map(vec![]));
    check(
        "%1\r\n+k\r\n*1\r\n_\r\n",
        Frame::Map(vec![(Frame::Simple("k".into()), Frame::Array(vec![Frame::Null]))]),
    );
    check("~1\r\n#t\r\n", Frame::Set(vec![Frame::Bool(true)]));
    check(">2\r\n+a\r\n+b\r\n", Frame::Push(vec![Frame::Simple("a".into()), Frame::Simple("b".into())]));
    check(
        "|1\r\n+ttl\r\n:3\r\n*2\r\n*0\r\n:7\r\n",
        Frame::Attribute(
            vec![(Frame::Simple("ttl".into()), Frame::Int(3))],
            Box::new(Frame::Array(vec![Frame::Array(vec![]), Frame::Int(7)])),
        ),
    );
    check("|0\r\n_\r\n", Frame::Attribute(vec![], Box::new(Frame::Null)));
}

#[test]
fn nan_is_a_double() {
    let decoded = decode(b",nan\r\n");
    assert!(matches!(decoded, Ok(Some((Frame::Double(value), 6))) if value.is_nan()));
}

#[test]
fn broken_replies() {
    refuse("x", DecodeError::Kind(b'x'));
    refuse("\r\n", DecodeError::Kind(b'\r'));
    refuse("*1\r\n\n", DecodeError::Kind(b'\n'));
    refuse("+OK\rx", DecodeError::LineEnd);
    refuse("$1\r\nabc", DecodeError::LineEnd);
    refuse("$1\r\na\rx", DecodeError::LineEnd);
    for value in [
        ":\r\n",
        ":x\r\n",
        ":9223372036854775808\r\n",
        "_x\r\n",
        "#x\r\n",
        ",\r\n",
        ",infinity\r\n",
        ",0x1\r\n",
    ] {
        refuse(value, DecodeError::Value);
    }
    for value in ["(\r\n", "(-\r\n", "(1a\r\n", "=3\r\ntxt\r\n", "=4\r\ntxtx\r\n"] {
        refuse(value, DecodeError::Value);
    }
    for length in [
        "$\r\n",
        "$-2\r\n",
        "$x\r\n",
        "$9223372036854775808\r\n",
        "*-2\r\n",
        "*2147483648\r\n",
        "%-1\r\n",
        "~-1\r\n",
        "$?\r\n",
    ] {
        refuse(length, DecodeError::Length);
    }
}

#[test]
fn limits_hold() {
    let line = "1".repeat(1 << 20);
    assert_eq!(frame_len(format!("+{line}").as_bytes()), Ok(None));
    assert_eq!(frame_len(format!("+{line}\r\n").as_bytes()), Ok(Some(line.len() + 3)));
    refuse(&format!("+{line}1"), DecodeError::LineTooLong);
    let nested = |levels: usize| format!("{}:1\r\n", "*1\r\n".repeat(levels));
    assert_eq!(frame_len(nested(64).as_bytes()), Ok(Some(nested(64).len())));
    refuse(&nested(65), DecodeError::TooDeep);
    refuse(&"*1\r\n".repeat(65), DecodeError::TooDeep);
    // Announced elements cost nothing before they arrive.
    assert_eq!(decode("*2147483647\r\n".repeat(64).as_bytes()), Ok(None));
    assert_eq!(decode(b"$4294967295\r\nabc"), Ok(None));
}

#[test]
fn commands_are_arrays_of_bulks() {
    let mut out = Vec::new();
    encode_command(&mut out, &["SET", "k", ""]);
    encode_command(&mut out, &[b"PING"]);
    assert_eq!(out, b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$0\r\n\r\n*1\r\n$4\r\nPING\r\n");
}
