//! CustomResourceDefinitions: defaults, the status of an accepted definition, and validation.
//!
//! DIFFERS: names of two definitions are not compared, groups of `k8s.io` need no approval, and
//! schemas are stored and not read.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::objects::labels::{SUBDOMAIN_RULE, dns_1035_faults, is_subdomain};
use crate::objects::{entries, map_of, meta, set_default, text};
use crate::status_error::FieldError;

pub(crate) fn set_defaults(definition: &mut Value) {
    let spec = map_of(definition, "spec");
    set_default(spec, "conversion", json!({"strategy": "None"}));
    let names = spec.entry("names").or_insert_with(|| json!({}));
    let Some(names) = names.as_object_mut() else {
        return;
    };
    let kind = names.get("kind").and_then(Value::as_str);
    let kind = kind.unwrap_or_default().to_owned();
    set_default(names, "singular", kind.to_lowercase());
    set_default(names, "listKind", format!("{kind}List"));
}

/// The status of a definition whose objects are served.
pub(crate) fn status(definition: &Value) -> Value {
    let condition = |kind: &str, reason: &str, message: &str| {
        json!({
            "type": kind, "status": "True", "reason": reason, "message": message,
            "lastTransitionTime": meta::now(),
        })
    };
    let mut versions = entries(definition, "/spec/versions").iter();
    let stored = versions.find(|version| version["storage"] == json!(true));
    let stored = stored.map(|version| version["name"].clone());
    json!({
        "conditions": [
            condition("NamesAccepted", "NoConflicts", "no conflicts found"),
            condition(
                "Established",
                "InitialNamesAccepted",
                "the initial names have been accepted",
            ),
        ],
        "acceptedNames": definition["spec"]["names"],
        "storedVersions": Vec::from_iter(stored),
    })
}

/// The mistakes without which the server could not serve the definition's objects
/// (apiextensions-apiserver `pkg/apis/apiextensions/validation`).
pub(crate) fn validate(definition: &Value) -> Vec<FieldError> {
    let required = ["/spec/group", "/spec/names/plural", "/spec/names/kind"];
    let missing = required
        .into_iter()
        .filter(|pointer| text(definition, pointer).is_empty());
    let mut errors: Vec<FieldError> = missing
        .map(|pointer| {
            let field = pointer[1..].replace('/', ".");
            FieldError::required(&field, "")
        })
        .collect();
    let group = text(definition, "/spec/group");
    if !group.is_empty() && !is_subdomain(group) {
        errors.push(invalid("spec.group", group, SUBDOMAIN_RULE));
    } else if !group.is_empty() && !group.contains('.') {
        let why = "should be a domain with at least one dot";
        errors.push(invalid("spec.group", group, why));
    }
    let scope = text(definition, "/spec/scope");
    if !matches!(scope, "Namespaced" | "Cluster") {
        let value = json!(scope).to_string();
        let supported = "\"Cluster\", \"Namespaced\"";
        errors.push(FieldError::not_supported("spec.scope", &value, supported));
    }
    errors.extend(mistakes_of_versions(definition));
    errors.extend(mistakes_of_names(definition));
    let plural = text(definition, "/spec/names/plural");
    let name = text(definition, "/metadata/name");
    if errors.is_empty() && name != format!("{plural}.{group}") {
        let why = "must be spec.names.plural+\".\"+spec.group";
        errors.push(invalid("metadata.name", name, why));
    }
    errors
}

fn invalid(field: &str, value: &str, why: &str) -> FieldError {
    FieldError::invalid(field, &json!(value).to_string(), why)
}

/// A mistake if the name is no DNS label that begins with a letter.
fn invalid_label(field: &str, name: &str) -> Option<FieldError> {
    let faults = dns_1035_faults(name).join(",");
    (!faults.is_empty()).then(|| invalid(field, name, &faults))
}

fn mistakes_of_versions(definition: &Value) -> Vec<FieldError> {
    let versions = entries(definition, "/spec/versions");
    let names: Vec<&str> = versions.iter().map(|it| text(it, "/name")).collect();
    let fields = names.iter().enumerate();
    let labels = fields.map(|(number, name)| (format!("spec.versions[{number}].name"), name));
    let mut errors: Vec<FieldError> = labels
        .filter_map(|(field, name)| invalid_label(&field, name))
        .collect();
    let value = json!(versions.len()).to_string();
    let mut refuse = |why| errors.push(FieldError::invalid("spec.versions", &value, why));
    if names.iter().collect::<BTreeSet<_>>().len() < names.len() {
        refuse("must contain unique version names");
    }
    let stored = versions
        .iter()
        .filter(|version| version["storage"] == json!(true));
    if stored.count() != 1 {
        refuse("must have exactly one version marked as storage version");
    }
    errors
}

fn mistakes_of_names(definition: &Value) -> Vec<FieldError> {
    let of = |member: &str| text(definition, &format!("/spec/names/{member}"));
    let mut errors = Vec::new();
    for member in ["plural", "singular"] {
        let name = Some(of(member)).filter(|name| !name.is_empty());
        errors.extend(name.and_then(|name| invalid_label(&format!("spec.names.{member}"), name)));
    }
    for member in ["kind", "listKind"] {
        let faults = dns_1035_faults(&of(member).to_lowercase()).join(",");
        if !of(member).is_empty() && !faults.is_empty() {
            let why = format!("may have mixed case, but should otherwise match: {faults}");
            errors.push(invalid(&format!("spec.names.{member}"), of(member), &why));
        }
    }
    if of("kind") == of("listKind") {
        let why = "kind and listKind may not be the same";
        errors.push(invalid("spec.names.listKind", of("listKind"), why));
    }
    for member in ["shortNames", "categories"] {
        let names = entries(definition, &format!("/spec/names/{member}")).iter();
        for (number, name) in names.enumerate() {
            let field = format!("spec.names.{member}[{number}]");
            errors.extend(invalid_label(&field, name.as_str().unwrap_or_default()));
        }
    }
    errors
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::{set_defaults, validate};

    fn definition() -> Value {
        let mut definition = json!({
            "metadata": {"name": "widgets.example.com"},
            "spec": {
                "group": "example.com", "scope": "Namespaced",
                "names": {
                    "plural": "widgets", "kind": "Widget", "shortNames": [], "categories": [],
                },
                "versions": [{"name": "v1", "served": true, "storage": true}],
            },
        });
        set_defaults(&mut definition);
        definition
    }

    #[test]
    fn a_definition_gets_the_names_that_it_lacks() {
        let definition = definition();
        assert_eq!(validate(&definition), []);
        let names = &definition["spec"]["names"];
        assert_eq!(
            (&names["singular"], &names["listKind"]),
            (&json!("widget"), &json!("WidgetList"))
        );
    }

    #[test]
    fn definitions_that_cannot_be_served_are_invalid() {
        #[track_caller]
        fn check(pointer: &str, value: &Value, expected: &str) {
            let mut definition = definition();
            let member = definition.pointer_mut(pointer).expect("a member");
            *member = value.clone();
            let errors = validate(&definition);
            assert_eq!(errors[0].field(), expected, "{errors:?}");
        }
        check(
            "/metadata/name",
            &json!("gadgets.example.com"),
            "metadata.name",
        );
        check("/spec/group", &json!(""), "spec.group");
        check("/spec/group", &json!("a/b.c"), "spec.group");
        check("/spec/group", &json!("example"), "spec.group");
        check("/spec/names/kind", &json!("\0"), "spec.names.kind");
        check(
            "/spec/names/listKind",
            &json!("List of Widgets"),
            "spec.names.listKind",
        );
        check(
            "/spec/names/listKind",
            &json!("Widget"),
            "spec.names.listKind",
        );
        check("/spec/names/plural", &json!("Widgets"), "spec.names.plural");
        let long = "w".repeat(64);
        check("/spec/names/singular", &json!(long), "spec.names.singular");
        check(
            "/spec/names/shortNames",
            &json!(["w", ""]),
            "spec.names.shortNames[1]",
        );
        check(
            "/spec/names/categories",
            &json!([1]),
            "spec.names.categories[0]",
        );
        check(
            "/spec/versions/0/name",
            &json!("1"),
            "spec.versions[0].name",
        );
        check("/spec/scope", &json!("Global"), "spec.scope");
        check("/spec/versions", &json!([]), "spec.versions");
        let version = json!({"name": "v1", "storage": true});
        let twice = json!([version, {"name": "v1", "storage": false}]);
        check("/spec/versions", &twice, "spec.versions");
    }
}
