//! Server-side apply: creates or merges a manager's desired fields, and records the owner of each
//! field in `metadata.managedFields`.
//!
//! A field is a path of tokens in upstream's notation: `f:NAME` for a member, `k:{"name":"c"}` for
//! an entry of a keyed list, `v:"x"` for a value of a set, and `.` for the entry itself.
//!
//! DIFFERS: the server tracks managers from an object's first apply on, not from its creation. An
//! update takes over the applied fields that it changes; its other changes have no manager. Lists
//! merge by the rules of the strategic merge patch.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, HashMap};

use serde_json::{Map, Value, json};

use crate::json::{entries, map_of, members, set_default, strip_kind, text};
use crate::patch::{ListMerge, list_merge};
use crate::resource::Resource;
use crate::status_error::StatusError;
use crate::store::{Object, State};
use crate::write::{Part, create_managed};
use crate::{metadata, patch, schema, write};

/// The parameters of an apply.
pub(crate) struct ApplyParams<'a> {
    pub(crate) resource: Resource,
    pub(crate) namespace: Option<&'a str>,
    pub(crate) key: &'a str,
    pub(crate) part: Part,
    pub(crate) manager: &'a str,
    /// Take over other managers' fields.
    pub(crate) force: bool,
}

/// The result of an apply.
pub(crate) struct Applied {
    pub(crate) object: Object,
    pub(crate) is_new: bool,
}

/// Creates the object that `config` describes, or merges `config` into the existing object.
pub(crate) fn apply(
    state: &mut State,
    params: &ApplyParams<'_>,
    mut config: Value,
) -> Result<Applied, StatusError> {
    let resource = params.resource;
    let name = params.key.rsplit('/').next().unwrap_or_default();
    set_default(map_of(&mut config, "metadata"), "name", name);
    check(params, &config)?;
    strip_kind(&mut config);
    let fields = fields_of(resource, &config);
    let Ok(object) = state.current(resource, params.key) else {
        let managers = Some(vec![own_entry(params, &fields)]);
        return Ok(Applied {
            object: create_managed(state, resource, params.namespace, config, managers)?,
            is_new: true,
        });
    };
    let mut live = object.value();
    let mut managers = entries(&live, "/metadata/managedFields").to_vec();
    let conflicts = conflicts(params, &managers, &live, &config, &fields);
    if !conflicts.is_empty() && !params.force {
        return Err(conflict_error(&conflicts));
    }
    let taken: BTreeSet<Path> = conflicts.into_iter().map(|(_, path)| path).collect();
    let own = managers.iter().position(|manager| is_own(params, manager));
    let old = own.map(|at| managers.remove(at));
    managers.retain_mut(|manager| remove_fields(manager, &taken));
    let before = old.as_ref().map(|old| from_tree(&old["fieldsV1"]));
    let before = before.unwrap_or_default();
    let others: BTreeSet<Path> = managers
        .iter()
        .flat_map(|other| from_tree(&other["fieldsV1"]))
        .collect();
    // Fields taken over by force have left their managers above; fields that this manager no longer
    // applies are removed unless another manager owns them.
    let dropped = before.difference(&fields);
    let unmanaged = dropped.filter(|path| !others.contains(*path));
    remove_all(&mut live, unmanaged.map(Vec::as_slice));
    clear_atomic(&mut live, &config);
    if let Some(metadata) = config["metadata"].as_object_mut() {
        metadata.remove("managedFields");
    }
    merge(resource, &mut live, &config)?;
    if !fields.is_empty() {
        // Applying the same fields again keeps the entry's time, so the object stays unchanged.
        let unchanged = old.filter(|_| before == fields);
        let entry = unchanged.unwrap_or_else(|| own_entry(params, &fields));
        managers.insert(own.unwrap_or(managers.len()).min(managers.len()), entry);
    }
    let managers = Some(managers);
    let object = write::replace_managed(state, resource, &object, params.part, live, managers)?;
    Ok(Applied {
        object,
        is_new: false,
    })
}

fn merge(resource: Resource, live: &mut Value, config: &Value) -> Result<(), StatusError> {
    let strategic_merge = |live: &mut Value, config: &Value| {
        let merged = patch::strategic_merge(live, config);
        merged.map_err(|error| StatusError::internal(format!("{error:?}")))
    };
    if !resource.is_custom() {
        return strategic_merge(live, config);
    }
    for (name, value) in members(config, "") {
        if name == "metadata" {
            strategic_merge(&mut live[name], value)?;
        } else {
            json_patch::merge(&mut live[name], value);
        }
    }
    Ok(())
}

/// The managers after `manager` has changed `old` to `new`: the fields that it changes are its own.
/// `None` if nothing changes, and for objects that were never applied.
pub(crate) fn managers_after(
    resource: Resource,
    old: &Value,
    new: &Value,
    part: Part,
    manager: &str,
) -> Option<Vec<Value>> {
    let mut managers = entries(old, "/metadata/managedFields").to_vec();
    if managers.is_empty() {
        return None;
    }
    let mut all = fields_of(resource, new);
    all.extend(
        managers
            .iter()
            .flat_map(|entry| from_tree(&entry["fieldsV1"])),
    );
    let in_part = |path: &Path| match path.first().map_or("", String::as_str) {
        "f:status" => part == Part::Status,
        "f:metadata" => true,
        _ => part != Part::Status,
    };
    let (old, new) = (Reader::new(old), Reader::new(new));
    let changed: BTreeSet<Path> = all
        .into_iter()
        .filter(|path| in_part(path) && old.value_at(path) != new.value_at(path))
        .collect();
    if changed.is_empty() {
        return None;
    }
    managers.retain_mut(|entry| remove_fields(entry, &changed));
    let mut set: BTreeSet<Path> = changed
        .into_iter()
        .filter(|path| new.value_at(path).is_some())
        .collect();
    let is_own = |entry: &Value| {
        text(entry, "/manager") == manager
            && text(entry, "/operation") == "Update"
            && text(entry, "/subresource") == subresource(part)
    };
    if let Some(at) = managers.iter().position(is_own) {
        set.extend(from_tree(&managers.remove(at)["fieldsV1"]));
    }
    if !set.is_empty() {
        managers.push(entry(resource, part, manager, "Update", &set));
    }
    Some(managers)
}

fn check(params: &ApplyParams<'_>, config: &Value) -> Result<(), StatusError> {
    let resource = params.resource;
    let bad = |why: String| StatusError::bad_request(why);
    let (kind, api_version) = (text(config, "/kind"), text(config, "/apiVersion"));
    if kind != resource.kind() || api_version != resource.api_version() {
        let version = if api_version.is_empty() {
            "/"
        } else {
            api_version
        };
        return Err(bad(format!("invalid object type: {version}, Kind={kind}")));
    }
    if !entries(config, "/metadata/managedFields").is_empty() {
        return Err(bad("metadata.managedFields must be nil".to_owned()));
    }
    write::check_name(params.key, config)?;
    if let Some(unknown) = schema::unknown_fields(resource, config).first() {
        let namespace = text(config, "/metadata/namespace");
        let name = text(config, "/metadata/name");
        return Err(StatusError::internal(format!(
            "failed to create typed patch object ({namespace}/{name}; {api_version}, Kind={kind}): \
             .{unknown}: field not declared in schema"
        )));
    }
    schema::check(resource, config).map_err(|why| {
        let name = params.key;
        StatusError::internal(format!(
            "failed to create typed patch object ({name}; {api_version}, Kind={kind}): {why}"
        ))
    })
}

/// The fields that `config` would change and another manager owns, with that manager.
fn conflicts(
    params: &ApplyParams<'_>,
    managers: &[Value],
    live: &Value,
    config: &Value,
    fields: &BTreeSet<Path>,
) -> Vec<(String, Path)> {
    let mut conflicts = Vec::new();
    let (live, config) = (Reader::new(live), Reader::new(config));
    for manager in managers.iter().filter(|manager| !is_own(params, manager)) {
        let others = from_tree(&manager["fieldsV1"]);
        for path in others.intersection(fields) {
            if live.value_at(path) != config.value_at(path) {
                let mut name = json!(text(manager, "/manager")).to_string();
                if text(manager, "/operation") == "Update" {
                    name.push_str(" using ");
                    name.push_str(text(manager, "/apiVersion"));
                }
                conflicts.push((name, path.clone()));
            }
        }
    }
    conflicts
}

fn conflict_error(conflicts: &[(String, Path)]) -> StatusError {
    let causes = conflicts.iter();
    let causes: Vec<(String, String)> = causes
        .map(|(manager, path)| (manager.clone(), text_of(path)))
        .collect();
    if let [(manager, field)] = causes.as_slice() {
        let message = format!("Apply failed with 1 conflict: conflict with {manager}: {field}");
        return StatusError::apply_conflict(message, causes);
    }
    let mut message = vec![format!("Apply failed with {} conflicts: ", causes.len())];
    let mut last = "";
    for (manager, field) in &causes {
        if manager != last {
            let line = if last.is_empty() { "" } else { "\n" };
            message.push(format!("{line}conflicts with {manager}:"));
            last = manager;
        }
        message.push(format!("\n- {field}"));
    }
    StatusError::apply_conflict(message.concat(), causes)
}

fn is_own(params: &ApplyParams<'_>, manager: &Value) -> bool {
    text(manager, "/manager") == params.manager
        && text(manager, "/operation") == "Apply"
        && text(manager, "/subresource") == subresource(params.part)
}

fn subresource(part: Part) -> &'static str {
    if part == Part::Status { "status" } else { "" }
}

fn own_entry(params: &ApplyParams<'_>, fields: &BTreeSet<Path>) -> Value {
    entry(
        params.resource,
        params.part,
        params.manager,
        "Apply",
        fields,
    )
}

/// An entry of `managedFields`.
fn entry(
    resource: Resource,
    part: Part,
    manager: &str,
    operation: &str,
    fields: &BTreeSet<Path>,
) -> Value {
    let mut entry = json!({
        "manager": manager, "operation": operation, "time": metadata::now(),
        "apiVersion": resource.api_version(), "fieldsType": "FieldsV1",
        "fieldsV1": to_tree(fields),
    });
    if part == Part::Status {
        entry["subresource"] = json!(subresource(part));
    }
    entry
}

/// Removes fields from a manager; returns whether any remain.
fn remove_fields(manager: &mut Value, taken: &BTreeSet<Path>) -> bool {
    let fields = from_tree(&manager["fieldsV1"]);
    let kept: BTreeSet<Path> = fields.difference(taken).cloned().collect();
    if kept.len() < fields.len() {
        manager["fieldsV1"] = to_tree(&kept);
    }
    !kept.is_empty()
}

/// Label selectors are atomic (`x-kubernetes-map-type`): a merge would combine old and new labels.
fn clear_atomic(live: &mut Value, config: &Value) {
    if config.pointer("/spec/selector").is_some()
        && let Some(spec) = live["spec"].as_object_mut()
    {
        spec.insert("selector".to_owned(), Value::Object(Map::new()));
    }
}

/// One field.
type Path = Vec<String>;

/// Maps that count as one value.
const ATOMIC_MAPS: [&str; 2] = ["selector", "nodeSelector"];

/// Metadata fields without a manager.
const UNMANAGED: &str = "name namespace uid resourceVersion generation creationTimestamp \
     deletionTimestamp managedFields selfLink";

/// How a list with these entries is merged.
type MergeOf = fn(&str, &[Value]) -> ListMerge;

/// The fields that `object` sets. Only its schema could say how lists of a custom resource are
/// merged, so they are replaced.
fn fields_of(resource: Resource, object: &Value) -> BTreeSet<Path> {
    let merge_of: MergeOf = if resource.is_custom() {
        |_, _| ListMerge::Replace
    } else {
        list_merge
    };
    let mut fields = BTreeSet::new();
    for (name, value) in members(object, "") {
        if name == "kind" || name == "apiVersion" {
            continue;
        }
        let path = vec![format!("f:{name}")];
        if name != "metadata" {
            collect(name, value, &path, merge_of, &mut fields);
            continue;
        }
        for (name, value) in members(value, "") {
            if !UNMANAGED.split(' ').any(|it| it == name) {
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
                    for (name, value) in members(entry, "") {
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
fn to_tree(fields: &BTreeSet<Path>) -> Value {
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
fn from_tree(tree: &Value) -> BTreeSet<Path> {
    fn walk(tree: &Value, path: &Path, fields: &mut BTreeSet<Path>) {
        for (token, rest) in members(tree, "") {
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
fn text_of(path: &Path) -> String {
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
struct Reader<'a> {
    object: &'a Value,
    /// By list, on first use.
    lists: RefCell<HashMap<*const Value, Positions>>,
}

/// The positions of a list's entries, by their form and the text of their identity.
#[derive(Debug, Default)]
struct Positions(HashMap<Form, HashMap<String, usize>>);

/// The identity of list entries: the names of a key's members, or the whole value.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Form {
    Key(Vec<String>),
    Whole,
}

impl<'a> Reader<'a> {
    fn new(object: &'a Value) -> Self {
        Self {
            object,
            lists: RefCell::default(),
        }
    }

    /// The object's value at `path`.
    fn value_at(&self, path: &[String]) -> Option<&'a Value> {
        let mut value = self.object;
        for token in path {
            value = match token.split_once(':') {
                Some(("f", name)) => value.get(name)?,
                Some(_) => {
                    let mut lists = self.lists.borrow_mut();
                    let positions = lists.entry(std::ptr::from_ref(value)).or_default();
                    &value.as_array()?[positions.find(value, token)?]
                }
                // The token `.`: the entry itself exists.
                None => return Some(&Value::Null),
            };
        }
        Some(value)
    }
}

impl Positions {
    /// The position in `list` of the entry that a token names.
    fn find(&mut self, list: &Value, token: &str) -> Option<usize> {
        let (form, text) = read_token(token)?;
        let positions = self.0.entry(form);
        let positions = positions.or_insert_with_key(|form| positions_of(list, form));
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
fn positions_of(list: &Value, form: &Form) -> HashMap<String, usize> {
    let mut positions = HashMap::new();
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
fn remove_all<'a>(object: &mut Value, paths: impl Iterator<Item = &'a [String]>) {
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
    let mut positions = Positions::default();
    let mut position = |token: &str| positions.find(list, token);
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

    use super::{Reader, fields_of, from_tree, remove_all, text_of, to_tree};
    use crate::resource::Resource;

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
