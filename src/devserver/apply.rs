//! Server-side apply: creates or merges a manager's desired fields, and records the owner of each
//! field in `metadata.managedFields`.
//!
//! DIFFERS: the server tracks managers from an object's first apply on, not from its creation. An
//! update takes over the applied fields that it changes; its other changes have no manager. Lists
//! merge by the rules of the strategic merge patch.

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

use super::body;
use super::create::create_managed;
use super::managers::{Path, Reader, fields_of, from_tree, remove_all, text_of, to_tree};
use super::objects::{entries, meta, text};
use super::patch;
use super::resource::Resource;
use super::shape;
use super::status_error::StatusError;
use super::store::{Object, State};
use super::strict;
use super::update::{self, Part};

/// The parameters of an apply.
pub(super) struct ApplyParams<'a> {
    pub(super) resource: Resource,
    pub(super) namespace: Option<&'a str>,
    pub(super) key: &'a str,
    pub(super) part: Part,
    pub(super) manager: &'a str,
    /// Take over other managers' fields.
    pub(super) force: bool,
}

/// The result of an apply.
pub(super) struct Applied {
    pub(super) object: Object,
    pub(super) is_new: bool,
}

/// Creates the object that `config` describes, or merges `config` into the existing object.
pub(super) fn apply(
    state: &mut State,
    params: &ApplyParams<'_>,
    mut config: Value,
) -> Result<Applied, StatusError> {
    let resource = params.resource;
    check(params, &config)?;
    body::strip_kind(&mut config);
    let fields = fields_of(resource, &config);
    let Ok(object) = state.current(resource, params.key) else {
        let managers = Some(vec![entry(params, &fields)]);
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
    managers.retain_mut(|manager| keep_without(manager, &taken));
    let before = old.as_ref().map(|old| from_tree(&old["fieldsV1"]));
    let before = before.unwrap_or_default();
    let others: BTreeSet<Path> = managers
        .iter()
        .flat_map(|other| from_tree(&other["fieldsV1"]))
        .collect();
    // A field that this manager drops stays only if another manager owns it.
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
        let entry = unchanged.unwrap_or_else(|| entry(params, &fields));
        managers.insert(own.unwrap_or(managers.len()).min(managers.len()), entry);
    }
    let managers = Some(managers);
    let object = update::replace_managed(state, resource, &object, params.part, live, managers)?;
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
    for (name, value) in config.as_object().into_iter().flatten() {
        if name == "metadata" {
            strategic_merge(&mut live[name], value)?;
        } else {
            json_patch::merge(&mut live[name], value);
        }
    }
    Ok(())
}

/// The managers after `manager` has changed `old` to `new`: it takes over the fields it changes.
/// `None` if nothing changes, for example on objects that were never applied.
pub(super) fn managers_after(
    resource: Resource,
    old: &Value,
    new: &Value,
    part: Part,
    manager: &str,
) -> Option<Vec<Value>> {
    let mut managers = entries(old, "/metadata/managedFields").to_vec();
    let all: BTreeSet<Path> = managers
        .iter()
        .flat_map(|entry| from_tree(&entry["fieldsV1"]))
        .collect();
    let in_part = |path: &Path| {
        let is_status = path.first().is_some_and(|first| first == "f:status");
        is_status == (part == Part::Status)
    };
    let (old, new) = (Reader::new(old), Reader::new(new));
    let changed: BTreeSet<Path> = all
        .into_iter()
        .filter(|path| in_part(path) && old.value_at(path) != new.value_at(path))
        .collect();
    if changed.is_empty() {
        return None;
    }
    managers.retain_mut(|entry| keep_without(entry, &changed));
    let set: BTreeSet<Path> = changed
        .into_iter()
        .filter(|path| new.value_at(path).is_some())
        .collect();
    if !set.is_empty() {
        managers.push(json!({
            "manager": manager, "operation": "Update", "time": meta::now(),
            "apiVersion": resource.api_version(), "fieldsType": "FieldsV1",
            "fieldsV1": to_tree(&set),
        }));
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
    update::check_name(params.key, config)?;
    if let Some(unknown) = strict::unknown_fields(resource, config).first() {
        let namespace = text(config, "/metadata/namespace");
        let name = text(config, "/metadata/name");
        return Err(StatusError::internal(format!(
            "failed to create typed patch object ({namespace}/{name}; {api_version}, Kind={kind}): \
             .{unknown}: field not declared in schema"
        )));
    }
    shape::check(resource, config).map_err(|why| {
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
    let causes: Vec<(String, String)> = conflicts
        .iter()
        .map(|(manager, path)| (manager.clone(), text_of(path)))
        .collect();
    let message = match causes.as_slice() {
        [(manager, field)] => {
            format!("Apply failed with 1 conflict: conflict with {manager}: {field}")
        }
        causes => {
            let mut lines = vec![format!("Apply failed with {} conflicts: ", causes.len())];
            let mut last = "";
            for (manager, field) in causes {
                if manager != last {
                    let line = lines.last_mut().filter(|_| last.is_empty());
                    let text = format!("conflicts with {manager}:");
                    match line {
                        Some(line) => line.push_str(&text),
                        None => lines.push(text),
                    }
                    last = manager;
                }
                lines.push(format!("- {field}"));
            }
            lines.join("\n")
        }
    };
    StatusError::apply_conflict(message, causes)
}

fn is_own(params: &ApplyParams<'_>, manager: &Value) -> bool {
    text(manager, "/manager") == params.manager
        && text(manager, "/operation") == "Apply"
        && text(manager, "/subresource") == subresource(params)
}

fn subresource(params: &ApplyParams<'_>) -> &'static str {
    if params.part == Part::Status {
        "status"
    } else {
        ""
    }
}

fn entry(params: &ApplyParams<'_>, fields: &BTreeSet<Path>) -> Value {
    let mut entry = json!({
        "manager": params.manager, "operation": "Apply", "time": meta::now(),
        "apiVersion": params.resource.api_version(), "fieldsType": "FieldsV1",
        "fieldsV1": to_tree(fields),
    });
    if params.part == Part::Status {
        entry["subresource"] = json!(subresource(params));
    }
    entry
}

/// Removes fields from a manager; returns false if it has none left.
fn keep_without(manager: &mut Value, taken: &BTreeSet<Path>) -> bool {
    let fields = from_tree(&manager["fieldsV1"]);
    let kept: BTreeSet<Path> = fields.difference(taken).cloned().collect();
    if kept.len() < fields.len() {
        manager["fieldsV1"] = to_tree(&kept);
    }
    !kept.is_empty()
}

/// A selector is atomic: the new one replaces the old one.
fn clear_atomic(live: &mut Value, config: &Value) {
    if config.pointer("/spec/selector").is_some()
        && let Some(spec) = live["spec"].as_object_mut()
    {
        spec.insert("selector".to_owned(), Value::Object(Map::new()));
    }
}
