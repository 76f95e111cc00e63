//! What SORT was asked for.

use super::sort::SOURCE;
use super::sort_order::{Collation, Direction, Weights, arrange};
use super::sort_pattern::{Pattern, names_keys};
use crate::args::Args;
use crate::errors::Error;
use std::ops::Range;

/// What SORT was asked for.
pub(super) struct Options<'a> {
    pub(super) by: Option<Pattern<'a>>,
    /// Some BY without a `*`: the elements stay in the order of their source.
    pub(super) unsorted: bool,
    pub(super) alpha: bool,
    pub(super) descending: bool,
    pub(super) offset: i64,
    /// Negative for all.
    pub(super) count: i64,
    pub(super) gets: Vec<Pattern<'a>>,
    /// The index of the destination.
    pub(super) store: Option<usize>,
}

/// By what elements are sorted.
#[derive(Clone, Copy)]
pub(super) struct Sorting<'a> {
    pub(super) by: Option<Pattern<'a>>,
    pub(super) alpha: bool,
}

impl<'a> Options<'a> {
    pub(super) fn parse(args: Args<'a>, may_store: bool) -> Result<Self, Error> {
        let mut options = Self {
            by: None,
            unsorted: false,
            alpha: false,
            descending: false,
            offset: 0,
            count: -1,
            gets: Vec::new(),
            store: None,
        };
        let mut idx = SOURCE + 1;
        while idx < args.len() {
            let more = args.len() - idx - 1;
            if args.is(idx, "ASC") {
                options.descending = false;
            } else if args.is(idx, "DESC") {
                options.descending = true;
            } else if args.is(idx, "ALPHA") {
                options.alpha = true;
            } else if args.is(idx, "LIMIT") && more >= 2 {
                (options.offset, options.count) = (args.int(idx + 1)?, args.int(idx + 2)?);
                idx += 2;
            } else if may_store && args.is(idx, "STORE") && more >= 1 {
                idx += 1;
                options.store = Some(idx);
            } else if args.is(idx, "BY") && more >= 1 {
                idx += 1;
                options.by = Some(Pattern::parse(args.at(idx)));
                options.unsorted |= !names_keys(args.at(idx));
            } else if args.is(idx, "GET") && more >= 1 {
                idx += 1;
                options.gets.push(Pattern::parse(args.at(idx)));
            } else {
                return Err(Error::Syntax);
            }
            idx += 1;
        }
        Ok(options)
    }

    /// The part of `len` elements that LIMIT names.
    pub(super) fn range(&self, len: usize) -> Range<usize> {
        let start = usize::try_from(self.offset).unwrap_or(0).min(len);
        let count = usize::try_from(self.count).unwrap_or(len).min(len - start);
        start..start + count
    }

    /// How to sort; `None` if not at all. What is stored of a set has an order that does not depend on how the set is kept.
    pub(super) fn sorting(&self, is_set: bool) -> Option<Sorting<'a>> {
        match self.unsorted {
            true if is_set && self.store.is_some() => Some(Sorting { by: None, alpha: true }),
            true => None,
            false => Some(Sorting { by: self.by, alpha: self.alpha }),
        }
    }

    pub(super) fn direction(&self) -> Direction {
        // What is stored does not depend on a locale.
        let collation = if self.store.is_some() { Collation::Bytes } else { Collation::Locale };
        Direction { descending: self.descending, collation }
    }

    pub(super) fn fetches(&self) -> bool {
        self.gets.iter().any(|pattern| pattern.is_key())
    }

    /// Texts per element of the result.
    pub(super) fn width(&self) -> usize {
        self.gets.len().max(1)
    }

    /// The numbers of the elements of the result, in its order.
    pub(super) fn arrange<T: AsRef<[u8]>>(&self, elements: &[&[u8]], weights: &Weights<T>) -> Vec<u32> {
        arrange(elements, weights, self.direction(), self.range(elements.len()))
    }
}
