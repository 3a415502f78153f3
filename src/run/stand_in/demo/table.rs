//! Renders a frame as lines of text that fit a terminal. Pure.

use super::scene::{Row, Scene};

/// Style of the lines.
#[derive(Clone, Copy, Debug)]
pub(super) struct Style {
    pub(super) has_colors: bool,
    /// False for a terminal that shows only ASCII.
    pub(super) has_unicode: bool,
}

/// Size of a terminal, in characters.
#[derive(Clone, Copy, Debug)]
pub(super) struct Room {
    pub(super) width: usize,
    pub(super) height: usize,
}

const HEADS: [&str; 4] = ["DESIRED", "CURRENT", "READY", "AVAILABLE"];

/// Minimum width of the full table; a narrower row is the name and `ready/desired`.
const TABLE_WIDTH_MIN: usize = 44;

/// Minimum width of a headline; below it the time is left out.
const HEADLINE_WIDTH_MIN: usize = 16;

const BAR_WIDTH: std::ops::RangeInclusive<usize> = 8..=30;

/// Minimum width of an event.
const EVENT_WIDTH_MIN: usize = 16;

const BOLD: &str = "1";
const DIM: &str = "2";
const RED: &str = "31";
const GREEN: &str = "32";
const YELLOW: &str = "33";
const CYAN: &str = "36";

impl Style {
    pub(super) fn good(self, text: &str) -> String {
        self.paint(GREEN, text)
    }

    pub(super) fn bad(self, text: &str) -> String {
        self.paint(RED, text)
    }

    pub(super) fn bold(self, text: &str) -> String {
        self.paint(BOLD, text)
    }

    /// `✓` or `✗`, coloured.
    pub(super) fn mark(self, is_good: bool) -> String {
        match (is_good, self.has_unicode) {
            (true, true) => self.good("✓"),
            (true, false) => self.good("v"),
            (false, true) => self.bad("✗"),
            (false, false) => self.bad("x"),
        }
    }

    /// Cells of a bar: ready, not ready, missing, surplus.
    fn glyphs(self) -> [&'static str; 4] {
        if self.has_unicode {
            ["█", "▒", "·", "▓"]
        } else {
            ["#", "=", ".", "+"]
        }
    }

    fn paint(self, code: &str, text: &str) -> String {
        if self.has_colors && !text.is_empty() {
            format!("\x1b[{code}m{text}\x1b[0m")
        } else {
            text.to_owned()
        }
    }
}

/// Positions of the columns.
struct Columns {
    name: usize,
    bar: usize,
    event: usize,
}

impl Columns {
    fn new(rows: &[Row], width: usize) -> Self {
        let numbers: usize = HEADS.iter().map(|head| head.len() + 1).sum();
        let longest = rows.iter().map(|row| row.name.chars().count()).max();
        let name = longest
            .unwrap_or(4)
            .clamp(4, width.saturating_sub(numbers).max(4));
        let left = width.saturating_sub(name + numbers);
        let bar = (left / 3).clamp(*BAR_WIDTH.start(), *BAR_WIDTH.end());
        match left.checked_sub(bar + 4) {
            Some(event) if event >= EVENT_WIDTH_MIN => Self { name, bar, event },
            _ if left >= BAR_WIDTH.start() + 2 => Self {
                name,
                bar: (left - 2).min(*BAR_WIDTH.end()),
                event: 0,
            },
            _ => Self {
                name,
                bar: 0,
                event: 0,
            },
        }
    }
}

/// What gives way first on a terminal that is too low: the last of these. Of several such lines,
/// the first one goes, so the oldest ReplicaSets go before those of later chapters.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Rank {
    Headline,
    /// The row that the chapter is about.
    About,
    Note,
    Command,
    Heads,
    Gap,
    Row,
}

/// Renders the frame within the size of the terminal.
pub(super) fn render(scene: &Scene, room: Room, style: Style) -> Vec<String> {
    let width = room.width;
    let columns = (width >= TABLE_WIDTH_MIN).then(|| Columns::new(&scene.rows, width));
    let mut lines = vec![(Rank::Headline, headline(scene, width, style))];
    if !scene.command.is_empty() {
        let command = cut(&format!("$ {}", scene.command), width, style);
        lines.push((Rank::Command, style.paint(CYAN, &command)));
    }
    lines.push((Rank::Gap, String::new()));
    if let Some(columns) = &columns {
        lines.push((Rank::Heads, style.paint(DIM, &heads(columns, width, style))));
    }
    for row in &scene.rows {
        let rank = if row.name == scene.about {
            Rank::About
        } else {
            Rank::Row
        };
        let line = match &columns {
            Some(columns) => wide_row(row, columns, style),
            None => narrow_row(row, width, style),
        };
        lines.push((rank, line));
    }
    if !scene.notes.is_empty() {
        lines.push((Rank::Gap, String::new()));
    }
    let notes = scene.notes.iter().map(|note| cut(note, width, style));
    lines.extend(notes.map(|note| (Rank::Note, note)));
    while lines.len() > room.height.max(1) {
        let ranks = lines.iter().map(|(rank, _)| rank);
        let last = ranks.max().copied();
        let first_of_it = lines.iter().position(|(rank, _)| Some(*rank) == last);
        lines.remove(first_of_it.unwrap_or(0));
    }
    lines.into_iter().map(|(_, line)| line).collect()
}

/// Explains the signs of the table.
/// The meaning of the signs, on as many lines as a terminal of this width needs.
pub(super) fn legend(style: Style, width: usize) -> Vec<String> {
    let [full, half, none, more] = style.glyphs().map(|glyph| glyph.repeat(3));
    let signs = [
        (style.good(&full), "ready"),
        (style.paint(YELLOW, &half), "not ready"),
        (style.paint(DIM, &none), "missing"),
        (style.bad(&more), "surplus"),
        (style.mark(true), "checked"),
    ];
    let mut lines = vec!["pods:".to_owned()];
    let mut used = lines[0].len();
    for (sign, meaning) in signs {
        // The widest sign, whose colours take no room.
        let wanted = 3 + 1 + meaning.len();
        if used + 2 + wanted > width {
            lines.push("     ".to_owned());
            used = 5;
        }
        let line = lines.last_mut().expect("there is a first line");
        line.extend(["  ", &sign, " ", meaning]);
        used += 2 + wanted;
    }
    lines
}

fn headline(scene: &Scene, width: usize, style: Style) -> String {
    let (number, of) = scene.chapter;
    let seconds = format!("{:.1} s", scene.elapsed.as_secs_f64());
    let text = format!("{number}/{of}  {}", scene.headline);
    if width < HEADLINE_WIDTH_MIN + seconds.len() {
        return style.bold(&cut(&text, width, style));
    }
    let text = cut(&text, width - seconds.len() - 2, style);
    let gap = width - text.chars().count() - seconds.len();
    let seconds = style.paint(DIM, &seconds);
    format!("{}{}{seconds}", style.bold(&text), " ".repeat(gap))
}

fn heads(columns: &Columns, width: usize, style: Style) -> String {
    let mut line = format!("{:1$}", "NAME", columns.name);
    for head in HEADS {
        line = format!("{line} {head}");
    }
    if columns.event > 0 {
        line = format!("{line}  {:1$}  LAST EVENT", "", columns.bar);
    }
    cut(&line, width, style)
}

fn wide_row(row: &Row, columns: &Columns, style: Style) -> String {
    let name = cut(&row.name, columns.name, style);
    let mut line = format!("{name:0$}", columns.name);
    let counts = [row.desired, row.current, row.ready, row.available];
    for (head, count) in HEADS.iter().zip(counts) {
        line = format!("{line} {count:>0$}", head.len());
    }
    if columns.bar > 0 {
        line = format!("{line}  {}", bar(row, columns.bar, style));
    }
    if columns.event > 0 {
        let event = cut(&row.last_event, columns.event, style);
        let color = if row.is_warning { YELLOW } else { DIM };
        line = format!("{line}  {}", style.paint(color, &event));
    }
    line.trim_end().to_owned()
}

fn narrow_row(row: &Row, width: usize, style: Style) -> String {
    let counts = format!("{}/{}", row.ready, row.desired);
    let room = width.saturating_sub(counts.len() + 1);
    let name = cut(&row.name, room, style);
    cut(&format!("{name:room$} {counts}"), width, style)
}

/// A bar of ready pods, pods that are not ready yet, and missing pods; surplus pods are at the end.
fn bar(row: &Row, width: usize, style: Style) -> String {
    let (ready, pods) = row.pods;
    let whole = row.desired.max(pods).max(1);
    let cells = |count: usize| (count * width + whole / 2) / whole;
    let wanted = cells(row.desired);
    let kept = cells(pods).min(wanted);
    let ready = cells(ready.min(pods)).min(kept);
    let [full, half, none, more] = style.glyphs();
    let piece = |code: &str, glyph: &str, n: usize| style.paint(code, &glyph.repeat(n));
    let rest = if pods > row.desired {
        piece(RED, more, width - wanted)
    } else {
        " ".repeat(width - wanted)
    };
    [
        piece(GREEN, full, ready),
        piece(YELLOW, half, kept - ready),
        piece(DIM, none, wanted - kept),
        rest,
    ]
    .concat()
}

/// Cuts the text to `width` characters, with a mark at the cut.
pub(super) fn cut(text: &str, width: usize, style: Style) -> String {
    let text: String = text.chars().filter(|c| !c.is_control()).collect();
    if text.chars().count() <= width {
        return text;
    }
    let mark = if style.has_unicode { "…" } else { "~" };
    let kept: String = text.chars().take(width.saturating_sub(1)).collect();
    if width == 0 {
        return String::new();
    }
    format!("{}{mark}", kept.trim_end())
}

#[cfg(test)]
mod tests;
