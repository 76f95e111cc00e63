//! Draws how often there was which delay.

use std::path::Path;

use anyhow::{Context, Result, anyhow};
use plotters::prelude::*;

const SIZE: (u32, u32) = (900, 500);

/// Counts by microseconds, one line for each label, both axes logarithmic, as SVG.
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
            .build_cartesian_2d((1.0..us_max * 1.2).log_scale(), (0.8..count_max * 1.5).log_scale())
            .map_err(|error| anyhow!("{error}"))?;
        chart
            .configure_mesh()
            .x_desc("microseconds, the next whole one")
            .y_desc("how often")
            .draw()
            .map_err(|error| anyhow!("{error}"))?;
        for (index, (label, counts)) in lines.iter().enumerate() {
            let color = Palette99::pick(index).to_rgba();
            let points = counts.iter().map(|(us, count)| ((us + 1) as f64, *count as f64));
            chart
                .draw_series(LineSeries::new(points, color.stroke_width(2)).point_size(2))
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
