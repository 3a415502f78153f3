//! The objects of the fixture: what the real API server made of a ReplicaSet and its pods.

use replicaset_controller::api::protobuf::meta::OwnerReference;
use replicaset_controller::api::protobuf::{
    Envelope, Fields, MEDIA_TYPE, ObjectMeta, Parts, ProtobufError, last, put_bytes, text,
};
use replicaset_controller::client::Request;
use serde_json::{Value, json};

use crate::cluster::Cluster;
use crate::layout::{CURRENT, Layout, OLD, REPLICAS, path_of_pod, texts_of_pod};

/// The resource version of every sample. Those of the fixture have as many digits.
pub(crate) const FIRST_VERSION: u64 = 10_000_000;

/// Bytes in which each occurrence of some texts can be replaced by others of equal length.
struct Template {
    bytes: Vec<u8>,
    /// Where a text is, and which one.
    marks: Vec<(usize, usize)>,
}

/// An object of the real API server that stands for all of its kind.
pub(crate) struct Sample {
    api_version: &'static str,
    kind: &'static str,
    metadata: Template,
    spec: Template,
    pub(crate) status: Vec<u8>,
}

/// The texts by which the objects of a kind differ: namespace, name of the Deployment, UID, UID of
/// the owner, resource version, and for pods the end of the name, and the node.
pub(crate) type Texts = [String; 7];

/// What the fixture needs of the real API server.
pub(crate) struct Samples {
    pub(crate) current: Sample,
    pub(crate) old: Sample,
    pub(crate) ready: Sample,
    pub(crate) unready: Sample,
}

impl Template {
    fn new(bytes: &[u8], texts: &Texts) -> Self {
        let find = |(which, text): (usize, &String)| {
            let places = bytes.windows(text.len().max(1)).enumerate();
            let places = places.filter(|(_, place)| *place == text.as_bytes());
            places.map(|(at, _)| (at, which)).collect::<Vec<_>>()
        };
        Self {
            bytes: bytes.to_vec(),
            marks: texts.iter().enumerate().flat_map(find).collect(),
        }
    }

    fn render(&self, texts: &Texts) -> Vec<u8> {
        let mut bytes = self.bytes.clone();
        for &(at, which) in &self.marks {
            let text = texts[which].as_bytes();
            bytes[at..at + text.len()].copy_from_slice(text);
        }
        bytes
    }
}

impl Sample {
    fn new(
        (api_version, kind): (&'static str, &'static str),
        object: &[u8],
        mut texts: Texts,
    ) -> Result<Self, ProtobufError> {
        let parts = Parts::of(Envelope::open(object)?.raw)?;
        text(last(parts.metadata, ObjectMeta::UID)?)?.clone_into(&mut texts[2]);
        let owner = last(parts.metadata, ObjectMeta::OWNER_REFERENCES)?;
        text(last(owner, OwnerReference::UID)?)?.clone_into(&mut texts[3]);
        texts[4] = FIRST_VERSION.to_string();
        let mut metadata = Vec::new();
        for field in Fields::of(parts.metadata) {
            let field = field?;
            match field.tag {
                ObjectMeta::RESOURCE_VERSION => put_bytes(field.tag, &texts[4], &mut metadata),
                _ => metadata.extend_from_slice(field.whole),
            }
        }
        Ok(Self {
            api_version,
            kind,
            metadata: Template::new(&metadata, &texts),
            spec: Template::new(parts.spec, &texts),
            status: parts.status.to_vec(),
        })
    }

    /// The object with these texts and this status.
    pub(crate) fn object(&self, texts: &Texts, status: &[u8]) -> Vec<u8> {
        let fields = [
            (Parts::METADATA, &*self.metadata.render(texts)),
            (Parts::SPEC, &*self.spec.render(texts)),
            (Parts::STATUS, status),
        ];
        Envelope::seal(self.api_version, self.kind, &fields)
    }
}

impl Samples {
    /// Creates a Deployment's two ReplicaSets and their pods, reads one of each kind, and deletes
    /// all.
    pub(crate) fn take(cluster: &Cluster) -> Result<Self, String> {
        let layout = Layout { n_current: 1 };
        cluster.create_all(layout)?;
        cluster.patch_pod(1, false)?;
        let read = |path: &str, kind, texts| {
            let object = cluster.send(&Request::get(path).accept(MEDIA_TYPE))?.body;
            Sample::new(kind, &object, texts).map_err(|error| format!("{path}: {error}"))
        };
        let set = |set| {
            read(
                &layout.set_path(set),
                ("apps/v1", "ReplicaSet"),
                layout.set(set, 0),
            )
        };
        let pod = |pod| read(&path_of_pod(pod), ("v1", "Pod"), texts_of_pod(pod, 0));
        let samples = Self {
            current: set(0)?,
            old: set(1)?,
            ready: pod(0)?,
            unready: pod(1)?,
        };
        cluster.delete_all(layout)?;
        Ok(samples)
    }
}

/// Appends a message of a watch: its length, its type and its object.
pub(crate) fn put_frame(type_: &str, object: &[u8], frames: &mut Vec<u8>) {
    let (mut raw, mut message) = (Vec::new(), Vec::new());
    put_bytes(1, object, &mut raw);
    put_bytes(1, type_, &mut message);
    put_bytes(2, raw, &mut message);
    let length = u32::try_from(message.len()).expect("a short message");
    frames.extend_from_slice(&length.to_be_bytes());
    frames.extend_from_slice(&message);
}

/// The bookmark that ends the initial list of a watch for objects of this kind.
pub(crate) fn bookmark((api_version, kind): (&str, &str), version: u64) -> Vec<u8> {
    let (mut annotation, mut metadata) = (Vec::new(), Vec::new());
    put_bytes(1, "k8s.io/initial-events-end", &mut annotation);
    put_bytes(2, "true", &mut annotation);
    put_bytes(
        ObjectMeta::RESOURCE_VERSION,
        version.to_string(),
        &mut metadata,
    );
    put_bytes(ObjectMeta::ANNOTATIONS, annotation, &mut metadata);
    Envelope::seal(api_version, kind, &[(Parts::METADATA, &metadata)])
}

/// A ReplicaSet as a Deployment's controller creates it.
pub(crate) fn set_json(layout: Layout, set: usize) -> Value {
    let [_, deployment, _, owner, ..] = layout.set(set, 0);
    let is_old = layout.is_old(set);
    let hash = if is_old { OLD } else { CURRENT };
    let labels = json!({"app": deployment, "pod-template-hash": hash});
    json!({
        "metadata": {
            "name": format!("{deployment}-{hash}"),
            "labels": labels,
            "annotations": {
                "deployment.kubernetes.io/desired-replicas": REPLICAS.to_string(),
                "deployment.kubernetes.io/max-replicas": (REPLICAS + REPLICAS / 4).to_string(),
                "deployment.kubernetes.io/revision": if is_old { "1" } else { "2" },
            },
            "ownerReferences": [{
                "apiVersion": "apps/v1", "kind": "Deployment", "name": deployment, "uid": owner,
                "controller": true, "blockOwnerDeletion": true,
            }],
        },
        "spec": {
            "replicas": if is_old { 0 } else { REPLICAS },
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": pod_spec()},
        },
    })
}

/// A pod of this ReplicaSet, which has this UID, as the daemon creates it, on its node.
pub(crate) fn pod_json(pod: usize, owner: &str) -> Value {
    let [_, deployment, _, _, _, suffix, node] = texts_of_pod(pod, 0);
    let set = format!("{deployment}-{CURRENT}");
    let mut spec = pod_spec();
    spec["nodeName"] = json!(node);
    json!({
        "metadata": {
            "name": format!("{set}-{suffix}"),
            "generateName": format!("{set}-"),
            "labels": {"app": deployment, "pod-template-hash": CURRENT},
            "ownerReferences": [{
                "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": set, "uid": owner,
                "controller": true, "blockOwnerDeletion": true,
            }],
        },
        "spec": spec,
    })
}

fn pod_spec() -> Value {
    json!({
        "containers": [{
            "name": "server",
            "image": "registry.example/team/server:v1.2.3",
            "ports": [{"containerPort": 8080}],
            "env": [{"name": "LISTEN", "value": "0.0.0.0:8080"}],
            "resources": {"requests": {"cpu": "100m", "memory": "128Mi"}},
        }],
        "automountServiceAccountToken": false,
    })
}

/// The status that a kubelet writes.
pub(crate) fn status_json(is_ready: bool) -> Value {
    let now = jiff::Timestamp::now()
        .strftime("%Y-%m-%dT%H:%M:%SZ")
        .to_string();
    let condition = |kind: &str, is_true: bool| {
        let status = if is_true { "True" } else { "False" };
        json!({"type": kind, "status": status, "lastTransitionTime": now})
    };
    json!({"status": {
        "phase": "Running", "podIP": "10.1.2.3", "hostIP": "10.0.0.7",
        "podIPs": [{"ip": "10.1.2.3"}], "hostIPs": [{"ip": "10.0.0.7"}], "startTime": now,
        "conditions": [
            condition("PodReadyToStartContainers", true), condition("Initialized", true),
            condition("Ready", is_ready), condition("ContainersReady", is_ready),
            condition("PodScheduled", true),
        ],
        "containerStatuses": [{
            "name": "server", "ready": is_ready, "restartCount": 0, "started": true,
            "image": "registry.example/team/server:v1.2.3",
            "imageID": "registry.example/team/server@sha256:\
                1b5f3f0c6bd8e4a9d0c1e2f3a4b5c6d7e8f90a1b2c3d4e5f60718293a4b5c6d7",
            "containerID":
                "containerd://8a9b0c1d2e3f405162738495a6b7c8d9e0f1a2b3c4d5e6f708192a3b4c5d6e7f",
            "state": {"running": {"startedAt": now}},
        }],
    }})
}
