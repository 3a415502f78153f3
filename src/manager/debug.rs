//! The debug pages of the controllers: `/debug/replicasets`, `/debug/replicasets/NAMESPACE/NAME`,
//! and the same for ReplicationControllers; and the status that the daemon's pages and systemd
//! show. The threads `http-N` and `systemd` call this code.

use std::sync::{Arc, Weak};

use jiff::{SignedDuration, Timestamp};

use super::{ControllerInstance, Manager};
use crate::api::{ObjectKey, WorkloadKind};
use crate::cache::Cache;
use crate::controller::ReplicaSetController;
use crate::explain::{Sources, Table, report};
use crate::http_server::{Request, Response};
use crate::leader_election::LeaderElectionHealth;
use crate::serving::pages::shown;
use crate::serving::{Facts, Pages};
use crate::telemetry::systemd::Daemon;
use crate::telemetry::{logging, metrics};
use crate::workqueue::WorkQueue;

/// One controller, as the callbacks of pages and of the thread `systemd` use it. They may outlive
/// the manager.
struct Part {
    kind: &'static WorkloadKind,
    cache: Cache,
    queue: Arc<WorkQueue<ObjectKey>>,
    /// Weak, since a strong reference held after the stop keeps the threads `batch-*` alive.
    controller: Weak<ReplicaSetController>,
}

impl Manager {
    fn parts(&self) -> Vec<Part> {
        let part = |instance: &ControllerInstance| Part {
            kind: instance.kind,
            cache: instance.cache.clone(),
            queue: Arc::clone(instance.queue()),
            controller: Arc::downgrade(&instance.controller),
        };
        self.instances.iter().map(part).collect()
    }

    /// Adds a page per controlled object that explains its state, and a page per kind with the
    /// objects that have not converged.
    pub fn add_pages(&self, pages: &Pages) {
        for Part {
            kind, controller, ..
        } in self.parts()
        {
            let table_path = format!("/debug/{}", kind.resource);
            let prefix = format!("{table_path}/");
            let of_table = Weak::clone(&controller);
            let about = format!("the {}s that have not converged, and why", kind.kind);
            pages.page(&table_path, &about, move |request| {
                table(&of_table, kind, request)
            });
            let about = format!(
                "explain one {}: its pods, problems and next sync",
                kind.kind
            );
            let form = format!("{prefix}NAMESPACE/NAME");
            let election = self.leader_election_health().cloned();
            let namespace = self.namespace.clone();
            pages.tree(&prefix, &form.clone(), &about, move |request| {
                let object = request.path.strip_prefix(&*table_path);
                let object = object.unwrap_or_default().trim_start_matches('/');
                match object.split_once('/') {
                    Some((object_namespace, name)) if !name.contains('/') => {
                        let key = ObjectKey::new(object_namespace, name);
                        let is_standby = election.as_ref().is_some_and(|it| !it.is_leader());
                        explain(&controller, &key, request, namespace.as_deref(), is_standby)
                    }
                    _ => Response::text(400, &format!("expected {form}\n")),
                }
            });
        }
    }

    /// Returns the facts that the pages `/` and `/statusz` show. `server` is the address of the API
    /// server.
    pub fn status(&self, server: String) -> impl Fn() -> Facts + Send + Sync + use<> {
        let election = self.leader_election_health().cloned();
        let parts = self.parts();
        move || {
            let role = match &election {
                None => "running without leader election".to_owned(),
                Some(election) => election.leading_for().map_or("standby".to_owned(), |time| {
                    format!(
                        "leading for {:#}",
                        SignedDuration::from_secs(time.as_secs().cast_signed())
                    )
                }),
            };
            let version = metrics::global().build.kubernetes_version();
            let version = version.unwrap_or_else(|| "version unknown".to_owned());
            let mut facts = vec![
                ("Role".to_owned(), role),
                ("API server".to_owned(), format!("{server} {version}")),
            ];
            for Part {
                kind,
                cache,
                queue,
                controller,
            } in &parts
            {
                let Some(controller) = controller.upgrade() else {
                    continue;
                };
                let inspector = controller.inspector();
                let objects = if cache.has_synced() {
                    format!(
                        "{}, of which {} have not converged and {} are in back-off; {} pods; {} \
                         keys queued",
                        cache.replica_sets.len(),
                        unsettled(&controller, kind, None).not_converged.len(),
                        inspector.n_in_back_off(),
                        cache.pods.len(),
                        queue.len(),
                    )
                } else {
                    "waiting for the first lists".to_owned()
                };
                facts.push((format!("{}s", kind.kind), objects));
            }
            let warning = logging::last_warning();
            let warning = warning.map_or("none".to_owned(), |line| line.to_string());
            facts.push(("Last warning".to_owned(), warning));
            facts
        }
    }

    /// Returns the table of objects that have not converged, as HTML for the page `/`.
    pub fn objects(&self) -> impl Fn() -> String + Send + Sync + use<> {
        let parts = self.parts();
        move || {
            let mut whole = Table::default();
            let alive = parts
                .iter()
                .filter_map(|part| Some((part.kind, part.controller.upgrade()?)));
            for (kind, controller) in alive {
                // Before the first lists every ReplicaSet seems to lack its pods.
                if !controller.inspector().has_synced() {
                    return "<p>waiting for the first lists</p>\n".to_owned();
                }
                whole.merge(unsettled(&controller, kind, None));
            }
            whole.html(Timestamp::now())
        }
    }
}

fn unsettled(
    controller: &ReplicaSetController,
    kind: &WorkloadKind,
    namespace: Option<&str>,
) -> Table {
    let (sources, now) = (Sources::default(), Timestamp::now());
    let mut table = Table::of(kind.kind, 0);
    let n = controller
        .inspector()
        .inspect_unsettled(namespace, &mut |facts| table.add(facts, &sources, now));
    table.merge(Table::of(kind.kind, n));
    table
}

fn stopping() -> Response {
    Response::text(503, "the daemon is stopping\n")
}

/// Explains the ReplicaSet `key`, or the current ReplicaSet of the Deployment with this name.
fn explain(
    controller: &Weak<ReplicaSetController>,
    key: &ObjectKey,
    request: &Request,
    only_namespace: Option<&str>,
    is_standby: bool,
) -> Response {
    let Some(controller) = controller.upgrade() else {
        return stopping();
    };
    let of_deployment = || {
        controller
            .inspector()
            .inspect(&controller.inspector().current_of_deployment(key)?)
    };
    let Some(facts) = controller.inspector().inspect(key).or_else(of_deployment) else {
        let only = only_namespace.map_or_else(String::new, |namespace| {
            format!(", which controls the namespace {namespace} only")
        });
        let text = format!("{key} is not in the cache of this daemon{only}\n");
        return Response::text(404, &text);
    };
    let sources = Sources {
        is_standby,
        ..Sources::default()
    };
    let report = report(&facts, &sources, Timestamp::now());
    shown(request, &report, || report.to_string())
}

/// Lists the objects that have not converged. Reads only the caches. The query `namespace=NAME`
/// restricts the table to this namespace.
fn table(
    controller: &Weak<ReplicaSetController>,
    kind: &WorkloadKind,
    request: &Request,
) -> Response {
    let Some(controller) = controller.upgrade() else {
        return stopping();
    };
    // Before the first lists every ReplicaSet seems to lack its pods.
    if !controller.inspector().has_synced() {
        return Response::text(503, "the first lists are not complete yet\n");
    }
    let namespace = Some(request.query_value("namespace")).filter(|it| !it.is_empty());
    let table = unsettled(&controller, kind, namespace);
    shown(request, &table, || table.to_string())
}

impl Manager {
    /// The callbacks for the thread `systemd`. The daemon is ready once its caches have synced.
    /// That includes a standby, since it could take over at once.
    pub fn systemd_status(&self) -> Daemon {
        let (for_ready, for_status) = (self.parts(), self.parts());
        let election = self.leader_election_health().cloned();
        Daemon {
            is_ready: Box::new(move || for_ready.iter().all(|part| part.cache.has_synced())),
            status: Box::new(move || line(role(election.as_ref()), &for_status)),
        }
    }
}

/// This daemon's role: leading, standby, or running without leader election.
fn role(election: Option<&LeaderElectionHealth>) -> &'static str {
    match election {
        None => "running",
        Some(election) if election.is_leader() => "leading",
        Some(_) => "standby",
    }
}

/// The line that `systemctl status` shows, such as `leading; 20 ReplicaSets, 10000 pods; queue 0`.
fn line(role: &str, parts: &[Part]) -> String {
    if !parts.iter().all(|part| part.cache.has_synced()) {
        return format!("{role}; waiting for the first lists");
    }
    let objects = parts.iter().map(|part| {
        let n = part.cache.replica_sets.len();
        format!("{n} {}s, ", part.kind.kind)
    });
    let objects: String = objects.collect();
    let n_pods = parts.first().map_or(0, |part| part.cache.pods.len());
    let n_queued: usize = parts.iter().map(|part| part.queue.len()).sum();
    format!("{role}; {objects}{n_pods} pods; queue {n_queued}")
}
