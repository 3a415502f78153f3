//! What the demo prints: lines with times, each once.

use std::collections::HashMap;
use std::io::{self, Write};
use std::time::Duration;

use crate::run::stand_in::world::{SetFacts, World};

/// Minimum time between two lines about the counts of one ReplicaSet.
const ROW_PERIOD: Duration = Duration::from_millis(400);

/// The meaning of the lines.
const SIGNS: &str = "desired is spec.replicas; current, ready and available are the status that \
     the controller wrote; pods counts the pods themselves. A chapter ends with ok if the API \
     server's objects are as they should be.";

/// Width of the paragraphs at the beginning.
const WIDTH: usize = 95;

/// What there is to print about a chapter at one moment.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Scene {
    /// Time since the start of the demo.
    pub(super) elapsed: Duration,
    /// Number of the chapter, from 1, and number of chapters.
    pub(super) chapter: (usize, usize),
    /// Title of the chapter.
    pub(super) headline: String,
    /// The command with the same effect; empty if there is none.
    pub(super) command: String,
    pub(super) rows: Vec<Row>,
    pub(super) notes: Vec<String>,
}

/// A ReplicaSet.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Row {
    name: String,
    desired: usize,
    current: usize,
    ready: usize,
    available: usize,
    /// Pods that are neither terminating nor Failed. The status follows a little later.
    pods: usize,
}

/// All ReplicaSets.
pub(super) fn rows(world: &World) -> Vec<Row> {
    let row = |set: &SetFacts| {
        let pods = world.pods_of(set);
        Row {
            name: match set.namespace.as_str() {
                "default" => set.name.clone(),
                namespace => format!("{namespace}/{}", set.name),
            },
            desired: set.desired,
            current: set.current,
            ready: set.ready,
            available: set.available,
            pods: pods.iter().filter(|pod| pod.phase != "Failed").count(),
        }
    };
    world.sets.iter().map(row).collect()
}

/// Prints what is new of each [`Scene`]. Only [`Lines::end`] reports write errors: a closed pipe
/// must not end the demo, whose exit code still counts.
pub(super) struct Lines<W> {
    out: W,
    shown: Scene,
    /// The last line about each ReplicaSet, and its time.
    rows: HashMap<String, (Row, Duration)>,
}

impl<W: Write> Lines<W> {
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

    /// Prints the first paragraph, and what the lines mean.
    pub(super) fn introduce(&mut self, text: &str) {
        for paragraph in [text, SIGNS] {
            for line in wrap(paragraph, WIDTH) {
                writeln!(self.out, "{line}").unwrap_or_default();
            }
            writeln!(self.out).unwrap_or_default();
        }
    }

    /// Prints what is new.
    pub(super) fn show(&mut self, scene: &Scene) {
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

    /// Prints how a chapter ended.
    pub(super) fn end_chapter(&mut self, outcome: &Result<String, String>, elapsed: Duration) {
        let line = match outcome {
            Ok(text) => format!("  ok: {text}"),
            Err(why) => format!("  FAILED: {why}"),
        };
        self.line(elapsed, &line);
    }

    /// Prints the final lines.
    ///
    /// # Errors
    /// If the lines cannot be written.
    pub(super) fn end(&mut self, lines: &[String]) -> io::Result<()> {
        for line in lines {
            writeln!(self.out, "{line}")?;
        }
        self.out.flush()
    }
}

fn counts(row: &Row) -> [usize; 5] {
    [row.desired, row.current, row.ready, row.available, row.pods]
}

/// Breaks a text between words into lines of at most `width` characters; a longer word has a line
/// of its own. All lines begin with the spaces at the beginning of the text.
pub(super) fn wrap(text: &str, width: usize) -> Vec<String> {
    let words = text.trim_start_matches(' ');
    let indent = &text[..text.len() - words.len()];
    let mut lines = vec![indent.to_owned()];
    for word in words.split(' ') {
        let line = lines.last_mut().expect("there is a first line");
        let is_first = line.len() == indent.len();
        if !is_first && line.chars().count() + 1 + word.chars().count() > width {
            lines.push(format!("{indent}{word}"));
        } else {
            let gap = if is_first { "" } else { " " };
            line.push_str(gap);
            line.push_str(word);
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{Lines, Row, Scene, wrap};

    fn scene(ms: u64, ready: usize, notes: &[&str]) -> Scene {
        Scene {
            elapsed: Duration::from_millis(ms),
            chapter: (2, 6),
            headline: "A pod is killed".to_owned(),
            command: "kubectl delete pod web-1".to_owned(),
            rows: vec![Row {
                name: "web".to_owned(),
                desired: 3,
                current: 3,
                ready,
                available: ready,
                pods: 3,
            }],
            notes: notes.iter().map(|note| (*note).to_owned()).collect(),
        }
    }

    #[test]
    fn the_lines_are_explained_first() {
        let mut out = Vec::new();
        Lines::new(&mut out).introduce("One process.");
        let text = String::from_utf8(out).expect("text");
        assert!(text.starts_with("One process.\n\ndesired is"), "{text}");
        assert!(text.ends_with("\n\n"), "{text}");
    }

    #[test]
    fn each_thing_is_told_once_and_rows_at_a_steady_pace() {
        let mut out = Vec::new();
        let mut lines = Lines::new(&mut out);
        lines.show(&scene(0, 0, &[]));
        lines.show(&scene(100, 1, &["one", ""]));
        lines.show(&scene(450, 2, &["one", "two"]));
        lines.show(&scene(500, 3, &["one", "two"]));
        lines.show(&scene(600, 3, &["one", "two"]));
        for outcome in [Ok("replaced".to_owned()), Err("no pod came".to_owned())] {
            lines.end_chapter(&outcome, Duration::from_secs(1));
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

    #[test]
    fn lines_break_between_words_and_keep_the_indent() {
        let text = "  front-9tsj7 replaced it";
        assert_eq!(wrap(text, 80), [text]);
        assert_eq!(wrap(text, 22), ["  front-9tsj7 replaced", "  it"]);
        assert_eq!(wrap(text, 5), ["  front-9tsj7", "  replaced", "  it"]);
        assert_eq!(wrap("  --kubeconfig=FILE    reports", 80).len(), 1);
        assert_eq!(wrap("", 10), [""]);
    }
}
