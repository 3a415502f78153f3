//! One frame as plain data, and the trait of displays. The stage creates frames;
//! [`screen`](super::screen) or [`plain`](super::plain) shows them, all on the main thread.

use std::io;
use std::time::Duration;

use crate::run::stand_in::world::{EventFacts, SetFacts, World};

/// One frame.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Scene {
    /// Time since the start of the demo.
    pub(super) elapsed: Duration,
    /// Number of the chapter, from 1, and number of chapters.
    pub(super) chapter: (usize, usize),
    /// Title of the chapter.
    pub(super) headline: String,
    /// Name of the ReplicaSet that the chapter is about, as in its row.
    pub(super) about: &'static str,
    /// The command with the same effect; empty if there is none.
    pub(super) command: String,
    pub(super) rows: Vec<Row>,
    /// Notes below the table.
    pub(super) notes: Vec<String>,
}

/// A ReplicaSet.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Row {
    pub(super) name: String,
    pub(super) desired: usize,
    pub(super) current: usize,
    pub(super) ready: usize,
    pub(super) available: usize,
    /// Pods that are neither terminating nor Failed, ready and in total. The status follows a
    /// little later.
    pub(super) pods: (usize, usize),
    pub(super) last_event: String,
    pub(super) is_warning: bool,
}

/// Outcome of a chapter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Outcome {
    pub(super) chapter: (usize, usize),
    pub(super) headline: String,
    /// The summary, or the reason of the failure.
    pub(super) text: Result<String, String>,
}

/// A display. Only `tell`, the last call, reports write errors: a closed pipe must not end the
/// demo, whose exit code still counts.
pub(super) trait Display {
    /// Shows the first paragraph, and the meaning of the display's own signs.
    fn introduce(&mut self, text: &str);

    /// Shows a frame.
    fn show(&mut self, scene: &Scene);

    /// Shows the outcome of a chapter.
    fn tell_outcome(&mut self, outcome: &Outcome, elapsed: Duration);

    /// Shows the final lines.
    ///
    /// # Errors
    /// If the lines cannot be written.
    fn tell(&mut self, lines: &[String]) -> io::Result<()>;
}

/// The message of an event, without what the recorder puts before that of many similar ones.
fn message(event: &EventFacts) -> &str {
    let message = event.message.as_str();
    let similar = message.strip_prefix("(combined from similar events): ");
    similar.unwrap_or(message)
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

/// The table of all ReplicaSets.
pub(super) fn rows(world: &World) -> Vec<Row> {
    let row = |set: &SetFacts| {
        let pods = world.pods_of(set);
        let event = world.last_event(set);
        let active = || pods.iter().filter(|pod| pod.phase != "Failed");
        Row {
            name: match set.namespace.as_str() {
                "default" => set.name.clone(),
                namespace => format!("{namespace}/{}", set.name),
            },
            desired: set.desired,
            current: set.current,
            ready: set.ready,
            available: set.available,
            pods: (
                active().filter(|pod| pod.is_ready).count(),
                active().count(),
            ),
            last_event: event.map_or("", message).to_owned(),
            is_warning: event.is_some_and(|event| event.is_warning),
        }
    };
    world.sets.iter().map(row).collect()
}

#[cfg(test)]
mod tests {
    use super::wrap;

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
