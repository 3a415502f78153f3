//! Pods and pod templates: defaults, and checks for common mistakes.

use serde_json::{Map, Value, json};

use crate::api::pod::{POD_DELETION_COST, deletion_cost};
use crate::objects::{drop_nulls, entries, labels, map_of, set_default, text};
use crate::status_error::FieldError;

/// kubernetes `pkg/apis/core/v1/defaults.go`,
/// `api/core/v1/types.go:DefaultTerminationGracePeriodSeconds`.
const TERMINATION_GRACE_PERIOD_SECONDS: i64 = 30;

/// The valid restart policies, as error messages list them.
const RESTART_POLICIES: &str = "\"Always\", \"OnFailure\", \"Never\"";

/// Sets the defaults of a pod.
pub(crate) fn set_defaults(pod: &mut Value) {
    drop_nulls(&mut pod["spec"]);
    let spec = map_of(pod, "spec");
    set_spec_defaults(spec);
    set_default(spec, "enableServiceLinks", true);
}

/// Sets the defaults common to templates and pods.
pub(crate) fn set_spec_defaults(spec: &mut Map<String, Value>) {
    set_default(spec, "restartPolicy", "Always");
    let grace = TERMINATION_GRACE_PERIOD_SECONDS;
    set_default(spec, "terminationGracePeriodSeconds", grace);
    set_default(spec, "dnsPolicy", "ClusterFirst");
    set_default(spec, "schedulerName", "default-scheduler");
    set_default(spec, "securityContext", json!({}));
    for list in ["containers", "initContainers"] {
        let containers = spec.get_mut(list).and_then(Value::as_array_mut);
        let maps = containers.into_iter().flatten();
        maps.filter_map(Value::as_object_mut)
            .for_each(set_container_defaults);
    }
}

fn set_container_defaults(container: &mut Map<String, Value>) {
    let image = container.get("image").and_then(Value::as_str);
    let image = image.unwrap_or_default();
    let last = image.rsplit('/').next().unwrap_or_default();
    let is_latest = !image.contains('@') && (!last.contains(':') || last.ends_with(":latest"));
    let pull_policy = if is_latest { "Always" } else { "IfNotPresent" };
    set_default(container, "resources", json!({}));
    set_default(container, "terminationMessagePath", "/dev/termination-log");
    set_default(container, "terminationMessagePolicy", "File");
    set_default(container, "imagePullPolicy", pull_policy);
}

/// Keeps the owner references, which a status request cannot change. Sets the status fields that
/// are not pointers in the API server's types, some to `null`.
pub(crate) fn prepare_status(old: &Value, pod: &mut Value) {
    let metadata = map_of(pod, "metadata");
    match old["metadata"].get("ownerReferences") {
        Some(owners) => metadata.insert("ownerReferences".to_owned(), owners.clone()),
        None => metadata.remove("ownerReferences"),
    };
    let status = map_of(pod, "status");
    for (list, names, value) in [
        (
            "conditions",
            ["lastProbeTime", "lastTransitionTime"],
            Value::Null,
        ),
        ("containerStatuses", ["state", "lastState"], json!({})),
        ("initContainerStatuses", ["state", "lastState"], json!({})),
    ] {
        let entries = status.get_mut(list).and_then(Value::as_array_mut);
        let entries = entries.into_iter().flatten();
        for entry in entries.filter_map(Value::as_object_mut) {
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
        let amounts = container["resources"][side].as_object();
        let mut amounts = amounts.into_iter().flatten();
        amounts.any(|(name, amount)| matches!(name.as_str(), "cpu" | "memory") && *amount != "0")
    };
    if !containers().any(|container| counts(container, "requests") || counts(container, "limits")) {
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

pub(crate) fn validate(pod: &Value) -> Vec<FieldError> {
    let mut errors = validate_annotations(pod, "/metadata/annotations", "metadata.annotations");
    errors.extend(validate_containers(pod, ""));
    let policy = text(pod, "/spec/restartPolicy");
    if !matches!(policy, "Always" | "OnFailure" | "Never") {
        let (value, supported) = (json!(policy).to_string(), RESTART_POLICIES);
        errors.push(FieldError::not_supported(
            "spec.restartPolicy",
            &value,
            supported,
        ));
    }
    errors
}

/// The errors of the annotations at `pointer` that have a meaning on pods; messages call the path
/// `field` (kubernetes `pkg/apis/core/validation/validation.go:ValidatePodSpecificAnnotations`).
pub(crate) fn validate_annotations(object: &Value, pointer: &str, field: &str) -> Vec<FieldError> {
    let annotations = object.pointer(pointer).unwrap_or(&Value::Null);
    let Some(cost) = annotations[POD_DELETION_COST].as_str() else {
        return Vec::new();
    };
    if deletion_cost(cost).is_some() {
        return Vec::new();
    }
    let field = format!("{field}[{POD_DELETION_COST}]");
    let value = json!(cost).to_string();
    vec![FieldError::invalid(
        &field,
        &value,
        "must be a 32bit integer",
    )]
}

/// The errors of a template's annotations, which the API server reports under another path.
pub(crate) fn validate_template_annotations(object: &Value) -> Vec<FieldError> {
    let pointer = "/spec/template/metadata/annotations";
    validate_annotations(object, pointer, "spec.template.annotations")
}

/// The errors of the containers in a pod, or in the template at `prefix`, such as `spec.template.`.
pub(crate) fn validate_containers(object: &Value, prefix: &str) -> Vec<FieldError> {
    let field = format!("{prefix}spec.containers");
    let containers = entries(object, &format!("/{}", field.replace('.', "/")));
    if containers.is_empty() {
        return vec![FieldError::required(&field, "")];
    }
    let mut errors = Vec::new();
    for (index, container) in containers.iter().enumerate() {
        let name = text(container, "/name");
        let name_field = format!("{field}[{index}].name");
        if name.is_empty() {
            errors.push(FieldError::required(&name_field, ""));
        } else if !labels::is_label(name) {
            let why = "a lowercase RFC 1123 label must consist of lower case alphanumeric \
                       characters or '-', and must start and end with an alphanumeric character \
                       (e.g. 'my-name',  or '123-abc', regex used for validation is \
                       '[a-z0-9]([-a-z0-9]*[a-z0-9])?')";
            let value = json!(name).to_string();
            errors.push(FieldError::invalid(&name_field, &value, why));
        }
        if text(container, "/image").trim().is_empty() {
            errors.push(FieldError::required(&format!("{field}[{index}].image"), ""));
        }
    }
    errors
}

/// Most of a pod's spec is immutable.
pub(crate) fn validate_update(old: &Value, new: &Value) -> Vec<FieldError> {
    let of_annotations =
        || validate_annotations(new, "/metadata/annotations", "metadata.annotations");
    let n_containers = |pod: &Value| entries(pod, "/spec/containers").len();
    if n_containers(old) != n_containers(new) {
        let mut errors = validate(new);
        let why = "pod updates may not add or remove containers";
        errors.push(FieldError::forbidden("spec.containers", why));
        return errors;
    }
    // Upstream validates these as a new pod's and as a changed pod's, so the causes list them
    // twice.
    let mut errors = of_annotations();
    errors.extend(of_annotations());
    if changeable_blanked(&old["spec"]) == changeable_blanked(&new["spec"]) {
        return errors;
    }
    let why = "pod updates may not change fields other than `spec.containers[*].image`,\
               `spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` \
               (only additions to existing tolerations),`spec.terminationGracePeriodSeconds` \
               (allow it to be set to 1 if it was previously negative)";
    errors.push(FieldError::forbidden("spec", why));
    errors
}

/// The spec without its mutable fields.
fn changeable_blanked(spec: &Value) -> Value {
    let mut spec = spec.clone();
    drop_nulls(&mut spec);
    let Some(map) = spec.as_object_mut() else {
        return spec;
    };
    for name in ["activeDeadlineSeconds", "tolerations", "schedulingGates"] {
        map.remove(name);
    }
    for list in ["containers", "initContainers"] {
        let containers = map.get_mut(list).and_then(Value::as_array_mut);
        for container in containers.into_iter().flatten() {
            if let Some(container) = container.as_object_mut() {
                container.remove("image");
            }
        }
    }
    spec
}

/// True for a Succeeded or Failed pod, which no longer counts against a quota.
pub(crate) fn is_terminal(pod: &Value) -> bool {
    matches!(text(pod, "/status/phase"), "Succeeded" | "Failed")
}
