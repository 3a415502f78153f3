//! The debug pages of the controllers: `/debug/replicasets/NAMESPACE/NAME` and the same for
//! ReplicationControllers. The threads of the HTTP server call this code.

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
    /// Adds one page per controlled object that explains its state.
    pub fn add_pages(&self, pages: &Pages) {
        for instance in &self.instances {
            let prefix = format!("/debug/{}/", instance.kind().resource);
            // Weak, since a strong reference held after the stop keeps the threads `batch-*` alive.
            let controller = Arc::downgrade(instance.controller());
            let path = prefix.clone();
            pages.tree(&prefix, move |request| explain(&controller, &path, request));
        }
    }
}

fn explain(controller: &Weak<ReplicaSetController>, prefix: &str, request: &Request) -> Response {
    let object = request.path.strip_prefix(prefix).unwrap_or_default();
    let Some((namespace, name)) = object
        .split_once('/')
        .filter(|(_, name)| !name.contains('/'))
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
