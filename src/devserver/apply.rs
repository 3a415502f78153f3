//! Server-side apply: creates or merges a manager's desired fields, and records the owner of each
//! field in `metadata.managedFields`.
//!
//! A field is a path of tokens in upstream's notation: `f:NAME` for a member, `k:{"name":"c"}` for
//! an entry of a keyed list, `v:"x"` for a value of a set, and `.` for the entry itself.
//!
//! An update's manager takes over the fields that it changes.
//!
//! DIFFERS: Events, and what a controller owns or this server creates, have no managers until their
//! first apply, as have objects whose managers were reset: what was set before belongs to the
//! manager `before-first-apply`. A map has no entry of its own beside those of its members. Lists
//! merge by the rules of the strategic merge patch.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value, json};

use crate::api::Quantity;
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
    map_of(&mut config, "metadata").remove("managedFields");
    let applied = format!("{config}\n");
    strip_kind(&mut config);
    let mut fields = fields_of(resource, &config);
    fields.retain(|path, _| is_of(params.part, path));
    let names: BTreeSet<Path> = fields.keys().cloned().collect();
    let own_entry = || entry(resource, params.part, params.manager, "Apply", &names);
    let Ok(object) = state.current(resource, params.key) else {
        let managers = |_: &Value| vec![own_entry()];
        return Ok(Applied {
            object: create_managed(state, resource, params.namespace, config, managers)?,
            is_new: true,
        });
    };
    let mut live = object.value();
    let mut managers = entries(&live, "/metadata/managedFields").to_vec();
    let of_live = fields_of(resource, &live);
    if managers.is_empty() {
        managers.push(first_entry(resource, &live, FIRST_MANAGER));
    }
    let mut conflicts = conflicts(params, &managers, &of_live, &fields);
    let taken = conflicts.iter().map(|(_, path)| path.clone()).collect();
    // kubectl takes over what it applied on its own side and nobody has changed since.
    let is_kubectl = params.manager == "kubectl";
    let last = Some(text(&live, LAST_APPLIED)).filter(|_| is_kubectl);
    let last: Value = serde_json::from_str(last.unwrap_or_default()).unwrap_or_default();
    let last = fields_of(resource, &last);
    conflicts.retain(|(_, path)| {
        !last.contains_key(path) || !is_same(path, of_live.get(path), last.get(path))
    });
    if !conflicts.is_empty() && !params.force {
        return Err(conflict_error(&conflicts));
    }
    let own = managers.iter().position(|manager| is_own(params, manager));
    let old = own.map(|at| managers.remove(at));
    managers.retain_mut(|manager| remove_fields(manager, &taken));
    let before = old.as_ref().map(|old| from_tree(&old["fieldsV1"]));
    let before = before.unwrap_or_default();
    let others = managers.iter();
    let others: BTreeSet<Path> = others.flat_map(|it| from_tree(&it["fieldsV1"])).collect();
    // Fields taken over by force have left their managers above; fields that this manager no longer
    // applies are removed unless another manager owns them. A merge would not replace a whole map.
    // What is no field of its own now has members of others.
    let kept = |path: &&Path| names.contains(*path) || others.contains(*path);
    let dropped = before
        .iter()
        .filter(|it| !kept(it) && of_live.contains_key(*it));
    // With its last field goes a member, and the defaults in it. Paths below one follow it.
    let has_below = |all: &BTreeSet<Path>, path: &Path| {
        let next = all.range(path.clone()..).next();
        next.is_some_and(|it| it.starts_with(path))
    };
    let above = dropped
        .clone()
        .flat_map(|it| (2..it.len()).map(|n| it[..n].to_vec()));
    let is_unused = |it: &Path| !has_below(&names, it) && !has_below(&others, it);
    let above = above.filter(|it| it[it.len() - 1].starts_with("f:") && is_unused(it));
    let is_map = |value: &Value| value.as_object().is_some_and(|it| !it.is_empty());
    let whole = fields.iter().filter(|(_, value)| is_map(value));
    let removed = dropped
        .chain(whole.map(|(path, _)| path))
        .cloned()
        .chain(above)
        .collect();
    remove("", &mut live, &Path::new(), resource.is_custom(), &removed);
    merge(resource, &mut live, &config)?;
    if let Some(last) = live.pointer_mut(LAST_APPLIED).filter(|_| is_kubectl) {
        *last = json!(applied);
    }
    if !names.is_empty() {
        // Applying the same fields again keeps the entry's time, so the object stays unchanged.
        let unchanged = old.filter(|_| before == names);
        managers.push(unchanged.unwrap_or_else(own_entry));
    }
    let managers = |_: &Value, _: &Value| Some(managers);
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

/// The managers of an object that `manager` creates.
pub(crate) fn first_managers(resource: Resource, object: &Value, manager: &str) -> Vec<Value> {
    let mut owners = entries(object, "/metadata/ownerReferences").iter();
    if resource == Resource::Events || owners.any(|owner| owner["controller"] == true) {
        return Vec::new();
    }
    vec![first_entry(resource, object, manager)]
}

/// Whoever creates an object does not set its status.
fn first_entry(resource: Resource, object: &Value, manager: &str) -> Value {
    let all = fields_of(resource, object).into_keys();
    let all = all.filter(|path| is_of(Part::Main, path)).collect();
    entry(resource, Part::Main, manager, "Update", &all)
}

/// The managers that `new` names, which are not always those of `old`; `None` for a reset.
fn written(old: &Value, new: &Value, part: Part) -> Option<Vec<Value>> {
    let is_valid = |entry: &Value| {
        matches!(text(entry, "/operation"), "Apply" | "Update")
            && !text(entry, "/apiVersion").is_empty()
            && text(entry, "/fieldsType") == "FieldsV1"
            && is_tree(&entry["fieldsV1"])
    };
    let written = new["metadata"]["managedFields"].as_array();
    match written.filter(|_| part == Part::Main).map(Vec::as_slice) {
        Some([]) => None,
        Some([only]) if *only == json!({}) => None,
        Some(written) if written.iter().all(is_valid) => {
            let mut written = written.to_vec();
            for entry in &mut written {
                // Python's client writes `+00:00`.
                if let Ok(time) = text(entry, "/time").parse() {
                    entry["time"] = json!(metadata::time_text(time));
                }
            }
            Some(written)
        }
        _ => Some(entries(old, "/metadata/managedFields").to_vec()),
    }
}

/// The managers after `manager` has changed `old` to `new`: those that `new` names, and the fields
/// that it changes are its own. `None` if nothing changes, and for objects without managers.
pub(crate) fn managers_after(
    resource: Resource,
    old: &Value,
    new: &Value,
    part: Part,
    manager: &str,
) -> Option<Vec<Value>> {
    let Some(mut managers) = written(old, new, part) else {
        return Some(Vec::new());
    };
    if managers.is_empty() {
        return None;
    }
    let is_same = managers == entries(old, "/metadata/managedFields");
    let (old, new) = (fields_of(resource, old), fields_of(resource, new));
    let changed = old.keys().chain(new.keys());
    let changed = changed.filter(|path| is_of(part, path) && old.get(*path) != new.get(*path));
    let changed: BTreeSet<Path> = changed.cloned().collect();
    if changed.is_empty() {
        return (!is_same).then_some(managers);
    }
    let is_own = |entry: &Value| {
        text(entry, "/manager") == manager
            && text(entry, "/operation") == "Update"
            && text(entry, "/subresource") == subresource(part)
    };
    let own = managers
        .iter()
        .position(is_own)
        .map(|at| managers.remove(at));
    let owned = own
        .as_ref()
        .map(|own| from_tree(&own["fieldsV1"]))
        .unwrap_or_default();
    managers.retain_mut(|entry| remove_fields(entry, &changed));
    let set = changed.iter().filter(|path| new.contains_key(*path));
    let all: BTreeSet<Path> = owned.difference(&changed).chain(set).cloned().collect();
    match own {
        // Other values of the same fields keep the entry's time.
        Some(own) if all == owned => managers.push(own),
        _ if all.is_empty() => {}
        _ => managers.push(entry(resource, part, manager, "Update", &all)),
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

/// The applied fields that another manager owns with another value, with that manager.
fn conflicts(
    params: &ApplyParams<'_>,
    managers: &[Value],
    live: &Fields<'_>,
    fields: &Fields<'_>,
) -> Vec<(String, Path)> {
    let mut conflicts = Vec::new();
    for manager in managers.iter().filter(|manager| !is_own(params, manager)) {
        let others = from_tree(&manager["fieldsV1"]).into_iter();
        for path in others.filter(|it| !is_same(it, live.get(it), fields.get(it))) {
            let mut name = json!(text(manager, "/manager")).to_string();
            if let Some(subresource) = manager.get("subresource") {
                name = format!("{name} with subresource {subresource}");
            }
            if text(manager, "/operation") == "Update" {
                name.push_str(" using ");
                name.push_str(text(manager, "/apiVersion"));
            }
            conflicts.push((name, path));
        }
    }
    conflicts
}

/// True if the applied value of the field does not differ from the live one, or is missing. Amounts
/// may have different texts, such as `1024Mi` and `1Gi`.
fn is_same(path: &Path, live: Option<&&Value>, applied: Option<&&Value>) -> bool {
    const AMOUNTS: [&str; 4] = ["f:limits", "f:requests", "f:hard", "f:capacity"];
    let (Some(live), Some(applied)) = (live, applied) else {
        return applied.is_none();
    };
    let is_amount = path.iter().any(|token| AMOUNTS.contains(&token.as_str()));
    let milli = |value: &Value| {
        Quantity::read(value)
            .filter(|_| is_amount)
            .map(|it| it.milli)
    };
    live == applied || milli(live).is_some_and(|it| milli(applied) == Some(it))
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
    match part {
        Part::Main | Part::Finalizers => "",
        Part::Status => "status",
        Part::Scale => "scale",
    }
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
    if !subresource(part).is_empty() {
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

/// One field.
type Path = Vec<String>;

/// Fields with their values; that of the token `.` is `null`.
type Fields<'a> = BTreeMap<Path, &'a Value>;

/// The manager of all that was set before the first apply, as upstream names it.
const FIRST_MANAGER: &str = "before-first-apply";

/// The object that `kubectl apply` sent last.
const LAST_APPLIED: &str =
    "/metadata/annotations/kubectl.kubernetes.io~1last-applied-configuration";

/// Maps that count as one value.
const ATOMIC_MAPS: [&str; 2] = ["selector", "nodeSelector"];

/// Metadata fields without a manager.
const UNMANAGED: &str = "name namespace uid resourceVersion generation creationTimestamp \
     deletionTimestamp managedFields selfLink";

/// True for a field that a write of `part` changes.
fn is_of(part: Part, path: &[String]) -> bool {
    match path[0].as_str() {
        "f:status" => part == Part::Status,
        "f:metadata" => true,
        _ => part != Part::Status,
    }
}

/// The fields that `object` sets.
fn fields_of(resource: Resource, object: &Value) -> Fields<'_> {
    let mut fields = Fields::new();
    collect("", object, &Path::new(), resource.is_custom(), &mut fields);
    fields.retain(|path, _| {
        let mut names = path.iter().filter_map(|token| token.strip_prefix("f:"));
        match names.next() {
            Some("metadata") => names
                .next()
                .is_some_and(|name| UNMANAGED.split(' ').all(|it| it != name)),
            first => !matches!(first, None | Some("kind" | "apiVersion")),
        }
    });
    fields
}

fn collect<'a>(
    name: &str,
    value: &'a Value,
    path: &Path,
    is_custom: bool,
    fields: &mut Fields<'a>,
) {
    match (value, merge_of(name, value, path, is_custom)) {
        (Value::Object(map), _)
            if !map.is_empty() && (is_custom || !ATOMIC_MAPS.contains(&name)) =>
        {
            for (name, value) in map {
                let path = deeper(path, format!("f:{name}"));
                collect(name, value, &path, is_custom, fields);
            }
        }
        (Value::Array(entries), merge) if !entries.is_empty() && merge != ListMerge::Replace => {
            for entry in entries {
                let path = deeper(path, token_of(merge, entry));
                if merge == ListMerge::AsSet {
                    fields.insert(path, entry);
                } else {
                    fields.insert(deeper(&path, ".".to_owned()), &Value::Null);
                    collect("", entry, &path, is_custom, fields);
                }
            }
        }
        _ => {
            fields.insert(path.clone(), value);
        }
    }
}

/// Removes fields from `value`, and the lists and maps that become empty. Returns true if `value`
/// becomes empty.
fn remove(
    name: &str,
    value: &mut Value,
    path: &Path,
    is_custom: bool,
    removed: &BTreeSet<Path>,
) -> bool {
    let merge = merge_of(name, value, path, is_custom);
    match value {
        Value::Object(map) if !map.is_empty() => {
            map.retain(|name, value| {
                let path = deeper(path, format!("f:{name}"));
                !removed.contains(&path) && !remove(name, value, &path, is_custom, removed)
            });
            map.is_empty()
        }
        Value::Array(entries) if !entries.is_empty() && merge != ListMerge::Replace => {
            entries.retain_mut(|entry| {
                let path = deeper(path, token_of(merge, entry));
                remove("", entry, &path, is_custom, removed);
                !removed.contains(&path) && !removed.contains(&deeper(&path, ".".to_owned()))
            });
            entries.is_empty()
        }
        _ => false,
    }
}

fn deeper(path: &[String], token: String) -> Path {
    [path, &[token]].concat()
}

/// How a list is merged. Only its schema could say so for the lists of a custom resource, so they
/// are replaced.
fn merge_of(name: &str, list: &Value, path: &[String], is_custom: bool) -> ListMerge {
    let is_of_metadata = path.first().is_some_and(|first| first == "f:metadata");
    match list {
        Value::Array(entries) if !is_custom || is_of_metadata => list_merge(name, entries),
        _ => ListMerge::Replace,
    }
}

/// The token of a list's entry. Ports are told apart by their protocol, too.
fn token_of(merge: ListMerge, entry: &Value) -> String {
    let ListMerge::ByKey(key) = merge else {
        return format!("v:{entry}");
    };
    let mut id = json!({key: entry[key]});
    if matches!(key, "containerPort" | "port") {
        id["protocol"] = entry.get("protocol").unwrap_or(&json!("TCP")).clone();
    }
    format!("k:{id}")
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

/// True for a field set that [`from_tree`] can decode.
fn is_tree(tree: &Value) -> bool {
    let is_token = |token: &str| token == "." || token.get(1..2) == Some(":");
    let mut members = members(tree, "");
    tree.is_object() && members.all(|(token, rest)| is_token(token) && is_tree(rest))
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

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{Path, fields_of, from_tree, remove, text_of, to_tree};
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
        let names = fields.keys().cloned().collect();
        assert_eq!(to_tree(&names), tree);
        assert_eq!(from_tree(&tree), names);
        let image = names
            .iter()
            .map(text_of)
            .find(|text| text.ends_with("image"));
        let expected = ".spec.template.spec.containers[name=\"c\"].image";
        assert_eq!(image.as_deref(), Some(expected));
        let mut remaining = object.clone();
        remove("", &mut remaining, &Path::new(), false, &names);
        assert_eq!(remaining["metadata"], json!({"name": "web"}));
        assert_eq!(remaining.get("spec"), None);
    }
}
