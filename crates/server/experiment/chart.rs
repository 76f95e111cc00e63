//! The pictures of a report: bars with their spread, and distributions of latency.

use std::path::Path;

use anyhow::{Result, anyhow};
use plotters::coord::Shift;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use super::samples::Samples;

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
type Drawn = Result<(), Box<dyn std::error::Error>>;

/// The colours of the cases, in their order: told apart by colour-blind eyes, too (Okabe and Ito).
const COLOURS: [RGBColor; 6] = [
    RGBColor(0x00, 0x72, 0xb2),
    RGBColor(0xe6, 0x9f, 0x00),
    RGBColor(0x00, 0x9e, 0x73),
    RGBColor(0xcc, 0x79, 0xa7),
    RGBColor(0xd5, 0x5e, 0x00),
    RGBColor(0x56, 0xb4, 0xe9),
];
/// Pixels: a picture's width, its height, the place for scale and names, the lines of the legend.
const WIDTH: u32 = 1000;
const HEIGHT: u32 = 420;
const LEFT: i32 = 90;
const BOTTOM: i32 = 40;
const LINE: i32 = 20;

/// Bars that stand together: a name, and a bar for each case that was measured.
pub(super) struct Group {
    pub(super) name: String,
    /// The number of the case, and its figures.
    pub(super) bars: Vec<(usize, Samples)>,
}

/// A line of a distribution: microseconds and the requests that took no longer, in percent.
pub(super) struct Curve {
    pub(super) case: usize,
    pub(super) points: Vec<(f64, f64)>,
}

fn colour(case: usize) -> RGBColor {
    COLOURS[case % COLOURS.len()]
}

/// How far apart the least and the greatest bar may be on a linear scale.
const LINEAR_FACTOR_MAX: f64 = 50.0;

/// From a value to its height: 0 at the foot, 1 at the top; and the lines of the scale.
struct Scale {
    foot: f64,
    top: f64,
    logarithmic: bool,
    lines: Vec<(f64, String)>,
}

impl Scale {
    fn of(groups: &[Group]) -> Self {
        let figures = || groups.iter().flat_map(|group| &group.bars).map(|(_, samples)| samples);
        let most = figures().map(Samples::max).fold(0.0, f64::max);
        let least = figures().map(Samples::min).fold(f64::INFINITY, f64::min);
        if least > 0.0 && most > least * LINEAR_FACTOR_MAX {
            let (first, last) = (least.log10().floor() as i32 - 1, most.log10().ceil() as i32);
            let lines = (first..=last).map(|power| 10_f64.powi(power));
            let label = |value: f64| (value, scale_label(value, value));
            let (foot, top) = (10_f64.powi(first), 10_f64.powi(last));
            return Self { foot, top, logarithmic: true, lines: lines.map(label).collect() };
        }
        let step = nice(most / 5.0);
        let count = (most / step).ceil().max(1.0) as u32;
        let lines = (0..=count).map(|number| f64::from(number) * step);
        let lines = lines.map(|value| (value, scale_label(value, step))).collect();
        Self { foot: 0.0, top: f64::from(count) * step, logarithmic: false, lines }
    }

    fn height(&self, value: f64) -> f64 {
        if self.logarithmic {
            (value.max(self.foot) / self.foot).log10() / (self.top / self.foot).log10()
        } else {
            value / self.top
        }
    }
}

/// Draws medians as bars, and a line from the least to the greatest run on each.
///
/// # Errors
/// The file cannot be written.
pub(super) fn bars(file: &Path, title: &str, cases: &[String], groups: &[Group]) -> Result<()> {
    let height = HEIGHT + cases.len() as u32 * LINE as u32;
    let root = SVGBackend::new(file, (WIDTH, height)).into_drawing_area();
    draw_bars(&root, title, cases, groups).map_err(|error| anyhow!("cannot draw {}: {error}", file.display()))
}

fn draw_bars(root: &Area<'_>, title: &str, cases: &[String], groups: &[Group]) -> Drawn {
    root.fill(&WHITE)?;
    let logarithmic = if Scale::of(groups).logarithmic { ", logarithmic scale" } else { "" };
    let area = root.titled(&format!("{title}{logarithmic}"), ("sans-serif", 22))?;
    let plot_bottom = legend(&area, cases)?;
    let scale = Scale::of(groups);
    let down = |value: f64| plot_bottom - (scale.height(value) * f64::from(plot_bottom - LINE)) as i32;
    let right = WIDTH as i32 - 30;
    let small = |across| TextStyle::from(("sans-serif", 14).into_font()).pos(Pos::new(across, VPos::Center));
    for (value, label) in scale.lines.clone() {
        area.draw(&PathElement::new([(LEFT, down(value)), (right, down(value))], BLACK.mix(0.15)))?;
        area.draw(&Text::new(label, (LEFT - 8, down(value)), small(HPos::Right)))?;
    }
    let wide = (right - LEFT) / groups.len().max(1) as i32;
    for (at, group) in groups.iter().enumerate() {
        let left = LEFT + at as i32 * wide;
        let one = ((wide - 24) / group.bars.len().max(1) as i32).min(90);
        let start = left + (wide - one * group.bars.len() as i32) / 2;
        for (nth, (case, samples)) in group.bars.iter().enumerate() {
            let (from, to) = (start + nth as i32 * one + 2, start + (nth as i32 + 1) * one - 2);
            let corners = [(from, down(samples.median())), (to, plot_bottom)];
            area.draw(&Rectangle::new(corners, colour(*case).filled()))?;
            if samples.runs() > 1 {
                let middle = i32::midpoint(from, to);
                area.draw(&PathElement::new(
                    [(middle, down(samples.min())), (middle, down(samples.max()))],
                    BLACK,
                ))?;
                for end in [samples.min(), samples.max()] {
                    area.draw(&PathElement::new([(middle - 5, down(end)), (middle + 5, down(end))], BLACK))?;
                }
            }
        }
        let name_at = (left + wide / 2, plot_bottom + LINE / 2 + 4);
        area.draw(&Text::new(group.name.clone(), name_at, small(HPos::Center)))?;
    }
    area.draw(&PathElement::new([(LEFT, plot_bottom), (right, plot_bottom)], BLACK))?;
    root.present()?;
    Ok(())
}

/// Draws the names of the cases below; returns where the plot above them ends.
fn legend(area: &Area<'_>, cases: &[String]) -> Result<i32, Box<dyn std::error::Error>> {
    let (_, height) = area.dim_in_pixel();
    let top = height as i32 - cases.len() as i32 * LINE - 8;
    for (case, name) in cases.iter().enumerate() {
        let down = top + case as i32 * LINE;
        area.draw(&Rectangle::new([(LEFT, down), (LEFT + 14, down + 14)], colour(case).filled()))?;
        area.draw(&Text::new(name.clone(), (LEFT + 22, down), ("sans-serif", 15).into_font()))?;
    }
    Ok(top - BOTTOM)
}

/// The next number of the form 1, 2 or 5 times a power of ten.
fn nice(value: f64) -> f64 {
    let power = 10_f64.powf(value.max(1e-6).log10().floor());
    let times = [1.0, 2.0, 5.0, 10.0].into_iter().find(|times| times * power >= value).unwrap_or(10.0);
    times * power
}

fn scale_label(value: f64, step: f64) -> String {
    if step >= 1.0 {
        super::figures::grouped(value)
    } else {
        format!("{value:.*}", (-step.log10()).ceil() as usize)
    }
}

/// Draws which part of the requests took no longer than what time, the time on a logarithmic scale.
///
/// # Errors
/// The file cannot be written.
pub(super) fn distribution(file: &Path, title: &str, cases: &[String], curves: &[Curve]) -> Result<()> {
    let height = HEIGHT + cases.len() as u32 * LINE as u32;
    let root = SVGBackend::new(file, (WIDTH, height)).into_drawing_area();
    draw_curves(&root, title, cases, curves)
        .map_err(|error| anyhow!("cannot draw {}: {error}", file.display()))
}

fn draw_curves(root: &Area<'_>, title: &str, cases: &[String], curves: &[Curve]) -> Drawn {
    root.fill(&WHITE)?;
    let area = root.titled(title, ("sans-serif", 22))?;
    let bottom = legend(&area, cases)?;
    let (_, height) = area.dim_in_pixel();
    let (plot, _) = area.split_vertically(bottom.clamp(0, height as i32) + BOTTOM - 10);
    let times =
        || curves.iter().flat_map(|curve| &curve.points).map(|(us, _)| us / 1000.0).filter(|ms| *ms > 0.0);
    let least = times().fold(f64::INFINITY, f64::min).min(1.0);
    let most = times().fold(least * 10.0, f64::max);
    let mut chart = ChartBuilder::on(&plot)
        .margin_right(30)
        .x_label_area_size(42)
        .y_label_area_size(LEFT as u32)
        .build_cartesian_2d((least..most * 1.1).log_scale(), 0.0..100.0)?;
    chart
        .configure_mesh()
        .x_desc("milliseconds")
        .y_desc("% of the requests")
        .x_label_formatter(&|ms| format!("{ms}"))
        .y_label_formatter(&|percent| format!("{percent:.0}"))
        .max_light_lines(1)
        .label_style(("sans-serif", 14))
        .draw()?;
    for curve in curves {
        let points =
            curve.points.iter().filter(|(us, _)| *us > 0.0).map(|(us, percent)| (us / 1000.0, *percent));
        chart.draw_series(LineSeries::new(points, colour(curve.case).stroke_width(2)))?;
    }
    root.present()?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scale_is_logarithmic_where_bars_would_vanish() {
        let group = |figures: &[f64]| Group {
            name: String::new(),
            bars: figures.iter().map(|figure| (0, Samples::new(*figure))).collect(),
        };
        let linear = Scale::of(&[group(&[3.0, 4.9])]);
        assert_eq!((linear.logarithmic, linear.top, linear.height(2.5)), (false, 5.0, 0.5));
        let logarithmic = Scale::of(&[group(&[0.5, 73.0])]);
        let labels: Vec<&str> = logarithmic.lines.iter().map(|(_, label)| label.as_str()).collect();
        assert_eq!(labels, ["0.01", "0.1", "1", "10", "100"]);
        assert!((logarithmic.height(1.0) - 0.5).abs() < 1e-9);
        assert_eq!(Scale::of(&[]).lines.len(), 2);
    }

    #[test]
    fn scales_have_round_steps() {
        for (value, step) in [(0.03, 0.05), (1.0, 1.0), (1.1, 2.0), (40_000.0, 50_000.0), (7.0, 10.0)] {
            assert!((nice(value) - step).abs() < step * 1e-9, "{value}: {}", nice(value));
        }
        assert_eq!(
            (scale_label(0.05, 0.05), scale_label(50_000.0, 50_000.0)),
            ("0.05".into(), "50,000".into())
        );
    }
}
