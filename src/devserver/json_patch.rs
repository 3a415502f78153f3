//! JSON patch (RFC 6902): a list of operations on a JSON tree, all of which are done or none. Pure.

use serde_json::Value;

/// Most operations of one patch (apiserver
/// `pkg/endpoints/handlers/patch.go:maxJSONPatchOperations`).
const OPERATIONS_MAX: usize = 10_000;

/// Most bytes of text that all `copy` operations of a patch may copy together (apiserver
/// `pkg/server/config.go:JSONPatchMaxCopyBytes`). Without a limit, each could double the object.
const COPY_BYTES_MAX: usize = 3 * 1024 * 1024;

/// Deepest nesting that an operation may build; nothing later could read what is deeper.
const DEPTH_MAX: usize = 100;

/// Why a patch is not done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Failure {
    /// It is no patch at all.
    Malformed(&'static str),
    /// It has more operations than are taken.
    TooMany(usize),
    /// An operation does not fit the target, or its test failed.
    Rejected,
}

/// Does all operations of `patch` on `target`, which is unchanged if one fails.
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
        operate(&mut patched, operation, &mut n_copied).ok_or(Failure::Rejected)?;
    }
    *target = patched;
    Ok(())
}

/// The JSON type of what should have been something else.
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

fn operate(target: &mut Value, operation: &Value, n_copied: &mut usize) -> Option<()> {
    let text = |name: &str| operation.get(name).and_then(Value::as_str);
    let path = text("path")?;
    let value = || operation.get("value").cloned();
    match text("op")? {
        "add" => add(target, path, value()?),
        "remove" => remove(target, path).map(|_| ()),
        "replace" => {
            let value = value()?;
            fits_depth(path, &value)?;
            if let Some(old) = target.pointer_mut(path) {
                *old = value;
            } else {
                // The API server's library lets a member be replaced that is not there.
                let (parent, last) = parent(target, path)?;
                parent.as_object_mut()?.insert(last, value);
            }
            Some(())
        }
        "move" => {
            let from = text("from")?;
            // A value cannot be moved into itself.
            if path
                .strip_prefix(from)
                .is_some_and(|rest| rest.starts_with('/'))
            {
                return None;
            }
            let value = remove(target, from)?;
            add(target, path, value)
        }
        "copy" => {
            let value = target.pointer(text("from")?)?.clone();
            *n_copied += value.to_string().len();
            if *n_copied > COPY_BYTES_MAX {
                return None;
            }
            add(target, path, value)
        }
        "test" => {
            // What is not there is `null` to a test, as the API server's library has it.
            let expected = operation.get("value").unwrap_or(&Value::Null);
            let found = target.pointer(path).unwrap_or(&Value::Null);
            (found == expected).then_some(())
        }
        _ => None,
    }
}

/// Splits `/a/b/c` into what is at `/a/b`, and `c`.
fn parent<'a>(target: &'a mut Value, path: &str) -> Option<(&'a mut Value, String)> {
    let (parent, last) = path.rsplit_once('/')?;
    let last = last.replace("~1", "/").replace("~0", "~");
    Some((target.pointer_mut(parent)?, last))
}

/// How many levels a value has: 0 for a plain one.
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

fn add(target: &mut Value, path: &str, value: Value) -> Option<()> {
    fits_depth(path, &value)?;
    if path.is_empty() {
        *target = value;
        return Some(());
    }
    match parent(target, path)? {
        (Value::Object(map), name) => {
            map.insert(name, value);
        }
        (Value::Array(list), index) if index == "-" => list.push(value),
        (Value::Array(list), index) => {
            let index = index_of(&index)?;
            if index > list.len() {
                return None;
            }
            list.insert(index, value);
        }
        _ => return None,
    }
    Some(())
}

fn remove(target: &mut Value, path: &str) -> Option<Value> {
    match parent(target, path)? {
        (Value::Object(map), name) => map.remove(&name),
        (Value::Array(list), index) => {
            let index = index_of(&index)?;
            (index < list.len()).then(|| list.remove(index))
        }
        _ => None,
    }
}

/// Digits without a sign or leading zeros.
fn index_of(text: &str) -> Option<usize> {
    let is_number = text.bytes().all(|byte| byte.is_ascii_digit());
    let is_plain = is_number && (text == "0" || !text.starts_with('0'));
    text.parse().ok().filter(|_| is_plain)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::{Failure, apply};

    #[track_caller]
    fn check(operations: &Value, expected: Option<Value>) {
        let original = json!({"a": {"b/c": 1, "l": [1, 2, 3]}, "t~": "x"});
        let mut target = original.clone();
        let done = apply(&mut target, operations);
        match expected {
            Some(expected) => assert_eq!((done, target), (Ok(()), expected), "{operations}"),
            None => {
                assert_eq!(
                    (done, target),
                    (Err(Failure::Rejected), original),
                    "{operations}"
                );
            }
        }
    }

    #[test]
    fn every_operation() {
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
    fn what_does_not_fit_changes_nothing() {
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
    fn nothing_grows_without_bound() {
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
    fn what_is_no_patch() {
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
