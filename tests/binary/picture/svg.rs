//! Screens of a terminal as an animated SVG. A line that stays the same over several frames is
//! drawn once and is visible during those frames. Without animation the last frame is visible.

use std::collections::BTreeMap;
use std::time::Duration;

use vt100::{Cell, Color, Screen};

/// Width and height of a character, in pixels.
const CELL: (f64, f64) = (8.43, 19.0);

const TITLE_BAR_HEIGHT: f64 = 40.0;

const MARGIN: f64 = 18.0;

/// How long the last frame stays.
const LAST_FRAME: Duration = Duration::from_secs(5);

const FONTS: &str = "ui-monospace,SFMono-Regular,Menlo,Consolas,'DejaVu Sans Mono',\
                     'Liberation Mono',monospace";

/// `xml:space` keeps runs of spaces too, but not every browser passes it on to each text.
const STYLE: &str = "\
text{white-space:pre}
.b{font-weight:700}.d{fill:#8b949e}.c1{fill:#ff7b72}.c2{fill:#3fb950}.c3{fill:#e3b341}
.c6{fill:#56d4dd}.f{visibility:hidden}.e{visibility:visible}
";

/// Draws the frames, each of which but the last stays for `period`.
pub(super) fn draw(frames: &[Screen], period: Duration) -> String {
    let (rows, columns) = frames[0].size();
    let width = (f64::from(columns.get()) * CELL.0 + 2.0 * MARGIN).round();
    let height = TITLE_BAR_HEIGHT + f64::from(rows.get()) * CELL.1 + MARGIN;
    let start_of = |frame: usize| period * u32::try_from(frame).expect("few frames");
    let total = start_of(frames.len() - 1) + LAST_FRAME;
    let percent = |frame| 100.0 * start_of(frame).div_duration_f64(total);

    let (mut keyframes, mut groups) = (Vec::new(), Vec::new());
    for ((start, end), lines) in lines_by_frames(frames) {
        let (name, from) = (format!("k{start}-{end}"), percent(start));
        let (class, steps) = if end == frames.len() {
            let steps = format!("0%{{visibility:hidden}}{from:.2}%{{visibility:visible}}");
            ("f e", steps)
        } else {
            let to = percent(end);
            let steps = format!("{from:.2}%{{visibility:visible}}{to:.2}%{{visibility:hidden}}");
            ("f", steps)
        };
        keyframes.push(format!("@keyframes {name}{{{steps}}}\n"));
        let style = format!("animation-name:{name}");
        groups.push(format!(
            "<g class='{class}' style='{style}'>\n{lines}</g>\n"
        ));
    }
    let (keyframes, groups, seconds) = (keyframes.concat(), groups.concat(), total.as_secs_f64());
    let (border_width, border_height, middle) = (width - 1.0, height - 1.0, width / 2.0);
    format!(
        "<svg xmlns='http://www.w3.org/2000/svg' width='{width}' height='{height}' \
         viewBox='0 0 {width} {height}' role='img' fill='#e6edf3' font-size='14' \
         font-family=\"{FONTS}\" xml:space='preserve'>\n\
         <title>A recorded run of replicaset-controller demo</title>\n\
         <style>\n{STYLE}@media (prefers-reduced-motion:no-preference){{\
         .f{{animation:{seconds}s step-end infinite}}}}\n{keyframes}</style>\n\
         <rect x='.5' y='.5' width='{border_width}' height='{border_height}' rx='10' \
         fill='#0d1117' stroke='#3d444d'/>\n\
         <circle cx='22' cy='20' r='6' fill='#ff5f57'/>\n\
         <circle cx='42' cy='20' r='6' fill='#febc2e'/>\n\
         <circle cx='62' cy='20' r='6' fill='#28c840'/>\n\
         <text class='d' x='{middle}' y='25' text-anchor='middle'>replicaset-controller demo\
         </text>\n{groups}</svg>\n"
    )
}

/// The lines of all rows, by the first frame that shows them and the first that does not.
fn lines_by_frames(frames: &[Screen]) -> BTreeMap<(usize, usize), String> {
    let mut groups: BTreeMap<(usize, usize), String> = BTreeMap::new();
    let (rows, _) = frames[0].size();
    for row in 0..rows.get() {
        let lines: Vec<String> = frames.iter().map(|screen| line(screen, row)).collect();
        let mut start = 0;
        for same in lines.chunk_by(|a, b| a == b) {
            let end = start + same.len();
            if !same[0].is_empty() {
                *groups.entry((start, end)).or_default() += &same[0];
            }
            start = end;
        }
    }
    groups
}

/// A row, an element for each run of cells that look alike.
fn line(screen: &Screen, row: u16) -> String {
    let (_, columns) = screen.size();
    let cells: Vec<(u16, &Cell)> = (0..columns.get())
        .filter_map(|column| Some((column, screen.cell(row, column)?)))
        .filter(|(_, cell)| cell.has_contents())
        .collect();
    let is_same = |(left, a): &(u16, &Cell), (right, b): &(u16, &Cell)| {
        right - left == 1 && class(a) == class(b) && opacity(a) == opacity(b)
    };
    let runs = cells.chunk_by(is_same);
    runs.filter_map(|run| element(run, row)).collect()
}

/// A run without the spaces around it, or nothing if it is blank.
fn element(run: &[(u16, &Cell)], row: u16) -> Option<String> {
    let text: String = run.iter().map(|(_, cell)| cell.contents()).collect();
    let (column, cell) = run[text.find(|c| c != ' ')?];
    let text = text.trim();
    let n_cells = u32::try_from(text.chars().count()).expect("a short text");
    let width = f64::from(n_cells) * CELL.0;
    let x = MARGIN + f64::from(column) * CELL.0;
    let y = TITLE_BAR_HEIGHT + f64::from(row) * CELL.1;
    let class = class(cell);
    Some(if let Some(opacity) = opacity(cell) {
        let (y, height) = (y + 3.0, CELL.1 - 5.0);
        format!(
            "<rect{class} x='{x:.1}' y='{y}' width='{width:.1}' height='{height}' \
             opacity='{opacity}'/>\n"
        )
    } else {
        let (y, text) = (y + 14.0, escape(text));
        // The length keeps the columns in place where the font is narrower or wider.
        format!("<text{class} x='{x:.1}' y='{y}' textLength='{width:.1}'>{text}</text>\n")
    })
}

/// The `class` attribute for a cell, or nothing for plain text.
fn class(cell: &Cell) -> String {
    let color = match cell.fgcolor() {
        Color::Idx(index) => format!("c{index}"),
        _ => String::new(),
    };
    let bold = if cell.bold() { "b" } else { "" };
    let dim = if cell.dim() { "d" } else { "" };
    match format!("{bold} {dim} {color}").trim() {
        "" => String::new(),
        names => format!(" class='{names}'"),
    }
}

/// Opacity of a block character, which terminals draw as an area, without a font.
fn opacity(cell: &Cell) -> Option<&'static str> {
    match cell.contents() {
        "█" => Some("1"),
        "▓" => Some(".75"),
        "▒" => Some(".6"),
        _ => None,
    }
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;")
}
