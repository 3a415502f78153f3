//! Rules about single fields, for the mistakes that people make in manifests. Pure.
//!
//! DIFFERS: an unsupported strategy is reported at its `type`, where upstream prints the Go value
//! of the strategy.

use std::collections::HashMap;
use std::sync::LazyLock;

use serde_json::{Map, Value};

use crate::api::Quantity;
use crate::api::object_key::SUBDOMAIN_BYTES_MAX;
use crate::cron;
use crate::json::{entries, text};
use crate::metadata::{LABEL_RULE, is_label};
use crate::resource::Resource;
use crate::schema::{Kind, Many, find, type_named};
use crate::status_error::FieldError;

/// A type, its field, and what the field must be (kubernetes `pkg/apis`, `validation`): `is` one of
/// these texts, a `cron` schedule, a number or percentage of an `amount` (at most this), from one
/// number `to` another, `above` a number, `required` with an explanation, a DNS `label`, a
/// `trimmed` text, a budget whose limits are `apart`, a list of `unique` members of that name (and
/// those of another list), amounts `within` those of another field, a number not less than that of
/// the field `from` which it counts, a map with good `keys`, or with keys `distinct` from those of
/// another field, not zero with the `other` field, at `most` another count (with its name in
/// messages), a list whose lists of this name have `known` volumes, or a spec with one of the
/// fields `any`. Other rules than `required`, `any` and `most` do not apply to a field that is
/// missing or empty.
const TABLE: &str = include_str!("rules.txt");

/// By type: the field, the word of the rule, and the rest of its line.
type Rules = HashMap<&'static str, Vec<[&'static str; 3]>>;

static RULES: LazyLock<Rules> = LazyLock::new(|| {
    let mut rules = Rules::new();
    for line in TABLE.lines().filter(|line| !line.is_empty()) {
        let (at, rule) = line.split_once(' ').expect("a rule");
        let (kind, field) = at.rsplit_once('.').expect("a field");
        let (word, rest) = rule.split_once(' ').unwrap_or((rule, ""));
        rules.entry(kind).or_default().push([field, word, rest]);
    }
    rules
});

/// The errors of all fields in `object` that have a rule; none in a custom resource.
pub(crate) fn validate(resource: Resource, object: &Value) -> Vec<FieldError> {
    let mut walk = Walk {
        claims: entries(object, "/spec/volumeClaimTemplates"),
        errors: Vec::new(),
    };
    let kind = type_named(&resource.api_version(), resource.kind());
    let kind = kind.filter(|_| !resource.is_custom());
    if let (Some(kind), Some(object)) = (kind, object.as_object()) {
        walk.object(kind, object, "");
    }
    walk.errors
}

struct Walk<'a> {
    /// What a StatefulSet adds to the volumes of its pods.
    claims: &'a [Value],
    errors: Vec<FieldError>,
}

impl Walk<'_> {
    fn object(&mut self, kind: &'static str, object: &Map<String, Value>, path: &str) {
        for [field, word, rest] in RULES.get(kind).into_iter().flatten() {
            let value = object.get(*field).unwrap_or(&Value::Null);
            let field = format!("{path}{field}");
            self.check(&field, value, word, rest);
            self.relate(&field, value, word, rest, object);
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
                    self.object(inner, object, &format!("{path}{name}."));
                }
                (Many::List, Value::Array(entries)) => {
                    for (index, entry) in entries.iter().enumerate() {
                        if let Some(entry) = entry.as_object() {
                            self.object(inner, entry, &format!("{path}{name}[{index}]."));
                        }
                    }
                }
                _ => {}
            }
        }
    }

    /// Rules about a field alone.
    fn check(&mut self, field: &str, value: &Value, word: &str, rest: &str) {
        let words = || rest.split(' ');
        let errors = &mut self.errors;
        let is_empty = match value {
            Value::Null => true,
            Value::String(text) => text.is_empty(),
            Value::Array(list) => list.is_empty(),
            _ => *value == 0,
        };
        match (word, value) {
            ("required", _) if is_empty => errors.push(FieldError::required(field, rest)),
            ("is", Value::String(own)) if !is_empty && words().all(|word| word != own) => {
                let supported: Vec<&str> = words().collect();
                errors.push(FieldError::not_supported(field, own, &supported));
            }
            ("cron", Value::String(text)) if !is_empty => {
                let fault = cron::check(text).err();
                errors.extend(fault.map(|why| FieldError::invalid(field, value, &why)));
            }
            ("amount", value) => {
                let fault = amount_fault(value, !rest.is_empty());
                errors.extend(fault.map(|why| FieldError::invalid(field, value, why)));
            }
            ("label", Value::String(text)) if !is_empty && !is_label(text) => {
                errors.push(FieldError::invalid(field, text, LABEL_RULE));
            }
            // Upstream looks at the pods themselves, not at templates.
            ("trimmed", Value::String(text))
                if text.trim() != text && !field.contains("emplate") =>
            {
                let why = "must not have leading or trailing whitespace";
                errors.push(FieldError::invalid(field, text, why));
            }
            ("apart", spec) if !spec["minAvailable"].is_null() => {
                let [most, selector] = [&spec["maxUnavailable"], &spec["selector"]];
                // As Go prints its own type.
                let text = format!(
                    "{{\"MinAvailable\":{},\"Selector\":{selector},\"MaxUnavailable\":{most},\
                     \"UnhealthyPodEvictionPolicy\":{}}}",
                    spec["minAvailable"], spec["unhealthyPodEvictionPolicy"]
                );
                let why = "minAvailable and maxUnavailable cannot be both set";
                let error = FieldError::invalid_text(field, &text, why);
                errors.extend(Some(error).filter(|_| !most.is_null()));
            }
            ("above", Value::Number(number)) if number.as_f64() <= rest.parse().ok() => {
                let why = format!("must be greater than {rest}");
                errors.push(FieldError::invalid(field, value, &why));
            }
            ("to", Value::Number(number)) => {
                let bound = |it: Option<&str>| it.and_then(|it| it.parse().ok()).expect("a bound");
                let (least, most): (i64, i64) = (bound(words().next()), bound(words().nth(1)));
                let is_within = |it: i64| (least..=most).contains(&it);
                if !number.as_i64().is_some_and(is_within) {
                    let why = format!("must be between {least} and {most}, inclusive");
                    errors.push(FieldError::invalid(field, value, &why));
                }
            }
            ("keys", Value::Object(map)) => errors.extend(map.keys().filter_map(|key| {
                let why = key_fault(key)?;
                Some(FieldError::invalid(&format!("{field}[{key}]"), key, why))
            })),
            ("any", spec) if words().all(|name| is_none(&spec[name])) => {
                let names: Vec<String> = words().map(|name| format!("`{name}`")).collect();
                let why = format!("either {} must be specified", names.join(" or "));
                errors.push(FieldError::invalid(field, Value::Null, &why));
            }
            _ => {}
        }
    }

    /// Rules about a field and others of the same object.
    fn relate(
        &mut self,
        field: &str,
        value: &Value,
        word: &str,
        rest: &str,
        object: &Map<String, Value>,
    ) {
        let (rest, more) = rest.split_once(' ').unwrap_or((rest, ""));
        let list = |name: &str| {
            object
                .get(name)
                .and_then(Value::as_array)
                .into_iter()
                .flatten()
        };
        let other = object.get(rest).unwrap_or(&Value::Null);
        let own = || value.as_array().into_iter().flatten().enumerate();
        match word {
            "unique" => {
                let mut names: Vec<&Value> = list(more).map(|it| &it[rest]).collect();
                for (index, name) in own().map(|(index, it)| (index, &it[rest])) {
                    if !is_none(name) && names.contains(&name) {
                        let field = format!("{field}[{index}].{rest}");
                        self.errors.push(FieldError::duplicate(&field, name));
                    }
                    names.push(name);
                }
            }
            "distinct" => {
                for (key, _) in value.as_object().into_iter().flatten() {
                    if other.get(key).is_some() {
                        let (field, why) =
                            (format!("{field}[{key}]"), "duplicate of key present in");
                        let error = FieldError::invalid(&field, key, &format!("{why} {rest}"));
                        self.errors.push(error);
                    }
                }
            }
            "known" => {
                let claims = self.claims.iter().map(|it| text(it, "/metadata/name"));
                let volumes = list("volumes").map(|it| text(it, "/name"));
                let known: Vec<&str> = volumes.chain(claims).collect();
                for (index, container) in own() {
                    let named = entries(container, &format!("/{rest}")).iter().enumerate();
                    for (at, name) in named.map(|(at, it)| (at, text(it, "/name"))) {
                        if !known.contains(&name) {
                            let field = format!("{field}[{index}].{rest}[{at}].name");
                            self.errors.push(FieldError::not_found(&field, name));
                        }
                    }
                }
            }
            "within" => {
                for (name, amount) in value.as_object().into_iter().flatten() {
                    let milli = |it| Some(Quantity::read(it)?.milli);
                    if let Some(limit) = other.get(name)
                        && milli(amount) > milli(limit)
                    {
                        let limit = limit
                            .as_str()
                            .map_or_else(|| limit.to_string(), str::to_owned);
                        let why = format!("must be less than or equal to {name} limit of {limit}");
                        self.errors.push(FieldError::invalid(field, amount, &why));
                    }
                }
            }
            "from" if value.as_i64() < other.as_i64() => {
                let why = format!("must be greater than or equal to `{rest}`");
                self.errors.push(FieldError::invalid(field, value, &why));
            }
            "most" if value.as_i64().unwrap_or(0) > other.as_i64().unwrap_or(0) => {
                let why = format!("cannot be greater than {more}");
                let count = value.as_i64().unwrap_or(0);
                self.errors.push(FieldError::invalid(field, count, &why));
            }
            "other" if is_zero(value) && is_zero(other) => {
                let why = format!("may not be 0 when `{rest}` is 0");
                self.errors.push(FieldError::invalid(field, value, &why));
            }
            _ => {}
        }
    }
}

fn is_none(value: &Value) -> bool {
    value.is_null() || *value == "" || *value == Value::Array(Vec::new())
}

/// What is wrong with a number or a percentage.
fn amount_fault(value: &Value, is_limited: bool) -> Option<&'static str> {
    let percent = |text: &str| text.strip_suffix('%')?.parse::<u32>().ok();
    match value {
        Value::Number(number) if number.as_i64() < Some(0) => {
            Some("must be greater than or equal to 0")
        }
        Value::String(text) => match percent(text) {
            None => Some(
                "a valid percent string must be a numeric string followed by an ending '%' (e.g. \
                 '1%',  or '93%', regex used for validation is '[0-9]+%')",
            ),
            Some(percent) => {
                (is_limited && percent > 100).then_some("must not be greater than 100%")
            }
        },
        _ => None,
    }
}

/// A number or a percentage.
fn is_zero(value: &Value) -> bool {
    *value == 0 || *value == "0%"
}

/// What is wrong with the name of a file in a volume (apimachinery
/// `pkg/util/validation:IsConfigMapKey`).
fn key_fault(key: &str) -> Option<&'static str> {
    let is_good = |c: char| c.is_ascii_alphanumeric() || "-._".contains(c);
    Some(match key {
        "." => "must not be '.'",
        ".." => "must not be '..'",
        _ if key.starts_with("..") => "must not start with '..'",
        _ if key.len() > SUBDOMAIN_BYTES_MAX => "must be no more than 253 characters",
        _ if key.is_empty() || !key.chars().all(is_good) => {
            "a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. \
             'key.name',  or 'KEY_NAME',  or 'key-name', regex used for validation is \
             '[-._a-zA-Z0-9]+')"
        }
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::{RULES, validate};
    use crate::json::add_missing;
    use crate::resource::Resource;
    use crate::schema::find;

    #[test]
    fn every_rule_is_about_a_field() {
        for (kind, rules) in RULES.iter() {
            for [field, word, _] in rules {
                assert!(find(kind, field).is_some(), "{kind}.{field}");
                let words = "above amount any apart cron distinct from is keys known label most \
                             other required to trimmed unique within";
                assert!(words.split(' ').any(|known| known == *word), "{word}");
            }
        }
    }

    fn of(plural: &str, object: &Value) -> String {
        let mut all = Resource::built_in();
        let resource = all.find(|it| it.plural() == plural).expect("a resource");
        let errors = validate(resource, object);
        let texts = errors.iter().map(ToString::to_string);
        texts.collect::<Vec<_>>().join("; ")
    }

    #[test]
    fn mistakes_are_named_by_field() {
        let c = json!({"name": "c", "image": "i", "ports": [{"containerPort": 80}]});
        let with = |more: Value| {
            let mut container = c.clone();
            add_missing(&mut container, &more);
            json!({"containers": [container]})
        };
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
                json!({"containers": [{"name": "c", "image": "i", "ports": [
                    {"containerPort": 99999},
                ]}]}),
                "spec.containers[0].ports[0].containerPort: Invalid value: 99999: must be between \
                 1 and 65535, inclusive",
            ),
            (
                with(json!({"imagePullPolicy": "Newer", "env": [{"value": "x"}]})),
                "spec.containers[0].imagePullPolicy: Unsupported value: \"Newer\": supported \
                 values: \"Always\", \"IfNotPresent\", \"Never\"; \
                 spec.containers[0].env[0].name: Required value",
            ),
            (
                with(json!({"volumeMounts": [{"name": "v", "mountPath": "/x"}]})),
                "spec.containers[0].volumeMounts[0].name: Not found: \"v\"",
            ),
            (
                with(json!({"resources": {
                    "requests": {"cpu": "2", "memory": "1Gi"},
                    "limits": {"cpu": "1500m", "memory": "1024Mi"},
                }})),
                "spec.containers[0].resources.requests: Invalid value: \"2\": must be less than or \
                 equal to cpu limit of 1500m",
            ),
            (
                json!({"containers": [c], "initContainers": [c]}),
                "spec.initContainers[0].name: Duplicate value: \"c\"",
            ),
            (json!({"containers": []}), "spec.containers: Required value"),
            (
                json!({"containers": [{"name": "c", "image": " "}]}),
                "spec.containers[0].image: Invalid value: \" \": must not have leading or trailing \
                 whitespace",
            ),
        ] {
            assert_eq!(of("pods", &json!({"spec": spec})), expected);
        }
    }

    #[test]
    fn mistakes_of_other_kinds_are_named_by_field() {
        let mounts = json!([{"name": "v"}]);
        let container = json!({"name": "c", "image": "i", "volumeMounts": mounts});
        let template = json!({"spec": {"containers": [container]}});
        let claims = json!([{"metadata": {"name": "v"}}]);
        let spec = json!({"template": template, "volumeClaimTemplates": claims});
        assert_eq!(of("statefulsets", &json!({"spec": spec})), "");
        let blank = json!({"spec": {"containers": [{"name": "c", "image": "i "}]}});
        assert_eq!(of("deployments", &json!({"spec": {"template": blank}})), "");
        let both = json!({"rollingUpdate": {"maxSurge": 0, "maxUnavailable": "0%"}});
        let expected = "spec.strategy.rollingUpdate.maxUnavailable: Invalid value: \"0%\": may not \
                        be 0 when `maxSurge` is 0";
        assert_eq!(
            of("deployments", &json!({"spec": {"strategy": both}})),
            expected
        );
        let expected = "data[..]: Invalid value: \"..\": must not be '..'";
        assert_eq!(
            of("configmaps", &json!({"data": {"..": "x", "a.b_C-1": "y"}})),
            expected
        );
        let expected = "spec: Invalid value: null: either `defaultBackend` or `rules` must be \
                        specified";
        assert_eq!(
            of("ingresses", &json!({"spec": {"ingressClassName": "x"}})),
            expected
        );
        let both = json!({"minAvailable": 1, "maxUnavailable": "10%", "selector": {}});
        let expected = "spec: Invalid value: {\"MinAvailable\":1,\"Selector\":{},\
                        \"MaxUnavailable\":\"10%\",\"UnhealthyPodEvictionPolicy\":null}: \
                        minAvailable and maxUnavailable cannot be both set";
        assert_eq!(of("poddisruptionbudgets", &json!({"spec": both})), expected);
        assert_eq!(
            of("cronjobs", &json!({"spec": {}})),
            "spec.schedule: Required value"
        );
        let schedule = json!({"schedule": "* 24 * * *"});
        let expected = "spec.schedule: Invalid value: \"* 24 * * *\": end of range (24) above \
                        maximum (23): 24";
        assert_eq!(of("cronjobs", &json!({"spec": schedule})), expected);
        let expected = "data[a]: Invalid value: \"a\": duplicate of key present in binaryData";
        let both = json!({"data": {"a": "x", "b": "y"}, "binaryData": {"a": "eA=="}});
        assert_eq!(of("configmaps", &both), expected);
        let rolling = json!({"maxSurge": -1, "maxUnavailable": "200%"});
        let strategy = json!({"spec": {"strategy": {"rollingUpdate": rolling}}});
        let expected = "spec.strategy.rollingUpdate.maxSurge: Invalid value: -1: must be greater \
                        than or equal to 0; spec.strategy.rollingUpdate.maxUnavailable: Invalid \
                        value: \"200%\": must not be greater than 100%";
        assert_eq!(of("deployments", &strategy), expected);
        let spec = json!({"minReplicas": 1, "maxReplicas": 0});
        let expected = "spec.maxReplicas: Invalid value: 0: must be greater than or equal to \
                        `minReplicas`; spec.maxReplicas: Required value";
        assert_eq!(
            of("horizontalpodautoscalers", &json!({"spec": spec})),
            expected
        );
        let spec = json!({"minReplicas": 5, "maxReplicas": 2});
        let expected = "spec.maxReplicas: Invalid value: 2: must be greater than or equal to \
                        `minReplicas`";
        assert_eq!(
            of("horizontalpodautoscalers", &json!({"spec": spec})),
            expected
        );
        let expected = "spec.leaseDurationSeconds: Invalid value: 0: must be greater than 0";
        assert_eq!(
            of("leases", &json!({"spec": {"leaseDurationSeconds": 0}})),
            expected
        );
        let expected = "spec.type: Unsupported value: \"Bogus\": supported values: \
                        \"ClusterIP\", \"ExternalName\", \"LoadBalancer\", \"NodePort\"";
        assert_eq!(
            of("services", &json!({"spec": {"type": "Bogus"}})),
            expected
        );
        let expected = "spec.accessModes: Required value: at least 1 access mode is required";
        assert_eq!(
            of(
                "persistentvolumeclaims",
                &json!({"spec": {"accessModes": []}})
            ),
            expected
        );
    }
}
