//! Sets of fields, as `metadata.managedFields` keeps them of each manager: which fields an object
//! names, where they are in another object, and how they are written. Pure.
//!
//! A field is a path of tokens as upstream writes them: `f:NAME` for a member, `k:{"name":"c"}` for an
//! entry of a list that has a key, `v:"x"` for a value of a set, and `.` for the entry itself.

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

use super::patch::{ListMerge, list_merge};

/// One field.
pub(super) type Path = Vec<String>;

/// Maps that are taken as one value, whatever is in them.
const ATOMIC_MAPS: [&str; 2] = ["selector", "nodeSelector"];

/// What of the metadata belongs to nobody.
const NOBODYS: [&str; 9] = [
    "name",
    "namespace",
    "uid",
    "resourceVersion",
    "generation",
    "creationTimestamp",
    "deletionTimestamp",
    "managedFields",
    "selfLink",
];

/// The fields that `object` names.
pub(super) fn fields_of(object: &Value) -> BTreeSet<Path> {
    let mut fields = BTreeSet::new();
    for (name, value) in object.as_object().into_iter().flatten() {
        if name == "kind" || name == "apiVersion" {
            continue;
        }
        let path = vec![format!("f:{name}")];
        if name != "metadata" {
            collect(name, value, &path, &mut fields);
            continue;
        }
        for (name, value) in value.as_object().into_iter().flatten() {
            if !NOBODYS.contains(&name.as_str()) {
                let path = [path.as_slice(), &[format!("f:{name}")]].concat();
                collect(name, value, &path, &mut fields);
            }
        }
    }
    fields
}

fn collect(name: &str, value: &Value, path: &Path, fields: &mut BTreeSet<Path>) {
    let deeper = |token: String| [path.as_slice(), &[token]].concat();
    match value {
        Value::Object(map) if !map.is_empty() && !ATOMIC_MAPS.contains(&name) => {
            for (name, value) in map {
                collect(name, value, &deeper(format!("f:{name}")), fields);
            }
        }
        Value::Array(entries) if !entries.is_empty() => match list_merge(name) {
            ListMerge::Replace => {
                fields.insert(path.clone());
            }
            ListMerge::AsSet => {
                fields.extend(entries.iter().map(|entry| deeper(format!("v:{entry}"))));
            }
            ListMerge::ByKey(key) => {
                for entry in entries {
                    let id = json!({key: entry[key]});
                    let path = deeper(format!("k:{id}"));
                    fields.insert([path.as_slice(), &[".".to_owned()]].concat());
                    for (name, value) in entry.as_object().into_iter().flatten() {
                        let path = [path.as_slice(), &[format!("f:{name}")]].concat();
                        collect(name, value, &path, fields);
                    }
                }
            }
        },
        _ => {
            fields.insert(path.clone());
        }
    }
}

/// A set as `fieldsV1` writes it.
pub(super) fn to_tree(fields: &BTreeSet<Path>) -> Value {
    let mut tree = Value::Object(Map::new());
    for path in fields {
        let mut node = &mut tree;
        for token in path {
            if !node[token.as_str()].is_object() {
                node[token.as_str()] = Value::Object(Map::new());
            }
            node = &mut node[token.as_str()];
        }
    }
    tree
}

/// A set as it was written.
pub(super) fn from_tree(tree: &Value) -> BTreeSet<Path> {
    fn walk(tree: &Value, path: &Path, fields: &mut BTreeSet<Path>) {
        for (token, rest) in tree.as_object().into_iter().flatten() {
            let path = [path.as_slice(), std::slice::from_ref(token)].concat();
            if rest.as_object().is_none_or(Map::is_empty) {
                fields.insert(path);
            } else {
                walk(rest, &path, fields);
            }
        }
    }
    let mut fields = BTreeSet::new();
    walk(tree, &Vec::new(), &mut fields);
    fields
}

/// A field as messages name it: `.spec.containers[name="c"].image`.
pub(super) fn text_of(path: &Path) -> String {
    let mut text = String::new();
    for token in path {
        if let Some(name) = token.strip_prefix("f:") {
            text.push('.');
            text.push_str(name);
        } else if let Some(key) = token.strip_prefix("k:") {
            let key: Value = serde_json::from_str(key).unwrap_or_default();
            let pairs = key.as_object().into_iter().flatten();
            let pairs = pairs.map(|(name, value)| format!("{name}={value}"));
            text.push('[');
            text.push_str(&pairs.collect::<Vec<_>>().join(","));
            text.push(']');
        } else if let Some(value) = token.strip_prefix("v:") {
            text.push_str("[=");
            text.push_str(value);
            text.push(']');
        }
    }
    text
}

/// What `object` has at `path`.
pub(super) fn value_at<'a>(object: &'a Value, path: &[String]) -> Option<&'a Value> {
    let [token, rest @ ..] = path else {
        return Some(object);
    };
    let next = match token.split_once(':') {
        Some(("f", name)) => object.get(name)?,
        Some(_) => &object.as_array()?[position(object, token)?],
        None => return Some(&Value::Null),
    };
    value_at(next, rest)
}

/// Takes away what `object` has at `path`. A list that becomes empty by that goes too.
pub(super) fn remove_at(object: &mut Value, path: &[String]) {
    let Some((token, rest)) = path.split_first() else {
        return;
    };
    let is_last = rest.is_empty() || rest == ["."];
    let Some(name) = token.strip_prefix("f:") else {
        if let Some(at) = position(object, token)
            && let Some(entries) = object.as_array_mut()
        {
            if is_last {
                entries.remove(at);
            } else {
                remove_at(&mut entries[at], rest);
            }
        }
        return;
    };
    let Some(map) = object.as_object_mut() else {
        return;
    };
    if is_last {
        map.remove(name);
    } else if let Some(inner) = map.get_mut(name) {
        remove_at(inner, rest);
        if inner.as_array().is_some_and(Vec::is_empty) {
            map.remove(name);
        }
    }
}

/// Where in a list the entry is that `k:` or `v:` names.
fn position(list: &Value, token: &str) -> Option<usize> {
    let (kind, text) = token.split_once(':')?;
    let wanted: Value = serde_json::from_str(text).ok()?;
    let mut entries = list.as_array()?.iter();
    entries.position(|entry| match (kind, &wanted) {
        ("k", Value::Object(key)) => key
            .iter()
            .all(|(name, value)| entry.get(name) == Some(value)),
        _ => *entry == wanted,
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{fields_of, from_tree, remove_at, text_of, to_tree, value_at};

    #[test]
    fn fields_are_written_and_read_as_upstream_has_them() {
        let object = json!({
            "kind": "ReplicaSet", "apiVersion": "apps/v1",
            "metadata": {"name": "web", "labels": {"a": "b"}, "finalizers": ["x/y"]},
            "spec": {
                "replicas": 2, "selector": {"matchLabels": {"a": "b"}},
                "template": {"spec": {"containers": [{"name": "c", "image": "i"}]}},
            },
        });
        let fields = fields_of(&object);
        let tree = json!({
            "f:metadata": {"f:labels": {"f:a": {}}, "f:finalizers": {"v:\"x/y\"": {}}},
            "f:spec": {
                "f:replicas": {}, "f:selector": {},
                "f:template": {"f:spec": {"f:containers": {"k:{\"name\":\"c\"}": {
                    ".": {}, "f:name": {}, "f:image": {},
                }}}},
            },
        });
        assert_eq!(to_tree(&fields), tree);
        assert_eq!(from_tree(&tree), fields);
        for field in &fields {
            assert!(value_at(&object, field).is_some(), "{field:?}");
        }
        let image = fields
            .iter()
            .map(text_of)
            .find(|text| text.ends_with("image"));
        let expected = ".spec.template.spec.containers[name=\"c\"].image";
        assert_eq!(image.as_deref(), Some(expected));
        let mut rest = object;
        for field in &fields {
            remove_at(&mut rest, field);
        }
        assert_eq!(rest["metadata"], json!({"name": "web", "labels": {}}));
        assert_eq!(rest["spec"], json!({"template": {"spec": {}}}));
    }
}
