//! The protocol itself against Valkey 9.1: whatever bytes come in, the same bytes go out and the connection ends the
//! same way. Every exchange half-closes after its input, so that all that was answered is seen without waiting.

mod common;

use common::random::Random;
use common::resp::{self, Value};
use common::server::Server;
use common::words;

/// Inputs that are inline commands, well-formed or not.
const INLINE: &[&[u8]] = &[
    b"PING\r\n",
    b"PING\n",
    b"  PING  \r\n",
    b"\r\n\n  \r\nPING\r\n",
    b"ping hello\r\n",
    b"ECHO \"a b\\x41\\n\\t\\\"\"\r\n",
    b"ECHO 'a b\\'c\\n'\r\n",
    b"ECHO \"\"\r\n",
    b"ECHO ''\r\n",
    b"ECHO \"\\xzz\\x4\"\r\n",
    b"ECHO \"\\a\\b\"\r\n",
    b"SET k \"a b\"\r\nGET k\r\nDEL k\r\n",
    b"ECHO a\"b\"\r\n",
    b"ECHO a'b'\r\nPING\r\n",
    b"\"PING\"\r\n",
    b"ECHO \"abc\r\nPING\r\n",
    b"ECHO 'abc\r\nPING\r\n",
    b"ECHO \"a\"b\r\nPING\r\n",
    b"ECHO 'a'b\r\nPING\r\n",
    b"ECHO \"abc\\\r\nPING\r\n",
    b"ECHO a\tb\r\n",
    b"ECHO\ta\r\n",
    b"PING\x00\r\nPING\r\n",
    b"ECHO a\x00b\r\nPING\r\n",
    b"PING\r\r\n",
    b"PING\rPING\r\n",
    b"nosuch\r\nPING\r\n",
    b"$4\r\nPING\r\n",
    b"+PING\r\n",
    b":1\r\n",
    b"\xfe\xfd\xfc\r\nPING\r\n",
    b"GET\r\nPING\r\n",
    b"QUIT\r\nPING\r\n",
    b"PING",
];

/// What a browser tricked into talking to the server would send. The connection is dropped at once, with whatever was
/// to be said on it, so nothing goes before these.
const HTTP: &[&[u8]] =
    &[b"POST / HTTP/1.1\r\nPING\r\n", b"host: example.com\r\nPING\r\n", b"Post x\r\n", b"HOST:\r\nPING\r\n"];

/// Inputs that start as arrays of bulk strings.
const MULTIBULK: &[&[u8]] = &[
    b"*1\r\n$4\r\nPING\r\n",
    b"*2\r\n$4\r\nECHO\r\n$0\r\n\r\nPING\r\n",
    b"*2\r\n$4\r\nECHO\r\n$4\r\n\r\n\x00\xff\r\nPING\r\n",
    b"*0\r\nPING\r\n",
    b"*-1\r\nPING\r\n",
    b"*-5\r\nPING\r\n",
    b"*-9223372036854775808\r\nPING\r\n",
    b"*\r\nPING\r\n",
    b"*abc\r\nPING\r\n",
    b"*1a\r\nPING\r\n",
    b"*+1\r\n$4\r\nPING\r\nPING\r\n",
    b"* 1\r\n$4\r\nPING\r\nPING\r\n",
    b"*1 \r\n$4\r\nPING\r\nPING\r\n",
    b"*01\r\n$4\r\nPING\r\nPING\r\n",
    b"*-0\r\nPING\r\n",
    b"*1.0\r\nPING\r\n",
    b"*1048576\r\n",
    b"*1048577\r\nPING\r\n",
    b"*2147483647\r\n",
    b"*2147483648\r\nPING\r\n",
    b"*9223372036854775807\r\nPING\r\n",
    b"*9223372036854775808\r\nPING\r\n",
    b"*99999999999999999999999999\r\nPING\r\n",
    b"*1\r\n+PING\r\nPING\r\n",
    b"*1\r\nPING\r\nPING\r\n",
    b"*1\r\n\r\nPING\r\n",
    b"*1\r\n*1\r\n$4\r\nPING\r\n",
    b"*1\r\n:1\r\nPING\r\n",
    b"*1\r\n\x00\r\nPING\r\n",
    b"*1\r\n\xff\r\nPING\r\n",
    b"*1\r\n$-1\r\nPING\r\n",
    b"*1\r\n$-2\r\nPING\r\n",
    b"*1\r\n$abc\r\nPING\r\n",
    b"*1\r\n$\r\nPING\r\n",
    b"*1\r\n$4a\r\nPING\r\nPING\r\n",
    b"*1\r\n$+4\r\nPING\r\nPING\r\n",
    b"*1\r\n$04\r\nPING\r\nPING\r\n",
    b"*1\r\n$ 4\r\nPING\r\nPING\r\n",
    b"*1\r\n$-0\r\n\r\nPING\r\n",
    b"*1\r\n$0\r\n\r\nPING\r\n",
    b"*2\r\n$0\r\n\r\n$1\r\na\r\nPING\r\n",
    b"*2\r\n$3\r\nGET\r\n$536870913\r\nPING\r\n",
    b"*2\r\n$3\r\nGET\r\n$1073741824\r\nPING\r\n",
    b"*2\r\n$3\r\nGET\r\n$9223372036854775807\r\nPING\r\n",
    b"*2\r\n$3\r\nGET\r\n$9223372036854775808\r\nPING\r\n",
    b"*2\r\n$3\r\nGET\r\n$536870912\r\nabc",
    b"*1\r\n$4\r\nPINGxxPING\r\n",
    b"*1\r\n$4\r\nPING\r\r\nPING\r\n",
    b"*1\n$4\r\nPING\r\nPING\r\n",
    b"*1\r\n$4\nPING\nPING\r\n",
    b"*1\rx$4\r\nPING\r\nPING\r\n",
    b"*1\r\n$4\rxPING\r\nPING\r\n",
    b"*1\r\n$3\r\nPING\r\nPING\r\n",
    b"*1\r\n$5\r\nPING\r\nPING\r\n",
    b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n",
    b"*1\r\n$4\r\nPI",
    b"*1\r\n$4\r\nQUIT\r\n*1\r\n$4\r\nPING\r\n",
    b"*1\r\n$6\r\nnosuch\r\n*2\r\n$6\r\nnosuch\r\n$3\r\na\r\n\r\n*1\r\n$4\r\nPING\r\n",
    b"*2\r\n$5\r\nHELLO\r\n$1\r\n9\r\n*2\r\n$3\r\nGET\r\n$1\r\nx\r\n",
    b"%1\r\n$4\r\nPING\r\n",
    b"~1\r\n$4\r\nPING\r\n",
    b"|1\r\nPING\r\n",
    b"*1\r\n$4\r\nPING\r\n\r\n\r\n*1\r\n$4\r\nPING\r\n",
    b"*1\r\n$4\r\nPING\r\nPING\r\n*1\r\n$4\r\nPING\r\nECHO x\r\n",
];

/// Well-formed streams, to be cut at every byte.
const STREAMS: &[&[u8]] = &[
    b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$11\r\nhello\r\nworl\r\n*2\r\n$3\r\nGET\r\n$1\r\nk\r\n",
    b"*5\r\n$4\r\nMSET\r\n$1\r\na\r\n$1\r\n1\r\n$1\r\nb\r\n$1\r\n2\r\n*3\r\n$4\r\nMGET\r\n$1\r\na\r\n$1\r\nb\r\n",
    b"SET k \"a \\x00 b\"\r\nGET k\r\n*0\r\n\r\nPING\n",
    b"*2\r\n$5\r\nHELLO\r\n$1\r\n3\r\n*2\r\n$3\r\nGET\r\n$4\r\nnone\r\n*1\r\n$5\r\nRESET\r\n*2\r\n$3\r\nGET\r\n$4\r\nnone\r\n",
    b"*1\r\n$4\r\nPING\r\n*1\r\n$4\r\nQUIT\r\nPING\r\n",
    b"*1\r\n$4\r\nPING\r\n*2\r\n$4\r\nECHO\r\n:1\r\nPING\r\n",
];

/// Valkey, and ours with one and with three shards.
struct Peers {
    valkey: Server,
    ours: Vec<Server>,
}

impl Peers {
    fn start() -> Option<Self> {
        let valkey = Server::valkey()?;
        Some(Self { valkey, ours: vec![Server::ours(1), Server::ours(3)] })
    }

    /// Sends `chunks` to all, each one arrived before the next, and compares everything that comes back.
    fn compare(&self, chunks: &[&[u8]]) {
        let theirs = exchange(&self.valkey, chunks);
        for server in &self.ours {
            let ours = exchange(server, chunks);
            let show = |reply: &Option<Vec<u8>>| match reply {
                Some(bytes) => comparable(bytes),
                None => "still open".to_owned(),
            };
            let input: Vec<String> = chunks.iter().map(|chunk| shortened(chunk)).collect();
            assert_eq!(show(&ours), show(&theirs), "{} against Valkey, input {input:#?}", server.name);
        }
    }
}

fn shortened(bytes: &[u8]) -> String {
    const SHOWN_MAX: usize = 1000;
    let shown = bytes[..bytes.len().min(SHOWN_MAX)].escape_ascii();
    format!(
        "{shown}{}",
        if bytes.len() > SHOWN_MAX { format!("... ({} bytes)", bytes.len()) } else { String::new() }
    )
}

/// The reply bytes as text, HELLO's reply without what names the server, its version, its modules and the connection.
fn comparable(mut replies: &[u8]) -> String {
    const OWN: [&str; 4] = ["server", "version", "id", "modules"];
    let mut text = String::new();
    while let Ok(Some((value, used))) = resp::decode(replies) {
        match &value {
            Value::Array(items) if items.first() == Some(&Value::Bulk(b"server".to_vec())) => {
                let kept: Vec<_> = value
                    .pairs()
                    .into_iter()
                    .filter(|(name, _)| !OWN.contains(&name.text().as_str()))
                    .collect();
                text += &format!("{kept:?}");
            }
            Value::Map(pairs) => {
                let kept: Vec<_> =
                    pairs.iter().filter(|(name, _)| !OWN.contains(&name.text().as_str())).collect();
                text += &format!("map {kept:?}");
            }
            _ => text += &replies[..used].escape_ascii().to_string(),
        }
        replies = &replies[used..];
    }
    text + &replies.escape_ascii().to_string()
}

/// What an emptied `server` answers to `chunks` and a half-close; `None` if it does not close then.
fn exchange(server: &Server, chunks: &[&[u8]]) -> Option<Vec<u8>> {
    let mut other = server.client();
    other.check("FLUSHALL", "+OK\r\n");
    let mut client = server.client();
    for (number, chunk) in chunks.iter().enumerate() {
        // A server that has given up on the connection resets it; what it said before is read below.
        let _ = client.write(chunk);
        if number + 1 < chunks.len() {
            other.check("PING", "+PONG\r\n");
        }
    }
    client.finish();
    client.read_to_close()
}

#[test]
fn an_exchange_shows_the_replies_the_error_and_the_close() {
    let Some(peers) = Peers::start() else { return };
    let reply = exchange(&peers.valkey, &[b"PING\r\n*1\r\n$4\r\nPING\r\n*x\r\nPING\r\n"]);
    let expected = b"+PONG\r\n+PONG\r\n-ERR Protocol error: invalid multibulk length\r\n";
    assert_eq!(reply.as_deref(), Some(&expected[..]));
}

#[test]
fn inline_commands() {
    let Some(peers) = Peers::start() else { return };
    INLINE.iter().chain(HTTP).for_each(|input| peers.compare(&[input]));
}

#[test]
fn multibulk_commands() {
    let Some(peers) = Peers::start() else { return };
    MULTIBULK.iter().for_each(|input| peers.compare(&[input]));
}

#[test]
fn errors_in_the_middle_of_a_pipeline_keep_what_came_before() {
    let Some(peers) = Peers::start() else { return };
    let before =
        b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$1\r\nv\r\n*2\r\n$4\r\nMGET\r\n$1\r\nk\r\n*1\r\n$6\r\nDBSIZE\r\n";
    for bad in INLINE.iter().chain(MULTIBULK) {
        peers.compare(&[&[&before[..], bad].concat()]);
        peers.compare(&[before, bad]);
    }
}

#[test]
fn lines_beyond_the_limit() {
    const BEYOND: usize = 200_000;
    let Some(peers) = Peers::start() else { return };
    let long = vec![b'1'; BEYOND];
    let line = |before: &[u8], after: &[u8]| [before, &long, after].concat();
    peers.compare(&[&line(b"ECHO ", b"\r\nPING\r\n")]);
    peers.compare(&[&line(b"ECHO ", b"")]);
    peers.compare(&[&line(b"*", b"\r\nPING\r\n")]);
    peers.compare(&[&line(b"*", b"")]);
    peers.compare(&[&line(b"*1\r\n$", b"\r\nPING\r\n")]);
    peers.compare(&[&line(b"*2\r\n$4\r\nECHO\r\n$", b"")]);
    let shorter = |len| [&b"ECHO "[..], &vec![b'x'; len], b"\r\nPING\r\n"].concat();
    for len in [1000, 16_000, 17_000, 33_000, 60_000] {
        peers.compare(&[&shorter(len)]);
    }
}

#[test]
fn values_around_the_sizes_of_buffers() {
    let Some(peers) = Peers::start() else { return };
    let powers = [1 << 10, 4 << 10, 16 << 10, 32 << 10, 64 << 10, 256 << 10];
    for len in powers.iter().flat_map(|&power| [power - 30, power - 2, power - 1, power, power + 1]) {
        let value = vec![b'v'; len];
        let set = words::encode(&[b"SET".to_vec(), b"k".to_vec(), value]);
        let get = b"*2\r\n$3\r\nGET\r\n$1\r\nk\r\n";
        peers.compare(&[&[&set[..], get, get].concat()]);
        let (head, tail) = set.split_at(set.len() - 1);
        peers.compare(&[head, tail, get]);
    }
}

#[test]
fn streams_cut_at_every_byte() {
    let Some(peers) = Peers::start() else { return };
    for stream in STREAMS {
        for at in 1..stream.len() {
            let (head, tail) = stream.split_at(at);
            peers.compare(&[head, tail]);
        }
    }
}

#[test]
fn streams_byte_by_byte() {
    let Some(peers) = Peers::start() else { return };
    for stream in STREAMS {
        let bytes: Vec<&[u8]> = stream.chunks(1).collect();
        peers.compare(&bytes);
    }
}

#[test]
fn pipelines_of_any_depth() {
    let Some(peers) = Peers::start() else { return };
    for depth in [1, 2, 16, 100, 1000, 20_000] {
        let command = |n: usize| match n % 7 {
            0 => format!("SET key:{} value:{n}", n % 50),
            1 => format!("GET key:{}", (n * 3) % 50),
            2 => format!("MGET key:{} key:{} nope", n % 50, (n + 1) % 50),
            3 => format!("INCR counter:{}", n % 3),
            4 => "DBSIZE".to_owned(),
            5 => format!("GETRANGE key:{} x 1", n % 50),
            _ => format!("DEL key:{} key:{}", n % 50, (n + 25) % 50),
        };
        let input: Vec<u8> = (0..depth).flat_map(|n| words::encode(&words::parse(&command(n)))).collect();
        peers.compare(&[&input]);
    }
}

/// Valid streams with a few bytes changed, dropped, doubled or moved; `CORELANE_DIFF_CASES` raises the count.
#[test]
fn damaged_streams() {
    const CASES_DEFAULT: u64 = 300;
    let Some(peers) = Peers::start() else { return };
    let cases =
        std::env::var("CORELANE_DIFF_CASES").map_or(CASES_DEFAULT, |text| text.parse().expect("a number"));
    for seed in 0..cases {
        let mut random = Random::new(seed);
        let mut input: Vec<u8> =
            (0..1 + random.below(4)).flat_map(|_| random.pick(STREAMS).to_vec()).collect();
        for _ in 0..1 + random.below(4) {
            damage(&mut random, &mut input);
        }
        if random.one_in(2) {
            let at = random.below(input.len());
            let (head, tail) = input.split_at(at);
            peers.compare(&[head, tail]);
        } else {
            peers.compare(&[&input]);
        }
    }
}

/// Never puts in a byte 0xff: Valkey 9.1 drops it from the words of an inline command, and we do not.
fn damage(random: &mut Random, input: &mut Vec<u8>) {
    const LIKELY: &[u8] = b"\r\n*$0123456789-+ \"'\\x\x00\xfe";
    let at = random.below(input.len());
    match random.below(5) {
        0 => input[at] = *random.pick(LIKELY),
        1 => input[at] = random.below(255) as u8,
        2 if input.len() > 1 => drop(input.remove(at)),
        3 => input.insert(at, *random.pick(LIKELY)),
        _ => {
            let end = (at + 1 + random.below(20)).min(input.len());
            let copy = input[at..end].to_vec();
            let to = random.below(input.len());
            input.splice(to..to, copy);
        }
    }
}
