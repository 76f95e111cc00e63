//! LCS: the longest common subsequence of two strings, wherever they live.

use super::string::write_string;
use crate::args::Args;
use crate::command::{Command, Find, Flags, Flow, KeyFlags, KeySpec, Merge, Plan};
use crate::ctx::{Ctx, PartResult};
use crate::errors::Error;
use crate::settings::Settings;
use corelane_resp::{Frame, Reply, decode};

/// Bytes of the table of lengths, as Valkey limits it.
const TABLE_BYTES_MAX: usize = 4 << 30;

pub(super) const COMMANDS: &[Command] = &[Command {
    name: "lcs",
    arity: -3,
    flags: Flags::READONLY,
    keys: &[KeySpec {
        flags: KeyFlags::RO.with(KeyFlags::ACCESS),
        begin: 1,
        find: Find::Range { last: 1, step: 1 },
        notes: None,
    }],
    plan: Plan::EachShard { part: read, merge: Merge::With(compare) },
    check: Some(|args: Args<'_>, _: &Settings| Options::parse(args).map(|_| ())),
    since: "7.0.0",
    group: "string",
    summary: "Finds the longest common subsequence of two strings.",
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

/// A part's reply: the strings at its keys, absent ones empty.
fn read(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply) -> Result<Flow, Error> {
    for idx in ctx.keys.indices() {
        write_string(ctx, args.at(idx), reply)
            .map_err(|_| Error::text("ERR The specified keys must contain string values"))?;
    }
    Ok(Flow::Done)
}

fn compare(parts: &[PartResult], args: Args<'_>, reply: &mut Reply) {
    let mut strings: [Vec<u8>; 2] = Default::default();
    for part in parts {
        let bytes: Vec<u8> = part.reply.slices().flatten().copied().collect();
        let mut at = 0;
        for key in &part.keys {
            let Ok(Some((frame, len))) = decode(&bytes[at..]) else { break };
            at += len;
            if let Frame::Bulk(value) = frame {
                strings[*key as usize - 1] = value.to_vec();
            }
        }
    }
    let options = Options::parse(args).unwrap_or_default();
    match Table::new(&strings[0], &strings[1]) {
        Some(table) => table.write(options, reply),
        None => reply.error("ERR String too long for LCS"),
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
    fn new(a: &'a [u8], b: &'a [u8]) -> Option<Self> {
        let cells = (a.len() + 1).checked_mul(b.len() + 1)?;
        let mut lens = Vec::new();
        if cells > TABLE_BYTES_MAX / size_of::<u32>() || lens.try_reserve_exact(cells).is_err() {
            return None;
        }
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
        Some(Self { a, b, lens })
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
}
