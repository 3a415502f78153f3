//! The schemas of custom resources: unknown fields, defaults and validation, with the error texts
//! of apiextensions-apiserver (`pkg/apiserver/schema`, kube-openapi `pkg/validation`). Pure.
//!
//! DIFFERS: CEL rules (`x-kubernetes-validations`) and formats are not evaluated, and stored
//! objects get no defaults that are newer than they are.

use regex::Regex;
use serde_json::{Map, Value, json};

use crate::json::{entries, members, number, text, type_of};
use crate::status_error::FieldError;

/// The keyword of CEL rules.
const RULES: &str = "x-kubernetes-validations";

/// Maximum levels of a schema that are read; real definitions have some tens.
const DEPTH_MAX: usize = 100;

/// True if a schema has CEL rules at any depth.
pub(crate) fn has_rules(schema: &Value) -> bool {
    match schema {
        Value::Object(members) => members.contains_key(RULES) || members.values().any(has_rules),
        Value::Array(entries) => entries.iter().any(has_rules),
        _ => false,
    }
}

/// Removes the fields that the schema does not have, and returns their paths.
pub(crate) fn prune(schema: &Value, object: &mut Value) -> Vec<String> {
    let mut pruned = Vec::new();
    prune_at(schema, object, "", true, &mut pruned);
    pruned
}

fn is_true(schema: &Value, keyword: &str) -> bool {
    schema[keyword] == true
}

fn child(path: &str, name: &str) -> String {
    let dot = if path.is_empty() { "" } else { "." };
    format!("{path}{dot}{name}")
}

/// True for what each object has without a schema.
fn is_of_object(name: &str, is_object: bool) -> bool {
    is_object && matches!(name, "metadata" | "kind" | "apiVersion")
}

fn member<'a>(schema: &'a Value, name: &str) -> Option<&'a Value> {
    let properties = schema["properties"].get(name);
    properties.or_else(|| Some(&schema["additionalProperties"]).filter(|it| it.is_object()))
}

fn prune_at(
    schema: &Value,
    value: &mut Value,
    path: &str,
    is_object: bool,
    pruned: &mut Vec<String>,
) {
    match value {
        Value::Object(map) => {
            let keeps = is_true(schema, "x-kubernetes-preserve-unknown-fields")
                || is_true(schema, "additionalProperties");
            map.retain(|name, value| {
                if is_of_object(name, is_object) {
                    return true;
                }
                let path = child(path, name);
                let Some(inner) = member(schema, name) else {
                    if !keeps {
                        pruned.push(path);
                    }
                    return keeps;
                };
                let is_object = is_true(inner, "x-kubernetes-embedded-resource");
                prune_at(inner, value, &path, is_object, pruned);
                true
            });
        }
        Value::Array(entries) => {
            for (index, entry) in entries.iter_mut().enumerate() {
                let inner = &schema["items"];
                let is_object = is_true(inner, "x-kubernetes-embedded-resource");
                prune_at(inner, entry, &format!("{path}[{index}]"), is_object, pruned);
            }
        }
        _ => {}
    }
}

/// Adds the members with a default that are absent, and removes those that may not be `null`.
pub(crate) fn set_defaults(schema: &Value, value: &mut Value) {
    match value {
        Value::Object(map) => {
            for (name, inner) in members(schema, "/properties") {
                let is_absent = map
                    .get(name)
                    .is_none_or(|value| value.is_null() && !is_true(inner, "nullable"));
                match inner.get("default") {
                    Some(default) if is_absent => {
                        map.insert(name.clone(), default.clone());
                    }
                    None if is_absent => {
                        map.remove(name);
                    }
                    _ => {}
                }
            }
            for (name, value) in map.iter_mut() {
                if let Some(inner) = member(schema, name) {
                    set_defaults(inner, value);
                }
            }
        }
        Value::Array(entries) => {
            for entry in entries {
                set_defaults(&schema["items"], entry);
            }
        }
        _ => {}
    }
}

pub(crate) fn validate(schema: &Value, object: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    validate_at(schema, object, "", DEPTH_MAX, &mut errors);
    errors
}

fn validate_at(
    schema: &Value,
    value: &Value,
    path: &str,
    depth: usize,
    errors: &mut Vec<FieldError>,
) {
    if depth == 0 || value.is_null() && is_true(schema, "nullable") {
        return;
    }
    if let Some(error) = wrong_type(schema, value, path) {
        errors.push(error);
        return;
    }
    let choices = entries(schema, "/enum");
    if !choices.is_empty() && !choices.contains(value) {
        let texts: Vec<String> = choices.iter().map(plain).collect();
        let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
        errors.push(FieldError::not_supported(path, value, &texts));
    }
    match value {
        Value::Object(map) => {
            validate_members(schema, map, path, depth, errors);
        }
        Value::Array(list) => {
            validate_list(schema, list, path, errors);
            for (index, entry) in list.iter().enumerate() {
                let path = format!("{path}[{index}]");
                validate_at(&schema["items"], entry, &path, depth - 1, errors);
            }
        }
        Value::String(text) => errors.extend(text_errors(schema, text, path)),
        Value::Number(number) => {
            let number = number.as_f64().unwrap_or_default();
            errors.extend(number_errors(schema, number, value, path));
        }
        _ => {}
    }
    errors.extend(combined(schema, value, path, depth));
}

/// A choice of an enumeration in messages.
fn plain(value: &Value) -> String {
    value
        .as_str()
        .map_or_else(|| value.to_string(), str::to_owned)
}

fn invalid(path: &str, value: &Value, why: &str) -> FieldError {
    FieldError::invalid(path, value, &format!("{path} in body {why}"))
}

fn wrong_type(schema: &Value, value: &Value, path: &str) -> Option<FieldError> {
    if is_true(schema, "x-kubernetes-int-or-string") {
        let fits = value.is_i64() || value.is_string();
        let found = type_name(value);
        let why = format!("must be of type integer,string: \"{found}\"");
        return (!fits).then(|| invalid(path, &json!(found), &why));
    }
    let wanted = text(schema, "/type");
    let found = type_name(value);
    let is_whole = value.as_f64().is_some_and(|number| number.fract() == 0.0);
    let fits = match wanted {
        "" => true,
        "integer" => value.is_i64() || value.is_u64() || value.is_f64() && is_whole,
        "number" => value.is_number(),
        wanted => wanted == found,
    };
    let why = format!("must be of type {wanted}: \"{found}\"");
    (!fits).then(|| invalid(path, &json!(found), &why))
}

fn type_name(value: &Value) -> &'static str {
    match value {
        Value::Number(number) if !number.is_f64() => "integer",
        Value::Bool(_) => "boolean",
        value => type_of(value),
    }
}

fn validate_members(
    schema: &Value,
    map: &Map<String, Value>,
    path: &str,
    depth: usize,
    errors: &mut Vec<FieldError>,
) {
    for name in entries(schema, "/required")
        .iter()
        .filter_map(Value::as_str)
    {
        if !map.contains_key(name) {
            errors.push(FieldError::required(&child(path, name), ""));
        }
    }
    errors.extend(size_errors(
        schema,
        map.len(),
        &json!(map),
        path,
        "Properties",
    ));
    let is_object = path.is_empty() || is_true(schema, "x-kubernetes-embedded-resource");
    for (name, value) in map
        .iter()
        .filter(|(name, _)| !is_of_object(name, is_object))
    {
        if let Some(inner) = member(schema, name) {
            validate_at(inner, value, &child(path, name), depth - 1, errors);
        }
    }
}

/// An error if a map or list has less than `minNAME` or more than `maxNAME` members.
fn size_errors(
    schema: &Value,
    n_members: usize,
    value: &Value,
    path: &str,
    name: &str,
) -> Option<FieldError> {
    let n_members = i64::try_from(n_members).unwrap_or(i64::MAX);
    let bound = |side: &str| number(schema, &format!("/{side}{name}"));
    if let Some(min) = bound("min").filter(|min| n_members < *min) {
        let why = format!("should have at least {min} {}", name.to_lowercase());
        return Some(invalid(path, value, &why));
    }
    let max = bound("max").filter(|max| n_members > *max)?;
    Some(FieldError::too_many(path, n_members, max))
}

fn validate_list(schema: &Value, list: &[Value], path: &str, errors: &mut Vec<FieldError>) {
    errors.extend(size_errors(
        schema,
        list.len(),
        &json!(list.len()),
        path,
        "Items",
    ));
    let names = entries(schema, "/x-kubernetes-list-map-keys");
    let key = |entry: &Value| match text(schema, "/x-kubernetes-list-type") {
        "set" => Some(entry.clone()),
        "map" => {
            let named = names.iter().filter_map(Value::as_str);
            let named = named.filter_map(|name| Some((name.to_owned(), entry.get(name)?.clone())));
            Some(Value::Object(named.collect()))
        }
        _ => None,
    };
    let keys: Vec<Option<Value>> = list.iter().map(key).collect();
    for (index, own) in keys.iter().enumerate() {
        if let Some(own) = own
            && keys[..index].contains(&Some(own.clone()))
        {
            errors.push(FieldError::duplicate(&format!("{path}[{index}]"), own));
        }
    }
}

fn text_errors(schema: &Value, text: &str, path: &str) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let length = i64::try_from(text.chars().count()).unwrap_or(i64::MAX);
    let value = json!(text);
    if let Some(max) = number(schema, "/maxLength").filter(|max| length > *max) {
        errors.push(FieldError::too_long(
            path,
            usize::try_from(max).unwrap_or(0),
        ));
    }
    if let Some(min) = number(schema, "/minLength").filter(|min| length < *min) {
        let why = format!("should be at least {min} chars long");
        errors.push(invalid(path, &value, &why));
    }
    let pattern = schema["pattern"].as_str().unwrap_or_default();
    // A pattern that this server cannot read fits everything.
    if !pattern.is_empty() && Regex::new(pattern).is_ok_and(|it| !it.is_match(text)) {
        errors.push(invalid(path, &value, &format!("should match '{pattern}'")));
    }
    errors
}

fn number_errors(schema: &Value, number: f64, value: &Value, path: &str) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let names = [
        ("minimum", "exclusiveMinimum", "greater", 1.0),
        ("maximum", "exclusiveMaximum", "less", -1.0),
    ];
    for (name, exclusive, word, sign) in names {
        let is_exclusive = is_true(schema, exclusive);
        let within = |bound: &f64| (number - bound) * sign;
        let is_wrong = |it: &f64| within(it) < 0.0 || is_exclusive && within(it) <= 0.0;
        if let Some(bound) = schema[name].as_f64().filter(is_wrong) {
            let or_equal = if is_exclusive { "" } else { " or equal to" };
            let why = format!("should be {word} than{or_equal} {bound}");
            errors.push(invalid(path, value, &why));
        }
    }
    let step = schema["multipleOf"].as_f64();
    if let Some(step) = step.filter(|step| (number / step).fract() != 0.0) {
        errors.push(invalid(
            path,
            value,
            &format!("should be a multiple of {step}"),
        ));
    }
    errors
}

/// The errors of `allOf`, `anyOf`, `oneOf` and `not`.
fn combined(schema: &Value, value: &Value, path: &str, depth: usize) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let errors_of = |inner: &Value| {
        let mut errors = Vec::new();
        validate_at(inner, value, path, depth - 1, &mut errors);
        errors
    };
    let all = entries(schema, "/allOf");
    errors.extend(all.iter().flat_map(errors_of));
    let n_valid = |name: &str| {
        let list = entries(schema, &format!("/{name}"));
        let valid = list.iter().filter(|inner| errors_of(inner).is_empty());
        (!list.is_empty()).then(|| valid.count())
    };
    let mut reject = |why: String| errors.push(FieldError::invalid(path, "", &why));
    if n_valid("anyOf") == Some(0) {
        reject(format!(
            "\"{path}\" must validate at least one schema (anyOf)"
        ));
    }
    match n_valid("oneOf") {
        Some(0) => reject(format!(
            "\"{path}\" must validate one and only one schema (oneOf). Found none valid"
        )),
        Some(n) if n > 1 => reject(format!(
            "\"{path}\" must validate one and only one schema (oneOf). Found {n} valid alternatives"
        )),
        _ => {}
    }
    if schema["not"].is_object() && errors_of(&schema["not"]).is_empty() {
        reject(format!("\"{path}\" must not validate the schema (not)"));
    }
    errors
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::{has_rules, prune, set_defaults, validate};

    fn schema() -> Value {
        json!({"type": "object", "required": ["spec"], "properties": {
            "spec": {"type": "object", "required": ["size"], "properties": {
                "size": {"type": "integer", "minimum": 1, "maximum": 5},
                "mode": {"type": "string", "enum": ["a", "b"], "default": "a"},
                "name": {"type": "string", "minLength": 2, "maxLength": 4, "pattern": "^[a-z]+$"},
                "port": {"x-kubernetes-int-or-string": true},
                "any": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
                "list": {"type": "array", "maxItems": 2, "x-kubernetes-list-type": "map",
                    "x-kubernetes-list-map-keys": ["key"],
                    "items": {"type": "object", "properties": {
                        "key": {"type": "string"}, "value": {"type": "integer", "default": 7},
                    }}},
            }},
            "status": {"type": "object", "properties": {"n": {"type": "integer"}}},
        }})
    }

    #[track_caller]
    fn check(spec: &Value, expected: &[&str]) {
        let errors = validate(&schema(), &json!({"metadata": {}, "spec": spec}));
        let texts: Vec<String> = errors.iter().map(ToString::to_string).collect();
        assert_eq!(texts, expected);
    }

    #[test]
    fn errors_have_the_texts_of_kube_apiserver() {
        check(&json!({"size": 1, "port": "http", "any": {"x": [1]}}), &[]);
        check(&json!({}), &["spec.size: Required value"]);
        check(
            &json!({"size": 6}),
            &["spec.size: Invalid value: 6: spec.size in body should be less than or equal to 5"],
        );
        let why = "spec.size: Invalid value: \"string\": spec.size in body must be of type \
                   integer: \"string\"";
        check(&json!({"size": "x"}), &[why]);
        check(
            &json!({"size": 2, "mode": "c"}),
            &["spec.mode: Unsupported value: \"c\": supported values: \"a\", \"b\""],
        );
        check(
            &json!({"size": 2, "name": "A1"}),
            &["spec.name: Invalid value: \"A1\": spec.name in body should match '^[a-z]+$'"],
        );
        let twice = json!({"size": 2, "list": [{"key": "a"}, {"key": "a"}]});
        check(&twice, &["spec.list[1]: Duplicate value: {\"key\":\"a\"}"]);
    }

    #[test]
    fn unknown_fields_are_removed_and_defaults_are_set() {
        let mut object = json!({
            "kind": "W", "metadata": {"any": "thing"}, "other": 1,
            "spec": {"sise": 1, "any": {"x": 1}, "mode": null, "list": [{"key": "a", "b": 1}]},
        });
        let unknown = ["other", "spec.list[0].b", "spec.sise"];
        let mut pruned = prune(&schema(), &mut object);
        pruned.sort();
        assert_eq!(pruned, unknown);
        set_defaults(&schema(), &mut object);
        let spec = json!({"any": {"x": 1}, "mode": "a", "list": [{"key": "a", "value": 7}]});
        assert_eq!(
            object,
            json!({"kind": "W", "metadata": {"any": "thing"}, "spec": spec})
        );
    }

    #[test]
    fn rules_are_found_at_any_depth() {
        assert!(!has_rules(&schema()));
        let rules = json!([{"rule": "self.a == 1"}]);
        let deep = json!({"properties": {"a": {"items": {"x-kubernetes-validations": rules}}}});
        assert!(has_rules(&deep));
    }
}
