//! The sweep as a picture: a panel for each number of busy flows, a line for each discipline.

use std::path::Path;

use plotters::prelude::*;

use super::{
    row::{Row, Variant},
    run::{BULK, SWEEP, WINDOWS},
};
use crate::{
    error::Result,
    sim::chart::{Drawn, Picture, key, svg},
};

const SIZE: (u32, u32) = (1260, 460);
const COLOURS: [RGBColor; 5] = [
    RGBColor(110, 110, 110),
    RGBColor(214, 137, 16),
    RGBColor(120, 180, 220),
    RGBColor(20, 90, 170),
    RGBColor(190, 50, 50),
];

/// Draws the rows into an SVG file.
pub(super) fn draw(path: &Path, rows: &[Row]) -> Result<()> {
    svg(path, SIZE, |root| panels(root, rows))
}

fn panels(root: &Picture<'_>, rows: &[Row]) -> Drawn {
    let root = root.titled(
        "Median latency of a caller that keeps W calls outstanding beside K that keep 16",
        ("sans-serif", 20),
    )?;
    let panels = root.split_evenly((1, BULK.len()));
    for (panel, bulk) in panels.iter().zip(BULK) {
        let own = rows.iter().filter(|row| row.bulk_flows == bulk);
        let own: Vec<&Row> = own
            .filter(|row| row.discipline.1 == Variant::Plain && SWEEP.contains(&row.discipline.0))
            .collect();
        let most = own.iter().map(|row| row.p50_ms).fold(0.0, f64::max);
        let (first, last) = (*WINDOWS.start(), *WINDOWS.end());
        let mut chart = ChartBuilder::on(panel)
            .caption(format!("K = {bulk}"), ("sans-serif", 16))
            .margin(10)
            .x_label_area_size(36)
            .y_label_area_size(46)
            .build_cartesian_2d(first..last, 0.0..most * 1.1)?;
        chart
            .configure_mesh()
            .x_desc("W")
            .y_desc("ms")
            .x_labels(8)
            .draw()?;
        for (discipline, colour) in SWEEP.iter().zip(COLOURS) {
            let line = own.iter().filter(|row| row.discipline.0 == *discipline);
            let line = line.map(|row| (row.window, row.p50_ms));
            chart
                .draw_series(LineSeries::new(line, colour.stroke_width(2)).point_size(3))?
                .label(discipline.to_string())
                .legend(move |at| key(at, colour));
        }
        chart
            .configure_series_labels()
            .position(SeriesLabelPosition::UpperLeft)
            .background_style(WHITE.mix(0.8))
            .border_style(BLACK.mix(0.3))
            .draw()?;
    }
    Ok(())
}
