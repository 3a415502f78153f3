//! JSON patch (RFC 6902): a list of operations on a JSON tree, applied as a whole or not at all.
//! Pure.
//!
//! The crate `json_patch` does the operations. This file adds the behaviours in which the API
//! server's library differs, and limits that keep a patch from building an object too large to
//! store or parse.

use json_patch::{AddOperation, PatchOperation};
use serde_json::Value;

/// Maximum operations per patch (apiserver
/// `pkg/endpoints/handlers/patch.go:maxJSONPatchOperations`).
const OPERATIONS_MAX: usize = 10_000;

/// Maximum bytes that all `copy` operations of a patch may copy (apiserver
/// `pkg/server/config.go:JSONPatchMaxCopyBytes`). Without a limit, each could double the object.
const COPY_BYTES_MAX: usize = 3 * 1024 * 1024;

/// Maximum nesting depth of a result; the server cannot parse deeper objects.
const DEPTH_MAX: usize = 100;

/// Why a patch fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Failure {
    /// The body is not a list of operations.
    Malformed(&'static str),
    /// The patch has more operations than allowed.
    TooMany(usize),
    /// An operation does not fit the target, or its test failed.
    Rejected,
}

/// Applies all operations of `patch` to `target`, which stays unchanged if one fails.
///
/// # Errors
/// See [`Failure`].
pub(super) fn apply(target: &mut Value, patch: &Value) -> Result<(), Failure> {
    let Some(operations) = patch.as_array() else {
        return Err(Failure::Malformed(kind_name(patch)));
    };
    if operations.len() > OPERATIONS_MAX {
        return Err(Failure::TooMany(operations.len()));
    }
    if let Some(other) = operations.iter().find(|operation| !operation.is_object()) {
        return Err(Failure::Malformed(kind_name(other)));
    }
    let mut patched = target.clone();
    let mut n_copied = 0;
    for operation in operations {
        apply_operation(&mut patched, operation, &mut n_copied).ok_or(Failure::Rejected)?;
    }
    *target = patched;
    Ok(())
}

/// The JSON type of an unexpected value.
fn kind_name(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "bool",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
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

/// The nesting depth of a value; 0 for a scalar.
pub(super) fn depth_of(value: &Value) -> usize {
    let deepest = match value {
        Value::Object(map) => map.values().map(depth_of).max(),
        Value::Array(values) => values.iter().map(depth_of).max(),
        _ => return 0,
    };
    1 + deepest.unwrap_or(0)
}

fn fits_depth(path: &str, value: &Value) -> Option<()> {
    let n_above = path.matches('/').count();
    (n_above + depth_of(value) <= DEPTH_MAX).then_some(())
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::{Failure, apply};

    #[track_caller]
    fn check(operations: &Value, expected: Option<Value>) {
        let original = json!({"a": {"b/c": 1, "l": [1, 2, 3]}, "t~": "x"});
        let mut target = original.clone();
        let applied = apply(&mut target, operations);
        match expected {
            Some(expected) => assert_eq!((applied, target), (Ok(()), expected), "{operations}"),
            None => {
                assert_eq!(
                    (applied, target),
                    (Err(Failure::Rejected), original),
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
        check(&op("add", "/a/l/-", 4), with(json!([1, 2, 3, 4])));
        check(&op("add", "/a/l/0", 0), with(json!([0, 1, 2, 3])));
        check(&op("replace", "/a/l/1", 9), with(json!([1, 9, 3])));
        check(&op("remove", "/a/l/2", 0), with(json!([1, 2])));
        let moved = json!([{"op": "move", "from": "/a/b~1c", "path": "/t~0"}]);
        check(&moved, Some(json!({"a": {"l": [1, 2, 3]}, "t~": 1})));
        let copied = json!([{"op": "copy", "from": "/t~0", "path": "/a/l/0"}]);
        check(&copied, with(json!(["x", 1, 2, 3])));
        check(
            &op("replace", "/a/new", 5),
            Some(json!({"a": {"b/c": 1, "l": [1, 2, 3], "new": 5}, "t~": "x"})),
        );
        let tested = json!([
            {"op": "test", "path": "/a/l", "value": [1, 2, 3]},
            {"op": "test", "path": "/nope", "value": null},
            {"op": "remove", "path": "/a/l/0"},
        ]);
        check(&tested, with(json!([2, 3])));
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
            check(&late, None);
        }
        check(&json!([{"op": "add", "value": 1}]), None);
        check(
            &json!([{"op": "move", "from": "/a", "path": "/a/l/0"}]),
            None,
        );
    }

    #[test]
    fn size_and_depth_are_bounded() {
        let double = |at: i32| json!({"op": "copy", "from": "", "path": format!("/x{at}")});
        let doubling: Vec<Value> = (0..40).map(double).collect();
        check(&json!(doubling), None);
        let wrap = [
            json!({"op": "add", "path": "/y", "value": {}}),
            json!({"op": "move", "from": "/a", "path": "/y/a"}),
            json!({"op": "move", "from": "/y", "path": "/a"}),
        ];
        let many: Vec<Value> = (0..600).map(|at| wrap[at % 3].clone()).collect();
        check(&json!(many), None);
    }

    #[test]
    fn malformed_patches_are_rejected() {
        let mut target = json!({});
        let failed = apply(&mut target, &json!({}));
        assert_eq!(failed, Err(Failure::Malformed("object")));
        assert_eq!(
            apply(&mut target, &json!([1])),
            Err(Failure::Malformed("number"))
        );
        let many = vec![json!({}); 10_001];
        assert_eq!(
            apply(&mut target, &json!(many)),
            Err(Failure::TooMany(10_001))
        );
    }
}
