//! Creates and changes objects: POST, PUT, PATCH, and the subresources `status` and `binding`; and
//! the end of an object without finalizers.

use std::sync::{Arc, LazyLock};

use serde_json::{Value, json};

use crate::json::{entries, is_deleting, map_of, number, strip_kind, text};
use crate::resource::Resource;
use crate::status_error::{FieldError, StatusError};
use crate::store::{Consequence, Object, State, Stored, key_of};
use crate::{metadata, objects, quota};

/// The part of an object that a request writes; the other part stays unchanged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    /// Everything except the status.
    Main,
    Status,
    /// The finalizers of a terminating namespace.
    Finalizers,
    /// The number of replicas.
    Scale,
}

/// Creates `object` (without `kind` and `apiVersion`).
pub(crate) fn create(
    state: &mut State,
    resource: Resource,
    namespace: Option<&str>,
    object: Value,
) -> Result<Object, StatusError> {
    create_managed(state, resource, namespace, object, |_| Vec::new())
}

/// As [`create`], with the entries of `managedFields` for the object with its defaults.
pub(crate) fn create_managed(
    state: &mut State,
    resource: Resource,
    namespace: Option<&str>,
    mut object: Value,
    managers: impl FnOnce(&Value) -> Vec<Value>,
) -> Result<Object, StatusError> {
    if let Some(namespace) = namespace {
        check_namespace(state, resource, namespace, &object)?;
    }
    if !text(&object, "/metadata/resourceVersion").is_empty() {
        return Err(StatusError::internal(
            "resourceVersion should not be set on objects to be created",
        ));
    }
    metadata::prepare(resource, namespace, &mut object);
    objects::set_defaults(resource, &mut object);
    let managers = managers(&object);
    metadata::set_managers(&mut object, managers);
    objects::set_first_status(resource, &mut object);
    objects::complete_new(resource, &mut object);
    let name = text(&object, "/metadata/name").to_owned();
    if resource == Resource::Namespaces {
        object["spec"] = json!({"finalizers": ["kubernetes"]});
    } else if resource == Resource::Quotas {
        object["status"] = quota::status(state, namespace.unwrap_or_default(), &object);
    }
    // The order is upstream's: admission, validation, quotas, then the uniqueness of the name.
    if resource == Resource::Pods {
        admit(state, namespace, &object)?;
    }
    let errors = objects::validate(resource, &object);
    if !errors.is_empty() {
        return Err(StatusError::invalid(resource, &name, errors));
    }
    if let Some(namespace) = namespace {
        quota::check(state, resource, namespace, &object)?;
    }
    let key = key_of(namespace, &name);
    if let Some(found) = state.get(resource, &key) {
        return Err(if is_deleting(&found.value()) {
            StatusError::still_exists(resource, &name)
        } else {
            StatusError::already_exists(resource, &name)
        });
    }
    let object = state.put(resource, &key, object);
    quota::refresh(state, object.namespace());
    if resource == Resource::Namespaces && state.settings.garbage_collection {
        for (resource, object) in INITIAL.iter().filter(|it| is_of_every_namespace(it)) {
            let created = create(state, *resource, Some(&name), object.clone())?;
            state.initial.insert(created.version);
        }
    }
    Ok(object)
}

/// Rejects a pod whose service account or priority class does not exist (kubernetes
/// `plugin/pkg/admission`). The account `default` may be missing: without the garbage collector
/// nothing creates it.
fn admit(state: &State, namespace: Option<&str>, pod: &Value) -> Result<(), StatusError> {
    let [account, class] = ["serviceAccountName", "priorityClassName"]
        .map(|name| pod["spec"][name].as_str().unwrap_or_default());
    let key = key_of(namespace, account);
    let why = if !matches!(account, "" | "default")
        && state.get(Resource::ServiceAccounts, &key).is_none()
    {
        format!("error looking up service account {key}: serviceaccount \"{account}\" not found")
    } else if !class.is_empty() && state.get(priority_classes(), class).is_none() {
        format!("no PriorityClass with name {class} was found")
    } else {
        return Ok(());
    };
    let name = text(pod, "/metadata/name");
    Err(StatusError::forbidden(Resource::Pods, name, &why))
}

pub(crate) fn priority_classes() -> Resource {
    Resource::of("scheduling.k8s.io", "priorityclasses")
}

/// The objects of a new cluster. A namespaced one without a namespace is in each of them.
static INITIAL: LazyLock<Vec<(Resource, Value)>> = LazyLock::new(|| {
    let all: Vec<Value> = serde_json::from_str(include_str!("initial.json")).expect("JSON");
    let of_document = |mut document: Value| {
        let mut kinds = Resource::built_in();
        let resource = kinds.find(|it| it.is_of(&document)).expect("a served kind");
        strip_kind(&mut document);
        (resource, document)
    };
    all.into_iter().map(of_document).collect()
});

fn is_of_every_namespace((resource, object): &(Resource, Value)) -> bool {
    resource.is_namespaced() && object["metadata"]["namespace"].is_null()
}

/// Creates the initial objects, but for those that each namespace gets with its creation.
pub(crate) fn create_initial(state: &mut State) {
    for (resource, object) in INITIAL.iter().filter(|it| !is_of_every_namespace(it)) {
        let namespace = object["metadata"]["namespace"].as_str();
        let created = create(state, *resource, namespace, object.clone());
        let created = created.expect("an empty server takes a good object");
        state.initial.insert(created.version);
    }
}

fn check_namespace(
    state: &State,
    resource: Resource,
    namespace: &str,
    object: &Value,
) -> Result<(), StatusError> {
    check_own_namespace(namespace, object)?;
    let Some(found) = state.get(Resource::Namespaces, namespace) else {
        return Err(StatusError::not_found(Resource::Namespaces, namespace));
    };
    if text(&found.value(), "/status/phase") == "Terminating" {
        let name = match text(object, "/metadata/name") {
            "" => text(object, "/metadata/generateName"),
            name => name,
        };
        return Err(StatusError::namespace_terminating(
            resource, name, namespace,
        ));
    }
    Ok(())
}

fn check_own_namespace(namespace: &str, object: &Value) -> Result<(), StatusError> {
    let own = text(object, "/metadata/namespace");
    if own.is_empty() || own == namespace {
        return Ok(());
    }
    Err(StatusError::bad_request(
        "the namespace of the provided object does not match the namespace sent on the request",
    ))
}

/// Replaces an object with `new`, as PUT does; for `managers` see [`replace_managed`].
pub(crate) fn put(
    state: &mut State,
    resource: Resource,
    key: &str,
    part: Part,
    new: Value,
    managers: impl FnOnce(&Value, &Value) -> Option<Vec<Value>>,
) -> Result<Object, StatusError> {
    let object = state.get(resource, key).cloned();
    let object = object.ok_or_else(|| missing_put_target(resource, key, &new))?;
    let uid = text(&new, "/metadata/uid");
    let old = object.value();
    let old_uid = text(&old, "/metadata/uid");
    if !uid.is_empty() && uid != old_uid {
        return Err(another_uid(resource, key, uid, old_uid));
    }
    if resource == Resource::Leases && text(&new, "/metadata/resourceVersion").is_empty() {
        let why = "must be specified for an update";
        let error = FieldError::invalid("metadata.resourceVersion", 0, why);
        return Err(StatusError::invalid_resource(
            resource,
            object.name(),
            error,
        ));
    }
    replace_managed(state, resource, &object, part, new, managers)
}

/// The error of a PUT without an object at its path. Upstream creates Events and Leases by PUT,
/// unless the request names a UID
/// (kubernetes `pkg/registry/core/event/strategy.go:AllowCreateOnUpdate`, and for leases).
///
/// DIFFERS: the server creates nothing.
fn missing_put_target(resource: Resource, key: &str, new: &Value) -> StatusError {
    let uid = text(new, "/metadata/uid");
    if matches!(resource, Resource::Events | Resource::Leases) && !uid.is_empty() {
        return another_uid(resource, key, uid, "");
    }
    StatusError::not_found(resource, key.rsplit('/').next().unwrap_or(key))
}

fn another_uid(resource: Resource, key: &str, uid: &str, old_uid: &str) -> StatusError {
    let name = key.rsplit('/').next().unwrap_or(key);
    // The storage path of this kind is older than its name.
    let folder = match resource {
        Resource::ReplicationControllers => "controllers",
        resource => resource.plural(),
    };
    let why = format!(
        "StorageError: invalid object, Code: 4, Key: /registry/{folder}/{key}, ResourceVersion: 0, \
         AdditionalErrorMsg: Precondition failed: UID in precondition: {uid}, UID in object \
         meta: {old_uid}"
    );
    StatusError::conflict(resource, name, &why)
}

/// Rejects an object whose name or namespace differs from the path.
pub(crate) fn check_name(key: &str, new: &Value) -> Result<(), StatusError> {
    let (namespace, name) = key.rsplit_once('/').unwrap_or(("", key));
    check_own_namespace(namespace, new)?;
    match text(new, "/metadata/name") {
        named if named == name => Ok(()),
        "" => Err(StatusError::bad_request(format!(
            "the name of the object ({name} based on URL) was undeterminable: name must be \
             provided"
        ))),
        named => Err(StatusError::bad_request(format!(
            "the name of the object ({named}) does not match the name on the URL ({name})"
        ))),
    }
}

/// Stores `new` in place of `object`, if it is valid and based on the same version. An unchanged
/// object keeps its version.
pub(crate) fn replace(
    state: &mut State,
    resource: Resource,
    object: &Object,
    part: Part,
    new: Value,
) -> Result<Object, StatusError> {
    replace_managed(state, resource, object, part, new, |_, _| None)
}

/// As [`replace`], with new `managedFields` for the old and the new object; `None` keeps the
/// current ones.
pub(crate) fn replace_managed(
    state: &mut State,
    resource: Resource,
    object: &Object,
    part: Part,
    mut new: Value,
    managers: impl FnOnce(&Value, &Value) -> Option<Vec<Value>>,
) -> Result<Object, StatusError> {
    let (key, name) = (&object.key, object.name());
    let old = object.value();
    let based_on = text(&new, "/metadata/resourceVersion");
    if !based_on.is_empty() && based_on != object.version.to_string() {
        return Err(match based_on.parse::<u64>() {
            Ok(_) => StatusError::modified(resource, name),
            Err(_) => StatusError::internal(format!(
                "strconv.ParseUint: parsing \"{based_on}\": invalid syntax"
            )),
        });
    }
    let mut errors = marks_of_deletion(&old, &new);
    let sent = map_of(&mut new, "metadata").remove("managedFields");
    metadata::keep_server_owned(&old, &mut new);
    if resource == Resource::Namespaces && part != Part::Finalizers {
        new["spec"] = old["spec"].clone();
    }
    if part == Part::Status && resource.has_status() {
        objects::keep_all_but_status(resource, &old, &mut new);
        objects::prepare_status(resource, &old, &mut new);
        errors.extend(metadata::validate_update(resource, &old, &new));
        errors.extend(objects::validate_status(resource, &new));
    } else {
        objects::set_defaults(resource, &mut new);
        objects::allocate(resource, &old, &mut new);
        if resource.has_status() {
            objects::set_status(&mut new, old.get("status").cloned());
        }
        errors.extend(metadata::validate_update(resource, &old, &new));
        errors.extend(objects::validate_update(resource, &old, &new));
    }
    // Defaults that the request left out are no change.
    let of_new = map_of(&mut new, "metadata");
    of_new.remove("managedFields");
    of_new.extend(sent.map(|it| ("managedFields".to_owned(), it)));
    let kept = || entries(&old, "/metadata/managedFields").to_vec();
    let managers = managers(&old, &new).unwrap_or_else(kept);
    metadata::set_managers(&mut new, managers);
    if !errors.is_empty() {
        return Err(StatusError::invalid(resource, name, errors));
    }
    if resource.row().has_generation && objects::is_changed(resource, &old, &new) {
        metadata::bump_generation(&mut new);
    }
    if new == old {
        return Ok(Arc::clone(object));
    }
    if is_released(&new) {
        // The DELETED event carries the stored object, so watches see its last finalizer once more.
        remove(state, resource, key, old);
        let updated = Stored::new(key, object.version, &new);
        return Ok(Arc::new(updated));
    }
    let was_terminal = object.is_terminal;
    let object = state.put(resource, key, new);
    // Most changes need no recount, and the status that a client has written to a quota stays.
    let is_counted = match resource {
        Resource::Quotas => part == Part::Main,
        Resource::Pods => object.is_terminal != was_terminal,
        resource => matches!(resource.plural(), "services" | "persistentvolumeclaims"),
    };
    if is_counted {
        quota::refresh(state, object.namespace());
    }
    Ok(object)
}

/// The errors of a request that sets what only a delete sets.
fn marks_of_deletion(old: &Value, new: &Value) -> Vec<FieldError> {
    let names = ["deletionTimestamp", "deletionGracePeriodSeconds"].into_iter();
    let sent = names.filter(|name| !is_deleting(old) && !new["metadata"][name].is_null());
    let error =
        |name: &str| FieldError::immutable(&format!("metadata.{name}"), &new["metadata"][name]);
    sent.map(error).collect()
}

/// Binds a pod to a node, as a scheduler does.
pub(crate) fn bind(state: &mut State, key: &str, binding: &Value) -> Result<(), StatusError> {
    let object = state.current(Resource::Pods, key)?;
    let mut pod = object.value();
    let (name, node) = (object.name(), text(&pod, "/spec/nodeName"));
    if is_deleting(&pod) {
        let why = format!("pod {name} is being deleted, cannot be assigned to a host");
        return Err(StatusError::binding_conflict(name, &why));
    }
    if !node.is_empty() {
        let why = format!("pod {name} is already assigned to node \"{node}\"");
        return Err(StatusError::binding_conflict(name, &why));
    }
    if !entries(&pod, "/spec/schedulingGates").is_empty() {
        let why = format!("pod {name} has non-empty .spec.schedulingGates");
        return Err(StatusError::binding_conflict(name, &why));
    }
    pod["spec"]["nodeName"] = json!(text(binding, "/target/name"));
    set_condition(&mut pod, "PodScheduled", "True");
    state.put(Resource::Pods, key, pod);
    Ok(())
}

/// Sets a pod's condition, with the current time as its transition time.
pub(crate) fn set_condition(pod: &mut Value, kind: &str, status: &str) {
    let entry = json!({
        "type": kind, "status": status, "lastProbeTime": null,
        "lastTransitionTime": metadata::now(),
    });
    let status = map_of(pod, "status");
    let conditions = status.entry("conditions").or_insert_with(|| json!([]));
    let Some(conditions) = conditions.as_array_mut() else {
        return;
    };
    let mut known = conditions.iter_mut();
    match known.find(|condition| text(condition, "/type") == kind) {
        Some(condition) => *condition = entry,
        None => conditions.push(entry),
    }
}

/// True for an object under deletion without finalizers and grace period.
pub(crate) fn is_released(value: &Value) -> bool {
    is_deleting(value)
        && entries(value, "/metadata/finalizers").is_empty()
        && entries(value, "/spec/finalizers").is_empty()
        && number(value, "/metadata/deletionGracePeriodSeconds").unwrap_or(0) == 0
}

/// Removes an object and queues the garbage collection of its dependents. With a definition go the
/// objects that it defines.
pub(crate) fn remove(state: &mut State, resource: Resource, key: &str, value: Value) -> Object {
    let is_definition = resource == Resource::Definitions;
    let defined = state.custom.defined_by(&value).filter(|_| is_definition);
    let object = state.remove(resource, key, value);
    quota::refresh(state, object.namespace());
    if let Some(defined) = defined {
        let objects: Vec<Object> = state.of_namespace(defined, None).cloned().collect();
        for object in objects {
            remove(state, defined, &object.key, object.value());
        }
    }
    let consequence = Consequence::Gone(Arc::clone(&object));
    state.consequences.push_back(consequence);
    object
}
