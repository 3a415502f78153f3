//! Generates random requests. The same seed yields the same requests.

use fastrand::Rng;
use serde_json::{Value, json};

use super::objects::{Subject, one};
use super::side::NO_UID;
use super::step::{JSON_PATCH, MERGE_PATCH, STRATEGIC_MERGE_PATCH, Step, uid_of, version_of};

/// Generates requests for objects in one namespace.
pub(super) struct Generator {
    rng: Rng,
    namespace: String,
}

impl Generator {
    pub(super) fn new(seed: u64, namespace: &str) -> Self {
        Self {
            rng: Rng::with_seed(seed),
            namespace: namespace.to_owned(),
        }
    }

    /// The next request.
    pub(super) fn step(&mut self) -> Step {
        let rng = &mut self.rng;
        let subject = Subject::draw(rng);
        let name = subject.name(rng);
        let collection = subject.collection(&self.namespace);
        let path = format!("{collection}/{name}");
        let step = match rng.u8(..100) {
            0..25 => self.create(subject, &collection, &name),
            25..38 => Step::put_edited(&path, "", subject.edit(rng)),
            38..46 => self.status(subject, &path),
            46..62 => self.patch(subject, &path),
            62..72 => self.delete(&path),
            72..78 => self.scale(subject, &path),
            78..81 => Step::get(path),
            81..83 => self.bind(&path),
            83..84 => self.delete_collection(&collection),
            _ => self.list(subject, &collection),
        };
        let is_write = matches!(step.method, "POST" | "PUT" | "PATCH");
        if is_write && self.rng.u8(..15) == 0 {
            return step.query("dryRun", "All");
        }
        step
    }

    fn create(&mut self, subject: Subject, collection: &str, name: &str) -> Step {
        let rng = &mut self.rng;
        let mut object = subject.object(rng, &self.namespace, name);
        if rng.u8(..5) == 0 {
            let mistake = subject.mistake(rng);
            super::side::merge(&mut object, &mistake);
        }
        Step::post(collection, object)
    }

    fn status(&mut self, subject: Subject, path: &str) -> Step {
        let rng = &mut self.rng;
        let target = format!("{path}/status");
        if !subject.has_status() {
            return Step::get(target);
        }
        let edit = subject.status_edit(rng);
        match rng.u8(..4) {
            0 => Step::patch(MERGE_PATCH, target, edit),
            1 => Step::patch(STRATEGIC_MERGE_PATCH, target, edit),
            _ => Step::put_edited(path, "/status", edit),
        }
    }

    fn patch(&mut self, subject: Subject, path: &str) -> Step {
        let rng = &mut self.rng;
        match rng.u8(..8) {
            0..3 => Step::patch(MERGE_PATCH, path, subject.edit(rng)),
            3..5 => Step::patch(STRATEGIC_MERGE_PATCH, path, subject.edit(rng)),
            5 => {
                let patch = match subject {
                    Subject::Pods if rng.bool() => containers_patch(rng),
                    _ if subject.has_scale() && rng.bool() => template_patch(rng),
                    _ => metadata_patch(rng),
                };
                Step::patch(STRATEGIC_MERGE_PATCH, path, patch)
            }
            _ => Step::patch(JSON_PATCH, path, json_patch(rng)),
        }
    }

    fn delete(&mut self, path: &str) -> Step {
        let options = one(
            &mut self.rng,
            &[
                Value::Null,
                Value::Null,
                json!({}),
                json!({"gracePeriodSeconds": 0}),
                json!({"gracePeriodSeconds": 3}),
                json!({"gracePeriodSeconds": -1}),
                json!({"preconditions": {"uid": uid_of(path)}}),
                json!({"preconditions": {"uid": NO_UID}}),
                json!({"preconditions": {"resourceVersion": version_of(path)}}),
                json!({"preconditions": {"resourceVersion": "1"}}),
                json!({"propagationPolicy": "Background"}),
                json!({"propagationPolicy": "Foreground"}),
                json!({"propagationPolicy": "Orphan"}),
                json!({"propagationPolicy": "Sideways"}),
                json!({"orphanDependents": true}),
                json!({"orphanDependents": true, "propagationPolicy": "Orphan"}),
                json!({"dryRun": ["All"]}),
                json!({"kind": "DeleteOptions", "apiVersion": "v1", "gracePeriodSeconds": 0}),
            ],
        );
        Step::delete(path, options)
    }

    fn scale(&mut self, subject: Subject, path: &str) -> Step {
        let rng = &mut self.rng;
        let target = format!("{path}/scale");
        let replicas = i64::from(rng.u8(..8)) - 1;
        if !subject.has_scale() || rng.u8(..4) == 0 {
            return Step::get(target);
        }
        let patch = json!({"spec": {"replicas": replicas}});
        if rng.bool() {
            return Step::patch(MERGE_PATCH, target, patch);
        }
        let name = path.rsplit('/').next().unwrap_or_default();
        let version = one(rng, &[String::new(), "1".to_owned(), version_of(path)]);
        let mut scale = json!({
            "metadata": {"name": name, "namespace": self.namespace, "resourceVersion": version},
            "spec": {"replicas": replicas},
        });
        if rng.bool() {
            scale["kind"] = json!("Scale");
            scale["apiVersion"] = json!("autoscaling/v1");
        }
        Step::put(target, scale)
    }

    fn bind(&mut self, path: &str) -> Step {
        let name = path.rsplit('/').next().unwrap_or_default();
        let binding = json!({
            "apiVersion": "v1", "kind": "Binding", "metadata": {"name": name},
            "target": {"kind": "Node", "name": "n3"},
        });
        let pod = format!(
            "{}/p{}",
            Subject::Pods.collection(&self.namespace),
            self.rng.u8(..6)
        );
        if self.rng.u8(..4) == 0 {
            return Step::post(format!("{path}/binding"), binding);
        }
        let mut binding = binding;
        binding["metadata"]["name"] = json!(pod.rsplit('/').next());
        Step::post(format!("{pod}/binding"), binding)
    }

    fn delete_collection(&mut self, collection: &str) -> Step {
        let selector = one(&mut self.rng, &["app=a,tier=y", "extra", "app=b,tier=x"]);
        Step::delete(collection, Value::Null).query("labelSelector", selector)
    }

    fn list(&mut self, subject: Subject, collection: &str) -> Step {
        let rng = &mut self.rng;
        let mut step = Step::get(collection);
        match rng.u8(..4) {
            0 => step = step.query("labelSelector", one(rng, LABEL_SELECTORS)),
            1 => {
                let selector = match subject {
                    Subject::Pods => one(rng, POD_FIELDS),
                    _ => one(rng, ANY_FIELDS),
                };
                step = step.query("fieldSelector", selector);
            }
            2 => {
                step = step.query("labelSelector", one(rng, LABEL_SELECTORS));
                step = step.query("fieldSelector", one(rng, ANY_FIELDS));
            }
            _ => {}
        }
        if rng.u8(..3) == 0 {
            step = step.query("limit", one(rng, &["1", "2", "3", "500", "x"]));
        }
        let (version, matching) = one(rng, LIST_VERSIONS);
        if let Some(version) = version {
            step = step.query("resourceVersion", version);
        }
        match matching {
            Some(matching) => step.query("resourceVersionMatch", matching),
            None => step,
        }
    }
}

const LABEL_SELECTORS: &[&str] = &[
    "app=a",
    "app==b",
    "app!=a",
    "app in (a, b)",
    "app notin (a),tier",
    "tier=x,app=b",
    "!tier",
    "!app,!tier",
    "extra",
    "app in (",
    "app=bad value!",
    "bad key!=x",
    "app=",
    ",",
];

const POD_FIELDS: &[&str] = &[
    "status.phase=Running",
    "status.phase!=Pending",
    "spec.nodeName=n1",
    "spec.nodeName=",
    "spec.restartPolicy=Never,status.phase=Pending",
    "spec.image=x",
];

const ANY_FIELDS: &[&str] = &[
    "metadata.name=p1",
    "metadata.name!=r1",
    "metadata.namespace=elsewhere",
    "metadata.name==c0",
    "metadata.name",
    "nothing=1",
];

const LIST_VERSIONS: &[(Option<&str>, Option<&str>)] = &[
    (None, None),
    (None, None),
    (None, None),
    (None, None),
    (None, None),
    (Some("0"), None),
    (Some("{version start}"), None),
    (Some("{version start}"), Some("NotOlderThan")),
    (Some("{version start}"), Some("Exact")),
    (Some("0"), Some("Exact")),
    (Some("0"), Some("NotOlderThan")),
    (None, Some("Exact")),
    (Some("{version start}"), Some("Sometimes")),
    (Some("x"), None),
];

fn metadata_patch(rng: &mut Rng) -> Value {
    one(
        rng,
        &[
            json!({"metadata": {"finalizers": ["example.com/second"]}}),
            json!({"metadata": {"$deleteFromPrimitiveList/finalizers": ["example.com/hold"]}}),
            json!({"metadata": {"ownerReferences": [{"$patch": "delete", "uid": NO_UID}]}}),
            json!({"metadata": {"ownerReferences": [{
                "apiVersion": "v1", "kind": "Thing", "name": "t", "uid": NO_UID,
            }]}}),
            json!({"metadata": {"labels": {"$patch": "replace", "app": "a"}}}),
            json!({"metadata": {"annotations": {"$patch": "delete"}}}),
        ],
    )
}

fn containers_patch(rng: &mut Rng) -> Value {
    let containers = one(
        rng,
        &[
            json!([{"name": "c", "image": "i:9"}]),
            json!([{"image": "i:9"}]),
            json!([{"name": "new", "image": "i:9"}]),
        ],
    );
    json!({"spec": {"containers": containers}})
}

fn template_patch(rng: &mut Rng) -> Value {
    let containers = one(
        rng,
        &[
            json!([{"name": "c", "image": "i:8"}]),
            json!([{"name": "d", "$patch": "delete"}]),
            json!([{"name": "e", "image": "i:3"}]),
        ],
    );
    json!({"spec": {"template": {"spec": {"containers": containers}}}})
}

fn json_patch(rng: &mut Rng) -> Value {
    one(
        rng,
        &[
            json!([{"op": "add", "path": "/metadata/labels", "value": {"app": "b"}}]),
            json!([{"op": "add", "path": "/metadata/labels/extra", "value": "2"}]),
            json!([{"op": "replace", "path": "/metadata/labels/app", "value": "a"}]),
            json!([{"op": "remove", "path": "/metadata/labels/tier"}]),
            json!([{"op": "remove", "path": "/metadata/finalizers"}]),
            json!([{"op": "test", "path": "/metadata/labels/app", "value": "a"},
                   {"op": "add", "path": "/metadata/annotations", "value": {"tested": "yes"}}]),
            json!([{"op": "test", "path": "/metadata/name", "value": "nobody"}]),
            json!([{"op": "replace", "path": "/metadata/labels/extra", "value": "2"}]),
            json!([{"op": "copy", "from": "/metadata/name", "path": "/metadata/labels/app"}]),
            json!([{"op": "jump", "path": "/metadata/name"}]),
            json!({"op": "add"}),
        ],
    )
}
