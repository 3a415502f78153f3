//! CustomResourceDefinitions: defaults, the status of an accepted definition, and validation.
//!
//! DIFFERS: names of two definitions are not compared, and schemas are stored and not read.

use serde_json::{Value, json};

use super::super::status_error::FieldError;
use super::{entries, map_of, meta, set_default, text};

pub(super) fn set_defaults(definition: &mut Value) {
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
pub(super) fn status(definition: &Value) -> Value {
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

/// The mistakes without which the server could not serve the definition's objects.
pub(super) fn validate(definition: &Value) -> Vec<FieldError> {
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
    let scope = text(definition, "/spec/scope");
    if !matches!(scope, "Namespaced" | "Cluster") {
        let value = json!(scope).to_string();
        let supported = "\"Cluster\", \"Namespaced\"";
        errors.push(FieldError::not_supported("spec.scope", &value, supported));
    }
    let versions = entries(definition, "/spec/versions");
    let stored = versions
        .iter()
        .filter(|version| version["storage"] == json!(true));
    if stored.count() != 1 {
        let value = json!(versions.len()).to_string();
        let why = "must have exactly one version marked as storage version";
        errors.push(FieldError::invalid("spec.versions", &value, why));
    }
    let (plural, group) = (
        text(definition, "/spec/names/plural"),
        text(definition, "/spec/group"),
    );
    let (name, expected) = (
        text(definition, "/metadata/name"),
        format!("{plural}.{group}"),
    );
    if errors.is_empty() && name != expected {
        let value = json!(name).to_string();
        let why = "must be spec.names.plural+\".\"+spec.group";
        errors.push(FieldError::invalid("metadata.name", &value, why));
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
                "names": {"plural": "widgets", "kind": "Widget"},
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
        check("/spec/scope", &json!("Global"), "spec.scope");
        check("/spec/versions", &json!([]), "spec.versions");
    }
}
