//! Sets of fields, as `metadata.managedFields` keeps them of each manager: which fields an object
//! names, where they are in another object, and how they are written. Pure.
//!
//! A field is a path of tokens as upstream writes them: `f:NAME` for a member, `k:{"name":"c"}` for an
//! entry of a list that has a key, `v:"x"` for a value of a set, and `.` for the entry itself.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, HashMap};

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

/// Finds what an object has at many paths, without a look at every entry of a list for each.
#[derive(Debug)]
pub(super) struct Reader<'a> {
    object: &'a Value,
    /// The places of a list's entries by their tokens, of each list at which one was looked for.
    places: RefCell<HashMap<(*const Value, Form), Places>>,
}

/// Where the entries of a list are, by the text of what tells them apart.
type Places = HashMap<String, usize>;

/// What tells the entries of a list apart: the names of a key's members, or the whole value.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Form {
    Key(Vec<String>),
    Whole,
}

impl<'a> Reader<'a> {
    pub(super) fn new(object: &'a Value) -> Self {
        Self {
            object,
            places: RefCell::default(),
        }
    }

    /// What the object has at `path`.
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
        let mut places = self.places.borrow_mut();
        let places = places
            .entry((std::ptr::from_ref(list), form.clone()))
            .or_insert_with(|| places_of(list, &form));
        places.get(&text).copied()
    }
}

/// What `k:` or `v:` names, as [`places_of`] has it.
fn read_token(token: &str) -> Option<(Form, String)> {
    let (kind, text) = token.split_once(':')?;
    let wanted: Value = serde_json::from_str(text).ok()?;
    let form = match (kind, &wanted) {
        ("k", Value::Object(key)) => Form::Key(key.keys().cloned().collect()),
        _ => Form::Whole,
    };
    Some((form, wanted.to_string()))
}

/// The places of a list's entries, the first of equal ones.
fn places_of(list: &Value, form: &Form) -> Places {
    let mut places = Places::new();
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
            places.entry(text).or_insert(at);
        }
    }
    places
}

/// Takes away what `object` has at `paths`. A list that becomes empty by that goes too.
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
    let mut places: HashMap<Form, Places> = HashMap::new();
    let mut position = |token: &str| {
        let (form, text) = read_token(token)?;
        let places = places
            .entry(form.clone())
            .or_insert_with(|| places_of(list, &form));
        places.get(&text).copied()
    };
    let gone: BTreeSet<usize> = whole.iter().filter_map(|token| position(token)).collect();
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
        !gone.contains(&(at - 1))
    });
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{Reader, fields_of, from_tree, remove_all, text_of, to_tree};

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
        let mut rest = object.clone();
        remove_all(&mut rest, fields.iter().map(Vec::as_slice));
        assert_eq!(rest["metadata"], json!({"name": "web", "labels": {}}));
        assert_eq!(rest["spec"], json!({"template": {"spec": {}}}));
    }
}
