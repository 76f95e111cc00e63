//! LCS: the longest common subsequence of two strings, wherever they live.

use super::string::write_string;
use crate::args::Args;
use crate::command::{Command, Find, Flags, Flow, KeyFlags, KeySpec, Merge, Plan};
use crate::ctx::{Ctx, PartResult};
use crate::errors::Error;
use bytes::Bytes;
use corelane_resp::{Frame, Reply, decode};

pub(super) const COMMANDS: &[Command] = &[Command {
    name: "lcs",
    arity: -3,
    flags: Flags::READONLY,
    keys: &[KeySpec {
        flags: KeyFlags::RO.with(KeyFlags::ACCESS),
        begin: 1,
        find: Find::Range { last: 1, step: 1 },
        notes: None,
        flags_for: None,
    }],
    plan: Plan::EachShard { part: read, merge: Merge::With(compare) },
    since: "7.0.0",
    group: "string",
    summary: "Finds the longest common substring.",
    complexity: "O(N*M) where N and M are the lengths of s1 and s2, respectively",
    syntax: "key1 key2 [LEN] [IDX] [MINMATCHLEN min-match-len] [WITHMATCHLEN]",
    ..Command::DEFAULT
}];

#[derive(Clone, Copy, Debug, Default)]
struct Options {
    len: bool,
    idx: bool,
    min_match_len: usize,
    with_match_len: bool,
}

impl Options {
    fn parse(args: Args<'_>) -> Result<Self, Error> {
        let mut options = Self::default();
        let mut at = 3;
        while at < args.len() {
            if args.is(at, "IDX") {
                options.idx = true;
            } else if args.is(at, "LEN") {
                options.len = true;
            } else if args.is(at, "WITHMATCHLEN") {
                options.with_match_len = true;
            } else if args.is(at, "MINMATCHLEN") && at + 1 < args.len() {
                options.min_match_len = usize::try_from(args.int(at + 1)?).unwrap_or(0);
                at += 1;
            } else {
                return Err(Error::Syntax);
            }
            at += 1;
        }
        if options.idx && options.len {
            return Err(Error::text("ERR If you want both the length and indexes, please just use IDX."));
        }
        Ok(options)
    }
}

/// A part's reply: the longest string in bytes that a client may send, then the strings at its keys, absent ones empty.
/// A string that is too long whatever it is compared with is refused before it is copied.
fn read(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply) -> Result<Flow, Error> {
    let bytes_max = ctx.shard.settings.proto_max_bulk_len;
    reply.int(bytes_max as i64);
    for idx in ctx.keys.indices() {
        let key = ctx.key(args.at(idx));
        match ctx.find(key).map(|entry| entry.string().map(|string| string.len())) {
            None => {}
            Some(Some(len)) => {
                cells(len, 0, bytes_max)?;
            }
            Some(None) => {
                // Both keys are looked up before anybody looks what they hold.
                for idx in ctx.keys.indices().filter(|later| *later >= idx) {
                    ctx.lookup(ctx.key(args.at(idx)));
                }
                return Err(Error::text("ERR The specified keys must contain string values"));
            }
        }
        write_string(ctx, args.at(idx), reply)?;
    }
    Ok(Flow::Done)
}

/// How many lengths the table of two strings has, if it may have that many: it is limited as strings are.
fn cells(a_len: usize, b_len: usize, bytes_max: usize) -> Result<usize, Error> {
    if a_len.max(b_len) >= u32::MAX as usize - 1 {
        return Err(Error::text("ERR String too long for LCS"));
    }
    let cells = (a_len + 1) * (b_len + 1);
    if cells > bytes_max / size_of::<u32>() {
        return Err(Error::text(
            "ERR Insufficient memory, transient memory for LCS exceeds proto-max-bulk-len",
        ));
    }
    Ok(cells)
}

fn compare(parts: &[PartResult], args: Args<'_>, reply: &mut Reply) {
    let (mut strings, mut bytes_max): ([Bytes; 2], usize) = Default::default();
    for part in parts {
        let bytes = part.reply.slices().collect::<Vec<_>>().concat();
        let mut at = 0;
        let mut next = || {
            let (frame, len) = decode(&bytes[at..]).ok().flatten().expect("a part writes whole replies");
            at += len;
            frame
        };
        if let Frame::Int(max) = next() {
            bytes_max = max as usize;
        }
        for key in &part.keys {
            if let Frame::Bulk(value) = next() {
                strings[*key as usize - 1] = value;
            }
        }
    }
    // As in Valkey, what the keys hold is looked at before the options are.
    let table = Options::parse(args)
        .and_then(|options| Ok((options, Table::new(&strings[0], &strings[1], bytes_max)?)));
    match table {
        Ok((options, table)) => table.write(options, reply),
        Err(error) => reply.error_bytes(&error.wire()),
    }
}

/// Lengths of the longest common subsequences of all prefixes (Wagner and Fischer, 1974).
struct Table<'a> {
    a: &'a [u8],
    b: &'a [u8],
    lens: Vec<u32>,
}

/// A run of equal bytes: where it starts in both strings, and how long it is.
struct Match {
    a: usize,
    b: usize,
    len: usize,
}

impl<'a> Table<'a> {
    fn new(a: &'a [u8], b: &'a [u8], bytes_max: usize) -> Result<Self, Error> {
        let cells = cells(a.len(), b.len(), bytes_max)?;
        let mut lens = Vec::new();
        lens.try_reserve_exact(cells).map_err(|_| {
            Error::text("ERR Insufficient memory, failed allocating transient memory for LCS")
        })?;
        lens.resize(cells, 0);
        let width = b.len() + 1;
        for i in 1..=a.len() {
            for j in 1..=b.len() {
                let at = i * width + j;
                lens[at] = if a[i - 1] == b[j - 1] {
                    lens[at - width - 1] + 1
                } else {
                    lens[at - width].max(lens[at - 1])
                };
            }
        }
        Ok(Self { a, b, lens })
    }

    fn len_at(&self, i: usize, j: usize) -> u32 {
        self.lens[i * (self.b.len() + 1) + j]
    }

    /// The subsequence, and its runs from the last to the first, as Redis walks back through the table.
    fn walk_back(&self) -> (Vec<u8>, Vec<Match>) {
        let (mut i, mut j) = (self.a.len(), self.b.len());
        let (mut found, mut matches): (Vec<u8>, Vec<Match>) = (Vec::new(), Vec::new());
        while i > 0 && j > 0 {
            if self.a[i - 1] == self.b[j - 1] {
                found.push(self.a[i - 1]);
                (i, j) = (i - 1, j - 1);
                match matches.last_mut() {
                    Some(run) if run.a == i + 1 && run.b == j + 1 => {
                        *run = Match { a: i, b: j, len: run.len + 1 };
                    }
                    _ => matches.push(Match { a: i, b: j, len: 1 }),
                }
            } else if self.len_at(i - 1, j) > self.len_at(i, j - 1) {
                i -= 1;
            } else {
                j -= 1;
            }
        }
        found.reverse();
        (found, matches)
    }

    fn write(&self, options: Options, reply: &mut Reply) {
        let len = self.len_at(self.a.len(), self.b.len());
        if options.len {
            return reply.int(len.into());
        }
        let (found, matches) = self.walk_back();
        if !options.idx {
            return reply.bulk(&found);
        }
        let shown: Vec<&Match> = matches
            .iter()
            .filter(|run| options.min_match_len == 0 || run.len >= options.min_match_len)
            .collect();
        reply.map(2);
        reply.bulk(b"matches");
        reply.array(shown.len());
        for run in shown {
            reply.array(2 + usize::from(options.with_match_len));
            for start in [run.a, run.b] {
                reply.array(2);
                reply.int(start as i64);
                reply.int((start + run.len - 1) as i64);
            }
            if options.with_match_len {
                reply.int(run.len as i64);
            }
        }
        reply.bulk(b"len");
        reply.int(len.into());
    }
}

#[cfg(test)]
mod tests {
    use crate::commands::testing::check_all;

    #[test]
    fn subsequences_are_those_of_the_documentation() {
        check_all(&[
            ("MSET a ohmytext b mynewtext", "+OK"),
            ("LCS a b\nLCS a b LEN\nLCS a x\nLCS x y LEN", "\"mytext\"\n:6\n\"\"\n:0"),
            ("LCS a b IDX", "[\"matches\", [[[:4, :7], [:5, :8]], [[:2, :3], [:0, :1]]], \"len\", :6]"),
            (
                "LCS a b IDX MINMATCHLEN 4 WITHMATCHLEN",
                "[\"matches\", [[[:4, :7], [:5, :8], :4]], \"len\", :6]",
            ),
            ("LCS a b IDX LEN", "-ERR If you want both the length and indexes, please just use IDX."),
            ("LCS a b MINMATCHLEN", "-ERR syntax error"),
            ("LCS a b MINMATCHLEN x", "-ERR value is not an integer or out of range"),
        ]);
    }

    #[test]
    fn tables_larger_than_a_string_may_be_are_refused() {
        let too_large = "-ERR Insufficient memory, transient memory for LCS exceeds proto-max-bulk-len";
        check_all(&[
            // 30 001 × 4 474 lengths of four bytes: 536 897 896 bytes.
            ("SETRANGE a 29999 x\nSETRANGE b 4472 x", ":30000\n:4473"),
            ("LCS a b LEN", too_large),
            ("LCS a b IDX", too_large),
            ("LCS a missing LEN", ":0"),
            // Too long beside an empty string.
            ("SETRANGE c 134217727 x", ":134217728"),
            ("LCS c missing LEN", too_large),
        ]);
    }

    #[test]
    fn the_limit_itself_is_allowed() {
        assert_eq!(super::cells(3, 4, 80), Ok(20));
        assert!(super::cells(3, 4, 79).is_err());
        assert!(super::cells(u32::MAX as usize, 0, usize::MAX).is_err());
    }
}
