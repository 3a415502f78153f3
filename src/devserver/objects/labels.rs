//! The syntax of labels, annotations and finalizers, with the API server's error texts
//! (apimachinery `pkg/apis/meta/v1/validation`, `pkg/util/validation`).

use serde_json::{Value, json};

use crate::objects::entries;
use crate::status_error::FieldError;

/// Maximum bytes of a label key's name part, and of a label value.
pub(crate) const NAME_BYTES_MAX: usize = 63;

/// Maximum bytes of most objects' names, and of a label key's prefix (apimachinery
/// `pkg/util/validation:DNS1123SubdomainMaxLength`).
pub(crate) const SUBDOMAIN_BYTES_MAX: usize = 253;

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

const NAME_PART_RULE: &str = "name part must consist of alphanumeric characters, '-', '_' or '.', \
     and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or \
     '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')";

const VALUE_RULE: &str = "a valid label must be an empty string or consist of alphanumeric \
     characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. \
     'MyValue',  or 'my_value',  or '12345', regex used for validation is \
     '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')";

/// The errors of the labels, annotations and finalizers in the metadata at `field`, such as
/// `spec.template.metadata`.
pub(crate) fn validate_metadata(object: &Value, field: &str) -> Vec<FieldError> {
    let pointer = format!("/{}", field.replace('.', "/"));
    let labels = object.pointer(&format!("{pointer}/labels"));
    let mut errors = validate_labels(labels, &format!("{field}.labels"));
    errors.extend(validate_annotations(
        object.pointer(&format!("{pointer}/annotations")),
        &format!("{field}.annotations"),
    ));
    let finalizers = entries(object, &format!("{pointer}/finalizers"));
    for (index, finalizer) in finalizers.iter().enumerate() {
        let finalizer = finalizer.as_str().unwrap_or_default();
        let value = json!(finalizer).to_string();
        let field = format!("{field}.finalizers");
        for why in key_faults(finalizer) {
            errors.push(FieldError::invalid(&field, &value, &why));
        }
        let is_standard = matches!(finalizer, "kubernetes" | "orphan" | "foregroundDeletion");
        if !finalizer.contains('/') && !is_standard {
            let why = "name is neither a standard finalizer name nor is it fully qualified";
            errors.push(FieldError::invalid(
                &format!("{field}[{index}]"),
                &value,
                why,
            ));
        }
    }
    errors
}

fn validate_labels(labels: Option<&Value>, field: &str) -> Vec<FieldError> {
    let mut errors = Vec::new();
    for (key, value) in labels.and_then(Value::as_object).into_iter().flatten() {
        let key_text = json!(key).to_string();
        let faults = key_faults(key).into_iter();
        errors.extend(faults.map(|why| FieldError::invalid(field, &key_text, &why)));
        let faults = value_faults(value.as_str().unwrap_or_default()).into_iter();
        errors.extend(faults.map(|why| FieldError::invalid(field, &value.to_string(), why)));
    }
    errors
}

fn validate_annotations(annotations: Option<&Value>, field: &str) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let mut n_bytes = 0;
    for (key, value) in annotations.and_then(Value::as_object).into_iter().flatten() {
        n_bytes += key.len() + value.as_str().unwrap_or_default().len();
        let key_text = json!(key).to_string();
        let faults = key_faults(&key.to_lowercase()).into_iter();
        errors.extend(faults.map(|why| FieldError::invalid(field, &key_text, &why)));
    }
    if n_bytes > ANNOTATIONS_BYTES_MAX {
        errors.push(FieldError::too_long(field, ANNOTATIONS_BYTES_MAX));
    }
    errors
}

/// The syntax errors of a key `prefix/name` or `name`.
pub(crate) fn key_faults(key: &str) -> Vec<String> {
    let mut faults = Vec::new();
    let (prefix, name) = match key.split_once('/') {
        Some((prefix, name)) => (Some(prefix), name),
        None => (None, key),
    };
    if name.contains('/') {
        let why = "a valid label key must consist of alphanumeric characters, '-', '_' or '.', and \
                   must start and end with an alphanumeric character (e.g. 'MyName',  or \
                   'my.name',  or '123-abc', regex used for validation is \
                   '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]') with an optional DNS subdomain \
                   prefix and '/' (e.g. 'example.com/MyName')";
        return vec![why.to_owned()];
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
        faults.push(NAME_PART_RULE.to_owned());
    }
    faults
}

/// The syntax errors of a label value.
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

/// True for DNS labels joined by dots.
pub(crate) fn is_subdomain(name: &str) -> bool {
    name.len() <= SUBDOMAIN_BYTES_MAX && name.split('.').all(is_label)
}

/// True for a DNS label of any length.
pub(crate) fn is_label(name: &str) -> bool {
    let is_inner = |c: u8| c.is_ascii_lowercase() || c.is_ascii_digit() || c == b'-';
    !name.is_empty() && name.bytes().all(is_inner) && !name.starts_with('-') && !name.ends_with('-')
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
    use super::{is_subdomain, key_faults, value_faults};

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
