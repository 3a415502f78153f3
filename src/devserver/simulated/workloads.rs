//! Jobs, StatefulSets and DaemonSets: which pods they get next, and their status.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use super::{Served, count, is_ready};
use crate::json::{condition, entries, is_deleting, maps_mut, members, number, strip_kind, text};
use crate::metadata::now;
use crate::resource::Resource;
use crate::store::{State, key_of};
use crate::workload::is_terminal;

const INDEX: &str = "batch.kubernetes.io/job-completion-index";

const REVISION: &str = "controller-revision-hash";

const TOO_MANY_FAILED: &str = "Job has reached the specified backoff limit";

/// Creates pods until enough have succeeded or too many have failed.
pub(super) fn sync_job(state: &mut State, job: &Served) {
    let is_done = ["Complete", "Failed"].map(|kind| condition(&job.value, kind) == "True");
    let manager = text(&job.value, "/spec/managedBy");
    let is_foreign = !matches!(manager, "" | "kubernetes.io/job-controller");
    if is_done.contains(&true) || is_foreign || is_deleting(&job.value) {
        return;
    }
    let pods = job.pods(state);
    let is_in = |pod: &Value, phase| text(pod, "/status/phase") == phase;
    let is_active = |pod: &Value| !is_terminal(pod) && !is_deleting(pod);
    let active: Vec<&Value> = pods.iter().filter(|pod| is_active(pod)).collect();
    let n_active = count(active.iter().copied(), |_| true);
    let succeeded = count(&pods, |pod| is_in(pod, "Succeeded"));
    let failed = count(&pods, |pod| is_in(pod, "Failed"));
    let completions = number(&job.value, "/spec/completions");
    let is_complete = match completions {
        Some(completions) => succeeded >= completions,
        None => succeeded > 0 && active.is_empty(),
    };
    let end = if is_complete {
        "Complete"
    } else if failed > job.spec("backoffLimit", 6) {
        "Failed"
    } else if job.value["spec"]["suspend"] == true {
        "Suspended"
    } else {
        ""
    };
    let missing = completions.unwrap_or(i64::MAX).saturating_sub(succeeded);
    let wanted = match completions {
        _ if !end.is_empty() => 0,
        None if succeeded > 0 => n_active,
        _ => job.spec("parallelism", 1).min(missing),
    };
    for pod in active.iter().skip(usize::try_from(wanted).unwrap_or(0)) {
        job.delete_pod(state, pod);
    }
    let indexes = |is: &dyn Fn(&Value) -> bool| -> BTreeSet<i64> {
        let index = |pod: &Value| pod["metadata"]["annotations"][INDEX].as_str()?.parse().ok();
        pods.iter()
            .filter(|pod| is(pod))
            .filter_map(index)
            .collect()
    };
    let done = indexes(&|pod| is_in(pod, "Succeeded"));
    let mut index = 0;
    let mut used = indexes(&|pod| is_active(pod) || is_in(pod, "Succeeded"));
    for _ in n_active..wanted {
        while !used.insert(index) {
            index += 1;
        }
        create_job_pod(state, job, index);
    }
    let begun = &job.value["status"]["startTime"];
    let mut status = json!({
        "active": wanted, "ready": count(&pods, is_ready).min(wanted), "terminating": 0,
        "uncountedTerminatedPods": {}, "succeeded": succeeded, "failed": failed,
        "startTime": if begun.is_null() { json!(now()) } else { begun.clone() },
        "conditions": job_conditions(job, end),
    });
    if is_complete {
        status["completionTime"] = json!(now());
    }
    if text(&job.value, "/spec/completionMode") == "Indexed" {
        status["completedIndexes"] = json!(ranges(&done));
    }
    job.set_status(state, status);
    match end {
        "Complete" => job.record(state, "Normal", "Completed", "Job completed"),
        "Failed" => job.record(state, "Warning", "BackoffLimitExceeded", TOO_MANY_FAILED),
        _ => {}
    }
}

/// The conditions of a job that has come to this end, or that is suspended.
fn job_conditions(job: &Served, end: &str) -> Vec<Value> {
    let mut conditions = entries(&job.value, "/status/conditions").to_vec();
    conditions.retain(|condition| condition["type"] != "Suspended" || end == "Suspended");
    let (kinds, reason, message): (&[&str], _, _) = match end {
        "Complete" => (
            &["SuccessCriteriaMet", "Complete"],
            "CompletionsReached",
            "Reached expected number of succeeded pods",
        ),
        "Failed" => (
            &["FailureTarget", "Failed"],
            "BackoffLimitExceeded",
            TOO_MANY_FAILED,
        ),
        "Suspended" => (&["Suspended"], "JobSuspended", "Job suspended"),
        _ => (&[], "", ""),
    };
    for kind in kinds {
        if conditions
            .iter()
            .all(|condition| condition["type"] != *kind)
        {
            conditions.push(json!({
                "type": kind, "status": "True", "reason": reason, "message": message,
                "lastProbeTime": now(), "lastTransitionTime": now(),
            }));
        }
    }
    conditions
}

fn create_job_pod(state: &mut State, job: &Served, index: i64) {
    let name = job.object.name();
    if text(&job.value, "/spec/completionMode") != "Indexed" {
        let metadata = json!({"generateName": format!("{name}-")});
        return job.create_pod(state, &metadata, |_| {});
    }
    let index_text = json!({INDEX: index.to_string()});
    let metadata = json!({
        "generateName": format!("{name}-{index}-"), "annotations": index_text,
        "labels": index_text,
    });
    job.create_pod(state, &metadata, |pod| {
        pod["spec"]["hostname"] = json!(format!("{name}-{index}"));
        let field = format!("metadata.labels['{INDEX}']");
        let source = json!({"fieldRef": {"apiVersion": "v1", "fieldPath": field}});
        for container in maps_mut(pod, "/spec/containers") {
            let env = container.entry("env").or_insert_with(|| json!([]));
            if let Some(env) = env.as_array_mut() {
                env.push(json!({"name": "JOB_COMPLETION_INDEX", "valueFrom": source}));
            }
        }
    });
}

/// Numbers as `0-2,5`.
fn ranges(numbers: &BTreeSet<i64>) -> String {
    let mut ranges: Vec<(i64, i64)> = Vec::new();
    for number in numbers {
        match ranges.last_mut() {
            Some((_, end)) if *end + 1 == *number => *end = *number,
            _ => ranges.push((*number, *number)),
        }
    }
    let texts = ranges.into_iter().map(|(begin, end)| match end - begin {
        0 => begin.to_string(),
        _ => format!("{begin}-{end}"),
    });
    texts.collect::<Vec<_>>().join(",")
}

/// Creates pods in the order of their numbers, and deletes and replaces them in the reverse order.
///
/// DIFFERS: old templates are not kept, so a partition prevents only the replacement of pods.
pub(super) fn sync_stateful_set(state: &mut State, set: &Served) {
    let name = set.object.name().to_owned();
    let revision = format!("{name}-{}", set.revision());
    let all = set.pods(state);
    let ordinal_of = |pod: &Value| {
        let rest = text(pod, "/metadata/name").strip_prefix(&name)?;
        rest.strip_prefix('-')?.parse::<i64>().ok()
    };
    let pods = all.iter().filter_map(|pod| Some((ordinal_of(pod)?, pod)));
    let pods: BTreeMap<i64, &Value> = pods.collect();
    let (start, replicas) = (set.spec("ordinals/start", 0), set.spec("replicas", 1));
    let wanted = start..start + replicas;
    let is_current = |pod: &Value| pod["metadata"]["labels"][REVISION] == revision.as_str();
    if !is_deleting(&set.value) {
        let is_ordered = text(&set.value, "/spec/podManagementPolicy") != "Parallel";
        let mut is_waiting = false;
        for ordinal in wanted.clone() {
            match pods.get(&ordinal) {
                None => create_ordinal(state, set, ordinal, &revision),
                Some(pod) if is_terminal(pod) => set.delete_pod(state, pod),
                Some(pod) if is_ready(pod) => continue,
                Some(_) => {}
            }
            is_waiting = true;
            if is_ordered {
                break;
            }
        }
        let surplus = pods
            .iter()
            .rev()
            .filter(|(ordinal, _)| !wanted.contains(ordinal));
        let surplus: Vec<&Value> = surplus.map(|(_, pod)| *pod).collect();
        let n_deleted = if is_ordered { 1 } else { surplus.len() };
        for pod in surplus
            .iter()
            .take(n_deleted)
            .filter(|pod| !is_deleting(pod))
        {
            set.delete_pod(state, pod);
        }
        let rolls = text(&set.value, "/spec/updateStrategy/type") != "OnDelete";
        let partition = start + set.spec("updateStrategy/rollingUpdate/partition", 0);
        let mut outdated = pods.iter().rev().filter(|(ordinal, pod)| {
            **ordinal >= partition && wanted.contains(ordinal) && !is_current(pod)
        });
        if let Some((_, pod)) = outdated.next().filter(|_| rolls && surplus.is_empty())
            && (!is_waiting || !is_ready(pod) && !is_deleting(pod))
        {
            set.delete_pod(state, pod);
        }
    }
    let n_updated = count(&all, is_current);
    let n_pods = count(&all, |_| true);
    let before = text(&set.value, "/status/currentRevision");
    let current = match before {
        "" => revision.clone(),
        _ if n_updated == n_pods => revision.clone(),
        before => before.to_owned(),
    };
    let is_of_current = |pod: &Value| pod["metadata"]["labels"][REVISION] == current.as_str();
    set.set_status(
        state,
        json!({
            "replicas": n_pods, "readyReplicas": count(&all, is_ready), "collisionCount": 0,
            "availableReplicas": count(&all, is_ready), "updatedReplicas": n_updated,
            "currentReplicas": count(&all, is_of_current), "currentRevision": current,
            "updateRevision": revision,
        }),
    );
}

/// Creates a pod and its claims. No controller here binds a claim.
fn create_ordinal(state: &mut State, set: &Served, ordinal: i64, revision: &str) {
    let name = format!("{}-{ordinal}", set.object.name());
    let claims = entries(&set.value, "/spec/volumeClaimTemplates").iter();
    let named = claims.map(|claim| {
        let volume = text(claim, "/metadata/name").to_owned();
        (format!("{volume}-{name}"), volume, claim)
    });
    let named: Vec<(String, String, &Value)> = named.collect();
    let resource = Resource::of("", "persistentvolumeclaims");
    for (claim_name, _, claim) in &named {
        let key = key_of(Some(set.object.namespace()), claim_name);
        if state.get(resource, &key).is_none() {
            let mut claim = (*claim).clone();
            strip_kind(&mut claim);
            claim["metadata"]["name"] = json!(claim_name);
            let labels = &set.value["spec"]["selector"]["matchLabels"];
            claim["metadata"]["labels"] = labels.clone();
            set.create(state, resource, claim);
        }
    }
    let labels = json!({
        "statefulset.kubernetes.io/pod-name": name,
        "apps.kubernetes.io/pod-index": ordinal.to_string(), REVISION: revision,
    });
    let service = text(&set.value, "/spec/serviceName");
    set.create_pod(state, &json!({"name": name, "labels": labels}), |pod| {
        pod["spec"]["hostname"] = json!(name);
        if !service.is_empty() {
            pod["spec"]["subdomain"] = json!(service);
        }
        let mut volumes = entries(pod, "/spec/volumes").to_vec();
        volumes.retain(|volume| {
            named
                .iter()
                .all(|(_, own, _)| volume["name"] != own.as_str())
        });
        volumes.extend(named.iter().map(|(claim_name, volume, _)| {
            json!({"name": volume, "persistentVolumeClaim": {"claimName": claim_name}})
        }));
        if !volumes.is_empty() {
            pod["spec"]["volumes"] = json!(volumes);
        }
    });
}

/// One pod on each node that the template selects. Outdated pods are replaced one at a time.
///
/// DIFFERS: taints and affinities are not read.
pub(super) fn sync_daemon_set(state: &mut State, set: &Served) {
    let revision = set.revision();
    let all = set.pods(state);
    let nodes: Vec<String> = state
        .of_namespace(Resource::Nodes, None)
        .filter(|node| {
            let mut wanted = members(&set.value, "/spec/template/spec/nodeSelector");
            wanted.all(|(key, value)| node.labels.get(key) == value.as_str())
        })
        .map(|node| node.name().to_owned())
        .collect();
    let node_of = |pod: &Value| text(pod, "/spec/nodeName").to_owned();
    let is_current = |pod: &Value| pod["metadata"]["labels"][REVISION] == revision.as_str();
    let is_on = |node: &String| all.iter().any(|pod| node_of(pod) == *node);
    if !is_deleting(&set.value) {
        for pod in all.iter().filter(|pod| !is_deleting(pod)) {
            if is_terminal(pod) || !nodes.contains(&node_of(pod)) {
                set.delete_pod(state, pod);
            }
        }
        for node in nodes.iter().filter(|node| !is_on(node)) {
            let metadata = json!({
                "generateName": format!("{}-", set.object.name()), "labels": {REVISION: revision},
            });
            set.create_pod(state, &metadata, |pod| {
                pod["spec"]["nodeName"] = json!(node);
            });
        }
        let rolls = text(&set.value, "/spec/updateStrategy/type") != "OnDelete";
        let outdated = all.iter().find(|pod| !is_current(pod));
        let are_ready = nodes.iter().all(is_on) && all.iter().all(is_ready);
        if let Some(pod) = outdated.filter(|pod| rolls && (are_ready || !is_ready(pod))) {
            set.delete_pod(state, pod);
        }
    }
    let n_nodes = i64::try_from(nodes.len()).unwrap_or(i64::MAX);
    let n_ready = count(&all, is_ready);
    let n_current = count(&all, |pod| nodes.contains(&node_of(pod)));
    set.set_status(
        state,
        json!({
            "desiredNumberScheduled": n_nodes, "currentNumberScheduled": n_current,
            "numberMisscheduled": count(&all, |_| true) - n_current, "numberReady": n_ready,
            "numberAvailable": n_ready, "updatedNumberScheduled": count(&all, is_current),
            "numberUnavailable": n_nodes - n_ready,
        }),
    );
}
