//! Custom resources: definitions and their objects.

use serde_json::{Value, json};

use super::rig::{PODS, Rig, names, pod, uid};
use crate::DevServerOptions;

const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const WIDGETS: &str = "/apis/example.com/v1/namespaces/default/widgets";

fn definition() -> Value {
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "widgets.example.com"},
        "spec": {
            "group": "example.com", "scope": "Namespaced",
            "names": {"plural": "widgets", "kind": "Widget", "shortNames": ["wd"]},
            "versions": [
                {"name": "v1beta1", "served": true, "storage": false},
                {"name": "v1", "served": true, "storage": true,
                    "subresources": {"status": {}, "scale": {
                        "specReplicasPath": ".spec.size",
                        "statusReplicasPath": ".status.size",
                        "labelSelectorPath": ".status.selector",
                    }},
                    "additionalPrinterColumns": [
                        {"name": "Size", "type": "integer", "jsonPath": ".spec.size"},
                        {"name": "Full", "type": "boolean", "jsonPath": ".full", "priority": 1}],
                    "schema": {"openAPIV3Schema": {
                        "type": "object", "x-kubernetes-preserve-unknown-fields": true}}},
            ],
        },
    })
}

fn widget(name: &str) -> Value {
    json!({
        "apiVersion": "example.com/v1", "kind": "Widget",
        "metadata": {"name": name}, "spec": {"size": 3}, "status": {"size": 1},
    })
}

fn with_widgets() -> Rig {
    let rig = Rig::new();
    assert_eq!(rig.get(WIDGETS).0, 404);
    rig.ok("POST", DEFINITIONS, &definition());
    rig
}

#[test]
fn a_definition_without_paths_has_no_scale() {
    let rig = Rig::new();
    let mut definition = definition();
    definition["spec"]["versions"][1]["subresources"]["scale"] = json!({});
    rig.ok("POST", DEFINITIONS, &definition);
    rig.ok("POST", WIDGETS, &widget("a"));
    let path = format!("{WIDGETS}/a/scale");
    let scale = json!({"metadata": {"name": "a"}, "spec": {"replicas": 2}});
    assert_eq!(rig.send("PUT", &path, &scale).0, 404);
}

#[test]
fn an_established_definition_is_in_discovery() {
    let rig = with_widgets();
    let established = rig.get(&format!("{DEFINITIONS}/widgets.example.com")).1;
    let condition = &established["status"]["conditions"][1];
    assert_eq!(
        (&condition["type"], &condition["status"]),
        (&json!("Established"), &json!("True"))
    );
    let group = rig.get("/apis/example.com").1;
    assert_eq!(group["preferredVersion"]["version"], json!("v1"));
    assert_eq!(group["versions"].as_array().map(Vec::len), Some(2));
    let resources = rig.get("/apis/example.com/v1").1;
    let widgets = &resources["resources"][0];
    assert_eq!(widgets["shortNames"], json!(["wd"]));
    assert_eq!(resources["resources"][2]["name"], json!("widgets/scale"));
    let aggregated = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
    let groups = rig.get_as(aggregated, "/apis").to_string();
    assert!(
        groups.contains("\"singularResource\":\"widget\""),
        "{groups}"
    );
    let paths = rig.get("/openapi/v3").1;
    assert!(paths["paths"]["apis/example.com/v1"].is_object(), "{paths}");
}

#[test]
fn custom_objects_have_status_scale_and_generation() {
    let rig = with_widgets();
    let mut watch = rig.watch(WIDGETS, "resourceVersion=0");
    let created = rig.ok("POST", WIDGETS, &widget("w"));
    assert_eq!(created.get("status"), None);
    assert!(watch.brief().starts_with("ADDED w "));
    let path = format!("{WIDGETS}/w");
    let merge = |path: &str, patch: &Value| {
        let kind = "application/merge-patch+json";
        rig.send_as(kind, "PATCH", path, &patch.to_string())
    };
    let status = json!({"spec": {"size": 9}, "status": {"size": 2, "selector": "a=b"}});
    assert_eq!(merge(&format!("{path}/status"), &status).0, 200);
    let (code, scale) = merge(&format!("{path}/scale"), &json!({"spec": {"replicas": 4}}));
    assert_eq!(code, 200, "{scale}");
    assert_eq!(scale["status"], json!({"replicas": 2, "selector": "a=b"}));
    let (_, changed) = merge(&path, &json!({"other": [1], "status": {"size": 7}}));
    assert_eq!(changed["spec"], json!({"size": 4}));
    assert_eq!(changed["status"]["size"], json!(2));
    assert_eq!(changed["metadata"]["generation"], json!(3));
    let (code, _) = rig.patch(&path, &json!({"spec": {"size": 5}}));
    assert_eq!(code, 415, "custom resources have no strategic merge patch");
    let table = rig.table(WIDGETS);
    // A definition with columns has no others.
    assert_eq!(table["rows"][0]["cells"], json!(["w", 4, "<none>"]));
    let wide = &table["columnDefinitions"][2]["priority"];
    assert_eq!(wide, &json!(1), "only of wide tables");
    let beta = rig.get(&path.replace("/v1/", "/v1beta1/")).1;
    assert_eq!(beta["apiVersion"], json!("example.com/v1beta1"));
}

#[test]
fn an_apply_replaces_the_lists_of_a_custom_object() {
    let rig = with_widgets();
    let path = format!("{WIDGETS}/w?fieldManager=m");
    let apply = |ports: Value| {
        let mut config = widget("w");
        config["spec"]["ports"] = ports;
        config["metadata"]["finalizers"] = json!(["example.com/hold"]);
        let kind = "application/apply-patch+yaml";
        rig.send_as(kind, "PATCH", &path, &config.to_string())
    };
    assert_eq!(apply(json!([80, 443])).0, 201);
    let (code, applied) = apply(json!([8080]));
    assert_eq!((code, &applied["spec"]["ports"]), (200, &json!([8080])));
}

#[test]
fn a_changed_definition_changes_what_is_served() {
    let rig = with_widgets();
    rig.ok("POST", WIDGETS, &widget("w"));
    let path = format!("{DEFINITIONS}/widgets.example.com");
    let mut changed = rig.get(&path).1;
    changed["spec"]["versions"][0]["served"] = json!(false);
    rig.ok("PUT", &path, &changed);
    let beta = WIDGETS.replace("/v1/", "/v1beta1/");
    let (code, error) = rig.get(&beta);
    let message = error["message"].as_str().unwrap_or_default();
    assert_eq!(code, 404);
    assert!(message.contains("does not serve example.com/v1beta1, but example.com/v1"));
    assert_eq!(names(&rig.get(WIDGETS).1), ["w"]);
}

#[test]
fn the_objects_of_a_definition_are_deleted_with_it() {
    let rig = with_widgets();
    rig.ok("POST", WIDGETS, &widget("w"));
    let path = format!("{DEFINITIONS}/widgets.example.com");
    let mut watch = rig.watch(WIDGETS, "resourceVersion=0");
    assert!(watch.brief().starts_with("ADDED w "));
    assert_eq!(rig.delete(&path, &json!({})).0, 200);
    assert!(watch.brief().starts_with("DELETED w "));
    assert_eq!(rig.get(WIDGETS).0, 404);
    rig.ok("POST", DEFINITIONS, &definition());
    assert_eq!(names(&rig.get(WIDGETS).1), [""; 0]);
}

/// The collector knows that the owner is gone, though nothing serves its kind any more.
#[test]
fn dependents_are_deleted_with_their_owners_definition() {
    let rig = Rig::with(&DevServerOptions {
        garbage_collection: true,
        ..DevServerOptions::default()
    });
    rig.ok("POST", DEFINITIONS, &definition());
    let created = rig.ok("POST", WIDGETS, &widget("w"));
    let mut owned = pod("p");
    owned["metadata"]["ownerReferences"] = json!([{
        "apiVersion": "example.com/v1", "kind": "Widget", "name": "w", "uid": uid(&created),
    }]);
    rig.ok("POST", PODS, &owned);
    rig.delete(&format!("{DEFINITIONS}/widgets.example.com"), &json!({}));
    rig.collected(|rig| rig.get(&format!("{PODS}/p")).0 == 404);
}

#[test]
fn a_dry_run_of_a_definition_serves_nothing() {
    let rig = Rig::new();
    rig.ok("POST", &format!("{DEFINITIONS}?dryRun=All"), &definition());
    assert_eq!(rig.get(WIDGETS).0, 404);
    let mut wrong = definition();
    wrong["metadata"]["name"] = json!("gadgets.example.com");
    assert_eq!(rig.send("POST", DEFINITIONS, &wrong).0, 422);
}

#[test]
fn custom_objects_are_saved_with_their_definition() {
    let rig = with_widgets();
    rig.ok("POST", WIDGETS, &widget("w"));
    let mut documents = rig.server.dump();
    let other = Rig::new();
    assert_eq!(other.server.load(&documents), Ok(()));
    assert_eq!(other.server.dump(), documents);
    // The order in the file does not matter.
    documents.reverse();
    let third = Rig::new();
    assert_eq!(third.server.load(&documents), Ok(()));
    let kept = third.server.object("widgets", "default", "w");
    assert_eq!(kept.expect("the widget")["spec"], json!({"size": 3}));
}

#[test]
fn schemas_are_enforced_and_rules_are_not() {
    let rig = Rig::new();
    let mut definition = definition();
    let version = &mut definition["spec"]["versions"][1];
    version["schema"]["openAPIV3Schema"] = json!({"type": "object", "properties": {
        "spec": {"type": "object", "required": ["size"], "properties": {
            "size": {"type": "integer", "minimum": 1},
            "mode": {"type": "string", "default": "fast"},
        }, "x-kubernetes-validations": [{"rule": "self.size < 9"}]},
        "status": {"type": "object", "properties": {"size": {"type": "integer"}}},
    }});
    let warning = "299 - \"the dev server does not evaluate x-kubernetes-validations\"";
    assert_eq!(rig.warnings("POST", DEFINITIONS, &definition), [warning]);
    let mut own = widget("a");
    own["spec"]["sise"] = json!(1);
    let strict = format!("{WIDGETS}?fieldValidation=Strict");
    let (code, error) = rig.send("POST", &strict, &own);
    let message = error["message"].as_str().unwrap_or_default();
    assert!(
        code == 400 && message.ends_with("unknown field \"spec.sise\""),
        "{error}"
    );
    let created = rig.ok("POST", WIDGETS, &own);
    assert_eq!(created["spec"], json!({"size": 3, "mode": "fast"}));
    own["metadata"]["name"] = json!("b");
    own["spec"]["size"] = json!(0);
    let (code, error) = rig.send("POST", WIDGETS, &own);
    let message = error["message"].as_str().unwrap_or_default();
    let why = "spec.size: Invalid value: 0: spec.size in body should be greater than or equal to 1";
    assert!(code == 422 && message.ends_with(why), "{error}");
    let path = format!("{WIDGETS}/a/status");
    let status = json!({"status": {"size": "x"}});
    let merge = "application/merge-patch+json";
    assert_eq!(
        rig.send_as(merge, "PATCH", &path, &status.to_string()).0,
        422
    );
}
