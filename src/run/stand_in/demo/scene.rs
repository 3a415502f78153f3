//! What the viewer sees at one moment, as plain data, and who shows it. Made by the stage, drawn by
//! [`screen`](super::screen) or told by [`plain`](super::plain), all on the main thread.

use std::io;
use std::time::Duration;

use crate::run::stand_in::world::World;

/// What is shown.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Scene {
    /// Time since the demo began.
    pub(super) elapsed: Duration,
    /// Which chapter this is, from 1, and of how many.
    pub(super) chapter: (usize, usize),
    /// What is being shown.
    pub(super) headline: String,
    /// What a person would type to the same effect; empty if nothing.
    pub(super) command: String,
    pub(super) rows: Vec<Row>,
    /// What is worth saying beside the table.
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
    /// Pods that exist and are not going away, ready and in all; the status says so a little later.
    pub(super) pods: (usize, usize),
    pub(super) last_event: String,
    pub(super) is_warning: bool,
}

/// How a chapter came out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Outcome {
    pub(super) chapter: (usize, usize),
    pub(super) headline: String,
    /// What was seen, or why it did not come out as told.
    pub(super) text: Result<String, String>,
}

/// Whoever shows scenes. Failures to write are reported at the end only: whoever closed the pipe
/// has seen enough, and the exit code still counts.
pub(super) trait Display {
    /// Shows how things are now.
    fn show(&mut self, scene: &Scene);

    /// Tells how a chapter came out.
    fn tell_outcome(&mut self, outcome: &Outcome, elapsed: Duration);

    /// Tells lines that stay, the last of all.
    ///
    /// # Errors
    /// If they cannot be written.
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
