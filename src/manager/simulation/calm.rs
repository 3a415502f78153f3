//! A new ReplicaSet once everything else is at rest: without faults, what the leader must do, read
//! and report is known in advance, step by step.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};

use super::api_server::{N_SERVERS, START};
use super::cluster::{ORDER, replica_set};
use super::objects::{Kind, NAMESPACE, Object, condition, controller_of, is_active, owned_by};
use super::oracles::unsettled;
use super::world::{Event, State, World};
use crate::api::ObjectKey;
use crate::api::policy::SCALE_DOWN;
use crate::stdx::turns::simulation::in_process;

/// The ReplicaSet, and another one of the same Deployment.
const NAME: &str = "calm";
const SIBLING: &str = "calm-sibling";

/// Time of each step: a full quota is tried again.
const STEP_TAKES: Duration = Duration::from_secs(40);

/// How far the watch caches stay behind where a write must meet a conflict.
const BEHIND: Duration = Duration::from_secs(3);

const FAILED_CREATE: &str = "FailedCreate";

/// A condition that another client sets.
const STRANGE: &str = "Strange";

/// What a run of many histories must have had, too.
pub(super) const TRIED: &str = "new ReplicaSet tried to the end";

/// A node without other pods.
const ALONE: &str = "node-alone";

struct Step {
    what: &'static str,
    change: fn(&mut State, Duration),
    /// Reasons of the warnings about the ReplicaSet.
    warnings: &'static [&'static str],
    /// How many objects and lists are read at most.
    n_reads_max: usize,
    /// Surplus or missing pods at the end.
    n_beyond: i64,
    /// Something that the ReplicaSet's status shows, beside the counts.
    shows: fn(&Value) -> bool,
}

/// What there was before a step.
struct Before {
    warnings: BTreeMap<String, u64>,
    crowds: BTreeMap<String, usize>,
    n_idle_updates: u64,
    n_open_deletes: usize,
}

const STEP: Step = Step {
    what: "",
    change: |_, _| {},
    warnings: &[],
    n_reads_max: 0,
    n_beyond: 0,
    shows: |_| true,
};

const STEPS: [Step; 12] = [
    Step {
        what: "it is created with a sibling",
        change: |state, now| {
            for name in [SIBLING, NAME] {
                let mut object = replica_set(name, 3, &[]);
                object["spec"]["minReadySeconds"] = json!(5);
                object["metadata"]["ownerReferences"] = json!([{
                    "apiVersion": "apps/v1", "kind": "Deployment", "name": NAME,
                    "uid": "00000000-0000-4000-8000-d00000000000", "controller": true,
                }]);
                state.write(now, |api| api.create(Kind::ReplicaSet, object));
            }
        },
        // The first writes after a failover need its proof, for each ReplicaSet.
        n_reads_max: 8,
        shows: |rs| rs["status"]["conditions"].is_null(),
        ..STEP
    },
    Step {
        what: "another client creates a pod of it",
        change: |state, now| state.create_foreign_pod(now, "foreign-1"),
        warnings: &["OtherWriter"],
        n_reads_max: 1,
        ..STEP
    },
    Step {
        what: "that client does so again",
        change: |state, now| state.create_foreign_pod(now, "foreign-2"),
        ..STEP
    },
    Step {
        what: "an annotation has a mistake",
        change: |state, now| state.annotate(now, "failed-pods-min-age", Some("soon")),
        warnings: &["InvalidAnnotation"],
        ..STEP
    },
    Step {
        what: "another annotation changes",
        change: |state, now| state.annotate(now, "scale-down-protection", Some("on")),
        ..STEP
    },
    Step {
        what: "it is scaled up with the mistake",
        change: |state, now| state.resize(now, 1),
        warnings: &["InvalidAnnotation"],
        ..STEP
    },
    Step {
        what: "the mistake is gone, a pod has an unreadable mark, and it is scaled down",
        change: |state, now| {
            state.annotate(now, "failed-pods-min-age", None);
            let marked = state.names_of_pods().into_iter().next().unwrap_or_default();
            state.write(now, |api| {
                api.change(Kind::Pod, &marked, |pod| {
                    pod["metadata"]["annotations"][SCALE_DOWN] = json!("maybe");
                });
            });
            state.resize(now, -1);
        },
        warnings: &["InvalidAnnotation"],
        // A delete that respects marks needs to know them.
        n_reads_max: 1,
        shows: |rs| rs["status"]["conditions"].is_null(),
        ..STEP
    },
    Step {
        what: "a quota is full, and another client sets a condition that no watch shows yet",
        change: |state, now| {
            let n_pods = state.server.n_active_pods();
            state.write(now, |api| api.set_quota(Some(n_pods)));
            state.resize(now, 1);
            for server in 0..N_SERVERS {
                state.cache_lag[server] = BEHIND;
                state.schedule(now + BEHIND, Event::CacheLagEnds(server));
            }
            state.write_status(now, |status| {
                status["conditions"] = json!([
                    {"type": STRANGE, "status": "True", "lastTransitionTime": START},
                ]);
            });
        },
        warnings: &[FAILED_CREATE],
        n_beyond: -1,
        n_reads_max: 1,
        shows: |rs| {
            let is_reported = |rejected: &Value| {
                let message = rejected["message"].as_str().unwrap_or_default();
                rejected["status"] == "True"
                    && rejected["reason"] == FAILED_CREATE
                    && message.contains("exceeded quota")
            };
            condition(rs, "ReplicaFailure").is_some_and(is_reported)
                && condition(rs, STRANGE).is_some()
        },
    },
    Step {
        what: "the quota is gone, and so is the protection",
        change: |state, now| {
            state.annotate(now, "scale-down-protection", None);
            state.write(now, |api| api.set_quota(None));
        },
        n_reads_max: 1,
        shows: |rs| condition(rs, "ReplicaFailure").is_none() && condition(rs, STRANGE).is_some(),
        ..STEP
    },
    Step {
        what: "it gets a pod on a node of its own",
        change: |state, now| {
            state.next_node = Some(ALONE);
            state.resize(now, 1);
        },
        ..STEP
    },
    Step {
        what: "it is scaled down to empty a node",
        change: |state, now| {
            state.annotate(now, "scale-down-order", Some("consolidate"));
            state.resize(now, -1);
        },
        ..STEP
    },
    Step {
        what: "it is scaled down beside its sibling",
        change: |state, now| {
            state.annotate(now, "scale-down-order", None);
            state.resize(now, -1);
        },
        ..STEP
    },
];

/// Steps that depend on the time of day.
const TIMED: [Step; 5] = [
    Step {
        what: "a kubelet rejects its new pod, and the next one waits",
        change: |state, now| {
            state.annotate(now, "failed-pod-backoff", Some("60s..240s"));
            state.n_to_reject = 1;
            state.resize(now, 1);
        },
        warnings: &["FailedPodBackoff"],
        n_beyond: -1,
        ..STEP
    },
    Step {
        what: "the wait is over",
        ..STEP
    },
    Step {
        what: "all its pods are protected for a minute",
        change: |state, now| {
            state.annotate(now, "scale-down-protection", Some("on"));
            state.annotate(now, "protected-timeout", Some("60s"));
            for name in state.names_of_pods() {
                state.write(now, |api| {
                    api.change(Kind::Pod, &name, |pod| {
                        pod["metadata"]["annotations"][SCALE_DOWN] = json!("never");
                    });
                });
            }
        },
        ..STEP
    },
    Step {
        what: "it is scaled down beyond the protected pods",
        change: |state, now| state.resize(now, -1),
        warnings: &["ScaleDownBlocked"],
        n_reads_max: 1,
        n_beyond: 1,
        ..STEP
    },
    Step {
        what: "the minute is over",
        warnings: &["ProtectedTimeout"],
        n_reads_max: 1,
        ..STEP
    },
];

impl World {
    /// PROPERTY P44: In a quarter of the histories, when everything is at rest and the leader knows
    /// of each restore, a new ReplicaSet passes these steps: it is created, another client
    /// creates two pods of it, an annotation is invalid, so is one of a pod, a quota rejects a pod,
    /// the quota is deleted, the ReplicaSet is scaled down with preferences and without; and if no
    /// clock was set, a pod fails and is replaced after a back-off, and protected pods block a
    /// scale-down for a minute. 40 s after each step there are as many pods as the spec and the
    /// step allow, its status says so, the events of type `Warning` are those of the step, no more
    /// is read than the step needs, no update changes nothing, and the leader knows of a sync and
    /// how many pods wait for a back-off. Of pods that nothing else distinguishes, a scale-down
    /// deletes one where most pods of the Deployment are, or with `consolidate` the only one of its
    /// node.
    pub(super) fn try_new_replica_set(self: &Arc<Self>) {
        if !self.lock().plan.has_dry_run {
            return;
        }
        let clocks_are_right = self.lock().plan.clocks_are_right();
        let timed = TIMED.iter().filter(|_| clocks_are_right);
        for step in STEPS.iter().chain(timed) {
            let now = self.now();
            let mut state = self.lock();
            if !state.wrong.is_empty() || state.rewinds_unnoticed() {
                return;
            }
            state.note(now, step.what);
            state.calm_requests = Some(Vec::new());
            let before = Before {
                warnings: state.warnings(),
                crowds: state.crowds(),
                n_idle_updates: state.server.n_idle_updates,
                n_open_deletes: state.open_deletes().count(),
            };
            (step.change)(&mut state, now);
            drop(state);
            self.run_until(now + STEP_TAKES);
            let mut state = self.lock();
            let found = state.wrong_after(step, &before);
            if let Some(found) = found.filter(|_| state.wrong.is_empty()) {
                let found = format!("{}: {found}", step.what);
                state.note(self.now(), &found);
                state.wrong.push(found);
            }
        }
        self.lock().count(TRIED);
    }
}

impl State {
    fn wrong_after(&self, step: &Step, before: &Before) -> Option<String> {
        let Some(rs) = self.server.get(Kind::ReplicaSet, NAME) else {
            return Some("it is gone".to_owned());
        };
        if !(step.shows)(&rs.value) {
            return Some(format!("its status is {}", rs.value["status"]));
        }
        self.wrong_counts(rs, step.n_beyond)
            .or_else(|| self.wrong_requests(step, before))
            .or_else(|| self.wrong_warnings(step, before))
            .or_else(|| self.wrong_deletes(&rs.value, before))
            .or_else(|| self.wrong_memory(step))
    }

    fn wrong_counts(&self, rs: &Object, n_beyond: i64) -> Option<String> {
        let (spec, status) = (&rs.value["spec"], &rs.value["status"]);
        let wanted = spec["replicas"].as_i64().unwrap_or(0) + n_beyond;
        let n_active = i64::try_from(self.active_pods_of(NAME).count()).unwrap_or(i64::MAX);
        let is_observed = status["observedGeneration"] == rs.value["metadata"]["generation"];
        // A daemon whose time of day is behind waits for longer.
        let is_available = status["availableReplicas"] == wanted || !self.plan.clocks_are_right();
        if n_active != wanted || status["replicas"] != wanted || !is_observed || !is_available {
            return Some(format!("{n_active} pods of {wanted}, and it has {status}"));
        }
        unsettled(&self.server, rs).filter(|_| n_beyond == 0)
    }

    fn wrong_requests(&self, step: &Step, before: &Before) -> Option<String> {
        if self.server.n_idle_updates > before.n_idle_updates {
            return Some("an update changes nothing".to_owned());
        }
        let (n_reads, all) = self.calm_reads();
        // Each delete of unknown outcome asks once whether it can still take effect.
        let max = step.n_reads_max + before.n_open_deletes;
        (n_reads > max).then(|| format!("{max} reads are enough: {all:?}"))
    }

    fn wrong_warnings(&self, step: &Step, before: &Before) -> Option<String> {
        let all = self.warnings();
        let reasons: BTreeSet<&str> = all.keys().map(|reason| &**reason).collect();
        let n_new = |reason: &str| {
            let of = |warnings: &BTreeMap<_, _>| warnings.get(reason).copied().unwrap_or(0_u64);
            of(&all) - of(&before.warnings)
        };
        let is_right = |reason: &&str| match n_new(reason) {
            0 => !step.warnings.contains(reason),
            1 => step.warnings.contains(reason),
            // A rejected create is tried again.
            _ => step.warnings.contains(reason) && *reason == FAILED_CREATE,
        };
        let mut expected = reasons.iter().chain(step.warnings);
        let is_right = expected.all(is_right);
        (!is_right).then(|| format!("warnings: {all:?} after {:?}", before.warnings))
    }

    fn wrong_deletes(&self, rs: &Value, before: &Before) -> Option<String> {
        let (left, crowds) = (self.names_of_pods(), &before.crowds);
        let consolidates = rs["metadata"]["annotations"].get(ORDER).is_some();
        let all = crowds.values();
        let first = if consolidates { all.min() } else { all.max() };
        let mut gone = crowds.iter().filter(|(name, _)| !left.contains(name));
        let (name, _) = gone.find(|(_, crowd)| Some(*crowd) != first)?;
        Some(format!("{name} is deleted of {crowds:?}"))
    }

    fn wrong_memory(&self, step: &Step) -> Option<String> {
        let key = ObjectKey::new(NAMESPACE, NAME);
        let Some((process, _, controller)) = self.leading() else {
            return Some("nobody leads".to_owned());
        };
        let (facts, n_backed_off) = in_process(process, || {
            (
                controller.inspector().inspect(&key),
                controller.inspector().totals().pods_backed_off,
            )
        });
        let memory = facts.and_then(|facts| facts.memory);
        let is_known = memory.as_ref().is_some_and(|it| it.last_sync.is_some());
        let backs_off = step.n_beyond < 0 && step.warnings != [FAILED_CREATE];
        let is_reported = n_backed_off == usize::from(backs_off);
        (!is_known || !is_reported)
            .then(|| format!("the leader reports {n_backed_off}, {memory:?}"))
    }

    /// How many warnings there are about the ReplicaSet, by reason.
    fn warnings(&self) -> BTreeMap<String, u64> {
        let mut warnings = BTreeMap::new();
        for event in self.server.all(Kind::Event).map(|event| &event.value) {
            if event["type"] == "Warning" && event["involvedObject"]["name"] == NAME {
                let reason = event["reason"].as_str().unwrap_or_default();
                *warnings.entry(reason.to_owned()).or_default() +=
                    event["count"].as_u64().unwrap_or(1);
            }
        }
        warnings
    }

    /// How many active pods of the Deployment are on the node of each pod.
    fn crowds(&self) -> BTreeMap<String, usize> {
        let of = |name| self.active_pods_of(name);
        let node = |pod: &Value| pod["spec"]["nodeName"].clone();
        let related: Vec<Value> = of(NAME)
            .chain(of(SIBLING))
            .map(|(_, pod)| node(pod))
            .collect();
        let crowd = |pod| related.iter().filter(|it| **it == node(pod)).count();
        of(NAME)
            .map(|(name, pod)| (name.to_owned(), crowd(pod)))
            .collect()
    }

    fn names_of_pods(&self) -> Vec<String> {
        self.active_pods_of(NAME)
            .map(|(name, _)| name.to_owned())
            .collect()
    }

    fn active_pods_of(&self, name: &str) -> impl Iterator<Item = (&str, &Value)> {
        let rs = self.server.get(Kind::ReplicaSet, name);
        let uid = rs.and_then(|rs| rs.value["metadata"]["uid"].as_str());
        let pods = self
            .server
            .all(Kind::Pod)
            .map(|pod| (&*pod.name, &pod.value));
        pods.filter(move |(_, pod)| uid.is_some() && controller_of(pod) == uid && is_active(pod))
    }

    fn edit(&mut self, now: Duration, edit: impl FnOnce(&mut Value)) {
        self.write(now, |api| api.change(Kind::ReplicaSet, NAME, edit));
    }

    fn annotate(&mut self, now: Duration, name: &str, value: Option<&str>) {
        self.edit(now, |rs| {
            let annotations = rs["metadata"]["annotations"].as_object_mut();
            let annotations = annotations.expect("it has annotations");
            let name = format!("replicaset-controller/{name}");
            match value {
                Some(value) => annotations.insert(name, json!(value)),
                None => annotations.remove(&name),
            };
        });
    }

    fn resize(&mut self, now: Duration, by: i64) {
        self.scale(NAME, |replicas| replicas + by, now);
    }

    /// Another client writes the status.
    fn write_status(&mut self, now: Duration, write: impl FnOnce(&mut Value)) {
        self.write(now, |api| {
            api.change(Kind::ReplicaSet, NAME, |rs| write(&mut rs["status"]));
        });
    }

    fn create_foreign_pod(&mut self, now: Duration, name: &str) {
        self.write(now, |api| {
            let Some(rs) = api.get(Kind::ReplicaSet, NAME).cloned() else {
                return;
            };
            let mut pod = json!({"metadata": {
                "name": name,
                "labels": rs.value["spec"]["template"]["metadata"]["labels"],
                "ownerReferences": [{
                    "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": NAME,
                    "uid": rs.value["metadata"]["uid"], "controller": true,
                }],
            }});
            pod["spec"] = rs.value["spec"]["template"]["spec"].clone();
            pod["metadata"]["managedFields"] = owned_by("foreign", &api.now);
            api.create(Kind::Pod, pod);
        });
    }
}
