//! What the manager's controllers show of themselves: `/debug/replicasets/NAMESPACE/NAME` and its twin
//! for ReplicationControllers. Asked on the threads of the HTTP server.

use std::sync::{Arc, Weak};

use jiff::Timestamp;

use super::Manager;
use crate::api::ObjectKey;
use crate::controller::ReplicaSetController;
use crate::explain::{Sources, report};
use crate::http_server::{Request, Response};
use crate::serving::Pages;
use crate::serving::debug::shown;

impl Manager {
    /// Adds a page for each object that is controlled, which says why it is as it is.
    pub fn add_pages(&self, pages: &Pages) {
        for instance in &self.instances {
            let prefix = format!("/debug/{}/", instance.kind().resource);
            // Weak, since whoever keeps a controller beyond the stop keeps its threads from ending.
            let controller = Arc::downgrade(instance.controller());
            let path = prefix.clone();
            pages.tree(&prefix, move |request| explain(&controller, &path, request));
        }
    }
}

fn explain(controller: &Weak<ReplicaSetController>, prefix: &str, request: &Request) -> Response {
    let rest = request.path.strip_prefix(prefix).unwrap_or_default();
    let Some((namespace, name)) = rest.split_once('/').filter(|(_, name)| !name.contains('/'))
    else {
        return Response::text(400, &format!("expected {prefix}NAMESPACE/NAME\n"));
    };
    let Some(controller) = controller.upgrade() else {
        return Response::text(503, "the daemon is stopping\n");
    };
    let key = ObjectKey::new(namespace, name);
    let Some(facts) = controller.inspect(&key) else {
        return Response::text(404, &format!("{key} is not in the cache of this daemon\n"));
    };
    let report = report(&facts, &Sources::default(), Timestamp::now());
    shown(request, &report, || report.to_string())
}
