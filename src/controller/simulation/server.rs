//! The API server of the simulation: its store, and the log that the watches read.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use crate::api::replica_set::Template;
use crate::api::{ArcStr, ObjectKey, Pod, PodPhase, ReplicaSet, ReplicaSetStatus};
use crate::api::{ResourceVersion, Uid};
use crate::controller::testing::{controller_ref, read_replica_set, rejected, replica_set_json};
use crate::writes::{WriteError, WrittenPod};

/// One event of the pod watch.
#[derive(Clone, Debug)]
pub(super) enum Line {
    Put(Pod),
    Gone(Pod),
}

impl Line {
    /// The ReplicaSet that owns the pod.
    pub(super) fn owner(&self) -> Option<(ObjectKey, Uid)> {
        let (Self::Put(pod) | Self::Gone(pod)) = self;
        let owner = pod.controller.as_ref()?;
        let key = ObjectKey::new("default", &*owner.name);
        Some((key, owner.uid.clone()))
    }
}

/// The server sees no delete later than this. Creates may arrive at any time.
const DELETE_ARRIVES_WITHIN: SignedDuration = SignedDuration::from_mins(1);

/// A request that reaches the server after its client has given up.
#[derive(Debug)]
pub(super) enum Late {
    Create(ReplicaSet, ArcStr),
    /// From a daemon killed meanwhile. The request arrives only while the ReplicaSet is unchanged
    /// since the choice of the name: until then the next daemon uses the same names.
    CreateOfKilled(ReplicaSet, ArcStr),
    /// With the time of sending.
    Delete(Pod, Timestamp),
}

impl Late {
    fn is_create_of(&self, name: &str) -> bool {
        match self {
            Self::Create(_, late) | Self::CreateOfKilled(_, late) => **late == *name,
            Self::Delete(..) => false,
        }
    }
}

/// All objects are in the namespace `default`. A ReplicaSet selects the pods labelled with its
/// name.
#[derive(Debug, Default)]
pub(super) struct Server {
    version: u64,
    n_uids: u64,
    pub(super) pods: BTreeMap<ArcStr, Pod>,
    pub(super) replica_sets: BTreeMap<ArcStr, ReplicaSet>,
    pub(super) pod_log: Vec<Line>,
    pub(super) replica_set_log: Vec<ReplicaSet>,
    pub(super) late: Vec<Late>,
    /// The ReplicaSet versions at which names were first chosen. The daemon retries a rejected name
    /// at later versions, but the next daemon does not (differences.md, "Pod names").
    chosen_at: BTreeMap<ArcStr, ResourceVersion>,
    /// Pods that a killed daemon and the next one created for the same missing replica.
    pub(super) surplus: Vec<ArcStr>,
}

impl Server {
    pub(super) fn version(&self) -> ResourceVersion {
        ResourceVersion::new(&self.version.to_string())
    }

    fn next_version(&mut self) -> ResourceVersion {
        self.version += 1;
        self.version()
    }

    fn next_uid(&mut self) -> Uid {
        self.n_uids += 1;
        Uid::new(&format!("uid-{}", self.n_uids))
    }

    /// Stores a new ReplicaSet.
    pub(super) fn add_replica_set(&mut self, name: &str, replicas: i32) {
        let mut rs = replica_set(name, replicas, 1);
        rs.uid = self.next_uid();
        self.put_replica_set(rs);
    }

    fn put_replica_set(&mut self, mut rs: ReplicaSet) -> ReplicaSet {
        rs.resource_version = self.next_version();
        self.replica_sets.insert(rs.key.name.clone(), rs.clone());
        self.replica_set_log.push(rs.clone());
        rs
    }

    /// Returns `rs` at the version for which this name was chosen: a request may arrive late.
    pub(super) fn late_create(&mut self, rs: &ReplicaSet, name: &str) -> Late {
        let chosen_at = self.chosen_at.entry(name.into());
        let resource_version = chosen_at.or_insert_with(|| rs.resource_version.clone());
        let mut rs = rs.clone();
        rs.resource_version = resource_version.clone();
        Late::Create(rs, name.into())
    }

    /// Changes a pod if it exists.
    pub(super) fn change_pod(&mut self, name: &str, change: impl FnOnce(&mut Pod)) {
        if let Some(pod) = self.pods.get(name) {
            let mut pod = pod.clone();
            change(&mut pod);
            self.put_pod(pod);
        }
    }

    fn put_pod(&mut self, mut pod: Pod) -> ResourceVersion {
        pod.resource_version = self.next_version();
        let version = pod.resource_version.clone();
        self.pods.insert(pod.key.name.clone(), pod.clone());
        self.pod_log.push(Line::Put(pod));
        version
    }

    pub(super) fn remove_pod(&mut self, name: &str) {
        if let Some(mut pod) = self.pods.remove(name) {
            // The server rejected a late request for the same name meanwhile. Its arrival after
            // this pod's deletion is not modelled: only the server could recognize the old request.
            self.late.retain(|late| !late.is_create_of(name));
            pod.resource_version = self.next_version();
            self.pod_log.push(Line::Gone(pod));
        }
    }

    /// Stores a new pod of `rs`.
    pub(super) fn add_pod(
        &mut self,
        rs: &ReplicaSet,
        name: &str,
    ) -> Result<WrittenPod, WriteError> {
        if self.pods.contains_key(name) {
            let message = format!("pods \"{name}\" already exists");
            return Err(rejected(409, "AlreadyExists", &message));
        }
        let owner = controller_ref("ReplicaSet", &rs.key.name, &rs.uid.to_string());
        let pod = Pod {
            key: ObjectKey::new("default", name),
            uid: self.next_uid(),
            labels: rs.template_labels.clone(),
            controller: Some(owner),
            phase: PodPhase::Pending,
            ..Pod::default()
        };
        let resource_version = self.put_pod(pod);
        Ok(WrittenPod {
            resource_version,
            ..WrittenPod::default()
        })
    }

    /// Deletes a pod: one on a node terminates slowly, others vanish at once.
    pub(super) fn delete_pod(&mut self, pod: &Pod, now: Timestamp) -> Result<(), WriteError> {
        let Some(stored) = self.pods.get(&pod.key.name) else {
            return Err(rejected(404, "NotFound", "pod not found"));
        };
        if stored.uid != pod.uid {
            return Err(rejected(
                409,
                "Conflict",
                "the UID in the precondition differs",
            ));
        }
        if stored.node.is_none() {
            self.remove_pod(&pod.key.name);
        } else if !stored.is_terminating() {
            self.change_pod(&pod.key.name, |pod| pod.deletion = Some(now.into()));
        }
        Ok(())
    }

    /// Applies a release.
    pub(super) fn patch_pod(&mut self, name: &str, patch: &[u8]) -> Result<WrittenPod, WriteError> {
        let patch: Value = serde_json::from_slice(patch).expect("a patch is JSON");
        let metadata = &patch["metadata"];
        let Some(pod) = self.pods.get(name) else {
            return Err(rejected(404, "NotFound", "pod not found"));
        };
        let mut pod = pod.clone();
        if metadata["uid"] != pod.uid.to_string() {
            return Err(rejected(422, "Invalid", "metadata.uid: field is immutable"));
        }
        let owner = &metadata["ownerReferences"][0];
        assert_eq!(owner["$patch"], "delete", "no pod here is to be adopted");
        let uid = owner["uid"].as_str().unwrap_or_default();
        pod.controller = pod.controller.filter(|owner| owner.uid != uid.into());
        let controller = pod.controller.as_ref().map(|owner| owner.uid.clone());
        Ok(WrittenPod {
            resource_version: self.put_pod(pod),
            controller,
        })
    }

    pub(super) fn update_status(
        &mut self,
        rs: &ReplicaSet,
        status: &ReplicaSetStatus,
    ) -> Result<ReplicaSet, WriteError> {
        let Some(stored) = self.replica_sets.get(&rs.key.name) else {
            return Err(rejected(404, "NotFound", "replicaset not found"));
        };
        if stored.resource_version != rs.resource_version || stored.uid != rs.uid {
            return Err(rejected(409, "Conflict", "the object has been modified"));
        }
        let mut stored = stored.clone();
        if stored.status == *status {
            return Ok(stored);
        }
        stored.status = status.clone();
        Ok(self.put_replica_set(stored))
    }

    /// Executes one request whose client has given up long ago.
    pub(super) fn see_late(&mut self, now: Timestamp) {
        match self.late.pop() {
            Some(Late::Create(rs, name)) => drop(self.add_pod(&rs, &name)),
            Some(Late::CreateOfKilled(rs, name)) => {
                let stored = self.replica_sets.get(&rs.key.name);
                if stored.is_some_and(|stored| stored.resource_version == rs.resource_version) {
                    let is_wanted =
                        i32::try_from(self.n_active(&rs)).is_ok_and(|n| n < rs.replicas);
                    if self.add_pod(&rs, &name).is_ok() && !is_wanted {
                        self.surplus.push(name);
                    }
                }
            }
            Some(Late::Delete(pod, sent)) if now.duration_since(sent) <= DELETE_ARRIVES_WITHIN => {
                drop(self.delete_pod(&pod, now));
            }
            Some(Late::Delete(..)) | None => {}
        }
    }

    /// Removes terminating pods, and pods whose owner is gone.
    pub(super) fn finish(&mut self, name: &str) {
        let Some(pod) = self.pods.get(name) else {
            return;
        };
        let has_owner = pod.controller.as_ref().is_none_or(|owner| {
            self.replica_sets
                .get(&owner.name)
                .is_some_and(|rs| rs.uid == owner.uid)
        });
        if pod.is_terminating() || !has_owner {
            self.remove_pod(name);
        }
    }

    /// Returns how many pods `rs` really has.
    pub(super) fn n_active(&self, rs: &ReplicaSet) -> usize {
        self.active(rs).count()
    }

    /// Returns how many of them are Ready.
    pub(super) fn n_ready(&self, rs: &ReplicaSet) -> usize {
        self.active(rs).filter(|pod| pod.is_ready).count()
    }

    fn active(&self, rs: &ReplicaSet) -> impl Iterator<Item = &Pod> {
        let selector = rs.selector.as_ref().expect("a valid selector");
        self.pods.values().filter(move |pod| {
            pod.is_active() && pod.is_controlled_by(&rs.uid) && selector.matches(&pod.labels)
        })
    }
}

/// Its template has the generation as an annotation.
fn replica_set(name: &str, replicas: i32, generation: i64) -> ReplicaSet {
    let mut object = replica_set_json(name, replicas);
    object["metadata"]["generation"] = generation.into();
    object["spec"]["selector"]["matchLabels"]["type"] = name.into();
    let template = &mut object["spec"]["template"]["metadata"];
    template["labels"]["type"] = name.into();
    template["annotations"] = json!({"revision": generation.to_string()});
    read_replica_set(&object)
}

/// True if `rs` has the template of its generation.
pub(super) fn has_its_template(rs: &ReplicaSet) -> bool {
    let revision = format!(r#"{{"revision":"{}"}}"#, rs.generation);
    matches!(rs.template(), Some(Template::Json(json)) if json.get().contains(&revision))
}
