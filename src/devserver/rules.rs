//! Rules about single fields, for the mistakes that people make in manifests. Pure.
//!
//! DIFFERS: an unsupported strategy is reported at its `type`, where upstream prints the Go value
//! of the strategy.

use std::collections::HashMap;
use std::sync::LazyLock;

use serde_json::{Map, Value};

use crate::json::text;
use crate::resource::Resource;
use crate::schema::{Kind, Many, find, type_named};
use crate::status_error::FieldError;

/// A type, its field, and what the field must be (kubernetes `pkg/apis`, `validation`): `is` one of
/// these texts, from one number `to` another, `required` with an explanation, or a list of
/// `unique` members of that name. Other rules do not apply to a field that is missing or empty.
const TABLE: &str = "
Container.imagePullPolicy is Always IfNotPresent Never
Container.terminationMessagePolicy is File FallbackToLogsOnError
Container.ports unique name
ContainerPort.containerPort to 1 65535
ContainerPort.protocol is SCTP TCP UDP
CronJobSpec.concurrencyPolicy is Allow Forbid Replace
DaemonSetUpdateStrategy.type is RollingUpdate OnDelete
DeploymentStrategy.type is Recreate RollingUpdate
EnvVar.name required
HTTPGetAction.scheme is HTTP HTTPS
HTTPIngressPath.pathType required pathType must be specified
HTTPIngressPath.pathType is Exact ImplementationSpecific Prefix
JobSpec.completionMode is NonIndexed Indexed
JobSpec.parallelism to 0 2147483647
JobSpec.podReplacementPolicy is Failed TerminatingOrFailed
PersistentVolumeClaimSpec.accessModes required at least 1 access mode is required
PersistentVolumeSpec.persistentVolumeReclaimPolicy is Delete Recycle Retain
PodSpec.activeDeadlineSeconds to 1 2147483647
PodSpec.containers unique name
PodSpec.dnsPolicy is ClusterFirstWithHostNet ClusterFirst Default None
PodSpec.restartPolicy is Always OnFailure Never
PodSpec.volumes unique name
PolicyRule.verbs required
RoleRef.kind is Role ClusterRole
RoleRef.name required
SeccompProfile.type is Localhost RuntimeDefault Unconfined
ServicePort.port to 1 65535
ServicePort.protocol is SCTP TCP UDP
ServiceSpec.externalTrafficPolicy is Cluster Local
ServiceSpec.internalTrafficPolicy is Cluster Local
ServiceSpec.ipFamilyPolicy is PreferDualStack RequireDualStack SingleStack
ServiceSpec.ports unique name
ServiceSpec.sessionAffinity is ClientIP None
ServiceSpec.type is ClusterIP ExternalName LoadBalancer NodePort
StatefulSetSpec.podManagementPolicy is OrderedReady Parallel
StatefulSetUpdateStrategy.type is RollingUpdate OnDelete
StorageClass.provisioner required
StorageClass.reclaimPolicy is Delete Retain
StorageClass.volumeBindingMode is Immediate WaitForFirstConsumer
Taint.effect is NoSchedule PreferNoSchedule NoExecute
Toleration.effect is NoSchedule PreferNoSchedule NoExecute
Toleration.operator is Equal Exists
TopologySpreadConstraint.whenUnsatisfiable is DoNotSchedule ScheduleAnyway
";

/// By type: the field, the word of the rule, and the rest of its line.
type Rules = HashMap<&'static str, Vec<[&'static str; 3]>>;

static RULES: LazyLock<Rules> = LazyLock::new(|| {
    let mut rules = Rules::new();
    for line in TABLE.lines().filter(|line| !line.is_empty()) {
        let (at, rule) = line.split_once(' ').expect("a rule");
        let (kind, field) = at.split_once('.').expect("a field");
        let (word, rest) = rule.split_once(' ').unwrap_or((rule, ""));
        rules.entry(kind).or_default().push([field, word, rest]);
    }
    rules
});

/// The errors of all fields in `object` that have a rule; none in a custom resource.
pub(crate) fn validate(resource: Resource, object: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let kind = type_named(&resource.api_version(), resource.kind());
    let kind = kind.filter(|_| !resource.is_custom());
    if let (Some(kind), Some(object)) = (kind, object.as_object()) {
        walk(kind, object, "", &mut errors);
    }
    errors
}

fn walk(kind: &'static str, object: &Map<String, Value>, path: &str, errors: &mut Vec<FieldError>) {
    for [field, word, rest] in RULES.get(kind).into_iter().flatten() {
        let value = object.get(*field).unwrap_or(&Value::Null);
        check(&format!("{path}{field}"), value, word, rest, errors);
    }
    for (name, value) in object {
        let Some((_, member)) = find(kind, name) else {
            continue;
        };
        let Kind::Message(inner) = member.kind else {
            continue;
        };
        match (member.many, value) {
            (Many::One, Value::Object(object)) => {
                walk(inner, object, &format!("{path}{name}."), errors);
            }
            (Many::List, Value::Array(entries)) => {
                for (index, entry) in entries.iter().enumerate() {
                    if let Some(entry) = entry.as_object() {
                        walk(inner, entry, &format!("{path}{name}[{index}]."), errors);
                    }
                }
            }
            _ => {}
        }
    }
}

fn check(field: &str, value: &Value, word: &str, rest: &str, errors: &mut Vec<FieldError>) {
    let words = || rest.split(' ');
    let is_empty = match value {
        Value::Null => true,
        Value::String(text) => text.is_empty(),
        Value::Array(list) => list.is_empty(),
        _ => false,
    };
    match (word, value) {
        ("required", _) if is_empty => errors.push(FieldError::required(field, rest)),
        ("is", Value::String(own)) if !is_empty && words().all(|word| word != own) => {
            let supported: Vec<&str> = words().collect();
            errors.push(FieldError::not_supported(field, own, &supported));
        }
        ("to", Value::Number(number)) => {
            let bounds: Vec<i64> = words().map(|it| it.parse().expect("a number")).collect();
            let [least, most] = bounds[..] else {
                panic!("two bounds of {field}");
            };
            let is_within = |it: i64| (least..=most).contains(&it);
            if !number.as_i64().is_some_and(is_within) {
                let why = format!("must be between {least} and {most}, inclusive");
                errors.push(FieldError::invalid(field, value, &why));
            }
        }
        ("unique", Value::Array(list)) => {
            let names: Vec<&str> = list
                .iter()
                .map(|it| text(it, &format!("/{rest}")))
                .collect();
            for (index, name) in names.iter().enumerate() {
                if !name.is_empty() && names[..index].contains(name) {
                    errors.push(FieldError::duplicate(
                        &format!("{field}[{index}].{rest}"),
                        name,
                    ));
                }
            }
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::{RULES, validate};
    use crate::resource::Resource;
    use crate::schema::find;

    #[test]
    fn every_rule_is_about_a_field() {
        for (kind, rules) in RULES.iter() {
            for [field, word, _] in rules {
                assert!(find(kind, field).is_some(), "{kind}.{field}");
                assert!(["is", "to", "required", "unique"].contains(word), "{word}");
            }
        }
    }

    #[test]
    fn mistakes_are_named_by_field() {
        let of = |group: &str, plural: &str, spec: Value| {
            let errors = validate(Resource::of(group, plural), &json!({"spec": spec}));
            let texts = errors.iter().map(ToString::to_string);
            texts.collect::<Vec<_>>().join("; ")
        };
        let c = json!({"name": "c", "ports": [{"containerPort": 80}]});
        for (spec, expected) in [
            (
                json!({"containers": [c], "restartPolicy": "", "dnsPolicy": null}),
                "",
            ),
            (
                json!({"containers": [c, c]}),
                "spec.containers[1].name: Duplicate value: \"c\"",
            ),
            (
                json!({"containers": [{"ports": [{"containerPort": 99999}]}]}),
                "spec.containers[0].ports[0].containerPort: Invalid value: 99999: must be between \
                 1 and 65535, inclusive",
            ),
            (
                json!({"containers": [{"imagePullPolicy": "Newer", "env": [{"value": "x"}]}]}),
                "spec.containers[0].imagePullPolicy: Unsupported value: \"Newer\": supported \
                 values: \"Always\", \"IfNotPresent\", \"Never\"; \
                 spec.containers[0].env[0].name: Required value",
            ),
        ] {
            assert_eq!(of("", "pods", spec), expected);
        }
        let expected = "spec.type: Unsupported value: \"Bogus\": supported values: \
                        \"ClusterIP\", \"ExternalName\", \"LoadBalancer\", \"NodePort\"";
        assert_eq!(of("", "services", json!({"type": "Bogus"})), expected);
        let expected = "spec.accessModes: Required value: at least 1 access mode is required";
        assert_eq!(
            of("", "persistentvolumeclaims", json!({"accessModes": []})),
            expected
        );
    }
}
