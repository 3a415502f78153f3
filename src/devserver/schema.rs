//! The types of the Kubernetes API: one table for the check of an object's fields and for the
//! decoder of protobuf. The API server checks types, and fields that a kind does not have, while it
//! decodes, before any validation. Pure.
//!
//! DIFFERS: texts of a type of their own, such as `v1.Protocol`, are of type `string` in errors.
//! The server stores unknown fields, so that tests can see how a client handles them. The check of
//! unknown fields misses duplicate fields.

use std::collections::HashMap;
use std::sync::LazyLock;

use base64::engine::{GeneralPurpose, GeneralPurposeConfig};
use base64::prelude::BASE64_STANDARD;
use base64::{DecodeError, Engine, alphabet};
use serde_json::{Map, Value, json};

use crate::api::CompactTimestamp;
use crate::json::{set_default, type_of};
use crate::resource::Resource;
use crate::structural;

/// Maximum entries of one list.
const LIST_LENGTH_MAX: usize = 10_000;

/// One type per paragraph: its name in Go, with group and version if the name is not of `v1` or not
/// the only one, then its fields as `name=NUMBER:TYPE`. `make api-types` writes the file from the
/// Go types. Without `:TYPE` it is a string. A field without a name is a message whose fields JSON
/// has in its place, one without a number is read from JSON only. `!` marks what Go writes although
/// it is zero.
const TYPES: &str = concat!(
    include_str!("types.txt"),
    "CustomObject kind apiVersion metadata:ObjectMeta\n",
    "TypeMeta apiVersion=1 kind=2\n",
);

#[derive(Clone, Copy, Debug)]
pub(crate) struct Member {
    pub(crate) name: &'static str,
    /// The number in protobuf; 0 without one.
    pub(crate) number: u32,
    pub(crate) many: Many,
    pub(crate) kind: Kind,
    /// See `!` in the table.
    pub(crate) keeps_zero: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Many {
    One,
    List,
    /// By names.
    Map,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Text,
    Bytes,
    Int32,
    Int64,
    Float,
    Bool,
    Time,
    MicroTime,
    Quantity,
    IntOrString,
    /// Any JSON.
    Raw,
    /// A list of texts, as a message.
    Texts,
    SchemaOrBool,
    SchemaOrArray,
    SchemaOrTexts,
    /// Another row of the table.
    Message(&'static str),
}

type Rows = HashMap<&'static str, Vec<Member>>;

static ROWS: LazyLock<Rows> = LazyLock::new(|| {
    let mut rows = Rows::new();
    let mut last = "";
    for line in TYPES.lines() {
        let mut words = line.split_whitespace();
        if !line.starts_with(' ') {
            last = words.next().unwrap_or_default();
        }
        let row = rows.entry(last).or_default();
        row.extend(words.map(member));
    }
    rows
});

fn member(word: &'static str) -> Member {
    let (word, keeps_zero) = match word.strip_suffix('!') {
        Some(word) => (word, true),
        None => (word, false),
    };
    let (name, kind) = word.split_once(':').unwrap_or((word, "string"));
    let (name, number) = name.split_once('=').unwrap_or((name, "0"));
    let (many, kind) = if let Some(kind) = kind.strip_prefix("[]") {
        (Many::List, kind)
    } else if let Some(kind) = kind.strip_prefix("map[") {
        (Many::Map, kind.trim_end_matches(']'))
    } else {
        (Many::One, kind)
    };
    Member {
        name,
        number: number.parse().expect("a number in the table"),
        many,
        kind: match kind {
            "string" => Kind::Text,
            "bytes" => Kind::Bytes,
            "int32" => Kind::Int32,
            "int64" => Kind::Int64,
            "float64" => Kind::Float,
            "bool" => Kind::Bool,
            "Time" => Kind::Time,
            "MicroTime" => Kind::MicroTime,
            "Quantity" => Kind::Quantity,
            "IntOrString" => Kind::IntOrString,
            "Raw" => Kind::Raw,
            "Texts" => Kind::Texts,
            "SchemaOrBool" => Kind::SchemaOrBool,
            "SchemaOrArray" => Kind::SchemaOrArray,
            "SchemaOrTexts" => Kind::SchemaOrTexts,
            name => Kind::Message(name),
        },
        keeps_zero,
    }
}

pub(crate) fn fields_of(name: &str) -> &'static [Member] {
    ROWS.get(name).map_or(&[], Vec::as_slice)
}

/// The type of a built-in kind.
pub(crate) fn type_named(api_version: &str, kind: &str) -> Option<&'static str> {
    let (group, version) = api_version.split_once('/').unwrap_or(("core", api_version));
    let group = group.split('.').next().unwrap_or(group);
    let qualified = format!("{group}.{version}.{kind}");
    let found = ROWS.get_key_value(qualified.as_str());
    found
        .or_else(|| ROWS.get_key_value(kind))
        .map(|(name, _)| *name)
}

/// Checks the field types of `object`; the error has the text of Go's decoder. `null` fits every
/// type.
pub(crate) fn check(resource: Resource, object: &Value) -> Result<(), String> {
    check_as(row_of(resource), object)
}

/// [`check`] for a type of the table.
pub(crate) fn check_as(kind: &'static str, object: &Value) -> Result<(), String> {
    check_lengths(object)?;
    walk(kind, object).map(drop)
}

/// The unknown fields of `object`, by path, such as `spec.template.spec.containers[0].imagee`.
/// Returns none for an object that does not decode as its kind; other checks report that.
pub(crate) fn unknown_fields(resource: Resource, object: &Value) -> Vec<String> {
    let schema = &resource.row().schema;
    if schema.is_object() {
        return structural::prune(schema, &mut object.clone());
    }
    let unknown = walk(row_of(resource), object).unwrap_or_default();
    Some(unknown)
        .filter(|_| !resource.is_custom())
        .unwrap_or_default()
}

fn row_of(resource: Resource) -> &'static str {
    let named = type_named(&resource.api_version(), resource.kind());
    named
        .filter(|_| !resource.is_custom())
        .unwrap_or("CustomObject")
}

fn walk(kind: &'static str, object: &Value) -> Result<Vec<String>, String> {
    let mut unknown = Vec::new();
    if let Some(object) = object.as_object() {
        walk_message(kind, object, None, &mut unknown)?;
    }
    Ok(unknown)
}

/// What the API server adds to a value of a type, wherever it is (kubernetes
/// `pkg/apis/core/v1/defaults.go`).
const DEFAULTS: &str = r#"
AzureDiskVolumeSource {"cachingMode":"ReadWrite","kind":"Shared","fsType":"ext4","readOnly":false}
ConfigMapVolumeSource {"defaultMode":420}
Container {"resources":{},"terminationMessagePath":"/dev/termination-log"}
Container {"terminationMessagePolicy":"File"}
ContainerPort {"protocol":"TCP"}
DownwardAPIVolumeSource {"defaultMode":420}
EndpointPort {"protocol":"TCP"}
GRPCAction {"service":""}
HTTPGetAction {"path":"/","scheme":"HTTP"}
HostPathVolumeSource {"type":""}
ISCSIVolumeSource {"iscsiInterface":"default"}
ObjectFieldSelector {"apiVersion":"v1"}
PersistentVolumeClaimSpec {"volumeMode":"Filesystem"}
PersistentVolumeSpec {"volumeMode":"Filesystem","persistentVolumeReclaimPolicy":"Retain"}
PodSpec {"restartPolicy":"Always","terminationGracePeriodSeconds":30,"dnsPolicy":"ClusterFirst"}
PodSpec {"schedulerName":"default-scheduler","securityContext":{}}
Probe {"timeoutSeconds":1,"periodSeconds":10,"successThreshold":1,"failureThreshold":3}
ProjectedVolumeSource {"defaultMode":420}
RBDVolumeSource {"pool":"rbd","user":"admin","keyring":"/etc/ceph/keyring"}
ScaleIOVolumeSource {"storageMode":"ThinProvisioned","fsType":"xfs"}
SecretVolumeSource {"defaultMode":420}
ServiceAccountTokenProjection {"expirationSeconds":3600}
ServicePort {"protocol":"TCP"}
discovery.v1.EndpointPort {"name":"","protocol":"TCP"}
"#;

/// Adds the defaults that follow from other members.
fn complete(kind: &str, map: &mut Map<String, Value>) {
    let text = |name: &str| map.get(name).and_then(Value::as_str).unwrap_or_default();
    match kind {
        "Container" => {
            let image = text("image");
            let last = image.rsplit('/').next().unwrap_or_default();
            let is_fixed = image.contains('@') || last.contains(':') && !last.ends_with(":latest");
            let policy = if is_fixed { "IfNotPresent" } else { "Always" };
            set_default(map, "imagePullPolicy", policy);
        }
        "autoscaling.v2.HorizontalPodAutoscalerSpec" => {
            let target = json!({"type": "Utilization", "averageUtilization": 80});
            let cpu = json!({"name": "cpu", "target": target});
            let usual = json!([{"type": "Resource", "resource": cpu}]);
            let metrics = map.entry("metrics").or_insert(Value::Null);
            if metrics.is_null() || *metrics == json!([]) {
                *metrics = usual;
            }
        }
        "PodSpec" => {
            let names = ["serviceAccountName", "serviceAccount"];
            if let Some(account) = names.iter().find_map(|name| map.get(*name)).cloned() {
                map.extend(names.map(|name| (name.to_owned(), account.clone())));
            }
        }
        "Volume" if map.keys().all(|name| name == "name") => {
            map.insert("emptyDir".to_owned(), json!({}));
        }
        _ => {}
    }
}

/// Adds the defaults of the types of all values in `object`, and encodes bytes as Go does.
pub(crate) fn set_defaults(resource: Resource, object: &mut Value) {
    static PARSED: LazyLock<HashMap<&str, Map<String, Value>>> = LazyLock::new(|| {
        let mut parsed: HashMap<&str, Map<String, Value>> = HashMap::new();
        for (name, text) in DEFAULTS.lines().filter_map(|line| line.split_once(' ')) {
            let map: Map<String, Value> = serde_json::from_str(text).expect("JSON in the table");
            parsed.entry(name).or_default().extend(map);
        }
        parsed
    });
    fn add(kind: &'static str, object: &mut Value) {
        let Some(map) = object.as_object_mut() else {
            return;
        };
        for (name, default) in PARSED.get(kind).into_iter().flatten() {
            let keeps_zero = find(kind, name).is_some_and(|(_, member)| member.keeps_zero);
            let value = map.entry(name).or_insert(Value::Null);
            if value.is_null() || !keeps_zero && (*value == "" || *value == 0) {
                *value = default.clone();
            }
        }
        complete(kind, map);
        for (name, value) in map.iter_mut() {
            let Some((_, member)) = find(kind, name) else {
                continue;
            };
            let complete = |value: &mut Value| match (member.kind, &*value) {
                (Kind::Message(inner), _) => add(inner, value),
                (Kind::Bytes, Value::String(text)) => {
                    *value = json!(BASE64_STANDARD.encode(decode(text).unwrap_or_default()));
                }
                _ => {}
            };
            match (member.many, value) {
                (Many::One, value) => complete(value),
                (_, Value::Array(entries)) => entries.iter_mut().for_each(complete),
                (_, Value::Object(map)) => map.values_mut().for_each(complete),
                _ => {}
            }
        }
    }
    if let Some(kind) = type_named(&resource.api_version(), resource.kind()) {
        add(kind, object);
    }
}

/// DIFFERS: upstream bounds only the bytes of a request. Here a list merge holds the store's lock,
/// and every other request waits for it.
fn check_lengths(value: &Value) -> Result<(), String> {
    match value {
        Value::Array(entries) if entries.len() > LIST_LENGTH_MAX => {
            let n_entries = entries.len();
            Err(format!(
                "a list has {n_entries} entries; the dev server accepts at most {LIST_LENGTH_MAX}"
            ))
        }
        Value::Array(entries) => entries.iter().try_for_each(check_lengths),
        Value::Object(members) => members.values().try_for_each(check_lengths),
        _ => Ok(()),
    }
}

/// The field that JSON calls `name`, and the type that has it.
pub(crate) fn find(kind: &'static str, name: &str) -> Option<(&'static str, &'static Member)> {
    let mut members = fields_of(kind).iter();
    members.find_map(|member| match member.kind {
        Kind::Message(inner) if member.name.is_empty() => find(inner, name),
        _ => (member.name == name).then_some((kind, member)),
    })
}

fn walk_message(
    kind: &'static str,
    object: &Map<String, Value>,
    outer: Option<&Place<'_>>,
    unknown: &mut Vec<String>,
) -> Result<(), String> {
    for (name, value) in object {
        let found = find(kind, name);
        let place = Place {
            outer,
            kind: found.map_or(kind, |(kind, _)| kind),
            step: Step::Field(name),
        };
        match found {
            Some((_, member)) if !value.is_null() => place.walk(member, value, unknown)?,
            Some(_) => {}
            None => unknown.push(place.path(true)),
        }
    }
    Ok(())
}

/// A value in error messages: how it is reached, and the type that has the field.
struct Place<'a> {
    outer: Option<&'a Place<'a>>,
    kind: &'static str,
    step: Step<'a>,
}

enum Step<'a> {
    Field(&'a str),
    Entry(usize),
    Key(&'a str),
}

impl Place<'_> {
    fn walk(
        &self,
        member: &Member,
        value: &Value,
        unknown: &mut Vec<String>,
    ) -> Result<(), String> {
        let may_be_null = matches!(member.kind, Kind::Text | Kind::Bytes);
        let go_type = go_type(member.kind);
        // DIFFERS: upstream reads `null` as an entry without members. This server keeps what it is
        // sent, and no API server serves `null` here.
        let is_read = |entry: &Value| !(may_be_null && entry.is_null());
        let entries: Vec<(Step<'_>, &Value)> = match member.many {
            Many::One => return self.walk_one(member.kind, value, unknown),
            Many::List => {
                self.fits(value.is_array(), value, || format!("[]{go_type}"))?;
                let entries = value.as_array().into_iter().flatten().enumerate();
                entries.map(|(n, entry)| (Step::Entry(n), entry)).collect()
            }
            Many::Map => {
                self.fits(value.is_object(), value, || format!("map[string]{go_type}"))?;
                let entries = value.as_object().into_iter().flatten();
                entries
                    .map(|(key, entry)| (Step::Key(key), entry))
                    .collect()
            }
        };
        for (step, entry) in entries.into_iter().filter(|(_, entry)| is_read(entry)) {
            let inner = Place {
                outer: Some(self),
                kind: self.kind,
                step,
            };
            inner.walk_one(member.kind, entry, unknown)?;
        }
        Ok(())
    }

    fn walk_one(&self, kind: Kind, value: &Value, unknown: &mut Vec<String>) -> Result<(), String> {
        let is_texts = || {
            value
                .as_array()
                .is_some_and(|texts| texts.iter().all(Value::is_string))
        };
        let fits = match kind {
            Kind::Bool => value.is_boolean(),
            Kind::Int32 => value.as_i64().is_some_and(|it| i32::try_from(it).is_ok()),
            Kind::Int64 => value.is_i64(),
            Kind::Float => value.is_number(),
            Kind::IntOrString => value.is_i64() || value.is_string(),
            Kind::Quantity if !is_quantity(value) => {
                let rule = "'^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'";
                return Err(format!(
                    "quantities must match the regular expression {rule}"
                ));
            }
            Kind::Quantity | Kind::Raw => true,
            Kind::Texts => is_texts(),
            Kind::SchemaOrBool => value.is_object() || value.is_boolean(),
            Kind::SchemaOrArray => value.is_object() || value.is_array(),
            Kind::SchemaOrTexts => value.is_object() || is_texts(),
            Kind::Message(_) => value.is_object(),
            Kind::Text | Kind::Bytes | Kind::Time | Kind::MicroTime => value.is_string(),
        };
        self.fits(fits, value, || go_type(kind))?;
        match (kind, value) {
            (Kind::Message(inner), Value::Object(object)) => {
                walk_message(inner, object, Some(self), unknown)
            }
            (
                Kind::SchemaOrBool | Kind::SchemaOrArray | Kind::SchemaOrTexts,
                Value::Object(object),
            ) => walk_message("JSONSchemaProps", object, Some(self), unknown),
            (Kind::Bytes, Value::String(text)) => match decode(text) {
                Err(DecodeError::InvalidByte(at, _) | DecodeError::InvalidLastSymbol(at, _)) => {
                    Err(format!("illegal base64 data at input byte {at}"))
                }
                Err(_) => Err(format!("illegal base64 data at input byte {}", text.len())),
                Ok(_) => Ok(()),
            },
            (Kind::Time | Kind::MicroTime, Value::String(text)) => {
                // DIFFERS: upstream says which part it could not read.
                let error = format!("parsing time {value} as \"2006-01-02T15:04:05Z07:00\"");
                text.parse::<CompactTimestamp>().map(drop).or(Err(error))
            }
            _ => Ok(()),
        }
    }

    fn fits(
        &self,
        fits: bool,
        value: &Value,
        go_type: impl FnOnce() -> String,
    ) -> Result<(), String> {
        if fits {
            return Ok(());
        }
        let (kind, path) = (short(self.kind), self.path(false));
        let found = match value {
            Value::Number(number) if number.is_f64() => format!("number {number}"),
            value => type_of(value).to_owned(),
        };
        let go_type = go_type();
        Err(format!(
            "json: cannot unmarshal {found} into Go struct field {kind}.{path} of type {go_type}"
        ))
    }

    /// The path from the object; only that of unknown fields has entries and keys.
    fn path(&self, is_whole: bool) -> String {
        let path = self
            .outer
            .map(|outer| outer.path(is_whole))
            .unwrap_or_default();
        let dot = if path.is_empty() { "" } else { "." };
        let step = match self.step {
            Step::Entry(index) if is_whole => format!("[{index}]"),
            Step::Key(name) if is_whole => format!("{dot}{name}"),
            Step::Field(name) => format!("{dot}{name}"),
            _ => String::new(),
        };
        path + &step
    }
}

/// Decodes base64 as Go does: without line ends, and whatever the unused bits are.
fn decode(text: &str) -> Result<Vec<u8>, DecodeError> {
    const GO: GeneralPurpose = GeneralPurpose::new(
        &alphabet::STANDARD,
        GeneralPurposeConfig::new().with_decode_allow_trailing_bits(true),
    );
    GO.decode(text.replace(['\r', '\n'], ""))
}

/// The name of a type in its package.
fn short(name: &str) -> &str {
    name.rsplit('.').next().unwrap_or(name)
}

fn go_type(kind: Kind) -> String {
    let name = match kind {
        Kind::Bytes => "[]uint8",
        Kind::Int32 => "int32",
        Kind::Int64 => "int64",
        Kind::Float => "float64",
        Kind::Bool => "bool",
        Kind::Quantity => "resource.Quantity",
        Kind::IntOrString => "intstr.IntOrString",
        Kind::Message(name) => {
            let qualified = name.split_once('.').map(|(_, qualified)| qualified);
            return qualified.map_or_else(|| format!("v1.{name}"), str::to_owned);
        }
        _ => "string",
    };
    name.to_owned()
}

fn is_quantity(value: &Value) -> bool {
    let Some(text) = value.as_str() else {
        return value.is_number();
    };
    let text = text.strip_prefix(['+', '-']).unwrap_or(text);
    let digits = text.trim_start_matches(|c: char| c.is_ascii_digit() || c == '.');
    let unit = digits.trim_start_matches(|c: char| "eEinumkKMGTP".contains(c));
    let exponent = unit.strip_prefix(['+', '-']).unwrap_or(unit);
    digits.len() < text.len() && exponent.bytes().all(|byte| byte.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::{Kind, ROWS, Resource, TYPES, check, fields_of, type_named, unknown_fields};

    #[track_caller]
    fn wrong(object: &Value, expected: &str) {
        let error = check(Resource::ReplicaSets, object).expect_err("a wrong shape");
        assert_eq!(error, format!("json: cannot unmarshal {expected}"));
    }

    #[test]
    fn wrong_types_get_the_error_texts_of_go() {
        wrong(
            &json!({"spec": {"replicas": "x"}}),
            "string into Go struct field ReplicaSetSpec.spec.replicas of type int32",
        );
        wrong(
            &json!({"spec": {"replicas": 1.5}}),
            "number 1.5 into Go struct field ReplicaSetSpec.spec.replicas of type int32",
        );
        wrong(
            &json!({"spec": {"template": {"spec": {"containers": {}}}}}),
            "object into Go struct field PodSpec.spec.template.spec.containers of type \
             []v1.Container",
        );
        wrong(
            &json!({"metadata": {"labels": {"a": 1}}}),
            "number into Go struct field ObjectMeta.metadata.labels of type string",
        );
        wrong(
            &json!({"metadata": {"labels": []}}),
            "array into Go struct field ObjectMeta.metadata.labels of type map[string]string",
        );
        wrong(
            &json!({"metadata": "x"}),
            "string into Go struct field ReplicaSet.metadata of type v1.ObjectMeta",
        );
        wrong(
            &json!({"spec": []}),
            "array into Go struct field ReplicaSet.spec of type v1.ReplicaSetSpec",
        );
        let fine = json!({
            "metadata": {"labels": {"a": null}, "creationTimestamp": null},
            "spec": {"replicas": null},
        });
        assert_eq!(check(Resource::ReplicaSets, &fine), Ok(()));
    }
    #[test]
    fn times_that_no_controller_could_read_are_rejected() {
        let status = |time| json!({"status": {"conditions": [{"lastTransitionTime": time}]}});
        let fine = status(json!("2026-01-01T00:00:00Z"));
        assert_eq!(check(Resource::ReplicaSets, &fine), Ok(()));
        for wrong in [json!("2026-21-01T00:00:00Z"), json!(""), json!(5)] {
            check(Resource::ReplicaSets, &status(wrong)).expect_err("no time");
        }
    }

    #[test]
    fn entries_of_a_list_are_maps() {
        wrong(
            &json!({"status": {"conditions": [{}, null]}}),
            "null into Go struct field ReplicaSetStatus.status.conditions of type \
             v1.ReplicaSetCondition",
        );
    }

    #[track_caller]
    fn check_unknown(resource: Resource, object: &Value, expected: &[&str]) {
        assert_eq!(unknown_fields(resource, object), expected);
    }

    #[test]
    fn unknown_fields_are_reported_by_path() {
        let pod = json!({
            "metadata": {"name": "a", "label": {}, "annotations": {"any": "thing"}, "uid": null},
            "spec": {
                "containers": [
                    {"name": "c", "image": "x", "resources": {"requests": {"cpu": 1}}},
                    {"name": "d", "imagee": "x", "ports": [{"containerPort": 1, "name": "p"}]},
                ],
                "nodeSelector": {"any": "thing"},
            },
            "zzz": 1,
        });
        let unknown = ["metadata.label", "spec.containers[1].imagee", "zzz"];
        check_unknown(Resource::Pods, &pod, &unknown);
        let replica_set = json!({"spec": {"Replicas": 1, "template": {"spec": {"bogus": 1}}}});
        let unknown = ["spec.Replicas", "spec.template.spec.bogus"];
        check_unknown(Resource::ReplicaSets, &replica_set, &unknown);
        let quota = json!({"spec": {"hard": {"pods": 2}, "soft": {}}});
        check_unknown(Resource::Quotas, &quota, &["spec.soft"]);
    }

    #[test]
    fn every_type_of_a_field_has_a_row() {
        let names = TYPES.lines().filter(|line| !line.starts_with(' '));
        for name in names.filter_map(|line| line.split_whitespace().next()) {
            for member in fields_of(name) {
                if let Kind::Message(inner) = member.kind {
                    assert!(ROWS.contains_key(inner), "{name}.{}: {inner}", member.name);
                }
            }
        }
    }

    #[test]
    fn every_served_kind_has_a_row() {
        for resource in Resource::built_in() {
            let found = type_named(&resource.api_version(), resource.kind());
            assert!(found.is_some(), "{resource:?}: run `make api-types`");
        }
    }
}
