//! The rows as a picture: a panel for each load, a line for each picker.

use std::path::Path;

use plotters::prelude::*;

use super::{LOADS, PICKERS, Row};
use crate::{
    error::Result,
    sim::chart::{Drawn, Picture, key, svg},
};

const SIZE: (u32, u32) = (1100, 460);
const COLOURS: [RGBColor; PICKERS.len()] = [
    RGBColor(20, 90, 170),
    RGBColor(120, 180, 220),
    RGBColor(40, 130, 60),
    RGBColor(150, 200, 120),
    RGBColor(214, 137, 16),
    RGBColor(110, 110, 110),
];

/// Draws the rows into an SVG file.
pub(super) fn draw(path: &Path, rows: &[Row]) -> Result<()> {
    svg(path, SIZE, |root| panels(root, rows))
}

fn panels(root: &Picture<'_>, rows: &[Row]) -> Drawn {
    let title = "Time that 99 in 100 calls stay below, as a multiple of their mean size";
    let root = root.titled(title, ("sans-serif", 20))?;
    let panels = root.split_evenly((1, LOADS.len()));
    for (panel, rho) in panels.iter().zip(LOADS) {
        let own: Vec<&Row> = rows.iter().filter(|row| row.case.rho == rho).collect();
        // Logarithmic, the sizes too: they are multiples of each other.
        let mut chart = ChartBuilder::on(panel)
            .caption(format!("load {rho}"), ("sans-serif", 16))
            .margin(10)
            .x_label_area_size(36)
            .y_label_area_size(46)
            .build_cartesian_2d((3.5..60.0).log_scale(), (1.0..100.0).log_scale())?;
        chart
            .configure_mesh()
            .light_line_style(WHITE)
            .x_desc("channels")
            .y_desc("p99 in mean sizes")
            .y_label_formatter(&|p99| format!("{p99:.0}"))
            .x_label_formatter(&|channels| format!("{channels:.0}"))
            .draw()?;
        for ((picker, counted), colour) in PICKERS.into_iter().zip(COLOURS) {
            let line: Vec<&&Row> = own
                .iter()
                .filter(|row| (row.case.picker, row.case.counted) == (picker, counted))
                .collect();
            let name = line.first().map(|row| row.case.to_string());
            let points = line.iter().map(|row| (row.case.channels as f64, row.p99));
            chart
                .draw_series(LineSeries::new(points, colour.stroke_width(2)).point_size(3))?
                .label(name.unwrap_or_default())
                .legend(move |at| key(at, colour));
        }
        chart
            .configure_series_labels()
            .position(SeriesLabelPosition::LowerLeft)
            .background_style(WHITE.mix(0.8))
            .border_style(BLACK.mix(0.3))
            .draw()?;
    }
    Ok(())
}
