//! Reads the table from the API server alone: one list of each kind, one of the pods, one of the
//! namespaces, however many objects there are. Read-only. The command `explain` calls it on its
//! main thread.

use std::sync::Arc;

use jiff::Timestamp;

use super::api_facts::{
    ApiError, add_details, for_each, namespace_is_terminating, terminating_namespaces,
};
use super::model::Sources;
use super::table::Table;
use crate::api::interner::Interner;
use crate::api::workload_kind::collection_path;
use crate::api::{Pod, ReplicaSet, Uid, WorkloadKind};
use crate::client::Client;
use crate::controller::decide::Rules;
use crate::controller::decide::deletion_order::NodeCounts;
use crate::controller::inspect::ReplicaSetFacts;
use crate::stdx::hash::HashMap;

type Pods = Vec<Arc<Pod>>;

/// Lists the objects of `kinds` in `namespace`, or in all with `None`, and returns those that are
/// not in step. Only the first kind must be readable: a refused list of another one is logged.
/// Blocks for each page.
///
/// # Errors
/// [`ApiError`] if the first kind or the pods cannot be listed.
pub fn read_table(
    client: &Client,
    kinds: &[&'static WorkloadKind],
    namespace: Option<&str>,
) -> Result<Table, ApiError> {
    let mut interner = Interner::default();
    let mut lists = Vec::new();
    for kind in kinds {
        match list(client, kind, namespace, &mut interner) {
            Ok(objects) => lists.push((*kind, objects)),
            Err(error) if error.is_forbidden() && !lists.is_empty() => {
                let error = crate::stdx::report::report(&error);
                log::warn!(error:%; "the table has no {}s", kind.kind);
            }
            Err(error) => return Err(error),
        }
    }
    let owners = lists.iter().flat_map(|(_, objects)| objects);
    let mut owned: HashMap<Uid, Pods> = owners.map(|it| (it.uid.clone(), Vec::new())).collect();
    let mut orphans: HashMap<Arc<str>, Pods> = HashMap::default();
    let mut sources = Sources::default();
    let pods = collection_path("/api/v1", "pods", namespace);
    for_each(client, &pods, |json| {
        let pod = Pod::from_json(json.get().as_bytes(), &mut interner)?;
        let list = match &pod.controller {
            None => Some(orphans.entry(Arc::clone(&pod.key.namespace)).or_default()),
            Some(owner) => owned.get_mut(&owner.uid),
        };
        if let Some(list) = list {
            add_details(&mut sources, &pod, json)?;
            list.push(Arc::new(pod));
        }
        Ok(())
    })?;
    let terminating = match namespace {
        Some(namespace) => {
            sources.namespace_is_terminating = namespace_is_terminating(client, namespace);
            None
        }
        None => terminating_namespaces(client),
    };
    let now = Timestamp::now();
    let mut whole = Table::default();
    for (kind, objects) in lists {
        let mut table = Table::of(kind.kind, objects.len());
        for replica_set in objects {
            let in_namespace = &replica_set.key.namespace;
            if let Some(terminating) = &terminating {
                let is_terminating = terminating.contains(&**in_namespace);
                sources.namespace_is_terminating = Some(is_terminating);
            }
            let mut owned = owned.remove(&replica_set.uid).unwrap_or_default();
            let is_of_kind = |pod: &Arc<Pod>| {
                let owner = pod.controller.as_ref();
                owner.is_some_and(|owner| *owner.kind == *kind.kind)
            };
            owned.retain(is_of_kind);
            let facts = ReplicaSetFacts {
                kind,
                owned,
                orphans: matching(&replica_set, orphans.get(in_namespace)),
                // Only the deletion order depends on them, which a table does not have.
                related: Vec::new(),
                neighbours: Vec::new(),
                per_node: NodeCounts::default(),
                rules: Rules::by_default(kind, &replica_set),
                memory: None,
                replica_set: Arc::new(replica_set),
            };
            table.add(&facts, &sources, now);
        }
        whole.merge(table);
    }
    Ok(whole)
}

fn list(
    client: &Client,
    kind: &'static WorkloadKind,
    namespace: Option<&str>,
    interner: &mut Interner,
) -> Result<Vec<ReplicaSet>, ApiError> {
    let mut objects = Vec::new();
    for_each(client, &kind.collection_path(namespace), |json| {
        let object = ReplicaSet::of_kind(kind, json.get().as_bytes(), interner)?;
        objects.push(object);
        Ok(())
    })?;
    Ok(objects)
}

/// The orphans that the selector matches: the only ones that concern a ReplicaSet.
fn matching(replica_set: &ReplicaSet, orphans: Option<&Pods>) -> Pods {
    let (Ok(selector), Some(orphans)) = (&replica_set.selector, orphans) else {
        return Vec::new();
    };
    let orphans = orphans.iter();
    let orphans = orphans.filter(|pod| selector.matches(&pod.labels));
    orphans.cloned().collect()
}
