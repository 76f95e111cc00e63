//! Requests as Valkey 9.1 takes them: every expectation here was measured on a real one.

mod feeder;

use bytes::Bytes;
use corelane_resp::{Limits, Parser, ProtocolError, Reply, Span, Step, encode_command};
use feeder::{Command, Outcome, outcome};
use proptest::prelude::*;

/// Sends a stream whole, byte by byte, and in two parts at every place, with and without large arguments. The
/// commands are words divided by `|`, the error is what follows `-ERR Protocol error: `.
#[track_caller]
fn check(stream: &[u8], commands: &[&str], error: Option<&str>) {
    let commands: Vec<Command> =
        commands.iter().map(|line| line.split('|').map(|word| word.as_bytes().to_vec()).collect()).collect();
    let same = |limits: Limits, chunks: &[&[u8]]| {
        let (got, end) = outcome(limits, chunks.iter().copied());
        assert_eq!(got, commands, "{:?} in {} chunks", stream.escape_ascii().to_string(), chunks.len());
        let text = end.map(|end| end.to_string());
        let text =
            text.as_deref().map(|text| text.strip_prefix("Protocol error: ").expect("the usual start"));
        assert_eq!(text, error, "{:?} in {} chunks", stream.escape_ascii().to_string(), chunks.len());
    };
    for large_bulk_len in [Limits::default().large_bulk_len, 3] {
        let limits = Limits { large_bulk_len, ..Limits::default() };
        same(limits, &[stream]);
        same(limits, &stream.chunks(1).collect::<Vec<_>>());
        for cut in 1..stream.len() {
            let (head, tail) = stream.split_at(cut);
            same(limits, &[head, tail]);
        }
    }
}

#[test]
fn arrays_of_bulks() {
    check(b"", &[], None);
    check(b"*1\r\n$4\r\nPING\r\n", &["PING"], None);
    check(b"*1\r\n$4\r\nPING\r\n*2\r\n$4\r\nECHO\r\n$1\r\nx\r\n", &["PING", "ECHO|x"], None);
    check(b"*2\r\n$3\r\nGET\r\n$0\r\n\r\n", &["GET|"], None);
    check(b"*1\r\n$0\r\n\r\n", &[""], None);
    check(b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$12\r\nabc\r\n$3\r\nxyz\r\n", &["SET|k|abc\r\n$3\r\nxyz"], None);
    check(b"*1\r\n$4\r\nPING", &[], None);
    check(b"*2147483647\r\n", &[], None);
    check(b"*1\r\n$536870912\r\n", &[], None);
}

#[test]
fn empty_requests_are_skipped() {
    for empty in ["*0\r\n", "*-1\r\n", "*-10\r\n", "\r\n", "\n", "   \r\n", " \t\x0b\x0c\r\n", "\r\r\n"] {
        check(format!("{empty}{empty}*1\r\n$4\r\nPING\r\n").as_bytes(), &["PING"], None);
    }
}

#[test]
fn counts() {
    let wrong = Some("invalid multibulk length");
    for count in ["", "+1", "01", "-0", " 1", "1 ", "a", "1\0", "1\n", "-9223372036854775809", "2147483648"] {
        check(format!("*{count}\r\n$4\r\nPING\r\n").as_bytes(), &[], wrong);
    }
    check(b"*1\n$4\nPING\n", &[], None);
}

#[test]
fn lengths() {
    let wrong = Some("invalid bulk length");
    for len in ["", "04", "+4", "-1", "-0", "abc", "4\0", "536870913", "9999999999", "99999999999999999999"] {
        check(format!("*1\r\n${len}\r\nPING\r\n").as_bytes(), &[], wrong);
    }
    check(b"PING\r\n*2\r\n$4\r\nPING\r\n$x\r\n", &["PING"], wrong);
}

#[test]
fn line_ends() {
    let wrong = Some("invalid CRLF in request");
    for stream in ["*1\rX", "*x\rX", "*\rX", "*0\rX", "*1\r\n$4\rX", "*1\r\n$x\rX"] {
        check(stream.as_bytes(), &[], wrong);
    }
    for end in ["XY", "\rY", "X\n"] {
        check(format!("*1\r\n$4\r\nPING{end}").as_bytes(), &[], wrong);
    }
    for open in ["*1\r", "*1\r\n$4\r", "*1\r\n$4\r\nPING\r", "*1\r\n$4\r\nPINGX", "*1\r\nX", "*1\r\n\r"] {
        check(open.as_bytes(), &[], None);
    }
}

#[test]
fn other_types_than_bulk() {
    check(b"*1\r\nXab\r\n", &[], Some("expected '$', got 'X'"));
    check(b"*1\r\nX\rX", &[], Some("expected '$', got 'X'"));
    check(b"*1\r\n:5\r\n", &[], Some("expected '$', got ':'"));
    check(b"*1\r\n\r\n", &[], Some("expected '$', got ' '"));
    check(b"*1\r\n\n\r\n", &[], Some("expected '$', got ' '"));
    check(b"*1\r\n\0\r\n", &[], Some("expected '$', got '\0'"));
}

#[test]
fn an_error_shows_the_byte_as_it_was() {
    let mut reply = Reply::default();
    ProtocolError::NotABulk(0xff).reply(&mut reply);
    ProtocolError::NotABulk(b'x').reply(&mut reply);
    assert_eq!(
        reply.buf,
        b"-ERR Protocol error: expected '$', got '\xff'\r\n-ERR Protocol error: expected '$', got 'x'\r\n"
    );
}

#[test]
fn inline_words() {
    check(b"PING\r\n", &["PING"], None);
    check(b"PING\nPING\n", &["PING", "PING"], None);
    check(b"  ECHO \t a\r\n", &["ECHO|a"], None);
    check(b"PING\rX\r\n", &["PING|X"], None);
    check(b"ECHO a\r\r\n", &["ECHO|a"], None);
    // The vertical tab and the form feed may stand before a word but do not end one.
    check(b"ECHO a\x0bb\r\n", &["ECHO|a\x0bb"], None);
    check(b"\x0bECHO \x0b\x0cb\r\n", &["ECHO|b"], None);
    check(b"ECHO a\\nb\r\n", &["ECHO|a\\nb"], None);
    // A zero byte hides the rest of the stream until it is too long.
    check(b"ECHO a\0\r\nPING\r\n", &[], None);
}

#[test]
fn inline_quotes() {
    for (line, word) in [
        (r#""""#, ""),
        (r#""a b""#, "a b"),
        (r#""a\x41\n\q""#, "aA\nq"),
        (r#""a\n\r\t\b\a\0\x0a\x0G""#, "a\n\r\t\x08\x070\nx0G"),
        (r#""a\xzz""#, "axzz"),
        (r#""a\x4""#, "ax4"),
        (r#"'a\'b\n'"#, "a'b\\n"),
        (r#"'a"b'"#, "a\"b"),
        (r#""a"b"#, "ab"),
        (r#"a"b""#, "ab"),
        (r#""a"'b'c"d""#, "abcd"),
        (r#"a\"b c""#, "a\\b c"),
        (r#""a\"b""#, "a\"b"),
        (r#""a\" b""#, "a\" b"),
        (r#""\"\"""#, "\"\""),
        (r#""a\\""#, "a\\"),
        // At the end of the line a backslash does not save the quote from closing.
        (r#""a\""#, "a\\"),
        (r#""\""#, "\\"),
        (r"'a\'", "a\\"),
        (r"'a\\'", "a\\\\"),
        ("\"a\"\x0bb", "a\x0bb"),
        ("\"a\rb\"", "a\rb"),
    ] {
        check(format!("ECHO {line}\r\n").as_bytes(), &[&format!("ECHO|{word}")], None);
    }
    check(b"E\"C H\"O\r\n", &["EC HO"], None);
    check(b"\"\"\r\n", &[""], None);
    // On purpose unlike Valkey, which drops the byte.
    for line in [&b"ECHO \xff\r\n"[..], b"ECHO \"\xff\"\r\n"] {
        let command = vec![b"ECHO".to_vec(), vec![0xff]];
        assert_eq!(outcome(Limits::default(), [line]), (vec![command], None));
    }
    check(b"ECHO \"a b\"c d \"\"\r\n", &["ECHO|a bc|d|"], None);
}

#[test]
fn inline_quotes_left_open() {
    for line in
        [r#""abc"#, r#""a\"#, r#""a\x1"#, r#"\"a"#, r#""a\"   "#, r#""a\"x"#, "'a\\' x", "'", r#"""""#]
    {
        check(format!("ECHO {line}\r\n").as_bytes(), &[], Some("unbalanced quotes in request"));
    }
}

/// The stream in two parts around its last bytes: it is too long to try every place.
fn end_of(stream: &[u8], tail: usize) -> Outcome {
    let (head, tail) = stream.split_at(stream.len() - tail);
    let chunks: Vec<&[u8]> = std::iter::once(head).chain(tail.chunks(1)).collect();
    let parts = outcome(Limits::default(), chunks);
    assert_eq!(parts, outcome(Limits::default(), [stream]));
    parts
}

#[test]
fn lines_have_a_longest_length() {
    let max = Limits::default().inline_len_max;
    let (commands, error) = end_of(&[&vec![b'A'; max][..], b"\r\n"].concat(), 3);
    assert_eq!((commands.len(), error), (1, None));
    let cases: [(&[u8], ProtocolError, ProtocolError); 4] = [
        (b"", ProtocolError::InlineTooLong, ProtocolError::InlineTooLong),
        (b"\0", ProtocolError::InlineTooLong, ProtocolError::InlineTooLong),
        (b"*", ProtocolError::MultibulkLength, ProtocolError::CountLineTooLong),
        (b"*1\r\n$", ProtocolError::BulkLength, ProtocolError::LengthLineTooLong),
    ];
    for (start, fits, too_long) in cases {
        let line_start = start.iter().rposition(|&byte| byte == b'\n').map_or(0, |at| at + 1);
        let mut stream = start.to_vec();
        stream.resize(line_start + max, b'1');
        if fits != too_long {
            assert_eq!(end_of(&[&stream[..], b"\r\n"].concat(), 4).1, Some(fits));
        }
        assert_eq!(end_of(&stream, 3).1, None);
        stream.push(b'1');
        assert_eq!(end_of(&stream, 3).1, Some(too_long));
        stream.extend_from_slice(b"\r\n");
        assert_eq!(end_of(&stream, 4).1, Some(too_long));
    }
}

#[test]
fn limits_are_those_given() {
    let limits =
        Limits { bulk_len_max: 5, args_max: 2, inline_len_max: 8, large_bulk_len: 100, stranger: false };
    let end = |stream: &[u8]| outcome(limits, [stream]).1;
    assert_eq!(end(b"*2\r\n$5\r\nabcde\r\n$5\r\nabcde\r\n"), None);
    assert_eq!(end(b"*1\r\n$6\r\n"), Some(ProtocolError::BulkLength));
    assert_eq!(end(b"*3\r\n"), Some(ProtocolError::MultibulkLength));
    assert_eq!(end(b"12345678\r\n"), None);
    assert_eq!(end(b"123456789\r\n"), Some(ProtocolError::InlineTooLong));
}

#[test]
fn who_has_a_password_to_give_may_send_little() {
    let strangers = Limits { stranger: true, ..Limits::default() };
    let command = |args: usize, len: usize| {
        let mut stream = Vec::new();
        encode_command(&mut stream, &vec!["x".repeat(len); args]);
        stream
    };
    for (stream, error) in [
        (command(10, 1), None),
        (command(11, 1), Some(ProtocolError::StrangerMultibulkLength)),
        (command(1, 16 << 10), None),
        (command(1, (16 << 10) + 1), Some(ProtocolError::StrangerBulkLength)),
        (b"*9999999999\r\n".to_vec(), Some(ProtocolError::MultibulkLength)),
        (b"*1\r\n$9999999999\r\n".to_vec(), Some(ProtocolError::BulkLength)),
    ] {
        assert_eq!(
            outcome(strangers, [&stream[..]]).1,
            error,
            "{}",
            &stream.escape_ascii().to_string()[..20.min(stream.len())]
        );
        assert_eq!(end_of_strangers(&stream), error);
    }
}

/// The same, its last bytes one at a time.
fn end_of_strangers(stream: &[u8]) -> Option<ProtocolError> {
    let (head, tail) = stream.split_at(stream.len().saturating_sub(20));
    let chunks: Vec<&[u8]> = std::iter::once(head).chain(tail.chunks(1)).collect();
    outcome(Limits { stranger: true, ..Limits::default() }, chunks).1
}

#[test]
fn large_arguments_are_reported_until_taken() {
    let limits = Limits { large_bulk_len: 4, ..Limits::default() };
    let (mut parser, mut spans, mut owned) = (Parser::new(), Vec::new(), Vec::new());
    let input = b"*3\r\n$3\r\nSET\r\n$4\r\nabcd\r\n$1\r\nx\r\n";
    let step = parser.parse(input, &mut spans, &mut owned, &limits);
    assert_eq!(step, Ok(Step::NeedBulk { start: 17, len: 4 }));
    assert_eq!(spans, [Span::new(8, 11)]);
    let step = parser.parse(&input[..17], &mut spans, &mut owned, &limits);
    assert_eq!(step, Ok(Step::NeedBulk { start: 17, len: 4 }), "asked again");
    owned.push(Bytes::from_static(b"abcd"));
    parser.bulk_taken(&mut spans, 0);
    let rest = [&input[..17], b"$1\r\nx\r\n"].concat();
    let step = parser.parse(&rest, &mut spans, &mut owned, &limits);
    assert_eq!(step, Ok(Step::Command { used: rest.len() }));
    assert_eq!(spans[1].owned_idx(), Some(0));
    assert_eq!(spans[2].range(), 21..22);
    assert_eq!(Parser::payload_of(b"abcd\r\n"), Ok(&b"abcd"[..]));
    assert_eq!(Parser::payload_of(b"abcd\rx"), Err(ProtocolError::LineEnd));
}

/// What was parsed is overwritten before the rest comes: whoever looks at it again goes wrong.
#[test]
fn nothing_is_looked_at_twice() {
    let mut stream = Vec::new();
    let args: Vec<String> = (0..200).map(|n| "v".repeat(n % 13)).collect();
    encode_command(&mut stream, &args);
    let (mut parser, mut spans, mut owned) = (Parser::new(), Vec::new(), Vec::new());
    let mut input = Vec::new();
    let mut end = None;
    for &byte in &stream {
        input.push(byte);
        let found = spans.len();
        let step = parser.parse(&input, &mut spans, &mut owned, &Limits::default());
        end = Some(step.expect("a valid command"));
        if spans.len() > found {
            input.fill(b'\xee');
        }
    }
    assert_eq!(end, Some(Step::Command { used: stream.len() }));
    let found: Vec<&[u8]> = spans.iter().map(|span| &stream[span.range()]).collect();
    assert_eq!(found, args.iter().map(String::as_bytes).collect::<Vec<_>>());
}

fn any_chunks(stream: &[u8], cuts: Vec<prop::sample::Index>) -> Vec<&[u8]> {
    let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut.index(stream.len() + 1)).collect();
    cuts.extend([0, stream.len()]);
    cuts.sort_unstable();
    cuts.windows(2).map(|pair| &stream[pair[0]..pair[1]]).collect()
}

fn any_command() -> impl Strategy<Value = Command> {
    prop::collection::vec(prop::collection::vec(any::<u8>(), 0..40), 1..8)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn commands_come_out_as_they_went_in(
        commands in prop::collection::vec(any_command(), 0..6),
        cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..8),
        large_bulk_len in 1..50_usize,
    ) {
        let mut stream = Vec::new();
        for command in &commands {
            encode_command(&mut stream, command);
        }
        let limits = Limits { large_bulk_len, ..Limits::default() };
        prop_assert_eq!(outcome(limits, any_chunks(&stream, cuts)), (commands, None));
    }

    #[test]
    fn garbage_has_one_meaning(
        stream in prop::collection::vec(
            prop_oneof![prop::sample::select(&b"*$\r\n\"'\\x 0123456789-+a\0"[..]), any::<u8>()], 0..120),
        cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..8),
    ) {
        let limits = Limits { inline_len_max: 40, large_bulk_len: 6, ..Limits::default() };
        prop_assert_eq!(outcome(limits, any_chunks(&stream, cuts)), outcome(limits, [&stream[..]]));
    }

    #[test]
    fn inline_words_survive_quoting(words in prop::collection::vec(prop::collection::vec(1..=255_u8, 0..12), 1..6)) {
        let mut line = Vec::new();
        for word in &words {
            line.push(b'"');
            line.extend(word.iter().flat_map(|byte| format!("\\x{byte:02x}").into_bytes()));
            line.extend_from_slice(b"\" ");
        }
        line.push(b'\n');
        prop_assert_eq!(outcome(Limits::default(), [&line[..]]), (vec![words], None));
    }
}
