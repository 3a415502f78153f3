//! Access to the JSON trees of objects. What is absent or of another type reads as empty. Pure.

use std::hash::{DefaultHasher, Hash, Hasher};

use serde_json::{Map, Value, json};

/// The text at `pointer`, or the empty string.
pub(crate) fn text<'a>(object: &'a Value, pointer: &str) -> &'a str {
    let found = object.pointer(pointer);
    found.and_then(Value::as_str).unwrap_or_default()
}

/// The number at `pointer`, if any.
pub(crate) fn number(object: &Value, pointer: &str) -> Option<i64> {
    object.pointer(pointer).and_then(Value::as_i64)
}

/// The entries of the list at `pointer`; empty without a list.
pub(crate) fn entries<'a>(object: &'a Value, pointer: &str) -> &'a [Value] {
    let found = object.pointer(pointer).and_then(Value::as_array);
    found.map_or(&[], Vec::as_slice)
}

/// The members of the map at `pointer`; none without a map.
pub(crate) fn members<'a>(
    object: &'a Value,
    pointer: &str,
) -> impl Iterator<Item = (&'a String, &'a Value)> {
    let found = object.pointer(pointer).and_then(Value::as_object);
    found.into_iter().flatten()
}

/// The maps in the list at `pointer`, mutable. Skips other entries.
pub(crate) fn maps_mut<'a>(
    object: &'a mut Value,
    pointer: &str,
) -> impl Iterator<Item = &'a mut Map<String, Value>> {
    let found = object.pointer_mut(pointer).and_then(Value::as_array_mut);
    let entries = found.into_iter().flatten();
    entries.filter_map(Value::as_object_mut)
}

/// The member `name` as a map; replaces any other value with an empty map.
pub(crate) fn map_of<'a>(object: &'a mut Value, name: &str) -> &'a mut Map<String, Value> {
    if !object[name].is_object() {
        object[name] = Value::Object(Map::new());
    }
    object[name]
        .as_object_mut()
        .expect("it was just made a map")
}

/// Sets the member `name` if it is missing.
pub(crate) fn set_default(map: &mut Map<String, Value>, name: &str, value: impl Into<Value>) {
    let (member, value) = (map.entry(name).or_insert(Value::Null), value.into());
    if is_missing(member, &value) {
        *member = value;
    }
}

/// True for `null`, and for an empty text that has a default: Go does not tell it from none.
fn is_missing(value: &Value, default: &Value) -> bool {
    value.is_null() || (default.is_string() && *value == "")
}

/// Adds the members of `defaults` that `object` lacks, at every depth.
pub(crate) fn add_missing(object: &mut Value, defaults: &Value) {
    let (Some(members), Some(defaults)) = (object.as_object_mut(), defaults.as_object()) else {
        return;
    };
    for (name, default) in defaults {
        let member = members.entry(name).or_insert(Value::Null);
        if is_missing(member, default) {
            *member = default.clone();
        }
        add_missing(member, default);
    }
}

/// Removes `null` members at every depth, because `null` means absent.
pub(crate) fn drop_nulls(value: &mut Value) {
    match value {
        Value::Object(map) => {
            map.retain(|_, value| !value.is_null());
            map.values_mut().for_each(drop_nulls);
        }
        Value::Array(values) => values.iter_mut().for_each(drop_nulls),
        _ => {}
    }
}

/// Removes the fields that are the same in all objects of a resource.
pub(crate) fn strip_kind(object: &mut Value) {
    if let Some(map) = object.as_object_mut() {
        map.remove("kind");
        map.remove("apiVersion");
    }
}

/// The nesting depth of a value; 0 for a scalar.
pub(crate) fn depth_of(value: &Value) -> usize {
    let deepest = match value {
        Value::Object(map) => map.values().map(depth_of).max(),
        Value::Array(values) => values.iter().map(depth_of).max(),
        _ => return 0,
    };
    1 + deepest.unwrap_or(0)
}

/// How Go's decoder calls the type of a value.
pub(crate) fn type_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "bool",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

/// The status of a condition: `True`, `False`, `Unknown`, or empty without the condition.
pub(crate) fn condition<'a>(object: &'a Value, kind: &str) -> &'a str {
    let mut conditions = entries(object, "/status/conditions").iter();
    let found = conditions.find(|condition| text(condition, "/type") == kind);
    found.map_or("", |condition| text(condition, "/status"))
}

/// A number that stands for a value, the same in each run.
pub(crate) fn hash_of(value: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}

pub(crate) fn is_deleting(object: &Value) -> bool {
    object.pointer("/metadata/deletionTimestamp").is_some()
}

pub(crate) fn has_finalizer(object: &Value, finalizer: &str) -> bool {
    entries(object, "/metadata/finalizers").contains(&json!(finalizer))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::add_missing;

    #[test]
    fn defaults_fill_gaps_only() {
        let mut object = json!({"spec": {"replicas": 0, "strategy": null, "type": ""}});
        let defaults = json!({"spec": {"replicas": 1, "strategy": {"type": "a"}, "type": "b"}});
        add_missing(&mut object, &defaults);
        assert_eq!(
            object,
            json!({"spec": {"replicas": 0, "strategy": {"type": "a"}, "type": "b"}})
        );
    }
}
