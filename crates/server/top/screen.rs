//! What stands where on the screen, from the smallest terminal that makes sense to any larger one.

use std::time::Duration;

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Paragraph, Sparkline};

use super::history::History;
use super::look::Look;
use super::table::{self, Sort};
use super::text::{age, bar, bytes, count, duration};

/// Less is too small.
const WIDTH_MIN: u16 = 40;
const HEIGHT_MIN: u16 = 6;
/// From so many lines on there are bars of memory and hits, and from so many on curves.
const HEIGHT_OF_BARS: u16 = 11;
const HEIGHT_OF_CURVES: u16 = 18;
const CURVES_HEIGHT: u16 = 6;

/// What the keys have changed.
#[derive(Debug)]
pub(super) struct Screen {
    /// How the server is called.
    pub(super) target: String,
    pub(super) interval: Duration,
    pub(super) paused: bool,
    pub(super) sort: Sort,
    pub(super) reversed: bool,
    /// The first row that is shown.
    pub(super) first: usize,
    /// Nobody has answered for so long.
    pub(super) silent: Option<Duration>,
}

impl Screen {
    /// Draws everything.
    pub(super) fn draw(&mut self, frame: &mut Frame<'_>, history: &History) {
        let area = frame.area();
        let Some(look) = &history.last else { return };
        if area.width < WIDTH_MIN || area.height < HEIGHT_MIN {
            let text = format!("too small: {WIDTH_MIN} x {HEIGHT_MIN} at least");
            return frame.render_widget(Paragraph::new(text), area);
        }
        let curves = if area.height >= HEIGHT_OF_CURVES { CURVES_HEIGHT } else { 0 };
        let bars = if area.height >= HEIGHT_OF_BARS { 3 } else { 0 };
        let areas = Layout::vertical([
            Constraint::Length(1),
            Constraint::Length(curves),
            Constraint::Length(bars),
            Constraint::Min(2),
            Constraint::Length(1),
        ]);
        let [head, curves, bars, table, foot] = areas.areas(area);
        frame.render_widget(self.head(look, head.width), head);
        if curves.height > 0 {
            draw_curves(frame, curves, history);
        }
        if bars.height > 0 {
            frame.render_widget(Paragraph::new(bar_lines(look, history, bars.width)), bars);
        }
        let total = self.draw_table(frame, table, history);
        frame.render_widget(self.foot(total, usize::from(table.height) - 1), foot);
    }

    fn head(&self, look: &Look, width: u16) -> Paragraph<'static> {
        let mut spans = vec![
            Span::styled(format!(" {} ", look.name), Style::new().add_modifier(Modifier::BOLD)),
            Span::raw(format!("at {}, up {}, ", self.target, age(look.uptime_s))),
            Span::raw(format!("{} clients", count(look.clients as f64))),
        ];
        if look.blocked > 0 {
            spans.push(Span::raw(format!(", {} blocked", count(look.blocked as f64))));
        }
        let state = match (self.paused, self.silent) {
            (true, _) => Some("paused".to_owned()),
            (false, Some(time)) => Some(format!("no answer for {} s", time.as_secs())),
            _ => None,
        };
        if let Some(state) = state {
            let used: usize = spans.iter().map(Span::width).sum();
            let gap = usize::from(width).saturating_sub(used + state.len() + 2);
            spans.push(Span::raw(" ".repeat(gap.max(1))));
            let style = Style::new().fg(Color::Black).bg(Color::Yellow);
            spans.push(Span::styled(format!(" {state} "), style));
        }
        Paragraph::new(Line::from(spans))
    }

    /// Returns how many rows there are.
    fn draw_table(&mut self, frame: &mut Frame<'_>, area: Rect, history: &History) -> usize {
        let room = usize::from(area.height) - 1;
        let rows = history.last.as_ref().map_or(0, |look| look.rows().len());
        self.first = self.first.min(rows.saturating_sub(room));
        let width = usize::from(area.width);
        let (lines, total) = table::lines(history, self.sort, self.reversed, self.first, room, width);
        frame.render_widget(Paragraph::new(lines), area);
        total
    }

    fn foot(&self, total: usize, room: usize) -> Paragraph<'static> {
        let key = Style::new().add_modifier(Modifier::BOLD);
        let sort = format!(" sort: {}  ", self.sort.name());
        let pace = format!(" every {:.1} s  ", self.interval.as_secs_f64());
        let mut spans = Vec::new();
        for (name, text) in
            [("q", " quit  "), ("p", " pause  "), ("s", &sort), ("r", " reverse  "), ("+ -", &pace)]
        {
            spans.extend([Span::styled(name.to_owned(), key), Span::raw(text.to_owned())]);
        }
        if total > room {
            let last = (self.first + room).min(total);
            spans.push(Span::styled("↑ ↓", key));
            spans.push(Span::raw(format!(" {}-{last} of {total}", self.first + 1)));
        }
        spans.insert(0, Span::raw(" "));
        Paragraph::new(Line::from(spans))
    }
}

fn draw_curves(frame: &mut Frame<'_>, area: Rect, history: &History) {
    let [left, right] = Layout::horizontal([Constraint::Fill(1), Constraint::Fill(1)]).areas(area);
    let most = |curve: &std::collections::VecDeque<u64>, room: u16| {
        curve.iter().rev().take(usize::from(room)).max().copied().unwrap_or(0)
    };
    let rates = &history.rates;
    let (room, curve) = (left.width.saturating_sub(2), &history.commands);
    let title = format!(" commands/s {}, most {} ", count(rates.commands), count(most(curve, room) as f64));
    draw_curve(frame, left, title, curve, Color::Cyan);
    let (room, curve) = (right.width.saturating_sub(2), &history.turn_ns);
    let now = rates.turn_us.map_or_else(|| "-".to_owned(), duration);
    let title = format!(" turn {now}, most {} ", duration(most(curve, room) as f64 / 1000.0));
    draw_curve(frame, right, title, curve, Color::Magenta);
}

/// The latest values, the last one at the right.
fn draw_curve(
    frame: &mut Frame<'_>,
    area: Rect,
    title: String,
    curve: &std::collections::VecDeque<u64>,
    color: Color,
) {
    let block = Block::bordered().title(title).border_style(Style::new().add_modifier(Modifier::DIM));
    let room = usize::from(block.inner(area).width);
    let missing = room.saturating_sub(curve.len());
    let shown = curve.iter().copied().skip(curve.len().saturating_sub(room));
    let values: Vec<u64> = std::iter::repeat_n(0, missing).chain(shown).collect();
    frame.render_widget(Sparkline::default().block(block).data(values).style(Style::new().fg(color)), area);
}

/// Memory, hits and traffic.
fn bar_lines(look: &Look, history: &History, width: u16) -> Vec<Line<'static>> {
    let bar_width = usize::from(width / 5).clamp(8, 40);
    let rates = &history.rates;
    let line = |name: &str, share: f64, color: Color, text: String| {
        Line::from(vec![
            Span::raw(format!(" {name:<7} ")),
            Span::styled(bar(share, bar_width), Style::new().fg(color)),
            Span::raw(format!(" {text}")),
        ])
    };
    let of_peak = look.memory as f64 / look.memory_peak.max(1) as f64;
    let [memory, peak, resident] =
        [look.memory, look.memory_peak, look.memory_resident].map(|amount| bytes(amount as f64));
    let hits =
        rates.hit_ratio.map_or_else(|| "no reads yet".to_owned(), |ratio| format!("{:.1} %", ratio * 100.0));
    let [hit, missed, errors, expired] = [rates.hits, rates.misses, rates.errors, rates.expired].map(count);
    vec![
        line("memory", of_peak, Color::Blue, format!("{memory}, peak {peak}, resident {resident}")),
        line(
            "hits",
            rates.hit_ratio.unwrap_or(0.0),
            Color::Green,
            format!("{hits}: {hit}/s, missed {missed}/s"),
        ),
        Line::from(format!(
            " network in {}/s, out {}/s; errors {errors}/s, expired {expired}/s",
            bytes(rates.bytes_in),
            bytes(rates.bytes_out)
        )),
    ]
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use ratatui::Terminal;
    use ratatui::backend::TestBackend;

    use super::super::look::example;
    use super::*;

    fn drawn(width: u16, height: u16, paused: bool) -> Vec<String> {
        let (start, mut history) = (Instant::now(), History::default());
        for second in 0..5 {
            history.add(example(start + Duration::from_secs(second), second * 40_000));
        }
        let mut screen = Screen {
            target: "127.0.0.1:6379".to_owned(),
            interval: Duration::from_secs(1),
            paused,
            sort: Sort::Shard,
            reversed: false,
            first: 7,
            silent: None,
        };
        let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
        terminal.draw(|frame| screen.draw(frame, &history)).unwrap();
        let buffer = terminal.backend().buffer();
        let line = |y: u16| (0..width).map(|x| buffer[(x, y)].symbol()).collect::<String>();
        (0..height).map(line).collect()
    }

    #[test]
    fn eighty_by_twenty_four_holds_everything() {
        let lines = drawn(80, 24, false);
        let text = lines.join("\n");
        assert!(
            lines[0].starts_with(" corelane 0.1.0 at 127.0.0.1:6379, up 1d 2:03:04, 50 clients, 2 blocked")
        );
        for part in ["commands/s 40.0k, most 40.0k", " turn 5.0 us, most 5.0 us", "66.7 %: 20.0k/s", "█"] {
            assert!(text.contains(part), "{part} in\n{text}");
        }
        assert!(text.contains("3.00 MiB, peak 4.00 MiB, resident 12.0 MiB"), "{text}");
        assert!(lines[10].contains("shard") && lines[10].trim_end().ends_with("max"), "{text}");
        assert!(
            lines[11].trim_start().starts_with("0 ") && lines[12].trim_start().starts_with("1 "),
            "{text}"
        );
        assert!(lines[23].contains("q quit") && lines[23].contains("every 1.0 s"), "{text}");
    }

    #[test]
    fn every_size_is_drawn() {
        for width in (1..=160).step_by(7) {
            for height in 1..=40 {
                let text = drawn(width, height, true).join("\n");
                if width >= WIDTH_MIN && height >= HEIGHT_MIN {
                    assert!(
                        text.contains("commands/s") && text.contains("q quit"),
                        "{width} x {height}\n{text}"
                    );
                }
            }
        }
        assert!(drawn(80, 24, true)[0].trim_end().ends_with(" paused"));
        assert!(drawn(39, 24, false)[0].starts_with("too small"));
    }
}
