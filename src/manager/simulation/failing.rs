//! The properties of ReplicaSets that opt in to back-off or to deletion of old Failed pods.

use std::time::Duration;

use jiff::Timestamp;
use serde_json::Value;

use super::api_server::{ApiServer, START};
use super::knowledge::Knowledge;
use super::objects::{Kind, Object, controller_of, is_active, is_lost, is_of};
use super::opt_ins::{BACK_OFF, KEPT};
use super::oracles::{Check, is_ready};
use super::view::View;

const N_KEPT: usize = 1;
const MIN_AGE: Duration = Duration::from_secs(1);

/// The shortest wait: a single eviction weighs half.
const WAIT_MIN: Duration = Duration::from_secs(1);

/// A failure counts for ten minutes; one that is nearly so old may not.
const COUNTS_FOR: Duration = Duration::from_secs(590);

/// How long a ReplicaSet that opts in may rest although something is left to do.
const RESTS_AT_MOST: Duration = Duration::from_mins(1);

impl Check<'_> {
    /// PROPERTY P34: For a ReplicaSet with a back-off, no create is sent within the shortest wait
    /// after a failure that the sync has read, unless it is one of the first pods, or a pod may
    /// have turned Ready since.
    pub(super) fn waits_for_failures(
        &self,
        known: &Knowledge,
        owner: &str,
        name: &str,
        replicas: i64,
    ) -> Result<(), String> {
        if !self.clocks_are_right || !opts_in_always(&known.view, owner, BACK_OFF, self.since) {
            return Ok(());
        }
        let (mut n_active, mut failures) = (0, Vec::new());
        for versions in owned_versions(&known.view, owner, self.since) {
            let all = |is: fn(&Value) -> bool| {
                let is = |pod: &Object| is_of(pod, owner) && is(&pod.value);
                versions.iter().all(|pod| pod.is_some_and(is))
            };
            let may_be_ready = |pod: &&Object| is_active(&pod.value) && is_ready(&pod.value);
            if versions.iter().flatten().any(may_be_ready) {
                return Ok(());
            }
            n_active += usize::from(all(is_active));
            if all(is_failed) {
                failures.extend(versions.iter().flatten().next().map(|pod| failed_at(pod)));
            }
        }
        failures.retain(|at| self.now.saturating_sub(*at) < COUNTS_FOR);
        let n_counted = i64::try_from(n_active + failures.len()).unwrap_or(i64::MAX);
        match failures.iter().max() {
            Some(last) if n_counted >= replicas && self.now < *last + WAIT_MIN => Err(format!(
                "{name} is created although {n_active} pods are active and {} have failed, the \
                 last one after {last:?}",
                failures.len()
            )),
            _ => Ok(()),
        }
    }

    /// True if this version of a pod is a Failed one, which only a ReplicaSet that keeps few of
    /// them deletes.
    pub(super) fn is_leftover(pod: &Object, version: &Value) -> bool {
        pod.value["metadata"]["resourceVersion"] == *version && is_failed(&pod.value)
    }

    /// PROPERTY P35: No Failed pod is deleted that has finalizers, or is too young, or whose owner
    /// keeps all, or unless as many as are kept have failed no earlier.
    pub(super) fn may_discard(
        &self,
        known: &Knowledge,
        owner: &str,
        pod: &Object,
    ) -> Result<(), String> {
        let name = &pod.name;
        if !may_opt_in(&known.view, owner, KEPT, self.since) {
            return Err(format!(
                "{name} is deleted, but its owner keeps all Failed pods"
            ));
        }
        if is_held(&pod.value) || is_lost(&pod.value) {
            return Err(format!("{name} is deleted, but something holds it"));
        }
        let at = failed_at(pod);
        if self.clocks_are_right && self.now < at + MIN_AGE {
            return Err(format!("{name} is deleted, but failed only after {at:?}"));
        }
        let is_kept = |other: &&Object| {
            is_of(other, owner)
                && other.name != *name
                && is_failed(&other.value)
                && !is_held(&other.value)
                && failed_at(other) >= at
        };
        let all = owned_versions(&known.view, owner, self.since);
        let n_kept = all
            .filter(|versions| versions.iter().flatten().any(is_kept))
            .count();
        if n_kept < N_KEPT {
            return Err(format!(
                "{name} is deleted, but only {n_kept} Failed pods are newer"
            ));
        }
        Ok(())
    }
}

/// What is wrong with the Failed pods of a ReplicaSet at rest; `None` if nothing is.
pub(super) fn unsettled(server: &ApiServer, rs: &Object) -> Option<String> {
    let uid = rs.value["metadata"]["uid"].as_str().unwrap_or_default();
    let owned = server.all(Kind::Pod).filter(|pod| is_of(pod, uid));
    let is_leftover = |pod: &&std::sync::Arc<Object>| is_failed(&pod.value) && !is_held(&pod.value);
    let n_failed = owned.filter(is_leftover).count();
    if opts_in(&rs.value, KEPT) && n_failed > N_KEPT {
        return Some(format!(
            "{} has {n_failed} Failed pods of {N_KEPT}",
            rs.name
        ));
    }
    let conditions = rs.value["status"]["conditions"].as_array();
    let mut conditions = conditions.into_iter().flatten();
    conditions
        .any(|it| it["reason"] == "FailedPodBackoff")
        .then(|| format!("{} reports a back-off", rs.name))
}

/// True if a pod of a ReplicaSet with a back-off is not Ready: until it is, failures count.
pub(super) fn awaits_readiness(server: &ApiServer, rs: &Object) -> bool {
    let uid = rs.value["metadata"]["uid"].as_str().unwrap_or_default();
    let any = |is: &dyn Fn(&Value) -> bool| {
        let mut owned = server.all(Kind::Pod).filter(|pod| is_of(pod, uid));
        owned.any(|pod| is(&pod.value))
    };
    opts_in(&rs.value, BACK_OFF) && any(&is_failed) && any(&|pod| is_active(pod) && !is_ready(pod))
}

/// True if a ReplicaSet that opts in may rest until its key is due.
pub(super) fn may_rest(rs: &Object, due_in: Option<Duration>) -> bool {
    (opts_in(&rs.value, BACK_OFF) || opts_in(&rs.value, KEPT))
        && due_in.is_some_and(|due_in| due_in <= RESTS_AT_MOST)
}

/// Every version of each pod that a sync since this turn could have read, if one was owned.
fn owned_versions<'a>(
    view: &'a View,
    owner: &'a str,
    since: u64,
) -> impl Iterator<Item = Vec<Option<&'a Object>>> {
    let all = view.names(Kind::Pod);
    let versions = all.map(move |name| view.since(Kind::Pod, name, since));
    versions.filter(move |versions| {
        let mut versions = versions.iter().flatten();
        versions.any(|pod| controller_of(&pod.value) == Some(owner))
    })
}

fn opts_in(rs: &Value, name: &str) -> bool {
    !rs["metadata"]["annotations"][format!("replicaset-controller/{name}")].is_null()
}

fn owner_versions<'a>(
    view: &'a View,
    owner: &'a str,
    since: u64,
) -> impl Iterator<Item = &'a Value> {
    let names = view.names(Kind::ReplicaSet);
    let versions = names.flat_map(move |name| view.since(Kind::ReplicaSet, name, since));
    let versions = versions.flatten().map(|rs| &rs.value);
    versions.filter(move |rs| rs["metadata"]["uid"] == *owner)
}

fn opts_in_always(view: &View, owner: &str, name: &str, since: u64) -> bool {
    owner_versions(view, owner, since).all(|rs| opts_in(rs, name))
}

fn may_opt_in(view: &View, owner: &str, name: &str, since: u64) -> bool {
    owner_versions(view, owner, since).any(|rs| opts_in(rs, name))
}

fn is_failed(pod: &Value) -> bool {
    pod["status"]["phase"] == "Failed" && pod["metadata"]["deletionTimestamp"].is_null()
}

fn is_held(pod: &Value) -> bool {
    let metadata = &pod["metadata"];
    let finalizers = metadata["finalizers"].as_array();
    !metadata["deletionTimestamp"].is_null() || finalizers.is_some_and(|it| !it.is_empty())
}

/// When the pod failed, since the start.
fn failed_at(pod: &Object) -> Duration {
    let (metadata, status) = (&pod.value["metadata"], &pod.value["status"]);
    let times = [
        &metadata["creationTimestamp"],
        &status["startTime"],
        &status["conditions"][0]["lastTransitionTime"],
    ];
    let times = times.into_iter().filter_map(Value::as_str);
    let latest = times.filter_map(|at| at.parse::<Timestamp>().ok()).max();
    let since_start = latest.map(|at| at.duration_since(START).unsigned_abs());
    since_start.unwrap_or_default()
}
