//! Dates and times of day in UTC, as the tools write them.

use std::time::{SystemTime, UNIX_EPOCH};

const DAY_S: u64 = 86_400;

fn unix_s() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs())
}

/// Year, month and day.
pub(crate) fn today() -> String {
    date(unix_s() / DAY_S)
}

/// The moment, as `2026-11-21T12:34:56Z`.
pub(crate) fn now() -> String {
    moment(unix_s())
}

fn moment(unix_s: u64) -> String {
    let second = unix_s % DAY_S;
    format!("{}T{:02}:{:02}:{:02}Z", date(unix_s / DAY_S), second / 3600, second / 60 % 60, second % 60)
}

/// The date so many days after the first of 1970. Years begin in March here, so that the odd day comes last.
fn date(days: u64) -> String {
    const ERA_DAYS: u64 = 146_097;
    let days = days + 719_468;
    let (era, day) = (days / ERA_DAYS, days % ERA_DAYS);
    let year = (day - day / 1460 + day / 36_524 - day / (ERA_DAYS - 1)) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let day = day - (153 * month + 2) / 5 + 1;
    let (month, next) = if month < 10 { (month + 3, 0) } else { (month - 9, 1) };
    format!("{:04}-{month:02}-{day:02}", era * 400 + year + next)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_become_moments() {
        assert_eq!(moment(0), "1970-01-01T00:00:00Z");
        assert_eq!(moment(20_778 * DAY_S + 45_296), "2026-11-21T12:34:56Z");
    }

    #[test]
    fn days_become_dates() {
        for (days, expected) in [
            (0, "1970-01-01"),
            (59, "1970-03-01"),
            (11_016, "2000-02-29"),
            (11_017, "2000-03-01"),
            (20_778, "2026-11-21"),
        ] {
            assert_eq!(date(days), expected);
        }
    }
}
