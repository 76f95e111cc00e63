//! Deadlines as EXPIRE and HEXPIRE and their kin state them, of keys and of fields.

use crate::args::Args;
use crate::errors::Error;
use crate::keyspace::Millis;
use crate::wall::Present;

/// Milliseconds as the replies in seconds tell them.
pub(super) const fn to_seconds(ms: Millis) -> u64 {
    (ms + 500) / 1000
}

/// How a command states a deadline.
#[derive(Clone, Copy)]
pub(super) struct Form {
    pub(super) name: &'static str,
    pub(super) unit_ms: i64,
    /// From now on, not from 1970 on.
    pub(super) relative: bool,
}

impl Form {
    /// The deadline on the engine's clock; negative ones are in the past like others.
    pub(super) fn deadline(self, number: i64, present: Present) -> Result<i64, Error> {
        present.deadline(number, self.unit_ms, self.relative).ok_or_else(|| self.invalid())
    }

    /// The same, where a number must not be negative.
    pub(super) fn deadline_of_field(self, number: i64, present: Present) -> Result<Millis, Error> {
        if number < 0 {
            return Err(self.invalid());
        }
        self.deadline(number, present).map(|at| at.max(0) as Millis)
    }

    fn invalid(self) -> Error {
        Error::InvalidExpire(self.name.into())
    }
}

/// Under which condition a deadline is set.
#[derive(Default)]
pub(super) struct Condition {
    /// Only where there is none.
    nx: bool,
    /// Only where there is one.
    xx: bool,
    /// Only a later one; none is the latest.
    gt: bool,
    /// Only an earlier one; none is the latest.
    lt: bool,
}

impl Condition {
    /// Reads the options from the third argument on, up to the one at `end`.
    pub(super) fn parse(args: Args<'_>, end: usize) -> Result<Self, Error> {
        let mut condition = Self::default();
        for option in (3..end).map(|idx| args.at(idx)) {
            let flag = match option.to_ascii_lowercase().as_slice() {
                b"nx" => &mut condition.nx,
                b"xx" => &mut condition.xx,
                b"gt" => &mut condition.gt,
                b"lt" => &mut condition.lt,
                _ => return Err(Error::echo("ERR Unsupported option ", option, "")),
            };
            *flag = true;
        }
        if condition.nx && (condition.xx || condition.gt || condition.lt) {
            return Err(Error::text("ERR NX and XX, GT or LT options at the same time are not compatible"));
        }
        if condition.gt && condition.lt {
            return Err(Error::text("ERR GT and LT options at the same time are not compatible"));
        }
        Ok(condition)
    }

    pub(super) const fn is_none(&self) -> bool {
        !(self.nx || self.xx || self.gt || self.lt)
    }

    /// Whether it lets `new` take the place of `old`.
    pub(super) fn allows(&self, old: Option<Millis>, new: i64) -> bool {
        match old.map(|old| old as i64) {
            None => !self.xx && !self.gt,
            Some(old) => !self.nx && (!self.gt || new > old) && (!self.lt || new < old),
        }
    }
}
