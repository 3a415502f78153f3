//! Live reads through a client. Called on the threads `sync-*` and `batch-*`.

use std::fmt::Display;
use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ListMeta;
use serde::Deserialize;
use serde_json::value::RawValue;

use super::workloads::{Workloads, gang_of};
use super::{LiveReader, Manager, of_owner_references};
use crate::api::interner::Interner;
use crate::api::json::JSON_WITHOUT_MANAGED_FIELDS;
use crate::api::workload_kind::collection_path;
use crate::api::{ObjectKey, Pod, ReplicaSet, ResourceVersion, Selector, WorkloadKind};
use crate::client::{Client, Request, Response};
use crate::writes::WriteError;

/// Path of the core API group.
const CORE: &str = "/api/v1";

/// Objects per page of a list (client-go `tools/pager/pager.go:defaultPageSize`).
const PAGE_SIZE: &str = "500";

/// Implements [`LiveReader`] through a client.
#[derive(Clone)]
pub struct RealLiveReader {
    client: Client,
    kind: &'static WorkloadKind,
    workloads: Arc<Workloads>,
}

impl RealLiveReader {
    /// Reads objects of `kind` and their pods through `client`. Sends no more requests after the
    /// client's stop signal.
    pub fn new(client: Client, kind: &'static WorkloadKind, workloads: Arc<Workloads>) -> Self {
        Self {
            client,
            kind,
            workloads,
        }
    }

    fn send(&self, owner: &ObjectKey, request: Request) -> Result<Response, WriteError> {
        let request = request.on_behalf_of(owner).retried_briefly();
        Ok(self.client.send_unless_stopped(&request)?)
    }

    fn list(&self, rs: &ReplicaSet, request: &Request) -> Result<Vec<Pod>, WriteError> {
        let mut interner = Interner::default();
        let mut pods = Vec::new();
        self.find(rs, request, |pod| {
            let pod = Pod::from_json(pod.get().as_bytes(), &mut interner);
            let pod = pod.map_err(unreadable_pods)?;
            // The name becomes part of request paths.
            pod.key.check_path().map_err(WriteError::Local)?;
            pods.push(pod);
            Ok(None::<()>)
        })?;
        Ok(pods)
    }

    /// Lists in pages until `find` finds something in an object, and reads each page before it
    /// requests the next one, to bound memory. All pages show the state as of the first. If the API
    /// server rejects a continue token as expired, the list fails.
    fn find<T>(
        &self,
        rs: &ReplicaSet,
        request: &Request,
        mut find: impl FnMut(&RawValue) -> Result<Option<T>, WriteError>,
    ) -> Result<Option<T>, WriteError> {
        let mut continue_token = String::new();
        loop {
            let mut page = request.clone().query("limit", PAGE_SIZE);
            page = page.accept(JSON_WITHOUT_MANAGED_FIELDS);
            if !continue_token.is_empty() {
                page = page.query("continue", &continue_token);
            }
            let response = self.send(&rs.key, page)?;
            let list = ListJson::read(&response.body)?;
            for object in list.items.unwrap_or_default() {
                if let Some(found) = find(object)? {
                    return Ok(Some(found));
                }
            }
            let token = list.metadata.continue_.unwrap_or_default();
            if token.is_empty() {
                return Ok(None);
            }
            // A repeated token would loop forever.
            if token == continue_token {
                let message = "the API server returned the same continue token twice";
                return Err(WriteError::unknown(message));
            }
            continue_token = token;
        }
    }

    fn newest_version(
        &self,
        namespace: &str,
        collection: String,
    ) -> Result<ResourceVersion, WriteError> {
        // A list without a resource version returns the newest state, not the server's watch cache.
        let request = Request::get(collection).query("limit", "1");
        let response = self.send(&ObjectKey::new(namespace, ""), request)?;
        let version = ListJson::read(&response.body)?.metadata.resource_version;
        Ok(ResourceVersion::new(&version.unwrap_or_default()))
    }

    /// Requests the ReplicaSet by name.
    fn get(&self, key: &ObjectKey) -> Result<Response, WriteError> {
        let collection = self.kind.collection_path(Some(&key.namespace));
        self.send(key, Request::get(format!("{collection}/{}", key.name)))
    }
}

impl LiveReader for RealLiveReader {
    fn get_replica_set(&self, key: &ObjectKey) -> Result<ReplicaSet, WriteError> {
        let object = ReplicaSet::from_answer(self.kind, &self.get(key)?.body);
        object.map_err(|error| unreadable(self.kind.kind, error))
    }

    fn find_pod(&self, rs: &ReplicaSet, name: &str) -> Result<Option<Pod>, WriteError> {
        Ok(self.list(rs, &pod_request(rs, name))?.pop())
    }

    fn list_pods(&self, rs: &ReplicaSet, selector: &Selector) -> Result<Vec<Pod>, WriteError> {
        let path = collection_path(CORE, "pods", Some(&rs.key.namespace));
        let request = Request::get(path).query("labelSelector", selector.to_string());
        self.list(rs, &request)
    }

    fn newest_versions(&self, namespace: &str) -> Result<[ResourceVersion; 2], WriteError> {
        let pods = collection_path(CORE, "pods", Some(namespace));
        Ok([
            self.newest_version(namespace, pods)?,
            self.newest_version(namespace, self.kind.collection_path(Some(namespace)))?,
        ])
    }

    fn owner_managers(&self, rs: &ReplicaSet, name: &str) -> Result<Vec<Manager>, WriteError> {
        let response = self.send(&rs.key, pod_request(rs, name))?;
        let list = ListJson::read(&response.body)?;
        let pod = list.items.unwrap_or_default().pop();
        pod.map_or(Ok(Vec::new()), |pod| {
            of_owner_references(pod.get().as_bytes()).map_err(unreadable_pods)
        })
    }

    fn serves_workloads(&self) -> bool {
        self.workloads.served().is_some()
    }

    fn gang_workload(&self, rs: &ReplicaSet) -> Result<Option<String>, WriteError> {
        let (Some(version), Some(owner)) = (self.workloads.served(), &rs.controller) else {
            return Ok(None);
        };
        let path = collection_path(&version, "workloads", Some(&rs.key.namespace));
        self.find(rs, &Request::get(path), |workload| {
            gang_of(workload.get(), &owner.uid).map_err(|error| unreadable("Workload", error))
        })
    }
}

/// Requests one pod by a list, since the stock role may list pods but not get one.
fn pod_request(rs: &ReplicaSet, name: &str) -> Request {
    let path = collection_path(CORE, "pods", Some(&rs.key.namespace));
    Request::get(path).query("fieldSelector", format!("metadata.name={name}"))
}

/// One page of a list.
#[derive(Deserialize)]
struct ListJson<'a> {
    metadata: ListMeta,
    #[serde(borrow)]
    items: Option<Vec<&'a RawValue>>,
}

impl<'a> ListJson<'a> {
    /// Reads a page. Something else than a list must not count as an empty one: each list has a
    /// version.
    fn read(body: &'a [u8]) -> Result<Self, WriteError> {
        let list: Self = serde_json::from_slice(body).map_err(|it| unreadable("list", it))?;
        let version = list.metadata.resource_version.as_deref();
        if version.unwrap_or_default().is_empty() {
            return Err(unreadable("list", "it has no resource version"));
        }
        Ok(list)
    }
}

fn unreadable_pods(error: impl Display) -> WriteError {
    unreadable("list of pods", error)
}

fn unreadable(what: &str, error: impl Display) -> WriteError {
    WriteError::unknown(format!("the response is not a {what}: {error}"))
}

#[cfg(test)]
mod tests {
    use super::ListJson;

    /// Without any pod in it, a sync would take all pods of the cache for deleted.
    #[test]
    fn what_has_no_version_is_no_list() {
        let page = br#"{"metadata":{"resourceVersion":"7"},"items":null}"#;
        assert!(ListJson::read(page).is_ok());
        for body in [
            "{}",
            r#"{"metadata":{}}"#,
            r#"{"metadata":{"resourceVersion":""}}"#,
        ] {
            let error = ListJson::read(body.as_bytes()).err().expect("no list");
            assert!(error.to_string().contains("not a list"), "{error}");
        }
    }
}
