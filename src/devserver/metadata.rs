//! Metadata: server-set fields of new objects, immutable fields, names, and the syntax of labels,
//! annotations and finalizers, with the API server's error texts (apimachinery
//! `pkg/apis/meta/v1/validation`, `pkg/util/validation`).

use jiff::Timestamp;
use serde_json::{Map, Value, json};

use crate::api::object_key::SUBDOMAIN_BYTES_MAX;
use crate::json::{drop_nulls, entries, is_deleting, map_of, members, text};
use crate::resource::Resource;
use crate::status_error::FieldError;
use crate::stdx::random_uuid;

pub(crate) use crate::api::object_key::{is_label, is_subdomain};

/// Maximum bytes of a generated name's prefix, which leaves room for five more characters
/// (apiserver `pkg/storage/names/generate.go:MaxGeneratedNameLength`).
const GENERATED_NAME_PREFIX_MAX: usize = 58;

/// The characters of generated names (apimachinery `pkg/util/rand:alphanums`).
const NAME_CHARACTERS: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";

/// Maximum bytes of a label key's name part, and of a label value.
const NAME_BYTES_MAX: usize = 63;

/// Maximum bytes of an object's annotations, keys and values together.
const ANNOTATIONS_BYTES_MAX: usize = 256 * 1024;

pub(crate) const LABEL_RULE: &str = "a lowercase RFC 1123 label must consist of lower case \
     alphanumeric characters or '-', and must start and end with an alphanumeric character (e.g. \
     'my-name',  or '123-abc', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')";

pub(crate) const SUBDOMAIN_RULE: &str = "a lowercase RFC 1123 subdomain must consist of lower case \
     alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character \
     (e.g. 'example.com', regex used for validation is \
     '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";

const DNS_1035_LABEL_RULE: &str = "a DNS-1035 label must consist of lower case \
     alphanumeric characters or '-', start with an alphabetic character, and end with an \
     alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for validation is \
     '[a-z]([-a-z0-9]*[a-z0-9])?')";

const WORD_RULE: &str = "must consist of alphanumeric characters, '-', '_' or '.', \
     and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or \
     '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')";

const VALUE_RULE: &str = "a valid label must be an empty string or consist of alphanumeric \
     characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. \
     'MyValue',  or 'my_value',  or '12345', regex used for validation is \
     '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')";

/// Fields that only the server sets; it ignores a request's values.
const SERVER_OWNED: [&str; 6] = [
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "generation",
    "managedFields",
    "selfLink",
];

/// Completes the metadata of a new object. An explicit name overrides `generateName`.
pub(crate) fn prepare(resource: Resource, namespace: Option<&str>, object: &mut Value) {
    let has_generation = resource.row().has_generation;
    let metadata = map_of(object, "metadata");
    metadata.retain(|name, value| {
        // Kinds without a generation counter keep the request's value.
        let is_kept = name == "generation" && !has_generation;
        !value.is_null() && (is_kept || !SERVER_OWNED.contains(&name.as_str()))
    });
    let text = |name: &str| {
        let text = metadata.get(name).and_then(Value::as_str);
        text.unwrap_or_default().to_owned()
    };
    let (name, prefix) = (text("name"), text("generateName"));
    if name.is_empty() && !prefix.is_empty() {
        metadata.insert("name".to_owned(), json!(generate_name(&prefix)));
    }
    if let Some(namespace) = namespace {
        metadata.insert("namespace".to_owned(), json!(namespace));
    }
    metadata.insert("uid".to_owned(), json!(random_uuid()));
    metadata.insert("creationTimestamp".to_owned(), json!(now()));
    if has_generation {
        metadata.insert("generation".to_owned(), json!(1));
    }
    drop_empty_maps(metadata);
}

/// Copies the server-owned fields and `resourceVersion` from `old` to `new`.
pub(crate) fn keep_server_owned(old: &Value, new: &mut Value) {
    let old = &old["metadata"];
    let metadata = map_of(new, "metadata");
    metadata.retain(|_, value| !value.is_null());
    for name in SERVER_OWNED.into_iter().chain(["resourceVersion"]) {
        metadata.remove(name);
        metadata.extend(old.get(name).map(|value| (name.to_owned(), value.clone())));
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

/// Sets `managedFields`, in upstream's order (apimachinery
/// `pkg/util/managedfields/internal/managedfields.go:sortEncodedManagedFields`).
pub(crate) fn set_managers(object: &mut Value, mut managers: Vec<Value>) {
    let names = ["operation", "time", "manager", "subresource"];
    managers.sort_by_key(|it| names.map(|name| it[name].as_str().unwrap_or_default().to_owned()));
    let metadata = map_of(object, "metadata");
    metadata.remove("managedFields");
    if !managers.is_empty() {
        metadata.insert("managedFields".to_owned(), json!(managers));
    }
}

pub(crate) fn bump_generation(object: &mut Value) {
    if let Some(generation) = object["metadata"]["generation"].as_i64() {
        object["metadata"]["generation"] = json!(generation + 1);
    }
}

pub(crate) fn validate(resource: Resource, object: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let prefix = text(object, "/metadata/generateName");
    // The generated suffix may follow a dash (apimachinery
    // `pkg/api/validation/generic.go:maskTrailingDash`).
    let is_prefix = match prefix.strip_suffix('-') {
        Some(stem) if !stem.is_empty() => is_subdomain(&format!("{}a", &stem[..stem.len() - 1])),
        _ => is_subdomain(prefix),
    };
    if !prefix.is_empty() && !is_prefix {
        let field = "metadata.generateName";
        errors.push(FieldError::invalid(field, prefix, SUBDOMAIN_RULE));
    }
    let name = text(object, "/metadata/name");
    if name.is_empty() {
        let why = "name or generateName is required";
        errors.push(FieldError::required("metadata.name", why));
    } else if let Some(why) = name_fault(resource, name) {
        errors.push(FieldError::invalid("metadata.name", name, why));
    }
    errors.extend(validate_maps(object, "metadata"));
    errors.extend(validate_owners(object));
    errors
}

/// What is wrong with the name of an object.
fn name_fault(resource: Resource, name: &str) -> Option<&'static str> {
    if resource == Resource::Namespaces {
        if name.contains('.') {
            return Some("must not contain dots");
        } else if name.len() > NAME_BYTES_MAX {
            return Some("must be no more than 63 bytes");
        }
        return (!is_label(name)).then_some(LABEL_RULE);
    }
    if resource.has_free_names() {
        let is_bad = matches!(name, "." | "..") || name.contains(['/', '%']);
        return is_bad.then_some("may not be '.' or '..' nor contain '/' or '%'");
    }
    if name.len() > SUBDOMAIN_BYTES_MAX {
        return Some("must be no more than 253 characters");
    }
    (!is_subdomain(name)).then_some(SUBDOMAIN_RULE)
}

pub(crate) fn validate_update(resource: Resource, old: &Value, new: &Value) -> Vec<FieldError> {
    // Upstream does not validate the metadata of these two kinds again in the kind's own
    // validation.
    let is_lenient = matches!(resource, Resource::Events | Resource::Leases);
    let (of_finalizers, mut errors): (Vec<_>, Vec<_>) = validate_maps(new, "metadata")
        .into_iter()
        .partition(|error| error.field().starts_with("metadata.finalizers["));
    let owner_errors = validate_owners(new);
    errors.extend(owner_errors.clone());
    errors.extend(owner_errors);
    for name in ["name", "namespace", "uid"] {
        let (old, new) = (&old["metadata"][name], &new["metadata"][name]);
        if old != new {
            errors.push(FieldError::immutable(&format!("metadata.{name}"), new));
        }
    }
    let old_finalizers = entries(old, "/metadata/finalizers");
    let added: Vec<&str> = entries(new, "/metadata/finalizers")
        .iter()
        .filter(|finalizer| !old_finalizers.contains(finalizer))
        .filter_map(Value::as_str)
        .collect();
    if is_deleting(old) && !added.is_empty() {
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
    let is_controller = |owner: &&Value| owner["controller"] == true;
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
        let order = "apiVersion kind name uid controller blockOwnerDeletion";
        let texts = owners.iter().map(|owner| ordered_text(owner, order));
        let value = format!("[{}]", texts.collect::<Vec<_>>().join(","));
        let field = "metadata.ownerReferences";
        errors.push(FieldError::invalid_text(field, &value, &why));
    }
    errors
}

/// A map with its members in the API server's order.
pub(crate) fn ordered_text(map: &Value, order: &str) -> String {
    let members = order.split(' ').filter_map(|name| {
        let value = map.get(name)?;
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

pub(crate) fn now() -> String {
    time_text(Timestamp::now())
}

/// A time in API format, in whole seconds.
pub(crate) fn time_text(time: Timestamp) -> String {
    time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// The errors of the labels, annotations and finalizers in the metadata at `field`, such as
/// `spec.template.metadata`.
pub(crate) fn validate_maps(object: &Value, field: &str) -> Vec<FieldError> {
    let pointer = format!("/{}", field.replace('.', "/"));
    let mut errors = Vec::new();
    let labels = format!("{field}.labels");
    for (key, value) in members(object, &format!("{pointer}/labels")) {
        let faults = key_faults(key).into_iter();
        errors.extend(faults.map(|why| FieldError::invalid(&labels, key, &why)));
        let faults = value_faults(value.as_str().unwrap_or_default()).into_iter();
        errors.extend(faults.map(|why| FieldError::invalid(&labels, value, why)));
    }
    let annotations = format!("{field}.annotations");
    let mut n_bytes = 0;
    for (key, value) in members(object, &format!("{pointer}/annotations")) {
        n_bytes += key.len() + value.as_str().unwrap_or_default().len();
        let faults = key_faults(&key.to_lowercase()).into_iter();
        errors.extend(faults.map(|why| FieldError::invalid(&annotations, key, &why)));
    }
    if n_bytes > ANNOTATIONS_BYTES_MAX {
        errors.push(FieldError::too_long(&annotations, ANNOTATIONS_BYTES_MAX));
    }
    let finalizers = entries(object, &format!("{pointer}/finalizers"));
    for (index, finalizer) in finalizers.iter().enumerate() {
        let finalizer = finalizer.as_str().unwrap_or_default();
        let field = format!("{field}.finalizers");
        let faults = key_faults(finalizer).into_iter();
        errors.extend(faults.map(|why| FieldError::invalid(&field, finalizer, &why)));
        let is_standard = matches!(finalizer, "kubernetes" | "orphan" | "foregroundDeletion");
        if !finalizer.contains('/') && !is_standard {
            let field = format!("{field}[{index}]");
            let why = "name is neither a standard finalizer name nor is it fully qualified";
            errors.push(FieldError::invalid(&field, finalizer, why));
        }
    }
    errors
}

pub(crate) fn key_faults(key: &str) -> Vec<String> {
    let mut faults = Vec::new();
    let (prefix, name) = match key.split_once('/') {
        Some((prefix, name)) => (Some(prefix), name),
        None => (None, key),
    };
    if name.contains('/') {
        let with_prefix = "with an optional DNS subdomain prefix and '/' (e.g. \
                           'example.com/MyName')";
        return vec![format!("a valid label key {WORD_RULE} {with_prefix}")];
    }
    match prefix {
        Some("") => faults.push("prefix part must be non-empty".to_owned()),
        Some(prefix) if prefix.len() > SUBDOMAIN_BYTES_MAX => {
            faults.push("prefix part must be no more than 253 bytes".to_owned());
        }
        Some(prefix) if !is_subdomain(prefix) => {
            faults.push(format!("prefix part {SUBDOMAIN_RULE}"));
        }
        _ => {}
    }
    if name.is_empty() {
        faults.push("name part must be non-empty".to_owned());
    } else if name.len() > NAME_BYTES_MAX {
        faults.push("name part must be no more than 63 bytes".to_owned());
    }
    if !is_word(name) {
        faults.push(format!("name part {WORD_RULE}"));
    }
    faults
}

pub(crate) fn value_faults(value: &str) -> Vec<&'static str> {
    let mut faults = Vec::new();
    if value.len() > NAME_BYTES_MAX {
        faults.push("must be no more than 63 bytes");
    }
    if !value.is_empty() && !is_word(value) {
        faults.push(VALUE_RULE);
    }
    faults
}

/// The syntax errors of a name that must be a DNS label which begins with a letter.
pub(crate) fn dns_1035_faults(name: &str) -> Vec<&'static str> {
    let mut faults = Vec::new();
    if name.len() > NAME_BYTES_MAX {
        faults.push("must be no more than 63 characters");
    }
    if !is_label(name) || !name.starts_with(|c: char| c.is_ascii_lowercase()) {
        faults.push(DNS_1035_LABEL_RULE);
    }
    faults
}

fn is_word(text: &str) -> bool {
    let is_inner = |c: u8| c.is_ascii_alphanumeric() || matches!(c, b'-' | b'_' | b'.');
    let is_end = |c: Option<&u8>| c.is_some_and(u8::is_ascii_alphanumeric);
    let bytes = text.as_bytes();
    is_end(bytes.first()) && is_end(bytes.last()) && bytes.iter().all(|c| is_inner(*c))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{generate_name, is_subdomain, key_faults, prepare, value_faults};
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

    #[test]
    fn names_are_checked() {
        assert!(is_subdomain("a.b-c") && is_subdomain("1"));
        for name in ["a_b", "-a", "a..b", "", "A"] {
            assert!(!is_subdomain(name), "{name}");
        }
    }

    #[test]
    fn keys_and_values_are_checked() {
        for key in ["a", "A_b.c-1", "example.com/name", "1", "a.b/c"] {
            assert_eq!(key_faults(key), Vec::<String>::new(), "{key}");
        }
        let long = "l".repeat(64);
        for key in [
            "",
            "a b",
            "/x",
            "a/",
            "UP/x",
            "a/b/c",
            "-a",
            "a-",
            long.as_str(),
        ] {
            assert!(!key_faults(key).is_empty(), "{key}");
        }
        for value in ["", "a", "A_b.c-1"] {
            assert!(value_faults(value).is_empty(), "{value}");
        }
        for value in ["e f", "/d", "-", "a.", long.as_str()] {
            assert!(!value_faults(value).is_empty(), "{value}");
        }
    }
}
