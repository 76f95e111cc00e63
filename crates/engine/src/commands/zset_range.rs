//! Ranges of sorted sets as commands name them: by rank, by score or by member; and which ranks they come to.

use crate::args::{Args, parse_int};
use crate::errors::{Error, echoed};
use crate::values::SortedSetRef;

/// A score as ZADD takes it: any number but NaN that a double can hold.
pub(super) fn parse_score(text: &[u8]) -> Option<f64> {
    let score = parse_number(text)?;
    let is_named = text.iter().any(|byte| matches!(byte, b'n' | b'N'));
    let digits = text.split(|byte| matches!(byte, b'e' | b'E')).next().unwrap_or_default();
    let underflown = score == 0.0 && digits.iter().any(|byte| matches!(byte, b'1'..=b'9'));
    ((score.is_finite() || is_named) && !underflown).then_some(score)
}

/// Any number but NaN; where it is too great for a double, infinity.
fn parse_number(text: &[u8]) -> Option<f64> {
    let number: f64 = std::str::from_utf8(text).ok()?.parse().ok()?;
    (!number.is_nan()).then_some(number)
}

/// An end of a range.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bound<T> {
    value: T,
    excluded: bool,
}

/// An end of a range of members.
#[derive(Clone, Copy, Debug)]
pub(super) enum Lex<'a> {
    /// Before all members.
    First,
    /// Behind all members.
    Last,
    /// At this one.
    At(Bound<&'a [u8]>),
}

/// What ranges are told by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum By {
    /// First and last rank; negative ones count from the end.
    Rank,
    /// Least and greatest score.
    Score,
    /// Least and greatest member; for sets whose scores are all the same.
    Lex,
}

/// A range.
#[derive(Clone, Copy, Debug)]
pub(super) enum Range<'a> {
    /// By rank.
    Rank(i64, i64),
    /// By score.
    Score(Bound<f64>, Bound<f64>),
    /// By member.
    Lex(Lex<'a>, Lex<'a>),
}

/// Valkey reads it as a text of C, up to its first NUL.
fn score_bound(text: &[u8]) -> Result<Bound<f64>, Error> {
    let (excluded, digits) = match echoed(text) {
        [b'(', rest @ ..] => (true, rest),
        digits => (false, digits),
    };
    let value = if digits.is_empty() { Some(0.0) } else { parse_number(digits) };
    let value = value.ok_or(Error::text("ERR min or max is not a float"))?;
    Ok(Bound { value, excluded })
}

fn lex_bound(text: &[u8]) -> Result<Lex<'_>, Error> {
    match text {
        [b'-'] | [b'-', 0, ..] => Ok(Lex::First),
        [b'+'] | [b'+', 0, ..] => Ok(Lex::Last),
        [b'(', value @ ..] => Ok(Lex::At(Bound { value, excluded: true })),
        [b'[', value @ ..] => Ok(Lex::At(Bound { value, excluded: false })),
        _ => Err(Error::text("ERR min or max not valid string range item")),
    }
}

fn before_score(score: f64, least: Bound<f64>) -> bool {
    if least.excluded { score <= least.value } else { score < least.value }
}

fn up_to_score(score: f64, greatest: Bound<f64>) -> bool {
    if greatest.excluded { score < greatest.value } else { score <= greatest.value }
}

impl Lex<'_> {
    fn is_behind(self, member: &[u8]) -> bool {
        match self {
            Self::First => false,
            Self::Last => true,
            Self::At(Bound { value, excluded: true }) => member <= value,
            Self::At(Bound { value, .. }) => member < value,
        }
    }

    fn is_reached_by(self, member: &[u8]) -> bool {
        match self {
            Self::First => false,
            Self::Last => true,
            Self::At(Bound { value, excluded: true }) => member < value,
            Self::At(Bound { value, .. }) => member <= value,
        }
    }
}

impl<'a> Range<'a> {
    /// A range whose ends are given.
    pub(super) fn parse(by: By, min: &'a [u8], max: &'a [u8]) -> Result<Self, Error> {
        let int = |text| parse_int(text).ok_or(Error::NotInteger);
        Ok(match by {
            By::Rank => Self::Rank(int(min)?, int(max)?),
            By::Score => Self::Score(score_bound(min)?, score_bound(max)?),
            By::Lex => Self::Lex(lex_bound(min)?, lex_bound(max)?),
        })
    }

    /// The first rank in the range and how many there are. Ranges by rank count from the end where `reverse`.
    pub(super) fn ranks(self, set: SortedSetRef<'_>, reverse: bool) -> (usize, usize) {
        let (from, end) = match self {
            Self::Rank(first, last) => {
                let Some((first, end)) = between(first, last, set.len()) else { return (0, 0) };
                if reverse { (set.len() - end, set.len() - first) } else { (first, end) }
            }
            Self::Score(min, max) => (
                set.count_while(&|score, _| before_score(score, min)),
                set.count_while(&|score, _| up_to_score(score, max)),
            ),
            Self::Lex(min, max) => (
                set.count_while(&|_, member| min.is_behind(member)),
                set.count_while(&|_, member| max.is_reached_by(member)),
            ),
        };
        (from, end.saturating_sub(from))
    }

    /// The same in ascending order, of a set of whose members in the range so many have been removed.
    pub(super) fn ranks_left(self, set: SortedSetRef<'_>, removed: usize) -> (usize, usize) {
        let Self::Rank(first, last) = self else { return self.ranks(set, false) };
        let (first, end) = between(first, last, set.len() + removed).unwrap_or_default();
        (first, (end - first).saturating_sub(removed))
    }
}

/// The first rank and the one behind the last, both of which count from the end where they are negative; `None` if there are none.
fn between(first: i64, last: i64, len: usize) -> Option<(usize, usize)> {
    let len = len as i64;
    let place = |rank: i64| if rank < 0 { rank.saturating_add(len) } else { rank };
    let (first, last) = (place(first).max(0), place(last).min(len - 1));
    (first <= last).then(|| (first as usize, last as usize + 1))
}

/// What a command of the family of ZRANGE asks for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Query<'a> {
    pub(super) range: Range<'a>,
    /// From the greatest to the least.
    pub(super) reverse: bool,
    /// Scores too.
    pub(super) scores: bool,
    offset: i64,
    limit: i64,
}

/// What the name of a command says about its query.
#[derive(Clone, Copy, Debug)]
pub(super) struct Preset {
    /// `None` where options say it.
    pub(super) by: Option<By>,
    /// `None` where an option says it.
    pub(super) reverse: Option<bool>,
    /// The result is stored, so there is no option for scores.
    pub(super) store: bool,
}

impl<'a> Query<'a> {
    /// Reads both ends at `at` and the options behind them.
    pub(super) fn parse(args: Args<'a>, at: usize, preset: Preset) -> Result<Self, Error> {
        let (mut by, mut reverse, mut scores) = (preset.by, preset.reverse, false);
        let (mut offset, mut limit) = (0, -1);
        let mut idx = at + 2;
        while idx < args.len() {
            if !preset.store && args.is(idx, "WITHSCORES") {
                scores = true;
            } else if args.is(idx, "LIMIT") && idx + 2 < args.len() {
                (offset, limit) = (args.int(idx + 1)?, args.int(idx + 2)?);
                idx += 2;
            } else if reverse.is_none() && args.is(idx, "REV") {
                reverse = Some(true);
            } else if by.is_none() && args.is(idx, "BYLEX") {
                by = Some(By::Lex);
            } else if by.is_none() && args.is(idx, "BYSCORE") {
                by = Some(By::Score);
            } else {
                return Err(Error::Syntax);
            }
            idx += 1;
        }
        let (by, reverse) = (by.unwrap_or(By::Rank), reverse.unwrap_or(false));
        if limit != -1 && by == By::Rank {
            return Err(Error::text(
                "ERR syntax error, LIMIT is only supported in combination with either BYSCORE or BYLEX",
            ));
        }
        if scores && by == By::Lex {
            return Err(Error::text("ERR syntax error, WITHSCORES not supported in combination with BYLEX"));
        }
        let (mut min, mut max) = (args.at(at), args.at(at + 1));
        if reverse && by != By::Rank {
            (min, max) = (max, min);
        }
        if by == By::Rank {
            (offset, limit) = (0, -1);
        }
        Ok(Self { range: Range::parse(by, min, max)?, reverse, scores, offset, limit })
    }

    /// Where to begin, counted from the end where the query is reversed, and how many members there are.
    pub(super) fn part(&self, set: SortedSetRef<'_>) -> (usize, usize) {
        let (first, count) = self.range.ranks(set, self.reverse);
        let from = if self.reverse { set.len() - first - count } else { first };
        let skipped = match usize::try_from(self.offset) {
            Ok(offset) => offset,
            // Valkey counts such an offset from the end of the range, but finds nothing in a small set.
            Err(_) if matches!(set, SortedSetRef::Pack(_)) => count,
            Err(_) => {
                let behind = usize::try_from(self.offset.unsigned_abs()).unwrap_or(usize::MAX);
                count.checked_sub(behind).unwrap_or(count)
            }
        };
        let left = count.saturating_sub(skipped);
        let limit = usize::try_from(self.limit).unwrap_or(usize::MAX);
        if left == 0 { (0, 0) } else { (from + skipped, left.min(limit)) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scores_are_read_as_valkey_reads_them() {
        for (text, score) in [("+1", 1.0), ("1.", 1.0), (".5", 0.5), ("INF", f64::INFINITY), ("0e-999", 0.0)]
        {
            assert_eq!(parse_score(text.as_bytes()), Some(score), "{text}");
        }
        for text in ["", "(", " 1", "1 ", "0x10", "1e400", "-1e400", "1e-400", "nan", "-NaN", "1e", "1_0"] {
            assert_eq!(parse_score(text.as_bytes()), None, "{text:?}");
        }
    }
}
