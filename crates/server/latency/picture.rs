//! Draws how often there was which time.

use std::path::Path;

use anyhow::{Context, Result, anyhow};
use plotters::prelude::*;

const SIZE: (u32, u32) = (900, 500);

/// Below this nothing is counted: the axis is logarithmic.
const FLOOR: f64 = 0.8;

/// The corners of steps over counts by whole microseconds, drawn at the end of each; where nothing was counted they lie on the
/// floor.
fn steps(counts: &[(u64, u64)]) -> Vec<(f64, f64)> {
    let mut corners = Vec::new();
    let mut end = None;
    for &(us, count) in counts {
        // The logarithm has no 0: what is below a microsecond begins in the middle of it.
        let begin = if us == 0 { 0.5 } else { us as f64 };
        if end != Some(us) {
            corners.extend(end.map(|end| (end as f64, FLOOR)));
            corners.push((begin, FLOOR));
        }
        corners.extend([(begin, count as f64), ((us + 1) as f64, count as f64)]);
        end = Some(us + 1);
    }
    corners.extend(end.map(|end| (end as f64, FLOOR)));
    corners
}

/// Counts by microseconds as steps, one series for each label, both axes logarithmic, as SVG.
///
/// # Errors
/// The file cannot be written.
pub(super) fn draw(file: &Path, title: &str, lines: &[(String, &[(u64, u64)])]) -> Result<()> {
    let points = || lines.iter().flat_map(|(_, counts)| counts.iter());
    let us_max = points().map(|(us, _)| us + 1).max().unwrap_or(10).max(10) as f64;
    let count_max = points().map(|(_, count)| *count).max().unwrap_or(10).max(10) as f64;
    let root = SVGBackend::new(file, SIZE).into_drawing_area();
    let result = (|| {
        root.fill(&WHITE).map_err(|error| anyhow!("{error}"))?;
        let mut chart = ChartBuilder::on(&root)
            .caption(title, ("sans-serif", 22))
            .margin(15)
            .x_label_area_size(45)
            .y_label_area_size(70)
            .build_cartesian_2d((0.5..us_max * 1.2).log_scale(), (FLOOR..count_max * 1.5).log_scale())
            .map_err(|error| anyhow!("{error}"))?;
        chart
            .configure_mesh()
            .x_desc("microseconds")
            .y_desc("how often")
            .draw()
            .map_err(|error| anyhow!("{error}"))?;
        for (index, (label, counts)) in lines.iter().enumerate() {
            let color = Palette99::pick(index).to_rgba();
            let corners = steps(counts);
            let area = Polygon::new(corners.clone(), color.mix(0.2));
            chart.draw_series(std::iter::once(area)).map_err(|error| anyhow!("{error}"))?;
            chart
                .draw_series(LineSeries::new(corners, color.stroke_width(1)))
                .map_err(|error| anyhow!("{error}"))?
                .label(label.as_str())
                .legend(move |(x, y)| PathElement::new([(x, y), (x + 18, y)], color.stroke_width(2)));
        }
        chart
            .configure_series_labels()
            .border_style(BLACK.mix(0.4))
            .background_style(WHITE.mix(0.8))
            .draw()
            .map_err(|error| anyhow!("{error}"))?;
        root.present().map_err(|error| anyhow!("{error}"))
    })();
    result.with_context(|| format!("cannot draw {}", file.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn between_times_that_occurred_the_picture_is_empty() {
        let corners = steps(&[(0, 3), (1, 5), (7, 2)]);
        let expected = [
            (0.5, FLOOR),
            (0.5, 3.0),
            (1.0, 3.0),
            (1.0, 5.0),
            (2.0, 5.0),
            (2.0, FLOOR),
            (7.0, FLOOR),
            (7.0, 2.0),
            (8.0, 2.0),
            (8.0, FLOOR),
        ];
        assert_eq!(corners, expected);
        assert!(steps(&[]).is_empty());
    }
}
