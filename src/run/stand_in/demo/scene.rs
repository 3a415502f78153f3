//! One frame as plain data, and the trait of displays. The stage creates frames;
//! [`screen`](super::screen) or [`plain`](super::plain) shows them, all on the main thread.

use std::io;
use std::time::Duration;

use crate::run::stand_in::world::World;

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
    /// Pods that are not terminating, ready and in total. The status follows a little later.
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
    /// Shows the first lines, and the meaning of the display's own signs.
    fn introduce(&mut self, lines: &[&str]);

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

/// The table of all ReplicaSets.
pub(super) fn rows(world: &World) -> Vec<Row> {
    let row = |set: &crate::run::stand_in::world::SetFacts| {
        let pods = world.pods_of(set);
        let event = world.last_event(set);
        Row {
            name: match set.namespace.as_str() {
                "default" => set.name.clone(),
                namespace => format!("{namespace}/{}", set.name),
            },
            desired: set.desired,
            current: set.current,
            ready: set.ready,
            available: set.available,
            pods: (pods.iter().filter(|pod| pod.is_ready).count(), pods.len()),
            last_event: event.map(|event| event.message.clone()).unwrap_or_default(),
            is_warning: event.is_some_and(|event| event.is_warning),
        }
    };
    world.sets.iter().map(row).collect()
}
