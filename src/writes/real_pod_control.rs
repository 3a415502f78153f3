//! Pod requests as the API server takes them, and the events about their outcome. Called by the
//! threads `sync-*` and `batch-*`.

use std::sync::Arc;

use super::pod_body::{create_body, delete_body};
use super::pod_control::{CreatedPod, PatchedPod, PodControl};
use super::written_pod::WrittenPod;
use super::{EventRecorder, EventType, ObjectReference, WriteError};
use crate::api::workload_kind::collection_path;
use crate::api::{ObjectKey, Pod, ReplicaSet, WorkloadKind};
use crate::client::{Client, Request, Response};
use crate::stdx::stop::Stop;

/// Path of the core API group.
const CORE: &str = "/api/v1";

/// What an answer is wanted in. Only version and controller are read of it. In protobuf that takes no
/// longer from a whole pod, and the API server has more work with the metadata alone than with the
/// pod, of which managed fields are the larger part anyway. In JSON the metadata is quicker to read.
const ANSWER: &str = "application/vnd.kubernetes.protobuf, \
    application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1, application/json";

/// Writes pods through a client.
#[derive(Clone, Debug)]
pub struct RealPodControl {
    client: Client,
    recorder: Arc<dyn EventRecorder>,
    kind: &'static WorkloadKind,
    stop: Stop,
}

impl RealPodControl {
    /// Writes pods for owners of `kind`, until `stop` is given: then it sends nothing any more.
    pub fn new(
        client: Client,
        recorder: Arc<dyn EventRecorder>,
        kind: &'static WorkloadKind,
        stop: &Stop,
    ) -> Self {
        Self {
            client,
            recorder,
            kind,
            stop: stop.clone(),
        }
    }

    fn send(&self, rs: &ReplicaSet, request: Request) -> Result<Response, WriteError> {
        if self.stop.is_stopped() {
            return Err(WriteError::Stopped);
        }
        Ok(self.client.send(&request.on_behalf_of(&rs.uid))?)
    }

    fn record(&self, rs: &ReplicaSet, type_: EventType, reason: &'static str, message: String) {
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
    fn create_pod(&self, rs: &ReplicaSet, name: &str) -> Result<CreatedPod, WriteError> {
        let body = create_body(rs, self.kind, name)?;
        let path = collection_path(CORE, "pods", Some(&rs.key.namespace));
        let request = Request::post(path).object(body).accept(ANSWER);
        match self.send(rs, request) {
            Ok(response) => {
                let message = format!("Created pod: {name}");
                self.record(rs, EventType::Normal, "SuccessfulCreate", message);
                Ok(CreatedPod {
                    resource_version: WrittenPod::read(&response.body).resource_version,
                })
            }
            Err(error) => {
                // A taken name is tried again under another; there is nothing to tell anybody.
                let is_worth_telling = !error.is_namespace_terminating()
                    && !error.is_already_exists()
                    && !matches!(error, WriteError::Stopped);
                if is_worth_telling {
                    let message = format!("Error creating: {error}");
                    self.record(rs, EventType::Warning, "FailedCreate", message);
                }
                Err(error)
            }
        }
    }

    fn delete_pod(&self, rs: &ReplicaSet, pod: &Pod) -> Result<(), WriteError> {
        let request = Request::delete(pod_path(&pod.key))
            .body("application/json", delete_body(&pod.uid))
            .accept(ANSWER);
        let name = &pod.key.name;
        match self.send(rs, request) {
            Ok(_) => {
                let message = format!("Deleted pod: {name}");
                self.record(rs, EventType::Normal, "SuccessfulDelete", message);
                Ok(())
            }
            Err(error) => {
                // Whether a conflict is a failure is for the caller to find out, and to tell.
                let is_worth_telling = !error.is_not_found()
                    && !error.is_conflict()
                    && !matches!(error, WriteError::Stopped);
                if is_worth_telling {
                    self.warn_of_failed_delete(rs, &error);
                }
                Err(error)
            }
        }
    }

    fn warn(&self, rs: &ReplicaSet, reason: &'static str, message: String) {
        self.record(rs, EventType::Warning, reason, message);
    }

    fn patch_pod(
        &self,
        rs: &ReplicaSet,
        pod: &Pod,
        patch: Vec<u8>,
    ) -> Result<PatchedPod, WriteError> {
        let request = Request::patch(pod_path(&pod.key))
            .body("application/strategic-merge-patch+json", patch)
            .accept(ANSWER);
        let patched = WrittenPod::read(&self.send(rs, request)?.body);
        Ok(PatchedPod {
            resource_version: patched.resource_version,
            controller: patched.controller,
        })
    }
}

fn pod_path(key: &ObjectKey) -> String {
    let collection = collection_path(CORE, "pods", Some(&key.namespace));
    format!("{collection}/{}", key.name)
}
