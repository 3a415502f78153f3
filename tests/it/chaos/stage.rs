//! The scene of a round: its workloads, their changes, and a kubelet that says of some pods that
//! they run.

use std::fmt::Write as _;
use std::time::{Duration, Instant};

use replicaset_controller::client::Request;
use replicaset_controller::stdx::stop::Stop;
use serde_json::{Value, json};

use super::judge::{self, STRANGER};
use super::site::Site;
use crate::support::{
    Api, Kind, is_terminating, name, new_pod, new_replica_set_labelled, number_at,
};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Scene {
    ScaleUp,
    ScaleDown,
    RollOut,
}

impl Scene {
    pub(super) const ALL: [Self; 3] = [Self::ScaleUp, Self::ScaleDown, Self::RollOut];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::ScaleUp => "scale-up",
            Self::ScaleDown => "scale-down",
            Self::RollOut => "roll-out",
        }
    }
}

/// Names, labels and first replicas of the ReplicaSets.
const SETS: [&str; 2] = ["a", "b"];

/// The only Deployment.
const DEPLOYMENT: &str = "web";

/// The limit of every scale-up.
const REPLICAS_MAX: i64 = 120;

/// How long the workloads may take to come to rest after the last fault.
const REST_WITHIN: Duration = Duration::from_secs(90);

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
        let mut stranger = new_pod(STRANGER);
        stranger["metadata"]["labels"]["app"] = json!(SETS[0]);
        // A controller that exists: a garbage collector runs.
        let account = self.api.get(Kind::ServiceAccounts, "default");
        stranger["metadata"]["ownerReferences"] = json!([{
            "apiVersion": "v1", "kind": "ServiceAccount", "name": "default",
            "uid": account.expect("the site created it")["metadata"]["uid"], "controller": true,
        }]);
        self.api.create_pod(&stranger);
        match self.scene {
            Scene::ScaleUp => self.create_sets(1..4),
            Scene::ScaleDown => self.create_sets(40..80),
            Scene::RollOut => {
                let replicas = self.rng.i64(8..24);
                let mut deployment = new_replica_set_labelled(DEPLOYMENT, replicas, DEPLOYMENT);
                deployment["kind"] = json!("Deployment");
                self.api.create(Kind::Deployments, &deployment);
            }
        }
    }

    fn create_sets(&mut self, replicas: std::ops::Range<i64>) {
        for name in SETS {
            let replicas = self.rng.i64(replicas.clone());
            let set = new_replica_set_labelled(name, replicas, name);
            self.api.create_replica_set(&set);
        }
    }

    /// Makes one change to the workloads, as a user would.
    pub(super) fn change(&mut self) {
        let set = SETS[self.rng.usize(0..SETS.len())];
        match self.scene {
            Scene::ScaleUp => self.scale(set, 4..25),
            Scene::ScaleDown => self.scale(set, -9..-2),
            Scene::RollOut => self.roll_out(),
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

    /// Says of some pods, or of all, that they run; gives some a cost of deletion.
    pub(super) fn run_pods(&mut self, all: bool) {
        let Some(pods) = self.list(Kind::Pods) else {
            return;
        };
        for pod in pods {
            let is_new = pod["status"]["phase"] == "Pending" && !is_terminating(&pod);
            if !is_new || name(&pod) == STRANGER || !(all || self.rng.u8(0..3) == 0) {
                continue;
            }
            if self.rng.u8(0..8) == 0 {
                let cost = json!({"controller.kubernetes.io/pod-deletion-cost": "-7"});
                self.patch_pod(&name(&pod), &json!({"metadata": {"annotations": cost}}));
            }
            let ready = json!({"status": {"phase": "Running", "conditions": [{
                "type": "Ready", "status": "True", "lastTransitionTime": jiff::Timestamp::now()
                    .strftime("%FT%TZ").to_string(),
            }]}});
            self.patch_pod(&format!("{}/status", name(&pod)), &ready);
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
        let mut unrest = judge::at_rest(&sets, &self.list(Kind::Pods)?);
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
        loop {
            keep(self);
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
