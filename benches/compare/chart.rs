//! One picture of a comparison: every server's CPU per request and throughput as ratios to Redis.

use std::path::Path;

use anyhow::{Result, anyhow};
use plotters::coord::Shift;
use plotters::prelude::*;

use crate::figures::Outcome;
use crate::metric::Metric;
use crate::workload::Subject;

/// Height of one bar, of the space around a group of bars, and of title and axis, in pixels.
const BAR: u32 = 16;
const GAP: u32 = 10;
const FRAME: u32 = 90;
const WIDTH: u32 = 1200;

/// Bars that belong to one case of one workload.
struct Group {
    label: String,
    bars: Vec<(Subject, f64)>,
}

/// Writes an SVG with two columns of bars, or nothing where no load had Redis beside it.
pub(crate) fn ratios(outcomes: &[Outcome], path: &Path) -> Result<()> {
    let cpu = groups(outcomes, Metric::CpuPerRequest);
    let throughput = groups(outcomes, Metric::Throughput);
    if cpu.is_empty() {
        return Ok(());
    }
    let root = SVGBackend::new(path, (WIDTH, FRAME + height(&cpu))).into_drawing_area();
    draw(&root, &cpu, &throughput).map_err(|error| anyhow!("cannot draw {}: {error}", path.display()))
}

fn draw(
    root: &DrawingArea<SVGBackend<'_>, Shift>,
    cpu: &[Group],
    throughput: &[Group],
) -> Result<(), Box<dyn std::error::Error>> {
    root.fill(&WHITE)?;
    let (left, right) = root.split_horizontally(WIDTH / 2);
    panel(&left, "CPU per request, Redis = 1 (less is better)", cpu)?;
    panel(&right, "throughput, Redis = 1 (more is better)", throughput)?;
    root.present()?;
    Ok(())
}

fn groups(outcomes: &[Outcome], metric: Metric) -> Vec<Group> {
    let mut groups = Vec::new();
    for outcome in outcomes {
        for case in outcome.figures.cases() {
            let ratio = |subject| Some((subject, outcome.figures.ratio_to_redis(case, subject, metric)?));
            let bars: Vec<_> = outcome.figures.subjects(case).into_iter().filter_map(ratio).collect();
            if !bars.is_empty() {
                groups.push(Group { label: format!("{} {case}", outcome.workload.name), bars });
            }
        }
    }
    groups
}

fn height(groups: &[Group]) -> u32 {
    groups.iter().map(|group| u32::try_from(group.bars.len()).map_or(0, |bars| bars * BAR + GAP)).sum()
}

fn panel(
    area: &DrawingArea<SVGBackend<'_>, Shift>,
    title: &str,
    groups: &[Group],
) -> Result<(), Box<dyn std::error::Error>> {
    let area = area.titled(title, ("sans-serif", 20))?.margin(4, 4, 8, 8);
    let (width, _) = area.dim_in_pixel();
    let ratio_max = groups.iter().flat_map(|group| &group.bars).map(|bar| bar.1).fold(1.0, f64::max);
    let origin = 200;
    let scale = f64::from(width - origin - 150) / ratio_max;
    let across = |ratio: f64| i32::try_from(origin).map_or(0, |origin| origin + (ratio * scale) as i32);

    let small = ("sans-serif", 14).into_font();
    let mut down = 0;
    for group in groups {
        area.draw(&Text::new(group.label.clone(), (0, down), small.clone()))?;
        for (subject, ratio) in &group.bars {
            let bottom = down + i32::try_from(BAR)? - 2;
            let corners = [(across(0.0), down), (across(*ratio), bottom)];
            area.draw(&Rectangle::new(corners, colour(*subject).filled()))?;
            let label = format!("{} {ratio:.2}", subject.name());
            area.draw(&Text::new(label, (across(*ratio) + 4, down), small.clone()))?;
            down += i32::try_from(BAR)?;
        }
        down += i32::try_from(GAP)?;
    }
    area.draw(&PathElement::new(vec![(across(1.0), 0), (across(1.0), down)], BLACK.mix(0.4)))?;
    Ok(())
}

const fn colour(subject: Subject) -> RGBColor {
    match subject {
        Subject::Ours { shards: 1 } => RGBColor(0x1f, 0x77, 0xb4),
        Subject::Ours { .. } => RGBColor(0x6b, 0xae, 0xd6),
        Subject::Redis => RGBColor(0xd6, 0x27, 0x28),
        Subject::Valkey => RGBColor(0x94, 0x67, 0xbd),
        Subject::Memcached => RGBColor(0x7f, 0x7f, 0x7f),
    }
}
