//! The dashboard as an SVG, drawn from a Prometheus' answers: each panel at its place, with its
//! title, its lines or numbers, and a legend. Pure.

use std::fmt::Write;

use serde_json::Value;

use crate::support::text_at;

/// Width of a grid column and height of a grid row, in pixels.
const UNIT: (f64, f64) = (42.0, 24.0);

/// Space between two panels.
const GAP: f64 = 6.0;

/// Series drawn in a panel.
const SERIES_MAX: usize = 6;

const COLORS: [&str; SERIES_MAX] = [
    "#3274d9", "#56a64b", "#e0752d", "#a352cc", "#e02f44", "#808080",
];

/// A series: its legend and its points (seconds, value).
pub(super) type Series = (String, Vec<(f64, f64)>);

/// Draws `dashboard` with the series of each panel that is no row, in their order.
pub(super) fn draw(dashboard: &Value, series: &[Vec<Series>]) -> String {
    let panels = dashboard["panels"].as_array().expect("panels");
    let mut series = series.iter();
    let (mut body, mut bottom) = (String::new(), 0.0_f64);
    for panel in panels {
        let place = |member: &str| panel["gridPos"][member].as_f64().expect("a number");
        let (x, y) = (place("x") * UNIT.0, place("y") * UNIT.1);
        let (width, height) = (place("w") * UNIT.0 - GAP, place("h") * UNIT.1 - GAP);
        bottom = bottom.max(y + height);
        let title = escaped(&text_at(panel, "/title"));
        let inside = match text_at(panel, "/type").as_str() {
            "row" => format!("<text y='17' font-size='13' font-weight='700'>{title}</text>"),
            kind => {
                let series = series.next().expect("the series of each panel");
                let unit = text_at(panel, "/fieldConfig/defaults/unit");
                let content = match kind {
                    "stat" => numbers(series, width, height),
                    _ => lines(series, &unit, width, height),
                };
                format!(
                    "<rect width='{width}' height='{height}' rx='3' fill='#fff' stroke='#ccd'/>\
                     <text x='8' y='16' font-weight='700'>{title}</text>\n{content}"
                )
            }
        };
        writeln!(body, "<g transform='translate({x},{y})'>{inside}</g>").unwrap_or_default();
    }
    let width = 24.0 * UNIT.0 + GAP;
    let height = bottom + 2.0 * GAP;
    format!(
        "<svg xmlns='http://www.w3.org/2000/svg' width='{width}' height='{height}' \
         viewBox='0 0 {width} {height}' role='img' font-family='sans-serif' font-size='11' \
         fill='#223'>\n<rect width='{width}' height='{height}' fill='#f4f5f8'/>\n\
         <g transform='translate({GAP},{GAP})'>\n{body}</g>\n</svg>\n"
    )
}

/// The last value of each series, side by side.
fn numbers(series: &[Series], width: f64, height: f64) -> String {
    let mut content = String::new();
    let n = u32::try_from(series.len().max(1)).expect("few series");
    let each = width / f64::from(n);
    let (mut x, y) = (each / 2.0, height / 2.0 + 10.0);
    for (legend, points) in series {
        let value = points.last().map_or(0.0, |(_, value)| *value);
        let below = y + 22.0;
        write!(
            content,
            "<text x='{x:.0}' y='{y}' font-size='22' text-anchor='middle'>{value:.0}</text>\
             <text x='{x:.0}' y='{below}' text-anchor='middle' fill='#667'>{}</text>",
            escaped(legend)
        )
        .unwrap_or_default();
        x += each;
    }
    content
}

/// The series as lines over time, with the largest value and a legend.
fn lines(series: &[Series], unit: &str, width: f64, height: f64) -> String {
    let points = || series.iter().flat_map(|(_, points)| points);
    let top = points().map(|(_, value)| *value).fold(0.0, f64::max);
    let scale = if top > 0.0 { top * 1.1 } else { 1.0 };
    let start = points().map(|(at, _)| *at).fold(f64::MAX, f64::min);
    let end = points().map(|(at, _)| *at).fold(0.0, f64::max);
    let seconds = (end - start).max(1.0);
    let (left, above, below) = (10.0, 26.0, height - 46.0);
    let mut content = format!(
        "<path d='M{left} {below}H{right}' stroke='#ccd'/>\
         <text x='{right}' y='16' text-anchor='end' fill='#667'>max {}</text>\n",
        amount(top, unit),
        right = width - 10.0,
    );
    let (mut x, mut y) = (left, below + 16.0);
    let most = series.iter().take(SERIES_MAX);
    for ((legend, points), color) in most.zip(COLORS) {
        let place = |(at, value): &(f64, f64)| {
            let x = left + (at - start) / seconds * (width - 20.0);
            format!("{x:.0},{:.0}", below - value / scale * (below - above))
        };
        let places: Vec<String> = points.iter().map(place).collect();
        let length = 16.0 + 5.4 * f64::from(u32::try_from(legend.len()).expect("a short legend"));
        if x + length > width && x > left {
            (x, y) = (left, y + 13.0);
        }
        if y < height {
            writeln!(
                content,
                "<polyline points='{}' fill='none' stroke='{color}'/>\
                 <text x='{x:.0}' y='{y}' font-size='10' fill='{color}'>{}</text>",
                places.join(" "),
                escaped(legend)
            )
            .unwrap_or_default();
        }
        x += length;
    }
    content
}

fn amount(value: f64, unit: &str) -> String {
    match unit {
        "bytes" => format!("{:.1} MiB", value / 1_048_576.0),
        "s" if value < 1.0 => format!("{:.1} ms", value * 1e3),
        "s" => format!("{value:.1} s"),
        "percentunit" => format!("{:.0} %", value * 100.0),
        "ops" | "reqps" => format!("{value:.1}/s"),
        _ => format!("{value:.2}"),
    }
}

fn escaped(text: &str) -> String {
    let text = text.replace('&', "&amp;");
    text.replace('<', "&lt;").replace('>', "&gt;")
}
