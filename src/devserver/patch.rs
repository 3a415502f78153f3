//! Strategic merge patch, which has the shape of its target and merges certain lists by a key of
//! their entries. Pure functions on JSON trees.

use std::collections::{HashMap, VecDeque};

use serde_json::{Map, Value};

/// How a list is merged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ListMerge {
    /// Entries are maps, identified by this member.
    ByKey(&'static str),
    /// Entries are plain values without duplicates.
    AsSet,
    /// The new list replaces the old one.
    Replace,
}

/// kubernetes `api/core/v1/types.go` and `api/apps/v1/types.go`: the tags `patchStrategy` and
/// `patchMergeKey` of the kinds served here, for a list with these new entries.
pub(super) fn list_merge(name: &str, entries: &[Value]) -> ListMerge {
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

/// Why a strategic merge patch fails.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum StrategicError {
    /// The patch violates its own rules, such as a list entry without its merge key.
    BadPatch(String),
    /// A value of the patch does not fit its field.
    BadValue(String),
}

use StrategicError::{BadPatch, BadValue};

/// Merges a strategic merge patch into `target`.
///
/// # Errors
/// See [`StrategicError`]. The caller must then discard the target.
pub(super) fn strategic_merge(target: &mut Value, patch: &Value) -> Result<(), StrategicError> {
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

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::{StrategicError, strategic_merge};

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
}
