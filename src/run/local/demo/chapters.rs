//! The chapters: each changes the cluster and checks the server's objects for the expected reaction
//! of the controller.

mod scaling;

use std::collections::HashSet;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::stage::{ChapterResult, Stage};
use crate::devserver::{Action, Matcher, Rule};
use crate::run::local::World;
use crate::run::local::demo::stage::{ChapterError, check};

#[derive(Clone, Copy)]
pub(super) struct Chapter {
    pub(super) headline: &'static str,
    /// Plays the chapter and returns a summary.
    pub(super) play: fn(&mut Stage<'_>) -> ChapterResult<String>,
}

/// All chapters in order. Each depends on the first chapter only.
pub(super) const CHAPTERS: [Chapter; 7] = [
    Chapter {
        headline: "ReplicaSets scale up, one of them to 200",
        play: scaling::scale_up,
    },
    Chapter {
        headline: "A pod is killed and replaced",
        play: replacement,
    },
    Chapter {
        headline: "An orphan is adopted; a relabelled pod is released and replaced",
        play: adoption,
    },
    Chapter {
        headline: "A scale-down deletes Pending and not-Ready pods first, keeps a protected one \
                   and empties a node",
        play: self::scaling::scale_down,
    },
    Chapter {
        headline: "A quota blocks new pods until it is raised",
        play: quota,
    },
    Chapter {
        headline: "A node rejects pods, and their replacements wait until it has recovered",
        play: failing,
    },
    Chapter {
        headline: "The controller is killed in the middle of a scale-up, then restarted",
        play: crash,
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

fn scale(stage: &mut Stage<'_>, name: &str, replicas: usize) -> ChapterResult<()> {
    stage.command(format!("kubectl scale rs {name} --replicas={replicas}"));
    let patch = json!({"spec": {"replicas": replicas}});
    stage.patch(&set_path("default", name), &patch)
}

/// Waits until the ReplicaSet has all its pods, all available.
fn until_complete(stage: &mut Stage<'_>, name: &str) -> ChapterResult<()> {
    let what = format!("{name} has all its pods");
    stage
        .until(&what, |_, world| world.is_complete(name))
        .map(|_| ())
}

const WEB: &str = "web";

fn replacement(stage: &mut Stage<'_>) -> ChapterResult<String> {
    until_complete(stage, WEB)?;
    let world = stage.pause(0.2)?;
    let pods = world.pods_of_name(WEB);
    let known: HashSet<String> = pods.iter().map(|pod| pod.uid.clone()).collect();
    let victim = pods.first().map(|pod| pod.name.clone());
    let victim = victim.ok_or_else(|| ChapterError::Missed(format!("{WEB} has no pods")))?;
    let n_before = stage.requests("create", "pods").len();

    stage.command(format!("kubectl delete pod {victim}"));
    let deleted = Instant::now();
    stage.delete(&pod_path(&victim))?;
    let mut newcomer = None;
    stage.until("a new pod", |_, world| {
        let pods = world.pods_of_name(WEB);
        let mut new = pods.iter().filter(|pod| !known.contains(&pod.uid));
        newcomer = new.next().map(|pod| pod.name.clone());
        newcomer.is_some()
    })?;
    let newcomer = newcomer.unwrap_or_default();
    let creates = stage.requests("create", "pods");
    let more = &creates[n_before.min(creates.len())..];
    check(more.len() == 1, || {
        format!("{} pods were created, not 1", more.len())
    })?;
    let delay = more[0].started.saturating_duration_since(deleted);
    stage.note(format!("{victim} was deleted"));
    stage.note(format!(
        "the controller sent the create of {newcomer} {} ms later",
        delay.as_millis()
    ));
    until_complete(stage, WEB)?;
    let gone = stage.until("the old pod is gone", |_, world| {
        world.pod(&victim).is_none()
    })?;
    let n_pods = gone.pods_of_name(WEB).len();
    check(n_pods == known.len(), || {
        format!("{WEB} has {n_pods} pods, not {}", known.len())
    })?;
    stage.pause(0.6)?;
    Ok(format!(
        "{victim} was deleted; the controller sent the create of {newcomer} {} ms later",
        delay.as_millis()
    ))
}

const FRONT: &str = "front";

const N_FRONT: usize = 3;

/// A pod created by hand.
const ORPHAN: &str = "made-by-hand";

fn adoption(stage: &mut Stage<'_>) -> ChapterResult<String> {
    stage.command(format!(
        "kubectl run {ORPHAN} --image=pause --labels=app={FRONT}"
    ));
    let orphan = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": ORPHAN, "labels": {"app": FRONT}},
        "spec": pod_spec(),
    });
    stage.create("/api/v1/namespaces/default/pods", &orphan)?;
    stage.note(format!("{ORPHAN} has no owner"));
    stage.until("the orphan is ready", |_, world| {
        world.pod(ORPHAN).is_some_and(|pod| pod.is_ready)
    })?;
    stage.pause(0.3)?;

    let n_before = stage.requests("create", "pods").len();
    stage.command(format!(
        "kubectl create -f {FRONT}.yaml   # replicas: {N_FRONT}, app={FRONT}"
    ));
    stage.create(&collection("default"), &replica_set(FRONT, N_FRONT))?;
    until_complete(stage, FRONT)?;
    let world = stage.look()?;
    let owner = world
        .set(FRONT)
        .map(|set| set.uid.clone())
        .unwrap_or_default();
    let is_adopted = world.pod(ORPHAN).is_some_and(|pod| pod.owner == owner);
    check(is_adopted, || format!("{ORPHAN} was not adopted"))?;
    let n_created = stage.requests("create", "pods").len() - n_before;
    check(n_created == N_FRONT - 1, || {
        format!("{n_created} pods were created besides the adopted pod")
    })?;
    stage.note(format!(
        "{FRONT} adopted {ORPHAN} and created {n_created} more pods"
    ));
    stage.pause(0.7)?;

    let known: HashSet<String> = world.pods.iter().map(|pod| pod.uid.clone()).collect();
    stage.command(format!("kubectl label pod {ORPHAN} app=debug --overwrite"));
    stage.patch(
        &pod_path(ORPHAN),
        &json!({"metadata": {"labels": {"app": "debug"}}}),
    )?;
    stage.until("the pod is released", |_, world| {
        world.pod(ORPHAN).is_some_and(|pod| pod.owner.is_empty())
    })?;
    stage.note(format!("{ORPHAN} was released and keeps running"));
    until_complete(stage, FRONT)?;
    let world = stage.look()?;
    let pods = world.pods_of_name(FRONT);
    let new: Vec<&str> = pods
        .iter()
        .filter(|pod| !known.contains(&pod.uid))
        .map(|pod| pod.name.as_str())
        .collect();
    check(new.len() == 1, || {
        format!("{} pods replace the released pod", new.len())
    })?;
    stage.note(format!("{} replaces it", new[0]));
    let is_left_alone = |world: &crate::run::local::World| {
        world
            .pod(ORPHAN)
            .is_some_and(|pod| pod.is_ready && !pod.is_deleting && pod.owner.is_empty())
    };
    let while_watched = Duration::from_millis(300).as_secs_f64();
    stage.hold(
        "the released pod is left alone",
        while_watched,
        is_left_alone,
    )?;
    stage.pause(0.4)?;
    Ok(format!(
        "{ORPHAN} was adopted and {n_created} pods created; once released, {} replaced it",
        new[0]
    ))
}

const NAMESPACE: &str = "tight";

const GREEDY: &str = "greedy";

const N_GREEDY: usize = 8;

/// Number of pods that the quota allows.
const LIMIT: usize = 5;

/// Creates that the quota rejects. The delays between them begin at 50 ms and double, so this many
/// take a minute.
const REFUSED_MAX: usize = 12;

fn quota(stage: &mut Stage<'_>) -> ChapterResult<String> {
    stage.command(format!(
        "kubectl create quota small --hard=pods={LIMIT} -n {NAMESPACE}"
    ));
    stage.create(
        "/api/v1/namespaces",
        &json!({"metadata": {"name": NAMESPACE}}),
    )?;
    let quotas = format!("/api/v1/namespaces/{NAMESPACE}/resourcequotas");
    let quota = json!({
        "metadata": {"name": "small"},
        "spec": {"hard": {"pods": LIMIT.to_string()}},
    });
    stage.create(&quotas, &quota)?;
    stage.pause(0.2)?;

    // Create the pods within the quota first: each of their events would trigger another failed
    // sync, and failed syncs back off.
    stage.create(&collection(NAMESPACE), &replica_set(GREEDY, LIMIT))?;
    until_complete(stage, GREEDY)?;
    stage.command(format!(
        "kubectl scale rs {GREEDY} -n {NAMESPACE} --replicas={N_GREEDY}"
    ));
    let n_before = stage.requests("create", "pods").len();
    let patch = json!({"spec": {"replicas": N_GREEDY}});
    stage.patch(&set_path(NAMESPACE, GREEDY), &patch)?;
    let world = stage.until("the quota rejects pods", is_blocked)?;
    let set = world.set(GREEDY);
    let message = set.and_then(|set| set.failure.clone()).unwrap_or_default();
    check(message.contains("exceeded quota: small"), || {
        format!("the condition says {message:?}")
    })?;
    let event = set.and_then(|set| {
        let mut events = world.events.iter();
        events.find(|event| event.name == set.name && event.reason == "FailedCreate")
    });
    let event = event.map(|event| event.message.clone()).unwrap_or_default();
    check(event.contains("exceeded quota: small"), || {
        format!("the event FailedCreate says {event:?}")
    })?;
    stage.note(format!("condition ReplicaFailure: {message}"));
    stage.note(format!("event FailedCreate: {event}"));
    stage.hold("the quota limits the pods", 0.3, |world| {
        world.pods_of_name(GREEDY).len() == LIMIT
    })?;
    let n_refused = stage.requests("create", "pods").len() - n_before;
    check(n_refused <= REFUSED_MAX, || {
        format!("{n_refused} creates were sent to a full quota")
    })?;
    stage.note(format!(
        "creates rejected so far: {n_refused}; the next attempt comes within 30 s, or as soon as \
         the quota may be free"
    ));
    stage.pause(0.5)?;

    let limit = LIMIT * 2;
    stage.command(format!(
        "kubectl patch quota small -n {NAMESPACE} -p '{{\"spec\":{{\"hard\":{{\"pods\":\"{limit}\"}}}}}}'"
    ));
    let patch = json!({"spec": {"hard": {"pods": limit.to_string()}}});
    stage.patch(&format!("{quotas}/small"), &patch)?;
    stage.until("all pods after the quota was raised", |_, world| {
        let has_failed = world.set(GREEDY).is_none_or(|set| set.failure.is_some());
        world.is_complete(GREEDY) && !has_failed
    })?;
    let n_more = N_GREEDY - LIMIT;
    stage.note(format!(
        "quota raised: {n_more} more pods were created and the condition was removed"
    ));
    stage.pause(0.5)?;
    Ok(format!(
        "{LIMIT} of {N_GREEDY} pods, a condition and an event; all {N_GREEDY} once the quota was \
         raised"
    ))
}

fn is_blocked(_: &mut Stage<'_>, world: &World) -> bool {
    let Some(set) = world.set(GREEDY) else {
        return false;
    };
    let has_event = world
        .events
        .iter()
        .any(|event| event.name == GREEDY && event.is_warning && event.reason == "FailedCreate");
    set.failure.is_some() && has_event
}

const FRAGILE: &str = "fragile";

const N_FRAGILE: usize = 5;

const BACK_OFF: (&str, &str) = ("replicaset-controller/failed-pod-backoff", "1s..1s");

/// Failed pods that stay at the end. While there is a back-off, it reads all of them.
const N_KEPT: usize = 2;

fn failing(stage: &mut Stage<'_>) -> ChapterResult<String> {
    let before = stage.version();
    let begun = Instant::now();
    let (name, value) = BACK_OFF;
    stage.command(format!("kubectl annotate rs {FRAGILE} {name}={value}"));
    let mut set = replica_set(FRAGILE, N_FRAGILE);
    set["metadata"]["annotations"] = annotations(&[BACK_OFF]);
    set["spec"]["template"]["metadata"]["annotations"] = fate("rejected");
    stage.create(&collection("default"), &set)?;
    let n_created = |stage: &Stage<'_>| stage.pods_since(before, "default").added;
    let world = stage.until("a probe, and a condition", |stage, world| {
        let is_reported = world.set(FRAGILE).is_some_and(|set| set.failure.is_some());
        is_reported && n_created(stage) > N_FRAGILE
    })?;
    let set = world.set(FRAGILE);
    let message = set.and_then(|set| set.failure.clone()).unwrap_or_default();
    check(message.contains("OutOfpods"), || {
        format!("the condition says {message:?}")
    })?;
    stage.note(format!("condition ReplicaFailure: {message}"));
    let n_rejected = n_created(stage);
    // The API's timestamps have no fractions, so a probe may be early by a second.
    let n_probes_max = usize::try_from(begun.elapsed().as_secs()).unwrap_or(usize::MAX) + 2;
    check(n_rejected <= N_FRAGILE + n_probes_max, || {
        format!("{n_rejected} pods were created for a node that rejects them")
    })?;

    // The next pods are made from the changed template.
    let template = json!({"metadata": {"annotations": fate("")}});
    let patch = json!({"spec": {"template": template}});
    stage.patch(&set_path("default", FRAGILE), &patch)?;
    // The Failed pods stay.
    stage.until("all replicas are available", |_, world| {
        let set = world.set(FRAGILE);
        set.is_some_and(|set| set.available == N_FRAGILE && set.failure.is_none())
    })?;
    let n_more = n_created(stage) - n_rejected;
    // A probe may have been on its way when the template changed.
    check(n_more <= N_FRAGILE + 1, || {
        format!("{n_more} pods were created after the recovery")
    })?;
    stage.note("the node has recovered: one new pod became Ready, and the others followed at once");
    stage.pause(0.3)?;
    let n_deleted = tidy_up(stage, before)?;
    stage.pause(0.3)?;
    Ok(format!(
        "{n_rejected} pods were rejected; all {N_FRAGILE} run once one was Ready; then {n_deleted} \
         Failed pods were deleted"
    ))
}

/// Lets the ReplicaSet keep few Failed pods. Returns how many are deleted.
fn tidy_up(stage: &mut Stage<'_>, before: u64) -> ChapterResult<usize> {
    let n_kept = N_KEPT.to_string();
    let opt_in = [
        (BACK_OFF.0, None),
        (
            "replicaset-controller/failed-pods-kept",
            Some(n_kept.as_str()),
        ),
        ("replicaset-controller/failed-pods-min-age", Some("0s")),
    ];
    for (annotation, value) in opt_in {
        annotate(stage, ("rs", FRAGILE), annotation, value)?;
        stage.pause(0.2)?;
    }
    let is_tidy =
        |_: &mut Stage<'_>, world: &World| world.pods_of_name(FRAGILE).len() == N_FRAGILE + N_KEPT;
    stage.until("Failed pods are deleted", is_tidy)?;
    let n_created = stage.pods_since(before, "default").added;
    let n_deleted = n_created - N_FRAGILE - N_KEPT;
    stage.note(format!(
        "{n_deleted} Failed pods were deleted, the newest {N_KEPT} stay"
    ));
    Ok(n_deleted)
}

/// The annotations that decide how the simulated node treats a pod.
fn fate(fate: &str) -> Value {
    json!({"dev.replicaset-controller/fate": fate})
}

const PHOENIX: &str = "phoenix";

const N_PHOENIX: usize = 120;

/// Number of creates before the first lost response. The server carries out the next creates, but
/// their responses are lost.
const N_ANSWERED: usize = 40;

const N_UNANSWERED: usize = 12;

/// Duration of a create, long enough to kill the controller during the scale-up.
const CREATE_TIME: Duration = Duration::from_millis(60);

fn crash(stage: &mut Stage<'_>) -> ChapterResult<String> {
    let before = stage.version();
    let creates = || Matcher::verb("create", "pods");
    let slow = stage.add_rule(Rule::new(creates(), Action::Delay(CREATE_TIME)));
    let lost = Rule::new(creates(), Action::CutAfter).after(N_ANSWERED);
    let lost = stage.add_rule(lost.times(N_UNANSWERED));
    stage.command(format!(
        "kubectl create -f {PHOENIX}.yaml   # replicas: {N_PHOENIX}"
    ));
    let shown = interrupt(stage, &lost);
    lost.remove();
    slow.remove();
    shown?;
    let n_first = stage.pods_since(before, "default").added;
    check((N_ANSWERED + 1..N_PHOENIX).contains(&n_first), || {
        format!("{n_first} pods existed when the controller was killed")
    })?;
    stage.note(format!(
        "killed: {n_first} of {N_PHOENIX} pods exist; the responses to {N_UNANSWERED} creates \
         were lost"
    ));
    let n_then = n_first;
    stage.hold("no pod is created without a controller", 0.3, |world| {
        world.pods_of_name(PHOENIX).len() == n_then
    })?;
    stage.pause(0.5)?;

    stage.command("systemctl restart replicaset-controller");
    stage.start_controller()?;
    until_complete(stage, PHOENIX)?;
    // A late create or delete would arrive within this time.
    let world = stage.hold("nothing more happens", 0.5, |world| {
        world.pods_of_name(PHOENIX).len() == N_PHOENIX
    })?;
    let tally = stage.pods_since(before, "default");
    check(
        tally.is_complete && tally.added == N_PHOENIX && tally.deleted == 0,
        || {
            let (added, deleted) = (tally.added, tally.deleted);
            format!("{added} pods were created and {deleted} deleted, not {N_PHOENIX} and 0")
        },
    )?;
    let pods = world.pods_of_name(PHOENIX);
    let names: HashSet<&str> = pods.iter().map(|pod| pod.name.as_str()).collect();
    check(names.len() == N_PHOENIX, || {
        format!("{} distinct pod names", names.len())
    })?;
    stage.note(format!(
        "restarted: {} more pods were created, {} in total, none twice and none deleted",
        tally.added - n_first,
        tally.added
    ));
    stage.pause(0.4)?;
    Ok(format!(
        "killed at {n_first} pods, {N_UNANSWERED} responses lost; restarted: {N_PHOENIX} pods in \
         total, none twice"
    ))
}

fn interrupt(stage: &mut Stage<'_>, lost: &crate::devserver::RuleHandle) -> ChapterResult<()> {
    stage.create(&collection("default"), &replica_set(PHOENIX, N_PHOENIX))?;
    stage.until("the middle of the scale-up", |_, _| {
        lost.hits() == N_UNANSWERED
    })?;
    stage.kill_controller()
}
