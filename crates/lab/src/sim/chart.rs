//! What the charts have in common.

use std::{error, path::Path};

use plotters::{coord::Shift, prelude::*};

use crate::error::{Error, Result};

/// What is drawn on.
pub(super) type Picture<'a> = DrawingArea<SVGBackend<'a>, Shift>;

/// What became of it.
pub(super) type Drawn = Result<(), Box<dyn error::Error>>;

/// Draws an SVG file of this size, in pixels.
pub(super) fn svg(
    path: &Path,
    size: (u32, u32),
    draw: impl FnOnce(&Picture<'_>) -> Drawn,
) -> Result<()> {
    let drawn = || {
        let root = SVGBackend::new(path, size).into_drawing_area();
        root.fill(&WHITE)?;
        draw(&root)?;
        root.present()?;
        Ok(())
    };
    drawn().map_err(|error: Box<dyn error::Error>| {
        Error::new(format!("can't draw the chart {}: {error}", path.display()))
    })
}

/// A line's piece in the legend.
pub(super) fn key((x, y): (i32, i32), colour: RGBColor) -> PathElement<(i32, i32)> {
    PathElement::new([(x, y), (x + 18, y)], colour.stroke_width(2))
}
