//! Every request of the controller: adoption and release of ReplicaSets, and the writes of a
//! decision. Each call blocks for its requests.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::apps::v1::DeploymentStatus;
use serde_json::{Value, json};

use crate::api::json::JSON;
use crate::api::{ObjectKey, Status};
use crate::client::{Client, ClientError, Request};
use crate::decide::{Claims, Note, Write, after_collision, after_failed_create};
use crate::event_recorder::{EventRecorder, EventType, ObjectReference};
use crate::objects::{Annotations, DEPLOYMENT, Deployment, ReplicaSet, Template};
use crate::revisions::owner_reference;
use crate::stdx::clock::Clock;

/// Why a sync ended early. The key is retried with back-off.
#[derive(Clone, Debug, thiserror::Error)]
pub(crate) enum SyncError {
    /// A request failed.
    #[error("{0}")]
    Client(#[from] ClientError),
    /// The cache does not show yet what an earlier sync created.
    #[error("the watch does not show replicaset {0} yet")]
    Behind(ObjectKey),
    /// The sync cannot continue for another reason, such as an unknown strategy.
    #[error("{0}")]
    Other(String),
}

impl SyncError {
    fn status(&self) -> Option<&Status> {
        match self {
            Self::Client(error) => error.status(),
            Self::Behind(_) | Self::Other(_) => None,
        }
    }

    /// True if every later create in this namespace fails too.
    pub(crate) fn is_namespace_terminating(&self) -> bool {
        self.status().is_some_and(Status::is_namespace_terminating)
    }

    /// True for what the next sync will not see again: another writer was faster, or deleted the
    /// Deployment.
    pub(crate) fn is_race(&self) -> bool {
        matches!(
            self,
            Self::Behind(_) | Self::Client(ClientError::Stopped | ClientError::Fenced)
        ) || self
            .status()
            .is_some_and(|it| it.is_conflict() || it.is_not_found())
    }

    /// How long the API server asks to wait.
    pub(crate) fn retry_after(&self) -> Option<Duration> {
        self.status()?.requested_wait()
    }
}

pub struct Writer {
    client: Client,
    recorder: Arc<EventRecorder>,
    clock: Arc<dyn Clock>,
}

impl Writer {
    /// Sends through `client`, and events through `recorder`.
    pub fn new(client: Client, recorder: Arc<EventRecorder>, clock: Arc<dyn Clock>) -> Self {
        Self {
            client,
            recorder,
            clock,
        }
    }

    /// Releases and adopts ReplicaSets. Returns those that the Deployment manages.
    ///
    /// # Errors
    /// One of the failures, once all have been tried.
    pub(crate) fn claim(
        &self,
        d: &Deployment,
        claims: Claims,
    ) -> Result<Vec<Arc<ReplicaSet>>, SyncError> {
        let (mut failed, mut managed) = (None, claims.kept);
        for rs in &claims.released {
            failed = failed.or(self.release(d, rs).err());
        }
        let mut may_adopt = None;
        for rs in claims.adopted {
            let may_adopt = may_adopt.get_or_insert_with(|| self.check_not_deleted(d));
            match may_adopt.clone().and_then(|()| self.adopt(d, &rs)) {
                Ok(true) => managed.push(rs),
                Ok(false) => {}
                Err(error) => failed = failed.or(Some(error)),
            }
        }
        failed.map_or(Ok(managed), Err)
    }

    /// The cache may not show yet that the Deployment is gone.
    fn check_not_deleted(&self, d: &Deployment) -> Result<(), SyncError> {
        let live = self.live_deployment(d)?;
        let live = Deployment::from_json(live.to_string().as_bytes()).map_err(ClientError::from)?;
        match live {
            live if live.uid != d.uid => Err(SyncError::Other(format!(
                "the deployment {} is gone: its UID was {}, and is {} now",
                d.key, d.uid, live.uid
            ))),
            live if live.is_terminating => {
                let why = format!("the deployment {} has just been deleted", d.key);
                Err(SyncError::Other(why))
            }
            _ => Ok(()),
        }
    }

    fn live_deployment(&self, d: &Deployment) -> Result<Value, SyncError> {
        let response = self.send(d, Request::get(path("deployments", &d.key)))?;
        Ok(serde_json::from_slice(&response).map_err(ClientError::from)?)
    }

    /// Returns false if the ReplicaSet no longer exists. The patch names its UID, so it never
    /// changes a later one of the same name.
    fn adopt(&self, d: &Deployment, rs: &ReplicaSet) -> Result<bool, SyncError> {
        let owners = json!([owner_reference(d)]);
        self.patch_owners(d, rs, &owners, Status::is_not_found)
    }

    /// A ReplicaSet that no longer exists or no longer has this owner needs no release.
    fn release(&self, d: &Deployment, rs: &ReplicaSet) -> Result<bool, SyncError> {
        let owners = json!([{"$patch": "delete", "uid": d.uid}]);
        let is_released = |status: &Status| status.is_not_found() || status.is_invalid();
        self.patch_owners(d, rs, &owners, is_released)
    }

    fn patch_owners(
        &self,
        d: &Deployment,
        rs: &ReplicaSet,
        owners: &Value,
        is_over: impl Fn(&Status) -> bool,
    ) -> Result<bool, SyncError> {
        let patch = json!({"metadata": {"uid": rs.uid, "ownerReferences": owners}});
        let request = Request::patch(path("replicasets", &rs.key))
            .body("application/strategic-merge-patch+json", patch.to_string());
        match self.send(d, request) {
            Ok(_) => Ok(true),
            Err(error) if error.status().is_some_and(is_over) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Executes one write of a decision.
    ///
    /// # Errors
    /// [`SyncError`]; the sync must end, because later writes depend on this one.
    pub(crate) fn execute(&self, d: &Deployment, write: &Write) -> Result<(), SyncError> {
        match write {
            Write::Create { rs, object } => self.create(d, rs, object),
            Write::Update {
                rs,
                replicas,
                patch,
            } => {
                let request = Request::patch(path("replicasets", &rs.key));
                let request = request.body("application/merge-patch+json", patch.to_string());
                self.send(d, request)?;
                self.note_scaling(d, rs, rs.replicas, *replicas);
                Ok(())
            }
            Write::Delete(rs) => {
                // By the version too: somebody may have scaled it up meanwhile.
                let unchanged = json!({"uid": rs.uid, "resourceVersion": rs.resource_version});
                let body = json!({"preconditions": unchanged}).to_string();
                let request = Request::delete(path("replicasets", &rs.key)).body(JSON, body);
                match self.send(d, request) {
                    Err(error) if !error.status().is_some_and(Status::is_not_found) => Err(error),
                    _ => Ok(()),
                }
            }
            Write::RollBack {
                template,
                annotations,
                note,
            } => {
                self.roll_back(d, template.as_ref(), annotations)?;
                self.note(d, note);
                Ok(())
            }
            Write::Status {
                status,
                annotations,
            } => self.write_status(d, status, annotations),
        }
    }

    fn note_scaling(&self, d: &Deployment, rs: &ReplicaSet, from: i32, to: i32) {
        let direction = match from.cmp(&to) {
            std::cmp::Ordering::Less => "up",
            std::cmp::Ordering::Equal => return,
            std::cmp::Ordering::Greater => "down",
        };
        let name = &rs.key.name;
        self.note(
            d,
            &Note {
                type_: EventType::Normal,
                reason: "ScalingReplicaSet",
                message: format!("Scaled {direction} replica set {name} from {from} to {to}"),
            },
        );
    }

    fn create(&self, d: &Deployment, rs: &ReplicaSet, object: &Value) -> Result<(), SyncError> {
        let collection = format!("/apis/apps/v1/namespaces/{}/replicasets", d.key.namespace);
        let request = Request::post(collection).body(JSON, object.to_string());
        let Err(error) = self.send(d, request) else {
            self.note_scaling(d, rs, 0, rs.replicas);
            return Ok(());
        };
        match error.status() {
            Some(status) if status.is_already_exists() => {
                self.check_existing(d, rs)?;
                return Err(SyncError::Behind(rs.key.clone()));
            }
            Some(status) if status.is_namespace_terminating() => {}
            Some(status) => {
                let now = self.clock.wall();
                let (write, note) = after_failed_create(d, rs, &status.to_string(), now);
                self.note(d, &note);
                // The error of the create is the one to report.
                if let Some(Err(error)) = write.map(|write| self.execute(d, &write)) {
                    log::debug!(error:%; "the status of deployment {} was not written", d.key);
                }
            }
            // Without a response nothing is known to have failed.
            None => {}
        }
        Err(error)
    }

    /// The name is taken: by an earlier create that the cache does not show yet, or by a ReplicaSet
    /// with another template or owner, whose hash is the same.
    fn check_existing(&self, d: &Deployment, rs: &ReplicaSet) -> Result<(), SyncError> {
        let found = self.send(d, Request::get(path("replicasets", &rs.key)))?;
        let found = ReplicaSet::from_json(&found).map_err(ClientError::from)?;
        if found.is_controlled_by(&d.uid) && found.template == d.template {
            return Ok(());
        }
        log::info!(
            "replicaset {} has the hash of deployment {}'s template",
            rs.key,
            d.key
        );
        self.execute(d, &after_collision(d))
    }

    fn roll_back(
        &self,
        d: &Deployment,
        template: Option<&Template>,
        annotations: &Annotations,
    ) -> Result<(), SyncError> {
        let mut object = self.live_deployment(d)?;
        object["metadata"]["annotations"] = json!(annotations);
        object["metadata"]["resourceVersion"] = json!(d.resource_version);
        if let Some(template) = template {
            object["spec"]["template"] = template.to_value();
        }
        let request = Request::put(path("deployments", &d.key)).body(JSON, object.to_string());
        self.send(d, request).map(drop)
    }

    /// The stock role may only replace a status, not patch it.
    fn write_status(
        &self,
        d: &Deployment,
        status: &DeploymentStatus,
        annotations: &Annotations,
    ) -> Result<(), SyncError> {
        let mut metadata = d.metadata.clone();
        metadata["annotations"] = json!(annotations);
        let object = json!({
            "apiVersion": "apps/v1",
            "kind": DEPLOYMENT,
            "metadata": metadata,
            "spec": {
                "replicas": d.replicas,
                "selector": d.selector,
                "template": d.template.to_value(),
            },
            "status": status,
        });
        let request = Request::put(format!("{}/status", path("deployments", &d.key)));
        self.send(d, request.body(JSON, object.to_string()))
            .map(drop)
    }

    pub(crate) fn note(&self, d: &Deployment, note: &Note) {
        let object = ObjectReference {
            api_version: "apps/v1",
            kind: DEPLOYMENT,
            key: d.key.clone(),
            uid: d.uid.clone(),
            resource_version: d.resource_version.clone(),
            field_path: "",
        };
        self.recorder
            .event(&object, note.type_, note.reason, &note.message);
    }

    fn send(&self, d: &Deployment, request: Request) -> Result<Vec<u8>, SyncError> {
        let request = request.on_behalf_of(&d.key).retried_briefly();
        Ok(self.client.send_unless_stopped(&request)?.body)
    }
}

fn path(resource: &str, key: &ObjectKey) -> String {
    let ObjectKey { namespace, name } = key;
    format!("/apis/apps/v1/namespaces/{namespace}/{resource}/{name}")
}

#[cfg(test)]
mod tests;
