//! Field sets, as `metadata.managedFields` keeps them per manager: the fields of an object, their
//! values in another object, and their JSON form. Pure.
//!
//! A field is a path of tokens in upstream's notation: `f:NAME` for a member, `k:{"name":"c"}` for
//! an entry of a keyed list, `v:"x"` for a value of a set, and `.` for the entry itself.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, HashMap};

use serde_json::{Map, Value, json};

use super::patch::{ListMerge, list_merge};
use super::resource::Resource;

/// One field.
pub(super) type Path = Vec<String>;

/// Maps that count as one value.
const ATOMIC_MAPS: [&str; 2] = ["selector", "nodeSelector"];

/// Metadata fields without a manager.
const UNMANAGED: [&str; 9] = [
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

/// How a list with these entries is merged.
type MergeOf = fn(&str, &[Value]) -> ListMerge;

/// The fields that `object` sets. Only its schema could say how lists of a custom resource are
/// merged, so they are replaced.
pub(super) fn fields_of(resource: Resource, object: &Value) -> BTreeSet<Path> {
    let merge_of: MergeOf = if resource.is_custom() {
        |_, _| ListMerge::Replace
    } else {
        list_merge
    };
    let mut fields = BTreeSet::new();
    for (name, value) in object.as_object().into_iter().flatten() {
        if name == "kind" || name == "apiVersion" {
            continue;
        }
        let path = vec![format!("f:{name}")];
        if name != "metadata" {
            collect(name, value, &path, merge_of, &mut fields);
            continue;
        }
        for (name, value) in value.as_object().into_iter().flatten() {
            if !UNMANAGED.contains(&name.as_str()) {
                let path = [path.as_slice(), &[format!("f:{name}")]].concat();
                collect(name, value, &path, list_merge, &mut fields);
            }
        }
    }
    fields
}

fn collect(name: &str, value: &Value, path: &Path, merge_of: MergeOf, fields: &mut BTreeSet<Path>) {
    let deeper = |token: String| [path.as_slice(), &[token]].concat();
    match value {
        Value::Object(map) if !map.is_empty() && !ATOMIC_MAPS.contains(&name) => {
            for (name, value) in map {
                collect(name, value, &deeper(format!("f:{name}")), merge_of, fields);
            }
        }
        Value::Array(entries) if !entries.is_empty() => match merge_of(name, entries) {
            // An atomic list is a single field.
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
                        collect(name, value, &path, merge_of, fields);
                    }
                }
            }
        },
        _ => {
            fields.insert(path.clone());
        }
    }
}

/// Encodes a field set as `fieldsV1`.
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

/// Decodes a field set from `fieldsV1`.
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

/// A field in the notation of error messages: `.spec.containers[name="c"].image`.
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

/// Reads the values at many paths of an object, without a scan of each list per path.
#[derive(Debug)]
pub(super) struct Reader<'a> {
    object: &'a Value,
    /// The positions of list entries by token, cached per list on first use.
    positions: RefCell<HashMap<(*const Value, Form), Positions>>,
}

/// The positions of list entries, keyed by the text of their identity.
type Positions = HashMap<String, usize>;

/// The identity of list entries: the names of a key's members, or the whole value.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Form {
    Key(Vec<String>),
    Whole,
}

impl<'a> Reader<'a> {
    pub(super) fn new(object: &'a Value) -> Self {
        Self {
            object,
            positions: RefCell::default(),
        }
    }

    /// The object's value at `path`.
    pub(super) fn value_at(&self, path: &[String]) -> Option<&'a Value> {
        let mut value = self.object;
        for token in path {
            value = match token.split_once(':') {
                Some(("f", name)) => value.get(name)?,
                Some(_) => &value.as_array()?[self.position(value, token)?],
                None => return Some(&Value::Null),
            };
        }
        Some(value)
    }

    fn position(&self, list: &Value, token: &str) -> Option<usize> {
        let (form, text) = read_token(token)?;
        let mut positions = self.positions.borrow_mut();
        let positions = positions
            .entry((std::ptr::from_ref(list), form.clone()))
            .or_insert_with(|| positions_of(list, &form));
        positions.get(&text).copied()
    }
}

/// Parses a `k:` or `v:` token into the form that [`positions_of`] uses.
fn read_token(token: &str) -> Option<(Form, String)> {
    let (kind, text) = token.split_once(':')?;
    let wanted: Value = serde_json::from_str(text).ok()?;
    let form = match (kind, &wanted) {
        ("k", Value::Object(key)) => Form::Key(key.keys().cloned().collect()),
        _ => Form::Whole,
    };
    Some((form, wanted.to_string()))
}

/// The positions of a list's entries; duplicates map to the first.
fn positions_of(list: &Value, form: &Form) -> Positions {
    let mut positions = Positions::new();
    for (at, entry) in list.as_array().into_iter().flatten().enumerate() {
        let text = match form {
            Form::Whole => Some(entry.to_string()),
            Form::Key(names) => {
                let members = names
                    .iter()
                    .map(|name| Some((name.clone(), entry.get(name)?.clone())));
                let key: Option<Map<String, Value>> = members.collect();
                key.map(|key| Value::Object(key).to_string())
            }
        };
        if let Some(text) = text {
            positions.entry(text).or_insert(at);
        }
    }
    positions
}

/// Removes the values at `paths` from `object`. Removes a list that becomes empty, too.
pub(super) fn remove_all<'a>(object: &mut Value, paths: impl Iterator<Item = &'a [String]>) {
    let mut inner: BTreeMap<&str, Vec<&[String]>> = BTreeMap::new();
    let mut whole: BTreeSet<&str> = BTreeSet::new();
    for path in paths {
        let Some((token, rest)) = path.split_first() else {
            continue;
        };
        if rest.is_empty() || rest == ["."] {
            whole.insert(token);
        } else {
            inner.entry(token).or_default().push(rest);
        }
    }
    inner.retain(|token, _| !whole.contains(token));
    match object {
        Value::Object(map) => {
            let name_of = |token: &'a str| token.strip_prefix("f:");
            for name in whole.into_iter().filter_map(name_of) {
                map.remove(name);
            }
            for (token, rests) in inner {
                if let Some(name) = name_of(token)
                    && let Some(value) = map.get_mut(name)
                {
                    remove_all(value, rests.into_iter());
                    if value.as_array().is_some_and(Vec::is_empty) {
                        map.remove(name);
                    }
                }
            }
        }
        Value::Array(_) => remove_from_list(object, &whole, inner),
        _ => {}
    }
}

fn remove_from_list(
    list: &mut Value,
    whole: &BTreeSet<&str>,
    inner: BTreeMap<&str, Vec<&[String]>>,
) {
    let mut positions: HashMap<Form, Positions> = HashMap::new();
    let mut position = |token: &str| {
        let (form, text) = read_token(token)?;
        let positions = positions
            .entry(form.clone())
            .or_insert_with(|| positions_of(list, &form));
        positions.get(&text).copied()
    };
    let removed: BTreeSet<usize> = whole.iter().filter_map(|token| position(token)).collect();
    let inner: Vec<(usize, Vec<&[String]>)> = inner
        .into_iter()
        .filter_map(|(token, rests)| Some((position(token)?, rests)))
        .collect();
    let Some(entries) = list.as_array_mut() else {
        return;
    };
    for (at, rests) in inner {
        remove_all(&mut entries[at], rests.into_iter());
    }
    let mut at = 0;
    entries.retain(|_| {
        at += 1;
        !removed.contains(&(at - 1))
    });
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::resource::Resource;
    use super::{Reader, fields_of, from_tree, remove_all, text_of, to_tree};

    #[test]
    fn fields_have_upstreams_notation() {
        let object = json!({
            "kind": "ReplicaSet", "apiVersion": "apps/v1",
            "metadata": {"name": "web", "labels": {"a": "b"}, "finalizers": ["x/y"]},
            "spec": {
                "replicas": 2, "selector": {"matchLabels": {"a": "b"}},
                "template": {"spec": {"containers": [{"name": "c", "image": "i"}]}},
            },
        });
        let fields = fields_of(Resource::ReplicaSets, &object);
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
        let reader = Reader::new(&object);
        for field in &fields {
            assert!(reader.value_at(field).is_some(), "{field:?}");
        }
        let image = fields
            .iter()
            .map(text_of)
            .find(|text| text.ends_with("image"));
        let expected = ".spec.template.spec.containers[name=\"c\"].image";
        assert_eq!(image.as_deref(), Some(expected));
        let mut remaining = object.clone();
        remove_all(&mut remaining, fields.iter().map(Vec::as_slice));
        assert_eq!(remaining["metadata"], json!({"name": "web", "labels": {}}));
        assert_eq!(remaining["spec"], json!({"template": {"spec": {}}}));
    }
}
