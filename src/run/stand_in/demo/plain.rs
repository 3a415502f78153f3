//! Lines with times, for pipes, files and logs.

use std::collections::HashMap;
use std::io::{self, Write};
use std::time::Duration;

use super::scene::{Display, Outcome, Row, Scene, wrap};

/// Minimum time between two lines about the counts of one ReplicaSet.
const ROW_PERIOD: Duration = Duration::from_millis(400);

/// The meaning of the lines.
const SIGNS: &str = "desired is spec.replicas; current, ready and available are the status that \
     the controller wrote; pods counts the pods themselves. A chapter ends with ok if the API \
     server's objects are as they should be.";

/// Width of the paragraphs at the beginning.
const WIDTH: usize = 95;

/// The display for outputs other than terminals.
pub(super) struct Plain<W> {
    out: W,
    shown: Scene,
    /// The last line about each ReplicaSet, and its time.
    rows: HashMap<String, (Row, Duration)>,
}

impl<W: Write> Plain<W> {
    pub(super) fn new(out: W) -> Self {
        Self {
            out,
            shown: Scene::default(),
            rows: HashMap::new(),
        }
    }

    fn line(&mut self, at: Duration, text: &str) {
        writeln!(self.out, "{:6.1} s  {text}", at.as_secs_f64()).unwrap_or_default();
    }

    fn show_row(&mut self, row: &Row, at: Duration) {
        let known = self.rows.get(&row.name);
        let is_same = known.is_some_and(|(known, _)| counts(known) == counts(row));
        let is_recent = known.is_some_and(|(_, told)| at.saturating_sub(*told) < ROW_PERIOD);
        let is_settled = counts(row)[..4].iter().all(|count| *count == row.desired);
        if is_same || (is_recent && !is_settled) {
            return;
        }
        let [desired, current, ready, available, pods] = counts(row);
        let line = format!(
            "  {:12} desired {desired:3}  current {current:3}  ready {ready:3}  available \
             {available:3}  pods {pods:3}",
            row.name
        );
        self.line(at, &line);
        self.rows.insert(row.name.clone(), (row.clone(), at));
    }
}

fn counts(row: &Row) -> [usize; 5] {
    let (_, pods) = row.pods;
    [row.desired, row.current, row.ready, row.available, pods]
}

impl<W: Write> Display for Plain<W> {
    fn introduce(&mut self, text: &str) {
        for paragraph in [text, SIGNS] {
            for line in wrap(paragraph, WIDTH) {
                writeln!(self.out, "{line}").unwrap_or_default();
            }
            writeln!(self.out).unwrap_or_default();
        }
    }

    fn show(&mut self, scene: &Scene) {
        let at = scene.elapsed;
        if scene.chapter != self.shown.chapter {
            let (number, of) = scene.chapter;
            self.line(at, &format!("{number}/{of} {}", scene.headline));
        }
        if scene.command != self.shown.command && !scene.command.is_empty() {
            self.line(at, &format!("  $ {}", scene.command));
        }
        for row in &scene.rows {
            self.show_row(row, at);
        }
        for note in &scene.notes {
            if !self.shown.notes.contains(note) && !note.is_empty() {
                self.line(at, &format!("  {note}"));
            }
        }
        self.shown = scene.clone();
        self.out.flush().unwrap_or_default();
    }

    fn tell_outcome(&mut self, outcome: &Outcome, elapsed: Duration) {
        let line = match &outcome.text {
            Ok(text) => format!("  ok: {text}"),
            Err(why) => format!("  FAILED: {why}"),
        };
        self.line(elapsed, &line);
    }

    fn tell(&mut self, lines: &[String]) -> io::Result<()> {
        for line in lines {
            writeln!(self.out, "{line}")?;
        }
        self.out.flush()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::scene::{Display, Outcome, Row, Scene};
    use super::Plain;

    fn scene(ms: u64, ready: usize, notes: &[&str]) -> Scene {
        Scene {
            elapsed: Duration::from_millis(ms),
            chapter: (2, 6),
            headline: "A pod is killed".to_owned(),
            about: "web",
            command: "kubectl delete pod web-1".to_owned(),
            rows: vec![Row {
                name: "web".to_owned(),
                desired: 3,
                current: 3,
                ready,
                available: ready,
                pods: (ready, 3),
                ..Row::default()
            }],
            notes: notes.iter().map(|note| (*note).to_owned()).collect(),
        }
    }

    #[test]
    fn the_lines_are_explained_first() {
        let mut out = Vec::new();
        Plain::new(&mut out).introduce("One process.");
        let text = String::from_utf8(out).expect("text");
        assert!(text.starts_with("One process.\n\ndesired is"), "{text}");
        assert!(text.ends_with("\n\n"), "{text}");
    }

    #[test]
    fn each_thing_is_told_once_and_rows_at_a_steady_pace() {
        let mut out = Vec::new();
        let mut plain = Plain::new(&mut out);
        plain.show(&scene(0, 0, &[]));
        plain.show(&scene(100, 1, &["one", ""]));
        plain.show(&scene(450, 2, &["one", "two"]));
        plain.show(&scene(500, 3, &["one", "two"]));
        plain.show(&scene(600, 3, &["one", "two"]));
        for text in [Ok("replaced".to_owned()), Err("no pod came".to_owned())] {
            let outcome = Outcome {
                chapter: (2, 6),
                headline: String::new(),
                text,
            };
            plain.tell_outcome(&outcome, Duration::from_secs(1));
        }
        let expected = "   0.0 s  2/6 A pod is killed
   0.0 s    $ kubectl delete pod web-1
   0.0 s    web          desired   3  current   3  ready   0  available   0  pods   3
   0.1 s    one
   0.5 s    web          desired   3  current   3  ready   2  available   2  pods   3
   0.5 s    two
   0.5 s    web          desired   3  current   3  ready   3  available   3  pods   3
   1.0 s    ok: replaced
   1.0 s    FAILED: no pod came
";
        assert_eq!(String::from_utf8(out).expect("text"), expected);
    }
}
