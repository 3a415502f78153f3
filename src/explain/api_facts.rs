//! Reads the facts from the API server alone, for use without a daemon. Read-only. The command
//! `explain` calls it on its main thread; each call blocks for a few requests.

use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::core::v1 as core;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ListMeta;
use serde::Deserialize;
use serde_json::value::RawValue;

use super::findings::{of_deployment, terminating_namespace};
use super::model::{DeploymentReport, EventLine, Sources};
use super::{Row, Table};
use crate::api::interner::Interner;
use crate::api::workload_kind::{REPLICA_SET, collection_path};
use crate::api::{ObjectKey, Pod, ReplicaSet, Status, Uid, WorkloadKind};
use crate::cache::Cache;
use crate::client::{Client, ClientError, Request};
use crate::controller::decide::Rules;
use crate::controller::decide::optional::counts_all_pods;
use crate::deployment::decide::{Claims, View};
use crate::deployment::objects::DEPLOYMENT;
use crate::deployment::{self, Deployment, Rollout, blocked_by, with_pods};
use crate::explain::inspect::{ReplicaSetFacts, current_of_deployment};
use crate::live::{LiveReader, RealLiveReader, Workloads};
use crate::stdx::HashSet;
use crate::stdx::escape::report;

const PAGE: &str = "500";

#[derive(Debug, thiserror::Error)]
pub enum ApiError {
    #[error("cannot read {what}")]
    Request { what: String, source: ClientError },
    /// Neither the object exists nor a ReplicaSet of a Deployment of that name.
    #[error("{kind} {key} not found")]
    NotFound { kind: &'static str, key: ObjectKey },
}

impl ApiError {
    /// True if the API server rejects the request because a permission is missing.
    pub(super) fn is_forbidden(&self) -> bool {
        match self {
            Self::Request { source, .. } => source.status().is_some_and(Status::is_forbidden),
            Self::NotFound { .. } => false,
        }
    }
}

#[derive(Debug)]
pub struct ApiFacts {
    pub facts: ReplicaSetFacts,
    pub sources: Sources,
}

impl ApiFacts {
    /// Reads the object `key` of `kind`, the pods and the other objects of its namespace, its
    /// events and its namespace. If there is no such ReplicaSet, reads the current one of the
    /// Deployment of that name. The API server may reject the reads of events, namespace and the
    /// other objects, which only add detail.
    pub fn read(
        client: &Client,
        kind: &'static WorkloadKind,
        key: &ObjectKey,
    ) -> Result<Self, ApiError> {
        let namespace = &*key.namespace;
        let (cache, mut interner) = (Cache::default(), Interner::default());
        let read = read_object(client, kind, key, &mut interner);
        if let Err(error) = list(client, kind, Some(namespace), &cache, &mut interner) {
            if matches!(read, Err(ApiError::NotFound { .. })) {
                return Err(error);
            }
            let kind = kind.kind;
            log::warn!(error:% = report(&error); "cannot read the other {kind}s of the namespace");
        }
        let listed = cache.replica_sets_in(namespace);
        let rs = match (read, current_of_deployment(&listed, &key.name)) {
            (Err(ApiError::NotFound { .. }), Some(current)) => Arc::clone(current),
            (read, _) => Arc::new(read?),
        };
        cache.replica_sets.apply(Arc::clone(&rs));
        let rules = Rules::by_default(kind, &rs);
        let mut sources = Sources::default();
        let mut read_pods = |namespace| {
            let (cache, sources) = (&cache, &mut sources);
            list_pods(client, namespace, cache, sources, &mut interner)
        };
        // A scale-down that counts the pods of all owners counts those of other namespaces, too.
        let counts_all = counts_all_pods(&rules.policy);
        let all = counts_all.then(|| read_pods(None)).transpose();
        match all {
            Ok(Some(())) => {}
            Ok(None) => read_pods(Some(namespace))?,
            Err(error) => {
                log::warn!(error:%; "cannot count the pods of other namespaces per node");
                read_pods(Some(namespace))?;
            }
        }
        let facts = ReplicaSetFacts::of(kind, &cache, rs, rules, None).complete(&cache);
        let uid = &facts.replica_set.uid;
        sources.events = events(client, namespace, uid);
        sources.namespace_is_terminating = namespace_is_terminating(client, namespace);
        sources.gang_workload = gang_workload(client, kind, &facts.replica_set);
        let owner = facts.replica_set.controller.as_ref();
        if let Some(owner) = owner.filter(|it| &*it.kind == DEPLOYMENT) {
            let key = ObjectKey::new(namespace, &*owner.name);
            let rollout = rollout(client, &cache, &key, Some(&owner.uid));
            sources.rollout = rollout.map_err(|error| report(&error)).transpose();
        }
        Ok(Self { facts, sources })
    }
}

fn read_object(
    client: &Client,
    kind: &'static WorkloadKind,
    key: &ObjectKey,
    interner: &mut Interner,
) -> Result<ReplicaSet, ApiError> {
    let path = format!(
        "{}/{}",
        kind.collection_path(Some(&key.namespace)),
        key.name
    );
    let read = client.send(&Request::get(path));
    let read = read.and_then(|it| Ok(ReplicaSet::of_kind(kind, &it.body, interner)?));
    read.map_err(|source| match source.status() {
        Some(status) if status.is_not_found() => ApiError::NotFound {
            kind: kind.kind,
            key: key.clone(),
        },
        _ => ApiError::Request {
            what: format!("{} {key}", kind.kind),
            source,
        },
    })
}

/// Lists the objects of `kind` in `namespace`, or in all with `None`, into `cache`.
fn list(
    client: &Client,
    kind: &'static WorkloadKind,
    namespace: Option<&str>,
    cache: &Cache,
    interner: &mut Interner,
) -> Result<(), ApiError> {
    for_each(client, &kind.collection_path(namespace), |json| {
        let object = ReplicaSet::of_kind(kind, json.get().as_bytes(), interner)?;
        cache.replica_sets.apply(object);
        Ok(())
    })
}

/// Lists the pods of `namespace`, or of all with `None`, into `cache`, and what these lack into
/// `sources`. Without a label selector, because owned pods may no longer match.
fn list_pods(
    client: &Client,
    namespace: Option<&str>,
    cache: &Cache,
    sources: &mut Sources,
    interner: &mut Interner,
) -> Result<(), ApiError> {
    let path = collection_path("/api/v1", "pods", namespace);
    for_each(client, &path, |json| {
        let pod = Pod::from_json(json.get().as_bytes(), interner)?;
        add_details(sources, &pod, json);
        cache.pods.apply(pod);
        Ok(())
    })
}

fn events(client: &Client, namespace: &str, uid: &Uid) -> Option<Vec<EventLine>> {
    let path = collection_path("/api/v1", "events", Some(namespace));
    let request = Request::get(path).query("fieldSelector", format!("involvedObject.uid={uid}"));
    let mut events = Vec::new();
    let read = read_page(client, &request, &mut |json| {
        events.push(event(json)?);
        Ok(())
    });
    if let Err(error) = read {
        log::warn!(error:% = report(&error); "cannot read events");
        return None;
    }
    events.sort_by_key(|event| event.last_seen);
    Some(events)
}

fn event(json: &RawValue) -> Result<EventLine, serde_json::Error> {
    let event: core::Event = serde_json::from_str(json.get())?;
    let last_seen = event.last_timestamp.map(|time| time.0);
    Ok(EventLine {
        last_seen: last_seen.or(event.event_time.map(|time| time.0)),
        count: event.count.unwrap_or(1).into(),
        type_: event.type_.unwrap_or_default(),
        reason: event.reason.unwrap_or_default(),
        message: event.message.unwrap_or_default(),
        component: event.source.and_then(|s| s.component).unwrap_or_default(),
    })
}

fn namespace_is_terminating(client: &Client, namespace: &str) -> Option<bool> {
    let request = Request::get(format!("/api/v1/namespaces/{namespace}"));
    let response = client.send(&request).ok()?;
    let namespace: core::Namespace = serde_json::from_slice(&response.body).ok()?;
    Some(namespace.metadata.deletion_timestamp.is_some())
}

/// The terminating namespaces; `None` if they may not be listed.
fn terminating_namespaces(client: &Client) -> Option<HashSet<String>> {
    let mut terminating = HashSet::default();
    let path = "/api/v1/namespaces";
    let listed = for_each(client, path, |json| {
        let core::Namespace { metadata, .. } = serde_json::from_str(json.get())?;
        if metadata.deletion_timestamp.is_some() {
            terminating.extend(metadata.name);
        }
        Ok(())
    });
    if let Err(error) = listed {
        log::debug!(error:% = report(&error); "cannot list namespaces");
        return None;
    }
    Some(terminating)
}

fn gang_workload(client: &Client, kind: &'static WorkloadKind, rs: &ReplicaSet) -> Option<String> {
    let workloads = Arc::<Workloads>::default();
    workloads.discover(client).ok()?;
    let live = RealLiveReader::new(client.clone(), kind, workloads);
    live.gang_workload(rs).ok()?
}

/// Explains the Deployment `key`, which has no ReplicaSet. Blocks for a few requests.
///
/// # Errors
/// [`ApiError`] if it does not exist, or cannot be read.
pub fn read_deployment(client: &Client, key: &ObjectKey) -> Result<DeploymentReport, ApiError> {
    let rollout = rollout(client, &Cache::default(), key, None)?;
    let rollout = rollout.ok_or_else(|| ApiError::NotFound {
        kind: "ReplicaSet or Deployment",
        key: key.clone(),
    })?;
    let is_terminating = namespace_is_terminating(client, &key.namespace) == Some(true);
    let of_namespace = is_terminating.then(|| terminating_namespace(&key.namespace));
    let own = of_deployment(&key.namespace, rollout.blocked_by.as_deref());
    Ok(DeploymentReport {
        kind: DEPLOYMENT,
        namespace: key.namespace.to_string(),
        name: key.name.to_string(),
        source: "api",
        findings: of_namespace.into_iter().chain(own).collect(),
        rollout,
    })
}

/// The rollout of the Deployment `key`; `None` if there is none, or if it has another UID.
fn rollout(
    client: &Client,
    cache: &Cache,
    key: &ObjectKey,
    uid: Option<&Uid>,
) -> Result<Option<Rollout>, ApiError> {
    let path = |resource| collection_path("/apis/apps/v1", resource, Some(&key.namespace));
    let request = Request::get(format!("{}/{}", path("deployments"), key.name));
    let read = client.send(&request);
    let read = read.and_then(|it| Ok(Deployment::from_json(&it.body)?));
    let d = match read {
        Ok(d) if uid.is_none_or(|uid| d.uid == *uid) => d,
        Ok(_) => return Ok(None),
        Err(error) if error.status().is_some_and(Status::is_not_found) => return Ok(None),
        Err(source) => {
            let what = request.to_string();
            return Err(ApiError::Request { what, source });
        }
    };
    let (mut owned, mut orphans) = (Vec::new(), Vec::new());
    for_each(client, &path("replicasets"), |json| {
        let rs = Arc::new(deployment::ReplicaSet::from_json(json.get().as_bytes())?);
        match &rs.controller {
            Some(owner) if owner.uid == d.uid => owned.push(rs),
            Some(_) => {}
            None => orphans.push(rs),
        }
        Ok(())
    })?;
    let (replica_sets, claims) = Claims::of(&d, owned, orphans).settled();
    let view = View {
        deployment: &d,
        with_pods: with_pods(&cache.pods, &replica_sets),
        replica_sets,
        counts_terminating: false,
        now: Timestamp::now(),
    };
    Ok(Some(deployment::explain(view, claims)))
}

/// Adds what the slim pod lacks: what keeps it, and why it is not running.
fn add_details(sources: &mut Sources, pod: &Pod, json: &RawValue) {
    if pod.is_ready && !pod.is_terminating() {
        return;
    }
    // What cannot be read is missing in the report.
    let Ok(whole) = serde_json::from_str::<core::Pod>(json.get()) else {
        return;
    };
    if pod.is_terminating() {
        let finalizers = whole.metadata.finalizers.unwrap_or_default();
        sources.finalizers.insert(pod.uid.clone(), finalizers);
    }
    let reason = whole.status.filter(|_| !pod.is_ready).and_then(reason_of);
    sources
        .reasons
        .extend(reason.map(|reason| (pod.uid.clone(), reason)));
}

/// Why a pod is not running or has failed: its status reason, the waiting reason of its first
/// waiting container, or the reason why it is not scheduled.
fn reason_of(status: core::PodStatus) -> Option<String> {
    let lists = [status.init_container_statuses, status.container_statuses];
    let mut containers = lists.into_iter().flatten().flatten();
    let waiting = containers.find_map(|container| container.state?.waiting?.reason);
    let mut conditions = status.conditions.into_iter().flatten();
    let unscheduled = || {
        conditions
            .find(|condition| condition.type_ == "PodScheduled" && condition.status == "False")?
            .reason
    };
    status.reason.or(waiting).or_else(unscheduled)
}

/// Lists a collection page by page. Blocks for each request.
fn for_each(
    client: &Client,
    path: &str,
    mut take: impl FnMut(&RawValue) -> Result<(), serde_json::Error>,
) -> Result<(), ApiError> {
    let mut token = String::new();
    loop {
        let mut request = Request::get(path).query("limit", PAGE);
        if !token.is_empty() {
            request = request.query("continue", token);
        }
        token = read_page(client, &request, &mut take)?;
        if token.is_empty() {
            return Ok(());
        }
    }
}

fn read_page(
    client: &Client,
    request: &Request,
    take: &mut impl FnMut(&RawValue) -> Result<(), serde_json::Error>,
) -> Result<String, ApiError> {
    #[derive(Deserialize)]
    struct ListJson<'a> {
        metadata: ListMeta,
        #[serde(borrow)]
        items: Option<Vec<&'a RawValue>>,
    }
    let mut read = || {
        let response = client.send(request)?;
        let list: ListJson<'_> = serde_json::from_slice(&response.body)?;
        for item in list.items.unwrap_or_default() {
            take(item)?;
        }
        Ok(list.metadata.continue_.unwrap_or_default())
    };
    read().map_err(|source| ApiError::Request {
        what: request.to_string(),
        source,
    })
}

/// Lists the objects of `kinds` in `namespace`, or in all namespaces with `None`, and returns those
/// that have not converged. Only a rejected list of the first kind is an error: that of another
/// kind is logged.
/// Blocks for each page.
///
/// # Errors
/// [`ApiError`] if the first kind or the pods cannot be listed.
pub fn read_table(
    client: &Client,
    kinds: &[&'static WorkloadKind],
    namespace: Option<&str>,
) -> Result<Table, ApiError> {
    let (pods, mut interner) = (Arc::default(), Interner::default());
    let mut caches = Vec::new();
    for kind in kinds {
        let cache = Cache {
            pods: Arc::clone(&pods),
            replica_sets: Arc::default(),
        };
        match list(client, kind, namespace, &cache, &mut interner) {
            Ok(()) => caches.push((*kind, cache)),
            Err(error) if error.is_forbidden() && !caches.is_empty() => {
                log::warn!(error:% = report(&error); "the table has no {}s", kind.kind);
            }
            Err(error) => return Err(error),
        }
    }
    let mut sources = Sources::default();
    if let Some((_, cache)) = caches.first() {
        list_pods(client, namespace, cache, &mut sources, &mut interner)?;
    }
    let terminating = match namespace {
        Some(namespace) => {
            sources.namespace_is_terminating = namespace_is_terminating(client, namespace);
            None
        }
        None => terminating_namespaces(client),
    };
    let now = Timestamp::now();
    let mut whole = Table::default();
    for (kind, cache) in caches {
        let mut table = Table::of(kind.kind, cache.replica_sets.len());
        for rs in cache.replica_sets.list() {
            if let Some(terminating) = &terminating {
                let is_terminating = terminating.contains(&*rs.key.namespace);
                sources.namespace_is_terminating = Some(is_terminating);
            }
            let rules = Rules::by_default(kind, &rs);
            let facts = ReplicaSetFacts::of(kind, &cache, rs, rules, None);
            table.add(&facts, &sources, now);
        }
        whole.merge(table);
    }
    if kinds.contains(&&REPLICA_SET) {
        match deployments(client, namespace) {
            Ok(table) => whole.merge(table),
            Err(error) => log::warn!(error:% = report(&error); "the table has no {DEPLOYMENT}s"),
        }
    }
    Ok(whole)
}

/// The Deployments with a problem that no report of their ReplicaSets shows.
fn deployments(client: &Client, namespace: Option<&str>) -> Result<Table, ApiError> {
    let (mut table, mut n) = (Table::default(), 0);
    let path = collection_path("/apis/apps/v1", "deployments", namespace);
    for_each(client, &path, |json| {
        let d = Deployment::from_json(json.get().as_bytes())?;
        let problem = of_deployment(&d.key.namespace, blocked_by(&d).as_deref());
        let row = problem.map(|problem| Row::of_deployment(&d, problem));
        table.not_converged.extend(row);
        n += 1;
        Ok(())
    })?;
    if n > 0 {
        table.looked_at.insert(DEPLOYMENT.to_owned(), n);
    }
    Ok(table)
}
