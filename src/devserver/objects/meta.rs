//! Metadata: server-set fields of new objects, immutable fields, and names.

use jiff::Timestamp;
use serde_json::{Map, Value, json};

use crate::objects::{drop_nulls, entries, labels, map_of, text};
use crate::resource::Resource;
use crate::status_error::FieldError;
use crate::stdx::random_uuid;

/// Maximum bytes of a generated name's prefix, which leaves room for five more characters
/// (apiserver `pkg/storage/names/generate.go:MaxGeneratedNameLength`).
const GENERATED_NAME_PREFIX_MAX: usize = 58;

/// The characters of generated names (apimachinery `pkg/util/rand:alphanums`).
const NAME_CHARACTERS: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";

/// Fields that only the server sets; it ignores a request's values.
const SERVER_OWNED: [&str; 6] = [
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "generation",
    "managedFields",
    "selfLink",
];

/// True for kinds with `metadata.generation`.
pub(crate) fn has_generation(resource: Resource) -> bool {
    match resource {
        Resource::Pods
        | Resource::ReplicaSets
        | Resource::ReplicationControllers
        | Resource::Definitions => true,
        Resource::Plain(plain) => plain.has_generation,
        _ => false,
    }
}

/// Completes the metadata of a new object. An explicit name overrides `generateName`.
pub(crate) fn prepare(resource: Resource, namespace: Option<&str>, object: &mut Value) {
    let metadata = map_of(object, "metadata");
    metadata.retain(|_, value| !value.is_null());
    // Kinds without a generation counter keep the request's value.
    let generation = metadata
        .get("generation")
        .filter(|_| !has_generation(resource));
    let generation = generation.cloned();
    for name in SERVER_OWNED {
        metadata.remove(name);
    }
    metadata.extend(generation.map(|generation| ("generation".to_owned(), generation)));
    let prefix = metadata.get("generateName").and_then(Value::as_str);
    let prefix = prefix.unwrap_or_default().to_owned();
    let name = metadata.get("name").and_then(Value::as_str);
    if name.unwrap_or_default().is_empty() && !prefix.is_empty() {
        metadata.insert("name".to_owned(), json!(generate_name(&prefix)));
    }
    if let Some(namespace) = namespace {
        metadata.insert("namespace".to_owned(), json!(namespace));
    }
    metadata.insert("uid".to_owned(), json!(random_uuid()));
    metadata.insert("creationTimestamp".to_owned(), json!(now()));
    if has_generation(resource) {
        metadata.insert("generation".to_owned(), json!(1));
    }
    drop_empty_maps(metadata);
}

/// Copies the server-owned fields and `resourceVersion` from `old` to `new`.
pub(crate) fn keep_server_owned(old: &Value, new: &mut Value) {
    let old = old["metadata"].as_object().cloned().unwrap_or_default();
    let metadata = map_of(new, "metadata");
    metadata.retain(|_, value| !value.is_null());
    for name in SERVER_OWNED.into_iter().chain(["resourceVersion"]) {
        metadata.remove(name);
        if let Some(value) = old.get(name) {
            metadata.insert(name.to_owned(), value.clone());
        }
    }
    for name in ["name", "namespace", "uid", "generateName"] {
        if let Some(value) = old.get(name) {
            metadata.entry(name).or_insert_with(|| value.clone());
        }
    }
    drop_empty_maps(metadata);
}

/// Removes nulls, and then empty maps and lists, which the API server does not send.
fn drop_empty_maps(metadata: &mut Map<String, Value>) {
    for name in ["labels", "annotations", "ownerReferences"] {
        if let Some(value) = metadata.get_mut(name) {
            drop_nulls(value);
        }
    }
    metadata.retain(|_, value| match value {
        Value::Object(map) => !map.is_empty(),
        Value::Array(values) => !values.is_empty(),
        _ => true,
    });
}

/// Increments the generation after a spec change.
pub(crate) fn bump_generation(object: &mut Value) {
    if let Some(generation) = object["metadata"]["generation"].as_i64() {
        object["metadata"]["generation"] = json!(generation + 1);
    }
}

/// The errors of a new object's metadata.
pub(crate) fn validate(resource: Resource, object: &Value) -> Vec<FieldError> {
    let name = text(object, "/metadata/name");
    let value = json!(name).to_string();
    let invalid = |why: &str| FieldError::invalid("metadata.name", &value, why);
    let mut errors = Vec::new();
    let prefix = text(object, "/metadata/generateName");
    // The generated suffix may follow a dash.
    let is_prefix = labels::is_subdomain(&format!("{}a", prefix.trim_end_matches('-')));
    if !prefix.is_empty() && !is_prefix {
        let value = json!(prefix).to_string();
        errors.push(FieldError::invalid(
            "metadata.generateName",
            &value,
            labels::SUBDOMAIN_RULE,
        ));
    }
    if name.is_empty() {
        errors.push(FieldError::required(
            "metadata.name",
            "name or generateName is required",
        ));
    } else if resource == Resource::Namespaces {
        if name.contains('.') {
            errors.push(invalid("must not contain dots"));
        } else if name.len() > labels::NAME_BYTES_MAX {
            errors.push(invalid("must be no more than 63 bytes"));
        } else if !labels::is_label(name) {
            errors.push(invalid(labels::LABEL_RULE));
        }
    } else if matches!(resource, Resource::Plain(plain) if plain.has_free_names) {
        if matches!(name, "." | "..") || name.contains(['/', '%']) {
            errors.push(invalid("may not be '.' or '..' nor contain '/' or '%'"));
        }
    } else if name.len() > labels::SUBDOMAIN_BYTES_MAX {
        errors.push(invalid("must be no more than 253 characters"));
    } else if !labels::is_subdomain(name) {
        errors.push(invalid(labels::SUBDOMAIN_RULE));
    }
    errors.extend(labels::validate_metadata(object, "metadata"));
    errors.extend(validate_owners(object));
    errors
}

/// The metadata errors of a change from `old` to `new`.
pub(crate) fn validate_update(resource: Resource, old: &Value, new: &Value) -> Vec<FieldError> {
    // Upstream does not validate the metadata of these two kinds again in the kind's own
    // validation.
    let is_lenient = matches!(resource, Resource::Events | Resource::Leases);
    let (of_finalizers, mut errors): (Vec<_>, Vec<_>) = labels::validate_metadata(new, "metadata")
        .into_iter()
        .partition(|error| error.field().starts_with("metadata.finalizers["));
    let owner_errors = validate_owners(new);
    errors.extend(owner_errors.clone());
    errors.extend(owner_errors);
    for name in ["name", "namespace", "uid"] {
        let (old, new) = (&old["metadata"][name], &new["metadata"][name]);
        if old != new {
            let error = FieldError::immutable(&format!("metadata.{name}"), &new.to_string());
            errors.push(error);
        }
    }
    let old_finalizers = entries(old, "/metadata/finalizers");
    let is_deleting = old["metadata"]["deletionTimestamp"].is_string();
    let added: Vec<&str> = entries(new, "/metadata/finalizers")
        .iter()
        .filter(|finalizer| !old_finalizers.contains(finalizer))
        .filter_map(Value::as_str)
        .collect();
    if is_deleting && !added.is_empty() {
        let why = format!(
            "no new finalizers can be added if the object is being deleted, found new finalizers \
             []string{added:?}"
        );
        let why = why.replace("[]string[", "[]string{").replace("\"]", "\"}");
        errors.push(FieldError::forbidden("metadata.finalizers", &why));
    }
    if !is_lenient {
        errors.extend(of_finalizers);
    }
    // Upstream validates metadata in the generic update and in the kind's own, so the causes
    // repeat.
    let again = errors.clone();
    errors.into_iter().chain(again).collect()
}

fn validate_owners(object: &Value) -> Vec<FieldError> {
    let owners = entries(object, "/metadata/ownerReferences");
    let mut errors = Vec::new();
    for (n, owner) in owners.iter().enumerate() {
        for name in ["apiVersion", "kind", "name", "uid"] {
            if text(owner, &format!("/{name}")).is_empty() {
                let field = format!("metadata.ownerReferences[{n}].{name}");
                errors.push(FieldError::required(&field, "must not be empty"));
            }
        }
    }
    let is_controller = |owner: &&Value| owner["controller"] == json!(true);
    let controllers: Vec<&Value> = owners.iter().filter(is_controller).collect();
    if let [first, second, ..] = controllers.as_slice() {
        let names = [*first, *second].map(|owner| {
            let (kind, name) = (text(owner, "/kind"), text(owner, "/name"));
            format!("{kind}/{name}")
        });
        let why = format!(
            "Only one reference can have Controller set to true. Found \"true\" in references for \
             {} and {}",
            names[0], names[1]
        );
        let value = owners.iter().map(owner_text).collect::<Vec<_>>().join(",");
        let value = format!("[{value}]");
        errors.push(FieldError::invalid(
            "metadata.ownerReferences",
            &value,
            &why,
        ));
    }
    errors
}

/// An owner reference with its members in the API server's order.
fn owner_text(owner: &Value) -> String {
    let names = [
        "apiVersion",
        "kind",
        "name",
        "uid",
        "controller",
        "blockOwnerDeletion",
    ];
    let members = names.into_iter().filter_map(|name| {
        let value = owner.get(name)?;
        Some(format!("\"{name}\":{value}"))
    });
    format!("{{{}}}", members.collect::<Vec<_>>().join(","))
}

fn generate_name(prefix: &str) -> String {
    let mut end = prefix.len().min(GENERATED_NAME_PREFIX_MAX);
    while !prefix.is_char_boundary(end) {
        end -= 1;
    }
    let suffix = (0..5).map(|_| {
        let at = fastrand::usize(..NAME_CHARACTERS.len());
        char::from(NAME_CHARACTERS[at])
    });
    let mut name = prefix[..end].to_owned();
    name.extend(suffix);
    name
}

/// The current time in API format.
pub(crate) fn now() -> String {
    time_text(Timestamp::now())
}

/// A time in API format, in whole seconds.
pub(crate) fn time_text(time: Timestamp) -> String {
    time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{generate_name, prepare};
    use crate::objects::labels::is_subdomain;
    use crate::resource::Resource;

    #[test]
    fn generated_names_fit() {
        let name = generate_name(&"x".repeat(80));
        assert_eq!(name.len(), 63);
        assert!(is_subdomain(&name), "{name}");
    }

    #[test]
    fn an_explicit_name_wins_and_server_fields_are_replaced() {
        let mut pod = json!({"metadata": {
            "name": "mine", "generateName": "web-", "uid": "x", "generation": 7,
            "creationTimestamp": null, "deletionTimestamp": "2026-01-01T00:00:00Z", "labels": {},
        }});
        prepare(Resource::Pods, Some("n"), &mut pod);
        let metadata = &pod["metadata"];
        assert_eq!(metadata["name"], json!("mine"));
        assert_eq!(metadata["generation"], json!(1));
        assert_ne!(metadata["uid"], json!("x"));
        assert!(metadata.get("deletionTimestamp").is_none() && metadata.get("labels").is_none());
    }
}
