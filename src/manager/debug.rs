//! The debug pages of the controllers: `/debug/replicasets`, `/debug/replicasets/NAMESPACE/NAME`,
//! and the same for ReplicationControllers. The threads of the HTTP server call this code.

use std::sync::{Arc, Weak};

use jiff::Timestamp;

use super::Manager;
use crate::api::{ObjectKey, WorkloadKind};
use crate::controller::ReplicaSetController;
use crate::explain::{Sources, Table, report};
use crate::http_server::{Request, Response};
use crate::serving::Pages;
use crate::serving::debug::shown;

impl Manager {
    /// Adds a page per controlled object that explains its state, and a page per kind with the
    /// objects that are not in step.
    pub fn add_pages(&self, pages: &Pages) {
        for instance in &self.instances {
            let kind = instance.kind();
            let table_path = format!("/debug/{}", kind.resource);
            let prefix = format!("{table_path}/");
            // Weak, since a strong reference held after the stop keeps the threads `batch-*` alive.
            let controller = Arc::downgrade(instance.controller());
            let about = format!("the {}s that are not in step, and why", kind.kind);
            pages.page(&table_path, &about, move |request| {
                table(&controller, kind, request)
            });
            let controller = Arc::downgrade(instance.controller());
            let about = format!("why a {} is as it is, and its next sync", kind.kind);
            let form = format!("{prefix}NAMESPACE/NAME");
            pages.tree(&prefix, &form.clone(), &about, move |request| {
                let object = request.path.strip_prefix(&*table_path);
                let object = object.unwrap_or_default().trim_start_matches('/');
                match object.split_once('/') {
                    Some((namespace, name)) if !name.contains('/') => {
                        explain(&controller, &ObjectKey::new(namespace, name), request)
                    }
                    _ => Response::text(400, &format!("expected {form}\n")),
                }
            });
        }
    }
}

fn stopping() -> Response {
    Response::text(503, "the daemon is stopping\n")
}

fn explain(
    controller: &Weak<ReplicaSetController>,
    key: &ObjectKey,
    request: &Request,
) -> Response {
    let Some(controller) = controller.upgrade() else {
        return stopping();
    };
    let of_deployment = || controller.inspect(&controller.current_of_deployment(key)?);
    let Some(facts) = controller.inspect(key).or_else(of_deployment) else {
        return Response::text(404, &format!("{key} is not in the cache of this daemon\n"));
    };
    let report = report(&facts, &Sources::default(), Timestamp::now());
    shown(request, &report, || report.to_string())
}

/// From the caches alone. The query `namespace=NAME` leaves out the other namespaces.
fn table(
    controller: &Weak<ReplicaSetController>,
    kind: &WorkloadKind,
    request: &Request,
) -> Response {
    let Some(controller) = controller.upgrade() else {
        return stopping();
    };
    // Until then every ReplicaSet seems to lack its pods.
    if !controller.has_synced() {
        return Response::text(503, "the first lists are not complete yet\n");
    }
    let namespace = Some(request.query_value("namespace")).filter(|it| !it.is_empty());
    let (sources, now) = (Sources::default(), Timestamp::now());
    let mut table = Table::of(kind.kind, 0);
    let n = controller.inspect_unsettled(namespace, &mut |facts| table.add(facts, &sources, now));
    table.merge(Table::of(kind.kind, n));
    shown(request, &table, || table.to_string())
}
