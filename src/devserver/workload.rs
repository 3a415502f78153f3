//! Pods, and the kinds with a pod template: defaults, checks for common mistakes, and status
//! counts. Pure.

use serde_json::{Map, Value, json};

use crate::api::label_selector::LabelSelector;
use crate::api::pod::{POD_DELETION_COST, deletion_cost};
use crate::api::{Labels, Selector};
use crate::json::{
    add_missing, drop_nulls, entries, map_of, maps_mut, members, number, set_default, text,
};
use crate::kubelet::behaviour;
use crate::metadata::{ordered_text, validate_maps};
use crate::status_error::FieldError;

/// Status counts that the API server omits when they are 0.
const OMITTED_WHEN_ZERO: [&str; 4] = [
    "fullyLabeledReplicas",
    "readyReplicas",
    "availableReplicas",
    "observedGeneration",
];

pub(crate) fn set_pod_defaults(pod: &mut Value) {
    drop_nulls(&mut pod["spec"]);
    set_default(map_of(pod, "spec"), "enableServiceLinks", true);
    for list in ["/spec/containers", "/spec/initContainers"] {
        for container in maps_mut(pod, list) {
            let resources = container.get_mut("resources");
            if let Some(resources) = resources.and_then(Value::as_object_mut)
                && let Some(limits) = resources.get("limits").cloned()
            {
                let requests = resources.entry("requests").or_insert_with(|| json!({}));
                add_missing(requests, &limits);
            }
        }
    }
}

/// Drops what Go does not read; the types of `schema` have the defaults.
pub(crate) fn set_template_defaults(template: &mut Value) {
    drop_nulls(template);
    map_of(template, "metadata");
    map_of(template, "spec");
}

/// Keeps the owner references, which a status request cannot change. Sets the status fields that
/// are not pointers in the API server's types, some to `null`.
pub(crate) fn prepare_pod_status(old: &Value, pod: &mut Value) {
    let metadata = map_of(pod, "metadata");
    match old["metadata"].get("ownerReferences") {
        Some(owners) => metadata.insert("ownerReferences".to_owned(), owners.clone()),
        None => metadata.remove("ownerReferences"),
    };
    map_of(pod, "status");
    let of_containers = (["state", "lastState"], json!({}));
    for (list, (names, value)) in [
        (
            "conditions",
            (["lastProbeTime", "lastTransitionTime"], Value::Null),
        ),
        ("containerStatuses", of_containers.clone()),
        ("initContainerStatuses", of_containers),
    ] {
        for entry in maps_mut(pod, &format!("/status/{list}")) {
            for name in names {
                set_default(entry, name, value.clone());
            }
        }
    }
}

/// `BestEffort`, `Burstable` or `Guaranteed`, from the containers' requests and limits (kubernetes
/// `pkg/apis/core/helper/qos/qos.go:ComputePodQOS`).
pub(crate) fn qos_class(pod: &Value) -> &'static str {
    let lists = ["/spec/containers", "/spec/initContainers"];
    let containers = || lists.into_iter().flat_map(|list| entries(pod, list));
    let counts = |container: &Value, side: &str| {
        let mut amounts = members(&container["resources"], side);
        amounts.any(|(name, amount)| matches!(name.as_str(), "cpu" | "memory") && *amount != "0")
    };
    if !containers().any(|it| counts(it, "/requests") || counts(it, "/limits")) {
        return "BestEffort";
    }
    let is_fixed = |container: &Value| {
        ["cpu", "memory"].into_iter().all(|name| {
            let limit = container["resources"]["limits"].get(name);
            let request = container["resources"]["requests"].get(name);
            limit.is_some() && (request.is_none() || request == limit)
        })
    };
    if containers().all(is_fixed) {
        "Guaranteed"
    } else {
        "Burstable"
    }
}

pub(crate) fn validate_pod(pod: &Value) -> Vec<FieldError> {
    validate_annotations(pod, "/metadata/annotations", "metadata.annotations")
}

/// The errors of a pod's annotations at `pointer`; messages call the path `field` (kubernetes
/// `pkg/apis/core/validation/validation.go:ValidatePodSpecificAnnotations`).
///
/// DIFFERS: those of the simulated nodes are checked as well.
fn validate_annotations(object: &Value, pointer: &str, field: &str) -> Vec<FieldError> {
    let annotations = object.pointer(pointer).unwrap_or(&Value::Null);
    let cost = annotations[POD_DELETION_COST].as_str();
    let bad = cost.filter(|cost| deletion_cost(cost).is_none());
    let of_cost = format!("{field}[{POD_DELETION_COST}]");
    let error = bad.map(|cost| FieldError::invalid(&of_cost, cost, "must be a 32bit integer"));
    error
        .into_iter()
        .chain(behaviour::validate(annotations, field))
        .collect()
}

/// Most of a pod's spec is immutable.
pub(crate) fn validate_pod_update(old: &Value, new: &Value) -> Vec<FieldError> {
    let mut errors = validate_pod(new);
    let n_containers = |pod: &Value| entries(pod, "/spec/containers").len();
    if n_containers(old) != n_containers(new) {
        let why = "pod updates may not add or remove containers";
        errors.push(FieldError::forbidden("spec.containers", why));
        return errors;
    }
    // Upstream validates these as a new pod's and as a changed pod's, so the causes list them
    // twice.
    errors.extend(errors.clone());
    if changeable_blanked(&old["spec"]) != changeable_blanked(&new["spec"]) {
        let why = "pod updates may not change fields other than `spec.containers[*].image`,\
                   `spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` \
                   (only additions to existing tolerations),`spec.terminationGracePeriodSeconds` \
                   (allow it to be set to 1 if it was previously negative)";
        errors.push(FieldError::forbidden("spec", why));
    }
    errors
}

/// The spec without its mutable fields.
fn changeable_blanked(spec: &Value) -> Value {
    let mut spec = spec.clone();
    drop_nulls(&mut spec);
    for list in ["/containers", "/initContainers"] {
        for container in maps_mut(&mut spec, list) {
            container.remove("image");
        }
    }
    if let Some(map) = spec.as_object_mut() {
        let names = ["activeDeadlineSeconds", "tolerations", "schedulingGates"];
        map.retain(|name, _| !names.contains(&name.as_str()));
    }
    spec
}

/// True for a Succeeded or Failed pod, which no longer counts against a quota.
pub(crate) fn is_terminal(pod: &Value) -> bool {
    matches!(text(pod, "/status/phase"), "Succeeded" | "Failed")
}

/// Sets the defaults of a ReplicaSet.
///
/// DIFFERS: the API server drops unknown fields. Here they stay, so that a test can follow a field
/// from a template into a pod.
pub(crate) fn set_replica_set_defaults(replica_set: &mut Value) {
    set_count_defaults(replica_set);
    // In Go the template is a struct, not a pointer, so every ReplicaSet has one.
    set_template_defaults(&mut replica_set["spec"]["template"]);
}

fn set_count_defaults(replica_set: &mut Value) {
    drop_nulls(&mut replica_set["spec"]);
    let spec = map_of(replica_set, "spec");
    set_default(spec, "replicas", 1);
    if spec.get("minReadySeconds") == Some(&json!(0)) {
        spec.remove("minReadySeconds");
    }
}

/// Sets the defaults of a ReplicationController: selector and labels are the template's labels
/// (kubernetes `pkg/apis/core/v1/defaults.go:SetDefaults_ReplicationController`).
pub(crate) fn set_controller_defaults(controller: &mut Value) {
    set_count_defaults(controller);
    if let Some(template) = map_of(controller, "spec").get_mut("template") {
        set_template_defaults(template);
    }
    let is_full = |map: &Value| map.as_object().is_some_and(|map| !map.is_empty());
    let labels = controller.pointer("/spec/template/metadata/labels");
    let Some(labels) = labels.cloned().filter(is_full) else {
        return;
    };
    for (member, name) in [("spec", "selector"), ("metadata", "labels")] {
        let map = map_of(controller, member);
        if !map.get(name).is_some_and(is_full) {
            map.insert(name.to_owned(), labels.clone());
        }
    }
}

/// Normalizes a status as the API server does, without counts that are 0.
pub(crate) fn prepare_counts(replica_set: &mut Value) {
    drop_nulls(&mut replica_set["status"]);
    let status = map_of(replica_set, "status");
    status.retain(|name, value| {
        let is_zero = *value == 0 && OMITTED_WHEN_ZERO.contains(&name.as_str());
        let is_empty = value.as_array().is_some_and(Vec::is_empty);
        !(is_zero || is_empty)
    });
    set_default(status, "replicas", 0);
}

pub(crate) fn validate_replica_set(replica_set: &Value) -> Vec<FieldError> {
    let mut errors = validate_counts(replica_set);
    errors.extend(validate_selector(replica_set));
    errors.extend(validate_restart_policy(replica_set));
    errors.extend(validate_maps(replica_set, "spec.template.metadata"));
    errors.extend(validate_template(replica_set));
    errors
}

/// The errors of a ReplicationController. Its selector is a plain map and may change.
pub(crate) fn validate_controller(controller: &Value) -> Vec<FieldError> {
    let mut errors = validate_counts(controller);
    let selector = controller.pointer("/spec/selector");
    let selector = selector.and_then(Value::as_object);
    if selector.is_none_or(Map::is_empty) {
        errors.push(FieldError::required("spec.selector", ""));
    }
    if controller.pointer("/spec/template").is_none() {
        errors.push(FieldError::required("spec.template", ""));
        return errors;
    }
    let labels = controller.pointer("/spec/template/metadata/labels");
    let labels = labels.unwrap_or(&Value::Null);
    let mut pairs = selector.into_iter().flatten();
    if !pairs.all(|(name, value)| labels.get(name) == Some(value)) {
        errors.push(mismatch(labels));
    }
    errors.extend(validate_maps(controller, "spec.template.metadata"));
    if !entries(controller, "/spec/template/spec/containers").is_empty() {
        errors.extend(validate_restart_policy(controller));
    }
    errors.extend(validate_template(controller));
    errors
}

fn mismatch(labels: &Value) -> FieldError {
    let why = "`selector` does not match template `labels`";
    FieldError::invalid("spec.template.metadata.labels", labels, why)
}

fn validate_restart_policy(object: &Value) -> Option<FieldError> {
    let policy = text(object, "/spec/template/spec/restartPolicy");
    let field = "spec.template.spec.restartPolicy";
    (policy != "Always").then(|| FieldError::not_supported(field, policy, &["Always"]))
}

/// The errors of the template of a Job, whose pods end.
pub(crate) fn validate_job(job: &Value) -> Vec<FieldError> {
    let mut errors = validate_template(job);
    if text(job, "/spec/template/spec/restartPolicy") == "Always" {
        let (field, why) = (
            "spec.template.spec.restartPolicy",
            "valid values: \"OnFailure\", \"Never\"",
        );
        errors.push(FieldError::required(field, why));
    }
    errors
}

/// The errors of a template's annotations, which the API server reports under another path.
fn validate_template(object: &Value) -> Vec<FieldError> {
    let pointer = "/spec/template/metadata/annotations";
    validate_annotations(object, pointer, "spec.template.annotations")
}

fn validate_counts(replica_set: &Value) -> Vec<FieldError> {
    let count = |name: &str| number(replica_set, &format!("/spec/{name}")).unwrap_or(0);
    let names = ["replicas", "minReadySeconds"];
    let negative = names.into_iter().filter(|name| count(name) < 0);
    let error = |name: &str| FieldError::negative(&format!("spec.{name}"), count(name));
    negative.map(error).collect()
}

fn validate_selector(replica_set: &Value) -> Vec<FieldError> {
    let labels = replica_set.pointer("/spec/template/metadata/labels");
    let mismatch = || mismatch(labels.unwrap_or(&Value::Null));
    let Some(value) = replica_set.pointer("/spec/selector") else {
        return vec![FieldError::required("spec.selector", ""), mismatch()];
    };
    let selector = serde_json::from_value::<LabelSelector>(value.clone());
    let selector = selector
        .map_err(|error| error.to_string())
        .and_then(|selector| Selector::new(selector).map_err(|error| error.to_string()));
    let fault = match &selector {
        Ok(selector) if selector.is_empty() => "empty selector is invalid for deployment",
        Ok(selector) => {
            let pairs = labels.and_then(Value::as_object).into_iter().flatten();
            let pairs = pairs.map(|(name, value)| {
                let value = value.as_str().unwrap_or_default();
                (name.as_str(), value)
            });
            let matches = selector.matches(&pairs.collect::<Labels>());
            return Vec::from_iter((!matches).then(mismatch));
        }
        Err(error) => error,
    };
    vec![FieldError::invalid("spec.selector", value, fault)]
}

pub(crate) fn validate_selector_update(old: &Value, new: &Value) -> Option<FieldError> {
    let (old, new) = (&old["spec"]["selector"], &new["spec"]["selector"]);
    let text = ordered_text(new, "matchLabels matchExpressions");
    let error = || FieldError::invalid_text("spec.selector", &text, "field is immutable");
    (old != new).then(error)
}
