//! Draws figures over time as a line chart, for a page of the manual.

use std::fmt::Write;
use std::path::Path;

/// A line of the chart.
#[derive(Clone, Debug)]
pub(crate) struct Series {
    /// Its name in the legend.
    pub(crate) name: String,
    /// Seconds since the start and values, in the order of time. A value holds until the next one.
    pub(crate) points: Vec<(f64, f64)>,
}

const WIDTH: f64 = 720.0;
const HEIGHT: f64 = 320.0;
/// Space above, below, left and right of the lines.
const TOP: f64 = 60.0;
const BOTTOM: f64 = 44.0;
const LEFT: f64 = 64.0;
const RIGHT: f64 = 16.0;
/// Distinct in grey too.
const COLOURS: [&str; 4] = ["#0b5cad", "#d1495b", "#5b8c2a", "#7a4fa3"];
/// Each grid has about as many lines.
const N_GRID_LINES: f64 = 5.0;

/// Writes the chart as an SVG file.
///
/// # Errors
/// If the file cannot be written.
pub(crate) fn write(path: &Path, title: &str, series: &[Series]) -> Result<(), String> {
    let svg = draw(title, series);
    std::fs::write(path, svg).map_err(|error| format!("cannot write {}: {error}", path.display()))
}

fn draw(title: &str, series: &[Series]) -> String {
    let points = || series.iter().flat_map(|it| &it.points);
    let last = points().map(|point| point.0).fold(1.0, f64::max);
    let highest = points().map(|point| point.1).fold(1.0, f64::max);
    let (x_step, y_step) = (step(last), step(highest));
    let y_end = (highest / y_step).ceil() * y_step;
    let x = |seconds: f64| LEFT + seconds / last * (WIDTH - LEFT - RIGHT);
    let y = |value: f64| HEIGHT - BOTTOM - value / y_end * (HEIGHT - TOP - BOTTOM);
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" \
         font-family=\"sans-serif\" font-size=\"12\">\n\
         <rect width=\"{WIDTH}\" height=\"{HEIGHT}\" fill=\"#ffffff\"/>\n"
    );
    text(&mut svg, (LEFT, 20.0), "start", title);
    grid(&mut svg, x_step, last, |at| {
        (x(at), TOP, x(at), HEIGHT - BOTTOM)
    });
    grid(&mut svg, y_step, y_end, |at| {
        (LEFT, y(at), WIDTH - RIGHT, y(at))
    });
    let mut at = 0.0;
    while at <= last {
        text(
            &mut svg,
            (x(at), HEIGHT - BOTTOM + 16.0),
            "middle",
            &at.to_string(),
        );
        at += x_step;
    }
    let mut at = 0.0;
    while at <= y_end {
        text(&mut svg, (LEFT - 8.0, y(at) + 4.0), "end", &at.to_string());
        at += y_step;
    }
    text(&mut svg, (WIDTH - RIGHT, HEIGHT - 10.0), "end", "seconds");
    let mut legend = LEFT;
    for (series, colour) in series.iter().zip(COLOURS.iter().cycle()) {
        let mut line = String::new();
        let mut before: Option<f64> = None;
        for (seconds, value) in &series.points {
            if let Some(before) = before {
                write!(line, "{:.1},{:.1} ", x(*seconds), y(before)).expect("text takes text");
            }
            write!(line, "{:.1},{:.1} ", x(*seconds), y(*value)).expect("text takes text");
            before = Some(*value);
        }
        if let Some(before) = before {
            write!(line, "{:.1},{:.1}", x(last), y(before)).expect("text takes text");
        }
        writeln!(
            svg,
            "<polyline fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\" points=\"{line}\"/>\n\
             <rect x=\"{legend}\" y=\"32\" width=\"12\" height=\"12\" fill=\"{colour}\"/>"
        )
        .expect("text takes text");
        text(&mut svg, (legend + 18.0, 42.0), "start", &series.name);
        let n_letters = u32::try_from(series.name.len()).unwrap_or(0);
        legend += 40.0 + 7.0 * f64::from(n_letters);
    }
    svg.push_str("</svg>\n");
    svg
}

/// The distance of grid lines: 1, 2 or 5 times a power of ten.
fn step(highest: f64) -> f64 {
    let rough = highest / N_GRID_LINES;
    let power = 10_f64.powf(rough.log10().floor());
    let factors = [1.0, 2.0, 5.0];
    let fits = factors.into_iter().find(|factor| factor * power >= rough);
    fits.unwrap_or(10.0) * power
}

fn grid(svg: &mut String, step: f64, end: f64, line: impl Fn(f64) -> (f64, f64, f64, f64)) {
    let mut at = 0.0;
    while at <= end {
        let (x1, y1, x2, y2) = line(at);
        writeln!(
            svg,
            "<path d=\"M{x1:.1} {y1:.1}L{x2:.1} {y2:.1}\" stroke=\"#dddddd\"/>"
        )
        .expect("text takes text");
        at += step;
    }
}

fn text(svg: &mut String, (x, y): (f64, f64), anchor: &str, text: &str) {
    let escaped = text.replace('&', "&amp;").replace('<', "&lt;");
    writeln!(
        svg,
        "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\" fill=\"#333333\">{escaped}</text>"
    )
    .expect("text takes text");
}
