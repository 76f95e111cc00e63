//! Random commands, from a line of grammar each.
//!
//! `@x` draws from a class of words ([`class`]); `[a|b @k]` is there or not, as one of its alternatives, and adjacent
//! ones come in any order; `(..)+` repeats its contents one to four times; all else is literal. Commands then get
//! their letters' case varied and, now and then, are damaged: an argument dropped, doubled, replaced or moved.

use crate::common::random::Random;
use crate::common::words::{self, Command};

/// One line per way to use a command; all lines are equally likely.
const GRAMMAR: &[&str] = &[
    "GET @k",
    "GET @k",
    "SET @k @v",
    "SET @k @v [NX|XX|IFEQ @v] [GET] [EX @s|PX @m|EXAT @S|PXAT @M|KEEPTTL]",
    "SETNX @k @v",
    "SETEX @k @s @v",
    "PSETEX @k @m @v",
    "GETSET @k @v",
    "GETDEL @k",
    "GETEX @k [EX @s|PX @m|EXAT @S|PXAT @M|PERSIST]",
    "MGET (@k)+",
    "MSET (@k @v)+",
    "MSETNX (@k @v)+",
    "MSETEX 1 @k @v [NX|XX] [EX @s|PX @m|EXAT @S|PXAT @M|KEEPTTL]",
    "MSETEX 2 @k @v @k @v [NX|XX] [EX @s|PX @m|EXAT @S|PXAT @M|KEEPTTL]",
    "MSETEX 3 @k @v @k @v @k @v [NX|XX] [EX @s|PX @m|EXAT @S|PXAT @M|KEEPTTL]",
    "APPEND @k @v",
    "STRLEN @k",
    "GETRANGE @k @i @i",
    "SUBSTR @k @i @i",
    "SETRANGE @k @o @v",
    "INCR @k",
    "DECR @k",
    "INCRBY @k @n",
    "DECRBY @k @n",
    "INCRBYFLOAT @k @f",
    "LCS @k @k [LEN|IDX] [MINMATCHLEN @n] [WITHMATCHLEN]",
    "DELIFEQ @k @v",
    "DEL (@k)+",
    "UNLINK (@k)+",
    "EXISTS (@k)+",
    "TOUCH (@k)+",
    "TYPE @k",
    "TTL @k",
    "PTTL @k",
    "EXPIRETIME @k",
    "PEXPIRETIME @k",
    "EXPIRE @k @s [NX|XX|GT|LT]",
    "PEXPIRE @k @m [NX|XX|GT|LT]",
    "EXPIREAT @k @S [NX|XX|GT|LT] [XX]",
    "PEXPIREAT @k @M [NX|XX|GT|LT]",
    "PERSIST @k",
    "KEYS @p",
    "SCAN 0 [MATCH @p] [COUNT @n] [TYPE @t]",
    "RANDOMKEY",
    "RENAME @k @k",
    "RENAMENX @k @k",
    "COPY @k @k [DB @d] [REPLACE]",
    "MOVE @k @d",
    "LPUSH @k (@v)+",
    "RPUSH @k (@v)+",
    "RPUSH @k (@v)+",
    "LPUSHX @k (@v)+",
    "RPUSHX @k (@v)+",
    "LPOP @k [@n]",
    "RPOP @k [@n]",
    "LLEN @k",
    "LRANGE @k @i @i",
    "LINDEX @k @i",
    "LSET @k @j @v",
    "LINSERT @k [BEFORE|AFTER] @v @v",
    "LREM @k @i @v",
    "LTRIM @k @i @i",
    "LPOS @k @v [RANK @i] [COUNT @n] [MAXLEN @n]",
    "LMOVE @k @k LEFT RIGHT",
    "LMOVE @k @k RIGHT LEFT",
    "RPOPLPUSH @k @k",
    "LMPOP 1 @k LEFT [COUNT @n]",
    "LMPOP 3 @k @k @k RIGHT [COUNT @n]",
    "SADD @k (@v)+",
    "SADD @k (@v)+",
    "SREM @k (@v)+",
    "SISMEMBER @k @v",
    "SMISMEMBER @k (@v)+",
    "SCARD @k",
    "SMEMBERS @k",
    "SPOP @k 100",
    "SMOVE @k @k @v",
    "SINTER (@k)+",
    "SUNION (@k)+",
    "SDIFF (@k)+",
    "SINTERCARD 2 @k @k [LIMIT @n]",
    "SINTERSTORE @k (@k)+",
    "SUNIONSTORE @k (@k)+",
    "SDIFFSTORE @k (@k)+",
    "SSCAN @k 0 [MATCH @p] [COUNT @n]",
    "ZADD @k (@z @e)+",
    "ZADD @k @z @e @z @e @z @e @z @e (@z @e)+",
    "ZADD @k [NX|XX] [CH] (@n @e)+",
    "ZADD @k [GT|LT] [INCR] @z @e",
    "ZINCRBY @k @z @e",
    "ZREM @k (@e)+",
    "ZCARD @k",
    "ZSCORE @k @h",
    "ZMSCORE @k (@h)+",
    "ZRANK @k @h [WITHSCORE]",
    "ZREVRANK @k @h [WITHSCORE]",
    "ZRANGE @k @i @i [REV] [WITHSCORES]",
    "ZRANGE @k @f @f BYSCORE [REV] [WITHSCORES] [LIMIT @i @i]",
    "ZREVRANGE @k @i @i [WITHSCORES]",
    "ZRANGEBYSCORE @k @z @z [WITHSCORES] [LIMIT @i @i]",
    "ZREVRANGEBYSCORE @k @f @f",
    "ZCOUNT @k @f @f",
    "ZREMRANGEBYRANK @k @i @i",
    "ZREMRANGEBYSCORE @k @f @f",
    "ZPOPMIN @k [@n]",
    "ZPOPMAX @k [@n]",
    "ZMPOP 1 @k MIN [COUNT @n]",
    "ZMPOP 3 @k @k @k MAX [COUNT @n]",
    "ZRANGESTORE @k @k @i @i [REV]",
    "ZRANGESTORE @k @k @f @f BYSCORE [REV] [LIMIT @i @i]",
    "ZUNION 3 @k @k @k [WEIGHTS @f @f @f] [AGGREGATE SUM|AGGREGATE MIN|AGGREGATE MAX] [WITHSCORES]",
    "ZINTER 2 @k @k [WEIGHTS @f @f] [AGGREGATE SUM|AGGREGATE MIN|AGGREGATE MAX] [WITHSCORES]",
    "ZDIFF 2 @k @k [WITHSCORES]",
    "ZINTERCARD 2 @k @k [LIMIT @n]",
    "ZUNIONSTORE @k 2 @k @k [WEIGHTS @f @f] [AGGREGATE SUM|AGGREGATE MIN|AGGREGATE MAX]",
    "ZINTERSTORE @k 2 @k @k [WEIGHTS @f @f] [AGGREGATE SUM|AGGREGATE MIN|AGGREGATE MAX]",
    "ZDIFFSTORE @k 2 @k @k",
    "SETBIT @k @i 1",
    "SETBIT @k @i 0",
    "GETBIT @k @i",
    "BITCOUNT @k",
    "BITCOUNT @k @i @i [BYTE|BIT]",
    "BITPOS @k 1 [@i]",
    "BITPOS @k 0 @i @i [BYTE|BIT]",
    "BITOP AND @k (@k)+",
    "BITOP OR @k (@k)+",
    "BITOP XOR @k (@k)+",
    "BITOP NOT @k @k",
    "BITFIELD @k GET u8 @i SET i12 @i @n OVERFLOW FAIL INCRBY u5 @i @n",
    "BITFIELD @k OVERFLOW SAT INCRBY i64 @i @n",
    "BITFIELD_RO @k GET i64 @i",
    "PFADD @k (@v)+",
    "PFADD @k (@v)+",
    "PFCOUNT @k",
    "PFCOUNT (@k)+",
    "PFMERGE @k (@k)+",
    "PFDEBUG DECODE @k",
    "PFDEBUG TODENSE @k",
    "GEOADD @k (@x @y @h)+",
    "GEOADD @k (@x @y @h)+",
    "GEOADD @k [NX|XX] [CH] (@x @y @h)+",
    "GEODIST @k @h @h [M|KM|FT|MI]",
    "GEOHASH @k (@h)+",
    "GEOPOS @k (@h)+",
    "GEORADIUS @k @x @y @l km [WITHDIST] [WITHCOORD] [WITHHASH] [ASC|DESC] [COUNT @n|COUNT @n ANY]",
    "GEORADIUS @k @x @y @l mi [ASC|DESC] [COUNT @n] [STORE @k|STOREDIST @k]",
    "GEORADIUSBYMEMBER @k @h @l km [WITHDIST] [ASC|DESC] [COUNT @n] [STORE @k]",
    "GEOSEARCH @k [FROMMEMBER @h|FROMLONLAT @x @y] [BYRADIUS @l km|BYBOX @l @l mi] [WITHDIST] [WITHCOORD] [ASC|DESC] [COUNT @n]",
    "GEOSEARCH @k FROMLONLAT @x @y BYBOX @l @l km [WITHDIST] [ASC|DESC] [COUNT @n|COUNT @n ANY]",
    "GEOSEARCH @k FROMLONLAT @x @y BYRADIUS @l m [WITHHASH] [ASC|DESC]",
    "GEOSEARCH @k BYPOLYGON 3 @x @y @x @y @x @y [WITHDIST] [ASC|DESC] [COUNT @n]",
    "GEOSEARCHSTORE @k @k FROMMEMBER @h BYRADIUS @l km [STOREDIST] [COUNT @n]",
    "GEOSEARCHSTORE @k @k FROMLONLAT @x @y BYBOX @l @l ft [STOREDIST] [COUNT @n]",
    "SWAPDB @d @d",
    "DBSIZE",
    "FLUSHDB [ASYNC|SYNC]",
    "FLUSHALL [ASYNC|SYNC]",
    "SELECT @d",
    "PING [@v]",
    "ECHO @v",
    "HSET @k (@h @v)+",
    "HMSET @k (@h @v)+",
    "HSETNX @k @h @v",
    "HGET @k @h",
    "HMGET @k (@h)+",
    "HLEN @k",
    "HSTRLEN @k @h",
    "HEXISTS @k @h",
    "HDEL @k (@h)+",
    "HINCRBY @k @h @n",
    "HINCRBYFLOAT @k @h @f",
    "OBJECT ENCODING @k",
    "COMMAND GETKEYS MSET (@k @v)+",
    "MULTI",
    "MULTI",
    "EXEC",
    "EXEC",
    "EXEC",
    "DISCARD",
    "WATCH (@k)+",
    "WATCH (@k)+",
    "UNWATCH",
];

/// The keys all commands share: few, so that they meet; with and without hash tags, empty and binary ones.
pub(crate) const KEYS: &[&[u8]] = &[b"a", b"b", b"key:3", b"{t}1", b"{t}2", b"x{t}", b"", b"\x00\xff\r\n"];
/// The databases used, beside some that do not exist.
pub(crate) const DATABASES: &[&str] = &["0", "1", "2"];

const VALUES: &[&[u8]] = &[
    b"",
    b"v",
    b"hello world",
    b"abcabcabc",
    b"bcabcabd",
    b"1",
    b"10",
    b"-7",
    b"3.5",
    b"1e3",
    b"007",
    b" 1",
    b"9223372036854775807",
    b"-9223372036854775808",
    b"\x00\x01\xff\r\n",
    b"NX",
    b"EX",
];
const FIELDS: &[&str] = &["f", "g", "7", "", "-1", "007", "field"];
const NUMBERS: &[&str] =
    &["0", "1", "-1", "3", "100", "-100", "9223372036854775807", "-9223372036854775808", "1.5", "x"];
const LENGTHS: &[&str] = &["0", "0.5", "1", "30", "200", "1e3", "5000", "20000", "1e6", "-1", "inf", "x"];
const FLOATS: &[&str] = &[
    "0",
    "1",
    "-1",
    "0.1",
    "1.5",
    "-2.25",
    "1e3",
    "1e-3",
    "3.0e3",
    "1e17",
    "0.3333333",
    "inf",
    "nan",
    "1e400",
    ".5",
    "x",
];
/// Scores, and what is none.
const SCORES: &[&str] = &[
    "0", "-0", "1", "1", "2", "3", "0.1", "0.2", "0.3", "-1.5", "inf", "-inf", "1e308", "-1e308", "1e17",
    "nan", "x",
];
/// Members: integers and strings, and one that makes a sorted set large.
const MEMBERS: &[&str] = &[
    "a",
    "b",
    "c",
    "d",
    "1",
    "2",
    "-3",
    "007",
    "",
    "a member that is longer than those which lie in a small sorted set: 64",
];
const INDEXES: &[&str] = &["0", "1", "2", "5", "-1", "-2", "-5", "100", "-100", "9223372036854775807", "x"];
/// The same without what has more than 32 bits, of which Valkey's LSET looks at the lower ones.
const SHORT_INDEXES: &[&str] = &["0", "1", "2", "5", "-1", "-2", "-5", "100", "-100", "x"];
const OFFSETS: &[&str] = &["0", "1", "5", "20", "300", "-1", "536870912", "x"];
const PATTERNS: &[&str] = &["*", "a*", "?", "{t}*", "*[12]", "[^a]*", "key:?", "nope", "", "[", "\\a"];
const TYPES: &[&str] = &["string", "STRING", "list", "hash", "nosuch"];
const JUNK: &[&str] = &["", "x", "-1", "99999999999999999999", "NX", "GET", "EX", "KEEPTTL", "1.5", "\u{0}"];
const BAD_TIMES: &[&str] = &["0", "-1", "x", "9223372036854775807", "9223372036854776", "1.5", ""];

/// A random command; `now_ms` is the base of absolute times.
pub(crate) fn command(random: &mut Random, now_ms: i64) -> Command {
    command_of(GRAMMAR, random, now_ms)
}

/// The lines whose commands begin like one of these.
pub(crate) fn family(begins: &[&str]) -> Vec<&'static str> {
    let fits = |line: &&&str| begins.iter().any(|begin| line.starts_with(begin));
    GRAMMAR.iter().filter(fits).copied().collect()
}

/// A random command of these lines.
pub(crate) fn command_of(lines: &[&str], random: &mut Random, now_ms: i64) -> Command {
    let line = *random.pick(lines);
    let mut draw = Draw { random, now_ms, words: Vec::new() };
    draw.sequence(line);
    let mut command = draw.words;
    if random.one_in(10) {
        let damaged = damage(random, &command);
        if !expires_soon(&damaged) {
            command = damaged;
        }
    }
    command
}

struct Draw<'a> {
    random: &'a mut Random,
    now_ms: i64,
    words: Command,
}

impl Draw<'_> {
    /// Draws everything in `rule`, adjacent options in random order.
    fn sequence(&mut self, rule: &str) {
        let mut options: Vec<&str> = Vec::new();
        let mut rest = rule;
        while !rest.is_empty() {
            let (item, tail) = first_item(rest);
            rest = tail;
            match item.as_bytes()[0] {
                b'[' => options.push(&item[1..item.len() - 1]),
                b'(' => (0..=self.random.below(4)).for_each(|_| self.sequence(&item[1..item.len() - 2])),
                b'@' => self.class(&item[1..]),
                _ => self.literal(item),
            }
        }
        while !options.is_empty() {
            let option = options.swap_remove(self.random.below(options.len()));
            if self.random.one_in(2) {
                let alternatives: Vec<&str> = option.split('|').collect();
                let chosen = *self.random.pick(&alternatives);
                self.sequence(chosen);
            }
        }
    }

    fn literal(&mut self, word: &str) {
        let word = match self.random.below(8) {
            0 => word.to_lowercase(),
            1 => word[..1].to_owned() + &word[1..].to_lowercase(),
            _ => word.to_owned(),
        };
        self.words.push(word.into_bytes());
    }

    fn class(&mut self, class: &str) {
        let text = |random: &mut Random, from: &[&str]| random.pick(from).as_bytes().to_vec();
        let random = &mut *self.random;
        let word = match class {
            "k" => random.pick(KEYS).to_vec(),
            "v" => match random.below(8) {
                0 => {
                    let len = random.below(200);
                    random.bytes(len)
                }
                _ => random.pick(VALUES).to_vec(),
            },
            "h" => text(random, FIELDS),
            "e" => text(random, MEMBERS),
            "z" => text(random, SCORES),
            "n" => text(random, NUMBERS),
            "f" => text(random, FLOATS),
            "x" => degrees(random, 181.0),
            "y" => degrees(random, 86.0),
            "l" => text(random, LENGTHS),
            "i" => text(random, INDEXES),
            "j" => text(random, SHORT_INDEXES),
            "o" => text(random, OFFSETS),
            "p" => text(random, PATTERNS),
            "t" => text(random, TYPES),
            "d" if random.one_in(12) => text(random, &["16", "-1", "x"]),
            "d" => text(random, DATABASES),
            "s" => time(random, 0, 1),
            "m" => time(random, 0, 1000),
            "S" => time(random, self.now_ms / 1000, 1),
            "M" => time(random, self.now_ms, 1000),
            other => panic!("no class @{other}"),
        };
        self.words.push(word);
    }
}

/// A time `base` + 100 s to 28 h, in `per_second` units, so wide that two draws hardly ever meet; sometimes a bad one.
fn time(random: &mut Random, base: i64, per_second: i64) -> Vec<u8> {
    if random.one_in(6) {
        return random.pick(BAD_TIMES).as_bytes().to_vec();
    }
    let ahead = (100 + random.below(100_000) as i64) * per_second + random.below(per_second as usize) as i64;
    (base + ahead).to_string().into_bytes()
}

/// Degrees up to a bit more than there are, often few, with up to six decimals.
fn degrees(random: &mut Random, max: f64) -> Vec<u8> {
    let part = random.below(2_000_001) as f64 / 1e6 - 1.0;
    let scale = if random.one_in(3) { max } else { *random.pick(&[0.001, 1.0, 20.0, max]) };
    match random.below(12) {
        0 => random.pick(FLOATS).as_bytes().to_vec(),
        1 => format!("{:.0}", part * scale).into_bytes(),
        _ => format!("{:.6}", part * scale).into_bytes(),
    }
}

/// The first item of a rule, and the rest of the rule.
fn first_item(rule: &str) -> (&str, &str) {
    let end = match rule.as_bytes()[0] {
        b'[' => rule.find(']').expect("]") + 1,
        b'(' => rule.find(")+").expect(")+") + 2,
        _ => rule.find(' ').unwrap_or(rule.len()),
    };
    (&rule[..end], rule[end..].trim_start())
}

fn damage(random: &mut Random, command: &Command) -> Command {
    let mut damaged = command.clone();
    let at = random.below(command.len());
    match random.below(5) {
        0 if at > 0 => drop(damaged.remove(at)),
        1 => damaged.insert(at + 1, command[at].clone()),
        2 if at > 0 => damaged[at] = random.pick(JUNK).as_bytes().to_vec(),
        3 if at > 0 => damaged.swap(1, at),
        _ => damaged.push(random.pick(JUNK).as_bytes().to_vec()),
    }
    damaged
}

/// Whether a damaged command might set a time-out so short that it passes while the case runs.
fn expires_soon(command: &Command) -> bool {
    const TAKES_TIME: &[&str] = &["SET", "SETEX", "PSETEX", "GETEX", "MSETEX", "EXPIRE", "PEXPIRE"];
    let soon =
        |word: &Vec<u8>| std::str::from_utf8(word).is_ok_and(|word| matches!(word.parse(), Ok(1..60_000)));
    TAKES_TIME.contains(&words::name(command).as_str()) && command[1..].iter().any(soon)
}
