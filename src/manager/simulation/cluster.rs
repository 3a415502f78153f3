//! All others in the cluster: kubelets, the garbage collector, users and other clients.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Map, Value, json};

use super::api_server::{ApiServer, orphaned_by_deletion};
use super::objects::{Change, Kind, Object, controller_of, is_active, is_terminating};
use super::oracles::is_ready;
use super::plan::Action;
use super::world::{Event, State, World};
use crate::api::policy::SCALE_DOWN;
use crate::client::simulated::End;

/// How long a change of the Lease by another client excuses two writers: until the leader's next
/// renewal and its answer, or the end of its requests.
const TAMPERED: Duration = Duration::from_secs(15);

/// The annotation that selects preferences.
pub(super) const ORDER: &str = "replicaset-controller/scale-down-order";

/// The annotation of a template that each change of the spec changes.
pub(super) const REVISION: &str = "revision";

/// A ReplicaSet as a user writes it.
pub(super) fn replica_set(name: &str, replicas: i64, opt_ins: &[(&str, String)]) -> Value {
    let annotations = opt_ins
        .iter()
        .map(|(name, value)| (format!("replicaset-controller/{name}"), json!(value)));
    let annotations: Map<String, Value> = annotations.collect();
    json!({
        "metadata": {"name": name, "generation": 1, "annotations": annotations},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": {"app": name}},
            "template": {
                "metadata": {"labels": {"app": name}},
                "spec": {"containers": [{"name": "main", "image": "example"}]},
            },
        },
        "status": {"replicas": 0},
    })
}

/// The name of a ReplicaSet.
pub(super) fn name_of(set: usize) -> String {
    format!("web{set}")
}

impl State {
    /// What a change of a pod leads to.
    pub(super) fn follow_pod(&mut self, change: &Change, now: Duration) {
        let object = &change.object;
        let ends_or_begins = change.is_deletion || change.is_new;
        if object.kind == Kind::ReplicaSet && ends_or_begins
            || self
                .server
                .all(Kind::ReplicaSet)
                .any(|rs| is_terminating(rs))
        {
            let at = now + Duration::from_millis(self.rng.u64(5..400));
            self.schedule(at, Event::CollectGarbage);
        }
        if object.kind != Kind::Pod || change.is_deletion {
            return;
        }
        if change.is_new || is_terminating(object) {
            self.step_soon(object, now);
        }
    }

    fn step_soon(&mut self, pod: &Object, now: Duration) {
        let step = Event::PodStep(pod.name.clone(), uid_of(pod));
        let at = now + Duration::from_millis(self.rng.u64(1..900));
        self.schedule(at, step);
    }

    /// Scheduler and kubelets look at all pods again, as after a restore: it brings back pods, and
    /// states of pods, for which they had nothing left to do.
    pub(super) fn step_all_pods(&mut self, now: Duration) {
        let pods: Vec<_> = self.server.all(Kind::Pod).map(Arc::clone).collect();
        for pod in pods {
            self.step_soon(&pod, now);
        }
    }

    /// The scheduler's and the kubelet's next step for a pod.
    pub(super) fn step_pod(&mut self, name: &str, uid: &str, now: Duration) {
        let Some(pod) = self
            .server
            .get(Kind::Pod, name)
            .filter(|pod| uid_of(pod) == uid)
        else {
            return;
        };
        let pod = Arc::clone(pod);
        let value = &pod.value;
        if is_terminating(&pod) {
            self.write(now, |api| api.remove(Kind::Pod, name));
            return;
        }
        if !is_active(value) || is_ready(value) {
            return;
        }
        if value["spec"]["nodeName"].is_null() {
            let any = format!("node-{}", self.rng.u32(..3));
            let node = self.next_node.take().map_or(any, str::to_owned);
            self.write(now, |api| {
                api.change(Kind::Pod, name, |pod| pod["spec"]["nodeName"] = json!(node));
            });
            let at = now + Duration::from_millis(self.rng.u64(1..1_500));
            self.schedule(at, Event::PodStep(name.to_owned(), uid.to_owned()));
        } else if self.is_rejected() {
            self.write(now, |api| {
                let at = api.now.clone();
                api.change(Kind::Pod, name, |pod| {
                    // As a kubelet, which leaves no condition.
                    pod["status"] =
                        json!({"phase": "Failed", "reason": "OutOfpods", "startTime": at});
                });
            });
        } else {
            self.set_ready(name, true, now);
        }
    }

    fn is_rejected(&mut self) -> bool {
        let rejects = self.n_to_reject > 0;
        self.n_to_reject -= u32::from(rejects);
        rejects
    }

    fn set_ready(&mut self, name: &str, ready: bool, now: Duration) {
        let status = if ready { "True" } else { "False" };
        self.write(now, |api| {
            let since = api.now.clone();
            api.change(Kind::Pod, name, |pod| {
                pod["status"] = json!({
                    "phase": "Running",
                    "conditions": [
                        {"type": "Ready", "status": status, "lastTransitionTime": since},
                    ],
                });
            });
        });
    }

    pub(super) fn collect_garbage(&mut self, now: Duration) {
        for name in orphaned_by_deletion(&self.server) {
            self.delete_pod(&name, now);
        }
        for set in 0..self.plan.replicas.len() {
            let rs = self.server.get(Kind::ReplicaSet, &name_of(set));
            if let Some(rs) = rs.filter(|rs| is_terminating(rs)).map(Arc::clone) {
                self.go_on_deleting(set, &uid_of(&rs), now);
            }
        }
    }

    /// Deletes some pods of a ReplicaSet in foreground deletion, or the ReplicaSet after all pods.
    /// Its user creates it again.
    fn go_on_deleting(&mut self, set: usize, uid: &str, now: Duration) {
        let pods = self.server.all(Kind::Pod);
        let owned = pods.filter(|pod| controller_of(&pod.value) == Some(uid));
        let owned: Vec<_> = owned.map(Arc::clone).collect();
        if owned.is_empty() {
            self.write(now, |api| api.remove(Kind::ReplicaSet, &name_of(set)));
            if !self.server.is_terminating {
                self.create_replica_set(set, self.plan.replicas[set], now);
            }
            return;
        }
        for pod in owned.iter().filter(|pod| !is_terminating(pod)) {
            if self.rng.bool() {
                self.delete_pod(&pod.name, now);
            } else {
                let at = now + Duration::from_millis(self.rng.u64(5..400));
                self.schedule(at, Event::CollectGarbage);
            }
        }
    }

    fn delete_pod(&mut self, name: &str, now: Duration) {
        self.write(now, |api| {
            if let Some(pod) = api.get(Kind::Pod, name).map(Arc::clone) {
                api.delete_pod(&pod);
            }
        });
    }

    fn create_replica_set(&mut self, set: usize, replicas: i64, now: Duration) {
        let object = replica_set(&name_of(set), replicas, &self.plan.opt_ins_of(set));
        self.write(now, |api| api.create(Kind::ReplicaSet, object));
    }

    fn any_pod(&self, number: usize) -> Option<Arc<Object>> {
        let pods: Vec<_> = self.server.all(Kind::Pod).collect();
        let at = number.checked_rem(pods.len())?;
        Some(Arc::clone(pods[at]))
    }

    /// A user changes `spec.replicas`, and the template as a Deployment that rolls back with a new
    /// annotation.
    pub(super) fn scale(&mut self, name: &str, to: impl FnOnce(i64) -> i64, now: Duration) {
        self.write(now, |api| {
            api.change(Kind::ReplicaSet, name, |rs| {
                let replicas = rs["spec"]["replicas"].as_i64().unwrap_or(1);
                rs["spec"]["replicas"] = json!(to(replicas));
                let generation = rs["metadata"]["generation"].as_i64().unwrap_or(0);
                rs["metadata"]["generation"] = json!(generation + 1);
                let template = &mut rs["spec"]["template"]["metadata"];
                template["annotations"][REVISION] = json!((generation + 1).to_string());
            });
        });
    }
}

impl World {
    pub(super) fn act(self: &Arc<Self>, action: &Action, now: Duration) {
        let mut state = self.lock();
        state.note(now, format_args!("{action:?}"));
        if let Some(fault) = action.fault() {
            state.faults.count(fault);
        }
        if !state.act_on_objects(action, now) && !state.act_on_servers(action, now) {
            drop(state);
            self.act_on_daemon(action, now);
        }
    }
}

impl State {
    /// What users, other clients and kubelets do; false if the action is none of theirs.
    fn act_on_objects(&mut self, action: &Action, now: Duration) -> bool {
        match *action {
            Action::Scale(set, replicas) => self.scale(&name_of(set), |_| replicas, now),
            Action::DeletePod(number) => self.with_pod(number, now, |api, pod| {
                api.delete_pod(pod);
            }),
            Action::FailPod(number) => {
                let at = self.server.now.clone();
                self.change_pod(number, now, |pod| {
                    pod["status"] = json!({"phase": "Failed", "reason": "Evicted", "conditions": [
                        {"type": "DisruptionTarget", "status": "True", "lastTransitionTime": at},
                    ]});
                });
            }
            Action::UnreadyPod(number) => {
                if let Some(pod) = self.any_pod(number).filter(|pod| is_ready(&pod.value)) {
                    self.set_ready(&pod.name, false, now);
                    let again = Event::PodStep(pod.name.clone(), uid_of(&pod));
                    self.schedule(now + Duration::from_secs(3), again);
                }
            }
            Action::RelabelPod(number) => self.change_pod(number, now, |pod| {
                pod["metadata"]["labels"] = json!({"app": "lost"});
            }),
            Action::MarkPod(number, mark) => self.change_pod(number, now, |pod| {
                pod["metadata"]["annotations"][SCALE_DOWN] = json!(mark);
            }),
            // Nothing can be created in a namespace that ends.
            Action::Recreate(..) | Action::AddOrphan(_) if self.server.is_terminating => {}
            Action::AddOrphan(set) => {
                let name = format!("orphan-{}", self.rng.u32(..));
                let labels = json!({"app": name_of(set)});
                let pod = json!({"metadata": {"name": name, "labels": labels}, "spec": {}});
                self.write(now, |api| api.create(Kind::Pod, pod));
            }
            Action::Recreate(set, replicas) => {
                self.write(now, |api| api.remove(Kind::ReplicaSet, &name_of(set)));
                self.create_replica_set(set, replicas, now);
            }
            Action::DeleteForeground(set) => self.write(now, |api| {
                let at = api.now.clone();
                api.change(Kind::ReplicaSet, &name_of(set), |rs| {
                    let metadata = &mut rs["metadata"];
                    if metadata["deletionTimestamp"].is_null() {
                        let generation = metadata["generation"].as_i64().unwrap_or(0);
                        metadata["generation"] = json!(generation + 1);
                        metadata["deletionTimestamp"] = json!(at);
                        metadata["finalizers"] = json!(["foregroundDeletion"]);
                    }
                });
            }),
            Action::RejectPods(n) => self.n_to_reject = n,
            Action::TakeNames(n) => self.n_names_to_take = n,
            Action::AddFinalizer(number) => self.change_pod(number, now, |pod| {
                pod["metadata"]["finalizers"] = json!(["example.com/held"]);
            }),
            _ => return false,
        }
        true
    }

    /// What happens to the servers, the network and the Lease; false if the action is none of it.
    fn act_on_servers(&mut self, action: &Action, now: Duration) -> bool {
        match *action {
            Action::Quota(pods, duration) => {
                self.write(now, |api| api.set_quota(Some(pods)));
                self.schedule(now + duration, Event::LiftQuota);
            }
            Action::TerminateNamespace(duration) => {
                self.server.is_terminating = true;
                self.schedule(now + duration / 2, Event::EmptyNamespace);
                self.schedule(now + duration, Event::NamespaceReturns);
            }
            Action::DeleteLease => self.tamper(now, |api, lease| {
                api.remove(Kind::Lease, lease);
            }),
            Action::EmptyLease => self.tamper(now, |api, lease| {
                api.change(Kind::Lease, lease, |lease| {
                    lease["spec"]["holderIdentity"] = json!("");
                });
            }),
            Action::ServerDown(server, duration) => self.take_down(server, now + duration),
            Action::BothServersDown(duration) => {
                self.take_down(0, now + duration);
                self.take_down(1, now + duration);
            }
            Action::CutPods => self.cut(None, Some(Kind::Pod), End::Reset),
            Action::CutReplicaSets => self.cut(None, Some(Kind::ReplicaSet), End::Reset),
            Action::CutAll => self.cut(None, None, End::Reset),
            Action::Compact => self.server.compact(),
            Action::Restore => {
                if let Some(snapshot) = self.snapshot.clone() {
                    self.restore(snapshot, now);
                }
            }
            Action::Lag(lag, duration) => {
                self.set_lag(Some(lag));
                self.schedule(now + duration, Event::LagEnds);
            }
            Action::CacheLag(server, lag, duration) => {
                self.cache_lag[server] = lag;
                self.schedule(now + duration, Event::CacheLagEnds(server));
            }
            _ => return false,
        }
        true
    }

    /// The namespace's controller deletes what is in it.
    pub(super) fn empty_namespace(&mut self, now: Duration) {
        for set in 0..self.plan.replicas.len() {
            self.write(now, |api| api.remove(Kind::ReplicaSet, &name_of(set)));
        }
        self.collect_garbage(now);
    }

    /// The namespace exists again, and so do its ReplicaSets.
    pub(super) fn return_namespace(&mut self, now: Duration) {
        self.server.is_terminating = false;
        for (set, replicas) in self.plan.replicas.clone().into_iter().enumerate() {
            if self.server.get(Kind::ReplicaSet, &name_of(set)).is_none() {
                self.create_replica_set(set, replicas, now);
            }
        }
    }

    fn with_pod(
        &mut self,
        number: usize,
        now: Duration,
        act: impl FnOnce(&mut ApiServer, &Arc<Object>),
    ) {
        if let Some(pod) = self.any_pod(number) {
            self.write(now, |api| act(api, &pod));
        }
    }

    fn change_pod(&mut self, number: usize, now: Duration, change: impl FnOnce(&mut Value)) {
        self.with_pod(number, now, |api, pod| {
            api.change(Kind::Pod, &pod.name, change);
        });
    }

    /// Another client changes the Lease.
    fn tamper(&mut self, now: Duration, act: impl FnOnce(&mut ApiServer, &str)) {
        let lease = self
            .server
            .all(Kind::Lease)
            .next()
            .map(|lease| lease.name.clone());
        if let Some(lease) = lease {
            self.write(now, |api| act(api, &lease));
        }
        self.lease_was_changed(now + TAMPERED);
    }
}

fn uid_of(object: &Object) -> String {
    object.value["metadata"]["uid"]
        .as_str()
        .unwrap_or_default()
        .to_owned()
}
