//! Sends pod requests to the API server and records events about their outcome. Called on the
//! threads `sync-*` and `batch-*`.

use std::sync::Arc;

use super::pod_body::{create_body, delete_body};
use super::pod_control::{PodControl, Precondition};
use super::written_pod::WrittenPod;
use super::{EventRecorder, EventType, ObjectReference, WriteError};
use crate::api::workload_kind::collection_path;
use crate::api::{ObjectKey, Pod, ReplicaSet, WorkloadKind};
use crate::client::{Client, Request, Response};

/// Path of the core API group.
const CORE: &str = "/api/v1";

/// Media types of the response. The controller reads only version and owner. In protobuf it reads
/// these from a whole pod at no extra cost, while rendering only the metadata costs the API server
/// more than rendering the pod, whose managed fields are the larger part anyway. In JSON the
/// metadata alone decodes faster.
const ACCEPT: &str = "application/vnd.kubernetes.protobuf, \
    application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1, application/json";

/// Writes pods through a client.
#[derive(Clone, Debug)]
pub struct RealPodControl {
    client: Client,
    recorder: Arc<EventRecorder>,
    kind: &'static WorkloadKind,
}

impl RealPodControl {
    /// Writes pods for owners of `kind`. An overloaded server's longer `Retry-After` is left to the
    /// caller. Sends no more requests after the client's stop signal.
    pub fn new(client: Client, recorder: Arc<EventRecorder>, kind: &'static WorkloadKind) -> Self {
        Self {
            client,
            recorder,
            kind,
        }
    }

    fn send(&self, rs: &ReplicaSet, request: Request) -> Result<Response, WriteError> {
        let request = request.on_behalf_of(&rs.key).retried_briefly();
        Ok(self.client.send_unless_stopped(&request)?)
    }

    fn record(&self, rs: &ReplicaSet, type_: EventType, reason: &'static str, message: &str) {
        let reference = ObjectReference {
            api_version: self.kind.api_version,
            kind: self.kind.kind,
            key: rs.key.clone(),
            uid: rs.uid.clone(),
            resource_version: rs.resource_version.clone(),
            field_path: "",
        };
        self.recorder.event(&reference, type_, reason, message);
    }
}

impl PodControl for RealPodControl {
    fn create_pod(&self, rs: &ReplicaSet, name: &str) -> Result<WrittenPod, WriteError> {
        let body = create_body(rs, self.kind, name)?;
        let path = collection_path(CORE, "pods", Some(&rs.key.namespace));
        let request = Request::post(path).object(body).accept(ACCEPT);
        match self.send(rs, request) {
            Ok(response) => {
                let message = format!("Created pod: {name}");
                self.record(rs, EventType::Normal, "SuccessfulCreate", &message);
                Ok(WrittenPod::read(&response.body))
            }
            Err(error) => {
                if is_failed_create(&error) {
                    let message = format!("Error creating: {error}");
                    self.record(rs, EventType::Warning, "FailedCreate", &message);
                }
                Err(error)
            }
        }
    }

    fn delete_pod(
        &self,
        rs: &ReplicaSet,
        pod: &Pod,
        precondition: Precondition,
    ) -> Result<(), WriteError> {
        let name = &pod.key.name;
        match self.delete_pod_quietly(rs, pod, precondition) {
            Ok(()) => {
                let message = format!("Deleted pod: {name}");
                self.record(rs, EventType::Normal, "SuccessfulDelete", &message);
                Ok(())
            }
            Err(error) => {
                if is_failed_delete(&error) {
                    self.warn_of_failed_delete(rs, &error);
                }
                Err(error)
            }
        }
    }

    fn delete_pod_quietly(
        &self,
        rs: &ReplicaSet,
        pod: &Pod,
        precondition: Precondition,
    ) -> Result<(), WriteError> {
        let body = delete_body(&pod.uid, precondition.version_of(pod));
        let request = Request::delete(pod_path(&pod.key))
            .body("application/json", body)
            .accept(ACCEPT);
        self.send(rs, request).map(drop)
    }

    fn n_spare_requests(&self) -> usize {
        self.client.n_spare_requests()
    }

    fn warn(&self, rs: &ReplicaSet, reason: &'static str, message: String) {
        self.record(rs, EventType::Warning, reason, &message);
    }

    fn patch_pod(
        &self,
        rs: &ReplicaSet,
        pod: &Pod,
        patch: Vec<u8>,
    ) -> Result<WrittenPod, WriteError> {
        let request = Request::patch(pod_path(&pod.key))
            .body("application/strategic-merge-patch+json", patch)
            .accept(ACCEPT);
        Ok(WrittenPod::read(&self.send(rs, request)?.body))
    }
}

/// True if an event reports this error. The caller retries a taken name with another name, so that
/// is no failure yet.
fn is_failed_create(error: &WriteError) -> bool {
    !error.is_namespace_terminating()
        && !error.is_already_exists()
        && !matches!(error, WriteError::Stopped)
}

/// True if an event reports this error. The caller finds out whether a conflict is a failure, and
/// records it.
fn is_failed_delete(error: &WriteError) -> bool {
    !error.is_not_found() && !error.is_conflict() && !matches!(error, WriteError::Stopped)
}

fn pod_path(key: &ObjectKey) -> String {
    let collection = collection_path(CORE, "pods", Some(&key.namespace));
    format!("{collection}/{}", key.name)
}

#[cfg(test)]
mod tests {
    use super::{is_failed_create, is_failed_delete};
    use crate::api::Status;
    use crate::client::ClientError;
    use crate::writes::WriteError;

    #[test]
    fn events_report_only_what_has_failed() {
        for (code, reason, fails_create, fails_delete) in [
            (403, "Forbidden", true, true),
            (404, "NotFound", true, false),
            (409, "AlreadyExists", false, true),
            (409, "Conflict", true, false),
            (504, "Timeout", true, true),
        ] {
            let error = WriteError::from(ClientError::Status(Status::new(code, reason, "")));
            assert_eq!(is_failed_create(&error), fails_create, "{reason}");
            assert_eq!(is_failed_delete(&error), fails_delete, "{reason}");
        }
        assert!(!is_failed_create(&WriteError::Stopped));
        assert!(!is_failed_delete(&WriteError::Stopped));
    }
}
