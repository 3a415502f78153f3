//! What a Deployment waits for, and what its controller does next. Pure: the next writes are those
//! of [`decide`].

use std::fmt;
use std::sync::Arc;

use jiff::Timestamp;
use serde::Serialize;

use crate::decide::{View, decide};
use crate::fenceposts::{Fenceposts, max_replicas, total};
use crate::objects::{Deployment, ReplicaSet, Strategy};
use crate::revisions::REVISION;
use crate::status::{
    PROGRESSING, REPLICA_FAILURE, condition, deadline_of, is_complete, progress_reason, reason,
};
use crate::stdx::escape::{escaped, shell_word};

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Rollout {
    pub name: String,
    /// `spec.replicas`.
    pub desired: i32,
    pub strategy: String,
    /// Pods that there may be during a rolling update.
    pub max_pods: i32,
    /// Pods that must stay available during it.
    pub min_available: i32,
    /// The ReplicaSet of the template.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub new: Option<Set>,
    /// Older ones that have pods, or should have some.
    pub old: Vec<Set>,
    /// The number of older ones without pods.
    pub n_idle: usize,
    /// The reason of the condition `Progressing`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub progress: Option<String>,
    /// When the rollout has failed, unless it makes progress until then.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub progress_deadline: Option<Timestamp>,
    pub waits_for: Vec<String>,
    /// The one of `waits_for` that the reports of its ReplicaSets cannot show.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub blocked_by: Option<String>,
    /// What the next sync does; nothing if empty.
    pub next: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Set {
    pub name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub revision: Option<String>,
    pub desired: i32,
    pub replicas: i32,
    pub available: i32,
}

impl Set {
    fn of(rs: &ReplicaSet) -> Self {
        Self {
            name: rs.key.name.to_string(),
            revision: rs.annotations.get(REVISION).cloned(),
            desired: rs.replicas,
            replicas: rs.status.replicas,
            available: rs.available(),
        }
    }
}

/// Explains the Deployment of this view. `claims` is what its controller does first.
pub fn explain(mut view: View<'_>, claims: Vec<String>) -> Rollout {
    let (d, now) = (view.deployment, view.now);
    let new = view.sort();
    let mut sets: Vec<Set> = view.replica_sets.iter().map(|rs| Set::of(rs)).collect();
    let new = new.map(|index| sets.remove(index));
    let has_pods = |it: &Set| it.desired > 0 || it.replicas > 0;
    let (old, idle): (Vec<_>, Vec<_>) = sets.into_iter().partition(has_pods);
    let limits = Fenceposts::of(d);
    let waits_for = waits_for(&view, new.as_ref(), &old);
    let is_over = is_complete(d, &d.status) || d.paused || d.is_terminating;
    let step = decide(view);
    let next = step.map_or_else(|why| vec![why], |step| step.texts());
    Rollout {
        name: d.key.name.to_string(),
        desired: d.replicas,
        strategy: match &d.strategy {
            Strategy::Recreate => "Recreate".to_owned(),
            Strategy::RollingUpdate { .. } => "RollingUpdate".to_owned(),
            Strategy::Unknown(other) => other.clone(),
        },
        max_pods: max_replicas(d),
        min_available: d.replicas - limits.max_unavailable,
        new,
        old,
        n_idle: idle.len(),
        progress: progress_reason(&d.status).map(str::to_owned),
        progress_deadline: deadline_of(d)
            .filter(|at| !is_over && failed_create(d).is_none() && *at > now),
        waits_for,
        blocked_by: blocked_by(d),
        next: [claims, next].concat(),
    }
}

fn rollout_command(verb: &str, d: &Deployment) -> String {
    let [namespace, name] = [&d.key.namespace, &d.key.name].map(|it| shell_word(it));
    format!("kubectl -n {namespace} rollout {verb} deployment {name}")
}

/// Why no ReplicaSet of the template could be created. Neither does the controller judge the
/// progress then, nor does it write the observed generation.
fn failed_create(d: &Deployment) -> Option<&str> {
    let found = condition(&d.status, PROGRESSING)?;
    let found = Some(found).filter(|it| it.reason.as_deref() == Some(reason::CREATE_FAILED));
    found?.message.as_deref()
}

/// What the Deployment itself waits for, rather than its ReplicaSets: that something ends its
/// deletion, that its ReplicaSet can be created, or its controller.
pub fn blocked_by(d: &Deployment) -> Option<String> {
    let (observed, generation) = (
        d.status.observed_generation.unwrap_or_default(),
        d.generation,
    );
    if d.is_terminating {
        let names = d.metadata["finalizers"].as_array().into_iter().flatten();
        let names = names.filter_map(|it| it.as_str());
        let foreign = names.filter(|it| !["foregroundDeletion", "orphan"].contains(it));
        let by = match &*foreign.collect::<Vec<_>>() {
            [] => "the garbage collector".to_owned(),
            foreign => format!("whoever must remove the finalizer {}", foreign.join(", ")),
        };
        return Some(format!("{by}: it is terminating"));
    }
    if let Some(message) = failed_create(d) {
        return Some(format!("the end of a failure: {message}"));
    }
    (observed < generation).then(|| {
        format!("its controller, which has observed generation {observed} of {generation}")
    })
}

fn waits_for(view: &View<'_>, new: Option<&Set>, old: &[Set]) -> Vec<String> {
    let d = view.deployment;
    let mut waits = Vec::from_iter(blocked_by(d));
    if d.paused && !d.is_terminating {
        waits.push(format!("`{}`: it is paused", rollout_command("resume", d)));
    }
    let pods = |n: i32| {
        if n == 1 {
            "1 pod".to_owned()
        } else {
            format!("{n} pods")
        }
    };
    if let Some(new) = new.filter(|new| new.available < new.desired) {
        let missing = pods(new.desired - new.available);
        waits.push(format!("{missing} of {} to become available", new.name));
    }
    for it in old.iter().filter(|it| it.replicas > it.desired) {
        waits.push(format!(
            "{} of {} to end",
            pods(it.replicas - it.desired),
            it.name
        ));
    }
    let has_all = |new: &Set| new.desired >= d.replicas;
    if d.strategy == Strategy::Recreate && !new.is_some_and(has_all) {
        let old = view.replica_sets.iter();
        let old = old.filter(|rs| new.is_none_or(|new| *rs.key.name != *new.name));
        let is_idle = |rs: &&Arc<ReplicaSet>| rs.replicas == 0 && rs.status.replicas == 0;
        for rs in old
            .filter(is_idle)
            .filter(|rs| view.with_pods.contains(&rs.uid))
        {
            let name = &rs.key.name;
            waits.push(format!(
                "the end of all pods of {name}, terminating ones too: Recreate creates none before"
            ));
        }
    }
    if progress_reason(&d.status) == Some(reason::TIMED_OUT) {
        let undo = rollout_command("undo", d);
        waits.push(format!("a template that works, or `{undo}`"));
    }
    for kind in [PROGRESSING, REPLICA_FAILURE] {
        let failed = if kind == PROGRESSING { "False" } else { "True" };
        let found = condition(&d.status, kind);
        let found = found.filter(|it| it.status.as_deref() == Some(failed));
        // The ReplicaSet's own report has the present state of its back-off, and this is a copy.
        // A failed create is in `blocked_by`.
        let is_shown = |it: &str| ["FailedPodBackoff", reason::CREATE_FAILED].contains(&it);
        let found = found.filter(|it| !it.reason.as_deref().is_some_and(is_shown));
        let message = found.and_then(|it| it.message.as_ref());
        waits.extend(message.map(|it| format!("the end of a failure: {it}")));
    }
    waits
}

impl fmt::Display for Rollout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            name,
            desired,
            strategy,
            ..
        } = self;
        let shown = escaped(strategy);
        write!(f, "Deployment {name}: {shown}, desired {desired}")?;
        if strategy == "RollingUpdate" {
            let sets = || self.old.iter().chain(&self.new);
            let wanted = total(sets().map(|it| it.desired));
            // As `decide`: pods that a scale-down deletes are not available any more.
            let lasting = total(sets().map(|it| it.available.min(it.desired)));
            let more = self.max_pods.saturating_sub(wanted);
            let fewer = lasting.saturating_sub(self.min_available);
            write!(
                f,
                "; at most {} pods, so {} more now; at least {} available, so {} fewer now",
                self.max_pods,
                more.max(0),
                self.min_available,
                fewer.max(0)
            )?;
        }
        writeln!(f)?;
        let sets = self.new.iter().map(|it| ("new", it));
        for (what, it) in sets.chain(self.old.iter().map(|it| ("old", it))) {
            let revision = escaped(it.revision.as_deref().unwrap_or("none"));
            let Set {
                name,
                desired,
                available,
                ..
            } = it;
            writeln!(
                f,
                "  {what}: {name}, revision {revision}, desired {desired}, available {available}"
            )?;
        }
        if self.new.is_none() {
            writeln!(f, "  new: none, the template has no ReplicaSet yet")?;
        }
        if self.n_idle > 0 {
            writeln!(f, "  old: {} more, scaled to 0", self.n_idle)?;
        }
        if let Some(progress) = &self.progress {
            write!(f, "  progress: {}", escaped(progress))?;
            match &self.progress_deadline {
                Some(at) => writeln!(f, ", deadline {at}")?,
                None => writeln!(f)?,
            }
        }
        for wait in &self.waits_for {
            writeln!(f, "  waits for {}", escaped(wait))?;
        }
        match &*self.next.join(", ") {
            "" => writeln!(f, "  next: no action"),
            next => writeln!(f, "  next: {}", escaped(next)),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::explain;
    use crate::decide::tests::{deployment, replica_set, scaled, view};

    #[test]
    fn a_rollout_that_is_over_has_no_deadline() {
        for (reason, has_deadline) in [
            ("ReplicaSetUpdated", true),
            ("NewReplicaSetAvailable", false),
            ("ProgressDeadlineExceeded", false),
        ] {
            let d = deployment(&[&|it| {
                it["status"] = json!({"conditions": [{
                    "type": "Progressing", "status": "True", "reason": reason,
                    "lastUpdateTime": "2026-01-01T00:59:00Z",
                }]});
            }]);
            let rollout = explain(view(&d, &[replica_set(9, 3, 1)]), Vec::new());
            let found = rollout.progress_deadline.is_some();
            assert_eq!(found, has_deadline, "{reason}");
        }
    }

    #[test]
    fn a_back_off_is_left_to_the_report_of_its_replica_set() {
        for (reason, n_expected) in [("FailedPodBackoff", 0), ("FailedCreate", 1)] {
            let d = deployment(&[&|it| {
                it["status"] = json!({"conditions": [{
                    "type": "ReplicaFailure", "status": "True", "reason": reason, "message": "m",
                }]});
            }]);
            let rollout = explain(view(&d, &[replica_set(9, 3, 3)]), Vec::new());
            let waits = rollout.waits_for.iter();
            let n = waits
                .filter(|it| it.contains("the end of a failure"))
                .count();
            assert_eq!(n, n_expected, "{reason}");
        }
    }

    #[test]
    fn pods_that_are_scaled_away_are_not_to_spare() {
        let d = scaled(10, i32::MAX, "20%");
        let sets = [replica_set(8, 5, 10), replica_set(9, 3, 3)];
        let text = explain(view(&d, &sets), Vec::new()).to_string();
        assert!(text.contains("at most 2147483647 pods"), "{text}");
        assert!(text.contains("at least 8 available, so 0 fewer"), "{text}");
    }

    #[test]
    fn texts_of_the_cluster_forge_no_log_record() {
        let mut rs = replica_set(9, 3, 3);
        let revision = "1\n  next: no action".to_owned();
        rs.annotations.insert(super::REVISION.to_owned(), revision);
        let claims = vec!["adopt\n  next: nothing".to_owned()];
        let text = explain(view(&deployment(&[]), &[rs]), claims).to_string();
        assert_eq!(text.matches("\n  next: ").count(), 1, "{text}");
    }

    #[test]
    fn a_failed_create_is_no_lag_and_has_no_deadline() {
        let d = deployment(&[&|it| {
            it["metadata"]["generation"] = json!(2);
            it["status"] = json!({"observedGeneration": 1, "conditions": [{
                "type": "Progressing", "status": "False", "reason": "ReplicaSetCreateError",
                "message": "m", "lastUpdateTime": "2026-01-01T00:59:00Z",
            }]});
        }]);
        let rollout = explain(view(&d, &[replica_set(8, 3, 3)]), Vec::new());
        assert_eq!(rollout.waits_for, ["the end of a failure: m"]);
        assert_eq!(rollout.progress_deadline, None);
        let text = rollout.to_string();
        assert!(
            text.contains("the template has no ReplicaSet yet"),
            "{text}"
        );
    }

    #[test]
    fn recreate_waits_for_pods_that_do_not_count() {
        let d = deployment(&[&|it| {
            it["spec"]["strategy"] = json!({"type": "Recreate"});
            it["status"] = json!({"observedGeneration": 1});
        }]);
        let mut waiting = view(&d, &[replica_set(8, 0, 0)]);
        waiting.with_pods.insert("rs8".into());
        let waits = explain(waiting, Vec::new()).waits_for;
        assert!(
            waits[0].starts_with("the end of all pods of web-8"),
            "{waits:?}"
        );
        let waits = explain(view(&d, &[replica_set(8, 0, 0)]), Vec::new()).waits_for;
        assert_eq!(waits, [""; 0]);
    }

    #[test]
    fn a_terminating_deployment_names_whom_it_waits_for() {
        for (finalizers, expected) in [
            (json!(["foregroundDeletion"]), "the garbage collector"),
            (
                json!(["orphan", "e/x", "e/y"]),
                "whoever must remove the finalizer e/x, e/y",
            ),
        ] {
            let d = deployment(&[&|it| {
                it["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:59:00Z");
                it["metadata"]["finalizers"] = finalizers.clone();
                it["status"] = json!({"conditions": [{
                    "type": "Progressing", "status": "True", "reason": "ReplicaSetUpdated",
                    "lastUpdateTime": "2026-01-01T00:59:00Z",
                }]});
            }]);
            let rollout = explain(view(&d, &[replica_set(9, 3, 3)]), Vec::new());
            let expected = format!("{expected}: it is terminating");
            assert_eq!(rollout.waits_for, [expected]);
            assert_eq!(rollout.progress_deadline, None);
        }
    }
}
