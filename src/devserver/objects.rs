//! Defaults, status and validation per kind: one dispatch, and the kinds that need a few lines.
//! Pure functions on JSON trees without `kind` and `apiVersion`.
//!
//! DIFFERS: a new node gets no taint `not-ready`, because no controller here would remove it.

use std::collections::BTreeMap;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use serde_json::{Value, json};

use crate::json::{add_missing, entries, hash_of, map_of, maps_mut, members, set_default, text};
use crate::resource::{Resource, Row, Template};
use crate::status_error::FieldError;
use crate::{custom, metadata, quota, rules, schema, structural, workload};

pub(crate) fn set_defaults(resource: Resource, object: &mut Value) {
    for defaults in &resource.row().defaults {
        add_missing(object, defaults);
    }
    match resource {
        Resource::Namespaces => {
            let name = object["metadata"]["name"].clone();
            object["metadata"]["labels"]["kubernetes.io/metadata.name"] = name;
        }
        Resource::Pods => workload::set_pod_defaults(object),
        Resource::ReplicaSets => workload::set_replica_set_defaults(object),
        Resource::ReplicationControllers => workload::set_controller_defaults(object),
        Resource::Quotas => set_quota_defaults(object),
        Resource::Definitions => custom::set_defaults(object),
        Resource::Plain(row) if row.is_custom => return complete_custom(resource, object),
        Resource::Plain(row) => set_plain_defaults(row, object),
        _ => {}
    }
    schema::set_defaults(resource, object);
}

/// Removes what the schema of a custom resource does not have, and adds its defaults.
fn complete_custom(resource: Resource, object: &mut Value) {
    let schema = &resource.row().schema;
    if schema.is_object() {
        structural::prune(schema, object);
        structural::set_defaults(schema, object);
    }
}

/// Sets what the server adds to a new object only.
pub(crate) fn complete_new(resource: Resource, object: &mut Value) {
    let is_mirror = !object["metadata"]["annotations"]["kubernetes.io/config.mirror"].is_null();
    if resource == Resource::Pods
        && !is_mirror
        && text(object, "/spec/serviceAccountName").is_empty()
    {
        // The rest of this admission, a volume with a token, is missing: nothing would mount it.
        object["spec"]["serviceAccountName"] = json!("default");
        object["spec"]["serviceAccount"] = json!("default");
    }
    allocate(resource, &Value::Null, object);
    let is_gated = !entries(object, "/spec/schedulingGates").is_empty();
    if resource == Resource::Pods && is_gated {
        object["status"]["conditions"] = json!([{
            "type": "PodScheduled", "status": "False", "lastProbeTime": null,
            "lastTransitionTime": metadata::now(), "reason": "SchedulingGated",
            "message": "Scheduling is blocked due to non-empty scheduling gates",
        }]);
    }
    if resource.kind() == "Job" && !resource.is_custom() && object["spec"]["manualSelector"] != true
    {
        let (name, uid) = (
            object["metadata"]["name"].clone(),
            object["metadata"]["uid"].clone(),
        );
        let labels = map_of(&mut object["spec"]["template"]["metadata"], "labels");
        for prefix in ["", "batch.kubernetes.io/"] {
            labels.insert(format!("{prefix}controller-uid"), uid.clone());
            labels.insert(format!("{prefix}job-name"), name.clone());
        }
        let labels = Value::Object(labels.clone());
        let selector = map_of(&mut object["spec"]["selector"], "matchLabels");
        selector.insert("batch.kubernetes.io/controller-uid".to_owned(), uid);
        if map_of(&mut object["metadata"], "labels").is_empty() {
            object["metadata"]["labels"] = labels;
        }
    }
}

/// Sets the initial status of a new object, and discards the request's status.
pub(crate) fn set_first_status(resource: Resource, object: &mut Value) {
    let status = match resource {
        Resource::Pods => json!({"phase": "Pending", "qosClass": workload::qos_class(object)}),
        Resource::Definitions => custom::status(object),
        resource => match &resource.row().first_status {
            Some(status) => status.clone(),
            None => return,
        },
    };
    set_status(object, Some(status).filter(|status| !status.is_null()));
}

pub(crate) fn set_status(object: &mut Value, status: Option<Value>) {
    if let Some(members) = object.as_object_mut() {
        members.remove("status");
        members.extend(status.map(|status| ("status".to_owned(), status)));
    }
}

/// Normalizes a written status as the API server does.
pub(crate) fn prepare_status(resource: Resource, old: &Value, new: &mut Value) {
    match resource {
        Resource::Pods => workload::prepare_pod_status(old, new),
        Resource::ReplicaSets | Resource::ReplicationControllers => workload::prepare_counts(new),
        resource if resource.is_custom() => complete_custom(resource, new),
        _ => {}
    }
}

/// Restores what a write of the status does not change: all but the status and the metadata.
pub(crate) fn keep_all_but_status(resource: Resource, old: &Value, new: &mut Value) {
    if !matches!(resource, Resource::Plain(_)) {
        new["spec"] = old["spec"].clone();
        return;
    }
    let is_written = |name: &str| matches!(name, "status" | "metadata");
    if let Some(new) = new.as_object_mut() {
        new.retain(|name, _| is_written(name));
        let kept = members(old, "").filter(|(name, _)| !is_written(name));
        new.extend(kept.map(|(name, value)| (name.clone(), value.clone())));
    }
}

/// True for a change that counts in `metadata.generation`.
pub(crate) fn is_changed(resource: Resource, old: &Value, new: &Value) -> bool {
    if !resource.is_custom() {
        return old.get("spec") != new.get("spec");
    }
    let counts = |name: &str| name != "metadata" && !(name == "status" && resource.has_status());
    let rest = |object| {
        let rest = members(object, "").filter(|(name, _)| counts(name));
        rest.collect::<BTreeMap<_, _>>()
    };
    rest(old) != rest(new)
}

pub(crate) fn validate(resource: Resource, object: &Value) -> Vec<FieldError> {
    let mut errors = metadata::validate(resource, object);
    errors.extend(validate_kind(resource, object));
    errors.extend(rules::validate(resource, object));
    errors
}

fn validate_kind(resource: Resource, object: &Value) -> Vec<FieldError> {
    match resource {
        Resource::Pods => workload::validate_pod(object),
        Resource::ReplicaSets => workload::validate_replica_set(object),
        Resource::ReplicationControllers => workload::validate_controller(object),
        Resource::Quotas => quota::validate(object),
        Resource::Events => Vec::from_iter(validate_event(object)),
        Resource::Definitions => custom::validate(object),
        Resource::Plain(row) if row.is_custom => structural::validate(&row.schema, object),
        Resource::Plain(row) if row.template == Template::Selected => {
            workload::validate_replica_set(object)
        }
        Resource::Plain(row) if row.template == Template::Pod => workload::validate_job(object),
        Resource::Plain(row) if row.kind == "Service" => validate_service(object),
        _ => Vec::new(),
    }
}

/// The validation errors of a change from `old` to `new`, without those of the metadata.
pub(crate) fn validate_update(resource: Resource, old: &Value, new: &Value) -> Vec<FieldError> {
    if resource == Resource::Pods {
        let errors = rules::validate(resource, new).into_iter();
        return errors
            .chain(workload::validate_pod_update(old, new))
            .collect();
    }
    let mut errors = validate_kind(resource, new);
    let row = resource.row();
    let has_selector = resource == Resource::ReplicaSets || row.template == Template::Selected;
    match row.kind.as_str() {
        _ if row.is_custom => {}
        _ if has_selector => errors.extend(workload::validate_selector_update(old, new)),
        "ConfigMap" | "Secret" => errors.extend(validate_data_update(old, new)),
        "Service" => errors.extend(validate_service_update(old, new)),
        _ => {}
    }
    errors.extend(rules::validate(resource, new));
    errors
}

pub(crate) fn validate_status(resource: Resource, new: &Value) -> Vec<FieldError> {
    match resource {
        Resource::Plain(row) if row.is_custom => structural::validate(&row.schema, new),
        Resource::Plain(_) => Vec::new(),
        _ => {
            let mut errors = rules::validate(resource, new);
            errors.retain(|error| error.field().starts_with("status."));
            errors
        }
    }
}

/// The data of an immutable ConfigMap or Secret stay as they are, and so does a Secret's type
/// (kubernetes `pkg/apis/core/validation/validation.go:ValidateSecretUpdate`).
fn validate_data_update(old: &Value, new: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    if old["type"] != new["type"] {
        errors.push(FieldError::immutable("type", &new["type"]));
    }
    let names = ["immutable", "data", "binaryData"].into_iter();
    let changed = names.filter(|name| old["immutable"] == true && old[*name] != new[*name]);
    let why = "field is immutable when `immutable` is set";
    errors.extend(changed.map(|name| FieldError::forbidden(name, why)));
    errors
}

/// What a Service of its type needs (kubernetes
/// `pkg/apis/core/validation/validation.go:ValidateService`).
fn validate_service(service: &Value) -> Vec<FieldError> {
    let of = |name: &str| text(service, &format!("/spec/{name}"));
    let ports = entries(service, "/spec/ports");
    let missing = match of("type") {
        "ExternalName" if of("externalName").is_empty() => Some("spec.externalName".to_owned()),
        "ExternalName" => None,
        _ => (ports.is_empty() && of("clusterIP") != "None").then(|| "spec.ports".to_owned()),
    };
    let unnamed = |(_, port): &(usize, &Value)| ports.len() > 1 && text(port, "/name").is_empty();
    let unnamed = ports.iter().enumerate().filter(unnamed);
    let unnamed = unnamed.map(|(n, _)| format!("spec.ports[{n}].name"));
    let fields = missing.into_iter().chain(unnamed);
    fields.map(|it| FieldError::required(&it, "")).collect()
}

/// The cluster IP of a Service stays (kubernetes
/// `pkg/apis/core/validation/validation.go:ValidateServiceClusterIPsRelatedFields`).
fn validate_service_update(old: &Value, new: &Value) -> Option<FieldError> {
    let has_ip = |service| text(service, "/spec/type") != "ExternalName";
    let is_changed = old["spec"]["clusterIP"] != new["spec"]["clusterIP"];
    let ips = json!([new["spec"]["clusterIP"]]);
    let error = || FieldError::invalid("spec.clusterIPs[0]", ips, "may not change once set");
    (has_ip(old) && has_ip(new) && is_changed).then(error)
}

/// An event must be in the namespace of its object, or in `default` if the object has none.
fn validate_event(event: &Value) -> Option<FieldError> {
    let about = text(event, "/involvedObject/namespace");
    let own = text(event, "/metadata/namespace");
    let why = "does not match event.namespace";
    let is_right = about == own || (about.is_empty() && own == "default");
    (!is_right).then(|| FieldError::invalid("involvedObject.namespace", about, why))
}

/// Converts quantities that are numbers into text.
fn set_quota_defaults(quota: &mut Value) {
    let hard = map_of(quota, "spec").get_mut("hard");
    for (_, amount) in hard.and_then(Value::as_object_mut).into_iter().flatten() {
        if amount.is_number() {
            *amount = json!(amount.to_string());
        }
    }
}

/// Adds the members that an object lacks which the server only stores.
fn set_plain_defaults(row: &Row, object: &mut Value) {
    if row.template != Template::None {
        let spec = map_of(object, "spec");
        let template = spec.entry("template").or_insert_with(|| json!({}));
        workload::set_template_defaults(template);
    }
    match row.kind.as_str() {
        "CronJob" => {
            let template = object.pointer_mut("/spec/jobTemplate/spec/template");
            template
                .map(workload::set_template_defaults)
                .unwrap_or_default();
        }
        "Job" => {
            let spec = map_of(object, "spec");
            if spec.get("parallelism").is_none_or(Value::is_null) {
                set_default(spec, "completions", 1);
                set_default(spec, "parallelism", 1);
            }
        }
        "Deployment" | "DaemonSet" | "StatefulSet" => complete_strategy(object),
        "Service" => complete_service(object),
        "Secret" => complete_secret(object),
        _ => {}
    }
}

/// Only rolling updates have parameters.
fn complete_strategy(object: &mut Value) {
    for name in ["strategy", "updateStrategy"] {
        let strategy = object.pointer_mut(&format!("/spec/{name}"));
        let strategy = strategy.filter(|strategy| text(strategy, "/type") != "RollingUpdate");
        if let Some(strategy) = strategy.and_then(Value::as_object_mut) {
            strategy.remove("rollingUpdate");
        }
    }
}

/// Gives a Service the cluster IP and node ports that it lacks: those of `old`, or numbers that
/// follow from its UID.
///
/// DIFFERS: two Services may get the same number.
pub(crate) fn allocate(resource: Resource, old: &Value, service: &mut Value) {
    let kind = text(service, "/spec/type").to_owned();
    if resource.kind() != "Service" || resource.is_custom() {
        return;
    }
    if kind == "ExternalName" {
        if old.is_object() && text(old, "/spec/type") != kind {
            let names = ["clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy"];
            map_of(service, "spec").retain(|name, _| !names.contains(&&**name));
            maps_mut(service, "/spec/ports").for_each(|port| drop(port.remove("nodePort")));
        }
        return;
    }
    let number = hash_of(&text(service, "/metadata/uid"));
    let [.., a, b, c] = number.to_be_bytes();
    let defaults = json!({"clusterIP": format!("10.{}.{b}.{c}", 96 + a % 16)});
    let spec = map_of(service, "spec");
    spec.retain(|name, value| {
        name != "clusterIP" || value.as_str().is_some_and(|ip| !ip.is_empty())
    });
    for from in [&old["spec"], &defaults] {
        if let Some(ip) = from.get("clusterIP") {
            set_default(spec, "clusterIP", ip.clone());
        }
    }
    let of_ip = json!({
        "clusterIPs": [spec["clusterIP"]], "ipFamilies": ["IPv4"], "ipFamilyPolicy": "SingleStack",
        "internalTrafficPolicy": "Cluster",
    });
    add_missing(&mut service["spec"], &of_ip);
    if kind == "ClusterIP" {
        if text(old, "/spec/type") != kind {
            map_of(service, "spec").remove("externalTrafficPolicy");
            maps_mut(service, "/spec/ports").for_each(|port| drop(port.remove("nodePort")));
        }
        return;
    }
    if kind == "LoadBalancer" {
        add_missing(
            &mut service["spec"],
            &json!({"allocateLoadBalancerNodePorts": true}),
        );
    }
    add_missing(
        &mut service["spec"],
        &json!({"externalTrafficPolicy": "Cluster"}),
    );
    let used = [old, &*service].map(|it| entries(it, "/spec/ports"));
    let used: Vec<Value> = used
        .into_iter()
        .flatten()
        .map(|it| it["nodePort"].clone())
        .collect();
    let free = (0..2768).map(|n| json!(30000 + (number % 2000 + n) % 2768));
    let mut free = free.filter(|it| !used.contains(it));
    for port in maps_mut(service, "/spec/ports") {
        let mut known = entries(old, "/spec/ports").iter();
        let known = known.find(|known| port.get("port") == known.get("port"));
        let known = known.and_then(|known| known.get("nodePort"));
        if port.get("nodePort").is_none_or(|port| *port == 0) {
            let number = known.cloned().or_else(|| free.next());
            port.insert("nodePort".to_owned(), number.unwrap_or_default());
        }
    }
}

/// Ports are TCP, and lead to the port of the same number.
fn complete_service(service: &mut Value) {
    for port in maps_mut(service, "/spec/ports") {
        set_default(port, "protocol", "TCP");
        // Go clients send 0 for a target that they leave out.
        if port.get("targetPort").is_some_and(|target| *target == 0) {
            port.remove("targetPort");
        }
        if let Some(number) = port.get("port").cloned() {
            set_default(port, "targetPort", number);
        }
    }
}

/// Moves the texts of `stringData` to `data`, as base64.
fn complete_secret(secret: &mut Value) {
    let own = secret.as_object_mut();
    let Some(texts) = own.and_then(|members| members.remove("stringData")) else {
        return;
    };
    for (name, text) in members(&texts, "") {
        let text = text.as_str().unwrap_or_default();
        map_of(secret, "data").insert(name.clone(), json!(BASE64_STANDARD.encode(text)));
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::set_defaults;
    use crate::resource::Resource;

    fn with_defaults(plural: &str, mut object: Value) -> Value {
        let mut all = Resource::built_in();
        let resource = all.find(|resource| resource.plural() == plural);
        set_defaults(resource.expect("a row"), &mut object);
        object
    }

    #[test]
    fn a_recreated_deployment_has_no_rolling_update() {
        let strategy = json!({"type": "Recreate"});
        let deployment = with_defaults("deployments", json!({"spec": {"strategy": strategy}}));
        assert_eq!(deployment["spec"]["strategy"], strategy);
        assert_eq!(deployment["spec"]["progressDeadlineSeconds"], json!(600));
        let pod = &deployment["spec"]["template"]["spec"];
        assert_eq!(pod["restartPolicy"], json!("Always"));
    }

    #[test]
    fn an_autoscaler_looks_at_the_cpu() {
        let scaler = with_defaults("horizontalpodautoscalers", json!({"spec": {}}));
        let cpu = &scaler["spec"]["metrics"][0]["resource"];
        assert_eq!(cpu["target"]["averageUtilization"], json!(80));
    }

    #[test]
    fn the_texts_of_a_secret_become_data() {
        let secret = json!({"stringData": {"a": "b"}, "data": {"c": "ZA=="}});
        let expected = json!({"type": "Opaque", "data": {"a": "Yg==", "c": "ZA=="}});
        assert_eq!(with_defaults("secrets", secret), expected);
    }
}
