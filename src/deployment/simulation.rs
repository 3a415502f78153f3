//! Random histories of one Deployment on the dev server's API. Its user scales, changes the
//! template, pauses, rolls back; ReplicaSets report pods that come and go; the controller reads
//! caches that lag behind, loses responses, meets other writers, and restarts. The server keeps
//! every object as kube-apiserver would.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use devserver::{ApiRequest as Request, Handler, Response};
use fastrand::Rng;
use parking_lot::Mutex;
use serde_json::{Value, json};

use crate::act::Writer;
use crate::api::ObjectKey;
use crate::client::{Client, ClientConfig, ClientOptions};
use crate::event_recorder::{ClientEventSink, EventOptions, event_recorder};
use crate::fenceposts::Fenceposts;
use crate::objects::{Deployment, ReplicaSet};
use crate::revisions::{ROLLBACK_TO, desired_replicas_of};
use crate::status::is_complete;
use crate::stdx::clock::{Clock, SystemClock};
use crate::stdx::stop::Stop;
use crate::sync::{DeploymentController, Parts};
use crate::workqueue::WorkQueue;

const HISTORIES: u64 = 20;
const STEPS: usize = 100;
/// Syncs without faults after which a rollout must have ended.
const SYNCS_TO_THE_END: usize = 40;

const DEPLOYMENTS: &str = "/apis/apps/v1/namespaces/default/deployments";
pub(crate) const SETS: &str = "/apis/apps/v1/namespaces/default/replicasets";
const WEB: &str = "/apis/apps/v1/namespaces/default/deployments/web";

pub(crate) fn call(api: &dyn Handler, method: &str, path: &str, body: &Value) -> Value {
    let is_patch = method == "PATCH";
    let kind = if is_patch { "merge-patch+json" } else { "json" };
    let response = api.handle(Request {
        method: method.to_owned(),
        path: path.to_owned(),
        headers: vec![("content-type".to_owned(), format!("application/{kind}"))],
        body: body.to_string().into_bytes(),
        ..Request::default()
    });
    assert!(
        response.code < 300,
        "{method} {path} {body}: {}",
        response.code
    );
    serde_json::from_slice(&response.body.read().unwrap_or_default()).expect("an object")
}

pub(crate) fn sets_of(api: &dyn Handler) -> Vec<Value> {
    let list = call(api, "GET", SETS, &Value::Null);
    list["items"].as_array().cloned().unwrap_or_default()
}

fn path_of(rs: &Value) -> String {
    let name = rs["metadata"]["name"].as_str().unwrap_or_default();
    format!("{SETS}/{name}")
}

/// The API server as the controller reaches it.
struct Network {
    api: Arc<dyn Handler>,
    rng: Mutex<Rng>,
    /// Of a hundred writes so many go wrong.
    percent: AtomicU64,
}

impl Handler for Network {
    fn handle(&self, request: Request) -> Response {
        let draw = self.rng.lock().u64(0..100);
        if request.method == "GET" || draw >= self.percent.load(Ordering::Relaxed) {
            return self.api.handle(request);
        }
        match draw % 4 {
            0 => Response::cut(),
            // It takes effect, but the controller gets no response.
            1 | 2 => {
                self.api.handle(request);
                Response::cut()
            }
            _ => {
                let patch = json!({"metadata": {"annotations": {"other": draw.to_string()}}});
                for rs in sets_of(&*self.api) {
                    call(&*self.api, "PATCH", &path_of(&rs), &patch);
                }
                self.api.handle(request)
            }
        }
    }
}

/// What the server has at one time.
#[derive(Clone)]
struct State {
    web: Arc<Deployment>,
    sets: Vec<Arc<ReplicaSet>>,
}

impl State {
    fn read(api: &dyn Handler) -> Self {
        let web = call(api, "GET", WEB, &Value::Null);
        let web = Deployment::from_json(web.to_string().as_bytes());
        let sets = sets_of(api).into_iter().map(|rs| {
            let rs = ReplicaSet::from_json(rs.to_string().as_bytes());
            Arc::new(rs.expect("a ReplicaSet"))
        });
        let state = Self {
            web: Arc::new(web.expect("a Deployment")),
            sets: sets.collect(),
        };
        let templates: HashSet<_> = state
            .sets
            .iter()
            .map(|rs| rs.template.canonical())
            .collect();
        assert_eq!(templates.len(), state.sets.len(), "two of one template");
        state
    }

    /// Pods, and available ones that no scale-down is about to end.
    fn counts(&self) -> (i32, i32) {
        let lasting = |rs: &Arc<ReplicaSet>| rs.available().min(rs.replicas);
        let replicas = self.sets.iter().map(|rs| rs.replicas);
        (replicas.sum(), self.sets.iter().map(lasting).sum())
    }

    fn was_scaled(&self) -> bool {
        let desired = |rs: &ReplicaSet| desired_replicas_of(&rs.annotations);
        let mut active = self.sets.iter().filter(|rs| rs.wants_pods());
        active.any(|rs| desired(rs) != Some(self.web.replicas))
    }
}

struct World {
    network: Arc<Network>,
    client: Client,
    controller: DeploymentController,
    /// The caches show one state each.
    log: Vec<State>,
    shown: [usize; 2],
    rng: Rng,
}

impl World {
    fn act_as_user(&mut self) {
        let (n, m) = (self.rng.i32(0..8), self.rng.i32(0..4));
        let image = format!("web:{m}");
        let template = json!({"spec": {"containers": [{"name": "a", "image": image}]}});
        let patch = match self.rng.u8(0..10) {
            0..3 => json!({"spec": {"replicas": n}}),
            3..6 => json!({"spec": {"template": template}}),
            6 => json!({"spec": {"paused": self.rng.bool()}}),
            7 => json!({"metadata": {"annotations": {
                "deprecated.deployment.rollback.to": m.to_string()}}}),
            8 => json!({"spec": {"revisionHistoryLimit": m}}),
            _ => json!({"spec": {"strategy": {"rollingUpdate": {
                "maxSurge": m, "maxUnavailable": if m == 0 { 1 } else { n % 3 }}}}}),
        };
        call(&*self.network.api, "PATCH", WEB, &patch);
    }

    /// A ReplicaSet gets its pods, and some of them are available; all if `is_calm`.
    fn report(&mut self, rs: &Value, is_calm: bool) {
        let replicas = rs["spec"]["replicas"].as_i64().unwrap_or(0);
        let some = self.rng.i64(0..=replicas);
        let available = if is_calm { replicas } else { some };
        let mut rs = rs.clone();
        rs["status"] = json!({
            "replicas": replicas, "readyReplicas": available, "availableReplicas": available,
            "fullyLabeledReplicas": replicas,
            "observedGeneration": rs["metadata"]["generation"],
        });
        let path = format!("{}/status", path_of(&rs));
        call(&*self.network.api, "PUT", &path, &rs);
    }

    fn now(&mut self) -> State {
        let state = State::read(&*self.network.api);
        self.log.push(state.clone());
        state
    }

    /// The caches show some later state each; the newest if `is_fresh`. Returns the newest.
    fn deliver(&mut self, is_fresh: bool) -> State {
        let now = self.now();
        let newest = self.log.len() - 1;
        for shown in &mut self.shown {
            // A watch that stands still for long, such as one that reconnects, shows most faults.
            let is_still = self.rng.u8(0..4) > 0;
            let later = self.rng.usize(*shown..=newest);
            *shown = if is_fresh {
                newest
            } else if is_still {
                *shown
            } else {
                later
            };
        }
        let [web, sets] = self.shown.map(|shown| self.log[shown].clone());
        let parts = &self.controller.0;
        parts.deployments.replace(vec![web.web], &[], &"1".into());
        parts.replica_sets.replace(sets.sets, &[], &"1".into());
        now
    }

    /// One sync. From fresh caches it keeps the limits of a rolling update, whatever its writes
    /// meet.
    fn sync(&mut self, is_fresh: bool) {
        let before = self.deliver(is_fresh);
        let queue = self.controller.queue();
        queue.add(ObjectKey::new("default", "web"));
        if let Some(key) = queue.try_get() {
            self.controller.process(&key);
        }
        let (d, limits) = (&before.web, Fenceposts::of(&before.web));
        let ((total, lasting), after) = (before.counts(), self.now().counts());
        let max_total = (d.replicas + limits.max_surge).max(total);
        let min_lasting = (d.replicas - limits.max_unavailable).min(lasting);
        if is_fresh {
            assert!(after.0 <= max_total, "more than {max_total}");
            // A Deployment that is scaled keeps the shares of its ReplicaSets instead.
            let is_enough = before.was_scaled() || after.1 >= min_lasting;
            assert!(is_enough, "fewer than {min_lasting}");
        }
    }

    fn play(&mut self) {
        for _ in 0..STEPS {
            match self.rng.u8(0..20) {
                0..2 => self.act_as_user(),
                2..7 => {
                    let sets = sets_of(&*self.network.api);
                    if let Some(rs) = self.rng.choice(&sets) {
                        self.report(rs, false);
                    }
                }
                7 => self.controller = controller(&self.client),
                8..13 => self.sync(true),
                _ => self.sync(false),
            }
        }
        self.network.percent.store(0, Ordering::Relaxed);
        let patch = json!({"spec": {"paused": false, "revisionHistoryLimit": 2}});
        call(&*self.network.api, "PATCH", WEB, &patch);
        for _ in 0..SYNCS_TO_THE_END {
            self.sync(true);
            for rs in sets_of(&*self.network.api) {
                self.report(&rs, true);
            }
        }
        let State { web: d, sets } = State::read(&*self.network.api);
        let (new, old): (Vec<_>, Vec<_>) = sets.iter().partition(|rs| rs.template == d.template);
        assert!(new.len() == 1 && new[0].replicas == d.replicas, "{new:?}");
        assert!(
            old.len() <= 2 && old.iter().all(|rs| rs.replicas == 0),
            "{old:?}"
        );
        assert!(is_complete(&d, &d.status), "{:?}", d.status);
        assert!(!d.annotations.contains_key(ROLLBACK_TO));
    }
}

/// A controller whose caches are empty.
pub(crate) fn controller(client: &Client) -> DeploymentController {
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    let sink = Box::new(ClientEventSink::new(client.clone()));
    let options = EventOptions::new(crate::CONTROLLER);
    // Nothing sends its events.
    let (recorder, _) = event_recorder(options, sink, Arc::clone(&clock), &Stop::new());
    DeploymentController::new(Parts {
        deployments: Arc::default(),
        replica_sets: Arc::default(),
        pods: Arc::default(),
        queue: Arc::new(WorkQueue::new(Arc::clone(&clock))),
        writer: Writer::new(client.clone(), recorder, Arc::clone(&clock)),
        clock,
        counts_terminating: false,
        dry_run: false,
    })
}

/// One history. Panics at the first violation.
fn simulate(seed: u64) {
    let api = devserver::new_api();
    let labels = json!({"app": "web"});
    let web = json!({
        "metadata": {"name": "web"},
        "spec": {
            "replicas": 3, "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels},
                "spec": {"containers": [{"name": "a", "image": "web:0"}]}},
        },
    });
    call(&*api, "POST", DEPLOYMENTS, &web);
    let stop = Stop::new();
    let network = Arc::new(Network {
        api,
        rng: Mutex::new(Rng::with_seed(seed)),
        percent: AtomicU64::new(20),
    });
    let server = devserver::serve("127.0.0.1:0", Arc::clone(&network) as _, &stop);
    let mut server = server.expect("a free port");
    let options = ClientOptions {
        qps: 0.0,
        ..ClientOptions::default()
    };
    let client = Client::new(&ClientConfig::plain(&server.url()), &options, &stop);
    let mut world = World {
        network: Arc::clone(&network),
        controller: controller(&client),
        client,
        log: Vec::new(),
        shown: [0; 2],
        rng: Rng::with_seed(seed),
    };
    world.play();
    server.stop();
}

#[test]
fn histories_with_faults_keep_the_limits_and_end() {
    for seed in 0..HISTORIES {
        let played = std::panic::catch_unwind(|| simulate(seed));
        assert!(played.is_ok(), "history {seed} failed");
    }
}
