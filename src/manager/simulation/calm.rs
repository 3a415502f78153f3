//! A new ReplicaSet once everything else is at rest: without faults, what the leader does and tells
//! is known beforehand, step by step.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};

use super::api_server::N_SERVERS;
use super::cluster::{ORDER, replica_set};
use super::http::Request;
use super::objects::{Kind, NAMESPACE, controller_of, is_active, written_by};
use super::oracles::unsettled;
use super::world::{Event, State, World};
use crate::api::ObjectKey;
use crate::api::opt_ins::SCALE_DOWN;
use crate::stdx::turns::scheduler::in_process;

/// The ReplicaSet, and another one of the same Deployment.
const NAME: &str = "calm";
const SIBLING: &str = "calm-sibling";

/// Time of each step, longer than a dry run waits for the leader.
const STEP: Duration = Duration::from_secs(40);

/// How far the watch caches stay behind where a write must meet a conflict.
const BEHIND: Duration = Duration::from_secs(3);

const FAILED_CREATE: &str = "FailedCreate";

/// A node without other pods.
const ALONE: &str = "node-alone";

struct Step {
    what: &'static str,
    change: fn(&mut State, Duration),
    /// Reasons of the warnings about the ReplicaSet.
    warnings: &'static [&'static str],
    /// How many objects and lists are read at most.
    n_reads_max: usize,
    /// Something of its status, beside the counts.
    tells: fn(&Value) -> bool,
}

/// What there was before a step.
struct Before {
    warnings: BTreeMap<String, u64>,
    crowds: BTreeMap<String, usize>,
    n_idle_updates: u64,
}

const STEPS: [Step; 12] = [
    Step {
        what: "it is created with a sibling",
        change: |state, now| {
            for name in [SIBLING, NAME] {
                let mut object = replica_set(name, 3, &[]);
                object["spec"]["minReadySeconds"] = json!(5);
                object["metadata"]["ownerReferences"] = json!([{
                    "apiVersion": "apps/v1", "kind": "Deployment", "name": NAME,
                    "uid": "00000000-0000-4000-8000-00000000calm", "controller": true,
                }]);
                state.write(now, |api| api.create(Kind::ReplicaSet, object));
            }
        },
        warnings: &[],
        // The first writes after a take-over need its proof, for each ReplicaSet.
        n_reads_max: 8,
        tells: |status| status["conditions"].is_null(),
    },
    Step {
        what: "a stranger changes a count of its status",
        change: |state, now| state.write_status(now, |status| status["replicas"] = json!(7)),
        warnings: &["OtherWriter"],
        n_reads_max: 1,
        tells: |_| true,
    },
    Step {
        what: "the stranger does so again",
        change: |state, now| state.write_status(now, |status| status["readyReplicas"] = json!(1)),
        warnings: &[],
        n_reads_max: 0,
        tells: |_| true,
    },
    Step {
        what: "an annotation has a mistake",
        change: |state, now| state.annotate(now, "failed-pods-min-age", Some("soon")),
        warnings: &["InvalidAnnotation"],
        n_reads_max: 0,
        tells: |_| true,
    },
    Step {
        what: "another annotation changes",
        change: |state, now| state.annotate(now, "scale-down-protection", Some("on")),
        warnings: &[],
        n_reads_max: 0,
        tells: |_| true,
    },
    Step {
        what: "it is scaled up with the mistake",
        change: |state, now| state.resize(now, 1),
        warnings: &["InvalidAnnotation"],
        n_reads_max: 0,
        tells: |_| true,
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
        tells: |status| status["conditions"].is_null(),
    },
    Step {
        what: "a quota is full, and a stranger sets a condition that no watch shows yet",
        change: |state, now| {
            let n_pods = state.server.n_active_pods();
            state.write(now, |api| api.set_quota(Some(n_pods)));
            state.resize(now, 1);
            for server in 0..N_SERVERS {
                state.cache_lag[server] = BEHIND;
                state.schedule(now + BEHIND, Event::CacheLagEnds(server));
            }
            state.write_status(now, |status| {
                status["conditions"] = json!([{"type": "Strange", "status": "True"}]);
            });
        },
        warnings: &[FAILED_CREATE],
        n_reads_max: 1,
        tells: |status| {
            let refused = condition(status, "ReplicaFailure");
            let message = refused["message"].as_str().unwrap_or_default();
            refused["status"] == "True"
                && refused["reason"] == FAILED_CREATE
                && message.contains("exceeded quota")
                && condition(status, "Strange")["status"] == "True"
        },
    },
    Step {
        what: "the quota is gone, and so is the protection",
        change: |state, now| {
            state.annotate(now, "scale-down-protection", None);
            state.write(now, |api| api.set_quota(None));
        },
        warnings: &[],
        n_reads_max: 1,
        tells: |status| {
            condition(status, "ReplicaFailure").is_null()
                && condition(status, "Strange")["status"] == "True"
        },
    },
    Step {
        what: "it gets a pod on a node of its own",
        change: |state, now| {
            state.next_node = Some(ALONE);
            state.resize(now, 1);
        },
        warnings: &[],
        n_reads_max: 0,
        tells: |_| true,
    },
    Step {
        what: "it is scaled down to empty a node",
        change: |state, now| {
            state.annotate(now, "scale-down-order", Some("consolidate"));
            state.resize(now, -1);
        },
        warnings: &[],
        n_reads_max: 0,
        tells: |_| true,
    },
    Step {
        what: "it is scaled down beside its sibling",
        change: |state, now| {
            state.annotate(now, "scale-down-order", None);
            state.resize(now, -1);
        },
        warnings: &[],
        n_reads_max: 0,
        tells: |_| true,
    },
];

fn condition<'a>(status: &'a Value, type_: &str) -> &'a Value {
    let conditions = status["conditions"].as_array();
    let found = conditions
        .into_iter()
        .flatten()
        .find(|it| it["type"] == type_);
    found.unwrap_or(&Value::Null)
}

impl World {
    /// PROPERTY P44: At rest, a new ReplicaSet has what it wants after each of these steps, its
    /// status says what has happened, and only the warnings and reads of the step are sent: it is
    /// created, a stranger writes its status twice, an annotation has a mistake, a pod has a mark
    /// that cannot be read, a quota refuses a pod, and ends. Of pods that nothing else tells apart,
    /// a scale-down deletes one where most pods of the Deployment are, or with `consolidate` the
    /// only one of its node. No status is sent that is stored already.
    pub(super) fn try_new_replica_set(self: &Arc<Self>) {
        if !self.lock().plan.has_dry_run {
            return;
        }
        for step in &STEPS {
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
            };
            (step.change)(&mut state, now);
            drop(state);
            self.run_until(now + STEP);
            let mut state = self.lock();
            if let Some(told) = state.differs(step, &before) {
                let told = format!("{}: {told}", step.what);
                state.note(self.now(), &told);
                state.wrong.push(told);
            }
        }
    }
}

impl State {
    /// What is not as it must be after a step.
    fn differs(&self, step: &Step, before: &Before) -> Option<String> {
        let Some(rs) = self.server.get(Kind::ReplicaSet, NAME) else {
            return Some("it is gone".to_owned());
        };
        let status = &rs.value["status"];
        if !(step.tells)(status) {
            return Some(format!("its status is {status}"));
        }
        if condition(status, "ReplicaFailure").is_null() {
            let available = &status["availableReplicas"];
            // A daemon whose time of day is behind waits for longer.
            let is_missing = *available != rs.value["spec"]["replicas"];
            let is_missing = is_missing && self.plan.clocks_are_right();
            let missing = is_missing.then(|| format!("{available} pods are available"));
            if let Some(told) = unsettled(&self.server, rs).or(missing) {
                return Some(told);
            }
        }
        let consolidates = rs.value["metadata"]["annotations"].get(ORDER).is_some();
        self.sends_needless(step, before)
            .or_else(|| self.warns_otherwise(step, before))
            .or_else(|| self.deletes_another(consolidates, before))
            .or_else(|| self.forgets())
    }

    fn sends_needless(&self, step: &Step, before: &Before) -> Option<String> {
        if self.server.n_idle_updates > before.n_idle_updates {
            return Some("an update changes nothing".to_owned());
        }
        let requests = self.calm_requests.as_deref().unwrap_or_default();
        let n_reads = requests.iter().filter(|it| it.method == "GET").count();
        let all = || requests.iter().map(Request::describe).collect::<Vec<_>>();
        let n_reads_max = step.n_reads_max;
        (n_reads > n_reads_max).then(|| format!("{n_reads_max} reads are enough: {:?}", all()))
    }

    fn warns_otherwise(&self, step: &Step, before: &Before) -> Option<String> {
        let mut new = self.warnings();
        new.retain(|reason, n| before.warnings.get(reason) != Some(n));
        let is_told = |(reason, n): (&String, &u64)| {
            let n_before = before.warnings.get(reason).copied().unwrap_or_default();
            // A refused create is tried again.
            step.warnings.contains(&&**reason) && (*n == n_before + 1 || reason == FAILED_CREATE)
        };
        let is_as_told = new.len() == step.warnings.len() && new.iter().all(is_told);
        (!is_as_told).then(|| format!("warnings: {new:?} after {:?}", before.warnings))
    }

    fn deletes_another(&self, consolidates: bool, before: &Before) -> Option<String> {
        let (left, crowds) = (self.names_of_pods(), &before.crowds);
        let all = crowds.values();
        let first = if consolidates { all.min() } else { all.max() };
        let mut gone = crowds.iter().filter(|(name, _)| !left.contains(name));
        let (name, _) = gone.find(|(_, crowd)| Some(*crowd) != first)?;
        Some(format!("{name} is deleted of {crowds:?}"))
    }

    /// What the leader does not remember of the ReplicaSet.
    fn forgets(&self) -> Option<String> {
        let (process, _, controller) = self.leading()?;
        let key = ObjectKey::new(NAMESPACE, NAME);
        let memory = in_process(process, || controller.inspect(&key))?.memory?;
        let is_unknown = memory.last_sync.is_none();
        is_unknown.then(|| format!("no sync is known: {memory:?}"))
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
        self.edit(now, |rs| {
            let number = |value: &Value| value.as_i64().unwrap_or(0);
            rs["spec"]["replicas"] = json!(number(&rs["spec"]["replicas"]) + by);
            rs["metadata"]["generation"] = json!(number(&rs["metadata"]["generation"]) + 1);
        });
    }

    /// A stranger writes the status.
    fn write_status(&mut self, now: Duration, write: impl FnOnce(&mut Value)) {
        self.write(now, |api| {
            let at = api.now.clone();
            api.change(Kind::ReplicaSet, NAME, |rs| {
                write(&mut rs["status"]);
                rs["metadata"]["managedFields"] = written_by("stranger", &at);
            });
        });
    }
}
