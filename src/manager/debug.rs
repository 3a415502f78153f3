//! The debug pages of the controllers: `/debug/replicasets`, `/debug/replicasets/NAMESPACE/NAME`,
//! and the same for ReplicationControllers; and the status that the daemon's pages and systemd
//! show. The threads `http-N` and `systemd` call this code.

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};

use super::Manager;
use crate::api::ObjectKey;
use crate::controller::Core;
use crate::explain::{Sources, Table, report};
use crate::http_server::{Request, Response};
use crate::leader_election::LeaderElectionHealth;
use crate::serving::pages::shown;
use crate::serving::{Facts, Pages};
use crate::telemetry::systemd::Daemon;
use crate::telemetry::{logging, metrics};

impl Manager {
    /// What the callbacks of pages and of the thread `systemd` read of the controllers. They may
    /// outlive the manager, and a whole controller would keep the threads `batch-*` alive.
    fn cores(&self) -> Vec<Arc<Core>> {
        let instances = self.instances.iter();
        instances
            .map(|it| Arc::clone(&it.controller.core))
            .collect()
    }

    /// Adds a page per controlled object that explains its state, and a page per kind with the
    /// objects that have not converged.
    pub fn add_pages(&self, pages: &Pages) {
        for core in self.cores() {
            let kind = core.kind;
            let table_path = format!("/debug/{}", kind.resource);
            let prefix = format!("{table_path}/");
            let of_table = Arc::clone(&core);
            let about = format!("the {}s that have not converged, and why", kind.kind);
            pages.page(&table_path, &about, move |request| {
                table(&of_table, request)
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
                        explain(&core, &key, request, namespace.as_deref(), is_standby)
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
        let cores = self.cores();
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
            for core in &cores {
                let objects = if core.cache.has_synced() {
                    format!(
                        "{}, of which {} have not converged and {} are in back-off; {} pods; {} \
                         keys queued",
                        core.cache.replica_sets.len(),
                        core.inspector().n_not_converged(),
                        core.inspector().n_in_back_off(),
                        core.cache.pods.len(),
                        core.queue.len(),
                    )
                } else {
                    "waiting for the first lists".to_owned()
                };
                facts.push((format!("{}s", core.kind.kind), objects));
            }
            let warning = logging::last_warning();
            let warning = warning.map_or("none".to_owned(), |line| line.to_string());
            facts.push(("Last warning".to_owned(), warning));
            facts
        }
    }

    /// Returns the table of objects that have not converged, as HTML for the page `/`.
    pub fn objects(&self) -> impl Fn() -> String + Send + Sync + use<> {
        let cores = self.cores();
        move || {
            let mut whole = Table::default();
            for core in &cores {
                // Before the first lists every ReplicaSet seems to lack its pods.
                if !core.cache.has_synced() {
                    return "<p>waiting for the first lists</p>\n".to_owned();
                }
                whole.merge(unsettled(core, None));
            }
            whole.html(Timestamp::now())
        }
    }
}

fn unsettled(core: &Core, namespace: Option<&str>) -> Table {
    let (sources, now) = (Sources::default(), Timestamp::now());
    let mut table = Table::of(core.kind.kind, 0);
    let mut add = |facts: &_| table.add(facts, &sources, now);
    let n = core.inspector().inspect_unsettled(namespace, &mut add);
    table.merge(Table::of(core.kind.kind, n));
    table
}

/// Explains the ReplicaSet `key`, or the current ReplicaSet of the Deployment with this name.
fn explain(
    core: &Core,
    key: &ObjectKey,
    request: &Request,
    only_namespace: Option<&str>,
    is_standby: bool,
) -> Response {
    let inspector = core.inspector();
    let of_deployment = || inspector.inspect(&inspector.current_of_deployment(key)?);
    let Some(facts) = inspector.inspect(key).or_else(of_deployment) else {
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
fn table(core: &Core, request: &Request) -> Response {
    // Before the first lists every ReplicaSet seems to lack its pods.
    if !core.cache.has_synced() {
        return Response::text(503, "the first lists are not complete yet\n");
    }
    let namespace = Some(request.query_value("namespace")).filter(|it| !it.is_empty());
    let table = unsettled(core, namespace);
    shown(request, &table, || table.to_string())
}

impl Manager {
    /// The callbacks for the thread `systemd`. The daemon is ready once its caches have synced.
    /// That includes a standby, since it could take over at once.
    pub fn systemd_status(&self) -> Daemon {
        let (for_ready, for_status) = (self.cores(), self.cores());
        let election = self.leader_election_health().cloned();
        Daemon {
            is_ready: Box::new(move || for_ready.iter().all(|it| it.cache.has_synced())),
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
fn line(role: &str, cores: &[Arc<Core>]) -> String {
    if !cores.iter().all(|it| it.cache.has_synced()) {
        return format!("{role}; waiting for the first lists");
    }
    let objects = cores.iter().map(|it| {
        let n = it.cache.replica_sets.len();
        format!("{n} {}s, ", it.kind.kind)
    });
    let objects: String = objects.collect();
    let n_pods = cores.first().map_or(0, |it| it.cache.pods.len());
    let n_queued: usize = cores.iter().map(|it| it.queue.len()).sum();
    format!("{role}; {objects}{n_pods} pods; queue {n_queued}")
}
