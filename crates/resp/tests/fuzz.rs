//! Broken streams, made from valid ones by mutation, from fixed seeds. They must neither panic nor depend on how they
//! were cut into reads, and what the two decoders of replies accept must be the same.

mod feeder;

use corelane_resp::{Limits, Proto, Reply, decode, encode_command, frame_len};
use feeder::outcome;

/// Streams per test: some seconds in a debug build.
const ROUNDS: u64 = 20_000;

/// xorshift64*: random enough for tests, the same on every machine.
struct Random(u64);

impl Random {
    fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    /// A number below `end`.
    fn below(&mut self, end: usize) -> usize {
        ((self.next() >> 32) as usize) % end
    }

    fn bytes(&mut self, len_end: usize) -> Vec<u8> {
        (0..self.below(len_end)).map(|_| self.next() as u8).collect()
    }
}

/// Changes, drops, doubles, or adds some bytes.
fn mutate(stream: &mut Vec<u8>, random: &mut Random) {
    const TELLING: &[u8] = b"\r\n*$0123456789-+\"'\\x \0\xff:_,#%~>|=!(";
    for _ in 0..random.below(6) {
        let at = random.below(stream.len() + 1);
        let byte = TELLING[random.below(TELLING.len())];
        match random.below(5) {
            0 => stream.insert(at, byte),
            1 if at < stream.len() => stream[at] = byte,
            2 if at < stream.len() => drop(stream.remove(at)),
            3 => stream.truncate(at),
            _ => {
                let end = (at + random.below(20)).min(stream.len());
                let again = stream[at..end].to_vec();
                let to = random.below(stream.len() + 1);
                stream.splice(to..to, again);
            }
        }
    }
}

fn cut<'a>(stream: &'a [u8], random: &mut Random) -> Vec<&'a [u8]> {
    let mut rest = stream;
    let mut chunks = Vec::new();
    let size_max = 1 + random.below(40);
    while !rest.is_empty() {
        let (chunk, after) = rest.split_at(rest.len().min(1 + random.below(size_max)));
        chunks.push(chunk);
        rest = after;
    }
    chunks
}

#[test]
fn broken_requests_mean_the_same_however_they_are_cut() {
    let (mut ended, mut commands) = (0, 0);
    for seed in 0..ROUNDS {
        let mut random = Random::new(seed);
        let mut stream = Vec::new();
        for _ in 0..1 + random.below(5) {
            if random.below(3) == 0 {
                stream.extend_from_slice(
                    [&b"PING\r\n"[..], b"SET \"k \\x41\" 'v'\r\n", b"\r\n", b"ECHO a b\n"][random.below(4)],
                );
            } else {
                let args: Vec<_> = (0..random.below(6)).map(|_| random.bytes(30)).collect();
                encode_command(&mut stream, &args);
            }
        }
        mutate(&mut stream, &mut random);
        let limits = Limits {
            bulk_len_max: 10 + random.below(40),
            args_max: 1 + random.below(8),
            inline_len_max: 8 + random.below(60),
            large_bulk_len: 1 + random.below(40),
            stranger: random.below(4) == 0,
        };
        let whole = outcome(limits, [&stream[..]]);
        let parts = outcome(limits, cut(&stream, &mut random));
        assert_eq!(whole, parts, "seed {seed}: {}", stream.escape_ascii());
        // Whether large arguments are taken out makes no difference either.
        let flat = Limits { large_bulk_len: usize::MAX, ..limits };
        assert_eq!(whole, outcome(flat, [&stream[..]]), "seed {seed}: {}", stream.escape_ascii());
        ended += u64::from(whole.1.is_some());
        commands += whole.0.len() as u64;
    }
    assert!(ended > ROUNDS / 10 && ended < ROUNDS, "{ended} streams ended in an error");
    assert!(commands > ROUNDS / 2, "{commands} commands survived");
}

/// A reply of random shape.
fn write_reply(reply: &mut Reply, random: &mut Random, depth: usize) {
    let count = random.below(4);
    match random.below(if depth == 0 { 10 } else { 14 }) {
        0 => reply.ok(),
        1 => reply.error_bytes(&random.bytes(20)),
        2 => reply.int(random.next() as i64 >> random.below(64)),
        3 => reply.null(),
        4 => reply.null_array(),
        5 => reply.double(f64::from_bits(random.next())),
        6 => reply.bool(count == 0),
        7 => reply.verbatim("txt", "some text"),
        8 => reply.bignum("-123456789012345678901234567890"),
        9 => reply.bulk(&random.bytes(120)),
        kind => {
            let children = if kind == 10 { count * 2 } else { count };
            [Reply::map, Reply::array, Reply::set, Reply::push][kind - 10](reply, count);
            for _ in 0..children {
                write_reply(reply, random, depth - 1);
            }
        }
    }
}

#[test]
fn replies_have_the_length_that_they_decode_to() {
    let (mut complete, mut refused) = (0, 0);
    for seed in 0..ROUNDS {
        let mut random = Random::new(seed);
        let mut reply = Reply::new([Proto::Resp2, Proto::Resp3][random.below(2)]);
        write_reply(&mut reply, &mut random, 4);
        let mut stream = reply.buf;
        let whole = decode(&stream).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        assert_eq!(whole.map(|(_, used)| used), Some(stream.len()), "seed {seed}: {}", stream.escape_ascii());
        mutate(&mut stream, &mut random);
        let len = frame_len(&stream);
        let decoded = decode(&stream).map(|found| found.map(|(_, used)| used));
        assert_eq!(len, decoded, "seed {seed}: {}", stream.escape_ascii());
        match len {
            Ok(Some(len)) => {
                complete += 1;
                for end in 0..len {
                    assert_eq!(frame_len(&stream[..end]), Ok(None), "seed {seed}: {}", stream.escape_ascii());
                }
            }
            Ok(None) => {}
            Err(_) => refused += 1,
        }
    }
    assert!(complete > ROUNDS / 10 && refused > ROUNDS / 10, "{complete} complete, {refused} refused");
}
