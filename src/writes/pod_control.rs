//! Creates, deletes and patches pods on behalf of a ReplicaSet, and updates its status. The real
//! implementations send requests to the API server on the threads `sync-*` and `batch-*`, and
//! record events about the outcome.

use std::borrow::Cow;
use std::fmt::Debug;
use std::sync::Arc;

use serde::Deserialize;
use serde_json::value::RawValue;

use super::pod_body::{create_body, delete_body};
use super::{EventRecorder, EventType, ObjectReference, WriteError};
use crate::api::protobuf::meta::{ObjectMeta, OwnerReference};
use crate::api::protobuf::{Envelope, Fields, Parts, ProtobufError};
use crate::api::workload_kind::collection_path;
use crate::api::{
    ObjectKey, Pod, ReplicaSet, ReplicaSetStatus, ResourceVersion, Uid, WorkloadKind, protobuf,
};
use crate::client::{Client, Request, Response};

/// Writes pods. Each call blocks for one request and its retries. Like upstream's
/// `pkg/controller/controller_utils.go:RealPodControl`, it records events about the outcome.
pub trait PodControl: Send + Sync {
    /// Creates the pod `name` from the template of `rs`, owned by `rs`.
    fn create_pod(&self, rs: &ReplicaSet, name: &str) -> Result<WrittenPod, WriteError>;

    /// Deletes the pod with exactly this UID, and at this version if there is one. Another pod
    /// stays, such as one recreated under the same name. The call then returns a conflict, for
    /// which it records no event.
    fn delete_pod(
        &self,
        rs: &ReplicaSet,
        pod: &Pod,
        version: Option<&ResourceVersion>,
    ) -> Result<(), WriteError>;

    /// As [`delete_pod`](Self::delete_pod), but records no event.
    fn delete_pod_quietly(
        &self,
        rs: &ReplicaSet,
        pod: &Pod,
        version: Option<&ResourceVersion>,
    ) -> Result<(), WriteError> {
        self.delete_pod(rs, pod, version)
    }

    /// Returns how many requests may be sent at once without delaying others. Never blocks.
    fn n_spare_requests(&self) -> usize {
        usize::MAX
    }

    /// Records a warning about `rs`. Never blocks.
    fn warn(&self, _rs: &ReplicaSet, _reason: &'static str, _message: String) {}

    /// Records that creating a pod of `rs` failed, unless the daemon stops (kubernetes
    /// `pkg/controller/controller_utils.go:createPods`). Never blocks.
    fn warn_of_failed_create(&self, rs: &ReplicaSet, error: &WriteError) {
        if !error.is_stopped() {
            self.warn(rs, "FailedCreate", format!("Error creating: {error}"));
        }
    }

    /// Records that deleting a pod of `rs` failed, unless the daemon stops (kubernetes
    /// `pkg/controller/controller_utils.go:DeletePod`). Never blocks.
    fn warn_of_failed_delete(&self, rs: &ReplicaSet, error: &WriteError) {
        if !error.is_stopped() {
            self.warn(rs, "FailedDelete", format!("Error deleting: {error}"));
        }
    }

    /// Applies a strategic merge patch to a pod that `rs` adopts or releases. Records no event.
    fn patch_pod(
        &self,
        rs: &ReplicaSet,
        pod: &Pod,
        patch: Vec<u8>,
    ) -> Result<WrittenPod, WriteError>;
}

const CORE: &str = "/api/v1";

/// Media types of the response. The controller reads only version and owner. In protobuf it reads
/// these from a whole pod at no extra cost, while rendering only the metadata costs the API server
/// more than rendering the pod, whose managed fields are the larger part anyway. In JSON the
/// metadata alone decodes faster.
const ACCEPT: &str = "application/vnd.kubernetes.protobuf, \
    application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1, application/json";

#[derive(Clone)]
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
        let sent = self.send(rs, request);
        match sent.and_then(|response| WrittenPod::read(&response.body)) {
            Ok(written) => {
                let message = format!("Created pod: {name}");
                self.record(rs, EventType::Normal, "SuccessfulCreate", &message);
                Ok(written)
            }
            Err(error) => {
                if is_failed_create(&error) {
                    self.warn_of_failed_create(rs, &error);
                }
                Err(error)
            }
        }
    }

    fn delete_pod(
        &self,
        rs: &ReplicaSet,
        pod: &Pod,
        version: Option<&ResourceVersion>,
    ) -> Result<(), WriteError> {
        let name = &pod.key.name;
        match self.delete_pod_quietly(rs, pod, version) {
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
        version: Option<&ResourceVersion>,
    ) -> Result<(), WriteError> {
        let body = delete_body(&pod.uid, version);
        let request = Request::delete(pod_path(&pod.key))
            .body("application/json", body)
            .accept(ACCEPT);
        check_object(&self.send(rs, request)?.body)
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
        WrittenPod::read(&self.send(rs, request)?.body)
    }
}

/// True if an event reports this error. The caller retries a taken name with another name, so that
/// is not a failure yet, and decides when one reports that the API server asks for another try.
fn is_failed_create(error: &WriteError) -> bool {
    !error.is_namespace_terminating()
        && !error.is_already_exists()
        && !error.is_stopped()
        && error.retry_after().is_none()
}

/// True if an event reports this error. The caller finds out whether a conflict is a failure, and
/// when to report that the API server asks for another try.
fn is_failed_delete(error: &WriteError) -> bool {
    !error.is_not_found()
        && !error.is_conflict()
        && !error.is_stopped()
        && error.retry_after().is_none()
}

fn pod_path(key: &ObjectKey) -> String {
    let collection = collection_path(CORE, "pods", Some(&key.namespace));
    format!("{collection}/{}", key.name)
}

// Decodes the response to a pod write. Pure.

/// Returns an error of unknown outcome unless a successful response has an object: a proxy's page
/// has code 200, too.
fn check_object(body: &[u8]) -> Result<(), WriteError> {
    #[derive(Deserialize)]
    struct Head<'a> {
        #[serde(default, borrow)]
        kind: Cow<'a, str>,
        #[serde(borrow)]
        status: Option<&'a RawValue>,
    }
    if body.starts_with(&protobuf::MAGIC) {
        return Ok(());
    }
    match serde_json::from_slice::<Head<'_>>(body) {
        Ok(head) if head.kind != "Status" => Ok(()),
        Ok(head) if head.status.is_some_and(|it| it.get() == r#""Success""#) => Ok(()),
        Ok(_) => Err(WriteError::unknown(
            "the response is a Status without success",
        )),
        Err(error) => Err(WriteError::unknown(format!(
            "the response is not an object: {error}"
        ))),
    }
}

/// What the response to a create or a patch says about the stored pod.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WrittenPod {
    pub resource_version: ResourceVersion,
    /// UID of the pod's controller, if any.
    pub controller: Option<Uid>,
}

impl WrittenPod {
    /// # Errors
    /// Of unknown outcome, if the response is not a readable pod.
    pub(super) fn read(body: &[u8]) -> Result<Self, WriteError> {
        check_object(body)?;
        let written = if body.starts_with(&protobuf::MAGIC) {
            Self::from_protobuf(body).map_err(|error| error.to_string())
        } else {
            let pod = Pod::from_answer(body);
            pod.map(Self::from).map_err(|error| error.to_string())
        };
        written.map_err(|error| WriteError::unknown(format!("the response is not a pod: {error}")))
    }

    fn from_protobuf(body: &[u8]) -> Result<Self, ProtobufError> {
        let metadata = Parts::of(Envelope::open(body)?.raw)?.metadata;
        if metadata.is_empty() {
            return Err(ProtobufError::Missing("metadata"));
        }
        let mut written = Self::default();
        for field in Fields::of(metadata) {
            let field = field?;
            match field.tag {
                ObjectMeta::RESOURCE_VERSION => {
                    written.resource_version = ResourceVersion::new(field.text()?);
                }
                ObjectMeta::OWNER_REFERENCES if written.controller.is_none() => {
                    let owner = OwnerReference::read(field.bytes)?;
                    written.controller = owner.is_controller.then(|| owner.uid());
                }
                _ => {}
            }
        }
        Ok(written)
    }
}

impl From<Pod> for WrittenPod {
    fn from(pod: Pod) -> Self {
        Self {
            resource_version: pod.resource_version,
            controller: pod.controller.map(|controller| controller.uid.clone()),
        }
    }
}

pub trait ReplicaSetControl: Send + Sync {
    /// Replaces the status of `rs`, on condition that the object still has the version of `rs`.
    /// Returns the updated object.
    fn update_status(
        &self,
        rs: &ReplicaSet,
        status: &ReplicaSetStatus,
    ) -> Result<ReplicaSet, WriteError>;
}

#[derive(Clone)]
pub struct RealReplicaSetControl {
    client: Client,
    kind: &'static WorkloadKind,
}

impl RealReplicaSetControl {
    /// Writes to objects of `kind` through `client`. Sends no more requests after the client's stop
    /// signal.
    pub fn new(client: Client, kind: &'static WorkloadKind) -> Self {
        Self { client, kind }
    }
}

impl ReplicaSetControl for RealReplicaSetControl {
    fn update_status(
        &self,
        rs: &ReplicaSet,
        status: &ReplicaSetStatus,
    ) -> Result<ReplicaSet, WriteError> {
        let body = rs
            .with_status(self.kind, status)
            .map_err(|error| WriteError::Local(format!("cannot encode the status: {error}")))?;
        let collection = self.kind.collection_path(Some(&rs.key.namespace));
        let path = format!("{collection}/{}/status", rs.key.name);
        // A server that sent the object in this encoding also accepts and returns it.
        let accept = body.media_type;
        let request = Request::put(path).object(body).accept(accept);
        let request = request.on_behalf_of(&rs.key).retried_briefly();
        let response = self.client.send_unless_stopped(&request)?;
        let object = ReplicaSet::from_answer(self.kind, &response.body);
        object.map_err(|error| {
            WriteError::unknown(format!("the response is not a {}: {error}", self.kind.kind))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::{WrittenPod, check_object, is_failed_create, is_failed_delete};
    use crate::api::Status;
    use crate::api::protobuf::Envelope;
    use crate::client::ClientError;
    use crate::writes::WriteError;

    #[test]
    fn events_report_only_what_has_failed() {
        for (code, reason, retry_after, fails_create, fails_delete) in [
            (403, "Forbidden", None, true, true),
            (403, "Forbidden", Some(1), true, true),
            (404, "NotFound", None, true, false),
            (409, "AlreadyExists", None, false, true),
            (409, "Conflict", None, true, false),
            (504, "Timeout", None, true, true),
            (504, "Timeout", Some(1), false, false),
            (429, "TooManyRequests", Some(1), false, false),
            (429, "TooManyRequests", Some(0), true, true),
        ] {
            let status = Status::new(code, reason, "").or_retry_after(retry_after);
            let error = WriteError::from(ClientError::Status(status));
            assert_eq!(is_failed_create(&error), fails_create, "{reason}");
            assert_eq!(is_failed_delete(&error), fails_delete, "{reason}");
        }
        assert!(!is_failed_create(&WriteError::Stopped));
        assert!(!is_failed_delete(&WriteError::Stopped));
    }

    const JSON: &[u8] = include_bytes!("../../tests/data/pod.json");
    const PROTOBUF: &[u8] = include_bytes!("../../tests/data/pod.pb");

    #[test]
    fn both_encodings_decode_to_the_same_pod() {
        let [written, from_json] =
            [PROTOBUF, JSON].map(|body| WrittenPod::read(body).expect("a pod"));
        assert_eq!(written, from_json);
        assert!(!written.resource_version.is_empty() && written.controller.is_some());
    }

    #[test]
    fn an_unreadable_body_leaves_the_outcome_unknown() {
        let failure = br#"{"kind":"Status","status":"Failure","code":503}"#;
        let no_metadata = &Envelope::seal("v1", "Pod", &[]);
        for body in [&b"<html>"[..], b"", failure, no_metadata, b"k8s\0\xff"] {
            let error = WrittenPod::read(body).expect_err("no pod");
            assert!(error.is_unknown(), "{error}");
        }
        for (body, is_done) in [
            (&b"<html>"[..], false),
            (b"", false),
            (failure, false),
            (br#"{"kind":"Status","status":"Success"}"#, true),
            (JSON, true),
            (PROTOBUF, true),
        ] {
            assert_eq!(check_object(body).is_ok(), is_done);
        }
    }
}
