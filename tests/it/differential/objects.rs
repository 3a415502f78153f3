//! Random parts of requests: kinds, valid and invalid objects, edits. The generator is seeded, so
//! every run sends the same requests. Pure.

use fastrand::Rng;
use serde_json::{Value, json};

use super::side::NO_UID;
use super::step::uid_of;

/// A kind that requests are generated for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Subject {
    Pods,
    ReplicaSets,
    Controllers,
    Events,
    Leases,
    Accounts,
}

use Subject::{Accounts, Controllers, Events, Leases, Pods, ReplicaSets};

/// The kinds, repeated by their weight.
const DRAWN: [Subject; 12] = [
    Pods,
    Pods,
    Pods,
    Pods,
    ReplicaSets,
    ReplicaSets,
    ReplicaSets,
    Controllers,
    Controllers,
    Events,
    Leases,
    Accounts,
];

impl Subject {
    pub(super) fn draw(rng: &mut Rng) -> Self {
        one(rng, &DRAWN)
    }

    pub(super) fn collection(self, namespace: &str) -> String {
        let (prefix, plural) = match self {
            Pods => ("/api/v1", "pods"),
            ReplicaSets => ("/apis/apps/v1", "replicasets"),
            Controllers => ("/api/v1", "replicationcontrollers"),
            Events => ("/api/v1", "events"),
            Leases => ("/apis/coordination.k8s.io/v1", "leases"),
            Accounts => ("/api/v1", "serviceaccounts"),
        };
        format!("{prefix}/namespaces/{namespace}/{plural}")
    }

    pub(super) fn has_status(self) -> bool {
        matches!(self, Pods | ReplicaSets | Controllers)
    }

    pub(super) fn has_scale(self) -> bool {
        matches!(self, ReplicaSets | Controllers)
    }

    /// A random name out of a few, so that requests often refer to existing objects.
    pub(super) fn name(self, rng: &mut Rng) -> String {
        match self {
            Pods => format!("p{}", rng.u8(..6)),
            ReplicaSets => format!("r{}", rng.u8(..3)),
            Controllers => format!("c{}", rng.u8(..2)),
            Events => format!("e{}", rng.u8(..2)),
            Leases => format!("l{}", rng.u8(..2)),
            Accounts => format!("s{}", rng.u8(..2)),
        }
    }

    fn header(self) -> (&'static str, &'static str) {
        match self {
            Pods => ("v1", "Pod"),
            ReplicaSets => ("apps/v1", "ReplicaSet"),
            Controllers => ("v1", "ReplicationController"),
            Events => ("v1", "Event"),
            Leases => ("coordination.k8s.io/v1", "Lease"),
            Accounts => ("v1", "ServiceAccount"),
        }
    }

    /// A random valid object.
    pub(super) fn object(self, rng: &mut Rng, namespace: &str, name: &str) -> Value {
        let (version, kind) = self.header();
        let mut object = json!({"metadata": {"name": name}});
        // A request body may omit both.
        if rng.u8(..4) > 0 {
            object["apiVersion"] = json!(version);
            object["kind"] = json!(kind);
        }
        draw_metadata(rng, namespace, &mut object["metadata"]);
        match self {
            Pods => object["spec"] = pod_spec(rng),
            ReplicaSets | Controllers => object["spec"] = self.set_spec(rng),
            Events => {
                object["involvedObject"] =
                    json!({"kind": "Pod", "namespace": namespace, "name": "p0"});
                object["reason"] = json!(one(rng, &["Started", "Stopped"]));
                object["message"] = json!("something happened");
                object["type"] = json!("Normal");
                object["count"] = json!(rng.u8(1..4));
                object["firstTimestamp"] = json!("2024-05-01T10:00:00Z");
                object["source"] = json!({"component": one(rng, &["kubelet", "test"])});
            }
            Leases => {
                object["spec"] = json!({
                    "holderIdentity": one(rng, &["a", "b"]), "leaseDurationSeconds": 15,
                    "renewTime": "2024-05-01T10:00:00.000000Z", "leaseTransitions": rng.u8(..3),
                });
            }
            Accounts => object["automountServiceAccountToken"] = json!(rng.bool()),
        }
        object
    }

    fn set_spec(self, rng: &mut Rng) -> Value {
        let app = one(rng, &["a", "b"]);
        let mut spec = json!({
            "selector": {"matchLabels": {"app": app}},
            "template": {"metadata": {"labels": {"app": app, "tier": "x"}}, "spec": pod_spec(rng)},
        });
        // The only restart policy that a template may have.
        spec["template"]["spec"]["restartPolicy"] = json!("Always");
        if rng.u8(..4) > 0 {
            spec["replicas"] = json!(rng.u8(..5));
        }
        if rng.u8(..4) == 0 {
            spec["minReadySeconds"] = json!(rng.u8(1..9));
        }
        if self == Controllers {
            spec["selector"] = json!({"app": app});
            if rng.u8(..4) == 0 {
                spec.as_object_mut().map(|spec| spec.remove("selector"));
            }
        } else if rng.u8(..4) == 0 {
            spec["selector"]["matchExpressions"] = json!([
                {"key": "tier", "operator": "In", "values": ["x", "y"]},
                {"key": "gone", "operator": "DoesNotExist"},
            ]);
        }
        spec
    }

    /// A random JSON merge patch that invalidates a new object.
    pub(super) fn mistake(self, rng: &mut Rng) -> Value {
        let own: Vec<Value> = match self {
            Pods => vec![
                json!({"spec": {"containers": []}}),
                json!({"spec": {"containers": null}}),
                json!({"spec": null}),
                json!({"spec": {"containers": [{"name": "c"}]}}),
                json!({"spec": {"containers": [{"image": "i:1"}]}}),
                json!({"spec": {"containers": [{"name": "Not_Good", "image": "i:1"}]}}),
                json!({"spec": {"restartPolicy": "Sometimes"}}),
                json!({"spec": {"containers": "none"}}),
            ],
            ReplicaSets | Controllers => vec![
                json!({"spec": {"replicas": -1}}),
                json!({"spec": {"replicas": "three"}}),
                json!({"spec": {"minReadySeconds": -1}}),
                json!({"spec": {"template": {"metadata": {"labels": {"app": "other"}}}}}),
                json!({"spec": {"template": null}}),
                json!({"spec": {"template": {"spec": {"restartPolicy": "Never"}}}}),
                json!({"spec": {"template": {"spec": {"containers": []}}}}),
                json!({"spec": null}),
            ],
            Events => vec![json!({"involvedObject": {"namespace": "elsewhere"}})],
            Leases => vec![json!({"spec": {"leaseDurationSeconds": 0}})],
            Accounts => vec![json!({"metadata": {"name": "Bad_Name"}})],
        };
        let any = [
            json!({"metadata": {"name": "Bad_Name"}}),
            json!({"metadata": {"name": null}}),
            json!({"metadata": {"namespace": "elsewhere"}}),
            json!({"metadata": {"resourceVersion": "7"}}),
            json!({"metadata": {"labels": {"bad key!": "x"}}}),
            json!({"metadata": {"labels": {"good": "bad value!"}}}),
            json!({"metadata": {"labels": {"good": 1}}}),
            json!({"metadata": {"finalizers": ["notqualified"]}}),
            json!({"metadata": {"ownerReferences": [{"kind": "ReplicaSet", "name": "x"}]}}),
            json!({"metadata": {"ownerReferences": two_controllers()}}),
            json!({"apiVersion": "v7"}),
            json!({"kind": "Nothing"}),
        ];
        if rng.bool() {
            one(rng, &own)
        } else {
            one(rng, &any)
        }
    }

    /// A random change to an existing object, valid or invalid, as a JSON merge patch.
    pub(super) fn edit(self, rng: &mut Rng) -> Value {
        let own: Vec<Value> = match self {
            Pods => vec![
                json!({"spec": {"activeDeadlineSeconds": 60}}),
                json!({"spec": {"restartPolicy": "Never"}}),
                json!({"spec": {"terminationGracePeriodSeconds": 7}}),
                json!({"spec": {"nodeName": "n2"}}),
            ],
            ReplicaSets | Controllers => vec![
                json!({"spec": {"replicas": rng.u8(..9)}}),
                json!({"spec": {"replicas": rng.u8(..9)}}),
                json!({"spec": {"replicas": null}}),
                json!({"spec": {"replicas": -3}}),
                json!({"spec": {"minReadySeconds": rng.u8(..3)}}),
                json!({"spec": {"selector": {"matchLabels": {"tier": "x"}}}}),
                json!({"spec": {"template": {"metadata": {"labels": {"app": "c"}}}}}),
                json!({"spec": {"template": {"metadata": {"annotations": {"a": "b"}}}}}),
            ],
            Events => vec![json!({"count": rng.u8(5..9)}), json!({"message": "again"})],
            Leases => vec![
                json!({"spec": {"holderIdentity": one(rng, &["c", "d", ""])}}),
                json!({"spec": {"renewTime": "2024-06-01T10:00:00.000000Z"}}),
            ],
            Accounts => vec![json!({"automountServiceAccountToken": rng.bool()})],
        };
        if rng.u8(..5) < 2 {
            one(rng, &own)
        } else {
            metadata_edit(rng)
        }
    }

    /// A random change to a status, valid or invalid, as a JSON merge patch.
    pub(super) fn status_edit(self, rng: &mut Rng) -> Value {
        let own: Vec<Value> = match self {
            Pods => vec![
                json!({"status": {"phase": "Running"}}),
                json!({"status": {"phase": "Succeeded"}}),
                json!({"status": {"phase": "Failed", "reason": "Evicted", "message": "gone"}}),
                json!({"status": {
                    "conditions": [ready("True"), {"type": "Own", "status": "True"}],
                }}),
                json!({"status": {"conditions": [ready("False")]}}),
                json!({"status": {"conditions": null}}),
                json!({"status": {"containerStatuses": [{
                    "name": "c", "image": "i", "imageID": "", "ready": true, "restartCount": 2,
                }]}}),
            ],
            _ => vec![
                json!({"status": {"replicas": 3, "readyReplicas": 1}}),
                json!({"status": {"replicas": 3, "readyReplicas": 2, "availableReplicas": 2}}),
                json!({"status": {"replicas": 1, "readyReplicas": 2}}),
                json!({"status": {"replicas": -1}}),
                json!({"status": {"replicas": 0, "readyReplicas": null, "availableReplicas": 0}}),
                json!({"status": {"observedGeneration": 1}}),
                json!({"status": {"conditions": [ready("True")]}}),
            ],
        };
        if rng.u8(..5) > 0 {
            one(rng, &own)
        } else {
            self.edit(rng)
        }
    }
}

/// A random element.
pub(super) fn one<T: Clone>(rng: &mut Rng, values: &[T]) -> T {
    values[rng.usize(..values.len())].clone()
}

fn ready(status: &str) -> Value {
    json!({
        "type": "Ready", "status": status, "lastTransitionTime": "2024-05-01T10:00:00Z",
        "reason": "Because",
    })
}

fn draw_metadata(rng: &mut Rng, namespace: &str, metadata: &mut Value) {
    if rng.u8(..5) > 0 {
        metadata["labels"] = json!({"app": one(rng, &["a", "b"]), "tier": one(rng, &["x", "y"])});
    }
    if rng.u8(..4) == 0 {
        metadata["annotations"] = json!({"example.com/note": "new"});
    }
    if rng.u8(..8) == 0 {
        metadata["finalizers"] = json!(["example.com/hold"]);
    }
    if rng.u8(..5) == 0 {
        let path = format!("{}/r0", ReplicaSets.collection(namespace));
        metadata["ownerReferences"] = json!([{
            "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "r0", "uid": uid_of(&path),
            "controller": rng.bool(),
        }]);
    }
    if rng.u8(..8) == 0 {
        metadata["uid"] = json!(NO_UID);
        metadata["generation"] = json!(7);
        metadata["creationTimestamp"] = json!("2020-01-01T00:00:00Z");
    }
    if rng.u8(..8) == 0 {
        metadata["namespace"] = json!(namespace);
    }
}

fn pod_spec(rng: &mut Rng) -> Value {
    // Otherwise admission adds a volume with a random name.
    let mut spec = json!({"automountServiceAccountToken": false});
    let image = one(rng, &["i:1", "i", "r.example/i:latest", "i@sha256:0"]);
    let mut containers = vec![json!({"name": "c", "image": image})];
    if rng.u8(..4) == 0 {
        containers[0]["env"] = json!([{"name": "A", "value": "1"}]);
        containers[0]["resources"] = json!({"requests": {"cpu": "100m"}});
    }
    if rng.u8(..4) == 0 {
        containers.push(json!({"name": "d", "image": "i:2", "imagePullPolicy": "Never"}));
    }
    spec["containers"] = json!(containers);
    if rng.u8(..4) == 0 {
        spec["terminationGracePeriodSeconds"] = json!(one(rng, &[0, 5, 60]));
    }
    if rng.u8(..4) == 0 {
        spec["nodeName"] = json!("n1");
    }
    if rng.u8(..6) == 0 {
        spec["restartPolicy"] = json!("Never");
    }
    if rng.u8(..6) == 0 {
        spec["nodeSelector"] = json!({"disk": "fast"});
    }
    spec
}

fn two_controllers() -> Value {
    let owner = |name: &str| {
        json!({
            "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": name, "uid": NO_UID,
            "controller": true,
        })
    };
    json!([owner("x"), owner("y")])
}

fn metadata_edit(rng: &mut Rng) -> Value {
    let metadata = one(
        rng,
        &[
            json!({"labels": {"app": "a"}}),
            json!({"labels": {"app": "b", "tier": null}}),
            json!({"labels": {"extra": "1"}}),
            json!({"labels": null}),
            json!({"labels": {"bad key!": "x"}}),
            json!({"labels": {"app": "bad value!"}}),
            json!({"annotations": {"example.com/note": "changed"}}),
            json!({"annotations": {}}),
            json!({}),
            json!({"resourceVersion": "1"}),
            json!({"resourceVersion": null}),
            json!({"resourceVersion": "x"}),
            json!({"uid": NO_UID}),
            json!({"uid": null}),
            json!({"finalizers": null}),
            json!({"finalizers": ["example.com/hold"]}),
            json!({"finalizers": ["notqualified"]}),
            json!({"finalizers": ["example.com/hold", "example.com/more"]}),
            json!({"generation": 99, "creationTimestamp": "2001-01-01T00:00:00Z"}),
            json!({"deletionTimestamp": "2001-01-01T00:00:00Z"}),
            json!({"generateName": "other-"}),
            json!({"name": "other"}),
            json!({"name": null}),
            json!({"namespace": "elsewhere"}),
            json!({"namespace": null}),
            json!({"ownerReferences": [{"kind": "ReplicaSet", "name": "x"}]}),
            json!({"ownerReferences": two_controllers()}),
            json!({"ownerReferences": null}),
        ],
    );
    json!({"metadata": metadata})
}
