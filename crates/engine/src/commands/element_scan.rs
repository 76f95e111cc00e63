//! What the commands share that iterate over the elements of a collection: HSCAN, ZSCAN.

use super::scan::{COUNT_DEFAULT, SCAN_STEP_MAX, parse_cursor};
use crate::args::Args;
use crate::errors::Error;
use crate::glob::glob_match;
use corelane_resp::Reply;

/// A cursor is the upper bits of a place in the order of a table.
const CURSOR_SHIFT: u32 = 16;

/// Where the iteration goes on; `None` for a cursor that no call can have returned.
pub(super) fn parse_place(args: Args<'_>) -> Result<Option<u64>, Error> {
    let cursor = parse_cursor(args.at(2)).ok_or(Error::InvalidCursor)?;
    Ok((cursor >> (u64::BITS - CURSOR_SHIFT) == 0).then_some(cursor << CURSOR_SHIFT))
}

/// What the call was asked for.
pub(super) struct ElementScan<'a> {
    pattern: Option<&'a [u8]>,
    /// How many elements of a large collection to look at.
    pub(super) count: usize,
    /// Only fields or members, without what belongs to them.
    pub(super) names_only: bool,
}

impl<'a> ElementScan<'a> {
    /// Reads the options behind the cursor. `names_only` is the word that leaves out values or scores, if there is one.
    pub(super) fn parse(args: Args<'a>, names_only: &str) -> Result<Self, Error> {
        let mut options = Self { pattern: None, count: COUNT_DEFAULT, names_only: false };
        let mut idx = 3;
        while idx < args.len() {
            let has_value = idx + 1 < args.len();
            if args.is(idx, "COUNT") && has_value {
                let count = args.int(idx + 1)?;
                let count = usize::try_from(count).ok().filter(|count| *count != 0).ok_or(Error::Syntax)?;
                options.count = count.min(SCAN_STEP_MAX);
                idx += 1;
            } else if args.is(idx, "MATCH") && has_value {
                options.pattern = Some(args.at(idx + 1));
                idx += 1;
            } else if !names_only.is_empty() && args.is(idx, names_only) {
                options.names_only = true;
            } else if args.is(idx, "NOVALUES") {
                return Err(Error::text("ERR NOVALUES option can only be used in HSCAN"));
            } else if args.is(idx, "NOSCORES") {
                return Err(Error::text("ERR NOSCORES option can only be used in ZSCAN"));
            } else {
                return Err(Error::Syntax);
            }
            idx += 1;
        }
        Ok(options)
    }

    /// Whether an element is to be returned.
    pub(super) fn matches(&self, name: &[u8]) -> bool {
        self.pattern.is_none_or(|pattern| pattern == b"*" || glob_match(pattern, name, false))
    }
}

/// Writes the reply: where to go on, and `count` elements in `found`.
pub(super) fn write_found(reply: &mut Reply, next: Option<u64>, count: usize, found: &mut Reply) {
    reply.array(2);
    reply.bulk((next.unwrap_or(0) >> CURSOR_SHIFT).to_string().as_bytes());
    reply.array(count);
    reply.append(found);
}
