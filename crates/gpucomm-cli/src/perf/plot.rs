//! The picture of a run: time, and bus bandwidth, over size, with a line for each table.

mod axis;
mod lines;

use plotters::coord::Shift;
use plotters::element::DashedPathElement;
use plotters::prelude::*;
use serde_json::Value;

use self::axis::Axis;
use self::lines::{Line, Point};
use crate::failure::{Failure, Result};

/// Colours that stay apart for those who see few of them.
const COLOURS: [RGBColor; 8] = [
    RGBColor(0, 114, 178),
    RGBColor(213, 94, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(0, 0, 0),
    RGBColor(86, 180, 233),
    RGBColor(230, 159, 0),
    RGBColor(120, 110, 0),
];

/// How many lines there is room for.
pub const LINES: usize = COLOURS.len();

const SIZE: (u32, u32) = (960, 920);
const TITLES: u32 = 70;
const LEFT: i32 = 20;
/// Of the lines.
const WIDTH: u32 = 2;
const FONT: &str = "sans-serif";

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;

/// Draws what `reports` say, as text of an SVG file. Lines are of the times out of place.
pub fn svg(reports: &[Value]) -> Result<String> {
    let mut text = String::new();
    draw(&mut text, reports).map_err(|error| Failure::run(format!("cannot draw the plot: {error}")))?;
    Ok(text)
}

type Drawn<T = ()> = Result<T, Box<dyn std::error::Error>>;

fn draw(text: &mut String, reports: &[Value]) -> Drawn {
    let lines = lines::lines(reports);
    let all = || lines.iter().flat_map(|line| &line.points);
    let page = SVGBackend::with_string(text, SIZE).into_drawing_area();
    // On a dark page nobody would see what is black.
    page.fill(&WHITE)?;
    let (top, panels) = page.split_vertically(TITLES);
    let [what, how] = lines::titles(reports);
    top.draw(&Text::new(what, (LEFT, 16), (FONT, 22)))?;
    top.draw(&Text::new(how, (LEFT, 46), (FONT, 15)))?;
    let panels = panels.split_evenly((2, 1));
    let sizes = Axis::sizes(all().map(|point| point.bytes));
    let times = Axis::times(all().map(|point| point.micros));
    let rates = Axis::rates(all().map(|point| point.busbw));
    panel(&panels[0], &lines, [&sizes, &times], |point| point.micros)?;
    panel(&panels[1], &lines, [&sizes, &rates], |point| point.busbw)?;
    page.present()?;
    Ok(())
}

/// One picture: `value` of each point over its size.
fn panel(area: &Area<'_>, lines: &[Line], axes: [&Axis; 2], value: fn(&Point) -> f64) -> Drawn {
    let [x, y] = axes.map(Axis::clone);
    let mut chart = ChartBuilder::on(area)
        .margin(12)
        .margin_right(30)
        .x_label_area_size(45)
        .y_label_area_size(65)
        .build_cartesian_2d(x, y)?;
    chart
        .configure_mesh()
        .bold_line_style(BLACK.mix(0.12))
        .light_line_style(TRANSPARENT)
        .x_desc(axes[0].name)
        .y_desc(axes[1].name)
        .label_style((FONT, 14))
        .axis_desc_style((FONT, 15))
        .draw()?;
    for line in lines {
        let points: Vec<_> = line.points.iter().map(|point| (point.bytes, value(point))).collect();
        let style = COLOURS[line.family % LINES].filled().stroke_width(WIDTH);
        chart.draw_series(points.iter().map(|&point| Circle::new(point, 3, style)))?;
        let (dash, gap) = if line.captured { (6, 4) } else { (i32::MAX, 0) };
        chart
            .draw_series(DashedLineSeries::new(points, dash, gap, style))?
            .label(&line.name)
            .legend(move |(x, y)| DashedPathElement::new([(x, y), (x + 22, y)], dash, gap, style));
    }
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::UpperLeft)
        .margin(12)
        .legend_area_size(30)
        .background_style(WHITE.mix(0.85))
        .border_style(BLACK.mix(0.3))
        .label_font((FONT, 14))
        .draw()?;
    Ok(())
}
