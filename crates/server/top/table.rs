//! The table of shards: its columns, as many as fit, and the order of its rows.

use std::cmp::Ordering;

use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};

use super::history::{History, RowRates};
use super::look::ShardLook;
use super::text::{bar, count, duration};

/// Columns of a bar where there is no more room.
const BAR_MIN: usize = 6;
const BAR_MAX: usize = 40;

/// What rows can be in the order of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Sort {
    #[default]
    Shard,
    Cpu,
    Commands,
    Keys,
    Hops,
}

impl Sort {
    const ALL: [Self; 5] = [Self::Shard, Self::Cpu, Self::Commands, Self::Keys, Self::Hops];

    pub(super) fn next(self) -> Self {
        let place = Self::ALL.iter().position(|sort| *sort == self).unwrap_or(0);
        Self::ALL[(place + 1) % Self::ALL.len()]
    }

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Shard => "shard",
            Self::Cpu => "cpu %",
            Self::Commands => "commands/s",
            Self::Keys => "keys",
            Self::Hops => "hops/s",
        }
    }

    /// Shards by number, all else with the most first.
    fn compare(self, one: &Row<'_>, other: &Row<'_>) -> Ordering {
        let most = |of: &dyn Fn(&Row<'_>) -> f64| of(other).total_cmp(&of(one));
        match self {
            Self::Shard => one.number.cmp(&other.number),
            Self::Cpu => most(&|row| row.rates.cpu_percent.unwrap_or(-1.0)),
            Self::Commands => most(&|row| row.rates.commands),
            Self::Keys => most(&|row| row.look.keys as f64),
            Self::Hops => most(&|row| row.rates.hops),
        }
    }
}

struct Row<'a> {
    number: usize,
    look: &'a ShardLook,
    rates: RowRates,
}

/// A column: its head, how wide it is, which sorting it stands for, and whether it has a bar in front.
struct Column {
    head: &'static str,
    width: usize,
    sort: Option<Sort>,
    bar: Option<Bar>,
    cell: fn(&Row<'_>) -> String,
}

/// A bar in front of a number.
struct Bar {
    of: fn(&Row<'_>) -> f64,
    /// What fills it; `None`: the largest of all rows.
    full: Option<f64>,
    color: Color,
    /// Goes where the terminal is narrow.
    expendable: bool,
}

/// A column that fits, and what fills its bar if there is room for that.
struct Fitting {
    column: &'static Column,
    bar: Option<(&'static Bar, f64)>,
}

static COLUMNS: [Column; 10] = [
    plain("shard", 5, Some(Sort::Shard), |row| row.number.to_string()),
    plain("cpu", 3, None, |row| row.look.cpu.clone()),
    Column {
        bar: Some(Bar {
            full: Some(100.0),
            expendable: false,
            ..relative(|row| row.rates.cpu_percent.unwrap_or(0.0), Color::Green)
        }),
        ..plain("cpu %", 5, Some(Sort::Cpu), |row| {
            row.rates.cpu_percent.map_or_else(|| "-".to_owned(), |share| format!("{share:.1}"))
        })
    },
    Column {
        bar: Some(Bar { expendable: false, ..relative(|row| row.rates.commands, Color::Cyan) }),
        ..plain("commands/s", 5, Some(Sort::Commands), |row| count(row.rates.commands))
    },
    Column {
        bar: Some(relative(|row| row.look.keys as f64, Color::Blue)),
        ..plain("keys", 5, Some(Sort::Keys), |row| count(row.look.keys as f64))
    },
    plain("clients", 7, None, |row| count(row.look.connections as f64)),
    Column {
        bar: Some(relative(|row| row.rates.hops, Color::Magenta)),
        ..plain("hops/s", 6, Some(Sort::Hops), |row| count(row.rates.hops))
    },
    plain("mail", 4, None, |row| count(row.look.mail_waiting as f64)),
    plain("p99.9", 7, None, |row| optional(row.look.turn_us_p999)),
    plain("max", 7, None, |row| optional(row.look.turn_us_max)),
];

/// Which columns go first where the terminal is narrow.
const EXPENDABLE: [&str; 6] = ["cpu", "max", "mail", "p99.9", "clients", "hops/s"];

const fn plain(head: &'static str, width: usize, sort: Option<Sort>, cell: fn(&Row<'_>) -> String) -> Column {
    Column { head, width, sort, bar: None, cell }
}

const fn relative(of: fn(&Row<'_>) -> f64, color: Color) -> Bar {
    Bar { of, full: None, color, expendable: true }
}

fn optional(us: Option<u64>) -> String {
    us.map_or_else(|| "-".to_owned(), |us| duration(us as f64))
}

/// The columns that fit, and how wide their bars are.
fn fitting(width: usize, rows: &[Row<'_>]) -> (Vec<Fitting>, usize) {
    let mut columns: Vec<Fitting> = COLUMNS
        .iter()
        .map(|column| {
            let most = |bar: &Bar| rows.iter().map(bar.of).fold(1.0, f64::max);
            Fitting {
                column,
                bar: column.bar.as_ref().map(|bar| (bar, bar.full.unwrap_or_else(|| most(bar)))),
            }
        })
        .collect();
    let needed = |columns: &[Fitting]| -> usize {
        columns.iter().map(|one| one.column.width + 1 + one.bar.map_or(0, |_| BAR_MIN + 1)).sum()
    };
    if needed(&columns) > width {
        columns.iter_mut().for_each(|one| one.bar = one.bar.filter(|(bar, _)| !bar.expendable));
    }
    for head in EXPENDABLE {
        if needed(&columns) <= width {
            break;
        }
        columns.retain(|one| one.column.head != head);
    }
    let bars = columns.iter().filter(|one| one.bar.is_some()).count().max(1);
    let spare = width.saturating_sub(needed(&columns)) / bars;
    (columns, (BAR_MIN + spare).min(BAR_MAX))
}

/// The head, and a line for each row from `first` on, `rows_max` at most. Also how many there are in all.
pub(super) fn lines(
    history: &History,
    sort: Sort,
    reversed: bool,
    first: usize,
    rows_max: usize,
    width: usize,
) -> (Vec<Line<'static>>, usize) {
    let mut rows: Vec<Row<'_>> =
        history.last.iter().flat_map(|look| look.rows()).enumerate().map(row_of(history)).collect();
    rows.sort_by(|one, other| sort.compare(one, other));
    if reversed {
        rows.reverse();
    }
    let (columns, bar_width) = fitting(width, &rows);
    let mut lines = vec![head(&columns, sort, bar_width)];
    lines.extend(rows.iter().skip(first).take(rows_max).map(|row| line(row, &columns, bar_width)));
    (lines, rows.len())
}

fn row_of<'a>(history: &'a History) -> impl Fn((usize, &'a ShardLook)) -> Row<'a> {
    |(number, look)| Row { number, look, rates: history.rates.rows.get(number).copied().unwrap_or_default() }
}

fn head(columns: &[Fitting], sort: Sort, bar_width: usize) -> Line<'static> {
    let cells = columns.iter().map(|Fitting { column, bar }| {
        let width = column.width + bar.map_or(0, |_| bar_width + 1);
        let style = if column.sort == Some(sort) {
            Style::new().add_modifier(Modifier::BOLD | Modifier::UNDERLINED)
        } else {
            Style::new().add_modifier(Modifier::DIM)
        };
        [Span::raw(" ".repeat(1 + width - column.head.len())), Span::styled(column.head, style)]
    });
    Line::from(cells.flatten().collect::<Vec<_>>())
}

fn line(row: &Row<'_>, columns: &[Fitting], bar_width: usize) -> Line<'static> {
    let mut spans = Vec::new();
    for Fitting { column, bar: filled } in columns {
        if let Some((of, full)) = filled {
            let share = (of.of)(row) / full;
            let color = match (column.sort, share) {
                (Some(Sort::Cpu), share) if share >= 0.95 => Color::Red,
                (Some(Sort::Cpu), share) if share >= 0.75 => Color::Yellow,
                _ => of.color,
            };
            spans.push(Span::raw(" "));
            spans.push(Span::styled(bar(share, bar_width), Style::new().fg(color)));
        }
        spans.push(Span::raw(format!(" {:>width$}", (column.cell)(row), width = column.width)));
    }
    Line::from(spans)
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::super::look::example;
    use super::*;

    fn shown(sort: Sort, reversed: bool, width: usize) -> Vec<String> {
        let (start, mut history) = (Instant::now(), History::default());
        history.add(example(start, 0));
        history.add(example(start + Duration::from_secs(1), 40_000));
        let (lines, total) = lines(&history, sort, reversed, 0, 10, width);
        assert_eq!(total, 2);
        lines.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn columns_stand_under_their_heads_and_fit() {
        let eighty = shown(Sort::Shard, false, 80);
        assert!(eighty[0].ends_with("    max"), "{}", eighty[0]);
        for width in [40, 60, 80, 132, 300] {
            let lines = shown(Sort::Shard, false, width);
            let widths: Vec<usize> = lines.iter().map(|line| line.chars().count()).collect();
            assert!(widths.iter().all(|len| *len == widths[0] && *len <= width), "{width}: {lines:#?}");
            assert!(lines[0].contains("commands/s") && lines[2].contains(" 30.0k"), "{lines:#?}");
            // Those of the commands alone are always there; the first shard has a third of the other's.
            let filled = |line: &str| line.chars().filter(|letter| *letter == '█').count();
            assert!(filled(&lines[2]) >= BAR_MIN && filled(&lines[1]) < filled(&lines[2]), "{lines:#?}");
        }
    }

    #[test]
    fn rows_are_in_the_order_asked_for() {
        let first = |sort, reversed| shown(sort, reversed, 80)[1].trim_start().chars().next();
        assert_eq!([first(Sort::Shard, false), first(Sort::Shard, true)], [Some('0'), Some('1')]);
        assert_eq!([first(Sort::Commands, false), first(Sort::Cpu, true)], [Some('1'), Some('0')]);
        let mut sort = Sort::Shard;
        for _ in Sort::ALL {
            sort = sort.next();
        }
        assert_eq!(sort, Sort::Shard);
    }
}
