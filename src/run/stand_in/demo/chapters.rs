//! The chapters: each changes the cluster and checks the server's objects for the expected reaction
//! of the controller.

mod adoption;
mod crash;
mod failing;
mod quota;
mod replacement;
mod scale_down;
mod scale_up;

use std::time::Duration;

use serde_json::{Value, json};

use super::stage::{ChapterResult, Stage};

/// Maximum wait for a reaction; generous, for busy machines.
const PATIENCE: Duration = Duration::from_secs(20);

/// One chapter.
#[derive(Clone, Copy)]
pub(super) struct Chapter {
    /// The title.
    pub(super) headline: &'static str,
    /// Plays the chapter and returns a summary.
    pub(super) play: fn(&mut Stage<'_>) -> ChapterResult<String>,
}

/// All chapters in order. Each depends on the first chapter only.
pub(super) const CHAPTERS: [Chapter; 7] = [
    Chapter {
        headline: "ReplicaSets scale up, one of them to 200",
        play: scale_up::play,
    },
    Chapter {
        headline: "A pod is killed and replaced",
        play: replacement::play,
    },
    Chapter {
        headline: "An orphan is adopted; a relabelled pod is released and replaced",
        play: adoption::play,
    },
    Chapter {
        headline: "A scale-down takes weak pods first, keeps a protected one and empties a node",
        play: scale_down::play,
    },
    Chapter {
        headline: "A quota blocks new pods until it is raised",
        play: quota::play,
    },
    Chapter {
        headline: "A node rejects pods, and their replacements wait until it has recovered",
        play: failing::play,
    },
    Chapter {
        headline: "The controller is killed in the middle of a scale-up, then restarted",
        play: crash::play,
    },
];

fn collection(namespace: &str) -> String {
    format!("/apis/apps/v1/namespaces/{namespace}/replicasets")
}

fn set_path(namespace: &str, name: &str) -> String {
    format!("{}/{name}", collection(namespace))
}

fn pod_path(name: &str) -> String {
    format!("/api/v1/namespaces/default/pods/{name}")
}

fn replica_set(name: &str, replicas: usize) -> Value {
    json!({
        "apiVersion": "apps/v1", "kind": "ReplicaSet",
        "metadata": {"name": name},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": {"app": name}},
            "template": {
                "metadata": {"labels": {"app": name}},
                "spec": pod_spec(),
            },
        },
    })
}

fn pod_spec() -> Value {
    json!({"containers": [{"name": "main", "image": "registry.k8s.io/pause:3.10"}]})
}

fn annotations(pairs: &[(&str, &str)]) -> Value {
    pairs.iter().copied().collect()
}

/// Sets or removes an annotation and shows the command for it.
fn annotate(
    stage: &mut Stage<'_>,
    (resource, name): (&str, &str),
    annotation: &str,
    value: Option<&str>,
) -> ChapterResult<()> {
    let change = value.map_or("-".to_owned(), |value| format!("={value}"));
    stage.command(format!(
        "kubectl annotate {resource} {name} {annotation}{change}"
    ));
    let path = match resource {
        "rs" => set_path("default", name),
        _ => pod_path(name),
    };
    let patch = json!({"metadata": {"annotations": {annotation: value}}});
    stage.patch(&path, &patch)
}

/// Scales a ReplicaSet and shows the `kubectl scale` command for it.
fn scale(stage: &mut Stage<'_>, name: &str, replicas: usize) -> ChapterResult<()> {
    stage.command(format!("kubectl scale rs {name} --replicas={replicas}"));
    let patch = json!({"spec": {"replicas": replicas}});
    stage.patch(&set_path("default", name), &patch)
}

/// Waits until the ReplicaSet has all its pods, all available.
fn until_complete(stage: &mut Stage<'_>, name: &str) -> ChapterResult<()> {
    let what = format!("{name} has all its pods");
    stage
        .until(&what, PATIENCE, |_, world| world.is_complete(name))
        .map(|_| ())
}
