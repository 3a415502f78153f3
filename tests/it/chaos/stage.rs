//! The scene of a round: its workloads, their changes, and a kubelet that says of some pods that
//! they run.

use std::fmt::Write as _;
use std::time::{Duration, Instant};

use replicaset_controller::client::Request;
use replicaset_controller::stdx::stop::Stop;
use serde_json::{Value, json};

use super::opt_ins::{BACK_OFF, FIRST_WAIT, KEPT, MARK, MIN_AGE, N_KEPT, ORDER, PROTECTION};
use super::rest::{self, FOREIGN};
use super::site::Site;
use crate::support::{
    Api, Kind, is_terminating, name, new_pod, new_replica_set_labelled, number_at, text_at,
};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Scene {
    ScaleUp,
    /// One ReplicaSet has a preference among pods that the order calls equal.
    ScaleDown,
    RollOut,
    /// Scale-downs of ReplicaSets with protection, some of whose pods are marked.
    Protected,
    /// A kubelet rejects all pods for some time; the ReplicaSets opt in to a back-off, and to
    /// keep few Failed pods.
    Failing,
    /// A quota that is raised and lowered is in front of both ReplicaSets.
    Quota,
}

impl Scene {
    pub(super) const ALL: [Self; 6] = [
        Self::ScaleUp,
        Self::ScaleDown,
        Self::RollOut,
        Self::Protected,
        Self::Failing,
        Self::Quota,
    ];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::ScaleUp => "scale-up",
            Self::ScaleDown => "scale-down",
            Self::RollOut => "rollout",
            Self::Protected => "protected",
            Self::Failing => "failing",
            Self::Quota => "quota",
        }
    }

    /// What the first and the second ReplicaSet opt in to.
    fn opt_ins(self) -> [Value; 2] {
        match self {
            Self::ScaleDown => [json!({}), json!({ORDER: "spread"})],
            Self::Protected => [json!({PROTECTION: "on"}), json!({PROTECTION: "on"})],
            Self::Failing => [
                json!({BACK_OFF: format!("{}s..30s", FIRST_WAIT.as_secs())}),
                json!({KEPT: N_KEPT.to_string(), MIN_AGE: "1s"}),
            ],
            Self::ScaleUp | Self::RollOut | Self::Quota => [json!({}), json!({})],
        }
    }
}

/// The zones of the pods that run.
const ZONES: [&str; 3] = ["north", "south", "west"];

/// Names, labels and first replicas of the ReplicaSets.
const SETS: [&str; 2] = ["a", "b"];

/// The only Deployment.
const DEPLOYMENT: &str = "web";

/// The only quota.
const QUOTA: &str = "few";

/// The limit of every scale-up.
const REPLICAS_MAX: i64 = 120;

/// How long the workloads may take to become stable after the last fault.
const REST_WITHIN: Duration = Duration::from_mins(5);

pub(super) struct Stage<'a> {
    pub(super) site: &'a Site,
    pub(super) api: Api,
    pub(super) rng: fastrand::Rng,
    pub(super) scene: Scene,
    pub(super) began: Instant,
    pub(super) stop: Stop,
    /// What was done, a line each.
    pub(super) journal: String,
    n_templates: usize,
    /// Whether the kubelet rejects pods.
    rejects: bool,
}

impl<'a> Stage<'a> {
    pub(super) fn new(site: &'a Site, name: &str, scene: Scene, rng: fastrand::Rng) -> Self {
        let stop = Stop::new();
        Self {
            site,
            api: site.namespace(name, &stop),
            rng,
            scene,
            began: Instant::now(),
            stop,
            journal: String::new(),
            n_templates: 0,
            rejects: false,
        }
    }

    /// Notes a change or a fault.
    pub(super) fn note(&mut self, what: &str) {
        writeln!(self.journal, "{:>9.3?} {what}", self.began.elapsed()).unwrap_or_default();
    }

    pub(super) fn pause(&mut self, ms: std::ops::Range<u64>) {
        let pause = Duration::from_millis(self.rng.u64(ms));
        self.site.waiting.pause(pause);
    }

    /// Creates the workloads.
    pub(super) fn begin(&mut self) {
        let mut foreign = new_pod(FOREIGN);
        foreign["metadata"]["labels"]["app"] = json!(SETS[0]);
        // A controller that exists: a garbage collector runs.
        let account = self.api.get(Kind::ServiceAccounts, "default");
        foreign["metadata"]["ownerReferences"] = json!([{
            "apiVersion": "v1", "kind": "ServiceAccount", "name": "default",
            "uid": account.expect("the site created it")["metadata"]["uid"], "controller": true,
        }]);
        self.api.create_pod(&foreign);
        match self.scene {
            Scene::ScaleUp => self.create_sets(1..4),
            Scene::ScaleDown | Scene::Protected => self.create_sets(40..80),
            Scene::Failing => self.create_sets(4..12),
            Scene::Quota => {
                self.create_quota();
                self.create_sets(4..12);
            }
            Scene::RollOut => {
                let replicas = self.rng.i64(8..24);
                let mut deployment = new_replica_set_labelled(DEPLOYMENT, replicas, DEPLOYMENT);
                deployment["kind"] = json!("Deployment");
                self.api.create(Kind::Deployments, &deployment);
            }
        }
    }

    fn create_quota(&self) {
        let quota = json!({
            "metadata": {"name": QUOTA}, "spec": {"hard": {"pods": REPLICAS_MAX.to_string()}},
        });
        self.api.create(Kind::Quotas, &quota);
        // Without a status the quota rejects every pod.
        let is_counted = || {
            let quota = self.api.get(Kind::Quotas, QUOTA);
            quota.is_some_and(|quota| !quota["status"]["hard"].is_null())
        };
        self.site.waiting.eventually("the quota counts", is_counted);
    }

    /// Sets the number of pods that the quota permits.
    fn permit(&mut self, n_pods: i64) {
        let patch = json!({"spec": {"hard": {"pods": n_pods.to_string()}}});
        let request = Request::patch(self.api.path(Kind::Quotas, QUOTA));
        let request = request.body("application/merge-patch+json", patch.to_string());
        if self.api.try_send(&request).is_ok() {
            self.note(&format!("the quota permits {n_pods} pods"));
        }
    }

    /// Makes room for every pod. A restore may have brought an earlier quota back.
    fn lift_quota(&mut self) {
        let quotas = self.list(Kind::Quotas).unwrap_or_default();
        let all = REPLICAS_MAX.to_string();
        let permits_all = |quota: &Value| text_at(quota, "/spec/hard/pods") == all;
        if !quotas.iter().all(permits_all) {
            self.permit(REPLICAS_MAX);
        }
    }

    fn create_sets(&mut self, replicas: std::ops::Range<i64>) {
        for (name, opt_ins) in SETS.into_iter().zip(self.scene.opt_ins()) {
            let replicas = self.rng.i64(replicas.clone());
            let mut set = new_replica_set_labelled(name, replicas, name);
            set["metadata"]["annotations"] = opt_ins;
            self.api.create_replica_set(&set);
        }
    }

    /// Makes one change to the workloads, as a user would.
    pub(super) fn change(&mut self) {
        let set = SETS[self.rng.usize(0..SETS.len())];
        match self.scene {
            Scene::ScaleUp => self.scale(set, 4..25),
            Scene::ScaleDown => self.scale(set, -9..-2),
            Scene::Protected => {
                self.scale(set, -9..-2);
                self.mark_pods();
            }
            Scene::RollOut => self.roll_out(),
            Scene::Failing if self.rng.u8(0..3) == 0 => self.scale(set, -3..5),
            Scene::Quota if self.rng.bool() => self.scale(set, -4..9),
            Scene::Quota => {
                let n_pods = self.rng.i64(3..18);
                self.permit(n_pods);
            }
            Scene::Failing => {
                self.rejects = !self.rejects;
                self.note(&format!("the kubelet rejects pods: {}", self.rejects));
            }
        }
    }

    fn scale(&mut self, set: &str, by: std::ops::Range<i64>) {
        let now = number_at(&self.api.replica_set(set), "/spec/replicas");
        let replicas = (now + self.rng.i64(by)).clamp(0, REPLICAS_MAX);
        self.api.scale(set, replicas);
        self.note(&format!("{set} from {now} to {replicas} replicas"));
    }

    fn roll_out(&mut self) {
        self.n_templates += 1;
        let image = format!("example.invalid/none:{}", self.n_templates);
        self.api
            .update(Kind::Deployments, DEPLOYMENT, |deployment| {
                deployment["spec"]["template"]["spec"]["containers"][0]["image"] = json!(image);
            });
        self.note(&format!("image {image}"));
    }

    /// Says of some pods, or of all, that they run, or that the kubelet rejects them. Gives pods
    /// that run a zone, and some of them a cost of deletion or a mark.
    pub(super) fn run_pods(&mut self, all: bool) {
        let Some(pods) = self.list(Kind::Pods) else {
            return;
        };
        for pod in pods {
            let is_new = pod["status"]["phase"] == "Pending" && !is_terminating(&pod);
            if !is_new || name(&pod) == FOREIGN || !(all || self.rng.u8(0..3) == 0) {
                continue;
            }
            let metadata = self.desired_metadata();
            if metadata != json!({}) {
                self.patch_pod(&name(&pod), &json!({"metadata": metadata}));
            }
            let now = jiff::Timestamp::now().strftime("%FT%TZ").to_string();
            let (phase, is_ready) = if self.rejects {
                ("Failed", "False")
            } else {
                ("Running", "True")
            };
            let status = json!({"phase": phase, "conditions": [{
                "type": "Ready", "status": is_ready, "lastTransitionTime": now,
            }]});
            self.patch_pod(
                &format!("{}/status", name(&pod)),
                &json!({"status": status}),
            );
        }
    }

    /// Labels and annotations by which a pod that runs is chosen.
    fn desired_metadata(&mut self) -> Value {
        let mut metadata = json!({});
        if self.rng.u8(0..8) == 0 {
            metadata["annotations"]["controller.kubernetes.io/pod-deletion-cost"] = json!("-7");
        }
        match self.scene {
            Scene::ScaleDown => {
                let zone = ZONES[self.rng.usize(0..ZONES.len())];
                metadata["labels"] = json!({"topology.kubernetes.io/zone": zone});
            }
            Scene::Protected if self.rng.u8(0..3) == 0 => {
                metadata["annotations"][MARK] = json!(["never", "first"][self.rng.usize(0..2)]);
            }
            _ => {}
        }
        metadata
    }

    /// Marks some pods, and takes the marks of some, while a scale-down is under way.
    fn mark_pods(&mut self) {
        for pod in self.list(Kind::Pods).unwrap_or_default() {
            if name(&pod) != FOREIGN && self.rng.u8(0..8) == 0 {
                let mark = [json!("never"), json!(null)][self.rng.usize(0..2)].take();
                let patch = json!({"metadata": {"annotations": {MARK: mark}}});
                self.patch_pod(&name(&pod), &patch);
            }
        }
    }

    fn patch_pod(&self, name: &str, patch: &Value) {
        let request = Request::patch(self.api.path(Kind::Pods, name));
        let request = request.body("application/merge-patch+json", patch.to_string());
        // The daemon may have deleted the pod, and a fault the API server.
        drop(self.api.try_send(&request));
    }

    fn list(&self, kind: Kind) -> Option<Vec<Value>> {
        let list = self.api.try_send(&Request::get(self.api.collection(kind)));
        let list: Value = serde_json::from_slice(&list.ok()?.body).ok()?;
        Some(list["items"].as_array().cloned().unwrap_or_default())
    }

    /// What is not yet at rest; `None` without an API server.
    pub(super) fn unrest(&self) -> Option<Vec<String>> {
        let sets = self.list(Kind::ReplicaSets)?;
        let mut unrest = rest::at_rest(&sets, &self.list(Kind::Pods)?);
        if self.scene != Scene::RollOut {
            return Some(unrest);
        }
        for deployment in self.list(Kind::Deployments)? {
            let number = |pointer| number_at(&deployment, pointer);
            let wanted = number("/spec/replicas");
            let status = ["replicas", "updatedReplicas", "availableReplicas"];
            let found = status.map(|it| number_at(&deployment, &format!("/status/{it}")));
            let is_seen = number("/status/observedGeneration") == number("/metadata/generation");
            if !is_seen || found != [wanted; 3] {
                unrest.push(format!("Deployment: {found:?} of {wanted}"));
            }
        }
        Some(unrest)
    }

    /// Waits until everything is at rest. Returns what is not after [`REST_WITHIN`].
    pub(super) fn rest(&mut self, keep: &mut dyn FnMut(&mut Self)) -> Vec<String> {
        let deadline = Instant::now() + REST_WITHIN;
        self.rejects = false;
        loop {
            keep(self);
            if self.scene == Scene::Quota {
                self.lift_quota();
            }
            self.run_pods(self.scene == Scene::RollOut);
            let unrest = self.unrest();
            let unrest = unrest.unwrap_or_else(|| vec!["no API server".to_owned()]);
            if unrest.is_empty() || Instant::now() > deadline {
                self.note("at rest");
                return unrest;
            }
            self.pause(50..60);
        }
    }

    /// Deletes the workloads and their pods, which later rounds need not carry.
    pub(super) fn clean_up(&self) {
        for kind in [Kind::Deployments, Kind::ReplicaSets, Kind::Pods] {
            let options = json!({"gracePeriodSeconds": 0, "propagationPolicy": "Background"});
            let request = Request::delete(self.api.collection(kind));
            let request = request.body("application/json", options.to_string());
            drop(self.api.try_send(&request));
        }
    }
}
