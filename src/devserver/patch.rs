//! PATCH: the kinds of patch besides server-side apply. Pure functions on JSON trees.
//!
//! A strategic merge patch has the shape of its target and merges certain lists by a key of their
//! entries. A JSON patch (RFC 6902) is a list of operations, applied as a whole or not at all: the
//! crate `json_patch` does the operations, and this file adds the behaviours in which the API
//! server's library differs, and limits that keep a patch from building an object too large to
//! store or parse.

use std::collections::{HashMap, VecDeque};

use StrategicError::{BadPatch, BadValue};
use json_patch::{AddOperation, PatchOperation};
use serde_json::{Map, Value, json};

use crate::exchange::ApiRequest;
use crate::json::{depth_of, strip_kind, text, type_of};
use crate::resource::Resource;
use crate::status_error::{FieldError, StatusError};
use crate::{body, schema};

/// How a list is merged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ListMerge {
    /// Entries are maps, and those with the same value of this field are merged (`patchMergeKey`).
    ByKey(&'static str),
    /// Entries are plain values without duplicates.
    AsSet,
    /// The new list replaces the old one.
    Replace,
}

/// kubernetes `api/core/v1/types.go` and `api/apps/v1/types.go`: the tags `patchStrategy` and
/// `patchMergeKey` of the kinds served here, for a list with these new entries.
pub(crate) fn list_merge(name: &str, entries: &[Value]) -> ListMerge {
    match name {
        // Those of a Service.
        "ports" if entries.iter().any(|entry| entry.get("port").is_some()) => {
            ListMerge::ByKey("port")
        }
        "ownerReferences" => ListMerge::ByKey("uid"),
        "conditions" => ListMerge::ByKey("type"),
        "containers"
        | "initContainers"
        | "ephemeralContainers"
        | "volumes"
        | "env"
        | "imagePullSecrets"
        | "secrets" => ListMerge::ByKey("name"),
        "ports" => ListMerge::ByKey("containerPort"),
        "volumeMounts" => ListMerge::ByKey("mountPath"),
        "volumeDevices" => ListMerge::ByKey("devicePath"),
        "podIPs" | "hostAliases" => ListMerge::ByKey("ip"),
        "topologySpreadConstraints" => ListMerge::ByKey("topologyKey"),
        "finalizers" => ListMerge::AsSet,
        _ => ListMerge::Replace,
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum StrategicError {
    /// The patch violates its own rules, such as a list entry without its merge key.
    BadPatch(String),
    /// A value of the patch does not fit its field.
    BadValue(String),
}

/// Merges a strategic merge patch into `target`.
///
/// # Errors
/// See [`StrategicError`]. The caller must then discard the target.
pub(crate) fn strategic_merge(target: &mut Value, patch: &Value) -> Result<(), StrategicError> {
    let Some(patch) = patch.as_object() else {
        return Err(BadValue("cannot unmarshal the patch into a map".to_owned()));
    };
    match patch.get("$patch").and_then(Value::as_str) {
        Some("replace") => {
            *target = without_directives(patch);
            return Ok(());
        }
        Some("delete") => {
            *target = Value::Object(Map::new());
            return Ok(());
        }
        None | Some("merge") => {}
        Some(other) => {
            let map = Value::Object(patch.clone());
            let why = format!("unknown patch type: {other} in map: {}", go_text(&map));
            return Err(BadPatch(why));
        }
    }
    if !target.is_object() {
        *target = Value::Object(Map::new());
    }
    for (name, value) in patch {
        if let Some(list) = name.strip_prefix("$deleteFromPrimitiveList/") {
            remove_values(&mut target[list], value);
        } else if !name.starts_with('$') {
            merge_member(target, name, value)?;
        }
    }
    Ok(())
}

fn merge_member(target: &mut Value, name: &str, value: &Value) -> Result<(), StrategicError> {
    match value {
        Value::Null => {
            if let Some(map) = target.as_object_mut() {
                map.remove(name);
            }
            Ok(())
        }
        Value::Object(_) if target[name].is_array() => {
            Err(BadValue("cannot restore slice from map".to_owned()))
        }
        Value::Object(_) => strategic_merge(&mut target[name], value),
        Value::Array(_) if target[name].is_object() => {
            Err(BadValue("cannot restore struct from slice".to_owned()))
        }
        Value::Array(patch) => {
            let old = target[name].as_array().cloned().unwrap_or_default();
            let merged = match list_merge(name, patch) {
                ListMerge::Replace => patch.clone(),
                ListMerge::AsSet => merge_set(&old, patch),
                ListMerge::ByKey(key) => merge_by_key(old, patch, key)?,
            };
            target[name] = Value::Array(merged);
            Ok(())
        }
        value if target[name].is_array() => {
            let kind = if value.is_string() {
                "string"
            } else {
                "a plain value"
            };
            Err(BadValue(format!("cannot restore slice from {kind}")))
        }
        value => {
            target[name] = value.clone();
            Ok(())
        }
    }
}

/// The position of the first of equal values, keyed by text, because lists may be long.
fn first_positions<'a>(values: impl Iterator<Item = &'a Value>) -> HashMap<String, usize> {
    let mut positions = HashMap::new();
    for (at, value) in values.enumerate() {
        positions.entry(value.to_string()).or_insert(at);
    }
    positions
}

fn merge_set(old: &[Value], patch: &[Value]) -> Vec<Value> {
    let in_patch = first_positions(patch.iter());
    let firsts = patch.iter().enumerate();
    let patched = firsts.filter(|(at, value)| in_patch[&value.to_string()] == *at);
    let patched = patched.map(|(_, value)| value.clone()).collect();
    let kept = old
        .iter()
        .filter(|value| !in_patch.contains_key(&value.to_string()));
    let kept = kept.cloned().collect();
    let in_old = first_positions(old.iter());
    in_order(kept, patched, |value| {
        in_old.get(&value.to_string()).copied()
    })
}

/// Merges kept and patched entries in the API server's order: patched entries come first, except
/// after entries that preceded them in the old list.
fn in_order(
    kept: Vec<Value>,
    patched: Vec<Value>,
    position: impl Fn(&Value) -> Option<usize>,
) -> Vec<Value> {
    let mut merged = Vec::new();
    let (mut kept, mut patched) = (kept.into_iter().peekable(), patched.into_iter().peekable());
    loop {
        let takes_kept = match (kept.peek(), patched.peek()) {
            (None, None) => return merged,
            (Some(_), None) => true,
            (None, Some(_)) => false,
            (Some(left), Some(right)) => {
                matches!((position(left), position(right)), (Some(l), Some(r)) if l < r)
            }
        };
        merged.extend(if takes_kept {
            kept.next()
        } else {
            patched.next()
        });
    }
}

fn remove_values(target: &mut Value, values: &Value) {
    let values = values.as_array().map_or(&[][..], Vec::as_slice);
    let removed = first_positions(values.iter());
    if let Some(target) = target.as_array_mut() {
        target.retain(|value| !removed.contains_key(&value.to_string()));
    }
}

/// Merges two lists of maps in the order of [`in_order`].
fn merge_by_key(old: Vec<Value>, patch: &[Value], key: &str) -> Result<Vec<Value>, StrategicError> {
    let directive = |entry: &Value| {
        entry
            .get("$patch")
            .and_then(Value::as_str)
            .map(str::to_owned)
    };
    if patch
        .iter()
        .any(|entry| directive(entry).as_deref() == Some("replace"))
    {
        let kept = patch.iter().filter(|entry| directive(entry).is_none());
        return Ok(kept.cloned().collect());
    }
    if old.is_empty() && patch.iter().all(|entry| directive(entry).is_none()) {
        // Without old entries there is nothing to merge, so upstream checks no keys.
        return Ok(patch.to_vec());
    }
    let original = first_positions(old.iter().map(|entry| &entry[key]));
    let mut by_key: HashMap<String, VecDeque<usize>> = HashMap::new();
    for (at, entry) in old.iter().enumerate() {
        if let Some(id) = entry.get(key) {
            by_key.entry(id.to_string()).or_default().push_back(at);
        }
    }
    let mut old: Vec<Option<Value>> = old.into_iter().map(Some).collect();
    let mut patched: Vec<Value> = Vec::new();
    for entry in patch {
        let id = entry.get(key).ok_or_else(|| {
            let map = go_text(entry);
            BadPatch(format!(
                "map: {map} does not contain declared merge key: {key}"
            ))
        })?;
        let at = by_key
            .get_mut(&id.to_string())
            .and_then(VecDeque::pop_front);
        let known = at.and_then(|at| old[at].take());
        if directive(entry).as_deref() == Some("delete") {
            continue;
        }
        let mut merged = known.unwrap_or_else(|| Value::Object(Map::new()));
        strategic_merge(&mut merged, entry)?;
        patched.push(merged);
    }
    let kept = old.into_iter().flatten().collect();
    Ok(in_order(kept, patched, |entry| {
        original.get(&entry.get(key)?.to_string()).copied()
    }))
}

/// A value as Go prints it: `map[a:1 b:[x y]]`.
fn go_text(value: &Value) -> String {
    match value {
        Value::Object(map) => {
            let members = map.iter();
            let members = members.map(|(name, value)| format!("{name}:{}", go_text(value)));
            format!("map[{}]", members.collect::<Vec<_>>().join(" "))
        }
        Value::Array(values) => {
            let values: Vec<String> = values.iter().map(go_text).collect();
            format!("[{}]", values.join(" "))
        }
        Value::String(text) => text.clone(),
        Value::Null => "<nil>".to_owned(),
        other => other.to_string(),
    }
}

fn without_directives(patch: &Map<String, Value>) -> Value {
    let members = patch.iter().filter(|(name, _)| !name.starts_with('$'));
    members
        .map(|(name, value)| (name.clone(), value.clone()))
        .collect()
}

#[derive(Debug)]
pub(crate) enum Patch {
    Json(Value),
    Merge(Value),
    Strategic(Value),
    /// The desired fields of a field manager.
    Apply(Value),
}

impl Patch {
    pub(crate) fn read(request: &ApiRequest) -> Result<Self, StatusError> {
        let body = &request.body;
        match request.content_type() {
            "application/json-patch+json" => Ok(Self::Json(decode(body)?)),
            "application/merge-patch+json" => {
                let prefix = "error decoding patch: ";
                Ok(Self::Merge(map_only(decode(body)?, prefix)?))
            }
            "application/strategic-merge-patch+json" => {
                Ok(Self::Strategic(map_only(decode(body)?, "")?))
            }
            "application/apply-patch+yaml" => {
                let config = body::yaml(body)?;
                if config.is_object() {
                    return Ok(Self::Apply(config));
                }
                Err(StatusError::bad_request(
                    "error decoding YAML: not an object",
                ))
            }
            _ => Err(StatusError::unsupported_patch_type()),
        }
    }

    /// Applies the patch to `target`, an object with `kind` and `apiVersion`.
    pub(crate) fn change(&self, target: &mut Value) -> Result<(), StatusError> {
        match self {
            Self::Json(operations) => apply_operations(target, operations),
            Self::Merge(patch) => {
                ::json_patch::merge(target, patch);
                Ok(())
            }
            Self::Strategic(patch) => strategic_merge(target, patch).map_err(|error| match error {
                StrategicError::BadPatch(why) => StatusError::internal(why),
                StrategicError::BadValue(why) => self.unprocessable(&why),
            }),
            Self::Apply(_) => Err(StatusError::unsupported_patch_type()),
        }
    }

    /// The patched `object` (without `kind`), validated against the shape of its kind.
    pub(crate) fn changed(
        &self,
        resource: Resource,
        mut object: Value,
    ) -> Result<Value, StatusError> {
        object["kind"] = json!(resource.kind());
        object["apiVersion"] = json!(resource.api_version());
        self.change(&mut object)?;
        if !object.is_object() {
            return Err(StatusError::patch_rejected());
        }
        let kind = text(&object, "/kind");
        if kind != resource.kind() || text(&object, "/apiVersion") != resource.api_version() {
            return Err(self.unprocessable(&format!("the kind cannot become {kind}")));
        }
        schema::check(resource, &object).map_err(|why| self.unprocessable(&why))?;
        strip_kind(&mut object);
        Ok(object)
    }

    /// 422 for a patch that produces an invalid object.
    pub(crate) fn unprocessable(&self, why: &str) -> StatusError {
        let (Self::Json(patch) | Self::Merge(patch) | Self::Strategic(patch) | Self::Apply(patch)) =
            self;
        StatusError::invalid_patch(FieldError::invalid("patch", patch.to_string(), why))
    }
}

fn decode(body: &[u8]) -> Result<Value, StatusError> {
    let invalid = |_: serde_json::Error| StatusError::bad_request("invalid JSON patch");
    let value = serde_json::from_slice(body).map_err(invalid)?;
    body::check_depth(&value)?;
    Ok(value)
}

fn map_only(patch: Value, prefix: &str) -> Result<Value, StatusError> {
    if patch.is_object() {
        return Ok(patch);
    }
    let kind = type_of(&patch);
    let go_type = "map[string]interface {}";
    Err(StatusError::bad_request(format!(
        "{prefix}json: cannot unmarshal {kind} into Go value of type {go_type}"
    )))
}

/// Maximum operations per patch (apiserver
/// `pkg/endpoints/handlers/patch.go:maxJSONPatchOperations`).
const OPERATIONS_MAX: usize = 10_000;

/// Maximum bytes that all `copy` operations of a patch may copy (apiserver
/// `pkg/server/config.go:JSONPatchMaxCopyBytes`). Without a limit, each could double the object.
const COPY_BYTES_MAX: usize = 3 * 1024 * 1024;

/// Applies all operations of `patch` to `target`, which stays unchanged if one fails.
fn apply_operations(target: &mut Value, patch: &Value) -> Result<(), StatusError> {
    let operations = patch.as_array().ok_or_else(|| malformed(patch))?;
    if operations.len() > OPERATIONS_MAX {
        return Err(StatusError::too_many_operations(operations.len()));
    }
    if let Some(other) = operations.iter().find(|operation| !operation.is_object()) {
        return Err(malformed(other));
    }
    let mut patched = target.clone();
    let mut n_copied = 0;
    for operation in operations {
        let applied = apply_operation(&mut patched, operation, &mut n_copied);
        applied.ok_or_else(StatusError::patch_rejected)?;
    }
    *target = patched;
    Ok(())
}

/// The error for a patch, or an operation, of this type.
fn malformed(value: &Value) -> StatusError {
    let kind = type_of(value);
    StatusError::bad_request(format!(
        "error decoding patch: json: cannot unmarshal {kind} into Go value of type \
         []handlers.jsonPatchOp"
    ))
}

fn apply_operation(target: &mut Value, operation: &Value, n_copied: &mut usize) -> Option<()> {
    if operation.get("op")? == "test" {
        // The API server's library treats a missing value as `null` in a test.
        let expected = operation.get("value").unwrap_or(&Value::Null);
        let found = target.pointer(operation.get("path")?.as_str()?);
        return (found.unwrap_or(&Value::Null) == expected).then_some(());
    }
    let operation = serde_json::from_value(operation.clone()).ok()?;
    let operation = within_limits(operation, target, n_copied)?;
    json_patch::patch(target, &[operation]).ok()
}

/// The operation to apply; `None` if it exceeds a limit.
fn within_limits(
    operation: PatchOperation,
    target: &Value,
    n_copied: &mut usize,
) -> Option<PatchOperation> {
    match &operation {
        PatchOperation::Add(add) => fits_depth(add.path.as_str(), &add.value)?,
        PatchOperation::Replace(replace) => {
            let path = replace.path.as_str();
            fits_depth(path, &replace.value)?;
            // The API server's library also replaces members that do not exist.
            let (parent, _) = path.rsplit_once('/').unwrap_or_default();
            if target.pointer(path).is_none() && target.pointer(parent)?.is_object() {
                return Some(PatchOperation::Add(AddOperation {
                    path: replace.path.clone(),
                    value: replace.value.clone(),
                }));
            }
        }
        PatchOperation::Move(moved) => {
            fits_depth(moved.path.as_str(), target.pointer(moved.from.as_str())?)?;
        }
        PatchOperation::Copy(copy) => {
            let value = target.pointer(copy.from.as_str())?;
            *n_copied += value.to_string().len();
            if *n_copied > COPY_BYTES_MAX {
                return None;
            }
            fits_depth(copy.path.as_str(), value)?;
        }
        PatchOperation::Remove(_) | PatchOperation::Test(_) => {}
    }
    Some(operation)
}

fn fits_depth(path: &str, value: &Value) -> Option<()> {
    let n_above = path.matches('/').count();
    (n_above + depth_of(value) <= body::DEPTH_MAX).then_some(())
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::{StatusError, StrategicError, apply_operations, malformed, strategic_merge};

    #[track_caller]
    fn check(target: Value, patch: &Value, expected: &Value) {
        let mut target = target;
        strategic_merge(&mut target, patch).expect("a good patch");
        assert_eq!(&target, expected, "after {patch}");
    }

    #[test]
    fn maps_merge_and_null_removes() {
        check(
            json!({"metadata": {"labels": {"a": "1", "b": "2"}}}),
            &json!({"metadata": {"labels": {"a": null, "c": "3"}}}),
            &json!({"metadata": {"labels": {"b": "2", "c": "3"}}}),
        );
    }

    #[test]
    fn c_10_an_owner_is_deleted_by_its_uid() {
        check(
            json!({"ownerReferences": [{"uid": "1", "name": "x"}, {"uid": "2"}]}),
            &json!({"ownerReferences": [{"$patch": "delete", "uid": "1"}]}),
            &json!({"ownerReferences": [{"uid": "2"}]}),
        );
    }

    #[test]
    fn c_15_owners_merge_by_uid_and_new_ones_come_first() {
        check(
            json!({"ownerReferences": [{"uid": "1", "name": "x"}]}),
            &json!({"ownerReferences": [{"uid": "1", "controller": true}]}),
            &json!({"ownerReferences": [{"uid": "1", "name": "x", "controller": true}]}),
        );
        check(
            json!({"ownerReferences": [{"uid": "1"}]}),
            &json!({"ownerReferences": [{"uid": "2"}]}),
            &json!({"ownerReferences": [{"uid": "2"}, {"uid": "1"}]}),
        );
    }

    #[test]
    fn other_lists_merge_by_their_rules() {
        check(
            json!({"conditions": [{"type": "A", "status": "True"}, {"type": "B"}]}),
            &json!({"conditions": [{"type": "B", "status": "False"}]}),
            &json!({"conditions": [
                {"type": "A", "status": "True"}, {"type": "B", "status": "False"},
            ]}),
        );
        check(
            json!({"finalizers": ["a", "b"]}),
            &json!({"finalizers": ["b", "c"], "$deleteFromPrimitiveList/finalizers": ["a"]}),
            &json!({"finalizers": ["b", "c"]}),
        );
        check(
            json!({"tolerations": [1, 2]}),
            &json!({"tolerations": [3], "$setElementOrder/x": []}),
            &json!({"tolerations": [3]}),
        );
    }

    #[test]
    fn invalid_patches_get_the_api_servers_errors() {
        let check = |patch: Value, expected: StrategicError| {
            let mut target = json!({"containers": [{"name": "c"}], "map": {}});
            assert_eq!(
                strategic_merge(&mut target, &patch),
                Err(expected),
                "{patch}"
            );
        };
        let why = "map: map[image:x] does not contain declared merge key: name";
        let patch = json!({"containers": [{"image": "x"}]});
        check(patch, StrategicError::BadPatch(why.to_owned()));
        let why = "unknown patch type: frob in map: map[$patch:frob name:c]";
        let patch = json!({"containers": [{"$patch": "frob", "name": "c"}]});
        check(patch, StrategicError::BadPatch(why.to_owned()));
        let why = "cannot restore slice from string";
        let patch = json!({"containers": "x"});
        check(patch, StrategicError::BadValue(why.to_owned()));
    }

    #[track_caller]
    fn check_operations(operations: &Value, expected: Option<Value>) {
        let original = json!({"a": {"b/c": 1, "l": [1, 2, 3]}, "t~": "x"});
        let mut target = original.clone();
        let applied = apply_operations(&mut target, operations);
        match expected {
            Some(expected) => assert_eq!((applied, target), (Ok(()), expected), "{operations}"),
            None => {
                assert_eq!(
                    (applied, target),
                    (Err(StatusError::patch_rejected()), original),
                    "{operations}"
                );
            }
        }
    }

    #[test]
    fn every_operation_works() {
        let with = |list: Value| Some(json!({"a": {"b/c": 1, "l": list}, "t~": "x"}));
        let op =
            |op: &str, path: &str, value: i32| json!([{"op": op, "path": path, "value": value}]);
        check_operations(&op("add", "/a/l/-", 4), with(json!([1, 2, 3, 4])));
        check_operations(&op("add", "/a/l/0", 0), with(json!([0, 1, 2, 3])));
        check_operations(&op("replace", "/a/l/1", 9), with(json!([1, 9, 3])));
        check_operations(&op("remove", "/a/l/2", 0), with(json!([1, 2])));
        let moved = json!([{"op": "move", "from": "/a/b~1c", "path": "/t~0"}]);
        check_operations(&moved, Some(json!({"a": {"l": [1, 2, 3]}, "t~": 1})));
        let copied = json!([{"op": "copy", "from": "/t~0", "path": "/a/l/0"}]);
        check_operations(&copied, with(json!(["x", 1, 2, 3])));
        check_operations(
            &op("replace", "/a/new", 5),
            Some(json!({"a": {"b/c": 1, "l": [1, 2, 3], "new": 5}, "t~": "x"})),
        );
        let tested = json!([
            {"op": "test", "path": "/a/l", "value": [1, 2, 3]},
            {"op": "test", "path": "/nope", "value": null},
            {"op": "remove", "path": "/a/l/0"},
        ]);
        check_operations(&tested, with(json!([2, 3])));
    }

    #[test]
    fn a_failed_operation_changes_nothing() {
        for (op, path) in [
            ("add", "/x/y"),
            ("add", "/a/l/4"),
            ("add", "/a/l/01"),
            ("add", "/a/l/+1"),
            ("remove", "/nope"),
            ("remove", "/a/l/3"),
            ("remove", ""),
            ("replace", "/nope/nope"),
            ("replace", "/a/l/3"),
            ("test", "/a/l/0"),
            ("frob", "/a"),
            ("add", "a"),
        ] {
            let late = json!([
                {"op": "replace", "path": "/t~0", "value": 1},
                {"op": op, "path": path, "value": 7},
            ]);
            check_operations(&late, None);
        }
        check_operations(&json!([{"op": "add", "value": 1}]), None);
        check_operations(
            &json!([{"op": "move", "from": "/a", "path": "/a/l/0"}]),
            None,
        );
    }

    #[test]
    fn size_and_depth_are_bounded() {
        let double = |at: i32| json!({"op": "copy", "from": "", "path": format!("/x{at}")});
        let doubling: Vec<Value> = (0..40).map(double).collect();
        check_operations(&json!(doubling), None);
        let wrap = [
            json!({"op": "add", "path": "/y", "value": {}}),
            json!({"op": "move", "from": "/a", "path": "/y/a"}),
            json!({"op": "move", "from": "/y", "path": "/a"}),
        ];
        let many: Vec<Value> = (0..600).map(|at| wrap[at % 3].clone()).collect();
        check_operations(&json!(many), None);
    }

    #[test]
    fn malformed_patches_are_rejected() {
        let mut target = json!({});
        let failed = apply_operations(&mut target, &json!({}));
        assert_eq!(failed, Err(malformed(&json!({}))));
        assert_eq!(
            apply_operations(&mut target, &json!([1])),
            Err(malformed(&json!(1)))
        );
        let many = vec![json!({}); 10_001];
        assert_eq!(
            apply_operations(&mut target, &json!(many)),
            Err(StatusError::too_many_operations(10_001))
        );
    }
}
