//! A table on a terminal, redrawn in place. Outcomes of earlier chapters stay above it.
//!
//! The cursor stays visible and where a shell expects it, so the terminal needs no cleanup if the
//! process ends early.

use std::io::{self, Write};
use std::iter;
use std::time::Duration;

use rustix::termios::tcgetwinsize;

use super::scene::{Display, Outcome, Scene, wrap};
use super::table::{Room, Style, legend, render};

/// Assumed size of a terminal with an unknown size.
const USUAL_ROOM: Room = Room {
    width: 80,
    height: 24,
};

/// The display for terminals.
pub(super) struct Screen<W> {
    out: W,
    style: Style,
    /// Returns the current size of the terminal.
    room: fn() -> Room,
    /// The lines of the table on the screen.
    drawn: Vec<String>,
}

impl<W: Write> Screen<W> {
    pub(super) fn new(out: W, style: Style, room: fn() -> Room) -> Self {
        Self {
            out,
            style,
            room,
            drawn: Vec::new(),
        }
    }

    /// The part of the terminal that lines may fill: the cursor needs one line, and a character in
    /// the last column would wrap.
    fn usable(&self) -> Room {
        let room = (self.room)();
        Room {
            width: room.width.saturating_sub(1),
            height: room.height.saturating_sub(1),
        }
    }

    /// Prints `above` at the top of the table, and the table below it.
    fn draw(&mut self, above: &[String], table: Vec<String>) -> io::Result<()> {
        let mut text = match self.drawn.len() {
            0 => String::new(),
            n_lines => format!("\x1b[{n_lines}A\r"),
        };
        for line in above.iter().chain(&table) {
            text.push_str(line);
            // Clears the rest of a longer previous line.
            text.push_str("\x1b[K\n");
        }
        text.push_str("\x1b[J");
        // One write per frame, so that no partial frame is visible.
        self.drawn = table;
        self.out.write_all(text.as_bytes())?;
        self.out.flush()
    }
}

impl<W: Write> Display for Screen<W> {
    fn introduce(&mut self, text: &str) {
        let mut lines = wrap(text, self.usable().width);
        let legend = legend(self.style, self.usable().width);
        lines.extend(iter::once(String::new()).chain(legend));
        lines.push(String::new());
        self.draw(&lines, Vec::new()).unwrap_or_default();
    }

    fn show(&mut self, scene: &Scene) {
        let table = render(scene, self.usable(), self.style);
        if table != self.drawn {
            self.draw(&[], table).unwrap_or_default();
        }
    }

    fn tell_outcome(&mut self, outcome: &Outcome, _elapsed: Duration) {
        let mark = self.style.mark(outcome.text.is_ok());
        let (number, _) = outcome.chapter;
        let title = self.style.bold(&outcome.headline);
        let mut lines = vec![format!("{mark} {number}  {title}")];
        let (Ok(text) | Err(text)) = &outcome.text;
        for line in wrap(&format!("     {text}"), self.usable().width) {
            lines.push(match outcome.text {
                Ok(_) => line,
                Err(_) => self.style.bad(&line),
            });
        }
        // Removes the table; the next chapter draws a new one below.
        self.draw(&lines, Vec::new()).unwrap_or_default();
    }

    fn tell(&mut self, lines: &[String]) -> io::Result<()> {
        let table = self.drawn.clone();
        let width = self.usable().width;
        let lines: Vec<String> = lines.iter().flat_map(|line| wrap(line, width)).collect();
        self.draw(&lines, table)
    }
}

/// Returns the size of the terminal on standard output.
pub(super) fn room_of_stdout() -> Room {
    match tcgetwinsize(std::io::stdout()) {
        Ok(size) if size.ws_col > 0 && size.ws_row > 0 => Room {
            width: size.ws_col.into(),
            height: size.ws_row.into(),
        },
        _ => USUAL_ROOM,
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::scene::{Display, Outcome, Row, Scene};
    use super::super::table::{Room, Style};
    use super::Screen;

    const PLAIN: Style = Style {
        has_colors: false,
        has_unicode: false,
    };

    fn scene(ready: usize) -> Scene {
        Scene {
            chapter: (1, 6),
            headline: "Scaling".to_owned(),
            rows: vec![Row {
                name: "web".to_owned(),
                desired: 2,
                ready,
                ..Row::default()
            }],
            ..Scene::default()
        }
    }

    fn room() -> Room {
        Room {
            width: 31,
            height: 10,
        }
    }

    #[test]
    fn the_table_is_redrawn_in_place_and_outcomes_stay_above() {
        let mut out = Vec::new();
        let mut screen = Screen::new(&mut out, PLAIN, room);
        screen.show(&scene(0));
        screen.show(&scene(0));
        screen.show(&scene(2));
        let outcome = Outcome {
            chapter: (1, 6),
            headline: "Scaling".to_owned(),
            text: Ok("two pods of two, and none twice".to_owned()),
        };
        screen.tell_outcome(&outcome, Duration::ZERO);
        screen.tell(&["the end".to_owned()]).expect("there is room");
        let text = String::from_utf8(out).expect("text");
        let text = text.replace('\x1b', "^");
        let expected = "\
1/6  Scaling             0.0 s^[K
^[K
web                        0/2^[K
^[J^[3A\r1/6  Scaling             0.0 s^[K
^[K
web                        2/2^[K
^[J^[3A\rv 1  Scaling^[K
     two pods of two, and none^[K
     twice^[K
^[Jthe end^[K
^[J";
        assert_eq!(text, expected);
    }
}
